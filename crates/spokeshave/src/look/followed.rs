//! The objects of a cluster as they are now: lists that watches keep up to date.
//!
//! Owns the copies and what the cluster said of each list. What may be listed but not watched is listed again and again. It never writes, and decides nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};
use futures::StreamExt as _;
use http::StatusCode;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use spokeshave_api::disruption::Disruption;
use spokeshave_view::Missing;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::plan::dump::{Dump, key};
use crate::plan::{Item, live};

/// Pause until a list is read again whose watch is refused.
const LISTING: Duration = Duration::from_secs(10);

/// Lists that decisions read only where there are DisruptionPolicies. Who may not see them does without.
const BESIDE: [&str; 2] = [live::LEDGER, "/apis/storage.k8s.io/v1/volumeattachments"];

const POLICIES: &str = "/apis/spokeshave.dev/v1alpha1/disruptionpolicies";

/// Kinds by the last part of the path of their list.
const KINDS: [(&str, &str); 24] = [
    ("capacitybuffers", "CapacityBuffer"),
    ("csinodes", "CSINode"),
    ("daemonsets", "DaemonSet"),
    ("deployments", "Deployment"),
    ("disruptionpolicies", "DisruptionPolicy"),
    ("disruptions", "Disruption"),
    ("ec2nodeclasses", "EC2NodeClass"),
    ("jobs", "Job"),
    ("namespaces", "Namespace"),
    ("nodeclaims", "NodeClaim"),
    ("nodeoverlays", "NodeOverlay"),
    ("nodepools", "NodePool"),
    ("nodes", "Node"),
    ("persistentvolumeclaims", "PersistentVolumeClaim"),
    ("persistentvolumes", "PersistentVolume"),
    ("poddisruptionbudgets", "PodDisruptionBudget"),
    ("pods", "Pod"),
    ("podtemplates", "PodTemplate"),
    ("replicasets", "ReplicaSet"),
    ("replicationcontrollers", "ReplicationController"),
    ("services", "Service"),
    ("statefulsets", "StatefulSet"),
    ("storageclasses", "StorageClass"),
    ("volumeattachments", "VolumeAttachment"),
];

/// The lists of a cluster, followed until this is dropped.
pub(super) struct Followed {
    client: Client,
    lists: BTreeMap<&'static str, List>,
    news: Arc<News>,
    following: JoinSet<()>,
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

/// Version and kind of the objects of a list: `/apis/apps/v1/daemonsets` → (`apps/v1`, `DaemonSet`).
fn identity(path: &str) -> Option<(String, String)> {
    let (version, plural) = path.trim_start_matches('/').rsplit_once('/')?;
    let version = version
        .strip_prefix("apis/")
        .or_else(|| version.strip_prefix("api/"))?;
    let (_, kind) = KINDS.iter().find(|(known, _)| *known == plural)?;
    Some((version.to_owned(), (*kind).to_owned()))
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
            self.answered().await;
            if self.following.try_join_next().is_some() {
                return Err(anyhow!(
                    "a list is not followed any more: this is a defect of Spokeshave; start it again"
                ));
            }
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

    async fn answered(&self) {
        loop {
            let came = self.news.came.notified();
            tokio::pin!(came);
            came.as_mut().enable();
            if self.lists.values().all(|list| list.copy().answer.is_some()) {
                return;
            }
            came.await;
        }
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
            let is_beside = BESIDE.contains(path) && !(looks_back && *path == live::LEDGER);
            let copy = list.copy();
            let refused = |message: &str| anyhow!("the cluster does not list {path}: {message}");
            match &copy.answer {
                Some(_) if is_beside => {}
                Some(Answer::Absent) if !list.optional => return Err(refused("it does not know it")),
                Some(Answer::Failed(message)) => return Err(refused(message)),
                Some(Answer::Refused(message)) if live::is_needed(path) => return Err(refused(message)),
                Some(Answer::Refused(message)) => copies.missing.push(Missing {
                    resource: live::resource(path),
                    message: message.clone(),
                }),
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
            // Lists and watches, again after a pause when one fails.
            let mut events = watcher(api.clone(), watcher::Config::default())
                .default_backoff()
                .boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => self.take_in(event),
                    Err(watcher::Error::InitialListFailed(error)) => self.answer(said(&error)),
                    // What has been listed may be out of date by now, or cannot be watched at all.
                    Err(watcher::Error::WatchStartFailed(_)) => break,
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

#[cfg(test)]
mod tests;
