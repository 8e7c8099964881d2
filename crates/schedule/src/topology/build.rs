//! How groups come into being: identity, domain universe, and which classes they count (P §6.8).

use super::{Bindings, Census, Filter, GroupId, Identity, Key, Kind, NONE, Namespaces, Rule, Shape};
use crate::algebra::{Algebra, SetId};
use crate::bits::Bits;
use crate::template::Template;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::constraints::{Constraints, PodTerm, Spread};
use spokeshave_model::selector::Selector;
use spokeshave_model::snapshot::{ClassId, NodeId, NodeView};
use spokeshave_model::taint::Toleration;
use spokeshave_model::{Requirements, labels, taint};
use std::borrow::Cow;
use std::collections::BTreeSet;

impl<'a> Shape<'a> {
    /// The groups that constrain a pod with these constraints (its class's, or a relaxed copy). `whole` has all the terms of node affinity that the pod has, and
    /// `strict` stands for them: relaxation gives up one after the other, the scheduler none.
    #[expect(
        clippy::ptr_arg,
        reason = "what is lent is kept as it is, what is owned is copied"
    )]
    pub(crate) fn bind(
        &mut self,
        class: ClassId,
        constraints: &Cow<'a, Constraints>,
        whole: (&Constraints, SetId),
        templates: &[Template],
        algebra: &Algebra<'_>,
    ) -> Bindings {
        match constraints {
            Cow::Borrowed(lent) => self.bind_to(class, lent, whole, |identity| identity, templates, algebra),
            Cow::Owned(own) => self.bind_to(class, own, whole, Identity::into_owned, templates, algebra),
        }
    }

    /// The same; `keep` makes what stays of an identity.
    fn bind_to<'c>(
        &mut self,
        class: ClassId,
        constraints: &'c Constraints,
        whole: (&Constraints, SetId),
        keep: impl Fn(Identity<'c>) -> Identity<'a> + Copy,
        templates: &[Template],
        algebra: &Algebra<'_>,
    ) -> Bindings {
        let mut groups: Vec<GroupId> = Vec::new();
        for spread in &constraints.spreads {
            groups.push(self.spread_group(spread, constraints, whole, keep, templates, algebra));
        }
        for term in counting_together(&constraints.affinity) {
            groups.push(self.term_group(Kind::Affinity, term, constraints, keep, templates, algebra));
        }
        let preferred = constraints.preferred_affinity.iter();
        for term in preferred.map(|(_, term)| Term::of(term)) {
            groups.push(self.term_group(Kind::Affinity, term, constraints, keep, templates, algebra));
        }
        let anti = constraints
            .anti_affinity
            .iter()
            .chain(constraints.preferred_anti_affinity.iter().map(|(_, term)| term));
        for term in anti.map(Term::of) {
            groups.push(self.term_group(Kind::AntiAffinity, term, constraints, keep, templates, algebra));
        }
        groups.dedup();
        let selecting = &self.selecting[class.index()];
        Bindings {
            groups: groups
                .into_iter()
                .map(|group| (group, selecting.contains(&group)))
                .collect(),
        }
    }

    fn spread_group<'c>(
        &mut self,
        spread: &'c Spread,
        owner: &'c Constraints,
        (whole, strict): (&Constraints, SetId),
        keep: impl Fn(Identity<'c>) -> Identity<'a>,
        templates: &[Template],
        algebra: &Algebra<'_>,
    ) -> GroupId {
        let asks_nothing = whole.node_selector.is_empty() && whole.required_terms.is_empty();
        let keeps_off = |template: &Template| {
            let taints = &self.snapshot.pool(template.pool).taints;
            taint::first_untolerated_hard(taints, &whole.tolerations).is_some()
        };
        // Where no NodePool keeps its pods off, another class that tolerates other taints has the same domains.
        let tells_apart = spread.honor_taints || templates.iter().any(keeps_off);
        let tolerations = tells_apart.then_some(whole.tolerations.as_slice());
        let filter = Filter {
            asked: (!asks_nothing).then_some(strict),
            ignores_asked: !asks_nothing && !spread.honor_affinity,
            tolerations: tolerations.map(super::tolerations_text),
            ignores_taints: tells_apart && !spread.honor_taints,
        };
        let identity = Identity {
            kind: Kind::Spread,
            key: Cow::Borrowed(&spread.topology_key),
            namespaces: Namespaces::One(Cow::Borrowed(&owner.namespace)),
            max_skew: spread.max_skew,
            min_domains: spread.min_domains,
            selector: Cow::Borrowed(&spread.selector),
            filter,
            is_virtual: owner.is_virtual,
        };
        self.group(identity, keep, tolerations, templates, algebra)
    }

    pub(super) fn term_group<'c>(
        &mut self,
        kind: Kind,
        term: Term<'c>,
        owner: &'c Constraints,
        keep: impl Fn(Identity<'c>) -> Identity<'a>,
        templates: &[Template],
        algebra: &Algebra<'_>,
    ) -> GroupId {
        let identity = Identity {
            kind,
            key: Cow::Borrowed(term.topology_key),
            namespaces: Namespaces::Several(term.namespaces),
            max_skew: 0,
            min_domains: None,
            selector: term.selector,
            filter: Filter::default(),
            is_virtual: owner.is_virtual,
        };
        self.group(identity, keep, None, templates, algebra)
    }

    fn group<'c>(
        &mut self,
        identity: Identity<'c>,
        keep: impl Fn(Identity<'c>) -> Identity<'a>,
        tolerations: Option<&[Toleration]>,
        templates: &[Template],
        algebra: &Algebra<'_>,
    ) -> GroupId {
        let known: &FxHashMap<Identity<'_>, GroupId> = &self.identities;
        if let Some(known) = known.get(&identity) {
            return *known;
        }
        let id = GroupId(self.rules.len() as u32);
        let key = (identity.key != labels::HOSTNAME).then(|| self.key(&identity.key, templates, algebra));
        let census = self.census(key, &identity.filter, tolerations, templates, algebra);
        let max_skew = u32::try_from(identity.max_skew).unwrap_or(0);
        self.rules.push(Rule {
            kind: identity.kind,
            key: key.map(|key| key as u32),
            census: census as u32,
            counts_all_nodes: identity.filter.counts_everywhere(),
            max_skew,
            min_domains: identity.min_domains.and_then(|count| u32::try_from(count).ok()),
        });
        let inverse = identity.kind == Kind::Inverse;
        let selected = self.selected(&identity);
        let list = if inverse {
            &mut self.inverse_selecting
        } else {
            &mut self.selecting
        };
        for class in &selected {
            list[class.index()].push(id);
        }
        // Inverse groups count their owners instead.
        self.members.push(if inverse { Vec::new() } else { selected });
        self.identities.insert(keep(identity), id);
        id
    }

    /// The classes that a group's selector matches, in order.
    fn selected(&self, identity: &Identity<'_>) -> Vec<ClassId> {
        let classes = &self.snapshot.classes;
        let mut selected = classes.selected(&identity.selector);
        selected.retain(|class| {
            let class = &classes[class.index()];
            // P-186: what pods that exist ask for does not see virtual ones, and virtual ones keep nobody away who exists.
            let sees = if identity.kind == Kind::Inverse {
                class.is_virtual || !identity.is_virtual
            } else {
                identity.is_virtual || !class.is_virtual
            };
            sees && identity.namespaces.contain(&class.namespace)
        });
        selected
    }

    fn census(
        &mut self,
        key: Option<usize>,
        filter: &Filter,
        tolerations: Option<&[Toleration]>,
        templates: &[Template],
        algebra: &Algebra<'_>,
    ) -> usize {
        if let Some(known) = self.census_ids.get(&(key, filter.clone())) {
            return *known;
        }
        let snapshot = self.snapshot;
        // As Kubernetes: soft taints do not hide a node from a spread.
        let tolerated =
            |taints| tolerations.is_none_or(|list| taint::first_untolerated_hard(taints, list).is_none());
        let asked = filter.asked(algebra);
        let kinds = snapshot.kinds.iter().enumerate().filter(|(_, kind)| {
            let satisfied = |wanted: &Requirements| kind.requirements.satisfy(wanted);
            (filter.counts_everywhere() || asked.iter().any(satisfied))
                && (filter.ignores_taints || tolerated(&kind.taints))
        });
        let kinds = Bits::of(snapshot.kinds.len(), kinds.map(|(index, _)| index));
        let reaching = templates
            .iter()
            .enumerate()
            .filter(|(_, template)| tolerated(&snapshot.pool(template.pool).taints));
        let reaching = Bits::of(templates.len(), reaching.map(|(index, _)| index));
        let mut offered = Bits::default();
        if let Some(key) = key.map(|key| &self.keys[key]) {
            // Taints of NodePools that the pods do not tolerate hide their domains. What no node that the pods may use can have is no domain either. Where nodes are
            // that count, there is one all the same.
            for template in reaching.ones() {
                templates[template].each_domain_asked_for(&key.name, &asked, algebra, |value| {
                    if let Ok(domain) = key.values.binary_search_by(|known| known.as_str().cmp(value)) {
                        offered.insert(domain);
                    }
                });
            }
        }
        self.censuses.push(Census {
            key,
            templates: if filter.ignores_taints {
                Bits::full(templates.len())
            } else {
                reaching
            },
            offered,
            kinds,
            alternatives: if filter.counts_everywhere() {
                Vec::new()
            } else {
                asked
            },
            planned: FxHashMap::with_hasher(FxBuildHasher),
        });
        self.census_ids
            .insert((key, filter.clone()), self.censuses.len() - 1);
        self.censuses.len() - 1
    }

    fn key(&mut self, name: &str, templates: &[Template], algebra: &Algebra<'_>) -> usize {
        if let Some(known) = self.key_ids.get(name) {
            return *known;
        }
        let snapshot = self.snapshot;
        let domains: Vec<BTreeSet<String>> = templates
            .iter()
            .map(|template| template.domains(name, algebra))
            .collect();
        let known = self.values.of(snapshot, name);
        let mut values: BTreeSet<&str> = domains.iter().flatten().map(String::as_str).collect();
        values.extend(known.values.iter().map(String::as_str));
        let values: Vec<String> = values.into_iter().map(ToOwned::to_owned).collect();
        let position = |value: &String| values.binary_search(value).ok();
        let reachable = domains
            .iter()
            .map(|domains| Bits::of(values.len(), domains.iter().filter_map(position)));
        let mut key = Key {
            name: name.to_owned(),
            of_node: Vec::with_capacity(snapshot.nodes.len()),
            nodes: vec![Bits::default(); values.len()],
            nodes_without: Bits::new(snapshot.nodes.len()),
            open: Vec::new(),
            is_unknown: values.is_empty() && !algebra.well_known().contains(name),
            reachable: reachable.collect(),
            sets: Vec::new(),
            allowed_of: Vec::new(),
            possible_of: Vec::new(),
            values: Vec::new(),
        };
        let numbers = known.values.iter().map(position);
        let numbers: Vec<u32> = numbers.map(|at| at.map_or(NONE, |at| at as u32)).collect();
        for (index, number) in known.of_node.iter().enumerate() {
            let domain = numbers.get(*number as usize).copied().unwrap_or(NONE);
            match key.nodes.get_mut(domain as usize) {
                Some(nodes) => nodes.insert(index),
                None => key.nodes_without.insert(index),
            }
            key.of_node.push(domain);
        }
        key.values = values;
        key.open = self.open(&key, templates);
        for (node, _) in &key.open {
            key.nodes_without.remove(node.index());
        }
        self.keys.push(key);
        let key = self.keys.len() - 1;
        self.key_ids.insert(name.to_owned(), key);
        key
    }

    /// Stand-ins of NodeClaims, as far as their domain is open, with the domains that they may be in; the last come first. Only nodes that are not
    /// initialised are looked at, which are the last.
    fn open(&self, key: &Key, templates: &[Template]) -> Vec<(NodeId, Bits)> {
        let nodes = self.snapshot.nodes.iter().enumerate().rev();
        let coming = nodes.take_while(|(_, view)| !view.initialized);
        let stand_ins = coming.filter(|(_, view)| view.is_stand_in());
        stand_ins
            .filter(|(index, _)| key.of_node[*index] == NONE)
            .map(|(index, view)| (NodeId::from(index), possible_of(view, key, templates)))
            .collect()
    }
}

/// A term as it counts pods.
pub(super) struct Term<'c> {
    topology_key: &'c str,
    selector: Cow<'c, Selector>,
    namespaces: Cow<'c, BTreeSet<String>>,
}

impl<'c> Term<'c> {
    pub(super) fn of(term: &'c PodTerm) -> Self {
        Term {
            topology_key: &term.topology_key,
            selector: Cow::Borrowed(&term.selector),
            namespaces: Cow::Borrowed(&term.namespaces),
        }
    }
}

/// The terms of required affinity as kube-scheduler reads them: a pod that one of several does not select counts for none, wherever it is.
fn counting_together(terms: &[PodTerm]) -> Vec<Term<'_>> {
    if terms.len() < 2 {
        return terms.iter().map(Term::of).collect();
    }
    let selectors = terms.iter().map(|term| match &term.selector {
        Selector::Nothing => None,
        Selector::All(conditions) => Some(conditions),
    });
    let selectors: Option<Vec<_>> = selectors.collect();
    let selector = selectors.map_or(Selector::Nothing, |selectors| {
        let mut all: Vec<_> = selectors.into_iter().flatten().cloned().collect();
        all.sort();
        all.dedup();
        Selector::All(all)
    });
    let namespaces = terms.iter().map(|term| term.namespaces.clone());
    let namespaces = namespaces.reduce(|all, namespaces| &all & &namespaces);
    let namespaces = namespaces.unwrap_or_default();
    let together = terms.iter().map(|term| Term {
        topology_key: &term.topology_key,
        selector: Cow::Owned(selector.clone()),
        namespaces: Cow::Owned(namespaces.clone()),
    });
    together.collect()
}

/// The domains that the node of a NodeClaim can be in: as a planned one, those that its requirements allow and its NodePool offers.
fn possible_of(view: &NodeView, key: &Key, templates: &[Template]) -> Bits {
    let entries = view.claim.iter().flat_map(|claim| &claim.spec.requirements);
    // The others may list hundreds of instance types.
    let own = entries.filter(|entry| labels::normalize(&entry.key) == key.name);
    let asked = Requirements::from_api(own).unwrap_or_default();
    let asked = asked.get(&key.name);
    let template = templates
        .iter()
        .position(|template| Some(template.pool) == view.pool);
    let offered = template.map(|template| &key.reachable[template]);
    let domains = key.values.iter().enumerate().filter(|(domain, value)| {
        asked.has(value) && offered.is_none_or(|offered| offered.contains(*domain))
    });
    Bits::of(key.values.len(), domains.map(|(domain, _)| domain))
}
