//! The way from a client to the API server: the checkers see the actor of each request, and writes are logged.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use spokeshave_apiserver::{ResponseBody, Service};
use spokeshave_ports::SharedClock;

use super::asked::Asked;
use crate::invariants::{Actor, Invariants, RequestInfo};

/// What happened in a run, one line each: virtual time, actor, request and answer, faults, and what the scenario did. Clones share it.
#[derive(Clone, Debug)]
pub struct RunLog {
    lines: Option<Arc<Mutex<Vec<u8>>>>,
    clock: SharedClock,
    start: jiff::Timestamp,
}

impl RunLog {
    /// A log that is `kept`, or discarded.
    pub(crate) fn new(clock: SharedClock, kept: bool) -> Self {
        Self {
            lines: kept.then(Arc::default),
            start: clock.now(),
            clock,
        }
    }

    /// Writes a line down.
    pub fn note(&self, line: &str) {
        let Some(lines) = &self.lines else { return };
        let at = self.clock.since(self.start);
        let line = format!("{:>10.3} {line}\n", at.as_secs_f64());
        lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(line.as_bytes());
    }

    /// The whole log.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let lines = self.lines.as_ref();
        lines.map_or_else(Vec::new, |lines| {
            lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
        })
    }

    /// What was written after the first so many bytes.
    pub(crate) fn after(&self, bytes: usize) -> Vec<u8> {
        let Some(lines) = &self.lines else {
            return Vec::new();
        };
        let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.get(bytes..).map(<[u8]>::to_vec).unwrap_or_default()
    }

    /// Whether it is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.lines.is_some()
    }
}

/// Number of requests to the server, except for Lease renewals of kubelets. Clones share it.
///
/// A run that never ends still asks: its requests are what a run can be measured by, whatever the machine and whatever the virtual time.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    requests: spokeshave_watched::Sender<u64>,
    /// Only kept on request.
    detail: Option<Arc<Mutex<Detail>>>,
}

/// What the requests were.
#[derive(Debug, Default)]
struct Detail {
    /// By actor, method and what they were for.
    kinds: BTreeMap<String, u64>,
    /// By operators, each kind once.
    asked: BTreeSet<Asked>,
}

impl Traffic {
    /// A count, with `detail` on request.
    pub(crate) fn new(detail: bool) -> Self {
        Self {
            requests: spokeshave_watched::Sender::default(),
            detail: detail.then(Arc::default),
        }
    }

    fn count(&self, actor: &Actor, method: &http::Method, uri: &http::Uri) {
        if uri.path().contains("/namespaces/kube-node-lease/") {
            return;
        }
        self.requests.send_modify(|requests| *requests += 1);
        let Some(detail) = &self.detail else { return };
        let asked = Asked::of(method, uri);
        let is_watch = asked.as_ref().is_some_and(|asked| asked.verb == "watch");
        let verb = if is_watch { "WATCH" } else { method.as_str() };
        let resource = asked.as_ref().map_or("", |asked| asked.resource.as_str());
        let kind = format!("{actor} {verb} {resource}");
        let mut detail = detail.lock().unwrap_or_else(PoisonError::into_inner);
        *detail.kinds.entry(kind).or_default() += 1;
        if let Actor::Operator(_) = actor {
            detail.asked.extend(asked);
        }
    }

    /// Requests by frequency, most frequent first; none without detail.
    #[must_use]
    pub fn kinds(&self) -> Vec<(String, u64)> {
        let Some(detail) = &self.detail else {
            return Vec::new();
        };
        let detail = detail.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = detail.kinds.iter();
        let mut kinds: Vec<(String, u64)> = kinds.map(|(kind, count)| (kind.clone(), *count)).collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        kinds
    }

    /// What operators have asked for, in-process providers included; nothing without detail.
    #[must_use]
    pub fn asked(&self) -> BTreeSet<Asked> {
        let Some(detail) = &self.detail else {
            return BTreeSet::new();
        };
        let detail = detail.lock().unwrap_or_else(PoisonError::into_inner);
        detail.asked.clone()
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        *self.requests.borrow()
    }

    /// Returns when more than so many requests have been made.
    pub async fn exceeds(&self, limit: u64) {
        // The sender is in `self`, so the wait ends only with a change.
        let _ = self
            .requests
            .subscribe()
            .wait_for(|requests| *requests > limit)
            .await;
    }
}

/// How long the writes of one actor take, drawn from the seed in the order of the requests. Clones share it.
///
/// Without it a burst of writes happens in one instant, and all watchers see the same order: unlike a real cluster, where a burst of
/// evictions is spread over seconds in which the scheduler already places the pods that were recreated first.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    chance: Arc<Mutex<ChaCha8Rng>>,
    longest: Duration,
    clock: SharedClock,
}

impl Pace {
    /// Writes that take up to `longest`; none where they take no time.
    pub(crate) fn new(longest: Duration, chance: ChaCha8Rng, clock: &SharedClock) -> Option<Self> {
        (!longest.is_zero()).then(|| Self {
            chance: Arc::new(Mutex::new(chance)),
            longest,
            clock: clock.clone(),
        })
    }

    async fn wait(&self) {
        let longest = u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX);
        let micros = {
            let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
            chance.random_range(0..=longest)
        };
        self.clock.sleep(Duration::from_micros(micros)).await;
    }
}

/// The server for one actor.
#[derive(Clone, Debug)]
pub struct Observed {
    /// How long writes take; none where they take no time.
    pub(crate) pace: Option<Pace>,
    pub(crate) inner: Service,
    pub(crate) actor: Actor,
    pub(crate) invariants: Invariants,
    pub(crate) log: RunLog,
    pub(crate) traffic: Traffic,
    /// Whether the actor's writes are worth a line.
    pub(crate) logged: bool,
}

impl tower::Service<Request<Body>> for Observed {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(this.serve(request).await) })
    }
}

impl Observed {
    async fn serve(mut self, request: Request<Body>) -> Response<ResponseBody> {
        self.traffic.count(&self.actor, request.method(), request.uri());
        let (parts, body) = request.into_parts();
        // The body is whole before the server sees the request, so the server handles it without waiting.
        let bytes = match body.collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(_) => Bytes::new(),
        };
        let mutating = parts.method != http::Method::GET;
        if mutating && let Some(pace) = &self.pace {
            pace.wait().await;
        }
        let info = RequestInfo {
            actor: self.actor.clone(),
            method: parts.method.as_str().to_owned(),
            path: parts.uri.path().to_owned(),
        };
        let text = (self.logged && mutating && self.log.is_kept()).then(|| {
            format!(
                "{} {} {} {}",
                info.actor,
                info.method,
                parts.uri,
                String::from_utf8_lossy(&bytes)
            )
        });
        let request = Request::from_parts(parts, Full::new(bytes));
        self.invariants.serve(&info, mutating);
        let mut answer = std::pin::pin!(tower::Service::call(&mut self.inner, request));
        let invariants = &self.invariants;
        let mut first = true;
        let answer = std::future::poll_fn(|context| {
            if !std::mem::take(&mut first) {
                invariants.serve(&info, false);
            }
            let polled = answer.as_mut().poll(context);
            invariants.served();
            polled
        })
        .await;
        let Ok(answer) = answer;
        if let Some(text) = text {
            self.log.note(&format!("{text} -> {}", answer.status().as_u16()));
        }
        answer
    }
}
