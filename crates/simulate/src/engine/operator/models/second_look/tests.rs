//! What has to be as it was when a command of the model of Karpenter is looked at again.

use serde_json::json;
use spokeshave_example::instance_type;
use spokeshave_model::{InstanceType, Nomination};

use super::*;
use crate::engine::operator::models::worlds::{World, later, on_demand_pool, text, three_types};

/// The pod of `a` fits on `b`, which stays.
fn pair() -> World {
    World::new(
        on_demand_pool("default"),
        vec![instance_type("medium", 4, 8, &["a"])],
    )
    .node("a", "medium")
    .pod("p", "a", "1")
    .node("b", "medium")
    .firm_pod("firm", "b", "1")
}

/// A large node for whose pod a medium one would do.
fn replaceable(types: Vec<InstanceType>) -> World {
    World::new(on_demand_pool("default"), types)
        .node("a", "large")
        .pod("p", "a", "3")
}

fn looked(command: &Command, later: &World) -> Result<String, Rejection> {
    let found = second_look(command, &later.snapshot(), &later.settings, later.now());
    found.map(|command| text(&command))
}

#[test]
fn d_087_a_command_stands_while_nothing_has_changed() {
    for mut world in [pair(), replaceable(three_types())] {
        let command = world.command();
        assert_eq!(looked(&command, &world), Ok(text(&command)));
        let again = second_look(&command, &world.snapshot(), &world.settings, world.now());
        assert_eq!(again, Ok(command));
    }
}

#[test]
fn d_088_d_092_every_node_has_to_be_a_candidate_yet() {
    let command = pair().command();
    let protected = pair().annotate_pod("p", "karpenter.sh/do-not-disrupt", "true");
    assert_eq!(looked(&command, &protected), Err(Rejection::Churn));
    let empty = pair().edit_pod("p", |pod| pod.node_name = Some("b".to_owned()));
    assert_eq!(looked(&command, &empty), Err(Rejection::Churn));
    let namesake = pair().edit_claim("a", |claim| claim.metadata.uid = Some("another".to_owned()));
    assert_eq!(looked(&command, &namesake), Err(Rejection::Churn));
    let mut nominated = pair();
    let nomination = Nomination { until: later(20) };
    let nominations = &mut nominated.state.nominations;
    nominations.insert("kwok://a".to_owned(), nomination);
    assert_eq!(looked(&command, &nominated), Err(Rejection::Budget));
    let closed = pair().budgets(&json!([{"nodes": "0"}]));
    assert_eq!(looked(&command, &closed), Err(Rejection::Budget));
}

/// One of the two nodes is no candidate any more.
#[test]
fn d_088_a_set_stands_as_a_whole_or_not_at_all() {
    let two = || pair().node("c", "medium").pod("q", "c", "1");
    let command = two().command();
    assert_eq!(text(&command), "MultiNodeConsolidation delete [a, c]");
    let firm = two().annotate_pod("q", "karpenter.sh/do-not-disrupt", "true");
    assert_eq!(looked(&command, &firm), Err(Rejection::Churn));
    let fewer = two().budgets(&json!([{"nodes": "1"}]));
    assert_eq!(looked(&command, &fewer), Err(Rejection::Budget));
}

#[test]
fn d_089_empty_nodes_go_without_those_that_are_no_longer_empty() {
    let empty = || World::on_demand().node("a", "medium").node("b", "medium");
    let command = empty().command();
    assert_eq!(text(&command), "Emptiness delete [a, b]");
    let one = empty().pod("p", "b", "1");
    let left = Ok("Emptiness delete [a]".to_owned());
    assert_eq!(looked(&command, &one), left);
    let fewer = empty().budgets(&json!([{"nodes": "1"}]));
    assert_eq!(looked(&command, &fewer), left);
    let none = one.pod("q", "a", "1");
    assert_eq!(looked(&command, &none), Err(Rejection::Churn));
}

/// Others have taken the room: a delete would need a node, and a replacement none.
#[test]
fn d_090_as_many_nodes_have_to_come_as_were_decided() {
    let command = pair().command();
    let full = pair().pod("other", "b", "2500m");
    assert_eq!(looked(&command, &full), Err(Rejection::Scheduling));
    let command = replaceable(three_types()).command();
    let roomy = replaceable(three_types())
        .node("b", "large")
        .firm_pod("firm", "b", "1");
    assert_eq!(looked(&command, &roomy), Err(Rejection::Scheduling));
}

#[test]
fn d_090_types_have_to_be_there_and_prices_are_not_compared_again() {
    let command = replaceable(three_types()).command();
    assert_eq!(text(&command), "SingleNodeConsolidation replace [a] by medium");
    let mut dearer = three_types();
    for offering in &mut dearer[1].offerings {
        offering.price = "9".parse().unwrap();
    }
    // Another type has come before it: what is launched is what was chosen all the same.
    dearer.insert(1, instance_type("little", 3, 6, &["a"]));
    assert_eq!(looked(&command, &replaceable(dearer)), Ok(text(&command)));
    let mut gone = three_types();
    gone.remove(1);
    assert_eq!(looked(&command, &replaceable(gone)), Err(Rejection::Scheduling));
}
