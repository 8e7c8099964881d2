//! The numbers of the interface (P §0.1, D App. B).

use std::time::Duration;

/// A launch that has not succeeded by then is given up (P §9.5).
pub const LAUNCH_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// A launched instance whose Node has not registered by then is given up (P §9.5).
pub const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Most instance types that a NodeClaim names (P §5.4).
pub const MAX_INSTANCE_TYPES: usize = 600;
/// How often a terminating instance is asked after (P §9.6).
pub const INSTANCE_TERMINATION_POLL: Duration = Duration::from_secs(5);
/// Period of the garbage collection of NodeClaims (D-249).
pub const GARBAGE_COLLECTION_PERIOD: Duration = Duration::from_secs(2 * 60);
/// Age from which an instance without NodeClaim counts as leaked (D-252).
pub const LEAKED_INSTANCE_AGE: Duration = Duration::from_secs(30);
/// Least time between two writes of `lastPodEventTime` (D-036).
pub const POD_EVENT_DEDUPLICATION: Duration = Duration::from_secs(10);
/// Wait between a disruption decision and its validation (D-086).
pub const VALIDATION_DELAY: Duration = Duration::from_secs(15);
/// Pause after a disruption pass in which nothing was done (D-064).
pub const DISRUPTION_POLL: Duration = Duration::from_secs(10);
/// A terminating pod that is still there so long after its deletion timestamp is no longer waited for (D-005).
pub const STUCK_TERMINATING_AFTER: Duration = Duration::from_secs(60);
/// Least duration of a drain, to catch pods that the scheduler binds meanwhile (D-312).
pub const MINIMUM_DRAIN: Duration = Duration::from_secs(5);
/// Entries of the registration health ring (P §10.4).
pub const REGISTRATION_HEALTH_ENTRIES: usize = 4;
/// Default period in which an event is not repeated (D-034).
pub const EVENT_DEDUPLICATION: Duration = Duration::from_secs(2 * 60);
/// Most characters of a provider's error text in a condition or event (P §9.2).
pub const ERROR_TEXT_CHARACTERS: usize = 300;
