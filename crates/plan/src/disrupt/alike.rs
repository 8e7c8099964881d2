//! Which candidates are alike, so that what is said of one is true of the others.
//!
//! Two candidates are alike that have the same price, NodePool and instance type, and pods of the same classes and requests, when neither could take a pod of
//! that kind itself. What-ifs about two of them differ only in which of the two is gone and which stays; and the one that stays takes none of the pods. So at
//! one state of a what-if their answers differ at most in the names of their pods. That holds only for pods that ask nothing of other pods beyond their own
//! host, and have neither volumes nor host ports, and where no limit counts what a node has.

use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::constraints::{Constraints, PodTerm};
use spokeshave_model::snapshot::{ClassId, NodeView, PodView, PoolId, RequestId, Snapshot};
use spokeshave_model::vector::{CPU, MEMORY};
use spokeshave_model::{Classes, Price, labels};
use std::cmp::Reverse;
use std::sync::Arc;

/// What candidates that are alike have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Likeness {
    pool: PoolId,
    instance_type: usize,
    price: Price,
    capacity_type: String,
    /// In the order in which places are looked for.
    pods: Vec<(ClassId, RequestId)>,
}

/// So few likenesses are kept whether nodes are like them or not.
const FEW: usize = 64;

/// Likenesses, each once.
#[derive(Clone, Debug, Default)]
pub(super) struct Likenesses {
    known: FxHashMap<Arc<Likeness>, Arc<Likeness>>,
    /// By class.
    rules: Vec<Rules>,
}

/// What pods of a class ask of other pods.
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    /// More than may be asked.
    is_bound: bool,
    /// Never two of them on one host.
    keeps_apart: bool,
}

impl PartialEq for Likenesses {
    /// Which have been met is no part of what is known.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Likenesses {
    pub(super) fn of(classes: &Classes) -> Self {
        Likenesses {
            known: FxHashMap::with_hasher(FxBuildHasher),
            rules: rules(classes),
        }
    }

    /// The likeness of a node, whose reschedulable pods are all to leave, if others can be like it.
    pub(super) fn find(&mut self, snapshot: &Snapshot, view: &NodeView) -> Option<Arc<Likeness>> {
        let pool = view.pool.filter(|pool| snapshot.pool(*pool).limits.is_empty())?;
        let leaving = || {
            let pods = view.pods.iter().map(|pod| snapshot.pod(*pod));
            pods.filter(|pod| pod.reschedulable)
        };
        let is_simple = |pod: &PodView| {
            let has_rare = !pod.attachments().is_empty() || pod.problem().is_some();
            pod.active && !has_rare && !self.rule(pod).is_bound
        };
        if !leaving().all(is_simple) || leaving().any(|pod| self.fits(snapshot, view, pod)) {
            return None;
        }
        let key = |(_, request): &(ClassId, RequestId)| {
            let asked = &snapshot.requests[request.index()];
            (Reverse(asked[CPU]), Reverse(asked[MEMORY]))
        };
        let mut pods: Vec<(ClassId, RequestId)> = leaving().map(|pod| (pod.class, pod.request)).collect();
        pods.sort_unstable_by_key(|pod| (key(pod), *pod));
        // Of pods that ask for as much the older goes first, whatever its class.
        if pods
            .windows(2)
            .any(|two| key(&two[0]) == key(&two[1]) && two[0] != two[1])
        {
            return None;
        }
        let likeness = Likeness {
            pool,
            instance_type: view.instance_type?,
            price: view.price,
            capacity_type: view.labels.get(labels::CAPACITY_TYPE)?.clone(),
            pods,
        };
        if let Some(known) = self.known.get(&likeness) {
            return Some(Arc::clone(known));
        }
        let likeness = Arc::new(likeness);
        self.known.insert(Arc::clone(&likeness), Arc::clone(&likeness));
        Some(likeness)
    }

    /// Forgets what no node is like any more, once there is more of that than there are nodes.
    pub(super) fn forget_unused(&mut self, nodes: usize) {
        if self.known.len() > 2 * nodes + FEW {
            // Of each there is one as what is looked for and one as what is found.
            self.known.retain(|_, likeness| Arc::strong_count(likeness) > 2);
        }
    }

    fn rule(&self, pod: &PodView) -> Rules {
        self.rules.get(pod.class.index()).copied().unwrap_or_default()
    }

    /// Whether the node might take another pod like one that it has. What DaemonSets will still take is not counted: then it has less room.
    fn fits(&self, snapshot: &Snapshot, view: &NodeView, pod: &PodView) -> bool {
        let asked = &snapshot.requests[pod.request.index()].0;
        let rooms = view.allocatable.0.iter().zip(&view.requested.0);
        let mut both = asked.iter().zip(rooms);
        !self.rule(pod).keeps_apart && both.all(|(asked, (all, used))| *asked <= all.saturating_sub(*used))
    }
}

fn rules(classes: &Classes) -> Vec<Rules> {
    let mut rules: Vec<Rules> = classes
        .iter()
        .map(|class| Rules {
            is_bound: !class.host_ports.is_empty()
                || !class.volume_terms.is_empty()
                || class.uses_resource_claims
                || class.is_virtual,
            keeps_apart: false,
        })
        .collect();
    let is_of_host = |term: &PodTerm| term.topology_key == labels::HOSTNAME;
    for id in classes.ruled() {
        let class = &classes[id.index()];
        let anti_affinity = class.anti_affinity.iter();
        let preferred = class.preferred_anti_affinity.iter().map(|(_, term)| term);
        let rule = &mut rules[id.index()];
        rule.is_bound |= !class.affinity.is_empty()
            || !class.preferred_affinity.is_empty()
            || !class.spreads.is_empty()
            || !anti_affinity.chain(preferred).all(is_of_host);
        rule.keeps_apart = class
            .anti_affinity
            .iter()
            .any(|term| is_of_host(term) && selects(term, class));
    }
    let repelling = classes.repelling().iter();
    let far: Vec<&PodTerm> = repelling
        .flat_map(|class| &classes[class.index()].anti_affinity)
        .filter(|term| !is_of_host(term))
        .collect();
    if !far.is_empty() {
        for (rule, class) in rules.iter_mut().zip(classes.iter()) {
            rule.is_bound |= far.iter().any(|term| selects(term, class));
        }
    }
    rules
}

fn selects(term: &PodTerm, class: &Constraints) -> bool {
    term.namespaces.contains(&class.namespace) && term.selector.matches(&class.labels)
}
