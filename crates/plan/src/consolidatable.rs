//! consolidateAfter: when a node was last disturbed, and from when on it may be consolidated (D-036…D-043).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spokeshave_api::conditions::{CONSOLIDATABLE, Conditioned, INITIALIZED};
use spokeshave_api::constants::POD_EVENT_DEDUPLICATION;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::Pod;
use spokeshave_model::pod::{is_daemon, is_terminal, is_terminating, node_name};
use spokeshave_model::{Action, Subresource};

use crate::durations::signed;
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

/// When the event of `disturbed_node` was. A pod that is seen for the first time (after a restart of ours all of them are) was bound, and perhaps
/// told to go, before now: its own record says when. Upstream takes now, so that a restart restarts every timer (D-037).
#[must_use]
pub fn pod_event_time(before: Option<&Pod>, after: &Pod, now: Timestamp) -> Timestamp {
    if before.is_some() {
        return now;
    }
    let status = after.status.as_ref();
    let bound = status
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default()
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "True")
        .and_then(|condition| condition.last_transition_time.as_ref())
        .or_else(|| status.and_then(|status| status.start_time.as_ref()))
        .map(|time| time.0);
    let told_to_go = after.metadata.deletion_timestamp.as_ref().map(|due| {
        let grace = after.metadata.deletion_grace_period_seconds.unwrap_or(0).max(0);
        due.0
            .saturating_sub(SignedDuration::from_secs(grace))
            .unwrap_or(due.0)
    });
    let ended = status
        .and_then(|status| status.container_statuses.as_deref())
        .unwrap_or_default()
        .iter()
        .filter_map(|container| {
            container
                .state
                .as_ref()?
                .terminated
                .as_ref()?
                .finished_at
                .as_ref()
        })
        .map(|time| time.0)
        .max()
        .filter(|_| is_terminal(after));
    let known = [bound, told_to_go, ended].into_iter().flatten().max();
    known.map_or(now, |time| time.min(now))
}

/// What becomes of a pod event (D-036).
#[derive(Clone, Debug, PartialEq)]
pub enum PodEventStep {
    /// Nothing: it is written already, or a later one is.
    Known,
    /// It is to be written after this time, because less than 10 s have passed since the one that is written. Upstream loses it (W-42).
    Wait(Duration),
    /// Write it.
    Write(Action),
}

/// What becomes now of a pod event that was at `event`.
#[must_use]
pub fn pod_event_step(claim: &NodeClaim, event: Timestamp, now: Timestamp) -> PodEventStep {
    match pod_event_wait(claim, event, now) {
        None => PodEventStep::Known,
        Some(wait) if !wait.is_zero() => PodEventStep::Wait(wait),
        Some(_) => {
            let after = with_pod_event(claim, event);
            // Without its version, which would make many of these writes fail: a successor of the same name that got the time would only wait a little longer.
            let action = Action::patch(claim_ref(claim), Subresource::Status, claim, &after, false);
            action.map_or(PodEventStep::Known, PodEventStep::Write)
        }
    }
}

/// How long a pod event still waits until it may be written (D-036); `None` when nothing is to be written for it.
#[must_use]
pub fn pod_event_wait(claim: &NodeClaim, event: Timestamp, now: Timestamp) -> Option<Duration> {
    let status = claim.status.as_ref();
    let Some(last) = status.and_then(|status| status.last_pod_event_time.as_ref()) else {
        return Some(Duration::ZERO);
    };
    // What is written has lost its fraction of a second.
    if event.as_second() <= last.0.as_second() {
        return None;
    }
    let left = signed(POD_EVENT_DEDUPLICATION).saturating_sub(now.duration_since(last.0));
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

/// The NodeClaim once a pod event is written.
#[must_use]
pub fn with_pod_event(claim: &NodeClaim, event: Timestamp) -> NodeClaim {
    let mut after = claim.clone();
    after.status.get_or_insert_default().last_pod_event_time = Some(Time(event));
    after
}

/// D-041, D-042: the write that brings the condition up to date, and when to look again.
#[must_use]
pub fn consolidatable(
    claim: &NodeClaim,
    pool: Option<&NodePool>,
    now: Timestamp,
) -> (Option<Action>, Option<Duration>) {
    let (after, wait) = with_condition(claim, pool, now);
    let action =
        after.and_then(|after| Action::patch(claim_ref(claim), Subresource::Status, claim, &after, true));
    (action, wait)
}

/// The NodeClaim after the write of `consolidatable`, where there is something to write, and when to look again.
#[must_use]
pub fn with_condition(
    claim: &NodeClaim,
    pool: Option<&NodePool>,
    now: Timestamp,
) -> (Option<NodeClaim>, Option<Duration>) {
    let (wanted, wait) = state(claim, pool, now);
    let stays = if wanted {
        claim.is_true(CONSOLIDATABLE)
    } else {
        claim.condition(CONSOLIDATABLE).is_none()
    };
    if stays {
        return (None, wait);
    }
    let mut after = claim.clone();
    if wanted {
        after.set_true(CONSOLIDATABLE, now);
    } else {
        after.clear(CONSOLIDATABLE);
    }
    (Some(after), wait)
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
    fn d_037_w_42_a_pod_seen_for_the_first_time_tells_itself_when_it_came_or_went() {
        let pod = |value: serde_json::Value| serde_json::from_value::<Pod>(value).unwrap();
        let bound = pod(serde_json::json!({
            "spec": {"nodeName": "n", "containers": []},
            "status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(5).to_string()}]},
        }));
        assert_eq!(pod_event_time(None, &bound, at(500)), at(5));
        assert_eq!(pod_event_time(Some(&Pod::default()), &bound, at(500)), at(500));
        let going = pod(serde_json::json!({
            "metadata": {"deletionTimestamp": at(90).to_string(), "deletionGracePeriodSeconds": 30},
            "spec": {"nodeName": "n", "containers": []},
        }));
        assert_eq!(pod_event_time(None, &going, at(500)), at(60));
        let ended = pod(serde_json::json!({
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Succeeded", "containerStatuses": [
                {"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 0, "finishedAt": at(70).to_string()}}},
            ]},
        }));
        assert_eq!(pod_event_time(None, &ended, at(500)), at(70));
        let silent = pod(serde_json::json!({"spec": {"nodeName": "n", "containers": []}}));
        assert_eq!(pod_event_time(None, &silent, at(500)), at(500));
        let mut claim = initialized();
        claim.status.as_mut().unwrap().last_pod_event_time = Some(Time(at(6)));
        assert_eq!(
            pod_event_step(&claim, at(5), at(500)),
            PodEventStep::Known,
            "an older event changes nothing"
        );
    }

    #[test]
    fn d_036_d_038_which_changes_of_pods_disturb_their_node() {
        let pod = |value: serde_json::Value| serde_json::from_value::<Pod>(value).unwrap();
        let waiting = pod(serde_json::json!({"spec": {"containers": []}}));
        let bound = pod(serde_json::json!({"spec": {"nodeName": "n", "containers": []}}));
        let mut going = bound.clone();
        going.metadata.deletion_timestamp = Some(Time(at(30)));
        let mut ended = bound.clone();
        ended.status.get_or_insert_default().phase = Some("Failed".to_owned());
        let disturbed =
            |before: Option<&Pod>, after: Option<&Pod>| disturbed_node(before, after).map(str::to_owned);
        let on_n = Some("n".to_owned());
        assert_eq!(disturbed(Some(&waiting), Some(&bound)), on_n, "bound");
        assert_eq!(disturbed(Some(&bound), Some(&going)), on_n, "told to go");
        assert_eq!(disturbed(Some(&bound), Some(&ended)), on_n, "ended");
        assert_eq!(disturbed(Some(&bound), Some(&bound)), None, "nothing that counts");
        // D-038: an object that vanishes says nothing more; what made it go has been seen, or never was.
        assert_eq!(disturbed(Some(&bound), None), None);
        assert_eq!(disturbed(Some(&going), None), None);
    }

    #[test]
    fn d_036_p_175_writes_are_ten_seconds_apart() {
        let mut claim = initialized();
        assert_eq!(pod_event_wait(&claim, at(0), at(0)), Some(Duration::ZERO));
        claim.status.as_mut().unwrap().last_pod_event_time = Some(Time(at(0)));
        assert_eq!(pod_event_wait(&claim, at(9), at(9)), Some(Duration::from_secs(1)));
        assert_eq!(pod_event_wait(&claim, at(10), at(10)), Some(Duration::ZERO));
    }

    #[test]
    fn d_036_w_42_an_event_soon_after_another_is_written_as_soon_as_it_may_be() {
        let seconds = |seconds| PodEventStep::Wait(Duration::from_secs(seconds));
        let mut claim = initialized();
        assert!(matches!(
            pod_event_step(&claim, at(0), at(0)),
            PodEventStep::Write(_)
        ));
        claim = with_pod_event(&claim, at(0));
        assert_eq!(pod_event_step(&claim, at(4), at(4)), seconds(6));
        assert_eq!(
            pod_event_step(&claim, at(9), at(9)),
            seconds(1),
            "a later one does not wait anew"
        );
        let PodEventStep::Write(Action::Patch { patch, .. }) = pod_event_step(&claim, at(9), at(10)) else {
            panic!("ten seconds have passed");
        };
        assert_eq!(
            patch["status"]["lastPodEventTime"],
            serde_json::to_value(Time(at(9))).unwrap(),
            "when it was, not when it is written"
        );
        claim = with_pod_event(&claim, at(9));
        assert_eq!(pod_event_step(&claim, at(9), at(10)), PodEventStep::Known);
        let fraction = at(9) + SignedDuration::from_millis(400);
        assert_eq!(
            pod_event_step(&claim, fraction, at(30)),
            PodEventStep::Known,
            "the server keeps whole seconds"
        );
    }
}
