//! Stores filled from a live API server.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::common::{Line, World, config_map};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Resource};
use serde::{Deserialize, Serialize};
use serde_json::json;
use spokeshave_runtime::client::ClientOptions;
use spokeshave_runtime::{
    Object, ObjectKey, Reflector, Shutdown, Store, StoreOptions, TaskGroup, WatchOptions,
};

fn watch<K: Object>(world: &World, client: kube::Client, options: &WatchOptions) -> (Store<K>, TaskGroup) {
    let store = Store::new(StoreOptions {
        trim: |object: &mut K| object.meta_mut().managed_fields = None,
        same: |_, _| false,
        stand_in: None,
    });
    let reflector = Reflector::new(
        client,
        &store,
        options,
        world.clock.clone(),
        &world.entropy,
        &world.metrics,
    );
    let mut tasks = TaskGroup::new();
    tasks.spawn("reflector", reflector.run(Shutdown::new()));
    (store, tasks)
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

fn value(store: &Store<ConfigMap>, name: &str) -> Option<String> {
    store.get(&key(name))?.data.as_ref()?.get("value").cloned()
}

#[tokio::test(start_paused = true)]
async fn a_store_follows_the_server() {
    let world = World::new(1);
    let api: Api<ConfigMap> = Api::default_namespaced(world.client());
    api.create(&PostParams::default(), &config_map("a", &[("value", "1")]))
        .await
        .unwrap();
    for streaming_list in [false, true] {
        let options = WatchOptions {
            streaming_list,
            ..WatchOptions::default()
        };
        let (store, _tasks) = watch::<ConfigMap>(&world, world.client(), &options);
        store.ready().await;
        assert_eq!(value(&store, "a").as_deref(), Some("1"));
        api.create(&PostParams::default(), &config_map("b", &[("value", "2")]))
            .await
            .unwrap();
        let patch = Patch::Merge(json!({ "data": { "value": "3" } }));
        api.patch("a", &PatchParams::default(), &patch).await.unwrap();
        world.pass(1).await;
        assert_eq!(
            (value(&store, "a").as_deref(), value(&store, "b").as_deref()),
            (Some("3"), Some("2"))
        );
        api.delete("b", &DeleteParams::default()).await.unwrap();
        let back = Patch::Merge(json!({ "data": { "value": "1" } }));
        api.patch("a", &PatchParams::default(), &back).await.unwrap();
        world.pass(1).await;
        assert_eq!(store.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn own_writes_are_seen_before_the_watch_tells() {
    let world = World::new(1);
    let line = Line::default();
    let options = ClientOptions {
        rate: None,
        ..ClientOptions::default()
    };
    let (store, _tasks) =
        watch::<ConfigMap>(&world, world.client_on(&line, &options), &WatchOptions::default());
    store.ready().await;
    let api: Api<ConfigMap> = Api::default_namespaced(world.client());
    // No await between the answer and the look: the watch task has had no turn.
    let written = api
        .create(&PostParams::default(), &config_map("a", &[("value", "1")]))
        .await
        .unwrap();
    store.note_written(written);
    assert_eq!(value(&store, "a").as_deref(), Some("1"));
    let changes = store.changes();
    world.pass(1).await;
    assert_eq!(store.changes(), changes, "the watch tells what is known already");
}

#[tokio::test(start_paused = true)]
async fn selectors_and_metadata_only() {
    let world = World::new(1);
    let api: Api<ConfigMap> = Api::default_namespaced(world.client());
    for (name, team) in [("a", "blue"), ("b", "red")] {
        let mut object = config_map(name, &[("value", "1")]);
        object.metadata.labels = Some(BTreeMap::from([("team".into(), team.into())]));
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    let options = WatchOptions {
        label_selector: Some("team=red".into()),
        ..WatchOptions::default()
    };
    let (red, _tasks) = watch::<ConfigMap>(&world, world.client(), &options);
    let (metadata, _tasks) =
        watch::<PartialObjectMeta<ConfigMap>>(&world, world.client(), &WatchOptions::default());
    red.ready().await;
    metadata.ready().await;
    assert_eq!(red.keys(), [key("b")]);
    let names: Vec<ObjectKey> = metadata
        .keys()
        .into_iter()
        .filter(|key| key.namespace == "default")
        .collect();
    assert_eq!(names, [key("a"), key("b")]);
    api.delete("b", &DeleteParams::default()).await.unwrap();
    world.pass(1).await;
    assert!(red.is_empty() && metadata.get(&key("b")).is_none());
}

/// A ConfigMap whose `value` must be a number.
#[derive(PartialEq, Clone, Debug, Serialize, Deserialize)]
struct Numbered {
    metadata: ObjectMeta,
    data: Value,
}

#[derive(PartialEq, Clone, Debug, Serialize, Deserialize)]
struct Value {
    #[serde(deserialize_with = "number")]
    value: i64,
}

fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse()
        .map_err(|_| serde::de::Error::custom(format!("{text:?} is not a number")))
}

impl Resource for Numbered {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "ConfigMap".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "configmaps".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[tokio::test(start_paused = true)]
async fn one_unreadable_object_harms_no_other() {
    let world = World::new(1);
    let api: Api<ConfigMap> = Api::default_namespaced(world.client());
    for (name, value) in [("bad", "many"), ("good", "1")] {
        api.create(&PostParams::default(), &config_map(name, &[("value", value)]))
            .await
            .unwrap();
    }
    let store: Store<Numbered> = Store::default();
    let reflector = Reflector::namespaced(
        world.client(),
        "default",
        &store,
        &WatchOptions::default(),
        world.clock.clone(),
        &world.entropy,
        &world.metrics,
    );
    let mut tasks = TaskGroup::new();
    tasks.spawn("reflector", reflector.run(Shutdown::new()));
    store.ready().await;
    assert_eq!(store.keys(), [key("good")], "in the list");
    let set = |value: &str| Patch::Merge(json!({ "data": { "value": value } }));
    api.patch("good", &PatchParams::default(), &set("few"))
        .await
        .unwrap();
    api.patch("bad", &PatchParams::default(), &set("2"))
        .await
        .unwrap();
    world.pass(1).await;
    assert_eq!(store.keys(), [key("bad")], "in the watch");
    let rejected = store.rejected();
    assert_eq!(rejected.len(), 1);
    assert_eq!(rejected[0].0, key("good"));
    assert!(rejected[0].1.contains("\"few\" is not a number"), "{rejected:?}");
    api.delete("good", &DeleteParams::default()).await.unwrap();
    world.pass(1).await;
    assert!(store.rejected().is_empty());
}

/// In a list and in a watch, until the object itself can be read.
#[tokio::test(start_paused = true)]
async fn where_leaving_an_object_out_would_be_worse_something_stands_in_for_it() {
    let world = World::new(1);
    let api: Api<ConfigMap> = Api::default_namespaced(world.client());
    for (name, value) in [("bad", "many"), ("good", "1")] {
        api.create(&PostParams::default(), &config_map(name, &[("value", value)]))
            .await
            .unwrap();
    }
    let store: Store<Numbered> = Store::new(StoreOptions {
        stand_in: Some(|object| {
            let mut mended = object.clone();
            mended["data"]["value"] = json!("0");
            serde_json::from_value(mended).ok()
        }),
        ..StoreOptions::default()
    });
    let reflector = Reflector::namespaced(
        world.client(),
        "default",
        &store,
        &WatchOptions::default(),
        world.clock.clone(),
        &world.entropy,
        &world.metrics,
    );
    let mut tasks = TaskGroup::new();
    tasks.spawn("reflector", reflector.run(Shutdown::new()));
    store.ready().await;
    let values = || -> Vec<i64> { store.snapshot().iter().map(|one| one.data.value).collect() };
    assert_eq!(values(), [0, 1], "in the list");
    let set = |value: &str| Patch::Merge(json!({ "data": { "value": value } }));
    api.patch("good", &PatchParams::default(), &set("few"))
        .await
        .unwrap();
    world.pass(1).await;
    assert_eq!(values(), [0, 0], "in the watch");
    api.patch("bad", &PatchParams::default(), &set("2"))
        .await
        .unwrap();
    world.pass(1).await;
    assert_eq!(values(), [2, 0], "it can be read now");
    assert!(store.rejected().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_delays_but_loses_nothing() {
    let world = World::new(1);
    let line = Line::default();
    line.set_cut(true);
    let options = ClientOptions {
        rate: None,
        ..ClientOptions::default()
    };
    let (store, _tasks) =
        watch::<ConfigMap>(&world, world.client_on(&line, &options), &WatchOptions::default());
    let api: Api<ConfigMap> = Api::default_namespaced(world.client());
    api.create(&PostParams::default(), &config_map("a", &[("value", "1")]))
        .await
        .unwrap();
    world.pass(60).await;
    assert!(!store.is_ready());
    line.set_cut(false);
    store.ready().await;
    assert_eq!(value(&store, "a").as_deref(), Some("1"));
    // Longer than any watch lasts: it has been renewed several times.
    world.pass(3600).await;
    api.create(&PostParams::default(), &config_map("b", &[("value", "2")]))
        .await
        .unwrap();
    world.pass(1).await;
    assert_eq!(value(&store, "b").as_deref(), Some("2"));
}

/// Everything that happens while the server refuses, and more than its history holds, arrives with the next list.
#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_growing_pauses() {
    let world = World::new(1);
    let server = world.server.service();
    let refusing = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (flag, attempts) = (refusing.clone(), spokeshave_runtime::client::RequestLog::new());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (server, refuse) = (server.clone(), flag.load(std::sync::atomic::Ordering::SeqCst));
        async move {
            use tower::ServiceExt;
            if refuse {
                return Err(tower::BoxError::from("connection refused"));
            }
            server.oneshot(request).await.map_err(tower::BoxError::from)
        }
    });
    let options = ClientOptions {
        rate: None,
        log: Some(attempts.clone()),
        ..ClientOptions::default()
    };
    let client = spokeshave_runtime::client::from_service(service, "default", &options, world.clock.clone());
    let (store, _tasks) = watch::<ConfigMap>(&world, client, &WatchOptions::default());
    world.pass(300).await;
    let lines = attempts.text().lines().count();
    assert!((8..=20).contains(&lines), "{lines} attempts in five minutes");
    refusing.store(false, std::sync::atomic::Ordering::SeqCst);
    store.ready().await;
}

/// After an outage, an expired watch is listed again as soon as the server responds: the back-off of the outage has ended.
#[tokio::test(start_paused = true)]
async fn an_expired_watch_lists_at_once_after_a_long_outage() {
    let mut world = World::new(1);
    let now = world.clock.clone();
    let mut config = spokeshave_apiserver::Config::new(std::sync::Arc::new(move || now.now()), 1);
    config.history_limit = 10;
    world.server = spokeshave_apiserver::ApiServer::new(config);
    let (server, out) = (world.server.service(), Line::default());
    let line = out.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (server, is_out) = (server.clone(), line.is_cut());
        async move {
            use tower::ServiceExt;
            if is_out {
                return Err(tower::BoxError::from("connection refused"));
            }
            server.oneshot(request).await.map_err(tower::BoxError::from)
        }
    });
    let options = ClientOptions {
        rate: None,
        ..ClientOptions::default()
    };
    let client = spokeshave_runtime::client::from_service(service, "default", &options, world.clock.clone());
    let (store, _tasks) = watch::<ConfigMap>(&world, client, &WatchOptions::default());
    store.ready().await;
    // Longer than a watch lasts, so that its renewal is rejected until the back-off is at its maximum.
    out.set_cut(true);
    world.pass(900).await;
    let api: Api<ConfigMap> = Api::default_namespaced(world.client());
    for number in 0..50 {
        let map = config_map(&format!("m-{number}"), &[("value", "1")]);
        api.create(&PostParams::default(), &map).await.unwrap();
    }
    out.set_cut(false);
    let mut waited = 0;
    while store.is_empty() {
        world.pass(1).await;
        waited += 1;
    }
    assert_eq!(store.len(), 50);
    // The last pause of the outage, and no second one like it.
    assert!(waited <= 40, "{waited} s");
}
