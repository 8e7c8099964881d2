//! Whether a NodeClass may be launched from, by the root of its conditions.
//!
//! How conditions are kept and summed up in the root is `spokeshave-api`'s; which there are, each provider's.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use spokeshave_api::Condition;
use spokeshave_api::conditions::READY;

/// Why nothing is launched from a class now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// The class is not ready: the NodeClaim is deleted and its pods are planned for again.
    #[error("{0}")]
    Class(String),
    /// Nobody has said yet: the launch is tried again.
    #[error("NodeClass is in Ready=Unknown")]
    Unknown,
}

/// Whether a class may be launched from.
///
/// # Errors
/// When it is not ready, or its status speaks of an older specification.
pub fn readiness<'a>(
    metadata: &ObjectMeta,
    conditions: impl IntoIterator<Item = &'a Condition>,
) -> Result<(), NotReady> {
    let mut roots = conditions
        .into_iter()
        .filter(|condition| condition.type_ == READY);
    let Some(ready) = roots.next() else {
        return Err(NotReady::Unknown);
    };
    match ready.status.as_str() {
        "False" => Err(NotReady::Class(ready.message.clone())),
        "True" if ready.observed_generation == metadata.generation => Ok(()),
        "True" => Err(NotReady::Class(
            "nodeclass status has not been reconciled against the latest spec".to_owned(),
        )),
        _ => Err(NotReady::Unknown),
    }
}
