//! How many pods each ReplicaSet of a Deployment is to have next: arithmetic only, so that a test can play a whole rollout.

use std::cmp::Reverse;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, RollingUpdateDeployment};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::shares::{Rounded, percentage, share};

/// What a Deployment notes on a set together with its number: how many replicas were wanted of all sets, and how many there could be at once.
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// A number that was noted on a set; none where somebody has written there what is none.
pub(super) fn noted(set: &ReplicaSet, key: &str) -> Option<i32> {
    let annotations = set.metadata.annotations.as_ref()?;
    let number = annotations.get(key)?.parse::<i32>().ok();
    number.filter(|number| *number >= 0)
}

/// A ReplicaSet as the arithmetic sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    /// What its spec asks for.
    pub(super) asked: i32,
    /// How many pods there are.
    running: i32,
    /// How many of those that it keeps are available.
    available: i32,
    /// How many pods of all sets there could be when it was given its number, as far as that is known.
    most: Option<i32>,
}

impl Side {
    pub(super) fn of(set: &ReplicaSet) -> Self {
        let asked = set.spec.replicas.unwrap_or(1);
        let status = set.status.as_ref();
        let available = status.and_then(|status| status.available_replicas).unwrap_or(0);
        Self {
            asked,
            running: status.map_or(0, |status| status.replicas),
            // The status lags behind the spec: what the spec has given away already cannot be given away again.
            available: available.min(asked),
            most: noted(set, MAX_REPLICAS).filter(|most| *most > 0),
        }
    }

    /// The same set, of which so many pods have not ended: its status does not tell of those that are on their way out.
    pub(super) fn with_pods(self, unended: usize) -> Self {
        let unended = i32::try_from(unended).unwrap_or(i32::MAX);
        Self {
            running: self.running.max(unended),
            ..self
        }
    }

    /// How many of `most` pods are this set's if it keeps its part of the whole, which is `running` pods where nobody knows better.
    fn part_of(&self, most: i64, running: i64) -> i64 {
        let asked = i64::from(self.asked);
        match self.most.map_or(running, i64::from) {
            _ if most == 0 => 0,
            0 => asked,
            // To the nearest number, halves up.
            before => (2 * asked * most + before) / (2 * before),
        }
    }
}

/// What the sets together must keep to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) wanted: i32,
    surge: i32,
    pub(super) unavailable: i32,
    /// Whether no new pod is made before the last old one has ended.
    pub(super) recreate: bool,
}

impl Limits {
    /// `maxSurge` rounds up, `maxUnavailable` down; at least one of them lets things move.
    pub(super) fn of(deployment: &Deployment) -> Self {
        let wanted = deployment.spec.replicas.unwrap_or(1);
        let strategy = deployment.spec.strategy.as_ref();
        let recreate = strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate");
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let amount = |of: fn(&RollingUpdateDeployment) -> Option<&IntOrString>, rounded: Rounded| {
            amount(rolling.and_then(of), wanted, rounded)
        };
        let surge = amount(|rolling| rolling.max_surge.as_ref(), Rounded::Up);
        let unavailable = amount(|rolling| rolling.max_unavailable.as_ref(), Rounded::Down);
        let (surge, unavailable) = match (surge, unavailable) {
            // Without pods it is not available, although all of them go at once.
            _ if recreate => (0, 0),
            (0, 0) => (0, 1),
            both => both,
        };
        Self {
            wanted,
            // All that there may be at once can be counted, and no more can be missing than are wanted.
            surge: surge.min(i32::MAX.saturating_sub(wanted)),
            unavailable: unavailable.min(wanted),
            recreate,
        }
    }
}

impl Limits {
    /// How many pods there may be at once.
    pub(super) fn most(&self) -> i32 {
        self.wanted.saturating_add(self.surge)
    }
}

/// A number, or a per cent of `wanted`, 25 unless told.
fn amount(value: Option<&IntOrString>, wanted: i32, rounded: Rounded) -> i32 {
    match value {
        Some(value) => share(value, wanted, rounded),
        None => percentage(25, wanted, rounded),
    }
}

/// The next step of a rollout: replicas of the newest set, and of each old one.
pub(super) fn next(limits: &Limits, newest: Side, old: &[Side]) -> (i32, Vec<i32>) {
    let asked = next_of_newest(limits, newest, old);
    let newest = Side {
        asked,
        available: newest.available.min(asked),
        ..newest
    };
    (asked, next_of_old(limits, newest, old))
}

fn next_of_newest(limits: &Limits, newest: Side, old: &[Side]) -> i32 {
    if newest.asked >= limits.wanted {
        return limits.wanted;
    }
    if limits.recreate {
        let empty = old.iter().all(|set| set.asked == 0 && set.running == 0);
        return if empty { limits.wanted } else { newest.asked };
    }
    let old_asked: i32 = old.iter().map(|set| set.asked).sum();
    let room = limits.wanted + limits.surge - old_asked - newest.asked;
    newest.asked + room.clamp(0, limits.wanted - newest.asked)
}

fn next_of_old(limits: &Limits, newest: Side, old: &[Side]) -> Vec<i32> {
    if limits.recreate {
        return vec![0; old.len()];
    }
    let mut asked: Vec<i32> = old.iter().map(|set| set.asked).collect();
    let least = limits.wanted - limits.unavailable;
    let all = newest.asked + asked.iter().sum::<i32>();
    // New pods that are not available yet do not stand in for old ones.
    let mut may_go = (all - least - (newest.asked - newest.available)).max(0);
    // Nobody misses the pods that are not available, so they go first.
    for (asked, set) in asked.iter_mut().zip(old) {
        let step = may_go.min(set.asked - set.available).max(0);
        *asked -= step;
        may_go -= step;
    }
    let available = newest.available + old.iter().map(|set| set.available).sum::<i32>();
    let mut spare = may_go.min(available - least).max(0);
    for asked in &mut asked {
        let step = spare.min(*asked);
        *asked -= step;
        spare -= step;
    }
    asked
}

/// Replicas of the sets of a Deployment of which another number is wanted, or that is paused; they come in the order of their revisions. Nothing is rolled: all
/// sets with pods keep their parts of the whole.
pub(super) fn resized(limits: &Limits, newest: Option<usize>, sets: &[Side]) -> Vec<i32> {
    let mut asked: Vec<i32> = sets.iter().map(|set| set.asked).collect();
    if asked.iter().filter(|asked| **asked > 0).count() <= 1 {
        if let Some(only) = largest(&asked) {
            asked[only] = limits.wanted;
        }
        return asked;
    }
    let has_all = |set: &Side| set.asked == limits.wanted && set.available == limits.wanted;
    if let Some(newest) = newest.filter(|newest| has_all(&sets[*newest])) {
        asked.fill(0);
        asked[newest] = limits.wanted;
        return asked;
    }
    if limits.recreate {
        return asked;
    }
    spread(limits, sets)
}

/// Gives the sets with pods what is missing up to the most that there may be, or takes what is too much. What rounding leaves is the largest one's, and none gets
/// more than are wanted of all: a genuine controller takes that back in its next look, unless the Deployment is paused.
fn spread(limits: &Limits, sets: &[Side]) -> Vec<i32> {
    let mut sizes: Vec<i64> = sets.iter().map(|set| i64::from(set.asked)).collect();
    let running: i64 = sets.iter().map(|set| i64::from(set.running)).sum();
    let most = if limits.wanted == 0 {
        0
    } else {
        i64::from(limits.most())
    };
    let mut left = most - sizes.iter().sum::<i64>();
    let grows = left > 0;
    let mut order: Vec<usize> = (0..sets.len()).filter(|index| sizes[*index] > 0).collect();
    // Of sets that are equally large the newest grows first, and the oldest shrinks first.
    if grows {
        order.reverse();
    }
    order.sort_by_key(|index| Reverse(sizes[*index]));
    for index in &order {
        if left == 0 {
            break;
        }
        let step = sets[*index].part_of(most, running) - sizes[*index];
        let step = if grows { step.min(left) } else { step.max(left) };
        sizes[*index] += step;
        left -= step;
    }
    if let Some(largest) = order.first() {
        sizes[*largest] += left;
    }
    let sizes = sizes.into_iter();
    sizes
        .map(|size| i32::try_from(size.min(i64::from(limits.wanted)).max(0)).unwrap_or(limits.wanted))
        .collect()
}

/// The largest set, of several the newest.
fn largest(asked: &[i32]) -> Option<usize> {
    (0..asked.len()).max_by_key(|index| asked[*index])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn limits(replicas: i32, strategy: &serde_json::Value) -> Limits {
        let deployment = json!({"metadata": {"name": "web"}, "spec": {
            "replicas": replicas, "selector": {}, "strategy": strategy, "template": {},
        }});
        Limits::of(&serde_json::from_value(deployment).unwrap())
    }

    fn rolling(replicas: i32, surge: i32, unavailable: i32) -> Limits {
        let bounds = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        limits(
            replicas,
            &json!({"type": "RollingUpdate", "rollingUpdate": bounds}),
        )
    }

    fn side(asked: i32, running: i32, available: i32) -> Side {
        Side {
            asked,
            running,
            available: available.min(asked),
            most: None,
        }
    }

    /// Sets of which all pods run, and which were given their numbers when there could be so many pods.
    fn shared<const COUNT: usize>(most: i32, asked: [i32; COUNT]) -> [Side; COUNT] {
        asked.map(|asked| Side {
            most: Some(most),
            ..side(asked, asked, asked)
        })
    }

    /// Plays a rollout: `(fewest available pods, most pods, rounds)`. Every step is taken several times before a status catches up, as when
    /// the controller is triggered by its own write.
    fn play(limits: &Limits, steps_a_status: usize) -> (i32, i32, usize) {
        let (mut old, mut new) = (limits.wanted, 0);
        let (mut new_ready, mut fewest, mut most, mut rounds) = (0, i32::MAX, 0, 0);
        while (old, new_ready) != (0, limits.wanted) && rounds < 1000 {
            let (old_status, new_status) = (old, new);
            for _ in 0..steps_a_status {
                let newest = side(new, new_status, new_ready);
                let (next, olds) = next(limits, newest, &[side(old, old_status, old_status)]);
                // The newest set is written first.
                most = most.max(old + next);
                (new, old) = (next, olds[0]);
                fewest = fewest.min(old + new_ready.min(new));
            }
            // One new pod becomes available at a time.
            new_ready = (new_ready + 1).min(new);
            rounds += 1;
        }
        (fewest, most, rounds)
    }

    #[test]
    fn a_rollout_keeps_to_its_bounds_although_statuses_lag() {
        for steps in 1..5 {
            let (fewest, most, rounds) = play(&rolling(10, 1, 0), steps);
            assert_eq!((fewest, most), (10, 11), "{steps} steps a status");
            assert!(rounds < 50, "it ends: {rounds}");
            let (fewest, most, rounds) = play(&rolling(10, 0, 3), steps);
            assert_eq!((fewest, most), (7, 10), "{steps} steps a status");
            assert!(rounds < 50, "it ends: {rounds}");
            let (fewest, most, _) = play(&limits(10, &json!(null)), steps);
            assert_eq!((fewest, most), (8, 13), "a quarter, up and down");
        }
    }

    #[test]
    fn unhealthy_pods_go_first_and_also_within_the_bounds() {
        // Three of ten old pods are ill; two new ones are not available yet.
        let (_, old) = next(&rolling(10, 2, 2), side(2, 2, 0), &[side(10, 10, 7)]);
        assert_eq!(old, [8], "no more than two");
        let (_, old) = next(&rolling(10, 2, 0), side(2, 2, 2), &[side(5, 5, 4), side(5, 5, 4)]);
        assert_eq!(old, [4, 4], "those that are ill");
    }

    #[test]
    fn bounds_beyond_counting_let_everything_move_at_once() {
        for surge in [
            json!("999999999%"),
            json!("99999999999999999999%"),
            json!(i32::MAX),
        ] {
            let bounds = json!({"maxSurge": surge, "maxUnavailable": i32::MAX});
            let limits = limits(1000, &json!({"type": "RollingUpdate", "rollingUpdate": bounds}));
            assert_eq!(limits.most(), i32::MAX, "{surge}");
            let old = side(1100, 1100, 1100);
            assert_eq!(next(&limits, side(0, 0, 0), &[old]), (1000, vec![0]));
            let sets = shared(i32::MAX, [600, 500]);
            let resized = resized(&limits, Some(1), &sets);
            assert_eq!(resized, [1000, 500], "none gets more than are wanted of all");
        }
    }

    #[test]
    fn recreate_waits_until_the_old_pods_are_gone() {
        let limits = limits(3, &json!({"type": "Recreate"}));
        assert_eq!(next(&limits, side(0, 0, 0), &[side(3, 3, 3)]), (0, vec![0]));
        assert_eq!(next(&limits, side(0, 0, 0), &[side(0, 2, 0)]), (0, vec![0]));
        assert_eq!(next(&limits, side(0, 0, 0), &[side(0, 0, 0)]), (3, vec![0]));
    }

    #[test]
    fn pods_on_their_way_out_have_not_ended() {
        let limits = limits(3, &json!({"type": "Recreate"}));
        let told = side(0, 0, 0);
        assert_eq!(next(&limits, told, &[told.with_pods(1)]), (0, vec![0]));
        assert_eq!(next(&limits, told, &[told.with_pods(0)]), (3, vec![0]));
        let lagging = side(0, 2, 0).with_pods(0);
        assert_eq!(
            next(&limits, told, &[lagging]),
            (0, vec![0]),
            "it was not noted yet"
        );
    }

    #[test]
    fn a_rollout_stays_where_it_is_when_another_number_is_wanted() {
        let limits = |replicas: i32| rolling(replicas, 3, 2);
        // Eight old pods run, and none of the five new ones is ready.
        let sets = |most: i32, old: i32, new: i32| [shared(most, [old])[0], unready(most, new)];
        assert_eq!(resized(&limits(10), Some(1), &sets(13, 8, 5)), [8, 5]);
        assert_eq!(resized(&limits(30), Some(1), &sets(13, 8, 5)), [20, 13]);
        assert_eq!(resized(&limits(10), Some(1), &sets(33, 20, 13)), [8, 5]);
        assert_eq!(resized(&limits(0), Some(1), &sets(13, 8, 5)), [0, 0]);
        let [old, new] = sets(33, 20, 13);
        let settled = next(&limits(30), new, &[old]);
        assert_eq!(settled, (13, vec![20]), "and it goes on from there");
    }

    /// A set of which no pod is available.
    fn unready(most: i32, asked: i32) -> Side {
        Side {
            most: Some(most),
            ..side(asked, asked, 0)
        }
    }

    #[test]
    fn what_rounding_leaves_is_the_largest_sets() {
        let resized = |replicas: i32, sets: &[Side]| resized(&rolling(replicas, 1, 0), None, sets);
        assert_eq!(resized(11, &shared(11, [4, 4, 3])), [4, 5, 3], "the newer grows");
        assert_eq!(resized(9, &shared(11, [4, 4, 3])), [3, 4, 3], "the older shrinks");
        // Nobody knows how many there could be: so many as there are.
        let unknown = [side(6, 6, 6), side(5, 5, 5)];
        assert_eq!(resized(20, &unknown), [11, 10]);
        let unmade = [side(6, 0, 0), side(5, 0, 0)];
        assert_eq!(resized(20, &unmade), [16, 5]);
        assert_eq!(resized(0, &unmade), [0, 0]);
    }

    #[test]
    fn where_the_newest_set_has_all_or_pods_are_recreated_nothing_is_spread() {
        let sets = shared(13, [2, 10]);
        assert_eq!(resized(&rolling(10, 3, 2), Some(1), &sets), [0, 10]);
        assert_eq!(
            resized(&rolling(10, 3, 2), Some(0), &sets),
            [2, 10],
            "it is not the newest"
        );
        let recreate = limits(10, &json!({"type": "Recreate"}));
        assert_eq!(resized(&recreate, Some(1), &shared(10, [4, 5])), [4, 5]);
        assert_eq!(resized(&recreate, Some(1), &shared(10, [4, 0])), [10, 0]);
    }

    #[test]
    fn a_paused_rollout_stays_where_it_is_and_follows_the_number_wanted() {
        let resized = |replicas: i32, sets: &[Side]| resized(&rolling(replicas, 1, 0), None, sets);
        let sets = shared(11, [0, 6, 5]);
        assert_eq!(resized(10, &sets), [0, 6, 5], "nothing moves");
        assert_eq!(resized(20, &sets), [0, 11, 10]);
        assert_eq!(resized(4, &sets), [0, 3, 2]);
        assert_eq!(resized(0, &sets), [0, 0, 0]);
        let unrolled = shared(4, [3, 0]);
        assert_eq!(
            resized(7, &unrolled),
            [7, 0],
            "a template that is not rolled out yet"
        );
        assert_eq!(resized(2, &shared(1, [0, 0])), [0, 2], "from nothing: the newest");
        assert_eq!(resized(2, &[]), [0; 0]);
    }
}
