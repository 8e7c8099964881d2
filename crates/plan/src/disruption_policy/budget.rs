//! Budgets of policies: how much at once, how much an hour, in one zone at a time, inside windows.

use super::limits::{Left, Limit, Rule, Weights};
use super::memo::Domains;
use super::rules::{Scene, rule};
use super::windows::{Windows, time_zone};
use jiff::{SignedDuration, Timestamp};
use spokeshave_api::disruption::DisruptedNode;
use spokeshave_api::disruption_policy::{BudgetUnit, OutsideWindows, PolicyBudget, PolicyScope};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// Adds the limits of one budget that stand now.
pub(super) fn add(scene: &Scene<'_>, index: usize, budget: &PolicyBudget, limits: &mut Vec<Limit>) {
    let field = format!("spec.budgets[{index}]");
    let policy = scene.policy;
    if !budget.windows.is_empty() {
        let zone = time_zone(policy.spec.time_zone.as_deref());
        let windows = zone
            .map_err(|_| ())
            .and_then(|zone| Windows::read(zone, &budget.windows, &budget.except_dates).map_err(|_| ()));
        // Faults close it elsewhere.
        let Ok(windows) = windows else { return };
        if !windows.is_open(scene.now) {
            if budget.outside_windows == Some(OutsideWindows::Unlimited) {
                return;
            }
            let mut closed = rule(scene, &field, "none of its windows is open", scene.all());
            closed.until = windows.next_change(scene.now);
            limits.push(Limit {
                rule: closed.into(),
                left: Left::Nothing,
            });
            return;
        }
    }
    let places = Places::of(scene, budget);
    if let Some(limit) = &budget.limit {
        at_once(scene, &field, budget, limit, &places, limits);
    }
    if let Some(rate) = budget.per_hour {
        per_hour(scene, &field, budget, rate, &places, limits);
    }
    if budget.one_at_a_time {
        one_at_a_time(scene, &field, budget, &places, limits);
    }
}

/// What each node counts under.
struct Places {
    domains: Arc<Domains>,
    /// Those of nodes that the policy covers, in the order of their names.
    all: Vec<u32>,
}

impl Places {
    fn of(scene: &Scene<'_>, budget: &PolicyBudget) -> Self {
        let nodes = scene.snapshot.nodes.iter();
        let domains = match scope(budget) {
            PolicyScope::NodePool => scene.memo.pools().clone(),
            PolicyScope::Zone => scene.memo.zones().clone(),
            PolicyScope::Label => {
                let label = budget.label.as_deref().unwrap_or_default();
                let values = nodes.map(|node| node.labels.get(label).map_or("", String::as_str));
                Domains::of(values).into()
            }
            PolicyScope::Cluster | PolicyScope::Other(_) => Domains::of(nodes.map(|_| "")).into(),
        };
        let mut is_covered = vec![false; domains.names.len()];
        for node in scene.snapshot.node_ids().filter(|node| scene.covers(*node)) {
            is_covered[domains.domain(node) as usize] = true;
        }
        let mut all: Vec<u32> = (0..)
            .zip(&is_covered)
            .filter(|(_, is)| **is)
            .map(|(domain, _)| domain)
            .collect();
        all.sort_unstable_by_key(|domain| domains.name(*domain));
        Places { domains, all }
    }
}

fn scope(budget: &PolicyBudget) -> &PolicyScope {
    budget.scope.as_ref().unwrap_or(&PolicyScope::Cluster)
}

fn place(budget: &PolicyBudget, domain: &str) -> String {
    match scope(budget) {
        PolicyScope::NodePool => format!(" of NodePool {domain:?}"),
        PolicyScope::Zone => format!(" in zone {domain:?}"),
        PolicyScope::Label => format!(" with {}={domain:?}", budget.label.as_deref().unwrap_or_default()),
        PolicyScope::Cluster | PolicyScope::Other(_) => String::new(),
    }
}

fn named(domain: &str) -> Option<String> {
    (!domain.is_empty()).then(|| domain.to_owned())
}

/// Thousandths of a vCPU, so that everything is whole.
fn scale(budget: &PolicyBudget) -> i64 {
    match budget.unit {
        Some(BudgetUnit::Cpu) => 1000,
        _ => 1,
    }
}

fn unit(budget: &PolicyBudget) -> &'static str {
    match budget.unit {
        Some(BudgetUnit::Cpu) => "vCPU",
        Some(BudgetUnit::Pods) => "pods",
        _ => "nodes",
    }
}

fn weights(scene: &Scene<'_>, budget: &PolicyBudget) -> Weights {
    match budget.unit {
        Some(BudgetUnit::Cpu) => scene.amounts(scene.memo.millicores()),
        Some(BudgetUnit::Pods) => scene.amounts(scene.memo.pods()),
        _ => scene.all(),
    }
}

/// What nodes of one domain come to.
#[derive(Clone, Copy, Default)]
struct Sum {
    whole: i64,
    /// On their way out, or not Ready.
    used: i64,
    /// Those that may still be chosen.
    open: i64,
}

fn sums(scene: &Scene<'_>, weights: &Weights, domains: &Domains) -> Vec<Sum> {
    let mut sums = vec![Sum::default(); domains.names.len()];
    for node in scene.snapshot.node_ids() {
        let Some(own) = weights.of(node) else { continue };
        let state = scene.memo.on_its_way(node);
        let sum = &mut sums[domains.domain(node) as usize];
        sum.whole += own;
        sum.used += if state.is_disrupting { own } else { 0 };
        sum.open += if state.is_leaving { 0 } else { own };
    }
    sums
}

/// A limit of which something is left, unless all that may be chosen fits into it: such a limit would be asked for each node and never say no.
fn unless_roomy(rule: Rule, left: i64, is_unused: bool, open: i64) -> Option<Limit> {
    (left <= 0 || left < open).then(|| Limit {
        rule: rule.into(),
        left: Left::Amount { left, is_unused },
    })
}

/// A number, or a share of the whole, rounded up; `None` when it is neither.
pub(super) fn amount(limit: &str, whole: i64, scale: i64) -> Option<i64> {
    match limit.strip_suffix('%') {
        Some(percent) => {
            let percent: i64 = percent
                .parse()
                .ok()
                .filter(|percent| (0..=100).contains(percent))?;
            let share = i128::from(whole) * i128::from(percent);
            i64::try_from((share + 99) / 100).ok()
        }
        None => limit
            .parse::<i64>()
            .ok()
            .filter(|number| *number >= 0)
            .map(|number| number.saturating_mul(scale)),
    }
}

fn at_once(
    scene: &Scene<'_>,
    field: &str,
    budget: &PolicyBudget,
    limit: &str,
    places: &Places,
    limits: &mut Vec<Limit>,
) {
    let domains = &places.domains;
    let every = rule(scene, field, "", weights(scene, budget));
    let sums = sums(scene, &every.weights, domains);
    for domain in places.all.iter().copied() {
        let Sum { whole, used, open } = sums[domain as usize];
        let name = domains.name(domain);
        let scale = scale(budget);
        // A limit that cannot be read is closed elsewhere.
        let Some(allowed) = amount(limit, whole, scale) else {
            continue;
        };
        let message = format!(
            "{limit} {}{} at once, {} already are",
            unit(budget),
            place(budget, name),
            used / scale
        );
        let mut stands = Rule {
            message,
            within: Some((domains.of.clone(), domain)),
            ..every.clone()
        };
        stands.domain = named(name);
        limits.extend(unless_roomy(stands, allowed - used, used == 0, open));
    }
}

/// Nodes of the ledger that began to go within the hour before `now`, with the time.
fn begun<'a>(scene: &'a Scene<'_>) -> impl Iterator<Item = (&'a DisruptedNode, Timestamp)> + 'a {
    let recent = scene
        .snapshot
        .disruptions
        .iter()
        .filter(move |one| one.is_counted() && scene.now.duration_since(one.spec.decided_at.0) < HOUR);
    recent.flat_map(move |one| {
        let nodes = one.spec.nodes.iter();
        nodes
            .filter(|node| !scene.own.contains(node.provider_id.as_str()))
            .filter(|node| scene.selects(&node.node_pool))
            .map(|node| (node, one.spec.decided_at.0))
    })
}

fn per_hour(
    scene: &Scene<'_>,
    field: &str,
    budget: &PolicyBudget,
    rate: i64,
    places: &Places,
    limits: &mut Vec<Limit>,
) {
    let domains = &places.domains;
    let every = rule(scene, field, "", weights(scene, budget));
    let is_pods = budget.unit == Some(BudgetUnit::Pods);
    let mut used: BTreeMap<String, (i64, Timestamp)> = BTreeMap::new();
    let mut add = |domain: String, amount: i64, at: Timestamp| {
        let (sum, first) = used.entry(domain).or_insert((0, at));
        *sum += amount;
        *first = (*first).min(at);
    };
    let mut written = BTreeSet::new();
    for (node, at) in begun(scene) {
        written.insert(node.provider_id.as_str());
        let domain = match scope(budget) {
            PolicyScope::NodePool => node.node_pool.clone(),
            PolicyScope::Zone => node.zone.clone().unwrap_or_default(),
            _ => String::new(),
        };
        add(domain, if is_pods { node.pods } else { 1 }, at);
    }
    // Commands that are decided and not written down yet.
    for node in scene.snapshot.node_ids().filter(|node| scene.covers(*node)) {
        let view = scene.snapshot.node(node);
        let id = view.provider_id.as_str();
        if view.in_command && !scene.own.contains(id) && !written.contains(id) {
            let own = every.weights.of(node).unwrap_or_default();
            add(domains.name(domains.domain(node)).to_owned(), own, scene.now);
        }
    }
    let sums = sums(scene, &every.weights, domains);
    for domain in places.all.iter().copied() {
        let name = domains.name(domain);
        let spent = used.get(name).copied();
        let (sum, first) = spent.unwrap_or((0, scene.now));
        let message = format!(
            "{rate} {}{} an hour, {sum} within the last",
            unit(budget),
            place(budget, name)
        );
        let mut stands = Rule {
            message,
            within: Some((domains.of.clone(), domain)),
            ..every.clone()
        };
        stands.domain = named(name);
        stands.until = (sum >= rate && sum > 0).then(|| first.saturating_add(HOUR).unwrap_or(Timestamp::MAX));
        limits.extend(unless_roomy(
            stands,
            rate - sum,
            sum == 0,
            sums[domain as usize].open,
        ));
    }
}

fn one_at_a_time(
    scene: &Scene<'_>,
    field: &str,
    budget: &PolicyBudget,
    places: &Places,
    limits: &mut Vec<Limit>,
) {
    let domains = &places.domains;
    let under_way = scene
        .snapshot
        .node_ids()
        .filter(|node| scene.covers(*node) && scene.is_disrupting(*node));
    let open: BTreeSet<u32> = under_way.map(|node| domains.domain(node)).collect();
    let what = match scope(budget) {
        PolicyScope::Zone => "zone".to_owned(),
        PolicyScope::NodePool => "NodePool".to_owned(),
        _ => format!("value of {}", budget.label.as_deref().unwrap_or_default()),
    };
    let mut names: Vec<&str> = open.iter().map(|domain| domains.name(*domain)).collect();
    names.sort_unstable();
    let message = format!(
        "one {what} at a time, and nodes of {} are on their way out or not Ready",
        names.join(" and ")
    );
    limits.push(Limit {
        rule: rule(scene, field, &message, scene.all()).into(),
        left: Left::OneDomain {
            domains: domains.of.clone(),
            open,
        },
    });
}
