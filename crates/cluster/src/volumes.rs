//! Volumes: claims get their volumes, volumes of claims that are gone go, and CSI volumes are attached to the nodes that use them.
//!
//! Never decides where a pod runs: for `WaitForFirstConsumer` it follows the node that the scheduler wrote on the claim, or the volume that it keeps for
//! the claim.

mod attachments;
mod binding;
mod wanted;

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_runtime::{Api, ObjectKey, ReconcileError, Requeue, Shutdown, TaskGroup, WorkQueue};

use crate::objects::{
    has_ended, is_deleting, is_node_silent, is_out_of_service, name, namespace, node_of, owner,
};
use crate::rules;
use crate::world::{World, noted};
use attachments::{Memory, sync_attachments};
use binding::{is_bound, keep, sync_claim, sync_volume};
use wanted::Served;

pub(crate) use attachments::are_elsewhere;
pub(crate) use wanted::Wanted;

/// The node that the scheduler chose for a claim's first pod.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotations of a class for claims that name none, in today's and in an older form.
const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
const ZONE: &str = "topology.kubernetes.io/zone";
/// A volume stays attached for so long after its last pod on the node.
const DETACH_DELAY: Duration = Duration::from_secs(2);
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
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
        let (claims, volumes, store) = (this.claims.clone(), this.volumes.clone(), world.claims.clone());
        world.volumes.on_change(move |change| {
            volumes.add(change.key.name.clone());
            let Some(volume) = change.object() else { return };
            match claim_of(volume) {
                Some(key) => claims.add(key),
                // Somebody has made it beforehand: it may be what a claim waits for, or names.
                None => store.for_each(|key, claim| {
                    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_ref());
                    if named.is_none_or(|named| *named == change.key.name) {
                        claims.add(key.clone());
                    }
                }),
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
        world.nodes.on_change(move |change| {
            // Whether its kubelet can unmount anything; a node that has just come has nothing.
            let state = |node: &Node| (is_node_silent(node), is_out_of_service(node));
            if let Some(old) = change.old.as_deref()
                && change.new.as_deref().map(state) != Some(state(old))
            {
                attachments.add(name(&old.metadata).to_owned());
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
        world.start(tasks, shutdown, "claims", self.claims, WORKERS, sync_claim);
        world.start(
            tasks,
            shutdown,
            "ephemeral volumes",
            self.ephemeral,
            WORKERS,
            sync_ephemeral,
        );
        world.start(tasks, shutdown, "volumes", self.volumes, WORKERS, sync_volume);
        let memory = Arc::new(Memory::default());
        let sync = move |world, node| sync_attachments(world, memory.clone(), node);
        world.start(tasks, shutdown, "attachments", self.attachments, WORKERS, sync);
    }
}

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
        let answer = api.create(&PostParams::default(), &claim).await;
        noted(&world.claims, answer)?;
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

/// The class of a claim. One that names none has none until the default class is written into it: by the API server when it is made, later by `sync_claim`.
pub(crate) fn class_of(world: &World, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
    let class = claim.spec.as_ref()?.storage_class_name.as_deref()?;
    world.storage_classes.get_named(class)
}

/// The newest default class; of several that are as new, the first by name.
fn default_class(world: &World) -> Option<Arc<StorageClass>> {
    let is_default = |class: &Arc<StorageClass>| {
        let annotations = class.metadata.annotations.as_ref();
        let says_so = |key: &&str| {
            annotations
                .and_then(|annotations| annotations.get(*key))
                .is_some_and(|value| value == "true")
        };
        DEFAULT_CLASS.iter().any(says_so)
    };
    let mut classes = world.storage_classes.snapshot();
    classes.retain(is_default);
    classes.into_iter().min_by_key(|class| {
        let created = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (Reverse(created), name(&class.metadata).to_owned())
    })
}

/// Whether a class binds its claims only when a pod has its node.
pub(crate) fn waits(class: Option<&StorageClass>) -> bool {
    class.and_then(|class| class.volume_binding_mode.as_deref()) == Some("WaitForFirstConsumer")
}

pub(crate) fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    let annotations = claim.metadata.annotations.as_ref()?;
    annotations.get(SELECTED_NODE).map(String::as_str)
}

pub(crate) fn zone(node: &Node) -> Option<&String> {
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

/// Those of a pod's claims that wait for its node get it: free volumes that are there are kept for them, and on the others the node is written, so that volumes
/// are made for it. Whether the node can have all of them: another claim may have been faster.
pub(crate) async fn select_node(world: &World, pod: &Pod, node: &Node) -> Result<bool, kube::Error> {
    let wanted = Wanted::of(world, pod);
    let Some(served) = wanted.served(node) else {
        return Ok(false);
    };
    for (waiting, served) in served {
        let claim = &waiting.claim;
        match served {
            Served::Free(volume) => {
                let written = keep(world.scheduler_client.clone(), volume, claim).await?;
                world.volumes.note_written(written);
            }
            Served::Coming if waiting.has_node() => {}
            Served::Coming => {
                let place = namespace(&claim.metadata);
                let api: Api<PersistentVolumeClaim> = Api::namespaced(world.scheduler_client.clone(), place);
                let patch = json!({"metadata": {"uid": claim.metadata.uid, "annotations": {SELECTED_NODE: name(&node.metadata)}}});
                let written = api
                    .patch(
                        name(&claim.metadata),
                        &PatchParams::default(),
                        &Patch::Merge(patch),
                    )
                    .await?;
                world.claims.note_written(written);
            }
        }
    }
    Ok(true)
}

/// Whether a claim of a pod has no volume yet: no container can mount it.
pub(crate) fn are_unbound(world: &World, pod: &Pod) -> bool {
    let is_unbound = |claim_name: String| {
        let claim = world
            .claims
            .get(&ObjectKey::namespaced(namespace(&pod.metadata), claim_name));
        claim.is_some_and(|claim| !is_bound(&claim))
    };
    claim_names(pod).into_iter().any(is_unbound)
}

fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    affinity
        .and_then(|affinity| affinity.required.as_ref())
        .is_none_or(|selector| rules::selector_accepts(selector, node))
}
