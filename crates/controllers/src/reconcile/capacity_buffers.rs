//! CapacityBuffers (P §12): each is resolved when it, its PodTemplate or its workload changes (B-53), and every thirty seconds; the provisioner then
//! looks whether the room is there.
//!
//! Owns the status that says what a buffer was resolved to, and when room is looked after. Where the room is, is the provisioner's decision.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Resource;
use spokeshave_api::CapacityBuffer;
use spokeshave_api::constants::BUFFER_PERIOD;
use spokeshave_model::Pod;
use spokeshave_model::pod;
use spokeshave_plan::buffers::{Tally, provisioning_action, resolve, status_action};
use spokeshave_runtime::{Change, Object, ObjectKey, ReconcileError, Requeue, Store, WorkQueue};

use crate::reconcile::provisioner::Provisioner;
use crate::shared::Shared;
use crate::state::virtual_pods::reference_key;

/// What asks for a pass when the room of some buffer may be gone.
const ROOM: &str = "capacitybuffers";

/// The controller of CapacityBuffers.
#[derive(Debug)]
pub(crate) struct CapacityBuffers {
    shared: Arc<Shared>,
    provisioner: Arc<Provisioner>,
    pub(crate) queue: WorkQueue<ObjectKey>,
}

impl CapacityBuffers {
    /// `None` when the feature gate is off.
    pub(crate) fn new(
        shared: Arc<Shared>,
        provisioner: Arc<Provisioner>,
        queue: WorkQueue<ObjectKey>,
    ) -> Option<Arc<Self>> {
        if !shared.options.feature_gates.capacity_buffer {
            return None;
        }
        let this = Arc::new(Self {
            shared,
            provisioner,
            queue,
        });
        this.follow_objects();
        this.follow_room();
        Some(this)
    }

    /// Buffers are looked at again when they or what they name have changed.
    fn follow_objects(self: &Arc<Self>) {
        let sources = &self.shared.stores.buffers;
        let this = self.clone();
        sources.buffers.on_change(move |change| {
            // Our own status comes back this way too.
            let generation = |one: &CapacityBuffer| (one.metadata.uid.clone(), one.metadata.generation);
            if change.old.as_deref().map(generation) != change.new.as_deref().map(generation) {
                this.queue.add(change.key.clone());
            }
        });
        self.follow(&sources.pod_templates, "PodTemplate", |one| one.template.clone());
        self.follow(&sources.deployments, "Deployment", |one| {
            (one.spec.replicas, one.spec.template.clone())
        });
        self.follow(&sources.stateful_sets, "StatefulSet", |one| {
            (one.spec.replicas, one.spec.template.clone())
        });
        self.follow(&sources.replica_sets, "ReplicaSet", |one| {
            (one.spec.replicas, one.spec.template.clone())
        });
    }

    /// Looks at the buffers that name an object when what they read of it has changed.
    fn follow<K, Part>(self: &Arc<Self>, store: &Store<K>, kind: &'static str, part: fn(&K) -> Part)
    where
        K: Object + Resource<DynamicType = ()>,
        Part: PartialEq + 'static,
    {
        let this = self.clone();
        store.on_change(move |change: &Change<K>| {
            let key = reference_key(kind, &change.key.namespace, &change.key.name);
            let named = this.shared.stores.buffers.by_reference.get(&key);
            if named.is_empty() || change.old.as_deref().map(part) == change.new.as_deref().map(part) {
                return;
            }
            for buffer in named {
                this.queue.add(ObjectKey::of(&*buffer));
            }
        });
    }

    /// A pod that takes its place may have taken that of a buffer, and so does a node that goes: room is made anew soon, not with the next period.
    fn follow_room(self: &Arc<Self>) {
        let this = self.clone();
        self.shared.stores.pods.on_change(move |change| {
            let is_bound = |pod: Option<&Pod>| pod.is_some_and(|pod| pod::node_name(pod).is_some());
            if is_bound(change.new.as_deref()) && !is_bound(change.old.as_deref()) {
                this.look_after_room();
            }
        });
        let this = self.clone();
        self.shared.stores.nodes.on_change(move |change| {
            if change.new.is_none() {
                this.look_after_room();
            }
        });
    }

    fn look_after_room(&self) {
        if self.shared.virtual_pods.exist(&self.shared.stores.buffers) {
            self.provisioner.batcher.trigger(ROOM);
        }
    }

    /// One look at a buffer.
    pub(crate) async fn reconcile(self: Arc<Self>, key: ObjectKey) -> Result<Requeue, ReconcileError> {
        let shared = &self.shared;
        let sources = &shared.stores.buffers;
        let Some(buffer) = sources.buffers.get(&key) else {
            // Its room need not be kept any more; who waits for room may have it.
            self.provisioner.batcher.trigger(ROOM);
            return Ok(Requeue::Done);
        };
        let resolution = resolve(&buffer, sources);
        if let Some(action) = status_action(&buffer, &resolution, shared.now()) {
            match shared.execute.run(&action).await {
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

/// Writes what a pass has found for each buffer (P-185). What cannot be written now is written after the next pass.
pub(crate) async fn tell_buffers(shared: &Shared, tallies: &BTreeMap<String, Tally>) {
    for buffer in shared.stores.buffers.buffers.snapshot() {
        let key = ObjectKey::of(&*buffer).to_string();
        let tally = tallies.get(&key).copied();
        let Some(action) = provisioning_action(&buffer, tally, shared.now()) else {
            continue;
        };
        if let Err(error) = shared.execute.run(&action).await
            && !error.is_not_found()
        {
            tracing::debug!(CapacityBuffer = key, %error, "writing the condition of a capacitybuffer; the next pass tries again");
        }
    }
}
