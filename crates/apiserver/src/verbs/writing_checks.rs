//! Reasons to reject a write, with a real server's messages: another object than the path names, a namespace or a definition on its way
//! out, another version than was seen, values that the rules of the kind refuse.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::error::{ApiError, ApiResult};
use crate::fields::managed_fields::ApplyError;
use crate::fields::packed;
use crate::kinds::rules;
use crate::metadata;
use crate::store::objects::Stored;
use crate::store::registry::Resource;
use crate::store::state::{Scope, State};
use crate::verbs::body::unfit;
use crate::verbs::strategy::{is_part, metadata_map, text_at};
use crate::wire::request::Request;

pub(crate) fn apply_error(error: ApplyError) -> ApiError {
    match error {
        ApplyError::Invalid(message) => ApiError::bad_request(message),
        ApplyError::Untyped(message) => ApiError::new(500, "", message),
        ApplyError::Conflicts(conflicts) => {
            let message = if let [one] = &conflicts[..] {
                format!(
                    "Apply failed with 1 conflict: conflict with {}: {}",
                    one.manager, one.field
                )
            } else {
                let mut by_manager: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
                for conflict in &conflicts {
                    by_manager
                        .entry(&conflict.manager)
                        .or_default()
                        .push(&conflict.field);
                }
                let parts: Vec<String> = by_manager
                    .iter()
                    .map(|(manager, fields)| format!("conflicts with {manager}:\n- {}", fields.join("\n- ")))
                    .collect();
                format!(
                    "Apply failed with {} conflicts: {}",
                    conflicts.len(),
                    parts.join("\n")
                )
            };
            let mut error = ApiError::new(409, "Conflict", message);
            error.details = json!({"causes": conflicts.iter().map(|conflict| json!({
                "reason": "FieldManagerConflict", "message": format!("conflict with {}", conflict.manager), "field": conflict.field,
            })).collect::<Vec<_>>()});
            error
        }
    }
}

/// What is wrong with an object that is written through a resource, or through one of its subresources.
pub(crate) fn check_values(
    resource: &Resource,
    subresource: &str,
    new: &Value,
    old: Option<&Value>,
    name: &str,
) -> ApiResult<()> {
    let mut causes = Vec::new();
    metadata::check(&resource.kind, &resource.group, new, &mut causes);
    if let Some(old) = old {
        metadata::check_update(new, old, &mut causes);
    }
    let rules = rules(&resource.group, &resource.kind);
    match (resource.custom(), old) {
        (Some(version), _) => causes.extend(version.validate(new, old)),
        // All else is what it was.
        _ if subresource == "status" => {}
        (None, Some(old)) if is_part(subresource) => {
            (rules.check_part)(subresource, new, old, &mut causes);
        }
        (None, _) => (rules.check)(new, old, &mut causes),
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(ApiError::invalid(&resource.group, &resource.kind, name, &causes))
    }
}

/// Most bytes of an object, as etcd has it.
const MOST_STORED_BYTES: usize = 1_572_864;
/// A write of fewer bytes to a small object makes none that is too large: what the server adds is less than this many times as much.
const LARGEST_GROWTH: usize = 4;

/// An object that etcd would refuse is refused.
pub(crate) fn check_stored_size(
    request: &Request,
    old: Option<&Arc<Stored>>,
    object: &Value,
) -> ApiResult<()> {
    let old_bytes = old.map_or(0, |old| old.json().len());
    if (request.body.len() + old_bytes) * LARGEST_GROWTH < MOST_STORED_BYTES {
        return Ok(());
    }
    let mut bytes = Vec::new();
    packed::write_json(&mut bytes, object);
    if bytes.len() <= MOST_STORED_BYTES {
        return Ok(());
    }
    Err(ApiError::new(500, "", "etcdserver: request is too large"))
}

/// Kind, apiVersion, namespace and name of a body must be those of the path.
pub(crate) fn check_identity(object: &mut Value, scope: &Scope) -> ApiResult<()> {
    let resource = &scope.resource;
    if !object.is_object() {
        return Err(ApiError::bad_request(format!(
            "the result of the patch is no {}: it must be an object",
            resource.kind
        )));
    }
    if !matches!(object["metadata"], Value::Null | Value::Object(_)) {
        return Err(unfit(
            resource,
            &format!(
                "json: cannot unmarshal the metadata into Go struct field {}.metadata of type v1.ObjectMeta",
                resource.kind
            ),
        ));
    }
    if resource.custom().is_some() && object["kind"].as_str().unwrap_or_default().is_empty() {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{object}'",
            resource.kind
        )));
    }
    let api_version = resource.api_version();
    for (key, own) in [
        ("kind", resource.kind.as_str()),
        ("apiVersion", api_version.as_str()),
    ] {
        if object[key].as_str().unwrap_or_default().is_empty() {
            object[key] = json!(own);
        }
    }
    if object["kind"] != resource.kind || object["apiVersion"] != api_version {
        return Err(wrong_kind(object, resource));
    }
    let metadata = metadata_map(object);
    let (name, namespace) = (text_at(metadata, "name"), text_at(metadata, "namespace"));
    if !scope.name.is_empty() {
        if name.is_empty() {
            metadata.insert("name".to_owned(), json!(scope.name));
        } else if name != scope.name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                scope.name
            )));
        }
    }
    if !resource.namespaced {
        metadata.remove("namespace");
    } else if !namespace.is_empty() && namespace != scope.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    } else {
        metadata.insert("namespace".to_owned(), json!(scope.namespace));
    }
    Ok(())
}

fn wrong_kind(object: &Value, resource: &Resource) -> ApiError {
    let (kind, api_version) = (
        object["kind"].as_str().unwrap_or_default(),
        object["apiVersion"].as_str().unwrap_or_default(),
    );
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let problem = if crate::schema::types::TypeSchema::builtin(group, version, kind).is_some() {
        let own = if resource.group.is_empty() {
            "core"
        } else {
            resource.group.split('.').next().unwrap_or_default()
        };
        format!(
            "converting ({version}.{kind}) to ({own}.{}): unknown conversion",
            resource.kind
        )
    } else {
        format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
        )
    };
    ApiError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {}: {problem}",
        resource.kind
    ))
}

pub(crate) fn namespace_accepts(state: &State, scope: &Scope, object: &Value) -> ApiResult<()> {
    let namespaces = (String::new(), "namespaces".to_owned());
    let namespace = state
        .stored(&namespaces, &(String::new(), scope.namespace.clone()))
        .ok_or_else(|| ApiError::not_found("", "namespaces", &scope.namespace))?;
    if namespace.value["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let problem = format!(
        "unable to create new content in namespace {} because it is being terminated",
        scope.namespace
    );
    let mut error = ApiError::forbidden(&scope.resource.group, &scope.resource.plural, name, &problem);
    error.details["causes"] = json!([{
        "reason": "NamespaceTerminating", "message": format!("namespace {} is being terminated", scope.namespace), "field": "metadata.namespace"}]);
    Err(error)
}

/// Nothing new is made of a kind whose definition is on its way out.
pub(crate) fn definition_accepts(state: &State, resource: &Resource) -> ApiResult<()> {
    if resource.custom().is_none() {
        return Ok(());
    }
    let storage = (
        "apiextensions.k8s.io".to_owned(),
        "customresourcedefinitions".to_owned(),
    );
    let key = (String::new(), format!("{}.{}", resource.plural, resource.group));
    let terminating = state
        .stored(&storage, &key)
        .is_some_and(|definition| !definition.value["metadata"]["deletionTimestamp"].is_null());
    if !terminating {
        return Ok(());
    }
    let mut error = ApiError::new(
        405,
        "MethodNotAllowed",
        "create not allowed while custom resource definition is terminating",
    );
    error.details = json!({"group": resource.group, "kind": resource.plural});
    Err(error)
}

/// A replacement is for the object that it names. Of a patch the UID is no precondition: what it makes of it is checked with the other values.
pub(crate) fn check_uid(scope: &Scope, old: &Stored, object: &Value) -> ApiResult<()> {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    if !uid.is_empty() && uid != old.uid() {
        let resource = &scope.resource;
        let place = if resource.custom().is_some() {
            format!("{}/{}", resource.group, resource.plural)
        } else {
            resource.plural.clone()
        };
        let key = if scope.namespace.is_empty() {
            scope.name.clone()
        } else {
            format!("{}/{}", scope.namespace, scope.name)
        };
        return Err(scope.conflict(&format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{place}/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            old.uid()
        )));
    }
    Ok(())
}

/// A write that names a version is for that version.
pub(crate) fn check_version(scope: &Scope, old: &Stored, object: &Value) -> ApiResult<()> {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !version.is_empty() && old.value["metadata"]["resourceVersion"] != version {
        return Err(scope.conflict(
            "the object has been modified; please apply your changes to the latest version and try again",
        ));
    }
    Ok(())
}
