//! Decisions as lines that people read: what, why, how much money. The one place where outcomes become prose.

use crate::provision::ProvisionOutcome;
use spokeshave_model::placement::PlannedClaim;
use spokeshave_model::snapshot::{PodId, Snapshot};
use std::sync::Arc;

/// At most `limit` names, then `and N other(s)`, as upstream lists pods and instance types.
pub fn first_few<T: AsRef<str>>(names: &[T], limit: usize) -> String {
    let shown: Vec<&str> = names.iter().take(limit).map(AsRef::as_ref).collect();
    with_others(&shown.join(", "), names.len().saturating_sub(limit))
}

/// The same in words for people: `a, b and 1 other`.
pub fn some_of<T: AsRef<str>>(names: &[T], limit: usize) -> String {
    let shown: Vec<&str> = names.iter().take(limit).map(AsRef::as_ref).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(limit) {
        0 => shown,
        others => format!("{shown} and {}", count(others, "other")),
    }
}

/// `1 node`, `2 nodes`.
pub fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

fn with_others(shown: &str, others: usize) -> String {
    match others {
        0 => shown.to_owned(),
        others => format!("{shown} and {others} other(s)"),
    }
}

/// The names of the instance types a planned claim may be launched as, cheapest first.
pub fn instance_type_names(snapshot: &Snapshot, claim: &PlannedClaim) -> Vec<String> {
    let types = &snapshot.pool(claim.pool).instance_types;
    claim
        .launches
        .iter()
        .map(|launch| types[launch.instance_type].name.clone())
        .collect()
}

/// The same of pods; of tens of thousands only those that are shown are named.
pub fn first_pods(snapshot: &Snapshot, pods: &[PodId], limit: usize) -> String {
    let shown: Vec<String> = pods
        .iter()
        .take(limit)
        .map(|pod| snapshot.pod(*pod).key())
        .collect();
    with_others(&shown.join(", "), pods.len().saturating_sub(limit))
}

fn pods_text(snapshot: &Snapshot, pods: &[PodId]) -> String {
    format!("{}: {}", count(pods.len(), "pod"), first_pods(snapshot, pods, 5))
}

/// One line for a planned claim: pool, cheapest way to launch it, price, pods.
pub fn planned_claim_line(snapshot: &Snapshot, claim: &PlannedClaim) -> String {
    let pool = &snapshot.pool(claim.pool).name;
    let names = instance_type_names(snapshot, claim);
    let Some((cheapest, name)) = claim.launches.first().zip(names.first()) else {
        return format!("launch nothing from nodepool {pool}: no instance type is left");
    };
    let where_ = [
        cheapest.capacity_type.map(|kind| kind.as_str().to_owned()),
        cheapest.zone.clone(),
    ];
    let where_: Vec<String> = where_.into_iter().flatten().collect();
    let alternatives = match names.len() - 1 {
        0 => String::new(),
        others => format!(", or {}", count(others, "other type")),
    };
    format!(
        "launch {name} ({}{alternatives}) from nodepool {pool} at ${}/h for {}",
        where_.join(", "),
        cheapest.price,
        pods_text(snapshot, &claim.pods)
    )
}

/// The story of a provisioning pass: launches, placements on existing nodes, and pods left over; pods with one reason share a line.
pub fn provision_lines(snapshot: &Snapshot, outcome: &ProvisionOutcome) -> Vec<String> {
    let mut lines: Vec<String> = outcome
        .placements
        .claims
        .iter()
        .map(|claim| planned_claim_line(snapshot, claim))
        .collect();
    for (node, pods) in &outcome.placements.existing {
        lines.push(format!(
            "use node {} for {}",
            snapshot.node(*node).name,
            pods_text(snapshot, pods)
        ));
    }
    let mut reasons: Vec<(Arc<str>, Vec<PodId>)> = Vec::new();
    for (pod, text) in outcome.left_over() {
        match reasons.iter_mut().find(|(known, _)| *known == text) {
            Some((_, pods)) => pods.push(pod),
            None => reasons.push((text, vec![pod])),
        }
    }
    lines.extend(
        reasons
            .into_iter()
            .map(|(text, pods)| format!("cannot place {}: {text}", pods_text(snapshot, &pods))),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, provision};
    use serde_json::json;
    use spokeshave_example::{epoch, instance_type, node, node_pool, pending_pod};
    use spokeshave_model::{ClusterState, lower};

    #[test]
    fn a_pass_reads_as_a_story() {
        let types = vec![
            instance_type("small", 2, 4, &["a"]),
            instance_type("large", 16, 32, &["a"]),
        ];
        let pod = |name: &str, cpu: &str| pending_pod(name, cpu, "100Mi", &json!({}));
        let state = ClusterState::default()
            .with_pool(node_pool("default"), types.clone())
            .with_node(node("default", "n", &types[0], "a", "spot"))
            .with_pods([
                pod("a", "1800m"),
                pod("b", "1700m"),
                pod("c", "99"),
                pod("d", "99"),
            ]);
        let snapshot = lower(&state);
        let lines = provision_lines(&snapshot, &provision(&snapshot, &Policy::default(), epoch()));
        let [launch, reuse, cannot] = lines.as_slice() else {
            panic!("three lines: {lines:#?}")
        };
        assert_eq!(
            launch,
            "launch small (spot, a, or 1 other type) from nodepool default at $0.056/h for 1 pod: default/b"
        );
        assert_eq!(reuse, "use node n for 1 pod: default/a");
        assert!(
            cannot.starts_with(
                "cannot place 2 pods: default/c, default/d: no instance type has enough resources"
            ),
            "{cannot}"
        );
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(first_few(&["a", "b", "c"], 2), "a, b and 1 other(s)");
        assert_eq!(first_few(&["a", "b"], 2), "a, b");
        assert_eq!(some_of(&["a", "b", "c"], 2), "a, b and 1 other");
        assert_eq!(some_of(&["a", "b", "c"], 1), "a and 2 others");
    }
}
