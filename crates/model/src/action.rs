//! The closed set of writes that a plan may ask for. Pure functions produce Actions; `execute` alone carries them out.
//!
//! A change to an object is a JSON merge patch computed from the object before and after, so that a decision edits a typed copy
//! and never spells out a patch. Nothing here talks to anybody.

use k8s_openapi::api::core::v1::PodCondition;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use spokeshave_api::NodeClaim;
use spokeshave_api::disruption::Disruption;
use std::fmt;

/// The kinds of object that actions touch or events are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ObjectKind {
    /// `v1 Node`.
    Node,
    /// `karpenter.sh/v1 NodeClaim`.
    NodeClaim,
    /// `karpenter.sh/v1 NodePool`.
    NodePool,
    /// `v1 Pod`.
    Pod,
    /// `spokeshave.dev/v1alpha1 Disruption`.
    Disruption,
    /// `spokeshave.dev/v1alpha1 DisruptionPolicy`.
    DisruptionPolicy,
    /// `karpenter.sh/v1alpha1 NodeOverlay`.
    NodeOverlay,
    /// `autoscaling.x-k8s.io/v1beta1 CapacityBuffer`.
    CapacityBuffer,
}

/// An object, by name and identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    /// The kind.
    pub kind: ObjectKind,
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID; used as a precondition, so that a later object of the same name is never touched. Empty when unknown.
    pub uid: String,
}

impl ObjectRef {
    /// A cluster-scoped object.
    pub fn cluster(kind: ObjectKind, name: &str, uid: &str) -> Self {
        ObjectRef {
            kind,
            namespace: String::new(),
            name: name.to_owned(),
            uid: uid.to_owned(),
        }
    }

    /// A namespaced object.
    pub fn namespaced(kind: ObjectKind, namespace: &str, name: &str, uid: &str) -> Self {
        ObjectRef {
            namespace: namespace.to_owned(),
            ..Self::cluster(kind, name, uid)
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = format!("{:?}", self.kind).to_lowercase();
        if self.namespace.is_empty() {
            write!(f, "{kind}/{}", self.name)
        } else {
            write!(f, "{kind}/{}/{}", self.namespace, self.name)
        }
    }
}

/// Which part of an object a patch writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Subresource {
    /// Metadata and spec.
    Main,
    /// The status subresource.
    Status,
}

/// Whether an event is good or bad news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EventType {
    /// For information.
    Normal,
    /// Something needs attention.
    Warning,
}

/// An event to be recorded (P §17, D App. C).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What the event is about.
    pub object: ObjectRef,
    /// Normal or Warning.
    pub event_type: EventType,
    /// The reason, in CamelCase.
    pub reason: String,
    /// The message.
    pub message: String,
    /// With the reason, the identity for de-duplication.
    pub dedupe_values: Vec<String>,
    /// For how long an equal event is suppressed, in seconds; 120 unless the event says otherwise.
    pub dedupe_window_seconds: u32,
    /// Whether the event also passes the token bucket of 5/s, burst 10 (only `Nominated`).
    pub rate_limited: bool,
}

impl Event {
    /// An event with the default window of two minutes, de-duplicated by the object's UID.
    pub fn new(object: ObjectRef, event_type: EventType, reason: &str, message: impl Into<String>) -> Self {
        let dedupe_values = vec![object.uid.clone()];
        Event {
            object,
            event_type,
            reason: reason.to_owned(),
            message: message.into(),
            dedupe_values,
            dedupe_window_seconds: 120,
            rate_limited: false,
        }
    }

    /// With other de-duplication values.
    #[must_use]
    pub fn deduped_by(mut self, values: impl IntoIterator<Item = String>) -> Self {
        self.dedupe_values = values.into_iter().collect();
        self
    }

    /// What makes two events equal, beside their reason; empty: never suppressed (W-43). The object counts by its UID, or by namespace and name
    /// where it has none, and so does what is said: another reason shows at once. Numbers, times and prices in it do not: a count that goes down is
    /// no news.
    #[must_use]
    pub fn key(&self) -> Vec<String> {
        if self.dedupe_values.is_empty() {
            return Vec::new();
        }
        let object = &self.object;
        let identity = if object.uid.is_empty() {
            format!("{}/{}", object.namespace, object.name)
        } else {
            object.uid.clone()
        };
        let mut key = vec![identity, without_numbers(&self.message)];
        key.extend(self.dedupe_values.iter().cloned());
        key
    }

    /// With another window.
    #[must_use]
    pub fn within_seconds(mut self, seconds: u32) -> Self {
        self.dedupe_window_seconds = seconds;
        self
    }
}

/// A text in which every word that begins with a digit is the same.
fn without_numbers(text: &str) -> String {
    let is_word = |letter: char| letter.is_alphanumeric() || "-_./:+".contains(letter);
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = if is_word(first) {
            rest.find(|letter| !is_word(letter)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (word, after) = rest.split_at(end);
        plain.push_str(if first.is_ascii_digit() { "0" } else { word });
        rest = after;
    }
    plain
}

/// One write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// Create a NodeClaim, with `generateName`, or with a name: then one that exists already for the same Disruption is left as it is. `reason` is the label of `karpenter_nodeclaims_created_total`.
    CreateNodeClaim {
        /// The object.
        claim: Box<NodeClaim>,
        /// `provisioned`, `empty`, `drifted`, `underutilized`.
        reason: String,
    },
    /// Write down a command before its first step. One that exists already is left as it is.
    CreateDisruption {
        /// The object, with its name.
        disruption: Box<Disruption>,
    },
    /// Delete an object.
    Delete {
        /// Which.
        target: ObjectRef,
        /// Overrides the grace period, for pods.
        grace_period_seconds: Option<i64>,
    },
    /// Change an object by a JSON merge patch.
    Patch {
        /// Which.
        target: ObjectRef,
        /// Metadata and spec, or status.
        subresource: Subresource,
        /// RFC 7386.
        patch: Value,
        /// Optimistic lock: required whenever the patch replaces a list, because a merge patch replaces it whole.
        resource_version: Option<String>,
    },
    /// Evict a pod through the Eviction API, which honours PodDisruptionBudgets.
    EvictPod {
        /// Which.
        target: ObjectRef,
        /// Overrides the grace period.
        grace_period_seconds: Option<i64>,
    },
    /// Name the node that a pod was planned on in `status.nominatedNodeName`, or take that back, with our condition beside it. Best effort: the plan
    /// holds without it.
    NominatePod {
        /// Which.
        target: ObjectRef,
        /// The node; `None` takes the name back.
        node: Option<String>,
        /// What is said of it.
        condition: Box<PodCondition>,
    },
    /// Record an event.
    Event(Event),
}

impl Action {
    /// Deletes an object with its own grace period.
    pub fn delete(target: ObjectRef) -> Self {
        Action::Delete {
            target,
            grace_period_seconds: None,
        }
    }

    /// The patch that turns `before` into `after`, or `None` when they are equal. Both are the same kind of object; only the part
    /// that the subresource owns is compared. `lock` adds the optimistic lock on `before`'s resource version.
    pub fn patch<T: Serialize>(
        target: ObjectRef,
        subresource: Subresource,
        before: &T,
        after: &T,
        lock: bool,
    ) -> Option<Self> {
        let (before, after) = (to_object(before), to_object(after));
        let version = before
            .get("metadata")
            .and_then(|meta| meta.get("resourceVersion"))
            .and_then(Value::as_str);
        let resource_version = version.filter(|_| lock).map(ToOwned::to_owned);
        let mut patch = Map::new();
        for key in before.keys().chain(after.keys()) {
            let owned = match subresource {
                Subresource::Status => key == "status",
                Subresource::Main => key != "status" && key != "apiVersion" && key != "kind",
            };
            if owned && before.get(key) != after.get(key) && !patch.contains_key(key) {
                patch.insert(key.clone(), merge_patch(before.get(key), after.get(key)));
            }
        }
        (!patch.is_empty()).then_some(Action::Patch {
            target,
            subresource,
            patch: Value::Object(patch),
            resource_version,
        })
    }
}

fn to_object<T: Serialize>(value: &T) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        // A Kubernetes object always serialises to a map; anything else has no fields to patch.
        _ => Map::new(),
    }
}

/// RFC 7386: the patch that turns `before` into `after`.
fn merge_patch(before: Option<&Value>, after: Option<&Value>) -> Value {
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let mut patch = Map::new();
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                patch.insert(key.clone(), Value::Null);
            }
            for (key, value) in after
                .iter()
                .filter(|(key, value)| before.get(*key) != Some(*value))
            {
                patch.insert(key.clone(), merge_patch(before.get(key), Some(value)));
            }
            Value::Object(patch)
        }
        (_, Some(after)) => after.clone(),
        (_, None) => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_names_only_what_changed_and_removes_with_null() {
        let before = json!({"metadata": {"name": "n", "resourceVersion": "7", "labels": {"a": "1", "b": "2"}}, "spec": {"taints": [1, 2]}, "status": {"x": 1}});
        let after = json!({"metadata": {"name": "n", "resourceVersion": "7", "labels": {"a": "1", "c": "3"}}, "spec": {"taints": [2]}, "status": {"x": 2}});
        let target = ObjectRef::cluster(ObjectKind::Node, "n", "u");
        let main = Action::patch(target.clone(), Subresource::Main, &before, &after, true);
        let expected = json!({"metadata": {"labels": {"b": null, "c": "3"}}, "spec": {"taints": [2]}});
        assert_eq!(
            main,
            Some(Action::Patch {
                target: target.clone(),
                subresource: Subresource::Main,
                patch: expected,
                resource_version: Some("7".to_owned())
            })
        );
        let status = Action::patch(target.clone(), Subresource::Status, &before, &after, false);
        assert_eq!(
            status,
            Some(Action::Patch {
                target: target.clone(),
                subresource: Subresource::Status,
                patch: json!({"status": {"x": 2}}),
                resource_version: None
            })
        );
        assert_eq!(
            Action::patch(target, Subresource::Status, &before, &before, true),
            None
        );
    }

    fn event(namespace: &str, name: &str, uid: &str, message: &str) -> Event {
        let object = ObjectRef::namespaced(ObjectKind::Pod, namespace, name, uid);
        Event::new(object, EventType::Normal, "Told", message)
    }

    #[test]
    fn w_43_what_is_said_and_of_whom_makes_an_event_another() {
        let of = |uid: &str, message: &str| {
            event("a", "web-0", uid, message)
                .deduped_by(["web-0".to_owned()])
                .key()
        };
        let known = of("1", "3 pods are waiting to be evicted");
        assert_ne!(known, of("1", "evicting pod violates a PDB (Pod=a/web-0)"));
        assert_ne!(
            of("1", "evicting pod violates a PDB (Pod=a/web-0)"),
            of("1", "evicting pod violates a PDB (Pod=a/web-1)")
        );
        assert_ne!(
            known,
            of("2", "3 pods are waiting to be evicted"),
            "a namesake in another namespace"
        );
        assert_ne!(
            event("a", "web-0", "", "x").key(),
            event("b", "web-0", "", "x").key(),
            "who has no UID is known by namespace and name"
        );
    }

    #[test]
    fn w_43_numbers_times_and_prices_are_no_news() {
        let of = |message: &str| event("a", "web-0", "1", message).key();
        assert_eq!(
            of("12 pods wait (savings: $0.12)"),
            of("3 pods wait (savings: $4.00)")
        );
        assert_eq!(
            of("tried again at 2026-01-01T00:00:00Z"),
            of("tried again at 2026-01-02T03:04:05Z")
        );
        assert_eq!(of("überall 1, 2"), of("überall 30, 4"));
        assert_ne!(of("node a1"), of("node a2"));
        let always = event("a", "web-0", "1", "x").deduped_by([]);
        assert!(always.key().is_empty(), "what is never suppressed");
    }
}
