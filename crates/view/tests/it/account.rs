//! The account of the price: every change of it is in one sum, and all of them are the price.

use crate::ledger::command;
use serde_json::json;
use spokeshave_api::disruption::{DisruptedNode, Disruption};
use spokeshave_api::labels::DISRUPTION;
use spokeshave_example::{Dice, epoch, instance_type, node, node_pool, random_world};
use spokeshave_model::{ClusterState, InstanceType, Price};
use spokeshave_plan::Policy;
use spokeshave_plan::in_flight::{Room, stand_in};
use spokeshave_view::{Account, Header, History, Judged, Ledger, Missing, Sums, View, World};
use std::sync::Arc;

/// What a node of each type costs on demand.
const SMALL: i64 = 110_000_000;
const LARGE: i64 = 320_000_000;

/// One who looks again and again. What is told must add up each time.
#[derive(Default)]
struct Looker {
    ledger: Ledger,
    history: History,
}

impl Looker {
    fn look(&mut self, state: ClusterState, disruptions: &[Arc<Disruption>]) -> [i64; 6] {
        let header = self.look_at(state, disruptions, None);
        parts(header.account.expect("all of it is known"))
    }

    /// The same where a resource cannot be read.
    fn look_at(
        &mut self,
        state: ClusterState,
        disruptions: &[Arc<Disruption>],
        missing: Option<&str>,
    ) -> Header {
        let missing = missing.map(|resource| Missing {
            resource: resource.to_owned(),
            message: "forbidden".to_owned(),
        });
        let world = World {
            state,
            disruptions: disruptions.to_vec(),
            missing: missing.into_iter().collect(),
            now: epoch(),
            ..World::default()
        };
        let judged = Judged::of(world, &Policy::default());
        let header = View::take(&judged, &mut self.ledger, &mut self.history, 1).header;
        if let Some(account) = &header.account {
            assert_eq!(account.price(), header.price.0, "{account:?}");
        }
        header
    }

    fn sums(&self) -> Sums {
        self.ledger.sums()
    }
}

/// Then, launched, replacements, ended by commands, ended otherwise, repriced.
fn parts(account: Account) -> [i64; 6] {
    let parts = [
        account.price_then,
        account.launched,
        account.replacements,
        account.ended_by_commands,
        account.ended_otherwise,
        account.repriced,
    ];
    parts.map(|part| part.0.0)
}

fn small() -> InstanceType {
    instance_type("small", 2, 8, &["a"])
}

fn large() -> InstanceType {
    instance_type("large", 8, 16, &["a"])
}

/// Nodes by name and type; one of `x@1` has come as a replacement of command 1.
fn cluster(nodes: &[(&str, &InstanceType)]) -> ClusterState {
    let mut state = ClusterState::default().with_pool(node_pool("default"), vec![small(), large()]);
    for (text, kind) in nodes {
        let (name, command) = text.split_once('@').unwrap_or((*text, ""));
        let mut built = node("default", name, kind, "a", "on-demand");
        if !command.is_empty() {
            let annotations = built.1.metadata.annotations.get_or_insert_default();
            annotations.insert(DISRUPTION.to_owned(), format!("d{command}"));
        }
        state = state.with_node(built);
    }
    state
}

/// The same where only the prices of these types are known.
fn knowing(mut state: ClusterState, kinds: &[InstanceType]) -> ClusterState {
    let types = state.instance_types.values_mut();
    for list in types.filter_map(|types| types.as_mut().ok()) {
        *list = kinds.to_vec().into();
    }
    state
}

/// A command in a phase that takes nodes away, and has one come or none.
fn taking(number: i64, nodes: &[&str], replacement: Option<&str>, phase: &str) -> Arc<Disruption> {
    let replacement = replacement.map(|name| format!("claim-{name}"));
    let mut taking = Disruption::clone(&command(number, "1", "1", replacement.as_deref(), phase));
    let nodes = nodes.iter().map(|name| DisruptedNode {
        name: (*name).to_owned(),
        node_claim: format!("claim-{name}"),
        provider_id: format!("kwok://{name}"),
        ..DisruptedNode::default()
    });
    taking.spec.nodes = nodes.collect();
    Arc::new(taking)
}

#[test]
fn capability_21_each_change_of_the_price_is_in_one_sum() {
    let (small, large) = (small(), large());
    let mut looker = Looker::default();
    let mut now = cluster(&[("a", &small), ("b", &large)]);
    let then = SMALL + LARGE;
    assert_eq!(looker.look(now, &[]), [then, 0, 0, 0, 0, 0]);
    // A node for pods.
    now = cluster(&[("a", &small), ("b", &large), ("c", &small)]);
    assert_eq!(looker.look(now, &[]), [then, SMALL, 0, 0, 0, 0]);
    // A command has a node come, whose NodeClaim is seen first, and another one go.
    now = cluster(&[("a", &small), ("b", &large), ("c", &small), ("x@1", &small)]);
    assert_eq!(looker.look(now.clone(), &[]), [then, SMALL, SMALL, 0, 0, 0]);
    let replacing = taking(1, &["b"], Some("x"), "Replacing");
    assert_eq!(looker.look(now, &[replacing]), [then, SMALL, SMALL, 0, 0, 0]);
    now = cluster(&[("a", &small), ("c", &small), ("x@1", &small)]);
    let draining = taking(1, &["b"], Some("x"), "Draining");
    let moved = [then, SMALL, SMALL, LARGE, 0, 0];
    assert_eq!(looker.look(now.clone(), &[draining]), moved);
    let done = taking(1, &["b"], Some("x"), "Succeeded");
    assert_eq!(looker.look(now.clone(), &[done]), moved);
    // What is forgotten stays as it is, also when what it had brought goes.
    assert_eq!(looker.look(now, &[]), moved);
    now = cluster(&[("a", &small)]);
    let gone = [then, SMALL, SMALL, LARGE, 2 * SMALL, 0];
    assert_eq!(looker.look(now, &[]), gone);
    // The same machine costs three times as much.
    let mut dear = small.clone();
    for offering in &mut dear.offerings {
        offering.price = Price(3 * offering.price.0);
    }
    now = ClusterState::default()
        .with_pool(node_pool("default"), vec![dear])
        .with_node(node("default", "a", &small, "a", "on-demand"));
    let repriced = [then, SMALL, SMALL, LARGE, 2 * SMALL, 2 * SMALL];
    assert_eq!(looker.look(now, &[]), repriced);
}

/// A command that is rolled back has saved nothing: what came for it was launched, and what went meanwhile has gone by itself.
#[test]
fn capability_21_what_a_command_has_moved_that_is_rolled_back_is_not_its_own() {
    let (small, large) = (small(), large());
    for is_deleted in [false, true] {
        let mut looker = Looker::default();
        looker.look(cluster(&[("a", &large), ("b", &large)]), &[]);
        let replacing = taking(1, &["a", "b"], Some("x"), "Replacing");
        let now = cluster(&[("b", &large), ("x@1", &small)]);
        // Until that is known, it counts as its own.
        let told = looker.look(now.clone(), &[replacing]);
        assert_eq!(told, [2 * LARGE, 0, SMALL, LARGE, 0, 0]);
        let rolled_back = taking(1, &["a", "b"], Some("x"), "RolledBack");
        let listed = if is_deleted { vec![] } else { vec![rolled_back] };
        let told = looker.look(now, &listed);
        assert_eq!(told, [2 * LARGE, SMALL, 0, 0, LARGE, 0], "{is_deleted}");
        assert_eq!(looker.sums(), Sums::default());
        // Neither is its node that goes later, nor its replacement.
        let told = looker.look(cluster(&[]), &listed);
        assert_eq!(told, [2 * LARGE, SMALL, 0, 0, 2 * LARGE + SMALL, 0]);
        // Another command that names the same node is one of its own.
        let other = taking(2, &["b"], None, "Draining");
        let mut looker = Looker::default();
        let listed = [taking(1, &["b"], None, "RolledBack"), other];
        looker.look(cluster(&[("b", &large)]), &listed);
        assert_eq!(looker.look(cluster(&[]), &listed), [LARGE, 0, 0, LARGE, 0, 0]);
    }
}

/// The object of a command may be deleted while its nodes drain: they go by it all the same.
#[test]
fn capability_21_a_node_whose_command_is_not_there_any_more_has_gone_by_it() {
    let large = large();
    let mut looker = Looker::default();
    let now = cluster(&[("a", &large)]);
    looker.look(now.clone(), &[taking(1, &["a"], None, "Draining")]);
    looker.look(now, &[]);
    assert_eq!(looker.look(cluster(&[]), &[]), [LARGE, 0, 0, LARGE, 0, 0]);
}

/// A program that begins in the middle of a command counts its replacement as one, so that what the command saves is not more than it does.
#[test]
fn capability_21_a_restart_in_mid_command_claims_no_more_than_it_saves() {
    let (small, large) = (small(), large());
    let mut looker = Looker::default();
    let now = cluster(&[("b", &large), ("x@2", &small), ("y@1", &small)]);
    // Of the command that had ended before, nothing is known but that its node is there.
    let listed = |phase: &str| {
        let before = taking(1, &["a"], Some("y"), "Succeeded");
        vec![before, taking(2, &["b"], Some("x"), phase)]
    };
    let told = looker.look(now, &listed("Replacing"));
    assert_eq!(told, [LARGE + SMALL, 0, SMALL, 0, 0, 0]);
    let now = cluster(&[("x@2", &small), ("y@1", &small)]);
    let told = looker.look(now, &listed("Succeeded"));
    assert_eq!(told, [LARGE + SMALL, 0, SMALL, LARGE, 0, 0]);
}

/// Nor does one that finds out the price of the replacement only later.
#[test]
fn capability_21_a_replacement_whose_price_is_found_out_after_a_restart_is_one() {
    let (small, large) = (small(), large());
    let mut looker = Looker::default();
    let now = cluster(&[("b", &small), ("x@1", &large)]);
    let unpriced = knowing(now.clone(), std::slice::from_ref(&small));
    let replacing = [taking(1, &["b"], Some("x"), "Replacing")];
    assert_eq!(looker.look(unpriced, &replacing), [SMALL, 0, 0, 0, 0, 0]);
    assert_eq!(looker.look(now, &replacing), [SMALL, 0, LARGE, 0, 0, 0]);
    let done = [taking(1, &["b"], Some("x"), "Succeeded")];
    let told = looker.look(cluster(&[("x@1", &large)]), &done);
    assert_eq!(told, [SMALL, 0, LARGE, SMALL, 0, 0]);
}

/// What happens while something cannot be read is found out later; what nobody can tell is not told.
#[test]
fn capability_21_an_account_without_prices_or_commands_is_none() {
    let (small, large) = (small(), large());
    let mut looker = Looker::default();
    let now = cluster(&[("a", &small), ("b", &large)]);
    looker.look(now.clone(), &[]);
    let mut unclaimed = now.clone();
    unclaimed.node_claims.clear();
    for (state, missing) in [
        (unclaimed, "nodeclaims.karpenter.sh"),
        (now.clone(), "nodepools.karpenter.sh"),
        (cluster(&[("a", &small)]), "disruptions.spokeshave.dev"),
    ] {
        let header = looker.look_at(state, &[], Some(missing));
        assert_eq!(header.account, None, "{missing}");
    }
    let header = looker.look_at(knowing(now, &[]), &[], None);
    assert_eq!((header.account, header.nodes_without_price), (None, 2));
    let done = taking(1, &["b"], None, "Succeeded");
    let told = looker.look(cluster(&[("a", &small), ("c", &small)]), &[done]);
    assert_eq!(told, [SMALL + LARGE, SMALL, 0, LARGE, 0, 0]);
}

/// A node whose price is found out only later has cost it from the beginning, or from when it came.
#[test]
fn capability_21_a_price_that_is_found_out_later_is_accounted_for() {
    let (small, large) = (small(), large());
    let mut looker = Looker::default();
    let without_large =
        |nodes: &[(&str, &InstanceType)]| knowing(cluster(nodes), std::slice::from_ref(&small));
    let told = looker.look(without_large(&[("a", &small), ("b", &large)]), &[]);
    assert_eq!(told, [SMALL, 0, 0, 0, 0, 0]);
    let nodes: &[(&str, &InstanceType)] = &[("a", &small), ("b", &large), ("c", &large)];
    let told = looker.look(without_large(nodes), &[]);
    assert_eq!(told, [SMALL, 0, 0, 0, 0, 0]);
    let known = [SMALL, LARGE, 0, 0, 0, LARGE];
    assert_eq!(looker.look(cluster(nodes), &[]), known);
    // It is not in the price while nobody knows it.
    let told = looker.look(without_large(nodes), &[]);
    assert_eq!(told, [SMALL, LARGE, 0, 0, 0, -LARGE]);
    assert_eq!(looker.look(cluster(nodes), &[]), known);
}

/// What a launch has been asked for is on no bill yet, whatever it will cost.
#[test]
fn capability_21_what_is_not_launched_yet_costs_nothing() {
    let small = small();
    let mut looker = Looker::default();
    looker.look(cluster(&[]), &[]);
    let mut coming = cluster(&[]);
    let (_, mut claim) = node("default", "n", &small, "a", "on-demand");
    claim.status = None;
    let claim = stand_in(&claim, std::slice::from_ref(&small), Room::Taken);
    coming.node_claims.push(Arc::new(claim));
    let header = looker.look_at(coming, &[], None);
    let nothing = Price::ZERO;
    assert_eq!((header.nodes, header.coming), (1, 1));
    assert_eq!((header.price.0, header.idle.0), (nothing, nothing));
    assert_eq!(header.nodes_without_price, 0, "nor is it unknown");
    assert_eq!(header.account.map(parts), Some([0; 6]));
    let told = looker.look(cluster(&[("n", &small)]), &[]);
    assert_eq!(told, [0, SMALL, 0, 0, 0, 0]);
}

/// Whatever happens between two looks, and whatever is said of commands: nothing of the price is left unexplained.
#[test]
fn capability_21_the_sums_are_the_price_whatever_happens() {
    let mut looker = Looker::default();
    let (mut told, mut moved) = (0, 0);
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let mut state = random_world(seed);
        for claim in &mut state.node_claims {
            if dice.below(3) == 0 {
                let annotations = Arc::make_mut(claim).metadata.annotations.get_or_insert_default();
                annotations.insert(DISRUPTION.to_owned(), format!("d{}", dice.below(20)));
            }
        }
        let phases = ["Starting", "Replacing", "Draining", "Succeeded", "RolledBack"];
        let commands = (0..20).filter_map(|number| {
            let named = format!("node-{:02}", dice.below(12));
            let phase = dice.pick(&phases);
            let is_there = dice.below(4) > 0;
            is_there.then(|| taking(number, &[&named], None, phase))
        });
        let commands: Vec<Arc<Disruption>> = commands.collect();
        let header = looker.look_at(state, &commands, None);
        told += usize::from(header.account.is_some());
        moved += usize::from(header.account.is_some_and(|account| parts(account)[3] > 0));
    }
    assert!(
        told > 250 && moved > 200,
        "{told} accounts, {moved} with commands"
    );
}

/// However many commands there were, only those under way and the machines that there are take room.
#[test]
fn capability_21_the_account_takes_no_more_room_with_time() {
    let small = small();
    let mut looker = Looker::default();
    let mut sizes = Vec::new();
    for round in 101..701_i64 {
        let old = format!("n{}@{}", round - 1, round - 1);
        let new = format!("n{round}@{round}");
        let nodes = [(old.as_str(), &small), (new.as_str(), &small)];
        let gone = format!("n{}", round - 2);
        let done = taking(round, &[&gone], None, "Succeeded");
        looker.look(cluster(&nodes), &[done]);
        if [400, 700].contains(&round) {
            sizes.push(format!("{:?}", looker.ledger).len());
        }
    }
    assert!(sizes[1] < sizes[0] + 200, "{sizes:?}");
}

/// As JSON: dollars per hour, by name.
#[test]
fn capability_21_the_account_is_part_of_the_header() {
    let mut looker = Looker::default();
    let header = looker.look_at(cluster(&[("a", &small())]), &[], None);
    let account = serde_json::to_value(&header).expect("it is JSON")["account"].clone();
    let expected = json!({
        "since": "2026-01-01T00:00:00Z", "priceThen": 0.11, "launched": 0.0, "replacements": 0.0,
        "endedByCommands": 0.0, "endedOtherwise": 0.0, "repriced": 0.0,
    });
    assert_eq!(account, expected);
}
