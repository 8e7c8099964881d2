//! The input, and the decisions about it.

use crate::unknown::{Missing, knows_commands, unknown};
use jiff::Timestamp;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use spokeshave_api::disruption::Disruption;
use spokeshave_model::Pod;
use spokeshave_model::snapshot::{NodeId, NodeView, Snapshot};
use spokeshave_model::{ClusterState, Price, lower};
use spokeshave_plan::disrupt::{Frontier, Outcome, Verdict, disrupt};
use spokeshave_plan::in_flight::is_expected;
use spokeshave_plan::{Policy, Provisioned, provision};
use spokeshave_story::expired::Expired;
use spokeshave_story::explain::{CommandFact, Facts};
use spokeshave_story::replicas::Replicas;
use spokeshave_story::{prices, verdict};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that was read of a cluster at one instant. Cheap to copy: objects are shared.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The objects that decisions read.
    pub state: ClusterState,
    /// Volume attachments, as far as they could be read.
    pub attachments: Vec<Arc<VolumeAttachment>>,
    /// Disruption commands, as far as they could be read.
    pub disruptions: Vec<Arc<Disruption>>,
    /// What could not be read.
    pub missing: Vec<Missing>,
    /// It is what an operator sees, which disrupts nothing while it cannot read a Disruption.
    pub is_of_operator: bool,
    /// When it was read, by the cluster's clock.
    pub now: Timestamp,
}

impl World {
    /// Pods that wait for a node which is being made already: they are on the stand-in of its NodeClaim, where decisions count them.
    pub fn awaited(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.state.pods.iter().filter(|pod| is_expected(pod))
    }

    /// The parts of a view that depend on something missing.
    pub(crate) fn unknown(&self) -> Vec<&'static str> {
        unknown(&self.missing, &self.state, self.is_of_operator)
    }

    /// Whether a part is known.
    pub(crate) fn knows(&self, part: &str) -> bool {
        !self.unknown().contains(&part)
    }

    /// Whether all commands could be read, those of the past too.
    pub(crate) fn knows_commands(&self) -> bool {
        knows_commands(&self.missing)
    }

    /// What NodePools with a fixed number of nodes have too few or too many of; nothing where something that it depends on could not be read. A command that nobody
    /// has seen may be replacing what looks like one node too many; what is missing is missing without it, too.
    fn replicas(&self) -> Replicas {
        if !self.knows("price") {
            return Replicas::default();
        }
        let mut replicas = Replicas::of(&self.state, &self.disruptions, self.now);
        if !self.knows_commands() || !self.knows("verdict") {
            replicas.excess.clear();
        }
        replicas
    }
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
    /// What would be disrupted, with a verdict on each node; with none where something that verdicts depend on could not be read.
    pub disrupted: Outcome,
    /// The settings it was decided under.
    pub policy: Policy,
    /// Disruption commands as explanations read them.
    pub commands: Vec<CommandFact>,
    /// What NodePools with a fixed number of nodes have too few or too many of.
    pub replicas: Replicas,
    by_node: BTreeMap<NodeId, usize>,
}

impl Judged {
    /// Decides about a world. The verdicts are those of `spokeshave plan --verdicts`.
    pub fn of(world: World, policy: &Policy) -> Self {
        let mut policy = policy.clone();
        // Constraints that nobody has seen may forbid what a verdict would allow.
        policy.disrupt.verdicts = world.knows("verdict");
        let mut snapshot = lower(&world.state);
        let provisioned = provision(&snapshot, &policy, world.now);
        let nominated = provisioned.nominate(&mut snapshot, world.now);
        let mut disrupted = disrupt(&snapshot, &policy, world.now, &Frontier::default());
        disrupted.verdicts = verdict::all_told(&snapshot, &policy, disrupted.verdicts, &nominated);
        let replicas = world.replicas();
        replicas.tell(&snapshot, &mut disrupted.verdicts);
        Expired::of(&world.state, world.now).tell(&snapshot, &mut disrupted.verdicts);
        let by_node = disrupted.verdicts.iter().enumerate();
        Self {
            by_node: by_node.map(|(index, verdict)| (verdict.node, index)).collect(),
            commands: world.disruptions.iter().map(|one| fact(one)).collect(),
            replicas,
            world,
            snapshot,
            provisioned,
            disrupted,
            policy,
        }
    }

    /// What is said about a node; none where nobody manages it, or where that depends on something that could not be read.
    pub fn verdict(&self, node: NodeId) -> Option<&Verdict> {
        let index = self
            .by_node
            .get(&node)
            .filter(|_| self.snapshot.node(node).is_managed())?;
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
            replicas: &self.replicas,
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
