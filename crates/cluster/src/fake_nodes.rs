//! Nodes without a machine, whose kubelets live here.

use k8s_openapi::api::core::v1::Node;

/// Marks a node without a machine, as label or annotation.
const FAKE_NODE: &str = "kwok.x-k8s.io/node";

pub(crate) fn is_fake(node: &Node) -> bool {
    let marked = |map: Option<&std::collections::BTreeMap<String, String>>| {
        map.is_some_and(|map| map.get(FAKE_NODE).is_some_and(|value| value == "fake"))
    };
    marked(node.metadata.labels.as_ref()) || marked(node.metadata.annotations.as_ref())
}
