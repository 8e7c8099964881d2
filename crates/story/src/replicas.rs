//! NodePools with a fixed number of nodes: how many nodes are missing of it, and which ones are too many.
//!
//! The operator makes and deletes these at once, whatever pods wait: for a deletion neither budgets nor DisruptionPolicies are asked. Owns what `plan`, `explain`,
//! `top` and the page know of both; the arithmetic and the order are those of `plan::static_pools`.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned as _, LAUNCHABLE};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{NodeClaim, NodeClassRef, NodePool};
use spokeshave_model::snapshot::{NodeId, Snapshot};
use spokeshave_model::{ClusterState, Pod, Price, pod};
use spokeshave_plan::disrupt::Verdict;
use spokeshave_plan::pool_conditions::STATIC_CAPACITY_DISABLED;
use spokeshave_plan::standing::eligible;
use spokeshave_plan::static_pools::{Held, ScaleUp, count, scale_down, scale_up};

/// What would be done so that NodePools have as many nodes as they want.
#[derive(Clone, Debug, Default)]
pub struct Replicas {
    /// NodePools that have too few.
    pub missing: Vec<TooFew>,
    /// NodePools that have too many.
    pub excess: Vec<TooMany>,
}

/// A NodePool that lacks nodes of its fixed number.
#[derive(Clone, Debug)]
pub struct TooFew {
    /// Its name.
    pub node_pool: String,
    /// Its `spec.replicas`.
    pub replicas: i64,
    /// How many nodes would be launched; 0 where `limits.nodes` is reached.
    pub nodes: usize,
}

/// A NodePool that has more nodes than its fixed number.
#[derive(Clone, Debug)]
pub struct TooMany {
    /// Its name.
    pub node_pool: String,
    /// Its `spec.replicas`.
    pub replicas: i64,
    /// The NodeClaims that are too many, in the order in which they go.
    pub claims: Vec<Arc<NodeClaim>>,
}

impl Replicas {
    /// Looks at all of them, as the operator does with the feature gate on. `state` knows already which nodes belong to commands; `commands` are all that there are:
    /// where some are not known, what looks like one node too many may be one that is being replaced.
    #[must_use]
    pub fn of(state: &ClusterState, commands: &[Arc<Disruption>], now: Timestamp) -> Self {
        let mut this = Self::default();
        let fixed = state.node_pools.iter().filter(|pool| is_scaled(state, pool));
        let fixed: Vec<(&Arc<NodePool>, i64)> = fixed
            .filter_map(|pool| Some((pool, pool.spec.replicas?)))
            .collect();
        if fixed.is_empty() {
            return this;
        }
        // Only where there are too many.
        let pods = LazyCell::new(|| PodsOfClaims::of(state));
        let mut held = Held::default();
        for command in commands {
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
                        this.excess.push(TooMany {
                            node_pool,
                            replicas,
                            claims,
                        });
                    }
                    continue;
                }
            };
            this.missing.push(TooFew {
                node_pool,
                replicas,
                nodes,
            });
        }
        this
    }

    /// Says with the verdicts on nodes that are too many that they go, whatever else is said of them. `snapshot` is made of the same state.
    pub fn tell(&self, snapshot: &Snapshot, verdicts: &mut [Verdict]) {
        if self.excess.is_empty() {
            return;
        }
        let claims = self.excess.iter().flat_map(|one| {
            let claims = one.claims.iter();
            claims.map(move |claim| (claim.name(), one))
        });
        let going: BTreeMap<&str, &TooMany> = claims.collect();
        for verdict in verdicts.iter_mut().filter(|verdict| verdict.waits.is_none()) {
            let claim = snapshot.node(verdict.node).claim_name();
            verdict.waits = claim.and_then(|claim| going.get(claim)).map(|one| one.goes());
        }
    }

    /// The NodePool that has this NodeClaim too many.
    #[must_use]
    pub fn too_many(&self, claim: &str) -> Option<&TooMany> {
        let is_it = |one: &Arc<NodeClaim>| one.name() == claim;
        self.excess.iter().find(|one| one.claims.iter().any(is_it))
    }
}

impl TooFew {
    /// What each of the nodes that would be launched costs at its cheapest: their NodeClaims ask for no room, and any type of the NodePool will do. None where nobody
    /// knows it, or none of its types can be bought. `snapshot` is made of the same state.
    #[must_use]
    pub fn price(&self, snapshot: &Snapshot) -> Option<Price> {
        let pool = snapshot.pool(snapshot.find_pool(&self.node_pool)?);
        let types = eligible(snapshot, pool).into_iter();
        let cheapest =
            types.filter_map(|one| one.cheapest_offering(&pool.requirements, &snapshot.well_known));
        let price = cheapest.map(|offering| offering.price).min()?;
        price.is_known().then_some(price)
    }
}

impl TooMany {
    /// What becomes of each of its nodes that are too many.
    #[must_use]
    pub fn goes(&self) -> String {
        format!(
            "goes without a command: NodePool {} has more nodes than spec.replicas",
            self.node_pool
        )
    }

    /// The nodes that are too many, in the order in which they go, by their names; one that was never launched has only that of its NodeClaim. `snapshot` is made of
    /// the same state.
    #[must_use]
    pub fn nodes(&self, snapshot: &Snapshot) -> Vec<(String, Option<NodeId>)> {
        nodes_of(&self.claims, snapshot)
    }
}

/// The nodes of NodeClaims by their names; one that was never launched has only that of its NodeClaim. `snapshot` is made of the same state.
#[must_use]
pub fn nodes_of(claims: &[Arc<NodeClaim>], snapshot: &Snapshot) -> Vec<(String, Option<NodeId>)> {
    let ids = snapshot.node_ids();
    let ids = ids.filter_map(|id| Some((snapshot.node(id).claim_name()?, id)));
    let ids: BTreeMap<&str, NodeId> = ids.collect();
    let named = |claim: &Arc<NodeClaim>| {
        let id = ids.get(claim.name()).copied();
        let name = id.map_or(claim.name(), |id| snapshot.node(id).name.as_str());
        (name.to_owned(), id)
    };
    claims.iter().map(named).collect()
}

/// Whether an operator that knows these kinds of NodeClasses looks after nodes of this class; where nobody says which it knows, it is taken to know all.
pub(crate) fn is_looked_after(kinds: &[(String, String)], class: &NodeClassRef) -> bool {
    let is_it = |(group, kind): &(String, String)| *group == class.group && *kind == class.kind;
    kinds.is_empty() || kinds.iter().any(is_it)
}

/// A NodePool whose number of nodes the operator keeps.
fn is_scaled(state: &ClusterState, pool: &NodePool) -> bool {
    let is_switched_off = || {
        let condition = pool.condition(LAUNCHABLE);
        condition.is_some_and(|condition| condition.reason == STATIC_CAPACITY_DISABLED)
    };
    pool.is_static()
        && !pool.is_deleting()
        && is_looked_after(
            &state.supported_node_classes,
            &pool.spec.template.spec.node_class_ref,
        )
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
