//! Watches: changes in order, bookmarks, initial events, selectors, the end of history, clients that leave.

use crate::client::{Client, DEFINITIONS, EVENTS, MAPS, MERGE, names, widgets};
use serde_json::{Value, json};
use tokio::time::Instant;

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().expect("a version")
}

#[tokio::test(start_paused = true)]
async fn changes_arrive_in_order_from_a_version_on() {
    let client = Client::new();
    let list = client.get(MAPS).await.ok();
    client.map("before", json!({})).await;
    let mut watch = client
        .watch(&format!("{MAPS}?watch=true&resourceVersion={}", version(&list)))
        .await;
    client.map("a", json!({})).await;
    client
        .patch(&format!("{MAPS}/a"), MERGE, json!({"data": {"key": "2"}}))
        .await
        .ok();
    client.delete(&format!("{MAPS}/a")).await.ok();
    for expected in ["ADDED before", "ADDED a", "MODIFIED a"] {
        assert_eq!(watch.brief().await, expected);
    }
    let end = watch.next().await.expect("the deletion");
    assert_eq!(
        (&end["type"], &end["object"]["data"]["key"]),
        (&json!("DELETED"), &json!("2"))
    );
    let after = client.get(MAPS).await.ok();
    assert_eq!(
        version(&end["object"]),
        version(&after),
        "a deletion has a version of its own"
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_version_begins_with_what_is_there() {
    let client = Client::new();
    client.map("a", json!({})).await;
    let mut watch = client.watch(&format!("{MAPS}?watch=true&timeoutSeconds=5")).await;
    assert_eq!(watch.brief().await, "ADDED a");
    assert_eq!(watch.brief().await, "END", "after its five seconds");
}

/// As apimachinery reads flags: what is there is true unless it says `false` or 0. Clients in Python have written `watch=True`.
#[tokio::test(start_paused = true)]
async fn a_flag_that_is_there_is_true_unless_it_says_no() {
    let client = Client::new();
    client.map("a", json!({})).await;
    for flag in [
        "watch",
        "watch=",
        "watch=1",
        "watch=True",
        "watch=TRUE",
        "watch=yes",
    ] {
        let mut watch = client.watch(&format!("{MAPS}?{flag}&timeoutSeconds=1")).await;
        assert_eq!(watch.brief().await, "ADDED a", "{flag}");
        assert_eq!(watch.brief().await, "END", "{flag}");
    }
    for flag in ["watch=0", "watch=false", "watch=False"] {
        let list = client.get(&format!("{MAPS}?{flag}")).await.ok();
        assert_eq!(list["kind"], "ConfigMapList", "{flag}");
    }
    let initial = "sendInitialEvents=True&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=True";
    let mut watch = client.watch(&format!("{MAPS}?watch=True&{initial}")).await;
    assert_eq!(watch.brief().await, "ADDED a");
    assert_eq!(watch.brief().await, "BOOKMARK");
}

#[tokio::test(start_paused = true)]
async fn a_watch_may_ask_for_any_length() {
    let client = Client::new();
    client.map("a", json!({})).await;
    let watch = async |seconds: &str| {
        let path = format!("{MAPS}?watch=true&timeoutSeconds={seconds}");
        client.watch(&path).await
    };
    let mut long = watch("9223372036854775807").await;
    assert_eq!(long.brief().await, "ADDED a");
    for (seconds, lasts) in [("2", 2), ("0", 1_800), ("-1", 0)] {
        let start = Instant::now();
        let mut short = watch(seconds).await;
        assert_eq!(short.brief().await, "ADDED a", "{seconds}");
        assert_eq!(short.brief().await, "END", "{seconds}");
        assert_eq!(start.elapsed().as_secs(), lasts, "{seconds}");
    }
    client.map("b", json!({})).await;
    assert_eq!(long.brief().await, "ADDED b", "it goes on");
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_marked_bookmark() {
    let client = Client::new();
    client.map("a", json!({})).await;
    client.map("b", json!({})).await;
    let path = format!(
        "{MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut watch = client.watch(&path).await;
    assert_eq!(watch.brief().await, "ADDED a");
    assert_eq!(watch.brief().await, "ADDED b");
    let bookmark = watch.next().await.expect("the bookmark");
    assert_eq!(
        (&bookmark["type"], &bookmark["object"]["kind"]),
        (&json!("BOOKMARK"), &json!("ConfigMap"))
    );
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    client.map("c", json!({})).await;
    assert_eq!(watch.brief().await, "ADDED c");
    client
        .get(&format!("{MAPS}?watch=true&sendInitialEvents=true"))
        .await
        .refused(422, "Invalid");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_move_a_quiet_watch_forward() {
    let client = Client::with(|config| config.history_limit = 10);
    client.map("a", json!({})).await;
    let mut watch = client
        .watch(&format!(
            "{MAPS}?watch=true&allowWatchBookmarks=true&labelSelector=never&resourceVersion=0"
        ))
        .await;
    for round in 0..50 {
        client.namespace(&format!("n{round}")).await;
    }
    let bookmark = watch.next().await.expect("a bookmark");
    assert_eq!(bookmark["type"], "BOOKMARK");
    let newest = client.get(MAPS).await.ok();
    assert_eq!(version(&bookmark["object"]), version(&newest));
}

#[tokio::test(start_paused = true)]
async fn objects_enter_and_leave_a_selector() {
    let client = Client::new();
    client.map("a", json!({"app": "no"})).await;
    let mut watch = client
        .watch(&format!("{MAPS}?watch=true&labelSelector=app%3Dyes"))
        .await;
    let path = format!("{MAPS}/a");
    for app in ["yes", "yes", "no"] {
        client
            .patch(
                &path,
                MERGE,
                json!({"metadata": {"labels": {"app": app}}, "data": {"now": app}}),
            )
            .await
            .ok();
    }
    client
        .patch(&path, MERGE, json!({"metadata": {"labels": {"app": "yes"}}}))
        .await
        .ok();
    client.delete(&path).await.ok();
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(watch.brief().await);
    }
    assert_eq!(
        seen,
        ["ADDED a", "DELETED a", "ADDED a", "DELETED a"],
        "the second write changed nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn one_object_by_field_selector_and_one_namespace() {
    let client = Client::new();
    client.namespace("other").await;
    let mut one = client
        .watch("/api/v1/configmaps?watch=true&fieldSelector=metadata.name%3Db")
        .await;
    let mut other = client
        .watch("/api/v1/namespaces/other/configmaps?watch=true")
        .await;
    client.map("a", json!({})).await;
    client.map("b", json!({})).await;
    client
        .post(
            "/api/v1/namespaces/other/configmaps",
            json!({"metadata": {"name": "x"}}),
        )
        .await
        .ok();
    assert_eq!(one.brief().await, "ADDED b");
    assert_eq!(other.brief().await, "ADDED x");
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_version_is_410_in_the_stream() {
    let client = Client::with(|config| config.history_limit = 10);
    let first = client.map("a", json!({})).await;
    for round in 0..30 {
        client
            .patch(
                &format!("{MAPS}/a"),
                MERGE,
                json!({"data": {"round": round.to_string()}}),
            )
            .await
            .ok();
    }
    let mut watch = client
        .watch(&format!("{MAPS}?watch=true&resourceVersion={}", version(&first)))
        .await;
    let event = watch.next().await.expect("an error");
    assert_eq!(event["type"], "ERROR");
    assert_eq!(
        (
            &event["object"]["kind"],
            &event["object"]["code"],
            &event["object"]["reason"]
        ),
        (&json!("Status"), &json!(410), &json!("Expired"))
    );
    assert_eq!(watch.brief().await, "END");
}

#[tokio::test(start_paused = true)]
async fn a_slow_watch_that_was_overtaken_is_told_so() {
    let client = Client::with(|config| config.history_limit = 10);
    client.map("a", json!({})).await;
    let mut slow = client.watch(&format!("{MAPS}?watch=true")).await;
    assert_eq!(slow.brief().await, "ADDED a");
    for round in 0..30 {
        client
            .patch(
                &format!("{MAPS}/a"),
                MERGE,
                json!({"data": {"round": round.to_string()}}),
            )
            .await
            .ok();
    }
    assert_eq!(slow.next().await.expect("an error")["object"]["code"], 410);
}

#[tokio::test(start_paused = true)]
async fn clients_that_leave_take_nothing_with_them() {
    let client = Client::new();
    let mut stays = client.watch(&format!("{MAPS}?watch=true")).await;
    for round in 0..50 {
        let mut leaves = client.watch(&format!("{MAPS}?watch=true")).await;
        client.map(&format!("m{round:02}"), json!({})).await;
        assert!(leaves.next().await.is_some());
        drop(leaves);
    }
    for round in 0..50 {
        assert_eq!(stays.brief().await, format!("ADDED m{round:02}"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_definition_ends_its_watches() {
    let client = Client::new();
    client.post(DEFINITIONS, widgets()).await.ok();
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    client
        .post(
            widgets,
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}),
        )
        .await
        .ok();
    let mut watch = client.watch(&format!("{widgets}?watch=true")).await;
    assert_eq!(watch.brief().await, "ADDED w");
    client
        .delete(&format!("{DEFINITIONS}/widgets.example.com"))
        .await
        .ok();
    // The history is removed with the kind, so events that the watch has not seen yet are lost: the client lists again and finds nothing.
    let last = watch.next().await.expect("an error");
    assert_eq!(
        (&last["type"], &last["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert_eq!(watch.brief().await, "END");
}

#[tokio::test(start_paused = true)]
async fn watches_as_tables_and_as_metadata() {
    let client = Client::new();
    client.map("a", json!({})).await;
    client.map("b", json!({})).await;
    let mut tables = client
        .accepting("application/json;as=Table;v=v1;g=meta.k8s.io")
        .watch(&format!("{MAPS}?watch=true"))
        .await;
    let first = tables.next().await.expect("a table");
    assert_eq!(
        (
            &first["object"]["kind"],
            first["object"]["columnDefinitions"].as_array().map(Vec::len)
        ),
        (&json!("Table"), Some(3))
    );
    assert!(
        tables.next().await.expect("a table")["object"]["columnDefinitions"].is_null(),
        "columns come once"
    );
    let mut partial = client
        .accepting("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
        .watch(&format!("{MAPS}?watch=true"))
        .await;
    let first = partial.next().await.expect("metadata");
    assert!(first["object"].get("data").is_none());
    assert_eq!(first["object"]["kind"], "PartialObjectMetadata");
}

/// An event about a pod.
fn event(name: &str) -> Value {
    let about = json!({"kind": "Pod", "namespace": "default", "name": "web"});
    json!({"metadata": {"name": name}, "involvedObject": about, "reason": "Seen", "message": "a note", "type": "Normal"})
}

/// The history is not overtaken by one request: who watches finds each deletion in it.
#[tokio::test(start_paused = true)]
async fn a_crowd_of_events_goes_little_by_little() {
    let client = Client::with(|config| config.history_limit = 100);
    for number in 0..150 {
        client.post(EVENTS, event(&format!("e{number}"))).await.ok();
    }
    let list = client.get(EVENTS).await.ok();
    client.pass_seconds(3_600);
    let mut watch = client
        .watch(&format!("{EVENTS}?watch=true&resourceVersion={}", version(&list)))
        .await;
    for _ in 0..15 {
        for _ in 0..10 {
            let told = watch.brief().await;
            assert!(told.starts_with("DELETED e"), "{told}");
        }
        client.get(EVENTS).await.ok();
    }
    let none: [&str; 0] = [];
    assert_eq!(names(&client.get(EVENTS).await.ok()), none);
}

/// They have an hour, as on a real server, which each write begins anew. Those who watch are told.
#[tokio::test(start_paused = true)]
async fn events_go_an_hour_after_they_were_written_last() {
    let client = Client::new();
    for name in ["a", "b"] {
        client.post(EVENTS, event(name)).await.ok();
    }
    let list = client.get(EVENTS).await.ok();
    let mut watch = client
        .watch(&format!("{EVENTS}?watch=true&resourceVersion={}", version(&list)))
        .await;
    let (a, b) = (format!("{EVENTS}/a"), format!("{EVENTS}/b"));
    client.pass_seconds(1_800);
    let again = json!({"count": 2});
    client.patch(&b, MERGE, again.clone()).await.ok();
    client.pass_seconds(1_799);
    assert!(client.exists(&a).await);
    client.pass_seconds(1);
    client.patch(&a, MERGE, again).await.refused(404, "NotFound");
    assert!(!client.exists(&a).await);
    assert!(client.exists(&b).await, "half an hour is left of its second hour");
    assert_eq!(watch.brief().await, "MODIFIED b");
    assert_eq!(watch.brief().await, "DELETED a");
    client.post(EVENTS, event("a")).await.ok();
    client.pass_seconds(1_800);
    let list = client.get("/apis/events.k8s.io/v1/events").await.ok();
    assert_eq!(
        names(&list),
        ["a"],
        "the new one of the same name has its own hour"
    );
    assert_eq!(watch.brief().await, "ADDED a");
    assert_eq!(watch.brief().await, "DELETED b");
    client.pass_seconds(1_800);
    let deleted = client.delete(EVENTS).await.ok();
    assert!(names(&deleted).is_empty(), "what is gone cannot be deleted");
}
