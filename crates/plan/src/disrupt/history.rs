//! The ledger's length: which Disruptions that have ended are forgotten.
//!
//! Owns age and number. Why one is kept for longer, policies say (`disruption_policy::keep`).

use std::time::Duration;

use jiff::Timestamp;
use spokeshave_api::disruption::Disruption;
use spokeshave_model::{ObjectKind, ObjectRef};

use crate::disruption_policy::Keep;
use crate::durations::signed;

/// So many times as many are kept where policies still count them.
const COUNTING: usize = 10;

/// The finished commands that are too old or too many, oldest first, as far as `keeps` lets them go.
pub fn expired<'a>(
    disruptions: impl IntoIterator<Item = &'a Disruption>,
    keep: Duration,
    entries: usize,
    keeps: impl Fn(&Disruption) -> Keep,
    now: Timestamp,
) -> Vec<ObjectRef> {
    let mut finished: Vec<(Timestamp, &Disruption)> = disruptions
        .into_iter()
        .filter(|disruption| disruption.is_finished() && !disruption.is_deleting())
        .map(|disruption| (finished_at(disruption), disruption))
        .collect();
    finished.sort_by(|(at, one), (other_at, other)| (at, one.name()).cmp(&(other_at, other.name())));
    let surplus = finished.len().saturating_sub(entries);
    let far_too_many = finished.len().saturating_sub(entries.saturating_mul(COUNTING));
    let keep = signed(keep);
    finished
        .iter()
        .enumerate()
        .filter(|(index, (time, one))| {
            let is_old = now.duration_since(*time) >= keep;
            (is_old || *index < surplus)
                && match keeps(one) {
                    Keep::No => true,
                    Keep::WhileFew => *index < far_too_many,
                    Keep::Always => false,
                }
        })
        .map(|(_, (_, disruption))| {
            ObjectRef::cluster(ObjectKind::Disruption, disruption.name(), disruption.uid())
        })
        .collect()
}

/// When a command ended; its decision when that is not known.
pub fn finished_at(disruption: &Disruption) -> Timestamp {
    let status = disruption.status.as_ref();
    status
        .and_then(|status| status.finished_at.as_ref())
        .map_or(disruption.spec.decided_at.0, |time| time.0)
}
