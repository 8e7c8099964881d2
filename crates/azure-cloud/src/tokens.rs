//! Tokens of Azure for one of the cluster's service account (workload identity, Z-057).
//!
//! Owns when a token is asked for: once, and again well before it ends, or when ARM refuses it.

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

#[derive(Debug, Clone)]
struct Token {
    text: String,
    until: Timestamp,
}

/// The token that is in use.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    held: tokio::sync::Mutex<Option<Token>>,
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
    /// A token that ARM takes for a while. Whoever asks meanwhile waits for the same answer.
    pub(crate) async fn get(
        &self,
        outside: &Outside,
        options: &AzureOptions,
        clock: &SharedClock,
    ) -> Result<String, ArmError> {
        let mut held = self.held.lock().await;
        let fresh = held.as_ref().filter(|token| clock.now() < token.until);
        if let Some(token) = fresh {
            return Ok(token.text.clone());
        }
        let granted = match exchange(outside, options).await {
            Err(error) if error.status == 0 || error.status >= 500 => {
                clock.sleep(PAUSE).await;
                exchange(outside, options).await
            }
            answer => answer,
        }?;
        let lasts = SignedDuration::from_secs(i64::from(granted.expires_in)) - RENEWED_BEFORE;
        let until = clock.now().saturating_add(lasts.max(SignedDuration::ZERO));
        *held = Some(Token {
            text: granted.access_token.clone(),
            until: until.unwrap_or(Timestamp::MAX),
        });
        Ok(granted.access_token)
    }

    /// ARM has refused this token: another is asked for.
    pub(crate) async fn refused(&self, text: &str) {
        let mut held = self.held.lock().await;
        if held.as_ref().is_some_and(|token| token.text == text) {
            *held = None;
        }
    }
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
