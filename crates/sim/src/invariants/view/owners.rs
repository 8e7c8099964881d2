//! What controls pods, as the checkers see it: how many there are to be.
//!
//! Owns the sum over the controllers of some pods. What follows from it for a budget is the budget's affair.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::{Key, Pod, SOON, later, text};

/// Kind, then namespace and name.
type Owner = (String, Key);

/// Deployments, ReplicaSets and StatefulSets: what Kubernetes can scale.
#[derive(Debug, Default)]
pub(crate) struct Owners(BTreeMap<Owner, Scale>);

#[derive(Debug)]
struct Scale {
    uid: String,
    replicas: i64,
    /// The least that it has been until a moment ago, and when it ceased to be that.
    before: Option<(i64, Timestamp)>,
    /// Name and UID of the Deployment that a ReplicaSet belongs to.
    deployment: Option<(String, String)>,
}

impl Scale {
    /// Whoever counts pods need not have heard of the last change.
    fn least(&self, now: Timestamp) -> i64 {
        let before = self.before.filter(|(_, until)| later(*until, SOON) > now);
        before.map_or(self.replicas, |(least, _)| least.min(self.replicas))
    }
}

impl Owners {
    /// Folds a write of an object of the group `apps` in.
    pub(crate) fn fold(&mut self, plural: &str, key: Key, value: Option<&Value>, now: Timestamp) {
        let kind = match plural {
            "deployments" => "Deployment",
            "replicasets" => "ReplicaSet",
            "statefulsets" => "StatefulSet",
            _ => return,
        };
        let owner = (kind.to_owned(), key);
        let Some(value) = value else {
            self.0.remove(&owner);
            return;
        };
        let replicas = value["spec"]["replicas"].as_i64().unwrap_or(1);
        let before = self.0.get(&owner).and_then(|known| {
            if known.replicas == replicas {
                known.before
            } else {
                Some((known.least(now), now))
            }
        });
        let scale = Scale {
            uid: text(value, &["metadata", "uid"]).to_owned(),
            replicas,
            before,
            deployment: deployment_of(value),
        };
        self.0.insert(owner, scale);
    }

    /// How many pods the controllers of these are to have. `None` where one of them is gone or cannot be scaled, or where there are to be none: then
    /// pods are counted in other ways.
    pub(crate) fn expected<'pod>(
        &self,
        pods: impl Iterator<Item = &'pod Pod>,
        now: Timestamp,
    ) -> Option<i64> {
        let owners: Option<BTreeSet<Owner>> = pods.map(|pod| self.owner_of(pod)).collect();
        let owners = owners?;
        let scales = owners.iter().map(|owner| Some(self.0.get(owner)?.least(now)));
        let total: Option<i64> = scales.sum();
        total.filter(|total| *total > 0)
    }

    /// What decides how many pods like this one there are: of a ReplicaSet its Deployment, if it has one. `None` where that is gone, whatever has its name now.
    fn owner_of(&self, pod: &Pod) -> Option<Owner> {
        let (namespace, shape) = (&pod.key.0, &pod.shape);
        let named = |kind: &str, name: &str| (kind.to_owned(), (namespace.clone(), name.to_owned()));
        let own = named(&shape.owner_kind, &shape.owner_name);
        let Some((name, uid)) = &self.very(&own, &shape.owner_uid)?.deployment else {
            return Some(own);
        };
        let deployment = named("Deployment", name);
        self.very(&deployment, uid)?;
        Some(deployment)
    }

    /// The owner of this name, if it is the one of this UID.
    fn very(&self, owner: &Owner, uid: &str) -> Option<&Scale> {
        self.0.get(owner).filter(|scale| scale.uid == uid)
    }
}

fn deployment_of(value: &Value) -> Option<(String, String)> {
    let owners = value["metadata"]["ownerReferences"].as_array()?;
    let owner = owners
        .iter()
        .find(|owner| owner["controller"] == true && owner["kind"] == "Deployment")?;
    Some((
        text(owner, &["name"]).to_owned(),
        text(owner, &["uid"]).to_owned(),
    ))
}
