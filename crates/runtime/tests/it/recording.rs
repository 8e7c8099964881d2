//! Events written to a live API server (D §1.5, P §17).

use crate::common::World;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use spokeshave_runtime::client::{ClientOptions, RequestLog};
use spokeshave_runtime::{EventKind, EventNotice, EventRecorder, EventRecorderOptions, Shutdown};

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
    assert_eq!(log.text().lines().count(), 5);
    assert!(
        world
            .metrics
            .render()
            .contains(r#"spokeshave_events_dropped_total{reason="DisruptionBlocked"} 15"#)
    );
}
