//! The watch task that fills a store.
//!
//! Owns the loop around kube's `watcher`: it collects a list before it replaces the store's contents at once, waits longer after
//! each failure, and skips what does not decode. It never gives up and never stops on its own. The loop handles trees; a kind adds only how
//! its store takes one in.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use spokeshave_ports::{Entropy, SharedClock, causes, read_object};

use crate::backoff::Backoff;
use crate::raw::{self, Raw, RawKind};
use crate::store::{Object, ObjectKey, Store};
use crate::{Counter, Metrics, Shutdown};

/// First delay after a failure; client-go's value.
const BACKOFF_BASE: Duration = Duration::from_millis(800);
/// Longest delay after a failure; client-go's value.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The counter of failed lists and watches, by kind, for all that watch.
pub fn watch_failures(metrics: &Metrics) -> Counter {
    metrics.counter(
        "spokeshave_watch_failures_total",
        "Failed lists and watches, by kind. Each is followed by a growing pause.",
        &["kind"],
    )
}

/// What to watch.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// Only objects with these labels, in the syntax of `kubectl -l`.
    pub label_selector: Option<String>,
    /// Only objects with these fields, in the syntax of `kubectl --field-selector`.
    pub field_selector: Option<String>,
    /// Ask for the list as a watch (`sendInitialEvents`): less memory on the server, which must be 1.27 or later.
    pub streaming_list: bool,
}

/// Fills one store from one API.
pub struct Reflector<K: Object> {
    store: Store<K>,
    client: kube::Client,
    namespace: Option<String>,
    config: watcher::Config,
    clock: SharedClock,
    entropy: Entropy,
    failures: Counter,
}

impl<K: Object> fmt::Debug for Reflector<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("store", &self.store)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl<K: Object> Reflector<K> {
    /// All objects of the kind, in all namespaces.
    pub fn new(
        client: kube::Client,
        store: &Store<K>,
        options: &WatchOptions,
        clock: SharedClock,
        entropy: &Entropy,
        metrics: &Metrics,
    ) -> Self {
        Self::of(client, None, store, options, clock, entropy, metrics)
    }

    /// The objects of one namespace.
    pub fn namespaced(
        client: kube::Client,
        namespace: &str,
        store: &Store<K>,
        options: &WatchOptions,
        clock: SharedClock,
        entropy: &Entropy,
        metrics: &Metrics,
    ) -> Self
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    {
        let namespace = Some(namespace.to_owned());
        Self::of(client, namespace, store, options, clock, entropy, metrics)
    }

    fn of(
        client: kube::Client,
        namespace: Option<String>,
        store: &Store<K>,
        options: &WatchOptions,
        clock: SharedClock,
        entropy: &Entropy,
        metrics: &Metrics,
    ) -> Self {
        let mut config = watcher::Config {
            label_selector: options.label_selector.clone(),
            field_selector: options.field_selector.clone(),
            ..watcher::Config::default()
        };
        if options.streaming_list {
            config = config.streaming_lists();
        }
        Self {
            store: store.clone(),
            client,
            namespace,
            config,
            clock,
            entropy: entropy.child("reflector"),
            failures: watch_failures(metrics),
        }
    }

    /// Watches until `shutdown`.
    pub async fn run(self, shutdown: Shutdown) {
        let kind = RawKind::of::<K>();
        let namespace = self.namespace.as_deref();
        // A list is requested after `Init`; the initial events of a watch were requested before it.
        let lists_after_init = matches!(
            self.config.initial_list_strategy,
            watcher::InitialListStrategy::ListWatch
        );
        let events = if K::metadata_api() {
            events::<true>(self.client, &kind, namespace, self.config)
        } else {
            events::<false>(self.client, &kind, namespace, self.config)
        };
        let name = K::kind(&()).into_owned();
        let watching = Watching {
            events,
            sink: Box::new(Filler {
                store: self.store,
                pending: PendingList::default(),
                lists_after_init,
                unread: Unread::default(),
                kind: name.clone(),
            }),
            backoff: Backoff::new(
                BACKOFF_BASE,
                BACKOFF_MAX,
                self.entropy.rng(&K::url_path(&(), None)),
            ),
            kind: name,
            is_defined: is_defined(&K::group(&())),
            clock: self.clock,
            failures: self.failures,
        };
        watching.run(shutdown).await;
    }
}

/// Events of the watch of one kind, as trees.
fn events<const METADATA: bool>(
    client: kube::Client,
    kind: &RawKind,
    namespace: Option<&str>,
    config: watcher::Config,
) -> BoxStream<'static, watcher::Result<Event<Value>>> {
    let api: Api<Raw<METADATA>> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, kind),
        None => Api::all_with(client, kind),
    };
    let tree = |event| match event {
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(Raw::into_tree(object)),
        Event::InitDone => Event::InitDone,
        Event::Apply(object) => Event::Apply(Raw::into_tree(object)),
        Event::Delete(object) => Event::Delete(Raw::into_tree(object)),
    };
    watcher::watcher(api, config)
        .map(move |event| event.map(tree))
        .boxed()
}

/// Applies the events of a watch on one kind.
trait Sink: Send {
    /// Takes one event in; true when it shows that the server answers well.
    fn take(&mut self, event: Event<Value>) -> bool;
}

/// The loop, which is the same for every kind.
struct Watching {
    kind: String,
    /// It comes with a definition that can be installed.
    is_defined: bool,
    events: BoxStream<'static, watcher::Result<Event<Value>>>,
    sink: Box<dyn Sink>,
    backoff: Backoff,
    clock: SharedClock,
    failures: Counter,
}

impl Watching {
    /// Boxed here, so that only this crate contains its code.
    fn run(self, shutdown: Shutdown) -> BoxFuture<'static, ()> {
        Box::pin(self.watch(shutdown))
    }

    async fn watch(mut self, shutdown: Shutdown) {
        loop {
            let Some(Some(event)) = shutdown.cut(self.events.next()).await else {
                return;
            };
            match event {
                Ok(event) => {
                    if self.sink.take(event) {
                        self.backoff.reset();
                    }
                }
                Err(error) => {
                    if is_expired(&error) {
                        // The server answers, and a list is what it asks for: an outage that went before is no reason to stay blind.
                        self.backoff.reset();
                    }
                    let delay = self.failed(&error);
                    if shutdown.cut(self.clock.sleep(delay)).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Logs a failure, and returns how long to wait after it.
    fn failed(&mut self, error: &watcher::Error) -> Duration {
        let kind = &self.kind;
        self.failures.inc(&[kind]);
        let delay = self.backoff.next_delay();
        // One line per outage is enough; the counter has the rest.
        let is_first = self.backoff.failures() == 1;
        if is_first && is_unknown(error) && self.is_defined {
            tracing::warn!(
                kind,
                "the API server does not know this kind: install its CustomResourceDefinition (`spokeshave crds | kubectl apply -f -`); until then nothing is ready"
            );
        } else if is_first && is_unknown(error) {
            tracing::warn!(
                kind,
                "the API server does not serve this kind of Kubernetes itself in the version that is read here; until it does, nothing is ready"
            );
        } else if is_first && !is_expired(error) {
            tracing::warn!(kind, error = %causes(error), "watch failed, retrying");
        } else {
            tracing::debug!(kind, error = %causes(error), failures = self.backoff.failures(), "watch failed, retrying");
        }
        delay
    }
}

/// Fills a store.
struct Filler<K> {
    store: Store<K>,
    pending: PendingList<K>,
    /// Whether what was written before `Init` is in the list that follows it.
    lists_after_init: bool,
    unread: Unread,
    kind: String,
}

/// Nothing comes any more.
impl<K> Drop for Filler<K> {
    fn drop(&mut self) {
        self.store.drop_handlers();
    }
}

impl<K: Object> Filler<K> {
    /// The object or what stands in for it, or what it is called and why it cannot be read.
    fn decoded(&mut self, tree: Value) -> Result<K, Unreadable> {
        let (key, version) = (raw::key(&tree), raw::version(&tree));
        let stand_in = self.store.stand_in().map(|make| (make, tree.clone()));
        let error = match read_object::<K>(tree) {
            Ok(object) => {
                self.unread.forget(&key);
                return Ok(object);
            }
            Err(error) => error.to_string(),
        };
        let (kind, is_news) = (&self.kind, self.unread.is_news(&key, &error));
        let stand_in = stand_in.and_then(|(make, tree)| make(&tree));
        match (&stand_in, is_news) {
            (Some(_), true) => {
                tracing::warn!(kind, object = %key, error, "an object cannot be read and counts as the safest of its kind: correct the value that the error names");
            }
            (None, true) => {
                tracing::warn!(kind, object = %key, error, "skipping an object that cannot be read")
            }
            (_, false) => tracing::debug!(kind, object = %key, error, "still cannot be read"),
        }
        stand_in.ok_or(Unreadable { key, version, error })
    }
}

/// What the log has said of objects that cannot be read. Each is named once and not with every event and list: a Node is written every few seconds.
#[derive(Default)]
struct Unread {
    /// Objects and errors.
    said: BTreeMap<ObjectKey, String>,
    /// What was said before the list that is arriving; what is not in it is gone.
    before: BTreeMap<ObjectKey, String>,
}

impl Unread {
    /// Takes an object in, and says whether the log has yet to name it: it is new, or its error is another.
    fn is_news(&mut self, key: &ObjectKey, error: &str) -> bool {
        let known = self.said.get(key).or_else(|| self.before.get(key));
        let is_news = known.is_none_or(|known| known != error);
        self.said.insert(key.clone(), error.to_owned());
        is_news
    }

    /// An object can be read again, or is gone.
    fn forget(&mut self, key: &ObjectKey) {
        self.said.remove(key);
        self.before.remove(key);
    }

    fn begin_list(&mut self) {
        self.before.append(&mut self.said);
    }

    fn end_list(&mut self) {
        self.before.clear();
    }
}

struct Unreadable {
    key: ObjectKey,
    version: Option<u64>,
    error: String,
}

impl<K: Object> Sink for Filler<K> {
    fn take(&mut self, event: Event<Value>) -> bool {
        match event {
            Event::Init => {
                self.pending = PendingList::default();
                self.unread.begin_list();
                if self.lists_after_init {
                    self.store.begin_list();
                }
            }
            // Trimmed at once: a whole untrimmed list would set the peak of memory use.
            Event::InitApply(tree) => match self.decoded(tree) {
                Ok(object) => self.pending.objects.push(self.store.trimmed(object)),
                Err(bad) => {
                    self.pending.rejected.insert(bad.key, bad.error);
                }
            },
            Event::InitDone => {
                let list = std::mem::take(&mut self.pending);
                self.unread.end_list();
                self.store.replace(list.objects, list.rejected);
                return true;
            }
            Event::Apply(tree) => {
                match self.decoded(tree) {
                    Ok(object) => self.store.apply(object),
                    Err(bad) => self.store.reject(&bad.key, bad.version, bad.error),
                }
                return true;
            }
            Event::Delete(tree) => {
                let key = raw::key(&tree);
                self.unread.forget(&key);
                self.store.delete(&key, raw::uid(&tree), raw::version(&tree));
                return true;
            }
        }
        false
    }
}

/// A list that is still arriving.
struct PendingList<K> {
    objects: Vec<Arc<K>>,
    rejected: BTreeMap<ObjectKey, String>,
}

impl<K> Default for PendingList<K> {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            rejected: BTreeMap::new(),
        }
    }
}

/// Whether a watch failed because what it was to go on from is forgotten.
fn is_expired(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchError(status) | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => {
            status.code == 410
        }
        _ => false,
    }
}

/// Whether kinds of a group come with definitions of their own, and not with Kubernetes.
fn is_defined(group: &str) -> bool {
    group.contains('.') && !group.ends_with(".k8s.io")
}

/// Whether a watch failed because the kind is not served.
fn is_unknown(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever is told to install a kind of Kubernetes itself looks for it in vain.
    #[test]
    fn only_kinds_that_come_with_definitions_are_to_be_installed() {
        for (group, expected) in [
            ("", false),
            ("apps", false),
            ("resource.k8s.io", false),
            ("karpenter.sh", true),
            ("kwok.spokeshave.dev", true),
            ("autoscaling.x-k8s.io", true),
        ] {
            assert_eq!(is_defined(group), expected, "{group}");
        }
    }

    /// The log is read by people: an object that stays as it is stays unmentioned, whatever is written to it and however often all are listed.
    #[test]
    fn an_object_that_cannot_be_read_is_news_once() {
        let (a, b) = (ObjectKey::cluster("a"), ObjectKey::cluster("b"));
        let mut unread = Unread::default();
        assert!(unread.is_news(&a, "not a time"));
        assert!(!unread.is_news(&a, "not a time"));
        assert!(unread.is_news(&a, "not a number"), "another error");
        assert!(unread.is_news(&b, "not a number"), "another object");
        // A list that is broken off, and the one after it.
        unread.begin_list();
        assert!(!unread.is_news(&a, "not a number"));
        unread.begin_list();
        assert!(!unread.is_news(&a, "not a number"));
        unread.end_list();
        assert!(!unread.is_news(&a, "not a number"));
        assert!(unread.is_news(&b, "not a number"), "it was gone meanwhile");
        unread.forget(&a);
        assert!(unread.is_news(&a, "not a number"), "it could be read meanwhile");
    }
}
