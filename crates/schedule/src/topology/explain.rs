//! Topology for explanations: which rule refuses, with counts, and where a pod could be placed at all.
//!
//! It decides nothing and changes no count.

use super::group::Universe;
use super::{Bindings, Choice, Counts, Refusal, Shape};
use crate::algebra::{Algebra, SetId};
use crate::bits::Bits;
use spokeshave_model::reason::{Obstacle, TopologyKind};
use spokeshave_model::snapshot::ClassId;
use spokeshave_model::{Requirements, labels};
use std::collections::BTreeSet;

impl Choice {
    /// The first rule that keeps a pod off some existing nodes, for explanations.
    pub(crate) fn first_refusal(
        &mut self,
        class: ClassId,
        bindings: &Bindings,
        strict: SetId,
        hosts: &Bits,
        (shape, counts): (&mut Shape<'_>, &Counts),
        algebra: &Algebra<'_>,
    ) -> Option<(TopologyKind, String)> {
        let (mut nodes, mut claims) = (Bits::default(), Bits::default());
        for position in 0..shape.binding_count(class, bindings) {
            let group = shape.binding(class, bindings, position);
            nodes.copy_from(hosts);
            self.start();
            self.prepare_group(group, strict, (shape, counts), algebra, &mut claims);
            self.keep_nodes((shape, counts), 0..nodes.word_count(), &mut nodes);
            if nodes.is_clear() {
                let rule = counts.group(group.0).rule;
                let key = rule
                    .key
                    .map_or(labels::HOSTNAME, |key| shape.keys[key as usize].name.as_str());
                return Some((rule.kind.rule(), key.to_owned()));
            }
        }
        None
    }

    /// The values of a label key that the pod's own groups over that key admit; `None` without such a group.
    pub(crate) fn admitted_values(
        &mut self,
        key_name: &str,
        class: ClassId,
        bindings: &Bindings,
        strict: SetId,
        (shape, counts): (&mut Shape<'_>, &Counts),
        algebra: &Algebra<'_>,
    ) -> Option<BTreeSet<String>> {
        let key = *shape.key_ids.get(key_name)?;
        let mut admitted: Option<Bits> = None;
        for position in 0..shape.binding_count(class, bindings) {
            let (id, selects) = shape.binding(class, bindings, position);
            let group = counts.group(id);
            if group.rule.key != Some(key as u32) {
                continue;
            }
            let allowed = shape.allowed(key, strict, algebra);
            let universe = Universe::of(group.rule.census, shape, counts);
            group.valid_domains(universe, &shape.keys[key].sets[allowed], selects, &mut self.valid);
            match &mut admitted {
                Some(admitted) => admitted.intersect(&self.valid),
                None => admitted = Some(self.valid.clone()),
            }
        }
        let values = &shape.keys[key].values;
        admitted.map(|admitted| admitted.ones().map(|domain| values[domain].clone()).collect())
    }
}

impl Shape<'_> {
    /// The refusal as data for the user.
    pub(crate) fn explain(
        &self,
        refusal: Refusal,
        strict: SetId,
        node: &Requirements,
        counts: &Counts,
        algebra: &Algebra<'_>,
    ) -> Obstacle {
        let group = counts.group(refusal.group);
        let (key, pods) = match group.rule.key {
            None => (labels::HOSTNAME.to_owned(), Vec::new()),
            Some(key) => {
                let key = &self.keys[key as usize];
                let pods = group
                    .existing(Universe::of(group.rule.census, self, counts))
                    .take(25)
                    .map(|domain| (key.values[domain].clone(), group.counts[domain]));
                (key.name.clone(), pods.collect())
            }
        };
        Obstacle::Topology {
            kind: group.rule.kind.rule(),
            counts: pods,
            pod_domains: algebra.get(strict).get(&key).to_string(),
            node_domains: node.get(&key).to_string(),
            key,
        }
    }
}
