//! NodeClasses of whatever kind the cloud declares: what controllers read of them is generation and readiness; the objects are kept for the cloud.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use spokeshave_api::NodeClassRef;
use spokeshave_mirror::Failing;
use spokeshave_plan::nodepool::NodeClassView;
use spokeshave_ports::{NodeClassKind, SharedClock};
use spokeshave_runtime::{Metrics, Shutdown, watch_failures};
use spokeshave_watched as watch;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Key = (String, String, String);

/// What is read of a class here, and the whole of it.
#[derive(Clone, Debug)]
struct Known {
    view: NodeClassView,
    object: Arc<DynamicObject>,
}

/// All NodeClasses of the cloud's kinds. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct NodeClasses {
    known: Arc<Mutex<BTreeMap<Key, Known>>>,
    /// Kinds, with their groups, that were listed once.
    listed: Arc<Mutex<BTreeSet<(String, String)>>>,
    changed: Arc<watch::Sender<u64>>,
}

impl NodeClasses {
    pub(crate) fn new() -> Self {
        Self {
            known: Arc::default(),
            listed: Arc::default(),
            changed: Arc::new(watch::channel(0).0),
        }
    }

    pub(crate) fn find(&self, reference: &NodeClassRef) -> Option<NodeClassView> {
        self.known(reference).map(|known| known.view)
    }

    /// The class as the API server has told it.
    pub(crate) fn object(&self, reference: &NodeClassRef) -> Option<Arc<DynamicObject>> {
        self.known(reference).map(|known| known.object)
    }

    fn known(&self, reference: &NodeClassRef) -> Option<Known> {
        let key = (
            reference.group.clone(),
            reference.kind.clone(),
            reference.name.clone(),
        );
        lock(&self.known).get(&key).cloned()
    }

    /// True once the objects of this kind were listed.
    pub(crate) fn has_listed(&self, reference: &NodeClassRef) -> bool {
        let kind = (reference.group.clone(), reference.kind.clone());
        lock(&self.listed).contains(&kind)
    }

    /// Hears of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Watches one kind until shutdown.
    pub(crate) async fn watch(
        self,
        client: Client,
        kind: NodeClassKind,
        clock: SharedClock,
        metrics: Metrics,
        shutdown: Shutdown,
    ) {
        let failures = watch_failures(&metrics);
        let resource = ApiResource {
            group: kind.group.clone(),
            version: kind.version.clone(),
            api_version: kind.api_version(),
            kind: kind.kind.clone(),
            plural: kind.plural.clone(),
        };
        let api: Api<DynamicObject> = Api::all_with(client, &resource);
        let mut stream = watcher(api, watcher::Config::default()).boxed();
        let mut fresh: BTreeMap<Key, Known> = BTreeMap::new();
        let mut failing = Failing::new(&kind.kind);
        while let Some(Some(event)) = shutdown.cut(stream.next()).await {
            match event {
                Ok(watcher::Event::Init) => fresh.clear(),
                Ok(watcher::Event::InitApply(object)) => {
                    let (key, known) = read(&kind, object);
                    fresh.insert(key, known);
                }
                Ok(watcher::Event::InitDone) => {
                    failing.works();
                    lock(&self.listed).insert((kind.group.clone(), kind.kind.clone()));
                    self.change(|known| {
                        known.retain(|(group, name, _), _| !(*group == kind.group && *name == kind.kind));
                        known.append(&mut fresh);
                    });
                }
                Ok(watcher::Event::Apply(object)) => {
                    failing.works();
                    let (key, one) = read(&kind, object);
                    self.change(|known| drop(known.insert(key, one)));
                }
                Ok(watcher::Event::Delete(object)) => {
                    failing.works();
                    let (key, _) = read(&kind, object);
                    self.change(|known| drop(known.remove(&key)));
                }
                Err(error) => {
                    failures.inc(&[&kind.kind]);
                    let pause = clock.sleep(failing.failed(&error));
                    if shutdown.cut(pause).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<Key, Known>)) {
        change(&mut lock(&self.known));
        self.changed.send_modify(|count| *count += 1);
    }
}

fn read(kind: &NodeClassKind, object: DynamicObject) -> (Key, Known) {
    let conditions = object.data["status"]["conditions"].as_array();
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Ready")
        .map(|condition| {
            let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
            (text("status"), text("reason"), text("message"))
        });
    let view = NodeClassView {
        generation: object.metadata.generation.unwrap_or(0),
        deleting: object.metadata.deletion_timestamp.is_some(),
        ready,
    };
    let key = (kind.group.clone(), kind.kind.clone(), object.name_any());
    let object = Arc::new(object);
    (key, Known { view, object })
}
