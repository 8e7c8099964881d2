//! Deletion: grace periods, finalizers, owners and dependents, and namespaces that empty themselves.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::error::{ApiError, ApiResult};
use crate::reading::{self, Filter};
use crate::registry::Resource;
use crate::request::Request;
use crate::response::Answer;
use crate::server::{ApiServer, Place, Scope, State};
use crate::store::{Key, Stored};
use crate::writing::seconds;

/// What becomes of the objects that name the deleted one as their owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Propagation {
    Background,
    Foreground,
    Orphan,
}

const FOREGROUND: &str = "foregroundDeletion";

/// Options of a deletion.
#[derive(Debug, Clone)]
pub(crate) struct DeleteOptions {
    grace_period_seconds: Option<i64>,
    propagation: Propagation,
    uid: Option<String>,
    resource_version: Option<String>,
    dry_run: bool,
}

impl DeleteOptions {
    fn background() -> Self {
        Self {
            grace_period_seconds: None,
            propagation: Propagation::Background,
            uid: None,
            resource_version: None,
            dry_run: false,
        }
    }

    fn of(request: &Request) -> ApiResult<Self> {
        let body = if request.body.is_empty() {
            json!({})
        } else {
            request.object()?
        };
        Self::from_value(&body, request)
    }

    /// Reads options from a body; query parameters fill in what it leaves out.
    pub(crate) fn from_value(body: &Value, request: &Request) -> ApiResult<Self> {
        let grace = match (
            body["gracePeriodSeconds"].as_i64(),
            request.parameter("gracePeriodSeconds"),
        ) {
            (Some(seconds), _) => Some(seconds),
            (None, "") => None,
            (None, text) => Some(text.parse().map_err(|_| {
                ApiError::bad_request(format!("gracePeriodSeconds {text:?} is not a number"))
            })?),
        };
        let policy = body["propagationPolicy"]
            .as_str()
            .unwrap_or_else(|| request.parameter("propagationPolicy"));
        let propagation = match policy {
            "" if body["orphanDependents"] == true => Propagation::Orphan,
            "" | "Background" => Propagation::Background,
            "Foreground" => Propagation::Foreground,
            "Orphan" => Propagation::Orphan,
            other => {
                return Err(ApiError::bad_options(
                    "DeleteOptions",
                    "FieldValueNotSupported",
                    "propagationPolicy",
                    &format!(
                        "Unsupported value: {other:?}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                    ),
                ));
            }
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(Self {
            grace_period_seconds: grace,
            propagation,
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
            dry_run: request.is_dry_run()? || body["dryRun"].as_array().is_some_and(|list| !list.is_empty()),
        })
    }

    /// Checks the preconditions against an object.
    pub(crate) fn check(&self, scope: &Scope, stored: &Stored) -> ApiResult<()> {
        if let Some(uid) = self.uid.as_deref().filter(|uid| *uid != stored.uid()) {
            return Err(ApiError::conflict(
                &scope.resource.group,
                &scope.resource.kind,
                &scope.name,
                &format!(
                    "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                    stored.uid()
                ),
            ));
        }
        let version = stored.value["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default();
        if let Some(wanted) = self
            .resource_version
            .as_deref()
            .filter(|wanted| *wanted != version)
        {
            return Err(ApiError::conflict(
                &scope.resource.group,
                &scope.resource.kind,
                &scope.name,
                &format!(
                    "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
                ),
            ));
        }
        Ok(())
    }
}

impl ApiServer {
    pub(crate) fn delete(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let options = DeleteOptions::of(request)?;
        let stored = state.find(scope)?;
        self.delete_checked(state, request, scope, &stored, &options)
    }

    /// Deletes an object with options, and answers as the delete verb does.
    pub(crate) fn delete_checked(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
        stored: &Arc<Stored>,
        options: &DeleteOptions,
    ) -> ApiResult<Answer> {
        options.check(scope, stored)?;
        if scope.resource.is("", "namespaces")
            && matches!(scope.name.as_str(), "default" | "kube-system" | "kube-public")
        {
            let text = format!(
                "namespaces {:?} is forbidden: this namespace may not be deleted",
                scope.name
            );
            let mut error = ApiError::new(403, "Forbidden", text);
            error.details = json!({"name": scope.name, "kind": "namespaces"});
            return Err(error);
        }
        if options.dry_run {
            return Ok(self.show(request, &scope.resource, stored));
        }
        let (after, gone) = self.delete_object(state, &scope.resource, &scope.key(), stored, options);
        if gone && !scope.resource.is("", "pods") {
            let mut details = json!({"name": scope.name, "kind": scope.resource.plural, "uid": stored.uid()});
            if !scope.resource.group.is_empty() {
                details["group"] = json!(scope.resource.group);
            }
            return Ok(Answer::ok(json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            })));
        }
        Ok(self.show(request, &scope.resource, &after))
    }

    pub(crate) fn delete_collection(
        &self,
        state: &mut State,
        request: &Request,
        scope: &Scope,
    ) -> ApiResult<Answer> {
        let options = DeleteOptions::of(request)?;
        let filter = Filter::of(request, scope)?;
        let storage = scope.resource.storage();
        let chosen: Vec<(Key, Arc<Stored>)> = state
            .collection(&storage)
            .objects
            .iter()
            .filter(|(key, stored)| filter.matches(key, &stored.value))
            .map(|(key, stored)| (key.clone(), stored.clone()))
            .collect();
        let items: Vec<Value> = chosen
            .iter()
            .map(|(_, stored)| reading::view(&scope.resource, &stored.value))
            .collect();
        if !options.dry_run {
            for (key, stored) in chosen {
                self.delete_object(state, &scope.resource, &key, &stored, &options);
            }
        }
        Ok(Answer::ok(json!({
            "kind": format!("{}List", scope.resource.kind), "apiVersion": scope.resource.api_version(),
            "metadata": {"resourceVersion": state.revision.to_string()}, "items": items,
        })))
    }

    /// Deletes an object, or marks it when something holds it. Returns its last version and whether it is gone.
    fn delete_object(
        &self,
        state: &mut State,
        resource: &Arc<Resource>,
        key: &Key,
        stored: &Arc<Stored>,
        options: &DeleteOptions,
    ) -> (Arc<Stored>, bool) {
        let storage = resource.storage();
        let now = self.now();
        let mut value = stored.value.clone();
        let grace = grace_seconds(resource, &value, options);
        let already = value["metadata"]["deletionTimestamp"]
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok());
        match options.propagation {
            Propagation::Orphan => self.orphan(state, stored.uid()),
            Propagation::Foreground if has_dependents(state, stored.uid()) => {
                add_finalizer(&mut value, FOREGROUND)
            }
            _ => {}
        }
        let due = now
            .saturating_add(SignedDuration::from_secs(grace))
            .unwrap_or(now);
        // No grace left to give is the kubelet's word that the pod has stopped, however late it comes.
        if already.is_none_or(|already| grace_left(&value) > 0 && (grace == 0 || due < already)) {
            value["metadata"]["deletionTimestamp"] = json!(seconds(due));
            if resource.is("", "pods") || grace > 0 {
                value["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            } else if already.is_none() {
                value["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            }
            bump_generation(&mut value);
        }
        let namespace = resource.is("", "namespaces");
        if namespace {
            value["status"]["phase"] = json!("Terminating");
        }
        let held = value["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
        let content = namespace
            && value["spec"]["finalizers"]
                .as_array()
                .is_some_and(|list| !list.is_empty());
        if held || content || grace_left(&value) > 0 {
            let after = if value == stored.value {
                stored.clone()
            } else {
                state.commit(&storage, key, value, false)
            };
            if options.propagation == Propagation::Foreground {
                self.delete_dependents(state, after.uid());
                self.release_foreground(state, &storage, key);
            }
            if namespace {
                self.empty_namespace(state, &key.1);
            }
            let gone = state.stored(&storage, key).is_none();
            return (after, gone);
        }
        let last = Stored::new(value, state.revision);
        (self.remove(state, resource, &storage, key, &last), true)
    }

    /// Takes an object away for good and follows up: dependents, owners that wait for it, its namespace, its definition.
    pub(crate) fn remove(
        &self,
        state: &mut State,
        resource: &Arc<Resource>,
        storage: &(String, String),
        key: &Key,
        last: &Stored,
    ) -> Arc<Stored> {
        let gone = state.commit(storage, key, last.value.clone(), true);
        if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.remove_definition(state, &gone.value);
        }
        self.delete_dependents(state, gone.uid());
        for owner in gone.value["metadata"]["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten()
        {
            if let Some((storage, key)) = owner["uid"]
                .as_str()
                .and_then(|uid| state.by_uid.get(uid))
                .cloned()
            {
                self.release_foreground(state, &storage, &key);
            }
        }
        if !key.0.is_empty() {
            self.release_namespace(state, &key.0);
        }
        gone
    }

    /// Dependents all of whose owners are gone (or going in the foreground) are deleted; others lose the reference.
    fn delete_dependents(&self, state: &mut State, uid: &str) {
        let places: Vec<Place> = state.dependents.get(uid).into_iter().flatten().cloned().collect();
        let owner_exists = state.by_uid.contains_key(uid);
        for (storage, key) in places {
            let Some(stored) = state.stored(&storage, &key) else {
                continue;
            };
            let others = stored.value["metadata"]["ownerReferences"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|owner| owner["uid"].as_str())
                .any(|other| other != uid && state.by_uid.contains_key(other));
            let Some(resource) = resource_of(state, &stored.value) else {
                continue;
            };
            if others {
                if !owner_exists {
                    let mut value = stored.value.clone();
                    if let Some(owners) = value["metadata"]["ownerReferences"].as_array_mut() {
                        owners.retain(|owner| owner["uid"] != uid);
                    }
                    state.commit(&storage, &key, value, false);
                }
                continue;
            }
            if stored.value["metadata"]["deletionTimestamp"].is_null() {
                self.delete_object(state, &resource, &key, &stored, &DeleteOptions::background());
            }
        }
    }

    fn orphan(&self, state: &mut State, uid: &str) {
        let places: Vec<Place> = state.dependents.get(uid).into_iter().flatten().cloned().collect();
        for (storage, key) in places {
            let Some(stored) = state.stored(&storage, &key) else {
                continue;
            };
            let mut value = stored.value.clone();
            if let Some(metadata) = value["metadata"].as_object_mut()
                && let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut)
            {
                owners.retain(|owner| owner["uid"] != uid);
                if owners.is_empty() {
                    metadata.remove("ownerReferences");
                }
            }
            state.commit(&storage, &key, value, false);
        }
    }

    /// An owner that waits for its dependents goes once none blocks it.
    fn release_foreground(&self, state: &mut State, storage: &(String, String), key: &Key) {
        let Some(stored) = state.stored(storage, key) else {
            return;
        };
        let waits = stored.value["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| list.iter().any(|one| one == FOREGROUND));
        if !waits {
            return;
        }
        let blocked = state
            .dependents
            .get(stored.uid())
            .into_iter()
            .flatten()
            .any(|(storage, key)| {
                state.stored(storage, key).is_some_and(|dependent| {
                    dependent.value["metadata"]["ownerReferences"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .any(|owner| owner["uid"] == stored.uid() && owner["blockOwnerDeletion"] == true)
                })
            });
        if blocked {
            return;
        }
        let Some(resource) = resource_of(state, &stored.value) else {
            return;
        };
        let mut value = stored.value.clone();
        if let Some(finalizers) = value["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|one| one != FOREGROUND);
        }
        let scope = Scope {
            resource,
            namespace: key.0.clone(),
            name: key.1.clone(),
        };
        self.commit_update(state, &scope, value);
    }

    /// A new object whose owners have all gone goes too.
    pub(crate) fn collect_if_orphaned(&self, state: &mut State, scope: &Scope, stored: &Arc<Stored>) {
        let Some(owners) = stored.value["metadata"]["ownerReferences"]
            .as_array()
            .filter(|owners| !owners.is_empty())
        else {
            return;
        };
        let any_exists = owners
            .iter()
            .filter_map(|owner| owner["uid"].as_str())
            .any(|uid| state.by_uid.contains_key(uid));
        // A real collector looks a little later; nobody can tell the difference but by a race.
        if !any_exists {
            self.delete_object(
                state,
                &scope.resource,
                &scope.key(),
                &stored.clone(),
                &DeleteOptions::background(),
            );
        }
    }

    /// Deletes everything in a namespace, then lets it go.
    fn empty_namespace(&self, state: &mut State, namespace: &str) {
        let storages: Vec<(String, String)> = state.collections.keys().cloned().collect();
        for storage in storages {
            let found: Vec<(Key, Arc<Stored>)> = state.collections[&storage]
                .objects
                .range((namespace.to_owned(), String::new())..)
                .take_while(|(key, _)| key.0 == namespace)
                .map(|(key, stored)| (key.clone(), stored.clone()))
                .collect();
            for (key, stored) in found {
                if let Some(resource) = resource_of(state, &stored.value)
                    && state.stored(&storage, &key).is_some()
                {
                    self.delete_object(state, &resource, &key, &stored, &DeleteOptions::background());
                }
            }
        }
        self.release_namespace(state, namespace);
    }

    /// A terminating namespace goes once nothing is left in it.
    fn release_namespace(&self, state: &mut State, namespace: &str) {
        let storage = (String::new(), "namespaces".to_owned());
        let key = (String::new(), namespace.to_owned());
        let Some(stored) = state.stored(&storage, &key) else {
            return;
        };
        if stored.value["metadata"]["deletionTimestamp"].is_null() {
            return;
        }
        let occupied = state.collections.values().any(|collection| {
            collection
                .objects
                .range((namespace.to_owned(), String::new())..)
                .next()
                .is_some_and(|(key, _)| key.0 == namespace)
        });
        if occupied {
            return;
        }
        let mut value = stored.value.clone();
        if let Some(spec) = value["spec"].as_object_mut() {
            spec.remove("finalizers");
        }
        let Some(resource) = state.registry.find("", "v1", "namespaces") else {
            return;
        };
        let scope = Scope {
            resource,
            namespace: String::new(),
            name: namespace.to_owned(),
        };
        self.commit_update(state, &scope, value);
    }

    /// With a definition go its objects, whatever their finalizers: nobody could remove them any more.
    fn remove_definition(&self, state: &mut State, crd: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, plural) = (text(&crd["spec"]["group"]), text(&crd["spec"]["names"]["plural"]));
        let storage = (group.clone(), plural.clone());
        let found: Vec<(Key, Arc<Stored>)> = state
            .collections
            .get(&storage)
            .into_iter()
            .flat_map(|collection| &collection.objects)
            .map(|(key, stored)| (key.clone(), stored.clone()))
            .collect();
        for (key, stored) in found {
            if let Some(resource) = resource_of(state, &stored.value) {
                self.remove(state, &resource, &storage, &key, &stored);
            }
        }
        state.registry.uninstall(&group, &plural);
        state.compiled.remove(&storage);
        state.collections.remove(&storage);
    }
}

fn resource_of(state: &State, value: &Value) -> Option<Arc<Resource>> {
    state.registry.of_kind(
        value["apiVersion"].as_str().unwrap_or_default(),
        value["kind"].as_str().unwrap_or_default(),
    )
}

fn has_dependents(state: &State, uid: &str) -> bool {
    state.dependents.contains_key(uid)
}

fn add_finalizer(value: &mut Value, name: &str) {
    let finalizers = &mut value["metadata"]["finalizers"];
    if !finalizers.is_array() {
        *finalizers = json!([]);
    }
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|one| one == name)
    {
        list.push(json!(name));
    }
}

fn bump_generation(value: &mut Value) {
    if let Some(generation) = value["metadata"]["generation"].as_i64() {
        value["metadata"]["generation"] = json!(generation + 1);
    }
}

fn grace_left(value: &Value) -> i64 {
    value["metadata"]["deletionGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(0)
}

/// Only bound pods that still run get time to stop.
fn grace_seconds(resource: &Resource, value: &Value, options: &DeleteOptions) -> i64 {
    if !resource.is("", "pods") {
        return 0;
    }
    let bound = value["spec"]["nodeName"]
        .as_str()
        .is_some_and(|name| !name.is_empty());
    let ended = matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !bound || ended {
        return 0;
    }
    let own = value["spec"]["terminationGracePeriodSeconds"]
        .as_i64()
        .unwrap_or(30);
    options.grace_period_seconds.unwrap_or(own).max(0)
}
