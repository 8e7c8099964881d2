//! Machines of a cloud that keeps its own books, of which no object of the API server tells: what is judged by them when the cloud is asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use spokeshave_api::NodeClaim;
use spokeshave_sim::invariants::Machine;

use super::stage::*;
use crate::words::Objects as _;

/// Clouds may say of a machine that was launched within so long that there is none.
const OLD: u64 = 120;

struct OnCloud {
    stage: Stage,
    machines: Arc<Mutex<Vec<Machine>>>,
}

fn at(name: &str) -> String {
    format!("aws:///us-east-1a/i-{name}")
}

impl OnCloud {
    /// A cluster with NodePool `p`, whose cloud has no machine yet.
    async fn new(limits: serde_json::Value) -> Self {
        let stage = Stage::new().await;
        stage.pool("p", limits).await;
        let machines = Arc::<Mutex<Vec<Machine>>>::default();
        let books = machines.clone();
        let census = move || books.lock().unwrap().clone();
        stage.lab.invariants.machines_are(Arc::new(census));
        Self { stage, machines }
    }

    /// NodeClaim `n` on a machine of some age, with its node.
    async fn with_node() -> Self {
        let it = Self::new(json!({})).await;
        it.claim("n", LIVE).await;
        it.stage.node_at("n", json!({}), &at("n")).await;
        it.stage.pass(OLD).await;
        it
    }

    async fn claim(&self, name: &str, conditions: &[&str]) {
        let claim = json!({
            "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "p"}, "finalizers": ["karpenter.sh/termination"]},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": []},
        });
        self.stage.create::<NodeClaim>(claim).await;
        let machine = Machine {
            id: format!("i-{name}"),
            launched_at: Some(self.stage.lab.clock.now()),
            ..Machine::default()
        };
        self.machines.lock().unwrap().push(machine);
        self.stage.is_at(name, conditions, &at(name)).await;
        self.stage.lab.invariants.ask_cloud();
    }

    /// What has become of the machine of `n`.
    fn happens(&self, what: &str) {
        let mut machines = self.machines.lock().unwrap();
        match what {
            "gone" => machines.clear(),
            "ending" => machines[0].is_ending = true,
            "taken back" => machines[0].is_taken_back = true,
            "warned" => machines[0].is_warned = true,
            _ => {}
        }
    }
}

const FATES: [&str; 5] = ["nothing", "gone", "ending", "taken back", "warned"];

#[tokio::test(start_paused = true)]
async fn invariant_8_pods_of_a_machine_that_stays_have_a_place() {
    for fate in FATES {
        let it = OnCloud::with_node().await;
        it.stage.pod("w", "n", json!({})).await;
        it.stage.pass(5).await;
        it.stage.command("c", "n", "Underutilized").await;
        it.stage.taint("n").await;
        it.stage.disrupt("n", "Underutilized").await;
        it.happens(fate);
        it.stage.delete_claim("n").await;
        if fate == "nothing" {
            it.stage.assert_broken(8, "node n");
        } else {
            it.stage.assert_silent();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_2_a_machine_that_stays_is_no_reason() {
    for fate in FATES {
        let it = OnCloud::with_node().await;
        it.happens(fate);
        it.stage.delete_claim("n").await;
        it.stage.pass(60).await;
        if fate == "nothing" {
            it.stage.assert_broken(2, "nodeclaim n");
        } else {
            it.stage.assert_silent();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_14_finalizers_go_after_the_machine() {
    for (is_gone, of_node) in [(false, false), (false, true), (true, false), (true, true)] {
        let it = OnCloud::with_node().await;
        if is_gone {
            it.happens("gone");
        } else {
            it.happens("ending");
        }
        let without = json!({"metadata": {"finalizers": null}});
        if of_node {
            it.stage.as_operator::<Node>("n", without).await;
        } else {
            it.stage.as_operator::<NodeClaim>("n", without).await;
        }
        if is_gone {
            it.stage.assert_silent();
        } else {
            it.stage
                .assert_broken(14, if of_node { "node n" } else { "nodeclaim n" });
        }
    }
}

/// A provider that has just started finds no machine that EC2 has just launched.
#[tokio::test(start_paused = true)]
async fn invariant_14_a_cloud_may_hide_what_it_has_just_launched() {
    let it = OnCloud::new(json!({})).await;
    it.claim("n", LIVE).await;
    it.stage.pass(10).await;
    let without = json!({"metadata": {"finalizers": null}});
    it.stage.as_operator::<NodeClaim>("n", without).await;
    it.stage.assert_silent();
}

#[tokio::test(start_paused = true)]
async fn invariant_31_an_operator_asks_for_no_end_under_pods() {
    for has_pods in [true, false] {
        let it = OnCloud::with_node().await;
        it.stage.pod("w", "n", json!({})).await;
        it.stage.pass(5).await;
        if !has_pods {
            it.stage
                .patch_status::<Pod>("w", json!({"phase": "Succeeded"}))
                .await;
        }
        it.stage.lab.invariants.ends("a", &at("n"));
        if has_pods {
            it.stage.assert_broken(31, "instance i-n");
        } else {
            it.stage.assert_silent();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_33_a_machine_that_is_taken_back_is_given_up_when_the_word_has_arrived() {
    let it = OnCloud::with_node().await;
    it.stage.pass(120).await;
    it.machines.lock().unwrap()[0].word_takes = Duration::from_secs(30);
    it.happens("taken back");
    it.stage.lab.invariants.ask_cloud();
    it.stage.pass(30).await;
    it.stage.assert_silent();
    it.stage.pass(20).await;
    it.stage.assert_broken(33, "nodeclaim n");
}

#[tokio::test(start_paused = true)]
async fn invariant_12_a_machine_registers_in_time_or_ends() {
    for fate in ["nothing", "ending"] {
        let it = OnCloud::new(json!({})).await;
        it.claim("n", &["Launched"]).await;
        it.happens(fate);
        it.stage.pass(19 * 60).await;
        it.stage.assert_silent();
        it.stage.pass(2 * 60).await;
        if fate == "nothing" {
            it.stage.assert_broken(12, "instance i-n");
        } else {
            it.stage.assert_silent();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn invariant_11_a_nodeclaim_has_the_machine_that_it_names() {
    let it = OnCloud::with_node().await;
    it.stage.pass(16 * 60).await;
    it.stage.assert_silent();
    it.happens("gone");
    it.stage.pass(5 * 60).await;
    it.stage.assert_broken(11, "nodeclaim n");
}

/// A limit is compared once it is known what a machine has.
#[tokio::test(start_paused = true)]
async fn invariant_15_limits_hold_for_machines_of_which_only_their_nodeclaims_tell() {
    let it = OnCloud::new(json!({"limits": {"cpu": "8"}})).await;
    for (name, cpu) in [("n", "8"), ("m", "1")] {
        it.claim(name, LIVE).await;
        it.stage
            .patch_status::<NodeClaim>(name, json!({"capacity": {"cpu": cpu}}))
            .await;
        if name == "n" {
            it.stage.lab.invariants.ask_cloud();
            it.stage.assert_silent();
        }
    }
    it.stage.lab.invariants.ask_cloud();
    it.stage.assert_broken(15, "instance i-m");
}
