//! The catalog of one NodeClass as it streams in: opened again when it breaks off and when the class changes (G-005, G-019).
//!
//! Owns the stream. What was received last is kept whatever happens to it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spokeshave_model::InstanceType;
use spokeshave_ports::{CloudError, NodeClassKind, SharedClock};
use tokio::sync::Notify;
use tonic::{Code, Status, Streaming};

use crate::catalog::Catalog;
use crate::classes::{self, NodeClasses};
use crate::errors;
use crate::link::{Client, Link, Task, until, within};
use crate::wire::{CatalogChunk, CatalogRequest, NodeClass};

/// Time for which who asks waits for the first snapshot; the provider may take longer.
const FIRST: Duration = Duration::from_secs(30);
/// A stream that has brought no whole snapshot in this time is opened again.
const LONGEST_SNAPSHOT: Duration = Duration::from_secs(600);
/// Pause after a stream that broke off; twice as long after each that brought nothing.
const RETRY: Duration = Duration::from_secs(1);
/// The longest such pause.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// The longest where the class is there and the provider says that it is not ready: a state, which ends without the operator being told.
const LONGEST_UNREADY: Duration = Duration::from_secs(5);
/// Pause between two looks whether the class is another.
const CLASS_PERIOD: Duration = Duration::from_secs(10);
/// How long a feed is used that nobody asks for.
const UNUSED: Duration = Duration::from_secs(600);

/// What a feed needs.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) link: Arc<Link>,
    pub(crate) clock: SharedClock,
    pub(crate) node_classes: Option<Arc<dyn NodeClasses>>,
    pub(crate) kind: NodeClassKind,
    pub(crate) name: String,
}

impl Source {
    /// The class as the provider is told of it. Without access to classes, its name alone.
    pub(crate) async fn class(&self) -> Result<NodeClass, CloudError> {
        let Some(node_classes) = &self.node_classes else {
            return Ok(NodeClass {
                group: self.kind.group.clone(),
                kind: self.kind.kind.clone(),
                name: self.name.clone(),
                ..NodeClass::default()
            });
        };
        match node_classes.get(&self.kind, &self.name).await {
            Ok(Some(object)) => Ok(classes::message(&self.kind, &object)),
            Ok(None) => Err(CloudError::NodeClassNotReady(format!(
                "{} {} does not exist",
                self.kind.kind, self.name
            ))),
            Err(error) => Err(CloudError::Other(error)),
        }
    }

    fn late(&self, limit: Duration) -> CloudError {
        let (kind, name) = (&self.kind.kind, &self.name);
        CloudError::Timeout(format!(
            "the provider has not sent a whole catalog of {kind} {name} within {} s",
            limit.as_secs()
        ))
    }
}

#[derive(Debug, Default)]
struct Copy {
    catalog: Mutex<Catalog>,
    /// Why there is nothing, or why what there is may be old.
    problem: Mutex<Option<CloudError>>,
    changed: Notify,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The catalog of a class.
#[derive(Debug)]
pub(crate) struct Feed {
    copy: Arc<Copy>,
    pub(crate) source: Source,
    /// When somebody last asked for it.
    used_at: Mutex<Timestamp>,
    _task: Task,
}

impl Feed {
    pub(crate) fn start(source: Source) -> Self {
        let copy = Arc::new(Copy::default());
        let task = Task(tokio::spawn(live(copy.clone(), source.clone())));
        Self {
            copy,
            used_at: Mutex::new(source.clock.now()),
            source,
            _task: task,
        }
    }

    /// Takes note that somebody asks for it.
    pub(crate) fn note_use(&self) {
        *locked(&self.used_at) = self.source.clock.now();
    }

    /// Whether somebody has asked for it lately.
    pub(crate) fn is_used(&self) -> bool {
        self.source.clock.since(*locked(&self.used_at)) <= UNUSED
    }

    pub(crate) fn catalog(&self) -> MutexGuard<'_, Catalog> {
        locked(&self.copy.catalog)
    }

    /// The types; the first call waits for them. Who asks after it has waited in vain is told so at once, and what else is to be done does not wait.
    pub(crate) async fn types(&self) -> Result<Arc<[InstanceType]>, CloudError> {
        if let Some(first) = within(&self.source.clock, FIRST, self.arrived()).await {
            return first;
        }
        let late = self.source.late(FIRST);
        let mut problem = locked(&self.copy.problem);
        if problem.is_none() && self.catalog().types().is_none() {
            *problem = Some(late.clone());
        }
        Err(late)
    }

    async fn arrived(&self) -> Result<Arc<[InstanceType]>, CloudError> {
        let answer = || {
            let problem = locked(&self.copy.problem).clone();
            let types = self.catalog().types();
            match (types, problem) {
                (_, Some(not_ready @ CloudError::NodeClassNotReady(_))) => Some(Err(not_ready)),
                (Some(types), _) => Some(Ok(types)),
                (None, problem) => problem.map(Err),
            }
        };
        until(&self.copy.changed, answer).await
    }
}

async fn live(copy: Arc<Copy>, source: Source) {
    let mut pause = RETRY;
    loop {
        let mut client = source.link.up().await;
        let (problem, is_there) = match source.class().await {
            Ok(class) => (follow(&copy, &source, &mut client, class).await, true),
            Err(problem) => (Some(problem), false),
        };
        let before = std::mem::replace(&mut *locked(&copy.problem), problem.clone());
        copy.changed.notify_waiters();
        let Some(error) = problem else { continue };
        let longest = match &error {
            CloudError::NodeClassNotReady(_) if is_there => LONGEST_UNREADY,
            _ => LONGEST_RETRY,
        };
        // A whole snapshot ends a problem.
        pause = if before.is_some() {
            (pause * 2).min(longest)
        } else {
            RETRY
        };
        if before.as_ref() != Some(&error) {
            tracing::warn!(class = source.name, %error, "the catalog is not kept up to date");
        }
        source.clock.sleep(pause).await;
    }
}

/// Takes in a stream until it ends. `None`: the class is another now. Servers that send their headers with the first message open it as late as that comes: a
/// provider that says nothing at all is found by its handshakes, and one that says nothing here is asked again after a while.
async fn follow(copy: &Copy, source: &Source, client: &mut Client, class: NodeClass) -> Option<CloudError> {
    let mut change = std::pin::pin!(class_change(source, class.uid.clone(), class.generation));
    let request = CatalogRequest {
        node_class: Some(class),
    };
    let mut overdue = source.clock.sleep(LONGEST_SNAPSHOT);
    let opened = tokio::select! {
        biased;
        another = &mut change => return another,
        () = &mut overdue => return Some(source.late(LONGEST_SNAPSHOT)),
        opened = client.watch_catalog(request) => opened,
    };
    let mut stream: Streaming<CatalogChunk> = match opened {
        Err(status) => return Some(broken(&status)),
        Ok(answer) => answer.into_inner(),
    };
    locked(&copy.catalog).begin();
    loop {
        // First of all: a provider that always has something to say must not hide that its class has changed.
        let message = tokio::select! {
            biased;
            another = &mut change => return another,
            () = &mut overdue => return Some(source.late(LONGEST_SNAPSHOT)),
            message = stream.message() => message,
        };
        let chunk = match message {
            Err(status) => return Some(broken(&status)),
            Ok(None) => {
                return Some(CloudError::Other(
                    "WatchCatalog: the provider has ended the stream".to_owned(),
                ));
            }
            Ok(Some(chunk)) => chunk,
        };
        let applied = locked(&copy.catalog).apply(&chunk);
        match applied {
            Ok(problems) => {
                for problem in problems {
                    tracing::warn!(
                        class = source.name,
                        problem,
                        "what cannot be read of the provider's catalog is not launched"
                    );
                }
            }
            Err(problem) => return Some(CloudError::Other(format!("WatchCatalog: {problem}"))),
        }
        if chunk.snapshot_complete {
            *locked(&copy.problem) = None;
            overdue = Box::pin(std::future::pending::<()>());
        }
        copy.changed.notify_waiters();
    }
}

/// Completes once the class is another (`None`), or is gone.
async fn class_change(source: &Source, uid: String, generation: i64) -> Option<CloudError> {
    loop {
        source.clock.sleep(CLASS_PERIOD).await;
        match source.class().await {
            Ok(now) if now.uid == uid && now.generation == generation => {}
            Ok(_) => return None,
            Err(CloudError::Other(_)) => {}
            Err(gone) => return Some(gone),
        }
    }
}

fn broken(status: &Status) -> CloudError {
    match status.code() {
        Code::FailedPrecondition | Code::NotFound => {
            CloudError::NodeClassNotReady(status.message().to_owned())
        }
        _ => errors::cloud_error("WatchCatalog", status),
    }
}

/// Takes in what a launch has found.
pub(crate) fn observe(feed: &Feed, deltas: &[crate::wire::OfferingDelta]) {
    for problem in feed.catalog().observe(deltas) {
        tracing::warn!(
            class = feed.source.name,
            problem,
            "an observation of the provider is left out"
        );
    }
}
