//! Candidates, budgets and emptiness, one test per behaviour.

use crate::disrupt_emptiness::{emptiness, taken};
use crate::support::plain::{cluster, edit_claim, edit_node, pool_with, running, unlimited};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use spokeshave_api::{Budget, DisruptionReason};
use spokeshave_example::{epoch, node_pool};
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{ClusterState, Nomination, Price, labels, lower};
use spokeshave_plan::disrupt::candidates::blocked_events;
use spokeshave_plan::disrupt::{BudgetMapping, DisruptionClass, candidate};
use std::sync::Arc;
use std::time::Duration;

fn blocker(state: &ClusterState, class: DisruptionClass) -> Result<(), String> {
    let snapshot = lower(state);
    let node = snapshot.node_ids().next().expect("one node");
    candidate(&snapshot, node, class, epoch())
        .map(drop)
        .map_err(|hurdle| hurdle.words(&snapshot, node))
}

#[test]
fn d_022_to_d_030_the_twelve_checks() {
    let graceful = DisruptionClass::Graceful;
    let clean = cluster(unlimited(), &["n"]);
    let check = |change: &dyn Fn(&mut ClusterState)| {
        let mut state = clean.clone();
        change(&mut state);
        blocker(&state, graceful)
    };
    let text = |text: &str| Err(text.to_owned());
    assert_eq!(check(&|_| {}), Ok(()));
    assert_eq!(
        check(&|state| state.in_command.extend(["kwok://n".to_owned()])),
        text("candidate is already being disrupted")
    );
    assert_eq!(
        check(&|state| state.node_claims.clear()),
        text("node isn't managed by karpenter")
    );
    assert_eq!(
        check(&|state| state.nodes.clear()),
        text("nodeclaim does not have an associated node")
    );
    assert_eq!(
        check(&|state| edit_node(state, |node| drop(
            node.metadata
                .labels
                .as_mut()
                .and_then(|labels| labels.remove(labels::INITIALIZED))
        ))),
        text("node isn't initialized")
    );
    let deleting = text("node is deleting or marked for deletion");
    assert_eq!(
        check(&|state| state.marked_for_deletion.extend(["kwok://n".to_owned()])),
        deleting
    );
    assert_eq!(
        check(
            &|state| edit_claim(state, |claim| claim.metadata.deletion_timestamp =
                Some(Time(epoch())))
        ),
        deleting
    );
    let nominate = |until| {
        move |state: &mut ClusterState| {
            state
                .nominations
                .extend([("kwok://n".to_owned(), Nomination { until })]);
        }
    };
    assert_eq!(
        check(&nominate(epoch() + Duration::from_secs(1))),
        text("node is nominated for a pending pod")
    );
    assert_eq!(check(&nominate(epoch())), Ok(()));
    let annotate = |value: &'static str| {
        move |state: &mut ClusterState| {
            edit_node(state, |node| {
                node.metadata.annotations =
                    Some([("karpenter.sh/do-not-disrupt".to_owned(), value.to_owned())].into());
            });
        }
    };
    assert_eq!(
        check(&annotate("true")),
        text("disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation")
    );
    assert_eq!(check(&annotate("True")), Ok(()), "D-009: exactly \"true\"");
    assert_eq!(
        check(&|state| edit_node(state, |node| drop(
            node.metadata
                .labels
                .as_mut()
                .and_then(|labels| labels.remove(labels::NODE_POOL))
        ))),
        text("node doesn't have required label (label=karpenter.sh/nodepool)")
    );
    assert_eq!(
        check(&|state| state.node_pools.clear()),
        text("NodePool not found (NodePool=default)")
    );
    assert_eq!(
        check(&|state| state.instance_types.clear()),
        text("NodePool not found (NodePool=default)")
    );
}

#[test]
fn d_011_d_016_to_d_021_pods_that_block_and_d_029_who_waives_them() {
    let budget = |name: &str, spec: serde_json::Value, allowed: i32| {
        let value = json!({"metadata": {"namespace": "default", "name": name}, "spec": spec, "status": {"disruptionsAllowed": allowed}});
        Arc::new(serde_json::from_value(value).expect("a budget"))
    };
    let all = json!({"selector": {}});
    let clean = cluster(unlimited(), &["n"]).with_pod(running("p", "n"));
    let check = |change: &dyn Fn(&mut ClusterState)| {
        let mut state = clean.clone();
        change(&mut state);
        blocker(&state, DisruptionClass::Graceful)
    };
    let text = |text: &str| Err(text.to_owned());
    let protect = |value: &'static str| {
        move |state: &mut ClusterState| {
            let pod = Arc::make_mut(&mut state.pods[0]);
            pod.metadata.annotations =
                Some([("karpenter.sh/do-not-disrupt".to_owned(), value.to_owned())].into());
        }
    };
    assert_eq!(check(&|_| {}), Ok(()));
    assert_eq!(
        check(&protect("true")),
        text("pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/p)")
    );
    assert_eq!(
        check(&protect("1h")),
        text("pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=default/p)")
    );
    assert_eq!(check(&protect("yes")), Ok(()));
    assert_eq!(
        check(&|state| state.pod_disruption_budgets.push(budget("b", all.clone(), 1))),
        Ok(())
    );
    let blocked = text("pdb prevents pod evictions (PodDisruptionBudget=[default/b])");
    assert_eq!(
        check(&|state| state.pod_disruption_budgets.push(budget("b", all.clone(), 0))),
        blocked
    );
    assert_eq!(
        check(&|state| state.pod_disruption_budgets.push(budget("b", json!({}), 0))),
        Ok(()),
        "D-016: a nil selector"
    );
    let several = |state: &mut ClusterState| {
        state
            .pod_disruption_budgets
            .extend([budget("b", all.clone(), 5), budget("a", all.clone(), 5)]);
    };
    assert_eq!(
        check(&several),
        text("eviction does not support multiple PDBs (PodDisruptionBudget(s)=[default/a default/b])")
    );
    let unhealthy = |state: &mut ClusterState| {
        state.pod_disruption_budgets.push(budget(
            "b",
            json!({"selector": {}, "unhealthyPodEvictionPolicy": "AlwaysAllow"}),
            0,
        ));
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]});
        Arc::make_mut(&mut state.pods[0]).status = serde_json::from_value(status).ok();
    };
    assert_eq!(check(&unhealthy), Ok(()));
    let tolerant = |state: &mut ClusterState| {
        state.pod_disruption_budgets.push(budget("b", all.clone(), 0));
        let spec = json!({"nodeName": "n", "containers": [], "tolerations": [{"operator": "Exists"}]});
        Arc::make_mut(&mut state.pods[0]).spec = serde_json::from_value(spec).ok().map(Arc::new);
    };
    assert_eq!(
        check(&tolerant),
        Ok(()),
        "D-017: budgets matter for evictable pods only"
    );
    let mut graceful_end = clean.clone();
    protect("true")(&mut graceful_end);
    assert!(blocker(&graceful_end, DisruptionClass::Eventual).is_err());
    edit_claim(&mut graceful_end, |claim| {
        claim.spec.termination_grace_period = "5m".parse().ok();
    });
    assert_eq!(blocker(&graceful_end, DisruptionClass::Eventual), Ok(()));
    assert!(blocker(&graceful_end, DisruptionClass::Graceful).is_err());
}

#[test]
fn d_023_d_024_events_of_blocked_nodes() {
    let mut state = cluster(unlimited(), &["n"]);
    state.marked_for_deletion.insert("kwok://n".to_owned());
    let events = |state: &ClusterState| {
        let snapshot = lower(state);
        let node = snapshot.node_ids().next().expect("one node");
        let hurdle = candidate(&snapshot, node, DisruptionClass::Graceful, epoch()).expect_err("blocked");
        blocked_events(&snapshot, node, hurdle)
            .into_iter()
            .map(|event| format!("{}: {} {}", event.object, event.reason, event.message))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        events(&state),
        [
            "node/n: DisruptionBlocked Node is deleting or marked for deletion",
            "nodeclaim/claim-n: DisruptionBlocked Node is deleting or marked for deletion"
        ]
    );
    state.in_command.insert("kwok://n".to_owned());
    assert!(events(&state).is_empty());
}

fn allowed(snapshot: &Snapshot, reason: &DisruptionReason, seconds: u64) -> (i64, i64) {
    let mapping = BudgetMapping::build(snapshot, reason, epoch() + Duration::from_secs(seconds));
    let budget = mapping.pools.values().next().expect("one pool");
    (budget.allowed, budget.remaining)
}

#[test]
fn g_1_12_d_197_d_200_the_worked_examples_of_the_budget_table() {
    let names: Vec<String> = (0..30).map(|index| format!("n{index:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let not_ready = |mut state: ClusterState, count: usize| {
        for node in state.nodes.iter_mut().take(count) {
            if let Some(status) = &mut Arc::make_mut(node).status {
                status.conditions = None;
            }
        }
        state
    };
    let mark = |mut state: ClusterState, count: usize| {
        state
            .marked_for_deletion
            .extend(names.iter().take(count).map(|name| format!("kwok://{name}")));
        state
    };
    let (empty, underutilized) = (DisruptionReason::Empty, DisruptionReason::Underutilized);
    // A: the default budget over 19 nodes.
    assert_eq!(
        allowed(&lower(&cluster(node_pool("default"), &names[..19])), &empty, 0),
        (2, 2)
    );
    // B: by reason, with a window at midnight.
    let mut share = Budget::always("20%");
    share.reasons = Some(vec![DisruptionReason::Empty, DisruptionReason::Drifted]);
    let mut night = Budget::always("0");
    night.reasons = Some(vec![underutilized.clone()]);
    night.schedule = Some("@daily".to_owned());
    night.duration = "10m".parse().ok();
    let budgets = vec![share, Budget::always("5"), night];
    let snapshot = lower(&not_ready(cluster(pool_with(budgets.clone()), &names[..19]), 1));
    assert_eq!(allowed(&snapshot, &empty, 599), (4, 3));
    assert_eq!(allowed(&snapshot, &underutilized, 599), (0, 0));
    assert_eq!(allowed(&snapshot, &underutilized, 600), (5, 4));
    assert_eq!(
        allowed(&lower(&cluster(pool_with(budgets), &names)), &empty, 0),
        (5, 5)
    );
    // C, D, E: what is used up, a plain number, and no budget at all.
    assert_eq!(
        allowed(
            &lower(&mark(
                cluster(pool_with(vec![Budget::always("100%")]), &names[..3]),
                3
            )),
            &empty,
            0
        ),
        (3, 0)
    );
    assert_eq!(
        allowed(
            &lower(&mark(
                cluster(pool_with(vec![Budget::always("1")]), &names[..10]),
                1
            )),
            &empty,
            0
        ),
        (1, 0)
    );
    assert_eq!(
        allowed(&lower(&mark(cluster(unlimited(), &names[..10]), 4)), &empty, 0),
        (2_147_483_647, 2_147_483_643)
    );
    // F: a budget that cannot be evaluated closes the pool.
    let mut broken = Budget::always("5");
    broken.schedule = Some("* * * * 7".to_owned());
    broken.duration = "1h".parse().ok();
    let snapshot = lower(&cluster(
        pool_with(vec![Budget::always("10%"), broken]),
        &names[..10],
    ));
    assert_eq!(allowed(&snapshot, &empty, 0), (0, 0));
    // D-207: and says so.
    let mapping = BudgetMapping::build(&snapshot, &empty, epoch());
    let messages: Vec<String> = mapping
        .events(&snapshot)
        .into_iter()
        .map(|event| event.message)
        .collect();
    assert_eq!(
        messages,
        ["No allowed disruptions for disruption reason Empty due to blocking budget"]
    );
    // D-201: an instance that is ending no longer counts.
    let mut state = cluster(pool_with(vec![Budget::always("1")]), &names[..2]);
    state.node_claims[0] = {
        let mut claim = (*state.node_claims[0]).clone();
        let mut ending = claim.status.clone().unwrap_or_default().conditions.remove(0);
        ending.type_ = "InstanceTerminating".to_owned();
        claim.status.get_or_insert_default().conditions.push(ending);
        Arc::new(claim)
    };
    assert_eq!(allowed(&lower(&state), &empty, 0), (1, 1));
}

#[test]
fn d_032_price_is_that_of_the_nodes_own_offering() {
    let snapshot = lower(&cluster(unlimited(), &["n"]));
    assert_eq!(snapshot.nodes[0].price, Price(80_000_000));
    let mut elsewhere = cluster(unlimited(), &["n"]);
    edit_node(&mut elsewhere, |node| {
        drop(
            node.metadata
                .labels
                .as_mut()
                .and_then(|labels| labels.insert(labels::ZONE.to_owned(), "mars".to_owned())),
        );
    });
    assert_eq!(lower(&elsewhere).nodes[0].price, Price::ZERO);
    assert_eq!(taken(&elsewhere), ["n"], "D-030: still a candidate");
}

#[test]
fn d_099_d_100_d_111_d_112_a_command_as_writes() {
    use spokeshave_model::Action;
    use spokeshave_plan::disrupt::advance::{Present, PresentNode, advance};
    use spokeshave_plan::disrupt::record::record;
    let mut state = cluster(unlimited(), &["n"]);
    edit_node(&mut state, |node| {
        node.metadata.resource_version = Some("7".to_owned());
    });
    let snapshot = lower(&state);
    let outcome = emptiness(&snapshot);
    let disruption = record(&snapshot, &outcome.commands[0], &outcome.budgets, epoch());
    let mut present = Present {
        nodes: vec![PresentNode {
            node: Some(state.nodes[0].clone()),
            claim: Some(state.node_claims[0].clone()),
            pods: Vec::new(),
        }],
        queued_nodes: 1,
        ..Present::default()
    };
    let writes = |present: &Present| -> Vec<Action> { advance(&disruption, present, epoch()).actions };
    let actions = writes(&present);
    let [
        Action::Patch {
            patch: taint,
            resource_version,
            ..
        },
        Action::Patch {
            patch: condition,
            target,
            ..
        },
        Action::Patch { target: ledger, .. },
    ] = actions.as_slice()
    else {
        panic!("two patches, then the ledger: {actions:#?}")
    };
    assert_eq!(
        *taint,
        json!({"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}})
    );
    assert_eq!(resource_version.as_deref(), Some("7"));
    assert_eq!(target.to_string(), "nodeclaim/claim-n");
    assert_eq!(ledger.name, disruption.name());
    let conditions = condition["status"]["conditions"].as_array().expect("a list");
    let reason = conditions
        .iter()
        .find(|condition| condition["type"] == "DisruptionReason")
        .expect("the condition");
    assert_eq!(
        (
            reason["status"].as_str(),
            reason["reason"].as_str(),
            reason["message"].as_str()
        ),
        (Some("True"), Some("Empty"), Some("Empty"))
    );
    // The next look finds the marks.
    edit_node(&mut state, |node| {
        let taints = json!([{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]);
        node.spec.get_or_insert_default().taints = serde_json::from_value(taints).ok();
    });
    edit_claim(&mut state, |claim| {
        let marked = serde_json::from_value(reason.clone()).expect("a condition");
        claim.status.get_or_insert_default().conditions.push(marked);
    });
    present.nodes[0].node = Some(state.nodes[0].clone());
    present.nodes[0].claim = Some(state.node_claims[0].clone());
    let mut marked = disruption.clone();
    marked.status.get_or_insert_default().phase = Some(spokeshave_api::disruption::DisruptionPhase::Deleting);
    let look = advance(&marked, &present, epoch());
    let first = look.actions.first();
    assert!(
        matches!(first, Some(Action::Delete { target, .. }) if target.name == "claim-n" && target.uid == "uid-claim-n"),
        "{first:?}"
    );
    let messages: Vec<&str> = look.events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(
        messages,
        ["Disrupting Node: Empty", "Disrupting NodeClaim: Empty"]
    );
}

#[test]
fn d_070_d_071_stray_taints_and_conditions_are_cleaned() {
    use spokeshave_model::Action;
    use spokeshave_plan::disrupt::steps::cleanup_actions;
    let mut state = cluster(unlimited(), &["n"]);
    assert!(cleanup_actions(&lower(&state), epoch()).is_empty());
    edit_node(&mut state, |node| {
        let taints = json!([{"key": "mine", "effect": "NoSchedule"}, {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]);
        node.spec.get_or_insert_default().taints = serde_json::from_value(taints).ok();
    });
    edit_claim(&mut state, |claim| {
        let conditions = &mut claim.status.get_or_insert_default().conditions;
        let mut stray = conditions[0].clone();
        stray.type_ = "DisruptionReason".to_owned();
        conditions.push(stray);
    });
    let actions = cleanup_actions(&lower(&state), epoch());
    let [
        Action::Patch { patch: taint, .. },
        Action::Patch { patch: condition, .. },
    ] = actions.as_slice()
    else {
        panic!("two patches: {actions:#?}")
    };
    assert_eq!(
        *taint,
        json!({"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}})
    );
    assert!(!condition.to_string().contains("DisruptionReason"));
    // A node in a command, or one that is going, is left alone.
    for mark in [true, false] {
        let mut busy = state.clone();
        let set = if mark {
            &mut busy.marked_for_deletion
        } else {
            &mut busy.in_command
        };
        set.insert("kwok://n".to_owned());
        assert!(cleanup_actions(&lower(&busy), epoch()).is_empty());
    }
}
