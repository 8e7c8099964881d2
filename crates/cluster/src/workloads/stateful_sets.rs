//! StatefulSets: pods with ordinals, in order or all at once.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume};
use kube::api::PostParams;
use serde_json::{Value, json};
use spokeshave_runtime::{Api, ObjectKey, ReconcileError, Requeue};

use super::{count_available, create_pod, delete_pod, pod_of, template_hash, until_available, write_status};
use crate::objects::{has_ended, is_deleting, is_ready, name, namespace, owner, uid};
use crate::world::{World, is_race};

const REVISION: &str = "controller-revision-hash";

pub(super) async fn sync(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(set) = world.stateful_sets.get(&key) else {
        return Ok(Requeue::Done);
    };
    if is_deleting(&set.metadata) {
        return Ok(Requeue::Done);
    }
    let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
    let parallel = set.spec.pod_management_policy.as_deref() == Some("Parallel");
    let revision = format!("{}-{}", name(&set.metadata), template_hash(&set.spec.template));
    let pods = world.pods_by_owner.get(uid(&set.metadata));
    let find = |ordinal: usize| {
        pods.iter()
            .find(|pod| name(&pod.metadata) == format!("{}-{ordinal}", name(&set.metadata)))
    };
    let (now, min_ready) = (world.clock.now(), set.spec.min_ready_seconds);
    let is_available = |pod: &Pod| until_available(pod, min_ready, now).is_some_and(|wait| wait.is_zero());
    let mut held = false;
    for ordinal in 0..wanted {
        match find(ordinal) {
            None => {
                let mut pod = pod_of(
                    &set.spec.template,
                    namespace(&set.metadata),
                    owner("apps/v1", "StatefulSet", &set.metadata),
                );
                let pod_name = format!("{}-{ordinal}", name(&set.metadata));
                let labels = pod.metadata.labels.get_or_insert_default();
                labels.insert(REVISION.to_owned(), revision.clone());
                labels.insert("statefulset.kubernetes.io/pod-name".to_owned(), pod_name.clone());
                labels.insert("apps.kubernetes.io/pod-index".to_owned(), ordinal.to_string());
                claim_volumes(&world, &set, &mut pod, &pod_name).await?;
                pod.metadata.name = Some(pod_name);
                create_pod(&world, &pod).await?;
                held = true;
            }
            Some(pod) if has_ended(pod) => {
                delete_pod(&world, pod).await?;
                held = true;
            }
            Some(pod) => held |= !is_available(pod) || is_deleting(&pod.metadata),
        }
        if held && !parallel {
            break;
        }
    }
    let ordinal_of = |pod: &k8s_openapi::api::core::v1::Pod| {
        name(&pod.metadata)
            .rsplit_once('-')
            .and_then(|(_, text)| text.parse::<usize>().ok())
    };
    let mut surplus: Vec<_> = pods
        .iter()
        .filter(|pod| ordinal_of(pod).is_none_or(|ordinal| ordinal >= wanted))
        .collect();
    surplus.sort_by_key(|pod| std::cmp::Reverse(ordinal_of(pod)));
    for pod in surplus {
        if !is_deleting(&pod.metadata) && (parallel || !held) {
            delete_pod(&world, pod).await?;
        }
        if !parallel {
            held = true;
            break;
        }
    }
    let rolled = rolls_from(&set).unwrap_or(wanted)..wanted;
    let outdated = pods.iter().filter(|pod| {
        pod.metadata
            .labels
            .as_ref()
            .is_none_or(|labels| labels.get(REVISION) != Some(&revision))
    });
    let mut outdated: Vec<_> = outdated
        .filter(|pod| ordinal_of(pod).is_some_and(|ordinal| rolled.contains(&ordinal)))
        .collect();
    outdated.sort_by_key(|pod| std::cmp::Reverse(ordinal_of(pod)));
    if !held
        && let Some(pod) = outdated.first()
        && !is_deleting(&pod.metadata)
    {
        delete_pod(&world, pod).await?;
    }
    let pods = world.pods_by_owner.get(uid(&set.metadata));
    let staying = || pods.iter().filter(|pod| !is_deleting(&pod.metadata));
    let ready = staying().filter(|pod| is_ready(pod)).count();
    let (available, again) = count_available(staying(), min_ready, now);
    let updated = pods
        .iter()
        .filter(|pod| {
            pod.metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.get(REVISION) == Some(&revision))
        })
        .count();
    let status = json!({
        "replicas": pods.len(), "readyReplicas": ready, "availableReplicas": available, "currentReplicas": updated, "updatedReplicas": updated,
        "currentRevision": revision, "updateRevision": revision, "observedGeneration": set.metadata.generation, "collisionCount": 0,
    });
    let before = serde_json::to_value(&set.status).unwrap_or(Value::Null);
    write_status(&world, &world.stateful_sets, &*set, &before, status).await?;
    Ok(again)
}

/// The lowest ordinal that a new template reaches; none when its pods wait for somebody to delete them.
fn rolls_from(set: &StatefulSet) -> Option<usize> {
    let Some(strategy) = &set.spec.update_strategy else {
        return Some(0);
    };
    if strategy.type_.as_deref() == Some("OnDelete") {
        return None;
    }
    let rolling = strategy.rolling_update.as_ref();
    let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or(0);
    Some(usize::try_from(partition).unwrap_or(0))
}

/// Each ordinal has its own claims, created once from the templates.
async fn claim_volumes(
    world: &World,
    set: &StatefulSet,
    pod: &mut Pod,
    pod_name: &str,
) -> Result<(), ReconcileError> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), namespace(&set.metadata));
    for template in set.spec.volume_claim_templates.iter().flatten() {
        let volume_name = name(&template.metadata);
        let claim_name = format!("{volume_name}-{pod_name}");
        let mut claim = template.clone();
        claim.status = None;
        claim.metadata.name = Some(claim_name.clone());
        claim.metadata.namespace = set.metadata.namespace.clone();
        let labels = claim.metadata.labels.get_or_insert_default();
        labels.extend(set.spec.selector.match_labels.clone().unwrap_or_default());
        match api.create(&PostParams::default(), &claim).await {
            Ok(created) => world.claims.note_written(created),
            Err(error) if is_race(&error) => {}
            Err(error) => return Err(Box::new(error)),
        }
        let Some(spec) = &mut pod.spec else { continue };
        let volumes = spec.volumes.get_or_insert_default();
        volumes.retain(|volume| volume.name != volume_name);
        volumes.push(Volume {
            name: volume_name.to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name,
                read_only: None,
            }),
            ..Volume::default()
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strategy_says_which_ordinals_are_rolled() {
        let from = |strategy: Value| {
            let object = json!({"metadata": {"name": "s"}, "spec": {"selector": {}, "template": {}, "updateStrategy": strategy}});
            rolls_from(&serde_json::from_value(object).unwrap())
        };
        assert_eq!(from(Value::Null), Some(0));
        assert_eq!(from(json!({"type": "RollingUpdate"})), Some(0));
        let partition = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
        assert_eq!(from(partition), Some(2));
        assert_eq!(from(json!({"type": "OnDelete"})), None);
    }
}
