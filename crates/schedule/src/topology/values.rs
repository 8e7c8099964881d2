//! The values of label keys on all nodes, which outlive a Snapshot: nodes keep their labels, and to look one up on each of thousands takes longer than to
//! place the pods of some.
//!
//! It remembers and forgets; labels follow from the objects of a node alone, so that nothing decided can depend on whether they were remembered. Objects are
//! told apart by their addresses: while they are held here no other has the same.

use super::NONE;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::snapshot::{NodeView, Snapshot};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// At most the values of so many keys are kept; those that nobody has asked for for longest go first.
const MOST: usize = 16;

/// Values of labels, shared by all clones.
#[derive(Clone, Default)]
pub(crate) struct ValueTables(Arc<Mutex<Vec<Arc<Values>>>>);

/// The values of one key.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    key: String,
    objects: Vec<Objects>,
    /// By node, the number of its value; `NONE` without one.
    pub(super) of_node: Vec<u32>,
    /// Values by number, each of them some node's.
    pub(super) values: Vec<String>,
}

/// An object, which is only held and told apart from others.
type Object = Arc<dyn Any + Send + Sync>;

/// What the labels of a node follow from: its Node and its NodeClaim.
#[derive(Clone, Debug)]
struct Objects(Option<Object>, Option<Object>);

impl Objects {
    fn of(view: &NodeView) -> Self {
        let (node, claim) = (view.node.clone(), view.claim.clone());
        Objects(
            node.map(|node| node as Object),
            claim.map(|claim| claim as Object),
        )
    }

    #[inline]
    fn are_of(&self, view: &NodeView) -> bool {
        fn is_same<T>(one: Option<&Object>, other: Option<&Arc<T>>) -> bool {
            let one = one.map(|one| Arc::as_ptr(one).cast::<()>());
            one == other.map(|other| Arc::as_ptr(other).cast::<()>())
        }
        is_same(self.0.as_ref(), view.node.as_ref())
            && is_same(self.1.as_ref(), view.claim.as_ref())
            && (self.0.is_some() || self.1.is_some())
    }
}

impl ValueTables {
    /// The values of a key in a Snapshot. O(nodes) to compare each by address; objects that have changed while their labels have not, as kubelets change them all
    /// the time, cost no more than that.
    pub(super) fn of(&self, snapshot: &Snapshot, key: &str) -> Arc<Values> {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = tables.iter().position(|values| values.key == key);
        let mut values = match at {
            Some(at) => tables.remove(at),
            None => Arc::default(),
        };
        if at.is_none() && tables.len() >= MOST {
            tables.remove(0);
        }
        match values.other_objects(snapshot) {
            Some(others) if others.is_empty() => {}
            Some(others) => {
                let known = Arc::make_mut(&mut values);
                for index in others {
                    known.objects[index] = Objects::of(&snapshot.nodes[index]);
                }
            }
            None => values = Arc::new(values.renewed(snapshot, key)),
        }
        tables.push(Arc::clone(&values));
        values
    }
}

impl Values {
    /// Where a Snapshot has other objects, if the values are those of its nodes; none when they are not.
    fn other_objects(&self, snapshot: &Snapshot) -> Option<Vec<usize>> {
        if self.key.is_empty() || self.objects.len() != snapshot.nodes.len() {
            return None;
        }
        let both = self.objects.iter().zip(&snapshot.nodes).enumerate();
        let others = both.filter(|(_, (objects, view))| !objects.are_of(view));
        others
            .map(|(index, (_, view))| {
                let known = self.values.get(self.of_node[index] as usize);
                (known == view.labels.get(&self.key)).then_some(index)
            })
            .collect()
    }

    /// Those of another Snapshot: labels are looked up of nodes that are not where they were with the same objects.
    fn renewed(&self, snapshot: &Snapshot, key: &str) -> Self {
        let mut numbers: FxHashMap<&str, u32> = FxHashMap::with_hasher(FxBuildHasher);
        let mut made = Values {
            key: key.to_owned(),
            ..Values::default()
        };
        for (index, view) in snapshot.nodes.iter().enumerate() {
            let is_known = self
                .objects
                .get(index)
                .is_some_and(|objects| objects.are_of(view));
            let value = if is_known {
                self.values.get(self.of_node[index] as usize)
            } else {
                view.labels.get(key)
            };
            let next = made.values.len() as u32;
            let number = value.map_or(NONE, |value| *numbers.entry(value).or_insert(next));
            if number == next {
                made.values.extend(value.cloned());
            }
            made.of_node.push(number);
            made.objects.push(Objects::of(view));
        }
        made
    }
}

impl fmt::Debug for ValueTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueTables")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;
    use spokeshave_example::{Dice, random_world};
    use spokeshave_model::{labels, lower};

    fn are_right(values: &Values, snapshot: &Snapshot, key: &str) {
        let found = values
            .of_node
            .iter()
            .map(|number| values.values.get(*number as usize));
        let labels = snapshot.nodes.iter().map(|node| node.labels.get(key));
        assert!(found.eq(labels), "{values:?}");
        let used = |number: usize| values.of_node.iter().any(|other| *other as usize == number);
        assert!((0..values.values.len()).all(used), "a value is some node's");
    }

    #[test]
    fn values_are_those_of_the_nodes_whatever_was_there_before() {
        let tables = ValueTables::default();
        for seed in 0..40 {
            let mut state = random_world(seed);
            let mut dice = Dice(seed);
            for _ in 0..6 {
                let snapshot = lower(&state);
                for key in [labels::ZONE, labels::INSTANCE_TYPE, "nobody/has-it"] {
                    let values = tables.of(&snapshot, key);
                    are_right(&values, &snapshot, key);
                    assert!(
                        Arc::ptr_eq(&values, &tables.of(&lower(&state), key)),
                        "the same objects have the same labels"
                    );
                }
                if state.nodes.is_empty() {
                    break;
                }
                let index = dice.below(state.nodes.len());
                if dice.below(3) == 0 {
                    state.nodes.remove(index);
                } else {
                    let mut node = Node::clone(&state.nodes[index]);
                    if dice.below(2) == 0 {
                        let zone = format!("zone-{}", dice.below(3));
                        let labels = node.metadata.labels.get_or_insert_default();
                        labels.insert(labels::ZONE.to_owned(), zone);
                    }
                    state.nodes[index] = Arc::new(node);
                }
            }
        }
    }

    #[test]
    fn the_key_that_nobody_has_asked_for_for_longest_goes() {
        let tables = ValueTables::default();
        let snapshot = lower(&random_world(3));
        let keys: Vec<String> = (0..=MOST).map(|number| format!("key-{number}")).collect();
        for key in keys.iter().take(MOST) {
            tables.of(&snapshot, key);
        }
        let first = tables.of(&snapshot, &keys[0]);
        tables.of(&snapshot, &keys[MOST]);
        let kept = tables.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        assert_eq!(kept.len(), MOST);
        assert!(kept.iter().all(|values| values.key != keys[1]));
        assert!(kept.iter().any(|values| Arc::ptr_eq(values, &first)));
    }
}
