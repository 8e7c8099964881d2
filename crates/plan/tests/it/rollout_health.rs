//! Whether what a roll-out brings is healthy: what counts against it, what excuses it, and what is forgiven when a halt is cleared.

use crate::rollouts::{after_the_canary, arrives, asked, born, gone, look, pass, six};
use crate::support::{World, later, on_demand_pool};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use spokeshave_api::conditions::{Conditioned as _, ROLLOUT_HEALTHY};
use spokeshave_api::disruption_policy::RolloutPhase;
use spokeshave_api::{DisruptionPolicy, NodePool, labels as api_labels};
use spokeshave_model::trim;
use std::sync::Arc;

/// Writes the next status, and tells whether the roll-out of a NodePool is halted in it.
fn halts(world: &mut World, pool: &str) -> bool {
    look(world);
    let status = world.state.disruption_policies[0].status.as_ref();
    let mut rollouts = status.expect("a status").rollouts.iter();
    let own = rollouts.find(|one| one.node_pool == pool);
    own.expect("a roll-out").phase == RolloutPhase::Halted
}

/// Somebody says now that it may go on.
fn resumed(world: World) -> World {
    let now = world.now;
    asked(world, |rollout| rollout.resumed_at = Some(Time(now)))
}

/// The container of a pod has restarted so often, the last time now; of the pod only what the operator keeps in memory is there.
fn restarted(world: World, pod: &str, times: i32) -> World {
    let ended = json!({"terminated": {"exitCode": 1, "finishedAt": world.now.to_string()}});
    let containers = json!([{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": times, "lastState": ended}]);
    world.edit_pod(pod, |pod| {
        let status = pod.status.get_or_insert_default();
        status.container_statuses = serde_json::from_value(containers.clone()).expect("statuses");
        trim::pod(pod);
    })
}

/// Since now a pod is ready or not.
fn ready(world: World, pod: &str, word: &str) -> World {
    let conditions = json!([{"type": "Ready", "status": word, "lastTransitionTime": world.now.to_string()}]);
    world.edit_pod(pod, |pod| {
        let status = pod.status.get_or_insert_default();
        status.conditions = serde_json::from_value(conditions.clone()).expect("conditions");
    })
}

/// A pod that was created before, and was bound to its node now: its kubelet has yet to write of it.
fn bound_late(world: World, pod: &str, node: &str, created: Timestamp) -> World {
    let conditions =
        json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": world.now.to_string()}]);
    world.pod(pod, node, "100m").edit_pod(pod, |pod| {
        pod.metadata.creation_timestamp = Some(Time(created));
        let status = pod.status.get_or_insert_default();
        status.conditions = serde_json::from_value(conditions.clone()).expect("conditions");
        trim::pod(pod);
    })
}

/// A pod of the one workload that all of these are of.
fn owned(world: World, pod: &str) -> World {
    let owners = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": true}]);
    world.edit_pod(pod, |pod| {
        pod.metadata.owner_references = serde_json::from_value(owners.clone()).expect("owners");
    })
}

/// A second NodePool with a node that was created then, and a pod on it.
fn with_other(mut world: World, node: &str, at: Timestamp) -> World {
    world.state = world
        .state
        .with_pool(on_demand_pool("other"), world.types.clone());
    let world = world.node_in("other", node, "small", "on-demand");
    born(world, node, at).pod(&format!("on-{node}"), node, "1")
}

/// A bad image comes to several NodePools: that pods of the same workload fail on the new nodes of all of them speaks against it, and not for it.
#[test]
fn what_fails_on_new_nodes_of_other_nodepools_excuses_nothing() {
    let (now, hour_ago) = (later(0), later(-3600));
    // Of the same age; older, and brought by a roll-out of the other NodePool; older, and there for another reason.
    for (at, is_brought, halted) in [
        (now, false, true),
        (hour_ago, true, true),
        (hour_ago, false, false),
    ] {
        let mut world = six(&json!({"soak": "10m"}));
        look(&mut world);
        gone(&mut world, "a");
        let world = owned(arrives(world, "new", true, 7), "on-new");
        let world = with_other(world, "strange", at);
        let mut world = owned(restarted(world, "on-strange", 7), "on-strange");
        if is_brought {
            let mut policy = DisruptionPolicy::clone(&world.state.disruption_policies[0]);
            let other = json!({"nodePool": "other", "since": hour_ago, "wave": 1, "size": 1, "waveSince": hour_ago, "begun": 1,
                "remaining": 0, "phase": "Halted"});
            let status = policy.status.as_mut().expect("a status");
            status
                .rollouts
                .push(serde_json::from_value(other).expect("a roll-out"));
            world.state.disruption_policies[0] = Arc::new(policy);
        }
        assert_eq!(halts(&mut world, "default"), halted, "{at} {is_brought}");
    }
}

/// Nothing was halted, so that nothing is forgiven: what was launched before a pause is looked at after it as well.
#[test]
fn a_roll_out_that_was_only_paused_is_judged_as_before() {
    let mut world = after_the_canary(true, 0, 3);
    assert!(!halts(&mut world, "default"));
    let mut world = resumed(world);
    pass(&mut world, 1);
    let mut world = restarted(world, "on-new", 3);
    assert!(halts(&mut world, "default"));
}

#[test]
fn after_a_halt_is_cleared_only_later_problems_count() {
    let mut world = restarted(after_the_canary(true, 0, 3), "on-new", 3);
    assert!(halts(&mut world, "default"));
    pass(&mut world, 1);
    let mut world = resumed(world);
    assert!(!halts(&mut world, "default"), "what came before is forgiven");
    pass(&mut world, 1);
    assert!(!halts(&mut world, "default"), "and stays so");
    let mut world = restarted(world, "on-new", 4);
    assert!(halts(&mut world, "default"), "it goes on restarting");
    pass(&mut world, 1);
    let mut world = ready(resumed(world), "on-new", "False");
    assert!(!halts(&mut world, "default"));
    pass(&mut world, 4);
    assert!(!halts(&mut world, "default"), "it has a while");
    pass(&mut world, 1);
    assert!(halts(&mut world, "default"), "it is not ready for five minutes");
}

/// It had no node for longer than new nodes' pods have to become ready: that is none of the new node's doing.
#[test]
fn a_pod_that_has_waited_for_a_node_has_its_time_from_when_it_is_bound() {
    let world = after_the_canary(true, 0, 3);
    let created = world.now - SignedDuration::from_mins(20);
    let mut world = bound_late(world, "late", "new", created);
    assert!(!halts(&mut world, "default"), "it was bound just now");
    pass(&mut world, 4);
    assert!(!halts(&mut world, "default"), "it has a while");
    pass(&mut world, 1);
    assert!(halts(&mut world, "default"), "it is not ready for five minutes");
}

/// Bound at this moment, it does not fail on the older node, so that its workload's failures on the new one count.
#[test]
fn a_pod_that_has_waited_for_an_older_node_excuses_nothing() {
    let world = restarted(after_the_canary(true, 0, 3), "on-new", 3);
    let created = world.now - SignedDuration::from_mins(20);
    let world = bound_late(owned(world, "on-new"), "late", "b", created);
    let mut world = owned(world, "late");
    assert!(halts(&mut world, "default"));
}

/// What was forgiven on one node of the roll-out does not show that the workload fails anyway.
#[test]
fn what_was_forgiven_excuses_nothing() {
    let world = restarted(after_the_canary(true, 0, 3), "on-new", 3);
    let mut world = owned(world, "on-new");
    assert!(halts(&mut world, "default"));
    pass(&mut world, 1);
    let mut world = resumed(world);
    assert!(!halts(&mut world, "default"));
    pass(&mut world, 1);
    let world = arrives(world, "newer", true, 0);
    let mut world = owned(restarted(world, "on-newer", 3), "on-newer");
    assert!(halts(&mut world, "default"));
}

/// `resumedAt` is one for all NodePools of a policy, and clears the halt of one of them here.
#[test]
fn a_halt_that_is_cleared_forgives_other_nodepools_nothing() {
    let mut world = restarted(after_the_canary(true, 0, 0), "on-new", 3);
    world = with_other(world, "old", later(-86_400)).drifted("old", -60);
    look(&mut world);
    let world = world.node_in("other", "fresh", "small", "on-demand");
    let at = world.now;
    let world = born(world, "fresh", at).pod("on-fresh", "fresh", "1");
    let mut world = ready(world, "on-fresh", "False");
    pass(&mut world, 1);
    assert!(halts(&mut world, "default"));
    assert!(!halts(&mut world, "other"), "its pod has a while");
    pass(&mut world, 1);
    let mut world = resumed(world);
    assert!(!halts(&mut world, "default"));
    pass(&mut world, 3);
    assert!(halts(&mut world, "other"), "five minutes are over");
}

/// A bad image is taken back for another bad one: what the first has brought does not excuse the second.
#[test]
fn a_roll_out_that_failed_before_excuses_the_next_of_its_nodepool_nothing() {
    let world = restarted(after_the_canary(true, 0, 3), "on-new", 3);
    let mut world = owned(world, "on-new");
    assert!(halts(&mut world, "default"));
    let mut pool = NodePool::clone(&world.state.node_pools[0]);
    let annotations = pool.metadata.annotations.get_or_insert_default();
    annotations.insert(api_labels::NODE_POOL_HASH.to_owned(), "another".to_owned());
    world.state.node_pools[0] = Arc::new(pool);
    pass(&mut world, 30);
    assert!(!halts(&mut world, "default"), "another begins");
    pass(&mut world, 3);
    let world = arrives(world, "newer", true, 3);
    let mut world = owned(world, "on-newer");
    assert!(halts(&mut world, "default"));
}

/// While a policy cannot be read nobody knows whether it rolls out anything: what was halted is so afterwards.
#[test]
fn a_halt_outlives_a_time_in_which_its_policy_cannot_be_read() {
    let mut world = restarted(after_the_canary(true, 0, 3), "on-new", 3);
    assert!(halts(&mut world, "default"));
    let is_unhealthy = |world: &World| {
        let condition = world.state.disruption_policies[0].condition(ROLLOUT_HEALTHY);
        condition.is_some_and(|one| one.status == "False")
    };
    assert!(is_unhealthy(&world));
    let readable = world.state.disruption_policies[0].spec.clone();
    let mut object = serde_json::to_value(&*world.state.disruption_policies[0]).expect("JSON");
    object["spec"]["budgets"] = json!(7);
    let broken = DisruptionPolicy::salvaged(&object).expect("a policy");
    assert!(broken.spec.unreadable.is_some());
    world.state.disruption_policies[0] = Arc::new(broken);
    pass(&mut world, 30);
    assert!(halts(&mut world, "default"), "it is remembered");
    assert!(is_unhealthy(&world));
    let mut corrected = DisruptionPolicy::clone(&world.state.disruption_policies[0]);
    corrected.spec = readable;
    world.state.disruption_policies[0] = Arc::new(corrected);
    pass(&mut world, 1);
    assert!(halts(&mut world, "default"));
    assert!(is_unhealthy(&world));
}

/// While nodes of it are there it may be one that cannot be read: what was halted is so afterwards.
#[test]
fn a_halt_outlives_a_time_in_which_its_nodepool_cannot_be_read() {
    let mut world = restarted(after_the_canary(true, 0, 3), "on-new", 3);
    let halted = look(&mut world);
    assert!(halts(&mut world, "default"));
    let pools = std::mem::take(&mut world.state.node_pools);
    pass(&mut world, 30);
    assert_eq!(look(&mut world), halted, "it is remembered as it was");
    let condition = world.state.disruption_policies[0].condition(ROLLOUT_HEALTHY);
    assert!(condition.is_some_and(|one| one.status == "False"));
    let mut readable = world.clone();
    readable.state.node_pools = pools;
    pass(&mut readable, 1);
    assert!(halts(&mut readable, "default"));
    assert!(
        !halts(&mut resumed(readable), "default"),
        "until somebody acts on it"
    );
    // It was deleted, and its nodes with it.
    world.state.pods.clear();
    world.state.nodes.clear();
    world.state.node_claims.clear();
    assert_eq!(look(&mut world), None);
}

/// A field of the status that cannot be read goes by itself, and takes no halt with it.
#[test]
fn of_a_status_that_cannot_be_read_only_what_is_wrong_is_taken_away() {
    let mut world = restarted(after_the_canary(true, 0, 3), "on-new", 3);
    assert!(halts(&mut world, "default"));
    let mut object = serde_json::to_value(&*world.state.disruption_policies[0]).expect("JSON");
    object["status"]["nextChange"] = json!("soon");
    assert!(serde_json::from_value::<DisruptionPolicy>(object.clone()).is_err());
    let salvaged = DisruptionPolicy::salvaged(&object).expect("a policy");
    let before = serde_json::to_value(&salvaged.status).expect("JSON");
    // A merge patch names it only where it was there before.
    assert!(before.get("nextChange").is_some_and(serde_json::Value::is_null));
    world.state.disruption_policies[0] = Arc::new(salvaged);
    assert!(halts(&mut world, "default"));
    let after = serde_json::to_value(&world.state.disruption_policies[0].status).expect("JSON");
    assert_eq!(after.get("nextChange"), None);
}
