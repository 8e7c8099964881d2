//! What a policy says of itself: what is wrong with it, what stands now, and when that changes.

use super::budget::amount;
use super::forecast::NeverOpen;
use super::limits::Limit;
use super::memo::Memo;
use super::rules::Scene;
use super::windows::{Windows, time_zone};
use super::{convergence, expiry, expressions, rollout, rules, workloads};
use crate::budget_lint::Level;
use crate::durations::signed;
use crate::report::some_of;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use spokeshave_api::conditions::{
    Conditioned as _, EXPIRY_IN_TIME, ROLLOUT_HEALTHY, Status, VALIDATION_SUCCEEDED,
};
use spokeshave_api::disruption_policy::{
    ActiveRule, BudgetUnit, ExpiryStatus, HoldTrigger, OutsideWindows, PolicyBudget, PolicyScope,
    RolloutApproval, RolloutOrder, RolloutPhase, RolloutStatus, StatefulSetMoves,
};
use spokeshave_api::{DisruptionPolicy, DisruptionReason, GoDuration, NillableDuration, whole_seconds};
use spokeshave_model::snapshot::{PoolView, Snapshot};
use std::collections::BTreeSet;

/// A policy that lets no node live for so long is hardly meant: all pods of its NodePools are moved as often.
const SHORTEST_AGE: SignedDuration = SignedDuration::from_hours(1);

/// A part of a policy that cannot be evaluated, so that nothing is disrupted for the reasons that it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Path of the field.
    pub field: String,
    /// What was expected, and what to do.
    pub message: String,
    /// Reasons of disruption that it stops; `None` means all.
    pub reasons: Option<Vec<DisruptionReason>>,
}

/// What cannot be evaluated.
pub fn faults(policy: &DisruptionPolicy) -> Vec<Fault> {
    let spec = &policy.spec;
    let mut faults = Vec::new();
    if let Some(why) = &spec.unreadable {
        faults.push(Fault {
            field: "spec".to_owned(),
            message: format!("cannot be read: {why}; correct the value that this names"),
            reasons: None,
        });
    }
    let zone = time_zone(spec.time_zone.as_deref());
    if let Err(message) = &zone {
        faults.push(Fault {
            field: "spec.timeZone".to_owned(),
            message: message.clone(),
            reasons: None,
        });
    }
    if let Some(hold) = &spec.hold {
        let known = hold
            .scope
            .as_ref()
            .is_none_or(|scope| matches!(scope, PolicyScope::Cluster | PolicyScope::NodePool));
        let triggers = hold.triggers.iter().flatten();
        let unknown = triggers.filter(|trigger| matches!(trigger, HoldTrigger::Other(_)));
        let scope = (!known).then(|| ("scope", "write Cluster or NodePool".to_owned()));
        let trigger = unknown.map(|trigger| {
            (
                "triggers",
                format!("{trigger} is not known; write Launch, ScaleDown or FailedLaunch"),
            )
        });
        for (field, message) in scope.into_iter().chain(trigger) {
            faults.push(Fault {
                field: format!("spec.hold.{field}"),
                message,
                reasons: hold.reasons.clone(),
            });
        }
    }
    faults.extend(expiry_fault(policy));
    let sets = spec
        .workloads
        .as_ref()
        .and_then(|rules| rules.stateful_sets.as_ref());
    if let Some(unknown @ StatefulSetMoves::Other(_)) = sets {
        faults.push(Fault {
            field: "spec.workloads.statefulSets".to_owned(),
            message: format!("{unknown} is not known; write Any or OneAtATime"),
            reasons: None,
        });
    }
    faults.extend(rollout_faults(policy));
    let judged = spec.convergence.as_ref();
    if judged.is_some_and(|judged| convergence::restart_cost(judged).is_none()) {
        faults.push(Fault {
            field: "spec.convergence.restartCost".to_owned(),
            message: "is no amount of dollars; write one such as \"0.005\"".to_owned(),
            reasons: Some(vec![DisruptionReason::Empty, DisruptionReason::Underutilized]),
        });
    }
    for (index, budget) in spec.budgets.iter().enumerate() {
        for (field, message) in budget_faults(budget, zone.as_ref().ok()) {
            faults.push(Fault {
                field: format!("spec.budgets[{index}].{field}"),
                message,
                reasons: budget.reasons.clone(),
            });
        }
    }
    let breaker = spec
        .circuit_breakers
        .as_ref()
        .and_then(|all| all.not_ready.as_ref());
    let scope = breaker.and_then(|breaker| breaker.scope.as_ref());
    if scope.is_some_and(|scope| !matches!(scope, PolicyScope::Cluster | PolicyScope::Zone)) {
        faults.push(Fault {
            field: "spec.circuitBreakers.notReady.scope".to_owned(),
            message: "write Cluster or Zone".to_owned(),
            reasons: None,
        });
    }
    faults
}

fn expiry_fault(policy: &DisruptionPolicy) -> Option<Fault> {
    let expiry = policy.spec.expiry.as_ref()?;
    (expiry.soft_after.is_some() == expiry.soft_percent.is_some()).then(|| Fault {
        field: "spec.expiry".to_owned(),
        message: "set one of softAfter and softPercent".to_owned(),
        reasons: Some(vec![DisruptionReason::Expired]),
    })
}

fn rollout_faults(policy: &DisruptionPolicy) -> Vec<Fault> {
    let Some(rollout) = &policy.spec.rollout else {
        return Vec::new();
    };
    let mut said: Vec<(String, String)> = Vec::new();
    for (index, wave) in rollout.waves.iter().enumerate() {
        if amount(wave, 0, 1).is_none() {
            let message = format!("{wave:?} is neither a whole number nor a percentage from 0% to 100%");
            said.push((format!("waves[{index}]"), message));
        }
    }
    for (index, key) in rollout.order.iter().enumerate() {
        if matches!(key, RolloutOrder::Other(_)) {
            let message = format!("{key} is not known; write Zone, Age or Importance");
            said.push((format!("order[{index}]"), message));
        }
    }
    let objects = rollout.health.iter().flat_map(|health| &health.objects);
    for (index, object) in objects.enumerate() {
        if let Err(why) = expressions::check(&object.expression) {
            said.push((format!("health.objects[{index}].expression"), why));
        }
    }
    if let Some(approval @ RolloutApproval::Other(_)) = &rollout.approval {
        let message = format!("{approval} is not known; write Automatic or Manual");
        said.push(("approval".to_owned(), message));
    }
    let faults = said.into_iter().map(|(field, message)| Fault {
        field: format!("spec.rollout.{field}"),
        message,
        reasons: Some(vec![DisruptionReason::Drifted]),
    });
    faults.collect()
}

fn budget_faults(budget: &PolicyBudget, zone: Option<&jiff::tz::TimeZone>) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    let mut say = |field: &str, message: String| faults.push((field.to_owned(), message));
    if let Some(limit) = budget
        .limit
        .as_ref()
        .filter(|limit| amount(limit, 0, 1).is_none())
    {
        let message = format!("{limit:?} is neither a whole number nor a percentage from 0% to 100%");
        say("limit", message);
    }
    if let Some(scope @ PolicyScope::Other(_)) = &budget.scope {
        say(
            "scope",
            format!("{scope} is not known; write Cluster, NodePool, Zone or Label"),
        );
    }
    if let Some(unit @ BudgetUnit::Other(_)) = &budget.unit {
        say("unit", format!("{unit} is not known; write Nodes, CPU or Pods"));
    }
    if let Some(outside @ OutsideWindows::Other(_)) = &budget.outside_windows {
        say(
            "outsideWindows",
            format!("{outside} is not known; write Nothing or Unlimited"),
        );
    }
    let by_label = budget.scope == Some(PolicyScope::Label);
    if by_label != budget.label.is_some() {
        say("label", "is set with scope Label, and only with it".to_owned());
    }
    if budget.one_at_a_time && matches!(budget.scope, None | Some(PolicyScope::Cluster)) {
        say("oneAtATime", "needs scope Zone, NodePool or Label".to_owned());
    }
    if budget.per_hour.is_some() && budget.unit == Some(BudgetUnit::Cpu) {
        say("perHour", "counts Nodes or Pods".to_owned());
    }
    if budget.per_hour.is_some() && by_label {
        let message = "cannot be counted by label, because nodes that are gone have none; use scope Zone, NodePool or Cluster";
        say("perHour", message.to_owned());
    }
    let zone = zone.filter(|_| !budget.windows.is_empty());
    let windows = zone.map(|zone| Windows::read(zone.clone(), &budget.windows, &budget.except_dates));
    if let Some(Err(wrong)) = windows {
        faults.extend(wrong.into_iter().map(|fault| (fault.field, fault.message)));
    }
    faults
}

/// What is not wrong and yet hardly meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) level: Level,
    /// A word for machines.
    pub(super) code: &'static str,
    pub(super) field: String,
    pub(super) message: String,
}

/// What is not wrong and yet hardly meant. `pools` are those that are selected, with the ages at which their nodes expire.
pub(super) fn doubts(
    policy: &DisruptionPolicy,
    pools: &[(&str, &NillableDuration)],
    now: Timestamp,
) -> Vec<Doubt> {
    let spec = &policy.spec;
    let mut doubts = Vec::new();
    let mut say = |level: Level, code: &'static str, field: &str, message: &str| {
        doubts.push(Doubt {
            level,
            code,
            field: field.to_owned(),
            message: message.to_owned(),
        });
    };
    if pools.is_empty() {
        say(
            Level::Warning,
            "selects-nothing",
            "spec.nodePools",
            "selects no NodePool",
        );
    }
    if let Some(freeze) = &spec.freeze {
        match &freeze.until {
            None => say(
                Level::Warning,
                "freeze-without-end",
                "spec.freeze",
                "has no end: set until, or take it away yourself",
            ),
            Some(until) if until.0 <= now => say(Level::Note, "freeze-over", "spec.freeze", "is over"),
            Some(_) => {}
        }
    }
    for (index, budget) in spec
        .budgets
        .iter()
        .enumerate()
        .filter(|(_, budget)| !budget.windows.is_empty())
    {
        let windows = time_zone(spec.time_zone.as_deref())
            .ok()
            .and_then(|zone| Windows::read(zone, &budget.windows, &budget.except_dates).ok());
        if windows.is_some_and(|windows| !windows.ever_opens(now)) {
            say(
                Level::Error,
                "window-never-opens",
                &format!("spec.budgets[{index}]"),
                "none of its windows opens within 400 days",
            );
        }
    }
    doubts.extend(
        pools
            .iter()
            .filter_map(|(name, age)| soft_age_doubt(policy, name, age)),
    );
    doubts.extend(short_age_doubt(policy, pools));
    doubts
}

/// A soft age that `expireAfter` always comes before, or a share of an age that there is not.
fn soft_age_doubt(policy: &DisruptionPolicy, pool: &str, hard: &NillableDuration) -> Option<Doubt> {
    let expiry = policy.spec.expiry.as_ref()?;
    let (field, message) = match (&expiry.soft_after, hard.duration()) {
        (Some(soft), Some(hard)) if soft.to_std().is_some_and(|soft| soft >= hard) => (
            "spec.expiry.softAfter",
            format!(
                "does nothing for NodePool {pool}: {soft} is not below its expireAfter of {}; write a smaller one, or use softPercent",
                GoDuration::from(hard)
            ),
        ),
        (None, None) if expiry.soft_percent.is_some() => (
            "spec.expiry.softPercent",
            format!("does nothing for NodePool {pool}: its expireAfter is Never; use softAfter"),
        ),
        _ => return None,
    };
    Some(Doubt {
        level: Level::Warning,
        code: "soft-age-without-effect",
        field: field.to_owned(),
        message,
    })
}

/// A soft age that nodes reach soon after their launch: nothing is forbidden by it, and disruption without end is what it asks for.
fn short_age_doubt(policy: &DisruptionPolicy, pools: &[(&str, &NillableDuration)]) -> Option<Doubt> {
    let wanted = policy.spec.expiry.as_ref()?;
    let short = pools.iter().filter_map(|(name, hard)| {
        let hard = hard.duration().map(signed);
        // Where nodes expire as soon as that, it is not the policy that makes them.
        if hard.is_some_and(|hard| hard < SHORTEST_AGE) {
            return None;
        }
        let (soft, spread) = expiry::ages(wanted, hard)?;
        let last = soft.saturating_add(spread);
        (last < SHORTEST_AGE).then_some((last, *name))
    });
    let (ages, names): (Vec<SignedDuration>, Vec<&str>) = short.unzip();
    let all_within = GoDuration::from(ages.into_iter().max()?.unsigned_abs());
    let of_pools = match names.as_slice() {
        [one] => format!("NodePool {one}"),
        several => format!("NodePools {}", some_of(several, 3)),
    };
    let field = match wanted.soft_after {
        Some(_) => "spec.expiry.softAfter",
        None => "spec.expiry.softPercent",
    };
    Some(Doubt {
        level: Level::Warning,
        code: "soft-age-too-short",
        field: field.to_owned(),
        message: format!(
            "makes every node of {of_pools} due for replacement within {all_within} of its launch, again and again, as fast as budgets allow; write a longer age"
        ),
    })
}

/// What the status of a policy would say where nobody writes it, and nobody has looked at other objects: what stands goes by the roll-outs as they are written,
/// as decisions do.
pub fn status(
    policy: &DisruptionPolicy,
    snapshot: &Snapshot,
    conflicts: &[NeverOpen],
    now: Timestamp,
) -> DisruptionPolicy {
    looked_at(policy, snapshot, conflicts, None, RolloutsBy::Written, now)
}

/// The policy with the status that it should have. `waits_for` is what an object of its roll-outs' health has to say and does not; empty when all do. `conflicts` are those of all policies ([`never_open`](super::forecast::never_open)), which
/// change only with specs.
pub fn status_with(
    policy: &DisruptionPolicy,
    snapshot: &Snapshot,
    conflicts: &[NeverOpen],
    waits_for: Option<&str>,
    now: Timestamp,
) -> DisruptionPolicy {
    looked_at(policy, snapshot, conflicts, waits_for, RolloutsBy::Look, now)
}

/// Which roll-outs decide what stands now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RolloutsBy {
    /// Those that the policy came with.
    Written,
    /// Those of the same look, so that one status says one thing.
    Look,
}

fn looked_at(
    policy: &DisruptionPolicy,
    snapshot: &Snapshot,
    conflicts: &[NeverOpen],
    waits_for: Option<&str>,
    rollouts_by: RolloutsBy,
    now: Timestamp,
) -> DisruptionPolicy {
    let mut after = policy.clone();
    after.initialize_conditions(now);
    let faults = faults(policy);
    let said: Vec<String> = faults
        .iter()
        .map(|fault| format!("{}: {}", fault.field, fault.message))
        .collect();
    if said.is_empty() {
        after.set_true(VALIDATION_SUCCEEDED, now);
    } else {
        after.set(
            VALIDATION_SUCCEEDED,
            Status::False,
            "Invalid",
            &said.join("; "),
            now,
        );
    }
    let selected: Vec<&PoolView> = snapshot
        .pools
        .iter()
        .filter(|pool| rules::selects(policy, pool))
        .collect();
    let mut pools: Vec<String> = selected.iter().map(|pool| pool.name.clone()).collect();
    pools.sort_unstable();
    let own = BTreeSet::new();
    let memo = Memo::new(snapshot, now, &own);
    let scene = Scene::new(snapshot, policy, &memo);
    // While a policy cannot be read nobody knows whether it has roll-outs and holds: what its status remembers, a halt for example, is needed afterwards.
    let is_readable = policy.spec.unreadable.is_none();
    if is_readable {
        let rollouts = rollout::advance(policy, snapshot, waits_for, now);
        tell_health(&mut after, &rollouts, now);
        after.status.get_or_insert_default().rollouts = rollouts;
    }
    let waves = expiry::forecast(policy, snapshot, now);
    tell_expiry(&mut after, &waves, now);
    let active = match rollouts_by {
        RolloutsBy::Written => active(policy, snapshot, &memo),
        RolloutsBy::Look => active(&after, snapshot, &memo),
    };
    if is_readable {
        after.status.get_or_insert_default().holds = rules::holds(&scene);
    }
    let ends = active
        .iter()
        .filter_map(|rule| rule.until.as_ref().map(|until| until.0));
    let soaks = rollout::soak_ends(&after);
    let next = ends.chain(soaks).filter(|end| *end > now).min();
    let mut summary: Vec<String> = active.iter().map(|rule| rule.message.clone()).collect();
    if summary.is_empty() {
        summary.push("stops nothing now".to_owned());
    }
    summary.extend(waves.iter().filter_map(|wave| {
        let late = expiry::late_text(wave)?;
        Some(format!("NodePool {}: {late}", wave.node_pool))
    }));
    let asked = workloads::status(&scene);
    if let Some(asked) = asked.as_ref().filter(|asked| asked.resting_pods > 0) {
        summary.push(format!(
            "{} of workloads rest and keep {}",
            crate::report::count(usize::try_from(asked.resting_pods).unwrap_or(0), "pod"),
            crate::report::count(usize::try_from(asked.resting_nodes).unwrap_or(0), "node")
        ));
    }
    summary.extend(asked.iter().flat_map(|asked| asked.faults.first().cloned()));
    let ages: Vec<(&str, &NillableDuration)> = selected
        .iter()
        .map(|pool| (pool.name.as_str(), &pool.object.spec.template.spec.expire_after))
        .collect();
    let doubts = doubts(policy, &ages, now);
    summary.extend(
        doubts
            .iter()
            .map(|doubt| format!("{} {}", doubt.field, doubt.message)),
    );
    let is_own = |conflict: &&NeverOpen| conflict.rules.iter().any(|rule| rule.policy == policy.name());
    summary.extend(conflicts.iter().filter(is_own).map(NeverOpen::text));
    let status = after.status.get_or_insert_default();
    // What could not be read is taken away, or written anew.
    status.extra.retain(|_, value| !value.is_null());
    status.summary = Some(summary.join("; "));
    status.active = active;
    status.next_change = next.map(|at| Time(whole_seconds(at)));
    status.node_pools = pools;
    status.expiry = waves;
    status.workloads = asked;
    after
}

/// A length of time for people, rounded up to minutes.
pub(super) fn minutes(length: SignedDuration) -> String {
    let minutes = (length.as_secs().max(0) + 59) / 60;
    crate::report::count(usize::try_from(minutes).unwrap_or(usize::MAX), "minute")
}

/// One condition that says what a halted roll-out has seen; only there while a policy has roll-outs.
fn tell_health(after: &mut DisruptionPolicy, rollouts: &[RolloutStatus], now: Timestamp) {
    let halted: Vec<String> = rollouts
        .iter()
        .filter(|one| one.phase == RolloutPhase::Halted)
        .map(|one| {
            format!(
                "NodePool {}: {}",
                one.node_pool,
                one.message.as_deref().unwrap_or_default()
            )
        })
        .collect();
    if after.spec.rollout.is_none() {
        after.clear(ROLLOUT_HEALTHY);
    } else if halted.is_empty() {
        after.set_true(ROLLOUT_HEALTHY, now);
    } else {
        let text = halted.join("; ");
        after.set(ROLLOUT_HEALTHY, Status::False, "Halted", &text, now);
    }
}

/// One condition that says what will not go in time; only there while a policy has a soft age.
fn tell_expiry(after: &mut DisruptionPolicy, waves: &[ExpiryStatus], now: Timestamp) {
    let late: Vec<String> = waves
        .iter()
        .filter_map(|wave| {
            let late = expiry::late_text(wave)?;
            Some(format!("NodePool {}: {late}", wave.node_pool))
        })
        .collect();
    if after.spec.expiry.is_none() {
        after.clear(EXPIRY_IN_TIME);
    } else if late.is_empty() {
        after.set_true(EXPIRY_IN_TIME, now);
    } else {
        after.set(EXPIRY_IN_TIME, Status::False, "TooSlow", &late.join("; "), now);
    }
}

/// What stops disruption now, with all reasons that it stops.
fn active(policy: &DisruptionPolicy, snapshot: &Snapshot, memo: &Memo<'_>) -> Vec<ActiveRule> {
    let reasons = [
        DisruptionReason::Empty,
        DisruptionReason::Drifted,
        DisruptionReason::Underutilized,
    ];
    let expired = expiry::is_wanted(snapshot).then_some(DisruptionReason::Expired);
    let mut active: Vec<ActiveRule> = Vec::new();
    for reason in reasons.into_iter().chain(expired) {
        let mut limits: Vec<Limit> = Vec::new();
        rules::of_policy(snapshot, policy, &reason, memo, &mut limits);
        for rule in limits
            .iter()
            .filter(|limit| limit.is_shut())
            .map(|limit| &limit.rule)
        {
            let time = |at: Option<Timestamp>| at.map(|at| Time(whole_seconds(at)));
            let known = active.iter_mut().find(|known| {
                known.field == rule.field && known.domain == rule.domain && known.message == rule.message
            });
            match known {
                Some(known) => known.reasons.push(reason.clone()),
                None => active.push(ActiveRule {
                    field: rule.field.clone(),
                    domain: rule.domain.clone(),
                    reasons: vec![reason.clone()],
                    message: rule.message.clone(),
                    since: time(rule.since),
                    until: time(rule.until),
                }),
            }
        }
    }
    active
}
