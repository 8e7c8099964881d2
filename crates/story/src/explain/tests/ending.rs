//! Stories of nodes that are on their way out: the drain, its deadline, volumes and finalizers.

use super::*;

/// A node whose deletion was requested at 01:50.
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

pub(super) fn steps(story: &Story) -> Vec<(&str, StepState, &str)> {
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
                spokeshave_api::conditions::TERMINATION_BLOCKED,
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
        claim.clear(spokeshave_api::conditions::TERMINATION_BLOCKED);
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
            "deadline by interruption, repair or hand, as there is no terminationGracePeriod: pods still there are deleted, whatever PodDisruptionBudgets and do-not-disrupt say"
        )]
    );
    edit_claim(&mut state, |claim| {
        claim.spec.termination_grace_period = Some("30m".parse().unwrap());
    });
    assert_eq!(
        next(&node_story(&state, None))[0].1,
        "deadline: pods still there are deleted, whatever PodDisruptionBudgets and do-not-disrupt say"
    );
}

/// A deletion that no command has asked for may be an interruption, or a repair: nobody is told that it was somebody's own doing.
#[test]
fn d_282_a_deletion_without_a_reason_may_be_an_interruption() {
    let mut state = going();
    edit_claim(&mut state, |claim| {
        claim.clear("DisruptionReason");
    });
    let story = node_story(&state, None);
    assert_eq!(
        steps(&story)[0].2,
        "by hand, expiry, interruption, repair or another controller"
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
