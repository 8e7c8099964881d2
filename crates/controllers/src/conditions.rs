//! Conditions as they change: events and counters for NodeClaims, NodePools and Nodes (P §16, P §17).
//!
//! Owns what is told about a change. It hears of changes from the stores and looks at nothing else, so that nothing is told on first sight.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::conditions::Conditioned;
use spokeshave_api::{CapacityBuffer, NodeClaim, NodePool, labels};
use spokeshave_model::{Event, EventType, ObjectRef};
use spokeshave_plan::buffers::buffer_ref;
use spokeshave_plan::lifecycle::{claim_ref, node_ref};
use spokeshave_plan::nodepool::pool_ref;
use spokeshave_runtime::{Change, Counter, Histogram, Metrics, Object, Store, exponential_buckets};

use crate::execute::Execute;
use crate::shared::Shared;

/// A condition of any kind of object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    pub(crate) type_: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) since: Option<Timestamp>,
}

/// A kind of object with conditions.
pub(crate) trait Watched: Object {
    /// Its name in metrics.
    const KIND: &'static str;
    /// Its conditions.
    fn conditions(&self) -> Vec<Condition>;
    /// How events name it.
    fn reference(&self) -> ObjectRef;
    /// Whether it is told about at all.
    fn counts(&self) -> bool {
        true
    }
}

fn ours(conditions: &[spokeshave_api::Condition]) -> Vec<Condition> {
    let one = |condition: &spokeshave_api::Condition| Condition {
        type_: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: Some(condition.last_transition_time),
    };
    conditions.iter().map(one).collect()
}

impl Watched for NodeClaim {
    const KIND: &'static str = "nodeclaim";
    fn conditions(&self) -> Vec<Condition> {
        ours(Conditioned::conditions(self))
    }
    fn reference(&self) -> ObjectRef {
        claim_ref(self)
    }
}

impl Watched for NodePool {
    const KIND: &'static str = "nodepool";
    fn conditions(&self) -> Vec<Condition> {
        ours(Conditioned::conditions(self))
    }
    fn reference(&self) -> ObjectRef {
        pool_ref(self)
    }
}

impl Watched for CapacityBuffer {
    const KIND: &'static str = "capacitybuffer";
    fn conditions(&self) -> Vec<Condition> {
        let status = self.status.as_ref();
        status.map_or_else(Vec::new, |status| ours(&status.conditions))
    }
    fn reference(&self) -> ObjectRef {
        buffer_ref(self)
    }
}

impl Watched for Node {
    const KIND: &'static str = "node";
    fn conditions(&self) -> Vec<Condition> {
        let conditions = self.status.as_ref().and_then(|status| status.conditions.as_ref());
        let one = |condition: &k8s_openapi::api::core::v1::NodeCondition| Condition {
            type_: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone().unwrap_or_default(),
            message: condition.message.clone().unwrap_or_default(),
            since: condition.last_transition_time.as_ref().map(|time| time.0),
        };
        conditions.into_iter().flatten().map(one).collect()
    }
    fn reference(&self) -> ObjectRef {
        node_ref(self)
    }
    /// Nodes of others are none of our business.
    fn counts(&self) -> bool {
        self.metadata
            .labels
            .as_ref()
            .is_some_and(|own| own.contains_key(labels::NODE_POOL))
    }
}

/// The families of one kind.
struct Families {
    transitions: Counter,
    durations: Histogram,
    terminations: Histogram,
}

impl Families {
    fn new(metrics: &Metrics, kind: &str) -> Self {
        let buckets = exponential_buckets(0.5, 2.0, 15);
        Self {
            transitions: metrics.counter(
                &format!("operator_{kind}_status_condition_transitions_total"),
                "The count of transitions of a given object, type and status.",
                &["type", "status", "reason"],
            ),
            durations: metrics.histogram(
                &format!("operator_{kind}_status_condition_transition_seconds"),
                "The amount of time a condition was in a given state before transitioning.",
                &["type", "status"],
                &buckets,
            ),
            terminations: metrics.histogram(
                &format!("operator_{kind}_termination_duration_seconds"),
                "The amount of time taken by an object to terminate completely.",
                &[],
                &buckets,
            ),
        }
    }
}

/// Listens to the three kinds, and to CapacityBuffers where the feature gate is on.
pub(crate) fn observe(shared: &Arc<Shared>, metrics: &Metrics) {
    listen(shared, &shared.stores.node_claims, metrics);
    listen(shared, &shared.stores.node_pools, metrics);
    listen(shared, &shared.stores.nodes, metrics);
    if shared.options.feature_gates.capacity_buffer {
        listen(shared, &shared.stores.buffers.buffers, metrics);
    }
}

fn listen<K: Watched>(shared: &Arc<Shared>, store: &Store<K>, metrics: &Metrics) {
    let families = Families::new(metrics, K::KIND);
    let (execute, clock) = (shared.execute.clone(), shared.clock.clone());
    store.on_change(move |change| told(change, &families, &execute, clock.now()));
}

fn told<K: Watched>(change: &Change<K>, families: &Families, execute: &Execute, now: Timestamp) {
    let Some(old) = change.old.as_deref().filter(|old| old.counts()) else {
        return;
    };
    let Some(new) = change.new.as_deref() else {
        if let Some(deleted) = &old.meta().deletion_timestamp {
            let seconds = now.duration_since(deleted.0).as_secs_f64();
            families.terminations.observe(&[], seconds.max(0.0));
        }
        return;
    };
    for (before, after) in transitions(&old.conditions(), &new.conditions()) {
        families
            .transitions
            .inc(&[&after.type_, &after.status, &after.reason]);
        if let Some(before) = before {
            if let (Some(from), Some(to)) = (before.since, after.since) {
                let seconds = to.duration_since(from).as_secs_f64();
                families
                    .durations
                    .observe(&[&before.type_, &before.status], seconds.max(0.0));
            }
            execute.tell(&transition_event(new.reference(), before, &after));
        }
    }
    let kept = new.meta().finalizers.clone().unwrap_or_default();
    for finalizer in old.meta().finalizers.iter().flatten() {
        if !kept.contains(finalizer) {
            let event = Event::new(
                new.reference(),
                EventType::Normal,
                "Finalized",
                format!("Finalized {finalizer}"),
            );
            execute.tell(&event.deduped_by([]));
        }
    }
}

/// The conditions whose status has changed, each with what it was.
fn transitions<'a>(old: &'a [Condition], new: &[Condition]) -> Vec<(Option<&'a Condition>, Condition)> {
    let find = |after: &Condition| old.iter().find(|before| before.type_ == after.type_);
    new.iter()
        .map(|after| (find(after), after.clone()))
        .filter(|(before, after)| before.is_none_or(|before| before.status != after.status))
        .collect()
}

fn transition_event(object: ObjectRef, before: &Condition, after: &Condition) -> Event {
    let mut message = format!(
        "Status condition transitioned, Type: {}, Status: {} -> {}, Reason: {}",
        after.type_, before.status, after.status, after.reason
    );
    if !after.message.is_empty() {
        message += &format!(", Message: {}", after.message);
    }
    Event::new(object, EventType::Normal, &after.type_, message).deduped_by([])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(type_: &str, status: &str, message: &str) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: "Why".to_owned(),
            message: message.to_owned(),
            since: None,
        }
    }

    #[test]
    fn only_changes_of_status_are_transitions() {
        let old = [condition("A", "Unknown", ""), condition("B", "True", "")];
        let new = [
            condition("A", "True", ""),
            condition("B", "True", "other words"),
            condition("C", "False", ""),
        ];
        let found = transitions(&old, &new);
        let told: Vec<_> = found
            .iter()
            .map(|(before, after)| (before.is_some(), after.type_.as_str()))
            .collect();
        assert_eq!(told, [(true, "A"), (false, "C")]);
    }

    #[test]
    fn p_17_the_event_of_a_transition_has_upstreams_words() {
        let object = ObjectRef::cluster(spokeshave_model::ObjectKind::NodeClaim, "c", "u");
        let event = transition_event(
            object.clone(),
            &condition("Ready", "Unknown", ""),
            &condition("Ready", "True", ""),
        );
        assert_eq!(
            (event.reason.as_str(), event.message.as_str()),
            (
                "Ready",
                "Status condition transitioned, Type: Ready, Status: Unknown -> True, Reason: Why"
            )
        );
        let event = transition_event(
            object,
            &condition("Ready", "True", ""),
            &condition("Ready", "False", "no"),
        );
        assert!(event.message.ends_with("Reason: Why, Message: no"));
        assert!(event.dedupe_values.is_empty(), "never suppressed");
    }
}
