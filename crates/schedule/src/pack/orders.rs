//! The same pods in several orders of planned claims, of which the cheapest result counts.
//!
//! What was learnt about pods, types and labels is shared, each order is rolled back before the next, and only the result that counts is worked out
//! down to launches: O(orders × placing).

use super::{Engine, NoPlace, PackRequest, Packer};
use crate::ledger::{Checkpoint, Claim, Placement, Target};
use crate::options::PackOptions;
use crate::outcome::{Packing, UnplacedPod};
use crate::tables::VariantId;
use spokeshave_model::Price;
use spokeshave_model::snapshot::{PodId, Snapshot};

/// In which order a pod is offered to the NodeClaims that are planned already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimOrder {
    /// Fewest pods first, of these the oldest (P-083).
    #[default]
    FewestPods,
    /// Fewest pods first; of those with one pod the oldest, of others the one that got its last pod last: as an insertion sort of the claims
    /// after each pod leaves them, which is what upstream's sort does up to twelve claims.
    FewestPodsGrownLast,
    /// Fewest pods first, of these the newest.
    FewestPodsNewest,
    /// Most pods first, of these the oldest.
    MostPods,
    /// Most pods first, of these the newest.
    MostPodsNewest,
    /// Where the pod adds least to the price; to a new one where that is cheaper still. Looks at every claim for every pod.
    LeastCost,
}

impl ClaimOrder {
    /// The orders that look no further than the first claim that takes a pod, upstream's first.
    pub const FIRST_FIT: [ClaimOrder; 4] = [
        ClaimOrder::FewestPods,
        ClaimOrder::FewestPodsNewest,
        ClaimOrder::MostPods,
        ClaimOrder::MostPodsNewest,
    ];

    /// All orders, upstream's first.
    pub const ALL: [ClaimOrder; 6] = [
        ClaimOrder::FewestPods,
        ClaimOrder::FewestPodsGrownLast,
        ClaimOrder::FewestPodsNewest,
        ClaimOrder::MostPods,
        ClaimOrder::MostPodsNewest,
        ClaimOrder::LeastCost,
    ];

    pub(crate) fn is_newest_first(self) -> bool {
        matches!(self, ClaimOrder::FewestPodsNewest | ClaimOrder::MostPodsNewest)
    }

    pub(crate) fn is_fullest_first(self) -> bool {
        matches!(self, ClaimOrder::MostPods | ClaimOrder::MostPodsNewest)
    }
}

/// Pods without a place, price, number of claims: the lowest result counts.
type Rank = (usize, Price, usize);

/// The result of one order.
struct Decided {
    rank: Rank,
    claims: Vec<Claim>,
    placed: Vec<Placement>,
    unplaced: Vec<UnplacedPod>,
}

/// Packs in each order of claims and takes the result that places the most pods at the lowest price; of equal ones the first.
pub fn pack_cheapest(
    snapshot: &Snapshot,
    request: &PackRequest,
    options: &PackOptions,
    orders: &[ClaimOrder],
) -> Packing {
    Packer::new(snapshot, options).pack_cheapest(request, orders)
}

impl Packer<'_> {
    /// Packs in each order of claims, as the function of this name does.
    pub fn pack_cheapest(self, request: &PackRequest, orders: &[ClaimOrder]) -> Packing {
        let mut engine = self.starting(request);
        let mut best: Option<Decided> = None;
        for order in orders {
            engine.claim_order = *order;
            #[cfg(debug_assertions)]
            let before = engine.fingerprint_if_small();
            let checkpoint = engine.fork();
            engine.place(&request.pods);
            let rank = engine.rank(checkpoint);
            if best.as_ref().is_none_or(|best| rank < best.rank) {
                best = Some(engine.decided(checkpoint, rank));
            }
            engine.revert(checkpoint);
            #[cfg(debug_assertions)]
            engine.assert_equals(before.as_ref());
        }
        best.map_or_else(Packing::default, |best| engine.finish(best))
    }
}

impl Engine<'_> {
    /// Puts the pod where it adds least to the price: on a planned claim, or on a new one. O(claims that may take it).
    pub(super) fn try_least_cost(
        &mut self,
        pod: PodId,
        variant: VariantId,
        bound: bool,
    ) -> Result<(), NoPlace> {
        let request = self.tables.snapshot.pod(pod).request;
        self.failures.refresh(variant, request, self.ledgers.epoch());
        let mut best: Option<(Price, usize)> = None;
        for index in self.ledgers.claims().first_open()..self.claim_count() {
            let is_out = self.failures.contains(variant, request, index)
                || (bound && !self.scratch.claims.contains(index));
            if is_out {
                continue;
            }
            self.statistics.claims_tried += 1;
            if let Some(set) = self.accepts(pod, variant, index) {
                let before = self.claim_price(index);
                let types = std::mem::take(&mut self.scratch.types);
                let after = self.cheapest(self.ledgers.claims().get(index).template, set, &types);
                self.scratch.types = types;
                let more = after.saturating_sub(before);
                if best.is_none_or(|(least, _)| more < least) {
                    best = Some((more, index));
                }
            }
        }
        let Some((more, index)) = best else {
            return self.try_new_claim(pod, variant);
        };
        let is_dearer = |price: Price| price < more;
        if more > Price::ZERO
            && self.new_claim_price(pod, variant).is_some_and(is_dearer)
            && self.try_new_claim(pod, variant).is_ok()
        {
            return Ok(());
        }
        match self.accepts(pod, variant, index) {
            Some(set) => {
                self.put_on_claim(pod, variant, index, set);
                Ok(())
            }
            None => self.try_new_claim(pod, variant),
        }
    }

    /// What the claim that would be opened for the pod costs at its cheapest.
    fn new_claim_price(&mut self, pod: PodId, variant: VariantId) -> Option<Price> {
        for template in 0..self.tables.templates.len() {
            if let Ok(opening) = self.open_on(pod, variant, template) {
                let types = std::mem::take(&mut self.scratch.types);
                let price = self.cheapest(template, opening.set(), &types);
                self.scratch.types = types;
                return Some(price);
            }
        }
        None
    }

    fn rank(&mut self, checkpoint: Checkpoint) -> Rank {
        if self.may_be_truncated(checkpoint) {
            let packing = self.packing(checkpoint);
            let claims = &packing.placements.claims;
            let cheapest = claims.iter().filter_map(|claim| claim.launches.first());
            let price = cheapest.map(|launch| launch.price).sum();
            return (packing.unplaced.len(), price, claims.len());
        }
        let claims = checkpoint.claims..self.claim_count();
        let count = claims.len();
        let price = claims.map(|claim| self.claim_price(claim)).sum();
        (self.unplaced.len(), price, count)
    }

    fn decided(&mut self, checkpoint: Checkpoint, rank: Rank) -> Decided {
        let reasons = self.reasons().into_iter();
        Decided {
            rank,
            claims: self.ledgers.claims().all().to_vec(),
            placed: self.ledgers.placed()[checkpoint.placed..].to_vec(),
            unplaced: reasons.map(|(pod, reason)| UnplacedPod { pod, reason }).collect(),
        }
    }

    /// Works a result out. The engine has nothing else to do after this.
    fn finish(&mut self, decided: Decided) -> Packing {
        debug_assert!(
            decided
                .placed
                .iter()
                .all(|placed| !matches!(placed.on, Target::Claim(claim) if claim >= decided.claims.len()))
        );
        self.ledgers.replace(decided.claims, decided.placed);
        self.packing_with(Checkpoint::default(), decided.unplaced)
    }
}
