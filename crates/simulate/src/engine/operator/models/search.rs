//! What-ifs of models: nodes are taken away, and their pods look for other places.
//!
//! Owns the packing of one pass of a model, on the Snapshot and by the rules that Spokeshave packs with, and the writing down of a command. What is worth it, and
//! in which order nodes are asked about, the models say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_model::Price;
use spokeshave_model::placement::Placements;
use spokeshave_model::snapshot::{NodeId, PodId, Snapshot};
use spokeshave_plan::disrupt::{Candidate, Command, CommandNode, Destination, Method, Move, Replacement};
use spokeshave_plan::{displaced_pods, pending_pods};
use spokeshave_schedule::{Fork, PackOptions, Simulation};

/// The what-ifs of one pass.
pub(super) struct Search<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// The packing of what is, with what provisioning is about to place.
    simulation: Simulation<'a>,
    /// How many sets of nodes were taken away.
    pub(super) what_ifs: u64,
}

/// Where the pods of nodes that were taken away would go.
pub(super) struct Moved {
    pub(super) placements: Placements,
    /// The pods that are on these nodes.
    pods: Vec<PodId>,
}

impl<'a> Search<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, options: &'a PackOptions, now: Timestamp) -> Self {
        let mut simulation = Simulation::new(snapshot, options);
        let (pending, _) = pending_pods(snapshot);
        let pods: BTreeSet<PodId> = pending.into_iter().chain(displaced_pods(snapshot, now)).collect();
        simulation.base(&pods.into_iter().collect::<Vec<_>>());
        Search {
            snapshot,
            simulation,
            what_ifs: 0,
        }
    }

    /// From now on these nodes keep what they have and take nothing.
    pub(super) fn withhold(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        self.simulation.withhold(nodes);
    }

    /// Where pods go when these nodes are taken away, if all have places with at most so many new nodes. The next question finds the nodes there again.
    pub(super) fn without(&mut self, set: &[Candidate], most_new: usize) -> Option<Moved> {
        self.what_ifs += 1;
        let moving = set.iter();
        let pods: Vec<PodId> = moving
            .flat_map(|candidate| candidate.moving(self.snapshot).into_owned())
            .collect();
        let fork = self.simulation.fork();
        for candidate in set {
            self.simulation.remove_node(candidate.node);
        }
        let placements = self.places(&pods, &fork, most_new);
        self.simulation.revert(fork);
        let placements = placements?;
        Some(Moved { placements, pods })
    }

    /// Which of these nodes can go together without any new node: each that can is gone for those after it. The next question finds all of them there again.
    pub(super) fn one_after_another<'c>(
        &mut self,
        candidates: &'c [Candidate],
    ) -> Vec<(&'c Candidate, Moved)> {
        let whole = self.simulation.fork();
        let mut going = Vec::new();
        for candidate in candidates {
            self.what_ifs += 1;
            let pods = candidate.moving(self.snapshot).into_owned();
            // Pods of earlier nodes that were to come here go on with its own.
            let mut all = self.simulation.placed_on_since(&whole, candidate.node);
            all.extend_from_slice(&pods);
            let step = self.simulation.fork();
            self.simulation.remove_node(candidate.node);
            match self.places(&all, &step, 0) {
                Some(placements) => {
                    self.simulation.commit(step);
                    going.push((candidate, Moved { placements, pods }));
                }
                None => self.simulation.revert(step),
            }
        }
        self.simulation.revert(whole);
        going
    }

    fn places(&mut self, pods: &[PodId], fork: &Fork, most_new: usize) -> Option<Placements> {
        let is_stuck = |pod: &PodId| self.snapshot.pod(*pod).problem().is_some();
        if pods.iter().any(is_stuck) {
            return None;
        }
        let fits = self.simulation.fits_within(pods, fork, most_new);
        fits.then(|| self.simulation.packing_since(fork).placements)
    }
}

impl Moved {
    /// The pods of the nodes, each with its place.
    pub(super) fn moves(&self, snapshot: &Snapshot) -> Vec<Move> {
        let mut to: BTreeMap<PodId, Destination> = BTreeMap::new();
        for (node, placed) in &self.placements.existing {
            let view = snapshot.node(*node);
            for pod in placed {
                let destination = Destination::Node {
                    name: view.name.clone(),
                    provider_id: view.provider_id.clone(),
                };
                to.insert(*pod, destination);
            }
        }
        for (index, claim) in self.placements.claims.iter().enumerate() {
            for pod in &claim.pods {
                to.insert(*pod, Destination::Replacement(index));
            }
        }
        let moved = self.pods.iter().filter_map(|pod| {
            let view = snapshot.pod(*pod);
            Some(Move {
                pod: view.key(),
                uid: view.uid().to_owned(),
                from: snapshot.node(view.node?).name.clone(),
                to: to.get(pod)?.clone(),
            })
        });
        moved.collect()
    }
}

/// The command that takes these nodes away.
pub(super) fn command(
    snapshot: &Snapshot,
    method: Method,
    set: &[Candidate],
    replacements: Vec<Replacement>,
    moves: Vec<Move>,
) -> Command {
    let nodes = set
        .iter()
        .map(|candidate| CommandNode::of(snapshot, candidate.node));
    let prices = set.iter().map(|candidate| candidate.price);
    let new_prices = replacements.iter().map(|replacement| replacement.price);
    Command {
        method,
        nodes: nodes.collect(),
        price_before: prices.sum(),
        price_after: new_prices.sum::<Price>(),
        replacements,
        moves: Arc::new(moves),
    }
}
