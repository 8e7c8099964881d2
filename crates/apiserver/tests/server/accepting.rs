//! What clients take for an answer: `Accept` headers as kubectl, client-go and the Python client send them.

use bytes::Bytes;

use crate::client::{Client, DEFINITIONS, JSON, MAPS, MERGE, widgets};
use serde_json::{Value, json};

const OPENAPI_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const INITIAL: &str =
    "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

async fn content_type(client: &Client, path: &str) -> (u16, String) {
    let response = client.raw("GET", path, JSON, Bytes::new()).await;
    let header = response.headers().get("content-type");
    let text = header.map_or("", |value| value.to_str().expect("text"));
    (response.status().as_u16(), text.to_owned())
}

/// kubectl parses the answer's content type as a media type, which the name that it asks by is not.
#[tokio::test]
async fn openapi_v2_is_negotiated() {
    for (accept, expected) in [
        (
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
            (200, OPENAPI_V2),
        ),
        (OPENAPI_V2, (200, OPENAPI_V2)),
        (
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf, application/json;q=0.5",
            (200, OPENAPI_V2),
        ),
        ("application/json, */*", (200, JSON)),
        ("*/*", (200, JSON)),
        ("", (200, JSON)),
    ] {
        let (code, found) = content_type(&Client::new().accepting(accept), "/openapi/v2").await;
        assert_eq!((code, found.as_str()), expected, "{accept}");
    }
    let (code, _) = content_type(
        &Client::new().accepting("application/vnd.kubernetes.protobuf"),
        "/openapi/v2",
    )
    .await;
    assert_eq!(code, 406);
}

#[tokio::test]
async fn a_form_that_is_not_offered_is_passed_over() {
    let client = Client::new();
    client.map("a", json!({})).await;
    let path = format!("{MAPS}/a");
    for (accept, kind) in [
        (
            "application/vnd.kubernetes.protobuf,application/json",
            "ConfigMap",
        ),
        (
            "application/json;as=Table;v=v2;g=meta.k8s.io,application/json",
            "ConfigMap",
        ),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            "Table",
        ),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            "PartialObjectMetadata",
        ),
    ] {
        let answer = client.accepting(accept).get(&path).await.ok();
        assert_eq!(answer["kind"], kind, "{accept}");
    }
    let old = client.accepting("application/json;as=Table;v=v1beta1;g=meta.k8s.io");
    assert_eq!(old.get(&path).await.ok()["apiVersion"], "meta.k8s.io/v1beta1");
    let list = client.accepting("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    list.get(&path).await.refused(406, "NotAcceptable");
    let one = client.accepting("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    one.get(MAPS).await.refused(406, "NotAcceptable");
}

#[tokio::test]
async fn yaml_is_written_for_who_asks_for_it() {
    let client = Client::new();
    client.map("a", json!({"app": "web"})).await;
    let client = client.accepting("application/yaml");
    let path = format!("{MAPS}/a");
    assert_eq!(
        content_type(&client, &path).await,
        (200, "application/yaml".to_owned())
    );
    let answer = client.get(&path).await;
    let text = answer.body.as_str().expect("not JSON");
    for line in ["kind: ConfigMap", "  name: a", "    app: web"] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is not in:\n{text}"
        );
    }
}

/// client-go's informers of metadata decode every event as metadata, bookmarks included; without one they never begin.
#[tokio::test(start_paused = true)]
async fn bookmarks_have_the_form_of_the_other_events() {
    let client = Client::new();
    client.map("a", json!({})).await;
    for (form, kind) in [
        ("PartialObjectMetadata", "PartialObjectMetadata"),
        ("Table", "Table"),
    ] {
        let mut watch = client
            .accepting(&format!("application/json;as={form};g=meta.k8s.io;v=v1"))
            .watch(&format!("{MAPS}?{INITIAL}&includeObject=None"))
            .await;
        assert_eq!(watch.next().await.expect("the object")["type"], "ADDED");
        let bookmark = watch.next().await.expect("the end of the initial events");
        assert_eq!(bookmark["type"], "BOOKMARK");
        let object = &bookmark["object"];
        assert_eq!(
            (&object["kind"], &object["apiVersion"]),
            (&json!(kind), &json!("meta.k8s.io/v1"))
        );
        let metadata = if kind == "Table" {
            &object["rows"][0]["object"]["metadata"]
        } else {
            &object["metadata"]
        };
        assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
        assert!(metadata["resourceVersion"].is_string(), "{bookmark}");
        let later = watch.next().await.expect("a bookmark after a quiet minute");
        assert_eq!(
            (&later["type"], &later["object"]["kind"]),
            (&json!("BOOKMARK"), &json!(kind))
        );
    }
}

#[tokio::test]
async fn custom_kinds_have_no_protobuf() {
    let client = Client::new();
    client.post(DEFINITIONS, widgets()).await.ok();
    let body = &b"k8s\0\x0a\x14\x0a\x0eexample.com/v1\x12\x06Widget"[..];
    let answer = client
        .text(
            "POST",
            "/apis/example.com/v1/namespaces/default/widgets",
            "application/vnd.kubernetes.protobuf",
            body,
        )
        .await;
    let status = answer.refused(415, "UnsupportedMediaType");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(
        message.ends_with("application/json, application/yaml"),
        "{message}"
    );
}

/// etcd stops at 1.5 MiB.
#[tokio::test]
async fn an_object_larger_than_etcd_takes_is_refused() {
    let client = Client::new();
    client.post(DEFINITIONS, widgets()).await.ok();
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = |name: &str, bytes: usize| -> Value {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"open": {"text": "x".repeat(bytes)}}})
    };
    let refusal = client.post(widgets, widget("a", 1_600_000)).await;
    assert_eq!(
        (refusal.code, &refusal.body["message"]),
        (500, &json!("etcdserver: request is too large"))
    );
    client.post(widgets, widget("a", 1_500_000)).await.ok();
    let patch = json!({"spec": {"open": {"more": "x".repeat(100_000)}}});
    let refusal = client.patch(&format!("{widgets}/a"), MERGE, patch).await;
    assert_eq!(
        (refusal.code, &refusal.body["message"]),
        (500, &json!("etcdserver: request is too large"))
    );
    let small = json!({"spec": {"size": 3}});
    client.patch(&format!("{widgets}/a"), MERGE, small).await.ok();
}
