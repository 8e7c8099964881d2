//! Where the pods of a dump are when a simulation begins with it.

use serde_json::{Value, json};
use spokeshave_scenario::import::inventory::Inventory;
use spokeshave_scenario::import::objects::Object;

use super::HOUR_MS;

fn pod(name: &str, owner: Option<(&str, &str)>, node: &str) -> Value {
    let owners = owner.map(
        |(kind, name)| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": true}]),
    );
    json!({
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "ownerReferences": owners, "creationTimestamp": "2026-03-02T08:00:00Z"},
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": {"phase": "Running", "startTime": "2026-03-02T08:00:05Z"},
    })
}

fn set(kind: &str, name: &str, replicas: u32) -> Value {
    let template = json!({"spec": {"containers": [{"name": "main"}]}});
    json!({"kind": kind, "metadata": {"name": name, "namespace": "shop"}, "spec": {"replicas": replicas, "template": template}})
}

/// A Job that wants so many pods at once of so many in all, made by the CronJob `tick`; with what its status says.
fn job(name: &str, (parallelism, completions): (u32, u32), status: Value) -> Value {
    let mut job = set("Job", name, 0);
    job["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "controller": true}]);
    job["spec"]["parallelism"] = json!(parallelism);
    job["spec"]["completions"] = json!(completions);
    job["status"] = status;
    job
}

/// Since when the running pod of `tick-2` has been at work, where `tick-1` has run as its status says.
fn works_since(sizes: (u32, u32), status: Value) -> Option<String> {
    let began = json!({"startTime": "2026-03-02T07:00:00Z"});
    let mut inventory = Inventory::default();
    for object in [
        job("tick-1", sizes, status),
        job("tick-2", sizes, began),
        pod("tick-2-a", Some(("Job", "tick-2")), "n1"),
    ] {
        inventory.add(Object::read(&object.to_string(), None).expect("readable"));
    }
    let start = "2026-03-02T00:00:00Z".parse().expect("an instant");
    let timeline = inventory.constant(start, HOUR_MS).expect("small");
    let [placement] = &timeline.placements[..] else {
        panic!("{:?}", timeline.placements);
    };
    placement.works_since.map(|since| since.to_string())
}

#[test]
fn a_pod_of_a_job_tells_since_when_it_works_if_it_is_known_how_long_that_takes() {
    let over = json!({"startTime": "2026-03-02T06:00:00Z", "completionTime": "2026-03-02T06:40:00Z"});
    let of_pod = Some("2026-03-02T08:00:05Z".to_owned());
    assert_eq!(works_since((1, 1), over.clone()), of_pod);
    let of_job = Some("2026-03-02T07:00:00Z".to_owned());
    assert_eq!(
        works_since((1, 5), over),
        of_job,
        "it goes on with what others have begun"
    );
    assert_eq!(
        works_since((1, 1), json!({})),
        None,
        "no run is known that is over"
    );
}

/// Owner, number and node of each pod that has a node from the start, in order.
fn placed(objects: Vec<Value>) -> Vec<(String, u64, String)> {
    let mut inventory = Inventory::default();
    for object in objects {
        inventory.add(Object::read(&object.to_string(), None).expect("readable"));
    }
    let start = "2026-03-02T00:00:00Z".parse().expect("an instant");
    let timeline = inventory.constant(start, HOUR_MS).expect("small");
    let since = "2026-03-02T08:00:05Z".parse().ok();
    let placements = timeline.placements.iter().map(|one| {
        assert_eq!(one.since, since, "since its kubelet has it");
        let owner = &timeline.owners[one.owner.0 as usize];
        (owner.name.clone(), one.pod, one.node.clone())
    });
    placements.collect()
}

fn expected(all: &[(&str, u64, &str)]) -> Vec<(String, u64, String)> {
    let all = all.iter();
    all.map(|(owner, pod, node)| ((*owner).to_owned(), *pod, (*node).to_owned()))
        .collect()
}

#[test]
fn pods_of_a_deployment_are_numbered_from_0_whichever_of_them_has_a_node() {
    let of = |name: &str, node: &str| {
        let mut pod = pod(name, Some(("ReplicaSet", "web-5d4f")), node);
        pod["metadata"]["labels"] = json!({"pod-template-hash": "5d4f"});
        pod
    };
    let mut gone = of("web-a", "n0");
    gone["metadata"]["deletionTimestamp"] = json!("2026-03-02T09:00:00Z");
    let mut failed = of("web-b", "n0");
    failed["status"]["phase"] = json!("Failed");
    let pods = vec![
        set("Deployment", "web", 3),
        gone,
        failed,
        of("web-c", ""),
        of("web-d", "n1"),
        of("web-e", "n2"),
    ];
    let found = placed(pods.clone());
    assert_eq!(found, expected(&[("web", 0, "n1"), ("web", 1, "n2")]));
    let mut fewer = pods;
    fewer[0] = set("Deployment", "web", 1);
    assert_eq!(
        placed(fewer),
        expected(&[("web", 0, "n1")]),
        "its controller would delete the other"
    );
}

#[test]
fn pods_of_a_stateful_set_have_their_ordinals() {
    let of = |name: &str, node: &str| pod(name, Some(("StatefulSet", "db")), node);
    let found = placed(vec![
        set("StatefulSet", "db", 3),
        of("db-0", ""),
        of("db-2", "n1"),
        of("db-7", "n1"),
        of("db-x", "n1"),
    ]);
    assert_eq!(found, expected(&[("db", 2, "n1")]));
}

#[test]
fn single_pods_and_those_of_jobs_are_placed_and_those_of_daemon_sets_are_not() {
    let found = placed(vec![
        pod("agent-1", Some(("DaemonSet", "agent")), "n1"),
        pod("alone", None, "n1"),
        pod("batch-a", Some(("Job", "batch")), ""),
        pod("batch-b", Some(("Job", "batch")), "n2"),
    ]);
    let mut found = found;
    found.sort();
    assert_eq!(found, expected(&[("alone", 0, "n1"), ("batch", 1, "n2")]));
}
