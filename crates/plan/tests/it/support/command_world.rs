//! A world in which commands are carried out: objects that do what writes say.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, DISRUPTION_REASON, DRIFTED, INITIALIZED};
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::labels::DISRUPTION;
use spokeshave_model::{Action, ObjectKind, Pod};
use spokeshave_plan::disrupt::advance::{Milestone, Present, PresentNode, advance};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

pub(crate) fn node(name: &str) -> Node {
    serde_json::from_value(
        json!({"metadata": {"name": name, "uid": format!("node-{name}"), "resourceVersion": "1"}}),
    )
    .unwrap()
}

pub(crate) fn claim(name: &str) -> NodeClaim {
    let mut claim = NodeClaim::new(name, Default::default());
    claim.metadata.uid = Some(format!("uid-{name}"));
    claim
}

pub(crate) fn command(nodes: &[&str], replacements: &[&str], method: &str) -> Disruption {
    let nodes: Vec<Value> = nodes
        .iter()
        .map(|name| json!({"name": name, "nodeClaim": name, "nodeClaimUID": format!("uid-{name}"), "providerID": name, "nodePool": "p", "price": "1", "pods": 2}))
        .collect();
    let class = json!({"group": "g", "kind": "k", "name": "n"});
    let replacements: Vec<Value> = replacements
        .iter()
        .map(|name| json!({"nodeClaim": name, "nodePool": "p", "price": "0.5", "metadata": {"annotations": {"spokeshave.dev/disruption": "d"}},
                           "spec": {"nodeClassRef": class, "requirements": []}}))
        .collect();
    let reason = match method {
        "Emptiness" => "Empty",
        "Drift" => "Drifted",
        _ => "Underutilized",
    };
    serde_json::from_value(json!({
        "metadata": {"name": "d", "uid": "d"},
        "spec": {"method": method, "reason": reason, "decision": if replacements.is_empty() { "Delete" } else { "Replace" },
                 "decidedAt": "2023-11-14T22:13:20.000000Z", "nodes": nodes, "replacements": replacements, "priceBefore": "2", "priceAfter": "0.5",
                 "savings": "1.5", "evictions": 2, "nodeSummary": "n", "replacementSummary": "-"},
    }))
    .unwrap()
}

/// Objects that do what writes say.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) disruption: Disruption,
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) claims: BTreeMap<String, NodeClaim>,
    pub(crate) pods: Vec<Arc<Pod>>,
    pub(crate) said: Vec<Milestone>,
}

impl World {
    pub(crate) fn new(disruption: Disruption) -> Self {
        let names: Vec<String> = disruption.spec.nodes.iter().map(|one| one.name.clone()).collect();
        let is_drift = disruption.spec.method.is_drift();
        let claim = |name: &String| {
            let mut claim = claim(name);
            if is_drift {
                claim.set_true(DRIFTED, at(-60));
            }
            (name.clone(), claim)
        };
        World {
            disruption,
            nodes: names.iter().map(|name| (name.clone(), node(name))).collect(),
            claims: names.iter().map(claim).collect(),
            pods: Vec::new(),
            said: Vec::new(),
        }
    }

    /// What a command is shown: a namesake of what it names is not there.
    pub(crate) fn present(&self) -> Present {
        let spec = &self.disruption.spec;
        let is_ours = |claim: &&NodeClaim| claim.annotation(DISRUPTION) == Some(self.disruption.name());
        Present {
            nodes: spec
                .nodes
                .iter()
                .map(|one| PresentNode {
                    node: self.nodes.get(&one.name).cloned().map(Arc::new),
                    claim: self
                        .claims
                        .get(&one.node_claim)
                        .filter(|claim| claim.uid() == one.node_claim_uid)
                        .cloned()
                        .map(Arc::new),
                    pods: self.pods.clone(),
                })
                .collect(),
            replacements: spec
                .replacements
                .iter()
                .map(|one| {
                    let claim = self.claims.get(&one.node_claim).filter(is_ours);
                    claim.cloned().map(Arc::new)
                })
                .collect(),
            destinations: spec
                .destinations
                .iter()
                .map(|name| (name.clone(), self.nodes.get(name).cloned().map(Arc::new)))
                .collect(),
            queued_nodes: spec.nodes.len(),
            ..Present::default()
        }
    }

    pub(crate) fn apply(&mut self, action: &Action) {
        match action {
            Action::CreateNodeClaim { claim, .. } => {
                let mut claim = NodeClaim::clone(claim);
                assert!(!self.claims.contains_key(claim.name()), "created twice");
                claim.metadata.uid = Some(format!("uid-{}", claim.name()));
                self.claims.insert(claim.name().to_owned(), claim);
            }
            Action::Delete { target, .. } => {
                let claim = self.claims.get_mut(&target.name).unwrap();
                assert_eq!(claim.uid(), target.uid, "a namesake is deleted");
                assert!(!claim.is_deleting(), "deleted twice");
                claim.metadata.deletion_timestamp =
                    Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
            }
            Action::Patch { target, patch, .. } => match target.kind {
                ObjectKind::Node => patched(self.nodes.get_mut(&target.name).unwrap(), patch),
                ObjectKind::NodeClaim => {
                    let claim = self.claims.get_mut(&target.name).unwrap();
                    assert_eq!(claim.uid(), target.uid, "a namesake is changed");
                    patched(claim, patch);
                }
                ObjectKind::Disruption => patched(&mut self.disruption, patch),
                other => panic!("a patch of {other:?}"),
            },
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Looks until nothing more is written; dies for good after `writes`. Returns the writes that were made.
    pub(crate) fn run(&mut self, mut now: Timestamp, mut writes: usize) -> usize {
        let mut made = 0;
        for _ in 0..50 {
            let next = advance(&self.disruption, &self.present(), now);
            if next.actions.is_empty() {
                match next.report.again {
                    Some(wait) if self.disruption.phase() == DisruptionPhase::Deleting => now += wait,
                    _ => return made,
                }
            }
            for (action, milestone) in next.actions.iter().zip(&next.report.milestones) {
                if writes == 0 {
                    return made;
                }
                self.apply(action);
                self.said.extend(milestone.clone());
                writes -= 1;
                made += 1;
            }
        }
        panic!("it never comes to rest: {:?}", self.disruption.status);
    }

    /// Looks once, with something else present, and does what is written; what is said is not kept.
    pub(crate) fn look(&mut self, now: Timestamp, edit: impl FnOnce(&mut Present)) {
        let mut present = self.present();
        edit(&mut present);
        for action in &advance(&self.disruption, &present, now).actions {
            self.apply(action);
        }
    }

    pub(crate) fn initialise(&mut self, name: &str) {
        self.claims.get_mut(name).unwrap().set_true(INITIALIZED, at(1));
    }

    /// Termination: what is told to go is gone.
    pub(crate) fn terminate(&mut self) {
        let going: Vec<String> = self
            .claims
            .values()
            .filter(|claim| claim.is_deleting())
            .map(|claim| claim.name().to_owned())
            .collect();
        for name in going {
            self.claims.remove(&name);
            self.nodes.remove(&name);
        }
    }

    pub(crate) fn tainted(&self) -> usize {
        let taints = |node: &&Node| {
            node.spec
                .as_ref()
                .and_then(|spec| spec.taints.as_ref())
                .is_some_and(|all| !all.is_empty())
        };
        self.nodes.values().filter(taints).count()
    }

    pub(crate) fn marked(&self) -> usize {
        self.claims
            .values()
            .filter(|claim| claim.condition(DISRUPTION_REASON).is_some())
            .count()
    }
}

pub(crate) fn patched<T: serde::Serialize + serde::de::DeserializeOwned>(object: &mut T, patch: &Value) {
    let mut value = serde_json::to_value(&*object).unwrap();
    merge(&mut value, patch);
    *object = serde_json::from_value(value).unwrap();
}

pub(crate) fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut into[key], value);
        }
    }
}

pub(crate) const FOR_EVER: usize = usize::MAX;
