//! Figures that are about more than one object: what sets of nodes save, what nodes of others cost, what policies leave of budgets; and commands that a view forgets.

use crate::views::{freeze, judged, view};
use serde_json::json;
use spokeshave_api::{Budget, DisruptionPolicy};
use spokeshave_example::{better_together, bound, epoch, instance_type, node, node_pool};
use spokeshave_example::{pending_pod, random_world};
use spokeshave_model::{ClusterState, Price};
use spokeshave_plan::Policy;
use spokeshave_view::{
    BudgetNow, Difference, Dollars, Entry, History, Judged, Ledger, Missing, NodeRow, Place, Range,
};
use spokeshave_view::{Supposition, Total, Use, View, World};
use std::sync::Arc;

/// Whoever keeps what changes tell does not keep more commands than a view has.
#[test]
fn commands_that_a_view_has_forgotten_are_named_by_its_changes() {
    let judged = judged(ClusterState::default());
    let (mut ledger, mut history) = (Ledger::default(), History::default());
    let mut old = View::take(&judged, &mut ledger, &mut history, 1);
    let entry = |number: i64| Entry {
        name: format!("d{number:03}"),
        decided: epoch() + jiff::SignedDuration::from_secs(number),
        ended: None,
        phase: "Succeeded".to_owned(),
        message: String::new(),
        method: String::new(),
        reason: String::new(),
        nodes: Vec::new(),
        replacements: Vec::new(),
        evictions: 0,
        before: Dollars::default(),
        predicted: Dollars::default(),
        realised: None,
    };
    let mut new = View::take(&judged, &mut ledger, &mut history, 2);
    old.commands = (0..3).map(entry).collect();
    new.commands = (1..4).map(entry).collect();
    let changes = new.changes(&old);
    assert_eq!(changes.commands_gone, ["d000"]);
    assert_eq!(changes.commands, [entry(3)]);
    assert!(new.changes(&new).commands_gone.is_empty());
}

/// Where only sets of nodes save something, the next command saves more than all nodes do alone.
#[test]
fn w_02_what_could_be_saved_counts_nodes_that_go_together_only() {
    let seen = view(&judged(better_together()), 1);
    let rows = seen.nodes.0.iter();
    let rows: Vec<_> = rows.map(|row| (row.verdict, row.in_next)).collect();
    assert_eq!(rows, [(Some("keep"), Some(1)); 2]);
    let header = &seen.header;
    assert_eq!(header.could_save.0, Price::ZERO);
    assert!(header.next_saves.0 > Price::ZERO);
    assert_eq!(header.possible_savings(), header.next_saves.0);
}

/// What a switch lets go together is told, although nothing else would be said of any node.
#[test]
fn w_02_a_what_if_that_lets_nodes_go_together_says_so() {
    let mut state = better_together();
    for pool in &mut state.node_pools {
        Arc::make_mut(pool).spec.disruption.budgets = Some(vec![Budget::always("1")]);
    }
    let before = judged(state);
    let supposition = Supposition::parse(["Budget:NodePool/default"], []).expect("a switch");
    let applied = supposition.apply(&before.world, &before.policy);
    let (world, policy, _) = applied.expect("the NodePool is there");
    let difference = Difference::between(&before, &Judged::of(world, &policy));
    assert_eq!(difference.verdicts, []);
    assert_eq!(difference.regrouped, ["x", "y"]);
    assert_eq!(difference.could_save_before.0, Price::ZERO);
    assert!(difference.could_save_after.0 > Price::ZERO);
}

/// An operator goes by what it read last of what it cannot read any more: its prices and verdicts are known.
#[test]
fn what_an_operator_goes_on_with_makes_nothing_unknown() {
    let told = |is_of_operator: bool| {
        let kinds = [
            "nodeoverlays.karpenter.sh",
            "capacitybuffers.autoscaling.x-k8s.io",
        ];
        let missing = kinds.map(|resource| Missing {
            resource: resource.to_owned(),
            message: "it cannot be read".to_owned(),
        });
        let world = World {
            missing: missing.into(),
            is_of_operator,
            now: epoch(),
            ..World::default()
        };
        view(&Judged::of(world, &Policy::default()), 1).header
    };
    let operator = told(true);
    assert_eq!((operator.missing.len(), operator.unknown), (2, Vec::new()));
    assert!(!told(false).knows("price"), "others have never read it");
}

/// What is said of a node is about it alone; what it does next may be about several.
#[test]
fn w_02_nodes_of_the_next_command_are_told_with_how_many_others_they_go() {
    let mut told = 0;
    for seed in 0..200 {
        let judged = judged(random_world(seed));
        let view = view(&judged, 1);
        for id in judged.snapshot.node_ids() {
            let node = judged.snapshot.node(id);
            let mut commands = judged.disrupted.commands.iter();
            let command = commands.find(|command| {
                let mut nodes = command.nodes.iter();
                nodes.any(|one| one.provider_id == node.provider_id)
            });
            let with = command.map(|command| command.nodes.len() - 1);
            let row = view.nodes.find(&node.name).expect("each node has a row");
            assert_eq!(row.in_next, with, "seed {seed}: {}", node.name);
            told += usize::from(with.is_some());
        }
        let header = &view.header;
        let possible = header.possible_savings();
        assert!(possible >= header.next_saves.0 && possible >= header.could_save.0);
    }
    assert!(told > 10, "{told} nodes of commands prove little");
}

/// What nodes of others cost nobody knows: they do not cost nothing, and there is no line at nothing either.
#[test]
fn a_cluster_without_a_managed_node_has_no_price() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), vec![kind.clone()])
        .with_node(node("default", "n", &kind, "a", "spot"));
    let managed = judged(state.clone());
    state.node_claims.clear();
    let unmanaged = judged(state);
    let (mut ledger, mut history) = (Ledger::default(), History::default());
    let seen = View::take(&unmanaged, &mut ledger, &mut history, 1);
    assert_eq!((seen.header.nodes, seen.header.unmanaged), (1, 1));
    assert!(!seen.header.is_priced() && !seen.header.has_managed_nodes());
    assert_eq!(history.samples(Range::Hour).count(), 0, "no line at nothing");
    // Where managed nodes were and have gone, they cost nothing any more.
    let seen = View::take(&managed, &mut ledger, &mut history, 2);
    assert!(seen.header.is_priced());
    View::take(&unmanaged, &mut ledger, &mut history, 3);
    let last = history.samples(Range::Hour).next_back().expect("a line");
    assert_eq!(last.price, Price::ZERO);
}

/// Labels may name a price also where nobody manages the node any more: it is in no sum, and what is idle is a part of the price.
#[test]
fn what_others_cost_is_in_no_sum() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), vec![kind.clone()])
        .with_node(node("default", "ours", &kind, "a", "spot"))
        .with_node(node("default", "theirs", &kind, "a", "on-demand"));
    state.node_claims.retain(|claim| claim.name() == "claim-ours");
    let seen = view(&judged(state), 1);
    let header = &seen.header;
    assert_eq!((header.nodes, header.unmanaged), (2, 1));
    let priced = seen.nodes.0.iter().filter(|row| row.price.is_some());
    assert_eq!(priced.count(), 2, "both have a price by their labels");
    assert!(header.price.0 > Price::ZERO);
    assert_eq!(header.idle, header.price, "nothing runs");
    let total = Total::of(&seen.nodes.0);
    assert_eq!((total.price, total.without_price), (header.price.0, 1));
}

/// Sums by NodePool are those of the header in parts: each node is in one of them, whoever manages it.
#[test]
fn sums_by_nodepool_add_up_to_the_header() {
    let (mut parts, mut unmanaged) = (0, 0);
    for seed in 0..100 {
        let mut state = random_world(seed);
        if seed % 3 == 0 {
            state.node_claims.pop();
        }
        let seen = view(&judged(state), 1);
        let (header, totals) = (&seen.header, seen.nodes.totals_by_pool());
        let all = || totals.values();
        assert_eq!(
            all().map(|total| total.nodes).sum::<usize>(),
            header.nodes,
            "{seed}"
        );
        let price: Price = all().map(|total| total.price).sum();
        assert_eq!(price, header.price.0, "{seed}");
        let of_rows = |of: fn(&NodeRow) -> (i64, i64)| {
            let amounts = || seen.nodes.0.iter().map(of);
            Use {
                allocatable: amounts().map(|(allocatable, _)| allocatable).sum(),
                requested: amounts().map(|(_, requested)| requested).sum(),
            }
        };
        let of_parts = |of: fn(&Total) -> Use| {
            let amounts = || all().map(of);
            Use {
                allocatable: amounts().map(|one| one.allocatable).sum(),
                requested: amounts().map(|one| one.requested).sum(),
            }
        };
        let whole = (of_rows(|row| row.cpu), of_rows(|row| row.memory));
        assert_eq!((header.cpu, header.memory), whole, "{seed}");
        let parted = (of_parts(|total| total.cpu), of_parts(|total| total.memory));
        assert_eq!(parted, whole, "{seed}");
        for (title, total) in &totals {
            let rows = seen.nodes.0.iter().filter(|row| row.pool_title() == *title);
            assert_eq!(*total, Total::of(rows), "{seed}: {title}");
        }
        parts += usize::from(totals.len() > 1);
        unmanaged += header.unmanaged;
    }
    assert!(
        parts > 20 && unmanaged > 20,
        "{parts} and {unmanaged} prove little"
    );
}

/// What it saves to take away a node whose price nobody knows is not nothing; one that goes already saves nothing more.
#[test]
fn z_024_savings_are_lower_bounds_while_a_node_without_a_price_may_go() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let odd = instance_type("odd", 2, 8, &["a"]);
    let mut state = ClusterState::default()
        .with_pool(node_pool("default"), vec![kind.clone()])
        .with_node(node("default", "known", &kind, "a", "spot"))
        .with_node(node("default", "odd", &odd, "a", "spot"));
    let before = judged(state.clone());
    let seen = view(&before, 1);
    let rows = seen.nodes.0.iter();
    let rows: Vec<_> = rows.map(|row| (row.verdict, row.saves.is_some())).collect();
    assert_eq!(rows, [(Some("delete"), true), (Some("delete"), false)]);
    assert!(seen.header.could_save.0 > Price::ZERO);
    assert_eq!(seen.header.savings_without_price, 1);
    let difference = Difference::between(&before, &before);
    let without_price = (
        difference.savings_without_price_before,
        difference.savings_without_price_after,
    );
    assert_eq!(without_price, (1, 1));
    mark(&mut state, "odd");
    assert_eq!(view(&judged(state), 1).header.savings_without_price, 0);
}

/// What the page, `top` and the JSON say of budgets is what `spokeshave budgets` says: rules of DisruptionPolicies hold, too.
#[test]
fn budgets_are_what_disruption_policies_leave_of_them() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut pool = node_pool("default");
    pool.spec.disruption.budgets = Some(vec![Budget::always("5")]);
    let mut free = node_pool("free");
    free.spec.disruption.budgets = Some(vec![Budget::always("5")]);
    let mut state = ClusterState::default()
        .with_pool(pool, vec![kind.clone()])
        .with_pool(free, vec![kind.clone()])
        .with_node(node("default", "a", &kind, "a", "spot"))
        .with_node(node("default", "b", &kind, "a", "spot"))
        .with_node(node("free", "c", &kind, "a", "spot"));
    state.disruption_policies = vec![freeze("stop", &["default"])];
    let seen = view(&judged(state.clone()), 1).budgets;
    let now = |pool: &str| {
        let mut now = seen.now.iter();
        let found = now.find(|one| one.pool == pool && one.reason == "Empty");
        found.expect("it is told").clone()
    };
    let frozen = now("default");
    assert_eq!((frozen.allowed, frozen.remaining), (Some(0), Some(0)));
    let said = frozen.policy.expect("it is named");
    assert!(
        said.starts_with("DisruptionPolicy stop (spec.freeze): frozen"),
        "{said}"
    );
    let open = now("free");
    assert_eq!(
        (open.allowed, open.remaining, open.policy),
        (Some(5), Some(5), None)
    );
    for pool in &seen.calendar {
        let is_frozen = pool.pool == "default";
        for day in &pool.reasons {
            let first = &day.intervals[0];
            assert_eq!(first.allowed, if is_frozen { 0 } else { 5 }, "{}", pool.pool);
            let rules: Vec<String> = first.policies.iter().map(ToString::to_string).collect();
            assert_eq!(rules == ["DisruptionPolicy stop freeze"], is_frozen, "{rules:?}");
        }
    }
}

/// What is stopping still asks for what it has: it counts among the pods, as it does in the rows.
#[test]
fn the_header_counts_the_pods_that_the_rows_count() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let pod = |name: &str| bound(pending_pod(name, "500m", "1Gi", &json!({})), "a");
    let (mut stopping, mut over) = (pod("stopping"), pod("over"));
    stopping.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:10:00Z")).expect("a time");
    over.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
    let new = pending_pod("new", "4", "1Gi", &json!({}));
    let state = ClusterState::default()
        .with_pool(node_pool("default"), vec![kind.clone()])
        .with_node(node("default", "a", &kind, "a", "on-demand"))
        .with_pods([pod("web"), stopping, over, new]);
    let seen = view(&judged(state), 1);
    assert_eq!((seen.header.pods, seen.header.pending), (2, 1));
    assert_eq!(seen.nodes.0[0].pods.1, 2);
    assert_eq!(seen.header.cpu.requested, 1000);
}

/// A pod that asks for a NodePool is advised about that one, as `plan` and `explain` advise.
#[test]
fn p_056_what_would_help_names_the_nodepool_that_is_asked_for() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let asks =
        json!({"nodeSelector": {"karpenter.sh/nodepool": "special", "topology.kubernetes.io/zone": "b"}});
    let state = ClusterState::default()
        .with_pool(node_pool("default"), vec![kind.clone()])
        .with_pool(node_pool("special"), vec![kind])
        .with_pod(pending_pod("lost", "1", "1Gi", &asks));
    let seen = view(&judged(state), 1);
    let Place::Nowhere { hints, .. } = &seen.pending[0].place else {
        panic!("it has no place: {:?}", seen.pending);
    };
    let advice = "change spec.nodeSelector, or NodePool special, which it asks for";
    assert_eq!(*hints, [advice]);
}

/// Two nodes in two zones, a NodePool that lets five go, and a policy with one budget.
fn limited(budget: &serde_json::Value) -> ClusterState {
    let kind = instance_type("small", 2, 8, &["a", "b"]);
    let mut pool = node_pool("default");
    pool.spec.disruption.budgets = Some(vec![Budget::always("5")]);
    let mut state = ClusterState::default()
        .with_pool(pool, vec![kind.clone()])
        .with_node(node("default", "x", &kind, "a", "spot"))
        .with_node(node("default", "y", &kind, "b", "spot"));
    let spec = serde_json::from_value(json!({"budgets": [budget]})).expect("a spec");
    state.disruption_policies = vec![Arc::new(DisruptionPolicy::new("calm", spec))];
    state
}

/// Marks a node as on its way out.
pub(crate) fn mark(state: &mut ClusterState, name: &str) {
    let mut nodes = state.nodes.iter();
    let found = nodes.find(|one| one.metadata.name.as_deref() == Some(name));
    let id = found.and_then(|one| one.spec.as_ref()?.provider_id.clone());
    state.marked_for_deletion.insert(id.expect("it has one"));
}

fn now_of(state: ClusterState) -> BudgetNow {
    let seen = view(&judged(state), 1).budgets;
    let mut now = seen.now.into_iter();
    now.find(|one| one.reason == "Empty").expect("it is told")
}

/// What a policy says is what stands in the way now, and nothing that would do so only once others had gone.
#[test]
fn a_policy_is_quoted_only_for_what_it_keeps_now() {
    let mut state = limited(&json!({"scope": "Zone", "oneAtATime": true}));
    let now = now_of(state.clone());
    assert_eq!((now.allowed, now.remaining), (Some(5), Some(1)));
    assert_eq!(
        now.policy.as_deref(),
        Some("DisruptionPolicy calm (spec.budgets[0])")
    );
    mark(&mut state, "x");
    let now = now_of(state);
    assert_eq!((now.allowed, now.remaining), (Some(5), Some(0)));
    let kept = "DisruptionPolicy calm (spec.budgets[0]): one zone at a time, and nodes of a are on their way out or not Ready";
    assert_eq!(now.policy.as_deref(), Some(kept));
}

/// Programs get what budgets allow; people are told how many of the nodes that are there may go.
#[test]
fn what_people_are_told_of_a_budget_is_never_more_than_there_are_nodes() {
    let mut state = limited(&json!({"limit": "5"}));
    let now = now_of(state.clone());
    assert_eq!((now.allowed, now.nodes), (Some(5), 2));
    assert_eq!(now.of_nodes(), (Some(2), Some(2)));
    mark(&mut state, "x");
    assert_eq!(now_of(state).of_nodes(), (Some(2), Some(1)));
}

/// A policy takes percentages of all managed nodes of the NodePools that it selects: of those that join, too.
#[test]
fn percentages_of_policies_count_nodes_that_join() {
    let kind = instance_type("small", 2, 8, &["a", "b"]);
    let mut state = limited(&json!({"limit": "10%"}));
    for index in 2..20 {
        let (mut node, claim) = node("default", &format!("n{index:02}"), &kind, "a", "spot");
        if index >= 10 {
            let labels = node.metadata.labels.as_mut().expect("it has some");
            labels.remove("karpenter.sh/initialized");
        }
        state = state.with_node((node, claim));
    }
    let now = now_of(state.clone());
    assert_eq!((now.nodes, now.allowed, now.remaining), (10, Some(2), Some(2)));
    let seen = view(&judged(state), 1).budgets;
    for day in &seen.calendar[0].reasons {
        assert_eq!(day.intervals[0].allowed, 2, "{}", day.reason);
    }
}

/// What is let go for age has a row where a policy has soft ages, as in `spokeshave budgets`.
#[test]
fn age_has_a_row_where_a_policy_has_soft_ages() {
    let reasons = |state: ClusterState| {
        let seen = view(&judged(state), 1).budgets;
        let days = seen.calendar[0].reasons.iter();
        let days: Vec<String> = days.map(|day| day.reason.clone()).collect();
        let now: Vec<String> = seen.now.iter().map(|one| one.reason.clone()).collect();
        assert_eq!(now, days);
        days
    };
    let mut state = limited(&json!({"limit": "1", "reasons": ["Expired"]}));
    let three = ["Empty", "Drifted", "Underutilized"];
    assert_eq!(reasons(state.clone()), three);
    let policy = Arc::make_mut(&mut state.disruption_policies[0]);
    policy.spec.expiry = serde_json::from_value(json!({"softPercent": 50})).expect("soft ages");
    assert_eq!(reasons(state.clone()), [&three[..], &["Expired"]].concat());
    let seen = view(&judged(state), 1).budgets;
    let mut now = seen.now.iter();
    let expired = now.find(|one| one.reason == "Expired").expect("it is told");
    assert_eq!((expired.allowed, expired.remaining), (Some(1), Some(1)));
}

/// Nodes under way use up what a policy allows, also where no other node is left that it could keep.
#[test]
fn what_is_under_way_is_not_left() {
    let mut state = limited(&json!({"limit": "2"}));
    let now = now_of(state.clone());
    assert_eq!((now.allowed, now.remaining), (Some(2), Some(2)));
    mark(&mut state, "x");
    mark(&mut state, "y");
    let now = now_of(state);
    assert_eq!(now.disrupting, 2);
    assert_eq!((now.allowed, now.remaining), (Some(2), Some(0)));
}
