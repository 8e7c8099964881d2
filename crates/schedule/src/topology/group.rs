//! The choice of a domain by one group: spread, affinity, anti-affinity (P §6.8).

use super::count::Group;
use super::{Counts, Kind, Shape};
use crate::bits::Bits;

/// Which domains of a key exist for the groups of a census, whatever they count.
#[derive(Clone, Copy)]
pub(super) struct Universe<'c> {
    /// Domains that some NodePool offers the pods.
    offered: &'c Bits,
    /// Registered nodes per domain.
    present: &'c [u32],
}

impl<'c> Universe<'c> {
    #[inline]
    pub(super) fn of(census: u32, shape: &'c Shape<'_>, counts: &'c Counts) -> Self {
        Universe {
            offered: &shape.censuses[census as usize].offered,
            present: counts.present(census),
        }
    }
}

impl Group {
    /// Whether a domain exists for this group.
    fn exists(&self, universe: Universe<'_>, domain: usize) -> bool {
        universe.offered.contains(domain) || self.has_nodes(universe, domain)
    }

    /// The domains that exist, in order.
    pub(super) fn existing<'a>(&'a self, universe: Universe<'a>) -> impl Iterator<Item = usize> + 'a {
        (0..self.counts.len()).filter(move |domain| self.exists(universe, *domain))
    }

    fn populated(&self, domain: usize) -> bool {
        self.counts[domain] > 0
    }

    /// Whether the first pod of a self-affine set may pick a domain for the others: nothing is placed where the pod may go.
    fn may_bootstrap(&self, pod_domains: &Bits, selects: bool) -> bool {
        selects && !pod_domains.ones().any(|domain| self.populated(domain))
    }

    /// Whether there are nodes in a domain, or will be.
    fn has_nodes(&self, universe: Universe<'_>, domain: usize) -> bool {
        self.counts[domain] > 0 || universe.present[domain] > 0
    }

    /// Domains that a pod may not use and that a spread compares with all the same (P-105): those that have nodes. What NodePools merely offer has none
    /// for kube-scheduler, and such a pod never makes one there.
    fn compared<'a>(
        &'a self,
        universe: Universe<'a>,
        pod_domains: &'a Bits,
    ) -> impl Iterator<Item = usize> + 'a {
        // Most pods may use every domain, and nothing is left to compare.
        let others = self.rule.counts_all_nodes && pod_domains.count() < self.counts.len();
        let looked_at = if others { self.counts.len() } else { 0 };
        (0..looked_at)
            .filter(move |domain| !pod_domains.contains(*domain) && self.has_nodes(universe, *domain))
    }

    /// The lowest count over the domains a pod may use (P-101, P-102), and those it is compared with.
    fn minimum(&self, universe: Universe<'_>, pod_domains: &Bits) -> u32 {
        let (mut minimum, mut supported) = (u32::MAX, 0);
        let usable = pod_domains.ones().filter(|domain| self.exists(universe, *domain));
        for domain in usable.chain(self.compared(universe, pod_domains)) {
            supported += 1;
            minimum = minimum.min(self.counts[domain]);
        }
        if self.rule.min_domains.is_some_and(|wanted| supported < wanted) {
            0
        } else {
            minimum
        }
    }

    /// Whether a spread admits one more pod in a domain.
    fn within_skew(&self, domain: usize, minimum: u32, selects: bool) -> bool {
        (self.counts[domain] + u32::from(selects)).saturating_sub(minimum) <= self.rule.max_skew
    }

    /// The domains in which a host can take the pod, as far as this group is concerned. A host with one domain is admitted exactly if that is
    /// among them; a planned one, only if one of its possible domains is.
    pub(super) fn valid_domains(
        &self,
        universe: Universe<'_>,
        pod_domains: &Bits,
        selects: bool,
        valid: &mut Bits,
    ) {
        valid.reset(self.counts.len());
        match self.rule.kind {
            Kind::Spread => {
                let minimum = self.minimum(universe, pod_domains);
                for domain in self.existing(universe) {
                    if self.within_skew(domain, minimum, selects) {
                        valid.insert(domain);
                    }
                }
            }
            Kind::Affinity => {
                let bootstrap = self.may_bootstrap(pod_domains, selects);
                for domain in pod_domains.ones() {
                    if self.populated(domain) || (bootstrap && self.exists(universe, domain)) {
                        valid.insert(domain);
                    }
                }
            }
            Kind::AntiAffinity | Kind::Inverse => {
                for domain in pod_domains.ones().filter(|domain| !self.populated(*domain)) {
                    valid.insert(domain);
                }
            }
        }
    }

    /// Of a planned host's domains, those in which a spread admits the pod.
    fn admitted<'a>(
        &'a self,
        universe: Universe<'a>,
        pod_domains: &'a Bits,
        node_domains: &'a Bits,
        selects: bool,
    ) -> impl Iterator<Item = usize> + 'a {
        let minimum = self.minimum(universe, pod_domains);
        node_domains.ones().filter(move |domain| {
            self.exists(universe, *domain) && self.within_skew(*domain, minimum, selects)
        })
    }

    /// Adds those of a planned host's domains that have pods, or those that have none.
    fn insert_common(&self, pod_domains: &Bits, node_domains: &Bits, is_populated: bool, domains: &mut Bits) {
        let common = node_domains.common(pod_domains);
        common
            .filter(|domain| self.populated(*domain) == is_populated)
            .for_each(|domain| domains.insert(domain));
    }

    /// The domains to which a planned host is narrowed when it takes the pod. Whether one was named where there may be others: `options` has them all.
    pub(super) fn choose(
        &self,
        universe: Universe<'_>,
        pod_domains: &Bits,
        node_domains: &Bits,
        selects: bool,
        chosen: &mut Bits,
    ) -> bool {
        if self.rule.kind == Kind::Spread {
            chosen.reset(self.counts.len());
            let admitted = self.admitted(universe, pod_domains, node_domains, selects);
            // Of equal counts the first domain wins.
            let best = admitted.min_by_key(|domain| self.counts[*domain]);
            if let Some(best) = best {
                chosen.insert(best);
            }
            return best.is_some();
        }
        let begins = self.options(universe, pod_domains, node_domains, selects, chosen);
        if begins {
            let first = chosen.ones().next();
            chosen.clear();
            if let Some(first) = first {
                chosen.insert(first);
            }
        }
        begins
    }

    /// All domains that a planned host may be narrowed to when it takes the pod, as far as this group is concerned; whether it has to be one of them.
    pub(super) fn options(
        &self,
        universe: Universe<'_>,
        pod_domains: &Bits,
        node_domains: &Bits,
        selects: bool,
        options: &mut Bits,
    ) -> bool {
        options.reset(self.counts.len());
        match self.rule.kind {
            Kind::Spread => {
                let admitted = self.admitted(universe, pod_domains, node_domains, selects);
                admitted.for_each(|domain| options.insert(domain));
                true
            }
            Kind::Affinity => {
                self.insert_common(pod_domains, node_domains, true, options);
                let begins = options.is_clear() && self.may_bootstrap(pod_domains, selects);
                if begins {
                    let both = node_domains.common(pod_domains);
                    both.filter(|domain| self.exists(universe, *domain))
                        .for_each(|domain| options.insert(domain));
                }
                begins
            }
            Kind::AntiAffinity | Kind::Inverse => {
                self.insert_common(pod_domains, node_domains, false, options);
                false
            }
        }
    }
}
