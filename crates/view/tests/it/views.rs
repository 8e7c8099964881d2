//! A view says what the decisions say, adds up, and its changes lead from one to the next.

use serde_json::{Value, json};
use spokeshave_example::{Shape, cluster, random_world};
use spokeshave_example::{epoch, instance_type, node, node_pool, pending_pod};
use spokeshave_model::{ClusterState, Price, lower};
use spokeshave_plan::Policy;
use spokeshave_plan::disrupt::judge;
use spokeshave_view::{History, Judged, Ledger, Phase, Place, Range, View, World, detail};
use std::sync::Arc;

pub(crate) fn judged(state: ClusterState) -> Judged {
    let world = World {
        state,
        now: epoch(),
        ..World::default()
    };
    Judged::of(world, &Policy::default())
}

fn view(judged: &Judged, revision: u64) -> View {
    View::take(judged, &mut Ledger::default(), &mut History::default(), revision)
}

#[test]
fn what_is_said_of_a_node_is_what_disruption_says_of_it() {
    let mut kept = 0;
    for seed in 0..200 {
        let judged = judged(random_world(seed));
        let view = view(&judged, 1);
        for id in judged.snapshot.node_ids() {
            let node = judged.snapshot.node(id);
            let row = view.nodes.find(&node.name).expect("each node has a row");
            if !node.is_managed() {
                assert_eq!(row.verdict, None);
                continue;
            }
            let verdict = judge(&judged.snapshot, &judged.policy, epoch(), id)
                .without_nomination("not in this plan, which sends pending pods to it");
            assert_eq!(
                row.verdict,
                Some(verdict.decision_text()),
                "seed {seed}: {}",
                node.name
            );
            let said: Vec<String> = row.reasons.iter().map(|reason| reason.message.clone()).collect();
            let blockers: Vec<String> = verdict.blockers.iter().map(|one| one.message.clone()).collect();
            assert_eq!(said, blockers, "seed {seed}: {}", node.name);
            assert_eq!(
                row.if_removed.clone().unwrap_or_default(),
                verdict.if_removed_text()
            );
            kept += usize::from(verdict.is_keep());
            let detail = detail(&judged, &node.name).expect("each node has a detail");
            if let Some(told) = detail.story.verdict {
                assert_eq!(told.decision, verdict.decision_text());
                assert_eq!(told.blockers.len(), detail.toggles.len());
            }
        }
    }
    assert!(kept > 100, "{kept}: worlds in which nothing is kept prove little");
}

#[test]
fn numbers_add_up_and_unknown_is_not_zero() {
    for seed in 0..100 {
        let judged = judged(random_world(seed));
        let view = view(&judged, 1);
        let header = &view.header;
        let sum: Price = view
            .nodes
            .0
            .iter()
            .filter(|row| row.verdict.is_some())
            .filter_map(|row| row.price)
            .map(|price| price.0)
            .sum();
        assert_eq!(header.price.0, sum, "seed {seed}");
        let phases = header.ready + header.coming + header.leaving + header.broken;
        assert_eq!(phases, header.nodes, "seed {seed}");
        let grouped: usize = view.pending.iter().map(|group| group.pods).sum();
        assert_eq!(grouped, header.pending, "seed {seed}");
        let unplaced = judged.provisioned.left_over().count();
        let nowhere = view
            .pending
            .iter()
            .filter(|group| matches!(group.place, Place::Nowhere { .. }));
        assert_eq!(
            nowhere.map(|group| group.pods).sum::<usize>(),
            unplaced,
            "seed {seed}"
        );
        assert!(header.idle <= header.price, "seed {seed}");
        let unpriced = view
            .nodes
            .0
            .iter()
            .filter(|row| row.verdict.is_some() && row.price.is_none());
        assert_eq!(unpriced.count(), header.nodes_without_price, "seed {seed}");
    }
}

/// Offerings whose price nobody knows are chosen last, by a price that is none (Z4).
#[test]
fn z_024_a_price_that_nobody_knows_is_shown_nowhere_and_is_not_nothing_either() {
    let priced = cluster(Shape::Plain, 20, 10, 1);
    let mut unpriced = priced.clone();
    for types in unpriced.instance_types.values_mut() {
        let mut list = types.as_ref().unwrap().to_vec();
        for offering in list.iter_mut().flat_map(|it| &mut it.offerings) {
            offering.price = Price::UNKNOWN;
        }
        *types = Ok(list.into());
    }
    for claim in &mut unpriced.node_claims {
        let annotations = Arc::make_mut(claim).metadata.annotations.get_or_insert_default();
        annotations.insert("spokeshave.dev/price-at-launch".to_owned(), "999".to_owned());
    }
    let mut history = History::default();
    let mut ledger = Ledger::default();
    let without = judged(unpriced);
    let view = View::take(&without, &mut ledger, &mut history, 1);
    assert!(view.nodes.0.iter().all(|row| row.price.is_none()));
    assert_eq!(
        (view.header.price.0, view.header.nodes_without_price),
        (Price::ZERO, 20)
    );
    assert_eq!(without.provisioned.report.price, Price::ZERO);
    assert_eq!(history.samples(Range::Hour).count(), 0, "no line at nothing");
    let known = View::take(&judged(priced), &mut ledger, &mut history, 2)
        .header
        .price
        .0;
    assert!(known > Price::ZERO);
    View::take(&without, &mut ledger, &mut history, 3);
    let last = history.samples(Range::Hour).next_back().unwrap();
    assert_eq!(last.price, known, "what was known last holds");
}

#[test]
fn columns_are_equally_long_and_five_thousand_nodes_stay_below_a_mebibyte() {
    let judged = judged(cluster(Shape::Plain, 5000, 5000, 1));
    let view = view(&judged, 1);
    let text = serde_json::to_string(&view).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let count = json["nodes"]["name"].as_array().unwrap().len();
    assert_eq!(count, 5000);
    for (name, column) in json["nodes"].as_object().unwrap() {
        let column = if column["of"].is_array() {
            &column["of"]
        } else {
            column
        };
        if name != "reasonTable" {
            assert_eq!(column.as_array().unwrap().len(), count, "{name}");
        }
    }
    let reasons = json["nodes"]["reasonTable"].as_array().unwrap().len() as u64;
    let ids = json["nodes"]["reasons"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|ids| ids.as_array().unwrap());
    assert!(ids.map(|id| id.as_u64().unwrap()).all(|id| id < reasons));
    let lean = text.len() - json["budgets"].to_string().len();
    assert!(lean < 1_500_000, "{lean} bytes");
}

#[test]
fn an_old_view_with_the_changes_is_the_new_one() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let state = |nodes: &[&str], pods: usize| {
        let mut state = ClusterState::default().with_pool(node_pool("default"), vec![kind.clone()]);
        for name in nodes {
            state = state.with_node(node("default", name, &kind, "a", "spot"));
        }
        for pod in 0..pods {
            state = state.with_pod(pending_pod(&format!("p{pod}"), "99", "1Gi", &json!({})));
        }
        state
    };
    let old = view(&judged(state(&["a", "b", "c"], 0)), 1);
    let new = view(&judged(state(&["b", "c", "d"], 2)), 2);
    let changes = new.changes(&old);
    assert_eq!((changes.from, changes.revision), (1, 2));
    assert_eq!(changes.nodes.gone, ["a"]);
    let mut rows = old.nodes.0.clone();
    rows.retain(|row| {
        !changes.nodes.gone.contains(&row.name)
            && changes.nodes.changed.iter().all(|one| one.name != row.name)
    });
    rows.extend(changes.nodes.changed.clone());
    rows.sort_by(|left, right| left.name.cmp(&right.name));
    assert_eq!(rows, new.nodes.0);
    assert_eq!(changes.pending.as_ref(), Some(&new.pending));
    assert_eq!(changes.header, new.header);
    let none = new.changes(&new);
    assert!(none.nodes.changed.is_empty() && none.nodes.gone.is_empty() && none.pending.is_none());
}

#[test]
fn an_awaited_pod_is_pending_and_a_deleted_node_leaves() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut built = node("default", "n", &kind, "a", "spot");
    built.1.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(epoch()));
    let state = ClusterState::default()
        .with_pool(node_pool("default"), vec![kind])
        .with_node(built);
    assert_eq!(lower(&state).nodes.len(), 1);
    let world = World {
        state,
        awaited: vec![Arc::new(pending_pod("w", "1", "1Gi", &json!({})))],
        now: epoch(),
        ..World::default()
    };
    let view = view(&Judged::of(world, &Policy::default()), 1);
    assert_eq!(view.nodes.0[0].phase, Phase::Leaving);
    assert_eq!(
        (view.header.pending, &view.pending[0].place),
        (1, &Place::Awaited)
    );
}

/// Figures that depend on a kind which may not be read are unknown, not nothing.
#[test]
fn what_depends_on_something_unread_is_unknown() {
    let seen = |resource: &str| {
        let missing = vec![spokeshave_view::Missing {
            resource: resource.to_owned(),
            message: "forbidden".to_owned(),
        }];
        let world = World {
            state: random_world(3),
            missing,
            now: epoch(),
            ..World::default()
        };
        view(&Judged::of(world, &Policy::default()), 1).header.unknown
    };
    assert_eq!(
        seen("nodeclaims.karpenter.sh"),
        ["price", "idle", "couldSave", "unmanaged"]
    );
    assert_eq!(
        seen("nodepools.karpenter.sh"),
        ["price", "idle", "couldSave", "pools"]
    );
    assert_eq!(seen("poddisruptionbudgets.policy"), ["couldSave"]);
    assert_eq!(seen("events"), [""; 0]);
}
