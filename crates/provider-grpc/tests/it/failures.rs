//! Launches and instances that fail later, terminations that wait, and rows of lists that the catalog does not explain (G-008, G-009, G-010, G-012).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_plan::garbage_collection::leaked_instances;
use spokeshave_ports::{CloudError, CloudProvider as _, SharedClock};
use spokeshave_provider_grpc::{GrpcProvider, Server, ServerOptions, piped};

use crate::flawed::{Flaw, Flawed};
use crate::shed::{Shed, claim, clock, options, pool};

async fn operator(flaw: Flaw) -> (GrpcProvider, Arc<Shed>, SharedClock) {
    let (operator, shed, provider) = operator_of(flaw).await;
    (operator, shed, provider.clock)
}

/// An operator, the cloud and the provider between them.
pub(crate) async fn operator_of(flaw: Flaw) -> (GrpcProvider, Arc<Shed>, Flawed) {
    let clock = clock();
    let shed = Shed::new(clock.clone());
    let server = Server::new(shed.clone(), clock.clone(), ServerOptions::default());
    let provider = Flawed::new(server, flaw, clock);
    (connected(&provider).await, shed, provider)
}

/// Another operator of the same cluster.
async fn connected(provider: &Flawed) -> GrpcProvider {
    let options = options(Arc::new(piped(provider.clone())));
    let operator = GrpcProvider::connect(options, provider.clock.clone()).await;
    operator.expect("a connection")
}

/// A launch that is pending ends by an event, one that had an instance by a message about it.
#[tokio::test(start_paused = true)]
async fn g_008_a_launch_that_fails_after_it_was_accepted_ends_its_nodeclaim() {
    let (operator, ..) = operator(Flaw::FailsLater).await;
    let listening = operator.clone();
    let first = tokio::spawn(async move {
        let mut messages = listening.interruptions().expect("messages");
        messages.next().await
    });
    let error = operator.create(&claim("pending")).await.expect_err("sold out");
    assert_eq!(error, CloudError::InsufficientCapacity("sold out".into()));
    let told = first.await.expect("no panic").expect("a message");
    assert_eq!(told.provider_id, "shed://uid-of-started");
    assert_eq!(told.kind, Ok(InterruptionKind::InstanceTerminated));
}

/// An event that names its NodeClaim alone is about the instance of that NodeClaim, once the launch was answered with one.
#[tokio::test(start_paused = true)]
async fn g_008_a_launch_that_fails_after_its_answer_is_told_without_a_provider_id_too() {
    let (operator, ..) = operator(Flaw::FailsLater).await;
    let late = operator.create(&claim("late")).await.expect("launched");
    let messages = operator.interruptions().expect("messages");
    let mut messages = messages.filter(|one| std::future::ready(one.provider_id == "shed://uid-of-late"));
    let told = tokio::time::timeout(Duration::from_secs(60), messages.next()).await;
    let told = told.expect("when the event comes").expect("a message");
    assert_eq!(Some(told.provider_id.as_str()), late.provider_id());
    assert_eq!(told.kind, Ok(InterruptionKind::InstanceTerminated));
}

/// An operator that has not asked for the launch itself finds the instance of such an event in the list.
#[tokio::test(start_paused = true)]
async fn g_008_a_failure_of_a_launch_before_a_restart_is_told_with_the_next_list() {
    let (before, _, provider) = operator_of(Flaw::FailsLater).await;
    before.create(&claim("late")).await.expect("launched");
    drop(before);
    let operator = connected(&provider).await;
    let messages = operator.interruptions().expect("messages");
    let mut messages = messages.filter(|one| std::future::ready(one.provider_id == "shed://uid-of-late"));
    let silence = tokio::time::timeout(Duration::from_secs(60), messages.next()).await;
    assert!(silence.is_err(), "nobody knows its instance: {silence:?}");
    assert_eq!(operator.list().await.expect("listed").len(), 1);
    let told = tokio::time::timeout(Duration::from_secs(60), messages.next()).await;
    let told = told.expect("after the list").expect("a message");
    assert_eq!(told.kind, Ok(InterruptionKind::InstanceTerminated));
}

/// An instance that is listed as failed ends as one that has ended by itself, and is listed as long as it is there: nothing leaks.
#[tokio::test(start_paused = true)]
async fn g_008_an_instance_that_has_failed_is_told_and_stays_listed() {
    let (operator, _, clock) = operator(Flaw::FailsLater).await;
    let broken = operator.create(&claim("broken")).await.expect("launched");
    operator.create(&claim("well")).await.expect("launched");
    assert_eq!(operator.list().await.expect("listed").len(), 2);
    let mut messages = operator.interruptions().expect("messages").filter(|one| {
        let is_of_list = one.id.starts_with("failed/");
        std::future::ready(is_of_list)
    });
    let told = messages.next().await.expect("a message");
    assert_eq!(Some(told.provider_id.as_str()), broken.provider_id());
    assert_eq!(told.kind, Ok(InterruptionKind::InstanceTerminated));
    operator.acknowledge(&told).await.expect("acknowledged");
    clock.sleep(Duration::from_secs(60)).await;
    let silence = tokio::time::timeout(Duration::from_secs(60), messages.next()).await;
    assert!(silence.is_err(), "the one that is well is no news: {silence:?}");
}

/// What is ending runs no pod: it is as if there had been no capacity.
#[tokio::test(start_paused = true)]
async fn g_008_a_launch_that_is_answered_with_an_instance_that_is_ending_has_failed() {
    let (operator, ..) = operator(Flaw::LaunchEnding).await;
    let error = operator.create(&claim("one")).await.expect_err("it ends");
    let said = "the provider says that instance shed://uid-of-one has failed or is ending";
    assert_eq!(error, CloudError::InsufficientCapacity(said.into()));
}

/// A list is everything or an error, and what has no ID yet is nothing that could leak.
#[tokio::test(start_paused = true)]
async fn g_011_a_launch_under_way_that_is_listed_without_an_id_spoils_no_list() {
    let (operator, ..) = operator(Flaw::ListsPending).await;
    let launched = operator.create(&claim("one")).await.expect("launched");
    let listed = operator.list().await.expect("listed");
    let ids: Vec<_> = listed.iter().map(|one| one.provider_id()).collect();
    assert_eq!(ids, [launched.provider_id()]);
}

/// A provider that stores the UID only, as the documentation asks, and whose launch is answered later than its machine is listed.
#[tokio::test(start_paused = true)]
async fn d_252_g_012_the_machine_of_a_slow_launch_is_its_nodeclaims_by_the_uid_alone() {
    let (operator, _, clock) = operator(Flaw::ListWithoutName).await;
    let launching = operator.clone();
    let launch = tokio::spawn(async move { launching.create(&claim("one")).await });
    clock.sleep(Duration::from_secs(45)).await;
    let listed = operator.list().await.expect("listed");
    let names: Vec<_> = listed.iter().map(|one| (one.name(), one.uid())).collect();
    assert_eq!(names, [("", "uid-of-one")]);
    let leaked = |claims: &[Arc<NodeClaim>]| {
        let found = leaked_instances(&listed, claims, &BTreeSet::new(), clock.now());
        found.len()
    };
    assert_eq!(leaked(&[Arc::new(claim("one"))]), 0);
    assert_eq!(leaked(&[Arc::new(claim("two"))]), 1);
    launch.await.expect("no panic").expect("launched");
}

/// A failed call would count towards the breaker that freezes disruption.
#[tokio::test(start_paused = true)]
async fn g_010_w_30_a_termination_that_is_postponed_has_not_failed() {
    let (operator, shed, _) = operator(Flaw::None).await;
    let launched = operator.create(&claim("one")).await.expect("launched");
    let postponed = CloudError::Postponed {
        message: "zone a is shifted".into(),
        again_after: Duration::from_secs(30),
    };
    *shed.refusal.lock().expect("no panic") = Some(postponed.clone());
    assert_eq!(operator.delete(&launched).await, Err(postponed));
    *shed.refusal.lock().expect("no panic") = None;
    assert_eq!(operator.delete(&launched).await, Ok(()));
}

/// A type that is no longer offered and a class that nobody asks about hide no instance (what is not listed is taken for gone).
#[tokio::test(start_paused = true)]
async fn g_012_instances_of_types_and_classes_that_are_not_known_any_more_are_listed() {
    let (operator, shed, clock) = operator(Flaw::None).await;
    let launched = operator.create(&claim("one")).await.expect("launched");
    let kept = shed.types.lock().expect("no panic").to_vec();
    let kept = kept
        .into_iter()
        .filter(|one| Some(one.name.as_str()) != launched.label(labels::INSTANCE_TYPE));
    let kept: Vec<_> = kept.collect();
    *shed.types.lock().expect("no panic") = kept.into();
    clock.sleep(Duration::from_secs(10)).await;
    assert_eq!(operator.instance_types(&pool()).await.expect("types").len(), 1);
    let listed = operator.list().await.expect("listed");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].provider_id(), launched.provider_id());
    assert_eq!(listed[0].uid(), "uid-of-one");
    let status = |one: &NodeClaim| one.status.clone().expect("a status").capacity;
    assert_eq!(
        status(&listed[0]),
        status(&launched),
        "what the instance says itself"
    );
    let got = operator.get(launched.provider_id().expect("an ID")).await;
    assert_eq!(got.expect("found").uid(), "uid-of-one");
}
