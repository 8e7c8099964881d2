//! Which pods share which nodes: what a table of costs does not say about a run.
//!
//! Owns the text of it. It judges nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::lab::Lab;

/// How many nodes of a type hold the same pods, a line for each such group: `12 s-16x-amd64-linux: 2 large, 2 small`. Pods without a node come last.
pub async fn layout(lab: &Lab) -> String {
    let mut by_node: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for pod in lab.list::<Pod>().await {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let app = pod.metadata.labels.as_ref().and_then(|labels| labels.get("app"));
        let pods = by_node.entry(node.unwrap_or_default()).or_default();
        *pods.entry(app.cloned().unwrap_or_default()).or_default() += 1;
    }
    let mut groups: BTreeMap<(String, String), usize> = BTreeMap::new();
    for node in lab.list::<Node>().await {
        let name = node.metadata.name.unwrap_or_default();
        let labels = node.metadata.labels.unwrap_or_default();
        let instance_type = labels.get("node.kubernetes.io/instance-type").cloned();
        let pods = words(&by_node.remove(&name).unwrap_or_default());
        *groups
            .entry((instance_type.unwrap_or_default(), pods))
            .or_default() += 1;
    }
    let mut text = String::new();
    for ((instance_type, pods), count) in groups {
        let _ = writeln!(text, "{count:>6} {instance_type}: {pods}");
    }
    if let Some(pending) = by_node.get("") {
        let _ = writeln!(text, "     - no node: {}", words(pending));
    }
    text
}

fn words(pods: &BTreeMap<String, usize>) -> String {
    if pods.is_empty() {
        return "empty".to_owned();
    }
    let one = |(app, count): (&String, &usize)| format!("{count} {app}");
    pods.iter().map(one).collect::<Vec<_>>().join(", ")
}
