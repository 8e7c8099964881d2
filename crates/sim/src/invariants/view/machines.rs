//! Nodes, NodeClaims, instances, NodePools and attached volumes, as the checkers see them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use serde_json::Value;

use super::{
    COMMAND, DEADLINE, DISRUPTED, DO_NOT_DISRUPT, FINALIZER, Labels, POOL, View, amounts, duration, instant,
    labels, later, text,
};
use spokeshave_cluster::quantities::Amounts;

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) taints: Vec<(String, String, String)>,
    pub(crate) provider_id: String,
    /// The instance that the provider ID names.
    machine: String,
    pub(crate) ready: bool,
    /// When readiness last changed.
    pub(crate) ready_changed: Timestamp,
    /// Since when it has been cordoned.
    pub(crate) unschedulable_since: Option<Timestamp>,
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
    pub(super) fn read(value: &Value, before: Option<&Node>, now: Timestamp) -> Self {
        let metadata = &value["metadata"];
        let taints = taints(&value["spec"]["taints"]);
        let conditions = value["status"]["conditions"].as_array();
        let disrupted = taints.iter().any(|taint| taint.0 == DISRUPTED);
        let protected = text(metadata, &["annotations", DO_NOT_DISRUPT]) == "true";
        let unschedulable = value["spec"]["unschedulable"] == true;
        let provider_id = text(value, &["spec", "providerID"]).to_owned();
        let ready = conditions
            .into_iter()
            .flatten()
            .any(|one| one["type"] == "Ready" && one["status"] == "True");
        Self {
            name: text(metadata, &["name"]).to_owned(),
            labels: labels(&metadata["labels"]),
            machine: instance_of(&provider_id),
            provider_id,
            ready,
            ready_changed: before
                .filter(|before| before.ready == ready)
                .map_or(now, |before| before.ready_changed),
            unschedulable_since: unschedulable.then(|| {
                before
                    .and_then(|before| before.unschedulable_since)
                    .unwrap_or(now)
            }),
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
        &self.machine
    }
}

/// The last part of `kwok://instance` or `aws:///zone/instance`. Some clouds do not tell names apart by case.
pub(crate) fn instance_of(provider_id: &str) -> String {
    provider_id.rsplit('/').next().unwrap_or_default().to_lowercase()
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
    /// The command that it is a replacement of, or nothing.
    pub(crate) command: String,
    pub(crate) created: Option<Timestamp>,
    /// When it was asked to go.
    pub(crate) deletion: Option<Timestamp>,
    pub(crate) has_finalizer: bool,
    pub(crate) provider_id: String,
    /// The instance that the provider ID names.
    machine: String,
    pub(crate) labels: Labels,
    pub(crate) shape: Arc<ClaimShape>,
    /// What its instance has, as its status says.
    pub(crate) capacity: Amounts,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) termination_grace: Option<Duration>,
    /// When its expireAfter has passed.
    pub(crate) expiry: Option<Timestamp>,
    pub(crate) conditions: BTreeMap<String, Condition>,
    /// Limits of its pool when it was made.
    pub(crate) limits: Amounts,
}

/// What never changes in a NodeClaim.
#[derive(Debug)]
pub(crate) struct ClaimShape {
    pub(crate) requirements: Vec<Requirement>,
    /// Its node to be, with no more than its taints, but for those of its start.
    pub(crate) node: core::Node,
}

/// What a NodeClaim asks of its node: a label, an operator and values.
#[derive(Debug)]
pub(crate) struct Requirement {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) values: Vec<String>,
}

impl ClaimShape {
    fn read(value: &Value) -> Self {
        let requirement = |one: &Value| Requirement {
            key: text(one, &["key"]).to_owned(),
            operator: text(one, &["operator"]).to_owned(),
            values: strings(&one["values"]),
        };
        let requirements = value["spec"]["requirements"].as_array();
        Self {
            requirements: requirements.into_iter().flatten().map(requirement).collect(),
            node: core::Node {
                spec: Some(tainted(&taints(&value["spec"]["taints"]))),
                ..core::Node::default()
            },
        }
    }
}

fn strings(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

/// Key, value and effect.
fn taints(value: &Value) -> Vec<(String, String, String)> {
    let all = value.as_array().into_iter().flatten();
    all.map(|taint| {
        let part = |key: &str| text(taint, &[key]).to_owned();
        (part("key"), part("value"), part("effect"))
    })
    .collect()
}

/// The spec of a node with these taints.
pub(crate) fn tainted(taints: &[(String, String, String)]) -> core::NodeSpec {
    let taint = |(key, value, effect): &(String, String, String)| core::Taint {
        key: key.clone(),
        value: Some(value.clone()),
        effect: effect.clone(),
        ..core::Taint::default()
    };
    core::NodeSpec {
        taints: Some(taints.iter().map(taint).collect()),
        ..core::NodeSpec::default()
    }
}

/// A node may take 15 minutes to join (P-169), counted from a little before its launch and by an operator's own clock.
pub(crate) const JOINS_WITHIN: Duration = Duration::from_secs(14 * 60);

impl Claim {
    /// Whether its instance was launched and its node has not joined in the time that it has for it.
    pub(crate) fn never_joined(&self, now: Timestamp) -> bool {
        let is_true = |kind: &str| self.conditions.get(kind).filter(|one| one.status == "True");
        let launched = is_true("Launched").is_some_and(|one| super::later(one.since, JOINS_WITHIN) <= now);
        launched && is_true("Registered").is_none()
    }

    pub(super) fn read(value: &Value, before: Option<&Claim>, view: &View) -> Self {
        let now = view.now;
        let metadata = &value["metadata"];
        let uid = text(metadata, &["uid"]).to_owned();
        let before = before.filter(|before| before.uid == uid);
        let pool = text(metadata, &["labels", POOL]).to_owned();
        let provider_id = text(value, &["status", "providerID"]).to_owned();
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
            command: text(metadata, &["annotations", COMMAND]).to_owned(),
            created: instant(&metadata["creationTimestamp"]),
            deletion: instant(&metadata["deletionTimestamp"]),
            has_finalizer: has_finalizer(metadata),
            machine: instance_of(&provider_id),
            provider_id,
            labels: labels(&metadata["labels"]),
            shape: before.map_or_else(
                || Arc::new(ClaimShape::read(value)),
                |before| before.shape.clone(),
            ),
            capacity: amounts(&value["status"]["capacity"]),
            deadline: instant(&metadata["annotations"][DEADLINE]),
            termination_grace: duration(text(value, &["spec", "terminationGracePeriod"])),
            expiry: instant(&metadata["creationTimestamp"])
                .zip(duration(text(value, &["spec", "expireAfter"])))
                .map(|(created, lives)| later(created, lives)),
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
        &self.machine
    }
}

const MESSAGE: &str = "kwok.spokeshave.dev/message";
const ENDS_AT: &str = "kwok.spokeshave.dev/ends-at";

/// A machine of the kwok cloud, or of one that keeps its own books.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) name: String,
    /// Whether the kwok cloud has it, which launches one for each NodeClaim whoever dies. How often others do, and what is leaked there, is judged where their
    /// calls are seen.
    pub(crate) of_kwok: bool,
    pub(crate) claim_uid: String,
    pub(crate) claim_name: String,
    pub(crate) pool: String,
    pub(crate) created: Timestamp,
    pub(crate) ending: Option<Timestamp>,
    /// Whether the cloud has said that it takes the instance back, and when it does so.
    pub(crate) taken_back: bool,
    pub(crate) ends_at: Option<Timestamp>,
    /// Whether the cloud has said anything else for which operators end it.
    pub(crate) warned: bool,
    /// How long words of its cloud may be on their way.
    pub(crate) word_takes: Duration,
    pub(crate) capacity: Amounts,
    /// Micro-dollars an hour.
    pub(crate) price: i64,
}

impl Instance {
    pub(super) fn read(value: &Value, now: Timestamp) -> Self {
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
            of_kwok: true,
            claim_uid: part(&["spec", "nodeClaimUID"]),
            claim_name: part(&["spec", "nodeClaimName"]),
            pool: part(&["spec", "nodePool"]),
            created: instant(&value["metadata"]["creationTimestamp"]).unwrap_or(now),
            ending,
            taken_back: text(value, &["metadata", "annotations", MESSAGE]) == "spot_interrupted",
            ends_at: instant(&value["metadata"]["annotations"][ENDS_AT]),
            warned: false,
            word_takes: Duration::ZERO,
            capacity: amounts(&value["spec"]["capacity"]),
            price: price(text(value, &["spec", "price"])),
        }
    }

    /// Whether it ends, or its cloud has said that it will or should.
    pub(crate) fn is_going(&self) -> bool {
        self.taken_back || self.warned || self.ends_at.is_some() || self.ending.is_some()
    }
}

/// A NodePool.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) limits: Amounts,
    pub(crate) disruption: Value,
    /// Whether it has a fixed number of nodes.
    pub(crate) is_static: bool,
}

impl Pool {
    pub(super) fn read(value: &Value) -> Self {
        Self {
            name: text(value, &["metadata", "name"]).to_owned(),
            limits: amounts(&value["spec"]["limits"]),
            disruption: value["spec"]["disruption"].clone(),
            is_static: !value["spec"]["replicas"].is_null(),
        }
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
