//! An independent check of the event log: replays it with nothing but the scenario, and says which promises it breaks.
//!
//! It shares no code with the engine and reads no decision: only what happened to pods, nodes and money.

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_model::{InstanceType, Resources, pod};
use spokeshave_scenario::{Budget, Change, OwnerKind, Timeline};
use spokeshave_simulate::{Run, World};

/// A line of the log, owned.
pub struct Entry {
    pub at_ms: u64,
    pub what: String,
    pub of: String,
    pub more: String,
}

struct Node {
    allocatable: Resources,
    price_nanos: u128,
    launched_ms: u64,
    ended_ms: Option<u64>,
    is_ready: bool,
    pods: BTreeSet<String>,
}

#[derive(Default)]
struct Pod {
    owner: usize,
    node: Option<String>,
    is_ready: bool,
    is_stopping: bool,
}

struct Command {
    nodes: Vec<String>,
    replacements: Vec<String>,
    may_evict: bool,
    is_over: bool,
}

/// What a whole log is checked against.
pub struct Checker<'a> {
    world: &'a World,
    timeline: &'a Timeline,
    types: BTreeMap<&'a str, &'a InstanceType>,
    requests: Vec<Resources>,
    /// The most nodes of the only NodePool that may be disrupted at once, of so many.
    budget: fn(usize) -> usize,
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<String, Pod>,
    commands: BTreeMap<String, Command>,
    claims: BTreeSet<String>,
    problems: Vec<String>,
    cursor: usize,
    replicas: Vec<u32>,
}

impl<'a> Checker<'a> {
    pub fn new(world: &'a World, timeline: &'a Timeline, budget: fn(usize) -> usize) -> Self {
        let requests = timeline.owners.iter().map(|owner| {
            let spec = owner.template.spec.clone().unwrap_or_default();
            pod::requests_of_template(&spec)
        });
        Checker {
            world,
            timeline,
            types: world
                .instance_types
                .iter()
                .map(|one| (one.name.as_str(), one))
                .collect(),
            requests: requests.collect(),
            budget,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            commands: BTreeMap::new(),
            claims: BTreeSet::new(),
            problems: Vec::new(),
            cursor: 0,
            replicas: vec![0; timeline.owners.len()],
        }
    }

    /// Replays a log; the promises it breaks.
    pub fn check(mut self, log: &[Entry], run: &Run) -> Vec<String> {
        let mut last = 0;
        for entry in log {
            if entry.at_ms < last {
                self.problem(entry, "time goes backwards");
            }
            last = entry.at_ms;
            self.follow_timeline(entry.at_ms);
            self.take(entry);
        }
        self.follow_timeline(self.world.duration_ms);
        self.at_the_end(run);
        self.problems
    }

    fn follow_timeline(&mut self, now_ms: u64) {
        while let Some(event) = self
            .timeline
            .events
            .get(self.cursor)
            .filter(|event| event.at_ms <= now_ms)
        {
            self.cursor += 1;
            if let Change::Replicas(count) = event.change {
                self.replicas[event.owner.0 as usize] = count;
            }
        }
    }

    fn problem(&mut self, entry: &Entry, text: &str) {
        self.problems
            .push(format!("{} ms: {} {}: {text}", entry.at_ms, entry.what, entry.of));
    }

    fn take(&mut self, entry: &Entry) {
        match entry.what.as_str() {
            "nodeclaim" => {
                if !self.claims.insert(entry.of.clone()) {
                    self.problem(entry, "a second NodeClaim of this name");
                }
            }
            "launched" => self.launched(entry),
            "ready" => {
                if let Some(node) = self.nodes.get_mut(&entry.of) {
                    node.is_ready = true;
                }
            }
            "ended" => self.ended(entry),
            "born" => self.born(entry),
            "bound" => self.bound(entry),
            "started" => {
                if let Some(pod) = self.pods.get_mut(&entry.of) {
                    pod.is_ready = true;
                }
            }
            "stopping" => {
                if let Some(pod) = self.pods.get_mut(&entry.of) {
                    pod.is_stopping = true;
                    pod.is_ready = false;
                }
            }
            "left" => self.left(entry),
            "evicted" => self.evicted(entry),
            "command" => self.command(entry),
            "phase" => self.phase(entry),
            _ => {}
        }
    }

    fn launched(&mut self, entry: &Entry) {
        let mut words = entry.more.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let (name, capacity_type, said, zone) = (word(), word(), word(), word());
        let Some(instance_type) = self.types.get(name).copied() else {
            self.problem(entry, "an instance type that is not for sale");
            return;
        };
        // What an instance costs is what its offering says; the log is what is checked.
        let Some(price) = instance_type.price_of(zone, capacity_type) else {
            self.problem(entry, "an offering that is not for sale");
            return;
        };
        if said != price.to_string() {
            self.problem(entry, &format!("its offering costs {price}"));
        }
        let node = Node {
            allocatable: instance_type.allocatable(),
            price_nanos: u128::try_from(price.0).unwrap(),
            launched_ms: entry.at_ms,
            ended_ms: None,
            is_ready: false,
            pods: BTreeSet::new(),
        };
        if !self.claims.contains(&entry.of) {
            self.problem(entry, "nobody asked for it");
        }
        if self.nodes.insert(entry.of.clone(), node).is_some() {
            self.problem(entry, "launched twice");
        }
    }

    fn ended(&mut self, entry: &Entry) {
        if let Some(node) = self.nodes.get_mut(&entry.of) {
            node.ended_ms = Some(entry.at_ms);
            node.is_ready = false;
        }
    }

    fn born(&mut self, entry: &Entry) {
        let (namespace, name) = entry.of.split_once('/').unwrap_or_default();
        let owner = name.rsplit_once('-').map_or("", |(owner, _)| owner);
        let mut owners = self.timeline.owners.iter();
        let position = owners.position(|one| one.namespace == namespace && one.name == owner);
        let Some(owner) = position else {
            self.problem(entry, "no owner has such a pod");
            return;
        };
        let pod = Pod {
            owner,
            ..Pod::default()
        };
        if self.pods.insert(entry.of.clone(), pod).is_some() {
            self.problem(entry, "a pod of this name is there");
        }
    }

    fn bound(&mut self, entry: &Entry) {
        let Some(pod) = self.pods.get_mut(&entry.of) else {
            self.problem(entry, "no such pod");
            return;
        };
        let owner = pod.owner;
        let is_second = pod.node.replace(entry.more.clone()).is_some();
        let Some(node) = self.nodes.get_mut(&entry.more) else {
            self.problem(entry, "no such node");
            return;
        };
        node.pods.insert(entry.of.clone());
        let mut sum = Resources::new();
        for key in &node.pods {
            sum.add(&self.requests[self.pods[key].owner]);
        }
        let fits = sum.fits(&node.allocatable);
        let is_ready = node.is_ready;
        let doomed = self
            .commands
            .values()
            .any(|command| command.may_evict && !command.is_over && command.nodes.contains(&entry.more));
        if is_second {
            self.problem(entry, "bound twice");
        }
        if !is_ready {
            self.problem(entry, "its node is not ready");
        }
        if !fits {
            self.problem(entry, "its node is overfull");
        }
        if doomed {
            self.problem(entry, "its node is being drained");
        }
        debug_assert!(owner < self.requests.len());
    }

    fn left(&mut self, entry: &Entry) {
        let Some(pod) = self.pods.remove(&entry.of) else {
            self.problem(entry, "no such pod");
            return;
        };
        if let Some(node) = pod.node.and_then(|node| self.nodes.get_mut(&node)) {
            node.pods.remove(&entry.of);
        }
    }

    fn evicted(&mut self, entry: &Entry) {
        let Some(pod) = self.pods.get(&entry.of) else {
            // DaemonSets' pods are drained too, and belong to no workload.
            return;
        };
        let (index, is_ready) = (pod.owner, pod.is_ready);
        let node = pod.node.clone().unwrap_or_default();
        let is_voluntary = entry.more != "Forceful Termination" && !entry.more.is_empty();
        let owner = &self.timeline.owners[index];
        if let (Some(budget), true) = (&owner.budget, is_ready) {
            let expected = match owner.kind {
                OwnerKind::Deployment | OwnerKind::StatefulSet => self.replicas[index] as usize,
                _ => self
                    .pods
                    .values()
                    .filter(|one| one.owner == index && !one.is_stopping)
                    .count(),
            };
            let share = |text: &str| match text.strip_suffix('%') {
                Some(percent) => (expected * percent.parse::<usize>().unwrap()).div_ceil(100),
                None => text.parse().unwrap(),
            };
            let least = match budget {
                Budget::MaxUnavailable(most) => expected.saturating_sub(share(most)),
                Budget::MinAvailable(least) => share(least),
            };
            let ready = self
                .pods
                .values()
                .filter(|one| one.owner == index && one.is_ready)
                .count();
            if ready < 1 + least {
                self.problem(entry, "its PodDisruptionBudget does not allow it");
            }
        }
        let metadata = owner.template.metadata.as_ref();
        let annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
        let is_protected = annotations.is_some_and(|all| all.contains_key("karpenter.sh/do-not-disrupt"));
        if is_voluntary && is_protected {
            self.problem(entry, "it must not be disrupted");
        }
        let is_ordered = self
            .commands
            .values()
            .any(|command| command.may_evict && command.nodes.contains(&node));
        if is_voluntary && !is_ordered {
            self.problem(entry, "no command has deleted its node");
        }
    }

    fn command(&mut self, entry: &Entry) {
        let list = |field: &str| -> Vec<String> {
            let mut words = entry.more.split(' ');
            let found = words.find_map(|word| word.strip_prefix(field));
            let names = found
                .unwrap_or_default()
                .split(',')
                .filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        };
        let command = Command {
            nodes: list("nodes="),
            replacements: list("replacements="),
            may_evict: false,
            is_over: false,
        };
        let is_double = command.nodes.iter().any(|node| {
            let mut others = self.commands.values();
            others.any(|other| !other.is_over && other.nodes.contains(node))
        });
        if is_double {
            self.problem(entry, "a node is in two commands");
        }
        self.commands.insert(entry.of.clone(), command);
        let under_way: BTreeSet<&String> = self
            .commands
            .values()
            .filter(|command| !command.is_over)
            .flat_map(|command| command.nodes.iter().map(move |node| (command, node)))
            .filter(|(command, node)| self.counts(command, node))
            .map(|(_, node)| node)
            .collect();
        let alive = self.nodes.values().filter(|node| node.ended_ms.is_none()).count();
        let most = (self.budget)(alive);
        if under_way.len() > most {
            let text = format!("{} of {alive} nodes are disrupted at once", under_way.len());
            self.problem(entry, &text);
        }
    }

    /// Whether budgets count a node of a command: not once it is empty and its instance ends (D-201).
    fn counts(&self, command: &Command, node: &str) -> bool {
        let ends = |node: &Node| command.may_evict && node.pods.is_empty();
        let there = self.nodes.get(node).filter(|node| node.ended_ms.is_none());
        there.is_some_and(|node| !ends(node))
    }

    fn phase(&mut self, entry: &Entry) {
        let Some(command) = self.commands.get_mut(&entry.of) else {
            return;
        };
        match entry.more.as_str() {
            "Deleting" => {
                let missing = command.replacements.iter().any(|name| {
                    let node = self.nodes.get(name);
                    node.is_none_or(|node| !node.is_ready)
                });
                if missing {
                    self.problem(entry, "a replacement is not ready");
                }
            }
            "Draining" => command.may_evict = true,
            "Succeeded" | "RolledBack" => command.is_over = true,
            _ => {}
        }
    }

    fn at_the_end(&mut self, run: &Run) {
        let (from, to) = (self.world.warmup_ms, self.world.duration_ms);
        let mut sum: u128 = 0;
        let mut node_ms: u128 = 0;
        for (name, node) in &self.nodes {
            let ended = node.ended_ms.unwrap_or(to);
            let lived = u128::from(ended.max(from) - node.launched_ms.max(from));
            sum += node.price_nanos * lived;
            node_ms += lived;
            if node.ended_ms.is_some() && !node.pods.is_empty() {
                self.problems.push(format!("{name} has ended with pods on it"));
            }
        }
        let measured = &run.measured;
        let micros = u64::try_from(sum / 3_600_000 / 1_000).unwrap();
        let said = measured.cost_on_demand_micros + measured.cost_spot_micros + measured.cost_reserved_micros;
        // On demand and spot are rounded down each for itself.
        if said.abs_diff(micros) > 2 {
            self.problems.push(format!(
                "instances cost {micros} micro-dollars, the run says {said}"
            ));
        }
        if measured.bound_micros > said {
            let bound = measured.bound_micros;
            self.problems.push(format!(
                "the lower bound of {bound} micro-dollars is above the cost of {said}"
            ));
        }
        if measured.node_ms != node_ms {
            self.problems.push(format!(
                "nodes lived {node_ms} ms, the run says {}",
                measured.node_ms
            ));
        }
        for (index, owner) in self.timeline.owners.iter().enumerate() {
            let there = self
                .pods
                .values()
                .filter(|pod| pod.owner == index && !pod.is_stopping)
                .count();
            let is_counted = matches!(owner.kind, OwnerKind::Deployment | OwnerKind::StatefulSet);
            let stopping = self
                .pods
                .values()
                .any(|pod| pod.owner == index && pod.is_stopping);
            if is_counted && !stopping && there != self.replicas[index] as usize {
                self.problems.push(format!(
                    "{} has {there} pods and wants {}",
                    owner.name, self.replicas[index]
                ));
            }
        }
    }
}
