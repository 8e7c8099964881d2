//! Attach limits of nodes and of instance types, and the volumes that pods attach, by number (P-117).
//!
//! A type takes as many volumes as that of its nodes which takes the fewest, as far as CSINodes say. A type no node of which says anything takes those of one pod,
//! however many, and for further pods no more than the node that takes the most. Had it no limit, claims would grow beyond all others on types that nobody has
//! seen, and be launched in vain.
//!
//! It knows what a pod would attach, not what is attached to a node or a planned NodeClaim: that changes with every placement, and is `ledger::rooms` and
//! `ledger::claims`.

use crate::bits::Bits;
use crate::template::{Numbers, Template};
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use spokeshave_model::labels;
use spokeshave_model::snapshot::{NodeId, NodeView, PodId, Snapshot};
use std::collections::BTreeMap;

/// Volumes by number.
pub(crate) type Volumes = SmallVec<[u32; 2]>;

/// Limits by driver, of each instance type that has some.
type OfTypes<'a> = BTreeMap<&'a str, BTreeMap<&'a str, i64>>;

/// How many volumes of a driver the variants of a template take.
#[derive(Clone, Debug)]
struct Ceiling {
    driver: u32,
    /// The variants with each limit, the lowest first.
    variants: Vec<(i64, Bits)>,
    /// The most that any node attaches, and the variants that nobody knows a limit of.
    assumed: (i64, Bits),
}

/// Limits of nodes and of templates, and volumes of pods. Without a limit anywhere no volume is looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attachments {
    limits: FxHashMap<NodeId, Vec<(u32, i64)>>,
    /// By template; nothing where no node has a limit.
    ceilings: Vec<Vec<Ceiling>>,
    volumes: FxHashMap<PodId, Volumes>,
    /// Pods that have volumes there, to tell the others apart without a look-up.
    attaching: Bits,
}

/// What nodes say of attach limits that are not their own: of their instance types, and of types that no node says anything of. Values that outlive the
/// Snapshot, for a caller who keeps answers: one about pods with volumes may be another where these differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LentLimits {
    /// By instance type and driver.
    of_types: BTreeMap<String, BTreeMap<String, i64>>,
    /// By driver.
    most: BTreeMap<String, i64>,
}

impl LentLimits {
    /// What nodes say now. O(nodes), and next to nothing where none says anything.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let owned = |limits: BTreeMap<&str, i64>| -> BTreeMap<String, i64> {
            let limits = limits.into_iter();
            limits.map(|(driver, limit)| (driver.to_owned(), limit)).collect()
        };
        let of_types = limits_of_types(snapshot).into_iter();
        LentLimits {
            of_types: of_types
                .map(|(name, limits)| (name.to_owned(), owned(limits)))
                .collect(),
            most: owned(most_of_drivers(snapshot)),
        }
    }
}

/// More volumes than any type attaches: of this driver, so many, of at most so many.
pub(crate) struct TooMany {
    pub(crate) driver: u32,
    pub(crate) count: i64,
    pub(crate) limit: i64,
}

impl Attachments {
    pub(crate) fn new<'a>(snapshot: &'a Snapshot, templates: &[Template], numbers: &mut Numbers<'a>) -> Self {
        let mut attachments = Attachments {
            limits: FxHashMap::with_hasher(FxBuildHasher),
            ceilings: Vec::new(),
            volumes: FxHashMap::with_hasher(FxBuildHasher),
            attaching: Bits::default(),
        };
        if snapshot.nodes.iter().all(|node| node.attach_limits.is_empty()) {
            return attachments;
        }
        let of_types = limits_of_types(snapshot);
        let most = most_of_drivers(snapshot);
        for (index, node) in snapshot.nodes.iter().enumerate() {
            let limits = limits_of(node, &of_types);
            if !limits.is_empty() {
                let limits = limits.into_iter();
                let limits = limits.map(|(driver, limit)| (numbers.driver(driver), limit));
                attachments.limits.insert(NodeId::from(index), limits.collect());
            }
        }
        let ceilings = templates
            .iter()
            .map(|template| ceilings(template, (&of_types, &most), numbers));
        attachments.ceilings = ceilings.collect();
        for (index, view) in snapshot.pods.iter().enumerate() {
            if !view.attachments().is_empty() {
                let volumes = view.attachments().iter();
                let volumes = volumes.map(|(driver, claim)| numbers.attachment(driver, claim));
                attachments.volumes.insert(PodId::from(index), volumes.collect());
                attachments.attaching.insert(index);
            }
        }
        attachments
    }

    /// Whether no node has a limit, so that no volume is looked at.
    pub(crate) fn are_unlimited(&self) -> bool {
        self.limits.is_empty()
    }

    /// What a pod attaches, if it attaches anything and some node has a limit.
    pub(crate) fn of_pod(&self, pod: PodId) -> Option<&Volumes> {
        self.volumes.get(&pod)
    }

    /// What a pod attaches to a planned NodeClaim, as far as it counts there: nothing where no node has a limit.
    #[inline]
    pub(crate) fn of_planned(&self, pod: PodId) -> &[u32] {
        if self.ceilings.is_empty() || !self.attaching.contains(pod.index()) {
            return &[];
        }
        self.of_pod(pod).map_or(&[], |volumes| volumes.as_slice())
    }

    /// The limits of a node by driver, if it has any.
    pub(crate) fn limits(&self, node: NodeId) -> Option<&[(u32, i64)]> {
        self.limits.get(&node).map(Vec::as_slice)
    }

    /// Keeps of a template's variants those that attach what is there and what a further pod brings.
    pub(crate) fn keep_attachable(
        &self,
        candidates: &mut Bits,
        template: usize,
        (attached, more): (&[u32], &[u32]),
        numbers: &Numbers<'_>,
    ) {
        for ceiling in &self.ceilings[template] {
            let Some(count) = count_with(more, attached, ceiling.driver, numbers) else {
                continue;
            };
            let exceeded = ceiling.variants.iter().take_while(|(limit, _)| *limit < count);
            exceeded.for_each(|(_, variants)| candidates.subtract(variants));
            let (most, unknown) = &ceiling.assumed;
            // What is assumed keeps no pod waiting: alone it is tried.
            if !attached.is_empty() && *most < count {
                candidates.subtract(unknown);
            }
        }
    }

    /// Of what driver a pod has more volumes than some type of a template attaches, and how many the largest of those do.
    pub(crate) fn too_many(&self, template: usize, pod: PodId, numbers: &Numbers<'_>) -> Option<TooMany> {
        let more = self.of_planned(pod);
        self.ceilings.get(template)?.iter().find_map(|ceiling| {
            let count = count_with(more, &[], ceiling.driver, numbers)?;
            let exceeded = ceiling.variants.iter().take_while(|(limit, _)| *limit < count);
            let limit = exceeded.last().map(|(limit, _)| *limit)?;
            Some(TooMany {
                driver: ceiling.driver,
                count,
                limit,
            })
        })
    }

    /// Takes a pod's volumes away, to ask whether it would have a place without them; `put_back` ends it.
    pub(crate) fn lift(&mut self, pod: PodId) -> Option<Volumes> {
        self.volumes.remove(&pod)
    }

    /// Gives a pod its volumes again.
    pub(crate) fn put_back(&mut self, pod: PodId, volumes: Volumes) {
        self.volumes.insert(pod, volumes);
    }
}

/// Of the nodes of each type, what the one that attaches the fewest volumes of a driver does.
fn limits_of_types(snapshot: &Snapshot) -> OfTypes<'_> {
    let mut of_types = OfTypes::new();
    for node in snapshot
        .nodes
        .iter()
        .filter(|node| !node.attach_limits.is_empty())
    {
        let Some(name) = node.labels.get(labels::INSTANCE_TYPE) else {
            continue;
        };
        let least = of_types.entry(name.as_str()).or_default();
        for (driver, limit) in &node.attach_limits {
            let known = least.entry(driver.as_str()).or_insert(*limit);
            *known = (*known).min(*limit);
        }
    }
    of_types
}

/// The most that some node attaches of the volumes of each driver.
fn most_of_drivers(snapshot: &Snapshot) -> BTreeMap<&str, i64> {
    let mut most: BTreeMap<&str, i64> = BTreeMap::new();
    for (driver, limit) in snapshot.nodes.iter().flat_map(|node| &node.attach_limits) {
        let known = most.entry(driver.as_str()).or_insert(*limit);
        *known = (*known).max(*limit);
    }
    most
}

/// What a node attaches at most: what its CSINode says, and where that says nothing of a driver, what others of its type do. A driver that has come late, which
/// may be after the node was initialised, is one that has yet to say it; one without a limit has none on any node of the type.
fn limits_of<'a>(node: &'a NodeView, of_types: &OfTypes<'a>) -> BTreeMap<&'a str, i64> {
    let own = node.attach_limits.iter();
    let mut limits: BTreeMap<&str, i64> = own.map(|(driver, limit)| (driver.as_str(), *limit)).collect();
    let name = node.labels.get(labels::INSTANCE_TYPE);
    let of_type = name.and_then(|name| of_types.get(name.as_str()));
    for (driver, limit) in of_type.into_iter().flatten() {
        limits.entry(*driver).or_insert(*limit);
    }
    limits
}

/// How many volumes of each driver the variants of a template take.
fn ceilings<'a>(
    template: &Template,
    (of_types, most): (&OfTypes<'a>, &BTreeMap<&'a str, i64>),
    numbers: &mut Numbers<'a>,
) -> Vec<Ceiling> {
    let of_driver = |(&driver, &most): (&&'a str, &i64)| {
        let mut by_limit: BTreeMap<i64, Bits> = BTreeMap::new();
        let mut unknown = Bits::default();
        for (variant, name) in template.variant_types() {
            match of_types.get(name).and_then(|limits| limits.get(driver)) {
                Some(limit) => by_limit.entry(*limit).or_default().insert(variant),
                None => unknown.insert(variant),
            }
        }
        Ceiling {
            driver: numbers.driver(driver),
            variants: by_limit.into_iter().collect(),
            assumed: (most, unknown),
        }
    };
    most.iter().map(of_driver).collect()
}

/// How many volumes of a driver there would be with some more; `None` where these bring none. The same claim used by several pods counts once.
fn count_with(more: &[u32], attached: &[u32], driver: u32, numbers: &Numbers<'_>) -> Option<i64> {
    let of_driver = |volume: &&u32| numbers.driver_of(**volume) == driver;
    let new = more
        .iter()
        .filter(of_driver)
        .filter(|volume| !attached.contains(*volume))
        .count();
    if new == 0 {
        return None;
    }
    let present = attached.iter().filter(of_driver).count();
    Some(i64::try_from(present + new).unwrap_or(i64::MAX))
}

/// Whether attach limits admit further volumes.
pub(crate) fn are_attachable(
    limits: &[(u32, i64)],
    attached: &[u32],
    more: &[u32],
    numbers: &Numbers<'_>,
) -> bool {
    limits.iter().all(|(driver, limit)| {
        let count = count_with(more, attached, *driver, numbers);
        count.is_none_or(|count| count <= *limit)
    })
}
