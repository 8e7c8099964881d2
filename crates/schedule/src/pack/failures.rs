//! Which attempts failed for good, so that each (request, claim) and (variant, claim) pair is found wanting at most once.
//!
//! It is no state: whatever is remembered holds as of an epoch of the ledgers, and is forgotten when another begins.

use crate::bits::Bits;
use crate::tables::VariantId;
use spokeshave_model::snapshot::RequestId;

/// What is known as of an epoch.
#[derive(Clone, Debug, Default)]
struct Known<T> {
    what: T,
    epoch: u64,
}

/// What is known of a variant.
#[derive(Clone, Debug, Default)]
struct OfVariant {
    /// Claims that can no longer take it.
    claims: Bits,
    /// Requests for which no template can open a claim any more.
    unopenable: Vec<RequestId>,
}

/// Failures that stay.
#[derive(Clone, Debug)]
pub(super) struct Failures {
    /// Claims that are too full, by request.
    requests: Vec<Known<Bits>>,
    variants: Vec<Known<OfVariant>>,
}

impl Failures {
    pub(super) fn new(requests: usize) -> Self {
        Failures {
            requests: vec![Known::default(); requests],
            variants: Vec::new(),
        }
    }

    /// Forgets what something may have undone since. Comes before every question about a variant and a request.
    #[inline]
    pub(super) fn refresh(&mut self, variant: VariantId, request: RequestId, epoch: u64) {
        if self.variants.len() <= variant.index() {
            self.variants.resize_with(variant.index() + 1, Known::default);
        }
        let known = &mut self.variants[variant.index()];
        if known.epoch != epoch {
            known.epoch = epoch;
            known.what.claims.clear();
            known.what.unopenable.clear();
        }
        let known = &mut self.requests[request.index()];
        if known.epoch != epoch {
            known.epoch = epoch;
            known.what.clear();
        }
    }

    /// 64 claims: those that cannot take a pod.
    #[inline]
    pub(super) fn word(&self, variant: VariantId, request: RequestId, position: usize) -> u64 {
        self.variants[variant.index()].what.claims.word(position)
            | self.requests[request.index()].what.word(position)
    }

    /// Whether a claim cannot take a pod.
    #[inline]
    pub(super) fn contains(&self, variant: VariantId, request: RequestId, claim: usize) -> bool {
        self.variants[variant.index()].what.claims.contains(claim)
            || self.requests[request.index()].what.contains(claim)
    }

    /// A claim has too little left for a request.
    #[inline]
    pub(super) fn is_too_full(&mut self, request: RequestId, claim: usize) {
        self.requests[request.index()].what.insert(claim);
    }

    /// A claim refuses a variant, whatever it requests.
    #[inline]
    pub(super) fn refuses(&mut self, variant: VariantId, claim: usize) {
        self.variants[variant.index()].what.claims.insert(claim);
    }

    /// Whether no template can open a claim.
    #[inline]
    pub(super) fn is_unopenable(&self, variant: VariantId, request: RequestId) -> bool {
        self.variants[variant.index()].what.unopenable.contains(&request)
    }

    /// No template can open a claim.
    #[inline]
    pub(super) fn cannot_open(&mut self, variant: VariantId, request: RequestId) {
        self.variants[variant.index()].what.unopenable.push(request);
    }

    /// Forgets what is known of a variant and those after it: their numbers will mean others.
    pub(super) fn forget_from(&mut self, variant: VariantId) {
        self.variants.truncate(variant.index());
    }
}
