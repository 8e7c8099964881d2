//! The NodeClass that the kit shows to the provider, as an operator would: the whole object.

use futures::future::BoxFuture;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;
use spokeshave_api::NodeClassRef;
use spokeshave_ports::NodeClassKind;

use super::SanityOptions;
use crate::classes::{self, NodeClasses};
use crate::identity::Identity;
use crate::wire::{Capability, NodeClass};

/// The one NodeClass that there is.
#[derive(Clone, Debug)]
pub(super) struct GivenClass {
    kind: NodeClassKind,
    pub(super) object: DynamicObject,
    /// Another state of it, in which what was launched from it has drifted.
    pub(super) changed: Option<DynamicObject>,
}

/// A field of which no provider knows: where the hash of the spec decides, each field counts.
const UNKNOWN_FIELD: &str = "changedByProviderSanity";

impl GivenClass {
    /// What was given, or an empty class of the provider's first kind. The error names what the provider serves instead.
    pub(super) fn new(options: &SanityOptions, identity: &Identity) -> Result<Self, String> {
        let kinds = &identity.kinds;
        let (mut object, kind) = match options.node_class.clone() {
            None => (empty(&options.node_class_name, &kinds[0]), kinds[0].clone()),
            Some(object) => {
                let kind = kinds.iter().find(|kind| is_of(&object, kind)).cloned();
                let kind = kind.ok_or_else(|| {
                    let served: Vec<String> = kinds.iter().map(named).collect();
                    format!(
                        "the given NodeClass is {}; the handshake names {}",
                        kind_of(&object),
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
        let changed = match &options.changed_node_class {
            Some(given) => Some(changed(&object, given, &kind)?),
            // Only the provider knows which changes matter to it.
            None if identity.can(Capability::Drift) => None,
            None => Some(with_spec(&object, |spec| {
                spec[UNKNOWN_FIELD] = true.into();
            })),
        };
        Ok(Self {
            kind,
            object,
            changed,
        })
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

fn named(kind: &NodeClassKind) -> String {
    format!("{}/{} {}", kind.group, kind.version, kind.kind)
}

fn kind_of(object: &DynamicObject) -> String {
    let types = object.types.clone().unwrap_or_default();
    format!("{} {}", types.api_version, types.kind)
}

fn is_of(object: &DynamicObject, kind: &NodeClassKind) -> bool {
    kind_of(object) == named(kind)
}

/// The next generation of a class.
fn with_spec(object: &DynamicObject, change: impl FnOnce(&mut Value)) -> DynamicObject {
    let mut changed = object.clone();
    let generation = changed.metadata.generation.get_or_insert_default();
    *generation += 1;
    change(&mut changed.data["spec"]);
    changed
}

fn changed(
    object: &DynamicObject,
    given: &DynamicObject,
    kind: &NodeClassKind,
) -> Result<DynamicObject, String> {
    if !is_of(given, kind) {
        return Err(format!(
            "the changed NodeClass is {}; expected another spec of the {} that the provider is shown",
            kind_of(given),
            named(kind)
        ));
    }
    let (before, after) = (&object.data["spec"], &given.data["spec"]);
    if before == after {
        return Err("the changed NodeClass has the spec of the one that the provider is shown; expected one in which its instances have drifted".to_owned());
    }
    Ok(with_spec(object, |spec| *spec = after.clone()))
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
