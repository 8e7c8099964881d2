//! Whom a policy or a binding concerns: operations, resources, names, namespaces and labels.

use std::sync::Arc;

use serde_json::Value;

use super::Attributes;
use crate::selector::LabelSelector;
use crate::store::registry::Resource;
use crate::store::state::State;

/// The version of the resource in which a policy matches a write, if it does: the requested one, or another one of the same objects.
pub(super) fn matched(state: &State, policy: &Value, attributes: &Attributes<'_>) -> Option<Arc<Resource>> {
    let constraints = &policy["matchConstraints"];
    let own = attributes.resource;
    let mut versions: Vec<&Arc<Resource>> = state
        .registry
        .all()
        .filter(|resource| resource.storage() == own.storage())
        .collect();
    versions.sort_by_key(|resource| resource.version != own.version || resource.group != own.group);
    if constraints["matchPolicy"] == "Exact" {
        versions.truncate(1);
    }
    versions
        .into_iter()
        .find(|resource| concerns(state, constraints, attributes, resource))
        .cloned()
}

/// True when a write, seen as one of `resource`, is what the constraints name.
pub(super) fn concerns(
    state: &State,
    constraints: &Value,
    attributes: &Attributes<'_>,
    resource: &Resource,
) -> bool {
    let any = |field: &str| {
        let rules = constraints[field].as_array();
        rules
            .into_iter()
            .flatten()
            .any(|rule| rule_names(rule, attributes, resource))
    };
    // A binding without rules narrows nothing by them.
    let named = constraints["resourceRules"].as_array().is_none_or(Vec::is_empty) || any("resourceRules");
    named
        && !any("excludeResourceRules")
        && namespace_fits(state, &constraints["namespaceSelector"], attributes)
        && object_fits(&constraints["objectSelector"], attributes)
}

fn rule_names(rule: &Value, attributes: &Attributes<'_>, resource: &Resource) -> bool {
    let names = |field: &str, wanted: &str| {
        let list = rule[field].as_array();
        list.into_iter().flatten().any(|one| one == "*" || one == wanted)
    };
    let scope = match rule["scope"].as_str() {
        Some("Namespaced") => resource.namespaced,
        Some("Cluster") => !resource.namespaced,
        _ => true,
    };
    let in_names = rule["resourceNames"]
        .as_array()
        .is_none_or(|list| list.is_empty() || list.iter().any(|name| name == attributes.name));
    let mut resources = rule["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    scope
        && in_names
        && names("operations", attributes.operation)
        && names("apiGroups", &resource.group)
        && names("apiVersions", &resource.version)
        && resources.any(|text| {
            let (plural, subresource) = text.split_once('/').unwrap_or((text, ""));
            (plural == "*" || plural == resource.plural)
                && (subresource == "*" || subresource == attributes.subresource)
        })
}

/// A Namespace is matched by its own labels, a namespaced object by its namespace's; a cluster-scoped object always matches.
fn namespace_fits(state: &State, selector: &Value, attributes: &Attributes<'_>) -> bool {
    let Some(selector) = selector_of(selector) else {
        return true;
    };
    if attributes.resource.is("", "namespaces") {
        let own = attributes.object.or(attributes.old);
        return own.is_none_or(|own| selector.matches(&own["metadata"]["labels"]));
    }
    if attributes.namespace.is_empty() {
        return true;
    }
    let key = (String::new(), attributes.namespace.to_owned());
    state
        .stored(&(String::new(), "namespaces".to_owned()), &key)
        .is_some_and(|namespace| selector.matches(&namespace.value["metadata"]["labels"]))
}

/// Either version of the object may fit.
fn object_fits(selector: &Value, attributes: &Attributes<'_>) -> bool {
    let Some(selector) = selector_of(selector) else {
        return true;
    };
    let fits =
        |value: Option<&Value>| value.is_some_and(|value| selector.matches(&value["metadata"]["labels"]));
    fits(attributes.object) || fits(attributes.old)
}

/// `None` for a selector that selects everything.
fn selector_of(selector: &Value) -> Option<LabelSelector> {
    if selector.as_object().is_none_or(serde_json::Map::is_empty) {
        return None;
    }
    LabelSelector::from_object(selector).filter(|selector| !selector.is_empty())
}
