//! An operator that dies at a chosen write: the write is carried out, and nothing that it sends afterwards arrives.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::{Request, Response};
use kube::client::Body;
use spokeshave_apiserver::ResponseBody;
use tower::BoxError;

use super::observed::Observed;

/// How many writes are left. Clones share it.
#[derive(Clone, Debug)]
pub struct Lifeline {
    left: Arc<AtomicU64>,
    writes: u64,
}

impl Lifeline {
    pub(crate) fn new(writes: u64) -> Self {
        Self {
            left: Arc::new(AtomicU64::new(writes)),
            writes,
        }
    }

    /// Whether the last write has been made.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Writes that were made.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.writes - self.left.load(Ordering::Relaxed)
    }

    fn passes(&self, write: bool) -> bool {
        if !write {
            return !self.is_cut();
        }
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }
}

/// A way that ends.
#[derive(Clone, Debug)]
pub(crate) struct Mortal {
    pub(crate) inner: Observed,
    pub(crate) lifeline: Lifeline,
}

impl tower::Service<Request<Body>> for Mortal {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut this = self.clone();
        Box::pin(async move {
            // An event changes nothing: a death after it is one after the write before it.
            let write = request.method() != http::Method::GET && !request.uri().path().contains("/events");
            if !this.lifeline.passes(write) {
                return Err(std::io::Error::other("the operator was killed").into());
            }
            let Ok(answer) = tower::Service::call(&mut this.inner, request).await;
            Ok(answer)
        })
    }
}
