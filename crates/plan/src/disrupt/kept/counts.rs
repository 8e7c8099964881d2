//! Whose rules of topology look at pods that have come, gone or moved.
//!
//! It answers for classes, and says yes rather than no. Which domain a rule compares is looked at only where the rule asks no more than whether a domain has
//! pods: affinity and anti-affinity do, so that one pod of several makes no difference to them.

use spokeshave_model::constraints::{Constraints, PodTerm};
use spokeshave_model::snapshot::{ClassId, NodeId, PodId, Snapshot};
use spokeshave_model::{Classes, labels};

/// The classes that some rule binds: their own, or the anti-affinity of others.
fn bound(snapshot: &Snapshot) -> Vec<bool> {
    let classes = &snapshot.classes;
    let mut bound = vec![false; classes.len()];
    for class in classes.ruled() {
        bound[class.index()] = true;
    }
    let repelling = classes.repelling().iter();
    let keep_away: Vec<&PodTerm> = repelling
        .flat_map(|class| &classes[class.index()].anti_affinity)
        .collect();
    if !keep_away.is_empty() {
        for (bound, class) in bound.iter_mut().zip(classes.iter()) {
            *bound |= keep_away.iter().any(|term| selects(term, class));
        }
    }
    bound
}

/// A pod that is counted now where it was not, or the other way round.
#[derive(Clone, Copy)]
pub(super) struct Recounted<'c> {
    pub(super) constraints: &'c Constraints,
    pub(super) node: Option<NodeId>,
    /// By spreads, which do not count what is leaving.
    pub(super) by_spreads: bool,
    /// By affinity and anti-affinity, which count it until it is gone.
    pub(super) by_terms: bool,
}

/// Whose rules of topology read other counts than before.
#[derive(Default)]
pub(super) struct Recounts {
    /// By class.
    differs: Vec<bool>,
    /// Rules that ask only whether there is a pod in a domain, where there are others.
    thinned: Vec<Thinned>,
}

/// A domain that has more or fewer pods than before, but always some, as seen by a rule of a class.
struct Thinned {
    class: ClassId,
    /// The classes that the rule counts, in order.
    counted: Vec<ClassId>,
    /// How many of their pods were there at least, before and after.
    least: usize,
}

/// So often the pods of a domain are counted; every further rule that looks at pods which have changed counts as changed.
const MOST_LOOKS: usize = 4;

/// Where more pods than this have changed, domains are not counted.
const MOST_RECOUNTED: usize = 16;

impl Recounts {
    /// `is_leaving` says of which nodes no pod counts. O(pods) for each of a few domains of which only whether they have pods is asked.
    pub(super) fn of(
        snapshot: &Snapshot,
        recounted: &[Recounted<'_>],
        is_leaving: impl Fn(NodeId) -> bool,
    ) -> Self {
        let classes = &snapshot.classes;
        let mut recounts = Recounts {
            differs: vec![false; classes.len()],
            thinned: Vec::new(),
        };
        let mut looks = 0;
        for other in recounted {
            for class in classes.may_count(&other.constraints.labels) {
                let rules = &classes[class.index()];
                if is_seen_otherwise(rules, other) {
                    recounts.differs[class.index()] = true;
                }
                let terms = rules.topology_terms().filter(|_| other.by_terms);
                for term in terms.filter(|term| selects(term, other.constraints)) {
                    if recounts.differs[class.index()] {
                        break;
                    }
                    // Where so many have changed, hardly a domain is sure to have kept some.
                    let may_look = looks < MOST_LOOKS && recounted.len() <= MOST_RECOUNTED;
                    looks += usize::from(may_look);
                    let others = || others_in_domain(snapshot, term, other.node?, &is_leaving);
                    let others = may_look.then(others).flatten();
                    let least = others
                        .as_ref()
                        .map_or(0, |(_, count)| count.saturating_sub(recounted.len()));
                    match others.filter(|_| least > 0) {
                        Some((counted, _)) => recounts.thinned.push(Thinned {
                            class,
                            counted,
                            least,
                        }),
                        None => recounts.differs[class.index()] = true,
                    }
                }
            }
            recounts.add_kept_away(classes, other);
        }
        recounts
    }

    /// The same where every class that some rule binds counts as such: no pod is counted, only those are looked for that others kept away.
    pub(super) fn of_all_bound(snapshot: &Snapshot, recounted: &[Recounted<'_>]) -> Self {
        let mut recounts = Recounts {
            differs: bound(snapshot),
            thinned: Vec::new(),
        };
        for other in recounted {
            recounts.add_kept_away(&snapshot.classes, other);
        }
        recounts
    }

    /// The classes that a pod keeps away.
    fn add_kept_away(&mut self, classes: &Classes, other: &Recounted<'_>) {
        let keeps_away = other.constraints.anti_affinity.iter();
        for term in keeps_away.filter(|_| other.by_terms) {
            for class in classes.selected(&term.selector) {
                let namespace = &classes[class.index()].namespace;
                self.differs[class.index()] |= term.namespaces.contains(namespace);
            }
        }
    }

    /// The classes whose rules may read something else.
    pub(super) fn classes(&self) -> impl Iterator<Item = ClassId> + '_ {
        let differing = (0..)
            .map(ClassId)
            .zip(&self.differs)
            .filter(|(_, differs)| **differs);
        let thinned = self.thinned.iter().map(|thinned| thinned.class);
        differing.map(|(class, _)| class).chain(thinned)
    }

    /// Whether an answer about the pods of these nodes, which are of these classes, may have read something else. A rule that asks whether a domain has pods
    /// is told the same as before as long as the answer cannot take the last of them away. Where `tells_counts`, it has them in words.
    pub(super) fn may_change(
        &self,
        snapshot: &Snapshot,
        classes: &[ClassId],
        nodes: &[NodeId],
        tells_counts: bool,
    ) -> bool {
        let differs = |class: &ClassId| self.differs.get(class.index()).copied().unwrap_or(true);
        let empties = |thinned: &Thinned| {
            let pods = nodes.iter().flat_map(|node| &snapshot.node(*node).pods);
            let is_counted = |pod: &&PodId| {
                let class = snapshot.pod(**pod).class;
                thinned.counted.binary_search(&class).is_ok()
            };
            let counted = pods.filter(is_counted);
            tells_counts || counted.count() >= thinned.least
        };
        classes.iter().any(differs)
            || self
                .thinned
                .iter()
                .any(|thinned| classes.contains(&thinned.class) && empties(thinned))
    }
}

/// The classes that a term counts, in order, and how many of their pods are in the domain of a node; none where each node is a domain of its own.
fn others_in_domain(
    snapshot: &Snapshot,
    term: &PodTerm,
    node: NodeId,
    is_leaving: impl Fn(NodeId) -> bool,
) -> Option<(Vec<ClassId>, usize)> {
    let key = term.topology_key.as_str();
    let domain = |node: NodeId| snapshot.node(node).labels.get(key);
    let own = domain(node).filter(|_| key != labels::HOSTNAME)?;
    let mut counted = snapshot.classes.selected(&term.selector);
    counted.retain(|class| {
        term.namespaces
            .contains(&snapshot.classes[class.index()].namespace)
    });
    let is_there = |node: NodeId| !is_leaving(node) && domain(node) == Some(own);
    let pods = snapshot.pods.iter();
    let pods = pods.filter(|view| counted.binary_search(&view.class).is_ok());
    let there = pods.filter(|view| view.active && view.node.is_some_and(is_there));
    let count = there.count();
    Some((counted, count))
}

/// Whether rules of a class read something else because of a pod, whoever else is there: its spreads do, and so does affinity of several terms, which counts only
/// pods that all of them select, so that others of one term are nobody to rely on.
fn is_seen_otherwise(class: &Constraints, other: &Recounted<'_>) -> bool {
    let affinity = &class.affinity;
    let is_joint = affinity.len() > 1 && affinity.iter().any(|term| selects(term, other.constraints));
    (other.by_spreads && spreads(class, other.constraints)) || (other.by_terms && is_joint)
}

/// Whether a spread of a class counts pods of another.
fn spreads(class: &Constraints, other: &Constraints) -> bool {
    let mut spreads = class
        .spreads
        .iter()
        .filter(|_| class.namespace == other.namespace);
    spreads.any(|spread| spread.selector.matches(&other.labels))
}

fn selects(term: &PodTerm, class: &Constraints) -> bool {
    term.namespaces.contains(&class.namespace) && term.selector.matches(&class.labels)
}
