//! Which requests go through a proxy, and how: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` (Z-058).
//!
//! Owns connections to and through proxies. What the variables mean is `hyper-util`'s, from which the client of AWS has it as well.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderValue, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use spokeshave_provider_common::proxies::is_of_the_machine;
use tokio::net::TcpStream;
use tower::Service;

type BoxError = Box<dyn Error + Send + Sync>;

/// Which proxy a host is asked through, if any.
#[derive(Clone)]
pub(crate) struct Proxies(Arc<Matcher>);

impl Proxies {
    /// As the environment of this process says.
    pub(crate) fn of_environment() -> Self {
        Self::of(Matcher::from_env())
    }

    pub(crate) fn of(rules: Matcher) -> Self {
        Proxies(Arc::new(rules))
    }

    fn for_host_of(&self, destination: &Uri) -> Option<Intercept> {
        let host = destination.host()?;
        if is_of_the_machine(host) {
            return None;
        }
        self.0.intercept(destination)
    }

    /// What the proxy that forwards a request wants to be told with it. One that makes a tunnel is told then.
    pub(crate) fn authorization(&self, destination: &Uri) -> Option<HeaderValue> {
        if !is_forwarded(destination) {
            return None;
        }
        self.for_host_of(destination)?.basic_auth().cloned()
    }
}

/// A request without encryption is one that proxies forward; for others they make a tunnel.
fn is_forwarded(destination: &Uri) -> bool {
    destination.scheme_str() == Some("http")
}

/// Connects to hosts, or to the proxies before them.
#[derive(Clone)]
pub(crate) struct Connector {
    proxies: Proxies,
    direct: HttpConnector,
    to_proxy: HttpsConnector<HttpConnector>,
}

impl Connector {
    /// Proxies are trusted as hosts are.
    pub(crate) fn new(proxies: Proxies, trusted: Arc<ClientConfig>) -> Self {
        let mut direct = HttpConnector::new();
        direct.enforce_http(false);
        Connector {
            proxies,
            to_proxy: HttpsConnector::from((direct.clone(), trusted)),
            direct,
        }
    }

    async fn connect(mut self, destination: Uri) -> Result<Stream, BoxError> {
        let Some(proxy) = self.proxies.for_host_of(&destination) else {
            let inner = MaybeHttpsStream::Http(self.direct.call(destination).await?);
            let is_forwarded = false;
            return Ok(Stream { inner, is_forwarded });
        };
        let is_forwarded = is_forwarded(&destination);
        let connected = if is_forwarded {
            self.to_proxy.call(proxy.uri().clone()).await
        } else {
            let mut tunnel = Tunnel::new(proxy.uri().clone(), self.to_proxy);
            if let Some(authorization) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(authorization.clone());
            }
            tunnel.call(destination).await.map_err(BoxError::from)
        };
        let proxy = proxy.uri().clone();
        let inner = connected.map_err(|cause| Refused { proxy, cause })?;
        Ok(Stream { inner, is_forwarded })
    }
}

/// A proxy that is not reached, or does not let a request through. Its address is without its password.
#[derive(Debug)]
struct Refused {
    proxy: Uri,
    cause: BoxError,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let proxy = &self.proxy;
        write!(
            f,
            "through the proxy {proxy} of HTTPS_PROXY, HTTP_PROXY or ALL_PROXY (check its address and what it lets through, or name the host in NO_PROXY)"
        )
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Stream, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.direct.poll_ready(context).map_err(BoxError::from)
    }

    fn call(&mut self, destination: Uri) -> Self::Future {
        self.clone().connect(destination).boxed()
    }
}

/// A connection, and whether it ends at a proxy that forwards what is asked.
pub(crate) struct Stream {
    inner: MaybeHttpsStream<TokioIo<TcpStream>>,
    is_forwarded: bool,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.inner.connected().proxy(self.is_forwarded)
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
