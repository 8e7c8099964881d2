//! Connections to the API server that have gone silent, as after a firewall has forgotten them: no packet tells that they are lost.
//!
//! Owns how long a connection may be silent, when that is suspicious, and that a watch over a silent one ends as if the server had ended it, so that its watcher
//! goes on from where it was. That is no failure: on a server that sends no bookmarks, nothing may have happened.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use kube::client::Body;
use tower::{BoxError, Layer, Service};

use super::is_watch;

/// How long a connection may say nothing before whoever waits gets an error. The server ends a request within 60 seconds, and on a watch it sends a bookmark
/// about once a minute.
pub(super) const LIMIT: Duration = Duration::from_secs(75);

/// A request that has waited for so long makes the other connections of its pool suspicious. Most are answered within a second, and only lists of large
/// clusters and a server that is overloaded take longer than this.
const LONG: Duration = Duration::from_secs(10);

/// Limits the silence of all connections.
pub(super) fn limit(config: &mut kube::Config) {
    config.read_timeout = Some(LIMIT);
    config.write_timeout = Some(LIMIT);
    // A request over a connection that was idle before has the whole time for its answer.
    config.reset_reader_on_write = true;
}

/// Whether somebody has waited long for an answer over a pool of connections. Clones are about the same pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Suspicion(Arc<AtomicBool>);

impl Suspicion {
    /// A request has waited long.
    pub(super) fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Ends watches that have been silent for too long, and tells of requests that wait long.
#[derive(Clone, Debug)]
pub(super) struct EndSilentWatches {
    suspicion: Suspicion,
}

impl EndSilentWatches {
    /// Requests that wait long raise this.
    pub(super) fn new(suspicion: Suspicion) -> Self {
        Self { suspicion }
    }
}

impl<S> Layer<S> for EndSilentWatches {
    type Service = EndingSilentWatches<S>;

    fn layer(&self, inner: S) -> Self::Service {
        EndingSilentWatches {
            inner,
            suspicion: self.suspicion.clone(),
        }
    }
}

/// A service with [`EndSilentWatches`] around it.
pub(super) struct EndingSilentWatches<S> {
    inner: S,
    suspicion: Suspicion,
}

impl<S, B> Service<Request<Body>> for EndingSilentWatches<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send,
{
    type Response = Response<Answer<B>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let is_watch = is_watch(&request);
        let answer = self.inner.call(request);
        let suspicion = self.suspicion.clone();
        let waits_long = async move {
            tokio::time::sleep(LONG).await;
            suspicion.raise();
            std::future::pending::<Infallible>().await
        };
        Box::pin(async move {
            let answer = tokio::select! {
                biased;
                answer = answer => answer,
                never = waits_long => match never {},
            };
            answer.map(|answer| answer.map(|body| Answer { body, is_watch }))
        })
    }
}

/// The body of an answer.
pub(super) struct Answer<B> {
    body: B,
    is_watch: bool,
}

impl<B> http_body::Body for Answer<B>
where
    B: http_body::Body<Data = Bytes, Error = BoxError> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Err(error)) if self.is_watch && is_silence(&*error) => {
                tracing::debug!(%error, "a watch has been silent for too long and is begun anew");
                Poll::Ready(None)
            }
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether an error comes from a connection that said nothing for too long.
fn is_silence(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |&cause| cause.source())
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::TimedOut)
}
