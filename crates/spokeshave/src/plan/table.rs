//! A plan as text: launches with their pods and prices, unschedulable pods and why, removed nodes.
//!
//! Equal things share a line with a count. It renders the format's values and computes nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use spokeshave_model::Price;
use spokeshave_plan::disrupt::share_text;
use spokeshave_plan::report::some_of;
use spokeshave_story::prices::known_sum;

use crate::text::{count, wrap};

use super::format::{
    CommandView, Dollars, InTheWay, NodeClaimPlan, Plan, ReasonView, SkippedNodePool, Stats, Unschedulable,
    VerdictView,
};

/// Rows of one kind before the rest is only counted.
const MOST_ROWS: usize = 20;

/// NodePools with a reason of their own before the rest is only counted; those that the pod asks for come first.
const MOST_MESSAGES: usize = 4;

/// Renders a plan.
pub(crate) fn render(plan: &Plan) -> String {
    let mut page = Page::default();
    let cluster = &plan.cluster;
    page.line(
        0,
        &format!(
            "{}, {}, {} pending · {}",
            count(cluster.nodes, "node"),
            count(cluster.pods, "pod"),
            cluster.pending_pods,
            per_hour(cluster.price, cluster.nodes_without_price)
        ),
    );
    launches(&mut page, plan);
    existing(&mut page, plan);
    later(&mut page, plan);
    missing_replicas(&mut page, plan);
    left_over(&mut page, plan);
    expired(&mut page, plan);
    scale_down(&mut page, plan);
    disruption(&mut page, plan);
    if let Some(verdicts) = plan
        .disruption
        .verdicts
        .as_ref()
        .filter(|verdicts| !verdicts.is_empty())
    {
        judged(&mut page, verdicts);
    }
    if let Some(stats) = &plan.stats {
        numbers(&mut page, stats);
    }
    page.text
}

fn launches(page: &mut Page, plan: &Plan) {
    let claims = &plan.provisioning.node_claims;
    if claims.is_empty() {
        return;
    }
    let pods: usize = claims.iter().map(|claim| claim.pods.len()).sum();
    let cheapest = claims.iter().filter_map(|claim| claim.cheapest.as_ref());
    let without_price = cheapest.filter(|cheapest| cheapest.price.is_none()).count();
    let price = known_sum(plan.provisioning.price.0, without_price, |price| {
        format!("+{}/h", money(price))
    });
    page.title(&format!(
        "LAUNCH {} for {}: {price}",
        count(claims.len(), "node"),
        count(pods, "pod"),
    ));
    let mut groups: Vec<(String, Vec<&NodeClaimPlan>)> = Vec::new();
    for claim in claims {
        let line = launch_line(claim);
        match groups.iter_mut().find(|(known, _)| *known == line) {
            Some((_, claims)) => claims.push(claim),
            None => groups.push((line, vec![claim])),
        }
    }
    for (line, claims) in groups.iter().take(MOST_ROWS) {
        page.wrapped(2, 6, &format!("{} × {line}", claims.len()));
        let pods: Vec<&String> = claims.iter().flat_map(|claim| &claim.pods).collect();
        page.wrapped(
            6,
            8,
            &format!("for {}: {}", count(pods.len(), "pod"), names(&pods)),
        );
    }
    page.rest(groups.len(), "more kind of launches", "more kinds of launches");
}

fn launch_line(claim: &NodeClaimPlan) -> String {
    let Some(cheapest) = &claim.cheapest else {
        return format!(
            "nothing from NodePool {}: no instance type is left",
            claim.node_pool
        );
    };
    let place: Vec<&str> = [cheapest.capacity_type, cheapest.zone.as_deref()]
        .into_iter()
        .flatten()
        .collect();
    let others = match claim.instance_types.len() {
        0 | 1 => String::new(),
        number => format!(", or {}", count(number - 1, "other type")),
    };
    let price = cheapest.price.map_or("price unknown".to_owned(), |price| {
        format!("{}/h each", money(price.0))
    });
    format!(
        "{} ({}{others}) {price}, NodePool {}",
        cheapest.instance_type,
        place.join(", "),
        claim.node_pool
    )
}

fn existing(page: &mut Page, plan: &Plan) {
    let nodes = &plan.provisioning.existing_nodes;
    if nodes.is_empty() {
        return;
    }
    let pods: usize = nodes.iter().map(|node| node.pods.len()).sum();
    page.title(&format!(
        "USE {} for {}",
        match nodes.len() {
            1 => "1 node that is there".to_owned(),
            number => format!("{number} nodes that are there"),
        },
        count(pods, "pod")
    ));
    for node in nodes.iter().take(MOST_ROWS) {
        let pods: Vec<&String> = node.pods.iter().collect();
        page.wrapped(
            2,
            6,
            &format!("{} for {}: {}", node.node, count(pods.len(), "pod"), names(&pods)),
        );
    }
    page.rest(nodes.len(), "more node", "more nodes");
}

/// What the operator would launch by itself soon after, so that nobody takes it for what has no place.
fn later(page: &mut Page, plan: &Plan) {
    let later = &plan.provisioning.later;
    if later.is_empty() {
        return;
    }
    page.title(&format!(
        "LAUNCH LATER {} for {}: about +{}/h",
        count(later.iter().map(|one| one.nodes).sum(), "node"),
        count(later.iter().map(|one| one.pods.len()).sum(), "pod"),
        money(later.iter().map(|one| one.price.0).sum())
    ));
    for one in later.iter().take(MOST_ROWS) {
        let pods: Vec<&String> = one.pods.iter().collect();
        let text = format!(
            "{} of NodePool {} for {}: {}",
            count(one.nodes, "node"),
            one.node_pool,
            count(pods.len(), "pod"),
            names(&pods)
        );
        page.wrapped(2, 6, &text);
    }
    page.rest(later.len(), "more NodePool", "more NodePools");
    page.wrapped(
        2,
        4,
        "Limits count a node that is still to come with the largest type that it may become; once it is there, the next pass finds room for these.",
    );
}

/// What NodePools with a fixed number of nodes lack.
fn missing_replicas(page: &mut Page, plan: &Plan) {
    for one in &plan.provisioning.replicas {
        let (title, beneath) = one.text();
        page.title(&title);
        for line in beneath {
            page.wrapped(2, 4, &line);
        }
    }
}

/// What goes for its age.
fn expired(page: &mut Page, plan: &Plan) {
    for one in &plan.disruption.expired {
        let of = match &one.node_pool {
            Some(pool) => format!("of NodePool {pool}"),
            None => "of no NodePool".to_owned(),
        };
        page.title(&format!(
            "EXPIRE {} {of} at once: expireAfter has passed",
            count(one.nodes.len(), "node")
        ));
        let nodes: Vec<&String> = one.nodes.iter().collect();
        page.wrapped(2, 6, &format!("nodes: {}", names(&nodes)));
        let text = format!(
            "{} would move · {} · neither budgets, DisruptionPolicies nor do-not-disrupt are asked",
            count(one.evictions, "pod"),
            per_hour(one.price, one.nodes_without_price)
        );
        page.wrapped(2, 6, &text);
        for held in one.held.iter().take(MOST_ROWS) {
            page.wrapped(2, 6, &format!("{}: {}", held.node, held.message));
        }
        page.rest(
            one.held.len(),
            "more drain that is held",
            "more drains that are held",
        );
    }
}

/// What they have too many of.
fn scale_down(page: &mut Page, plan: &Plan) {
    for one in &plan.disruption.scale_down {
        let saved = match one.is_price_unknown {
            true => saves_unknown("delete", one.price),
            false => change(one.price.0),
        };
        page.title(&format!(
            "SCALE DOWN NodePool {} (spec.replicas {}): {} less, {saved}",
            one.node_pool,
            one.replicas,
            count(one.nodes.len(), "node"),
        ));
        let nodes: Vec<&String> = one.nodes.iter().collect();
        page.wrapped(2, 6, &format!("nodes: {}", names(&nodes)));
        let pods = count(one.evictions, "pod");
        let text = format!("{pods} would move; neither budgets nor DisruptionPolicies are asked");
        page.wrapped(2, 6, &text);
    }
}

fn left_over(page: &mut Page, plan: &Plan) {
    let later = &plan.provisioning.later;
    let later: BTreeSet<&String> = later.iter().flat_map(|one| &one.pods).collect();
    let unschedulable = plan.provisioning.unschedulable.iter();
    let unschedulable: Vec<&Unschedulable> = unschedulable.filter(|one| !later.contains(&one.pod)).collect();
    if !unschedulable.is_empty() {
        page.title(&format!("CANNOT PLACE {}", count(unschedulable.len(), "pod")));
        type Why<'a> = (Vec<&'a ReasonView>, &'a [InTheWay]);
        let mut groups: BTreeMap<Why<'_>, Vec<&Unschedulable>> = BTreeMap::new();
        for pod in unschedulable {
            let why = (pod.reasons.iter().collect(), pod.in_the_way.as_slice());
            groups.entry(why).or_default().push(pod);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by(|left, right| left.1[0].pod.cmp(&right.1[0].pod));
        for ((reasons, in_the_way), pods) in groups.iter().take(MOST_ROWS) {
            let pods: Vec<&String> = pods.iter().map(|pod| &pod.pod).collect();
            page.wrapped(2, 4, &format!("{}: {}", count(pods.len(), "pod"), names(&pods)));
            let (of_nodes, of_pools): (Vec<&ReasonView>, Vec<&ReasonView>) =
                reasons.iter().partition(|reason| reason.nodes.is_some());
            let messages = by_message(&of_pools);
            for (message, pools) in messages.iter().take(MOST_MESSAGES) {
                let pools = match pools.as_slice() {
                    [] => String::new(),
                    [pool] => format!("NodePool {pool}: "),
                    pools => format!("{} NodePools ({}): ", pools.len(), some_of(pools, 3)),
                };
                page.wrapped(4, 6, &format!("{pools}{message}"));
            }
            if messages.len() > MOST_MESSAGES {
                let rest: usize = messages[MOST_MESSAGES..]
                    .iter()
                    .map(|(_, pools)| pools.len())
                    .sum();
                let text = format!(
                    "{}, each for another reason (-o json)",
                    count(rest, "more NodePool")
                );
                page.wrapped(4, 6, &text);
            }
            if !of_nodes.is_empty() {
                page.wrapped(4, 6, &nodes_line(&of_nodes));
            }
            for one in *in_the_way {
                page.wrapped(4, 6, &format!("in the way: {} → {}", one.what, one.hint));
            }
        }
        page.rest(groups.len(), "more reason", "more reasons");
    }
    let replicas = || plan.provisioning.replicas.iter().filter(|one| one.takes_no_part);
    let is_told = |pool: &&SkippedNodePool| replicas().any(|one| one.node_pool == pool.node_pool);
    let skipped = plan.provisioning.skipped_node_pools.iter();
    for pool in skipped.filter(|pool| !is_told(pool)) {
        page.wrapped(
            0,
            2,
            &format!("NodePool {} takes no part: {}", pool.node_pool, pool.message),
        );
    }
}

/// `41 nodes: insufficient cpu (best is 300m short) · 12: taint team=ml:NoSchedule`.
fn nodes_line(reasons: &[&ReasonView]) -> String {
    let mut parts = Vec::new();
    for reason in reasons {
        let number = reason.nodes.unwrap_or_default();
        let number = if parts.is_empty() {
            count(number, "node")
        } else {
            number.to_string()
        };
        parts.push(format!("{number}: {}", reason.message));
    }
    parts.join(" · ")
}

fn by_message<'a>(reasons: &[&'a ReasonView]) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for reason in reasons {
        let pool = reason.node_pool.as_deref();
        match groups.iter_mut().find(|(message, _)| *message == reason.message) {
            Some((_, pools)) => pools.extend(pool),
            None => groups.push((&reason.message, pool.into_iter().collect())),
        }
    }
    groups
}

fn disruption(page: &mut Page, plan: &Plan) {
    let commands = &plan.disruption.commands;
    if commands.is_empty() {
        page.title("DISRUPT nothing");
    }
    for command in commands {
        disrupted(page, "DISRUPT", command);
    }
    for budget in &plan.disruption.budgets {
        let error = budget
            .error
            .as_ref()
            .map(|error| format!(": {error}"))
            .unwrap_or_default();
        let left = match budget.of_nodes() {
            Some((allowed, remaining)) => format!("{remaining} of {allowed} left"),
            None => "no limit".to_owned(),
        };
        let text = format!(
            "budget of NodePool {} for {}: {left}, {} of {} disrupting{error}",
            budget.node_pool,
            budget.reason,
            budget.disrupting,
            count(budget.nodes, "node")
        );
        page.wrapped(2, 6, &text);
    }
    for stop in &plan.disruption.stops {
        let (noun, pools) = match stop.node_pools.as_slice() {
            [only] => ("NodePool", only.clone()),
            several => ("NodePools", some_of(several, 5)),
        };
        page.wrapped(2, 6, &format!("{noun} {pools}: {}", stop.message));
    }
    let later = &plan.disruption.later;
    for command in later.iter().take(MOST_ROWS) {
        disrupted(page, "then DISRUPT", command);
    }
    page.rest(later.len(), "more command", "more commands");
    if plan.disruption.is_cut {
        page.wrapped(2, 4, "… and perhaps more: passes after these are not looked at");
    }
}

fn disrupted(page: &mut Page, what: &str, command: &CommandView) {
    let by_on_demand = command.is_by_on_demand;
    let saved = match command.price_unknown {
        true => saves_unknown(command.decision, command.price_before),
        false => saved(command.price_before, command.price_after, by_on_demand),
    };
    page.title(&format!(
        "{what} {}: {} ({}), {saved}",
        count(command.nodes.len(), "node"),
        command.decision,
        command.reason,
    ));
    let nodes: Vec<&String> = command.nodes.iter().collect();
    page.wrapped(2, 6, &format!("nodes: {}", names(&nodes)));
    for replacement in &command.replacements {
        page.wrapped(2, 6, &format!("replaced by {}", launch_line(replacement)));
    }
    page.wrapped(
        2,
        6,
        &format!(
            "{} would move · {} before, {}/h after{} · {} {}",
            count(command.evictions, "pod"),
            per_hour(command.price_before, usize::from(command.price_unknown)),
            money(command.price_after.0),
            if by_on_demand {
                " by prices of on-demand"
            } else {
                ""
            },
            command.method,
            command.id
        ),
    );
}

fn judged(page: &mut Page, verdicts: &[VerdictView]) {
    page.title(&format!(
        "VERDICTS on {}, each taken alone",
        count(verdicts.len(), "node")
    ));
    for verdict in verdicts {
        let what = match verdict.method {
            Some(method) => {
                let by = verdict
                    .replacement
                    .as_ref()
                    .map(|name| format!(" by {name}"))
                    .unwrap_or_default();
                let saved = match verdict.price_unknown {
                    true => saves_unknown(verdict.decision, verdict.price_before),
                    false => saved(verdict.price_before, verdict.price_after, verdict.is_by_on_demand),
                };
                format!("{}{by} ({method}), {saved}", verdict.decision)
            }
            None => verdict.decision.to_owned(),
        };
        page.wrapped(2, 6, &format!("{}: {what}", verdict.node));
        for blocker in &verdict.blockers {
            page.wrapped(4, 6, &format!("{}: {}", blocker.object, blocker.message));
        }
        if let Some(why) = &verdict.waits {
            page.wrapped(4, 6, why);
        }
        if let Some(other) = &verdict.if_removed {
            page.wrapped(4, 6, &other.message);
        }
    }
}

fn numbers(page: &mut Page, stats: &Stats) {
    page.title("STATS");
    let time = |nanoseconds: u64| format!("{:.3} ms", nanoseconds as f64 / 1e6);
    page.line(
        2,
        &format!(
            "read       {:>12}  {}",
            time(stats.read_ns),
            count(stats.objects, "object")
        ),
    );
    page.line(
        2,
        &format!(
            "lower      {:>12}  {}",
            time(stats.lower_ns),
            count(stats.instance_types, "instance type")
        ),
    );
    page.line(
        2,
        &format!(
            "provision  {:>12}  {}, {} tried, {} tried",
            time(stats.provision_ns),
            count_of(stats.attempts, "attempt"),
            count_of(stats.nodes_tried, "node"),
            count_of(stats.node_claims_tried, "claim")
        ),
    );
    page.line(2, &format!("later      {:>12}", time(stats.later_ns)));
    let what_ifs = &stats.what_if_ns;
    page.line(
        2,
        &format!(
            "disrupt    {:>12}  {}",
            time(stats.disrupt_ns),
            count_of(stats.what_ifs, "what-if")
        ),
    );
    if what_ifs.count > 0 {
        page.line(
            2,
            &format!(
                "candidate  {:>12}  median of {}; p99 {}, together {}",
                time(what_ifs.median),
                what_ifs.count,
                time(what_ifs.p99),
                time(what_ifs.total)
            ),
        );
    }
    if let Some(bytes) = stats.peak_rss_bytes {
        page.line(2, &format!("memory     {:>9} MiB  peak", bytes >> 20));
    }
}

/// `$0.2172`: four decimals distinguish any two instance types.
pub(crate) fn money(price: Price) -> String {
    let tenths_of_milli = (i128::from(price.0) + if price.0 < 0 { -50_000 } else { 50_000 }) / 100_000;
    let sign = if tenths_of_milli < 0 { "-" } else { "" };
    let magnitude = tenths_of_milli.abs();
    format!("{sign}${}.{:04}", magnitude / 10_000, magnitude % 10_000)
}

/// `$0.2172/h` of nodes; a lower bound while the prices of some are not known.
fn per_hour(price: Dollars, without_price: usize) -> String {
    known_sum(price.0, without_price, |price| format!("{}/h", money(price)))
}

/// What is saved where the price of a node that goes is not known.
fn saves_unknown(decision: &str, known: Dollars) -> String {
    match (decision, known.0) {
        ("delete", Price::ZERO) => "saves an unknown amount".to_owned(),
        ("delete", known) => format!("{} or more", change(known)),
        _ => "changes the price by an unknown amount".to_owned(),
    }
}

/// What is saved: by prices of on-demand only as a share, because it is not of what spot nodes cost.
fn saved(before: Dollars, after: Dollars, is_by_on_demand: bool) -> String {
    match is_by_on_demand {
        true => share_text(before.0, after.0),
        false => change(before.0.saturating_sub(after.0)),
    }
}

fn change(savings: Price) -> String {
    if savings.0 >= 0 {
        format!("saves {}/h", money(savings))
    } else {
        format!("costs {}/h more", money(Price(-savings.0)))
    }
}

fn names(names: &[&String]) -> String {
    some_of(names, 5)
}

fn count_of(number: u64, noun: &str) -> String {
    count(usize::try_from(number).unwrap_or(usize::MAX), noun)
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn title(&mut self, text: &str) {
        self.text.push('\n');
        self.wrapped(0, 4, text);
    }

    fn line(&mut self, indent: usize, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{:indent$}{text}", "");
    }

    fn rest(&mut self, all: usize, one: &str, several: &str) {
        match all.saturating_sub(MOST_ROWS) {
            0 => {}
            1 => self.line(2, &format!("… and 1 {one}")),
            rest => self.line(2, &format!("… and {rest} {several}")),
        }
    }

    fn wrapped(&mut self, first: usize, others: usize, text: &str) {
        self.text.push_str(&wrap(text, first, others));
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_has_four_decimals() {
        assert_eq!(money(Price(217_179_869)), "$0.2172");
        assert_eq!(money(Price(-50_000)), "-$0.0001");
        assert_eq!(money(Price(12_000_000_000)), "$12.0000");
    }
}
