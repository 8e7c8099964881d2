//! What ran out lately (Z6.5): for how long which sizes are left out.
//!
//! Owns the memory of it. What an error says about capacity is [`errors`](crate::errors). A size that has run out takes the larger ones of its
//! family with it: they are made of the same hosts, and the same quota.

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::CapacityType;
use spokeshave_provider_common::left_out::LeftOut;

/// How long an offering is left out unless an error says otherwise.
pub const USUALLY: SignedDuration = SignedDuration::from_mins(3);

/// What is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// All spot capacity: its quota is one for all sizes.
    AllSpot,
    /// A size, and the larger ones of its family, in these zones.
    Family {
        /// Family of the size.
        family: String,
        /// Name of the size.
        size: String,
        /// vCPUs of the size.
        cpus: i64,
        /// Label values of zones.
        zones: Vec<String>,
        /// How it is bought.
        capacity_types: Vec<CapacityType>,
    },
}

/// Something is left out for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// What.
    pub reach: Reach,
    /// For how long.
    pub lasts: SignedDuration,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    AllSpot,
    /// Family in lower case, zone and capacity type. A size whose family has no name stands for itself.
    Family(String, String, CapacityType),
}

/// What ran out lately. A family is left out from a number of vCPUs on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unavailable(LeftOut<Key, i64>);

impl Unavailable {
    /// Changes whenever an answer of [`contains`](Self::contains) may.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.version()
    }

    /// Remembers a mark. What is marked already stays marked: a small size that runs out for minutes is back when they are over, however long a large one of its
    /// family is left out.
    pub fn mark(&mut self, mark: &Mark, now: Timestamp) {
        match &mark.reach {
            Reach::AllSpot => self.0.leave_out(Key::AllSpot, 0, mark.lasts, now),
            Reach::Family {
                family,
                size,
                cpus,
                zones,
                capacity_types,
            } => {
                for zone in zones {
                    for capacity_type in capacity_types {
                        let key = Key::Family(key(family, size), zone.clone(), *capacity_type);
                        self.0.leave_out(key, *cpus, mark.lasts, now);
                    }
                }
            }
        }
    }

    /// Whether a size is left out in a zone.
    #[must_use]
    pub fn contains(
        &self,
        (family, size, cpus): (&str, &str, i64),
        zone: &str,
        capacity_type: CapacityType,
        now: Timestamp,
    ) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let no_spot = capacity_type == CapacityType::Spot && self.0.get(&Key::AllSpot, now).is_some();
        let key = Key::Family(key(family, size), zone.to_owned(), capacity_type);
        no_spot || self.0.get(&key, now).is_some_and(|from| cpus >= from)
    }

    /// Forgets what is over. Returns whether there was any.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        self.0.expire(now)
    }

    /// When something is over next.
    #[must_use]
    pub fn next_end(&self) -> Option<Timestamp> {
        self.0.next_end()
    }
}

fn key(family: &str, size: &str) -> String {
    let name = if family.is_empty() { size } else { family };
    name.to_lowercase()
}
