//! What is kept of an audit log, and how often.

use super::*;

/// A roll-out writes the status of its Deployment again and again, and an autoscaler its replicas.
#[test]
fn a_workload_is_kept_once_however_often_it_is_told_of() {
    let event = |second: u32, replicas: u32, cpu: &str| {
        let deployment = serde_json::json!({"kind": "Deployment", "metadata": {"namespace": "shop", "name": "web", "annotations": {"seen": second.to_string()}},
            "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]}}},
            "status": {"observedGeneration": second}});
        let event = serde_json::json!({"kind": "Event", "verb": "update", "objectRef": {"resource": "deployments", "subresource": "status"},
            "responseObject": deployment, "stageTimestamp": format!("2026-03-02T10:{:02}:{:02}Z", second / 60, second % 60)});
        format!("{event}\n")
    };
    let log: String = (0..600).map(|second| event(second, second % 3, "1")).collect();
    let mut audit = Audit::default();
    audit.read(log.as_bytes()).expect("readable");
    assert_eq!((audit.found.len(), audit.kept), (600, WHOLE));
    audit.read(event(700, 1, "2").as_bytes()).expect("readable");
    assert_eq!(audit.kept, 2 * WHOLE, "another specification");
}

/// The pods of a Deployment are of one specification, but for the volume with their token; they are counted with their Deployment, whatever they are.
#[test]
fn pods_of_one_controller_share_their_specification() {
    let event = |number: u32, cpu: &str| {
        let pod = serde_json::json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": format!("web-5d4f-{number}"), "uid": number.to_string(),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f", "controller": true}]},
            "spec": {"nodeName": format!("n{number}"), "volumes": [{"name": format!("kube-api-access-{number}"), "emptyDir": {}}],
                "containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]}, "status": {"phase": "Running"}});
        event("pods", &pod)
    };
    let log: String = (0..100).map(|number| event(number, "1")).collect();
    let mut audit = Audit::default();
    audit.read(log.as_bytes()).expect("readable");
    assert_eq!((audit.found.len(), audit.kept), (100, WHOLE + 99 * BARE));
    audit.read(event(100, "2").as_bytes()).expect("readable");
    assert_eq!(audit.kept, 2 * WHOLE + 99 * BARE, "another specification");
    audit.read(event(101, "1").as_bytes()).expect("readable");
    assert_eq!(audit.kept, 2 * WHOLE + 100 * BARE, "the one before");
}

/// Each Job of a CronJob has labels of its own.
#[test]
fn jobs_of_one_cron_job_share_the_specification_of_their_pods() {
    let event = |number: u32, cron: Option<&str>| {
        let owners = cron.map(|cron| serde_json::json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": cron, "controller": true}]));
        let job = serde_json::json!({"kind": "Job", "metadata": {"namespace": "shop", "name": format!("nightly-{number}"), "ownerReferences": owners},
            "spec": {"template": {"metadata": {"labels": {"job-name": format!("nightly-{number}")}},
                "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}}}});
        event("jobs", &job)
    };
    let log: String = (0..100).map(|number| event(number, Some("nightly"))).collect();
    let mut audit = Audit::default();
    audit.read(log.as_bytes()).expect("readable");
    assert_eq!((audit.found.len(), audit.kept), (100, WHOLE + 99 * BARE));
    audit.read(event(100, None).as_bytes()).expect("readable");
    assert_eq!(audit.kept, 2 * WHOLE + 99 * BARE, "one that nothing has made");
    let mut stream = Stream::default();
    audit.finish(&mut stream).expect("a recording");
    let found = stream.finish(true).expect("a timeline").timeline;
    let names: Vec<&str> = found.owners.iter().map(|owner| owner.name.as_str()).collect();
    assert_eq!(names, ["nightly", "nightly-100"]);
    for owner in &found.owners {
        let spec = owner.template.spec.as_ref().expect("a specification");
        assert_eq!(spec.containers.len(), 1, "{}", owner.name);
    }
}

/// The creation of an object.
fn event(resource: &str, object: &serde_json::Value) -> String {
    let event = serde_json::json!({"kind": "Event", "verb": "create", "objectRef": {"resource": resource},
        "responseObject": object, "stageTimestamp": "2026-03-02T10:00:00Z"});
    format!("{event}\n")
}
