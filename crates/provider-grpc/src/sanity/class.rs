//! The NodeClass that the kit shows to the provider, as an operator would: the whole object.

use futures::future::BoxFuture;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use spokeshave_api::NodeClassRef;
use spokeshave_ports::NodeClassKind;

use super::SanityOptions;
use crate::classes::{self, NodeClasses};
use crate::wire::NodeClass;

/// The one NodeClass that there is.
#[derive(Clone, Debug)]
pub(super) struct GivenClass {
    kind: NodeClassKind,
    pub(super) object: DynamicObject,
}

impl GivenClass {
    /// What was given, or an empty class of the provider's first kind. The error names what the provider serves instead.
    pub(super) fn new(options: &SanityOptions, kinds: &[NodeClassKind]) -> Result<Self, String> {
        let (mut object, kind) = match options.node_class.clone() {
            None => (empty(&options.node_class_name, &kinds[0]), kinds[0].clone()),
            Some(object) => {
                let types = object.types.clone().unwrap_or_default();
                let is_of = |kind: &&NodeClassKind| {
                    types.kind == kind.kind && types.api_version == format!("{}/{}", kind.group, kind.version)
                };
                let kind = kinds.iter().find(is_of).cloned();
                let kind = kind.ok_or_else(|| {
                    let served: Vec<String> = kinds
                        .iter()
                        .map(|kind| format!("{}/{} {}", kind.group, kind.version, kind.kind))
                        .collect();
                    format!(
                        "the given NodeClass is {} {}; the handshake names {}",
                        types.api_version,
                        types.kind,
                        served.join(", ")
                    )
                })?;
                (object, kind)
            }
        };
        let metadata = &mut object.metadata;
        let name = metadata
            .name
            .get_or_insert_with(|| options.node_class_name.clone());
        let uid = format!("uid-of-{name}");
        metadata.uid.get_or_insert(uid);
        metadata.generation.get_or_insert(1);
        Ok(Self { kind, object })
    }

    pub(super) fn reference(&self) -> NodeClassRef {
        NodeClassRef {
            group: self.kind.group.clone(),
            kind: self.kind.kind.clone(),
            name: self.name().to_owned(),
        }
    }

    pub(super) fn message(&self) -> NodeClass {
        classes::message(&self.kind, &self.object)
    }

    fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }
}

fn empty(name: &str, kind: &NodeClassKind) -> DynamicObject {
    let names = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
    let resource = ApiResource::from_gvk_with_plural(&names, &kind.plural);
    DynamicObject::new(name, &resource).data(serde_json::json!({"spec": {}}))
}

impl NodeClasses for GivenClass {
    fn list<'a>(&'a self, kind: &'a NodeClassKind) -> BoxFuture<'a, Result<Vec<DynamicObject>, String>> {
        let listed = (*kind == self.kind).then(|| self.object.clone());
        Box::pin(std::future::ready(Ok(listed.into_iter().collect())))
    }

    fn get<'a>(
        &'a self,
        kind: &'a NodeClassKind,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<DynamicObject>, String>> {
        let is_it = *kind == self.kind && name == self.name();
        Box::pin(std::future::ready(Ok(is_it.then(|| self.object.clone()))))
    }
}
