//! Conditions of NodeClaims, NodePools, Nodes and CapacityBuffers: events and counters of their changes, and how long they have been as they are
//! (P §16, P §17).
//!
//! Owns what is reported of conditions. Of changes it hears from the stores; what is seen for the first time is counted, and nothing else is said of it. Gauges
//! are read off the stores when somebody scrapes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::conditions::{
    AWAITING_MESSAGE, AWAITING_RECONCILIATION, Conditioned, READY, RECONCILING_DEPENDENTS, Status,
    TERMINATION_BLOCKED,
};
use spokeshave_api::{CapacityBuffer, NodeClaim, NodePool, labels};
use spokeshave_model::{Event, EventType, ObjectRef};
use spokeshave_plan::buffers::buffer_ref;
use spokeshave_plan::lifecycle::{claim_ref, node_ref};
use spokeshave_plan::nodepool::pool_ref;
use spokeshave_ports::{CloudProvider as _, NodeClassKind};
use spokeshave_runtime::{Change, Counter, Histogram, Metrics, Object, Store, exponential_buckets};

use crate::act::hands::Hands;
use crate::observe::gauges::{Series, metric_label, seconds, with};
use crate::state::cluster::Cluster;

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
    /// Keys of the object's own labels that its metrics carry, given those of the NodeClasses.
    fn label_keys(_classes: &[String]) -> Vec<String> {
        Vec::new()
    }
}

/// Keys of the labels by which objects name their NodeClass.
fn class_labels(cluster: &Cluster) -> Vec<String> {
    let kinds = cluster.cloud.supported_node_classes();
    kinds.iter().map(NodeClassKind::label).collect()
}

fn own_labels<K: Object>(object: &K, keys: &[String]) -> Vec<String> {
    let labels = object.meta().labels.as_ref();
    let value = |key| labels.and_then(|labels| labels.get(key)).cloned();
    keys.iter().map(|key| value(key).unwrap_or_default()).collect()
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

/// The conditions of an object as upstream sees them. Those of its set that are not stored yet are unknown since it was created: the first write sets some of
/// them at once, and how long that took is what users want to know.
fn whole_set<K: Conditioned>(object: &K) -> Vec<Condition> {
    let created = object.metadata().creation_timestamp.as_ref();
    let missing = object.missing_conditions().into_iter().map(|type_| Condition {
        type_: type_.to_owned(),
        status: Status::Unknown.as_str().to_owned(),
        reason: if type_ == READY {
            RECONCILING_DEPENDENTS.to_owned()
        } else {
            AWAITING_RECONCILIATION.to_owned()
        },
        message: AWAITING_MESSAGE.to_owned(),
        since: created.map(|time| time.0),
    });
    ours(object.conditions()).into_iter().chain(missing).collect()
}

impl Watched for NodeClaim {
    const KIND: &'static str = "nodeclaim";
    fn conditions(&self) -> Vec<Condition> {
        whole_set(self)
    }
    fn reference(&self) -> ObjectRef {
        claim_ref(self)
    }
    fn label_keys(classes: &[String]) -> Vec<String> {
        [classes, &[labels::NODE_POOL.to_owned()]].concat()
    }
}

impl Watched for NodePool {
    const KIND: &'static str = "nodepool";
    fn conditions(&self) -> Vec<Condition> {
        whole_set(self)
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
    fn label_keys(classes: &[String]) -> Vec<String> {
        [
            classes,
            &[labels::NODE_POOL.to_owned(), labels::INITIALIZED.to_owned()],
        ]
        .concat()
    }
}

/// The families of one kind.
struct Families {
    transitions: Counter,
    durations: Histogram,
    terminations: Histogram,
    /// Labels of the object that they carry after their own.
    keys: Vec<String>,
}

impl Families {
    fn new(metrics: &Metrics, kind: &str, keys: Vec<String>) -> Self {
        let buckets = exponential_buckets(0.5, 2.0, 15);
        let further: Vec<String> = keys.iter().map(|key| metric_label(key)).collect();
        let labels = |own: &[&'static str]| -> Vec<String> {
            let own = own.iter().map(|label| (*label).to_owned());
            own.chain(further.iter().cloned()).collect()
        };
        Self {
            transitions: metrics.counter(
                &format!("operator_{kind}_status_condition_transitions_total"),
                "The count of transitions of a given object, type and status.",
                &borrowed(&labels(&["type", "status", "reason"])),
            ),
            durations: metrics.histogram(
                &format!("operator_{kind}_status_condition_transition_seconds"),
                "The amount of time a condition was in a given state before transitioning.",
                &borrowed(&labels(&["type", "status"])),
                &buckets,
            ),
            terminations: metrics.histogram(
                &format!("operator_{kind}_termination_duration_seconds"),
                "The amount of time taken by an object to terminate completely.",
                &borrowed(&labels(&[])),
                &buckets,
            ),
            keys,
        }
    }

    /// A condition has come to be as it is; `own` are the values of the object's labels.
    fn count(&self, condition: &Condition, own: &[String]) {
        let Condition {
            type_,
            status,
            reason,
            ..
        } = condition;
        let labels = [&[&**type_, &**status, &**reason], &*borrowed(own)].concat();
        self.transitions.inc(&labels);
    }
}

fn borrowed(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

/// Conditions of single objects as they are, and objects that take long to end: their number grows with the cluster.
pub(crate) fn show_each<K: Watched>(
    cluster: &Arc<Cluster>,
    metrics: &Metrics,
    store: impl Fn(&Cluster) -> &Store<K> + Send + Sync + 'static,
) {
    let kind = K::KIND;
    let keys = K::label_keys(&class_labels(cluster));
    let further: Vec<String> = keys.iter().map(|key| metric_label(key)).collect();
    let mut labels = vec!["namespace", "name", "type", "status", "reason"];
    labels.extend(borrowed(&further));
    let count = metrics.gauge(
        &format!("operator_{kind}_status_condition_count"),
        "The number of a condition for a given object, type and status.",
        &labels,
    );
    let current = metrics.gauge(
        &format!("operator_{kind}_status_condition_current_status_seconds"),
        "The current amount of time in seconds that a status condition has been in a specific state.",
        &labels,
    );
    labels.retain(|label| !["type", "status", "reason"].contains(label));
    let terminating = metrics.gauge(
        &format!("operator_{kind}_termination_current_time_seconds"),
        "The current amount of time in seconds that an object has been in terminating state.",
        &labels,
    );
    let weak = Arc::downgrade(cluster);
    metrics.before_render(move || {
        with(&weak, |cluster| {
            let now = cluster.now();
            let (mut counts, mut ages, mut ends) = (Series::new(), Series::new(), Series::new());
            store(cluster).for_each(|key, object| {
                if !object.counts() {
                    return;
                }
                let id = vec![key.namespace.clone(), key.name.clone()];
                let own = own_labels(&**object, &keys);
                for condition in object.conditions() {
                    let rest = vec![condition.type_, condition.status, condition.reason];
                    let values = [id.clone(), rest, own.clone()].concat();
                    counts.push((values.clone(), 1.0));
                    ages.push((values, condition.since.map_or(0.0, |since| seconds(since, now))));
                }
                if let Some(deleted) = &object.meta().deletion_timestamp {
                    ends.push(([id, own].concat(), seconds(deleted.0, now)));
                }
            });
            count.replace_all(counts);
            current.replace_all(ages);
            terminating.replace_all(ends);
        });
    });
}

/// How long terminations that are held up have been going on: a series for each reason, however many NodeClaims there are.
pub(crate) fn show_blocked(cluster: &Arc<Cluster>, metrics: &Metrics) {
    let longest = metrics.gauge(
        "spokeshave_termination_blocked_longest_seconds",
        "For how long the oldest termination of a NodeClaim that something holds up now has been going on, by what holds it up.",
        &["reason"],
    );
    let weak = Arc::downgrade(cluster);
    metrics.before_render(move || with(&weak, |cluster| longest.replace_all(blocked_longest(cluster))));
}

/// By reason, since their deletion: the condition itself begins anew with every other step.
fn blocked_longest(cluster: &Cluster) -> BTreeMap<Vec<String>, f64> {
    let now = cluster.now();
    let mut longest: BTreeMap<Vec<String>, f64> = BTreeMap::new();
    cluster.stores.node_claims.for_each(|_, claim| {
        let deleted = claim.metadata.deletion_timestamp.as_ref();
        if let Some((deleted, blocked)) = deleted.zip(claim.true_condition(TERMINATION_BLOCKED)) {
            let age = longest.entry(vec![blocked.reason.clone()]).or_default();
            *age = f64::max(*age, seconds(deleted.0, now));
        }
    });
    longest
}

/// Listens to the three kinds, and to CapacityBuffers where the feature gate is on.
pub(crate) fn observe(cluster: &Cluster, hands: &Hands, metrics: &Metrics) {
    listen(cluster, hands, &cluster.stores.node_claims, metrics);
    listen(cluster, hands, &cluster.stores.node_pools, metrics);
    listen(cluster, hands, &cluster.stores.nodes, metrics);
    if cluster.options.feature_gates.capacity_buffer {
        listen(cluster, hands, &cluster.stores.buffers.buffers, metrics);
    }
}

fn listen<K: Watched>(cluster: &Cluster, hands: &Hands, store: &Store<K>, metrics: &Metrics) {
    let families = Families::new(metrics, K::KIND, K::label_keys(&class_labels(cluster)));
    let (hands, clock) = (hands.clone(), cluster.clock.clone());
    store.on_change(move |change| told(change, &families, &hands, clock.now()));
}

fn told<K: Watched>(change: &Change<K>, families: &Families, hands: &Hands, now: Timestamp) {
    let Some(old) = change.old.as_deref().filter(|old| old.counts()) else {
        return seen_first(change.new.as_deref(), families);
    };
    let Some(new) = lives_on(old, change.new.as_deref()) else {
        if let Some(deleted) = &old.meta().deletion_timestamp {
            let seconds = now.duration_since(deleted.0).as_secs_f64();
            let own = own_labels(old, &families.keys);
            families.terminations.observe(&borrowed(&own), seconds.max(0.0));
        }
        return seen_first(change.new.as_deref(), families);
    };
    let own = own_labels(new, &families.keys);
    for (before, after) in transitions(&old.conditions(), &new.conditions()) {
        families.count(&after, &own);
        if let Some(before) = before {
            if let (Some(from), Some(to)) = (before.since, after.since) {
                let seconds = to.duration_since(from).as_secs_f64();
                let labels = [&[&*before.type_, &*before.status], &*borrowed(&own)].concat();
                families.durations.observe(&labels, seconds.max(0.0));
            }
            hands.tell(&transition_event(new.reference(), before, &after));
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
            hands.tell(&event.deduped_by([]));
        }
    }
}

/// An object is new, or was there before this term: its conditions are counted, as upstream does. Nobody knows how long they were otherwise.
fn seen_first<K: Watched>(object: Option<&K>, families: &Families) {
    let Some(object) = object.filter(|object| object.counts()) else {
        return;
    };
    let own = own_labels(object, &families.keys);
    for condition in object.conditions() {
        families.count(&condition, &own);
    }
}

/// What became of an object. A successor of the same name is another one: the watch missed that this one was deleted.
fn lives_on<'a, K: Watched>(old: &K, new: Option<&'a K>) -> Option<&'a K> {
    new.filter(|new| new.meta().uid == old.meta().uid)
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
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

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
    fn a_successor_of_the_same_name_is_another_object() {
        let pool = |uid: &str| {
            let mut pool = NodePool::new("general", Default::default());
            pool.metadata.uid = Some(uid.to_owned());
            pool
        };
        let (old, changed, successor) = (pool("1"), pool("1"), pool("2"));
        assert!(lives_on(&old, Some(&changed)).is_some());
        assert!(lives_on(&old, Some(&successor)).is_none());
        assert!(lives_on(&old, None).is_none());
    }

    /// The first status of a NodeClaim says that it was launched. Before that it was not known, and not nothing.
    #[test]
    fn p_016_what_is_not_stored_yet_is_unknown_since_the_object_was_created() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mut claim = NodeClaim::new("c", Default::default());
        claim.metadata.creation_timestamp = Some(Time(at(100)));
        let fresh = Watched::conditions(&claim);
        let known: Vec<_> = fresh
            .iter()
            .map(|one| {
                (
                    one.type_.as_str(),
                    one.status.as_str(),
                    one.reason.as_str(),
                    one.since,
                )
            })
            .collect();
        let (waits, created) = ("AwaitingReconciliation", Some(at(100)));
        assert_eq!(
            known,
            [
                ("Launched", "Unknown", waits, created),
                ("Registered", "Unknown", waits, created),
                ("Initialized", "Unknown", waits, created),
                ("Ready", "Unknown", "ReconcilingDependents", created),
            ]
        );
        claim.set_true("Launched", at(107));
        let launched = Watched::conditions(&claim);
        assert_eq!(launched.len(), 4, "what is stored is there once: {launched:?}");
        let found = transitions(&fresh, &launched);
        let [(Some(before), after)] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(
            (&*before.status, &*after.type_, &*after.status),
            ("Unknown", "Launched", "True")
        );
        assert_eq!((before.since, after.since), (created, Some(at(107))));
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
