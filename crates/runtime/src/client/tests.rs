//! The client against services that refuse, throttle and fall silent.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::Full;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use spokeshave_ports::TokioClock;

use super::*;

fn described(method: Method, path: &str) -> (&'static str, String) {
    let request = Request::builder().method(method).uri(path).body(()).unwrap();
    let described = Described::of(&request);
    let target = described.target.unwrap_or_default();
    (
        described.verb,
        format!(
            "{}|{}|{}|{}",
            target.group, target.version, target.resource, target.subresource
        ),
    )
}

#[test]
fn requests_are_described_by_their_path() {
    let cases = [
        (
            Method::GET,
            "/api/v1/namespaces/x/pods?limit=500",
            "LIST",
            "|v1|pods|",
        ),
        (Method::GET, "/api/v1/pods?watch=true&x=1", "WATCH", "|v1|pods|"),
        (Method::GET, "/api/v1/namespaces/x", "GET", "|v1|namespaces|"),
        (
            Method::PUT,
            "/api/v1/namespaces/x/finalize",
            "UPDATE",
            "|v1|namespaces|finalize",
        ),
        (
            Method::POST,
            "/api/v1/namespaces/x/pods/y/eviction",
            "CREATE",
            "|v1|pods|eviction",
        ),
        (
            Method::PATCH,
            "/apis/karpenter.sh/v1/nodeclaims/a/status",
            "PATCH",
            "karpenter.sh|v1|nodeclaims|status",
        ),
        (
            Method::DELETE,
            "/apis/karpenter.sh/v1/nodeclaims",
            "DELETECOLLECTION",
            "karpenter.sh|v1|nodeclaims|",
        ),
        (Method::GET, "/version", "LIST", "|||"),
    ];
    for (method, path, verb, target) in cases {
        assert_eq!(described(method, path), (verb, target.to_owned()), "{path}");
    }
}

fn not_found() -> Response<Full<Bytes>> {
    let body = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"x","reason":"NotFound","code":404}"#;
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = http::StatusCode::NOT_FOUND;
    response
}

fn stub() -> impl Service<
    Request<Body>,
    Response = Response<Full<Bytes>>,
    Error = Infallible,
    Future = impl Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send + 'static,
> + Send
+ 'static {
    tower::service_fn(|_request: Request<Body>| async { Ok::<_, Infallible>(not_found()) })
}

/// P §15.1: kube-client-qps and kube-client-burst.
#[tokio::test(start_paused = true)]
async fn requests_keep_the_rate_and_are_logged_and_counted() {
    let clock = TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared();
    let metrics = Metrics::new(clock.clone());
    let log = RequestLog::new();
    let options = ClientOptions {
        rate: Some((10.0, 2)),
        log: Some(log.clone()),
        metrics: Some(metrics.clone()),
        ..ClientOptions::default()
    };
    let client = from_service(stub(), "default", &options, clock.clone());
    let api: Api<ConfigMap> = Api::namespaced(client, "x");
    let start = clock.now();
    for _ in 0..5 {
        assert!(api.get_opt("a").await.unwrap().is_none());
    }
    let _ = api.create(&PostParams::default(), &ConfigMap::default()).await;
    assert_eq!(
        clock.since(start),
        Duration::from_millis(400),
        "two at once, then one per 100 ms"
    );
    let text = log.text();
    assert_eq!(text.lines().count(), 6);
    assert_eq!(
        text.lines().next(),
        Some("GET /api/v1/namespaces/x/configmaps/a ")
    );
    assert!(
        text.lines()
            .last()
            .unwrap()
            .starts_with("POST /api/v1/namespaces/x/configmaps? {"),
        "{text}"
    );
    let exposition = metrics.render();
    assert!(
        exposition.contains(r#"client_go_request_total{code="404",method="GET"} 5"#),
        "{exposition}"
    );
    let count = r#"client_go_request_duration_seconds_count{group="",kind="configmaps",subresource="",verb="GET",version="v1"} 5"#;
    assert!(exposition.contains(count), "{exposition}");
}

#[tokio::test(start_paused = true)]
async fn a_fenced_client_reads_but_does_not_write_after_its_term() {
    let clock = TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared();
    let leadership = Leadership::always(clock.clone(), "me");
    let log = RequestLog::new();
    let options = ClientOptions {
        log: Some(log.clone()),
        ..ClientOptions::default()
    };
    let client = from_service(stub(), "default", &options, clock);
    let present = fenced(client.clone(), leadership.clone(), leadership.epoch().unwrap());
    let past = fenced(
        client,
        leadership,
        Epoch {
            transitions: -1,
            holder: "me".into(),
        },
    );
    let delete = |client| async {
        Api::<ConfigMap>::default_namespaced(client)
            .delete("a", &DeleteParams::default())
            .await
    };
    assert!(matches!(delete(present).await, Err(kube::Error::Api(status)) if status.code == 404));
    log.clear();
    let refused = delete(past.clone()).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Service(error) if error.is::<crate::NotLeader>()),
        "{refused:?}"
    );
    assert_eq!(log.text(), "");
    assert!(
        Api::<ConfigMap>::default_namespaced(past)
            .get_opt("a")
            .await
            .unwrap()
            .is_none()
    );
}

/// Invariant 36: a write that waits for its turn when the term ends is never sent.
#[tokio::test(start_paused = true)]
async fn a_write_in_the_queue_dies_with_its_term() {
    let clock = TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared();
    let leadership = Leadership::always(clock.clone(), "me");
    let log = RequestLog::new();
    let options = ClientOptions {
        rate: Some((0.1, 1)),
        log: Some(log.clone()),
        ..ClientOptions::default()
    };
    let client = from_service(stub(), "default", &options, clock.clone());
    let api: Api<ConfigMap> =
        Api::default_namespaced(fenced(client, leadership.clone(), leadership.epoch().unwrap()));
    let _ = api.delete("first", &DeleteParams::default()).await;
    let waiting = tokio::spawn(async move { api.delete("second", &DeleteParams::default()).await });
    clock.sleep(Duration::from_secs(1)).await;
    leadership.end();
    assert!(
        matches!(waiting.await.unwrap(), Err(kube::Error::Service(error)) if error.is::<crate::NotLeader>())
    );
    clock.sleep(Duration::from_secs(60)).await;
    assert_eq!(log.text().lines().count(), 1, "{}", log.text());
}
