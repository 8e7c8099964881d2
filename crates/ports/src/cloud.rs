//! The CloudProvider port: what a cloud must be able to do, and the closed set of ways in which it may fail (P §14).
//!
//! Owns the trait and its errors. It never knows a particular cloud.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube_core::DynamicObject;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::volumes::Unsupported;
use spokeshave_model::{InstanceType, PriceFeed};

use crate::interruption::{Interruption, Interruptions};
use crate::measurement::Measurement;
use crate::node_class_kind::NodeClassKind;
use crate::notice::Notices;
use crate::watch_failures::WatchFailures;
use crate::writes::SharedWrites;

/// Length to which conditions and events cut a provider's error text, in characters (P §17).
const SHORT_MESSAGE_CHARACTERS: usize = 300;

/// What a call to a cloud gives.
pub type CloudFuture<'a, T> = BoxFuture<'a, Result<T, CloudError>>;

/// A cloud that can launch machines and take them back (P §14). Every implementation passes
/// [`conformance`](crate::conformance).
///
/// Calls may be repeated after a crash of the caller at any point: `create` is idempotent by the NodeClaim's UID, `delete`
/// by the instance. All waiting happens on the [`Clock`](crate::Clock) that the provider was made with.
pub trait CloudProvider: Send + Sync + fmt::Debug {
    /// Name of the provider, such as `kwok`; label `provider` of the metrics.
    fn name(&self) -> &str;

    /// The kinds of NodeClass that it serves; the first is the default. An object is "ours" when its nodeClassRef names one.
    fn supported_node_classes(&self) -> &[NodeClassKind];

    /// Launches an instance for the NodeClaim, or finds the one already launched for its UID. The answer carries the labels
    /// of the node to be, the provider ID, the image ID, capacity and allocatable.
    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim>;

    /// The same, when NodeOverlays correct instance types of the NodeClaim's NodePool (P §13): what is cheapest goes by these prices, and the node has
    /// these capacities. A cloud without a choice of its own need not care.
    fn create_from<'a>(
        &'a self,
        claim: &'a NodeClaim,
        types: &'a [InstanceType],
    ) -> CloudFuture<'a, NodeClaim> {
        let _ = types;
        self.create(claim)
    }

    /// Begins to terminate the instance of `status.providerID`. `Ok` means begun; `NodeClaimNotFound` means gone; `Postponed` means that it is still
    /// running and that this is no failure.
    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()>;

    /// The instance with this provider ID, as a NodeClaim. `NodeClaimNotFound` when there is none.
    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim>;

    /// Every instance of this cluster that still exists, also those that have no Node (yet), ordered by provider ID. Each
    /// carries `metadata.creationTimestamp`, from which the age of a leaked instance is counted, and one that is terminating
    /// carries `metadata.deletionTimestamp` (D §7.3).
    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>>;

    /// All instance types that the NodePool's NodeClass allows, also those without an available offering, ordered by name.
    ///
    /// The value itself is the version of prices and offerings: while nothing has changed, every call gives the *same* allocation
    /// ([`Arc::ptr_eq`]), and after a change (a price, an offering that runs out or comes back, also by the passing of time) another one. Callers ask
    /// every few seconds, and everything that depends on it is looked at again when the answer is another: keep it, and make it cheap to give.
    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>>;

    /// Why the instance no longer is what its NodeClass asks for; `None` when it is, or when there is no such class.
    ///
    /// `class` is the NodeClass as the caller has seen it, and the answer goes by this object alone, not by a copy of the provider's own: a copy may lag
    /// behind the change that made the caller ask, and nobody would ask again for minutes.
    fn is_drifted<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: Option<&'a DynamicObject>,
    ) -> CloudFuture<'a, Option<String>>;

    /// Node conditions that mean "broken", in the order in which they are tried.
    fn repair_policies(&self) -> &[RepairPolicy];

    /// Messages about instances that will end. Each comes again until it is acknowledged; `None` when the cloud sends none.
    fn interruptions(&self) -> Option<Interruptions<'_>> {
        None
    }

    /// Deletes a message.
    fn acknowledge<'a>(&'a self, message: &'a Interruption) -> CloudFuture<'a, ()> {
        let _ = message;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Work of its own that only the leader does, such as keeping NodeClasses' status true. It is begun when a replica leads and given up when that
    /// ends; a cloud without any never completes. Whatever it writes to Kubernetes goes through `writes`: core sends nothing for a replica that no longer
    /// leads, which a client of the provider's own could not know.
    fn lead(&self, writes: SharedWrites) -> BoxFuture<'_, ()> {
        drop(writes);
        Box::pin(std::future::pending())
    }

    /// The part of [`lead`](CloudProvider::lead) that only reads, such as following prices and instance types: for an operator that decides and changes
    /// nothing. A cloud without any never completes.
    fn follow(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// How old prices are, for clouds whose prices change.
    fn price_feed(&self) -> PriceFeed {
        PriceFeed::Fixed
    }

    /// Its own metrics, every family on every call even when it has no series yet.
    fn measurements(&self) -> Vec<Measurement> {
        Vec::new()
    }

    /// Failed lists and watches of its own, which count together with core's; `None` when it has none.
    fn watch_failures(&self) -> Option<&WatchFailures> {
        None
    }

    /// What users should read as Events; `None` when the cloud has nothing to say.
    fn notices(&self) -> Option<Notices<'_>> {
        None
    }

    /// What must be done before a Node that has joined may register (P §9.3).
    fn registration_hooks(&self) -> &[Arc<dyn RegistrationHook>] {
        &[]
    }

    /// Provisioners and topology keys of volumes that its nodes cannot use (P-118); pods that need them are not planned for.
    fn unsupported_volumes(&self) -> Unsupported {
        Unsupported::default()
    }
}

/// Work of a provider between the appearance of a Node and its registration: until every hook is ready the Node keeps its taint
/// `karpenter.sh/unregistered`, so that no pod lands on it.
pub trait RegistrationHook: Send + Sync + fmt::Debug {
    /// Name for the condition of the NodeClaim that waits.
    fn name(&self) -> &str;

    /// Whether the NodeClaim's Node may register. It is asked again, also after a restart, until it says so; an error counts as "not yet".
    fn registered<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, HookAnswer>;
}

/// What a [`RegistrationHook`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookAnswer {
    /// The Node may register.
    Ready,
    /// Not yet: ask again after this time.
    AskAgain(Duration),
}

impl fmt::Display for NodeClassKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.group)
    }
}

/// A Node condition that means "this machine is broken" (P §14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairPolicy {
    /// Type of the Node's condition, such as `Ready`.
    pub condition_type: String,
    /// Status of that condition in which the Node counts as broken: `True`, `False` or `Unknown`.
    pub condition_status: String,
    /// How long the condition must have been in that status before the Node may be replaced.
    pub toleration: Duration,
}

/// Reason of a [`CloudError::Create`] whose NodeClass is not known now: it was not listed yet, or cannot be read. No failure of the cloud.
pub const NODE_CLASS_UNKNOWN: &str = "NodeClassUnknown";

/// Why a cloud did not do what it was asked. The set is closed: the controllers react to each member (P §9.2, §9.6, §13).
/// Whoever adds context keeps the member, with [`CloudError::context`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// The instance does not exist (any more).
    #[error("nodeclaim not found, {0}")]
    NodeClaimNotFound(String),
    /// No offering that the NodeClaim allows has capacity now. The NodeClaim is deleted and its pods are planned for again.
    #[error("insufficient capacity, {0}")]
    InsufficientCapacity(String),
    /// The NodeClass cannot be used now. The NodeClaim is deleted.
    #[error("NodeClassRef not ready, {0}")]
    NodeClassNotReady(String),
    /// The launch failed for a reason that the user should read in the NodeClaim's `Launched` condition; it is retried.
    #[error("creating nodeclaim, {message}")]
    Create {
        /// Reason of the condition, in CamelCase.
        reason: String,
        /// Message of the condition.
        message: String,
    },
    /// Instance types of this NodePool are not known yet, because its overlays have not been evaluated (P §13).
    #[error("nodepool has not been evaluated, {0}")]
    UnevaluatedNodePool(String),
    /// No answer in time; what the cloud did is unknown.
    #[error("timed out, {0}")]
    Timeout(String),
    /// Not now, for a reason that will pass; nothing has failed.
    #[error("postponed, {message}")]
    Postponed {
        /// Why, and until when.
        message: String,
        /// When to ask again.
        again_after: Duration,
    },
    /// Anything else, retried with back-off.
    #[error("{0}")]
    Other(String),
}

impl CloudError {
    /// Value of the label `error` in `karpenter_cloudprovider_errors_total` (P §16); empty for errors without a name.
    #[must_use]
    pub fn metric_label(&self) -> &'static str {
        match self {
            CloudError::NodeClaimNotFound(_) => "NodeClaimNotFoundError",
            CloudError::InsufficientCapacity(_) => "InsufficientCapacityError",
            CloudError::NodeClassNotReady(_) => "NodeClassNotReadyError",
            CloudError::Create { .. }
            | CloudError::UnevaluatedNodePool(_)
            | CloudError::Timeout(_)
            | CloudError::Postponed { .. }
            | CloudError::Other(_) => "",
        }
    }

    /// True when the instance is gone.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, CloudError::NodeClaimNotFound(_))
    }

    /// The same member of the set with `context` before its message.
    #[must_use]
    pub fn context(self, context: &str) -> Self {
        let wrap = |message: String| format!("{context}: {message}");
        match self {
            CloudError::NodeClaimNotFound(message) => CloudError::NodeClaimNotFound(wrap(message)),
            CloudError::InsufficientCapacity(message) => CloudError::InsufficientCapacity(wrap(message)),
            CloudError::NodeClassNotReady(message) => CloudError::NodeClassNotReady(wrap(message)),
            CloudError::Create { reason, message } => CloudError::Create {
                reason,
                message: wrap(message),
            },
            CloudError::UnevaluatedNodePool(message) => CloudError::UnevaluatedNodePool(wrap(message)),
            CloudError::Timeout(message) => CloudError::Timeout(wrap(message)),
            CloudError::Postponed { message, again_after } => CloudError::Postponed {
                message: wrap(message),
                again_after,
            },
            CloudError::Other(message) => CloudError::Other(wrap(message)),
        }
    }

    /// The whole text, cut to the length that conditions and events carry (300 characters, P §17).
    #[must_use]
    pub fn short_message(&self) -> String {
        let text = self.to_string();
        match text.char_indices().nth(SHORT_MESSAGE_CHARACTERS) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P §14: detection sees through wrapping; the texts are upstream's.
    #[test]
    fn context_keeps_the_member() {
        let error = CloudError::InsufficientCapacity("no offering is left".into()).context("zone a");
        assert_eq!(
            error.to_string(),
            "insufficient capacity, zone a: no offering is left"
        );
        assert_eq!(error.metric_label(), "InsufficientCapacityError");
        assert!(
            CloudError::NodeClaimNotFound("x".into())
                .context("y")
                .is_not_found()
        );
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let short = CloudError::Other("ä".repeat(400)).short_message();
        assert_eq!(short.chars().count(), 303);
        assert_eq!(CloudError::Other("brief".into()).short_message(), "brief");
    }

    /// P §1.7.
    #[test]
    fn the_label_of_a_node_class() {
        let kind = NodeClassKind {
            group: "karpenter.kwok.sh".into(),
            version: "v1alpha1".into(),
            kind: "KWOKNodeClass".into(),
            plural: "kwoknodeclasses".into(),
        };
        assert_eq!(kind.label(), "karpenter.kwok.sh/kwoknodeclass");
        assert_eq!(kind.api_version(), "karpenter.kwok.sh/v1alpha1");
    }
}
