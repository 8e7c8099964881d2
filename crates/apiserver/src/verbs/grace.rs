//! The grace period of a pod that is deleted: when it begins, and that it only becomes shorter.
//!
//! It stores nothing: what a deletion makes of a pod is in `deleting`.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::verbs::delete_options::DeleteOptions;
use crate::verbs::deleting::bump_generation;
use crate::verbs::writing::seconds;

/// Starts or shortens the grace period of a pod. True while it lasts.
pub(super) fn begin_grace(pod: &mut Value, options: &DeleteOptions, now: Timestamp) -> bool {
    let asked = options
        .grace_period_seconds
        .map(|seconds| if seconds < 0 { 1 } else { seconds });
    let metadata = &pod["metadata"];
    let begun = metadata["deletionTimestamp"]
        .as_str()
        .and_then(|text| text.parse::<Timestamp>().ok());
    let Some(due) = begun else {
        let bound = pod["spec"]["nodeName"]
            .as_str()
            .is_some_and(|name| !name.is_empty());
        let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let own = pod["spec"]["terminationGracePeriodSeconds"]
            .as_i64()
            .map_or(30, |seconds| if seconds < 0 { 1 } else { seconds });
        let grace = if bound && !ended { asked.unwrap_or(own) } else { 0 };
        pod["metadata"]["deletionTimestamp"] = json!(seconds(
            now.saturating_add(SignedDuration::from_secs(grace))
                .unwrap_or(now)
        ));
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        bump_generation(pod);
        return grace > 0;
    };
    let left = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    match asked {
        Some(asked) if asked < left => {
            let sooner = due
                .saturating_sub(SignedDuration::from_secs(left - asked))
                .unwrap_or(due);
            pod["metadata"]["deletionTimestamp"] = json!(seconds(sooner));
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(asked);
            asked > 0
        }
        _ => left > 0,
    }
}
