//! Machines that join a cluster, and what becomes of their Nodes (Z-036, Z-039, Z-055).

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_api::labels;
use spokeshave_azure_simulated::{MESSAGE, Options, SETTINGS, TEMPLATE};
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::CloudProvider as _;

use crate::cluster::OnCluster;
use crate::world::{claim, with_aks};

struct Joining {
    cluster: OnCluster,
    nodes: Api<Node>,
    joining: tokio::task::JoinHandle<()>,
}

impl Drop for Joining {
    fn drop(&mut self) {
        self.joining.abort();
    }
}

impl Joining {
    async fn new() -> Self {
        Joining::at(Options::slow()).await
    }

    async fn at(options: Options) -> Self {
        let cluster = OnCluster::of(options, TEMPLATE).await;
        let (azure, client) = (cluster.azure.clone(), cluster.client.clone());
        let joining = tokio::spawn(async move { azure.join(client, std::future::pending()).await });
        cluster
            .make(json!({"kubelet": {"cpuManagerPolicy": "static"}, "maxPods": 42}))
            .await;
        Joining {
            nodes: Api::all(cluster.client.clone()),
            cluster,
            joining,
        }
    }

    async fn launch(&self, name: &str, capacity_type: &str) -> Result<String, String> {
        let wanted = claim(
            name,
            &[
                (labels::INSTANCE_TYPE, &["Standard_D4s_v5"]),
                (labels::CAPACITY_TYPE, &[capacity_type]),
            ],
        );
        let created = self.cluster.provider.create(&wanted).await;
        let created = created.map_err(|error| error.to_string())?;
        Ok(created.provider_id().unwrap_or_default().to_owned())
    }

    async fn node(&self, name: &str) -> Option<Node> {
        self.nodes.get_opt(name).await.unwrap()
    }

    async fn annotate(&self, node: &str, message: &str) {
        let patch = json!({"metadata": {"annotations": {MESSAGE: message}}});
        let patched = self
            .nodes
            .patch(node, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched.unwrap();
    }

    async fn set(&self, key: &str, text: &str) {
        let namespaces: Api<Namespace> = Api::all(self.cluster.client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": "kube-system"}})).unwrap();
        // It may be there already.
        drop(namespaces.create(&PostParams::default(), &namespace).await);
        let maps: Api<ConfigMap> = Api::namespaced(self.cluster.client.clone(), "kube-system");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SETTINGS}, "data": {key: text}});
        let patched = maps
            .patch(SETTINGS, &PatchParams::apply("test"), &Patch::Apply(&map))
            .await;
        patched.unwrap();
        self.cluster.pass(5).await;
    }
}

#[tokio::test(start_paused = true)]
async fn z_039_a_machine_joins_as_it_was_told_and_what_never_registered_goes_with_it() {
    let world = Joining::new().await;
    let provider_id = world.launch("a", "on-demand").await.unwrap();
    assert!(world.node("aks-a").await.is_none(), "it boots");
    world.cluster.pass(90).await;
    let node = world.node("aks-a").await.unwrap();
    let spec = node.spec.unwrap();
    assert_eq!(spec.provider_id.as_deref(), Some(provider_id.as_str()));
    let taints: Vec<String> = spec.taints.unwrap().into_iter().map(|taint| taint.key).collect();
    assert!(
        taints.contains(&"karpenter.sh/unregistered".to_owned()),
        "{taints:?}"
    );
    let labels = node.metadata.labels.unwrap();
    assert_eq!(labels[labels::INSTANCE_TYPE], "Standard_D4s_v5");
    assert_eq!(labels["karpenter.sh/nodepool"], "pool");
    assert!(labels[labels::ZONE].starts_with("southcentralus-"), "{labels:?}");
    let status = node.status.unwrap();
    let (capacity, allocatable) = (status.capacity.unwrap(), status.allocatable.unwrap());
    assert_eq!(capacity["pods"].0, "42");
    assert_eq!(capacity["cpu"].0, "4");
    let left: i64 = allocatable["cpu"].0.trim_end_matches('m').parse().unwrap();
    assert!((3000..4000).contains(&left), "{allocatable:?}");

    world.annotate("aks-a", "machine_terminated").await;
    world.cluster.pass(10).await;
    assert!(world.node("aks-a").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn z_040_a_machine_of_aks_joins_as_the_virtual_machine_that_it_is() {
    let world = Joining::at(with_aks(Options::slow())).await;
    let provider_id = world.launch("a", "spot").await.unwrap();
    world.cluster.pass(90).await;
    let name = provider_id.rsplit('/').next().unwrap();
    let node = world.node(name).await.unwrap();
    let spec = node.spec.unwrap();
    assert_eq!(spec.provider_id.as_deref(), Some(provider_id.as_str()));
    let taints: Vec<String> = spec.taints.unwrap().into_iter().map(|taint| taint.key).collect();
    assert!(
        taints.contains(&"karpenter.sh/unregistered".to_owned()),
        "{taints:?}"
    );
    let own = node.metadata.labels.unwrap();
    for (key, value) in [
        ("karpenter.sh/nodepool", "pool"),
        ("karpenter.sh/capacity-type", "spot"),
        ("kubernetes.azure.com/mode", "user"),
        ("kubernetes.azure.com/scalesetpriority", "spot"),
        (labels::INSTANCE_TYPE, "Standard_D4s_v5"),
    ] {
        assert_eq!(own[key], value, "{key}");
    }
    let status = node.status.unwrap();
    let (capacity, allocatable) = (status.capacity.unwrap(), status.allocatable.unwrap());
    assert_eq!(capacity["pods"].0, "42", "as the class says");
    let left: i64 = allocatable["cpu"].0.trim_end_matches('m').parse().unwrap();
    assert!((3000..4000).contains(&left), "{allocatable:?}");

    world.annotate(name, "spot_evicted").await;
    world.cluster.pass(40).await;
    assert!(world.node(name).await.is_none(), "it never registered");
    assert!(
        world
            .cluster
            .provider
            .get(&provider_id)
            .await
            .unwrap_err()
            .is_not_found()
    );
}

#[tokio::test(start_paused = true)]
async fn z_055_an_eviction_is_announced_and_a_registered_node_falls_silent() {
    let world = Joining::new().await;
    let provider_id = world.launch("a", "spot").await.unwrap();
    world.launch("b", "on-demand").await.unwrap();
    world.cluster.pass(90).await;
    for node in ["aks-a", "aks-b"] {
        let registered = json!({"metadata": {"labels": {labels::REGISTERED: "true"}}});
        let patched = world
            .nodes
            .patch(node, &PatchParams::default(), &Patch::Merge(&registered))
            .await;
        patched.unwrap();
        world.annotate(node, "spot_evicted").await;
    }
    world.cluster.pass(5).await;
    let mut told = world.cluster.provider.interruptions().unwrap();
    let notice = told.next().await.unwrap();
    assert_eq!(notice.kind, Ok(InterruptionKind::SpotInterrupted));
    assert_eq!(notice.provider_id, provider_id);
    assert!(notice.ends_at > notice.sent_at, "{notice:?}");
    assert_eq!(world.cluster.azure.machines().len(), 2, "it has half a minute");
    world.cluster.pass(40).await;
    assert_eq!(
        world.cluster.azure.machines().len(),
        1,
        "what is not spot cannot be evicted"
    );
    let ready = |node: Node| {
        let conditions = node.status.unwrap().conditions.unwrap_or_default();
        conditions
            .into_iter()
            .find(|it| it.type_ == "Ready")
            .map(|it| it.status)
    };
    assert_eq!(
        ready(world.node("aks-a").await.unwrap()).as_deref(),
        Some("Unknown")
    );
    assert_ne!(
        ready(world.node("aks-b").await.unwrap()).as_deref(),
        Some("Unknown")
    );
}

#[tokio::test(start_paused = true)]
async fn z_036_what_the_config_map_refuses_is_refused_until_it_says_otherwise() {
    let world = Joining::new().await;
    world
        .set(
            "refusals",
            "nonsense\nStandard_D4s_v5/*/on-demand=AllocationFailed\n",
        )
        .await;
    let refusals = || {
        let log = world.cluster.azure.log();
        log.iter()
            .filter(|line| line.starts_with("PUT") && line.ends_with("→ 409"))
            .count()
    };
    let refused = world.launch("a", "on-demand").await.unwrap_err();
    assert!(refused.starts_with("insufficient capacity"), "{refused}");
    let by_lines = refusals();
    assert!(by_lines > 0);
    world.set("quota", "standardDSv5Family=4").await;
    world.cluster.pass(3600).await;
    world.launch("b", "on-demand").await.unwrap();
    let refused = world.launch("c", "on-demand").await.unwrap_err();
    assert!(refused.starts_with("insufficient capacity"), "{refused}");
    assert!(
        refusals() > by_lines,
        "Azure has refused it, and not the provider alone"
    );
}
