//! The scale subresource: the number of replicas of an object of any kind, read and written as a Scale.

use serde_json::{Value, json};

use crate::admission_policy::Attributes;
use crate::cause::Cause;
use crate::error::{ApiError, ApiResult};
use crate::fields::managed_fields::{ApplyError, Writer};
use crate::fields::reset::Reset;
use crate::fields::scale_owners;
use crate::schema::decode;
use crate::schema::patch::merge_patch;
use crate::schema::types::TypeSchema;
use crate::store::registry::Resource;
use crate::store::state::{ApiServer, Scope, State};
use crate::verbs::answer::Answer;
use crate::verbs::writing::{check_applier, is_apply, patched};
use crate::verbs::writing_checks::{apply_error, check_version};
use crate::wire::request::Request;

impl ApiServer {
    pub(super) fn scale(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let resource = &scope.resource;
        let applies = request.method == "PATCH" && is_apply(request);
        if applies {
            check_applier(request)?;
        }
        let old = state.find(scope)?;
        let paths = match resource.custom() {
            Some(version) => version.scale().ok_or_else(ApiError::no_such_path)?,
            None => ("spec.replicas".to_owned(), "status.replicas".to_owned(), None),
        };
        let current = scale_of(scope, &old.value, &paths);
        let mut wanted = match request.method.as_str() {
            "GET" => return Ok(Answer::ok(current)),
            "PUT" => request.object("Scale")?,
            _ if applies => merge_patch(&current, &request.object("Scale")?),
            // A Scale has no lists, so a strategic merge is a merge.
            _ if request.content_type == "application/strategic-merge-patch+json" => {
                merge_patch(&current, &request.patch()?)
            }
            _ => patched(request, resource, &current)?,
        };
        if let Some(schema) = TypeSchema::builtin("autoscaling", "v1", "Scale") {
            decode::decode(&schema, "Scale", &mut wanted).map_err(|problem| {
                ApiError::bad_request(format!(
                    "Scale in version \"v1\" cannot be handled as a Scale: {problem}"
                ))
            })?;
        }
        check_version(scope, &old, &wanted)?;
        let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 {
            let problem = "must be greater than or equal to 0";
            let cause = Cause::invalid("spec.replicas", &json!(replicas), problem);
            return Err(ApiError::invalid("autoscaling", "Scale", &scope.name, &[cause]));
        }
        let attributes = Attributes {
            operation: "UPDATE",
            resource,
            subresource: "scale",
            namespace: &scope.namespace,
            name: &scope.name,
            object: Some(&wanted),
            old: Some(&current),
            dry_run: request.is_dry_run()?,
        };
        self.admit(state, &attributes)?;
        let mut value = old.value.clone();
        set_path(&mut value, &paths.0, json!(replicas));
        let is_other = value != old.value;
        if is_other || applies {
            let path: Vec<&str> = paths.0.split('.').collect();
            let writer = Writer {
                manager: request.manager(),
                api_version: &resource.api_version(),
                subresource: "scale",
                now: self.now(),
                reset: Reset::Nothing,
            };
            if is_other && applies && !request.flag("force") {
                let conflicts = scale_owners::conflicts(&old.value, &path, &writer);
                if !conflicts.is_empty() {
                    return Err(apply_error(ApplyError::Conflicts(conflicts)));
                }
            }
            let operation = if applies { "Apply" } else { "Update" };
            scale_owners::scaled(&old.value, &mut value, &path, &writer, operation, is_other);
        }
        let stored = self.store_changed(state, request, scope, "scale", &old, value)?;
        Ok(Answer::ok(scale_of(scope, &stored.value, &paths)))
    }
}

fn at_path<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |here, part| &here[part])
}

fn set_path(value: &mut Value, path: &str, new: Value) {
    let mut here = value;
    for part in path.split('.') {
        if !here.is_object() {
            *here = json!({});
        }
        here = &mut here[part];
    }
    *here = new;
}

fn scale_of(scope: &Scope, value: &Value, paths: &(String, String, Option<String>)) -> Value {
    let metadata = &value["metadata"];
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": scope.name, "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"]},
        "spec": {"replicas": at_path(value, &paths.0).as_i64().unwrap_or(0)},
        "status": {"replicas": at_path(value, &paths.1).as_i64().unwrap_or(0)},
    });
    if !scope.namespace.is_empty() {
        scale["metadata"]["namespace"] = json!(scope.namespace);
    }
    let selector = match (&paths.2, scope.resource.custom()) {
        (Some(path), _) => at_path(value, path).as_str().unwrap_or_default().to_owned(),
        (None, Some(_)) => String::new(),
        (None, None) => selector_text(&scope.resource, &value["spec"]["selector"]),
    };
    if !selector.is_empty() {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}

/// The selector of a built-in kind as queries have it, its terms in the order of their keys.
fn selector_text(resource: &Resource, selector: &Value) -> String {
    let labels = if resource.is("", "replicationcontrollers") {
        selector
    } else {
        &selector["matchLabels"]
    };
    let equalities = labels.as_object().into_iter().flatten().map(|(key, value)| {
        let value = value.as_str().unwrap_or_default();
        (key.as_str(), format!("{key}={value}"))
    });
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    let expressions = expressions.filter_map(|expression| {
        let key = expression["key"].as_str()?;
        let values = expression["values"].as_array().into_iter().flatten();
        let mut values: Vec<&str> = values.filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match expression["operator"].as_str()? {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        };
        Some((key, term))
    });
    let mut terms: Vec<(&str, String)> = equalities.chain(expressions).collect();
    terms.sort();
    let terms: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
    terms.join(",")
}
