//! Every way in which topology lets a planned claim be narrowed for a pod, for pods that find no place with the domains that come first (P §6.8).
//!
//! Here all groups are asked what they admit before any names a domain. A key that must come down to one domain, because a pod spreads over it or is the first that
//! wants its own kind near, has each of those that are left in turn: that with the fewest pods first, as the spreads count them in their order, and of equal ones
//! the first. It reads counts and writes none, and whether anything is for sale in a domain it does not know. Complexity: O(groups that bind the pod × domains of
//! their keys), then O(keys) for each way.

use super::group::Universe;
use super::{Bindings, Choice, Counts, GroupId, Kind, Shape};
use crate::algebra::{Algebra, SetId};
use crate::bits::Bits;
use spokeshave_model::snapshot::ClassId;

/// So many ways are tried for one claim at the most. More there are only where pods spread over labels with many values.
const MOST_WAYS: usize = 256;

/// Ways in which a claim can be narrowed, in the order in which they are tried.
#[derive(Debug)]
pub(crate) struct Ways {
    template: usize,
    /// What the claim asks without the pod's topology.
    base: SetId,
    keys: Vec<(u32, Left)>,
}

/// A template with what a claim of it asks, a key, and one of its domains.
pub(crate) struct OneDomain((usize, SetId), u32, usize);

impl OneDomain {
    /// What the claim asks in that domain.
    pub(crate) fn narrowed(self, shape: &mut Shape<'_>, algebra: &mut Algebra<'_>) -> SetId {
        let OneDomain(place, key, domain) = self;
        let only = Bits::of(shape.keys[key as usize].values.len(), [domain]);
        shape.narrowed(place, key, &only, algebra)
    }
}

/// What is left of a key's domains.
#[derive(Debug)]
enum Left {
    /// One of these, the best first.
    One(Vec<usize>),
    /// All of these.
    All(Bits),
}

/// What the groups over a key admit together.
struct OfKey {
    key: u32,
    domains: Bits,
    must_be_one: bool,
    spreads: Vec<GroupId>,
}

impl OfKey {
    fn left(self, counts: &Counts) -> (u32, Left) {
        if !self.must_be_one {
            return (self.key, Left::All(self.domains));
        }
        let mut domains: Vec<usize> = self.domains.ones().collect();
        domains.sort_by_cached_key(|domain| {
            let spreads = self.spreads.iter();
            let pods = spreads.map(|id| counts.group(*id).counts[*domain]);
            pods.collect::<Vec<u32>>()
        });
        (self.key, Left::One(domains))
    }
}

impl Choice {
    /// All ways to narrow a planned claim by every group that binds the pod; none where there is no way.
    pub(crate) fn ways(
        &mut self,
        class: ClassId,
        bindings: &Bindings,
        strict: SetId,
        (index, template, base): (usize, usize, SetId),
        (shape, counts): (&mut Shape<'_>, &Counts),
        algebra: &Algebra<'_>,
    ) -> Option<Ways> {
        let mut keys: Vec<OfKey> = Vec::new();
        for position in 0..shape.binding_count(class, bindings) {
            let (id, selects) = shape.binding(class, bindings, position);
            let group = counts.group(id);
            let rule = group.rule;
            let Some(key) = rule.key else {
                let hosts = group.hosts.as_ref();
                if hosts.is_some_and(|hosts| !hosts.admits(rule.kind, selects, true, index)) {
                    return None;
                }
                continue;
            };
            let shaped = &shape.keys[key as usize];
            if rule.repels() && shaped.is_unknown && !algebra.get(base).contains(&shaped.name) {
                continue;
            }
            let allowed = shape.allowed(key as usize, strict, algebra);
            let possible = shape.possible(key as usize, template, base, algebra);
            let sets = &shape.keys[key as usize].sets;
            let universe = Universe::of(rule.census, shape, counts);
            let must_be_one = group.options(
                universe,
                &sets[allowed],
                &sets[possible],
                selects,
                &mut self.chosen,
            );
            let at = keys.iter().position(|known| known.key == key);
            let at = at.unwrap_or_else(|| {
                keys.push(OfKey {
                    key,
                    domains: sets[possible].clone(),
                    must_be_one: false,
                    spreads: Vec::new(),
                });
                keys.len() - 1
            });
            let known = &mut keys[at];
            known.domains.intersect(&self.chosen);
            known.must_be_one |= must_be_one;
            if rule.kind == Kind::Spread {
                known.spreads.push(id);
            }
            if known.domains.is_clear() {
                return None;
            }
        }
        Some(Ways {
            template,
            base,
            keys: keys.into_iter().map(|known| known.left(counts)).collect(),
        })
    }
}

impl Ways {
    /// Whether there are more than are tried.
    pub(crate) fn are_too_many(&self) -> bool {
        self.combinations() > MOST_WAYS
    }

    /// How many there are to try.
    pub(crate) fn count(&self) -> usize {
        self.combinations().min(MOST_WAYS)
    }

    /// Leaves out domains that will not do, whatever other keys come down to. O(domains), however many combinations there are.
    pub(crate) fn keep(&mut self, mut may_do: impl FnMut(OneDomain) -> bool) {
        let place = (self.template, self.base);
        for (key, left) in &mut self.keys {
            if let Left::One(domains) = left {
                domains.retain(|domain| may_do(OneDomain(place, *key, *domain)));
            }
        }
    }

    fn combinations(&self) -> usize {
        let choices = self.keys.iter().map(|(_, left)| match left {
            Left::One(domains) => domains.len(),
            Left::All(_) => 1,
        });
        choices.fold(1, usize::saturating_mul)
    }

    /// What the claim asks in one of them.
    pub(crate) fn narrowed(&self, nth: usize, shape: &mut Shape<'_>, algebra: &mut Algebra<'_>) -> SetId {
        let (mut set, mut rest) = (self.base, nth);
        for (key, left) in &self.keys {
            let place = (self.template, set);
            set = match left {
                Left::All(domains) => shape.narrowed(place, *key, domains, algebra),
                Left::One(domains) => {
                    let domain = domains[rest % domains.len()];
                    rest /= domains.len();
                    OneDomain(place, *key, domain).narrowed(shape, algebra)
                }
            };
        }
        set
    }
}
