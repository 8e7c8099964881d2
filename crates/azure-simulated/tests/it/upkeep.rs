//! Machines that end by others' hands, what is left over, drift (Z-050, Z-051, Z-053).

use serde_json::json;
use spokeshave_api::AKSNodeClass;
use spokeshave_azure_simulated::Options;
use spokeshave_ports::CloudProvider as _;

use crate::world::{World, on_demand, shown};

#[tokio::test(start_paused = true)]
async fn z_050_what_the_graph_does_not_know_yet_is_listed() {
    let world = World::new(Options::slow()).await;
    let created = world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap();
    let listed = world.provider.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name(), "a");
    assert_eq!(listed[0].provider_id(), created.provider_id());
    assert!(listed[0].metadata.creation_timestamp.is_some());
    world.pass(900).await;
    assert_eq!(
        world.provider.list().await.unwrap().len(),
        1,
        "now from the graph"
    );
}

#[tokio::test(start_paused = true)]
async fn z_051_a_machine_that_was_evicted_is_gone() {
    let world = World::new(Options::slow()).await;
    let created = world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap();
    world.pass(900).await;
    world.azure.evict("aks-a");
    let provider_id = created.provider_id().unwrap();
    assert!(world.provider.get(provider_id).await.unwrap_err().is_not_found());
    assert!(world.provider.delete(&created).await.unwrap_err().is_not_found());
    assert_eq!(
        world.provider.list().await.unwrap(),
        [],
        "though the graph still shows it"
    );
    assert_eq!(world.azure.interfaces(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn z_051_an_interface_without_machine_is_collected_when_nobody_holds_it() {
    let world = World::new(Options::instant()).await;
    let tags = json!({
        "karpenter.azure.com_cluster": "cluster",
        "karpenter.sh_nodepool": "pool",
        "spokeshave.dev_created-at": world.clock.now().to_string(),
    });
    world.azure.leave_interface("aks-left", &tags);
    world.azure.leave_interface(
        "somebodys",
        &json!({"karpenter.sh_nodepool": "pool", "karpenter.azure.com_cluster": "another"}),
    );
    let delete = "DELETE /subscriptions/sub/resourceGroups/Nodes/providers/Microsoft.Network/networkInterfaces/aks-left";
    world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap();
    world.pass(9 * 60).await;
    assert_eq!(world.asked(delete), 0, "when it was looked for, it was too young");
    world.azure.reserve_interface("aks-left");
    world.pass(60).await;
    assert_eq!(world.asked(delete), 1);
    assert_eq!(world.azure.interfaces().len(), 3, "it is held");
    world.pass(10 * 60).await;
    assert_eq!(world.asked(delete), 2);
    assert_eq!(world.azure.interfaces(), ["aks-a", "somebodys"]);
    assert_eq!(world.machines().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn z_051_strangers_machines_are_not_touched() {
    let world = World::new(Options::instant()).await;
    world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap();
    let mut other = on_demand("b", "Standard_D4s_v5");
    other.status = Some(spokeshave_api::NodeClaimStatus {
        provider_id: Some("azure:///subscriptions/other/resourceGroups/nodes/providers/Microsoft.Compute/virtualMachines/aks-a".to_owned()),
        ..Default::default()
    });
    assert!(world.provider.delete(&other).await.unwrap_err().is_not_found());
    // A NodeClaim that was never launched, of the same name as one that was.
    let mut namesake = on_demand("a", "Standard_D4s_v5");
    namesake.metadata.uid = Some("another".to_owned());
    assert!(world.provider.delete(&namesake).await.unwrap_err().is_not_found());
    assert_eq!(world.machines().len(), 1);
    // The one that was launched and not written down ends by its name.
    world
        .provider
        .delete(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap();
    assert_eq!(world.machines().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn z_053_a_new_image_drifts_what_runs_the_old_one() {
    let world = World::new(Options::instant()).await;
    let created = world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap();
    let mut class = world
        .class("class", spokeshave_api::AKSNodeClassSpec::default())
        .await;
    let drift = async |class: &AKSNodeClass| {
        let asked = world.provider.is_drifted(&created, Some(&shown(class))).await;
        asked.unwrap()
    };
    assert_eq!(drift(&class).await, None);
    for image in &mut class.status.as_mut().unwrap().images {
        image.id = image.id.replace("202608.1.0", "202609.1.0");
    }
    assert_eq!(drift(&class).await.as_deref(), Some("ImageDrift"));
}
