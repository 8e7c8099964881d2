//! Deployments: one ReplicaSet a template, rolled over within maxSurge and maxUnavailable.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_runtime::{Api, ObjectKey, ReconcileError, Requeue};

use super::{template_hash, write_status};
use crate::objects::{is_deleting, name, namespace, owner, time, uid};
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
    if let Some(newest) = &newest {
        roll(&world, &deployment, newest, &sets).await?;
        prune(&world, &deployment, newest, &sets).await?;
    }
    let sets = world.replica_sets_by_owner.get(uid(&deployment.metadata));
    let status = status(&world, &deployment, &new_name, &sets);
    let before = serde_json::to_value(&deployment.status).unwrap_or(Value::Null);
    write_status(&world, &world.deployments, &*deployment, &before, status).await
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
        "spec": {"replicas": 0, "selector": selector, "template": template},
    });
    let set: ReplicaSet = serde_json::from_value(set)?;
    let api: Api<ReplicaSet> = Api::namespaced(world.client.clone(), namespace(&deployment.metadata));
    match api.create(&PostParams::default(), &set).await {
        Ok(created) => world.replica_sets.note_written(created),
        Err(error) if is_race(&error) => {}
        Err(error) => return Err(Box::new(error)),
    }
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), namespace(&deployment.metadata));
    let patch = json!({"metadata": {"annotations": {REVISION: revision.to_string()}}});
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
    Ok(Requeue::After(std::time::Duration::ZERO))
}

/// `maxSurge` rounds up, `maxUnavailable` down; at least one of them lets things move.
fn bounds(deployment: &Deployment, wanted: i32) -> (i32, i32) {
    let strategy = deployment.spec.strategy.as_ref();
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate") {
        return (0, wanted);
    }
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let of = |value: Option<&IntOrString>, up: bool| match value {
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(text)) => {
            let percent: i32 = text.trim_end_matches('%').parse().unwrap_or(25);
            if up {
                (wanted * percent + 99) / 100
            } else {
                wanted * percent / 100
            }
        }
        None if up => (wanted * 25 + 99) / 100,
        None => wanted * 25 / 100,
    };
    let surge = of(rolling.and_then(|rolling| rolling.max_surge.as_ref()), true);
    let unavailable = of(
        rolling.and_then(|rolling| rolling.max_unavailable.as_ref()),
        false,
    );
    if surge == 0 && unavailable == 0 {
        (0, 1)
    } else {
        (surge, unavailable)
    }
}

/// Moves replicas from the old sets to the newest one.
async fn roll(
    world: &World,
    deployment: &Deployment,
    newest: &ReplicaSet,
    sets: &[Arc<ReplicaSet>],
) -> Result<(), ReconcileError> {
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let (surge, unavailable) = bounds(deployment, wanted);
    let old: Vec<&Arc<ReplicaSet>> = sets
        .iter()
        .filter(|set| name(&set.metadata) != name(&newest.metadata))
        .collect();
    let recreate = deployment
        .spec
        .strategy
        .as_ref()
        .and_then(|strategy| strategy.type_.as_deref())
        == Some("Recreate");
    let old_total: i32 = old.iter().map(|set| replicas(set)).sum();
    let old_running: i32 = old
        .iter()
        .map(|set| set.status.as_ref().map_or(0, |status| status.replicas))
        .sum();
    let room = wanted + surge - old_total;
    let target = if recreate && old_running > 0 {
        0
    } else {
        room.clamp(0, wanted).max(replicas(newest).min(wanted))
    };
    scale(
        world,
        newest,
        if old_total == 0 && !(recreate && old_running > 0) {
            wanted
        } else {
            target
        },
    )
    .await?;
    let available: i32 = sets
        .iter()
        .map(|set| {
            set.status
                .as_ref()
                .and_then(|status| status.available_replicas)
                .unwrap_or(0)
        })
        .sum();
    let mut may_go = available - (wanted - unavailable);
    for set in old {
        let unready = replicas(set)
            - set
                .status
                .as_ref()
                .and_then(|status| status.available_replicas)
                .unwrap_or(0);
        let step = replicas(set).min(unready.max(0) + may_go.max(0));
        if step > 0 {
            may_go -= (step - unready.max(0)).max(0);
            scale(world, set, replicas(set) - step).await?;
        }
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

fn status(world: &World, deployment: &Deployment, newest: &str, sets: &[Arc<ReplicaSet>]) -> Value {
    let sum = |of: fn(&k8s_openapi::api::apps::v1::ReplicaSetStatus) -> i32| -> i32 {
        sets.iter().filter_map(|set| set.status.as_ref()).map(of).sum()
    };
    let total = sum(|status| status.replicas);
    let ready = sum(|status| status.ready_replicas.unwrap_or(0));
    let available = sum(|status| status.available_replicas.unwrap_or(0));
    let updated: i32 = sets
        .iter()
        .filter(|set| name(&set.metadata) == newest)
        .filter_map(|set| set.status.as_ref())
        .map(|status| status.replicas)
        .sum();
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let (_, unavailable) = bounds(deployment, wanted);
    let enough = available >= wanted - unavailable;
    let complete = updated == wanted && total == wanted && available == wanted;
    let now = time(world.clock.now());
    let known = deployment
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let condition = |kind: &str, holds: bool, reason: &str, message: String| {
        let state = if holds { "True" } else { "False" };
        let before = known.iter().find(|one| one.type_.as_deref() == Some(kind));
        let transition = before
            .filter(|one| one.status.as_deref() == Some(state))
            .and_then(|one| one.last_transition_time.clone())
            .unwrap_or_else(|| now.clone());
        let update = before
            .filter(|one| one.status.as_deref() == Some(state) && one.reason.as_deref() == Some(reason))
            .and_then(|one| one.last_update_time.clone())
            .unwrap_or_else(|| now.clone());
        json!({"type": kind, "status": state, "reason": reason, "message": message, "lastTransitionTime": transition, "lastUpdateTime": update})
    };
    let progress = if complete {
        (
            "NewReplicaSetAvailable",
            format!("ReplicaSet \"{newest}\" has successfully progressed."),
        )
    } else {
        (
            "ReplicaSetUpdated",
            format!("ReplicaSet \"{newest}\" is progressing."),
        )
    };
    let availability = if enough {
        ("MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        (
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    let number = |value: i32| if value == 0 { Value::Null } else { json!(value) };
    json!({
        "observedGeneration": deployment.metadata.generation,
        "replicas": number(total), "updatedReplicas": number(updated), "readyReplicas": number(ready), "availableReplicas": number(available),
        "unavailableReplicas": number((wanted - available).max(0)),
        "conditions": [condition("Progressing", true, progress.0, progress.1), condition("Available", enough, availability.0, availability.1.to_owned())],
    })
}
