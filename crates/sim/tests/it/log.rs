//! What an operator's log says while things go wrong: the words that pages name, each as often as it helps.

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;
use spokeshave_api::conditions::{Conditioned as _, INITIALIZED};
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_controllers::Options;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::faulty::{Cluster, Setup};
use crate::words::*;

/// What was logged on this thread, on which all of a test runs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Of everything from here on, for as long as the second value lives.
    fn begin() -> (Self, impl Sized) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::INFO)
            .with_ansi(false)
            .with_writer(Mutex::new(log.clone()))
            .finish();
        (log, subscriber.set_default())
    }

    /// The lines with all of these texts.
    fn lines(&self, texts: &[&str]) -> Vec<String> {
        let bytes = self.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        let lines = text
            .lines()
            .filter(|line| texts.iter().all(|text| line.contains(text)));
        lines.map(str::to_owned).collect()
    }
}

/// Queries of logs are written from the page: the text of the line, and what its fields are called.
#[tokio::test(start_paused = true)]
async fn d_331_a_termination_that_is_held_up_is_logged_as_the_page_says() {
    const PAGE: &str = include_str!("../../../../docs/operations.md");
    assert!(PAGE.contains("message `termination is held up`, fields `NodeClaim`, `reason` and `detail`"));
    let (log, _guard) = Log::begin();
    let (cluster, _operator, claim) = Cluster::one_node(184, json!({})).await;
    cluster.budget("web", json!({"minAvailable": 1})).await;
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_blocked(&claim, "PodDisruptionBudget").await;
    let said = log.lines(&["termination is held up", "PodDisruptionBudget"]);
    assert_eq!(said.len(), 1, "{said:?}");
    for field in ["NodeClaim=", "reason=", "detail="] {
        assert!(said[0].contains(field), "no {field} in {said:?}");
    }
    // Other words are for the condition, not for the log.
    for least in 2..=6 {
        let patch = json!({"spec": {"minAvailable": least}});
        cluster.patch::<PodDisruptionBudget>("web", patch).await;
        cluster.pass(120).await;
    }
    let (_, words) = cluster.blocked(&claim).await.unwrap();
    assert!(words.contains("minAvailable 6"), "{words}");
    assert_eq!(log.lines(&["termination is held up"]), said);
    // Another reason is told once, however often it takes to write it.
    cluster.gate.trip("/nodeclaims/*/status", 500, 3);
    cluster
        .budget_named("second", "web", json!({"minAvailable": 0}))
        .await;
    cluster
        .until_blocked(&claim, "MultiplePodDisruptionBudgets")
        .await;
    cluster.gate.assert_tripped();
    let said = log.lines(&["termination is held up", "MultiplePodDisruptionBudgets"]);
    assert_eq!(said.len(), 1, "{said:#?}");
}

/// Whoever is told to install definitions that are there may replace them by those of another version.
#[tokio::test(start_paused = true)]
async fn p_204_a_server_that_cannot_be_asked_does_not_lack_our_kinds() {
    let (log, _guard) = Log::begin();
    let cluster = Cluster::new(185).await;
    cluster.gate.cut.store(true, Ordering::Relaxed);
    let operator = cluster.operator(Setup::default());
    cluster.pass(5).await;
    assert_eq!(operator.readiness.pending(), ["crd", "manager"]);
    let unknown = log.lines(&["does not say which kinds of karpenter.sh/v1 it serves"]);
    assert_eq!(unknown.len(), 1, "{unknown:?}");
    assert!(unknown[0].contains("the network is cut"), "{unknown:?}");
    // Another cause is news.
    cluster.gate.hides_kinds.store(true, Ordering::Relaxed);
    cluster.gate.cut.store(false, Ordering::Relaxed);
    cluster.pass(5).await;
    let unknown = log.lines(&["does not say which kinds of karpenter.sh/v1 it serves"]);
    assert_eq!(unknown.len(), 2, "{unknown:?}");
    assert!(unknown[1].contains("system:discovery is gone"), "{unknown:?}");
    cluster.gate.hides_kinds.store(false, Ordering::Relaxed);
    cluster
        .until("the operator is ready", async |_| operator.readiness.is_ready())
        .await;
    assert_eq!(log.lines(&["does not serve kinds of karpenter.sh/v1"]), [""; 0]);
}

/// Eight machines are short for half an hour, and asked for again some ten times: three lines at most for each time, and not eight in every pass.
#[tokio::test(start_paused = true)]
async fn invariant_24_nodeclaims_that_wait_for_the_same_try_have_one_line() {
    let (log, _guard) = Log::begin();
    let cluster = Cluster::new(186).await;
    cluster.pool("default", json!({})).await;
    let short = cluster.faults.short_pools.clone();
    short.lock().unwrap().insert("default".to_owned());
    let _operator = cluster.operator(Setup::default());
    cluster.deploy("web", 8, "6").await;
    cluster.pass(1_800).await;
    let said = log.lines(&["the cloud has refused such nodeclaims lately"]);
    assert!((5..=40).contains(&said.len()), "{} lines: {said:#?}", said.len());
    let together = said.iter().any(|line| line.contains("nodeclaims=8"));
    assert!(together, "{said:#?}");
    short.lock().unwrap().clear();
    cluster.until_running_of("web", 8).await;
}

/// However often it is written by others: a Node is, every few seconds.
#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_logged_once() {
    let (log, _guard) = Log::begin();
    let (cluster, _operator) = Cluster::started(187, json!({})).await;
    cluster.pool("odd", json!({})).await;
    cluster.pass(30).await;
    cluster.spoil::<NodePool>("odd").await;
    for number in 0..5 {
        let patch = json!({"metadata": {"annotations": {"number": number.to_string()}}});
        cluster.patch_any::<NodePool>("odd", patch).await;
        cluster.pass(10).await;
    }
    let said = log.lines(&["skipping an object that cannot be read", "object=odd"]);
    assert_eq!(said.len(), 1, "{said:#?}");
    // With the field, as an object has many times.
    assert!(
        said[0].contains("status.conditions[0].lastTransitionTime: "),
        "{said:#?}"
    );
}

/// One key for what is reconciled, whether that goes well or fails.
#[tokio::test(start_paused = true)]
async fn p_205_what_cannot_be_reconciled_is_named_as_in_every_other_line() {
    let (log, _guard) = Log::begin();
    let (cluster, _operator, claim) = Cluster::one_node(192, json!({})).await;
    *cluster.faults.delete_error.lock().unwrap() = Some("quota of API calls is used up".to_owned());
    cluster.delete::<NodeClaim>(&claim).await;
    cluster.until_blocked(&claim, "ProviderError").await;
    *cluster.faults.delete_error.lock().unwrap() = None;
    let said = log.lines(&["reconcile failed"]);
    assert!(!said.is_empty(), "the cloud ends nothing");
    for line in &said {
        let is_named = ["controller=", "name=", "error="]
            .iter()
            .all(|key| line.contains(key));
        assert!(is_named && !line.contains("object="), "{line}");
    }
    cluster.until_gone::<NodeClaim>(&claim).await;
}

/// Kubernetes before 1.34 has no such ResourceSlices: there is nobody to wait for, which is said once, and everything else goes on.
#[tokio::test(start_paused = true)]
async fn p_168_drivers_are_not_waited_for_where_their_kind_is_not_served() {
    let (log, _guard) = Log::begin();
    let cluster = Cluster::new(193).await;
    let asking =
        json!({"metadata": {"annotations": {"karpenter.sh/requested-dra-drivers": "gpu.example.com"}}});
    cluster.pool("default", json!({"template": asking})).await;
    *cluster.gate.unserved.lock().unwrap() = Some("resource.k8s.io/v1");
    let with_devices = Options {
        dynamic_resources: true,
        ..Options::default()
    };
    let operator = cluster.operator(Setup::with_options(with_devices));
    cluster.run("web", 1, "1").await;
    cluster
        .until("the node is initialised", async |cluster| {
            let claims = cluster.list::<NodeClaim>().await;
            claims.iter().all(|claim| claim.is_true(INITIALIZED))
        })
        .await;
    assert!(
        operator.readiness.is_ready(),
        "{:?}",
        operator.readiness.pending()
    );
    let said = log.lines(&["IGNORE_DRA_REQUESTS=false", "restart the operator"]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(log.lines(&["kind=\"ResourceSlice\""]), [""; 0]);
}

/// Every ten seconds or so a pass finds again that a pod has no place: it is said at once, and then ever more rarely.
#[tokio::test(start_paused = true)]
async fn a_pod_that_could_not_be_scheduled_has_its_line_once_and_not_in_every_pass() {
    let (log, _guard) = Log::begin();
    let (cluster, operator, _claim) = Cluster::one_node(194, json!({})).await;
    let passes = || {
        let family = "karpenter_scheduler_scheduling_duration_seconds_count";
        sum_of(&operator.metrics, family, "controller=\"provisioner\"")
    };
    let before = passes();
    let nowhere = json!({"spec": {"nodeSelector": {"example.com/slot": "none"}}});
    cluster.pod("odd", "1", nowhere).await;
    cluster.pass(55).await;
    let said = log.lines(&["could not schedule pod", "default/odd"]);
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0].contains("error="), "{said:?}");
    cluster.pass(545).await;
    let said = log.lines(&["could not schedule pod", "default/odd"]);
    // After one minute, three and seven.
    assert!((3..=4).contains(&said.len()), "{said:#?}");
    let passed = passes() - before;
    assert!(passed > 20.0, "{passed} passes");
}

/// Who waits for a store learns which one it is after half a minute, and every half minute from then on.
#[tokio::test(start_paused = true)]
async fn d_049_p_142_stores_that_take_long_to_be_filled_are_named() {
    const LINE: &str = "the state of the cluster is not complete yet; until it is, nothing is decided";
    let (log, _guard) = Log::begin();
    let cluster = Cluster::new(195).await;
    let silent = cluster.gate.silent.clone();
    silent.lock().unwrap().push("persistentvolumeclaims");
    let operator = cluster.operator(Setup::default());
    cluster.pass(25).await;
    assert_eq!(log.lines(&[LINE]), [""; 0], "that is not long");
    cluster.pass(20).await;
    let said = log.lines(&[LINE]);
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(
        said[0].contains("waiting_for=\"persistent_volume_claims\""),
        "that one, and no other: {said:?}"
    );
    cluster.pass(60).await;
    let said = log.lines(&[LINE]);
    assert_eq!(said.len(), 3, "{said:#?}");
    operator.end().await;
    silent.lock().unwrap().clear();
    let operator = cluster.operator(Setup::default());
    cluster.pass(60).await;
    assert!(
        operator.readiness.is_ready(),
        "{:?}",
        operator.readiness.pending()
    );
    assert_eq!(log.lines(&[LINE]), said, "nothing is missing any more");
}
