//! What ran out lately (Z6.5): for how long which sizes are left out.
//!
//! Owns the memory of it. What an error says about capacity is [`errors`](crate::errors). A size that has run out takes the larger ones of its
//! family with it: they are made of the same hosts, and the same quota.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use spokeshave_model::CapacityType;

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Blocked {
    /// Sizes with at least so many vCPUs.
    from_cpus: i64,
    until: Timestamp,
}

/// What ran out lately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unavailable {
    /// By family in lower case, zone and capacity type. A size whose family has no name stands for itself.
    families: BTreeMap<(String, String, CapacityType), Blocked>,
    spot_until: Option<Timestamp>,
    version: u64,
}

impl Unavailable {
    /// Changes whenever an answer of [`contains`](Self::contains) may.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Remembers a mark. What is marked already stays at least as long, and as wide.
    pub fn mark(&mut self, mark: &Mark, now: Timestamp) {
        let until = now.saturating_add(mark.lasts).unwrap_or(Timestamp::MAX);
        match &mark.reach {
            Reach::AllSpot => {
                let before = self
                    .spot_until
                    .replace(self.spot_until.map_or(until, |it| it.max(until)));
                self.version += u64::from(before.is_none());
            }
            Reach::Family {
                family,
                size,
                cpus,
                zones,
                capacity_types,
            } => {
                for zone in zones {
                    for capacity_type in capacity_types {
                        let key = (key(family, size), zone.clone(), *capacity_type);
                        self.block(key, *cpus, until);
                    }
                }
            }
        }
    }

    fn block(&mut self, key: (String, String, CapacityType), from_cpus: i64, until: Timestamp) {
        let new = Blocked { from_cpus, until };
        let widened = match self.families.get_mut(&key) {
            Some(blocked) => {
                let widened = from_cpus < blocked.from_cpus;
                blocked.from_cpus = blocked.from_cpus.min(from_cpus);
                blocked.until = blocked.until.max(until);
                widened
            }
            None => {
                self.families.insert(key, new);
                true
            }
        };
        self.version += u64::from(widened);
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
        let no_spot = capacity_type == CapacityType::Spot && self.spot_until.is_some_and(|until| now < until);
        let blocked = self
            .families
            .get(&(key(family, size), zone.to_owned(), capacity_type));
        no_spot || blocked.is_some_and(|blocked| cpus >= blocked.from_cpus && now < blocked.until)
    }

    /// Forgets what is over. Returns whether there was any.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        let before = self.families.len();
        self.families.retain(|_, blocked| now < blocked.until);
        let spot_ends = self.spot_until.is_some_and(|until| now >= until);
        if spot_ends {
            self.spot_until = None;
        }
        let changed = spot_ends || self.families.len() != before;
        self.version += u64::from(changed);
        changed
    }

    /// When something is over next.
    #[must_use]
    pub fn next_end(&self) -> Option<Timestamp> {
        self.families
            .values()
            .map(|blocked| blocked.until)
            .chain(self.spot_until)
            .min()
    }
}

fn key(family: &str, size: &str) -> String {
    let name = if family.is_empty() { size } else { family };
    name.to_lowercase()
}
