//! The machine-readable plan: `plan.spokeshave.dev/v1alpha1`, kind Plan. Field by field in docs/plan.md.
//!
//! Owns names and shapes; a field that is here stays, with its meaning, as long as the version does. It computes nothing that a decision did not
//! already compute.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use spokeshave_model::placement::PlannedClaim;
use spokeshave_model::reason::{Obstacle, PoolRefusal, Reason};
use spokeshave_model::snapshot::{PodId, PoolId, Snapshot};
use spokeshave_model::{Derivation, Price, ResourceName, Resources};
use spokeshave_plan::report::instance_type_names;
use spokeshave_plan::standing::asked_pools;
use spokeshave_plan::{Policy, Provisioned, skipped_pool_text};
use spokeshave_story::explain::{at_most, way_out};
use spokeshave_story::prices;
use spokeshave_story::replicas::takes_no_part;
use spokeshave_story::settings::SettingsInForce;

use super::expired::ExpiredNodes;
use super::replicas::{ReplicaLaunches, ScaleDown};

/// The version of the format.
pub(crate) const API_VERSION: &str = "plan.spokeshave.dev/v1alpha1";

/// What would be done now, and why not more.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Plan {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) now: Timestamp,
    pub(crate) cluster: Cluster,
    pub(crate) provisioning: Provisioning,
    pub(crate) disruption: Disruption,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) settings: Option<SettingsInForce>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stats: Option<Stats>,
}

/// The state that was planned for, in numbers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cluster {
    pub(crate) node_pools: usize,
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) pending_pods: usize,
    pub(crate) price: Dollars,
    pub(crate) nodes_without_price: usize,
}

/// Nodes to launch, nodes to use, pods left over.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Provisioning {
    pub(crate) node_claims: Vec<NodeClaimPlan>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) later: Vec<LaterLaunches>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) replicas: Vec<ReplicaLaunches>,
    pub(crate) existing_nodes: Vec<ExistingNode>,
    pub(crate) unschedulable: Vec<Unschedulable>,
    pub(crate) skipped_node_pools: Vec<SkippedNodePool>,
    pub(crate) price: Dollars,
}

/// A node that would be launched.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeClaimPlan {
    pub(crate) node_pool: String,
    pub(crate) pods: Vec<String>,
    pub(crate) instance_types: Names,
    pub(crate) cheapest: Option<Cheapest>,
    pub(crate) requests: BTreeMap<String, String>,
}

/// Names that many NodeClaims have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names(Arc<Vec<String>>);

impl Names {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Serialize for Names {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter())
    }
}

/// The names of instance types by the list that they come from: thousands of NodeClaims have few lists.
#[derive(Debug, Default)]
pub(crate) struct KnownNames(BTreeMap<(PoolId, (usize, usize)), Names>);

impl KnownNames {
    fn of(&mut self, snapshot: &Snapshot, claim: &PlannedClaim) -> Names {
        let names = || Names(Arc::new(instance_type_names(snapshot, claim)));
        let key = (claim.pool, claim.launches.identity());
        self.0.entry(key).or_insert_with(names).clone()
    }
}

/// The cheapest way to launch a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cheapest {
    pub(crate) instance_type: String,
    pub(crate) zone: Option<String>,
    pub(crate) capacity_type: Option<&'static str>,
    /// None where nobody knows it.
    pub(crate) price: Option<Dollars>,
}

/// Nodes that later passes would launch from a NodePool, once those of this one are there and count with what they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LaterLaunches {
    pub(crate) node_pool: String,
    pub(crate) nodes: usize,
    pub(crate) pods: Vec<String>,
    pub(crate) price: Dollars,
}

/// Pods that fit on an existing node.
#[derive(Debug, Serialize)]
pub(crate) struct ExistingNode {
    pub(crate) node: String,
    pub(crate) pods: Vec<String>,
}

/// A pod without a place.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Unschedulable {
    pub(crate) pod: String,
    pub(crate) message: String,
    pub(crate) reasons: Vec<ReasonView>,
    pub(crate) in_the_way: Vec<InTheWay>,
}

/// One of the fewest things without which a pod would have a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct InTheWay {
    pub(crate) what: String,
    pub(crate) hint: String,
}

/// One thing in the way of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReasonView {
    pub(crate) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node_pool: Option<String>,
    /// Number of existing nodes with this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nodes: Option<usize>,
    pub(crate) message: String,
}

/// A NodePool that could not take part.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SkippedNodePool {
    pub(crate) node_pool: String,
    pub(crate) message: String,
}

/// What would be disrupted.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Disruption {
    pub(crate) commands: Vec<CommandView>,
    /// What passes after this one would start, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) later: Vec<CommandView>,
    /// Passes after these may start more: so many are made at most.
    #[serde(skip)]
    pub(crate) is_cut: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) expired: Vec<ExpiredNodes>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) scale_down: Vec<ScaleDown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verdicts: Option<Vec<VerdictView>>,
    pub(crate) budgets: Vec<BudgetView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) stops: Vec<StopView>,
}

/// Nodes that go, and what comes instead.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandView {
    pub(crate) id: String,
    pub(crate) method: &'static str,
    pub(crate) reason: String,
    pub(crate) decision: &'static str,
    pub(crate) nodes: Vec<String>,
    pub(crate) replacements: Vec<NodeClaimPlan>,
    pub(crate) price_before: Dollars,
    pub(crate) price_after: Dollars,
    /// Of a node of it nobody knows the price, and `price_before` is without that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) price_unknown: bool,
    /// Both are prices of on-demand, which is not what spot nodes cost.
    #[serde(skip)]
    pub(crate) is_by_on_demand: bool,
    pub(crate) evictions: usize,
}

/// What is said about one node taken alone.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VerdictView {
    pub(crate) node: String,
    pub(crate) decision: &'static str,
    pub(crate) method: Option<&'static str>,
    pub(crate) price_before: Dollars,
    pub(crate) price_after: Dollars,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) price_unknown: bool,
    /// As of a command.
    #[serde(skip)]
    pub(crate) is_by_on_demand: bool,
    pub(crate) replacement: Option<String>,
    pub(crate) blockers: Vec<BlockerView>,
    pub(crate) waits: Option<String>,
    pub(crate) if_removed: Option<IfRemoved>,
}

/// One thing that keeps a node.
#[derive(Debug, Serialize)]
pub(crate) struct BlockerView {
    pub(crate) kind: String,
    pub(crate) object: String,
    pub(crate) message: String,
}

/// What would become of a node without its blockers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IfRemoved {
    pub(crate) decision: &'static str,
    pub(crate) method: &'static str,
    pub(crate) price_after: Dollars,
    pub(crate) message: String,
}

/// What one NodePool allows for one reason.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BudgetView {
    pub(crate) node_pool: String,
    pub(crate) reason: String,
    pub(crate) nodes: usize,
    pub(crate) disrupting: usize,
    /// None where no budget applies.
    pub(crate) allowed: Option<i64>,
    pub(crate) remaining: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl BudgetView {
    /// For people: how many of the nodes that are there may go at once, and how many of them still.
    pub(crate) fn of_nodes(&self) -> Option<(i64, i64)> {
        let staying = self.nodes.saturating_sub(self.disrupting);
        let (allowed, remaining) = self.allowed.zip(self.remaining)?;
        Some((at_most(allowed, self.nodes), at_most(remaining, staying)))
    }
}

/// A part of a DisruptionPolicy that stops disruption now.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StopView {
    pub(crate) policy: String,
    pub(crate) field: String,
    pub(crate) node_pools: Vec<String>,
    pub(crate) reasons: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<Timestamp>,
    pub(crate) message: String,
}

/// Time, work and memory.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stats {
    pub(crate) read_ns: u64,
    pub(crate) lower_ns: u64,
    pub(crate) provision_ns: u64,
    pub(crate) later_ns: u64,
    pub(crate) disrupt_ns: u64,
    pub(crate) what_if_ns: WhatIfs,
    pub(crate) what_ifs: u64,
    pub(crate) peak_rss_bytes: Option<u64>,
    pub(crate) objects: usize,
    pub(crate) instance_types: usize,
    pub(crate) attempts: u64,
    pub(crate) nodes_tried: u64,
    pub(crate) node_claims_tried: u64,
}

/// How long decisions about single candidates took; `total` holds what they share, too.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct WhatIfs {
    pub(crate) count: u64,
    pub(crate) median: u64,
    pub(crate) p99: u64,
    pub(crate) total: u64,
}

/// A price as a number of dollars per hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dollars(pub(crate) Price);

impl Serialize for Dollars {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.dollars())
    }
}

/// Names of pods.
pub(crate) fn pod_names(snapshot: &Snapshot, pods: &[PodId]) -> Vec<String> {
    pods.iter().map(|pod| snapshot.pod(*pod).key()).collect()
}

/// Resources as quantities.
pub(crate) fn quantities(resources: &Resources) -> BTreeMap<String, String> {
    resources
        .iter()
        .map(|(name, amount)| (name.to_owned(), ResourceName::format(name, amount)))
        .collect()
}

impl NodeClaimPlan {
    pub(crate) fn of(snapshot: &Snapshot, claim: &PlannedClaim, known: &mut KnownNames) -> Self {
        let types = &snapshot.pool(claim.pool).instance_types;
        Self {
            node_pool: snapshot.pool(claim.pool).name.clone(),
            pods: pod_names(snapshot, &claim.pods),
            instance_types: known.of(snapshot, claim),
            cheapest: claim.launches.first().map(|launch| Cheapest {
                instance_type: types[launch.instance_type].name.clone(),
                zone: launch.zone.clone(),
                capacity_type: launch.capacity_type.map(|kind| kind.as_str()),
                price: (launch.price != Price::UNKNOWN).then_some(Dollars(launch.price)),
            }),
            requests: quantities(&claim.requests),
        }
    }

    /// Its price; zero when nothing can be launched, or nobody knows it.
    pub(crate) fn price(&self) -> Price {
        self.cheapest
            .as_ref()
            .and_then(|cheapest| cheapest.price)
            .map_or(Price::ZERO, |price| price.0)
    }
}

impl Provisioning {
    /// Tells what was decided, why pods have no place, and what would be launched later.
    pub(crate) fn of(
        snapshot: &Snapshot,
        outcome: &Provisioned,
        derivations: &BTreeMap<PodId, Arc<Derivation>>,
        later: Vec<LaterLaunches>,
        policy: &Policy,
    ) -> Self {
        let claims = outcome.placements.claims.iter();
        let mut known = KnownNames::default();
        let node_claims: Vec<NodeClaimPlan> = claims
            .map(|claim| NodeClaimPlan::of(snapshot, claim, &mut known))
            .collect();
        let ignored = outcome.ignored.iter().map(|(pod, problem)| {
            let reason = Reason::Problem(problem.clone());
            let derivation = Derivation::of(Arc::new(reason));
            (*pod, unschedulable(snapshot, *pod, &derivation, policy))
        });
        let unplaced = derivations
            .iter()
            .map(|(pod, derivation)| (*pod, unschedulable(snapshot, *pod, derivation, policy)));
        let by_pod: BTreeMap<PodId, Unschedulable> = ignored.chain(unplaced).collect();
        Self {
            price: Dollars(node_claims.iter().map(NodeClaimPlan::price).sum()),
            node_claims,
            later,
            replicas: Vec::new(),
            existing_nodes: outcome
                .placements
                .existing
                .iter()
                .map(|(node, pods)| ExistingNode {
                    node: snapshot.node(*node).name.clone(),
                    pods: pod_names(snapshot, pods),
                })
                .collect(),
            unschedulable: by_pod.into_values().collect(),
            skipped_node_pools: outcome
                .report
                .skipped_pools
                .iter()
                .map(|(node_pool, why)| {
                    let pool = snapshot.find_pool(node_pool);
                    let own = pool.and_then(|pool| takes_no_part(snapshot, pool, policy.min_values));
                    SkippedNodePool {
                        node_pool: node_pool.clone(),
                        message: own.unwrap_or_else(|| skipped_pool_text(why).to_owned()),
                    }
                })
                .collect(),
        }
    }
}

fn unschedulable(snapshot: &Snapshot, pod: PodId, derivation: &Derivation, policy: &Policy) -> Unschedulable {
    let nodes = derivation.nodes.iter().map(|(obstacle, count)| ReasonView {
        kind: obstacle.kind(),
        node_pool: None,
        nodes: Some(*count),
        message: obstacle.to_string(),
    });
    let asked = asked_pools(snapshot, pod);
    let mut reasons = asked_first(snapshot, &asked, reasons(snapshot, &derivation.reason), policy);
    reasons.extend(nodes);
    let minimal = derivation.minimal.iter().map(|blocker| InTheWay {
        what: blocker.to_string(),
        hint: way_out(snapshot, pod, blocker),
    });
    Unschedulable {
        pod: snapshot.pod(pod).key(),
        message: derivation.reason.to_string(),
        reasons,
        in_the_way: minimal.collect(),
    }
}

/// The NodePools that the pod asks for speak first, also those that take no part.
fn asked_first(
    snapshot: &Snapshot,
    asked: &[PoolId],
    reasons: Vec<ReasonView>,
    policy: &Policy,
) -> Vec<ReasonView> {
    let name = |pool: &PoolId| snapshot.pool(*pool).name.as_str();
    let is_asked = |reason: &ReasonView| {
        let pool = reason.node_pool.as_deref();
        pool.is_some_and(|pool| asked.iter().any(|asked| name(asked) == pool))
    };
    let (mut first, others): (Vec<ReasonView>, Vec<ReasonView>) = reasons.into_iter().partition(is_asked);
    for pool in asked {
        let speaks = first
            .iter()
            .any(|reason| reason.node_pool.as_deref() == Some(name(pool)));
        if let Some(message) = takes_no_part(snapshot, *pool, policy.min_values).filter(|_| !speaks) {
            first.push(ReasonView {
                kind: "TakesNoPart",
                node_pool: Some(name(pool).to_owned()),
                nodes: None,
                message,
            });
        }
    }
    first.extend(others);
    first
}

/// The parts of a reason: one for each NodePool, or the one there is.
fn reasons(snapshot: &Snapshot, reason: &Reason) -> Vec<ReasonView> {
    let one = |kind| {
        vec![ReasonView {
            kind,
            node_pool: None,
            nodes: None,
            message: reason.to_string(),
        }]
    };
    match reason {
        Reason::Pools(refusals) => refusals
            .iter()
            .map(|refusal| ReasonView {
                kind: obstacle_kind(&refusal.obstacle),
                node_pool: Some(refusal.pool.clone()),
                nodes: None,
                message: short(snapshot, refusal),
            })
            .collect(),
        Reason::TruncatedMinValues { pool, .. } => vec![ReasonView {
            kind: "MinValues",
            node_pool: Some(pool.clone()),
            nodes: None,
            message: reason.to_string(),
        }],
        Reason::Problem(_) => one("Pod"),
        Reason::DynamicResources => one("DynamicResources"),
        Reason::NoNodePools => one("NoNodePools"),
        Reason::NoTemplates => one("NoInstanceTypes"),
        Reason::ReservedOfferings { .. } => one("ReservedOfferings"),
        Reason::Uninitialized { .. } => one("Uninitialized"),
        Reason::Unsupported(_) => one("Unsupported"),
    }
}

/// An obstacle in few words: of the requirements only those that the NodePool did not bring itself.
fn short(snapshot: &Snapshot, refusal: &PoolRefusal) -> String {
    let Obstacle::InstanceTypes {
        failure,
        requirements,
        max,
        ..
    } = &refusal.obstacle
    else {
        return refusal.obstacle.to_string();
    };
    let pool = snapshot.find_pool(&refusal.pool).map(|pool| snapshot.pool(pool));
    let own = |key: &str| pool.and_then(|pool| pool.requirements.find(key));
    let asked = requirements
        .iter()
        .filter(|requirement| own(requirement.key()) != Some(requirement))
        .map(ToString::to_string);
    let amounts = |resources: &Resources| {
        let amounts = resources.iter().filter(|(name, _)| *name != ResourceName::PODS);
        let texts: Vec<String> = amounts
            .map(|(name, amount)| format!("{name} {}", ResourceName::format(name, amount)))
            .collect();
        texts.join(", ")
    };
    let asked: Vec<String> = std::iter::once(amounts(max)).chain(asked).collect();
    let limits = pool.filter(|pool| !pool.limits.is_empty());
    let limits = limits.map(|pool| format!("; limits of the NodePool: {}", amounts(&pool.limits)));
    format!("{failure}: {}{}", asked.join(", "), limits.unwrap_or_default())
}

fn obstacle_kind(obstacle: &Obstacle) -> &'static str {
    match obstacle {
        Obstacle::Taint(_) => "Taint",
        Obstacle::Incompatible(_) => "Labels",
        Obstacle::Volume(_) => "Volume",
        Obstacle::VolumeLimit { .. } => "VolumeLimit",
        Obstacle::HostPort(_) => "HostPort",
        Obstacle::NodeResources => "NodeResources",
        Obstacle::NodeLimit | Obstacle::Limits => "Limits",
        Obstacle::InstanceTypes { .. } => "InstanceTypes",
        Obstacle::ReservedOfferings => "ReservedOfferings",
        Obstacle::Topology { .. } => "Topology",
    }
}

impl Cluster {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let managed = || snapshot.nodes.iter().filter(|node| node.is_managed());
        Self {
            node_pools: snapshot.pools.len(),
            nodes: snapshot.nodes.len(),
            pods: snapshot.pods.len(),
            pending_pods: snapshot
                .pods
                .iter()
                .filter(|pod| pod.provisionable && pod.active)
                .count(),
            price: Dollars(managed().map(|node| prices::told(snapshot, node)).sum()),
            nodes_without_price: managed()
                .filter(|node| prices::is_unknown(snapshot, node))
                .count(),
        }
    }
}
