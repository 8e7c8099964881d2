//! Counts per host, for rules whose domains are hosts: only hosts that count anything are kept, and which of them a rule closes is always
//! at hand as a set.

use super::Kind;
use crate::bits::Bits;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::ops::Range;

/// Existing nodes or planned claims.
#[derive(Clone, Debug, Default)]
pub(super) struct HostSet {
    /// Hosts with a count.
    occupied: Bits,
    /// Hosts above the skew that a spread allows, for pods that do not count themselves.
    over: Bits,
    /// Hosts at or above it. Not kept up where one pod is as much as the skew allows: those are the occupied ones.
    full: Bits,
}

#[derive(Clone, Debug)]
pub(super) struct Hosts {
    max_skew: u32,
    /// Counts above one. Most hosts that count anything count one pod, and which those are the sets say.
    counts: FxHashMap<(bool, u32), u32>,
    nodes: HostSet,
    claims: HostSet,
    total: u64,
}

impl Hosts {
    pub(super) fn new(max_skew: u32) -> Self {
        Hosts {
            max_skew,
            counts: FxHashMap::with_hasher(FxBuildHasher),
            nodes: HostSet::default(),
            claims: HostSet::default(),
            total: 0,
        }
    }

    /// Counts one pod more on an existing node.
    #[inline]
    pub(super) fn add_node(&mut self, node: usize) {
        if self.nodes.occupied.contains(node) {
            return self.change(false, node, true);
        }
        // The first pod, as most are: a skew above one is not reached by it.
        self.total += 1;
        self.nodes.occupied.insert(node);
        if self.max_skew == 0 {
            self.nodes.over.insert(node);
        }
    }

    /// Changes the count of a host.
    pub(super) fn change(&mut self, planned: bool, host: usize, add: bool) {
        let (max_skew, key) = (self.max_skew, (planned, host as u32));
        let set = if planned {
            &mut self.claims
        } else {
            &mut self.nodes
        };
        let before = if set.occupied.contains(host) {
            self.counts.get(&key).copied().unwrap_or(1)
        } else {
            0
        };
        let count = if add {
            self.total += 1;
            before + 1
        } else {
            debug_assert!(before >= 1, "a count is taken back that was never made");
            self.total = self.total.saturating_sub(1);
            before.saturating_sub(1)
        };
        if count > 1 {
            self.counts.insert(key, count);
        } else if before > 1 {
            self.counts.remove(&key);
        }
        let put = |bits: &mut Bits, wanted: bool| {
            if wanted {
                bits.insert(host);
            } else {
                bits.remove(host);
            }
        };
        put(&mut set.occupied, count > 0);
        put(&mut set.over, count > max_skew);
        if max_skew > 1 {
            put(&mut set.full, count >= max_skew);
        }
    }

    fn full<'a>(&self, set: &'a HostSet) -> &'a Bits {
        if self.max_skew == 1 {
            &set.occupied
        } else {
            &set.full
        }
    }

    /// A pod that counts itself opens a self-affine set where it likes.
    fn may_bootstrap(&self, selects: bool) -> bool {
        selects && self.total == 0
    }

    /// Whether the rule admits a pod on a host.
    pub(super) fn admits(&self, kind: Kind, selects: bool, planned: bool, host: usize) -> bool {
        let set = if planned { &self.claims } else { &self.nodes };
        match kind {
            // With a skew of nothing even an empty host is closed to a pod that counts itself.
            Kind::Spread if selects => self.max_skew > 0 && !self.full(set).contains(host),
            Kind::Spread => !set.over.contains(host),
            Kind::Affinity => set.occupied.contains(host) || self.may_bootstrap(selects),
            Kind::AntiAffinity | Kind::Inverse => !set.occupied.contains(host),
        }
    }

    /// Keeps, in some words, the hosts that the rule admits.
    pub(super) fn keep_admitted(
        &self,
        kind: Kind,
        selects: bool,
        planned: bool,
        words: Range<usize>,
        hosts: &mut Bits,
    ) {
        let set = if planned { &self.claims } else { &self.nodes };
        match kind {
            Kind::Spread if selects && self.max_skew == 0 => hosts.clear_words(words),
            Kind::Spread if selects => hosts.subtract_words(self.full(set), words),
            Kind::Spread => hosts.subtract_words(&set.over, words),
            Kind::Affinity if self.may_bootstrap(selects) => {}
            Kind::Affinity => hosts.intersect_words(&set.occupied, words),
            Kind::AntiAffinity | Kind::Inverse => hosts.subtract_words(&set.occupied, words),
        }
    }

    /// Every count, to compare.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn counts(&self) -> std::collections::BTreeMap<(bool, u32), u32> {
        let of = |planned: bool, set: &HostSet| {
            let hosts = set.occupied.ones().map(|host| (planned, host as u32));
            let counted = hosts.map(|host| (host, self.counts.get(&host).copied().unwrap_or(1)));
            counted.collect::<Vec<_>>()
        };
        let mut counts = of(false, &self.nodes);
        counts.extend(of(true, &self.claims));
        counts.into_iter().collect()
    }
}
