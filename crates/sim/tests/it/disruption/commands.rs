//! The lifecycle of commands, whatever happens to nodes, operators, clocks and definitions on the way; and the ledger of them.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use spokeshave_api::NodeClaim;
use spokeshave_api::disruption::{Disruption, DisruptionPhase, RollBackCause};
use spokeshave_provider_kwok::KwokOptions;

use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

#[tokio::test(start_paused = true)]
async fn a_node_deleted_or_cordoned_by_hand_in_mid_command() {
    for by_hand in ["delete node", "delete nodeclaim", "cordon", "delete disruption"] {
        let cluster = Cluster::new(17, at_once()).await;
        let _operator = cluster.operator();
        one_large_node(&cluster).await;
        let (node, claim) = (
            cluster.names::<Node>().await.remove(0),
            cluster.names::<NodeClaim>().await.remove(0),
        );
        without_large(&cluster).await;
        until_replacing(&cluster).await;
        match by_hand {
            "delete node" => cluster.delete::<Node>(&node).await,
            "delete nodeclaim" => cluster.delete::<NodeClaim>(&claim).await,
            "delete disruption" => {
                let name = cluster.names::<Disruption>().await.remove(0);
                cluster.delete::<Disruption>(&name).await;
            }
            _ => {
                cluster
                    .patch::<Node>(&node, json!({"spec": {"unschedulable": true}}))
                    .await;
            }
        }
        cluster
            .until(
                &format!("one small node in spite of: {by_hand}"),
                on_one_small_node,
            )
            .await;
        cluster.pass(60).await;
        cluster.assert_at_rest().await;
        assert!(on_one_small_node(&cluster).await, "{by_hand}");
    }
}

/// Scenario 14: a replacement that never registers rolls the command back; the node is kept unchanged, and what was launched is removed.
#[tokio::test(start_paused = true)]
async fn g_1_14_d_115_d_116_d_117_w_50_a_replacement_that_never_registers() {
    let cluster = Cluster::new(18, at_once()).await;
    let first = cluster.operator();
    one_large_node(&cluster).await;
    first.kill().await;
    let broken = cluster.operator_with(never_registers());
    let start = cluster.clock.now();
    without_large(&cluster).await;
    cluster
        .until("the command is rolled back", async |cluster| {
            cluster.ended("Underutilized", DisruptionPhase::RolledBack).await == 1
        })
        .await;
    assert!(cluster.clock.since(start) >= Duration::from_secs(600), "D-114");
    cluster.pass(10).await;
    assert_eq!((cluster.running().await, cores(&cluster).await), (1, vec![8]));
    cluster.assert_at_rest().await;
    let text = broken.metrics.render();
    let failures = "karpenter_voluntary_disruption_queue_failures_total{consolidation_type=\"single\",decision=\"replace\",reason=\"underutilized\"} 1";
    assert!(text.lines().any(|line| line == failures), "D-117");
    broken.kill().await;
    let _whole = cluster.operator();
    cluster.until("one small node", on_one_small_node).await;
}

/// A replacement whose launch fails until its NodeClaim is deleted (D-263) ends the command with it, minutes before the command's own time limit.
#[tokio::test(start_paused = true)]
async fn d_270_a_replacement_that_is_given_up_takes_its_command_along() {
    let cluster = Cluster::new(22, at_once()).await;
    let first = cluster.operator();
    one_large_node(&cluster).await;
    first.kill().await;
    let _broken = cluster.operator_with(KwokOptions {
        launch_errors: "1.0".parse().unwrap(),
        ..KwokOptions::default()
    });
    without_large(&cluster).await;
    until_replacing(&cluster).await;
    let took = cluster
        .until("the command is rolled back", async |cluster| {
            cluster.ended("Underutilized", DisruptionPhase::RolledBack).await == 1
        })
        .await;
    assert!((280..=400).contains(&took.as_secs()), "{took:?}");
    assert_eq!((cluster.running().await, cores(&cluster).await), (1, vec![8]));
}

/// An admission policy: of the writes that the rule names, those are denied for which the expression is not true.
async fn guard(cluster: &Cluster, rule: Value, expression: &str) {
    let validation = json!({"expression": expression, "message": "not in this house"});
    let policy = json!({"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]});
    let _: ValidatingAdmissionPolicy = cluster
        .create(json!({"metadata": {"name": "guard"}, "spec": policy}))
        .await;
    let binding = json!({"policyName": "guard", "validationActions": ["Deny"]});
    let _: ValidatingAdmissionPolicyBinding = cluster
        .create(json!({"metadata": {"name": "guard"}, "spec": binding}))
        .await;
}

/// A guard that denies the NodeClaims of replacements.
async fn deny_replacements(cluster: &Cluster) {
    let rule = json!({"apiGroups": ["karpenter.sh"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["nodeclaims"]});
    let is_no_replacement =
        "!has(object.metadata.annotations) || !('spokeshave.dev/disruption' in object.metadata.annotations)";
    guard(cluster, rule, is_no_replacement).await;
}

async fn without_guard(cluster: &Cluster) {
    cluster.delete::<ValidatingAdmissionPolicyBinding>("guard").await;
}

/// A policy of the cluster denies the NodeClaims of replacements: the command is rolled back at once, and the ledger has the words of the denial.
#[tokio::test(start_paused = true)]
async fn d_102_d_116_a_replacement_that_admission_denies_takes_its_command_back_at_once() {
    let cluster = Cluster::new(23, at_once()).await;
    let _operator = cluster.operator();
    one_large_node(&cluster).await;
    deny_replacements(&cluster).await;
    without_large(&cluster).await;
    cluster
        .until("a command is written", async |cluster| {
            !cluster.ledger().await.is_empty()
        })
        .await;
    let took = cluster
        .until("the command is rolled back", async |cluster| {
            cluster.ended("Underutilized", DisruptionPhase::RolledBack).await == 1
        })
        .await;
    assert!(took < Duration::from_secs(10), "{took:?}");
    let status = cluster.ledger().await[0].status.clone().unwrap();
    assert_eq!(status.roll_back_cause, Some(RollBackCause::ReplacementRefused));
    let message = status.message.unwrap();
    assert!(message.contains("not in this house"), "{message}");
    cluster.pass(10).await;
    cluster.assert_at_rest().await;
    assert_eq!((cluster.running().await, cores(&cluster).await), (1, vec![8]));
    without_guard(&cluster).await;
    cluster.until("one small node", on_one_small_node).await;
}

/// The replacement of the next node would be denied, too: it is not even tried, until the NodePool has rested.
#[tokio::test(start_paused = true)]
async fn d_102_w_24_after_a_denial_no_other_node_is_tried_for_a_minute() {
    let one_by_one = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]});
    let cluster = Cluster::new(24, one_by_one).await;
    let _operator = cluster.operator();
    let zones = ["test-zone-a", "test-zone-b"];
    for zone in zones {
        let there = json!({"spec": {"nodeSelector": {"topology.kubernetes.io/zone": zone}}});
        for (name, cpu) in [("large", "6"), ("small", "500m")] {
            let app = format!("{name}-{zone}");
            let template = template(&app, cpu, there.clone());
            cluster.deploy_with(&app, 1, template).await;
        }
    }
    cluster.until_running(4).await;
    deny_replacements(&cluster).await;
    for zone in zones {
        cluster.scale(&format!("large-{zone}"), 0).await;
    }
    cluster
        .until("a command is rolled back", async |cluster| {
            cluster.ended("Underutilized", DisruptionPhase::RolledBack).await == 1
        })
        .await;
    cluster.pass(40).await;
    assert_eq!(cluster.ledger().await.len(), 1);
    cluster.assert_at_rest().await;
    without_guard(&cluster).await;
    cluster
        .until("two small nodes", async |cluster| cores(cluster).await == [1, 1])
        .await;
}

/// A new leader whose clock is wrong, in mid-command: ahead, the command looks too old and is rolled back; behind, it continues,
/// or its replacement is deleted and another one is launched.
/// The simulated cloud keeps the operator's time, so a clock that is far behind would only make the cloud wait.
#[tokio::test(start_paused = true)]
async fn a_leader_with_a_wrong_clock_finishes_or_takes_back() {
    for off_by in [240, -120] {
        let cluster = Cluster::new(20, at_once()).await;
        let first = cluster.operator();
        one_large_node(&cluster).await;
        without_large(&cluster).await;
        until_replacing(&cluster).await;
        first.kill().await;
        cluster.pass(420).await;
        let _again = cluster.operator_off_by(off_by);
        cluster
            .until(
                &format!("one small node by a clock off by {off_by} s"),
                on_one_small_node,
            )
            .await;
        cluster.pass(60).await;
        cluster.assert_at_rest().await;
        let taken_back = cluster.ended("Underutilized", DisruptionPhase::RolledBack).await;
        let expected = if off_by > 0 { 1..=1 } else { 0..=1 };
        assert!(
            expected.contains(&taken_back),
            "{:?}",
            cluster.ledger_text().await
        );
    }
}

/// A restart continues the command: the same replacement, one command.
#[tokio::test(start_paused = true)]
async fn g_1_15_d_072_a_restart_in_mid_command_goes_on() {
    let cluster = Cluster::new(21, at_once()).await;
    let first = cluster.operator();
    one_large_node(&cluster).await;
    without_large(&cluster).await;
    until_replacing(&cluster).await;
    first.kill().await;
    cluster.pass(60).await;
    let _again = cluster.operator();
    cluster.until("one small node", on_one_small_node).await;
    cluster.pass(30).await;
    cluster.assert_at_rest().await;
    let ledger = cluster.ledger().await;
    assert_eq!(
        (ledger.len(), ledger[0].phase()),
        (1, DisruptionPhase::Succeeded),
        "{:?}",
        cluster.ledger_text().await
    );
}

/// W-31: a command outlives the objects it names; W-56: nothing is reported or counted twice.
#[tokio::test(start_paused = true)]
async fn w_31_w_56_a_command_whose_first_node_vanishes_ends() {
    let cluster = Cluster::new(41, at_once()).await;
    let operator = cluster.operator();
    cluster.deploy("web", 3, "6").await;
    cluster.until_running(3).await;
    cluster.scale("web", 0).await;
    cluster
        .until("the command is written", async |cluster| {
            !cluster.ledger().await.is_empty()
        })
        .await;
    let first = cluster.ledger().await[0].spec.nodes[0].node_claim.clone();
    cluster.remove_finalizers::<NodeClaim>(&first).await;
    // It may be gone with them.
    let claims = cluster.api::<NodeClaim>();
    claims.delete(&first, &DeleteParams::default()).await.ok();
    cluster
        .until("the command ends", async |cluster| {
            cluster.ledger().await.iter().all(|one| one.is_finished())
        })
        .await;
    cluster.until_empty().await;
    let disrupted = sum(&operator.metrics, "karpenter_nodeclaims_disrupted_total");
    assert!(disrupted <= 3.0, "{disrupted}");
    let told = cluster.events("DisruptionTerminating").await.len();
    assert!(told <= 6, "once for each Node and each NodeClaim: {told}");
}

/// An upgrade that brings the operator before its definitions: it is not ready and does nothing, and continues automatically once they exist.
#[tokio::test(start_paused = true)]
async fn without_the_definition_of_disruptions_nothing_begins_and_with_it_everything_goes_on() {
    let cluster = Cluster::new(42, at_once()).await;
    let name = "disruptions.spokeshave.dev";
    cluster.delete::<CustomResourceDefinition>(name).await;
    let operator = cluster.operator();
    cluster.deploy("web", 1, "6").await;
    cluster.pass(60).await;
    assert!(
        cluster.list::<NodeClaim>().await.is_empty(),
        "nothing is decided in the dark"
    );
    let failures = operator.metrics.render();
    assert!(
        failures.contains("kind=\"Disruption\""),
        "the kind that is missing is counted by name"
    );
    let definition = spokeshave_api::crds::crds()
        .into_iter()
        .find(|one| one.name_any() == name)
        .unwrap();
    cluster
        .create::<CustomResourceDefinition>(json!(definition))
        .await;
    cluster.until_running(1).await;
    cluster.scale("web", 0).await;
    cluster.until_empty().await;
}

/// The ledger is short: what has ended is kept for a day.
#[tokio::test(start_paused = true)]
async fn the_ledger_forgets_after_a_day() {
    let cluster = Cluster::new(3, at_once()).await;
    let operator = cluster.operator();
    one_busy_node(&cluster).await;
    cluster.scale("web", 0).await;
    cluster.until_empty().await;
    cluster.pass(5).await;
    let names = cluster.names::<Disruption>().await;
    assert!(
        names.len() == 1 && names[0].starts_with("20260101-0"),
        "{names:?}"
    );
    // The one who forgets need not be the one who wrote.
    operator.kill().await;
    let _again = cluster.operator();
    cluster.pass(23 * 3600).await;
    assert_eq!(cluster.ledger().await.len(), 1);
    cluster.pass(3700).await;
    cluster.assert_no_commands().await;
    assert!(
        cluster
            .list::<Node>()
            .await
            .iter()
            .all(|node| node.name_any().is_empty())
    );
}

/// One entry that nobody may delete keeps no other.
#[tokio::test(start_paused = true)]
async fn the_ledger_forgets_what_follows_an_entry_that_cannot_be_deleted() {
    let cluster = Cluster::new(3, at_once()).await;
    let _operator = cluster.operator();
    one_busy_node(&cluster).await;
    cluster.scale("web", 0).await;
    cluster.until_empty().await;
    cluster.scale("web", 1).await;
    cluster.until_running(1).await;
    cluster.scale("web", 0).await;
    cluster.until_empty().await;
    let names = cluster.names::<Disruption>().await;
    assert!(names.len() > 1, "{names:?}");
    let rule = json!({"apiGroups": ["spokeshave.dev"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["disruptions"], "resourceNames": [names[0]]});
    guard(&cluster, rule, "false").await;
    cluster.pass(24 * 3600 + 60).await;
    assert_eq!(cluster.names::<Disruption>().await, names[..1]);
    without_guard(&cluster).await;
    cluster
        .until("the ledger is empty", async |cluster| {
            cluster.ledger().await.is_empty()
        })
        .await;
}
