//! The same client middleware on a real socket with TLS, as with any cluster.

use std::time::Duration;

use crate::common::config_map;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use spokeshave_apiserver::{ApiServer, Config, Listener, kubeconfig};
use spokeshave_ports::{Entropy, TokioClock};
use spokeshave_runtime::client::{ClientOptions, RequestLog, from_config};
use spokeshave_runtime::{Metrics, ObjectKey, Reflector, Shutdown, Store, TaskGroup, WatchOptions};

#[tokio::test]
async fn a_store_is_filled_through_a_kubeconfig() {
    let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1.0).shared();
    let now = clock.clone();
    let mut config = Config::new(std::sync::Arc::new(move || now.now()), 1);
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
async fn busy_server() -> (std::net::SocketAddr, std::sync::Arc<std::sync::atomic::AtomicU64>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
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
