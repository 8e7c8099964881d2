//! DisruptionPolicy: when voluntary disruption of some NodePools has to wait, beyond their own budgets.
//!
//! Additive: without one, everything is as NodePools alone say. Several that select a NodePool all hold. It never limits what is forceful:
//! interruption, expiry, repair.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{Condition, DisruptionReason, UnknownFields, kind, open_enum};
use crate::GoDuration;

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
        /// Each NodePool by itself.
        NodePool = "NodePool",
        /// Each zone by itself.
        Zone = "Zone",
        /// Each value of a label by itself.
        Label = "Label",
    }
}

open_enum! {
    /// What starts a hold, or starts it anew.
    HoldTrigger {
        /// A node came.
        Launch = "Launch",
        /// Nodes were taken away by a command.
        ScaleDown = "ScaleDown",
        /// A command was taken back because its replacements did not come up.
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
        /// Pods that have to move.
        Pods = "Pods",
    }
}

open_enum! {
    /// Who lets the next wave of a roll-out begin.
    RolloutApproval {
        /// Its health alone.
        Automatic = "Automatic",
        /// Somebody, by writing its number down.
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
    /// Where the roll-out of a NodePool is.
    RolloutPhase {
        /// Its wave takes nodes.
        Rolling = "Rolling",
        /// Its wave is through and watched.
        Soaking = "Soaking",
        /// Its wave is healthy, and somebody has to allow the next.
        WaitingForApproval = "WaitingForApproval",
        /// What it has brought is not healthy.
        Halted = "Halted",
    }
}

open_enum! {
    /// How members of a StatefulSet are moved.
    StatefulSetMoves {
        /// As other pods.
        Any = "Any",
        /// The next when all members are there and Ready.
        OneAtATime = "OneAtATime",
    }
}

open_enum! {
    /// What a budget with windows means outside of them.
    OutsideWindows {
        /// Nothing may be disrupted: windows allow.
        Nothing = "Nothing",
        /// The budget does not limit: windows restrict.
        Unlimited = "Unlimited",
    }
}

/// What is wanted.
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
    /// Rest after nodes have come or gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// Limits of how much and how fast; all of them hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<PolicyBudget>,
    /// A soft age, at which nodes go inside budgets and windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Expiry>,
    /// Drift in waves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// What becomes of drifted nodes that cannot be drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_drains: Option<BlockedDrains>,
    /// Hears what workloads ask for by annotation, and how much they may ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workloads: Option<WorkloadRules>,
    /// Stops by itself while the cluster is in distress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit_breakers: Option<CircuitBreakers>,
    /// Consolidation is judged over time, so that it comes to an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convergence: Option<Convergence>,
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
    /// Labels that a NodePool has to carry, all of them.
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
    /// Why, in words for people.
    pub reason: String,
    /// When it ends by itself; absent means when somebody takes it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// Rest after nodes have come or gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// How long it lasts; each further trigger starts it anew.
    pub duration: GoDuration,
    /// How long after a trigger it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_delay: Option<GoDuration>,
    /// How long it lasts at most, however many triggers follow each other.
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

/// How much and how fast.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyBudget {
    /// How much may be disrupting at once: a number of the unit, or a percentage, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// How much may begin within any hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_hour: Option<i64>,
    /// What is counted; absent means `Nodes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<BudgetUnit>,
    /// What it is counted by; absent means `Cluster`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<PolicyScope>,
    /// The label of nodes, where the scope is `Label`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Never in two zones, NodePools or values of the label at once.
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
    /// What holds outside the windows; absent means `Nothing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside_windows: Option<OutsideWindows>,
}

/// A stretch of local time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyWindow {
    /// Days on which it begins: `Mon` to `Sun`. With neither days nor dates it begins every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<String>,
    /// Local dates on which it begins, besides the days.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dates: Vec<String>,
    /// Local time at which it begins.
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
/// them, so that no replacement is paid for while a drain waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockedDrains {
    /// How long after they have drifted they are replaced all the same, and drained by their grace period; absent means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalate_after: Option<GoDuration>,
}

/// Hears the annotations `spokeshave.dev/quiet-time`, `/moves-per-day` and `/move-windows` of pods, their owners and namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRules {
    /// The longest quiet time that is heard; absent means 24 hours.
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

/// Drift in waves, each NodePool by itself.
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
    /// Who lets the next wave begin; absent means `Automatic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<RolloutApproval>,
    /// Up to which wave somebody has approved, by NodePool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub approved: BTreeMap<String, i64>,
    /// Halts from before this time are over, and what came before it is no longer looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<Time>,
    /// How long it may take; the status says when it will not do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<GoDuration>,
    /// What is not healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<RolloutHealth>,
}

/// What is not healthy about new nodes and their pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutHealth {
    /// Restarts of a container from which on its pod is not healthy; absent means 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i64>,
    /// How long a node or pod may be not Ready; absent means 5 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_within: Option<GoDuration>,
    /// What other objects have to say; while one of them does not hold, nothing begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectHealth>,
}

/// What one object has to say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectHealth {
    /// Its group and version, such as `apps/v1`, or `v1`.
    pub api_version: String,
    /// Its kind in paths: lower case, several of them, such as `statefulsets`.
    pub resource: String,
    /// Its namespace, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// CEL over `self`, the object: true when it is healthy.
    pub expression: String,
}

/// Stops by itself while the cluster is in distress.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CircuitBreakers {
    /// Too many nodes are not Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<NotReadyBreaker>,
    /// Launches fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_launches: Option<FailedLaunchesBreaker>,
    /// The cloud does not answer, throttles, or has no capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<FailuresBreaker>,
    /// The API server does not answer, or answers with errors of its own.
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
    /// How many, from which on nothing is disrupted.
    pub count: i64,
    /// Within how long; an hour at most.
    pub within: GoDuration,
}

/// Prices have not been read for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PricesBreaker {
    /// The age of the last prices, from which on nothing is disrupted.
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
    /// How many commands were taken back because replacements did not come up, from which on nothing is disrupted.
    pub count: i64,
    /// Within how long.
    pub within: GoDuration,
}

/// Consolidation is judged over time: what it costs in restarts against how long its saving lasts, and how often the same was done before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Convergence {
    /// How long nodes rest that were launched, and nodes to which pods were moved; twice as long with each further move of a day. Absent means 10
    /// minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<GoDuration>,
    /// How long they rest at most; absent means 2 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_rest: Option<GoDuration>,
    /// What it costs to restart a pod elsewhere, in dollars, as decimal text; absent means 0.005.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_cost: Option<String>,
    /// How long a saving is taken to last where none has ended sooner; absent means 4 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<GoDuration>,
}

/// What is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionPolicyStatus {
    /// What it comes to now, in a few words, for lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// What stops or limits disruption now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<ActiveRule>,
    /// When that changes by itself, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_change: Option<Time>,
    /// NodePools that it applies to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_pools: Vec<String>,
    /// Roll-outs under way, by NodePool. What the next wave may take follows from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rollouts: Vec<RolloutStatus>,
    /// Nodes that reach their soft age, by NodePool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expiry: Vec<ExpiryStatus>,
    /// What workloads ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workloads: Option<WorkloadsStatus>,
    /// `Ready`: it can be evaluated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// A part of a policy that stops disruption now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveRule {
    /// The field of the spec.
    pub field: String,
    /// The zone, NodePool or value of the label, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Reasons of disruption that it stops.
    pub reasons: Vec<DisruptionReason>,
    /// Why.
    pub message: String,
    /// Since when, for holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Until when, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// What workloads ask for now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadsStatus {
    /// Pods that rest.
    pub resting_pods: i64,
    /// Nodes that they keep.
    pub resting_nodes: i64,
    /// Annotations that cannot be read, and count as the most that may be asked for; the first 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

/// The coming wave of nodes that reach their soft age, of one NodePool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpiryStatus {
    /// The NodePool.
    pub node_pool: String,
    /// Nodes that have reached it.
    pub due: i64,
    /// Nodes that will reach it within 24 hours.
    pub within_day: i64,
    /// When the next one reaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_due: Option<Time>,
    /// Nodes that budgets and windows do not let go before `expireAfter` takes them, as far as three days tell.
    pub late: i64,
    /// When the first of these is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_late: Option<Time>,
}

/// The roll-out of one NodePool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// The NodePool.
    pub node_pool: String,
    /// The hash of what it asks for; another begins another roll-out.
    #[serde(default)]
    pub target: String,
    /// When it began.
    pub since: Time,
    /// The number of the wave, from 1.
    pub wave: i64,
    /// How many nodes it may take.
    pub size: i64,
    /// When it began.
    pub wave_since: Time,
    /// How many nodes it has taken.
    pub begun: i64,
    /// How many drifted nodes nothing has taken yet.
    pub remaining: i64,
    /// Where it is.
    pub phase: RolloutPhase,
    /// When the last command of the wave ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// When it was halted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted_at: Option<Time>,
    /// What an object has to say and does not: nothing begins meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// What it comes to, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it will be done, if it goes on as it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<Time>,
}

impl DisruptionPolicy {
    /// Whether it applies to a NodePool.
    #[must_use]
    pub fn selects(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let selector = self.spec.node_pools.as_ref();
        selector.is_none_or(|selector| selector.selects(name, labels))
    }
}
