//! Explanations in which one blocker precedes all others: the NodePool that is asked for, the start-up taint, the command under way.

use super::*;
use crate::verdict::told;
use spokeshave_model::snapshot::InstanceTypesProblem;
use spokeshave_plan::disrupt::judge;
use std::collections::BTreeSet;

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

/// The nodes that it came for may drain for days: meanwhile it is a node like others, and what is said of it elsewhere is said here as well.
#[test]
fn a_replacement_that_has_come_is_told_with_its_verdict_while_the_others_drain() {
    let verdict = kept();
    let story = |state: &ClusterState, phase: &str| {
        let command = CommandFact {
            name: "drifted-1".to_owned(),
            phase: phase.to_owned(),
            reason: "Drifted".to_owned(),
            decision: "Replace".to_owned(),
            nodes: vec!["old".to_owned(), "claim-old".to_owned()],
            replacements: vec!["claim-n1".to_owned()],
            ..CommandFact::default()
        };
        ask(state, &[], &[command], |facts| {
            node(facts, facts.snapshot.find_node("n1").unwrap(), Some(&verdict))
        })
    };
    let come = story(&world(), "Draining");
    assert_eq!(
        come.summary,
        "stays because of Pod default/web; came instead of others (Disruption drifted-1, phase Draining)"
    );
    let decision = come.verdict.as_ref().map(|verdict| verdict.decision);
    assert_eq!(decision, Some("keep"));
    assert!(fact(&come, "budgets").starts_with("Underutilized: "), "{come:?}");
    assert!(!come.hints.is_empty());
    let role = "it came instead of others by Disruption drifted-1 (Replace, Drifted), phase Draining";
    assert!(next(&come).contains(&(None, role)), "{come:?}");
    // Until all have come, the command may still be taken back.
    let coming = story(&world(), "Replacing");
    assert_eq!(
        coming.summary,
        "comes instead of others (Disruption drifted-1, phase Replacing)"
    );
    assert_eq!((coming.verdict.is_none(), fact(&coming, "budgets")), (true, ""));
    // What it waits for itself says more than for what it comes.
    let mut starting = world();
    edit_claim(&mut starting, |claim| {
        claim.set("Initialized", Status::Unknown, "StartupTaintsExist", "", now());
    });
    for node in &mut starting.nodes {
        if let Some(labels) = &mut Arc::make_mut(node).metadata.labels {
            labels.remove("karpenter.sh/initialized");
        }
    }
    let starting = story(&starting, "Replacing");
    assert!(starting.summary.starts_with("is starting"), "{starting:?}");
    assert!(!starting.next.is_empty(), "{starting:?}");
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
    // It is older than it may be: that comes first as well, and not only below.
    edit_claim(&mut state, |claim| {
        claim.spec.expire_after = "1h".parse().unwrap()
    });
    let goes = "is deleted at once, whatever budgets and do-not-disrupt say: expireAfter 1h has passed";
    let old = node_story(&state, None);
    assert_eq!(old.summary, format!("{}; it {goes}", story.summary));
    assert!(next(&old).contains(&(None, goes)), "{old:?}");
}

/// For some pods no node is ever planned, whatever kube-scheduler says of them.
#[test]
fn p_056_pods_that_get_no_nodes_of_their_own_say_so() {
    let daemon = owned(
        pending_pod("daemon", "1", "1Gi", &json!({})),
        "apps/v1",
        "DaemonSet",
    );
    let mut new = daemon.clone();
    new.metadata.name = Some("new".to_owned());
    new.metadata.uid = Some("new".to_owned());
    if let Some(status) = &mut new.status {
        status.conditions = None;
    }
    let fixed = owned(pending_pod("fixed", "1", "1Gi", &json!({})), "v1", "Node");
    let state = world().with_pod(daemon).with_pod(new).with_pod(fixed);
    let waits = pod_story(&state, "default/daemon");
    assert_eq!(
        waits.summary,
        format!("waits for room on its node: {DAEMONS_GET_NO_NODES}")
    );
    assert!(!waits.hints.is_empty());
    // Nobody has looked for room yet.
    let new = pod_story(&state, "default/new");
    assert_eq!(new.summary, format!("has no node yet: {DAEMONS_GET_NO_NODES}"));
    assert_eq!(new.hints, Vec::<String>::new());
    let fixed = pod_story(&state, "default/fixed");
    assert_eq!(
        fixed.summary,
        format!("has no node yet: {STATIC_PODS_GET_NO_NODES}")
    );
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
    assert_eq!(
        story.hints,
        [
            "change spec.nodeSelector, or NodePool special, which it asks for",
            "spokeshave explain nodepool special"
        ]
    );
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

/// The story of the node, with the verdict about it.
fn judged_story(state: &ClusterState) -> Story {
    ask(state, &[], &[], |facts| {
        let id = facts.snapshot.find_node("n1").unwrap();
        let found = judge(facts.snapshot, facts.policy, facts.now, id);
        let verdict = told(facts.snapshot, facts.policy, found, &BTreeSet::new());
        node(facts, id, Some(&verdict))
    })
}

/// A rule of a DisruptionPolicy is the answer, not the NodePool that it selects; and whoever is kept by a freeze is told what ends it.
#[test]
fn invariant_4_a_node_that_a_freeze_keeps_names_the_freeze() {
    let policy = |name: &str, spec: Value| {
        let spec = serde_json::from_value(spec).unwrap();
        Arc::new(spokeshave_api::DisruptionPolicy::new(name, spec))
    };
    let freeze = |reason: &str| json!({"freeze": {"reason": reason}});
    let told = |policies: Vec<Arc<spokeshave_api::DisruptionPolicy>>| {
        let mut state = world();
        state.disruption_policies = policies;
        let story = judged_story(&state);
        (story.summary, story.verdict.unwrap().if_removed, story.hints)
    };
    let (summary, if_removed, hints) = told(vec![policy("freeze", freeze("incident 42"))]);
    assert_eq!(summary, "stays because of DisruptionPolicy freeze (spec.freeze)");
    let begin = "if DisruptionPolicy freeze allowed it: delete, saves $";
    assert!(if_removed.starts_with(begin), "{if_removed}");
    assert_eq!(hints, ["spokeshave thaw"]);
    // `spokeshave thaw` removes no other, and of several none would do alone.
    let both = vec![policy("night", freeze("tests")), policy("week", freeze("sale"))];
    let (summary, if_removed, hints) = told(both);
    assert_eq!(summary, "stays because of DisruptionPolicy night (spec.freeze)");
    let begin = "if the DisruptionPolicies of its NodePool allowed it: delete, saves $";
    assert!(if_removed.starts_with(begin), "{if_removed}");
    assert_eq!(hints, ["kubectl get disruptionpolicies"]);
}

/// The price of a spot node is told, and those of on-demand are not: by these alone more would be saved than it costs.
#[test]
fn a_054_what_a_replacement_of_a_spot_node_saves_is_told_as_a_share_of_on_demand() {
    let spot = spokeshave_example::node("default", "n1", &types()[1], "a", "spot");
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types())
        .with_node(spot);
    edit_claim(&mut state, |claim| {
        claim.set_true(spokeshave_api::conditions::DRIFTED, at("01:00:00"));
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.insert(PRICE_AT_LAUNCH.to_owned(), "0.0001".to_owned());
    });
    state.distress.prices = PriceFeed::WithoutSpot;
    let told = judged_story(&state.clone().with_pod(pod_with("web", json!({}))));
    assert_eq!(told.price_per_hour, Some(0.0001));
    let replaced = "would be replaced by small: saves ";
    assert!(told.summary.starts_with(replaced), "{}", told.summary);
    assert!(told.summary.ends_with("% by prices of on-demand"), "{told:?}");
    let share = told
        .verdict
        .as_ref()
        .and_then(|verdict| verdict.by_on_demand.as_deref());
    assert!(told.summary.ends_with(share.unwrap()), "{told:?}");
    let protected = pod_with("kept", json!({"karpenter.sh/do-not-disrupt": "true"}));
    let told = judged_story(&state.clone().with_pod(protected));
    let then = told.verdict.unwrap().if_removed;
    assert!(then.contains(": replace, saves "), "{then}");
    assert!(then.ends_with("% by prices of on-demand"), "{then}");
    // Where nothing comes instead, what it costs is what is saved.
    let told = judged_story(&state);
    assert_eq!(told.summary, "would be deleted: saves less than $0.01/h");
    assert_eq!(told.verdict.unwrap().by_on_demand, None);
}

/// What only the operator of a cluster knows is not called missing: a NodePool that is there, with instance types that this program does not bring along.
#[test]
fn z_059_a_node_whose_instance_types_only_its_operator_knows_does_not_lack_its_nodepool() {
    let mut state = world();
    let elsewhere = Err(InstanceTypesProblem::KnownElsewhere);
    state.instance_types.insert("default".to_owned(), elsewhere);
    let blockers = |story: &Story| -> Vec<(String, String)> {
        let blockers = story.verdict.iter().flat_map(|verdict| &verdict.blockers);
        blockers
            .map(|one| (one.object.clone(), one.message.clone()))
            .collect()
    };
    let why = "exists, but nothing can be judged without its instance types: they are known to the operator only; --catalog FILE names some";
    let there = judged_story(&state);
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
        fact(&judged_story(&state), "price"),
        "$0.0321/h, the price when it was launched"
    );
    // Other reasons for having none are told as well, and one that is not there still is not.
    let failed = Err(InstanceTypesProblem::Failed("its class is not there".to_owned()));
    state.instance_types.insert("default".to_owned(), failed);
    let text = "exists, but it has no instance types: its class is not there";
    assert_eq!(blockers(&judged_story(&state))[0].1, text);
    state.node_pools.clear();
    assert_eq!(
        blockers(&judged_story(&state))[0].1,
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

/// What a NodePool says first may be the least of it: nobody is told to raise limits where that would change nothing for the pod.
#[test]
fn p_056_what_would_help_a_pod_is_what_would_give_it_a_place() {
    let mut full = node_pool("full");
    full.spec.limits = serde_json::from_value(json!({"cpu": "0"})).unwrap();
    let taint = json!([{"key": "team", "value": "x", "effect": "NoSchedule"}]);
    full.spec.template.spec.taints = serde_json::from_value(taint).unwrap();
    let state = world().with_pool(full, types());
    let mistyped = json!({"nodeSelector": {"topology.kubernetes.io/zoen": "a"}});
    let story = pod_story(
        &state.clone().with_pod(pending_pod("typo", "1", "1Gi", &mistyped)),
        "default/typo",
    );
    let full = story.waits.iter().find(|wait| wait.object == "NodePool full");
    assert_eq!(
        full.unwrap().message,
        "all available instance types exceed limits for nodepool"
    );
    assert_eq!(
        story.hints,
        [
            "change spec.nodeSelector, or add a NodePool with these labels",
            "compare the pod's nodeSelector and affinity with the requirements of NodePool default"
        ]
    );
    let huge = pending_pod("huge", "64", "1Gi", &json!({}));
    let story = pod_story(&state.clone().with_pod(huge), "default/huge");
    let of_limits = |hint: &String| hint.contains("limits");
    assert!(!story.hints.iter().any(of_limits), "{story:?}");
    // The pod that only the limit keeps from a place is told so, with the NodePool that has it.
    let own = json!({
        "nodeSelector": {"karpenter.sh/nodepool": "full"},
        "tolerations": [{"key": "team", "operator": "Exists"}],
    });
    let story = pod_story(
        &state.with_pod(pending_pod("own", "1", "1Gi", &own)),
        "default/own",
    );
    assert_eq!(
        story.hints,
        [
            "raise the limits of a NodePool",
            "raise spec.limits of NodePool full, or use another pool"
        ]
    );
}

/// Not that its NodePools lack what it asks for, where there is none, or nobody knows what they have.
#[test]
fn p_056_a_pod_is_not_told_of_instance_types_where_there_are_none() {
    let told = |mut state: ClusterState| {
        state = state.with_pod(pending_pod("web", "64", "1Gi", &json!({})));
        let hints = pod_story(&state, "default/web").hints.into_iter();
        hints.filter(|hint| hint.contains("NodePool")).collect::<Vec<_>>()
    };
    let mut without = world();
    without.node_pools.clear();
    assert_eq!(told(without.clone()), ["add a NodePool: there is none"]);
    without.nodes.clear();
    without.node_claims.clear();
    assert_eq!(told(without), ["add a NodePool: there is none"]);
    let mut unknown = world();
    let elsewhere = Err(InstanceTypesProblem::KnownElsewhere);
    unknown.instance_types.insert("default".to_owned(), elsewhere);
    let hints = told(unknown);
    let unknown = "the instance types of no NodePool are known";
    assert!(hints.iter().any(|hint| hint == unknown), "{hints:?}");
}

/// kube-scheduler says of such a pod only that it is unschedulable, and no NodePool has anything against it: the claim is what has to be made.
#[test]
fn p_056_p_115_a_pod_whose_claim_does_not_exist_names_the_claim() {
    let volumes = json!({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]});
    let state = world().with_pod(pending_pod("web", "1", "1Gi", &volumes));
    let story = pod_story(&state, "default/web");
    assert_eq!(
        story.summary,
        "has no node: its volumes cannot be used as they are"
    );
    let waits = story.waits.iter();
    let waits: Vec<_> = waits
        .map(|one| (one.object.as_str(), one.message.as_str()))
        .collect();
    assert_eq!(
        waits,
        [("Pod", "persistentvolumeclaim \"default/data\", not found")]
    );
    assert!(story.next.is_empty(), "no node is launched: {:?}", story.next);
}

/// Which budgets allow something by then nobody knows, but for those that never do.
#[test]
fn d_322_a_drain_that_a_budget_holds_for_good_is_told_before_the_node_expires() {
    let told = |budgets: Vec<Arc<PodDisruptionBudget>>| {
        let mut state = world().with_pod(pod_with("guarded", json!({})));
        edit_claim(&mut state, |claim| {
            claim.spec.expire_after = "720h".parse().unwrap();
        });
        state.pod_disruption_budgets = budgets;
        let mut next = node_story(&state, None).next.into_iter().map(|next| next.what);
        next.find(|what| what.starts_with("expireAfter ")).unwrap()
    };
    let expires = "expireAfter 720h: it is deleted whatever the budgets say";
    let held = format!(
        "{expires}; its drain waits for Pod default/guarded (PodDisruptionBudget) however long that takes: it has no terminationGracePeriod"
    );
    assert_eq!(told(Vec::new()), expires);
    assert_eq!(told(vec![budget("guard", "guarded", 0)]), expires);
    let mut closed = budget("guard", "guarded", 0);
    let spec = json!({"maxUnavailable": 0, "selector": {"matchLabels": {"app": "guarded"}}});
    Arc::make_mut(&mut closed).spec = serde_json::from_value(spec).unwrap();
    assert_eq!(told(vec![closed]), held);
    // Of two, neither ever does.
    assert_eq!(
        told(vec![budget("one", "guarded", 1), budget("two", "guarded", 1)]),
        held
    );
}
