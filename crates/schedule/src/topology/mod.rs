//! Topology spread, pod affinity and pod anti-affinity as counters per domain (P §6.8).
//!
//! A *group* is shared by all pods that are constrained in the same way. Domains of a label key are dense numbers; a host's own domain is
//! its number, so that hostname groups need no names. Every change can be taken back exactly, also in groups that came into being later:
//! counts follow from which pods count where, not from the order of events. Complexity: choosing a domain is O(domains of the key);
//! recording a placement, or taking it back, is O(groups that select the pod's class).

mod build;
mod group;
mod hosts;

use crate::algebra::{Algebra, SetId};
use crate::bits::Bits;
use crate::template::Template;
use hosts::Hosts;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::reason::{Obstacle, TopologyKind};
use spokeshave_model::selector::Selector;
use spokeshave_model::snapshot::{ClassId, NodeId, Snapshot};
use spokeshave_model::taint::Toleration;
use spokeshave_model::{Requirement, Requirements, labels};
use std::collections::{BTreeMap, BTreeSet};

/// No domain, or not worked out yet.
const NONE: u32 = u32::MAX;

/// From this many domains on, the nodes of a set of domains are found by looking at each node.
const MANY_DOMAINS: usize = 64;

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
    namespaces: BTreeSet<String>,
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

    fn repels(self) -> bool {
        matches!(self, Kind::AntiAffinity | Kind::Inverse)
    }
}

#[derive(Clone, Debug)]
struct Group {
    kind: Kind,
    /// The label key, as a number; `None` for hostname.
    key: Option<usize>,
    census: usize,
    max_skew: u32,
    min_domains: Option<u32>,
    /// Pods per domain of the key.
    counts: Vec<u32>,
    /// Domains that some NodePool offers to the group.
    offered: Bits,
    /// Pods per host, when those are the domains.
    hosts: Hosts,
}

/// Which nodes a filter admits, and in which domains of a key there are such nodes. Shared by groups.
#[derive(Clone, Debug)]
struct Census {
    key: Option<usize>,
    kinds: Bits,
    templates: Bits,
    alternatives: Vec<Requirements>,
    planned: FxHashMap<SetId, bool>,
    /// Registered nodes per domain.
    present: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Key {
    name: String,
    values: Vec<String>,
    /// Domain of each existing node.
    of_node: Vec<u32>,
    /// Existing nodes of each domain, and those without one.
    nodes: Vec<Bits>,
    nodes_without: Bits,
    /// Planned claims that can be in each domain.
    claims: Vec<Bits>,
    /// Domains that nodes of each template can be in.
    reachable: Vec<Bits>,
    sets: Vec<Bits>,
    /// Domains that a requirement set allows: position in `sets`.
    allowed_of: Vec<u32>,
    /// Domains that a planned node with a requirement set can be in: position in `sets`. A set names its NodePool, so it implies the
    /// template.
    possible_of: Vec<u32>,
}

/// Where a pod is put.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Host {
    /// An existing node.
    Node(NodeId),
    /// A planned NodeClaim, by number, with its requirements.
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
    /// Whether this can no longer change while pods are only added.
    pub(crate) final_: bool,
}

/// The groups a pod is bound by, besides others' anti-affinity, and whether it counts in each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings {
    pub(crate) groups: Vec<(GroupId, bool)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Topology<'a> {
    snapshot: &'a Snapshot,
    /// Template and requirements of each planned claim.
    claims: Vec<(usize, SetId)>,
    keys: Vec<Key>,
    key_ids: BTreeMap<String, usize>,
    groups: Vec<Group>,
    censuses: Vec<Census>,
    census_ids: FxHashMap<(Option<usize>, Filter), usize>,
    identities: FxHashMap<Identity, GroupId>,
    /// Per class: the groups (not inverse) whose selector matches it.
    selecting: Vec<Vec<GroupId>>,
    /// Per class: the inverse groups whose selector matches it.
    inverse_selecting: Vec<Vec<GroupId>>,
    /// Per class: the inverse groups of its own required anti-affinity.
    inverse_owned: Vec<Vec<GroupId>>,
    /// Bound pods that count: class, node and number, in this order.
    counted: Vec<(ClassId, NodeId, u32)>,
    /// Classes by label and value, to find quickly what a selector matches.
    labelled: FxHashMap<(&'a str, &'a str), Vec<ClassId>>,
    /// Placements made so far, for groups that come into being later.
    placed: Vec<(ClassId, Host)>,
    /// Nodes taken away.
    removed: Bits,
    valid: Bits,
    united: Bits,
    chosen: Bits,
    narrowed: Vec<(usize, Bits)>,
}

impl<'a> Topology<'a> {
    /// Counts bound, running pods (P-107), and registers every required anti-affinity there is (P-110), so that which groups exist does not depend
    /// on what is asked later.
    pub(crate) fn new(snapshot: &'a Snapshot, templates: &[Template<'_>], algebra: &Algebra<'_>) -> Self {
        let mut counted: Vec<(ClassId, NodeId, u32)> = Vec::new();
        for view in snapshot.pods.iter().filter(|view| view.active) {
            counted.extend(view.node.map(|node| (view.class, node, 1)));
        }
        counted.sort_unstable();
        counted.dedup_by(|next, kept| {
            let same = (next.0, next.1) == (kept.0, kept.1);
            kept.2 += if same { next.2 } else { 0 };
            same
        });
        let mut labelled: FxHashMap<(&str, &str), Vec<ClassId>> = FxHashMap::with_hasher(FxBuildHasher);
        for (index, class) in snapshot.classes.iter().enumerate() {
            for (key, value) in &class.labels {
                labelled
                    .entry((key, value))
                    .or_default()
                    .push(ClassId::from(index));
            }
        }
        let classes = snapshot.classes.len();
        let mut topology = Topology {
            snapshot,
            claims: Vec::new(),
            keys: Vec::new(),
            key_ids: BTreeMap::new(),
            groups: Vec::new(),
            censuses: Vec::new(),
            census_ids: FxHashMap::with_hasher(FxBuildHasher),
            identities: FxHashMap::with_hasher(FxBuildHasher),
            selecting: vec![Vec::new(); classes],
            inverse_selecting: vec![Vec::new(); classes],
            inverse_owned: vec![Vec::new(); classes],
            counted,
            labelled,
            placed: Vec::new(),
            removed: Bits::default(),
            valid: Bits::default(),
            united: Bits::default(),
            chosen: Bits::default(),
            narrowed: Vec::new(),
        };
        for (index, class) in snapshot.classes.iter().enumerate() {
            for term in &class.anti_affinity {
                let group = topology.term_group(Kind::Inverse, term, templates, algebra);
                if !topology.inverse_owned[index].contains(&group) {
                    topology.inverse_owned[index].push(group);
                    topology.count_class(group, ClassId::from(index), algebra);
                }
            }
        }
        topology
    }

    /// Whether nothing binds a pod of this class.
    pub(crate) fn is_free(&self, class: ClassId, bindings: &Bindings) -> bool {
        bindings.groups.is_empty() && self.inverse_selecting[class.index()].is_empty()
    }

    /// Domains that a planned node can be in: allowed by its requirements and offered by its NodePool. A position in the key's `sets`.
    fn possible(&mut self, key: usize, template: usize, set: SetId, algebra: &Algebra<'_>) -> usize {
        if let Some(known) = known(&self.keys[key].possible_of, set) {
            return known;
        }
        let allowed = self.allowed(key, set, algebra);
        let key = &mut self.keys[key];
        let mut possible = key.sets[allowed].clone();
        possible.intersect(&key.reachable[template]);
        key.sets.push(possible);
        remember(&mut key.possible_of, set, key.sets.len() - 1)
    }

    /// Domains that a requirement set allows. A position in the key's `sets`.
    fn allowed(&mut self, key: usize, set: SetId, algebra: &Algebra<'_>) -> usize {
        let key = &mut self.keys[key];
        if let Some(known) = known(&key.allowed_of, set) {
            return known;
        }
        let requirement = algebra.get(set).get(&key.name);
        let members = key
            .values
            .iter()
            .enumerate()
            .filter(|(_, value)| requirement.has(value))
            .map(|(index, _)| index);
        let allowed = Bits::of(key.values.len(), members);
        key.sets.push(allowed);
        remember(&mut key.allowed_of, set, key.sets.len() - 1)
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

    /// Forgets the youngest claim.
    pub(crate) fn drop_claim(&mut self) {
        self.claims.pop();
        for claims in self.keys.iter_mut().flat_map(|key| &mut key.claims) {
            claims.remove(self.claims.len());
        }
    }

    fn index_claim(&mut self, key: usize, index: usize, template: usize, set: SetId, algebra: &Algebra<'_>) {
        let possible = self.possible(key, template, set, algebra);
        let key = &mut self.keys[key];
        for (domain, claims) in key.claims.iter_mut().enumerate() {
            if key.sets[possible].contains(domain) {
                claims.insert(index);
            } else {
                claims.remove(index);
            }
        }
    }

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
    fn keep_admitted(
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
            self.keep_admitted(id, selects, strict, algebra, &mut nodes, &mut claims);
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

    fn binding_count(&self, class: ClassId, bindings: &Bindings) -> usize {
        self.inverse_selecting[class.index()].len() + bindings.groups.len()
    }

    /// Others' anti-affinity first, then the pod's own groups.
    fn binding(&self, class: ClassId, bindings: &Bindings, position: usize) -> (GroupId, bool) {
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

    /// Records a placement in every group that sees it.
    pub(crate) fn record(&mut self, class: ClassId, host: Host, algebra: &Algebra<'_>) {
        self.placed.push((class, host));
        self.change_all(class, host, true, algebra);
    }

    /// Takes the youngest placement back.
    pub(crate) fn unrecord(&mut self, algebra: &Algebra<'_>) {
        if let Some((class, host)) = self.placed.pop() {
            self.change_all(class, host, false, algebra);
        }
    }

    /// A bound pod no longer counts (`counts` false), or counts again.
    pub(crate) fn set_counted(&mut self, class: ClassId, node: NodeId, counts: bool, algebra: &Algebra<'_>) {
        let position = self
            .counted
            .binary_search_by(|entry| (entry.0, entry.1).cmp(&(class, node)));
        if let Ok(position) = position {
            let number = &mut self.counted[position].2;
            *number = if counts {
                *number + 1
            } else {
                number.saturating_sub(1)
            };
            self.change_all(class, Host::Node(node), counts, algebra);
        }
    }

    fn change_all(&mut self, class: ClassId, host: Host, add: bool, algebra: &Algebra<'_>) {
        for position in 0..self.selecting[class.index()].len() {
            self.change(self.selecting[class.index()][position], host, 1, add, algebra);
        }
        for position in 0..self.inverse_owned[class.index()].len() {
            self.change(self.inverse_owned[class.index()][position], host, 1, add, algebra);
        }
    }

    fn change(&mut self, id: GroupId, host: Host, number: u32, add: bool, algebra: &Algebra<'_>) {
        let group = &mut self.groups[id.0 as usize];
        let census = &mut self.censuses[group.census];
        let apply = |count: &mut u32| {
            debug_assert!(
                add || *count >= number,
                "a count is taken back that was never made"
            );
            *count = if add {
                *count + number
            } else {
                count.saturating_sub(number)
            };
        };
        match host {
            Host::Node(node) => {
                if !census.kinds.contains(self.snapshot.node(node).kind.index()) {
                    return;
                }
                match group.key {
                    None => group.hosts.change(false, node.index(), number, add),
                    Some(key) => {
                        let domain = self.keys[key].of_node[node.index()];
                        if domain != NONE {
                            apply(&mut group.counts[domain as usize]);
                        }
                    }
                }
            }
            Host::Planned { index, template, set } => {
                if !census.admits_planned(template, set, algebra) {
                    return;
                }
                let Some(key) = group.key else {
                    group.hosts.change(true, index, number, add);
                    return;
                };
                let possible = self.possible(key, template, set, algebra);
                let group = &mut self.groups[id.0 as usize];
                let domains = &self.keys[key].sets[possible];
                if group.kind.repels() || domains.count() == 1 {
                    domains.ones().for_each(|domain| apply(&mut group.counts[domain]));
                }
            }
        }
    }

    /// A node goes away, or comes back: where it was the only one of its domain, the domain goes with it.
    pub(crate) fn set_removed(&mut self, node: NodeId, removed: bool) {
        let counts = self.is_present(node);
        if removed {
            self.removed.insert(node.index());
        } else {
            self.removed.remove(node.index());
        }
        if counts == self.is_present(node) {
            return;
        }
        let kind = self.snapshot.node(node).kind.index();
        for census in self
            .censuses
            .iter_mut()
            .filter(|census| census.kinds.contains(kind))
        {
            let domain = census
                .key
                .map_or(NONE, |key| self.keys[key].of_node[node.index()]);
            if let Some(present) = census.present.get_mut(domain as usize) {
                *present = if removed {
                    present.saturating_sub(1)
                } else {
                    *present + 1
                };
            }
        }
    }

    pub(crate) fn is_removed(&self, node: NodeId) -> bool {
        self.removed.contains(node.index())
    }

    /// Whether an existing node makes its domains exist.
    fn is_present(&self, node: NodeId) -> bool {
        let view = self.snapshot.node(node);
        view.registered && !view.marked_for_deletion && !self.removed.contains(node.index())
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

    /// Everything that changes, to compare what was reverted with what is fresh.
    #[cfg(debug_assertions)]
    pub(crate) fn fingerprint(&self) -> String {
        use std::fmt::Write;
        let mut text = format!(
            "{:?} {:?}",
            self.removed.ones().collect::<Vec<_>>(),
            self.placed.len()
        );
        for group in &self.groups {
            let _ = write!(text, " {:?} {:?}", group.counts, group.hosts.counts());
        }
        for census in &self.censuses {
            let _ = write!(text, " {:?}", census.present);
        }
        for key in &self.keys {
            let claims: Vec<Vec<usize>> = key.claims.iter().map(|claims| claims.ones().collect()).collect();
            let _ = write!(text, " {claims:?}");
        }
        text
    }

    /// How many groups and keys there are: both only grow.
    #[cfg(debug_assertions)]
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.groups.len(), self.keys.len())
    }
}

impl Key {
    /// The existing nodes in some domains; with `or_none` also those in none.
    fn unite_nodes(&self, domains: &Bits, or_none: bool, nodes: &mut Bits) {
        if or_none {
            nodes.copy_from(&self.nodes_without);
        } else {
            nodes.reset(self.of_node.len());
        }
        if self.values.len() < MANY_DOMAINS {
            domains.ones().for_each(|domain| nodes.union(&self.nodes[domain]));
        } else {
            for (node, domain) in self.of_node.iter().enumerate() {
                if *domain != NONE && domains.contains(*domain as usize) {
                    nodes.insert(node);
                }
            }
        }
    }
}

impl Census {
    /// Whether a planned node counts.
    fn admits_planned(&mut self, template: usize, set: SetId, algebra: &Algebra<'_>) -> bool {
        if !self.templates.contains(template) {
            return false;
        }
        if self.alternatives.is_empty() {
            return true;
        }
        let alternatives = &self.alternatives;
        *self.planned.entry(set).or_insert_with(|| {
            let compatible =
                |wanted: &Requirements| algebra.get(set).compatible(wanted, algebra.well_known()).is_ok();
            alternatives.iter().any(compatible)
        })
    }
}

fn known(positions: &[u32], set: SetId) -> Option<usize> {
    let position = *positions.get(set.index())?;
    (position != NONE).then_some(position as usize)
}

fn remember(positions: &mut Vec<u32>, set: SetId, position: usize) -> usize {
    if positions.len() <= set.index() {
        positions.resize(set.index() + 1, NONE);
    }
    positions[set.index()] = position as u32;
    position
}

/// Tolerations as text, because Kubernetes' type has no order.
fn tolerations_text(tolerations: &[Toleration]) -> String {
    format!("{tolerations:?}")
}
