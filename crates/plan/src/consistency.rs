//! Whether a Node has what its NodeClaim was promised: condition `ConsistentStateFound` (P-173, D-271).
//!
//! It informs people; no decision reads it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::conditions::{CONSISTENT_STATE_FOUND, Conditioned, INITIALIZED, Status};
use spokeshave_api::constants::CONSISTENCY_PERCENT;
use spokeshave_api::{NodeClaim, Quantity, WireForm};
use spokeshave_model::{Action, Event, EventType, Subresource};

use crate::lifecycle::claim_ref;

/// True when the claim is to be checked at all.
#[must_use]
pub fn applies(claim: &NodeClaim) -> bool {
    claim.is_true(INITIALIZED) && !claim.is_deleting() && claim.provider_id().is_some()
}

/// Compares, for each requested resource, the Node's capacity with what the cloud promised: the write of the condition and the events.
#[must_use]
pub fn check(claim: &NodeClaim, node: &Node, now: Timestamp) -> (Option<Action>, Vec<Event>) {
    let issues = shortfalls(claim, node);
    let mut after = claim.clone();
    if issues.is_empty() {
        if claim.is_true(CONSISTENT_STATE_FOUND) {
            return (None, Vec::new());
        }
        after.set_true(CONSISTENT_STATE_FOUND, now);
    } else {
        after.set(
            CONSISTENT_STATE_FOUND,
            Status::False,
            "ConsistencyCheckFailed",
            "Consistency Check Failed",
            now,
        );
    }
    let events = issues.into_iter().map(|issue| {
        Event::new(
            claim_ref(claim),
            EventType::Warning,
            "FailedConsistencyCheck",
            issue.clone(),
        )
        .deduped_by([claim.uid().to_owned(), issue])
    });
    let action = Action::patch(claim_ref(claim), Subresource::Status, claim, &after, true);
    (action, events.collect())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share of a whole, shown with one decimal"
)]
fn shortfalls(claim: &NodeClaim, node: &Node) -> Vec<String> {
    let Some(status) = &claim.status else {
        return Vec::new();
    };
    let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
    let requested = |name: &str| claim.spec.resources.requests.contains_key(name);
    let mut issues = Vec::new();
    for (name, wire) in status.capacity.iter().filter(|(name, _)| requested(name)) {
        let Ok(expected) = Quantity::from_wire(wire) else {
            continue;
        };
        let found = capacity
            .and_then(|capacity| capacity.get(name))
            .and_then(|wire| Quantity::from_wire(wire).ok())
            .unwrap_or_default();
        let (expected_milli, found_milli) = (expected.to_milli() as f64, found.to_milli() as f64);
        if expected_milli <= 0.0 {
            continue;
        }
        let percent = 100.0 * found_milli / expected_milli;
        if percent < CONSISTENCY_PERCENT as f64 {
            issues.push(format!(
                "expected {expected} of resource {name}, but found {found} ({percent:.1}% of expected)"
            ));
        }
    }
    issues
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_api::NodeClaimSpec;

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    fn claim() -> NodeClaim {
        let spec = serde_json::json!({"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "resources": {"requests": {"memory": "1Gi"}}});
        let mut claim = NodeClaim::new("c", serde_json::from_value::<NodeClaimSpec>(spec).unwrap());
        claim.metadata.uid = Some("u".to_owned());
        let status = claim.status.get_or_insert_default();
        status.provider_id = Some("kwok://n".to_owned());
        status.capacity = serde_json::from_value(serde_json::json!({"memory": "10Gi", "cpu": "4"})).unwrap();
        claim.set_true(INITIALIZED, now());
        claim
    }

    fn node(memory: &str) -> Node {
        serde_json::from_value(serde_json::json!({"status": {"capacity": {"memory": memory}}})).unwrap()
    }

    #[test]
    fn d_271_below_ninety_percent_is_told() {
        let claim = claim();
        assert!(applies(&claim));
        let (action, events) = check(&claim, &node("8Gi"), now());
        assert_eq!(events.len(), 1, "cpu was not requested");
        assert_eq!(
            events[0].message,
            "expected 10Gi of resource memory, but found 8Gi (80.0% of expected)"
        );
        assert_eq!(events[0].reason, "FailedConsistencyCheck");
        let Some(Action::Patch {
            patch,
            subresource: Subresource::Status,
            ..
        }) = action
        else {
            panic!("a write of the status")
        };
        let conditions = patch["status"]["conditions"].as_array().unwrap();
        let found = conditions
            .iter()
            .find(|condition| condition["type"] == CONSISTENT_STATE_FOUND)
            .unwrap();
        assert_eq!(
            (&found["status"], &found["reason"]),
            (&"False".into(), &"ConsistencyCheckFailed".into())
        );
    }

    #[test]
    fn d_271_enough_is_true_and_written_once() {
        let mut claim = claim();
        let (action, events) = check(&claim, &node("9Gi"), now());
        assert!(action.is_some() && events.is_empty());
        claim.set_true(CONSISTENT_STATE_FOUND, now());
        assert_eq!(check(&claim, &node("10Gi"), now()), (None, Vec::new()));
    }

    #[test]
    fn p_173_only_initialised_claims_are_checked() {
        let mut young = claim();
        young.clear(INITIALIZED);
        assert!(!applies(&young));
    }
}
