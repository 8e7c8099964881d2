//! Why a write failed, by what the caller does about it.
//!
//! Owns the classes and how an answer of the API server is put into one.

use spokeshave_model::ObjectRef;

/// Why an Action was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecuteError {
    /// The object has changed since the decision; decide again.
    #[error("{target} has changed meanwhile")]
    Conflict {
        /// Which.
        target: String,
    },
    /// The object is gone.
    #[error("{target} is gone")]
    NotFound {
        /// Which.
        target: String,
    },
    /// An eviction was refused for now.
    #[error("eviction of {target} is refused for now: {message}")]
    Refused {
        /// Which pod.
        target: String,
        /// What the server says.
        message: String,
        /// More than one budget covers the pod.
        several_budgets: bool,
        /// A PodDisruptionBudget refuses; otherwise it is the server itself, or somebody's admission webhook.
        by_budget: bool,
        /// When the server wants to be asked again at the earliest.
        retry_after: Option<std::time::Duration>,
        /// HTTP status.
        code: u16,
    },
    /// Anything else; tried again with back-off.
    #[error("{verb} {target}: {source}")]
    Failed {
        /// What was tried.
        verb: &'static str,
        /// On which object.
        target: String,
        /// What the server says.
        source: kube::Error,
    },
}

impl ExecuteError {
    /// The object is gone.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, ExecuteError::NotFound { .. })
    }

    /// The object has changed.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, ExecuteError::Conflict { .. })
    }

    /// Nobody knows whether the request took effect: the server did not answer, or failed itself.
    pub(super) fn is_unanswered(&self) -> bool {
        let is_answer = |source: &kube::Error| match source {
            kube::Error::Api(status) => status.code < 500,
            kube::Error::SerdeError(_) => true,
            _ => false,
        };
        matches!(self, ExecuteError::Failed { source, .. } if !is_answer(source))
    }

    /// The request took effect, and what the server answered cannot be read, as where a webhook or another definition made something else of it.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(
            self,
            ExecuteError::Failed {
                source: kube::Error::SerdeError(_),
                ..
            }
        )
    }

    /// What was to be created may be there, or is: nobody answered, the answer cannot be read, or it says so.
    pub(crate) fn may_exist(&self) -> bool {
        self.is_unanswered() || self.is_unreadable() || self.says_already_exists()
    }

    pub(super) fn says_already_exists(&self) -> bool {
        matches!(self, ExecuteError::Failed { source: kube::Error::Api(status), .. } if is_already_there(status))
    }
}

/// Whether a creation was refused because there is one.
fn is_already_there(status: &kube::core::Status) -> bool {
    status.code == 409 && status.reason == "AlreadyExists"
}

/// The Eviction API gives the cause `DisruptionBudget` with its 429; a 429 without it comes from a server that is busy.
pub(super) fn names_a_budget(status: &kube::core::Status) -> bool {
    status.code == 429
        && status.details.as_ref().is_none_or(|details| {
            (details.causes.is_empty() && details.retry_after_seconds == 0)
                || details
                    .causes
                    .iter()
                    .any(|cause| cause.reason == "DisruptionBudget")
        })
}

/// When a refused eviction may be tried again, where the server says so.
pub(super) fn retry_after(status: &kube::core::Status) -> Option<std::time::Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| std::time::Duration::from_secs(u64::from(seconds)))
}

/// The class of a failed request.
pub(super) fn classify(verb: &'static str, target: &ObjectRef, source: kube::Error) -> ExecuteError {
    let target = target.to_string();
    match &source {
        kube::Error::Api(status) if status.code == 404 => ExecuteError::NotFound { target },
        kube::Error::Api(status) if status.code == 409 => ExecuteError::Conflict { target },
        _ => ExecuteError::Failed { verb, target, source },
    }
}
