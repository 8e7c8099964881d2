//! Audit logs of an API server: one event a line, with the objects that were sent and answered; also as CloudWatch exports and answers them, and as an EventList.
//!
//! Owns which requests say something about workloads. Evictions are left out: they are what a simulation finds out.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::elements::each;
use super::inventory::{is_gated, is_living, strip};
use super::lines::{self, Lines};
use super::objects::{Meta, Object, OwnerReference, Pod, Workload};
use super::record::broken;
use super::stream::{Identity, Stream};
use super::{ImportError, MOST_OWNERS, Place};
use crate::generate::MOST_EVENTS;
use crate::timeline::OwnerKind;

/// One document of several lines, decompressed.
const MOST_BYTES: u64 = 1 << 30;
/// The lists in which events come: of an EventList, of `aws logs filter-log-events`, and of a subscription to a log.
const LISTS: [&str; 3] = ["items", "events", "logEvents"];
/// So many versions of one workload, or specifications of one controller, are looked through for one that is equal.
const MOST_COMPARED: usize = 4;
/// A list, what CloudWatch tells of a line, and the event.
const MOST_DEPTH: u32 = 2;
/// What is kept of objects counts by how much it is: a workload or pod with its specification, and one without.
const WHOLE: usize = 4;
const BARE: usize = 1;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    kind: Option<String>,
    stage: Option<String>,
    #[serde(default)]
    verb: String,
    #[serde(default)]
    object_ref: Reference,
    #[serde(borrow)]
    request_object: Option<&'a RawValue>,
    #[serde(borrow)]
    response_object: Option<&'a RawValue>,
    #[serde(default)]
    response_status: Status,
    #[serde(default, rename = "requestURI")]
    request_uri: String,
    stage_timestamp: Option<Timestamp>,
    request_received_timestamp: Option<Timestamp>,
}

impl Event<'_> {
    /// Whether nothing of it was stored, though it was answered as if it had been: `kubectl diff` and dry runs of others ask what a request would do. A deletion
    /// may say so in what it sends.
    fn is_dry(&self) -> bool {
        let query = self.request_uri.split_once('?').map_or("", |(_, query)| query);
        if query.split('&').any(|one| one.starts_with("dryRun=")) {
            return true;
        }
        let sent = self.request_object.filter(|_| self.verb.starts_with("delete"));
        let options: DeleteOptions = sent
            .and_then(|sent| serde_json::from_str(sent.get()).ok())
            .unwrap_or_default();
        options.dry_run.is_some_and(|stages| !stages.is_empty())
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeleteOptions {
    dry_run: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reference {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

impl Reference {
    /// The kind of an object that says something about workloads. Others have `jobs` and `statefulsets`, too; a log that names no groups is taken to mean
    /// those of Kubernetes.
    fn kind(&self) -> Option<&'static str> {
        let found = KINDS.iter().find(|(resource, group, _)| {
            *resource == self.resource && (self.api_group.is_empty() || *group == self.api_group)
        });
        found.map(|(_, _, kind)| *kind)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Scale {
    spec: ScaleSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ScaleSpec {
    replicas: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kind {
    kind: String,
}

/// What the deletion of many objects at once answers.
#[derive(Default, Deserialize)]
#[serde(default)]
struct List {
    items: Option<Vec<Item>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Item {
    metadata: Meta,
}

/// What is around events: a list of them, or what CloudWatch tells of a line of a log.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Envelope<'a> {
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    events: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    log_events: Option<Vec<&'a RawValue>>,
    message: Option<String>,
}

/// Reads logs, of several servers if need be: lines are in no order of time, within one log or between them, so what they say is sorted first.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    events: u64,
    /// Events that hold no object where one was expected.
    bare: u64,
    /// The oldest event and the newest one, of whatever kind.
    seen_ms: Option<(i64, i64)>,
    found: Vec<(i64, Found)>,
    /// What was written of workloads. Most of what is told of one is its status, which changes nothing, and its replicas.
    versions: BTreeMap<Identity, Vec<Arc<Version>>>,
    /// The specifications of the pods that a controller makes, mostly one.
    specs: BTreeMap<Identity, Vec<Arc<PodSpec>>>,
    /// How many different workloads and pods are kept, by weight.
    kept: usize,
    /// Where in `found` a pod was first seen alive, by its UID: what its status says afterwards changes nothing. By its name nobody knows whether it is still the
    /// same one, since the log that tells of its deletion may be read later.
    alive: BTreeMap<String, usize>,
}

/// What was written of a workload. The specification of its pods is apart from it, since the Jobs of a CronJob share one.
#[derive(Debug, PartialEq)]
struct Version {
    workload: Workload,
    spec: Option<Arc<PodSpec>>,
}

/// What an event says about workloads.
#[derive(Debug)]
enum Found {
    Workload {
        version: Arc<Version>,
        replicas: u32,
    },
    /// A pod that lives, with its specification apart.
    Pod {
        pod: Box<Pod>,
        spec: Arc<PodSpec>,
    },
    Applied(Object),
    Scaled {
        kind: OwnerKind,
        namespace: String,
        name: String,
        replicas: u32,
    },
    Deleted {
        kind: &'static str,
        namespace: String,
        name: String,
    },
    DeletedAll {
        kind: &'static str,
        namespace: String,
    },
}

/// Resources, their groups and the kinds of their objects.
const KINDS: [(&str, &str, &str); 6] = [
    ("deployments", "apps", "Deployment"),
    ("replicasets", "apps", "ReplicaSet"),
    ("statefulsets", "apps", "StatefulSet"),
    ("jobs", "batch", "Job"),
    ("pods", "", "Pod"),
    ("poddisruptionbudgets", "policy", "PodDisruptionBudget"),
];

impl Audit {
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<(), ImportError> {
        let mut lines = Lines::new(bytes);
        let mut is_first = true;
        while let Some((number, text)) = lines.next()? {
            if std::mem::take(&mut is_first) && text == "{" {
                return self.document(bytes);
            }
            self.line(text, Place::Line(number), 0)?;
        }
        Ok(())
    }

    /// One list over many lines, as `aws` writes its answers.
    fn document(&mut self, bytes: &[u8]) -> Result<(), ImportError> {
        let text = lines::text(bytes, MOST_BYTES)?;
        each(&text, &LISTS, &mut |element, line| {
            self.line(element, Place::Line(line), 1)
        })
    }

    /// An event, or something around events.
    fn line(&mut self, text: &str, place: Place, depth: u32) -> Result<(), ImportError> {
        let text = without_time(text);
        let wrong = |error: serde_json::Error| ImportError::new(place, broken(&error));
        let event: Event<'_> = serde_json::from_str(text).map_err(wrong)?;
        if event.kind.as_deref() == Some("Event") {
            self.events += 1;
            return self.event(&event).map_err(|error| error.at(place));
        }
        let around: Envelope<'_> = serde_json::from_str(text).map_err(wrong)?;
        let lists = [around.items, around.events, around.log_events];
        let is_around = around.message.is_some() || lists.iter().any(Option::is_some);
        if depth >= MOST_DEPTH || !is_around {
            return Err(ImportError::new(
                place,
                "is not an audit event; expected one object of kind Event (audit.k8s.io/v1) a line",
            ));
        }
        for element in lists.into_iter().flatten().flatten() {
            self.line(element.get(), place, depth + 1)?;
        }
        // In the log group of a cluster there are logs of other kinds, too.
        let message = around.message.as_deref().map(str::trim);
        let Some(message) = message.filter(|message| message.starts_with('{')) else {
            return Ok(());
        };
        let read: Result<Kind, _> = serde_json::from_str(message);
        match read.is_ok_and(|read| read.kind != "Event") {
            true => Ok(()),
            false => self.line(message, place, MOST_DEPTH),
        }
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), ImportError> {
        let at = event.stage_timestamp.or(event.request_received_timestamp);
        let at = at.map(|at| at.as_millisecond());
        if let Some(at) = at {
            let (first, last) = self.seen_ms.unwrap_or((at, at));
            self.seen_ms = Some((first.min(at), last.max(at)));
        }
        let reference = &event.object_ref;
        let Some(kind) = reference.kind() else {
            return Ok(());
        };
        let succeeded = event
            .response_status
            .code
            .is_none_or(|code| (200..300).contains(&code));
        let is_end = event
            .stage
            .as_deref()
            .is_none_or(|stage| stage == "ResponseComplete");
        if !(succeeded && is_end) || event.is_dry() {
            return Ok(());
        }
        let Some(at) = at else {
            return Err(ImportError::whole(
                "has neither stageTimestamp nor requestReceivedTimestamp",
            ));
        };
        let wrong = |error: serde_json::Error| ImportError::whole(broken(&error));
        match (event.verb.as_str(), reference.subresource.as_str()) {
            ("update" | "patch", "scale") => {
                let Some(object) = event.response_object.or(event.request_object) else {
                    self.bare += 1;
                    return Ok(());
                };
                let scale: Scale = serde_json::from_str(object.get()).map_err(wrong)?;
                let owner = match kind {
                    "StatefulSet" => OwnerKind::StatefulSet,
                    "Deployment" => OwnerKind::Deployment,
                    // ReplicaSets are scaled by their Deployments.
                    _ => return Ok(()),
                };
                if let Some(replicas) = scale.spec.replicas {
                    let scaled = Found::Scaled {
                        kind: owner,
                        namespace: reference.namespace.clone(),
                        name: reference.name.clone(),
                        replicas: u32::try_from(replicas).unwrap_or(0),
                    };
                    self.find(at, scaled)?;
                }
            }
            ("create" | "update" | "patch", "" | "status") => {
                // A patch is only a part of an object; what is answered is the whole.
                let whole = event.response_object.filter(|object| is_of(object, kind));
                let sent = event.request_object.filter(|_| event.verb != "patch");
                let Some(object) = whole.or(sent.filter(|object| is_of(object, kind))) else {
                    self.bare += 1;
                    return Ok(());
                };
                let object = Object::read(object.get(), Some(kind)).map_err(wrong)?;
                self.applied(at, object)?;
            }
            ("delete", "") => self.deleted(at, kind, &reference.namespace, &reference.name)?,
            ("deletecollection", "") => self.many_deleted(at, kind, event)?,
            _ => {}
        }
        Ok(())
    }

    /// Keeps what was found.
    fn find(&mut self, at: i64, found: Found) -> Result<(), ImportError> {
        if self.found.len() as u64 >= MOST_EVENTS {
            return Err(ImportError::whole(format!(
                "is the last of {MOST_EVENTS} events that fit into memory; cut the log into pieces"
            )));
        }
        self.found.push((at, found));
        Ok(())
    }

    /// Counts an object that is kept.
    fn keep(&mut self, weight: usize) -> Result<(), ImportError> {
        self.kept += weight;
        if self.kept > WHOLE * MOST_OWNERS {
            return Err(ImportError::whole(format!(
                "is the last of some {MOST_OWNERS} different workloads and pods that fit into memory, in all of its files together; take a shorter time of the log"
            )));
        }
        Ok(())
    }

    fn deleted(
        &mut self,
        at: i64,
        kind: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<(), ImportError> {
        let deleted = Found::Deleted {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        self.find(at, deleted)
    }

    /// What is deleted without a name, as the namespace controller empties a namespace: those that the answer lists, or else all of the kind.
    fn many_deleted(&mut self, at: i64, kind: &'static str, event: &Event<'_>) -> Result<(), ImportError> {
        let namespace = &event.object_ref.namespace;
        let answer: List = match event.response_object {
            Some(object) => {
                serde_json::from_str(object.get()).map_err(|error| ImportError::whole(broken(&error)))?
            }
            None => List::default(),
        };
        if let Some(items) = answer.items {
            for item in items {
                self.deleted(at, kind, namespace, item.metadata.name())?;
            }
            Ok(())
        } else if event.request_uri.contains("Selector=") {
            // Which ones is only in the answer.
            self.bare += 1;
            Ok(())
        } else {
            let all = Found::DeletedAll {
                kind,
                namespace: namespace.clone(),
            };
            self.find(at, all)
        }
    }

    /// Keeps an object that was written.
    fn applied(&mut self, at: i64, object: Object) -> Result<(), ImportError> {
        match object {
            Object::Workload(workload) => self.workload(at, *workload),
            Object::Pod(pod) => self.pod(at, pod),
            other => self.find(at, Found::Applied(other)),
        }
    }

    /// Keeps a version of a workload once, with as little of it as is read: the log of a roll-out has dozens of events that differ in the status alone.
    fn workload(&mut self, at: i64, mut workload: Workload) -> Result<(), ImportError> {
        let replicas = std::mem::take(&mut workload.replicas);
        (workload.meta.labels, workload.meta.annotations, workload.started) = (None, None, None);
        let is_over = workload.ended.is_some() || workload.meta.deletion_timestamp.is_some();
        // Nothing begins any more, or it begins as its Deployment says.
        let has_pods = match workload.kind.as_str() {
            "Job" => !is_over,
            "ReplicaSet" => workload.meta.controller().is_none(),
            _ => true,
        };
        if !has_pods {
            workload.template = None;
        }
        if let Some(template) = &mut workload.template {
            strip(template);
        }
        let identity = (
            workload.kind.clone(),
            workload.meta.namespace().to_owned(),
            workload.meta.name().to_owned(),
        );
        let spec = workload.template.as_mut().and_then(|one| one.spec.take());
        let (spec, weight) = match spec {
            Some(spec) => {
                let (spec, weight) = self.shared(controller_of(&workload.meta), spec);
                (Some(spec), weight)
            }
            None => (None, BARE),
        };
        let version = Version { workload, spec };
        let versions = self.versions.entry(identity).or_default();
        let mut last = versions.iter().rev().take(MOST_COMPARED);
        let known = last.find(|known| ***known == version).cloned();
        let version = match known {
            Some(version) => version,
            None => {
                let version = Arc::new(version);
                versions.push(Arc::clone(&version));
                self.keep(weight)?;
                version
            }
        };
        self.find(at, Found::Workload { version, replicas })
    }

    /// The specification of pods, kept once for all that their controller makes of it; and how much is kept anew.
    fn shared(&mut self, controller: Option<Identity>, spec: PodSpec) -> (Arc<PodSpec>, usize) {
        let known = controller.as_ref().and_then(|one| self.specs.get(one));
        let known = known.map_or(&[][..], Vec::as_slice);
        let mut last = known.iter().rev().take(MOST_COMPARED);
        if let Some(known) = last.find(|known| ***known == spec) {
            return (Arc::clone(known), BARE);
        }
        let spec = Arc::new(spec);
        if let Some(controller) = controller {
            let specs = self.specs.entry(controller).or_default();
            specs.push(Arc::clone(&spec));
        }
        (spec, WHOLE)
    }

    /// Of a pod's many reports only those are kept with which it begins and ends.
    fn pod(&mut self, at: i64, mut pod: Box<Pod>) -> Result<(), ImportError> {
        let controller = pod.meta.controller().map(OwnerReference::own_kind);
        if matches!(
            controller,
            Some("Deployment" | "StatefulSet" | "Job" | "DaemonSet" | "Node")
        ) {
            return Ok(());
        }
        if !is_living(&pod) {
            // What it was is told where it began.
            pod.spec = PodSpec::default();
            return self.find(at, Found::Applied(Object::Pod(pod)));
        }
        // It begins when its gates are gone, which is told later.
        if is_gated(&pod) {
            return Ok(());
        }
        if let Some(uid) = &pod.meta.uid {
            if let Some(index) = self.alive.get(uid) {
                let first = &mut self.found[*index].0;
                *first = at.min(*first);
                return Ok(());
            }
            self.alive.insert(uid.clone(), self.found.len());
        }
        let mut template = PodTemplateSpec {
            metadata: None,
            spec: Some(std::mem::take(&mut pod.spec)),
        };
        strip(&mut template);
        let mut spec = template.spec.unwrap_or_default();
        // Each pod has one with a name of its own, and only a StatefulSet's are read.
        spec.volumes = None;
        let (spec, weight) = self.shared(controller_of(&pod.meta), spec);
        self.keep(weight)?;
        self.find(at, Found::Pod { pod, spec })
    }

    /// Tells the stream what was read, in the order of time. A log without any object is of the wrong level.
    pub(crate) fn finish(&mut self, stream: &mut Stream) -> Result<(), ImportError> {
        let mut found = std::mem::take(&mut self.found);
        found.sort_by_key(|(at, _)| *at);
        for (at, one) in found {
            match one {
                Found::Workload { version, replicas } => {
                    let mut workload = Box::new(version.workload.clone());
                    workload.replicas = replicas;
                    if let Some(template) = &mut workload.template {
                        template.spec = version.spec.as_deref().cloned();
                    }
                    stream.applied(at, Object::Workload(workload))?;
                }
                Found::Pod { mut pod, spec } => {
                    pod.spec = PodSpec::clone(&spec);
                    stream.applied(at, Object::Pod(pod))?;
                }
                Found::Applied(object) => stream.applied(at, object)?,
                Found::Scaled {
                    kind,
                    namespace,
                    name,
                    replicas,
                } => stream.scaled(at, kind, &namespace, &name, replicas)?,
                Found::Deleted {
                    kind,
                    namespace,
                    name,
                } => stream.deleted(at, kind, &namespace, &name)?,
                Found::DeletedAll { kind, namespace } => stream.deleted_all(at, kind, &namespace)?,
            }
        }
        self.check(stream)
    }

    /// How long the logs are, whatever their first and their last event are about.
    pub(crate) fn recorded_ms(&self) -> u64 {
        let length = self.seen_ms.map(|(first, last)| last.saturating_sub(first));
        u64::try_from(length.unwrap_or(0)).unwrap_or(0)
    }

    fn check(&self, stream: &Stream) -> Result<(), ImportError> {
        if self.events == 0 {
            return Err(ImportError::whole("holds no audit event"));
        }
        if stream.is_empty() && self.bare > 0 {
            return Err(ImportError::whole(
                "holds no objects: it was written at level Metadata; set level RequestResponse for deployments, statefulsets, jobs and pods in the audit policy",
            ));
        }
        Ok(())
    }
}

/// The line of a log without the time that an export from CloudWatch puts before it.
fn without_time(text: &str) -> &str {
    match text.split_once(' ') {
        Some((time, rest)) if !text.starts_with('{') && time.parse::<Timestamp>().is_ok() => {
            rest.trim_start()
        }
        _ => text,
    }
}

/// What made an object, with its namespace.
fn controller_of(meta: &Meta) -> Option<Identity> {
    let owner = meta.controller()?;
    Some((
        owner.kind.clone(),
        meta.namespace().to_owned(),
        owner.name.clone(),
    ))
}

/// A client may ask to be answered by something else, such as a PartialObjectMetadata or a Table.
fn is_of(object: &RawValue, kind: &str) -> bool {
    let read: Kind = serde_json::from_str(object.get()).unwrap_or_default();
    read.kind.is_empty() || read.kind == kind
}

#[cfg(test)]
mod tests;
