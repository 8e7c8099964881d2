//! What topology leaves to a pod: eligible nodes and claims, and the domains a planned claim is narrowed to (P §6.8).
//!
//! It reads counts and writes none. Complexity: O(groups that bind the pod × domains of their keys), and for each of these a word for 64 claims and for
//! 64 of the nodes that are looked at.

use super::group::Universe;
use super::{Bindings, Counts, GroupId, Kind, Refusal, Shape};
use crate::algebra::{Algebra, SetId};
use crate::bits::Bits;
use spokeshave_model::Requirement;
use spokeshave_model::snapshot::ClassId;
use std::ops::Range;

/// What one group admits at the moment.
#[derive(Clone, Debug, Default)]
struct Admission {
    group: GroupId,
    selects: bool,
    /// Its valid domains, unless those are hosts.
    valid: Bits,
}

/// Buffers of the choice of domains for a pod, and what the groups of the pod that is looked at admit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    pub(super) valid: Bits,
    united: Bits,
    united_nodes: Bits,
    pub(super) chosen: Bits,
    narrowed: Vec<(u32, Bits)>,
    /// Some group has named one domain of several since this was last asked to be forgotten.
    has_named: bool,
    /// So has one whose pods follow to where the first of them is.
    has_begun: bool,
    /// The first `prepared` are those of the pod that is looked at.
    admissions: Vec<Admission>,
    prepared: usize,
}

impl Shape<'_> {
    /// How many groups bind a pod.
    pub(super) fn binding_count(&self, class: ClassId, bindings: &Bindings) -> usize {
        self.inverse_selecting[class.index()].len() + bindings.groups.len()
    }

    /// Whether all groups over a key, up to that at a position, keep pods away. While pods are added, such groups together admit less and less.
    fn only_repel(
        &self,
        class: ClassId,
        bindings: &Bindings,
        (position, key): (usize, u32),
        counts: &Counts,
    ) -> bool {
        (0..=position).all(|position| {
            let rule = counts.group(self.binding(class, bindings, position).0).rule;
            rule.key != Some(key) || rule.repels()
        })
    }

    /// The requirements of a planned node with a key narrowed to some of its domains.
    pub(super) fn narrowed(
        &mut self,
        (template, set): (usize, SetId),
        key: u32,
        domains: &Bits,
        algebra: &mut Algebra<'_>,
    ) -> SetId {
        let possible = self.possible(key as usize, template, set, algebra);
        let shaped = &self.keys[key as usize];
        if shaped.sets[possible] == *domains {
            return set;
        }
        algebra.narrow_to(set, key, domains, || {
            let values = domains.ones().map(|domain| shaped.values[domain].as_str());
            Requirement::one_of(&shaped.name, values)
        })
    }

    /// Others' anti-affinity first, then the pod's own groups.
    pub(super) fn binding(&self, class: ClassId, bindings: &Bindings, position: usize) -> (GroupId, bool) {
        let inverse = &self.inverse_selecting[class.index()];
        match inverse.get(position) {
            Some(group) => (*group, false),
            None => bindings.groups[position - inverse.len()],
        }
    }
}

impl Choice {
    /// Buffers for a Snapshot with so many nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Choice {
            united_nodes: Bits::new(nodes),
            ..Choice::default()
        }
    }

    /// Works out what every group that binds the pod admits, for `keep_nodes`; and keeps the planned claims that no group rules out by their
    /// domains, which is necessary only: `narrow` decides about claims.
    pub(crate) fn prepare(
        &mut self,
        class: ClassId,
        bindings: &Bindings,
        strict: SetId,
        (shape, counts): (&mut Shape<'_>, &Counts),
        algebra: &Algebra<'_>,
        claims: &mut Bits,
    ) {
        self.start();
        for position in 0..shape.binding_count(class, bindings) {
            let group = shape.binding(class, bindings, position);
            self.prepare_group(group, strict, (shape, counts), algebra, claims);
        }
    }

    /// Forgets the pod that was looked at.
    pub(super) fn start(&mut self) {
        self.prepared = 0;
    }

    /// The same for one group more, and whether its pods include the one that is looked at.
    pub(super) fn prepare_group(
        &mut self,
        (id, selects): (GroupId, bool),
        strict: SetId,
        (shape, counts): (&mut Shape<'_>, &Counts),
        algebra: &Algebra<'_>,
        claims: &mut Bits,
    ) {
        let group = counts.group(id);
        if self.admissions.len() == self.prepared {
            self.admissions.push(Admission::default());
        }
        let admission = &mut self.admissions[self.prepared];
        (admission.group, admission.selects) = (id, selects);
        self.prepared += 1;
        let Some(key) = group.rule.key else {
            if let Some(hosts) = &group.hosts {
                hosts.keep_admitted(group.rule.kind, selects, true, 0..claims.word_count(), claims);
            }
            return;
        };
        let allowed = shape.allowed(key as usize, strict, algebra);
        let allowed = &shape.keys[key as usize].sets[allowed];
        let universe = Universe::of(group.rule.census, shape, counts);
        group.valid_domains(universe, allowed, selects, &mut admission.valid);
        let leaves_claims = group.rule.repels() && shape.keys[key as usize].is_unknown;
        if claims.is_clear() || leaves_claims {
            return;
        }
        self.united.reset(0);
        for domain in admission.valid.ones() {
            self.united.union(&counts.claims_in(key)[domain]);
        }
        claims.intersect(&self.united);
    }

    /// Keeps, in some words, the existing nodes that every group admits. Exact.
    pub(crate) fn keep_nodes(
        &mut self,
        (shape, counts): (&Shape<'_>, &Counts),
        words: Range<usize>,
        nodes: &mut Bits,
    ) {
        for admission in &self.admissions[..self.prepared] {
            let group = counts.group(admission.group);
            if let Some(hosts) = &group.hosts {
                hosts.keep_admitted(group.rule.kind, admission.selects, false, words.clone(), nodes);
            }
            let Some(key) = group.rule.key else {
                continue;
            };
            let united = &mut self.united_nodes;
            let key = &shape.keys[key as usize];
            key.unite_nodes(&admission.valid, group.rule.repels(), words.clone(), united);
            nodes.intersect_words(united, words.clone());
        }
    }

    /// Narrows a planned claim by every group that binds the pod. The answer is its new requirement set.
    pub(crate) fn narrow(
        &mut self,
        class: ClassId,
        bindings: &Bindings,
        strict: SetId,
        (index, template, mut set): (usize, usize, SetId),
        (shape, counts): (&mut Shape<'_>, &Counts),
        algebra: &mut Algebra<'_>,
    ) -> Result<SetId, Refusal> {
        let mut used = 0;
        for position in 0..shape.binding_count(class, bindings) {
            let (id, selects) = shape.binding(class, bindings, position);
            let group = counts.group(id);
            let rule = group.rule;
            let Some(key) = rule.key else {
                let hosts = group.hosts.as_ref();
                if hosts.is_some_and(|hosts| !hosts.admits(rule.kind, selects, true, index)) {
                    // Counts per host only grow while pods are added, so all but affinity is final.
                    return Err(Refusal {
                        group: id,
                        is_final: rule.kind != Kind::Affinity,
                    });
                }
                continue;
            };
            let shaped = &shape.keys[key as usize];
            if rule.repels() && shaped.is_unknown && !algebra.get(set).contains(&shaped.name) {
                // As kube-scheduler has it: a node without the label is in no domain, and nobody is kept from it.
                continue;
            }
            let allowed = shape.allowed(key as usize, strict, algebra);
            let possible = shape.possible(key as usize, template, set, algebra);
            let sets = &shape.keys[key as usize].sets;
            let universe = Universe::of(rule.census, shape, counts);
            let names = group.choose(
                universe,
                &sets[allowed],
                &sets[possible],
                selects,
                &mut self.chosen,
            );
            self.has_named |= names;
            self.has_begun |= names && rule.kind == Kind::Affinity;
            let entry = match self.narrowed[..used].iter().position(|(known, _)| *known == key) {
                Some(entry) => entry,
                None => {
                    if self.narrowed.len() == used {
                        self.narrowed.push((key, Bits::default()));
                    }
                    self.narrowed[used].0 = key;
                    self.narrowed[used].1.copy_from(&sets[possible]);
                    used += 1;
                    used - 1
                }
            };
            let domains = &mut self.narrowed[entry].1;
            domains.intersect(&self.chosen);
            if domains.is_clear() {
                // What is left of a domain that another group has named may be something else next time.
                let shrinks = || shape.only_repel(class, bindings, (position, key), counts);
                return Err(Refusal {
                    group: id,
                    is_final: rule.repels() && (self.chosen.is_clear() || shrinks()),
                });
            }
        }
        for (key, domains) in &self.narrowed[..used] {
            set = shape.narrowed((template, set), *key, domains, algebra);
        }
        Ok(set)
    }

    /// Forgets whether groups have named domains.
    pub(crate) fn forget_named(&mut self) {
        self.has_named = false;
        self.has_begun = false;
    }

    /// Whether some group has named one domain of several since then, so that another one might do where that did not.
    pub(crate) fn has_named(&self) -> bool {
        self.has_named
    }

    /// Whether the pod would be the first of a group that goes where its first pod does, and that group has named a domain.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }
}
