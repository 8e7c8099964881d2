//! Objects and their history: an ordered map per resource, one revision counter, and a bounded log from which watches read.
//!
//! Watches pull from the log, so a slow client costs only its position in it; one that falls behind the oldest entry gets 410.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;
use spokeshave_watched as watch;

use crate::fields::packed::write_member;

/// Namespace (empty for cluster-scoped objects) and name.
pub(crate) type Key = (String, String);

/// One version of an object. It never changes; its JSON is made at most once.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) value: Value,
    /// As it was written, where the present definition of its kind reads it otherwise.
    written: Option<Value>,
    pub(crate) revision: u64,
    json: OnceLock<Encoded>,
}

#[derive(Debug)]
struct Encoded {
    bytes: Bytes,
    /// Where the object continues behind its kind and version.
    body: usize,
}

impl Stored {
    pub(crate) fn new(value: Value, revision: u64) -> Arc<Self> {
        Arc::new(Self {
            value,
            written: None,
            revision,
            json: OnceLock::new(),
        })
    }

    /// The same version read in another way than before, if that shows something else. It is read from what was written.
    pub(crate) fn read_as(&self, read: impl FnOnce(&mut Value)) -> Option<Arc<Self>> {
        let written = self.written.as_ref().unwrap_or(&self.value);
        let mut value = written.clone();
        read(&mut value);
        if value == self.value {
            return None;
        }
        let differs = value != *written;
        Some(Arc::new(Self {
            value,
            written: differs.then(|| written.clone()),
            revision: self.revision,
            json: OnceLock::new(),
        }))
    }

    fn encoded(&self) -> &Encoded {
        self.json.get_or_init(|| {
            let mut bytes = Vec::with_capacity(2048);
            let mut body = 0;
            let fields = self.value.as_object();
            bytes.push(b'{');
            for own in [true, false] {
                for (key, value) in fields
                    .into_iter()
                    .flatten()
                    .filter(|(key, _)| own == matches!(key.as_str(), "kind" | "apiVersion"))
                {
                    if bytes.len() > 1 {
                        bytes.push(b',');
                    }
                    if !own && body == 0 {
                        body = bytes.len();
                    }
                    write_member(&mut bytes, key, value);
                }
            }
            bytes.push(b'}');
            Encoded {
                bytes: bytes.into(),
                body,
            }
        })
    }

    /// The object as JSON.
    pub(crate) fn json(&self) -> Bytes {
        self.encoded().bytes.clone()
    }

    /// Appends the object as in a list of its kind: without kind and version.
    pub(crate) fn write_untyped(&self, out: &mut Vec<u8>) {
        let encoded = self.encoded();
        out.push(b'{');
        out.extend_from_slice(&encoded.bytes[encoded.body..]);
    }

    pub(crate) fn uid(&self) -> &str {
        self.value["metadata"]["uid"].as_str().unwrap_or_default()
    }
}

/// What happened to an object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: Key,
    pub(crate) old: Option<Arc<Stored>>,
    /// The new version, or for a deletion the last one under a new revision.
    pub(crate) new: Arc<Stored>,
    pub(crate) deleted: bool,
}

/// All objects of one resource.
#[derive(Debug)]
pub(crate) struct Collection {
    pub(crate) objects: BTreeMap<Key, Arc<Stored>>,
    history: VecDeque<Arc<Change>>,
    /// Changes at or before this revision are no longer in the history.
    pub(crate) compacted: u64,
    pub(crate) changed: watch::Sender<u64>,
}

impl Collection {
    pub(crate) fn new(compacted: u64, revision: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            compacted,
            changed: watch::channel(revision).0,
        }
    }

    pub(crate) fn record(&mut self, change: Change, limit: usize) {
        if change.deleted {
            self.objects.remove(&change.key);
        } else {
            self.objects.insert(change.key.clone(), change.new.clone());
        }
        let revision = change.revision;
        self.history.push_back(Arc::new(change));
        while self.history.len() > limit {
            if let Some(oldest) = self.history.pop_front() {
                self.compacted = oldest.revision;
            }
        }
        self.changed.send_replace(revision);
    }

    /// Up to `limit` changes after a revision; `None` when they are no longer known.
    pub(crate) fn changes_after(&self, revision: u64, limit: usize) -> Option<Vec<Arc<Change>>> {
        if revision < self.compacted {
            return None;
        }
        let start = self.history.partition_point(|change| change.revision <= revision);
        Some(self.history.range(start..).take(limit).cloned().collect())
    }

    /// The objects as they were at a revision; `None` when that is no longer known.
    pub(crate) fn at(&self, revision: u64) -> Option<BTreeMap<Key, Arc<Stored>>> {
        if revision < self.compacted {
            return None;
        }
        let mut objects = self.objects.clone();
        for change in self
            .history
            .iter()
            .rev()
            .take_while(|change| change.revision > revision)
        {
            match &change.old {
                Some(old) => objects.insert(change.key.clone(), old.clone()),
                None => objects.remove(&change.key),
            };
        }
        Some(objects)
    }
}
