//! NodeClaims that have no instance yet, as they count in a Snapshot.
//!
//! Upstream stops all planning while one NodeClaim launches (P-054, D-047). Here such a claim takes part as a stand-in: it counts against its
//! NodePool's limits with the most that it may become, and it has room for the pods it was made for, so that nobody buys for them again. These are on it as if
//! they were bound: no place is sought for them, and rules of topology count them where the node will be.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use spokeshave_api::{NodeClaim, Operator, Quantity, WireForm, labels};
use spokeshave_model::snapshot::STAND_IN;
use spokeshave_model::{InstanceType, Pod, Requirements, Resources, pod};

/// Who the pods of a claim are known to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The pods are known, and on it: nothing else may be planned onto the claim before it has an instance.
    Taken,
    /// The pods are not known (the claim is a predecessor's): whatever fits into its requests may be planned onto it.
    Open,
}

/// The claim as a node on its way, under a provider ID of its own that no cloud uses. `types` are its NodePool's.
#[must_use]
pub fn stand_in(claim: &NodeClaim, types: &[InstanceType], room: Room) -> NodeClaim {
    let mut after = claim.clone();
    let most = most_capacity(claim, types);
    let settled = settled_labels(claim);
    let own = after.metadata.labels.get_or_insert_default();
    for (key, value) in settled {
        own.entry(key).or_insert(value);
    }
    let requests = &claim.spec.resources.requests;
    let status = after.status.get_or_insert_default();
    status.provider_id = Some(stand_in_id(claim.uid()));
    status.allocatable = match room {
        Room::Taken => BTreeMap::new(),
        Room::Open => requests.clone(),
    };
    status.capacity = requests.clone();
    for (name, quantity) in most.to_quantities() {
        let larger = status
            .capacity
            .get(&name)
            .is_none_or(|have| is_larger(&quantity, have));
        if larger {
            status.capacity.insert(name, quantity);
        }
    }
    after
}

/// The provider ID of the stand-in for the claim of a UID; what is yet to be made has its name for one.
#[must_use]
pub fn stand_in_id(uid: &str) -> String {
    format!("{STAND_IN}{uid}")
}

/// A pod that waits for the NodeClaim which was made for it, as it counts until that has an instance: on the stand-in with this provider ID (P-107).
#[must_use]
pub fn expected_on(pod: &Pod, stand_in: &str) -> Pod {
    Pod {
        node_name: Some(stand_in.to_owned()),
        ..pod.clone()
    }
}

/// Whether a pod is one of those.
#[must_use]
pub fn is_expected(pod: &Pod) -> bool {
    pod::node_name(pod).is_some_and(|name| name.starts_with(STAND_IN))
}

/// A claim whose Node somebody has torn away: its machine runs and counts, and nothing can be placed on it.
#[must_use]
pub fn without_room(claim: &NodeClaim) -> NodeClaim {
    let mut after = claim.clone();
    after.status.get_or_insert_default().allocatable = BTreeMap::new();
    after
}

fn is_larger(left: &WireQuantity, right: &WireQuantity) -> bool {
    match (Quantity::from_wire(left), Quantity::from_wire(right)) {
        (Ok(left), Ok(right)) => left > right,
        (Ok(_), Err(_)) => true,
        (Err(_), _) => false,
    }
}

/// Per resource, the most of any instance type that the claim allows: which one the cloud takes is not known yet, and a limit must hold for each.
fn most_capacity(claim: &NodeClaim, types: &[InstanceType]) -> Resources {
    let mut most = Resources::new();
    // Requirements from a future version allow we do not know what, so every type counts.
    let wanted = Requirements::from_api(&claim.spec.requirements).unwrap_or_default();
    let named = wanted.find(labels::INSTANCE_TYPE);
    for instance_type in types {
        if named.is_none_or(|named| named.has(&instance_type.name)) {
            most.raise_to(&instance_type.capacity);
        }
    }
    most
}

/// Labels that the node will have whatever the cloud takes: requirements with one value.
fn settled_labels(claim: &NodeClaim) -> BTreeMap<String, String> {
    claim
        .spec
        .requirements
        .iter()
        .filter(|entry| entry.operator == Operator::In && entry.values.len() == 1)
        .map(|entry| (entry.key.clone(), entry.values[0].clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_api::NodeClaimSpec;

    fn claim() -> NodeClaim {
        let spec = serde_json::json!({
            "nodeClassRef": {"group": "g", "kind": "k", "name": "n"},
            "resources": {"requests": {"cpu": "3", "pods": "4"}},
            "requirements": [
                {"key": labels::INSTANCE_TYPE, "operator": "In", "values": ["small", "large"]},
                {"key": labels::ZONE, "operator": "In", "values": ["a"]},
            ],
        });
        let mut claim = NodeClaim::new("c", serde_json::from_value::<NodeClaimSpec>(spec).unwrap());
        claim.metadata.uid = Some("u".to_owned());
        claim
    }

    fn instance_type(name: &str, cores: i64) -> InstanceType {
        InstanceType {
            name: name.to_owned(),
            capacity: Resources::from_amounts([("cpu", cores * 1000)]),
            ..InstanceType::default()
        }
    }

    #[test]
    fn p_065_a_claim_in_flight_counts_with_the_most_that_it_may_become() {
        let types = [
            instance_type("small", 4),
            instance_type("large", 8),
            instance_type("other", 96),
        ];
        let stand_in = stand_in(&claim(), &types, Room::Taken);
        let status = stand_in.status.as_ref().unwrap();
        assert_eq!(status.capacity["cpu"].0, "8");
        assert_eq!(status.capacity["pods"].0, "4");
        assert!(status.allocatable.is_empty(), "nothing else is planned onto it");
        assert_eq!(stand_in.provider_id(), Some("in-flight://u"));
        assert_eq!(stand_in.label(labels::ZONE), Some("a"));
        assert_eq!(stand_in.label(labels::INSTANCE_TYPE), None);
    }

    #[test]
    fn p_054_a_predecessors_claim_has_room_for_what_it_was_made_for() {
        let stand_in = stand_in(&claim(), &[instance_type("small", 4)], Room::Open);
        assert_eq!(stand_in.status.as_ref().unwrap().allocatable["cpu"].0, "3");
        assert_eq!(stand_in.status.unwrap().capacity["cpu"].0, "4");
    }
}
