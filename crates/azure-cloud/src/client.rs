//! Calls to ARM: token, version, pages, patience when it asks for it, and operations that go on after the reply (Z-035, Z-036).
//!
//! Owns what all calls have in common. What is asked is [`calls`](crate::calls); what ARM has too many of, [`throttling`](crate::throttling) knows.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use spokeshave_ports::SharedClock;
use spokeshave_provider_azure::errors::ArmError;

use crate::options::AzureOptions;
use crate::ports::{Outside, Request, Response, UNREADABLE};
use crate::throttling::{Counted, LONGEST_WAIT, Throttling};
use crate::tokens::Tokens;

/// How often a call is made in all when ARM asks for patience or fails.
const ATTEMPTS: u32 = 4;
/// Pause between looks at an operation that names none.
const USUAL_WAIT: Duration = Duration::from_secs(5);
/// Pages of one list; more is a list that never ends.
pub(crate) const MOST_PAGES: usize = 2000;

/// Azure as it is asked.
#[derive(Debug)]
pub(crate) struct Client {
    outside: Outside,
    clock: SharedClock,
    tokens: Tokens,
    throttling: Throttling,
}

/// An operation that goes on after the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation {
    /// Where its state is.
    pub(crate) url: String,
    /// When to look next.
    pub(crate) next: Timestamp,
    /// Whether its state is told by the reply's status instead of its body.
    by_status: bool,
}

/// State of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It goes on.
    Running(Operation),
    /// It has succeeded.
    Done,
    /// It has failed.
    Failed(ArmError),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    /// A reply without it is none: an empty list would say that everything is gone.
    value: Vec<Value>,
    #[serde(default)]
    next_link: Option<String>,
}

fn wait_of(reply: &Response) -> Option<Duration> {
    let seconds = reply.header("retry-after")?.trim().parse::<u32>().ok()?;
    Some(Duration::from_secs(u64::from(seconds)))
}

fn after(clock: &SharedClock, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    clock.now().saturating_add(wait).unwrap_or(Timestamp::MAX)
}

impl Client {
    pub(crate) fn new(outside: Outside, clock: SharedClock) -> Self {
        Client {
            outside,
            clock,
            tokens: Tokens::default(),
            throttling: Throttling::default(),
        }
    }

    /// Sends a request that may be sent again, as often as it makes sense. `path` is below the resource manager, or a whole URL that ARM gave.
    pub(crate) async fn send(
        &self,
        options: &AzureOptions,
        method: &'static str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response, ArmError> {
        self.send_if(options, method, path, body, None).await
    }

    /// The same, done only if what it is about is still in the state that this tag names.
    pub(crate) async fn send_if(
        &self,
        options: &AzureOptions,
        method: &'static str,
        path: &str,
        body: Option<&Value>,
        state: Option<&str>,
    ) -> Result<Response, ArmError> {
        let manager = options.endpoints.resource_manager.trim_end_matches('/');
        let url = if path.starts_with('/') {
            format!("{manager}{path}")
        } else if path.starts_with(&format!("{manager}/")) {
            path.to_owned()
        } else {
            // The token goes to nobody else.
            let message = format!("ARM named {path:?}, which is not below {manager}");
            return Err(ArmError::new("", &message));
        };
        let counted = Counted::of(method, path);
        let mut error = ArmError::default();
        let mut renewed = false;
        for attempt in 1..=ATTEMPTS {
            if let Some(calls) = &counted {
                self.throttling.wait_for_turn(&self.clock, calls).await?;
            }
            let token = self.tokens.get(&self.outside, options, &self.clock).await?;
            let mut headers = vec![
                ("authorization".to_owned(), format!("Bearer {token}")),
                ("content-type".to_owned(), "application/json".to_owned()),
            ];
            headers.extend(state.map(|state| ("if-match".to_owned(), state.to_owned())));
            let request = Request {
                method,
                url: url.clone(),
                headers,
                body: body.map(|body| body.to_string().into_bytes()).unwrap_or_default(),
            };
            let sent = self.clock.elapsed();
            let reply = match self.outside.http.send(request).await {
                Ok(reply) if reply.is_success() => {
                    if let Some(calls) = &counted {
                        self.throttling.note_success(calls, sent);
                    }
                    return Ok(reply);
                }
                Ok(reply) => reply,
                Err(problem) => {
                    error = ArmError::new("", &format!("{method} {path}: {problem}"));
                    self.clock.sleep(pause(attempt)).await;
                    continue;
                }
            };
            error = ArmError::read(reply.status, &reply.body);
            let wait = wait_of(&reply);
            error.retry_after = wait.and_then(|wait| SignedDuration::try_from(wait).ok());
            if let (Some(calls), Some(wait)) = (&counted, wait)
                && error.is_throttled()
            {
                self.throttling.note_throttling(&self.clock, calls, wait);
            }
            if reply.status == 401 && !renewed {
                renewed = true;
                self.tokens.refused(&token).await;
            } else if reply.status == 429 || reply.status >= 500 {
                let wait = wait.unwrap_or_else(|| pause(attempt));
                if wait > LONGEST_WAIT || attempt == ATTEMPTS {
                    break;
                }
                self.clock.sleep(wait).await;
            } else {
                break;
            }
        }
        Err(error)
    }

    /// The body of a `GET`.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        options: &AzureOptions,
        path: &str,
    ) -> Result<T, ArmError> {
        let reply = self.send(options, "GET", path, None).await?;
        read(path, &reply)
    }

    /// All pages of a list. Entries that cannot be read are left out: one of them must not hide the others.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        options: &AzureOptions,
        path: &str,
    ) -> Result<Vec<T>, ArmError> {
        let rows = self.rows(options, path).await?.into_iter();
        Ok(rows.filter_map(|row| serde_json::from_value(row).ok()).collect())
    }

    /// All pages of a list, unread.
    pub(crate) async fn rows(&self, options: &AzureOptions, path: &str) -> Result<Vec<Value>, ArmError> {
        let mut found = Vec::new();
        let mut next = Some(path.to_owned());
        let mut pages = 0;
        while let Some(path) = next {
            let page: Page = self.get(options, &path).await?;
            found.extend(page.value);
            next = page.next_link.filter(|link| !link.is_empty());
            pages += 1;
            if pages == MOST_PAGES {
                return Err(ArmError::new(UNREADABLE, &format!("{path}: the list has no end")));
            }
        }
        Ok(found)
    }

    /// Anonymous `GET`, for prices.
    pub(crate) async fn get_public<T: DeserializeOwned>(&self, url: &str) -> Result<T, ArmError> {
        let request = Request {
            method: "GET",
            url: url.to_owned(),
            ..Request::default()
        };
        let reply = self.outside.http.send(request).await;
        let reply = reply.map_err(|problem| ArmError::new("", &format!("GET {url}: {problem}")))?;
        if !reply.is_success() {
            let mut error = ArmError::read(reply.status, &reply.body);
            error.retry_after = wait_of(&reply).and_then(|wait| SignedDuration::try_from(wait).ok());
            return Err(error);
        }
        read(url, &reply)
    }

    /// The operation that a reply has begun; `None` when everything was done at once.
    pub(crate) fn operation(&self, reply: &Response) -> Option<Operation> {
        let next = after(&self.clock, wait_of(reply).unwrap_or(USUAL_WAIT));
        if let Some(url) = reply.header("azure-asyncoperation") {
            return Some(Operation {
                url: url.to_owned(),
                next,
                by_status: false,
            });
        }
        let location = reply.header("location").filter(|_| reply.status == 202)?;
        Some(Operation {
            url: location.to_owned(),
            next,
            by_status: true,
        })
    }

    /// Looks at an operation once.
    pub(crate) async fn progress(
        &self,
        options: &AzureOptions,
        operation: &Operation,
    ) -> Result<Progress, ArmError> {
        let reply = self.send(options, "GET", &operation.url, None).await?;
        let going = Progress::Running(Operation {
            next: after(&self.clock, wait_of(&reply).unwrap_or(USUAL_WAIT)),
            ..operation.clone()
        });
        if operation.by_status {
            return Ok(if reply.status == 202 {
                going
            } else {
                Progress::Done
            });
        }
        let body: Value = read(&operation.url, &reply)?;
        Ok(match body["status"].as_str().unwrap_or_default() {
            "Succeeded" => Progress::Done,
            "Failed" | "Canceled" => Progress::Failed(ArmError::read(0, &reply.body)),
            // Any other state goes on, also those that ARM may add.
            _ => going,
        })
    }

    pub(crate) fn clock(&self) -> &SharedClock {
        &self.clock
    }
}

fn pause(attempt: u32) -> Duration {
    Duration::from_secs(1 << attempt.min(5))
}

fn read<T: DeserializeOwned>(path: &str, reply: &Response) -> Result<T, ArmError> {
    serde_json::from_slice(&reply.body).map_err(|error| {
        ArmError::new(
            UNREADABLE,
            &format!("the reply to {path} cannot be read: {error}"),
        )
    })
}
