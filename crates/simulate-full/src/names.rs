//! Names and UIDs of objects, as the fast engine gives them: the same pod and the same machine are known in both engines.
//!
//! Owns which object is which pod of an owner, and which machine. Where decisions break ties by name or UID, they break them alike.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use spokeshave_apiserver::Identity;
use spokeshave_scenario::{OwnerKind, Timeline};
use spokeshave_simulate::draws::{Draws, pod_uid};
use spokeshave_simulate::owners::{controller_uid, pod_name};

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
    /// The number of the template from which each owner makes its pods now.
    newest: Vec<u32>,
    /// The same of pods that are made one by one, as it was when they were told, where it is not the first.
    singles_of: BTreeMap<PodOf, u32>,
    /// Pods that were made from another template than their owner's first, by UID.
    made_of: BTreeMap<String, u32>,
    /// Pods of a Job or a ReplicaSet that were made before.
    lives: BTreeMap<PodOf, u32>,
    machines: BTreeMap<String, u32>,
    /// Nodes of no NodePool: a NodeClaim of such a name would have a Node of that name.
    fixed: BTreeSet<String>,
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
            newest: vec![0; timeline.owners.len()],
            singles_of: BTreeMap::new(),
            made_of: BTreeMap::new(),
            owners: owners.map(|owner| (owner.kind, owner.name.clone())).collect(),
            singles: BTreeMap::new(),
            lives: BTreeMap::new(),
            machines: BTreeMap::new(),
            fixed: BTreeSet::new(),
            made: 0,
            pods: BTreeMap::new(),
        }
    }

    /// A Job, a ReplicaSet or a bare pod of this name is this pod of its owner.
    pub(crate) fn expect(&mut self, namespace: &str, name: &str, pod: PodOf) {
        self.singles.insert((namespace.to_owned(), name.to_owned()), pod);
        let newest = self.newest(pod.0);
        if newest > 0 {
            self.singles_of.insert(pod, newest);
        }
    }

    /// An owner makes its pods from the template of this number from now on.
    pub(crate) fn renew(&mut self, owner: u32, template: u32) {
        if let Some(newest) = self.newest.get_mut(owner as usize) {
            *newest = template;
        }
    }

    fn newest(&self, owner: u32) -> u32 {
        self.newest.get(owner as usize).copied().unwrap_or(0)
    }

    /// The number of the template from which the pod with this UID was made.
    pub(crate) fn template(&self, uid: &str) -> u32 {
        self.made_of.get(uid).copied().unwrap_or(0)
    }

    /// The pod with this UID.
    pub(crate) fn pod(&self, uid: &str) -> Option<PodOf> {
        self.pods.get(uid).copied()
    }

    /// The number of a machine, by the name of its NodeClaim or Node.
    pub(crate) fn machine(&self, name: &str) -> Option<u32> {
        self.machines.get(name).copied()
    }

    /// The Node of this name will be that of a NodeClaim.
    pub(crate) fn node_is_of(&mut self, node: &str, claim: &str) {
        if let Some(machine) = self.machine(claim) {
            self.machines.insert(node.to_owned(), machine);
        }
    }

    /// The Node of this name is of no NodePool.
    pub(crate) fn node_is_fixed(&mut self, node: &str) {
        self.fixed.insert(node.to_owned());
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
                .and_then(|(_, own)| own.strip_prefix("deployment-")?.parse().ok())
                .map_or_else(Identity::default, |owner: u32| {
                    let newest = self.newest(owner);
                    uid(controller_uid(OwnerKind::Deployment, owner as usize, newest))
                }),
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

    /// The next pod of the Deployment whose ReplicaSet has this UID, and from which template it is made.
    fn next_of(&mut self, uid: &str) -> Option<(PodOf, u32)> {
        let told = uid.strip_prefix("owner-")?;
        let (owner, template) = told.split_once('.').unwrap_or((told, "0"));
        let owner: u32 = owner.parse().ok()?;
        let next = self.next.get_mut(owner as usize)?;
        *next += 1;
        Some(((owner, *next - 1), template.parse().ok()?))
    }

    /// A pod that was told before it was made, and from which template it is made.
    fn told(&self, pod: PodOf) -> (PodOf, u32) {
        (pod, self.singles_of.get(&pod).copied().unwrap_or(0))
    }

    fn machine_is_made(&mut self, object: &Value) -> Identity {
        let machine = self.made;
        self.made += 1;
        let given = text(object, "name");
        let name = match given {
            "" => self.free_name(text(object, "generateName"), machine),
            given => given.to_owned(),
        };
        self.machines.insert(name.clone(), machine);
        Identity {
            name: Some(name),
            uid: Some(format!("claim-{machine}")),
        }
    }

    /// A name that nothing else has, as the fast engine draws it: a dump that this seed has made has names of it.
    fn free_name(&self, prefix: &str, machine: u32) -> String {
        let first = self.draws.claim_suffix(machine);
        let more = (1..).map(|attempt| self.draws.claim_suffix_again(machine, attempt));
        let suffixes = std::iter::once(first).chain(more);
        let mut names = suffixes.map(|suffix| format!("{prefix}{suffix}"));
        let free = names.find(|name| !self.machines.contains_key(name) && !self.fixed.contains(name));
        free.unwrap_or_default()
    }

    fn pod_is_made(&mut self, object: &Value, now_ms: u64) -> Option<Identity> {
        let (pod, template) = match controller(object) {
            None => self.told(self.single(object)?),
            Some(("ReplicaSet", own)) => match single_of(own) {
                Some(single) => self.told(single),
                None => self.next_of(own)?,
            },
            Some(("StatefulSet", own)) => {
                let owner = own.strip_prefix("owner-")?.parse().ok()?;
                let (_, ordinal) = text(object, "name").rsplit_once('-')?;
                ((owner, ordinal.parse().ok()?), self.newest(owner))
            }
            Some(("Job", own)) => self.told(single_of(own)?),
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
        if template > 0 {
            self.made_of.insert(uid.clone(), template);
        }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_node_claim_gets_the_name_of_a_node_of_no_node_pool() {
        let object = json!({"metadata": {"generateName": "default-"}});
        let first = |names: &mut Names| names.identify("nodeclaims", &object, 0).name;
        let names = || Names::new(&Timeline::default(), 1);
        let taken = first(&mut names()).expect("a name");
        let mut beside = names();
        beside.node_is_fixed(&taken);
        let other = first(&mut beside).expect("a name");
        assert!(other.starts_with("default-") && other != taken, "{other}");
    }
}
