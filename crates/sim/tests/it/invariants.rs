//! The checkers checked: an actor that does it right keeps them silent, and one that is wrong on purpose trips the right one.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::{Eviction, PodDisruptionBudget};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use kube::Client;
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{KWOKInstance, NodeClaim, NodePool};
use spokeshave_runtime::Api;
use spokeshave_sim::Options;
use spokeshave_sim::invariants::Actor;
use spokeshave_sim::lab::{Lab, LabOptions};

use crate::words::{Objects as _, Scene};

/// A cluster in which nothing moves by itself.
struct Stage {
    lab: Lab,
}

impl Scene for Stage {
    fn lab(&self) -> &Lab {
        &self.lab
    }
}

impl Stage {
    async fn new() -> Self {
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

    fn operator(&self) -> Client {
        self.lab.client_as(Actor::Operator("a".to_owned()))
    }

    /// Promises are broken here: whether they are kept is asked when it should be known.
    async fn pass(&self, seconds: u64) {
        self.lab.clock.sleep(Duration::from_secs(seconds)).await;
    }

    async fn pool(&self, name: &str, spec: Value) {
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
    async fn claim(&self, name: &str, conditions: &[&str], cpu: &str) -> NodeClaim {
        let claim = json!({
            "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "p"}, "finalizers": ["karpenter.sh/termination"]},
            "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}, "requirements": []},
        });
        let claim = self.create::<NodeClaim>(claim).await;
        self.instance(name, &claim, cpu).await;
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|kind| self.condition(kind, "True", kind))
            .collect();
        let status = json!({"providerID": format!("kwok://{name}"), "conditions": conditions});
        self.patch_status(name, status).await
    }

    fn condition(&self, kind: &str, status: &str, reason: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": reason, "lastTransitionTime": self.lab.clock.now().to_string()})
    }

    async fn instance(&self, name: &str, claim: &NodeClaim, cpu: &str) {
        let instance = json!({"metadata": {"name": name}, "spec": {
            "nodeClaimName": claim.name(), "nodeClaimUID": claim.uid(), "nodePool": "p", "instanceType": "t", "zone": "z", "capacityType": "spot",
            "price": "0.1", "nodeName": name, "capacity": {"cpu": cpu},
        }});
        self.create::<KWOKInstance>(instance).await;
    }

    /// A ready, initialised node on the instance of the same name.
    async fn node(&self, name: &str, annotations: Value) {
        let node = json!({
            "metadata": {"name": name, "annotations": annotations, "finalizers": ["karpenter.sh/termination"], "labels": {
                "karpenter.sh/nodepool": "p", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
            }},
            "spec": {"providerID": format!("kwok://{name}")},
        });
        self.create::<Node>(node).await;
        let status = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]});
        self.patch_status::<Node>(name, status).await;
        // A new Node has the taint of one that is not ready, and nobody here takes it away.
        self.patch::<Node>(name, json!({"spec": {"taints": null}})).await;
    }

    /// A pod that runs on a node and is ready.
    async fn pod(&self, name: &str, node: &str, more: Value) -> Pod {
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
    async fn daemon_set(&self) -> Value {
        let object = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "w"}}, "template": {
            "metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        }}});
        let set = self.create::<DaemonSet>(object).await;
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": set.metadata.uid, "controller": true})
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.operator())
    }

    /// As the operator does.
    async fn evict(&self, pod: &str) {
        self.pods().evict(pod, &EvictParams::default()).await.unwrap();
    }

    async fn as_operator<K>(&self, name: &str, patch: Value)
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

    async fn taint(&self, node: &str) {
        let taint = json!({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}});
        self.as_operator::<Node>(node, taint).await;
    }

    async fn disrupt(&self, claim: &str, reason: &str) {
        let known: NodeClaim = self.get(claim).await;
        let mut conditions = json!(known.status.unwrap_or_default().conditions);
        let disruption = self.condition("DisruptionReason", "True", reason);
        conditions.as_array_mut().unwrap().push(disruption);
        self.as_operator::<NodeClaim>(claim, json!({"status": {"conditions": conditions}}))
            .await;
    }

    /// A decision about one NodeClaim, written down.
    async fn command(&self, name: &str, claim: &str, reason: &str) {
        let uid = self.get::<NodeClaim>(claim).await.metadata.uid;
        let object = json!({"metadata": {"name": name}, "spec": {
            "method": if reason == "Empty" { "Emptiness" } else { "SingleNodeConsolidation" }, "reason": reason, "decision": "Delete",
            "decidedAt": self.lab.clock.now().to_string(), "priceBefore": "0.1", "priceAfter": "0", "savings": "0.1", "evictions": 0,
            "nodeSummary": claim, "replacementSummary": "-",
            "nodes": [{"name": claim, "nodeClaim": claim, "nodeClaimUID": uid, "providerID": format!("kwok://{claim}"), "nodePool": "p", "price": "0.1", "pods": 0}],
        }});
        self.create::<Disruption>(object).await;
    }

    async fn delete_claim(&self, name: &str) {
        let api: Api<NodeClaim> = Api::all(self.operator());
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// As the operator's provider begins to end a machine.
    async fn end_instance(&self, name: &str) {
        let api: Api<KWOKInstance> = Api::all(self.lab.client_as(Actor::CloudCalls("a".to_owned())));
        let started =
            json!({"status": {"phase": "Terminating", "terminationStarted": "2026-01-01T00:00:00.000000Z"}});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(started))
            .await
            .unwrap();
    }

    fn broken(&self) -> Vec<u8> {
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

    fn assert_silent(&self) {
        self.lab.invariants.assert_kept();
    }

    fn assert_broken(&self, invariant: u8, object: &str) {
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

fn patch_is_status(patch: &Patch<Value>) -> bool {
    matches!(patch, Patch::Merge(value) if value.get("status").is_some())
}

const LIVE: &[&str] = &["Launched", "Registered", "Initialized"];

async fn with_node() -> Stage {
    let stage = Stage::new().await;
    stage.pool("p", json!({})).await;
    stage.claim("n", LIVE, "4").await;
    stage.node("n", json!({})).await;
    stage
}

#[tokio::test(start_paused = true)]
async fn invariant_1_pods_leave_through_the_eviction_api() {
    let stage = with_node().await;
    stage.pod("evicted", "n", json!({})).await;
    stage.pod("deleted", "n", json!({})).await;
    stage.pass(5).await;
    stage.evict("evicted").await;
    stage.assert_silent();
    stage
        .pods()
        .delete("deleted", &DeleteParams::default())
        .await
        .unwrap();
    stage.assert_broken(1, "default/deleted");
}

#[tokio::test(start_paused = true)]
async fn invariant_1_no_eviction_takes_more_than_the_budget_gives() {
    let stage = with_node().await;
    stage.pod("one", "n", json!({})).await;
    stage.pod("two", "n", json!({})).await;

    let budget = json!({"metadata": {"name": "w"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "w"}}}});
    stage.create::<PodDisruptionBudget>(budget).await;
    // A disruption controller that counts wrongly allows both.
    let status = json!({"disruptionsAllowed": 2, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, "observedGeneration": 1});
    stage.patch_status::<PodDisruptionBudget>("w", status).await;
    stage.pass(5).await;
    stage.evict("one").await;
    stage.assert_silent();
    stage.pass(5).await;
    stage.evict("two").await;
    stage.assert_broken(1, "default/two");
}

#[tokio::test(start_paused = true)]
async fn invariant_2_no_more_than_the_budgets_allow() {
    let stage = Stage::new().await;
    stage
        .pool(
            "p",
            json!({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]}}),
        )
        .await;
    for name in ["n", "m"] {
        stage.claim(name, LIVE, "4").await;
        stage.node(name, json!({})).await;
    }
    stage.pass(5).await;
    stage.disrupt("n", "Empty").await;
    stage.assert_silent();
    stage.disrupt("m", "Empty").await;
    stage.assert_broken(2, "nodeclaim m");
}

#[tokio::test(start_paused = true)]
async fn invariant_2_counts_in_the_order_of_the_decisions() {
    // One may go for being empty, two for being underutilized.
    let budgets = json!([{"nodes": "1", "reasons": ["Empty"]}, {"nodes": "2", "reasons": ["Underutilized"]}]);
    for overdrawn in [false, true] {
        let stage = Stage::new().await;
        let disruption = json!({"consolidateAfter": "0s", "budgets": budgets});
        stage.pool("p", json!({"disruption": disruption})).await;
        for name in ["n", "m"] {
            stage.claim(name, LIVE, "4").await;
            stage.node(name, json!({})).await;
        }
        stage.pass(5).await;
        // Whatever is decided first, the writes of the other come first.
        let (first, second) = if overdrawn {
            (("n", "Underutilized"), ("m", "Empty"))
        } else {
            (("m", "Empty"), ("n", "Underutilized"))
        };
        stage.command("first", first.0, first.1).await;
        stage.command("second", second.0, second.1).await;
        stage.disrupt(second.0, second.1).await;
        if !overdrawn {
            stage.assert_silent();
        }
        stage.disrupt(first.0, first.1).await;
        if overdrawn {
            stage.assert_broken(2, "nodeclaim m");
        } else {
            stage.assert_silent();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_6_nobody_who_said_do_not_disrupt_is_chosen() {
    let stage = with_node().await;
    stage.pass(5).await;
    stage.taint("n").await;
    stage.assert_silent();
    stage.claim("kept", LIVE, "4").await;
    stage
        .node("kept", json!({"karpenter.sh/do-not-disrupt": "true"}))
        .await;
    stage.pass(5).await;
    stage.taint("kept").await;
    stage.assert_broken(6, "node kept");
}

#[tokio::test(start_paused = true)]
async fn invariant_6_nor_one_with_a_pod_that_said_so() {
    let stage = with_node().await;
    let annotated = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "10m"}}});
    stage.pod("w", "n", annotated).await;
    stage.pass(5).await;
    stage.taint("n").await;
    stage.assert_broken(6, "node n");
}

#[tokio::test(start_paused = true)]
async fn invariant_8_pods_have_a_place_before_their_node_goes() {
    for has_place in [true, false] {
        let stage = with_node().await;
        stage.pod("w", "n", json!({})).await;
        if has_place {
            stage.claim("other", LIVE, "4").await;
            stage.node("other", json!({})).await;
        }
        stage.pass(5).await;
        stage.taint("n").await;
        stage.disrupt("n", "Underutilized").await;
        stage.delete_claim("n").await;
        if has_place {
            stage.assert_silent();
        } else {
            stage.assert_broken(8, "node n");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_10_a_command_that_is_given_up_leaves_no_taint() {
    let stage = with_node().await;
    stage.pod("w", "n", json!({})).await;
    stage.pass(5).await;
    stage.taint("n").await;
    stage.pass(30 * 60).await;
    stage.assert_silent();
    stage.pass(15 * 60).await;
    stage.assert_broken(10, "node n");
}

#[tokio::test(start_paused = true)]
async fn invariant_11_one_instance_a_claim() {
    let stage = with_node().await;
    stage.assert_silent();
    let claim: NodeClaim = stage.get("n").await;
    stage.instance("second", &claim, "4").await;
    stage.assert_broken(11, "instance second");
}

#[tokio::test(start_paused = true)]
async fn invariant_11_no_instance_is_leaked() {
    let stage = with_node().await;
    stage.pod("w", "n", json!({})).await;
    stage.remove_finalizers::<NodeClaim>("n").await;
    stage.delete::<NodeClaim>("n").await;
    stage.pass(9 * 60).await;
    stage.assert_silent();
    stage.pass(2 * 60).await;
    stage.assert_broken(11, "instance n");
}

#[tokio::test(start_paused = true)]
async fn invariant_12_an_instance_registers_in_time_or_ends() {
    let stage = Stage::new().await;
    stage.pool("p", json!({})).await;
    stage.claim("n", &["Launched"], "4").await;
    stage.pass(19 * 60).await;
    stage.assert_silent();
    stage.pass(2 * 60).await;
    stage.assert_broken(12, "instance n");
}

#[tokio::test(start_paused = true)]
async fn invariant_13_an_end_that_takes_long_says_what_it_waits_for() {
    let stage = with_node().await;
    stage.pod("w", "n", json!({})).await;
    stage.delete_claim("n").await;
    stage.pass(60).await;
    let waits = json!({"status": {"conditions": [stage.condition("Drained", "Unknown", "Draining")]}});
    stage.as_operator::<NodeClaim>("n", waits).await;
    stage.pass(30 * 60).await;
    stage.assert_silent();
    stage
        .as_operator::<NodeClaim>("n", json!({"status": {"conditions": []}}))
        .await;
    stage.pass(60).await;
    stage.assert_broken(13, "nodeclaim n");
}

#[tokio::test(start_paused = true)]
async fn invariant_13_a_drain_with_nobody_left_ends() {
    let stage = with_node().await;
    stage.delete_claim("n").await;
    let waits = json!({"status": {"conditions": [stage.condition("Drained", "Unknown", "Draining")]}});
    stage.as_operator::<NodeClaim>("n", waits).await;
    stage.pass(4 * 60).await;
    stage.assert_silent();
    stage.pass(2 * 60).await;
    stage.assert_broken(13, "nodeclaim n");
}

#[tokio::test(start_paused = true)]
async fn invariant_14_finalizers_go_after_the_instance() {
    for gone in [true, false] {
        for node_too in [true, false] {
            let stage = with_node().await;
            if gone {
                stage.delete::<KWOKInstance>("n").await;
            }
            let without = json!({"metadata": {"finalizers": null}});
            if node_too {
                stage.as_operator::<Node>("n", without).await;
            } else {
                stage.as_operator::<NodeClaim>("n", without).await;
            }
            if gone {
                stage.assert_silent();
            } else {
                stage.assert_broken(14, if node_too { "node n" } else { "nodeclaim n" });
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_15_limits_hold_for_every_launch() {
    let stage = Stage::new().await;
    stage.pool("p", json!({"limits": {"cpu": "8"}})).await;
    stage.claim("n", LIVE, "8").await;
    stage.assert_silent();
    stage.claim("m", LIVE, "1").await;
    stage.assert_broken(15, "instance m");
}

#[tokio::test(start_paused = true)]
async fn invariant_22_a_pod_that_fits_gets_a_nodeclaim() {
    let stage = Stage::new().await;
    stage.pool("p", json!({})).await;
    stage.pass(60).await;
    let fits = json!({"metadata": {"annotations": {spokeshave_sim::invariants::FITS: "yes"}}});
    stage.pod("w", "", fits).await;
    stage.pod("too-large", "", json!({})).await;
    stage.pass(4 * 60).await;
    stage.assert_silent();
    stage.pass(2 * 60).await;
    stage.assert_broken(22, "default/w");
}

#[tokio::test(start_paused = true)]
async fn invariant_29_volumes_leave_before_the_machine() {
    for detached in [true, false] {
        let stage = with_node().await;

        let attachment = json!({"metadata": {"name": "va"}, "spec": {"attacher": "x", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}});
        stage.create::<VolumeAttachment>(attachment).await;
        stage.pass(5).await;
        if detached {
            stage.delete::<VolumeAttachment>("va").await;
        }
        stage.end_instance("n").await;
        if detached {
            stage.assert_silent();
        } else {
            stage.assert_broken(29, "instance n");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_30_tiers_leave_in_order() {
    let stage = with_node().await;
    stage
        .pod(
            "ordinary",
            "n",
            json!({"spec": {"terminationGracePeriodSeconds": 600}}),
        )
        .await;
    stage
        .pod(
            "critical",
            "n",
            json!({"spec": {"priorityClassName": "system-cluster-critical"}}),
        )
        .await;
    stage.pass(5).await;
    stage.evict("ordinary").await;
    stage.assert_silent();
    stage.evict("critical").await;
    stage.assert_broken(30, "default/critical");
}

#[tokio::test(start_paused = true)]
async fn invariant_31_pods_have_their_grace() {
    let stage = with_node().await;
    stage
        .pod(
            "patient",
            "n",
            json!({"spec": {"terminationGracePeriodSeconds": 60}}),
        )
        .await;
    stage
        .pod("cut", "n", json!({"spec": {"terminationGracePeriodSeconds": 60}}))
        .await;
    stage.pass(5).await;
    let evict = async |name: &str, seconds: Option<i64>| {
        let eviction = Eviction {
            metadata: kube::core::ObjectMeta {
                name: Some(name.to_owned()),
                ..Default::default()
            },
            delete_options: Some(DeleteOptions {
                grace_period_seconds: seconds,
                ..DeleteOptions::default()
            }),
        };
        let answer = stage
            .pods()
            .create_subresource::<Eviction, Value>("eviction", name, &PostParams::default(), &eviction)
            .await;
        answer.unwrap()
    };
    evict("patient", None).await;
    stage.assert_silent();
    evict("cut", Some(5)).await;
    stage.assert_broken(31, "default/cut");
}

#[tokio::test(start_paused = true)]
async fn invariant_31_a_machine_does_not_end_under_its_pods() {
    let stage = with_node().await;
    let tolerating = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
    stage.pod("stays", "n", tolerating).await;
    stage.pass(5).await;
    stage.end_instance("n").await;
    stage.assert_silent();
    stage.claim("m", LIVE, "4").await;
    stage.node("m", json!({})).await;
    stage.pod("w", "m", json!({})).await;
    stage.pass(5).await;
    stage.end_instance("m").await;
    stage.assert_broken(31, "instance m");
}

/// Before the deadline less its grace nobody deletes a pod; after it, with what is left.
#[tokio::test(start_paused = true)]
async fn invariant_1_and_31_the_deadline_allows_deletes() {
    let stage = with_node().await;
    for name in ["late", "early"] {
        stage
            .pod(name, "n", json!({"spec": {"terminationGracePeriodSeconds": 60}}))
            .await;
    }
    let deadline = json!({"metadata": {"annotations": {"karpenter.sh/nodeclaim-termination-timestamp": "2026-01-01T00:10:00Z"}}});
    stage.as_operator::<NodeClaim>("n", deadline).await;
    stage.delete_claim("n").await;
    stage.pass(8 * 60).await;
    let with_grace = |seconds| DeleteParams {
        grace_period_seconds: Some(seconds),
        ..DeleteParams::default()
    };
    stage.pods().delete("early", &with_grace(60)).await.unwrap();
    let seen: Vec<u8> = stage
        .lab
        .invariants
        .violations()
        .iter()
        .map(|one| one.invariant)
        .collect();
    assert!(seen.contains(&1), "{seen:?}");
    let before = stage.lab.invariants.violations().len();
    stage.pass(90).await;
    stage.pods().delete("late", &with_grace(30)).await.unwrap();
    let about_late = stage.lab.invariants.violations();
    assert!(
        about_late[before..]
            .iter()
            .all(|one| !one.object.contains("late")),
        "{about_late:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn invariant_34_daemons_do_not_keep_a_node() {
    let stage = with_node().await;
    let owner = stage.daemon_set().await;
    stage
        .pod("d", "n", json!({"metadata": {"ownerReferences": [owner]}}))
        .await;
    stage.pass(25 * 60).await;
    stage.assert_silent();
    assert!(stage.pods().get("d").await.is_ok());
    stage.pass(10 * 60).await;
    stage.assert_broken(34, "node n");
}

#[tokio::test(start_paused = true)]
async fn invariant_34_a_new_node_has_room_for_daemons() {
    let stage = with_node().await;
    stage.pod("busy", "n", json!({})).await;
    let field = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
    let daemon = json!({
        "metadata": {"ownerReferences": [stage.daemon_set().await]},
        "spec": {
            "priorityClassName": "system-node-critical",
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [field]}}},
        },
    });
    stage.pod("d", "", daemon).await;
    stage.pass(6 * 60).await;
    stage.assert_silent();
    let refused = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu."}]});
    stage.patch_status::<Pod>("d", refused).await;
    stage.pass(60).await;
    stage.assert_broken(34, "default/d");
}

#[tokio::test(start_paused = true)]
async fn invariant_36_only_the_leader_writes() {
    let stage = with_node().await;
    let leases: Api<Lease> = Api::namespaced(stage.lab.client.clone(), "kube-system");
    let lease = json!({"metadata": {"name": "karpenter-leader-election"}, "spec": {"holderIdentity": "a"}});
    stage.lab.create(&leases, lease).await.unwrap();
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    stage.as_operator::<Node>("n", label.clone()).await;
    stage.assert_silent();
    let held = json!({"spec": {"holderIdentity": "b"}});
    stage
        .lab
        .merge(&leases, "karpenter-leader-election", held)
        .await
        .unwrap();
    stage.as_operator::<Node>("n", label).await;
    stage.assert_broken(36, "/api/v1/nodes/n");
}

/// What an operator cannot know yet is not held against it.
#[tokio::test(start_paused = true)]
async fn invariant_38_a_gap_in_the_watch_excuses_and_its_end_ends_the_excuse() {
    let mut stage = with_node().await;
    stage.pass(120).await;
    stage.lab.weather("a").hold_watches(Duration::from_secs(60));
    stage.pass(5).await;
    stage
        .annotate::<Node>("n", "karpenter.sh/do-not-disrupt", "true")
        .await;
    stage.pass(30).await;
    stage.taint("n").await;
    stage.assert_silent();
    stage
        .as_operator::<Node>("n", json!({"spec": {"taints": null}}))
        .await;
    stage.pass(120).await;
    stage.taint("n").await;
    stage.assert_broken(6, "node n");
}
