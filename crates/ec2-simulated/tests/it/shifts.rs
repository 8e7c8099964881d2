//! Zonal shifts: what they keep from happening, and what users read about them.

use futures::StreamExt as _;
use kube::api::{Api, PostParams};
use spokeshave_api::{NodePool, labels};
use spokeshave_ec2_simulated::Options;
use spokeshave_model::InstanceType;
use spokeshave_ports::{CloudError, CloudProvider as _};

use crate::world::{CLUSTER, World, claim, pool};

const ZONE: &str = "us-east-1a";

fn is_sold(types: &[InstanceType], zone: &str) -> bool {
    let mut offerings = types.iter().flat_map(|one| &one.offerings);
    offerings.any(|offering| offering.available && offering.zone() == Some(zone))
}

#[tokio::test(start_paused = true)]
async fn d_295_d_296_w_30_a_shifted_zone_launches_and_terminates_nothing_and_forgets_nothing() {
    let world = World::new(Options::new(CLUSTER)).await;
    let pools: Api<NodePool> = Api::all(world.client.clone());
    pools.create(&PostParams::default(), &pool()).await.unwrap();
    let provider = world.provider_set(|options| options.zonal_shift = true);
    world.pass(60).await;
    let wanted = claim(
        "one",
        &[(labels::INSTANCE_TYPE, &["m5.large"]), (labels::ZONE, &[ZONE])],
    );
    let launched = provider.create(&wanted).await.unwrap();
    world.pass(60).await;
    assert_eq!(provider.list().await.unwrap().len(), 1);
    let before = provider.instance_types(&pool()).await.unwrap();
    assert!(is_sold(&before, ZONE));

    world.cloud.set_shifted(ZONE, true);
    world.pass(31).await;
    let during = provider.instance_types(&pool()).await.unwrap();
    assert!(!is_sold(&during, ZONE) && is_sold(&during, "us-east-1b"));
    let elsewhere = provider
        .create(&claim("two", &[(labels::INSTANCE_TYPE, &["m5.large"])]))
        .await
        .unwrap();
    assert_ne!(elsewhere.label(labels::ZONE), Some(ZONE));
    match provider.delete(&launched).await {
        Err(CloudError::Postponed { message, again_after }) => {
            assert!(message.contains(ZONE), "{message}");
            assert_eq!(again_after.as_secs(), 30);
        }
        other => panic!("{other:?}"),
    }
    assert!(!world.cloud.calls().contains_key("TerminateInstances"));

    // What EC2 no longer tells of the zone is not gone: garbage collection would believe it.
    let provider_id = launched.provider_id().unwrap();
    let id = provider_id.rsplit('/').next().unwrap();
    assert!(world.cloud.terminate(id));
    world.pass(60).await;
    let listed = provider.list().await.unwrap();
    assert!(listed.iter().any(|one| one.provider_id() == Some(provider_id)));
    assert!(provider.get(provider_id).await.is_ok());

    world.cloud.set_shifted(ZONE, false);
    world.pass(31).await;
    assert!(is_sold(&provider.instance_types(&pool()).await.unwrap(), ZONE));
    let ended = provider.delete(&launched).await;
    assert!(ended.is_err_and(|error| error.is_not_found()));
    assert_eq!(provider.list().await.unwrap().len(), 1, "the other one");

    let told: Vec<_> = provider.notices().unwrap().take(2).collect().await;
    let told: Vec<_> = told
        .iter()
        .map(|it| {
            (
                it.kind.as_str(),
                it.name.as_str(),
                it.is_warning,
                it.reason,
                it.message.as_str(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (
                "NodePool",
                "general",
                true,
                "ZonalShiftActive",
                "Zonal shift detected: offerings in zone us-east-1a (use1-az1) are unavailable for this NodePool"
            ),
            (
                "NodePool",
                "general",
                false,
                "ZonalShiftCleared",
                "Zonal shift cleared: offerings in zone us-east-1a (use1-az1) are restored for this NodePool"
            ),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn d_295_without_the_setting_nobody_asks_for_zonal_shifts() {
    let world = World::new(Options::new(CLUSTER)).await;
    let provider = world.provider();
    world.cloud.set_shifted(ZONE, true);
    world.pass(120).await;
    assert!(is_sold(&provider.instance_types(&pool()).await.unwrap(), ZONE));
    assert!(!world.cloud.calls().contains_key("GetManagedResource"));
}

#[tokio::test(start_paused = true)]
async fn d_295_a_question_about_shifts_that_fails_changes_nothing_and_is_asked_again() {
    let world = World::new(Options::new(CLUSTER)).await;
    let provider = world.provider_set(|options| options.zonal_shift = true);
    world.cloud.set_shifted(ZONE, true);
    world.pass(120).await;
    let broken = spokeshave_provider_aws::errors::ApiError::new("InternalServerException", "broken");
    world.cloud.fail("GetManagedResource", &broken, 4);
    world.cloud.set_shifted(ZONE, false);
    world.pass(90).await;
    assert!(!is_sold(&provider.instance_types(&pool()).await.unwrap(), ZONE));
    world.pass(90).await;
    assert!(is_sold(&provider.instance_types(&pool()).await.unwrap(), ZONE));
}
