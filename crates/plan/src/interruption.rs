//! What follows from a message of the cloud about an instance (D §7.6).
//!
//! Owns events, the deadline and the deletion. It knows no queue: messages come in as values.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::NodeClaim;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_model::{Action, Event, EventType, Plan};

use crate::lifecycle::{claim_ref, node_ref};
use crate::termination::{self, grace_ends, set_deadline};

/// D-279 … D-282, D-285: the answer to a message about the instance of a NodeClaim and of its Node, if that has come:
/// the deadline, also of a NodeClaim that is being deleted already, and the deletion.
#[must_use]
pub fn respond(
    claim: &NodeClaim,
    node: Option<&Node>,
    kind: InterruptionKind,
    ends_at: Option<Timestamp>,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    let objects = || {
        let node = node.map(|node| (node_ref(node), "Node"));
        std::iter::once((claim_ref(claim), "NodeClaim")).chain(node)
    };
    let Some((type_, reason, message)) = event_of(kind) else {
        return plan;
    };
    for (object, _) in objects() {
        plan.events.push(Event::new(object, type_, reason, message));
    }
    if !kind.ends_node() {
        return plan;
    }
    plan.actions
        .extend(ends_at.and_then(|ends_at| deadline(claim, ends_at, now)));
    if claim.is_deleting() {
        return plan;
    }
    for (object, name) in objects() {
        plan.events.push(Event::new(
            object,
            EventType::Warning,
            "TerminatingOnInterruption",
            format!("Interruption triggered termination for the {name}"),
        ));
    }
    plan.actions.push(Action::delete(claim_ref(claim)));
    plan
}

/// Invariant 33: what is left of the instance's time is what the pods have; a deadline that comes sooner stays, and so does one that the
/// terminationGracePeriod would set (D-301), from the deletion on that follows.
fn deadline(claim: &NodeClaim, ends_at: Timestamp, now: Timestamp) -> Option<Action> {
    let ends_at = Timestamp::from_second(ends_at.as_second()).unwrap_or(ends_at);
    let known = termination::deadline(claim).ok().flatten();
    let deleted = claim.metadata.deletion_timestamp.as_ref();
    let deleted = deleted.map_or(now, |time| time.0);
    let own = known.or_else(|| grace_ends(claim, deleted));
    let deadline = own.map_or(ends_at, |own| own.min(ends_at));
    if known == Some(deadline) {
        return None;
    }
    set_deadline(claim, deadline, false)
}

fn event_of(kind: InterruptionKind) -> Option<(EventType, &'static str, &'static str)> {
    Some(match kind {
        InterruptionKind::SpotInterrupted => (
            EventType::Warning,
            "SpotInterrupted",
            "Spot interruption warning was triggered",
        ),
        InterruptionKind::RebalanceRecommendation => (
            EventType::Normal,
            "SpotRebalanceRecommendation",
            "Spot rebalance recommendation was triggered",
        ),
        InterruptionKind::CapacityReservationInterrupted => (
            EventType::Warning,
            "CapacityReservationInstanceInterrupted",
            "Capacity Reservation interruption warning was triggered",
        ),
        InterruptionKind::InstanceStopped => (EventType::Warning, "InstanceStopping", "Instance is stopping"),
        InterruptionKind::InstanceTerminated => (
            EventType::Warning,
            "InstanceTerminating",
            "Instance is terminating",
        ),
        InterruptionKind::ScheduledChange
        | InterruptionKind::InstanceStatus
        | InterruptionKind::SystemStatus
        | InterruptionKind::EventStatus => (
            EventType::Warning,
            "InstanceUnhealthy",
            "An unhealthy warning was triggered for the instance",
        ),
        InterruptionKind::NoOp => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use spokeshave_api::{NodeClaimSpec, labels};

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn claim(deadline: Option<&str>) -> NodeClaim {
        let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
        claim.metadata.uid = Some("uid".to_owned());
        claim.metadata.annotations =
            deadline.map(|deadline| [(labels::TERMINATION_TIMESTAMP.to_owned(), deadline.to_owned())].into());
        claim
    }

    fn reasons(plan: &Plan) -> Vec<&str> {
        plan.events.iter().map(|event| event.reason.as_str()).collect()
    }

    #[test]
    fn d_280_d_282_a_spot_interruption_is_told_and_deletes_the_nodeclaim() {
        let ends_at = "2026-01-01T00:02:00Z".parse().ok();
        let plan = respond(
            &claim(None),
            None,
            InterruptionKind::SpotInterrupted,
            ends_at,
            now(),
        );
        assert_eq!(reasons(&plan), ["SpotInterrupted", "TerminatingOnInterruption"]);
        assert_eq!(
            plan.actions.len(),
            2,
            "a deadline and a deletion: {:?}",
            plan.actions
        );
    }

    #[test]
    fn d_281_a_deadline_that_comes_sooner_stays() {
        let ends_at = "2026-01-01T00:02:00Z".parse().ok();
        for (deadline, writes) in [
            ("2026-01-01T00:01:00Z", 1),
            ("2026-01-01T01:00:00Z", 2),
            ("soon", 2),
        ] {
            let plan = respond(
                &claim(Some(deadline)),
                None,
                InterruptionKind::SpotInterrupted,
                ends_at,
                now(),
            );
            assert_eq!(plan.actions.len(), writes, "{deadline}");
        }
    }

    fn written(plan: &Plan) -> Option<&str> {
        plan.actions.iter().find_map(|action| match action {
            Action::Patch { patch, .. } => {
                patch["metadata"]["annotations"][labels::TERMINATION_TIMESTAMP].as_str()
            }
            _ => None,
        })
    }

    /// Whoever limits how long a drain may take limits it for all drains.
    #[test]
    fn d_301_d_281_a_termination_grace_period_that_is_over_sooner_stays() {
        let ends_at = "2026-01-01T00:02:00Z".parse().ok();
        let deleted = "2025-12-31T23:59:50Z";
        // Grace period, deletion, known deadline; the deadline that is written.
        for (grace, deletion, known, expected) in [
            ("20s", None, None, Some("2026-01-01T00:00:20Z")),
            ("1h", None, None, Some("2026-01-01T00:02:00Z")),
            ("20s", Some(deleted), None, Some("2026-01-01T00:00:10Z")),
            ("20s", Some(deleted), Some("2026-01-01T00:00:10Z"), None),
            // Somebody has given it longer than that by hand.
            ("20s", Some(deleted), Some("2026-01-01T00:01:00Z"), None),
            (
                "20s",
                Some(deleted),
                Some("2026-01-01T01:00:00Z"),
                Some("2026-01-01T00:02:00Z"),
            ),
        ] {
            let mut claim = claim(known);
            claim.spec.termination_grace_period = grace.parse().ok();
            claim.metadata.deletion_timestamp = deletion.map(|time: &str| Time(time.parse().unwrap()));
            let plan = respond(&claim, None, InterruptionKind::SpotInterrupted, ends_at, now());
            assert_eq!(written(&plan), expected, "{grace} {deletion:?} {known:?}");
        }
    }

    /// A message that does not say when the machine ends gives pods the grace that they have, and takes none away.
    #[test]
    fn g_017_d_281_a_message_without_a_deadline_leaves_the_nodeclaims_own() {
        for deadline in [None, Some("2026-01-01T00:01:00Z")] {
            let plan = respond(
                &claim(deadline),
                None,
                InterruptionKind::InstanceTerminated,
                None,
                now(),
            );
            let [only] = &plan.actions[..] else {
                panic!("{deadline:?}: {:?}", plan.actions);
            };
            assert_eq!(*only, Action::delete(claim_ref(&claim(deadline))), "{deadline:?}");
        }
    }

    #[test]
    fn d_285_a_recommendation_is_told_and_ends_nothing() {
        let plan = respond(
            &claim(None),
            None,
            InterruptionKind::RebalanceRecommendation,
            None,
            now(),
        );
        assert_eq!(reasons(&plan), ["SpotRebalanceRecommendation"]);
        assert!(plan.actions.is_empty());
        let plan = respond(&claim(None), None, InterruptionKind::NoOp, None, now());
        assert!(plan.events.is_empty() && plan.actions.is_empty());
    }
}
