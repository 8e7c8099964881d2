//! What series say: amounts, names of resources, errors of the cloud, durations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_ports::{Clock, SharedClock};

use super::with_object_metrics;
use crate::faulty::{Cluster, Setup};
use crate::words::*;

/// What a device plugin reports late, or not any more, is counted although no NodeClaim changes.
#[tokio::test(start_paused = true)]
async fn p_183_the_usage_of_a_nodepool_follows_its_nodes() {
    let (cluster, operator, _) = Cluster::one_node(56, json!({})).await;
    cluster.pass(60).await;
    let node = cluster.names::<Node>().await.remove(0);
    for (capacity, counted) in [(json!("4"), "4"), (json!("2"), "2"), (json!(null), "0")] {
        let capacity = json!({"capacity": {"example.com/gpu": capacity}});
        cluster.patch_status::<Node>(&node, capacity).await;
        cluster.pass(10).await;
        let pool: NodePool = cluster.get("default").await;
        let resources = pool.status.unwrap_or_default().resources;
        let gpus = resources.get("example.com/gpu");
        assert_eq!(gpus.map_or("0", |amount| amount.0.as_str()), counted);
        let labels = "resource_type=\"example.com/gpu\"";
        let usage = value(&operator.metrics, "karpenter_nodepools_usage", labels);
        assert_eq!(usage.to_string(), counted);
    }
}

/// Totals of pods include those of DaemonSets, and init containers count as the scheduler counts them.
#[tokio::test(start_paused = true)]
async fn p_207_totals_of_a_node_include_its_daemon_set_pods() {
    let (cluster, operator) = Cluster::started_with(51, json!({}), with_object_metrics()).await;
    let container = |name: &str, requests: &str, limits: &str| {
        let amounts = json!({"requests": {"cpu": requests}, "limits": {"cpu": limits}});
        json!([{"name": name, "image": "i", "resources": amounts}])
    };
    let daemon = json!({"spec": {"containers": container("c", "100m", "200m")}});
    cluster
        .create::<DaemonSet>(json!({"metadata": {"name": "d"}, "spec": {
            "selector": {"matchLabels": {"app": "d"}}, "template": template("d", "100m", daemon),
        }}))
        .await;
    let pod = json!({"spec": {"containers": container("c", "1", "2"), "initContainers": container("first", "500m", "3")}});
    let pod = template("web", "1", pod);
    cluster.deploy_with("web", 1, pod).await;
    cluster.until_running(2).await;
    let node = cluster.names::<Node>().await.remove(0);
    // Labels are in alphabetical order.
    let of = |what: &str, resource: &str| {
        let text = operator.metrics.render();
        let of_node = |line: &&str| {
            line.starts_with(&format!("karpenter_nodes_total_{what}{{"))
                && line.contains(&format!("node_name=\"{node}\""))
                && line.contains(&format!("resource_type=\"{resource}\""))
        };
        let line = text.lines().find(of_node);
        let line = line.unwrap_or_else(|| panic!("{what} of {resource}:\n{text}"));
        line.rsplit(' ').next().unwrap_or_default().to_owned()
    };
    assert_eq!(
        (of("pod_requests", "cpu"), of("daemon_requests", "cpu")),
        ("1.1".into(), "0.1".into())
    );
    // The init container's 3 exceed the container's 2.
    assert_eq!(
        (of("pod_limits", "cpu"), of("daemon_limits", "cpu")),
        ("3.2".into(), "0.2".into())
    );
    assert_eq!(
        (of("pod_requests", "pods"), of("daemon_requests", "pods")),
        ("2".into(), "1".into())
    );
}

/// `ephemeral_storage`, nowhere `ephemeral-storage`; a limit's series is removed with the limit, a NodePool's with the NodePool.
#[tokio::test(start_paused = true)]
async fn p_207_resources_have_prometheus_names_and_the_series_of_a_limit_goes_with_it() {
    let limits = json!({"limits": {"cpu": "100", "memory": "1Ti", "ephemeral-storage": "5Ti"}});
    let (cluster, operator) = Cluster::started_with(52, limits, with_object_metrics()).await;
    cluster.run_one_pod().await;
    cluster.pass(5).await;
    let text = operator.metrics.render();
    for family in [
        "karpenter_nodes_allocatable{",
        "karpenter_nodes_system_overhead{",
        "karpenter_cluster_utilization_percent{",
        "karpenter_nodepools_limit{",
        "karpenter_nodepools_usage{",
    ] {
        let mut lines = text.lines().filter(|line| line.starts_with(family));
        let is_named = lines.any(|line| line.contains("resource_type=\"ephemeral_storage\""));
        assert!(is_named, "{family}:\n{text}");
    }
    assert!(!text.contains("resource_type=\"ephemeral-storage\""), "{text}");
    let limit = |resource: &str| {
        let labels = format!("resource_type=\"{resource}\"");
        reading(&operator.metrics, "karpenter_nodepools_limit", &labels)
    };
    assert_eq!(
        (limit("cpu"), limit("memory")),
        (Some(100.0), Some(1_099_511_627_776.0))
    );
    let fewer = json!({"spec": {"limits": {"memory": null, "cpu": "50"}}});
    cluster.patch::<NodePool>("default", fewer).await;
    cluster.pass(5).await;
    assert_eq!((limit("cpu"), limit("memory")), (Some(50.0), None));
    cluster.delete::<Deployment>("web").await;
    cluster.delete::<NodePool>("default").await;
    cluster.until_gone::<NodePool>("default").await;
    cluster.pass(30).await;
    let text = operator.metrics.render();
    let is_left =
        |line: &&str| line.starts_with("karpenter_nodepools_") && line.contains("nodepool=\"default\"");
    let left: Vec<&str> = text.lines().filter(is_left).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn p_207_an_instance_that_is_gone_counts_as_an_error_of_the_cloud() {
    let (cluster, operator, claim) = Cluster::one_node(53, json!({})).await;
    let not_found = || {
        let (family, label) = (
            "karpenter_cloudprovider_errors_total",
            "error=\"NodeClaimNotFoundError\"",
        );
        value(&operator.metrics, family, label)
    };
    assert!(not_found() < 1.0);
    cluster.delete::<Deployment>("web").await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_gone::<NodeClaim>(&claim).await;
    assert!(not_found() >= 1.0, "{}", operator.metrics.render());
}

/// A clock whose n-th reading is n² nanoseconds late, so no two intervals between readings are equal.
#[derive(Debug)]
struct Uneven {
    inner: SharedClock,
    readings: AtomicU64,
}

impl Clock for Uneven {
    fn now(&self) -> Timestamp {
        let reading = self.readings.fetch_add(1, Ordering::Relaxed);
        self.inner.now() + Duration::from_nanos(reading * reading)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.inner.sleep(duration)
    }
}

/// What each method observed is its own time, not that of the whole pass; what-ifs show as simulations of the scheduler.
#[tokio::test(start_paused = true)]
async fn d_067_each_method_of_disruption_observes_its_own_evaluation() {
    let cluster = Cluster::new(54).await;
    let eager = json!({"disruption": {"consolidateAfter": "0s"}});
    cluster.pool("default", eager).await;
    let clock = Uneven {
        inner: cluster.clock.clone(),
        readings: AtomicU64::new(0),
    };
    let operator = cluster.operator(Setup {
        clock: Some(Arc::new(clock)),
        ..Setup::default()
    });
    cluster.run("web", 1, "1").await;
    cluster.pass(60).await;
    let metrics = &operator.metrics;
    let of = |what: &str| {
        let methods = [
            ("empty", "empty"),
            ("drifted", ""),
            ("underutilized", "multi"),
            ("underutilized", "single"),
        ];
        methods.map(|(reason, kind)| {
            let labels = format!("consolidation_type=\"{kind}\",reason=\"{reason}\"");
            let family = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds";
            value(metrics, &format!("{family}_{what}"), &labels)
        })
    };
    let ([empty, drifted, multi, single], sums) = (of("count"), of("sum"));
    assert!(empty > 0.0 && drifted > 0.0, "{empty} {drifted}");
    // Both ran in every pass that found nothing, one after the other.
    assert!(multi > 0.0 && (multi - single).abs() < 0.5, "{multi} {single}");
    assert!(sums[2] < sums[3], "{sums:?}");
    let family = "karpenter_scheduler_scheduling_duration_seconds_count";
    let simulated = value(metrics, family, "controller=\"disruption\"");
    assert!(simulated > 0.0, "{}", metrics.render());
    // Pods without a place are counted by the provisioner only, as upstream (P §5.4).
    let counted = "karpenter_scheduler_unschedulable_pods_count{controller=\"disruption\"";
    assert!(!metrics.render().contains(counted), "{}", metrics.render());
}

/// A pod without a place is counted while it waits, and no longer when it has been deleted, although no other pod makes a pass: an alert hangs on that.
#[tokio::test(start_paused = true)]
async fn p_207_who_waits_no_longer_is_not_counted() {
    let (cluster, operator) = Cluster::started_with(57, json!({}), with_object_metrics()).await;
    let nowhere = json!({"spec": {"nodeSelector": {"kubernetes.io/arch": "mips"}}});
    let pod = template("web", "1", nowhere);
    cluster.deploy_with("web", 2, pod).await;
    let counted = || {
        let text = operator.metrics.render();
        let of = |family: &str| {
            let lines = text
                .lines()
                .filter(|line| line.starts_with(&format!("{family}{{")));
            lines
                .map(|line| line.rsplit(' ').next().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        (
            of("karpenter_scheduler_unschedulable_pods_count"),
            of("karpenter_scheduler_pending_pods_by_effective_zone_count"),
        )
    };
    cluster.pass(30).await;
    let (unschedulable, zones) = counted();
    assert_eq!(unschedulable, ["2"]);
    assert_eq!(zones.len(), 1, "{zones:?}");
    cluster.delete::<Deployment>("web").await;
    cluster.pass(30).await;
    assert_eq!(counted(), (vec!["0".to_owned()], Vec::new()));
}

/// The cloud refuses every node for an hour. Between two tries and while one is under way the pods have no node either, and the alert about them must not see
/// them gone for long; when they run they are counted no longer.
#[tokio::test(start_paused = true)]
async fn p_207_invariant_24_who_waits_for_the_next_try_has_no_place() {
    const STEP: u64 = 5;
    let (cluster, operator) = Cluster::started(193, json!({})).await;
    let short = cluster.faults.short_pools.clone();
    short.lock().unwrap().insert("default".to_owned());
    cluster.deploy("web", 2, "1").await;
    let counted = || sum(&operator.metrics, "karpenter_scheduler_unschedulable_pods_count");
    cluster.pass(60).await;
    let (mut gap, mut longest, mut most) = (0, 0, 0.0_f64);
    for _ in 0..3_600 / STEP {
        cluster.pass(STEP).await;
        most = most.max(counted());
        gap = if counted() > 0.0 { 0 } else { gap + STEP };
        longest = longest.max(gap);
    }
    assert!(longest < 60, "nobody was counted for {longest} s");
    assert_eq!(most, 2.0, "each is counted once");
    short.lock().unwrap().clear();
    cluster.until_running_of("web", 2).await;
    cluster.pass(30).await;
    assert_eq!(counted(), 0.0);
}

/// A pod that asks for a node by its name is none that a new node could help: it is ignored, which is counted, and how long it waits is shown until it is gone.
#[tokio::test(start_paused = true)]
async fn p_207_p_208_who_is_ignored_is_counted_and_its_wait_grows() {
    let (cluster, operator) = Cluster::started_with(170, json!({}), with_object_metrics()).await;
    let by_name = json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}}});
    cluster.pod("odd", "1", by_name).await;
    let ignored = || reading(&operator.metrics, "karpenter_scheduler_ignored_pods_count", "");
    let waits = |what: &str| {
        let family = format!("karpenter_pods_{what}_time_seconds");
        reading(&operator.metrics, &family, "name=\"odd\"")
    };
    cluster.pass(30).await;
    assert_eq!(ignored(), Some(1.0));
    let before = ["unbound", "unstarted"].map(|what| (what, waits(what).expect("a series")));
    cluster.pass(60).await;
    for (what, first) in before {
        let then = waits(what).expect("a series");
        assert!((29.0..33.0).contains(&first), "{what}: {first}");
        assert!(
            (59.0..62.0).contains(&(then - first)),
            "{what}: {first}, then {then}"
        );
    }
    assert_eq!(waits("provisioning_unbound"), None, "no place was found for it");
    cluster.delete::<Pod>("odd").await;
    cluster.until_gone::<Pod>("odd").await;
    cluster.pass(30).await;
    assert_eq!(ignored(), Some(0.0));
    assert_eq!((waits("unbound"), waits("unstarted")), (None, None));
}

/// What budgets allow is shown as it is before anything uses it up, beside what does, for each reason for which there is a candidate.
#[tokio::test(start_paused = true)]
async fn d_195_d_200_d_208_the_gauges_of_budgets_show_what_they_allow_and_what_uses_it_up() {
    let with_budget = |nodes: &str| {
        let budgets = json!([{"nodes": nodes}, {"nodes": "0", "reasons": ["Drifted"]}]);
        json!({"disruption": {"consolidateAfter": "0s", "budgets": budgets}})
    };
    let (cluster, operator) = Cluster::started(169, with_budget("2")).await;
    // Each fills its node, so that all are candidates of consolidation and none goes.
    cluster.run("web", 5, "6").await;
    let shown = |reason: &str| {
        let labels = format!("nodepool=\"default\",reason=\"{reason}\"");
        let of = |what: &str| reading(&operator.metrics, &format!("karpenter_nodepools_{what}"), &labels);
        (of("allowed_disruptions"), of("nodes_consuming_budgets"))
    };
    cluster.pass(30).await;
    assert_eq!(shown("Underutilized"), (Some(2.0), Some(0.0)));
    assert_eq!(shown("Drifted"), (None, None), "nothing has drifted");
    let other = json!({"spec": {"template": {"metadata": {"labels": {"team": "blue"}}}}});
    cluster.patch::<NodePool>("default", other).await;
    let node = cluster.names::<Node>().await.remove(0);
    cluster.say_ready(&node, "Unknown").await;
    cluster.pass(30).await;
    assert_eq!(shown("Underutilized"), (Some(2.0), Some(1.0)));
    assert_eq!(shown("Drifted"), (Some(0.0), Some(1.0)));
    let wider = json!({ "spec": with_budget("100%") });
    cluster.patch::<NodePool>("default", wider).await;
    cluster.pass(30).await;
    assert_eq!(shown("Underutilized"), (Some(5.0), Some(1.0)));
    assert_eq!(shown("Drifted"), (Some(0.0), Some(1.0)));
    cluster.assert_no_commands().await;
}
