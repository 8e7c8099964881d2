//! What users run: Deployments, StatefulSets, single pods, and the budgets over them. The pods of an app carry its name as the label `app`.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use super::{Objects as _, Scene, Waiting as _};

/// A pod template of an app, changed by a merge patch.
pub fn template(app: &str, cpu: &str, change: Value) -> Value {
    let mut template = json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
    });
    json_patch::merge(&mut template, &change);
    template
}

/// A change of a template that makes a pod another one.
pub fn second_version() -> Value {
    json!({"metadata": {"annotations": {"version": "2"}}})
}

/// A change of a pod for which packing believes that a node could be made, and the audit does not: between 2 and 4 there is only 3, which it does not want.
pub fn without_place() -> Value {
    let slot = |operator: &str, value: &str| json!({"key": "example.com/slot", "operator": operator, "values": [value]});
    let terms = json!([{"matchExpressions": [slot("Gt", "2"), slot("Lt", "4"), slot("NotIn", "3")]}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    json!({"spec": {"affinity": {"nodeAffinity": required}}})
}

pub trait Workloads: Scene {
    async fn deploy(&self, app: &str, replicas: i32, cpu: &str) {
        self.deploy_with(app, replicas, template(app, cpu, json!({})))
            .await;
    }

    async fn deploy_with(&self, app: &str, replicas: i32, template: Value) {
        self.create::<Deployment>(json!({"metadata": {"name": app}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": template,
        }}))
        .await;
    }

    async fn stateful_set(&self, app: &str, replicas: i32, template: Value) {
        self.create::<StatefulSet>(json!({"metadata": {"name": app}, "spec": {
            "replicas": replicas, "serviceName": app, "selector": {"matchLabels": {"app": app}}, "template": template,
        }}))
        .await;
    }

    /// Deploys, and waits until all pods of the app run.
    async fn run(&self, app: &str, replicas: i32, cpu: &str) {
        self.deploy(app, replicas, cpu).await;
        self.until_running_of(app, replicas as usize).await;
    }

    async fn scale(&self, app: &str, replicas: i32) {
        self.patch::<Deployment>(app, json!({"spec": {"replicas": replicas}}))
            .await;
    }

    /// A pod that belongs to nobody, changed by a merge patch.
    async fn pod(&self, name: &str, cpu: &str, change: Value) {
        let mut pod = template(name, cpu, change);
        pod["metadata"]["name"] = json!(name);
        self.create::<Pod>(pod).await;
    }

    /// A PodDisruptionBudget over the pods of an app, with the app's name.
    async fn budget(&self, app: &str, change: Value) {
        self.budget_named(app, app, change).await;
    }

    async fn budget_named(&self, name: &str, app: &str, change: Value) {
        let mut spec = json!({"selector": {"matchLabels": {"app": app}}});
        json_patch::merge(&mut spec, &change);
        self.create::<PodDisruptionBudget>(json!({"metadata": {"name": name}, "spec": spec}))
            .await;
    }
}

impl<S: Scene> Workloads for S {}
