//! The layers between a controller and the API server: rate limit, user agent, log and metrics of its requests.
//!
//! Owns the middleware that both a client of a real cluster and one of an in-process server get, and the fence that stops
//! writes of a replica that no longer leads. It never changes a request, except for its `User-Agent`.

mod renewal;
mod silence;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, header};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use spokeshave_ports::SharedClock;
use tower::{BoxError, Layer, Service};

use self::renewal::Renewing;
use crate::backoff::TokenBucket;
use crate::lease::{Epoch, Leadership};
use crate::metrics::{Counter, Histogram, Metrics, exponential_buckets};

/// Additional handling of requests by a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Requests per second, sustained, and burst (P §15.1); `None` for no limit, as for leader election.
    pub rate: Option<(f64, u32)>,
    /// Value of `User-Agent`.
    pub user_agent: String,
    /// The log of requests, in the order in which they are sent.
    pub log: Option<RequestLog>,
    /// Metrics of requests.
    pub metrics: Option<Metrics>,
}

impl Default for ClientOptions {
    /// Upstream's 200 a second with a burst of 300, as `karpenter/<version>` (P §15.2).
    fn default() -> Self {
        Self {
            rate: Some((200.0, 300)),
            user_agent: concat!("karpenter/", env!("CARGO_PKG_VERSION")).to_owned(),
            log: None,
            metrics: None,
        }
    }
}

/// A client of a real cluster. Where the connection falls silent, a request fails and a watch ends after a little more than a minute; requests that begin ten
/// seconds after the first one that is not answered go over another connection, unless a program has the credentials.
pub fn from_config(
    config: kube::Config,
    options: &ClientOptions,
    clock: SharedClock,
) -> kube::Result<Client> {
    // Retries are up to the controllers: a rejected eviction has its own back-off and is reported, and a Lease cannot wait.
    let mut config = config;
    config.default_retry = false;
    silence::limit(&mut config);
    let requests = Renewing::new(config)?;
    let namespace = requests.client().default_namespace().to_owned();
    let valid_until = *requests.client().valid_until();
    Ok(ClientBuilder::new(requests, namespace)
        .with_valid_until(valid_until)
        .with_layer(&Middleware::new(options, clock))
        .build())
}

/// A client of a server in this process, or of anything else that answers HTTP requests.
pub fn from_service<S, B>(
    service: S,
    default_namespace: &str,
    options: &ClientOptions,
    clock: SharedClock,
) -> Client
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Client::new(Middleware::new(options, clock).layer(service), default_namespace)
}

/// The same client for one term of leadership: once the term is over, writes fail with
/// [`NotLeader`](crate::NotLeader) instead of being sent, also those that were waiting for their turn. Reads pass.
#[must_use]
pub fn fenced(client: Client, leadership: Leadership, epoch: Epoch) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, leadership, epoch) = (client.clone(), leadership.clone(), epoch.clone());
        async move {
            if !is_write(request.method()) {
                return client.send(request).await.map_err(BoxError::from);
            }
            leadership.check(&epoch)?;
            tokio::select! {
                biased;
                // Dropping the request takes it out of the client's queue if it has not been sent.
                () = leadership.lost(&epoch) => Err(crate::NotLeader::NotLeading.into()),
                answer = client.send(request) => answer.map_err(BoxError::from),
            }
        }
    });
    Client::new(service, namespace)
}

fn is_write(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Whether the answer to a read goes on until the server ends it.
fn is_watch<B>(request: &Request<B>) -> bool {
    let asks = |query: &str| {
        query
            .split('&')
            .any(|parameter| matches!(parameter, "watch=true" | "watch=1"))
    };
    *request.method() == Method::GET && request.uri().query().is_some_and(asks)
}

/// Everything that a client sent: method, path with query, body; one line each, in order. Shared by clones.
#[derive(Clone, Default)]
pub struct RequestLog {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl fmt::Debug for RequestLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestLog")
            .field("bytes", &self.lock().len())
            .finish()
    }
}

impl RequestLog {
    /// An empty log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The whole log.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().clone()
    }

    /// The log as text; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock()).into_owned()
    }

    /// Forgets what was logged.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn record(&self, request: &Request<Body>) {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        // Bodies of a Kubernetes client are whole in memory; one that streams is not read, only marked.
        let body = match request
            .body()
            .try_clone()
            .map(|body| body.collect_bytes().now_or_never())
        {
            Some(Some(Ok(bytes))) => bytes,
            _ => Bytes::from_static(b"<stream>"),
        };
        let mut log = self.lock();
        log.extend_from_slice(format!("{} {path} ", request.method()).as_bytes());
        log.extend_from_slice(&body);
        log.push(b'\n');
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tower layer that does what [`ClientOptions`] say.
#[derive(Clone, Debug)]
pub struct Middleware {
    bucket: Option<Arc<Mutex<TokenBucket>>>,
    user_agent: Option<HeaderValue>,
    log: Option<RequestLog>,
    metrics: Option<RequestMetrics>,
    clock: SharedClock,
}

impl Middleware {
    /// A layer; all services that it wraps share one rate.
    #[must_use]
    pub fn new(options: &ClientOptions, clock: SharedClock) -> Self {
        let bucket = options
            .rate
            .map(|(rate, burst)| Arc::new(Mutex::new(TokenBucket::new(rate, burst))));
        Self {
            bucket,
            user_agent: HeaderValue::from_str(&options.user_agent)
                .ok()
                .filter(|value| !value.is_empty()),
            log: options.log.clone(),
            metrics: options.metrics.as_ref().map(RequestMetrics::new),
            clock,
        }
    }
}

impl<S> Layer<S> for Middleware {
    type Service = MiddlewareService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        MiddlewareService {
            inner,
            layer: self.clone(),
            turn: Turn::None,
        }
    }
}

/// A service with [`Middleware`] around it.
pub struct MiddlewareService<S> {
    inner: S,
    layer: Middleware,
    turn: Turn,
}

impl<S> fmt::Debug for MiddlewareService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MiddlewareService")
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}

/// Position of the next request in the rate limit.
enum Turn {
    None,
    Waiting(BoxFuture<'static, ()>),
    Granted,
}

impl<S> MiddlewareService<S> {
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut self.turn {
                Turn::Granted => return Poll::Ready(()),
                Turn::Waiting(sleep) => {
                    ready!(sleep.poll_unpin(context));
                    self.turn = Turn::Granted;
                }
                Turn::None => {
                    let wait = self.layer.bucket.as_ref().map(|bucket| {
                        let now = self.layer.clock.now();
                        bucket.lock().unwrap_or_else(PoisonError::into_inner).reserve(now)
                    });
                    self.turn = match wait {
                        Some(wait) if !wait.is_zero() => Turn::Waiting(self.layer.clock.sleep(wait)),
                        _ => Turn::Granted,
                    };
                }
            }
        }
    }
}

impl<S, B> Service<Request<Body>> for MiddlewareService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.poll_turn(context));
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        self.turn = Turn::None;
        if let Some(user_agent) = &self.layer.user_agent {
            request
                .headers_mut()
                .entry(header::USER_AGENT)
                .or_insert_with(|| user_agent.clone());
        }
        if let Some(log) = &self.layer.log {
            log.record(&request);
        }
        let Some(metrics) = self.layer.metrics.clone() else {
            return Box::pin(self.inner.call(request));
        };
        let described = Described::of(&request);
        let (clock, start) = (self.layer.clock.clone(), self.layer.clock.now());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().map_or("<error>".to_owned(), |response| {
                response.status().as_u16().to_string()
            });
            metrics.observe(&described, &code, clock.since(start).as_secs_f64());
            answer
        })
    }
}

/// `client_go_request_*` (P §16).
#[derive(Clone, Debug)]
struct RequestMetrics {
    duration: Histogram,
    total: Counter,
}

impl RequestMetrics {
    fn new(metrics: &Metrics) -> Self {
        Self {
            duration: metrics.histogram(
                "client_go_request_duration_seconds",
                "Request latency in seconds. Broken down by verb, group, version, kind, and subresource.",
                &["verb", "group", "version", "kind", "subresource"],
                &exponential_buckets(0.001, 1.5, 20),
            ),
            total: metrics.counter(
                "client_go_request_total",
                "Number of HTTP requests, partitioned by status code and method.",
                &["code", "method"],
            ),
        }
    }

    fn observe(&self, request: &Described, code: &str, seconds: f64) {
        self.total.inc(&[code, &request.method]);
        // A watch lasts as long as it likes: its duration says nothing about the server.
        if let Some(target) = &request.target
            && request.verb != "WATCH"
        {
            let labels = [
                request.verb,
                &target.group,
                &target.version,
                &target.resource,
                &target.subresource,
            ];
            self.duration.observe(&labels, seconds);
        }
    }
}

/// The operation of a request.
#[derive(Debug, PartialEq, Eq)]
struct Described {
    method: String,
    verb: &'static str,
    target: Option<Target>,
}

/// The target of a request, from its path.
#[derive(Debug, Default, PartialEq, Eq)]
struct Target {
    group: String,
    version: String,
    resource: String,
    has_name: bool,
    subresource: String,
}

impl Described {
    fn of<B>(request: &Request<B>) -> Self {
        let target = Target::parse(request.uri().path());
        let has_name = target.as_ref().is_some_and(|target| target.has_name);
        let verb = match request.method().as_str() {
            "GET" if is_watch(request) => "WATCH",
            "GET" if has_name => "GET",
            "GET" => "LIST",
            "POST" => "CREATE",
            "PUT" => "UPDATE",
            "PATCH" => "PATCH",
            "DELETE" if has_name => "DELETE",
            "DELETE" => "DELETECOLLECTION",
            _ => "OTHER",
        };
        Self {
            method: request.method().as_str().to_owned(),
            verb,
            target,
        }
    }
}

impl Target {
    /// `/api/v1/namespaces/x/pods/y/eviction`, `/apis/<group>/<version>/…`; `None` for anything else.
    fn parse(path: &str) -> Option<Self> {
        let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
        let group = match parts.next()? {
            "api" => String::new(),
            "apis" => parts.next()?.to_owned(),
            _ => return None,
        };
        let version = parts.next()?.to_owned();
        let mut rest: Vec<&str> = parts.collect();
        // A namespace in front, unless the request is about the namespace itself or its subresource.
        if rest.len() > 2 && rest[0] == "namespaces" && !matches!(rest[2], "status" | "finalize") {
            rest.drain(..2);
        }
        let text = |index: usize| rest.get(index).map(|part| (*part).to_owned());
        Some(Self {
            group,
            version,
            resource: text(0)?,
            has_name: rest.len() > 1,
            subresource: text(2).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests;
