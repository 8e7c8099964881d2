//! Questions about one pod and one existing node, for explanations.

use super::Engine;
use crate::bits::Bits;
use spokeshave_model::reason::TopologyKind;
use spokeshave_model::snapshot::{NodeId, PodId};

impl Engine<'_> {
    /// The first resource of which a node has too little, and how much is missing.
    pub(crate) fn shortage(&self, pod: PodId, node: NodeId) -> Option<(usize, i64)> {
        let free = self.ledgers.rooms().free(node.index());
        let needs = &self.tables.snapshot.requests(pod).0;
        let mut short = needs
            .iter()
            .zip(free)
            .map(|(need, free)| need.saturating_sub(*free));
        if let Some(position) = short.position(|short| short > 0) {
            return Some((position, needs[position].saturating_sub(free[position])));
        }
        // Nothing fits where capacity is overdrawn (P §3).
        let overdrawn = free.iter().position(|free| *free < 0)?;
        Some((overdrawn, free[overdrawn].saturating_neg()))
    }

    /// Whether the node's attach limits admit the pod's volumes.
    pub(crate) fn can_attach(&self, pod: PodId, node: NodeId) -> bool {
        let (rooms, attachments) = (self.ledgers.rooms(), &self.tables.attachments);
        let volumes = attachments.of_pod(pod);
        volumes.is_none_or(|volumes| rooms.can_attach(node, volumes, attachments, &self.tables.numbers))
    }

    /// Whether no host port of the pod is in use on the node.
    pub(crate) fn has_ports_free(&mut self, pod: PodId, node: NodeId) -> bool {
        let variant = self.variant(self.tables.snapshot.pod(pod).class, 0);
        variant.is_none_or(|variant| {
            let ports = &self.tables[variant].ports;
            self.ledgers
                .rooms()
                .has_ports_free(node, ports, &self.tables.numbers)
        })
    }

    /// The first rule of topology that keeps the pod, with all its preferences given up, off the node.
    pub(crate) fn topology_obstacle(&mut self, pod: PodId, node: NodeId) -> Option<(TopologyKind, String)> {
        let class = self.tables.snapshot.pod(pod).class;
        let variant = self.most_relaxed(class)?;
        let tables = &mut self.tables;
        let variant = &tables.variants[variant];
        let only = Bits::of(tables.snapshot.nodes.len(), [node.index()]);
        self.scratch.choice.first_refusal(
            class,
            &variant.bindings,
            variant.strict,
            &only,
            (&mut tables.topology, self.ledgers.counts()),
            &tables.algebra,
        )
    }
}
