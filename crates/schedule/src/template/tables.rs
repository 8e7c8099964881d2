//! Indexes of instance types that outlive a Snapshot: a NodePool's types stay the same for minutes, and indexing hundreds of them costs more than
//! most placements. With them go the labels of nodes, which stay the same as well.
//!
//! It remembers and forgets; what an index says follows from its instance types and the names of resources alone, so that nothing decided can
//! depend on whether one was remembered.

use super::TypeIndex;
use crate::topology::ValueTables;
use spokeshave_model::InstanceType;
use spokeshave_model::vector::ResourceTable;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// At most so many indexes are kept; the oldest goes first.
const MOST: usize = 256;

/// Indexes of instance types, shared by all clones. Two are always equal: they hold nothing that could not be made again.
#[derive(Clone, Default)]
pub struct TypeTables {
    indexes: Arc<Mutex<Vec<Arc<TypeIndex>>>>,
    values: ValueTables,
}

impl TypeTables {
    /// The labels of nodes.
    pub(crate) fn values(&self) -> &ValueTables {
        &self.values
    }

    /// The index of these instance types, which are the same as long as they are the same allocation.
    pub(super) fn index(&self, types: &Arc<[InstanceType]>, table: &ResourceTable) -> Arc<TypeIndex> {
        let known = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.iter().find(|index| index.is_of(types, table)) {
            return Arc::clone(known);
        }
        drop(known);
        // Others may look things up meanwhile; two that make the same index make equal ones.
        let made = Arc::new(TypeIndex::new(types, table));
        let mut known = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        // What only its index still holds belongs to no Snapshot any more.
        known.retain(|index| Arc::strong_count(&index.types) > 1);
        if known.len() >= MOST {
            known.remove(0);
        }
        known.push(Arc::clone(&made));
        made
    }
}

impl fmt::Debug for TypeTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TypeTables")
    }
}

impl PartialEq for TypeTables {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for TypeTables {}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_example::fake_instance_types;
    use spokeshave_model::Resources;

    fn kept(tables: &TypeTables) -> usize {
        tables
            .indexes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    #[test]
    fn an_index_is_made_once_for_each_allocation_and_table_of_resources() {
        let tables = TypeTables::default();
        let (one, other): (Arc<[InstanceType]>, Arc<[InstanceType]>) =
            (fake_instance_types(4).into(), fake_instance_types(4).into());
        let gpu = Resources::from_amounts([("example.com/gpu", 1)]);
        let (plain, wide) = (ResourceTable::new([]), ResourceTable::new([&gpu]));
        let first = tables.index(&one, &plain);
        assert!(Arc::ptr_eq(&first, &tables.clone().index(&one, &plain)));
        assert!(!Arc::ptr_eq(&first, &tables.index(&other, &plain)));
        assert!(!Arc::ptr_eq(&first, &tables.index(&one, &wide)));
        assert_eq!(kept(&tables), 3);
    }

    #[test]
    fn types_that_no_snapshot_has_any_more_are_forgotten() {
        let tables = TypeTables::default();
        let plain = ResourceTable::new([]);
        for _ in 0..3 {
            let types: Arc<[InstanceType]> = fake_instance_types(2).into();
            drop(tables.index(&types, &plain));
        }
        assert_eq!(
            kept(&tables),
            1,
            "the last one is forgotten when the next is made"
        );
    }
}
