//! Messages from a cloud about instances (D §7.6): counted, timed, and handled if the instances are ours.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;
use spokeshave_api::NodeClaim;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::Interruption;

use crate::faulty::{Cluster, Setup, message};
use crate::words::*;

const RECEIVED: &str = "karpenter_interruption_received_messages_total";
const DELETED: &str = "karpenter_interruption_deleted_messages_total";
const DURATION: &str = "karpenter_interruption_message_queue_duration_seconds";

// D-277, D-278, D-286: messages about unknown instances and unknown messages terminate nothing, and are not delivered again.
#[tokio::test(start_paused = true)]
async fn d_278_d_286_w_52_messages_about_strangers_touch_nothing_and_each_is_counted_and_timed() {
    let cluster = Cluster::new(121).await;
    let cloud = cluster.faults.speak();
    cluster.pool("default", json!({})).await;
    let operator = cluster.operator(Setup::default());
    let claim = cluster.run_one_pod().await;
    let acknowledged = || cluster.faults.acknowledged.lock().unwrap().clone();
    let said = |message: Interruption| cloud.unbounded_send(message).unwrap();

    said(message("others", "", Ok(InterruptionKind::ScheduledChange)));
    said(message("nothing", "", Ok(InterruptionKind::NoOp)));
    said(message("garbage", "", Err("no such thing".to_owned())));
    cluster.pass(2).await;
    assert_eq!(
        acknowledged(),
        ["others", "nothing", "garbage"],
        "at once: they name no instance"
    );
    said(message(
        "late",
        "kwok://not-yet",
        Ok(InterruptionKind::SpotInterrupted),
    ));
    cluster.pass(20).await;
    assert_eq!(
        acknowledged().len(),
        3,
        "its launch may be on its way into the store"
    );
    cluster.pass(20).await;
    assert_eq!(acknowledged().last().map(String::as_str), Some("late"));
    assert_eq!(cluster.names::<NodeClaim>().await, [claim.as_str()]);
    assert_eq!(
        value(&operator.metrics, RECEIVED, "no_op"),
        1.0,
        "what cannot be read is not counted"
    );
    assert_counted_once(&operator.metrics, RECEIVED, "scheduled_change");
    assert_counted_once(&operator.metrics, RECEIVED, "spot_interrupted");
    assert_eq!(sum(&operator.metrics, DELETED), 4.0);
    assert_eq!(sum(&operator.metrics, &format!("{DURATION}_count")), 3.0);
    let before = sum(&operator.metrics, &format!("{DURATION}_sum"));

    let provider_id = cluster
        .get::<NodeClaim>(&claim)
        .await
        .provider_id()
        .unwrap()
        .to_owned();
    let ours = Interruption {
        sent_at: Some(cluster.clock.now() - SignedDuration::from_secs(40)),
        ..message("ours", &provider_id, Ok(InterruptionKind::ScheduledChange))
    };
    said(ours);
    cluster.until_gone::<NodeClaim>(&claim).await;
    cluster.until_running_of("web", 1).await;
    assert_eq!(acknowledged().last().map(String::as_str), Some("ours"));
    // W-52: by all of core's labels, not three of them.
    let text = operator.metrics.render();
    let disrupted = text
        .lines()
        .find(|line| {
            line.starts_with("karpenter_nodeclaims_disrupted_total{") && line.contains("\"scheduled_change\"")
        })
        .unwrap();
    for label in [
        "nodepool=\"default\"",
        "capacity_type=\"",
        "consolidation_policy=\"",
        "termination_mode=\"",
    ] {
        assert!(
            disrupted.contains(label) && disrupted.ends_with(" 1"),
            "{label}: {disrupted}"
        );
    }
    let took = sum(&operator.metrics, &format!("{DURATION}_sum")) - before;
    assert!(
        (40.0..45.0).contains(&took),
        "from the event on, not from its arrival: {took}"
    );
    cluster.assert_tidy().await;
}

/// A queue that delivers again what is not acknowledged does not make a message younger.
#[tokio::test(start_paused = true)]
async fn d_278_a_message_that_comes_again_waits_from_its_first_arrival_on() {
    let cluster = Cluster::new(122).await;
    let cloud = cluster.faults.speak();
    let _operator = cluster.operator(Setup::default());
    cluster.pass(5).await;
    for _ in 0..4 {
        let gone = message("again", "kwok://gone", Ok(InterruptionKind::SpotInterrupted));
        cloud.unbounded_send(gone).unwrap();
        cluster.pass(10).await;
    }
    assert_eq!(*cluster.faults.acknowledged.lock().unwrap(), ["again"]);
}

// D-281, D-301: whoever limits how long a drain may take limits it for those that the cloud asks for, too.
#[tokio::test(start_paused = true)]
async fn d_281_d_301_a_termination_grace_period_holds_for_interrupted_nodes_too() {
    let cluster = Cluster::new(123).await;
    let cloud = cluster.faults.speak();
    let grace = json!({"template": {"spec": {"terminationGracePeriod": "20s"}}});
    cluster.pool("default", grace).await;
    let _operator = cluster.operator(Setup::default());
    let protected = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
    cluster
        .deploy_with("web", 1, template("web", "1", protected))
        .await;
    cluster.until_running_of("web", 1).await;
    let pod = cluster.pod_of("web").await.name_any();
    let claim = cluster.claim_of_pod("web").await;
    let claim = cluster.get::<NodeClaim>(&claim).await;
    let ends_at = cluster.clock.now() + SignedDuration::from_mins(2);
    let message = Interruption {
        ends_at: Some(ends_at),
        ..message(
            "ours",
            claim.provider_id().unwrap(),
            Ok(InterruptionKind::SpotInterrupted),
        )
    };
    cloud.unbounded_send(message).unwrap();
    let took = cluster.until_gone::<Pod>(&pod).await;
    assert!(
        took < Duration::from_secs(60),
        "it has less than two minutes: {took:?}"
    );
    cluster.until_gone::<NodeClaim>(claim.name()).await;
    cluster.until_running_of("web", 1).await;
    cluster.assert_no_leak().await;
}
