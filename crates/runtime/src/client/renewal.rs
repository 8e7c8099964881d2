//! A pool of connections that is given up as a whole once a request on one of them waits long: the idle ones may be lost with it, as when a firewall has forgotten
//! all of them, and each would cost the request that takes it [all the time](super::silence) that a silent connection is given.
//!
//! Owns when the pool is replaced. Requests that wait and watches keep their connections, and may yet be answered there. Where a program has the credentials, the
//! pool is never replaced: making one runs the program and waits for it, which may ask a network that is lost, or a person.

use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::MapErr;
use kube::Client;
use kube::client::{Body, ClientBuilder};
use spokeshave_ports::causes;
use tokio::time::Instant;
use tower::{BoxError, Service};

use super::silence::{EndSilentWatches, LIMIT, Suspicion};

/// The requests of a client, each over the pool of the moment.
pub(super) struct Renewing {
    config: kube::Config,
    client: Client,
    suspicion: Suspicion,
    /// When the pool was last replaced, or that was last tried.
    renewed: Option<Instant>,
}

impl Renewing {
    /// With a pool that has no connection yet.
    ///
    /// # Errors
    /// What the configuration names cannot be had, such as a certificate.
    pub(super) fn new(config: kube::Config) -> kube::Result<Self> {
        let suspicion = Suspicion::default();
        Ok(Self {
            client: connected(&config, &suspicion)?,
            config,
            suspicion,
            renewed: None,
        })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Replaces a pool that is suspicious, but no more often than idle connections end by themselves: a server may just be slow.
    fn renew(&mut self) {
        if !self.suspicion.is_raised() || asks_a_program(&self.config) {
            return;
        }
        let now = Instant::now();
        let is_due = self
            .renewed
            .is_none_or(|renewed| now.duration_since(renewed) >= LIMIT);
        if !is_due {
            return;
        }
        self.renewed = Some(now);
        let suspicion = Suspicion::default();
        match connected(&self.config, &suspicion) {
            Ok(client) => {
                tracing::debug!("a request waits long: idle connections are given up, and others are made");
                (self.client, self.suspicion) = (client, suspicion);
            }
            Err(error) => {
                tracing::warn!(error = %causes(&error), "idle connections may be lost, and no others can be made");
            }
        }
    }
}

/// Whether a program has the credentials.
fn asks_a_program(config: &kube::Config) -> bool {
    config.auth_info.exec.is_some() || config.auth_info.auth_provider.is_some()
}

/// What a body could not go on for, without the wrapping of the inner client: the outer one wraps it again.
fn unwrapped(error: kube::Error) -> BoxError {
    match error {
        kube::Error::Service(error) => error,
        other => other.into(),
    }
}

/// A client with a pool of its own.
fn connected(config: &kube::Config, suspicion: &Suspicion) -> kube::Result<Client> {
    let layer = EndSilentWatches::new(suspicion.clone());
    Ok(ClientBuilder::try_from(config.clone())?
        .with_layer(&layer)
        .build())
}

impl Service<Request<Body>> for Renewing {
    type Response = Response<MapErr<Body, fn(kube::Error) -> BoxError>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.renew();
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.client.clone();
        Box::pin(async move {
            let answer = client.send(request).await?;
            Ok(answer.map(|body| body.map_err(unwrapped as fn(kube::Error) -> BoxError)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pool_is_replaced_when_it_is_suspicious_and_not_at_every_request_of_a_slow_server() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let mut requests = Renewing::new(config).unwrap();
        requests.renew();
        assert_eq!(requests.renewed, None, "nothing is suspicious");
        for (seconds, is_replaced) in [(0, true), (10, false), (64, false), (1, true), (74, false)] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            requests.suspicion.raise();
            requests.renew();
            let is_new = !requests.suspicion.is_raised();
            assert_eq!(is_new, is_replaced, "{seconds} s later");
        }
    }

    /// It may hang, and all requests with it.
    #[tokio::test(start_paused = true)]
    async fn a_pool_is_kept_where_a_program_would_be_asked_again() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let mut requests = Renewing::new(config).unwrap();
        let program = json!({"command": "no-such-program"});
        requests.config.auth_info.exec = Some(serde_json::from_value(program).unwrap());
        requests.suspicion.raise();
        requests.renew();
        assert_eq!(requests.renewed, None, "it is not even tried");
    }
}
