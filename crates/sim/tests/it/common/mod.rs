//! What the tests of whole clusters share: a laboratory with a NodePool, and words for what users do and see.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::DeleteParams;
use kube::{Resource, ResourceExt as _};
use serde_json::{Value, json};
use spokeshave_api::{KWOKInstance, KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_runtime::Api;
use spokeshave_sim::lab::{Lab, LabOptions};

/// Longest virtual time that a test waits for something.
pub const LIMIT: Duration = Duration::from_secs(3600);

/// A laboratory with words.
pub struct Cluster {
    pub lab: Lab,
}

impl std::ops::Deref for Cluster {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

/// A NodePool over machines of up to 8 CPUs, changed by a merge patch of its spec.
pub fn pool(name: &str, change: Value) -> Value {
    let mut spec = json!({
        "template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [
                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
            ],
            "expireAfter": "Never",
        }},
        "disruption": {"consolidateAfter": "0s", "consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "100%"}]},
    });
    json_patch::merge(&mut spec, &change);
    json!({"metadata": {"name": name}, "spec": spec})
}

/// A pod template of an app, changed by a merge patch.
pub fn template(app: &str, cpu: &str, change: Value) -> Value {
    let mut template = json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
    });
    json_patch::merge(&mut template, &change);
    template
}

impl Cluster {
    /// A cluster with NodePool `default`, changed by a merge patch of its spec; no operator yet.
    pub async fn new(options: LabOptions, change: Value) -> Self {
        let lab = Lab::new(options).await;
        let class = json!({"metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": "5s"}});
        lab.create(&Api::<KWOKNodeClass>::all(lab.client.clone()), class)
            .await
            .unwrap();
        lab.create(&Api::<NodePool>::all(lab.client.clone()), pool("default", change))
            .await
            .unwrap();
        Self { lab }
    }

    /// The same with an operator.
    pub async fn started(seed: u64, change: Value) -> Self {
        let mut cluster = Self::new(LabOptions::new(seed), change).await;
        cluster.lab.start("a");
        cluster
    }

    pub fn all<K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    pub fn here<K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>>(&self) -> Api<K> {
        Api::default_namespaced(self.client.clone())
    }

    pub async fn deploy(&self, name: &str, replicas: i32, cpu: &str) {
        self.deploy_with(name, replicas, template(name, cpu, json!({})))
            .await;
    }

    pub async fn deploy_with(&self, name: &str, replicas: i32, template: Value) {
        let object = json!({"metadata": {"name": name}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template,
        }});
        self.lab.create(&self.here::<Deployment>(), object).await.unwrap();
    }

    pub async fn scale(&self, name: &str, replicas: i32) {
        let patch = json!({"spec": {"replicas": replicas}});
        self.merge(&self.here::<Deployment>(), name, patch).await.unwrap();
    }

    pub async fn budget(&self, app: &str, spec: Value) {
        let mut whole = json!({"selector": {"matchLabels": {"app": app}}});
        json_patch::merge(&mut whole, &spec);
        let object = json!({"metadata": {"name": app}, "spec": whole});
        self.lab
            .create(&self.here::<PodDisruptionBudget>(), object)
            .await
            .unwrap();
    }

    pub async fn pass(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
        self.invariants.assert_kept();
    }

    /// Waits in virtual time until the cluster looks as it should, and says how long that took.
    pub async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Self) -> bool) -> Duration {
        let start = self.clock.now();
        loop {
            self.invariants.assert_kept();
            if holds(self).await {
                return self.clock.since(start);
            }
            assert!(
                self.clock.since(start) < LIMIT,
                "{what}: not within {LIMIT:?}; nodes {:?}, claims {:?}, pods {:?}",
                self.names::<Node>().await,
                self.names::<NodeClaim>().await,
                self.names::<Pod>().await,
            );
            self.clock.sleep(Duration::from_millis(500)).await;
        }
    }

    pub async fn names<K>(&self) -> Vec<String>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        self.list::<K>()
            .await
            .iter()
            .map(kube::ResourceExt::name_any)
            .collect()
    }

    pub async fn exists<K>(&self, name: &str) -> bool
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        self.names::<K>().await.iter().any(|one| one == name)
    }

    /// Pods that run and are not asked to go.
    pub async fn running(&self) -> Vec<Pod> {
        let mut pods = self.list::<Pod>().await;
        pods.retain(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
        });
        pods
    }

    pub async fn until_running(&self, count: usize) -> Duration {
        self.until(&format!("{count} pods run"), async |cluster| {
            cluster.running().await.len() == count && cluster.list::<Pod>().await.len() == count
        })
        .await
    }

    pub async fn until_gone<K>(&self, name: &str) -> Duration
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        self.until(&format!("{name} is gone"), async |cluster| {
            !cluster.exists::<K>(name).await
        })
        .await
    }

    pub async fn until_empty(&self) -> Duration {
        self.until("nothing is left", async |cluster| {
            cluster.list::<Node>().await.is_empty()
                && cluster.list::<NodeClaim>().await.is_empty()
                && cluster.list::<KWOKInstance>().await.is_empty()
        })
        .await
    }

    /// The node of a pod of an app.
    pub async fn node_of(&self, app: &str) -> String {
        let pods = self.running().await;
        let pod = pods
            .iter()
            .find(|pod| pod.labels().get("app").is_some_and(|value| value == app));
        pod.and_then(|pod| pod.spec.as_ref()?.node_name.clone())
            .unwrap_or_else(|| panic!("no pod of {app} runs"))
    }

    /// The NodeClaim of a node.
    pub async fn claim_of(&self, node: &str) -> NodeClaim {
        let node: Node = self.all().get(node).await.unwrap();
        let id = node.spec.unwrap_or_default().provider_id.unwrap_or_default();
        let claims = self.list::<NodeClaim>().await;
        claims
            .into_iter()
            .find(|claim| claim.provider_id() == Some(&id))
            .unwrap_or_else(|| panic!("no claim has {id}"))
    }

    pub async fn claim(&self, name: &str) -> NodeClaim {
        self.all().get(name).await.unwrap()
    }

    /// Status and reason of a condition of a NodeClaim.
    pub async fn condition(&self, claim: &str, kind: &str) -> Option<(String, String)> {
        let claim: NodeClaim = self.all().get(claim).await.ok()?;
        let conditions = claim.status?.conditions;
        let one = conditions.into_iter().find(|one| one.type_ == kind)?;
        Some((one.status.clone(), one.reason.clone()))
    }

    pub async fn delete_claim(&self, name: &str) {
        self.all::<NodeClaim>()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// Messages of events with a reason.
    pub async fn events(&self, reason: &str) -> Vec<String> {
        let events = self.list::<Event>().await;
        events
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some(reason))
            .filter_map(|event| event.message)
            .collect()
    }

    /// Each instance has its claim, each claim its instance, and no node keeps a taint that nobody works on.
    pub async fn assert_tidy(&self) {
        self.invariants.assert_kept();
        let claims = self.list::<NodeClaim>().await;
        let instances = self.list::<KWOKInstance>().await;
        for instance in &instances {
            let owners = claims
                .iter()
                .filter(|claim| claim.uid() == instance.spec.node_claim_uid);
            assert_eq!(
                owners.count(),
                1,
                "instance {} belongs to no NodeClaim",
                instance.name()
            );
        }
        assert_eq!(claims.len(), instances.len(), "a NodeClaim has no instance");
        for node in self.list::<Node>().await {
            let taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
            assert!(
                taints.iter().all(|taint| !taint.key.starts_with("karpenter.sh/")),
                "stray taint: {taints:?}"
            );
        }
    }
}
