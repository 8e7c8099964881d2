//! Which pods are a ReplicaSet's: orphans that it selects are adopted, and pods that it does not select any more are released.
//!
//! Owns the references from pods to ReplicaSets once a pod is there. It makes no pod and deletes none.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use spokeshave_runtime::{Api, Change, ObjectKey, ReconcileError};

use super::is_active;
use crate::objects::{controller_of, is_deleting, name, namespace, owner, selects, uid};
use crate::world::{World, is_race};

fn controller(pod: &Pod) -> Option<&OwnerReference> {
    controller_of(&pod.metadata)
}

/// The controllers of a pod, now and, where that was another one, before.
pub(super) fn controllers(change: &Change<Pod>) -> Vec<&OwnerReference> {
    let new = change.new.as_deref().and_then(controller);
    let old = change.old.as_deref().and_then(controller);
    let lost = old.filter(|old| new.is_none_or(|new| new.uid != old.uid));
    new.into_iter().chain(lost).collect()
}

/// The pod, if it has become one that no owner controls, or has got other labels as such.
pub(super) fn new_orphan(change: &Change<Pod>) -> Option<&Pod> {
    let pod = change.new.as_deref().filter(|pod| controller(pod).is_none())?;
    match change.old.as_deref() {
        Some(old) if controller(old).is_none() && old.metadata.labels == pod.metadata.labels => None,
        _ => Some(pod),
    }
}

/// Whether a ReplicaSet selects a pod by its labels.
pub(super) fn selects_pod(set: &ReplicaSet, pod: &Pod) -> bool {
    selects(Some(&set.spec.selector), pod.metadata.labels.as_ref())
}

/// Releases pods of a ReplicaSet that it does not select, and adopts orphans that it selects. Pods that have ended or are on their way out stay whose they are.
///
/// Whether all of that could be written: where another writer was faster, a pod may still be without its owner, or with one that it should not have.
pub(super) async fn settle(world: &World, set: &ReplicaSet) -> Result<bool, ReconcileError> {
    let mut all_written = true;
    let mut strangers = world.pods_by_owner.get(uid(&set.metadata));
    strangers.retain(|pod| is_active(pod) && !selects_pod(set, pod));
    for pod in &strangers {
        let mut owners = pod.metadata.owner_references.clone().unwrap_or_default();
        owners.retain(|owner| owner.uid != uid(&set.metadata));
        all_written &= write_owners(world, pod, &owners).await?;
    }
    if waits_for_its_number(world, set) {
        return Ok(all_written);
    }
    let mut orphans = world.orphans.get(namespace(&set.metadata));
    orphans.retain(|pod| is_active(pod) && selects_pod(set, pod));
    if orphans.is_empty() || !is_there(world, set).await? {
        return Ok(all_written);
    }
    for pod in &orphans {
        let mut owners = pod.metadata.owner_references.clone().unwrap_or_default();
        owners.push(owner("apps/v1", "ReplicaSet", &set.metadata));
        all_written &= write_owners(world, pod, &owners).await?;
    }
    Ok(all_written)
}

/// Whether a Deployment that wants pods has just made this set, without pods, and has not scaled it yet: what it adopted now, it would delete at once.
fn waits_for_its_number(world: &World, set: &ReplicaSet) -> bool {
    let is_as_made = set.spec.replicas == Some(0) && set.metadata.generation == Some(1);
    let Some(owner) = controller_of(&set.metadata).filter(|owner| is_as_made && owner.kind == "Deployment")
    else {
        return false;
    };
    let key = ObjectKey::namespaced(namespace(&set.metadata), &owner.name);
    let deployment = world.deployments.get(&key);
    deployment.is_some_and(|deployment| deployment.spec.replicas != Some(0))
}

/// Whether the server still has this ReplicaSet, and keeps it: what is known here may be older, and a set that has gone would take what it adopts along.
async fn is_there(world: &World, set: &ReplicaSet) -> Result<bool, ReconcileError> {
    let api: Api<ReplicaSet> = Api::namespaced(world.client.clone(), namespace(&set.metadata));
    let Some(found) = api.get_opt(name(&set.metadata)).await? else {
        return Ok(false);
    };
    Ok(found.metadata.uid == set.metadata.uid && !is_deleting(&found.metadata))
}

/// Writes the owners of a pod that nobody has changed in the meantime. Whether they were written.
async fn write_owners(world: &World, pod: &Pod, owners: &[OwnerReference]) -> Result<bool, ReconcileError> {
    let api: Api<Pod> = Api::namespaced(world.client.clone(), namespace(&pod.metadata));
    let metadata = json!({
        "uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version, "ownerReferences": owners,
    });
    let patch = Patch::Merge(json!({"metadata": metadata}));
    match api
        .patch(name(&pod.metadata), &PatchParams::default(), &patch)
        .await
    {
        Ok(written) => {
            world.pods.note_written(written);
            Ok(true)
        }
        Err(error) if is_race(&error) => Ok(false),
        Err(error) => Err(Box::new(error)),
    }
}
