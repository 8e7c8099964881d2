//! The objects that the parts look at, how they write, and how their controllers start.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    Endpoints, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController,
    Service,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource};
use serde_json::{Value, json};
use spokeshave_ports::{Entropy, SharedClock, causes, is_conflict};
use spokeshave_runtime::{
    Api, ControllerMetrics, Index, Metrics, Object, QueueOptions, ReconcileError, Reflector, Requeue,
    Shutdown, Store, StoreOptions, TaskGroup, WatchOptions, WorkQueue, run_controller,
};

use crate::events::{Told, event};
use crate::objects::{controller_of, name, namespace, node_of, time, uid};
use crate::{Clients, Options};

/// Components with clients of their own, as their events name them.
pub(crate) const KUBELET: &str = "kubelet";
pub(crate) const SCHEDULER: &str = "default-scheduler";

/// What the parts share.
pub(crate) struct World {
    /// Of controllers and watches.
    pub(crate) client: Client,
    pub(crate) kubelet_client: Client,
    pub(crate) scheduler_client: Client,
    pub(crate) clock: SharedClock,
    pub(crate) entropy: Entropy,
    pub(crate) options: Options,
    pub(crate) metrics: Metrics,
    pub(crate) pods: Store<Pod>,
    pub(crate) nodes: Store<Node>,
    pub(crate) namespaces: Store<Namespace>,
    pub(crate) deployments: Store<Deployment>,
    pub(crate) replica_sets: Store<ReplicaSet>,
    pub(crate) replication_controllers: Store<ReplicationController>,
    pub(crate) stateful_sets: Store<StatefulSet>,
    pub(crate) daemon_sets: Store<DaemonSet>,
    pub(crate) jobs: Store<Job>,
    pub(crate) cron_jobs: Store<CronJob>,
    pub(crate) autoscalers: Store<HorizontalPodAutoscaler>,
    pub(crate) budgets: Store<PodDisruptionBudget>,
    pub(crate) claims: Store<PersistentVolumeClaim>,
    pub(crate) volumes: Store<PersistentVolume>,
    pub(crate) storage_classes: Store<StorageClass>,
    pub(crate) attachments: Store<VolumeAttachment>,
    pub(crate) csi_nodes: Store<CSINode>,
    pub(crate) csi_drivers: Store<CSIDriver>,
    pub(crate) revisions: Store<ControllerRevision>,
    pub(crate) services: Store<Service>,
    pub(crate) endpoints: Store<Endpoints>,
    pub(crate) slices: Store<EndpointSlice>,
    /// What controllers have told of objects.
    pub(crate) told: Told,
    /// Pods by the UID of the owner that controls them.
    pub(crate) pods_by_owner: Index<Pod>,
    /// Pods that no owner controls, as [`orphans`] finds them.
    pub(crate) orphans: Index<Pod>,
    /// Jobs by the UID of the CronJob that controls them.
    pub(crate) jobs_by_owner: Index<Job>,
    /// Pods by the name of their node.
    pub(crate) pods_by_node: Index<Pod>,
    /// ReplicaSets by the UID of the Deployment that controls them.
    pub(crate) replica_sets_by_owner: Index<ReplicaSet>,
    pub(crate) orphan_sets: Index<ReplicaSet>,
    /// ControllerRevisions by the UID of the set that controls them.
    pub(crate) revisions_by_owner: Index<ControllerRevision>,
    pub(crate) orphan_revisions: Index<ControllerRevision>,
    /// VolumeAttachments by the name of their volume.
    pub(crate) attachments_by_volume: Index<VolumeAttachment>,
    /// VolumeAttachments by the name of their node.
    pub(crate) attachments_by_node: Index<VolumeAttachment>,
}

impl World {
    pub(crate) fn new(
        clients: Clients,
        clock: SharedClock,
        entropy: &Entropy,
        options: Options,
        metrics: Metrics,
    ) -> Arc<Self> {
        let pods: Store<Pod> = Store::default();
        let replica_sets: Store<ReplicaSet> = Store::default();
        let jobs: Store<Job> = Store::default();
        let revisions: Store<ControllerRevision> = Store::default();
        let attachments: Store<VolumeAttachment> = Store::default();
        let text = |text: &str| {
            if text.is_empty() {
                Vec::new()
            } else {
                vec![text.to_owned()]
            }
        };
        Arc::new(Self {
            pods_by_owner: pods.index(|pod| owner_keys(&pod.metadata)),
            orphans: pods.index(|pod| orphan_keys(&pod.metadata)),
            jobs_by_owner: jobs.index(|job| owner_keys(&job.metadata)),
            pods_by_node: pods.index(move |pod| text(node_of(pod))),
            replica_sets_by_owner: replica_sets.index(|set| owner_keys(&set.metadata)),
            orphan_sets: replica_sets.index(|set| orphan_keys(&set.metadata)),
            revisions_by_owner: revisions.index(|revision| owner_keys(&revision.metadata)),
            orphan_revisions: revisions.index(|revision| orphan_keys(&revision.metadata)),
            attachments_by_volume: attachments.index(|one| {
                let volume = one.spec.source.persistent_volume_name.iter();
                volume.cloned().collect()
            }),
            attachments_by_node: attachments.index(|one| vec![one.spec.node_name.clone()]),
            pods,
            replica_sets,
            // When kubelets last reported is for others to know.
            nodes: Store::new(StoreOptions::trimmed(|node: &mut Node| {
                node.metadata.managed_fields = None;
                let conditions = node
                    .status
                    .iter_mut()
                    .flat_map(|status| status.conditions.iter_mut());
                for condition in conditions.flatten() {
                    condition.last_heartbeat_time = None;
                }
            })),
            namespaces: Store::default(),
            deployments: Store::default(),
            replication_controllers: Store::default(),
            stateful_sets: Store::default(),
            daemon_sets: Store::default(),
            jobs,
            cron_jobs: Store::default(),
            autoscalers: Store::default(),
            budgets: Store::default(),
            claims: Store::default(),
            volumes: Store::default(),
            storage_classes: Store::default(),
            attachments,
            csi_nodes: Store::default(),
            csi_drivers: Store::default(),
            revisions,
            services: Store::default(),
            endpoints: Store::default(),
            slices: Store::default(),
            told: Told::default(),
            client: clients.controllers,
            kubelet_client: clients.kubelets,
            scheduler_client: clients.scheduler,
            clock,
            entropy: entropy.clone(),
            options,
            metrics,
        })
    }

    /// An event about a pod.
    pub(crate) async fn tell(&self, component: &str, pod: &Pod, kind: &str, reason: &str, message: &str) {
        self.tell_of(component, pod, (kind, reason, message)).await;
    }

    /// An event about an object in a namespace: type, reason and message.
    pub(crate) async fn tell_of<K: Object>(&self, component: &str, object: &K, said: (&str, &str, &str)) {
        drop(self.make_event(component, object, said, self.clock.now()).await);
    }

    /// The Event that was made, unless it was lost.
    async fn make_event<K: Object>(
        &self,
        component: &str,
        object: &K,
        said: (&str, &str, &str),
        now: Timestamp,
    ) -> Option<Event> {
        let event = event(component, object, said, now)?;
        let api: Api<Event> = Api::namespaced(self.client_of(component), namespace(object.meta()));
        let answer = api.create(&PostParams::default(), &event).await;
        answer
            .inspect_err(|error| tracing::debug!(%error, "an event was lost"))
            .ok()
    }

    /// The same, counted together with what the component has told of the object before.
    pub(crate) async fn note<K: Object>(
        &self,
        component: &str,
        object: &K,
        (kind, reason, message): (&str, &str, &str),
    ) {
        let now = self.clock.now();
        let source = (component.to_owned(), uid(object.meta()).to_owned());
        let Some(telling) = self.told.next(&source, reason, message, now) else {
            return;
        };
        if let Some((name, count)) = &telling.raised {
            let api: Api<Event> = Api::namespaced(self.client_of(component), namespace(object.meta()));
            let patch = json!({"count": count, "lastTimestamp": time(now), "message": telling.message});
            match api
                .patch(name, &PatchParams::default(), &Patch::Merge(patch))
                .await
            {
                Ok(_) => return,
                // The server has forgotten it.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => {
                    tracing::debug!(%error, "an event was lost");
                    return;
                }
            }
        }
        let said = (kind, reason, telling.message.as_str());
        if let Some(created) = self.make_event(component, object, said, now).await {
            let created = name(&created.metadata).to_owned();
            self.told.keep(&source, telling.key, created, now);
        }
    }

    /// The same, of something that has gone well: only where records are kept.
    pub(crate) async fn record<K: Object>(&self, component: &str, object: &K, reason: &str, message: &str) {
        if self.keeps_records() {
            self.note(component, object, ("Normal", reason, message)).await;
        }
    }

    fn client_of(&self, component: &str) -> Client {
        let client = match component {
            KUBELET => &self.kubelet_client,
            SCHEDULER => &self.scheduler_client,
            _ => &self.client,
        };
        client.clone()
    }

    fn api_of<K>(&self, object: &K) -> Api<K>
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace(object.meta()))
    }

    /// Writes a change of an object in a namespace. Whether it was written: another writer may have been faster.
    pub(crate) async fn patch<K>(
        &self,
        store: &Store<K>,
        object: &K,
        patch: Value,
    ) -> Result<bool, ReconcileError>
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        let api = self.api_of(object);
        let answer = api
            .patch(name(object.meta()), &PatchParams::default(), &Patch::Merge(patch))
            .await;
        noted(store, answer)
    }

    /// The same with its status.
    pub(crate) async fn patch_status<K>(
        &self,
        store: &Store<K>,
        object: &K,
        patch: Value,
    ) -> Result<bool, ReconcileError>
    where
        K: Object + Resource<Scope = NamespaceResourceScope>,
    {
        let api = self.api_of(object);
        let answer = api
            .patch_status(name(object.meta()), &PatchParams::default(), &Patch::Merge(patch))
            .await;
        noted(store, answer)
    }

    /// Writes a change of a pod with this client to the pod's status. Whether it was written: another writer may have been faster.
    pub(crate) async fn write_pod_status(
        &self,
        client: &Client,
        pod: &Pod,
        patch: Value,
    ) -> Result<bool, ReconcileError> {
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace(&pod.metadata));
        let answer = api
            .patch_status(
                name(&pod.metadata),
                &PatchParams::default(),
                &Patch::Strategic(patch),
            )
            .await;
        noted(&self.pods, answer)
    }

    pub(crate) fn queue<Key: Ord + Clone + Send + 'static>(&self, name: &str) -> WorkQueue<Key> {
        WorkQueue::new(name, self.clock.clone(), QueueOptions::default(), &self.metrics)
    }

    /// Starts the controller of a queue.
    pub(crate) fn start<Key, Work>(
        self: &Arc<Self>,
        tasks: &mut TaskGroup,
        shutdown: &Shutdown,
        task: &str,
        queue: WorkQueue<Key>,
        workers: usize,
        sync: impl Fn(Arc<Self>, Key) -> Work + Send + Sync + 'static,
    ) where
        Key: Ord + Clone + fmt::Display + Send + Sync + 'static,
        Work: Future<Output = Result<Requeue, ReconcileError>> + Send + 'static,
    {
        let (world, shutdown) = (self.clone(), shutdown.clone());
        let metrics = ControllerMetrics::new(&self.metrics);
        let name = queue.name().to_owned();
        let work = move |key| sync(world.clone(), key);
        tasks.spawn(task, async move {
            run_controller(&name, queue, workers, work, shutdown, metrics).await;
        });
    }

    /// Whether controllers write what no decision depends on.
    pub(crate) fn keeps_records(&self) -> bool {
        self.options.workloads && self.options.records
    }

    fn needs_workloads(&self) -> bool {
        self.options.workloads || self.options.disruption_budgets
    }

    fn needs_replication_controllers(&self) -> bool {
        self.options.replication_controllers && self.needs_workloads()
    }

    fn needs_volumes(&self) -> bool {
        self.options.scheduler || self.options.volumes
    }

    pub(crate) fn watch(&self, entropy: &Entropy, tasks: &mut TaskGroup, shutdown: &Shutdown) {
        let mut start = Starter {
            world: self,
            entropy,
            tasks,
            shutdown,
        };
        start.watch(&self.nodes);
        start.watch(&self.pods);
        if self.options.scheduler {
            start.watch(&self.namespaces);
        }
        if self.needs_volumes() {
            start.watch(&self.claims);
            start.watch(&self.volumes);
            start.watch(&self.storage_classes);
            start.watch(&self.csi_nodes);
        }
        if self.options.volumes {
            start.watch(&self.attachments);
            start.watch(&self.csi_drivers);
        }
        if self.needs_workloads() {
            start.watch(&self.deployments);
            start.watch(&self.replica_sets);
            start.watch(&self.stateful_sets);
            start.watch(&self.daemon_sets);
            start.watch(&self.jobs);
        }
        if self.needs_replication_controllers() {
            start.watch(&self.replication_controllers);
        }
        if self.options.workloads {
            start.watch(&self.cron_jobs);
            start.watch(&self.autoscalers);
        }
        if self.keeps_records() {
            start.watch(&self.revisions);
            start.watch(&self.services);
            start.watch(&self.endpoints);
            start.watch(&self.slices);
        }
        if self.options.disruption_budgets {
            start.watch(&self.budgets);
        }
    }

    pub(crate) async fn ready(&self) {
        self.nodes.ready().await;
        self.pods.ready().await;
        if self.options.scheduler {
            self.namespaces.ready().await;
        }
        if self.needs_volumes() {
            self.claims.ready().await;
            self.volumes.ready().await;
            self.storage_classes.ready().await;
            self.csi_nodes.ready().await;
        }
        if self.options.volumes {
            self.attachments.ready().await;
            self.csi_drivers.ready().await;
        }
        if self.needs_workloads() {
            self.deployments.ready().await;
            self.replica_sets.ready().await;
            self.stateful_sets.ready().await;
            self.daemon_sets.ready().await;
            self.jobs.ready().await;
        }
        if self.needs_replication_controllers() {
            self.replication_controllers.ready().await;
        }
        if self.options.workloads {
            self.cron_jobs.ready().await;
            self.autoscalers.ready().await;
        }
        if self.keeps_records() {
            self.revisions.ready().await;
            self.services.ready().await;
            self.endpoints.ready().await;
            self.slices.ready().await;
        }
        if self.options.disruption_budgets {
            self.budgets.ready().await;
        }
    }
}

struct Starter<'a> {
    world: &'a World,
    entropy: &'a Entropy,
    tasks: &'a mut TaskGroup,
    shutdown: &'a Shutdown,
}

impl Starter<'_> {
    fn watch<K: Object>(&mut self, store: &Store<K>) {
        let kind = K::kind(&()).into_owned();
        let entropy = self.entropy.child(&kind);
        let reflector = Reflector::new(
            self.world.client.clone(),
            store,
            &WatchOptions::default(),
            self.world.clock.clone(),
            &entropy,
            &self.world.metrics,
        );
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(
            format!("watch {kind}"),
            async move { reflector.run(shutdown).await },
        );
    }
}

/// Under what an object that an owner controls is found.
fn owner_keys(metadata: &ObjectMeta) -> Vec<String> {
    let owner = controller_of(metadata);
    owner.map(|owner| owner.uid.clone()).into_iter().collect()
}

/// Under what an object that no owner controls is found: its namespace, and each of its labels there.
fn orphan_keys(metadata: &ObjectMeta) -> Vec<String> {
    if controller_of(metadata).is_some() {
        return Vec::new();
    }
    let place = namespace(metadata);
    let labels = metadata.labels.iter().flatten();
    let labelled = labels.map(|(key, value)| label_key(place, key, value));
    std::iter::once(place.to_owned()).chain(labelled).collect()
}

fn label_key(place: &str, key: &str, value: &str) -> String {
    format!("{place}/{key}={value}")
}

/// The objects of a namespace that no owner controls and that a selector may select, in order: by its first label, so that others need not be looked at.
pub(crate) fn orphans<K: Object>(index: &Index<K>, place: &str, selector: &LabelSelector) -> Vec<Arc<K>> {
    match selector.match_labels.iter().flatten().next() {
        Some((key, value)) => index.get(&label_key(place, key, value)),
        None => index.get(place),
    }
}

/// What an API server says of an error, without code and reason; of another error what it is.
pub(crate) fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => causes(other),
    }
}

/// Whether nothing can be made because its namespace is on its way out: nobody needs to be told.
pub(crate) fn is_namespace_ending(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}

/// Errors that mean "another writer was faster": the next change triggers a new reconciliation.
pub(crate) fn is_race(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || is_conflict(status))
}

/// The answer to a write, unless another writer was faster.
pub(crate) fn ignore_races<T>(answer: Result<T, kube::Error>) -> Result<Option<T>, ReconcileError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_race(&error) => Ok(None),
        Err(error) => Err(Box::new(error)),
    }
}

/// Keeps what the server has made of an object that was written. Whether it was written: another writer may have been faster.
pub(crate) fn noted<K: Object>(
    store: &Store<K>,
    answer: Result<K, kube::Error>,
) -> Result<bool, ReconcileError> {
    let Some(written) = ignore_races(answer)? else {
        return Ok(false);
    };
    store.note_written(written);
    Ok(true)
}

/// What a controller remembers between its looks.
pub(crate) fn lock<Map>(shared: &Mutex<Map>) -> MutexGuard<'_, Map> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// With what this object is deleted, and none that has come since under its name.
pub(crate) fn deletion_of(metadata: &ObjectMeta, grace_period_seconds: Option<u32>) -> DeleteParams {
    DeleteParams {
        grace_period_seconds,
        preconditions: Some(Preconditions {
            uid: metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}
