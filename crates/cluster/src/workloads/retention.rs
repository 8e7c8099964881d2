//! Which claims go with their StatefulSet, and which with a pod that it does not want any more (`persistentVolumeClaimRetentionPolicy`).
//!
//! Owns the references of such claims to the set and its pods; the collector does the rest.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use spokeshave_runtime::{ObjectKey, ReconcileError, Requeue};

use super::claims::{Claimant as _, write_owners};
use crate::objects::{name, namespace, owner, uid};
use crate::world::World;

/// With whom a claim goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeper {
    Nobody,
    Set,
    Pod,
}

impl Keeper {
    /// Of the claims of a pod that the set wants, or does not want any more.
    pub(super) fn of(set: &StatefulSet, is_wanted: bool) -> Self {
        let policy = set.spec.persistent_volume_claim_retention_policy.as_ref();
        let deletes = |value: Option<&String>| value.is_some_and(|value| value == "Delete");
        if !is_wanted && deletes(policy.and_then(|policy| policy.when_scaled.as_ref())) {
            Self::Pod
        } else if deletes(policy.and_then(|policy| policy.when_deleted.as_ref())) {
            Self::Set
        } else {
            Self::Nobody
        }
    }
}

/// Whether claims are deleted with pods that are not wanted any more.
fn deletes_when_scaled(set: &StatefulSet) -> bool {
    Keeper::of(set, false) == Keeper::Pod
}

/// The claim of a volume of a pod.
pub(super) fn claim_name(template: &PersistentVolumeClaim, pod_name: &str) -> String {
    format!("{}-{pod_name}", name(&template.metadata))
}

/// The owner of a new claim.
pub(super) fn first_owner(set: &StatefulSet) -> Option<Vec<OwnerReference>> {
    (Keeper::of(set, true) == Keeper::Set).then(|| vec![set.reference()])
}

/// Writes on the claims of a pod with whom they go. Another look is needed where another writer was faster.
pub(super) async fn follow(
    world: &World,
    set: &StatefulSet,
    pod: &Pod,
    is_wanted: bool,
) -> Result<Requeue, ReconcileError> {
    let mut again = Requeue::Done;
    for template in set.spec.volume_claim_templates.iter().flatten() {
        let claim_name = claim_name(template, name(&pod.metadata));
        let key = ObjectKey::namespaced(namespace(&set.metadata), claim_name);
        let Some(claim) = world.claims.get(&key) else {
            continue;
        };
        let keeper = Keeper::of(set, is_wanted);
        if let Some(owners) = owners(&claim.metadata, set, &pod.metadata, keeper)
            && !write_owners(world, &world.claims, &*claim, &owners).await?
        {
            again = Requeue::Stale;
        }
    }
    Ok(again)
}

/// Whether a claim of this pod, which is still to be made, goes with an earlier one of its name.
pub(super) fn is_stale(world: &World, set: &StatefulSet, pod_name: &str) -> bool {
    deletes_when_scaled(set)
        && set.spec.volume_claim_templates.iter().flatten().any(|template| {
            let key = ObjectKey::namespaced(namespace(&set.metadata), claim_name(template, pod_name));
            let claim = world.claims.get(&key);
            claim.is_some_and(|claim| {
                let owners = claim.metadata.owner_references.iter().flatten();
                let mut pods = owners.filter(|owner| owner.kind == "Pod");
                pods.any(|owner| owner.name == pod_name)
            })
        })
}

/// The owners that a claim is to have, where it has others. One of an earlier set or pod of the same name is left alone, as is one that somebody else controls.
fn owners(
    claim: &ObjectMeta,
    set: &StatefulSet,
    pod: &ObjectMeta,
    keeper: Keeper,
) -> Option<Vec<OwnerReference>> {
    let known = claim.owner_references.clone().unwrap_or_default();
    let (set_reference, pod_reference) = (set.reference(), owner("v1", "Pod", pod));
    let is_earlier = |one: &OwnerReference| {
        [&set_reference, &pod_reference].into_iter().any(|own| {
            one.api_version == own.api_version
                && one.kind == own.kind
                && one.name == own.name
                && one.uid != own.uid
        })
    };
    if known.iter().any(is_earlier) {
        return None;
    }
    let is_own = |one: &OwnerReference| one.uid == uid(&set.metadata) || one.uid == uid(pod);
    let mut owners: Vec<OwnerReference> = known.iter().filter(|one| !is_own(one)).cloned().collect();
    let is_controlled = owners.iter().any(|one| one.controller == Some(true));
    let wanted = match keeper {
        Keeper::Nobody => None,
        Keeper::Set => Some(set_reference),
        Keeper::Pod => Some(pod_reference),
    };
    owners.extend(wanted.filter(|_| !is_controlled));
    (owners != known).then_some(owners)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(deleted: &str, scaled: &str) -> StatefulSet {
        let policy = json!({"whenDeleted": deleted, "whenScaled": scaled});
        let object = json!({"metadata": {"name": "db", "uid": "s"}, "spec": {
            "selector": {}, "template": {}, "persistentVolumeClaimRetentionPolicy": policy,
        }});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_policy_says_with_whom_a_claim_goes() {
        let keepers = |deleted: &str, scaled: &str| {
            let set = set(deleted, scaled);
            [Keeper::of(&set, true), Keeper::of(&set, false)]
        };
        assert_eq!(keepers("Retain", "Retain"), [Keeper::Nobody, Keeper::Nobody]);
        assert_eq!(keepers("Delete", "Retain"), [Keeper::Set, Keeper::Set]);
        assert_eq!(keepers("Retain", "Delete"), [Keeper::Nobody, Keeper::Pod]);
        assert_eq!(keepers("Delete", "Delete"), [Keeper::Set, Keeper::Pod]);
    }

    #[test]
    fn owners_of_claims_follow_the_policy_and_leave_those_of_others_alone() {
        let (set, pod) = (set("Delete", "Delete"), named("db-0", "p"));
        let next = |known: Vec<OwnerReference>, keeper: Keeper| -> Option<Vec<String>> {
            let claim = ObjectMeta {
                owner_references: Some(known),
                ..ObjectMeta::default()
            };
            let owners = owners(&claim, &set, &pod, keeper)?;
            Some(owners.into_iter().map(|one| one.uid).collect())
        };
        let only = |uid: &str| Some(vec![uid.to_owned()]);
        let (own, of_pod) = (set.reference(), owner("v1", "Pod", &pod));
        assert_eq!(next(Vec::new(), Keeper::Set), only("s"));
        assert_eq!(next(vec![own.clone()], Keeper::Set), None);
        assert_eq!(next(vec![own.clone()], Keeper::Pod), only("p"));
        assert_eq!(next(vec![own.clone(), of_pod], Keeper::Nobody), Some(Vec::new()));
        let other = owner("example.com/v1", "Backup", &named("b", "b"));
        assert_eq!(next(vec![other.clone()], Keeper::Set), None);
        assert_eq!(next(vec![other, own], Keeper::Set), only("b"));
        let earlier = owner("v1", "Pod", &named("db-0", "q"));
        assert_eq!(next(vec![earlier], Keeper::Set), None);
    }

    fn named(object_name: &str, uid: &str) -> ObjectMeta {
        let metadata: Value = json!({"name": object_name, "uid": uid});
        serde_json::from_value(metadata).unwrap()
    }
}
