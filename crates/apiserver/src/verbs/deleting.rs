//! Deletion: finalizers, namespaces and definitions that empty themselves, events whose time is up. Owners and dependents are in `collecting`.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::admission_policy::Attributes;
use crate::error::{ApiError, ApiResult};
use crate::store::expiring::EVENTS;
use crate::store::objects::{Key, Stored};
use crate::store::registry::Resource;
use crate::store::state::{ApiServer, Scope, State};
use crate::verbs::answer::Answer;
use crate::verbs::delete_options::{DeleteOptions, FOREGROUND, ORPHAN, Propagation};
use crate::verbs::grace::begin_grace;
use crate::verbs::reading::Filter;
use crate::verbs::writing::seconds;
use crate::verbs::{accounts, definitions};
use crate::wire::request::Request;

/// Events that one request takes away are at most this part of the history: a tenth.
const EXPIRED_SHARE: usize = 10;

impl ApiServer {
    pub(crate) fn delete(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let options = DeleteOptions::of(request)?;
        let stored = state.find(scope)?;
        warn_of_orphans(state, &scope.resource, &options);
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
            let problem = "this namespace may not be deleted";
            return Err(ApiError::forbidden("", "namespaces", &scope.name, problem));
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
        warn_of_orphans(state, &scope.resource, &options);
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
    pub(super) fn delete_object(
        &self,
        state: &mut State,
        resource: &Arc<Resource>,
        key: &Key,
        stored: &Arc<Stored>,
    ) {
        let outcome = outcome(resource, stored, &DeleteOptions::background(), self.now());
        self.carry_out(state, resource, key, stored, outcome);
    }

    /// Stores what a deletion makes of an object and follows up. Returns the version that the client is shown.
    pub(super) fn carry_out(
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

    /// Takes away events that have been there for their time, when somebody asks for any. A crowd of them goes in several requests, as leases run
    /// out one by one on a real server: who watches and keeps up must find each deletion in the history.
    pub(crate) fn expire(&self, state: &mut State, resource: &Resource) {
        let (group, plural) = EVENTS;
        if resource.plural != plural {
            return;
        }
        let storage = (group.to_owned(), plural.to_owned());
        let now = self.now();
        let most = state.history_limit / EXPIRED_SHARE;
        for _ in 0..most {
            let Some((key, revision)) = state.expiring.next_due(now) else {
                return;
            };
            // One that was written since has more time.
            let stored = state.stored(&storage, &key);
            if let Some(stored) = stored.filter(|stored| stored.revision == revision)
                && let Some(resource) = resource_of(state, &storage, &stored.value)
            {
                self.remove(state, &resource, &storage, &key, &stored);
            }
        }
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
        self.release_owners(state, &gone.value);
        if !key.0.is_empty() {
            self.release_namespace(state, &key.0);
        }
        if accounts::is_default(storage, &key.1) {
            self.keep_default_account(state, &key.0);
        }
        if resource.custom().is_some() {
            self.release_definition(state, storage);
        }
        gone
    }

    /// Removes a finalizer; the object is removed if it was the last and deletion was requested.
    pub(super) fn drop_finalizer(
        &self,
        state: &mut State,
        storage: &(String, String),
        key: &Key,
        name: &str,
    ) {
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

/// Says what else would become of the pods of Jobs, as a real server does.
fn warn_of_orphans(state: &mut State, resource: &Resource, options: &DeleteOptions) {
    if resource.is("batch", "jobs") && options.propagation.is_none() {
        state.warnings.push(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"
                .to_owned(),
        );
    }
}

/// Kinds that leave their pods behind where nobody says otherwise: they had clients before there was a garbage collector.
fn orphans_by_default(resource: &Resource) -> bool {
    resource.is("batch", "jobs") || resource.is("", "replicationcontrollers")
}

/// What a deletion makes of an object.
pub(super) struct NextState {
    value: Value,
    /// True when nothing holds it.
    gone: bool,
}

pub(super) fn outcome(
    resource: &Resource,
    stored: &Stored,
    options: &DeleteOptions,
    now: Timestamp,
) -> NextState {
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
        None if orphans_by_default(resource) && !has_finalizer(&value, FOREGROUND) => {
            add_finalizer(&mut value, ORPHAN);
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

pub(super) fn resource_of(state: &State, storage: &(String, String), value: &Value) -> Option<Arc<Resource>> {
    state
        .registry
        .of_storage(storage, value["apiVersion"].as_str().unwrap_or_default())
}

pub(super) fn has_finalizer(value: &Value, name: &str) -> bool {
    value["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|list| list.iter().any(|one| one == name))
}

pub(super) fn add_finalizer(value: &mut Value, name: &str) {
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
