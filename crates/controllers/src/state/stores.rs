//! The objects that decisions read, kept up to date by watches: one list of stores, from which everything else about them follows.
//!
//! Owns the list, the watches and what changes of a store mean to a Snapshot. It decides nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};
use spokeshave_api::disruption::{DisruptedNode, Disruption};
use spokeshave_api::{DisruptionPolicy, NodeClaim, NodeOverlay, NodePool};
use spokeshave_model::Pod;
use spokeshave_model::trim;
use spokeshave_ports::{Entropy, SharedClock};
use spokeshave_runtime::{Metrics, Shutdown, StoreOptions, TaskGroup};

use crate::state::owners::{OwnerSources, hears_workloads};
use crate::state::spread::SpreadSources;
use crate::state::store_list::{Rejected, Starter, Versions, Wanted, plain, stores};
use crate::state::virtual_pods::BufferSources;

/// After this time it is worth a word that stores have not been filled (D-049).
const LONG_TO_FILL: Duration = Duration::from_secs(30);

fn trimmed_pods(object_metrics: bool) -> StoreOptions<Pod> {
    StoreOptions::trimmed(if object_metrics {
        trim::pod_with_limits
    } else {
        trim::pod
    })
}

/// Of a policy that cannot be read nobody knows whether it is a freeze: it must not be as if it were not there.
fn readable_or_not(_: bool) -> StoreOptions<DisruptionPolicy> {
    StoreOptions {
        stand_in: Some(DisruptionPolicy::salvaged),
        ..StoreOptions::default()
    }
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
        pub node_pools: NodePool, always, node_pools, plain;
        pub node_claims: NodeClaim, always, node_claims, plain;
        pub nodes: Node, always, nodes, |_| StoreOptions::trimmed(trim::node);
        pub pods: Pod, always, pods, trimmed_pods;
        pub daemon_sets: DaemonSet, always, others, |_| StoreOptions::trimmed(trim::daemon_set);
        pub pod_disruption_budgets: PodDisruptionBudget, always, budgets, plain;
        pub namespaces: Namespace, always, others, |_| StoreOptions::trimmed(trim::namespace);
        pub persistent_volumes: PersistentVolume, always, others, |_| StoreOptions::trimmed(trim::persistent_volume);
        pub persistent_volume_claims: PersistentVolumeClaim, always, others, |_| StoreOptions::trimmed(trim::persistent_volume_claim);
        pub storage_classes: StorageClass, always, others, plain;
        pub csi_nodes: CSINode, always, csi_nodes, plain;
        pub volume_attachments: VolumeAttachment, always, apart, plain;
        pub disruptions: Disruption, own_kinds, disruptions, plain;
        pub disruption_policies: DisruptionPolicy, own_kinds, policies, readable_or_not;
        /// Filled only where Dynamic Resource Allocation is on.
        pub resource_slices: ResourceSlice, dynamic_resources, apart, plain;
        /// Filled only where the feature gate is on.
        pub node_overlays: NodeOverlay, node_overlays, apart, plain;
    }
    indexes {
        /// Pods by the name of their node.
        pub pods_by_node: Pod, pods, |pod| key(spokeshave_model::pod::node_name(pod));
        /// Waiting pods by the name of the node that they were planned on.
        pub pods_by_planned_node: Pod, pods, |pod| key(spokeshave_model::planned_node::said(pod).map(|(node, _)| node));
        /// Waiting pods by the name of the node that somebody else has promised to them.
        pub pods_by_promised_node: Pod, pods, |pod| key(spokeshave_model::planned_node::promised(pod));
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
        /// Owners of pods, which may ask for quiet; filled only once a DisruptionPolicy hears them.
        pub(crate) owners: OwnerSources;
        /// What default topology spread looks at; filled only where it is asked for.
        pub(crate) spread: SpreadSources;
    }
}

impl Stores {
    /// The NodeClaim of a Node: the only one with its provider ID. With several none counts (D-307).
    pub(crate) fn claim_of_node(&self, node: &Node) -> Option<Arc<NodeClaim>> {
        let id = node.spec.as_ref()?.provider_id.as_deref()?;
        match &self.claims_by_provider_id.get(id)[..] {
            [claim] => Some(claim.clone()),
            _ => None,
        }
    }

    /// Whether a Node is there, by name and UID: one that came later under the same name is another.
    pub(crate) fn has_node(&self, name: &str, uid: &str) -> bool {
        let node = self.nodes.get_named(name);
        node.is_some_and(|node| node.metadata.uid.as_deref() == Some(uid))
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
        self.start(wanted, &mut starter);
        let policies = &self.disruption_policies;
        starter.start_when(&self.owners.deployments, policies, hears_workloads);
        starter.start_when(&self.owners.stateful_sets, policies, hears_workloads);
        starter.start_when(&self.owners.replica_sets, policies, hears_workloads);
        starter.start_when(&self.owners.jobs, policies, hears_workloads);
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

    /// What the API server has of each kind that is watched and this version cannot read.
    pub(crate) fn rejected(&self) -> BTreeSet<Rejected> {
        let mut rejected = BTreeSet::new();
        self.add_rejected(&mut rejected);
        rejected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why no change of these stores makes a Snapshot anew by itself.
    const APART: [(&str, &str); 8] = [
        ("BufferSources.buffers", VIRTUAL_PODS),
        ("BufferSources.deployments", VIRTUAL_PODS),
        ("BufferSources.pod_templates", VIRTUAL_PODS),
        ("BufferSources.replica_sets", VIRTUAL_PODS),
        ("BufferSources.stateful_sets", VIRTUAL_PODS),
        (
            "Stores.node_overlays",
            "decisions read the instance types that they correct, which `Inputs::has_same_types` compares",
        ),
        (
            "Stores.resource_slices",
            "no Snapshot holds them: `reconcile::claims` asks for them before a node counts as initialized, and hears of their changes",
        ),
        (
            "Stores.volume_attachments",
            "no Snapshot holds them: `reconcile::node_termination` waits until they are gone, and hears of their changes",
        ),
    ];
    const VIRTUAL_PODS: &str =
        "decisions read the virtual pods made of them, whose changes `Cluster::versions` adds to `others`";

    /// A store of which a Snapshot is made and whose changes count for nothing would leave decisions to what is no longer true. So whoever adds one with that
    /// role says here why it may have it.
    #[test]
    fn w_27_every_store_that_is_apart_has_a_reason() {
        let roles = Stores::roles();
        assert!(
            roles.contains(&("OwnerSources.deployments", "owners")),
            "{roles:?}"
        );
        let apart = roles.into_iter().filter(|(_, role)| *role == "apart");
        let apart: BTreeSet<&str> = apart.map(|(store, _)| store).collect();
        let with_reason: BTreeSet<&str> = APART.iter().map(|(store, _)| *store).collect();
        assert_eq!(
            apart, with_reason,
            "left: stores that are apart, right: those with a reason"
        );
        assert!(APART.iter().all(|(_, reason)| !reason.is_empty()));
    }
}
