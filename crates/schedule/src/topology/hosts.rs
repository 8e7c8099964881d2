//! Counts per host, for rules whose domains are hosts: only hosts that count anything are kept, and which of them a rule closes is always
//! at hand as a set.

use super::Kind;
use crate::bits::Bits;
use rustc_hash::{FxBuildHasher, FxHashMap};

/// Existing nodes or planned claims.
#[derive(Clone, Debug, Default)]
pub(super) struct HostSet {
    /// Hosts with a count.
    occupied: Bits,
    /// Hosts above the skew that a spread allows, for pods that do not count themselves.
    over: Bits,
    /// Hosts at or above it.
    full: Bits,
}

#[derive(Clone, Debug)]
pub(super) struct Hosts {
    max_skew: u32,
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

    /// Changes the count of a host.
    pub(super) fn change(&mut self, planned: bool, host: usize, number: u32, add: bool) {
        let max_skew = self.max_skew;
        let entry = self.counts.entry((planned, host as u32)).or_insert(0);
        if add {
            *entry += number;
            self.total += u64::from(number);
        } else {
            debug_assert!(*entry >= number, "a count is taken back that was never made");
            *entry = entry.saturating_sub(number);
            self.total = self.total.saturating_sub(u64::from(number));
        }
        let count = *entry;
        if count == 0 {
            self.counts.remove(&(planned, host as u32));
        }
        let set = if planned {
            &mut self.claims
        } else {
            &mut self.nodes
        };
        let put = |bits: &mut Bits, wanted: bool| {
            if wanted {
                bits.insert(host);
            } else {
                bits.remove(host);
            }
        };
        put(&mut set.occupied, count > 0);
        put(&mut set.over, count > max_skew);
        put(&mut set.full, count >= max_skew);
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
            Kind::Spread if selects => self.max_skew > 0 && !set.full.contains(host),
            Kind::Spread => !set.over.contains(host),
            Kind::Affinity => set.occupied.contains(host) || self.may_bootstrap(selects),
            Kind::AntiAffinity | Kind::Inverse => !set.occupied.contains(host),
        }
    }

    /// Keeps the hosts that the rule admits.
    pub(super) fn keep_admitted(&self, kind: Kind, selects: bool, planned: bool, hosts: &mut Bits) {
        let set = if planned { &self.claims } else { &self.nodes };
        match kind {
            Kind::Spread if selects && self.max_skew == 0 => hosts.clear(),
            Kind::Spread if selects => hosts.subtract(&set.full),
            Kind::Spread => hosts.subtract(&set.over),
            Kind::Affinity if self.may_bootstrap(selects) => {}
            Kind::Affinity => hosts.intersect(&set.occupied),
            Kind::AntiAffinity | Kind::Inverse => hosts.subtract(&set.occupied),
        }
    }

    /// Every count, to compare.
    #[cfg(debug_assertions)]
    pub(super) fn counts(&self) -> std::collections::BTreeMap<(bool, u32), u32> {
        self.counts.iter().map(|(host, count)| (*host, *count)).collect()
    }
}
