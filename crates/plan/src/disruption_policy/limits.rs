//! What is left of the limits that policies set, node by node, while a command is put together.

use super::workloads::Workloads;
use jiff::Timestamp;
use spokeshave_model::snapshot::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One rule of a policy, as it stands now for one reason of disruption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Name of the DisruptionPolicy.
    pub policy: String,
    /// Field of its spec.
    pub field: String,
    /// The zone, NodePool or value of a label, where it is about one.
    pub domain: Option<String>,
    /// What it says, for people.
    pub message: String,
    /// Since when, for holds.
    pub since: Option<Timestamp>,
    /// Until when, as far as that is known.
    pub until: Option<Timestamp>,
    /// What each node counts.
    pub(super) weights: Weights,
    /// The domain of each node, and the only one that it is about; rules of several domains share the rest.
    pub(super) within: Option<(Arc<[u32]>, u32)>,
    /// What it says of single nodes, where it says something else of each.
    pub(super) details: BTreeMap<NodeId, Detail>,
}

/// What each node counts, by its position. Rules share what they can: there may be dozens for thousands of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Weights {
    /// The rule is about no node by itself.
    None,
    /// One each, where it applies.
    One(Arc<[bool]>),
    /// So much each, where it applies.
    Amounts {
        /// Where it applies.
        covered: Arc<[bool]>,
        /// How much.
        amounts: Arc<[i64]>,
    },
}

impl Weights {
    /// What a node counts; `None` where the rule does not apply.
    pub(super) fn of(&self, node: NodeId) -> Option<i64> {
        let is_covered = |covered: &[bool]| covered.get(node.index()).copied().unwrap_or_default();
        match self {
            Weights::None => None,
            Weights::One(covered) => is_covered(covered).then_some(1),
            Weights::Amounts { covered, amounts } => is_covered(covered).then(|| amounts[node.index()]),
        }
    }
}

/// What a rule says of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Detail {
    pub(super) until: Timestamp,
    pub(super) message: String,
}

impl Rule {
    /// The rule with its policy, and until when it stands for a node.
    pub fn text(&self, node: NodeId) -> String {
        let detail = self.details.get(&node);
        let message = detail.map_or(&self.message, |detail| &detail.message);
        let until = detail.map(|detail| detail.until).or(self.until);
        let until = until.filter(|until| *until < Timestamp::MAX);
        let until = until.map_or_else(String::new, |until| {
            format!(", until {}", until.strftime("%Y-%m-%d %H:%M:%SZ"))
        });
        format!(
            "DisruptionPolicy {} ({}): {}{until}",
            self.policy, self.field, message
        )
    }

    fn weight(&self, node: NodeId) -> Option<i64> {
        let weight = self.weights.of(node)?;
        let is_here = |(domains, own): &(Arc<[u32]>, u32)| domains.get(node.index()) == Some(own);
        self.within.as_ref().is_none_or(is_here).then_some(weight)
    }
}

/// What is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing may go.
    Nothing,
    /// So much may go; where nothing is under way, one node may even be larger than that.
    Amount { left: i64, is_unused: bool },
    /// What workloads ask for.
    Workloads(Box<Workloads>),
    /// Only nodes of one domain may go.
    OneDomain {
        /// The domain of each node, by its position.
        domains: Arc<[u32]>,
        /// Domains in which nodes are on their way out.
        open: BTreeSet<u32>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) rule: Arc<Rule>,
    pub(super) left: Left,
}

impl Limit {
    /// The rule that keeps a node.
    fn blocker(&self, node: NodeId) -> Option<&Rule> {
        if let Left::Workloads(workloads) = &self.left {
            return workloads.blocker(node);
        }
        (!self.permits(node)).then_some(&*self.rule)
    }

    fn permits(&self, node: NodeId) -> bool {
        if let Left::Workloads(workloads) = &self.left {
            return workloads.blocker(node).is_none();
        }
        let Some(weight) = self.rule.weight(node) else {
            return true;
        };
        match &self.left {
            Left::Nothing | Left::Workloads(_) => false,
            Left::Amount { left, is_unused } => *left > 0 && (weight <= *left || *is_unused),
            Left::OneDomain { domains, open } => match open.len() {
                0 => true,
                1 => domains
                    .get(node.index())
                    .is_some_and(|domain| open.contains(domain)),
                _ => false,
            },
        }
    }

    fn take(&mut self, node: NodeId) {
        if let Left::Workloads(workloads) = &mut self.left {
            workloads.take(node);
            return;
        }
        let Some(weight) = self.rule.weight(node) else {
            return;
        };
        match &mut self.left {
            Left::Nothing | Left::Workloads(_) => {}
            Left::Amount { left, is_unused } => {
                *left -= weight;
                *is_unused = false;
            }
            Left::OneDomain { domains, open } => {
                open.extend(domains.get(node.index()).copied());
            }
        }
    }

    /// Whether no node that it is about may go.
    pub(super) fn is_shut(&self) -> bool {
        match &self.left {
            Left::Nothing => true,
            Left::Amount { left, .. } => *left <= 0,
            Left::OneDomain { open, .. } => open.len() > 1,
            Left::Workloads(_) => false,
        }
    }
}

/// All limits for one reason of disruption.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub(super) limits: Vec<Limit>,
}

impl Limits {
    /// Whether a node may be disrupted besides what was taken.
    pub fn permits(&self, node: NodeId) -> bool {
        self.limits.iter().all(|limit| limit.permits(node))
    }

    /// Takes a node; false, and nothing is taken, when it may not go.
    pub fn take(&mut self, node: NodeId) -> bool {
        let permits = self.permits(node);
        if permits {
            self.limits.iter_mut().for_each(|limit| limit.take(node));
        }
        permits
    }

    /// The rule that keeps a node; of several, the one that stands longest.
    pub fn blocker(&self, node: NodeId) -> Option<&Rule> {
        let blocking = self.limits.iter().filter_map(|limit| limit.blocker(node));
        blocking.min_by_key(|rule| {
            let detail = rule.details.get(&node).map(|detail| detail.until);
            let until = detail.or(rule.until).unwrap_or(Timestamp::MAX);
            (std::cmp::Reverse(until), rule.policy.clone())
        })
    }
}
