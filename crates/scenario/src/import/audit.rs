//! Audit logs of an API server: one event a line, with the objects that were sent and answered.
//!
//! Owns which requests say something about workloads. Evictions are left out: they are what a simulation finds out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::inventory::is_living;
use super::lines::Lines;
use super::objects::Object;
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
    stage_timestamp: Option<Timestamp>,
    request_received_timestamp: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reference {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
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

/// Reads logs, of several servers if need be: lines are in no order of time, within one log or between them, so what they say is sorted first.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    events: u64,
    /// Events that hold no object where one was expected.
    bare: u64,
    found: Vec<(i64, Found)>,
    /// Where in `found` a pod was first seen alive, by namespace and name: what its status says afterwards changes nothing.
    alive: BTreeMap<(String, String), usize>,
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
}

/// Resources and the kinds of their objects.
const KINDS: [(&str, &str); 6] = [
    ("deployments", "Deployment"),
    ("replicasets", "ReplicaSet"),
    ("statefulsets", "StatefulSet"),
    ("jobs", "Job"),
    ("pods", "Pod"),
    ("poddisruptionbudgets", "PodDisruptionBudget"),
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
        let reference = &event.object_ref;
        let Some((_, kind)) = KINDS.iter().find(|(resource, _)| *resource == reference.resource) else {
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
        if !(succeeded && is_end) {
            return Ok(());
        }
        let Some(at) = event.stage_timestamp.or(event.request_received_timestamp) else {
            return Err(ImportError::whole(
                "has neither stageTimestamp nor requestReceivedTimestamp",
            ));
        };
        let at = at.as_millisecond();
        let wrong = |error: serde_json::Error| ImportError::whole(broken(&error));
        match (event.verb.as_str(), reference.subresource.as_str()) {
            ("update" | "patch", "scale") => {
                let Some(object) = event.response_object.or(event.request_object) else {
                    self.bare += 1;
                    return Ok(());
                };
                let scale: Scale = serde_json::from_str(object.get()).map_err(wrong)?;
                let owner = match *kind {
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
            ("delete", "") => {
                let deleted = Found::Deleted {
                    kind,
                    namespace: reference.namespace.clone(),
                    name: reference.name.clone(),
                };
                let pod = (reference.namespace.clone(), reference.name.clone());
                if *kind == "Pod" {
                    self.alive.remove(&pod);
                }
                self.found.push((at, deleted));
            }
            _ => {}
        }
        Ok(())
    }

    /// Keeps an object that was written; of a pod's many reports only those with which it begins and ends.
    fn applied(&mut self, at: i64, object: Object) {
        if let Object::Pod(pod) = &object {
            let controller = pod.meta.controller().map(|owner| owner.kind.as_str());
            if matches!(
                controller,
                Some("Deployment" | "StatefulSet" | "Job" | "DaemonSet" | "Node")
            ) {
                return;
            }
            let key = (pod.meta.namespace().to_owned(), pod.meta.name().to_owned());
            if !is_living(pod) {
                self.alive.remove(&key);
            } else if let Some(index) = self.alive.get(&key) {
                let first = &mut self.found[*index].0;
                *first = at.min(*first);
                return;
            } else {
                self.alive.insert(key, self.found.len());
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
            }
        }
        self.check(stream)
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

/// Answers to failed and dry requests are a Status.
fn is_of(object: &RawValue, kind: &str) -> bool {
    let read: Kind = serde_json::from_str(object.get()).unwrap_or_default();
    read.kind.is_empty() || read.kind == kind
}
