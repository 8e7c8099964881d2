//! The tower `Service`: from an HTTP request to its handler, and from an answer to HTTP.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::StreamExt as _;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::Value;

use crate::error::ApiError;
use crate::fields::packed;
use crate::store::state::ApiServer;
use crate::verbs::answer::Answer;
use crate::verbs::proxy;
use crate::wire::accept::{self, Encoding};
use crate::wire::request::{MAX_BODY_BYTES, Request, is_true, parse_query};

/// Most that is read of a body that is refused for its size.
const MAX_DRAINED_BYTES: usize = 64 * 1024 * 1024;
/// What everybody may read, as by the role `system:public-info-viewer`: probes and load balancers have no token.
const PUBLIC: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];

static DATES: DateTimePrinter = DateTimePrinter::new();

/// Body of an answer.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// The server as a tower service. Clones share the server.
#[derive(Debug, Clone)]
pub struct Service {
    server: Arc<ApiServer>,
    token: Option<Arc<str>>,
}

impl ApiServer {
    /// The server for clients in this process: no token is required.
    #[must_use]
    pub fn service(self: &Arc<Self>) -> Service {
        Service {
            server: self.clone(),
            token: None,
        }
    }

    /// The server for clients on the network.
    pub(crate) fn guarded_service(self: &Arc<Self>) -> Service {
        Service {
            server: self.clone(),
            token: self.config.token.as_deref().map(Arc::from),
        }
    }
}

impl<B> tower::Service<http::Request<B>> for Service
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = http::Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let mut response = service.answer(request).await;
            if let Some(date) = service.date() {
                response.headers_mut().insert(http::header::DATE, date);
            }
            Ok(response)
        })
    }
}

impl Service {
    /// The `Date` of an answer (RFC 9110 section 6.6.1) by the cluster's clock, from which clients learn its time.
    fn date(&self) -> Option<http::HeaderValue> {
        let text = DATES.timestamp_to_rfc9110_string(&self.server.now()).ok()?;
        http::HeaderValue::try_from(text).ok()
    }

    /// Whether the request has the token, if one is needed for it. Another token is refused everywhere.
    fn admits(&self, request: &http::request::Parts) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let header = request.headers.get(http::header::AUTHORIZATION);
        let header = header.and_then(|value| value.to_str().ok());
        match header.and_then(bearer_token) {
            Some(sent) => sent == &**token,
            None => request.method == http::Method::GET && PUBLIC.contains(&request.uri.path()),
        }
    }

    async fn answer<B>(&self, request: http::Request<B>) -> http::Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        if !self.admits(&parts) {
            return error_response(&ApiError::new(401, "Unauthorized", "Unauthorized"));
        }
        let body = match read_body(body).await {
            Ok(body) => body,
            Err(error) => return error_response(&error),
        };
        let header = |name| {
            parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        let content_type = header(http::header::CONTENT_TYPE)
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned();
        let query = parse_query(parts.uri.query().unwrap_or_default());
        let watch = query.get("watch").is_some_and(|value| is_true(value));
        let accepted = accept::resource(header(http::header::ACCEPT), watch);
        let request = Request {
            method: parts.method.as_str().to_owned(),
            path: parts.uri.path().to_owned(),
            query,
            accept: header(http::header::ACCEPT).to_owned(),
            form: accepted.map(|(form, _)| form),
            content_type,
            user_agent: header(http::header::USER_AGENT).to_owned(),
            body,
        };
        match self.server.handle(&request) {
            Ok(Answer::Forward(address, path)) => forwarded(address, &path).await,
            Ok(answer) => match accepted {
                Some((_, Encoding::Yaml)) => self.respond(in_yaml(answer)),
                _ => self.respond(answer),
            },
            Err(error) => error_response(&error),
        }
    }

    fn respond(&self, answer: Answer) -> http::Response<ResponseBody> {
        match answer {
            Answer::Json(code, value, warnings) => {
                with_warnings(full(code, "application/json", encode(&value)), &warnings)
            }
            Answer::Encoded(code, bytes, warnings) => {
                with_warnings(full(code, "application/json", bytes), &warnings)
            }
            Answer::Typed(content_type, value) => full(
                200,
                content_type,
                serde_json::to_vec(&value).unwrap_or_default().into(),
            ),
            Answer::Bytes(content_type, bytes) => full(200, content_type, bytes),
            Answer::Yaml(code, text, warnings) => {
                with_warnings(full(code, "application/yaml", text.into()), &warnings)
            }
            Answer::Forward(address, _) => error_response(&ApiError::new(
                500,
                "InternalError",
                format!("{address} is asked where there is time to wait for it"),
            )),
            Answer::Text(code, text) => full(code, "text/plain; charset=utf-8", text.into()),
            Answer::Watch(request) => {
                let stream = request
                    .stream(self.server.clone())
                    .map(|bytes| Ok(Frame::data(bytes)));
                let mut response = http::Response::new(StreamBody::new(stream).boxed_unsync());
                response.headers_mut().insert(
                    http::header::CONTENT_TYPE,
                    http::HeaderValue::from_static("application/json"),
                );
                response
            }
        }
    }
}

/// The token of an `Authorization` header, whose scheme may be written in any case (RFC 9110 section 11.1).
fn bearer_token(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token)
}

/// Reads a body. One that is too large is still read to its end, within limits, and discarded: a client that is still sending when the
/// connection closes would not see the answer.
async fn read_body<B>(body: B) -> Result<Bytes, ApiError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut body = std::pin::pin!(body);
    let (mut first, mut read) = (Bytes::new(), Vec::new());
    let mut length = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let error: Box<dyn std::error::Error + Send + Sync> = error.into();
            ApiError::bad_request(format!("the body of the request could not be read: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length > MAX_DRAINED_BYTES {
            break;
        } else if length > MAX_BODY_BYTES {
            (first, read) = (Bytes::new(), Vec::new());
        } else if first.is_empty() {
            first = data;
        } else {
            // Bodies mostly come in one piece, which is not copied.
            if read.is_empty() {
                read.extend_from_slice(&first);
            }
            read.extend_from_slice(&data);
        }
    }
    if length > MAX_BODY_BYTES {
        let message = format!("Request entity too large: limit is {MAX_BODY_BYTES}");
        return Err(ApiError::new(413, "RequestEntityTooLarge", message));
    }
    Ok(if read.is_empty() { first } else { read.into() })
}

/// What a program on this machine answers.
async fn forwarded(address: std::net::SocketAddr, path: &str) -> http::Response<ResponseBody> {
    match proxy::forward(address, path).await {
        Ok((code, content_type, body)) => {
            let mut response = full(code, "application/octet-stream", body);
            if let Ok(value) = http::HeaderValue::try_from(content_type) {
                response.headers_mut().insert(http::header::CONTENT_TYPE, value);
            }
            response
        }
        Err(error) => error_response(&error),
    }
}

/// The same answer in YAML, where it is an object or a list.
fn in_yaml(answer: Answer) -> Answer {
    let (code, value, warnings) = match answer {
        Answer::Json(code, value, warnings) => (code, value, warnings),
        Answer::Encoded(code, bytes, warnings) => {
            (code, serde_json::from_slice(&bytes).unwrap_or_default(), warnings)
        }
        other => return other,
    };
    // Packed fields are JSON only once they are written.
    let plain: Value = serde_json::from_slice(&encode(&value)).unwrap_or_default();
    match serde_saphyr::to_string(&plain) {
        Ok(text) => Answer::Yaml(code, text, warnings),
        Err(_) => Answer::Json(code, value, warnings),
    }
}

fn full(code: u16, content_type: &'static str, bytes: Bytes) -> http::Response<ResponseBody> {
    let mut response = http::Response::new(Full::new(bytes).boxed_unsync());
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static(content_type),
    );
    response
}

fn encode(value: &Value) -> Bytes {
    let mut bytes = Vec::with_capacity(1024);
    packed::write_json(&mut bytes, value);
    bytes.into()
}

fn with_warnings(
    mut response: http::Response<ResponseBody>,
    warnings: &[String],
) -> http::Response<ResponseBody> {
    for warning in warnings {
        let printable = warning.chars().filter(|character| !character.is_control());
        let text: String = printable
            .flat_map(|character| {
                if matches!(character, '"' | '\\') {
                    vec!['\\', character]
                } else {
                    vec![character]
                }
            })
            .collect();
        if let Ok(value) = http::HeaderValue::from_bytes(format!("299 - \"{text}\"").as_bytes()) {
            response.headers_mut().append(http::header::WARNING, value);
        }
    }
    response
}

fn error_response(error: &ApiError) -> http::Response<ResponseBody> {
    let mut response = full(
        error.code,
        "application/json",
        serde_json::to_vec(&error.status()).unwrap_or_default().into(),
    );
    if error.retry_after_seconds > 0 {
        response
            .headers_mut()
            .insert(http::header::RETRY_AFTER, error.retry_after_seconds.into());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::state::Config;
    use tower::ServiceExt as _;

    async fn code(service: &Service, method: &str, path: &str, authorization: &str) -> u16 {
        let mut request = http::Request::builder().method(method).uri(path);
        if !authorization.is_empty() {
            request = request.header("authorization", authorization);
        }
        let request = request.body(Full::new(Bytes::new())).expect("a request");
        let answer: Result<_, Infallible> = service.clone().oneshot(request).await;
        let Ok(response) = answer;
        response.status().as_u16()
    }

    #[tokio::test]
    async fn without_the_token_only_health_and_version_are_told() {
        let mut config = Config::new(Arc::new(|| jiff::Timestamp::UNIX_EPOCH), 1);
        config.token = Some("secret".to_owned());
        let service = ApiServer::new(config).guarded_service();
        for path in PUBLIC {
            assert_eq!(code(&service, "GET", path, "").await, 200, "{path}");
            assert_eq!(code(&service, "GET", path, "Bearer guess").await, 401, "{path}");
            assert_eq!(code(&service, "POST", path, "").await, 401, "{path}");
        }
        for path in [
            "/",
            "/api",
            "/apis",
            "/metrics",
            "/openapi/v2",
            "/healthz/etcd",
            "/api/v1/pods",
            "/api/v1/namespaces/default/pods/version",
        ] {
            assert_eq!(code(&service, "GET", path, "").await, 401, "{path}");
        }
        for (authorization, expected) in [
            ("Bearer secret", 200),
            ("bearer secret", 200),
            ("BEARER secret", 200),
            ("Bearer", 401),
            ("Bearer secrets", 401),
            ("Basic secret", 401),
            ("secret", 401),
        ] {
            let got = code(&service, "GET", "/api/v1/pods", authorization).await;
            assert_eq!(got, expected, "{authorization:?}");
        }
    }
}
