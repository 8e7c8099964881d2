//! get and list: selectors, pages, resource versions, tables, metadata alone.

use crate::client::{Client, DEFINITIONS, EVENTS, JOBS, MAPS, MERGE, PODS, job, names, pod, widgets};
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

async fn with_maps() -> Client {
    let client = Client::new();
    for (name, app, tier) in [
        ("a", "shop", "1"),
        ("b", "shop", "2"),
        ("c", "blog", "1"),
        ("d", "blog", "3"),
    ] {
        client.map(name, json!({"app": app, "tier": tier})).await;
    }
    client.map("plain", json!({})).await;
    client
}

#[tokio::test]
async fn label_selectors_choose() {
    let client = with_maps().await;
    for (selector, expected) in [
        ("app=shop", vec!["a", "b"]),
        ("app==shop,tier!=1", vec!["b"]),
        ("app in (shop,blog),tier notin (1)", vec!["b", "d"]),
        ("app", vec!["a", "b", "c", "d"]),
        ("!app", vec!["plain"]),
        ("tier>1", vec!["b", "d"]),
        ("tier<2", vec!["a", "c"]),
        ("app=none", vec![]),
    ] {
        let path = format!(
            "{MAPS}?labelSelector={}",
            selector
                .replace('=', "%3D")
                .replace('>', "%3E")
                .replace('<', "%3C")
        );
        assert_eq!(names(&client.get(&path).await.ok()), expected, "{selector}");
    }
}

#[tokio::test]
async fn field_selectors_choose() {
    let client = Client::new();
    for (name, node) in [("p", "one"), ("q", "two"), ("r", "")] {
        let mut body = pod(name, json!({}));
        if !node.is_empty() {
            body["spec"]["nodeName"] = json!(node);
        }
        client.post(PODS, body).await.ok();
    }
    for (selector, expected) in [
        ("spec.nodeName%3Done", vec!["p"]),
        ("spec.nodeName%3D", vec!["r"]),
        ("spec.nodeName!%3Done,status.phase%3DPending", vec!["q", "r"]),
        ("metadata.name%3Dq,metadata.namespace%3Ddefault", vec!["q"]),
    ] {
        assert_eq!(
            names(
                &client
                    .get(&format!("/api/v1/pods?fieldSelector={selector}"))
                    .await
                    .ok()
            ),
            expected,
            "{selector}"
        );
    }
    client
        .get("/api/v1/pods?fieldSelector=spec.nope%3Dx")
        .await
        .refused(400, "BadRequest");
}

/// What is selected by another name than it has, or is 0 where nothing is written.
#[tokio::test]
async fn field_selectors_find_jobs_and_events() {
    let client = Client::new();
    for name in ["done", "runs"] {
        client.post(JOBS, job(name)).await.ok();
    }
    let status = json!({"status": {"succeeded": 1}});
    client
        .patch(&format!("{JOBS}/done/status"), MERGE, status)
        .await
        .ok();
    client.new_event("new", "karpenter").await;
    let involved = json!({"kind": "Pod", "namespace": "default", "name": "web"});
    let event = json!({"metadata": {"name": "old"}, "involvedObject": involved, "reason": "Seen", "message": "a note", "type": "Normal",
        "source": {"component": "karpenter"}, "reportingComponent": "other"});
    client.post(EVENTS, event).await.ok();
    for (list, selector, expected) in [
        (JOBS, "status.successful%3D1", vec!["done"]),
        (JOBS, "status.successful%3D0", vec!["runs"]),
        (JOBS, "status.successful!%3D1", vec!["runs"]),
        (EVENTS, "source%3Dkarpenter", vec!["new", "old"]),
        (EVENTS, "source%3Dother", vec![]),
        (EVENTS, "reportingComponent%3Dother", vec!["old"]),
    ] {
        let found = client.get(&format!("{list}?fieldSelector={selector}")).await.ok();
        assert_eq!(names(&found), expected, "{selector}");
    }
}

#[tokio::test]
async fn pages_show_one_state_whatever_is_written_meanwhile() {
    let client = with_maps().await;
    let first = client.get(&format!("{MAPS}?limit=2")).await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    client.delete(&format!("{MAPS}/c")).await.ok();
    client.map("bb", json!({})).await;
    let token = first["metadata"]["continue"].as_str().expect("more");
    let second = client.get(&format!("{MAPS}?limit=2&continue={token}")).await.ok();
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let token = second["metadata"]["continue"].as_str().expect("more");
    let last = client.get(&format!("{MAPS}?limit=2&continue={token}")).await.ok();
    assert_eq!(names(&last), ["plain"]);
    assert!(last["metadata"].get("continue").is_none_or(|token| token == ""));
}

#[tokio::test]
async fn a_page_after_compaction_is_gone() {
    let client = Client::with(|config| config.history_limit = 10);
    for name in ["a", "b", "c"] {
        client.map(name, json!({})).await;
    }
    let first = client.get(&format!("{MAPS}?limit=1")).await.ok();
    for round in 0..30 {
        client
            .patch(
                &format!("{MAPS}/a"),
                crate::client::MERGE,
                json!({"data": {"round": round.to_string()}}),
            )
            .await
            .ok();
    }
    let token = first["metadata"]["continue"].as_str().expect("more");
    let body = client
        .get(&format!("{MAPS}?limit=1&continue={token}"))
        .await
        .refused(410, "Expired");
    assert!(
        body["metadata"]["continue"]
            .as_str()
            .is_some_and(|token| !token.is_empty()),
        "a token to go on inconsistently: {body}"
    );
}

#[tokio::test]
async fn lists_at_a_resource_version() {
    let client = with_maps().await;
    let before = client.get(MAPS).await.ok();
    let version = before["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    client.map("later", json!({})).await;
    let exact = client
        .get(&format!(
            "{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact"
        ))
        .await
        .ok();
    assert_eq!(names(&exact), names(&before));
    let newer = client
        .get(&format!(
            "{MAPS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan"
        ))
        .await
        .ok();
    assert!(names(&newer).contains(&"later"));
    let future = client.get(&format!("{MAPS}?resourceVersion=999999")).await;
    assert_eq!(future.code, 504, "{}", future.body);
    client
        .get(&format!("{MAPS}?resourceVersionMatch=Exact"))
        .await
        .refused(422, "Invalid");
}

fn cells(table: &Value) -> Vec<String> {
    let rows = table["rows"].as_array().expect("rows");
    rows.iter()
        .map(|row| {
            let cells = row["cells"].as_array().expect("cells").iter();
            cells
                .map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned))
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

fn columns(table: &Value) -> Vec<String> {
    let columns = table["columnDefinitions"].as_array().expect("columns").iter();
    columns
        .map(|column| {
            format!(
                "{}{}",
                column["name"].as_str().unwrap(),
                if column["priority"] == 0 { "" } else { "+" }
            )
        })
        .collect()
}

#[tokio::test]
async fn tables_as_kubectl_prints_them() {
    let client = Client::new();
    client.post(PODS, pod("web", json!({}))).await.ok();
    client.pass_seconds(200);
    let table = client.accepting(TABLE).get(PODS).await.ok();
    assert_eq!(
        columns(&table),
        [
            "Name",
            "Ready",
            "Status",
            "Restarts",
            "Age",
            "IP+",
            "Node+",
            "Nominated Node+",
            "Readiness Gates+"
        ]
    );
    assert_eq!(
        cells(&table),
        ["web 0/1 Pending 0 3m20s <none> <none> <none> <none>"]
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let whole = client
        .accepting(TABLE)
        .get(&format!("{PODS}/web?includeObject=Object"))
        .await
        .ok();
    assert_eq!(
        whole["rows"][0]["object"]["spec"]["containers"][0]["name"],
        "main"
    );
}

/// Of an event that recurs, the series says how often and when last.
#[tokio::test]
async fn tables_of_events_tell_of_series() {
    let client = Client::new();
    let event = |name: &str, more: Value| {
        let mut event = json!({"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
            "reason": "Seen", "message": "a note", "type": "Normal", "reportingComponent": "tests"});
        for (field, value) in more.as_object().expect("fields") {
            event[field] = value.clone();
        }
        event
    };
    let series = json!({"count": 7, "lastObservedTime": "2027-01-15T07:46:00.000000Z"});
    for event in [
        event(
            "first",
            json!({"eventTime": "2027-01-15T07:00:00.000000Z", "series": series}),
        ),
        event("once", json!({"eventTime": "2027-01-15T07:00:00.000000Z"})),
        event(
            "twice",
            json!({"firstTimestamp": "2027-01-15T07:00:00Z", "lastTimestamp": "2027-01-15T07:59:00Z", "count": 2}),
        ),
    ] {
        client.post(EVENTS, event).await.ok();
    }
    let table = client.accepting(TABLE).get(EVENTS).await.ok();
    assert_eq!(
        cells(&table),
        [
            "14m Normal Seen pod/web  tests a note 60m 7 first",
            "60m Normal Seen pod/web  tests a note 60m 1 once",
            "60s Normal Seen pod/web  tests a note 60m 2 twice",
        ]
    );
}

#[tokio::test]
async fn tables_of_custom_resources_have_their_printer_columns() {
    let client = Client::new();
    client.post(DEFINITIONS, widgets()).await.ok();
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    client.post(path, json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3, "colour": "red"}})).await.ok();
    let table = client.accepting(TABLE).get(path).await.ok();
    assert_eq!(columns(&table), ["Name", "Size", "Colour+"]);
    assert_eq!(cells(&table), ["w 3 red"]);
}

#[tokio::test]
async fn metadata_alone() {
    let client = with_maps().await;
    let client = client.accepting("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io");
    let list = client.get(MAPS).await.ok();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert!(list["items"][0].get("data").is_none(), "{}", list["items"][0]);
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
}
