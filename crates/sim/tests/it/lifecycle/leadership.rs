//! Two operators of which one leads.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use spokeshave_api::KWOKNodeClass;
use spokeshave_controllers::{LeaderElectionOptions, OperatorError, Options as OperatorOptions};
use spokeshave_ports::{NodeClassKind, Write, WriteTarget};
use spokeshave_runtime::client::RequestLog;

use crate::faulty::{Cluster, Gate, Setup};
use crate::words::*;

/// One of several.
fn candidate(identity: &'static str) -> Setup {
    Setup {
        options: OperatorOptions {
            leader_election: Some(LeaderElectionOptions {
                namespace: "kube-system".to_owned(),
                name: "karpenter-leader-election".to_owned(),
                identity: identity.to_owned(),
            }),
            ..OperatorOptions::default()
        },
        identity,
        ..Setup::default()
    }
}

/// A loop of a controller that has ended is missed by nobody but the cluster, as long as its operator keeps the Lease.
#[tokio::test(start_paused = true)]
async fn an_operator_of_which_a_task_panics_ends_and_another_one_leads() {
    let cluster = Cluster::new(151).await;
    cluster.pool("default", json!({})).await;
    cluster.faults.messages_panic.store(true, Ordering::Relaxed);
    let first = cluster.operator(candidate("first"));
    let ended = tokio::time::timeout(Duration::from_secs(60), first.task).await;
    let panicked = OperatorError::TaskPanicked("interruption.messages".to_owned());
    assert_eq!(ended.unwrap().unwrap(), Err(panicked));
    let second = cluster.operator(candidate("second"));
    let begin = cluster.clock.now();
    cluster.run("web", 1, "1").await;
    let took = cluster.clock.since(begin);
    assert!(took < Duration::from_secs(60), "the Lease was given up: {took:?}");
    second.end().await;
}

// Invariant 36: only the leader writes, and one that is cut off from its Lease stops before the next one starts.
#[tokio::test(start_paused = true)]
async fn invariant_36_two_operators_only_the_leader_writes() {
    let cluster = Cluster::new(16).await;
    cluster.pool("default", json!({})).await;
    let log = |identity: &'static str, log: &RequestLog| Setup {
        log: Some(log.clone()),
        ..candidate(identity)
    };
    let (first_log, second_log) = (RequestLog::new(), RequestLog::new());
    let first = cluster.operator(log("first", &first_log));
    cluster.run("web", 2, "6").await;
    // The second shares the server, but not the gate that will be shut on the first.
    let gate = std::mem::take(&mut cluster.gate.clone());
    let mut apart = Cluster {
        lab: cluster.lab.clone(),
        shutdown: cluster.shutdown.clone(),
        faults: cluster.faults.clone(),
        gate: Gate::default(),
        excused: cluster.excused.clone(),
    };
    apart.gate.refused = gate.refused.clone();
    let second = apart.operator(log("second", &second_log));
    let writes = |log: &RequestLog| -> Vec<String> {
        log.text()
            .lines()
            .filter(|line| !line.starts_with("GET ") && !line.contains("/leases"))
            .map(str::to_owned)
            .collect()
    };
    cluster.pass(60).await;
    cluster.run("more", 1, "6").await;
    assert_eq!(
        writes(&second_log),
        Vec::<String>::new(),
        "the standby has written"
    );
    assert!(!writes(&first_log).is_empty());
    // The leader loses the network; nothing it had in hand may reach the server once the other leads.
    let before = writes(&first_log).len();
    cluster.gate.cut.store(true, Ordering::Relaxed);
    cluster.run("last", 1, "6").await;
    assert!(!writes(&second_log).is_empty(), "the standby has taken over");
    cluster.gate.cut.store(false, Ordering::Relaxed);
    let ended = tokio::time::timeout(Duration::from_secs(60), first.task).await;
    assert!(
        matches!(ended, Ok(Ok(Err(_)))),
        "the deposed leader ends by itself: {ended:?}"
    );
    // What its provider has kept of that term writes nothing any more.
    let terms = cluster.faults.terms.lock().unwrap().clone();
    let [deposed, leader] = &terms[..] else {
        panic!("two terms, not {}", terms.len());
    };
    let mark = |value: &str| Write {
        target: WriteTarget::NodeClass(NodeClassKind {
            group: "karpenter.kwok.sh".to_owned(),
            version: "v1alpha1".to_owned(),
            kind: "KWOKNodeClass".to_owned(),
            plural: "kwoknodeclasses".to_owned(),
        }),
        name: "default".to_owned(),
        patch: json!({"metadata": {"annotations": {"example.com/by": value}}}),
    };
    let by = async || {
        let class = cluster.get::<KWOKNodeClass>("default").await;
        let annotations = class.metadata.annotations.unwrap_or_default();
        annotations.get("example.com/by").cloned()
    };
    let refused = deposed.write(mark("the deposed")).await.unwrap_err();
    assert!(refused.to_string().contains("lead"), "{refused}");
    assert_eq!(by().await, None);
    leader.write(mark("the leader")).await.unwrap();
    assert_eq!(by().await.as_deref(), Some("the leader"));
    let after: Vec<String> = writes(&first_log).split_off(before);
    let claims_made = after
        .iter()
        .filter(|line| line.starts_with("POST") && line.contains("/nodeclaims"));
    assert!(claims_made.count() <= 1, "{after:?}");
    cluster.assert_no_leak().await;
    drop(second);
}
