//! A gate before the API server: it refuses evictions, makes writes stumble and take their time, holds watches, and can be shut.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};

/// A layer between an operator and the API server: rejects some evictions.
#[derive(Clone, Default)]
pub struct Gate {
    /// Pods whose eviction is answered with this status.
    pub refused: Arc<Mutex<BTreeMap<String, u16>>>,
    /// Paths that contain one of these texts never get an answer.
    pub silent: Arc<Mutex<Vec<&'static str>>>,
    /// When off, nothing passes.
    pub cut: Arc<AtomicBool>,
    /// The API server has nothing of this group and version, such as `resource.k8s.io/v1`.
    pub unserved: Arc<Mutex<Option<&'static str>>>,
    /// Nobody may ask which of our kinds there are.
    pub hides_kinds: Arc<AtomicBool>,
    /// So many writes to paths that contain a text are answered with a status.
    pub stumbles: Arc<Mutex<Vec<(&'static str, u16, u32)>>>,
    /// Watches of paths that end with one of these stall.
    pub still: Arc<Mutex<BTreeSet<&'static str>>>,
    /// The API server takes this long for each write to a path that ends with the text.
    pub slow: Arc<Mutex<Option<(&'static str, Duration)>>>,
    /// The answer to each write to a path that ends with the text comes so long after the write.
    pub late: Arc<Mutex<Option<(String, Duration)>>>,
    /// The server carries out each write whose path contains all the parts between `*`, and nobody hears of it.
    pub lost: Arc<Mutex<Option<&'static str>>>,
    /// The lists of the pods of a node.
    pub lists: Arc<Lists>,
}

/// How lists of the pods of a node are answered.
#[derive(Default)]
pub struct Lists {
    /// Each takes five seconds.
    pub are_slow: AtomicBool,
    /// Each has a pod that cannot be read.
    pub are_spoilt: AtomicBool,
    under_way: AtomicUsize,
    /// How many were under way at once, at most.
    pub most_at_once: AtomicUsize,
}

impl Lists {
    /// Takes its time, and gives the answer if it is not the server's.
    async fn answer(&self) -> Option<http::Response<AnswerBody>> {
        let under_way = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_at_once.fetch_max(under_way, Ordering::Relaxed);
        if self.are_slow.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        let odd =
            json!({"metadata": {"name": "odd", "namespace": "default"}, "spec": {"containers": "perhaps"}});
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [odd]});
        let is_spoilt = self.are_spoilt.load(Ordering::Relaxed);
        is_spoilt.then(|| response(200, &list))
    }
}

#[derive(Clone)]
pub struct Gated<S> {
    pub inner: S,
    pub gate: Gate,
}

impl<S> tower::Service<http::Request<kube::client::Body>> for Gated<S>
where
    S: tower::Service<http::Request<kube::client::Body>> + Clone + Send + 'static,
    S::Response: IntoAnswer,
    S::Future: Send + 'static,
    S::Error: std::fmt::Debug,
{
    type Response = http::Response<AnswerBody>;
    type Error = std::io::Error;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<http::Response<AnswerBody>, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), std::io::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<kube::client::Body>) -> Self::Future {
        let cut = self.gate.cut.load(Ordering::Relaxed);
        let write = request.method() != http::Method::GET;
        let path = request.uri().path();
        let stumble = if write { self.gate.stumble(path) } else { None };
        let refused = self.gate.refusal(path).or(stumble);
        let refused = refused.or_else(|| self.gate.hidden(path));
        let refused = refused.or_else(|| self.gate.unknown(path));
        let silent = self
            .gate
            .silent
            .lock()
            .unwrap()
            .iter()
            .any(|text| path.contains(text));
        let latency = if write { self.gate.latency(path) } else { None };
        let delay = if write { self.gate.delay(path) } else { None };
        let is_lost = write && self.gate.loses(path);
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.contains("watch=true");
        let lists_node = !is_watch && query.contains("spec.nodeName");
        let watched = is_watch.then(|| path.to_owned());
        let gate = self.gate.clone();
        let mut inner = self.inner.clone();
        Box::pin(async move {
            if silent {
                std::future::pending::<()>().await;
            }
            if cut {
                return Err(std::io::Error::other("the network is cut"));
            }
            if let Some(answer) = refused {
                return Ok(answer);
            }
            if let Some(latency) = latency {
                tokio::time::sleep(latency).await;
            }
            if lists_node && let Some(answer) = gate.lists.answer().await {
                return Ok(answer);
            }
            let answer = inner.call(request).await;
            let answer = answer
                .map_err(|error| std::io::Error::other(format!("{error:?}")))?
                .into_answer();
            if let Some(delay) = delay {
                tokio::time::sleep(delay).await;
            }
            if is_lost {
                return Err(std::io::Error::other("the connection is cut"));
            }
            Ok(match watched {
                Some(path) => gate.held(path, answer),
                None => answer,
            })
        })
    }
}

fn answer(code: u16, reason: &str, message: &str) -> http::Response<AnswerBody> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason, "message": message,
    });
    response(code, &body)
}

fn response(code: u16, body: &Value) -> http::Response<AnswerBody> {
    let response = http::Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .body(body.to_string());
    response.unwrap().into_answer()
}

pub type AnswerBody = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, tower::BoxError>;

/// Any response as one of one type.
pub trait IntoAnswer {
    fn into_answer(self) -> http::Response<AnswerBody>;
}

impl<B> IntoAnswer for http::Response<B>
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError> + 'static,
{
    fn into_answer(self) -> http::Response<AnswerBody> {
        self.map(|body| body.map_err(Into::into).boxed_unsync())
    }
}

impl Gate {
    /// The next writes fail whose path contains all the parts between `*`.
    pub fn trip(&self, path: &'static str, status: u16, times: u32) {
        self.stumbles.lock().unwrap().push((path, status, times));
    }

    /// How long a write to this path takes.
    fn latency(&self, path: &str) -> Option<Duration> {
        let slow = *self.slow.lock().unwrap();
        slow.filter(|(end, _)| path.ends_with(end)).map(|(_, long)| long)
    }

    /// How long after a write to this path its answer comes.
    fn delay(&self, path: &str) -> Option<Duration> {
        let late = self.late.lock().unwrap();
        let late = late.as_ref().filter(|(end, _)| path.ends_with(end.as_str()));
        late.map(|(_, long)| *long)
    }

    /// Whether the answer to a write to this path is lost.
    fn loses(&self, path: &str) -> bool {
        let lost = *self.lost.lock().unwrap();
        lost.is_some_and(|parts| parts.split('*').all(|part| path.contains(part)))
    }

    /// A watch whose events are delayed while it is stalled.
    fn held(&self, path: String, answer: http::Response<AnswerBody>) -> http::Response<AnswerBody> {
        let still = self.still.clone();
        let (parts, body) = answer.into_parts();
        let frames = futures::stream::unfold(body, move |mut body| {
            let (still, path) = (still.clone(), path.clone());
            async move {
                let frame = body.frame().await?;
                while still.lock().unwrap().iter().any(|end| path.ends_with(end)) {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Some((frame, body))
            }
        });
        http::Response::from_parts(parts, http_body_util::StreamBody::new(frames).boxed_unsync())
    }

    /// Every injected failure occurred.
    pub fn assert_tripped(&self) {
        let stumbles = self.stumbles.lock().unwrap();
        assert!(
            stumbles.iter().all(|(.., left)| *left == 0),
            "every failure was met: {stumbles:?}"
        );
    }

    pub fn stumble(&self, path: &str) -> Option<http::Response<AnswerBody>> {
        let mut stumbles = self.stumbles.lock().unwrap();
        let (_, code, left) = stumbles
            .iter_mut()
            .find(|(parts, _, left)| *left > 0 && parts.split('*').all(|part| path.contains(part)))?;
        *left -= 1;
        let reason = if *code == 409 { "Conflict" } else { "InternalError" };
        Some(answer(*code, reason, "stumbled"))
    }

    fn hidden(&self, path: &str) -> Option<http::Response<AnswerBody>> {
        let is_hidden = self.hides_kinds.load(Ordering::Relaxed) && path == "/apis/karpenter.sh/v1";
        is_hidden.then(|| answer(403, "Forbidden", "system:discovery is gone"))
    }

    fn unknown(&self, path: &str) -> Option<http::Response<AnswerBody>> {
        let unserved = (*self.unserved.lock().unwrap())?;
        let below = path.strip_prefix("/apis/")?.strip_prefix(unserved)?;
        let is_of = below.is_empty() || below.starts_with('/');
        is_of.then(|| {
            answer(
                404,
                "NotFound",
                "the server could not find the requested resource",
            )
        })
    }

    pub fn refusal(&self, path: &str) -> Option<http::Response<AnswerBody>> {
        let pod = path.strip_suffix("/eviction")?.rsplit('/').next()?;
        let code = *self.refused.lock().unwrap().get(pod)?;
        let message = format!("admission webhook \"guard.example.com\" denied the request: {pod} is holy");
        Some(answer(code, "Forbidden", &message))
    }
}
