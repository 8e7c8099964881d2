//! Objects of one kind as the API server has them, kept up to date by a watch, and messages that providers make of what Nodes say.
//!
//! Owns the copy, and the messages until they are acknowledged. Writes are core's to send; the copy takes in their results.

mod conditions;
mod failing;
mod messages;

pub use conditions::hear;
pub use failing::Failing;
pub use messages::Messages;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use spokeshave_ports::{SharedClock, Write, WriteError, Writes};
use tokio::sync::Notify;

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

    /// Keeps the copy up to date for ever. After a failure it pauses, longer each time.
    pub async fn watch(&self, client: Client, clock: &SharedClock) {
        let api: Api<K> = Api::all(client);
        let mut stream = watcher::watcher(api, watcher::Config::default()).boxed();
        let mut fresh: BTreeMap<String, Arc<K>> = BTreeMap::new();
        let mut failing = Failing::new(&K::kind(&()));
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
                    failing.works();
                }
                Ok(Event::Apply(object)) => {
                    failing.works();
                    self.state().objects.insert(object.name_any(), Arc::new(object));
                }
                Ok(Event::Delete(object)) => {
                    failing.works();
                    self.state().objects.remove(&object.name_any());
                }
                Err(error) => {
                    clock.sleep(failing.failed(&error)).await;
                }
            }
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Node;
    use kube::client::Body;
    use spokeshave_ports::TokioClock;

    use super::*;

    /// How an API server answers that allows nothing.
    fn forbidden() -> http::Response<Body> {
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}"#;
        let mut answer = http::Response::new(Body::from(status.as_bytes().to_vec()));
        *answer.status_mut() = http::StatusCode::FORBIDDEN;
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_cannot_be_watched_is_asked_for_less_and_less() {
        let asked = Arc::new(AtomicU64::new(0));
        let counted = asked.clone();
        let forbids = move |_: http::Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok::<_, Infallible>(forbidden()))
        };
        let client = Client::new(tower::service_fn(forbids), "default");
        let clock = TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared();
        let mirror: Mirror<Node> = Mirror::default();
        // Failures at 0, 1, 3, 7, 15, 31, 61 and 91 seconds.
        let watching = tokio::time::timeout(Duration::from_secs(100), mirror.watch(client, &clock));
        assert!(watching.await.is_err(), "it never gives up");
        assert_eq!(asked.load(Ordering::Relaxed), 8);
        assert!(
            mirror.all().is_none(),
            "what was never listed is not known to be gone"
        );
    }
}
