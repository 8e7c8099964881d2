//! Events written to a live API server (D §1.5, P §17).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::World;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use spokeshave_runtime::client::{ClientOptions, RequestLog, from_service};
use spokeshave_runtime::{EventKind, EventNotice, EventRecorder, EventRecorderOptions, Shutdown};
use tower::ServiceExt as _;

fn notice(name: &str, message: &str) -> EventNotice {
    let object = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(name.into()),
        uid: Some(format!("uid-of-{name}")),
        ..ObjectReference::default()
    };
    EventNotice::new(object, EventKind::Normal, "DisruptionBlocked", message)
}

async fn events(world: &World) -> Vec<Event> {
    Api::default_namespaced(world.client())
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
}

/// D-034: the source component is `karpenter`; equal events within two minutes are one; later ones are counted.
#[tokio::test(start_paused = true)]
async fn d_034_events_are_written_once_and_counted_later() {
    let world = World::new(1);
    let options = EventRecorderOptions::default();
    let (recorder, writer) = EventRecorder::new(
        world.client(),
        "karpenter",
        world.clock.clone(),
        &world.entropy,
        &world.metrics,
        options,
    );
    let shutdown = Shutdown::new();
    let writing = tokio::spawn(writer.run(shutdown.clone()));
    for _ in 0..3 {
        recorder.publish(notice("a", "text"));
        world.pass(1).await;
    }
    let first = events(&world).await;
    assert_eq!(first.len(), 1);
    let event = &first[0];
    assert_eq!(
        event.source.as_ref().unwrap().component.as_deref(),
        Some("karpenter")
    );
    assert_eq!((event.count, event.type_.as_deref()), (Some(1), Some("Normal")));
    assert_eq!(event.involved_object.name.as_deref(), Some("a"));
    assert!(event.metadata.name.as_ref().unwrap().starts_with("a."));

    world.pass(120).await;
    recorder.publish(notice("a", "text"));
    world.pass(1).await;
    let second = events(&world).await;
    assert_eq!(
        (second.len(), second[0].count),
        (1, Some(2)),
        "the same event again"
    );
    assert_eq!(second[0].first_timestamp, event.first_timestamp);
    assert!(second[0].last_timestamp > event.last_timestamp);

    let api: Api<Event> = Api::default_namespaced(world.client());
    api.delete(event.metadata.name.as_ref().unwrap(), &DeleteParams::default())
        .await
        .unwrap();
    world.pass(120).await;
    recorder.publish(notice("a", "text"));
    shutdown.request();
    writing.await.unwrap();
    let third = events(&world).await;
    assert_eq!(
        (third.len(), third[0].count),
        (1, Some(1)),
        "what the server forgot is told anew, also in shutdown"
    );
}

/// A client that the server refuses as often as this number says.
fn refused(world: &World, times: &Arc<AtomicU32>) -> kube::Client {
    let (server, times) = (world.server.service(), times.clone());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (server, is_refused) = (server.clone(), times.load(Ordering::SeqCst) > 0);
        if is_refused {
            times.fetch_sub(1, Ordering::SeqCst);
        }
        async move {
            if is_refused {
                return Err(tower::BoxError::from("connection refused"));
            }
            server.oneshot(request).await.map_err(tower::BoxError::from)
        }
    });
    let options = ClientOptions {
        rate: None,
        ..ClientOptions::default()
    };
    from_service(service, "default", &options, world.clock.clone())
}

/// `count` says how often something happened: not how often it took to write that down, nor what was dropped.
#[tokio::test(start_paused = true)]
async fn d_034_an_event_counts_once_however_often_its_write_is_tried() {
    let world = World::new(1);
    let refusals = Arc::new(AtomicU32::new(0));
    let (recorder, writer) = EventRecorder::new(
        refused(&world, &refusals),
        "karpenter",
        world.clock.clone(),
        &world.entropy,
        &world.metrics,
        EventRecorderOptions::default(),
    );
    let shutdown = Shutdown::new();
    let writing = tokio::spawn(writer.run(shutdown.clone()));
    // Three refusals are outlasted; at four the event is dropped.
    for (times, count) in [(0, 1), (3, 2), (4, 2), (0, 3)] {
        refusals.store(times, Ordering::SeqCst);
        recorder.publish(notice("a", "text"));
        world.pass(60).await;
        assert_eq!(refusals.load(Ordering::SeqCst), 0);
        let told = events(&world).await;
        assert_eq!(
            (told.len(), told[0].count),
            (1, Some(count)),
            "after {times} refusals"
        );
        world.pass(120).await;
    }
    let dropped = r#"spokeshave_events_dropped_total{reason="DisruptionBlocked"} 1"#;
    assert!(world.metrics.render().contains(dropped));
    shutdown.request();
    writing.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_and_counts_but_never_waits() {
    let world = World::new(1);
    let log = RequestLog::new();
    let client = world.client_with(&ClientOptions {
        rate: None,
        log: Some(log.clone()),
        ..ClientOptions::default()
    });
    let options = EventRecorderOptions {
        queue_length: 5,
        memory: 100,
    };
    let (recorder, writer) = EventRecorder::new(
        client,
        "karpenter",
        world.clock.clone(),
        &world.entropy,
        &world.metrics,
        options,
    );
    let start = world.clock.now();
    for number in 0..20 {
        recorder.publish(notice(&number.to_string(), "text"));
    }
    assert_eq!(world.clock.now(), start);
    let shutdown = Shutdown::new();
    shutdown.request();
    writer.run(shutdown).await;
    assert_eq!(log.text().lines().count(), 4, "no reason takes all places");
    assert!(
        world
            .metrics
            .render()
            .contains(r#"spokeshave_events_dropped_total{reason="DisruptionBlocked"} 16"#)
    );
}

/// What a pass tells of 5,001 nodes and their NodeClaims, pass after pass.
#[tokio::test(start_paused = true)]
async fn d_035_two_events_for_each_of_5_001_nodes_are_told_once_a_period() {
    let world = World::new(1);
    let options = EventRecorderOptions {
        // Of which a quarter is for other reasons.
        queue_length: 13_336,
        ..EventRecorderOptions::default()
    };
    let (recorder, _writer) = EventRecorder::new(
        world.client(),
        "karpenter",
        world.clock.clone(),
        &world.entropy,
        &world.metrics,
        options,
    );
    for _pass in 0..3 {
        for number in 0..10_002 {
            let mut rare = notice(&number.to_string(), "text");
            rare.dedupe_period = Some(Duration::from_secs(900));
            recorder.publish(rare);
        }
        world.pass(60).await;
    }
    // Nothing reads the queue, and the first pass has filled its three quarters.
    let text = world.metrics.render();
    assert!(!text.contains("spokeshave_events_dropped_total{"), "{text}");
}

/// Of a list that is longer than the queue, everyone has his turn, although it is told in the same order each time.
#[tokio::test(start_paused = true)]
async fn d_034_what_the_queue_refused_is_told_the_next_time() {
    let world = World::new(1);
    let options = EventRecorderOptions {
        queue_length: 5,
        memory: 100,
    };
    let (recorder, writer) = EventRecorder::new(
        world.client(),
        "karpenter",
        world.clock.clone(),
        &world.entropy,
        &world.metrics,
        options,
    );
    let shutdown = Shutdown::new();
    let writing = tokio::spawn(writer.run(shutdown.clone()));
    for told in [4, 8, 12, 16, 20, 20] {
        for number in 0..20 {
            recorder.publish(notice(&number.to_string(), "text"));
        }
        world.pass(1).await;
        assert_eq!(events(&world).await.len(), told);
    }
    shutdown.request();
    writing.await.unwrap();
}

/// Of lists that are longer than the queue, as of nodes that are blocked or of pods that fit nowhere, something is always waiting, whatever their period. What is
/// told once finds a place all the same.
#[tokio::test(start_paused = true)]
async fn d_034_long_lists_leave_room_for_what_is_told_once() {
    let world = World::new(1);
    let options = EventRecorderOptions {
        queue_length: 32,
        memory: 100,
    };
    let (recorder, writer) = EventRecorder::new(
        world.client(),
        "karpenter",
        world.clock.clone(),
        &world.entropy,
        &world.metrics,
        options,
    );
    for number in 0..40 {
        recorder.publish(notice(&number.to_string(), "text"));
    }
    for number in 0..40 {
        let mut rare = notice(&number.to_string(), "text");
        rare.reason = "FailedScheduling".into();
        rare.dedupe_period = Some(Duration::from_secs(300));
        recorder.publish(rare);
    }
    for name in ["one", "other"] {
        let mut once = notice(name, "text");
        once.reason = "Evicted".into();
        recorder.publish(once);
    }
    let shutdown = Shutdown::new();
    shutdown.request();
    writer.run(shutdown).await;
    let told = events(&world).await;
    let of = |reason: &str| {
        let same = told
            .iter()
            .filter(|event| event.reason.as_deref() == Some(reason));
        same.count()
    };
    let reasons = ["DisruptionBlocked", "FailedScheduling", "Evicted"];
    assert_eq!(reasons.map(of), [24, 6, 2]);
    let text = world.metrics.render();
    let dropped = r#"spokeshave_events_dropped_total{reason="FailedScheduling"} 34"#;
    assert!(text.contains(dropped), "{text}");
}
