//! What a move is worth beside the evictions that it takes, and how long one that is worth little waits (W-61).
//!
//! An eviction weighs three quarters of what a pod of its NodePool costs on average; half is the threshold of policy `Balanced` (D-173). Among several plans the one that saves most
//! beyond that goes first. A replacement that saves little for its evictions is only made when its nodes have been left alone for long: the longer nothing
//! has changed, the longer it will go on to pay. Deletes do not wait for that; those that save less than their evictions weigh only wait for a
//! round in which nothing better has started. NodePools with `consolidateAfter: 0s` wait for neither.

use super::balanced;
use super::candidates::Candidate;
use super::ground::{Ground, changed_at, window_of};
use super::hurdle::{Hurdle, Lifted, Stop};
use super::outcome::PoolScore;
use spokeshave_model::Price;
use std::time::Duration;

/// A replacement that saves this part of what its evictions weigh, or more, is made at once.
const ENOUGH: i128 = 4;
/// One that just does not waits for so long; one that saves a tenth of that, ten times as long.
const LEAST_WAIT: Duration = Duration::from_secs(3_600);
/// What an eviction weighs, as a fraction of what a pod costs. Both were chosen among twenty pairs on `e2e/simulations`: half and ten minutes evict 37 % more pods
/// in a day that rises and falls, for 0.7 % less money; the whole and an hour cost 0.5 % more for 8 % fewer.
const WEIGHT: (i128, i128) = (3, 4);

/// What is saved beyond what the evictions weigh, in nano-dollars an hour; negative where they weigh more.
pub(super) fn worth(scores: &[PoolScore]) -> i128 {
    let worth = |score: &PoolScore| i128::from(score.savings.0) - weight(score);
    scores.iter().map(worth).sum()
}

/// Whether at least as much is saved as the evictions weigh.
pub(super) fn is_worth_it(scores: &[PoolScore]) -> bool {
    worth(scores) >= 0
}

/// Whether what scores so goes before what scores like `other`: it is worth more, and does not wait for a round of its own that the other need not wait for.
pub(super) fn goes_before(scores: &[PoolScore], other: &[PoolScore]) -> bool {
    worth(scores) > worth(other) && (is_worth_it(scores) || !is_worth_it(other))
}

/// Whether that could be said of a candidate if it were deleted without anything in its place.
pub(super) fn may_be_worth_it(ground: &Ground<'_>, candidate: &Candidate) -> bool {
    is_worth_it(&[balanced::alone(ground, candidate, candidate.price)])
}

/// What the evictions of a NodePool's nodes weigh: policy `Balanced` approves of all that saves as much.
fn weight(score: &PoolScore) -> i128 {
    let all = i128::from(score.total_disruption_cost.max(1));
    WEIGHT.0 * i128::from(score.disruption_cost) * i128::from(score.total_cost.0) / (WEIGHT.1 * all)
}

/// Refuses a replacement that is worth little as long as its nodes have not been left alone for long enough.
pub(super) fn check(
    ground: &Ground<'_>,
    set: &[&Candidate],
    scores: &[PoolScore],
    lifted: &Lifted,
) -> Result<(), Stop> {
    if !ground.policy.disrupt.rounds || lifted.contains(&Hurdle::Patience) {
        return Ok(());
    }
    let Some(wait) = needed(scores) else {
        return Ok(());
    };
    let alone = set.iter().filter_map(|candidate| left_alone(ground, candidate));
    match alone.min() {
        Some(alone) if alone < wait => {
            let savings: Price = scores.iter().map(|score| score.savings).sum();
            let text = format!(
                "Replacing saves ${} an hour and is made once pods have not changed for {} minutes",
                savings.to_cents_text(),
                wait.as_secs().div_ceil(60)
            );
            Err(Stop::new(Hurdle::Patience, text))
        }
        _ => Ok(()),
    }
}

/// Whether a replacement of one node may have to wait.
pub(super) fn may_wait(ground: &Ground<'_>, candidate: &Candidate, savings: Price) -> bool {
    ground.policy.disrupt.rounds && needed(&[balanced::alone(ground, candidate, savings)]).is_some()
}

/// How long nodes must have been left alone; none when what is saved is enough.
fn needed(scores: &[PoolScore]) -> Option<Duration> {
    let weight: i128 = scores.iter().map(weight).sum();
    let savings: i128 = scores.iter().map(|score| i128::from(score.savings.0)).sum();
    let enough = savings.saturating_mul(ENOUGH);
    if savings <= 0 || enough >= weight {
        return None;
    }
    let seconds = i128::from(LEAST_WAIT.as_secs()) * weight / enough;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX)))
}

/// For how long no pod has come to a node or left it; none where its NodePool does not wait.
fn left_alone(ground: &Ground<'_>, candidate: &Candidate) -> Option<Duration> {
    let view = ground.snapshot.node(candidate.node);
    window_of(ground.snapshot, view)?;
    let changed = changed_at(view)?;
    Some(Duration::try_from(ground.now.duration_since(changed)).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(savings: i64, disruption_cost: i64) -> PoolScore {
        PoolScore {
            pool: "default".to_owned(),
            policy: "WhenEmptyOrUnderutilized".to_owned(),
            approved: true,
            savings: Price(savings),
            total_cost: Price(1_000),
            disruption_cost,
            total_disruption_cost: 100,
        }
    }

    #[test]
    fn w_61_what_saves_little_waits_in_proportion() {
        // 10 evictions weigh 75.
        assert_eq!(needed(&[score(19, 10)]), None, "a quarter is enough");
        assert_eq!(needed(&[score(18, 10)]), Some(Duration::from_secs(3_750)));
        assert_eq!(needed(&[score(5, 10)]), Some(Duration::from_secs(13_500)));
        assert_eq!(needed(&[]), None);
    }

    #[test]
    fn w_61_fewer_evictions_are_worth_as_much_as_savings() {
        let many = worth(&[score(170, 20)]);
        let few = worth(&[score(110, 4)]);
        assert!(few > many, "{few} against {many}");
        assert!(worth(&[score(7, 17)]) < 0);
    }
}
