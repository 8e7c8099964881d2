//! Fields of other kinds than pods that stay as they are: changes that a real server refuses, what a replacement keeps, and classes of priorities.

use crate::client::{Client, JOBS, JSON_PATCH, MERGE, PODS, STRATEGIC, pod, refused, template};
use serde_json::{Value, json};

const APPS: &str = "/apis/apps/v1/namespaces/default";
const CORE: &str = "/api/v1/namespaces/default";
const STORAGE_CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const PRIORITY_CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

/// The only thing that is wrong with a change begins and ends so.
async fn refused_as(client: &Client, path: &str, patch: Value, place: &str, problem: &str) {
    let content_type = if patch.is_array() { JSON_PATCH } else { MERGE };
    let causes = refused(client, path, content_type, patch).await;
    assert_eq!(causes.len(), 1, "{causes:?}");
    assert!(
        causes[0].starts_with(&format!("{place}: ")) && causes[0].ends_with(problem),
        "{causes:?}"
    );
}

fn workload(more: Value) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template()});
    for (field, value) in more.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    json!({"metadata": {"name": "web"}, "spec": spec})
}

const IMMUTABLE: &str = "field is immutable";

#[tokio::test]
async fn a_job_runs_what_it_was_made_for() {
    let client = Client::new();
    let job = |name: &str, suspend: bool| {
        let mut template = template();
        template["spec"]["restartPolicy"] = json!("Never");
        json!({"metadata": {"name": name}, "spec": {"template": template, "suspend": suspend}})
    };
    let image =
        json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "other:1"}]);
    let place = json!([{"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"disk": "ssd"}}]);
    client.post(JOBS, job("j", false)).await.ok();
    let path = format!("{JOBS}/j");
    refused_as(&client, &path, image.clone(), "spec.template", IMMUTABLE).await;
    refused_as(&client, &path, place.clone(), "spec.template", IMMUTABLE).await;
    let more = json!({"spec": {"completions": 2}});
    refused_as(&client, &path, more, "spec.completions", IMMUTABLE).await;
    let indexed = json!({"spec": {"completionMode": "Indexed"}});
    refused_as(&client, &path, indexed, "spec.completionMode", IMMUTABLE).await;
    let wider = json!({"spec": {"parallelism": 3, "suspend": true}});
    client.patch(&path, MERGE, wider).await.ok();
    // What has not begun may still be told where to run.
    client.post(JOBS, job("held", true)).await.ok();
    let path = format!("{JOBS}/held");
    refused_as(&client, &path, image, "spec.template.spec", IMMUTABLE).await;
    client.patch(&path, JSON_PATCH, place.clone()).await.ok();
    let begun =
        json!({"status": {"startTime": "2027-01-15T08:00:00Z", "active": 1}, "spec": {"suspend": true}});
    client.patch(&format!("{path}/status"), MERGE, begun).await.ok();
    let elsewhere = json!({"spec": {"template": {"spec": {"nodeSelector": {"disk": "hdd"}}}}});
    refused_as(&client, &path, elsewhere, "spec.template", IMMUTABLE).await;
}

#[tokio::test]
async fn a_stateful_set_keeps_its_name_and_claims() {
    let client = Client::new();
    let sets = format!("{APPS}/statefulsets");
    let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    let set = workload(json!({"serviceName": "web", "volumeClaimTemplates": claims}));
    client.post(&sets, set.clone()).await.ok();
    let path = format!("{sets}/web");
    let problem = "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    let named = json!({"spec": {"serviceName": "other"}});
    refused_as(&client, &path, named, "spec", problem).await;
    let larger = json!([{"op": "replace", "path": "/spec/volumeClaimTemplates/0/spec/resources/requests/storage", "value": "2Gi"}]);
    refused_as(&client, &path, larger, "spec", problem).await;
    let without = json!([{"op": "remove", "path": "/spec/volumeClaimTemplates"}]);
    refused_as(&client, &path, without, "spec", problem).await;
    let scaled = json!({"spec": {"replicas": 3, "minReadySeconds": 5, "template": {"metadata": {"annotations": {"a": "b"}}}}});
    client.patch(&path, MERGE, scaled).await.ok();
    // The manifest that it was made of, once more.
    client.put(&path, set).await.ok();
}

#[tokio::test]
async fn a_strategy_says_one_thing() {
    let client = Client::new();
    let deployments = format!("{APPS}/deployments");
    client.post(&deployments, workload(json!({}))).await.ok();
    let path = format!("{deployments}/web");
    let recreate = json!({"spec": {"strategy": {"type": "Recreate"}}});
    assert_eq!(
        refused(&client, &path, STRATEGIC, recreate).await,
        ["spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"]
    );
    let still = json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}});
    let place = "spec.strategy.rollingUpdate.maxUnavailable";
    refused_as(
        &client,
        &path,
        still,
        place,
        r#"Invalid value: "0%": may not be 0 when `maxSurge` is 0"#,
    )
    .await;
    let whole = json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}});
    let changed = client.patch(&path, MERGE, whole).await.ok();
    assert_eq!(changed["spec"]["strategy"], json!({"type": "Recreate"}));
    let selector = json!({"spec": {"selector": {"matchLabels": {"app": "web", "x": "y"}}, "template": {"metadata": {"labels": {"x": "y"}}}}});
    refused_as(&client, &path, selector, "spec.selector", IMMUTABLE).await;
}

/// Daemons may be missing or too many, not both, and no more than all; how many pods of a Deployment may be too many is not bounded.
#[tokio::test]
async fn a_daemon_set_rolls_in_one_way() {
    let client = Client::new();
    let sets = format!("{APPS}/daemonsets");
    client.post(&sets, workload(json!({}))).await.ok();
    let path = format!("{sets}/web");
    let rolling = |surge: Value, unavailable: Value| json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}});
    let place = |field: &str| format!("spec.updateStrategy.rollingUpdate.{field}");
    for (surge, unavailable, field, problem) in [
        (
            json!("999999999%"),
            json!(0),
            "maxSurge",
            r#"Invalid value: "999999999%": must not be greater than 100%"#,
        ),
        (
            json!(0),
            json!("101%"),
            "maxUnavailable",
            r#"Invalid value: "101%": must not be greater than 100%"#,
        ),
        (
            json!(-1),
            json!(0),
            "maxSurge",
            "Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!(0),
            json!("0%"),
            "maxUnavailable",
            "Required value: cannot be 0 when maxSurge is 0",
        ),
        (
            json!("10%"),
            json!(1),
            "maxSurge",
            r#"Invalid value: "10%": may not be set when maxUnavailable is non-zero"#,
        ),
    ] {
        refused_as(
            &client,
            &path,
            rolling(surge, unavailable),
            &place(field),
            problem,
        )
        .await;
    }
    let other = json!({"spec": {"updateStrategy": {"type": "Recreate"}}});
    let problem = r#"supported values: "RollingUpdate", "OnDelete""#;
    refused_as(&client, &path, other, "spec.updateStrategy", problem).await;
    client
        .patch(&path, MERGE, rolling(json!("100%"), json!(0)))
        .await
        .ok();
    let wide = json!({"strategy": {"rollingUpdate": {"maxSurge": "999999999%"}}});
    client
        .post(&format!("{APPS}/deployments"), workload(wide))
        .await
        .ok();
}

#[tokio::test]
async fn a_stateful_set_rolls_from_a_partition_on_or_when_its_pods_are_deleted() {
    let client = Client::new();
    let sets = format!("{APPS}/statefulsets");
    // What a new one may not say, an old one may not either.
    let other = workload(json!({"updateStrategy": {"type": "Recreate"}}));
    client.post(&sets, other).await.refused(422, "Invalid");
    client.post(&sets, workload(json!({}))).await.ok();
    let path = format!("{sets}/web");
    let strategy = |strategy: Value| json!({"spec": {"updateStrategy": strategy}});
    for (wrong, field, problem) in [
        (
            json!({"type": "Recreate"}),
            "",
            "must be 'RollingUpdate' or 'OnDelete'",
        ),
        (
            json!({"rollingUpdate": {"partition": -1}}),
            ".rollingUpdate.partition",
            "Invalid value: -1: must be greater than or equal to 0",
        ),
        // What is there by default has to go.
        (
            json!({"type": "OnDelete"}),
            ".rollingUpdate",
            "only allowed for updateStrategy 'RollingUpdate'",
        ),
    ] {
        let place = format!("spec.updateStrategy{field}");
        refused_as(&client, &path, strategy(wrong), &place, problem).await;
    }
    // The gate of that field is off: what it says is neither kept nor looked at.
    let rolling = json!({"rollingUpdate": {"partition": 2, "maxUnavailable": "0%"}});
    let changed = client.patch(&path, MERGE, strategy(rolling.clone())).await.ok();
    let kept = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
    assert_eq!(changed["spec"]["updateStrategy"], kept);
    let on_delete = json!({"type": "OnDelete", "rollingUpdate": null});
    let changed = client.patch(&path, MERGE, strategy(on_delete)).await.ok();
    assert_eq!(changed["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
    let mut more = workload(json!({"updateStrategy": rolling}));
    more["metadata"]["name"] = json!("more");
    let made = client.post(&sets, more).await.ok();
    assert_eq!(made["spec"]["updateStrategy"], kept);
}

#[tokio::test]
async fn secrets_keep_their_type_and_classes_of_storage_what_they_mean() {
    let client = Client::new();
    let secrets = format!("{CORE}/secrets");
    client
        .post(&secrets, json!({"metadata": {"name": "s"}}))
        .await
        .ok();
    let other = json!({"type": "example.com/other"});
    refused_as(&client, &format!("{secrets}/s"), other, "type", IMMUTABLE).await;
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "example.com/disk", "parameters": {"kind": "ssd"}});
    client.post(STORAGE_CLASSES, class).await.ok();
    let path = format!("{STORAGE_CLASSES}/fast");
    for (field, value) in [
        ("provisioner", json!("example.com/other")),
        ("parameters", json!({"kind": "hdd"})),
        ("reclaimPolicy", json!("Retain")),
        ("volumeBindingMode", json!("WaitForFirstConsumer")),
    ] {
        refused_as(&client, &path, json!({field: value}), field, IMMUTABLE).await;
    }
    let grows = json!({"allowVolumeExpansion": true});
    client.patch(&path, MERGE, grows).await.ok();
}

#[tokio::test]
async fn claims_and_volumes_stay_what_they_are() {
    let client = Client::new();
    let claims = format!("{CORE}/persistentvolumeclaims");
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}});
    client
        .post(&claims, json!({"metadata": {"name": "c"}, "spec": spec}))
        .await
        .ok();
    let path = format!("{claims}/c");
    let size = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let fixed = "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
    refused_as(&client, &path, size("20Gi"), "spec", fixed).await;
    // Its binder names the volume, and the class where there is none.
    let bound = json!({"spec": {"volumeName": "v", "storageClassName": "fast"}});
    client.patch(&path, MERGE, bound).await.ok();
    let status = json!({"status": {"phase": "Bound", "capacity": {"storage": "10Gi"}}});
    client.patch(&format!("{path}/status"), MERGE, status).await.ok();
    let elsewhere = json!({"spec": {"volumeName": "w"}});
    refused_as(&client, &path, elsewhere, "spec", fixed).await;
    client.patch(&path, MERGE, size("20Gi")).await.ok();
    let place = "spec.resources.requests.storage";
    let smaller = "Forbidden: field can not be less than status.capacity";
    refused_as(&client, &path, size("5Gi"), place, smaller).await;

    let volumes = "/api/v1/persistentvolumes";
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "example.com", "volumeHandle": "v"}}});
    client.post(volumes, volume).await.ok();
    let path = format!("{volumes}/v");
    let other = json!({"spec": {"csi": {"volumeHandle": "w"}}});
    let place = "spec.persistentvolumesource";
    let problem = "Forbidden: spec.persistentvolumesource is immutable after creation";
    refused_as(&client, &path, other, place, problem).await;
    let claimed = json!({"spec": {"claimRef": {"namespace": "default", "name": "c"}, "persistentVolumeReclaimPolicy": "Delete"}});
    client.patch(&path, MERGE, claimed).await.ok();
}

/// Addresses come from the server, and whoever replaces a Service has not written them into his manifest.
#[tokio::test]
async fn a_replaced_service_keeps_its_address() {
    let client = Client::new();
    let services = format!("{CORE}/services");
    let manifest =
        |name: &str, port: u16| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": port}]}});
    let addresses = |service: &Value| {
        (
            service["spec"]["clusterIP"].clone(),
            service["spec"]["clusterIPs"].clone(),
        )
    };
    let made = client.post(&services, manifest("one", 80)).await.ok();
    let (first, _) = addresses(&made);
    let path = format!("{services}/one");
    let replaced = client.put(&path, manifest("one", 81)).await.ok();
    assert_eq!(replaced["spec"]["ports"][0]["port"], 81);
    assert_eq!(addresses(&replaced), (first.clone(), json!([first])));
    let other = client.post(&services, manifest("two", 80)).await.ok();
    assert_ne!(addresses(&other).0, first);
    let moved = json!({"spec": {"clusterIP": "10.96.9.9"}});
    let problem = r#"Invalid value: ["10.96.9.9"]: may not change once set"#;
    refused_as(&client, &path, moved, "spec.clusterIPs[0]", problem).await;
    let outside = json!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
    let outside = client.patch(&path, MERGE, outside).await.ok();
    assert_eq!(addresses(&outside), (json!(null), json!(null)));
    let inside = json!({"spec": {"type": "ClusterIP", "externalName": null}});
    let inside = client.patch(&path, MERGE, inside).await.ok();
    assert_eq!(addresses(&inside), (first.clone(), json!([first])), "it is free");
    let mut named = manifest("three", 80);
    named["spec"]["clusterIP"] = json!("10.96.3.3");
    let named = client.post(&services, named).await.ok();
    assert_eq!(addresses(&named).1, json!(["10.96.3.3"]));
}

#[tokio::test]
async fn pods_without_a_class_take_over_all_of_the_default_one() {
    let client = Client::new();
    let calm = json!({"metadata": {"name": "calm"}, "value": 10, "globalDefault": true, "preemptionPolicy": "Never"});
    client.post(PRIORITY_CLASSES, calm).await.ok();
    let made = client.post(PODS, pod("p", json!({}))).await.ok();
    let spec = &made["spec"];
    assert_eq!(
        (
            &spec["priorityClassName"],
            &spec["priority"],
            &spec["preemptionPolicy"]
        ),
        (&json!("calm"), &json!(10), &json!("Never"))
    );
    for (field, value, problem) in [
        (
            "priority",
            json!(5),
            "the integer value of priority (5) must not be provided in pod spec",
        ),
        (
            "preemptionPolicy",
            json!("PreemptLowerPriority"),
            "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec",
        ),
    ] {
        let mut body = pod("q", json!({}));
        body["spec"][field] = value;
        let body = client.post(PODS, body).await.refused(403, "Forbidden");
        let message = body["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("pods \"q\" is forbidden: {problem}")),
            "{message}"
        );
    }
    let mut same = pod("q", json!({}));
    same["spec"]["priority"] = json!(10);
    same["spec"]["preemptionPolicy"] = json!("Never");
    client.post(PODS, same).await.ok();
}

#[tokio::test]
async fn only_one_class_is_the_default_one() {
    let client = Client::new();
    let class = |name: &str, value: i64, default: bool| json!({"metadata": {"name": name}, "value": value, "globalDefault": default});
    client.post(PRIORITY_CLASSES, class("calm", 10, true)).await.ok();
    client.post(PRIORITY_CLASSES, class("beta", 5, false)).await.ok();
    let second = client.post(PRIORITY_CLASSES, class("alpha", 5, true)).await;
    let later = client
        .patch(
            &format!("{PRIORITY_CLASSES}/beta"),
            MERGE,
            json!({"globalDefault": true}),
        )
        .await;
    for (answer, name) in [(second, "alpha"), (later, "beta")] {
        assert_eq!(
            answer.refused(403, "Forbidden")["message"],
            format!(
                "priorityclasses.scheduling.k8s.io {name:?} is forbidden: PriorityClass calm is already marked as default. Only one default can exist"
            )
        );
    }
    let path = format!("{PRIORITY_CLASSES}/calm");
    let told = json!({"description": "for all others"});
    client.patch(&path, MERGE, told).await.ok();
    let value = "Forbidden: may not be changed in an update.";
    refused_as(&client, &path, json!({"value": 11}), "value", value).await;
    let policy = json!({"preemptionPolicy": "Never"});
    refused_as(&client, &path, policy, "preemptionPolicy", IMMUTABLE).await;
    let high = class("high", 1_000_000_001, false);
    let system = class("system-mine", 1, false);
    for (body, message) in [
        (
            high,
            "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
        ),
        (
            system,
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-mine is not a known system priority class",
        ),
    ] {
        let body = client.post(PRIORITY_CLASSES, body).await.refused(422, "Invalid");
        assert!(body["message"].as_str().unwrap().ends_with(message), "{body}");
    }
}
