//! The cluster's side: when AKSNodeClasses are looked at, and what conditions of nodes tell of their machines' end (Z2, Z8).
//!
//! Owns the periods. What is written is [`objects`](crate::objects); what a condition means is decided in `provider-azure`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use spokeshave_api::{AKSNodeClass, labels as api};
use spokeshave_mirror::hear;
use spokeshave_model::CapacityType;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{Interruption, Writes, causes};
use spokeshave_provider_azure::notices;
use spokeshave_provider_azure::unavailable::{Mark, Reach, USUALLY};

use crate::objects::{Objects, RETRY};
use crate::provider::Inner;

/// How often somebody looks whether a class is due.
const TICK: Duration = Duration::from_secs(1);
/// A class with a NodeClaim that does not get its hash is looked at again after this.
const STAMP_RETRY: SignedDuration = SignedDuration::from_mins(1);

impl Inner {
    /// Keeps copies of objects up to date, where there is a cluster.
    pub(crate) async fn follow_objects(&self) {
        let Some(objects) = &self.objects else {
            return std::future::pending().await;
        };
        let client = || objects.client.clone();
        let failures = &objects.watch_failures;
        futures::join!(
            objects.classes.watch(client(), self.clock(), failures),
            objects.claims.watch(client(), self.clock(), failures),
            objects.nodes.watch(client(), self.clock(), failures),
        );
    }

    /// Reconciles every class when it changes and when its time has come.
    pub(crate) async fn reconcile_classes(&self, writes: &dyn Writes) {
        let Some(objects) = &self.objects else {
            return std::future::pending().await;
        };
        let mut due: BTreeMap<String, Timestamp> = BTreeMap::new();
        let mut seen: BTreeMap<String, (Option<i64>, bool, Option<String>)> = BTreeMap::new();
        loop {
            let classes = objects.classes.all().unwrap_or_default();
            let exists = |name: &str| classes.iter().any(|class| class.name() == name);
            due.retain(|name, _| exists(name));
            objects.rounds.forget(exists);
            for class in classes {
                let name = class.name().to_owned();
                let state = (
                    class.metadata.generation,
                    class.is_deleting(),
                    class.metadata.uid.clone(),
                );
                let is_new = seen.insert(name.clone(), state.clone()).as_ref() != Some(&state);
                if !is_new && due.get(&name).is_some_and(|due| *due > self.clock().now()) {
                    continue;
                }
                let again = self
                    .reconcile_object(objects, &class, writes)
                    .await
                    .unwrap_or_else(|error| {
                        tracing::error!(AKSNodeClass = name, error, "the class is looked at again");
                        RETRY
                    });
                let at = self.clock().now().saturating_add(again);
                due.insert(name, at.unwrap_or(Timestamp::MAX));
            }
            self.clock().sleep(TICK).await;
        }
    }

    async fn reconcile_object(
        &self,
        objects: &Objects,
        class: &Arc<AKSNodeClass>,
        writes: &dyn Writes,
    ) -> Result<SignedDuration, String> {
        if class.is_deleting() {
            return objects.finalize(class, writes).await;
        }
        let class = objects.stamp(class, writes).await?;
        let updated = self.update_status(objects, &class, writes).await;
        // What the class says of itself waits for no NodeClaim.
        if let Err(error) = objects.stamp_claims(&class, writes).await {
            tracing::warn!(
                AKSNodeClass = class.name(),
                error,
                "a NodeClaim does not get the hash of its class; it is tried again"
            );
            return updated.map(|again| again.min(STAMP_RETRY));
        }
        updated
    }

    /// Judges the class and writes its status. Says when to look again.
    async fn update_status(
        &self,
        objects: &Objects,
        class: &AKSNodeClass,
        writes: &dyn Writes,
    ) -> Result<SignedDuration, String> {
        let version = objects.client.apiserver_version().await;
        if let Err(error) = &version {
            tracing::warn!(error = %causes(error), "asking the API server for its version");
        }
        let version = version.ok().map(|version| version.git_version);
        let maintenance = objects.maintenance(self.clock().now()).await?;
        let (reconciled, again) = self.reconcile(class, version.as_deref(), maintenance).await;
        objects.write_status(class, &reconciled, writes).await?;
        Ok(again)
    }

    /// Tells what conditions of nodes say about their machines' end, each event once.
    pub(crate) async fn hear_nodes(&self) {
        let Some(objects) = &self.objects else {
            return std::future::pending().await;
        };
        let tell = |node: &Node, message: Interruption| {
            if message.kind == Ok(InterruptionKind::SpotInterrupted) {
                self.leave_spot_out(node);
            }
            self.messages.tell(message);
        };
        let read = |id: &str, condition: &NodeCondition| self.read_notice(id, condition);
        hear(&objects.nodes, self.clock(), read, tell).await;
    }

    fn read_notice(&self, provider_id: &str, condition: &NodeCondition) -> Option<Interruption> {
        let machine = self.options.place.machine_of(provider_id)?;
        let message = condition.message.as_deref().unwrap_or_default();
        let notice = notices::read(&condition.type_, &condition.status, message)?;
        Some(Interruption {
            id: format!("{}/{machine}/{}", condition.type_, notice.id),
            provider_id: provider_id.to_owned(),
            kind: Ok(notice.kind),
            sent_at: condition.last_transition_time.as_ref().map(|time| time.0),
            ends_at: notice.at,
        })
    }

    /// Spot capacity that is taken back is not asked for again at once.
    fn leave_spot_out(&self, node: &Node) {
        let label = |key: &str| node.metadata.labels.as_ref()?.get(key).cloned();
        let (Some(size), Some(zone)) = (label(api::INSTANCE_TYPE), label(api::ZONE)) else {
            return;
        };
        let Some(sku) = self.market.sku(&size) else {
            return;
        };
        let mark = Mark {
            reach: Reach::Family {
                family: sku.family.clone(),
                cpus: sku.cpus().unwrap_or(0),
                size,
                zones: vec![zone],
                capacity_types: vec![CapacityType::Spot],
            },
            lasts: USUALLY,
        };
        self.market.mark(&[mark], self.clock().now());
    }
}
