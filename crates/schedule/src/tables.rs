//! What an engine knows about one Snapshot before it places anything: templates of NodePools, classes of pods after each relaxation, which nodes
//! accept them, interned requirement sets, prices.
//!
//! Tables depend on the Snapshot and the options only. They grow on demand, and never because of where a pod is placed: what a what-if has worked out is
//! true of every other, so nothing here is rolled back. It owns no counts, no free capacity and no memory of failures.

mod attachments;

pub use attachments::LentLimits;
pub(crate) use attachments::{Attachments, are_attachable};

use crate::algebra::{Algebra, SetId};
use crate::bits::Bits;
use crate::options::{MinValuesPolicy, PackOptions};
use crate::relax::{PreferencePolicy, relax, without_preferences};
use crate::template::{Numbers, SkippedPool, Template};
use crate::topology::{Bindings, Shape};
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use spokeshave_model::constraints::Constraints;
use spokeshave_model::placement::{Launch, Launches};
use spokeshave_model::snapshot::{ClassId, NodeView, PoolId, Snapshot};
use spokeshave_model::{Requirements, labels, taint};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Index;
use std::sync::Arc;

/// A class after some steps of relaxation, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VariantId(u32);

impl VariantId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A class after some steps of relaxation.
#[derive(Clone, Debug)]
pub(crate) struct Variant<'a> {
    pub(crate) class: ClassId,
    pub(crate) constraints: Cow<'a, Constraints>,
    /// Requirements with the heaviest preference.
    pub(crate) all: SetId,
    /// What the class asks of nodes without its preferences, one term of node affinity or another: topology counts where any of them holds, also when relaxation
    /// has given up some.
    pub(crate) strict: SetId,
    pub(crate) bindings: Bindings,
    /// No topology rule binds it.
    pub(crate) is_free: bool,
    pub(crate) volume_sets: Vec<SetId>,
    /// Host ports, by number.
    pub(crate) ports: SmallVec<[u32; 2]>,
    /// Existing nodes whose kind accepts it. Most classes have the same.
    pub(crate) nodes: Arc<Bits>,
    /// Templates whose taints it tolerates.
    pub(crate) templates: Bits,
}

/// The variants of a class, in order of relaxation.
#[derive(Clone, Debug, Default)]
struct Class {
    variants: Vec<VariantId>,
    /// No further relaxation exists.
    complete: bool,
}

/// How claims with equal requirements and types are launched.
#[derive(Clone, Debug)]
pub(crate) struct Shortlist {
    pub(crate) launches: Launches,
    pub(crate) capacity_types: BTreeSet<String>,
    pub(crate) requirements: Requirements,
}

/// What depends on the Snapshot and the options only.
#[derive(Clone)]
pub(crate) struct Tables<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) options: &'a PackOptions,
    pub(crate) algebra: Algebra<'a>,
    pub(crate) numbers: Numbers<'a>,
    pub(crate) templates: Vec<Template>,
    pub(crate) topology: Shape<'a>,
    pub(crate) skipped: Vec<(PoolId, SkippedPool)>,
    pub(crate) attachments: Attachments,
    /// The types of a template in order of price under some requirements.
    pub(crate) price_orders: FxHashMap<(usize, SetId), Arc<Vec<Launch>>>,
    pub(crate) shortlists: FxHashMap<(usize, SetId, Bits), Shortlist>,
    /// Nodes that are not marked for deletion.
    pub(crate) unmarked: Bits,
    classes: Vec<Class>,
    pub(crate) variants: Variants<'a>,
    tolerate_prefer_no_schedule: bool,
    kind_nodes: Vec<Bits>,
    accepting: FxHashMap<SetId, Arc<Bits>>,
    /// Nodes without one of the labels that have older names.
    unlabelled: FxHashMap<&'static str, Arc<Bits>>,
}

/// The labels that have older names. What is known of a node's labels goes by these (P-033), because volumes may name them by the older ones; but for the
/// selectors of pods Kubernetes knows no other names.
const RENAMED: [&str; 5] = [
    labels::ZONE,
    labels::REGION,
    labels::ARCH,
    labels::OS,
    labels::INSTANCE_TYPE,
];

/// The labels with older names that are demanded.
fn demanded(asked: &Requirements) -> impl Iterator<Item = &'static str> {
    RENAMED.into_iter().filter(move |key| {
        let asked = asked.find(key);
        asked.is_some_and(|asked| !asked.is_satisfied_by_absence())
    })
}

/// What constraints ask of nodes without their preferences.
fn strict(constraints: &Constraints, algebra: &mut Algebra<'_>) -> SetId {
    let alternatives = constraints.alternatives().into_iter();
    let mut sets: Vec<SetId> = alternatives.map(|one| algebra.intern(one)).collect();
    sets.dedup();
    algebra.any_of(sets)
}

/// Whether a node has what a pod demands by its own name, and not by an older one only.
pub(crate) fn names_what_is_demanded(node: &NodeView, asked: &Requirements) -> bool {
    demanded(asked).all(|key| node.labels.contains_key(key))
}

/// A variant that stands in for those of its class: another set of constraints, to ask whether they would do.
#[must_use = "the class has other constraints until they are restored"]
pub(crate) struct StandIn {
    class: ClassId,
    replaced: Class,
    first: VariantId,
}

/// Variants by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variants<'a>(Vec<Variant<'a>>);

impl<'a> Index<VariantId> for Variants<'a> {
    type Output = Variant<'a>;

    #[inline]
    fn index(&self, variant: VariantId) -> &Variant<'a> {
        &self.0[variant.index()]
    }
}

impl<'a> Index<VariantId> for Tables<'a> {
    type Output = Variant<'a>;

    #[inline]
    fn index(&self, variant: VariantId) -> &Variant<'a> {
        &self.variants[variant]
    }
}

impl<'a> Tables<'a> {
    /// O(nodes + NodePools × instance types).
    pub(crate) fn new(snapshot: &'a Snapshot, options: &'a PackOptions) -> Self {
        let mut algebra = Algebra::new(&snapshot.well_known);
        let mut numbers = Numbers::new();
        let (mut templates, mut skipped) = (Vec::new(), Vec::new());
        let known = &options.tables;
        let relaxes = options.min_values == MinValuesPolicy::BestEffort;
        for pool in (0..snapshot.pools.len()).map(PoolId::from) {
            match Template::build(snapshot, pool, relaxes, &mut algebra, &mut numbers, known) {
                Ok(template) => templates.push(template),
                Err(why) => skipped.push((pool, why)),
            }
        }
        let prefers = |template: &Template| {
            let mut taints = snapshot.pool(template.pool).taints.iter();
            taints.any(|taint| taint.effect == taint::PREFER_NO_SCHEDULE)
        };
        let unmarked = snapshot.nodes.iter().enumerate();
        let unmarked = unmarked.filter(|(_, node)| !node.marked_for_deletion);
        let mut kind_nodes = vec![Bits::new(snapshot.nodes.len()); snapshot.kinds.len()];
        for (index, node) in snapshot.nodes.iter().enumerate() {
            kind_nodes[node.kind.index()].insert(index);
        }
        Tables {
            topology: Shape::new(snapshot, options.tables.values(), &templates, &algebra),
            snapshot,
            options,
            attachments: Attachments::new(snapshot, &templates, &mut numbers),
            price_orders: FxHashMap::with_hasher(FxBuildHasher),
            shortlists: FxHashMap::with_hasher(FxBuildHasher),
            unmarked: Bits::of(snapshot.nodes.len(), unmarked.map(|(index, _)| index)),
            classes: vec![Class::default(); snapshot.classes.len()],
            variants: Variants::default(),
            tolerate_prefer_no_schedule: templates.iter().any(prefers),
            kind_nodes,
            accepting: FxHashMap::with_hasher(FxBuildHasher),
            unlabelled: FxHashMap::with_hasher(FxBuildHasher),
            algebra,
            numbers,
            templates,
            skipped,
        }
    }

    /// A class after some steps of relaxation, if it was asked for before. O(1).
    #[inline]
    pub(crate) fn known_variant(&self, class: ClassId, step: usize) -> Option<VariantId> {
        self.classes[class.index()].variants.get(step).copied()
    }

    /// A class after some steps of relaxation; `None` when it cannot be relaxed that far. Amortised O(1).
    pub(crate) fn variant(&mut self, class: ClassId, step: usize) -> Option<VariantId> {
        loop {
            let known = &self.classes[class.index()];
            if let Some(variant) = known.variants.get(step) {
                return Some(*variant);
            }
            let constraints = match known.variants.last() {
                None => {
                    let original = &self.snapshot.classes[class.index()];
                    match self.options.preferences {
                        PreferencePolicy::Respect => Cow::Borrowed(&**original),
                        PreferencePolicy::Ignore => Cow::Owned(without_preferences(original)),
                    }
                }
                Some(_) if known.complete => return None,
                Some(last) => {
                    let mut relaxed = Constraints::clone(&self[*last].constraints);
                    if !relax(&mut relaxed, self.tolerate_prefer_no_schedule) {
                        self.classes[class.index()].complete = true;
                        return None;
                    }
                    Cow::Owned(relaxed)
                }
            };
            self.add_variant(class, constraints);
        }
    }

    /// A class after all steps of relaxation.
    pub(crate) fn most_relaxed(&mut self, class: ClassId) -> Option<VariantId> {
        let mut step = 0;
        while self.variant(class, step).is_some() {
            step += 1;
        }
        self.classes[class.index()].variants.last().copied()
    }

    /// Gives a class other constraints, until `restore`.
    pub(crate) fn stand_in(&mut self, class: ClassId, constraints: Constraints) -> StandIn {
        let stand_in = StandIn {
            class,
            replaced: std::mem::take(&mut self.classes[class.index()]),
            first: VariantId(self.variants.0.len() as u32),
        };
        let constraints = match self.options.preferences {
            PreferencePolicy::Respect => constraints,
            PreferencePolicy::Ignore => without_preferences(&constraints),
        };
        let has_ports = !constraints.host_ports.is_empty();
        self.add_variant(class, Cow::Owned(constraints));
        if let Some(variant) = self.variants.0.last_mut().filter(|_| !has_ports) {
            variant.ports.clear();
        }
        stand_in
    }

    /// Gives a class its own constraints again. Returns the first variant that is forgotten with this.
    pub(crate) fn restore(&mut self, stand_in: StandIn) -> VariantId {
        let StandIn {
            class,
            replaced,
            first,
        } = stand_in;
        self.classes[class.index()] = replaced;
        self.variants.0.truncate(first.index());
        first
    }

    fn add_variant(&mut self, class: ClassId, constraints: Cow<'a, Constraints>) {
        let variant = self.build_variant(class, constraints);
        let id = VariantId(self.variants.0.len() as u32);
        self.variants.0.push(variant);
        self.classes[class.index()].variants.push(id);
    }

    fn build_variant(&mut self, class: ClassId, constraints: Cow<'a, Constraints>) -> Variant<'a> {
        let all = self.algebra.intern(constraints.all_requirements());
        // Relaxation changes neither what the class asks of nodes without its preferences, nor which taints that keep its pods off it tolerates.
        let first = self.classes[class.index()].variants.first().copied();
        let (whole, strict) = match first {
            Some(first) => (&*self.variants[first].constraints, self.variants[first].strict),
            None => (&*constraints, strict(&constraints, &mut self.algebra)),
        };
        let (templates, algebra) = (&self.templates, &self.algebra);
        let bindings = self
            .topology
            .bind(class, &constraints, (whole, strict), templates, algebra);
        let terms = constraints.volume_terms.iter();
        let volume_sets: Vec<SetId> = terms.map(|term| self.algebra.intern(term.clone())).collect();
        let accepted = self.accepting(all);
        let mut nodes = Bits::clone(&accepted);
        let demanded: SmallVec<[&'static str; RENAMED.len()]> = demanded(self.algebra.get(all)).collect();
        for key in demanded {
            nodes.subtract(&self.unlabelled(key));
        }
        let kinds = self.snapshot.kinds.iter().zip(&self.kind_nodes);
        for (_, members) in kinds.filter(|(kind, _)| {
            !kind.taints.is_empty()
                && taint::first_untolerated(&kind.taints, &constraints.tolerations).is_some()
        }) {
            nodes.subtract(members);
        }
        if !volume_sets.is_empty() {
            let mut reachable = Bits::new(self.snapshot.nodes.len());
            for set in &volume_sets {
                reachable.union(&self.accepting(*set));
            }
            nodes.intersect(&reachable);
        }
        let nodes = if nodes == *accepted {
            accepted
        } else {
            Arc::new(nodes)
        };
        let tolerated = self.templates.iter().enumerate().filter(|(_, template)| {
            let taints = &self.snapshot.pool(template.pool).taints;
            taint::first_untolerated(taints, &constraints.tolerations).is_none()
        });
        // The ports of a class do not change when it is relaxed, and live as long as the Snapshot.
        let ports = &self.snapshot.classes[class.index()].host_ports;
        Variant {
            class,
            nodes,
            templates: Bits::of(self.templates.len(), tolerated.map(|(index, _)| index)),
            is_free: self.topology.is_free(class, &bindings),
            ports: ports.iter().map(|port| self.numbers.port(port)).collect(),
            constraints,
            all,
            strict,
            bindings,
            volume_sets,
        }
    }

    /// The existing nodes that do not have a label by this name.
    fn unlabelled(&mut self, key: &'static str) -> Arc<Bits> {
        let nodes = &self.snapshot.nodes;
        let known = self.unlabelled.entry(key).or_insert_with(|| {
            let without = nodes.iter().enumerate();
            let without = without.filter(|(_, node)| !node.labels.contains_key(key));
            Arc::new(Bits::of(nodes.len(), without.map(|(index, _)| index)))
        });
        Arc::clone(known)
    }

    /// The existing nodes whose labels satisfy a requirement set; undefined keys do not (P §6.4).
    fn accepting(&mut self, set: SetId) -> Arc<Bits> {
        if let Some(known) = self.accepting.get(&set) {
            return Arc::clone(known);
        }
        let asked = self.algebra.get(set);
        let mut nodes = Bits::new(self.snapshot.nodes.len());
        for (kind, members) in self.snapshot.kinds.iter().zip(&self.kind_nodes) {
            if kind.requirements.satisfy(asked) {
                nodes.union(members);
            }
        }
        let nodes = Arc::new(nodes);
        self.accepting.insert(set, Arc::clone(&nodes));
        nodes
    }
}
