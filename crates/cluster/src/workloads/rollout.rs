//! How many pods each ReplicaSet of a Deployment is to have next: arithmetic only, so that a test can play a whole rollout.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, RollingUpdateDeployment};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::shares::{Rounded, percentage, share};

/// A ReplicaSet as the arithmetic sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    /// What its spec asks for.
    pub(super) asked: i32,
    /// How many pods there are.
    running: i32,
    /// How many of those that it keeps are available.
    available: i32,
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
        }
    }
}

/// What the sets together must keep to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) wanted: i32,
    surge: i32,
    pub(super) unavailable: i32,
    recreate: bool,
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
            _ if recreate => (0, wanted),
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

/// Replicas of the sets of a paused Deployment, which come in the order of their revisions: they follow the number that is wanted, but nothing
/// moves from one to another.
pub(super) fn resized(limits: &Limits, sets: &[Side]) -> Vec<i32> {
    let mut asked: Vec<i32> = sets.iter().map(|set| set.asked).collect();
    let active = asked.iter().filter(|asked| **asked > 0).count();
    let Some(largest) = largest(&asked) else {
        return asked;
    };
    if active <= 1 {
        asked[largest] = limits.wanted;
        return asked;
    }
    let all: i32 = asked.iter().sum();
    if all < limits.wanted {
        asked[largest] += limits.wanted - all;
    }
    let most = if limits.wanted == 0 {
        0
    } else {
        limits.wanted + limits.surge
    };
    let mut surplus = all - most;
    while surplus > 0
        && let Some(largest) = self::largest(&asked)
    {
        let step = surplus.min(asked[largest]);
        asked[largest] -= step;
        surplus -= step;
    }
    asked
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
        }
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
            let sets = [side(600, 600, 600), side(500, 500, 500)];
            assert_eq!(resized(&limits, &sets), [600, 500]);
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
    fn a_paused_rollout_stays_where_it_is_and_follows_the_number_wanted() {
        let sets = [side(0, 0, 0), side(6, 6, 6), side(5, 5, 5)];
        assert_eq!(resized(&rolling(10, 1, 0), &sets), [0, 6, 5], "nothing moves");
        assert_eq!(resized(&rolling(20, 1, 0), &sets), [0, 15, 5]);
        assert_eq!(resized(&rolling(4, 1, 0), &sets), [0, 0, 5]);
        assert_eq!(resized(&rolling(0, 1, 0), &sets), [0, 0, 0]);
        assert_eq!(
            resized(&rolling(7, 1, 0), &[side(3, 3, 3), side(0, 0, 0)]),
            [7, 0],
            "a template that is not rolled out yet"
        );
        assert_eq!(
            resized(&rolling(2, 1, 0), &[side(0, 0, 0), side(0, 0, 0)]),
            [0, 2],
            "from nothing: the newest"
        );
        assert_eq!(resized(&rolling(2, 1, 0), &[]), [0; 0]);
    }
}
