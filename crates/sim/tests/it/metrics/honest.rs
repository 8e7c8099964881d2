//! What a scrape must not claim: what has not happened, what is over, and what no program that reads it could take.

use std::collections::BTreeSet;

use serde_json::json;
use spokeshave_api::validation::LabelRules;
use spokeshave_api::{DisruptionPolicy, NodeClaim};
use spokeshave_controllers::Options as OperatorOptions;
use spokeshave_runtime::client::RequestLog;

use super::queries::read;
use super::reference::asked;
use crate::faulty::{Cluster, Setup};
use crate::words::*;

/// What a NodeClaim and a NodePool become first: told, counted, and timed from when they were created.
#[tokio::test(start_paused = true)]
async fn p_016_p_207_what_the_first_status_says_is_told_and_timed() {
    let (cluster, operator, claim) = Cluster::one_node(181, json!({})).await;
    cluster.pass(10).await;
    let launched = "Status condition transitioned, Type: Launched, Status: Unknown -> True, Reason: Launched";
    assert_eq!(
        cluster.told("Launched").await,
        [(format!("NodeClaim/{claim}"), launched.to_owned())]
    );
    for reason in ["ValidationSucceeded", "NodeClassReady", "Ready"] {
        let told = cluster.told(reason).await;
        let is_told = told.iter().any(|(about, text)| {
            about == "NodePool/default" && text.ends_with(&format!("-> True, Reason: {reason}"))
        });
        assert!(is_told, "{reason}: {told:?}");
    }
    let metrics = &operator.metrics;
    let seconds = "operator_nodeclaim_status_condition_transition_seconds_count";
    assert_counted_once(metrics, seconds, "status=\"Unknown\",type=\"Launched\"");
    let transitions = "operator_nodeclaim_status_condition_transitions_total";
    for labels in [
        "reason=\"AwaitingReconciliation\",status=\"Unknown\",type=\"Launched\"",
        "reason=\"Launched\",status=\"True\",type=\"Launched\"",
        "reason=\"ReconcilingDependents\",status=\"Unknown\",type=\"Ready\"",
    ] {
        assert_counted_once(metrics, transitions, labels);
    }
}

/// The names of a line's labels, by the grammar of the text format. `None` where a scrape with this line is refused.
fn label_names(line: &str) -> Option<Vec<&str>> {
    let is_name = |name: &str| {
        let is_legal = |letter: char| letter == '_' || letter.is_ascii_alphanumeric();
        name.chars().all(is_legal) && name.starts_with(|first: char| !first.is_ascii_digit())
    };
    let mut names = Vec::new();
    let Some((_, mut rest)) = line.split_once('{') else {
        return Some(names);
    };
    loop {
        let (name, value) = rest.split_once("=\"")?;
        if !is_name(name) {
            return None;
        }
        names.push(name);
        let mut escaped = false;
        let end = value.find(|letter: char| {
            let closes = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            closes
        })?;
        match value[end + 1..].chars().next()? {
            ',' => rest = &value[end + 2..],
            '}' => return Some(names),
            _ => return None,
        }
    }
}

/// Keys that a provider out of process declares may be any that Kubernetes takes.
#[tokio::test(start_paused = true)]
async fn p_208_labels_of_a_provider_do_not_spoil_a_scrape() {
    let keys = [
        "example.com/cpu.model",
        "example.com/4k-disks",
        "example.com/phase",
        "example.com/node_name",
        "example.org/zone",
    ];
    let options = OperatorOptions {
        object_metrics: true,
        label_rules: LabelRules {
            well_known: keys.map(str::to_owned).to_vec(),
            ..LabelRules::default()
        },
        ..OperatorOptions::default()
    };
    let (cluster, operator) = Cluster::started_with(182, json!({}), Setup::with_options(options)).await;
    cluster.run_one_pod().await;
    let text = operator.metrics.render();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let names = label_names(line).unwrap_or_else(|| panic!("nobody can read {line}"));
        let different: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(different.len(), names.len(), "a label twice: {line}");
    }
    let of_node = text
        .lines()
        .find(|line| line.starts_with("karpenter_nodes_allocatable{"));
    let names = of_node.and_then(label_names).expect("a series of the node");
    assert!(
        names.contains(&"cpu_model") && names.contains(&"_4k_disks"),
        "{names:?}"
    );
    // The reader of this test sees what is wrong.
    assert_eq!(label_names("a{b=\"x\\\"},\",c=\"\"} 1"), Some(vec!["b", "c"]));
    for broken in ["a{b.c=\"\"} 1", "a{4b=\"\"} 1", "a{b=\"c\"", "a{b=\"\"c=\"\"} 1"] {
        assert_eq!(label_names(broken), None, "{broken}");
    }
}

/// What the cloud postpones has not failed: the alert about its errors would fire for as long as a zonal shift lasts.
#[tokio::test(start_paused = true)]
async fn w_30_an_end_that_the_cloud_postpones_is_no_error_of_the_cloud() {
    let (cluster, operator, claim) = Cluster::one_node(183, json!({})).await;
    *cluster.faults.postponed.lock().unwrap() = Some("a zonal shift is active".to_owned());
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_blocked(&claim, "TerminationPostponed").await;
    cluster.pass(900).await;
    let of = |family: &str| sum_of(&operator.metrics, family, "method=\"Delete\"");
    let asked = of("karpenter_cloudprovider_duration_seconds_count");
    assert!(asked > 10.0, "the cloud is asked again and again: {asked}");
    assert_eq!(of("karpenter_cloudprovider_errors_total"), 0.0);
    *cluster.faults.postponed.lock().unwrap() = None;
    cluster.until_gone::<NodeClaim>(&claim).await;
}

/// A node that drains makes a pass every few seconds, and no pod waits in any of them.
#[tokio::test(start_paused = true)]
async fn p_207_p_123_who_was_placed_does_not_wait_by_zone_while_a_node_drains() {
    const ZONES: &str = "karpenter_scheduler_pending_pods_by_effective_zone_count";
    let (cluster, operator) = Cluster::started(188, json!({})).await;
    let kept = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    cluster.deploy_with("kept", 1, template("kept", "1", kept)).await;
    cluster.until_running_of("kept", 1).await;
    let claim = cluster.claim_of_pod("kept").await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_blocked(&claim, "DoNotDisrupt").await;
    cluster.deploy("late", 3, "1").await;
    cluster
        .until("they wait", async |_| sum(&operator.metrics, ZONES) > 0.0)
        .await;
    cluster.until_running_of("late", 3).await;
    cluster.pass(30).await;
    assert!(cluster.blocked(&claim).await.is_some(), "it still drains");
    assert_eq!(reading(&operator.metrics, ZONES, ""), None);
}

/// Nobody would ever set the gauges of a reason again that has gone with the last policy.
#[tokio::test(start_paused = true)]
async fn invariant_41_gauges_of_expiry_go_with_the_last_policy_that_has_one() {
    let (cluster, operator, _claim) = Cluster::one_node(189, json!({})).await;
    let spec = json!({"expiry": {"softAfter": "8s", "jitter": "1s"}, "budgets": [{"limit": "0"}]});
    let policy = json!({"metadata": {"name": "age"}, "spec": spec});
    cluster.create::<DisruptionPolicy>(policy).await;
    let families = [
        (
            "karpenter_voluntary_disruption_eligible_nodes",
            "reason=\"expired\"",
        ),
        ("karpenter_nodepools_allowed_disruptions", "reason=\"Expired\""),
        (
            "karpenter_nodepools_nodes_consuming_budgets",
            "reason=\"Expired\"",
        ),
    ];
    let shown = || families.map(|(family, reason)| reading(&operator.metrics, family, reason).is_some());
    cluster.pass(90).await;
    assert_eq!(shown(), [true; 3]);
    cluster.delete::<DisruptionPolicy>("age").await;
    cluster.pass(60).await;
    assert_eq!(shown(), [false; 3], "{}", operator.metrics.render());
    let empty = reading(&operator.metrics, families[0].0, "reason=\"empty\"");
    assert!(empty.is_some(), "other reasons stay");
}

/// A shadow writes no events, so that none is lost.
#[tokio::test(start_paused = true)]
async fn a_shadow_misses_no_event() {
    let (cluster, _operator) = Cluster::started(190, json!({})).await;
    let (_, metrics) = cluster.shadow(&RequestLog::new());
    cluster.run_one_pod().await;
    cluster.pass(30).await;
    let text = metrics.render();
    for there in [
        "operator_nodeclaim_status_condition_transitions_total{",
        "karpenter_build_info{",
    ] {
        assert!(text.contains(there), "{there}:\n{text}");
    }
    let dropped = reading(&metrics, "spokeshave_events_dropped_total", "");
    assert_eq!(dropped, None, "{text}");
}

/// What the provider watches by itself fails as any other watch does, and alerts look at one family.
#[tokio::test(start_paused = true)]
async fn failed_watches_of_the_provider_count_together_with_the_operators_own() {
    let (cluster, operator) = Cluster::started(199, json!({})).await;
    cluster.pass(10).await;
    let counted = || {
        let family = "spokeshave_watch_failures_total";
        value(&operator.metrics, family, "kind=\"EC2NodeClass\"")
    };
    assert_eq!(counted(), 0.0);
    let failures = &cluster.faults.watch_failures;
    failures.count("EC2NodeClass");
    failures.count("EC2NodeClass");
    assert_eq!(counted(), 2.0);
    assert_eq!(counted(), 2.0, "another scrape takes nothing twice");
    failures.count("EC2NodeClass");
    assert_eq!(counted(), 3.0);
}

/// In a rollout, the board shows the version of the leader and the one that waits.
#[tokio::test(start_paused = true)]
async fn p_207_a_standby_says_which_build_it_is() {
    let cluster = Cluster::new(191).await;
    let elected = |identity: &'static str| {
        let mut setup = Setup::candidate(identity);
        setup.options.commit = "0123abc";
        setup
    };
    let leader = cluster.operator(elected("a"));
    cluster.pass(10).await;
    let standby = cluster.operator(elected("b"));
    cluster.pass(5).await;
    for (operator, leads) in [(&leader, 1.0), (&standby, 0.0)] {
        let metrics = &operator.metrics;
        assert_eq!(value(metrics, "leader_election_master_status", ""), leads);
        assert_counted_once(metrics, "karpenter_build_info", "commit=\"0123abc\"");
        assert_counted_once(metrics, "karpenter_build_info", "goversion=\"none\"");
    }
}

/// Provisioning and disruption share families of the scheduler: a panel that selects neither shows a mixture of both.
#[test]
fn p_207_boards_and_alerts_say_which_loops_scheduling_they_show() {
    // Of the scheduler's families this one has no label.
    const OF_NO_LOOP: &str = "karpenter_scheduler_ignored_pods_count";
    let mut seen = 0;
    for (path, query, _) in asked() {
        let read = read(&query);
        for (series, labels) in &read.series {
            if !series.starts_with("karpenter_scheduler_") || series == OF_NO_LOOP {
                continue;
            }
            seen += 1;
            let is_said = labels
                .iter()
                .chain(&read.grouped)
                .any(|label| label == "controller");
            assert!(is_said, "{path}: {query}");
        }
    }
    assert!(seen > 3, "{seen} queries");
}
