//! Invariant 37: an operator that is killed at any write of a story, and started again, ends in the same state as one that lives on.
//!
//! A scenario is run once without a kill, which counts its writes, and then with a kill at each of them: the write is executed, and the
//! operator dies before it sees the result. Writes to the cloud count as well, so one of the kills falls between the launch
//! of an instance and its record. The checkers observe every run.
//!
//! Owns the runs; the scenarios are in `stories`.

mod stories;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::json;
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{KWOKInstance, KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_runtime::Api;

use crate::lab::{self, Lab, LabOptions, Operators};
use spokeshave_cluster::objects::is_deleting;

pub use stories::{Story, stories};

/// Longest virtual time for which a scenario waits until it is complete.
const LIMIT: Duration = Duration::from_secs(2 * 3600);
/// So many looks in a row, a second apart, must find the end unchanged.
const CALM: u32 = 60;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The remaining objects, by kind and state. Names differ after a kill, so only kinds and states are compared.
    pub state: BTreeMap<String, usize>,
    /// Writes that the operator made before it died, or until the end of the story.
    pub writes: u64,
    /// Whether the story was over before the kill.
    pub survived: bool,
}

/// Runs a scenario with a kill at a write, counted from 1; `None` runs it without a kill.
///
/// # Errors
/// The scenario does not complete, an invariant is violated, or something is leaked.
pub fn tell(story: &Story, kill_at: Option<u64>) -> Result<End, String> {
    let told = lab::tell(async |operators| telling(story, kill_at, operators).await);
    told.map_err(|problem| match kill_at {
        Some(write) => format!("{}, killed at write {write}: {problem}", story.name),
        None => format!("{}: {problem}", story.name),
    })
}

/// Runs a scenario with a kill at one of its writes, and compares its final state with that of the run without a kill.
///
/// # Errors
/// As [`tell`], or nobody died, or the final states differ.
pub fn compare(story: &Story, lived: &End, write: u64) -> Result<(), String> {
    let end = tell(story, Some(write))?;
    if end.survived {
        return Err(format!(
            "{}, killed at write {write}: nobody died, after {} of {} writes",
            story.name, end.writes, lived.writes
        ));
    }
    if end.state == lived.state {
        return Ok(());
    }
    Err(format!(
        "{}, killed at write {write}: ends in {:?} instead of {:?}",
        story.name, end.state, lived.state
    ))
}

async fn telling(story: &Story, kill_at: Option<u64>, operators: &mut Operators) -> Result<End, String> {
    let mut lab = Lab::new(LabOptions::new(11)).await;
    let class = json!({"metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": "5s"}});
    lab.create(&Api::<KWOKNodeClass>::all(lab.client.clone()), class)
        .await
        .map_err(stories::text)?;
    lab.create(&Api::<NodePool>::all(lab.client.clone()), (story.pool)("default"))
        .await
        .map_err(stories::text)?;
    lab.start("before");
    (story.prepare)(&lab).await?;
    lab.stop("before").await;
    let lifeline = lab.start_mortal("doomed", kill_at.unwrap_or(u64::MAX));
    (story.act)(&lab).await?;
    let first = until_settled(&lab, story.end, || lifeline.is_cut()).await;
    let (survived, writes) = (!lifeline.is_cut(), lifeline.made());
    lab.kill("doomed").await;
    lab.start("again");
    // What the first has not reached the second may.
    until_settled(&lab, story.end, || false)
        .await
        .map_err(|problem| format!("{problem}; before: {first:?}"))?;
    if survived {
        first?;
    }
    let state = state(&lab).await;
    let violations = lab.invariants.violations();
    *operators = lab.end().await;
    if let Some(one) = violations.first() {
        return Err(format!("{} promise(s) broken: {one}", violations.len()));
    }
    Ok(End {
        state,
        writes,
        survived,
    })
}

/// Waits until the end has been there for a while, or until `over`.
async fn until_settled(lab: &Lab, end: (usize, usize), over: impl Fn() -> bool) -> Result<(), String> {
    let start = lab.clock.now();
    let mut calm = 0;
    while calm < CALM {
        if over() {
            return Ok(());
        }
        if lab.clock.since(start) > LIMIT {
            return Err(format!(
                "not at its end within {LIMIT:?}, {} pods on {} nodes, but: {:?}",
                end.0,
                end.1,
                state(lab).await
            ));
        }
        calm = if is_settled(lab, end).await { calm + 1 } else { 0 };
        lab.clock.sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

async fn is_settled(lab: &Lab, (pods, nodes): (usize, usize)) -> bool {
    let all = lab.list::<Pod>().await;
    let claims = lab.list::<NodeClaim>().await;
    all.len() == pods
        && all.iter().all(runs)
        && claims.len() == nodes
        && claims.iter().all(|claim| !is_deleting(&claim.metadata))
        && lab.list::<Node>().await.len() == nodes
        && lab.list::<KWOKInstance>().await.len() == nodes
}

fn runs(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Running") && !is_deleting(&pod.metadata)
}

/// What there is. Conditions that say what the clock or the last look found are left out.
async fn state(lab: &Lab) -> BTreeMap<String, usize> {
    const PASSING: [&str; 3] = [
        "Consolidatable",
        "ConsistentStateFound",
        "spokeshave.dev/Disruptable",
    ];
    let mut counts = BTreeMap::new();
    let mut count = |what: String| *counts.entry(what).or_insert(0) += 1;
    for node in lab.list::<Node>().await {
        let spec = node.spec.unwrap_or_default();
        let taints: Vec<String> = spec.taints.into_iter().flatten().map(|taint| taint.key).collect();
        let initialized = node
            .metadata
            .labels
            .is_some_and(|labels| labels.contains_key("karpenter.sh/initialized"));
        count(format!(
            "node initialized={initialized} taints={taints:?} cordoned={} finalizers={:?} deleting={}",
            spec.unschedulable.unwrap_or(false),
            node.metadata.finalizers.unwrap_or_default(),
            node.metadata.deletion_timestamp.is_some(),
        ));
    }
    for claim in lab.list::<NodeClaim>().await {
        let conditions = claim.status.unwrap_or_default().conditions;
        let mut truths: Vec<String> = conditions
            .into_iter()
            .filter(|one| !PASSING.contains(&one.type_.as_str()))
            .map(|one| format!("{}={}", one.type_, one.status))
            .collect();
        truths.sort();
        count(format!(
            "nodeclaim deleting={} {truths:?} finalizers={:?}",
            claim.metadata.deletion_timestamp.is_some(),
            claim.metadata.finalizers.unwrap_or_default(),
        ));
    }
    for instance in lab.list::<KWOKInstance>().await {
        let phase = instance.status.unwrap_or_default().phase;
        count(format!("instance {phase:?}"));
    }
    for pod in lab.list::<Pod>().await {
        let phase = pod.status.unwrap_or_default().phase;
        count(format!("pod {phase:?}"));
    }
    for _ in lab.list::<VolumeAttachment>().await {
        count("volumeattachment".to_owned());
    }
    for command in lab.list::<Disruption>().await {
        let phase = command.status.and_then(|status| status.phase);
        count(format!("disruption {phase:?}"));
    }
    counts
}
