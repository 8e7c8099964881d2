//! Pods per domain, claims per domain, and nodes that make domains exist: each change can be undone (P §6.8).
//!
//! It counts; which groups and domains there are is the `Shape`'s. Of pods that run, spreads do not count those that are leaving. Affinity and anti-affinity do
//! until they are gone, as kube-scheduler does, but for those that are gone before a node could come. Complexity: O(groups that select the pod's class) for a
//! placement, O(keys × domains) for a claim, O(distinct node filters) for a node.

use super::hosts::Hosts;
use super::{GroupId, Host, Kind, NONE, Rule, Shape};
use crate::algebra::{Algebra, SetId};
use crate::bits::Bits;
use smallvec::SmallVec;
use spokeshave_model::snapshot::{ClassId, NodeId, PodId, Snapshot};

/// Pods of a group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) rule: Rule,
    /// Pods per domain of the key.
    pub(super) counts: SmallVec<[u32; 6]>,
    /// Pods per host, when those are the domains.
    pub(super) hosts: Option<Box<Hosts>>,
}

/// How many pods are where.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    groups: Vec<Group>,
    /// Per census: registered nodes per domain.
    present: Vec<Vec<u32>>,
    /// Per key: planned claims that can be in each domain.
    claims_in: Vec<Vec<Bits>>,
    /// Template and requirements of each planned claim.
    claims: Vec<(usize, SetId)>,
    bound: Bound,
    /// Bound pods that do not count any more.
    uncounted: Bits,
    /// Placements made so far, for groups that are added later.
    placed: Vec<(ClassId, Host)>,
    /// Nodes that were removed.
    removed: Bits,
}

impl Counts {
    /// Counts bound pods that have not ended (P-107).
    pub(crate) fn new(shape: &mut Shape<'_>, algebra: &Algebra<'_>) -> Self {
        let mut counts = Counts {
            groups: Vec::new(),
            present: Vec::new(),
            claims_in: Vec::new(),
            claims: Vec::new(),
            bound: Bound::of(shape.snapshot),
            uncounted: Bits::default(),
            placed: Vec::new(),
            removed: Bits::default(),
        };
        counts.catch_up(shape, algebra);
        counts
    }

    /// Counts what is there in groups that the shape has got since. O(1) if there are none.
    #[inline]
    pub(crate) fn catch_up(&mut self, shape: &mut Shape<'_>, algebra: &Algebra<'_>) {
        if self.groups.len() < shape.rules.len() {
            self.add_groups(shape, algebra);
        }
    }

    fn add_groups(&mut self, shape: &mut Shape<'_>, algebra: &Algebra<'_>) {
        for key in self.claims_in.len()..shape.keys.len() {
            self.claims_in
                .push(vec![Bits::default(); shape.keys[key].values.len()]);
            for index in 0..self.claims.len() {
                let (template, set) = self.claims[index];
                self.index_claim(key, index, template, set, shape, algebra);
            }
        }
        for census in self.present.len()..shape.censuses.len() {
            let present = self.count_present(census, shape);
            self.present.push(present);
        }
        for index in self.groups.len()..shape.rules.len() {
            let rule = shape.rules[index];
            let domains = rule.key.map_or(0, |key| shape.keys[key as usize].values.len());
            self.groups.push(Group {
                rule,
                counts: SmallVec::from_elem(0, domains),
                hosts: rule.key.is_none().then(|| Box::new(Hosts::new(rule.max_skew))),
            });
            self.count_all(GroupId(index as u32), shape, algebra);
        }
    }

    /// Registered nodes per domain, as far as a census looks at them.
    fn count_present(&self, census: usize, shape: &Shape<'_>) -> Vec<u32> {
        let census = &shape.censuses[census];
        let Some(key) = census.key.map(|key| &shape.keys[key]) else {
            return Vec::new();
        };
        let mut present = vec![0; key.values.len()];
        for (index, domain) in key.of_node.iter().enumerate() {
            let kind = shape.kind_of[index].index();
            let counts = *domain != NONE && census.kinds.contains(kind);
            if counts && self.is_present(NodeId::from(index), shape) {
                present[*domain as usize] += 1;
            }
        }
        present
    }

    /// Counts bound and placed pods in a new group.
    fn count_all(&mut self, id: GroupId, shape: &mut Shape<'_>, algebra: &Algebra<'_>) {
        let members = std::mem::take(&mut shape.members[id.0 as usize]);
        let counts_leaving = self.groups[id.0 as usize].rule.counts_leaving();
        for class in members.iter().copied() {
            let mut next = self.bound.first(class);
            while let Some(pod) = next {
                next = self.bound.after(pod);
                let view = shape.snapshot.pod(pod);
                // Of those that are leaving the chain has only who lingers.
                if let Some(node) = view.node
                    && (view.active || counts_leaving)
                    && !self.uncounted.contains(pod.index())
                {
                    self.count_bound(id, node, shape);
                }
            }
        }
        for position in 0..self.placed.len() {
            let (class, host) = self.placed[position];
            if members.contains(&class) {
                self.change(id, host, true, shape, algebra);
            }
        }
        shape.members[id.0 as usize] = members;
    }

    /// Counts a bound pod in a new group.
    #[inline]
    fn count_bound(&mut self, id: GroupId, node: NodeId, shape: &Shape<'_>) {
        let group = &mut self.groups[id.0 as usize];
        let census = &shape.censuses[group.rule.census as usize];
        if !census.kinds.contains(shape.kind_of[node.index()].index()) {
            return;
        }
        if let Some(hosts) = &mut group.hosts {
            hosts.add_node(node.index());
        }
        if let Some(key) = group.rule.key {
            let key = &shape.keys[key as usize];
            match group.counts.get_mut(key.of_node[node.index()] as usize) {
                Some(count) => *count += 1,
                None if group.rule.repels() => {
                    key.open_domains(node)
                        .for_each(|domain| group.counts[domain] += 1);
                }
                None => {}
            }
        }
    }

    #[inline]
    pub(super) fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.0 as usize]
    }

    /// Registered nodes per domain, for a census.
    #[inline]
    pub(super) fn present(&self, census: u32) -> &[u32] {
        &self.present[census as usize]
    }

    /// Planned claims that can be in each domain of a key.
    #[inline]
    pub(super) fn claims_in(&self, key: u32) -> &[Bits] {
        &self.claims_in[key as usize]
    }

    /// A planned claim has these requirements from now on.
    pub(crate) fn set_claim(
        &mut self,
        index: usize,
        template: usize,
        set: SetId,
        shape: &mut Shape<'_>,
        algebra: &Algebra<'_>,
    ) {
        match self.claims.get_mut(index) {
            Some(known) if *known == (template, set) => return,
            Some(known) => *known = (template, set),
            None => self.claims.push((template, set)),
        }
        for key in 0..self.claims_in.len() {
            self.index_claim(key, index, template, set, shape, algebra);
        }
    }

    /// Forgets the youngest claim.
    pub(crate) fn drop_claim(&mut self) {
        self.claims.pop();
        for claims in self.claims_in.iter_mut().flatten() {
            claims.remove(self.claims.len());
        }
    }

    fn index_claim(
        &mut self,
        key: usize,
        index: usize,
        template: usize,
        set: SetId,
        shape: &mut Shape<'_>,
        algebra: &Algebra<'_>,
    ) {
        let possible = shape.possible(key, template, set, algebra);
        let possible = &shape.keys[key].sets[possible];
        for (domain, claims) in self.claims_in[key].iter_mut().enumerate() {
            if possible.contains(domain) {
                claims.insert(index);
            } else {
                claims.remove(index);
            }
        }
    }

    /// Records a placement in every group that sees it.
    pub(crate) fn record(
        &mut self,
        class: ClassId,
        host: Host,
        shape: &mut Shape<'_>,
        algebra: &Algebra<'_>,
    ) {
        self.placed.push((class, host));
        self.change_all(class, host, (true, false), shape, algebra);
    }

    /// Undoes the youngest placement.
    pub(crate) fn unrecord(&mut self, shape: &mut Shape<'_>, algebra: &Algebra<'_>) {
        if let Some((class, host)) = self.placed.pop() {
            self.change_all(class, host, (false, false), shape, algebra);
        }
    }

    /// A bound pod no longer counts (`counts` false), or counts again.
    pub(crate) fn set_counted(
        &mut self,
        pod: PodId,
        counts: bool,
        shape: &mut Shape<'_>,
        algebra: &Algebra<'_>,
    ) {
        let view = shape.snapshot.pod(pod);
        let Some(node) = view.node.filter(|_| !self.bound.is_empty() && view.is_counted()) else {
            return;
        };
        if counts {
            self.uncounted.remove(pod.index());
        } else {
            self.uncounted.insert(pod.index());
        }
        let change = (counts, !view.active);
        self.change_all(view.class, Host::Node(node), change, shape, algebra);
    }

    /// Adds a pod, or takes it away, in every group that counts it; in fewer where it is leaving.
    fn change_all(
        &mut self,
        class: ClassId,
        host: Host,
        (add, is_leaving): (bool, bool),
        shape: &mut Shape<'_>,
        algebra: &Algebra<'_>,
    ) {
        for position in 0..shape.selecting[class.index()].len() {
            let group = shape.selecting[class.index()][position];
            if is_leaving && !shape.rules[group.0 as usize].counts_leaving() {
                continue;
            }
            self.change(group, host, add, shape, algebra);
        }
        for position in 0..shape.inverse_owned[class.index()].len() {
            let group = shape.inverse_owned[class.index()][position];
            self.change(group, host, add, shape, algebra);
        }
    }

    fn change(&mut self, id: GroupId, host: Host, add: bool, shape: &mut Shape<'_>, algebra: &Algebra<'_>) {
        let Some(group) = self.groups.get_mut(id.0 as usize) else {
            return;
        };
        let rule = group.rule;
        let census = &mut shape.censuses[rule.census as usize];
        let apply = |count: &mut u32| {
            debug_assert!(add || *count >= 1, "a count is undone that was never made");
            *count = if add { *count + 1 } else { count.saturating_sub(1) };
        };
        match host {
            Host::Node(node) => {
                if !census.kinds.contains(shape.kind_of[node.index()].index()) {
                    return;
                }
                if let Some(hosts) = &mut group.hosts {
                    hosts.change(false, node.index(), add);
                }
                if let Some(key) = rule.key {
                    let key = &shape.keys[key as usize];
                    let domain = key.of_node[node.index()];
                    if domain != NONE {
                        apply(&mut group.counts[domain as usize]);
                    } else if rule.repels() {
                        key.open_domains(node)
                            .for_each(|domain| apply(&mut group.counts[domain]));
                    }
                }
            }
            Host::Planned { index, template, set } => {
                if !census.admits_planned(template, set, algebra) {
                    return;
                }
                if let Some(hosts) = &mut group.hosts {
                    hosts.change(true, index, add);
                }
                let Some(key) = rule.key else {
                    return;
                };
                let possible = shape.possible(key as usize, template, set, algebra);
                let domains = &shape.keys[key as usize].sets[possible];
                if rule.repels() || domains.count() == 1 {
                    domains.ones().for_each(|domain| apply(&mut group.counts[domain]));
                }
            }
        }
    }

    /// A node is removed, or is there again: where it was the only one of its domain, the domain goes with it.
    pub(crate) fn set_removed(&mut self, node: NodeId, removed: bool, shape: &Shape<'_>) {
        let counts = self.is_present(node, shape);
        if removed {
            self.removed.insert(node.index());
        } else {
            self.removed.remove(node.index());
        }
        if counts == self.is_present(node, shape) {
            return;
        }
        let kind = shape.kind_of[node.index()].index();
        for (census, present) in shape.censuses.iter().zip(&mut self.present) {
            if !census.kinds.contains(kind) {
                continue;
            }
            let domain = census
                .key
                .map_or(NONE, |key| shape.keys[key].of_node[node.index()]);
            if let Some(present) = present.get_mut(domain as usize) {
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
    fn is_present(&self, node: NodeId, shape: &Shape<'_>) -> bool {
        shape.standing.contains(node.index()) && !self.removed.contains(node.index())
    }

    /// Everything that changes, to compare what was reverted with what was there: what is placed, groups, censuses, and claims by key.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn fingerprint(&self) -> [Vec<String>; 4] {
        // Every field, so that a further one cannot be forgotten.
        let Counts {
            groups,
            present,
            claims_in,
            claims,
            bound: _,
            uncounted,
            placed,
            removed,
        } = self;
        let removed = removed.ones().collect::<Vec<_>>();
        let uncounted = uncounted.ones().collect::<Vec<_>>();
        let groups = groups.iter().map(|group| {
            let hosts = group.hosts.as_ref().map(|hosts| hosts.counts());
            format!("{:?} {hosts:?}", group.counts)
        });
        let claims_in = claims_in.iter().map(|domains| {
            let domains = domains.iter().map(|claims| claims.ones().collect::<Vec<_>>());
            format!("{:?}", domains.collect::<Vec<_>>())
        });
        [
            vec![format!("{removed:?} {placed:?} {claims:?} {uncounted:?}")],
            groups.collect(),
            present.iter().map(|present| format!("{present:?}")).collect(),
            claims_in.collect(),
        ]
    }
}

impl Rule {
    /// Whether its pods keep others away.
    pub(super) fn repels(&self) -> bool {
        matches!(self.kind, Kind::AntiAffinity | Kind::Inverse)
    }

    /// Whether it counts pods that terminate and take long for it, until they are gone.
    fn counts_leaving(&self) -> bool {
        self.kind != Kind::Spread
    }
}

/// The pods that run on nodes, those that are leaving for long among them, as one chain for each class; nothing where no rule counts pods.
#[derive(Clone, Debug, Default)]
struct Bound {
    /// By class, the pod that its chain begins with.
    first: Vec<u32>,
    /// By pod, the one that follows.
    next: Vec<u32>,
}

impl Bound {
    fn of(snapshot: &Snapshot) -> Self {
        if snapshot.classes.ruled().is_empty() {
            return Bound::default();
        }
        let mut bound = Bound {
            first: vec![NONE; snapshot.classes.len()],
            next: vec![NONE; snapshot.pods.len()],
        };
        for ((view, next), index) in snapshot.pods.iter().zip(&mut bound.next).zip(0..) {
            if view.node.is_some() && view.is_counted() {
                *next = std::mem::replace(&mut bound.first[view.class.index()], index);
            }
        }
        bound
    }

    fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    fn first(&self, class: ClassId) -> Option<PodId> {
        let first = self.first.get(class.index()).copied();
        first.filter(|first| *first != NONE).map(PodId)
    }

    fn after(&self, pod: PodId) -> Option<PodId> {
        Some(self.next[pod.index()])
            .filter(|next| *next != NONE)
            .map(PodId)
    }
}
