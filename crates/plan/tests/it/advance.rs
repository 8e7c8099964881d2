//! Commands under way (D §3.5, §3.6) against a world that does what it is told: every phase, every way back, and a death after every single write.

use crate::support::command_world::{FOR_EVER, World, at, claim, command, merge, node};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, DRIFTED, INITIALIZED, Status};
use spokeshave_api::constants::COMMAND_TAINT_SETTLE;
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_model::{Action, ObjectKind, Pod};
use spokeshave_plan::disrupt::advance::{Milestone, Present, WaitsFor, advance, time_limit};
use spokeshave_plan::disrupt::revocable;

#[test]
fn d_098_d_111_a_delete_taints_marks_deletes_and_ends() {
    let mut world = World::new(command(&["a", "b"], &[], "Emptiness"));
    let first = advance(&world.disruption, &world.present(), at(1));
    let kinds: Vec<ObjectKind> = first
        .actions
        .iter()
        .map(|action| match action {
            Action::Patch { target, .. } => target.kind,
            other => panic!("{other:?}"),
        })
        .collect();
    use ObjectKind::{Disruption as D, Node as N, NodeClaim as C};
    assert_eq!(kinds, [N, N, C, C, D], "taints, then conditions, then the status");
    world.run(at(1), FOR_EVER);
    assert_eq!(world.disruption.phase(), DisruptionPhase::Draining);
    assert!(world.claims.values().all(NodeClaim::is_deleting));
    assert_eq!(
        world.said,
        [Milestone::Started, Milestone::Deleted(0), Milestone::Deleted(1)]
    );
    world.terminate();
    world.run(at(90), FOR_EVER);
    assert_eq!(world.disruption.phase(), DisruptionPhase::Succeeded);
    assert_eq!(
        world.run(at(91), FOR_EVER),
        0,
        "what has ended is never touched again"
    );
}

#[test]
fn invariant_15_replacements_for_which_a_limit_has_no_room_any_more_are_not_made() {
    let mut world = World::new(command(&["a"], &["x", "y"], "Drift"));
    let present = Present {
        beyond_limits: Some(
            "its replacements would bring NodePool p to 5 of cpu, and its limit is 4".to_owned(),
        ),
        ..world.present()
    };
    let back = advance(&world.disruption, &present, at(1));
    let made = |action: &Action| matches!(action, Action::CreateNodeClaim { .. });
    assert!(!back.actions.iter().any(made), "{:?}", back.actions);
    let milestone = back.report.milestones.iter().flatten().next();
    assert!(
        matches!(milestone, Some(Milestone::RolledBack { why, .. }) if why.contains("limit is 4")),
        "{milestone:?}"
    );
    // Once they exist they count for themselves.
    world.run(at(1), FOR_EVER);
    assert_eq!(world.disruption.phase(), DisruptionPhase::Replacing);
}

#[test]
fn d_108_d_109_a_replace_waits_until_all_replacements_are_initialised() {
    let mut world = World::new(command(&["a"], &["x", "y"], "Drift"));
    world.run(at(1), FOR_EVER);
    assert_eq!(world.disruption.phase(), DisruptionPhase::Replacing);
    assert_eq!((world.tainted(), world.marked(), world.claims.len()), (1, 1, 3));
    let waiting = advance(&world.disruption, &world.present(), at(2));
    let texts: Vec<&str> = waiting
        .events
        .iter()
        .map(|event| event.message.as_str())
        .collect();
    assert_eq!(
        texts,
        [
            "Launching NodeClaim: Drifted",
            "Waiting on readiness to continue disruption",
            "Launching NodeClaim: Drifted",
            "Waiting on readiness to continue disruption"
        ]
    );
    assert_eq!(
        waiting.report.again,
        Some(Duration::from_secs(599)),
        "the limit is looked at again"
    );
    world.initialise("x");
    assert_eq!(world.run(at(3), FOR_EVER), 0, "one is not all");
    world.initialise("y");
    world.run(at(4), FOR_EVER);
    assert!(world.claims["a"].is_deleting() && !world.claims["x"].is_deleting());
}

/// A command counts with what it would leave until the deletion of its nodes is asked for; a replacement that is initialised stays either way.
#[test]
fn invariant_15_what_a_command_would_leave_counts_until_its_nodes_are_deleted() {
    let mut world = World::new(command(&["a"], &["x"], "Drift"));
    let counted = |world: &World| {
        let found = revocable(&world.disruption, |name| {
            world.claims.get(name).cloned().map(Arc::new)
        })?;
        let list = |ids: BTreeSet<String>| ids.into_iter().collect::<Vec<_>>().join(" ");
        Some((list(found.leaves), list(found.comes)))
    };
    let both = |leaves: &str, comes: &str| Some((leaves.to_owned(), comes.to_owned()));
    assert_eq!(counted(&world), both("a", "in-flight://x"), "decided");
    world.run(at(1), FOR_EVER);
    assert_eq!(world.disruption.phase(), DisruptionPhase::Replacing);
    let in_flight = format!("in-flight://{}", world.claims["x"].uid());
    assert_eq!(counted(&world), both("a", &in_flight), "launching");
    world.initialise("x");
    assert_eq!(counted(&world), both("a", ""), "initialised");
    world.run(at(4), FOR_EVER);
    assert_eq!(world.disruption.phase(), DisruptionPhase::Draining);
    assert_eq!(counted(&world), None, "deleted");

    let mut world = World::new(command(&["a", "b"], &[], "Drift"));
    world.run(at(1), 5);
    assert_eq!(world.disruption.phase(), DisruptionPhase::Deleting);
    assert_eq!(counted(&world), both("a b", ""), "about to be deleted");
    let gone = world.claims.get_mut("b").unwrap();
    gone.metadata.deletion_timestamp = Some(Time(at(2)));
    assert_eq!(counted(&world), both("a", ""), "one is deleted by somebody else");
    world.claims.get_mut("a").unwrap().metadata.uid = Some("another".to_owned());
    assert_eq!(
        counted(&world),
        both("", ""),
        "its namesake is none of the command's"
    );
}

#[test]
fn d_110_w_33_a_lost_replacement_takes_the_command_back() {
    let mut world = World::new(command(&["a", "b"], &["x", "y"], "MultiNodeConsolidation"));
    world.run(at(1), FOR_EVER);
    world.claims.remove("x");
    world.run(at(2), FOR_EVER);
    assert_eq!(world.disruption.phase(), DisruptionPhase::RolledBack);
    assert_eq!((world.tainted(), world.marked()), (0, 0));
    assert!(world.claims["y"].is_deleting(), "W-33: nobody needs it");
    assert!(!world.claims["a"].is_deleting());
    let failed = world.said.iter().find_map(|said| match said {
        Milestone::RolledBack {
            failed_replacements, ..
        } => Some(*failed_replacements),
        _ => None,
    });
    assert_eq!(failed, Some(2), "D-117");
}

#[test]
fn w_34_a_replacement_that_dies_after_it_was_up_is_noticed() {
    let mut world = World::new(command(&["a"], &["x", "y"], "Drift"));
    world.run(at(1), FOR_EVER);
    world.initialise("x");
    world.run(at(2), FOR_EVER);
    world.claims.remove("x");
    world.initialise("y");
    world.run(at(3), FOR_EVER);
    assert_eq!(world.disruption.phase(), DisruptionPhase::RolledBack);
    assert!(
        !world.claims["y"].is_deleting(),
        "D-116: what has come up is kept"
    );
}

#[test]
fn d_114_w_32_the_time_limit_holds_only_while_something_is_waited_for() {
    for (nodes, seconds) in [
        (1, 600),
        (100, 600),
        (4000, 600),
        (10_000, 800),
        (40_000, 3200),
        (45_000, 3600),
        (90_000, 3600),
    ] {
        assert_eq!(time_limit(nodes), Duration::from_secs(seconds), "{nodes} nodes");
    }
    let mut world = World::new(command(&["a"], &["x"], "Drift"));
    world.run(at(1), FOR_EVER);
    let mut late = world.clone();
    late.initialise("x");
    late.run(at(100_000), FOR_EVER);
    assert!(
        late.claims["a"].is_deleting(),
        "a success that is seen late is a success"
    );
    assert_eq!(world.run(at(600), FOR_EVER), 0);
    world.run(at(601), FOR_EVER);
    assert_eq!(world.disruption.phase(), DisruptionPhase::RolledBack);
    assert_eq!((world.tainted(), world.marked()), (0, 0));
}

#[test]
fn d_114_d_115_nodes_whose_deletion_is_refused_are_given_back() {
    let mut world = World::new(command(&["a", "b", "c"], &["x"], "MultiNodeConsolidation"));
    world.run(at(1), FOR_EVER);
    world.initialise("x");
    world.run(at(2), 1);
    assert_eq!(world.disruption.phase(), DisruptionPhase::Deleting);
    // The API server refuses to delete `a` and `c`.
    let delete = |name: &str, world: &mut World| {
        world.claims.get_mut(name).unwrap().metadata.deletion_timestamp = Some(Time(at(20)));
    };
    delete("b", &mut world);
    let again = advance(&world.disruption, &world.present(), at(600));
    assert_eq!(
        again
            .actions
            .iter()
            .filter(|action| matches!(action, Action::Delete { .. }))
            .count(),
        2
    );
    assert!(!again.report.goes_on, "not all are deleted: it does not drain");
    let next = advance(&world.disruption, &world.present(), at(603));
    assert!(
        next.report.goes_on,
        "the ledger says so even where a replacement cannot be deleted"
    );
    world.run(at(603), FOR_EVER);
    assert_eq!(world.disruption.phase(), DisruptionPhase::RolledBack);
    let message = world
        .disruption
        .status
        .as_ref()
        .and_then(|status| status.message.clone());
    assert_eq!(
        message.as_deref(),
        Some("2 nodes could not be deleted within 10 minutes")
    );
    assert_eq!(world.tainted(), 1, "what is deleted goes on");
    assert!(!world.claims["x"].is_deleting(), "it is up");
}

#[test]
fn a_clock_that_goes_back_makes_a_command_young() {
    let mut world = World::new(command(&["a"], &["x"], "Drift"));
    world.run(at(1), FOR_EVER);
    assert_eq!(world.run(at(-100_000), FOR_EVER), 0);
    assert_eq!(world.disruption.phase(), DisruptionPhase::Replacing);
}

#[test]
fn a_command_found_long_after_its_decision_is_decided_anew() {
    let mut world = World::new(command(&["a", "b"], &[], "Emptiness"));
    world.run(at(1), 1);
    assert_eq!(world.tainted(), 1);
    world.run(at(61), FOR_EVER);
    assert_eq!(world.disruption.phase(), DisruptionPhase::RolledBack);
    assert_eq!((world.tainted(), world.marked()), (0, 0));
}

#[test]
fn d_101_w_57_nodes_that_vanish_before_the_taint() {
    let mut delete = World::new(command(&["a", "b"], &[], "Emptiness"));
    delete.claims.remove("a");
    delete.run(at(1), FOR_EVER);
    assert!(
        delete.claims["b"].is_deleting(),
        "a delete goes on with the others"
    );
    assert_eq!(
        delete.said,
        [Milestone::Started, Milestone::Deleted(1)],
        "W-57: only what was there counts"
    );
    let mut replace = World::new(command(&["a", "b"], &["x"], "MultiNodeConsolidation"));
    replace.nodes.remove("a");
    replace.run(at(1), FOR_EVER);
    assert_eq!(replace.disruption.phase(), DisruptionPhase::RolledBack);
    assert!(!replace.claims.contains_key("x") && replace.tainted() == 0);
    let mut none = World::new(command(&["a"], &[], "Emptiness"));
    none.claims.clear();
    none.run(at(1), FOR_EVER);
    assert_eq!(none.disruption.phase(), DisruptionPhase::RolledBack);
}

#[test]
fn another_node_claim_of_the_same_name_is_never_touched() {
    let mut namesake = claim("a");
    namesake.metadata.uid = Some("uid-other".to_owned());
    namesake.set_true(DRIFTED, at(2));
    // Deleted by hand and made again: before the first step, or while the replacement comes up or is lost.
    let end = |nodes: &[&str], steps: usize, is_lost: bool| {
        let mut world = World::new(command(nodes, &["x"], "Drift"));
        world.run(at(1), steps);
        world.claims.insert("a".to_owned(), namesake.clone());
        if is_lost {
            world.claims.remove("x");
        } else if steps > 0 {
            world.initialise("x");
        }
        world.run(at(2), FOR_EVER);
        world.terminate();
        world.run(at(90), FOR_EVER);
        assert_eq!(world.claims.get("a"), Some(&namesake), "{nodes:?}, {steps} steps");
        (world.disruption.phase(), world)
    };
    let (phase, _) = end(&["a"], FOR_EVER, false);
    assert_eq!(phase, DisruptionPhase::Succeeded, "it is gone, which was the aim");
    let (phase, world) = end(&["a", "b"], FOR_EVER, false);
    assert_eq!(phase, DisruptionPhase::Succeeded);
    assert_eq!(world.said[1..], [Milestone::Deleted(1), Milestone::Succeeded]);
    for (steps, is_lost) in [(0, false), (FOR_EVER, true)] {
        let (phase, world) = end(&["a", "b"], steps, is_lost);
        assert_eq!(phase, DisruptionPhase::RolledBack, "{steps} steps");
        assert!(!world.claims["b"].is_deleting(), "{steps} steps");
    }
}

fn protected_pod() -> Arc<Pod> {
    let pod = json!({"metadata": {"name": "job", "namespace": "batch", "annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "status": {"phase": "Running"}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

#[test]
fn a_pod_or_node_protected_since_the_decision_keeps_the_node() {
    for phase in ["before the taint", "while replacements come"] {
        let mut world = World::new(command(&["a"], &["x"], "SingleNodeConsolidation"));
        if phase != "before the taint" {
            world.run(at(1), FOR_EVER);
        }
        let mut by_node = world.clone();
        world.pods = vec![protected_pod()];
        world.run(at(2), FOR_EVER);
        assert_eq!(world.disruption.phase(), DisruptionPhase::RolledBack, "{phase}");
        assert_eq!((world.tainted(), world.marked()), (0, 0));
        let message = world.disruption.status.unwrap().message.unwrap();
        assert_eq!(
            message,
            "pod batch/job on node a is annotated karpenter.sh/do-not-disrupt"
        );
        let node = by_node.nodes.get_mut("a").unwrap();
        node.metadata.annotations =
            Some([("karpenter.sh/do-not-disrupt".to_owned(), "true".to_owned())].into());
        by_node.run(at(2), FOR_EVER);
        assert_eq!(by_node.disruption.phase(), DisruptionPhase::RolledBack, "{phase}");
    }
}

#[test]
fn d_029_drift_with_a_grace_period_goes_on_in_spite_of_protected_pods() {
    let mut world = World::new(command(&["a"], &["x"], "Drift"));
    world.claims.get_mut("a").unwrap().spec.termination_grace_period = Some("1h".parse().unwrap());
    world.pods = vec![protected_pod()];
    world.run(at(1), FOR_EVER);
    assert_eq!(world.disruption.phase(), DisruptionPhase::Replacing);
}

fn pod_bound(name: &str, second: i64) -> Arc<Pod> {
    let since = at(second).to_string();
    let bound = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": since});
    let pod = json!({"metadata": {"name": name, "namespace": "batch"}, "status": {"phase": "Pending", "conditions": [bound]}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// The command of `pods` pods a node, begun with the pods that were there, and looked at again after `late` was bound, too.
fn after_a_late_binding(method: &str, pods: &[Arc<Pod>], late: &Arc<Pod>) -> World {
    let mut command = command(&["a"], &[], method);
    command.spec.nodes[0].pods = i64::try_from(pods.len()).unwrap();
    let mut world = World::new(command);
    world.pods = pods.to_vec();
    let first = advance(&world.disruption, &world.present(), at(0));
    for action in &first.actions {
        world.apply(action);
    }
    assert_eq!(world.disruption.phase(), DisruptionPhase::Deleting);
    let early = advance(&world.disruption, &world.present(), at(0));
    assert!(early.actions.is_empty(), "the taint has not settled");
    assert_eq!(early.report.again, Some(COMMAND_TAINT_SETTLE));
    world.pods.push(late.clone());
    world.run(at(0), FOR_EVER);
    world
}

#[test]
fn invariant_7_a_pod_bound_before_the_taint_was_seen_keeps_the_node() {
    let known = [pod_bound("known", -60)];
    for (method, pods, late) in [
        ("Emptiness", &[][..], pod_bound("late", 0)),
        // A clock behind ours: nothing belongs on an empty node.
        ("Emptiness", &[], pod_bound("late", -5)),
        ("SingleNodeConsolidation", &known, pod_bound("late", 0)),
        ("MultiNodeConsolidation", &known, pod_bound("late", 1)),
        ("Drift", &known, pod_bound("late", 1)),
    ] {
        let world = after_a_late_binding(method, pods, &late);
        assert_eq!(world.disruption.phase(), DisruptionPhase::RolledBack, "{method}");
        assert_eq!((world.tainted(), world.marked()), (0, 0), "{method}");
        assert!(!world.claims["a"].is_deleting());
        assert_eq!(
            world.disruption.status.unwrap().message.unwrap(),
            "pod batch/late was bound to node a after it was decided"
        );
    }
}

#[test]
fn invariant_7_pods_that_do_not_count_or_were_known_keep_no_node() {
    let known = [pod_bound("known", -60)];
    let with = |change: Value| {
        let mut pod = serde_json::to_value(&*pod_bound("late", 1)).unwrap();
        merge(&mut pod, &change);
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    let daemon = json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"}]}});
    let tolerant = json!({"spec": {"containers": [], "tolerations": [{"operator": "Exists"}]}});
    for (method, pods, late) in [
        ("Emptiness", &[][..], with(daemon)),
        ("Emptiness", &[], with(tolerant)),
        ("Emptiness", &[], with(json!({"status": {"phase": "Succeeded"}}))),
        ("SingleNodeConsolidation", &known, pod_bound("successor", -1)),
        // It places no pods.
        ("StaticDrift", &known, pod_bound("late", 1)),
    ] {
        let world = after_a_late_binding(method, pods, &late);
        assert_eq!(
            world.disruption.phase(),
            DisruptionPhase::Draining,
            "{method} {late:?}"
        );
    }
}

#[test]
fn invariant_8_a_lost_destination_takes_the_command_back() {
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let changed = |change: Value| -> Option<Node> {
        let mut value = serde_json::to_value(node("there")).unwrap();
        merge(&mut value, &ready);
        merge(&mut value, &change);
        Some(serde_json::from_value(value).unwrap())
    };
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    let cases = [
        (None, "is gone"),
        (
            changed(json!({"metadata": {"deletionTimestamp": "2023-11-14T22:13:20Z"}})),
            "is going itself",
        ),
        (changed(json!({"spec": {"unschedulable": true}})), "is cordoned"),
        (changed(unready), "is not ready"),
        (changed(json!({})), ""),
    ];
    for replacements in [&["r"][..], &[]] {
        for (destination, why) in &cases {
            let mut command = command(&["a"], replacements, "SingleNodeConsolidation");
            command.spec.destinations = vec!["there".to_owned()];
            let mut world = World::new(command);
            world
                .nodes
                .insert("there".to_owned(), changed(json!({})).unwrap());
            world.run(at(0), 3 + 2 * replacements.len());
            let under_way = [DisruptionPhase::Replacing, DisruptionPhase::Deleting];
            assert!(under_way.contains(&world.disruption.phase()));
            match destination {
                Some(node) => world.nodes.insert("there".to_owned(), node.clone()),
                None => world.nodes.remove("there"),
            };
            for name in replacements {
                if let Some(claim) = world.claims.get_mut(*name) {
                    claim.set(INITIALIZED, Status::True, "Initialized", "", at(0));
                }
            }
            world.run(at(0), FOR_EVER);
            if why.is_empty() {
                assert_eq!(world.disruption.phase(), DisruptionPhase::Draining);
                continue;
            }
            assert_eq!(world.disruption.phase(), DisruptionPhase::RolledBack, "{why}");
            assert_eq!((world.tainted(), world.marked()), (0, 0), "{why}");
            assert_eq!(
                world.disruption.status.unwrap().message.unwrap(),
                format!("node there, which was to take pods, {why}")
            );
            // What is initialised stays: it is a node like any other.
            assert!(world.claims.values().all(|claim| !claim.is_deleting()));
        }
    }
}

/// Invariants 8 and 38: a watch that is behind lets nothing be deleted, keeps no freeze and no protection from taking the command back, and does not
/// keep nodes tainted for ever.
#[test]
fn invariant_8_nothing_is_deleted_while_the_watch_is_behind_and_nothing_waits_for_it_for_ever() {
    let mut world = World::new(command(&["a"], &[], "Emptiness"));
    // Taint, condition, status.
    world.run(at(0), 3);
    assert_eq!(world.disruption.phase(), DisruptionPhase::Deleting);
    let look_for = |waits_for: WaitsFor, second: i64, change: fn(&mut Present)| {
        let mut present = world.present();
        present.waits_for = Some(waits_for);
        change(&mut present);
        let next = advance(&world.disruption, &present, at(second));
        let milestones: Vec<Milestone> = next.report.milestones.into_iter().flatten().collect();
        (milestones, next.report.again)
    };
    let look = |second: i64, change: fn(&mut Present)| look_for(WaitsFor::Watch, second, change);
    assert_eq!(look(30, |_| ()), (vec![], Some(Duration::from_secs(1))));
    assert_eq!(look(19 * 60, |_| ()), (vec![], Some(Duration::from_secs(1))));
    let is_back = |(said, _): (Vec<Milestone>, Option<Duration>), word: &str| matches!(said.as_slice(), [Milestone::RolledBack { why, .. }] if why.contains(word));
    assert!(is_back(look(21 * 60, |_| ()), "watch of pods"));
    let places = |second: i64| look_for(WaitsFor::Places, second, |_| ());
    assert_eq!(places(30), (vec![], Some(Duration::from_secs(1))));
    assert!(is_back(places(21 * 60), "places that another command"));
    assert!(is_back(
        look(30, |present| present.frozen = Some("incident 42".to_owned())),
        "incident 42"
    ));
}

#[test]
fn invariant_6_protection_after_the_taint_keeps_the_node() {
    let mut known = serde_json::to_value(&*protected_pod()).unwrap();
    merge(
        &mut known,
        &json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "false"}}}),
    );
    let known: Arc<Pod> = Arc::new(serde_json::from_value(known).unwrap());
    let world = after_a_late_binding("SingleNodeConsolidation", &[known], &protected_pod());
    assert_eq!(world.disruption.phase(), DisruptionPhase::RolledBack);
}

/// Every death leads to the same end: what was not finished is finished or taken back, and nothing is made or deleted twice (`apply` asserts it).
#[test]
fn invariant_37_a_death_after_every_write() {
    for (nodes, replacements) in [
        (&["a", "b", "c"][..], &[][..]),
        (&["a", "b"][..], &["x", "y"][..]),
    ] {
        let method = if replacements.is_empty() {
            "Emptiness"
        } else {
            "MultiNodeConsolidation"
        };
        let story = |world: &mut World, now: i64, writes: usize| {
            let mut made = world.run(at(now), writes);
            for name in replacements {
                if world.claims.contains_key(*name) {
                    world.initialise(name);
                }
            }
            made += world.run(at(now + 1), writes - made);
            if writes > made {
                world.terminate();
            }
            made + world.run(at(now + 2), writes - made)
        };
        let mut whole = World::new(command(nodes, replacements, method));
        let total = story(&mut whole, 1, FOR_EVER);
        assert_eq!(whole.disruption.phase(), DisruptionPhase::Succeeded);
        for death in 0..total {
            let mut world = World::new(command(nodes, replacements, method));
            story(&mut world, 1, death);
            story(&mut world, 5, FOR_EVER);
            assert_eq!(
                world.disruption.phase(),
                DisruptionPhase::Succeeded,
                "died after write {death}"
            );
            let left: Vec<&String> = world.claims.keys().collect();
            assert_eq!(
                left,
                replacements.iter().collect::<Vec<_>>(),
                "died after write {death}"
            );
            assert_eq!((world.tainted(), world.marked()), (0, 0));
        }
    }
}
