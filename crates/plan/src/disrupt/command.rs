//! A Command: the intention to delete some nodes, with what replaces them and what it is worth (D §0.3, D-106).

use spokeshave_api::DisruptionReason;
use spokeshave_model::placement::{Placements, PlannedClaim};
use spokeshave_model::snapshot::{NodeId, PodId, Snapshot};
use spokeshave_model::{CapacityType, Price, labels};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Which method made a command (D §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Delete empty nodes.
    Emptiness,
    /// Replace drifted nodes of static pools.
    StaticDrift,
    /// Replace drifted nodes.
    Drift,
    /// Replace nodes of static pools that are older than a DisruptionPolicy wants.
    StaticExpiry,
    /// Replace nodes that are older than a DisruptionPolicy wants.
    Expiry,
    /// Replace several nodes by at most one.
    MultiNodeConsolidation,
    /// Replace one node by at most one.
    SingleNodeConsolidation,
}

impl Method {
    /// All methods in the order in which they run (D-062).
    pub const ALL: [Method; 7] = [
        Method::Emptiness,
        Method::StaticDrift,
        Method::Drift,
        Method::StaticExpiry,
        Method::Expiry,
        Method::MultiNodeConsolidation,
        Method::SingleNodeConsolidation,
    ];

    /// Its name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Emptiness => "Emptiness",
            Method::StaticDrift => "StaticDrift",
            Method::Drift => "Drift",
            Method::StaticExpiry => "StaticExpiry",
            Method::Expiry => "Expiry",
            Method::MultiNodeConsolidation => "MultiNodeConsolidation",
            Method::SingleNodeConsolidation => "SingleNodeConsolidation",
        }
    }

    /// Whether nodes go for what they are, and not for what they cost: at any price, and without a second look.
    pub fn is_maintenance(self) -> bool {
        self.is_static() || matches!(self, Method::Drift | Method::Expiry)
    }

    /// Whether it replaces nodes of static pools, for whose pods no places are sought (D-139).
    pub fn is_static(self) -> bool {
        matches!(self, Method::StaticDrift | Method::StaticExpiry)
    }

    /// Whether its commands wait for a second look (D-086).
    pub fn is_validated(self) -> bool {
        !self.is_maintenance()
    }

    /// The label value `consolidation_type` of metrics.
    pub fn consolidation_type(self) -> &'static str {
        match self {
            Method::Emptiness => "empty",
            Method::StaticDrift | Method::Drift | Method::StaticExpiry | Method::Expiry => "",
            Method::MultiNodeConsolidation => "multi",
            Method::SingleNodeConsolidation => "single",
        }
    }

    /// The reason its commands carry and the budgets they are charged to (D-126).
    pub fn reason(self) -> DisruptionReason {
        match self {
            Method::Emptiness => DisruptionReason::Empty,
            Method::StaticDrift | Method::Drift => DisruptionReason::Drifted,
            Method::StaticExpiry | Method::Expiry => DisruptionReason::Expired,
            Method::MultiNodeConsolidation | Method::SingleNodeConsolidation => {
                DisruptionReason::Underutilized
            }
        }
    }
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// Candidates go, nothing comes.
    Delete,
    /// Candidates go after replacements have come.
    Replace,
    /// Nothing.
    NoOp,
}

impl Decision {
    /// As in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Delete => "delete",
            Decision::Replace => "replace",
            Decision::NoOp => "no-op",
        }
    }
}

/// One node of a command, by names that survive its Snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandNode {
    /// The Node's name.
    pub node: String,
    /// The NodeClaim's name.
    pub node_claim: String,
    /// The NodeClaim's UID.
    pub node_claim_uid: String,
    /// The provider ID.
    pub provider_id: String,
    /// The NodePool.
    pub pool: String,
    /// The instance type label.
    pub instance_type: Option<String>,
    /// The capacity type label.
    pub capacity_type: Option<CapacityType>,
    /// The zone label.
    pub zone: Option<String>,
    /// What it costs.
    pub price: Price,
    /// Pods that will have to move.
    pub reschedulable_pods: usize,
}

impl CommandNode {
    /// A node of a Snapshot.
    pub fn of(snapshot: &Snapshot, node: NodeId) -> Self {
        let view = snapshot.node(node);
        let label = |key: &str| view.labels.get(key).cloned();
        CommandNode {
            node: view.node_name().unwrap_or(&view.name).to_owned(),
            node_claim: view.claim_name().unwrap_or("").to_owned(),
            node_claim_uid: view
                .claim
                .as_ref()
                .map(|claim| claim.uid().to_owned())
                .unwrap_or_default(),
            provider_id: view.provider_id.clone(),
            pool: view.pool_name.clone().unwrap_or_default(),
            instance_type: label(labels::INSTANCE_TYPE),
            capacity_type: label(labels::CAPACITY_TYPE).and_then(|text| text.parse().ok()),
            zone: label(labels::ZONE),
            price: view.price,
            reschedulable_pods: view
                .pods
                .iter()
                .map(|pod| snapshot.pod(*pod))
                .filter(|pod| pod.reschedulable && !pod.is_virtual)
                .count(),
        }
    }
}

/// A node that is to come, by names that survive the Snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The NodeClaim to create. Its ids belong to the Snapshot that the command was decided on, or last validated on: `validate` gives fresh ones.
    pub claim: PlannedClaim,
    /// The NodePool.
    pub pool: String,
    /// The instance types it may be launched as, cheapest first.
    pub instance_types: Vec<String>,
    /// What it is expected to cost: of these types, the lowest worst launch price (D-146). It decides, scores and is shown (W-08).
    pub price: Price,
    /// The capacity type of the first instance type's cheapest offering.
    pub capacity_type: Option<CapacityType>,
    /// The zone of that offering.
    pub zone: Option<String>,
}

impl Replacement {
    /// A planned claim of a Snapshot, and what it is expected to cost.
    pub fn of(snapshot: &Snapshot, claim: PlannedClaim, price: Price) -> Self {
        let cheapest = claim.launches.first();
        Replacement {
            pool: snapshot.pool(claim.pool).name.clone(),
            instance_types: crate::report::instance_type_names(snapshot, &claim),
            price,
            capacity_type: cheapest.and_then(|launch| launch.capacity_type),
            zone: cheapest.and_then(|launch| launch.zone.clone()),
            claim,
        }
    }
}

/// Where a pod is expected to go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Destination {
    /// An existing node, by name and provider ID.
    Node {
        /// Its name.
        name: String,
        /// Its provider ID.
        provider_id: String,
    },
    /// A replacement, by its position in `Command::replacements`.
    Replacement(usize),
}

/// One pod that has to move, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// `namespace/name`.
    pub pod: String,
    /// Its UID.
    pub uid: String,
    /// The Node it leaves.
    pub from: String,
    /// Where it is expected.
    pub to: Destination,
}

/// The intention to disrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Who decided.
    pub method: Method,
    /// The nodes that go, in the order of preference.
    pub nodes: Vec<CommandNode>,
    /// What comes instead.
    pub replacements: Vec<Replacement>,
    /// Where each displaced pod goes, in pod order. Empty for emptiness and static drift, which simulate nothing.
    pub moves: Arc<Vec<Move>>,
    /// The price of the nodes that go.
    pub price_before: Price,
    /// The price of what comes.
    pub price_after: Price,
}

impl Command {
    /// D §0.3.
    pub fn decision(&self) -> Decision {
        match (self.nodes.is_empty(), self.replacements.is_empty()) {
            (true, _) => Decision::NoOp,
            (false, true) => Decision::Delete,
            (false, false) => Decision::Replace,
        }
    }

    /// The command as ids of a Snapshot on which it was decided or validated: the nodes that go, and where their pods go. None when a node, pod or
    /// destination is not there.
    pub fn resolve(&self, snapshot: &Snapshot) -> Option<(Vec<NodeId>, Placements)> {
        let nodes: BTreeMap<&str, NodeId> = snapshot
            .node_ids()
            .map(|node| (snapshot.node(node).provider_id.as_str(), node))
            .collect();
        let own: Option<Vec<NodeId>> = self
            .nodes
            .iter()
            .map(|node| nodes.get(node.provider_id.as_str()).copied())
            .collect();
        let mut placements = Placements {
            claims: self
                .replacements
                .iter()
                .map(|replacement| replacement.claim.clone())
                .collect(),
            ..Placements::default()
        };
        for claim in &mut placements.claims {
            claim.pods.clear();
        }
        let own = own?;
        let pods: BTreeMap<String, PodId> = own
            .iter()
            .flat_map(|node| snapshot.node(*node).pods.iter())
            .map(|pod| (snapshot.pod(*pod).key(), *pod))
            .collect();
        for step in self.moves.iter() {
            let pod = *pods.get(&step.pod)?;
            match &step.to {
                Destination::Replacement(index) => placements.claims.get_mut(*index)?.pods.push(pod),
                Destination::Node { provider_id, .. } => {
                    let node = *nodes.get(provider_id.as_str())?;
                    placements.existing.entry(node).or_default().push(pod);
                }
            }
        }
        Some((own, placements))
    }

    /// How many pods will have to move.
    pub fn evictions(&self) -> usize {
        self.nodes.iter().map(|node| node.reschedulable_pods).sum()
    }

    /// The NodePools that lose nodes, with how many: what it takes from their budgets for `method.reason()`.
    pub fn budget_use(&self) -> BTreeMap<&str, usize> {
        let mut pools = BTreeMap::new();
        for node in &self.nodes {
            *pools.entry(node.pool.as_str()).or_default() += 1;
        }
        pools
    }

    /// What is saved per hour.
    pub fn savings(&self) -> Price {
        self.price_before.saturating_sub(self.price_after)
    }

    /// Keeps the nodes that satisfy `keep`; prices follow, and so do the moves of their pods.
    #[must_use]
    pub fn reduced(&self, keep: impl Fn(&CommandNode) -> bool) -> Command {
        let nodes: Vec<CommandNode> = self.nodes.iter().filter(|node| keep(node)).cloned().collect();
        let names: BTreeSet<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
        let leaves = |step: &&Move| names.contains(step.from.as_str());
        Command {
            method: self.method,
            replacements: self.replacements.clone(),
            moves: Arc::new(self.moves.iter().filter(leaves).cloned().collect()),
            price_before: nodes.iter().map(|node| node.price).sum(),
            price_after: self.price_after,
            nodes,
        }
    }

    /// The same nodes in commands of at most so many, each with the moves of its own pods. A command that brings nodes stays whole.
    #[must_use]
    pub fn in_parts(self, most: usize) -> Vec<Command> {
        if self.nodes.len() <= most || !self.replacements.is_empty() {
            return vec![self];
        }
        let part = |nodes: &[CommandNode]| {
            let names: BTreeSet<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
            self.reduced(|node| names.contains(node.node.as_str()))
        };
        self.nodes.chunks(most.max(1)).map(part).collect()
    }

    /// The command text of D-106: `<Reason>/<id>: <decision>: nodepools=[…]: [nodes] -> [k replacements] (savings: $0.00)`.
    pub fn text(&self, id: &str) -> String {
        command_text(
            (&self.method.reason().to_string(), id),
            self.decision().as_str(),
            self.nodes
                .iter()
                .map(|node| (node.pool.as_str(), node.node.as_str())),
            self.replacements.len(),
            self.savings(),
        )
    }
}

/// The text of a command with this reason and id, of nodes with their NodePools.
pub(super) fn command_text<'a>(
    (reason, id): (&str, &str),
    decision: &str,
    nodes: impl Iterator<Item = (&'a str, &'a str)>,
    replacements: usize,
    savings: Price,
) -> String {
    let (mut pools, names): (Vec<&str>, Vec<&str>) = nodes.unzip();
    pools.sort_unstable();
    pools.dedup();
    let arrow = match replacements {
        0 => String::new(),
        1 => " -> [1 replacement]".to_owned(),
        count => format!(" -> [{count} replacements]"),
    };
    format!(
        "{reason}/{id}: {decision}: nodepools=[{}]: [{}]{arrow} (savings: ${})",
        pools.join(","),
        names.join(", "),
        savings.to_cents_text()
    )
}
