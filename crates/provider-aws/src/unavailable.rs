//! What was out of capacity lately (A4.4): offerings, capacity types and subnets that launches leave out for three minutes.
//!
//! A value: time comes in with each call, and every change of what is unavailable at an instant is another [`version`](Unavailable::version); that something stays so for longer
//! is none.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::CapacityType;

/// How long something that had no capacity is left out.
pub const UNAVAILABLE_FOR: SignedDuration = SignedDuration::from_mins(3);

/// An offering of which capacity ran out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OfferingKey {
    /// How it is bought.
    pub capacity_type: CapacityType,
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// The placement group in which there was no room; `None` when the zone as a whole had none.
    pub placement_group: Option<PlacementGroupKey>,
}

/// A placement group, or one partition of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacementGroupKey {
    /// ID of the group.
    pub id: String,
    /// Number of the partition.
    pub partition: Option<i64>,
}

/// What is left out, each with the instant at which it may be tried again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unavailable {
    offerings: BTreeMap<OfferingKey, Timestamp>,
    capacity_types: BTreeMap<CapacityType, Timestamp>,
    subnets: BTreeMap<String, Timestamp>,
    version: u64,
}

impl Unavailable {
    /// Leaves an offering out.
    pub fn offering(&mut self, key: OfferingKey, now: Timestamp) {
        let before = self.offerings.insert(key, end(now));
        self.left_out(before, now);
    }

    /// Leaves a capacity type out as a whole.
    pub fn capacity_type(&mut self, capacity_type: CapacityType, now: Timestamp) {
        let before = self.capacity_types.insert(capacity_type, end(now));
        self.left_out(before, now);
    }

    /// Leaves a subnet out.
    pub fn subnet(&mut self, id: &str, now: Timestamp) {
        let before = self.subnets.insert(id.to_owned(), end(now));
        self.left_out(before, now);
    }

    /// Counts what was left out, unless it was so before: a thousand reports of one offering make no list of types a thousand times.
    fn left_out(&mut self, before: Option<Timestamp>, now: Timestamp) {
        self.version += u64::from(before.is_none_or(|until| until <= now));
    }

    /// Takes back what has ended. Returns whether anything has, in which case the version is another one.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        let before = self.len();
        self.offerings.retain(|_, until| *until > now);
        self.capacity_types.retain(|_, until| *until > now);
        self.subnets.retain(|_, until| *until > now);
        let changed = self.len() != before;
        self.version += u64::from(changed);
        changed
    }

    /// Whether an offering is left out. `subnets` are the class's subnets in the zone: the zone is left out when all of them are.
    #[must_use]
    pub fn contains(&self, key: &OfferingKey, subnets: &[&str], now: Timestamp) -> bool {
        if self.len() == 0 {
            return false;
        }
        let active = |until: Option<&Timestamp>| until.is_some_and(|until| *until > now);
        let anywhere = OfferingKey {
            placement_group: None,
            ..key.clone()
        };
        active(self.offerings.get(key))
            || active(self.offerings.get(&anywhere))
            || active(self.capacity_types.get(&key.capacity_type))
            || (!subnets.is_empty() && subnets.iter().all(|subnet| active(self.subnets.get(*subnet))))
    }

    /// When the next entry ends; `None` when nothing is left out.
    #[must_use]
    pub fn next_end(&self) -> Option<Timestamp> {
        let all = self.offerings.values().chain(self.capacity_types.values());
        all.chain(self.subnets.values()).min().copied()
    }

    /// A number that differs whenever something was left out or taken back.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Entries of the three kinds: offerings, capacity types, subnets.
    #[must_use]
    pub fn entries(&self) -> (Vec<&OfferingKey>, Vec<CapacityType>, Vec<&str>) {
        (
            self.offerings.keys().collect(),
            self.capacity_types.keys().copied().collect(),
            self.subnets.keys().map(String::as_str).collect(),
        )
    }

    fn len(&self) -> usize {
        self.offerings.len() + self.capacity_types.len() + self.subnets.len()
    }
}

fn end(now: Timestamp) -> Timestamp {
    now.saturating_add(UNAVAILABLE_FOR).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn key(zone: &str) -> OfferingKey {
        OfferingKey {
            capacity_type: CapacityType::Spot,
            instance_type: "m5.large".into(),
            zone: zone.into(),
            placement_group: None,
        }
    }

    #[test]
    fn a_055_d_284_offerings_capacity_types_and_subnets_are_left_out_for_three_minutes() {
        let mut unavailable = Unavailable::default();
        unavailable.offering(key("a"), at(0));
        assert!(unavailable.contains(&key("a"), &[], at(179)));
        assert!(
            !unavailable.contains(&key("a"), &[], at(180)),
            "three minutes are over"
        );
        assert!(!unavailable.contains(&key("b"), &[], at(1)));
        unavailable.capacity_type(CapacityType::Spot, at(10));
        assert!(unavailable.contains(&key("b"), &[], at(11)));
        assert!(!unavailable.contains(&key("b"), &[], at(190)));
        unavailable.subnet("s1", at(200));
        assert!(!unavailable.contains(&key("b"), &["s1", "s2"], at(201)));
        assert!(unavailable.contains(&key("b"), &["s1"], at(201)));
        assert!(
            !unavailable.contains(&key("b"), &[], at(201)),
            "a class without subnets there has a problem of another kind"
        );
    }

    #[test]
    fn a_055_d_284_every_change_is_another_version() {
        let mut unavailable = Unavailable::default();
        let mut seen = vec![unavailable.version()];
        unavailable.offering(key("a"), at(0));
        seen.push(unavailable.version());
        unavailable.offering(key("a"), at(100));
        assert_eq!(
            unavailable.version(),
            seen[1],
            "it was left out before, and nothing that is made from it differs"
        );
        assert!(
            !unavailable.expire(at(279)),
            "the second report extends the first"
        );
        assert_eq!(unavailable.next_end(), Some(at(280)));
        assert!(unavailable.expire(at(280)));
        seen.push(unavailable.version());
        unavailable.offering(key("a"), at(300));
        seen.push(unavailable.version());
        assert!(unavailable.contains(&key("a"), &[], at(479)));
        assert!(!unavailable.contains(&key("a"), &[], at(480)));
        unavailable.offering(key("a"), at(480));
        seen.push(unavailable.version());
        assert!(
            unavailable.contains(&key("a"), &[], at(481)),
            "what had ended and was not taken back is left out again"
        );
        unavailable.capacity_type(CapacityType::Spot, at(481));
        seen.push(unavailable.version());
        unavailable.subnet("s1", at(481));
        seen.push(unavailable.version());
        seen.dedup();
        assert_eq!(seen.len(), 7);
        assert_eq!(unavailable.next_end(), Some(at(660)));
    }

    #[test]
    fn a_placement_group_without_room_does_not_close_the_zone() {
        let mut unavailable = Unavailable::default();
        let in_group = OfferingKey {
            placement_group: Some(PlacementGroupKey {
                id: "pg-1".into(),
                partition: None,
            }),
            ..key("a")
        };
        unavailable.offering(in_group.clone(), at(0));
        assert!(unavailable.contains(&in_group, &[], at(1)));
        assert!(!unavailable.contains(&key("a"), &[], at(1)));
        unavailable.offering(key("b"), at(0));
        assert!(
            unavailable.contains(
                &OfferingKey {
                    zone: "b".into(),
                    ..in_group
                },
                &[],
                at(1)
            ),
            "a zone without capacity has none for groups either"
        );
    }
}
