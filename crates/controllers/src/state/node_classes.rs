//! NodeClasses of whatever kind the cloud declares: what controllers read of them is generation and readiness; the objects are kept for the cloud.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use spokeshave_api::NodeClassRef;
use spokeshave_plan::nodepool::NodeClassView;
use spokeshave_ports::{NodeClassKind, SharedClock};
use spokeshave_runtime::{Metrics, Shutdown};
use spokeshave_watched as watch;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pause after the first failure of a watch; doubled with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

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
        let failures = metrics.counter(
            "spokeshave_watch_failures_total",
            "Failed lists and watches, by kind. Each is followed by a growing pause.",
            &["kind"],
        );
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
        let mut failing = Failing::new(&kind);
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

/// Failures of the watch of one kind since it last worked.
#[derive(Debug)]
struct Failing {
    kind: String,
    /// What was said of it last.
    cause: Option<String>,
    pause: Duration,
}

impl Failing {
    fn new(kind: &NodeClassKind) -> Self {
        Self {
            kind: kind.kind.clone(),
            cause: None,
            pause: FIRST_PAUSE,
        }
    }

    /// The server answers well.
    fn works(&mut self) {
        self.cause = None;
        self.pause = FIRST_PAUSE;
    }

    /// Says what fails, unless it was said already, and returns how long to pause.
    fn failed(&mut self, error: &watcher::Error) -> Duration {
        let kind = &self.kind;
        let status = status_code(error);
        if status == Some(410) {
            // What the watch was to go on from is forgotten, which happens to every watch. The server answers: what failed before is over.
            tracing::debug!(kind, %error, "listing NodeClasses again");
            self.works();
            return FIRST_PAUSE;
        }
        let cause = error.to_string();
        if self.cause.as_deref() == Some(cause.as_str()) {
            tracing::debug!(kind, %error, "watch of NodeClasses failed again, retrying");
        } else if status == Some(404) {
            tracing::warn!(
                kind,
                "the API server does not know this kind of NodeClass: install its CustomResourceDefinition; until then NodePools with it launch nothing"
            );
        } else {
            tracing::warn!(
                kind,
                %error,
                "watch of NodeClasses failed, retrying: until it works they are known as they were last, or not at all"
            );
        }
        self.cause = Some(cause);
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        pause
    }
}

/// What the API server has answered, where it has.
fn status_code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status.code),
        _ => None,
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

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn failing() -> Failing {
        Failing {
            kind: "EC2NodeClass".to_owned(),
            cause: None,
            pause: FIRST_PAUSE,
        }
    }

    fn refused(code: u16) -> watcher::Error {
        let status = Status::failure("refused", "").with_code(code).boxed();
        watcher::Error::InitialListFailed(kube::Error::Api(status))
    }

    #[test]
    fn pauses_grow_up_to_half_a_minute_and_shrink_when_it_works() {
        let mut failing = failing();
        let mut pauses = |times: usize| -> Vec<u64> {
            let errors = std::iter::repeat_with(|| refused(403));
            let pauses = errors.map(|error| failing.failed(&error).as_secs());
            pauses.take(times).collect()
        };
        assert_eq!(pauses(7), [1, 2, 4, 8, 16, 30, 30]);
        failing.works();
        assert_eq!(failing.failed(&refused(403)), FIRST_PAUSE);
        assert_eq!(failing.failed(&refused(403)), FIRST_PAUSE * 2);
        // The server asks for a list, which need not wait.
        assert_eq!(failing.failed(&refused(410)), FIRST_PAUSE);
        assert_eq!(failing.failed(&refused(403)), FIRST_PAUSE);
    }

    #[test]
    fn a_cause_is_said_once_and_another_one_again() {
        let mut failing = failing();
        let mut said = Vec::new();
        for code in [404, 404, 403, 403, 404] {
            let before = failing.cause.clone();
            failing.failed(&refused(code));
            said.push(failing.cause != before);
        }
        assert_eq!(said, [true, false, true, false, true]);
        failing.works();
        assert_eq!(failing.cause, None, "after it has worked it is said again");
    }
}
