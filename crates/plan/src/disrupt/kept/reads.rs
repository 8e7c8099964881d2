//! What a what-if has read of the cluster besides the pods that it moved: on which nodes it found room, and for what it looked in vain.
//!
//! It says when an answer may change. What the answer is, it does not know.

use super::nodes::NodeNumbers;
use super::seen::Delta;
use rustc_hash::FxHashSet;
use spokeshave_model::snapshot::{ClassId, NodeId, PodId, RequestId, Snapshot};
use spokeshave_model::vector::ResourceVector;
use spokeshave_schedule::Difference;

/// Where pods found room, and for what they looked in vain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::disrupt) struct Reads {
    /// The nodes that took pods, in order, each once.
    nodes: Vec<NodeId>,
    /// By resource, the least that one of those pods asks for that have looked at all nodes in vain.
    in_vain: Option<ResourceVector>,
}

impl Reads {
    /// The nodes that took pods, in order.
    pub(super) fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// By resource, the least that one of those pods asks for that have looked at all nodes in vain.
    pub(super) fn in_vain(&self) -> Option<&ResourceVector> {
        self.in_vain.as_ref()
    }

    /// Gives nodes the numbers that they have now; none when one of them is not there any more.
    pub(super) fn renumber(&mut self, nodes: &NodeNumbers) -> Option<()> {
        for one in &mut self.nodes {
            *one = nodes.of(*one)?;
        }
        Some(())
    }

    /// Takes in which nodes took pods, and the least that one of those asks for that looked at all nodes in vain.
    pub(in crate::disrupt) fn add(
        &mut self,
        nodes: impl Iterator<Item = NodeId>,
        in_vain: Option<&ResourceVector>,
    ) {
        self.nodes.extend(nodes);
        self.nodes.sort_unstable();
        self.nodes.dedup();
        if let Some(in_vain) = in_vain {
            match &mut self.in_vain {
                None => self.in_vain = Some(in_vain.clone()),
                Some(least) => least.lower_to(in_vain),
            }
        }
    }
}

/// What pods ask for that move together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// By resource, the least that one of them asks for.
    least: ResourceVector,
    /// Their classes, in order, each once.
    classes: Vec<ClassId>,
}

impl Asked {
    /// By resource, the least that one of them asks for.
    pub(super) fn least(&self) -> &ResourceVector {
        &self.least
    }

    /// Their classes, in order.
    pub(super) fn classes(&self) -> &[ClassId] {
        &self.classes
    }

    pub(super) fn by(snapshot: &Snapshot, pods: impl Iterator<Item = PodId>) -> Self {
        let mut classes: Vec<ClassId> = Vec::new();
        let mut least: Option<ResourceVector> = None;
        let mut known: FxHashSet<(ClassId, RequestId)> = FxHashSet::default();
        for pod in pods {
            let view = snapshot.pod(pod);
            // There are many pods, and few of them are not like others.
            if !known.insert((view.class, view.request)) {
                continue;
            }
            classes.push(view.class);
            let requests = snapshot.requests(pod);
            match &mut least {
                None => least = Some(requests.clone()),
                Some(least) => least.lower_to(requests),
            }
        }
        classes.sort_unstable();
        classes.dedup();
        Asked {
            least: least.unwrap_or_else(|| ResourceVector::zero(snapshot.resources.width())),
            classes,
        }
    }

    /// Takes the numbers of another Snapshot; none when one of the classes is not there any more.
    pub(super) fn renumber(&mut self, delta: &Delta) -> Option<()> {
        if delta.has_same_classes() {
            return Some(());
        }
        for one in &mut self.classes {
            *one = delta.class(*one)?;
        }
        self.classes.sort_unstable();
        Some(())
    }

    /// Whether an answer about these pods that has read so much stays what it is although rooms have changed.
    pub(super) fn survives(&self, reads: &Reads, difference: &Difference) -> bool {
        let has_lost = |node: &NodeId| reads.nodes.binary_search(node).is_ok();
        let has_gained = |(node, room): &(NodeId, ResourceVector)| {
            if room.has_negative() {
                return false;
            }
            // A pod takes the first node that has room for it, and those after that one are not looked at.
            let is_before = reads.nodes.last().is_some_and(|last| node < last);
            let asked = reads.in_vain.as_ref();
            asked.is_some_and(|least| least.fits(room)) || (is_before && self.least.fits(room))
        };
        !difference.lost.iter().any(has_lost) && !difference.gained.iter().any(has_gained)
    }
}
