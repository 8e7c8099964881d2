//! The operator: what it remembers, and how the engine carries out what `plan` decides.
//!
//! Owns the order in which decision functions are called and what is kept between two calls, as the controllers of the real operator do it. No decision is
//! made here: each is the answer of a function of `plan`.

mod claims;
mod commands;
mod counters;
mod disruption;
mod drains;
mod models;
mod provisioning;
mod snapshots;
mod static_pools;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_api::conditions::{Conditioned as _, NODE_CLASS_READY, VALIDATION_SUCCEEDED};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{NodePool, hash, labels};
use spokeshave_plan::disrupt::{BudgetMapping, Command, Frontier, Kept};
use spokeshave_plan::launch_backoff::LaunchBackoff;
use spokeshave_plan::termination::Turns;

use crate::savings::Savings;
use crate::world::{Model, Policy, World};

pub(crate) use claims::Launch;

/// A command that waits for its second look.
#[derive(Debug)]
pub(crate) struct Pending {
    command: Command,
    object: Arc<Disruption>,
    budgets: Vec<BudgetMapping>,
    /// Its NodePools were at rest when it was decided.
    is_calm: bool,
    due_ms: u64,
}

/// When the disruption loop takes its next turn.
#[derive(Clone, Copy, Debug)]
struct NextTurn {
    due_ms: u64,
    /// So that the entry of a turn that another has come before does not bring one more.
    number: u64,
    /// Something has woken the loop at this instant.
    is_at_once: bool,
}

/// What the operator remembers.
#[derive(Debug)]
pub(crate) struct Operator {
    /// NodePools as they are in the cluster, ready and with their hashes.
    pub(crate) node_pools: BTreeMap<String, Arc<NodePool>>,
    /// Increases with everything that a decision could read.
    pub(crate) version: u64,
    live: snapshots::Live,
    /// Until when nodes are kept for pods, by provider ID.
    nominations: BTreeMap<String, Timestamp>,
    launches: LaunchBackoff,
    // The batching window.
    batch: Batch,
    // The disruption loop.
    pending: Vec<Pending>,
    frontier: Frontier,
    /// Answers of the last pass.
    kept: Kept,
    /// Commands under way whose end the frontier does not know yet, by position.
    started: BTreeMap<u32, Command>,
    last_turn_ms: u64,
    /// When the operator last judged every node.
    judged_ms: Option<u64>,
    /// Which nodes were kept for pods at the last turn, and until when.
    nominated_before: BTreeMap<String, Timestamp>,
    /// What the status of each NodePool says, in their order.
    counted: Vec<counters::Counted>,
    /// NodePools whose pods have begun to move since commands began to wait: pods that come and go there are no news to those that still wait.
    moving: BTreeSet<String>,
    /// The version in which a model has found nothing to do, and until when that holds, in milliseconds.
    modelled: Option<(u64, u64)>,
    /// What the model of Karpenter remembers.
    karpenter: models::Memory,
    /// Since when nodes have been unneeded, by provider ID, for the model of cluster-autoscaler.
    unneeded: BTreeMap<String, u64>,
    /// When a NodeClaim was last created for pods.
    last_launch_ms: Option<u64>,
    /// What-ifs of all passes, of models too; those of second looks are not counted.
    pub(crate) what_ifs: u64,
    /// NodeClaims that are looked at later.
    looks: claims::Looks,
    /// The same of NodePools with a fixed number of nodes.
    static_looks: static_pools::StaticLooks,
    /// The next turn of the disruption loop.
    turn: Option<NextTurn>,
    /// Something has woken the loop once more before that turn: another follows at once.
    is_woken_again: bool,
    /// A NodeClaim has woken it.
    is_woken_by_claim: bool,
    /// How many turns have been asked for.
    turns_asked: u64,
    /// Pod events of nodes that are not written yet, and the pauses between writes (D-036).
    pub(crate) pod_events: BTreeMap<u32, PodEvents>,
    /// Who waits for larger pods to be evicted (W-63).
    pub(crate) turns: Turns,
    /// What commands have saved lately, for the figure `savings_lost`.
    pub(crate) savings: Savings,
    /// Ordinals of StatefulSets whose pod is terminating, for which the successor waits.
    pub(crate) stopping_ordinals: BTreeSet<(u32, u64)>,
    /// Of these, the evicted ones, with the time of the voluntary eviction.
    pub(crate) moved_ordinals: BTreeMap<(u32, u64), Option<u64>>,
}

/// Pod events of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PodEvents {
    /// The newest that is not written yet.
    newest: Option<Timestamp>,
    /// Until when nothing more is written.
    paused_until_ms: u64,
}

/// The batching window of provisioning.
#[derive(Debug, Default)]
struct Batch {
    /// IDs that have asked since the last pass.
    seen: BTreeSet<String>,
    /// When the first of them asked.
    opened_ms: Option<u64>,
    /// Numbers the windows, so that an old timer does not close a new one.
    number: u64,
    /// When another pass is due if pods still wait.
    retrigger_ms: u64,
    /// The version that the last pass has seen and could do nothing more about.
    fruitless: Option<u64>,
}

impl Operator {
    pub(crate) fn new(world: &World, policy: &Policy) -> Self {
        let pools = policy.node_pools.iter().map(|pool| {
            let mut pool = ready(pool, world.start);
            if policy.model == Model::KarpenterBalanced {
                models::weigh_savings(&mut pool);
            }
            (pool.metadata.name.clone().unwrap_or_default(), Arc::new(pool))
        });
        let node_pools: BTreeMap<String, Arc<NodePool>> = pools.collect();
        Operator {
            nominated_before: BTreeMap::new(),
            counted: node_pools.keys().map(|_| counters::Counted::default()).collect(),
            node_pools,
            version: 0,
            live: snapshots::Live::default(),
            nominations: BTreeMap::new(),
            launches: LaunchBackoff::default(),
            batch: Batch::default(),
            pending: Vec::new(),
            frontier: Frontier::default(),
            kept: Kept::default(),
            started: BTreeMap::new(),
            last_turn_ms: 0,
            judged_ms: None,
            moving: BTreeSet::new(),
            modelled: None,
            karpenter: models::Memory::default(),
            unneeded: BTreeMap::new(),
            last_launch_ms: None,
            what_ifs: 0,
            looks: claims::Looks::default(),
            static_looks: static_pools::StaticLooks::default(),
            turn: None,
            is_woken_again: false,
            is_woken_by_claim: false,
            turns_asked: 0,
            pod_events: BTreeMap::new(),
            turns: Turns::default(),
            savings: Savings::default(),
            stopping_ordinals: BTreeSet::new(),
            moved_ordinals: BTreeMap::new(),
        }
    }
}

/// A NodePool as the controllers have left it: with its hash, and ready.
fn ready(pool: &NodePool, now: Timestamp) -> NodePool {
    let mut pool = pool.clone();
    let hash = hash::node_pool_hash(&pool);
    let annotations = pool.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::NODE_POOL_HASH.to_owned(), hash);
    annotations.insert(
        labels::NODE_POOL_HASH_VERSION.to_owned(),
        hash::VERSION.to_owned(),
    );
    if pool.metadata.uid.is_none() {
        pool.metadata.uid = Some(format!(
            "nodepool-{}",
            pool.metadata.name.as_deref().unwrap_or_default()
        ));
    }
    pool.set_true(VALIDATION_SUCCEEDED, now);
    pool.set_true(NODE_CLASS_READY, now);
    pool
}
