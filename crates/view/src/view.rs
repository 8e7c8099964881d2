//! The whole: [`View`].

use crate::budgets::Budgets;
use crate::header::Header;
use crate::history::{History, Range, Sample};
use crate::ledger::{Entry, Ledger};
use crate::nodes::Nodes;
use crate::pending::{self, Group};
use crate::world::Judged;
use serde::Serialize;
use spokeshave_story::settings::SettingsInForce;

/// The version of the format. Fields may be added, but are never removed.
pub const API_VERSION: &str = "view.spokeshave.dev/v1alpha1";

/// What there is to see. Field by field in `docs/page.md`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `View`.
    pub kind: &'static str,
    /// Counts what has been seen, from 1; a greater one is newer, until the program is restarted.
    pub revision: u64,
    /// The numbers that come first.
    pub header: Header,
    /// The nodes, as columns.
    pub nodes: Nodes,
    /// Pods without a node, grouped.
    pub pending: Vec<Group>,
    /// What disruption budgets allow.
    pub budgets: Budgets,
    /// What was done, oldest first.
    pub commands: Vec<Entry>,
    /// What was.
    pub history: History,
    /// By which settings it is decided; nothing where an operator shows its own decisions, and of files for which none was given. Who looks for them sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsInForce>,
}

impl View {
    /// Draws up a view. Takes the moment into the ledger and the history first.
    pub fn take(judged: &Judged, ledger: &mut Ledger, history: &mut History, revision: u64) -> Self {
        ledger.take(&judged.world, &judged.snapshot);
        let mut view = Self::of(judged, ledger, history, revision);
        let last = history.samples(Range::Hour).next_back();
        if let Some(price) = view.header.known_price(last.map(|sample| sample.price)) {
            history.push(Sample {
                at: view.header.now,
                price,
                nodes: view.header.nodes,
                pending: view.header.pending,
                evictions: view.header.done.evictions,
            });
        }
        let is_known = view.header.knows("budgets");
        history.push_budgets(view.header.now, is_known.then_some(&view.budgets));
        view.history.clone_from(history);
        view
    }

    /// The view of a moment with what is known of others.
    pub fn of(judged: &Judged, ledger: &Ledger, history: &History, revision: u64) -> Self {
        let nodes = Nodes::of(judged);
        let day_ago = history.price_a_day_ago(judged.world.now);
        Self {
            api_version: API_VERSION,
            kind: "View",
            revision,
            header: Header::of(judged, &nodes, ledger.sums(), ledger.account(), day_ago),
            pending: pending::groups(judged),
            budgets: Budgets::of(judged),
            commands: ledger.entries().cloned().collect(),
            history: history.clone(),
            settings: None,
            nodes,
        }
    }
}

impl View {
    /// The view of a world that is only thought of: what was done and what was stay as they are.
    pub fn supposed(&self, judged: &Judged) -> Self {
        let nodes = Nodes::of(judged);
        let day_ago = self.header.price_a_day_ago.map(|price| price.0);
        Self {
            header: Header::of(judged, &nodes, self.header.done, self.header.account, day_ago),
            pending: pending::groups(judged),
            budgets: Budgets::of(judged),
            nodes,
            ..self.clone()
        }
    }
}
