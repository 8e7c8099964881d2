//! Machines that AKS makes, when something goes wrong (Z-040): failures that are noticed late, names that are used again, settings that name another pool.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::json;
use spokeshave_azure_simulated::{Options, Refusal};
use spokeshave_ports::{CloudError, CloudProvider as _};

use crate::world::{World, on_demand, pool, provider_options, with_aks};

const SIZE: &str = "Standard_D4s_v5";
const DELETE: &str = "POST /subscriptions/sub/resourceGroups/rehearsal/providers/Microsoft.ContainerService/managedClusters/cluster/agentPools/machines/deleteMachines";
const DELETE_VM: &str = "DELETE /subscriptions/sub/resourceGroups/Nodes/providers/Microsoft.Compute";
const OPERATIONS: &str =
    "GET /subscriptions/sub/providers/Microsoft.ContainerService/locations/southcentralus/operations/";

/// Machines of the size are accepted and fail when they should be made.
fn fails_later(code: &str) -> Refusal {
    Refusal {
        size: Some(SIZE.to_owned()),
        code: code.to_owned(),
        message: "no capacity".to_owned(),
        ..Refusal::default()
    }
}

/// Name of the virtual machine of a NodeClaim.
fn vm(claim: &spokeshave_api::NodeClaim) -> &str {
    claim.provider_id().unwrap().rsplit('/').next().unwrap()
}

/// Whether the provider says that a machine has ended.
async fn says_something(world: &World) -> bool {
    let mut messages = world.provider.interruptions().unwrap();
    tokio::time::timeout(Duration::from_secs(40), messages.next())
        .await
        .is_ok()
}

/// Zones and capacity types of the size that are left out.
async fn left_out(world: &World) -> usize {
    let types = world.provider.instance_types(&pool()).await.unwrap();
    let size = types.iter().find(|it| it.name == SIZE).unwrap();
    size.offerings.iter().filter(|it| !it.available).count()
}

#[tokio::test(start_paused = true)]
async fn z_033_z_040_the_failure_of_a_machine_does_not_end_the_next_one_of_its_name() {
    let world = World::new(with_aks(Options::slow())).await;
    let claim = on_demand("a", SIZE);
    world.azure.refuse(fails_later("ZonalAllocationFailed"));
    world
        .azure
        .deny("GET microsoft.containerservice/locations/operations");
    // The status of the NodeClaim cannot be written: the launch is repeated.
    let first = world.provider.create(&claim).await.unwrap();
    world.pass(45).await;
    let error = world.provider.create(&claim).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::Create { reason, message } if reason == "ZonalAllocationFailure" && message.contains("no capacity")),
        "{error}"
    );
    world.azure.refuse_nothing();
    world.pass(95).await;
    let second = world.provider.create(&claim).await.unwrap();
    assert_ne!(first.provider_id(), second.provider_id());
    // Now the first one's operation says that it has failed.
    world.azure.heal();
    world.pass(15 * 60).await;
    assert_eq!(world.machines(), [(SIZE.to_owned(), "Succeeded".to_owned())]);
    assert_eq!(world.asked(DELETE), 1);
    assert!(!says_something(&world).await);
}

#[tokio::test(start_paused = true)]
async fn z_040_z_051_a_machine_in_use_that_azure_calls_failed_is_left_as_it_is() {
    let world = World::new(with_aks(Options::slow())).await;
    let created = world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    world.pass(16 * 60).await;
    world
        .azure
        .fail(vm(&created), "VMExtensionProvisioningError", "an extension");
    world.pass(3600).await;
    assert_eq!(world.machines(), [(SIZE.to_owned(), "Failed".to_owned())]);
    assert_eq!(world.asked(DELETE), 0);
    assert!(!says_something(&world).await);
    assert!(world.provider.get(created.provider_id().unwrap()).await.is_ok());
    assert_eq!(world.provider.list().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn z_040_z_051_a_young_machine_that_fails_after_its_operation_ends_and_its_offering_is_left_out() {
    let world = World::new(with_aks(Options::slow())).await;
    let created = world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    world.pass(60).await;
    assert_eq!(left_out(&world).await, 0);
    world
        .azure
        .fail(vm(&created), "ZonalAllocationFailed", "no capacity");
    world.pass(5 * 60).await;
    assert_eq!(left_out(&world).await, 2, "both capacity types of the zone");
    assert!(says_something(&world).await);
    world.pass(120).await;
    assert_eq!(world.machines(), []);
    assert_eq!(world.asked(DELETE), 1);
}

#[tokio::test(start_paused = true)]
async fn z_040_a_failed_machine_that_was_never_named_is_removed_by_its_name_at_aks() {
    let options = Options {
        making: jiff::SignedDuration::from_secs(100),
        ..Options::slow()
    };
    let world = World::new(with_aks(options)).await;
    world.azure.leave_unnamed();
    world.azure.refuse(fails_later("ZonalAllocationFailed"));
    let error = world.provider.create(&on_demand("a", SIZE)).await.unwrap_err();
    assert!(matches!(error, CloudError::Timeout(_)), "{error}");
    assert_eq!(world.azure.aks_machines(), ["a"]);
    world.pass(8 * 60).await;
    assert_eq!(world.azure.aks_machines(), Vec::<String>::new());
    assert_eq!((world.asked(DELETE), world.asked(DELETE_VM)), (1, 0));
    assert!(!says_something(&world).await, "no NodeClaim knows it");
}

#[tokio::test(start_paused = true)]
async fn z_040_a_machine_that_aks_never_names_is_removed_when_no_launch_waits_for_it_any_more() {
    let world = World::new(with_aks(Options::slow())).await;
    world.azure.leave_unnamed();
    world.provider.create(&on_demand("a", SIZE)).await.unwrap_err();
    world.pass(13 * 60).await;
    assert_eq!(world.azure.aks_machines(), ["a"]);
    world.pass(10 * 60).await;
    assert_eq!(world.azure.aks_machines(), Vec::<String>::new());
    assert_eq!((world.asked(DELETE), world.asked(DELETE_VM)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn z_040_a_pool_or_cluster_that_is_not_found_says_nothing_about_its_machines() {
    let mut world = World::new(with_aks(Options::instant())).await;
    let created = world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    let mut unwritten = created.clone();
    unwritten.status = None;
    for (name, spoil) in [("Resource group 'elsewhere'", 0), ("agentpool 'elsewhere'", 1)] {
        let mut options = provider_options(&with_aks(Options::instant()));
        let pool = options.machine_pool.as_mut().unwrap();
        let elsewhere = "elsewhere".to_owned();
        match spoil {
            0 => pool.resource_group = elsewhere,
            _ => pool.name = elsewhere,
        }
        world.give_provider(options).await;
        // A virtual machine of another pool is none of AKS's here: only Compute is asked for it.
        let known = if spoil == 0 { &created } else { &unwritten };
        let errors = [
            world.provider.delete(known).await.unwrap_err(),
            world.provider.delete(&unwritten).await.unwrap_err(),
            world.provider.create(&on_demand("b", SIZE)).await.unwrap_err(),
            world.provider.list().await.unwrap_err(),
        ];
        for error in errors {
            assert!(!error.is_not_found(), "{error:?}");
            assert!(error.to_string().contains(name), "{error}");
        }
        if spoil == 0 {
            let error = world.provider.get(created.provider_id().unwrap()).await;
            assert!(!error.unwrap_err().is_not_found());
        }
    }
    assert_eq!(world.machines().len(), 1);
    world
        .give_provider(provider_options(&with_aks(Options::instant())))
        .await;
    world.provider.delete(&created).await.unwrap();
    assert!(world.provider.delete(&created).await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn z_035_z_040_an_operation_that_may_not_be_read_is_asked_about_rarely_and_hides_no_failure() {
    let world = World::new(with_aks(Options::slow())).await;
    world.azure.refuse(fails_later("ZonalAllocationFailed"));
    world
        .azure
        .deny("GET microsoft.containerservice/locations/operations");
    world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    world.pass(4 * 60).await;
    let asked = world.asked(OPERATIONS);
    assert!((5..=10).contains(&asked), "{asked} times in four minutes");
    world.pass(4 * 60).await;
    assert_eq!(world.machines(), [], "the machine says itself that it has failed");
    assert_eq!(left_out(&world).await, 2);
    assert!(says_something(&world).await);
    let asked = world.asked(OPERATIONS);
    world.pass(3600).await;
    assert_eq!(world.asked(OPERATIONS), asked, "nobody asks any more");
}

#[tokio::test(start_paused = true)]
async fn z_035_z_040_an_operation_without_an_end_is_followed_for_15_minutes() {
    let world = World::new(with_aks(Options::slow())).await;
    world
        .azure
        .stick("microsoft.containerservice/managedclusters/agentpools/machines");
    world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    world.pass(14 * 60).await;
    let before = world.asked(OPERATIONS);
    world.pass(30).await;
    assert!(world.asked(OPERATIONS) > before);
    world.pass(60).await;
    let before = world.asked(OPERATIONS);
    world.pass(3600).await;
    assert_eq!(world.asked(OPERATIONS), before);
    assert_eq!(world.provider.list().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn z_040_z_056_tags_of_a_machine_of_aks_are_50_with_those_that_only_it_has() {
    let world = World::new(with_aks(Options::instant())).await;
    for (count, fits) in [(40, true), (41, false), (42, false)] {
        let spec = spokeshave_api::AKSNodeClassSpec {
            tags: (0..count)
                .map(|it| (format!("tag-{it}"), String::new()))
                .collect(),
            ..Default::default()
        };
        let class = world.class("class", spec).await;
        world.provider.put_class(class);
        let made = world
            .provider
            .create(&on_demand(&format!("c{count}"), SIZE))
            .await;
        if fits {
            made.unwrap();
            let machine = &world.azure.machines()[0];
            assert_eq!(machine["tags"].as_object().unwrap().len(), 50);
            continue;
        }
        let error = made.unwrap_err();
        assert!(
            matches!(&error, CloudError::Create { reason, .. } if reason == "InvalidTags"),
            "{count}: {error}"
        );
    }
    assert_eq!(world.machines().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn z_051_interfaces_of_machines_of_aks_are_not_touched() {
    let world = World::new(with_aks(Options::instant())).await;
    let tags = json!({
        "karpenter.azure.com_cluster": "cluster",
        "karpenter.sh_nodepool": "pool",
        "spokeshave.dev_created-at": world.clock.now().to_string(),
    });
    let mut of_aks = tags.clone();
    of_aks["karpenter.azure.com_aksmachine_nodeclaim"] = json!("a");
    world.azure.leave_interface("aks-machines-a-nic", &of_aks);
    world.azure.leave_interface("aks-left", &tags);
    world.pass(30 * 60).await;
    assert_eq!(world.azure.interfaces(), ["aks-machines-a-nic"]);
}
