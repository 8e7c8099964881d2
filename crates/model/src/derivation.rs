//! How it comes that a pod has no place: what each NodePool and each kind of existing node says, the smallest set of things in the way, and
//! what would help. Values first; the text, counts instead of walls, is made here for CLI, events and JSON alike.

use crate::reason::{Obstacle, PoolRefusal, Reason, TopologyKind};
use crate::resources::ResourceName;
use std::fmt;
use std::sync::Arc;

/// What keeps a pod off some existing nodes: the first failing fact in the order of P §6.4.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeObstacle {
    /// Too little is left.
    Insufficient {
        /// Of this resource.
        resource: String,
        /// What the best of these nodes lacks.
        short: i64,
    },
    /// A taint that the pod does not tolerate, as `key[=value]:effect`.
    Taint(String),
    /// The node selector or the required node affinity.
    Labels,
    /// The pod's volumes cannot be reached, or no more can be attached.
    Volumes,
    /// A host port in use.
    HostPort,
    /// A rule over domains of this key.
    Topology {
        /// Which rule.
        kind: TopologyKind,
        /// The label key.
        key: String,
    },
    /// The nodes are going away.
    Leaving,
}

impl NodeObstacle {
    /// Its sort, in the words of `Obstacle`'s sorts.
    pub fn kind(&self) -> &'static str {
        match self {
            NodeObstacle::Insufficient { .. } => "NodeResources",
            NodeObstacle::Taint(_) => "Taint",
            NodeObstacle::Labels => "Labels",
            NodeObstacle::Volumes => "Volume",
            NodeObstacle::HostPort => "HostPort",
            NodeObstacle::Topology { .. } => "Topology",
            NodeObstacle::Leaving => "Leaving",
        }
    }
}

impl fmt::Display for NodeObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeObstacle::Insufficient { resource, short } => {
                let short = ResourceName::format(resource, *short);
                write!(f, "insufficient {resource} (best is {short} short)")
            }
            NodeObstacle::Taint(taint) => write!(f, "taint {taint}"),
            NodeObstacle::Labels => f.write_str("node selector or affinity"),
            NodeObstacle::Volumes => f.write_str("volumes"),
            NodeObstacle::HostPort => f.write_str("host port in use"),
            NodeObstacle::Topology { kind, key } => write!(f, "{kind} over {key}"),
            NodeObstacle::Leaving => f.write_str("being removed"),
        }
    }
}

/// Something of a pod, or around it, without which it would have a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blocker {
    /// It asks for too much.
    Requests,
    /// `nodeSelector`.
    NodeSelector,
    /// Required node affinity.
    NodeAffinity,
    /// Taints that it does not tolerate.
    Taints,
    /// Required topology spread.
    TopologySpread,
    /// Required pod affinity.
    PodAffinity,
    /// Its required pod anti-affinity.
    PodAntiAffinity,
    /// Other pods' required anti-affinity.
    OthersAntiAffinity,
    /// Its host ports.
    HostPorts,
    /// Where its volumes are.
    Volumes,
    /// `limits` of NodePools.
    Limits,
    /// Other pods that are placed first.
    OtherPods,
}

impl Blocker {
    /// What would help.
    pub fn hint(&self) -> &'static str {
        match self {
            Blocker::Requests => "lower its requests, or allow larger instance types",
            Blocker::NodeSelector => "change spec.nodeSelector, or add a NodePool with these labels",
            Blocker::NodeAffinity => "change the required node affinity, or add a NodePool with these labels",
            Blocker::Taints => "add a toleration, or a NodePool without the taint",
            Blocker::TopologySpread => "raise maxSkew, use ScheduleAnyway, or allow nodes in more domains",
            Blocker::PodAffinity => "run a pod that matches its affinity, or make the affinity preferred",
            Blocker::PodAntiAffinity => "make the anti-affinity preferred, or allow nodes in more domains",
            Blocker::OthersAntiAffinity => {
                "make the other pods' anti-affinity preferred, or allow more domains"
            }
            Blocker::HostPorts => "use another host port",
            Blocker::Volumes => "allow nodes where its volumes are",
            Blocker::Limits => "raise the limits of a NodePool",
            Blocker::OtherPods => {
                "it has a place once the others are placed elsewhere; raise the limits of a NodePool"
            }
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Blocker::Requests => "requests",
            Blocker::NodeSelector => "node selector",
            Blocker::NodeAffinity => "node affinity",
            Blocker::Taints => "taints",
            Blocker::TopologySpread => "topology spread",
            Blocker::PodAffinity => "pod affinity",
            Blocker::PodAntiAffinity => "pod anti-affinity",
            Blocker::OthersAntiAffinity => "other pods' anti-affinity",
            Blocker::HostPorts => "host ports",
            Blocker::Volumes => "volumes",
            Blocker::Limits => "NodePool limits",
            Blocker::OtherPods => "other pods",
        })
    }
}

/// Why one pod has no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derivation {
    /// What the pass said: the words of the event are its text (P §6.6).
    pub reason: Arc<Reason>,
    /// What existing nodes say, with their number, most nodes first.
    pub nodes: Vec<(NodeObstacle, usize)>,
    /// A smallest set of things without which the pod would have a place; empty when nothing of this kind would help.
    pub minimal: Vec<Blocker>,
}

impl Derivation {
    /// With what the pass said alone.
    pub fn of(reason: Arc<Reason>) -> Self {
        Derivation {
            reason,
            nodes: Vec::new(),
            minimal: Vec::new(),
        }
    }

    /// What each NodePool that could open a node says, in their order.
    pub fn pools(&self) -> &[PoolRefusal] {
        match &*self.reason {
            Reason::Pools(refusals) => refusals,
            _ => &[],
        }
    }
}

impl fmt::Display for Derivation {
    /// A few short lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for refusal in self.pools() {
            // The long lists of requirements are for the event.
            match &refusal.obstacle {
                Obstacle::InstanceTypes { failure, .. } => {
                    writeln!(f, "nodepool {}: {failure}", refusal.pool)?
                }
                obstacle => writeln!(f, "nodepool {}: {obstacle}", refusal.pool)?,
            }
        }
        for (position, (obstacle, count)) in self.nodes.iter().enumerate() {
            match position {
                0 => write!(
                    f,
                    "{count} node{}: {obstacle}",
                    if *count == 1 { "" } else { "s" }
                )?,
                _ => write!(f, " · {count}: {obstacle}")?,
            }
        }
        if !self.nodes.is_empty() {
            writeln!(f)?;
        }
        let names: Vec<String> = self.minimal.iter().map(ToString::to_string).collect();
        match self.minimal.as_slice() {
            [] => f.write_str("nothing that could be lifted alone or together would help"),
            [only] => write!(f, "in the way: {only} → {}", only.hint()),
            [first, ..] => write!(
                f,
                "in the way, all of them: {} → {}",
                names.join(", "),
                first.hint()
            ),
        }
    }
}
