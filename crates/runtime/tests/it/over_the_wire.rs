//! The same client middleware on a real socket with TLS, as with any cluster.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::config_map;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use spokeshave_apiserver::{ApiServer, Config, Listener, kubeconfig};
use spokeshave_ports::{Entropy, TokioClock, causes};
use spokeshave_runtime::client::{ClientOptions, RequestLog, from_config};
use spokeshave_runtime::{Metrics, ObjectKey, Reflector, Shutdown, Store, TaskGroup, WatchOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

#[tokio::test]
async fn a_store_is_filled_through_a_kubeconfig() {
    let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1.0).shared();
    let now = clock.clone();
    let mut config = Config::new(Arc::new(move || now.now()), 1);
    config.token = Some("secret".into());
    let server = ApiServer::new(config);
    let listener = Listener::start(&server, ([127, 0, 0, 1], 0).into())
        .await
        .unwrap();
    let text = kubeconfig(listener.address(), listener.ca_pem(), "secret");
    let parsed = Kubeconfig::from_yaml(&text).unwrap();
    let config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .unwrap();

    let metrics = Metrics::new(clock.clone());
    let log = RequestLog::new();
    let options = ClientOptions {
        log: Some(log.clone()),
        metrics: Some(metrics.clone()),
        ..ClientOptions::default()
    };
    let client = from_config(config, &options, clock.clone()).unwrap();
    let store: Store<ConfigMap> = Store::default();
    let (entropy, watch) = (Entropy::new(1), WatchOptions::default());
    let reflector = Reflector::new(client.clone(), &store, &watch, clock.clone(), &entropy, &metrics);
    let (mut tasks, shutdown) = (TaskGroup::new(), Shutdown::new());
    tasks.spawn("reflector", reflector.run(shutdown.clone()));
    store.ready().await;
    let mut changes = store.subscribe();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &config_map("a", &[("value", "1")]))
        .await
        .unwrap();
    while let Some(change) = changes.next().await {
        if change.key == ObjectKey::namespaced("default", "a") {
            break;
        }
    }
    shutdown.request();
    assert!(tasks.drain(&clock, Duration::from_secs(10)).await.is_empty());
    assert!(
        log.text().contains("POST /api/v1/namespaces/default/configmaps"),
        "{}",
        log.text()
    );
    assert!(
        metrics
            .render()
            .contains(r#"client_go_request_total{code="201",method="POST"} 1"#)
    );
    listener.stop().await;
}

/// A server that answers every request with 429, and counts them.
async fn busy_server() -> (SocketAddr, Arc<std::sync::atomic::AtomicU64>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let answer = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(answer).await;
        }
    });
    (address, count)
}

// D-330: a rejection is returned to the controller, which counts, reports and paces it; the client does not retry on its own.
#[tokio::test]
async fn d_330_too_many_requests_is_answered_once() {
    let (address, count) = busy_server().await;
    let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1.0).shared();
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let client = from_config(config, &ClientOptions::default(), clock).unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let answer = api.get("a").await;
    assert!(
        matches!(&answer, Err(kube::Error::Api(status)) if status.code == 429),
        "{answer:?}"
    );
    assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 1);
}

/// A client by itself only says that it could not connect.
#[tokio::test]
async fn causes_name_a_certificate_that_is_not_trusted() {
    let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1.0).shared();
    let mut listeners = Vec::new();
    for seed in [1, 2] {
        let now = clock.clone();
        let mut config = Config::new(Arc::new(move || now.now()), seed);
        config.token = Some("secret".into());
        let server = ApiServer::new(config);
        let listener = Listener::start(&server, ([127, 0, 0, 1], 0).into()).await;
        listeners.push(listener.unwrap());
    }
    // The address of one with the certificates of the other.
    let text = kubeconfig(listeners[0].address(), listeners[1].ca_pem(), "secret");
    let parsed = Kubeconfig::from_yaml(&text).unwrap();
    let config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .unwrap();
    let client = from_config(config, &ClientOptions::default(), clock).unwrap();
    let error = client.apiserver_version().await.unwrap_err();
    assert!(!error.to_string().contains("certificate"), "{error}");
    assert!(causes(&error).contains("certificate"), "{}", causes(&error));
    for listener in listeners {
        listener.stop().await;
    }
}

/// A little longer than a connection may be silent.
const SILENCE: Duration = Duration::from_secs(76);
/// A deadline for a failure only: what is waited for are events.
const NEVER: Duration = Duration::from_secs(120);

/// A server that gives these answers, one to each request and so many at once, and then none any more, as behind a firewall that has forgotten its connections.
/// Tells the number of the connection and the first line of each request.
async fn server_that_falls_silent(
    answers: Vec<String>,
    at_once: usize,
) -> (SocketAddr, UnboundedReceiver<(usize, String)>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let together = Arc::new(Barrier::new(at_once));
    let (tell, asked) = unbounded_channel();
    tokio::spawn(async move {
        let mut connections = 0..;
        while let Ok((mut stream, _)) = listener.accept().await {
            let number = connections.next().unwrap();
            let (answers, tell, together) = (answers.clone(), tell.clone(), together.clone());
            tokio::spawn(async move {
                let mut read: Vec<u8> = Vec::new();
                loop {
                    while let Some(end) = read.windows(4).position(|end| end == b"\r\n\r\n") {
                        let head: Vec<u8> = read.drain(..end + 4).collect();
                        let head = String::from_utf8(head).unwrap();
                        let answer = answers.lock().unwrap().pop_front();
                        let _ = tell.send((number, head.lines().next().unwrap().to_owned()));
                        if let Some(answer) = answer {
                            together.wait().await;
                            let _ = stream.write_all(answer.as_bytes()).await;
                        }
                    }
                    if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
            });
        }
    });
    (address, asked)
}

/// An answer of known length.
fn whole(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// The connections of a pool are lost together, and whoever finds that out spares the others the wait.
#[tokio::test]
async fn a_request_that_waits_long_takes_the_idle_connections_out_of_use() {
    let object =
        whole(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}}"#);
    let (address, mut asked) = server_that_falls_silent(vec![object.clone(), object], 2).await;
    let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1.0).shared();
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let client = from_config(config, &ClientOptions::default(), clock).unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let (one, other) = tokio::join!(api.get("one"), api.get("other"));
    assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    let mut idle = [asked.recv().await.unwrap().0, asked.recv().await.unwrap().0];
    idle.sort_unstable();
    assert_eq!(idle, [0, 1]);
    let waits = api.clone();
    let waits = tokio::spawn(async move { waits.get("waits").await });
    let (connection, _) = asked.recv().await.unwrap();
    assert!(idle.contains(&connection), "as long as nothing is suspicious");
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(11)).await;
    tokio::time::resume();
    let next = tokio::spawn(async move { api.get("next").await });
    let request = tokio::time::timeout(NEVER, asked.recv()).await;
    let (connection, request) = request.expect("it is sent").unwrap();
    assert!(request.contains("/next"), "{request}");
    assert!(
        !idle.contains(&connection),
        "the other idle one may be lost as well"
    );
    // That one may only be slow, and has its time.
    assert!(!waits.is_finished());
    tokio::time::pause();
    let answer = tokio::time::timeout(SILENCE, waits).await;
    assert!(answer.expect("it does not wait for ever").unwrap().is_err());
    next.abort();
}

#[tokio::test]
async fn a_request_that_nobody_answers_fails() {
    let (address, mut asked) = server_that_falls_silent(Vec::new(), 1).await;
    let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1.0).shared();
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let client = from_config(config, &ClientOptions::default(), clock).unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let answer = tokio::spawn(async move { api.get("a").await });
    asked.recv().await.unwrap();
    // From here on time goes on by itself whenever nothing else happens.
    tokio::time::pause();
    let answer = tokio::time::timeout(SILENCE, answer)
        .await
        .expect("it does not wait for ever");
    assert!(answer.unwrap().is_err());
}

#[tokio::test]
async fn a_watch_that_has_fallen_silent_goes_on_over_another_connection() {
    let list =
        whole(r#"{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"resourceVersion":"7"},"items":[]}"#);
    let event = r#"{"type":"ADDED","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default","uid":"1","resourceVersion":"8"}}}"#;
    let watch = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{event}\n\r\n",
        event.len() + 1
    );
    let (address, mut asked) = server_that_falls_silent(vec![list, watch], 1).await;
    let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1.0).shared();
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let client = from_config(config, &ClientOptions::default(), clock.clone()).unwrap();
    let metrics = Metrics::new(clock.clone());
    let store: Store<ConfigMap> = Store::default();
    let (entropy, options) = (Entropy::new(1), WatchOptions::default());
    let reflector = Reflector::new(client, &store, &options, clock.clone(), &entropy, &metrics);
    let (mut tasks, shutdown) = (TaskGroup::new(), Shutdown::new());
    let mut changes = store.subscribe();
    tasks.spawn("reflector", reflector.run(shutdown.clone()));
    while let Some(change) = changes.next().await {
        if change.key == ObjectKey::namespaced("default", "a") {
            break;
        }
    }
    tokio::time::pause();
    tokio::time::sleep(SILENCE).await;
    tokio::time::resume();
    let mut requests = Vec::new();
    for _ in 0..3 {
        let request = tokio::time::timeout(NEVER, asked.recv()).await;
        let (_, request) = request.expect("the watch is begun anew").unwrap();
        requests.push(request);
    }
    assert!(
        requests[2].contains("watch=true") && requests[2].contains("resourceVersion=8"),
        "{requests:?}"
    );
    let exposition = metrics.render();
    assert!(
        !exposition.contains("spokeshave_watch_failures_total{"),
        "that is no failure: {exposition}"
    );
    shutdown.request();
    assert!(tasks.drain(&clock, Duration::from_secs(10)).await.is_empty());
}
