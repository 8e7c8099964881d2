//! What topology leaves to a pod: eligible nodes and claims, and the domains a planned claim is narrowed to (P §6.8).
//!
//! It reads counts and writes none. Complexity: O(groups that bind the pod × domains of their keys), and for each of these a word for 64 claims and for
//! 64 of the nodes that are looked at.

use super::{Admission, Bindings, GroupId, Kind, Refusal, Topology};
use crate::algebra::{Algebra, SetId};
use crate::bits::Bits;
use spokeshave_model::Requirement;
use spokeshave_model::snapshot::ClassId;
use std::ops::Range;

impl Topology<'_> {
    /// Works out what every group that binds the pod admits, for `keep_nodes`; and keeps the planned claims that no group rules out by their
    /// domains, which is necessary only: `narrow` decides about claims.
    pub(crate) fn prepare(
        &mut self,
        class: ClassId,
        bindings: &Bindings,
        strict: SetId,
        algebra: &Algebra<'_>,
        claims: &mut Bits,
    ) {
        self.prepared = 0;
        for position in 0..self.binding_count(class, bindings) {
            let (id, selects) = self.binding(class, bindings, position);
            self.prepare_group(id, selects, strict, algebra, claims);
        }
    }

    /// The same for one group more.
    pub(super) fn prepare_group(
        &mut self,
        id: GroupId,
        selects: bool,
        strict: SetId,
        algebra: &Algebra<'_>,
        claims: &mut Bits,
    ) {
        let key = self.groups[id.0 as usize].key;
        let allowed = key.map(|key| self.allowed(key, strict, algebra));
        if self.admissions.len() == self.prepared {
            self.admissions.push(Admission::default());
        }
        let admission = &mut self.admissions[self.prepared];
        (admission.group, admission.selects) = (id.0, selects);
        self.prepared += 1;
        let group = &self.groups[id.0 as usize];
        let Some((key, allowed)) = key.zip(allowed) else {
            if let Some(hosts) = &group.hosts {
                hosts.keep_admitted(group.kind, selects, true, 0..claims.word_count(), claims);
            }
            return;
        };
        let (census, key) = (&self.censuses[group.census], &self.keys[key]);
        group.valid_domains(census, &key.sets[allowed], selects, &mut admission.valid);
        if claims.is_clear() {
            return;
        }
        self.united.reset(0);
        for domain in admission.valid.ones() {
            self.united.union(&key.claims[domain]);
        }
        claims.intersect(&self.united);
    }

    /// Keeps, in some words, the existing nodes that every group admits. Exact.
    pub(crate) fn keep_nodes(&mut self, words: Range<usize>, nodes: &mut Bits) {
        for admission in &self.admissions[..self.prepared] {
            let group = &self.groups[admission.group as usize];
            if let Some(hosts) = &group.hosts {
                hosts.keep_admitted(group.kind, admission.selects, false, words.clone(), nodes);
            }
            let Some(key) = group.key else {
                continue;
            };
            let united = &mut self.united_nodes;
            self.keys[key].unite_nodes(&admission.valid, group.kind.repels(), words.clone(), united);
            nodes.intersect_words(united, words.clone());
        }
    }

    pub(super) fn binding_count(&self, class: ClassId, bindings: &Bindings) -> usize {
        self.inverse_selecting[class.index()].len() + bindings.groups.len()
    }

    /// Others' anti-affinity first, then the pod's own groups.
    pub(super) fn binding(&self, class: ClassId, bindings: &Bindings, position: usize) -> (GroupId, bool) {
        let inverse = &self.inverse_selecting[class.index()];
        match inverse.get(position) {
            Some(group) => (*group, false),
            None => bindings.groups[position - inverse.len()],
        }
    }

    /// Narrows a planned claim by every group that binds the pod. The answer is its new requirement set.
    pub(crate) fn narrow(
        &mut self,
        class: ClassId,
        bindings: &Bindings,
        strict: SetId,
        (index, template, mut set): (usize, usize, SetId),
        algebra: &mut Algebra<'_>,
    ) -> Result<SetId, Refusal> {
        let mut used = 0;
        for position in 0..self.binding_count(class, bindings) {
            let (id, selects) = self.binding(class, bindings, position);
            let group = &self.groups[id.0 as usize];
            let Some(key) = group.key else {
                let hosts = group.hosts.as_ref();
                if hosts.is_some_and(|hosts| !hosts.admits(group.kind, selects, true, index)) {
                    // Counts per host only grow while pods are added, so all but affinity is final.
                    return Err(Refusal {
                        group: id,
                        final_: group.kind != Kind::Affinity,
                    });
                }
                continue;
            };
            let allowed = self.allowed(key, strict, algebra);
            let possible = self.possible(key, template, set, algebra);
            let group = &self.groups[id.0 as usize];
            let sets = &self.keys[key].sets;
            let census = &self.censuses[group.census];
            group.choose(census, &sets[allowed], &sets[possible], selects, &mut self.chosen);
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
                return Err(Refusal {
                    group: id,
                    final_: group.kind.repels(),
                });
            }
        }
        for entry in 0..used {
            let key = self.narrowed[entry].0;
            let possible = self.possible(key, template, set, algebra);
            let (key_index, key) = (key as u32, &self.keys[key]);
            let domains = &self.narrowed[entry].1;
            if key.sets[possible] != *domains {
                set = algebra.narrow_to(set, key_index, domains, || {
                    let values = domains.ones().map(|domain| key.values[domain].as_str());
                    Requirement::one_of(&key.name, values)
                });
            }
        }
        Ok(set)
    }
}
