//! Objects of one kind as the API server has them, kept up to date by a watch, and messages that providers make of what Nodes say.
//!
//! Owns the copy, and the messages until they are acknowledged. Writes are core's to send; the copy takes in their results.

mod conditions;
mod messages;

pub use conditions::hear;
pub use messages::Messages;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use spokeshave_ports::{SharedClock, Write, WriteError, Writes};
use tokio::sync::Notify;

/// Pause after a watch that broke off.
const RETRY: Duration = Duration::from_secs(1);

/// Cluster-scoped objects of one kind, by name.
#[derive(Debug)]
pub struct Mirror<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<K> {
    objects: BTreeMap<String, Arc<K>>,
    is_filled: bool,
}

impl<K> Default for Mirror<K> {
    fn default() -> Self {
        Mirror {
            state: Mutex::new(State {
                objects: BTreeMap::new(),
                is_filled: false,
            }),
            changed: Notify::new(),
        }
    }
}

impl<K> Mirror<K> {
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object of this name.
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.state().objects.get(name).cloned()
    }

    /// All objects, by name. `None` before they were listed once: what is missing then is not known to be gone.
    pub fn all(&self) -> Option<Vec<Arc<K>>> {
        let state = self.state();
        state.is_filled.then(|| state.objects.values().cloned().collect())
    }

    /// Completes after the next change, or at once when there was one since the last call.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl<K> Mirror<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Has core write one of the objects, and takes in the answer before the watch tells it.
    ///
    /// # Errors
    /// The write was not carried out, or its answer is not of this kind.
    pub async fn write(&self, writes: &dyn Writes, write: Write) -> Result<Arc<K>, WriteError> {
        let (name, what) = (write.name.clone(), write.to_string());
        let object = writes.write(write).await?;
        let object: K = serde_json::from_value(object)
            .map_err(|error| WriteError::Failed(format!("{what}: its answer: {error}")))?;
        let object = Arc::new(object);
        let has_ended = object.meta().deletion_timestamp.is_some() && object.finalizers().is_empty();
        let mut state = self.state();
        if has_ended {
            state.objects.remove(&name);
        } else {
            state.objects.insert(name, object.clone());
        }
        drop(state);
        self.changed.notify_one();
        Ok(object)
    }

    /// Keeps the copy up to date for ever.
    pub async fn watch(&self, client: Client, clock: &SharedClock) {
        let api: Api<K> = Api::all(client);
        let mut stream = watcher::watcher(api, watcher::Config::default()).boxed();
        let mut fresh: BTreeMap<String, Arc<K>> = BTreeMap::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(Event::Init) => fresh.clear(),
                Ok(Event::InitApply(object)) => {
                    fresh.insert(object.name_any(), Arc::new(object));
                }
                Ok(Event::InitDone) => {
                    let mut state = self.state();
                    state.objects = std::mem::take(&mut fresh);
                    state.is_filled = true;
                }
                Ok(Event::Apply(object)) => {
                    self.state().objects.insert(object.name_any(), Arc::new(object));
                }
                Ok(Event::Delete(object)) => {
                    self.state().objects.remove(&object.name_any());
                }
                Err(error) => {
                    tracing::debug!(%error, kind = %K::kind(&()), "watching");
                    clock.sleep(RETRY).await;
                }
            }
            self.changed.notify_one();
        }
    }
}
