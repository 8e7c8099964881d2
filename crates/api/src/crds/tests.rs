//! The definitions against the types; what they accept and refuse is in `tests/corpus`.

use super::*;
use serde::Serialize;

fn schema(kind: &str) -> Value {
    let crd = crd_values()
        .into_iter()
        .find(|crd| crd["spec"]["names"]["kind"] == kind)
        .unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Every path of `value` is in the schema.
fn assert_known(schema: &Value, value: &Value, path: &str) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    if let Some(object) = value.as_object() {
        for (key, child) in object {
            let known = &schema["properties"][key];
            let known = if known.is_null() {
                &schema["additionalProperties"]
            } else {
                known
            };
            assert!(
                !known.is_null(),
                "{path}.{key} is a field of the type and not in the schema"
            );
            assert_known(known, child, &format!("{path}.{key}"));
        }
    }
    for child in value.as_array().into_iter().flatten() {
        assert_known(&schema["items"], child, &format!("{path}[]"));
    }
}

fn check<T: Serialize + serde::de::DeserializeOwned>(kind: &str, full: &Value) {
    let typed: T = serde_json::from_value(full.clone()).unwrap();
    let written = serde_json::to_value(&typed).unwrap();
    assert_eq!(&written, full, "{kind}: a full object survives the type");
    for part in ["spec", "status"] {
        assert_known(&schema(kind)["properties"][part], &written[part], part);
    }
}

#[test]
fn p_001_the_types_and_the_schemas_have_the_same_fields() {
    let condition = json!({"type": "Ready", "status": "True", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Ready", "message": ""});
    let taint = json!({"key": "a", "value": "b", "effect": "NoSchedule"});
    let requirement = json!({"key": "a", "operator": "In", "values": ["x"], "minValues": 1});
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    check::<crate::NodePool>(
        "NodePool",
        &json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"},
            "spec": {
                "template": {
                    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                    "spec": {"taints": [taint], "startupTaints": [taint], "requirements": [requirement], "nodeClassRef": class,
                             "terminationGracePeriod": "1h", "expireAfter": "24h"},
                },
                "disruption": {"consolidateAfter": "1m", "consolidationPolicy": "Balanced",
                               "budgets": [{"nodes": "5", "reasons": ["Empty"], "schedule": "@daily", "duration": "1h"}]},
                "limits": {"cpu": "10"}, "weight": 3, "replicas": 2,
            },
            "status": {"nodes": 1, "resources": {"cpu": "1"}, "nodeClassObservedGeneration": 1, "conditions": [condition]},
        }),
    );
    check::<crate::NodeClaim>(
        "NodeClaim",
        &json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "a"},
            "spec": {"taints": [taint], "startupTaints": [taint], "requirements": [requirement], "resources": {"requests": {"cpu": "1"}},
                     "nodeClassRef": class, "terminationGracePeriod": "1h", "expireAfter": "Never"},
            "status": {"nodeName": "n", "providerID": "p", "imageID": "i", "capacity": {"cpu": "1"}, "allocatable": {"cpu": "1"},
                       "lastPodEventTime": "2026-01-01T00:00:00Z", "conditions": [condition]},
        }),
    );
    check::<crate::NodeOverlay>(
        "NodeOverlay",
        &json!({
            "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "a"},
            "spec": {"requirements": [{"key": "a", "operator": "Exists"}], "price": "1", "priceAdjustment": "+1", "capacity": {"x/y": "1"}, "weight": 1},
            "status": {"conditions": [condition]},
        }),
    );
    check::<crate::CapacityBuffer>(
        "CapacityBuffer",
        &json!({
            "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": "a"},
            "spec": {"provisioningStrategy": "s", "podTemplateRef": {"name": "t"}, "scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "d"},
                     "replicas": 1, "percentage": 2, "limits": {"cpu": "1"}},
            "status": {"podTemplateRef": {"name": "t"}, "podTemplateGeneration": 1, "replicas": 1, "provisioningStrategy": "s", "conditions": [condition]},
        }),
    );
    check::<crate::disruption::Disruption>(
        "Disruption",
        &json!({
            "apiVersion": "spokeshave.dev/v1alpha1", "kind": "Disruption", "metadata": {"name": "a"},
            "spec": {
                "method": "Drift", "reason": "Drifted", "decision": "Replace", "decidedAt": "2026-01-01T00:00:00.000000Z",
                "nodes": [{"name": "n", "nodeClaim": "c", "nodeClaimUID": "u", "providerID": "p", "nodePool": "default", "instanceType": "t", "zone": "z",
                           "capacityType": "spot", "price": "0.1", "pods": 3}],
                "replacements": [{"nodeClaim": "d", "nodePool": "default", "nodePoolUID": "x", "price": "0.05", "metadata": {"labels": {"a": "b"}},
                                  "spec": {"requirements": [requirement], "nodeClassRef": class, "expireAfter": "Never"}}],
                "priceBefore": "0.1", "priceAfter": "0.05", "savings": "0.05", "evictions": 3,
                "budgets": [{"nodePool": "default", "allowed": 2, "disrupting": 1, "charged": 1}],
                "nodeSummary": "n", "replacementSummary": "1",
            },
            "status": {"phase": "Replacing", "message": "m", "startedAt": "2026-01-01T00:00:00.000000Z", "deletedAt": "2026-01-01T00:00:00.000000Z",
                       "finishedAt": "2026-01-01T00:00:00.000000Z"},
        }),
    );
    check::<crate::KWOKNodeClass>(
        "KWOKNodeClass",
        &json!({
            "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "a"},
            "spec": {"nodeRegistrationDelay": "30s"}, "status": {"conditions": [condition]},
        }),
    );
    check::<crate::KWOKInstance>(
        "KWOKInstance",
        &json!({
            "apiVersion": "kwok.spokeshave.dev/v1alpha1", "kind": "KWOKInstance", "metadata": {"name": "a"},
            "spec": {"nodeClaimName": "c", "nodeClaimUID": "u", "nodePool": "p", "instanceType": "t", "zone": "z", "capacityType": "spot", "price": "0.1",
                     "nodeName": "n", "imageID": "i", "labels": {"a": "b"}, "taints": [taint], "capacity": {"cpu": "1"}, "allocatable": {"cpu": "1"}, "tags": {"a": "b"},
                     "registrationDelay": "5s"},
            "status": {"phase": "Running", "terminationStarted": "2026-01-01T00:00:00.000000Z", "conditions": [condition]},
        }),
    );
}

#[test]
fn invariant_42_unknown_fields_and_values_survive_a_read_modify_write() {
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"},
        "spec": {
            "template": {"spec": {"requirements": [{"key": "a", "operator": "Like", "values": ["x*"]}],
                                   "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "expireAfter": "720h", "fromTomorrow": {"a": [1]}},
                         "metadata": {"labels": {"a": "b"}, "finalizers": ["later"]}},
            "disruption": {"consolidateAfter": "0s", "consolidationPolicy": "WhenFullMoon", "budgets": [{"nodes": "1", "reasons": ["Bored"], "timeZone": "Europe/Berlin"}]},
            "alsoNew": true,
        },
    });
    let typed: crate::NodePool = serde_json::from_value(pool.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), pool, "invariant 42");
}

#[test]
fn p_002_every_kind_has_columns_and_descriptions() {
    for crd in crd_values() {
        let version = &crd["spec"]["versions"][0];
        assert!(!version["additionalPrinterColumns"].as_array().unwrap().is_empty());
        assert_described(
            &version["schema"]["openAPIV3Schema"],
            crd["spec"]["names"]["kind"].as_str().unwrap(),
        );
    }
    assert_eq!(crds().len(), crd_values().len());
}

fn assert_described(schema: &Value, path: &str) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        assert!(
            name == "metadata"
                || property["description"]
                    .as_str()
                    .is_some_and(|text| text.ends_with('.')),
            "{path}: a sentence for kubectl explain"
        );
        assert_described(property, &path);
        assert_described(&property["items"], &path);
    }
}

#[test]
fn the_yaml_reads_back() {
    let values: Vec<Value> = serde_saphyr::from_multiple(&crds_yaml()).unwrap();
    assert_eq!(values, crd_values());
}
