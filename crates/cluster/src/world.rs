//! The objects that the parts look at, and how they write.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment};
use kube::Client;
use kube::api::PostParams;
use serde_json::json;
use spokeshave_ports::{Entropy, SharedClock, is_conflict};
use spokeshave_runtime::{
    Api, Index, Metrics, Object, QueueOptions, Reflector, Shutdown, Store, StoreOptions, TaskGroup,
    WatchOptions, WorkQueue,
};

use crate::Options;
use crate::objects::{controller_of, name, namespace, node_of, time};

/// What the parts share.
pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) clock: SharedClock,
    pub(crate) entropy: Entropy,
    pub(crate) options: Options,
    pub(crate) metrics: Metrics,
    pub(crate) pods: Store<Pod>,
    pub(crate) nodes: Store<Node>,
    pub(crate) namespaces: Store<Namespace>,
    pub(crate) deployments: Store<Deployment>,
    pub(crate) replica_sets: Store<ReplicaSet>,
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
    /// Pods by the UID of the owner that controls them.
    pub(crate) pods_by_owner: Index<Pod>,
    /// Pods that no owner controls, by namespace.
    pub(crate) orphans: Index<Pod>,
    /// Jobs by the UID of the CronJob that controls them.
    pub(crate) jobs_by_owner: Index<Job>,
    /// Pods by the name of their node.
    pub(crate) pods_by_node: Index<Pod>,
    /// ReplicaSets by the UID of the Deployment that controls them.
    pub(crate) replica_sets_by_owner: Index<ReplicaSet>,
}

impl World {
    pub(crate) fn new(
        client: Client,
        clock: SharedClock,
        entropy: &Entropy,
        options: Options,
        metrics: Metrics,
    ) -> Arc<Self> {
        let pods: Store<Pod> = Store::default();
        let replica_sets: Store<ReplicaSet> = Store::default();
        let jobs: Store<Job> = Store::default();
        let text = |text: &str| {
            if text.is_empty() {
                Vec::new()
            } else {
                vec![text.to_owned()]
            }
        };
        Arc::new(Self {
            pods_by_owner: pods.index(move |pod| {
                controller_of(&pod.metadata)
                    .map(|owner| owner.uid.clone())
                    .into_iter()
                    .collect()
            }),
            orphans: pods.index(move |pod| match controller_of(&pod.metadata) {
                Some(_) => Vec::new(),
                None => vec![namespace(&pod.metadata).to_owned()],
            }),
            jobs_by_owner: jobs.index(move |job| {
                controller_of(&job.metadata)
                    .map(|owner| owner.uid.clone())
                    .into_iter()
                    .collect()
            }),
            pods_by_node: pods.index(move |pod| text(node_of(pod))),
            replica_sets_by_owner: replica_sets.index(move |set| {
                controller_of(&set.metadata)
                    .map(|owner| owner.uid.clone())
                    .into_iter()
                    .collect()
            }),
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
            stateful_sets: Store::default(),
            daemon_sets: Store::default(),
            jobs,
            cron_jobs: Store::default(),
            autoscalers: Store::default(),
            budgets: Store::default(),
            claims: Store::default(),
            volumes: Store::default(),
            storage_classes: Store::default(),
            attachments: Store::default(),
            csi_nodes: Store::default(),
            csi_drivers: Store::default(),
            client,
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
    pub(crate) async fn tell_of<K: Object>(
        &self,
        component: &str,
        object: &K,
        (kind, reason, message): (&str, &str, &str),
    ) {
        let now = time(self.clock.now());
        let metadata = object.meta();
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"generateName": format!("{}.", name(metadata)), "namespace": namespace(metadata)},
            "involvedObject": {"apiVersion": K::api_version(&()), "kind": K::kind(&()), "name": name(metadata), "namespace": namespace(metadata), "uid": metadata.uid},
            "type": kind, "reason": reason, "message": message, "count": 1, "firstTimestamp": now, "lastTimestamp": now,
            "source": {"component": component}, "reportingComponent": component, "reportingInstance": "",
        });
        let Ok(event) = serde_json::from_value::<Event>(event) else {
            return;
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace(metadata));
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            tracing::debug!(%error, "an event was lost");
        }
    }

    pub(crate) fn queue<Key: Ord + Clone + Send + 'static>(&self, name: &str) -> WorkQueue<Key> {
        WorkQueue::new(name, self.clock.clone(), QueueOptions::default(), &self.metrics)
    }

    fn needs_workloads(&self) -> bool {
        self.options.workloads || self.options.disruption_budgets
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
        if self.options.workloads {
            start.watch(&self.cron_jobs);
            start.watch(&self.autoscalers);
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
        if self.options.workloads {
            self.cron_jobs.ready().await;
            self.autoscalers.ready().await;
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

/// Errors that mean "another writer was faster": the next change triggers a new reconciliation.
pub(crate) fn is_race(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || is_conflict(status))
}
