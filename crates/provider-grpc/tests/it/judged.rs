//! NodeClasses that their provider judges and the operator writes: status, readiness, finalizer (G-021).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use spokeshave_ports::{
    CloudProvider as _, NodeClassKind, SharedClock, Write, WriteError, WriteTarget, Writes,
};
use spokeshave_provider_grpc::{
    ClientOptions, GrpcProvider, NodeClasses, Server, ServerOptions, piped, wire,
};
use tokio::task::JoinHandle;

use crate::flawed::{Flaw, Flawed};
use crate::shed::{Shed, clock, options};

/// A NodeClass as an API server keeps it; `None` when it is gone.
#[derive(Clone, Debug)]
struct Kept(Arc<Mutex<Option<Value>>>);

impl Kept {
    fn new() -> Self {
        Kept::named("default")
    }

    fn named(name: &str) -> Self {
        let object = json!({
            "apiVersion": "shed.example/v1", "kind": "ShedClass",
            "metadata": {"name": name, "uid": format!("uid-of-{name}"), "generation": 1, "resourceVersion": "1", "finalizers": ["somebody/else"]},
            "spec": {"image": "a"},
        });
        Kept(Arc::new(Mutex::new(Some(object))))
    }

    fn value(&self) -> Value {
        self.0.lock().expect("no panic").clone().unwrap_or_default()
    }

    fn object(&self) -> Option<DynamicObject> {
        let value = self.0.lock().expect("no panic").clone()?;
        Some(serde_json::from_value(value).expect("an object"))
    }

    /// Somebody changes it.
    fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut kept = self.0.lock().expect("no panic");
        let object = kept.as_mut().expect("it is there");
        change(object);
        let version = &mut object["metadata"]["resourceVersion"];
        let next = version
            .as_str()
            .and_then(|it| it.parse::<u64>().ok())
            .expect("a number")
            + 1;
        *version = json!(next.to_string());
    }

    fn condition(&self, kind: &str) -> Value {
        let value = self.value();
        let all = value["status"]["conditions"].as_array();
        let found = all.into_iter().flatten().find(|one| one["type"] == kind);
        found.cloned().unwrap_or_default()
    }
}

impl NodeClasses for Kept {
    fn list<'a>(&'a self, _: &'a NodeClassKind) -> BoxFuture<'a, Result<Vec<DynamicObject>, String>> {
        let listed = self.object().into_iter().collect();
        Box::pin(std::future::ready(Ok(listed)))
    }

    fn get<'a>(
        &'a self,
        _: &'a NodeClassKind,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<DynamicObject>, String>> {
        Box::pin(std::future::ready(Ok(self.object())))
    }
}

impl Writes for Kept {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Value, WriteError>> {
        let read_at = write.patch["metadata"]["resourceVersion"].clone();
        let is_current = read_at == self.value()["metadata"]["resourceVersion"];
        let written = if is_current {
            self.change(|object| match &write.target {
                WriteTarget::NodeClassStatus(_) => object["status"] = write.patch["status"].clone(),
                WriteTarget::NodeClass(_) => {
                    object["metadata"]["finalizers"] = write.patch["metadata"]["finalizers"].clone();
                }
                _ => panic!("{write}"),
            });
            Ok(self.value())
        } else {
            Err(WriteError::Conflict(format!("read at {read_at}")))
        };
        Box::pin(std::future::ready(written))
    }

    fn leader_term(&self) -> u64 {
        4
    }
}

/// Several of them, by name.
#[derive(Clone, Debug)]
struct Several(BTreeMap<&'static str, Kept>);

impl NodeClasses for Several {
    fn list<'a>(&'a self, _: &'a NodeClassKind) -> BoxFuture<'a, Result<Vec<DynamicObject>, String>> {
        let listed = self.0.values().filter_map(Kept::object).collect();
        Box::pin(std::future::ready(Ok(listed)))
    }

    fn get<'a>(
        &'a self,
        _: &'a NodeClassKind,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<DynamicObject>, String>> {
        let found = self.0.get(name).and_then(Kept::object);
        Box::pin(std::future::ready(Ok(found)))
    }
}

impl Writes for Several {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Value, WriteError>> {
        self.0[write.name.as_str()].write(write)
    }
}

/// Somebody else writes between each of the operator's reads and writes, so many times.
#[derive(Debug)]
struct Contended(Kept, Mutex<u32>);

impl Writes for Contended {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Value, WriteError>> {
        let mut left = self.1.lock().expect("no panic");
        if *left > 0 {
            *left -= 1;
            self.0
                .change(|object| object["metadata"]["labels"] = json!({"touched": left.to_string()}));
        }
        self.0.write(write)
    }

    fn leader_term(&self) -> u64 {
        self.0.leader_term()
    }
}

async fn leading(
    classes: impl NodeClasses + 'static,
    writes: impl Writes + 'static,
) -> (Flawed, SharedClock, JoinHandle<()>) {
    let clock = clock();
    let server = Server::new(Shed::new(clock.clone()), clock.clone(), ServerOptions::default());
    let provider = Flawed::new(server, Flaw::Judges, clock.clone());
    let options = ClientOptions {
        node_classes: Some(Arc::new(classes)),
        ..options(Arc::new(piped(provider.clone())))
    };
    let operator = GrpcProvider::connect(options, clock.clone()).await;
    let operator = operator.expect("a connection");
    let leads = tokio::spawn(async move { operator.lead(Arc::new(writes)).await });
    clock.sleep(Duration::from_secs(30)).await;
    (provider, clock, leads)
}

#[tokio::test(start_paused = true)]
async fn g_021_a_class_is_as_its_provider_says_and_goes_when_its_provider_is_done() {
    let kept = Kept::new();
    let (provider, clock, leads) = leading(kept.clone(), kept.clone()).await;
    let pass = async |seconds| clock.sleep(Duration::from_secs(seconds)).await;
    let images = provider.images.clone();
    let ready = || {
        let ready = kept.condition("Ready");
        (ready["status"].clone(), ready["reason"].clone())
    };
    let value = kept.value();
    assert_eq!(
        value["metadata"]["finalizers"],
        json!(["somebody/else", "spokeshave.dev/provider"])
    );
    assert_eq!(
        (&value["status"]["image"], &value["status"]["term"]),
        (&json!("a"), &json!(4)),
        "the provider's own fields, and who leads"
    );
    assert_eq!(kept.condition("ImageReady")["status"], "False");
    assert_eq!(ready(), (json!("False"), json!("ImageReady")));
    assert_eq!(kept.condition("Ready")["message"], "image \"a\" exists: false");
    let since = kept.condition("Ready")["lastTransitionTime"].clone();

    // It is asked again when it has said so, and writes nothing else meanwhile.
    let version = kept.value()["metadata"]["resourceVersion"].clone();
    pass(20).await;
    assert_eq!(kept.value()["metadata"]["resourceVersion"], version);
    images.lock().expect("no panic").push("a".into());
    pass(70).await;
    assert_eq!(ready(), (json!("True"), json!("Ready")));
    assert_ne!(kept.condition("Ready")["lastTransitionTime"], since);

    // And at once for another generation.
    kept.change(|object| {
        object["spec"]["image"] = json!("b");
        object["metadata"]["generation"] = json!(2);
    });
    pass(6).await;
    assert_eq!(ready().0, "False");
    assert_eq!(kept.condition("Ready")["observedGeneration"], 2);

    kept.change(|object| object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:05:00Z"));
    pass(3).await;
    assert_eq!(
        kept.value()["metadata"]["finalizers"],
        json!(["somebody/else", "spokeshave.dev/provider"]),
        "image a is taken away first"
    );
    pass(12).await;
    assert_eq!(kept.value()["metadata"]["finalizers"], json!(["somebody/else"]));
    leads.abort();
}

#[tokio::test(start_paused = true)]
async fn g_021_nobody_elses_write_is_lost_to_the_operators() {
    let kept = Kept::new();
    let contended = Contended(kept.clone(), Mutex::new(3));
    let (_provider, clock, leads) = leading(kept.clone(), contended).await;
    clock.sleep(Duration::from_secs(30)).await;
    assert_eq!(kept.value()["metadata"]["labels"]["touched"], "0");
    assert_eq!(kept.condition("Ready")["status"], "False", "written in the end");
    leads.abort();
}

/// Nobody would take the finalizer of the operator off again: the class could never be deleted.
#[tokio::test(start_paused = true)]
async fn g_021_a_provider_that_does_not_judge_any_more_holds_no_class() {
    let own_status = i32::from(wire::Capability::OwnNodeClassStatus);
    for capabilities in [vec![], vec![own_status]] {
        for is_deleted in [false, true] {
            let kept = Kept::new();
            let (provider, clock, leads) = leading(kept.clone(), kept.clone()).await;
            let finalizers = || kept.value()["metadata"]["finalizers"].clone();
            // It is not done with a class for a long time.
            *provider.images.lock().expect("no panic") = vec!["x".to_owned(); 100];
            if is_deleted {
                kept.change(|object| object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:05:00Z"));
            }
            clock.sleep(Duration::from_secs(10)).await;
            assert_eq!(finalizers(), json!(["somebody/else", "spokeshave.dev/provider"]));
            *provider.capabilities.lock().expect("no panic") = Some(capabilities.clone());
            // A handshake is repeated every 20 seconds.
            clock.sleep(Duration::from_secs(30)).await;
            assert_eq!(
                finalizers(),
                json!(["somebody/else"]),
                "{capabilities:?}, deleted: {is_deleted}"
            );
            // Where nobody judges any more, nothing says that it is not ready either.
            let is_ready = kept.condition("Ready")["status"] == "True";
            assert_eq!(
                is_ready,
                capabilities.is_empty() && !is_deleted,
                "{capabilities:?}, deleted: {is_deleted}"
            );
            leads.abort();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn g_021_a_class_about_which_the_provider_does_not_answer_delays_no_other() {
    // The one that is stuck is listed first.
    let (stuck, other) = (Kept::named("a-stuck"), Kept::named("b"));
    let both = Several(BTreeMap::from([("a-stuck", stuck.clone()), ("b", other.clone())]));
    let (provider, clock, leads) = leading(both.clone(), both).await;
    let judged_in = || other.condition("Ready")["observedGeneration"].clone();
    assert_eq!(judged_in(), 1, "within half a minute");
    other.change(|object| {
        object["spec"]["image"] = json!("b");
        object["metadata"]["generation"] = json!(2);
    });
    clock.sleep(Duration::from_secs(6)).await;
    assert_eq!(judged_in(), 2, "at once for another generation");
    assert_eq!(stuck.condition("Ready"), Value::Null);

    // And it is asked about less often each time: a minute passes without an answer, and up to two until the next question.
    clock.sleep(Duration::from_secs(20 * 60)).await;
    let judged = provider.judged.lock().expect("no panic").clone();
    let asked = judged.iter().filter(|name| *name == "a-stuck").count();
    assert!((7..13).contains(&asked), "{asked} times");
    leads.abort();
}
