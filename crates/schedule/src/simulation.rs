//! What-ifs: one Snapshot, what provisioning is about to do with it, and overlays on top that fork and revert.
//!
//! It owns the state of packing across several placements. It never decides which pods to place or which nodes to remove, and never writes
//! to the Snapshot.

use crate::ledger::Checkpoint;
use crate::options::PackOptions;
use crate::outcome::Packing;
use crate::pack::Engine;
use crate::start::Start;
use spokeshave_model::placement::PlannedClaim;
use spokeshave_model::reason::Reason;
use spokeshave_model::snapshot::{NodeId, PodId, PoolId, Snapshot};
use spokeshave_model::vector::ResourceVector;

/// A point to which a `Simulation` can go back. Forks nest: the youngest is reverted or committed first.
#[derive(Debug)]
#[must_use = "a fork that is neither reverted nor committed stays open"]
pub struct Fork {
    checkpoint: Checkpoint,
    depth: usize,
    #[cfg(debug_assertions)]
    before: Option<crate::ledger::Fingerprint>,
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
/// Complexity: `new` is O(pods + nodes + NodePools × instance types); `fork` and `commit` are O(1); `revert` is O(what was done since);
/// `remove_node` is O(distinct node filters); `place` costs each pod O(nodes ÷ 64) words and O(groups it is bound by or counted in), unless it finds a place
/// earlier. Once every class, request and requirement set has been met, a what-if allocates nothing.
///
/// ```
/// use spokeshave_model::snapshot::NodeId;
/// use spokeshave_example as example;
/// use spokeshave_model::{ClusterState, lower};
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
    engine: Engine<'a>,
    /// What the last `place` started from.
    last: Checkpoint,
    forks: usize,
}

impl<'a> Simulation<'a> {
    /// Builds the tables.
    pub fn new(snapshot: &'a Snapshot, options: &'a PackOptions) -> Self {
        Simulation {
            engine: Engine::new(snapshot, options),
            last: Checkpoint::default(),
            forks: 0,
        }
    }

    /// Places pods for good (pending pods, pods of nodes that are leaving), as `pack` would: what provisioning is about to do. From then on nodes
    /// that are not initialised, and the claims opened here, take no further pods (P §6.18, W-05). Call it once, before the first fork, with no
    /// pods if there are none.
    pub fn base(&mut self, pods: &[PodId]) -> Packing {
        debug_assert_eq!(self.forks, 0, "the base comes before the first fork");
        self.last = self.engine.checkpoint();
        self.engine.place(pods);
        let packing = self.engine.packing(self.last);
        self.engine.withhold_uninitialized();
        self.engine.close_claims();
        packing
    }

    /// From now on, or until the fork around it is reverted, these existing nodes take no pods of `place`, though they stay (nodes inside their
    /// consolidateAfter window, D-044).
    pub fn withhold(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        nodes.into_iter().for_each(|node| self.engine.withhold(node));
    }

    /// From now on NodeClaims are opened only on NodePools after this one in order of weight; `None` opens them on any again. Forks do not
    /// undo it: the caller does (W-04).
    pub fn open_after(&mut self, pool: Option<PoolId>) {
        self.engine.open_after(pool);
    }

    /// Marks the present state.
    pub fn fork(&mut self) -> Fork {
        if self.forks == 0 {
            self.engine.clear_in_vain();
        }
        self.forks += 1;
        Fork {
            depth: self.forks,
            #[cfg(debug_assertions)]
            before: self.engine.fingerprint_if_small(),
            checkpoint: self.engine.fork(),
        }
    }

    /// Goes back to the checkpoint.
    #[expect(clippy::needless_pass_by_value, reason = "a fork ends here")]
    pub fn revert(&mut self, fork: Fork) {
        debug_assert_eq!(fork.depth, self.forks, "the youngest fork ends first");
        self.forks = self.forks.saturating_sub(1);
        self.engine.revert(fork.checkpoint);
        #[cfg(debug_assertions)]
        self.engine.assert_equals(fork.before.as_ref());
    }

    /// Forgets the checkpoint and keeps what was done since: part of the next outer fork, if there is one.
    #[expect(clippy::needless_pass_by_value, reason = "a fork ends here")]
    pub fn commit(&mut self, fork: Fork) {
        debug_assert_eq!(fork.depth, self.forks, "the youngest fork ends first");
        self.forks = self.forks.saturating_sub(1);
        self.engine.commit();
    }

    /// Takes a node away: it takes no pods any more, and its capacity no longer counts against its NodePool's limits (D-078). Its pods stay
    /// where they are until `place` is asked to place them.
    pub fn remove_node(&mut self, node: NodeId) {
        self.engine.remove_node(node);
    }

    /// Places pods on what is left, or on new planned NodeClaims; where they are bound now does not matter and no longer counts.
    /// Nodes that are not initialised, withheld nodes and claims of `base` are not offered.
    pub fn place(&mut self, pods: &[PodId]) -> PlacedSummary {
        self.last = self.engine.checkpoint();
        self.engine.place(pods);
        self.summary()
    }

    /// Puts a pod on this node if it takes the pod, wherever that is bound now; whether it does.
    pub fn place_on(&mut self, pod: PodId, node: NodeId) -> bool {
        self.engine.release(&[pod]);
        self.engine.place_on(pod, node)
    }

    /// What became of the pods of the last `place`.
    fn summary(&mut self) -> PlacedSummary {
        let (on_nodes, on_claims) = self.engine.placed_since(self.last);
        let mut unplaced: Vec<PodId> = self.engine.unplaced().collect();
        let claims_opened = self.engine.claim_count() - self.last.claims;
        if self.engine.may_be_truncated(self.last) {
            for claim in self.engine.planned(self.last) {
                unplaced.extend(claim.err().into_iter().flatten().map(|left| left.pod));
            }
            unplaced.sort_unstable();
        }
        PlacedSummary {
            on_nodes,
            on_claims,
            claims_opened,
            unplaced,
        }
    }

    /// Whether `place` would find a place for every pod with at most so many NodeClaims opened since the fork. It stops at the first pod that says no: what is
    /// placed then is a beginning, to be reverted.
    pub fn fits_within(&mut self, pods: &[PodId], fork: &Fork, claims: usize) -> bool {
        self.last = self.engine.checkpoint();
        if !self.engine.place_within(pods, fork.checkpoint.claims + claims) {
            return false;
        }
        self.summary().is_complete() && self.claim_count_since(fork) <= claims
    }

    /// Whether there may be room for all of these pods, in their turn, on nodes and on the NodeClaims opened since the fork, whatever else may keep them away. One
    /// that finds none on a node has looked in vain. Amortised O(pods + claims + nodes ÷ 64) words.
    pub fn may_have_room(&mut self, pods: &[PodId], fork: &Fork) -> bool {
        self.engine.may_have_room(pods, fork.checkpoint)
    }

    /// Why a pod of the last `place` has no place. Worked out on demand.
    pub fn reason(&mut self, pod: PodId) -> Option<Reason> {
        if let Some(reason) = self.engine.reason_of(pod) {
            return Some(reason);
        }
        let lost = self.engine.planned(self.last).into_iter().filter_map(Result::err);
        let mut lost = lost.flatten();
        lost.find(|left| left.pod == pod)
            .map(|left| Reason::clone(&left.reason))
    }

    /// The pods that were put on a node since the fork. O(what was placed since).
    pub fn placed_on_since(&self, fork: &Fork, node: NodeId) -> Vec<PodId> {
        self.engine.placed_on_since(fork.checkpoint, node)
    }

    /// The nodes that pods were put on since the fork, each as often as it took one. O(what was placed since).
    pub fn nodes_since(&self, fork: &Fork) -> impl Iterator<Item = NodeId> + '_ {
        self.engine.nodes_since(fork.checkpoint)
    }

    /// By resource, the least that a pod asked for which has looked at all existing nodes in vain, in one of its attempts since the outermost fork; none when
    /// each pod went to the first node that it was offered room on.
    pub fn in_vain(&self) -> Option<&ResourceVector> {
        self.engine.in_vain()
    }

    /// What every what-if starts from, once `base` is placed and nodes are withheld; to be asked for outside of all forks. O(nodes × resources).
    pub fn start(&self) -> Start {
        debug_assert_eq!(self.forks, 0, "a start has no forks");
        self.engine.start()
    }

    /// How many NodeClaims were opened since the fork. O(1).
    pub fn claim_count_since(&self, fork: &Fork) -> usize {
        self.engine.claim_count() - fork.checkpoint.claims
    }

    /// The NodeClaims opened since the fork, with their launches in order of price, truncated (D-079). Worked out on demand. A claim that cannot
    /// keep its minValues when truncated is missing.
    pub fn claims_since(&mut self, fork: &Fork) -> Vec<PlannedClaim> {
        self.engine
            .planned(fork.checkpoint)
            .into_iter()
            .filter_map(Result::ok)
            .collect()
    }

    /// Everything placed since the fork, and the pods of the last `place` that found no place.
    pub fn packing_since(&mut self, fork: &Fork) -> Packing {
        self.engine.packing(fork.checkpoint)
    }
}
