//! DisruptionPolicy: when voluntary disruption of some NodePools has to wait, beyond their own budgets.
//!
//! Additive: without one, everything is as NodePools alone say. Several that select a NodePool all hold. It never limits what is forceful:
//! interruption, `expireAfter`, repair. One field causes disruption: `expiry` replaces nodes before their `expireAfter`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::node_pool::NodePool;
use super::{DisruptionReason, UnknownFields, kind, open_enum};
use crate::GoDuration;

mod lenient;
mod status;

pub use status::{
    ActiveRule, DisruptionPolicyStatus, ExpiryStatus, HoldStatus, RolloutStatus, WorkloadsStatus,
};

kind! {
    /// When voluntary disruption has to wait.
    DisruptionPolicy, DisruptionPolicySpec, DisruptionPolicyStatus,
    group: "spokeshave.dev", version: "v1alpha1", plural: "disruptionpolicies", scope: k8s_openapi::ClusterResourceScope
}

open_enum! {
    /// Over what a hold or a circuit breaker looks, and what a budget is counted by.
    PolicyScope {
        /// All nodes together.
        Cluster = "Cluster",
        /// Each NodePool separately.
        NodePool = "NodePool",
        /// Each zone separately.
        Zone = "Zone",
        /// Each value of a label separately.
        Label = "Label",
    }
}

open_enum! {
    /// What starts or restarts a hold.
    HoldTrigger {
        /// A node came.
        Launch = "Launch",
        /// A command removed nodes.
        ScaleDown = "ScaleDown",
        /// A command was rolled back because its replacements did not initialize.
        FailedLaunch = "FailedLaunch",
    }
}

open_enum! {
    /// What a budget counts.
    BudgetUnit {
        /// Nodes.
        Nodes = "Nodes",
        /// vCPU of nodes.
        Cpu = "CPU",
        /// Pods that have to be rescheduled.
        Pods = "Pods",
    }
}

open_enum! {
    /// Who approves the next wave of a rollout.
    RolloutApproval {
        /// Its health alone.
        Automatic = "Automatic",
        /// A user, by writing its number.
        Manual = "Manual",
    }
}

open_enum! {
    /// By what nodes are put in order for a roll-out.
    RolloutOrder {
        /// One zone after the other, by name.
        Zone = "Zone",
        /// Oldest first.
        Age = "Age",
        /// Those whose pods are cheapest to move first.
        Importance = "Importance",
    }
}

open_enum! {
    /// The phase of the rollout of a NodePool.
    RolloutPhase {
        /// Its wave takes nodes.
        Rolling = "Rolling",
        /// Its wave is through and watched.
        Soaking = "Soaking",
        /// Its wave is healthy, and the next needs approval.
        WaitingForApproval = "WaitingForApproval",
        /// Its new nodes or their pods are unhealthy.
        Halted = "Halted",
    }
}

open_enum! {
    /// How members of a StatefulSet are moved.
    StatefulSetMoves {
        /// As other pods.
        Any = "Any",
        /// The next when all members exist and are Ready.
        OneAtATime = "OneAtATime",
    }
}

open_enum! {
    /// The effect of a budget outside its windows.
    OutsideWindows {
        /// Nothing may be disrupted: windows allow.
        Nothing = "Nothing",
        /// The budget does not limit: windows restrict.
        Unlimited = "Unlimited",
    }
}

/// The desired state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionPolicySpec {
    /// NodePools that it applies to; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_pools: Option<NodePoolSelector>,
    /// IANA time zone of all windows; absent means UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Stops all voluntary action by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze: Option<Freeze>,
    /// A pause after nodes were launched or removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// Limits on how much is disrupted, and how fast; all of them apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<PolicyBudget>,
    /// A soft age, at which nodes go inside budgets and windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Expiry>,
    /// Drift in waves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// Handling of drifted nodes that cannot be drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_drains: Option<BlockedDrains>,
    /// Honors annotations of workloads, and limits what they may request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workloads: Option<WorkloadRules>,
    /// Stops disruption while the cluster is in distress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit_breakers: Option<CircuitBreakers>,
    /// Evaluates consolidation over time, so that it converges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convergence: Option<Convergence>,
    /// Why the spec cannot be read; of its fields none but `nodePools` is known then. Never written.
    #[serde(skip)]
    pub unreadable: Option<String>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// Which NodePools: those that are named, and those that carry all labels.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSelector {
    /// Names of NodePools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Labels that a NodePool must have, all of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
}

impl NodePoolSelector {
    /// Whether a NodePool with this name and these labels is selected. An empty selector selects none.
    #[must_use]
    pub fn selects(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let labelled = || {
            let mut wanted = self.match_labels.iter();
            !self.match_labels.is_empty() && wanted.all(|(key, value)| labels.get(key) == Some(value))
        };
        self.names.iter().any(|wanted| wanted == name) || labelled()
    }
}

/// A stop by hand.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Freeze {
    /// The reason, shown wherever the freeze is reported.
    pub reason: String,
    /// When it ends; absent means when it is removed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::time"
    )]
    pub until: Option<Time>,
}

/// A pause after nodes were launched or removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// How long it lasts; each further trigger restarts it.
    pub duration: GoDuration,
    /// How long after a trigger the pause starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_delay: Option<GoDuration>,
    /// Maximum length of the pause, however many triggers occur.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum: Option<GoDuration>,
    /// Whether a trigger anywhere holds all, or each NodePool is held by its own; absent means `Cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<PolicyScope>,
    /// What starts it; absent means `Launch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub triggers: Option<Vec<HoldTrigger>>,
    /// Reasons of disruption that it holds; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<DisruptionReason>>,
}

/// A limit on how much is disrupted, and how fast.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyBudget {
    /// How much may be disrupted at once: a number of units, or a percentage, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// How much disruption may start within any hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_hour: Option<i64>,
    /// What is counted; absent means `Nodes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<BudgetUnit>,
    /// The scope in which it is counted; absent means `Cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<PolicyScope>,
    /// The label of nodes, where the scope is `Label`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether disruption is limited to one zone, NodePool or label value at a time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_at_a_time: bool,
    /// Reasons of disruption that it limits; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<DisruptionReason>>,
    /// When; absent means always.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<PolicyWindow>,
    /// Local dates (`2026-12-24`) on which no window begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except_dates: Vec<String>,
    /// What is allowed outside the windows; absent means `Nothing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside_windows: Option<OutsideWindows>,
}

/// A window of local time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyWindow {
    /// Days on which it begins: `Mon` to `Sun`. With neither days nor dates it begins every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<String>,
    /// Local dates on which it opens, in addition to the days.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dates: Vec<String>,
    /// Local time at which it opens.
    pub from: String,
    /// Local time at which it ends; not later than `from` means on the next day. `24:00` is the end of the day.
    pub to: String,
}

/// A soft age. Nodes that have reached it are replaced like drifted ones, as `Expired`; `expireAfter` takes what is left, whatever policies say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Expiry {
    /// The age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_after: Option<GoDuration>,
    /// The age as a share of `expireAfter`; NodeClaims without one never reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_percent: Option<i64>,
    /// Over how long nodes that were born together are spread; absent means half of the time that is left until `expireAfter`, or a tenth of the age
    /// where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<GoDuration>,
}

/// Drifted nodes of NodePools with `terminationGracePeriod` are not replaced while a PodDisruptionBudget or `karpenter.sh/do-not-disrupt` keeps a pod on
/// them, to avoid paying for a replacement while a drain is blocked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockedDrains {
    /// How long after they drifted they are replaced anyway, and drained within their grace period; absent means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalate_after: Option<GoDuration>,
}

/// Honors the annotations `spokeshave.dev/quiet-time`, `/moves-per-day` and `/move-windows` of pods, their owners and namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRules {
    /// The longest quiet time that is honored; absent means 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_quiet_time: Option<GoDuration>,
    /// The fewest moves a day that a workload may ask for; absent means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_moves_per_day: Option<i64>,
    /// Windows that open later than that keep no pod; absent means 168 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_closed: Option<GoDuration>,
    /// How members of StatefulSets are moved; absent means as other pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stateful_sets: Option<StatefulSetMoves>,
}

/// Drift in waves, for each NodePool separately.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Nodes of the first wave; absent means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<i64>,
    /// Nodes of the waves after it: numbers, or percentages of the NodePool's nodes, rounded up; the last is repeated. Without it each wave is twice
    /// the one before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waves: Vec<String>,
    /// How long a wave is watched after its last node before the next begins; absent means 10 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<GoDuration>,
    /// In which order nodes go; absent means oldest drift first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<RolloutOrder>,
    /// Nothing further begins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Who approves the next wave; absent means `Automatic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<RolloutApproval>,
    /// The last approved wave, by NodePool. What stood when a rollout began counts for nothing in it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub approved: BTreeMap<String, i64>,
    /// The rollout that an approval is of, by NodePool: its `since` in the status. With it an approval counts although it is the same as in the rollout before.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "lenient::times"
    )]
    pub approved_for: BTreeMap<String, Time>,
    /// Halts before this time are cleared, and what rollouts that it clears had seen until then is ignored.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::time"
    )]
    pub resumed_at: Option<Time>,
    /// How long it may take; the status warns if it will take longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<GoDuration>,
    /// When it counts as unhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<RolloutHealth>,
}

/// When new nodes and their pods count as unhealthy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutHealth {
    /// Restarts of a container from which on its pod is not healthy; absent means 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i64>,
    /// How long a node or pod may be not Ready; absent means 5 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_within: Option<GoDuration>,
    /// Health checks on other objects; while one of them fails, nothing starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectHealth>,
}

/// A health check on one object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectHealth {
    /// Its group and version, such as `apps/v1`, or `v1`.
    pub api_version: String,
    /// Its kind in paths: lower case, several of them, such as `statefulsets`.
    pub resource: String,
    /// Namespace of the object, if it is namespaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// CEL over `self`, the object: true when it is healthy.
    pub expression: String,
}

/// Stops disruption while the cluster is in distress.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CircuitBreakers {
    /// Too many nodes are not Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<NotReadyBreaker>,
    /// Launches fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_launches: Option<FailedLaunchesBreaker>,
    /// The cloud does not respond, throttles, or has no capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<FailuresBreaker>,
    /// The API server does not respond, or responds with server errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server: Option<FailuresBreaker>,
    /// Prices have not been read for long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<PricesBreaker>,
}

/// Calls fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailuresBreaker {
    /// The number at which disruption stops.
    pub count: i64,
    /// The time window; an hour at most.
    pub within: GoDuration,
}

/// Prices have not been read for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PricesBreaker {
    /// Age of the last prices at which disruption stops.
    pub older_than: GoDuration,
}

/// Too many nodes are not Ready.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotReadyBreaker {
    /// Share of nodes that are not Ready, from which on nothing is disrupted.
    pub percent: i64,
    /// `Cluster`, or `Zone`: the share in any zone; absent means `Cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<PolicyScope>,
}

/// Launches fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedLaunchesBreaker {
    /// How many commands were rolled back because replacements did not initialize, at which disruption stops.
    pub count: i64,
    /// Within how long.
    pub within: GoDuration,
}

/// Consolidation is judged over time: what it costs in restarts against how long its saving lasts, and how often the same was done before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Convergence {
    /// How long nodes are not consolidated after their launch or after pods were moved to them; doubled with each further move of a day. Absent means 10
    /// minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<GoDuration>,
    /// The maximum of that time; absent means 2 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_rest: Option<GoDuration>,
    /// Cost of restarting a pod elsewhere, in dollars, as decimal text; absent means 0.005.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_cost: Option<String>,
    /// How long a saving is assumed to last if none has ended sooner; absent means 4 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<GoDuration>,
}

impl DisruptionPolicy {
    /// Whether it applies to a NodePool.
    #[must_use]
    pub fn selects(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let selector = self.spec.node_pools.as_ref();
        selector.is_none_or(|selector| selector.selects(name, labels))
    }

    /// The same, with the name and the labels of an object.
    #[must_use]
    pub fn selects_pool(&self, pool: &NodePool) -> bool {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        let labels = pool.metadata.labels.as_ref();
        self.selects(pool.name(), labels.unwrap_or(&NONE))
    }
}
