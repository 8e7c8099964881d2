//! How many series of metrics a thousand nodes make, and that what is gone takes its own along (P §16, invariant 41).
//!
//! Tests only: the stores are filled by hand, so that it costs no simulation.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use spokeshave_api::{NodeClaim, NodePool, labels};
use spokeshave_model::InstanceType;
use spokeshave_ports::{
    CloudError, CloudFuture, CloudProvider, Entropy, NodeClassKind, RepairPolicy, SharedClock, TokioClock,
};
use spokeshave_runtime::{ObjectKey, client};

use crate::operator::{Operator, Parts};
use crate::shared::Shared;
use crate::{DecisionLog, Options};

const NODES: usize = 1_000;
const PODS_PER_NODE: usize = 3;
const POOLS: usize = 3;
const ZONES: [&str; 4] = ["a", "b", "c", "d"];
const CAPACITY: [&str; 2] = ["spot", "on-demand"];
const REASONS: [&str; 4] = ["drifted", "empty", "underutilized", "expired"];

/// A cloud that is never asked.
#[derive(Debug)]
struct NoCloud {
    kinds: [NodeClassKind; 1],
}

fn never<'a, T: Send + 'a>() -> CloudFuture<'a, T> {
    Box::pin(async { Err(CloudError::Other("nobody should ask".to_owned())) })
}

impl CloudProvider for NoCloud {
    fn name(&self) -> &str {
        "none"
    }
    fn supported_node_classes(&self) -> &[NodeClassKind] {
        &self.kinds
    }
    fn create<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        never()
    }
    fn delete<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, ()> {
        never()
    }
    fn get<'a>(&'a self, _: &'a str) -> CloudFuture<'a, NodeClaim> {
        never()
    }
    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        never()
    }
    fn instance_types<'a>(&'a self, _: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        never()
    }
    fn is_drifted<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        never()
    }
    fn repair_policies(&self) -> &[RepairPolicy] {
        &[]
    }
}

/// A cluster that only the stores know.
struct Filled {
    shared: Arc<Shared>,
    metrics: spokeshave_runtime::Metrics,
    version: u64,
    _parts: Parts,
}

fn object<K: spokeshave_runtime::Object>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn conditions(types: &[&str], status: &str) -> Value {
    let one = |type_: &&str| json!({"type": type_, "status": status, "reason": type_, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1});
    types.iter().map(one).collect()
}

impl Filled {
    fn new(object_metrics: bool) -> Self {
        let epoch: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let clock: SharedClock = TokioClock::new(epoch, 1.0).shared();
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = client::from_config(nowhere, &client::ClientOptions::default(), clock.clone()).unwrap();
        let kinds = [NodeClassKind {
            group: "karpenter.kwok.sh".to_owned(),
            version: "v1alpha1".to_owned(),
            kind: "KWOKNodeClass".to_owned(),
            plural: "kwoknodeclasses".to_owned(),
        }];
        let options = Options {
            object_metrics,
            ..Options::default()
        };
        let provider = Arc::new(NoCloud { kinds });
        let operator = Operator::new(client.clone(), provider, clock, Entropy::new(1), options)
            .with_decisions(DecisionLog::default());
        let metrics = operator.metrics().clone();
        let (recorder, _) = operator.event_recorder(&client);
        let shared = operator.share(&client, recorder);
        let parts = operator.parts(&shared);
        Self {
            shared,
            metrics,
            version: 0,
            _parts: parts,
        }
    }

    fn metadata(&mut self, name: &str, index: usize) -> Value {
        self.version += 1;
        json!({
            "name": name, "uid": format!("uid-{name}"), "resourceVersion": self.version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1,
            "labels": {
                labels::NODE_POOL: format!("pool-{}", index % POOLS), labels::ZONE: ZONES[index % ZONES.len()], labels::CAPACITY_TYPE: CAPACITY[index % CAPACITY.len()],
                labels::INSTANCE_TYPE: format!("type-{}", index % 40),
            },
        })
    }

    fn fill(&mut self) {
        for index in 0..POOLS {
            let metadata = self.metadata(&format!("pool-{index}"), index);
            let pool = json!({
                "metadata": metadata,
                "spec": {"limits": {"cpu": "1000", "memory": "1Ti"}, "template": {"spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}},
                "status": {"conditions": conditions(&["ValidationSucceeded", "NodeClassReady", "Ready"], "True")},
            });
            self.shared
                .stores
                .node_pools
                .note_written(object::<NodePool>(pool));
        }
        let own = ["Launched", "Registered", "Initialized", "Ready"];
        for index in 0..NODES {
            for status in ["Unknown", "True"] {
                let metadata = self.metadata(&format!("claim-{index}"), index);
                let claim = json!({
                    "metadata": metadata,
                    "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}},
                    "status": {"providerID": format!("cloud://{index}"), "nodeName": format!("node-{index}"), "conditions": conditions(&own, status)},
                });
                self.shared
                    .stores
                    .node_claims
                    .note_written(object::<NodeClaim>(claim));
                let metadata = self.metadata(&format!("node-{index}"), index);
                let node = json!({
                    "metadata": metadata, "spec": {"providerID": format!("cloud://{index}")},
                    "status": {"conditions": conditions(&["Ready"], status), "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
                });
                self.shared.stores.nodes.note_written(object::<Node>(node));
            }
            for pod in 0..PODS_PER_NODE {
                for phase in ["Pending", "Running"] {
                    let mut metadata = self.metadata(&format!("pod-{index}-{pod}"), index);
                    metadata["namespace"] = json!("default");
                    let pod = json!({
                        "metadata": metadata, "spec": {"nodeName": format!("node-{index}"), "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
                        "status": {"phase": phase, "conditions": conditions(&["PodScheduled", "Ready"], "True")},
                    });
                    self.shared.stores.pods.note_written(object::<Pod>(pod));
                }
            }
        }
    }

    /// Every NodeClaim has been through everything that is counted with its labels.
    async fn live(&self) {
        let families = &self.shared.families;
        for claim in self.shared.stores.node_claims.snapshot() {
            let label = |key: &str| claim.label(key).unwrap_or_default();
            let (pool, zone, capacity) = (
                label(labels::NODE_POOL),
                label(labels::ZONE),
                label(labels::CAPACITY_TYPE),
            );
            families.claims_created.inc(&["provisioned", pool, "false"]);
            families.nodes_created.inc(&[pool, zone]);
            families.nodes_terminated.inc(&[pool, zone]);
            families.claims_terminated.inc(&[pool, capacity, zone]);
            families.nodes_drained.inc(&[pool]);
            families.nodes_lifetime.observe(&[pool], 1.0);
            families.nodes_termination_duration.observe(&[pool], 1.0);
            families.claims_termination_duration.observe(&[pool], 1.0);
            families.instance_termination_duration.observe(&[pool], 1.0);
            self.shared.note_price(&claim).await;
            for reason in REASONS {
                self.shared.count_disrupted(&claim, reason);
                self.shared.count_initiated(&claim, reason);
                families.allowed_disruptions.set(&[pool, reason], 1.0);
                families.consuming_budgets.set(&[pool, reason], 1.0);
            }
        }
    }

    fn empty(&self) {
        let stores = &self.shared.stores;
        for pod in stores.pods.snapshot() {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            stores.pods.note_gone(&ObjectKey::of(&*pod), &uid);
        }
        for node in stores.nodes.snapshot() {
            let uid = node.metadata.uid.clone().unwrap_or_default();
            stores.nodes.note_gone(&ObjectKey::of(&*node), &uid);
        }
        for claim in stores.node_claims.snapshot() {
            self.shared.forget_price(&claim);
            stores.node_claims.note_gone(&ObjectKey::of(&*claim), claim.uid());
        }
    }

    /// Series, and the text in which they are read.
    fn scraped(&self) -> (usize, String) {
        let text = self.metrics.render();
        (self.metrics.series_count(), text)
    }
}

#[tokio::test(start_paused = true)]
async fn p_16_a_thousand_nodes_make_at_most_500_series() {
    let mut cluster = Filled::new(false);
    cluster.fill();
    cluster.live().await;
    let (series, text) = cluster.scraped();
    assert!(series <= 500, "{series} series:\n{text}");
    assert!(
        series > 100,
        "{series} series: most of what is counted is missing"
    );
    for one in ["claim-17", "node-17", "pod-17"] {
        assert!(!text.contains(one), "a series names {one}");
    }
}

#[tokio::test(start_paused = true)]
async fn p_16_gone_objects_take_their_series_along() {
    let mut cluster = Filled::new(true);
    let (before, _) = cluster.scraped();
    cluster.fill();
    cluster.live().await;
    let (full, text) = cluster.scraped();
    assert!(
        full > NODES * (1 + PODS_PER_NODE),
        "{full} series with one per object"
    );
    for one in ["claim-17", "node-17", "pod-17-0"] {
        assert!(text.contains(one), "no series names {one}");
    }
    cluster.empty();
    let (after, text) = cluster.scraped();
    for one in ["claim-", "node-1", "pod-1"] {
        assert!(
            !text.contains(&format!("\"{one}")),
            "a series names {one}…, which is gone:\n{text}"
        );
    }
    assert!(after <= before + 500, "{before} series before, {after} after");
}
