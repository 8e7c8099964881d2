//! NodePools with a fixed number of nodes: how many nodes are missing of it, how many of these can be launched, and which ones are too many.
//!
//! The operator makes and deletes these at once, whatever pods wait: for a deletion neither budgets nor DisruptionPolicies are asked. Owns what `plan`, `explain`,
//! `top` and the page know of both; the arithmetic and the order are those of `plan::static_pools`, why nothing can be launched is said by `plan::standing`.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned as _, LAUNCHABLE, READY, Status};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{Condition, NodeClaim, NodeClassRef, NodePool, labels};
use spokeshave_model::snapshot::{NodeId, PoolId, PoolView, Snapshot};
use spokeshave_model::{ClusterState, Pod, Price, PriceFeed, Requirements, pod};
use spokeshave_plan::MinValuesPolicy;
use spokeshave_plan::disrupt::Verdict;
use spokeshave_plan::pool_conditions::{NO_COMPATIBLE, STATIC_CAPACITY_DISABLED};
use spokeshave_plan::standing::{self, eligible};
use spokeshave_plan::static_pools::{Counts, Held, ScaleUp, count, scale_down, scale_up};

/// How labels of EC2's capacity reservations begin.
const OF_RESERVATIONS: &str = "karpenter.k8s.aws/capacity-reservation-";

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
    /// How many nodes it lacks, whether or not they can be launched.
    pub missing: usize,
    /// How many of them its limits let it have.
    allowed: usize,
    /// The one before it that lacks nodes, too: that and those before it may take what it would have of a reservation.
    before: Option<Arc<TooFew>>,
}

/// What comes of the nodes that a NodePool lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launches {
    /// How many of them would be launched.
    pub nodes: usize,
    /// Why not all of them.
    pub why_not_all: Option<String>,
    /// Nothing can be launched from the NodePool, whatever its limits allow.
    pub takes_no_part: bool,
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
    /// where some are not known, what looks like one node too many may be one that is being replaced. Of a NodePool that the operator does not look after nothing is
    /// too many; what is missing of it is missing all the same.
    #[must_use]
    pub fn of(state: &ClusterState, commands: &[Arc<Disruption>], now: Timestamp) -> Self {
        let mut this = Self::default();
        let fixed = state.node_pools.iter().filter(|pool| !pool.is_deleting());
        let fixed: Vec<(&Arc<NodePool>, i64)> = fixed
            .filter_map(|pool| Some((pool, pool.spec.replicas?)))
            .collect();
        if fixed.is_empty() {
            return this;
        }
        // Only where there are too many.
        let pods = LazyCell::new(|| PodsOfClaims::of(state));
        let mut before: Option<Arc<TooFew>> = None;
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
            let missing = lacks(pool, counts, now);
            if missing > 0 {
                let one = TooFew {
                    node_pool,
                    replicas,
                    missing,
                    allowed: created(pool, counts),
                    before: before.take(),
                };
                this.missing.push(one.clone());
                before = Some(Arc::new(one));
                continue;
            }
            if !is_number_kept(state, pool) {
                continue;
            }
            let claims = scale_down(pool, &claims, &held, |claim| pods.on(claim), now);
            if !claims.is_empty() {
                this.excess.push(TooMany {
                    node_pool,
                    replicas,
                    claims,
                });
            }
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
    /// How many of them would be launched, and why not all. `snapshot` is made of the same state.
    #[must_use]
    pub fn launches(&self, snapshot: &Snapshot) -> Launches {
        let pool = snapshot.find_pool(&self.node_pool);
        if let Some(why) = pool.and_then(|pool| hindrance(snapshot, pool)) {
            return Launches {
                nodes: 0,
                why_not_all: Some(why),
                takes_no_part: true,
            };
        }
        let reserved = pool.and_then(|pool| reserved(snapshot, snapshot.pool(pool)));
        let left = reserved.map(|reserved| self.left(snapshot, &reserved));
        let (nodes, why) = match left.filter(|(left, _)| *left < self.allowed) {
            Some((left, is_shared)) => {
                let nodes = spokeshave_plan::report::count(left, "node");
                let beside = match is_shared {
                    true => " beside those of other NodePools",
                    false => "",
                };
                let why = format!("its capacity reservations have room for {nodes}{beside}");
                (left, why)
            }
            None => (self.allowed, "limits.nodes is reached".to_owned()),
        };
        Launches {
            nodes,
            why_not_all: (nodes < self.missing).then_some(why),
            takes_no_part: false,
        }
    }

    /// How many of its nodes its reservations have room for, and whether those of NodePools before it leave fewer than there would be.
    fn left(&self, snapshot: &Snapshot, reserved: &BTreeMap<&str, i64>) -> (usize, bool) {
        let others = std::iter::successors(self.before.as_deref(), |&one| one.before.as_deref());
        let others: Vec<&TooFew> = others.collect();
        let mut taken = BTreeMap::new();
        for one in others.into_iter().rev() {
            let pool = snapshot.find_pool(&one.node_pool);
            let pool = pool.filter(|pool| is_reserved_only(snapshot.pool(*pool)));
            let pool = pool.filter(|pool| hindrance(snapshot, *pool).is_none());
            if let Some(room) = pool.and_then(|pool| self::reserved(snapshot, snapshot.pool(pool))) {
                take(&room, &mut taken, one.allowed);
            }
        }
        let alone = take(reserved, &mut BTreeMap::new(), self.allowed);
        let left = take(reserved, &mut taken, self.allowed);
        (left, left < alone)
    }

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

/// Whether the operator keeps the number of nodes of this NodePool: it knows the kind of its NodeClass, and the feature gate is not off.
fn is_number_kept(state: &ClusterState, pool: &NodePool) -> bool {
    let is_switched_off = || {
        let condition = pool.condition(LAUNCHABLE);
        condition.is_some_and(|condition| condition.reason == STATIC_CAPACITY_DISABLED)
    };
    let class = pool.node_class_ref();
    is_looked_after(&state.supported_node_classes, class) && !is_switched_off()
}

/// How many nodes the number asks for beyond those that there are, whatever limits and conditions of the NodePool say.
fn lacks(pool: &NodePool, counts: Counts, now: Timestamp) -> usize {
    let mut free = pool.clone();
    free.spec.limits = None;
    free.set(READY, Status::True, READY, "", now);
    created(&free, counts)
}

/// How many nodes the operator makes of a NodePool that has so many.
fn created(pool: &NodePool, counts: Counts) -> usize {
    match scale_up(pool, counts) {
        ScaleUp::Create(nodes) => nodes,
        ScaleUp::AtLimit | ScaleUp::None => 0,
    }
}

/// Why a NodePool launches nothing for pods, whatever they ask for. Of one with a fixed number of nodes it is not said that it launches these where it cannot.
#[must_use]
pub fn takes_no_part(snapshot: &Snapshot, id: PoolId, min_values: MinValuesPolicy) -> Option<String> {
    let is_fixed = snapshot.pool(id).is_static;
    let hindrance = is_fixed.then(|| hindrance(snapshot, id)).flatten();
    hindrance.or_else(|| standing::takes_no_part(snapshot, id, min_values))
}

/// Why nothing can be launched from a NodePool with a fixed number of nodes, in the words that are used of others. What its operator has found out may be over by now:
/// it tries again ever more rarely.
fn hindrance(snapshot: &Snapshot, id: PoolId) -> Option<String> {
    let pool = snapshot.pool(id);
    if pool.deleting || !pool.supported || !pool.ready {
        return standing::takes_no_part(snapshot, id, MinValuesPolicy::default());
    }
    let said = || {
        let said = not_launchable(snapshot, pool)?;
        let mut texts = [&said.message, &said.reason].into_iter();
        texts.find(|text| !text.is_empty()).cloned()
    };
    no_instance_type(snapshot, pool, MinValuesPolicy::default()).or_else(said)
}

/// Why a NodePool has nothing that it could launch, as far as that is known here. `of_pods` says whether too few instance types for minValues keep it from launching
/// for pods.
pub(crate) fn no_instance_type(
    snapshot: &Snapshot,
    pool: &PoolView,
    of_pods: MinValuesPolicy,
) -> Option<String> {
    let why = standing::no_instance_type(snapshot, pool, min_values(pool, of_pods));
    why.filter(|_| !is_of_unseen_reservations(snapshot, pool))
}

/// What the operator has found out about a fixed number of nodes, where it can launch none. What it says of requirements that have changed since, or that instance
/// types are known to meet, is over; whether the feature gate is off does not depend on them.
pub(crate) fn not_launchable<'a>(snapshot: &Snapshot, pool: &'a PoolView) -> Option<&'a Condition> {
    let said = standing::not_launchable(pool)?;
    let generation = pool.object.metadata.generation;
    let is_of_before = said
        .observed_generation
        .is_some_and(|seen| Some(seen) < generation);
    let is_refuted = match said.reason.as_str() {
        STATIC_CAPACITY_DISABLED => false,
        NO_COMPATIBLE => is_of_before || !eligible(snapshot, pool).is_empty(),
        _ => is_of_before,
    };
    (!is_refuted).then_some(said)
}

/// Whether too few instance types for minValues keep a NodePool from launching: `of_pods` says it of NodeClaims whose types a plan chooses. Those of a fixed number
/// name no types, and of all clouds only EC2 looks at minValues then.
fn min_values(pool: &PoolView, of_pods: MinValuesPolicy) -> MinValuesPolicy {
    match pool.is_static {
        false => of_pods,
        true if pool.object.node_class_ref().is_ec2() => MinValuesPolicy::Strict,
        true => MinValuesPolicy::BestEffort,
    }
}

/// It may take nothing but capacity reservations.
fn is_reserved_only(pool: &PoolView) -> bool {
    let wanted = pool.requirements.find(labels::CAPACITY_TYPE);
    wanted.is_some_and(|wanted| wanted.single_value() == Some(labels::CAPACITY_TYPE_RESERVED))
}

/// It may take nothing but capacity reservations of EC2, has types that could be reserved, and nobody has looked what is left of these: types and prices are from a
/// table, which has no price of spot either. An operator and a catalog know it.
fn is_of_unseen_reservations(snapshot: &Snapshot, pool: &PoolView) -> bool {
    snapshot.distress.prices == PriceFeed::WithoutSpot
        && pool.instance_types_problem.is_none()
        && pool.object.node_class_ref().is_ec2()
        && is_reserved_only(pool)
        && eligible(snapshot, pool).is_empty()
        && could_be_reserved(pool)
}

/// Whether instance types meet what it asks for beside a reservation.
fn could_be_reserved(pool: &PoolView) -> bool {
    let is_beside = |key: &str| key != labels::CAPACITY_TYPE && !key.starts_with(OF_RESERVATIONS);
    let wanted = pool.requirements.iter().filter(|one| is_beside(one.key()));
    let wanted: Requirements = wanted.cloned().collect();
    let mut types = pool.instance_types.iter();
    types.any(|one| one.requirements.intersects(&wanted).is_ok())
}

/// Takes room for so many nodes, beside what is taken already. How many there is room for.
fn take<'a>(room: &BTreeMap<&'a str, i64>, taken: &mut BTreeMap<&'a str, i64>, nodes: usize) -> usize {
    let mut found = 0;
    for (reservation, capacity) in room {
        let known = taken.entry(*reservation).or_default();
        let left = usize::try_from(capacity.saturating_sub(*known)).unwrap_or(0);
        let mine = left.min(nodes.saturating_sub(found));
        *known = known.saturating_add(i64::try_from(mine).unwrap_or(i64::MAX));
        found += mine;
    }
    found
}

/// For how many nodes each of its capacity reservations has room, where nothing else may be launched from a NodePool.
fn reserved<'a>(snapshot: &'a Snapshot, pool: &'a PoolView) -> Option<BTreeMap<&'a str, i64>> {
    let mut left: BTreeMap<&str, i64> = BTreeMap::new();
    for one in eligible(snapshot, pool) {
        for offering in one.available_offerings(&pool.requirements, &snapshot.well_known) {
            let known = left.entry(offering.reservation_id()?).or_default();
            *known = offering.reservation_capacity.max(*known);
        }
    }
    // Where its types are known to the operator only, so are these.
    (!left.is_empty()).then_some(left)
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
