//! What the operator does about NodeClasses for a provider, and what it leaves to the provider (G-015, G-021).

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use spokeshave_ports::{
    CloudProvider as _, NodeClassKind, SharedClock, Write, WriteError, WriteTarget, Writes,
};
use spokeshave_provider_grpc::{ClientOptions, GrpcProvider, NodeClasses, Server, ServerOptions, piped};

use crate::flawed::{Flaw, Flawed};
use crate::shed::{Shed, claim, clock, options};

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
async fn operator(held: &Held, flaw: Flaw) -> (GrpcProvider, SharedClock, Flawed) {
    let clock = clock();
    let server = Server::new(Shed::new(clock.clone()), clock.clone(), ServerOptions::default());
    let provider = Flawed::new(server, flaw, clock.clone());
    let options = ClientOptions {
        node_classes: Some(Arc::new(held.clone())),
        ..options(Arc::new(piped(provider.clone())))
    };
    let operator = GrpcProvider::connect(options, clock.clone()).await;
    (operator.expect("a connection"), clock, provider)
}

async fn after_a_minute_of_leading(status: Value, flaw: Flaw) -> Held {
    let held = Held::new(status);
    let (operator, clock, _) = operator(&held, flaw).await;
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
        let (operator, ..) = operator(&held, flaw).await;
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
    let (operator, ..) = operator(&held, Flaw::Plain).await;
    let launched = operator.create(&claim("one")).await.expect("launched");
    let unchanged = operator.is_drifted(&launched, Some(&held.object())).await;
    assert_eq!(unchanged, Ok(None));
}

/// What is written of NodeClaims.
#[derive(Debug, Default)]
struct Noted(Mutex<Vec<Write>>);

impl Writes for Noted {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Value, WriteError>> {
        self.0.lock().expect("no panic").push(write);
        Box::pin(std::future::ready(Ok(Value::Null)))
    }
}

/// A provider that names other dynamic fields than at the launch drifts nothing by it, and NodeClaims are stamped anew, by the leader only.
#[tokio::test(start_paused = true)]
async fn g_015_dynamic_fields_that_come_or_go_drift_nothing() {
    let held = Held::new(json!({}));
    for (then, now) in [(vec![], vec!["/disk"]), (vec!["/disk"], vec![])] {
        let (operator, clock, provider) = operator(&held, Flaw::Plain).await;
        let name = |fields: &[&str]| {
            let named = fields.iter().map(|one| (*one).to_owned()).collect();
            *provider.dynamic_fields.lock().expect("no panic") = named;
        };
        // A handshake is repeated every 20 seconds.
        let taken_over = std::time::Duration::from_secs(30);
        name(&then);
        clock.sleep(taken_over).await;
        let mut launched = operator.create(&claim("one")).await.expect("launched");
        name(&now);
        clock.sleep(taken_over).await;
        let class = held.object();
        let drifted = operator.is_drifted(&launched, Some(&class)).await;
        assert_eq!(drifted, Ok(None), "{then:?} {now:?}");

        let noted = Arc::new(Noted::default());
        let (leading, writes) = (operator.clone(), noted.clone());
        let leads = tokio::spawn(async move { leading.lead(writes).await });
        clock.sleep(taken_over).await;
        let ours = || {
            let all = noted.0.lock().expect("no panic");
            let of_claims = all.iter().filter(|one| one.target == WriteTarget::NodeClaim);
            of_claims.cloned().collect::<Vec<_>>()
        };
        assert_eq!(ours(), [], "nothing is written that was noted while nobody led");
        drop(operator.is_drifted(&launched, Some(&class)).await);
        clock.sleep(taken_over).await;
        let written = ours();
        assert_eq!(written.len(), 1, "{then:?} {now:?}");
        assert_eq!(
            (written[0].name.as_str(), &written[0].patch["metadata"]["uid"]),
            ("one", &json!("uid-of-one"))
        );
        let annotations = written[0].patch["metadata"]["annotations"].as_object();
        let annotations = annotations.expect("annotations").iter();
        let annotations =
            annotations.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()));
        launched
            .metadata
            .annotations
            .get_or_insert_default()
            .extend(annotations);

        // From then on the fields of now count.
        let mut changed = class.clone();
        changed.data["spec"]["disk"] = json!(2);
        let expected = now.is_empty().then(|| "NodeClassDrift".to_owned());
        let drifted = operator.is_drifted(&launched, Some(&changed)).await;
        assert_eq!(drifted, Ok(expected), "{then:?} {now:?}");
        assert_eq!(operator.is_drifted(&launched, Some(&class)).await, Ok(None));
        clock.sleep(taken_over).await;
        assert_eq!(ours().len(), 1, "it is stamped once");
        leads.abort();
    }
}
