//! That NodePools of the kwok provider are judged by the instance types in this program, which the operator of a cluster may not have.
//!
//! Owns the note about it, and whether there is reason for one. Which types a NodePool is offered is decided in `world`.

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_api::{KWOKNodeClass, NodeClaim, labels};
use spokeshave_model::InstanceType;
use spokeshave_model::state_node::price_at_launch;
use spokeshave_plan::report::some_of;

use super::dump::Dump;
use super::world::{Origin, plural};

/// A note about a cluster's NodePools of KWOKNodeClasses, where no catalog was named: its objects do not say which instance types its operator was given, unless it
/// has launched some of the `types` that this program brings along, and no others. Of files nobody expects that they say it.
pub(super) fn note(dump: &Dump, origin: Origin, types: &[InstanceType]) -> Option<String> {
    if origin != Origin::Cluster {
        return None;
    }
    let pools = dump.node_pools.iter();
    let pools = pools.filter(|pool| pool.node_class_ref().is_kwok());
    let pools: BTreeSet<&str> = pools.map(|pool| pool.name()).collect();
    if pools.is_empty() {
        return None;
    }
    let others = match launched(dump, &pools, types) {
        Launched::OfThese => return None,
        Launched::None => "where the operator was given others, --catalog FILE names them".to_owned(),
        Launched::Other(claim) => format!(
            "NodeClaim {} was launched with others, which --catalog FILE names",
            claim.name()
        ),
    };
    let pools: Vec<&str> = pools.into_iter().collect();
    Some(format!(
        "{} {} {} to {} ({}): planned with the {} instance types and prices that the kwok provider has by default; {others}",
        plural(pools.len(), "NodePool", "NodePools"),
        some_of(&pools, 5),
        plural(pools.len(), "refers", "refer"),
        KWOKNodeClass::KIND,
        KWOKNodeClass::GROUP,
        types.len()
    ))
}

/// What an operator has launched, as far as its NodeClaims are there.
enum Launched<'a> {
    /// Nothing.
    None,
    /// What it would launch with these types.
    OfThese,
    /// Among it this, which it would not.
    Other(&'a NodeClaim),
}

fn launched<'a>(dump: &'a Dump, pools: &BTreeSet<&str>, types: &[InstanceType]) -> Launched<'a> {
    let known: BTreeMap<&str, &InstanceType> = types.iter().map(|one| (one.name.as_str(), one)).collect();
    // They adjust what is paid.
    let has_overlays = !dump.node_overlays.is_empty();
    let mut launched = Launched::None;
    for claim in &dump.node_claims {
        let is_of_pool = claim.node_pool().is_some_and(|pool| pools.contains(pool));
        // The template of a NodePool may label NodeClaims with a type before they are launched.
        let is_launched = claim.provider_id().is_some();
        let kind = claim.label(labels::INSTANCE_TYPE);
        let Some(name) = kind.filter(|_| is_of_pool && is_launched) else {
            continue;
        };
        let is_of_these = known
            .get(name)
            .is_some_and(|one| is_sold(claim, one, has_overlays));
        if !is_of_these {
            return Launched::Other(claim);
        }
        launched = Launched::OfThese;
    }
    launched
}

/// Whether a type is sold where the machine of a NodeClaim is, and at what was paid for it, where that is known and `overlaid` by nothing.
fn is_sold(claim: &NodeClaim, one: &InstanceType, overlaid: bool) -> bool {
    let zone = claim.label(labels::ZONE).unwrap_or_default();
    let capacity_type = claim.label(labels::CAPACITY_TYPE).unwrap_or_default();
    let price = one.price_of(zone, capacity_type);
    price.is_some_and(|price| overlaid || price_at_launch(claim).is_none_or(|paid| paid == price))
}

#[cfg(test)]
mod tests {
    use spokeshave_provider_kwok::Catalog;

    use super::*;
    use crate::plan::dump::read;

    const POOLS: &str = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: spare}
spec: {template: {spec: {requirements: [], nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}}}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: cloud}
spec: {template: {spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec: {template: {spec: {requirements: [], nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}}}
";

    const TOLD: &str = "karpenter.kwok.sh): planned with the 144 instance types and prices that the kwok provider has by default; ";
    const PERHAPS: &str = "where the operator was given others, --catalog FILE names them";

    fn said(text: &str, origin: Origin) -> Option<String> {
        let dump = read("test", text.as_bytes()).expect("a dump");
        note(&dump, origin, Catalog::default().instance_types())
    }

    #[test]
    fn only_nodepools_of_a_cluster_on_kwok_are_named() {
        assert_eq!(
            said(POOLS, Origin::Cluster),
            Some(format!(
                "NodePools default, spare refer to KWOKNodeClass ({TOLD}{PERHAPS}"
            ))
        );
        let parts: Vec<&str> = POOLS.split("---\n").collect();
        assert_eq!(
            said(parts[0], Origin::Cluster),
            Some(format!("NodePool spare refers to KWOKNodeClass ({TOLD}{PERHAPS}"))
        );
        assert_eq!(said(parts[1], Origin::Cluster), None);
        assert_eq!(said(POOLS, Origin::Files { own_catalog: false }), None);
        assert_eq!(said(POOLS, Origin::Scenario { own_catalog: false }), None);
    }

    /// A NodeClaim that was launched as this type, or not yet where none is given.
    fn claim(name: &str, pool: &str, kind: &str, zone: &str, price: &str) -> String {
        let (launched, status) = match kind {
            // As its NodePool may have labelled it.
            "" => (
                ", node.kubernetes.io/instance-type: m5.large".to_owned(),
                String::new(),
            ),
            kind => (
                format!(
                    ", node.kubernetes.io/instance-type: {kind}, topology.kubernetes.io/zone: {zone}, karpenter.sh/capacity-type: spot"
                ),
                format!("status: {{providerID: \"kwok://{name}\"}}\n"),
            ),
        };
        let annotations = match price {
            "" => String::new(),
            price => format!(", annotations: {{{}: {price:?}}}", labels::PRICE_AT_LAUNCH),
        };
        format!(
            "---\napiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {{name: {name}, labels: {{karpenter.sh/nodepool: {pool}{launched}}}{annotations}}}\n\
             spec: {{requirements: [], nodeClassRef: {{group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}}}}\n{status}"
        )
    }

    /// What runs tells which types the operator has: where they are these, there is nothing to be said at each command.
    #[test]
    fn nothing_is_said_where_what_was_launched_is_of_the_types_that_are_planned_with() {
        const ZONE: &str = "test-zone-a";
        let catalog = Catalog::default();
        let one = &catalog.instance_types()[0];
        let price = one.price_of(ZONE, "spot").expect("it is sold").to_string();
        let told = |claims: &[String]| said(&format!("{POOLS}{}", claims.concat()), Origin::Cluster);
        let same = claim("same", "default", &one.name, ZONE, &price);
        let unpriced = claim("unpriced", "default", &one.name, ZONE, "");
        let waiting = claim("waiting", "default", "", "", "");
        assert_eq!(told(&[same.clone(), waiting.clone()]), None);
        assert_eq!(told(&[unpriced]), None);
        // Nothing is known of it, and of another provider's.
        let perhaps = Some(format!(
            "NodePools default, spare refer to KWOKNodeClass ({TOLD}{PERHAPS}"
        ));
        assert_eq!(told(&[waiting]), perhaps);
        assert_eq!(told(&[claim("m5", "cloud", &one.name, ZONE, &price)]), perhaps);
        for other in [
            claim("other", "spare", "m5.large", ZONE, &price),
            claim("other", "spare", &one.name, "elsewhere", &price),
            claim("other", "spare", &one.name, ZONE, "77"),
        ] {
            let note = told(&[same.clone(), other.clone()]).unwrap_or_default();
            let ending = "; NodeClaim other was launched with others, which --catalog FILE names";
            assert!(note.ends_with(ending), "{other}: {note}");
        }
    }

    /// What an overlay makes of prices is paid, and the types are the same.
    #[test]
    fn prices_that_nodeoverlays_adjust_tell_of_no_other_types() {
        let catalog = Catalog::default();
        let name = &catalog.instance_types()[0].name;
        let overlay = "---\napiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {name: discount}\nspec: {requirements: [], priceAdjustment: \"-10%\"}\n";
        let dear = claim("dear", "default", name, "test-zone-a", "77");
        assert!(said(&format!("{POOLS}{dear}"), Origin::Cluster).is_some());
        assert_eq!(said(&format!("{POOLS}{dear}{overlay}"), Origin::Cluster), None);
    }
}
