//! What has failed lately, around the cluster: what circuit breakers of DisruptionPolicies look at.

use jiff::Timestamp;

/// When calls have failed, oldest first, and how old prices are. It says what one program has seen since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distress {
    /// Writes that the API server did not answer, or refused with an error of its own.
    pub api_server: Vec<Timestamp>,
    /// Calls that the cloud did not answer or could not do, launches without capacity included.
    pub cloud: Vec<Timestamp>,
    /// The age of prices.
    pub prices: PriceFeed,
}

/// How old prices are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PriceFeed {
    /// They never change.
    #[default]
    Fixed,
    /// They were last read then; or, before the first time, looked for since then.
    Since(Timestamp),
    /// They are from a table that has no prices of spot capacity: it counts as on-demand.
    WithoutSpot,
}
