//! What topology leaves to a pod: eligible nodes and claims, and the domains a planned claim is narrowed to (P §6.8).
//!
//! It reads counts and writes none. Complexity: O(groups that bind the pod × domains of their keys), and a word of nodes or claims for each 64 of them.

use super::{Bindings, GroupId, Kind, Refusal, Topology};
use crate::algebra::{Algebra, SetId};
use crate::bits::Bits;
use spokeshave_model::Requirement;
use spokeshave_model::snapshot::ClassId;

impl Topology<'_> {
    /// Keeps the existing nodes that every group admits, and the planned claims that no group rules out by their domains. Exact for nodes;
    /// necessary for claims, about which `narrow` decides.
    pub(crate) fn keep_eligible(
        &mut self,
        class: ClassId,
        bindings: &Bindings,
        strict: SetId,
        algebra: &Algebra<'_>,
        nodes: &mut Bits,
        claims: &mut Bits,
    ) {
        for position in 0..self.binding_count(class, bindings) {
            let (id, selects) = self.binding(class, bindings, position);
            self.keep_admitted(id, selects, strict, algebra, nodes, claims);
        }
    }

    /// The same for one group.
    pub(super) fn keep_admitted(
        &mut self,
        id: GroupId,
        selects: bool,
        strict: SetId,
        algebra: &Algebra<'_>,
        nodes: &mut Bits,
        claims: &mut Bits,
    ) {
        let group = &self.groups[id.0 as usize];
        let Some(key) = group.key else {
            group.hosts.keep_admitted(group.kind, selects, false, nodes);
            group.hosts.keep_admitted(group.kind, selects, true, claims);
            return;
        };
        let allowed = self.allowed(key, strict, algebra);
        let group = &self.groups[id.0 as usize];
        let census = &self.censuses[group.census];
        let key = &self.keys[key];
        group.valid_domains(census, &key.sets[allowed], selects, &mut self.valid);
        key.unite_nodes(&self.valid, group.kind.repels(), &mut self.united);
        nodes.intersect(&self.united);
        if claims.is_clear() {
            return;
        }
        self.united.reset(0);
        for domain in self.valid.ones() {
            self.united.union(&key.claims[domain]);
        }
        claims.intersect(&self.united);
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
                if !group.hosts.admits(group.kind, selects, true, index) {
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
