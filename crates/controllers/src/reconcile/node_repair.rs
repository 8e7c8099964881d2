//! Node repair (D §7.4): Nodes that their cloud declares broken are replaced, unless too many are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Node;
use spokeshave_api::labels;
use spokeshave_plan::node_repair::{
    BLOCKED_RETRY, RepairPolicy, RepairStep, repair_step, snake_case, unhealthy,
};
use spokeshave_runtime::{ReconcileError, Requeue, WorkQueue};

use crate::observe::decision::DecisionKind;
use crate::shared::Shared;

/// The controller of broken Nodes.
#[derive(Debug)]
pub(crate) struct NodeRepair {
    shared: Arc<Shared>,
    pub(crate) queue: WorkQueue<String>,
    policies: Vec<RepairPolicy>,
    /// Nodes and broken Nodes, by NodePool; under the empty name all of the cluster.
    counts: Arc<Mutex<BTreeMap<String, (usize, usize)>>>,
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
    pub(crate) fn new(shared: Arc<Shared>, queue: WorkQueue<String>) -> Option<Arc<Self>> {
        let policies: Vec<RepairPolicy> = shared
            .provider
            .repair_policies()
            .iter()
            .map(|policy| RepairPolicy {
                condition_type: policy.condition_type.clone(),
                condition_status: policy.condition_status.clone(),
                toleration: policy.toleration,
            })
            .collect();
        if !shared.options.feature_gates.node_repair || policies.is_empty() {
            return None;
        }
        let this = Arc::new(Self {
            shared,
            queue,
            policies,
            counts: Arc::default(),
        });
        let (queue, policies, counts) = (this.queue.clone(), this.policies.clone(), this.counts.clone());
        this.shared.stores.nodes.on_change(move |change| {
            // D-256: looked at again when a condition that matters has changed.
            let sick = |node: Option<&Node>| node.and_then(|node| unhealthy(node, &policies));
            let now = sick(change.new.as_deref());
            {
                let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(old) = change.old.as_deref() {
                    count(&mut counts, old, sick(Some(old)).is_some(), false);
                }
                if let Some(new) = change.new.as_deref() {
                    count(&mut counts, new, now.is_some(), true);
                }
            }
            if now.is_some() && now != sick(change.old.as_deref()) {
                queue.add(change.key.name.clone());
            }
        });
        Some(this)
    }

    /// One look at a Node.
    pub(crate) async fn reconcile(self: Arc<Self>, name: String) -> Result<Requeue, ReconcileError> {
        let shared = &self.shared;
        let Some(node) = shared.stores.nodes.get_named(&name) else {
            return Ok(Requeue::Done);
        };
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        let claims = id.map(|id| shared.stores.claims_by_provider_id.get(id));
        let claims = claims.unwrap_or_default();
        let [claim] = &claims[..] else {
            return Ok(Requeue::Done);
        };
        if !shared.is_ours(claim) {
            return Ok(Requeue::Done);
        }
        let (total, sick) = {
            let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts
                .get(claim.node_pool().unwrap_or_default())
                .copied()
                .unwrap_or_default()
        };
        match repair_step(&node, claim, sick, total, &self.policies, shared.now()) {
            RepairStep::Nothing => Ok(Requeue::Done),
            RepairStep::Wait(left) => Ok(Requeue::After(left)),
            RepairStep::Blocked(events) => {
                for event in &events {
                    shared.execute.tell(event);
                }
                Ok(Requeue::After(BLOCKED_RETRY))
            }
            RepairStep::Repair {
                actions,
                condition_type,
            } => {
                match shared.execute.run_all(&actions).await {
                    Ok(()) => {}
                    Err(error) if error.is_not_found() => return Ok(Requeue::Done),
                    Err(error) => return Err(error.into()),
                }
                shared.count_disrupted(claim, "unhealthy");
                shared.count_initiated(claim, "unhealthy");
                let image = claim
                    .status
                    .as_ref()
                    .and_then(|status| status.image_id.as_deref());
                shared.families.claims_unhealthy.inc(&[
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
                shared.note(
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
