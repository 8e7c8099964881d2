//! What may not change in a CustomResourceDefinition: where its objects are, and versions in which some are stored.

use crate::client::{Client, DEFINITIONS, MERGE, widgets};
use serde_json::{Value, json};

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";

/// Versions of Widgets by name, and which of them is stored.
fn versions(named: &[(&str, bool)]) -> Value {
    let like = widgets()["spec"]["versions"][0].clone();
    let version = |(name, is_stored): &(&str, bool)| {
        let mut version = like.clone();
        version["name"] = json!(name);
        version["storage"] = json!(is_stored);
        version
    };
    named.iter().map(version).collect()
}

/// With a Widget that was written in `v1beta1`.
async fn with_widget() -> Client {
    let client = Client::new();
    let mut definition = widgets();
    definition["spec"]["versions"] = versions(&[("v1beta1", true)]);
    client.post(DEFINITIONS, definition).await.ok();
    let widget =
        json!({"apiVersion": "example.com/v1beta1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}});
    client.post(&widgets_in("v1beta1"), widget).await.ok();
    client
}

fn widgets_in(version: &str) -> String {
    format!("/apis/example.com/{version}/namespaces/default/widgets")
}

/// Operators with definitions of two generations meet it: the old version goes only after a migration.
#[tokio::test]
async fn a_version_stays_while_objects_may_be_stored_in_it() {
    let client = with_widget().await;
    let only_new = json!({"spec": {"versions": versions(&[("v1", true)])}});
    let both = json!({"spec": {"versions": versions(&[("v1beta1", false), ("v1", true)])}});
    let refused = client
        .patch(DEFINITION, MERGE, only_new.clone())
        .await
        .refused(422, "Invalid");
    let cause = &refused["details"]["causes"][0];
    assert_eq!(cause["field"], "status.storedVersions[0]");
    assert_eq!(
        cause["message"],
        "Invalid value: \"v1beta1\": missing from spec.versions; v1beta1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1beta1 and removes v1beta1 from status.storedVersions"
    );
    let changed = client.patch(DEFINITION, MERGE, both).await.ok();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1beta1", "v1"]));
    client
        .patch(DEFINITION, MERGE, only_new.clone())
        .await
        .refused(422, "Invalid");
    for version in ["v1beta1", "v1"] {
        assert!(client.exists(&format!("{}/w", widgets_in(version))).await);
    }
    let migrated = json!({"status": {"storedVersions": ["v1"]}});
    client
        .patch(&format!("{DEFINITION}/status"), MERGE, migrated)
        .await
        .ok();
    client.patch(DEFINITION, MERGE, only_new).await.ok();
    let widget = client.get(&format!("{}/w", widgets_in("v1"))).await.ok();
    assert_eq!(widget["apiVersion"], "example.com/v1");
}

#[tokio::test]
async fn scope_and_kind_are_for_good() {
    let client = with_widget().await;
    for (spec, field) in [
        (json!({"scope": "Cluster"}), "spec.scope"),
        (json!({"names": {"kind": "Gadget"}}), "spec.names.kind"),
    ] {
        let refused = client
            .patch(DEFINITION, MERGE, json!({"spec": spec}))
            .await
            .refused(422, "Invalid");
        let causes = refused["details"]["causes"].as_array().unwrap();
        assert_eq!(causes.len(), 1, "{refused}");
        assert_eq!(causes[0]["field"], field);
        let message = causes[0]["message"].as_str().unwrap();
        assert!(message.ends_with(": field is immutable"), "{message}");
    }
    let names = json!({"spec": {"names": {"shortNames": ["wg"]}}});
    client.patch(DEFINITION, MERGE, names).await.ok();
    let widget = format!("{}/w", widgets_in("v1beta1"));
    assert!(client.exists(&widget).await);
    client.delete(&widget).await.ok();
}
