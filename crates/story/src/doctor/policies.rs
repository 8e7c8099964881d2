//! DisruptionPolicies that are not what is meant, and annotations of workloads that cannot be read.

use spokeshave_api::labels::{MOVE_WINDOWS, MOVES_PER_DAY, QUIET_TIME};
use spokeshave_model::snapshot::{PodView, Snapshot};

use super::pods::by_owner;
use super::{Finding, Level};
use jiff::Timestamp;
use spokeshave_plan::disruption_policy::forecast::PoolNodes;
use spokeshave_plan::disruption_policy::{flaw, lint};
use spokeshave_plan::report::count;

/// Findings about policies and what is asked of them.
pub(super) fn findings(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let mut findings = of_policies(snapshot, now);
    findings.extend(of_annotations(snapshot));
    findings
}

/// Findings of the linter of policies.
fn of_policies(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let pools: Vec<PoolNodes> = snapshot.pools.iter().map(PoolNodes::of).collect();
    let found = lint(&snapshot.disruption_policies, &pools, now).into_iter();
    let finding = |said: spokeshave_plan::disruption_policy::PolicyFinding| {
        let (object, of) = (format!("DisruptionPolicy {}", said.policy), said.finding);
        let proof = format!(
            "{} of the policy, with {}",
            of.field,
            count(pools.len(), "NodePool")
        );
        let message = format!("{} {}", of.field, of.message);
        let found = Finding::new(of.level, of.code, object, message, proof).field(of.field);
        match of.suggestion {
            Some(suggestion) => found.suggest(suggestion),
            None => found,
        }
    };
    found.map(finding).collect()
}

/// An invalid value is capped at the policy's maximum, and therefore protects more than intended.
fn of_annotations(snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (object, annotations) in &snapshot.workload_annotations {
        let object = object.replacen('/', " ", 1);
        for (key, value) in annotations {
            findings.extend(of_annotation(&object, key, value, "the object"));
        }
    }
    for key in [QUIET_TIME, MOVES_PER_DAY, MOVE_WINDOWS] {
        let given = |pod: &PodView| {
            let value = pod.object.metadata.annotations.as_ref()?.get(key)?;
            flaw(key, value).map(|_| value.clone())
        };
        for (owner, pods) in by_owner(snapshot, |pod| given(pod).is_some()) {
            let value = pods.first().and_then(|pod| given(snapshot.pod(*pod)));
            let found =
                value.and_then(|value| of_annotation(&owner, key, &value, &count(pods.len(), "active pod")));
            findings.extend(found.map(|found| found.keeps(snapshot, &pods)));
        }
    }
    findings
}

fn of_annotation(object: &str, key: &str, value: &str, on: &str) -> Option<Finding> {
    let expected = flaw(key, value)?;
    let message = "an annotation cannot be read: under a DisruptionPolicy with `workloads` it counts as the most that the policy lets anybody ask for";
    let found = Finding::new(
        Level::Warning,
        "workload-annotation-invalid",
        object.to_owned(),
        message.to_owned(),
        format!("{key}: {value:?} on {on}"),
    );
    Some(
        found
            .field(format!("metadata.annotations.{key}"))
            .suggest(expected),
    )
}
