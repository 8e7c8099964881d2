//! The queue of interruptions and the poll of statuses, from EC2 to what core is told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_aws_cloud::AwsProvider;
use spokeshave_ec2_simulated::{Check, Options};
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{CloudProvider as _, Interruption};
use spokeshave_provider_aws::errors::ApiError;

use crate::world::{CLUSTER, World, claim, pool};

/// A provider with one spot instance that runs.
async fn with_instance(world: &World) -> (Arc<AwsProvider>, String, String) {
    let provider = world.provider();
    world.pass(60).await;
    let wanted = claim(
        "one",
        &[
            (labels::INSTANCE_TYPE, &["m5.large"]),
            (labels::CAPACITY_TYPE, &["spot"]),
        ],
    );
    let launched = provider.create(&wanted).await.unwrap();
    world.pass(30).await;
    let id = world.cloud.instances()[0].id.clone();
    (provider, id, launched.provider_id().unwrap().to_owned())
}

/// What core is told within so many seconds.
async fn heard(world: &World, provider: &AwsProvider, seconds: u64) -> Vec<Interruption> {
    let mut messages = provider.interruptions().unwrap();
    let until = world.clock.sleep(Duration::from_secs(seconds));
    tokio::pin!(until);
    let mut heard = Vec::new();
    loop {
        tokio::select! {
            biased;
            Some(message) = messages.next() => heard.push(message),
            () = &mut until => return heard,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_112_a_115_a_spot_interruption_reaches_core_with_its_deadline_and_closes_the_offering() {
    let world = World::new(Options::new(CLUSTER)).await;
    let (provider, id, provider_id) = with_instance(&world).await;
    let at = world.clock.now();
    assert!(world.cloud.interrupt(&id) && !world.cloud.interrupt(&id));
    let heard = heard(&world, &provider, 5).await;
    assert_eq!(heard.len(), 1);
    assert_eq!(
        (&heard[0].kind, heard[0].provider_id.as_str()),
        (&Ok(InterruptionKind::SpotInterrupted), provider_id.as_str())
    );
    let left = heard[0].ends_at.unwrap().duration_since(at).as_secs();
    assert!((119..=120).contains(&left), "{left}");
    let types = provider.instance_types(&pool()).await.unwrap();
    let zone = provider_id
        .trim_start_matches("aws:///")
        .split('/')
        .next()
        .unwrap();
    let one = types.iter().find(|one| one.name == "m5.large").unwrap();
    assert!(one.offerings.iter().any(|it| it.zone() == Some(zone)
        && it.capacity_type().is_some_and(|it| it.as_str() == "spot")
        && !it.available));
    let is_sold = |there: bool, capacity_type: &str| {
        let offerings = one
            .offerings
            .iter()
            .filter(|it| (it.zone() == Some(zone)) == there);
        offerings
            .filter(|it| it.capacity_type().is_some_and(|it| it.as_str() == capacity_type))
            .all(|it| it.available)
    };
    assert!(
        !is_sold(true, "spot") && is_sold(false, "spot") && is_sold(true, "on-demand"),
        "that offering and no other"
    );
    provider.acknowledge(&heard[0]).await.unwrap();
    assert_eq!(world.cloud.messages(), 0);
    world.pass(180).await;
    assert!(
        world.cloud.instances().is_empty(),
        "EC2 takes it back whatever anybody does"
    );
}

/// EventBridge's clock and ours are minutes apart, either way: the pods have the two minutes that EC2 gives, and no more.
#[tokio::test(start_paused = true)]
async fn a_112_d_281_a_notice_whose_time_is_minutes_off_counts_from_when_it_is_read() {
    for minutes in [-30, -3, 7, 600] {
        let world = World::new(Options::new(CLUSTER)).await;
        let (provider, id, provider_id) = with_instance(&world).await;
        let now = world.clock.now();
        let time = now
            .saturating_add(jiff::SignedDuration::from_mins(minutes))
            .unwrap();
        let body = json!({
            "version": "0", "id": "1", "source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning", "time": time.to_string(),
            "region": "us-east-1", "detail": {"instance-id": id, "instance-action": "terminate"},
        });
        world.cloud.send_message(body.to_string());
        let heard = heard(&world, &provider, 5).await;
        let about: Vec<_> = heard
            .iter()
            .map(|message| (message.provider_id.as_str(), message.kind.clone()))
            .collect();
        assert_eq!(
            about,
            [(provider_id.as_str(), Ok(InterruptionKind::SpotInterrupted))],
            "{minutes}"
        );
        let left = heard[0].ends_at.unwrap().duration_since(now).as_secs();
        assert!((119..=125).contains(&left), "{minutes} minutes off: {left} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_110_d_273_a_message_comes_again_until_it_is_answered_for() {
    let world = World::new(Options::new(CLUSTER)).await;
    let (provider, id, _) = with_instance(&world).await;
    world.cloud.announce_maintenance(&id);
    let first = heard(&world, &provider, 3).await;
    let again = heard(&world, &provider, 25).await;
    assert_eq!(first[0].kind, Ok(InterruptionKind::ScheduledChange));
    assert_eq!(again[0].id, first[0].id, "nobody has acknowledged it");
    provider.acknowledge(&again[0]).await.unwrap();
    assert_eq!(world.cloud.messages(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_110_d_278_messages_of_any_shape_and_of_strangers_stop_nothing() {
    let world = World::new(Options::new(CLUSTER)).await;
    let (provider, id, provider_id) = with_instance(&world).await;
    for body in [
        "",
        "hello",
        "[]",
        "{}",
        "null",
        "{\"version\":\"0\",\"source\":\"aws.ec2\",\"detail-type\":\"EC2 Spot Instance Interruption Warning\",\"detail\":{}}",
    ] {
        world.cloud.send_message(body.to_owned());
    }
    world.cloud.recommend_rebalance("i-0123456789abcdef0");
    world.cloud.interrupt(&id);
    let heard = heard(&world, &provider, 15).await;
    let ours: Vec<_> = heard
        .iter()
        .filter(|message| message.provider_id == provider_id)
        .collect();
    assert_eq!(ours.len(), 1, "{heard:?}");
    // D-278: one about somebody else's instance names none of ours.
    let kinds = |wanted: &InterruptionKind| {
        let about_others = heard.iter().filter(|message| message.provider_id.is_empty());
        about_others
            .filter(|message| message.kind.as_ref() == Ok(wanted))
            .count()
    };
    assert_eq!(kinds(&InterruptionKind::RebalanceRecommendation), 1);
    for message in &heard {
        provider.acknowledge(message).await.unwrap();
    }
    assert_eq!(
        world.cloud.messages(),
        0,
        "what nobody understands is deleted as well"
    );
}

/// A-110, D-277, D-278: an operator that has just started knows no instance; while EC2 does not answer, nobody can say whose one is, and no message is deleted.
#[tokio::test(start_paused = true)]
async fn a_110_a_message_is_kept_while_nobody_knows_whose_instance_it_is_about() {
    let world = World::new(Options::new(CLUSTER)).await;
    let (_, id, provider_id) = with_instance(&world).await;
    let restarted = world.provider();
    let broken = ApiError {
        code: "InternalError".to_owned(),
        message: "An internal error has occurred".to_owned(),
        ..ApiError::default()
    };
    world.cloud.fail("DescribeInstances", &broken, 20);
    world.cloud.interrupt(&id);
    assert_eq!(heard(&world, &restarted, 10).await, []);
    assert_eq!(world.cloud.messages(), 1, "it is still there");
    world.cloud.heal();
    let heard = heard(&world, &restarted, 60).await;
    // It comes again until it is answered for.
    let about: BTreeSet<&str> = heard.iter().map(|message| message.provider_id.as_str()).collect();
    assert_eq!(about, BTreeSet::from([provider_id.as_str()]));
    assert!(heard[0].sent_at.is_some(), "D-286");
}

#[tokio::test(start_paused = true)]
async fn d_272_without_a_name_for_the_queue_no_queue_is_asked_and_statuses_are() {
    let world = World::new(Options::new(CLUSTER)).await;
    let provider = world.provider_set(|options| options.interruption_queue = None);
    assert!(heard(&world, &provider, 130).await.is_empty());
    let calls = world.cloud.calls();
    assert!(!calls.contains_key("GetQueueUrl") && !calls.contains_key("ReceiveMessage"));
    assert_eq!(
        calls["DescribeInstanceStatus"],
        2 * 3,
        "D-288: three filters, every minute"
    );
}

#[tokio::test(start_paused = true)]
async fn a_110_d_272_a_queue_that_is_missing_is_told_of_once_and_read_as_soon_as_it_is_made() {
    let world = World::new(Options {
        queue_name: None,
        ..Options::new(CLUSTER)
    })
    .await;
    let (provider, id, provider_id) = with_instance(&world).await;
    assert!(heard(&world, &provider, 60).await.is_empty());
    let looked = world.cloud.calls()["GetQueueUrl"];
    assert!((5..=13).contains(&looked), "every five seconds: {looked}");
    let told = |reason: &'static str| {
        let provider = provider.clone();
        async move {
            let mut notices = provider.notices().unwrap();
            let mut told = Vec::new();
            while let Some(Some(notice)) = notices.next().now_or_never() {
                told.push(notice);
            }
            told.retain(|notice| notice.reason == reason);
            told
        }
    };
    let notices = told("InterruptionQueueUnreadable").await;
    assert_eq!(notices.len(), 1, "once, not with each attempt: {notices:?}");
    assert_eq!(
        (
            notices[0].kind.as_str(),
            notices[0].name.as_str(),
            notices[0].is_warning
        ),
        ("EC2NodeClass", "default", true)
    );
    for part in ["SQS queue rehearsal", "create it", "INTERRUPTION_QUEUE"] {
        assert!(notices[0].message.contains(part), "{}", notices[0].message);
    }
    world.cloud.set_queue(Some(CLUSTER));
    world.cloud.announce_maintenance(&id);
    let messages = heard(&world, &provider, 10).await;
    let about: Vec<&str> = messages.iter().map(|it| it.provider_id.as_str()).collect();
    assert_eq!(about, [provider_id.as_str()]);
    provider.acknowledge(&messages[0]).await.unwrap();
    assert_eq!(world.cloud.messages(), 0);
    // A queue that was removed behind the operator's back is looked for and told of again.
    world.cloud.set_queue(None);
    assert!(heard(&world, &provider, 60).await.is_empty());
    assert_eq!(told("InterruptionQueueUnreadable").await.len(), 1);
    world.cloud.set_queue(Some(CLUSTER));
    world.cloud.announce_maintenance(&id);
    assert_eq!(heard(&world, &provider, 10).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_116_d_288_d_290_an_instance_whose_check_fails_for_two_minutes_ends_now_and_one_with_maintenance_soon()
 {
    let world = World::new(Options {
        queue_name: None,
        ..Options::new(CLUSTER)
    })
    .await;
    let (provider, id, provider_id) = with_instance(&world).await;
    world.cloud.impair(&id, Check::System, true);
    assert!(
        heard(&world, &provider, 110).await.is_empty(),
        "it may pass by itself"
    );
    let told = heard(&world, &provider, 90).await;
    assert_eq!(
        (&told[0].kind, told[0].provider_id.as_str()),
        (&Ok(InterruptionKind::SystemStatus), provider_id.as_str())
    );
    assert!(
        told[0].ends_at.is_some_and(|at| at <= world.clock.now()),
        "nothing is waited for"
    );
    provider.acknowledge(&told[0]).await.unwrap();
    world.cloud.impair(&id, Check::System, false);
    assert!(heard(&world, &provider, 200).await.is_empty(), "it has recovered");
    world.cloud.announce_maintenance(&id);
    let told = heard(&world, &provider, 70).await;
    assert_eq!(
        (&told[0].kind, told[0].ends_at),
        (&Ok(InterruptionKind::EventStatus), None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_116_d_292_without_permission_the_poll_ends_and_the_queue_goes_on() {
    let world = World::new(Options::new(CLUSTER)).await;
    let (provider, id, _) = with_instance(&world).await;
    let denied = ApiError::new(
        "UnauthorizedOperation",
        "You are not authorized to perform this operation.",
    );
    world.cloud.fail("DescribeInstanceStatus", &denied, 1);
    let asked = |world: &World| {
        world
            .cloud
            .calls()
            .get("DescribeInstanceStatus")
            .copied()
            .unwrap_or_default()
    };
    world.cloud.impair(&id, Check::Instance, true);
    let mut messages = provider.interruptions().unwrap();
    let next = async {
        world.clock.sleep(Duration::from_secs(600)).await;
        world.cloud.interrupt(&id);
    };
    let (message, ()) = futures::join!(messages.next(), next);
    assert_eq!(message.unwrap().kind, Ok(InterruptionKind::SpotInterrupted));
    assert_eq!(asked(&world), 1);
}

#[tokio::test(start_paused = true)]
async fn a_110_an_instance_that_only_a_node_claim_tells_of_is_ours() {
    let world = World::new(Options::new(CLUSTER)).await;
    let provider = world.provider();
    let provider_id = "aws:///us-east-1a/i-0fedcba9876543210";
    let mut written = claim("one", &[(labels::INSTANCE_TYPE, &["m5.large"])]);
    written.metadata.uid = None;
    let api: Api<NodeClaim> = Api::all(world.client.clone());
    api.create(&PostParams::default(), &written).await.unwrap();
    let status = Patch::Merge(json!({"status": {"providerID": provider_id}}));
    api.patch_status("one", &PatchParams::default(), &status)
        .await
        .unwrap();
    world.pass(5).await;
    world.cloud.recommend_rebalance("i-0fedcba9876543210");
    world.cloud.recommend_rebalance("i-0000000000000abcd");
    let told = heard(&world, &provider, 5).await;
    let about: Vec<&str> = told.iter().map(|message| message.provider_id.as_str()).collect();
    assert_eq!(about, [provider_id, ""], "the other one is a stranger's");
}

#[tokio::test(start_paused = true)]
async fn a_110_d_273_of_a_thousand_messages_none_is_lost_when_the_operator_ends_in_the_middle() {
    const MESSAGES: usize = 1_000;
    let world = World::new(Options::new(CLUSTER)).await;
    let (provider, id, _) = with_instance(&world).await;
    for _ in 0..MESSAGES {
        world.cloud.recommend_rebalance(&id);
    }
    let asked = |call: &str| world.cloud.calls().get(call).copied().unwrap_or_default();
    let (received, described) = (asked("ReceiveMessage"), asked("DescribeInstances"));
    let mut answered = BTreeSet::new();
    // It has taken more in hand than it has answered for when it ends.
    let mut messages = provider.interruptions().unwrap();
    for number in 0..400 {
        let message = messages.next().await.unwrap();
        if number < 395 {
            provider.acknowledge(&message).await.unwrap();
            answered.insert(message.id);
        }
    }
    drop(messages);
    let restarted = world.provider();
    let mut messages = restarted.interruptions().unwrap();
    let until = world.clock.sleep(Duration::from_secs(240));
    tokio::pin!(until);
    loop {
        tokio::select! {
            biased;
            Some(message) = messages.next() => {
                restarted.acknowledge(&message).await.unwrap();
                answered.insert(message.id);
            }
            () = &mut until => break,
        }
    }
    assert_eq!((answered.len(), world.cloud.messages()), (MESSAGES, 0));
    let received = asked("ReceiveMessage") - received;
    assert!((100..=130).contains(&received), "ten a call: {received}");
    let described = asked("DescribeInstances") - described;
    assert!(described <= 5, "not once for each message: {described}");
}
