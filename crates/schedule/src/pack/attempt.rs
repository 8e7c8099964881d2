//! One attempt to place one pod: existing nodes, then planned NodeClaims, then a new one (P §6.3, §6.4).

use super::{ClaimOrder, Engine, Miss, setup};
use crate::bits::ones_of;
use spokeshave_model::snapshot::{ClassId, NodeId, PodId};

impl Engine<'_> {
    /// One attempt; the error says whether a later placement may help.
    pub(super) fn attempt(&mut self, pod: PodId, class: ClassId, step: usize) -> Result<(), Miss> {
        let bound = !self.classes[class.index()].variants[step].is_free;
        if bound {
            self.find_eligible(class, step);
        }
        if let Some(node) = self.find_node(pod, class, step, bound) {
            self.put_on_node(pod, class, step, node);
            return Ok(());
        }
        if self.claim_order == ClaimOrder::LeastCost {
            return self.try_least_cost(pod, class, step, bound);
        }
        if self.try_claims(pod, class, step, bound) {
            return Ok(());
        }
        self.try_new_claim(pod, class, step)
    }

    /// Which nodes and claims topology leaves to a pod.
    fn find_eligible(&mut self, class: ClassId, step: usize) {
        let mut nodes = std::mem::take(&mut self.scratch.nodes);
        let mut claims = std::mem::take(&mut self.scratch.claims);
        let variant = &self.classes[class.index()].variants[step];
        nodes.copy_from(&variant.nodes);
        nodes.intersect(&self.usable);
        claims.fill(self.live);
        self.topology.keep_eligible(
            class,
            &variant.bindings,
            variant.strict,
            &self.algebra,
            &mut nodes,
            &mut claims,
        );
        self.scratch.nodes = nodes;
        self.scratch.claims = claims;
    }

    /// The first existing node, in order, that takes the pod. O(nodes ÷ 64), plus the nodes looked at.
    fn find_node(&mut self, pod: PodId, class: ClassId, step: usize, bound: bool) -> Option<NodeId> {
        let request = self.snapshot.pod(pod).request.index();
        let needs = &self.snapshot.requests[request].0;
        let variant = &self.classes[class.index()].variants[step];
        let candidates = if bound {
            &self.scratch.nodes
        } else {
            &variant.nodes
        };
        let volumes = self.pod_attachments.get(&pod);
        for position in 0..candidates.word_count() {
            let word = candidates.word(position) & self.usable.word(position);
            let word = word & !self.nodes_too_small[request].word(position);
            for bit in ones_of(word) {
                let index = position * 64 + bit;
                self.statistics.nodes_tried += 1;
                let free = &self.free[index * self.width..(index + 1) * self.width];
                if needs
                    .iter()
                    .zip(free)
                    .any(|(need, free)| need > free || *free < 0)
                {
                    // Free capacity only falls, so this stays so until it is taken back.
                    self.nodes_too_small[request].insert(index);
                    let settled = &self.settled_free[index * self.width..(index + 1) * self.width];
                    let for_good = needs
                        .iter()
                        .zip(settled)
                        .any(|(need, free)| need > free || *free < 0);
                    if self.forks > 0 && !for_good {
                        self.log.push(super::Undo::TooSmall {
                            request: request as u32,
                            node: index as u32,
                        });
                    }
                    continue;
                }
                let node = NodeId::from(index);
                let variant = &self.classes[class.index()].variants[step];
                if !variant.ports.is_empty()
                    && let Some(taken) = self.node_ports.get(&node)
                    && self.numbers.conflict(taken, &variant.ports)
                {
                    continue;
                }
                if let Some(volumes) = volumes
                    && let Some(limits) = self.node_limits.get(&node)
                {
                    let attached = self.node_attachments.get(&node).map_or(&[][..], Vec::as_slice);
                    if !setup::attachable(limits, attached, volumes, &self.numbers) {
                        continue;
                    }
                }
                return Some(node);
            }
        }
        None
    }
}
