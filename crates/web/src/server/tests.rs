//! Rejected requests, responses, and streams.

use super::*;
use spokeshave_example::{better_together, instance_type, node, node_pool, pending_pod};
use spokeshave_model::ClusterState;
use spokeshave_plan::Policy;
use spokeshave_plan::in_flight::{expected_on, stand_in_id};
use spokeshave_view::{History, Judged, Ledger, Missing, View, World};

mod links;
mod packed;
mod said;

fn board() -> Board {
    let board = Board::new();
    publish(&board, 1, 2);
    board
}

fn publish(board: &Board, revision: u64, nodes: usize) {
    hang(board, revision, world(nodes, "small"));
}

/// A cluster with so many nodes of a type; the NodePool knows `small` only.
fn world(nodes: usize, name: &str) -> World {
    let kind = instance_type(name, 2, 8, &["a"]);
    let known = instance_type("small", 2, 8, &["a"]);
    let mut state = ClusterState::default().with_pool(node_pool("default"), vec![known]);
    for index in 0..nodes {
        state = state.with_node(node("default", &format!("n{index}<b>"), &kind, "a", "spot"));
    }
    World {
        state,
        now: spokeshave_example::epoch(),
        ..World::default()
    }
}

fn hang(board: &Board, revision: u64, world: World) {
    let judged = Judged::of(world, &Policy::default());
    let view = View::take(&judged, &mut Ledger::default(), &mut History::default(), revision);
    board.publish(Shown {
        view: Arc::new(view),
        judged: Arc::new(judged),
    });
}

/// The page of a world, with a query.
async fn page_of(world: World, query: &str) -> String {
    let board = Board::new();
    hang(&board, 1, world);
    ask(&site(board), "GET", &format!("/{query}"), &[KEY]).await.body
}

fn site(board: Board) -> Arc<Site> {
    site_of("spokeshave-1", board)
}

fn site_of(cookie: &str, board: Board) -> Arc<Site> {
    let gate = Gate {
        token: "secret".to_owned(),
        cookie: cookie.to_owned(),
        hosts: vec!["page.example".to_owned()],
        source: "test".to_owned(),
    };
    Arc::new(Site::new(gate, board, 1))
}

struct Got {
    status: u16,
    headers: http::HeaderMap,
    body: String,
}

async fn ask(site: &Arc<Site>, method: &str, uri: &str, headers: &[(&str, &str)]) -> Got {
    let (parts, body) = answer_to(site, method, uri, headers).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Got {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

async fn answer_to(site: &Arc<Site>, method: &str, uri: &str, headers: &[(&str, &str)]) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(uri);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "127.0.0.1:8090");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    respond(site, &request.body(()).unwrap()).await
}

const KEY: (&str, &str) = ("authorization", "Bearer secret");

#[tokio::test]
async fn strangers_other_names_and_other_methods_are_refused() {
    let site = site(board());
    assert_eq!(ask(&site, "GET", "/", &[]).await.status, 401);
    assert_eq!(
        ask(&site, "GET", "/api/view", &[("authorization", "Bearer secre")])
            .await
            .status,
        401
    );
    assert_eq!(ask(&site, "GET", "/?token=wrong", &[]).await.status, 401);
    for host in [
        "evil.example",
        "evil.example:8090",
        "10.0.0.1",
        "",
        "localhost:x@evil",
        "127.0.0.1.evil.example",
    ] {
        assert_eq!(
            ask(&site, "GET", "/", &[KEY, ("host", host)]).await.status,
            403,
            "{host}"
        );
    }
    for host in [
        "localhost",
        "localhost:80",
        "127.0.0.1",
        "127.9.9.9:1",
        "[::1]:8090",
        "page.example:443",
    ] {
        assert_eq!(
            ask(&site, "GET", "/", &[KEY, ("host", host)]).await.status,
            200,
            "{host}"
        );
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let got = ask(&site, method, "/", &[KEY]).await;
        assert_eq!(
            (got.status, got.headers["allow"].to_str().unwrap()),
            (405, "GET, HEAD")
        );
    }
    for path in [
        "/assets/../Cargo.toml",
        "/assets/x/page.js",
        "/api",
        "/api/node/none",
        "/etc/passwd",
    ] {
        assert_eq!(ask(&site, "GET", path, &[KEY]).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn the_token_of_the_address_becomes_a_cookie() {
    let site = site(board());
    let got = ask(&site, "GET", "/?node=n0&token=secret&group=zone", &[]).await;
    assert_eq!(got.status, 303);
    assert_eq!(got.headers["location"], "/?node=n0&group=zone");
    let cookie = got.headers["set-cookie"].to_str().unwrap();
    assert_eq!(
        cookie,
        "spokeshave-1=secret; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax"
    );
    let there = ask(&site, "GET", "//evil.example?token=secret", &[]).await;
    assert_eq!(there.headers["location"], "/", "never to another site");
    let got = ask(&site, "GET", "/", &[("cookie", "other=1; spokeshave-1=secret")]).await;
    assert_eq!(got.status, 200);
    assert_eq!(
        ask(&site, "GET", "/", &[("cookie", "spokeshave-2=secret")])
            .await
            .status,
        401
    );
}

/// Whoever has the page open is not shut out while the program runs: each drawing renews the cookie.
#[tokio::test]
async fn the_page_renews_the_cookie_that_it_was_asked_with() {
    let site = site(board());
    let cookie = async |path: &str, with: (&str, &str)| {
        let got = ask(&site, "GET", path, &[with]).await;
        let cookie = got.headers.get("set-cookie")?.to_str().unwrap();
        Some(cookie.to_owned())
    };
    let known = ("cookie", "spokeshave-1=secret");
    let renewed = cookie("/?group=zone", known).await;
    let kept = "spokeshave-1=secret; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax";
    assert_eq!(renewed.as_deref(), Some(kept));
    assert_eq!(cookie("/api/view", known).await, None);
    assert_eq!(cookie("/", KEY).await, None);
    assert_eq!(cookie("/", ("cookie", "spokeshave-1=wrong")).await, None);
}

/// Behind two ports of one host name a browser keeps both cookies, and each program finds its own.
#[tokio::test]
async fn two_programs_under_one_host_name_do_not_take_each_others_cookie() {
    let cookie = async |site: &Arc<Site>| {
        let got = ask(site, "GET", "/?token=secret", &[]).await;
        let cookie = got.headers["set-cookie"].to_str().unwrap();
        let (pair, _) = cookie.split_once(';').unwrap();
        pair.to_owned()
    };
    let (one, other) = (
        site_of("spokeshave-1f", board()),
        site_of("spokeshave-2e", board()),
    );
    let (first, second) = (cookie(&one).await, cookie(&other).await);
    assert_eq!(
        [&first, &second],
        ["spokeshave-1f=secret", "spokeshave-2e=secret"]
    );
    let both = format!("{first}; {second}");
    for site in [&one, &other] {
        let got = ask(site, "GET", "/", &[("cookie", both.as_str())]).await;
        assert_eq!(got.status, 200);
    }
}

/// Whoever has no script, or reads the JSON, is told that what is shown is old, too.
#[tokio::test]
async fn an_outage_is_told_on_the_page_and_in_the_view() {
    let board = board();
    let site = site(board.clone());
    let view = async || {
        let got = ask(&site, "GET", "/api/view", &[KEY]).await;
        let view: serde_json::Value = serde_json::from_str(&got.body).unwrap();
        view["header"]["notUpToDate"].clone()
    };
    let why = "the cluster does not answer within 10 s";
    assert!(view().await.is_null(), "and it is written down for the next");
    board.trouble(why.to_owned());
    let page = ask(&site, "GET", "/", &[KEY]).await.body;
    assert!(page.contains(&format!("</time>: {why}")), "{page}");
    assert!(page.contains(">not up to date</span>"), "{page}");
    assert_eq!(view().await, why);
    publish(&board, 2, 2);
    let page = ask(&site, "GET", "/", &[KEY]).await.body;
    assert!(!page.contains("not up to date"), "{page}");
    assert!(view().await.is_null());
}

#[tokio::test]
async fn nothing_comes_from_elsewhere_and_names_are_escaped() {
    let site = site(board());
    let got = ask(&site, "GET", "/?node=n0%3Cb%3E&find=%22%3E%3Cscript%3E", &[KEY]).await;
    // Written out: whoever weakens the policy changes this line, too.
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                  connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
    assert_eq!(got.headers["content-security-policy"], policy);
    assert!(
        !got.body.contains("<script>") && !got.body.contains("n0<b>"),
        "{}",
        got.body
    );
    assert!(got.body.contains("n0&lt;b&gt;"));
    for word in ["http://", "https://", "style=\"", " onclick", "javascript:"] {
        assert!(!got.body.contains(word), "{word}");
    }
    // Every file that the page references exists and is cacheable.
    let names = got.body.split('"').filter(|text| text.starts_with("/assets/"));
    let names: Vec<&str> = names.collect();
    assert_eq!(names.len(), 3);
    for name in names {
        let file = ask(&site, "GET", name, &[]).await;
        assert_eq!(file.status, 200, "{name}");
        assert!(
            file.headers["cache-control"]
                .to_str()
                .unwrap()
                .contains("immutable")
        );
        assert!(
            !file.body.contains("http://www.w3.org/1999") && !file.body.contains("https://"),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_what_if_is_answered_and_a_wrong_one_is_named() {
    let site = site(board());
    let got = ask(&site, "GET", "/api/whatif?gone=Node/n0%3Cb%3E", &[KEY]).await;
    let answer: serde_json::Value = serde_json::from_str(&got.body).unwrap();
    let gone = answer["verdicts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["node"] == "n0<b>")
        .unwrap();
    assert!(gone["after"].is_null(), "{answer}");
    for wrong in [
        "without=x",
        "without=Budget:Pod/x",
        "gone=Node/none",
        "gone=Moon/x",
        "",
    ] {
        let got = ask(&site, "GET", &format!("/api/whatif?{wrong}"), &[KEY]).await;
        assert_eq!(got.status, 400, "{wrong}: {}", got.body);
    }
    let page = ask(&site, "GET", "/?without=x", &[KEY]).await;
    assert!(page.status == 200 && page.body.contains("cannot be assumed away"));
}

/// Programs that read `explain -o json` read this, too.
#[tokio::test]
async fn stories_of_objects_are_the_documents_that_explain_prints() {
    let board = Board::new();
    let mut world = world(1, "small");
    let waiting = pending_pod("w", "1", "1Gi", &serde_json::json!({}));
    world.state = world.state.with_pod(expected_on(&waiting, &stand_in_id("w")));
    hang(&board, 1, world);
    let site = site(board);
    for (path, kind) in [
        ("node/n0%3Cb%3E", "Node"),
        ("nodepool/default", "NodePool"),
        ("pod/default/w", "Pod"),
    ] {
        let got = ask(&site, "GET", &format!("/api/{path}"), &[KEY]).await;
        let document: serde_json::Value = serde_json::from_str(&got.body).unwrap();
        assert_eq!(document["apiVersion"], "plan.spokeshave.dev/v1alpha1", "{path}");
        assert_eq!(document["kind"], "Story");
        assert_eq!(document["objectKind"], kind);
        assert_eq!(document["now"], "2026-01-01T00:00:00Z");
        assert!(document["summary"].is_string(), "{document}");
        assert_eq!(document["toggles"].is_array(), kind == "Node", "{path}");
        if kind == "Node" {
            assert_eq!(document["story"]["summary"], document["summary"]);
        }
    }
}

/// An answer about another what-if than was asked says in what it differs.
#[tokio::test]
async fn what_a_what_if_does_not_find_is_named_with_the_story() {
    let site = site(board());
    let document = async |path: &str| {
        let uri = format!("{path}gone=Node/n1%3Cb%3E&gone=Node/none");
        let got = ask(&site, "GET", &uri, &[KEY]).await;
        assert_eq!(got.status, 200, "{uri}: {}", got.body);
        serde_json::from_str::<serde_json::Value>(&got.body).unwrap()
    };
    let absent = serde_json::json!(["Node/none"]);
    for path in [
        "/api/node/n0%3Cb%3E?",
        "/api/nodepool/default?",
        "/api/box?x=500&y=100&",
    ] {
        assert_eq!(document(path).await["absent"], absent, "{path}");
    }
    let whole = ask(&site, "GET", "/api/node/n0%3Cb%3E", &[KEY]).await;
    assert!(!whole.body.contains("absent"), "{}", whole.body);
}

#[tokio::test]
async fn what_could_not_be_read_is_neither_zero_nor_a_fact() {
    let missing = |resource: &str| {
        vec![Missing {
            resource: resource.to_owned(),
            message: "forbidden".to_owned(),
        }]
    };
    let mut unclaimed = world(2, "small");
    unclaimed.state.node_claims.clear();
    unclaimed.missing = missing("nodeclaims.karpenter.sh");
    let page = page_of(unclaimed, "?gone=Node/n1%3Cb%3E").await;
    for wrong in ["not managed", "0 of 0", "$0.00"] {
        assert!(!page.contains(wrong), "{wrong}: {page}");
    }
    let uncounted = "Nodes or NodeClaims could not be read, so nobody has counted the nodes";
    assert!(page.contains(uncounted), "{page}");
    // A Node that cannot be read may be Ready.
    let mut unjoined = world(2, "small");
    unjoined.state.nodes.clear();
    unjoined.missing = missing("nodes");
    let page = page_of(unjoined, "").await;
    assert!(!page.contains("2 coming"), "{page}");
    // Prices are those of the NodePools.
    let mut poolless = world(2, "small");
    poolless.state.node_pools.clear();
    poolless.missing = missing("nodepools.karpenter.sh");
    let page = page_of(poolless, "").await;
    assert!(!page.contains("without a price"), "{page}");
    // What nobody has seen may forbid it.
    let mut guarded = world(1, "small");
    assert!(page_of(guarded.clone(), "").await.contains("delete, −$"));
    guarded.missing = missing("poddisruptionbudgets.policy");
    let page = page_of(guarded, "?node=n0%3Cb%3E").await;
    assert!(!page.contains("delete, "), "{page}");
    assert!(page.contains("runs; whether it may go depends"), "{page}");
}

#[tokio::test]
async fn z_024_a_page_without_any_price_says_so() {
    let page = page_of(world(2, "other"), "?gone=Node/n1%3Cb%3E").await;
    assert!(!page.contains("$0"), "{page}");
    assert_eq!(page.matches("<b>price unknown</b>").count(), 2, "{page}");
}

/// What nodes cost that are not managed nobody knows.
#[tokio::test]
async fn a_page_of_unmanaged_nodes_says_so() {
    let mut unmanaged = world(2, "small");
    unmanaged.state.node_claims.clear();
    let page = page_of(unmanaged, "").await;
    assert!(!page.contains("$0.00"), "{page}");
    assert!(page.contains("<b>no managed node</b>"), "{page}");
}

/// Nodes that save something together only are not told to stay, and no figure is a bound that it is not.
#[tokio::test]
async fn nodes_of_the_next_command_go_with_others() {
    let together = World {
        state: better_together(),
        now: spokeshave_example::epoch(),
        ..World::default()
    };
    let page = page_of(together, "").await;
    assert_eq!(
        page.matches("</span> goes with 1 other</td>").count(),
        2,
        "{page}"
    );
    assert!(page.contains("alone it would stay: "), "{page}");
    assert!(!page.contains('≤') && !page.contains("$0.00/h"), "{page}");
}

/// An address that names what has gone since is drawn without that, and says so; one that names nothing else is not drawn as if it did.
#[tokio::test]
async fn switches_of_what_is_gone_are_off() {
    let page = page_of(world(2, "small"), "?gone=Node/n1%3Cb%3E&gone=Node/none").await;
    assert!(page.contains("Everything below is drawn as if"), "{page}");
    let off = r#"aria-checked="false" data-gone="Node/none">gone Node/none</a><span class="note"> (not there any more)"#;
    assert!(page.contains(off), "{page}");
    assert!(
        page.contains(r#"aria-checked="true" data-gone="Node/n1&lt;b&gt;">✓ gone Node/n1"#),
        "{page}"
    );
    let page = page_of(world(2, "small"), "?gone=Node/none").await;
    assert!(
        page.contains("Nothing of this is assumed: Node none is not"),
        "{page}"
    );
    assert!(!page.contains("drawn as if") && !page.contains(r#"aria-checked="true""#));
}

/// A freeze closes what budgets allow, on the page as for `spokeshave budgets`.
#[tokio::test]
async fn a_freeze_closes_the_lanes_of_budgets() {
    let mut frozen = world(2, "small");
    let freeze = serde_json::json!({"apiVersion": "spokeshave.dev/v1alpha1", "kind": "DisruptionPolicy",
        "metadata": {"name": "stop"}, "spec": {"freeze": {"reason": "incident 42"}}});
    let freeze = serde_json::from_value(freeze).unwrap();
    frozen.state.disruption_policies.push(Arc::new(freeze));
    let page = page_of(frozen, "").await;
    let lane = ": 0 (DisruptionPolicy stop freeze)";
    assert!(page.contains(lane), "{page}");
    assert!(page.contains("DisruptionPolicy stop (spec.freeze): frozen: incident 42"));
}

#[tokio::test]
async fn d_007_a_pod_that_no_one_plans_for_has_no_node() {
    let every = "Every pod has a node";
    assert!(page_of(world(1, "small"), "").await.contains(every));
    let mut world = world(1, "small");
    let mut pod = pending_pod("new", "1", "1Gi", &serde_json::json!({}));
    pod.status = None;
    world.state.pods.push(Arc::new(pod));
    let page = page_of(world, "").await;
    assert!(!page.contains(every), "{page}");
    assert!(page.contains("no node is planned: kube-scheduler"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_tells_what_was_missed_or_starts_anew() {
    use futures::StreamExt as _;
    let board = board();
    let text = |frame: Option<Result<Frame<Bytes>, Infallible>>| {
        let data = frame.unwrap().unwrap().into_data().unwrap();
        String::from_utf8(data.to_vec()).unwrap()
    };
    let mut stream = Box::pin(events(board.clone(), Some(1)));
    assert_eq!(text(stream.next().await), "retry: 1000\n\n");
    assert_eq!(text(stream.next().await), "event: beat\ndata: 1\n\n");
    publish(&board, 2, 3);
    publish(&board, 3, 1);
    let told = text(stream.next().await);
    assert_eq!(told.matches("event: delta").count(), 2, "{told}");
    assert!(
        told.contains("id: 2\n") && told.contains("id: 3\n") && told.contains(r#""gone":["n1<b>","n2<b>"]"#),
        "{told}"
    );
    // A slow reader blocks nothing, and is told to reload.
    let mut slow = Box::pin(events(board.clone(), Some(3)));
    slow.next().await;
    for revision in 4..200 {
        publish(&board, revision, 1);
    }
    let told = text(slow.next().await);
    assert_eq!(told, "event: reset\nid: 199\ndata: 199\n\n");
    board.trouble("the cluster\ndoes not answer".to_owned());
    assert_eq!(
        text(slow.next().await),
        "event: trouble\ndata: the cluster does not answer\n\n"
    );
    // Whoever opens the page meanwhile is told at once.
    let mut late = Box::pin(events(board, None));
    late.next().await;
    assert_eq!(
        text(late.next().await),
        "event: reset\nid: 199\ndata: 199\n\nevent: trouble\ndata: the cluster does not answer\n\n"
    );
}

/// Asking for what is costly and hanging up at once makes no more of it go on at the same time.
#[tokio::test]
async fn who_hangs_up_keeps_the_turn_of_what_was_begun() {
    let site = site(board());
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let mut begun = Box::pin(apart(&site, move || wait.recv()));
    assert!(futures::poll!(&mut begun).is_pending());
    drop(begun);
    assert_eq!(site.workers.available_permits(), 0, "it still works");
    let mut next = Box::pin(ask(&site, "GET", "/api/node/n0%3Cb%3E", &[KEY]));
    assert!(
        futures::poll!(&mut next).is_pending(),
        "a story waits for its turn, too"
    );
    go.send(()).expect("it waits");
    assert_eq!(next.await.status, 200);
    assert_eq!(site.workers.available_permits(), 1);
}

#[tokio::test]
async fn it_answers_on_a_socket_refuses_long_heads_and_ends_when_told() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    let gate = site(Board::new()).gate.clone();
    let serving = tokio::spawn(serve(listener, board(), gate, async {
        told.await.ok();
    }));
    let exchange = async |head: String| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // A server that rejects a request need not read its whole head.
        let _ = stream.write_all(head.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    let head = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer secret\r\n";
    let got = exchange(format!("{head}\r\n")).await;
    assert!(
        got.starts_with("HTTP/1.1 200 OK") && got.ends_with("</html>"),
        "{got}"
    );
    // Cookies of other ports of the host name, as many as a browser keeps.
    let others = (0..180).map(|run| format!("spokeshave-{run:016x}={run:032x}"));
    let others: Vec<String> = others.collect();
    let got = exchange(format!("{head}Cookie: {}\r\n\r\n", others.join("; "))).await;
    assert!(got.starts_with("HTTP/1.1 200 OK"), "{got}");
    let got = exchange(format!("{head}X: {}\r\n\r\n", "x".repeat(100_000))).await;
    assert!(got.starts_with("HTTP/1.1 431"), "{got}");
    let got = exchange(format!("{head}\r\n")).await;
    assert!(got.starts_with("HTTP/1.1 200 OK"), "it lives");
    // A stream that is open does not hold the end up.
    let mut open = TcpStream::connect(address).await.unwrap();
    let stream = head
        .replace("GET / ", "GET /api/changes ")
        .replace("Connection: close\r\n", "");
    open.write_all(format!("{stream}\r\n").as_bytes()).await.unwrap();
    let mut first = [0; 15];
    open.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    tell.send(()).unwrap();
    serving.await.unwrap();
}
