//! Launches: what is asked, adopted, taken back (Z-031, Z-033, Z-036).

use std::collections::BTreeMap;

use futures::StreamExt as _;
use spokeshave_api::{AKSNodeClassSpec, NodeClaim, labels};
use spokeshave_azure_cloud::AzureProvider;
use spokeshave_azure_simulated::{Options, Refusal};
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_model::{InstanceType, Price};
use spokeshave_ports::{CloudError, CloudProvider as _};

use crate::world::{World, claim, on_demand, on_demand_of, outside, pool, provider_options, with_aks};

const MACHINE: &str =
    "PUT /subscriptions/sub/resourceGroups/Nodes/providers/Microsoft.Compute/virtualMachines/aks-a";
const INTERFACE: &str =
    "PUT /subscriptions/sub/resourceGroups/Nodes/providers/Microsoft.Network/networkInterfaces/aks-a";

fn refusal(code: &str, status: Option<u16>) -> Refusal {
    Refusal {
        status,
        code: code.to_owned(),
        message: "no".to_owned(),
        ..Refusal::default()
    }
}

#[tokio::test(start_paused = true)]
async fn z_031_an_interface_then_a_machine_with_tags() {
    let world = World::new(Options::instant()).await;
    let created = world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap();
    assert_eq!(
        created.provider_id(),
        Some(
            "azure:///subscriptions/sub/resourceGroups/nodes/providers/Microsoft.Compute/virtualMachines/aks-a"
        )
    );
    let log = world.azure.log();
    let place = |start: &str| log.iter().position(|line| line.starts_with(start)).unwrap();
    assert!(place(INTERFACE) < place(MACHINE));
    let machine = &world.azure.machines()[0];
    let tags = &machine["tags"];
    for (key, value) in [
        ("karpenter.azure.com_cluster", "cluster"),
        ("karpenter.sh_nodepool", "pool"),
        ("karpenter.sh_nodeclaim", "a"),
        ("karpenter.sh_nodeclaim-uid", "uid-a"),
        ("karpenter.azure.com_aksnodeclass", "class"),
        ("compute.aks.billing", "linux"),
        ("spokeshave.dev_kubernetes-version", "1.34.1"),
        ("spokeshave.dev_created-at", "2026-09-01T00:00:15Z"),
    ] {
        assert_eq!(tags[key], value, "{key}");
    }
    let zone = machine["zones"][0].as_str().unwrap();
    assert_eq!(
        created.label(labels::ZONE),
        Some(format!("southcentralus-{zone}").as_str())
    );
    assert_eq!(
        machine["properties"]["storageProfile"]["imageReference"]["communityGalleryImageId"],
        "/CommunityGalleries/AKSUbuntu-38d80f77-467a-481f-a8d4-09b6d4220bd2/images/2404gen2containerd/versions/202608.1.0"
    );
    assert_eq!(
        created.status.unwrap().image_id.unwrap().rsplit('/').next(),
        Some("202608.1.0")
    );
}

#[tokio::test(start_paused = true)]
async fn z_031_a_launch_whose_reply_was_lost_is_adopted() {
    let world = World::new(Options::slow()).await;
    let claim = on_demand("a", "Standard_D4s_v5");
    // A call is made again when there is no reply; this one never gets one.
    world.azure.lose_replies(MACHINE, 4);
    let error = world.provider.create(&claim).await.unwrap_err();
    assert!(matches!(error, CloudError::Timeout(_)), "{error}");
    assert_eq!(world.asked(MACHINE), 4);
    assert_eq!(world.machines().len(), 1);
    let again = world.provider.create(&claim).await.unwrap();
    let third = world.provider.create(&claim).await.unwrap();
    assert_eq!(again.provider_id(), third.provider_id());
    assert_eq!(world.asked(MACHINE), 4, "what exists is not asked for again");
    assert_eq!(world.machines().len(), 1);
    // It is this NodeClaim's only.
    let mut stranger = claim.clone();
    stranger.metadata.uid = Some("another".to_owned());
    let error = world.provider.create(&stranger).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::Create { reason, .. } if reason == "MachineNameTaken"),
        "{error}"
    );
}

/// ARM did not know its name at the first try: it is not left out of lists for that, where it would count as gone.
#[tokio::test(start_paused = true)]
async fn z_031_z_050_what_was_adopted_is_listed() {
    for options in [Options::slow(), Options::instant()] {
        let world = World::new(options).await;
        let claim = on_demand("a", "Standard_D4s_v5");
        world.azure.lose_replies(MACHINE, 4);
        world.provider.create(&claim).await.unwrap_err();
        let adopted = world.provider.create(&claim).await.unwrap();
        let listed = world.provider.list().await.unwrap();
        let ids: Vec<_> = listed.iter().map(|one| one.provider_id()).collect();
        assert_eq!(ids, [adopted.provider_id()]);
    }
}

/// As after a restart in the middle of a launch. Nobody would write down later what was not known then.
#[tokio::test(start_paused = true)]
async fn z_031_what_is_adopted_before_sizes_are_known_is_written_down_whole() {
    let said = |claim: &NodeClaim| {
        let status = claim.status.clone().unwrap();
        (status.capacity, status.allocatable, claim.metadata.labels.clone())
    };
    for options in [Options::slow(), with_aks(Options::slow())] {
        let world = World::new(options.clone()).await;
        let claim = on_demand("a", "Standard_D4s_v5");
        let made = world.provider.create(&claim).await.unwrap();
        assert_eq!(made.label(labels::ARCH), Some("amd64"));
        let types = world.provider.instance_types(&pool()).await.unwrap();
        let settings = provider_options(&options);
        let successor = AzureProvider::new(outside(&world.azure), world.clock.clone(), settings);
        successor.put_class(world.class("class", AKSNodeClassSpec::default()).await);
        let error = successor.create(&claim).await.unwrap_err();
        assert!(
            matches!(&error, CloudError::Other(text) if text.contains("sizes of the location are not known yet")),
            "it is tried again: {error:?}"
        );
        let given = successor.create_from(&claim, &types).await.unwrap();
        assert_eq!(said(&given), said(&made), "core knows what it holds");
        let follower = successor.clone();
        let following = tokio::spawn(async move { follower.follow().await });
        world.pass(15).await;
        let adopted = successor.create(&claim).await.unwrap();
        assert_eq!(adopted.provider_id(), made.provider_id());
        assert_eq!(said(&adopted), said(&made));
        assert_eq!(world.machines().len(), 1);
        following.abort();
    }
}

/// As when its answer was not written down, or somebody has taken the provider ID away.
#[tokio::test(start_paused = true)]
async fn z_031_a_launch_that_is_asked_for_again_minutes_later_finds_its_machine() {
    for options in [Options::slow(), Options::instant()] {
        let world = World::new(options).await;
        let claim = on_demand("a", "Standard_D4s_v5");
        let created = world.provider.create(&claim).await.unwrap();
        world.pass(120).await;
        let again = world.provider.create(&claim).await.unwrap();
        assert_eq!(again.provider_id(), created.provider_id());
        // Without a reply nobody knows whether it is still there.
        world.azure.lose_replies(&MACHINE.replacen("PUT", "GET", 1), 20);
        let error = world.provider.create(&claim).await.unwrap_err();
        assert!(matches!(error, CloudError::Timeout(_)), "{error}");
        assert_eq!((world.asked(MACHINE), world.machines().len()), (1, 1));
    }
}

/// The next one has the name of the NodeClaim, too.
#[tokio::test(start_paused = true)]
async fn z_031_a_launch_whose_machine_is_ending_is_made_again_when_it_is_gone() {
    let world = World::new(Options::slow()).await;
    let claim = on_demand("a", "Standard_D4s_v5");
    let created = world.provider.create(&claim).await.unwrap();
    world.pass(120).await;
    world.provider.delete(&created).await.unwrap();
    let error = world.provider.create(&claim).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::Create { reason, .. } if reason == "MachineDeleting"),
        "{error}"
    );
    assert_eq!(world.asked(MACHINE), 1);
    world.pass(300).await;
    assert_eq!(world.machines(), []);
    let again = world.provider.create(&claim).await.unwrap();
    assert_eq!(again.provider_id(), created.provider_id());
    assert_eq!((world.asked(MACHINE), world.machines().len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn z_033_create_returns_when_arm_has_accepted() {
    let world = World::new(Options::slow()).await;
    let before = world.clock.now();
    world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap();
    let took = world.clock.now().duration_since(before).as_secs();
    assert!(took < 40, "a machine takes 40 s, the answer came after {took}");
    assert_eq!(
        world.machines(),
        [("Standard_D4s_v5".to_owned(), "Creating".to_owned())]
    );
    world.pass(60).await;
    assert_eq!(
        world.machines(),
        [("Standard_D4s_v5".to_owned(), "Succeeded".to_owned())]
    );
}

#[tokio::test(start_paused = true)]
async fn z_033_an_operation_that_fails_ends_the_machine_and_tells_of_it() {
    let world = World::new(Options::slow()).await;
    world.azure.refuse(refusal("ZonalAllocationFailed", None));
    let created = world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap();
    let mut messages = world.provider.interruptions().unwrap();
    let message = messages.next().await.unwrap();
    assert_eq!(Some(message.provider_id.as_str()), created.provider_id());
    assert_eq!(message.kind, Ok(InterruptionKind::InstanceTerminated));
    let again = messages.next().await.unwrap();
    assert_eq!(again.id, message.id, "it comes again until it is acknowledged");
    world.provider.acknowledge(&message).await.unwrap();
    world.pass(600).await;
    assert_eq!((world.machines(), world.azure.interfaces()), (vec![], vec![]));
    // The zone is left out now, the others are not.
    let zone = created.label(labels::ZONE).unwrap().to_owned();
    world.azure.refuse_nothing();
    let next = world
        .provider
        .create(&on_demand("b", "Standard_D4s_v5"))
        .await
        .unwrap();
    assert_ne!(next.label(labels::ZONE), Some(zone.as_str()));
}

#[tokio::test(start_paused = true)]
async fn z_033_what_was_refused_leaves_nothing() {
    let world = World::new(Options::instant()).await;
    world.azure.refuse(refusal("InvalidParameter", Some(400)));
    let error = world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("InvalidParameter: no"), "{error}");
    assert_eq!(
        world.asked(MACHINE),
        1,
        "what says nothing of capacity is not tried elsewhere"
    );
    assert_eq!((world.machines(), world.azure.interfaces()), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn z_036_a_size_without_capacity_gives_way_to_the_next() {
    let world = World::new(Options::instant()).await;
    world.azure.refuse(Refusal {
        size: Some("Standard_D4s_v5".to_owned()),
        ..refusal("AllocationFailed", Some(409))
    });
    let both = on_demand_of("a", &["Standard_D4s_v5", "Standard_D8s_v5", "Standard_E8s_v5"]);
    let created = world.provider.create(&both).await.unwrap();
    // The larger size of the same family is left out with it.
    assert_eq!(created.label(labels::INSTANCE_TYPE), Some("Standard_E8s_v5"));
    assert_eq!(
        world.asked(MACHINE),
        3,
        "in zones, without zone, and the other size"
    );
}

/// ARM deletes a network interface in its own time, and makes no other of its name meanwhile.
#[tokio::test(start_paused = true)]
async fn z_036_all_attempts_of_a_launch_share_the_network_interface() {
    let world = World::new(Options::slow()).await;
    world.azure.refuse(Refusal {
        size: Some("Standard_D4s_v5".to_owned()),
        ..refusal("SkuNotAvailable", Some(409))
    });
    let both = on_demand_of("a", &["Standard_D4s_v5", "Standard_E8s_v5"]);
    let created = world.provider.create(&both).await.unwrap();
    assert_eq!(created.label(labels::INSTANCE_TYPE), Some("Standard_E8s_v5"));
    let asked = [INTERFACE, MACHINE, "DELETE"].map(|start| world.asked(start));
    assert_eq!(asked, [1, 3, 0]);
}

#[tokio::test(start_paused = true)]
async fn z_033_a_launch_that_comes_before_the_network_interface_of_the_last_is_gone_leaves_it_alone() {
    let world = World::new(Options::slow()).await;
    let claim = on_demand("a", "Standard_D4s_v5");
    world.azure.refuse(refusal("InvalidParameter", Some(400)));
    world.provider.create(&claim).await.unwrap_err();
    assert_eq!(world.azure.interfaces(), ["aks-a"], "it is being deleted");
    let asked = world.asked("DELETE");
    let error = world.provider.create(&claim).await.unwrap_err();
    assert!(
        error.to_string().contains("HTTP 409, AnotherOperationInProgress"),
        "{error}"
    );
    assert_eq!(world.asked("DELETE"), asked);
    world.pass(15).await;
    assert_eq!(world.azure.interfaces(), Vec::<String>::new());
    world.azure.refuse_nothing();
    world.provider.create(&claim).await.unwrap();
    assert_eq!(world.machines().len(), 1);
}

/// Types as NodeOverlays would correct them: these sizes cost so much, wherever they are bought.
fn priced(types: &[InstanceType], prices: &[(&str, i64)]) -> Vec<InstanceType> {
    let mut types = types.to_vec();
    for (size, price) in prices {
        let of_it = types.iter_mut().filter(|one| one.name == *size);
        for offering in of_it.flat_map(|one| &mut one.offerings) {
            offering.price = Price(*price);
        }
    }
    types
}

#[tokio::test(start_paused = true)]
async fn z_036_the_next_attempt_goes_by_the_prices_that_were_given() {
    let world = World::new(Options::instant()).await;
    world.azure.refuse(Refusal {
        size: Some("Standard_D4s_v5".to_owned()),
        ..refusal("AllocationFailed", Some(409))
    });
    let types = world.provider.instance_types(&pool()).await.unwrap();
    let given = priced(&types, &[("Standard_D4s_v5", 1), ("Standard_E8s_v5", 2)]);
    let any = on_demand_of("a", &["Standard_D4s_v5", "Standard_D2ds_v5", "Standard_E8s_v5"]);
    let created = world.provider.create_from(&any, &given).await.unwrap();
    assert_eq!(created.label(labels::INSTANCE_TYPE), Some("Standard_E8s_v5"));
    assert_eq!(
        world.asked(MACHINE),
        3,
        "what was refused is not asked for again: in zones, without zone, and the other size"
    );
}

#[tokio::test(start_paused = true)]
async fn z_036_no_attempt_takes_a_zone_that_is_avoided() {
    let world = World::new(Options::instant()).await;
    world.azure.refuse(refusal("ZonalAllocationFailed", Some(409)));
    let types = world.provider.instance_types(&pool()).await.unwrap();
    let mut given = types.to_vec();
    for offering in given.iter_mut().flat_map(|one| &mut one.offerings) {
        let is_elsewhere = offering.zone() != Some("southcentralus-1");
        offering.available &= !is_elsewhere;
    }
    let claim = on_demand("a", "Standard_D4s_v5");
    let error = world.provider.create_from(&claim, &given).await.unwrap_err();
    assert!(matches!(error, CloudError::InsufficientCapacity(_)), "{error}");
    assert_eq!(world.asked(MACHINE), 1);
}

#[tokio::test(start_paused = true)]
async fn z_036_quota_is_seen_before_it_is_hit() {
    let mut options = Options::instant();
    options.quota.insert("standardDSv5Family".to_owned(), 8);
    let world = World::new(options).await;
    for name in ["a", "b"] {
        world
            .provider
            .create(&on_demand(name, "Standard_D4s_v5"))
            .await
            .unwrap();
    }
    // What the list of usages said is ten minutes old: ARM refuses, and the family is left out.
    let error = world
        .provider
        .create(&on_demand("c", "Standard_D4s_v5"))
        .await
        .unwrap_err();
    assert!(matches!(error, CloudError::InsufficientCapacity(_)), "{error}");
    assert!(error.to_string().contains("SubscriptionQuotaReached"), "{error}");
    let asked = world.asked("PUT /subscriptions");
    world.pass(11 * 60).await;
    let error = world
        .provider
        .create(&on_demand("c", "Standard_D4s_v5"))
        .await
        .unwrap_err();
    assert!(matches!(error, CloudError::InsufficientCapacity(_)), "{error}");
    assert_eq!(
        world.asked("PUT /subscriptions"),
        asked,
        "now the list says so: nothing is asked"
    );
    let spot = claim(
        "d",
        &[
            (labels::INSTANCE_TYPE, &["Standard_D4s_v5"]),
            (labels::CAPACITY_TYPE, &["spot"]),
        ],
    );
    world.provider.create(&spot).await.unwrap();
}

/// With machines of its own AKS says so later, and the next offering would wait for the end of the first.
#[tokio::test(start_paused = true)]
async fn z_036_z_040_where_nothing_is_left_to_try_the_last_refusal_is_told() {
    for options in [Options::instant(), with_aks(Options::instant())] {
        let world = World::new(options).await;
        world
            .azure
            .set_quota([("standardDSv5Family".to_owned(), 1)].into());
        let wanted = on_demand("a", "Standard_D2s_v5");
        let error = world.provider.create(&wanted).await.unwrap_err();
        let words = [
            "nothing that NodeClaim a allows",
            "quota of vCPUs for Standard_D2s_v5 is used up",
        ];
        assert!(
            matches!(&error, CloudError::InsufficientCapacity(text) if words.iter().all(|it| text.contains(it))),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn z_036_a_short_shortage_of_a_small_size_does_not_last_as_long_as_one_of_a_large_size() {
    let world = World::new(Options::instant()).await;
    let (large, small) = (
        on_demand("large", "Standard_D64s_v5"),
        on_demand("small", "Standard_D2s_v5"),
    );
    // For 23 hours.
    world.azure.refuse(refusal("SkuNotAvailable", Some(409)));
    world.provider.create(&large).await.unwrap_err();
    world.azure.refuse_nothing();
    // For ten minutes.
    world
        .azure
        .set_quota([("standardDSv5Family".to_owned(), 1)].into());
    world.provider.create(&small).await.unwrap_err();
    world.azure.set_quota(BTreeMap::new());
    let error = world.provider.create(&small).await.unwrap_err();
    assert!(matches!(error, CloudError::InsufficientCapacity(_)), "{error}");
    world.pass(11 * 60).await;
    world.provider.create(&small).await.unwrap();
    let error = world.provider.create(&large).await.unwrap_err();
    assert!(matches!(error, CloudError::InsufficientCapacity(_)), "{error}");
}

/// ARM attaches them to machines only that were made for it.
#[tokio::test(start_paused = true)]
async fn z_020_z_031_ultra_disks_can_be_attached_to_the_machines_of_claims_that_ask_for_them() {
    let world = World::new(Options::instant()).await;
    world.azure.offer_ultra_disks("Standard_D4s_v5", "2");
    // Sizes are read twice a day.
    world.pass(12 * 3600 + 60).await;
    let asks = claim(
        "a",
        &[
            (labels::INSTANCE_TYPE, &["Standard_D4s_v5"]),
            ("karpenter.azure.com/sku-storage-ultra-ssd", &["true"]),
        ],
    );
    let created = world.provider.create(&asks).await.unwrap();
    assert_eq!(created.label(labels::ZONE), Some("southcentralus-2"));
    world
        .provider
        .create(&on_demand("b", "Standard_D4s_v5"))
        .await
        .unwrap();
    let machines = world.azure.machines();
    let has_them = ["aks-a", "aks-b"].map(|name| {
        let machine = machines.iter().find(|machine| machine["name"] == name).unwrap();
        machine["properties"]["additionalCapabilities"]["ultraSSDEnabled"] == true
    });
    assert_eq!(has_them, [true, false]);
}

#[tokio::test(start_paused = true)]
async fn z_003_a_class_with_fields_that_nothing_acts_on_launches_nothing() {
    let world = World::new(Options::instant()).await;
    let spec: AKSNodeClassSpec = serde_saphyr::from_str("{artifactStreaming: {enabled: true}}").unwrap();
    let class = world.class("class", spec).await;
    world.provider.put_class(class);
    let error = world
        .provider
        .create(&on_demand("a", "Standard_D4s_v5"))
        .await
        .unwrap_err();
    assert!(matches!(error, CloudError::NodeClassNotReady(_)), "{error}");
    assert_eq!(world.asked("PUT"), 0);
}
