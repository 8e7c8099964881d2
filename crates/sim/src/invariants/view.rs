//! The cluster as the checkers see it: small facts about each object, folded from the writes of the API server.
//!
//! Owns nothing of the controllers' code: every fact is read from the stored JSON, by the meaning that the Kubernetes and Karpenter APIs
//! give it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;
use spokeshave_apiserver::Commit;

use crate::objects;
use crate::quantities::{self, Amounts};

pub(crate) const DISRUPTED: &str = "karpenter.sh/disrupted";
pub(crate) const FINALIZER: &str = "karpenter.sh/termination";
pub(crate) const POOL: &str = "karpenter.sh/nodepool";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
const DEADLINE: &str = "karpenter.sh/nodeclaim-termination-timestamp";

/// Namespace and name.
pub(crate) type Key = (String, String);
pub(crate) type Labels = BTreeMap<String, String>;

/// How long the view remembers what has just ceased to be: what a decision that is being carried out could have seen.
pub(crate) const RECENT: Duration = Duration::from_secs(30);

fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    path.iter()
        .fold(value, |value, key| &value[*key])
        .as_str()
        .unwrap_or_default()
}

fn instant(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn labels(value: &Value) -> Labels {
    let pairs = value.as_object().into_iter().flatten();
    pairs
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn amounts(value: &Value) -> Amounts {
    let pairs = value.as_object().into_iter().flatten();
    pairs
        .filter_map(|(key, value)| {
            let quantity =
                k8s_openapi::apimachinery::pkg::api::resource::Quantity(value.as_str()?.to_owned());
            Some((key.clone(), quantities::milli(&quantity)))
        })
        .collect()
}

/// A Go duration of seconds, minutes and hours.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    text.parse::<spokeshave_api::GoDuration>().ok()?.to_std()
}

/// What never changes in a pod.
#[derive(Debug)]
pub(crate) struct PodShape {
    pub(crate) spec: PodSpec,
    pub(crate) requests: Amounts,
    pub(crate) grace: Duration,
    pub(crate) owner_kind: String,
    pub(crate) critical: bool,
    pub(crate) mirror: bool,
    pub(crate) tolerates_disruption: bool,
    /// The node that a daemon is made for.
    pub(crate) pinned_to: Option<String>,
    /// Whether the scenario says that some NodePool can hold it.
    pub(crate) fits: bool,
}

/// A pod.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) labels: Labels,
    pub(crate) node: String,
    /// When it got its node.
    pub(crate) bound: Option<Timestamp>,
    pub(crate) phase: String,
    pub(crate) ready: bool,
    /// When readiness last changed.
    pub(crate) ready_changed: Timestamp,
    pub(crate) created: Timestamp,
    pub(crate) started: Option<Timestamp>,
    pub(crate) deletion: Option<Timestamp>,
    /// When it was first asked to go.
    pub(crate) asked: Option<Timestamp>,
    pub(crate) deletion_grace_seconds: i64,
    pub(crate) do_not_disrupt: String,
    /// When that annotation was last written.
    pub(crate) do_not_disrupt_since: Timestamp,
    pub(crate) message: String,
    pub(crate) gated: bool,
    pub(crate) shape: Arc<PodShape>,
}

impl Pod {
    fn read(value: &Value, before: Option<&Pod>, now: Timestamp) -> Self {
        let metadata = &value["metadata"];
        let uid = text(metadata, &["uid"]).to_owned();
        let before = before.filter(|before| before.uid == uid);
        let annotations = &metadata["annotations"];
        let shape = before.map_or_else(|| Arc::new(PodShape::read(value)), |before| before.shape.clone());
        let node = text(value, &["spec", "nodeName"]).to_owned();
        let (mut ready, mut message) = (false, String::new());
        for condition in value["status"]["conditions"].as_array().into_iter().flatten() {
            match text(condition, &["type"]) {
                "Ready" => ready = condition["status"] == "True",
                "PodScheduled" => message = text(condition, &["message"]).to_owned(),
                _ => {}
            }
        }
        let do_not_disrupt = text(annotations, &[DO_NOT_DISRUPT]).to_owned();
        let same = |same: fn(&Pod) -> Timestamp, holds: fn(&Pod, &str) -> bool, value: &str| {
            before.filter(|before| holds(before, value)).map_or(now, same)
        };
        let deletion = instant(&metadata["deletionTimestamp"]);
        Self {
            key: (
                text(metadata, &["namespace"]).to_owned(),
                text(metadata, &["name"]).to_owned(),
            ),
            labels: labels(&metadata["labels"]),
            bound: (!node.is_empty()).then(|| before.and_then(|before| before.bound).unwrap_or(now)),
            phase: text(value, &["status", "phase"]).to_owned(),
            ready_changed: before
                .filter(|before| before.ready == ready)
                .map_or(now, |before| before.ready_changed),
            created: instant(&metadata["creationTimestamp"]).unwrap_or(now),
            started: instant(&value["status"]["startTime"]),
            asked: deletion.map(|_| before.and_then(|before| before.asked).unwrap_or(now)),
            deletion,
            deletion_grace_seconds: metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0),
            do_not_disrupt_since: same(
                |pod| pod.do_not_disrupt_since,
                |pod, value| pod.do_not_disrupt == value,
                &do_not_disrupt,
            ),
            do_not_disrupt,
            gated: value["spec"]["schedulingGates"]
                .as_array()
                .is_some_and(|gates| !gates.is_empty()),
            node,
            uid,
            ready,
            message,
            shape,
        }
    }

    pub(crate) fn is_daemon(&self) -> bool {
        self.shape.owner_kind == "DaemonSet"
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Whether a drain waits for it (D-319).
    pub(crate) fn is_waited_for(&self, now: Timestamp) -> bool {
        let stuck = self
            .deletion
            .is_some_and(|deletion| later(deletion, Duration::from_secs(60)) < now);
        !self.has_ended() && !self.shape.mirror && !self.shape.tolerates_disruption && !stuck
    }

    /// Whether it has to find a place elsewhere when its node goes.
    pub(crate) fn moves(&self) -> bool {
        !self.has_ended()
            && self.deletion.is_none()
            && !self.shape.mirror
            && !self.is_daemon()
            && self.shape.owner_kind != "Node"
            && !self.shape.tolerates_disruption
    }

    /// D-320: 1 to 4.
    pub(crate) fn tier(&self) -> u8 {
        1 + u8::from(self.is_daemon()) + 2 * u8::from(self.shape.critical)
    }

    /// Since when do-not-disrupt protects it, if it does now (D-011).
    pub(crate) fn protected_since(&self, now: Timestamp) -> Option<Timestamp> {
        if self.do_not_disrupt.is_empty() || self.has_ended() || self.deletion.is_some() {
            return None;
        }
        let holds = self.do_not_disrupt == "true"
            || duration(&self.do_not_disrupt).is_some_and(|length| {
                !length.is_zero() && self.started.is_none_or(|started| now < later(started, length))
            });
        holds.then_some(self.do_not_disrupt_since)
    }
}

impl PodShape {
    fn read(value: &Value) -> Self {
        let spec: PodSpec = serde_json::from_value(value["spec"].clone()).unwrap_or_default();
        let owners = value["metadata"]["ownerReferences"].as_array();
        let owner = owners
            .into_iter()
            .flatten()
            .find(|owner| owner["controller"] == true || owner["kind"] == "Node");
        let owner_text = |key: &str| {
            owner
                .map(|owner| text(owner, &[key]).to_owned())
                .unwrap_or_default()
        };
        let tolerates_disruption = spec.tolerations.iter().flatten().any(|toleration| {
            let key = toleration.key.as_deref().unwrap_or_default();
            let effect = toleration.effect.as_deref().unwrap_or_default();
            let exists = toleration.operator.as_deref() == Some("Exists");
            let value_fits = exists || toleration.value.as_deref().unwrap_or_default().is_empty();
            (key == DISRUPTED || key.is_empty() && exists)
                && value_fits
                && matches!(effect, "" | "NoSchedule")
        });
        let owner_kind = owner_text("kind");
        Self {
            requests: quantities::pod_requests(&spec),
            grace: Duration::from_secs(
                u64::try_from(spec.termination_grace_period_seconds.unwrap_or(30)).unwrap_or(0),
            ),
            mirror: !value["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null()
                || owner_kind == "Node",
            owner_kind,
            critical: matches!(
                spec.priority_class_name.as_deref(),
                Some("system-node-critical" | "system-cluster-critical")
            ),
            tolerates_disruption,
            pinned_to: pinned_to(&spec),
            fits: !value["metadata"]["annotations"][super::waiting::FITS].is_null(),
            spec,
        }
    }
}

fn pinned_to(spec: &PodSpec) -> Option<String> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let mut fields = required
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_fields.iter().flatten());
    let field = fields.find(|field| field.key == "metadata.name")?;
    field.values.as_ref()?.first().cloned()
}

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) taints: Vec<(String, String, String)>,
    pub(crate) provider_id: String,
    pub(crate) ready: bool,
    pub(crate) unschedulable: bool,
    pub(crate) created: Timestamp,
    pub(crate) deletion: Option<Timestamp>,
    pub(crate) has_finalizer: bool,
    /// Since when `karpenter.sh/do-not-disrupt: "true"` is written on it.
    pub(crate) protected_since: Option<Timestamp>,
    /// Since when it has the disrupted taint.
    pub(crate) disrupted_since: Option<Timestamp>,
    pub(crate) allocatable: Amounts,
}

impl Node {
    fn read(value: &Value, before: Option<&Node>, now: Timestamp) -> Self {
        let metadata = &value["metadata"];
        let taints: Vec<(String, String, String)> = value["spec"]["taints"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|taint| {
                let part = |key: &str| text(taint, &[key]).to_owned();
                (part("key"), part("value"), part("effect"))
            })
            .collect();
        let conditions = value["status"]["conditions"].as_array();
        let disrupted = taints.iter().any(|taint| taint.0 == DISRUPTED);
        let protected = text(metadata, &["annotations", DO_NOT_DISRUPT]) == "true";
        Self {
            name: text(metadata, &["name"]).to_owned(),
            labels: labels(&metadata["labels"]),
            provider_id: text(value, &["spec", "providerID"]).to_owned(),
            ready: conditions
                .into_iter()
                .flatten()
                .any(|one| one["type"] == "Ready" && one["status"] == "True"),
            unschedulable: value["spec"]["unschedulable"] == true,
            created: instant(&metadata["creationTimestamp"]).unwrap_or(now),
            deletion: instant(&metadata["deletionTimestamp"]),
            has_finalizer: has_finalizer(metadata),
            protected_since: protected
                .then(|| before.and_then(|before| before.protected_since).unwrap_or(now)),
            disrupted_since: disrupted
                .then(|| before.and_then(|before| before.disrupted_since).unwrap_or(now)),
            allocatable: amounts(&value["status"]["allocatable"]),
            taints,
        }
    }

    pub(crate) fn is_initialized(&self) -> bool {
        self.labels
            .get("karpenter.sh/initialized")
            .is_some_and(|value| value == "true")
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.labels
            .get("karpenter.sh/registered")
            .is_some_and(|value| value == "true")
    }

    pub(crate) fn pool(&self) -> &str {
        self.labels.get(POOL).map(String::as_str).unwrap_or_default()
    }

    /// The instance that the provider ID names.
    pub(crate) fn instance(&self) -> &str {
        instance_of(&self.provider_id)
    }
}

/// The last part of `kwok://instance`.
pub(crate) fn instance_of(provider_id: &str) -> &str {
    provider_id.rsplit('/').next().unwrap_or_default()
}

fn has_finalizer(metadata: &Value) -> bool {
    let finalizers = metadata["finalizers"].as_array();
    finalizers.into_iter().flatten().any(|one| one == FINALIZER)
}

/// A condition of a NodeClaim.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) since: Timestamp,
}

/// A NodeClaim.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) pool: String,
    /// When it was asked to go.
    pub(crate) deletion: Option<Timestamp>,
    pub(crate) has_finalizer: bool,
    pub(crate) provider_id: String,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) termination_grace: Option<Duration>,
    pub(crate) conditions: BTreeMap<String, Condition>,
    /// Limits of its pool when it was made.
    pub(crate) limits: Amounts,
}

impl Claim {
    fn read(value: &Value, before: Option<&Claim>, view: &View) -> Self {
        let now = view.now;
        let metadata = &value["metadata"];
        let uid = text(metadata, &["uid"]).to_owned();
        let before = before.filter(|before| before.uid == uid);
        let pool = text(metadata, &["labels", POOL]).to_owned();
        let conditions = value["status"]["conditions"].as_array();
        let condition = |one: &Value| {
            let part = |key: &str| text(one, &[key]).to_owned();
            let since = instant(&one["lastTransitionTime"]).unwrap_or(now);
            (
                part("type"),
                Condition {
                    status: part("status"),
                    reason: part("reason"),
                    since,
                },
            )
        };
        Self {
            name: text(metadata, &["name"]).to_owned(),
            deletion: instant(&metadata["deletionTimestamp"]),
            has_finalizer: has_finalizer(metadata),
            provider_id: text(value, &["status", "providerID"]).to_owned(),
            deadline: instant(&metadata["annotations"][DEADLINE]),
            termination_grace: duration(text(value, &["spec", "terminationGracePeriod"])),
            conditions: conditions.into_iter().flatten().map(condition).collect(),
            limits: before.map_or_else(|| view.widest_limits(&pool), |before| before.limits.clone()),
            pool,
            uid,
        }
    }

    pub(crate) fn is(&self, condition: &str, status: &str) -> bool {
        self.conditions
            .get(condition)
            .is_some_and(|one| one.status == status)
    }

    /// Since when a condition has been True.
    pub(crate) fn since(&self, condition: &str) -> Option<Timestamp> {
        let one = self
            .conditions
            .get(condition)
            .filter(|one| one.status == "True")?;
        Some(one.since)
    }

    pub(crate) fn instance(&self) -> &str {
        instance_of(&self.provider_id)
    }
}

/// A machine of the kwok cloud.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) claim_uid: String,
    pub(crate) claim_name: String,
    pub(crate) pool: String,
    pub(crate) created: Timestamp,
    pub(crate) ending: Option<Timestamp>,
    pub(crate) capacity: Amounts,
    /// Micro-dollars an hour.
    pub(crate) price: i64,
}

impl Instance {
    fn read(value: &Value, now: Timestamp) -> Self {
        let part = |path: &[&str]| text(value, path).to_owned();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "prices are far below 2^53 micro-dollars"
        )]
        let price = |text: &str| (text.parse::<f64>().unwrap_or(0.0) * 1e6).round() as i64;
        let ending = instant(&value["status"]["terminationStarted"])
            .or_else(|| instant(&value["metadata"]["deletionTimestamp"]));
        Self {
            name: part(&["metadata", "name"]),
            claim_uid: part(&["spec", "nodeClaimUID"]),
            claim_name: part(&["spec", "nodeClaimName"]),
            pool: part(&["spec", "nodePool"]),
            created: instant(&value["metadata"]["creationTimestamp"]).unwrap_or(now),
            ending,
            capacity: amounts(&value["spec"]["capacity"]),
            price: price(text(value, &["spec", "price"])),
        }
    }
}

/// A NodePool.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) limits: Amounts,
    pub(crate) disruption: Value,
}

impl Pool {
    fn read(value: &Value) -> Self {
        Self {
            name: text(value, &["metadata", "name"]).to_owned(),
            limits: amounts(&value["spec"]["limits"]),
            disruption: value["spec"]["disruption"].clone(),
        }
    }
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    pub(crate) key: Key,
    pub(crate) selector: Option<LabelSelector>,
    pub(crate) desired_healthy: i64,
    /// When its specification was last written.
    pub(crate) changed: Timestamp,
    generation: i64,
}

impl Budget {
    fn read(value: &Value, before: Option<&Budget>, now: Timestamp) -> Self {
        let generation = value["metadata"]["generation"].as_i64().unwrap_or(0);
        Self {
            key: (
                text(value, &["metadata", "namespace"]).to_owned(),
                text(value, &["metadata", "name"]).to_owned(),
            ),
            selector: serde_json::from_value(value["spec"]["selector"].clone()).ok(),
            desired_healthy: value["status"]["desiredHealthy"].as_i64().unwrap_or(0),
            changed: before
                .filter(|before| before.generation == generation)
                .map_or(now, |before| before.changed),
            generation,
        }
    }

    pub(crate) fn covers(&self, pod: &Pod) -> bool {
        self.key.0 == pod.key.0 && objects::selects(self.selector.as_ref(), Some(&pod.labels))
    }
}

/// A VolumeAttachment.
#[derive(Debug, Clone)]
pub(crate) struct Attachment {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) volume: String,
    pub(crate) since: Timestamp,
}

/// An object before and after a write.
#[derive(Debug, Clone)]
pub(crate) struct Pair<T> {
    pub(crate) before: Option<Arc<T>>,
    pub(crate) after: Option<Arc<T>>,
}

/// A write.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Pod(Pair<Pod>),
    Node(Pair<Node>),
    Claim(Pair<Claim>),
    Instance(Pair<Instance>),
    Other,
}

/// Everything at once, and what has been recently.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) now: Timestamp,
    pub(crate) pods: BTreeMap<Key, Arc<Pod>>,
    pub(crate) pods_by_node: BTreeMap<String, BTreeSet<Key>>,
    pub(crate) nodes: BTreeMap<String, Arc<Node>>,
    pub(crate) claims: BTreeMap<String, Arc<Claim>>,
    pub(crate) claims_by_uid: BTreeMap<String, String>,
    pub(crate) instances: BTreeMap<String, Arc<Instance>>,
    pub(crate) pools: BTreeMap<String, Arc<Pool>>,
    pub(crate) budgets: BTreeMap<Key, Arc<Budget>>,
    pub(crate) attachments: BTreeMap<String, Arc<Attachment>>,
    /// PersistentVolumeClaim → volume.
    pub(crate) volumes: BTreeMap<Key, String>,
    /// Lease of the operators → its holder.
    pub(crate) leader: Option<String>,
    /// Versions of pools that were replaced, with the time.
    replaced_pools: Vec<(Arc<Pool>, Timestamp)>,
    /// Initialised nodes that ended, with the time.
    pub(crate) ended_nodes: Vec<(Arc<Node>, Timestamp)>,
    /// The last time at which something kept the operators from their work: a fault, a standstill, a pool that is not ready.
    pub(crate) disturbed: Timestamp,
    /// The latest time for which operators may not have seen what was written, from and to.
    pub(crate) blind: (Timestamp, Timestamp),
    /// When NodeClaims were made last.
    pub(crate) last_claim_made: Timestamp,
    /// UIDs of NodeClaims that are gone, with the time.
    pub(crate) gone_claims: BTreeMap<String, Timestamp>,
    /// Nodes from which a pod has gone, with the last time.
    last_departure: BTreeMap<String, Timestamp>,
}

/// `time + length`.
pub(crate) fn later(time: Timestamp, length: Duration) -> Timestamp {
    let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
    time.saturating_add(length).unwrap_or(Timestamp::MAX)
}

impl View {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            now,
            pods: BTreeMap::new(),
            pods_by_node: BTreeMap::new(),
            nodes: BTreeMap::new(),
            claims: BTreeMap::new(),
            claims_by_uid: BTreeMap::new(),
            instances: BTreeMap::new(),
            pools: BTreeMap::new(),
            budgets: BTreeMap::new(),
            attachments: BTreeMap::new(),
            volumes: BTreeMap::new(),
            leader: None,
            replaced_pools: Vec::new(),
            ended_nodes: Vec::new(),
            disturbed: now,
            blind: (Timestamp::MIN, Timestamp::MIN),
            last_claim_made: now,
            gone_claims: BTreeMap::new(),
            last_departure: BTreeMap::new(),
        }
    }

    /// Whether operators must have learnt by now what was written at `time`. Events travel within two seconds when nothing is in the way.
    pub(crate) fn is_known(&self, time: Timestamp) -> bool {
        let (from, to) = self.blind;
        let travelled = |until: Timestamp| later(time, Duration::from_secs(2)) <= until;
        if self.now > later(to, Duration::from_secs(60)) {
            travelled(self.now)
        } else {
            travelled(from.min(self.now))
        }
    }

    /// Whether nothing has been in the way for so long.
    pub(crate) fn is_calm_for(&self, length: Duration) -> bool {
        later(self.disturbed, length) <= self.now
    }

    /// Whether `time` lies so far back, counted from the last disturbance.
    pub(crate) fn has_lasted(&self, time: Timestamp, length: Duration) -> bool {
        later(time.max(self.disturbed), length) <= self.now
    }

    pub(crate) fn node_of_claim(&self, claim: &Claim) -> Option<&Arc<Node>> {
        if claim.provider_id.is_empty() {
            return None;
        }
        self.nodes
            .values()
            .find(|node| node.provider_id == claim.provider_id)
    }

    pub(crate) fn claim_of_node(&self, node: &Node) -> Option<&Arc<Claim>> {
        if node.provider_id.is_empty() {
            return None;
        }
        self.claims
            .values()
            .find(|claim| claim.provider_id == node.provider_id)
    }

    pub(crate) fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<Pod>> {
        let keys = self.pods_by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key))
    }

    /// Whether no pod has left a node for so long.
    pub(crate) fn pods_gone_for(&self, node: &str, length: Duration) -> bool {
        self.last_departure
            .get(node)
            .is_none_or(|last| self.has_lasted(*last, length))
    }

    /// The present version of a pool and those that were valid until recently.
    pub(crate) fn recent_pools(&self, name: &str) -> Vec<&Arc<Pool>> {
        let replaced = self
            .replaced_pools
            .iter()
            .filter(|(pool, until)| pool.name == name && later(*until, RECENT) >= self.now)
            .map(|(pool, _)| pool);
        self.pools.get(name).into_iter().chain(replaced).collect()
    }

    /// The highest of the recent limits; a resource without limit in one version has none.
    fn widest_limits(&self, pool: &str) -> Amounts {
        let mut versions = self.recent_pools(pool).into_iter();
        let Some(first) = versions.next() else {
            return Amounts::new();
        };
        versions.fold(first.limits.clone(), |limits, version| {
            let wider =
                |(name, limit): (String, i128)| Some((name.clone(), limit.max(*version.limits.get(&name)?)));
            limits.into_iter().filter_map(wider).collect()
        })
    }

    /// Folds one write in.
    pub(crate) fn fold(&mut self, commit: &Commit<'_>) -> Change {
        let key: Key = (commit.namespace.to_owned(), commit.name.to_owned());
        let now = self.now;
        let value = (!commit.deleted).then_some(commit.new);
        match (commit.group, commit.plural) {
            ("", "pods") => {
                let before = self.pods.get(&key).cloned();
                let after = value.map(|value| Arc::new(Pod::read(value, before.as_deref(), now)));
                if let Some(before) = before.as_deref().filter(|pod| !pod.node.is_empty())
                    && let Some(keys) = self.pods_by_node.get_mut(&before.node)
                {
                    self.last_departure.insert(before.node.clone(), now);
                    keys.remove(&key);
                    if keys.is_empty() {
                        self.pods_by_node.remove(&before.node);
                    }
                }
                if let Some(after) = after.as_deref().filter(|pod| !pod.node.is_empty()) {
                    self.pods_by_node
                        .entry(after.node.clone())
                        .or_default()
                        .insert(key.clone());
                }
                put(&mut self.pods, key, after.clone());
                Change::Pod(Pair { before, after })
            }
            ("", "nodes") => {
                let before = self.nodes.get(&key.1).cloned();
                let after = value.map(|value| Arc::new(Node::read(value, before.as_deref(), now)));
                if after.is_none()
                    && let Some(node) = before.clone().filter(|node| node.is_initialized())
                {
                    self.ended_nodes.retain(|(_, at)| later(*at, RECENT) >= now);
                    self.ended_nodes.push((node, now));
                }
                if after.is_none() {
                    self.last_departure.remove(&key.1);
                }
                put(&mut self.nodes, key.1, after.clone());
                Change::Node(Pair { before, after })
            }
            ("karpenter.sh", "nodeclaims") => {
                let before = self.claims.get(&key.1).cloned();
                let after = value.map(|value| Arc::new(Claim::read(value, before.as_deref(), self)));
                if let Some(before) = &before {
                    self.claims_by_uid.remove(&before.uid);
                    if after.is_none() {
                        self.gone_claims.insert(before.uid.clone(), now);
                    }
                } else {
                    self.last_claim_made = now;
                }
                if let Some(after) = &after {
                    self.claims_by_uid.insert(after.uid.clone(), key.1.clone());
                }
                put(&mut self.claims, key.1, after.clone());
                Change::Claim(Pair { before, after })
            }
            ("kwok.spokeshave.dev", "kwokinstances") => {
                let before = self.instances.get(&key.1).cloned();
                let after = value.map(|value| Arc::new(Instance::read(value, now)));
                put(&mut self.instances, key.1, after.clone());
                Change::Instance(Pair { before, after })
            }
            _ => {
                self.fold_rest(commit, key, value);
                Change::Other
            }
        }
    }

    fn fold_rest(&mut self, commit: &Commit<'_>, key: Key, value: Option<&Value>) {
        let now = self.now;
        match (commit.group, commit.plural) {
            ("karpenter.sh", "nodepools") => {
                let after = value.map(|value| Arc::new(Pool::read(value)));
                if let Some(before) = self.pools.get(&key.1) {
                    self.replaced_pools
                        .retain(|(_, until)| later(*until, RECENT) >= now);
                    self.replaced_pools.push((before.clone(), now));
                }
                put(&mut self.pools, key.1, after);
            }
            ("policy", "poddisruptionbudgets") => {
                let before = self.budgets.get(&key).cloned();
                let after = value.map(|value| Arc::new(Budget::read(value, before.as_deref(), now)));
                put(&mut self.budgets, key, after);
            }
            ("storage.k8s.io", "volumeattachments") => {
                let after = value.map(|value| {
                    Arc::new(Attachment {
                        name: key.1.clone(),
                        node: text(value, &["spec", "nodeName"]).to_owned(),
                        volume: text(value, &["spec", "source", "persistentVolumeName"]).to_owned(),
                        since: instant(&value["metadata"]["creationTimestamp"]).unwrap_or(now),
                    })
                });
                put(&mut self.attachments, key.1, after);
            }
            ("", "persistentvolumeclaims") => {
                let volume = value.map(|value| text(value, &["spec", "volumeName"]).to_owned());
                match volume {
                    Some(volume) => self.volumes.insert(key, volume),
                    None => self.volumes.remove(&key),
                };
            }
            ("coordination.k8s.io", "leases") if key.0 != "kube-node-lease" => {
                self.leader = value.map(|value| text(value, &["spec", "holderIdentity"]).to_owned());
            }
            _ => {}
        }
    }
}

fn put<K: Ord, T>(map: &mut BTreeMap<K, Arc<T>>, key: K, value: Option<Arc<T>>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}
