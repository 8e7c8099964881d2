//! The choice of a domain by one group: spread, affinity, anti-affinity (P §6.8).

use super::{Group, Kind};
use crate::algebra::Algebra;
use crate::template::bits;
use fixedbitset::FixedBitSet;
use spokeshave_model::snapshot::{KindId, Snapshot};
use spokeshave_model::{Requirements, taint};
use std::collections::BTreeSet;

impl Group {
    pub(super) fn counts_node(&self, snapshot: &Snapshot, kind: KindId) -> bool {
        let kind = &snapshot.kinds[kind.index()];
        let none = BTreeSet::new();
        let compatible = |wanted: &Requirements| kind.requirements.compatible(wanted, &none).is_ok();
        let affinity = self.filter.alternatives.is_empty() || self.filter.alternatives.iter().any(compatible);
        affinity
            && self
                .tolerations
                .as_ref()
                .is_none_or(|list| taint::first_untolerated(&kind.taints, list).is_none())
    }

    pub(super) fn counts_planned(&self, requirements: &Requirements, algebra: &Algebra<'_>) -> bool {
        let compatible =
            |wanted: &Requirements| requirements.compatible(wanted, algebra.well_known()).is_ok();
        self.filter.alternatives.is_empty() || self.filter.alternatives.iter().any(compatible)
    }

    pub(super) fn choose(
        &self,
        pod_domains: &FixedBitSet,
        node_domains: &FixedBitSet,
        selects: bool,
    ) -> FixedBitSet {
        match self.kind {
            Kind::Spread => self.choose_spread(pod_domains, node_domains, selects),
            Kind::Affinity => self.choose_affinity(pod_domains, node_domains, selects),
            Kind::AntiAffinity | Kind::Inverse => {
                let mut empty = node_domains.clone();
                empty.intersect_with(pod_domains);
                let taken: Vec<usize> = empty.ones().filter(|domain| self.counts[*domain] > 0).collect();
                taken.into_iter().for_each(|domain| empty.set(domain, false));
                empty
            }
        }
    }

    /// The domains in which a host must be able to be, whatever else it is; `None` when any may do. `choose` over a host gives
    /// nothing unless the host can be in one of these.
    pub(super) fn valid_domains(&self, pod_domains: &FixedBitSet, selects: bool) -> Option<FixedBitSet> {
        let length = self.counts.len();
        match self.kind {
            Kind::Spread => {
                let minimum = self.spread_minimum(pod_domains);
                let valid = self.registered.ones().filter(|domain| {
                    let count = self.counts[*domain] + u32::from(selects);
                    count.saturating_sub(minimum) <= self.max_skew
                });
                Some(bits(length, valid))
            }
            Kind::Affinity => {
                let populated = bits(
                    length,
                    pod_domains.ones().filter(|domain| self.counts[*domain] > 0),
                );
                let may_bootstrap = selects && populated.is_clear();
                (!may_bootstrap).then_some(populated)
            }
            Kind::AntiAffinity | Kind::Inverse => Some(bits(
                length,
                pod_domains.ones().filter(|domain| self.counts[*domain] == 0),
            )),
        }
    }

    /// The lowest count over the domains a pod may use (P-101, P-102).
    fn spread_minimum(&self, pod_domains: &FixedBitSet) -> u32 {
        let (mut minimum, mut supported) = (u32::MAX, 0);
        for domain in self.registered.intersection(pod_domains) {
            supported += 1;
            minimum = minimum.min(self.counts[domain]);
        }
        if self.min_domains.is_some_and(|wanted| supported < wanted) {
            0
        } else {
            minimum
        }
    }

    fn choose_spread(
        &self,
        pod_domains: &FixedBitSet,
        node_domains: &FixedBitSet,
        selects: bool,
    ) -> FixedBitSet {
        let minimum = self.spread_minimum(pod_domains);
        let mut best: Option<(u32, usize)> = None;
        for domain in self.registered.intersection(node_domains) {
            let count = self.counts[domain] + u32::from(selects);
            if count.saturating_sub(minimum) <= self.max_skew && best.is_none_or(|(least, _)| count < least) {
                best = Some((count, domain));
            }
        }
        bits(node_domains.len(), best.map(|(_, domain)| domain))
    }

    fn choose_affinity(
        &self,
        pod_domains: &FixedBitSet,
        node_domains: &FixedBitSet,
        selects: bool,
    ) -> FixedBitSet {
        let populated = |domain: &usize| self.counts[*domain] > 0;
        let mut options = node_domains.clone();
        options.intersect_with(pod_domains);
        let empty: Vec<usize> = options.ones().filter(|domain| !populated(domain)).collect();
        empty.into_iter().for_each(|domain| options.set(domain, false));
        if !options.is_clear() || !selects {
            return options;
        }
        let nothing_placed = self.counts.iter().all(|count| *count == 0);
        let populated_allowed = pod_domains.ones().any(|domain| populated(&domain));
        if nothing_placed || !populated_allowed {
            // Bootstrap: the first pod of a self-affine set picks a domain for the others.
            let both = self
                .registered
                .intersection(pod_domains)
                .find(|domain| node_domains.contains(*domain));
            let own = self.registered.intersection(pod_domains).next();
            for domain in both.into_iter().chain(own) {
                options.insert(domain);
            }
        }
        options
    }
}
