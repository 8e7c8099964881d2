//! Claims get their volumes, and volumes of claims that are gone go.
//!
//! Owns both ends of the binding. Which node a pod of a waiting claim gets is the scheduler's.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_runtime::{Api, ObjectKey, ReconcileError, Requeue};

use super::{
    DETACH_DELAY, NO_PROVISIONER, ZONE, claim_of, class_of, default_class, reaches, selected_node, waits,
    zone,
};
use crate::objects::{is_deleting, name, namespace, selects, uid};
use crate::quantities;
use crate::world::{World, ignore_races, noted};

/// The mode of a volume that names none.
const FILESYSTEM: &str = "Filesystem";
/// Annotation of a claim that is bound.
const COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation of a claim for which a volume was found here, and not by whoever made it.
const BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

pub(super) async fn sync_claim(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(claim) = world.claims.get(&key) else {
        return Ok(Requeue::Done);
    };
    if is_deleting(&claim.metadata) {
        return Ok(Requeue::Done);
    }
    let Some(spec) = &claim.spec else {
        return Ok(Requeue::Done);
    };
    if let Some(volume) = spec
        .volume_name
        .as_deref()
        .and_then(|volume| world.volumes.get_named(volume))
    {
        return finish_binding(&world, &claim, &volume).await;
    }
    if spec.volume_name.is_some() {
        return Ok(Requeue::Done);
    }
    let class = class_of(&world, &claim);
    let node = selected_node(&claim).and_then(|node| world.nodes.get_named(node));
    let choice = Choice::of(&world, &claim);
    if choice.kept.is_none() && waits(class.as_deref()) && node.is_none() {
        return Ok(Requeue::Done);
    }
    let volume = match choice.for_node(node.as_deref()) {
        Some(volume) => Some(volume),
        None if spec.storage_class_name.is_none() => return assign_default_class(&world, &claim).await,
        None => provision(&world, &claim, class.as_deref(), node.as_deref()).await?,
    };
    if let Some(volume) = volume {
        finish_binding(&world, &claim, &volume).await?;
    }
    Ok(Requeue::Done)
}

/// A claim without a class, for which no volume is there, gets the default one: it is older than that class, or was made where nobody writes it at once.
async fn assign_default_class(
    world: &World,
    claim: &PersistentVolumeClaim,
) -> Result<Requeue, ReconcileError> {
    let Some(class) = default_class(world) else {
        return Ok(Requeue::Done);
    };
    let patch =
        json!({"metadata": {"uid": claim.metadata.uid}, "spec": {"storageClassName": name(&class.metadata)}});
    world.patch(&world.claims, claim, patch).await?;
    Ok(Requeue::Done)
}

/// How much a claim asks for.
pub(super) fn requested(claim: &PersistentVolumeClaim) -> i128 {
    let requests = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    requests
        .and_then(|requests| requests.get("storage"))
        .map_or(0, quantities::milli)
}

fn size(volume: &PersistentVolume) -> i128 {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    capacity
        .and_then(|capacity| capacity.get("storage"))
        .map_or(0, quantities::milli)
}

/// The volumes that are there for a claim without one.
pub(super) struct Choice {
    /// The one that is kept for it.
    pub(super) kept: Option<Arc<PersistentVolume>>,
    /// Those that nobody has and that do, the smallest first.
    pub(super) free: Vec<Arc<PersistentVolume>>,
}

impl Choice {
    /// O(volumes).
    pub(super) fn of(world: &World, claim: &PersistentVolumeClaim) -> Self {
        let (mut kept, mut free) = (Vec::new(), Vec::new());
        world.volumes.for_each(|_, volume| {
            let is_kept = is_kept_for(volume, claim);
            if !is_deleting(&volume.metadata) && (is_kept || is_free_for(volume, claim)) {
                let list = if is_kept { &mut kept } else { &mut free };
                list.push(Arc::clone(volume));
            }
        });
        let order = |volume: &Arc<PersistentVolume>| (size(volume), name(&volume.metadata).to_owned());
        free.sort_by_cached_key(order);
        Self {
            kept: kept.into_iter().min_by_key(order),
            free,
        }
    }

    /// The one that is kept for the claim, or the smallest that can be had on its node, if that is known.
    fn for_node(self, node: Option<&Node>) -> Option<Arc<PersistentVolume>> {
        let is_near = |volume: &Arc<PersistentVolume>| node.is_none_or(|node| reaches(volume, node));
        self.kept.or_else(|| self.free.into_iter().find(is_near))
    }
}

/// Whether a volume says that it is this claim's.
fn is_kept_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let owner = reference.and_then(|reference| reference.uid.as_deref());
    reference.is_some()
        && owner.is_none_or(|owner| owner == uid(&claim.metadata))
        && claim_of(volume) == Some(ObjectKey::of(claim))
}

/// Whether nobody has a volume, and it is what a claim asks for.
fn is_free_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(spec), Some(wanted)) = (&volume.spec, &claim.spec) else {
        return false;
    };
    let (class, mode) = (spec.storage_class_name.as_deref(), spec.volume_mode.as_deref());
    let wanted_class = wanted.storage_class_name.as_deref();
    let wanted_mode = wanted.volume_mode.as_deref();
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    let mut wanted_modes = wanted.access_modes.iter().flatten();
    let selector = wanted.selector.as_ref();
    spec.claim_ref.is_none()
        && class.unwrap_or_default() == wanted_class.unwrap_or_default()
        && mode.unwrap_or(FILESYSTEM) == wanted_mode.unwrap_or(FILESYSTEM)
        && wanted_modes.all(|mode| modes.contains(mode))
        && selector.is_none_or(|selector| selects(Some(selector), volume.metadata.labels.as_ref()))
        && size(volume) >= requested(claim)
}

/// How a volume says whose it is.
fn reference_to(claim: &PersistentVolumeClaim) -> Value {
    let metadata = &claim.metadata;
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace(metadata), "name": name(metadata), "uid": uid(metadata),
    })
}

/// Keeps a volume that nobody has for a claim.
pub(super) async fn keep(
    client: Client,
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
) -> Result<PersistentVolume, kube::Error> {
    let patch = json!({
        "metadata": {"resourceVersion": volume.metadata.resource_version}, "spec": {"claimRef": reference_to(claim)},
    });
    let api: Api<PersistentVolume> = Api::all(client);
    let parameters = PatchParams::default();
    api.patch(name(&volume.metadata), &parameters, &Patch::Merge(patch))
        .await
}

/// A new volume in the node's zone, or in the first zone that the class allows.
async fn provision(
    world: &World,
    claim: &PersistentVolumeClaim,
    class: Option<&StorageClass>,
    node: Option<&Node>,
) -> Result<Option<Arc<PersistentVolume>>, ReconcileError> {
    let Some(class) = class.filter(|class| class.provisioner != NO_PROVISIONER) else {
        return Ok(None);
    };
    let Some(spec) = &claim.spec else { return Ok(None) };
    let chosen = match node {
        Some(node) => zone(node).cloned(),
        None => first_zone(world, class),
    };
    let volume_name = format!("pvc-{}", uid(&claim.metadata));
    let mut volume = json!({
        "metadata": {"name": volume_name, "annotations": {"pv.kubernetes.io/provisioned-by": class.provisioner}},
        "spec": {
            "accessModes": spec.access_modes, "volumeMode": spec.volume_mode.as_deref().unwrap_or(FILESYSTEM),
            "capacity": spec.resources.as_ref().and_then(|resources| resources.requests.clone()),
            "claimRef": reference_to(claim),
            "csi": {"driver": class.provisioner, "volumeHandle": volume_name},
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "storageClassName": name(&class.metadata),
        },
    });
    if let Some(zone) = chosen {
        volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]}});
    }
    let volume: PersistentVolume = serde_json::from_value(volume)?;
    let api: Api<PersistentVolume> = Api::all(world.client.clone());
    let Some(created) = ignore_races(api.create(&PostParams::default(), &volume).await)? else {
        return Ok(None);
    };
    world.volumes.note_written(created.clone());
    Ok(Some(Arc::new(created)))
}

fn first_zone(world: &World, class: &StorageClass) -> Option<String> {
    let allowed = class.allowed_topologies.iter().flatten();
    let allowed = allowed
        .flat_map(|term| term.match_label_expressions.iter().flatten())
        .filter(|one| one.key == ZONE)
        .find_map(|one| one.values.first().cloned());
    let of_nodes = || {
        let nodes = world.nodes.snapshot();
        nodes.iter().filter_map(|node| zone(node).cloned()).min()
    };
    allowed.or_else(of_nodes)
}

/// Volume and claim reference each other, and both are in phase Bound.
async fn finish_binding(
    world: &World,
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
) -> Result<Requeue, ReconcileError> {
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let parameters = PatchParams::default();
    let volume_name = name(&volume.metadata);
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    match reference.and_then(|reference| reference.uid.as_deref()) {
        Some(owner) if owner != uid(&claim.metadata) => return Ok(Requeue::Done),
        Some(_) => {}
        None => {
            let answer = keep(world.client.clone(), volume, claim).await;
            if !noted(&world.volumes, answer)? {
                return Ok(Requeue::Done);
            }
        }
    }
    let is_named = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
    let annotations = claim.metadata.annotations.as_ref();
    let is_completed = annotations.is_some_and(|annotations| annotations.contains_key(COMPLETED));
    if !is_named || !is_completed {
        let mut annotations = json!({COMPLETED: "yes"});
        if !is_named {
            annotations[BY_CONTROLLER] = json!("yes");
        }
        let patch = json!({
            "metadata": {"uid": claim.metadata.uid, "annotations": annotations},
            "spec": {"volumeName": volume_name},
        });
        if !world.patch(&world.claims, claim, patch).await? {
            return Ok(Requeue::Done);
        }
    }
    if volume_phase(volume) != "Bound" {
        let answer = volumes
            .patch_status(volume_name, &parameters, &Patch::Merge(phase_patch("Bound")))
            .await;
        noted(&world.volumes, answer)?;
    }
    if !is_bound(claim) {
        let spec = volume.spec.as_ref();
        let patch = json!({"status": {
            "phase": "Bound", "accessModes": spec.and_then(|spec| spec.access_modes.clone()), "capacity": spec.and_then(|spec| spec.capacity.clone()),
        }});
        world.patch_status(&world.claims, claim, patch).await?;
    }
    Ok(Requeue::Done)
}

/// Whether a claim says that it has its volume.
pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let status = claim.status.as_ref();
    status.and_then(|status| status.phase.as_deref()) == Some("Bound")
}

fn volume_phase(volume: &PersistentVolume) -> &str {
    let status = volume.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

fn phase_patch(phase: &str) -> Value {
    json!({"status": {"phase": phase}})
}

/// A volume whose claim is gone is deleted, or released when it must be kept.
pub(super) async fn sync_volume(world: Arc<World>, volume_name: String) -> Result<Requeue, ReconcileError> {
    let Some(volume) = world.volumes.get_named(&volume_name) else {
        return Ok(Requeue::Done);
    };
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let owner = reference.and_then(|reference| reference.uid.as_deref());
    let claim = claim_of(&volume).and_then(|key| world.claims.get(&key));
    let phase = match (owner, claim) {
        (None, _) => "Available",
        (Some(owner), Some(claim)) if uid(&claim.metadata) == owner => return Ok(Requeue::Done),
        _ => "Released",
    };
    let api: Api<PersistentVolume> = Api::all(world.client.clone());
    let policy = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    if phase == "Released" && policy == Some("Delete") {
        if world.attachments_by_volume.count(&volume_name) > 0 {
            return Ok(Requeue::After(DETACH_DELAY));
        }
        if !is_deleting(&volume.metadata) {
            ignore_races(api.delete(&volume_name, &DeleteParams::default()).await)?;
        }
    } else if volume_phase(&volume) != phase {
        let answer = api
            .patch_status(
                &volume_name,
                &PatchParams::default(),
                &Patch::Merge(phase_patch(phase)),
            )
            .await;
        noted(&world.volumes, answer)?;
    }
    Ok(Requeue::Done)
}
