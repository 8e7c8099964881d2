//! Launches on an EC2 whose capacity runs out, whose calls are limited, and behind whose back things happen.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_api::{NodeClaim, NodeOverlay, labels};
use spokeshave_aws_cloud::AwsProvider;
use spokeshave_ec2_simulated::{Options, facts};
use spokeshave_model::Price;
use spokeshave_ports::{CloudError, CloudProvider as _};
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::prices::Prices;

use crate::world::{CLUSTER, World, claim, pool};

async fn ready() -> World {
    let world = World::new(Options::new(CLUSTER)).await;
    world.cloud.unlimited();
    world
}

/// With a provider that has been at work for a minute.
async fn at_work() -> (World, Arc<AwsProvider>) {
    let world = ready().await;
    let provider = world.provider();
    world.pass(60).await;
    (world, provider)
}

/// A NodeClaim for one instance type.
fn large(name: &str) -> NodeClaim {
    claim(name, &[(labels::INSTANCE_TYPE, &["m5.large"])])
}

const BOTH: &[&str] = &["spot", "on-demand"];

#[tokio::test(start_paused = true)]
async fn a_076_what_has_no_capacity_is_passed_over_and_left_out_for_three_minutes() {
    let (world, provider) = at_work().await;
    world.cloud.limit("m5.large/*/spot".parse().unwrap(), 0);
    let types: &[&str] = &["m5.large", "m5.xlarge"];
    let wanted = claim(
        "one",
        &[(labels::INSTANCE_TYPE, types), (labels::CAPACITY_TYPE, &["spot"])],
    );
    let launched = provider.create(&wanted).await.unwrap();
    assert_eq!(launched.label(labels::INSTANCE_TYPE), Some("m5.xlarge"));
    // of what a type allows two values of, the instance has one.
    let tenancy = spokeshave_provider_aws::labels::INSTANCE_TENANCY;
    assert_eq!(launched.label(tenancy), Some("default"));
    let listed = provider.list().await.unwrap();
    assert_eq!(listed[0].label(tenancy), Some("default"));
    let available = async || {
        let types = provider.instance_types(&pool()).await.unwrap();
        let one = types.iter().find(|one| one.name == "m5.large").unwrap();
        let spot = one
            .offerings
            .iter()
            .filter(|it| it.available && it.capacity_type().is_some_and(|it| it.as_str() == "spot"));
        spot.count()
    };
    assert_eq!(
        available().await,
        0,
        "a reply with an instance still says what is empty"
    );
    world.pass(181).await;
    assert!(available().await > 0);
}

#[tokio::test(start_paused = true)]
async fn a_077_a_launch_without_any_capacity_is_told_so_and_a_refused_one_why() {
    let (world, provider) = at_work().await;
    world.cloud.limit("m5.large".parse().unwrap(), 0);
    let wanted = claim(
        "one",
        &[
            (labels::INSTANCE_TYPE, &["m5.large"]),
            (labels::CAPACITY_TYPE, BOTH),
        ],
    );
    let error = provider.create(&wanted).await.unwrap_err();
    assert!(matches!(error, CloudError::InsufficientCapacity(_)), "{error}");
    let denied = ApiError::new(
        "UnauthorizedOperation",
        "You are not authorized to perform this operation.",
    );
    world.cloud.fail("CreateFleet", &denied, 1);
    let wanted = claim("two", &[(labels::INSTANCE_TYPE, &["m5.xlarge"])]);
    match provider.create(&wanted).await {
        Err(CloudError::Create { reason, message }) => {
            assert_eq!(reason, "Unauthorized");
            for part in [
                "Error creating fleet request",
                "not authorized",
                "UnauthorizedOperation",
                "allow ec2:CreateFleet in the policy",
            ] {
                assert!(message.contains(part), "{message}");
            }
        }
        other => panic!("{other:?}"),
    }
    provider.create(&wanted).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_064_a_subnet_that_has_refused_for_want_of_addresses_is_not_chosen_again() {
    let world = ready().await;
    world.class_in_subnets("own", 5, serde_json::json!({})).await;
    world.cloud.set_free_addresses("subnet-5", 1_000);
    let provider = world.provider();
    world.pass(50).await;
    // Others have taken them since EC2 was asked.
    world.cloud.set_free_addresses("subnet-1", 0);
    let wanted = |name: &str, instance_type: &str| {
        let mut wanted = claim(
            name,
            &[
                (labels::INSTANCE_TYPE, &[instance_type]),
                (labels::ZONE, &["us-east-1a"]),
            ],
        );
        wanted.spec.node_class_ref.name = "own".to_owned();
        wanted
    };
    let error = provider.create(&wanted("one", "m5.large")).await.unwrap_err();
    assert!(matches!(error, CloudError::InsufficientCapacity(_)), "{error}");
    provider.create(&wanted("two", "m5.xlarge")).await.unwrap();
    let instances = world.cloud.instances();
    let subnets: Vec<&str> = instances.iter().map(|it| it.subnet_id.as_str()).collect();
    assert_eq!(subnets, ["subnet-5"]);
}

#[tokio::test(start_paused = true)]
async fn a_067_a_template_that_is_gone_is_made_again() {
    let (world, provider) = at_work().await;
    provider.create(&large("one")).await.unwrap();
    for name in world.cloud.templates() {
        world.cloud.remove_template(&name);
    }
    provider.create(&large("two")).await.unwrap();
    assert_eq!(world.cloud.instances().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_is_dark_launches_nothing_and_others_do() {
    let (world, provider) = at_work().await;
    for zone in ["us-east-1a", "us-east-1b", "us-east-1c"] {
        world.cloud.set_outage(zone, true);
    }
    let wanted = large("one");
    let launched = provider.create(&wanted).await.unwrap();
    assert_eq!(launched.label(labels::ZONE), Some("us-east-1d"));
}

#[tokio::test(start_paused = true)]
async fn a_074_a_075_a_thousand_nodeclaims_are_launched_and_ended_by_few_calls_that_ec2_does_not_limit() {
    let (world, provider) = at_work().await;
    let before = world.cloud.calls();
    let types: &[&str] = &[
        "m5.large",
        "m6i.large",
        "m7i.large",
        "c6i.large",
        "r6i.large",
        "m7g.large",
    ];
    let wanted = [(labels::INSTANCE_TYPE, types), (labels::CAPACITY_TYPE, BOTH)];
    let claims: Vec<_> = (0..1000)
        .map(|number| claim(&format!("claim-{number}"), &wanted))
        .collect();
    let launches = claims.iter().map(|claim| provider.create(claim));
    let launched: Vec<_> = futures::future::join_all(launches)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let ids: BTreeSet<_> = launched.iter().filter_map(|claim| claim.provider_id()).collect();
    assert_eq!(
        (ids.len(), world.cloud.instances().len()),
        (1000, 1000),
        "one instance for each"
    );
    world.pass(60).await;
    let ends = launched.iter().map(|claim| provider.delete(claim));
    for end in futures::future::join_all(ends).await {
        end.unwrap();
    }
    world.pass(60).await;
    assert!(world.cloud.instances().is_empty());
    let after = world.cloud.calls();
    let made = |action: &str| {
        after.get(action).copied().unwrap_or_default() - before.get(action).copied().unwrap_or_default()
    };
    assert!(made("CreateFleet") <= 3, "{after:?}");
    assert!(made("CreateLaunchTemplate") <= 60, "{after:?}");
    assert!(
        made("TerminateInstances") <= 3 && made("DescribeInstances") <= 4,
        "{after:?}"
    );
}

/// As when the time that core gives the launch of one is over while EC2 works on that of both.
#[tokio::test(start_paused = true)]
async fn a_074_a_nodeclaim_that_is_given_up_takes_the_launch_from_none_that_shares_its_call() {
    let (world, provider) = at_work().await;
    let fleets = || {
        let calls = world.cloud.calls();
        calls.get("CreateFleet").copied().unwrap_or_default()
    };
    let before = fleets();
    let (one, two) = (large("one"), large("two"));
    let (mut first, mut second) = (provider.create(&one), provider.create(&two));
    while fleets() == before {
        tokio::select! {
            biased;
            _ = &mut first => panic!("it has an answer already"),
            _ = &mut second => panic!("it has an answer already"),
            () = world.clock.sleep(Duration::from_millis(10)) => {}
        }
    }
    drop(first);
    let launched = second.await.unwrap();
    assert_eq!(fleets() - before, 1, "one call for both");
    world.pass(60).await;
    let listed = provider.list().await.unwrap();
    let ids: Vec<_> = listed.iter().map(|claim| claim.provider_id()).collect();
    assert!(ids.len() == 2 && ids.contains(&launched.provider_id()), "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn a_104_a_list_that_fails_is_an_error_and_not_an_empty_cloud() {
    let (world, provider) = at_work().await;
    provider.create(&large("one")).await.unwrap();
    world.pass(60).await;
    for error in [
        ApiError::new("", "no answer"),
        ApiError::new("RequestLimitExceeded", "slow down"),
    ] {
        world.cloud.fail("DescribeInstances", &error, 1);
        assert!(provider.list().await.is_err(), "{error}");
    }
    assert_eq!(provider.list().await.unwrap().len(), 1);
}

/// As when its answer was not written down, or somebody has taken the provider ID away.
#[tokio::test(start_paused = true)]
async fn a_080_a_launch_that_is_asked_for_again_minutes_later_finds_its_instance() {
    let (world, provider) = at_work().await;
    let wanted = large("one");
    let launched = provider.create(&wanted).await.unwrap();
    world.pass(120).await;
    let again = provider.create(&wanted).await.unwrap();
    assert_eq!(again.provider_id(), launched.provider_id());
    // Without an answer nobody knows whether it is still there.
    let busy = ApiError::new("RequestLimitExceeded", "slow down");
    world.cloud.fail("DescribeInstances", &busy, 1);
    assert!(provider.create(&wanted).await.is_err());
    assert_eq!(world.cloud.instances().len(), 1);
}

/// Its Node has not joined, so EC2 does not know whose it is: a NodeClaim that has lost its provider ID must find it, and garbage collection leave it alone.
#[tokio::test(start_paused = true)]
async fn a_080_what_is_listed_bears_the_uid_that_this_process_has_launched_it_for() {
    let (world, provider) = at_work().await;
    for name in ["one", "two"] {
        let wanted = large(name);
        let launched = provider.create(&wanted).await.unwrap();
        for seconds in [0, 120] {
            world.pass(seconds).await;
            let listed = provider.list().await.unwrap();
            let one = listed.iter().find(|one| one.metadata.uid == wanted.metadata.uid);
            assert_eq!(one.and_then(|one| one.provider_id()), launched.provider_id());
        }
    }
    assert_eq!(world.cloud.instances().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_080_a_launch_whose_instance_is_ending_or_gone_is_made_again() {
    let (world, provider) = at_work().await;
    let wanted = large("one");
    for (seconds, state) in [(1, Some("shutting-down")), (60, None)] {
        let launched = provider.create(&wanted).await.unwrap();
        let id = launched.provider_id().unwrap().rsplit('/').next().unwrap();
        world.pass(120).await;
        assert!(world.cloud.terminate(id));
        world.pass(seconds).await;
        let instances = world.cloud.instances();
        let ended = instances.iter().find(|one| one.id == id);
        assert_eq!(ended.map(|one| one.state.as_str()), state);
        let next = provider.create(&wanted).await.unwrap();
        assert_ne!(next.provider_id(), launched.provider_id());
        assert_eq!(world.cloud.instances().len(), instances.len() + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_081_a_launch_whose_operator_was_killed_is_listed_so_that_it_can_be_collected() {
    let (world, first) = at_work().await;
    let calls: u64 = world.cloud.calls().values().sum();
    drop(first);
    let wanted = large("one");
    let mut launched = 0;
    for call in 1..=12 {
        let (services, life) = world.cloud.mortal_services(call + 12);
        let provider = world.provider_on(services);
        world.clock.sleep(Duration::from_secs(30)).await;
        tokio::select! {
            biased;
            () = life.ended() => {}
            created = provider.create(&wanted) => drop(created),
            () = world.clock.sleep(Duration::from_secs(60)) => {}
        }
        launched = launched.max(world.cloud.instances().len());
    }
    assert!(world.cloud.calls().values().sum::<u64>() > calls && launched > 0);
    let heir = world.provider();
    world.pass(60).await;
    let listed = heir.list().await.unwrap();
    assert_eq!(
        listed.len(),
        world.cloud.instances().len(),
        "nothing is hidden from garbage collection"
    );
    for claim in &listed {
        assert!(claim.metadata.creation_timestamp.is_some());
        heir.delete(claim).await.unwrap();
    }
    world.pass(300).await;
    assert!(world.cloud.instances().is_empty() && world.cloud.templates().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_091_an_instance_that_a_user_ends_is_gone() {
    let (world, provider) = at_work().await;
    let wanted = large("one");
    let launched = provider.create(&wanted).await.unwrap();
    world.pass(60).await;
    let id = world.cloud.instances()[0].id.clone();
    assert!(world.cloud.terminate(&id) && !world.cloud.terminate(&id));
    world.pass(60).await;
    let got = provider.get(launched.provider_id().unwrap()).await;
    assert!(got.is_err_and(|error| error.is_not_found()));
    assert!(
        provider
            .delete(&launched)
            .await
            .is_err_and(|error| error.is_not_found())
    );
    assert!(provider.list().await.unwrap().is_empty());
}

/// Prices of whole machines are another question than those of ordinary ones (A4.2); an answer that does not come keeps the last table.
#[tokio::test(start_paused = true)]
async fn a_052_both_kinds_of_prices_are_asked_for_and_kept_when_the_service_fails() {
    let (world, provider) = at_work().await;
    assert_eq!(world.cloud.calls()["GetProducts"], 2);
    let price = async |name: &str| {
        let types = provider.instance_types(&pool()).await.unwrap();
        let one = types.iter().find(|one| one.name == name).unwrap();
        let mut on_demand = one
            .offerings
            .iter()
            .filter(|it| it.capacity_type().is_some_and(|it| it.as_str() == "on-demand") && it.available);
        on_demand.next().map(|it| it.price)
    };
    let before = [price("m5.large").await, price("m5.metal").await];
    assert!(before.iter().all(Option::is_some), "{before:?}");
    world
        .cloud
        .fail("GetProducts", &ApiError::new("InternalError", "no"), 1_000);
    world.pass(13 * 3600).await;
    assert!(world.cloud.calls()["GetProducts"] > 2);
    assert_eq!([price("m5.large").await, price("m5.metal").await], before);
}

/// A price list lags behind what EC2 has, and may fail in part without saying so.
#[tokio::test(start_paused = true)]
async fn a_052_what_a_price_list_leaves_out_is_sold_as_before_and_the_list_is_read_again_soon() {
    let world = ready().await;
    world.cloud.leave_out_price("m5.large");
    for info in facts().types.values().filter(|info| info.bare_metal) {
        world.cloud.leave_out_price(&info.instance_type);
    }
    let provider = world.provider();
    world.pass(60).await;
    let asked = world.cloud.calls()["GetProducts"];
    assert_eq!(asked, 2);
    let types = provider.instance_types(&pool()).await.unwrap();
    for name in ["m5.large", "m5.xlarge", "m5.metal"] {
        let one = types.iter().find(|one| one.name == name).unwrap();
        let sold = one.offerings.iter().any(|it| {
            it.available
                && it.price > Price::ZERO
                && it.capacity_type().is_some_and(|it| it.as_str() == "on-demand")
        });
        assert!(sold, "{name}");
    }
    world.pass(6 * 60).await;
    assert_eq!(
        world.cloud.calls()["GetProducts"],
        asked + 2,
        "no price list is empty"
    );
}

/// Neither EC2 nor the table of the program knows what it costs, as of types that are new.
#[tokio::test(start_paused = true)]
async fn a_050_an_overlay_prices_a_type_without_a_price_for_as_long_as_it_is_valid() {
    const REGION: &str = "us-gov-west-1";
    let (table, facts) = (Prices::built_in(REGION), facts());
    let new = facts.types.values().find(|info| {
        let is_plain = !info.bare_metal && info.gpu_info.is_none() && info.neuron_info.is_none();
        is_plain && table.on_demand(&info.instance_type).is_none()
    });
    let name = new.unwrap().instance_type.clone();
    let world = ready().await;
    world.cloud.forget_price(&name);
    let provider = world.provider_set(|options| {
        options.region = REGION.to_owned();
        options.node_overlays = true;
    });
    world.pass(60).await;
    let price = async || {
        let types = provider.instance_types(&pool()).await.unwrap();
        let one = types.iter().find(|one| one.name == name).unwrap();
        let mut sold = one.offerings.iter().filter(|it| it.available);
        sold.next().map(|it| it.price)
    };
    assert_eq!(price().await, None);
    let overlays: Api<NodeOverlay> = Api::all(world.client.clone());
    let overlay = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "new"},
        "spec": {"requirements": [{"key": labels::INSTANCE_TYPE, "operator": "In", "values": [name]}], "price": "1.20"},
    });
    let overlay = serde_json::from_value(overlay).unwrap();
    overlays.create(&PostParams::default(), &overlay).await.unwrap();
    world.pass(5).await;
    assert_eq!(price().await, None, "nobody has said yet that it is valid");
    let valid = json!({"status": {"conditions": [{
        "type": "ValidationSucceeded", "status": "True", "reason": "ValidationSucceeded", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let parameters = PatchParams::default();
    let patched = overlays
        .patch_status("new", &parameters, &Patch::Merge(valid))
        .await;
    patched.unwrap();
    world.pass(5).await;
    assert_eq!(price().await, Some("1.20".parse().unwrap()));
    overlays.delete("new", &DeleteParams::default()).await.unwrap();
    world.pass(5).await;
    assert_eq!(price().await, None);
}

/// Two clusters in one account: each lists its own instances, and says of the other's messages that they are a stranger's.
#[tokio::test(start_paused = true)]
async fn a_090_instances_of_another_cluster_are_not_listed() {
    let world = ready().await;
    world
        .class(
            "bottlerocket",
            serde_json::json!({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]}),
        )
        .await;
    let ours = world.provider();
    // It writes nothing, so that only one of them says of the classes what they are.
    let theirs = world.reading_provider(|options| {
        options.cluster_name = "another".to_owned();
        options.cluster_endpoint = Some("https://another.example".to_owned());
        options.interruption_queue = None;
    });
    world.pass(90).await;
    let mut wanted = large("one");
    let launched = ours.create(&wanted).await.unwrap();
    wanted.spec.node_class_ref.name = "bottlerocket".to_owned();
    wanted.metadata.uid = Some("uid-there".to_owned());
    let launched_there = theirs.create(&wanted).await.unwrap();
    world.pass(60).await;
    assert_eq!(world.cloud.instances().len(), 2);
    for (provider, launched) in [(&ours, &launched), (&theirs, &launched_there)] {
        let listed = provider.list().await.unwrap();
        let ids: Vec<_> = listed.iter().map(|claim| claim.provider_id()).collect();
        assert_eq!(ids, [launched.provider_id()]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_091_a_nodeclaim_without_provider_id_has_no_instance_unless_its_launch_was_not_written_down() {
    let (world, provider) = at_work().await;
    let wanted = large("one");
    let ended = provider.delete(&wanted).await;
    assert!(
        ended.is_err_and(|error| error.is_not_found()),
        "its end waits for nothing"
    );
    provider.create(&wanted).await.unwrap();
    provider.delete(&wanted).await.unwrap();
    world.pass(60).await;
    assert!(world.cloud.instances().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_040_without_types_at_the_start_nothing_is_for_sale_and_later_failures_keep_what_is_known() {
    let world = ready().await;
    let asked = || {
        world
            .cloud
            .calls()
            .get("DescribeInstanceTypes")
            .copied()
            .unwrap_or_default()
    };
    let broken = ApiError::new("InternalError", "An internal error has occurred.");
    world.cloud.fail("DescribeInstanceTypes", &broken, 3);
    let provider = world.provider();
    world.pass(15).await;
    let error = provider.instance_types(&pool()).await.unwrap_err();
    assert!(error.to_string().contains("not known yet"), "{error}");
    world.pass(60).await;
    let types = provider.instance_types(&pool()).await.unwrap();
    assert!(types.len() > 500, "{}", types.len());
    let before = asked();
    world.cloud.fail("DescribeInstanceTypes", &broken, 1_000);
    world.pass(12 * 3_600 + 60).await;
    assert!(asked() > before, "asked again after twelve hours");
    let still = provider.instance_types(&pool()).await.unwrap();
    assert_eq!(still.len(), types.len());
}
