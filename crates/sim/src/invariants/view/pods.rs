//! Pods and their budgets, as the checkers see them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::{
    DISRUPTED, DO_NOT_DISRUPT, Key, Labels, QUIET_TIME, SOON, View, duration, instant, labels, later, text,
};
use spokeshave_cluster::objects;
use spokeshave_cluster::quantities::{self, Amounts};

/// What never changes in a pod.
#[derive(Debug)]
pub(crate) struct PodShape {
    pub(crate) spec: PodSpec,
    pub(crate) requests: Amounts,
    pub(crate) grace: Duration,
    pub(crate) owner_kind: String,
    pub(crate) owner_name: String,
    pub(crate) owner_uid: String,
    pub(crate) critical: bool,
    pub(crate) mirror: bool,
    pub(crate) tolerates_disruption: bool,
    /// The node that a daemon is made for.
    pub(crate) pinned_to: Option<String>,
    /// Whether some NodePool of the scenario can hold it.
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
    /// How long its own annotation asks to leave it alone after it has come.
    pub(crate) quiet_time: Option<Duration>,
    pub(crate) message: String,
    pub(crate) gated: bool,
    pub(crate) shape: Arc<PodShape>,
}

impl Pod {
    pub(super) fn read(value: &Value, before: Option<&Pod>, now: Timestamp) -> Self {
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
            quiet_time: duration(text(annotations, &[QUIET_TIME])),
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

    /// Whether it must be rescheduled when its node is removed.
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
    pub(super) fn read(value: &Value) -> Self {
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
            owner_name: owner_text("name"),
            owner_uid: owner_text("uid"),
            critical: matches!(
                spec.priority_class_name.as_deref(),
                Some("system-node-critical" | "system-cluster-critical")
            ),
            tolerates_disruption,
            pinned_to: pinned_to(&spec),
            fits: !value["metadata"]["annotations"][crate::invariants::FITS].is_null(),
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

/// What a disruption controller counts; an eviction writes other fields of the status.
const COUNTED: [&str; 4] = [
    "currentHealthy",
    "desiredHealthy",
    "expectedPods",
    "observedGeneration",
];

/// A PodDisruptionBudget.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    pub(crate) key: Key,
    pub(crate) selector: Option<LabelSelector>,
    /// How many healthy pods it needs, as of when they were last counted.
    pub(crate) desired_healthy: i64,
    /// Whether unready pods may go whatever it needs.
    pub(crate) always_allows_unready: bool,
    /// Whether its pods cannot be counted: what it needs stands as it was counted last, and so does how many are healthy.
    pub(crate) sync_failed: bool,
    /// When its specification was last written.
    pub(crate) changed: Timestamp,
    counted: [Option<i64>; 4],
    generation: i64,
}

impl Budget {
    pub(super) fn read(value: &Value, before: Option<&Budget>, view: &View) -> Self {
        let (spec, status) = (&value["spec"], &value["status"]);
        let generation = value["metadata"]["generation"].as_i64().unwrap_or(0);
        let mut read = Self {
            key: (
                text(value, &["metadata", "namespace"]).to_owned(),
                text(value, &["metadata", "name"]).to_owned(),
            ),
            selector: serde_json::from_value(spec["selector"].clone()).ok(),
            desired_healthy: status["desiredHealthy"].as_i64().unwrap_or(0),
            always_allows_unready: spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow",
            sync_failed: has_failed(status),
            changed: before
                .filter(|before| before.generation == generation)
                .map_or(view.now, |before| before.changed),
            counted: COUNTED.map(|field| status[field].as_i64()),
            generation,
        };
        // The server allows evictions by what was counted last, and nobody counts anew because a workload has been scaled.
        let known = before.filter(|before| before.counted == read.counted);
        let desired = known.map_or_else(|| read.desired(spec, view), |known| Some(known.desired_healthy));
        read.desired_healthy = desired.unwrap_or(read.desired_healthy);
        read
    }

    /// By the documentation of Kubernetes: `minAvailable` as an integer is that many, all else a part of what the controllers of the pods are to
    /// have. `None` where that is not known: then what the status says stands.
    fn desired(&self, spec: &Value, view: &View) -> Option<i64> {
        let (least, most) = (&spec["minAvailable"], &spec["maxUnavailable"]);
        if let Some(number) = least.as_i64() {
            return Some(number);
        }
        let pods = view.pods.values().map(|pod| &**pod);
        let is_counted = |pod: &&Pod| self.covers(pod) && later(pod.created, SOON) <= view.now;
        let expected = view.owners.expected(pods.filter(is_counted), view.now)?;
        if most.is_null() {
            return share(least, expected);
        }
        Some((expected - share(most, expected)?).max(0))
    }

    pub(crate) fn covers(&self, pod: &Pod) -> bool {
        self.key.0 == pod.key.0 && objects::selects(self.selector.as_ref(), Some(&pod.labels))
    }
}

fn has_failed(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == "DisruptionAllowed" && one["reason"] == "SyncFailed")
}

/// A number, or a percentage rounded up.
fn share(value: &Value, of: i64) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let percent: i64 = value.as_str()?.strip_suffix('%')?.parse().ok()?;
    Some((of * percent + 99) / 100)
}
