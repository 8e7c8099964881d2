//! A provider's writes, sent with a client.
//!
//! Owns the requests. Whether they are sent at all is the client's: core gives its fenced one.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Client, Resource};
use serde_json::Value;
use spokeshave_ports::{NodeClassKind, Write, WriteError, WriteTarget, Writes, is_conflict, is_refused};

type Notice = Arc<dyn Fn(&kube::Error) + Send + Sync>;

/// Writes with a client. Clones are the same.
#[derive(Clone)]
pub struct ClientWrites {
    client: Client,
    on_failure: Option<Notice>,
}

impl std::fmt::Debug for ClientWrites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientWrites")
    }
}

impl ClientWrites {
    /// Writes that this client sends.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            on_failure: None,
        }
    }

    /// The same, and `notice` is told of every write that fails.
    #[must_use]
    pub fn noticing(self, notice: impl Fn(&kube::Error) + Send + Sync + 'static) -> Self {
        Self {
            on_failure: Some(Arc::new(notice)),
            ..self
        }
    }

    fn api(&self, target: &WriteTarget) -> Api<DynamicObject> {
        let of_class = |kind: &NodeClassKind| {
            let names = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
            ApiResource::from_gvk_with_plural(&names, &kind.plural)
        };
        let resource = match target {
            WriteTarget::NodeClass(kind) | WriteTarget::NodeClassStatus(kind) => of_class(kind),
            WriteTarget::NodeClaim => {
                let names = GroupVersionKind::gvk("karpenter.sh", "v1", "NodeClaim");
                ApiResource::from_gvk_with_plural(&names, "nodeclaims")
            }
            WriteTarget::Node => ApiResource {
                group: Node::group(&()).into_owned(),
                version: Node::version(&()).into_owned(),
                api_version: Node::api_version(&()).into_owned(),
                kind: Node::kind(&()).into_owned(),
                plural: Node::plural(&()).into_owned(),
            },
        };
        Api::all_with(self.client.clone(), &resource)
    }

    async fn send(&self, write: Write) -> Result<Value, WriteError> {
        let (api, params) = (self.api(&write.target), PatchParams::default());
        let patch = Patch::Merge(&write.patch);
        let answer = match write.target {
            WriteTarget::NodeClassStatus(_) => api.patch_status(&write.name, &params, &patch).await,
            _ => api.patch(&write.name, &params, &patch).await,
        };
        let object = answer.map_err(|error| {
            if let Some(notice) = &self.on_failure {
                notice(&error);
            }
            let text = format!("{write}: {error}");
            match error {
                kube::Error::Api(status) if status.is_not_found() => WriteError::NotFound(text),
                kube::Error::Api(status) if is_conflict(&status) => WriteError::Conflict(text),
                kube::Error::Api(status) if is_refused(&status) => WriteError::Refused(text),
                _ => WriteError::Failed(text),
            }
        })?;
        serde_json::to_value(object).map_err(|error| WriteError::Failed(format!("{write}: {error}")))
    }
}

impl Writes for ClientWrites {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Value, WriteError>> {
        self.send(write).boxed()
    }
}
