//! Looking at a cluster that is slow, silent, or holds what cannot be read; and what a panic costs.

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_plan::Policy;
use spokeshave_provider_kwok::Catalog;
use spokeshave_view::{Missing, Range, World};
use tower::ServiceExt as _;

use super::*;
use crate::cluster::Cluster;
use crate::plan::SourceArgs;

/// Requests that are answered late: their path, and when that is over.
type Late = Arc<Mutex<Vec<(&'static str, Instant)>>>;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// An API server: a client that is always answered at once, and a source that is not.
fn a_cluster() -> (Client, Source, Late) {
    let server = ApiServer::new(Config::new(Arc::new(now), 7));
    let late = Late::default();
    let (inner, held) = (server.clone(), Arc::clone(&late));
    let slow = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path();
        let held = held.lock().unwrap();
        let found = held.iter().find(|(late, _)| *late == path);
        let until = found.map(|(_, until)| *until);
        let service = inner.service();
        async move {
            if let Some(until) = until {
                tokio::time::sleep_until(until).await;
            }
            service.oneshot(request).await
        }
    });
    let cluster = Cluster {
        client: Client::new(slow, "default"),
        now: now(),
        server: "https://cluster.test/".to_owned(),
    };
    let source = Source::listing(cluster, Catalog::default(), None, Arc::default());
    (Client::new(server.service(), "default"), source, late)
}

/// From now on, for so many seconds.
fn hold(late: &Late, path: &'static str, number: u64) {
    let until = Instant::now() + seconds(number);
    late.lock().unwrap().push((path, until));
}

async fn create_node(client: &Client) {
    let node = json!({"metadata": {"name": "new"}, "spec": {"providerID": "kwok://new"}});
    let node: Node = serde_json::from_value(node).unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &node).await.unwrap();
}

/// How many nodes are shown.
fn nodes(board: &Board) -> Option<usize> {
    board.shown().map(|shown| shown.view.header.nodes)
}

/// Waiting is not work, for which one would have to rest eight times as long.
#[tokio::test(start_paused = true)]
async fn a_first_list_that_lasts_is_named_and_is_no_reason_to_rest() {
    let (admin, source, late) = a_cluster();
    hold(&late, "/api/v1/pods", 30);
    let (board, stop) = (Board::new(), Shutdown::new());
    let looking = tokio::spawn(keep_looking(source, board.clone(), stop.clone()));
    tokio::time::sleep(seconds(8)).await;
    let trouble = board.why_not().unwrap_or_default();
    assert!(
        trouble.contains("the cluster has not listed /api/v1/pods yet"),
        "{trouble}"
    );
    assert_eq!(nodes(&board), None);
    tokio::time::sleep(seconds(26)).await;
    assert_eq!((nodes(&board), board.why_not()), (Some(0), None));
    create_node(&admin).await;
    tokio::time::sleep(seconds(3)).await;
    assert_eq!(nodes(&board), Some(1));
    stop.request();
    looking.await.unwrap();
}

/// What is shown must not look as if nothing happened.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_falls_silent_is_told_and_shown_again_once_it_answers() {
    let (admin, source, late) = a_cluster();
    let (board, stop) = (Board::new(), Shutdown::new());
    let looking = tokio::spawn(keep_looking(source, board.clone(), stop.clone()));
    tokio::time::sleep(seconds(2)).await;
    assert_eq!((nodes(&board), board.why_not()), (Some(0), None));
    hold(&late, "/version", 20);
    create_node(&admin).await;
    tokio::time::sleep(seconds(17)).await;
    let trouble = board.why_not().unwrap_or_default();
    assert!(trouble.contains("does not answer within 10 s"), "{trouble}");
    assert_eq!(nodes(&board), Some(0), "what was seen last stays");
    tokio::time::sleep(seconds(8)).await;
    assert_eq!((nodes(&board), board.why_not()), (Some(1), None));
    stop.request();
    looking.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_named_and_what_depends_on_it_is_unknown() {
    let (admin, mut source, _) = a_cluster();
    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    for definition in spokeshave_api::crds::crds() {
        let made = definitions.create(&PostParams::default(), &definition).await;
        made.unwrap();
    }
    let kind = GroupVersionKind::gvk("karpenter.sh", "v1", "NodePool");
    let resource = ApiResource::from_gvk_with_plural(&kind, "nodepools");
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    // The definition allows later times than one can count with.
    let taint = json!({"key": "a", "effect": "NoSchedule", "timeAdded": "9999-12-31T23:59:59Z"});
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "ancient"},
        "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": [], "taints": [taint]}}},
    });
    let pool: DynamicObject = serde_json::from_value(pool).unwrap();
    let pools: Api<DynamicObject> = Api::all_with(admin.clone(), &resource);
    pools.create(&PostParams::default(), &pool).await.unwrap();
    for is_followed in [false, true] {
        if is_followed {
            source.follow();
        }
        let shown = once(&mut source).await.unwrap();
        let header = &shown.view.header;
        assert_names(
            &header.missing,
            "nodepools.karpenter.sh",
            "NodePool ancient",
            "timeAdded",
        );
        assert!(!header.knows("pools") && !header.knows("price"));
    }
}

#[tokio::test]
async fn an_object_of_a_file_that_cannot_be_read_is_named_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.yaml");
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: odd, namespace: shop}\nspec: {containers: none}\n";
    std::fs::write(&file, pod).unwrap();
    let args = SourceArgs {
        filenames: vec![file],
        ..SourceArgs::default()
    };
    let mut source = Source::of(&args).await.unwrap();
    let shown = once(&mut source).await.unwrap();
    let header = &shown.view.header;
    assert_names(&header.missing, "pods", "Pod shop/odd", "spec.containers");
    assert!(!header.knows("idle") && header.knows("price"));
}

/// A draft that an API server would refuse is in no cluster: it is left out, and what the dump beside it says stays known.
#[tokio::test]
async fn a_draft_that_an_api_server_would_refuse_hides_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("draft.yaml");
    let pool = |name: &str, more: &str| {
        format!(
            "---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n  template:\n    spec:\n      \
             requirements: []\n      nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}\n{more}"
        )
    };
    let text = [pool("good", ""), pool("draft", "      expireAfer: 1h\n")].concat();
    std::fs::write(&file, text).unwrap();
    let args = SourceArgs {
        filenames: vec![file],
        ..SourceArgs::default()
    };
    let mut source = Source::of(&args).await.unwrap();
    let shown = once(&mut source).await.unwrap();
    let header = &shown.view.header;
    assert_eq!((header.pools, &header.unknown), (1, &Vec::new()));
    assert!(header.missing.is_empty(), "{:?}", header.missing);
}

/// One object is missing, with its problem.
fn assert_names(missing: &[Missing], resource: &str, object: &str, problem: &str) {
    let [one] = missing else {
        panic!("{missing:?}");
    };
    assert_eq!(one.resource, resource);
    let begin = format!("{object} is left out, because it cannot be read: ");
    assert!(
        one.message.starts_with(&begin) && one.message.contains(problem),
        "{one:?}"
    );
}

#[tokio::test]
async fn a_panic_costs_one_look_and_nothing_that_is_remembered() {
    let memory = Arc::<Mutex<Memory>>::default();
    let at = |second: i64| -> Making {
        let world = World {
            now: Timestamp::from_second(second).unwrap(),
            ..World::default()
        };
        Box::new(move || (world, Policy::default()))
    };
    let first = judge(at(0), Arc::clone(&memory)).await.unwrap();
    let broken: Making = Box::new(|| -> (World, Policy) { panic!("a bug") });
    let broken = judge(broken, Arc::clone(&memory)).await;
    let error = format!("{:#}", broken.unwrap_err());
    assert!(
        error.contains("cannot be judged") && error.contains("a bug"),
        "{error}"
    );
    let second = judge(at(60), memory).await.unwrap();
    assert_eq!((first.view.revision, second.view.revision), (1, 2));
    assert_eq!(second.view.history.samples(Range::Hour).count(), 2);
}
