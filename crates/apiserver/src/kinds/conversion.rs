//! Kinds that are served in two forms: which form is kept, and how the other is made of it.
//!
//! Events are kept as `v1` (`event`), HorizontalPodAutoscalers as `autoscaling/v2` (`autoscaler`). Versions of custom kinds differ in nothing but
//! their name, which `view` writes.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{autoscaler, event};
use crate::schema::{TypeSchema, decode};
use crate::store::registry::Resource;

/// True for a resource whose objects are kept in another form than its own.
pub(crate) fn is_converted(resource: &Resource) -> bool {
    resource.group == "events.k8s.io" || resource.group == "autoscaling" && resource.version == "v1"
}

/// The form that is kept, of an object of a resource that `is_converted`.
pub(crate) fn to_stored(resource: &Resource, object: Value) -> Value {
    if resource.group == "events.k8s.io" {
        return event::to_core(&resource.schema, object);
    }
    let mut object = autoscaler::to_v2(object);
    if let Some(schema) = TypeSchema::builtin("autoscaling", "v2", "HorizontalPodAutoscaler") {
        decode::complete(&schema, &mut object);
    }
    object
}

/// The resource's own form of an object as it is kept.
pub(crate) fn to_shown(resource: &Resource, stored: &Value) -> Value {
    if resource.group == "events.k8s.io" {
        event::to_new(stored)
    } else {
        autoscaler::to_v1(stored)
    }
}

/// An object in the requested version.
pub(crate) fn view<'a>(resource: &Resource, value: &'a Value) -> Cow<'a, Value> {
    if is_converted(resource) {
        return Cow::Owned(to_shown(resource, value));
    }
    if is_stored_as_shown(resource, value) {
        return Cow::Borrowed(value);
    }
    let mut value = value.clone();
    value["apiVersion"] = json!(resource.api_version());
    Cow::Owned(value)
}

/// True when objects are kept exactly as they are shown.
pub(crate) fn is_stored_as_shown(resource: &Resource, value: &Value) -> bool {
    !is_converted(resource)
        && value["apiVersion"]
            .as_str()
            .is_some_and(|version| version == resource.api_version())
}
