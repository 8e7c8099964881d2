//! Emptiness at its second look: what is left of a command when a node of it has to stay.

use crate::support::{World, on_demand_pool, pinned, text};
use spokeshave_plan::disrupt::validate;

#[test]
fn d_089_w_36_a_command_that_loses_a_node_at_its_second_look_forgets_its_pods() {
    let cheap = "controller.kubernetes.io/pod-deletion-cost";
    let world = World::new(on_demand_pool("default"))
        .node("a", "small")
        .node("b", "small")
        .node("c", "large")
        .pod("p", "a", "1")
        .pod("q", "b", "1")
        .pod_with("r", "c", "100m", &pinned("c"))
        .annotate_pod("p", cheap, "-2147483647")
        .annotate_pod("q", cheap, "-2147483647");
    let command = world.command();
    assert_eq!(text(&command), "Emptiness delete [a, b]");
    assert_eq!(command.moves.len(), 2);
    let protected = world.annotate_node("a", "karpenter.sh/do-not-disrupt", "true");
    let snapshot = protected.snapshot();
    let second = validate(&command, &snapshot, &protected.policy, protected.now);
    let reduced = second.command.expect("what is left of it");
    assert_eq!(text(&reduced), "Emptiness delete [b]");
    let moved: Vec<&str> = reduced.moves.iter().map(|step| step.from.as_str()).collect();
    assert_eq!(moved, ["b"]);
    assert!(
        reduced.resolve(&snapshot).is_some(),
        "so that the audit finds every pod of it"
    );
}
