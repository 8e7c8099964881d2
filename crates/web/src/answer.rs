//! Answers of the server: a body with headers that let a browser do nothing else with it.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use std::convert::Infallible;

/// What is sent.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const JSON: &str = "application/json";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

/// Nothing from elsewhere, nothing inline, no frame around it.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const ALWAYS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// An answer that is whole.
pub(crate) fn whole(status: StatusCode, kind: &'static str, content: impl Into<Bytes>) -> Response<Body> {
    of(status, kind, body(content))
}

/// A body that is whole.
pub(crate) fn body(content: impl Into<Bytes>) -> Body {
    Full::new(content.into()).boxed_unsync()
}

/// A response with any body; not cacheable by default.
pub(crate) fn of(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Says no, in one line.
pub(crate) fn refusal(status: StatusCode, why: &str) -> Response<Body> {
    whole(status, TEXT, format!("{why}\n"))
}
