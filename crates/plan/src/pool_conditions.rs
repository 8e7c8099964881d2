//! What a NodePool says of itself beyond upstream's conditions: budgets that cannot be evaluated (D-197, W-45), and a fixed number of nodes that
//! cannot be launched.
//!
//! Each is there only while something is wrong. `Ready` does not depend on them: it stays upstream's.

use jiff::Timestamp;
use spokeshave_api::conditions::{BUDGETS_EVALUATED, Conditioned as _, LAUNCHABLE, Status};
use spokeshave_api::{DisruptionReason, NodePool};
use spokeshave_model::{Event, EventType, InstanceType, ObjectKind, ObjectRef};

use crate::launch_backoff::Trouble;
use crate::static_pools::template_requirements;

/// Why no node is launched for a NodePool with a fixed number of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotLaunch {
    /// In CamelCase.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// Upstream's reason for a NodePool whose requirements no instance type meets.
pub const NO_COMPATIBLE: &str = "NoCompatibleInstanceTypes";

/// The reason of a NodePool whose launches the cloud refuses, perhaps only now.
const LAUNCHES_FAIL: &str = "LaunchesFail";

/// The reason of a NodePool for which nothing is launched until somebody turns the feature gate on (D-353). All others may end by themselves.
pub const STATIC_CAPACITY_DISABLED: &str = "StaticCapacityDisabled";

impl CannotLaunch {
    /// The feature gate is off (D-353).
    #[must_use]
    pub fn gate_is_off() -> Self {
        Self {
            reason: STATIC_CAPACITY_DISABLED,
            message:
                "spec.replicas is set, but the feature gate StaticCapacity is off: no node is launched; \
                      turn it on with --feature-gates StaticCapacity=true"
                    .to_owned(),
        }
    }

    /// Launches fail. `types` are what the cloud offers to the NodePool, as far as it says so.
    #[must_use]
    pub fn of(pool: &NodePool, trouble: &Trouble, types: Option<&[InstanceType]>, now: Timestamp) -> Self {
        let nothing_fits = types.is_some_and(|types| !types.iter().any(|one| fits(pool, one)));
        let next = Timestamp::from_second(trouble.next.as_second()).unwrap_or(trouble.next);
        let again = if trouble.next > now {
            format!("tried again at {next}")
        } else {
            "being tried again".to_owned()
        };
        if nothing_fits {
            return Self {
                reason: NO_COMPATIBLE,
                message: format!(
                    "NodePool requirements filtered out all compatible available instance types; {again}"
                ),
            };
        }
        Self {
            reason: LAUNCHES_FAIL,
            message: format!("{}; {again}", trouble.message),
        }
    }

    /// The event on the NodePool.
    #[must_use]
    pub fn event(&self, pool: &NodePool) -> Event {
        let values = [pool.uid().to_owned(), self.reason.to_owned()];
        let event = Event::new(pool_ref(pool), EventType::Warning, self.reason, &self.message);
        event.deduped_by(values)
    }
}

/// True when a NodePool's template could become this instance type now.
fn fits(pool: &NodePool, instance_type: &InstanceType) -> bool {
    let requirements = template_requirements(pool);
    instance_type.requirements.intersects(&requirements).is_ok()
        && instance_type
            .offerings
            .iter()
            .any(|offering| offering.available && offering.requirements.intersects(&requirements).is_ok())
}

/// The budgets of a NodePool that cannot be evaluated, in order: which field, what is there, what was expected, and what is closed by it.
#[must_use]
pub fn faulty_budgets(pool: &NodePool, now: Timestamp) -> Vec<String> {
    let budgets = pool.budgets();
    let faults = budgets.iter().enumerate().filter_map(|(index, budget)| {
        let error = budget.allowed(1).err().or_else(|| budget.is_active(now).err())?;
        let field = error.field(budget);
        let closed = match &budget.reasons {
            Some(reasons) if reasons.is_empty() => {
                "its list of reasons is empty: it closes nothing".to_owned()
            }
            Some(reasons) if !reasons.iter().any(is_unknown) => {
                let names: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                format!(
                    "until it is corrected, nothing is disrupted as {}",
                    names.join(" or ")
                )
            }
            _ => "until it is corrected, nothing is disrupted".to_owned(),
        };
        Some(format!(
            "spec.disruption.budgets[{index}].{field}: {error}; {closed}"
        ))
    });
    faults.collect()
}

/// A reason that this version does not know might mean any (D-188); of NodePools, as upstream, also the one that only policies have.
fn is_unknown(reason: &DisruptionReason) -> bool {
    matches!(reason, DisruptionReason::Other(_) | DisruptionReason::Expired)
}

/// Sets and clears the conditions of this file.
pub(crate) fn apply(after: &mut NodePool, cannot_launch: Option<&CannotLaunch>, now: Timestamp) {
    let faults = faulty_budgets(after, now);
    if faults.is_empty() {
        after.clear(BUDGETS_EVALUATED);
    } else {
        let message = faults.join("; ");
        after.set(
            BUDGETS_EVALUATED,
            Status::False,
            "BudgetNotEvaluated",
            &message,
            now,
        );
    }
    match cannot_launch {
        None => drop(after.clear(LAUNCHABLE)),
        Some(why) => drop(after.set(LAUNCHABLE, Status::False, why.reason, &why.message, now)),
    }
}

/// A NodePool by name and UID.
#[must_use]
pub fn pool_ref(pool: &NodePool) -> ObjectRef {
    ObjectRef::cluster(ObjectKind::NodePool, pool.name(), pool.uid())
}
