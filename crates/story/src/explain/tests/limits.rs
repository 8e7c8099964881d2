//! Limits of NodePools: what is told of them is what the plan makes of them.

use super::*;
use crate::doctor::{Level, doctor};
use crate::explain::node_pool as told_of;
use std::collections::BTreeMap;

/// A NodePool with these limits and instance types, and a small pod that waits.
fn limited(limits: Value, types: &[InstanceType]) -> ClusterState {
    let mut pool = node_pool("default");
    pool.spec.limits = serde_json::from_value(limits).unwrap();
    ClusterState::default()
        .with_pool(pool, types.to_vec())
        .with_pod(pending_pod("web", "300m", "100Mi", &json!({})))
}

/// The story, whether a node would be launched for the pod, and what the doctor says of limits.
fn told(state: &ClusterState) -> (Story, bool, Vec<(Level, &'static str)>) {
    let snapshot = lower(state);
    let launches = provision(&snapshot, &Policy::default(), now()).placements.claims;
    let findings = doctor(state, &snapshot, &BTreeMap::new(), now()).into_iter();
    let findings = findings.filter(|found| found.code.starts_with("limit-"));
    let story = ask(state, &[], &[], |facts| {
        told_of(facts, facts.snapshot.find_pool("default").unwrap())
    });
    let found = findings.map(|found| (found.level, found.code)).collect();
    (story, !launches.is_empty(), found)
}

fn with_gpus() -> InstanceType {
    let mut gpu = instance_type("gpu", 8, 32, &["a"]);
    gpu.capacity.set("nvidia.com/gpu", 4);
    gpu
}

/// Whoever follows a pod that waits to its NodePool is told what comes of it, in one voice: a limit of what a type has not does not stop it, and what a limit leaves
/// may be too little for any.
#[test]
fn p_093_explain_and_doctor_say_of_limits_what_the_plan_does() {
    let plain = types();
    let mixed = [types(), vec![with_gpus()]].concat();
    let odd = [
        instance_type("wide", 2, 64, &["a"]),
        instance_type("tall", 16, 4, &["a"]),
    ];
    let leaves_none = Some((Level::Warning, "limit-leaves-no-type"));
    let reached = Some((Level::Warning, "limit-reached"));
    let gpus = [with_gpus()];
    let cases: [(Value, &[InstanceType], Option<(Level, &str)>); 13] = [
        (json!({"nvidia.com/gpu": "0"}), &plain, None),
        (json!({"nvidia.com/gpu": "0"}), &mixed, None),
        (json!({"nvidia.com/gpu": "3"}), &mixed, None),
        (json!({"nvidia.com/gpu": "0"}), &gpus, reached),
        (json!({"nvidia.com/gpu": "3"}), &gpus, leaves_none),
        (json!({"cpu": "500m"}), &plain, leaves_none),
        (json!({"cpu": "2"}), &plain, None),
        (json!({"cpu": "0"}), &plain, reached),
        (json!({"memory": "1Gi"}), &plain, leaves_none),
        (json!({"nodes": "0"}), &plain, reached),
        (json!({"nodes": "1"}), &plain, None),
        (json!({"cpu": "2", "memory": "4Gi"}), &odd, leaves_none),
        (json!({"cpu": "16", "memory": "4Gi"}), &odd, None),
    ];
    for (limits, types, finding) in cases {
        let (story, is_launched, found) = told(&limited(limits.clone(), types));
        assert_eq!(
            story.summary == "can launch nodes",
            is_launched,
            "{limits}: {}",
            story.summary
        );
        assert_eq!(story.waits.is_empty(), is_launched, "{limits}: {:?}", story.waits);
        assert_eq!(found, finding.into_iter().collect::<Vec<_>>(), "{limits}");
        assert_eq!(is_launched, finding.is_none(), "{limits}");
    }
    let (story, ..) = told(&limited(json!({"nvidia.com/gpu": "0"}), &mixed));
    assert_eq!(
        fact(&story, "not launched"),
        "instance types with nvidia.com/gpu, of which its limits leave too little"
    );
    let (story, ..) = told(&limited(json!({"nvidia.com/gpu": "0"}), &plain));
    assert_eq!(fact(&story, "not launched"), "");
    let (story, ..) = told(&limited(json!({"cpu": "500m"}), &plain));
    assert_eq!(
        story.waits[0].message,
        "500m of 500m is left, and its smallest instance type has 2: no further node is launched"
    );
}

/// A limit that is used up is worth a word where it was not set to keep a resource out; above it, nothing at all is launched.
#[test]
fn p_065_a_limit_of_what_only_some_types_have_stops_these_alone() {
    let mixed = [types(), vec![with_gpus()]].concat();
    let state = |limit: &str| {
        limited(json!({"nvidia.com/gpu": limit}), &mixed).with_node(spokeshave_example::node(
            "default",
            "n1",
            &with_gpus(),
            "a",
            "on-demand",
        ))
    };
    let (story, _, found) = told(&state("4"));
    assert_eq!(story.summary, "can launch nodes");
    assert_eq!(found, [(Level::Note, "limit-reached")]);
    let (story, _, found) = told(&state("3"));
    assert_eq!(
        story.summary,
        "is at its limit nvidia.com/gpu: no further node is launched"
    );
    assert_eq!(found, [(Level::Warning, "limit-reached")]);
}

/// Where nobody knows the instance types, each of them has cores and memory, and perhaps nothing else.
#[test]
fn p_065_limits_of_instance_types_that_only_the_operator_knows() {
    let told = |limits: Value| {
        let mut state = limited(limits, &types());
        let elsewhere = Err(spokeshave_model::snapshot::InstanceTypesProblem::KnownElsewhere);
        state.instance_types.insert("default".to_owned(), elsewhere);
        told(&state).0.summary
    };
    assert!(told(json!({"nvidia.com/gpu": "0"})).starts_with("can launch nodes"));
    assert!(told(json!({"cpu": "500m"})).starts_with("can launch nodes"));
    for resource in ["cpu", "memory", "nodes"] {
        let expected = format!("is at its limit {resource}: no further node is launched");
        assert_eq!(told(json!({resource: "0"})), expected);
    }
}
