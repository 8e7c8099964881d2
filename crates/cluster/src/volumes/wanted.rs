//! On which nodes a pod can have its volumes: those that its claims have, free ones that are there, or new ones.
//!
//! It looks, and chooses for a node. Who binds claims is said in `binding`.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use spokeshave_runtime::ObjectKey;

use super::binding::{Choice, requested};
use super::{NO_PROVISIONER, claim_names, class_of, reaches, selected_node, topology_accepts, zone};
use crate::objects::{name, namespace};
use crate::world::World;

const OUT_OF_REACH: &str = "node(s) didn't match PersistentVolume's node affinity";
const NONE_TO_BIND: &str = "node(s) didn't find available persistent volumes to bind";

/// The volumes of a pod that has no node, looked up once for all nodes.
pub(crate) struct Wanted {
    /// Those that its claims have.
    bound: Vec<Arc<PersistentVolume>>,
    /// Its claims that wait for its node. The smallest first, so that they leave large volumes to others.
    waiting: Vec<Waiting>,
}

/// A claim that has no volume.
pub(super) struct Waiting {
    pub(super) claim: Arc<PersistentVolumeClaim>,
    choice: Choice,
    /// Its class, if that makes new volumes.
    class: Option<Arc<StorageClass>>,
    /// The node that was chosen for it, unless that has gone: its volume is being made.
    chosen: Option<Arc<Node>>,
}

/// What a claim gets on a node.
pub(super) enum Served<'a> {
    /// A volume that nobody has.
    Free(&'a PersistentVolume),
    /// One that is kept for it, or that is still to be made.
    Coming,
}

impl Wanted {
    pub(crate) fn of(world: &World, pod: &Pod) -> Self {
        let (mut bound, mut waiting) = (Vec::new(), Vec::new());
        for claim_name in claim_names(pod) {
            let key = ObjectKey::namespaced(namespace(&pod.metadata), claim_name);
            let Some(claim) = world.claims.get(&key) else {
                continue;
            };
            let volume_name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
            match volume_name {
                Some(volume_name) => bound.extend(world.volumes.get_named(volume_name)),
                None => waiting.push(Waiting {
                    choice: Choice::of(world, &claim),
                    class: class_of(world, &claim).filter(|class| class.provisioner != NO_PROVISIONER),
                    chosen: selected_node(&claim).and_then(|chosen| world.nodes.get_named(chosen)),
                    claim,
                }),
            }
        }
        waiting.sort_by_key(|one| requested(&one.claim));
        Self { bound, waiting }
    }

    /// Why a node cannot have the pod.
    pub(crate) fn refusal(&self, node: &Node) -> Option<&'static str> {
        if !self.bound.iter().all(|volume| reaches(volume, node)) {
            return Some(OUT_OF_REACH);
        }
        self.served(node).is_none().then_some(NONE_TO_BIND)
    }

    /// What each waiting claim gets on a node; `None` where one gets nothing.
    pub(super) fn served(&self, node: &Node) -> Option<Vec<(&Waiting, Served<'_>)>> {
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        let mut all = Vec::new();
        for one in &self.waiting {
            let served = one.served(node, &taken)?;
            if let Served::Free(volume) = &served {
                taken.insert(name(&volume.metadata));
            }
            all.push((one, served));
        }
        Some(all)
    }
}

impl Waiting {
    /// Whether nobody has to say any more on which node its volume is to be.
    pub(super) fn has_node(&self) -> bool {
        self.chosen.is_some() || self.choice.kept.is_some()
    }

    fn served<'a>(&'a self, node: &Node, taken: &BTreeSet<&str>) -> Option<Served<'a>> {
        if let Some(kept) = &self.choice.kept {
            return reaches(kept, node).then_some(Served::Coming);
        }
        // A pod before this one has chosen already.
        if self
            .chosen
            .as_ref()
            .is_some_and(|chosen| zone(chosen) != zone(node))
        {
            return None;
        }
        let is_for_it = |volume: &&Arc<PersistentVolume>| {
            !taken.contains(name(&volume.metadata)) && reaches(volume, node)
        };
        let is_made = self.chosen.is_some() && self.class.is_some();
        if !is_made && let Some(volume) = self.choice.free.iter().find(is_for_it) {
            return Some(Served::Free(volume));
        }
        let class = self.class.as_ref()?;
        topology_accepts(class, node).then_some(Served::Coming)
    }
}
