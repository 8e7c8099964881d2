//! Objects of the cluster: copies of AKSNodeClasses, NodeClaims and Nodes, and what is written to them (Z1.4, Z2).
//!
//! Owns the writes. When a class is looked at is [`cluster`](crate::cluster); what its status says is decided in `provider-azure`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use spokeshave_api::{AKSNodeClass, NodeClaim};
use spokeshave_mirror::Mirror;
use spokeshave_provider_azure::class_hash::{HASH_ANNOTATION, STAMP, class_hash};
use spokeshave_provider_azure::status::is_maintenance;
use spokeshave_provider_azure::tags::APPLIED_ANNOTATION;

/// Keeps a class while NodeClaims use it.
pub(crate) const FINALIZER: &str = "karpenter.azure.com/termination";
/// Namespace and name of the ConfigMap with the window of maintenance.
const WINDOW: (&str, &str) = ("kube-system", "upcoming-maintenance-window");
/// A class whose reconciliation failed, or that waits for its NodeClaims to end, is looked at again after this.
pub(crate) const RETRY: SignedDuration = SignedDuration::from_secs(10);

/// Objects of the cluster.
pub(crate) struct Objects {
    pub(crate) client: Client,
    pub(crate) classes: Mirror<AKSNodeClass>,
    pub(crate) claims: Mirror<NodeClaim>,
    pub(crate) nodes: Mirror<Node>,
}

impl Objects {
    pub(crate) fn new(client: Client) -> Self {
        Objects {
            client,
            classes: Mirror::default(),
            claims: Mirror::default(),
            nodes: Mirror::default(),
        }
    }

    /// Version of Kubernetes of the NodeClaim's Node, once it has joined.
    pub(crate) fn kubelet_version(&self, claim: &NodeClaim) -> Option<String> {
        let node = self.nodes.get(claim.node_name()?)?;
        let info = node.status.as_ref()?.node_info.as_ref()?;
        Some(info.kubelet_version.clone()).filter(|version| !version.is_empty())
    }

    /// Whether a NodeClaim uses the class; `None` before NodeClaims are known.
    fn is_used(&self, class: &str) -> Option<bool> {
        let claims = self.claims.all()?;
        Some(claims.iter().any(|claim| {
            let reference = &claim.spec.node_class_ref;
            reference.group == AKSNodeClass::GROUP
                && reference.kind == AKSNodeClass::KIND
                && reference.name == class
        }))
    }

    async fn patch(&self, name: &str, patch: &Value, status: bool) -> Result<AKSNodeClass, String> {
        let classes: Api<AKSNodeClass> = Api::all(self.client.clone());
        let (params, merge) = (PatchParams::default(), Patch::Merge(patch));
        let answer = if status {
            classes.patch_status(name, &params, &merge).await
        } else {
            classes.patch(name, &params, &merge).await
        };
        let class = answer.map_err(|error| format!("patch AKSNodeClass {name}: {error}"))?;
        self.classes.put(name, class.clone());
        Ok(class)
    }

    /// Finalizer and hash (Z-004).
    pub(crate) async fn stamp(&self, class: &AKSNodeClass) -> Result<AKSNodeClass, String> {
        let hash = class_hash(class);
        let Some(patch) = STAMP.class_patch(&class.metadata, FINALIZER, &hash) else {
            return Ok(class.clone());
        };
        self.patch(class.name(), &patch, false).await
    }

    /// NodeClaims that another version of the hash has stamped get ours, so that they drift by nothing but what has drifted before (Z-004).
    pub(crate) async fn stamp_claims(&self, class: &AKSNodeClass) -> Result<(), String> {
        let Some(hash) = class.annotation(HASH_ANNOTATION) else {
            return Ok(());
        };
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        for claim in self.claims.all().unwrap_or_default() {
            let reference = &claim.spec.node_class_ref;
            let is_its = reference.kind == AKSNodeClass::KIND
                && reference.group == AKSNodeClass::GROUP
                && reference.name == class.name();
            let Some(patch) = STAMP.claim_patch(&claim, hash).filter(|_| is_its) else {
                continue;
            };
            let patched = claims
                .patch(claim.name(), &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            patched.map_err(|error| format!("patch NodeClaim {}: {error}", claim.name()))?;
        }
        Ok(())
    }

    /// Writes down which tags a NodeClaim's machine has from settings and class.
    pub(crate) async fn note_tags(
        &self,
        claim: &NodeClaim,
        applied: &BTreeMap<String, String>,
    ) -> Result<(), String> {
        let text = json!(applied).to_string();
        let patch = json!({"metadata": {"uid": claim.uid(), "annotations": {APPLIED_ANNOTATION: text}}});
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        let patched = claims
            .patch(claim.name(), &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        match patched {
            Ok(patched) => self.claims.put(claim.name(), patched),
            // It has ended meanwhile.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
            Err(error) => return Err(format!("patch NodeClaim {}: {error}", claim.name())),
        }
        Ok(())
    }

    /// Lets a class go that nobody uses.
    pub(crate) async fn finalize(&self, class: &AKSNodeClass) -> Result<SignedDuration, String> {
        let mut finalizers = class.metadata.finalizers.clone().unwrap_or_default();
        if self.is_used(class.name()) != Some(false) || !finalizers.iter().any(|it| it == FINALIZER) {
            return Ok(RETRY);
        }
        finalizers.retain(|it| it != FINALIZER);
        let patch = json!({"metadata": {"resourceVersion": class.metadata.resource_version, "finalizers": finalizers}});
        self.patch(class.name(), &patch, false).await.map(|_| RETRY)
    }

    pub(crate) async fn write_status(
        &self,
        before: &AKSNodeClass,
        after: &AKSNodeClass,
    ) -> Result<(), String> {
        if before.status == after.status {
            return Ok(());
        }
        // A list that has become empty must go, too: a merge patch keeps what it does not name.
        let mut status = serde_json::to_value(&after.status).unwrap_or_default();
        let old = serde_json::to_value(&before.status).unwrap_or_default();
        for field in old.as_object().into_iter().flat_map(|old| old.keys()) {
            if status.get(field).is_none() {
                status[field] = Value::Null;
            }
        }
        let patch =
            json!({"metadata": {"resourceVersion": before.metadata.resource_version}, "status": status});
        self.patch(before.name(), &patch, true).await.map(drop)
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
