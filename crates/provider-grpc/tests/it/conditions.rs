//! Conditions of Nodes that a provider names in its handshake, on an API server (G-018).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{CloudProvider as _, Interruption, NoWrites};
use spokeshave_provider_grpc::{
    ClientOptions, DuplexConnector, GrpcProvider, KubeNodes, Server, ServerOptions, wire,
};
use tokio::task::JoinHandle;
use tower::BoxError;

use crate::shed::{Shed, clock, options};

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
    provider: GrpcProvider,
    clock: spokeshave_ports::SharedClock,
    /// What the next connection is told.
    rules: Arc<Mutex<Vec<wire::ConditionRule>>>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
    /// The API server answers none of the provider's requests.
    is_out: Arc<AtomicBool>,
}

/// A client whose API server can be out of reach.
fn interruptible(client: kube::Client, is_out: Arc<AtomicBool>) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, is_out) = (client.clone(), is_out.load(Ordering::Relaxed));
        async move {
            if is_out {
                return Err(BoxError::from("out of reach"));
            }
            client.send(request).await.map_err(BoxError::from)
        }
    });
    kube::Client::new(service, "default")
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
        let rules = Arc::new(Mutex::new(rules));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (connector, mut arriving) = DuplexConnector::new();
        let (now, accepted, cloud, time) = (rules.clone(), connections.clone(), shed.clone(), clock.clone());
        tokio::spawn(async move {
            while let Some(stream) = arriving.recv().await {
                let options = ServerOptions {
                    interruption_conditions: now.lock().expect("no panic").clone(),
                    ..ServerOptions::default()
                };
                let server = Server::new(cloud.clone(), time.clone(), options);
                let task = tokio::spawn(async move { drop(server.serve(stream).await) });
                accepted.lock().expect("no panic").push(task);
            }
        });
        let is_out = Arc::new(AtomicBool::new(false));
        let options = ClientOptions {
            nodes: Some(KubeNodes::new(interruptible(client, is_out.clone()))),
            ..options(Arc::new(connector))
        };
        let provider = GrpcProvider::connect(options, clock.clone()).await;
        OnCluster {
            nodes,
            shed,
            provider: provider.expect("connected"),
            clock,
            rules,
            connections,
            is_out,
        }
    }

    /// The provider starts again and has these rules.
    async fn restart_with(&self, rules: Vec<wire::ConditionRule>) {
        *self.rules.lock().expect("no panic") = rules;
        let connections = std::mem::take(&mut *self.connections.lock().expect("no panic"));
        connections.iter().for_each(JoinHandle::abort);
        self.clock.sleep(Duration::from_secs(5)).await;
        assert!(self.provider.is_connected());
    }

    fn lead(&self) -> JoinHandle<()> {
        let leading = self.provider.clone();
        tokio::spawn(async move { leading.lead(Arc::new(NoWrites)).await })
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
    let provider = cluster.provider.clone();
    let leader = cluster.lead();
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
async fn g_018_a_rule_that_cannot_be_followed_is_named_and_harms_no_other() {
    let rule = wire::ConditionRule {
        status: "Maybe".into(),
        ..preempted()
    };
    let cluster = OnCluster::new(vec![rule, preempted()]).await;
    let rejected = cluster.provider.rejected_rules();
    assert_eq!(rejected.len(), 1, "{rejected:?}");
    assert!(
        rejected[0].contains("interruption_conditions: \"PreemptionScheduled\": status \"Maybe\""),
        "{rejected:?}"
    );
    let leader = cluster.lead();
    cluster.set(json!([condition("True", "")])).await;
    let mut messages = cluster.provider.interruptions().expect("messages");
    let told = messages.next().await.expect("what the good rule tells");
    assert_eq!(told.kind, Ok(InterruptionKind::SpotInterrupted));
    leader.abort();
}

/// Rules of a provider that has been replaced by another version count from its next handshake on, without a restart of the operator.
#[tokio::test(start_paused = true)]
async fn g_018_g_019_rules_that_change_are_taken_over() {
    let cluster = OnCluster::new(Vec::new()).await;
    let leader = cluster.lead();
    let mut messages = cluster.provider.interruptions().expect("messages");
    cluster.set(json!([condition("True", "")])).await;
    let silence = tokio::time::timeout(Duration::from_secs(60), messages.next()).await;
    assert!(silence.is_err(), "no rule yet: {silence:?}");
    cluster.restart_with(vec![preempted()]).await;
    let told = messages.next().await.expect("by the new rule");
    assert_eq!(told.kind, Ok(InterruptionKind::SpotInterrupted));
    cluster.provider.acknowledge(&told).await.expect("acknowledged");
    let other = wire::ConditionRule {
        kind: wire::InterruptionKind::Maintenance.into(),
        reason: "Repair".into(),
        ..preempted()
    };
    cluster.restart_with(vec![other]).await;
    let mut repair = condition("True", "");
    repair["reason"] = json!("Repair");
    repair["lastTransitionTime"] = json!("2026-01-01T01:00:00Z");
    cluster.set(json!([repair])).await;
    let told = messages.next().await.expect("by the last rule");
    assert_eq!(told.kind, Ok(InterruptionKind::ScheduledChange));
    leader.abort();
}

/// Whoever serves the metrics counts them together with those of all other watches, also over the end of a term.
#[tokio::test(start_paused = true)]
async fn watches_of_nodes_that_fail_are_counted() {
    let cluster = OnCluster::new(vec![preempted()]).await;
    cluster.is_out.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        let leader = cluster.lead();
        // Lists fail at 0, 1, 3 and 7 seconds.
        cluster.clock.sleep(Duration::from_secs(10)).await;
        leader.abort();
    }
    let counted = cluster.provider.watch_failures().expect("it watches").take();
    assert_eq!(counted.get("Node"), Some(&8), "{counted:?}");
}
