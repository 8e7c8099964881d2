//! Disruption as the format says it: decides with the controllers' own function and renames nothing.

use std::collections::BTreeSet;

use jiff::Timestamp;
use spokeshave_model::snapshot::{NodeId, Snapshot};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::{
    BudgetMapping, Command, Decision, Frontier, Method, Outcome, Verdict, disrupt,
};
use spokeshave_story::stops::{Stop, stops};
use spokeshave_story::{prices, verdict};

use super::format::{
    BlockerView, BudgetView, CommandView, Disruption, Dollars, IfRemoved, KnownNames, NodeClaimPlan,
    StopView, VerdictView,
};

/// Decides what would be disrupted now. The nodes that the same plan has just nominated go in no command; their verdicts are about the node as it is
/// in the dump.
pub(crate) fn decide(
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
    nominated: &BTreeSet<NodeId>,
) -> Outcome {
    let mut outcome = disrupt(snapshot, policy, now, &Frontier::default());
    outcome.verdicts = verdict::all_told(snapshot, policy, outcome.verdicts, nominated);
    outcome
}

impl Disruption {
    pub(crate) fn of(snapshot: &Snapshot, outcome: &Outcome, verdicts: bool, now: Timestamp) -> Self {
        let budgets = outcome.budgets.iter();
        let unpriced = prices::unpriced(snapshot);
        Self {
            commands: outcome
                .commands
                .iter()
                .map(|command| command_view(snapshot, &unpriced, command))
                .collect(),
            later: Vec::new(),
            is_cut: false,
            expired: Vec::new(),
            scale_down: Vec::new(),
            verdicts: verdicts.then(|| {
                let verdicts = outcome.verdicts.iter();
                verdicts.map(|verdict| verdict_view(snapshot, verdict)).collect()
            }),
            budgets: budgets
                .flat_map(|mapping| budget_views(snapshot, mapping))
                .collect(),
            stops: stops(snapshot, now).into_iter().map(stop_view).collect(),
        }
    }
}

/// `unpriced` are the nodes of the Snapshot of which nobody knows what they cost.
pub(super) fn command_view(snapshot: &Snapshot, unpriced: &BTreeSet<&str>, command: &Command) -> CommandView {
    let uids = command.nodes.iter().map(|node| node.node_claim_uid.as_str());
    let mut known = KnownNames::default();
    CommandView {
        id: id(command.method, uids),
        method: command.method.as_str(),
        reason: command.method.reason().to_string(),
        decision: command.decision().as_str(),
        nodes: command.nodes.iter().map(|node| node.node.clone()).collect(),
        replacements: command
            .replacements
            .iter()
            .map(|replacement| NodeClaimPlan::of(snapshot, &replacement.claim, &mut known))
            .collect(),
        price_before: Dollars(prices::price_before(snapshot, command)),
        price_after: Dollars(command.price_after),
        price_unknown: command
            .nodes
            .iter()
            .any(|node| unpriced.contains(node.provider_id.as_str())),
        is_by_on_demand: prices::is_by_on_demand(snapshot, command),
        evictions: command.evictions(),
    }
}

fn verdict_view(snapshot: &Snapshot, verdict: &Verdict) -> VerdictView {
    VerdictView {
        node: snapshot.node(verdict.node).name.clone(),
        decision: verdict.decision_text(),
        method: verdict.method.map(Method::as_str),
        price_before: Dollars(verdict.price_before),
        price_after: Dollars(verdict.price_after),
        price_unknown: verdict.price_unknown,
        is_by_on_demand: verdict.by_on_demand && verdict.decision == Decision::Replace,
        replacement: verdict.replacement.clone(),
        blockers: verdict
            .blockers
            .iter()
            .map(|blocker| BlockerView {
                kind: blocker.kind.to_string(),
                object: blocker.object.to_string(),
                message: blocker.message.clone(),
            })
            .collect(),
        waits: verdict.waits.clone(),
        if_removed: verdict.if_removed.as_ref().map(|then| IfRemoved {
            decision: then.decision.as_str(),
            method: then.method.as_str(),
            price_after: Dollars(then.price_after),
            message: verdict.if_removed_text(),
        }),
    }
}

fn budget_views(snapshot: &Snapshot, mapping: &BudgetMapping) -> Vec<BudgetView> {
    let view = |(pool, budget): (
        &spokeshave_model::snapshot::PoolId,
        &spokeshave_plan::disrupt::PoolBudget,
    )| BudgetView {
        node_pool: snapshot.pool(*pool).name.clone(),
        reason: mapping.reason.to_string(),
        nodes: budget.nodes,
        disrupting: budget.disrupting,
        allowed: (budget.allowed < spokeshave_api::UNLIMITED).then_some(budget.allowed),
        remaining: (budget.allowed < spokeshave_api::UNLIMITED).then_some(budget.remaining),
        error: budget.error.as_ref().map(ToString::to_string),
    };
    mapping.pools.iter().map(view).collect()
}

fn stop_view(stop: Stop) -> StopView {
    StopView {
        message: stop.text(),
        policy: stop.policy,
        node_pools: stop.node_pools,
        reasons: stop.rule.reasons.iter().map(ToString::to_string).collect(),
        until: stop.rule.until.map(|until| until.0),
        field: stop.rule.field,
    }
}

/// Names a command by what it does: the same for the same nodes, in every run.
fn id<'a>(method: Method, nodes: impl Iterator<Item = &'a str>) -> String {
    // FNV-1a: short and stable; not for security.
    let parts = std::iter::once(method.as_str()).chain(nodes);
    let bytes = parts.flat_map(|part| part.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{:08x}", hash >> 32)
}
