//! The state of a cluster as one value: [`View`], `view.spokeshave.dev/v1alpha1`, documented in `docs/page.md`.
//!
//! The page, `spokeshave top` and the JSON output show the same value. It calls `plan`'s functions and sums up; it decides nothing, reads nothing
//! on its own and uses no clock. [`World`] is the input, [`Judged`] the decisions about it, [`History`] and [`Ledger`] the past, and
//! [`Supposition`] what might be.

mod account;
mod budgets;
mod changes;
mod closures;
mod detail;
mod difference;
mod header;
mod history;
mod ledger;
mod nodes;
mod pending;
mod suppose;
mod total;
mod unknown;
mod view;
mod words;
mod world;

pub use account::Account;
pub use budgets::{BudgetDay, BudgetNow, Budgets, PoolCalendar};
pub use changes::{Changes, NodeChanges};
pub use closures::Stretch;
pub use detail::{Detail, Toggle, detail, pod_story, pool_story};
pub use difference::{Difference, NotLaunched, VerdictChange};
pub use header::Header;
pub use history::{History, Range, Sample};
pub use ledger::{Entry, Ledger, Sums};
pub use nodes::{NodeRow, Nodes, Phase, ReasonRow, share};
pub use pending::{Group, Place};
pub use spokeshave_api::UNLIMITED;
pub use suppose::{MOST_SUPPOSED, Supposition, SuppositionError};
pub use total::{Total, Use};
pub use unknown::{AS_LAST_READ, Missing};
pub use view::{API_VERSION, View};
pub use words::{price_change, time_format};
pub use world::{Judged, World};

use serde::{Serialize, Serializer};
use spokeshave_model::Price;

/// A price as a number of dollars per hour, exact to the nano-dollar as far as a double can hold it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dollars(pub Price);

impl Serialize for Dollars {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0.dollars())
    }
}
