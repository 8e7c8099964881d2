//! Audit logs: requests of which nothing was stored, and pods that are made again under their names.

use serde_json::{Value, json};
use spokeshave_scenario::import::Recording;
use spokeshave_scenario::{Change, Timeline};

use super::streams::{audit_event, deployment};
use super::{read, source};

fn at(time: &str) -> String {
    format!("2026-03-02T{time}Z")
}

fn by_minute(found: &Timeline) -> Vec<(u64, Change)> {
    let events = found.events.iter();
    events
        .map(|event| (event.at_ms / 60_000, event.change.clone()))
        .collect()
}

/// They are answered as if they had been carried out.
#[test]
fn dry_runs_change_nothing() {
    let web = |replicas: u32| json!({"responseObject": deployment("web", replicas, "1")});
    let scale =
        json!({"subresource": "scale", "responseObject": {"kind": "Scale", "spec": {"replicas": 50}}});
    let options = |options: Value| json!({"requestObject": options});
    let dry = json!({"kind": "DeleteOptions", "dryRun": ["All"]});
    let other = json!({"responseObject": deployment("other", 7, "1")});
    let plain = json!({"kind": "DeleteOptions", "propagationPolicy": "Foreground", "dryRun": []});
    let asked = [
        ("10:00:00", "create", "", web(4)),
        (
            "10:10:00",
            "patch",
            "?dryRun=All&fieldManager=kubectl-client-side-apply",
            web(40),
        ),
        ("10:20:00", "update", "?fieldManager=x&dryRun=All", web(41)),
        ("10:30:00", "patch", "?dryRun=All", scale),
        ("10:40:00", "create", "?dryRun=All", other),
        ("10:50:00", "delete", "?dryRun=All", json!({})),
        // kubectl says it in what it sends.
        ("10:51:00", "delete", "", options(dry.clone())),
        ("10:52:00", "deletecollection", "", options(dry)),
        ("11:00:00", "patch", "?fieldManager=dryRun=All", web(5)),
        ("12:00:00", "delete", "", options(plain)),
    ];
    let events = asked.map(|(time, verb, query, mut more)| {
        more["requestURI"] = format!("/apis/apps/v1/namespaces/shop/deployments/web{query}").into();
        audit_event(&at(time), verb, "deployments", "web", more)
    });
    let (found, notes) = read("format: audit, file: x", events.join("\n").as_bytes()).expect("readable");
    let expected = [
        (0, Change::Replicas(4)),
        (60, Change::Replicas(5)),
        (120, Change::Replicas(0)),
    ];
    assert_eq!(by_minute(&found), expected);
    assert_eq!((found.owners.len(), notes), (1, Vec::new()));
}

/// Each API server writes a log of its own, so that a pod may have been deleted between two lines of one that tell of it.
#[test]
fn a_pod_that_is_made_again_is_another_one_in_whichever_log_its_end_is() {
    let told = |time: &str, verb: &str, subresource: &str, uid: Option<&str>| {
        let pod = json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": "web-0", "uid": uid,
            "ownerReferences": [{"apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "name": "web", "controller": true}]},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}, "status": {"phase": "Running"}});
        let more = json!({"subresource": subresource, "responseObject": pod});
        audit_event(&at(time), verb, "pods", "web-0", more)
    };
    let deleted = |time: &str| audit_event(&at(time), "delete", "pods", "web-0", json!({}));
    let ends = vec![deleted("10:10:00"), deleted("11:00:00")];
    let without = vec![
        told("10:00:00", "create", "", None),
        told("10:20:00", "create", "", None),
    ];
    // What is still said of the first one when it is gone, by a server whose clock is late or in a log that is out of order, does not bring it back.
    let with = vec![
        told("10:12:00", "patch", "status", Some("1")),
        told("10:20:00", "create", "", Some("2")),
        told("10:25:00", "patch", "status", Some("2")),
        told("10:00:00", "create", "", Some("1")),
    ];
    let begin = |pod| Change::Begin { pod, runs_ms: None };
    let end = |pod| Change::End { pod };
    let expected = [(0, begin(0)), (10, end(0)), (20, begin(1)), (60, end(1))];
    for lines in [without, with] {
        let whole = [lines.clone(), ends.clone()].concat();
        for logs in [
            vec![whole],
            vec![lines.clone(), ends.clone()],
            vec![ends.clone(), lines],
        ] {
            let asked = source("format: audit, files: [a, b]");
            let mut recording = Recording::new(&asked);
            for log in &logs {
                recording.read(log.join("\n").as_bytes()).expect("readable");
            }
            let found = recording.finish().expect("a timeline");
            assert_eq!(by_minute(&found.timeline), expected, "{logs:?}");
        }
    }
}
