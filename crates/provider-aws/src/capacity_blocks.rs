//! Capacity blocks: until when instances are launched into one, and when EC2 takes out what runs in it (A1.5, D-294).
//!
//! Owns these times. Looking a block up is the caller's.

use jiff::{SignedDuration, Timestamp};

/// Type of a reservation that is a capacity block.
pub const CAPACITY_BLOCK: &str = "capacity-block";

/// How long before a block ends EC2 begins to terminate its instances.
const RECLAIMED_EARLY: SignedDuration = SignedDuration::from_mins(30);
/// The same for UltraServers.
const ULTRASERVER_RECLAIMED_EARLY: SignedDuration = SignedDuration::from_mins(60);
/// Families of types that are there in UltraServers only.
const ULTRASERVER_FAMILIES: [&str; 3] = ["p6e-gb200", "p6e-gb300", "trn2u"];
/// A block is closed so long before its instances are terminated, and its nodes are drained in this time.
const CLOSED_EARLY: SignedDuration = SignedDuration::from_mins(10);

fn before(time: Timestamp, early: SignedDuration) -> Timestamp {
    time.saturating_sub(early).unwrap_or(Timestamp::MIN)
}

/// When EC2 begins to terminate the instances, which are of this type, of a block that ends then.
#[must_use]
pub fn reclaimed_at(instance_type: &str, ends_at: Timestamp) -> Timestamp {
    let family = instance_type.split('.').next().unwrap_or_default();
    let early = if ULTRASERVER_FAMILIES.contains(&family) {
        ULTRASERVER_RECLAIMED_EARLY
    } else {
        RECLAIMED_EARLY
    };
    before(ends_at, early)
}

/// Whether a block that ends then takes no instances any more, and the nodes in it have to go.
#[must_use]
pub fn is_closed(instance_type: &str, ends_at: Timestamp, now: Timestamp) -> bool {
    now >= before(reclaimed_at(instance_type, ends_at), CLOSED_EARLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_294_a_block_closes_ten_minutes_before_its_instances_are_terminated() {
        let ends_at: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        for (instance_type, closes, reclaimed) in [
            ("p5.48xlarge", "2026-06-01T11:20:00Z", "2026-06-01T11:30:00Z"),
            ("trn2.48xlarge", "2026-06-01T11:20:00Z", "2026-06-01T11:30:00Z"),
            ("trn2u.48xlarge", "2026-06-01T10:50:00Z", "2026-06-01T11:00:00Z"),
            (
                "p6e-gb200.36xlarge",
                "2026-06-01T10:50:00Z",
                "2026-06-01T11:00:00Z",
            ),
        ] {
            assert_eq!(
                reclaimed_at(instance_type, ends_at),
                at(reclaimed),
                "{instance_type}"
            );
            let closes = at(closes);
            let earlier = closes - SignedDuration::from_secs(1);
            assert!(is_closed(instance_type, ends_at, closes), "{instance_type}");
            assert!(!is_closed(instance_type, ends_at, earlier), "{instance_type}");
        }
    }
}
