//! Pure decisions: provisioning, disruption, life cycle and termination, each with its report.
//!
//! Every function here takes a Snapshot (or single objects), the Policy and `now`, and returns values. None knows a provider, an API server
//! or a clock.

pub mod blockers;
pub mod budget_lint;
mod budget_repair;
pub mod buffers;
pub mod calendar;
pub mod consistency;
pub mod consolidatable;
pub mod disrupt;
pub mod disruption_policy;
pub mod drift;
mod durations;
pub mod dynamic_resources;
pub mod garbage_collection;
pub mod identity;
pub mod in_flight;
pub mod interruption;
pub mod launch_backoff;
pub mod lifecycle;
mod node_claim;
pub mod node_repair;
pub mod nodepool;
pub mod nominations;
pub mod overlays;
mod policy;
pub mod pool_conditions;
pub mod preferences;
pub mod provider_ids;
mod provision;
pub mod registration_health;
pub mod report;
pub mod standing;
pub mod static_pools;
pub mod termination;
pub mod unjoined_zones;
pub mod vain_launches;

pub use node_claim::to_node_claim;
pub use policy::{Policy, nomination_window};
pub use provision::{
    LimitExceeded, ProvisionReport, Provisioned, displaced_pods, failed_scheduling_event, limit_exceeded,
    nominated_event, pending_pods, provision, provision_by_zone, provision_only, skipped_pool_text,
};
pub use spokeshave_schedule::{MinValuesPolicy, PreferencePolicy, SkippedPool, UnplacedPod};
