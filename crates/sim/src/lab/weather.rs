//! Network faults between an operator and the API server: rejections, errors, lost requests and responses, watches that stall or break,
//! and a network that is gone.
//!
//! Every fault is drawn from the seed in the order of the requests, so a run can be repeated.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use jiff::Timestamp;
use kube::client::Body;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use spokeshave_apiserver::ResponseBody;
use spokeshave_ports::SharedClock;
use tower::BoxError;

use super::observed::{Observed, RunLog};
use crate::invariants::Invariants;

/// How often requests go wrong, each as a share of one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// 429 with Retry-After, in plain text.
    pub too_many: f64,
    /// 500.
    pub server_error: f64,
    /// 409 to a write that would have succeeded.
    pub conflict: f64,
    /// The request is lost, and the client times out.
    pub lost_request: f64,
    /// The request is served and its answer lost.
    pub lost_answer: f64,
}

/// How long a client waits for an answer that does not come.
const GIVE_UP: Duration = Duration::from_secs(10);

/// The weather on one way. Clones share it.
#[derive(Clone, Debug)]
pub struct Weather {
    state: Arc<Mutex<State>>,
    breaks: spokeshave_watched::Sender<u64>,
    clock: SharedClock,
    invariants: Invariants,
    log: RunLog,
    name: String,
}

#[derive(Debug)]
struct State {
    rates: Rates,
    /// Nothing goes wrong by these rates from then on.
    rates_until: Timestamp,
    chance: ChaCha8Rng,
    /// Watches stall until then.
    still_until: Timestamp,
    /// Nothing passes until then.
    cut_until: Timestamp,
    /// The next object created here has no answer.
    unanswered: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stroke {
    TooMany,
    ServerError,
    Conflict,
    LostRequest,
    LostAnswer,
}

impl Weather {
    pub(crate) fn new(
        name: &str,
        chance: ChaCha8Rng,
        clock: SharedClock,
        invariants: Invariants,
        log: RunLog,
    ) -> Self {
        let state = State {
            rates: Rates::default(),
            rates_until: Timestamp::MAX,
            chance,
            still_until: Timestamp::MIN,
            cut_until: Timestamp::MIN,
            unanswered: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            breaks: spokeshave_watched::channel(0).0,
            clock,
            invariants,
            log,
            name: name.to_owned(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how often requests go wrong.
    pub fn set(&self, rates: Rates) {
        self.go_wrong(rates, Timestamp::MAX);
    }

    /// Requests go wrong so often for this long, whatever else happens meanwhile.
    pub fn storm(&self, rates: Rates, length: Duration) {
        self.go_wrong(rates, crate::invariants::later(self.clock.now(), length));
    }

    fn go_wrong(&self, rates: Rates, until: Timestamp) {
        let mut state = self.lock();
        state.rates = rates;
        state.rates_until = until;
    }

    /// Watches stall for this long; the missed events arrive afterwards.
    pub fn hold_watches(&self, length: Duration) {
        let until = crate::invariants::later(self.clock.now(), length);
        self.lock().still_until = until;
        self.invariants.blind(until);
    }

    /// All watches break off.
    pub fn break_watches(&self) {
        self.invariants.blind(self.clock.now());
        self.breaks.send_modify(|count| *count += 1);
    }

    /// Nothing passes for so long.
    pub fn cut(&self, length: Duration) {
        let until = crate::invariants::later(self.clock.now(), length);
        {
            let mut state = self.lock();
            state.cut_until = until;
            state.still_until = until;
        }
        self.invariants.blind(until);
        self.breaks.send_modify(|count| *count += 1);
    }

    /// The answer to the next creation of an object at this path is lost.
    pub fn lose_answer(&self, path: &str) {
        self.lock().unanswered = Some(path.to_owned());
    }

    /// Whether the answer to this request is to be lost, whatever the rates are.
    fn is_unanswered(&self, request: &Request<Body>) -> bool {
        let mut state = self.lock();
        let is_it = request.method() == http::Method::POST
            && state.unanswered.as_deref() == Some(request.uri().path());
        if is_it {
            state.unanswered = None;
        }
        is_it
    }

    fn stroke(&self, write: bool) -> Option<Stroke> {
        let mut state = self.lock();
        let rates = state.rates;
        if rates == Rates::default() || state.rates_until <= self.clock.now() {
            return None;
        }
        let mut drawn: f64 = state.chance.random();
        for (rate, stroke) in [
            (rates.too_many, Stroke::TooMany),
            (rates.server_error, Stroke::ServerError),
            (rates.conflict, Stroke::Conflict),
            (rates.lost_request, Stroke::LostRequest),
            (rates.lost_answer, Stroke::LostAnswer),
        ] {
            if drawn < rate {
                return (write || stroke != Stroke::Conflict).then_some(stroke);
            }
            drawn -= rate;
        }
        None
    }
}

/// A way with weather.
#[derive(Clone, Debug)]
pub(crate) struct Exposed {
    pub(crate) inner: Observed,
    pub(crate) weather: Weather,
}

impl tower::Service<Request<Body>> for Exposed {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { this.pass(request).await })
    }
}

fn status(code: u16, reason: &str, message: &str) -> Response<ResponseBody> {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code});
    let bytes = Bytes::from(serde_json::to_vec(&body).unwrap_or_default());
    let mut response = Response::new(Full::new(bytes).boxed_unsync());
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

/// How a server sheds its load: before it has looked at the request, and so without a Status.
fn too_many() -> Response<ResponseBody> {
    let text = Bytes::from_static(b"Too many requests, please try again later.\n");
    let mut response = Response::new(Full::new(text).boxed_unsync());
    *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    response.headers_mut().insert(http::header::RETRY_AFTER, 1.into());
    response
}

fn gave_up() -> BoxError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time").into()
}

impl Exposed {
    async fn pass(mut self, request: Request<Body>) -> Result<Response<ResponseBody>, BoxError> {
        let weather = self.weather.clone();
        let write = request.method() != http::Method::GET;
        let watches = request.uri().query().is_some_and(|query| {
            query
                .split('&')
                .any(|one| matches!(one, "watch=true" | "watch=1"))
        });
        if weather.lock().cut_until > weather.clock.now() {
            weather.clock.sleep(GIVE_UP).await;
            return Err(gave_up());
        }
        let stroke = if weather.is_unanswered(&request) {
            Some(Stroke::LostAnswer)
        } else {
            weather.stroke(write)
        };
        if let Some(stroke) = stroke {
            weather.log.note(&format!(
                "{}: {stroke:?} {} {}",
                weather.name,
                request.method(),
                request.uri().path()
            ));
            if write {
                weather.invariants.disturb();
            } else {
                weather.invariants.blind(weather.clock.now());
            }
        }
        match stroke {
            Some(Stroke::TooMany) => return Ok(too_many()),
            Some(Stroke::ServerError) => {
                return Ok(status(
                    500,
                    "InternalError",
                    "an error on the server has prevented the request from succeeding",
                ));
            }
            Some(Stroke::Conflict) => {
                return Ok(status(
                    409,
                    "Conflict",
                    "the object has been modified; please apply your changes to the latest version and try again",
                ));
            }
            Some(Stroke::LostRequest) => {
                weather.clock.sleep(GIVE_UP).await;
                weather.invariants.disturb();
                return Err(gave_up());
            }
            _ => {}
        }
        let Ok(answer): Result<_, Infallible> = tower::Service::call(&mut self.inner, request).await;
        if stroke == Some(Stroke::LostAnswer) {
            weather.clock.sleep(GIVE_UP).await;
            weather.invariants.disturb();
            return Err(gave_up());
        }
        Ok(if watches { exposed(answer, weather) } else { answer })
    }
}

/// A watch that stalls and breaks with the faults.
fn exposed(answer: Response<ResponseBody>, weather: Weather) -> Response<ResponseBody> {
    let (parts, body) = answer.into_parts();
    let breaks = weather.breaks.subscribe();
    let frames = futures::stream::unfold(
        (body, weather, breaks),
        |(mut body, weather, mut breaks)| async move {
            let frame = tokio::select! {
                biased;
                _ = breaks.changed() => return None,
                frame = body.frame() => frame?,
            };
            loop {
                let still_until = weather.lock().still_until;
                if still_until <= weather.clock.now() {
                    break;
                }
                tokio::select! {
                    biased;
                    _ = breaks.changed() => return None,
                    () = weather.clock.sleep_until(still_until) => {}
                }
            }
            let Ok(frame) = frame;
            let bytes = frame.into_data().unwrap_or_default();
            Some((Ok::<_, Infallible>(Frame::data(bytes)), (body, weather, breaks)))
        },
    );
    Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::Expectations;
    use spokeshave_ports::{Entropy, TokioClock};

    fn weather() -> Weather {
        let clock = TokioClock::new(Timestamp::UNIX_EPOCH, 1.0).shared();
        let invariants = Invariants::new(clock.clone(), 1, Expectations::default());
        let log = RunLog::new(clock.clone(), false);
        Weather::new("a", Entropy::new(1).rng("weather"), clock, invariants, log)
    }

    /// Whoever begins a storm does not wait for its end, and need not end it.
    #[tokio::test(start_paused = true)]
    async fn a_storm_lasts_as_long_as_it_is_to_and_no_longer() {
        let all = Rates {
            too_many: 1.0,
            ..Rates::default()
        };
        let weather = weather();
        assert_eq!(weather.stroke(true), None);
        weather.storm(all, Duration::from_secs(60));
        assert_eq!(weather.stroke(true), Some(Stroke::TooMany));
        weather.clock.sleep(Duration::from_secs(59)).await;
        assert_eq!(weather.stroke(true), Some(Stroke::TooMany));
        weather.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(weather.stroke(true), None);
        weather.set(all);
        weather.clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(
            weather.stroke(true),
            Some(Stroke::TooMany),
            "until it is said otherwise"
        );
        weather.storm(all, Duration::from_secs(60));
        weather.set(Rates::default());
        assert_eq!(weather.stroke(true), None, "calm ends it at once");
    }
}
