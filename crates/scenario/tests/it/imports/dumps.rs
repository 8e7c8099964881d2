//! Dumps: one, and several in a row.

use spokeshave_scenario::import::Recording;
use spokeshave_scenario::import::inventory::Inventory;
use spokeshave_scenario::import::objects::Object;
use spokeshave_scenario::{Budget, Change, Event, OwnerKind};

use super::streams::{deployment, job};
use super::{HOUR_MS, facts, source};

pub(super) fn inventory(objects: &[serde_json::Value]) -> Inventory {
    let mut inventory = Inventory::default();
    for object in objects {
        inventory.add(Object::read(&object.to_string(), None).expect("readable"));
    }
    inventory
}

pub(super) fn job_pod(name: &str, created: &str, finished: Option<&str>) -> serde_json::Value {
    let (phase, state) = match finished {
        Some(finished) => (
            "Succeeded",
            serde_json::json!({"terminated": {"finishedAt": finished}}),
        ),
        None => ("Running", serde_json::json!({"running": {}})),
    };
    serde_json::json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": name, "creationTimestamp": created,
        "ownerReferences": [{"kind": "Job", "name": "nightly-29012345", "controller": true}]},
        "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": phase, "containerStatuses": [{"name": "a", "state": state}]}})
}

#[test]
fn several_dumps_differ_by_what_happened() {
    let source = source("format: dumps, file: x");
    let mut recording = Recording::new(&source);
    let at = |time: &str| format!("2026-03-02T{time}Z").parse().expect("an instant");
    let first = inventory(&[deployment("web", 3, "1"), deployment("old", 1, "1")]);
    let second = inventory(&[
        deployment("web", 5, "1"),
        job_pod("n-1", "2026-03-02T10:10:00Z", None),
        job_pod("n-2", "2026-03-02T10:20:00Z", Some("2026-03-02T10:50:00Z")),
    ]);
    let third = inventory(&[
        deployment("web", 5, "1"),
        job_pod("n-1", "2026-03-02T10:10:00Z", Some("2026-03-02T11:30:00Z")),
    ]);
    recording.dump(at("10:00:00"), &first).expect("the first");
    recording.dump(at("11:00:00"), &second).expect("the second");
    recording.dump(at("12:00:00"), &third).expect("the third");
    let error = recording.dump(at("12:00:00"), &third).expect_err("not later");
    assert!(
        error.to_string().contains("is not after the dump before it"),
        "{error}"
    );
    let found = recording.finish().expect("whole").timeline;
    let minutes: Vec<(u64, Change)> = found
        .events
        .iter()
        .map(|event| (event.at_ms / 60_000, event.change.clone()))
        .collect();
    assert_eq!(
        minutes,
        [
            (0, Change::Replicas(1)),
            (0, Change::Replicas(3)),
            (
                10,
                Change::Begin {
                    pod: 0,
                    runs_ms: None
                }
            ),
            (
                20,
                Change::Begin {
                    pod: 1,
                    runs_ms: None
                }
            ),
            (50, Change::End { pod: 1 }),
            (60, Change::Replicas(0)),
            (60, Change::Replicas(5)),
            (90, Change::End { pod: 0 }),
        ]
    );
    assert_eq!(
        found
            .owners
            .iter()
            .filter(|owner| owner.name == "nightly")
            .count(),
        1,
        "the CronJob's, by the Job's name"
    );
}

/// It is what a recorder leaves behind whose API server was away, and would be taken for a cluster in which everything was deleted.
#[test]
fn a_dump_without_pods_and_workloads_is_refused() {
    let source = source("format: dumps, file: x");
    let mut recording = Recording::new(&source);
    let at = |time: &str| format!("2026-03-02T{time}Z").parse().expect("an instant");
    let budget = serde_json::json!({"kind": "PodDisruptionBudget", "metadata": {"name": "all"}, "spec": {"selector": {}}});
    let web = inventory(&[deployment("web", 3, "1")]);
    recording.dump(at("10:00:00"), &web).expect("the first");
    for nothing in [inventory(&[]), inventory(&[budget])] {
        let error = recording
            .dump(at("11:00:00"), &nothing)
            .expect_err("nothing in it");
        let expected = "holds neither a workload nor a pod";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    recording.dump(at("12:00:00"), &web).expect("the next");
    let found = recording.finish().expect("whole").timeline;
    assert_eq!(facts(&found), (3, 0, 3, 3_000, 0));
}

#[test]
fn a_dump_without_workloads_has_those_of_its_pods() {
    let pod = |name: &str, owner: serde_json::Value, phase: &str| {
        serde_json::json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": name, "labels": {"app": "web", "pod-template-hash": "5d4"}, "ownerReferences": [owner]},
            "spec": {"nodeName": "n1", "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]}, "status": {"phase": phase}})
    };
    let owner = |kind: &str, name: &str| serde_json::json!({"kind": kind, "name": name, "controller": true});
    let budget = serde_json::json!({"kind": "PodDisruptionBudget", "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"minAvailable": "75%", "selector": {"matchLabels": {"app": "web"}}}});
    let found = inventory(&[
        pod("web-5d4-a", owner("ReplicaSet", "web-5d4"), "Running"),
        pod("web-5d4-b", owner("ReplicaSet", "web-5d4"), "Pending"),
        pod("web-5d4-c", owner("ReplicaSet", "web-5d4"), "Failed"),
        pod("db-0", owner("StatefulSet", "db"), "Running"),
        pod("agent-x", owner("DaemonSet", "agent"), "Running"),
        pod("kube-proxy-n1", owner("Node", "n1"), "Running"),
        budget,
    ]);
    let timeline = found
        .constant("2026-03-02T00:00:00Z".parse().expect("an instant"), HOUR_MS)
        .expect("small");
    assert_eq!(facts(&timeline), (3, 0, 3, 3_000, 0));
    let web = timeline
        .owners
        .iter()
        .find(|owner| owner.name == "web")
        .expect("by the hash of its template");
    assert_eq!(web.kind, OwnerKind::Deployment);
    // As it was written: what may be away is not the rest, because both are rounded up.
    let amounts: Vec<_> = timeline.budgets.values().map(|budget| &budget.amount).collect();
    assert_eq!(amounts, [&Some(Budget::MinAvailable("75%".to_owned()))]);
    let db = timeline
        .owners
        .iter()
        .find(|owner| owner.name == "db")
        .expect("there");
    assert_eq!((db.kind, db.claims.len()), (OwnerKind::StatefulSet, 1));
    let template = serde_json::to_string(db.template.as_ref()).expect("JSON");
    assert!(
        !template.contains("nodeName") && !template.contains("claimName"),
        "{template}"
    );
}

/// As while a cluster moves from the one to the other.
#[test]
fn a_replication_controller_is_beside_a_deployment_of_its_name() {
    let of_kind = |kind: &str, version: &str, replicas: u32| {
        let mut workload = deployment("web", replicas, "1");
        workload["kind"] = kind.into();
        workload["apiVersion"] = version.into();
        workload
    };
    let old = |replicas: u32| of_kind("ReplicationController", "v1", replicas);
    let own = |kind: &str| {
        serde_json::json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": format!("web-{kind}"),
            "ownerReferences": [{"apiVersion": "v1", "kind": kind, "name": "web", "controller": true}]}, "spec": {"containers": []}, "status": {"phase": "Running"}})
    };
    let counted = |objects: &[serde_json::Value]| -> Vec<(String, Change)> {
        let found = inventory(objects)
            .constant("2026-03-02T00:00:00Z".parse().expect("an instant"), HOUR_MS)
            .expect("small");
        let name = |event: &Event| found.owners[event.owner.0 as usize].name.clone();
        let events = found.events.iter();
        events.map(|event| (name(event), event.change.clone())).collect()
    };
    let web = |name: &str, replicas: u32| (name.to_owned(), Change::Replicas(replicas));
    let new = deployment("web", 7, "1");
    assert_eq!(
        counted(&[new.clone(), old(0)]),
        [web("web", 7)],
        "what is left of it"
    );
    let pods = [own("ReplicationController"), own("ReplicaSet")];
    let both = [vec![new.clone(), old(2)], pods[..1].to_vec()].concat();
    assert_eq!(counted(&both), [web("web", 7), web("web-rc", 2)]);
    let all = [
        vec![new, old(2), of_kind("ReplicaSet", "apps/v1", 3)],
        pods.to_vec(),
    ]
    .concat();
    assert_eq!(counted(&all), [web("web", 7), web("web-rc", 2), web("web-rs", 3)]);
    assert_eq!(
        counted(&[old(2), pods[0].clone()]),
        [web("web", 2)],
        "nothing has its name"
    );
}

/// They are of the one pod into which somebody looks, and no API server takes them in a new one.
#[test]
fn containers_for_debugging_are_not_those_of_an_owner() {
    let pod = |name: &str, owners: serde_json::Value| {
        serde_json::json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": name, "ownerReferences": owners},
            "spec": {"containers": [{"name": "a"}], "ephemeralContainers": [{"name": "debug", "image": "busybox"}]},
            "status": {"phase": "Running"}})
    };
    let rollout = serde_json::json!([{"kind": "Rollout", "name": "web", "controller": true}]);
    let timeline = inventory(&[pod("alone", serde_json::json!([])), pod("web-1", rollout)])
        .constant("2026-03-02T00:00:00Z".parse().expect("an instant"), HOUR_MS)
        .expect("small");
    assert_eq!(timeline.owners.len(), 2);
    for owner in &timeline.owners {
        let template = owner.template.spec.as_ref().expect("a specification");
        assert_eq!(template.ephemeral_containers, None, "{}", owner.name);
    }
}

/// D-050: it makes the cost of an eviction, as decisions read it in a cluster.
#[test]
fn what_it_costs_to_delete_a_pod_is_kept() {
    const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    let mut web = deployment("web", 1, "1");
    web["spec"]["template"]["metadata"]["annotations"][COST] = "-100".into();
    let timeline = inventory(&[web])
        .constant("2026-03-02T00:00:00Z".parse().expect("an instant"), HOUR_MS)
        .expect("small");
    let template = serde_json::to_value(timeline.owners[0].template.as_ref()).expect("JSON");
    assert_eq!(
        template["metadata"]["annotations"],
        serde_json::json!({COST: "-100"})
    );
}

/// As for Kubernetes: no selector selects nothing, an empty one everything.
#[test]
fn a_budget_without_a_selector_is_for_no_pod() {
    for (spec, expected) in [
        (serde_json::json!({"maxUnavailable": 1}), None),
        (
            serde_json::json!({"maxUnavailable": 1, "selector": {}}),
            Some(Budget::MaxUnavailable("1".to_owned())),
        ),
        (
            serde_json::json!({"minAvailable": 2, "selector": {}}),
            Some(Budget::MinAvailable("2".to_owned())),
        ),
    ] {
        let budget = serde_json::json!({"kind": "PodDisruptionBudget", "metadata": {"namespace": "shop", "name": "all"}, "spec": spec});
        let timeline = inventory(&[deployment("web", 3, "1"), budget])
            .constant("2026-03-02T00:00:00Z".parse().expect("an instant"), HOUR_MS)
            .expect("small");
        let found: Vec<_> = timeline.budgets.into_values().collect();
        let found = found.first().and_then(|budget| budget.amount.clone());
        assert_eq!(found, expected, "{spec}");
    }
}

/// As of two dumps of one cluster that were written one after the other.
#[test]
fn of_two_budgets_with_one_name_the_later_one_counts() {
    let budget = |namespace: &str, most: i32| {
        serde_json::json!({"kind": "PodDisruptionBudget", "metadata": {"namespace": namespace, "name": "all"},
            "spec": {"maxUnavailable": most, "selector": {}}})
    };
    let found = inventory(&[
        deployment("web", 3, "1"),
        budget("shop", 1),
        budget("other", 3),
        budget("shop", 2),
    ]);
    assert_eq!(found.budgets().len(), 2);
    let timeline = found
        .constant("2026-03-02T00:00:00Z".parse().expect("an instant"), HOUR_MS)
        .expect("small");
    let amounts: Vec<_> = timeline
        .budgets
        .into_values()
        .map(|budget| budget.amount)
        .collect();
    let most = |most: &str| Some(Budget::MaxUnavailable(most.to_owned()));
    assert_eq!(amounts, [most("3"), most("2")]);
}

#[test]
fn cron_jobs_of_a_dump_go_on_as_long_as_they_used_to_run() {
    let cron = serde_json::json!({"kind": "CronJob", "metadata": {"namespace": "shop", "name": "nightly"}, "spec": {"schedule": "0 1 * * *",
        "jobTemplate": {"spec": {"parallelism": 3, "template": {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}]}}}}}});
    let ran = job(
        "nightly-29012345",
        Some("nightly"),
        serde_json::json!({"startTime": "2026-03-01T01:00:00Z", "completionTime": "2026-03-01T01:25:00Z"}),
    );
    let start = "2026-03-02T00:00:00Z".parse().expect("an instant");
    let with = inventory(&[cron.clone(), ran]);
    let timeline = with.constant(start, 48 * HOUR_MS).expect("small");
    let runs: Vec<(u64, Option<u64>)> = timeline
        .events
        .iter()
        .map(|event| match event.change {
            Change::Begin { runs_ms, .. } => (event.at_ms / HOUR_MS, runs_ms),
            _ => panic!("{event:?}"),
        })
        .collect();
    assert_eq!(runs, [1, 1, 1, 25, 25, 25].map(|hour| (hour, Some(25 * 60_000))));
    assert_eq!(with.notes(), [] as [String; 0]);
    let mut elsewhere = cron.clone();
    elsewhere["spec"]["timeZone"] = "America/New_York".into();
    let there = inventory(&[elsewhere])
        .constant(start, 24 * HOUR_MS)
        .expect("small");
    assert_eq!(there.events[0].at_ms, 6 * HOUR_MS, "one o'clock in New York");
    let without = inventory(&[cron]);
    assert_eq!(without.notes().len(), 1);
    assert!(
        without.notes()[0].contains("CronJob shop/nightly"),
        "{:?}",
        without.notes()
    );
}
