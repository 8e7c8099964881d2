//! That NodePools of the kwok provider are judged by the instance types in this program, which the operator of a cluster may not have.
//!
//! Owns the note about it. Which types a NodePool is offered is decided in `world`.

use spokeshave_api::KWOKNodeClass;
use spokeshave_plan::report::some_of;

use super::dump::Dump;
use super::world::{Origin, plural};

/// A note about a cluster's NodePools of KWOKNodeClasses, where no catalog was named: its objects do not say which instance types its operator was given. `types` is
/// how many this program brings along. Of files nobody expects that they say it.
pub(super) fn note(dump: &Dump, origin: Origin, types: usize) -> Option<String> {
    if origin != Origin::Cluster {
        return None;
    }
    let pools = dump.node_pools.iter();
    let pools = pools.filter(|pool| pool.node_class_ref().is_kwok());
    let mut pools: Vec<&str> = pools.map(|pool| pool.name()).collect();
    pools.sort_unstable();
    pools.dedup();
    (!pools.is_empty()).then(|| {
        format!(
            "{} {} {} to {} ({}): planned with the {types} instance types and prices that the kwok provider has by default; where the operator was given others, --catalog FILE names them",
            plural(pools.len(), "NodePool", "NodePools"),
            some_of(&pools, 5),
            plural(pools.len(), "refers", "refer"),
            KWOKNodeClass::KIND,
            KWOKNodeClass::GROUP
        )
    })
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn only_nodepools_of_a_cluster_on_kwok_are_named() {
        let said = |text: &str, origin: Origin| {
            let dump = read("test", text.as_bytes()).expect("a dump");
            note(&dump, origin, 144)
        };
        let told = "karpenter.kwok.sh): planned with the 144 instance types and prices that the kwok provider has by default; \
                    where the operator was given others, --catalog FILE names them";
        assert_eq!(
            said(POOLS, Origin::Cluster),
            Some(format!("NodePools default, spare refer to KWOKNodeClass ({told}"))
        );
        let parts: Vec<&str> = POOLS.split("---\n").collect();
        assert_eq!(
            said(parts[0], Origin::Cluster),
            Some(format!("NodePool spare refers to KWOKNodeClass ({told}"))
        );
        assert_eq!(said(parts[1], Origin::Cluster), None);
        assert_eq!(said(POOLS, Origin::Files { own_catalog: false }), None);
        assert_eq!(said(POOLS, Origin::Scenario { own_catalog: false }), None);
    }
}
