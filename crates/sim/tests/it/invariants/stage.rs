//! A cluster without controllers, and a client that performs the operator's actions on behalf of a test, right or wrong.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams};
use serde_json::{Value, json};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{KWOKInstance, NodeClaim, NodePool};
use spokeshave_cluster::Options;
use spokeshave_runtime::Api;
use spokeshave_sim::invariants::Actor;
use spokeshave_sim::lab::{Lab, LabOptions};

use crate::words::{Objects as _, Scene};

/// A cluster without controllers.
pub struct Stage {
    pub lab: Lab,
}

impl Stage {
    pub async fn new() -> Self {
        let mut options = LabOptions::new(1);
        options.cluster = Options {
            scheduler: false,
            kubelets: false,
            workloads: false,
            node_lifecycle: false,
            disruption_budgets: false,
            volumes: false,
            ..Options::all()
        };
        Self {
            lab: Lab::new(options).await,
        }
    }

    pub fn operator(&self) -> Client {
        self.lab.client_as(Actor::Operator("a".to_owned()))
    }

    /// Promises are broken here: whether they are kept is asked when it should be known.
    pub async fn pass(&self, seconds: u64) {
        self.lab.clock.sleep(Duration::from_secs(seconds)).await;
    }

    pub async fn pool(&self, name: &str, spec: Value) {
        let mut whole = json!({"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}, "requirements": [],
        }}, "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}});
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let pool = json!({"metadata": {"name": name}, "spec": whole});
        self.create::<NodePool>(pool).await;
    }

    /// A NodeClaim of pool `p` with these conditions and an instance of so many CPUs.
    pub async fn claim(&self, name: &str, conditions: &[&str], cpu: &str) -> NodeClaim {
        self.claim_with(name, conditions, cpu, json!({})).await
    }

    /// As `claim`, launched for a command.
    pub async fn replacement(&self, name: &str, command: &str, cpu: &str) -> NodeClaim {
        self.claim_with(name, LIVE, cpu, launched_for(command)).await
    }

    /// As `claim`, changed by a merge patch.
    pub async fn claim_with(&self, name: &str, conditions: &[&str], cpu: &str, change: Value) -> NodeClaim {
        let mut claim = json!({
            "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "p"}, "finalizers": ["karpenter.sh/termination"]},
            "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}, "requirements": []},
        });
        json_patch::merge(&mut claim, &change);
        let claim = self.create::<NodeClaim>(claim).await;
        self.instance(name, &claim, cpu).await;
        self.is_at(name, conditions, &format!("kwok://{name}")).await
    }

    /// Writes down how far a NodeClaim is, and which machine it has.
    pub async fn is_at(&self, name: &str, conditions: &[&str], provider_id: &str) -> NodeClaim {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|kind| self.condition(kind, "True", kind))
            .collect();
        let status = json!({"providerID": provider_id, "conditions": conditions});
        self.patch_status(name, status).await
    }

    pub fn condition(&self, kind: &str, status: &str, reason: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": reason, "lastTransitionTime": self.lab.clock.now().to_string()})
    }

    pub async fn instance(&self, name: &str, claim: &NodeClaim, cpu: &str) {
        let instance = json!({"metadata": {"name": name}, "spec": {
            "nodeClaimName": claim.name(), "nodeClaimUID": claim.uid(), "nodePool": "p", "instanceType": "t", "zone": "z", "capacityType": "spot",
            "price": "0.1", "nodeName": name, "capacity": {"cpu": cpu},
        }});
        self.create::<KWOKInstance>(instance).await;
    }

    /// A ready, initialised node on the instance of the same name.
    pub async fn node(&self, name: &str, annotations: Value) {
        self.node_at(name, annotations, &format!("kwok://{name}")).await;
    }

    /// The same on another machine.
    pub async fn node_at(&self, name: &str, annotations: Value, provider_id: &str) {
        let node = json!({
            "metadata": {"name": name, "annotations": annotations, "finalizers": ["karpenter.sh/termination"], "labels": {
                "karpenter.sh/nodepool": "p", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
            }},
            "spec": {"providerID": provider_id},
        });
        self.create::<Node>(node).await;
        let status = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]});
        self.patch_status::<Node>(name, status).await;
        // A new Node has the not-ready taint, and no controller here removes it.
        self.patch::<Node>(name, json!({"spec": {"taints": null}})).await;
    }

    /// A NodeClaim and its node, as they are once it has joined.
    pub async fn live_node(&self, name: &str) {
        self.claim(name, LIVE, "4").await;
        self.node(name, json!({})).await;
    }

    /// A pod that runs on a node and is ready.
    pub async fn pod(&self, name: &str, node: &str, more: Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": name, "labels": {"app": "w"}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
        });
        json_patch::merge(&mut pod, &more);
        self.create::<Pod>(pod).await;
        let phase = if node.is_empty() { "Pending" } else { "Running" };
        let status = json!({"phase": phase, "startTime": self.lab.clock.now().to_string(), "conditions": [
            {"type": "Ready", "status": if node.is_empty() { "False" } else { "True" }},
        ]});
        self.patch_status(name, status).await
    }

    /// A DaemonSet, as an owner.
    pub async fn daemon_set(&self) -> Value {
        let object = json!({"metadata": {"name": "d"}, "spec": workload()});
        let set = self.create::<DaemonSet>(object).await;
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": set.metadata.uid, "controller": true})
    }

    /// The ReplicaSet of Deployment `w`, which is to have so many pods, as an owner.
    pub async fn replica_set(&self, replicas: i32) -> Value {
        let mut object = json!({"metadata": {"name": "w"}, "spec": workload()});
        object["spec"]["replicas"] = json!(replicas);
        let deployment = self.create::<Deployment>(object.clone()).await;
        let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "w", "uid": deployment.metadata.uid, "controller": true});
        object["metadata"] = json!({"name": "w-1", "ownerReferences": [owner]});
        let set = self.create::<ReplicaSet>(object).await;
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w-1", "uid": set.metadata.uid, "controller": true})
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.operator())
    }

    /// As the operator does.
    pub async fn evict(&self, pod: &str) {
        self.pods().evict(pod, &EvictParams::default()).await.unwrap();
    }

    pub async fn as_operator<K>(&self, name: &str, patch: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.operator());
        let patch = Patch::Merge(patch);
        if patch_is_status(&patch) {
            api.patch_status(name, &PatchParams::default(), &patch)
                .await
                .unwrap();
        } else {
            api.patch(name, &PatchParams::default(), &patch).await.unwrap();
        }
    }

    pub async fn taint(&self, node: &str) {
        let taint = json!({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}});
        self.as_operator::<Node>(node, taint).await;
    }

    pub async fn disrupt(&self, claim: &str, reason: &str) {
        let known: NodeClaim = self.get(claim).await;
        let mut conditions = json!(known.status.unwrap_or_default().conditions);
        let disruption = self.condition("DisruptionReason", "True", reason);
        conditions.as_array_mut().unwrap().push(disruption);
        self.as_operator::<NodeClaim>(claim, json!({"status": {"conditions": conditions}}))
            .await;
    }

    /// A decision about one NodeClaim, written down.
    pub async fn command(&self, name: &str, claim: &str, reason: &str) {
        self.command_of(name, &[claim], reason).await;
    }

    /// The same about several that go together.
    pub async fn command_of(&self, name: &str, claims: &[&str], reason: &str) {
        let method = if reason == "Empty" {
            "Emptiness"
        } else {
            "SingleNodeConsolidation"
        };
        self.command_by(method, name, claims, reason).await;
    }

    /// The same by another method.
    pub async fn command_by(&self, method: &str, name: &str, claims: &[&str], reason: &str) {
        let mut nodes = Vec::new();
        for claim in claims {
            let known = self.get::<NodeClaim>(claim).await;
            let (uid, machine) = (known.uid(), known.provider_id().unwrap_or_default());
            nodes.push(json!({"name": claim, "nodeClaim": claim, "nodeClaimUID": uid, "providerID": machine, "nodePool": "p", "price": "0.1", "pods": 0}));
        }
        let object = json!({"metadata": {"name": name}, "spec": {
            "method": method, "reason": reason, "decision": "Delete",
            "decidedAt": self.lab.clock.now().to_string(), "priceBefore": "0.1", "priceAfter": "0", "savings": "0.1", "evictions": 0,
            "nodeSummary": claims.join(","), "replacementSummary": "-", "nodes": nodes,
        }});
        self.create::<Disruption>(object).await;
    }

    pub async fn delete_claim(&self, name: &str) {
        let api: Api<NodeClaim> = Api::all(self.operator());
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// The machines as the operator's provider reaches them.
    pub fn machines(&self) -> Api<KWOKInstance> {
        Api::all(self.lab.client_as(Actor::CloudCalls("a".to_owned())))
    }

    /// As the operator's provider begins to end a machine.
    pub async fn end_instance(&self, name: &str) {
        let started =
            json!({"status": {"phase": "Terminating", "terminationStarted": "2026-01-01T00:00:00.000000Z"}});
        self.machines()
            .patch_status(name, &PatchParams::default(), &Patch::Merge(started))
            .await
            .unwrap();
    }

    pub fn broken(&self) -> Vec<u8> {
        let mut numbers: Vec<u8> = self
            .lab
            .invariants
            .violations()
            .iter()
            .map(|one| one.invariant)
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    pub fn assert_silent(&self) {
        self.lab.invariants.assert_kept();
    }

    pub fn assert_broken(&self, invariant: u8, object: &str) {
        let found = self.lab.invariants.violations();
        assert!(
            found
                .iter()
                .any(|one| one.invariant == invariant && one.object.contains(object)),
            "invariant {invariant} about {object:?} is not among {found:?}"
        );
        assert_eq!(self.broken(), [invariant], "{found:?}");
    }
}

impl Scene for Stage {
    fn lab(&self) -> &Lab {
        &self.lab
    }
}

fn patch_is_status(patch: &Patch<Value>) -> bool {
    matches!(patch, Patch::Merge(value) if value.get("status").is_some())
}

/// The spec of a workload of the stage's pods.
fn workload() -> Value {
    json!({"selector": {"matchLabels": {"app": "w"}}, "template": {
        "metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    }})
}

/// A pod that asks for so many CPUs.
pub fn asking(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

/// What says that a NodeClaim has come for a command.
pub fn launched_for(command: &str) -> Value {
    json!({"metadata": {"annotations": {"spokeshave.dev/disruption": command}}})
}

pub const LIVE: &[&str] = &["Launched", "Registered", "Initialized"];

pub async fn with_node() -> Stage {
    let stage = Stage::new().await;
    stage.pool("p", json!({})).await;
    stage.live_node("n").await;
    stage
}
