//! CSI volumes are attached to the nodes whose pods use them, and detached a moment after the last of these.
//!
//! Owns VolumeAttachments. Which volumes a pod has is its claims' affair.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_runtime::{Api, ObjectKey, ReconcileError, Requeue};

use super::{DETACH_DELAY, claim_names, ignore_races};
use crate::objects::{has_ended, is_deleting, name, namespace};
use crate::world::World;

/// Since when an attachment, by name, has had no pod.
pub(super) type Idle = Mutex<BTreeMap<String, Timestamp>>;

/// CSI volumes that pods on a node use, with their drivers.
fn used_on(world: &World, node_name: &str) -> BTreeMap<String, String> {
    let mut used = BTreeMap::new();
    for pod in world.pods_by_node.get(node_name) {
        if has_ended(&pod) {
            continue;
        }
        for claim_name in claim_names(&pod) {
            let key = ObjectKey::namespaced(namespace(&pod.metadata), claim_name);
            let claim = world.claims.get(&key);
            let bound = claim.and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
            let volume = bound.and_then(|volume| world.volumes.get_named(&volume));
            let Some(volume) = volume else { continue };
            if let Some(csi) = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()) {
                used.insert(name(&volume.metadata).to_owned(), csi.driver.clone());
            }
        }
    }
    used
}

/// The name depends on volume and node only, so a second attempt finds the first.
fn attachment_name(volume: &str, node: &str) -> String {
    let hash = spokeshave_api::hash::digest_of(volume.bytes().chain([0]).chain(node.bytes()));
    format!("csi-{hash:016x}")
}

pub(super) async fn sync_attachments(
    world: Arc<World>,
    idle: Arc<Idle>,
    node_name: String,
) -> Result<Requeue, ReconcileError> {
    let mut used = used_on(&world, &node_name);
    if world.nodes.get_named(&node_name).is_none() {
        used.clear();
    }
    let api: Api<VolumeAttachment> = Api::all(world.client.clone());
    let mut known = BTreeSet::new();
    let mut wait: Option<Duration> = None;
    for attachment in world.attachments.snapshot() {
        if attachment.spec.node_name != node_name {
            continue;
        }
        let attachment_name = name(&attachment.metadata).to_owned();
        let volume = attachment
            .spec
            .source
            .persistent_volume_name
            .clone()
            .unwrap_or_default();
        if used.contains_key(&volume) {
            lock(&idle).remove(&attachment_name);
            known.insert(volume);
            let attached = attachment.status.as_ref().is_some_and(|status| status.attached);
            if !attached {
                attach(&world, &api, &attachment_name).await?;
            }
            continue;
        }
        let since = *lock(&idle)
            .entry(attachment_name.clone())
            .or_insert_with(|| world.clock.now());
        let left = DETACH_DELAY.saturating_sub(world.clock.since(since));
        if !left.is_zero() {
            wait = Some(wait.map_or(left, |wait| wait.min(left)));
        } else {
            lock(&idle).remove(&attachment_name);
            if !is_deleting(&attachment.metadata) {
                ignore_races(api.delete(&attachment_name, &DeleteParams::default()).await)?;
            }
        }
    }
    for (volume, driver) in used.iter().filter(|(volume, _)| !known.contains(*volume)) {
        let attachment: VolumeAttachment = serde_json::from_value(json!({
            "metadata": {"name": attachment_name(volume, &node_name)},
            "spec": {"attacher": driver, "nodeName": node_name, "source": {"persistentVolumeName": volume}},
        }))?;
        let created = ignore_races(api.create(&PostParams::default(), &attachment).await)?;
        if let Some(created) = created {
            world.attachments.note_written(created);
            attach(&world, &api, &attachment_name(volume, &node_name)).await?;
        }
    }
    Ok(wait.map_or(Requeue::Done, Requeue::After))
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
    if let Some(written) = ignore_races(answer)? {
        world.attachments.note_written(written);
    }
    Ok(())
}

fn lock(idle: &Idle) -> std::sync::MutexGuard<'_, BTreeMap<String, Timestamp>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
