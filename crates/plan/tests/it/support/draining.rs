//! A node that is drained: a small world with an Eviction API, kubelets and a cloud that do exactly what they are told. It is looked at only when a
//! decision asks for it or something changes, as the operator does.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use spokeshave_api::conditions::{Conditioned, REGISTERED};
use spokeshave_api::{NodeClaim, NodeClaimSpec, labels};
use spokeshave_model::Pod;
use spokeshave_model::{Action, ObjectKind, Plan};
use spokeshave_plan::termination::{
    ClaimStep, EvictionStep, NodeEnd, NodeNext, claim_step, deadline, eviction_step, instance_terminating,
    node_step,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn at(text: &str) -> Timestamp {
    format!("2026-01-01T{text}Z").parse().unwrap()
}

pub(crate) fn plus(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(seconds)).unwrap()
}

/// A pod, and what its surroundings make of it.
pub(crate) struct Guest {
    pub(crate) pod: Pod,
    /// The Eviction API answers 429.
    pub(crate) budget_blocks: bool,
    /// It ignores the order to stop until its time is over.
    pub(crate) stubborn: bool,
    /// It does not even go then.
    pub(crate) stuck: bool,
}

pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) node: Node,
    pub(crate) claim: Option<NodeClaim>,
    pub(crate) guests: Vec<Guest>,
    pub(crate) attachments: Vec<Arc<VolumeAttachment>>,
    /// When the cloud has done what it was asked.
    pub(crate) instance_ends: Option<Timestamp>,
    pub(crate) log: Vec<(Timestamp, String)>,
    pub(crate) done: bool,
}

pub(crate) fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => into.clone_from(from),
    }
}

pub(crate) fn patched<K: serde::Serialize + serde::de::DeserializeOwned>(object: &K, patch: &Value) -> K {
    let mut value = serde_json::to_value(object).unwrap();
    merge(&mut value, patch);
    serde_json::from_value(value).unwrap()
}

pub(crate) fn guest(name: &str, grace: i64, change: Value) -> Guest {
    let pod = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}")},
        "spec": {"nodeName": "n", "containers": [], "terminationGracePeriodSeconds": grace},
        "status": {"phase": "Running"},
    });
    Guest {
        pod: patched(&serde_json::from_value::<Pod>(pod).unwrap(), &change),
        budget_blocks: false,
        stubborn: false,
        stuck: false,
    }
}

impl World {
    /// A registered node whose NodeClaim was deleted at 12:00:00.
    pub(crate) fn new(grace: Option<&str>, guests: Vec<Guest>) -> Self {
        let now = at("12:00:00");
        let mut spec = json!({"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}});
        if let Some(grace) = grace {
            spec["terminationGracePeriod"] = json!(grace);
        }
        let mut claim = NodeClaim::new("c", serde_json::from_value::<NodeClaimSpec>(spec).unwrap());
        claim.metadata.uid = Some("uid-c".to_owned());
        claim.metadata.resource_version = Some("1".to_owned());
        claim.metadata.finalizers = Some(vec![labels::TERMINATION_FINALIZER.to_owned()]);
        claim.metadata.deletion_timestamp = Some(Time(now));
        claim.status.get_or_insert_default().provider_id = Some("kwok://n".to_owned());
        claim.set_true(REGISTERED, at("11:00:00"));
        let node = json!({
            "metadata": {"name": "n", "uid": "uid-n", "resourceVersion": "1", "finalizers": [labels::TERMINATION_FINALIZER]},
            "spec": {"providerID": "kwok://n"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        Self {
            now,
            node: serde_json::from_value(node).unwrap(),
            claim: Some(claim),
            guests,
            attachments: Vec::new(),
            instance_ends: None,
            log: Vec::new(),
            done: false,
        }
    }

    pub(crate) fn note(&mut self, what: impl Into<String>) {
        self.log.push((self.now, what.into()));
    }

    pub(crate) fn write(&mut self, action: &Action) {
        match action {
            Action::Patch { target, patch, .. } if target.kind == ObjectKind::Node => {
                self.node = patched(&self.node, patch);
            }
            Action::Patch { patch, .. } => {
                let claim = self.claim.take().unwrap();
                self.claim = Some(patched(&claim, patch));
            }
            Action::Delete { target, .. } if target.kind == ObjectKind::Node => {
                let now = self.now;
                self.node.metadata.deletion_timestamp.get_or_insert(Time(now));
                self.note("node deleted");
            }
            Action::Delete {
                target,
                grace_period_seconds: Some(grace),
            } => {
                self.note(format!("delete {} with {grace} s", target.name));
                self.stop(&target.name, *grace);
            }
            Action::EvictPod { target, .. } => {
                let blocked = self.guests.iter().any(|guest| {
                    guest.budget_blocks && guest.pod.metadata.name.as_deref() == Some(&target.name)
                });
                if blocked {
                    return;
                }
                self.note(format!("evict {}", target.name));
                let grace = self.guest(&target.name).pod.spec.as_ref().unwrap();
                let grace = grace.termination_grace_period_seconds.unwrap();
                self.stop(&target.name, grace);
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn guest(&mut self, name: &str) -> &mut Guest {
        let mut guests = self.guests.iter_mut();
        guests
            .find(|guest| guest.pod.metadata.name.as_deref() == Some(name))
            .unwrap()
    }

    /// A pod is asked to stop; a second order can only make its time shorter.
    pub(crate) fn stop(&mut self, name: &str, grace: i64) {
        let due = plus(self.now, grace);
        let guest = self.guest(name);
        let known = guest.pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        guest.pod.metadata.deletion_timestamp = Some(Time(known.map_or(due, |known| known.min(due))));
    }

    /// Pods whose time has come are gone, those that are no trouble after two seconds.
    pub(crate) fn kubelet(&mut self) {
        let now = self.now;
        let gone = |guest: &Guest| {
            let Some(due) = &guest.pod.metadata.deletion_timestamp else {
                return false;
            };
            let grace = guest.pod.spec.as_ref().unwrap().termination_grace_period_seconds;
            let asked = plus(due.0, -grace.unwrap_or(0));
            let quick = !guest.stubborn && now >= plus(asked, 2.min(grace.unwrap_or(0)));
            !guest.stuck && (now >= due.0 || quick)
        };
        let names: Vec<String> = self
            .guests
            .iter()
            .filter(|guest| gone(guest))
            .map(|guest| guest.pod.metadata.name.clone().unwrap())
            .collect();
        for name in names {
            self.note(format!("{name} is gone"));
            self.guests
                .retain(|guest| guest.pod.metadata.name.as_deref() != Some(&name));
        }
    }

    /// One look at the claim, and one at the node; returns when the next is due at the latest.
    pub(crate) fn look(&mut self) -> Duration {
        if let Some(claim) = &self.claim
            && let ClaimStep::Write(Plan { actions, .. }) = claim_step(claim, &[Arc::new(self.node.clone())])
        {
            for action in &actions {
                self.write(action);
            }
        }
        if self.node.metadata.deletion_timestamp.is_none() {
            return Duration::ZERO;
        }
        let pods: Vec<Arc<Pod>> = self
            .guests
            .iter()
            .map(|guest| Arc::new(guest.pod.clone()))
            .collect();
        let (node, claim) = (self.node.clone(), self.claim.clone());
        let attachments = self.attachments.clone();
        let kept = BTreeSet::new();
        let end = NodeEnd {
            node: &node,
            claim: claim.as_ref(),
            pods: &pods,
            attachments: &attachments,
            kept_volumes: &kept,
        };
        let step = node_step(&end, self.now).unwrap();
        for action in &step.actions {
            self.write(action);
        }
        for target in &step.report.evict {
            let deadline = self.claim.as_ref().and_then(|claim| deadline(claim).unwrap());
            let pod = self.guest(&target.name).pod.clone();
            match eviction_step(&pod, deadline, self.now) {
                EvictionStep::Drop | EvictionStep::Keep => {}
                EvictionStep::Evict(action) | EvictionStep::Delete(action, _) => self.write(&action),
            }
        }
        match step.report.next {
            NodeNext::Wait(pause) => pause,
            NodeNext::Release => {
                self.note("node released");
                self.done = true;
                Duration::ZERO
            }
            NodeNext::TerminateInstance => self.terminate(),
        }
    }

    pub(crate) fn terminate(&mut self) -> Duration {
        match self.instance_ends {
            None => {
                self.note("instance asked to end");
                self.instance_ends = Some(plus(self.now, 7));
                let action = instance_terminating(self.claim.as_ref().unwrap(), self.now).unwrap();
                self.write(&action);
                Duration::from_secs(5)
            }
            Some(end) if self.now < end => Duration::from_secs(5),
            Some(_) => {
                self.note("node released");
                self.done = true;
                Duration::ZERO
            }
        }
    }

    /// Runs until a time, or until the node is released. Between the looks that were asked for, only changes bring one.
    pub(crate) fn run_until(&mut self, until: Timestamp) {
        let mut due = self.now;
        while self.now <= until && !self.done {
            let before = self.guests.len();
            self.kubelet();
            if self.now >= due || self.guests.len() != before {
                let mut pause = self.look();
                // A pause of nothing asks for another look at once.
                for _ in 0..5 {
                    if !pause.is_zero() || self.done {
                        break;
                    }
                    pause = self.look();
                }
                due = self.now.saturating_add(pause).unwrap();
            }
            self.now = self.now.saturating_add(SignedDuration::from_millis(500)).unwrap();
        }
    }

    pub(crate) fn run(&mut self) {
        self.run_until(at("23:00:00"));
        assert!(self.done, "{:#?}", self.log);
    }

    /// When something happened, as `HH:MM:SS`, in order.
    pub(crate) fn times(&self, what: &str) -> Vec<String> {
        let found = self.log.iter().filter(|(_, entry)| entry == what);
        found
            .map(|(time, _)| time.to_string()[11..19].to_owned())
            .collect()
    }

    pub(crate) fn order(&self) -> Vec<&str> {
        self.log.iter().map(|(_, entry)| entry.as_str()).collect()
    }

    pub(crate) fn status(&self, type_: &str) -> (String, String) {
        let claim = self.claim.as_ref().unwrap();
        let condition = claim.condition(type_).unwrap();
        (condition.status.clone(), condition.reason.clone())
    }
}
