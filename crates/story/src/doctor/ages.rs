//! NodeClaims that are older than their `expireAfter` and still there.

use super::{Finding, Level};
use crate::durations::short;
use crate::expired::Expired;
use spokeshave_plan::report::{count, some_of};

/// What an operator does with them as soon as it looks at them (D-247).
pub(crate) fn expired(expired: &Expired) -> Option<Finding> {
    let oldest = expired.claims.iter();
    let oldest = oldest.min_by_key(|claim| claim.metadata.creation_timestamp.as_ref().map(|time| time.0))?;
    let created = oldest.metadata.creation_timestamp.as_ref();
    let created = created.map(|time| format!("was created {}, ", time.0.strftime("%Y-%m-%d %H:%M:%SZ")));
    let names: Vec<&str> = expired.claims.iter().map(|claim| claim.name()).collect();
    Some(
        Finding::new(
            Level::Warning,
            "expired",
            format!("NodeClaim {}", some_of(&names, 3)),
            format!(
                "{} older than expireAfter: an operator deletes all of them in its first seconds, whatever budgets, DisruptionPolicies and do-not-disrupt say",
                if names.len() == 1 { "1 NodeClaim is".to_owned() } else { format!("{} are", count(names.len(), "NodeClaim")) }
            ),
            format!(
                "the oldest, {}, {}expireAfter {}; none of them is being deleted",
                oldest.name(),
                created.unwrap_or_default(),
                short(&oldest.spec.expire_after)
            ),
        )
        .field("spec.expireAfter")
        .suggest(
            "PodDisruptionBudgets for what must not move all at once: they and do-not-disrupt are all that holds the drains, until terminationGracePeriod is over. \
             spec.expireAfter of a NodeClaim cannot be changed; NodeClaims that are deleted before, a few at a time, do not go together",
        ),
    )
}
