//! Jobs that change while they run: which pods stay when there are to be fewer, and what the status says while they stop.

use k8s_openapi::api::batch::v1::{CronJob, Job, JobCondition, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use spokeshave_api::NodePool;

use super::cron_job;
use crate::plain::Cluster;
use crate::words::*;

/// A Job of pods that run for so long, changed by a merge patch of its spec.
async fn job(cluster: &Cluster, cpu: &str, runs: &str, change: Value) {
    let once = json!({"metadata": {"annotations": {"sim.spokeshave.dev/run-duration": runs}}, "spec": {"restartPolicy": "Never"}});
    let mut spec = json!({"template": template("j", cpu, once)});
    json_patch::merge(&mut spec, &change);
    cluster
        .create::<Job>(json!({"metadata": {"name": "j"}, "spec": spec}))
        .await;
}

async fn status(cluster: &Cluster) -> JobStatus {
    cluster.get::<Job>("j").await.status.unwrap_or_default()
}

/// Status and reason of a condition of the Job.
async fn condition(cluster: &Cluster, kind: &str) -> Option<(String, String)> {
    let conditions = status(cluster).await.conditions?;
    let found = conditions.into_iter().find(|one| one.type_ == kind)?;
    Some((found.status, found.reason.unwrap_or_default()))
}

fn told(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_owned()))
}

/// By their names `j-10-…` and `j-11-…` come before `j-2-…`.
#[tokio::test(start_paused = true)]
async fn an_indexed_job_that_is_made_smaller_keeps_its_first_indexes() {
    let cluster = Cluster::undisturbed(224).await;
    let size = |size: i32| json!({"parallelism": size, "completions": size});
    let mut change = size(12);
    change["completionMode"] = json!("Indexed");
    job(&cluster, "100m", "10m", change).await;
    cluster.until_running(12).await;
    cluster.patch::<Job>("j", json!({"spec": size(3)})).await;
    cluster.until_running(3).await;
    let pods = cluster.running_pods().await;
    let index = |pod: &Pod| pod.annotations()["batch.kubernetes.io/job-completion-index"].clone();
    let mut indexes: Vec<String> = pods.iter().map(index).collect();
    indexes.sort();
    assert_eq!(indexes, ["0", "1", "2"]);
    cluster
        .until("the Job is complete", async |cluster| {
            condition(cluster, "Complete").await.is_some()
        })
        .await;
    let status = status(&cluster).await;
    assert_eq!(status.completed_indexes.as_deref(), Some("0-2"));
    assert_eq!((status.succeeded, status.failed), (Some(3), None));
}

/// What runs has done some of its work, what waits has done none.
#[tokio::test(start_paused = true)]
async fn a_job_with_less_parallelism_gives_up_the_pods_that_wait() {
    let cluster = Cluster::undisturbed(225).await;
    let change = json!({"parallelism": 3, "completions": 20});
    job(&cluster, "6", "50m", change).await;
    cluster.until_running(3).await;
    let uids = async |cluster: &Cluster| {
        let pods = cluster.running_pods().await;
        let mut uids: Vec<Option<String>> = pods.iter().map(Pod::uid).collect();
        uids.sort();
        uids
    };
    let before = uids(&cluster).await;
    // No further machine can be had.
    let limit = json!({"spec": {"limits": {"cpu": "1"}}});
    cluster.patch::<NodePool>("default", limit).await;
    let parallelism = |count: i32| json!({"spec": {"parallelism": count}});
    cluster.patch::<Job>("j", parallelism(9)).await;
    cluster.pass(60).await;
    assert_eq!(cluster.list::<Pod>().await.len(), 9);
    assert_eq!(cluster.running().await, 3, "six wait");
    cluster.patch::<Job>("j", parallelism(3)).await;
    cluster.until_running(3).await;
    assert_eq!(uids(&cluster).await, before);
}

/// `kubectl wait --for=condition=Suspended` returns, and a queue that resumes the Job sees that it was.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_suspended_says_so_until_it_is_resumed() {
    let cluster = Cluster::undisturbed(226).await;
    job(&cluster, "100m", "2m", json!({"suspend": true})).await;
    cluster.pass(30).await;
    assert_eq!(
        condition(&cluster, "Suspended").await,
        told("True", "JobSuspended")
    );
    assert!(cluster.list::<Pod>().await.is_empty());
    assert_eq!(status(&cluster).await.start_time, None);
    let suspend = |suspend: bool| json!({"spec": {"suspend": suspend}});
    cluster.patch::<Job>("j", suspend(false)).await;
    cluster.until_running(1).await;
    assert_eq!(
        condition(&cluster, "Suspended").await,
        told("False", "JobResumed")
    );
    cluster.patch::<Job>("j", suspend(true)).await;
    cluster.until_running(0).await;
    assert_eq!(
        condition(&cluster, "Suspended").await,
        told("True", "JobSuspended")
    );
    cluster.patch::<Job>("j", suspend(false)).await;
    cluster
        .until("the Job is complete", async |cluster| {
            condition(cluster, "Complete").await.is_some()
        })
        .await;
    assert_eq!(
        condition(&cluster, "SuccessCriteriaMet").await,
        told("True", "CompletionsReached")
    );
    assert_eq!(
        condition(&cluster, "Suspended").await,
        told("False", "JobResumed")
    );
    assert_eq!(status(&cluster).await.failed, None, "nobody has failed");
}

/// A Job has not ended before its last pod has, and a CronJob that forbids two at once makes the next one then.
#[tokio::test(start_paused = true)]
async fn a_job_has_not_ended_while_its_pods_stop() {
    let cluster = Cluster::undisturbed(227).await;
    let slow = json!({
        "metadata": {"annotations": {"pod-delete.stage.kwok.x-k8s.io/delay": "9m", "sim.spokeshave.dev/run-duration": "1h"}},
        "spec": {"terminationGracePeriodSeconds": 900},
    });
    let limited = json!({"spec": {"activeDeadlineSeconds": 300, "template": slow}});
    let change = json!({"concurrencyPolicy": "Forbid", "jobTemplate": limited});
    cluster.create::<CronJob>(cron_job("tick", change)).await;
    cluster
        .until("the deadline has come", async |cluster| {
            let jobs = cluster.list::<Job>().await;
            let statuses = jobs.iter().filter_map(|job| job.status.as_ref());
            let mut conditions = statuses.flat_map(|status| status.conditions.iter().flatten());
            conditions
                .any(|one| one.type_ == "FailureTarget" && one.reason.as_deref() == Some("DeadlineExceeded"))
        })
        .await;
    // The next time comes in these eight minutes, and finds the pod of the first Job.
    cluster.pass(8 * 60).await;
    let mut jobs = cluster.list::<Job>().await;
    assert_eq!(jobs.len(), 1, "the first has not ended");
    let status = jobs.remove(0).status.unwrap();
    assert_eq!((status.active, status.terminating), (None, Some(1)));
    let has_failed = |one: &JobCondition| one.type_ == "Failed";
    assert!(!status.conditions.unwrap().iter().any(has_failed));
    cluster
        .until("the first has failed and the second runs", async |cluster| {
            cluster.list::<Job>().await.len() == 2
        })
        .await;
    let jobs = cluster.list::<Job>().await;
    let statuses = jobs.iter().filter_map(|job| job.status.as_ref());
    let conditions = statuses.flat_map(|status| status.conditions.iter().flatten());
    assert_eq!(conditions.filter(|one| has_failed(one)).count(), 1);
}

/// A period has no times of its own: it counts from the creation of the CronJob.
#[tokio::test(start_paused = true)]
async fn a_cron_job_runs_again_and_again_after_a_period() {
    let cluster = Cluster::undisturbed(228).await;
    let slow = json!({"schedule": "@every 7m"});
    cluster.create::<CronJob>(cron_job("slow", slow)).await;
    // Of the times in one minute only the first has a Job, and the others do not replace it.
    let half_a_minute = json!({"metadata": {"annotations": {"sim.spokeshave.dev/run-duration": "30s"}}});
    let fast = json!({
        "schedule": "@every 20s", "concurrencyPolicy": "Replace", "jobTemplate": {"spec": {"template": half_a_minute}},
    });
    cluster.create::<CronJob>(cron_job("fast", fast)).await;
    cluster.pass(22 * 60).await;
    let jobs = cluster.list::<Job>().await;
    let of = |name: &str| jobs.iter().filter(|job| job.labels()["of"] == name).count();
    assert_eq!(of("slow"), 3);
    assert!(
        of("fast") >= 3,
        "they come to their end, and the last three are kept"
    );
    assert!(cluster.events("UnparseableSchedule").await.is_empty());
}
