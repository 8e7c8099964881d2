//! The provider of a cluster: AKSNodeClasses on its API server, and conditions of its nodes (Z-003, Z-004, Z-010, Z-011, Z-053, Z-055).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::crds::{Cloud, crds_of};
use spokeshave_api::{AKSNodeClass, NodeClaim, labels};
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_azure_cloud::{AzureOptions, AzureProvider, Outside};
use spokeshave_azure_simulated::{Azure, Options};
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{CloudProvider as _, SharedClock, TokioClock};
use spokeshave_provider_azure::bootstrap::KUBEADM;
use spokeshave_runtime::{ClientWrites, read_only};

use crate::world::{claim, outside, pool, provider_options, shown};

pub(crate) struct OnCluster {
    pub(crate) client: kube::Client,
    clock: SharedClock,
    pub(crate) azure: Azure,
    pub(crate) provider: AzureProvider,
    leader: tokio::task::JoinHandle<()>,
}

impl Drop for OnCluster {
    fn drop(&mut self) {
        self.leader.abort();
    }
}

impl OnCluster {
    async fn new() -> Self {
        OnCluster::of(Options::instant(), KUBEADM).await
    }

    pub(crate) async fn of(options: Options, template: &str) -> Self {
        let settings = AzureOptions {
            bootstrap_template: template.to_owned(),
            ..provider_options(&options)
        };
        OnCluster::of_provider(options, settings).await
    }

    /// What another provider of the same Azure is given.
    pub(crate) fn outside(&self) -> Outside {
        outside(&self.azure)
    }

    pub(crate) fn clock(&self) -> SharedClock {
        self.clock.clone()
    }

    pub(crate) async fn of_provider(options: Options, settings: AzureOptions) -> Self {
        let clock = TokioClock::new("2026-09-01T00:00:00Z".parse().unwrap(), 1.0).shared();
        let source = clock.clone();
        let server = ApiServer::new(Config::new(Arc::new(move || source.now()), 1));
        let client = kube::Client::new(server.service(), "default");
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in crds_of(Cloud::Azure) {
            definitions
                .create(&PostParams::default(), &definition)
                .await
                .unwrap();
        }
        let azure = Azure::new(options, clock.clone());
        let outside = outside(&azure);
        let provider = AzureProvider::of_cluster(outside, read_only(client.clone()), clock.clone(), settings);
        let leading = provider.clone();
        let writes = Arc::new(ClientWrites::new(client.clone()));
        let leader = tokio::spawn(async move { leading.lead(writes).await });
        OnCluster {
            client,
            clock,
            azure,
            provider,
            leader,
        }
    }

    fn classes(&self) -> Api<AKSNodeClass> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn make(&self, spec: Value) {
        let class = json!({"apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": {"name": "class"}, "spec": spec});
        let class = serde_json::from_value(class).unwrap();
        self.classes()
            .create(&PostParams::default(), &class)
            .await
            .unwrap();
        self.pass(30).await;
    }

    pub(crate) async fn change(&self, patch: Value) -> AKSNodeClass {
        let merged = self
            .classes()
            .patch("class", &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        merged.unwrap();
        self.pass(30).await;
        self.class().await
    }

    pub(crate) async fn class(&self) -> AKSNodeClass {
        self.classes().get("class").await.unwrap()
    }

    pub(crate) async fn pass(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }
}

fn condition(class: &AKSNodeClass, type_: &str) -> (String, String) {
    let conditions = &class.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|it| it.type_ == type_).unwrap();
    assert_eq!(found.observed_generation, class.metadata.generation, "{type_}");
    (found.status.clone(), found.message.clone())
}

const HASH: &str = "karpenter.azure.com/aksnodeclass-hash";

/// A NodeClaim with a hash of another version.
fn stamped_by_karpenter(name: &str) -> NodeClaim {
    let mut claim = claim(name, &[(labels::ARCH, &["amd64"])]);
    let stamp = [
        (HASH, "1"),
        ("karpenter.azure.com/aksnodeclass-hash-version", "v3"),
    ];
    let stamp = stamp.map(|(key, value)| (key.to_owned(), value.to_owned()));
    claim.metadata.annotations = Some(stamp.into());
    claim
}

#[tokio::test(start_paused = true)]
async fn z_003_z_004_z_010_a_class_gets_status_hash_and_finalizer() {
    let cluster = OnCluster::new().await;
    cluster.make(json!({})).await;
    let class = cluster.class().await;
    assert_eq!(condition(&class, "Ready").0, "True");
    let status = class.status.clone().unwrap();
    assert_eq!(status.images.len(), 3);
    assert!(status.images[0].id.ends_with("/versions/202608.1.0"));
    assert!(status.kubernetes_version.is_some());
    assert_eq!(
        class.metadata.finalizers,
        Some(vec!["karpenter.azure.com/termination".to_owned()])
    );
    let hash = class.annotation(HASH).unwrap().to_owned();
    cluster.provider.instance_types(&pool()).await.unwrap();

    let tagged = cluster.change(json!({"spec": {"tags": {"team": "a"}}})).await;
    assert_eq!(tagged.annotation(HASH), Some(hash.as_str()), "tags drift nothing");
    let refused = cluster
        .change(json!({"spec": {"artifactStreaming": {"enabled": true}}}))
        .await;
    let (ready, _) = condition(&refused, "Ready");
    let (validation, message) = condition(&refused, "ValidationSucceeded");
    assert_eq!((ready.as_str(), validation.as_str()), ("False", "False"));
    assert!(message.contains("spec.artifactStreaming.enabled"), "{message}");
    assert_ne!(refused.annotation(HASH), Some(hash.as_str()));
    let mended = cluster.change(json!({"spec": {"artifactStreaming": null}})).await;
    assert_eq!(condition(&mended, "Ready").0, "True");
    assert_eq!(mended.annotation(HASH), Some(hash.as_str()));
}

#[tokio::test(start_paused = true)]
async fn z_004_a_class_stays_while_it_is_used_and_claims_of_another_hash_are_stamped() {
    let cluster = OnCluster::new().await;
    cluster.make(json!({})).await;
    let claims: Api<NodeClaim> = Api::all(cluster.client.clone());
    let used = stamped_by_karpenter("a");
    claims.create(&PostParams::default(), &used).await.unwrap();
    cluster.pass(600).await;
    let stamped = claims.get("a").await.unwrap();
    assert_eq!(stamped.annotation(HASH), cluster.class().await.annotation(HASH));
    cluster
        .classes()
        .delete("class", &DeleteParams::default())
        .await
        .unwrap();
    cluster.pass(60).await;
    assert!(cluster.class().await.is_deleting());
    claims.delete("a", &DeleteParams::default()).await.unwrap();
    cluster.pass(60).await;
    assert!(cluster.classes().get_opt("class").await.unwrap().is_none());
}

/// A NodeClaim that an admission policy keeps as it is keeps no other from its hash, and no class from saying how it is.
#[tokio::test(start_paused = true)]
async fn z_004_a_claim_that_may_not_be_stamped_keeps_no_other_and_no_status() {
    let cluster = OnCluster::new().await;
    cluster.make(json!({})).await;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(cluster.client.clone());
    let rule = json!({"apiGroups": ["karpenter.sh"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["nodeclaims"]});
    let policy = json!({"metadata": {"name": "guard"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "object.metadata.name != 'a'"}]}});
    let binding = json!({"metadata": {"name": "guard"}, "spec": {"policyName": "guard", "validationActions": ["Deny"]}});
    let (policy, binding) = (
        serde_json::from_value(policy).unwrap(),
        serde_json::from_value(binding).unwrap(),
    );
    policies.create(&PostParams::default(), &policy).await.unwrap();
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let claims: Api<NodeClaim> = Api::all(cluster.client.clone());
    for name in ["a", "b"] {
        let theirs = stamped_by_karpenter(name);
        claims.create(&PostParams::default(), &theirs).await.unwrap();
    }
    cluster.pass(5).await;
    let change = json!({"spec": {"artifactStreaming": {"enabled": true}}});
    let class = cluster.change(change).await;
    assert_eq!(condition(&class, "Ready").0, "False");
    let hash = async |name: &str| {
        let claim = claims.get(name).await.unwrap();
        claim.annotation(HASH).map(str::to_owned)
    };
    assert_eq!(hash("a").await.as_deref(), Some("1"));
    assert_ne!(hash("b").await.as_deref(), Some("1"));
    bindings.delete("guard", &DeleteParams::default()).await.unwrap();
    cluster.pass(90).await;
    assert_eq!(hash("a").await.as_deref(), class.annotation(HASH));
}

#[tokio::test(start_paused = true)]
async fn z_011_images_stay_outside_of_the_window() {
    let cluster = OnCluster::new().await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "kube-system"}})).unwrap();
    // It may be there already.
    drop(namespaces.create(&PostParams::default(), &namespace).await);
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "kube-system");
    let window = |start: &str, end: &str| {
        json!({"metadata": {"name": "upcoming-maintenance-window"},
               "data": {"aksManagedNodeOSUpgradeSchedule-start": start, "aksManagedNodeOSUpgradeSchedule-end": end}})
    };
    let closed = serde_json::from_value(window("2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z")).unwrap();
    maps.create(&PostParams::default(), &closed).await.unwrap();
    cluster.make(json!({})).await;
    let fresh = cluster.class().await.status.unwrap().images[0].id.clone();
    // As if the class had got its images before the gallery had a newer version.
    let mut images = serde_json::to_value(cluster.class().await.status.unwrap().images).unwrap();
    let old = fresh.replace("202608", "202607");
    images[0]["id"] = json!(old);
    let patch = json!({"status": {"images": images}});
    let patched = cluster
        .classes()
        .patch_status("class", &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    patched.unwrap();
    cluster.pass(600).await;
    assert_eq!(cluster.class().await.status.unwrap().images[0].id, old);
    let open = window("2026-08-31T00:00:00Z", "2026-09-02T00:00:00Z");
    let patched = maps
        .patch(
            "upcoming-maintenance-window",
            &PatchParams::default(),
            &Patch::Merge(&open),
        )
        .await;
    patched.unwrap();
    cluster.pass(600).await;
    assert_eq!(cluster.class().await.status.unwrap().images[0].id, fresh);
}

#[tokio::test(start_paused = true)]
async fn z_053_z_055_what_nodes_say() {
    let cluster = OnCluster::new().await;
    cluster.make(json!({})).await;
    let wanted = claim(
        "a",
        &[
            (labels::INSTANCE_TYPE, &["Standard_D4s_v5"]),
            (labels::CAPACITY_TYPE, &["spot"]),
        ],
    );
    let mut created = cluster.provider.create(&wanted).await.unwrap();
    let version = cluster.class().await.status.unwrap().kubernetes_version.unwrap();
    let tag = "spokeshave.dev_kubernetes-version";
    assert_eq!(cluster.azure.machines()[0]["tags"][tag], version.as_str());
    // The image decides about the patch version: the kubelet of a replacement says the same again.
    let (minor, _) = version.rsplit_once('.').unwrap();
    let kubelet = format!("v{minor}.99");
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let message = "Preempt Scheduled: Tue, 01 Sep 2026 00:05:00 GMT. EventId: e-1";
    let node = json!({
        "metadata": {"name": "aks-a", "labels": created.metadata.labels},
        "spec": {"providerID": created.provider_id()},
        "status": {"nodeInfo": {
            "kubeletVersion": kubelet, "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
            "kubeProxyVersion": "", "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": "",
        }},
    });
    let node: Node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    drop(nodes.replace_status("aks-a", &PostParams::default(), &node).await);
    cluster.pass(5).await;
    created.status.as_mut().unwrap().node_name = Some("aks-a".to_owned());
    let mut class = cluster.class().await;
    let drift = async |class: &AKSNodeClass| {
        let asked = cluster.provider.is_drifted(&created, Some(&shown(class))).await;
        asked.unwrap()
    };
    assert_eq!(drift(&class).await, None, "it is what was asked for");

    let says = async |condition: &str, reason: &str, message: &str| {
        let patch = json!({"status": {
            "conditions": [{"type": condition, "status": "True", "reason": reason, "message": message}],
        }});
        let patched = nodes
            .patch_status("aks-a", &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched.unwrap();
    };
    // The machine survives this one, which is no news.
    let freeze = "Freeze Scheduled: Tue, 01 Sep 2026 00:03:00 GMT. DurationInSeconds: 5. EventId: e-0";
    says("VMEventScheduled", "VMEventScheduled", freeze).await;
    cluster.pass(5).await;
    says("PreemptionScheduled", "SpotEvictionIncoming", message).await;
    let mut told = cluster.provider.interruptions().unwrap();
    let notice = told.next().await.unwrap();
    assert_eq!(notice.kind, Ok(InterruptionKind::SpotInterrupted));
    assert_eq!(Some(notice.provider_id.as_str()), created.provider_id());
    assert_eq!(notice.ends_at, Some("2026-09-01T00:05:00Z".parse().unwrap()));
    cluster.provider.acknowledge(&notice).await.unwrap();
    // What was taken back is not asked for again: spot of this size in this zone, and nothing else.
    let types = cluster.provider.instance_types(&pool()).await.unwrap();
    let d4 = types.iter().find(|it| it.name == "Standard_D4s_v5").unwrap();
    let zone = created.label(labels::ZONE).unwrap();
    for offering in &d4.offerings {
        let is_it = offering.zone() == Some(zone) && offering.capacity_type().unwrap().as_str() == "spot";
        assert_eq!(offering.available, !is_it, "{:?}", offering.requirements);
    }
    let nothing = tokio::time::timeout(Duration::from_secs(120), told.next()).await;
    assert!(nothing.is_err(), "an event is told once: {nothing:?}");
    // A machine that nobody has written it down for: the kubelet's word counts, and the replacement has the tag.
    let written = [(tag.to_owned(), version.clone())].into();
    let id = created.provider_id().unwrap();
    let retagged = cluster.provider.change_tags(id, &written, &BTreeMap::new()).await;
    retagged.unwrap();
    assert_eq!(drift(&class).await.as_deref(), Some("K8sVersionDrift"));
    let retagged = cluster.provider.change_tags(id, &BTreeMap::new(), &written).await;
    retagged.unwrap();
    assert_eq!(drift(&class).await, None);
    // New nodes get another version.
    class.status.as_mut().unwrap().kubernetes_version = Some("1.99.0".to_owned());
    assert_eq!(drift(&class).await.as_deref(), Some("K8sVersionDrift"));
}
