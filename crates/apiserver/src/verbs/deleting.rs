//! Deletion: finalizers, owners and dependents, and namespaces that empty themselves.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::admission_policy::Attributes;
use crate::error::{ApiError, ApiResult};
use crate::store::objects::{Key, Stored};
use crate::store::registry::Resource;
use crate::store::state::{ApiServer, Place, Scope, State};
use crate::verbs::answer::Answer;
use crate::verbs::definitions;
use crate::verbs::delete_options::{DeleteOptions, FOREGROUND, ORPHAN, Propagation};
use crate::verbs::grace::begin_grace;
use crate::verbs::reading::Filter;
use crate::verbs::writing::seconds;
use crate::wire::request::Request;

impl ApiServer {
    pub(crate) fn delete(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let options = DeleteOptions::of(request)?;
        let stored = state.find(scope)?;
        options.check(scope, &stored)?;
        self.admit_deletion(state, scope, &scope.key(), &stored, options.dry_run)?;
        self.delete_checked(state, request, scope, &stored, &options)
    }

    fn admit_deletion(
        &self,
        state: &mut State,
        scope: &Scope,
        key: &Key,
        stored: &Stored,
        dry_run: bool,
    ) -> ApiResult<()> {
        let namespace = if scope.resource.is("", "namespaces") {
            &key.1
        } else {
            &key.0
        };
        let attributes = Attributes {
            operation: "DELETE",
            resource: &scope.resource,
            subresource: "",
            namespace,
            name: &key.1,
            object: None,
            old: Some(&stored.value),
            dry_run,
        };
        self.admit(state, &attributes)
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
        let outcome = outcome(&scope.resource, stored, options, self.now());
        let gone = outcome.gone && !returns_deleted(&scope.resource);
        let shown = if options.dry_run {
            Stored::new(outcome.value, stored.revision)
        } else {
            self.carry_out(state, &scope.resource, &scope.key(), stored, outcome)
        };
        if gone {
            let mut details = json!({"name": scope.name, "kind": scope.resource.plural, "uid": stored.uid()});
            if !scope.resource.group.is_empty() {
                details["group"] = json!(scope.resource.group);
            }
            return Ok(Answer::ok(json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            })));
        }
        Ok(self.show(request, &scope.resource, &shown))
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
        let chosen: Vec<(Key, Arc<Stored>)> = filter
            .range(&state.collection(&storage).objects)
            .filter(|(key, stored)| filter.matches(key, &stored.value))
            .map(|(key, stored)| (key.clone(), stored.clone()))
            .collect();
        let mut shown = Vec::new();
        for (key, stored) in chosen {
            self.admit_deletion(state, scope, &key, &stored, options.dry_run)?;
            let outcome = outcome(&scope.resource, &stored, &options, self.now());
            // Something deleted before may have taken this one along.
            if options.dry_run || state.stored(&storage, &key).is_none() {
                shown.push((key, stored));
            } else {
                let after = self.carry_out(state, &scope.resource, &key, &stored, outcome);
                shown.push((key, after));
            }
        }
        let items: Vec<(&Key, &Arc<Stored>)> = shown.iter().map(|(key, stored)| (key, stored)).collect();
        Ok(self.show_list(
            request,
            &scope.resource,
            &items,
            &json!({"resourceVersion": state.revision.to_string()}),
        ))
    }

    /// Deletes an object in the background, as collectors do.
    fn delete_object(&self, state: &mut State, resource: &Arc<Resource>, key: &Key, stored: &Arc<Stored>) {
        let outcome = outcome(resource, stored, &DeleteOptions::background(), self.now());
        self.carry_out(state, resource, key, stored, outcome);
    }

    /// Stores what a deletion makes of an object and follows up. Returns the version that the client is shown.
    fn carry_out(
        &self,
        state: &mut State,
        resource: &Arc<Resource>,
        key: &Key,
        stored: &Arc<Stored>,
        outcome: NextState,
    ) -> Arc<Stored> {
        let storage = resource.storage();
        if outcome.gone {
            let last = Stored::new(outcome.value, state.revision);
            return self.remove(state, resource, &storage, key, &last);
        }
        let after = if outcome.value == stored.value {
            stored.clone()
        } else {
            state.commit(&storage, key, outcome.value, false)
        };
        if has_finalizer(&after.value, ORPHAN) {
            self.orphan(state, after.uid());
            self.drop_finalizer(state, &storage, key, ORPHAN);
        } else if has_finalizer(&after.value, FOREGROUND) {
            self.delete_dependents(state, after.uid(), Propagation::Foreground);
            self.release_foreground(state, &storage, key);
        }
        if resource.is("", "namespaces") {
            self.empty_namespace(state, &key.1);
        } else if definitions::is_definition(resource) {
            self.empty_definition(state, &after.value);
        }
        after
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
        if definitions::is_definition(resource) {
            retire_definition(state, &gone.value);
        }
        self.delete_dependents(state, gone.uid(), Propagation::Background);
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
        if resource.custom().is_some() {
            self.release_definition(state, storage);
        }
        gone
    }

    /// Dependents all of whose owners are gone (or going in the foreground) are deleted; others lose the reference.
    fn delete_dependents(&self, state: &mut State, uid: &str, propagation: Propagation) {
        for (storage, key) in places_of_dependents(state, uid) {
            let Some(stored) = state.stored(&storage, &key) else {
                continue;
            };
            let Some(resource) = resource_of(state, &storage, &stored.value) else {
                continue;
            };
            if is_kept(state, &stored.value) {
                state.commit(&storage, &key, without_owner(&stored.value, uid), false);
            } else if stored.value["metadata"]["deletionTimestamp"].is_null() {
                match propagation {
                    Propagation::Foreground => self.delete_in_turn(state, &resource, &key, &stored),
                    _ => self.delete_object(state, &resource, &key, &stored),
                }
            }
        }
    }

    /// Deletes a dependent of an owner that waits for it: it waits for its own dependents, so that the owner goes last.
    fn delete_in_turn(&self, state: &mut State, resource: &Arc<Resource>, key: &Key, stored: &Arc<Stored>) {
        let own = places_of_dependents(state, stored.uid());
        // Nothing here protects the claims of a pod while it runs: they go after it.
        if own.is_empty() || resource.is("", "pods") {
            return self.delete_object(state, resource, key, stored);
        }
        let mut stored = stored.clone();
        let mut found = own.iter().filter_map(|(storage, key)| state.stored(storage, key));
        // In a circle of owners, each would wait for another.
        if found.any(|dependent| has_finalizer(&dependent.value, FOREGROUND)) {
            let mut value = stored.value.clone();
            let owners = value["metadata"]["ownerReferences"].as_array_mut();
            for owner in owners.into_iter().flatten() {
                owner["blockOwnerDeletion"] = json!(false);
            }
            stored = state.commit(&resource.storage(), key, value, false);
        }
        let options = DeleteOptions {
            propagation: Some(Propagation::Foreground),
            ..DeleteOptions::background()
        };
        let outcome = outcome(resource, &stored, &options, self.now());
        self.carry_out(state, resource, key, &stored, outcome);
    }

    fn orphan(&self, state: &mut State, uid: &str) {
        for (storage, key) in places_of_dependents(state, uid) {
            if let Some(stored) = state.stored(&storage, &key) {
                state.commit(&storage, &key, without_owner(&stored.value, uid), false);
            }
        }
    }

    /// An owner in foreground deletion is removed once no dependent blocks it.
    fn release_foreground(&self, state: &mut State, storage: &(String, String), key: &Key) {
        let Some(stored) = state.stored(storage, key) else {
            return;
        };
        if !has_finalizer(&stored.value, FOREGROUND) {
            return;
        }
        let blocks = |dependent: &Stored| {
            let owners = dependent.value["metadata"]["ownerReferences"].as_array();
            owners
                .into_iter()
                .flatten()
                .any(|owner| owner["uid"] == stored.uid() && owner["blockOwnerDeletion"] == true)
        };
        let dependents = state.dependents.get(stored.uid());
        let blocked = dependents.into_iter().flatten().any(|(storage, key)| {
            state
                .stored(storage, key)
                .is_some_and(|dependent| blocks(&dependent))
        });
        if !blocked {
            self.drop_finalizer(state, storage, key, FOREGROUND);
        }
    }

    /// Removes a finalizer; the object is removed if it was the last and deletion was requested.
    fn drop_finalizer(&self, state: &mut State, storage: &(String, String), key: &Key, name: &str) {
        let Some(stored) = state.stored(storage, key) else {
            return;
        };
        let Some(resource) = resource_of(state, storage, &stored.value) else {
            return;
        };
        let mut value = stored.value.clone();
        remove_finalizer(&mut value, name);
        let scope = Scope {
            resource,
            namespace: key.0.clone(),
            name: key.1.clone(),
        };
        self.commit_update(state, &scope, value);
    }

    /// A new object whose owners are all deleted, or going in the foreground, is deleted too.
    pub(crate) fn collect_if_orphaned(&self, state: &mut State, scope: &Scope, stored: &Arc<Stored>) {
        let owners = stored.value["metadata"]["ownerReferences"].as_array();
        let is_owned = owners.is_some_and(|owners| !owners.is_empty());
        // A real collector runs a little later; the difference is visible only in races.
        if is_owned && !is_kept(state, &stored.value) {
            self.delete_object(state, &scope.resource, &scope.key(), stored);
        }
    }

    /// Deletes everything in a namespace, then lets it go.
    fn empty_namespace(&self, state: &mut State, namespace: &str) {
        let storages: Vec<(String, String)> = state.collections.keys().cloned().collect();
        for storage in storages {
            let first = (namespace.to_owned(), String::new());
            let objects = state
                .collections
                .get(&storage)
                .into_iter()
                .flat_map(|collection| collection.objects.range(first.clone()..));
            let keys: Vec<Key> = objects
                .take_while(|(key, _)| key.0 == namespace)
                .map(|(key, _)| key.clone())
                .collect();
            self.delete_all(state, &storage, &keys);
        }
        self.release_namespace(state, namespace);
    }

    fn delete_all(&self, state: &mut State, storage: &(String, String), keys: &[Key]) {
        for key in keys {
            if let Some(stored) = state.stored(storage, key)
                && let Some(resource) = resource_of(state, storage, &stored.value)
            {
                self.delete_object(state, &resource, key, &stored);
            }
        }
    }

    /// A terminating namespace is removed once it is empty.
    fn release_namespace(&self, state: &mut State, namespace: &str) {
        let storage = (String::new(), "namespaces".to_owned());
        let key = (String::new(), namespace.to_owned());
        let Some(stored) = state.stored(&storage, &key) else {
            return;
        };
        if stored.value["metadata"]["deletionTimestamp"].is_null() {
            return;
        }
        let first = (namespace.to_owned(), String::new());
        let occupied = state.collections.values().any(|collection| {
            collection
                .objects
                .range(first.clone()..)
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

    /// Deletes the objects of a definition that is on its way out, then lets it go.
    fn empty_definition(&self, state: &mut State, definition: &Value) {
        let storage = definitions::storage_of(definition);
        let keys: Vec<Key> = state
            .collections
            .get(&storage)
            .into_iter()
            .flat_map(|collection| collection.objects.keys().cloned())
            .collect();
        self.delete_all(state, &storage, &keys);
        self.release_definition(state, &storage);
    }

    /// A terminating CRD is removed once no object of its kind is left.
    fn release_definition(&self, state: &mut State, (group, plural): &(String, String)) {
        let storage = (
            "apiextensions.k8s.io".to_owned(),
            "customresourcedefinitions".to_owned(),
        );
        let key = (String::new(), format!("{plural}.{group}"));
        let Some(definition) = state.stored(&storage, &key) else {
            return;
        };
        let occupied = state
            .collections
            .get(&(group.clone(), plural.clone()))
            .is_some_and(|collection| !collection.objects.is_empty());
        if !definition.value["metadata"]["deletionTimestamp"].is_null() && !occupied {
            self.drop_finalizer(state, &storage, &key, definitions::CLEANUP);
        }
    }
}

/// What a deletion makes of an object.
struct NextState {
    value: Value,
    /// True when nothing holds it.
    gone: bool,
}

fn outcome(resource: &Resource, stored: &Stored, options: &DeleteOptions, now: Timestamp) -> NextState {
    let mut value = stored.value.clone();
    let waits = resource.is("", "pods") && begin_grace(&mut value, options, now);
    match options.propagation {
        Some(Propagation::Orphan) => {
            remove_finalizer(&mut value, FOREGROUND);
            add_finalizer(&mut value, ORPHAN);
        }
        Some(Propagation::Foreground) => {
            remove_finalizer(&mut value, ORPHAN);
            add_finalizer(&mut value, FOREGROUND);
        }
        Some(Propagation::Background) => {
            remove_finalizer(&mut value, FOREGROUND);
            remove_finalizer(&mut value, ORPHAN);
        }
        None => {}
    }
    let namespace = resource.is("", "namespaces");
    let has_content = namespace
        && value["spec"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
    let held = has_content
        || value["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
    if held && value["metadata"]["deletionTimestamp"].is_null() {
        value["metadata"]["deletionTimestamp"] = json!(seconds(now));
        if !namespace {
            value["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        }
        bump_generation(&mut value);
    }
    if namespace {
        value["status"]["phase"] = json!("Terminating");
    }
    NextState {
        value,
        gone: !held && !waits,
    }
}

/// Kinds whose deletion answers with the object; others answer with a Status.
fn returns_deleted(resource: &Resource) -> bool {
    match resource.group.as_str() {
        "" => matches!(
            resource.plural.as_str(),
            "pods"
                | "services"
                | "persistentvolumeclaims"
                | "persistentvolumes"
                | "serviceaccounts"
                | "podtemplates"
                | "resourcequotas"
                | "namespaces"
        ),
        "resource.k8s.io" => true,
        "storage.k8s.io" => resource.plural != "csistoragecapacities",
        _ => false,
    }
}

/// The paths of a CRD are removed with it, and so is its history: watches of an earlier CRD cannot be resumed.
fn retire_definition(state: &mut State, definition: &Value) {
    let storage = definitions::storage_of(definition);
    state.registry.uninstall(&storage.0, &storage.1);
    state.compiled.remove(&storage);
    state.collections.remove(&storage);
    state.retired.insert(storage, state.revision);
}

fn places_of_dependents(state: &State, uid: &str) -> Vec<Place> {
    state.dependents.get(uid).into_iter().flatten().cloned().collect()
}

/// Whether an owner keeps an object. One that goes in the foreground waits for its dependents: it keeps none of them.
fn is_kept(state: &State, object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let mut uids = owners
        .into_iter()
        .flatten()
        .filter_map(|owner| owner["uid"].as_str());
    uids.any(|uid| {
        let place = state.by_uid.get(uid);
        let owner = place.and_then(|(storage, key)| state.stored(storage, key));
        owner.is_some_and(|owner| {
            let is_going = !owner.value["metadata"]["deletionTimestamp"].is_null();
            !is_going || !has_finalizer(&owner.value, FOREGROUND)
        })
    })
}

fn resource_of(state: &State, storage: &(String, String), value: &Value) -> Option<Arc<Resource>> {
    state
        .registry
        .of_storage(storage, value["apiVersion"].as_str().unwrap_or_default())
}

fn without_owner(value: &Value, uid: &str) -> Value {
    let mut value = value.clone();
    if let Some(metadata) = value["metadata"].as_object_mut()
        && let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut)
    {
        owners.retain(|owner| owner["uid"] != uid);
        if owners.is_empty() {
            metadata.remove("ownerReferences");
        }
    }
    value
}

fn has_finalizer(value: &Value, name: &str) -> bool {
    value["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|list| list.iter().any(|one| one == name))
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

fn remove_finalizer(value: &mut Value, name: &str) {
    if let Some(metadata) = value["metadata"].as_object_mut()
        && let Some(list) = metadata.get_mut("finalizers").and_then(Value::as_array_mut)
    {
        list.retain(|one| one != name);
        if list.is_empty() {
            metadata.remove("finalizers");
        }
    }
}

/// Counts a change of what is wanted.
pub(super) fn bump_generation(value: &mut Value) {
    if let Some(generation) = value["metadata"]["generation"].as_i64() {
        value["metadata"]["generation"] = json!(generation + 1);
    }
}
