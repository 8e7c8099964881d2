//! What has changed between two views: few rows of many.

use crate::budgets::Budgets;
use crate::header::Header;
use crate::ledger::Entry;
use crate::nodes::NodeRow;
use crate::pending::Group;
use crate::view::{API_VERSION, View};
use serde::Serialize;

/// Changed rows; their reasons are written out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeChanges {
    /// Nodes that are new or differ, whole, by name.
    pub changed: Vec<NodeRow>,
    /// Names of nodes that are gone.
    pub gone: Vec<String>,
}

/// From one view to the next. Parts that are none have not changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// The version of the format.
    pub api_version: &'static str,
    /// `Changes`.
    pub kind: &'static str,
    /// The view that they lead from.
    pub from: u64,
    /// The view that they lead to.
    pub revision: u64,
    /// The header, always whole.
    pub header: Header,
    /// The nodes.
    pub nodes: NodeChanges,
    /// Pending pods.
    pub pending: Option<Vec<Group>>,
    /// Budgets.
    pub budgets: Option<Budgets>,
    /// Commands that are new or differ.
    pub commands: Vec<Entry>,
    /// Names of commands that are not among the newest any more.
    pub commands_gone: Vec<String>,
}

impl View {
    /// The changes from `old` to this view. `old` with these changes equals this view, except for its history.
    pub fn changes(&self, old: &View) -> Changes {
        let is_same = |row: &&NodeRow| old.nodes.find(&row.name) == Some(row);
        let gone = old.nodes.0.iter().map(|row| &row.name);
        let is_known = |entry: &&Entry| {
            let mut known = self.commands.iter();
            known.any(|known| known.name == entry.name && known.decided == entry.decided)
        };
        let forgotten = old.commands.iter().filter(|entry| !is_known(entry));
        Changes {
            api_version: API_VERSION,
            kind: "Changes",
            from: old.revision,
            revision: self.revision,
            header: self.header.clone(),
            nodes: NodeChanges {
                changed: self.nodes.0.iter().filter(|row| !is_same(row)).cloned().collect(),
                gone: gone
                    .filter(|name| self.nodes.find(name).is_none())
                    .cloned()
                    .collect(),
            },
            pending: (self.pending != old.pending).then(|| self.pending.clone()),
            budgets: (self.budgets != old.budgets).then(|| self.budgets.clone()),
            commands: self
                .commands
                .iter()
                .filter(|entry| !old.commands.contains(entry))
                .cloned()
                .collect(),
            commands_gone: forgotten.map(|entry| entry.name.clone()).collect(),
        }
    }
}
