//! The watch task that fills a store.
//!
//! Owns the loop around kube's `watcher`: it collects a list before it replaces the store's contents at once, waits longer after
//! each failure, and skips what does not decode. It never gives up and never ends by itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::runtime::watcher::{self, Event};
use spokeshave_ports::{Entropy, SharedClock};

use crate::backoff::Backoff;
use crate::lenient::Lenient;
use crate::store::{Object, ObjectKey, Store, version_of};
use crate::{Counter, Metrics, Shutdown};

/// First delay after a failure; client-go's value.
const BACKOFF_BASE: Duration = Duration::from_millis(800);
/// Longest delay after a failure; client-go's value.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

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
    api: Api<Lenient<K>>,
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
        Self::with_api(Api::all(client), store, options, clock, entropy, metrics)
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
        Self::with_api(
            Api::namespaced(client, namespace),
            store,
            options,
            clock,
            entropy,
            metrics,
        )
    }

    fn with_api(
        api: Api<Lenient<K>>,
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
            api,
            config,
            clock,
            entropy: entropy.child("reflector"),
            failures: metrics.counter(
                "spokeshave_watch_failures_total",
                "Failed lists and watches, by kind. Each is followed by a growing pause.",
                &["kind"],
            ),
        }
    }

    /// Watches until `shutdown`.
    pub async fn run(self, shutdown: Shutdown) {
        let kind = K::kind(&()).into_owned();
        let mut backoff = Backoff::new(
            BACKOFF_BASE,
            BACKOFF_MAX,
            self.entropy.rng(&K::url_path(&(), None)),
        );
        let mut stream = std::pin::pin!(watcher::watcher(self.api.clone(), self.config.clone()));
        let mut pending = PendingList::default();
        loop {
            let Some(Some(event)) = shutdown.cut(stream.next()).await else {
                return;
            };
            match event {
                Ok(event) => {
                    if self.take(event, &mut pending, &kind) {
                        backoff.reset();
                    }
                }
                Err(error) => {
                    self.failures.inc(&[&kind]);
                    let delay = backoff.next_delay();
                    // One line per outage is enough; the counter has the rest.
                    if backoff.failures() == 1 && is_unknown(&error) {
                        tracing::warn!(
                            kind,
                            "the API server does not know this kind: install its CustomResourceDefinition (`spokeshave crds | kubectl apply -f -`); until then nothing is ready"
                        );
                    } else if backoff.failures() == 1 {
                        tracing::warn!(kind, %error, "watch failed, retrying");
                    } else {
                        tracing::debug!(kind, %error, failures = backoff.failures(), "watch failed, retrying");
                    }
                    if shutdown.cut(self.clock.sleep(delay)).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Takes one event in; true when it shows that the server answers well.
    fn take(&self, event: Event<Lenient<K>>, pending: &mut PendingList<K>, kind: &str) -> bool {
        match event {
            Event::Init => *pending = PendingList::default(),
            // Trimmed at once: a whole list with what nobody reads would be the most memory that is ever needed.
            Event::InitApply(Lenient::Good(object)) => pending.objects.push(self.store.trimmed(object)),
            Event::InitApply(Lenient::Bad { metadata, error }) => {
                let key = key_of(&metadata);
                tracing::warn!(kind, object = %key, error, "skipping an object that cannot be read");
                pending.rejected.insert(key, error);
            }
            Event::InitDone => {
                let list = std::mem::take(pending);
                self.store.replace(list.objects, list.rejected);
                return true;
            }
            Event::Apply(Lenient::Good(object)) => {
                self.store.apply(object);
                return true;
            }
            Event::Apply(Lenient::Bad { metadata, error }) => {
                let key = key_of(&metadata);
                tracing::warn!(kind, object = %key, error, "skipping an object that cannot be read");
                let version = metadata
                    .resource_version
                    .as_deref()
                    .and_then(|version| version.parse().ok());
                self.store.reject(&key, version, error);
                return true;
            }
            Event::Delete(object) => {
                let version = version_of(&object);
                let metadata = kube::Resource::meta(&object);
                self.store
                    .delete(&key_of(metadata), metadata.uid.as_deref(), version);
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

fn key_of(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> ObjectKey {
    ObjectKey {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

/// Whether a watch failed because the kind is not served.
fn is_unknown(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}
