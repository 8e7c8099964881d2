//! Replies in ARM's shape.

use serde_json::{Value, json};
use spokeshave_azure_cloud::Response;

/// A reply with a body.
pub(crate) fn ok(status: u16, body: &Value) -> Response {
    Response {
        status,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body.to_string().into_bytes(),
    }
}

/// A refusal.
pub(crate) fn refused(status: u16, code: &str, message: &str) -> Response {
    ok(status, &json!({"error": {"code": code, "message": message}}))
}

/// A refusal of one request of too many.
pub(crate) fn throttled(seconds: i64) -> Response {
    let reply = refused(429, "TooManyRequests", "Too many requests.");
    with(reply, "retry-after", &seconds.to_string())
}

/// What does not exist.
pub(crate) fn not_found(id: &str) -> Response {
    refused(
        404,
        "ResourceNotFound",
        &format!("The Resource '{id}' was not found."),
    )
}

/// The same reply with one more header.
pub(crate) fn with(mut reply: Response, name: &str, value: &str) -> Response {
    reply.headers.push((name.to_owned(), value.to_owned()));
    reply
}

/// One page of a list. The next one's link is the request's own path and query below `base`, with the place to go on.
pub(crate) fn page(
    entries: &[Value],
    (base, url): (&str, &str),
    size: usize,
    (items, link): (&str, &str),
) -> Response {
    let marker = "skiptoken=";
    let below = url.split_once("://").map_or(url, |(_, rest)| rest);
    let below = below.find('/').map_or("/", |start| &below[start..]);
    let (before, skip) = match below.split_once(marker) {
        Some((before, rest)) => (before.to_owned(), rest.parse().unwrap_or(0)),
        None => (format!("{below}&$"), 0),
    };
    let rest: &[Value] = entries.get(skip..).unwrap_or_default();
    let shown = &rest[..rest.len().min(size)];
    let mut body = json!({items: shown});
    if rest.len() > size {
        body[link] = json!(format!("{base}{before}{marker}{}", skip + size));
    }
    ok(200, &body)
}
