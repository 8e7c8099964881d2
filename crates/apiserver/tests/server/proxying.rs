//! What answers behind a port of a pod, and the server's own metrics.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::client::{Client, MERGE, PODS, pod};
use serde_json::json;

#[tokio::test]
async fn metrics_are_served_once_there_are_some() {
    let client = Client::new();
    assert_eq!(client.get("/metrics").await.code, 404);
    client.server.serve_metrics(Arc::new(|| "a 1\n".to_owned()));
    let answer = client.get("/metrics").await;
    assert_eq!((answer.code, answer.body.as_str()), (200, Some("a 1\n")));
}

#[tokio::test]
async fn ports_of_pods_lead_to_what_was_registered_for_their_label() {
    let client = Client::new();
    client
        .server
        .serve_pod_metrics(("app", "operator"), 8080, Arc::new(|| "nodes 3\n".to_owned()));
    client
        .post(PODS, pod("one", json!({"app": "operator"})))
        .await
        .ok();
    client.post(PODS, pod("other", json!({"app": "web"}))).await.ok();
    for name in ["one:8080", "http:one:8080"] {
        let answer = client.get(&format!("{PODS}/{name}/proxy/metrics")).await;
        assert_eq!(
            (answer.code, answer.body.as_str()),
            (200, Some("nodes 3\n")),
            "{name}"
        );
    }
    assert_eq!(
        client.get(&format!("{PODS}/one:8080/proxy/other")).await.code,
        404
    );
    client
        .post(&format!("{PODS}/one:8080/proxy/metrics"), json!({}))
        .await
        .refused(405, "MethodNotAllowed");
    for name in ["one:9090", "one", "other:8080"] {
        let answer = client.get(&format!("{PODS}/{name}/proxy/metrics")).await;
        answer.refused(501, "NotImplemented");
    }
    client
        .get(&format!("{PODS}/none:8080/proxy/metrics"))
        .await
        .refused(404, "NotFound");
}

/// An operator that runs apart serves its metrics on this machine.
#[tokio::test]
async fn an_annotation_leads_a_port_to_a_loopback_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut head = [0; 512];
        let length = stream.read(&mut head).await.expect("a request");
        let answer = b"HTTP/1.0 203 Fine\r\nContent-Type: text/csv\r\n\r\nbody";
        stream.write_all(answer).await.expect("written");
        String::from_utf8_lossy(&head[..length]).into_owned()
    });
    let client = Client::new();
    client.post(PODS, pod("one", json!({}))).await.ok();
    let annotate = |text: String| json!({"metadata": {"annotations": {"sim.spokeshave.dev/ports": text}}});
    let path = format!("{PODS}/one");
    client
        .patch(
            &path,
            MERGE,
            annotate(format!("8080={address}, 9090=10.0.0.1:80")),
        )
        .await
        .ok();
    let answer = client.get(&format!("{path}:8080/proxy/metrics/cadvisor")).await;
    assert_eq!((answer.code, answer.body.as_str()), (203, Some("body")));
    let head = served.await.expect("it was asked");
    assert!(head.starts_with("GET /metrics/cadvisor HTTP/1.0\r\n"), "{head}");
    // It is gone now, and what is not on this machine is not asked.
    client
        .get(&format!("{path}:8080/proxy/"))
        .await
        .refused(503, "ServiceUnavailable");
    client
        .get(&format!("{path}:9090/proxy/"))
        .await
        .refused(400, "BadRequest");
}
