//! What a handler answers, before it becomes HTTP.

use bytes::Bytes;
use serde_json::Value;

use super::watching::WatchRequest;

/// What a handler gives.
pub(crate) enum Answer {
    /// A JSON value with a status code, and warnings for the client.
    Json(u16, Value, Vec<String>),
    /// JSON that was encoded before, with a status code, and warnings for the client.
    Encoded(u16, Bytes, Vec<String>),
    /// A JSON value whose content type says what it is.
    Typed(&'static str, Value),
    /// Bytes whose content type says what they are.
    Bytes(&'static str, Bytes),
    /// YAML with a status code, and warnings for the client.
    Yaml(u16, String, Vec<String>),
    /// What a program on this machine answers to a path.
    Forward(std::net::SocketAddr, String),
    /// Text.
    Text(u16, String),
    /// A stream of changes.
    Watch(Box<WatchRequest>),
}

impl Answer {
    pub(crate) fn ok(value: Value) -> Self {
        Answer::Json(200, value, Vec::new())
    }

    /// The same answer with more warnings.
    pub(crate) fn warning(mut self, more: Vec<String>) -> Self {
        if let Answer::Json(_, _, warnings) | Answer::Encoded(_, _, warnings) = &mut self {
            warnings.extend(more);
        }
        self
    }
}
