//! Deployments: one ReplicaSet a template, rolled over within maxSurge and maxUnavailable.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_runtime::{Api, ObjectKey, ReconcileError, Requeue};

use super::deployment_status::status;
use super::rollout::{self, Limits, Side};
use super::{template_hash, write_status};
use crate::objects::{is_deleting, name, namespace, owner, uid};
use crate::world::{World, is_race};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";

pub(super) async fn sync(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(deployment) = world.deployments.get(&key) else {
        return Ok(Requeue::Done);
    };
    if is_deleting(&deployment.metadata) {
        return Ok(Requeue::Done);
    }
    let mut sets = world.replica_sets_by_owner.get(uid(&deployment.metadata));
    sets.sort_by_key(|set| (revision(set), name(&set.metadata).to_owned()));
    let hash = template_hash(&deployment.spec.template);
    let new_name = format!("{}-{hash}", name(&deployment.metadata));
    let newest = sets.iter().find(|set| name(&set.metadata) == new_name).cloned();
    if newest.is_none() && deployment.spec.paused != Some(true) {
        return create_set(
            &world,
            &deployment,
            &hash,
            &new_name,
            sets.iter().map(|set| revision(set)).max().unwrap_or(0) + 1,
        )
        .await;
    }
    if let Some(newest) = &newest
        && keep_up(&world, &deployment, newest, &sets).await?
    {
        return Ok(Requeue::After(std::time::Duration::ZERO));
    }
    if deployment.spec.paused == Some(true) {
        resize(&world, &deployment, &sets).await?;
    } else if let Some(newest) = &newest {
        roll(&world, &deployment, newest, &sets).await?;
    }
    if let Some(newest) = &newest {
        prune(&world, &deployment, newest, &sets).await?;
    }
    let sets = world.replica_sets_by_owner.get(uid(&deployment.metadata));
    let (status, again) = status(world.clock.now(), &deployment, &new_name, &sets);
    let before = serde_json::to_value(&deployment.status).unwrap_or(Value::Null);
    write_status(&world, &world.deployments, &*deployment, &before, status).await?;
    Ok(again)
}

fn revision(set: &ReplicaSet) -> i64 {
    set.metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(REVISION))
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.replicas.unwrap_or(1)
}

async fn create_set(
    world: &World,
    deployment: &Deployment,
    hash: &str,
    set_name: &str,
    revision: i64,
) -> Result<Requeue, ReconcileError> {
    let mut template = deployment.spec.template.clone();
    let labels: &mut BTreeMap<String, String> = template
        .metadata
        .get_or_insert_default()
        .labels
        .get_or_insert_default();
    labels.insert(HASH.to_owned(), hash.to_owned());
    let mut selector = deployment.spec.selector.clone();
    selector
        .match_labels
        .get_or_insert_default()
        .insert(HASH.to_owned(), hash.to_owned());
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": set_name, "namespace": namespace(&deployment.metadata), "labels": template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()),
            "annotations": {REVISION: revision.to_string()}, "ownerReferences": [owner("apps/v1", "Deployment", &deployment.metadata)],
        },
        "spec": {"replicas": 0, "minReadySeconds": deployment.spec.min_ready_seconds, "selector": selector, "template": template},
    });
    let set: ReplicaSet = serde_json::from_value(set)?;
    let api: Api<ReplicaSet> = Api::namespaced(world.client.clone(), namespace(&deployment.metadata));
    match api.create(&PostParams::default(), &set).await {
        Ok(created) => world.replica_sets.note_written(created),
        Err(error) if is_race(&error) => {}
        Err(error) => return Err(Box::new(error)),
    }
    write_revision(world, deployment, &revision.to_string()).await?;
    Ok(Requeue::After(std::time::Duration::ZERO))
}

async fn write_revision(
    world: &World,
    deployment: &Deployment,
    revision: &str,
) -> Result<(), ReconcileError> {
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), namespace(&deployment.metadata));
    let patch = json!({"metadata": {"annotations": {REVISION: revision}}});
    match deployments
        .patch(
            name(&deployment.metadata),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(written) => world.deployments.note_written(written),
        Err(error) if is_race(&error) => {}
        Err(error) => return Err(Box::new(error)),
    }
    Ok(())
}

/// Writes to the newest set what its Deployment owes it: the highest revision, also when it was an older one before (`kubectl rollout undo`),
/// and `minReadySeconds`, which is no part of the template. Whether anything had to be written.
async fn keep_up(
    world: &World,
    deployment: &Deployment,
    newest: &ReplicaSet,
    sets: &[Arc<ReplicaSet>],
) -> Result<bool, ReconcileError> {
    let Some(patch) = owed(deployment, newest, sets) else {
        let current = revision(newest).to_string();
        let annotations = deployment.metadata.annotations.as_ref();
        if annotations.and_then(|annotations| annotations.get(REVISION)) == Some(&current) {
            return Ok(false);
        }
        write_revision(world, deployment, &current).await?;
        return Ok(true);
    };
    let api: Api<ReplicaSet> = Api::namespaced(world.client.clone(), namespace(&newest.metadata));
    match api
        .patch(
            name(&newest.metadata),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await
    {
        Ok(written) => world.replica_sets.note_written(written),
        Err(error) if is_race(&error) => {}
        Err(error) => return Err(Box::new(error)),
    }
    Ok(true)
}

/// The change that the newest set needs, if any.
fn owed(deployment: &Deployment, newest: &ReplicaSet, sets: &[Arc<ReplicaSet>]) -> Option<Value> {
    let others = sets
        .iter()
        .filter(|set| name(&set.metadata) != name(&newest.metadata));
    let number = revision(newest).max(others.map(|set| revision(set)).max().unwrap_or(0) + 1);
    let min_ready = deployment.spec.min_ready_seconds.unwrap_or(0);
    let mut patch = json!({"metadata": {"resourceVersion": newest.metadata.resource_version}});
    let mut needed = false;
    if number != revision(newest) {
        patch["metadata"]["annotations"] = json!({REVISION: number.to_string()});
        needed = true;
    }
    if min_ready != newest.spec.min_ready_seconds.unwrap_or(0) {
        patch["spec"] = json!({"minReadySeconds": min_ready});
        needed = true;
    }
    needed.then_some(patch)
}

/// Moves replicas from the old sets to the newest one.
async fn roll(
    world: &World,
    deployment: &Deployment,
    newest: &ReplicaSet,
    sets: &[Arc<ReplicaSet>],
) -> Result<(), ReconcileError> {
    let old: Vec<&Arc<ReplicaSet>> = sets
        .iter()
        .filter(|set| name(&set.metadata) != name(&newest.metadata))
        .collect();
    let sides: Vec<Side> = old.iter().map(|set| Side::of(set)).collect();
    let (of_newest, of_old) = rollout::next(&Limits::of(deployment), Side::of(newest), &sides);
    scale(world, newest, of_newest).await?;
    for (set, wanted) in old.into_iter().zip(of_old) {
        scale(world, set, wanted).await?;
    }
    Ok(())
}

/// A paused Deployment still follows its number of replicas.
async fn resize(
    world: &World,
    deployment: &Deployment,
    sets: &[Arc<ReplicaSet>],
) -> Result<(), ReconcileError> {
    let sides: Vec<Side> = sets.iter().map(|set| Side::of(set)).collect();
    let resized = rollout::resized(&Limits::of(deployment), &sides);
    for (set, wanted) in sets.iter().zip(resized) {
        scale(world, set, wanted).await?;
    }
    Ok(())
}

async fn scale(world: &World, set: &ReplicaSet, wanted: i32) -> Result<(), ReconcileError> {
    if replicas(set) == wanted {
        return Ok(());
    }
    let api: Api<ReplicaSet> = Api::namespaced(world.client.clone(), namespace(&set.metadata));
    let patch =
        json!({"metadata": {"resourceVersion": set.metadata.resource_version}, "spec": {"replicas": wanted}});
    match api
        .patch(name(&set.metadata), &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Ok(written) => world.replica_sets.note_written(written),
        Err(error) if is_race(&error) => {}
        Err(error) => return Err(Box::new(error)),
    }
    Ok(())
}

/// Old sets beyond the history limit go.
async fn prune(
    world: &World,
    deployment: &Deployment,
    newest: &ReplicaSet,
    sets: &[Arc<ReplicaSet>],
) -> Result<(), ReconcileError> {
    let limit = usize::try_from(deployment.spec.revision_history_limit.unwrap_or(10)).unwrap_or(10);
    let empty: Vec<&Arc<ReplicaSet>> = sets
        .iter()
        .filter(|set| {
            name(&set.metadata) != name(&newest.metadata)
                && replicas(set) == 0
                && set.status.as_ref().is_none_or(|status| status.replicas == 0)
        })
        .collect();
    for set in empty.iter().take(empty.len().saturating_sub(limit)) {
        let api: Api<ReplicaSet> = Api::namespaced(world.client.clone(), namespace(&set.metadata));
        match api.delete(name(&set.metadata), &DeleteParams::default()).await {
            Ok(_) => {}
            Err(error) if is_race(&error) => {}
            Err(error) => return Err(Box::new(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(set_name: &str, number: &str) -> Arc<ReplicaSet> {
        let object = json!({"metadata": {"name": set_name, "annotations": {REVISION: number}}, "spec": {"selector": {}}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn deployment(min_ready: Option<i32>) -> Deployment {
        let object = json!({"metadata": {"name": "web"}, "spec": {"selector": {}, "template": {}, "minReadySeconds": min_ready}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_set_that_is_the_newest_again_gets_the_next_revision() {
        let sets = [set("a", "1"), set("b", "2"), set("c", "3")];
        let next = |newest: &ReplicaSet| {
            let patch = owed(&deployment(None), newest, &sets)?;
            patch["metadata"]["annotations"][REVISION]
                .as_str()
                .map(str::to_owned)
        };
        assert_eq!(next(&sets[0]).as_deref(), Some("4"));
        assert_eq!(next(&sets[1]).as_deref(), Some("4"));
        assert_eq!(next(&sets[2]), None, "it has the highest");
        assert_eq!(owed(&deployment(None), &set("c", "7"), &sets), None);
    }

    #[test]
    fn min_ready_seconds_reach_the_newest_set() {
        let sets = [set("a", "1")];
        let patch = owed(&deployment(Some(30)), &sets[0], &sets).unwrap();
        assert_eq!(patch["spec"], json!({"minReadySeconds": 30}));
        assert_eq!(patch["metadata"].get("annotations"), None);
        assert_eq!(owed(&deployment(Some(0)), &sets[0], &sets), None);
    }
}
