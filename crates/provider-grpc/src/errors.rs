//! Errors of the protocol as errors of the port, and back (G-010, G4.3), with the replies that carry them.
//!
//! Owns the tables. It decides nothing about retries.

use std::time::Duration;

use spokeshave_ports::CloudError;
use tonic::{Code, Status};

use crate::convert;
use crate::wire::{FailureKind, InstanceState, LaunchFailure, TerminatePostponed, TerminateReply};

/// When a termination is asked for again whose provider says "later", and not when.
const LATER: Duration = Duration::from_secs(60);
/// What a provider may say instead: neither all the time nor never.
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(3600);

/// Why a provider cannot be used from the start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Nobody answers. It may be tried again.
    #[error("the provider at {address} cannot be reached: {reason}")]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What came instead.
        reason: String,
    },
    /// It answers, and what it says rules it out: another cluster, another version, an incomplete identity.
    #[error("the provider at {address} cannot be used: {reason}")]
    Refused {
        /// Where it is.
        address: String,
        /// What was expected and what came.
        reason: String,
    },
}

/// A failed call, by name of the call.
pub(crate) fn cloud_error(call: &str, status: &Status) -> CloudError {
    let message = status.message();
    match status.code() {
        Code::NotFound => CloudError::NodeClaimNotFound(message.to_owned()),
        Code::DeadlineExceeded => CloudError::Timeout(format!("{call}: {message}")),
        Code::FailedPrecondition => CloudError::Other(format!(
            "{call}: the provider refuses this operator (FAILED_PRECONDITION): {message}"
        )),
        Code::Unauthenticated | Code::PermissionDenied => CloudError::Create {
            reason: "Unauthorized".to_owned(),
            message: format!("{call}: {message}"),
        },
        Code::Unimplemented => CloudError::Other(format!(
            "{call}: the provider does not implement a call that it must: {message}"
        )),
        Code::OutOfRange => CloudError::Other(format!(
            "{call}: the provider sent a message longer than {} bytes: {message}",
            crate::LONGEST_MESSAGE_BYTES
        )),
        code => CloudError::Other(format!("{call}: {code:?}: {message}")),
    }
}

/// An error of a provider in this process, for calls that have no failure of their own.
pub(crate) fn status(error: &CloudError) -> Status {
    match error {
        CloudError::NodeClaimNotFound(message) => Status::not_found(message),
        CloudError::NodeClassNotReady(message) => Status::failed_precondition(message),
        CloudError::InsufficientCapacity(message) => Status::resource_exhausted(message),
        CloudError::Timeout(message) => Status::deadline_exceeded(message),
        CloudError::Create { message, .. } => Status::aborted(message),
        CloudError::Postponed { message, .. } => Status::unavailable(message),
        CloudError::UnevaluatedNodePool(message) | CloudError::Other(message) => Status::unknown(message),
    }
}

/// An error of a launch, for the other side.
pub(crate) fn failure_of(error: &CloudError) -> LaunchFailure {
    let (kind, reason, message) = match error {
        CloudError::InsufficientCapacity(message) => (FailureKind::InsufficientCapacity, "", message),
        CloudError::NodeClassNotReady(message) => (FailureKind::ClassNotReady, "", message),
        CloudError::Create { reason, message } => (FailureKind::Invalid, reason.as_str(), message),
        CloudError::Timeout(message) => (FailureKind::Timeout, "", message),
        CloudError::NodeClaimNotFound(message)
        | CloudError::UnevaluatedNodePool(message)
        | CloudError::Postponed { message, .. }
        | CloudError::Other(message) => (FailureKind::Transient, "", message),
    };
    LaunchFailure {
        kind: kind.into(),
        reason: reason.to_owned(),
        message: message.clone(),
    }
}

/// What a failed launch means here. A kind that is not known is retried (G-020).
pub(crate) fn launch_error(failure: LaunchFailure) -> CloudError {
    let kind = failure.kind();
    let LaunchFailure { reason, message, .. } = failure;
    match kind {
        FailureKind::InsufficientCapacity => CloudError::InsufficientCapacity(message),
        FailureKind::ClassNotReady => CloudError::NodeClassNotReady(message),
        FailureKind::Invalid => CloudError::Create {
            reason: if reason.is_empty() {
                "LaunchFailed".to_owned()
            } else {
                reason
            },
            message,
        },
        FailureKind::Timeout => CloudError::Timeout(message),
        FailureKind::Unspecified | FailureKind::Transient => CloudError::Other(message),
    }
}

/// What a termination has come to, for the other side. One that is postponed has not failed.
pub(crate) fn termination_reply(ended: Result<(), CloudError>) -> Result<TerminateReply, Status> {
    let (state, postponed) = match ended {
        Ok(()) => (InstanceState::Terminating, None),
        Err(CloudError::Postponed { message, again_after }) => {
            let ask_again_after = prost_types::Duration::try_from(again_after).ok();
            let postponed = TerminatePostponed {
                message,
                ask_again_after,
            };
            (InstanceState::Running, Some(postponed))
        }
        Err(error) => return Err(status(&error)),
    };
    Ok(TerminateReply {
        state: state.into(),
        postponed,
    })
}

/// What the reply to a termination means here.
pub(crate) fn termination(reply: TerminateReply, provider_id: &str) -> Result<(), CloudError> {
    if reply.state() == InstanceState::Gone {
        return Err(CloudError::NodeClaimNotFound(format!(
            "instance {provider_id} is gone"
        )));
    }
    let Some(postponed) = reply.postponed else {
        return Ok(());
    };
    let again_after = convert::duration_of(postponed.ask_again_after);
    Err(CloudError::Postponed {
        message: postponed.message,
        again_after: again_after.unwrap_or(LATER).clamp(SOONEST, LATEST),
    })
}

/// What a call has answered, or that it has not within its limit.
pub(crate) fn answered<T>(
    call: &str,
    limit: Duration,
    answer: Option<Result<tonic::Response<T>, Status>>,
) -> Result<T, CloudError> {
    match answer {
        Some(Ok(answer)) => Ok(answer.into_inner()),
        Some(Err(status)) => Err(cloud_error(call, &status)),
        None => Err(no_answer(call, limit)),
    }
}

/// The same of a call about an instance (G-014): an ID that the provider calls invalid is none of its own, so that it has no instance of it.
pub(crate) fn answered_about<T>(
    provider_id: &str,
    call: &str,
    limit: Duration,
    answer: Option<Result<tonic::Response<T>, Status>>,
) -> Result<T, CloudError> {
    match answer {
        Some(Err(status)) if status.code() == Code::InvalidArgument && !provider_id.is_empty() => {
            let said = status.message();
            Err(CloudError::NodeClaimNotFound(format!(
                "{call}: {provider_id} is no ID of the provider's: {said}"
            )))
        }
        answer => answered(call, limit, answer),
    }
}

/// A call without an answer.
pub(crate) fn no_answer(call: &str, limit: Duration) -> CloudError {
    CloudError::Timeout(format!(
        "the provider has not answered {call} within {} s",
        limit.as_secs()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g_010_every_error_of_a_launch_is_the_same_on_the_other_side() {
        let errors = [
            CloudError::InsufficientCapacity("none".into()),
            CloudError::NodeClassNotReady("not yet".into()),
            CloudError::Create {
                reason: "Why".into(),
                message: "that".into(),
            },
            CloudError::Timeout("silence".into()),
            CloudError::Other("something".into()),
        ];
        for error in errors {
            assert_eq!(launch_error(failure_of(&error)), error);
        }
    }

    #[test]
    fn g_010_w_30_what_a_termination_comes_to_is_the_same_on_the_other_side() {
        let postponed = |again_after| CloudError::Postponed {
            message: "zone a is shifted".into(),
            again_after,
        };
        for ended in [Ok(()), Err(postponed(Duration::from_secs(30)))] {
            let reply = termination_reply(ended.clone()).expect("a reply");
            assert_eq!(termination(reply, "a"), ended);
        }
        for (asked, meant) in [
            (None, LATER),
            (Some(Duration::ZERO), SOONEST),
            (Some(LATEST * 24), LATEST),
        ] {
            let mut reply = termination_reply(Err(postponed(LATER))).expect("a reply");
            let told = reply.postponed.as_mut().expect("it is postponed");
            told.ask_again_after = asked.and_then(|after| prost_types::Duration::try_from(after).ok());
            assert_eq!(termination(reply, "a"), Err(postponed(meant)));
        }
        let gone = termination_reply(Err(CloudError::NodeClaimNotFound("a".into())));
        assert_eq!(gone.expect_err("a status").code(), Code::NotFound);
    }

    #[test]
    fn g_020_a_failure_of_an_unknown_kind_is_retried() {
        let failure = LaunchFailure {
            kind: 99,
            reason: String::new(),
            message: "new kind".into(),
        };
        assert_eq!(launch_error(failure), CloudError::Other("new kind".into()));
    }
}
