//! Writing the node that a pod was planned on into its status: best effort, many at once.
//!
//! Owns how such a write is sent and that its failure is nobody's error: the next pass looks at what is there. What is named is decided by others.

use std::sync::atomic::Ordering;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::PodCondition;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use spokeshave_model::{Action, ObjectRef, Pod};
use spokeshave_runtime::Api;

use crate::act::hands::{AT_ONCE, Hands};

impl Hands {
    /// Carries out nominations, and leaves out every other action. Pods that are gone, bound or changed meanwhile are none of its business.
    pub(crate) async fn nominate_all(&self, actions: &[Action]) {
        let nominations = actions.iter().filter_map(|action| match action {
            Action::NominatePod {
                target,
                node,
                condition,
            } => Some((target, node.as_deref(), &**condition)),
            _ => None,
        });
        let write = |(target, node, condition)| self.nominate(target, node, condition);
        futures::stream::iter(nominations)
            .for_each_concurrent(AT_ONCE, write)
            .await;
    }

    async fn nominate(&self, target: &ObjectRef, node: Option<&str>, condition: &PodCondition) {
        // The condition is merged by its type with what scheduler and kubelet have written; the UID guards against a successor of the same name.
        let patch = json!({
            "metadata": {"uid": target.uid},
            "status": {"nominatedNodeName": node, "conditions": [condition]},
        });
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &target.namespace);
        let parameters = PatchParams::default();
        match api
            .patch_status(&target.name, &parameters, &Patch::Strategic(patch))
            .await
        {
            Ok(written) => self.stores.pods.note_written(written),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                if !self.may_not_nominate.swap(true, Ordering::Relaxed) {
                    tracing::warn!(pod = %target, error = status.message, "pods cannot name the node that they were planned on; allow `patch` of `pods/status`, or turn NOMINATE_PODS off");
                }
            }
            Err(error) => {
                self.failures.of_api_server(&error);
                tracing::debug!(pod = %target, %error, "not nominated");
            }
        }
    }
}
