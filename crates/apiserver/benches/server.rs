//! Writes a second and watch deliveries a second, in process and over HTTPS, on one core. Run with `cargo bench -p spokeshave-apiserver`;
//! names of parts can be given as arguments: `writes`, `watches`, `https`.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(missing_docs)]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use spokeshave_apiserver::{ApiServer, Config, Listener, ResponseBody, Service, kubeconfig};
use tower::ServiceExt as _;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OBJECTS: usize = 10_000;
const WATCHES: usize = 100;
const WATCHED_WRITES: usize = 2_000;
const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

fn server() -> Arc<ApiServer> {
    let mut config = Config::new(Arc::new(jiff::Timestamp::now), 1);
    config.token = Some("bench".to_owned());
    ApiServer::new(config)
}

/// A pod as a ReplicaSet makes it: about 1.5 KiB.
fn pod(index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("web-{index:05}"),
            "labels": {"app": "web", "pod-template-hash": "6b7c8d9f54", "app.kubernetes.io/part-of": "shop"},
        },
        "spec": {
            "containers": [{
                "name": "web", "image": "registry.example.com/shop/web:1.2.3", "ports": [{"containerPort": 8080, "name": "http"}],
                "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
                "env": [{"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
            }],
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }],
        },
    })
}

fn config_map(index: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{index:05}")}, "data": {"key": "value"}})
}

fn status(index: usize) -> Value {
    let time = "2026-01-01T00:00:00Z";
    json!({"status": {"phase": "Running", "podIP": format!("10.0.{}.{}", index / 250, index % 250), "conditions": [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": time}, {"type": "Ready", "status": "True", "lastTransitionTime": time},
    ]}})
}

async fn call(
    service: &Service,
    method: &str,
    path: &str,
    content_type: &str,
    body: Vec<u8>,
) -> http::Response<ResponseBody> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("user-agent", "bench/1")
        .body(Full::<Bytes>::from(body))
        .expect("a request");
    let Ok(response) = service.clone().oneshot(request).await as Result<_, Infallible>;
    response
}

async fn must(service: &Service, method: &str, path: &str, content_type: &str, body: Vec<u8>) -> Bytes {
    let response = call(service, method, path, content_type, body).await;
    let code = response.status();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    assert!(
        code.is_success(),
        "{method} {path}: {code} {}",
        String::from_utf8_lossy(&bytes)
    );
    bytes
}

fn encoded(bodies: impl Iterator<Item = Value>) -> Vec<Vec<u8>> {
    bodies.map(|body| body.to_string().into_bytes()).collect()
}

/// Wall time and processor time of the only thread.
struct Started {
    at: Instant,
    busy: f64,
}

/// Seconds that this thread has run, if the system reports it (Linux); the processor is often shared with others.
fn busy_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

fn start() -> Started {
    Started {
        at: Instant::now(),
        busy: busy_seconds().unwrap_or(0.0),
    }
}

fn report(what: &str, count: usize, started: &Started) {
    let wall = started.at.elapsed().as_secs_f64();
    let busy = busy_seconds().map_or(wall, |now| now - started.busy);
    println!(
        "{what:<58} {:>10.0} {:>14.0}",
        count as f64 / wall,
        count as f64 / busy
    );
}

/// Bodies are encoded before and answers are read: what is timed is what a client waits for.
async fn writes(service: &Service) {
    let maps = encoded((0..OBJECTS).map(config_map));
    let started = start();
    for body in maps {
        must(service, "POST", CONFIG_MAPS, JSON, body).await;
    }
    report("in process: ConfigMaps created", OBJECTS, &started);

    let pods = encoded((0..OBJECTS).map(pod));
    let started = start();
    for body in pods {
        must(service, "POST", PODS, JSON, body).await;
    }
    report("in process: Pods created", OBJECTS, &started);

    let statuses = encoded((0..OBJECTS).map(status));
    let started = start();
    for (index, body) in statuses.into_iter().enumerate() {
        must(
            service,
            "PATCH",
            &format!("{PODS}/web-{index:05}/status"),
            MERGE,
            body,
        )
        .await;
    }
    report("in process: Pod statuses merge-patched", OBJECTS, &started);

    let started = start();
    for index in 0..OBJECTS {
        let body = json!({"data": {"key": index.to_string()}})
            .to_string()
            .into_bytes();
        must(
            service,
            "PATCH",
            &format!("{CONFIG_MAPS}/map-{index:05}"),
            MERGE,
            body,
        )
        .await;
    }
    report("in process: ConfigMaps merge-patched", OBJECTS, &started);

    let started = start();
    for index in 0..OBJECTS {
        must(
            service,
            "GET",
            &format!("{PODS}/web-{index:05}"),
            JSON,
            Vec::new(),
        )
        .await;
    }
    report("in process: Pods read", OBJECTS, &started);

    let started = start();
    for _ in 0..10 {
        must(service, "GET", "/api/v1/pods", JSON, Vec::new()).await;
    }
    report(
        "in process: Pods listed, 10,000 at a time",
        10 * OBJECTS,
        &started,
    );
}

/// Reads events until as many have come.
async fn events(body: &mut ResponseBody, wanted: usize) {
    let mut seen = 0;
    while seen < wanted {
        let frame = body.frame().await.expect("the watch goes on").expect("a frame");
        let data = frame.into_data().expect("data");
        seen += data.iter().filter(|byte| **byte == b'\n').count();
    }
}

/// Every write is sent to every watch. Clients read in turns, as tasks of one thread do.
async fn watches(service: &Service, path: &str, what: &str) {
    let mut bodies = Vec::new();
    for _ in 0..WATCHES {
        let response = call(service, "GET", path, JSON, Vec::new()).await;
        assert!(response.status().is_success());
        bodies.push(response.into_body());
    }
    // A label that no part before has written: a patch that changes nothing is no event.
    let patches = encoded(
        (0..WATCHED_WRITES)
            .map(|index| json!({"metadata": {"labels": {"round": format!("{}-{index}", what.len())}}})),
    );
    let started = start();
    for (round, patches) in patches.chunks(50).enumerate() {
        for (index, body) in patches.iter().enumerate() {
            must(
                service,
                "PATCH",
                &format!("{PODS}/web-{:05}", round * 50 + index),
                MERGE,
                body.clone(),
            )
            .await;
        }
        for body in &mut bodies {
            events(body, patches.len()).await;
        }
    }
    report(what, WATCHED_WRITES * WATCHES, &started);
}

/// Client and server share one thread and TLS; requests go one after the other, then 64 at a time.
async fn https(server: &Arc<ApiServer>) {
    let listener = Listener::start(server, ([127, 0, 0, 1], 0).into())
        .await
        .expect("a free port");
    let text = kubeconfig(listener.address(), listener.ca_pem(), "bench");
    let parsed = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .expect("a configuration");
    let client = kube::Client::try_from(config).expect("a client");
    let send = |path: String, body: Vec<u8>| {
        let client = client.clone();
        async move {
            let request = http::Request::builder()
                .method("POST")
                .uri(path)
                .header("content-type", JSON)
                .body(kube::client::Body::from(body))
                .expect("a request");
            let response = client.send(request).await.expect("an answer");
            assert!(response.status().is_success(), "{}", response.status());
            response.into_body().collect().await.expect("a body");
        }
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "wire"}});
    send(
        "/api/v1/namespaces".to_owned(),
        namespace.to_string().into_bytes(),
    )
    .await;
    let pods = "/api/v1/namespaces/wire/pods";
    let started = start();
    for body in encoded((0..OBJECTS / 5).map(pod)) {
        send(pods.to_owned(), body).await;
    }
    report("HTTPS: Pods created, one after the other", OBJECTS / 5, &started);
    let started = start();
    futures::StreamExt::for_each_concurrent(
        futures::stream::iter(encoded((OBJECTS / 5..OBJECTS).map(pod))),
        64,
        |body| send(pods.to_owned(), body),
    )
    .await;
    report(
        "HTTPS: Pods created, 64 at a time",
        OBJECTS - OBJECTS / 5,
        &started,
    );

    let mut bodies = Vec::new();
    for _ in 0..WATCHES {
        let request = http::Request::get("/api/v1/namespaces/default/pods?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
            .body(kube::client::Body::empty())
            .expect("a request");
        bodies.push(client.send(request).await.expect("a watch").into_body());
    }
    let service = server.service();
    let started = start();
    for round in 0..WATCHED_WRITES / 50 {
        for index in 0..50 {
            let body = json!({"metadata": {"labels": {"wire": round.to_string()}}})
                .to_string()
                .into_bytes();
            must(
                &service,
                "PATCH",
                &format!("{PODS}/web-{:05}", round * 50 + index),
                MERGE,
                body,
            )
            .await;
        }
        for body in &mut bodies {
            let mut seen = 0;
            while seen < 50 {
                let frame = body.frame().await.expect("the watch goes on").expect("a frame");
                let data = frame.into_data().expect("data");
                seen += data.iter().filter(|byte| **byte == b'\n').count();
            }
        }
    }
    report(
        "HTTPS: watch events, 100 watches, client included",
        WATCHED_WRITES * WATCHES,
        &started,
    );
    drop(bodies);
    listener.stop().await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let parts: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let wanted = |part: &str| parts.is_empty() || parts.iter().any(|one| one == part);
    println!("{:<58} {:>10} {:>14}", "", "a second", "a busy second");
    let server = server();
    let service = server.service();
    writes(&service).await;
    if wanted("watches") {
        let from_now = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        watches(
            &service,
            &format!("/api/v1/pods?watch=true&{from_now}"),
            "in process: watch events, 100 watches",
        )
        .await;
        watches(
            &service,
            &format!("/api/v1/pods?watch=true&labelSelector=app%3Dweb&{from_now}"),
            "in process: watch events, 100 watches with a selector",
        )
        .await;
    }
    if wanted("https") {
        https(&server).await;
    }
}
