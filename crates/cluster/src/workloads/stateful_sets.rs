//! StatefulSets: pods with ordinals, in order or all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume};
use kube::api::PostParams;
use serde_json::{Value, json};
use spokeshave_runtime::{Api, ObjectKey, ReconcileError, Requeue};

use super::claims::{self, Claimant as _};
use super::pods::{create_pod, delete_pod, pod_of};
use super::revisions::{self, REVISION, revision_of};
use super::{count_available, is_available, retention, sooner, still, template_hash, write_status};
use crate::objects::{has_ended, is_deleting, is_ready, name, namespace, uid};
use crate::world::{World, is_namespace_ending, is_race, said};

/// When to look again for claims that are to be collected.
const COLLECTION: Duration = Duration::from_secs(1);

pub(super) async fn sync(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(set) = world.stateful_sets.get(&key) else {
        return Ok(Requeue::Done);
    };
    if is_deleting(&set.metadata) {
        return Ok(Requeue::Done);
    }
    if !claims::settle_pods(&world, &*set).await? {
        return Ok(Requeue::Stale);
    }
    let Some(set) = still(&world.stateful_sets, &key, &*set) else {
        return Ok(Requeue::Done);
    };
    let pods = world.pods_by_owner.get(uid(&set.metadata));
    let hash = template_hash(&set.spec.template, None);
    let step = Step::of(&world, &set, &pods, &hash);
    if world.keeps_records() && !revisions::keep(&world, &*set, &hash, &step.live()).await? {
        return Ok(Requeue::Stale);
    }
    let taken = step.take().await;
    let pods = world.pods_by_owner.get(uid(&set.metadata));
    let (status, again) = step.status(&pods);
    let before = serde_json::to_value(&set.status).unwrap_or(Value::Null);
    write_status(&world, &world.stateful_sets, &*set, &before, status).await?;
    taken.map(|look| sooner(look, again))
}

/// The set of which a pod with this name is, if its name is one that sets give.
pub(super) fn set_of(pod: &ObjectKey) -> Option<ObjectKey> {
    let (set, ordinal) = pod.name.rsplit_once('-')?;
    ordinal.parse::<usize>().ok()?;
    Some(ObjectKey::namespaced(&pod.namespace, set))
}

/// The ordinal of the pod of a set that has this name.
pub(super) fn ordinal_of(set: &StatefulSet, pod_name: &str) -> Option<usize> {
    let (parent, ordinal) = pod_name.rsplit_once('-')?;
    let ordinal = ordinal.parse::<usize>().ok()?;
    (parent == name(&set.metadata)).then_some(ordinal)
}

/// The ordinals that a set is to have.
fn ordinals(set: &StatefulSet) -> Range<usize> {
    let number = |value: Option<i32>, default: i32| usize::try_from(value.unwrap_or(default)).unwrap_or(0);
    let start = number(set.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start), 0);
    start..start + number(set.spec.replicas, 1)
}

/// One step of a set to what it is to be.
struct Step<'a> {
    world: &'a World,
    set: &'a StatefulSet,
    pods: &'a [Arc<Pod>],
    /// Those that have ordinals.
    by_ordinal: BTreeMap<usize, Arc<Pod>>,
    wanted: Range<usize>,
    is_parallel: bool,
    /// The revision from which a rollout comes, and the one to which it goes; the same where there is none.
    current: String,
    update: String,
    now: Timestamp,
}

impl<'a> Step<'a> {
    fn of(world: &'a World, set: &'a StatefulSet, pods: &'a [Arc<Pod>], hash: &str) -> Self {
        let ordinal = |pod: &Arc<Pod>| Some((ordinal_of(set, name(&pod.metadata))?, pod.clone()));
        let update = format!("{}-{hash}", name(&set.metadata));
        let current = set
            .status
            .as_ref()
            .and_then(|status| status.current_revision.clone());
        Self {
            world,
            set,
            pods,
            by_ordinal: pods.iter().filter_map(ordinal).collect(),
            wanted: ordinals(set),
            is_parallel: set.spec.pod_management_policy.as_deref() == Some("Parallel"),
            current: current
                .filter(|current| !current.is_empty())
                .unwrap_or_else(|| update.clone()),
            update,
            now: world.clock.now(),
        }
    }

    /// The revisions that are in use.
    fn live(&self) -> BTreeSet<String> {
        let of_pods = self.pods.iter().filter_map(|pod| revision_of(pod)).cloned();
        of_pods
            .chain([self.current.clone(), self.update.clone()])
            .collect()
    }

    fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.set.spec.min_ready_seconds, self.now)
    }

    /// Makes and deletes pods as far as their order allows at this moment, and says when to look again.
    async fn take(&self) -> Result<Requeue, ReconcileError> {
        let (held, again) = self.fill().await?;
        let (is_shrinking, soon) = self.shrink(held).await?;
        if !held && (self.is_parallel || !is_shrinking) {
            self.roll().await?;
        }
        Ok(sooner(again, soon))
    }

    /// Makes the pods that are missing. Whether anything holds up the others, and when to look again.
    async fn fill(&self) -> Result<(bool, Requeue), ReconcileError> {
        let (mut held, mut again) = (false, Requeue::Done);
        for ordinal in self.wanted.clone() {
            match self.by_ordinal.get(&ordinal) {
                None => {
                    again = sooner(again, self.make(ordinal).await?);
                    held = true;
                }
                Some(pod) if has_ended(pod) => {
                    if !is_deleting(&pod.metadata) {
                        delete_pod(self.world, self.set, pod).await?;
                    }
                    held = true;
                }
                Some(pod) => {
                    let look = retention::follow(self.world, self.set, pod, true).await?;
                    again = sooner(again, look);
                    held |= !self.is_available(pod) || is_deleting(&pod.metadata);
                }
            }
            if held && !self.is_parallel {
                break;
            }
        }
        Ok((held, again))
    }

    /// Deletes the pods that are too many, from the last. Whether there are any, and when to look again.
    async fn shrink(&self, held: bool) -> Result<(bool, Requeue), ReconcileError> {
        let beyond = self.by_ordinal.range(self.wanted.end..);
        let below = self.by_ordinal.range(..self.wanted.start);
        let surplus: Vec<&Arc<Pod>> = below.chain(beyond).rev().map(|(_, pod)| pod).collect();
        let (is_any, mut again) = (!surplus.is_empty(), Requeue::Done);
        for pod in surplus {
            if !is_deleting(&pod.metadata) && (self.is_parallel || !held) {
                // Its claims may go with it, so they have to know.
                match retention::follow(self.world, self.set, pod, false).await? {
                    Requeue::Done => delete_pod(self.world, self.set, pod).await?,
                    look => again = sooner(again, look),
                }
            }
            if !self.is_parallel {
                break;
            }
        }
        Ok((is_any, again))
    }

    /// Deletes the last pod of an older template, so that it comes back with the new one.
    async fn roll(&self) -> Result<(), ReconcileError> {
        let Some(from) = rolls_from(self.set) else {
            return Ok(());
        };
        let from = self.wanted.start.saturating_add(from).min(self.wanted.end);
        let rolled = self.by_ordinal.range(from..self.wanted.end).rev();
        let mut pods = rolled.map(|(_, pod)| pod);
        let outdated = pods.find(|pod| revision_of(pod) != Some(&self.update));
        match outdated {
            Some(pod) if !is_deleting(&pod.metadata) => delete_pod(self.world, self.set, pod).await,
            _ => Ok(()),
        }
    }

    /// Makes a pod with its claims. When to look again.
    async fn make(&self, ordinal: usize) -> Result<Requeue, ReconcileError> {
        let (world, set) = (self.world, self.set);
        let pod_name = format!("{}-{ordinal}", name(&set.metadata));
        if retention::is_stale(world, set, &pod_name) {
            return Ok(Requeue::After(COLLECTION));
        }
        let older = self.stays_at_current(ordinal).then(|| {
            let template = revisions::template(world, namespace(&set.metadata), &self.current)?;
            Some((template, &self.current))
        });
        let (template, revision) = older
            .flatten()
            .unwrap_or_else(|| (set.spec.template.clone(), &self.update));
        let mut pod = pod_of(set, &template);
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert(REVISION.to_owned(), revision.clone());
        labels.insert("statefulset.kubernetes.io/pod-name".to_owned(), pod_name.clone());
        labels.insert("apps.kubernetes.io/pod-index".to_owned(), ordinal.to_string());
        if let Some(spec) = &mut pod.spec {
            spec.hostname = Some(pod_name.clone());
            spec.subdomain = set.spec.service_name.clone().filter(|name| !name.is_empty());
        }
        claim_volumes(world, set, &mut pod, &pod_name).await?;
        pod.metadata.name = Some(pod_name);
        create_pod(world, set, &pod).await?;
        Ok(Requeue::Done)
    }

    /// Whether a new pod has the template from which a rollout comes: that of an ordinal below the partition, which the new one does not reach.
    fn stays_at_current(&self, ordinal: usize) -> bool {
        self.current != self.update && ordinal < self.wanted.start.saturating_add(partition(self.set))
    }

    /// The status, and when to look again although nothing has changed.
    fn status(&self, pods: &[Arc<Pod>]) -> (Value, Requeue) {
        let staying = || pods.iter().filter(|pod| !is_deleting(&pod.metadata));
        let ready = staying().filter(|pod| is_ready(pod)).count();
        let (available, again) = count_available(staying(), self.set.spec.min_ready_seconds, self.now);
        let of = |wanted: &String| staying().filter(|pod| revision_of(pod) == Some(wanted)).count();
        let updated = of(&self.update);
        // A rollout is over when all pods are there and ready at the new revision; it is never where pods wait for somebody to delete them.
        let all = self.wanted.len();
        let is_over = rolls_from(self.set).is_some() && [updated, ready, pods.len()] == [all; 3];
        let current = if is_over { &self.update } else { &self.current };
        let status = json!({
            "replicas": pods.len(), "readyReplicas": ready, "availableReplicas": available, "currentReplicas": of(current), "updatedReplicas": updated,
            "currentRevision": current, "updateRevision": self.update, "observedGeneration": self.set.metadata.generation, "collisionCount": 0,
        });
        (status, again)
    }
}

/// The lowest ordinal that a new template reaches; none when its pods wait for somebody to delete them.
fn rolls_from(set: &StatefulSet) -> Option<usize> {
    let strategy = set.spec.update_strategy.as_ref();
    let kind = strategy.and_then(|strategy| strategy.type_.as_deref());
    (kind != Some("OnDelete")).then(|| partition(set))
}

fn partition(set: &StatefulSet) -> usize {
    let strategy = set.spec.update_strategy.as_ref();
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or(0);
    usize::try_from(partition).unwrap_or(0)
}

/// Each ordinal has its own claims, created once from the templates.
async fn claim_volumes(
    world: &World,
    set: &StatefulSet,
    pod: &mut Pod,
    pod_name: &str,
) -> Result<(), ReconcileError> {
    for template in set.spec.volume_claim_templates.iter().flatten() {
        let volume_name = name(&template.metadata);
        let claim_name = retention::claim_name(template, pod_name);
        create_claim(world, set, (template, &claim_name), pod_name).await?;
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

/// Creates a claim of a pod, unless it is there from before.
async fn create_claim(
    world: &World,
    set: &StatefulSet,
    (template, claim_name): (&PersistentVolumeClaim, &str),
    pod_name: &str,
) -> Result<(), ReconcileError> {
    let mut claim = template.clone();
    claim.status = None;
    claim.metadata.name = Some(claim_name.to_owned());
    claim.metadata.namespace = set.metadata.namespace.clone();
    claim.metadata.owner_references = retention::first_owner(set);
    let labels = claim.metadata.labels.get_or_insert_default();
    labels.extend(set.spec.selector.match_labels.clone().unwrap_or_default());
    let api: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), namespace(&set.metadata));
    let set_name = name(&set.metadata);
    match api.create(&PostParams::default(), &claim).await {
        Ok(created) => {
            world.claims.note_written(created);
            let message =
                format!("Create Claim {claim_name} Pod {pod_name} in StatefulSet {set_name} success");
            world
                .record(StatefulSet::COMPONENT, set, "SuccessfulCreate", &message)
                .await;
            Ok(())
        }
        Err(error) if is_race(&error) || is_namespace_ending(&error) => Ok(()),
        Err(error) => {
            let problem = said(&error);
            for message in [
                format!(
                    "Create Claim {claim_name} for Pod {pod_name} in StatefulSet {set_name} failed error: {problem}"
                ),
                format!(
                    "Create Pod {pod_name} in StatefulSet {set_name} failed error: failed to create PVC {claim_name}: {problem}"
                ),
            ] {
                let event = ("Warning", "FailedCreate", message.as_str());
                world.note(StatefulSet::COMPONENT, set, event).await;
            }
            Err(Box::new(error))
        }
    }
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

    #[test]
    fn names_say_whose_a_pod_is_and_which() {
        let set: StatefulSet = serde_json::from_value(json!({
            "metadata": {"name": "db"}, "spec": {"replicas": 2, "ordinals": {"start": 5}, "selector": {}, "template": {}},
        }))
        .unwrap();
        assert_eq!(ordinals(&set), 5..7);
        assert_eq!(ordinal_of(&set, "db-5"), Some(5));
        assert_eq!(ordinal_of(&set, "db-x-5"), None);
        assert_eq!(ordinal_of(&set, "db-x"), None);
        let pod = |pod_name: &str| set_of(&ObjectKey::namespaced("shop", pod_name));
        assert_eq!(pod("my-db-12"), Some(ObjectKey::namespaced("shop", "my-db")));
        assert_eq!(pod("web-x7k2p"), None);
    }
}
