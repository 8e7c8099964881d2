//! A model of kube-scheduler on dense values: filters (resources, selectors, taints, topology spread, pod affinity) and one scoring strategy.
//!
//! Owns what the scheduler knows of nodes and the counts that spreading needs. Pods of one owner have the same shape, so nothing is parsed twice. It shares no
//! code with `schedule`. It models no preemption, volumes, host ports or preferred pod affinity.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use rustc_hash::FxHashMap;
use spokeshave_model::constraints::{Constraints, NamespaceLabels, lower};
use spokeshave_model::vector::{CPU, MEMORY, ResourceTable, ResourceVector};
use spokeshave_model::{Pod, Requirement, Requirements, Resources, labels, pod, state_node, taint};

use crate::hosts::{Host, Hosts, Suits};
use crate::refusals::{Refusals, Why};
use crate::world::Scoring;
use rules::{Rule, Rules};

mod rules;
#[cfg(test)]
mod tests;

/// Kubernetes' weight of ScheduleAnyway spreads over that of resources.
const SPREAD_WEIGHT: i64 = 2;

/// What the pods of one owner or DaemonSet have in common.
#[derive(Debug, Clone)]
struct Shape {
    constraints: Constraints,
    requests: ResourceVector,
    /// Rules that the pods have, by position in `Rules::all`.
    spreads: Vec<usize>,
    affinity: Vec<usize>,
    anti_affinity: Vec<usize>,
    /// Rules, of whomever, that count these pods.
    counted_by: Vec<usize>,
    /// Room has not grown since the scheduler last failed to place such a pod.
    refused_at: Option<u64>,
}

/// The scheduler.
#[derive(Debug)]
pub(crate) struct Scheduler {
    table: ResourceTable,
    scoring: Scoring,
    shapes: Vec<Shape>,
    rules: Rules,
    domains: BTreeMap<String, u32>,
    /// Shapes of pods whose volumes are in a zone, by the shape without and the zone.
    pinned: BTreeMap<(usize, String), usize>,
    hosts: Hosts,
    /// Increases when a pod that was refused might fit now.
    room: u64,
    /// Increases with every change of nodes and of what is on them.
    changes: u64,
    /// Positions of resources, by name.
    by_name: Vec<usize>,
}

impl Scheduler {
    /// A scheduler that knows the shapes of pods; `pods` are samples of each shape, in order.
    pub(crate) fn new<'a, 'b>(
        pods: impl Iterator<Item = &'a Pod>,
        amounts: impl Iterator<Item = &'b Resources>,
        scoring: Scoring,
    ) -> Self {
        let pods: Vec<&Pod> = pods.collect();
        let requests: Vec<Resources> = pods.iter().map(|sample| pod::requests(sample)).collect();
        let amounts: Vec<Resources> = amounts.cloned().collect();
        let table = ResourceTable::new(requests.iter().chain(&amounts));
        let mut this = Scheduler {
            scoring,
            shapes: Vec::new(),
            rules: Rules::default(),
            domains: BTreeMap::new(),
            pinned: BTreeMap::new(),
            hosts: Hosts::new(table.width(), pods.len()),
            room: 0,
            changes: 0,
            by_name: by_name(&table),
            table,
        };
        for (sample, requests) in pods.iter().zip(&requests) {
            this.add_shape(sample, requests);
        }
        for shape in &mut this.shapes {
            shape.counted_by = this.rules.that_count(&shape.constraints);
        }
        this
    }

    fn add_shape(&mut self, sample: &Pod, requests: &Resources) {
        let constraints = lower(sample, &NamespaceLabels::new());
        let mut shape = Shape {
            requests: self.table.vector(requests),
            spreads: Vec::new(),
            affinity: Vec::new(),
            anti_affinity: Vec::new(),
            counted_by: Vec::new(),
            refused_at: None,
            constraints,
        };
        let (constraints, rules) = (&shape.constraints, &mut self.rules);
        let spreads = constraints.spreads.iter();
        shape.spreads = spreads
            .map(|spread| rules.of_spread(constraints, spread))
            .collect();
        shape.affinity = rules.of_affinity(constraints, &constraints.affinity).collect();
        let terms = constraints.anti_affinity.iter();
        shape.anti_affinity = terms
            .map(|term| rules.of_anti_affinity(constraints, term))
            .collect();
        self.shapes.push(shape);
    }

    /// The shape of pods that are like those of another, and have to be in a zone.
    pub(crate) fn pinned(&mut self, shape: usize, zone: &str) -> usize {
        let key = (shape, zone.to_owned());
        if let Some(known) = self.pinned.get(&key) {
            return *known;
        }
        let mut copy = self.shapes[shape].clone();
        copy.constraints
            .node_selector
            .add(Requirement::is(labels::ZONE, zone));
        copy.refused_at = None;
        self.shapes.push(copy);
        self.hosts.add_shape();
        self.pinned.insert(key, self.shapes.len() - 1);
        self.shapes.len() - 1
    }

    /// Takes a node in as it is now. What runs on it stays counted.
    pub(crate) fn set_node(&mut self, machine: u32, node: &Node) {
        let own = node.metadata.labels.clone().unwrap_or_default();
        let status = node.status.as_ref();
        let amounts = Resources::from_quantities_lossy(status.and_then(|status| status.allocatable.as_ref()));
        let taints = node
            .spec
            .as_ref()
            .and_then(|spec| spec.taints.clone())
            .unwrap_or_default();
        let hostname = own.get(labels::HOSTNAME).cloned();
        let mut domains = Vec::with_capacity(self.rules.keys.len());
        for key in &self.rules.keys {
            let value = if key == labels::HOSTNAME {
                hostname.as_ref()
            } else {
                own.get(key)
            };
            domains.push(value.map(|value| {
                let next = self.domains.len() as u32;
                *self.domains.entry(format!("{key}={value}")).or_insert(next)
            }));
        }
        let is_open = state_node::is_node_ready(node) && !state_node::is_cordoned(node);
        let name = node.metadata.name.clone().unwrap_or_default();
        let mut known = Requirements::of_node(&own);
        // Affinity may ask for its name, as if that were a label.
        known.add(Requirement::is(&labels::node_name_key(&name), "true"));
        let host = Host {
            name,
            labels: known,
            taints: taints
                .into_iter()
                .filter(|taint| taint.effect != taint::PREFER_NO_SCHEDULE)
                .collect(),
            domains,
        };
        self.hosts
            .set(machine, is_open, &self.table.vector(&amounts), host);
        self.room += 1;
        self.changes += 1;
    }

    /// A node is gone, with its pods.
    pub(crate) fn remove_node(&mut self, machine: u32) {
        self.hosts.remove(machine);
        self.room += 1;
        self.changes += 1;
    }

    /// A pod of this shape is on a node now.
    pub(crate) fn bind(&mut self, shape: usize, machine: u32) {
        self.count(shape, machine, 1, |_| true);
        if let Some(place) = self.hosts.place(machine) {
            self.hosts.change(place, &self.shapes[shape].requests, 1);
        }
        self.changes += 1;
    }

    /// A pod of this shape on a node terminates: spreads do not count it any more.
    pub(crate) fn stop(&mut self, shape: usize, machine: u32) {
        self.count(shape, machine, -1, |rule| rule.terms.is_spread);
        self.room += 1;
        self.changes += 1;
    }

    /// A pod of this shape has left a node.
    pub(crate) fn release(&mut self, shape: usize, machine: u32, was_stopping: bool) {
        self.count(shape, machine, -1, |rule| !(rule.terms.is_spread && was_stopping));
        if let Some(place) = self.hosts.place(machine) {
            self.hosts.change(place, &self.shapes[shape].requests, -1);
        }
        self.room += 1;
        self.changes += 1;
    }

    fn count(&mut self, shape: usize, machine: u32, by: i64, concerns: impl Fn(&Rule) -> bool) {
        let Some(place) = self.hosts.place(machine) else {
            return;
        };
        let host = self.hosts.host(place);
        let shape = &self.shapes[shape];
        for rule in &shape.counted_by {
            let rule = &mut self.rules.all[*rule];
            if let Some(domain) = host.domains[rule.terms.key].filter(|_| concerns(rule)) {
                *rule.counts.entry(domain).or_default() += by;
            }
        }
        for rule in shape.anti_affinity.iter() {
            let rule = &mut self.rules.all[*rule];
            if let Some(domain) = host.domains[rule.terms.key].filter(|_| concerns(rule)) {
                *rule.holders.entry(domain).or_default() += by;
            }
        }
        if !shape.spreads.is_empty() || !shape.counted_by.is_empty() {
            // More pods in the emptiest domain can open the others.
            self.room += 1;
        }
    }

    /// The share of a node that is requested, of the resource of which most is, in thousandths; at most 1,000.
    pub(crate) fn share_thousandths(&self, machine: u32) -> u64 {
        let Some(place) = self.hosts.place(machine) else {
            return 0;
        };
        let pairs = self.hosts.used(place).iter().zip(self.hosts.allocatable(place));
        let shares = pairs.filter(|(_, total)| **total > 0).map(|(used, total)| {
            let share = i128::from(*used) * 1_000 / i128::from(*total);
            u64::try_from(share.clamp(0, 1_000)).unwrap_or(0)
        });
        shares.max().unwrap_or(0)
    }

    /// Whether a DaemonSet of this shape has a pod on this node, whatever is free.
    pub(crate) fn suits(&mut self, shape: usize, machine: u32) -> bool {
        let constraints = &self.shapes[shape].constraints;
        let place = self.hosts.place(machine);
        place.is_some_and(|place| {
            let suits = self.hosts.suits(shape, place, |host| suits(constraints, host));
            suits == Suits::Yes
        })
    }

    /// Counts every change of what a refusal of the scheduler depends on.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Why a pod of this shape fits nowhere: how many nodes refuse it for each reason, as the scheduler writes it on the pod.
    pub(crate) fn refusals(&mut self, index: usize) -> Refusals {
        let least = self.least_of_spreads(index);
        let Scheduler {
            shapes, rules, hosts, ..
        } = self;
        let shape = &shapes[index];
        let mut refusals = Refusals::default();
        for place in (0..hosts.count()).filter(|place| hosts.is_there(*place)) {
            let host = hosts.host(place);
            let untolerated = taint::first_untolerated(&host.taints, &shape.constraints.tolerations);
            let (used, allocatable) = (hosts.used(place), hosts.allocatable(place));
            let lacks = || {
                let mut amounts = self.by_name.iter().copied();
                amounts.find(|at| {
                    let wanted = shape.requests.0[*at];
                    wanted > 0 && wanted.saturating_add(used[*at]) > allocatable[*at]
                })
            };
            refusals.add(if let Some(taint) = untolerated {
                Why::Taint(taint.key.clone(), taint.value.clone().unwrap_or_default())
            } else if !hosts.is_open(place) {
                Why::NotReady
            } else if suits(&shape.constraints, host) != Suits::Yes {
                Why::Unselected
            } else if let Some(resource) = lacks() {
                Why::Insufficient(resource)
            } else if spread_score(shape, rules, host, &least).is_none() {
                Why::Spread
            } else {
                Why::Neighbours
            });
        }
        refusals
    }

    /// By spread of a shape, the pods of each domain that it weighs against the others: those of nodes that the pod may select, ready or not.
    fn least_of_spreads(&mut self, index: usize) -> Vec<BTreeMap<u32, i64>> {
        let Scheduler {
            shapes, rules, hosts, ..
        } = self;
        let shape = &shapes[index];
        let mut least: Vec<BTreeMap<u32, i64>> = vec![BTreeMap::new(); shape.spreads.len()];
        if least.is_empty() {
            return least;
        }
        for place in 0..hosts.count() {
            if !hosts.is_there(place)
                || hosts.suits(index, place, |host| suits(&shape.constraints, host)) == Suits::No
            {
                continue;
            }
            for (position, rule) in shape.spreads.iter().enumerate() {
                let rule = &rules.all[*rule];
                if let Some(domain) = hosts.host(place).domains[rule.terms.key] {
                    let count = rule.counts.get(&domain).copied().unwrap_or(0);
                    least[position].insert(domain, count);
                }
            }
        }
        least
    }

    /// The node for a pod of this shape; `None` when it fits nowhere now.
    pub(crate) fn choose(&mut self, shape: usize) -> Option<u32> {
        if self.shapes[shape].refused_at == Some(self.room) {
            return None;
        }
        let found = self.search(shape);
        self.shapes[shape].refused_at = found.is_none().then_some(self.room);
        found
    }

    /// The best node, of equal ones the first by name.
    fn search(&mut self, index: usize) -> Option<u32> {
        let least = self.least_of_spreads(index);
        let Scheduler {
            shapes, rules, hosts, ..
        } = self;
        let shape = &shapes[index];
        let mut best: Option<(i64, usize)> = None;
        for place in 0..hosts.count() {
            let suits = |host: &Host| suits(&shape.constraints, host);
            if !hosts.is_open(place) || hosts.suits(index, place, suits) != Suits::Yes {
                continue;
            }
            let (used, allocatable) = (hosts.used(place), hosts.allocatable(place));
            if !has_room(shape, used, allocatable) {
                continue;
            }
            let host = hosts.host(place);
            let Some(spread) = spread_score(shape, rules, host, &least) else {
                continue;
            };
            if !is_welcome(shape, rules, host) {
                continue;
            }
            let score = score(self.scoring, shape, used, allocatable) + SPREAD_WEIGHT * spread;
            let is_better = best.is_none_or(|(known, other)| {
                score > known || (score == known && host.name < hosts.host(other).name)
            });
            if is_better {
                best = Some((score, place));
            }
        }
        best.map(|(_, place)| hosts.machine(place))
    }
}

/// Positions of resources, by name.
fn by_name(table: &ResourceTable) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..table.width()).collect();
    positions.sort_by_key(|at| table.name(*at).to_owned());
    positions
}

/// Selectors, affinity and taints.
fn suits(constraints: &Constraints, host: &Host) -> Suits {
    let selected = host.labels.satisfy(&constraints.node_selector);
    let terms = &constraints.required_terms;
    let wanted = terms.is_empty() || terms.iter().any(|term| host.labels.satisfy(term));
    let tolerates = taint::first_untolerated(&host.taints, &constraints.tolerations).is_none();
    match (selected && wanted, tolerates) {
        (false, _) => Suits::No,
        (true, false) => Suits::Tainted,
        (true, true) => Suits::Yes,
    }
}

fn has_room(shape: &Shape, used: &[i64], allocatable: &[i64]) -> bool {
    let amounts = shape.requests.0.iter().zip(used.iter().zip(allocatable));
    let mut amounts = amounts.filter(|(wanted, _)| **wanted > 0);
    amounts.all(|(wanted, (used, total))| wanted.saturating_add(*used) <= *total)
}

/// How well a node serves the spreads of a pod, from 0 to 100; `None` when it breaks one.
fn spread_score(shape: &Shape, rules: &Rules, host: &Host, least: &[BTreeMap<u32, i64>]) -> Option<i64> {
    let mut sum = 0;
    let mut soft = 0;
    for (position, rule) in shape.spreads.iter().enumerate() {
        let rule = &rules.all[*rule];
        let known = &least[position];
        let Some(domain) = host.domains[rule.terms.key] else {
            if rule.terms.required {
                return None;
            }
            continue;
        };
        let here = known.get(&domain).copied().unwrap_or(0);
        if rule.terms.required {
            let fewest = known.values().copied().min().unwrap_or(0);
            let fewest = if known.len() < rule.terms.min_domains {
                0
            } else {
                fewest
            };
            if here + i64::from(rule.terms.is_own) - fewest > rule.terms.max_skew {
                return None;
            }
        } else {
            let most = known.values().copied().max().unwrap_or(0);
            soft += 1;
            sum += if most == 0 {
                100
            } else {
                100 * (most - here) / most
            };
        }
    }
    Some(if soft == 0 { 0 } else { sum / soft })
}

/// Required pod affinity and anti-affinity, the anti-affinity of pods that run included.
fn is_welcome(shape: &Shape, rules: &Rules, host: &Host) -> bool {
    let at = |map: &FxHashMap<u32, i64>, rule: &Rule| {
        let domain = host.domains[rule.terms.key];
        domain.map(|domain| map.get(&domain).copied().unwrap_or(0))
    };
    let repels = shape.anti_affinity.iter().any(|rule| {
        let rule = &rules.all[*rule];
        at(&rule.counts, rule).is_some_and(|count| count > 0)
    });
    let is_repelled = shape.counted_by.iter().any(|rule| {
        let rule = &rules.all[*rule];
        at(&rule.holders, rule).is_some_and(|count| count > 0)
    });
    // The first of a group that looks for itself may go anywhere.
    let is_first = || {
        shape.affinity.iter().all(|rule| {
            let rule = &rules.all[*rule];
            rule.terms.is_own && rule.counts.values().all(|count| *count <= 0)
        })
    };
    let is_near = shape.affinity.iter().all(|rule| {
        let rule = &rules.all[*rule];
        at(&rule.counts, rule).is_some_and(|count| count > 0 || is_first())
    });
    !repels && !is_repelled && is_near
}

/// `NodeResourcesFit`: the mean over CPU and memory of the share that is left, or is used, after placing the pod; from 0 to 100.
fn score(scoring: Scoring, shape: &Shape, used: &[i64], allocatable: &[i64]) -> i64 {
    let of = |index: usize| {
        let total = allocatable[index];
        if total <= 0 {
            return 0;
        }
        let used = used[index].saturating_add(shape.requests[index]).min(total);
        let counted = match scoring {
            Scoring::LeastAllocated => total - used,
            Scoring::MostAllocated => used,
        };
        // Amounts so large that a hundred times as much is no number of 64 bits are rare, and dividing others is dear.
        counted.checked_mul(100).map_or_else(
            || i64::try_from(i128::from(counted) * 100 / i128::from(total)).unwrap_or(0),
            |hundredfold| hundredfold / total,
        )
    };
    (of(CPU) + of(MEMORY)) / 2
}
