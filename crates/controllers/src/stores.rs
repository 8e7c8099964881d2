//! The objects that decisions read, kept up to date by watches.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use spokeshave_api::disruption::{DisruptedNode, Disruption};
use spokeshave_api::{NodeClaim, NodeOverlay, NodePool};
use spokeshave_model::trim;
use spokeshave_ports::{Entropy, SharedClock};
use spokeshave_runtime::{
    Index, Metrics, Object, Reflector, Shutdown, Store, StoreOptions, TaskGroup, WatchOptions,
};

use crate::options::Options;
use crate::spread::SpreadSources;
use crate::virtual_pods::BufferSources;

/// All stores.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each is named after what it holds")]
pub struct Stores {
    pub pods: Store<Pod>,
    pub nodes: Store<Node>,
    pub node_claims: Store<NodeClaim>,
    pub node_pools: Store<NodePool>,
    pub daemon_sets: Store<DaemonSet>,
    pub pod_disruption_budgets: Store<PodDisruptionBudget>,
    pub namespaces: Store<Namespace>,
    pub persistent_volumes: Store<PersistentVolume>,
    pub persistent_volume_claims: Store<PersistentVolumeClaim>,
    pub storage_classes: Store<StorageClass>,
    pub csi_nodes: Store<CSINode>,
    pub volume_attachments: Store<VolumeAttachment>,
    pub disruptions: Store<Disruption>,
    /// Filled only where the feature gate is on.
    pub node_overlays: Store<NodeOverlay>,
    /// CapacityBuffers and what they name; filled only where the feature gate is on.
    pub(crate) buffers: BufferSources,
    /// Filled only where Dynamic Resource Allocation is on.
    pub resource_slices: Store<ResourceSlice>,
    /// What default topology spread looks at; empty unless it is asked for.
    pub(crate) spread: SpreadSources,
    /// Pods by the name of their node.
    pub pods_by_node: Index<Pod>,
    /// Nodes by provider ID.
    pub nodes_by_provider_id: Index<Node>,
    /// NodeClaims by provider ID.
    pub claims_by_provider_id: Index<NodeClaim>,
    /// NodeClaims by NodePool.
    pub claims_by_pool: Index<NodeClaim>,
    /// Disruptions under way by the UIDs of the NodeClaims that go.
    pub disruptions_by_claim: Index<Disruption>,
    /// Disruptions under way by the names of the Nodes that go.
    pub disruptions_by_node: Index<Disruption>,
    /// Attachments by the name of their node.
    pub attachments_by_node: Index<VolumeAttachment>,
    /// ResourceSlices by the name of their node.
    pub slices_by_node: Index<ResourceSlice>,
}

impl Stores {
    /// Empty stores. Limits of containers are only kept for the metrics of single nodes.
    pub(crate) fn new(object_metrics: bool) -> Self {
        let pods: Store<Pod> = Store::new(StoreOptions {
            trim: if object_metrics {
                trim::pod_with_limits
            } else {
                trim::pod
            },
        });
        let nodes: Store<Node> = Store::new(StoreOptions { trim: trim::node });
        let node_claims: Store<NodeClaim> = Store::default();
        let volume_attachments: Store<VolumeAttachment> = Store::default();
        let disruptions: Store<Disruption> = Store::default();
        let resource_slices: Store<ResourceSlice> = Store::default();
        let under_way = |disruption: &Disruption, field: fn(&DisruptedNode) -> &String| {
            let nodes = disruption.spec.nodes.iter().filter(|_| !disruption.is_finished());
            nodes.map(|node| field(node).clone()).collect::<Vec<_>>()
        };
        let text = |value: Option<&str>| {
            value
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
                .into_iter()
                .collect::<Vec<_>>()
        };
        Self {
            pods_by_node: pods.index(move |pod| text(spokeshave_model::pod::node_name(pod))),
            nodes_by_provider_id: nodes
                .index(move |node| text(node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()))),
            claims_by_provider_id: node_claims.index(move |claim| text(claim.provider_id())),
            claims_by_pool: node_claims.index(move |claim| text(claim.node_pool())),
            disruptions_by_claim: disruptions
                .index(move |disruption| under_way(disruption, |node| &node.node_claim_uid)),
            disruptions_by_node: disruptions
                .index(move |disruption| under_way(disruption, |node| &node.name)),
            attachments_by_node: volume_attachments
                .index(move |attachment| text(Some(&attachment.spec.node_name))),
            slices_by_node: resource_slices.index(move |slice| text(slice.spec.node_name.as_deref())),
            resource_slices,
            pods,
            nodes,
            node_claims,
            volume_attachments,
            disruptions,
            node_pools: Store::default(),
            node_overlays: Store::default(),
            buffers: BufferSources::new(),
            daemon_sets: Store::default(),
            pod_disruption_budgets: Store::default(),
            namespaces: Store::default(),
            persistent_volumes: Store::default(),
            persistent_volume_claims: Store::default(),
            storage_classes: Store::default(),
            csi_nodes: Store::default(),
            spread: SpreadSources::default(),
        }
    }

    /// Starts all watches; those that only some features need where these are asked for.
    pub(crate) fn watch(
        &self,
        wanted: Wanted,
        client: &kube::Client,
        clock: &SharedClock,
        entropy: &Entropy,
        metrics: &Metrics,
        tasks: &mut TaskGroup,
        shutdown: &Shutdown,
    ) {
        let entropy = entropy.child("watches");
        let mut starter = Starter {
            client,
            clock,
            entropy: &entropy,
            metrics,
            tasks,
            shutdown,
        };
        starter.start(&self.node_pools);
        starter.start(&self.node_claims);
        starter.start(&self.nodes);
        starter.start(&self.pods);
        starter.start(&self.daemon_sets);
        starter.start(&self.pod_disruption_budgets);
        starter.start(&self.namespaces);
        starter.start(&self.persistent_volumes);
        starter.start(&self.persistent_volume_claims);
        starter.start(&self.storage_classes);
        starter.start(&self.csi_nodes);
        starter.start(&self.volume_attachments);
        starter.start(&self.disruptions);
        if wanted.dynamic_resources {
            starter.start(&self.resource_slices);
        }
        if wanted.node_overlays {
            starter.start(&self.node_overlays);
        }
        if wanted.capacity_buffers {
            starter.start(&self.buffers.buffers);
            starter.start(&self.buffers.pod_templates);
            starter.start(&self.buffers.deployments);
            starter.start(&self.buffers.stateful_sets);
            starter.start(&self.buffers.replica_sets);
        }
        if wanted.spread {
            starter.start(&self.spread.services);
            starter.start(&self.spread.replica_sets);
            starter.start(&self.spread.stateful_sets);
            starter.start(&self.spread.replication_controllers);
        }
    }

    /// Completes when every store that is watched has been filled once.
    pub(crate) async fn ready(&self, wanted: Wanted) {
        if wanted.spread {
            self.spread.ready().await;
        }
        if wanted.node_overlays {
            self.node_overlays.ready().await;
        }
        if wanted.capacity_buffers {
            self.buffers.ready().await;
        }
        self.node_pools.ready().await;
        self.node_claims.ready().await;
        self.nodes.ready().await;
        self.pods.ready().await;
        self.daemon_sets.ready().await;
        self.pod_disruption_budgets.ready().await;
        self.namespaces.ready().await;
        self.persistent_volumes.ready().await;
        self.persistent_volume_claims.ready().await;
        self.storage_classes.ready().await;
        self.csi_nodes.ready().await;
        self.volume_attachments.ready().await;
        self.disruptions.ready().await;
    }

    /// How often each store that a Snapshot is made of has changed.
    pub(crate) fn versions(&self) -> [u64; 13] {
        [
            self.pods.changes(),
            self.nodes.changes(),
            self.node_claims.changes(),
            self.node_pools.changes(),
            self.daemon_sets.changes(),
            self.pod_disruption_budgets.changes(),
            self.namespaces.changes(),
            self.persistent_volumes.changes(),
            self.persistent_volume_claims.changes(),
            self.storage_classes.changes(),
            self.csi_nodes.changes(),
            self.disruptions.changes(),
            self.spread.changes(),
        ]
    }

    /// A number that differs when anything that disruption reads has changed.
    pub(crate) fn version(&self) -> u64 {
        [
            self.pods.changes(),
            self.nodes.changes(),
            self.node_claims.changes(),
            self.node_pools.changes(),
            self.pod_disruption_budgets.changes(),
            self.daemon_sets.changes(),
            self.disruptions.changes(),
        ]
        .iter()
        .fold(0, |sum: u64, changes| sum.wrapping_add(*changes))
    }
}

/// What is watched only where it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// What default topology spread reads.
    pub(crate) spread: bool,
    /// ResourceSlices.
    pub(crate) dynamic_resources: bool,
    /// NodeOverlays.
    pub(crate) node_overlays: bool,
    /// CapacityBuffers, PodTemplates and the workloads that buffers may name.
    pub(crate) capacity_buffers: bool,
}

impl Wanted {
    pub(crate) fn of(options: &Options) -> Self {
        Self {
            spread: !options.default_spread.is_empty(),
            dynamic_resources: options.dynamic_resources,
            node_overlays: options.feature_gates.node_overlay,
            capacity_buffers: options.feature_gates.capacity_buffer,
        }
    }
}

struct Starter<'a> {
    client: &'a kube::Client,
    clock: &'a SharedClock,
    entropy: &'a Entropy,
    metrics: &'a Metrics,
    tasks: &'a mut TaskGroup,
    shutdown: &'a Shutdown,
}

impl Starter<'_> {
    fn start<K: Object>(&mut self, store: &Store<K>) {
        let kind = K::kind(&()).into_owned();
        let entropy = self.entropy.child(&kind);
        let reflector = Reflector::new(
            self.client.clone(),
            store,
            &WatchOptions::default(),
            self.clock.clone(),
            &entropy,
            self.metrics,
        );
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(
            format!("watch {kind}"),
            async move { reflector.run(shutdown).await },
        );
    }
}
