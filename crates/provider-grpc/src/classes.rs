//! NodeClasses on behalf of a provider that has no access to Kubernetes (G-021).
//!
//! Owns reading them, and what is written of them by what the provider says. What a class means is the provider's.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Map, Value, json};
use spokeshave_ports::{NodeClassKind, SharedClock, Write, WriteTarget, Writes};
use tonic::Status;

use crate::link::{Client, within};
use crate::wire;

/// Keeps a NodeClass until the provider has taken away what it made for it.
const FINALIZER: &str = "spokeshave.dev/provider";
/// Time for one verdict.
const VERDICT_LIMIT: Duration = Duration::from_secs(60);
/// Pause between two looks at all classes.
const PERIOD: Duration = Duration::from_secs(5);

/// Where NodeClasses are read. What is written of them goes through core.
pub trait NodeClasses: Debug + Send + Sync {
    /// All of a kind.
    fn list<'a>(&'a self, kind: &'a NodeClassKind) -> BoxFuture<'a, Result<Vec<DynamicObject>, String>>;

    /// One, if it exists.
    fn get<'a>(
        &'a self,
        kind: &'a NodeClassKind,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<DynamicObject>, String>>;
}

/// Those of a cluster.
#[derive(Clone)]
pub struct KubeNodeClasses(pub kube::Client);

impl Debug for KubeNodeClasses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KubeNodeClasses")
    }
}

impl KubeNodeClasses {
    fn api(&self, kind: &NodeClassKind) -> Api<DynamicObject> {
        let names = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&names, &kind.plural);
        Api::all_with(self.0.clone(), &resource)
    }
}

impl NodeClasses for KubeNodeClasses {
    fn list<'a>(&'a self, kind: &'a NodeClassKind) -> BoxFuture<'a, Result<Vec<DynamicObject>, String>> {
        Box::pin(async move {
            let listed = self.api(kind).list(&ListParams::default()).await;
            listed
                .map(|list| list.items)
                .map_err(|error| format!("list {kind}: {error}"))
        })
    }

    fn get<'a>(
        &'a self,
        kind: &'a NodeClassKind,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<DynamicObject>, String>> {
        Box::pin(async move {
            let found = self.api(kind).get_opt(name).await;
            found.map_err(|error| format!("get {kind} {name}: {error}"))
        })
    }
}

/// Where classes are read, who writes them, and by which clock.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) source: &'a dyn NodeClasses,
    pub(crate) writes: &'a dyn Writes,
    pub(crate) clock: &'a SharedClock,
}

/// Merges into metadata, or into the status. With the resource version that it was read at, so that no other's write is lost.
async fn write_class(
    writes: &dyn Writes,
    kind: &NodeClassKind,
    (name, is_status): (&str, bool),
    patch: Value,
) -> Result<(), String> {
    let target = if is_status {
        WriteTarget::NodeClassStatus(kind.clone())
    } else {
        WriteTarget::NodeClass(kind.clone())
    };
    let name = name.to_owned();
    let written = writes.write(Write { target, name, patch }).await;
    written.map(drop).map_err(|error| error.to_string())
}

/// A class, for the provider.
pub(crate) fn message(kind: &NodeClassKind, object: &DynamicObject) -> wire::NodeClass {
    let metadata = &object.metadata;
    wire::NodeClass {
        group: kind.group.clone(),
        kind: kind.kind.clone(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        generation: metadata.generation.unwrap_or_default(),
        object_json: serde_json::to_vec(object).unwrap_or_default(),
    }
}

/// A class as a provider behind our server is told of it; `None` when only its name came.
pub(crate) fn read(class: &wire::NodeClass) -> Result<Option<DynamicObject>, Status> {
    if class.object_json.is_empty() {
        return Ok(None);
    }
    let object = serde_json::from_slice(&class.object_json);
    object
        .map(Some)
        .map_err(|error| Status::invalid_argument(format!("node_class.object_json: {error}")))
}

/// What the status becomes: the provider's fields and conditions, and `Ready`, which is true when they all are.
fn status_patch(
    object: &DynamicObject,
    verdict: &wire::NodeClassVerdict,
    now: Timestamp,
) -> Result<Value, String> {
    let mut status: Map<String, Value> = if verdict.status_json.is_empty() {
        Map::new()
    } else {
        serde_json::from_slice(&verdict.status_json).map_err(|error| format!("status_json: {error}"))?
    };
    let bad = verdict.conditions.iter().find(|one| one.status != "True");
    let ready = wire::Condition {
        r#type: "Ready".to_owned(),
        status: bad.map_or("True", |_| "False").to_owned(),
        reason: bad.map_or("Ready", |bad| bad.r#type.as_str()).to_owned(),
        message: bad.map_or_else(String::new, |bad| bad.message.clone()),
    };
    let old = object
        .data
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let since = |wanted: &wire::Condition| {
        let same = |one: &&Value| one["type"] == *wanted.r#type && one["status"] == *wanted.status;
        let kept = old.into_iter().flatten().find(same);
        kept.map_or_else(|| json!(now), |kept| kept["lastTransitionTime"].clone())
    };
    let own = verdict.conditions.iter().filter(|one| one.r#type != "Ready");
    let conditions = own.chain([&ready]).map(|one| {
        json!({
            "type": one.r#type, "status": one.status, "message": one.message,
            "reason": if one.reason.is_empty() { &one.r#type } else { &one.reason },
            "observedGeneration": object.metadata.generation, "lastTransitionTime": since(one),
        })
    });
    status.insert("conditions".to_owned(), conditions.collect());
    Ok(json!({"metadata": {"resourceVersion": object.metadata.resource_version}, "status": status}))
}

/// When a class is looked at again, and at which state it was.
type Due = BTreeMap<String, (Option<i64>, Timestamp)>;

/// Keeps the status of NodeClasses true whose provider does not judge them (no capability `NODE_CLASS_STATUS`): they are ready as they are.
pub(crate) async fn approve(place: Place<'_>, kinds: &[NodeClassKind]) {
    let Place {
        source,
        writes,
        clock,
    } = place;
    loop {
        for kind in kinds {
            match source.list(kind).await {
                Ok(objects) => {
                    for object in objects.iter().filter(|object| !is_approved(object)) {
                        let name = object.metadata.name.as_deref().unwrap_or_default();
                        let patch = status_patch(object, &wire::NodeClassVerdict::default(), clock.now());
                        let written = match patch {
                            Ok(patch) => write_class(writes, kind, (name, true), patch).await,
                            Err(error) => Err(error),
                        };
                        if let Err(error) = written {
                            tracing::warn!(%kind, name, error, "the status of a NodeClass is not written; it is tried again");
                        }
                    }
                }
                Err(error) => tracing::warn!(%kind, error, "NodeClasses cannot be read"),
            }
        }
        clock.sleep(PERIOD).await;
    }
}

/// Whether there is nothing to write: it is on its way out, ready in this generation, or another's to judge: a status in which more stands than we write
/// is never overridden.
fn is_approved(object: &DynamicObject) -> bool {
    let conditions = object
        .data
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let is_settled = match conditions {
        [] => false,
        [one] if one["type"] == "Ready" && one["status"] == "True" && one["reason"] == "Ready" => {
            one["observedGeneration"].as_i64() == object.metadata.generation
        }
        _ => true,
    };
    object.metadata.deletion_timestamp.is_some() || is_settled
}

/// Keeps the status of the provider's NodeClasses true, for as long as it leads.
pub(crate) async fn reconcile(
    place: Place<'_>,
    kinds: &[NodeClassKind],
    client: impl Fn() -> Option<Client>,
    leader_term: u64,
) {
    let mut due = Due::new();
    loop {
        if let Some(client) = client() {
            for kind in kinds {
                match place.source.list(kind).await {
                    Ok(objects) => {
                        for object in objects {
                            let one = One { place, kind, object };
                            if let Err(error) = one.settle(client.clone(), leader_term, &mut due).await {
                                tracing::warn!(%kind, error, "a NodeClass is not settled; it is tried again");
                            }
                        }
                    }
                    Err(error) => tracing::warn!(%kind, error, "NodeClasses cannot be read"),
                }
            }
        }
        place.clock.sleep(PERIOD).await;
    }
}

struct One<'a> {
    place: Place<'a>,
    kind: &'a NodeClassKind,
    object: DynamicObject,
}

impl One<'_> {
    async fn write(&self, patch: Value, is_status: bool) -> Result<(), String> {
        write_class(self.place.writes, self.kind, (self.name(), is_status), patch).await
    }

    fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    async fn settle(&self, mut client: Client, leader_term: u64, due: &mut Due) -> Result<(), String> {
        let metadata = &self.object.metadata;
        let finalizers = metadata.finalizers.clone().unwrap_or_default();
        let is_held = finalizers.iter().any(|one| one == FINALIZER);
        let request = wire::NodeClassRequest {
            node_class: Some(message(self.kind, &self.object)),
            leader_term,
        };
        if metadata.deletion_timestamp.is_some() {
            return if is_held {
                self.finalize(client, request, finalizers).await
            } else {
                Ok(())
            };
        }
        let uid = metadata.uid.clone().unwrap_or_default();
        let is_known = due.get(&uid).is_some_and(|(generation, at)| {
            *generation == metadata.generation && self.place.clock.now() < *at
        });
        if is_known {
            return Ok(());
        }
        if !is_held {
            let finalizers: Vec<String> = finalizers.into_iter().chain([FINALIZER.to_owned()]).collect();
            return self.set_finalizers(&finalizers).await;
        }
        let verdict = within(
            self.place.clock,
            VERDICT_LIMIT,
            client.reconcile_node_class(request),
        )
        .await;
        let verdict = verdict
            .ok_or_else(|| format!("{}: no verdict within {} s", self.name(), VERDICT_LIMIT.as_secs()))?;
        let verdict = verdict
            .map_err(|status| format!("{}: {:?}: {}", self.name(), status.code(), status.message()))?;
        let verdict = verdict.into_inner();
        let now = self.place.clock.now();
        let patch = status_patch(&self.object, &verdict, now)?;
        self.write(patch, true).await?;
        let again = verdict
            .requeue_after
            .and_then(|after| Duration::try_from(after).ok());
        let again = again.map_or(Timestamp::MAX, |after| {
            now.saturating_add(after).unwrap_or(Timestamp::MAX)
        });
        due.insert(uid, (metadata.generation, again));
        Ok(())
    }

    async fn finalize(
        &self,
        mut client: Client,
        request: wire::NodeClassRequest,
        finalizers: Vec<String>,
    ) -> Result<(), String> {
        let verdict = within(
            self.place.clock,
            VERDICT_LIMIT,
            client.finalize_node_class(request),
        )
        .await;
        let verdict = verdict.ok_or_else(|| format!("{}: no answer about its end", self.name()))?;
        let verdict = verdict
            .map_err(|status| format!("{}: {:?}: {}", self.name(), status.code(), status.message()))?;
        if !verdict.get_ref().done {
            return Err(format!(
                "{} waits for {}",
                self.name(),
                verdict.get_ref().waiting_for
            ));
        }
        let left: Vec<String> = finalizers.into_iter().filter(|one| one != FINALIZER).collect();
        self.set_finalizers(&left).await
    }

    async fn set_finalizers(&self, finalizers: &[String]) -> Result<(), String> {
        let version = &self.object.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        self.write(patch, false).await
    }
}

#[cfg(test)]
mod tests {
    use spokeshave_ports::WriteError;

    use super::*;

    fn class(spec: Value) -> DynamicObject {
        let object = json!({"apiVersion": "shed.example/v1", "kind": "ShedClass", "metadata": {"name": "a", "generation": 3}, "spec": spec});
        serde_json::from_value(object).expect("a class")
    }

    /// Classes in memory.
    #[derive(Debug)]
    struct Held(std::sync::Mutex<Vec<DynamicObject>>);

    impl NodeClasses for Held {
        fn list<'a>(&'a self, _: &'a NodeClassKind) -> BoxFuture<'a, Result<Vec<DynamicObject>, String>> {
            Box::pin(async { Ok(self.0.lock().expect("no panic").clone()) })
        }

        fn get<'a>(
            &'a self,
            _: &'a NodeClassKind,
            _: &'a str,
        ) -> BoxFuture<'a, Result<Option<DynamicObject>, String>> {
            Box::pin(async { Err("nobody asks".to_owned()) })
        }
    }

    impl Writes for Held {
        fn write(&self, write: Write) -> BoxFuture<'_, Result<Value, WriteError>> {
            Box::pin(async move {
                let is_status = matches!(write.target, WriteTarget::NodeClassStatus(_));
                assert!(is_status, "a class that nobody judges is not held");
                let mut held = self.0.lock().expect("no panic");
                let one = held
                    .iter_mut()
                    .find(|one| one.metadata.name.as_deref() == Some(write.name.as_str()));
                one.expect("it is there").data["status"] = write.patch["status"].clone();
                Ok(Value::Null)
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn g_021_a_class_that_its_provider_does_not_judge_is_ready_in_each_generation() {
        let held = Held(std::sync::Mutex::new(vec![class(json!({"disk": 1}))]));
        let kind = NodeClassKind {
            group: "shed.example".to_owned(),
            version: "v1".to_owned(),
            kind: "ShedClass".to_owned(),
            plural: "shedclasses".to_owned(),
        };
        let clock = spokeshave_ports::TokioClock::wall(1.0).shared();
        let ready = || {
            let held = held.0.lock().expect("no panic");
            let one = &held[0].data["status"]["conditions"][0];
            (
                one["type"].clone(),
                one["status"].clone(),
                one["observedGeneration"].clone(),
            )
        };
        let kinds = [kind];
        let place = Place {
            source: &held,
            writes: &held,
            clock: &clock,
        };
        let approving = approve(place, &kinds);
        let story = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(ready(), (json!("Ready"), json!("True"), json!(3)));
            held.0.lock().expect("no panic")[0].metadata.generation = Some(4);
            tokio::time::sleep(PERIOD).await;
            assert_eq!(ready().2, json!(4));
        };
        tokio::select! {
            () = approving => unreachable!("it never ends"),
            () = story => {}
        }
    }

    #[test]
    fn g_021_ready_is_what_all_conditions_say() {
        let condition = |kind: &str, status: &str| wire::Condition {
            r#type: kind.to_owned(),
            status: status.to_owned(),
            message: format!("{kind} is {status}"),
            ..wire::Condition::default()
        };
        let verdict = wire::NodeClassVerdict {
            status_json: br#"{"image": "x"}"#.to_vec(),
            conditions: vec![condition("ImageReady", "True"), condition("NetReady", "False")],
            requeue_after: None,
        };
        let patch = status_patch(&class(json!({})), &verdict, Timestamp::UNIX_EPOCH).expect("a patch");
        assert_eq!(patch["status"]["image"], "x");
        let ready = &patch["status"]["conditions"][2];
        assert_eq!(
            (&ready["type"], &ready["status"]),
            (&json!("Ready"), &json!("False"))
        );
        assert_eq!(
            (&ready["reason"], &ready["message"]),
            (&json!("NetReady"), &json!("NetReady is False"))
        );
        let bad = wire::NodeClassVerdict {
            status_json: b"[".to_vec(),
            ..verdict
        };
        assert!(
            status_patch(&class(json!({})), &bad, Timestamp::UNIX_EPOCH)
                .is_err_and(|said| said.starts_with("status_json"))
        );
    }
}
