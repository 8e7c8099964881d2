//! Errors as Kubernetes answers them: a `Status` object with a reason for clients and a message for users.

use serde_json::{Value, json};

use crate::cause::Cause;

/// A refused request.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// Human-readable sentence.
    pub message: String,
    /// Details of the `Status`.
    pub details: Value,
    /// Seconds after which the client should try again; 0 for none.
    pub retry_after_seconds: u32,
    /// Token with which an interrupted list can go on.
    pub continue_token: Option<String>,
}

/// What a request gives.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// Any error.
    #[must_use]
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Value::Null,
            retry_after_seconds: 0,
            continue_token: None,
        }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let mut details = json!({"kind": kind});
        if !group.is_empty() {
            details["group"] = json!(group);
        }
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        self.details = details;
        self
    }

    /// 404 for an object.
    #[must_use]
    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        Self::new(
            404,
            "NotFound",
            format!("{} {name:?} not found", qualified(group, plural)),
        )
        .about(group, plural, name)
    }

    /// 404 for a path.
    #[must_use]
    pub fn no_such_path() -> Self {
        let mut error = Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
        error.details = json!({});
        error
    }

    /// 403 for what may not be done with an object, which may have no name yet.
    #[must_use]
    pub(crate) fn forbidden(group: &str, plural: &str, name: &str, problem: &str) -> Self {
        let message = format!("{} {name:?} is forbidden: {problem}", qualified(group, plural));
        let mut error = Self::new(403, "Forbidden", message).about(group, plural, name);
        error.details["name"] = json!(name);
        error
    }

    /// 422 for options of a request, such as `ListOptions`.
    #[must_use]
    pub(crate) fn bad_options(kind: &str, reason: &str, field: &str, message: &str) -> Self {
        let text = format!("{kind}.meta.k8s.io \"\" is invalid: {field}: {message}");
        let mut error = Self::new(422, "Invalid", text);
        error.details = json!({"group": "meta.k8s.io", "kind": kind, "causes": [{"reason": reason, "message": message, "field": field}]});
        error
    }

    /// 409 for an object that exists.
    #[must_use]
    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} {name:?} already exists", qualified(group, plural)),
        )
        .about(group, plural, name)
    }

    /// 409 for an object that was modified concurrently, or whose precondition fails.
    #[must_use]
    pub fn conflict(group: &str, plural: &str, name: &str, problem: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {problem}",
            qualified(group, plural)
        );
        Self::new(409, "Conflict", message).about(group, plural, name)
    }

    /// 422 with its causes.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        // What is found twice is said once.
        let mut sentences: Vec<String> = Vec::new();
        for sentence in causes.iter().map(Cause::sentence) {
            if !sentences.contains(&sentence) {
                sentences.push(sentence);
            }
        }
        let problem = match &sentences[..] {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let shown = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let mut error = Self::new(422, "Invalid", format!("{shown} {name:?} is invalid: {problem}"))
            .about(group, kind, name);
        error.details["causes"] = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        error
    }

    /// 400.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 405 for a verb that a resource does not have.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let mut error = Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        error.details = json!({});
        error
    }

    /// 410 for a resource version that is no longer in the history.
    #[must_use]
    pub fn expired(version: u64, oldest: u64) -> Self {
        Self::new(
            410,
            "Expired",
            format!("too old resource version: {version} ({oldest})"),
        )
    }

    /// The `Status` object.
    #[must_use]
    pub fn status(&self) -> Value {
        let metadata = match &self.continue_token {
            Some(token) => json!({"continue": token}),
            None => json!({}),
        };
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure", "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        if self.retry_after_seconds > 0 {
            status["details"]["retryAfterSeconds"] = json!(self.retry_after_seconds);
        }
        status
    }
}

/// `pods`, `deployments.apps`.
fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}
