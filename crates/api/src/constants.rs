//! The numbers of the interface (P §0.1, D App. B).

use std::time::Duration;

/// A launch that has not succeeded by then is abandoned (P §9.5).
pub const LAUNCH_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// A launched instance whose Node has not registered by then is terminated (P §9.5).
pub const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Most instance types that a NodeClaim names (P §5.4).
pub const MAX_INSTANCE_TYPES: usize = 600;
/// How often a terminating instance is polled (P §9.6).
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
/// Least duration of a drain, to catch pods that the scheduler binds during it (D-312).
pub const MINIMUM_DRAIN: Duration = Duration::from_secs(5);
/// Entries of the registration health ring (P §10).
pub const REGISTRATION_HEALTH_ENTRIES: usize = 4;
/// Default period in which an event is not repeated (D-034).
pub const EVENT_DEDUPLICATION: Duration = Duration::from_secs(2 * 60);
/// Most characters of a provider's error text in a condition or event (P §9.2).
pub const ERROR_TEXT_CHARACTERS: usize = 300;
/// Idle window after which a batch of pending pods is closed, by default (P §5.1).
pub const BATCH_IDLE: Duration = Duration::from_secs(1);
/// Longest window of a batch of pending pods, by default (P §5.1).
pub const BATCH_MAXIMUM: Duration = Duration::from_secs(10);
/// Least nomination window; it is twice the longest batch window when that is more (P §0.1).
pub const MINIMUM_NOMINATION: Duration = Duration::from_secs(10);
/// Pending pods and pods on disrupted nodes ask again for provisioning after so long (P §5.1).
pub const PROVISIONING_RETRIGGER: Duration = Duration::from_secs(10);
/// A NodeClaim that was created and not launched is dropped from the state after so long (P §0.1).
pub const UNLAUNCHED_STATE_GRACE: Duration = Duration::from_secs(15);
/// Period of the refresh of a NodePool's counters (P §0.1).
pub const NODE_POOL_COUNTERS: Duration = Duration::from_secs(5);
/// Retry while the state is not yet synced (D §1.7).
pub const UNSYNCED_RETRY: Duration = Duration::from_secs(1);
/// Failures in the registration health ring from which a NodePool counts as unhealthy (P §0.1).
pub const REGISTRATION_HEALTH_FAILURES: usize = 2;
/// Period of the consistency scan of a Node (P §0.1).
pub const CONSISTENCY_PERIOD: Duration = Duration::from_secs(10 * 60);
/// Share of the promised capacity, in percent, below which a Node is inconsistent (P §0.1).
pub const CONSISTENCY_PERCENT: i64 = 90;
/// Work that garbage collection does at once (D App. A).
pub const GARBAGE_COLLECTION_PARALLELISM: usize = 20;
/// `FailedScheduling` is not repeated for a pod within this time (P §0.1).
pub const FAILED_SCHEDULING_DEDUPLICATION: Duration = Duration::from_secs(5 * 60);
/// `NoCompatibleInstanceTypes` is not repeated for a NodePool within this time (P §0.1).
pub const NO_COMPATIBLE_INSTANCE_TYPES_DEDUPLICATION: Duration = Duration::from_secs(60);
/// `Nominated` events a second, over all pods (P §0.1).
pub const NOMINATED_EVENTS_PER_SECOND: u32 = 5;
/// `Nominated` events that may be sent at once (P §0.1).
pub const NOMINATED_EVENTS_BURST: u32 = 10;
/// How long a finding that nothing can be consolidated is kept (D §3.7).
pub const CONSOLIDATED_MEMO: Duration = Duration::from_secs(5 * 60);
/// Most nodes in one multi-node command (D §4.8).
pub const MULTI_NODE_CANDIDATES: usize = 101;
/// Most nodes in any command. Its object has to fit into what etcd takes, 1.5 MB: with names as long as they may be a node takes more than a kilobyte of it.
pub const COMMAND_NODES: usize = 1_000;
/// Least number of cheaper spot types for a spot node to be replaced by a spot node (D §4.7).
pub const SPOT_TO_SPOT_INSTANCE_TYPES: usize = 15;
/// Retry of the command queue (D §3.6).
pub const COMMAND_RETRY: Duration = Duration::from_secs(1);
/// Least time that a command has for its replacements (D §3.6).
pub const COMMAND_TIMEOUT_MINIMUM: Duration = Duration::from_secs(10 * 60);
/// Most time that a command has for its replacements (D §3.6).
pub const COMMAND_TIMEOUT_MAXIMUM: Duration = Duration::from_secs(60 * 60);
/// Time that a command gets for each queued node, within the two bounds (D §3.6).
pub const COMMAND_TIMEOUT_PER_NODE: Duration = Duration::from_millis(80);
/// A command that has not completed its first writes by then is rolled back, because its inputs are outdated.
pub const COMMAND_START_LIMIT: Duration = Duration::from_secs(60);
/// Between the taints of a command and the deletion of its nodes: a scheduler that had not seen the taint yet has bound its pod by then (invariant 7).
pub const COMMAND_TAINT_SETTLE: Duration = Duration::from_secs(1);
/// For how long a finished Disruption is kept.
pub const DISRUPTION_HISTORY: Duration = Duration::from_secs(24 * 60 * 60);
/// Most finished Disruptions that are kept.
pub const DISRUPTION_HISTORY_ENTRIES: usize = 200;
/// Period of the drift check (D-214).
pub const DRIFT_PERIOD: Duration = Duration::from_secs(5 * 60);
/// A drain is reconciled again after this long (D §8.3).
pub const DRAIN_RETRY: Duration = Duration::from_secs(1);
/// First back-off of an eviction that was refused (D §8.5).
pub const EVICTION_BACKOFF_MINIMUM: Duration = Duration::from_millis(100);
/// Longest back-off of an eviction that was refused (D §8.5).
pub const EVICTION_BACKOFF_MAXIMUM: Duration = Duration::from_secs(10);
/// Static NodePools are reconciled again after this long (D §9.1).
pub const STATIC_POOL_PERIOD: Duration = Duration::from_secs(60);
/// The same while a static NodePool is at its limit of nodes (D §9.1).
pub const STATIC_POOL_PERIOD_AT_LIMIT: Duration = Duration::from_secs(30);
/// NodeOverlays are evaluated again after so long (D §9.2).
pub const OVERLAY_PERIOD: Duration = Duration::from_secs(6 * 60 * 60);
/// CapacityBuffers are evaluated again after so long (D §9.3).
pub const BUFFER_PERIOD: Duration = Duration::from_secs(30);
