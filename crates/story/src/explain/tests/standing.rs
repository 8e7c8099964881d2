//! Explanations in which one blocker precedes all others: the NodePool that is asked for, the start-up taint, the command under way.

use super::*;
use crate::verdict::told;
use spokeshave_model::snapshot::InstanceTypesProblem;
use spokeshave_plan::disrupt::judge;

/// A closed budget and a verdict say nothing about a node that is being deleted already.
#[test]
fn a_node_that_a_command_takes_has_neither_verdict_nor_budgets() {
    let closed = ClusterState {
        node_pools: vec![{
            let mut pool = node_pool("default");
            pool.spec.disruption.budgets = Some(vec![Budget::always("0")]);
            Arc::new(pool)
        }],
        ..world()
    };
    let command = CommandFact {
        name: "empty-1".to_owned(),
        nodes: vec!["n1".to_owned()],
        ..CommandFact::default()
    };
    let verdict = kept();
    let story = ask(&closed, &[], &[command], |facts| {
        node(facts, facts.snapshot.find_node("n1").unwrap(), Some(&verdict))
    });
    assert_eq!(story.verdict, None);
    assert!(
        !story.next.iter().any(|next| next.what.contains("within a year")),
        "{story:?}"
    );
    assert_eq!(fact(&story, "budgets"), "");
}

/// A dump without NodeClaims shows managed nodes like this: nobody is told that nothing is ever done to them.
#[test]
fn a_node_with_the_label_of_a_nodepool_and_no_nodeclaim_is_not_called_safe() {
    let mut state = world();
    state.node_claims.clear();
    assert_eq!(
        node_story(&state, None).summary,
        "has the label of NodePool default and no NodeClaim: taken as not managed"
    );
    for node in &mut state.nodes {
        if let Some(labels) = &mut Arc::make_mut(node).metadata.labels {
            labels.remove("karpenter.sh/nodepool");
        }
    }
    assert_eq!(
        node_story(&state, None).summary,
        "is not managed: nothing is ever done to it"
    );
}

/// D-009: what is not initialised is no candidate; what it waits for is named.
#[test]
fn a_node_that_is_starting_names_its_start_up_taint() {
    let mut state = world();
    let taint = json!([{"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}]);
    edit_claim(&mut state, |claim| {
        claim.spec.startup_taints = serde_json::from_value(taint.clone()).unwrap();
        claim.set("Initialized", Status::Unknown, "StartupTaintsExist", "", now());
    });
    for node in &mut state.nodes {
        let node = Arc::make_mut(node);
        node.spec.as_mut().unwrap().taints = serde_json::from_value(taint.clone()).unwrap();
        if let Some(labels) = &mut node.metadata.labels {
            labels.remove("karpenter.sh/initialized");
        }
    }
    let verdict = kept();
    let story = node_story(&state, Some(&verdict));
    assert_eq!(
        story.summary,
        "is starting: it waits until node.cilium.io/agent-not-ready:NoExecute is taken off, which its owner has to do"
    );
    assert_eq!((story.verdict.is_none(), fact(&story, "budgets")), (true, ""));
    assert_eq!(story.hints, ["spokeshave explain nodeclaim claim-n1"]);
}

/// The labels that only one NodePool has are reported like its name, also in the event.
#[test]
fn the_nodepool_whose_labels_a_pod_wants_speaks_first() {
    let mut special = node_pool("special");
    special.spec.template.metadata.labels = std::iter::once(("team".to_owned(), "ml".to_owned())).collect();
    let only = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["huge"]}]);
    special.spec.template.spec.requirements = serde_json::from_value(only).unwrap();
    let wanted = json!({"nodeSelector": {"team": "ml"}});
    let state = world()
        .with_pool(special, types())
        .with_pod(pending_pod("train", "1", "1Gi", &wanted));
    let story = pod_story(&state, "default/train");
    let why = "node.kubernetes.io/instance-type In [huge] leaves none of 2 instance types";
    assert_eq!(
        story.summary,
        "has no place: it asks for NodePool special, which cannot make one"
    );
    assert_eq!(
        (story.waits[0].object.as_str(), story.waits[0].message.as_str()),
        ("NodePool special", why)
    );
    assert_eq!(story.waits.last().unwrap().object, "1 other NodePool");
    assert_eq!(story.hints, ["spokeshave explain nodepool special"]);
    let snapshot = lower(&state);
    let outcome = provision(&snapshot, &Policy::default(), now());
    let events = outcome.events(&snapshot, &Policy::default());
    let failed = events
        .iter()
        .find(|event| event.reason == "FailedScheduling")
        .unwrap();
    assert!(
        failed
            .message
            .starts_with(&format!("Failed to schedule pod, {why} (NodePool=special); ")),
        "{}",
        failed.message
    );
}

/// What only the operator of a cluster knows is not called missing: a NodePool that is there, with instance types that this program does not bring along.
#[test]
fn z_059_a_node_whose_instance_types_only_its_operator_knows_does_not_lack_its_nodepool() {
    let mut state = world();
    let elsewhere = Err(InstanceTypesProblem::KnownElsewhere);
    state.instance_types.insert("default".to_owned(), elsewhere);
    let story = |state: &ClusterState| {
        ask(state, &[], &[], |facts| {
            let id = facts.snapshot.find_node("n1").unwrap();
            let found = judge(facts.snapshot, facts.policy, facts.now, id);
            let verdict = told(facts.snapshot, facts.policy, found);
            node(facts, id, Some(&verdict))
        })
    };
    let blockers = |story: &Story| -> Vec<(String, String)> {
        let blockers = story.verdict.iter().flat_map(|verdict| &verdict.blockers);
        blockers
            .map(|one| (one.object.clone(), one.message.clone()))
            .collect()
    };
    let why = "exists, but nothing can be judged without its instance types: they are known to the operator only; --catalog FILE names some";
    let there = story(&state);
    assert_eq!(
        blockers(&there),
        [("NodePool default".to_owned(), why.to_owned())]
    );
    assert_eq!(
        there.summary,
        format!("stays as far as can be told: NodePool default {why}")
    );
    assert_eq!(
        fact(&there, "price"),
        "unknown: prices are known to the operator only"
    );
    assert_eq!(there.hints, ["spokeshave explain nodepool default"]);
    edit_claim(&mut state, |claim| {
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.insert(PRICE_AT_LAUNCH.to_owned(), "0.0321".to_owned());
    });
    assert_eq!(
        fact(&story(&state), "price"),
        "$0.0321/h, the price when it was launched"
    );
    // Other reasons for having none are told as well, and one that is not there still is not.
    let failed = Err(InstanceTypesProblem::Failed("its class is not there".to_owned()));
    state.instance_types.insert("default".to_owned(), failed);
    let text = "exists, but it has no instance types: its class is not there";
    assert_eq!(blockers(&story(&state))[0].1, text);
    state.node_pools.clear();
    assert_eq!(
        blockers(&story(&state))[0].1,
        "NodePool not found (NodePool=default)"
    );
}

/// Somebody else than the plan has named the node of a pod: what that means depends on the node.
#[test]
fn p_056_a_pod_whose_node_a_scheduler_has_named_says_what_that_means() {
    let named = |node: &str| {
        let mut pod = pending_pod("db", "1", "1Gi", &json!({}));
        pod.status.get_or_insert_default().nominated_node_name = Some(node.to_owned());
        world().with_pod(pod)
    };
    let story = pod_story(&named("n1"), "default/db");
    assert!(
        story.summary.starts_with("is expected on n1"),
        "{}",
        story.summary
    );
    assert_eq!(story.waits[0].object, "kube-scheduler");
    let on_node = node_story(&named("n1"), None);
    assert!(on_node.pods.is_empty(), "it is not there yet");
    let waits_for_it = |next: &Next| next.what.starts_with("Pod default/db is bound");
    assert!(on_node.next.iter().any(waits_for_it), "{:?}", on_node.next);

    let story = pod_story(&named("gone"), "default/db");
    assert!(story.summary.starts_with("has room on n1"), "{}", story.summary);
    let why = "names node gone, which is not there or on its way out";
    assert!(story.waits[0].message.starts_with(why), "{:?}", story.waits);
}
