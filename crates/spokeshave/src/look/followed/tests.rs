//! A cluster that is followed by users with all rights and with few: what comes, goes, is hidden, or was not there before; and that nothing is written.

use std::net::SocketAddr;
use std::sync::Mutex;

use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use spokeshave_api::NodePool;
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_provider_kwok::Catalog;
use spokeshave_runtime::Shutdown;
use spokeshave_web::{Board, Gate, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt as _;

use super::*;
use crate::cluster::Cluster;
use crate::look::{Source, keep_looking};

/// Requests that the user may not make: what their path begins with, and whether only watching is meant.
type Refusals = Arc<Mutex<Vec<(&'static str, bool)>>>;

/// What the user has asked: method, path, and whether it was a watch.
type Asked = Arc<Mutex<Vec<(Method, String, bool)>>>;

/// An API server, a client that may do everything, and one of a user of whom some requests are refused.
fn a_cluster() -> (Client, Client, Refusals) {
    let (admin, user, refusals, _) = a_cluster_that_refuses_with(Some(StatusCode::FORBIDDEN));
    (admin, user, refusals)
}

/// The same with another answer to these requests, or with connections that break, and what the user has asked. Whoever looks only reads.
fn a_cluster_that_refuses_with(code: Option<StatusCode>) -> (Client, Client, Refusals, Asked) {
    let start = jiff::Timestamp::UNIX_EPOCH;
    let server = ApiServer::new(Config::new(Arc::new(move || start), 7));
    let (refusals, asked) = (Refusals::default(), Asked::default());
    let (inner, refused, record) = (server.clone(), Arc::clone(&refusals), Arc::clone(&asked));
    let guarded = tower::service_fn(move |request: Request<Body>| {
        let is_watch = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch="));
        let (method, path) = (request.method(), request.uri().path());
        let one = (method.clone(), path.to_owned(), is_watch);
        record.lock().unwrap().push(one);
        assert_eq!(method, Method::GET, "looking writes: {path}");
        let is_refused =
            |(prefix, watches): &(&str, bool)| path.starts_with(prefix) && (is_watch || !watches);
        let refuses = refused.lock().unwrap().iter().any(is_refused);
        let server = inner.service();
        async move {
            if refuses {
                let Some(code) = code else {
                    let broken = Box::<dyn std::error::Error + Send + Sync>::from("connection reset by peer");
                    return Err(broken);
                };
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": code.canonical_reason(),
                                    "message": "sam may not do this", "code": code.as_u16()});
                let body = Full::new(status.to_string().into()).map_err(|never| match never {});
                let answer = Response::builder().status(code).body(body.boxed_unsync());
                return Ok(answer.unwrap());
            }
            let answer = server.oneshot(request).await?;
            let boxed = answer.map(|body| {
                body.map_err(Box::<dyn std::error::Error + Send + Sync>::from)
                    .boxed_unsync()
            });
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(boxed)
        }
    });
    (
        Client::new(server.service(), "default"),
        Client::new(guarded, "default"),
        refusals,
        asked,
    )
}

/// How often the user has asked for the list of Pods.
fn lists_of_pods(asked: &Asked) -> usize {
    let asked = asked.lock().unwrap();
    let lists = asked
        .iter()
        .filter(|(_, path, is_watch)| path == "/api/v1/pods" && !is_watch);
    lists.count()
}

async fn create<K>(api: Api<K>, value: Value)
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let object: K = serde_json::from_value(value).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn pod(client: &Client, name: &str) {
    let value = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    create(Api::<Pod>::default_namespaced(client.clone()), value).await;
}

fn pods(copies: &Copies) -> Vec<&str> {
    let names = copies.dump.pods.iter().map(|pod| pod.metadata.name.as_deref());
    names.flatten().collect()
}

/// Reads until something is as it should be; what never is ends with the pods that were seen.
async fn until(followed: &mut Followed, is_meant: impl Fn(&Copies) -> bool) -> Copies {
    let mut seen = Vec::new();
    for _ in 0..600 {
        let copies = followed.read().await.unwrap();
        if is_meant(&copies) {
            return copies;
        }
        seen = pods(&copies).into_iter().map(str::to_owned).collect();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("it never came about: {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn what_comes_changes_and_goes_is_seen_without_listing_again() {
    let (admin, user, refusals) = a_cluster();
    create(
        Api::<Node>::all(admin.clone()),
        json!({"metadata": {"name": "n"}}),
    )
    .await;
    pod(&admin, "one").await;
    let mut followed = Followed::new(user, false);
    let copies = followed.read().await.unwrap();
    assert_eq!((copies.dump.nodes.len(), pods(&copies)), (1, vec!["one"]));
    assert!(
        copies.missing.is_empty(),
        "a cluster without NodePools is none that hides them"
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    let version = followed.version();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(followed.version(), version, "nothing has changed");
    pod(&admin, "two").await;
    until(&mut followed, |copies| pods(copies) == ["one", "two"]).await;
    assert_ne!(followed.version(), version);
    // Its watches go on, although the lists are refused now.
    let listed = ["/api/v1/pods", "/api/v1/nodes"].map(|path| (path, false));
    refusals.lock().unwrap().extend(listed);
    let own = Api::<Pod>::default_namespaced(admin.clone());
    own.delete("one", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    until(&mut followed, |copies| pods(copies) == ["two"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_installed_later_appears() {
    let (admin, user, _) = a_cluster();
    let mut followed = Followed::new(user, false);
    assert!(followed.read().await.unwrap().dump.node_pools.is_empty());
    for definition in spokeshave_api::crds::crds() {
        create(
            Api::<CustomResourceDefinition>::all(admin.clone()),
            serde_json::to_value(definition).unwrap(),
        )
        .await;
    }
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    let pool = json!({"metadata": {"name": "default"}, "spec": {"template": {"spec": {"nodeClassRef": class, "requirements": []}}}});
    create(Api::<NodePool>::all(admin.clone()), pool).await;
    until(&mut followed, |copies| copies.dump.node_pools.len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_seen_is_named_and_seen_once_it_may() {
    let (admin, user, refusals) = a_cluster();
    pod(&admin, "one").await;
    let refused = [
        "/apis/policy/v1/poddisruptionbudgets",
        "/apis/spokeshave.dev/v1alpha1/disruptions",
    ];
    refusals.lock().unwrap().extend(refused.map(|path| (path, false)));
    let mut followed = Followed::new(user, false);
    let copies = followed.read().await.unwrap();
    let missing: Vec<(&str, &str)> = copies
        .missing
        .iter()
        .map(|one| (one.resource.as_str(), one.message.as_str()))
        .collect();
    let names: Vec<&str> = missing.iter().map(|(resource, _)| *resource).collect();
    assert_eq!(
        names,
        ["poddisruptionbudgets.policy", "disruptions.spokeshave.dev"],
        "no policy reads the ledger, and commands that are not seen any more are not over for that"
    );
    let mut said = missing.iter().map(|(_, message)| message);
    assert!(
        said.all(|message| message.contains("sam may not do this")),
        "{missing:?}"
    );
    refusals.lock().unwrap().clear();
    until(&mut followed, |copies| copies.missing.is_empty()).await;
}

/// Nor are commands over of which the list fails.
#[tokio::test(start_paused = true)]
async fn a_list_of_commands_that_fails_is_named_although_no_policy_reads_it() {
    let refusing = a_cluster_that_refuses_with(Some(StatusCode::INTERNAL_SERVER_ERROR));
    let (_, user, refusals, _) = refusing;
    refusals.lock().unwrap().push((live::LEDGER, false));
    let copies = Followed::new(user, false).read().await.unwrap();
    let [missing] = &copies.missing[..] else {
        panic!("{:?}", copies.missing);
    };
    assert_eq!(missing.resource, "disruptions.spokeshave.dev");
    assert!(missing.message.contains("sam may not do this"), "{missing:?}");
}

#[tokio::test(start_paused = true)]
async fn without_pods_there_is_nothing_to_see() {
    let (_, user, refusals) = a_cluster();
    refusals.lock().unwrap().push(("/api/v1/pods", false));
    let read = Followed::new(user, false).read().await;
    let error = read.map(|copies| pods(&copies).len()).unwrap_err().to_string();
    assert!(
        error.contains("does not list /api/v1/pods") && error.contains("sam may not"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_may_be_listed_and_not_watched_is_listed_again() {
    let (admin, user, refusals) = a_cluster();
    refusals.lock().unwrap().push(("/api/v1/pods", true));
    let mut followed = Followed::new(user, false);
    assert!(pods(&followed.read().await.unwrap()).is_empty());
    pod(&admin, "late").await;
    until(&mut followed, |copies| pods(copies) == ["late"]).await;
}

/// An API server that starts, or has too much to do, is not asked to list everything once more.
#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_begin_for_a_while_goes_on_where_it_has_ended() {
    let refusing = a_cluster_that_refuses_with(Some(StatusCode::SERVICE_UNAVAILABLE));
    let (admin, user, refusals, asked) = refusing;
    refusals.lock().unwrap().push(("/api/v1/pods", true));
    let mut followed = Followed::new(user, false);
    assert!(pods(&followed.read().await.unwrap()).is_empty());
    pod(&admin, "late").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    refusals.lock().unwrap().clear();
    until(&mut followed, |copies| pods(copies) == ["late"]).await;
    assert_eq!(lists_of_pods(&asked), 1);
}

/// What nobody watches for long must not look as if nothing happened.
#[tokio::test(start_paused = true)]
async fn a_list_whose_watch_never_begins_is_read_anew() {
    // It is answered with an error, or not at all.
    for code in [Some(StatusCode::SERVICE_UNAVAILABLE), None] {
        let (admin, user, refusals, asked) = a_cluster_that_refuses_with(code);
        refusals.lock().unwrap().push(("/api/v1/pods", true));
        let mut followed = Followed::new(user, false);
        assert!(pods(&followed.read().await.unwrap()).is_empty());
        pod(&admin, "late").await;
        until(&mut followed, |copies| pods(copies) == ["late"]).await;
        assert_eq!(lists_of_pods(&asked), 2);
    }
}

/// Figures that stay because following has broken would be worse than none.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_followed_no_more_is_told_again_and_again() {
    let (_, user, _) = a_cluster();
    let mut followed = Followed::new(user, false);
    followed.read().await.unwrap();
    followed.following.spawn(async { panic!("a bug") });
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..3 {
        let read = followed.read().await;
        let error = read.map(|copies| pods(&copies).len()).unwrap_err().to_string();
        assert!(
            error.contains("not followed any more") && error.contains("a bug"),
            "{error}"
        );
    }
}

/// What is followed is what is listed.
#[tokio::test(start_paused = true)]
async fn every_list_has_a_kind_and_is_followed() {
    for (path, _) in live::lists(true) {
        assert!(identity(path).is_some(), "{path}");
    }
    assert_eq!(
        identity("/apis/apps/v1/daemonsets"),
        Some(("apps/v1".to_owned(), "DaemonSet".to_owned()))
    );
    assert_eq!(
        identity("/api/v1/pods"),
        Some(("v1".to_owned(), "Pod".to_owned()))
    );
    let (admin, user, _) = a_cluster();
    for name in ["a", "b"] {
        pod(&admin, name).await;
        create(
            Api::<Node>::all(admin.clone()),
            json!({"metadata": {"name": name}}),
        )
        .await;
    }
    let copies = Followed::new(user, true).read().await.unwrap();
    let (listed, refused) = live::read_what_may_be_seen(&admin, true).await.unwrap();
    assert_eq!(
        (copies.dump.objects, copies.missing.len(), pods(&copies)),
        (
            listed.objects,
            refused.len(),
            listed
                .pods
                .iter()
                .filter_map(|pod| pod.metadata.name.as_deref())
                .collect()
        )
    );
}

/// An object that nobody can read costs itself.
#[test]
fn an_unreadable_object_is_counted_and_named() {
    let mut dump = Dump::default();
    let text = json!({"metadata": {"name": "odd"}, "spec": {"containers": "none"}}).to_string();
    let kind = ("v1".to_owned(), "Pod".to_owned());
    Item::read(&kind, "default/odd", "/api/v1/pods", &text).add_to(&mut dump);
    assert_eq!((dump.objects, dump.pods.len()), (1, 0));
    let told = dump.unreadable[0].to_string();
    assert!(
        told.starts_with(
            "/api/v1/pods: Pod default/odd cannot be read: spec.containers: invalid type: string \"none\""
        ),
        "{told}"
    );
}

/// What the page answers to whoever may read it.
async fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let who = "Host: localhost\r\nConnection: close\r\nAuthorization: Bearer secret";
    let head = format!("GET {path} HTTP/1.1\r\n{who}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A node, and a pod on it that must not be disrupted.
async fn a_guarded_node(admin: &Client) {
    let node = json!({"metadata": {"name": "n"}, "spec": {"providerID": "kwok://n"}});
    create(Api::<Node>::all(admin.clone()), node).await;
    let guarded = json!({
        "metadata": {"name": "guarded", "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    });
    create(Api::<Pod>::default_namespaced(admin.clone()), guarded).await;
}

/// The page is for reading: of whoever looks, and assumes away what is there, the cluster gets nothing but questions.
#[tokio::test]
async fn looking_and_assuming_things_away_writes_nothing() {
    let (admin, user, _, asked) = a_cluster_that_refuses_with(None);
    a_guarded_node(&admin).await;
    let objects = async || {
        let all = ListParams::default();
        let nodes = Api::<Node>::all(admin.clone()).list(&all).await.unwrap();
        let pods = Api::<Pod>::all(admin.clone()).list(&all).await.unwrap();
        (nodes.items, pods.items)
    };
    let before = objects().await;
    let cluster = Cluster {
        client: user,
        now: jiff::Timestamp::UNIX_EPOCH,
        server: "https://cluster.test/".to_owned(),
    };
    let source = Source::listing(cluster, Catalog::default(), None, Arc::default());
    let (board, stop) = (Board::new(), Shutdown::new());
    let looking = tokio::spawn(keep_looking(source, board.clone(), stop.clone()));
    loop {
        let next = board.next();
        if board.shown().is_some() {
            break;
        }
        next.await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let gate = Gate {
        token: "secret".to_owned(),
        cookie: "spokeshave-1".to_owned(),
        hosts: Vec::new(),
        source: "test".to_owned(),
    };
    let (served, told) = (board.clone(), stop.clone());
    let serving = tokio::spawn(async move { serve(listener, served, gate, told.requested()).await });
    let guard = "without=PodDoNotDisrupt:Pod/default/guarded";
    let gone = "gone=Node/n";
    let as_if = "Everything below is drawn as if";
    for (path, part) in [
        ("/".to_owned(), "</html>"),
        ("/?node=n&group=zone&size=cpu&sort=price".to_owned(), "</html>"),
        (format!("/?node=n&{guard}"), as_if),
        (format!("/?node=n&{guard}&{gone}"), as_if),
        (format!("/api/whatif?{guard}"), "priceAfter"),
        (format!("/api/whatif?{gone}"), r#""node":"n""#),
        ("/api/view".to_owned(), r#""kind":"View""#),
        ("/api/node/n".to_owned(), r#""kind":"Story""#),
    ] {
        let answer = page(address, &path).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 OK") && answer.contains(part),
            "{path}: {answer}"
        );
    }
    stop.request();
    looking.await.unwrap();
    serving.await.unwrap();
    assert_eq!(objects().await, before);
    let asked = asked.lock().unwrap();
    let writes = asked.iter().filter(|(method, ..)| *method != Method::GET);
    let writes: Vec<&(Method, String, bool)> = writes.collect();
    assert!(writes.is_empty(), "{writes:?}");
    assert!(asked.len() > live::lists(false).len(), "{asked:?}");
}
