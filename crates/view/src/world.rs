//! The input, and the decisions about it.

use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde::Serialize;
use spokeshave_api::disruption::Disruption;
use spokeshave_model::Pod;
use spokeshave_model::snapshot::{NodeId, NodeView, Snapshot};
use spokeshave_model::{ClusterState, Price, lower};
use spokeshave_plan::disrupt::{Frontier, Outcome, Verdict, disrupt};
use spokeshave_plan::{Policy, Provisioned, provision};
use spokeshave_story::explain::{CommandFact, Facts};
use spokeshave_story::{prices, verdict};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Something that may not or cannot be read: what depends on it is unknown, not zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// What is missing, as a plural resource with its group: `nodepools.karpenter.sh`.
    pub resource: String,
    /// The reason given by the component that rejected it.
    pub message: String,
}

/// Everything that was read of a cluster at one instant. Cheap to copy: objects are shared.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The objects that decisions read.
    pub state: ClusterState,
    /// Volume attachments, as far as they could be read.
    pub attachments: Vec<Arc<VolumeAttachment>>,
    /// Disruption commands, as far as they could be read.
    pub disruptions: Vec<Arc<Disruption>>,
    /// Pods that wait for a node which is being made already, on the stand-in of its NodeClaim, where decisions count them; `state` has not got them.
    pub awaited: Vec<Arc<Pod>>,
    /// What could not be read.
    pub missing: Vec<Missing>,
    /// When it was read, by the cluster's clock.
    pub now: Timestamp,
}

/// A world with what provisioning and disruption make of it: the controllers' own functions, run once.
#[derive(Debug)]
pub struct Judged {
    /// What was read.
    pub world: World,
    /// The same as decisions see it, with the nominations of this very plan.
    pub snapshot: Snapshot,
    /// What would be launched.
    pub provisioned: Provisioned,
    /// What would be disrupted, with a verdict on each node.
    pub disrupted: Outcome,
    /// The settings it was decided under.
    pub policy: Policy,
    /// Disruption commands as explanations read them.
    pub commands: Vec<CommandFact>,
    by_node: BTreeMap<NodeId, usize>,
}

impl Judged {
    /// Decides about a world. The verdicts are those of `spokeshave plan --verdicts`.
    pub fn of(world: World, policy: &Policy) -> Self {
        let mut policy = policy.clone();
        policy.disrupt.verdicts = true;
        let mut state = world.state.clone();
        state.pods.extend(world.awaited.iter().cloned());
        let mut snapshot = lower(&state);
        let provisioned = provision(&snapshot, &policy, world.now);
        let nominated = provisioned.nominate(&mut snapshot, world.now);
        let mut disrupted = disrupt(&snapshot, &policy, world.now, &Frontier::default());
        let verdicts = disrupted.verdicts.into_iter().map(|found| {
            let found = if nominated.contains(&found.node) {
                found.without_nomination("not in this plan, which sends pending pods to it")
            } else {
                found
            };
            verdict::told(&snapshot, &policy, found)
        });
        disrupted.verdicts = verdicts.collect();
        let by_node = disrupted.verdicts.iter().enumerate();
        Self {
            by_node: by_node.map(|(index, verdict)| (verdict.node, index)).collect(),
            commands: world.disruptions.iter().map(|one| fact(one)).collect(),
            world,
            snapshot,
            provisioned,
            disrupted,
            policy,
        }
    }

    /// What is said about a node; none about one that is not managed.
    pub fn verdict(&self, node: NodeId) -> Option<&Verdict> {
        let index = self.by_node.get(&node)?;
        self.disrupted.verdicts.get(*index)
    }

    /// What a node costs; none where it is not known. Decisions take a spot node to cost what one on demand does where prices of spot are not known.
    pub(crate) fn cost(&self, node: &NodeView) -> Option<Price> {
        prices::cost(&self.snapshot, node).ok().map(|(price, _)| price)
    }

    /// What the commands that would be decided now save together.
    pub(crate) fn next_savings(&self) -> Price {
        let mut saved = Price::ZERO;
        for command in &self.disrupted.commands {
            let before = prices::price_before(&self.snapshot, command);
            saved = saved.saturating_add(before.saturating_sub(command.price_after));
        }
        saved
    }

    /// What explanations are made from.
    pub fn facts(&self) -> Facts<'_> {
        Facts {
            snapshot: &self.snapshot,
            state: &self.world.state,
            policy: &self.policy,
            attachments: &self.world.attachments,
            commands: &self.commands,
            now: self.world.now,
        }
    }
}

fn fact(disruption: &Disruption) -> CommandFact {
    let spec = &disruption.spec;
    let nodes = spec.nodes.iter();
    CommandFact {
        name: disruption.metadata.name.clone().unwrap_or_default(),
        phase: disruption.phase().to_string(),
        reason: spec.reason.to_string(),
        decision: spec.decision.to_string(),
        message: disruption
            .status
            .as_ref()
            .and_then(|status| status.message.clone())
            .unwrap_or_default(),
        decided_at: Some(spec.decided_at.0),
        nodes: nodes
            .flat_map(|node| [node.name.clone(), node.node_claim.clone()])
            .filter(|name| !name.is_empty())
            .collect(),
        replacements: spec
            .replacements
            .iter()
            .map(|one| one.node_claim.clone())
            .collect(),
        finished: disruption.is_finished(),
    }
}
