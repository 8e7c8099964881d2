//! The settings of a cluster's operator, found in the embedded API server, and what is said where they are not found.

use std::sync::Mutex;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_plan::MinValuesPolicy;
use tower::ServiceExt as _;

use super::*;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a cluster does with requests.
#[derive(Clone, Copy)]
enum Guard {
    Answers,
    /// It refuses those for Deployments.
    Refuses,
    /// Connections break.
    IsSilent,
}

fn now() -> jiff::Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// An empty cluster: a client that is always answered, and one that is guarded.
fn a_cluster(guard: &Arc<Mutex<Guard>>) -> (Client, Client) {
    let server = ApiServer::new(Config::new(Arc::new(now), 7));
    let admin = Client::new(server.service(), "default");
    let guard = Arc::clone(guard);
    let guarded = tower::service_fn(move |request: Request<Body>| {
        let guard = *guard.lock().unwrap();
        let is_about_deployments = request.uri().path().contains("/deployments");
        let service = server.service();
        async move {
            match guard {
                Guard::IsSilent => return Err(Failure::from("no route to the cluster")),
                Guard::Refuses if is_about_deployments => {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
                        "message": "sam may not do this", "code": 403});
                    let body = Full::new(status.to_string().into()).map_err(|never| match never {});
                    let answer = Response::builder().status(StatusCode::FORBIDDEN);
                    return Ok(answer.body(body.boxed_unsync()).unwrap());
                }
                Guard::Answers | Guard::Refuses => {}
            }
            let answer = service.oneshot(request).await?;
            let boxed = answer.map(|body| body.map_err(Failure::from).boxed_unsync());
            Ok::<_, Failure>(boxed)
        }
    });
    (admin, Client::new(guarded, "default"))
}

/// A cluster that answers everything.
fn an_open_cluster() -> Client {
    a_cluster(&Arc::new(Mutex::new(Guard::Answers))).0
}

async fn create(client: &Client, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let types = object.types.clone().unwrap();
    let (group, version) = match types.api_version.split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), types.api_version.clone()),
    };
    let kind = GroupVersionKind::gvk(&group, &version, &types.kind);
    let resource = ApiResource::from_gvk(&kind);
    let namespace = object.metadata.namespace.clone().unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// A Deployment as the chart makes it, with this environment.
fn deployment(name: &str, env: &Value) -> Value {
    let labels = json!({"app.kubernetes.io/name": "spokeshave"});
    let args = ["operator", "--cloud-provider", "kwok"];
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "kube-system", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "containers": [{"name": "controller", "image": "registry.example/spokeshave:1", "args": args, "env": env,
                "volumeMounts": [{"name": "files", "mountPath": "/etc/spokeshave"}]}],
            "volumes": [{"name": "files", "configMap": {"name": "spokeshave-files"}}]}}}})
}

fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "kube-system"}, "data": data})
}

async fn in_force(client: &Client, args: &SourceArgs) -> (InForce, SettingsInForce) {
    let in_force = InForce::of_cluster(client, args).await.unwrap();
    let told = in_force.told.clone().unwrap();
    (in_force, told)
}

fn named(name: &str) -> SourceArgs {
    SourceArgs {
        operator: Some(name.parse().unwrap()),
        ..SourceArgs::default()
    }
}

#[tokio::test]
async fn p_202_it_is_decided_with_the_settings_of_the_deployment() {
    let client = an_open_cluster();
    let env = json!([
        {"name": "FEATURE_GATES", "value": "SpotToSpotConsolidation=true"},
        {"name": "BATCH_MAX_DURATION", "value": "30s"},
        {"name": "CONSOLIDATION_REPLACEMENTS", "value": "2"},
        {"name": "VM_MEMORY_OVERHEAD_PERCENT", "value": "0.1"},
        {"name": "MIN_VALUES_POLICY", "valueFrom": {"configMapKeyRef": {"name": "shared", "key": "policy"}}},
        {"name": "SCHEDULER_CONFIG", "value": "/etc/spokeshave/scheduler-config.yaml"},
    ]);
    create(&client, deployment("spokeshave", &env)).await;
    create(&client, config_map("shared", &json!({"policy": "BestEffort"}))).await;
    let spread = "podTopologySpread: {defaultConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}]}";
    let files = json!({"scheduler-config.yaml": spread});
    create(&client, config_map("spokeshave-files", &files)).await;
    let (in_force, told) = in_force(&client, &SourceArgs::default()).await;
    assert_eq!(told.deployment.as_deref(), Some("kube-system/spokeshave"));
    assert!(told.notes.is_empty() && told.given.is_empty(), "{told:?}");
    assert_eq!(told.set.len(), 6);
    let policy = in_force.policy();
    assert!(policy.disrupt.spot_to_spot);
    assert_eq!(policy.disrupt.replacements, 2);
    assert_eq!(policy.min_values, MinValuesPolicy::BestEffort);
    assert_eq!(policy.nomination_window.as_secs(), 60);
    assert!((in_force.aws.vm_memory_overhead_percent - 0.1).abs() < 1e-9);
    let scheduler = in_force.scheduler.as_ref().expect("it is in a ConfigMap");
    assert!(scheduler.profiles.have_default_constraints());
    assert!(in_force.knows_catalog);
}

#[tokio::test]
async fn without_an_operator_or_with_several_the_defaults_hold_and_a_name_decides() {
    let client = an_open_cluster();
    let (none, told) = in_force(&client, &SourceArgs::default()).await;
    assert_eq!((told.deployment, none.gates), (None, Gates::default()));
    assert!(
        told.notes[0].starts_with("no Deployment runs an operator: "),
        "{:?}",
        told.notes
    );
    let env = json!([{"name": "FEATURE_GATES", "value": "SpotToSpotConsolidation=true"}]);
    for name in ["blue", "green"] {
        create(&client, deployment(name, &env)).await;
    }
    let (several, told) = in_force(&client, &SourceArgs::default()).await;
    assert!(!several.policy().disrupt.spot_to_spot && told.deployment.is_none());
    let note = "2 Deployments run an operator, kube-system/blue, kube-system/green: ";
    assert!(told.notes[0].starts_with(note), "{:?}", told.notes);
    let (green, told) = in_force(&client, &named("kube-system/green")).await;
    assert!(green.policy().disrupt.spot_to_spot && told.notes.is_empty());
    let (_, told) = in_force(&client, &named("kube-system/red")).await;
    assert!(
        told.notes[0].starts_with("there is no Deployment kube-system/red: "),
        "{:?}",
        told.notes
    );
}

/// The first look at a cluster reads all of its Deployments where none has the labels of a chart, later ones do not.
#[tokio::test]
async fn an_operator_under_another_name_is_found_once() {
    let client = an_open_cluster();
    let args = SourceArgs::default();
    let (before, _) = in_force(&client, &args).await;
    let env = json!([{"name": "FEATURE_GATES", "value": "SpotToSpotConsolidation=true"}]);
    let mut unlabelled = deployment("nodes", &env);
    unlabelled["metadata"]["labels"] = json!({"app": "nodes"});
    create(&client, unlabelled).await;
    let later = before.of_cluster_again(&client, &args).await.unwrap();
    assert_eq!(later.operator, None);
    let (found, told) = in_force(&client, &args).await;
    assert_eq!(told.deployment.as_deref(), Some("kube-system/nodes"));
    let later = found.of_cluster_again(&client, &args).await.unwrap();
    assert!(later.policy().disrupt.spot_to_spot && later.operator.is_some());
    // Labels decide which are looked at, and not that one is an operator.
    let mut page = deployment("page", &env);
    page["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["web"]);
    create(&client, page).await;
    assert_eq!(in_force(&client, &args).await.1, told);
}

#[tokio::test]
async fn what_up_says_of_its_operator_holds_and_the_defaults_are_not_worth_a_line() {
    let client = an_open_cluster();
    let args = SourceArgs::default();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for (settings, set, notes) in [
        ("{}", 0, 0),
        (r#"{"FEATURE_GATES":"SpotToSpotConsolidation=true"}"#, 1, 0),
        (r#"{"INSTANCE_TYPES_FILE_PATH":"types.json"}"#, 1, 1),
    ] {
        let patch = json!({"metadata": {"annotations": {finding::SETTINGS_OF_UP: settings}}});
        let (name, parameters) = (finding::NAMESPACE_OF_UP, PatchParams::default());
        let patch = Patch::Merge(patch);
        namespaces.patch(name, &parameters, &patch).await.unwrap();
        let found = InForce::of_cluster(&client, &args).await.unwrap();
        let told = found.told.clone().unwrap_or_default();
        assert_eq!((told.set.len(), told.notes.len()), (set, notes), "{told:?}");
        assert_eq!(found.notes().is_empty(), set == 0, "{settings}");
        assert_eq!(found.knows_catalog, notes == 0, "{settings}");
        let is_on = settings.contains("SpotToSpot");
        assert_eq!(found.policy().disrupt.spot_to_spot, is_on, "{settings}");
        // Those that are not named are known to be off.
        assert_ne!(found.gates, Gates::default());
    }
}

#[tokio::test]
async fn what_may_not_be_read_is_named_and_fails_nothing() {
    let (_, client) = a_cluster(&Arc::new(Mutex::new(Guard::Refuses)));
    for (args, what) in [
        (SourceArgs::default(), "Deployments cannot be listed"),
        (
            named("kube-system/spokeshave"),
            "Deployment kube-system/spokeshave cannot be read",
        ),
    ] {
        let (none, told) = in_force(&client, &args).await;
        let note = format!("{what} (sam may not do this): ");
        assert!(told.notes[0].starts_with(&note), "{:?}", told.notes);
        assert!(none.is_answered && !none.policy().disrupt.spot_to_spot);
    }
}

#[tokio::test]
async fn later_settings_are_taken_and_hold_while_the_cluster_is_silent() {
    let guard = Arc::new(Mutex::new(Guard::Answers));
    let (admin, client) = a_cluster(&guard);
    let args = SourceArgs::default();
    let (before, _) = in_force(&client, &args).await;
    assert!(!before.policy().disrupt.spot_to_spot);
    let env = json!([{"name": "FEATURE_GATES", "value": "SpotToSpotConsolidation=true"}]);
    create(&admin, deployment("spokeshave", &env)).await;
    let found = before.of_cluster_again(&client, &args).await.unwrap();
    assert!(found.policy().disrupt.spot_to_spot);
    *guard.lock().unwrap() = Guard::IsSilent;
    let held = found.of_cluster_again(&client, &args).await.unwrap();
    assert!(held.policy().disrupt.spot_to_spot, "nobody has said otherwise");
    *guard.lock().unwrap() = Guard::Answers;
    let kind = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let resource = ApiResource::from_gvk(&kind);
    let all: Api<DynamicObject> = Api::namespaced_with(admin, "kube-system", &resource);
    let parameters = kube::api::DeleteParams::default();
    drop(all.delete("spokeshave", &parameters).await.unwrap());
    let gone = held.of_cluster_again(&client, &args).await.unwrap();
    assert!(!gone.policy().disrupt.spot_to_spot && gone.operator.is_none());
}

#[test]
fn files_say_nothing_of_settings_unless_some_are_given() {
    let none = InForce::of_files(&DecidingArgs::default()).unwrap();
    assert_eq!((none.told, none.gates), (None, Gates::default()));
}
