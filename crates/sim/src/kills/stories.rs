//! The scenarios: launch, emptiness, drain with a budget, volumes, deadline, expiry, garbage collection, the end of a NodePool.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use spokeshave_api::{KWOKInstance, NodeClaim, NodePool};
use spokeshave_runtime::Api;

use super::{LIMIT, runs};
use crate::lab::Lab;

/// An act on a laboratory.
pub(super) type Act = for<'a> fn(&'a Lab) -> Acting<'a>;
type Acting<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

/// What the cluster is like, what happens once the operator runs, and what there must be in the end.
#[derive(Debug)]
pub struct Story {
    /// Its name, in a word that tests and commands use.
    pub name: &'static str,
    /// Minimum number of writes of a useful scenario.
    pub least_writes: u64,
    pub(super) pool: fn(&str) -> Value,
    /// Under an operator that is stopped in order before the mortal one starts.
    pub(super) prepare: Act,
    pub(super) act: Act,
    /// Pods that run, and nodes.
    pub(super) end: (usize, usize),
}

/// All stories.
#[must_use]
pub fn stories() -> [Story; 8] {
    [
        Story {
            name: "launch",
            least_writes: 15,
            pool: plain,
            prepare: |_| Box::pin(async { Ok(()) }),
            act: |lab| Box::pin(deploy(lab, 2, "6", json!({}))),
            end: (2, 2),
        },
        Story {
            name: "emptiness",
            least_writes: 5,
            pool: plain,
            prepare: two_nodes,
            act: |lab| Box::pin(scale_to_one(lab)),
            end: (1, 1),
        },
        Story {
            name: "drain_with_a_budget",
            least_writes: 12,
            pool: plain,
            prepare: |lab| Box::pin(three_pods_with_a_budget(lab)),
            act: |lab| Box::pin(delete_one_claim(lab)),
            end: (3, 1),
        },
        Story {
            name: "volumes",
            least_writes: 10,
            pool: plain,
            prepare: |lab| Box::pin(database(lab)),
            act: |lab| Box::pin(delete_one_claim(lab)),
            end: (1, 1),
        },
        Story {
            name: "deadline",
            least_writes: 12,
            pool: |name| pool(name, json!({"terminationGracePeriod": "40s"})),
            prepare: |lab| Box::pin(two_protected_pods(lab)),
            act: |lab| Box::pin(delete_one_claim(lab)),
            end: (2, 1),
        },
        Story {
            name: "expiry",
            least_writes: 10,
            pool: |name| pool(name, json!({"expireAfter": "2h"})),
            prepare: |lab| Box::pin(almost_two_hours(lab)),
            act: |lab| Box::pin(pass(lab, 90)),
            end: (1, 1),
        },
        Story {
            name: "garbage_collection",
            least_writes: 10,
            pool: plain,
            prepare: two_nodes,
            act: |lab| Box::pin(lose_a_claim_and_an_instance(lab)),
            end: (2, 2),
        },
        Story {
            name: "deletion_of_a_nodepool",
            least_writes: 20,
            pool: plain,
            prepare: two_nodes,
            act: |lab| Box::pin(another_pool(lab)),
            end: (2, 2),
        },
    ]
}

pub(super) fn text(error: impl std::fmt::Display) -> String {
    format!("the story cannot go on: {error}")
}

fn plain(name: &str) -> Value {
    pool(name, json!({}))
}

/// A NodePool over machines of up to 8 CPUs, with some fields of the template's spec.
fn pool(name: &str, fields: Value) -> Value {
    let mut template = json!({
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "requirements": [
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
        ],
        "expireAfter": "Never",
    });
    for (field, value) in fields.as_object().into_iter().flatten() {
        template[field] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": {
        "template": {"spec": template},
        "disruption": {"consolidateAfter": "0s", "consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "100%"}]},
    }})
}

fn template(app: &str, cpu: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {"labels": {"app": app}, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
    })
}

async fn deploy(lab: &Lab, replicas: usize, cpu: &str, annotations: Value) -> Result<(), String> {
    let object = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("web", cpu, &annotations),
    }});
    let api: Api<Deployment> = Api::default_namespaced(lab.client.clone());
    lab.create(&api, object).await.map(drop).map_err(text)
}

async fn pass(lab: &Lab, seconds: u64) -> Result<(), String> {
    lab.clock.sleep(Duration::from_secs(seconds)).await;
    Ok(())
}

async fn until_running(lab: &Lab, count: usize) -> Result<(), String> {
    let start = lab.clock.now();
    loop {
        let pods = lab.list::<Pod>().await;
        if pods.len() == count && pods.iter().all(runs) {
            return Ok(());
        }
        if lab.clock.since(start) > LIMIT {
            return Err(format!("{count} pods do not run within {LIMIT:?}"));
        }
        pass(lab, 1).await?;
    }
}

fn two_nodes(lab: &Lab) -> Acting<'_> {
    Box::pin(async {
        deploy(lab, 2, "6", json!({})).await?;
        until_running(lab, 2).await
    })
}

async fn scale_to_one(lab: &Lab) -> Result<(), String> {
    let api: Api<Deployment> = Api::default_namespaced(lab.client.clone());
    let patch = json!({"spec": {"replicas": 1}});
    lab.merge(&api, "web", patch).await.map(drop).map_err(text)
}

async fn three_pods_with_a_budget(lab: &Lab) -> Result<(), String> {
    deploy(lab, 3, "1", json!({})).await?;
    let budget = json!({"metadata": {"name": "web"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    let api: Api<PodDisruptionBudget> = Api::default_namespaced(lab.client.clone());
    lab.create(&api, budget).await.map_err(text)?;
    until_running(lab, 3).await
}

async fn database(lab: &Lab) -> Result<(), String> {
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "disk.csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"});
    lab.create(&Api::<StorageClass>::all(lab.client.clone()), class)
        .await
        .map_err(text)?;
    let mut template = template("db", "1", &json!({}));
    template["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let set = json!({"metadata": {"name": "db"}, "spec": {
        "replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}},
        }}],
    }});
    let api: Api<StatefulSet> = Api::default_namespaced(lab.client.clone());
    lab.create(&api, set).await.map_err(text)?;
    until_running(lab, 1).await
}

async fn two_protected_pods(lab: &Lab) -> Result<(), String> {
    deploy(lab, 2, "1", json!({"karpenter.sh/do-not-disrupt": "true"})).await?;
    until_running(lab, 2).await
}

async fn almost_two_hours(lab: &Lab) -> Result<(), String> {
    deploy(lab, 1, "1", json!({})).await?;
    until_running(lab, 1).await?;
    pass(lab, 7200 - 60).await
}

async fn first_claim(lab: &Lab) -> Result<NodeClaim, String> {
    let claims = lab.list::<NodeClaim>().await;
    claims
        .into_iter()
        .next()
        .ok_or_else(|| text("there is no NodeClaim"))
}

async fn delete_one_claim(lab: &Lab) -> Result<(), String> {
    let claim = first_claim(lab).await?;
    let api: Api<NodeClaim> = Api::all(lab.client.clone());
    api.delete(claim.name(), &DeleteParams::default())
        .await
        .map(drop)
        .map_err(text)
}

/// A NodeClaim whose finalizer was removed before its deletion, and a NodeClaim whose instance was lost.
async fn lose_a_claim_and_an_instance(lab: &Lab) -> Result<(), String> {
    let claims = lab.list::<NodeClaim>().await;
    let [first, second] = &claims[..] else {
        return Err(text("there are not two NodeClaims"));
    };
    let api: Api<NodeClaim> = Api::all(lab.client.clone());
    let free = json!({"metadata": {"finalizers": null}});
    lab.merge(&api, first.name(), free).await.map_err(text)?;
    api.delete(first.name(), &DeleteParams::default())
        .await
        .map_err(text)?;
    let id = second.provider_id().unwrap_or_default();
    let instance = id.rsplit('/').next().unwrap_or_default();
    Api::<KWOKInstance>::all(lab.client.clone())
        .delete(instance, &DeleteParams::default())
        .await
        .map(drop)
        .map_err(text)
}

async fn another_pool(lab: &Lab) -> Result<(), String> {
    let pools: Api<NodePool> = Api::all(lab.client.clone());
    lab.create(&pools, plain("other")).await.map_err(text)?;
    pools
        .delete("default", &DeleteParams::default())
        .await
        .map(drop)
        .map_err(text)
}
