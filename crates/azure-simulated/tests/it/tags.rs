//! Tags of machines that run follow their classes, without drift (Z-004, Z-056).

use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::NodeClaim;
use spokeshave_azure_cloud::AzureOptions;
use spokeshave_azure_simulated::Options;
use spokeshave_ports::CloudProvider as _;
use spokeshave_provider_azure::bootstrap::KUBEADM;

use crate::cluster::OnCluster;
use crate::world::{on_demand, provider_options, shown, with_aks};

const APPLIED: &str = "spokeshave.dev/azure-tags";

/// A class with two tags, and a NodeClaim of it that has a machine.
async fn with_machine(options: Options) -> (OnCluster, NodeClaim) {
    let cluster = OnCluster::of(options, KUBEADM).await;
    cluster.make(json!({"tags": {"team": "a", "old": "x"}})).await;
    let created = cluster
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap();
    let claims: Api<NodeClaim> = Api::all(cluster.client.clone());
    let mut made = claims.create(&PostParams::default(), &created).await.unwrap();
    made.status.clone_from(&created.status);
    let status = json!({"status": {"providerID": created.provider_id()}});
    claims
        .patch_status("a", &PatchParams::default(), &Patch::Merge(&status))
        .await
        .unwrap();
    cluster.pass(60).await;
    (cluster, created)
}

async fn retag(cluster: &OnCluster) {
    cluster
        .change(json!({"spec": {"tags": {"team": "b", "cost/center": "1", "old": null}}}))
        .await;
    cluster.pass(30).await;
}

fn assert_tagged(tags: &Value) {
    assert_eq!(
        (&tags["team"], &tags["cost_center"], &tags["old"]),
        (&json!("b"), &json!("1"), &Value::Null),
        "{tags}"
    );
    assert_eq!(
        tags["karpenter.sh_nodeclaim-uid"], "uid-a",
        "whose it is stays: {tags}"
    );
}

async fn applied(cluster: &OnCluster) -> Value {
    let claims: Api<NodeClaim> = Api::all(cluster.client.clone());
    let claim = claims.get("a").await.unwrap();
    serde_json::from_str(claim.annotation(APPLIED).unwrap()).unwrap()
}

async fn drift(cluster: &OnCluster, created: &NodeClaim) -> Option<String> {
    let class = shown(&cluster.class().await);
    let asked = cluster.provider.is_drifted(created, Some(&class)).await;
    asked.unwrap()
}

fn asked(cluster: &OnCluster, start: &str) -> usize {
    let log = cluster.azure.log();
    log.iter().filter(|line| line.starts_with(start)).count()
}

#[tokio::test(start_paused = true)]
async fn z_004_z_056_a_change_of_tags_is_carried_to_machine_and_interface() {
    let (cluster, created) = with_machine(Options::instant()).await;
    assert_eq!(applied(&cluster).await, json!({"team": "a", "old": "x"}));
    assert_eq!(asked(&cluster, "PATCH"), 0, "a launch has tagged all there is");
    retag(&cluster).await;
    assert_tagged(&cluster.azure.machines()[0]["tags"]);
    assert_tagged(&cluster.azure.interface_tags("aks-a"));
    assert_eq!(applied(&cluster).await, json!({"team": "b", "cost_center": "1"}));
    assert_eq!(drift(&cluster, &created).await, None);
    let before = cluster.azure.log().len();
    cluster.pass(100).await;
    assert_eq!(asked(&cluster, "PATCH"), 2);
    let gets = cluster.azure.log()[before..]
        .iter()
        .filter(|line| line.contains("virtualMachines/aks-a"))
        .count();
    assert_eq!(gets, 0, "what is as it should be is not looked up again");
}

#[tokio::test(start_paused = true)]
async fn z_004_z_056_machines_of_aks_are_tagged_where_they_are() {
    let (cluster, created) = with_machine(with_aks(Options::instant())).await;
    let before = asked(&cluster, "PUT");
    retag(&cluster).await;
    assert_tagged(&cluster.azure.machines()[0]["tags"]);
    assert_eq!(asked(&cluster, "PUT"), before + 1);
    assert_eq!(asked(&cluster, "PATCH"), 0, "AKS's virtual machines are AKS's");
    assert_eq!(drift(&cluster, &created).await, None);
    assert_eq!(cluster.provider.list().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn z_056_tags_that_may_not_be_changed_are_tried_again() {
    let (cluster, _) = with_machine(Options::instant()).await;
    cluster.azure.deny("PATCH microsoft.network/networkinterfaces");
    retag(&cluster).await;
    assert_eq!(
        applied(&cluster).await,
        json!({"team": "a", "old": "x"}),
        "half of it is not all of it"
    );
    cluster.azure.heal();
    cluster.pass(90).await;
    assert_tagged(&cluster.azure.interface_tags("aks-a"));
    assert_eq!(applied(&cluster).await, json!({"team": "b", "cost_center": "1"}));
}

/// ARM does not tell names apart by case, and takes none twice.
#[tokio::test(start_paused = true)]
async fn z_056_a_tag_of_settings_and_class_in_two_spellings_is_given_once() {
    for options in [Options::instant(), with_aks(Options::instant())] {
        let settings = AzureOptions {
            additional_tags: [("Team".to_owned(), "z".to_owned())].into(),
            ..provider_options(&options)
        };
        let cluster = OnCluster::of_provider(options, settings).await;
        cluster.make(json!({"tags": {"team": "a"}})).await;
        let claim = on_demand("a", "Standard_D4s_v5");
        cluster.provider.create(&claim).await.unwrap();
        let tags = cluster.azure.machines()[0]["tags"].clone();
        assert_eq!(
            (&tags["team"], &tags["Team"]),
            (&json!("a"), &Value::Null),
            "{tags}"
        );
    }
}
