//! Why a write failed, by what the caller does about it.
//!
//! Owns the classes and how an answer of the API server is put into one.

use spokeshave_model::ObjectRef;
use spokeshave_ports::{causes, is_conflict, is_refused};

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
        /// Who refuses it.
        by: Refuser,
        /// When the server wants to be asked again at the earliest.
        retry_after: Option<std::time::Duration>,
        /// HTTP status.
        code: u16,
    },
    /// Anything else; tried again with back-off.
    #[error("{verb} {target}: {}", causes(.source))]
    Failed {
        /// What was tried.
        verb: &'static str,
        /// On which object.
        target: String,
        /// What the server says.
        source: kube::Error,
    },
}

/// Who refuses an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refuser {
    /// A PodDisruptionBudget.
    Budget,
    /// More than one budget covers the pod.
    SeveralBudgets,
    /// The server is busy and refuses nobody in particular.
    BusyServer,
    /// The server itself, or somebody's admission webhook.
    Other,
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
    pub(crate) fn is_unanswered(&self) -> bool {
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

    /// What the API server says where it refuses a creation for good.
    pub(super) fn refusal(&self) -> Option<String> {
        match self {
            ExecuteError::Failed {
                source: kube::Error::Api(status),
                ..
            } if is_refused(status) => Some(status.message.clone()),
            _ => None,
        }
    }
}

/// Whether a creation was refused because there is one.
fn is_already_there(status: &kube::core::Status) -> bool {
    status.code == 409 && status.reason == "AlreadyExists"
}

/// Text of the API server for a pod under several budgets (D-331).
const SEVERAL_BUDGETS: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";

/// Who refuses an eviction that was answered with this.
pub(super) fn refuser(status: &kube::core::Status) -> Refuser {
    if status.message == SEVERAL_BUDGETS {
        Refuser::SeveralBudgets
    } else if names_a_budget(status) {
        Refuser::Budget
    } else if is_busy(status) {
        Refuser::BusyServer
    } else {
        Refuser::Other
    }
}

/// The Eviction API gives the cause `DisruptionBudget` with its 429 (D-330).
fn names_a_budget(status: &kube::core::Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 429 && causes.any(|cause| cause.reason == "DisruptionBudget")
}

/// Of a webhook that denies a request, the API server passes the code on, which may be 429 as well. Any other 429 without a budget comes from a server that is
/// busy (D-330).
fn is_busy(status: &kube::core::Status) -> bool {
    status.code == 429 && !names_a_budget(status) && !status.message.starts_with("admission webhook \"")
}

/// When a refused eviction may be tried again, where the server says so.
pub(super) fn retry_after(status: &kube::core::Status) -> Option<std::time::Duration> {
    let told = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    // A server that sheds its load says how long in a header, of which kube does not tell: a second, or more.
    let seconds = told.max(u32::from(is_busy(status)));
    (seconds > 0).then(|| std::time::Duration::from_secs(u64::from(seconds)))
}

/// The class of a failed request.
pub(super) fn classify(verb: &'static str, target: &ObjectRef, source: kube::Error) -> ExecuteError {
    let target = target.to_string();
    match &source {
        kube::Error::Api(status) if status.code == 404 => ExecuteError::NotFound { target },
        kube::Error::Api(status) if is_conflict(status) => ExecuteError::Conflict { target },
        _ => ExecuteError::Failed { verb, target, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use spokeshave_model::ObjectKind;
    use std::time::Duration;

    fn status(code: u16, details: Value) -> kube::core::Status {
        let status = json!({"status": "Failure", "code": code, "details": details});
        serde_json::from_value(status).expect("a status")
    }

    #[test]
    fn d_102_what_a_busy_or_failing_server_answers_is_no_refusal() {
        let of = |code: u16| {
            let status = kube::core::Status {
                message: "denied".to_owned(),
                ..status(code, Value::Null)
            };
            let error = ExecuteError::Failed {
                verb: "create nodeclaim",
                target: "n".to_owned(),
                source: kube::Error::Api(status.boxed()),
            };
            error.refusal()
        };
        for code in [400, 403, 422] {
            assert_eq!(of(code).as_deref(), Some("denied"), "{code}");
        }
        for code in [401, 404, 409, 429, 500, 503] {
            assert_eq!(of(code), None, "{code}");
        }
    }

    #[test]
    fn d_330_only_that_429_with_its_cause_is_a_budgets() {
        let budget = json!({"causes": [{"reason": "DisruptionBudget"}]});
        let told = json!({"causes": [{"reason": "DisruptionBudget"}], "retryAfterSeconds": 10});
        let cases = [
            (status(429, Value::Null), false, Some(1)),
            (status(429, json!({"retryAfterSeconds": 7})), false, Some(7)),
            (status(429, budget), true, None),
            (status(429, told), true, Some(10)),
            (status(500, Value::Null), false, None),
            (status(503, json!({"retryAfterSeconds": 5})), false, Some(5)),
        ];
        for (status, by_budget, seconds) in cases {
            assert_eq!(names_a_budget(&status), by_budget, "{status:?}");
            assert_eq!(
                retry_after(&status),
                seconds.map(Duration::from_secs),
                "{status:?}"
            );
        }
    }

    #[test]
    fn d_330_a_webhook_that_denies_with_429_is_no_busy_server() {
        let with = |message: &str| kube::core::Status {
            message: message.to_owned(),
            ..status(429, Value::Null)
        };
        let denied = with("admission webhook \"guard.example.com\" denied the request: it moves");
        assert!(!is_busy(&denied) && !names_a_budget(&denied));
        assert_eq!(retry_after(&denied), None);
        assert!(is_busy(&with("too many requests, please try again later")));
        let budget = json!({"causes": [{"reason": "DisruptionBudget"}]});
        assert!(!is_busy(&status(429, budget)));
        assert!(!is_busy(&status(503, Value::Null)));
    }

    /// As a client wraps what has happened to its connection.
    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Unconnected(#[source] std::io::Error);

    #[test]
    fn a_request_that_did_not_get_through_says_why() {
        let cause = Unconnected(std::io::Error::other("connection refused"));
        let error = ExecuteError::Failed {
            verb: "create nodeclaim",
            target: "n".to_owned(),
            source: kube::Error::Service(Box::new(cause)),
        };
        assert_eq!(
            error.to_string(),
            "create nodeclaim n: ServiceError: client error (Connect): connection refused"
        );
        // Nor is any of it said twice where an error is told with its causes.
        assert_eq!(causes(&error), error.to_string());
    }

    #[test]
    fn a_patch_that_names_another_object_is_looked_at_again() {
        let class = |code, field: &str| {
            let details = json!({"causes": [{"reason": "FieldValueInvalid", "field": field}]});
            let source = kube::Error::Api(status(code, details).boxed());
            classify("patch", &ObjectRef::cluster(ObjectKind::Node, "n", "u"), source)
        };
        assert!(class(422, "metadata.uid").is_conflict());
        assert!(class(409, "").is_conflict());
        assert!(!class(422, "metadata.labels").is_conflict());
    }
}
