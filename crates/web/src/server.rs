//! The server: few paths, GET and HEAD only, with a token, under known host names.
//!
//! Everything is bounded: connections, the size of a head and what links repeat of it, concurrent work, including work for closed connections, and what a slow reader
//! can block, which is only its own connection, for half a minute: a stream is rendered when it is read, and a reader that missed too much reloads.

use crate::answer::{self, Body, HTML, JSON, refusal, whole};
use crate::assets;
use crate::board::{Answer, Board, News, Shown, difference_json, node_json, story_json};
use crate::coding::{self, Packable};
use crate::page::{message, render};
use crate::query::{LONGEST_ADDRESS, Query, decoded};
use crate::stalled::Stalling;
use bytes::Bytes;
use futures::stream::{Stream, unfold};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use spokeshave_view::{MOST_SUPPOSED, Supposition, pod_story, pool_story};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};

/// How long a client may take to send its request head.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// How long a client may take nothing of an answer.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// The longest head. Browsers send the cookies of every port of a host name, and keep up to a few hundred of them.
const HEAD_BYTES: usize = 32 << 10;
/// How long a browser keeps the cookie, in seconds: a day after the page was drawn last. Those of runs that have ended would pile up.
const COOKIE_SECONDS: u32 = 24 * 60 * 60;
/// Connections served at the same time; more wait.
const CONNECTIONS: usize = 128;
/// Pages, stories and what-ifs that are worked on at the same time.
const WORKERS: usize = 2;
/// The shortest time between two events of a stream.
const PAUSE: Duration = Duration::from_millis(500);
/// Interval of keep-alive messages in a stream.
const BEAT: Duration = Duration::from_secs(3);
/// Pause after a failure to accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Who may read.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Known to those who may; in the address that is printed, then in a cookie.
    pub token: String,
    /// The name of the cookie, of letters, digits and hyphens, which no other run shares: cookies know no ports, and two programs may be reached under one
    /// host name, each behind a port of its own.
    pub cookie: String,
    /// Names besides those of the loopback interface under which the page may be requested, such as that of a proxy.
    pub hosts: Vec<String>,
    /// The source of the view, for the title of the page.
    pub source: String,
}

struct Site {
    gate: Gate,
    board: Board,
    workers: Arc<Semaphore>,
}

impl Site {
    fn new(gate: Gate, board: Board, workers: usize) -> Self {
        Self {
            gate,
            board,
            workers: Arc::new(Semaphore::new(workers)),
        }
    }
}

/// Serves a board until `stop` completes; then every connection is closed, because a stream never ends on its own.
pub async fn serve(listener: TcpListener, board: Board, gate: Gate, stop: impl Future<Output = ()>) {
    let site = Arc::new(Site::new(gate, board, WORKERS));
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        while connections.try_join_next().is_some() {}
        let is_full = connections.len() >= CONNECTIONS;
        tokio::select! {
            biased;
            () = &mut stop => return,
            _ = connections.join_next(), if is_full => {}
            accepted = listener.accept(), if !is_full => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(site.clone(), stream))),
                Err(error) => {
                    tracing::warn!(%error, "the page cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

async fn connection(site: Arc<Site>, stream: TcpStream) {
    let service = service_fn(move |request: Request<Incoming>| {
        let site = site.clone();
        async move {
            let is_head = request.method() == Method::HEAD;
            let mut response = respond(&site, &request).await;
            if is_head {
                *response.body_mut() = Empty::new().boxed_unsync();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Stalling::new(stream, WRITE_LIMIT)), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection to the page broke");
    }
}

/// An answer, packed where the client takes it so. Where only its head is asked for, that says so, and nothing is packed.
async fn respond<B>(site: &Arc<Site>, request: &Request<B>) -> Response<Body> {
    let mut response = answered(site, request).await;
    if !coding::may_be_packed(&mut response) || !coding::takes_gzip(request.headers()) {
        return response;
    }
    if request.method() != Method::HEAD {
        return packed(site, response).await;
    }
    let length = response.body().size_hint().exact();
    let length = length.and_then(|length| usize::try_from(length).ok());
    match length.is_some_and(coding::is_long) {
        true => coding::as_gzip(response),
        false => response,
    }
}

/// Packs an answer that is made for one client.
async fn packed(site: &Site, response: Response<Body>) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let plain = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(never) => match never {},
    };
    let mut packed = None;
    if coding::is_long(plain.len()) {
        let content = plain.clone();
        packed = apart(site, move || coding::gzip(&content)).await.flatten();
    }
    match packed {
        Some(packed) => coding::as_gzip(Response::from_parts(parts, answer::body(packed))),
        None => Response::from_parts(parts, answer::body(plain)),
    }
}

async fn answered<B>(site: &Arc<Site>, request: &Request<B>) -> Response<Body> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = refusal(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and HEAD: nothing can be changed here",
        );
        let allow = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(header::ALLOW, allow);
        return response;
    }
    if !is_known_host(request, &site.gate.hosts) {
        return refusal(
            StatusCode::FORBIDDEN,
            "this page is not served under that name; name it with --web-host",
        );
    }
    let path = request.uri().path();
    let query = request.uri().query().unwrap_or_default();
    if path == "/healthz" {
        return whole(StatusCode::OK, answer::TEXT, "ok");
    }
    if path.starts_with("/assets/") {
        return asset(path, coding::takes_gzip(request.headers()));
    }
    let is_by_cookie = match admission(site, request, query) {
        Admission::Cookie => true,
        Admission::Bearer => false,
        Admission::Exchange(rest) => return exchange(site, path, &rest),
        Admission::No => {
            let text = "Open the address that the program has printed: it has the token. For other clients: Authorization: Bearer TOKEN.";
            return whole(StatusCode::UNAUTHORIZED, HTML, message("No token", text));
        }
    };
    let mut response = route(site, path, query, request).await;
    // Whoever has the page open stays admitted.
    if path == "/" && is_by_cookie {
        give_cookie(site, &mut response);
    }
    response
}

async fn route<B>(site: &Arc<Site>, path: &str, query: &str, request: &Request<B>) -> Response<Body> {
    if path == "/api/changes" {
        let last = request
            .headers()
            .get("last-event-id")
            .and_then(|id| id.to_str().ok());
        return changes(site.board.clone(), last.and_then(|id| id.parse().ok()));
    }
    let Some(shown) = site.board.shown() else {
        let why = site
            .board
            .why_not()
            .unwrap_or_else(|| "The cluster is being read for the first time.".to_owned());
        let mut response = whole(StatusCode::SERVICE_UNAVAILABLE, HTML, message("Not yet", &why));
        response
            .headers_mut()
            .insert(header::REFRESH, HeaderValue::from_static("1"));
        return response;
    };
    let asked = Query::parse(query);
    match path {
        "/" => page(site, shown, asked).await,
        "/api/view" => view(site, coding::takes_gzip(request.headers())).await,
        "/api/whatif" => what_if(site, shown, &asked).await,
        "/api/box" => found_box(site, shown, query, &asked).await,
        path => object(site, shown, path, &asked).await,
    }
}

/// The stories of objects: `/api/node/NAME`, `/api/pod/NAMESPACE/NAME`, `/api/nodepool/NAME`; with `without=` as they would be.
async fn object(site: &Arc<Site>, shown: Shown, path: &str, query: &Query) -> Response<Body> {
    let rest = path.strip_prefix("/api/").and_then(|rest| rest.split_once('/'));
    let Some((kind @ ("node" | "pod" | "nodepool"), name)) = rest else {
        return refusal(StatusCode::NOT_FOUND, "there is nothing here");
    };
    let (shown, absent) = match asked_world(site, shown, query).await {
        Ok(found) => found,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error),
    };
    let name = decoded(name);
    let (asked, is_node, is_pod) = (name.clone(), kind == "node", kind == "pod");
    let json = apart(site, move || {
        if is_node {
            return node_json(&shown, &asked, absent);
        }
        let story = if is_pod {
            pod_story(&shown.judged, &asked)
        } else {
            pool_story(&shown.judged, &asked)
        };
        story.and_then(|story| story_json(&shown, &story, absent))
    });
    match json.await.flatten() {
        Some(json) => whole(StatusCode::OK, JSON, json),
        None => refusal(StatusCode::NOT_FOUND, &format!("there is no {kind} {name:?}")),
    }
}

/// Runs work outside the serving tasks, a few at a time. A closed connection does not cancel running work, which keeps its slot until it is done.
async fn apart<T: Send + 'static>(site: &Site, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let turn = site.workers.clone().acquire_owned().await.ok()?;
    let done = spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    done.await.ok()
}

/// The view as JSON, which is written and packed once a revision.
async fn view(site: &Arc<Site>, takes_gzip: bool) -> Response<Body> {
    let Some(json) = view_json(site).await else {
        return refusal(StatusCode::INTERNAL_SERVER_ERROR, "the view cannot be written");
    };
    let mut packed = json.if_packed().filter(|_| takes_gzip);
    if takes_gzip && packed.is_none() {
        let json = json.clone();
        packed = apart(site, move || json.packed()).await.flatten();
    }
    match packed {
        Some(packed) => coding::as_gzip(whole(StatusCode::OK, JSON, packed)),
        None => whole(StatusCode::OK, JSON, json.plain.clone()),
    }
}

async fn view_json(site: &Arc<Site>) -> Option<Arc<Packable>> {
    if let Some(json) = site.board.written() {
        return Some(json);
    }
    let board = site.board.clone();
    apart(site, move || board.json()).await.flatten()
}

/// Computes a what-if outside the serving tasks; `None` if nothing is assumed away.
async fn suppose(site: &Arc<Site>, shown: &Shown, query: &Query) -> Option<Arc<Answer>> {
    if query.is_too_much {
        let most = LONGEST_ADDRESS >> 10;
        let why = format!("more than {MOST_SUPPOSED} things at once, or an address of more than {most} KiB");
        return Some(Arc::new(Err(why)));
    }
    if query.supposed() == 0 {
        return None;
    }
    let (without, gone) = (query.without.iter(), query.gone.iter());
    let supposition = match Supposition::parse(without.map(String::as_str), gone.map(String::as_str)) {
        Ok(supposition) => supposition,
        Err(error) => return Some(Arc::new(Err(error.to_string()))),
    };
    let (board, shown) = (site.board.clone(), shown.clone());
    let work = apart(site, move || board.suppose(&shown, &supposition)).await;
    Some(work.unwrap_or_else(|| Arc::new(Err("the what-if could not be worked out".to_owned()))))
}

/// What is asked about: the world as it is, or that of a what-if with what was not assumed away because it is not there.
async fn asked_world(site: &Arc<Site>, shown: Shown, query: &Query) -> Result<(Shown, Vec<String>), String> {
    match suppose(site, &shown, query).await.as_deref() {
        None => Ok((shown, Vec::new())),
        Some(Ok((then, difference))) => Ok((then.clone(), difference.absent.clone())),
        Some(Err(error)) => Err(error.clone()),
    }
}

async fn page(site: &Arc<Site>, shown: Shown, query: Query) -> Response<Body> {
    let answer = suppose(site, &shown, &query).await;
    let (source, trouble) = (site.gate.source.clone(), site.board.why_not());
    let drawn = apart(site, move || {
        render(&shown, &query, answer.as_deref(), &source, trouble.as_deref())
    });
    match drawn.await {
        Some(html) => whole(StatusCode::OK, HTML, html),
        None => {
            let text =
                "This view of the page cannot be drawn. The table of another one may still be: go back.";
            whole(
                StatusCode::INTERNAL_SERVER_ERROR,
                HTML,
                message("Not drawn", text),
            )
        }
    }
}

async fn what_if(site: &Arc<Site>, shown: Shown, query: &Query) -> Response<Body> {
    match suppose(site, &shown, query).await.as_deref() {
        None => refusal(
            StatusCode::BAD_REQUEST,
            "nothing to assume away: expected without=CODE:KIND/NAME or gone=Node/NAME",
        ),
        Some(Ok((_, difference))) => whole(StatusCode::OK, JSON, difference_json(difference)),
        Some(Err(error)) => refusal(StatusCode::BAD_REQUEST, error),
    }
}

/// The node at a point of the drawing, for drawings of thousands.
async fn found_box(site: &Arc<Site>, shown: Shown, query: &str, asked: &Query) -> Response<Body> {
    // The boxes are those of the page, which may show another world.
    let (shown, absent) = match asked_world(site, shown, asked).await {
        Ok(found) => found,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error),
    };
    let number = |name: &str| {
        let value = query
            .split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        value
            .and_then(|value| value.parse::<f64>().ok())
            .filter(|value| value.is_finite())
    };
    let (Some(x), Some(y)) = (number("x"), number("y")) else {
        return refusal(StatusCode::BAD_REQUEST, "expected x and y");
    };
    let name = crate::boxes::at(&shown.view, asked, x, y);
    let row = name.and_then(|name| shown.view.nodes.find(&name).cloned());
    let answer = row.map(|row| {
        let href = asked.href(|query| query.node = Some(row.name.clone()));
        let text = crate::boxes::hover(&row);
        let mut found = serde_json::json!({"name": row.name, "text": text, "href": href});
        if !absent.is_empty() {
            found["absent"] = absent.into();
        }
        found
    });
    whole(
        StatusCode::OK,
        JSON,
        serde_json::to_vec(&answer).unwrap_or_default(),
    )
}

fn asset(path: &str, takes_gzip: bool) -> Response<Body> {
    let Some(asset) = assets::find(path) else {
        return refusal(StatusCode::NOT_FOUND, "there is nothing here");
    };
    let packed = takes_gzip.then(|| asset.content.packed()).flatten();
    let mut response = match packed {
        Some(packed) => coding::as_gzip(whole(StatusCode::OK, asset.kind, packed)),
        None => whole(StatusCode::OK, asset.kind, asset.content.plain.clone()),
    };
    let keep = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(header::CACHE_CONTROL, keep);
    response
}

/// A page of another origin that a name has been pointed here for (DNS rebinding) sends its own name.
fn is_known_host<B>(request: &Request<B>, hosts: &[String]) -> bool {
    let named = request
        .headers()
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let Some(named) = named else { return false };
    let (name, rest) = match named.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, rest)) => (name, rest),
        None => named.split_at(named.find(':').unwrap_or(named.len())),
    };
    let is_port = rest.is_empty()
        || rest
            .strip_prefix(':')
            .is_some_and(|port| port.parse::<u16>().is_ok());
    let is_loopback = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_port
        && (is_loopback || name == "localhost" || hosts.iter().any(|host| host.eq_ignore_ascii_case(name)))
}

enum Admission {
    Cookie,
    Bearer,
    /// By the address: a cookie takes its place, and the rest of the query stays.
    Exchange(String),
    No,
}

fn admission<B>(site: &Site, request: &Request<B>, query: &str) -> Admission {
    let token = site.gate.token.as_str();
    let text = |name: header::HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
    let bearer = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    let cookies = text(header::COOKIE).unwrap_or_default().split(';').map(str::trim);
    let cookie = cookies
        .filter_map(|cookie| cookie.split_once('='))
        .find(|(name, _)| *name == site.gate.cookie);
    let given = query.split('&').find_map(|pair| pair.strip_prefix("token="));
    if given.is_some_and(|given| is_same(given, token)) {
        let rest: Vec<&str> = query
            .split('&')
            .filter(|pair| !pair.starts_with("token="))
            .collect();
        return Admission::Exchange(rest.join("&"));
    }
    let is_token = |one: &str| is_same(one, token);
    if cookie.is_some_and(|(_, value)| is_token(value)) {
        Admission::Cookie
    } else if bearer.is_some_and(is_token) {
        Admission::Bearer
    } else {
        Admission::No
    }
}

/// Compares in constant time.
fn is_same(left: &str, right: &str) -> bool {
    let differences = left
        .bytes()
        .zip(right.bytes())
        .fold(0, |sum, (left, right)| sum | (left ^ right));
    left.len() == right.len() && differences == 0
}

fn exchange(site: &Site, path: &str, rest: &str) -> Response<Body> {
    let mut response = whole(
        StatusCode::SEE_OTHER,
        answer::TEXT,
        "the token is in a cookie now\n",
    );
    let mut place = if path.starts_with("//") {
        "/".to_owned()
    } else {
        path.to_owned()
    };
    if !rest.is_empty() {
        let _ = write!(place, "?{rest}");
    }
    if let Ok(place) = HeaderValue::from_str(&place) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    give_cookie(site, &mut response);
    response
}

/// From now on for a day whoever brings the cookie is admitted.
///
/// `Lax`, because `Strict` is not sent after a link of another site: whoever opens an address with the token from web mail or a chat would be given the
/// cookie and then be asked for it in vain. With `Lax` a browser brings it when another site opens an address as a page of its own, and with nothing else that
/// such a site makes it ask for. That is safe: only GET and HEAD are answered and change nothing, under known host names only (`is_known_host`), and no
/// other site can frame the page (`frame-ancestors 'none'`), embed an answer (CORP) or keep hold of the window (COOP).
fn give_cookie(site: &Site, response: &mut Response<Body>) {
    let cookie = format!(
        "{}={}; Path=/; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Lax",
        site.gate.cookie, site.gate.token
    );
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
}

/// Server-sent events: `delta` with Changes, or `reset` for who has missed too much; a sign of life now and then.
fn changes(board: Board, known: Option<u64>) -> Response<Body> {
    let body = StreamBody::new(events(board, known));
    answer::of(StatusCode::OK, "text/event-stream", body.boxed_unsync())
}

fn events(board: Board, known: Option<u64>) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
    unfold((board, known, true), async |(board, known, is_first)| {
        if is_first {
            let frame = Frame::data(Bytes::from_static(b"retry: 1000\n\n"));
            return Some((Ok(frame), (board, known, false)));
        }
        tokio::time::sleep(PAUSE).await;
        let next = board.next();
        let text = match board.news(known) {
            News::None => {
                let _ = tokio::time::timeout(BEAT, next).await;
                return Some((Ok(Frame::data(beat(&board, known).into())), (board, known, false)));
            }
            News::Changes(missed, newest) => {
                let mut text = String::new();
                for (until, one) in missed {
                    let _ = write!(
                        text,
                        "event: delta\nid: {until}\ndata: {}\n\n",
                        String::from_utf8_lossy(&one)
                    );
                }
                (text, newest)
            }
            News::Reset(newest) => (format!("event: reset\nid: {newest}\ndata: {newest}\n\n"), newest),
        };
        let (mut text, newest) = text;
        // What is told may be old already: the page would call it live until the next beat.
        text.extend(trouble(&board));
        drop(next);
        Some((Ok(Frame::data(text.into())), (board, Some(newest), false)))
    })
}

/// A sign of life, with the newest revision (0 before there is one); with what is wrong, if something is.
fn beat(board: &Board, newest: Option<u64>) -> String {
    trouble(board).unwrap_or_else(|| format!("event: beat\ndata: {}\n\n", newest.unwrap_or(0)))
}

/// Why what is shown is not up to date, if it is not.
fn trouble(board: &Board) -> Option<String> {
    let why = board.why_not()?.replace(['\n', '\r'], " ");
    Some(format!("event: trouble\ndata: {why}\n\n"))
}

#[cfg(test)]
mod tests;
