//! Whether an instance is still what its AKSNodeClass asks for (Z7).

use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::{AKSNodeClass, NodeClaim};

use crate::class_hash::STAMP;
use crate::status::{Draft, IMAGES_READY, KUBERNETES_VERSION_READY};

/// Why an instance has drifted; the order is that in which it is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drift {
    /// A field of the class that is part of its hash has changed.
    NodeClass,
    /// New nodes get another version of Kubernetes.
    KubernetesVersion,
    /// The image is none of the class's.
    Image,
    /// AKS says that the machine is no longer what the cluster's configuration makes (D-240).
    ClusterConfig,
}

impl Drift {
    /// Reason, as upstream names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Drift::NodeClass => "NodeClassDrift",
            Drift::KubernetesVersion => "K8sVersionDrift",
            Drift::Image => "ImageDrift",
            Drift::ClusterConfig => "ClusterConfigDrift",
        }
    }
}

/// What AKS says of a machine that is as it should be.
const SYNCED: &str = "Synced";

/// What drift reads of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instance {
    /// ID of its image.
    pub image_id: String,
    /// Version of Kubernetes that it was asked to run. Of a machine that nobody has written it down for, what its kubelet says, if it has joined.
    pub kubernetes_version: Option<String>,
    /// What AKS would have done with a machine of its own; empty for any other.
    pub drift_action: String,
}

/// Whether static drift is to be seen: both carry a hash of the same version, and they differ (Z-004).
#[must_use]
pub fn is_static(class: &AKSNodeClass, claim: &NodeClaim) -> bool {
    STAMP.has_drifted(&class.metadata, &claim.metadata)
}

/// Why the claim's instance is no longer what its class asks for; `None` when it is, and while the class's status is not settled: what is being
/// looked up drifts nothing.
#[must_use]
pub fn check(class: &AKSNodeClass, claim: &NodeClaim, instance: &Instance) -> Option<Drift> {
    if is_static(class, claim) {
        return Some(Drift::NodeClass);
    }
    status_drift(class, instance).or_else(|| {
        // Whatever AKS wants to be done, a new machine does it.
        let is_synced = matches!(instance.drift_action.as_str(), "" | SYNCED);
        (!is_synced).then_some(Drift::ClusterConfig)
    })
}

fn status_drift(class: &AKSNodeClass, instance: &Instance) -> Option<Drift> {
    let status = class.status.as_ref()?;
    let draft = Draft(class.clone());
    if let (Some(wanted), Some(actual)) = (&status.kubernetes_version, &instance.kubernetes_version)
        && draft.is_true(KUBERNETES_VERSION_READY)
        && numbers(wanted) != numbers(actual)
    {
        return Some(Drift::KubernetesVersion);
    }
    let is_known = status
        .images
        .iter()
        .any(|image| image.id.eq_ignore_ascii_case(&instance.image_id));
    let settled = draft.is_true(IMAGES_READY) && !status.images.is_empty() && !instance.image_id.is_empty();
    (settled && !is_known).then_some(Drift::Image)
}

/// The numbers of a version. Distributions add to those of their API servers what their kubelets do not say, and the other way round (`1.34.1+k3s1`,
/// `1.34.1-eks-0123`).
fn numbers(version: &str) -> &str {
    let version = version.trim_start_matches('v');
    version.split(['+', '-']).next().unwrap_or(version)
}
