//! What a NodeClass says of itself: a NodePool only repeats which of its conditions is not met.
//!
//! Owns the reading of NodeClasses of any provider for the story of a NodePool.

use std::collections::BTreeSet;

use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client};
use serde_json::Value;
use spokeshave_api::{NodeClassRef, NodePool};
use spokeshave_story::explain::{Story, Wait};

/// NodeClasses of the kinds that NodePools name. A kind that the cluster does not know, or does not show, leaves its part of the story out.
pub(super) async fn in_cluster<'a>(client: &Client, pools: impl Iterator<Item = &'a NodePool>) -> Vec<Value> {
    let kinds: BTreeSet<(&str, &str)> = pools
        .map(|pool| {
            let class = &pool.spec.template.spec.node_class_ref;
            (class.group.as_str(), class.kind.as_str())
        })
        .collect();
    let mut found = Vec::new();
    for (group, kind) in kinds {
        let Ok(known) = kube::discovery::group(client, group).await else {
            continue;
        };
        let Some((resource, _)) = known.recommended_kind(kind) else {
            continue;
        };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let Ok(listed) = api.list(&ListParams::default()).await else {
            continue;
        };
        found.extend(listed.items.iter().filter_map(|object| {
            let mut value = serde_json::to_value(object).ok()?;
            value["kind"] = Value::from(kind);
            value["apiVersion"] = Value::from(resource.api_version.clone());
            Some(value)
        }));
    }
    found
}

/// Adds the conditions that its NodeClass does not meet to the story of a NodePool.
pub(super) fn add(story: &mut Story, reference: &NodeClassRef, classes: &[Value]) {
    let is_it = |class: &&Value| {
        let version = class["apiVersion"].as_str().unwrap_or_default();
        class["metadata"]["name"] == reference.name.as_str()
            && class["kind"] == reference.kind.as_str()
            && version.split_once('/').map_or("", |(group, _)| group) == reference.group
    };
    let Some(class) = classes.iter().find(is_it) else {
        return;
    };
    let conditions = class["status"]["conditions"].as_array();
    for condition in conditions.into_iter().flatten() {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        if text("status") != "False" || matches!(text("type"), "" | "Ready") || text("message").is_empty() {
            continue;
        }
        story.waits.push(Wait {
            object: format!(
                "{} {}, condition {}",
                reference.kind,
                reference.name,
                text("type")
            ),
            message: format!("is False, {}: {}", text("reason"), text("message")),
            since: text("lastTransitionTime").parse().ok(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn z_014_a_condition_that_its_nodeclass_does_not_meet_is_told_in_its_words() {
        let class = |group: &str, name: &str| {
            json!({"apiVersion": format!("{group}/v1beta1"), "kind": "AKSNodeClass", "metadata": {"name": name}, "status": {"conditions": [
                {"type": "ImagesReady", "status": "True", "reason": "ImagesReady", "message": "found", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "SubnetsReady", "status": "False", "reason": "SubnetIDInvalid", "message": format!("{name} has no subnet"), "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Ready", "status": "False", "reason": "UnhealthyDependents", "message": "SubnetsReady=False"}]}})
        };
        let classes = [
            class("other.example", "small"),
            class("karpenter.azure.com", "large"),
            class("karpenter.azure.com", "small"),
        ];
        let reference = NodeClassRef {
            group: "karpenter.azure.com".to_owned(),
            kind: "AKSNodeClass".to_owned(),
            name: "small".to_owned(),
        };
        let mut story = Story {
            object_kind: "NodePool",
            name: "general".to_owned(),
            ..Story::default()
        };
        add(&mut story, &reference, &classes[..2]);
        assert!(story.waits.is_empty());
        add(&mut story, &reference, &classes);
        let [only] = &story.waits[..] else {
            panic!("{:?}", story.waits);
        };
        assert_eq!(only.object, "AKSNodeClass small, condition SubnetsReady");
        assert_eq!(only.message, "is False, SubnetIDInvalid: small has no subnet");
        assert!(only.since.is_some());
    }
}
