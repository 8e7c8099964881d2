//! Attach limits of nodes, and the volumes that pods attach, by number (P-117).
//!
//! It knows what a pod would attach, not what is attached to a node: that changes with every placement, and is `ledger::rooms`.

use crate::template::Numbers;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use spokeshave_model::snapshot::{NodeId, PodId, Snapshot};

/// Volumes by number.
pub(crate) type Volumes = SmallVec<[u32; 2]>;

/// Limits of nodes, and volumes of pods. Without a limit anywhere no volume is looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attachments {
    limits: FxHashMap<NodeId, Vec<(u32, i64)>>,
    volumes: FxHashMap<PodId, Volumes>,
}

impl Attachments {
    pub(crate) fn new<'a>(snapshot: &'a Snapshot, numbers: &mut Numbers<'a>) -> Self {
        let mut attachments = Attachments {
            limits: FxHashMap::with_hasher(FxBuildHasher),
            volumes: FxHashMap::with_hasher(FxBuildHasher),
        };
        for (index, node) in snapshot.nodes.iter().enumerate() {
            if !node.attach_limits.is_empty() {
                let limits = node.attach_limits.iter();
                let limits = limits.map(|(driver, limit)| (numbers.driver(driver), *limit));
                attachments.limits.insert(NodeId::from(index), limits.collect());
            }
        }
        if attachments.limits.is_empty() {
            return attachments;
        }
        for (index, view) in snapshot.pods.iter().enumerate() {
            if !view.attachments().is_empty() {
                let volumes = view.attachments().iter();
                let volumes = volumes.map(|(driver, claim)| numbers.attachment(driver, claim));
                attachments.volumes.insert(PodId::from(index), volumes.collect());
            }
        }
        attachments
    }

    /// Whether no node has a limit, so that no volume is looked at.
    pub(crate) fn are_unlimited(&self) -> bool {
        self.limits.is_empty()
    }

    /// What a pod attaches, if it attaches anything and some node has a limit.
    pub(crate) fn of_pod(&self, pod: PodId) -> Option<&Volumes> {
        self.volumes.get(&pod)
    }

    /// The limits of a node by driver, if it has any.
    pub(crate) fn limits(&self, node: NodeId) -> Option<&[(u32, i64)]> {
        self.limits.get(&node).map(Vec::as_slice)
    }

    /// Takes a pod's volumes away, to ask whether it would have a place without them; `put_back` ends it.
    pub(crate) fn lift(&mut self, pod: PodId) -> Option<Volumes> {
        self.volumes.remove(&pod)
    }

    /// Gives a pod its volumes again.
    pub(crate) fn put_back(&mut self, pod: PodId, volumes: Volumes) {
        self.volumes.insert(pod, volumes);
    }
}

/// Whether attach limits admit further volumes. The same claim used by several pods counts once.
pub(crate) fn are_attachable(
    limits: &[(u32, i64)],
    attached: &[u32],
    more: &[u32],
    numbers: &Numbers<'_>,
) -> bool {
    limits.iter().all(|(driver, limit)| {
        let of_driver = |volume: &&u32| numbers.driver_of(**volume) == *driver;
        let new = more
            .iter()
            .filter(of_driver)
            .filter(|volume| !attached.contains(*volume))
            .count();
        let present = attached.iter().filter(of_driver).count();
        new == 0 || i64::try_from(present + new).is_ok_and(|count| count <= *limit)
    })
}
