//! What the simulated components promise: workloads that change, pods that are driven out, preempted or bring claims of their own.

mod jobs;
mod replication_controllers;
mod rollouts;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::plain::Cluster;
use crate::words::*;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::{Value, json};
use spokeshave_api::{NodeClaim, NodePool};

fn of_app<'a>(pods: &'a [Pod], app: &str) -> Vec<&'a Pod> {
    let has = |pod: &&Pod| pod.labels().get("app").is_some_and(|value| value == app);
    pods.iter().filter(has).collect()
}

async fn daemon(cluster: &Cluster, name: &str, cpu: &str) {
    let object = json!({"metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"app": name}}, "template": template(name, cpu, json!({})),
    }});
    cluster.create::<DaemonSet>(object).await;
}

/// One daemon a node, also on new nodes, and replaced one at a time by a new template.
#[tokio::test(start_paused = true)]
async fn a_daemon_set_covers_nodes_and_rolls_one_at_a_time() {
    let cluster = Cluster::undisturbed(31).await;
    daemon(&cluster, "d", "50m").await;
    cluster.deploy("web", 3, "6").await;
    cluster.until_running(6).await;
    let nodes: std::collections::BTreeSet<_> = of_app(&cluster.running_pods().await, "d")
        .iter()
        .map(|pod| pod.spec.as_ref().unwrap().node_name.clone())
        .collect();
    assert_eq!(nodes.len(), 3, "one a node");
    let patch = json!({"spec": {"template": second_version()}});
    cluster.patch::<DaemonSet>("d", patch).await;
    let mut fewest = 3;
    cluster
        .until("all daemons are of the new version", async |cluster| {
            let pods = cluster.running_pods().await;
            let daemons = of_app(&pods, "d");
            fewest = fewest.min(daemons.len());
            daemons.len() == 3
                && daemons.iter().all(|pod| {
                    pod.annotations()
                        .get("version")
                        .is_some_and(|version| version == "2")
                })
        })
        .await;
    assert_eq!(fewest, 2, "maxUnavailable is 1");
    let status = cluster.get::<DaemonSet>("d").await.status.unwrap();
    assert_eq!(
        (status.updated_number_scheduled, status.number_ready),
        (Some(3), 3)
    );
}

/// A daemon's pod that never found room on its node goes with the node: nobody has bound it, so that nobody else would take it away.
#[tokio::test(start_paused = true)]
async fn a_daemon_that_waits_for_a_node_goes_with_it() {
    let cluster = Cluster::undisturbed(37).await;
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    daemon(&cluster, "d", "100").await;
    let daemons = async |cluster: &Cluster| of_app(&cluster.list::<Pod>().await, "d").len();
    cluster
        .until("the daemon waits", async |cluster| daemons(cluster).await == 1)
        .await;
    cluster.scale("web", 0).await;
    let claim = cluster.claim_of(&cluster.names::<Node>().await[0]).await;
    cluster.delete::<NodeClaim>(claim.name()).await;
    cluster
        .until("the daemon is gone", async |cluster| daemons(cluster).await == 0)
        .await;
    cluster.until_empty().await;
}

/// A ReplicaSet lets go of a pod whose labels it does not select any more, and replaces it; it takes the pod back once it selects it again.
#[tokio::test(start_paused = true)]
async fn a_replica_set_releases_and_adopts_pods() {
    let cluster = Cluster::undisturbed(38).await;
    let object = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "100m", json!({})),
    }});
    cluster.create::<ReplicaSet>(object).await;
    cluster.until_running(2).await;
    let pod = cluster.names::<Pod>().await.remove(0);
    let label = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    let owners = async |cluster: &Cluster| cluster.get::<Pod>(&pod).await.owner_references().len();
    assert_eq!(owners(&cluster).await, 1);
    cluster.patch::<Pod>(&pod, label("looked-into")).await;
    cluster.until_running(3).await;
    assert_eq!(owners(&cluster).await, 0, "it is nobody's");
    cluster
        .patch::<ReplicaSet>("web", json!({"spec": {"replicas": 3}}))
        .await;
    cluster.until_running(4).await;
    // With it there is one pod more than the set wants.
    cluster.patch::<Pod>(&pod, label("web")).await;
    cluster.until_running(3).await;
    let pods = cluster.list::<Pod>().await;
    let is_owned = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.name == "web");
    assert!(pods.iter().all(is_owned), "{pods:?}");
}

/// Pods that a Deployment's ReplicaSet leaves behind are those of the next one, and none of them is replaced.
#[tokio::test(start_paused = true)]
async fn a_new_replica_set_keeps_the_pods_that_the_old_one_left() {
    let cluster = Cluster::undisturbed(39).await;
    cluster.deploy("web", 3, "100m").await;
    cluster.until_running(3).await;
    let uids = async |cluster: &Cluster| {
        let pods = cluster.running_pods().await;
        let mut uids: Vec<Option<String>> = pods.iter().map(Pod::uid).collect();
        uids.sort();
        uids
    };
    let before = uids(&cluster).await;
    let set = cluster.names::<ReplicaSet>().await.remove(0);
    cluster.delete_alone::<ReplicaSet>(&set).await;
    cluster.pass(60).await;
    assert_eq!(uids(&cluster).await, before);
    let pods = cluster.list::<Pod>().await;
    let is_owned = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.name == set);
    assert!(pods.iter().all(is_owned), "{pods:?}");
}

/// `minAvailable` as a number is that many pods; a percentage, rounded up, and `maxUnavailable` are of what controllers are to have, be there more or fewer.
#[tokio::test(start_paused = true)]
async fn budgets_count_what_controllers_are_to_have() {
    let cluster = Cluster::undisturbed(78).await;
    cluster.run("web", 5, "100m").await;
    cluster.run("rolling", 4, "100m").await;
    let nowhere = json!({"spec": {"nodeSelector": {"example.com/nowhere": "yes"}}});
    for (app, replicas, change) in [("set", 3, json!({})), ("stuck", 4, nowhere.clone())] {
        let template = template(app, "100m", change);
        cluster.stateful_set(app, replicas, template).await;
    }
    cluster.until_running_of("set", 3).await;
    // Three of the old version stay, and two of the new one wait.
    let patch = json!({"spec": {"template": nowhere}});
    cluster.patch::<Deployment>("rolling", patch).await;
    cluster.pass(60).await;
    let shares = json!([
        {"minAvailable": 2}, {"minAvailable": "50%"}, {"minAvailable": "100%"},
        {"maxUnavailable": 0}, {"maxUnavailable": 1}, {"maxUnavailable": "30%"},
    ]);
    let fields = "expectedPods desiredHealthy currentHealthy disruptionsAllowed".split(' ');
    for (app, counts) in [
        ("web", "5 2 5 3, 5 3 5 2, 5 5 5 0, 5 5 5 0, 5 4 5 1, 5 3 5 2"),
        ("set", "3 2 3 1, 3 2 3 1, 3 3 3 0, 3 3 3 0, 3 2 3 1, 3 2 3 1"),
        ("rolling", "5 2 3 1, 4 2 3 1, 4 4 3 0, 4 4 3 0, 4 3 3 0, 4 2 3 1"),
        ("stuck", "1 2 0 0, 4 2 0 0, 4 4 0 0, 4 4 0 0, 4 3 0 0, 4 2 0 0"),
    ] {
        for (index, counts) in counts.split(", ").enumerate() {
            let (name, share) = (format!("{app}-{index}"), &shares[index]);
            cluster.budget_named(&name, app, share.clone()).await;
            cluster.pass(5).await;
            let status = json!(cluster.get::<PodDisruptionBudget>(&name).await.status);
            let found: Vec<String> = fields.clone().map(|field| status[field].to_string()).collect();
            assert_eq!(found.join(" "), counts, "{app}: {share}");
        }
    }
}

/// A Job runs to its completions, also when a pod is lost on the way.
#[tokio::test(start_paused = true)]
async fn a_job_completes_although_a_pod_is_lost() {
    let cluster = Cluster::started(32, json!({})).await;
    let change = json!({"metadata": {"annotations": {"sim.spokeshave.dev/run-duration": "2m"}}, "spec": {"restartPolicy": "Never"}});
    let object = json!({"metadata": {"name": "j"}, "spec": {
        "parallelism": 2, "completions": 3, "backoffLimit": 10, "template": template("j", "1", change),
    }});
    cluster.create::<Job>(object).await;
    cluster
        .until("two pods run", async |cluster| cluster.running().await == 2)
        .await;
    let lost = cluster.running_pods().await[0].name_any();
    cluster.delete::<Pod>(&lost).await;
    let took = cluster
        .until("the job is complete", async |cluster| {
            let status = cluster.get::<Job>("j").await.status.unwrap_or_default();
            status.succeeded == Some(3) && status.completion_time.is_some()
        })
        .await;
    assert!(
        took >= Duration::from_secs(200),
        "two rounds of two minutes: {took:?}"
    );
    cluster.until_empty().await;
}

/// Pods of a StatefulSet come one after the other, go from the last, and are replaced from the last.
#[tokio::test(start_paused = true)]
async fn a_stateful_set_keeps_its_order() {
    let cluster = Cluster::undisturbed(33).await;
    cluster.stateful_set("s", 3, template("s", "1", json!({}))).await;
    let names = async |cluster: &Cluster| {
        let mut names = cluster.names::<Pod>().await;
        names.sort();
        names
    };
    cluster
        .until("three pods run, one after the other", async |cluster| {
            let (all, running) = (names(cluster).await, cluster.running().await);
            assert!(all.len() <= running + 1, "{all:?} and {running} run");
            running == 3
        })
        .await;
    assert_eq!(names(&cluster).await, ["s-0", "s-1", "s-2"]);
    let patch = json!({"spec": {"template": second_version()}});
    cluster.patch::<StatefulSet>("s", patch).await;
    let mut order: Vec<String> = Vec::new();
    cluster
        .until("all pods are of the new version", async |cluster| {
            let pods = cluster.running_pods().await;
            for pod in &pods {
                let new = pod
                    .annotations()
                    .get("version")
                    .is_some_and(|version| version == "2");
                if new && !order.contains(&pod.name_any()) {
                    order.push(pod.name_any());
                }
            }
            order.len() == 3
        })
        .await;
    assert_eq!(order, ["s-2", "s-1", "s-0"]);
    cluster
        .patch::<StatefulSet>("s", json!({"spec": {"replicas": 1}}))
        .await;
    cluster
        .until("one is left", async |cluster| {
            cluster.list::<Pod>().await.len() == 1
        })
        .await;
    assert_eq!(names(&cluster).await, ["s-0"]);
}

/// NoExecute drives out at once, after tolerationSeconds, or never, as each pod tolerates it.
#[tokio::test(start_paused = true)]
async fn a_no_execute_taint_drives_pods_out() {
    let cluster = Cluster::undisturbed(34).await;
    let toleration = |seconds: Value| json!({"spec": {"tolerations": [{"key": "bad", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]}});
    for (name, change) in [
        ("leaves", json!({})),
        ("lingers", toleration(json!(300))),
        ("stays", toleration(json!(null))),
    ] {
        cluster.pod(name, "100m", change).await;
    }
    cluster.until_running(3).await;
    let node = cluster.node_of("stays").await;
    let taint = json!({"spec": {"taints": [{"key": "bad", "effect": "NoExecute"}]}});
    cluster.patch::<Node>(&node, taint).await;
    let start = cluster.clock.now();
    let mut gone: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..400 {
        let names = cluster.names::<Pod>().await;
        for name in ["leaves", "lingers", "stays"] {
            if !names.iter().any(|one| one == name) {
                gone.entry(name.to_owned())
                    .or_insert(cluster.clock.since(start).as_secs());
            }
        }
        cluster.pass(1).await;
    }
    assert!(gone["leaves"] <= 5, "{gone:?}");
    assert!((300..=305).contains(&gone["lingers"]), "{gone:?}");
    assert!(!gone.contains_key("stays"), "{gone:?}");
}

/// Pods that fail come back after 10 s, 20 s, 40 s, …, and one too many is the end of their Job.
#[tokio::test(start_paused = true)]
async fn a_job_waits_ever_longer_with_the_successors_of_pods_that_failed() {
    let cluster = Cluster::started(38, json!({})).await;
    let mut template = template("w", "1", json!({}));
    template["spec"]["restartPolicy"] = json!("Never");
    let object = json!({"metadata": {"name": "w"}, "spec": {"completions": 2, "parallelism": 2, "backoffLimit": 3, "template": template}});
    cluster.create::<Job>(object).await;
    let at_once = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    for wait in [10, 20, 40] {
        cluster
            .until("both pods are there", async |cluster| {
                cluster.list::<Pod>().await.len() == 2
            })
            .await;
        // One of the two is lost; the other stays.
        let lost = cluster.list::<Pod>().await[0].name_any();
        cluster.api::<Pod>().delete(&lost, &at_once).await.unwrap();
        cluster.pass(wait - 2).await;
        assert_eq!(cluster.list::<Pod>().await.len(), 1, "{wait} s are not over");
        cluster.pass(4).await;
        assert_eq!(cluster.list::<Pod>().await.len(), 2, "{wait} s are over");
    }
    let status = cluster.get::<Job>("w").await.status.unwrap();
    assert_eq!(status.failed, Some(3));
    let lost = cluster.list::<Pod>().await[0].name_any();
    cluster.api::<Pod>().delete(&lost, &at_once).await.unwrap();
    cluster
        .until("the Job has failed", async |cluster| {
            let status = cluster.get::<Job>("w").await.status.unwrap();
            let mut conditions = status.conditions.iter().flatten();
            conditions
                .any(|one| one.type_ == "Failed" && one.reason.as_deref() == Some("BackoffLimitExceeded"))
        })
        .await;
    cluster
        .until("no pod is left", async |cluster| {
            cluster.list::<Pod>().await.is_empty()
        })
        .await;
}

/// A pod of high priority takes the room of one of low priority when no other can be had.
#[tokio::test(start_paused = true)]
async fn a_pod_preempts_another_of_lower_priority() {
    let cluster = Cluster::undisturbed(35).await;
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    cluster.create::<PriorityClass>(class).await;
    cluster.deploy("low", 1, "6").await;
    cluster.until_running(1).await;
    let node = cluster.node_of("low").await;
    // No second machine can be had.
    let limit = json!({"spec": {"limits": {"cpu": "1"}}});
    cluster.patch::<NodePool>("default", limit).await;
    let high = template("high", "6", json!({"spec": {"priorityClassName": "high"}}));
    cluster.deploy_with("high", 1, high).await;
    cluster
        .until("the important one runs", async |cluster| {
            cluster.running_of("high").await == 1
        })
        .await;
    assert_eq!(cluster.node_of("high").await, node);
    let waits = cluster.list::<Pod>().await;
    let low = of_app(&waits, "low");
    assert_eq!(low.len(), 1);
    assert_eq!(
        low[0].spec.as_ref().unwrap().node_name,
        None,
        "its successor waits"
    );
}

/// While the preempted pods stop, their successors do not take the room that is made.
#[tokio::test(start_paused = true)]
async fn room_that_is_made_for_a_pod_is_kept_for_it() {
    let cluster = Cluster::undisturbed(37).await;
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    cluster.create::<PriorityClass>(class).await;
    // Of eight processors six are used, and a fifth pod would still fit.
    let low = |processors: &str| {
        let grace = json!({"spec": {"terminationGracePeriodSeconds": 5}});
        template("low", processors, grace)
    };
    cluster.deploy_with("low", 4, low("1500m")).await;
    cluster.until_running(4).await;
    let limit = json!({"spec": {"limits": {"cpu": "1"}}});
    cluster.patch::<NodePool>("default", limit).await;
    let high = template("high", "4", json!({"spec": {"priorityClassName": "high"}}));
    cluster.deploy_with("high", 1, high).await;
    cluster.pass(60).await;
    assert_eq!(cluster.running_of("high").await, 1);
    let pods = cluster.list::<Pod>().await;
    let nominated = |pod: &&&Pod| pod.status.as_ref().unwrap().nominated_node_name.is_some();
    assert_eq!(of_app(&pods, "low").len(), 4);
    assert_eq!(of_app(&pods, "low").iter().filter(nominated).count(), 0);
}

/// The claim of an ephemeral volume lives and dies with its pod.
#[tokio::test(start_paused = true)]
async fn an_ephemeral_volume_brings_its_own_claim() {
    let cluster = Cluster::started(36, json!({})).await;
    cluster.storage_class().await;
    let volumes = json!({"spec": {"volumes": [ephemeral_volume("scratch")]}});
    cluster.pod("p", "1", volumes).await;
    cluster.until_running(1).await;
    let claims = cluster.list::<PersistentVolumeClaim>().await;
    assert_eq!(claims.len(), 1);
    assert_eq!(claims[0].name_any(), "p-scratch");
    assert!(claims[0].spec.as_ref().unwrap().volume_name.is_some(), "bound");
    let parameters = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    cluster.api::<Pod>().delete("p", &parameters).await.unwrap();
    cluster
        .until("the claim is gone", async |cluster| {
            cluster.list::<PersistentVolumeClaim>().await.is_empty()
        })
        .await;
    cluster.until_empty().await;
}

fn cron_job(name: &str, change: Value) -> Value {
    let mut object = json!({"metadata": {"name": name}, "spec": {
        "schedule": "*/10 * * * *", "jobTemplate": {"metadata": {"labels": {"of": name}}, "spec": {"template": {
            "metadata": {"annotations": {"sim.spokeshave.dev/run-duration": "1m"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": "100m"}}}]}}}}}});
    json_patch::merge(&mut object["spec"], &change);
    object
}

/// A Job for each time of the schedule, of which the newest stay; none while it is suspended.
#[tokio::test(start_paused = true)]
async fn a_cron_job_runs_by_its_schedule_and_keeps_its_history() {
    let cluster = Cluster::undisturbed(71).await;
    cluster.create::<CronJob>(cron_job("tick", json!({}))).await;
    cluster.pass(35 * 60).await;
    let jobs = cluster.list::<Job>().await;
    assert_eq!(jobs.len(), 3, "three times in 35 minutes");
    for job in &jobs {
        let due: jiff::Timestamp = job.annotations()["batch.kubernetes.io/cronjob-scheduled-timestamp"]
            .parse()
            .unwrap();
        assert_eq!(due.as_second() % 600, 0);
        assert_eq!(job.name_any(), format!("tick-{}", due.as_second() / 60));
        assert_eq!(job.labels()["of"], "tick");
        assert_eq!(job.status.as_ref().unwrap().succeeded, Some(1));
    }
    let oldest = jobs.iter().map(Job::name_any).min().unwrap();
    cluster.pass(10 * 60).await;
    let names = cluster.names::<Job>().await;
    assert_eq!(names.len(), 3, "successfulJobsHistoryLimit");
    assert!(!names.contains(&oldest));
    let status = cluster.get::<CronJob>("tick").await.status.unwrap();
    assert!(status.last_schedule_time.is_some() && status.last_successful_time.is_some());
    cluster
        .patch::<CronJob>("tick", json!({"spec": {"suspend": true}}))
        .await;
    cluster.pass(30 * 60).await;
    assert_eq!(cluster.names::<Job>().await, names);
    cluster.delete::<CronJob>("tick").await;
    cluster.pass(10).await;
    assert!(cluster.names::<Job>().await.is_empty(), "its Jobs go with it");
}

/// What is to happen when the one before still runs.
#[tokio::test(start_paused = true)]
async fn cron_jobs_overlap_as_they_are_told() {
    let long = json!({"metadata": {"annotations": {"sim.spokeshave.dev/run-duration": "25m"}}});
    for (seed, policy, unfinished) in [(72, "Allow", 3), (73, "Forbid", 1), (74, "Replace", 1)] {
        let cluster = Cluster::undisturbed(seed).await;
        let change = json!({"concurrencyPolicy": policy, "jobTemplate": {"spec": {"template": long}}});
        cluster.create::<CronJob>(cron_job("slow", change)).await;
        let first = async |cluster: &Cluster| !cluster.names::<Job>().await.is_empty();
        cluster.until("the first has begun", first).await;
        let before = cluster.names::<Job>().await;
        cluster.pass(22 * 60).await;
        let jobs = cluster.list::<Job>().await;
        let active = jobs.iter().filter(|job| {
            job.status
                .as_ref()
                .is_some_and(|status| status.active.unwrap_or(0) > 0)
        });
        let active: Vec<String> = active.map(Job::name_any).collect();
        assert_eq!(active.len(), unfinished, "{policy}: {active:?}");
        assert_eq!(active.contains(&before[0]), policy != "Replace", "{policy}");
        let known = cluster
            .get::<CronJob>("slow")
            .await
            .status
            .unwrap()
            .active
            .unwrap_or_default();
        assert_eq!(known.len(), unfinished, "{policy}");
    }
}

/// The schedule speaks of the clock of its time zone; one that cannot be read is told of on the CronJob.
#[tokio::test(start_paused = true)]
async fn schedules_have_a_time_zone_and_may_be_wrong() {
    let cluster = Cluster::undisturbed(75).await;
    let change = json!({"schedule": "45 5 * * *", "timeZone": "Asia/Kolkata"});
    cluster.create::<CronJob>(cron_job("dawn", change)).await;
    cluster
        .create::<CronJob>(cron_job("odd", json!({"schedule": "99 * * * *"})))
        .await;
    cluster.pass(20 * 60).await;
    let jobs = cluster.names::<Job>().await;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    let minutes: i64 = jobs[0].trim_start_matches("dawn-").parse().unwrap();
    assert_eq!(minutes % (24 * 60), 15, "05:45 in India is 00:15 in UTC");
    assert!(cluster.events("UnparseableSchedule").await[0].contains("99 * * * *"));
}

fn autoscaler(change: Value) -> Value {
    let mut object = json!({"metadata": {"name": "web", "annotations": {}}, "spec": {
        "minReplicas": 2, "maxReplicas": 8, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
    json_patch::merge(&mut object, &change);
    object
}

async fn replicas(cluster: &Cluster) -> i32 {
    cluster.get::<Deployment>("web").await.spec.replicas.unwrap()
}

/// Without a load an autoscaler keeps its target between its bounds, and says why it does no more.
#[tokio::test(start_paused = true)]
async fn an_autoscaler_keeps_to_min_and_max() {
    let cluster = Cluster::undisturbed(76).await;
    cluster.deploy("web", 1, "500m").await;
    cluster
        .create::<HorizontalPodAutoscaler>(autoscaler(json!({})))
        .await;
    cluster.until_running(2).await;
    cluster.scale("web", 20).await;
    cluster
        .until("eight are left", async |cluster| replicas(cluster).await == 8)
        .await;
    cluster.pass(60).await;
    let status = cluster
        .get::<HorizontalPodAutoscaler>("web")
        .await
        .status
        .unwrap();
    assert_eq!((status.current_replicas, status.desired_replicas), (Some(8), 8));
    let active = status
        .conditions
        .unwrap()
        .into_iter()
        .find(|one| one.type_ == "ScalingActive")
        .unwrap();
    assert_eq!(active.status, "False");
    assert!(active.message.unwrap().contains("sim.spokeshave.dev/load"));
    // Zero switches it off.
    cluster.scale("web", 0).await;
    cluster.pass(60).await;
    assert_eq!(replicas(&cluster).await, 0);
}

/// The load that the annotation names is shared by all pods: out at once, in when it has been low for five minutes.
#[tokio::test(start_paused = true)]
async fn an_autoscaler_follows_the_load_of_its_annotation() {
    let cluster = Cluster::undisturbed(77).await;
    cluster.deploy("web", 2, "500m").await;
    let load = |text: &str| json!({"metadata": {"annotations": {"sim.spokeshave.dev/load": text}}});
    cluster
        .create::<HorizontalPodAutoscaler>(autoscaler(load("cpu=1500m")))
        .await;
    cluster
        .until("1.5 of a core at half of 500m each are six", async |cluster| {
            replicas(cluster).await == 6
        })
        .await;
    cluster.pass(60).await;
    assert_eq!(replicas(&cluster).await, 6);
    let status = cluster
        .get::<HorizontalPodAutoscaler>("web")
        .await
        .status
        .unwrap();
    let current = status
        .current_metrics
        .unwrap()
        .remove(0)
        .resource
        .unwrap()
        .current;
    assert_eq!(current.average_utilization, Some(50));
    cluster
        .patch::<HorizontalPodAutoscaler>("web", load("cpu=600m"))
        .await;
    cluster.pass(4 * 60).await;
    assert_eq!(replicas(&cluster).await, 6, "a dip is no reason");
    let took = cluster
        .until("three are enough", async |cluster| replicas(cluster).await == 3)
        .await;
    assert!(took.as_secs() < 120, "{took:?}");
}
