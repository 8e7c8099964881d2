//! NodePools with a fixed number of nodes: how many nodes are missing of it, and which ones are too many.
//!
//! The operator makes and deletes these at once, whatever pods wait: for a deletion neither budgets nor DisruptionPolicies are asked. Owns how a plan tells of
//! both; the arithmetic and the order are those of `plan::static_pools`.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned as _, LAUNCHABLE};
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::snapshot::{NodeId, Snapshot};
use spokeshave_model::{ClusterState, Pod, Price, pod};
use spokeshave_plan::disrupt::CommandNode;
use spokeshave_plan::pool_conditions::STATIC_CAPACITY_DISABLED;
use spokeshave_plan::report::some_of;
use spokeshave_plan::static_pools::{Held, ScaleUp, count, scale_down, scale_up};
use spokeshave_story::prices;

use super::format::{Dollars, Plan, ReplicaLaunches, ScaleDown};
use super::world::plural;

/// What would be done so that NodePools have as many nodes as they want.
#[derive(Debug, Default)]
pub(super) struct Replicas {
    missing: Vec<ReplicaLaunches>,
    excess: Vec<Excess>,
}

/// NodeClaims of a NodePool that are too many, in the order in which they go.
#[derive(Debug)]
struct Excess {
    node_pool: String,
    replicas: i64,
    claims: Vec<Arc<NodeClaim>>,
}

impl Replicas {
    /// Looks at all of them, as the operator does with the feature gate on. `state` knows already which nodes belong to commands.
    pub(super) fn of(state: &ClusterState, now: Timestamp) -> Self {
        let mut this = Self::default();
        let fixed = state.node_pools.iter().filter(|pool| is_scaled(state, pool));
        let fixed: Vec<(&Arc<NodePool>, i64)> = fixed
            .filter_map(|pool| Some((pool, pool.spec.replicas?)))
            .collect();
        if fixed.is_empty() {
            return this;
        }
        let pods = PodsOfClaims::of(state);
        let mut held = Held::default();
        for command in &state.disruptions {
            held.add(command);
        }
        for (pool, replicas) in fixed {
            let node_pool = pool.name().to_owned();
            let claims = state.node_claims.iter();
            let claims = claims.filter(|claim| claim.node_pool() == Some(pool.name()));
            let claims: Vec<Arc<NodeClaim>> = claims.cloned().collect();
            let in_command = |id: &str| state.in_command.contains(id);
            let counts = count(claims.iter().map(|claim| &**claim), in_command);
            let nodes = match scale_up(pool, counts) {
                ScaleUp::Create(nodes) => nodes,
                ScaleUp::AtLimit => 0,
                ScaleUp::None => {
                    let claims = scale_down(pool, &claims, &held, |claim| pods.on(claim), now);
                    if !claims.is_empty() {
                        this.excess.push(Excess {
                            node_pool,
                            replicas,
                            claims,
                        });
                    }
                    continue;
                }
            };
            this.missing.push(ReplicaLaunches {
                node_pool,
                replicas,
                nodes,
            });
        }
        this
    }

    /// Whether the operator does so depends on a setting of its own.
    pub(super) fn note(&self) -> Option<String> {
        let missing = self.missing.iter().map(|one| one.node_pool.as_str());
        let names: Vec<&str> = missing
            .chain(self.excess.iter().map(|one| one.node_pool.as_str()))
            .collect();
        (!names.is_empty()).then(|| {
            format!(
                "spec.replicas of {} {} in force, as with the feature gate StaticCapacity on",
                plural(names.len(), "NodePool", "NodePools"),
                some_of(&names, 5)
            )
        })
    }

    /// Tells of it in a plan, also with the verdicts on the nodes that go without a command. `snapshot` is made of the same state.
    pub(super) fn tell(self, snapshot: &Snapshot, plan: &mut Plan) {
        let mut goes = BTreeMap::new();
        for excess in self.excess {
            let told = excess.told(snapshot);
            let names = told.nodes.iter().cloned();
            goes.extend(names.map(|name| (name, excess.node_pool.clone())));
            plan.disruption.scale_down.push(told);
        }
        plan.provisioning.replicas = self.missing;
        for verdict in plan.disruption.verdicts.iter_mut().flatten() {
            if let Some(pool) = goes.get(&verdict.node).filter(|_| verdict.waits.is_none()) {
                verdict.waits = Some(format!(
                    "goes without a command: NodePool {pool} has more nodes than spec.replicas"
                ));
            }
        }
    }
}

impl Excess {
    fn told(&self, snapshot: &Snapshot) -> ScaleDown {
        let mut told = ScaleDown {
            node_pool: self.node_pool.clone(),
            replicas: self.replicas,
            nodes: Vec::new(),
            price: Dollars(Price::ZERO),
            evictions: 0,
        };
        for claim in &self.claims {
            let Some(node) = node_of(snapshot, claim) else {
                // It was never launched.
                told.nodes.push(claim.name().to_owned());
                continue;
            };
            let view = snapshot.node(node);
            let price = prices::instead(snapshot, view).unwrap_or(view.price);
            told.nodes.push(view.name.clone());
            told.price = Dollars(told.price.0.saturating_add(price));
            told.evictions += CommandNode::of(snapshot, node).reschedulable_pods;
        }
        told
    }
}

fn node_of(snapshot: &Snapshot, claim: &NodeClaim) -> Option<NodeId> {
    let mut nodes = snapshot.node_ids();
    nodes.find(|node| snapshot.node(*node).claim_name() == Some(claim.name()))
}

/// A NodePool whose number of nodes the operator keeps.
fn is_scaled(state: &ClusterState, pool: &NodePool) -> bool {
    let class = &pool.spec.template.spec.node_class_ref;
    let kinds = &state.supported_node_classes;
    let is_ours = |(group, kind): &(String, String)| *group == class.group && *kind == class.kind;
    let is_switched_off = || {
        let condition = pool.condition(LAUNCHABLE);
        condition.is_some_and(|condition| condition.reason == STATIC_CAPACITY_DISABLED)
    };
    pool.is_static()
        && !pool.is_deleting()
        && (kinds.is_empty() || kinds.iter().any(is_ours))
        && !is_switched_off()
}

/// The pods on the Nodes of NodeClaims.
struct PodsOfClaims<'a> {
    /// Names of Nodes by provider ID.
    nodes: BTreeMap<&'a str, Vec<&'a str>>,
    /// By the name of their Node.
    pods: BTreeMap<&'a str, Vec<Arc<Pod>>>,
}

impl<'a> PodsOfClaims<'a> {
    fn of(state: &'a ClusterState) -> Self {
        let mut nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for node in &state.nodes {
            let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
            if let Some((id, name)) = id.zip(node.metadata.name.as_deref()) {
                nodes.entry(id).or_default().push(name);
            }
        }
        let mut pods: BTreeMap<&str, Vec<Arc<Pod>>> = BTreeMap::new();
        for one in &state.pods {
            if let Some(node) = pod::node_name(one) {
                pods.entry(node).or_default().push(Arc::clone(one));
            }
        }
        Self { nodes, pods }
    }

    fn on(&self, claim: &NodeClaim) -> Vec<Arc<Pod>> {
        let nodes = claim.provider_id().and_then(|id| self.nodes.get(id));
        let pods = nodes.into_iter().flatten().filter_map(|node| self.pods.get(node));
        pods.flatten().cloned().collect()
    }
}
