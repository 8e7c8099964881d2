//! What a cluster has and no operator has judged: NodePools, which count as ready all the same, and NodeOverlays, which have no effect there.
//!
//! Owns who these are and the notes about them. What an operator has found out about others it does not question.

use std::collections::BTreeMap;
use std::sync::Arc;

use spokeshave_api::conditions::{Conditioned as _, READY};
use spokeshave_api::{NodeOverlay, NodePool};
use spokeshave_plan::report::some_of;
use spokeshave_story::doctor::is_unjudged;

use super::world::plural;

/// A note about NodePools that count as ready although a cluster has them and nobody has judged them.
pub(super) fn pools(pools: &BTreeMap<String, Arc<NodePool>>) -> Option<String> {
    let unjudged = pools.values().filter(|pool| is_unjudged(pool));
    let names: Vec<&str> = unjudged.map(|pool| pool.name()).collect();
    (!names.is_empty()).then(|| {
        let noun = plural(names.len(), "NodePool", "NodePools");
        format!("no operator has judged {noun} {} yet", some_of(&names, 5))
    })
}

/// Leaves out overlays of a cluster that no operator has judged, with a note: the feature gate is off there, or no operator runs.
pub(super) fn leave_out_overlays(overlays: &mut BTreeMap<String, Arc<NodeOverlay>>) -> Option<String> {
    let is_unjudged = |overlay: &NodeOverlay| overlay.condition(READY).is_none();
    let unjudged = overlays.values().filter(|overlay| is_unjudged(overlay));
    let names: Vec<String> = unjudged.map(|overlay| overlay.name().to_owned()).collect();
    overlays.retain(|_, overlay| !is_unjudged(overlay));
    (!names.is_empty()).then(|| {
        format!(
            "{} {} {} not in force, as with the feature gate NodeOverlay off: no operator has judged {}",
            plural(names.len(), "NodeOverlay", "NodeOverlays"),
            some_of(&names, 5),
            plural(names.len(), "is", "are"),
            plural(names.len(), "it", "them")
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spokeshave_model::Price;
    use spokeshave_provider_kwok::Catalog;

    use crate::plan::dump::read;
    use crate::plan::world::{Origin, World};

    const POOL: &str = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default, uid: u}
spec: {template: {spec: {requirements: [], nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}}}
---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: dear, uid: v}
spec: {requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m-16x-amd64-linux]}], price: '77'}
";
    const JUDGED: &str = "status: {conditions: [{type: Ready, status: 'True', reason: Ready, message: '', lastTransitionTime: '2026-01-01T00:00:00Z'}]}\n";

    fn world(text: &str, origin: Origin) -> World {
        let now = "2026-01-01T01:00:00Z".parse().expect("an instant");
        let dump = read("test", text.as_bytes()).expect("a dump");
        World::new(
            dump,
            origin,
            Catalog::default().instance_types(),
            None,
            Arc::default(),
            now,
        )
    }

    /// The highest price of any instance type: that of the overlay, where it is in force.
    fn highest_price(world: &World) -> Price {
        let types = world.state.instance_types["default"].as_ref().expect("types");
        let offerings = types.iter().flat_map(|one| &one.offerings);
        let prices = offerings.map(|offering| offering.price);
        prices.max().expect("offerings")
    }

    /// An operator with the feature gate off writes no condition; a file says nothing of operators.
    #[test]
    fn p_187_an_overlay_that_no_operator_has_judged_is_not_in_force_in_a_cluster() {
        let files = Origin::Files { own_catalog: false };
        let judged = format!("{POOL}{JUDGED}");
        for (text, origin, is_in_force) in [
            (POOL, Origin::Cluster, false),
            (judged.as_str(), Origin::Cluster, true),
            (POOL, files, true),
        ] {
            let world = world(text, origin);
            assert_eq!(
                highest_price(&world) == Price(77_000_000_000),
                is_in_force,
                "{origin:?}"
            );
            let note = "NodeOverlay dear is not in force, as with the feature gate NodeOverlay off: no operator has judged it";
            assert_eq!(world.notes.iter().any(|one| one == note), !is_in_force);
        }
    }

    #[test]
    fn a_nodepool_that_a_cluster_has_stored_was_not_written_by_hand() {
        let note = "no operator has judged NodePool default yet";
        let by_hand = POOL.replace(", uid: u", "");
        let (pool, overlay) = POOL.split_once("---\n").expect("two documents");
        let judged = format!("{pool}{JUDGED}---\n{overlay}");
        for (text, is_said) in [(POOL, true), (by_hand.as_str(), false), (judged.as_str(), false)] {
            let world = world(text, Origin::Cluster);
            assert_eq!(
                world.notes.iter().any(|one| one == note),
                is_said,
                "{:?}",
                world.notes
            );
            assert!(
                spokeshave_model::lower(&world.state).pools[0].ready,
                "it is planned with"
            );
        }
    }
}
