//! Questions about one pod and one existing node, for explanations.

use super::{Engine, setup};
use crate::bits::Bits;
use spokeshave_model::reason::TopologyKind;
use spokeshave_model::snapshot::{NodeId, PodId};

impl Engine<'_> {
    /// The first resource of which a node has too little, and how much is missing.
    pub(crate) fn shortage(&self, pod: PodId, node: NodeId) -> Option<(usize, i64)> {
        let free = &self.free[node.index() * self.width..(node.index() + 1) * self.width];
        let needs = &self.snapshot.requests(pod).0;
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
        let volumes = self.pod_attachments.get(&pod).zip(self.node_limits.get(&node));
        volumes.is_none_or(|(volumes, limits)| {
            let attached = self.node_attachments.get(&node).map_or(&[][..], Vec::as_slice);
            setup::attachable(limits, attached, volumes, &self.numbers)
        })
    }

    /// Whether no host port of the pod is in use on the node.
    pub(crate) fn has_ports_free(&mut self, pod: PodId, node: NodeId) -> bool {
        let class = self.snapshot.pod(pod).class;
        self.variant(class, 0);
        let ports = &self.classes[class.index()].variants[0].ports;
        let taken = self.node_ports.get(&node).map_or(&[][..], Vec::as_slice);
        !self.numbers.conflict(taken, ports)
    }

    /// The first rule of topology that keeps the pod, with all its preferences given up, off the node.
    pub(crate) fn topology_obstacle(&mut self, pod: PodId, node: NodeId) -> Option<(TopologyKind, String)> {
        let class = self.snapshot.pod(pod).class;
        let mut step = 0;
        while self.variant(class, step + 1) {
            step += 1;
        }
        let variant = &self.classes[class.index()].variants[step];
        let only = Bits::of(self.snapshot.nodes.len(), [node.index()]);
        self.topology
            .first_refusal(class, &variant.bindings, variant.strict, &only, &self.algebra)
    }
}
