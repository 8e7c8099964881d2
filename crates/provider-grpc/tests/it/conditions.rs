//! Conditions of Nodes that a provider names in its handshake, on an API server (G-018).

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{CloudProvider as _, Interruption, NoWrites};
use spokeshave_provider_grpc::{
    ClientOptions, ConnectError, DuplexConnector, GrpcProvider, KubeNodes, Server, ServerOptions, wire,
};

use crate::shed::{Shed, clock};

fn preempted() -> wire::ConditionRule {
    wire::ConditionRule {
        condition: "PreemptionScheduled".into(),
        status: "True".into(),
        reason: String::new(),
        kind: wire::InterruptionKind::Spot.into(),
        deadline_regex: r"Scheduled: (.* GMT)".into(),
    }
}

struct OnCluster {
    nodes: Api<Node>,
    shed: Arc<Shed>,
    provider: Result<GrpcProvider, ConnectError>,
    clock: spokeshave_ports::SharedClock,
}

impl OnCluster {
    /// A provider with these rules, and a cluster with a Node.
    async fn new(rules: Vec<wire::ConditionRule>) -> Self {
        let clock = clock();
        let source = clock.clone();
        let api_server = ApiServer::new(Config::new(Arc::new(move || source.now()), 1));
        let client = kube::Client::new(api_server.service(), "default");
        let nodes: Api<Node> = Api::all(client.clone());
        let node = json!({"metadata": {"name": "a"}, "spec": {"providerID": "shed://1"}});
        let node = serde_json::from_value(node).expect("a Node");
        nodes.create(&PostParams::default(), &node).await.expect("made");
        let shed = Shed::new(clock.clone());
        let options = ServerOptions {
            interruption_conditions: rules,
            ..ServerOptions::default()
        };
        let server = Server::new(shed.clone(), clock.clone(), options);
        let (connector, mut arriving) = DuplexConnector::new();
        tokio::spawn(async move {
            while let Some(stream) = arriving.recv().await {
                let server = server.clone();
                tokio::spawn(async move { server.serve(stream).await });
            }
        });
        let options = ClientOptions {
            connector: Arc::new(connector),
            cluster_name: "a".into(),
            cluster_uid: "uid".into(),
            kubernetes_version: String::new(),
            node_classes: None,
            nodes: Some(KubeNodes(client)),
        };
        let provider = GrpcProvider::connect(options, clock.clone()).await;
        OnCluster {
            nodes,
            shed,
            provider,
            clock,
        }
    }

    async fn set(&self, conditions: Value) {
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        let patched = self
            .nodes
            .patch_status("a", &PatchParams::default(), &patch)
            .await;
        patched.expect("patched");
    }
}

fn condition(status: &str, message: &str) -> Value {
    json!({"type": "PreemptionScheduled", "status": status, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

#[tokio::test(start_paused = true)]
async fn g_018_a_condition_that_a_provider_names_is_an_interruption_beside_its_events() {
    let cluster = OnCluster::new(vec![preempted()]).await;
    let provider = cluster.provider.as_ref().expect("connected").clone();
    let leading = provider.clone();
    let leader = tokio::spawn(async move { leading.lead(Arc::new(NoWrites)).await });
    let mut messages = provider.interruptions().expect("messages");
    let scheduled = "Preempt Scheduled: Thu, 01 Jan 2026 00:01:00 GMT. EventId: 7";
    cluster.set(json!([condition("False", scheduled)])).await;
    cluster.clock.sleep(Duration::from_secs(5)).await;
    cluster
        .shed
        .messages
        .lock()
        .expect("no panic")
        .push(Interruption {
            id: "own".to_owned(),
            provider_id: "shed://1".to_owned(),
            kind: Ok(InterruptionKind::RebalanceRecommendation),
            sent_at: None,
            ends_at: None,
        });
    let own = messages.next().await.expect("the provider's own event");
    assert_eq!(own.kind, Ok(InterruptionKind::RebalanceRecommendation));
    provider.acknowledge(&own).await.expect("acknowledged");
    assert!(cluster.shed.messages.lock().expect("no panic").is_empty());

    cluster.set(json!([condition("True", scheduled)])).await;
    let told = messages.next().await.expect("what the Node tells");
    assert_eq!(told.kind, Ok(InterruptionKind::SpotInterrupted));
    assert_eq!(told.provider_id, "shed://1");
    assert_eq!(
        told.ends_at,
        Some("2026-01-01T00:01:00Z".parse().expect("a time"))
    );
    // It comes again until it is acknowledged, and then no more as long as the condition stands.
    let again = messages.next().await.expect("once more");
    assert_eq!(again, told);
    provider.acknowledge(&told).await.expect("acknowledged");
    let silence = tokio::time::timeout(Duration::from_secs(300), messages.next()).await;
    assert!(silence.is_err(), "{silence:?}");
    leader.abort();
}

#[tokio::test(start_paused = true)]
async fn g_018_a_rule_that_cannot_be_followed_is_refused_at_the_start() {
    let rule = wire::ConditionRule {
        status: "Maybe".into(),
        ..preempted()
    };
    let refused = OnCluster::new(vec![rule])
        .await
        .provider
        .expect_err("refused")
        .to_string();
    assert!(
        refused.contains("interruption_conditions: \"PreemptionScheduled\": status \"Maybe\""),
        "{refused}"
    );
}
