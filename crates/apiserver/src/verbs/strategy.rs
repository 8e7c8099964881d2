//! What happens to an object before it is stored, whatever its kind: what the server sets, what a client cannot change, generations. What a kind
//! adds to it is in `kinds`.

use serde_json::{Map, Value, json};

use crate::error::ApiResult;
use crate::fields::reset::Reset;
use crate::kinds::{conversion, rules};
use crate::schema::decode;
use crate::store::registry::Resource;
use crate::store::state::State;

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

/// True if status is written through a subresource.
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
        "resize" => Reset::AllButResources,
        "ephemeralcontainers" => Reset::AllButEphemeralContainers,
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
pub(crate) fn prepare_create(state: &State, resource: &Resource, object: &mut Value) -> ApiResult<()> {
    let rules = rules(&resource.group, &resource.kind);
    if has_status(resource)
        && !rules.keeps_status
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
    (rules.admit)(state, object)?;
    match resource.custom() {
        // A default may be in the status, which was just removed.
        Some(version) => version.default(object),
        // It is in the form that is kept by now, which has other fields, and complete.
        None if conversion::is_converted(resource) => {}
        None => decode::complete(&resource.schema, object),
    }
    Ok(())
}

/// What a client may not change is put back; the generation counts changes of the spec.
///
/// # Errors
/// The state of the cluster forbids what the object says.
pub(crate) fn prepare_update(
    state: &State,
    resource: &Resource,
    subresource: &str,
    old: &Value,
    object: &mut Value,
) -> ApiResult<()> {
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
    let metadata = metadata_map(object);
    // Another UID is refused with the other values that are wrong.
    let uid = text_at(metadata, "uid").is_empty().then_some("uid");
    let others = [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
        "namespace",
    ];
    for field in uid.into_iter().chain(others) {
        match &old["metadata"][field] {
            Value::Null => metadata.remove(field),
            value => metadata.insert(field.to_owned(), value.clone()),
        };
    }
    object["apiVersion"] = old["apiVersion"].clone();
    let rules = rules(&resource.group, &resource.kind);
    if subresource.is_empty() {
        (rules.update)(old, object);
        (rules.admit_update)(state, object)?;
    } else {
        (rules.keep)(subresource, old, object);
    }
    if let Some(generation) = old["metadata"]["generation"].as_i64()
        && counts_as_change(resource, old, object)
    {
        object["metadata"]["generation"] = json!(generation + 1);
    }
    Ok(())
}

/// Subresources through which a part of the spec is written, by rules of its own.
pub(crate) fn is_part(subresource: &str) -> bool {
    matches!(subresource, "resize" | "ephemeralcontainers")
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
    let annotations = rules(&resource.group, &resource.kind).counts_annotations
        && old["metadata"]["annotations"] != new["metadata"]["annotations"];
    annotations
        || before
            .iter()
            .any(|(key, value)| counts(key) && after.get(key) != Some(value))
        || after.keys().any(|key| counts(key) && !before.contains_key(key))
}
