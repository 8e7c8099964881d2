//! What several policies and reasons ask of one snapshot, found once for all of them: five thousand nodes and their pods are far apart in memory.
//!
//! It follows from the snapshot, the time and the command that is looked at, and decides nothing.

use super::convergence::Facts;
use super::hold;
use super::limits::Limit;
use super::rules::Part;
use super::status::{self, Fault};
use jiff::Timestamp;
use spokeshave_api::DisruptionPolicy;
use spokeshave_api::disruption_policy::BudgetUnit;
use spokeshave_model::labels;
use spokeshave_model::snapshot::{NodeId, NodeView, Snapshot};
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// The limits of parts of policies, by the policy's name.
type Parts = BTreeMap<(String, Part), Rc<[Limit]>>;

/// Found when first asked for. One is good for one snapshot at one time, and for one command.
#[derive(Debug)]
pub struct Memo<'a> {
    snapshot: &'a Snapshot,
    pub(super) now: Timestamp,
    /// Nodes, by provider ID, that use nothing up by being in a command: it is the one that is looked at.
    pub(super) own: &'a BTreeSet<&'a str>,
    facts: OnceCell<Facts>,
    pods: OnceCell<Arc<[i64]>>,
    millicores: OnceCell<Arc<[i64]>>,
    born: OnceCell<Vec<Option<Timestamp>>>,
    on_their_way: OnceCell<Vec<OnItsWay>>,
    zones: OnceCell<Arc<Domains>>,
    pools: OnceCell<Arc<Domains>>,
    /// By which NodePools a policy selects: whether it covers each node.
    covered: RefCell<BTreeMap<Vec<bool>, Arc<[bool]>>>,
    faults: RefCell<BTreeMap<String, Rc<[Fault]>>>,
    parts: RefCell<Parts>,
}

/// Whether a node is on its way out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OnItsWay {
    /// It is being deleted, or in a command that is not looked at here: nothing chooses it.
    pub(super) is_leaving: bool,
    /// The same, or it is initialised and not Ready: it uses up what is allowed at once.
    pub(super) is_disrupting: bool,
}

/// What each node counts under: the position of a name, by the position of the node.
#[derive(Debug)]
pub(super) struct Domains {
    pub(super) of: Arc<[u32]>,
    /// The empty name stands for nodes that have none.
    pub(super) names: Vec<String>,
}

impl Domains {
    pub(super) fn of<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let mut known: BTreeMap<&str, u32> = BTreeMap::new();
        let of = names.map(|name| {
            let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
            *known.entry(name).or_insert(next)
        });
        let of = of.collect();
        let mut names = vec![String::new(); known.len()];
        for (name, domain) in known {
            name.clone_into(&mut names[domain as usize]);
        }
        Domains { of, names }
    }

    pub(super) fn name(&self, domain: u32) -> &str {
        self.names.get(domain as usize).map_or("", String::as_str)
    }

    /// The position of a name; one that no node has where it is not among them.
    pub(super) fn find(&self, name: &str) -> u32 {
        let found = self.names.iter().position(|known| known == name);
        found
            .and_then(|index| u32::try_from(index).ok())
            .unwrap_or(u32::MAX)
    }

    pub(super) fn domain(&self, node: NodeId) -> u32 {
        self.of[node.index()]
    }
}

/// A label that is among the last by name, or the empty text: looked for from the end, because each name on the way to it is far away in memory, and with
/// thousands of nodes that is most of what policies cost.
fn last_label<'n>(labels: &'n BTreeMap<String, String>, name: &str) -> &'n str {
    let mut backwards = labels.iter().rev();
    let found = backwards.find(|(key, _)| key.as_str() <= name);
    found
        .filter(|(key, _)| *key == name)
        .map_or("", |(_, value)| value)
}

/// How many pods have to move when a node goes; nobody moves virtual ones.
pub(super) fn moving(snapshot: &Snapshot, node: &NodeView) -> i64 {
    let pods = node.present_pods().iter().map(|pod| snapshot.pod(*pod));
    let moving = pods.filter(|pod| pod.reschedulable && !pod.is_virtual);
    i64::try_from(moving.count()).unwrap_or(i64::MAX)
}

impl<'a> Memo<'a> {
    /// With nothing found yet. Nodes of `own`, by provider ID, count as not being in a command.
    pub fn new(snapshot: &'a Snapshot, now: Timestamp, own: &'a BTreeSet<&'a str>) -> Self {
        Memo {
            snapshot,
            now,
            own,
            facts: OnceCell::new(),
            pods: OnceCell::new(),
            millicores: OnceCell::new(),
            born: OnceCell::new(),
            on_their_way: OnceCell::new(),
            zones: OnceCell::new(),
            pools: OnceCell::new(),
            covered: RefCell::default(),
            faults: RefCell::default(),
            parts: RefCell::default(),
        }
    }

    /// The same, knowing of some nodes already how many pods have to move: going through the pods of all nodes takes longer than all else here.
    #[must_use]
    pub fn knowing_pods(self, known: impl Fn(NodeId) -> Option<usize>) -> Self {
        let snapshot = self.snapshot;
        let count = |node: NodeId| match known(node) {
            Some(pods) => i64::try_from(pods).unwrap_or(i64::MAX),
            None => moving(snapshot, snapshot.node(node)),
        };
        let is_wanted = snapshot.disruption_policies.iter().any(|policy| {
            policy
                .spec
                .budgets
                .iter()
                .any(|budget| budget.unit == Some(BudgetUnit::Pods))
        });
        if is_wanted {
            // Nobody has asked yet.
            drop(self.pods.set(snapshot.node_ids().map(count).collect()));
        }
        self
    }

    /// What creation times and the ledger tell.
    pub(super) fn facts(&self) -> &Facts {
        self.facts.get_or_init(|| Facts::of(self.snapshot, self.now))
    }

    fn each<T, C: FromIterator<T>>(&self, what: impl FnMut(&NodeView) -> T) -> C {
        self.snapshot.nodes.iter().map(what).collect()
    }

    /// How many pods have to move when each node goes.
    pub(super) fn pods(&self) -> &Arc<[i64]> {
        self.pods
            .get_or_init(|| self.each(|node| moving(self.snapshot, node)))
    }

    /// Thousandths of a vCPU that each node has.
    pub(super) fn millicores(&self) -> &Arc<[i64]> {
        self.millicores
            .get_or_init(|| self.each(|node| node.capacity.get("cpu")))
    }

    /// When a node came, where it is one of a NodePool.
    pub(super) fn born(&self, node: NodeId) -> Option<Timestamp> {
        let all = self
            .born
            .get_or_init(|| self.each(|node| node.is_managed().then(|| hold::born(node)).flatten()));
        all.get(node.index()).copied().flatten()
    }

    /// Whether a node is on its way out.
    pub(super) fn on_its_way(&self, node: NodeId) -> OnItsWay {
        let all = self.on_their_way.get_or_init(|| {
            self.each(|node| {
                let in_other = node.in_command && !self.own.contains(node.provider_id.as_str());
                let is_leaving = node.marked_for_deletion || in_other;
                OnItsWay {
                    is_leaving,
                    is_disrupting: is_leaving || (node.initialized && !node.ready),
                }
            })
        });
        all.get(node.index()).copied().unwrap_or_default()
    }

    /// Which zone each node is in.
    pub(super) fn zones(&self) -> &Arc<Domains> {
        self.zones.get_or_init(|| {
            let zone = |node: &'a NodeView| last_label(&node.labels, labels::ZONE);
            Domains::of(self.snapshot.nodes.iter().map(zone)).into()
        })
    }

    /// Which NodePool each node is of.
    pub(super) fn pools(&self) -> &Arc<Domains> {
        self.pools.get_or_init(|| {
            // NodePools that are there by their position, which compares no names; nodes of others under the empty name.
            let pools = &self.snapshot.pools;
            let none = u32::try_from(pools.len()).unwrap_or(u32::MAX);
            let position = |node: &NodeView| {
                let position = node.pool.and_then(|pool| u32::try_from(pool.index()).ok());
                position.unwrap_or(none)
            };
            let names = pools.iter().map(|pool| pool.name.clone());
            let domains = Domains {
                of: self.each(position),
                names: names.chain([String::new()]).collect(),
            };
            domains.into()
        })
    }

    /// Whether a policy covers each node, from whether it selects each NodePool.
    pub(super) fn covered(&self, selected: Vec<bool>) -> Arc<[bool]> {
        let mut all = self.covered.borrow_mut();
        let covered = all.entry(selected).or_insert_with_key(|selected| {
            self.each(|node| node.is_managed() && node.pool.is_some_and(|pool| selected[pool.index()]))
        });
        covered.clone()
    }

    /// What cannot be evaluated of a policy.
    pub(super) fn faults(&self, policy: &DisruptionPolicy) -> Rc<[Fault]> {
        let mut all = self.faults.borrow_mut();
        let found = all
            .entry(policy.name().to_owned())
            .or_insert_with(|| status::faults(policy).into());
        found.clone()
    }

    /// The limits of a part of a policy, which are the same for each reason that the part covers.
    pub(super) fn part(
        &self,
        policy: &DisruptionPolicy,
        part: Part,
        find: impl FnOnce() -> Vec<Limit>,
    ) -> Rc<[Limit]> {
        let key = (policy.name().to_owned(), part);
        if let Some(known) = self.parts.borrow().get(&key) {
            return known.clone();
        }
        let found: Rc<[Limit]> = find().into();
        self.parts.borrow_mut().insert(key, found.clone());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_found_from_the_end() {
        let names = ["a", "b", "topology.kubernetes.io/region", labels::ZONE, "zone"];
        let all: BTreeMap<String, String> = names
            .map(|name| (name.to_owned(), format!("value of {name}")))
            .into();
        for (name, value) in &all {
            assert_eq!(last_label(&all, name), value);
        }
        for missing in ["", "aa", "topology.kubernetes.io/zon", "zoo"] {
            assert_eq!(last_label(&all, missing), "");
        }
        assert_eq!(last_label(&BTreeMap::new(), labels::ZONE), "");
    }
}
