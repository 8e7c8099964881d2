//! DisruptionPolicies through the whole stack: what they stop, what they take back, and what they say.

use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{DisruptionPolicy, NodeClaim, NodePool};

use crate::faulty;
use crate::killable::Cluster;
use crate::killable::stories::*;
use crate::words::*;

async fn policy(cluster: &Cluster, spec: Value) {
    let object = json!({"metadata": {"name": "calm"}, "spec": spec});
    let _: DisruptionPolicy = cluster.create(object).await;
}

/// The status of the policy.
async fn said(cluster: &Cluster) -> Value {
    let policy: DisruptionPolicy = cluster.get("calm").await;
    serde_json::to_value(policy.status).expect("JSON")
}

async fn is_any_deleting(cluster: &Cluster) -> bool {
    cluster
        .list::<NodeClaim>()
        .await
        .iter()
        .any(NodeClaim::is_deleting)
}

/// The article's case: jobs end soon after the nodes for them came, and the nodes stay for the next ones until none has come for a while.
#[tokio::test(start_paused = true)]
async fn a_hold_keeps_nodes_for_the_next_jobs_and_ends_by_itself() {
    let cluster = Cluster::new(201, at_once()).await;
    policy(&cluster, json!({"hold": {"duration": "20m"}})).await;
    let operator = cluster.operator();
    one_busy_node(&cluster).await;
    let born = cluster.clock.now();
    let nodes = cluster.names::<Node>().await;
    without_web(&cluster).await;
    cluster.pass(600).await;
    assert!(!is_any_deleting(&cluster).await, "ten minutes");
    assert_eq!(said(&cluster).await["active"][0]["field"], "spec.hold");
    // A restart forgets nothing, and a second peak finds the node of the first.
    operator.kill().await;
    let _operator = cluster.operator();
    cluster.scale("web", 1).await;
    cluster.until_running(1).await;
    assert_eq!(cluster.names::<Node>().await, nodes, "no node had to come");
    without_web(&cluster).await;
    cluster
        .until("the node is told to go", async |cluster| {
            is_any_deleting(cluster).await
        })
        .await;
    let took = cluster.clock.since(born).as_secs();
    assert!((1_100..=1_400).contains(&took), "{took} s after it came");
    cluster.until_empty().await;
}

/// A freeze while replacements come takes the command back; thawed, it is decided again and carried out.
#[tokio::test(start_paused = true)]
async fn a_freeze_in_mid_command_takes_it_back() {
    let cluster = Cluster::new(202, at_once()).await;
    let _operator = cluster.operator();
    one_large_node(&cluster).await;
    let before = cluster.names::<Node>().await;
    without_large(&cluster).await;
    until_replacing(&cluster).await;
    policy(&cluster, json!({"freeze": {"reason": "incident 42"}})).await;
    cluster
        .until("the command is rolled back", async |cluster| {
            let ledger = cluster.list::<Disruption>().await;
            ledger
                .iter()
                .all(|one| one.phase() == DisruptionPhase::RolledBack)
        })
        .await;
    cluster.pass(1_800).await;
    let ledger = cluster.list::<Disruption>().await;
    let words: Vec<String> = ledger
        .iter()
        .filter_map(|one| one.status.as_ref()?.message.clone())
        .collect();
    assert!(words.iter().any(|text| text.contains("incident 42")), "{words:?}");
    assert_eq!(ledger.len(), 1, "nothing was tried again: {words:?}");
    assert!(
        cluster.names::<Node>().await.contains(&before[0]),
        "the node stays"
    );
    let summary = said(&cluster).await["summary"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(
        summary.contains("frozen: incident 42") && summary.contains("no end"),
        "{summary}"
    );
    let claims = cluster.list::<NodeClaim>().await;
    let verdict = claims
        .iter()
        .flat_map(|claim| claim.status.iter().flat_map(|status| &status.conditions))
        .find(|condition| {
            condition.type_ == "spokeshave.dev/Disruptable"
                && condition.message.contains("DisruptionPolicy calm")
        });
    assert!(verdict.is_some(), "the verdict names the policy");
    cluster.delete::<DisruptionPolicy>("calm").await;
    cluster.until("one small node", on_one_small_node).await;
    cluster.pass(60).await;
    cluster.assert_at_rest().await;
}

/// Nobody knows its labels then: a freeze of NodePools by labels may be one of it.
#[tokio::test(start_paused = true)]
async fn a_freeze_by_labels_takes_back_commands_of_a_nodepool_that_cannot_be_read() {
    let cluster = Cluster::new(206, at_once()).await;
    let labels = json!({"metadata": {"labels": {"team": "a"}}});
    cluster.patch::<NodePool>("default", labels).await;
    let _operator = cluster.operator();
    one_large_node(&cluster).await;
    let before = cluster.names::<Node>().await;
    without_large(&cluster).await;
    until_replacing(&cluster).await;
    cluster.spoil::<NodePool>("default").await;
    let of_team = json!({"matchLabels": {"team": "a"}});
    policy(
        &cluster,
        json!({"nodePools": of_team, "freeze": {"reason": "incident 42"}}),
    )
    .await;
    cluster
        .until("the command has ended", async |cluster| {
            let ledger = cluster.list::<Disruption>().await;
            ledger.iter().all(Disruption::is_finished)
        })
        .await;
    let ledger = cluster.list::<Disruption>().await;
    let said: Vec<String> = ledger
        .iter()
        .filter_map(|one| one.status.as_ref()?.message.clone())
        .collect();
    let is_back = |one: &Disruption| one.phase() == DisruptionPhase::RolledBack;
    assert!(ledger.iter().all(is_back), "{said:?}");
    assert!(said.iter().any(|text| text.contains("incident 42")), "{said:?}");
    cluster.mend::<NodePool>("default").await;
    cluster.pass(600).await;
    assert!(
        cluster.names::<Node>().await.contains(&before[0]),
        "the node stays"
    );
}

/// The definition lets pass a time that no clock shows. Nobody knows then whether the policy is a freeze: it counts as one, and says what is wrong with it.
#[tokio::test(start_paused = true)]
async fn a_policy_that_cannot_be_read_stops_disruption_until_it_is_corrected() {
    let cluster = Cluster::new(205, at_once()).await;
    let kind = ApiResource::erase::<DisruptionPolicy>(&());
    let policies: kube::Api<DynamicObject> = kube::Api::all_with(cluster.client.clone(), &kind);
    let frozen_until = |until: &str| json!({"spec": {"freeze": {"reason": "incident 42", "until": until}}});
    let odd = DynamicObject::new("calm", &kind).data(frozen_until("2027-01-01T00:00:00+99:99"));
    policies.create(&PostParams::default(), &odd).await.unwrap();
    let _operator = cluster.operator();
    one_busy_node(&cluster).await;
    without_web(&cluster).await;
    cluster.pass(600).await;
    assert!(!is_any_deleting(&cluster).await);
    let status = policies.get("calm").await.unwrap().data["status"].clone();
    let active = &status["active"][0];
    assert_eq!(active["field"], "spec", "{status}");
    let message = active["message"].as_str().unwrap_or_default();
    assert!(message.contains("cannot be read"), "{status}");
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let is_invalid = |one: &Value| one["type"] == "ValidationSucceeded" && one["status"] == "False";
    assert!(conditions.iter().any(is_invalid), "{status}");
    let told = cluster.events("DisruptionStopped").await;
    assert!(
        told.iter().any(|message| message.contains("cannot be read")),
        "{told:?}"
    );
    let corrected = Patch::Merge(frozen_until("2026-01-01T00:00:00Z"));
    let corrected = policies.patch("calm", &PatchParams::default(), &corrected).await;
    corrected.unwrap();
    cluster.until_empty().await;
}

/// Labels of NodePools are in no generation, and policies select by them.
#[tokio::test(start_paused = true)]
async fn a_contradiction_is_told_while_labels_of_a_nodepool_make_one() {
    let cluster = Cluster::new(207, at_once()).await;
    let budgets = |from: &str, to: &str| json!([{"limit": "10%", "windows": [{"from": from, "to": to}]}]);
    policy(&cluster, json!({"budgets": budgets("22:00", "06:00")})).await;
    let shop = json!({"matchLabels": {"team": "shop"}});
    let days = json!({"nodePools": shop, "budgets": budgets("10:00", "16:00")});
    let days = json!({"metadata": {"name": "days"}, "spec": days});
    let _: DisruptionPolicy = cluster.create(days).await;
    let _operator = cluster.operator();
    let is_told = async || {
        cluster.pass(30).await;
        let summary = said(&cluster).await["summary"].to_string();
        summary.contains("is never open")
    };
    assert!(!is_told().await);
    for (team, is_expected) in [(json!("shop"), true), (json!(null), false), (json!("shop"), true)] {
        let labels = json!({"metadata": {"labels": {"team": team}}});
        cluster.patch::<NodePool>("default", labels).await;
        assert_eq!(is_told().await, is_expected, "{team}");
    }
}

/// The status is written, and nobody hears that it is: no later look finds it changed.
#[tokio::test(start_paused = true)]
async fn what_a_policy_stops_is_told_though_the_answer_to_its_status_was_lost() {
    let (cluster, _operator, _) = faulty::Cluster::one_node(208, json!({})).await;
    *cluster.gate.lost.lock().unwrap() = Some("/disruptionpolicies/*/status");
    let frozen = json!({"metadata": {"name": "calm"}, "spec": {"freeze": {"reason": "incident 42"}}});
    let _: DisruptionPolicy = cluster.create(frozen).await;
    cluster.pass(30).await;
    *cluster.gate.lost.lock().unwrap() = None;
    cluster.pass(30).await;
    let told = cluster.events("DisruptionStopped").await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("incident 42"), "{told:?}");
}

/// Interruption, expiry and repair ignore policies: a NodeClaim that is deleted manually is removed during a freeze.
#[tokio::test(start_paused = true)]
async fn what_is_forceful_does_not_wait_for_a_freeze() {
    let cluster = Cluster::new(203, at_once()).await;
    policy(&cluster, json!({"freeze": {"reason": "incident 42"}})).await;
    let _operator = cluster.operator();
    one_busy_node(&cluster).await;
    without_web(&cluster).await;
    cluster.pass(300).await;
    let claim = cluster.names::<NodeClaim>().await.remove(0);
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_empty().await;
}
