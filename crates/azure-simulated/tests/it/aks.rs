//! Machines that AKS makes (Z-040): launches, adoption, what is refused and fails, lists, ends, drift.

use futures::StreamExt as _;
use spokeshave_api::{AKSNodeClass, AKSNodeClassSpec, labels};
use spokeshave_azure_simulated::{Options, Refusal};
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{CloudError, CloudProvider as _};
use spokeshave_provider_grpc::Way;

use crate::conformance::passes;
use crate::world::{World, on_demand, on_demand_of, pool, provider_options, shown, with_aks};

const SIZE: &str = "Standard_D4s_v5";
const PUT: &str = "PUT /subscriptions/sub/resourceGroups/rehearsal/providers/Microsoft.ContainerService/managedClusters/cluster/agentPools/machines/machines/a";
const DELETE: &str = "POST /subscriptions/sub/resourceGroups/rehearsal/providers/Microsoft.ContainerService/managedClusters/cluster/agentPools/machines/deleteMachines";
const LIST: &str = "GET /subscriptions/sub/resourceGroups/rehearsal/providers/Microsoft.ContainerService/managedClusters/cluster/agentPools/machines/machines";

fn refusal(code: &str, message: &str, status: Option<u16>) -> Refusal {
    Refusal {
        size: Some(SIZE.to_owned()),
        status,
        code: code.to_owned(),
        message: message.to_owned(),
        ..Refusal::default()
    }
}

/// Offerings of the size that can be bought.
async fn for_sale(world: &World) -> usize {
    let types = world.provider.instance_types(&pool()).await.unwrap();
    let size = types.iter().find(|it| it.name == SIZE).unwrap();
    size.offerings
        .iter()
        .filter(|offering| offering.available)
        .count()
}

#[tokio::test(start_paused = true)]
async fn z_040_the_provider_keeps_the_promises_of_the_port_where_aks_makes_machines() {
    passes(with_aks(Options::instant()), Way::InProcess).await;
}

#[tokio::test(start_paused = true)]
async fn z_040_and_keeps_them_when_aks_takes_its_time() {
    passes(with_aks(Options::slow()), Way::InProcess).await;
}

#[tokio::test(start_paused = true)]
async fn z_040_and_over_the_protocol_on_a_genuine_socket() {
    passes(with_aks(Options::slow()), Way::UnixSocket).await;
}

#[tokio::test(start_paused = true)]
async fn z_040_a_machine_is_known_by_the_virtual_machine_that_aks_makes() {
    let world = World::new(with_aks(Options::slow())).await;
    let before = world.clock.now();
    let created = world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    let took = world.clock.now().duration_since(before).as_secs();
    assert!(took < 20, "a machine takes 40 s, the answer came after {took}");
    let id = created.provider_id().unwrap().to_owned();
    let vm = id.rsplit('/').next().unwrap();
    assert!(
        vm.starts_with("aks-machines-a-") && vm.ends_with("-vm"),
        "AKS names it: {id}"
    );
    assert_eq!(
        created.annotation("karpenter.azure.com/aks-machine-resource-id"),
        PUT.strip_prefix("PUT ")
    );
    assert_eq!(
        created.status.as_ref().unwrap().image_id.as_deref(),
        Some("AKSUbuntu-2404gen2containerd-202608.1.0")
    );
    let machine = &world.azure.machines()[0];
    assert_eq!(machine["tags"]["karpenter.azure.com_aksmachine_nodeclaim"], "a");
    assert_eq!(machine["tags"]["karpenter.sh_nodeclaim-uid"], "uid-a");
    assert_eq!(
        world.azure.interfaces(),
        Vec::<String>::new(),
        "interfaces are AKS's"
    );
    world.pass(900).await;
    // The graph knows the virtual machine by now, and it is one machine all the same.
    let listed = world.provider.list().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].name(), listed[0].provider_id()),
        ("a", Some(id.as_str()))
    );
    assert_eq!(
        listed[0].label(labels::INSTANCE_TYPE),
        Some(SIZE),
        "{:?}",
        listed[0].metadata.labels
    );
    assert!(listed[0].metadata.creation_timestamp.is_some());
    assert!(world.provider.get(&id).await.is_ok());
    let other = id.replace("-vm", "-vm1");
    assert!(
        world.provider.get(&other).await.unwrap_err().is_not_found(),
        "another virtual machine of the same name"
    );
    world.provider.delete(&created).await.unwrap();
    world
        .provider
        .delete(&created)
        .await
        .expect("it is ending, and not asked for again");
    assert_eq!(world.asked(DELETE), 1);
    world.pass(120).await;
    assert!(world.provider.delete(&created).await.unwrap_err().is_not_found());
    assert_eq!(world.azure.aks_machines(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn z_040_a_launch_whose_reply_was_lost_is_adopted() {
    let world = World::new(with_aks(Options::slow())).await;
    let claim = on_demand("a", SIZE);
    world.azure.lose_replies(PUT, 4);
    let error = world.provider.create(&claim).await.unwrap_err();
    assert!(matches!(error, CloudError::Timeout(_)), "{error}");
    let again = world.provider.create(&claim).await.unwrap();
    let third = world.provider.create(&claim).await.unwrap();
    assert_eq!(again.provider_id(), third.provider_id());
    assert_eq!(world.asked(PUT), 4, "what exists is not asked for again");
    assert_eq!(world.machines().len(), 1);
    let mut stranger = claim.clone();
    stranger.metadata.uid = Some("another".to_owned());
    let error = world.provider.create(&stranger).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::Create { reason, .. } if reason == "MachineNameTaken"),
        "{error}"
    );
    assert!(world.provider.delete(&stranger).await.unwrap_err().is_not_found());
    // The one that was launched and not written down ends by its name.
    let mut unwritten = claim;
    unwritten.status = None;
    world.provider.delete(&unwritten).await.unwrap();
    world.pass(120).await;
    assert_eq!(world.machines(), []);
}

#[tokio::test(start_paused = true)]
async fn z_040_a_size_that_aks_does_not_support_is_left_out_for_a_day() {
    for (code, message) in [
        ("VMSizeNotSupported", "no"),
        (
            "BadRequest",
            "Virtual Machine size: 'x' is not supported for subscription sub in location 'y'.",
        ),
    ] {
        let world = World::new(with_aks(Options::slow())).await;
        world.azure.refuse(refusal(code, message, Some(400)));
        let error = world.provider.create(&on_demand("a", SIZE)).await.unwrap_err();
        assert!(matches!(error, CloudError::InsufficientCapacity(_)), "{error}");
        assert_eq!(for_sale(&world).await, 0);
        world.azure.heal();
        world.pass(22 * 3600).await;
        assert_eq!(for_sale(&world).await, 0);
        world.pass(2 * 3600).await;
        assert_ne!(for_sale(&world).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn z_040_what_compute_refuses_is_read_in_the_machine_and_another_comes_when_the_first_is_gone() {
    let world = World::new(with_aks(Options::slow())).await;
    world
        .azure
        .refuse(refusal("AllocationFailed", "Allocation failed.", Some(409)));
    let claim = on_demand_of("a", &[SIZE, "Standard_D8s_v5", "Standard_E4s_v5"]);
    let created = world.provider.create(&claim).await.unwrap();
    assert_eq!((world.asked(PUT), world.asked(DELETE)), (2, 1));
    assert_eq!(
        for_sale(&world).await,
        2,
        "of both capacity types only what is in no zone is left"
    );
    assert_eq!(created.label(labels::INSTANCE_TYPE), Some("Standard_E4s_v5"));
}

#[tokio::test(start_paused = true)]
async fn z_040_quota_that_runs_out_is_told_from_what_wraps_it() {
    let world = World::new(with_aks(Options::slow())).await;
    world
        .azure
        .set_quota([("standardDSv5Family".to_owned(), 2)].into());
    let error = world.provider.create(&on_demand("a", SIZE)).await.unwrap_err();
    assert!(matches!(error, CloudError::InsufficientCapacity(_)), "{error}");
    world.azure.heal();
    world.pass(9 * 60).await;
    let on_demand_offers = |types: std::sync::Arc<[spokeshave_model::InstanceType]>| {
        let size = types.iter().find(|it| it.name == SIZE).unwrap().clone();
        size.offerings.iter().filter(|it| it.available).count()
    };
    let before = on_demand_offers(world.provider.instance_types(&pool()).await.unwrap());
    world.pass(11 * 60).await;
    let after = on_demand_offers(world.provider.instance_types(&pool()).await.unwrap());
    assert!(before < after, "ten minutes: {before}, then {after}");
}

#[tokio::test(start_paused = true)]
async fn z_040_a_machine_that_fails_later_ends_and_its_offering_is_left_out() {
    let world = World::new(with_aks(Options::slow())).await;
    world
        .azure
        .refuse(refusal("ZonalAllocationFailed", "no capacity", None));
    let created = world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    let zone = created.label(labels::ZONE).unwrap().to_owned();
    let mut messages = world.provider.interruptions().unwrap();
    let message = messages.next().await.unwrap();
    assert_eq!(message.kind, Ok(InterruptionKind::InstanceTerminated));
    assert_eq!(Some(message.provider_id.as_str()), created.provider_id());
    let types = world.provider.instance_types(&pool()).await.unwrap();
    let size = types.iter().find(|it| it.name == SIZE).unwrap();
    let gone: Vec<&str> = size
        .offerings
        .iter()
        .filter(|it| !it.available)
        .filter_map(|it| it.zone())
        .collect();
    assert_eq!(gone, [zone.as_str(), zone.as_str()], "both capacity types");
    world.pass(120).await;
    assert_eq!(world.machines(), []);
    assert_eq!(world.azure.aks_machines(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn z_040_a_record_without_machine_is_gone_and_collected() {
    let world = World::new(with_aks(Options::slow())).await;
    let created = world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    world.pass(900).await;
    let id = created.provider_id().unwrap();
    world.azure.evict(id.rsplit('/').next().unwrap());
    assert_eq!(
        world.azure.aks_machines(),
        ["a"],
        "AKS still has its record of an evicted machine"
    );
    assert!(world.provider.get(id).await.unwrap_err().is_not_found());
    assert!(world.provider.delete(&created).await.unwrap_err().is_not_found());
    assert_eq!(world.provider.list().await.unwrap(), []);
    // Its name is not free yet, and nobody else's.
    let error = world.provider.create(&on_demand("a", SIZE)).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::Create { reason, .. } if reason == "LaunchFailed"),
        "{error}"
    );
    let second = world.provider.create(&on_demand("b", SIZE)).await.unwrap();
    world.pass(900).await;
    world
        .azure
        .evict(second.provider_id().unwrap().rsplit('/').next().unwrap());
    assert_eq!(world.azure.aks_machines(), ["b"]);
    world.pass(6 * 60).await;
    assert_eq!(world.azure.aks_machines(), Vec::<String>::new(), "it is swept");
}

#[tokio::test(start_paused = true)]
async fn z_040_a_list_that_cannot_be_had_is_none() {
    let world = World::new(with_aks(Options::slow())).await;
    world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    world.pass(900).await;
    world
        .azure
        .deny("GET microsoft.containerservice/managedclusters/agentpools/machines");
    let error = world.provider.list().await.unwrap_err().to_string();
    assert!(
        error.contains("listing machines of AKS") && error.contains("AuthorizationFailed"),
        "{error}"
    );
    assert_ne!(world.asked(LIST), 0);
    world.azure.heal();
    world
        .azure
        .deny("PUT microsoft.containerservice/managedclusters/agentpools/machines");
    let error = world
        .provider
        .create(&on_demand("b", SIZE))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("AuthorizationFailed"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn z_040_a_pool_that_does_not_exist_is_an_error_and_not_an_empty_list() {
    let mut world = World::new(with_aks(Options::instant())).await;
    let mut options = provider_options(&with_aks(Options::instant()));
    options.machine_pool.as_mut().unwrap().name = "elsewhere".to_owned();
    world.give_provider(options).await;
    let error = world.provider.list().await.unwrap_err().to_string();
    assert!(error.contains("agentpool 'elsewhere'"), "{error}");
    let error = world
        .provider
        .create(&on_demand("a", SIZE))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("agentpool 'elsewhere'"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn z_040_d_240_drift_of_image_and_of_the_clusters_configuration() {
    let world = World::new(with_aks(Options::instant())).await;
    let created = world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    let drift = async |class: &AKSNodeClass| {
        let asked = world.provider.is_drifted(&created, Some(&shown(class))).await;
        asked.unwrap()
    };
    let class = world.class("class", AKSNodeClassSpec::default()).await;
    assert_eq!(drift(&class).await, None);
    world.azure.set_drift_action("Recreate");
    assert_eq!(drift(&class).await.as_deref(), Some("ClusterConfigDrift"));
    world.azure.publish_image("202609.10.0");
    // What AKS lists is read again after two minutes (Z-012).
    world.pass(121).await;
    let class = world.class("class", AKSNodeClassSpec::default()).await;
    assert_eq!(
        class.status.as_ref().unwrap().images[0].id,
        "AKSUbuntu-2404gen2containerd-202609.10.0"
    );
    assert_eq!(drift(&class).await.as_deref(), Some("ImageDrift"));
}

#[tokio::test(start_paused = true)]
async fn z_040_machines_of_before_stay_managed_when_aks_begins_to_make_them() {
    // The provider does not know of the pool yet.
    let options = with_aks(Options::instant());
    let mut world = World::without_leader(options.clone());
    let before = Options {
        machine_pool: None,
        ..options
    };
    world.give_provider(provider_options(&before)).await;
    let old = world.provider.create(&on_demand("a", SIZE)).await.unwrap();
    world
        .give_provider(provider_options(&with_aks(Options::instant())))
        .await;
    let new = world.provider.create(&on_demand("b", SIZE)).await.unwrap();
    let listed = world.provider.list().await.unwrap();
    let names: Vec<&str> = listed.iter().map(|claim| claim.name()).collect();
    assert_eq!(names, ["a", "b"]);
    for claim in [&old, &new] {
        assert!(world.provider.get(claim.provider_id().unwrap()).await.is_ok());
        world.provider.delete(claim).await.unwrap();
    }
    assert_eq!(world.machines(), []);
}
