//! What was out of capacity lately (A4.4): offerings, capacity types, subnets and capacity reservations that launches leave out for three minutes.
//!
//! A value: time comes in with each call, and every change of what is unavailable at an instant is another [`version`](Unavailable::version); that something stays so for longer
//! is none.

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::CapacityType;
use spokeshave_provider_common::left_out::LeftOut;

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

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Offering(OfferingKey),
    CapacityType(CapacityType),
    Subnet(String),
    Reservation(String),
}

/// What is left out, each until the instant at which it may be tried again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unavailable(LeftOut<Key>);

impl Unavailable {
    fn leave_out(&mut self, key: Key, now: Timestamp) {
        self.0.leave_out(key, (), UNAVAILABLE_FOR, now);
    }

    /// Leaves an offering out.
    pub fn offering(&mut self, key: OfferingKey, now: Timestamp) {
        self.leave_out(Key::Offering(key), now);
    }

    /// Leaves a capacity type out as a whole.
    pub fn capacity_type(&mut self, capacity_type: CapacityType, now: Timestamp) {
        self.leave_out(Key::CapacityType(capacity_type), now);
    }

    /// Leaves a subnet out.
    pub fn subnet(&mut self, id: &str, now: Timestamp) {
        self.leave_out(Key::Subnet(id.to_owned()), now);
    }

    /// Leaves a capacity reservation out, however many instances EC2 counts as free in it: they may not be for what was asked for.
    pub fn reservation(&mut self, id: &str, now: Timestamp) {
        self.leave_out(Key::Reservation(id.to_owned()), now);
    }

    /// Takes back what has ended. Returns whether anything has, in which case the version is another one.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        self.0.expire(now)
    }

    /// Whether an offering is left out. `subnets` are the class's subnets in the zone: the zone is left out when all of them are.
    #[must_use]
    pub fn contains(&self, key: &OfferingKey, subnets: &[&str], now: Timestamp) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let is_out = |key: Key| self.0.get(&key, now).is_some();
        let anywhere = OfferingKey {
            placement_group: None,
            ..key.clone()
        };
        is_out(Key::Offering(key.clone()))
            || is_out(Key::Offering(anywhere))
            || is_out(Key::CapacityType(key.capacity_type))
            || self.contains_all(subnets, now)
    }

    /// Whether a capacity reservation is left out. `subnets` are the class's subnets in its zone: it is left out when all of them are.
    #[must_use]
    pub fn contains_reservation(&self, id: &str, subnets: &[&str], now: Timestamp) -> bool {
        let is_out = |id: &str| self.0.get(&Key::Reservation(id.to_owned()), now).is_some();
        !self.0.is_empty() && (is_out(id) || self.contains_all(subnets, now))
    }

    /// Whether there are subnets, and all of them are left out.
    fn contains_all(&self, subnets: &[&str], now: Timestamp) -> bool {
        let is_out = |id: &str| self.0.get(&Key::Subnet(id.to_owned()), now).is_some();
        !subnets.is_empty() && subnets.iter().all(|id| is_out(id))
    }

    /// When the next entry ends; `None` when nothing is left out.
    #[must_use]
    pub fn next_end(&self) -> Option<Timestamp> {
        self.0.next_end()
    }

    /// A number that differs whenever something was left out or taken back.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.version()
    }
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
        unavailable.reservation("cr-1", at(300));
        assert!(unavailable.contains_reservation("cr-1", &[], at(479)));
        assert!(!unavailable.contains_reservation("cr-1", &[], at(480)));
        assert!(!unavailable.contains_reservation("cr-2", &[], at(301)));
        assert!(unavailable.contains_reservation("cr-2", &["s1"], at(301)));
        assert!(!unavailable.contains_reservation("cr-2", &["s1", "s2"], at(301)));
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
