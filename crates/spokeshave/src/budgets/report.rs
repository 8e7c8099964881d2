//! The answer of `spokeshave budgets` as data: what JSON and YAML print, and what the table is made of.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use spokeshave_api::disruption_policy::{BudgetUnit, PolicyScope};
use spokeshave_api::{Budget, DisruptionPolicy, DisruptionReason, NillableDuration};
use spokeshave_plan::budget_lint::{Finding, Level, NodeCounts, lint, read};
use spokeshave_plan::calendar::{REASONS, ReasonCalendar, Window, calendar_with};
use spokeshave_plan::disruption_policy::forecast::{Forecast, PoolNodes};
use spokeshave_plan::disruption_policy::lint as lint_policies;

use super::source::Pool;
use crate::plan::schema::Refused;

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
    /// DisruptionPolicies, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) disruption_policies: Vec<PolicyReport>,
}

/// One DisruptionPolicy.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicyReport {
    /// Its name.
    pub(crate) name: String,
    /// NodePools that it selects.
    pub(crate) node_pools: Vec<String>,
    /// Parts of it that no calendar knows, because they follow from what happens.
    pub(crate) not_in_calendar: Vec<String>,
    /// What is wrong.
    pub(crate) findings: Vec<Located>,
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

/// Number of nodes for percentages if it is unknown: one node is one percent.
const NODES_WHEN_UNKNOWN: usize = 100;

impl Report {
    /// Asks about each pool, beside all that are `known`. `nodes` overrides the number of nodes.
    pub(crate) fn new(
        pools: &[Pool],
        policies: &[Arc<DisruptionPolicy>],
        refused: Vec<Refused>,
        known: &[PoolNodes],
        nodes: Option<usize>,
        range: Window,
    ) -> Self {
        let forecast = Forecast::new(policies.iter().map(|policy| &**policy), known, range);
        let mut disruption_policies = policy_reports(policies, known, range.from);
        disruption_policies.extend(refused.into_iter().map(refused_report));
        Report {
            api_version: "plan.spokeshave.dev/v1alpha1",
            kind: "BudgetCalendar",
            from: range.from,
            until: range.until,
            time_zone: "UTC",
            node_pools: pools
                .iter()
                .map(|pool| pool_report(pool, policies, &forecast, known, nodes, range))
                .collect(),
            disruption_policies,
        }
    }

    /// At least one finding of level error.
    pub(crate) fn has_errors(&self) -> bool {
        let of_pools = self.node_pools.iter().flat_map(|pool| &pool.findings);
        let of_policies = self
            .disruption_policies
            .iter()
            .flat_map(|policy| &policy.findings);
        of_pools
            .chain(of_policies)
            .any(|located| located.finding.level == Level::Error)
    }
}

/// NodePools as the calendar of policies sees them.
pub(crate) fn known(pools: &[Pool], nodes: Option<usize>) -> Vec<PoolNodes> {
    let seen = |pool: &Pool| {
        let labels = serde_json::from_value(pool.object["metadata"]["labels"].clone());
        let counted = nodes.or(pool.managed);
        PoolNodes {
            name: pool.name.clone(),
            labels: labels.unwrap_or_default(),
            nodes: counted.unwrap_or(NODES_WHEN_UNKNOWN),
            budgets: read(&pool.object).budgets,
            expire_after: serde_json::from_value(
                pool.object["spec"]["template"]["spec"]["expireAfter"].clone(),
            )
            .unwrap_or_else(|_| NillableDuration::default_expire_after()),
        }
    };
    pools.iter().map(seen).collect()
}

fn policy_reports(
    policies: &[Arc<DisruptionPolicy>],
    known: &[PoolNodes],
    now: Timestamp,
) -> Vec<PolicyReport> {
    let mut findings = lint_policies(policies, known, now);
    let mut reports: Vec<PolicyReport> = Vec::new();
    for policy in policies {
        let (own, rest) = findings
            .into_iter()
            .partition(|found| found.policy == policy.name());
        findings = rest;
        let own: Vec<spokeshave_plan::disruption_policy::PolicyFinding> = own;
        let selected = known
            .iter()
            .filter(|pool| policy.selects(&pool.name, &pool.labels));
        let located = own.into_iter().map(|found| Located {
            object: format!("DisruptionPolicy/{}", policy.name()),
            file: None,
            line: None,
            finding: found.finding,
        });
        reports.push(PolicyReport {
            name: policy.name().to_owned(),
            node_pools: selected.map(|pool| pool.name.clone()).collect(),
            not_in_calendar: beyond_calendar(policy),
            findings: located.collect(),
        });
    }
    reports.sort_by(|left, right| left.name.cmp(&right.name));
    reports
}

/// It selects nothing, and is in no calendar.
fn refused_report(refused: Refused) -> PolicyReport {
    let finding = Finding {
        level: Level::Error,
        code: "policy-refused",
        field: refused.field,
        message: format!(
            "it has no effect anywhere, because the API server would refuse it: {}",
            refused.why
        ),
        suggestion: None,
    };
    PolicyReport {
        findings: vec![Located {
            object: format!("DisruptionPolicy/{}", refused.name),
            file: Some(refused.file),
            line: Some(refused.line),
            finding,
        }],
        name: refused.name,
        node_pools: Vec::new(),
        not_in_calendar: Vec::new(),
    }
}

/// Parts of a policy that follow from what happens.
fn beyond_calendar(policy: &DisruptionPolicy) -> Vec<String> {
    let spec = &policy.spec;
    let mut parts = Vec::new();
    parts.extend(spec.hold.as_ref().map(|_| "hold".to_owned()));
    for (index, budget) in spec.budgets.iter().enumerate() {
        let counts_nodes = matches!(budget.unit, None | Some(BudgetUnit::Nodes));
        let over_nodes = !matches!(budget.scope, Some(PolicyScope::Zone | PolicyScope::Label));
        let is_limit_shown = budget.limit.is_none() || (counts_nodes && over_nodes);
        if budget.per_hour.is_some() || budget.one_at_a_time || !is_limit_shown {
            parts.push(format!("budgets[{index}]"));
        }
    }
    parts.extend(spec.convergence.as_ref().map(|_| "convergence".to_owned()));
    parts.extend(spec.expiry.as_ref().map(|_| "expiry".to_owned()));
    parts.extend(spec.rollout.as_ref().map(|_| "rollout".to_owned()));
    parts.extend(
        spec.circuit_breakers
            .as_ref()
            .map(|_| "circuitBreakers".to_owned()),
    );
    parts
}

fn pool_report(
    pool: &Pool,
    policies: &[Arc<DisruptionPolicy>],
    forecast: &Forecast<'_>,
    known: &[PoolNodes],
    nodes: Option<usize>,
    range: Window,
) -> PoolReport {
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
    let own = known.iter().find(|one| one.name == pool.name);
    let expired = policies.iter().any(|policy| policy.spec.expiry.is_some());
    let expired = expired.then_some(&DisruptionReason::Expired);
    let calendars = REASONS.iter().chain(expired).map(|reason| {
        let further = own.map_or_else(Vec::new, |own| forecast.lanes(own, reason));
        calendar_with(&budgets, further, reason, shown.nodes, range)
    });
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
