//! AWS as a cloud provider: EC2NodeClasses, launches, instances, interruptions.
//!
//! Owns the order in which AWS is asked, and what is remembered of its answers. Decisions are `provider-aws`'s; the network is behind [`ports`].
//! It writes EC2NodeClasses, and of NodeClaims and Nodes nothing but two annotations (hash, `tagged`) and the labels of a reservation that an instance has lost.

mod batch;
mod belongings;
mod classes;
mod described;
mod dns;
#[cfg(test)]
mod fake;
mod flight;
mod gather;
mod health;
mod hindrances;
mod in_hand;
mod launch;
mod lead;
mod learning;
mod looked_up;
mod market;
mod messages;
mod meter;
mod notices;
mod options;
pub mod ports;
mod provider;
mod recent;
mod reservations;
mod shifts;
mod templates;
mod verdicts;
mod version;

pub use meter::Meter;
pub use options::AwsOptions;
pub use provider::AwsProvider;
pub use version::minor_version;
