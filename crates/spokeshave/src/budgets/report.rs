//! The answer of `spokeshave budgets` as data: what JSON and YAML print, and what the table is made of.

use jiff::Timestamp;
use serde::Serialize;
use spokeshave_api::Budget;
use spokeshave_plan::budget_lint::{Finding, Level, NodeCounts, lint, read};
use spokeshave_plan::calendar::{REASONS, ReasonCalendar, Window, calendar};

use super::source::Pool;

/// Everything about all pools. Documented in `docs/budgets.md`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    api_version: &'static str,
    kind: &'static str,
    /// First instant of the calendar.
    pub(crate) from: Timestamp,
    /// End of the calendar.
    pub(crate) until: Timestamp,
    time_zone: &'static str,
    /// By name.
    pub(crate) node_pools: Vec<PoolReport>,
}

/// One NodePool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolReport {
    /// Its name.
    pub(crate) name: String,
    /// How many nodes percentages are taken of, and how many of them are disrupting.
    #[serde(flatten)]
    pub(crate) counts: NodeCounts,
    /// The number of nodes is not known and therefore assumed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) nodes_assumed: bool,
    /// The budgets, as far as they can be read.
    pub(crate) budgets: Vec<Budget>,
    /// One calendar per reason.
    pub(crate) calendar: Vec<ReasonCalendar>,
    /// What is wrong.
    pub(crate) findings: Vec<Located>,
}

/// A finding and where it is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Located {
    /// The object, as `NodePool/default`.
    pub(crate) object: String,
    /// The file, when the pool is from one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// The line in it of the field, or of what the field would be part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u64>,
    /// What it is.
    #[serde(flatten)]
    pub(crate) finding: Finding,
}

/// Nodes to take percentages of where nobody knows how many there are: one node is one percent.
const NODES_WHEN_UNKNOWN: usize = 100;

impl Report {
    /// Asks about each pool. `nodes` overrides the number of nodes.
    pub(crate) fn new(pools: &[Pool], nodes: Option<usize>, range: Window) -> Self {
        Report {
            api_version: "plan.spokeshave.dev/v1alpha1",
            kind: "BudgetCalendar",
            from: range.from,
            until: range.until,
            time_zone: "UTC",
            node_pools: pools.iter().map(|pool| pool_report(pool, nodes, range)).collect(),
        }
    }

    /// At least one finding of level error.
    pub(crate) fn has_errors(&self) -> bool {
        self.node_pools
            .iter()
            .flat_map(|pool| &pool.findings)
            .any(|located| located.finding.level == Level::Error)
    }
}

fn pool_report(pool: &Pool, nodes: Option<usize>, range: Window) -> PoolReport {
    let counts = match nodes {
        Some(nodes) => Some(NodeCounts { nodes, disrupting: 0 }),
        None => pool.counts,
    };
    let budgets = read(&pool.object).budgets;
    let assumed = NodeCounts {
        nodes: NODES_WHEN_UNKNOWN,
        disrupting: 0,
    };
    let shown = counts.unwrap_or(assumed);
    let calendars = REASONS
        .iter()
        .map(|reason| calendar(&budgets, reason, shown.nodes, range));
    let located = |finding: Finding| {
        let origin = pool.origin.as_ref();
        Located {
            object: format!("NodePool/{}", pool.name),
            file: origin.map(|origin| origin.file.clone()),
            line: origin.and_then(|origin| origin.lines.line_of(&finding.field)),
            finding,
        }
    };
    PoolReport {
        name: pool.name.clone(),
        counts: shown,
        nodes_assumed: counts.is_none(),
        calendar: calendars.collect(),
        findings: lint(&pool.object, counts, range.from)
            .into_iter()
            .map(located)
            .collect(),
        budgets,
    }
}
