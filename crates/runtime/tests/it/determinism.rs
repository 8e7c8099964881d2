//! Same seed, same requests, byte for byte (invariant 35).
//!
//! A small operator with everything that could leak order or chance: several stores and controllers, many workers, delays,
//! failures, panics, a rate limit, leader election, events, a user who writes at random times.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{World, config_map};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use rand::RngExt;
use serde_json::json;
use spokeshave_runtime::client::{ClientOptions, RequestLog, fenced};
use spokeshave_runtime::{
    ControllerMetrics, EventKind, EventNotice, EventRecorder, EventRecorderOptions, LeaderElection,
    LeaseOptions, ObjectKey, QueueOptions, RateLimit, Reflector, Requeue, Shutdown, Store, TaskGroup,
    WatchOptions, WorkQueue, run_controller, run_singleton,
};

/// Copies every ConfigMap of namespace `default` into a Secret, badly: it fails, panics and dawdles by chance.
struct Copier {
    client: Client,
    maps: Store<ConfigMap>,
    secrets: Store<Secret>,
    recorder: EventRecorder,
    world: Arc<World>,
}

impl Copier {
    async fn reconcile(
        self: Arc<Self>,
        key: ObjectKey,
    ) -> Result<Requeue, spokeshave_runtime::ReconcileError> {
        let Some(map) = self.maps.get(&key) else {
            return Ok(Requeue::Done);
        };
        let version = map.metadata.resource_version.clone().unwrap_or_default();
        let mut dice = self
            .world
            .entropy
            .child("copier")
            .rng(&format!("{key}@{version}"));
        self.world
            .clock
            .sleep(Duration::from_millis(dice.random_range(0..300)))
            .await;
        match dice.random_range(0..10) {
            0 => return Err("by chance".into()),
            1 => panic!("by chance"),
            _ => {}
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        let data: BTreeMap<String, String> = map.data.clone().unwrap_or_default();
        let written = match self.secrets.get(&key) {
            None => {
                let mut secret = Secret {
                    string_data: Some(data),
                    ..Secret::default()
                };
                secret.metadata.name = Some(key.name.clone());
                api.create(&PostParams::default(), &secret).await?
            }
            Some(_) => {
                let patch = Patch::Merge(json!({ "stringData": data }));
                api.patch(&key.name, &PatchParams::default(), &patch).await?
            }
        };
        self.secrets.note_written(written);
        self.recorder.publish(EventNotice::new(
            map.object_ref(&()),
            EventKind::Normal,
            "Copied",
            "copied",
        ));
        Ok(Requeue::After(Duration::from_secs(dice.random_range(20..60))))
    }
}

async fn run(seed: u64) -> Vec<u8> {
    let world = Arc::new(World::new(seed));
    let log = RequestLog::new();
    let options = ClientOptions {
        rate: Some((20.0, 30)),
        log: Some(log.clone()),
        metrics: Some(world.metrics.clone()),
        ..ClientOptions::default()
    };
    let client = world.client_with(&options);
    let shutdown = Shutdown::new();
    let mut tasks = TaskGroup::new();

    let lease = LeaseOptions::new("kube-system", "test", "only");
    let election = LeaderElection::new(
        client.clone(),
        lease,
        world.clock.clone(),
        &world.entropy,
        &world.metrics,
    );
    let leadership = election.leadership();
    let signal = shutdown.clone();
    tasks.spawn("election", async move {
        let _ = election.run(signal).await;
    });

    let (maps, secrets): (Store<ConfigMap>, Store<Secret>) = Default::default();
    macro_rules! reflect {
        ($store:expr) => {
            let watch = WatchOptions::default();
            let clock = world.clock.clone();
            let reflector = Reflector::namespaced(
                client.clone(),
                "default",
                $store,
                &watch,
                clock,
                &world.entropy,
                &world.metrics,
            );
            tasks.spawn("reflector", reflector.run(shutdown.clone()));
        };
    }
    reflect!(&maps);
    reflect!(&secrets);
    let (recorder, writer) = EventRecorder::new(
        client.clone(),
        "karpenter",
        world.clock.clone(),
        &world.entropy,
        &world.metrics,
        EventRecorderOptions::default(),
    );
    tasks.spawn("events", writer.run(shutdown.clone()));

    let epoch = leadership.acquired().await;
    maps.ready().await;
    secrets.ready().await;
    let queue = WorkQueue::new(
        "copier",
        world.clock.clone(),
        QueueOptions {
            rate_limit: RateLimit::REASONABLE,
        },
        &world.metrics,
    );
    let feed = queue.clone();
    maps.on_change(move |change| feed.add(change.key.clone()));
    let copier = Arc::new(Copier {
        client: fenced(client.clone(), leadership, epoch),
        maps: maps.clone(),
        secrets: secrets.clone(),
        recorder,
        world: world.clone(),
    });
    let metrics = ControllerMetrics::new(&world.metrics);
    let controller = run_controller(
        "copier",
        queue.clone(),
        8,
        move |key| copier.clone().reconcile(key),
        shutdown.clone(),
        metrics.clone(),
    );
    tasks.spawn("copier", controller);
    let sweep = {
        let (maps, queue) = (maps.clone(), queue.clone());
        move || {
            maps.keys().into_iter().for_each(|key| queue.add(key));
            async { Ok(Requeue::After(Duration::from_secs(45))) }
        }
    };
    let sweeps = WorkQueue::new(
        "sweep",
        world.clock.clone(),
        QueueOptions::default(),
        &world.metrics,
    );
    tasks.spawn(
        "sweep",
        run_singleton("sweep", sweeps, sweep, shutdown.clone(), metrics),
    );

    user(&world).await;
    world.pass(120).await;
    // `kube-root-ca.crt` and its like may be there as well; ours must be copied.
    let ours = |keys: Vec<ObjectKey>| {
        keys.into_iter()
            .filter(|key| key.name.starts_with("map-"))
            .count()
    };
    assert!(ours(maps.keys()) > 0);
    assert_eq!(
        ours(maps.keys()),
        ours(secrets.keys()).min(ours(maps.keys())),
        "every map has its copy"
    );
    shutdown.request();
    assert_eq!(
        tasks.drain(&world.clock, Duration::from_secs(30)).await,
        Vec::<String>::new()
    );
    log.bytes()
}

/// Creates, changes and deletes ConfigMaps, with pauses by chance.
async fn user(world: &World) {
    let api: Api<ConfigMap> = Api::default_namespaced(world.client());
    let mut dice = world.entropy.rng("user");
    for step in 0..150 {
        let name = format!("map-{}", dice.random_range(0..12));
        let value = step.to_string();
        match dice.random_range(0..4) {
            0 => drop(api.delete(&name, &DeleteParams::default()).await),
            _ => {
                let patch = Patch::Merge(json!({ "data": { "step": value } }));
                if api.patch(&name, &PatchParams::default(), &patch).await.is_err() {
                    let _ = api
                        .create(&PostParams::default(), &config_map(&name, &[("step", &value)]))
                        .await;
                }
            }
        }
        world
            .clock
            .sleep(Duration::from_millis(dice.random_range(0..2000)))
            .await;
    }
}

fn on_one_thread(seed: u64) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(run(seed))
}

#[test]
fn invariant_35_two_runs_with_one_seed_send_the_same_bytes() {
    // The panics are part of the world.
    std::panic::set_hook(Box::new(|_| {}));
    let (first, second, other) = (on_one_thread(7), on_one_thread(7), on_one_thread(8));
    let _ = std::panic::take_hook();
    let text = String::from_utf8_lossy(&first);
    assert!(
        text.lines().count() > 300,
        "{} requests are too few to show anything",
        text.lines().count()
    );
    for part in [
        "POST /api/v1/namespaces/default/events",
        "PUT /apis/coordination.k8s.io",
        "watch=true",
        "PATCH ",
    ] {
        assert!(text.contains(part), "no {part} among the requests");
    }
    if let Some(line) = (0..)
        .zip(text.lines())
        .zip(String::from_utf8_lossy(&second).lines())
        .find_map(|((number, one), two)| (one != two).then(|| format!("line {number}:\n{one}\n{two}")))
    {
        panic!("the runs part at {line}");
    }
    assert_eq!(first.len(), second.len());
    assert_ne!(first, other, "the seed matters");
}
