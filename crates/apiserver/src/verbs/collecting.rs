//! Garbage collection: what becomes of objects whose owners go, or are not there, and of owners that wait for their dependents.
//!
//! A real collector runs a little later; the difference is visible only in races.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::store::objects::{Key, Stored};
use crate::store::registry::Resource;
use crate::store::state::{ApiServer, Place, Scope, State};
use crate::verbs::delete_options::{DeleteOptions, FOREGROUND, Propagation};
use crate::verbs::deleting::{has_finalizer, outcome, resource_of};

impl ApiServer {
    /// Dependents all of whose owners are gone (or going in the foreground) are deleted; those that another one keeps lose the reference.
    pub(super) fn delete_dependents(&self, state: &mut State, uid: &str, propagation: Propagation) {
        for (storage, key) in places_of_dependents(state, uid) {
            let Some(stored) = state.stored(&storage, &key) else {
                continue;
            };
            let Some(resource) = resource_of(state, &storage, &stored.value) else {
                continue;
            };
            match owners(state, &stored.value) {
                Owners::Unknown => {}
                Owners::Keep => {
                    state.commit(&storage, &key, without_owner(&stored.value, uid), false);
                }
                Owners::Gone if !is_going(&stored.value) => match propagation {
                    Propagation::Foreground => self.delete_in_turn(state, &resource, &key, &stored),
                    _ => self.delete_object(state, &resource, &key, &stored),
                },
                Owners::Gone => {}
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

    pub(super) fn orphan(&self, state: &mut State, uid: &str) {
        for (storage, key) in places_of_dependents(state, uid) {
            if let Some(stored) = state.stored(&storage, &key) {
                state.commit(&storage, &key, without_owner(&stored.value, uid), false);
            }
        }
    }

    /// An owner in foreground deletion is removed once no dependent blocks it.
    pub(super) fn release_foreground(&self, state: &mut State, storage: &(String, String), key: &Key) {
        let Some(stored) = state.stored(storage, key) else {
            return;
        };
        if !has_finalizer(&stored.value, FOREGROUND) {
            return;
        }
        let blocks = |dependent: &Stored| {
            references(&dependent.value)
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

    /// Removes the owners that waited for nothing but this object.
    pub(super) fn release_owners(&self, state: &mut State, object: &Value) {
        for owner in references(object) {
            let place = owner["uid"].as_str().and_then(|uid| state.by_uid.get(uid));
            if let Some((storage, key)) = place.cloned() {
                self.release_foreground(state, &storage, &key);
            }
        }
    }

    /// An object whose owners are all deleted, or going in the foreground, is deleted too.
    pub(crate) fn collect_if_orphaned(&self, state: &mut State, scope: &Scope, stored: &Arc<Stored>) {
        let is_owned = references(&stored.value).next().is_some();
        if is_owned && !is_going(&stored.value) && owners(state, &stored.value) == Owners::Gone {
            self.delete_object(state, &scope.resource, &scope.key(), stored);
        }
    }

    /// Follows up on an update that gave an object other owners: those that it held may go, and so may the object itself.
    pub(crate) fn follow_owners(&self, state: &mut State, scope: &Scope, old: &Value, new: &Stored) {
        if old["metadata"]["ownerReferences"] == new.value["metadata"]["ownerReferences"] {
            return;
        }
        self.release_owners(state, old);
        // It is gone if this took its last finalizer off.
        if let Some(stored) = state.stored(&scope.resource.storage(), &scope.key()) {
            self.collect_if_orphaned(state, scope, &stored);
        }
    }
}

/// What a collector finds of an object's owners.
#[derive(Debug, PartialEq, Eq)]
enum Owners {
    /// One is there and keeps the object.
    Keep,
    /// None is.
    Gone,
    /// A collector cannot look for one of them, and does nothing.
    Unknown,
}

fn owners(state: &State, object: &Value) -> Owners {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let mut found = Owners::Gone;
    for reference in references(object) {
        match owner(state, namespace, reference) {
            // One that goes in the foreground waits for its dependents: it keeps none of them.
            Some(owner) if is_going(&owner.value) && has_finalizer(&owner.value, FOREGROUND) => {}
            Some(_) => found = Owners::Keep,
            None if can_be_looked_for(state, namespace, reference) => {}
            None => return Owners::Unknown,
        }
    }
    found
}

/// The object that a reference means: the very one, of that kind and name, in the namespace of the dependent or in none.
fn owner(state: &State, namespace: &str, reference: &Value) -> Option<Arc<Stored>> {
    let (storage, key) = state.by_uid.get(reference["uid"].as_str()?)?;
    let is_near = key.0.is_empty() || key.0 == namespace;
    let (group, _) = group_and_version(reference);
    if !is_near || reference["name"] != key.1 || group != storage.0 {
        return None;
    }
    let owner = state.stored(storage, key)?;
    (owner.value["kind"] == reference["kind"]).then_some(owner)
}

/// Whether an owner that was not found can be said to be absent: the cluster has its kind, and there is a namespace to look in if the kind needs one.
fn can_be_looked_for(state: &State, namespace: &str, reference: &Value) -> bool {
    let (group, version) = group_and_version(reference);
    let kind = reference["kind"].as_str().unwrap_or_default();
    let resource = state.registry.of_kind(group, version, kind);
    resource.is_some_and(|resource| !resource.namespaced || !namespace.is_empty())
}

fn group_and_version(reference: &Value) -> (&str, &str) {
    let api_version = reference["apiVersion"].as_str().unwrap_or_default();
    api_version.split_once('/').unwrap_or(("", api_version))
}

fn references(object: &Value) -> impl Iterator<Item = &Value> {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten()
}

fn is_going(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn places_of_dependents(state: &State, uid: &str) -> Vec<Place> {
    state.dependents.get(uid).into_iter().flatten().cloned().collect()
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
