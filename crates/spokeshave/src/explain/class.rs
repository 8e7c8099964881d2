//! What a NodeClass says of itself: a NodePool only repeats which of its conditions is not met.
//!
//! Owns the reading of NodeClasses of any provider for the story of a NodePool.

use std::sync::Arc;

use kube::api::DynamicObject;
use kube::{Api, Client};
use serde_json::Value;
use spokeshave_api::{NodeClassRef, NodePool};
use spokeshave_story::explain::{Story, Wait};

use super::source::Source;

/// Adds the conditions that its NodeClass does not meet to the story of a NodePool.
pub(super) async fn add(story: &mut Story, source: &Source) {
    let named = |pool: &&Arc<NodePool>| story.object_kind == "NodePool" && pool.name() == story.name;
    let Some(pool) = source.state.node_pools.iter().find(named) else {
        return;
    };
    let reference = pool.node_class_ref();
    let class = match &source.client {
        Some(client) => in_cluster(client, reference).await,
        None => in_file(&source.classes, reference).cloned(),
    };
    if let Some(class) = class {
        tell(story, reference, &class);
    }
}

/// The NodeClass in a cluster; none of a kind that the cluster does not know, or does not show, which leaves this part of the story out.
async fn in_cluster(client: &Client, reference: &NodeClassRef) -> Option<Value> {
    let known = kube::discovery::group(client, &reference.group).await.ok()?;
    let (resource, _) = known.recommended_kind(&reference.kind)?;
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    serde_json::to_value(api.get(&reference.name).await.ok()?).ok()
}

fn in_file<'c>(classes: &'c [Value], reference: &NodeClassRef) -> Option<&'c Value> {
    classes.iter().find(|class| {
        let version = class["apiVersion"].as_str().unwrap_or_default();
        class["metadata"]["name"] == reference.name.as_str()
            && class["kind"] == reference.kind.as_str()
            && version.split_once('/').map_or("", |(group, _)| group) == reference.group
    })
}

fn tell(story: &mut Story, reference: &NodeClassRef, class: &Value) {
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
        assert!(in_file(&classes[..2], &reference).is_none());
        tell(
            &mut story,
            &reference,
            in_file(&classes, &reference).expect("the third"),
        );
        let [only] = &story.waits[..] else {
            panic!("{:?}", story.waits);
        };
        assert_eq!(only.object, "AKSNodeClass small, condition SubnetsReady");
        assert_eq!(only.message, "is False, SubnetIDInvalid: small has no subnet");
        assert!(only.since.is_some());
    }
}
