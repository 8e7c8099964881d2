//! Steps of a path and what lies below them, in order. Most have a handful of members, for which a vector is smaller and faster than a tree.

use crate::fields::field_set::{Fields, Step};

/// A sorted map from steps to sets of fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StepMap(Vec<(Step, Fields)>);

impl StepMap {
    fn find(&self, step: &str) -> Result<usize, usize> {
        // Members mostly come in their order.
        match self.0.last() {
            Some((last, _)) if last.as_str() < step => Err(self.0.len()),
            _ => self.0.binary_search_by(|(known, _)| known.as_str().cmp(step)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, step: &str) -> Option<&Fields> {
        self.find(step).ok().map(|index| &self.0[index].1)
    }

    pub(crate) fn get_mut(&mut self, step: &str) -> Option<&mut Fields> {
        self.find(step).ok().map(|index| &mut self.0[index].1)
    }

    pub(crate) fn insert(&mut self, step: Step, fields: Fields) {
        match self.find(&step) {
            Ok(index) => self.0[index].1 = fields,
            Err(index) => self.0.insert(index, (step, fields)),
        }
    }

    /// What is below a step, empty if it is new.
    pub(crate) fn entry(&mut self, step: &str) -> &mut Fields {
        let index = self.find(step).unwrap_or_else(|index| {
            self.0.insert(index, (step.to_owned(), Fields::default()));
            index
        });
        &mut self.0[index].1
    }

    pub(crate) fn remove(&mut self, step: &str) -> Option<Fields> {
        self.find(step).ok().map(|index| self.0.remove(index).1)
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&str, &mut Fields) -> bool) {
        self.0.retain_mut(|(step, fields)| keep(step, fields));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Step, &Fields)> {
        self.0.iter().map(|(step, fields)| (step, fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn fields(own: bool) -> Fields {
        Fields {
            own,
            below: StepMap::default(),
        }
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_map(changes in prop::collection::vec(("[a-e]{1,2}", 0..4_u8), 0..40)) {
            let (mut ours, mut tree) = (StepMap::default(), BTreeMap::new());
            for (step, what) in changes {
                match what {
                    0 => {
                        ours.insert(step.clone(), fields(true));
                        tree.insert(step, fields(true));
                    }
                    1 => {
                        ours.entry(&step).own = true;
                        tree.entry(step).or_insert_with(|| fields(false)).own = true;
                    }
                    2 => prop_assert_eq!(ours.remove(&step), tree.remove(&step)),
                    _ => prop_assert_eq!(ours.get(&step), tree.get(&step)),
                }
                prop_assert!(ours.iter().eq(tree.iter()));
            }
        }
    }
}
