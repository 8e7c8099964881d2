//! The cluster as the checkers see it: small facts about each object, folded from the writes of the API server.
//!
//! Owns nothing of the controllers' code: every fact is read from the stored JSON, by the meaning that the Kubernetes and Karpenter APIs
//! give it.

mod clouds;
mod launches;
mod machines;
mod names;
mod owners;
mod pods;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use spokeshave_apiserver::Commit;

use spokeshave_cluster::quantities::{self, Amounts};

use self::names::Names;
use self::owners::Owners;

pub(crate) use launches::Settled;
pub(crate) use machines::{Attachment, Claim, Instance, JOINS_WITHIN, Node, Pool, instance_of, tainted};
pub(crate) use pods::{Budget, Pod};

pub(crate) const DISRUPTED: &str = "karpenter.sh/disrupted";
pub(crate) const FINALIZER: &str = "karpenter.sh/termination";
pub(crate) const POOL: &str = "karpenter.sh/nodepool";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
const QUIET_TIME: &str = "spokeshave.dev/quiet-time";
/// On a NodeClaim: the command that it is a replacement of.
const COMMAND: &str = "spokeshave.dev/disruption";
const DEADLINE: &str = "karpenter.sh/nodeclaim-termination-timestamp";
/// The reason of the event of a NodeClaim, and of its Node, that goes because the cloud has said something about its instance (D-282).
const INTERRUPTED: &str = "TerminatingOnInterruption";

/// Namespace and name.
pub(crate) type Key = (String, String);
pub(crate) type Labels = BTreeMap<String, String>;

/// How long the view remembers what has just ceased to be: what a decision that is being carried out could have seen.
pub(crate) const RECENT: Duration = Duration::from_secs(30);

fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    path.iter()
        .fold(value, |value, key| &value[*key])
        .as_str()
        .unwrap_or_default()
}

fn instant(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn labels(value: &Value) -> Labels {
    let pairs = value.as_object().into_iter().flatten();
    pairs
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn amounts(value: &Value) -> Amounts {
    let pairs = value.as_object().into_iter().flatten();
    pairs
        .filter_map(|(key, value)| {
            let quantity =
                k8s_openapi::apimachinery::pkg::api::resource::Quantity(value.as_str()?.to_owned());
            Some((key.clone(), quantities::milli(&quantity)))
        })
        .collect()
}

/// A Go duration of seconds, minutes and hours.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    text.parse::<spokeshave_api::GoDuration>().ok()?.to_std()
}

/// An object before and after a write.
#[derive(Debug, Clone)]
pub(crate) struct Pair<T> {
    pub(crate) before: Option<Arc<T>>,
    pub(crate) after: Option<Arc<T>>,
}

/// A write.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Pod(Pair<Pod>),
    Node(Pair<Node>),
    Claim(Pair<Claim>),
    Instance(Pair<Instance>),
    /// A command of this name was written down.
    Command(String),
    Other,
}

/// Events within it are not counted yet.
pub(crate) const MOMENT: Duration = Duration::from_secs(1);

/// Events travel within so long when nothing is in the way.
pub(crate) const SOON: Duration = Duration::from_secs(2);

/// A DisruptionPolicy.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) name: String,
    pub(crate) spec: Value,
    /// Since when its spec has been so.
    pub(crate) since: Timestamp,
}

/// A decision that was written down: the instant at which a disruption starts (2).
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    /// Which of all that were ever made.
    pub(crate) number: u64,
    /// What for.
    pub(crate) reason: String,
    /// By which method.
    pub(crate) method: String,
    /// UIDs of the NodeClaims that are to go.
    pub(crate) claims: BTreeSet<String>,
    /// When it was written down.
    pub(crate) since: Timestamp,
    /// When its NodeClaims were to be deleted, as it says.
    pub(crate) deleted: Option<Timestamp>,
}

/// Everything at once, and what has been recently.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) now: Timestamp,
    pub(crate) pods: BTreeMap<Key, Arc<Pod>>,
    pub(crate) pods_by_node: BTreeMap<String, BTreeSet<Key>>,
    pub(crate) nodes: BTreeMap<String, Arc<Node>>,
    pub(crate) claims: BTreeMap<String, Arc<Claim>>,
    claims_by_uid: BTreeMap<String, String>,
    /// By provider ID.
    nodes_by_machine: Names,
    /// The same.
    claims_by_machine: Names,
    pub(crate) instances: BTreeMap<String, Arc<Instance>>,
    pub(crate) pools: BTreeMap<String, Arc<Pool>>,
    pub(crate) budgets: BTreeMap<Key, Arc<Budget>>,
    /// What controls pods.
    owners: Owners,
    /// Pods for which CapacityBuffers keep room, as their statuses say.
    pub(crate) room: BTreeMap<Key, i64>,
    pub(crate) attachments: BTreeMap<String, Arc<Attachment>>,
    /// PersistentVolumeClaim → volume.
    pub(crate) volumes: BTreeMap<Key, String>,
    /// Disruptions under way by name: decisions that were written down, numbered in the order in which that was done.
    pub(crate) commands: BTreeMap<String, Chosen>,
    /// Commands that were rolled back, with the moment in which they were.
    rolled_back: BTreeMap<String, (Chosen, Timestamp)>,
    /// Commands that have ended, however they did, with the moment in which they did.
    ended_commands: Vec<(Chosen, Timestamp)>,
    commands_made: u64,
    pub(crate) policies: BTreeMap<String, Arc<Policy>>,
    /// Lease of the operators → its holder.
    pub(crate) leader: Option<String>,
    /// Since when it has been that one.
    pub(crate) leader_since: Timestamp,
    /// UIDs of NodeClaims of which an event says that they go because of a message of the cloud.
    pub(crate) interrupted: BTreeSet<String>,
    /// Versions of pools that were replaced, with the time.
    replaced_pools: Vec<(Arc<Pool>, Timestamp)>,
    /// Initialised nodes that ended, with the time.
    pub(crate) ended_nodes: Vec<(Arc<Node>, Timestamp)>,
    /// The last time at which something kept the operators from their work: a fault, a standstill, a pool that is not ready.
    pub(crate) disturbed: Timestamp,
    /// For how long an operator may exclude all offerings of the cloud.
    pub(crate) left_out: Duration,
    /// The latest time for which operators may not have seen what was written, from and to.
    pub(crate) blind: (Timestamp, Timestamp),
    /// NodeClaims that have come up, or were given up before they did, in the order in which that was.
    pub(crate) settled: Vec<Settled>,
    /// When NodeClaims were asked to go whose launched nodes had all the time to join and did not.
    pub(crate) unjoined: Vec<Timestamp>,
    /// UIDs of NodeClaims that are gone, with the time.
    pub(crate) gone_claims: BTreeMap<String, Timestamp>,
    /// Pods that ceased to exist in the last second, with the time.
    vanished: Vec<(Arc<Pod>, Timestamp)>,
    /// Nodes from which a pod has gone, with the last time.
    last_departure: BTreeMap<String, Timestamp>,
}

/// `time + length`.
pub(crate) fn later(time: Timestamp, length: Duration) -> Timestamp {
    let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
    time.saturating_add(length).unwrap_or(Timestamp::MAX)
}

impl View {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            now,
            pods: BTreeMap::new(),
            pods_by_node: BTreeMap::new(),
            nodes: BTreeMap::new(),
            claims: BTreeMap::new(),
            claims_by_uid: BTreeMap::new(),
            nodes_by_machine: Names::default(),
            claims_by_machine: Names::default(),
            instances: BTreeMap::new(),
            pools: BTreeMap::new(),
            budgets: BTreeMap::new(),
            owners: Owners::default(),
            room: BTreeMap::new(),
            attachments: BTreeMap::new(),
            volumes: BTreeMap::new(),
            commands: BTreeMap::new(),
            rolled_back: BTreeMap::new(),
            ended_commands: Vec::new(),
            commands_made: 0,
            policies: BTreeMap::new(),
            leader: None,
            leader_since: now,
            interrupted: BTreeSet::new(),
            replaced_pools: Vec::new(),
            ended_nodes: Vec::new(),
            disturbed: now,
            left_out: Duration::ZERO,
            blind: (Timestamp::MIN, Timestamp::MIN),
            settled: Vec::new(),
            unjoined: Vec::new(),
            gone_claims: BTreeMap::new(),
            vanished: Vec::new(),
            last_departure: BTreeMap::new(),
        }
    }

    /// Whether operators must have learnt by now what was written at `time`.
    pub(crate) fn is_known(&self, time: Timestamp) -> bool {
        time <= self.known_until()
    }

    /// The latest time of which operators must have learnt by now what was written.
    pub(crate) fn known_until(&self) -> Timestamp {
        let (from, to) = self.blind;
        let seen = if self.now > later(to, Duration::from_secs(60)) {
            self.now
        } else {
            from.min(self.now)
        };
        seen.saturating_sub(SOON).unwrap_or(seen)
    }

    /// Whether what is done now may have been decided without what was written at `time`.
    pub(crate) fn is_news(&self, time: Timestamp) -> bool {
        later(time, RECENT) > self.now || !self.is_known(time)
    }

    /// Whether nothing has been in the way for so long.
    pub(crate) fn is_calm_for(&self, length: Duration) -> bool {
        later(self.disturbed, length) <= self.now
    }

    /// Whether `time` lies so far back, counted from the last disturbance.
    pub(crate) fn has_lasted(&self, time: Timestamp, length: Duration) -> bool {
        later(time.max(self.disturbed), length) <= self.now
    }

    pub(crate) fn claim_with_uid(&self, uid: &str) -> Option<&Claim> {
        let name = self.claims_by_uid.get(uid)?;
        self.claims.get(name).map(|claim| &**claim)
    }

    pub(crate) fn node_of_claim(&self, claim: &Claim) -> Option<&Arc<Node>> {
        self.nodes.get(self.nodes_by_machine.first(&claim.provider_id)?)
    }

    pub(crate) fn claim_of_node(&self, node: &Node) -> Option<&Arc<Claim>> {
        self.claims.get(self.claims_by_machine.first(&node.provider_id)?)
    }

    pub(crate) fn pods_on(&self, node: &str) -> impl Iterator<Item = &Arc<Pod>> {
        let keys = self.pods_by_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key))
    }

    /// Whether no pod has left a node for so long.
    pub(crate) fn pods_gone_for(&self, node: &str, length: Duration) -> bool {
        self.last_departure
            .get(node)
            .is_none_or(|last| self.has_lasted(*last, length))
    }

    /// Whether a pod has left a node, or was asked to, at or after an instant.
    pub(crate) fn has_lost_pods_since(&self, node: &str, since: Timestamp) -> bool {
        self.last_departure.get(node).is_some_and(|last| *last >= since)
            || self
                .pods_on(node)
                .any(|pod| pod.asked.is_some_and(|asked| asked >= since))
    }

    /// Pods that ceased to exist in this very moment.
    pub(crate) fn just_vanished(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let recent = self
            .vanished
            .iter()
            .filter(|(_, at)| later(*at, MOMENT) > self.now);
        recent.map(|(pod, _)| pod)
    }

    /// The present version of a pool and those that were valid until recently.
    pub(crate) fn recent_pools(&self, name: &str) -> Vec<&Arc<Pool>> {
        let replaced = self
            .replaced_pools
            .iter()
            .filter(|(pool, until)| pool.name == name && later(*until, RECENT) >= self.now)
            .map(|(pool, _)| pool);
        self.pools.get(name).into_iter().chain(replaced).collect()
    }

    /// The highest of the recent limits; a resource without limit in one version has none.
    fn widest_limits(&self, pool: &str) -> Amounts {
        let mut versions = self.recent_pools(pool).into_iter();
        let Some(first) = versions.next() else {
            return Amounts::new();
        };
        versions.fold(first.limits.clone(), |limits, version| {
            let wider =
                |(name, limit): (String, i128)| Some((name.clone(), limit.max(*version.limits.get(&name)?)));
            limits.into_iter().filter_map(wider).collect()
        })
    }

    /// Folds one write in.
    pub(crate) fn fold(&mut self, commit: &Commit<'_>) -> Change {
        let key: Key = (commit.namespace.to_owned(), commit.name.to_owned());
        let now = self.now;
        let value = (!commit.deleted).then_some(commit.new);
        match (commit.group, commit.plural) {
            ("", "pods") => {
                let before = self.pods.get(&key).cloned();
                let after = value.map(|value| Arc::new(Pod::read(value, before.as_deref(), now)));
                if let Some(before) = before.as_deref().filter(|pod| !pod.node.is_empty())
                    && let Some(keys) = self.pods_by_node.get_mut(&before.node)
                {
                    if after
                        .as_ref()
                        .is_none_or(|after| after.node != before.node || after.has_ended())
                    {
                        self.last_departure.insert(before.node.clone(), now);
                    }
                    keys.remove(&key);
                    if keys.is_empty() {
                        self.pods_by_node.remove(&before.node);
                    }
                }
                if let Some(after) = after.as_deref().filter(|pod| !pod.node.is_empty()) {
                    self.pods_by_node
                        .entry(after.node.clone())
                        .or_default()
                        .insert(key.clone());
                }
                if let Some(before) = before.clone().filter(|_| after.is_none()) {
                    self.vanished.retain(|(_, at)| later(*at, MOMENT) > now);
                    self.vanished.push((before, now));
                }
                put(&mut self.pods, key, after.clone());
                Change::Pod(Pair { before, after })
            }
            ("", "nodes") => {
                let before = self.nodes.get(&key.1).cloned();
                let after = value.map(|value| Arc::new(Node::read(value, before.as_deref(), now)));
                if after.is_none()
                    && let Some(node) = before.clone().filter(|node| node.is_initialized())
                {
                    self.ended_nodes.retain(|(_, at)| later(*at, RECENT) >= now);
                    self.ended_nodes.push((node, now));
                }
                if after.is_none() {
                    self.last_departure.remove(&key.1);
                }
                let machine =
                    |node: Option<&Arc<Node>>| node.map_or(String::new(), |node| node.provider_id.clone());
                self.nodes_by_machine
                    .change(&key.1, &machine(before.as_ref()), &machine(after.as_ref()));
                put(&mut self.nodes, key.1, after.clone());
                Change::Node(Pair { before, after })
            }
            ("karpenter.sh", "nodeclaims") => {
                let before = self.claims.get(&key.1).cloned();
                let after = value.map(|value| Arc::new(Claim::read(value, before.as_deref(), self)));
                if let Some(before) = &before {
                    self.claims_by_uid.remove(&before.uid);
                    if after.is_none() {
                        self.gone_claims.insert(before.uid.clone(), now);
                    }
                }
                self.settle(before.as_ref(), after.as_ref());
                if let Some(after) = &after {
                    self.claims_by_uid.insert(after.uid.clone(), key.1.clone());
                }
                let machine = |claim: Option<&Arc<Claim>>| {
                    claim.map_or(String::new(), |claim| claim.provider_id.clone())
                };
                self.claims_by_machine
                    .change(&key.1, &machine(before.as_ref()), &machine(after.as_ref()));
                put(&mut self.claims, key.1, after.clone());
                Change::Claim(Pair { before, after })
            }
            ("kwok.spokeshave.dev", "kwokinstances") => {
                let before = self.instances.get(&key.1).cloned();
                let after = value.map(|value| Arc::new(Instance::read(value, now)));
                put(&mut self.instances, key.1, after.clone());
                Change::Instance(Pair { before, after })
            }
            ("spokeshave.dev", "disruptions") => self.fold_command(&key.1, value),
            _ => {
                self.fold_rest(commit, key, value);
                Change::Other
            }
        }
    }

    fn fold_rest(&mut self, commit: &Commit<'_>, key: Key, value: Option<&Value>) {
        let now = self.now;
        match (commit.group, commit.plural) {
            ("karpenter.sh", "nodepools") => {
                let after = value.map(|value| Arc::new(Pool::read(value)));
                if let Some(before) = self.pools.get(&key.1) {
                    self.replaced_pools
                        .retain(|(_, until)| later(*until, RECENT) >= now);
                    self.replaced_pools.push((before.clone(), now));
                }
                put(&mut self.pools, key.1, after);
            }
            ("policy", "poddisruptionbudgets") => {
                let before = self.budgets.get(&key).cloned();
                let after = value.map(|value| Arc::new(Budget::read(value, before.as_deref(), self)));
                put(&mut self.budgets, key, after);
            }
            ("apps", plural) => self.owners.fold(plural, key, value, now),
            ("", "events") => {
                let value = value.filter(|value| value["reason"] == INTERRUPTED);
                let about = value.map(|value| text(value, &["involvedObject", "uid"]).to_owned());
                self.interrupted.extend(about);
            }
            ("autoscaling.x-k8s.io", "capacitybuffers") => {
                match value.and_then(|value| value["status"]["replicas"].as_i64()) {
                    Some(pods) => self.room.insert(key, pods),
                    None => self.room.remove(&key),
                };
            }
            ("storage.k8s.io", "volumeattachments") => {
                let after = value.map(|value| {
                    Arc::new(Attachment {
                        name: key.1.clone(),
                        node: text(value, &["spec", "nodeName"]).to_owned(),
                        volume: text(value, &["spec", "source", "persistentVolumeName"]).to_owned(),
                        since: instant(&value["metadata"]["creationTimestamp"]).unwrap_or(now),
                    })
                });
                put(&mut self.attachments, key.1, after);
            }
            ("", "persistentvolumeclaims") => {
                let volume = value.map(|value| text(value, &["spec", "volumeName"]).to_owned());
                match volume {
                    Some(volume) => self.volumes.insert(key, volume),
                    None => self.volumes.remove(&key),
                };
            }
            ("spokeshave.dev", "disruptionpolicies") => {
                let spec = value.map(|value| &value["spec"]);
                let same = |known: &&Arc<Policy>| Some(&known.spec) == spec;
                let since = self
                    .policies
                    .get(&key.1)
                    .filter(same)
                    .map_or(now, |known| known.since);
                let after = spec.map(|spec| Policy {
                    name: key.1.clone(),
                    spec: spec.clone(),
                    since,
                });
                put(&mut self.policies, key.1, after.map(Arc::new));
            }
            ("coordination.k8s.io", "leases") if key.0 != "kube-node-lease" => {
                let leader = value.map(|value| text(value, &["spec", "holderIdentity"]).to_owned());
                if leader != self.leader {
                    self.leader_since = now;
                }
                self.leader = leader;
            }
            _ => {}
        }
    }
}

impl View {
    fn fold_command(&mut self, name: &str, value: Option<&Value>) -> Change {
        let is_under_way =
            |value: &&Value| !matches!(text(value, &["status", "phase"]), "Succeeded" | "RolledBack");
        if value.is_none() {
            self.rolled_back.remove(name);
        }
        let Some(value) = value.filter(is_under_way) else {
            let ended = self.commands.remove(name);
            let now = self.now;
            let mut known = std::mem::take(&mut self.ended_commands);
            known.retain(|(_, ended)| self.is_news(*ended));
            known.extend(ended.clone().map(|chosen| (chosen, now)));
            self.ended_commands = known;
            let stays = value.filter(|value| text(value, &["status", "phase"]) == "RolledBack");
            if let Some(chosen) = stays.and(ended) {
                self.rolled_back.insert(name.to_owned(), (chosen, now));
            }
            return Change::Other;
        };
        let nodes = value["spec"]["nodes"].as_array();
        let uids = nodes
            .into_iter()
            .flatten()
            .map(|node| text(node, &["nodeClaimUID"]).to_owned());
        let claims: BTreeSet<String> = uids.collect();
        let deleted = instant(&value["status"]["deletedAt"]);
        if let Some(known) = self.commands.get_mut(name) {
            known.claims = claims;
            known.deleted = deleted;
            return Change::Other;
        }
        self.commands_made += 1;
        let chosen = Chosen {
            number: self.commands_made,
            reason: text(value, &["spec", "reason"]).to_owned(),
            method: text(value, &["spec", "method"]).to_owned(),
            claims,
            since: self.now,
            deleted,
        };
        self.commands.insert(name.to_owned(), chosen);
        Change::Command(name.to_owned())
    }

    /// When the launch of a NodeClaim was decided: with the command that it is a replacement of, or when it was made.
    pub(crate) fn decided(&self, claim: &Claim) -> Option<Timestamp> {
        let under_way = self.commands.get(&claim.command);
        let command = under_way.or_else(|| self.rolled_back.get(&claim.command).map(|(chosen, _)| chosen));
        command.map(|chosen| chosen.since).or(claim.created)
    }

    /// Whether a NodeClaim was to go at that moment by a command that was rolled back since.
    pub(crate) fn was_chosen_at(&self, claim: &Claim, then: Timestamp) -> bool {
        let mut all = self.rolled_back.values();
        all.any(|(chosen, ended)| chosen.claims.contains(&claim.uid) && chosen.since <= then && then < *ended)
    }

    /// Whether a NodeClaim was to go by a command of whose end, whatever it was, an operator need not have heard.
    pub(crate) fn was_chosen_lately(&self, claim: &Claim) -> bool {
        let mut all = self.ended_commands.iter();
        all.any(|(chosen, ended)| chosen.claims.contains(&claim.uid) && self.is_news(*ended))
    }

    /// The first command under way that chose a NodeClaim.
    pub(crate) fn chosen_by(&self, claim: &Claim) -> Option<&Chosen> {
        let all = self.commands.values();
        all.filter(|chosen| chosen.claims.contains(&claim.uid))
            .min_by_key(|chosen| chosen.number)
    }
}

fn put<K: Ord, T>(map: &mut BTreeMap<K, Arc<T>>, key: K, value: Option<Arc<T>>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}
