//! The story of a NodePool: whether it can launch, what is left of its limits, what its budgets allow now and next.

use spokeshave_api::conditions::{
    Conditioned as _, DRIFTED, NODE_CLASS_READY, NODE_REGISTRATION_HEALTHY, READY,
};
use spokeshave_api::{Condition, DisruptionReason, NodePool};
use spokeshave_model::Price;
use spokeshave_model::snapshot::{InstanceTypesProblem, NodeView, PoolId};

use super::facts::{dollars, short_amount};
use super::{Facts, Story, Wait, age, count, whole};
use crate::doctor::is_unjudged;
use crate::durations::short;
use crate::expired::Expired;
use crate::limits::{Limit, Limits, Stops};
use crate::prices::{cost, known_sum};
use crate::replicas::{TooFew, no_instance_type, nodes_of, not_launchable};
use crate::stops::stops;
use spokeshave_plan::budget_lint::{Level, NodeCounts, lint};
use spokeshave_plan::calendar::REASONS;
use spokeshave_plan::disruption_policy::expiry;
use spokeshave_plan::report::some_of;
use spokeshave_plan::standing::{KNOWN_ELSEWHERE, eligible, not_supported};

/// The story of a NodePool.
pub fn node_pool(facts: &Facts<'_>, id: PoolId) -> Story {
    let pool = facts.snapshot.pool(id);
    let mut story = Story::new("NodePool", &pool.name);
    let nodes: Vec<&NodeView> = facts
        .snapshot
        .nodes
        .iter()
        .filter(|node| node.pool == Some(id))
        .collect();
    readiness(facts, id, &mut story);
    fleet(facts, &nodes, &mut story);
    let full = limits(facts, id, &mut story);
    let disruption = &pool.object.spec.disruption;
    story.fact(
        "consolidation",
        format!(
            "{}, consolidateAfter {}",
            disruption.consolidation_policy,
            short(&disruption.consolidate_after)
        ),
    );
    budgets(facts, id, &mut story);
    stopped(facts, id, &mut story);
    waves(facts, id, &mut story);
    findings(facts, id, &mut story);
    story.summary = summary(facts, id, full);
    let class = pool.object.node_class_ref();
    if pool
        .object
        .condition(NODE_CLASS_READY)
        .is_some_and(|condition| is_waited_for(&pool.object, condition))
    {
        // Its own conditions have the words.
        let hint = format!("kubectl describe {} {}", class.kind.to_lowercase(), class.name);
        story.hints.push(hint);
    }
    story.hints.push(format!("spokeshave budgets {}", pool.name));
    story.sorted()
}

/// Whether a NodePool waits for a condition of its own. One that is not set yet does not make it unready; how registrations go is not known before there were any, and
/// never makes it unready.
fn is_waited_for(pool: &NodePool, condition: &Condition) -> bool {
    if condition.type_ == NODE_REGISTRATION_HEALTHY {
        return condition.status == "False";
    }
    let is_unset = condition.status == "Unknown" && condition.reason == "AwaitingReconciliation";
    condition.status != "True" && !(is_unset && pool.is_true(READY))
}

fn readiness(facts: &Facts<'_>, id: PoolId, story: &mut Story) {
    let pool = facts.snapshot.pool(id);
    let class = pool.object.node_class_ref();
    story.fact("nodeclass", format!("{} {}", class.kind, class.name));
    if pool.weight != 0 {
        story.fact("weight", pool.weight.to_string());
    }
    if let Some(replicas) = pool.object.spec.replicas {
        story.fact(
            "replicas",
            format!("{replicas}: a static pool, launched without pods asking"),
        );
    }
    let mut missing = facts.replicas.missing.iter();
    if let Some(missing) = missing.find(|one| one.node_pool == pool.name) {
        story.fact("missing", lacking(facts, &pool.object, missing));
    }
    let mut excess = facts.replicas.excess.iter();
    if let Some(excess) = excess.find(|one| one.node_pool == pool.name) {
        let nodes = excess.nodes(facts.snapshot).into_iter();
        let names: Vec<String> = nodes.map(|(name, _)| name).collect();
        story.fact(
            "too many",
            format!(
                "{}, deleted without a command in this order: {}",
                count(names.len(), "node"),
                some_of(&names, 5)
            ),
        );
    }
    let expired = Expired::of(facts.state, facts.now);
    let mut of_pools = expired.by_pool().into_iter();
    if let Some((_, claims)) = of_pools.find(|(name, _)| *name == Some(pool.name.as_str())) {
        let nodes = nodes_of(claims, facts.snapshot).into_iter();
        let names: Vec<String> = nodes.map(|(name, _)| name).collect();
        story.fact(
            "expired",
            format!(
                "{}, deleted at once whatever budgets and do-not-disrupt say: {}",
                count(names.len(), "node"),
                some_of(&names, 5)
            ),
        );
    }
    let conditions = pool
        .object
        .status
        .as_ref()
        .map(|status| status.conditions.as_slice());
    for condition in conditions.unwrap_or_default() {
        if condition.type_ != READY && is_waited_for(&pool.object, condition) {
            story.waits.push(Wait {
                object: format!("condition {}", condition.type_),
                message: match condition.message.as_str() {
                    "" => format!("is {}: {}", condition.status, condition.reason),
                    message => format!("is {}: {message}", condition.status),
                },
                since: Some(whole(condition.last_transition_time)),
            });
        }
    }
    if is_unjudged(&pool.object) {
        story.fact("state", "not judged by an operator yet; taken as Ready");
    } else if let Some(condition) = pool.object.condition(READY) {
        let since = age(condition.last_transition_time, facts.now);
        let ready = if condition.status == "True" {
            "Ready"
        } else {
            "not Ready"
        };
        story.fact("state", format!("{ready} for {since}"));
    }
    match &pool.instance_types_problem {
        None => {
            let fitting = eligible(facts.snapshot, pool);
            story.fact(
                "instance types",
                format!(
                    "{} of {} meet its requirements",
                    fitting.len(),
                    pool.instance_types.len()
                ),
            );
        }
        Some(InstanceTypesProblem::Unevaluated) => story.fact("instance types", "not known yet"),
        Some(InstanceTypesProblem::Failed(why)) => story.fact("instance types", format!("none: {why}")),
        Some(InstanceTypesProblem::KnownElsewhere) => {
            story.fact("instance types", format!("none: {KNOWN_ELSEWHERE}"));
        }
    }
}

/// What comes of the nodes that it lacks of a fixed number. Why nothing can be launched from it at all, its headline says, or what it waits for.
fn lacking(facts: &Facts<'_>, pool: &NodePool, missing: &TooFew) -> String {
    let all = count(missing.missing, "node");
    let launches = missing.launches(facts.snapshot);
    match launches.why_not_all {
        Some(_) if launches.takes_no_part => format!("{all}, and none is launched"),
        Some(why) if launches.nodes == 0 => format!("{all}, and none is launched: {why}"),
        Some(why) => {
            let is = if launches.nodes == 1 { "is" } else { "are" };
            format!("{all}, of which {} {is} launched at once: {why}", launches.nodes)
        }
        None if is_unjudged(pool) => format!("{all}, launched once an operator judges it"),
        None => format!("{all}, launched at once"),
    }
}

fn fleet(facts: &Facts<'_>, nodes: &[&NodeView], story: &mut Story) {
    let known = nodes.iter().filter_map(|node| cost(facts.snapshot, node).ok());
    let price: Price = known.map(|(price, _)| price).sum();
    let is_paid = |node: &&&NodeView| node.is_managed() && !node.is_stand_in();
    let paid = nodes.iter().filter(is_paid);
    let without_price = paid.filter(|node| cost(facts.snapshot, node).is_err()).count();
    let is_known = price > Price::ZERO || without_price == 0;
    story.price_per_hour = is_known.then(|| price.dollars());
    let number = |test: &dyn Fn(&NodeView) -> bool| nodes.iter().filter(|node| test(node)).count();
    let drifted = number(&|node| {
        let claim = node.claim.as_ref();
        claim.is_some_and(|claim| claim.is_true(DRIFTED))
    });
    let parts = [
        (
            number(&|node| !node.initialized && !node.marked_for_deletion),
            "starting",
        ),
        (
            number(&|node| node.initialized && !node.ready && !node.marked_for_deletion),
            "not Ready",
        ),
        (number(&|node| node.marked_for_deletion), "on their way out"),
        (drifted, "drifted"),
        (number(&|node| node.consolidatable), "consolidatable"),
    ];
    let price = known_sum(price, without_price, dollars);
    let mut text = format!("{}, {price}", count(nodes.len(), "node"));
    for (number, what) in parts {
        if number > 0 {
            text.push_str(&format!(", {number} {what}"));
        }
    }
    story.fact("nodes", text);
}

/// What is left of its limits; the headline where that is too little for any node.
fn limits(facts: &Facts<'_>, id: PoolId, story: &mut Story) -> Option<String> {
    let limits = Limits::of(facts.snapshot, facts.snapshot.pool(id));
    if limits.each.is_empty() {
        story.fact("limits", "none");
        return None;
    }
    let line = |limit: &Limit<'_>| {
        let percent = if limit.amount > 0 {
            i128::from(limit.used) * 100 / i128::from(limit.amount)
        } else {
            100
        };
        format!(
            "{} {} of {} ({percent}%)",
            limit.resource,
            short_amount(limit.resource, limit.used),
            short_amount(limit.resource, limit.amount)
        )
    };
    let lines: Vec<String> = limits.each.iter().map(line).collect();
    story.fact("limits", lines.join(", "));
    let having = limits.each.iter().filter(|limit| limit.stops == Stops::Having);
    let having: Vec<&str> = having.map(|limit| limit.resource).collect();
    if !having.is_empty() {
        let what = format!(
            "instance types with {}, of which its limits leave too little",
            having.join(" or ")
        );
        story.fact("not launched", what);
    }
    let stopping = limits.each.iter().filter(|limit| limit.stops == Stops::All);
    story.waits.extend(stopping.map(limit_wait));
    if limits.stop_together {
        story.waits.push(Wait {
            object: "limits".to_owned(),
            message:
                "together they leave less than any of its instance types has: no further node is launched"
                    .to_owned(),
            since: None,
        });
    }
    match limits.stopping() {
        Some(limit) if limit.is_used_up() => Some(format!(
            "is at its limit {}: no further node is launched",
            limit.resource
        )),
        Some(limit) => Some(cannot(&format!(
            "its limit {} leaves less than any of its instance types has",
            limit.resource
        ))),
        None => limits
            .stop_together
            .then(|| cannot("its limits together leave less than any of its instance types has")),
    }
}

/// A limit that no instance type fits in.
fn limit_wait(limit: &Limit<'_>) -> Wait {
    let amount = |value| short_amount(limit.resource, value);
    let why = match limit.least {
        _ if limit.is_used_up() => format!("all of {} is in use", amount(limit.amount)),
        Some(least) => format!(
            "{} of {} is left, and its smallest instance type has {}",
            amount(limit.left()),
            amount(limit.amount),
            amount(least)
        ),
        None => format!("{} of {} is left", amount(limit.left()), amount(limit.amount)),
    };
    Wait {
        object: format!("limit {}", limit.resource),
        message: format!("{why}: no further node is launched"),
        since: None,
    }
}

fn budgets(facts: &Facts<'_>, id: PoolId, story: &mut Story) {
    story.fact("budgets now", facts.budget_summary(id, &REASONS, "at once"));
    facts.openings(id, &REASONS, story);
}

/// What DisruptionPolicies stop, such as a freeze.
fn stopped(facts: &Facts<'_>, id: PoolId, story: &mut Story) {
    let name = &facts.snapshot.pool(id).name;
    for stop in stops(facts.snapshot, facts.now) {
        if stop.node_pools.contains(name) {
            story.fact("stopped", stop.text());
        }
    }
}

/// The coming waves of nodes that are old enough for a DisruptionPolicy.
fn waves(facts: &Facts<'_>, id: PoolId, story: &mut Story) {
    let name = &facts.snapshot.pool(id).name;
    for policy in &facts.snapshot.disruption_policies {
        let waves = expiry::forecast(policy, facts.snapshot, facts.now);
        for wave in waves.iter().filter(|wave| wave.node_pool == *name) {
            story.fact(
                "expiry",
                format!("DisruptionPolicy {}: {}", policy.name(), expiry::text(wave)),
            );
        }
    }
}

/// The worst that the linter of budgets has to say.
fn findings(facts: &Facts<'_>, id: PoolId, story: &mut Story) {
    let Ok(object) = serde_json::to_value(&*facts.snapshot.pool(id).object) else {
        return;
    };
    let counts = facts
        .budget(id, &DisruptionReason::Empty)
        .map(|budget| NodeCounts {
            nodes: budget.nodes,
            disrupting: budget.disrupting,
        });
    for finding in lint(&object, counts, facts.now) {
        if finding.level == Level::Error {
            story.waits.push(Wait {
                object: finding.field,
                message: finding.message,
                since: None,
            });
        }
    }
}

/// `full` is what its limits have to say, where they let nothing be launched.
fn summary(facts: &Facts<'_>, id: PoolId, full: Option<String>) -> String {
    let pool = facts.snapshot.pool(id);
    if pool.deleting {
        return "is being deleted, and its nodes with it".to_owned();
    }
    if !pool.supported {
        return cannot(&not_supported(pool));
    }
    if !pool.ready {
        return "is not Ready: no node is launched from it".to_owned();
    }
    if let Some(full) = full {
        return full;
    }
    let no_type = no_instance_type(facts.snapshot, pool, facts.policy.min_values);
    let said = || not_launchable(facts.snapshot, pool).map(|said| said.message.clone());
    match no_type.or_else(said) {
        Some(why) => cannot(&why),
        None if is_unjudged(&pool.object) => {
            "no operator has judged it yet: nothing is launched from it until one does".to_owned()
        }
        None if pool.instance_types_problem == Some(InstanceTypesProblem::KnownElsewhere) => {
            "can launch nodes, of instance types that only its operator knows".to_owned()
        }
        None => "can launch nodes".to_owned(),
    }
}

/// `it has …` as the rest of a headline.
fn cannot(why: &str) -> String {
    format!("cannot launch nodes: {why}")
}
