//! Names and UIDs of objects, as the fast engine gives them: the same pod and the same machine are known in both engines.
//!
//! Owns which object is which pod of an owner, and which machine. Where decisions break ties by name or UID, they break them alike.

use std::collections::BTreeMap;

use serde_json::Value;
use spokeshave_apiserver::Identity;
use spokeshave_scenario::{OwnerKind, Timeline};
use spokeshave_simulate::draws::{Draws, pod_uid};
use spokeshave_simulate::owners::pod_name;

/// A pod of an owner: the owner's position in the timeline, and the pod's number within it.
pub(crate) type PodOf = (u32, u64);

/// Who is who.
#[derive(Debug)]
pub(crate) struct Names {
    draws: Draws,
    owners: Vec<(OwnerKind, String)>,
    /// Owners by plural, namespace and name.
    by_key: BTreeMap<(&'static str, String, String), u32>,
    /// Jobs, ReplicaSets without a Deployment and bare pods by namespace and name: each is one pod of its owner.
    singles: BTreeMap<(String, String), PodOf>,
    /// The number of the next pod of each owner.
    next: Vec<u64>,
    /// Pods of a Job or a ReplicaSet that were made before.
    lives: BTreeMap<PodOf, u32>,
    machines: BTreeMap<String, u32>,
    made: u32,
    /// Pods by UID.
    pods: BTreeMap<String, PodOf>,
}

fn plural(kind: OwnerKind) -> &'static str {
    match kind {
        OwnerKind::Deployment => "deployments",
        OwnerKind::StatefulSet => "statefulsets",
        OwnerKind::Job => "jobs",
        OwnerKind::Bare => "pods",
        OwnerKind::Other => "replicasets",
    }
}

fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object["metadata"][field].as_str().unwrap_or_default()
}

impl Names {
    pub(crate) fn new(timeline: &Timeline, seed: u64) -> Self {
        let owners = timeline.owners.iter();
        let by_key = (0..).zip(owners.clone()).map(|(index, owner)| {
            let key = (plural(owner.kind), owner.namespace.clone(), owner.name.clone());
            (key, index)
        });
        Names {
            draws: Draws::new(seed),
            by_key: by_key.collect(),
            next: vec![0; timeline.owners.len()],
            owners: owners.map(|owner| (owner.kind, owner.name.clone())).collect(),
            singles: BTreeMap::new(),
            lives: BTreeMap::new(),
            machines: BTreeMap::new(),
            made: 0,
            pods: BTreeMap::new(),
        }
    }

    /// A Job, a ReplicaSet or a bare pod of this name is this pod of its owner.
    pub(crate) fn expect(&mut self, namespace: &str, name: &str, pod: PodOf) {
        self.singles.insert((namespace.to_owned(), name.to_owned()), pod);
    }

    /// The pod with this UID.
    pub(crate) fn pod(&self, uid: &str) -> Option<PodOf> {
        self.pods.get(uid).copied()
    }

    /// The number of a machine, by the name of its NodeClaim or Node.
    pub(crate) fn machine(&self, name: &str) -> Option<u32> {
        self.machines.get(name).copied()
    }

    /// Chooses name and UID of a new object.
    pub(crate) fn identify(&mut self, plural: &str, object: &Value, now_ms: u64) -> Identity {
        let uid = |uid: String| Identity {
            name: None,
            uid: Some(uid),
        };
        match plural {
            "nodeclaims" => self.machine_is_made(object),
            "nodes" => self
                .machine(text(object, "name"))
                .map_or_else(Identity::default, |machine| uid(format!("node-{machine}"))),
            "deployments" => self
                .owner("deployments", object)
                .map_or_else(Identity::default, |owner| uid(format!("deployment-{owner}"))),
            "statefulsets" => self
                .owner("statefulsets", object)
                .map_or_else(Identity::default, |owner| uid(format!("owner-{owner}"))),
            "replicasets" if controller(object).is_some() => controller(object)
                .and_then(|(_, own)| own.strip_prefix("deployment-"))
                .map_or_else(Identity::default, |owner| uid(format!("owner-{owner}"))),
            "jobs" | "replicasets" => self
                .single(object)
                .map_or_else(Identity::default, |(owner, pod)| {
                    uid(format!("owner-{owner}-{pod}"))
                }),
            "pods" => self.pod_is_made(object, now_ms).unwrap_or_default(),
            _ => Identity::default(),
        }
    }

    fn owner(&self, plural: &'static str, object: &Value) -> Option<u32> {
        let key = (
            plural,
            text(object, "namespace").to_owned(),
            text(object, "name").to_owned(),
        );
        self.by_key.get(&key).copied()
    }

    fn single(&self, object: &Value) -> Option<PodOf> {
        let key = (
            text(object, "namespace").to_owned(),
            text(object, "name").to_owned(),
        );
        self.singles.get(&key).copied()
    }

    /// The next pod of the Deployment whose ReplicaSet has this UID.
    fn next_of(&mut self, uid: &str) -> Option<PodOf> {
        let owner: u32 = uid.strip_prefix("owner-")?.parse().ok()?;
        let next = self.next.get_mut(owner as usize)?;
        *next += 1;
        Some((owner, *next - 1))
    }

    fn machine_is_made(&mut self, object: &Value) -> Identity {
        let machine = self.made;
        self.made += 1;
        let given = text(object, "name");
        let name = match given {
            "" => format!(
                "{}{}",
                text(object, "generateName"),
                self.draws.claim_suffix(machine)
            ),
            given => given.to_owned(),
        };
        self.machines.insert(name.clone(), machine);
        Identity {
            name: Some(name),
            uid: Some(format!("claim-{machine}")),
        }
    }

    fn pod_is_made(&mut self, object: &Value, now_ms: u64) -> Option<Identity> {
        let pod = match controller(object) {
            None => self.single(object)?,
            Some(("ReplicaSet", own)) => match single_of(own) {
                Some(single) => single,
                None => self.next_of(own)?,
            },
            Some(("StatefulSet", own)) => {
                let owner = own.strip_prefix("owner-")?.parse().ok()?;
                let (_, ordinal) = text(object, "name").rsplit_once('-')?;
                (owner, ordinal.parse().ok()?)
            }
            Some(("Job", own)) => single_of(own)?,
            Some(_) => return None,
        };
        let (kind, name) = self.owners.get(pod.0 as usize)?;
        let mut name = pod_name(*kind, name, pod.1);
        let lives = self.lives.entry(pod).or_insert(0);
        if matches!(kind, OwnerKind::Job | OwnerKind::Other) && *lives > 0 {
            name = format!("{name}r{now_ms}");
        }
        *lives += 1;
        let uid = pod_uid(pod.0, pod.1, now_ms);
        self.pods.insert(uid.clone(), pod);
        Some(Identity {
            name: Some(name),
            uid: Some(uid),
        })
    }
}

/// The one pod of what has this UID.
fn single_of(uid: &str) -> Option<PodOf> {
    let (owner, number) = uid.strip_prefix("owner-")?.split_once('-')?;
    Some((owner.parse().ok()?, number.parse().ok()?))
}

/// Kind and UID of the owner that controls an object.
fn controller(object: &Value) -> Option<(&str, &str)> {
    let references = object["metadata"]["ownerReferences"].as_array()?;
    let reference = references.iter().find(|one| one["controller"] == true)?;
    Some((reference["kind"].as_str()?, reference["uid"].as_str()?))
}
