//! The way of the operator to the API server: what it evicts, and how often it writes, is told to the chronicle.
//!
//! Owns which requests are evictions and which are writes. It changes no request and no answer.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use kube::client::Body;
use spokeshave_apiserver::{ResponseBody, Service};

use crate::chronicle::Chronicle;

/// The server for the operator.
#[derive(Clone, Debug)]
pub(crate) struct OperatorWay {
    pub(crate) inner: Service,
    pub(crate) chronicle: Arc<Chronicle>,
}

impl tower::Service<Request<Body>> for OperatorWay {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if is_write(request.method()) {
            self.chronicle.operator_writes();
        }
        let pod = evicted(request.method(), request.uri().path());
        if let Some(pod) = &pod {
            self.chronicle.eviction_begins(pod);
        }
        let answer = tower::Service::call(&mut self.inner, request);
        let chronicle = self.chronicle.clone();
        Box::pin(async move {
            let answer = answer.await;
            if let (Some(pod), Ok(answer)) = (&pod, &answer) {
                chronicle.eviction_ends(pod, answer.status().as_u16());
            }
            answer
        })
    }
}

/// Whether a request asks for more than to read.
fn is_write(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method)
}

/// Namespace and name of the pod that a request evicts or deletes.
fn evicted(method: &Method, path: &str) -> Option<(String, String)> {
    let rest = path.strip_prefix("/api/v1/namespaces/")?;
    let parts: Vec<&str> = rest.split('/').collect();
    let (namespace, name) = match parts[..] {
        [namespace, "pods", name, "eviction"] if method == Method::POST => (namespace, name),
        [namespace, "pods", name] if method == Method::DELETE => (namespace, name),
        _ => return None,
    };
    Some((namespace.to_owned(), name.to_owned()))
}
