//! What if these nodes were gone: the one door through which disruption asks the packing engine.
//!
//! A `WhatIf` starts from what provisioning is about to do anyway (pending pods and pods of nodes on their way out have their places), so that
//! pending pods never turn a delete into a replace (W-05). Every question leaves it as it was.

use super::alike::Likeness;
use super::candidates::Candidate;
use super::command::{Destination, Move};
use super::ground::Ground;
use super::outcome::DisruptStatistics;
use crate::provision::{displaced_from, pending_among, pending_pods};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use rustc_hash::FxHashSet;
use spokeshave_model::Price;
use spokeshave_model::Requirements;
use spokeshave_model::placement::PlannedClaim;
use spokeshave_model::snapshot::{NodeId, NodeView, PodId, PoolId, Snapshot};
use spokeshave_model::vector::ResourceVector;
use spokeshave_schedule::{Fork, PackOptions, Simulation, Start, sort_by_turn};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Worst launch prices by instance type, per NodePool and requirements; filled on demand.
type WorstPrices = BTreeMap<(PoolId, Requirements), Vec<Option<Price>>>;

/// The cluster as it will be once provisioning has done its work, open to what-ifs.
#[derive(Clone)]
pub(super) struct WhatIf<'a> {
    snapshot: &'a Snapshot,
    simulation: Simulation<'a>,
    worst_prices: WorstPrices,
    pub(super) statistics: DisruptStatistics,
}

/// What became of the pods of the nodes that were removed.
pub(super) struct Moved<'w, 'a> {
    snapshot: &'a Snapshot,
    simulation: &'w mut Simulation<'a>,
    worst_prices: &'w mut WorstPrices,
    fork: &'w Fork,
    /// Pods without a place, in pod order.
    pub(super) unplaced: Vec<PodId>,
}

/// Which pods look for other places when a sweep removes a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follow {
    /// Those that it has. Where others were put on it before, the sweep promises too much, which shows when all are placed together.
    Own,
    /// Also those that the sweep has put on it before. Each step takes as long as the sweep has placed pods.
    All,
}

impl<'a> WhatIf<'a> {
    /// `withheld` nodes keep what they have and take nothing (D-044).
    pub(super) fn new(
        snapshot: &'a Snapshot,
        options: &'a PackOptions,
        now: Timestamp,
        withheld: &BTreeSet<NodeId>,
    ) -> Self {
        let leaving = snapshot.node_ids().filter(|node| {
            let view = snapshot.node(*node);
            view.in_command || view.marked_for_deletion
        });
        let leaving: Vec<NodeId> = leaving.collect();
        let pending = pending_pods(snapshot).0;
        let mut this = WhatIf::upon(snapshot, options, &leaving, pending, Some(now));
        this.simulation.withhold(withheld.iter().copied());
        this
    }

    /// The same for a pass.
    pub(super) fn of(ground: &Ground<'a>, options: &'a PackOptions) -> Self {
        let (snapshot, register) = (ground.snapshot, &ground.register);
        let leaving: Vec<NodeId> = register.leaving().collect();
        let waiting = register.restless(snapshot).map(|(pod, _)| pod);
        let pending = pending_among(snapshot, waiting).0;
        let mut this = WhatIf::upon(snapshot, options, &leaving, pending, Some(ground.now));
        this.simulation.withhold(ground.withheld.iter().copied());
        this
    }

    /// The cluster with the pods where they are and those that wait where they will go, for pods that are about to move themselves. Pods of other
    /// commands are not asked for: their places were found beside these.
    pub(super) fn as_it_is(snapshot: &'a Snapshot, options: &'a PackOptions) -> Self {
        let leaving = snapshot.node_ids().filter(|node| snapshot.node(*node).in_command);
        let leaving: Vec<NodeId> = leaving.collect();
        WhatIf::upon(snapshot, options, &leaving, pending_pods(snapshot).0, None)
    }

    /// Pods that wait, and with a time those of nodes that are leaving, have their places; nodes of commands take none, nor do those that are closed.
    fn upon(
        snapshot: &'a Snapshot,
        options: &'a PackOptions,
        leaving: &[NodeId],
        pending: Vec<PodId>,
        now: Option<Timestamp>,
    ) -> Self {
        let mut simulation = Simulation::new(snapshot, options);
        for node in leaving {
            let view = snapshot.node(*node);
            if view.in_command && !view.marked_for_deletion {
                simulation.remove_node(*node);
            }
        }
        let mut pods: BTreeSet<PodId> = pending.into_iter().collect();
        if let Some(now) = now {
            let leaving = leaving.iter().map(|node| snapshot.node(*node));
            pods.extend(leaving.flat_map(|node| displaced_from(snapshot, node, now)));
        }
        simulation.base(&pods.into_iter().collect::<Vec<_>>());
        simulation.withhold(snapshot.node_ids().filter(|node| is_closed(snapshot.node(*node))));
        WhatIf {
            snapshot,
            simulation,
            worst_prices: WorstPrices::new(),
            statistics: DisruptStatistics::default(),
        }
    }

    /// The same for another thread, with its work counted from zero.
    pub(super) fn worker(&self) -> Self {
        WhatIf {
            statistics: DisruptStatistics::default(),
            ..self.clone()
        }
    }

    /// What every question starts from.
    pub(super) fn start(&self) -> Start {
        self.simulation.start()
    }

    /// Takes a node that has nothing to move out of all further questions.
    pub(super) fn remove_for_good(&mut self, node: NodeId) {
        self.simulation.remove_node(node);
    }

    /// Removes the nodes, places the pods, lets `look` see the result, and puts everything back.
    pub(super) fn without<R>(
        &mut self,
        nodes: &[NodeId],
        pods: &[PodId],
        look: impl FnOnce(&mut Moved<'_, 'a>) -> R,
    ) -> R {
        self.without_on(None, nodes, pods, look)
    }

    /// The same, with new NodeClaims only from NodePools after this one (W-04).
    pub(super) fn without_on<R>(
        &mut self,
        after: Option<PoolId>,
        nodes: &[NodeId],
        pods: &[PodId],
        look: impl FnOnce(&mut Moved<'_, 'a>) -> R,
    ) -> R {
        self.statistics.what_ifs += 1;
        self.statistics.pods += pods.len() as u64;
        let fork = self.simulation.fork();
        for node in nodes {
            self.simulation.remove_node(*node);
        }
        self.simulation.open_after(after);
        let is_stuck = |pod: &PodId| is_stuck(self.snapshot, *pod);
        let stuck: Vec<PodId> = pods.iter().copied().filter(is_stuck).collect();
        // Most have none, and nothing is copied then.
        let mut unplaced = if stuck.is_empty() {
            self.simulation.place(pods).unplaced
        } else {
            let others: Vec<PodId> = pods.iter().copied().filter(|pod| !is_stuck(pod)).collect();
            self.simulation.place(&others).unplaced
        };
        self.simulation.open_after(None);
        if !stuck.is_empty() {
            unplaced.extend(stuck);
            unplaced.sort_unstable();
        }
        let answer = look(&mut Moved {
            snapshot: self.snapshot,
            simulation: &mut self.simulation,
            worst_prices: &mut self.worst_prices,
            fork: &fork,
            unplaced,
        });
        self.simulation.revert(fork);
        answer
    }

    /// Whether the pods of these nodes have places without a new NodeClaim where the `last` nodes are asked last, as those of NodeClaims are that are yet to
    /// come. Nodes that are there are asked in their own order, which may put pods on a replacement that were planned elsewhere, and leave others without a place.
    pub(super) fn has_places_with_last(&mut self, nodes: &[NodeId], pods: &[PodId], last: &[NodeId]) -> bool {
        if pods.iter().any(|pod| is_stuck(self.snapshot, *pod)) {
            return false;
        }
        let mut elsewhere: FxHashSet<PodId> = FxHashSet::default();
        let fork = self.simulation.fork();
        nodes.iter().for_each(|node| self.simulation.remove_node(*node));
        self.simulation.withhold(last.iter().copied());
        let unplaced = self.simulation.place(pods).unplaced;
        elsewhere.extend(unplaced);
        elsewhere.extend(
            self.simulation
                .claims_since(&fork)
                .into_iter()
                .flat_map(|claim| claim.pods),
        );
        self.simulation.revert(fork);

        let (rest, others): (Vec<PodId>, Vec<PodId>) = pods.iter().partition(|pod| elsewhere.contains(*pod));
        let fork = self.simulation.fork();
        nodes.iter().for_each(|node| self.simulation.remove_node(*node));
        let mut has_places = rest
            .iter()
            .all(|pod| last.iter().any(|node| self.simulation.place_on(*pod, *node)));
        if has_places {
            self.simulation.withhold(last.iter().copied());
            let unplaced = self.simulation.place(&others).unplaced;
            has_places = unplaced.is_empty() && self.simulation.claim_count_since(&fork) == 0;
        }
        self.simulation.revert(fork);
        has_places
    }

    /// Removes nodes one after another as long as all their pods find places and at most `claims` new NodeClaims are needed; `offer` names the
    /// next node, and is told whether the last one was kept. `look` sees the result before everything is put back.
    pub(super) fn sweep<'c, R>(
        &mut self,
        claims: usize,
        follow: Follow,
        mut offer: impl FnMut(Option<bool>) -> Option<&'c Candidate>,
        look: impl FnOnce(&mut Moved<'_, 'a>) -> R,
    ) -> R {
        let snapshot = self.snapshot;
        let facts = |candidate: &Candidate| (Cow::Owned(moving_in_turn(snapshot, candidate)), None);
        self.watched_sweep(claims, follow, facts, |was_kept, _| offer(was_kept), look)
    }

    /// The same; `offer` is also told which nodes took pods of the last node, whether it was kept or not. `facts` names the pods of a candidate in
    /// their turn, and what it shares with others: of candidates that are alike, one that was not kept stands for all until one is kept.
    pub(super) fn watched_sweep<'c, 'm, R>(
        &mut self,
        claims: usize,
        follow: Follow,
        facts: impl Fn(&Candidate) -> (Cow<'m, [PodId]>, Option<*const Likeness>),
        mut offer: impl FnMut(Option<bool>, &[NodeId]) -> Option<&'c Candidate>,
        look: impl FnOnce(&mut Moved<'_, 'a>) -> R,
    ) -> R {
        self.statistics.what_ifs += 1;
        let mut nodes: Vec<NodeId> = Vec::new();
        let outer = self.simulation.fork();
        let mut kept = None;
        let mut refused: FxHashSet<*const Likeness> = FxHashSet::default();
        while let Some(candidate) = offer(kept, &nodes) {
            let (pods, likeness) = facts(candidate);
            let likeness = likeness.filter(|_| follow == Follow::Own);
            if likeness.is_some_and(|likeness| refused.contains(&likeness)) {
                #[cfg(debug_assertions)]
                {
                    let (step, fits) = self.step(claims, follow, &outer, (candidate.node, &*pods));
                    debug_assert!(!fits, "what is not kept stands for what is like it");
                    self.simulation.revert(step);
                }
                self.statistics.shared += 1;
                nodes.clear();
                kept = Some(false);
                continue;
            }
            self.statistics.steps += 1;
            if self.is_hopeless(&pods, claims, &outer) {
                #[cfg(debug_assertions)]
                {
                    let (step, fits) = self.step(claims, follow, &outer, (candidate.node, &*pods));
                    debug_assert!(!fits, "a pod without room anywhere has no place");
                    self.simulation.revert(step);
                }
                nodes.clear();
                refused.extend(likeness);
                kept = Some(false);
                continue;
            }
            let (step, fits) = self.step(claims, follow, &outer, (candidate.node, &*pods));
            nodes.clear();
            nodes.extend(self.simulation.nodes_since(&step));
            if fits {
                self.simulation.commit(step);
                refused.clear();
            } else {
                self.simulation.revert(step);
                refused.extend(likeness);
            }
            kept = Some(fits);
        }
        let answer = look(&mut Moved {
            snapshot: self.snapshot,
            simulation: &mut self.simulation,
            worst_prices: &mut self.worst_prices,
            fork: &outer,
            unplaced: Vec::new(),
        });
        self.simulation.revert(outer);
        answer
    }
}

impl WhatIf<'_> {
    /// Whether pods find no room as things are, and no further NodeClaim may be opened for them. They find none when their node is gone, either.
    fn is_hopeless(&mut self, pods: &[PodId], claims: usize, outer: &Fork) -> bool {
        self.simulation.claim_count_since(outer) >= claims && !self.simulation.may_have_room(pods, outer)
    }

    /// Removes one more node in a sweep; whether its pods find places, with at most so many new NodeClaims since its beginning.
    fn step(
        &mut self,
        claims: usize,
        follow: Follow,
        outer: &Fork,
        (node, pods): (NodeId, &[PodId]),
    ) -> (Fork, bool) {
        self.statistics.pods += pods.len() as u64;
        let step = self.simulation.fork();
        let mut moving = Cow::Borrowed(pods);
        if follow == Follow::All {
            let mut all = self.simulation.placed_on_since(outer, node);
            all.extend_from_slice(pods);
            moving = Cow::Owned(all);
        }
        self.simulation.remove_node(node);
        let may_move = moving.iter().all(|pod| !is_stuck(self.snapshot, *pod));
        let fits = may_move && self.simulation.fits_within(&moving, outer, claims);
        (step, fits)
    }
}

impl Moved<'_, '_> {
    /// The nodes that took the pods.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.simulation.nodes_since(self.fork)
    }

    /// By resource, the least that one of those asks for that have looked at all nodes in vain.
    pub(super) fn in_vain(&self) -> Option<&ResourceVector> {
        self.simulation.in_vain()
    }

    /// How many new NodeClaims were needed.
    pub(super) fn claim_count(&self) -> usize {
        self.simulation.claim_count_since(self.fork)
    }

    /// The new NodeClaims; one that cannot keep its minValues is missing.
    pub(super) fn claims(&mut self) -> Vec<PlannedClaim> {
        self.simulation.claims_since(self.fork)
    }

    /// The worst launch price of an instance type under the claim's requirements (D-146).
    pub(super) fn worst_price(&mut self, claim: &PlannedClaim, instance_type: usize) -> Price {
        let types = &self.snapshot.pool(claim.pool).instance_types;
        let known = match self
            .worst_prices
            .get_mut(&(claim.pool, claim.requirements.clone()))
        {
            Some(known) => known,
            None => self
                .worst_prices
                .entry((claim.pool, claim.requirements.clone()))
                .or_insert_with(|| vec![None; types.len()]),
        };
        *known[instance_type].get_or_insert_with(|| {
            types[instance_type].worst_launch_price(&claim.requirements, &self.snapshot.well_known)
        })
    }

    /// D-083: `not all pods would schedule, <ns/pod> => <error> …`, with at most five pods.
    pub(super) fn refusal(&mut self) -> String {
        let mut parts = Vec::new();
        for pod in self.unplaced.iter().take(5) {
            let reason = match self.snapshot.pod(*pod).problem() {
                Some(problem) => Some(problem.to_string()),
                None => self.simulation.reason(*pod).map(|reason| reason.to_string()),
            };
            parts.push(format!(
                "{} => {}",
                self.snapshot.pod(*pod).key(),
                reason.unwrap_or_else(|| "no place was found".to_owned())
            ));
        }
        let others = match self.unplaced.len().saturating_sub(5) {
            0 => String::new(),
            count => format!(" and {count} other(s)"),
        };
        format!("not all pods would schedule, {}{others}", parts.join(" "))
    }

    /// Where the pods of the candidates went, in pod order; nobody moves virtual ones.
    pub(super) fn places(&mut self, candidates: &[&Candidate]) -> Vec<Placed> {
        let packing = self.simulation.packing_since(self.fork);
        let mut nodes: Vec<NodeId> = candidates.iter().map(|candidate| candidate.node).collect();
        nodes.sort_unstable();
        let existing = packing.placements.existing.iter();
        let on_nodes = existing.flat_map(|(node, pods)| pods.iter().map(|pod| (*pod, Place::Node(*node))));
        let claims = packing.placements.claims.iter().enumerate();
        let on_claims =
            claims.flat_map(|(index, claim)| claim.pods.iter().map(move |pod| (*pod, Place::Claim(index))));
        let mut places: Vec<Placed> = on_nodes
            .chain(on_claims)
            .filter_map(|(pod, to)| {
                let view = self.snapshot.pod(pod);
                let from = view.node.filter(|node| nodes.binary_search(node).is_ok())?;
                (!view.is_virtual).then_some(Placed { pod, from, to })
            })
            .collect();
        places.sort_unstable_by_key(|placed| placed.pod);
        places
    }

    /// The same, with names.
    pub(super) fn moves(&mut self, candidates: &[&Candidate]) -> Vec<Move> {
        let places = self.places(candidates);
        moves(self.snapshot, &places)
    }
}

/// Where a pod went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Node(NodeId),
    /// A new NodeClaim, by number.
    Claim(usize),
}

/// A pod that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) pod: PodId,
    from: NodeId,
    to: Place,
}

/// The pods of a candidate that will leave, in the order in which places are looked for: the largest first.
pub(super) fn moving_in_turn(snapshot: &Snapshot, candidate: &Candidate) -> Vec<PodId> {
    let mut pods = candidate.moving(snapshot).into_owned();
    sort_by_turn(snapshot, &mut pods);
    pods
}

/// Whether no node can take the pod, whatever room there is: its successor would wait for what is not there any more.
fn is_stuck(snapshot: &Snapshot, pod: PodId) -> bool {
    snapshot.pod(pod).problem().is_some()
}

/// Whether a node is cordoned or not ready. A pod that tolerates everything could be placed there, but the command that relies on it would be rolled back
/// before its nodes are deleted (invariant 8), each time anew (W-64).
fn is_closed(node: &NodeView) -> bool {
    let is_closing = |taint: &Taint| {
        matches!(
            taint.key.as_str(),
            "node.kubernetes.io/unschedulable"
                | "node.kubernetes.io/not-ready"
                | "node.kubernetes.io/unreachable"
        )
    };
    node.taints.iter().any(is_closing)
}

/// Moves with names.
pub(super) fn moves(snapshot: &Snapshot, places: &[Placed]) -> Vec<Move> {
    let named = |placed: &Placed| {
        let (view, from) = (snapshot.pod(placed.pod), snapshot.node(placed.from));
        let to = match placed.to {
            Place::Node(node) => {
                let view = snapshot.node(node);
                Destination::Node {
                    name: view.name.clone(),
                    provider_id: view.provider_id.clone(),
                }
            }
            Place::Claim(index) => Destination::Replacement(index),
        };
        Move {
            pod: view.key(),
            uid: view.uid().to_owned(),
            from: from.node_name().unwrap_or(&from.name).to_owned(),
            to,
        }
    };
    places.iter().map(named).collect()
}
