//! Deployments: one ReplicaSet a template, rolled over within maxSurge and maxUnavailable.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use spokeshave_runtime::{Api, ObjectKey, ReconcileError, Requeue, Store};

use super::claims::{self, Claimant as _};
use super::deployment_status::{SET_REFUSED, refused, status};
use super::rollout::{self, DESIRED_REPLICAS, Limits, MAX_REPLICAS, Side, noted};
use super::{still, template_hash, write_status};
use crate::objects::{controller_of, has_ended, is_deleting, name, namespace, uid};
use crate::world::{World, ignore_races, is_namespace_ending, is_race, said};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
/// Revisions that a set has had before, and how long the list may be, in bytes.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const LONGEST_HISTORY: usize = 2000;
/// Annotations of a Deployment that its sets do not get.
const OWN_ANNOTATIONS: [&str; 6] = [
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
];

/// The Deployment that makes no pods before this one has ended.
pub(super) fn waiting_for(
    pod: &Pod,
    sets: &Store<ReplicaSet>,
    deployments: &Store<Deployment>,
) -> Option<ObjectKey> {
    let place = namespace(&pod.metadata);
    let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "ReplicaSet")?;
    let set = sets.get(&ObjectKey::namespaced(place, &owner.name))?;
    let owner = controller_of(&set.metadata).filter(|owner| owner.kind == "Deployment")?;
    let key = ObjectKey::namespaced(place, &owner.name);
    let deployment = deployments.get(&key)?;
    Limits::of(&deployment).recreate.then_some(key)
}

pub(super) async fn sync(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(deployment) = world.deployments.get(&key) else {
        return Ok(Requeue::Done);
    };
    if is_deleting(&deployment.metadata) {
        return Ok(Requeue::Done);
    }
    if !claims::settle_sets(&world, &deployment).await? {
        return Ok(Requeue::Stale);
    }
    let Some(deployment) = still(&world.deployments, &key, &*deployment) else {
        return Ok(Requeue::Done);
    };
    let mut sets = world.replica_sets_by_owner.get(uid(&deployment.metadata));
    sets.sort_by_key(|set| (revision(set), name(&set.metadata).to_owned()));
    let collisions = deployment
        .status
        .as_ref()
        .and_then(|status| status.collision_count);
    let hash = template_hash(&deployment.spec.template, collisions);
    let new_name = format!("{}-{hash}", name(&deployment.metadata));
    let newest = newest(&deployment, &sets, &new_name);
    let new_name = newest
        .as_ref()
        .map_or(new_name, |set| name(&set.metadata).to_owned());
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
    if deployment.spec.paused == Some(true) || is_scaled(&deployment, &sets) {
        resize(&world, &deployment, newest.as_deref(), &sets).await?;
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

/// How many pods of a set have not ended, those that are on their way out included.
fn unended(world: &World, set: &ReplicaSet) -> usize {
    let pods = world.pods_by_owner.get(uid(&set.metadata));
    pods.iter().filter(|pod| !has_ended(pod)).count()
}

/// Whether another number of replicas is wanted than when the sets that have pods were given theirs. Where a Deployment recreates and several have some, its old
/// ones are to have none first.
fn is_scaled(deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> bool {
    let limits = Limits::of(deployment);
    let active: Vec<&Arc<ReplicaSet>> = sets.iter().filter(|set| replicas(set) > 0).collect();
    let mut known = active.iter().filter_map(|set| noted(set, DESIRED_REPLICAS));
    let is_another = known.any(|known| known != limits.wanted);
    is_another && (active.len() == 1 || !limits.recreate)
}

/// Whether a set makes the pods that its Deployment wants now.
fn has_template(set: &ReplicaSet, deployment: &Deployment) -> bool {
    let Some(mut template) = set.spec.template.clone() else {
        return false;
    };
    let metadata = template.metadata.as_mut();
    if let Some(labels) = metadata.and_then(|metadata| metadata.labels.as_mut()) {
        labels.remove(HASH);
    }
    template == deployment.spec.template
}

/// The set that makes these pods. One that was adopted, or made before a name was found to be taken, has another name; of several it is the oldest, whatever
/// their revisions are: the newest set gets the highest, so that a choice by revision would be another one each time.
fn newest(deployment: &Deployment, sets: &[Arc<ReplicaSet>], new_name: &str) -> Option<Arc<ReplicaSet>> {
    let named = sets.iter().find(|set| name(&set.metadata) == new_name);
    let alike = || {
        let alike = sets.iter().filter(|set| has_template(set, deployment));
        alike.min_by_key(|set| {
            let created = set.metadata.creation_timestamp.as_ref();
            (created.map(|time| time.0), name(&set.metadata).to_owned())
        })
    };
    named.or_else(alike).cloned()
}

/// What a Deployment's annotations say of its newest set as well, above all why it was made (`kubectl rollout history`).
fn shared_annotations(deployment: &Deployment) -> BTreeMap<String, String> {
    let mut annotations = deployment.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !OWN_ANNOTATIONS.contains(&key.as_str()));
    annotations
}

/// Annotations about the size of a Deployment.
fn sizes(deployment: &Deployment) -> [(String, String); 2] {
    let limits = Limits::of(deployment);
    [
        (DESIRED_REPLICAS.to_owned(), limits.wanted.to_string()),
        (MAX_REPLICAS.to_owned(), limits.most().to_string()),
    ]
}

/// Whether a set has these annotations.
fn has_sizes(set: &ReplicaSet, deployment: &Deployment) -> bool {
    let known = set.metadata.annotations.as_ref();
    let mut sizes = sizes(deployment).into_iter();
    sizes.all(|(key, value)| known.and_then(|known| known.get(&key)) == Some(&value))
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
    let mut annotations = shared_annotations(deployment);
    annotations.insert(REVISION.to_owned(), revision.to_string());
    annotations.extend(sizes(deployment));
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": set_name, "namespace": namespace(&deployment.metadata), "labels": template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()),
            "annotations": annotations, "ownerReferences": [deployment.reference()],
        },
        "spec": {"replicas": 0, "minReadySeconds": deployment.spec.min_ready_seconds, "selector": selector, "template": template},
    });
    let set: ReplicaSet = serde_json::from_value(set)?;
    let api: Api<ReplicaSet> = Api::namespaced(world.client.clone(), namespace(&deployment.metadata));
    match api.create(&PostParams::default(), &set).await {
        Ok(created) => world.replica_sets.note_written(created),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            return taken(world, deployment, set_name).await;
        }
        Err(error) if is_race(&error) => {}
        Err(error) if is_namespace_ending(&error) => return Ok(Requeue::Done),
        Err(error) => {
            let message = format!("Failed to create new replica set {set_name:?}: {}", said(&error));
            tell_refusal(world, deployment, message).await;
            return Err(Box::new(error));
        }
    }
    write_revision(world, deployment, &revision.to_string()).await?;
    Ok(Requeue::After(std::time::Duration::ZERO))
}

/// The name of a new set is taken. Either that one is its own and was not known yet, or it will be adopted; or else the next one gets another name.
async fn taken(world: &World, deployment: &Deployment, set_name: &str) -> Result<Requeue, ReconcileError> {
    let api: Api<ReplicaSet> = Api::namespaced(world.client.clone(), namespace(&deployment.metadata));
    let Some(found) = api.get_opt(set_name).await? else {
        return Ok(Requeue::After(std::time::Duration::ZERO));
    };
    let is_own = match controller_of(&found.metadata) {
        Some(owner) => owner.uid == uid(&deployment.metadata),
        None => deployment.takes(&found.metadata) && !is_deleting(&found.metadata),
    };
    if is_own && has_template(&found, deployment) {
        world.replica_sets.note_written(found);
        return Ok(Requeue::Stale);
    }
    let status = deployment.status.as_ref();
    let collisions = status.and_then(|status| status.collision_count).unwrap_or(0);
    let before = serde_json::to_value(&deployment.status).unwrap_or(Value::Null);
    let after = json!({"collisionCount": collisions.saturating_add(1)});
    write_status(world, &world.deployments, deployment, &before, after).await?;
    Ok(Requeue::After(std::time::Duration::ZERO))
}

/// Says why there is no newest set. That it cannot be said is no more to be said than that.
async fn tell_refusal(world: &World, deployment: &Deployment, message: String) {
    let event = ("Warning", SET_REFUSED, message.as_str());
    world.note(Deployment::COMPONENT, deployment, event).await;
    if let Some(status) = refused(world.clock.now(), deployment, message) {
        let before = serde_json::to_value(&deployment.status).unwrap_or(Value::Null);
        drop(write_status(world, &world.deployments, deployment, &before, status).await);
    }
}

async fn write_revision(
    world: &World,
    deployment: &Deployment,
    revision: &str,
) -> Result<(), ReconcileError> {
    let patch = json!({"metadata": {"annotations": {REVISION: revision}}});
    world.patch(&world.deployments, deployment, patch).await?;
    Ok(())
}

/// Writes to the newest set what its Deployment owes it: the highest revision, also when it was an older one before (`kubectl rollout undo`),
/// annotations, and `minReadySeconds`, which is no part of the template. Whether anything had to be written.
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
    world.patch(&world.replica_sets, newest, patch).await?;
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
    let known = newest.metadata.annotations.as_ref();
    let known = |key: &str| known.and_then(|annotations| annotations.get(key));
    let mut annotations = shared_annotations(deployment);
    annotations.retain(|key, value| known(key) != Some(&*value));
    if number != revision(newest) {
        annotations.insert(REVISION.to_owned(), number.to_string());
        if let Some(before) = known(REVISION) {
            let history = history(known(REVISION_HISTORY), before);
            annotations.insert(REVISION_HISTORY.to_owned(), history);
        }
    }
    if !annotations.is_empty() {
        patch["metadata"]["annotations"] = json!(annotations);
        needed = true;
    }
    if min_ready != newest.spec.min_ready_seconds.unwrap_or(0) {
        patch["spec"] = json!({"minReadySeconds": min_ready});
        needed = true;
    }
    needed.then_some(patch)
}

/// The revisions that a set has had, with one more; the oldest are forgotten where there are too many.
fn history(known: Option<&String>, last: &str) -> String {
    let known = known.map(String::as_str).unwrap_or_default();
    let mut revisions: Vec<&str> = known.split(',').filter(|one| !one.is_empty()).collect();
    revisions.push(last);
    let length = |revisions: &[&str]| revisions.iter().map(|one| one.len() + 1).sum::<usize>();
    let mut from = 0;
    while length(&revisions[from..]) > LONGEST_HISTORY && from + 1 < revisions.len() {
        from += 1;
    }
    revisions[from..].join(",")
}

/// Moves replicas from the old sets to the newest one.
async fn roll(
    world: &World,
    deployment: &Deployment,
    newest: &ReplicaSet,
    sets: &[Arc<ReplicaSet>],
) -> Result<(), ReconcileError> {
    let limits = Limits::of(deployment);
    let old: Vec<&Arc<ReplicaSet>> = sets
        .iter()
        .filter(|set| name(&set.metadata) != name(&newest.metadata))
        .collect();
    let side = |set: &Arc<ReplicaSet>| {
        let side = Side::of(set);
        if limits.recreate {
            side.with_pods(unended(world, set))
        } else {
            side
        }
    };
    let sides: Vec<Side> = old.iter().map(|set| side(set)).collect();
    let (of_newest, of_old) = rollout::next(&limits, Side::of(newest), &sides);
    if replicas(newest) != of_newest {
        scale(world, deployment, newest, of_newest).await?;
    }
    for (set, wanted) in old.into_iter().zip(of_old) {
        if replicas(set) != wanted {
            scale(world, deployment, set, wanted).await?;
        }
    }
    Ok(())
}

/// The sets of a Deployment follow its number of replicas, in the middle of a rollout as well and while it is paused.
async fn resize(
    world: &World,
    deployment: &Deployment,
    newest: Option<&ReplicaSet>,
    sets: &[Arc<ReplicaSet>],
) -> Result<(), ReconcileError> {
    let is_newest =
        |set: &Arc<ReplicaSet>| newest.is_some_and(|newest| newest.metadata.uid == set.metadata.uid);
    let newest = sets.iter().position(is_newest);
    let sides: Vec<Side> = sets.iter().map(|set| Side::of(set)).collect();
    let resized = rollout::resized(&Limits::of(deployment), newest, &sides);
    for (set, wanted) in sets.iter().zip(resized) {
        // That one keeps its number has to be noted as well, or nothing would ever be rolled.
        if replicas(set) != wanted || (wanted > 0 && !has_sizes(set, deployment)) {
            scale(world, deployment, set, wanted).await?;
        }
    }
    Ok(())
}

async fn scale(
    world: &World,
    deployment: &Deployment,
    set: &ReplicaSet,
    wanted: i32,
) -> Result<(), ReconcileError> {
    let before = replicas(set);
    let annotations: BTreeMap<String, String> = sizes(deployment).into();
    let metadata = json!({"resourceVersion": set.metadata.resource_version, "annotations": annotations});
    let patch = json!({"metadata": metadata, "spec": {"replicas": wanted}});
    if !world.patch(&world.replica_sets, set, patch).await? || before == wanted {
        return Ok(());
    }
    let way = if before < wanted { "up" } else { "down" };
    let message = format!(
        "Scaled {way} replica set {} from {before} to {wanted}",
        name(&set.metadata)
    );
    world
        .record(Deployment::COMPONENT, deployment, "ScalingReplicaSet", &message)
        .await;
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
    // Of a set that is gone nobody could say whether its pods are.
    let awaits = Limits::of(deployment).recreate;
    let empty: Vec<&Arc<ReplicaSet>> = sets
        .iter()
        .filter(|set| {
            name(&set.metadata) != name(&newest.metadata)
                && replicas(set) == 0
                && set.status.as_ref().is_none_or(|status| status.replicas == 0)
                && (!awaits || unended(world, set) == 0)
        })
        .collect();
    for set in empty.iter().take(empty.len().saturating_sub(limit)) {
        let api: Api<ReplicaSet> = Api::namespaced(world.client.clone(), namespace(&set.metadata));
        ignore_races(api.delete(name(&set.metadata), &DeleteParams::default()).await)?;
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
    fn a_number_that_was_noted_with_another_total_is_to_be_changed() {
        let set = |asked: i32, desired: &str| -> Arc<ReplicaSet> {
            let annotations = json!({DESIRED_REPLICAS: desired, MAX_REPLICAS: "13"});
            let object = json!({"metadata": {"annotations": annotations}, "spec": {"selector": {}, "replicas": asked}});
            Arc::new(serde_json::from_value(object).unwrap())
        };
        let web = |strategy: Value| -> Deployment {
            let spec = json!({"replicas": 10, "selector": {}, "template": {}, "strategy": strategy});
            serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
        };
        let rolling = web(Value::Null);
        assert!(!is_scaled(&rolling, &[set(8, "10"), set(5, "10")]));
        assert!(is_scaled(&rolling, &[set(8, "10"), set(5, "30")]));
        assert!(
            !is_scaled(&rolling, &[set(8, "10"), set(0, "30")]),
            "it has no pods"
        );
        assert!(
            !is_scaled(&rolling, &[set(8, "many"), set(5, "-3")]),
            "nobody knows"
        );
        assert!(has_sizes(&set(8, "10"), &rolling));
        assert!(!has_sizes(&set(8, "30"), &rolling));
        let recreate = web(json!({"type": "Recreate"}));
        assert!(is_scaled(&recreate, &[set(8, "30"), set(0, "30")]));
        assert!(!is_scaled(&recreate, &[set(8, "30"), set(5, "30")]));
        assert!(!has_sizes(&set(8, "10"), &recreate), "it may not have thirteen");
    }

    #[test]
    fn revisions_that_a_set_has_had_are_kept_as_far_as_there_is_room() {
        assert_eq!(history(None, "1"), "1");
        assert_eq!(history(Some(&"1,3".to_owned()), "5"), "1,3,5");
        let long = ["1234567"; 250].join(",");
        let cut = history(Some(&long), "9");
        assert_eq!(cut.len(), 249 * 8 + 1, "the first has gone");
        assert!(cut.starts_with("1234567,") && cut.ends_with(",9"));
    }

    #[test]
    fn annotations_of_a_deployment_reach_its_newest_set() {
        let sets = [set("a", "1"), set("b", "2")];
        let mut web = deployment(None);
        let annotations = json!({"kubernetes.io/change-cause": "v2", REVISION: "2", "kubectl.kubernetes.io/last-applied-configuration": "{}"});
        web.metadata.annotations = serde_json::from_value(annotations).unwrap();
        let patch = owed(&web, &sets[1], &sets).unwrap();
        let expected = json!({"kubernetes.io/change-cause": "v2"});
        assert_eq!(patch["metadata"]["annotations"], expected);
        let mut known = (*sets[1]).clone();
        known
            .metadata
            .annotations
            .get_or_insert_default()
            .extend(shared_annotations(&web));
        assert_eq!(owed(&web, &known, &sets), None);
        let undone = owed(&web, &sets[0], &sets).unwrap();
        assert_eq!(undone["metadata"]["annotations"][REVISION_HISTORY], "1");
    }

    #[test]
    fn a_set_has_the_template_of_its_deployment_but_for_the_hash() {
        let template = |labels: Value| json!({"metadata": {"labels": labels}});
        let object =
            json!({"metadata": {}, "spec": {"selector": {}, "template": template(json!({"app": "web"}))}});
        let web: Deployment = serde_json::from_value(object).unwrap();
        let of = |labels: Value| -> ReplicaSet {
            let object = json!({"metadata": {}, "spec": {"selector": {}, "template": template(labels)}});
            serde_json::from_value(object).unwrap()
        };
        assert!(has_template(&of(json!({"app": "web", HASH: "x"})), &web));
        assert!(!has_template(
            &of(json!({"app": "web", "version": "2", HASH: "x"})),
            &web
        ));
    }

    #[test]
    fn of_sets_with_the_same_template_one_stays_the_newest() {
        let web = deployment(None);
        let set = |set_name: &str, number: &str| -> Arc<ReplicaSet> {
            let metadata = json!({"name": set_name, "annotations": {REVISION: number}});
            let object = json!({"metadata": metadata, "spec": {"selector": {}, "template": {}}});
            Arc::new(serde_json::from_value(object).unwrap())
        };
        let found = |sets: &[Arc<ReplicaSet>], new_name: &str| {
            newest(&web, sets, new_name).map(|set| name(&set.metadata).to_owned())
        };
        let (before, after) = ([set("a", "1"), set("b", "2")], [set("b", "2"), set("a", "3")]);
        assert_eq!(found(&before, "web-x").as_deref(), Some("a"));
        assert_eq!(found(&after, "web-x").as_deref(), Some("a"));
        assert_eq!(found(&after, "b").as_deref(), Some("b"), "the name comes first");
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
