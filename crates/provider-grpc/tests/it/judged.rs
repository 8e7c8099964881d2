//! NodeClasses that their provider judges and the operator writes: status, readiness, finalizer (G-021).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use spokeshave_ports::{
    CloudProvider as _, NodeClassKind, SharedClock, Write, WriteError, WriteTarget, Writes,
};
use spokeshave_provider_grpc::{ClientOptions, GrpcProvider, NodeClasses, Server, ServerOptions, piped};
use tokio::task::JoinHandle;

use crate::flawed::{Flaw, Flawed};
use crate::shed::{Shed, clock};

/// A NodeClass as an API server keeps it; `None` when it is gone.
#[derive(Clone, Debug)]
struct Kept(Arc<Mutex<Option<Value>>>);

impl Kept {
    fn new() -> Self {
        let object = json!({
            "apiVersion": "shed.example/v1", "kind": "ShedClass",
            "metadata": {"name": "default", "uid": "u", "generation": 1, "resourceVersion": "1", "finalizers": ["somebody/else"]},
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

async fn leading(kept: &Kept, writes: Arc<dyn Writes>) -> (Flawed, SharedClock, JoinHandle<()>) {
    let clock = clock();
    let server = Server::new(Shed::new(clock.clone()), clock.clone(), ServerOptions::default());
    let provider = Flawed::new(server, Flaw::Judges, clock.clone());
    let options = ClientOptions {
        connector: Arc::new(piped(provider.clone())),
        cluster_name: "a".into(),
        cluster_uid: "uid".into(),
        kubernetes_version: String::new(),
        node_classes: Some(Arc::new(kept.clone())),
        nodes: None,
    };
    let operator = GrpcProvider::connect(options, clock.clone()).await;
    let operator = operator.expect("a connection");
    let leads = tokio::spawn(async move { operator.lead(writes).await });
    clock.sleep(Duration::from_secs(30)).await;
    (provider, clock, leads)
}

#[tokio::test(start_paused = true)]
async fn g_021_a_class_is_as_its_provider_says_and_goes_when_its_provider_is_done() {
    let kept = Kept::new();
    let (provider, clock, leads) = leading(&kept, Arc::new(kept.clone())).await;
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
    let (_provider, clock, leads) = leading(&kept, Arc::new(contended)).await;
    clock.sleep(Duration::from_secs(30)).await;
    assert_eq!(kept.value()["metadata"]["labels"]["touched"], "0");
    assert_eq!(kept.condition("Ready")["status"], "False", "written in the end");
    leads.abort();
}
