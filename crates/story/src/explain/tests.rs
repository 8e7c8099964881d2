//! Stories of small worlds, each statement checked.

use super::*;
use crate::replicas::Replicas;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use spokeshave_api::conditions::{Conditioned as _, Status};
use spokeshave_api::labels::PRICE_AT_LAUNCH;
use spokeshave_api::{Budget, NodeClaim, NodePool};
use spokeshave_example::{bound, epoch, instance_type, labelled, node_pool, pending_pod};
use spokeshave_model::Pod;
use spokeshave_model::{ClusterState, InstanceType, Price, PriceFeed, lower};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::{Blocker, BlockerKind, Counterfactual, Decision, Method, Subject, Verdict};
use spokeshave_plan::provision;
use std::sync::Arc;

mod ending;
mod limits;
mod pools;
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
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "u", "controller": true}]);
    pod.metadata.owner_references = serde_json::from_value(owner).unwrap();
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
        replicas: &Replicas::of(state, &[], now()),
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

/// Where there are no prices of spot, a spot node and its NodeClaim and NodePool are told with what the node cost when it was launched, or with none: never with
/// the price of on-demand.
#[test]
fn a_054_a_spot_node_is_not_told_with_the_price_of_on_demand() {
    let types = types();
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), types.clone())
        .with_node(spokeshave_example::node("default", "n1", &types[1], "a", "spot"));
    state.distress.prices = PriceFeed::WithoutSpot;
    let without = node_story(&state, None);
    assert_eq!(without.price_per_hour, None);
    assert!(fact(&without, "price").starts_with("unknown: prices of spot"));
    edit_claim(&mut state, |claim| {
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.insert(PRICE_AT_LAUNCH.to_owned(), "0.0321".to_owned());
    });
    let told = "$0.0321/h, the price of spot when it was launched";
    let of_node = node_story(&state, None);
    assert_eq!(of_node.price_per_hour, Some(0.0321));
    assert_eq!(fact(&of_node, "price"), told);
    let of_claim = ask(&state, &[], &[], |facts| {
        node_claim(facts, facts.find_claim("claim-n1").unwrap(), None)
    });
    assert_eq!(fact(&of_claim, "price"), told);
    let of_pool = ask(&state, &[], &[], |facts| {
        super::node_pool(facts, facts.snapshot.find_pool("default").unwrap())
    });
    assert!(fact(&of_pool, "nodes").starts_with("1 node, $0.0321/h"));
    // The operator has prices of spot: they count.
    state.distress.prices = PriceFeed::Since(epoch());
    let now = types[1].price_of("a", "spot").unwrap();
    assert_eq!(node_story(&state, None).price_per_hour, Some(now.dollars()));
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
        by_on_demand: false,
        price_unknown: false,
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
    let waits = Verdict {
        waits: Some("it rests until then".to_owned()),
        ..gone
    };
    let story = node_story(&world(), Some(&waits));
    assert_eq!(
        story.summary,
        "would be deleted: saves $0.64/h; it rests until then"
    );
    assert_eq!(story.verdict.unwrap().waits, waits.waits);
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
        [
            "lower its requests, or allow larger instance types",
            "no instance type of NodePool default is large enough for the pod and the DaemonSets"
        ]
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
    let mut alone = pod_with("alone", json!({}));
    alone.metadata.owner_references = None;
    let story = pod_story(&state.clone().with_pod(alone), "default/alone");
    assert_eq!(story.summary, "runs on n1; evicted, it does not come back");
    assert_eq!(
        fact(&story, "for its node"),
        "is evicted and does not come back: nothing recreates it"
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
