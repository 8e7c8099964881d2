//! Stores: what the API server has, in memory, in order.
//!
//! ```text
//! Reflector ──watch events──► Store ──Change (old, new)──► handlers, subscriptions
//! execute ──own results─────►  │
//!                              └──► get, snapshot, Index
//! ```
//!
//! Owns the copies and their order: by namespace, then name. A store never talks to the API server and never changes an
//! object. It takes both what the watch says and what we have just written ourselves, and keeps the newer of the two, so
//! that a reconciler sees its own writes and never falls back behind them.
//!
//! Cost: `get`, one event and one index look-up are logarithmic; `snapshot` clones one `Arc` per object.

mod contents;
mod options;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;
use spokeshave_watched as watch;
use tokio::sync::mpsc;

use contents::{Contents, Erased, Held, has_ended, typed, typed_ref, version_of};

pub use options::StoreOptions;

/// What a store can hold: any kind known at compile time, also `PartialObjectMeta<K>` for metadata only.
pub trait Object:
    Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static
{
}

/// Identity of an object within its kind. Ordered by namespace, then name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// Of an object in a namespace.
    #[must_use]
    pub fn namespaced(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Of a cluster-scoped object.
    #[must_use]
    pub fn cluster(name: impl Into<String>) -> Self {
        Self {
            namespace: String::new(),
            name: name.into(),
        }
    }

    /// Of `object`.
    #[must_use]
    pub fn of<K: Resource>(object: &K) -> Self {
        let metadata = object.meta();
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// One change of one object. Both sides are present for an update, `old` alone for a removal, `new` alone for an arrival.
#[derive(Debug)]
pub struct Change<K> {
    /// Which object.
    pub key: ObjectKey,
    /// The previous object.
    pub old: Option<Arc<K>>,
    /// The current object.
    pub new: Option<Arc<K>>,
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            old: self.old.clone(),
            new: self.new.clone(),
        }
    }
}

impl<K> Change<K> {
    /// The object as it is now, or was last.
    #[must_use]
    pub fn object(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }
}

impl<K: Resource> Change<K> {
    /// The object that is no more: it was removed, or a list after a gap in the watch has another one under its name.
    #[must_use]
    pub fn ended(&self) -> Option<&Arc<K>> {
        let is_same = |old: &K| {
            let new = self.new.as_deref();
            new.is_some_and(|new| new.meta().uid == old.meta().uid)
        };
        self.old.as_ref().filter(|old| !is_same(old))
    }
}

type Handler<K> = Box<dyn FnMut(&Change<K>) + Send>;
/// The objects of one kind, in order. Clones share one store.
pub struct Store<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    options: StoreOptions<K>,
    state: RwLock<Contents>,
    /// Held while a change is applied and handlers run, so that all see the same order.
    dispatch: Mutex<Dispatch<K>>,
    ready: watch::Sender<bool>,
}

struct Dispatch<K> {
    handlers: Vec<Handler<K>>,
    subscribers: Vec<mpsc::UnboundedSender<Change<K>>>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<K: Object> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("kind", &K::kind(&()))
            .field("objects", &self.len())
            .finish_non_exhaustive()
    }
}

impl<K> Store<K> {
    /// Drops all handlers. They usually hold the store that they listen to, which would never be freed otherwise.
    pub(crate) fn drop_handlers(&self) {
        let mut dispatch = self.inner.dispatch.lock().unwrap_or_else(PoisonError::into_inner);
        let handlers = std::mem::take(&mut dispatch.handlers);
        // What a handler holds may end with it, and may read this store as it ends.
        drop(dispatch);
        drop(handlers);
    }
}

impl<K: Object + PartialEq> Default for Store<K> {
    fn default() -> Self {
        Self::new(StoreOptions::default())
    }
}

impl<K: Object> Store<K> {
    /// An empty store, not ready. Fill it with a [`Reflector`](crate::Reflector).
    #[must_use]
    pub fn new(options: StoreOptions<K>) -> Self {
        Self {
            inner: Arc::new(Inner {
                options,
                state: RwLock::new(Contents::default()),
                dispatch: Mutex::new(Dispatch {
                    handlers: Vec::new(),
                    subscribers: Vec::new(),
                }),
                ready: watch::Sender::new(false),
            }),
        }
    }

    /// One object.
    #[must_use]
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.read().objects.get(key).cloned().map(typed)
    }

    /// One cluster-scoped object.
    #[must_use]
    pub fn get_named(&self, name: &str) -> Option<Arc<K>> {
        self.get(&ObjectKey::cluster(name))
    }

    /// All objects at one instant, in order.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Arc<K>> {
        self.read().objects.values().cloned().map(typed).collect()
    }

    /// The objects of one namespace, in order.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let state = self.read();
        let from = ObjectKey::namespaced(namespace, "");
        let same = state
            .objects
            .range(from..)
            .take_while(|(key, _)| key.namespace == namespace);
        same.map(|(_, object)| typed(object.clone())).collect()
    }

    /// All keys, in order.
    #[must_use]
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.read().objects.keys().cloned().collect()
    }

    /// Visits all objects in order. The visitor must not write to this store.
    pub fn for_each(&self, mut visit: impl FnMut(&ObjectKey, &Arc<K>)) {
        for (key, object) in &self.read().objects {
            visit(key, &typed(object.clone()));
        }
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// True when there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of changes so far: equal numbers mean contents that say the same. Only resourceVersions may differ.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.read().changes
    }

    /// The keys of all objects that have come, changed or gone since [`changes`](Self::changes) was this number, in order, each once. `None` when
    /// there were more changes since than a store remembers (some thousands): then compare everything.
    #[must_use]
    pub fn changed_since(&self, changes: u64) -> Option<Vec<ObjectKey>> {
        self.read().changed_since(changes)
    }

    /// Objects on the server that do not decode, with the reason. They are not among the objects.
    #[must_use]
    pub fn rejected(&self) -> Vec<(ObjectKey, String)> {
        self.read()
            .rejected
            .iter()
            .map(|(key, error)| (key.clone(), error.clone()))
            .collect()
    }

    /// All objects, and the names of those that do not decode, at one moment: an object of the server is among the one or the other.
    #[must_use]
    pub fn with_rejected(&self) -> (Vec<Arc<K>>, BTreeSet<String>) {
        let state = self.read();
        let objects = state.objects.values().cloned().map(typed).collect();
        let rejected = state.rejected.keys().map(|key| key.name.clone());
        (objects, rejected.collect())
    }

    /// True once the first list was complete.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.inner.ready.borrow()
    }

    /// Waits until the first list was complete.
    pub async fn ready(&self) {
        let mut receiver = self.inner.ready.subscribe();
        // The sender lives in `self`, which outlives this future.
        let _ = receiver.wait_for(|ready| *ready).await;
    }

    /// Calls `handler` with every change, in order, before the change is visible to anyone who waits for it; first with an
    /// arrival for every object already there. The handler may read this store (it sees the change) but must neither
    /// write to it nor register with it. Keep it short: it runs where the change happens. Handlers end with the watch that
    /// fills the store.
    pub fn on_change(&self, handler: impl FnMut(&Change<K>) + Send + 'static) {
        let mut handler: Handler<K> = Box::new(handler);
        let mut dispatch = self.lock_dispatch();
        for change in self.arrivals() {
            handler(&change);
        }
        dispatch.handlers.push(handler);
    }

    /// A queue of every change, in order, that begins with an arrival for every object already there. It grows when it is
    /// not read; drop it to end it.
    #[must_use]
    pub fn subscribe(&self) -> Subscription<K> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut dispatch = self.lock_dispatch();
        for change in self.arrivals() {
            // The receiver is right here.
            let _ = sender.send(change);
        }
        dispatch.subscribers.push(sender);
        Subscription { receiver }
    }

    /// Adds an index by a function that gives the keys under which an object is found (none, one or several).
    pub fn index(&self, key_function: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Index<K> {
        let key_function = move |object: &dyn Held| key_function(typed_ref(object));
        Index {
            store: self.clone(),
            position: self.write().index(Box::new(key_function)),
        }
    }

    /// Takes in the result of a write of ours, unless the store already knows something newer. Give it the object as the
    /// server answered, also an answer to a delete that still carries the object with its deletionTimestamp. An answer that takes off the last finalizer
    /// of a deleted object is its removal.
    pub fn note_written(&self, object: K) {
        if has_ended(object.meta()) {
            let uid = object.meta().uid.clone().unwrap_or_default();
            return self.note_gone(&ObjectKey::of(&object), &uid);
        }
        let mut dispatch = self.lock_dispatch();
        let Some(version) = version_of(object.meta()) else {
            return;
        };
        let key = ObjectKey::of(&object);
        if self.write().admit_own(&key, object.meta(), version) {
            self.put(&mut dispatch, key, self.trimmed(object));
        }
    }

    /// Takes in that a write of ours found the object gone (404, or a delete that took effect at once). `uid` protects a
    /// successor of the same name.
    pub fn note_gone(&self, key: &ObjectKey, uid: &str) {
        let mut dispatch = self.lock_dispatch();
        if self.write().admit_gone(key, uid) {
            self.take(&mut dispatch, key);
        }
    }

    /// One object from the watch.
    pub(crate) fn apply(&self, object: K) {
        let mut dispatch = self.lock_dispatch();
        let key = ObjectKey::of(&object);
        self.advance(&mut dispatch, &key, version_of(object.meta()));
        if self.write().admit_watched(&key, object.meta()) {
            self.put(&mut dispatch, key, self.trimmed(object));
        }
    }

    /// A removal from the watch; `object` is its last state.
    pub(crate) fn delete(&self, key: &ObjectKey, uid: Option<&str>, version: Option<u64>) {
        let mut dispatch = self.lock_dispatch();
        self.advance(&mut dispatch, key, version);
        if self.write().admit_removal(key, uid, version) {
            self.take(&mut dispatch, key);
        }
    }

    /// An object from the watch that does not decode: it leaves the store and joins the rejected ones.
    pub(crate) fn reject(&self, key: &ObjectKey, version: Option<u64>, error: String) {
        let mut dispatch = self.lock_dispatch();
        self.advance(&mut dispatch, key, version);
        self.write().rejected.insert(key.clone(), error);
        self.take(&mut dispatch, key);
    }

    /// A complete list is about to be requested: anything written before is in it, or no longer exists.
    pub(crate) fn begin_list(&self) {
        self.write().begin_list();
    }

    /// Replaces everything by a complete list of trimmed objects, as one change per object that differs, removals first.
    pub(crate) fn replace(&self, objects: Vec<Arc<K>>, rejected: BTreeMap<ObjectKey, String>) {
        let mut dispatch = self.lock_dispatch();
        let keyed = |object: Arc<K>| (ObjectKey::of(&*object), object as Erased);
        let listed: BTreeMap<ObjectKey, Erased> = objects.into_iter().map(keyed).collect();
        let missing = self.write().begin_replace(&listed, rejected);
        for key in &missing {
            self.take(&mut dispatch, key);
        }
        for (key, object) in listed {
            // One that is stale leaves the rejected ones, too: something newer is known of it.
            if self.write().admit_watched(&key, object.metadata()) {
                self.put(&mut dispatch, key, typed(object));
            }
        }
        drop(dispatch);
        self.inner.ready.send_replace(true);
    }

    fn advance(&self, dispatch: &mut Dispatch<K>, key: &ObjectKey, version: Option<u64>) {
        let ghosts = self.write().advance(key, version);
        for ghost in ghosts {
            self.take(dispatch, &ghost);
        }
    }

    /// How to make what stands in for an object that does not decode, if anything does.
    pub(crate) fn stand_in(&self) -> Option<fn(&Value) -> Option<K>> {
        self.inner.options.stand_in
    }

    /// Drops unused fields.
    pub(crate) fn trimmed(&self, mut object: K) -> Arc<K> {
        (self.inner.options.trim)(&mut object);
        Arc::new(object)
    }

    fn put(&self, dispatch: &mut Dispatch<K>, key: ObjectKey, mut new: Arc<K>) {
        let known = self.read().objects.get(&key).cloned().map(typed);
        let is_change = known.is_none_or(|known| !self.says_the_same(&mut new, &known));
        let erased: Erased = new.clone();
        let old = self.write().put(&key, &erased, is_change).map(typed);
        if !is_change {
            return;
        }
        dispatch.tell(&Change {
            key,
            old,
            new: Some(new),
        });
    }

    /// Whether a new object differs from the one before in its resourceVersion only.
    fn says_the_same(&self, new: &mut Arc<K>, known: &K) -> bool {
        let Some(object) = Arc::get_mut(new) else {
            return false;
        };
        let version = object.meta_mut().resource_version.take();
        object
            .meta_mut()
            .resource_version
            .clone_from(&known.meta().resource_version);
        let same = (self.inner.options.same)(object, known);
        object.meta_mut().resource_version = version;
        same
    }

    fn take(&self, dispatch: &mut Dispatch<K>, key: &ObjectKey) {
        let Some(old) = self.write().take(key) else {
            return;
        };
        dispatch.tell(&Change {
            key: key.clone(),
            old: Some(typed(old)),
            new: None,
        });
    }

    fn arrivals(&self) -> Vec<Change<K>> {
        let arrival = |(key, object): (&ObjectKey, &Erased)| Change {
            key: key.clone(),
            old: None,
            new: Some(typed(object.clone())),
        };
        self.read().objects.iter().map(arrival).collect()
    }

    // A panic of a handler must not take the store with it: the state is consistent before handlers are called.
    fn lock_dispatch(&self) -> MutexGuard<'_, Dispatch<K>> {
        self.inner.dispatch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.inner.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.inner.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> Dispatch<K> {
    fn tell(&mut self, change: &Change<K>) {
        for handler in &mut self.handlers {
            handler(change);
        }
        self.subscribers
            .retain(|subscriber| subscriber.send(change.clone()).is_ok());
    }
}

/// A way to find objects by something other than their name.
pub struct Index<K> {
    store: Store<K>,
    position: usize,
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            position: self.position,
        }
    }
}

impl<K> fmt::Debug for Index<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl<K: Object> Index<K> {
    /// The objects under `value`, in order.
    #[must_use]
    pub fn get(&self, value: &str) -> Vec<Arc<K>> {
        let state = self.store.read();
        let objects = state
            .indexes
            .get(self.position)
            .and_then(|index| index.entries.get(value));
        objects.map_or_else(Vec::new, |objects| objects.values().cloned().map(typed).collect())
    }

    /// Number of objects under `value`.
    #[must_use]
    pub fn count(&self, value: &str) -> usize {
        let state = self.store.read();
        let objects = state
            .indexes
            .get(self.position)
            .and_then(|index| index.entries.get(value));
        objects.map_or(0, BTreeMap::len)
    }

    /// All values under which there is an object, in order.
    #[must_use]
    pub fn values(&self) -> Vec<String> {
        let state = self.store.read();
        state
            .indexes
            .get(self.position)
            .map(|index| index.entries.keys().cloned().collect())
            .unwrap_or_default()
    }
}

/// A queue of the changes of one store.
#[derive(Debug)]
pub struct Subscription<K> {
    receiver: mpsc::UnboundedReceiver<Change<K>>,
}

impl<K> Subscription<K> {
    /// The next change; `None` when the store is gone.
    pub async fn next(&mut self) -> Option<Change<K>> {
        self.receiver.recv().await
    }

    /// The next change, if there is one already.
    pub fn try_next(&mut self) -> Option<Change<K>> {
        self.receiver.try_recv().ok()
    }
}

#[cfg(test)]
mod tests;
