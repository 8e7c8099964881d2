//! The life of a cluster, replayed from its log: what there is of nodes, pods and commands before each line.
//!
//! Owns the reading of lines. It judges nothing but whether a line is about something that is there.

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_model::InstanceType;
use spokeshave_scenario::{Change, OwnerKind};

use super::report::Entry;
use super::worlds::{
    DAEMON_MEMORY_MIB, DAEMON_MILLICORES, POD_MEMORY_MIB, Pool, Rule, SECOND, Scene, Workload,
};

/// Thousandths of cores, bytes, pods.
pub type Amounts = [i64; 3];

const MIB: i64 = 1 << 20;

/// Whether there is so much room.
pub fn fits(wanted: &Amounts, room: &Amounts) -> bool {
    wanted.iter().zip(room).all(|(wanted, room)| wanted <= room)
}

/// Takes so much more.
fn add(used: &mut Amounts, amounts: Amounts) {
    for (used, amount) in used.iter_mut().zip(amounts) {
        *used += amount;
    }
}

/// What a pod takes.
pub fn requests(workload: &Workload) -> Amounts {
    [workload.millicores, POD_MEMORY_MIB * MIB, 1]
}

/// What pods of workloads may take of an instance.
pub fn room(scene: &Scene, instance_type: &InstanceType) -> Amounts {
    let allocatable = instance_type.allocatable();
    let daemons = i64::from(scene.has_daemons);
    [
        allocatable.get("cpu") - daemons * DAEMON_MILLICORES,
        allocatable.get("memory") - daemons * DAEMON_MEMORY_MIB * MIB,
        allocatable.get("pods") - daemons,
    ]
}

/// Whether a workload selects a place, whatever taints are there.
pub fn selects(workload: &Workload, pool: &Pool, zone: &str) -> bool {
    let is_zone = match workload.rule {
        Rule::Zone(wanted) => wanted == zone,
        _ => true,
    };
    is_zone && (pool.is_batch || !workload.is_batch)
}

/// Whether pods of a workload may be in a place: they select it and tolerate its taint.
pub fn may_be(workload: &Workload, pool: &Pool, zone: &str) -> bool {
    selects(workload, pool, zone) && pool.is_batch == workload.is_batch
}

/// Times of objects are in whole seconds.
pub fn whole_seconds(milliseconds: u64) -> u64 {
    milliseconds / SECOND * SECOND
}

/// An instance with its node.
pub struct Node<'a> {
    pub pool: &'a Pool,
    pub instance_type: &'a InstanceType,
    pub price_nanos: i64,
    pub capacity_type: String,
    pub zone: String,
    /// What pods of workloads may take of it.
    pub room: Amounts,
    pub asked_ms: u64,
    pub launched_ms: u64,
    pub joined_ms: Option<u64>,
    pub ready_ms: Option<u64>,
    /// When its NodeClaim was deleted.
    pub going_ms: Option<u64>,
    /// When its age or its cloud took it.
    pub forced_ms: Option<u64>,
    /// When its cloud announced to take it back, before anything else took it.
    pub interrupted_ms: Option<u64>,
    pub ended_ms: Option<u64>,
    pub gone_ms: Option<u64>,
    /// Since when it has had no pods, while it has none.
    pub empty_ms: u64,
    /// When it became ready, and whenever a pod came, began to stop or ended.
    pub disturbed_ms: Vec<u64>,
    pub pods: BTreeSet<String>,
}

impl Node<'_> {
    /// Its Node is in the cluster.
    pub fn is_there(&self) -> bool {
        self.joined_ms.is_some() && self.ended_ms.is_none()
    }

    pub fn is_ready(&self) -> bool {
        self.ready_ms.is_some() && self.ended_ms.is_none()
    }
}

/// A pod of a workload.
#[derive(Default)]
pub struct Pod {
    pub workload: usize,
    pub node: Option<String>,
    pub born_ms: u64,
    pub bound_ms: u64,
    pub is_ready: bool,
    pub is_stopping: bool,
}

/// A NodeClaim.
pub struct Claim<'a> {
    pub pool: &'a Pool,
    /// The command that it is for; empty if it is for pods.
    pub command: String,
    pub asked_ms: u64,
    /// Workloads of which pods needed a node then, with the zone of their volumes.
    pub wanted: BTreeSet<(usize, Option<String>)>,
    /// Nodes that were on their way out then.
    pub leaving: BTreeSet<String>,
    pub gone_ms: Option<u64>,
}

/// A command.
#[derive(Default)]
pub struct Command {
    pub method: String,
    pub nodes: Vec<String>,
    pub replacements: Vec<String>,
    pub savings: String,
    pub begun_ms: u64,
    /// When all of its nodes were tainted.
    pub tainted_ms: Option<u64>,
    /// Its nodes were deleted.
    pub has_deleted: bool,
    pub over_ms: Option<u64>,
    pub is_rolled_back: bool,
}

impl Command {
    pub fn read(entry: &Entry) -> Self {
        let mut words = entry.more.split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let mut field = |name: &str| {
            let word = words.next().unwrap_or_default();
            word.strip_prefix(name).unwrap_or_default().to_owned()
        };
        let names = |text: String| {
            let names = text.split(',').filter(|name| !name.is_empty());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        Command {
            method,
            nodes: names(field("nodes=")),
            replacements: names(field("replacements=")),
            savings: field("savings="),
            begun_ms: entry.at_ms,
            ..Command::default()
        }
    }

    /// The reason that stands for its method in budgets and evictions.
    pub fn reason(&self) -> &str {
        match self.method.as_str() {
            "Emptiness" => "Empty",
            "Expiry" | "StaticExpiry" => "Expired",
            "Drift" | "StaticDrift" => "Drifted",
            _ => "Underutilized",
        }
    }

    /// Nodes go for what they are, and not for what they cost.
    pub fn is_maintenance(&self) -> bool {
        matches!(self.reason(), "Expired" | "Drifted")
    }
}

/// What there is.
pub struct State<'a> {
    pub scene: &'a Scene,
    pub now_ms: u64,
    pub nodes: BTreeMap<String, Node<'a>>,
    pub pods: BTreeMap<String, Pod>,
    pub claims: BTreeMap<String, Claim<'a>>,
    pub commands: BTreeMap<String, Command>,
    /// In which zone the volumes of a pod are, by its name.
    pub volumes: BTreeMap<String, String>,
    /// How many pods each workload wants.
    pub replicas: Vec<u32>,
    /// Commands that have begun since something else than a command has changed anything, and the most nodes that there were.
    pub commands_since: usize,
    pub most_nodes: usize,
    /// Pods of Jobs that were evicted and have come again since, by workload and number: a Job waits longer and longer before it makes them, and the room that was
    /// kept for them may be given up by then.
    pub returned_since: BTreeSet<(usize, String)>,
    /// What the timeline has yet to do.
    events: Vec<(u64, usize, Option<u32>)>,
    cursor: usize,
}

impl<'a> State<'a> {
    pub fn new(scene: &'a Scene) -> Self {
        let workloads = scene.workloads.iter().enumerate();
        let mut events: Vec<(u64, usize, Option<u32>)> = workloads
            .flat_map(|(index, workload)| {
                let events = workload.events.iter();
                events.map(move |(at_ms, change)| match change {
                    Change::Replicas(count) => (*at_ms, index, Some(*count)),
                    _ => (*at_ms, index, None),
                })
            })
            .collect();
        events.sort_by_key(|event| event.0);
        State {
            scene,
            now_ms: 0,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            commands: BTreeMap::new(),
            volumes: BTreeMap::new(),
            replicas: vec![0; scene.workloads.len()],
            commands_since: 0,
            most_nodes: 0,
            returned_since: BTreeSet::new(),
            events,
            cursor: 0,
        }
    }

    /// Time passes, and workloads want what they want by then. False when it goes backwards.
    pub fn advance(&mut self, now_ms: u64) -> bool {
        let is_forward = self.now_ms <= now_ms;
        self.now_ms = now_ms;
        while let Some((_, workload, replicas)) = self.due() {
            self.cursor += 1;
            if let Some(replicas) = replicas {
                self.replicas[workload] = replicas;
            }
            self.changes();
        }
        is_forward
    }

    /// The next event of the timeline, if it is due.
    fn due(&self) -> Option<(u64, usize, Option<u32>)> {
        let next = self.events.get(self.cursor).copied();
        next.filter(|(at_ms, ..)| *at_ms <= self.now_ms)
    }

    /// Something else than a command has changed something.
    fn changes(&mut self) {
        self.commands_since = 0;
        self.returned_since.clear();
        self.most_nodes = self.alive().count();
    }

    /// Nodes whose instance has not ended, by name.
    pub fn alive(&self) -> impl Iterator<Item = (&String, &Node<'a>)> {
        self.nodes.iter().filter(|(_, node)| node.ended_ms.is_none())
    }

    pub fn workload(&self, pod: &Pod) -> &'a Workload {
        &self.scene.workloads[pod.workload]
    }

    /// Pods on a node, be it that they stop.
    pub fn pods_on<'s>(&'s self, node: &'s Node<'a>) -> impl Iterator<Item = (&'s String, &'s Pod)> {
        let pods = node.pods.iter();
        pods.filter_map(move |name| Some((name, self.pods.get(name)?)))
    }

    /// Pods on a node that stay there as far as their workloads are concerned.
    pub fn staying<'s>(&'s self, node: &'s Node<'a>) -> impl Iterator<Item = (&'s String, &'s Pod)> {
        self.pods_on(node).filter(|(_, pod)| !pod.is_stopping)
    }

    /// What pods take of a node.
    pub fn used(&self, node: &Node<'a>) -> Amounts {
        let mut used = [0; 3];
        for (_, pod) in self.pods_on(node) {
            add(&mut used, requests(self.workload(pod)));
        }
        used
    }

    /// Whether one more pod of a workload has room on a node.
    pub fn has_room(&self, workload: &Workload, node: &Node<'a>) -> bool {
        let mut after = self.used(node);
        add(&mut after, requests(workload));
        fits(&after, &node.room)
    }

    /// Commands that are not over.
    pub fn under_way(&self) -> impl Iterator<Item = &Command> {
        self.commands.values().filter(|command| command.over_ms.is_none())
    }

    /// The command under way that takes a node.
    pub fn command_of(&self, node: &str) -> Option<&Command> {
        self.under_way()
            .find(|command| command.nodes.iter().any(|one| one == node))
    }

    /// Whether a node is on its way out, or about to be.
    pub fn is_leaving(&self, name: &str, node: &Node<'_>) -> bool {
        node.going_ms.is_some() || self.command_of(name).is_some()
    }

    /// Whether a pod is on a node that stays.
    pub fn has_place(&self, pod: &Pod) -> bool {
        let node = pod.node.as_ref();
        let there = node.and_then(|name| Some((name, self.nodes.get(name)?)));
        there.is_some_and(|(name, node)| !self.is_leaving(name, node))
    }

    /// The NodePool of a NodeClaim, by its name.
    fn pool_of(&self, claim: &str) -> Option<&'a Pool> {
        let (pool, _) = claim.rsplit_once('-')?;
        self.scene.pools.iter().find(|one| one.name == pool)
    }

    /// Workloads of which pods have no node, or one that goes; a pod of a StatefulSet that stops comes back.
    fn wanted(&self) -> BTreeSet<(usize, Option<String>)> {
        let comes_back = |pod: &Pod| self.workload(pod).kind == OwnerKind::StatefulSet;
        let pods = self.pods.iter();
        let pods = pods.filter(|&(_, pod)| (!pod.is_stopping || comes_back(pod)) && !self.has_place(pod));
        pods.map(|(name, pod)| (pod.workload, self.volumes.get(name).cloned()))
            .collect()
    }

    /// Takes a line in. False when it is about nothing that there is.
    pub fn take(&mut self, entry: &Entry) -> bool {
        let now_ms = entry.at_ms;
        let name = entry.of.as_str();
        match entry.what.as_str() {
            "nodeclaim" => self.asked(entry),
            "launched" => self.launched(entry),
            "joined" => self.with_node(name, |node| node.joined_ms = Some(now_ms)),
            "ready" => self.with_node(name, |node| {
                node.ready_ms = Some(now_ms);
                node.empty_ms = now_ms;
                node.disturbed_ms.push(now_ms);
            }),
            "expired" | "interrupted" => self.forced(entry),
            "ended" => self.with_node(name, |node| node.ended_ms = Some(now_ms)),
            "gone" => {
                self.with_node(name, |node| node.gone_ms = Some(now_ms));
                let claim = self.claims.get_mut(name);
                claim.map(|claim| claim.gone_ms = Some(now_ms)).is_some()
            }
            "refused" => {
                self.changes();
                self.claims.contains_key(name)
            }
            "born" => self.born(entry),
            "bound" => self.bound(entry),
            "started" => self.with_pod(name, |pod| pod.is_ready = true),
            "stopping" => self.stopping(entry),
            "left" => self.left(entry),
            // Pods of DaemonSets belong to no workload.
            "evicted" => self.pods.contains_key(name) || name.starts_with("kube-system/"),
            "killed" => self.pods.contains_key(name),
            "command" => {
                let command = Command::read(entry);
                self.commands_since += usize::from(!command.is_maintenance());
                self.commands.insert(entry.of.clone(), command).is_none()
            }
            "phase" => self.phase(entry),
            "rolled back" => self.commands.contains_key(name),
            // Such a command was never written.
            "rejected" => true,
            _ => false,
        }
    }

    fn with_node(&mut self, name: &str, change: impl FnOnce(&mut Node<'a>)) -> bool {
        self.nodes.get_mut(name).map(change).is_some()
    }

    fn with_pod(&mut self, name: &str, change: impl FnOnce(&mut Pod)) -> bool {
        self.pods.get_mut(name).map(change).is_some()
    }

    fn asked(&mut self, entry: &Entry) -> bool {
        let Some(pool) = self.pool_of(&entry.of) else {
            return false;
        };
        let leaving = self
            .nodes
            .iter()
            .filter(|(name, node)| self.is_leaving(name, node));
        let claim = Claim {
            pool,
            command: entry.more.clone(),
            asked_ms: entry.at_ms,
            wanted: self.wanted(),
            leaving: leaving.map(|(name, _)| name.clone()).collect(),
            gone_ms: None,
        };
        self.claims.insert(entry.of.clone(), claim).is_none()
    }

    fn launched(&mut self, entry: &Entry) -> bool {
        let words: Vec<&str> = entry.more.split(' ').collect();
        let &[name, capacity_type, _, zone] = words.as_slice() else {
            return false;
        };
        let sold = self.scene.types.iter().find(|one| one.name == name);
        let (Some(instance_type), Some(claim)) = (sold, self.claims.get(&entry.of)) else {
            return false;
        };
        let Some(price) = instance_type.price_of(zone, capacity_type) else {
            return false;
        };
        let node = Node {
            pool: claim.pool,
            instance_type,
            price_nanos: price.0,
            capacity_type: capacity_type.to_owned(),
            zone: zone.to_owned(),
            room: room(self.scene, instance_type),
            asked_ms: claim.asked_ms,
            launched_ms: entry.at_ms,
            joined_ms: None,
            ready_ms: None,
            going_ms: None,
            forced_ms: None,
            interrupted_ms: None,
            ended_ms: None,
            gone_ms: None,
            empty_ms: entry.at_ms,
            disturbed_ms: Vec::new(),
            pods: BTreeSet::new(),
        };
        let is_new = self.nodes.insert(entry.of.clone(), node).is_none();
        self.most_nodes = self.most_nodes.max(self.alive().count());
        is_new
    }

    fn forced(&mut self, entry: &Entry) -> bool {
        self.changes();
        let now_ms = entry.at_ms;
        self.with_node(&entry.of, |node| {
            if entry.what == "interrupted" && node.going_ms.is_none() {
                node.interrupted_ms = Some(now_ms);
            }
            node.going_ms.get_or_insert(now_ms);
            node.forced_ms.get_or_insert(now_ms);
        })
    }

    fn born(&mut self, entry: &Entry) -> bool {
        let name = entry
            .of
            .strip_prefix("shop/")
            .and_then(|name| name.rsplit_once('-'));
        let mut workloads = self.scene.workloads.iter();
        let Some(workload) = name.and_then(|(owner, _)| workloads.position(|one| one.name == owner)) else {
            return false;
        };
        // The pods that a Job makes first have no moment behind their numbers.
        let again = name.and_then(|(_, rest)| rest.split_once('r'));
        let is_job = self.scene.workloads[workload].kind == OwnerKind::Job;
        if let Some((number, _)) = again.filter(|_| is_job) {
            self.returned_since.insert((workload, number.to_owned()));
        }
        let pod = Pod {
            workload,
            born_ms: entry.at_ms,
            ..Pod::default()
        };
        self.pods.insert(entry.of.clone(), pod).is_none()
    }

    fn bound(&mut self, entry: &Entry) -> bool {
        let scene = self.scene;
        let (Some(pod), Some(node)) = (self.pods.get_mut(&entry.of), self.nodes.get_mut(&entry.more)) else {
            return false;
        };
        pod.bound_ms = entry.at_ms;
        node.disturbed_ms.push(entry.at_ms);
        node.pods.insert(entry.of.clone());
        if scene.workloads[pod.workload].has_volumes {
            let zone = || node.zone.clone();
            self.volumes.entry(entry.of.clone()).or_insert_with(zone);
        }
        pod.node.replace(entry.more.clone()).is_none()
    }

    fn stopping(&mut self, entry: &Entry) -> bool {
        let Some(pod) = self.pods.get_mut(&entry.of) else {
            return false;
        };
        (pod.is_stopping, pod.is_ready) = (true, false);
        let node = pod.node.clone().unwrap_or_default();
        self.with_node(&node, |node| node.disturbed_ms.push(entry.at_ms))
    }

    fn left(&mut self, entry: &Entry) -> bool {
        let Some(pod) = self.pods.remove(&entry.of) else {
            return false;
        };
        let Some(name) = pod.node else { return true };
        if !pod.is_stopping {
            // It has come to its end.
            self.changes();
        }
        self.with_node(&name, |node| {
            if !pod.is_stopping {
                node.disturbed_ms.push(entry.at_ms);
            }
            node.pods.remove(&entry.of);
            if node.pods.is_empty() {
                node.empty_ms = entry.at_ms;
            }
        })
    }

    fn phase(&mut self, entry: &Entry) -> bool {
        let command = self.commands.get_mut(&entry.of);
        let Some(command) = command.filter(|command| command.over_ms.is_none()) else {
            return false;
        };
        match entry.more.as_str() {
            "Replacing" | "Deleting" => {
                command.tainted_ms.get_or_insert(entry.at_ms);
            }
            "Draining" => {
                command.has_deleted = true;
                for name in &command.nodes {
                    if let Some(node) = self.nodes.get_mut(name) {
                        node.going_ms.get_or_insert(entry.at_ms);
                    }
                }
            }
            "Succeeded" | "RolledBack" => {
                command.over_ms = Some(entry.at_ms);
                command.is_rolled_back = entry.more == "RolledBack";
            }
            _ => return false,
        }
        true
    }
}
