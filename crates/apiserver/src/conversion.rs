//! Kinds that are served in two forms: which form is kept, and how the other is made of it.
//!
//! Events are kept as `v1` (`events`), HorizontalPodAutoscalers as `autoscaling/v2` (`autoscalers`). Versions of custom kinds differ in nothing but
//! their name, which `reading` writes.

use serde_json::Value;

use crate::registry::Resource;
use crate::schema::TypeSchema;
use crate::{autoscalers, events};

/// True for a resource whose objects are kept in another form than its own.
pub(crate) fn is_converted(resource: &Resource) -> bool {
    resource.group == "events.k8s.io" || resource.group == "autoscaling" && resource.version == "v1"
}

/// The form that is kept, of an object of a resource that `is_converted`.
pub(crate) fn to_stored(resource: &Resource, object: Value) -> Value {
    if resource.group == "events.k8s.io" {
        return events::to_core(&resource.schema, object);
    }
    let mut object = autoscalers::to_v2(object);
    if let Some(schema) = TypeSchema::builtin("autoscaling", "v2", "HorizontalPodAutoscaler") {
        crate::decode::complete(&schema, &mut object);
    }
    object
}

/// The resource's own form of an object as it is kept.
pub(crate) fn to_shown(resource: &Resource, stored: &Value) -> Value {
    if resource.group == "events.k8s.io" {
        events::to_new(stored)
    } else {
        autoscalers::to_v1(stored)
    }
}
