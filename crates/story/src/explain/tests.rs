//! Stories of small worlds, each statement checked.

use super::*;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use spokeshave_api::conditions::{Conditioned as _, Status};
use spokeshave_api::{Budget, NodeClaim, NodePool};
use spokeshave_example::{bound, epoch, instance_type, labelled, node_pool, pending_pod};
use spokeshave_model::Pod;
use spokeshave_model::{ClusterState, InstanceType, Price, lower};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::{Blocker, BlockerKind, Counterfactual, Decision, Method, Subject, Verdict};
use spokeshave_plan::provision;
use std::sync::Arc;

mod standing;

fn types() -> Vec<InstanceType> {
    vec![
        instance_type("small", 2, 4, &["a"]),
        instance_type("large", 16, 32, &["a"]),
    ]
}

/// Two hours after the examples began.
fn now() -> Timestamp {
    epoch() + jiff::SignedDuration::from_hours(2)
}

fn at(text: &str) -> Timestamp {
    format!("2026-01-01T{text}Z").parse().unwrap()
}

fn world() -> ClusterState {
    let types = types();
    ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node(spokeshave_example::node(
            "default",
            "n1",
            &types[1],
            "a",
            "on-demand",
        ))
}

fn pod_with(name: &str, annotations: Value) -> Pod {
    let mut pod = bound(pending_pod(name, "1", "1Gi", &json!({})), "n1");
    pod.metadata.annotations = serde_json::from_value(annotations).unwrap();
    labelled(pod, &[("app", name)])
}

fn owned(mut pod: Pod, api_version: &str, kind: &str) -> Pod {
    let owner = json!([{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u"}]);
    pod.metadata.owner_references = serde_json::from_value(owner).unwrap();
    pod
}

fn budget(name: &str, app: &str, allowed: i32) -> Arc<PodDisruptionBudget> {
    let value = json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed, "expectedPods": 3, "currentHealthy": 3, "desiredHealthy": 3},
    });
    Arc::new(serde_json::from_value(value).unwrap())
}

fn edit_claim(state: &mut ClusterState, edit: impl Fn(&mut NodeClaim)) {
    for claim in &mut state.node_claims {
        edit(Arc::make_mut(claim));
    }
}

/// Runs a question on a state.
fn ask<T>(
    state: &ClusterState,
    attachments: &[Arc<VolumeAttachment>],
    commands: &[CommandFact],
    question: impl FnOnce(&Facts<'_>) -> T,
) -> T {
    let snapshot = lower(state);
    let policy = Policy::default();
    question(&Facts {
        snapshot: &snapshot,
        state,
        policy: &policy,
        attachments,
        commands,
        now: now(),
    })
}

fn node_story(state: &ClusterState, verdict: Option<&Verdict>) -> Story {
    ask(state, &[], &[], |facts| {
        node(facts, facts.snapshot.find_node("n1").unwrap(), verdict)
    })
}

fn fact<'a>(story: &'a Story, name: &str) -> &'a str {
    let found = story.facts.iter().find(|fact| fact.name == name);
    found.map_or("", |fact| &fact.value)
}

fn next(story: &Story) -> Vec<(Option<String>, &str)> {
    let line = |next: &'_ Next| next.at.map(|at| at.to_string());
    story
        .next
        .iter()
        .map(|next| (line(next), next.what.as_str()))
        .collect()
}

#[test]
fn a_node_says_what_it_is() {
    let story = node_story(&world().with_pod(pod_with("web", json!({}))), None);
    assert_eq!((story.object_kind, story.name.as_str()), ("Node", "n1"));
    assert_eq!(fact(&story, "nodeclaim"), "claim-n1");
    assert_eq!(fact(&story, "nodepool"), "default");
    assert_eq!(fact(&story, "machine"), "large, on-demand, a, amd64");
    let price = types()[1].price_of("a", "on-demand").unwrap();
    assert_eq!(fact(&story, "price"), format!("${:.4}/h", price.dollars()));
    assert_eq!(story.price_per_hour, Some(price.dollars()));
    assert_eq!(fact(&story, "age"), "2h");
    assert_eq!(fact(&story, "state"), "Ready, initialised");
    assert!(
        fact(&story, "requested").starts_with("cpu 1 of "),
        "{}",
        fact(&story, "requested")
    );
    assert_eq!(fact(&story, "pods"), "1 pod: 1 movable");
    assert_eq!(
        fact(&story, "budgets"),
        "Empty, Drifted, Underutilized: 1 of 1 node at once, 0 disrupting, 1 left"
    );
}

#[test]
fn d_002_d_011_d_017_each_pod_says_what_it_means_for_its_node() {
    let mut state = world()
        .with_pod(pod_with("a-movable", json!({})))
        .with_pod(pod_with(
            "b-forever",
            json!({"karpenter.sh/do-not-disrupt": "true"}),
        ))
        .with_pod(pod_with("c-while", json!({"karpenter.sh/do-not-disrupt": "3h"})))
        .with_pod(pod_with("d-over", json!({"karpenter.sh/do-not-disrupt": "1h"})))
        .with_pod(pod_with(
            "e-wrong",
            json!({"karpenter.sh/do-not-disrupt": "soon"}),
        ))
        .with_pod(pod_with("f-guarded", json!({})))
        .with_pod(pod_with("g-twice", json!({})))
        .with_pod(pod_with("h-allowed", json!({})))
        .with_pod(owned(pod_with("i-daemon", json!({})), "apps/v1", "DaemonSet"))
        .with_pod(owned(pod_with("j-static", json!({})), "v1", "Node"));
    state.pod_disruption_budgets = vec![
        budget("guard", "f-guarded", 0),
        budget("one", "g-twice", 1),
        budget("two", "g-twice", 1),
        budget("open", "h-allowed", 1),
    ];
    let mut finished = pod_with("k-finished", json!({}));
    finished.status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
    let mut stopping = pod_with("l-stopping", json!({}));
    stopping.metadata.deletion_timestamp = Some(Time(at("02:00:20")));
    let story = node_story(&state.with_pod(finished).with_pod(stopping), None);
    let said: Vec<(&str, bool, &str)> = story
        .pods
        .iter()
        .map(|pod| {
            (
                pod.pod.trim_start_matches("default/"),
                pod.blocks,
                pod.message.as_str(),
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            (
                "b-forever",
                true,
                "karpenter.sh/do-not-disrupt for as long as it is there"
            ),
            (
                "c-while",
                true,
                "karpenter.sh/do-not-disrupt until 2026-01-01T03:00:00Z"
            ),
            (
                "g-twice",
                true,
                "selected by 2 PodDisruptionBudgets (default/one, default/two); Kubernetes evicts only pods of one"
            ),
            (
                "f-guarded",
                true,
                "PodDisruptionBudget default/guard: 0 of 3 may be down: minAvailable 3, 3 healthy"
            ),
            (
                "l-stopping",
                false,
                "is stopping, has time until 2026-01-01T02:00:20Z"
            ),
            ("a-movable", false, "may move"),
            (
                "d-over",
                false,
                "may move; its karpenter.sh/do-not-disrupt ended 2026-01-01T01:00:00Z"
            ),
            (
                "e-wrong",
                false,
                "may move; its karpenter.sh/do-not-disrupt protects nothing: failed to parse \"soon\" as a duration: time: invalid duration \"soon\""
            ),
            (
                "h-allowed",
                false,
                "may move; PodDisruptionBudget default/open: 1 of 3 may be down: minAvailable 3, 3 healthy"
            ),
            ("i-daemon", false, "DaemonSet pod; is evicted after the others"),
            ("j-static", false, "static pod; ends with the node"),
            ("k-finished", false, "has finished; nothing waits for it"),
        ]
    );
    assert_eq!(
        fact(&story, "pods"),
        "12 pods: 4 keeping it, 4 movable, 1 stopping, 2 ending with it, 1 finished"
    );
    assert!(next(&story).contains(&(
        Some("2026-01-01T03:00:00Z".to_owned()),
        "do-not-disrupt of Pod default/c-while ends"
    )));
}

#[test]
fn d_041_d_245_d_195_what_happens_next_and_when() {
    let mut pool = node_pool("default");
    pool.spec.disruption.consolidate_after = "90m".parse().unwrap();
    pool.spec.disruption.budgets = Some(vec![Budget {
        schedule: Some("0 1 * * *".to_owned()),
        duration: Some("8h".parse().unwrap()),
        ..Budget::always("0")
    }]);
    let mut state = world();
    state.node_pools = vec![Arc::new(pool)];
    edit_claim(&mut state, |claim| {
        claim.spec.expire_after = "720h".parse().unwrap();
        claim.clear("Consolidatable");
        claim.status.as_mut().unwrap().last_pod_event_time = Some(Time(at("01:30:00")));
    });
    let story = node_story(&state, None);
    assert_eq!(
        next(&story),
        [
            (
                Some("2026-01-01T03:00:00Z".to_owned()),
                "consolidateAfter 1h30m has passed since the last pod came or went: it may be consolidated"
            ),
            (
                Some("2026-01-01T09:00:00Z".to_owned()),
                "the budgets of NodePool default allow Empty, Drifted, Underutilized"
            ),
            (
                Some("2026-01-31T00:00:00Z".to_owned()),
                "expireAfter 720h: it is deleted whatever the budgets say"
            ),
        ]
    );
    assert_eq!(
        fact(&story, "budgets"),
        "Empty, Drifted, Underutilized: 0 of 1 node at once, 0 disrupting, 0 left"
    );
}

fn kept() -> Verdict {
    let object = Subject {
        kind: "Pod",
        namespace: "default".to_owned(),
        name: "web".to_owned(),
    };
    Verdict {
        node: 0.into(),
        decision: Decision::NoOp,
        method: None,
        price_before: Price::from_dollars(0.64),
        price_after: Price::from_dollars(0.64),
        replacement: None,
        blockers: vec![Blocker {
            kind: BlockerKind::PodDoNotDisrupt,
            object,
            message: "pod has \"karpenter.sh/do-not-disrupt\" annotation".to_owned(),
            condition: "Pod default/web had no do-not-disrupt".to_owned(),
        }],
        waits: None,
        if_removed: Some(Counterfactual {
            decision: Decision::Delete,
            method: Method::SingleNodeConsolidation,
            price_before: Price::from_dollars(0.64),
            price_after: Price::ZERO,
            replacement: None,
        }),
    }
}

#[test]
fn the_verdict_is_told_with_its_counterfactual_and_the_command_that_lifts_the_blocker() {
    let state = world().with_pod(pod_with("web", json!({"karpenter.sh/do-not-disrupt": "true"})));
    let story = node_story(&state, Some(&kept()));
    assert_eq!(story.summary, "stays because of Pod default/web");
    let verdict = story.verdict.as_ref().unwrap();
    assert_eq!((verdict.decision, verdict.blockers.len()), ("keep", 1));
    assert_eq!(
        verdict.if_removed,
        "if Pod default/web had no do-not-disrupt: delete, saves $0.64/h"
    );
    assert_eq!(
        story.hints,
        ["kubectl annotate pod -n default web karpenter.sh/do-not-disrupt-"]
    );
    assert_eq!(
        fact(&story, "budgets"),
        "Underutilized: 1 of 1 node at once, 0 disrupting, 1 left",
        "only the reason that would apply"
    );
    let gone = Verdict {
        decision: Decision::Delete,
        method: Some(Method::Emptiness),
        price_after: Price::ZERO,
        blockers: Vec::new(),
        if_removed: None,
        ..kept()
    };
    assert_eq!(
        node_story(&world(), Some(&gone)).summary,
        "would be deleted: saves $0.64/h"
    );
}

#[test]
fn a_command_under_way_is_named_with_its_phase() {
    let command = CommandFact {
        name: "empty-1".to_owned(),
        phase: "Replacing".to_owned(),
        reason: "Underutilized".to_owned(),
        decision: "Replace".to_owned(),
        message: "waits for default-x to be initialised".to_owned(),
        decided_at: Some(at("01:59:00")),
        nodes: vec!["n1".to_owned(), "claim-n1".to_owned()],
        ..CommandFact::default()
    };
    let story = |command: CommandFact| {
        ask(&world(), &[], &[command], |facts| {
            node(facts, facts.snapshot.find_node("n1").unwrap(), None)
        })
    };
    let told = story(command.clone());
    assert_eq!(
        told.summary,
        "belongs to a disruption command that is being carried out"
    );
    assert!(next(&told).contains(&(
        None,
        "it goes by Disruption empty-1 (Replace, Underutilized), phase Replacing since 2026-01-01T01:59:00Z: waits for default-x to be initialised"
    )));
    assert!(
        told.verdict.is_none() && fact(&told, "budgets").is_empty(),
        "{told:?}"
    );
    assert!(
        !next(&told).iter().any(|(_, what)| what.contains("budgets")),
        "{told:?}"
    );
    let finished = CommandFact {
        finished: true,
        ..command
    };
    assert_eq!(story(finished).summary, "runs");
}

/// A node that was told to go at 01:50.
fn going() -> ClusterState {
    let mut state = world();
    edit_claim(&mut state, |claim| {
        claim.metadata.deletion_timestamp = Some(Time(at("01:50:00")));
        claim.metadata.finalizers = Some(vec!["karpenter.sh/termination".to_owned()]);
        claim.set("DisruptionReason", Status::True, "Drifted", "", at("01:49:00"));
        claim.set("Drained", Status::Unknown, "Draining", "Draining", at("01:50:02"));
    });
    let node = Arc::make_mut(&mut state.nodes[0]);
    node.metadata.deletion_timestamp = Some(Time(at("01:50:01")));
    node.spec.as_mut().unwrap().taints = Some(vec![spokeshave_api::labels::disrupted_taint()]);
    state
}

fn steps(story: &Story) -> Vec<(&str, StepState, &str)> {
    let steps = story.steps.iter();
    steps
        .map(|step| (step.name, step.state, step.detail.as_str()))
        .collect()
}

#[test]
fn d_320_a_drain_says_its_tier_and_what_each_pod_waits_for() {
    let mut state = going()
        .with_pod(pod_with("guarded", json!({})))
        .with_pod(pod_with("plain", json!({})))
        .with_pod(pod_with("still", json!({"karpenter.sh/do-not-disrupt": "true"})))
        .with_pod(owned(pod_with("daemon", json!({})), "apps/v1", "DaemonSet"));
    state.pod_disruption_budgets = vec![budget("guard", "guarded", 0)];
    let story = node_story(&state, None);
    assert_eq!(
        steps(&story),
        [
            ("deletion asked for", StepState::Done, "Drifted"),
            ("tainted", StepState::Done, "karpenter.sh/disrupted:NoSchedule"),
            (
                "drained",
                StepState::Active,
                "tier 1 of 4, ordinary pods: 3 pods to go; 1 pod of later tiers after that"
            ),
            ("volumes detached", StepState::Waiting, "after the drain"),
            ("instance gone", StepState::Waiting, ""),
            ("finalizers removed", StepState::Waiting, ""),
        ]
    );
    assert_eq!(story.steps[0].since, Some(at("01:50:00")));
    let waits: Vec<(&str, &str)> = story
        .waits
        .iter()
        .map(|wait| (wait.object.as_str(), wait.message.as_str()))
        .collect();
    assert_eq!(
        waits,
        [
            (
                "Pod default/guarded",
                "PodDisruptionBudget default/guard: 0 of 3 may be down: minAvailable 3, 3 healthy"
            ),
            ("Pod default/still", "karpenter.sh/do-not-disrupt"),
            ("Pod default/plain", "is to be evicted"),
            ("Pod default/daemon", "its tier has not come"),
        ]
    );
    assert_eq!(
        story.summary,
        "terminating for 10m: the drain waits for Pod default/guarded"
    );
    assert_eq!(
        next(&story),
        [(
            None,
            "no deadline: there is no terminationGracePeriod, so it waits for as long as it takes"
        )]
    );
}

#[test]
fn what_the_controllers_wrote_down_is_told_and_dates_the_rest() {
    let mut state = going().with_pod(pod_with("guarded", json!({})));
    state.pod_disruption_budgets = vec![budget("guard", "guarded", 0)];
    let blocked = |state: &mut ClusterState, reason: &str, message: &str| {
        edit_claim(state, |claim| {
            claim.set(
                spokeshave_plan::blockers::TERMINATION_BLOCKED,
                Status::True,
                reason,
                message,
                at("01:51:00"),
            );
        });
    };
    blocked(
        &mut state,
        "PodDisruptionBudget",
        "pod default/guarded is kept by PodDisruptionBudget default/guard: 0 of 3 may be down",
    );
    let story = node_story(&state, None);
    assert_eq!(story.waits.len(), 1);
    assert_eq!(
        (story.waits[0].object.as_str(), story.waits[0].since),
        ("Pod default/guarded", Some(at("01:51:00")))
    );
    state.pods.clear();
    edit_claim(&mut state, |claim| {
        claim.clear(spokeshave_plan::blockers::TERMINATION_BLOCKED);
        claim.set_true("Drained", at("01:50:30"));
        claim.set_true("VolumesDetached", at("01:50:30"));
        claim.set_true("InstanceTerminating", at("01:50:31"));
    });
    blocked(
        &mut state,
        "ProviderError",
        "instance kwok://n1: the cloud answered 500",
    );
    let story = node_story(&state, None);
    assert_eq!(
        story.waits,
        [Wait {
            object: "ProviderError".to_owned(),
            message: "instance kwok://n1: the cloud answered 500".to_owned(),
            since: Some(at("01:51:00")),
        }]
    );
}

#[test]
fn d_301_d_334_a_deadline_is_told_and_when_each_pod_is_deleted_for_it() {
    let mut state = going().with_pod(pod_with("still", json!({"karpenter.sh/do-not-disrupt": "true"})));
    let pod = Arc::make_mut(&mut state.pods[0]);
    pod.spec_mut().termination_grace_period_seconds = Some(60);
    edit_claim(&mut state, |claim| {
        let key = "karpenter.sh/nodeclaim-termination-timestamp".to_owned();
        claim.metadata.annotations = Some([(key, "2026-01-01T02:20:00Z".to_owned())].into());
    });
    let story = node_story(&state, None);
    assert_eq!(
        story.waits[0].message,
        "karpenter.sh/do-not-disrupt; is deleted after 2026-01-01T02:19:00Z"
    );
    assert_eq!(
        next(&story),
        [(
            Some("2026-01-01T02:20:00Z".to_owned()),
            "deadline: pods still there are deleted, whatever PodDisruptionBudgets and do-not-disrupt say"
        )]
    );
}

#[test]
fn d_338_volumes_then_the_instance_then_the_finalizers() {
    let attachment: VolumeAttachment = serde_json::from_value(json!({
        "metadata": {"name": "csi-1"},
        "spec": {"attacher": "ebs.csi.aws.com", "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}},
    }))
    .unwrap();
    let mut state = going();
    edit_claim(&mut state, |claim| {
        claim.set_true("Drained", at("01:55:00"));
        claim.set(
            "VolumesDetached",
            Status::Unknown,
            "AwaitingVolumeDetachment",
            "",
            at("01:55:00"),
        );
    });
    let told = |state: &ClusterState, attachments: &[Arc<VolumeAttachment>]| {
        ask(state, attachments, &[], |facts| {
            node(facts, facts.snapshot.find_node("n1").unwrap(), None)
        })
    };
    let story = told(&state, &[Arc::new(attachment)]);
    assert_eq!(
        steps(&story)[2..4],
        [
            ("drained", StepState::Done, ""),
            ("volumes detached", StepState::Active, "1 volume still attached"),
        ]
    );
    assert_eq!(
        (
            story.waits[0].object.as_str(),
            story.waits[0].message.as_str(),
            story.waits[0].since
        ),
        (
            "VolumeAttachment csi-1",
            "volume pv-1 is still attached by ebs.csi.aws.com",
            Some(at("01:55:00"))
        )
    );
    edit_claim(&mut state, |claim| {
        claim.set_true("VolumesDetached", at("01:56:00"));
        claim.set_true("InstanceTerminating", at("01:56:01"));
        claim
            .metadata
            .finalizers
            .as_mut()
            .unwrap()
            .push("example.com/hold".to_owned());
    });
    let story = told(&state, &[]);
    assert_eq!(
        steps(&story)[3..],
        [
            ("volumes detached", StepState::Done, ""),
            (
                "instance gone",
                StepState::Active,
                "the cloud was asked to end it and still reports it"
            ),
            (
                "finalizers removed",
                StepState::Waiting,
                "others hold it too: example.com/hold"
            ),
        ]
    );
    assert_eq!(
        story.summary,
        "terminating for 10m: it waits for the cloud to end its instance"
    );
}

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

#[test]
fn invariant_24_a_node_pool_that_cannot_launch_says_so() {
    let summary = |pool: NodePool| {
        let mut state = world();
        state.node_pools = vec![Arc::new(pool)];
        ask(&state, &[], &[], node_pool_story).summary
    };
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
    assert_eq!(summary(fixed), format!("cannot launch nodes: {why}"));
    assert_eq!(summary(node_pool("default")), "can launch nodes");
}

fn node_pool_story(facts: &Facts<'_>) -> Story {
    super::node_pool(facts, facts.snapshot.find_pool("default").unwrap())
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
}

fn pod_story(state: &ClusterState, name: &str) -> Story {
    ask(state, &[], &[], |facts| {
        let id = facts
            .snapshot
            .pod_ids()
            .find(|id| facts.snapshot.pod(*id).key() == name)
            .unwrap();
        let provisioned = provision(facts.snapshot, facts.policy, facts.now);
        super::pod(facts, id, &provisioned, None)
    })
}

#[test]
fn p_056_a_pod_without_a_node_says_why_in_numbers_and_what_would_help() {
    let mut state = world().with_pod(pending_pod("huge", "64", "1Gi", &json!({})));
    let types = types();
    let mut tainted = spokeshave_example::node("default", "n2", &types[1], "a", "on-demand");
    let taint = json!([{"key": "team", "value": "x", "effect": "NoSchedule"}]);
    tainted.0.spec.as_mut().unwrap().taints = serde_json::from_value(taint).unwrap();
    state = state.with_node(tainted);
    let story = pod_story(&state, "default/huge");
    assert_eq!(story.summary, "has no place, and no NodePool can make one");
    assert_eq!(fact(&story, "requests"), "cpu 64, memory 1Gi");
    assert_eq!(
        (story.waits[0].object.as_str(), story.waits[0].message.as_str()),
        (
            "2 nodes there",
            "1 with taint team=x:NoSchedule, 1 with too little cpu"
        )
    );
    assert_eq!(story.waits[1].object, "NodePool default");
    assert_eq!(
        story.hints,
        ["no instance type of NodePool default is large enough for the pod and the DaemonSets"]
    );
}

#[test]
fn a_pod_that_gets_a_node_says_which() {
    let state = world().with_pod(pending_pod("big", "15", "1Gi", &json!({})));
    let crowded = state.with_pod(pod_with("web", json!({})));
    let story = pod_story(&crowded, "default/big");
    assert_eq!(story.summary, "waits for a node that is about to be launched");
    assert!(
        story.next[0].what.starts_with("launch large ("),
        "{}",
        story.next[0].what
    );
    let story = pod_story(
        &world().with_pod(pending_pod("little", "1", "1Gi", &json!({}))),
        "default/little",
    );
    assert_eq!(
        story.summary,
        "has room on n1; kube-scheduler is expected to bind it there"
    );
    let mut gated = pending_pod(
        "gated",
        "1",
        "1Gi",
        &json!({"schedulingGates": [{"name": "example.com/wait"}]}),
    );
    gated.status.as_mut().unwrap().conditions = None;
    let story = pod_story(&world().with_pod(gated), "default/gated");
    assert_eq!(
        story.waits[0].message,
        "is held by scheduling gates: example.com/wait"
    );
}

#[test]
fn a_pod_that_runs_says_whether_it_may_be_moved() {
    let state = world()
        .with_pod(pod_with("free", json!({})))
        .with_pod(pod_with("kept", json!({"karpenter.sh/do-not-disrupt": "true"})));
    assert_eq!(
        pod_story(&state, "default/free").summary,
        "runs on n1 and may be moved"
    );
    let story = pod_story(&state, "default/kept");
    assert_eq!(story.summary, "runs on n1 and keeps it from being disrupted");
    assert_eq!(story.waits[0].object, "Pod default/kept");
    assert_eq!(story.hints, ["spokeshave explain node n1"]);
}

#[test]
fn ages_are_short_and_near_names_are_found() {
    let ago = |seconds| age(now() - jiff::SignedDuration::from_secs(seconds), now());
    for (seconds, text) in [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (75, "1m15s"),
        (7200, "2h"),
        (7260, "2h1m"),
        (90_000, "1d1h"),
        (-5, "0s"),
    ] {
        assert_eq!(ago(seconds), text);
    }
    let known = ["kwok-default-1", "kwok-default-2", "other"];
    assert_eq!(
        near_matches("kwok-defualt-1", known),
        ["kwok-default-1", "kwok-default-2"]
    );
    assert_eq!(near_matches("DEFAULT-2", known), ["kwok-default-2"]);
    assert!(near_matches("zzz", known).is_empty());
}
