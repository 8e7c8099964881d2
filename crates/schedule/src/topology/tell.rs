//! What topology says to people: which rule refuses, with counts, and where a pod could go at all.
//!
//! It decides nothing and changes nothing.

use super::{Bindings, Refusal, Topology};
use crate::algebra::{Algebra, SetId};
use crate::bits::Bits;
use spokeshave_model::reason::{Obstacle, TopologyKind};
use spokeshave_model::snapshot::ClassId;
use spokeshave_model::{Requirements, labels};
use std::collections::BTreeSet;

impl Topology<'_> {
    /// The first rule that keeps a pod off some existing nodes, for explanations.
    pub(crate) fn first_refusal(
        &mut self,
        class: ClassId,
        bindings: &Bindings,
        strict: SetId,
        hosts: &Bits,
        algebra: &Algebra<'_>,
    ) -> Option<(TopologyKind, String)> {
        let (mut nodes, mut claims) = (Bits::default(), Bits::default());
        for position in 0..self.binding_count(class, bindings) {
            let (id, selects) = self.binding(class, bindings, position);
            nodes.copy_from(hosts);
            self.prepared = 0;
            self.prepare_group(id, selects, strict, algebra, &mut claims);
            self.keep_nodes(0..nodes.word_count(), &mut nodes);
            if nodes.is_clear() {
                let group = &self.groups[id.0 as usize];
                let key = group
                    .key
                    .map_or(labels::HOSTNAME, |key| self.keys[key].name.as_str());
                return Some((group.kind.rule(), key.to_owned()));
            }
        }
        None
    }

    /// The refusal as data for the user.
    pub(crate) fn explain(
        &self,
        refusal: Refusal,
        strict: SetId,
        node: &Requirements,
        algebra: &Algebra<'_>,
    ) -> Obstacle {
        let group = &self.groups[refusal.group.0 as usize];
        let (key, counts) = match group.key {
            None => (labels::HOSTNAME.to_owned(), Vec::new()),
            Some(key) => {
                let key = &self.keys[key];
                let counts = group
                    .existing(&self.censuses[group.census])
                    .take(25)
                    .map(|domain| (key.values[domain].clone(), group.counts[domain]));
                (key.name.clone(), counts.collect())
            }
        };
        Obstacle::Topology {
            kind: group.kind.rule(),
            counts,
            pod_domains: algebra.get(strict).get(&key).to_string(),
            node_domains: node.get(&key).to_string(),
            key,
        }
    }

    /// Everything that changes, to compare what was reverted with what was there: what is placed, groups, censuses, and claims by key.
    #[cfg(debug_assertions)]
    pub(crate) fn fingerprint(&self) -> [Vec<String>; 4] {
        let removed = self.removed.ones().collect::<Vec<_>>();
        let groups = self.groups.iter().map(|group| {
            let hosts = group.hosts.as_ref().map(|hosts| hosts.counts());
            format!("{:?} {hosts:?}", group.counts)
        });
        let censuses = self.censuses.iter().map(|census| format!("{:?}", census.present));
        let keys = self.keys.iter().map(|key| {
            let claims = key.claims.iter().map(|claims| claims.ones().collect::<Vec<_>>());
            format!("{:?}", claims.collect::<Vec<_>>())
        });
        [
            vec![format!("{removed:?} {}", self.placed.len())],
            groups.collect(),
            censuses.collect(),
            keys.collect(),
        ]
    }

    /// The values of a label key that the pod's own groups over that key admit; `None` without such a group.
    pub(crate) fn admitted_values(
        &mut self,
        key_name: &str,
        class: ClassId,
        bindings: &Bindings,
        strict: SetId,
        algebra: &Algebra<'_>,
    ) -> Option<BTreeSet<String>> {
        let key = *self.key_ids.get(key_name)?;
        let mut admitted: Option<Bits> = None;
        for position in 0..self.binding_count(class, bindings) {
            let (id, selects) = self.binding(class, bindings, position);
            if self.groups[id.0 as usize].key != Some(key) {
                continue;
            }
            let allowed = self.allowed(key, strict, algebra);
            let group = &self.groups[id.0 as usize];
            let census = &self.censuses[group.census];
            group.valid_domains(census, &self.keys[key].sets[allowed], selects, &mut self.valid);
            match &mut admitted {
                Some(admitted) => admitted.intersect(&self.valid),
                None => admitted = Some(self.valid.clone()),
            }
        }
        let values = &self.keys[key].values;
        admitted.map(|admitted| admitted.ones().map(|domain| values[domain].clone()).collect())
    }
}
