//! The same Azure over HTTP, for clients that speak nothing else.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use spokeshave_azure_cloud::Request;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::azure::Azure;

/// A larger request is refused.
const LARGEST_BYTES: usize = 4 << 20;
/// Methods that are answered; others are refused.
const METHODS: [&str; 5] = ["GET", "PUT", "PATCH", "POST", "DELETE"];

/// Serves an Azure for as long as it is polled. Its base must be the address at which it is reached.
pub async fn serve(azure: Azure, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if let Ok((stream, _)) = listener.accept().await {
            connections.spawn(connection(azure.clone(), stream));
        }
    }
}

async fn connection(azure: Azure, stream: TcpStream) {
    let service = service_fn(move |request: http::Request<Incoming>| {
        let azure = azure.clone();
        async move { answer(&azure, request).await }
    });
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // A client that goes away is no matter of the server's.
    drop(served.await);
}

fn plain(status: u16, text: &str) -> http::Response<Full<Bytes>> {
    let mut reply = http::Response::new(Full::new(Bytes::from(text.to_owned())));
    *reply.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    reply
}

/// An error ends the connection without reply.
async fn answer(
    azure: &Azure,
    request: http::Request<Incoming>,
) -> Result<http::Response<Full<Bytes>>, String> {
    let (head, body) = request.into_parts();
    let Some(method) = METHODS.into_iter().find(|method| *method == head.method.as_str()) else {
        return Ok(plain(405, "method not allowed"));
    };
    let Ok(body) = Limited::new(body, LARGEST_BYTES).collect().await else {
        return Ok(plain(413, "too large"));
    };
    let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    let request = Request {
        method,
        url: format!("http://server{}", head.uri),
        headers: head.headers.iter().filter_map(header).collect(),
        body: body.to_bytes().to_vec(),
    };
    let reply = azure.answer(&request)?;
    let mut builder = http::Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        builder = builder.header(name, value);
    }
    builder
        .body(Full::new(Bytes::from(reply.body)))
        .map_err(|error| error.to_string())
}
