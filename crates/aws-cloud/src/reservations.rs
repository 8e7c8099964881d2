//! What becomes of reserved capacity while it is in use: instances that have lost their reservation, and capacity blocks that end (D-293, D-294).
//!
//! Owns the period, and the labels of NodeClaims and Nodes whose instance is on-demand now. Nodes of a block that ends go as by a message of the queue, so that
//! users are told and metrics count them (W-53).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use spokeshave_api::{NodeClaim, labels as api};
use spokeshave_model::CapacityType;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{Interruption, Interruptions, Write, WriteError, WriteTarget, Writes};
use spokeshave_provider_aws::instances;
use spokeshave_provider_aws::labels;

use crate::provider::Inner;

/// Reservations in use are looked at this often.
const PERIOD: Duration = Duration::from_secs(60);

impl Inner {
    fn reserved_claims(&self) -> Vec<Arc<NodeClaim>> {
        let mut claims = self.claims.all().unwrap_or_default();
        claims.retain(|claim| {
            claim.label(api::CAPACITY_TYPE) == Some(CapacityType::Reserved.as_str())
                && claim.metadata.deletion_timestamp.is_none()
                && claim.provider_id().is_some()
        });
        claims
    }

    /// Messages about instances in capacity blocks that end soon, for as long as somebody listens.
    pub(crate) fn ending_blocks(&self) -> Interruptions<'_> {
        let looks = stream::unfold((), move |()| async move {
            self.clock.sleep(PERIOD).await;
            Some((self.in_ending_blocks(), ()))
        });
        looks.flat_map(stream::iter).boxed()
    }

    fn in_ending_blocks(&self) -> Vec<Interruption> {
        let classes = self.classes.all().unwrap_or_default();
        let reservations = classes
            .iter()
            .filter_map(|class| class.status.as_ref())
            .flat_map(|status| &status.capacity_reservations);
        let ending: BTreeMap<&str, _> = reservations
            .filter(|one| one.reservation_type == "capacity-block" && one.state == "expiring")
            .map(|one| (one.id.as_str(), one.end_time))
            .collect();
        if ending.is_empty() {
            return Vec::new();
        }
        let claims = self.reserved_claims();
        let messages = claims.iter().filter_map(|claim| {
            let ends_at = ending.get(claim.label(labels::CAPACITY_RESERVATION_ID)?)?;
            let provider_id = claim.provider_id()?;
            Some(Interruption {
                id: format!("capacity_block/{}", instances::instance_id(provider_id)?),
                provider_id: provider_id.to_owned(),
                kind: Ok(InterruptionKind::CapacityReservationInterrupted),
                sent_at: None,
                ends_at: *ends_at,
            })
        });
        messages.collect()
    }

    /// Relabels what EC2 has moved out of a reservation, for as long as it is polled.
    pub(crate) async fn follow_reservations(&self, writes: &dyn Writes) {
        if !self.options.reserved_capacity {
            return;
        }
        loop {
            self.clock.sleep(PERIOD).await;
            for claim in self.reserved_claims() {
                let provider_id = claim.provider_id().unwrap_or_default();
                let instance = match self.instance(provider_id).await {
                    Ok(instance) => instance,
                    Err(error) => {
                        tracing::debug!(NodeClaim = claim.name(), %error, "cannot see whether the instance still has its reservation");
                        continue;
                    }
                };
                if instances::capacity_type(&instance) == CapacityType::OnDemand
                    && let Err(error) = self.demote(&claim, writes).await
                {
                    tracing::warn!(NodeClaim = claim.name(), %error, "cannot relabel what has lost its capacity reservation; it is tried again");
                }
            }
        }
    }

    /// The Node first: the NodeClaim is looked at again until both are done.
    async fn demote(&self, claim: &NodeClaim, writes: &dyn Writes) -> Result<(), WriteError> {
        let patch = json!({"metadata": {"labels": {
            api::CAPACITY_TYPE: CapacityType::OnDemand.as_str(),
            labels::CAPACITY_RESERVATION_ID: Value::Null,
            labels::CAPACITY_RESERVATION_TYPE: Value::Null,
            labels::CAPACITY_RESERVATION_INTERRUPTIBLE: Value::Null,
        }}});
        let of = |target: WriteTarget, name: &str| Write {
            target,
            name: name.to_owned(),
            patch: patch.clone(),
        };
        if let Some(node) = claim.node_name() {
            match writes.write(of(WriteTarget::Node, node)).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        let write = of(WriteTarget::NodeClaim, claim.name());
        match self.claims.write(writes, write).await {
            Ok(_) => {
                tracing::info!(
                    NodeClaim = claim.name(),
                    "its instance is no longer in a capacity reservation: it counts as on-demand"
                );
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }
}
