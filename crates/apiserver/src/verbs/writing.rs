//! Writes: create, replace and the four kinds of patch, on main resources and their status.
//!
//! Owns the order of the steps, which is a real server's: read the object, default it, record who owns its fields, admit it, apply the rules
//! of its kind, validate it, store it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::admission_policy::{self, Attributes};
use crate::cause::Cause;
use crate::error::{ApiError, ApiResult};
use crate::fields::managed_fields::{self, ApplyError, Writer};
use crate::fields::packed;
use crate::kinds::conversion;
use crate::schema::patch;
use crate::store::objects::Stored;
use crate::store::registry::Resource;
use crate::store::state::{ApiServer, Scope, State};
use crate::verbs::answer::Answer;
use crate::verbs::body::{check_applied, duplicate_fields, read};
use crate::verbs::strategy::{
    has_generation, metadata_map, prepare_create, prepare_update, reset_of, text_at,
};
use crate::verbs::writing_checks::{
    apply_error, check_identity, check_stored_size, check_uid, check_values, check_version,
    definition_accepts, namespace_accepts,
};
use crate::verbs::{definitions, reading, table};
use crate::wire::accept::Form;
use crate::wire::request::Request;

/// Names that are drawn at most for an object that asks for a generated one, as on a real server.
const MOST_NAMES_DRAWN: usize = 8;

impl ApiServer {
    fn writer<'a>(
        &self,
        request: &'a Request,
        resource: &Resource,
        api_version: &'a str,
        subresource: &'a str,
    ) -> Writer<'a> {
        Writer {
            manager: request.manager(),
            api_version,
            subresource,
            now: self.now(),
            reset: reset_of(resource, subresource),
        }
    }

    pub(crate) fn create(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let resource = &scope.resource;
        let (mut object, duplicates) = request.object_and_duplicates(&resource.kind)?;
        check_identity(&mut object, scope)?;
        let warnings = duplicate_fields(request, resource, &duplicates)?;
        self.create_sent(state, request, scope, object, warnings)
    }

    /// Creates an object that a client has sent for this place.
    fn create_sent(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
        mut object: Value,
        mut warnings: Vec<String>,
    ) -> ApiResult<Answer> {
        let resource = &scope.resource;
        read(request, resource, &mut object, &mut warnings)?;
        let api_version = resource.api_version();
        managed_fields::update(
            &resource.schema,
            None,
            &mut object,
            &self.writer(request, resource, &api_version, ""),
        );
        let stored = self.store_new(state, request, scope, object)?;
        Ok(self.shown(request, resource, &stored, 201, warnings))
    }

    pub(crate) fn shown(
        &self,
        request: &Request,
        resource: &Resource,
        stored: &Stored,
        code: u16,
        warnings: Vec<String>,
    ) -> Answer {
        match request.form() {
            Form::Table(version) => {
                let meta = json!({"resourceVersion": stored.revision.to_string()});
                let wanted = (version, table::include(request));
                let table = table::render(resource, &[&stored.value], &meta, wanted, self.now());
                return Answer::Json(code, table, warnings);
            }
            Form::Partial(version) | Form::PartialList(version) => {
                return Answer::Json(code, reading::partial(&stored.value, version), warnings);
            }
            Form::Object => {}
        }
        if conversion::is_stored_as_shown(resource, &stored.value) {
            return Answer::Encoded(code, stored.json(), warnings);
        }
        Answer::Json(
            code,
            conversion::view(resource, &stored.value).into_owned(),
            warnings,
        )
    }

    /// Admits, prepares, validates and stores a new object that was read and whose fields have owners.
    fn store_new(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
        mut object: Value,
    ) -> ApiResult<Arc<Stored>> {
        let resource = &scope.resource;
        let dry_run = request.is_dry_run()?;
        if conversion::is_converted(resource) {
            object = conversion::to_stored(resource, object);
        }
        if resource.namespaced {
            namespace_accepts(state, scope, &object)?;
        }
        definition_accepts(state, resource)?;
        if object["metadata"]["resourceVersion"]
            .as_str()
            .is_some_and(|version| !version.is_empty())
        {
            return Err(ApiError::new(
                500,
                "",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.identify(state, resource, &mut object);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let scope = &Scope {
            name,
            ..scope.clone()
        };
        prepare_create(state, resource, &mut object)?;
        check_values(resource, "", &object, None, &scope.name)?;
        let attributes = Attributes {
            operation: "CREATE",
            resource,
            subresource: "",
            namespace: scope.admitted_namespace(),
            name: &scope.name,
            object: Some(&object),
            old: None,
            dry_run,
        };
        self.admit(state, &attributes)?;
        admission_policy::note_observed(resource, &mut object);
        if state.stored(&resource.storage(), &scope.key()).is_some() {
            return Err(ApiError::already_exists(
                &resource.group,
                &resource.plural,
                &scope.name,
            ));
        }
        check_stored_size(request, None, &object)?;
        let compiled = definitions::compile(resource, &object, None)?;
        if dry_run {
            return Ok(Stored::new(object, state.revision));
        }
        if let Some(compiled) = compiled {
            definitions::install(state, &mut object, compiled, self.now());
        }
        let stored = state.commit(&resource.storage(), &scope.key(), object, false);
        self.after_create(state, resource, scope, &stored);
        Ok(stored)
    }

    /// Name, UID, time and generation of a new object.
    fn identify(&self, state: &mut State, resource: &Resource, object: &mut Value) {
        // Drawn in any case, so that the names and UIDs of later objects do not depend on which objects have explicit names.
        let (uid, suffix) = (state.new_uid(), state.name_suffix());
        let chosen = self.config.identities.as_ref();
        let chosen = chosen
            .map(|choose| choose(&resource.plural, object))
            .unwrap_or_default();
        let uid = chosen.uid.unwrap_or(uid);
        let metadata = metadata_map(object);
        let (name, prefix) = (text_at(metadata, "name"), text_at(metadata, "generateName"));
        if name.is_empty() && !prefix.is_empty() {
            let cut: String = prefix.chars().take(58).collect();
            let namespace = text_at(metadata, "namespace");
            let name = chosen
                .name
                .unwrap_or_else(|| free_name(state, resource, namespace, &cut, &suffix));
            metadata.insert("name".to_owned(), json!(name));
        }
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "generation",
        ] {
            metadata.remove(field);
        }
        metadata.insert("uid".to_owned(), json!(uid));
        metadata.insert("creationTimestamp".to_owned(), json!(seconds(self.now())));
        if has_generation(resource) {
            metadata.insert("generation".to_owned(), json!(1));
        }
    }

    /// Follow-ups of a creation: what a real cluster's controllers would add at once.
    fn after_create(&self, state: &mut State, resource: &Resource, scope: &Scope, stored: &Arc<Stored>) {
        if resource.is("", "namespaces") {
            self.keep_default_account(state, &scope.name);
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
        let resource = &scope.resource;
        let (mut object, duplicates) = request.object_and_duplicates(&resource.kind)?;
        check_identity(&mut object, scope)?;
        let mut warnings = duplicate_fields(request, resource, &duplicates)?;
        let old = match state.find(scope) {
            Ok(old) => old,
            Err(_) if subresource.is_empty() && creates_on_update(resource) => {
                // It may name the version of an object that is gone, but not that object.
                check_uid(scope, &Stored::new(Value::Null, 0), &object)?;
                metadata_map(&mut object).remove("resourceVersion");
                return self.create_sent(state, request, scope, object, warnings);
            }
            Err(missing) => return Err(missing),
        };
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !allows_unconditional_update(resource) && version.is_empty() {
            let cause = Cause {
                reason: "FieldValueInvalid",
                field: "metadata.resourceVersion".to_owned(),
                message: "Invalid value: 0: must be specified for an update".to_owned(),
            };
            return Err(ApiError::invalid(
                &resource.group,
                &resource.plural,
                &scope.name,
                &[cause],
            ));
        }
        check_uid(scope, &old, &object)?;
        let stored = self.replace(state, request, scope, subresource, &old, object, &mut warnings)?;
        Ok(self.shown(request, resource, &stored, 200, warnings))
    }

    pub(crate) fn patch(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
        subresource: &str,
    ) -> ApiResult<Answer> {
        let resource = &scope.resource;
        let mut warnings = Vec::new();
        if is_apply(request) {
            let (stored, code) = self.apply(state, request, scope, subresource, &mut warnings)?;
            return Ok(self.shown(request, resource, &stored, code, warnings));
        }
        let old = state.find(scope)?;
        let shown = conversion::view(resource, &old.value);
        let mut object = patched(request, resource, &shown)?;
        check_identity(&mut object, scope)?;
        let stored = self.replace(state, request, scope, subresource, &old, object, &mut warnings)?;
        Ok(self.shown(request, resource, &stored, 200, warnings))
    }

    fn apply(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
        subresource: &str,
        warnings: &mut Vec<String>,
    ) -> ApiResult<(Arc<Stored>, u16)> {
        let resource = &scope.resource;
        check_applier(request)?;
        let mut applied = request.object(&resource.kind)?;
        check_identity(&mut applied, scope)?;
        let unknown = check_applied(request, resource, &applied)?;
        let old = state.stored(&resource.storage(), &scope.key());
        if old.is_none() && !subresource.is_empty() {
            return Err(scope.not_found());
        }
        let live = old.as_ref().map(|old| conversion::view(resource, &old.value));
        if let (Some(sent), Some(live)) = (applied["metadata"]["uid"].as_str(), &live)
            && live["metadata"]["uid"] != sent
        {
            return Err(scope.conflict("uid mismatch"));
        }
        let api_version = resource.api_version();
        let writer = Writer {
            manager: request.parameter("fieldManager"),
            ..self.writer(request, resource, &api_version, subresource)
        };
        if let Some(path) = unknown.first() {
            return Err(apply_error(ApplyError::Untyped(managed_fields::untyped(
                &applied,
                &format!(".{path}: field not declared in schema"),
            ))));
        }
        let mut merged = managed_fields::apply(
            &resource.schema,
            live.as_deref(),
            &applied,
            &writer,
            request.flag("force"),
        )
        .map_err(apply_error)?;
        match old {
            Some(old) => {
                check_version(scope, &old, &merged)?;
                read(request, resource, &mut merged, warnings)?;
                self.store_changed(state, request, scope, subresource, &old, merged)
                    .map(|stored| (stored, 200))
            }
            None => {
                read(request, resource, &mut merged, warnings)?;
                self.store_new(state, request, scope, merged)
                    .map(|stored| (stored, 201))
            }
        }
    }

    /// Puts a new version, as a client wrote it, in place of the old one.
    pub(crate) fn replace(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
        subresource: &str,
        old: &Arc<Stored>,
        mut object: Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<Arc<Stored>> {
        let resource = &scope.resource;
        check_version(scope, old, &object)?;
        read(request, resource, &mut object, warnings)?;
        let api_version = resource.api_version();
        let writer = self.writer(request, resource, &api_version, subresource);
        managed_fields::update(
            &resource.schema,
            Some(&*conversion::view(resource, &old.value)),
            &mut object,
            &writer,
        );
        self.store_changed(state, request, scope, subresource, old, object)
    }

    /// Prepares, validates and stores a new version that was read and whose fields have owners.
    pub(crate) fn store_changed(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
        subresource: &str,
        old: &Arc<Stored>,
        mut object: Value,
    ) -> ApiResult<Arc<Stored>> {
        let resource = &scope.resource;
        let dry_run = request.is_dry_run()?;
        if conversion::is_converted(resource) {
            object = conversion::to_stored(resource, object);
        }
        prepare_update(state, resource, subresource, &old.value, &mut object)?;
        check_values(resource, subresource, &object, Some(&old.value), &scope.name)?;
        // What is scaled is admitted as the Scale that the client has sent.
        if subresource != "scale" {
            let attributes = Attributes {
                operation: "UPDATE",
                resource,
                subresource,
                namespace: scope.admitted_namespace(),
                name: &scope.name,
                object: Some(&object),
                old: Some(&old.value),
                dry_run,
            };
            self.admit(state, &attributes)?;
        }
        if subresource.is_empty() {
            admission_policy::note_observed(resource, &mut object);
        }
        metadata_map(&mut object).insert(
            "resourceVersion".to_owned(),
            old.value["metadata"]["resourceVersion"].clone(),
        );
        if object == old.value || is_same_but_times(&object, &old.value) {
            return Ok(old.clone());
        }
        check_stored_size(request, Some(old), &object)?;
        let compiled = if subresource.is_empty() {
            definitions::compile(resource, &object, Some(&old.value))?
        } else {
            None
        };
        if dry_run {
            return Ok(Stored::new(object, state.revision));
        }
        if let Some(compiled) = compiled {
            definitions::install(state, &mut object, compiled, self.now());
        }
        let stored = self.commit_update(state, scope, object);
        self.follow_owners(state, scope, &old.value, &stored);
        Ok(stored)
    }

    /// Stores an update; an object without finalizers whose deletion was requested is removed with it.
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

/// A generated name that no object of the kind has, if one is found in a few draws.
fn free_name(
    state: &mut State,
    resource: &Resource,
    namespace: String,
    prefix: &str,
    suffix: &str,
) -> String {
    let storage = resource.storage();
    let mut key = (namespace, format!("{prefix}{suffix}"));
    for _ in 1..MOST_NAMES_DRAWN {
        if state.stored(&storage, &key).is_none() {
            break;
        }
        key.1 = format!("{prefix}{}", state.name_suffix());
    }
    key.1
}

/// Who applies says his name.
pub(crate) fn check_applier(request: &Request) -> ApiResult<()> {
    if request.parameter("fieldManager").is_empty() {
        return Err(ApiError::bad_options(
            "PatchOptions",
            "FieldValueRequired",
            "fieldManager",
            "Required value: is required for apply patch",
        ));
    }
    Ok(())
}

pub(crate) fn is_apply(request: &Request) -> bool {
    matches!(
        request.content_type.as_str(),
        "application/apply-patch+yaml" | "application/apply-patch+cbor"
    )
}

/// The document with the request's JSON, merge or strategic merge patch applied.
pub(crate) fn patched(request: &Request, resource: &Resource, document: &Value) -> ApiResult<Value> {
    let custom = resource.custom().is_some();
    let result = match request.content_type.as_str() {
        "application/json-patch+json" => {
            // It may look into field sets, and copy texts to where they would pass for one.
            let mut document = document.clone();
            packed::expand(&mut document);
            patch::json_patch(&document, &request.patch()?).map(|mut patched| {
                packed::clear(&mut patched);
                patched
            })
        }
        "application/merge-patch+json" => Ok(patch::merge_patch(document, &request.patch()?)),
        "application/strategic-merge-patch+json" if !custom => {
            patch::strategic_merge(&resource.schema, document, &request.patch()?)
        }
        "application/strategic-merge-patch+json" => {
            return Err(ApiError::new(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
        _ => {
            let mut error = ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
            error.details = json!({});
            return Err(error);
        }
    };
    result.map_err(|error| match error {
        patch::PatchError::Malformed(message) => ApiError::bad_request(message),
        patch::PatchError::DoesNotApply(message) => {
            let mut error = ApiError::new(
                422,
                "Invalid",
                format!("the server rejected our request due to an error in our request: {message}"),
            );
            error.details = json!({});
            error
        }
    })
}

/// Kinds of which a replacement makes the object where there is none.
fn creates_on_update(resource: &Resource) -> bool {
    resource.custom().is_none()
        && matches!(
            (resource.group.as_str(), resource.plural.as_str()),
            ("", "endpoints" | "events" | "limitranges" | "services")
                | ("coordination.k8s.io", "leases")
                | ("events.k8s.io", "events")
                | ("node.k8s.io", "runtimeclasses")
                | ("rbac.authorization.k8s.io", _)
        )
}

/// Kinds that may be replaced without a resource version.
fn allows_unconditional_update(resource: &Resource) -> bool {
    resource.custom().is_none()
        && !matches!(
            (resource.group.as_str(), resource.plural.as_str()),
            ("coordination.k8s.io", "leases")
                | ("policy", "poddisruptionbudgets")
                | ("apiextensions.k8s.io", _)
                | ("storage.k8s.io", "volumeattachments" | "csinodes" | "csidrivers")
        )
}

/// True when versions differ in nothing but the times of their managed fields: such a write is no change.
fn is_same_but_times(new: &Value, old: &Value) -> bool {
    let without_times = |object: &Value| -> Option<Vec<Value>> {
        let mut entries = object["metadata"]["managedFields"].as_array()?.clone();
        for entry in &mut entries {
            entry.as_object_mut()?.remove("time");
        }
        Some(entries)
    };
    let (Some(mine), Some(theirs)) = (new.as_object(), old.as_object()) else {
        return false;
    };
    let same = |key: &str, mine: &Value, theirs: Option<&Value>| {
        if key != "metadata" {
            return Some(mine) == theirs;
        }
        let (Some(mine), Some(theirs)) = (mine.as_object(), theirs.and_then(Value::as_object)) else {
            return false;
        };
        mine.len() == theirs.len()
            && mine
                .iter()
                .all(|(key, value)| key == "managedFields" || theirs.get(key) == Some(value))
    };
    mine.len() == theirs.len()
        && mine.iter().all(|(key, value)| same(key, value, theirs.get(key)))
        && without_times(new) == without_times(old)
}
