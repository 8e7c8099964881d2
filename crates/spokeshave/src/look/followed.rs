//! The objects of a cluster as they are now: lists that watches keep up to date.
//!
//! Owns the copies and what the cluster said of each list. What may be listed but not watched is listed again and again. It never writes, and decides nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Error, Result, anyhow};
use futures::StreamExt as _;
use http::StatusCode;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use spokeshave_api::disruption::Disruption;
use spokeshave_plan::report::some_of;
use spokeshave_view::Missing;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::kinds::identity;
use crate::plan::dump::{Dump, key};
use crate::plan::{Item, live};

/// Pause until a list is read again whose watch is refused.
const LISTING: Duration = Duration::from_secs(10);
/// How often a watch is begun again, with growing pauses of half a minute together, before its list is read anew.
const BEGINNINGS: u32 = 6;
/// How long the first answers of a cluster may take until it is said that they have not come.
const PATIENCE: Duration = Duration::from_secs(5);

/// Lists that decisions read only where there are DisruptionPolicies. Who may not see them does without.
const BESIDE: [&str; 2] = [live::LEDGER, "/apis/storage.k8s.io/v1/volumeattachments"];

const POLICIES: &str = "/apis/spokeshave.dev/v1alpha1/disruptionpolicies";

/// The lists of a cluster, followed until this is dropped.
pub(super) struct Followed {
    client: Client,
    lists: BTreeMap<&'static str, List>,
    news: Arc<News>,
    following: JoinSet<()>,
    /// How following a list has ended, which it never should: that list stays as it was.
    broken: Option<String>,
}

/// What is shown of the lists.
pub(super) struct Copies {
    pub(super) dump: Dump,
    pub(super) disruptions: Vec<Arc<Disruption>>,
    pub(super) attachments: Vec<Arc<VolumeAttachment>>,
    /// Lists that the user may not see.
    pub(super) missing: Vec<Missing>,
}

/// Counts changes of all lists.
#[derive(Default)]
struct News {
    count: AtomicU64,
    came: Notify,
}

struct List {
    /// A cluster may lack it.
    optional: bool,
    copy: Arc<Mutex<Copy>>,
}

/// One list as it is known.
#[derive(Default)]
struct Copy {
    objects: BTreeMap<String, Item>,
    /// What is being listed anew.
    coming: BTreeMap<String, Item>,
    answer: Option<Answer>,
}

/// What the cluster said when a list was asked for last.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Listed,
    /// It has no such list.
    Absent,
    Refused(String),
    Failed(String),
}

impl News {
    fn add(&self) {
        self.count.fetch_add(1, Ordering::Release);
        self.came.notify_waiters();
    }
}

impl List {
    fn copy(&self) -> MutexGuard<'_, Copy> {
        lock(&self.copy)
    }
}

fn lock(copy: &Mutex<Copy>) -> MutexGuard<'_, Copy> {
    copy.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followed")
            .field("lists", &self.lists.keys())
            .finish()
    }
}

impl Followed {
    /// Begins to follow what decisions read; `spread` when pods may get default topology spread.
    pub(super) fn new(client: Client, spread: bool) -> Self {
        let mut followed = Followed {
            client,
            lists: BTreeMap::new(),
            news: Arc::default(),
            following: JoinSet::new(),
            broken: None,
        };
        for (path, optional) in live::lists(spread) {
            followed.follow(path, optional);
        }
        for path in BESIDE {
            followed.follow(path, true);
        }
        followed
    }

    fn follow(&mut self, path: &'static str, optional: bool) {
        let Some(identity) = identity(path) else {
            debug_assert!(false, "the kind of {path} is known");
            return;
        };
        let copy = Arc::default();
        let follower = Follower {
            path,
            identity,
            copy: Arc::clone(&copy),
            news: Arc::clone(&self.news),
        };
        self.following.spawn(follower.run(self.client.clone()));
        self.lists.insert(path, List { optional, copy });
    }

    /// Increases with every change.
    pub(super) fn version(&self) -> u64 {
        self.news.count.load(Ordering::Acquire)
    }

    /// All lists as they are now, as soon as the cluster has answered each.
    ///
    /// # Errors
    /// The cluster does not answer for one of them, or refuses Nodes or Pods.
    pub(super) async fn read(&mut self) -> Result<Copies> {
        loop {
            self.answered().await?;
            let copies = self.copies()?;
            let further = live::further(&copies.dump);
            let new: Vec<&str> = further
                .into_iter()
                .filter(|path| !self.lists.contains_key(path))
                .collect();
            if new.is_empty() {
                return Ok(copies);
            }
            for path in new {
                self.follow(path, false);
            }
        }
    }

    /// Waits for the answers that have never come, and not for long: who looks should be told, and may ask again.
    async fn answered(&mut self) -> Result<()> {
        if self.broken.is_none() {
            let answers = tokio::time::timeout(PATIENCE, answered(&self.lists, &self.news));
            tokio::select! {
                biased;
                Some(ended) = self.following.join_next() => {
                    let how = ended.err().map_or("it has ended".to_owned(), |error| error.to_string());
                    self.broken = Some(how);
                }
                came = answers => return came.map_err(|_| self.not_yet()),
            }
        }
        let how = self.broken.as_deref().unwrap_or_default();
        Err(anyhow!(
            "a list is not followed any more ({how}): this is a defect of Spokeshave; start it again"
        ))
    }

    fn not_yet(&self) -> Error {
        let lists = self.lists.iter();
        let silent = lists.filter(|(_, list)| list.copy().answer.is_none());
        let silent: Vec<&str> = silent.map(|(path, _)| *path).collect();
        anyhow!("the cluster has not listed {} yet", some_of(&silent, 3))
    }

    fn copies(&self) -> Result<Copies> {
        let mut copies = Copies {
            dump: Dump::default(),
            disruptions: Vec::new(),
            attachments: Vec::new(),
            missing: Vec::new(),
        };
        let policies = self.lists.get(POLICIES);
        let looks_back = policies.is_some_and(|list| !list.copy().objects.is_empty());
        for (path, list) in &self.lists {
            let is_ledger = *path == live::LEDGER;
            let is_beside = BESIDE.contains(path) && !(looks_back && is_ledger);
            let copy = list.copy();
            let refused = |message: &str| anyhow!("the cluster does not list {path}: {message}");
            let lost = |message: &String| Missing {
                resource: live::resource(path),
                message: message.clone(),
            };
            match &copy.answer {
                // Without the ledger nobody knows what has become of commands, also where no decision reads it.
                Some(Answer::Failed(message) | Answer::Refused(message)) if is_beside && is_ledger => {
                    copies.missing.push(lost(message));
                }
                Some(_) if is_beside => {}
                Some(Answer::Absent) if !list.optional => return Err(refused("it does not know it")),
                Some(Answer::Failed(message)) => return Err(refused(message)),
                Some(Answer::Refused(message)) if live::is_needed(path) => return Err(refused(message)),
                Some(Answer::Refused(message)) => copies.missing.push(lost(message)),
                _ => {}
            }
            copies.dump.lists += 1;
            for item in copy.objects.values() {
                item.add_to(&mut copies.dump);
                copies.attachments.extend(item.attachment().cloned());
            }
        }
        copies.disruptions.clone_from(&copies.dump.disruptions);
        if copies.dump.disruption_policies.is_empty() {
            // Only these look back.
            copies.dump.disruptions.clear();
        }
        Ok(copies)
    }
}

/// Completes when the cluster has answered each list.
async fn answered(lists: &BTreeMap<&'static str, List>, news: &News) {
    loop {
        let came = news.came.notified();
        tokio::pin!(came);
        came.as_mut().enable();
        if lists.values().all(|list| list.copy().answer.is_some()) {
            return;
        }
        came.await;
    }
}

/// Keeps one list up to date.
struct Follower {
    path: &'static str,
    identity: (String, String),
    copy: Arc<Mutex<Copy>>,
    news: Arc<News>,
}

impl Follower {
    async fn run(self, client: Client) {
        let api = self.api(client);
        loop {
            // Lists and watches, again after a growing pause when one fails.
            let mut events = watcher(api.clone(), watcher::Config::default())
                .default_backoff()
                .boxed();
            let mut failed = 0;
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => {
                        failed = 0;
                        self.take_in(event);
                    }
                    Err(watcher::Error::InitialListFailed(error)) => self.answer(said(&error)),
                    Err(watcher::Error::WatchStartFailed(error)) => {
                        failed += 1;
                        let is_over = matches!(&error, kube::Error::Api(status) if is_final(status.code));
                        if is_over || failed >= BEGINNINGS {
                            break;
                        }
                    }
                    // It is resumed, or begun anew.
                    Err(error) => self.fail_unless_listed(&error),
                }
            }
            tokio::time::sleep(LISTING).await;
        }
    }

    fn api(&self, client: Client) -> Api<DynamicObject> {
        let (version, kind) = &self.identity;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let plural = self.path.rsplit('/').next().unwrap_or_default();
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        Api::all_with(client, &resource)
    }

    fn take_in(&self, event: Event<DynamicObject>) {
        // Read before others have to wait.
        let read = |object: &DynamicObject| {
            let name = key(&object.metadata);
            let text = serde_json::to_string(object).unwrap_or_default();
            let item = Item::read(&self.identity, &name, self.path, &text);
            (name, item)
        };
        match event {
            Event::Init => lock(&self.copy).coming.clear(),
            Event::InitApply(object) => {
                let (name, item) = read(&object);
                lock(&self.copy).coming.insert(name, item);
            }
            Event::InitDone => {
                let mut copy = lock(&self.copy);
                copy.objects = std::mem::take(&mut copy.coming);
                copy.answer = Some(Answer::Listed);
                drop(copy);
                self.news.add();
            }
            Event::Apply(object) => {
                let (name, item) = read(&object);
                lock(&self.copy).objects.insert(name, item);
                self.news.add();
            }
            Event::Delete(object) => {
                lock(&self.copy).objects.remove(&key(&object.metadata));
                self.news.add();
            }
        }
    }

    fn fail_unless_listed(&self, error: &watcher::Error) {
        if lock(&self.copy).answer.is_none() {
            self.answer(Answer::Failed(error.to_string()));
        }
    }

    fn answer(&self, answer: Answer) {
        let mut copy = lock(&self.copy);
        if copy.answer.as_ref() == Some(&answer) {
            return;
        }
        if !matches!(answer, Answer::Failed(_)) {
            copy.objects.clear();
        }
        copy.answer = Some(answer);
        drop(copy);
        self.news.add();
    }
}

/// What a failed list means.
fn said(error: &kube::Error) -> Answer {
    let is_absent =
        matches!(error, kube::Error::Api(status) if status.code == StatusCode::NOT_FOUND.as_u16());
    if is_absent {
        return Answer::Absent;
    }
    let message = error.to_string();
    if live::is_refused(error) {
        Answer::Refused(message)
    } else {
        Answer::Failed(message)
    }
}

/// An answer to a watch that will be the same the next time: it may not or cannot be watched, or what was listed is too old by now. After any other one it is begun again where it
/// has ended, because an API server that has just started, or has too much to do, should not have to list everything.
fn is_final(code: u16) -> bool {
    (400..500).contains(&code) && code != StatusCode::TOO_MANY_REQUESTS.as_u16()
}

#[cfg(test)]
mod tests;
