//! CSI volumes are attached to the nodes whose pods use them, one that only one node may have to no other meanwhile, and detached a moment after the last of
//! these; from a node that cannot say whether it still uses them, after six minutes.
//!
//! Owns VolumeAttachments. Which volumes a pod has is its claims' affair.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_runtime::{Api, ObjectKey, ReconcileError, Requeue};

use super::{DETACH_DELAY, claim_names};
use crate::objects::{has_ended, is_deleting, is_node_silent, is_out_of_service, name, namespace, node_of};
use crate::world::{World, ignore_races, noted};

/// For how long a volume may still be mounted on a node whose kubelet cannot say so (`maxWaitForUnmountDuration`).
const FORCED_AFTER: Duration = Duration::from_secs(6 * 60);
const NAME: &str = "attachdetach-controller";

/// What is remembered of attachments.
#[derive(Default)]
pub(super) struct Memory(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    /// Those that no pod uses, by name.
    idle: BTreeMap<String, Idle>,
    /// Nodes and volumes of which pods were told that another node has them.
    refused: BTreeSet<(String, String)>,
    /// Volumes that only one node may have, and that one gets right now.
    attaching: BTreeSet<String>,
}

/// The turn of a node to attach a volume, which no other node has meanwhile: looks at several nodes go on beside each other.
struct Turn<'a> {
    memory: &'a Memory,
    volume: &'a str,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.memory.lock().attaching.remove(self.volume);
    }
}

/// An attachment that no pod uses.
struct Idle {
    since: Timestamp,
    /// Whether nobody can say that the volume is not mounted any more.
    is_mounted: bool,
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn to attach a volume, unless another node has it.
    fn turn<'a>(&'a self, volume: &'a str) -> Option<Turn<'a>> {
        let is_first = self.lock().attaching.insert(volume.to_owned());
        // Lazily: a turn that is made ends.
        is_first.then(|| Turn { memory: self, volume })
    }

    /// How long an attachment stays that no pod uses. A kubelet that lives unmounts the volume at once; what one had that is gone is detached without it.
    fn stays(&self, attachment_name: &str, node: Option<&Node>, now: Timestamp) -> Duration {
        let is_gone = node.is_none_or(is_node_silent);
        let is_forced = node.is_some_and(is_out_of_service);
        let mut memory = self.lock();
        let first = Idle {
            since: now,
            is_mounted: is_gone,
        };
        let idle = memory.idle.entry(attachment_name.to_owned()).or_insert(first);
        idle.is_mounted &= is_gone;
        let limit = if idle.is_mounted && !is_forced {
            FORCED_AFTER
        } else {
            DETACH_DELAY
        };
        let passed = Duration::try_from(now.duration_since(idle.since)).unwrap_or_default();
        limit.saturating_sub(passed)
    }
}

/// The CSI volumes of a pod's bound claims, with their drivers.
fn volumes_of(world: &World, pod: &Pod) -> Vec<(String, String)> {
    let one = |claim_name: String| {
        let key = ObjectKey::namespaced(namespace(&pod.metadata), claim_name);
        let bound = world.claims.get(&key)?.spec.as_ref()?.volume_name.clone()?;
        let volume = world.volumes.get_named(&bound)?;
        let driver = volume.spec.as_ref()?.csi.as_ref()?.driver.clone();
        Some((bound, driver))
    };
    claim_names(pod).into_iter().filter_map(one).collect()
}

/// CSI volumes that pods on a node use, with their drivers.
fn used_on(world: &World, node_name: &str) -> BTreeMap<String, String> {
    let pods = world.pods_by_node.get(node_name);
    let pods = pods.iter().filter(|pod| !has_ended(pod));
    pods.flat_map(|pod| volumes_of(world, pod)).collect()
}

fn volume_of(attachment: &VolumeAttachment) -> &str {
    let volume = attachment.spec.source.persistent_volume_name.as_deref();
    volume.unwrap_or_default()
}

/// Whether only one node may have a volume.
fn is_of_one(world: &World, volume_name: &str) -> bool {
    let volume = world.volumes.get_named(volume_name);
    let spec = volume.as_ref().and_then(|volume| volume.spec.as_ref());
    let modes = spec.and_then(|spec| spec.access_modes.as_deref());
    let modes = modes.unwrap_or_default();
    let is_of_many = |mode: &String| matches!(mode.as_str(), "ReadOnlyMany" | "ReadWriteMany");
    !modes.is_empty() && !modes.iter().any(is_of_many)
}

/// Whether another node has a volume that only one node may have.
fn is_elsewhere(world: &World, volume_name: &str, node_name: &str) -> bool {
    if !is_of_one(world, volume_name) {
        return false;
    }
    let attachments = world.attachments_by_volume.get(volume_name);
    attachments.iter().any(|one| one.spec.node_name != node_name)
}

/// Whether a pod that has its node waits for a volume that another node still has.
pub(crate) fn are_elsewhere(world: &World, pod: &Pod) -> bool {
    let volumes = volumes_of(world, pod);
    volumes
        .iter()
        .any(|(volume, _)| is_elsewhere(world, volume, node_of(pod)))
}

/// The name depends on volume and node only, so a second attempt finds the first.
fn attachment_name(volume: &str, node: &str) -> String {
    let hash = spokeshave_api::hash::digest_of(volume.bytes().chain([0]).chain(node.bytes()));
    format!("csi-{hash:016x}")
}

pub(super) async fn sync_attachments(
    world: Arc<World>,
    memory: Arc<Memory>,
    node_name: String,
) -> Result<Requeue, ReconcileError> {
    let node = world.nodes.get_named(&node_name);
    let used = match &node {
        Some(_) => used_on(&world, &node_name),
        None => BTreeMap::new(),
    };
    let api: Api<VolumeAttachment> = Api::all(world.client.clone());
    let mut known = BTreeSet::new();
    let mut wait: Option<Duration> = None;
    let mut look_in = |left: Duration| wait = Some(wait.map_or(left, |wait| wait.min(left)));
    for attachment in world.attachments_by_node.get(&node_name) {
        let (own_name, volume) = (name(&attachment.metadata), volume_of(&attachment));
        if used.contains_key(volume) {
            memory.lock().idle.remove(own_name);
            known.insert(volume.to_owned());
            let attached = attachment.status.as_ref().is_some_and(|status| status.attached);
            if !attached {
                attach(&world, &api, own_name).await?;
            }
            continue;
        }
        let left = memory.stays(own_name, node.as_deref(), world.clock.now());
        if !left.is_zero() {
            look_in(left);
        } else {
            memory.lock().idle.remove(own_name);
            if !is_deleting(&attachment.metadata) {
                ignore_races(api.delete(own_name, &DeleteParams::default()).await)?;
            }
        }
    }
    let is_wanted = |(place, volume): &(String, String)| *place != node_name || used.contains_key(volume);
    memory.lock().refused.retain(is_wanted);
    for (volume, driver) in used.iter().filter(|(volume, _)| !known.contains(*volume)) {
        // Until the store has the attachment.
        let turn = is_of_one(&world, volume).then(|| memory.turn(volume));
        if matches!(turn, Some(None)) || is_elsewhere(&world, volume, &node_name) {
            refuse(&world, &memory, volume, &node_name).await;
            look_in(DETACH_DELAY);
            continue;
        }
        let attachment: VolumeAttachment = serde_json::from_value(json!({
            "metadata": {"name": attachment_name(volume, &node_name)},
            "spec": {"attacher": driver, "nodeName": node_name, "source": {"persistentVolumeName": volume}},
        }))?;
        let answer = api.create(&PostParams::default(), &attachment).await;
        if noted(&world.attachments, answer)? {
            attach(&world, &api, &attachment_name(volume, &node_name)).await?;
        }
    }
    Ok(wait.map_or(Requeue::Done, Requeue::After))
}

/// Tells the pods that wait for a volume that another node has it, once.
async fn refuse(world: &World, memory: &Memory, volume: &str, node_name: &str) {
    let which = (node_name.to_owned(), volume.to_owned());
    if !memory.lock().refused.insert(which) || !world.keeps_records() {
        return;
    }
    let message = format!(
        "Multi-Attach error for volume {volume:?} Volume is already exclusively attached to one node and can't be attached to another"
    );
    for pod in world.pods_by_node.get(node_name) {
        if volumes_of(world, &pod).iter().any(|(own, _)| own == volume) {
            world
                .tell(NAME, &pod, "Warning", "FailedAttachVolume", &message)
                .await;
        }
    }
}

async fn attach(
    world: &World,
    api: &Api<VolumeAttachment>,
    attachment_name: &str,
) -> Result<(), ReconcileError> {
    let patch = Patch::Merge(json!({"status": {"attached": true}}));
    let answer = api
        .patch_status(attachment_name, &PatchParams::default(), &patch)
        .await;
    noted(&world.attachments, answer)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(ready: &str, taint: &str) -> Node {
        serde_json::from_value(json!({
            "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    /// For how many seconds an attachment stays at each of these moments.
    fn stays(looks: &[(i64, Option<&Node>)]) -> Vec<u64> {
        let memory = Memory::default();
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
        looks
            .iter()
            .map(|(second, node)| memory.stays("a", *node, at(*second)).as_secs())
            .collect()
    }

    #[test]
    fn a_volume_is_detached_at_once_where_somebody_unmounts_it_and_otherwise_after_six_minutes() {
        let well = node("True", "a");
        let silent = node("Unknown", "node.kubernetes.io/unreachable");
        let abandoned = node("Unknown", "node.kubernetes.io/out-of-service");
        let (well, silent, abandoned) = (Some(&well), Some(&silent), Some(&abandoned));
        assert_eq!(stays(&[(0, well), (2, well)]), [2, 0]);
        assert_eq!(stays(&[(0, silent), (2, silent), (360, silent)]), [360, 358, 0]);
        assert_eq!(stays(&[(0, None), (100, None)]), [360, 260]);
        assert_eq!(
            stays(&[(0, silent), (10, None)]),
            [360, 350],
            "the Node went, too"
        );
        assert_eq!(stays(&[(0, silent), (10, well)]), [360, 0], "the kubelet is back");
        assert_eq!(
            stays(&[(0, well), (1, silent)]),
            [2, 1],
            "it was unmounted before"
        );
        assert_eq!(stays(&[(0, silent), (10, abandoned)]), [360, 0]);
    }

    #[test]
    fn one_node_at_a_time_attaches_a_volume() {
        let memory = Memory::default();
        let turn = memory.turn("v");
        assert!(turn.is_some() && memory.turn("w").is_some());
        assert!(memory.turn("v").is_none());
        assert!(memory.turn("v").is_none(), "to be refused ends no turn");
        drop(turn);
        assert!(memory.turn("v").is_some());
    }
}
