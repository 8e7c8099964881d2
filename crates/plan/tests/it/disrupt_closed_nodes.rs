//! Nodes that take no pods: no command counts on them.

use serde_json::json;

use crate::support::{DELETE_A, World, acts, on_demand_pool, pinned};

#[test]
fn w_64_nodes_that_are_cordoned_or_not_ready_take_no_pods_that_tolerate_everything() {
    let tolerant = || {
        World::new(on_demand_pool("default"))
            .node("a", "small")
            .node("b", "small")
            .pod_with("p", "a", "1", &json!({"tolerations": [{"operator": "Exists"}]}))
            .pod_with("r", "b", "100m", &pinned("b"))
    };
    assert_eq!(acts(&tolerant()), [DELETE_A], "it goes where there is room");
    let cordoned = tolerant().edit_node("b", |node| {
        node.spec.get_or_insert_default().unschedulable = Some(true)
    });
    assert_eq!(acts(&cordoned), Vec::<String>::new());
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let lost = tolerant().edit_node("b", |node| {
            let taint = json!({"key": key, "effect": "NoSchedule"});
            node.spec.get_or_insert_default().taints =
                Some(vec![serde_json::from_value(taint).expect("a taint")]);
        });
        assert_eq!(acts(&lost), Vec::<String>::new(), "{key}");
    }
}
