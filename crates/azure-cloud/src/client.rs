//! Calls to ARM: token, version, pages, patience when it asks for it, and operations that go on after the reply (Z-035, Z-036).
//!
//! Owns what all calls have in common. What is asked is [`calls`](crate::calls).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use spokeshave_ports::SharedClock;
use spokeshave_provider_azure::errors::ArmError;

use crate::options::AzureOptions;
use crate::ports::{Outside, Request, Response, UNREADABLE};
use crate::tokens::Tokens;

/// How often a call is made in all when ARM asks for patience or fails.
const ATTEMPTS: u32 = 4;
/// A longer wait is left to whoever asked; whoever asks meanwhile is told so without a call.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Pause between looks at an operation that names none.
const USUAL_WAIT: Duration = Duration::from_secs(5);
/// After this, calls go out again whatever ARM has asked for: it says once more when it has too many of them.
const LONGEST_THROTTLING: Duration = Duration::from_secs(600);
/// Pages of one list; more is a list that never ends.
pub(crate) const MOST_PAGES: usize = 2000;

/// Azure as it is asked.
#[derive(Debug)]
pub(crate) struct Client {
    outside: Outside,
    clock: SharedClock,
    tokens: Tokens,
    /// Calls that ARM has too many of.
    throttled: Mutex<BTreeMap<Counted, Throttled>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Read,
    Write,
}

/// Calls that Azure counts together: those of one kind about one type of resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Counted {
    kind: Kind,
    resource_type: String,
}

impl Counted {
    /// `None` for deletions, each of which waits by itself: a machine costs money until it is asked to end.
    fn of(method: &str, path: &str) -> Option<Self> {
        let resource_type = resource_type(path);
        let kind = match method {
            "DELETE" => return None,
            // How AKS is asked to end machines.
            "POST" if resource_type.ends_with("/deletemachines") => return None,
            "GET" => Kind::Read,
            _ => Kind::Write,
        };
        Some(Counted { kind, resource_type })
    }
}

/// Provider and type of what a path or a URL is about, in small letters: `microsoft.compute/virtualmachines`.
fn resource_type(path: &str) -> String {
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let path = path.to_lowercase();
    let below = path.rsplit_once("/providers/").map_or("", |(_, below)| below);
    let parts = below.split('/').enumerate();
    // Between the types are names.
    let types = parts.filter(|(place, _)| *place == 0 || place % 2 == 1);
    types.map(|(_, part)| part).collect::<Vec<_>>().join("/")
}

/// By the clock's timer.
#[derive(Debug, Clone, Copy)]
struct Throttled {
    /// When ARM said so last.
    said: Duration,
    /// When the next call goes out.
    until: Duration,
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
            throttled: Mutex::default(),
        }
    }

    fn throttled(&self) -> MutexGuard<'_, BTreeMap<Counted, Throttled>> {
        self.throttled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until ARM wants such calls again.
    ///
    /// # Errors
    /// As ARM would say it, when that is not soon.
    async fn wait_for_turn(&self, calls: &Counted) -> Result<(), ArmError> {
        loop {
            let until = self.throttled().get(calls).map(|throttled| throttled.until);
            let wait = until.unwrap_or_default().saturating_sub(self.clock.elapsed());
            if wait.is_zero() {
                return Ok(());
            }
            if wait > LONGEST_WAIT {
                let message = format!(
                    "ARM takes no such calls for another {} s; it is not asked",
                    wait.as_secs()
                );
                return Err(ArmError {
                    status: 429,
                    retry_after: SignedDuration::try_from(wait).ok(),
                    ..ArmError::new("TooManyRequests", &message)
                });
            }
            self.clock.sleep(wait).await;
        }
    }

    fn note_throttling(&self, calls: &Counted, wait: Duration) {
        let said = self.clock.elapsed();
        let until = said.saturating_add(wait.min(LONGEST_THROTTLING));
        let mut throttled = self.throttled();
        let known = throttled.get(calls).map_or(until, |known| known.until);
        let until = until.max(known);
        throttled.insert(calls.clone(), Throttled { said, until });
    }

    /// ARM takes such calls again when it takes one that was sent after it had said that it does not.
    fn note_success(&self, calls: &Counted, sent: Duration) {
        let mut throttled = self.throttled();
        if throttled.get(calls).is_some_and(|known| known.said < sent) {
            throttled.remove(calls);
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
                self.wait_for_turn(calls).await?;
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
                        self.note_success(calls, sent);
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
                self.note_throttling(calls, wait);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z_036_calls_are_counted_by_the_type_of_resource_and_deletions_are_not() {
        let counted = |method: &str, path: &str| {
            let counted = Counted::of(method, path)?;
            Some((counted.kind, counted.resource_type))
        };
        let group = "/subscriptions/s/resourceGroups/g/providers";
        let machine = format!("{group}/Microsoft.Compute/virtualMachines/a?api-version=1");
        let of_machines = |kind| Some((kind, "microsoft.compute/virtualmachines".to_owned()));
        assert_eq!(counted("GET", &machine), of_machines(Kind::Read));
        assert_eq!(counted("PUT", &machine), of_machines(Kind::Write));
        assert_eq!(counted("PATCH", &machine), of_machines(Kind::Write));
        assert_eq!(counted("DELETE", &machine), None);
        let pool = format!("{group}/Microsoft.ContainerService/managedClusters/c/agentPools/p");
        let ending = format!("{pool}/deleteMachines?api-version=1");
        assert_eq!(counted("POST", &ending), None);
        for (method, path, expected) in [
            (
                "PUT",
                format!("{pool}/machines/a?api-version=1"),
                "microsoft.containerservice/managedclusters/agentpools/machines",
            ),
            (
                "GET",
                "https://arm/subscriptions/s/providers/Microsoft.Compute/skus?skip=/providers/x".to_owned(),
                "microsoft.compute/skus",
            ),
            (
                "POST",
                "/providers/Microsoft.ResourceGraph/resources?api-version=1".to_owned(),
                "microsoft.resourcegraph/resources",
            ),
        ] {
            let (_, resource_type) = counted(method, &path).unwrap();
            assert_eq!(resource_type, expected);
        }
    }
}
