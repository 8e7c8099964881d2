//! What a kind's own rules do to an object before it is stored: what the server sets, what a client cannot change, and what admission adds.

use serde_json::{Map, Value, json};

use crate::conversion;
use crate::decode;
use crate::defaults;
use crate::error::{ApiError, ApiResult};
use crate::managed_fields::Reset;
use crate::registry::Resource;
use crate::server::State;

/// Kinds whose objects have a generation.
pub(crate) fn has_generation(resource: &Resource) -> bool {
    if resource.custom().is_some() {
        return true;
    }
    match resource.group.as_str() {
        "" => matches!(
            resource.kind.as_str(),
            "Pod" | "PodTemplate" | "ReplicationController"
        ),
        "autoscaling"
        | "coordination.k8s.io"
        | "events.k8s.io"
        | "rbac.authorization.k8s.io"
        | "storage.k8s.io" => false,
        "node.k8s.io" | "discovery.k8s.io" => resource.kind == "EndpointSlice",
        _ => true,
    }
}

/// True when status is written through a subresource of its own.
pub(crate) fn has_status(resource: &Resource) -> bool {
    resource.custom().map_or_else(
        || resource.has_subresource("status"),
        |version| version.has_status(),
    )
}

/// Fields that a write through a resource or subresource leaves alone.
pub(crate) fn reset_of(resource: &Resource, subresource: &str) -> Reset {
    match subresource {
        "status"
            if resource.custom().is_some()
                || matches!(resource.group.as_str(), "resource.k8s.io" | "storage.k8s.io") =>
        {
            Reset::AllButStatus
        }
        "status" => Reset::Spec,
        "" if has_status(resource) => Reset::Status,
        _ => Reset::Nothing,
    }
}

pub(crate) fn metadata_map(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    match &mut object["metadata"] {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// A text of a map, empty where there is none.
pub(crate) fn text_at(map: &Map<String, Value>, key: &str) -> String {
    map.get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Status and admission of a new object.
pub(crate) fn prepare_create(state: &mut State, resource: &Resource, object: &mut Value) -> ApiResult<()> {
    let keeps_status = matches!((resource.group.as_str(), resource.kind.as_str()), ("", "Node"));
    if has_status(resource)
        && !keeps_status
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => admit_pod(state, object)?,
        ("", "Namespace") => {
            object["status"] = json!({"phase": "Active"});
            object["spec"]["finalizers"] = json!(["kubernetes"]);
            let name = object["metadata"]["name"].clone();
            let labels = metadata_map(object).entry("labels").or_insert_with(|| json!({}));
            labels["kubernetes.io/metadata.name"] = name;
        }
        ("", "Node") => not_ready_taint(object),
        ("", "Service") => cluster_address(state, object),
        ("", "PersistentVolumeClaim" | "PersistentVolume") => object["status"] = json!({"phase": "Pending"}),
        ("batch", "Job") => defaults::job_identity(object),
        _ => {}
    }
    match resource.custom() {
        // A default may stand in the status, which has just gone.
        Some(version) => version.default(object),
        // It is in the form that is kept by now, which has other fields, and complete.
        None if conversion::is_converted(resource) => {}
        None => decode::complete(&resource.schema, object),
    }
    Ok(())
}

/// A node that does not say otherwise is not ready yet, and nothing is to run on it.
fn not_ready_taint(object: &mut Value) {
    let taints = &mut object["spec"]["taints"];
    if !taints.is_array() {
        *taints = json!([]);
    }
    if let Some(list) = taints.as_array_mut() {
        let known = list
            .iter()
            .any(|taint| taint["key"] == "node.kubernetes.io/not-ready" && taint["effect"] == "NoSchedule");
        if !known {
            list.push(json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}));
        }
    }
}

/// A Service gets the first free address of the service network unless it names one.
fn cluster_address(state: &State, object: &mut Value) {
    let spec = &object["spec"];
    if spec["clusterIP"].is_string() || spec["type"] == "ExternalName" {
        return;
    }
    let taken: std::collections::BTreeSet<&str> = state
        .collections
        .get(&(String::new(), "services".to_owned()))
        .into_iter()
        .flat_map(|services| services.objects.values())
        .filter_map(|service| service.value["spec"]["clusterIP"].as_str())
        .collect();
    let free = (10_u32..65_000)
        .map(|number| format!("10.96.{}.{}", number >> 8, number & 255))
        .find(|address| !taken.contains(address.as_str()));
    if let Some(address) = free {
        object["spec"]["clusterIPs"] = json!([address]);
        object["spec"]["clusterIP"] = json!(address);
    }
}

fn admit_pod(state: &State, object: &mut Value) -> ApiResult<()> {
    let classes = state
        .collections
        .get(&("scheduling.k8s.io".to_owned(), "priorityclasses".to_owned()));
    let find = |name: &str| {
        let class = classes?.objects.get(&(String::new(), name.to_owned()))?;
        let policy = class.value["preemptionPolicy"]
            .as_str()
            .unwrap_or("PreemptLowerPriority")
            .to_owned();
        Some((class.value["value"].as_i64().unwrap_or(0), policy))
    };
    let default = classes
        .into_iter()
        .flat_map(|classes| classes.objects.iter())
        .find(|(_, class)| class.value["globalDefault"] == true)
        .map(|((_, name), class)| (name.clone(), class.value["value"].as_i64().unwrap_or(0)));
    defaults::admit_pod(object, find, default).map_err(|problem| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let mut error = ApiError::new(403, "Forbidden", format!("pods {name:?} is forbidden: {problem}"));
        error.details = json!({"name": name, "kind": "pods"});
        error
    })
}

/// What a client may not change is put back; the generation counts changes of the spec.
pub(crate) fn prepare_update(resource: &Resource, subresource: &str, old: &Value, object: &mut Value) {
    if subresource == "status" {
        keep_all_but_status(resource, old, object);
    } else if has_status(resource)
        && let Some(map) = object.as_object_mut()
    {
        match old.get("status") {
            Some(status) => map.insert("status".to_owned(), status.clone()),
            None => map.remove("status"),
        };
    }
    if resource.is("", "pods") && subresource.is_empty() {
        defaults::tolerate_sick_nodes(&mut object["spec"]);
    }
    let metadata = metadata_map(object);
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
        "namespace",
    ] {
        match &old["metadata"][field] {
            Value::Null => metadata.remove(field),
            value => metadata.insert(field.to_owned(), value.clone()),
        };
    }
    object["apiVersion"] = old["apiVersion"].clone();
    if resource.is("apps", "daemonsets") && subresource.is_empty() {
        let changed = object["spec"]["template"] != old["spec"]["template"];
        let annotation = "deprecated.daemonset.template.generation";
        let number = old["metadata"]["annotations"][annotation]
            .as_str()
            .and_then(|text| text.parse::<i64>().ok())
            .unwrap_or(0);
        object["metadata"]["annotations"][annotation] = json!((number + i64::from(changed)).to_string());
    }
    if let Some(generation) = old["metadata"]["generation"].as_i64()
        && counts_as_change(resource, old, object)
    {
        object["metadata"]["generation"] = json!(generation + 1);
    }
}

fn keep_all_but_status(resource: &Resource, old: &Value, object: &mut Value) {
    let (Some(old), Some(new)) = (old.as_object(), object.as_object_mut()) else {
        return;
    };
    let status = new.remove("status");
    let mut metadata = new.remove("metadata").unwrap_or_default();
    if resource.custom().is_some() {
        let managed = metadata
            .get_mut("managedFields")
            .map(Value::take)
            .filter(|managed| !managed.is_null());
        metadata = old.get("metadata").cloned().unwrap_or_default();
        if let Some(map) = metadata.as_object_mut() {
            match managed {
                Some(managed) => map.insert("managedFields".to_owned(), managed),
                None => map.remove("managedFields"),
            };
        }
    }
    let mut kept: Map<String, Value> = old
        .iter()
        .filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    kept.insert("metadata".to_owned(), metadata);
    if let Some(status) = status {
        kept.insert("status".to_owned(), status);
    }
    *new = kept;
}

/// True when the desired state has changed.
fn counts_as_change(resource: &Resource, old: &Value, new: &Value) -> bool {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        return true;
    };
    let status_apart = has_status(resource);
    let counts =
        |key: &str| !(matches!(key, "metadata" | "apiVersion" | "kind") || status_apart && key == "status");
    let annotations = resource.is("apps", "deployments")
        && old["metadata"]["annotations"] != new["metadata"]["annotations"];
    annotations
        || before
            .iter()
            .any(|(key, value)| counts(key) && after.get(key) != Some(value))
        || after.keys().any(|key| counts(key) && !before.contains_key(key))
}
