//! CapacityBuffers (P §12): each is resolved when it, its PodTemplate or its workload changes (B-53), and every thirty seconds; the provisioner then
//! looks whether the room is there.
//!
//! Owns the status that says what a buffer was resolved to, and when room is looked after. Where the room is, is the provisioner's decision.

use std::sync::Arc;

use kube::Resource;
use spokeshave_api::CapacityBuffer;
use spokeshave_api::constants::BUFFER_PERIOD;
use spokeshave_model::Pod;
use spokeshave_model::pod;
use spokeshave_plan::buffers::{resolve, status_action};
use spokeshave_runtime::{Change, Object, ObjectKey, Requeue, Store};

use crate::act::hands::Hands;
use crate::controller::{Controller, Looked, Triggers};
use crate::options::Options;
use crate::reconcile::provisioner::Provisioner;
use crate::state::cluster::Cluster;
use crate::state::stores::Stores;
use crate::state::virtual_pods::reference_key;

/// What asks for a pass when the room of some buffer may be gone.
const ROOM: &str = "capacitybuffers";

/// The controller of CapacityBuffers.
#[derive(Debug)]
pub(crate) struct CapacityBuffers {
    cluster: Arc<Cluster>,
    hands: Hands,
    provisioner: Arc<Provisioner>,
}

impl CapacityBuffers {
    /// `None` when the feature gate is off.
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        hands: Hands,
        provisioner: Arc<Provisioner>,
    ) -> Option<Arc<Self>> {
        if !cluster.options.feature_gates.capacity_buffer {
            return None;
        }
        Some(Arc::new(Self {
            cluster,
            hands,
            provisioner,
        }))
    }

    /// A pod that takes its place may have taken that of a buffer, and so does a node that goes: room is made anew soon, not with the next period.
    fn follow_room(self: &Arc<Self>) {
        let this = self.clone();
        self.cluster.stores.pods.on_change(move |change| {
            let is_bound = |pod: Option<&Pod>| pod.is_some_and(|pod| pod::node_name(pod).is_some());
            if is_bound(change.new.as_deref()) && !is_bound(change.old.as_deref()) {
                this.look_after_room();
            }
        });
        let this = self.clone();
        self.cluster.stores.nodes.on_change(move |change| {
            if change.new.is_none() {
                this.look_after_room();
            }
        });
    }

    fn look_after_room(&self) {
        if self.cluster.virtual_pods.exist(&self.cluster.stores.buffers) {
            self.provisioner.batcher.trigger(ROOM);
        }
    }
}

impl Controller for CapacityBuffers {
    const NAME: &'static str = "capacitybuffer";
    type Key = ObjectKey;

    /// P §12.
    fn workers(_: &Options) -> usize {
        10
    }

    /// Buffers are looked at again when they or what they name have changed.
    fn subscribe(self: &Arc<Self>, on: &mut Triggers<'_, ObjectKey>) {
        on.change(
            |stores| &stores.buffers.buffers,
            |_, change| {
                // Our own status comes back this way too.
                let generation = |one: &CapacityBuffer| (one.metadata.uid.clone(), one.metadata.generation);
                let differs = change.old.as_deref().map(generation) != change.new.as_deref().map(generation);
                differs.then(|| change.key.clone())
            },
        );
        follow(
            on,
            |stores| &stores.buffers.pod_templates,
            "PodTemplate",
            |one| one.template.clone(),
        );
        follow(
            on,
            |stores| &stores.buffers.deployments,
            "Deployment",
            |one| (one.spec.replicas, one.spec.template.clone()),
        );
        follow(
            on,
            |stores| &stores.buffers.stateful_sets,
            "StatefulSet",
            |one| (one.spec.replicas, one.spec.template.clone()),
        );
        follow(
            on,
            |stores| &stores.buffers.replica_sets,
            "ReplicaSet",
            |one| (one.spec.replicas, one.spec.template.clone()),
        );
        self.follow_room();
    }

    /// One look at a buffer.
    async fn reconcile(self: Arc<Self>, key: ObjectKey) -> Looked {
        let sources = &self.cluster.stores.buffers;
        let Some(buffer) = sources.buffers.get(&key) else {
            // Its room need not be kept any more; who waits for room may have it.
            self.provisioner.batcher.trigger(ROOM);
            return Ok(Requeue::Done);
        };
        let resolution = resolve(&buffer, sources);
        if let Some(action) = status_action(&buffer, &resolution, self.cluster.now()) {
            match self.hands.run(&action).await {
                Ok(()) => {
                    if let Err(unresolved) = &resolution {
                        let (reason, error) = (unresolved.reason, &unresolved.message);
                        tracing::error!(CapacityBuffer = %key, reason, error, "capacitybuffer cannot be resolved and keeps no room");
                    }
                }
                Err(error) if error.is_not_found() => return Ok(Requeue::Done),
                Err(error) if error.is_conflict() => return Ok(Requeue::Stale),
                Err(error) => return Err(error.into()),
            }
        }
        let uid = buffer.metadata.uid.as_deref().unwrap_or_default();
        self.provisioner.batcher.trigger(uid);
        Ok(Requeue::After(BUFFER_PERIOD))
    }
}

/// Looks at the buffers that name an object when what they read of it has changed.
fn follow<K, Part>(
    on: &mut Triggers<'_, ObjectKey>,
    store: impl Fn(&Stores) -> &Store<K>,
    kind: &'static str,
    part: fn(&K) -> Part,
) where
    K: Object + Resource<DynamicType = ()>,
    Part: PartialEq + 'static,
{
    on.change(store, move |stores, change: &Change<K>| {
        let key = reference_key(kind, &change.key.namespace, &change.key.name);
        let mut named = stores.buffers.by_reference.get(&key);
        if !named.is_empty() && change.old.as_deref().map(part) == change.new.as_deref().map(part) {
            named.clear();
        }
        named.into_iter().map(|buffer| ObjectKey::of(&*buffer))
    });
}
