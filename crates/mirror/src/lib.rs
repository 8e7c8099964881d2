//! Objects of one kind as the API server has them, kept up to date by a watch, and messages that providers make of what Nodes say.
//!
//! Owns the copy, the messages until they are acknowledged, and the order of writes of which some are refused. Writes are core's to send; the copy takes
//! in their results. Neither ever falls back behind what is known already, and what cannot be read hides nothing else.

mod absent;
mod conditions;
mod failing;
mod messages;
mod rounds;
mod unreadable;

pub use absent::{Absent, Incomplete};
pub use conditions::hear;
pub use failing::Failing;
pub use messages::Messages;
pub use rounds::Rounds;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use spokeshave_ports::{SharedClock, WatchFailures, Write, WriteError, Writes, read_object};
use tokio::sync::Notify;

use unreadable::Unreadable;

/// Cluster-scoped objects of one kind, by name.
#[derive(Debug)]
pub struct Mirror<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<K> {
    objects: BTreeMap<String, Arc<K>>,
    /// Those that are there, cannot be read and were not read before, with the reason. None of them is among the objects.
    unread: BTreeMap<String, String>,
    is_filled: bool,
}

impl<K> Default for Mirror<K> {
    fn default() -> Self {
        Mirror {
            state: Mutex::new(State {
                objects: BTreeMap::new(),
                unread: BTreeMap::new(),
                is_filled: false,
            }),
            changed: Notify::new(),
        }
    }
}

impl<K: Resource> State<K> {
    /// Takes in an object that the API server has told, unless a newer one is here: the answer to a write of ours may have come first.
    fn put(&mut self, name: String, object: Arc<K>) {
        if !self.has_newer(&name, object.meta()) {
            self.unread.remove(&name);
            self.objects.insert(name, object);
        }
    }

    /// Takes note of an object that cannot be read, unless it is known as it was last.
    fn note_unread(&mut self, name: String, reason: String) {
        if !self.objects.contains_key(&name) {
            self.unread.insert(name, reason);
        }
    }

    /// Takes in all objects, as they were listed, and those that cannot be read: others have gone, and of those that are newer here the list has not heard yet.
    fn fill(&mut self, mut listed: BTreeMap<String, Arc<K>>, unread: BTreeMap<String, String>) {
        for (name, object) in &mut listed {
            if self.has_newer(name, object.meta())
                && let Some(known) = self.objects.get(name)
            {
                *object = known.clone();
            }
        }
        self.objects = listed;
        self.unread = unread;
        self.is_filled = true;
    }

    /// Takes out an object that has ended, with its last metadata, unless its successor is here already.
    fn take(&mut self, name: &str, last: &ObjectMeta) {
        if !self.has_newer(name, last) {
            self.objects.remove(name);
            self.unread.remove(name);
        }
    }

    /// Whether the object of this name is newer than the one with this metadata. Versions that cannot be compared are taken as they come.
    fn has_newer(&self, name: &str, metadata: &ObjectMeta) -> bool {
        let known = self.objects.get(name).and_then(|known| version(known.meta()));
        matches!((known, version(metadata)), (Some(known), Some(told)) if known > told)
    }
}

impl<K> Mirror<K> {
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object of this name. That there is none does not say that it does not exist, which [`find`](Self::find) does.
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.state().objects.get(name).cloned()
    }

    /// The object of this name, or why there is none.
    ///
    /// # Errors
    /// It was not listed yet, cannot be read, or does not exist.
    pub fn find(&self, name: &str) -> Result<Arc<K>, Absent> {
        let state = self.state();
        if let Some(object) = state.objects.get(name) {
            return Ok(object.clone());
        }
        Err(match state.unread.get(name) {
            Some(reason) => Absent::Unreadable(reason.clone()),
            None if state.is_filled => Absent::Gone,
            None => Absent::NotListed,
        })
    }

    /// All objects that can be read, by name. `None` before they were listed once: what is missing then is not known to be gone.
    pub fn all(&self) -> Option<Vec<Arc<K>>> {
        let state = self.state();
        state.is_filled.then(|| state.objects.values().cloned().collect())
    }

    /// All objects that there are, by name: for whoever takes away what none of them uses.
    ///
    /// # Errors
    /// They were not listed yet, or some of them cannot be read and were not read before.
    pub fn complete(&self) -> Result<Vec<Arc<K>>, Incomplete> {
        let state = self.state();
        if !state.is_filled {
            return Err(Incomplete::NotListed);
        }
        if !state.unread.is_empty() {
            return Err(Incomplete::Unreadable(state.unread.keys().cloned().collect()));
        }
        Ok(state.objects.values().cloned().collect())
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
    /// Has core write one of the objects, and takes in the answer before the watch tells it. An answer that comes late says nothing new: neither of an object that has
    /// changed since, nor of one that has gone.
    ///
    /// # Errors
    /// The write was not carried out, or its answer is not of this kind.
    pub async fn write(&self, writes: &dyn Writes, write: Write) -> Result<Arc<K>, WriteError> {
        let (name, what) = (write.name.clone(), write.to_string());
        let object = writes.write(write).await?;
        let object: K = read_object(object)
            .map_err(|error| WriteError::Failed(format!("{what}: its answer: {error}")))?;
        let object = Arc::new(object);
        let has_ended = object.meta().deletion_timestamp.is_some() && object.finalizers().is_empty();
        let mut state = self.state();
        if has_ended {
            state.take(&name, object.meta());
        } else if state.objects.contains_key(&name) {
            state.put(name, object.clone());
        }
        drop(state);
        self.changed.notify_one();
        Ok(object)
    }

    /// Keeps the copy up to date for ever. After a failure, which is counted, it pauses, longer each time. An object that cannot be read stays as it was last, or
    /// is there without being known.
    pub async fn watch(&self, client: Client, clock: &SharedClock, failures: &WatchFailures) {
        let mut events = events(client, &ApiResource::erase::<K>(&()));
        let mut fresh: BTreeMap<String, Arc<K>> = BTreeMap::new();
        let mut unread: BTreeMap<String, String> = BTreeMap::new();
        let mut failing = Failing::new(&K::kind(&()));
        let mut unreadable = Unreadable::new(&K::kind(&()));
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    fresh.clear();
                    unread.clear();
                    unreadable.forget_all();
                }
                Ok(Event::InitApply(object)) => {
                    let name = object.name_any();
                    let known = self.get(&name);
                    let object = unreadable.read(object, known.is_some()).map(Arc::new);
                    match object.or_else(|reason| known.ok_or(reason)) {
                        Ok(object) => drop(fresh.insert(name, object)),
                        Err(reason) => drop(unread.insert(name, reason)),
                    }
                }
                Ok(Event::InitDone) => {
                    let listed = std::mem::take(&mut fresh);
                    self.state().fill(listed, std::mem::take(&mut unread));
                    failing.works();
                }
                Ok(Event::Apply(object)) => {
                    failing.works();
                    let name = object.name_any();
                    let is_known = self.get(&name).is_some();
                    match unreadable.read(object, is_known) {
                        Ok(object) => self.state().put(name, Arc::new(object)),
                        Err(reason) => self.state().note_unread(name, reason),
                    }
                }
                Ok(Event::Delete(object)) => {
                    failing.works();
                    let name = object.name_any();
                    unreadable.forget(&name);
                    self.state().take(&name, &object.metadata);
                }
                Err(error) => {
                    failures.count(&K::kind(&()));
                    clock.sleep(failing.failed(&error)).await;
                }
            }
            self.changed.notify_one();
        }
    }
}

/// Events of the watch of one kind. They are not decoded, because one object that cannot be would fail the list that it is in, and so hide all others.
fn events(client: Client, kind: &ApiResource) -> BoxStream<'static, watcher::Result<Event<DynamicObject>>> {
    let api: Api<DynamicObject> = Api::all_with(client, kind);
    watcher::watcher(api, watcher::Config::default()).boxed()
}

/// The resourceVersion as a number: since Kubernetes 1.35 versions of one server may be compared so.
fn version(metadata: &ObjectMeta) -> Option<u64> {
    metadata.resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use futures::future::BoxFuture;
    use k8s_openapi::api::core::v1::Node;
    use kube::client::Body;
    use serde_json::{Value, json};
    use spokeshave_ports::{TokioClock, WriteTarget};

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
        let clock = clock();
        let mirror: Mirror<Node> = Mirror::default();
        // Failures at 0, 1, 3, 7, 15, 31, 61 and 91 seconds.
        let failures = WatchFailures::default();
        let watching = mirror.watch(client, &clock, &failures);
        let watching = tokio::time::timeout(Duration::from_secs(100), watching);
        assert!(watching.await.is_err(), "it never gives up");
        assert_eq!(asked.load(Ordering::Relaxed), 8);
        let counted: Vec<(String, u32)> = failures.take().into_iter().collect();
        assert_eq!(counted, [("Node".to_owned(), 8)]);
        assert!(
            mirror.all().is_none(),
            "what was never listed is not known to be gone"
        );
    }

    fn clock() -> SharedClock {
        TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared()
    }

    /// A Node of a version, with one more field of its spec.
    fn node(name: &str, version: u64, field: &str, value: impl Into<Value>) -> Value {
        let value: Value = value.into();
        let metadata = json!({"name": name, "uid": name, "resourceVersion": version.to_string()});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {field: value}})
    }

    fn list(nodes: &[Value]) -> String {
        let metadata = json!({"resourceVersion": "10"});
        json!({"apiVersion": "v1", "kind": "NodeList", "metadata": metadata, "items": nodes}).to_string()
    }

    /// What a watch tells before it ends.
    fn told(events: &[(&str, Value)]) -> String {
        let line = |(kind, object): &(&str, Value)| {
            let event = json!({"type": kind, "object": object});
            format!("{event}\n")
        };
        events.iter().map(line).collect()
    }

    /// An API server that takes a second for each of these answers, one after the other, and never gives another one.
    fn answering(texts: Vec<String>, clock: &SharedClock) -> Client {
        let (texts, clock) = (Mutex::new(VecDeque::from(texts)), clock.clone());
        let answers = move |_: http::Request<Body>| {
            let text = texts.lock().unwrap().pop_front();
            let second = clock.sleep(Duration::from_secs(1));
            async move {
                second.await;
                match text {
                    Some(text) => Ok::<_, Infallible>(http::Response::new(Body::from(text.into_bytes()))),
                    None => std::future::pending().await,
                }
            }
        };
        Client::new(tower::service_fn(answers), "default")
    }

    /// The provider ID of the Node of this name.
    fn provider_id(mirror: &Mirror<Node>, name: &str) -> Option<String> {
        mirror.get(name)?.spec.as_ref()?.provider_id.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_cannot_be_read_hides_no_other_and_stays_as_it_was() {
        let clock = clock();
        let listed = list(&[
            node("good", 5, "providerID", "first"),
            node("bad", 6, "unschedulable", "perhaps"),
        ]);
        let spoilt = told(&[
            ("MODIFIED", node("good", 11, "providerID", "second")),
            ("MODIFIED", node("good", 12, "unschedulable", "perhaps")),
        ]);
        let mended = told(&[
            ("MODIFIED", node("bad", 13, "providerID", "third")),
            ("DELETED", node("good", 14, "unschedulable", "perhaps")),
        ]);
        let client = answering(vec![listed, spoilt, mended], &clock);
        let mirror: Mirror<Node> = Mirror::default();
        let looks = async {
            let look = async || {
                clock.sleep(Duration::from_secs(1)).await;
                ["good", "bad"].map(|name| provider_id(&mirror, name))
            };
            // Between the answers.
            clock.sleep(Duration::from_millis(500)).await;
            let seen = |id: &str| Some(id.to_owned());
            assert_eq!(look().await, [seen("first"), None]);
            assert_eq!(look().await, [seen("second"), None]);
            assert_eq!(look().await, [None, seen("third")]);
            assert_eq!(mirror.all().unwrap().len(), 1);
        };
        let failures = WatchFailures::default();
        tokio::select! {
            biased;
            () = mirror.watch(client, &clock, &failures) => unreachable!("a watch never ends"),
            () = looks => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_listed_or_cannot_be_read_is_not_taken_for_gone() {
        let clock = clock();
        let listed = list(&[
            node("good", 5, "providerID", "first"),
            node("bad", 6, "unschedulable", "perhaps"),
        ]);
        let made = told(&[
            ("MODIFIED", node("good", 11, "unschedulable", "perhaps")),
            ("MODIFIED", node("bad", 12, "providerID", "second")),
            ("ADDED", node("worse", 13, "unschedulable", "perhaps")),
        ]);
        let gone = told(&[
            ("DELETED", node("worse", 14, "unschedulable", "perhaps")),
            ("DELETED", node("bad", 15, "providerID", "second")),
        ]);
        let client = answering(vec![listed, made, gone], &clock);
        let mirror: Mirror<Node> = Mirror::default();
        let name_of = |node: Arc<Node>| node.metadata.name.clone().unwrap();
        let found = |name: &str| mirror.find(name).map(name_of);
        let complete = || mirror.complete().map(|nodes| nodes.len());
        let looks = async {
            // Between the answers.
            clock.sleep(Duration::from_millis(500)).await;
            assert_eq!(found("good"), Err(Absent::NotListed));
            assert_eq!(complete(), Err(Incomplete::NotListed));
            clock.sleep(Duration::from_secs(1)).await;
            assert_eq!(found("good"), Ok("good".to_owned()));
            let bad = found("bad");
            assert!(
                matches!(&bad, Err(Absent::Unreadable(reason)) if reason.contains("perhaps")),
                "{bad:?}"
            );
            assert_eq!(found("none"), Err(Absent::Gone));
            assert_eq!(complete(), Err(Incomplete::Unreadable(vec!["bad".to_owned()])));
            clock.sleep(Duration::from_secs(1)).await;
            assert_eq!(found("good"), Ok("good".to_owned()), "as it was last");
            assert_eq!(found("bad"), Ok("bad".to_owned()));
            assert_eq!(complete(), Err(Incomplete::Unreadable(vec!["worse".to_owned()])));
            clock.sleep(Duration::from_secs(1)).await;
            assert_eq!(found("worse"), Err(Absent::Gone));
            assert_eq!(found("bad"), Err(Absent::Gone));
            assert_eq!(complete(), Ok(1));
        };
        let failures = WatchFailures::default();
        tokio::select! {
            biased;
            () = mirror.watch(client, &clock, &failures) => unreachable!("a watch never ends"),
            () = looks => {}
        }
    }

    /// Answers every write with this object.
    #[derive(Debug)]
    struct Written(Value);

    impl Writes for Written {
        fn write(&self, _: Write) -> BoxFuture<'_, Result<Value, WriteError>> {
            Box::pin(std::future::ready(Ok(self.0.clone())))
        }
    }

    /// Has an object written, and says what its answer is.
    async fn write(mirror: &Mirror<Node>, name: &str, answer: Value) -> Arc<Node> {
        let write = Write {
            target: WriteTarget::Node,
            name: name.to_owned(),
            patch: json!({}),
        };
        mirror.write(&Written(answer), write).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_lags_behind_a_write_does_not_undo_it() {
        let clock = clock();
        let nodes = ["kept", "gone"].map(|name| node(name, 5, "providerID", "listed"));
        let forgotten = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "too old resource version", "reason": "Expired", "code": 410});
        let forgotten = told(&[("ERROR", forgotten)]);
        let lagging = list(&[node("kept", 25, "providerID", "lagging")]);
        let client = answering(vec![list(&nodes), forgotten, lagging], &clock);
        let mirror: Mirror<Node> = Mirror::default();
        let looks = async {
            // Answers come after one and two seconds and, after a pause of one, after four.
            clock.sleep(Duration::from_millis(2500)).await;
            let answer = node("kept", 30, "providerID", "written");
            write(&mirror, "kept", answer).await;
            clock.sleep(Duration::from_secs(2)).await;
            assert_eq!(provider_id(&mirror, "gone"), None, "it was listed again");
            let id = provider_id(&mirror, "kept");
            assert_eq!(id.as_deref(), Some("written"));
        };
        let failures = WatchFailures::default();
        tokio::select! {
            biased;
            () = mirror.watch(client, &clock, &failures) => unreachable!("a watch never ends"),
            () = looks => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_overwrites_nothing_newer_and_brings_nothing_back() {
        let clock = clock();
        let nodes = ["kept", "gone"].map(|name| node(name, 5, "providerID", "listed"));
        let watched = told(&[
            ("MODIFIED", node("kept", 20, "providerID", "watched")),
            ("DELETED", node("gone", 21, "providerID", "listed")),
        ]);
        let lagging = told(&[("MODIFIED", node("kept", 25, "providerID", "lagging"))]);
        let client = answering(vec![list(&nodes), watched, lagging], &clock);
        let mirror: Mirror<Node> = Mirror::default();
        let written = async |name: &str, version: u64| {
            let answer = node(name, version, "providerID", "written");
            let object = write(&mirror, name, answer).await;
            let id = object.spec.as_ref().and_then(|spec| spec.provider_id.clone());
            assert_eq!(id.as_deref(), Some("written"), "whoever writes gets the answer");
            provider_id(&mirror, name)
        };
        let looks = async {
            clock.sleep(Duration::from_millis(2500)).await;
            assert_eq!(written("kept", 15).await.as_deref(), Some("watched"));
            assert_eq!(written("gone", 15).await, None);
            assert_eq!(written("kept", 30).await.as_deref(), Some("written"));
            clock.sleep(Duration::from_secs(1)).await;
            let id = provider_id(&mirror, "kept");
            assert_eq!(
                id.as_deref(),
                Some("written"),
                "the watch has told of an older one"
            );
        };
        let failures = WatchFailures::default();
        tokio::select! {
            biased;
            () = mirror.watch(client, &clock, &failures) => unreachable!("a watch never ends"),
            () = looks => {}
        }
    }
}
