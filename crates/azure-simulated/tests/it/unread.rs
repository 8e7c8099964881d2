//! AKSNodeClasses and NodeClaims that are not listed yet or cannot be read: what may be there is not taken for gone (Z-004, Z-031).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_api::crds::without_schema;
use spokeshave_api::{AKSNodeClass, NodeClaim};
use spokeshave_azure_cloud::{AzureOptions, AzureProvider};
use spokeshave_azure_simulated::Options;
use spokeshave_ports::{CloudError, CloudProvider as _};
use spokeshave_provider_azure::bootstrap::KUBEADM;
use spokeshave_runtime::read_only;

use crate::cluster::OnCluster;
use crate::world::{on_demand, pool, provider_options};

const SIZE: &str = "Standard_D4s_v5";

#[tokio::test(start_paused = true)]
async fn z_031_a_successor_that_has_not_listed_classes_yet_keeps_what_its_predecessor_has_launched() {
    let cluster = OnCluster::of(Options::instant(), KUBEADM).await;
    cluster.make(json!({})).await;
    let wanted = on_demand("a", SIZE);
    let made = cluster.provider.create(&wanted).await.unwrap();
    let settings = AzureOptions {
        bootstrap_template: KUBEADM.to_owned(),
        ..provider_options(&Options::instant())
    };
    let client = read_only(cluster.client.clone());
    let successor = AzureProvider::of_cluster(cluster.outside(), client, cluster.clock(), settings);
    let words = "AKSNodeClass class is not known yet";
    let refused = successor.create(&wanted).await.unwrap_err();
    assert!(
        matches!(&refused, CloudError::Create { reason, message } if reason == "NodeClassUnknown" && message.contains(words)),
        "it is tried again, and the NodeClaim stays: {refused:?}"
    );
    let types = successor.instance_types(&pool()).await.unwrap_err();
    assert!(
        matches!(&types, CloudError::Postponed { message, .. } if message.contains(words)),
        "{types:?}"
    );
    let follower = successor.clone();
    let following = tokio::spawn(async move { follower.follow().await });
    cluster.pass(15).await;
    let adopted = successor.create(&wanted).await.unwrap();
    assert_eq!(adopted.provider_id(), made.provider_id());
    assert_eq!(cluster.azure.machines().len(), 1);
    let mut lost = on_demand("b", SIZE);
    lost.spec.node_class_ref.name = "gone".to_owned();
    let refused = successor.create(&lost).await.unwrap_err();
    assert!(
        matches!(&refused, CloudError::InsufficientCapacity(message) if message.contains("AKSNodeClass gone does not exist")),
        "{refused:?}"
    );
    following.abort();
}

/// Takes the schema of NodeClaims away, as the definitions of another version may allow what this one cannot read.
async fn allow_any_claim(cluster: &OnCluster) {
    let name = "nodeclaims.karpenter.sh";
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let definition = without_schema(definitions.get(name).await.unwrap());
    let as_it_is = PostParams::default();
    definitions.replace(name, &as_it_is, &definition).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn z_004_a_deleted_class_waits_for_nodeclaims_that_cannot_be_read() {
    let cluster = OnCluster::of(Options::instant(), KUBEADM).await;
    cluster.make(json!({})).await;
    allow_any_claim(&cluster).await;
    let mut spoilt = serde_json::to_value(on_demand("a", SIZE)).unwrap();
    spoilt["spec"]["taints"] = json!("none");
    let spoilt: DynamicObject = serde_json::from_value(spoilt).unwrap();
    let kind = ApiResource::erase::<NodeClaim>(&());
    let claims: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &kind);
    claims.create(&PostParams::default(), &spoilt).await.unwrap();
    let classes: Api<AKSNodeClass> = Api::all(cluster.client.clone());
    classes.delete("class", &DeleteParams::default()).await.unwrap();
    cluster.pass(60).await;
    assert!(
        classes.get_opt("class").await.unwrap().is_some(),
        "the NodeClaim may use it"
    );
    let mended = Patch::Merge(json!({"spec": {"taints": null}}));
    let patched = claims.patch("a", &PatchParams::default(), &mended).await;
    patched.unwrap();
    cluster.pass(60).await;
    assert!(classes.get_opt("class").await.unwrap().is_some(), "it does");
    claims.delete("a", &DeleteParams::default()).await.unwrap();
    cluster.pass(60).await;
    assert!(classes.get_opt("class").await.unwrap().is_none());
}

/// Whoever serves the metrics counts them together with those of all other watches.
#[tokio::test(start_paused = true)]
async fn watches_of_the_provider_that_fail_are_counted_by_kind() {
    let cluster = OnCluster::of(Options::instant(), KUBEADM).await;
    let failures = cluster.provider.watch_failures().unwrap();
    cluster.pass(10).await;
    assert!(failures.take().is_empty());
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let name = "nodeclaims.karpenter.sh";
    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    cluster.pass(10).await;
    let counted: Vec<String> = failures.take().into_keys().collect();
    assert_eq!(counted, ["NodeClaim"]);
}
