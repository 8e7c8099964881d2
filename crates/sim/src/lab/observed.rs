//! The way from a client to the API server: who asks is told to the checkers, and writes go into the run's log.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::client::Body;
use spokeshave_apiserver::{ResponseBody, Service};
use spokeshave_ports::SharedClock;

use crate::invariants::{Actor, Invariants, RequestInfo};

/// What happened in a run, one line each: virtual time, actor, request and answer, faults, and what the scenario did. Clones share it.
#[derive(Clone, Debug)]
pub struct RunLog {
    lines: Option<Arc<Mutex<Vec<u8>>>>,
    clock: SharedClock,
    start: jiff::Timestamp,
}

impl RunLog {
    /// A log that is `kept`, or one that nobody will read.
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

    /// Whether anybody will read it.
    pub(crate) fn is_kept(&self) -> bool {
        self.lines.is_some()
    }
}

/// How many requests the server has got, from everybody. Clones share it.
///
/// A run that never ends still asks: its requests are what a run can be measured by, whatever the machine and whatever the virtual time.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    requests: tokio::sync::watch::Sender<u64>,
}

impl Traffic {
    fn count(&self) {
        self.requests.send_modify(|requests| *requests += 1);
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        *self.requests.borrow()
    }

    /// Returns when more than so many requests have been made.
    pub async fn exceeds(&self, limit: u64) {
        // The sender lives in `self`: the wait has no other end.
        let _ = self
            .requests
            .subscribe()
            .wait_for(|requests| *requests > limit)
            .await;
    }
}

/// The server for one actor.
#[derive(Clone, Debug)]
pub struct Observed {
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
        self.traffic.count();
        let (parts, body) = request.into_parts();
        // The body is whole before the server sees the request, so that the server serves it in one go.
        let bytes = match body.collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(_) => Bytes::new(),
        };
        let mutating = parts.method != http::Method::GET;
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
