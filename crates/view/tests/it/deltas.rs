//! What a stream tells is all that has changed: the old view with it is the new one, as JSON, as a program that follows the stream puts them together.

use crate::ledger::command;
use serde_json::{Value, json};
use spokeshave_api::disruption::Disruption;
use spokeshave_example::{epoch, random_world};
use spokeshave_model::ClusterState;
use spokeshave_plan::Policy;
use spokeshave_view::{History, Judged, Ledger, View, World};
use std::collections::BTreeMap;
use std::sync::Arc;

fn look(state: ClusterState, disruptions: Vec<Arc<Disruption>>, ledger: &mut Ledger, revision: u64) -> View {
    let world = World {
        state,
        disruptions,
        now: epoch() + jiff::SignedDuration::from_mins(5),
        ..World::default()
    };
    let judged = Judged::of(world, &Policy::default());
    View::take(&judged, ledger, &mut History::default(), revision)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// The columns of a view as rows by name, with texts and reasons written out, as changes have them.
fn rows(nodes: &Value) -> BTreeMap<String, Value> {
    let position = |value: &Value| value.as_u64().expect("a position") as usize;
    let cell = |name: &str, column: &Value, at: usize| {
        let of = &column["of"][at];
        if column["of"].is_array() {
            return match of {
                Value::Null => Value::Null,
                of => column["values"][position(of)].clone(),
            };
        }
        if name != "reasons" {
            return column[at].clone();
        }
        let reasons = list(&column[at]).iter();
        reasons
            .map(|reason| nodes["reasonTable"][position(reason)].clone())
            .collect()
    };
    let columns = nodes.as_object().expect("columns");
    let row = |(at, name): (usize, &Value)| {
        let columns = columns.iter().filter(|(name, _)| *name != "reasonTable");
        let cells = columns.map(|(name, column)| (name.clone(), cell(name, column, at)));
        (text(name).to_owned(), Value::Object(cells.collect()))
    };
    list(&nodes["name"]).iter().enumerate().map(row).collect()
}

/// A view in which nodes are rows, without its history: changes do not tell that.
fn plain(view: &View) -> Value {
    let mut json = serde_json::to_value(view).expect("JSON");
    let nodes = rows(&json["nodes"]);
    json["nodes"] = Value::Object(nodes.into_iter().collect());
    json["history"] = Value::Null;
    json
}

/// The old view with what has changed.
fn folded(mut view: Value, changes: &Value) -> Value {
    assert_eq!(view["revision"], changes["from"]);
    for part in ["revision", "header"] {
        view[part] = changes[part].clone();
    }
    for part in ["pending", "budgets"] {
        if !changes[part].is_null() {
            view[part] = changes[part].clone();
        }
    }
    let nodes = view["nodes"].as_object_mut().expect("rows");
    for name in list(&changes["nodes"]["gone"]) {
        let gone = nodes.remove(text(name));
        assert!(gone.is_some(), "{name} was there");
    }
    for row in list(&changes["nodes"]["changed"]) {
        nodes.insert(text(&row["name"]).to_owned(), row.clone());
    }
    let mut commands = list(&view["commands"]).to_vec();
    let (gone, changed) = (list(&changes["commandsGone"]), list(&changes["commands"]));
    commands.retain(|one| {
        let is_named = |other: &Value| other["name"] == one["name"];
        !gone.contains(&one["name"]) && !changed.iter().any(is_named)
    });
    commands.extend(changed.iter().cloned());
    commands.sort_by(|left, right| text(&left["decided"]).cmp(text(&right["decided"])));
    view["commands"] = commands.into();
    view
}

/// Another world after the one of a seed: one with another budget, one with a pod less, the same, or quite another one.
fn next(seed: u64, state: &ClusterState) -> ClusterState {
    let mut next = state.clone();
    match seed % 4 {
        0 => {
            let pool = next.node_pools.first_mut().expect("each world has one");
            let budget = serde_json::from_value(json!({"nodes": "7"})).expect("a budget");
            Arc::make_mut(pool).spec.disruption.budgets = Some(vec![budget]);
        }
        1 => drop(next.pods.pop()),
        2 => {}
        _ => next = random_world(seed + 1),
    }
    next
}

/// So many commands, of which the last is under way.
fn commands(count: i64) -> Vec<Arc<Disruption>> {
    let phase = |number: i64| {
        if number == count { "Draining" } else { "Succeeded" }
    };
    let numbers = 1..=count;
    numbers
        .map(|number| command(number, "0.5", "0.2", None, phase(number)))
        .collect()
}

#[test]
fn an_old_view_with_a_whole_delta_is_the_new_one() {
    let mut seen = [0; 10];
    for seed in 0..50 {
        let (state, mut ledger) = (random_world(seed), Ledger::default());
        let (first, second) = match seed % 5 {
            // The oldest make room for the newest.
            0 => (198, 203),
            1 => (3, 3),
            _ => (2, 4),
        };
        let later = next(seed, &state);
        let old = look(state, commands(first), &mut ledger, 1);
        let new = look(later, commands(second), &mut ledger, 2);
        let changes = serde_json::to_value(new.changes(&old)).expect("JSON");
        let expected = plain(&new);
        assert_eq!(folded(plain(&old), &changes), expected, "seed {seed}");
        let (nodes, count) = (&changes["nodes"], |value: &Value| list(value).len());
        let told = count(&nodes["changed"]);
        let kinds = [
            told,
            count(&nodes["gone"]),
            new.nodes.0.len() - told,
            usize::from(changes["pending"].is_null()),
            usize::from(!changes["pending"].is_null()),
            usize::from(changes["budgets"].is_null()),
            usize::from(!changes["budgets"].is_null()),
            count(&changes["commands"]),
            count(&changes["commandsGone"]),
            new.commands.len() - count(&changes["commands"]),
        ];
        seen.iter_mut().zip(kinds).for_each(|(sum, kind)| *sum += kind);
    }
    // Each part has changed and has stayed as it was.
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}
