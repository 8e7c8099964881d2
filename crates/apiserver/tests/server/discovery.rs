//! What there is: groups, resources, OpenAPI, health.

use crate::client::{Client, DEFINITIONS, widgets};
use serde_json::json;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test]
async fn legacy_discovery_names_groups_versions_and_resources() {
    let client = Client::new();
    assert_eq!(client.get("/api").await.ok()["versions"], json!(["v1"]));
    let groups = client.get("/apis").await.ok();
    let names: Vec<&str> = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|group| group["name"].as_str())
        .collect();
    for name in [
        "apps",
        "batch",
        "policy",
        "coordination.k8s.io",
        "apiextensions.k8s.io",
        "events.k8s.io",
        "storage.k8s.io",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let core = client.get("/api/v1").await.ok();
    let find = |name: &str| {
        let list = core["resources"].as_array().unwrap();
        list.iter()
            .find(|resource| resource["name"] == name)
            .unwrap_or_else(|| panic!("no {name}"))
            .clone()
    };
    let pods = find("pods");
    assert_eq!(
        (pods["kind"].as_str(), pods["namespaced"].as_bool()),
        (Some("Pod"), Some(true))
    );
    assert_eq!(pods["shortNames"], json!(["po"]));
    assert_eq!(find("pods/eviction")["kind"], "Eviction");
    assert_eq!(find("nodes")["namespaced"], false);
}

#[tokio::test]
async fn aggregated_discovery_has_everything_in_two_answers() {
    let client = Client::new().accepting(AGGREGATED);
    client
        .accepting("application/json")
        .post(DEFINITIONS, widgets())
        .await
        .ok();
    let list = client.get("/apis").await.ok();
    assert_eq!(list["kind"], "APIGroupDiscoveryList");
    let group = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|group| group["metadata"]["name"] == "example.com")
        .expect("the new group");
    let resource = &group["versions"][0]["resources"][0];
    assert_eq!(resource["resource"], "widgets");
    assert_eq!(resource["shortNames"], json!(["wd"]));
    assert_eq!(resource["subresources"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_definition_is_served_at_once_and_ends_with_its_removal() {
    let client = Client::new();
    assert_eq!(client.get("/apis/example.com/v1").await.code, 404);
    client.post(DEFINITIONS, widgets()).await.ok();
    let resources = client.get("/apis/example.com/v1").await.ok();
    assert_eq!(resources["resources"][0]["name"], "widgets");
    client
        .delete(&format!("{DEFINITIONS}/widgets.example.com"))
        .await
        .ok();
    assert_eq!(client.get("/apis/example.com/v1").await.code, 404);
    assert_eq!(client.get("/apis/example.com/v1/widgets").await.code, 404);
}

#[tokio::test]
async fn openapi_describes_core_and_custom_kinds() {
    let client = Client::new();
    client.post(DEFINITIONS, widgets()).await.ok();
    let paths = client.get("/openapi/v3").await.ok();
    assert!(
        paths["paths"]["apis/example.com/v1"]["serverRelativeURL"].is_string(),
        "{}",
        paths["paths"]
    );
    let document = client.get("/openapi/v3/apis/example.com/v1").await.ok();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let widget = schemas
        .iter()
        .find(|(name, _)| name.ends_with("Widget"))
        .expect("its schema")
        .1;
    assert_eq!(widget["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
    let core = client.get("/openapi/v3/api/v1").await.ok();
    assert!(core["components"]["schemas"]["io.k8s.api.core.v1.Pod"].is_object());
}

/// kubectl requests it for an unknown kind, and reports the error itself after the response.
#[tokio::test]
async fn openapi_v2_in_protobuf_names_the_api_and_no_kinds() {
    let client = Client::new().accepting("application/com.github.proto-openapi.spec.v2@v1.0+protobuf");
    let answer = client.get("/openapi/v2").await;
    assert_eq!(answer.code, 200);
    let text = answer.body.as_str().expect("bytes that are text");
    assert!(
        text.contains("Kubernetes") && text.starts_with("\n\u{3}2.0\u{12}\u{15}"),
        "{text:?}"
    );
}

#[tokio::test]
async fn health_and_version_are_told() {
    let client = Client::new();
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = client.get(path).await;
        assert_eq!((answer.code, answer.body.as_str()), (200, Some("ok")), "{path}");
    }
    assert_eq!(client.get("/version").await.ok()["major"], "1");
}
