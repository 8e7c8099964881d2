//! The contents of a store, and the ordering of changes; the same for every kind.
//!
//! Objects are stored behind type-erased pointers, so that maps and rules are compiled once and not once per kind.
//! The [`Store`](super::Store) around it restores the type. Nothing here notifies handlers.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Object, ObjectKey};

/// An object of any kind.
pub(super) trait Held: Any + Send + Sync {
    fn metadata(&self) -> &ObjectMeta;
}

impl<K: Object> Held for K {
    fn metadata(&self) -> &ObjectMeta {
        self.meta()
    }
}

/// An object whose kind its store knows.
pub(super) type Erased = Arc<dyn Held>;

/// The object as its own kind, which its store knows.
pub(super) fn typed<K: Object>(object: Erased) -> Arc<K> {
    let object: Arc<dyn Any + Send + Sync> = object;
    object
        .downcast()
        .expect("a store holds objects of its own kind and no others")
}

/// The object as its own kind, borrowed.
pub(super) fn typed_ref<K: Object>(object: &dyn Held) -> &K {
    let object: &dyn Any = object;
    object
        .downcast_ref()
        .expect("a store holds objects of its own kind and no others")
}

pub(super) type KeyFunction = Box<dyn Fn(&dyn Held) -> Vec<String> + Send + Sync>;

/// Objects found by something other than their name.
pub(super) struct IndexState {
    key_function: KeyFunction,
    /// With the objects themselves, to avoid a lookup for each of them.
    pub(super) entries: BTreeMap<String, BTreeMap<ObjectKey, Erased>>,
}

impl IndexState {
    fn add(&mut self, key: &ObjectKey, object: &Erased) {
        for value in (self.key_function)(&**object) {
            let objects = self.entries.entry(value).or_default();
            objects.insert(key.clone(), object.clone());
        }
    }

    fn remove(&mut self, key: &ObjectKey, object: &Erased) {
        for value in (self.key_function)(&**object) {
            if let Some(objects) = self.entries.get_mut(&value) {
                objects.remove(key);
                if objects.is_empty() {
                    self.entries.remove(&value);
                }
            }
        }
    }
}

/// How many changes are remembered by key. Readers that fall further behind start over.
pub(super) const REMEMBERED_CHANGES: usize = 8_192;

#[derive(Default)]
pub(super) struct Contents {
    pub(super) objects: BTreeMap<ObjectKey, Erased>,
    pub(super) indexes: Vec<IndexState>,
    /// Objects on the server that do not decode, with the reason.
    pub(super) rejected: BTreeMap<ObjectKey, String>,
    /// UID and version of objects that our write found deleted, until the watch confirms it.
    gone: BTreeMap<ObjectKey, (String, u64)>,
    /// Versions that we wrote and that the watch has not delivered yet.
    unconfirmed: BTreeMap<ObjectKey, u64>,
    /// The highest of them when the list that is being read was requested: it is at least as new.
    before_list: u64,
    /// Highest resourceVersion that the watch has shown. What we wrote with a lower one and do not have was deleted since.
    seen_version: u64,
    pub(super) changes: u64,
    /// The keys of the last changes, the latest at the end.
    changed: VecDeque<ObjectKey>,
}

impl Contents {
    /// Adds an index and returns its position.
    pub(super) fn index(&mut self, key_function: KeyFunction) -> usize {
        let mut index = IndexState {
            key_function,
            entries: BTreeMap::new(),
        };
        for (key, object) in &self.objects {
            index.add(key, object);
        }
        self.indexes.push(index);
        self.indexes.len() - 1
    }

    /// Whether our write is newer than the stored object; if so it is pending until the watch confirms it.
    pub(super) fn admit_own(&mut self, key: &ObjectKey, metadata: &ObjectMeta, version: u64) -> bool {
        let known = match self.objects.get(key) {
            Some(known) => version_of(known.metadata()).is_none_or(|known| known >= version),
            None => self.seen_version >= version || self.is_gone(key, metadata),
        };
        if !known {
            self.unconfirmed.insert(key.clone(), version);
        }
        !known
    }

    /// Whether it is the object that a write of ours found gone.
    pub(super) fn admit_gone(&mut self, key: &ObjectKey, uid: &str) -> bool {
        let Some(known) = self.objects.get(key) else {
            return false;
        };
        let metadata = known.metadata();
        if metadata.uid.as_deref() != Some(uid) {
            return false;
        }
        let version = version_of(metadata).unwrap_or(0);
        self.gone.insert(key.clone(), (uid.to_owned(), version));
        self.unconfirmed.remove(key);
        true
    }

    /// Whether an object from the watch is newer than the stored one.
    pub(super) fn admit_watched(&mut self, key: &ObjectKey, metadata: &ObjectMeta) -> bool {
        let is_news = !self.is_stale(key, metadata);
        // What is news leaves the rejected ones as it is kept, and not before: it is among the one or the other at any moment.
        if !is_news {
            self.rejected.remove(key);
        }
        is_news
    }

    /// Whether an object is older than what is known of it.
    pub(super) fn is_stale(&self, key: &ObjectKey, metadata: &ObjectMeta) -> bool {
        let version = version_of(metadata);
        let known = self.objects.get(key);
        known.is_some_and(|known| is_not_newer(version, version_of(known.metadata())))
            || self.is_gone(key, metadata)
    }

    /// Whether a removal from the watch means the object that is here.
    pub(super) fn admit_removal(&mut self, key: &ObjectKey, uid: Option<&str>, version: Option<u64>) -> bool {
        self.rejected.remove(key);
        // The end of a predecessor says nothing about the one that we found gone.
        if let Some((gone, _)) = self.gone.get(key)
            && Some(gone.as_str()) == uid
        {
            self.gone.remove(key);
        }
        // A successor that we wrote ourselves may be here already.
        self.objects.get(key).is_some_and(|known| {
            let known = known.metadata();
            known.uid.as_deref() == uid || is_not_newer(version_of(known), version)
        })
    }

    /// Notes that a complete list is about to be requested. Its versions alone do not show what is older: an empty list has none.
    pub(super) fn begin_list(&mut self) {
        self.before_list = self.unconfirmed.values().copied().max().unwrap_or(0);
    }

    /// Takes in that a complete list came, and returns which objects it ends.
    pub(super) fn begin_replace(
        &mut self,
        listed: &BTreeMap<ObjectKey, Erased>,
        rejected: BTreeMap<ObjectKey, String>,
    ) -> Vec<ObjectKey> {
        let versions = listed.values().filter_map(|object| version_of(object.metadata()));
        let confirmed = self
            .seen_version
            .max(versions.max().unwrap_or(0))
            .max(std::mem::take(&mut self.before_list));
        self.seen_version = confirmed;
        self.rejected.retain(|key, _| listed.contains_key(key));
        self.rejected.extend(rejected);
        self.unconfirmed
            .retain(|key, version| !listed.contains_key(key) && *version > confirmed);
        // Kept while events from before the deletion may still arrive: from the list, or as a late response to a write.
        self.gone.retain(|key, (uid, version)| {
            let listed = listed.get(key);
            *version > confirmed
                || listed.is_some_and(|one| one.metadata().uid.as_deref() == Some(uid.as_str()))
        });
        self.objects
            .iter()
            // What we wrote ourselves after the list was made is not in it, and yet it exists.
            .filter(|(key, object)| {
                !listed.contains_key(*key)
                    && (self.rejected.contains_key(*key)
                        || version_of(object.metadata()).is_none_or(|version| version <= confirmed))
            })
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// The watch has reached `version`, with an event for `key`. Objects that we wrote before that and that it has not delivered no longer
    /// exist: they were deleted between a list and the following watch. Returns those.
    pub(super) fn advance(&mut self, key: &ObjectKey, version: Option<u64>) -> Vec<ObjectKey> {
        let Some(version) = version else {
            return Vec::new();
        };
        self.seen_version = self.seen_version.max(version);
        if self.unconfirmed.get(key).is_some_and(|own| *own <= version) {
            self.unconfirmed.remove(key);
        }
        let past = self.unconfirmed.iter().filter(|(_, own)| **own < version);
        let ghosts: Vec<ObjectKey> = past.map(|(key, _)| key.clone()).collect();
        for ghost in &ghosts {
            self.unconfirmed.remove(ghost);
        }
        ghosts
    }

    /// Keeps an object, and returns what it takes the place of; `is_change` when it says something else than that.
    pub(super) fn put(&mut self, key: &ObjectKey, new: &Erased, is_change: bool) -> Option<Erased> {
        let old = self.objects.insert(key.clone(), new.clone());
        self.rejected.remove(key);
        if is_change {
            self.note_change(key);
        }
        for index in &mut self.indexes {
            if let Some(old) = &old {
                index.remove(key, old);
            }
            index.add(key, new);
        }
        old
    }

    /// Removes an object and returns it.
    pub(super) fn take(&mut self, key: &ObjectKey) -> Option<Erased> {
        let old = self.objects.remove(key)?;
        self.note_change(key);
        for index in &mut self.indexes {
            index.remove(key, &old);
        }
        Some(old)
    }

    fn note_change(&mut self, key: &ObjectKey) {
        self.changes += 1;
        if self.changed.len() == REMEMBERED_CHANGES {
            self.changed.pop_front();
        }
        self.changed.push_back(key.clone());
    }

    /// The keys of all objects that have changed since there were so many changes, in order, each once. `None` when that is too long ago.
    pub(super) fn changed_since(&self, changes: u64) -> Option<Vec<ObjectKey>> {
        let count = usize::try_from(self.changes.checked_sub(changes)?).ok()?;
        let first = self.changed.len().checked_sub(count)?;
        let mut keys: Vec<ObjectKey> = self.changed.range(first..).cloned().collect();
        keys.sort_unstable();
        keys.dedup();
        Some(keys)
    }

    fn is_gone(&self, key: &ObjectKey, metadata: &ObjectMeta) -> bool {
        self.gone.get(key).is_some_and(|(uid, version)| {
            metadata.uid.as_deref() == Some(uid) || is_not_newer(version_of(metadata), Some(*version))
        })
    }
}

/// Whether a response is the final state of an object: without finalizers and grace period, a deleted object is removed by that write.
pub(super) fn has_ended(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
        && metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
        && metadata.deletion_grace_period_seconds.unwrap_or(0) == 0
}

/// The resourceVersion as a number: since Kubernetes 1.35 versions of one server may be compared so.
pub(super) fn version_of(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_deref()?.parse().ok()
}

/// True when `candidate` is known to be as old as `known`, or older. Versions that cannot be compared are taken as they come.
fn is_not_newer(candidate: Option<u64>, known: Option<u64>) -> bool {
    matches!((candidate, known), (Some(candidate), Some(known)) if candidate <= known)
}
