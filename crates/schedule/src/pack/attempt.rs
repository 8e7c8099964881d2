//! One attempt to place one pod: existing nodes, then planned NodeClaims, then a new one (P §6.3, §6.4).

use super::{ClaimOrder, Engine, Miss, setup};
use crate::bits::ones_of;
use spokeshave_model::snapshot::{ClassId, NodeId, PodId};
use std::ops::Range;

/// How many words of nodes are first looked at for a pod that topology binds; the next time twice as many. Most pods find a place among the first, and
/// what topology leaves of the others need not be known.
const FIRST_WORDS: usize = 4;

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

    /// Works out what topology leaves to a pod: claims now, nodes as they are looked at.
    fn find_eligible(&mut self, class: ClassId, step: usize) {
        let mut claims = std::mem::take(&mut self.scratch.claims);
        let variant = &self.classes[class.index()].variants[step];
        claims.fill(self.live);
        self.topology.prepare(
            class,
            &variant.bindings,
            variant.strict,
            &self.algebra,
            &mut claims,
        );
        self.scratch.claims = claims;
    }

    /// The first existing node, in order, that takes the pod. O(nodes looked at ÷ 64 × groups), plus the nodes tried.
    fn find_node(&mut self, pod: PodId, class: ClassId, step: usize, bound: bool) -> Option<NodeId> {
        let total = self.classes[class.index()].variants[step].nodes.word_count();
        let mut start = self.skip_full_words(pod);
        let mut length = if bound { FIRST_WORDS } else { total };
        while start < total {
            let words = start..total.min(start + length);
            if bound {
                self.find_eligible_nodes(class, step, words.clone());
            }
            let found = self.find_node_among(pod, class, step, bound, words);
            if found.is_some() {
                return found;
            }
            start += length;
            length *= 2;
        }
        None
    }

    /// How many words of nodes need not be looked at, because every node there is too small for the pod, and stays so. Amortised O(1).
    fn skip_full_words(&mut self, pod: PodId) -> usize {
        let request = self.snapshot.pod(pod).request.index();
        let too_small = &self.nodes_too_small[request];
        let full = &mut self.full_words[request];
        if self.too_small_for_now == 0 {
            let total = self.usable_at_first.word_count();
            let is_full = |word: usize| self.usable_at_first.word(word) & !too_small.word(word) == 0;
            while (*full as usize) < total && is_full(*full as usize) {
                *full += 1;
            }
        }
        *full as usize
    }

    /// Which nodes topology leaves to a pod, in some words.
    fn find_eligible_nodes(&mut self, class: ClassId, step: usize, words: Range<usize>) {
        let variant = &self.classes[class.index()].variants[step];
        let nodes = &mut self.scratch.nodes;
        if nodes.word_count() != variant.nodes.word_count() {
            nodes.reset(self.snapshot.nodes.len());
        }
        nodes.copy_common_words(&variant.nodes, &self.usable, words.clone());
        self.topology.keep_nodes(words, nodes);
    }

    fn find_node_among(
        &mut self,
        pod: PodId,
        class: ClassId,
        step: usize,
        bound: bool,
        words: Range<usize>,
    ) -> Option<NodeId> {
        let request = self.snapshot.pod(pod).request.index();
        let needs = &self.snapshot.requests[request].0;
        let variant = &self.classes[class.index()].variants[step];
        let candidates = if bound {
            &self.scratch.nodes
        } else {
            &variant.nodes
        };
        let volumes = self.pod_attachments.get(&pod);
        for position in words {
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
                        self.too_small_for_now += 1;
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
