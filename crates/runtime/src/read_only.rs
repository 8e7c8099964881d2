//! A client that cannot change anything: whatever is not a get, a list or a watch fails here and is never sent.
//!
//! Owns the refusal only. What reads through it need not know.

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use tower::BoxError;

/// A request that would change something was asked of a client that only reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{method} {path} is not sent: this client only reads")]
pub struct WriteRefused {
    /// HTTP method.
    pub method: String,
    /// Path of the request.
    pub path: String,
}

/// The same client for reading only. Every other method than GET fails with [`WriteRefused`] in this process.
#[must_use]
pub fn read_only(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            if request.method() != Method::GET {
                return Err(BoxError::from(WriteRefused {
                    method: request.method().to_string(),
                    path: request.uri().path().to_owned(),
                }));
            }
            client.send(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::Response;
    use http_body_util::Full;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube::Api;
    use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams};
    use serde_json::json;
    use spokeshave_ports::TokioClock;

    use super::*;
    use crate::client::{ClientOptions, RequestLog, from_service};

    #[tokio::test(start_paused = true)]
    async fn only_reads_are_sent() {
        let log = RequestLog::new();
        let options = ClientOptions {
            log: Some(log.clone()),
            ..ClientOptions::default()
        };
        let answer = tower::service_fn(|_: Request<Body>| async {
            let body =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}).to_string();
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body))))
        });
        let clock = TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared();
        let client = read_only(from_service(answer, "default", &options, clock));
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let pods: Api<Pod> = Api::default_namespaced(client);
        let patch = Patch::Merge(json!({"data": {"a": "b"}}));
        let refused = [
            maps.create(&PostParams::default(), &ConfigMap::default())
                .await
                .err(),
            maps.patch("a", &PatchParams::default(), &patch).await.err(),
            maps.replace("a", &PostParams::default(), &ConfigMap::default())
                .await
                .err(),
            maps.delete("a", &DeleteParams::default()).await.err(),
            pods.evict("a", &EvictParams::default()).await.err(),
        ];
        for error in refused {
            let error = error.expect("a write is refused");
            assert!(
                matches!(&error, kube::Error::Service(error) if error.is::<WriteRefused>()),
                "{error:?}"
            );
        }
        assert_eq!(log.text(), "", "nothing was sent");
        maps.get("a").await.expect("a read");
        assert_eq!(log.text().lines().count(), 1);
    }
}
