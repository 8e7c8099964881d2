//! How the operator fares at scale: a static NodePool comes up, rests, and drains at once; requests and CPU time are counted.
//!
//! ```text
//! cargo run --release -p spokeshave-sim --example scale -- NODES PODS-PER-NODE [--expire]
//! ```
//!
//! With `--expire` the nodes do not go because their NodePool does, but because all of them are three hours old at once (W-20).
//!
//! Everything runs in one process on virtual time: API server, kubelets, cloud and operator. The CPU time is that of all of them together, the
//! requests are the operator's alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use spokeshave_api::{KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_controllers::{FeatureGates, Operator, Options};
use spokeshave_ports::{Entropy, SharedClock, TokioClock};
use spokeshave_provider_kwok::{KwokOptions, KwokProvider};
use spokeshave_runtime::client::{ClientOptions, from_service};
use spokeshave_runtime::{Shutdown, TaskGroup};

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Counts requests by method and, for evictions, apart.
#[derive(Clone, Default)]
struct Counts {
    by_kind: Arc<Mutex<BTreeMap<String, u64>>>,
    writes: Arc<AtomicU64>,
}

#[derive(Clone)]
struct Counted<S> {
    inner: S,
    counts: Counts,
}

impl<S, B> tower::Service<http::Request<B>> for Counted<S>
where
    S: tower::Service<http::Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> S::Future {
        let method = request.method().as_str();
        let path = request.uri().path();
        let parts: Vec<&str> = path.split('/').collect();
        let kind = ["eviction", "nodeclaims", "nodes", "pods", "events", "nodepools"]
            .into_iter()
            .find(|kind| parts.contains(kind))
            .unwrap_or("other");
        if method != "GET" {
            self.counts.writes.fetch_add(1, Ordering::Relaxed);
        }
        let mut by_kind = self
            .counts
            .by_kind
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *by_kind.entry(format!("{method} {kind}")).or_insert(0) += 1;
        drop(by_kind);
        self.inner.call(request)
    }
}

impl Counts {
    fn take(&self) -> (u64, String) {
        let writes = self.writes.swap(0, Ordering::Relaxed);
        let by_kind = std::mem::take(
            &mut *self
                .by_kind
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        );
        let text: Vec<String> = by_kind
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        (writes, text.join(", "))
    }
}

/// CPU seconds of this process, and its largest memory in MiB.
fn usage() -> (f64, u64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = stat
        .rsplit_once(')')
        .map(|(_, rest)| {
            rest.split_whitespace()
                .map(|field| field.parse().unwrap_or(0.0))
                .collect()
        })
        .unwrap_or_default();
    let ticks = |field: usize| fields.get(field).copied().unwrap_or(0.0);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0);
    ((ticks(11) + ticks(12)) / 100.0, peak / 1024)
}

struct Phase<'a> {
    counts: &'a Counts,
    clock: &'a SharedClock,
    started: jiff::Timestamp,
    cpu: f64,
}

impl<'a> Phase<'a> {
    fn begin(counts: &'a Counts, clock: &'a SharedClock) -> Self {
        counts.take();
        Self {
            counts,
            clock,
            started: clock.now(),
            cpu: usage().0,
        }
    }

    fn end(self, name: &str) {
        let virtual_seconds = self.clock.since(self.started).as_secs_f64();
        let (cpu, peak) = usage();
        let (writes, kinds) = self.counts.take();
        println!(
            "{name}: {virtual_seconds:.0} virtual s, {:.2} CPU s, peak {peak} MiB, {writes} writes ({kinds})",
            cpu - self.cpu
        );
    }
}

async fn count<K>(client: &Client) -> usize
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let list = Api::<K>::all(client.clone())
        .list_metadata(&ListParams::default())
        .await;
    list.map_or(0, |list| list.items.len())
}

fn main() {
    let expire = std::env::args().any(|argument| argument == "--expire");
    let arguments: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok())
        .collect();
    let [nodes, pods] = arguments[..] else {
        eprintln!("usage: scale NODES PODS-PER-NODE [--expire]");
        std::process::exit(2);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(story(nodes, pods, expire)),
        Err(error) => eprintln!("cannot make a runtime: {error}"),
    }
}

/// W-20: how long after the last of the first nodes is due all of them are deleted.
async fn expiry(user: &Client, clock: &SharedClock) {
    let api = Api::<NodeClaim>::all(user.clone());
    let first = api
        .list_metadata(&ListParams::default())
        .await
        .expect("claims")
        .items;
    let created = first
        .iter()
        .filter_map(|claim| claim.metadata.creation_timestamp.as_ref());
    let due = created
        .map(|time| time.0 + Duration::from_secs(3 * 3600))
        .max()
        .expect("a node");
    let names: BTreeSet<String> = first.iter().map(kube::ResourceExt::name_any).collect();
    clock.sleep_until(due).await;
    loop {
        let list = api.list_metadata(&ListParams::default()).await.expect("claims");
        let waiting = list
            .items
            .iter()
            .filter(|claim| claim.metadata.deletion_timestamp.is_none() && names.contains(&claim.name_any()));
        if waiting.count() == 0 {
            break;
        }
        clock.sleep(Duration::from_secs(1)).await;
    }
    println!(
        "{} expired nodes are all told to go {:.0} virtual s after the last was due",
        names.len(),
        clock.since(due).as_secs_f64()
    );
}

async fn story(nodes: usize, pods: usize, expire: bool) {
    let clock: SharedClock = TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared();
    let entropy = Entropy::new(1);
    let time = clock.clone();
    let server = ApiServer::new(Config::new(Arc::new(move || time.now()), 1));
    let unlimited = ClientOptions {
        rate: None,
        ..ClientOptions::default()
    };
    let user = from_service(server.service(), "default", &unlimited, clock.clone());
    for definition in spokeshave_api::crds::crds() {
        let api: Api<CustomResourceDefinition> = Api::all(user.clone());
        api.create(&PostParams::default(), &definition)
            .await
            .expect("definition");
    }
    let shutdown = Shutdown::new();
    let mut tasks = TaskGroup::new();
    let cluster = spokeshave_cluster::Options {
        scheduler: false,
        workloads: false,
        volumes: false,
        disruption_budgets: false,
        ..spokeshave_cluster::Options::all()
    };
    tasks.spawn(
        "cluster",
        spokeshave_cluster::run(
            user.clone(),
            clock.clone(),
            entropy.child("sim"),
            cluster,
            shutdown.clone(),
        ),
    );
    let class: KWOKNodeClass =
        serde_json::from_value(json!({"metadata": {"name": "default"}, "spec": {}})).expect("class");
    Api::all(user.clone())
        .create(&PostParams::default(), &class)
        .await
        .expect("class");
    let counts = Counts::default();
    let service = Counted {
        inner: server.service(),
        counts: counts.clone(),
    };
    // The operator's own rate is upstream's default: 200 requests a second, 300 at once.
    let client = from_service(service, "default", &ClientOptions::default(), clock.clone());
    let provider = Arc::new(KwokProvider::new(
        user.clone(),
        clock.clone(),
        &entropy.child("kwok"),
        KwokOptions {
            termination_delay: Duration::from_secs(30),
            ..KwokOptions::default()
        },
    ));
    let options = Options {
        feature_gates: FeatureGates {
            static_capacity: true,
            ..FeatureGates::default()
        },
        ..Options::default()
    };
    let operator = Operator::new(
        client,
        provider.clone(),
        clock.clone(),
        entropy.child("operator"),
        options,
    );
    let metrics = operator.metrics().clone();
    let stop = shutdown.clone();
    tasks.spawn("cloud", async move { provider.run(stop.requested()).await });
    let stop = shutdown.clone();
    tasks.spawn("operator", async move {
        let _ = operator.run(stop).await;
    });

    let phase = Phase::begin(&counts, &clock);
    let pool: NodePool = serde_json::from_value(json!({"metadata": {"name": "fixed"}, "spec": {
        "replicas": nodes,
        "template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "expireAfter": if expire { "3h" } else { "Never" },
            "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
        }},
    }}))
    .expect("pool");
    let pools: Api<NodePool> = Api::all(user.clone());
    pools.create(&PostParams::default(), &pool).await.expect("pool");
    let ready = async || {
        let all = Api::<Node>::all(user.clone())
            .list_metadata(&ListParams::default().labels("karpenter.sh/initialized=true"))
            .await;
        all.map_or(0, |list| list.items.len())
    };
    while ready().await < nodes {
        clock.sleep(Duration::from_secs(5)).await;
    }
    phase.end(&format!("{nodes} nodes come up"));

    let names = Api::<Node>::all(user.clone())
        .list_metadata(&ListParams::default())
        .await
        .expect("nodes");
    let api: Api<Pod> = Api::default_namespaced(user.clone());
    for node in &names.items {
        let node = node.name_any();
        for number in 0..pods {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": format!("{node}-{number}"), "labels": {"app": "web"}},
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}]},
            }))
            .expect("pod");
            api.create(&PostParams::default(), &pod).await.expect("pod");
            // The kubelets start what a scheduler has bound.
            let now = clock.now().to_string();
            let bound = json!({"status": {"conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": now},
            ]}});
            api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&bound))
                .await
                .expect("pod");
        }
    }
    // Long enough for every start-up to be over: pod events, counters, the first passes of garbage collection.
    clock.sleep(Duration::from_secs(900)).await;

    let phase = Phase::begin(&counts, &clock);
    clock.sleep(Duration::from_secs(3600)).await;
    phase.end(&format!("{nodes} nodes with {} pods rest", nodes * pods));
    println!("metric series: {}", metrics.series_count());

    if expire {
        expiry(&user, &clock).await;
        shutdown.request();
        return;
    }
    let phase = Phase::begin(&counts, &clock);
    pools
        .delete("fixed", &DeleteParams::default())
        .await
        .expect("the pool goes");
    let started = clock.now();
    let mut told = false;
    loop {
        let left = count::<NodeClaim>(&user).await;
        if !told {
            let list = Api::<NodeClaim>::all(user.clone())
                .list_metadata(&ListParams::default())
                .await
                .expect("claims");
            if list
                .items
                .iter()
                .all(|claim| claim.metadata.deletion_timestamp.is_some())
            {
                told = true;
                println!(
                    "all are told to go after {:.0} virtual s",
                    clock.since(started).as_secs_f64()
                );
            }
        }
        if left == 0 {
            break;
        }
        clock.sleep(Duration::from_secs(10)).await;
    }
    phase.end(&format!("{nodes} nodes with {} pods drain and end", nodes * pods));
    println!("metric series: {}", metrics.series_count());
    shutdown.request();
}
