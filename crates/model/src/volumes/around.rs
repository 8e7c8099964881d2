//! What volumes depend on beside their own objects: which nodes there are, and which pods use a claim.
//!
//! A Snapshot takes in changes of nodes and pods one by one. Uses of claims are kept up to date here; what is known of nodes is not, and
//! [`is_current`](Around::is_current) says whether changes of nodes or pods ask for it to be made again. It decides nothing.

use super::ready_made::{ReadyMade, unserved};
use super::{VolumeObjects, claim_keys, is_local, named_hosts};
use crate::Pod;
use crate::labels;
use crate::planned_node;
use crate::pod;
use crate::pod_object::{PodKey, pod_key};
use crate::requirements::Requirements;
use crate::snapshot::NodeView;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The access mode of a claim that one pod at a time may use.
const READ_WRITE_ONCE_POD: &str = "ReadWriteOncePod";

/// What volumes depend on beside their own objects. Where no volume does, it is empty, and costs nothing to keep.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    /// Hosts that local volumes name, and whether the Node of each is there.
    hosts: BTreeMap<String, bool>,
    ready_made: ReadyMade,
    /// Claims that wait for a volume which nothing provisions, with their classes.
    unserved: BTreeMap<String, String>,
    /// Pods that use these, by class.
    asking: BTreeMap<String, BTreeSet<PodKey>>,
    /// Who uses the claims that one pod at a time may use, by claim.
    users: BTreeMap<String, Users>,
    /// A node that something here depends on has become another since.
    is_outdated: bool,
}

/// Pods that use a claim which one pod at a time may use.
#[derive(Clone, Debug, Default)]
struct Users {
    /// They run with it. One that terminates does not count: it makes room.
    holding: BTreeSet<PodKey>,
    /// They wait for a place.
    waiting: BTreeSet<PodKey>,
}

impl Around {
    /// O(claims and volumes), and O(nodes + pods) where some volume depends on them.
    pub(crate) fn new(objects: &VolumeObjects, nodes: &[NodeView], pods: &[Arc<Pod>]) -> Self {
        let exclusive = objects
            .claims
            .iter()
            .filter(|(_, claim)| claim.spec.as_ref().is_some_and(is_exclusive));
        let mut around = Around {
            hosts: hosts(objects, nodes),
            ready_made: ReadyMade::default(),
            unserved: unserved(objects),
            asking: BTreeMap::new(),
            users: exclusive
                .map(|(key, _)| (key.clone(), Users::default()))
                .collect(),
            is_outdated: false,
        };
        if !around.has_no_uses() {
            for pod in pods {
                around.add_user(pod);
            }
        }
        around.ready_made = ReadyMade::new(around.asking.keys(), objects, nodes);
        around
    }

    /// No claim is there whose users matter.
    fn has_no_uses(&self) -> bool {
        self.users.is_empty() && self.unserved.is_empty()
    }

    /// Whether it is what would be made of the objects now: no node has become another that it depends on, and it knows the volumes of all classes that pods ask
    /// for, and of no other.
    pub(crate) fn is_current(&self) -> bool {
        !self.is_outdated && self.ready_made.classes().eq(self.asking.keys())
    }

    /// Whether the Node of a host that a local volume's term names is there: the volume can be used nowhere else.
    pub(super) fn has_host_of(&self, term: &Requirements) -> bool {
        let named = term.find(labels::HOSTNAME);
        let named = named.filter(|named| !named.is_complement());
        let is_there = |host: &String| self.hosts.get(host).copied().unwrap_or(false);
        named.is_some_and(|named| named.values().iter().any(is_there))
    }

    /// Where a claim without a volume gets one, if its class has it made where `allowed` says.
    pub(super) fn terms_of_unbound(
        &self,
        claim: (&str, &PersistentVolumeClaim),
        since: Option<Timestamp>,
        allowed: Vec<Requirements>,
    ) -> Vec<Requirements> {
        self.ready_made.terms(claim, since, allowed)
    }

    /// Whether a pod may use a claim as far as others go.
    pub(super) fn check_use(&self, claim: &str, pod: &Pod) -> Result<(), String> {
        let Some(users) = self.users.get(claim) else {
            return Ok(());
        };
        let own = pod_key(pod);
        match users.holding.iter().find(|holder| **holder != own) {
            Some((namespace, name)) => Err(format!(
                "is in use by pod {namespace}/{name}, and {READ_WRITE_ONCE_POD} lets no other pod use it"
            )),
            None => Ok(()),
        }
    }

    /// Takes up what a pod uses.
    pub(crate) fn add_user(&mut self, pod: &Pod) {
        if self.has_no_uses() {
            return;
        }
        for claim in claim_keys(pod) {
            if let Some(class) = self.unserved.get(&claim)
                && !pod::is_terminal(pod)
            {
                let asking = self.asking.entry(class.clone()).or_default();
                asking.insert(pod_key(pod));
            }
            let Some(users) = self.users.get_mut(&claim) else {
                continue;
            };
            if planned_node::waits(pod) {
                users.waiting.insert(pod_key(pod));
            } else if pod::node_name(pod).is_some() && pod::is_active(pod) {
                users.holding.insert(pod_key(pod));
            }
        }
    }

    /// Takes back what a pod uses.
    pub(crate) fn remove_user(&mut self, pod: &Pod) {
        if self.has_no_uses() {
            return;
        }
        let own = pod_key(pod);
        self.asking.retain(|_, asking| {
            asking.remove(&own);
            !asking.is_empty()
        });
        for claim in claim_keys(pod) {
            if let Some(users) = self.users.get_mut(&claim) {
                users.holding.remove(&own);
                users.waiting.remove(&own);
            }
        }
    }

    /// Other pods that wait for claims of this one which one pod at a time may use: when its use changes, so may what keeps them.
    pub(crate) fn waiting_beside(&self, pod: &Pod) -> BTreeSet<PodKey> {
        if self.users.is_empty() {
            return BTreeSet::new();
        }
        let mut waiting = BTreeSet::new();
        for claim in claim_keys(pod) {
            let users = self.users.get(&claim);
            waiting.extend(users.into_iter().flat_map(|users| users.waiting.iter().cloned()));
        }
        waiting.remove(&pod_key(pod));
        waiting
    }

    /// A node becomes what it is now; `None` where it was not there, or is not any more.
    pub(crate) fn note_node(&mut self, before: Option<&NodeView>, now: Option<&NodeView>) {
        self.is_outdated |= self.has_other_hosts(before, now) || self.ready_made.depends_on(before, now);
    }

    /// Whether a host that local volumes name comes or goes with this.
    fn has_other_hosts(&self, before: Option<&NodeView>, now: Option<&NodeView>) -> bool {
        if self.hosts.is_empty() {
            return false;
        }
        let (was, is) = (before.and_then(host), now.and_then(host));
        let is_named = |host: Option<&str>| host.is_some_and(|host| self.hosts.contains_key(host));
        was != is && (is_named(was) || is_named(is))
    }
}

/// Whether one pod at a time may use a claim.
pub(crate) fn is_exclusive(claim: &PersistentVolumeClaimSpec) -> bool {
    let mut modes = claim.access_modes.iter().flatten();
    modes.any(|mode| mode == READ_WRITE_ONCE_POD)
}

fn hosts(objects: &VolumeObjects, nodes: &[NodeView]) -> BTreeMap<String, bool> {
    let local = objects.volumes.values().filter(|volume| is_local(volume));
    let named = local.flat_map(|volume| named_hosts(volume));
    let mut hosts: BTreeMap<String, bool> = named.map(|host| (host.clone(), false)).collect();
    if hosts.is_empty() {
        return hosts;
    }
    for host in nodes.iter().filter_map(host) {
        if let Some(is_there) = hosts.get_mut(host) {
            *is_there = true;
        }
    }
    hosts
}

/// What local volumes call the host of a node that has joined: the label of its Node, or else its name.
fn host(view: &NodeView) -> Option<&str> {
    let meta = &view.node.as_ref()?.metadata;
    let label = meta.labels.as_ref().and_then(|all| all.get(labels::HOSTNAME));
    label.or(meta.name.as_ref()).map(String::as_str)
}
