//! The small HTTP server for probes and metrics: /metrics, /healthz, /readyz, and pages that its owner brings along.
//!
//! Owns the answers and the listener. It only reads; nothing can be changed through it. Whoever reaches the port cannot occupy it: a connection is for one
//! request and has an end, and where there are too many, the oldest makes room.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::{Metrics, Readiness, Shutdown};

/// What clients may take of a port.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// How long a client may take to send its request head.
    head: Duration,
    /// How long a connection may last, the reading of the answer included.
    connection: Duration,
    /// Connections served at the same time.
    connections: usize,
}

const LIMITS: Limits = Limits {
    head: Duration::from_secs(10),
    connection: Duration::from_secs(60),
    connections: 64,
};
/// Pause after a failure to accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Content type of Prometheus' text format 0.0.4.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Content that is rendered for every request.
type Write = Arc<dyn Fn() -> String + Send + Sync>;

/// A page of one's own.
#[derive(Clone)]
pub struct Document {
    /// Its path, such as `/shadow`.
    pub path: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Writes it.
    pub write: Write,
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The content of a port. Absent parts return 404.
#[derive(Clone, Debug, Default)]
pub struct HttpServer {
    /// Served under `/metrics`.
    pub metrics: Option<Metrics>,
    /// Served under `/healthz` and `/readyz`.
    pub readiness: Option<Readiness>,
    /// Explain under `/debug/pprof` that there is nothing.
    pub profiling: bool,
    /// Pages of one's own.
    pub documents: Vec<Document>,
}

/// Opens a listener; the error names the purpose and the address.
pub async fn bind(address: SocketAddr, purpose: &str) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("cannot listen on {address} for {purpose}: {error}"),
        )
    })
}

impl HttpServer {
    /// Serves until `shutdown`, then finishes the answers in hand.
    pub async fn serve(self, listener: TcpListener, shutdown: Shutdown) {
        self.serve_within(LIMITS, listener, shutdown).await;
    }

    async fn serve_within(self, limits: Limits, listener: TcpListener, shutdown: Shutdown) {
        let mut connections = JoinSet::new();
        let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
        while let Some(accepted) = shutdown.cut(listener.accept()).await {
            while connections.try_join_next().is_some() {}
            oldest_first.retain(|connection| !connection.is_finished());
            match accepted {
                Ok((stream, _)) => {
                    if oldest_first.len() >= limits.connections {
                        // What came in the same burst has not had its turn yet. A probe is answered at once, so that it is not the one that has to go.
                        tokio::task::yield_now().await;
                        oldest_first.retain(|connection| !connection.is_finished());
                    }
                    if oldest_first.len() >= limits.connections
                        && let Some(oldest) = oldest_first.pop_front()
                    {
                        oldest.abort();
                    }
                    let connection = self.clone().connection(limits, stream, shutdown.clone());
                    oldest_first.push_back(connections.spawn(connection));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    // The wall's time, whatever the cluster's speed: this is about sockets.
                    let _ = shutdown.cut(tokio::time::sleep(ACCEPT_PAUSE)).await;
                }
            }
        }
        while connections.join_next().await.is_some() {}
    }

    async fn connection(self, limits: Limits, stream: TcpStream, shutdown: Shutdown) {
        let service = service_fn(move |request: Request<Incoming>| {
            let response = self.respond(request.method(), request.uri().path(), request.uri().query());
            async move { Ok::<_, Infallible>(response) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let served = async {
            tokio::select! {
                biased;
                ended = connection.as_mut() => ended,
                () = shutdown.requested() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        };
        match tokio::time::timeout(limits.connection, served).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a connection to the metrics or health port broke"),
            Err(_) => tracing::debug!("a connection to the metrics or health port has lasted too long"),
        }
    }

    /// The answer to one request.
    #[must_use]
    pub fn respond(&self, method: &Method, path: &str, query: Option<&str>) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            return answer(
                StatusCode::METHOD_NOT_ALLOWED,
                "text/plain; charset=utf-8",
                "only GET and HEAD\n",
            );
        }
        let verbose = query.is_some_and(|query| {
            query
                .split('&')
                .any(|part| part.split('=').next() == Some("verbose"))
        });
        let path = path.trim_end_matches('/');
        if let Some(document) = self.documents.iter().find(|one| one.path == path) {
            return answer(StatusCode::OK, document.content_type, (document.write)());
        }
        match (path, &self.metrics, &self.readiness) {
            ("/metrics", Some(metrics), _) => answer(StatusCode::OK, METRICS_TYPE, metrics.render()),
            ("/healthz", _, Some(_)) => text(StatusCode::OK, "ok"),
            ("/readyz", _, Some(readiness)) => ready(readiness, verbose),
            (path, ..) if self.profiling && (path == "/debug/pprof" || path.starts_with("/debug/pprof/")) => {
                text(
                    StatusCode::NOT_IMPLEMENTED,
                    "This program has no Go runtime and serves no pprof profiles. Profile it with perf or another native profiler.\n",
                )
            }
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }
}

/// In the form of the API server's own probes.
fn ready(readiness: &Readiness, verbose: bool) -> Response<Full<Bytes>> {
    let is_ready = readiness.is_ready();
    if is_ready && !verbose {
        return text(StatusCode::OK, "ok");
    }
    let mut body = String::from("[+]ping ok\n");
    for (name, holds) in readiness.conditions() {
        body.push_str(&if holds {
            format!("[+]{name} ok\n")
        } else {
            format!("[-]{name} not ready\n")
        });
    }
    body.push_str(if is_ready {
        "readyz check passed\n"
    } else {
        "readyz check failed\n"
    });
    text(
        if is_ready {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        },
        body,
    )
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    answer(status, "text/plain; charset=utf-8", body)
}

fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static(content_type),
    );
    headers.insert(
        "x-content-type-options",
        header::HeaderValue::from_static("nosniff"),
    );
    response
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use http_body_util::BodyExt;
    use spokeshave_ports::TokioClock;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A deadline for a failure only: what is waited for are events.
    const NEVER: Duration = Duration::from_secs(120);

    fn server() -> HttpServer {
        let clock = TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared();
        let metrics = Metrics::new(clock);
        metrics
            .gauge("karpenter_build_info", "A constant 1.", &[])
            .set(&[], 1.0);
        HttpServer {
            metrics: Some(metrics),
            readiness: Some(Readiness::new()),
            profiling: true,
            documents: vec![Document {
                path: "/shadow",
                content_type: "text/plain; charset=utf-8",
                write: Arc::new(|| "no differences\n".to_owned()),
            }],
        }
    }

    fn get(server: &HttpServer, path: &str) -> (u16, String) {
        let (path, query) = path
            .split_once('?')
            .map_or((path, None), |(path, query)| (path, Some(query)));
        let response = server.respond(&Method::GET, path, query);
        let status = response.status().as_u16();
        let body = response
            .into_body()
            .collect()
            .now_or_never()
            .unwrap()
            .unwrap()
            .to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// P §15.2: /healthz, /readyz and /metrics.
    #[test]
    fn the_paths() {
        let server = server();
        let readiness = server.readiness.clone().unwrap();
        assert_eq!(get(&server, "/healthz"), (200, "ok".into()));
        assert_eq!(get(&server, "/readyz"), (200, "ok".into()));
        readiness.declare("caches synced");
        readiness.set("CRDs served", true);
        let expected = "[+]ping ok\n[+]CRDs served ok\n[-]caches synced not ready\nreadyz check failed\n";
        assert_eq!(get(&server, "/readyz"), (503, expected.into()));
        readiness.set("caches synced", true);
        assert!(
            get(&server, "/readyz?verbose")
                .1
                .ends_with("readyz check passed\n")
        );
        assert!(get(&server, "/metrics").1.contains("karpenter_build_info 1\n"));
        assert_eq!(get(&server, "/debug/pprof/heap").0, 501);
        assert_eq!(get(&server, "/etc/passwd").0, 404);
        assert_eq!(server.respond(&Method::POST, "/metrics", None).status(), 405);
        assert_eq!(
            get(&HttpServer::default(), "/metrics").0,
            404,
            "a port serves only what it is given"
        );
    }

    #[tokio::test]
    async fn it_answers_on_a_socket_and_ends_when_told() {
        let listener = bind(([127, 0, 0, 1], 0).into(), "metrics").await.unwrap();
        let address = listener.local_addr().unwrap();
        let taken = bind(address, "health probes").await.unwrap_err().to_string();
        assert!(
            taken.contains(&format!("cannot listen on {address} for health probes")),
            "{taken}"
        );
        let shutdown = Shutdown::new();
        let serving = tokio::spawn(server().serve(listener, shutdown.clone()));
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("ok"),
            "{answer}"
        );
        // An idle connection does not hold the end up.
        let _idle = tokio::net::TcpStream::connect(address).await.unwrap();
        shutdown.request();
        serving.await.unwrap();
    }

    /// Everything that comes on a connection until its end.
    async fn until_its_end(stream: &mut TcpStream) -> String {
        let mut text = String::new();
        let read = tokio::time::timeout(NEVER, stream.read_to_string(&mut text)).await;
        read.expect("the server closes the connection").unwrap();
        text
    }

    /// The answer to a probe of a client that would go on asking.
    async fn probe(stream: &mut TcpStream) -> String {
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        until_its_end(stream).await
    }

    #[tokio::test]
    async fn p_204_connections_of_others_do_not_take_the_probe_away() {
        let limits = Limits {
            head: NEVER,
            connection: NEVER,
            connections: 2,
        };
        let listener = bind(([127, 0, 0, 1], 0).into(), "health probes").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let serving = tokio::spawn(server().serve_within(limits, listener, shutdown.clone()));
        let mut oldest = TcpStream::connect(address).await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        let mut third = TcpStream::connect(address).await.unwrap();
        let answer = probe(&mut third).await;
        assert!(answer.ends_with("ok"), "the third of two is answered: {answer}");
        assert_eq!(until_its_end(&mut oldest).await, "", "the oldest has made room");
        let answer = probe(&mut second).await;
        assert!(answer.ends_with("ok"), "and no other: {answer}");
        shutdown.request();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn p_204_a_burst_of_connections_takes_no_probe_away() {
        let limits = Limits {
            head: NEVER,
            connection: NEVER,
            connections: 2,
        };
        let listener = bind(([127, 0, 0, 1], 0).into(), "health probes").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut probes = Vec::new();
        for _ in 0..8 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
            request.await.unwrap();
            probes.push(stream);
        }
        // All of them wait when it begins to accept.
        let shutdown = Shutdown::new();
        let serving = tokio::spawn(server().serve_within(limits, listener, shutdown.clone()));
        for (index, stream) in probes.iter_mut().enumerate() {
            let answer = until_its_end(stream).await;
            assert!(answer.ends_with("ok"), "probe {index}: {answer}");
        }
        shutdown.request();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_ends_however_slowly_its_client_asks_or_reads() {
        let limits = Limits {
            head: NEVER,
            connection: Duration::from_millis(1),
            connections: 2,
        };
        let listener = bind(([127, 0, 0, 1], 0).into(), "metrics").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = Shutdown::new();
        let serving = tokio::spawn(server().serve_within(limits, listener, shutdown.clone()));
        let mut idle = TcpStream::connect(address).await.unwrap();
        assert_eq!(until_its_end(&mut idle).await, "");
        shutdown.request();
        serving.await.unwrap();
    }
}
