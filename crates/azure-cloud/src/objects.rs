//! Objects of the cluster: copies of AKSNodeClasses, NodeClaims and Nodes, and what is written to them (Z1.4, Z2).
//!
//! Owns what is written, which core carries out. When a class is looked at is [`cluster`](crate::cluster); what its status says is decided in `provider-azure`.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{Api, Client};
use serde_json::{Value, json};
use spokeshave_api::{AKSNodeClass, NodeClaim};
use spokeshave_mirror::{Mirror, Rounds};
use spokeshave_ports::{NodeClassKind, WatchFailures, Write, WriteError, WriteTarget, Writes};
use spokeshave_provider_azure::class_hash::{HASH_ANNOTATION, STAMP, class_hash};
use spokeshave_provider_azure::status::is_maintenance;
use spokeshave_provider_azure::tags::APPLIED_ANNOTATION;
use spokeshave_provider_common::status_patch::{finalizer_patch, status_patch};

/// Keeps a class while NodeClaims use it.
pub(crate) const FINALIZER: &str = "karpenter.azure.com/termination";
/// Namespace and name of the ConfigMap with the window of maintenance.
const WINDOW: (&str, &str) = ("kube-system", "upcoming-maintenance-window");
/// A class whose reconciliation failed, or that waits for its NodeClaims to end, is looked at again after this.
pub(crate) const RETRY: SignedDuration = SignedDuration::from_secs(10);

/// The kind of its classes.
pub(crate) fn kind() -> NodeClassKind {
    NodeClassKind {
        group: AKSNodeClass::GROUP.to_owned(),
        version: AKSNodeClass::VERSION.to_owned(),
        kind: AKSNodeClass::KIND.to_owned(),
        plural: AKSNodeClass::PLURAL.to_owned(),
    }
}

/// Whether a NodeClaim is launched from the class of this name.
fn uses(claim: &NodeClaim, class: &str) -> bool {
    let reference = &claim.spec.node_class_ref;
    reference.is_aks() && reference.name == class
}

/// Objects of the cluster.
pub(crate) struct Objects {
    pub(crate) client: Client,
    pub(crate) classes: Mirror<AKSNodeClass>,
    pub(crate) claims: Mirror<NodeClaim>,
    pub(crate) nodes: Mirror<Node>,
    /// Of these copies.
    pub(crate) watch_failures: WatchFailures,
    pub(crate) rounds: Rounds,
}

impl Objects {
    pub(crate) fn new(client: Client) -> Self {
        Objects {
            client,
            classes: Mirror::default(),
            claims: Mirror::default(),
            nodes: Mirror::default(),
            watch_failures: WatchFailures::default(),
            rounds: Rounds::default(),
        }
    }

    /// Version of Kubernetes of the NodeClaim's Node, once it has joined.
    pub(crate) fn kubelet_version(&self, claim: &NodeClaim) -> Option<String> {
        let node = self.nodes.get(claim.node_name()?)?;
        let info = node.status.as_ref()?.node_info.as_ref()?;
        Some(info.kubelet_version.clone()).filter(|version| !version.is_empty())
    }

    /// Whether a NodeClaim uses the class; `None` before all NodeClaims are known.
    fn is_used(&self, class: &str) -> Option<bool> {
        let claims = self.claims.complete().ok()?;
        Some(claims.iter().any(|claim| uses(claim, class)))
    }

    async fn write(
        &self,
        class: &AKSNodeClass,
        target: WriteTarget,
        patch: Value,
        writes: &dyn Writes,
    ) -> Result<Arc<AKSNodeClass>, String> {
        let write = Write {
            target,
            name: class.name().to_owned(),
            patch,
        };
        let written = self.classes.write(writes, write).await;
        written.map_err(|error| error.to_string())
    }

    /// Finalizer and hash (Z-004).
    pub(crate) async fn stamp(
        &self,
        class: &Arc<AKSNodeClass>,
        writes: &dyn Writes,
    ) -> Result<Arc<AKSNodeClass>, String> {
        let hash = class_hash(class);
        let Some(patch) = STAMP.class_patch(&class.metadata, FINALIZER, &hash) else {
            return Ok(class.clone());
        };
        self.write(class, WriteTarget::NodeClass(kind()), patch, writes)
            .await
    }

    /// NodeClaims that another version of the hash has stamped get ours, so that they drift by nothing but what has drifted before (Z-004).
    pub(crate) async fn stamp_claims(&self, class: &AKSNodeClass, writes: &dyn Writes) -> Result<(), String> {
        let Some(hash) = class.annotation(HASH_ANNOTATION) else {
            return Ok(());
        };
        let claims = self.claims.all().unwrap_or_default();
        let of_class = claims.iter().filter(|claim| uses(claim, class.name()));
        let stamps = of_class.filter_map(|claim| {
            Some(Write {
                target: WriteTarget::NodeClaim,
                name: claim.name().to_owned(),
                patch: STAMP.claim_patch(claim, hash)?,
            })
        });
        let stamps = stamps.collect();
        let written = self.rounds.write(class.name(), stamps, &self.claims, writes);
        written.await.map_err(|error| error.to_string())
    }

    /// Writes down which tags a NodeClaim's machine has from settings and class.
    pub(crate) async fn note_tags(
        &self,
        claim: &NodeClaim,
        applied: &BTreeMap<String, String>,
        writes: &dyn Writes,
    ) -> Result<(), String> {
        let text = json!(applied).to_string();
        let write = Write {
            target: WriteTarget::NodeClaim,
            name: claim.name().to_owned(),
            patch: json!({"metadata": {
                "uid": claim.uid(),
                "annotations": {APPLIED_ANNOTATION: text},
            }}),
        };
        match self.claims.write(writes, write).await {
            // It has ended meanwhile, or has a successor.
            Ok(_) | Err(WriteError::NotFound(_) | WriteError::Conflict(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Lets a class go that nobody uses.
    pub(crate) async fn finalize(
        &self,
        class: &AKSNodeClass,
        writes: &dyn Writes,
    ) -> Result<SignedDuration, String> {
        if self.is_used(class.name()) != Some(false) {
            return Ok(RETRY);
        }
        let Some(patch) = finalizer_patch(&class.metadata, FINALIZER) else {
            return Ok(RETRY);
        };
        let write = Write {
            target: WriteTarget::NodeClass(kind()),
            name: class.name().to_owned(),
            patch,
        };
        match self.classes.write(writes, write).await {
            Err(error) if !error.is_not_found() => Err(error.to_string()),
            _ => Ok(RETRY),
        }
    }

    pub(crate) async fn write_status(
        &self,
        before: &AKSNodeClass,
        after: &AKSNodeClass,
        writes: &dyn Writes,
    ) -> Result<(), String> {
        let statuses = (before.status.as_ref(), after.status.as_ref());
        let Some(patch) = status_patch(&before.metadata, statuses.0, statuses.1) else {
            return Ok(());
        };
        let target = WriteTarget::NodeClassStatus(kind());
        self.write(before, target, patch, writes).await.map(drop)
    }

    /// Whether images may move now (Z-011). A window that cannot be read keeps them where they are.
    pub(crate) async fn maintenance(&self, now: Timestamp) -> Result<bool, String> {
        let (namespace, name) = WINDOW;
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let found = maps.get_opt(name).await;
        let data = found
            .map_err(|error| format!("get ConfigMap {namespace}/{name}: {error}"))?
            .and_then(|map| map.data)
            .unwrap_or_default();
        let key = |end: &str| {
            data.get(&format!("aksManagedNodeOSUpgradeSchedule-{end}"))
                .map(String::as_str)
        };
        match is_maintenance(key("start"), key("end"), now) {
            Ok(open) => Ok(open),
            Err(problem) => {
                tracing::warn!(problem, "images stay where they are");
                Ok(false)
            }
        }
    }
}
