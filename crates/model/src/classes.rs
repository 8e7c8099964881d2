//! The classes of a Snapshot, and what is looked for among them again and again.
//!
//! Clones share the list, so that whoever keeps one from Snapshot to Snapshot sees at once that it is the same, and what was found among them stays found. It
//! owns the classes; which pods are of which class is the Snapshot's.

use crate::constraints::{Constraints, PodTerm};
use crate::selector::Selector;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// A class of pods with equal constraints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

impl ClassId {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl From<usize> for ClassId {
    fn from(index: usize) -> Self {
        // A Snapshot never holds four billion of anything: memory ends long before.
        ClassId(index as u32)
    }
}

/// Classes by number.
#[derive(Clone, Debug, Default)]
pub struct Classes(Arc<List>);

#[derive(Debug, Default)]
struct List {
    classes: Vec<Arc<Constraints>>,
    kinds: OnceLock<Kinds>,
    labelled: OnceLock<ByLabel>,
    counting: OnceLock<Counting>,
}

/// Classes by a label and its value.
type ByLabel = FxHashMap<String, FxHashMap<String, Vec<ClassId>>>;

/// Classes with rules that count pods, by labels that those must have.
#[derive(Debug, Default)]
struct Counting {
    by_label: ByLabel,
    /// With rules that ask for no label of a certain value.
    others: Vec<ClassId>,
}

/// Which classes have what few have.
#[derive(Debug, Default)]
struct Kinds {
    has_virtual: bool,
    has_host_ports: bool,
    ruled: Vec<ClassId>,
    repelling: Vec<ClassId>,
}

impl Clone for List {
    /// With nothing found: the clone is about to change.
    fn clone(&self) -> Self {
        List {
            classes: self.classes.clone(),
            ..List::default()
        }
    }
}

impl Deref for Classes {
    type Target = [Arc<Constraints>];

    #[inline]
    fn deref(&self) -> &[Arc<Constraints>] {
        &self.0.classes
    }
}

impl PartialEq for Classes {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.classes == other.0.classes
    }
}

impl Eq for Classes {}

impl From<Vec<Arc<Constraints>>> for Classes {
    fn from(classes: Vec<Arc<Constraints>>) -> Self {
        Classes(Arc::new(List {
            classes,
            ..List::default()
        }))
    }
}

impl Classes {
    /// One more, behind all others.
    pub(crate) fn push(&mut self, class: Arc<Constraints>) {
        let mut list = self.take();
        list.push(class);
        *self = Classes::from(list);
    }

    /// The list, to be changed: copied where somebody else has it.
    pub(crate) fn take(&mut self) -> Vec<Arc<Constraints>> {
        Arc::unwrap_or_clone(std::mem::take(&mut self.0)).classes
    }

    /// Virtual pods are among them (P-186).
    pub fn has_virtual(&self) -> bool {
        self.kinds().has_virtual
    }

    /// Some open host ports.
    pub fn has_host_ports(&self) -> bool {
        self.kinds().has_host_ports
    }

    /// Those for which some rule of topology counts pods, in order.
    pub fn ruled(&self) -> &[ClassId] {
        &self.kinds().ruled
    }

    /// Those with required anti-affinity, in order.
    pub fn repelling(&self) -> &[ClassId] {
        &self.kinds().repelling
    }

    /// Those with a label of this value, in order.
    pub fn labelled(&self, key: &str, value: &str) -> &[ClassId] {
        let labelled = self.0.labelled.get_or_init(|| self.find_labelled());
        let classes = labelled.get(key).and_then(|values| values.get(value));
        classes.map_or(&[], Vec::as_slice)
    }

    /// Those that a selector selects by their labels, in order.
    pub fn selected(&self, selector: &Selector) -> Vec<ClassId> {
        let matches = |class: &ClassId| selector.matches(&self[class.index()].labels);
        let Some((key, values)) = selector.wanted() else {
            return (0..self.len()).map(ClassId::from).filter(matches).collect();
        };
        let labelled = values.iter().map(|value| self.labelled(key, value));
        let mut found: Vec<ClassId> = labelled.flatten().copied().filter(matches).collect();
        found.sort_unstable();
        found
    }

    /// Those with a rule of topology that may count pods with these labels, in order: all that do, and others that it cannot be seen of without a closer look.
    pub fn may_count(&self, labels: &BTreeMap<String, String>) -> Vec<ClassId> {
        let counting = self.0.counting.get_or_init(|| self.find_counting());
        let by_label = labels.iter().filter_map(|(key, value)| {
            let values = counting.by_label.get(key)?;
            values.get(value)
        });
        let mut found: Vec<ClassId> = by_label.chain([&counting.others]).flatten().copied().collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn find_counting(&self) -> Counting {
        let mut counting = Counting::default();
        for id in self.ruled() {
            let class = &self[id.index()];
            let spreads = class.spreads.iter().map(|spread| &spread.selector);
            for selector in spreads.chain(class.topology_terms().map(|term| &term.selector)) {
                match selector.wanted() {
                    Some((key, values)) => {
                        for value in values {
                            note(&mut counting.by_label, key, value, *id);
                        }
                    }
                    None => counting.others.push(*id),
                }
            }
        }
        counting
    }

    fn kinds(&self) -> &Kinds {
        self.0.kinds.get_or_init(|| {
            let mut kinds = Kinds::default();
            for (class, id) in self.iter().zip((0..).map(ClassId)) {
                kinds.has_virtual |= class.is_virtual;
                kinds.has_host_ports |= !class.host_ports.is_empty();
                if class.has_topology_rules() {
                    kinds.ruled.push(id);
                }
                if !class.anti_affinity.is_empty() {
                    kinds.repelling.push(id);
                }
            }
            kinds
        })
    }

    fn find_labelled(&self) -> ByLabel {
        let mut labelled = ByLabel::with_hasher(FxBuildHasher);
        for (class, id) in self.iter().zip((0..).map(ClassId)) {
            for (key, value) in &class.labels {
                note(&mut labelled, key, value, id);
            }
        }
        labelled
    }
}

fn note(by_label: &mut ByLabel, key: &str, value: &str, class: ClassId) {
    if !by_label.contains_key(key) {
        by_label.insert(key.to_owned(), FxHashMap::default());
    }
    let Some(values) = by_label.get_mut(key) else {
        return;
    };
    match values.get_mut(value) {
        Some(classes) => classes.push(class),
        None => drop(values.insert(value.to_owned(), vec![class])),
    }
}

impl Constraints {
    /// Whether some rule of topology counts pods on its behalf.
    pub fn has_topology_rules(&self) -> bool {
        !self.spreads.is_empty() || self.topology_terms().next().is_some()
    }

    /// All terms of affinity and anti-affinity, preferred ones included.
    pub fn topology_terms(&self) -> impl Iterator<Item = &PodTerm> {
        let preferred = self
            .preferred_affinity
            .iter()
            .chain(&self.preferred_anti_affinity);
        let required = self.affinity.iter().chain(&self.anti_affinity);
        required.chain(preferred.map(|(_, term)| term))
    }
}
