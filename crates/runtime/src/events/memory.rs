//! A map of limited size whose entries expire.
//!
//! Owns who stays when it is full.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;

/// Stands for a key of any length. That two of all remembered keys have the same 128 bits is out of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Digest(u64, u64);

impl Digest {
    pub(super) fn of(key: &impl Hash) -> Self {
        let half = |number: u8| {
            let mut hasher = DefaultHasher::new();
            (number, key).hash(&mut hasher);
            hasher.finish()
        };
        Self(half(0), half(1))
    }
}

/// A map of limited size whose entries expire. When it is full, newcomers have to wait for that: a list of more keys than there is room for, told over
/// and over in the same order, would otherwise evict each key right before it is asked for.
pub(super) struct Memory<Value> {
    pub(super) entries: BTreeMap<Digest, (Timestamp, Value)>,
    pub(super) by_expiry: BTreeSet<(Timestamp, Digest)>,
    limit: usize,
}

impl<Value> Memory<Value> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            by_expiry: BTreeSet::new(),
            limit: limit.max(1),
        }
    }

    pub(super) fn get(&mut self, key: Digest, now: Timestamp) -> Option<&mut Value> {
        self.entries
            .get_mut(&key)
            .filter(|(expiry, _)| *expiry > now)
            .map(|(_, value)| value)
    }

    /// False when there is no room.
    pub(super) fn put(&mut self, key: Digest, value: Value, now: Timestamp, period: Duration) -> bool {
        self.remove(key);
        while let Some(&(expiry, first)) = self.by_expiry.first()
            && expiry <= now
        {
            self.remove(first);
        }
        if self.entries.len() >= self.limit {
            return false;
        }
        let expiry = now.saturating_add(period).unwrap_or(Timestamp::MAX);
        self.by_expiry.insert((expiry, key));
        self.entries.insert(key, (expiry, value));
        true
    }

    pub(super) fn remove(&mut self, key: Digest) {
        if let Some((expiry, _)) = self.entries.remove(&key) {
            self.by_expiry.remove(&(expiry, key));
        }
    }
}
