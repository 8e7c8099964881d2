//! Every change of counts, domains and claims, each of which can be taken back (P §6.8).
//!
//! Complexity: O(groups that select the pod's class) for a placement, O(keys × domains) for a claim, O(distinct node filters) for a node.

use super::{GroupId, Host, NONE, Topology};
use crate::algebra::{Algebra, SetId};
use spokeshave_model::snapshot::{ClassId, NodeId, PodId};

impl Topology<'_> {
    /// Tells where a planned claim can be from now on.
    pub(crate) fn set_claim(&mut self, index: usize, template: usize, set: SetId, algebra: &Algebra<'_>) {
        match self.claims.get_mut(index) {
            Some(known) if *known == (template, set) => return,
            Some(known) => *known = (template, set),
            None => self.claims.push((template, set)),
        }
        for key in 0..self.keys.len() {
            self.index_claim(key, index, template, set, algebra);
        }
    }

    /// Forgets the youngest claim.
    pub(crate) fn drop_claim(&mut self) {
        self.claims.pop();
        for claims in self.keys.iter_mut().flat_map(|key| &mut key.claims) {
            claims.remove(self.claims.len());
        }
    }

    pub(super) fn index_claim(
        &mut self,
        key: usize,
        index: usize,
        template: usize,
        set: SetId,
        algebra: &Algebra<'_>,
    ) {
        let possible = self.possible(key, template, set, algebra);
        let key = &mut self.keys[key];
        for (domain, claims) in key.claims.iter_mut().enumerate() {
            if key.sets[possible].contains(domain) {
                claims.insert(index);
            } else {
                claims.remove(index);
            }
        }
    }

    /// Records a placement in every group that sees it.
    pub(crate) fn record(&mut self, class: ClassId, host: Host, algebra: &Algebra<'_>) {
        self.placed.push((class, host));
        self.change_all(class, host, true, algebra);
    }

    /// Takes the youngest placement back.
    pub(crate) fn unrecord(&mut self, algebra: &Algebra<'_>) {
        if let Some((class, host)) = self.placed.pop() {
            self.change_all(class, host, false, algebra);
        }
    }

    /// A bound pod no longer counts (`counts` false), or counts again.
    pub(crate) fn set_counted(&mut self, pod: PodId, counts: bool, algebra: &Algebra<'_>) {
        let at = self.counted_at[pod.index()];
        if let Some((class, node, number)) = self.counted.get_mut(at as usize) {
            *number = if counts {
                *number + 1
            } else {
                number.saturating_sub(1)
            };
            let (class, node) = (*class, *node);
            self.change_all(class, Host::Node(node), counts, algebra);
        }
    }

    fn change_all(&mut self, class: ClassId, host: Host, add: bool, algebra: &Algebra<'_>) {
        for position in 0..self.selecting[class.index()].len() {
            self.change(self.selecting[class.index()][position], host, 1, add, algebra);
        }
        for position in 0..self.inverse_owned[class.index()].len() {
            self.change(self.inverse_owned[class.index()][position], host, 1, add, algebra);
        }
    }

    pub(super) fn change(&mut self, id: GroupId, host: Host, number: u32, add: bool, algebra: &Algebra<'_>) {
        let group = &mut self.groups[id.0 as usize];
        let census = &mut self.censuses[group.census];
        let apply = |count: &mut u32| {
            debug_assert!(
                add || *count >= number,
                "a count is taken back that was never made"
            );
            *count = if add {
                *count + number
            } else {
                count.saturating_sub(number)
            };
        };
        match host {
            Host::Node(node) => {
                if !census.kinds.contains(self.snapshot.node(node).kind.index()) {
                    return;
                }
                if let Some(hosts) = &mut group.hosts {
                    hosts.change(false, node.index(), number, add);
                }
                if let Some(key) = group.key {
                    let domain = self.keys[key].of_node[node.index()];
                    if domain != NONE {
                        apply(&mut group.counts[domain as usize]);
                    }
                }
            }
            Host::Planned { index, template, set } => {
                if !census.admits_planned(template, set, algebra) {
                    return;
                }
                if let Some(hosts) = &mut group.hosts {
                    hosts.change(true, index, number, add);
                }
                let Some(key) = group.key else {
                    return;
                };
                let possible = self.possible(key, template, set, algebra);
                let group = &mut self.groups[id.0 as usize];
                let domains = &self.keys[key].sets[possible];
                if group.kind.repels() || domains.count() == 1 {
                    domains.ones().for_each(|domain| apply(&mut group.counts[domain]));
                }
            }
        }
    }

    /// A node goes away, or comes back: where it was the only one of its domain, the domain goes with it.
    pub(crate) fn set_removed(&mut self, node: NodeId, removed: bool) {
        let counts = self.is_present(node);
        if removed {
            self.removed.insert(node.index());
        } else {
            self.removed.remove(node.index());
        }
        if counts == self.is_present(node) {
            return;
        }
        let kind = self.snapshot.node(node).kind.index();
        for census in self
            .censuses
            .iter_mut()
            .filter(|census| census.kinds.contains(kind))
        {
            let domain = census
                .key
                .map_or(NONE, |key| self.keys[key].of_node[node.index()]);
            if let Some(present) = census.present.get_mut(domain as usize) {
                *present = if removed {
                    present.saturating_sub(1)
                } else {
                    *present + 1
                };
            }
        }
    }

    pub(crate) fn is_removed(&self, node: NodeId) -> bool {
        self.removed.contains(node.index())
    }

    /// Whether an existing node makes its domains exist.
    pub(super) fn is_present(&self, node: NodeId) -> bool {
        let view = self.snapshot.node(node);
        view.registered && !view.marked_for_deletion && !self.removed.contains(node.index())
    }
}
