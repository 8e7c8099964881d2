//! Claims of classes that nothing provisions (`kubernetes.io/no-provisioner`): they are served by volumes that somebody makes beforehand, mostly a
//! program that makes one for each disk of the node on which it runs.
//!
//! Kube-scheduler binds such a claim where a free volume can be reached, and nowhere else. A node that is to be launched may bring one. So may a node
//! that starts, and one that came later than the claim, for as long as no volume of the class names it: the program takes a while. How many free volumes
//! a node has is not counted: of two pods for one volume the second finds out when the first is bound.

use super::{VolumeObjects, class_name, created, named_hosts, reach, volume_name};
use crate::labels;
use crate::requirement::Requirement;
use crate::requirements::Requirements;
use crate::resources::Resources;
use crate::selector::Selector;
use crate::snapshot::NodeView;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The provisioner of a class that nothing provisions.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// The phase of a volume that is free.
pub(crate) const AVAILABLE: &str = "Available";

/// Volumes that are there, of the classes that pods ask for by claims without a volume, and the nodes. Empty where no pod does: a claim that nobody uses stays
/// without a volume for ever.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadyMade {
    classes: BTreeMap<String, Class>,
    nodes: Vec<Arrival>,
}

#[derive(Clone, Debug, Default)]
struct Class {
    free: Vec<Arc<PersistentVolume>>,
    /// Hosts that volumes of the class name, free or not: whoever makes them has been there.
    served: BTreeSet<String>,
}

/// A node, as far as it may yet bring volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Arrival {
    hostname: String,
    since: Since,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// It is not there yet, or has yet to be initialised.
    Starting,
    /// Its Node was created then, as far as that is known.
    There(Option<Timestamp>),
}

impl Arrival {
    fn of(view: &NodeView) -> Self {
        let node = view.node.as_ref().filter(|_| view.initialized);
        Arrival {
            hostname: view.hostname.clone(),
            since: node.map_or(Since::Starting, |node| Since::There(created(&node.metadata))),
        }
    }

    /// Whether it came after a claim.
    fn is_later_than(&self, claim: Option<Timestamp>) -> bool {
        match self.since {
            Since::Starting => true,
            Since::There(since) => since.zip(claim).is_some_and(|(since, claim)| since > claim),
        }
    }
}

impl ReadyMade {
    /// Of these classes.
    pub(super) fn new<'a>(
        asked: impl Iterator<Item = &'a String>,
        objects: &VolumeObjects,
        nodes: &[NodeView],
    ) -> Self {
        let mut classes: BTreeMap<String, Class> =
            asked.map(|name| (name.clone(), Class::default())).collect();
        if classes.is_empty() {
            return Self::default();
        }
        for volume in objects.volumes.values() {
            let spec = volume.spec.as_ref();
            let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
            let Some(class) = classes.get_mut(class.unwrap_or_default()) else {
                continue;
            };
            class.served.extend(named_hosts(volume).cloned());
            if is_free(volume) {
                class.free.push(Arc::clone(volume));
            }
        }
        ReadyMade {
            classes,
            nodes: nodes.iter().map(Arrival::of).collect(),
        }
    }

    /// Where a claim can be served: what its class allows, unless nothing provisions it. One of these must hold; empty when anywhere.
    pub(super) fn terms(
        &self,
        (key, claim): (&str, &PersistentVolumeClaim),
        since: Option<Timestamp>,
        allowed: Vec<Requirements>,
    ) -> Vec<Requirements> {
        let Some(class) = class_name(claim).and_then(|name| self.classes.get(name)) else {
            return allowed;
        };
        let mut there: Vec<Requirements> = Vec::new();
        for volume in class.free.iter().filter(|volume| suits(volume, key, claim)) {
            let reached = reach(volume, |_| true);
            if reached.is_empty() || reached.iter().any(Requirements::is_empty) {
                return Vec::new();
            }
            there.extend(reached);
        }
        let later = self.nodes.iter().filter(|node| node.is_later_than(since));
        let later = later.map(|node| node.hostname.as_str());
        let coming = later.filter(|host| !class.served.contains(*host));
        let coming = Requirement::one_of(labels::HOSTNAME, coming.chain([labels::PLANNED_HOST]));
        let allowed = if allowed.is_empty() {
            vec![Requirements::new()]
        } else {
            allowed
        };
        let brought = allowed.into_iter().map(|mut term| {
            term.add(coming.clone());
            term
        });
        brought.chain(by_host(there)).collect()
    }

    /// Of which classes it is, in order.
    pub(super) fn classes(&self) -> impl Iterator<Item = &String> {
        self.classes.keys()
    }

    /// Whether it is another when a node becomes what it is now.
    pub(super) fn depends_on(&self, before: Option<&NodeView>, now: Option<&NodeView>) -> bool {
        !self.classes.is_empty() && before.map(Arrival::of) != now.map(Arrival::of)
    }
}

/// Claims without a volume of classes that nothing provisions, with their classes.
pub(super) fn unserved(objects: &VolumeObjects) -> BTreeMap<String, String> {
    let unprovisioned = |name: &str| {
        let class = objects.storage_classes.get(name);
        class.is_some_and(|class| class.provisioner == NO_PROVISIONER)
    };
    if !objects.storage_classes.keys().any(|name| unprovisioned(name)) {
        return BTreeMap::new();
    }
    let unbound = objects
        .claims
        .iter()
        .filter(|(_, claim)| volume_name(claim).is_none());
    let classes = unbound.filter_map(|(key, claim)| Some((key, class_name(claim)?)));
    let unserved = classes.filter(|(_, class)| unprovisioned(class));
    unserved
        .map(|(key, class)| (key.clone(), class.to_owned()))
        .collect()
}

fn is_free(volume: &PersistentVolume) -> bool {
    let status = volume.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    volume.metadata.deletion_timestamp.is_none() && phase == Some(AVAILABLE)
}

/// Whether a free volume is what a claim of its class asks for.
fn suits(volume: &PersistentVolume, key: &str, claim: &PersistentVolumeClaim) -> bool {
    let (Some(spec), Some(asked)) = (&volume.spec, &claim.spec) else {
        return false;
    };
    let is_kept_for = |reference: &ObjectReference| {
        let part = |value: &Option<String>| value.clone().unwrap_or_default();
        format!("{}/{}", part(&reference.namespace), part(&reference.name)) == key
    };
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    let mut wanted = asked.access_modes.iter().flatten();
    let selector = asked.selector.as_ref();
    let own = volume.metadata.labels.clone().unwrap_or_default();
    let requests = asked.resources.as_ref();
    let requests = requests.and_then(|resources| resources.requests.as_ref());
    spec.claim_ref.as_ref().is_none_or(is_kept_for)
        && mode(&spec.volume_mode) == mode(&asked.volume_mode)
        && wanted.all(|mode| modes.contains(mode))
        && storage(spec.capacity.as_ref()) >= storage(requests)
        && selector.is_none_or(|selector| Selector::parse(Some(selector)).matches(&own))
}

fn storage(amounts: Option<&BTreeMap<String, Quantity>>) -> i64 {
    Resources::from_quantities_lossy(amounts).get("storage")
}

/// Terms that differ in their hosts alone become one, and so do equal ones.
fn by_host(terms: Vec<Requirements>) -> Vec<Requirements> {
    let mut hosts: BTreeMap<Requirements, BTreeSet<String>> = BTreeMap::new();
    let mut others = BTreeSet::new();
    for mut term in terms {
        let named = term.find(labels::HOSTNAME);
        match named.filter(|named| !named.is_complement()).cloned() {
            Some(named) => {
                term.remove(labels::HOSTNAME);
                hosts
                    .entry(term)
                    .or_default()
                    .extend(named.values().iter().cloned());
            }
            None => _ = others.insert(term),
        }
    }
    let joined = hosts.into_iter().map(|(mut term, hosts)| {
        term.add(Requirement::one_of(labels::HOSTNAME, hosts));
        term
    });
    joined.chain(others).collect()
}
