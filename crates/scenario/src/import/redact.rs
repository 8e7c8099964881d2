//! The recorded part of an object: what a simulation reads, without secrets.
//!
//! Owns lists of what is kept; everything else is omitted, including fields that Kubernetes adds in the future.

use serde_json::{Map, Value};
use spokeshave_model::trim::READ_ANNOTATIONS;

/// Fields of a pod specification by which it is scheduled, evicted and stopped.
const POD: [&str; 18] = [
    "affinity",
    "containers",
    "hostNetwork",
    "initContainers",
    "nodeName",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "resources",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
];
const META: [&str; 8] = [
    "annotations",
    "creationTimestamp",
    "deletionTimestamp",
    "generateName",
    "labels",
    "name",
    "namespace",
    "ownerReferences",
];
/// Annotations that decisions read begin with one of these, but for those that are named in [`READ_ANNOTATIONS`].
const ANNOTATIONS: [&str; 4] = [
    "karpenter.sh/",
    "karpenter.kwok.sh/",
    "spokeshave.dev/",
    "cluster-autoscaler.kubernetes.io/",
];
const WORKLOAD: [&str; 15] = [
    "replicas",
    "parallelism",
    "completions",
    "suspend",
    "schedule",
    "timeZone",
    "concurrencyPolicy",
    "startingDeadlineSeconds",
    "selector",
    "template",
    "jobTemplate",
    "volumeClaimTemplates",
    "maxUnavailable",
    "minAvailable",
    "updateStrategy",
];
/// Kinds that hold settings of the autoscaler only, whose specification is kept whole.
const WHOLE: [&str; 6] = [
    "NodePool",
    "NodeOverlay",
    "DisruptionPolicy",
    "KWOKNodeClass",
    "StorageClass",
    "CapacityBuffer",
];

/// Whether a decision reads an annotation.
pub(crate) fn is_read(annotation: &str) -> bool {
    let mut prefixes = ANNOTATIONS.iter();
    READ_ANNOTATIONS.contains(&annotation) || prefixes.any(|prefix| annotation.starts_with(prefix))
}

/// The object without what a simulation does not read. None for a kind that none reads.
#[must_use]
pub fn redacted(object: &Value) -> Option<Value> {
    let kind = object["kind"].as_str().unwrap_or_default();
    if kind == "EC2NodeClass" {
        return Some(ec2_node_class(object));
    }
    let mut kept = Map::new();
    for key in ["apiVersion", "kind"] {
        kept.insert(key.to_owned(), object[key].clone());
    }
    kept.insert("metadata".to_owned(), metadata(&object["metadata"]));
    match kind {
        "Pod" => {
            kept.insert("spec".to_owned(), pod(&object["spec"]));
            kept.insert("status".to_owned(), status(&object["status"]));
        }
        "Deployment"
        | "ReplicaSet"
        | "StatefulSet"
        | "DaemonSet"
        | "Job"
        | "CronJob"
        | "PodDisruptionBudget" => {
            kept.insert("spec".to_owned(), workload(&object["spec"]));
            kept.insert("status".to_owned(), status(&object["status"]));
        }
        "Node" => {
            let spec = only(&object["spec"], &["providerID", "taints", "unschedulable"]);
            kept.insert("spec".to_owned(), Value::Object(spec));
            kept.insert("status".to_owned(), status_of_node(&object["status"]));
        }
        "NodeClaim" => {
            kept.insert("spec".to_owned(), object["spec"].clone());
            kept.insert("status".to_owned(), status_of_node(&object["status"]));
        }
        kind if WHOLE.contains(&kind) => {
            for key in ["spec", "provisioner", "volumeBindingMode", "allowedTopologies"] {
                if let Some(value) = object.get(key) {
                    kept.insert(key.to_owned(), value.clone());
                }
            }
        }
        _ => return None,
    }
    Some(Value::Object(kept))
}

/// What a plan reads of an EC2NodeClass: what instances run at boot and what they are tagged with stays where it is.
fn ec2_node_class(item: &Value) -> Value {
    let mut class = serde_json::json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": item["metadata"]["name"]},
        "spec": item["spec"],
        "status": {},
    });
    if let Some(spec) = class["spec"].as_object_mut() {
        spec.retain(|key, _| !matches!(key.as_str(), "userData" | "tags" | "context"));
    }
    for key in ["subnets", "conditions"] {
        if let Some(value) = item["status"].get(key) {
            class["status"][key] = value.clone();
        }
    }
    class
}

fn only(value: &Value, keys: &[&str]) -> Map<String, Value> {
    let entries = value.as_object().into_iter().flatten();
    entries
        .filter(|(key, value)| keys.contains(&key.as_str()) && !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn metadata(value: &Value) -> Value {
    let mut kept = only(value, &META);
    if let Some(Value::Object(annotations)) = kept.get_mut("annotations") {
        annotations.retain(|key, _| is_read(key));
    }
    kept.retain(|key, value| key != "annotations" || value.as_object().is_some_and(|map| !map.is_empty()));
    Value::Object(kept)
}

fn workload(spec: &Value) -> Value {
    let mut kept = only(spec, &WORKLOAD);
    if let Some(template) = kept.get_mut("template") {
        *template = self::template(template);
    }
    if let Some(job) = kept.get_mut("jobTemplate") {
        *job = Value::Object(Map::from_iter([("spec".to_owned(), workload(&job["spec"]))]));
    }
    if let Some(Value::Array(claims)) = kept.get_mut("volumeClaimTemplates") {
        for claim in claims {
            *claim = Value::Object(Map::from_iter([
                ("metadata".to_owned(), metadata(&claim["metadata"])),
                (
                    "spec".to_owned(),
                    Value::Object(only(
                        &claim["spec"],
                        &["accessModes", "resources", "storageClassName"],
                    )),
                ),
            ]));
        }
    }
    Value::Object(kept)
}

fn template(template: &Value) -> Value {
    Value::Object(Map::from_iter([
        ("metadata".to_owned(), metadata(&template["metadata"])),
        ("spec".to_owned(), pod(&template["spec"])),
    ]))
}

fn pod(spec: &Value) -> Value {
    let mut kept = only(spec, &POD);
    for list in ["containers", "initContainers"] {
        if let Some(Value::Array(containers)) = kept.get_mut(list) {
            for container in containers {
                let mut own = only(container, &["name", "resources", "restartPolicy", "ports"]);
                if let Some(Value::Array(ports)) = own.get_mut("ports") {
                    ports.retain(|port| port.get("hostPort").is_some());
                }
                own.retain(|key, value| {
                    key != "ports" || value.as_array().is_some_and(|ports| !ports.is_empty())
                });
                *container = Value::Object(own);
            }
        }
    }
    // Of volumes only those with claims bind a pod to a place.
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let claimed: Vec<Value> = volumes
        .filter(|volume| volume.get("persistentVolumeClaim").is_some())
        .map(|volume| Value::Object(only(volume, &["name", "persistentVolumeClaim"])))
        .collect();
    if !claimed.is_empty() {
        kept.insert("volumes".to_owned(), Value::Array(claimed));
    }
    Value::Object(kept)
}

fn status(status: &Value) -> Value {
    let mut kept = only(
        status,
        &["phase", "startTime", "completionTime", "observedGeneration"],
    );
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let ends: Vec<Value> = conditions
        .filter(|one| matches!(one["type"].as_str(), Some("Failed" | "Complete")))
        .map(|one| Value::Object(only(one, &["type", "status", "lastTransitionTime"])))
        .collect();
    if !ends.is_empty() {
        kept.insert("conditions".to_owned(), Value::Array(ends));
    }
    let statuses = status["containerStatuses"].as_array().into_iter().flatten();
    let ended: Vec<Value> = statuses
        .filter_map(|status| status.pointer("/state/terminated/finishedAt"))
        .map(|finished| serde_json::json!({"state": {"terminated": {"finishedAt": finished}}}))
        .collect();
    if !ended.is_empty() {
        kept.insert("containerStatuses".to_owned(), Value::Array(ended));
    }
    Value::Object(kept)
}

/// What a Node or a NodeClaim offers, which instance it is, and how far it is.
fn status_of_node(status: &Value) -> Value {
    let mut kept = only(
        status,
        &[
            "allocatable",
            "capacity",
            "lastPodEventTime",
            "nodeName",
            "providerID",
        ],
    );
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions = conditions.map(|one| {
        let known = [
            "type",
            "status",
            "reason",
            "lastHeartbeatTime",
            "lastTransitionTime",
        ];
        Value::Object(only(one, &known))
    });
    kept.insert("conditions".to_owned(), conditions.collect());
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// D-050: it makes the cost of an eviction, and belongs to Kubernetes.
    #[test]
    fn the_cost_of_deleting_a_pod_is_kept() {
        let annotations = json!({"controller.kubernetes.io/pod-deletion-cost": "-100", "controller.kubernetes.io/other": "1"});
        let kept = json!({"controller.kubernetes.io/pod-deletion-cost": "-100"});
        let meta = json!({"name": "web", "annotations": annotations});
        let pod = redacted(&json!({"kind": "Pod", "metadata": meta, "spec": {}})).expect("a pod");
        assert_eq!(pod["metadata"]["annotations"], kept);
        let template = json!({"metadata": meta, "spec": {}});
        let owner = json!({"kind": "Deployment", "metadata": meta, "spec": {"template": template}});
        let owner = redacted(&owner).expect("a Deployment");
        assert_eq!(owner["spec"]["template"]["metadata"]["annotations"], kept);
    }

    #[test]
    fn what_a_cron_job_does_while_its_last_run_is_not_over_is_kept() {
        let spec =
            json!({"schedule": "*/5 * * * *", "concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 100});
        let object = json!({"kind": "CronJob", "metadata": {"name": "tick"}, "spec": spec});
        assert_eq!(redacted(&object).expect("a CronJob")["spec"], spec);
    }

    #[test]
    fn of_an_ec2_node_class_the_boot_script_and_tags_are_left_out() {
        let item = json!({
            "metadata": {"name": "default", "annotations": {"note": "secret"}},
            "spec": {"amiFamily": "AL2023", "userData": "secret", "tags": {"team": "secret"}, "kubelet": {"maxPods": 58}},
            "status": {"subnets": [{"id": "subnet-1", "zone": "eu-central-1a"}], "amis": []},
        });
        assert_eq!(
            ec2_node_class(&item),
            json!({
                "apiVersion": "karpenter.k8s.aws/v1",
                "kind": "EC2NodeClass",
                "metadata": {"name": "default"},
                "spec": {"amiFamily": "AL2023", "kubelet": {"maxPods": 58}},
                "status": {"subnets": [{"id": "subnet-1", "zone": "eu-central-1a"}]},
            })
        );
    }

    #[test]
    fn of_nodes_and_node_claims_what_a_simulation_begins_with_is_kept() {
        let meta = json!({"name": "one", "labels": {"a": "b"}, "creationTimestamp": "2026-03-02T00:00:00Z"});
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-02T00:01:00Z"});
        let mut told = ready.clone();
        told["message"] = json!("secret");
        let node = json!({"kind": "Node", "metadata": meta, "spec": {"providerID": "cloud://1", "podCIDR": "secret"},
            "status": {"allocatable": {"cpu": "4"}, "conditions": [told], "images": ["secret"], "addresses": ["secret"]}});
        let kept = redacted(&node).expect("a Node");
        assert_eq!(kept["metadata"], meta);
        assert_eq!(kept["spec"], json!({"providerID": "cloud://1"}));
        assert_eq!(
            kept["status"],
            json!({"allocatable": {"cpu": "4"}, "conditions": [ready]})
        );
        let spec = json!({"expireAfter": "720h", "requirements": []});
        let claim = json!({"kind": "NodeClaim", "metadata": meta, "spec": spec,
            "status": {"providerID": "cloud://1", "lastPodEventTime": "2026-03-02T00:02:00Z", "imageID": "secret", "conditions": [told]}});
        let kept = redacted(&claim).expect("a NodeClaim");
        assert_eq!(kept["spec"], spec);
        let status = json!({"providerID": "cloud://1", "lastPodEventTime": "2026-03-02T00:02:00Z", "conditions": [ready]});
        assert_eq!(kept["status"], status);
    }

    #[test]
    fn secrets_stay_where_they_are() {
        let secret = "hunter2";
        let spec = json!({
            "nodeName": "n1", "serviceAccountName": secret, "imagePullSecrets": [{"name": secret}], "nodeSelector": {"disk": "ssd"},
            "containers": [{"name": "main", "image": secret, "args": [secret], "command": [secret], "env": [{"name": "A", "value": secret}],
                "resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 1}, {"hostPort": 2, "containerPort": 2}],
                "volumeMounts": [{"name": secret}], "livenessProbe": {"exec": {"command": [secret]}}}],
            "volumes": [{"name": "token", "secret": {"secretName": secret}}, {"name": "data", "persistentVolumeClaim": {"claimName": "d"}}],
        });
        let meta = json!({"name": "web", "namespace": "shop", "labels": {"app": "web"}, "managedFields": [secret],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": secret, "karpenter.sh/do-not-disrupt": "true"}});
        let template = json!({"metadata": meta, "spec": spec});
        for (object, needed) in [
            (
                json!({"kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Running", "message": secret, "podIP": secret}}),
                "/spec/containers/0/resources/requests/cpu",
            ),
            (
                json!({"kind": "Deployment", "metadata": meta, "spec": {"replicas": 3, "template": template}}),
                "/spec/template/spec/volumes/0/persistentVolumeClaim",
            ),
            (
                json!({"kind": "CronJob", "metadata": meta, "spec": {"schedule": "@daily", "jobTemplate": {"metadata": {"annotations": {"a": secret}}, "spec": {"template": template}}}}),
                "/spec/jobTemplate/spec/template/spec/nodeSelector/disk",
            ),
        ] {
            let kept = redacted(&object).expect("a kind that is read");
            let text = kept.to_string();
            assert!(!text.contains(secret), "{text}");
            assert!(kept.pointer(needed).is_some(), "{needed} in {text}");
            assert_eq!(
                kept["metadata"]["annotations"],
                json!({"karpenter.sh/do-not-disrupt": "true"})
            );
        }
        assert_eq!(redacted(&json!({"kind": "Secret", "data": {"a": secret}})), None);
        let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": meta, "spec": {"limits": {"cpu": "4"}}, "status": {}});
        assert_eq!(redacted(&pool).expect("kept")["spec"]["limits"]["cpu"], "4");
    }
}
