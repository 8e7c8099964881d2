//! How groups come into being: identity, domain universe, and the count of what is there already (P §6.8).

use super::{Filter, Group, GroupId, Identity, Key, Kind, Topology};
use crate::algebra::Algebra;
use crate::template::{Template, bits};
use fixedbitset::FixedBitSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::constraints::{Constraints, PodTerm, Spread};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{Requirements, labels, taint};
use std::collections::BTreeSet;

impl Topology {
    pub(super) fn spread_group(
        &mut self,
        snapshot: &Snapshot,
        spread: &Spread,
        owner: &Constraints,
        templates: &[Template<'_>],
        algebra: &Algebra<'_>,
    ) -> GroupId {
        let alternatives = if !spread.honor_affinity {
            Vec::new()
        } else if owner.required_terms.is_empty() {
            if owner.node_selector.is_empty() {
                Vec::new()
            } else {
                vec![owner.node_selector.clone()]
            }
        } else {
            let with_selector = |term: &Requirements| {
                let mut requirements = owner.node_selector.clone();
                requirements.add_all(term);
                requirements
            };
            owner.required_terms.iter().map(with_selector).collect()
        };
        let tolerations = spread.honor_taints.then(|| owner.tolerations.clone());
        let filter = Filter {
            alternatives,
            tolerations: tolerations.as_ref().map(|list| format!("{list:?}")),
        };
        let identity = Identity {
            kind: Kind::Spread,
            key: spread.topology_key.clone(),
            namespaces: Some(BTreeSet::from([owner.namespace.clone()])),
            max_skew: spread.max_skew,
            min_domains: spread.min_domains,
            selector: spread.selector.clone(),
            filter,
        };
        self.group(snapshot, identity, tolerations, templates, algebra)
    }

    pub(super) fn term_group(
        &mut self,
        snapshot: &Snapshot,
        kind: Kind,
        term: &PodTerm,
        templates: &[Template<'_>],
        algebra: &Algebra<'_>,
    ) -> GroupId {
        let identity = Identity {
            kind,
            key: term.topology_key.clone(),
            namespaces: Some(term.namespaces.clone()),
            max_skew: 0,
            min_domains: None,
            selector: term.selector.clone(),
            filter: Filter::default(),
        };
        self.group(snapshot, identity, None, templates, algebra)
    }

    fn group(
        &mut self,
        snapshot: &Snapshot,
        identity: Identity,
        tolerations: Option<Vec<taint::Toleration>>,
        templates: &[Template<'_>],
        algebra: &Algebra<'_>,
    ) -> GroupId {
        if let Some(known) = self.identities.get(&identity) {
            return *known;
        }
        let id = GroupId(self.groups.len() as u32);
        let key =
            (identity.key != labels::HOSTNAME).then(|| self.key(snapshot, &identity.key, templates, algebra));
        let mut group = Group {
            kind: identity.kind,
            key,
            max_skew: u32::try_from(identity.max_skew).unwrap_or(0),
            min_domains: identity.min_domains.and_then(|count| u32::try_from(count).ok()),
            counts: vec![0; key.map_or(self.nodes, |key| self.keys[key].values.len())],
            registered: FixedBitSet::new(),
            filter: identity.filter.clone(),
            tolerations,
        };
        if let Some(key) = key {
            group.registered = self.registered(snapshot, key, &group, templates, algebra);
        }
        self.groups.push(group);
        for (index, class) in snapshot.classes.iter().enumerate() {
            let same_namespace = identity
                .namespaces
                .as_ref()
                .is_none_or(|names| names.contains(&class.namespace));
            if same_namespace && identity.selector.matches(&class.labels) {
                let list = if identity.kind == Kind::Inverse {
                    &mut self.inverse_selecting
                } else {
                    &mut self.selecting
                };
                list[index].push(id);
            }
        }
        self.identities.insert(identity, id);
        self.count_existing(snapshot, id, algebra);
        id
    }

    fn key(
        &mut self,
        snapshot: &Snapshot,
        name: &str,
        templates: &[Template<'_>],
        algebra: &Algebra<'_>,
    ) -> usize {
        if let Some(known) = self.key_ids.get(name) {
            return *known;
        }
        let mut values: BTreeSet<String> = templates
            .iter()
            .flat_map(|template| template.domains(name, algebra))
            .collect();
        values.extend(
            snapshot
                .nodes
                .iter()
                .filter_map(|node| node.labels.get(name))
                .cloned(),
        );
        let values: Vec<String> = values.into_iter().collect();
        let position = |value: &String| values.binary_search(value).ok().map(|index| index as u32);
        let of_node = snapshot
            .nodes
            .iter()
            .map(|node| node.labels.get(name).and_then(position))
            .collect();
        let reachable = templates.iter().map(|template| {
            let domains = template.domains(name, algebra);
            bits(
                values.len(),
                domains
                    .iter()
                    .filter_map(|value| values.binary_search(value).ok()),
            )
        });
        let reachable = reachable.collect();
        let of_node: Vec<Option<u32>> = of_node;
        let nodes = |domain: Option<u32>| {
            let there = of_node
                .iter()
                .enumerate()
                .filter(move |(_, other)| **other == domain);
            bits(of_node.len(), there.map(|(node, _)| node))
        };
        self.keys.push(Key {
            name: name.to_owned(),
            nodes: (0..values.len())
                .map(|domain| nodes(Some(domain as u32)))
                .collect(),
            nodes_without: nodes(None),
            claims: vec![FixedBitSet::new(); values.len()],
            values,
            of_node,
            reachable,
            allowed: FxHashMap::with_hasher(FxBuildHasher),
            possible: FxHashMap::with_hasher(FxBuildHasher),
        });
        let key = self.keys.len() - 1;
        self.key_ids.insert(name.to_owned(), key);
        for (index, (template, set)) in self.claims.clone().into_iter().enumerate() {
            self.index_claim(key, index, template, set, algebra);
        }
        key
    }

    fn registered(
        &self,
        snapshot: &Snapshot,
        key: usize,
        group: &Group,
        templates: &[Template<'_>],
        algebra: &Algebra<'_>,
    ) -> FixedBitSet {
        let key = &self.keys[key];
        let mut registered = FixedBitSet::with_capacity(key.values.len());
        for template in templates {
            let taints = &snapshot.pool(template.pool).taints;
            let tolerated = group
                .tolerations
                .as_ref()
                .is_none_or(|list| taint::first_untolerated(taints, list).is_none());
            if tolerated {
                for value in template.domains(&key.name, algebra) {
                    if let Ok(index) = key.values.binary_search(&value) {
                        registered.insert(index);
                    }
                }
            }
        }
        for (index, node) in snapshot
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.registered)
        {
            if let Some(domain) = key.of_node[index].filter(|_| group.counts_node(snapshot, node.kind)) {
                registered.insert(domain as usize);
            }
        }
        registered
    }

    fn count_existing(&mut self, snapshot: &Snapshot, id: GroupId, algebra: &Algebra<'_>) {
        if self.groups[id.0 as usize].kind == Kind::Inverse {
            return;
        }
        for position in 0..self.counted.len() {
            let (class, node, number) = self.counted[position];
            let counts = self.groups[id.0 as usize].counts_node(snapshot, snapshot.node(node).kind);
            if counts && self.selecting[class.index()].contains(&id) {
                self.increment_node(id, node, number);
            }
        }
        for (class, recorded) in self.recorded.clone() {
            if self.selecting[class.index()].contains(&id) {
                self.record_in(snapshot, id, recorded.host, algebra);
            }
        }
    }
}
