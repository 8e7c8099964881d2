//! What clients get wrong: each a clear Status, no panic, nothing lost.

use crate::client::{Client, JSON, MAPS, MERGE, PODS, pod};
use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use proptest::prelude::*;
use serde_json::json;
use tower::ServiceExt as _;

#[tokio::test]
async fn bodies_that_cannot_be_read() {
    let client = Client::new();
    for (body, content_type, code) in [
        ("", JSON, 400),
        ("{", JSON, 400),
        ("[]", JSON, 400),
        ("null", JSON, 400),
        ("\"text\"", JSON, 400),
        ("{\"metadata\": {\"name\": 5}}", JSON, 400),
        ("{\"metadata\": []}", JSON, 400),
        ("a: [", "application/yaml", 400),
        ("{}", "application/xml", 415),
        ("k8s\0nonsense", "application/vnd.kubernetes.protobuf", 400),
    ] {
        let answer = client.text("POST", MAPS, content_type, body).await;
        assert_eq!(
            (answer.code, answer.body["kind"].as_str()),
            (code, Some("Status")),
            "{content_type} {body:?}: {}",
            answer.body
        );
        assert!(
            answer.body["message"]
                .as_str()
                .is_some_and(|message| !message.is_empty()),
            "{body:?}"
        );
    }
    let answer = client
        .text(
            "POST",
            MAPS,
            JSON,
            Bytes::from_static(b"{\"metadata\": {\"name\": \"\xff\xfe\"}}"),
        )
        .await;
    assert_eq!(answer.code, 400);
}

#[tokio::test]
async fn deeply_nested_bodies_are_refused() {
    let client = Client::new();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(client.text("POST", MAPS, JSON, deep.clone()).await.code, 400);
    assert_eq!(
        client.text("POST", MAPS, "application/yaml", deep).await.code,
        400
    );
}

#[tokio::test]
async fn bodies_that_are_too_large() {
    let client = Client::new();
    let body = json!({"metadata": {"name": "big"}, "data": {"key": "x".repeat(4 << 20)}}).to_string();
    client
        .text("POST", MAPS, JSON, body)
        .await
        .refused(413, "RequestEntityTooLarge");
    let chunk = Bytes::from(vec![b' '; 1 << 20]);
    let frames = futures::stream::iter(
        (0..5).map(move |_| Ok::<_, std::io::Error>(http_body::Frame::data(chunk.clone()))),
    );
    let request = http::Request::post(MAPS)
        .header("content-type", JSON)
        .body(StreamBody::new(frames))
        .unwrap();
    let response = client.server.service().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 413);
    let large = json!({"metadata": {"name": "fits"}, "data": {"key": "x".repeat(1_000_000)}});
    assert_eq!(client.post(MAPS, large).await.code, 201);
    let over = json!({"metadata": {"name": "over"}, "data": {"key": "x".repeat((1 << 20) + 1)}});
    client.post(MAPS, over).await.refused(422, "Invalid");
}

#[tokio::test]
async fn a_client_that_breaks_off_in_its_body_changes_nothing() {
    let client = Client::new();
    let frames = futures::stream::iter([
        Ok(http_body::Frame::data(Bytes::from_static(
            b"{\"metadata\": {\"name\": \"half\"",
        ))),
        Err(std::io::Error::other("the connection was reset")),
    ]);
    let request = http::Request::post(MAPS)
        .header("content-type", JSON)
        .body(StreamBody::new(frames))
        .unwrap();
    let response = client.server.service().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 400);
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&bytes).contains("the connection was reset"));
    assert!(!client.exists(&format!("{MAPS}/half")).await);
}

#[tokio::test]
async fn unknown_places_and_verbs() {
    let client = Client::new();
    client.get("/api/v1/nopes").await.refused(404, "NotFound");
    client
        .get("/apis/apps/v9/deployments")
        .await
        .refused(404, "NotFound");
    assert_eq!(client.get("/apis/nope.example.com/v1/things").await.code, 404);
    client.get(&format!("{MAPS}/none")).await.refused(404, "NotFound");
    client
        .get("/api/v1/namespaces/default/nodes")
        .await
        .refused(404, "NotFound");
    client
        .post(
            "/api/v1/namespaces/none/configmaps",
            json!({"metadata": {"name": "a"}}),
        )
        .await
        .refused(404, "NotFound");
    client
        .text("PATCH", MAPS, MERGE, "{}")
        .await
        .refused(405, "MethodNotAllowed");
    client.put(MAPS, json!({})).await.refused(405, "MethodNotAllowed");
    client
        .post(
            MAPS,
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
        )
        .await
        .refused(400, "BadRequest");
    client
        .post(
            MAPS,
            json!({"metadata": {"name": "a", "namespace": "kube-system"}}),
        )
        .await
        .refused(400, "BadRequest");
    client
        .post(MAPS, json!({"metadata": {"name": "Not_A_Name"}}))
        .await
        .refused(422, "Invalid");
    client
        .post(MAPS, json!({"data": {}}))
        .await
        .refused(422, "Invalid");
}

#[tokio::test]
async fn what_is_not_there_says_so() {
    let client = Client::new();
    client.post(PODS, pod("web", json!({}))).await.ok();
    for subresource in ["log", "exec", "attach", "portforward"] {
        let answer = client.get(&format!("{PODS}/web/{subresource}")).await;
        assert_eq!(
            (answer.code, answer.body["kind"].as_str()),
            (501, Some("Status")),
            "{subresource}: {}",
            answer.body
        );
        assert!(
            answer.body["message"]
                .as_str()
                .unwrap()
                .contains("no container runs"),
            "{}",
            answer.body
        );
    }
}

#[tokio::test]
async fn options_that_mean_nothing() {
    let client = Client::new();
    client.map("a", json!({})).await;
    for path in [
        format!("{MAPS}?labelSelector=a%20b%20c"),
        format!("{MAPS}?labelSelector=%3Dx"),
        format!("{MAPS}?fieldSelector=metadata.name%3E1"),
        format!("{MAPS}?continue=nonsense"),
        format!("{MAPS}?resourceVersion=x"),
        format!("{MAPS}?watch=true&resourceVersion=x"),
        format!("{MAPS}?timeoutSeconds=soon"),
        format!("{MAPS}?watch=true&timeoutSeconds=soon"),
        format!("{MAPS}?watch=true&timeoutSeconds="),
        format!("{MAPS}?watch=true&timeoutSeconds=9223372036854775808"),
    ] {
        let answer = client.get(&path).await;
        assert!(
            answer.code >= 400 && answer.body["kind"] == "Status",
            "{path}: {} {}",
            answer.code,
            answer.body
        );
    }
    client
        .post(&format!("{MAPS}?dryRun=Some"), json!({"metadata": {"name": "b"}}))
        .await
        .refused(422, "Invalid");
    client
        .delete_with(&format!("{MAPS}/a"), json!({"propagationPolicy": "Sideways"}))
        .await
        .refused(422, "Invalid");
    client
        .delete_with(&format!("{MAPS}/a"), json!({"gracePeriodSeconds": "soon"}))
        .await
        .refused(400, "BadRequest");
    assert!(client.exists(&format!("{MAPS}/a")).await);
}

/// Any request whatever.
fn anything() -> impl Strategy<Value = (String, String, String, String)> {
    let method = prop::sample::select(vec!["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]);
    let path = prop_oneof![
        "(/[a-z0-9.%]{0,8}){0,7}".prop_map(|path| if path.is_empty() { "/".to_owned() } else { path }),
        prop::sample::select(vec![
            "/api/v1/namespaces/default/configmaps",
            "/api/v1/namespaces/default/configmaps/a",
            "/api/v1/namespaces/default/pods/a/eviction",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "/api/v1/namespaces/default/pods/a/binding",
            "/api/v1/nodes/a/status",
            "/apis/apps/v1/namespaces/default/deployments/a/scale",
            "/api/v1/namespaces/default",
            "/openapi/v3",
            "/api/v1/namespaces/default/finalize",
        ])
        .prop_map(str::to_owned),
    ];
    let query = "(\\?(labelSelector|fieldSelector|continue|limit|resourceVersion|dryRun|fieldManager|force|fieldValidation|gracePeriodSeconds|propagationPolicy|watch)=[a-zA-Z0-9%,()!=]{0,12})?(&(fieldManager|force|limit|watch)=[a-z0-9]{0,4})?(&timeoutSeconds=-?[0-9]{1,19})?";
    let types = prop::sample::select(vec![
        JSON,
        MERGE,
        crate::client::STRATEGIC,
        crate::client::JSON_PATCH,
        crate::client::APPLY,
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "",
    ]);
    let body = prop_oneof![
        "\\PC{0,60}",
        prop::sample::select(vec![
            "", "{}", "[]", "null", r#"{"metadata":{"name":"a"}}"#, r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":null}}"#,
            r#"{"spec":{"replicas":-1}}"#, r#"{"metadata":{"labels":[]},"spec":"x","status":3}"#, r#"[{"op":"add","path":"/metadata","value":[]}]"#,
            r#"{"metadata":{"name":"a","ownerReferences":[{}],"finalizers":["x"],"managedFields":[{}]}}"#, r#"{"target":{},"metadata":{"name":"a"}}"#,
            r#"{"metadata":{"name":"a"},"spec":{"containers":[{"name":"a","image":"b","resources":{"requests":{"cpu":"x"}}}]}}"#,
            r#"{"data":{"$patch":"delete"},"metadata":{"$setElementOrder/finalizers":[1]}}"#,
            r#"{"metadata":{"name":"a.b.c"},"spec":{"group":"b.c","versions":[{}],"names":{"plural":"a"}}}"#,
        ]).prop_map(str::to_owned),
    ];
    (method, path, query, types, body).prop_map(|(method, path, query, content_type, body)| {
        (method.to_owned(), path + &query, content_type.to_owned(), body)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn no_request_breaks_the_server(requests in prop::collection::vec(anything(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let client = Client::new();
            for (method, path, content_type, body) in requests {
                let response = client.raw(&method, &path, &content_type, body.clone()).await;
                // A real server, too, calls a binding without a target and a bad resourceVersion its own fault.
                prop_assert!(response.status().as_u16() != 500 || path.contains("binding") || path.contains("resourceVersion") || body.contains("resourceVersion"), "{} {} {} {}", method, path, content_type, body);
            }
            // It still serves, and the objects that it created exist.
            let kept = client.get("/api/v1/namespaces/kube-system").await;
            prop_assert_eq!(kept.code, 200);
            Ok(())
        })?;
    }
}
