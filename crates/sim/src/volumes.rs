//! Volumes: claims get their volumes, volumes of claims that are gone go, and CSI volumes are attached to the nodes that use them.
//!
//! Never decides where a pod runs: for `WaitForFirstConsumer` it follows the node that the scheduler wrote on the claim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_runtime::{
    Api, ControllerMetrics, ObjectKey, ReconcileError, Requeue, Shutdown, TaskGroup, WorkQueue,
    run_controller,
};

use crate::objects::{has_ended, is_deleting, name, namespace, node_of, owner, uid};
use crate::quantities;
use crate::rules;
use crate::world::{World, is_race};

/// The node that the scheduler chose for a claim's first pod.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const ZONE: &str = "topology.kubernetes.io/zone";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// A volume stays attached for so long after its last pod on the node.
const DETACH_DELAY: Duration = Duration::from_secs(2);
const WORKERS: usize = 8;

/// The queues: claims, pods whose volumes bring claims of their own, volumes by name, nodes whose attachments may have changed.
pub(crate) struct Volumes {
    claims: WorkQueue<ObjectKey>,
    ephemeral: WorkQueue<ObjectKey>,
    volumes: WorkQueue<String>,
    attachments: WorkQueue<String>,
}

impl Volumes {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        let this = Self {
            claims: world.queue("persistentvolume.claims"),
            ephemeral: world.queue("ephemeral-volume"),
            volumes: world.queue("persistentvolume.volumes"),
            attachments: world.queue("attachdetach"),
        };
        let (claims, volumes, attachments, pods) = (
            this.claims.clone(),
            this.volumes.clone(),
            this.attachments.clone(),
            world.pods.clone(),
        );
        world.claims.on_change(move |change| {
            claims.add(change.key.clone());
            let bound = change
                .object()
                .and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
            if let Some(volume) = bound {
                volumes.add(volume);
                for pod in pods.in_namespace(&change.key.namespace) {
                    if !node_of(&pod).is_empty() && claim_names(&pod).contains(&change.key.name) {
                        attachments.add(node_of(&pod).to_owned());
                    }
                }
            }
        });
        let (claims, volumes) = (this.claims.clone(), this.volumes.clone());
        world.volumes.on_change(move |change| {
            volumes.add(change.key.name.clone());
            if let Some(key) = change.object().and_then(|volume| claim_of(volume)) {
                claims.add(key);
            }
        });
        let (attachments, ephemeral) = (this.attachments.clone(), this.ephemeral.clone());
        world.pods.on_change(move |change| {
            if change.old.is_none()
                && let Some(pod) = change
                    .new
                    .as_deref()
                    .filter(|pod| ephemeral_volumes(pod).next().is_some())
            {
                ephemeral.add(ObjectKey::of(pod));
            }
            for pod in [&change.old, &change.new].into_iter().flatten() {
                if !node_of(pod).is_empty() && !claim_names(pod).is_empty() {
                    attachments.add(node_of(pod).to_owned());
                }
            }
        });
        let attachments = this.attachments.clone();
        world.attachments.on_change(move |change| {
            if let Some(attachment) = change.object() {
                attachments.add(attachment.spec.node_name.clone());
            }
        });
        let (claims, store) = (this.claims.clone(), world.claims.clone());
        world
            .storage_classes
            .on_change(move |_| store.keys().into_iter().for_each(|key| claims.add(key)));
        this
    }

    pub(crate) fn start(self, world: &Arc<World>, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        let metrics = ControllerMetrics::new(&world.metrics);
        let shared = world.clone();
        let work = move |key| sync_claim(shared.clone(), key);
        tasks.spawn(
            "claims",
            run_controller(
                "persistentvolume.claims",
                self.claims,
                WORKERS,
                work,
                shutdown.clone(),
                metrics.clone(),
            ),
        );
        let shared = world.clone();
        let work = move |key| sync_ephemeral(shared.clone(), key);
        tasks.spawn(
            "ephemeral volumes",
            run_controller(
                "ephemeral-volume",
                self.ephemeral,
                WORKERS,
                work,
                shutdown.clone(),
                metrics.clone(),
            ),
        );
        let shared = world.clone();
        let work = move |name| sync_volume(shared.clone(), name);
        tasks.spawn(
            "volumes",
            run_controller(
                "persistentvolume.volumes",
                self.volumes,
                WORKERS,
                work,
                shutdown.clone(),
                metrics.clone(),
            ),
        );
        let (shared, idle) = (world.clone(), Arc::new(Idle::default()));
        let work = move |node| sync_attachments(shared.clone(), idle.clone(), node);
        tasks.spawn(
            "attachments",
            run_controller(
                "attachdetach",
                self.attachments,
                WORKERS,
                work,
                shutdown.clone(),
                metrics,
            ),
        );
    }
}

/// Since when an attachment, by name, has had no pod.
type Idle = Mutex<BTreeMap<String, Timestamp>>;

/// Names of the claims that a pod's volumes are about.
pub(crate) fn claim_names(pod: &Pod) -> Vec<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(
            |volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(source), _) => Some(source.claim_name.clone()),
                (None, Some(_)) => Some(format!("{}-{}", name(&pod.metadata), volume.name)),
                _ => None,
            },
        )
        .collect()
}

fn ephemeral_volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter(|volume| volume.ephemeral.is_some())
}

/// Claims that live and die with their pod are made from the templates in its volumes.
async fn sync_ephemeral(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
    let Some(pod) = world.pods.get(&key) else {
        return Ok(Requeue::Done);
    };
    if is_deleting(&pod.metadata) || has_ended(&pod) {
        return Ok(Requeue::Done);
    }
    let api: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), &key.namespace);
    for volume in ephemeral_volumes(&pod) {
        let Some(template) = volume
            .ephemeral
            .as_ref()
            .and_then(|source| source.volume_claim_template.as_ref())
        else {
            continue;
        };
        let mut metadata = template.metadata.clone().unwrap_or_default();
        metadata.name = Some(format!("{}-{}", name(&pod.metadata), volume.name));
        metadata.owner_references = Some(vec![owner("v1", "Pod", &pod.metadata)]);
        let claim = PersistentVolumeClaim {
            metadata,
            spec: Some(template.spec.clone()),
            status: None,
        };
        match api.create(&PostParams::default(), &claim).await {
            Ok(created) => world.claims.note_written(created),
            Err(error) if is_race(&error) => {}
            Err(error) => return Err(Box::new(error)),
        }
    }
    Ok(Requeue::Done)
}

fn claim_of(volume: &PersistentVolume) -> Option<ObjectKey> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(ObjectKey::namespaced(
        claim.namespace.clone()?,
        claim.name.clone()?,
    ))
}

/// The class of a claim; the default one when it names none.
pub(crate) fn class_of(world: &World, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
    match claim.spec.as_ref()?.storage_class_name.as_deref() {
        Some(class) => world.storage_classes.get_named(class),
        None => world.storage_classes.snapshot().into_iter().find(|class| {
            let annotations = class.metadata.annotations.as_ref();
            annotations
                .and_then(|annotations| annotations.get(DEFAULT_CLASS))
                .is_some_and(|value| value == "true")
        }),
    }
}

/// Whether a class binds its claims only when a pod has its node.
pub(crate) fn waits(class: Option<&StorageClass>) -> bool {
    class.and_then(|class| class.volume_binding_mode.as_deref()) == Some("WaitForFirstConsumer")
}

pub(crate) fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    let annotations = claim.metadata.annotations.as_ref()?;
    annotations.get(SELECTED_NODE).map(String::as_str)
}

fn zone(node: &Node) -> Option<&String> {
    node.metadata.labels.as_ref()?.get(ZONE)
}

/// Whether volumes of a class can be made for a node.
pub(crate) fn topology_accepts(class: &StorageClass, node: &Node) -> bool {
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    terms.is_empty()
        || terms.iter().any(|term| {
            let expressions = term.match_label_expressions.iter().flatten();
            expressions
                .into_iter()
                .all(|one| label(&one.key).is_some_and(|value| one.values.contains(value)))
        })
}

/// Why a node cannot have a pod because of its volumes.
pub(crate) fn refusal(world: &World, pod: &Pod, node: &Node) -> Option<&'static str> {
    for claim_name in claim_names(pod) {
        let key = ObjectKey::namespaced(namespace(&pod.metadata), claim_name);
        let Some(claim) = world.claims.get(&key) else {
            continue;
        };
        let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        if let Some(volume) = bound.and_then(|volume| world.volumes.get_named(volume)) {
            if !reaches(&volume, node) {
                return Some("node(s) didn't match PersistentVolume's node affinity");
            }
            continue;
        }
        // A pod before this one has chosen already, and its volume is being made.
        let chosen = selected_node(&claim).and_then(|chosen| world.nodes.get_named(chosen));
        if chosen.is_some_and(|chosen| zone(&chosen) != zone(node))
            || class_of(world, &claim).is_some_and(|class| !topology_accepts(&class, node))
        {
            return Some("node(s) didn't find available persistent volumes to bind");
        }
    }
    None
}

/// Why no node at all can have a pod because of its volumes.
pub(crate) fn refusal_everywhere(world: &World, pod: &Pod) -> Option<String> {
    for claim_name in claim_names(pod) {
        let key = ObjectKey::namespaced(namespace(&pod.metadata), claim_name.clone());
        let Some(claim) = world.claims.get(&key) else {
            return Some(format!("persistentvolumeclaim \"{claim_name}\" not found"));
        };
        if is_deleting(&claim.metadata) {
            return Some(format!("persistentvolumeclaim \"{claim_name}\" is being deleted"));
        }
        let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        match bound {
            Some(volume) if world.volumes.get_named(volume).is_none() => {
                return Some(format!("persistentvolume \"{volume}\" not found"));
            }
            None if !waits(class_of(world, &claim).as_deref()) => {
                return Some("pod has unbound immediate PersistentVolumeClaims".to_owned());
            }
            _ => {}
        }
    }
    None
}

/// Writes the chosen node on those of a pod's claims that wait for it.
pub(crate) async fn select_node(world: &World, pod: &Pod, node: &Node) -> Result<(), kube::Error> {
    for claim_name in claim_names(pod) {
        let key = ObjectKey::namespaced(namespace(&pod.metadata), claim_name);
        let Some(claim) = world.claims.get(&key) else {
            continue;
        };
        let bound = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
        if bound || selected_node(&claim).is_some() {
            continue;
        }
        let api: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), &key.namespace);
        let patch = json!({"metadata": {"uid": claim.metadata.uid, "annotations": {SELECTED_NODE: name(&node.metadata)}}});
        let written = api
            .patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        world.claims.note_written(written);
    }
    Ok(())
}

fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    affinity
        .and_then(|affinity| affinity.required.as_ref())
        .is_none_or(|selector| rules::selector_accepts(selector, node))
}

fn ignore_races<T>(result: Result<T, kube::Error>) -> Result<Option<T>, ReconcileError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_race(&error) => Ok(None),
        Err(error) => Err(Box::new(error)),
    }
}

async fn sync_claim(world: Arc<World>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
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
    if waits(class.as_deref()) && node.is_none() {
        return Ok(Requeue::Done);
    }
    let volume = match matching(&world, &claim, node.as_deref()) {
        Some(volume) => Some(volume),
        None => provision(&world, &claim, class.as_deref(), node.as_deref()).await?,
    };
    if let Some(volume) = volume {
        finish_binding(&world, &claim, &volume).await?;
    }
    Ok(Requeue::Done)
}

fn requested(claim: &PersistentVolumeClaim) -> i128 {
    let requests = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    requests
        .and_then(|requests| requests.get("storage"))
        .map_or(0, quantities::milli)
}

/// The smallest free volume that does, or the one that was kept for the claim.
fn matching(
    world: &World,
    claim: &PersistentVolumeClaim,
    node: Option<&Node>,
) -> Option<Arc<PersistentVolume>> {
    let key = ObjectKey::of(claim);
    let wanted = claim.spec.as_ref()?;
    let size = |volume: &PersistentVolume| {
        let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
        capacity
            .and_then(|capacity| capacity.get("storage"))
            .map_or(0, quantities::milli)
    };
    let fits = |volume: &PersistentVolume| {
        let Some(spec) = &volume.spec else { return false };
        if let Some(reference) = &spec.claim_ref {
            let same = reference
                .uid
                .as_deref()
                .is_none_or(|kept| kept == uid(&claim.metadata));
            return same && claim_of(volume).as_ref() == Some(&key);
        }
        let modes = spec.access_modes.as_deref().unwrap_or_default();
        let wanted_class = wanted.storage_class_name.as_deref().unwrap_or_default();
        spec.storage_class_name.as_deref().unwrap_or_default() == wanted_class
            && wanted
                .access_modes
                .iter()
                .flatten()
                .all(|mode| modes.contains(mode))
            && size(volume) >= requested(claim)
            && node.is_none_or(|node| reaches(volume, node))
    };
    let mut volumes = world.volumes.snapshot();
    volumes.retain(|volume| !is_deleting(&volume.metadata) && fits(volume));
    volumes.into_iter().min_by_key(|volume| {
        let free = volume.spec.as_ref().is_none_or(|spec| spec.claim_ref.is_none());
        (free, size(volume), name(&volume.metadata).to_owned())
    })
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
            "accessModes": spec.access_modes, "volumeMode": spec.volume_mode.as_deref().unwrap_or("Filesystem"),
            "capacity": spec.resources.as_ref().and_then(|resources| resources.requests.clone()),
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace(&claim.metadata), "name": name(&claim.metadata), "uid": uid(&claim.metadata),
            },
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

/// Volume and claim point at each other, and both say that they are bound.
async fn finish_binding(
    world: &World,
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
) -> Result<Requeue, ReconcileError> {
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(world.client.clone(), namespace(&claim.metadata));
    let parameters = PatchParams::default();
    let volume_name = name(&volume.metadata);
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    match reference.and_then(|reference| reference.uid.as_deref()) {
        Some(owner) if owner != uid(&claim.metadata) => return Ok(Requeue::Done),
        Some(_) => {}
        None => {
            let patch = json!({"metadata": {"resourceVersion": volume.metadata.resource_version}, "spec": {"claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace(&claim.metadata), "name": name(&claim.metadata), "uid": uid(&claim.metadata),
            }}});
            let answer = volumes
                .patch(volume_name, &parameters, &Patch::Merge(patch))
                .await;
            let Some(written) = ignore_races(answer)? else {
                return Ok(Requeue::Done);
            };
            world.volumes.note_written(written);
        }
    }
    if claim.spec.as_ref().is_none_or(|spec| spec.volume_name.is_none()) {
        let patch = json!({
            "metadata": {"uid": claim.metadata.uid, "annotations": {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}},
            "spec": {"volumeName": volume_name},
        });
        let answer = claims
            .patch(name(&claim.metadata), &parameters, &Patch::Merge(patch))
            .await;
        let Some(written) = ignore_races(answer)? else {
            return Ok(Requeue::Done);
        };
        world.claims.note_written(written);
    }
    if volume_phase(volume) != "Bound" {
        let answer = volumes
            .patch_status(volume_name, &parameters, &Patch::Merge(phase_patch("Bound")))
            .await;
        if let Some(written) = ignore_races(answer)? {
            world.volumes.note_written(written);
        }
    }
    let claim_phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    if claim_phase != Some("Bound") {
        let spec = volume.spec.as_ref();
        let patch = json!({"status": {
            "phase": "Bound", "accessModes": spec.and_then(|spec| spec.access_modes.clone()), "capacity": spec.and_then(|spec| spec.capacity.clone()),
        }});
        let answer = claims
            .patch_status(name(&claim.metadata), &parameters, &Patch::Merge(patch))
            .await;
        if let Some(written) = ignore_races(answer)? {
            world.claims.note_written(written);
        }
    }
    Ok(Requeue::Done)
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
async fn sync_volume(world: Arc<World>, volume_name: String) -> Result<Requeue, ReconcileError> {
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
        let attached =
            world.attachments.snapshot().iter().any(|attachment| {
                attachment.spec.source.persistent_volume_name.as_deref() == Some(&volume_name)
            });
        if attached {
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
        if let Some(written) = ignore_races(answer)? {
            world.volumes.note_written(written);
        }
    }
    Ok(Requeue::Done)
}

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

/// The name depends on volume and node only, so that a second attempt finds the first.
fn attachment_name(volume: &str, node: &str) -> String {
    let bytes = volume.bytes().chain([0]).chain(node.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("csi-{hash:016x}")
}

async fn sync_attachments(
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
