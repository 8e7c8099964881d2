//! Stories of NodeClaims and NodePools.

use super::ending::steps;
use super::*;
use spokeshave_api::conditions::NODE_REGISTRATION_HEALTHY;
use spokeshave_model::snapshot::InstanceTypesProblem;
use spokeshave_plan::disrupt::judge;

#[test]
fn a_node_claim_tells_its_life_and_what_it_waits_for() {
    let mut claim = NodeClaim::new("fresh", Default::default());
    claim.metadata.creation_timestamp = Some(Time(at("01:58:00")));
    claim.metadata.labels = Some([("karpenter.sh/nodepool".to_owned(), "default".to_owned())].into());
    claim.initialize_conditions(at("01:58:00"));
    claim.set(
        "Launched",
        Status::Unknown,
        "LaunchFailed",
        "no capacity in zone a",
        at("01:58:30"),
    );
    let story = |claim: NodeClaim| {
        let mut state = world();
        state.node_claims.push(Arc::new(claim.clone()));
        ask(&state, &[], &[], |facts| node_claim(facts, &claim, None))
    };
    let told = story(claim.clone());
    assert_eq!(told.summary, "is not launched for 2m");
    assert_eq!(
        steps(&told),
        [
            ("created", StepState::Done, ""),
            (
                "launched",
                StepState::Active,
                "LaunchFailed: no capacity in zone a"
            ),
            ("registered", StepState::Waiting, ""),
            ("initialised", StepState::Waiting, ""),
        ]
    );
    assert_eq!(
        told.waits[0].message,
        "the cloud to launch an instance: no capacity in zone a"
    );
    assert_eq!(
        next(&told)[0],
        (
            Some("2026-01-01T02:03:00Z".to_owned()),
            "is deleted if it is not launched by then; its pods are planned for again"
        )
    );
    claim.set_true("Launched", at("01:58:40"));
    let told = story(claim.clone());
    assert_eq!(told.summary, "is not registered for 2m");
    assert_eq!(told.waits[0].message, "the instance to join as a Node");
    assert_eq!(
        next(&told)[0],
        (
            Some("2026-01-01T02:13:00Z".to_owned()),
            "is deleted if it is not registered by then; its pods are planned for again"
        )
    );
    claim.metadata.deletion_timestamp = Some(Time(at("01:59:00")));
    let told = story(claim);
    assert_eq!(
        told.summary,
        "terminating for 1m: it waits for the cloud to end its instance"
    );
}

#[test]
fn p_065_d_210_a_node_pool_tells_limits_budgets_and_mistakes() {
    let mut pool = node_pool("default");
    pool.spec.limits = Some(
        [("cpu", "16"), ("memory", "1Ti")]
            .map(|(name, value)| {
                (
                    name.to_owned(),
                    k8s_openapi::apimachinery::pkg::api::resource::Quantity(value.to_owned()),
                )
            })
            .into(),
    );
    pool.spec.disruption.budgets = Some(vec![
        Budget {
            schedule: Some("0 0 * * 6".to_owned()),
            duration: Some("48h".parse().unwrap()),
            ..Budget::always("50%")
        },
        Budget::always("0"),
    ]);
    let mut state = world();
    state.node_pools = vec![Arc::new(pool)];
    let story = ask(&state, &[], &[], node_pool_story);
    assert_eq!(story.summary, "is at its limit cpu: no further node is launched");
    assert_eq!(
        fact(&story, "limits"),
        "cpu 16 of 16 (100%), memory 32Gi of 1Ti (3%)"
    );
    assert_eq!(fact(&story, "instance types"), "2 of 2 meet its requirements");
    assert!(
        fact(&story, "nodes").starts_with("1 node, $"),
        "{}",
        fact(&story, "nodes")
    );
    assert!(
        fact(&story, "nodes").ends_with("/h, 1 consolidatable"),
        "{}",
        fact(&story, "nodes")
    );
    assert_eq!(
        fact(&story, "budgets now"),
        "Empty, Drifted, Underutilized: 0 of 1 at once, 0 disrupting, 0 left"
    );
    assert_eq!(
        next(&story),
        [(
            None,
            "the budgets of NodePool default do not allow Empty, Drifted, Underutilized within a year, as things are"
        )]
    );
    let mistakes: Vec<&str> = story.waits.iter().map(|wait| wait.object.as_str()).collect();
    assert_eq!(mistakes, ["limit cpu", "spec.disruption.budgets[1]"]);
}

/// A budget is an upper bound: of two nodes no fifty go, and of none not even one.
#[test]
fn d_195_a_budget_above_the_number_of_nodes_is_told_as_all_of_them() {
    let told = |mut state: ClusterState| {
        let mut pool = node_pool("default");
        pool.spec.disruption.budgets = Some(vec![Budget::always("50")]);
        state.node_pools = vec![Arc::new(pool)];
        let story = ask(&state, &[], &[], node_pool_story);
        fact(&story, "budgets now").to_owned()
    };
    let second = spokeshave_example::node("default", "n2", &types()[1], "a", "on-demand");
    let mut state = world().with_node(second);
    assert_eq!(
        told(state.clone()),
        "Empty, Drifted, Underutilized: 2 of 2 at once, 0 disrupting, 2 left"
    );
    let going = state.nodes[0].spec.as_ref().unwrap().provider_id.clone();
    state.marked_for_deletion.insert(going.unwrap());
    assert_eq!(
        told(state.clone()),
        "Empty, Drifted, Underutilized: 2 of 2 at once, 1 disrupting, 1 left"
    );
    state.nodes.clear();
    state.node_claims.clear();
    assert_eq!(
        told(state),
        "Empty, Drifted, Underutilized: 0 of 0 at once, 0 disrupting, 0 left"
    );
}

/// They go at once, whatever keeps them from a command: the NodeClaim without an instance, then the node without pods.
#[test]
fn d_357_d_358_what_a_fixed_number_has_too_many_of_is_told_to_go() {
    let second = spokeshave_example::node("default", "n2", &types()[1], "a", "on-demand");
    let mut state = world().with_node(second).with_pod(pod_with("web", json!({})));
    let mut pool = node_pool("default");
    pool.spec.replicas = Some(1);
    state.node_pools = vec![Arc::new(pool)];
    let mut fresh = NodeClaim::new("claim-n3", Default::default());
    fresh.metadata.labels = Some([("karpenter.sh/nodepool".to_owned(), "default".to_owned())].into());
    state.node_claims.push(Arc::new(fresh));
    let pool = ask(&state, &[], &[], node_pool_story);
    assert_eq!(
        fact(&pool, "too many"),
        "2 nodes, deleted without a command in this order: claim-n3, n2"
    );
    let goes = "goes without a command: NodePool default has more nodes than spec.replicas";
    let told = |name: &str| {
        ask(&state, &[], &[], |facts| {
            let id = facts.snapshot.find_node(name).unwrap();
            let mut verdicts = [judge(facts.snapshot, facts.policy, facts.now, id)];
            facts.replicas.tell(facts.snapshot, &mut verdicts);
            node(facts, id, verdicts.first())
        })
    };
    assert_eq!(told("n2").summary, goes);
    assert_ne!(told("n1").summary, goes);
    let claim = ask(&state, &[], &[], |facts| {
        node_claim(facts, facts.find_claim("claim-n3").unwrap(), None)
    });
    assert!(next(&claim).contains(&(None, goes)), "{claim:?}");
}

/// Of three nodes one is there: the others are told to come only as far as they do.
#[test]
fn d_356_what_a_fixed_number_lacks_is_told_with_what_comes_of_it() {
    let told = |edit: &dyn Fn(&mut NodePool)| {
        let mut pool = node_pool("default");
        pool.spec.replicas = Some(3);
        edit(&mut pool);
        let mut state = world().with_pod(asking_pod());
        state.node_pools = vec![Arc::new(pool)];
        let story = ask(&state, &[], &[], node_pool_story);
        let waiting = pod_story(&state, "default/asking").waits.into_iter();
        let why = waiting.filter(|wait| wait.object == "NodePool default");
        let why = why.map(|wait| wait.message).collect::<Vec<String>>().join("; ");
        (fact(&story, "missing").to_owned(), story.summary, why)
    };
    let nodes_at_most = |nodes: &str| {
        let limits: Value = json!({"nodes": nodes});
        move |pool: &mut NodePool| pool.spec.limits = serde_json::from_value(limits.clone()).unwrap()
    };
    let (missing, _, why) = told(&|_| {});
    assert_eq!(missing, "2 nodes, launched at once");
    assert!(why.starts_with("it is static: it launches its replicas"), "{why}");
    let (missing, ..) = told(&nodes_at_most("2"));
    assert_eq!(
        missing,
        "2 nodes, of which 1 is launched at once: limits.nodes is reached"
    );
    let (missing, ..) = told(&nodes_at_most("1"));
    assert_eq!(missing, "2 nodes, and none is launched: limits.nodes is reached");
    let unsold = |pool: &mut NodePool| {
        let key = "node.kubernetes.io/instance-type";
        let wanted = json!([{"key": key, "operator": "In", "values": ["m5.large"]}]);
        pool.spec.template.spec.requirements = serde_json::from_value(wanted).unwrap();
    };
    let (missing, summary, why) = told(&unsold);
    assert_eq!(missing, "2 nodes, and none is launched");
    assert_eq!(summary, format!("cannot launch nodes: {why}"));
    assert!(why.ends_with("leaves none of 2 instance types"), "{why}");
    let enough = |pool: &mut NodePool| pool.spec.replicas = Some(1);
    assert_eq!(told(&enough).0, "");
}

/// What names no instance types is launched with too few of them for minValues too, except on EC2, which is not asked then.
#[test]
fn d_356_min_values_keep_a_fixed_number_from_being_launched_on_ec2_only() {
    let told = |replicas: Option<i64>, group: &str, kind: &str| {
        let mut pool = node_pool("default");
        pool.spec.replicas = replicas;
        let class = &mut pool.spec.template.spec.node_class_ref;
        (class.group, class.kind) = (group.to_owned(), kind.to_owned());
        let many = json!([{"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 5}]);
        pool.spec.template.spec.requirements = serde_json::from_value(many).unwrap();
        let mut state = world();
        state.node_pools = vec![Arc::new(pool)];
        ask(&state, &[], &[], node_pool_story).summary
    };
    let (kwok, ec2) = (
        ("karpenter.kwok.sh", "KWOKNodeClass"),
        ("karpenter.k8s.aws", "EC2NodeClass"),
    );
    for (replicas, (group, kind), can) in [
        (Some(3), kwok, true),
        (Some(3), ec2, false),
        (None, kwok, false),
        (None, ec2, false),
    ] {
        let summary = told(replicas, group, kind);
        let expected = match can {
            true => "can launch nodes",
            false => "cannot launch nodes: the 2 instance types of 2 that meet its requirements have 2 of",
        };
        assert!(summary.starts_with(expected), "{replicas:?} {kind}: {summary}");
    }
}

/// A pod that nothing but NodePool default will do for, and that is larger than its node.
fn asking_pod() -> Pod {
    let selector = json!({"nodeSelector": {"karpenter.sh/nodepool": "default"}});
    pending_pod("asking", "64", "1Gi", &selector)
}

/// Only an operator that has just started still tries what is too late; what was launched and does not join nobody tries again.
#[test]
fn d_263_a_node_claim_that_is_too_late_may_still_be_tried() {
    let mut claim = NodeClaim::new("late", Default::default());
    claim.metadata.creation_timestamp = Some(Time(at("01:30:00")));
    claim.initialize_conditions(at("01:30:00"));
    let told = |claim: &NodeClaim| {
        let mut state = world();
        state.node_claims.push(Arc::new(claim.clone()));
        let story = ask(&state, &[], &[], |facts| node_claim(facts, claim, None));
        let whats = story.next.into_iter().map(|next| next.what);
        whats.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(
        told(&claim),
        "is deleted now: launch_timeout; an operator that has just started tries to launch it for a minute before"
    );
    let mut old = claim.clone();
    old.spec.expire_after = "1m".parse().unwrap();
    assert!(!told(&old).contains("tries to launch"), "{}", told(&old));
    claim.set_true("Launched", at("01:31:00"));
    assert_eq!(told(&claim), "is deleted now: registration_timeout");
}

#[test]
fn invariant_24_a_node_pool_that_cannot_launch_says_so() {
    let told = |mut state: ClusterState, pool: NodePool| {
        state.node_pools = vec![Arc::new(pool)];
        ask(&state, &[], &[], node_pool_story).summary
    };
    let summary = |pool: NodePool| told(world(), pool);
    let mut unsold = node_pool("default");
    unsold.spec.template.spec.requirements = serde_json::from_value(serde_json::json!([
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]},
    ]))
    .unwrap();
    let text = summary(unsold);
    assert!(text.starts_with("cannot launch nodes: "), "{text}");
    // What the operator has found out is on the NodePool.
    let mut fixed = node_pool("default");
    fixed.spec.replicas = Some(3);
    for dependent in NodePool::DEPENDENTS {
        fixed.set_true(dependent, at("01:00:00"));
    }
    let why = "the feature gate StaticCapacity is off";
    let condition = spokeshave_api::conditions::LAUNCHABLE;
    fixed.set(
        condition,
        Status::False,
        "StaticCapacityDisabled",
        why,
        at("01:00:00"),
    );
    assert_eq!(summary(fixed.clone()), format!("cannot launch nodes: {why}"));
    let mut elsewhere = world();
    let unknown = Err(InstanceTypesProblem::KnownElsewhere);
    elsewhere.instance_types.insert("default".to_owned(), unknown);
    assert_eq!(
        told(elsewhere.clone(), fixed),
        format!("cannot launch nodes: {why}")
    );
    assert_eq!(
        told(elsewhere, node_pool("default")),
        "can launch nodes, of instance types that only its operator knows"
    );
    assert_eq!(summary(node_pool("default")), "can launch nodes");
}

/// It counts as ready so that it can be planned with, and nothing comes of the plan before an operator does.
#[test]
fn a_node_pool_that_no_operator_has_judged_says_so_first() {
    let mut state = world();
    let mut pool = node_pool("default");
    pool.set("Ready", Status::True, crate::doctor::NOT_JUDGED, "", now());
    state.node_pools = vec![Arc::new(pool)];
    state.nodes.clear();
    state.node_claims.clear();
    let story = ask(&state, &[], &[], node_pool_story);
    assert_eq!(
        story.summary,
        "no operator has judged it yet: nothing is launched from it until one does"
    );
    assert_eq!(
        fact(&story, "state"),
        "not judged by an operator yet; taken as Ready"
    );
    let state = state.with_pod(pending_pod("web", "1", "1Gi", &json!({})));
    assert_eq!(
        pod_story(&state, "default/web").summary,
        "waits for a node, and no operator has judged NodePool default yet: it is launched once one does"
    );
}

fn node_pool_story(facts: &Facts<'_>) -> Story {
    crate::explain::node_pool(facts, facts.snapshot.find_pool("default").unwrap())
}

/// A freeze is told with its policy, its reason and its end, also where the NodePool has no node that a verdict could be about.
#[test]
fn invariant_4_a_frozen_node_pool_says_by_what_why_and_until_when() {
    let policy = |name: &str, spec: serde_json::Value| {
        let spec = serde_json::from_value(spec).unwrap();
        Arc::new(spokeshave_api::DisruptionPolicy::new(name, spec))
    };
    let mut state = world();
    state.nodes.clear();
    state.node_claims.clear();
    let until = "2026-01-01T04:00:00Z";
    state.disruption_policies = vec![
        policy(
            "freeze",
            json!({"freeze": {"reason": "incident 42", "until": until}}),
        ),
        policy(
            "other",
            json!({"nodePools": {"names": ["other"]}, "freeze": {"reason": "not meant"}}),
        ),
        policy(
            "over",
            json!({"freeze": {"reason": "past", "until": "2026-01-01T01:00:00Z"}}),
        ),
    ];
    let story = ask(&state, &[], &[], node_pool_story);
    let stopped = story.facts.iter().filter(|fact| fact.name == "stopped");
    let stopped: Vec<&str> = stopped.map(|fact| fact.value.as_str()).collect();
    assert_eq!(
        stopped,
        [
            "DisruptionPolicy freeze (spec.freeze) stops Empty, Drifted, Underutilized: frozen: incident 42, until 2026-01-01 04:00:00Z"
        ]
    );
}

/// Nodes that rest or cannot be drained tell it themselves: the others of their NodePool may go.
#[test]
fn what_keeps_single_nodes_is_not_told_as_stopping_their_node_pool() {
    let mut state = world().with_pod(pod_with("web", json!({"karpenter.sh/do-not-disrupt": "true"})));
    edit_claim(&mut state, |claim| {
        claim.set_true(spokeshave_api::conditions::DRIFTED, at("01:00:00"));
    });
    let told = |state: &mut ClusterState, spec: Value| {
        let spec = serde_json::from_value(spec).unwrap();
        state.disruption_policies = vec![Arc::new(spokeshave_api::DisruptionPolicy::new("own", spec))];
        let story = ask(state, &[], &[], node_pool_story);
        let stopped = story.facts.into_iter().filter(|fact| fact.name == "stopped");
        stopped.map(|fact| fact.value).collect::<Vec<String>>()
    };
    let keeping = json!({"blockedDrains": {}, "convergence": {"rest": "4h"}});
    assert_eq!(told(&mut state, keeping), [""; 0]);
    let policy = &state.disruption_policies[0];
    let after = spokeshave_plan::disruption_policy::status(policy, &lower(&state), &[], now());
    let active = after.status.unwrap_or_default().active.into_iter();
    assert_eq!(
        active.map(|rule| rule.field).collect::<Vec<String>>(),
        ["spec.convergence.rest", "spec.blockedDrains"]
    );
    // What cannot be read stops all of them.
    let wrong = told(&mut state, json!({"convergence": {"restartCost": "free"}}));
    let [only] = wrong.as_slice() else {
        panic!("{wrong:?}");
    };
    let begin = "DisruptionPolicy own (spec.convergence.restartCost) stops Empty, Underutilized: ";
    assert!(only.starts_with(begin), "{only}");
}

/// No node was launched from it yet: that does not make a NodePool unready.
#[test]
fn a_condition_that_nobody_has_set_is_not_waited_for() {
    let mut pool = node_pool("default");
    pool.initialize_conditions(at("01:00:00"));
    for dependent in NodePool::DEPENDENTS {
        pool.set_true(dependent, at("01:00:00"));
    }
    pool.set(
        spokeshave_api::conditions::NODE_REGISTRATION_HEALTHY,
        Status::Unknown,
        "AwaitingReconciliation",
        "",
        at("01:00:00"),
    );
    let mut state = world();
    state.node_pools = vec![Arc::new(pool)];
    let story = ask(&state, &[], &[], node_pool_story);
    assert!(story.waits.is_empty(), "{:?}", story.waits);
    assert_eq!(story.hints, ["spokeshave budgets default"]);
}

#[test]
fn a_node_pool_that_is_not_ready_says_why() {
    let mut pool = node_pool("default");
    pool.set("Ready", Status::False, "NodeClassNotReady", "", at("01:00:00"));
    pool.set(
        "NodeClassReady",
        Status::False,
        "NodeClassNotFound",
        "KWOKNodeClass default is not there",
        at("01:00:00"),
    );
    let mut state = world();
    state.node_pools = vec![Arc::new(pool)];
    let story = ask(&state, &[], &[], node_pool_story);
    assert_eq!(story.summary, "is not Ready: no node is launched from it");
    let said = story
        .waits
        .iter()
        .find(|wait| wait.object == "condition NodeClassReady");
    assert_eq!(
        said.unwrap().message,
        "is False: KWOKNodeClass default is not there"
    );
    assert_eq!(said.unwrap().since, Some(at("01:00:00")));
    assert_eq!(
        story.hints,
        [
            "kubectl describe kwoknodeclass default",
            "spokeshave budgets default"
        ]
    );
}

/// It is Unknown of every NodePool that has never launched anything, and has no part in `Ready`.
#[test]
fn how_registrations_go_is_in_the_way_only_where_they_go_wrong() {
    let waits = |status: Status| {
        let mut pool = node_pool("default");
        pool.set(
            NODE_REGISTRATION_HEALTHY,
            status,
            "AwaitingReconciliation",
            "",
            at("01:00:00"),
        );
        pool.set("Ready", Status::False, "NodeClassReady", "", at("01:00:00"));
        let mut state = world();
        state.node_pools = vec![Arc::new(pool)];
        let story = ask(&state, &[], &[], node_pool_story);
        let objects: Vec<String> = story.waits.into_iter().map(|wait| wait.object).collect();
        objects.contains(&format!("condition {NODE_REGISTRATION_HEALTHY}"))
    };
    assert_eq!(
        [Status::Unknown, Status::True, Status::False].map(waits),
        [false, false, true]
    );
}

/// A pod says which PodDisruptionBudget keeps it, once.
#[test]
fn a_pod_names_the_budget_that_keeps_it_once() {
    let mut state = world().with_pod(pod_with("guarded", json!({})));
    state.pod_disruption_budgets = vec![budget("guard", "guarded", 0)];
    let story = ask(&state, &[], &[], |facts| {
        let provisioned = provision(facts.snapshot, facts.policy, facts.now);
        let id = facts.snapshot.pod_ids().next().unwrap();
        pod(facts, id, &provisioned, None)
    });
    let waits: Vec<(&str, &str)> = story
        .waits
        .iter()
        .map(|wait| (wait.object.as_str(), wait.message.as_str()))
        .collect();
    assert_eq!(
        waits,
        [(
            "PodDisruptionBudget default/guard",
            "0 of 3 may be down: minAvailable 3, 3 healthy"
        )]
    );
}

/// Not that the catalogue lacks the type, where it is the NodePool that has none.
#[test]
fn a_price_that_is_not_known_says_what_is_missing() {
    let types = types();
    let price = |state: &ClusterState| fact(&node_story(state, None), "price").to_owned();
    let mut unsold = types[1].clone();
    unsold.name = "unsold".to_owned();
    let state = |kind: &InstanceType| {
        ClusterState::default()
            .with_pool(node_pool("default"), types.clone())
            .with_node(spokeshave_example::node("default", "n1", kind, "a", "on-demand"))
    };
    let unlisted = state(&unsold);
    assert_eq!(
        price(&unlisted),
        "unknown: the catalogue has no offering of this type in this zone"
    );
    let mut classless = state(&types[1]);
    let absent = InstanceTypesProblem::Failed("KWOKNodeClass \"default\" is not in the file".to_owned());
    classless.instance_types.insert("default".to_owned(), Err(absent));
    assert_eq!(price(&classless), "unknown: its NodePool has no instance types");
    let mut orphan = state(&types[1]);
    orphan.node_pools.clear();
    assert_eq!(price(&orphan), "unknown: its NodePool is not there");
    // A sum without it is no sum of nothing.
    let story = ask(&unlisted, &[], &[], node_pool_story);
    assert_eq!(story.price_per_hour, None);
    assert!(fact(&story, "nodes").starts_with("1 node, price unknown"));
}
