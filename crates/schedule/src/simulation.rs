//! What-ifs: one Snapshot, what provisioning is about to do with it, and overlays on top that fork and revert.
//!
//! It owns the state of packing across several placements. It never decides which pods to place or which nodes to remove, and never writes
//! to the Snapshot.

use crate::outcome::{Packing, UnplacedPod};
use crate::pack::{PackOptions, Pass};
use spokeshave_model::placement::PlannedClaim;
use spokeshave_model::reason::Reason;
use spokeshave_model::snapshot::{NodeId, PodId, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// A point to which a `Simulation` can go back. Forks nest: the youngest is reverted or committed first.
#[derive(Debug)]
#[must_use = "a fork that is neither reverted nor committed stays open"]
pub struct Fork {
    depth: usize,
    claims: usize,
}

/// What became of the pods of one `Simulation::place`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacedSummary {
    /// How many found room on existing nodes.
    pub on_nodes: usize,
    /// How many went to planned NodeClaims.
    pub on_claims: usize,
    /// How many NodeClaims were opened for them.
    pub claims_opened: usize,
    /// Those without a place, in pod order. `Simulation::reason` says why.
    pub unplaced: Vec<PodId>,
}

impl PlacedSummary {
    /// Every pod found a place.
    pub fn is_complete(&self) -> bool {
        self.unplaced.is_empty()
    }
}

/// One Snapshot, its base placements, and an overlay that forks and reverts.
///
/// Make one, place what provisioning is about to place (`base`), then ask thousands of what-ifs. For several threads, clone it after `base`: a
/// clone answers every question with the same bytes.
///
/// ```
/// use spokeshave_model::snapshot::NodeId;
/// use spokeshave_model::{ClusterState, example, lower};
/// use spokeshave_schedule::{PackOptions, ReservedPolicy, Simulation};
///
/// let types = vec![example::instance_type("large", 8, 32, &["a"])];
/// let mut state = ClusterState::default().with_pool(example::node_pool("default"), types.clone());
/// for name in ["one", "two"] {
///     let pod = example::pending_pod(&format!("web-{name}"), "1", "1Gi", &serde_json::json!({}));
///     state = state
///         .with_node(example::node("default", name, &types[0], "a", "spot"))
///         .with_pod(example::bound(pod, name));
/// }
/// let snapshot = lower(&state);
/// let options = PackOptions { reserved: ReservedPolicy::Fallback, ..PackOptions::default() };
/// let mut simulation = Simulation::new(&snapshot, &options);
/// simulation.base(&[]);
///
/// let fork = simulation.fork();
/// simulation.remove_node(NodeId(0));
/// let summary = simulation.place(&snapshot.node(NodeId(0)).pods);
/// assert!(summary.is_complete() && summary.claims_opened == 0); // node `one` can go
/// simulation.revert(fork);
/// ```
#[derive(Clone)]
pub struct Simulation<'a> {
    snapshot: &'a Snapshot,
    options: &'a PackOptions,
    based: bool,
    withheld: BTreeSet<NodeId>,
    steps: Vec<Step>,
    forks: usize,
    last: Packing,
    base_claims: usize,
}

#[derive(Clone)]
enum Step {
    Base(Vec<PodId>),
    Remove(NodeId),
    Place(Vec<PodId>),
}

impl<'a> Simulation<'a> {
    /// Builds the class tables. O(pods + nodes + NodePools × instance types).
    pub fn new(snapshot: &'a Snapshot, options: &'a PackOptions) -> Self {
        Simulation {
            snapshot,
            options,
            based: false,
            withheld: BTreeSet::new(),
            steps: Vec::new(),
            forks: 0,
            last: Packing::default(),
            base_claims: 0,
        }
    }

    /// Places pods for good (pending pods, pods of nodes that are leaving), as `pack` would: what provisioning is about to do. From then on nodes
    /// that are not initialised, and the claims opened here, take no further pods (P §6.18, W-05). Call it once, before the first fork, with no
    /// pods if there are none.
    pub fn base(&mut self, pods: &[PodId]) -> Packing {
        self.steps.push(Step::Base(pods.to_vec()));
        self.based = true;
        self.replay();
        self.base_claims = self.last.placements.claims.len();
        self.last.clone()
    }

    /// From now on these existing nodes take no pods of `place`, though they stay (nodes inside their consolidateAfter window, D-044).
    /// Call it after `base`, outside of forks.
    pub fn withhold(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        self.withheld.extend(nodes);
    }

    /// Marks the present state. O(1).
    pub fn fork(&mut self) -> Fork {
        self.forks += 1;
        Fork {
            depth: self.steps.len(),
            claims: self.last.placements.claims.len(),
        }
    }

    /// Goes back to the mark. O(what was done since).
    #[expect(clippy::needless_pass_by_value, reason = "a fork ends here")]
    pub fn revert(&mut self, fork: Fork) {
        self.forks -= 1;
        self.steps.truncate(fork.depth);
        self.replay();
    }

    /// Forgets the mark and keeps what was done since: part of the next outer fork, if there is one. O(1).
    #[expect(clippy::needless_pass_by_value, reason = "a fork ends here")]
    pub fn commit(&mut self, fork: Fork) {
        debug_assert!(fork.depth <= self.steps.len());
        self.forks -= 1;
    }

    /// Takes a node away: it takes no pods any more, and its capacity no longer counts against its NodePool's limits (D-078). Its pods stay
    /// where they are until `place` is asked to place them.
    pub fn remove_node(&mut self, node: NodeId) {
        self.steps.push(Step::Remove(node));
    }

    /// Places pods on what is left, or on new planned NodeClaims; where they are bound now does not matter and no longer counts.
    /// Nodes that are not initialised, withheld nodes and claims of `base` are not offered.
    pub fn place(&mut self, pods: &[PodId]) -> PlacedSummary {
        let before = self.last.clone();
        self.steps.push(Step::Place(pods.to_vec()));
        self.replay();
        let mut unplaced: Vec<PodId> = pods.to_vec();
        let known: BTreeSet<PodId> = self.last.unplaced.iter().map(|entry| entry.pod).collect();
        unplaced.retain(|pod| known.contains(pod));
        unplaced.sort_unstable();
        let count = |packing: &Packing| packing.placements.existing.values().map(Vec::len).sum::<usize>();
        let on_nodes = count(&self.last).saturating_sub(count(&before));
        PlacedSummary {
            on_nodes,
            on_claims: pods.len() - unplaced.len() - on_nodes,
            claims_opened: self.last.placements.claims.len() - before.placements.claims.len(),
            unplaced,
        }
    }

    /// Why a pod of the last `place` has no place. Worked out on demand.
    pub fn reason(&mut self, pod: PodId) -> Option<Reason> {
        let found = self.last.unplaced.iter().find(|entry| entry.pod == pod);
        found.map(|entry| (*entry.reason).clone())
    }

    /// How many NodeClaims were opened since the fork. O(1).
    pub fn claim_count_since(&self, fork: &Fork) -> usize {
        self.last.placements.claims.len() - fork.claims
    }

    /// The NodeClaims opened since the fork, with their launches in order of price, truncated (D-079). Worked out on demand. A claim that cannot keep its minValues
    /// when truncated is missing.
    pub fn claims_since(&mut self, fork: &Fork) -> Vec<PlannedClaim> {
        self.last.placements.claims[fork.claims..].to_vec()
    }

    /// Everything placed since the fork, and the pods of the last `place` that found no place.
    pub fn packing_since(&mut self, fork: &Fork) -> Packing {
        let mut packing = self.last.clone();
        packing.placements.claims.drain(..fork.claims);
        packing
    }

    fn replay(&mut self) {
        let pods = self.steps.iter().flat_map(|step| match step {
            Step::Base(pods) | Step::Place(pods) => pods.clone(),
            Step::Remove(_) => Vec::new(),
        });
        let request = crate::PackRequest {
            pods: pods.collect(),
            ..crate::PackRequest::default()
        };
        let mut pass = Pass::new(self.snapshot, &request, self.options);
        let mut initialized_only = BTreeMap::new();
        for step in &self.steps {
            match step {
                Step::Base(pods) => {
                    pass.run(pods);
                    for (index, node) in self.snapshot.nodes.iter().enumerate() {
                        if !node.initialized || self.withheld.contains(&NodeId::from(index)) {
                            initialized_only.insert(index, ());
                        }
                    }
                    pass.withhold(initialized_only.keys().copied());
                }
                Step::Remove(node) => pass.remove(*node),
                Step::Place(pods) => pass.run(pods),
            }
        }
        let unplaced: Vec<UnplacedPod> = Vec::new();
        self.last = pass.finish();
        self.last.unplaced.extend(unplaced);
    }
}
