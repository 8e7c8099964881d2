//! Writes: create, replace and the four kinds of patch, on main resources and their status.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::crd::{Cause, CompiledCrd};
use crate::error::{ApiError, ApiResult};
use crate::managed_fields::{self, ApplyError, Writer};
use crate::registry::Resource;
use crate::request::Request;
use crate::response::Answer;
use crate::server::{ApiServer, Scope, State};
use crate::store::Stored;
use crate::{defaults, events, patch, reading, schema, table, validate};

/// What to do with fields that the schema does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

fn field_validation(request: &Request) -> ApiResult<FieldValidation> {
    match request.parameter("fieldValidation") {
        "" | "Warn" => Ok(FieldValidation::Warn),
        "Ignore" => Ok(FieldValidation::Ignore),
        "Strict" => Ok(FieldValidation::Strict),
        other => Err(ApiError::bad_options(
            request.options_kind(),
            "FieldValueNotSupported",
            "fieldValidation",
            &format!(
                "Unsupported value: {other:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
            ),
        )),
    }
}

/// Empty maps and lists of metadata are not kept.
fn drop_empty_metadata(object: &mut Value) {
    let metadata = metadata_map(object);
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = match metadata.get(field) {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Null) => true,
            _ => false,
        };
        if empty {
            metadata.remove(field);
        }
    }
}

/// Kinds whose objects have no generation.
fn has_generation(resource: &Resource) -> bool {
    resource.custom().is_some()
        || !matches!(
            (resource.group.as_str(), resource.kind.as_str()),
            ("", kind) if !matches!(kind, "Pod" | "ReplicationController")
        ) && !matches!(
            resource.group.as_str(),
            "coordination.k8s.io" | "events.k8s.io" | "rbac.authorization.k8s.io" | "storage.k8s.io"
        )
}

fn has_status(resource: &Resource) -> bool {
    resource.custom().map_or_else(
        || resource.has_subresource("status"),
        |version| version.has_status(),
    )
}

fn metadata_map(object: &mut Value) -> &mut serde_json::Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    match &mut object["metadata"] {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

impl ApiServer {
    pub(crate) fn create(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let object = self.decode(request, scope)?;
        let mut warnings = Vec::new();
        let stored = self.create_object(state, request, scope, object, &mut warnings)?;
        Ok(self.shown(request, &scope.resource, &stored, 201, warnings))
    }

    fn shown(
        &self,
        request: &Request,
        resource: &Resource,
        stored: &Stored,
        code: u16,
        warnings: Vec<String>,
    ) -> Answer {
        if request.wants_table() {
            let meta = json!({"resourceVersion": stored.revision.to_string()});
            return Answer::Json(
                code,
                table::render(
                    resource,
                    &[&stored.value],
                    &meta,
                    table::include(request),
                    self.now(),
                ),
                warnings,
            );
        }
        if request.wants_partial_metadata() {
            return Answer::Json(code, reading::partial(&stored.value), warnings);
        }
        if code == 200 && warnings.is_empty() && reading::is_stored_as_shown(resource, &stored.value) {
            return Answer::Encoded(stored.json());
        }
        Answer::Json(code, reading::view(resource, &stored.value), warnings)
    }

    /// The body, checked to be an object of the resource's kind.
    fn decode(&self, request: &Request, scope: &Scope) -> ApiResult<Value> {
        let mut object = request.object()?;
        check_identity(&mut object, scope)?;
        Ok(object)
    }

    fn create_object(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
        mut object: Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<Arc<Stored>> {
        let dry_run = request.is_dry_run()?;
        let resource = &scope.resource;
        if resource.namespaced {
            namespace_accepts(state, scope, &mut object)?;
        }
        if object["metadata"]["resourceVersion"]
            .as_str()
            .is_some_and(|version| !version.is_empty())
        {
            return Err(ApiError::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.check_fields(request, resource, &mut object, warnings)?;
        if resource.group == "events.k8s.io" {
            object = events::to_core(&object);
        }
        let uid = state.new_uid();
        let suffix = state.name_suffix();
        let now = self.now();
        let generation = has_generation(resource);
        let metadata = metadata_map(&mut object);
        let prefix = metadata
            .get("generateName")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        if metadata
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .is_empty()
            && !prefix.is_empty()
        {
            let cut: String = prefix.chars().take(58).collect();
            metadata.insert("name".to_owned(), json!(format!("{cut}{suffix}")));
        }
        metadata.insert("uid".to_owned(), json!(uid));
        metadata.insert("creationTimestamp".to_owned(), json!(seconds(now)));
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "generation",
        ] {
            metadata.remove(field);
        }
        if generation {
            metadata.insert("generation".to_owned(), json!(1));
        }
        let name = metadata
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let scope = &Scope {
            name,
            ..scope.clone()
        };
        drop_empty_metadata(&mut object);
        self.prepare_create(state, resource, &mut object, request.manager(), now)?;
        self.check_values(resource, &object, None, &scope.name)?;
        if state.stored(&resource.storage(), &scope.key()).is_some() {
            return Err(ApiError::already_exists(
                &resource.group,
                &resource.plural,
                &scope.name,
            ));
        }
        let compiled = compile_definition(resource, &object)?;
        if dry_run {
            return Ok(Stored::new(object, state.revision));
        }
        if let Some(compiled) = compiled {
            install_definition(state, &mut object, compiled, now);
        }
        let stored = state.commit(&resource.storage(), &scope.key(), object, false);
        self.after_create(state, resource, scope, &stored);
        Ok(stored)
    }

    /// Unknown fields go, with a warning or an error; values of core kinds must have the right type.
    fn check_fields(
        &self,
        request: &Request,
        resource: &Resource,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<()> {
        let mode = field_validation(request)?;
        if resource.custom().is_none()
            && let Some(problem) = schema::type_errors(&resource.schema, object).into_iter().next()
        {
            return Err(ApiError::bad_request(format!(
                "{} in version {:?} cannot be handled as a {}: {problem}",
                resource.kind, resource.version, resource.kind
            )));
        }
        let dropped = match resource.custom() {
            Some(version) => version.prune(object),
            None => schema::prune(&resource.schema, object),
        };
        let sentences: Vec<String> = dropped
            .iter()
            .map(|path| format!("unknown field \"{path}\""))
            .collect();
        match mode {
            FieldValidation::Strict if !sentences.is_empty() => Err(ApiError::bad_request(format!(
                "{} in version {:?} cannot be handled as a {}: strict decoding error: {}",
                resource.kind,
                resource.version,
                resource.kind,
                sentences.join(", ")
            ))),
            FieldValidation::Warn => {
                warnings.extend(sentences);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Status, defaults and admission of a new object. Its fields belong to the writer as they are before admission and without status.
    fn prepare_create(
        &self,
        state: &mut State,
        resource: &Resource,
        object: &mut Value,
        manager: &str,
        now: jiff::Timestamp,
    ) -> ApiResult<()> {
        let writer = Writer {
            manager,
            api_version: &resource.api_version(),
            subresource: "",
            now,
        };
        let own = |object: &mut Value| {
            let status = object
                .as_object_mut()
                .filter(|_| has_status(resource))
                .and_then(|map| map.remove("status"));
            managed_fields::update(&resource.schema, None, object, &writer);
            if let Some(status) = status {
                object["status"] = status;
            }
        };
        if let Some(version) = resource.custom() {
            if version.has_status()
                && let Some(map) = object.as_object_mut()
            {
                map.remove("status");
            }
            version.default(object);
            own(object);
            return Ok(());
        }
        let keeps_status = matches!(
            (resource.group.as_str(), resource.kind.as_str()),
            ("", "Node" | "Event")
        );
        if has_status(resource) && !keeps_status {
            object["status"] = json!({});
        }
        defaults::apply(&resource.group, &resource.kind, object);
        own(object);
        match (resource.group.as_str(), resource.kind.as_str()) {
            ("", "Pod") => self.admit_pod(state, object)?,
            ("", "Namespace") => {
                object["status"] = json!({"phase": "Active"});
                let name = object["metadata"]["name"].clone();
                if !object["metadata"]["labels"].is_object() {
                    object["metadata"]["labels"] = json!({});
                }
                object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            }
            ("", "PersistentVolumeClaim" | "PersistentVolume") => {
                object["status"] = json!({"phase": "Pending"})
            }
            ("apiextensions.k8s.io", "CustomResourceDefinition") => object["status"] = json!({}),
            _ => {}
        }
        Ok(())
    }

    fn admit_pod(&self, state: &mut State, object: &mut Value) -> ApiResult<()> {
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
            ApiError::new(403, "Forbidden", format!("pods {name:?} is forbidden: {problem}"))
        })
    }

    fn check_values(
        &self,
        resource: &Resource,
        new: &Value,
        old: Option<&Value>,
        name: &str,
    ) -> ApiResult<()> {
        let mut causes = Vec::new();
        validate::metadata(&resource.kind, &resource.group, new, &mut causes);
        if let Some(old) = old {
            immutable_metadata(new, old, &mut causes);
        }
        match resource.custom() {
            Some(version) => causes.extend(version.validate(new, old)),
            None => causes.extend(validate::check(&resource.group, &resource.kind, new, old)),
        }
        if causes.is_empty() {
            Ok(())
        } else {
            Err(ApiError::invalid(&resource.group, &resource.kind, name, &causes))
        }
    }

    /// Follow-ups of a creation: what a real cluster's controllers would add at once.
    fn after_create(&self, state: &mut State, resource: &Resource, scope: &Scope, stored: &Arc<Stored>) {
        if resource.is("", "namespaces") {
            let key = (scope.name.clone(), "default".to_owned());
            let storage = (String::new(), "serviceaccounts".to_owned());
            if state.stored(&storage, &key).is_none() {
                let uid = state.new_uid();
                let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {
                    "name": "default", "namespace": scope.name, "uid": uid, "creationTimestamp": seconds(self.now())}});
                state.commit(&storage, &key, account, false);
            }
        }
        self.collect_if_orphaned(state, scope, stored);
    }

    pub(crate) fn update(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
        subresource: &str,
    ) -> ApiResult<Answer> {
        let object = self.decode(request, scope)?;
        let old = state.find(scope)?;
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if scope.resource.custom().is_some() && version.is_empty() {
            let cause = Cause {
                reason: "FieldValueInvalid",
                field: "metadata.resourceVersion".to_owned(),
                message: "Invalid value: 0: must be specified for an update".to_owned(),
            };
            return Err(ApiError::invalid(
                &scope.resource.group,
                &scope.resource.plural,
                &scope.name,
                &[cause],
            ));
        }
        let mut warnings = Vec::new();
        let stored = self.replace(
            state,
            request,
            scope,
            subresource,
            &old,
            object,
            None,
            &mut warnings,
        )?;
        Ok(self.shown(request, &scope.resource, &stored, 200, warnings))
    }

    pub(crate) fn patch(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
        subresource: &str,
    ) -> ApiResult<Answer> {
        let mut warnings = Vec::new();
        if matches!(
            request.content_type.as_str(),
            "application/apply-patch+yaml" | "application/apply-patch+cbor"
        ) {
            let (stored, code) = self.apply(state, request, scope, subresource, &mut warnings)?;
            return Ok(self.shown(request, &scope.resource, &stored, code, warnings));
        }
        let old = state.find(scope)?;
        let body = request.object()?;
        let shown = reading::view(&scope.resource, &old.value);
        let patched = match request.content_type.as_str() {
            "application/json-patch+json" => patch::json_patch(&shown, &body),
            "application/merge-patch+json" => Ok(patch::merge_patch(&shown, &body)),
            "application/strategic-merge-patch+json" if scope.resource.custom().is_none() => {
                patch::strategic_merge(&scope.resource.schema, &shown, &body)
            }
            other => {
                return Err(ApiError::new(
                    415,
                    "UnsupportedMediaType",
                    format!(
                        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml (got {other})"
                    ),
                ));
            }
        };
        let mut object = patched.map_err(|error| match error {
            patch::PatchError::Malformed(message) => ApiError::bad_request(message),
            patch::PatchError::DoesNotApply(message) => ApiError::new(
                422,
                "Invalid",
                format!("the server rejected our request due to an error in our request: {message}"),
            ),
        })?;
        check_identity(&mut object, scope)?;
        let stored = self.replace(
            state,
            request,
            scope,
            subresource,
            &old,
            object,
            None,
            &mut warnings,
        )?;
        Ok(self.shown(request, &scope.resource, &stored, 200, warnings))
    }

    fn apply(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
        subresource: &str,
        warnings: &mut Vec<String>,
    ) -> ApiResult<(Arc<Stored>, u16)> {
        if request.parameter("fieldManager").is_empty() {
            return Err(ApiError::bad_options(
                "PatchOptions",
                "FieldValueRequired",
                "fieldManager",
                "Required value: is required for apply patch",
            ));
        }
        let mut applied = self.decode(request, scope)?;
        if applied["apiVersion"].is_null() {
            return Err(ApiError::bad_request("apiVersion must be set"));
        }
        self.check_fields(request, &scope.resource, &mut applied, warnings)?;
        let old = state.stored(&scope.resource.storage(), &scope.key());
        if old.is_none() && !subresource.is_empty() {
            return Err(scope.not_found());
        }
        let writer = Writer {
            manager: request.parameter("fieldManager"),
            api_version: &scope.resource.api_version(),
            subresource,
            now: self.now(),
        };
        let live = old.as_ref().map(|old| reading::view(&scope.resource, &old.value));
        if let (Some(sent), Some(live)) = (applied["metadata"]["uid"].as_str(), &live)
            && live["metadata"]["uid"] != sent
        {
            return Err(scope.conflict("uid mismatch"));
        }
        let merged = managed_fields::apply(
            &scope.resource.schema,
            live.as_ref(),
            &applied,
            &writer,
            request.flag("force"),
        )
        .map_err(apply_error)?;
        match old {
            Some(old) => {
                let managed = merged["metadata"]["managedFields"].clone();
                self.replace(
                    state,
                    request,
                    scope,
                    subresource,
                    &old,
                    merged,
                    Some(managed),
                    warnings,
                )
                .map(|stored| (stored, 200))
            }
            None => {
                let managed = merged["metadata"]["managedFields"].clone();
                let stored = self.create_applied(state, request, scope, merged, managed, warnings)?;
                Ok((stored, 201))
            }
        }
    }

    fn create_applied(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
        mut object: Value,
        managed: Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<Arc<Stored>> {
        metadata_map(&mut object).remove("managedFields");
        let mut dry = request.clone();
        dry.query.insert("dryRun".to_owned(), "All".to_owned());
        let draft = self.create_object(state, &dry, scope, object, warnings)?;
        let mut object = draft.value.clone();
        object["metadata"]["managedFields"] = managed;
        if request.is_dry_run()? {
            return Ok(Stored::new(object, state.revision));
        }
        if let Some(compiled) = compile_definition(&scope.resource, &object)? {
            install_definition(state, &mut object, compiled, self.now());
        }
        let stored = state.commit(&scope.resource.storage(), &scope.key(), object, false);
        self.after_create(state, &scope.resource, scope, &stored);
        Ok(stored)
    }

    /// Puts a new version in place of the old one. `managed` are the managed fields that an apply has computed.
    pub(crate) fn replace(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
        subresource: &str,
        old: &Arc<Stored>,
        mut object: Value,
        managed: Option<Value>,
        warnings: &mut Vec<String>,
    ) -> ApiResult<Arc<Stored>> {
        let resource = &scope.resource;
        let dry_run = request.is_dry_run()?;
        check_preconditions(scope, old, &object)?;
        self.check_fields(request, resource, &mut object, warnings)?;
        if resource.group == "events.k8s.io" {
            object = events::to_core(&object);
        }
        drop_empty_metadata(&mut object);
        let old_value = &old.value;
        self.prepare_update(resource, subresource, old_value, &mut object);
        self.check_values(resource, &object, Some(old_value), &scope.name)?;
        let now = self.now();
        match managed {
            Some(managed) => {
                metadata_map(&mut object).insert("managedFields".to_owned(), managed);
            }
            None => {
                let writer = Writer {
                    manager: request.manager(),
                    api_version: &resource.api_version(),
                    subresource,
                    now,
                };
                managed_fields::update(&resource.schema, Some(old_value), &mut object, &writer);
            }
        }
        if object["metadata"]["managedFields"].is_null() {
            metadata_map(&mut object).remove("managedFields");
        }
        object["metadata"]["resourceVersion"] = old_value["metadata"]["resourceVersion"].clone();
        if &object == old_value {
            return Ok(old.clone());
        }
        let compiled = if subresource.is_empty() {
            compile_definition(resource, &object)?
        } else {
            None
        };
        if dry_run {
            return Ok(Stored::new(object, state.revision));
        }
        if let Some(compiled) = compiled {
            install_definition(state, &mut object, compiled, now);
        }
        Ok(self.commit_update(state, scope, object))
    }

    /// What a client may not change is put back; the generation counts changes of the spec.
    fn prepare_update(&self, resource: &Resource, subresource: &str, old: &Value, object: &mut Value) {
        let status_matters = has_status(resource);
        let custom = resource.custom().is_some();
        match subresource {
            "status" => {
                let status = object["status"].clone();
                let metadata = object["metadata"].clone();
                let mut new = old.clone();
                if status.is_null() {
                    new.as_object_mut().map(|map| map.remove("status"));
                } else {
                    new["status"] = status;
                }
                if custom {
                    new["metadata"]["managedFields"] = metadata["managedFields"].clone();
                    if metadata["managedFields"].is_null() {
                        metadata_map(&mut new).remove("managedFields");
                    }
                } else {
                    new["metadata"] = metadata;
                }
                *object = new;
            }
            "" if status_matters
                && !matches!((resource.group.as_str(), resource.kind.as_str()), ("", "Event")) =>
            {
                match old.get("status") {
                    Some(status) => object["status"] = status.clone(),
                    None => {
                        object.as_object_mut().map(|map| map.remove("status"));
                    }
                }
            }
            _ => {}
        }
        let old_metadata = old["metadata"].clone();
        let metadata = metadata_map(object);
        for field in [
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "selfLink",
            "generateName",
            "namespace",
        ] {
            match &old_metadata[field] {
                Value::Null => metadata.remove(field),
                value => metadata.insert(field.to_owned(), value.clone()),
            };
        }
        if subresource.is_empty() {
            match resource.custom() {
                Some(version) => version.default(object),
                None => defaults::apply(&resource.group, &resource.kind, object),
            }
        }
        if old_metadata["generation"].is_number() && differs_beyond_metadata(old, object, status_matters) {
            object["metadata"]["generation"] = json!(old_metadata["generation"].as_i64().unwrap_or(0) + 1);
        }
    }

    /// Stores an update; an object whose last finalizer has gone after its deletion was asked for goes with it.
    pub(crate) fn commit_update(&self, state: &mut State, scope: &Scope, object: Value) -> Arc<Stored> {
        let storage = scope.resource.storage();
        let metadata = &object["metadata"];
        let deleting = !metadata["deletionTimestamp"].is_null();
        let no_finalizers = metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
        let in_grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
        let namespace_content = scope.resource.is("", "namespaces")
            && object["spec"]["finalizers"]
                .as_array()
                .is_some_and(|list| !list.is_empty());
        if deleting && no_finalizers && !in_grace && !namespace_content {
            let stored = Stored::new(object, state.revision);
            return self.remove(state, &scope.resource, &storage, &scope.key(), &stored);
        }
        state.commit(&storage, &scope.key(), object, false)
    }
}

/// `2026-01-01T00:00:00Z`.
pub(crate) fn seconds(now: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(now.as_second())
        .unwrap_or(now)
        .to_string()
}

fn apply_error(error: ApplyError) -> ApiError {
    match error {
        ApplyError::Invalid(message) => ApiError::bad_request(message),
        ApplyError::Conflicts(conflicts) => {
            let count = conflicts.len();
            let sentences: Vec<String> = conflicts
                .iter()
                .map(|conflict| format!("conflict with {}: {}", conflict.manager, conflict.field))
                .collect();
            let message = if count == 1 {
                format!("Apply failed with 1 conflict: {}", sentences[0])
            } else {
                let mut by_manager: std::collections::BTreeMap<&str, Vec<&str>> =
                    std::collections::BTreeMap::new();
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
                format!("Apply failed with {count} conflicts: {}", parts.join("\n"))
            };
            let mut error = ApiError::new(409, "Conflict", message);
            error.details = json!({"causes": conflicts.iter().map(|conflict| json!({
                "reason": "FieldManagerConflict", "message": format!("conflict with {}", conflict.manager), "field": conflict.field,
            })).collect::<Vec<_>>()});
            error
        }
    }
}

/// Kind, apiVersion, namespace and name of a body must be those of the path.
fn check_identity(object: &mut Value, scope: &Scope) -> ApiResult<()> {
    let resource = &scope.resource;
    if resource.custom().is_some()
        && object["kind"].as_str().unwrap_or_default().is_empty()
        && object.is_object()
    {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{object}'",
            resource.kind
        )));
    }
    if !object.is_object() {
        return Err(ApiError::bad_request(
            "couldn't get version/kind; json parse error: the body must be an object",
        ));
    }
    if object["kind"].is_null() {
        object["kind"] = json!(resource.kind);
    }
    if object["apiVersion"].is_null() {
        object["apiVersion"] = json!(resource.api_version());
    }
    if object["kind"] != resource.kind || object["apiVersion"] != resource.api_version() {
        return Err(ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: the object provided is unrecognized (must be of type {} in {:?})",
            object["kind"].as_str().unwrap_or_default(),
            object["apiVersion"].as_str().unwrap_or_default(),
            resource.kind,
            resource.kind,
            resource.api_version()
        )));
    }
    let metadata = metadata_map(object);
    let name = metadata
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
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
    if resource.namespaced {
        let namespace = metadata
            .get("namespace")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !namespace.is_empty() && namespace != scope.namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        metadata.insert("namespace".to_owned(), json!(scope.namespace));
    } else {
        metadata.remove("namespace");
    }
    Ok(())
}

fn namespace_accepts(state: &State, scope: &Scope, object: &mut Value) -> ApiResult<()> {
    let namespaces = (String::new(), "namespaces".to_owned());
    let namespace = state
        .stored(&namespaces, &(String::new(), scope.namespace.clone()))
        .ok_or_else(|| ApiError::not_found("", "namespaces", &scope.namespace))?;
    if !namespace.value["metadata"]["deletionTimestamp"].is_null() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let what = crate::error::qualified(&scope.resource.group, &scope.resource.plural);
        let mut error = ApiError::new(
            403,
            "Forbidden",
            format!(
                "{what} {name:?} is forbidden: unable to create new content in namespace {} because it is being terminated",
                scope.namespace
            ),
        );
        error.details = json!({"name": name, "kind": scope.resource.plural, "causes": [{
            "reason": "NamespaceTerminating", "message": format!("namespace {} is being terminated", scope.namespace), "field": "metadata.namespace"}]});
        return Err(error);
    }
    Ok(())
}

fn check_preconditions(scope: &Scope, old: &Stored, object: &Value) -> ApiResult<()> {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !version.is_empty() && old.value["metadata"]["resourceVersion"] != version {
        return Err(scope.conflict(
            "the object has been modified; please apply your changes to the latest version and try again",
        ));
    }
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    if !uid.is_empty() && uid != old.uid() {
        return Err(scope.conflict(&format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            old.uid()
        )));
    }
    Ok(())
}

fn immutable_metadata(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    if new["metadata"]["name"] != old["metadata"]["name"] {
        causes.push(Cause {
            reason: "FieldValueInvalid",
            field: "metadata.name".to_owned(),
            message: format!("Invalid value: {}: field is immutable", new["metadata"]["name"]),
        });
    }
    // Nothing may be added to the finalizers of an object on its way out.
    if !old["metadata"]["deletionTimestamp"].is_null() {
        let before = old["metadata"]["finalizers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let added: Vec<&Value> = new["metadata"]["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|finalizer| !before.contains(finalizer))
            .collect();
        if !added.is_empty() {
            causes.push(Cause {
                reason: "FieldValueForbidden",
                field: "metadata.finalizers".to_owned(),
                message: format!("Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}", added.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
            });
        }
    }
}

fn differs_beyond_metadata(old: &Value, new: &Value, status_apart: bool) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return true;
    };
    let counts = |key: &str| key != "metadata" && !(status_apart && key == "status");
    old.iter()
        .any(|(key, value)| counts(key) && new.get(key) != Some(value))
        || new.keys().any(|key| counts(key) && !old.contains_key(key))
}

/// Compiles a CustomResourceDefinition before it is stored.
fn compile_definition(resource: &Resource, object: &Value) -> ApiResult<Option<CompiledCrd>> {
    if !resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
        return Ok(None);
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    CompiledCrd::compile(object)
        .map(Some)
        .map_err(|causes| ApiError::invalid(&resource.group, &resource.kind, name, &causes))
}

fn install_definition(state: &mut State, object: &mut Value, compiled: CompiledCrd, now: jiff::Timestamp) {
    let spec = &object["spec"];
    let storage_versions: Vec<Value> = spec["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "lastTransitionTime": seconds(now), "reason": reason, "message": message});
    let names = spec["names"].clone();
    let (group, plural) = (
        spec["group"].as_str().unwrap_or_default().to_owned(),
        names["plural"].as_str().unwrap_or_default().to_owned(),
    );
    if object["status"]["conditions"]
        .as_array()
        .is_none_or(Vec::is_empty)
    {
        object["status"] = json!({
            "conditions": [condition("NamesAccepted", "NoConflicts", "no conflicts found"), condition("Established", "InitialNamesAccepted", "the initial names have been accepted")],
            "acceptedNames": names, "storedVersions": storage_versions,
        });
    }
    let compiled = Arc::new(compiled);
    state.compiled.insert((group, plural), compiled.clone());
    state.registry.install(object, &compiled);
}
