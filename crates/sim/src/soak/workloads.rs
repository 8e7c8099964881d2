//! Workloads of a scenario: what they are, and how they change.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, PropagationPolicy};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use spokeshave_runtime::Api;

use super::scenario::{Scenario, pick};
use crate::invariants::FITS;
use crate::lab::Lab;

/// What controls the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Deployment,
    StatefulSet,
    Job,
    DaemonSet,
}

/// A workload.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    template: Value,
    storage: bool,
    has_budget: bool,
    revision: u32,
    jobs: u32,
}

impl Workload {
    /// Its pods carry the annotations `wishes` as well.
    pub(crate) fn draw(index: usize, scenario: &Scenario, wishes: &Value, chance: &mut ChaCha8Rng) -> Self {
        let kind = *pick(
            chance,
            &[
                Kind::Deployment,
                Kind::Deployment,
                Kind::Deployment,
                Kind::StatefulSet,
                Kind::Job,
                Kind::DaemonSet,
            ],
        );
        let name = format!("w{index}");
        let daemon = kind == Kind::DaemonSet;
        let storage = scenario.volumes && kind == Kind::StatefulSet;
        let cpu = if daemon {
            "50m"
        } else {
            *pick(chance, &["100m", "250m", "700m", "1500m", "3"])
        };
        let mut container = json!({"name": "c", "image": "i", "resources": {"requests": {
            "cpu": cpu, "memory": if daemon { "64Mi" } else { *pick(chance, &["64Mi", "500Mi", "2Gi"]) },
        }}});
        if storage {
            container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        }
        let mut annotations = json!({FITS: "yes"});
        let mut spec = json!({"containers": [container], "terminationGracePeriodSeconds": *pick(chance, &[0, 1, 5, 30, 120])});
        if daemon {
            spec["priorityClassName"] = json!("system-node-critical");
        } else if chance.random_bool(0.1) {
            spec["priorityClassName"] = json!("system-cluster-critical");
        }
        if kind == Kind::Job {
            spec["restartPolicy"] = json!("Never");
            annotations["sim.spokeshave.dev/run-duration"] = json!(*pick(chance, &["20s", "2m", "11m"]));
        }
        let apart =
            json!({"labelSelector": {"matchLabels": {"app": name}}, "topologyKey": "kubernetes.io/hostname"});
        match chance.random_range(0..8) {
            0 if !daemon => {
                spec["nodeSelector"] = json!({"topology.kubernetes.io/zone": *pick(chance, &["test-zone-a", "test-zone-b", "test-zone-c"])});
            }
            1 if !daemon => {
                spec["topologySpreadConstraints"] = json!([{
                    "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": name}},
                }]);
            }
            2 if !daemon => {
                spec["affinity"] =
                    json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}});
            }
            3 if !daemon => {
                spec["nodeSelector"] = json!({"karpenter.sh/capacity-type": "on-demand"});
            }
            _ => {}
        }
        if scenario.do_not_disrupt && !daemon && chance.random_bool(0.2) {
            annotations["karpenter.sh/do-not-disrupt"] = json!(*pick(chance, &["true", "3m", "nonsense"]));
        }
        for (key, value) in wishes.as_object().into_iter().flatten() {
            annotations[key.as_str()] = value.clone();
        }
        let template =
            json!({"metadata": {"labels": {"app": name}, "annotations": annotations}, "spec": spec});
        Self {
            name,
            kind,
            template,
            storage,
            has_budget: false,
            revision: 0,
            jobs: 0,
        }
    }

    pub(crate) async fn create(&mut self, lab: &Lab, replicas: u32) -> kube::Result<()> {
        let client = lab.client.clone();
        let selector = json!({"matchLabels": {"app": self.name}});
        match self.kind {
            Kind::Deployment => {
                let object = json!({"metadata": {"name": self.name}, "spec": {"replicas": replicas, "selector": selector, "template": self.template}});
                lab.create(&Api::<Deployment>::default_namespaced(client), object)
                    .await?;
            }
            Kind::StatefulSet => {
                let claims = if self.storage {
                    json!([{"metadata": {"name": "data"}, "spec": {
                        "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}},
                    }}])
                } else {
                    json!([])
                };
                let object = json!({"metadata": {"name": self.name}, "spec": {
                    "replicas": replicas, "serviceName": self.name, "selector": selector, "template": self.template, "volumeClaimTemplates": claims,
                    "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
                }});
                lab.create(&Api::<StatefulSet>::default_namespaced(client), object)
                    .await?;
            }
            Kind::DaemonSet => {
                let object = json!({"metadata": {"name": self.name}, "spec": {"selector": selector, "template": self.template}});
                lab.create(&Api::<DaemonSet>::default_namespaced(client), object)
                    .await?;
            }
            Kind::Job => {
                self.jobs += 1;
                let object = json!({"metadata": {"name": format!("{}-{}", self.name, self.jobs)}, "spec": {
                    "parallelism": replicas.max(1), "completions": replicas.max(1), "backoffLimit": 100, "template": self.template,
                    "ttlSecondsAfterFinished": 60,
                }});
                lab.create(&Api::<Job>::default_namespaced(client), object)
                    .await?;
            }
        }
        Ok(())
    }

    /// Another number of pods; for a Job, another run; for a DaemonSet, a new version.
    pub(crate) async fn scale(&mut self, lab: &Lab, replicas: u32) -> kube::Result<()> {
        match self.kind {
            Kind::Deployment | Kind::StatefulSet => {
                self.merge(lab, json!({"spec": {"replicas": replicas}})).await
            }
            Kind::Job => self.create(lab, replicas).await,
            Kind::DaemonSet => self.roll(lab).await,
        }
    }

    /// A new version of the template.
    pub(crate) async fn roll(&mut self, lab: &Lab) -> kube::Result<()> {
        self.revision += 1;
        let revision = json!({"revision": self.revision.to_string()});
        let patch = json!({"spec": {"template": {"metadata": {"annotations": revision}}}});
        self.merge(lab, patch).await
    }

    /// Changes the object; a Job's template never changes.
    async fn merge(&self, lab: &Lab, patch: Value) -> kube::Result<()> {
        let (client, name) = (lab.client.clone(), &self.name);
        match self.kind {
            Kind::Deployment => {
                let api = Api::<Deployment>::default_namespaced(client);
                lab.merge(&api, name, patch).await.map(drop)
            }
            Kind::StatefulSet => {
                let api = Api::<StatefulSet>::default_namespaced(client);
                lab.merge(&api, name, patch).await.map(drop)
            }
            Kind::DaemonSet => {
                let api = Api::<DaemonSet>::default_namespaced(client);
                lab.merge(&api, name, patch).await.map(drop)
            }
            Kind::Job => Ok(()),
        }
    }

    /// Another budget for its pods, or none.
    pub(crate) async fn budget(&mut self, lab: &Lab, chance: &mut ChaCha8Rng) -> kube::Result<()> {
        let api: Api<PodDisruptionBudget> = Api::default_namespaced(lab.client.clone());
        if self.has_budget && chance.random_bool(0.4) {
            self.has_budget = false;
            return api.delete(&self.name, &DeleteParams::default()).await.map(drop);
        }
        let (least, most) = pick(
            chance,
            &[
                (json!(null), json!(0)),
                (json!(null), json!(1)),
                (json!("100%"), json!(null)),
                (json!("50%"), json!(null)),
                (json!(2), json!(null)),
            ],
        )
        .clone();
        if self.has_budget {
            let patch = json!({"spec": {"minAvailable": least, "maxUnavailable": most}});
            return lab.merge(&api, &self.name, patch).await.map(drop);
        }
        self.has_budget = true;
        let mut spec = json!({"selector": {"matchLabels": {"app": self.name}}});
        if !least.is_null() {
            spec["minAvailable"] = least;
        }
        if !most.is_null() {
            spec["maxUnavailable"] = most;
        }
        if chance.random_bool(0.3) {
            spec["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
        }
        let object = json!({"metadata": {"name": self.name}, "spec": spec});
        lab.create(&api, object).await.map(drop)
    }

    /// The end of it and its pods.
    pub(crate) async fn delete(&self, lab: &Lab) -> kube::Result<()> {
        let parameters = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let client = lab.client.clone();
        match self.kind {
            Kind::Deployment => Api::<Deployment>::default_namespaced(client)
                .delete(&self.name, &parameters)
                .await
                .map(drop),
            Kind::StatefulSet => Api::<StatefulSet>::default_namespaced(client)
                .delete(&self.name, &parameters)
                .await
                .map(drop),
            Kind::DaemonSet => Api::<DaemonSet>::default_namespaced(client)
                .delete(&self.name, &parameters)
                .await
                .map(drop),
            Kind::Job => {
                let api: Api<Job> = Api::default_namespaced(client);
                for number in 1..=self.jobs {
                    let name = format!("{}-{number}", self.name);
                    match api.delete(&name, &parameters).await {
                        Err(kube::Error::Api(status)) if status.code == 404 => {}
                        other => drop(other?),
                    }
                }
                Ok(())
            }
        }
    }
}
