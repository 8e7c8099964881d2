//! How the daemons of an older template are replaced: arithmetic only, so that a test can play a whole rollout.

use k8s_openapi::api::apps::v1::{DaemonSet, RollingUpdateDaemonSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::shares::{Rounded, share};

/// How many daemons may be missing, and how many there may be too many, while they are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) unavailable: i32,
    pub(super) surge: i32,
}

impl Bounds {
    /// For so many nodes; none when pods wait for somebody to delete them. One daemon may be missing where no number lets things move.
    pub(super) fn of(set: &DaemonSet, desired: i32) -> Option<Self> {
        let strategy = set.spec.update_strategy.as_ref();
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
            return None;
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let amount = |of: fn(&RollingUpdateDaemonSet) -> Option<&IntOrString>, default: i32| {
            rolling
                .and_then(of)
                .map_or(default, |value| share(value, desired, Rounded::Up))
        };
        let surge = amount(|rolling| rolling.max_surge.as_ref(), 0);
        let unavailable = amount(|rolling| rolling.max_unavailable.as_ref(), 1);
        Some(Self {
            unavailable: if surge == 0 {
                unavailable.max(1)
            } else {
                unavailable
            },
            surge,
        })
    }
}

/// Whether there may be two daemons on a node at all.
pub(super) fn surges(set: &DaemonSet) -> bool {
    Bounds::of(set, 1).is_some_and(|bounds| bounds.surge > 0)
}

/// A node with daemons: whether those of the older and of the newest template, if there are any, are available.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    /// Whether there is to be a daemon.
    pub(super) fits: bool,
    pub(super) old: Option<bool>,
    pub(super) new: Option<bool>,
}

/// What is to be done on which of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A daemon of the newest template is made beside the old one.
    Make(usize),
    /// The old daemon goes.
    End(usize),
}

/// The next steps where new daemons are made beside old ones, which go when the new ones are available: at most `most` at a time, and beside those that are not
/// available at once. Where there is to be no daemon any more, an old one goes when the others make up for it.
pub(super) fn surge(places: &[Place], most: i32, desired: i32) -> Vec<Step> {
    let (mut surged, mut available) = (0, 0);
    let (mut steps, mut candidates, mut superfluous) = (Vec::new(), Vec::new(), Vec::new());
    for (index, place) in places.iter().enumerate() {
        available += i32::from(place.old.or(place.new).unwrap_or(false));
        match (place.old, place.new) {
            (None, _) => {}
            (Some(true), None) if place.fits => candidates.push(Step::Make(index)),
            (Some(true), None) => superfluous.push(Step::End(index)),
            (Some(false), None) if place.fits => steps.push(Step::Make(index)),
            (Some(false), None) | (Some(_), Some(true)) => steps.push(Step::End(index)),
            (Some(_), Some(false)) => surged += 1,
        }
    }
    let room = |count: i32| usize::try_from(count).unwrap_or(0);
    steps.extend(candidates.into_iter().take(room(most - surged)));
    steps.extend(superfluous.into_iter().take(room(available - desired)));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn bounds(strategy: Value, desired: i32) -> Option<Bounds> {
        let object = json!({"metadata": {"name": "d"}, "spec": {"selector": {}, "template": {}, "updateStrategy": strategy}});
        Bounds::of(&serde_json::from_value(object).unwrap(), desired)
    }

    #[test]
    fn bounds_are_numbers_or_shares_of_the_nodes() {
        let of = |surge: Value, unavailable: Value| {
            let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
            let bounds = bounds(json!({"type": "RollingUpdate", "rollingUpdate": rolling}), 10).unwrap();
            (bounds.surge, bounds.unavailable)
        };
        assert_eq!(of(json!(0), json!(1)), (0, 1));
        assert_eq!(of(json!(0), json!("25%")), (0, 3));
        assert_eq!(of(json!("15%"), json!(0)), (2, 0));
        assert_eq!(of(json!("999999999%"), json!(0)), (100_000_000, 0));
        assert_eq!(of(json!(0), json!(0)), (0, 1), "or nothing would move");
        assert_eq!(of(Value::Null, Value::Null), (0, 1));
        assert_eq!(bounds(json!({"type": "OnDelete"}), 10), None);
    }

    /// Plays a rollout over nodes whose new daemons need one round to be available: `(fewest available, most too many, rounds)`.
    fn play(nodes: usize, most: i32) -> (usize, usize, usize) {
        let place = Place {
            fits: true,
            old: Some(true),
            new: None,
        };
        let mut places = vec![place; nodes];
        let (mut fewest, mut excess, mut rounds) = (nodes, 0, 0);
        while places.iter().any(|place| place.old.is_some()) && rounds < 1000 {
            let desired = i32::try_from(nodes).unwrap();
            let waiting: Vec<usize> = (0..nodes)
                .filter(|index| places[*index].new == Some(false))
                .collect();
            for step in surge(&places, most, desired) {
                match step {
                    Step::Make(index) => places[index].new = Some(false),
                    Step::End(index) => places[index].old = None,
                }
            }
            let serves = |place: &&Place| place.old == Some(true) || place.new == Some(true);
            fewest = fewest.min(places.iter().filter(serves).count());
            let two = |place: &&Place| place.old.is_some() && place.new.is_some();
            excess = excess.max(places.iter().filter(two).count());
            for index in waiting {
                places[index].new = Some(true);
            }
            rounds += 1;
        }
        (fewest, excess, rounds)
    }

    #[test]
    fn a_rollout_with_surge_takes_no_daemon_away_before_another_is_available() {
        for (nodes, most) in [(1, 1), (5, 1), (10, 3), (3, 10)] {
            let (fewest, excess, rounds) = play(nodes, most);
            assert_eq!(fewest, nodes, "{nodes} nodes, {most} too many");
            let allowed = usize::try_from(most).unwrap().min(nodes);
            assert!(excess <= allowed, "{excess} too many of {allowed}");
            assert!(rounds < 100, "it ends: {rounds}");
        }
    }

    #[test]
    fn daemons_that_are_not_available_hold_nothing_up() {
        let place = |fits: bool, old: Option<bool>, new: Option<bool>| Place { fits, old, new };
        let ill = place(true, Some(false), None);
        assert_eq!(surge(&[ill, ill], 1, 2), [Step::Make(0), Step::Make(1)]);
        let (well, waits) = (
            place(true, Some(true), None),
            place(true, Some(true), Some(false)),
        );
        assert!(surge(&[waits, well], 1, 2).is_empty(), "one is being made");
        // Where none is to be, a daemon stays until the others are enough.
        let gone = place(false, Some(true), None);
        let (young, done) = (place(true, None, Some(false)), place(true, None, Some(true)));
        assert!(surge(&[gone, young], 1, 1).is_empty());
        assert_eq!(surge(&[gone, done], 1, 1), [Step::End(0)]);
        assert_eq!(surge(&[place(false, Some(false), None)], 1, 0), [Step::End(0)]);
    }
}
