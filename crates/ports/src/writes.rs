//! What a provider has core write to Kubernetes while it leads: NodeClasses with their status, and marks on NodeClaims and Nodes.
//!
//! Owns the words of such a write. Core carries it out under the lease, so that a provider needs no access of its own that could outlive its term.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube_core::Status;
use serde_json::Value;

use crate::node_class_kind::NodeClassKind;

/// What is written; all of these are cluster-scoped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteTarget {
    /// A NodeClass, apart from its status.
    NodeClass(NodeClassKind),
    /// The status of a NodeClass.
    NodeClassStatus(NodeClassKind),
    /// A NodeClaim.
    NodeClaim,
    /// A Node.
    Node,
}

/// One write: a JSON merge patch of an object. With a `metadata.resourceVersion` in it, it is refused once the object has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The kind of the object.
    pub target: WriteTarget,
    /// Its name.
    pub name: String,
    /// What changes.
    pub patch: Value,
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.target {
            WriteTarget::NodeClass(kind) | WriteTarget::NodeClassStatus(kind) => &kind.kind,
            WriteTarget::NodeClaim => "NodeClaim",
            WriteTarget::Node => "Node",
        };
        write!(f, "patch {kind} {}", self.name)
    }
}

/// Why an object was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object is gone.
    #[error("{0}")]
    NotFound(String),
    /// The object has changed since the version, or is another one than the UID, that the patch names.
    #[error("{0}")]
    Conflict(String),
    /// The API server does not take this write: a rule, a policy or a webhook is against it.
    #[error("{0}")]
    Refused(String),
    /// Anything else: this replica no longer leads, the API server fails.
    #[error("{0}")]
    Failed(String),
}

impl WriteError {
    /// The object is gone.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, WriteError::NotFound(_))
    }

    /// Whether this is an answer about the object: the same write of another one may fare better.
    #[must_use]
    pub fn is_about_the_object(&self) -> bool {
        !matches!(self, WriteError::Failed(_))
    }
}

/// Whether the API server refuses a write because the object has changed since the version that the write names, or is another one than its UID. To a patch, an
/// API server answers the latter with 422: the UID is a field that may not change.
#[must_use]
pub fn is_conflict(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 409 || status.code == 422 && causes.any(|cause| cause.field == "metadata.uid")
}

/// Whether the API server refuses a write for good: a rule, a policy or a webhook is against it, or a permission is missing. A webhook that denies without a
/// code of its own has 400.
#[must_use]
pub fn is_refused(status: &Status) -> bool {
    matches!(status.code, 400 | 403 | 422) && !is_conflict(status)
}

/// Carries out a provider's writes.
pub trait Writes: fmt::Debug + Send + Sync {
    /// Writes, and gives the object as it is then.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Value, WriteError>>;

    /// How many leaders there have been, this one included (`leaseTransitions` of the Lease); 0 where nobody counts, as without a Lease. It grows with
    /// every leader unless the Lease is made anew.
    fn leader_term(&self) -> u64 {
        0
    }
}

/// Shared by all parts of a provider that write.
pub type SharedWrites = Arc<dyn Writes>;

/// Refuses every write: for a provider that was given no access to a cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWrites;

impl Writes for NoWrites {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Value, WriteError>> {
        let error = format!("{write}: this provider was given no access to write to a cluster");
        Box::pin(std::future::ready(Err(WriteError::Failed(error))))
    }
}
