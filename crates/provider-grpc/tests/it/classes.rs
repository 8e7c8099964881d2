//! What the operator does about NodeClasses for a provider, and what it leaves to the provider (G-015, G-021).

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use spokeshave_ports::{
    CloudProvider as _, NodeClassKind, SharedClock, Write, WriteError, WriteTarget, Writes,
};
use spokeshave_provider_grpc::{
    ClientOptions, DuplexConnector, GrpcProvider, NodeClasses, Server, ServerOptions, serve_connection,
};

use crate::flawed::{Flaw, Flawed};
use crate::shed::{Shed, claim, clock};

/// The one NodeClass of a cluster.
#[derive(Clone, Debug)]
struct Held(Arc<Mutex<DynamicObject>>);

impl Held {
    fn new(status: Value) -> Self {
        let object = json!({
            "apiVersion": "shed.example/v1", "kind": "ShedClass", "metadata": {"name": "default", "uid": "u", "generation": 1},
            "spec": {"disk": 1}, "status": status,
        });
        Held(Arc::new(Mutex::new(
            serde_json::from_value(object).expect("a class"),
        )))
    }

    fn object(&self) -> DynamicObject {
        self.0.lock().expect("no panic").clone()
    }

    fn ready(&self) -> Value {
        let conditions = &self.object().data["status"]["conditions"];
        let ready = conditions
            .as_array()
            .into_iter()
            .flatten()
            .find(|one| one["type"] == "Ready");
        ready.map_or(Value::Null, |one| one["status"].clone())
    }
}

impl NodeClasses for Held {
    fn list<'a>(&'a self, _: &'a NodeClassKind) -> BoxFuture<'a, Result<Vec<DynamicObject>, String>> {
        Box::pin(async { Ok(vec![self.object()]) })
    }

    fn get<'a>(
        &'a self,
        _: &'a NodeClassKind,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<DynamicObject>, String>> {
        Box::pin(async { Ok(Some(self.object())) })
    }
}

impl Writes for Held {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Value, WriteError>> {
        assert!(matches!(write.target, WriteTarget::NodeClassStatus(_)), "{write}");
        self.0.lock().expect("no panic").data["status"] = write.patch["status"].clone();
        Box::pin(std::future::ready(Ok(Value::Null)))
    }
}

/// An operator with this class, and the provider `shed` behind our server.
async fn operator(held: &Held, flaw: Flaw) -> (GrpcProvider, SharedClock) {
    let clock = clock();
    let server = Server::new(Shed::new(clock.clone()), clock.clone(), ServerOptions::default());
    let provider = Flawed::new(server, flaw, clock.clone());
    let (connector, mut arriving) = DuplexConnector::new();
    tokio::spawn(async move {
        while let Some(stream) = arriving.recv().await {
            tokio::spawn(serve_connection(provider.clone(), stream));
        }
    });
    let options = ClientOptions {
        connector: Arc::new(connector),
        cluster_name: "a".into(),
        cluster_uid: "uid".into(),
        kubernetes_version: String::new(),
        node_classes: Some(Arc::new(held.clone())),
        nodes: None,
    };
    let operator = GrpcProvider::connect(options, clock.clone()).await;
    (operator.expect("a connection"), clock)
}

async fn after_a_minute_of_leading(status: Value, flaw: Flaw) -> Held {
    let held = Held::new(status);
    let (operator, clock) = operator(&held, flaw).await;
    let writes = Arc::new(held.clone());
    tokio::select! {
        () = operator.lead(writes) => unreachable!("it never ends"),
        () = clock.sleep(std::time::Duration::from_secs(60)) => held,
    }
}

#[tokio::test(start_paused = true)]
async fn g_021_a_status_that_the_provider_behind_the_server_writes_is_its_own() {
    for status in [
        json!({}),
        json!({"conditions": [{"type": "Ready", "status": "False", "reason": "NoImage"}]}),
    ] {
        let held = after_a_minute_of_leading(status.clone(), Flaw::None).await;
        assert_eq!(held.object().data["status"], status, "nothing was written");
    }
}

#[tokio::test(start_paused = true)]
async fn g_021_a_class_that_nobody_judges_is_ready_and_no_other_is_overridden() {
    let held = after_a_minute_of_leading(json!({}), Flaw::Plain).await;
    assert_eq!(held.ready(), "True");
    for status in [
        json!({"conditions": [{"type": "Ready", "status": "False", "reason": "NoImage", "observedGeneration": 1}]}),
        json!({"conditions": [{"type": "NetReady", "status": "False"}]}),
    ] {
        let held = after_a_minute_of_leading(status.clone(), Flaw::Plain).await;
        assert_eq!(
            held.object().data["status"],
            status,
            "somebody else has written it"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn g_015_the_provider_decides_about_drift_and_where_it_does_not_the_spec_does() {
    for (flaw, changed) in [
        (Flaw::None, None),
        (Flaw::AlwaysDrifted, Some("Always")),
        (Flaw::Plain, Some("NodeClassDrift")),
    ] {
        let held = Held::new(json!({}));
        let (operator, _clock) = operator(&held, flaw).await;
        let launched = operator.create(&claim("one")).await.expect("launched");
        let mut class = held.object();
        class.data["spec"]["disk"] = json!(2);
        let drifted = operator
            .is_drifted(&launched, Some(&class))
            .await
            .expect("an answer");
        assert_eq!(drifted.as_deref(), changed, "{flaw:?}");
    }
    let held = Held::new(json!({}));
    let (operator, _clock) = operator(&held, Flaw::Plain).await;
    let launched = operator.create(&claim("one")).await.expect("launched");
    let unchanged = operator.is_drifted(&launched, Some(&held.object())).await;
    assert_eq!(unchanged, Ok(None));
}
