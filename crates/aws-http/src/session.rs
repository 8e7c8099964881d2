//! One connection to AWS: signs requests, sends them, tries again what is worth it.
//!
//! Owns credentials, endpoints, attempts, time limits and the correction of a clock that is off. It knows no call: what is asked and what the reply
//! means is in the modules of the services.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use aws_smithy_runtime_api::client::http::{HttpConnector, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use futures::FutureExt as _;
use futures::future::{BoxFuture, WeakShared};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use rand::RngExt as _;
use spokeshave_aws_cloud::Meter;
use spokeshave_ports::{Entropy, SharedClock};

use crate::endpoints::{Endpoint, Service, endpoint};
use crate::error::{CallError, read_error};
use crate::query::Query;

/// Credentials are fetched anew this long before they end.
const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// Longest wait before another attempt.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
/// Largest reply that is read. A page of instance types is under one MiB.
const LARGEST_REPLY_BYTES: usize = 64 << 20;
/// A clock that is off by less than this is not corrected, because the service does not mind.
const SMALLEST_SKEW_SECONDS: i64 = 30;

/// How a [`Session`] behaves.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Region of the cluster.
    pub region: String,
    /// Endpoints that replace Amazon's own, such as of a VPC or of an emulator: by service, or for all.
    pub endpoint_urls: Vec<(Option<Service>, String)>,
    /// Whether FIPS endpoints are asked for.
    pub use_fips: bool,
    /// How often a call is tried, the first time included.
    pub attempts: u32,
    /// Time limit of one attempt; a long poll has its own on top.
    pub attempt_timeout: Duration,
    /// Value of the header `User-Agent`.
    pub user_agent: String,
}

/// A connection to AWS for one region and one identity. Cheap to clone.
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    options: SessionOptions,
    credentials: SharedCredentialsProvider,
    kept: Arc<Mutex<Kept>>,
    connector: SharedHttpConnector,
    clock: SharedClock,
    entropy: Mutex<rand_chacha::ChaCha8Rng>,
    /// What is added to our time so that it is the services' time.
    skew_seconds: AtomicI64,
    meter: Meter,
}

/// Credentials, or why there are none.
type Fetch = BoxFuture<'static, Result<Credentials, String>>;

/// Credentials that were fetched, and those that are on their way. Whoever waits for these fetches them: a call that is given up, and not dropped, holds up no
/// other.
#[derive(Default)]
struct Kept {
    credentials: Option<Credentials>,
    fetch: Option<WeakShared<Fetch>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fetches credentials, and keeps them.
async fn fetched(source: SharedCredentialsProvider, kept: Arc<Mutex<Kept>>) -> Result<Credentials, String> {
    let answer = source.provide_credentials().await;
    let answer = answer.map_err(|error| root_cause(&error));
    let mut known = locked(&kept);
    known.fetch = None;
    if let Ok(credentials) = &answer {
        known.credentials = Some(credentials.clone());
    }
    drop(known);
    answer
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

/// A request before it is signed.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    service: Service,
    action: String,
    method: &'static str,
    /// Path and query, already encoded.
    path: String,
    headers: Vec<(&'static str, String)>,
    body: String,
    /// Time that the service itself waits before it replies.
    long_poll: Duration,
    /// An answer of the service counts, whatever it is: it is not asked again.
    is_once: bool,
}

impl Request {
    /// A call in the query encoding.
    pub(crate) fn query(service: Service, query: &Query) -> Self {
        Request {
            service,
            action: query.action().to_owned(),
            method: "POST",
            path: "/".to_owned(),
            headers: vec![(
                "content-type",
                "application/x-www-form-urlencoded; charset=utf-8".to_owned(),
            )],
            body: query.encoded(),
            long_poll: Duration::ZERO,
            is_once: false,
        }
    }

    /// A call in AWS JSON: `version` 1.0 or 1.1; `target` is the name of the service in the header `X-Amz-Target`.
    pub(crate) fn json(
        service: Service,
        version: &str,
        target: &str,
        action: &str,
        body: &serde_json::Value,
    ) -> Self {
        Request {
            service,
            action: action.to_owned(),
            method: "POST",
            path: "/".to_owned(),
            headers: vec![
                ("content-type", format!("application/x-amz-json-{version}")),
                ("x-amz-target", format!("{target}.{action}")),
            ],
            body: body.to_string(),
            long_poll: Duration::ZERO,
            is_once: false,
        }
    }

    /// A call that reads a path.
    pub(crate) fn get(service: Service, action: &str, path: String) -> Self {
        Request {
            service,
            action: action.to_owned(),
            method: "GET",
            path,
            headers: Vec::new(),
            body: String::new(),
            long_poll: Duration::ZERO,
            is_once: false,
        }
    }

    /// The service may wait this long before it replies.
    pub(crate) fn long_poll(mut self, long_poll: Duration) -> Self {
        self.long_poll = long_poll;
        self
    }

    /// A question that its caller asks again in his own time: a service that has no time now hears it once.
    pub(crate) fn once(mut self) -> Self {
        self.is_once = true;
        self
    }
}

/// The body of a reply, the error that the service replied with its time, or why there is no reply.
type Attempt = Result<Result<String, (CallError, Option<Timestamp>)>, CallError>;

struct Answer {
    status: u16,
    date: Option<Timestamp>,
    type_header: Option<String>,
    id_header: Option<String>,
    body: String,
}

impl Session {
    /// A session with the identity that `credentials` gives.
    #[must_use]
    pub fn new(
        options: SessionOptions,
        credentials: SharedCredentialsProvider,
        connector: SharedHttpConnector,
        clock: SharedClock,
        entropy: &Entropy,
    ) -> Self {
        Session(Arc::new(Inner {
            options,
            credentials,
            kept: Arc::default(),
            connector,
            clock,
            entropy: Mutex::new(entropy.rng("attempts")),
            skew_seconds: AtomicI64::new(0),
            meter: Meter::default(),
        }))
    }

    /// Region of the cluster.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.0.options.region
    }

    /// What is counted of the calls.
    #[must_use]
    pub fn meter(&self) -> Meter {
        self.0.meter.clone()
    }

    /// A number that nobody else has, for calls that can be repeated without effect.
    pub(crate) fn client_token(&self) -> String {
        format!("{:032x}", self.random(|rng| rng.random::<u128>()))
    }

    fn random<T>(&self, draw: impl FnOnce(&mut rand_chacha::ChaCha8Rng) -> T) -> T {
        draw(&mut locked(&self.0.entropy))
    }

    /// Sends a request until it succeeds, another attempt makes no sense, or attempts are used up. The body of the reply.
    pub(crate) async fn call(&self, request: &Request) -> Result<String, CallError> {
        let mut attempt = 1;
        let mut corrected = false;
        loop {
            let since = self.0.clock.now();
            let answer = self.attempt(request).await;
            self.count(request, &answer, self.0.clock.since(since));
            let error = match answer {
                Ok(Ok(body)) => return Ok(body),
                Ok(Err((error, date))) => {
                    if !corrected && error.may_be_skew() && self.correct_skew(date) {
                        corrected = true;
                        continue;
                    }
                    error
                }
                Err(error) => error,
            };
            let expired = error.is_expired_credentials();
            if expired {
                locked(&self.0.kept).credentials = None;
            }
            // Who gives no answer is not kept from anything by being asked again, nor who was asked with old credentials.
            let is_answer = matches!(error, CallError::Service { .. }) && !expired;
            let is_last = attempt >= self.0.options.attempts.max(1) || (request.is_once && is_answer);
            if is_last || !(error.is_retryable() || expired) {
                return Err(error);
            }
            let wait = self.wait_before(attempt);
            tracing::debug!(service = request.service.signing_name(), action = request.action, attempt, %error, "call is tried again");
            self.0.clock.sleep(wait).await;
            attempt += 1;
        }
    }

    fn count(&self, request: &Request, answer: &Attempt, took: Duration) {
        let code = match answer {
            Ok(Ok(_)) => None,
            Ok(Err((CallError::Service { code, .. }, _))) => Some(code.as_str()),
            Ok(Err(_)) | Err(_) => Some(""),
        };
        let service = request.service.signing_name();
        self.0.meter.call(service, &request.action, code, took);
    }

    /// The same, with a reply in JSON.
    pub(crate) async fn json<T: serde::de::DeserializeOwned>(
        &self,
        request: &Request,
    ) -> Result<T, CallError> {
        let body = self.call(request).await?;
        serde_json::from_str(&body).map_err(|error| self.unreadable(request, &error))
    }

    /// The service answered, and the answer is not what it should be.
    pub(crate) fn unreadable(&self, request: &Request, reason: &dyn std::fmt::Display) -> CallError {
        CallError::NoAnswer {
            service: request.service.signing_name(),
            action: request.action.clone(),
            url: self.endpoint(request.service).url,
            reason: format!("the reply cannot be read: {reason}"),
            timed_out: false,
        }
    }

    /// A random part of a time that doubles with each attempt, so that callers who failed together do not come back together.
    fn wait_before(&self, attempt: u32) -> Duration {
        let longest = Duration::from_secs(1 << attempt.min(5)).min(LONGEST_WAIT);
        longest.mul_f64(self.random(|rng| rng.random::<f64>()))
    }

    async fn attempt(&self, request: &Request) -> Attempt {
        let answer = self.send(request).await?;
        if (200..300).contains(&answer.status) {
            return Ok(Ok(answer.body));
        }
        let (code, message, request_id) = read_error(
            answer.status,
            &answer.body,
            answer.type_header.as_deref(),
            answer.id_header.as_deref(),
        );
        let error = CallError::Service {
            service: request.service.signing_name(),
            action: request.action.clone(),
            status: answer.status,
            code,
            message,
            request_id,
        };
        Ok(Err((error, answer.date)))
    }

    async fn send(&self, request: &Request) -> Result<Answer, CallError> {
        let endpoint = self.endpoint(request.service);
        let url = format!("{}{}", endpoint.url, request.path);
        let no_answer = |reason: String, timed_out: bool| CallError::NoAnswer {
            service: request.service.signing_name(),
            action: request.action.clone(),
            url: url.clone(),
            reason,
            timed_out,
        };
        let signed = self.signed(request, &endpoint, &url).await?;
        let limit = self.0.options.attempt_timeout + request.long_poll;
        let exchange = async {
            let response = self.0.connector.call(signed).await;
            let response = response.map_err(|error| {
                let advice = if error.is_io() {
                    self.advice_on_connections(request.service)
                } else {
                    String::new()
                };
                no_answer(root_cause(&error) + &advice, error.is_timeout())
            })?;
            let status = response.status().as_u16();
            let header = |name: &str| response.headers().get(name).map(str::to_owned);
            let date = header("date").and_then(|date| http_date(&date));
            let (type_header, id_header) = (header("x-amzn-errortype"), header("x-amzn-requestid"));
            let body = http_body_util::Limited::new(response.into_body(), LARGEST_REPLY_BYTES);
            let body = body.collect().await;
            let body = body.map_err(|error| no_answer(format!("the reply broke off: {error}"), false))?;
            Ok(Answer {
                status,
                date,
                type_header,
                id_header,
                body: String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            })
        };
        tokio::select! {
            biased;
            // A reply that is there counts, however late somebody comes for it.
            answer = exchange => answer,
            () = self.0.clock.sleep(limit) => Err(no_answer(format!("no reply within {} s", limit.as_secs()), true)),
        }
    }

    fn endpoint(&self, service: Service) -> Endpoint {
        let options = &self.0.options;
        let mut endpoint = endpoint(service, &options.region, options.use_fips);
        let own = options
            .endpoint_urls
            .iter()
            .find(|(one, _)| *one == Some(service));
        let own = own.or_else(|| options.endpoint_urls.iter().find(|(one, _)| one.is_none()));
        if let Some((_, url)) = own {
            url.trim_end_matches('/').clone_into(&mut endpoint.url);
        }
        endpoint
    }

    /// What to do when a host cannot be reached: a region that does not exist has none.
    fn advice_on_connections(&self, service: Service) -> String {
        let Inner { options, .. } = &*self.0;
        let is_replaced = options
            .endpoint_urls
            .iter()
            .any(|(one, _)| one.is_none_or(|one| one == service));
        if is_replaced {
            "; AWS_ENDPOINT_URL or one of its kind sends requests there: check it, and the network".to_owned()
        } else {
            format!(
                "; check that region {} (AWS_REGION) exists, and the operator's DNS, proxy and network policies",
                options.region
            )
        }
    }

    async fn credentials(&self, request: &Request) -> Result<Credentials, CallError> {
        let fetch = {
            let mut kept = locked(&self.0.kept);
            let soon = self.time() + RENEW_BEFORE;
            let known = kept.credentials.as_ref();
            if let Some(known) = known.filter(|one| one.expiry().is_none_or(|end| end > soon)) {
                return Ok(known.clone());
            }
            let under_way = kept.fetch.as_ref().and_then(WeakShared::upgrade);
            under_way.unwrap_or_else(|| {
                let source = self.0.credentials.clone();
                let fetch = fetched(source, self.0.kept.clone()).boxed().shared();
                kept.fetch = fetch.downgrade();
                fetch
            })
        };
        fetch.await.map_err(|reason| CallError::Credentials {
            service: request.service.signing_name(),
            action: request.action.clone(),
            reason,
        })
    }

    /// Our time, corrected by what the services said of theirs.
    fn time(&self) -> SystemTime {
        let ours = self.0.clock.now().as_second() + self.0.skew_seconds.load(Ordering::Relaxed);
        SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(ours).unwrap_or(0))
    }

    /// Takes over the time of the service where ours is off. True when that changed it.
    fn correct_skew(&self, date: Option<Timestamp>) -> bool {
        let Some(date) = date else {
            return false;
        };
        let skew = date.as_second() - self.0.clock.now().as_second();
        let before = self.0.skew_seconds.swap(skew, Ordering::Relaxed);
        let is_news = (skew - before).abs() >= SMALLEST_SKEW_SECONDS;
        if is_news {
            tracing::warn!(
                skew_seconds = skew,
                "our clock is off; requests are signed with the time of AWS"
            );
        }
        is_news
    }

    async fn signed(
        &self,
        request: &Request,
        endpoint: &Endpoint,
        url: &str,
    ) -> Result<HttpRequest, CallError> {
        let credentials = self.credentials(request).await?;
        let impossible = |reason: String| CallError::NoAnswer {
            service: request.service.signing_name(),
            action: request.action.clone(),
            url: url.to_owned(),
            reason,
            timed_out: false,
        };
        let identity = credentials.into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&endpoint.signing_region)
            .name(request.service.signing_name())
            .time(self.time())
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| impossible(error.to_string()))?;
        let mut builder = http::Request::builder().method(request.method).uri(url);
        let headers = request
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        for (name, value) in headers
            .clone()
            .chain([("user-agent", self.0.options.user_agent.as_str())])
        {
            builder = builder.header(name, value);
        }
        let mut unsigned = builder
            .body(SdkBody::from(request.body.as_str()))
            .map_err(|error| impossible(format!("not a request: {error}")))?;
        let body = SignableBody::Bytes(request.body.as_bytes());
        let signable = SignableRequest::new(request.method, url, headers, body);
        let signable = signable.map_err(|error| impossible(error.to_string()))?;
        let signed = sign(signable, &params.into()).map_err(|error| impossible(error.to_string()))?;
        let (instructions, _) = signed.into_parts();
        instructions.apply_to_request_http1x(&mut unsigned);
        unsigned
            .try_into()
            .map_err(|error| impossible(format!("not a request: {error}")))
    }
}

/// The innermost error, which says what happened; those around it say that something did.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// A date as HTTP writes it: `Sun, 22 Nov 2026 10:00:00 GMT`.
fn http_date(text: &str) -> Option<Timestamp> {
    let zoned = jiff::fmt::rfc2822::DateTimeParser::new().parse_zoned(text).ok()?;
    Some(zoned.timestamp())
}
