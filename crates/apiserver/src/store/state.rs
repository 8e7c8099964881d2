//! The state of the server behind one lock: what is stored where, indexes over it, and the one way to write a version of an object.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::backends::Backends;
use super::expiring::{self, Expiring};
use super::objects::{Change, Collection, Key, Stored};
use super::registry::{Registry, Resource};
use crate::admission_policy::bound::{self, Policies};
use crate::crd::CompiledCrd;
use crate::error::{ApiError, ApiResult};

/// Where the server reads the time.
pub type NowFn = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// One written version of an object, or its deletion.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    /// API group of the resource, empty for the core.
    pub group: &'a str,
    /// Plural name of the resource.
    pub plural: &'a str,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// The version before; `None` when the object is new.
    pub old: Option<&'a Value>,
    /// The new version, or the last one of an object that is gone.
    pub new: &'a Value,
    /// Whether the object is gone now.
    pub deleted: bool,
}

/// Observer of every write, in order, called while the server holds its lock: it must not call the server.
pub type Observer = Arc<dyn Fn(&Commit<'_>) + Send + Sync>;

/// Name and UID of a new object, where they are chosen and not drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The name, for an object that asks for a generated one.
    pub name: Option<String>,
    /// The UID.
    pub uid: Option<String>,
}

/// Chooses identities: it is given the plural of the resource and the object as it was sent, once for each creation, while the server holds its lock.
pub type IdentityFn = Arc<dyn Fn(&str, &Value) -> Identity + Send + Sync>;

/// How a server is made.
#[derive(Clone)]
pub struct Config {
    /// Source of timestamps.
    pub now: NowFn,
    /// Seed of UIDs and generated names.
    pub seed: u64,
    /// Changes that are kept for each resource, so that watches can resume.
    pub history_limit: usize,
    /// Bearer token that clients must send over the network; in-process clients need none.
    pub token: Option<String>,
    /// Observers of every write.
    pub observer: Option<Observer>,
    /// Chooses names and UIDs instead of chance, for simulations in which the same object is to be known in several runs.
    pub identities: Option<IdentityFn>,
}

impl Config {
    /// A server with a clock and a seed, and defaults for the rest.
    #[must_use]
    pub fn new(now: NowFn, seed: u64) -> Self {
        Self {
            now,
            seed,
            history_limit: 5_000,
            token: None,
            observer: None,
            identities: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("seed", &self.seed)
            .field("history_limit", &self.history_limit)
            .finish_non_exhaustive()
    }
}

/// The server.
pub struct ApiServer {
    pub(crate) config: Config,
    pub(crate) state: Mutex<State>,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Storage of a resource, then namespace and name.
pub(crate) type Place = ((String, String), Key);

/// Everything that requests change.
pub(crate) struct State {
    pub(crate) revision: u64,
    pub(crate) registry: Registry,
    pub(crate) collections: BTreeMap<(String, String), Collection>,
    /// Owner's UID → objects that name it.
    pub(crate) dependents: FxHashMap<String, BTreeSet<Place>>,
    /// UID → object, for owners.
    pub(crate) by_uid: FxHashMap<String, Place>,
    pub(crate) compiled: BTreeMap<(String, String), Arc<CompiledCrd>>,
    /// Where objects were kept whose definition has gone, and the revision at which their history ends.
    pub(crate) retired: BTreeMap<(String, String), u64>,
    pub(crate) history_limit: usize,
    /// The admission policies in force, if they were used since they changed.
    pub(crate) policies: Option<Arc<Policies>>,
    /// Who answers behind ports of pods.
    pub(crate) backends: Backends,
    /// Warnings for the answer to the request at hand.
    pub(crate) warnings: Vec<String>,
    pub(crate) expiring: Expiring,
    now: NowFn,
    observer: Option<Observer>,
    chance: ChaCha8Rng,
}

impl ApiServer {
    /// A server with the core kinds and no object.
    pub(crate) fn empty(config: Config) -> Self {
        let state = State {
            revision: 1,
            registry: Registry::core(),
            collections: BTreeMap::new(),
            dependents: FxHashMap::default(),
            by_uid: FxHashMap::default(),
            compiled: BTreeMap::new(),
            retired: BTreeMap::new(),
            history_limit: config.history_limit.max(10),
            policies: None,
            backends: Backends::default(),
            warnings: Vec::new(),
            expiring: Expiring::default(),
            now: config.now.clone(),
            observer: config.observer.clone(),
            chance: ChaCha8Rng::seed_from_u64(config.seed),
        };
        Self {
            config,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.config.now)()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request is about.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Scope {
    pub(crate) fn key(&self) -> Key {
        (self.namespace.clone(), self.name.clone())
    }

    /// The namespace as admission has it: a Namespace is in itself.
    pub(crate) fn admitted_namespace(&self) -> &str {
        if self.resource.is("", "namespaces") {
            &self.name
        } else {
            &self.namespace
        }
    }

    pub(crate) fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.resource.group, &self.resource.plural, &self.name)
    }

    pub(crate) fn conflict(&self, problem: &str) -> ApiError {
        ApiError::conflict(&self.resource.group, &self.resource.plural, &self.name, problem)
    }
}

const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl State {
    pub(crate) fn collection(&mut self, storage: &(String, String)) -> &mut Collection {
        let revision = self.revision;
        // Nothing has happened to objects of a new place yet, so every earlier revision has the same: none.
        let compacted = self.retired.get(storage).copied().unwrap_or(0);
        self.collections
            .entry(storage.clone())
            .or_insert_with(|| Collection::new(compacted, revision))
    }

    pub(crate) fn stored(&self, storage: &(String, String), key: &Key) -> Option<Arc<Stored>> {
        self.collections.get(storage)?.objects.get(key).cloned()
    }

    /// All objects of a group and plural, in the order of their namespaces and names.
    pub(crate) fn objects(&self, group: &str, plural: &str) -> impl Iterator<Item = &Value> {
        let collection = self.collections.get(&(group.to_owned(), plural.to_owned()));
        let objects = collection
            .into_iter()
            .flat_map(|collection| collection.objects.values());
        objects.map(|stored| &stored.value)
    }

    pub(crate) fn find(&self, scope: &Scope) -> ApiResult<Arc<Stored>> {
        self.stored(&scope.resource.storage(), &scope.key())
            .ok_or_else(|| scope.not_found())
    }

    /// A random UID of version 4.
    pub(crate) fn new_uid(&mut self) -> String {
        let bits: u128 = self.chance.random();
        let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }

    /// Five letters for a generated name, as Kubernetes chooses them.
    pub(crate) fn name_suffix(&mut self) -> String {
        (0..5)
            .map(|_| char::from(NAME_LETTERS[self.chance.random_range(0..NAME_LETTERS.len())]))
            .collect()
    }

    /// Writes a version of an object (or its deletion) under a new revision and keeps the indexes.
    pub(crate) fn commit(
        &mut self,
        storage: &(String, String),
        key: &Key,
        mut value: Value,
        deleted: bool,
    ) -> Arc<Stored> {
        self.revision += 1;
        let revision = self.revision;
        value["metadata"]["resourceVersion"] = json!(revision.to_string());
        if storage.0 == bound::GROUP {
            self.policies = None;
        }
        if !deleted && expiring::is_of_events(storage) {
            self.expiring.note((self.now)(), key, revision);
        }
        let old = self.stored(storage, key);
        let new = Stored::new(value, revision);
        self.index(storage, key, old.as_deref(), (!deleted).then_some(&*new));
        if let Some(observer) = &self.observer {
            observer(&Commit {
                group: &storage.0,
                plural: &storage.1,
                namespace: &key.0,
                name: &key.1,
                old: old.as_deref().map(|old| &old.value),
                new: &new.value,
                deleted,
            });
        }
        let limit = self.history_limit;
        let change = Change {
            revision,
            key: key.clone(),
            old,
            new: new.clone(),
            deleted,
        };
        self.collection(storage).record(change, limit);
        new
    }

    fn index(&mut self, storage: &(String, String), key: &Key, old: Option<&Stored>, new: Option<&Stored>) {
        // Most writes change neither which object it is nor whose.
        if let (Some(old), Some(new)) = (old, new)
            && old.value["metadata"]["ownerReferences"] == new.value["metadata"]["ownerReferences"]
        {
            return;
        }
        let place: Place = (storage.clone(), key.clone());
        let owners = |stored: &Stored| -> BTreeSet<String> {
            let list = stored.value["metadata"]["ownerReferences"].as_array();
            list.into_iter()
                .flatten()
                .filter_map(|owner| owner["uid"].as_str())
                .map(str::to_owned)
                .collect()
        };
        let before = old.map(owners).unwrap_or_default();
        let after = new.map(owners).unwrap_or_default();
        for uid in before.difference(&after) {
            if let Some(places) = self.dependents.get_mut(uid) {
                places.remove(&place);
                if places.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
        for uid in after.difference(&before) {
            self.dependents
                .entry(uid.clone())
                .or_default()
                .insert(place.clone());
        }
        match (old, new) {
            (None, Some(new)) => {
                self.by_uid.insert(new.uid().to_owned(), place);
            }
            (Some(old), None) => {
                self.by_uid.remove(old.uid());
            }
            _ => {}
        }
    }
}
