//! which changes of a class drift its nodes.

use serde_json::json;
use spokeshave_api::{EC2NodeClass, NodeClaim};
use spokeshave_provider_aws::class_hash::{HASH_ANNOTATION, HASH_VERSION_ANNOTATION, VERSION, class_hash};
use spokeshave_provider_aws::drift::is_static;

use crate::oracle;

fn classes() -> Vec<EC2NodeClass> {
    let text = oracle::text("hash.yaml");
    let documents = text
        .split("---\n")
        .filter_map(|document| document.lines().find(|line| line.starts_with('{')));
    documents
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_010_the_same_changes_drift_as_upstream() {
    let classes = classes();
    let expected = oracle::json("expected/hash.json");
    let expected = expected.as_array().unwrap();
    assert_eq!(classes.len(), expected.len());
    let base = class_hash(&classes[0], Some("Y2E="));
    let listed = oracle::differences("hash");
    for (class, expected) in classes.iter().zip(expected).skip(1) {
        assert_eq!(class.name(), expected["name"]);
        let differs = class_hash(class, Some("Y2E=")) != base;
        let drifted = (expected["drifted"] == true) != listed.contains_key(class.name());
        assert_eq!(differs, drifted, "{}", class.name());
    }
    assert_ne!(
        class_hash(&classes[0], Some("b3RoZXI=")),
        base,
        "other certificates"
    );
}

#[test]
fn a_010_the_value_is_stored_in_clusters() {
    assert_eq!(
        class_hash(&classes()[0], Some("Y2E=")),
        include_str!("base_hash.txt").trim(),
        "changing the value for any class needs a new VERSION"
    );
}

#[test]
fn a_011_hashes_of_another_version_drift_nothing() {
    let annotated = |hash: &str, version: &str| json!({"name": "x", "annotations": {HASH_ANNOTATION: hash, HASH_VERSION_ANNOTATION: version}});
    let class = |hash: &str| {
        let mut class = classes().remove(0);
        class.metadata = serde_json::from_value(annotated(hash, VERSION)).unwrap();
        class
    };
    let claim = |metadata: serde_json::Value| -> NodeClaim {
        serde_json::from_value(json!({"metadata": metadata, "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": []}})).unwrap()
    };
    assert!(is_static(&class("1"), &claim(annotated("2", VERSION))));
    assert!(!is_static(&class("1"), &claim(annotated("1", VERSION))));
    assert!(
        !is_static(&class("1"), &claim(annotated("2", "v5"))),
        "a NodeClaim of upstream's is stamped again, not replaced"
    );
    assert!(!is_static(&class("1"), &claim(json!({"name": "x"}))));
}
