//! A place for every pod of a command (8): room on one node, room for all of them together, and neighbours.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

use super::stage::*;
use crate::words::Objects as _;

/// A stage with these nodes, each with one pod that asks for so many of its four CPUs.
async fn with_pods(nodes: &[(&str, &str)]) -> Stage {
    let stage = Stage::new().await;
    stage.pool("p", json!({})).await;
    for (node, cpu) in nodes {
        stage.live_node(node).await;
        if *cpu != "0" {
            stage.pod(&format!("on-{node}"), node, asking(cpu)).await;
        }
    }
    stage.pass(5).await;
    stage
}

/// As an operator chooses nodes: the command is written down, then they are tainted.
async fn choose(stage: &Stage, nodes: &[&str]) {
    stage.command_of("c", nodes, "Underutilized").await;
    for node in nodes {
        stage.taint(node).await;
        stage.disrupt(node, "Underutilized").await;
    }
}

/// Whoever looks at one node after the other finds room for each.
#[tokio::test(start_paused = true)]
async fn invariant_8_nodes_of_one_command_have_places_for_all_of_their_pods() {
    for is_short in [true, false] {
        let rest = if is_short { "3" } else { "0" };
        let stage = with_pods(&[("a", "4"), ("b", "4"), ("free", "0"), ("rest", rest)]).await;
        choose(&stage, &["a", "b"]).await;
        stage.delete_claim("a").await;
        if is_short {
            stage.assert_broken(8, "node a");
        } else {
            stage.assert_silent();
            stage.delete_claim("b").await;
            stage.assert_silent();
        }
    }
}

/// There is enough in all, and nowhere enough at once.
#[tokio::test(start_paused = true)]
async fn invariant_8_a_pod_has_room_on_one_node() {
    for most in ["3100m", "1"] {
        let stage = with_pods(&[
            ("a", "3"),
            ("b", "3100m"),
            ("c", "3100m"),
            ("d", "3100m"),
            ("e", most),
        ])
        .await;
        choose(&stage, &["a"]).await;
        stage.delete_claim("a").await;
        if most == "1" {
            stage.assert_silent();
        } else {
            stage.assert_broken(8, "node a");
        }
    }
}

/// A node of the stage takes ten pods, however small they are.
#[tokio::test(start_paused = true)]
async fn invariant_8_the_number_of_pods_is_room_as_well() {
    for number in [9, 10] {
        let stage = with_pods(&[("a", "1"), ("b", "0")]).await;
        for index in 0..number {
            stage.pod(&format!("small-{index}"), "b", asking("10m")).await;
        }
        stage.pass(5).await;
        choose(&stage, &["a"]).await;
        stage.delete_claim("a").await;
        if number == 9 {
            stage.assert_silent();
        } else {
            stage.assert_broken(8, "node a");
        }
    }
}

/// What others do with the room is not held against whoever counted on it.
#[tokio::test(start_paused = true)]
async fn invariant_8_room_is_counted_as_it_was_known_when_the_node_was_chosen() {
    for taken in ["before", "after", "by one that leaves"] {
        let stage = with_pods(&[("a", "3"), ("b", "0")]).await;
        if taken != "after" {
            stage.pod("taker", "b", asking("2")).await;
            stage.pass(5).await;
        }
        choose(&stage, &["a"]).await;
        if taken == "after" {
            stage.pod("taker", "b", asking("2")).await;
        }
        if taken == "by one that leaves" {
            stage.delete::<Pod>("taker").await;
        }
        stage.pass(20).await;
        stage.delete_claim("a").await;
        if taken == "before" {
            stage.assert_broken(8, "node a");
        } else {
            stage.assert_silent();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_8_who_sees_nothing_when_a_node_is_chosen_counts_on_the_room_of_before() {
    for is_blind in [true, false] {
        let mut stage = with_pods(&[("a", "3"), ("b", "0")]).await;
        stage.pass(120).await;
        if is_blind {
            stage.lab.weather("a").hold_watches(Duration::from_secs(60));
        }
        stage.pass(5).await;
        stage.pod("taker", "b", asking("2")).await;
        stage.pass(10).await;
        choose(&stage, &["a"]).await;
        // It lasts until a replacement is up.
        stage.pass(180).await;
        stage.delete_claim("a").await;
        if is_blind {
            stage.assert_silent();
        } else {
            stage.assert_broken(8, "node a");
        }
    }
}

/// A user cordons the one node with room, another being there that is full.
#[tokio::test(start_paused = true)]
async fn invariant_8_a_node_counts_until_it_is_known_that_it_takes_no_pods() {
    for seconds in [10, 120] {
        let stage = with_pods(&[("a", "3"), ("b", "0"), ("full", "4")]).await;
        choose(&stage, &["a"]).await;
        stage
            .patch::<Node>("b", json!({"spec": {"unschedulable": true}}))
            .await;
        stage.pass(seconds).await;
        stage.delete_claim("a").await;
        if seconds == 10 {
            stage.assert_silent();
        } else {
            stage.assert_broken(8, "node a");
        }
    }
}

/// That another node goes for the same command excuses nothing.
#[tokio::test(start_paused = true)]
async fn invariant_8_neighbours_are_minded_when_several_nodes_go() {
    for is_shy in [true, false] {
        let stage = with_pods(&[("b", "1"), ("target", "1")]).await;
        stage.live_node("a").await;
        let away =
            json!([{"topologyKey": "karpenter.sh/nodepool", "labelSelector": {"matchLabels": {"app": "w"}}}]);
        let mut pod = asking("1");
        pod["metadata"] = json!({"labels": {"app": "shy"}});
        if is_shy {
            pod["spec"]["affinity"] =
                json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": away}});
        }
        stage.pod("shy", "a", pod).await;
        stage.pass(5).await;
        choose(&stage, &["a", "b"]).await;
        stage.delete_claim("a").await;
        if is_shy {
            stage.assert_broken(8, "node a");
        } else {
            stage.assert_silent();
        }
    }
}

/// Whoever keeps a fixed number of nodes replaces one for one, and looks for no places.
#[tokio::test(start_paused = true)]
async fn invariant_8_commands_of_nodepools_with_a_fixed_number_of_nodes_look_for_no_places() {
    for method in ["StaticDrift", "Drift"] {
        let stage = with_pods(&[("a", "3"), ("b", "3")]).await;
        stage.command_by(method, "c", &["a"], "Drifted").await;
        stage.taint("a").await;
        stage.disrupt("a", "Drifted").await;
        stage.delete_claim("a").await;
        if method == "StaticDrift" {
            stage.assert_silent();
        } else {
            stage.assert_broken(8, "node a");
        }
    }
}
