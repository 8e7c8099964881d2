//! Requests for the objects of one kind, to a live API server.

use std::sync::{Arc, Mutex};

use crate::common::{World, config_map};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_ports::{Write, WriteError, WriteTarget, Writes as _};
use spokeshave_runtime::{Api, ClientWrites};

fn value(object: &ConfigMap) -> Option<&str> {
    object.data.as_ref()?.get("value").map(String::as_str)
}

#[tokio::test(start_paused = true)]
async fn an_object_is_made_read_changed_and_deleted() {
    let world = World::new(1);
    let api: Api<ConfigMap> = Api::default_namespaced(world.client());
    assert!(api.get_opt("a").await.unwrap().is_none());
    let made = api
        .create(&PostParams::default(), &config_map("a", &[("value", "1")]))
        .await
        .unwrap();
    assert_eq!(value(&made), Some("1"));
    assert!(made.metadata.uid.is_some() && made.metadata.managed_fields.is_none());
    let patch = Patch::Merge(json!({ "data": { "value": "2" } }));
    let patched = api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(value(&patched), Some("2"));
    let mut wanted = api.get("a").await.unwrap();
    wanted.data = Some([("value".to_owned(), "3".to_owned())].into());
    let replaced = api.replace("a", &PostParams::default(), &wanted).await.unwrap();
    assert_eq!(value(&replaced), Some("3"));
    let stale = api.replace("a", &PostParams::default(), &wanted).await;
    assert!(matches!(stale, Err(kube::Error::Api(status)) if status.code == 409));
    let everywhere: Api<ConfigMap> = Api::all(world.client());
    let named = ListParams::default().fields("metadata.name=a");
    let list = everywhere.list(&named).await.unwrap();
    assert_eq!(list.items.len(), 1);
    assert!(list.metadata.resource_version.is_some());
    let gone = api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(gone.right().is_some_and(|status| status.is_success()));
    let missing = api.get("a").await;
    assert!(matches!(missing, Err(kube::Error::Api(status)) if status.code == 404));
}

#[tokio::test(start_paused = true)]
async fn an_eviction_says_how_long_the_pod_may_take() {
    let world = World::new(1);
    let api: Api<Pod> = Api::namespaced(world.client(), "default");
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    api.create(&PostParams::default(), &pod).await.unwrap();
    let parameters = EvictParams {
        delete_options: Some(DeleteParams::default().grace_period(7)),
        ..EvictParams::default()
    };
    api.evict("p", &parameters).await.unwrap();
    let going = api.get("p").await.unwrap();
    assert_eq!(going.metadata.deletion_grace_period_seconds, Some(7));
}

/// A provider that writes to an object that has a successor of its name looks again; whoever counts failures hears of each.
#[tokio::test(start_paused = true)]
async fn a_write_to_a_successor_is_a_conflict_one_that_is_against_a_rule_is_refused_and_each_failure_is_noticed()
 {
    let world = World::new(1);
    let api: Api<Node> = Api::all(world.client());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    let made = api.create(&PostParams::default(), &node).await.unwrap();
    let uid = made.metadata.uid;
    let noticed = Arc::new(Mutex::new(Vec::new()));
    let codes = noticed.clone();
    let writes = ClientWrites::new(world.client()).noticing(move |error| {
        let kube::Error::Api(status) = error else {
            panic!("an answer: {error}")
        };
        codes.lock().unwrap().push(status.code);
    });
    let write = |name: &str, uid: Value| Write {
        target: WriteTarget::Node,
        name: name.to_owned(),
        patch: json!({"metadata": {"uid": uid, "annotations": {"example.com/a": "b"}}}),
    };
    let successor = writes.write(write("n", json!("predecessor"))).await;
    assert!(
        matches!(&successor, Err(WriteError::Conflict(_))),
        "{successor:?}"
    );
    let gone = writes.write(write("m", json!(uid))).await;
    assert!(matches!(&gone, Err(WriteError::NotFound(_))), "{gone:?}");
    let mut wrong = write("n", json!(uid));
    wrong.patch["metadata"]["labels"] = json!({"example.com/a": "no label"});
    let refused = writes.write(wrong).await;
    assert!(matches!(&refused, Err(WriteError::Refused(_))), "{refused:?}");
    let written = writes.write(write("n", json!(uid))).await.unwrap();
    assert_eq!(written["metadata"]["annotations"]["example.com/a"], "b");
    assert_eq!(*noticed.lock().unwrap(), [422, 404, 422]);
}
