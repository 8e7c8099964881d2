//! How much of reserved capacity is free before its classes are looked at, and what becomes of it while it is in use: instances that have lost their
//! reservation, and capacity blocks that end (D-293, D-294).
//!
//! Owns the period, and the labels of NodeClaims and Nodes whose instance is on-demand now. Nodes of a block that ends go as by a message of the queue, so that
//! users are told and metrics count them (W-53).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_api::{EC2NodeClass, NodeClaim, labels as api};
use spokeshave_model::CapacityType;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{Interruption, Interruptions, Write, WriteError, WriteTarget, Writes};
use spokeshave_provider_aws::capacity_blocks::{CAPACITY_BLOCK, is_closed, reclaimed_at};
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::instances;
use spokeshave_provider_aws::labels;
use spokeshave_provider_aws::replies::CapacityReservation;
use spokeshave_provider_aws::requests::look_up::CapacityReservationsRequest;

use crate::provider::Inner;

/// Reservations in use are looked at this often.
const PERIOD: Duration = Duration::from_secs(60);
/// How often somebody looks whether a class has found one that EC2 was not asked for.
const TICK: Duration = Duration::from_secs(1);

/// Reservations that a class has found.
pub(crate) fn found_by(class: &EC2NodeClass) -> impl Iterator<Item = &str> {
    let found = class
        .status
        .iter()
        .flat_map(|status| &status.capacity_reservations);
    found.map(|reservation| reservation.id.as_str())
}

impl Inner {
    /// Reads how many instances are free in the reservations that classes have found, for as long as it is polled. Those that EC2 was not asked for yet come
    /// at once: nothing is launched from their classes before, and who begins to lead looks at the classes later. `reads_all` is for who looks at no class at
    /// all: it reads all of them every minute.
    pub(crate) async fn read_reservations(&self, reads_all: bool) {
        if !self.options.reserved_capacity {
            return;
        }
        let mut read_at = self.clock.now();
        loop {
            let classes = self.classes.all().unwrap_or_default();
            let found: BTreeSet<&str> = classes.iter().flat_map(|class| found_by(class)).collect();
            let wanted = if reads_all && self.clock.since(read_at) >= PERIOD {
                read_at = self.clock.now();
                found.into_iter().map(str::to_owned).collect()
            } else {
                self.market.unasked(found)
            };
            if !wanted.is_empty() {
                let counted = self.count_free(&wanted).await;
                if let Err(error) = counted {
                    let call = "ec2:DescribeCapacityReservations";
                    let effect = "nothing is launched into capacity reservations of which nothing is known";
                    self.tell_denied(call, effect, &error);
                    tracing::warn!(%error, "{call} failed; {effect}");
                    self.market.ask_in_vain(wanted);
                }
            }
            self.clock.sleep(TICK).await;
        }
    }

    async fn count_free(&self, ids: &BTreeSet<String>) -> Result<(), ApiError> {
        let found = match self.describe_reservations(ids.iter().cloned().collect()).await {
            // One that is gone hides the others.
            Err(error) if error.is_not_found() => {
                let mut found = Vec::new();
                for id in ids {
                    match self.describe_reservations(vec![id.clone()]).await {
                        Ok(one) => found.extend(one),
                        Err(error) if error.is_not_found() => {}
                        Err(error) => return Err(error),
                    }
                }
                found
            }
            answer => answer?,
        };
        let mut free: BTreeMap<String, i64> = ids.iter().map(|id| (id.clone(), 0)).collect();
        let active = found
            .into_iter()
            .filter(|one| one.state == "active" && ids.contains(&one.id));
        free.extend(active.map(|one| (one.id, one.available)));
        self.market.add_reservations(free);
        Ok(())
    }

    async fn describe_reservations(&self, ids: Vec<String>) -> Result<Vec<CapacityReservation>, ApiError> {
        let request = CapacityReservationsRequest {
            capacity_reservation_ids: ids,
            ..CapacityReservationsRequest::default()
        };
        self.aws.ec2.capacity_reservations(&request).await
    }

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
            Some((self.in_ending_blocks().await, ()))
        });
        looks.flat_map(stream::iter).boxed()
    }

    /// NodeClaims in capacity blocks, those on their way out included: without a deadline, what holds up their drain would do so beyond the end of the machine.
    fn claims_in_blocks(&self) -> Vec<Arc<NodeClaim>> {
        let mut claims = self.claims.all().unwrap_or_default();
        claims.retain(|claim| {
            claim.label(labels::CAPACITY_RESERVATION_TYPE) == Some(CAPACITY_BLOCK)
                && claim.label(labels::CAPACITY_RESERVATION_ID).is_some()
                && claim.provider_id().is_some()
        });
        claims
    }

    /// Blocks are looked up by what NodeClaims say of them: their class may be on its way out, or select them no more, and reserved capacity may be off by now.
    async fn in_ending_blocks(&self) -> Vec<Interruption> {
        let claims = self.claims_in_blocks();
        let ids = claims
            .iter()
            .filter_map(|claim| claim.label(labels::CAPACITY_RESERVATION_ID));
        let ids: BTreeSet<&str> = ids.collect();
        let mut ending = BTreeMap::new();
        for id in ids {
            if let Some(ends_at) = self.ends_soon(id).await {
                ending.insert(id, ends_at);
            }
        }
        let messages = claims.iter().filter_map(|claim| {
            let ends_at = *ending.get(claim.label(labels::CAPACITY_RESERVATION_ID)?)?;
            if claim.is_deleting() && has_deadline(claim, ends_at) {
                return None;
            }
            let provider_id = claim.provider_id()?;
            Some(Interruption {
                id: format!("capacity_block/{}", instances::instance_id(provider_id)?),
                provider_id: provider_id.to_owned(),
                kind: Ok(InterruptionKind::CapacityReservationInterrupted),
                sent_at: None,
                ends_at: Some(ends_at),
            })
        });
        messages.collect()
    }

    /// When EC2 begins to terminate the instances of a capacity block, if that is soon.
    async fn ends_soon(&self, id: &str) -> Option<Timestamp> {
        let found = match self.describe_reservations(vec![id.to_owned()]).await {
            Ok(found) => found,
            // It is long over, and so are its instances.
            Err(error) if error.is_not_found() => return None,
            Err(error) => {
                let call = "ec2:DescribeCapacityReservations";
                let effect = "nodes are not drained before the end of their capacity block";
                self.tell_denied(call, effect, &error);
                tracing::warn!(reservation = id, %error, "{call} failed; it is tried again in a minute");
                return None;
            }
        };
        let now = self.clock.now();
        let mut found = found.into_iter();
        let block = found.find(|one| one.id == id && one.reservation_type == CAPACITY_BLOCK)?;
        let ends_at = block.ends_at?;
        is_closed(&block.instance_type, ends_at, now)
            .then(|| reclaimed_at(&block.instance_type, ends_at).max(now))
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

/// Whether the drain of a NodeClaim ends by then.
fn has_deadline(claim: &NodeClaim, ends_at: Timestamp) -> bool {
    let deadline = claim.annotation(api::TERMINATION_TIMESTAMP);
    let deadline = deadline.and_then(|text| text.parse::<Timestamp>().ok());
    deadline.is_some_and(|deadline| deadline <= ends_at)
}
