//! Two operators of which one leads.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use spokeshave_api::{KWOKInstance, KWOKNodeClass, NodeClaim, NodeOverlay};
use spokeshave_controllers::OperatorError;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{NodeClassKind, Write, WriteTarget};
use spokeshave_runtime::client::RequestLog;

use crate::faulty::{Cluster, Gate, Running, Setup, message};
use crate::words::*;

/// Longer than a term without renewals, and shorter than this and the time for work in hand.
const LONGER_THAN_A_TERM: Duration = Duration::from_secs(15);

/// The same cluster through another gate: its operators share the server and the cloud with the others, but not the gate that will be shut on them.
fn apart(cluster: &Cluster) -> Cluster {
    Cluster {
        lab: cluster.lab.clone(),
        shutdown: cluster.shutdown.clone(),
        faults: cluster.faults.clone(),
        gate: Gate::default(),
        excused: cluster.excused.clone(),
    }
}

/// A loop of a controller that has ended is missed by nobody but the cluster, as long as its operator keeps the Lease.
#[tokio::test(start_paused = true)]
async fn an_operator_of_which_a_task_panics_ends_and_another_one_leads() {
    let cluster = Cluster::new(151).await;
    cluster.pool("default", json!({})).await;
    cluster.faults.messages_panic.store(true, Ordering::Relaxed);
    let first = cluster.operator(Setup::candidate("first"));
    let ended = tokio::time::timeout(Duration::from_secs(60), first.task).await;
    let panicked = OperatorError::TaskPanicked("interruption.messages".to_owned());
    assert_eq!(ended.unwrap().unwrap(), Err(panicked));
    let second = cluster.operator(Setup::candidate("second"));
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
        ..Setup::candidate(identity)
    };
    let (first_log, second_log) = (RequestLog::new(), RequestLog::new());
    let first = cluster.operator(log("first", &first_log));
    cluster.run("web", 2, "6").await;
    let apart = apart(&cluster);
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

/// The leader loses the network in the middle of a call to the cloud, and with that its term.
async fn depose(cluster: &Cluster, leader: Running) {
    cluster.gate.cut.store(true, Ordering::Relaxed);
    let ended = tokio::time::timeout(Duration::from_secs(60), leader.task).await;
    assert_eq!(ended.unwrap().unwrap(), Err(OperatorError::LeadershipLost));
}

/// From now on the cloud takes no breaks, and whoever comes next has the network.
fn mend(cluster: &Cluster) {
    *cluster.faults.break_of_changes.lock().unwrap() = None;
    cluster.gate.cut.store(false, Ordering::Relaxed);
}

/// A call to the cloud is made of several requests, between which the term of its replica may end.
#[tokio::test(start_paused = true)]
async fn invariant_36_a_call_to_the_cloud_takes_no_further_step_when_its_term_is_over() {
    let cluster = Cluster::new(152).await;
    cluster.pool("default", json!({})).await;
    let first = cluster.operator(Setup::candidate("first"));
    let claim = cluster.run_one_pod().await;
    *cluster.faults.break_of_changes.lock().unwrap() = Some(LONGER_THAN_A_TERM);
    cluster.delete::<NodeClaim>(&claim).await;
    cluster
        .until("the end of the instance has begun", async |cluster| {
            cluster.faults.deletions.load(Ordering::Relaxed) > 0
        })
        .await;
    depose(&cluster, first).await;
    let instances = cluster.list::<KWOKInstance>().await;
    let instance = instances.iter().find(|one| one.spec.node_claim_name == claim);
    let status = instance.expect("it runs on").status.clone().unwrap_or_default();
    assert_eq!(status.termination_started, None, "the deposed leader ended it");
    // Whoever leads next ends it.
    mend(&cluster);
    let _second = cluster.operator(Setup::candidate("second"));
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}

/// A leader is deposed while it launches the node of a pod, from types that an overlay has corrected or not. A machine that it started all the same would be a
/// second one for the NodeClaim wherever the cloud does not know what another process has asked it for.
async fn a_launch_that_outlives_its_term(seed: u64, with_overlay: bool) {
    let replica = |identity: &'static str| {
        let mut setup = Setup::candidate(identity);
        setup.options.feature_gates.node_overlay = with_overlay;
        setup
    };
    let cluster = Cluster::new(seed).await;
    cluster.pool("default", json!({})).await;
    if with_overlay {
        let dearer = json!({"requirements": [], "priceAdjustment": "+10%"});
        let overlay = json!({"metadata": {"name": "dearer"}, "spec": dearer});
        cluster.create::<NodeOverlay>(overlay).await;
    }
    *cluster.faults.break_of_changes.lock().unwrap() = Some(LONGER_THAN_A_TERM);
    let first = cluster.operator(replica("first"));
    cluster.deploy("web", 1, "1").await;
    cluster
        .until("a launch has begun", async |cluster| {
            cluster.faults.launches.load(Ordering::Relaxed) > 0
        })
        .await;
    depose(&cluster, first).await;
    let launched = cluster.names::<KWOKInstance>().await;
    assert!(launched.is_empty(), "the deposed leader launched {launched:?}");
    // Whoever leads next launches it, for the same NodeClaim.
    mend(&cluster);
    let _second = cluster.operator(replica("second"));
    cluster.until_running_of("web", 1).await;
    let claims = cluster.list::<NodeClaim>().await;
    let [claim] = &claims[..] else {
        panic!("one NodeClaim: {claims:?}");
    };
    let corrected = claim.annotation("karpenter.sh/price-overlay-applied");
    assert_eq!(corrected, with_overlay.then_some("true"));
    assert_eq!(cluster.names::<KWOKInstance>().await.len(), 1);
    cluster.assert_no_leak().await;
}

#[tokio::test(start_paused = true)]
async fn invariant_36_invariant_11_a_launch_takes_no_further_step_when_its_term_is_over() {
    a_launch_that_outlives_its_term(154, false).await;
}

#[tokio::test(start_paused = true)]
async fn invariant_36_invariant_11_neither_does_a_launch_from_corrected_types() {
    a_launch_that_outlives_its_term(155, true).await;
}

/// Whoever leads next must hear of an interruption: a queue delivers a message until it is acknowledged, and nobody knows what the deposed leader has made of it.
#[tokio::test(start_paused = true)]
async fn invariant_36_a_message_is_not_acknowledged_when_the_term_is_over() {
    let cluster = Cluster::new(156).await;
    cluster.pool("default", json!({})).await;
    let cloud = cluster.faults.speak();
    let first = cluster.operator(Setup::candidate("first"));
    let claim = cluster.run_one_pod().await;
    let found = cluster.get::<NodeClaim>(&claim).await;
    let recommended = Ok(InterruptionKind::RebalanceRecommendation);
    let message = message("notice", found.provider_id().unwrap(), recommended);
    *cluster.faults.break_of_changes.lock().unwrap() = Some(LONGER_THAN_A_TERM);
    cloud.unbounded_send(message.clone()).unwrap();
    cluster
        .until("its acknowledgement has begun", async |cluster| {
            cluster.faults.acknowledgements.load(Ordering::Relaxed) > 0
        })
        .await;
    depose(&cluster, first).await;
    let acknowledged = || cluster.faults.acknowledged.lock().unwrap().clone();
    assert_eq!(acknowledged(), Vec::<String>::new(), "by the deposed leader");
    mend(&cluster);
    let cloud = cluster.faults.speak();
    let _second = cluster.operator(Setup::candidate("second"));
    cloud.unbounded_send(message).unwrap();
    cluster
        .until("the next leader has acknowledged it", async |_| {
            acknowledged() == ["notice"]
        })
        .await;
    assert_eq!(cluster.names::<NodeClaim>().await, [claim.as_str()]);
    cluster.assert_no_leak().await;
}

/// A replica that was suspended goes on with what it knew before: its watches have told nothing since, and nobody but the cloud does what it says.
#[tokio::test(start_paused = true)]
async fn d_252_invariant_36_and_38_what_a_new_leader_launched_is_not_leaked_to_a_suspended_one() {
    let cluster = Cluster::new(153).await;
    cluster.pool("default", json!({})).await;
    let _suspended = cluster.operator(Setup::default());
    cluster.run_one_pod().await;
    let watched = ["/nodeclaims", "/nodes", "/pods"];
    cluster.gate.still.lock().unwrap().extend(watched);
    cluster.gate.trip("", 403, u32::MAX);
    let apart = apart(&cluster);
    let _leader = apart.operator(Setup {
        identity: "leader",
        ..Setup::default()
    });
    apart.run("more", 2, "6").await;
    let before = apart.names::<KWOKInstance>().await;
    assert!(before.len() > 1, "{before:?}");
    // Long enough for many passes of the suspended one.
    apart.pass(600).await;
    assert_eq!(apart.names::<KWOKInstance>().await, before);
    assert_eq!(apart.running_of("more").await, 2);
    apart.assert_no_leak().await;
}
