//! consolidateAfter: when a node was last disturbed, and from when on it may be consolidated (D-036…D-043).

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spokeshave_api::conditions::{CONSOLIDATABLE, Conditioned, INITIALIZED};
use spokeshave_api::constants::POD_EVENT_DEDUPLICATION;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::pod::{is_daemon, is_terminal, is_terminating, node_name};
use spokeshave_model::{Action, Subresource};

use crate::lifecycle::claim_ref;

/// D-036, D-037: the node whose clock a change of a pod restarts.
#[must_use]
pub fn disturbed_node<'a>(before: Option<&Pod>, after: Option<&'a Pod>) -> Option<&'a str> {
    let pod = after?;
    let node = node_name(pod).filter(|name| !name.is_empty())?;
    if is_daemon(pod) {
        return None;
    }
    let fresh = |test: fn(&Pod) -> bool| test(pod) && !before.is_some_and(test);
    let bound = |pod: &Pod| node_name(pod).is_some_and(|name| !name.is_empty());
    (fresh(bound) || fresh(is_terminal) || fresh(is_terminating)).then_some(node)
}

/// D-036: the write of a pod event, unless one was written less than 10 s ago.
#[must_use]
pub fn pod_event_action(claim: &NodeClaim, now: Timestamp) -> Option<Action> {
    let last = claim
        .status
        .as_ref()
        .and_then(|status| status.last_pod_event_time.as_ref());
    let recent = last.is_some_and(|last| {
        Duration::try_from(now.duration_since(last.0)).unwrap_or(Duration::ZERO) < POD_EVENT_DEDUPLICATION
    });
    if recent {
        return None;
    }
    let mut after = claim.clone();
    after.status.get_or_insert_default().last_pod_event_time = Some(Time(now));
    Action::patch(claim_ref(claim), Subresource::Status, claim, &after, false)
}

/// D-041, D-042: the write that brings the condition up to date, and when to look again.
#[must_use]
pub fn consolidatable(
    claim: &NodeClaim,
    pool: Option<&NodePool>,
    now: Timestamp,
) -> (Option<Action>, Option<Duration>) {
    let (wanted, wait) = state(claim, pool, now);
    let mut after = claim.clone();
    if wanted {
        if after.is_true(CONSOLIDATABLE) {
            return (None, wait);
        }
        after.set_true(CONSOLIDATABLE, now);
    } else if !after.clear(CONSOLIDATABLE) {
        return (None, wait);
    }
    (
        Action::patch(claim_ref(claim), Subresource::Status, claim, &after, false),
        wait,
    )
}

fn state(claim: &NodeClaim, pool: Option<&NodePool>, now: Timestamp) -> (bool, Option<Duration>) {
    let Some(pool) = pool.filter(|pool| !pool.is_static()) else {
        return (false, None);
    };
    let Some(window) = pool.spec.disruption.consolidate_after.duration() else {
        return (false, None);
    };
    if !claim.is_true(INITIALIZED) {
        return (false, None);
    }
    let initialized = claim
        .condition(INITIALIZED)
        .map_or(now, |condition| condition.last_transition_time);
    let reference = claim
        .status
        .as_ref()
        .and_then(|status| status.last_pod_event_time.as_ref())
        .map_or(initialized, |time| time.0);
    let passed = Duration::try_from(now.duration_since(reference)).unwrap_or(Duration::ZERO);
    if passed < window {
        (false, Some(window - passed))
    } else {
        (true, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_api::{NodeClaimSpec, NodePoolSpec};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn pool(consolidate_after: &str) -> NodePool {
        let spec = serde_json::json!({"template": {"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}, "disruption": {"consolidateAfter": consolidate_after}});
        NodePool::new("p", serde_json::from_value::<NodePoolSpec>(spec).unwrap())
    }

    fn initialized() -> NodeClaim {
        let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
        claim.set_true(INITIALIZED, at(0));
        claim
    }

    #[test]
    fn d_039_d_041_the_window_counts_from_the_last_pod_event_or_initialisation() {
        let mut claim = initialized();
        assert_eq!(
            consolidatable(&claim, Some(&pool("30s")), at(10)),
            (None, Some(Duration::from_secs(20)))
        );
        assert!(consolidatable(&claim, Some(&pool("30s")), at(30)).0.is_some());
        claim.status.as_mut().unwrap().last_pod_event_time = Some(Time(at(20)));
        assert_eq!(
            consolidatable(&claim, Some(&pool("30s")), at(30)).1,
            Some(Duration::from_secs(20))
        );
        claim.set_true(CONSOLIDATABLE, at(1));
        assert!(
            consolidatable(&claim, Some(&pool("30s")), at(30)).0.is_some(),
            "the condition is removed"
        );
        assert!(
            consolidatable(&initialized(), Some(&pool("0s")), at(0))
                .0
                .is_some()
        );
    }

    #[test]
    fn d_041_d_042_never() {
        assert_eq!(
            consolidatable(&initialized(), Some(&pool("Never")), at(999)),
            (None, None)
        );
        assert_eq!(consolidatable(&initialized(), None, at(999)), (None, None));
        let mut fixed = pool("0s");
        fixed.spec.replicas = Some(1);
        assert_eq!(
            consolidatable(&initialized(), Some(&fixed), at(999)),
            (None, None)
        );
        assert_eq!(
            consolidatable(
                &NodeClaim::new("c", NodeClaimSpec::default()),
                Some(&pool("0s")),
                at(999)
            ),
            (None, None)
        );
    }

    #[test]
    fn d_036_writes_are_ten_seconds_apart() {
        let mut claim = initialized();
        assert!(pod_event_action(&claim, at(0)).is_some());
        claim.status.as_mut().unwrap().last_pod_event_time = Some(Time(at(0)));
        assert!(pod_event_action(&claim, at(9)).is_none() && pod_event_action(&claim, at(10)).is_some());
    }
}
