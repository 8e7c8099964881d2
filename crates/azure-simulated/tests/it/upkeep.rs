//! Machines that end by others' hands, what is left over, drift, and classes while Azure does not say what it did (Z-012, Z-014, Z-050, Z-051, Z-053).

use std::collections::BTreeSet;

use serde_json::json;
use spokeshave_api::aks_node_class::NodeImage;
use spokeshave_api::{AKSNodeClass, AKSNodeClassSpec};
use spokeshave_azure_simulated::Options;
use spokeshave_ports::CloudProvider as _;
use spokeshave_provider_azure::status;

use crate::world::{World, on_demand, shown, with_aks};

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
    let mut class = world.class("class", AKSNodeClassSpec::default()).await;
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

fn images(class: &AKSNodeClass) -> Vec<NodeImage> {
    class.status.clone().unwrap_or_default().images
}

/// All nodes of the image would be replaced, by some of another one, and those again.
#[tokio::test(start_paused = true)]
async fn z_012_z_053_an_image_that_has_no_version_for_a_moment_is_not_gone() {
    for options in [Options::instant(), with_aks(Options::instant())] {
        let world = World::new(options).await;
        let claim = on_demand("a", "Standard_D4s_v5");
        let created = world.provider.create(&claim).await.unwrap();
        let class = world.class("class", AKSNodeClassSpec::default()).await;
        let look = async |class: &AKSNodeClass| {
            let looked = world.provider.reconcile_class(class, Some("v1.34.1"), true);
            looked.await.0
        };
        let drift = async |class: &AKSNodeClass| {
            let asked = world.provider.is_drifted(&created, Some(&shown(class))).await;
            asked.unwrap()
        };
        world.azure.hide_image("2404gen2containerd");
        // An answer holds for two minutes.
        world.pass(121).await;
        let kept = look(&class).await;
        assert_eq!(images(&kept), images(&class));
        assert_eq!(drift(&kept).await, None);
        for image in ["2404containerd", "2404gen2arm64containerd"] {
            world.azure.hide_image(image);
        }
        world.pass(121).await;
        let kept = look(&kept).await;
        assert_eq!(images(&kept), images(&class), "nor are all of them");
        assert!(status::is_ready(&kept));
        let young = world.class("young", AKSNodeClassSpec::default()).await;
        assert!(!status::is_ready(&young), "what never had one has none to keep");
        world.pass(3600).await;
        let gone = look(&kept).await;
        assert_eq!(images(&gone), [], "an hour is no moment");
        assert!(!status::is_ready(&gone));
        assert_eq!(drift(&gone).await, None);
        world.azure.heal();
        world.pass(121).await;
        let back = look(&gone).await;
        assert_eq!(images(&back), images(&class));
        assert!(status::is_ready(&back));
    }
}

#[tokio::test(start_paused = true)]
async fn z_014_a_class_that_is_ready_stays_so_while_arm_takes_no_questions() {
    let world = World::new(Options::instant()).await;
    let class = world.class("class", AKSNodeClassSpec::default()).await;
    world.pass(121).await;
    // About images, and about the subnet.
    world.azure.throttle(2, 600);
    let looked = world.provider.reconcile_class(&class, Some("v1.34.1"), true);
    let (kept, again) = looked.await;
    assert!(status::is_ready(&kept), "{:?}", kept.status);
    assert_eq!(again.as_secs(), 60);
    world.provider.put_class(kept);
    let claim = on_demand("a", "Standard_D4s_v5");
    world.provider.create(&claim).await.unwrap();
}

/// Resource Graph has no order of its own: what is not on one page may be on no other.
#[tokio::test(start_paused = true)]
async fn z_050_more_machines_than_a_page_holds_are_all_listed() {
    let world = World::new(Options::instant()).await;
    let names: BTreeSet<String> = (0..60).map(|number| format!("m-{number}")).collect();
    for name in &names {
        let claim = on_demand(name, "Standard_D4s_v5");
        world.provider.create(&claim).await.unwrap();
    }
    // Until then each is looked up besides.
    world.pass(600).await;
    for _ in 0..5 {
        let listed = world.provider.list().await.unwrap();
        let listed: BTreeSet<String> = listed.iter().map(|one| one.name().to_owned()).collect();
        assert_eq!(listed, names);
    }
}
