//! Node repair (D §7.4): Nodes that their cloud declares broken are replaced, unless too many are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_plan::node_repair::{
    BLOCKED_RETRY, RepairPolicy, RepairStep, repair_step, snake_case, unhealthy,
};
use spokeshave_ports::CloudProvider as _;
use spokeshave_runtime::{Change, Requeue};

use crate::act::hands::Hands;
use crate::controller::{Controller, Looked, Triggers};
use crate::observe::decision::DecisionKind;
use crate::observe::journal::Journal;
use crate::state::cluster::Cluster;

/// The controller of broken Nodes.
#[derive(Debug)]
pub(crate) struct NodeRepair {
    cluster: Arc<Cluster>,
    hands: Hands,
    journal: Arc<Journal>,
    policies: Vec<RepairPolicy>,
    /// Nodes and broken Nodes, by NodePool; under the empty name all of the cluster.
    counts: Mutex<BTreeMap<String, (usize, usize)>>,
}

fn count(counts: &mut BTreeMap<String, (usize, usize)>, node: &Node, sick: bool, add: bool) {
    let pool = label(node, labels::NODE_POOL).filter(|pool| !pool.is_empty());
    for name in [Some(""), pool].into_iter().flatten() {
        let (all, broken) = counts.entry(name.to_owned()).or_default();
        if add {
            *all += 1;
            *broken += usize::from(sick);
        } else {
            *all = all.saturating_sub(1);
            *broken = broken.saturating_sub(usize::from(sick));
        }
    }
    counts.retain(|_, (all, _)| *all > 0);
}

impl NodeRepair {
    /// `None` when the feature gate is off, or the cloud declares nothing broken (D-254).
    pub(crate) fn new(cluster: Arc<Cluster>, hands: Hands, journal: Arc<Journal>) -> Option<Arc<Self>> {
        let policies: Vec<RepairPolicy> = cluster
            .cloud
            .repair_policies()
            .iter()
            .map(|policy| RepairPolicy {
                condition_type: policy.condition_type.clone(),
                condition_status: policy.condition_status.clone(),
                toleration: policy.toleration,
            })
            .collect();
        if !cluster.options.feature_gates.node_repair || policies.is_empty() {
            return None;
        }
        Some(Arc::new(Self {
            cluster,
            hands,
            journal,
            policies,
            counts: Mutex::default(),
        }))
    }

    /// Counts a change, and says whether the Node has become broken, is broken in another way (D-256), or belongs to another NodeClaim than before.
    fn note(&self, change: &Change<Node>) -> bool {
        let sick = |node: Option<&Node>| {
            let node = node?;
            let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
            Some((unhealthy(node, &self.policies)?, provider_id.map(str::to_owned)))
        };
        let now = sick(change.new.as_deref());
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = change.old.as_deref() {
            count(&mut counts, old, sick(Some(old)).is_some(), false);
        }
        if let Some(new) = change.new.as_deref() {
            count(&mut counts, new, now.is_some(), true);
        }
        now.is_some() && now != sick(change.old.as_deref())
    }

    /// What a Node asks for, beside the others that are known.
    fn step(&self, node: &Node, claim: &NodeClaim) -> RepairStep {
        let (total, sick) = {
            let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts
                .get(claim.node_pool().unwrap_or_default())
                .copied()
                .unwrap_or_default()
        };
        repair_step(node, claim, sick, total, &self.policies, self.cluster.now())
    }
}

impl Controller for NodeRepair {
    const NAME: &'static str = "node.health";
    const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
    type Key = String;

    fn subscribe(self: &Arc<Self>, on: &mut Triggers<'_, String>) {
        let this = self.clone();
        on.change(
            |stores| &stores.nodes,
            move |_, change| this.note(change).then(|| change.key.name.clone()),
        );
        // A Node may have been broken before its NodeClaim was known, or while several said that it is theirs.
        let this = self.clone();
        on.change(
            |stores| &stores.node_claims,
            move |stores, change| {
                let id = |claim: Option<&NodeClaim>| Some(claim?.provider_id()?.to_owned());
                let (old, new) = (id(change.old.as_deref()), id(change.new.as_deref()));
                let ids = if old == new { [None, None] } else { [old, new] };
                let nodes = ids.map(|id| id.map(|id| stores.nodes_by_provider_id.get(&id)));
                let mut nodes: Vec<Arc<Node>> = nodes.into_iter().flatten().flatten().collect();
                nodes.retain(|node| unhealthy(node, &this.policies).is_some());
                nodes
                    .into_iter()
                    .map(|node| node.metadata.name.clone().unwrap_or_default())
            },
        );
    }

    /// One look at a Node.
    async fn reconcile(self: Arc<Self>, name: String) -> Looked {
        let Some(node) = self.cluster.stores.nodes.get_named(&name) else {
            return Ok(Requeue::Done);
        };
        let Some(claim) = self.cluster.stores.claim_of_node(&node) else {
            return Ok(Requeue::Done);
        };
        if !self.cluster.is_ours(&claim) {
            return Ok(Requeue::Done);
        }
        let mut step = self.step(&node, &claim);
        if matches!(step, RepairStep::Repair { .. }) {
            // A watch that stands still has not told that it is well again (invariant 38).
            let current = self.hands.get::<Node>(&name).await?;
            let Some(current) = current.filter(|current| current.metadata.uid == node.metadata.uid) else {
                return Ok(Requeue::Done);
            };
            step = self.step(&current, &claim);
            self.cluster.stores.nodes.note_written(current);
        }
        match step {
            RepairStep::Nothing => Ok(Requeue::Done),
            RepairStep::Wait(left) => Ok(Requeue::After(left)),
            RepairStep::Blocked(events) => {
                for event in &events {
                    self.hands.tell(event);
                }
                Ok(Requeue::After(BLOCKED_RETRY))
            }
            RepairStep::Repair {
                actions,
                condition_type,
            } => {
                match self.hands.run_all(&actions).await {
                    Ok(()) => {}
                    Err(error) if error.is_not_found() => return Ok(Requeue::Done),
                    Err(error) => return Err(error.into()),
                }
                self.journal.count_disrupted(&claim, "unhealthy");
                self.journal.count_initiated(&claim, "unhealthy");
                let image = claim
                    .status
                    .as_ref()
                    .and_then(|status| status.image_id.as_deref());
                self.journal.families.claims_unhealthy.inc(&[
                    &snake_case(&condition_type),
                    claim.node_pool().unwrap_or_default(),
                    claim.label(labels::CAPACITY_TYPE).unwrap_or_default(),
                    image.unwrap_or_default(),
                ]);
                tracing::info!(
                    Node = name,
                    NodeClaim = claim.name(),
                    condition = condition_type,
                    "deleting unhealthy node"
                );
                self.journal.note(
                    DecisionKind::Trouble,
                    &name,
                    "is replaced (unhealthy)",
                    format!("its condition {condition_type} says so for too long"),
                    None,
                );
                Ok(Requeue::Done)
            }
        }
    }
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    let labels = node.metadata.labels.as_ref()?;
    labels.get(key).map(String::as_str)
}
