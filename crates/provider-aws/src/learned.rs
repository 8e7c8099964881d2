//! Memory that nodes were seen to have (A3.2, A-048): firmware and kernel keep back another share on each type, which only a node that has joined shows.
//!
//! A value: time comes in with each call. What was learned holds for the set of images that the node's class had; other images may keep back more.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::EC2NodeClass;
use spokeshave_api::hash::digest;

/// What was learned is forgotten after this long, unless it is seen again: 60 days.
pub const KEPT_FOR: SignedDuration = SignedDuration::from_hours(60 * 24);

/// Memory by set of images and instance type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// Bytes, and until when they hold.
    seen: BTreeMap<u64, BTreeMap<String, (i64, Timestamp)>>,
    version: u64,
}

/// A number for the images of a class.
#[must_use]
pub fn images_of(class: &EC2NodeClass) -> u64 {
    let images = class.status.iter().flat_map(|status| &status.amis);
    let ids: BTreeSet<&str> = images.map(|image| image.id.as_str()).collect();
    digest(&ids.into_iter().collect::<Vec<_>>().join(" "))
}

impl Learned {
    /// Takes in the capacity of a node of this type whose image is one of these; the least that was seen counts.
    pub fn see(&mut self, images: u64, instance_type: &str, bytes: i64, now: Timestamp) {
        let until = now.saturating_add(KEPT_FOR).unwrap_or(Timestamp::MAX);
        let types = self.seen.entry(images).or_default();
        match types.get_mut(instance_type) {
            Some((known, _)) if *known < bytes => {}
            Some((known, known_until)) if *known == bytes => *known_until = until,
            _ => {
                types.insert(instance_type.to_owned(), (bytes, until));
                self.version += 1;
            }
        }
    }

    /// Forgets what is too old.
    pub fn expire(&mut self, now: Timestamp) {
        let count =
            |seen: &BTreeMap<u64, BTreeMap<String, _>>| seen.values().map(BTreeMap::len).sum::<usize>();
        let before = count(&self.seen);
        for types in self.seen.values_mut() {
            types.retain(|_, (_, until)| *until > now);
        }
        self.seen.retain(|_, types| !types.is_empty());
        self.version += u64::from(count(&self.seen) != before);
    }

    /// Memory of a type that starts from one of these images, in bytes; `None` before a node of it was seen.
    #[must_use]
    pub fn memory(&self, images: u64, instance_type: &str) -> Option<i64> {
        let (bytes, _) = self.seen.get(&images)?.get(instance_type)?;
        Some(*bytes)
    }

    /// Whether anything is known of nodes that start from these images.
    #[must_use]
    pub fn knows(&self, images: u64) -> bool {
        self.seen.contains_key(&images)
    }

    /// A number that differs whenever something was learned or forgotten.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH
            .saturating_add(SignedDuration::from_hours(24 * days))
            .unwrap()
    }

    #[test]
    fn a_048_the_least_memory_that_was_seen_counts_for_sixty_days() {
        let mut learned = Learned::default();
        for (bytes, day) in [(800, 0), (900, 1), (700, 2), (700, 10)] {
            learned.see(1, "m5.large", bytes, at(day));
        }
        assert_eq!(learned.memory(1, "m5.large"), Some(700));
        assert_eq!(learned.memory(1, "m5.xlarge"), None);
        assert_eq!(learned.memory(2, "m5.large"), None, "other images, other kernels");
        assert_eq!(
            learned.version(),
            2,
            "more memory, and the same again, is no news"
        );
        learned.expire(at(69));
        assert!(learned.knows(1), "seen again on the tenth day");
        learned.expire(at(70));
        assert!(!learned.knows(1));
        assert_eq!(learned.version(), 3);
    }
}
