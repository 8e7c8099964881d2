//! Machines of AKS after the mode, or the agent pool, has become another one (Z-040): they stay managed as long as NodeClaims have them.

use std::sync::Arc;

use kube::api::{Api, PostParams};
use serde_json::json;
use spokeshave_api::{AKSNodeClass, AKSNodeClassSpec, NodeClaim};
use spokeshave_azure_cloud::{AzureOptions, AzureProvider};
use spokeshave_azure_simulated::Options;
use spokeshave_ports::{CloudError, CloudProvider as _, NoWrites};
use spokeshave_provider_azure::aks_machines::former_pools;

use crate::cluster::OnCluster;
use crate::world::{World, on_demand, provider_options, shown, with_aks};

const SIZE: &str = "Standard_D4s_v5";

/// Settings by which the provider makes virtual machines itself, and knows no agent pool.
fn by_template() -> AzureOptions {
    provider_options(&Options {
        machine_pool: None,
        ..with_aks(Options::slow())
    })
}

#[tokio::test(start_paused = true)]
async fn z_040_machines_of_aks_stay_managed_when_the_mode_is_another_one_again() {
    let mut world = World::new(with_aks(Options::slow())).await;
    let old = world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    world.pass(900).await;
    let former = former_pools([&old], None);
    assert_eq!(former.len(), 1);
    world
        .give_provider(AzureOptions {
            former_pools: former,
            ..by_template()
        })
        .await;
    let new = world.provider.create(&on_demand("b", SIZE)).await.unwrap();
    assert_eq!(
        world.azure.aks_machines(),
        ["a"],
        "new machines are no machines of AKS"
    );
    world.pass(900).await;
    let listed = world.provider.list().await.unwrap();
    let mut names: Vec<&str> = listed.iter().map(|claim| claim.name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b"]);
    assert!(world.provider.get(old.provider_id().unwrap()).await.is_ok());
    let class = world.class("class", AKSNodeClassSpec::default()).await;
    let drifted = world.provider.is_drifted(&old, Some(&shown(&class))).await;
    assert_eq!(
        drifted.unwrap().as_deref(),
        Some("ImageDrift"),
        "they are replaced as budgets allow"
    );
    for claim in [&old, &new] {
        world.provider.delete(claim).await.unwrap();
    }
    let by_compute = |line: &&String| line.starts_with("DELETE") && line.contains("aks-machines");
    assert_eq!(
        world.azure.log().iter().filter(by_compute).count(),
        0,
        "AKS ends what it has made"
    );
    world.pass(120).await;
    assert_eq!(world.machines(), []);
    assert_eq!(world.azure.aks_machines(), Vec::<String>::new());
    assert!(world.provider.delete(&old).await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn z_040_a_pool_that_only_nodeclaims_name_and_that_is_gone_is_empty() {
    let mut world = World::new(with_aks(Options::slow())).await;
    let mut old = world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    let text = serde_json::to_string(&old).unwrap();
    old = serde_json::from_str(
        &text
            .replace("agentPools/machines/", "agentPools/gone/")
            .replace("aks-machines-", "aks-gone-"),
    )
    .unwrap();
    let former = former_pools([&old], with_aks(Options::slow()).machine_pool.as_ref());
    assert_eq!(former.len(), 1);
    world
        .give_provider(AzureOptions {
            former_pools: former,
            ..provider_options(&with_aks(Options::slow()))
        })
        .await;
    world.pass(900).await;
    let listed = world.provider.list().await.unwrap();
    assert_eq!(
        listed.len(),
        1,
        "the machine of the pool that there is: {listed:?}"
    );
    assert!(
        world
            .provider
            .get(old.provider_id().unwrap())
            .await
            .unwrap_err()
            .is_not_found()
    );
    assert!(world.provider.delete(&old).await.unwrap_err().is_not_found());
}

/// Another operator launches in an agent pool of AKS while this one, whose settings name none, runs.
#[tokio::test(start_paused = true)]
async fn z_040_a_pool_that_a_nodeclaim_names_since_the_start_is_managed() {
    let cluster = OnCluster::of_provider(with_aks(Options::instant()), by_template()).await;
    cluster.make(json!({})).await;
    let other = AzureProvider::new(
        cluster.outside(),
        cluster.clock(),
        provider_options(&with_aks(Options::instant())),
    );
    let leading = other.clone();
    let leader = tokio::spawn(async move { leading.lead(Arc::new(NoWrites)).await });
    cluster.pass(30).await;
    let class = AKSNodeClass::new("class", AKSNodeClassSpec::default());
    let (class, _) = other.reconcile_class(&class, Some("v1.34.1"), true).await;
    other.put_class(class);
    let created = other.create(&on_demand("a", SIZE)).await.unwrap();
    assert_eq!(
        cluster.provider.list().await.unwrap(),
        [],
        "nobody names its pool"
    );
    let claims: Api<NodeClaim> = Api::all(cluster.client.clone());
    claims.create(&PostParams::default(), &created).await.unwrap();
    cluster.pass(5).await;
    assert_eq!(cluster.provider.list().await.unwrap().len(), 1);
    assert!(cluster.provider.get(created.provider_id().unwrap()).await.is_ok());
    cluster.provider.delete(&created).await.unwrap();
    leader.abort();
    cluster.pass(5).await;
    assert_eq!(
        cluster.azure.aks_machines(),
        Vec::<String>::new(),
        "AKS ends what it has made"
    );
}

#[tokio::test(start_paused = true)]
async fn z_012_z_040_images_of_the_other_mode_are_not_launched() {
    let mut world = World::new(with_aks(Options::slow())).await;
    let of_aks = world.class("class", AKSNodeClassSpec::default()).await;
    world.give_provider(by_template()).await;
    let of_gallery = world.class("class", AKSNodeClassSpec::default()).await;
    world.provider.put_class(of_aks);
    let error = world.provider.create(&on_demand("a", SIZE)).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::NodeClassNotReady(text) if text.contains("another PROVISION_MODE")),
        "{error}"
    );
    world
        .give_provider(provider_options(&with_aks(Options::slow())))
        .await;
    world.provider.put_class(of_gallery);
    let error = world.provider.create(&on_demand("a", SIZE)).await.unwrap_err();
    assert!(matches!(&error, CloudError::NodeClassNotReady(_)), "{error}");
    assert_eq!(world.machines(), [], "nothing was asked for");
}
