//! Topology spread, pod affinity and pod anti-affinity as counters per domain (P §6.8).
//!
//! A *group* is shared by all pods that are constrained in the same way. Domains of a label key are dense numbers; a host's own domain is
//! its number, so that hostname groups need no names. Complexity: choosing a domain is O(domains of the key) in words; recording a
//! placement is O(groups that select the pod's class).

use crate::algebra::{Algebra, SetId};
use crate::template::{Template, bits};
use fixedbitset::FixedBitSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::constraints::{Constraints, PodTerm, Spread};
use spokeshave_model::reason::{Obstacle, TopologyKind};
use spokeshave_model::selector::Selector;
use spokeshave_model::snapshot::{ClassId, KindId, NodeId, Snapshot};
use spokeshave_model::{Requirement, Requirements, labels, taint};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A group's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupId(u32);

/// Which nodes count for a spread constraint (P §6.8, node filter).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Filter {
    /// Any of these must be compatible; empty when affinity is ignored or nothing is asked.
    alternatives: Vec<Requirements>,
    /// The taints must be tolerated by these; none when taints are ignored. Kept as text, because Kubernetes' type has no hash.
    tolerations: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    kind: Kind,
    key: String,
    namespaces: Option<BTreeSet<String>>,
    max_skew: i32,
    min_domains: Option<i32>,
    selector: Selector,
    filter: Filter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Spread,
    Affinity,
    AntiAffinity,
    /// Where pods with required anti-affinity are or could be; pods that the term selects keep away.
    Inverse,
}

impl Kind {
    fn rule(self) -> TopologyKind {
        match self {
            Kind::Spread => TopologyKind::Spread,
            Kind::Affinity => TopologyKind::Affinity,
            Kind::AntiAffinity | Kind::Inverse => TopologyKind::AntiAffinity,
        }
    }
}

#[derive(Debug)]
struct Group {
    kind: Kind,
    /// The label key, as a number; `None` for hostname.
    key: Option<usize>,
    max_skew: u32,
    min_domains: Option<u32>,
    /// Per domain of the key, or per host.
    counts: Vec<u32>,
    /// Domains that exist for this group; unused for hostname, where every host exists.
    registered: FixedBitSet,
    filter: Filter,
    tolerations: Option<Vec<taint::Toleration>>,
}

#[derive(Debug)]
struct Key {
    name: String,
    values: Vec<String>,
    /// Domain of each existing node.
    of_node: Vec<Option<u32>>,
    /// Domains that nodes of each template can be in.
    reachable: Vec<FixedBitSet>,
    /// Domains that a requirement set allows.
    allowed: FxHashMap<SetId, Rc<FixedBitSet>>,
    /// Domains that a planned node with a requirement set can be in. A set names its NodePool, so it implies the template.
    possible: FxHashMap<SetId, Rc<FixedBitSet>>,
}

/// Where a pod is being tried.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Host {
    /// An existing node.
    Node(NodeId),
    /// A planned NodeClaim, by number, with its requirements before topology narrows them.
    Planned {
        /// Its number; the next free one for a NodeClaim that is only considered.
        index: usize,
        /// Its template.
        template: usize,
        /// Its requirements.
        set: SetId,
    },
}

/// Why topology refuses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) group: GroupId,
    /// Whether this can no longer change in this pass.
    pub(crate) final_: bool,
}

/// What a pod is bound by: groups of its own, and others' anti-affinity that select it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings {
    pub(crate) groups: Vec<GroupId>,
    /// Inverse groups in which the pod's own placement is recorded.
    pub(crate) inverse_owned: Vec<GroupId>,
}

#[derive(Debug)]
pub(crate) struct Topology {
    nodes: usize,
    keys: Vec<Key>,
    key_ids: BTreeMap<String, usize>,
    groups: Vec<Group>,
    identities: FxHashMap<Identity, GroupId>,
    /// Per class: the groups (not inverse) whose selector matches it.
    selecting: Vec<Vec<GroupId>>,
    /// Per class: the inverse groups whose selector matches it.
    inverse_selecting: Vec<Vec<GroupId>>,
    /// Pods that count: bound, running, not in the batch; by class, node and number.
    counted: Vec<(ClassId, NodeId, u32)>,
    /// Placements made so far, for groups that come into being later.
    recorded: Vec<(ClassId, Recorded)>,
}

#[derive(Clone, Copy, Debug)]
struct Recorded {
    host: Host,
}

impl Topology {
    /// `counted` lists bound pods that count towards domains, grouped by class and node.
    pub(crate) fn new(snapshot: &Snapshot, counted: Vec<(ClassId, NodeId, u32)>) -> Self {
        Topology {
            nodes: snapshot.nodes.len(),
            keys: Vec::new(),
            key_ids: BTreeMap::new(),
            groups: Vec::new(),
            identities: FxHashMap::with_hasher(FxBuildHasher),
            selecting: vec![Vec::new(); snapshot.classes.len()],
            inverse_selecting: vec![Vec::new(); snapshot.classes.len()],
            counted,
            recorded: Vec::new(),
        }
    }

    /// Registers the required anti-affinity of a class whose pods are bound or in the batch (P-110).
    pub(crate) fn add_inverse(
        &mut self,
        snapshot: &Snapshot,
        class: ClassId,
        templates: &[Template<'_>],
        algebra: &Algebra<'_>,
    ) -> Vec<GroupId> {
        let terms = &snapshot.classes[class.index()].anti_affinity;
        terms
            .iter()
            .map(|term| self.term_group(snapshot, Kind::Inverse, term, templates, algebra))
            .collect()
    }

    /// Counts the bound pods that own an inverse group.
    pub(crate) fn count_inverse(&mut self, group: GroupId, owner: ClassId) {
        for (class, node, number) in self.counted.clone() {
            if class == owner {
                self.increment_node(group, node, number);
            }
        }
    }

    /// The groups that constrain a pod with these constraints (a relaxed copy of its class's).
    pub(crate) fn bind(
        &mut self,
        snapshot: &Snapshot,
        class: ClassId,
        constraints: &Constraints,
        templates: &[Template<'_>],
        algebra: &Algebra<'_>,
    ) -> Bindings {
        let mut bindings = Bindings::default();
        for spread in &constraints.spreads {
            let group = self.spread_group(snapshot, spread, constraints, templates, algebra);
            bindings.groups.push(group);
        }
        let affinity = constraints
            .affinity
            .iter()
            .chain(constraints.preferred_affinity.iter().map(|(_, term)| term));
        for term in affinity {
            let group = self.term_group(snapshot, Kind::Affinity, term, templates, algebra);
            bindings.groups.push(group);
        }
        let anti = constraints
            .anti_affinity
            .iter()
            .chain(constraints.preferred_anti_affinity.iter().map(|(_, term)| term));
        for term in anti {
            let group = self.term_group(snapshot, Kind::AntiAffinity, term, templates, algebra);
            bindings.groups.push(group);
        }
        bindings.inverse_owned = self.add_inverse(snapshot, class, templates, algebra);
        bindings.groups.dedup();
        bindings
    }

    /// Whether anything at all binds a pod of this class.
    pub(crate) fn is_free(&self, class: ClassId, bindings: &Bindings) -> bool {
        bindings.groups.is_empty() && self.inverse_selecting[class.index()].is_empty()
    }

    /// Whether placing a pod of this class changes any counter.
    pub(crate) fn is_counted(&self, class: ClassId, bindings: &Bindings) -> bool {
        !self.selecting[class.index()].is_empty() || !bindings.inverse_owned.is_empty()
    }

    fn spread_group(
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

    fn term_group(
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
        self.keys.push(Key {
            name: name.to_owned(),
            values,
            of_node,
            reachable,
            allowed: FxHashMap::with_hasher(FxBuildHasher),
            possible: FxHashMap::with_hasher(FxBuildHasher),
        });
        self.key_ids.insert(name.to_owned(), self.keys.len() - 1);
        self.keys.len() - 1
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

    fn increment_node(&mut self, id: GroupId, node: NodeId, number: u32) {
        let group = &mut self.groups[id.0 as usize];
        let domain = match group.key {
            None => Some(node.index()),
            Some(key) => self.keys[key].of_node[node.index()].map(|domain| domain as usize),
        };
        if let Some(domain) = domain {
            group.counts[domain] += number;
            if group.key.is_some() {
                group.registered.insert(domain);
            }
        }
    }

    /// Domains that a planned node can be in: allowed by its requirements and offered by its NodePool.
    fn possible(
        &mut self,
        key: usize,
        template: usize,
        set: SetId,
        algebra: &Algebra<'_>,
    ) -> Rc<FixedBitSet> {
        if let Some(known) = self.keys[key].possible.get(&set) {
            return Rc::clone(known);
        }
        let mut possible = (*self.allowed(key, set, algebra)).clone();
        possible.intersect_with(&self.keys[key].reachable[template]);
        let possible = Rc::new(possible);
        self.keys[key].possible.insert(set, Rc::clone(&possible));
        possible
    }

    fn allowed(&mut self, key: usize, set: SetId, algebra: &Algebra<'_>) -> Rc<FixedBitSet> {
        let key = &mut self.keys[key];
        if let Some(known) = key.allowed.get(&set) {
            return Rc::clone(known);
        }
        let requirement = algebra.get(set).get(&key.name);
        let members = key
            .values
            .iter()
            .enumerate()
            .filter(|(_, value)| requirement.has(value))
            .map(|(index, _)| index);
        let allowed = Rc::new(bits(key.values.len(), members));
        key.allowed.insert(set, Rc::clone(&allowed));
        allowed
    }

    /// Narrows the host by every group that binds the pod. For a planned NodeClaim the answer is its new requirement set.
    pub(crate) fn narrow(
        &mut self,
        class: ClassId,
        bindings: &Bindings,
        strict: SetId,
        host: Host,
        algebra: &mut Algebra<'_>,
    ) -> Result<Option<SetId>, Refusal> {
        let mut narrowed: Vec<(usize, FixedBitSet)> = Vec::new();
        let inverse = self.inverse_selecting[class.index()].len();
        for position in 0..bindings.groups.len() + inverse {
            let id = if position < inverse {
                self.inverse_selecting[class.index()][position]
            } else {
                bindings.groups[position - inverse]
            };
            let selects = self.selecting[class.index()].contains(&id);
            let Some(key) = self.groups[id.0 as usize].key else {
                self.check_host(id, selects, host)?;
                continue;
            };
            let pod_domains = self.allowed(key, strict, algebra);
            let node_domains = match host {
                Host::Node(node) => {
                    let domain = self.keys[key].of_node[node.index()];
                    let Some(domain) = domain else {
                        // Anti-affinity cannot be violated where there is no domain; the other rules need one.
                        if matches!(
                            self.groups[id.0 as usize].kind,
                            Kind::AntiAffinity | Kind::Inverse
                        ) {
                            continue;
                        }
                        return Err(Refusal {
                            group: id,
                            final_: true,
                        });
                    };
                    Rc::new(bits(self.keys[key].values.len(), [domain as usize]))
                }
                Host::Planned { set, template, .. } => self.possible(key, template, set, algebra),
            };
            let group = &self.groups[id.0 as usize];
            let chosen = group.choose(&pod_domains, &node_domains, selects);
            let entry = match narrowed.iter_mut().find(|(known, _)| *known == key) {
                Some((_, domains)) => {
                    domains.intersect_with(&chosen);
                    domains
                }
                None => {
                    let mut both = (*node_domains).clone();
                    both.intersect_with(&chosen);
                    narrowed.push((key, both));
                    let last = narrowed.len() - 1;
                    &mut narrowed[last].1
                }
            };
            if entry.is_clear() {
                return Err(Refusal {
                    group: id,
                    final_: matches!(group.kind, Kind::AntiAffinity | Kind::Inverse),
                });
            }
        }
        let Host::Planned {
            mut set, template, ..
        } = host
        else {
            return Ok(None);
        };
        for (key, domains) in narrowed {
            if *self.possible(key, template, set, algebra) != domains {
                let key = &self.keys[key];
                let values = domains.ones().map(|domain| key.values[domain].as_str());
                set = algebra.narrow(set, Requirement::one_of(&key.name, values));
            }
        }
        Ok(Some(set))
    }

    fn check_host(&self, id: GroupId, selects: bool, host: Host) -> Result<(), Refusal> {
        let group = &self.groups[id.0 as usize];
        let index = match host {
            Host::Node(node) => node.index(),
            Host::Planned { index, .. } => self.nodes + index,
        };
        let count = group.counts.get(index).copied().unwrap_or(0);
        let accepted = match group.kind {
            Kind::Spread => count + u32::from(selects) <= group.max_skew,
            Kind::Affinity => count > 0 || (selects && group.counts.iter().all(|count| *count == 0)),
            Kind::AntiAffinity | Kind::Inverse => count == 0,
        };
        // Counts per host only grow in a pass, so all but affinity is final.
        if accepted {
            Ok(())
        } else {
            Err(Refusal {
                group: id,
                final_: group.kind != Kind::Affinity,
            })
        }
    }

    /// Records a placement in every group that sees it.
    pub(crate) fn record(
        &mut self,
        snapshot: &Snapshot,
        class: ClassId,
        bindings: &Bindings,
        host: Host,
        algebra: &Algebra<'_>,
    ) {
        self.recorded.push((class, Recorded { host }));
        for position in 0..self.selecting[class.index()].len() {
            let id = self.selecting[class.index()][position];
            self.record_in(snapshot, id, host, algebra);
        }
        for id in &bindings.inverse_owned {
            self.record_in(snapshot, *id, host, algebra);
        }
    }

    fn record_in(&mut self, snapshot: &Snapshot, id: GroupId, host: Host, algebra: &Algebra<'_>) {
        let group = &self.groups[id.0 as usize];
        let counts_host = match host {
            Host::Node(node) => group.counts_node(snapshot, snapshot.node(node).kind),
            Host::Planned { set, .. } => group.counts_planned(algebra.get(set), algebra),
        };
        if !counts_host {
            return;
        }
        match (host, group.key) {
            (Host::Node(node), _) => self.increment_node(id, node, 1),
            (Host::Planned { index, .. }, None) => {
                let counts = &mut self.groups[id.0 as usize].counts;
                let host = self.nodes + index;
                if counts.len() <= host {
                    counts.resize(host + 1, 0);
                }
                counts[host] += 1;
            }
            (Host::Planned { set, template, .. }, Some(key)) => {
                let domains = self.possible(key, template, set, algebra);
                let group = &mut self.groups[id.0 as usize];
                let all = matches!(group.kind, Kind::AntiAffinity | Kind::Inverse);
                if all || domains.count_ones(..) == 1 {
                    for domain in domains.ones() {
                        group.counts[domain] += 1;
                        group.registered.insert(domain);
                    }
                }
            }
        }
    }

    /// The refusal as data for the user.
    pub(crate) fn explain(
        &mut self,
        refusal: Refusal,
        strict: SetId,
        node: SetId,
        algebra: &Algebra<'_>,
    ) -> Obstacle {
        let group = &self.groups[refusal.group.0 as usize];
        let (key, counts) = match group.key {
            None => (labels::HOSTNAME.to_owned(), Vec::new()),
            Some(key) => {
                let key = &self.keys[key];
                let counts = group
                    .registered
                    .ones()
                    .take(25)
                    .map(|domain| (key.values[domain].clone(), group.counts[domain]));
                (key.name.clone(), counts.collect())
            }
        };
        Obstacle::Topology {
            kind: group.kind.rule(),
            counts,
            pod_domains: algebra.get(strict).get(&key).to_string(),
            node_domains: algebra.get(node).get(&key).to_string(),
            key,
        }
    }
}

impl Group {
    fn counts_node(&self, snapshot: &Snapshot, kind: KindId) -> bool {
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

    fn counts_planned(&self, requirements: &Requirements, algebra: &Algebra<'_>) -> bool {
        let compatible =
            |wanted: &Requirements| requirements.compatible(wanted, algebra.well_known()).is_ok();
        self.filter.alternatives.is_empty() || self.filter.alternatives.iter().any(compatible)
    }

    fn choose(&self, pod_domains: &FixedBitSet, node_domains: &FixedBitSet, selects: bool) -> FixedBitSet {
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

    fn choose_spread(
        &self,
        pod_domains: &FixedBitSet,
        node_domains: &FixedBitSet,
        selects: bool,
    ) -> FixedBitSet {
        let eligible = self.registered.intersection(pod_domains);
        let (mut minimum, mut supported) = (u32::MAX, 0);
        for domain in eligible {
            supported += 1;
            minimum = minimum.min(self.counts[domain]);
        }
        if self.min_domains.is_some_and(|wanted| supported < wanted) {
            minimum = 0;
        }
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
