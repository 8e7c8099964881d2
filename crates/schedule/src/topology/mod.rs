//! Topology spread, pod affinity and pod anti-affinity as counters per domain (P §6.8).
//!
//! A *group* is shared by all pods that are constrained in the same way. Domains of a label key are dense numbers; a host's own domain is
//! its number, so that hostname groups need no names. Complexity: choosing a domain is O(domains of the key) in words; recording a
//! placement is O(groups that select the pod's class).

mod build;
mod group;

use crate::algebra::{Algebra, SetId};
use crate::template::{Template, bits};
use fixedbitset::FixedBitSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::constraints::Constraints;
use spokeshave_model::reason::{Obstacle, TopologyKind};
use spokeshave_model::selector::Selector;
use spokeshave_model::snapshot::{ClassId, NodeId, Snapshot};
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
    /// Existing nodes of each domain, and those without one.
    nodes: Vec<FixedBitSet>,
    nodes_without: FixedBitSet,
    /// Planned claims that can be in each domain.
    claims: Vec<FixedBitSet>,
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
    /// Template and requirements of each planned claim.
    claims: Vec<(usize, SetId)>,
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
            claims: Vec::new(),
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

    /// Tells where a planned claim can be from now on.
    pub(crate) fn set_claim(&mut self, index: usize, template: usize, set: SetId, algebra: &Algebra<'_>) {
        match self.claims.get_mut(index) {
            Some(known) if *known == (template, set) => return,
            Some(known) => *known = (template, set),
            None => self.claims.push((template, set)),
        }
        for key in 0..self.keys.len() {
            self.index_claim(key, index, template, set, algebra);
        }
    }

    fn index_claim(&mut self, key: usize, index: usize, template: usize, set: SetId, algebra: &Algebra<'_>) {
        let possible = self.possible(key, template, set, algebra);
        for (domain, claims) in self.keys[key].claims.iter_mut().enumerate() {
            if possible.contains(domain) {
                claims.grow_and_insert(index);
            } else if claims.contains(index) {
                claims.set(index, false);
            }
        }
    }

    /// The existing nodes, and the planned claims, that are not ruled out by their domains; `None` when none is. A necessary condition:
    /// `narrow` decides.
    pub(crate) fn eligible(
        &mut self,
        class: ClassId,
        bindings: &Bindings,
        strict: SetId,
        algebra: &Algebra<'_>,
    ) -> Option<(FixedBitSet, FixedBitSet)> {
        let mut eligible: Option<(FixedBitSet, FixedBitSet)> = None;
        let inverse = self.inverse_selecting[class.index()].clone();
        for id in inverse.iter().chain(&bindings.groups) {
            let Some(key) = self.groups[id.0 as usize].key else {
                continue;
            };
            let pod_domains = self.allowed(key, strict, algebra);
            let group = &self.groups[id.0 as usize];
            let selects = self.selecting[class.index()].contains(id);
            let Some(valid) = group.valid_domains(&pod_domains, selects) else {
                continue;
            };
            let key = &self.keys[key];
            let (mut nodes, mut claims) = (FixedBitSet::with_capacity(self.nodes), FixedBitSet::new());
            if matches!(group.kind, Kind::AntiAffinity | Kind::Inverse) {
                nodes.union_with(&key.nodes_without);
            }
            for domain in valid.ones() {
                nodes.union_with(&key.nodes[domain]);
                claims.union_with(&key.claims[domain]);
            }
            match &mut eligible {
                Some((all_nodes, all_claims)) => {
                    all_nodes.intersect_with(&nodes);
                    all_claims.intersect_with(&claims);
                }
                None => eligible = Some((nodes, claims)),
            }
        }
        eligible
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
