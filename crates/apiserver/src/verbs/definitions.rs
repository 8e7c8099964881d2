//! The life of a CustomResourceDefinition: it is compiled before it is stored, served from then on, and its objects are deleted with it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::crd::{self, CompiledCrd};
use crate::error::{ApiError, ApiResult};
use crate::store::registry::Resource;
use crate::store::state::State;
use crate::verbs::deleting::add_finalizer;
use crate::verbs::writing::seconds;

/// Holds a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// True for the resource of the definitions themselves.
pub(crate) fn is_definition(resource: &Resource) -> bool {
    resource.is("apiextensions.k8s.io", "customresourcedefinitions")
}

/// Group and plural name that a definition defines: where its objects are stored.
pub(crate) fn storage_of(definition: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (
        text(&definition["spec"]["group"]),
        text(&definition["spec"]["names"]["plural"]),
    )
}

/// Compiles a definition before it is stored, in the place of an old one if there is one.
///
/// # Errors
/// What is wrong with it, as a 422.
pub(crate) fn compile(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
) -> ApiResult<Option<CompiledCrd>> {
    if !is_definition(resource) {
        return Ok(None);
    }
    let changes = old.map_or_else(Vec::new, |old| crd::check_update(old, object));
    let mut causes = match CompiledCrd::compile(object) {
        Ok(compiled) if changes.is_empty() => return Ok(Some(compiled)),
        Ok(_) => Vec::new(),
        Err(causes) => causes,
    };
    causes.extend(changes);
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(ApiError::invalid(&resource.group, &resource.kind, name, &causes))
}

/// Serves a definition and notes in its status that it does.
pub(crate) fn install(state: &mut State, object: &mut Value, compiled: CompiledCrd, now: jiff::Timestamp) {
    let names = object["spec"]["names"].clone();
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "lastTransitionTime": seconds(now), "reason": reason, "message": message});
    let status = &mut object["status"];
    if status["conditions"].as_array().is_none_or(Vec::is_empty) {
        status["conditions"] = json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition(
                "Established",
                "InitialNamesAccepted",
                "the initial names have been accepted"
            )
        ]);
    }
    status["acceptedNames"] = names;
    let mut stored: Vec<Value> = status["storedVersions"].as_array().cloned().unwrap_or_default();
    for version in object["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
    {
        if !stored.contains(&version["name"]) {
            stored.push(version["name"].clone());
        }
    }
    object["status"]["storedVersions"] = json!(stored);
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    add_finalizer(object, CLEANUP);
    let compiled = Arc::new(compiled);
    let storage = storage_of(object);
    let before = state.compiled.insert(storage.clone(), compiled.clone());
    if before.is_some_and(|before| !compiled.has_schemas_of(&before)) {
        read_anew(state, &storage, &compiled);
    }
    state.registry.install(object, &compiled);
}

/// Gives the objects of a definition the form in which a real server reads them from now on: what the definition no longer has is gone, and its
/// new defaults are there. It is no change of theirs: what was written stays, and the next definition is read from that.
fn read_anew(state: &mut State, storage: &(String, String), compiled: &CompiledCrd) {
    let Some(collection) = state.collections.get_mut(storage) else {
        return;
    };
    for stored in collection.objects.values_mut() {
        let api_version = stored.value["apiVersion"].as_str().unwrap_or_default();
        let Some(version) = compiled.of_stored(api_version) else {
            continue;
        };
        let read = stored.read_as(|value| {
            version.prune(value);
            version.default(value);
        });
        if let Some(read) = read {
            *stored = read;
        }
    }
}
