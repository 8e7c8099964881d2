//! Machines that fail, fall silent, come late or never.

use crate::{World, claim, patterns, seconds, small};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_api::{KWOKInstance, NodeClaim, Operator, labels};
use spokeshave_ports::{CloudError, CloudProvider};
use spokeshave_provider_kwok::{Failures, KwokOptions, SlowRegistration};

/// The name of the instance that was made for a NodeClaim, and of its Node.
fn instance_of(created: &NodeClaim) -> String {
    let name = created.provider_id().and_then(|id| id.strip_prefix("kwok://"));
    name.expect("an ID").to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_registered_node_without_machine_falls_silent_and_an_unregistered_one_goes() {
    let world = World::new().await;
    let provider = world.running(KwokOptions::default());
    let mut names = Vec::new();
    for name in ["registered", "stranger", "offline"] {
        let created = provider.create(&small(name)).await.expect("launched");
        names.push(instance_of(&created));
    }
    world.pass(5).await;
    for index in [0, 2] {
        let patch = json!({"metadata": {"labels": {labels::REGISTERED: "true"}}});
        world
            .nodes()
            .patch(&names[index], &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("labelled");
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]}});
        world
            .nodes()
            .patch_status(&names[index], &PatchParams::default(), &Patch::Strategic(&ready))
            .await
            .expect("ready");
    }
    let conditions = async |index: usize| -> Vec<(String, String)> {
        let node = world.nodes().get(&names[index]).await.expect("the Node");
        let conditions = node
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        conditions
            .into_iter()
            .map(|condition| (condition.type_, condition.status))
            .collect()
    };
    let instances: Api<KWOKInstance> = Api::all(world.client.clone());
    for index in [0, 1] {
        instances
            .delete(&names[index], &DeleteParams::default())
            .await
            .expect("the cloud took it back");
    }
    world.pass(1).await;
    assert!(
        conditions(0)
            .await
            .contains(&("Ready".to_owned(), "Unknown".to_owned()))
    );
    assert!(
        conditions(0)
            .await
            .contains(&("DiskPressure".to_owned(), "False".to_owned())),
        "others stay"
    );
    assert!(
        world.nodes().get_opt(&names[1]).await.expect("get").is_none(),
        "it was nobody's"
    );
    assert!(
        conditions(2)
            .await
            .contains(&("Ready".to_owned(), "True".to_owned())),
        "others are not touched"
    );
}

#[tokio::test(start_paused = true)]
async fn instances_that_went_while_nobody_watched_are_noticed() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions::default());
    let created = provider.create(&small("lost")).await.expect("launched");
    let name = instance_of(&created);
    provider.run(world.pass(5)).await;
    assert_eq!(world.node_count().await, 1);
    let instances: Api<KWOKInstance> = Api::all(world.client.clone());
    instances
        .delete(&name, &DeleteParams::default())
        .await
        .expect("deleted");
    provider.run(world.pass(5)).await;
    assert_eq!(world.node_count().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_deleted_does_not_come_back() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions::default());
    let created = provider.create(&small("once")).await.expect("launched");
    let name = instance_of(&created);
    provider.run(world.pass(5)).await;
    world
        .nodes()
        .delete(&name, &DeleteParams::default())
        .await
        .expect("deleted");
    provider.run(world.pass(600)).await;
    assert_eq!(world.node_count().await, 0);
    assert_eq!(
        provider.list().await.expect("list").len(),
        1,
        "the machine still runs"
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_that_has_the_name_of_the_one_to_be_ended_is_left_alone() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions {
        termination_delay: seconds(10),
        ..KwokOptions::default()
    });
    let created = provider.create(&small("twice")).await.expect("launched");
    let name = instance_of(&created);
    let mut successor = world.instances().await.remove(0);
    successor.metadata = ObjectMeta {
        name: Some(name.clone()),
        ..ObjectMeta::default()
    };
    successor.status = None;
    let instances: Api<KWOKInstance> = Api::all(world.client.clone());
    let (deletion, creation) = (DeleteParams::default(), PostParams::default());
    // In this order: the provider finds the record, it goes, another one comes, and only then the provider writes.
    let (ended, gone, made) = futures::join!(
        provider.delete(&created),
        instances.delete(&name, &deletion),
        instances.create(&creation, &successor),
    );
    gone.expect("deleted");
    made.expect("created");
    let error = ended.expect_err("it is gone");
    assert!(error.is_not_found(), "{error}");
    assert!(!provider.list().await.expect("list")[0].is_deleting());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_others_write_to_is_ended_all_the_same() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions {
        termination_delay: seconds(10),
        ..KwokOptions::default()
    });
    let created = provider.create(&small("busy")).await.expect("launched");
    let name = instance_of(&created);
    let instances: Api<KWOKInstance> = Api::all(world.client.clone());
    let parameters = PatchParams::default();
    let note = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
    let (ended, noted) = futures::join!(
        provider.delete(&created),
        instances.patch(&name, &parameters, &note),
    );
    noted.expect("annotated");
    ended.expect("begun");
    assert!(provider.list().await.expect("list")[0].is_deleting());
}

#[tokio::test(start_paused = true)]
async fn injected_launch_errors_and_hanging_calls_pass_over() {
    let world = World::new().await;
    let provider = world.provider(KwokOptions {
        launch_errors: Failures::FirstAttempts(2),
        ..KwokOptions::default()
    });
    let wanted = small("third-time");
    for _ in 0..2 {
        let error = provider.create(&wanted).await.expect_err("injected");
        assert!(matches!(error, CloudError::Create { .. }), "{error}");
        assert!(world.instances().await.is_empty());
    }
    provider.create(&wanted).await.expect("the third attempt");

    let provider = world.provider(KwokOptions {
        hanging_calls: Failures::EveryNth(1),
        ..KwokOptions::default()
    });
    let wanted = small("hanging");
    let start = world.clock.now();
    let error = provider.create(&wanted).await.expect_err("hangs");
    assert!(matches!(error, CloudError::Timeout(_)), "{error}");
    assert_eq!(world.clock.since(start), seconds(60));
    provider
        .create(&wanted)
        .await
        .expect("the instance was there all the time");
    assert_eq!(world.instances().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_come_late_or_never() {
    let world = World::new().await;
    let provider = world.running(KwokOptions {
        never_register: patterns(&["c-2x-amd64-linux"]),
        slow_register: vec![SlowRegistration {
            pattern: patterns(&["c-4x-amd64-linux"]).remove(0),
            delay: seconds(300),
        }],
        ..KwokOptions::default()
    });
    for size in ["c-1x-amd64-linux", "c-2x-amd64-linux", "c-4x-amd64-linux"] {
        provider
            .create(&claim(size, &[(labels::INSTANCE_TYPE, Operator::In, &[size])]))
            .await
            .expect("launched");
    }
    world.pass(10).await;
    assert_eq!(world.node_count().await, 1);
    world.pass(300).await;
    assert_eq!(world.node_count().await, 2);
    world.pass(86_400).await;
    assert_eq!(world.node_count().await, 2);
}
