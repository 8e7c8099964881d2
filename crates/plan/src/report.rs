//! Launches, pods and names in words: what, for whom, for how much money.

use spokeshave_model::Price;
use spokeshave_model::placement::PlannedClaim;
use spokeshave_model::snapshot::{PodId, Snapshot};

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

/// A planned claim in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedLaunch {
    /// Pool, cheapest way to launch it, price.
    pub what: String,
    /// How many pods, and the first of them.
    pub pods: String,
}

impl std::fmt::Display for PlannedLaunch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} for {}", self.what, self.pods)
    }
}

/// What a planned claim would launch, and for whom.
pub fn planned_launch(snapshot: &Snapshot, claim: &PlannedClaim) -> PlannedLaunch {
    PlannedLaunch {
        what: cheapest_launch(snapshot, claim),
        pods: pods_text(snapshot, &claim.pods),
    }
}

fn pods_text(snapshot: &Snapshot, pods: &[PodId]) -> String {
    let names: Vec<String> = pods.iter().map(|pod| snapshot.pod(*pod).key()).collect();
    format!("{}: {}", count(pods.len(), "pod"), some_of(&names, 5))
}

fn cheapest_launch(snapshot: &Snapshot, claim: &PlannedClaim) -> String {
    let pool = &snapshot.pool(claim.pool).name;
    let names = instance_type_names(snapshot, claim);
    let Some((cheapest, name)) = claim.launches.first().zip(names.first()) else {
        return format!("launch nothing from nodepool {pool}: no instance type is left");
    };
    let kind = cheapest.capacity_type.map(|kind| kind.as_str().to_owned());
    let offering: Vec<String> = [kind, cheapest.zone.clone()].into_iter().flatten().collect();
    let alternatives = match names.len() - 1 {
        0 => String::new(),
        others => format!(", or {}", count(others, "other type")),
    };
    let price = match cheapest.price {
        Price::UNKNOWN => "an unknown price".to_owned(),
        price => format!("${price}/h"),
    };
    format!(
        "launch {name} ({}{alternatives}) from nodepool {pool} at {price}",
        offering.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, provision};
    use serde_json::json;
    use spokeshave_example::{epoch, instance_type, node_pool, pending_pod};
    use spokeshave_model::{ClusterState, lower};

    #[test]
    fn a_launch_says_what_for_whom_and_for_how_much() {
        let types = vec![
            instance_type("small", 2, 4, &["a"]),
            instance_type("large", 16, 32, &["a"]),
        ];
        let pod = |name: &str| pending_pod(name, "200m", "100Mi", &json!({}));
        let state = ClusterState::default()
            .with_pool(node_pool("default"), types)
            .with_pods(["a", "b", "c", "d", "e", "f"].map(pod));
        let snapshot = lower(&state);
        let outcome = provision(&snapshot, &Policy::default(), epoch());
        let told = planned_launch(&snapshot, &outcome.placements.claims[0]);
        assert_eq!(
            told.what,
            "launch small (spot, a, or 1 other type) from nodepool default at $0.056/h"
        );
        assert_eq!(
            told.pods,
            "6 pods: default/a, default/b, default/c, default/d, default/e and 1 other"
        );
        assert_eq!(told.to_string(), format!("{} for {}", told.what, told.pods));
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(first_few(&["a", "b", "c"], 2), "a, b and 1 other(s)");
        assert_eq!(first_few(&["a", "b"], 2), "a, b");
        assert_eq!(some_of(&["a", "b", "c"], 2), "a, b and 1 other");
        assert_eq!(some_of(&["a", "b", "c"], 1), "a and 2 others");
    }
}
