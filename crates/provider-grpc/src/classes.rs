//! NodeClasses on behalf of a provider that has no access to Kubernetes (G-021).
//!
//! Owns reading them, and what is written of them by what the provider says. What a class means is the provider's.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Map, Value, json};
use spokeshave_ports::{NodeClassKind, SharedClock, Write, WriteTarget, Writes};
use tonic::Status;

use crate::agenda::{Agenda, PERIOD, Seen, Settled, after};
use crate::link::{Client, within};
use crate::{convert, wire};

/// Keeps a NodeClass until the provider has taken away what it made for it.
const FINALIZER: &str = "spokeshave.dev/provider";
/// Time for one verdict.
const VERDICT_LIMIT: Duration = Duration::from_secs(60);
/// Most NodeClasses that the provider is asked about at a time.
const MOST_AT_A_TIME: usize = 16;

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
    let since = |wanted: &wire::Condition| {
        let same = |one: &&Value| one["type"] == *wanted.r#type && one["status"] == *wanted.status;
        let kept = conditions(object).iter().find(same);
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

/// Keeps the status of NodeClasses true whose provider does not judge them (no capability `NODE_CLASS_STATUS`): they are ready as they are.
pub(crate) async fn approve(place: Place<'_>, kinds: &[NodeClassKind]) {
    loop {
        for kind in kinds {
            for one in place.listed(kind).await.into_iter().flatten() {
                if let Err(error) = one.approve().await {
                    let name = one.name();
                    tracing::warn!(%kind, name, error, "the status of a NodeClass is not written; it is tried again");
                }
            }
        }
        place.clock.sleep(PERIOD).await;
    }
}

/// Takes our finalizer off NodeClasses of a provider that has judged them before and does not any more: nobody else ever would. Nobody puts it on again
/// meanwhile, so that once is enough.
pub(crate) async fn release(place: Place<'_>, kinds: &[NodeClassKind]) {
    loop {
        let mut is_done = true;
        for kind in kinds {
            let Some(listed) = place.listed(kind).await else {
                is_done = false;
                continue;
            };
            for one in listed {
                if let Err(error) = one.release().await {
                    is_done = false;
                    let name = one.name();
                    tracing::warn!(%kind, name, error, "the finalizer {FINALIZER} of a NodeClass is not taken off; it is tried again");
                }
            }
        }
        if is_done {
            return std::future::pending().await;
        }
        place.clock.sleep(PERIOD).await;
    }
}

fn conditions(object: &DynamicObject) -> &[Value] {
    let conditions = object.data.pointer("/status/conditions");
    conditions
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice)
}

/// Whether there is nothing to write: it is on its way out, ready in this generation, or another's to judge: a status in which more stands than we write
/// is never overridden.
fn is_approved(object: &DynamicObject) -> bool {
    let is_settled = match conditions(object) {
        [] => false,
        [one] if one["type"] == "Ready" && one["status"] == "True" && one["reason"] == "Ready" => {
            one["observedGeneration"].as_i64() == object.metadata.generation
        }
        _ => true,
    };
    object.metadata.deletion_timestamp.is_some() || is_settled
}

/// Keeps the status of the provider's NodeClasses true, for as long as it leads. One about which the provider does not answer delays no other.
pub(crate) async fn reconcile(
    place: Place<'_>,
    kinds: &[NodeClassKind],
    client: impl Fn() -> Option<Client>,
    leader_term: u64,
) {
    let mut agenda = Agenda::default();
    let mut under_way = FuturesUnordered::new();
    loop {
        let client = client();
        let mut waiting: VecDeque<One<'_>> = VecDeque::new();
        if client.is_some() {
            for kind in kinds {
                let listed = place.listed(kind).await.into_iter().flatten();
                let now = place.clock.now();
                let is_due = |one: &One<'_>| !one.is_over() && agenda.is_due(one.uid(), one.seen(), now);
                waiting.extend(listed.filter(is_due));
            }
        }
        let mut next = place.clock.sleep(PERIOD);
        loop {
            while under_way.len() < MOST_AT_A_TIME
                && let Some(client) = &client
                && let Some(one) = waiting.pop_front()
            {
                agenda.begin(one.uid());
                under_way.push(one.settle(client.clone(), leader_term));
            }
            tokio::select! {
                biased;
                Some(settled) = under_way.next() => agenda.note(settled, place.clock.now()),
                () = &mut next => break,
            }
        }
    }
}

impl<'a> Place<'a> {
    /// The classes of a kind; `None` when they cannot be read, which is logged.
    async fn listed(self, kind: &'a NodeClassKind) -> Option<Vec<One<'a>>> {
        match self.source.list(kind).await {
            Ok(objects) => {
                let one = |object| One {
                    place: self,
                    kind,
                    object,
                };
                Some(objects.into_iter().map(one).collect())
            }
            Err(error) => {
                tracing::warn!(%kind, error, "NodeClasses cannot be read");
                None
            }
        }
    }
}

struct One<'a> {
    place: Place<'a>,
    kind: &'a NodeClassKind,
    object: DynamicObject,
}

impl One<'_> {
    fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    fn uid(&self) -> &str {
        self.object.metadata.uid.as_deref().unwrap_or_default()
    }

    fn seen(&self) -> Seen {
        Seen {
            generation: self.object.metadata.generation,
            is_deleted: self.object.metadata.deletion_timestamp.is_some(),
        }
    }

    fn finalizers(&self) -> &[String] {
        self.object.metadata.finalizers.as_deref().unwrap_or_default()
    }

    fn is_held(&self) -> bool {
        self.finalizers().iter().any(|one| one == FINALIZER)
    }

    /// It is on its way out, and what was made for it is taken away.
    fn is_over(&self) -> bool {
        self.seen().is_deleted && !self.is_held()
    }

    /// Merges into metadata, or into the status. With the resource version that it was read at, so that no other's write is lost.
    async fn write(&self, patch: Value, is_status: bool) -> Result<(), String> {
        let target = if is_status {
            WriteTarget::NodeClassStatus(self.kind.clone())
        } else {
            WriteTarget::NodeClass(self.kind.clone())
        };
        let name = self.name().to_owned();
        let written = self.place.writes.write(Write { target, name, patch }).await;
        written.map(drop).map_err(|error| error.to_string())
    }

    /// Says that it is ready, unless another does. By our finalizer a class is known whose status is the verdict of a provider that did judge it, which we
    /// wrote: the verdict goes first, and the finalizer after it.
    async fn approve(&self) -> Result<(), String> {
        let is_settled = is_approved(&self.object);
        if self.is_held() {
            if self.seen().is_deleted || (is_settled && conditions(&self.object).len() == 1) {
                return self.release().await;
            }
        } else if is_settled {
            return Ok(());
        }
        let verdict = wire::NodeClassVerdict::default();
        let patch = status_patch(&self.object, &verdict, self.place.clock.now())?;
        self.write(patch, true).await
    }

    /// Takes our finalizer off, where it stands.
    async fn release(&self) -> Result<(), String> {
        if !self.is_held() {
            return Ok(());
        }
        let others = self.finalizers().iter().filter(|one| *one != FINALIZER);
        let others: Vec<String> = others.cloned().collect();
        self.set_finalizers(&others).await
    }

    async fn settle(self, client: Client, leader_term: u64) -> Settled {
        let again = self.look(client, leader_term).await;
        if let Err(error) = &again {
            let (kind, name) = (self.kind, self.name());
            tracing::warn!(%kind, name, error, "a NodeClass is not settled; it is tried again");
        }
        Settled {
            uid: self.uid().to_owned(),
            seen: self.seen(),
            again: again.map_err(drop),
        }
    }

    /// Does what its state asks for, and says when it is looked at again; `None` with the next round.
    async fn look(&self, mut client: Client, leader_term: u64) -> Result<Option<Timestamp>, String> {
        let request = wire::NodeClassRequest {
            node_class: Some(message(self.kind, &self.object)),
            leader_term,
        };
        if self.seen().is_deleted {
            return self.finalize(client, request).await;
        }
        if !self.is_held() {
            let others = self.finalizers().iter().cloned();
            let finalizers: Vec<String> = others.chain([FINALIZER.to_owned()]).collect();
            self.set_finalizers(&finalizers).await?;
            return Ok(None);
        }
        let verdict = self.answer(client.reconcile_node_class(request)).await?;
        let now = self.place.clock.now();
        let patch = status_patch(&self.object, &verdict, now)?;
        self.write(patch, true).await?;
        let again = convert::duration_of(verdict.requeue_after);
        Ok(Some(again.map_or(Timestamp::MAX, |pause| after(now, pause))))
    }

    async fn finalize(
        &self,
        mut client: Client,
        request: wire::NodeClassRequest,
    ) -> Result<Option<Timestamp>, String> {
        let verdict = self.answer(client.finalize_node_class(request)).await?;
        if verdict.done {
            self.release().await?;
            return Ok(None);
        }
        let (kind, name) = (self.kind, self.name());
        let waiting_for = verdict.waiting_for;
        tracing::info!(%kind, name, waiting_for, "a NodeClass that is deleted is kept until its provider is done with it");
        let again = convert::duration_of(verdict.requeue_after);
        Ok(again.map(|pause| after(self.place.clock.now(), pause)))
    }

    /// What the provider says of it, in time.
    async fn answer<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, String> {
        let answer = within(self.place.clock, VERDICT_LIMIT, call).await;
        match answer {
            Some(Ok(answer)) => Ok(answer.into_inner()),
            Some(Err(status)) => Err(format!("{:?}: {}", status.code(), status.message())),
            None => Err(format!("no answer within {} s", VERDICT_LIMIT.as_secs())),
        }
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
