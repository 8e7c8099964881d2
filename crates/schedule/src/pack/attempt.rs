//! One attempt to place one pod: existing nodes, then planned NodeClaims, then a new one (P §6.3, §6.4).

use super::{ClaimOrder, Engine, NoPlace};
use crate::ledger::Checkpoint;
use crate::tables::VariantId;
use spokeshave_model::snapshot::{NodeId, PodId};
use spokeshave_model::vector::ResourceVector;
use std::ops::Range;

/// How many words of nodes are first looked at for a pod that topology binds; the next time twice as many. Most pods find a place among the first, and
/// what topology leaves of the others need not be known.
const FIRST_WORDS: usize = 4;

impl Engine<'_> {
    /// One attempt; the error says whether a later placement may help. Who looks further has asked all existing nodes already.
    pub(super) fn attempt(&mut self, pod: PodId, variant: VariantId) -> Result<(), NoPlace> {
        let bound = !self.tables[variant].is_free;
        if bound {
            self.find_eligible(variant);
        }
        if !self.looks_further {
            if let Some(node) = self.find_node(pod, variant, bound) {
                self.ledgers.put_on_node(pod, variant, node, &mut self.tables);
                return Ok(());
            }
            self.note_in_vain(pod);
        }
        if self.claim_order == ClaimOrder::LeastCost {
            return self.try_least_cost(pod, variant, bound);
        }
        if self.try_claims(pod, variant, bound) {
            return Ok(());
        }
        if self.is_in_vain_to_open(variant) {
            return Err(NoPlace::ForGood);
        }
        self.try_new_claim(pod, variant)
    }

    /// Whether as many claims are planned as may be, and nothing that comes later can help a pod that no node and none of them takes: room only gets less.
    fn is_in_vain_to_open(&mut self, variant: VariantId) -> bool {
        if self.most_claims.is_none_or(|most| self.claim_count() < most) {
            return false;
        }
        let known = &self.tables[variant];
        let class = known.class;
        let is_plain = known.is_free && known.volume_sets.is_empty();
        is_plain && self.ledgers.budget().reservations().is_empty() && self.variant(class, 1).is_none()
    }

    /// Works out what topology leaves to a pod: claims now, nodes as they are looked at.
    pub(super) fn find_eligible(&mut self, variant: VariantId) {
        let claims = &mut self.scratch.claims;
        claims.fill(self.ledgers.claims().count());
        let tables = &mut self.tables;
        let variant = &tables.variants[variant];
        self.scratch.choice.prepare(
            variant.class,
            &variant.bindings,
            variant.strict,
            (&mut tables.topology, self.ledgers.counts()),
            &tables.algebra,
            claims,
        );
    }

    /// The first existing node, in order, that takes the pod. O(nodes looked at ÷ 64 × groups), plus the nodes tried.
    fn find_node(&mut self, pod: PodId, variant: VariantId, bound: bool) -> Option<NodeId> {
        let total = self.tables[variant].nodes.word_count();
        let request = self.tables.snapshot.pod(pod).request;
        let mut start = self.ledgers.skip_full_words(request, &self.tables);
        let mut length = if bound { FIRST_WORDS } else { total };
        while start < total {
            let words = start..total.min(start + length);
            if bound {
                self.find_eligible_nodes(variant, words.clone());
            }
            let found = self.find_node_among(pod, variant, bound, words, u64::MAX);
            if found.is_some() {
                return found;
            }
            start += length;
            length *= 2;
        }
        None
    }

    /// Whether some existing node that takes pods has room for this one; a pod that finds none has looked in vain.
    fn has_room(&mut self, pod: PodId) -> bool {
        let request = self.tables.snapshot.pod(pod).request;
        let needs = &self.tables.snapshot.requests[request.index()];
        let total = self.ledgers.rooms().usable().word_count();
        for position in self.ledgers.skip_full_words(request, &self.tables)..total {
            let word = self.ledgers.rooms().open_word(request, position);
            let found = self.ledgers.first_with_room(request, needs, position, word);
            if found.is_some() {
                return true;
            }
        }
        self.note_in_vain(pod);
        false
    }

    /// Whether there may be room for pods, the largest first, on nodes and on the claims planned since the checkpoint: those that no node has room for have to
    /// share what the claims can hold. Pods after the first that has room on a node are not looked at.
    pub(crate) fn may_have_room(&mut self, pods: &[PodId], checkpoint: Checkpoint) -> bool {
        let snapshot = self.tables.snapshot;
        let mut left = ResourceVector::zero(snapshot.resources.width());
        for claim in &self.ledgers.claims().all()[checkpoint.claims..] {
            for (left, headroom) in left.0.iter_mut().zip(&claim.headroom.0) {
                *left = left.saturating_add((*headroom).max(0));
            }
        }
        let mut without = None;
        for pod in pods {
            let request = snapshot.pod(*pod).request;
            if without != Some(request) && self.has_room(*pod) {
                return true;
            }
            without = Some(request);
            let needs = snapshot.requests(*pod);
            if !needs.fits(&left) {
                return false;
            }
            for (left, needs) in left.0.iter_mut().zip(&needs.0) {
                // A sum beyond all numbers is as good as endless: what it falls short of the truth is not known.
                if *left != i64::MAX {
                    *left = left.saturating_sub(*needs);
                }
            }
        }
        true
    }

    /// Which nodes topology leaves to a pod, in some words.
    pub(super) fn find_eligible_nodes(&mut self, variant: VariantId, words: Range<usize>) {
        let variant = &self.tables[variant];
        let nodes = &mut self.scratch.nodes;
        if nodes.word_count() != variant.nodes.word_count() {
            nodes.reset(self.tables.snapshot.nodes.len());
        }
        nodes.copy_common_words(&variant.nodes, self.ledgers.rooms().usable(), words.clone());
        let topology = (&self.tables.topology, self.ledgers.counts());
        self.scratch.choice.keep_nodes(topology, words, nodes);
    }

    /// The first node that takes the pod, among those of some words, and of each word those of the mask.
    pub(super) fn find_node_among(
        &mut self,
        pod: PodId,
        variant: VariantId,
        bound: bool,
        words: Range<usize>,
        mask: u64,
    ) -> Option<NodeId> {
        let tables = &self.tables;
        let request = tables.snapshot.pod(pod).request;
        let needs = &tables.snapshot.requests[request.index()];
        let variant = &tables[variant];
        let candidates = if bound {
            &self.scratch.nodes
        } else {
            &*variant.nodes
        };
        let volumes = tables.attachments.of_pod(pod);
        for position in words {
            let mut word =
                candidates.word(position) & self.ledgers.rooms().open_word(request, position) & mask;
            while word != 0 {
                let first = self.ledgers.first_with_room(request, needs, position, word);
                let tried = first.map_or(word, |first| word & u64::MAX >> (63 - first));
                self.statistics.nodes_tried += u64::from(tried.count_ones());
                word &= !tried;
                let Some(bit) = first else { break };
                let index = position * 64 + bit;
                let (node, rooms) = (NodeId::from(index), self.ledgers.rooms());
                if !rooms.has_ports_free(node, &variant.ports, &tables.numbers) {
                    continue;
                }
                if let Some(volumes) = volumes
                    && !rooms.can_attach(node, volumes, &tables.attachments, &tables.numbers)
                {
                    self.scratch.met_attach_limit = true;
                    continue;
                }
                return Some(node);
            }
        }
        None
    }
}
