//! Circuit breakers: what stops all voluntary action by itself while the cluster, or what is around it, is in distress; and what would thaw it.

use super::hold;
use super::limits::{Left, Limit};
use super::rules::{Scene, rule};
use jiff::{SignedDuration, Timestamp};
use spokeshave_api::conditions::{Conditioned as _, VALIDATION_SUCCEEDED};
use spokeshave_api::disruption_policy::{
    CircuitBreakers, FailedLaunchesBreaker, FailuresBreaker, NotReadyBreaker, PolicyScope, PricesBreaker,
};
use spokeshave_model::PriceFeed;
use std::collections::BTreeMap;

/// Adds the breakers that have tripped.
pub(super) fn add(scene: &Scene<'_>, breakers: &CircuitBreakers, limits: &mut Vec<Limit>) {
    let distress = &scene.snapshot.distress;
    let failures = |breaker: Option<&FailuresBreaker>, field: &str, times: &[Timestamp], what: &str| {
        let breaker = breaker?;
        let text = |count: usize| {
            format!(
                "{} {what} within {}",
                crate::report::count(count, "call"),
                breaker.within
            )
        };
        let field = format!("spec.circuitBreakers.{field}");
        let within = breaker.within.to_signed();
        let counted = tripped(times, breaker.count, within, scene.now);
        let known = known(scene, &field, within);
        let message = match (&counted, &known) {
            (Some((count, _)), _) => text(*count),
            (None, known) => known.as_ref()?.0.clone(),
        };
        let mut stands = rule(scene, &field, &message, scene.all());
        let ends = [counted.map(|(_, until)| until), known.map(|(_, until)| until)];
        stands.until = ends.into_iter().flatten().max();
        Some(shut(stands))
    };
    let not_ready = breakers.not_ready.as_ref();
    let failed = breakers.failed_launches.as_ref();
    limits.extend(not_ready.and_then(|breaker| not_ready_breaker(scene, breaker)));
    limits.extend(failed.and_then(|breaker| failed_launches_breaker(scene, breaker)));
    let cloud = "of the cloud failed";
    limits.extend(failures(breakers.cloud.as_ref(), "cloud", &distress.cloud, cloud));
    let server = "of the API server failed";
    limits.extend(failures(
        breakers.api_server.as_ref(),
        "apiServer",
        &distress.api_server,
        server,
    ));
    let prices = breakers.prices.as_ref();
    limits.extend(prices.and_then(|breaker| prices_breaker(scene, breaker)));
}

/// What the status says of a breaker that has tripped, and until when it stands: the failures that tripped it may have been counted by an operator that is
/// gone. A status of another generation says nothing, so that whoever raises the count is heard at once.
fn known(scene: &Scene<'_>, field: &str, within: SignedDuration) -> Option<(String, Timestamp)> {
    let policy = scene.policy;
    let judged = policy.condition(VALIDATION_SUCCEEDED)?.observed_generation;
    let mut active = policy.status.as_ref()?.active.iter();
    let entry = active.find(|entry| entry.field == field && judged == policy.metadata.generation)?;
    // By a clock that was set back it stands no longer than failures of this moment would keep it.
    let latest = scene.now.saturating_add(within).unwrap_or(Timestamp::MAX);
    let until = entry.until.as_ref()?.0.min(latest);
    (until > scene.now).then(|| (entry.message.clone(), until))
}

fn shut(rule: super::Rule) -> Limit {
    Limit {
        rule: rule.into(),
        left: Left::Nothing,
    }
}

/// How many of the times count, and until when, where they are enough. Times to come, by a clock that was set back since, count.
fn tripped(
    times: &[Timestamp],
    count: i64,
    within: SignedDuration,
    now: Timestamp,
) -> Option<(usize, Timestamp)> {
    let mut recent: Vec<Timestamp> = times
        .iter()
        .copied()
        .filter(|at| now.duration_since(*at) < within)
        .collect();
    recent.sort_unstable();
    let needed = usize::try_from(count).unwrap_or(usize::MAX).max(1);
    // The first whose fading leaves too few.
    let last_needed = recent.len().checked_sub(needed)?;
    let until = recent[last_needed].saturating_add(within);
    Some((recent.len(), until.unwrap_or(Timestamp::MAX)))
}

/// Prices are too old. Nobody knows when they will be read again.
fn prices_breaker(scene: &Scene<'_>, breaker: &PricesBreaker) -> Option<Limit> {
    let PriceFeed::Since(read) = scene.snapshot.distress.prices else {
        return None;
    };
    let age = scene.now.duration_since(read);
    (age >= breaker.older_than.to_signed()).then(|| {
        let message = format!(
            "prices are {} minutes old, {} or more; ends when they are read again",
            age.as_mins(),
            breaker.older_than
        );
        shut(rule(scene, "spec.circuitBreakers.prices", &message, scene.all()))
    })
}

/// Too large a share of initialised nodes is not Ready, of the policy's NodePools or not.
fn not_ready_breaker(scene: &Scene<'_>, breaker: &NotReadyBreaker) -> Option<Limit> {
    let by_zone = breaker.scope == Some(PolicyScope::Zone);
    let zones = scene.memo.zones();
    let mut by_domain = vec![(0, 0); if by_zone { zones.names.len() } else { 1 }];
    for id in scene.snapshot.node_ids() {
        let node = scene.snapshot.node(id);
        if !node.is_managed() || !node.initialized {
            continue;
        }
        let domain = if by_zone { zones.domain(id) as usize } else { 0 };
        let (all, lost) = &mut by_domain[domain];
        *all += 1;
        *lost += i64::from(!node.ready);
    }
    let name = |domain: usize| {
        zones
            .names
            .get(domain)
            .filter(|_| by_zone)
            .map_or("", String::as_str)
    };
    let counts: BTreeMap<&str, (i64, i64)> = (0..)
        .zip(by_domain)
        .map(|(domain, count)| (name(domain), count))
        .collect();
    let trips = |(all, lost): &(i64, i64)| *lost > 0 && *lost * 100 >= *all * breaker.percent;
    let (zone, (all, lost)) = counts.into_iter().find(|(_, count)| trips(count))?;
    let place = if zone.is_empty() {
        String::new()
    } else {
        format!(" in zone {zone:?}")
    };
    let message = format!(
        "{lost} of {all} nodes{place} are not Ready, {}% or more; ends when fewer are",
        breaker.percent
    );
    let field = "spec.circuitBreakers.notReady";
    let mut stands = rule(scene, field, &message, scene.all());
    stands.domain = (!zone.is_empty()).then(|| zone.to_owned());
    Some(shut(stands))
}

/// Too many commands were taken back because their replacements did not come up.
fn failed_launches_breaker(scene: &Scene<'_>, breaker: &FailedLaunchesBreaker) -> Option<Limit> {
    let ledger = scene.snapshot.disruptions.iter();
    let failures: Vec<Timestamp> = ledger.filter_map(|one| hold::launch_failed_at(one)).collect();
    let (count, until) = tripped(&failures, breaker.count, breaker.within.to_signed(), scene.now)?;
    let message = format!(
        "{} taken back because replacements did not come up, within {}",
        crate::report::count(count, "command"),
        breaker.within
    );
    let mut stands = rule(
        scene,
        "spec.circuitBreakers.failedLaunches",
        &message,
        scene.all(),
    );
    stands.until = Some(until);
    Some(shut(stands))
}
