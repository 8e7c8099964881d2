//! How many pods each ReplicaSet of a Deployment has in the middle of a roll-out: arithmetic only, by the shares of a Deployment that says none.
//!
//! Owns a rule of Kubernetes' deployment controller, which the controllers of the full engine have of their own: the two share no code. It never makes or deletes
//! a pod.

use std::cmp::Reverse;

/// A ReplicaSet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Set {
    /// From which template of its Deployment it makes pods.
    pub(crate) template: u32,
    /// How many it is to have.
    pub(crate) asked: u32,
}

/// `maxSurge` is 25 %, rounded up: so many pods there may be beside those that are wanted.
fn surge(wanted: u32) -> u32 {
    wanted.div_ceil(4)
}

/// `maxUnavailable` is 25 %, rounded down: so many of those that are wanted may be missing.
fn unavailable(wanted: u32) -> u32 {
    wanted / 4
}

/// Takes all steps of a roll-out that can be taken as long as so many pods of each set are ready. The newest set is the last one. Whether there were any.
pub(crate) fn roll(wanted: u32, sets: &mut [Set], ready: &[u32]) -> bool {
    let before = sets.to_vec();
    loop {
        let last = sets.to_vec();
        step(wanted, sets, ready);
        // The newest only grows to what is wanted, and the others only shrink.
        if *sets == *last {
            return *sets != *before;
        }
    }
}

fn step(wanted: u32, sets: &mut [Set], ready: &[u32]) {
    let Some((newest, old)) = sets.split_last_mut() else {
        return;
    };
    let (surge, unavailable) = (i64::from(surge(wanted)), i64::from(unavailable(wanted)));
    let wanted = i64::from(wanted);
    let asked_of_old: i64 = old.iter().map(|set| i64::from(set.asked)).sum();
    let asked = i64::from(newest.asked);
    let asked = if asked >= wanted {
        wanted
    } else {
        let room = wanted + surge - asked_of_old - asked;
        asked + room.clamp(0, wanted - asked)
    };
    newest.asked = number(asked);
    // What a set is not to have any more is no longer counted, also where it is still there.
    let available = |set: &Set, ready: u32| i64::from(ready.min(set.asked));
    let (ready_of_newest, ready_of_old) = match ready.split_last() {
        Some((newest, old)) => (*newest, old),
        None => (0, &[][..]),
    };
    let of_newest = available(newest, ready_of_newest);
    let least = wanted - unavailable;
    // New pods that are not ready do not stand in for old ones.
    let mut may_go = (asked + asked_of_old - least - (asked - of_newest)).max(0);
    let of_old: Vec<i64> = old
        .iter()
        .zip(ready_of_old)
        .map(|(set, ready)| available(set, *ready))
        .collect();
    // Nobody misses pods that are not ready, so they go first.
    for (set, available) in old.iter_mut().zip(&of_old) {
        let step = may_go.min(i64::from(set.asked) - available).max(0);
        set.asked = number(i64::from(set.asked) - step);
        may_go -= step;
    }
    let mut spare = may_go.min(of_newest + of_old.iter().sum::<i64>() - least).max(0);
    for set in old {
        let step = spare.min(i64::from(set.asked));
        set.asked = number(i64::from(set.asked) - step);
        spare -= step;
    }
}

fn number(pods: i64) -> u32 {
    u32::try_from(pods.max(0)).unwrap_or(u32::MAX)
}

/// So many pods are wanted instead of `before`. Nothing is rolled by it: all sets with pods keep their parts of the whole.
pub(crate) fn resize(before: u32, wanted: u32, sets: &mut [Set], ready: &[u32]) {
    if before == wanted && sets.len() > 1 {
        return;
    }
    if sets.iter().filter(|set| set.asked > 0).count() <= 1 {
        // Of several without pods the newest one.
        if let Some(only) = sets.iter_mut().max_by_key(|set| set.asked) {
            only.asked = wanted;
        }
        return;
    }
    if let (Some(newest), Some(ready)) = (sets.last().copied(), ready.last())
        && newest.asked == wanted
        && *ready >= wanted
    {
        let old = sets.len() - 1;
        sets[..old].iter_mut().for_each(|set| set.asked = 0);
        return;
    }
    spread(before, wanted, sets);
}

/// Gives the sets with pods what is missing up to the most that there may be, or takes what is too much, each as large a part as it is of the whole. What rounding
/// leaves is the largest one's.
fn spread(before: u32, wanted: u32, sets: &mut [Set]) {
    let most_of = |wanted: u32| match wanted {
        0 => 0,
        wanted => i64::from(wanted) + i64::from(surge(wanted)),
    };
    let (most, most_before) = (most_of(wanted), most_of(before));
    let asked: i64 = sets.iter().map(|set| i64::from(set.asked)).sum();
    let mut left = most - asked;
    let grows = left > 0;
    let mut order: Vec<usize> = (0..sets.len()).filter(|index| sets[*index].asked > 0).collect();
    // Of sets that are equally large the newest grows first, and the oldest shrinks first.
    if grows {
        order.reverse();
    }
    order.sort_by_key(|index| Reverse(sets[*index].asked));
    let mut sizes: Vec<i64> = sets.iter().map(|set| i64::from(set.asked)).collect();
    for index in &order {
        let size = sizes[*index];
        let part = match (most, most_before) {
            (0, _) => 0,
            (_, 0) => size,
            // To the nearest number, halves up.
            _ => (2 * size * most + most_before) / (2 * most_before),
        };
        let step = if grows {
            (part - size).min(left)
        } else {
            (part - size).max(left)
        };
        sizes[*index] += step;
        left -= step;
    }
    if let Some(largest) = order.first() {
        sizes[*largest] += left;
    }
    for (set, size) in sets.iter_mut().zip(sizes) {
        // None gets more than are wanted of all: the controller would take that back in its next look.
        set.asked = number(size).min(wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets<const COUNT: usize>(asked: [u32; COUNT]) -> [Set; COUNT] {
        let mut template = 0;
        asked.map(|asked| {
            template += 1;
            Set {
                template: template - 1,
                asked,
            }
        })
    }

    fn asked(sets: &[Set]) -> Vec<u32> {
        sets.iter().map(|set| set.asked).collect()
    }

    /// Plays a roll-out in which one new pod is ready after the other: the fewest pods that were ready, and the most that there were to be.
    fn play(wanted: u32) -> (u32, u32) {
        let mut sets = sets([wanted, 0]);
        let (mut fewest, mut most, mut ready) = (u32::MAX, 0, 0);
        for _ in 0..=wanted {
            let of_old = sets[0].asked;
            roll(wanted, &mut sets, &[of_old, ready]);
            fewest = fewest.min(sets[0].asked + ready);
            most = most.max(sets[0].asked + sets[1].asked);
            ready = (ready + 1).min(sets[1].asked);
        }
        assert_eq!(asked(&sets), [0, wanted], "it ends");
        (fewest, most)
    }

    /// Kubernetes' defaults: a quarter more rounded up, a quarter fewer rounded down.
    #[test]
    fn a_rollout_keeps_to_its_bounds() {
        assert_eq!(play(1), (1, 2));
        assert_eq!(play(3), (3, 4));
        assert_eq!(play(10), (8, 13));
        assert_eq!(play(30), (23, 38));
    }

    #[test]
    fn nothing_is_rolled_before_new_pods_are_ready() {
        let mut rolled = sets([10, 0]);
        assert!(roll(10, &mut rolled, &[10, 0]));
        assert_eq!(asked(&rolled), [8, 5]);
        assert!(!roll(10, &mut rolled, &[8, 0]), "until one is ready");
        assert!(roll(10, &mut rolled, &[8, 1]));
        assert_eq!(asked(&rolled), [7, 6]);
    }

    #[test]
    fn pods_that_are_not_ready_go_first() {
        let mut rolled = sets([5, 5, 2]);
        roll(10, &mut rolled, &[5, 0, 0]);
        assert_eq!(rolled[0].asked, 5, "the older ones run");
        assert!(rolled[1].asked < 5, "those of the second set do not");
    }

    #[test]
    fn a_set_alone_has_what_is_wanted() {
        let mut alone = sets([3]);
        resize(3, 8, &mut alone, &[3]);
        assert_eq!(asked(&alone), [8]);
        resize(8, 0, &mut alone, &[8]);
        assert_eq!(asked(&alone), [0]);
        resize(0, 4, &mut alone, &[0]);
        assert_eq!(asked(&alone), [4]);
    }

    /// As the controllers of the full engine have it: `a_rollout_stays_where_it_is_when_another_number_is_wanted`.
    #[test]
    fn sets_keep_their_parts_when_another_number_is_wanted() {
        let resized = |before: u32, wanted: u32, old: u32, new: u32| {
            let mut sets = sets([old, new]);
            resize(before, wanted, &mut sets, &[old, 0]);
            asked(&sets)
        };
        // Of 12 there may be 15, and of 24 there may be 30.
        assert_eq!(resized(12, 24, 9, 6), [18, 12]);
        assert_eq!(resized(24, 12, 18, 12), [9, 6]);
        assert_eq!(resized(12, 0, 9, 6), [0, 0]);
        assert_eq!(resized(12, 12, 9, 6), [9, 6]);
    }

    #[test]
    fn a_rollout_whose_new_pods_suffice_is_over() {
        let mut sets = sets([9, 6]);
        resize(12, 6, &mut sets, &[9, 6]);
        assert_eq!(asked(&sets), [0, 6]);
    }
}
