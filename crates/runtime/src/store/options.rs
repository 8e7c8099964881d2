//! How a store processes objects of its kind. It knows nothing of where they come from.

use std::fmt;

use kube::Resource;
use serde_json::Value;

/// How a store processes objects.
pub struct StoreOptions<K> {
    /// Drops unused fields before the object is stored. The default drops `managedFields`.
    pub trim: fn(&mut K),
    /// Whether two trimmed objects of one resourceVersion say the same. An object that says what the one before said takes its place, but counts as
    /// no change and handlers are not called: heartbeats of kubelets cost nothing. The default compares everything that is left after trimming.
    pub same: fn(&K, &K) -> bool,
    /// What stands in for an object that does not decode, where leaving it out would be worse. The default leaves it out.
    pub stand_in: Option<fn(&Value) -> Option<K>>,
}

impl<K> Clone for StoreOptions<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for StoreOptions<K> {}

impl<K: Resource + PartialEq> Default for StoreOptions<K> {
    fn default() -> Self {
        Self::trimmed(|object| object.meta_mut().managed_fields = None)
    }
}

impl<K: PartialEq> StoreOptions<K> {
    /// Drops what `trim` drops, and compares all that is left.
    #[must_use]
    pub fn trimmed(trim: fn(&mut K)) -> Self {
        Self {
            trim,
            same: K::eq,
            stand_in: None,
        }
    }
}

impl<K> fmt::Debug for StoreOptions<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions").finish_non_exhaustive()
    }
}
