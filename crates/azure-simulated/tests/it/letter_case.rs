//! Settings and NodeClaims in other letters than Azure's: a machine is the same whatever the case of its ID, and core must not be told otherwise (Z-050, Z-051).

use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_api::NodeClaim;
use spokeshave_azure_cloud::{AzureOptions, AzureProvider};
use spokeshave_azure_simulated::Options;
use spokeshave_ports::{CloudError, CloudProvider as _};
use spokeshave_provider_azure::bootstrap::KUBEADM;
use spokeshave_runtime::read_only;

use crate::cluster::OnCluster;
use crate::world::{World, on_demand, provider_options, with_aks};

const SIZE: &str = "Standard_D4s_v5";

async fn ids(provider: &AzureProvider) -> Vec<String> {
    let listed = provider.list().await.unwrap();
    let id = |claim: &NodeClaim| claim.provider_id().unwrap_or_default().to_owned();
    listed.iter().map(id).collect()
}

#[tokio::test(start_paused = true)]
async fn z_050_a_subscription_that_is_set_in_capital_letters_calls_no_machine_otherwise() {
    for options in [Options::slow(), with_aks(Options::slow())] {
        let mut world = World::new(options.clone()).await;
        let created = world.provider.create(&on_demand("a", SIZE)).await.unwrap();
        let id = created.provider_id().unwrap();
        world.pass(900).await;
        let mut settings = provider_options(&options);
        settings.place.subscription = "SUB".to_owned();
        world.give_provider(settings).await;
        assert_eq!(ids(&world.provider).await, [id]);
        let got = world.provider.get(id).await.unwrap();
        assert_eq!(got.provider_id(), Some(id));
        let other = world.provider.create(&on_demand("b", SIZE)).await.unwrap();
        assert!(
            other
                .provider_id()
                .unwrap()
                .starts_with("azure:///subscriptions/sub/")
        );
        world.provider.delete(&created).await.unwrap();
    }
}

/// As a former setting had it, or Karpenter, whose IDs are ARM's own: garbage collection would end the machine of an ID that no NodeClaim has.
#[tokio::test(start_paused = true)]
async fn z_050_z_051_a_machine_keeps_the_id_that_its_nodeclaim_has_written_down() {
    let cluster = OnCluster::of(Options::instant(), KUBEADM).await;
    cluster.make(json!({})).await;
    let created = cluster.provider.create(&on_demand("a", SIZE)).await.unwrap();
    let id = created.provider_id().unwrap();
    let written = id.replace("subscriptions/sub/", "subscriptions/SUB/");
    assert_ne!(id, written);
    let claims: Api<NodeClaim> = Api::all(cluster.client.clone());
    claims.create(&PostParams::default(), &created).await.unwrap();
    let status = Patch::Merge(json!({"status": {"providerID": written}}));
    let patched = claims.patch_status("a", &PatchParams::default(), &status).await;
    patched.unwrap();
    cluster.pass(5).await;
    assert_eq!(ids(&cluster.provider).await, [written.as_str()]);
    for asked in [id, written.as_str()] {
        let got = cluster.provider.get(asked).await.unwrap();
        assert_eq!(got.provider_id(), Some(written.as_str()));
    }

    let settings = AzureOptions {
        bootstrap_template: KUBEADM.to_owned(),
        ..provider_options(&Options::instant())
    };
    let client = read_only(cluster.client.clone());
    let successor = AzureProvider::of_cluster(cluster.outside(), client, cluster.clock(), settings);
    let early = successor.list().await.unwrap_err();
    assert!(
        matches!(&early, CloudError::Postponed { message, .. } if message.contains("once NodeClaims are known")),
        "it does not know yet what they have written down: {early:?}"
    );
    let follower = successor.clone();
    let following = tokio::spawn(async move { follower.follow().await });
    cluster.pass(15).await;
    assert_eq!(ids(&successor).await, [written.as_str()]);
    following.abort();
}
