//! Pods that name the node that they were planned on go there first, as the scheduler will have it, while it can still take them (P §4).
//!
//! A name that a scheduler has taken away since counts as well: the plan does not change because of that. One that it cannot take stands in the queue like any other. Which node a pod names is not decided here.

use super::Engine;
use crate::tables::VariantId;
use rustc_hash::FxHashMap;
use spokeshave_model::planned_node::said;
use spokeshave_model::snapshot::{NodeId, PodId};
use std::collections::VecDeque;

impl Engine<'_> {
    /// Takes the pods out of the queue that have their place. O(pods), and O(nodes) once where one names a node.
    pub(super) fn place_nominated(&mut self, waiting: &mut VecDeque<(PodId, usize)>) {
        let snapshot = self.tables.snapshot;
        let named = |pod: PodId| {
            let view = snapshot.pod(pod);
            // Who has a node already names none; objects are only read of those who wait.
            let waits = view.provisionable && view.node.is_none();
            waits.then(|| said(&view.object)).flatten()
        };
        if waiting.iter().all(|(pod, _)| named(*pod).is_none()) {
            return;
        }
        let nodes = snapshot.nodes.iter().enumerate();
        let nodes: FxHashMap<&str, NodeId> = nodes
            .filter_map(|(index, view)| Some((view.node_name()?, NodeId::from(index))))
            .collect();
        waiting.retain(|(pod, _)| {
            let node = named(*pod).and_then(|(name, _)| nodes.get(name).copied());
            !node.is_some_and(|node| self.place_on(*pod, node))
        });
    }

    /// Puts a pod on a node if that takes it, with as many of its preferences as can be kept there.
    pub(crate) fn place_on(&mut self, pod: PodId, node: NodeId) -> bool {
        let class = self.tables.snapshot.pod(pod).class;
        if self.tables.snapshot.classes[class.index()].uses_resource_claims {
            return false;
        }
        let mut step = 0;
        while let Some(variant) = self.variant(class, step) {
            if self.takes(pod, variant, node) {
                self.ledgers.put_on_node(pod, variant, node, &mut self.tables);
                return true;
            }
            step += 1;
        }
        false
    }

    /// Whether a node takes a pod as things are.
    fn takes(&mut self, pod: PodId, variant: VariantId, node: NodeId) -> bool {
        self.statistics.attempts += 1;
        let words = node.index() / 64..node.index() / 64 + 1;
        let bound = !self.tables[variant].is_free;
        if bound {
            self.find_eligible(variant);
            self.find_eligible_nodes(variant, words.clone());
        }
        let only = 1 << (node.index() % 64);
        self.find_node_among(pod, variant, bound, words, only).is_some()
    }
}
