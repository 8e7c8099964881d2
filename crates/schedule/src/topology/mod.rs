//! Topology spread, pod affinity and pod anti-affinity as counters per domain (P §6.8).
//!
//! A *group* is shared by all pods that are constrained in the same way. Domains of a label key are dense numbers; a host's own domain is
//! its number, so that hostname groups need no names. `Shape` says which groups, keys and domains there are: it depends on the Snapshot only.
//! `Counts` says how many pods are where. Every change of it can be undone exactly, also in groups that were added later: counts follow from
//! which pods count where, not from the order of events. `Choice` finds the domains that counts leave to a pod. Complexity: choosing a domain is
//! O(domains of the key); recording a placement, or undoing it, is O(groups that select the pod's class).
//!
//! Where a planned node may be in several domains, each group first chooses by itself (`choose`): a spread the first of those with the fewest pods, the first of
//! pods that want their own kind near them the first of all. That is fast, and what upstream does but for its dice. Pods that would be left over with it, because
//! another group does not admit that domain or nothing large enough is for sale there, are tried again: then all groups are asked before a domain is named, and
//! one is named after the other (`ways`). So all others go where they always went.

mod build;
mod choose;
mod count;
mod explain;
mod group;
mod hosts;
mod values;
mod ways;

pub(crate) use choose::Choice;
pub(crate) use count::Counts;
pub(crate) use values::ValueTables;
pub(crate) use ways::Ways;

use crate::algebra::{Algebra, SetId};
use crate::bits::Bits;
use crate::template::Template;
use build::Term;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::Requirements;
use spokeshave_model::reason::TopologyKind;
use spokeshave_model::selector::Selector;
use spokeshave_model::snapshot::{ClassId, KindId, NodeId, Snapshot};
use spokeshave_model::taint::Toleration;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// No domain, or not worked out yet.
const NONE: u32 = u32::MAX;

/// From this many domains on, the nodes of a set of domains are found by looking at each node.
const MANY_DOMAINS: usize = 64;

/// A group's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupId(u32);

/// Which nodes count for a spread constraint (P §6.8, node filter).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Filter {
    /// Where the pods may be; none when nothing is asked.
    asked: Option<SetId>,
    /// Nodes where the pods may not be count all the same: nodeAffinityPolicy is Ignore.
    ignores_asked: bool,
    /// What the pods tolerate; none where it does not matter. Kept as text, because Kubernetes' type has no hash.
    tolerations: Option<String>,
    /// Nodes with taints that the pods do not tolerate count all the same: nodeTaintsPolicy is Ignore.
    ignores_taints: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity<'a> {
    kind: Kind,
    key: Cow<'a, str>,
    namespaces: Namespaces<'a>,
    max_skew: i32,
    min_domains: Option<i32>,
    selector: Cow<'a, Selector>,
    filter: Filter,
    /// Whose it is: that of virtual pods sees more.
    is_virtual: bool,
}

/// Where pods are counted. Constraints are lent for as long as the Snapshot lives, unless they were relaxed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Namespaces<'a> {
    /// Of a spread.
    One(Cow<'a, str>),
    /// Of a term.
    Several(Cow<'a, BTreeSet<String>>),
}

impl Filter {
    /// Where the pods may be, any of these; empty when nothing is asked.
    fn asked(&self, algebra: &Algebra<'_>) -> Vec<Requirements> {
        let Some(asked) = self.asked else {
            return Vec::new();
        };
        match algebra.alternatives(asked) {
            [] => vec![algebra.get(asked).clone()],
            several => several.iter().map(|one| algebra.get(*one).clone()).collect(),
        }
    }

    /// Whether nodes count wherever the pods may be.
    fn counts_everywhere(&self) -> bool {
        self.ignores_asked || self.asked.is_none()
    }
}

impl Namespaces<'_> {
    fn contain(&self, namespace: &str) -> bool {
        match self {
            Namespaces::One(one) => one == namespace,
            Namespaces::Several(several) => several.contains(namespace),
        }
    }
}

impl Identity<'_> {
    fn into_owned<'a>(self) -> Identity<'a> {
        Identity {
            key: Cow::Owned(self.key.into_owned()),
            namespaces: match self.namespaces {
                Namespaces::One(one) => Namespaces::One(Cow::Owned(one.into_owned())),
                Namespaces::Several(several) => Namespaces::Several(Cow::Owned(several.into_owned())),
            },
            selector: Cow::Owned(self.selector.into_owned()),
            kind: self.kind,
            max_skew: self.max_skew,
            min_domains: self.min_domains,
            filter: self.filter,
            is_virtual: self.is_virtual,
        }
    }
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

/// The rule of a group. There is one in each group's counts, so that counting looks at one place in memory; what groups have in common is in their
/// census.
#[derive(Clone, Copy, Debug)]
struct Rule {
    kind: Kind,
    /// The label key, as a number; `None` for hostname.
    key: Option<u32>,
    census: u32,
    /// Whether nodes count that the pods' own node selectors exclude: nodeAffinityPolicy is Ignore, or they have none.
    counts_all_nodes: bool,
    max_skew: u32,
    min_domains: Option<u32>,
}

/// Which nodes a filter admits, and in which domains of a key there are such nodes. Shared by groups.
#[derive(Clone, Debug)]
struct Census {
    key: Option<usize>,
    kinds: Bits,
    templates: Bits,
    alternatives: Vec<Requirements>,
    planned: FxHashMap<SetId, bool>,
    /// Domains that some NodePool offers the pods: those in which it can have a node that they may use.
    offered: Bits,
}

#[derive(Clone, Debug)]
struct Key {
    name: String,
    values: Vec<String>,
    /// Domain of each existing node.
    of_node: Vec<u32>,
    /// Existing nodes of each domain, and those that are in none and will not be in one.
    nodes: Vec<Bits>,
    nodes_without: Bits,
    /// Stand-ins of NodeClaims of which it is open in which of these domains they will be; the greatest number first.
    open: Vec<(NodeId, Bits)>,
    /// No node has a label with this key, and no NodePool gives its nodes one.
    is_unknown: bool,
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
    pub(crate) is_final: bool,
}

/// The groups a pod is bound by, besides others' anti-affinity, and whether it counts in each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings {
    pub(crate) groups: Vec<(GroupId, bool)>,
}

/// Which groups, keys and domains there are. It grows with what is asked, never with what is placed.
#[derive(Clone, Debug)]
pub(crate) struct Shape<'a> {
    snapshot: &'a Snapshot,
    values: &'a ValueTables,
    /// Of each node, side by side, because every count asks for it.
    kind_of: Vec<KindId>,
    /// Nodes that are registered and not marked for deletion.
    standing: Bits,
    keys: Vec<Key>,
    key_ids: BTreeMap<String, usize>,
    rules: Vec<Rule>,
    /// Per group: the classes whose pods count in it.
    members: Vec<Vec<ClassId>>,
    censuses: Vec<Census>,
    census_ids: FxHashMap<(Option<usize>, Filter), usize>,
    identities: FxHashMap<Identity<'a>, GroupId>,
    /// Per class: the groups (not inverse) whose selector matches it.
    selecting: Vec<Vec<GroupId>>,
    /// Per class: the inverse groups whose selector matches it.
    inverse_selecting: Vec<Vec<GroupId>>,
    /// Per class: the inverse groups of its own required anti-affinity.
    inverse_owned: Vec<Vec<GroupId>>,
}

impl<'a> Shape<'a> {
    /// Registers every required anti-affinity there is (P-110), so that which groups exist does not depend on what is asked later.
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        values: &'a ValueTables,
        templates: &[Template],
        algebra: &Algebra<'_>,
    ) -> Self {
        let classes = snapshot.classes.len();
        let standing = snapshot.nodes.iter().enumerate();
        let standing = standing.filter(|(_, node)| node.registered && !node.marked_for_deletion);
        let mut shape = Shape {
            kind_of: snapshot.nodes.iter().map(|node| node.kind).collect(),
            standing: Bits::of(snapshot.nodes.len(), standing.map(|(index, _)| index)),
            snapshot,
            values,
            keys: Vec::new(),
            key_ids: BTreeMap::new(),
            rules: Vec::new(),
            members: Vec::new(),
            censuses: Vec::new(),
            census_ids: FxHashMap::with_hasher(FxBuildHasher),
            identities: FxHashMap::with_hasher(FxBuildHasher),
            selecting: vec![Vec::new(); classes],
            inverse_selecting: vec![Vec::new(); classes],
            inverse_owned: vec![Vec::new(); classes],
        };
        for id in snapshot.classes.repelling() {
            let (index, class) = (id.index(), &snapshot.classes[id.index()]);
            for term in &class.anti_affinity {
                let group = shape.term_group(
                    Kind::Inverse,
                    Term::of(term),
                    class,
                    |identity| identity,
                    templates,
                    algebra,
                );
                if !shape.inverse_owned[index].contains(&group) {
                    shape.inverse_owned[index].push(group);
                    shape.members[group.0 as usize].push(*id);
                }
            }
        }
        shape
    }

    /// Whether nothing binds a pod of this class.
    pub(crate) fn is_free(&self, class: ClassId, bindings: &Bindings) -> bool {
        bindings.groups.is_empty() && self.inverse_selecting[class.index()].is_empty()
    }

    /// Lifts others' anti-affinity from a class, until it is put back.
    pub(crate) fn take_inverse(&mut self, class: ClassId) -> Vec<GroupId> {
        std::mem::take(&mut self.inverse_selecting[class.index()])
    }

    /// Puts back what was taken.
    pub(crate) fn put_inverse(&mut self, class: ClassId, groups: Vec<GroupId>) {
        self.inverse_selecting[class.index()] = groups;
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

    /// Domains that a requirement set allows, or any of those that it stands for. A position in the key's `sets`.
    fn allowed(&mut self, key: usize, set: SetId, algebra: &Algebra<'_>) -> usize {
        if let Some(known) = known(&self.keys[key].allowed_of, set) {
            return known;
        }
        let alternatives = algebra.alternatives(set);
        let allowed = if alternatives.is_empty() {
            self.keys[key].allowed_by(algebra.get(set))
        } else {
            let mut allowed = Bits::new(self.keys[key].values.len());
            for one in alternatives {
                let one = self.allowed(key, *one, algebra);
                allowed.union(&self.keys[key].sets[one]);
            }
            allowed
        };
        let key = &mut self.keys[key];
        key.sets.push(allowed);
        remember(&mut key.allowed_of, set, key.sets.len() - 1)
    }
}

impl Key {
    /// Its domains that requirements allow.
    fn allowed_by(&self, requirements: &Requirements) -> Bits {
        let requirement = requirements.get(&self.name);
        let values = self.values.iter().enumerate();
        let members = values.filter(|(_, value)| requirement.has(value));
        Bits::of(self.values.len(), members.map(|(index, _)| index))
    }

    /// The domains that a stand-in without a domain of its own may be in.
    fn open_domains(&self, node: NodeId) -> impl Iterator<Item = usize> + '_ {
        let known = self.open.binary_search_by(|(other, _)| node.cmp(other));
        known.into_iter().flat_map(move |at| self.open[at].1.ones())
    }

    /// The existing nodes in some domains; with `or_none` also those in none, and those that will be in one of these, whichever it is. Only some words, in a
    /// set with room for all nodes.
    fn unite_nodes(&self, domains: &Bits, or_none: bool, words: Range<usize>, nodes: &mut Bits) {
        nodes.clear_words(words.clone());
        if or_none {
            nodes.union_words(&self.nodes_without, words.clone());
            let from = self
                .open
                .partition_point(|(node, _)| node.index() >= words.end * 64);
            let open = self.open[from..].iter();
            for (node, possible) in open.take_while(|(node, _)| node.index() >= words.start * 64) {
                if possible.ones().all(|domain| domains.contains(domain)) {
                    nodes.insert(node.index());
                }
            }
        }
        if self.values.len() < MANY_DOMAINS {
            for domain in domains.ones() {
                nodes.union_words(&self.nodes[domain], words.clone());
            }
            return;
        }
        let first = words.start * 64;
        let members = self.of_node.iter().enumerate().take(words.end * 64).skip(first);
        for (node, domain) in members {
            if *domain != NONE && domains.contains(*domain as usize) {
                nodes.insert(node);
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
