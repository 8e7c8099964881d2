//! The objects that decisions read, kept up to date by watches: one list of stores, from which everything else about them follows.
//!
//! Owns the list, the watches and what changes of a store mean to a Snapshot. It decides nothing.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use kube::Resource;
use spokeshave_api::disruption::{DisruptedNode, Disruption};
use spokeshave_api::{NodeClaim, NodeOverlay, NodePool};
use spokeshave_model::trim;
use spokeshave_ports::{Entropy, SharedClock};
use spokeshave_runtime::{
    Metrics, Object, Reflector, Shutdown, Store, StoreOptions, TaskGroup, WatchOptions,
};

use crate::options::Options;
use crate::spread::SpreadSources;
use crate::virtual_pods::BufferSources;

/// After this time it is worth a word that stores have not been filled (D-049).
const LONG_TO_FILL: Duration = Duration::from_secs(30);

/// How often stores have changed, by what that means to a Snapshot.
///
/// Every store only ever counts upwards, so that equal sums mean that none of them has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Versions {
    /// Pods, virtual ones included: a Snapshot takes changed pods in without being made from scratch.
    pub(crate) pods: u64,
    /// NodeClaims: disruption writes its verdicts to them, which no decision reads.
    pub(crate) node_claims: u64,
    /// Everything else that a Snapshot is made of.
    pub(crate) others: u64,
    /// What no Snapshot is made of, or only through something that is compared by itself: NodeOverlays through instance types, CapacityBuffers
    /// through their virtual pods.
    pub(crate) apart: u64,
}

impl Versions {
    /// The same in all that a Snapshot is made of, except perhaps pods.
    pub(crate) fn is_same_but_for_pods(&self, other: &Self) -> bool {
        (self.node_claims, self.others) == (other.node_claims, other.others)
    }

    /// The same in all that a Snapshot is made of.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.pods == other.pods && self.is_same_but_for_pods(other)
    }
}

/// Makes a struct of stores from one line per stored kind:
///
/// ```text
/// name: Kind, when it is watched (a field of `Wanted`), what its changes mean (a field of `Versions`), how a new store treats objects;
/// ```
///
/// Struct, creation, watches, readiness and versions follow from the line, so that a further kind touches nothing else. Indexes find objects by
/// something other than their name; groups are stores that are kept together in a struct of their own.
macro_rules! stores {
    (
        $(#[$outer:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$doc:meta])* $field_visibility:vis $field:ident: $kind:ty, $when:ident, $role:ident, $options:expr;)*
        }
        indexes {
            $($(#[$index_doc:meta])* $index_visibility:vis $index:ident: $indexed:ty, $store:ident, $keys:expr;)*
        }
        groups {
            $($(#[$group_doc:meta])* $group_visibility:vis $group:ident: $group_type:ty;)*
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Debug)]
        #[allow(missing_docs, reason = "each is named after what it holds")]
        $visibility struct $name {
            $($(#[$doc])* $field_visibility $field: spokeshave_runtime::Store<$kind>,)*
            $($(#[$index_doc])* $index_visibility $index: spokeshave_runtime::Index<$indexed>,)*
            $($(#[$group_doc])* $group_visibility $group: $group_type,)*
        }

        impl $name {
            /// Empty stores. Limits of containers are kept only for the metrics of single objects.
            pub(crate) fn new(object_metrics: bool) -> Self {
                $(let $field: spokeshave_runtime::Store<$kind> = spokeshave_runtime::Store::new(($options)(object_metrics));)*
                Self {
                    $($index: $store.index($keys),)*
                    $($field,)*
                    $($group: <$group_type>::new(object_metrics),)*
                }
            }

            /// Starts the watches that are wanted.
            pub(crate) fn start(&self, wanted: $crate::stores::Wanted, starter: &mut $crate::stores::Starter<'_>) {
                $(if wanted.$when {
                    starter.start(&self.$field);
                })*
                $(self.$group.start(wanted, starter);)*
            }

            /// Completes when every store that is watched has been filled once.
            pub(crate) async fn ready(&self, wanted: $crate::stores::Wanted) {
                $(if wanted.$when {
                    self.$field.ready().await;
                })*
                $(self.$group.ready(wanted).await;)*
            }

            /// Adds how often its stores have changed.
            pub(crate) fn count(&self, versions: &mut $crate::stores::Versions) {
                $(versions.$role += self.$field.changes();)*
                $(self.$group.count(versions);)*
            }

            /// Names of the stores that are watched but were not filled yet.
            pub(crate) fn unfilled(&self, wanted: $crate::stores::Wanted) -> Vec<&'static str> {
                let mut unfilled = Vec::new();
                $(if wanted.$when && !self.$field.is_ready() {
                    unfilled.push(stringify!($field));
                })*
                $(unfilled.extend(self.$group.unfilled(wanted));)*
                unfilled
            }
        }
    };
}
pub(crate) use stores;

/// Keeps all but `managedFields`.
pub(crate) fn plain<K: Resource + PartialEq>(_: bool) -> StoreOptions<K> {
    StoreOptions::default()
}

fn trimmed_pods(object_metrics: bool) -> StoreOptions<Pod> {
    StoreOptions::trimmed(if object_metrics {
        trim::pod_with_limits
    } else {
        trim::pod
    })
}

fn under_way(disruption: &Disruption, field: fn(&DisruptedNode) -> &String) -> Vec<String> {
    let nodes = disruption.spec.nodes.iter().filter(|_| !disruption.is_finished());
    nodes.map(|node| field(node).clone()).collect()
}

fn key(value: Option<&str>) -> Vec<String> {
    let value = value.filter(|text| !text.is_empty());
    value.map(str::to_owned).into_iter().collect()
}

stores! {
    /// All stores.
    pub struct Stores {
        pub node_pools: NodePool, always, others, plain;
        pub node_claims: NodeClaim, always, node_claims, plain;
        pub nodes: Node, always, others, |_| StoreOptions::trimmed(trim::node);
        pub pods: Pod, always, pods, trimmed_pods;
        pub daemon_sets: DaemonSet, always, others, |_| StoreOptions::trimmed(trim::daemon_set);
        pub pod_disruption_budgets: PodDisruptionBudget, always, others, plain;
        pub namespaces: Namespace, always, others, plain;
        pub persistent_volumes: PersistentVolume, always, others, plain;
        pub persistent_volume_claims: PersistentVolumeClaim, always, others, plain;
        pub storage_classes: StorageClass, always, others, plain;
        pub csi_nodes: CSINode, always, others, plain;
        pub volume_attachments: VolumeAttachment, always, apart, plain;
        pub disruptions: Disruption, always, others, plain;
        /// Filled only where Dynamic Resource Allocation is on.
        pub resource_slices: ResourceSlice, dynamic_resources, apart, plain;
        /// Filled only where the feature gate is on.
        pub node_overlays: NodeOverlay, node_overlays, apart, plain;
    }
    indexes {
        /// Pods by the name of their node.
        pub pods_by_node: Pod, pods, |pod| key(spokeshave_model::pod::node_name(pod));
        /// Nodes by provider ID.
        pub nodes_by_provider_id: Node, nodes, |node| key(node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()));
        /// NodeClaims by provider ID.
        pub claims_by_provider_id: NodeClaim, node_claims, |claim| key(claim.provider_id());
        /// NodeClaims by NodePool.
        pub claims_by_pool: NodeClaim, node_claims, |claim| key(claim.node_pool());
        /// Disruptions under way by the UIDs of the NodeClaims that they remove.
        pub disruptions_by_claim: Disruption, disruptions, |one| under_way(one, |node| &node.node_claim_uid);
        /// Disruptions under way by the names of the Nodes that they remove.
        pub disruptions_by_node: Disruption, disruptions, |one| under_way(one, |node| &node.name);
        /// Attachments by the name of their node.
        pub attachments_by_node: VolumeAttachment, volume_attachments, |one| key(Some(&one.spec.node_name));
        /// ResourceSlices by the name of their node.
        pub slices_by_node: ResourceSlice, resource_slices, |slice| key(slice.spec.node_name.as_deref());
    }
    groups {
        /// CapacityBuffers and what they name; filled only where the feature gate is on.
        pub(crate) buffers: BufferSources;
        /// What default topology spread looks at; filled only where it is asked for.
        pub(crate) spread: SpreadSources;
    }
}

impl Stores {
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
        self.start(wanted, &mut starter);
    }

    /// Completes when every store that is watched has been filled once, and says so when that takes long (D-049, P-142).
    pub(crate) async fn filled(&self, wanted: Wanted, clock: &SharedClock) {
        let mut ready = std::pin::pin!(self.ready(wanted));
        loop {
            tokio::select! {
                biased;
                () = &mut ready => return,
                () = clock.sleep(LONG_TO_FILL) => {
                    let waiting_for = self.unfilled(wanted).join(", ");
                    tracing::error!(waiting_for, "the state of the cluster is not complete yet; until it is, nothing is decided");
                }
            }
        }
    }

    /// How often the stores have changed.
    pub(crate) fn versions(&self) -> Versions {
        let mut versions = Versions::default();
        self.count(&mut versions);
        versions
    }
}

/// What is watched only where it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// What every operator needs: true.
    pub(crate) always: bool,
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
            always: true,
            spread: !options.default_spread.is_empty(),
            dynamic_resources: options.dynamic_resources,
            node_overlays: options.feature_gates.node_overlay,
            capacity_buffers: options.feature_gates.capacity_buffer,
        }
    }
}

/// Starts watches.
pub(crate) struct Starter<'a> {
    client: &'a kube::Client,
    clock: &'a SharedClock,
    entropy: &'a Entropy,
    metrics: &'a Metrics,
    tasks: &'a mut TaskGroup,
    shutdown: &'a Shutdown,
}

impl Starter<'_> {
    pub(crate) fn start<K: Object>(&mut self, store: &Store<K>) {
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
