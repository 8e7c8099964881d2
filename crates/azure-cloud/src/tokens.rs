//! Tokens of Azure for one of the cluster's service account (workload identity, Z-057).
//!
//! Owns when a token is asked for: once, and again well before it ends, or when ARM refuses it. Until its end it does, also while there is no other to be had.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use spokeshave_ports::SharedClock;
use spokeshave_provider_azure::errors::ArmError;

use crate::options::AzureOptions;
use crate::ports::{Outside, Request};

/// A token is renewed so long before it ends.
const RENEWED_BEFORE: SignedDuration = SignedDuration::from_mins(5);
/// Pause after a login that failed for reasons of its own.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause between two tries to renew a token that has not ended.
const RENEWED_AGAIN: SignedDuration = SignedDuration::from_secs(30);

#[derive(Debug, Clone)]
struct Token {
    text: String,
    /// When another is asked for.
    renewed_at: Timestamp,
    ends_at: Timestamp,
}

/// The token that is in use.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    held: tokio::sync::Mutex<Held>,
    /// How many logins have failed that left nothing to go on with.
    failures: AtomicU64,
}

#[derive(Debug, Default)]
struct Held {
    token: Option<Token>,
    /// Why the last of these logins failed.
    failure: Option<ArmError>,
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    #[serde(default)]
    expires_in: u32,
}

#[derive(Deserialize)]
struct Refused {
    #[serde(default)]
    error: String,
    #[serde(default)]
    error_description: String,
}

impl Tokens {
    /// A token that ARM takes for a while. Whoever asks meanwhile waits for the same answer, a failure too.
    pub(crate) async fn get(
        &self,
        outside: &Outside,
        options: &AzureOptions,
        clock: &SharedClock,
    ) -> Result<String, ArmError> {
        let failures = self.failures.load(Ordering::Relaxed);
        let mut held = self.held.lock().await;
        let fresh = held.token.as_ref().filter(|token| clock.now() < token.renewed_at);
        if let Some(token) = fresh {
            return Ok(token.text.clone());
        }
        let has_failed_since = self.failures.load(Ordering::Relaxed) != failures;
        if let Some(failure) = held.failure.as_ref().filter(|_| has_failed_since) {
            return Err(failure.clone());
        }
        let granted = match exchange(outside, options).await {
            Err(error) if error.status == 0 || error.status >= 500 => {
                clock.sleep(PAUSE).await;
                exchange(outside, options).await
            }
            answer => answer,
        };
        let now = clock.now();
        match granted {
            Ok(granted) => {
                let token = Token::of(granted, now);
                let text = token.text.clone();
                held.token = Some(token);
                Ok(text)
            }
            Err(error) => {
                if let Some(token) = held.token.as_mut().filter(|token| now < token.ends_at) {
                    tracing::warn!(%error, "the token cannot be renewed; the one that there is holds until it ends");
                    token.renewed_at = after(now, RENEWED_AGAIN).min(token.ends_at);
                    return Ok(token.text.clone());
                }
                held.failure = Some(error.clone());
                self.failures.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// ARM has refused this token: another is asked for.
    pub(crate) async fn refused(&self, text: &str) {
        let mut held = self.held.lock().await;
        if held.token.as_ref().is_some_and(|token| token.text == text) {
            held.token = None;
        }
    }
}

impl Token {
    fn of(granted: Granted, now: Timestamp) -> Self {
        let lasts = SignedDuration::from_secs(i64::from(granted.expires_in));
        Token {
            text: granted.access_token,
            renewed_at: after(now, (lasts - RENEWED_BEFORE).max(SignedDuration::ZERO)),
            ends_at: after(now, lasts),
        }
    }
}

fn after(now: Timestamp, wait: SignedDuration) -> Timestamp {
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

async fn exchange(outside: &Outside, options: &AzureOptions) -> Result<Granted, ArmError> {
    let assertion = outside
        .assertion
        .token()
        .map_err(|problem| ArmError::new("", &format!("reading the service account's token: {problem}")))?;
    let scope = format!("{}/.default", options.endpoints.audience.trim_end_matches('/'));
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", options.client_id.as_str()),
        (
            "client_assertion_type",
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        ),
        ("client_assertion", assertion.trim()),
        ("scope", &scope),
    ];
    let form: Vec<String> = form
        .iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    let login = options.endpoints.login.trim_end_matches('/');
    let request = Request {
        method: "POST",
        url: format!("{login}/{}/oauth2/v2.0/token", options.tenant_id),
        headers: vec![(
            "content-type".to_owned(),
            "application/x-www-form-urlencoded".to_owned(),
        )],
        body: form.join("&").into_bytes(),
    };
    let reply = outside.http.send(request).await;
    let reply = reply.map_err(|problem| ArmError::new("", &format!("logging in: {problem}")))?;
    if reply.is_success() {
        return serde_json::from_slice(&reply.body).map_err(|error| {
            ArmError::new(
                crate::ports::UNREADABLE,
                &format!("logging in: the reply has no token: {error}"),
            )
        });
    }
    let refused = serde_json::from_slice::<Refused>(&reply.body).ok();
    let (code, message) = refused.map_or_else(Default::default, |it| (it.error, it.error_description));
    Err(ArmError {
        status: reply.status,
        code,
        message: format!(
            "logging in to tenant {:?} as client {:?}: {message}",
            options.tenant_id, options.client_id
        ),
        retry_after: None,
    })
}

/// A value as it stands in a form or a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
