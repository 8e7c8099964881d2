//! AWS as a cloud provider: EC2NodeClasses, launches, instances, interruptions.
//!
//! Owns the order in which AWS is asked, and what is remembered of its answers. Decisions are `provider-aws`'s; the network is behind [`ports`].
//! It writes EC2NodeClasses, and of NodeClaims nothing but two annotations (hash, `tagged`).

mod batch;
mod belongings;
mod classes;
#[cfg(test)]
mod fake;
mod gather;
mod health;
mod instances;
mod launch;
mod lead;
mod market;
mod messages;
mod options;
pub mod ports;
mod provider;
mod recent;
mod templates;

pub use options::AwsOptions;
pub use provider::AwsProvider;
