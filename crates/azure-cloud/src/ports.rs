//! What the provider needs from outside: somebody who sends a request, and the token that says who asks.
//!
//! Owns the shape of both. Everything that ARM is asked goes through [`Http`], so that paging, long-running operations, throttling and errors stand
//! above it, once, and an Azure in one process is asked as the real one is.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;

/// Code of an error of our own: ARM has answered, and nobody can say what. Without it, it would count as no answer at all.
pub(crate) const UNREADABLE: &str = "UnreadableReply";

/// A request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `PUT`, `PATCH`, `POST`, `DELETE`.
    pub method: &'static str,
    /// Whole URL.
    pub url: String,
    /// Headers; names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

/// A reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// Status.
    pub status: u16,
    /// Headers; names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Response {
    /// Value of a header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Whether the request was done or accepted.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Sends requests. An error means that there was no reply: what became of the request is unknown.
pub trait Http: Send + Sync + Debug {
    /// Sends one request, once.
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, String>>;
}

/// Says who asks.
pub trait Assertion: Send + Sync + Debug {
    /// The token of the service account, which is exchanged for one of Azure. It is read again each time: it is renewed where it lies.
    fn token(&self) -> Result<String, String>;
}

/// The outside.
#[derive(Debug, Clone)]
pub struct Outside {
    /// Sends requests.
    pub http: Arc<dyn Http>,
    /// Says who asks.
    pub assertion: Arc<dyn Assertion>,
}
