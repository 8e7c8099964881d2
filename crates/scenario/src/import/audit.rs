//! Audit logs of an API server: one event a line, with the objects that were sent and answered.
//!
//! Owns which requests say something about workloads. Evictions are left out: they are what a simulation finds out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::inventory::is_living;
use super::lines::Lines;
use super::objects::{Meta, Object, OwnerReference};
use super::record::broken;
use super::stream::Stream;
use super::{ImportError, Place};
use crate::timeline::OwnerKind;

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

/// Reads logs, of several servers if need be: lines are in no order of time, within one log or between them, so what they say is sorted first.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    events: u64,
    /// Events that hold no object where one was expected.
    bare: u64,
    /// The oldest event and the newest one, of whatever kind.
    seen_ms: Option<(i64, i64)>,
    found: Vec<(i64, Found)>,
    /// Where in `found` a pod was first seen alive, by its UID: what its status says afterwards changes nothing. By its name nobody knows whether it is still the
    /// same one, since the log that tells of its deletion may be read later.
    alive: BTreeMap<String, usize>,
}

/// What an event says about workloads.
#[derive(Debug)]
enum Found {
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
        while let Some((number, text)) = lines.next()? {
            let place = Place::Line(number);
            let event: Event<'_> =
                serde_json::from_str(text).map_err(|error| ImportError::new(place, broken(&error)))?;
            if event.kind.as_deref() != Some("Event") {
                return Err(ImportError::new(
                    place,
                    "is not an audit event; expected one object of kind Event (audit.k8s.io/v1) a line",
                ));
            }
            self.events += 1;
            self.event(&event).map_err(|error| error.at(place))?;
        }
        Ok(())
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
                    self.found.push((at, scaled));
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
                self.applied(at, object);
            }
            ("delete", "") => self.deleted(at, kind, &reference.namespace, &reference.name),
            ("deletecollection", "") => self.many_deleted(at, kind, event).map_err(wrong)?,
            _ => {}
        }
        Ok(())
    }

    fn deleted(&mut self, at: i64, kind: &'static str, namespace: &str, name: &str) {
        let deleted = Found::Deleted {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        self.found.push((at, deleted));
    }

    /// What is deleted without a name, as the namespace controller empties a namespace: those that the answer lists, or else all of the kind.
    fn many_deleted(
        &mut self,
        at: i64,
        kind: &'static str,
        event: &Event<'_>,
    ) -> Result<(), serde_json::Error> {
        let namespace = &event.object_ref.namespace;
        let answer: List = match event.response_object {
            Some(object) => serde_json::from_str(object.get())?,
            None => List::default(),
        };
        if let Some(items) = answer.items {
            for item in items {
                self.deleted(at, kind, namespace, item.metadata.name());
            }
        } else if event.request_uri.contains("Selector=") {
            // Which ones is only in the answer.
            self.bare += 1;
        } else {
            let all = Found::DeletedAll {
                kind,
                namespace: namespace.clone(),
            };
            self.found.push((at, all));
        }
        Ok(())
    }

    /// Keeps an object that was written; of a pod's many reports only those with which it begins and ends.
    fn applied(&mut self, at: i64, object: Object) {
        if let Object::Pod(pod) = &object {
            let controller = pod.meta.controller().map(OwnerReference::own_kind);
            if matches!(
                controller,
                Some("Deployment" | "StatefulSet" | "Job" | "DaemonSet" | "Node")
            ) {
                return;
            }
            if let Some(uid) = pod.meta.uid.as_ref().filter(|_| is_living(pod)) {
                if let Some(index) = self.alive.get(uid) {
                    let first = &mut self.found[*index].0;
                    *first = at.min(*first);
                    return;
                }
                self.alive.insert(uid.clone(), self.found.len());
            }
        }
        self.found.push((at, Found::Applied(object)));
    }

    /// Tells the stream what was read, in the order of time. A log without any object is of the wrong level.
    pub(crate) fn finish(&mut self, stream: &mut Stream) -> Result<(), ImportError> {
        let mut found = std::mem::take(&mut self.found);
        found.sort_by_key(|(at, _)| *at);
        for (at, one) in found {
            match one {
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

/// A client may ask to be answered by something else, such as a PartialObjectMetadata or a Table.
fn is_of(object: &RawValue, kind: &str) -> bool {
    let read: Kind = serde_json::from_str(object.get()).unwrap_or_default();
    read.kind.is_empty() || read.kind == kind
}
