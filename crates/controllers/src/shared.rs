//! What all controllers share: stores, the writer, the cloud, and the few facts that live in memory only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::NodeClaim;
use spokeshave_model::snapshot::{InstanceTypesProblem, Snapshot};
use spokeshave_model::volumes::VolumeObjects;
use spokeshave_model::{ClusterState, InstanceType, Nomination, Price, lower};
use spokeshave_plan::Policy;
use spokeshave_ports::{CloudError, CloudProvider, SharedClock};
use spokeshave_runtime::{Object, Store};

use crate::decision::{Decision, DecisionKind, DecisionLog};
use crate::execute::Execute;
use crate::metrics::ControllerFamilies;
use crate::node_classes::NodeClasses;
use crate::options::Options;
use crate::stores::Stores;

/// Facts in memory. A restart loses them, and each says why that is harmless.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Until when nodes are kept for pods that are expected on them, by provider ID. Lost: the next pass nominates again.
    pub(crate) nominations: BTreeMap<String, Timestamp>,
    /// Provider IDs of nodes in a command. Lost: the taint is cleaned up and the decision made anew (D-072).
    pub(crate) in_command: BTreeSet<String>,
    /// Pods that a NodeClaim without provider ID was made for, by UID, under the claim's name. Lost: planning waits until such claims have
    /// launched, and then sees them as nodes.
    pub(crate) assigned: BTreeMap<String, BTreeSet<String>>,
}

/// What all controllers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) stores: Stores,
    pub(crate) execute: Execute,
    pub(crate) provider: Arc<dyn CloudProvider>,
    pub(crate) clock: SharedClock,
    pub(crate) options: Options,
    pub(crate) policy: Policy,
    pub(crate) families: ControllerFamilies,
    pub(crate) node_classes: NodeClasses,
    pub(crate) decisions: DecisionLog,
    pub(crate) memory: Mutex<Memory>,
}

impl Shared {
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// True when the claim's NodeClass is one of this cloud's.
    pub(crate) fn is_ours(&self, claim: &NodeClaim) -> bool {
        let class = &claim.spec.node_class_ref;
        self.provider
            .supported_node_classes()
            .iter()
            .any(|kind| kind.group == class.group && kind.kind == class.kind)
    }

    /// NodeClaims that have not got an instance yet, with those of them that this process did not plan.
    pub(crate) fn unlaunched(&self) -> (Vec<Arc<NodeClaim>>, bool) {
        let claims: Vec<Arc<NodeClaim>> = self
            .stores
            .node_claims
            .snapshot()
            .into_iter()
            .filter(|claim| claim.provider_id().is_none() && !claim.is_deleting() && self.is_ours(claim))
            .collect();
        let memory = self.memory();
        let strangers = claims
            .iter()
            .any(|claim| !memory.assigned.contains_key(claim.name()));
        (claims, strangers)
    }

    /// Freezes what is known into a Snapshot.
    pub(crate) async fn freeze(&self) -> Snapshot {
        let node_pools = self.stores.node_pools.snapshot();
        let mut instance_types: BTreeMap<String, Result<Arc<[InstanceType]>, InstanceTypesProblem>> =
            BTreeMap::new();
        for pool in &node_pools {
            let found = match self.provider.instance_types(pool).await {
                Ok(types) if types.is_empty() => Err(InstanceTypesProblem::Failed(
                    "the cloud offers no instance types".to_owned(),
                )),
                Ok(types) => Ok(types),
                Err(CloudError::UnevaluatedNodePool(_)) => Err(InstanceTypesProblem::Unevaluated),
                Err(error) => Err(InstanceTypesProblem::Failed(error.to_string())),
            };
            instance_types.insert(pool.name().to_owned(), found);
        }
        let now = self.now();
        let (nominations, in_command, assigned) = {
            let mut memory = self.memory();
            memory.nominations.retain(|_, until| *until > now);
            let claims = &self.stores.node_claims;
            memory.assigned.retain(|name, _| {
                claims
                    .get_named(name)
                    .is_some_and(|claim| claim.provider_id().is_none())
            });
            let nominations = memory
                .nominations
                .iter()
                .map(|(id, until)| (id.clone(), Nomination { until: *until }))
                .collect();
            let assigned: BTreeSet<String> = memory.assigned.values().flatten().cloned().collect();
            (nominations, memory.in_command.clone(), assigned)
        };
        let mut pods = self.stores.pods.snapshot();
        if !assigned.is_empty() {
            pods.retain(|pod| {
                !(spokeshave_model::pod::is_provisionable(pod)
                    && pod
                        .metadata
                        .uid
                        .as_ref()
                        .is_some_and(|uid| assigned.contains(uid)))
            });
        }
        let state = ClusterState {
            nodes: self.stores.nodes.snapshot(),
            pods,
            daemon_sets: self.stores.daemon_sets.snapshot(),
            pod_disruption_budgets: self.stores.pod_disruption_budgets.snapshot(),
            namespaces: self.stores.namespaces.snapshot(),
            volumes: self.volumes(),
            node_pools,
            node_claims: self
                .stores
                .node_claims
                .snapshot()
                .into_iter()
                .filter(|claim| self.is_ours(claim))
                .collect(),
            instance_types,
            supported_node_classes: self
                .provider
                .supported_node_classes()
                .iter()
                .map(|kind| (kind.group.clone(), kind.kind.clone()))
                .collect(),
            nominations,
            marked_for_deletion: in_command.clone(),
            in_command,
        };
        lower(&state)
    }

    fn volumes(&self) -> VolumeObjects {
        fn named<K: Object>(store: &Store<K>, key: impl Fn(&K) -> String) -> BTreeMap<String, Arc<K>> {
            store
                .snapshot()
                .into_iter()
                .map(|object| (key(&object), object))
                .collect()
        }
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        VolumeObjects {
            claims: named(&self.stores.persistent_volume_claims, |claim| {
                format!(
                    "{}/{}",
                    text(&claim.metadata.namespace),
                    text(&claim.metadata.name)
                )
            }),
            volumes: named(&self.stores.persistent_volumes, |volume| {
                text(&volume.metadata.name)
            }),
            storage_classes: named(&self.stores.storage_classes, |class| text(&class.metadata.name)),
            csi_nodes: named(&self.stores.csi_nodes, |node| text(&node.metadata.name)),
        }
    }

    /// Keeps a node for pods that are expected on it (D-027).
    pub(crate) fn nominate(&self, provider_id: &str) {
        let window = SignedDuration::try_from(self.policy.nomination_window).unwrap_or(SignedDuration::ZERO);
        let until = self.now().saturating_add(window).unwrap_or(Timestamp::MAX);
        self.memory().nominations.insert(provider_id.to_owned(), until);
    }

    /// What all launched nodes cost per hour, by the cloud's own price list.
    pub(crate) async fn cluster_price(&self) -> Price {
        let snapshot = self.freeze().await;
        snapshot
            .nodes
            .iter()
            .filter(|node| node.is_managed())
            .map(|node| node.price)
            .sum()
    }

    /// Tells a decision to people.
    pub(crate) fn tell(
        &self,
        kind: DecisionKind,
        subject: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        price_change: Option<Price>,
        cluster_price: Price,
    ) {
        self.decisions.tell(&Decision {
            time: self.now(),
            kind,
            subject: subject.to_owned(),
            what: what.into(),
            why: why.into(),
            price_change,
            cluster_price,
        });
    }
}
