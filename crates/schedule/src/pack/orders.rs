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

/// Pods that exist without a place, virtual ones without one, price, number of claims: the lowest result counts. Room is kept of what pods that exist leave
/// over, so that no number of virtual pods makes up for one of them (P-186).
type Rank = (usize, usize, Price, usize);

/// The result of one order.
struct Decided {
    order: ClaimOrder,
    rank: Rank,
    claims: Vec<Claim>,
    placed: Vec<Placement>,
    unplaced: Vec<UnplacedPod>,
}

/// Packs in each order of claims and takes the result that places the most pods at the lowest price, pods that exist before virtual ones; of equal ones the
/// first.
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
        let best = engine.cheapest_of(&request.pods, orders);
        best.map_or_else(Packing::default, |best| engine.finish(best))
    }

    /// The same where there are too many virtual pods for some `orders_of_real`, which the pods that exist are few enough for: that of them which is best for these
    /// alone is tried as well, for them alone. Room is kept in upstream's order then, so that the number of virtual pods costs no more than in that.
    pub fn pack_cheapest_beside_room(
        self,
        request: &PackRequest,
        orders: &[ClaimOrder],
        orders_of_real: &[ClaimOrder],
    ) -> Packing {
        let mut engine = self.starting(request);
        let snapshot = engine.tables.snapshot;
        let mut real = request.pods.clone();
        real.retain(|pod| !snapshot.pod(*pod).is_virtual);
        let own = engine.cheapest_of(&real, orders_of_real).map(|best| best.order);
        let mut best = engine.cheapest_of(&request.pods, orders);
        if let Some(own) = own.filter(|own| !orders.contains(own)) {
            engine.room_order = Some(ClaimOrder::default());
            let other = engine.cheapest_of(&request.pods, &[own]);
            engine.room_order = None;
            // Of equal ones the first counts.
            best = best.into_iter().chain(other).min_by_key(|decided| decided.rank);
        }
        best.map_or_else(Packing::default, |best| engine.finish(best))
    }
}

impl Engine<'_> {
    /// The result that counts of those of these orders, each of which is undone.
    fn cheapest_of(&mut self, pods: &[PodId], orders: &[ClaimOrder]) -> Option<Decided> {
        let mut best: Option<Decided> = None;
        for order in orders {
            self.claim_order = *order;
            #[cfg(debug_assertions)]
            let before = self.fingerprint_if_small();
            let checkpoint = self.fork();
            self.place(pods);
            let rank = self.rank(checkpoint);
            if best.as_ref().is_none_or(|best| rank < best.rank) {
                best = Some(self.decided(checkpoint, *order, rank));
            }
            self.revert(checkpoint);
            #[cfg(debug_assertions)]
            self.assert_equals(before.as_ref());
        }
        best
    }

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
            let (real, room) = self.count_left(packing.unplaced.iter().map(|left| left.pod));
            return (real, room, price, claims.len());
        }
        let claims = checkpoint.claims..self.claim_count();
        let count = claims.len();
        let price = claims.map(|claim| self.claim_price(claim)).sum();
        let (real, room) = self.count_left(self.unplaced.iter().map(|left| left.pod));
        (real, room, price, count)
    }

    /// How many of the pods left over exist, and how many are virtual. Where no pod is virtual none is looked at.
    fn count_left(&self, left: impl ExactSizeIterator<Item = PodId>) -> (usize, usize) {
        let (snapshot, count) = (self.tables.snapshot, left.len());
        if count == 0 || !snapshot.classes.has_virtual() {
            return (count, 0);
        }
        let room = left.filter(|pod| snapshot.pod(*pod).is_virtual).count();
        (count - room, room)
    }

    fn decided(&mut self, checkpoint: Checkpoint, order: ClaimOrder, rank: Rank) -> Decided {
        let reasons = self.reasons().into_iter();
        Decided {
            order,
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
