//! The one vocabulary in which the tests of whole clusters speak: what users do, what they see, and how long they wait for it.
//!
//! One file per subject. Nothing here knows how an operator is created or which faults are injected: that is in `plain`, `killable` and `faulty`.

mod ledger;
mod looks;
mod nodes;
pub mod objects;
mod pools;
mod rest;
mod series;
mod unreadable;
mod volumes;
mod waiting;
mod workloads;

use std::time::Duration;

use spokeshave_sim::lab::Lab;

pub use ledger::Ledger;
pub use looks::Looks;
pub use nodes::Nodes;
pub use objects::Objects;
pub use pools::Pools;
pub use rest::Rest;
pub use series::{assert_counted_once, reading, sum, sum_of, value};
pub use unreadable::Unreadable;
pub use volumes::{Volumes, ephemeral_volume, volume_claim};
pub use waiting::Waiting;
pub use workloads::{Workloads, second_version, template, without_place};

/// What every word is about: a laboratory, and how patient its tests are.
pub trait Scene: Sized {
    /// Longest virtual time that a test waits for something.
    const LIMIT: Duration = Duration::from_secs(3600);
    /// Virtual time between two looks.
    const STEP: Duration = Duration::from_secs(1);

    fn lab(&self) -> &Lab;

    /// Every promise is kept that the test does not break on purpose.
    fn assert_kept(&self) {
        self.lab().invariants.assert_kept();
    }
}
