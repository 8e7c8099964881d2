//! Hurdles as blockers: each with its object, upstream's words where there are some, and what would have to hold instead.

use super::drift::has_excess;
use super::ground::Ground;
use super::hurdle::{Hurdle, Stop};
use super::verdict::{Blocker, BlockerKind, Subject};
use spokeshave_model::snapshot::{NodeId, NodeView, PodId, Snapshot};

/// A hurdle as a value with its object.
pub(super) fn blocker(ground: &Ground<'_>, node: NodeId, stop: &Stop) -> Blocker {
    let snapshot = ground.snapshot;
    let view = snapshot.node(node);
    let node_name = view.node_name().unwrap_or(&view.name);
    let pool_name = view.pool_name.as_deref().unwrap_or("");
    let on_node = || Subject::cluster("Node", node_name);
    let on_pool = || Subject::cluster("NodePool", pool_name);
    let on_pod = |pod: PodId| Subject::namespaced("Pod", &snapshot.pod(pod).key());
    let by_check = || stop.hurdle.words(snapshot, node);
    let said = |otherwise: &str| {
        if stop.text.is_empty() {
            otherwise.to_owned()
        } else {
            stop.text.clone()
        }
    };
    use BlockerKind as Kind;
    let (kind, object, message, condition) = match stop.hurdle {
        Hurdle::InCommand => (Kind::InCommand, on_node(), by_check(), "its command were done"),
        Hurdle::NotManaged => (Kind::NotManaged, on_node(), by_check(), "it had a NodeClaim"),
        Hurdle::NoNode => {
            let claim = Subject::cluster("NodeClaim", view.claim_name().unwrap_or(&view.name));
            (Kind::NoNode, claim, by_check(), "its Node had joined")
        }
        Hurdle::NotInitialized => (
            Kind::NotInitialized,
            on_node(),
            by_check(),
            "the Node were initialized",
        ),
        Hurdle::Deleting => (
            Kind::Deleting,
            on_node(),
            by_check(),
            "it were not on its way out",
        ),
        Hurdle::Nominated => (
            Kind::Nominated,
            on_node(),
            by_check(),
            "no pending pod were expected on it",
        ),
        Hurdle::NodeDoNotDisrupt => (
            Kind::NodeDoNotDisrupt,
            on_node(),
            by_check(),
            "the Node were not annotated karpenter.sh/do-not-disrupt",
        ),
        Hurdle::NoPoolLabel => (
            Kind::MissingLabel,
            on_node(),
            by_check(),
            "the Node had label karpenter.sh/nodepool",
        ),
        Hurdle::PoolNotFound => (
            Kind::NodePoolNotFound,
            on_pool(),
            by_check(),
            "its NodePool offered instance types",
        ),
        Hurdle::PodDoNotDisrupt(pod) => {
            let condition = format!("Pod {} were not protected", snapshot.pod(pod).key());
            return value(Kind::PodDoNotDisrupt, on_pod(pod), by_check(), condition);
        }
        Hurdle::PodDisruptionBudget(budget) => {
            let budget = &snapshot.budgets[budget.index()];
            let key = format!("{}/{}", budget.namespace, budget.name);
            let condition = format!("PodDisruptionBudget {key} allowed 1");
            let subject = Subject::namespaced("PodDisruptionBudget", &key);
            return value(Kind::PodDisruptionBudget, subject, by_check(), condition);
        }
        Hurdle::SeveralBudgets(pod) => {
            let key = snapshot.pod(pod).key();
            let condition = format!("only one PodDisruptionBudget selected Pod {key}");
            return value(
                Kind::MultiplePodDisruptionBudgets,
                on_pod(pod),
                by_check(),
                condition,
            );
        }
        Hurdle::StaticPool | Hurdle::NotApplicable if view.is_taken_out(&snapshot.pools) => (
            Kind::StaticNodePool,
            on_pool(),
            "its NodePool is static, and the label of its NodeClaim takes it out of that".to_owned(),
            "its NodeClaim had the label of its NodePool",
        ),
        Hurdle::StaticPool | Hurdle::NotApplicable => (
            Kind::StaticNodePool,
            on_pool(),
            "its NodePool is static and the node has not drifted".to_owned(),
            "its NodePool were dynamic",
        ),
        Hurdle::ConsolidationDisabled => (
            Kind::ConsolidationDisabled,
            on_pool(),
            said("consolidation is disabled"),
            "consolidateAfter were not Never",
        ),
        Hurdle::Policy => (
            Kind::ConsolidationPolicy,
            on_pool(),
            said("its consolidation policy keeps it"),
            "consolidationPolicy were WhenEmptyOrUnderutilized",
        ),
        Hurdle::ConsolidateAfter => (
            Kind::ConsolidateAfter,
            on_node(),
            "consolidateAfter has not passed since the last change of its pods".to_owned(),
            "consolidateAfter had passed",
        ),
        Hurdle::UnknownInstanceType => (
            Kind::UnknownInstanceType,
            on_node(),
            said("its instance type is unknown"),
            "its instance type were in the catalogue",
        ),
        Hurdle::NoCapacityTypeLabel | Hurdle::NoZoneLabel => (
            Kind::MissingLabel,
            on_node(),
            said("a label is missing"),
            "the Node had that label",
        ),
        Hurdle::UnknownPrice => (
            Kind::UnknownPrice,
            on_node(),
            "what the node costs is unknown, so nothing can be shown to be cheaper".to_owned(),
            "its price were known",
        ),
        Hurdle::Pod(pod) => {
            let condition = format!("Pod {} had a place elsewhere", snapshot.pod(pod).key());
            return value(
                Kind::Pod,
                on_pod(pod),
                said("it has no place elsewhere"),
                condition,
            );
        }
        Hurdle::Limits => (
            Kind::Limits,
            limited_pool(ground, node).unwrap_or_else(on_pool),
            "the limits of NodePools leave no room for a replacement".to_owned(),
            "limits allowed a replacement",
        ),
        Hurdle::Neighbours => {
            let first = ground.withheld.iter().next().copied().unwrap_or(node);
            let count = ground.withheld.len();
            (
                Kind::Neighbours,
                Subject::cluster("Node", &snapshot.node(first).name),
                match count {
                    1 => "1 node that could take its pods changed within its consolidateAfter".to_owned(),
                    count => format!(
                        "{count} nodes that could take its pods changed within their consolidateAfter"
                    ),
                },
                "consolidateAfter had passed for its neighbours",
            )
        }
        Hurdle::TooManyReplacements => (
            Kind::TooManyReplacements,
            on_node(),
            said("more than one node would have to come"),
            "one replacement were enough",
        ),
        Hurdle::NotCheaper => (
            Kind::NotCheaper,
            on_node(),
            said("Can't replace with a cheaper node"),
            "a cheaper type could take its pods",
        ),
        Hurdle::MinValues => (
            Kind::MinValues,
            on_pool(),
            said("too few instance types are left for minValues"),
            "minValues asked for less",
        ),
        Hurdle::SpotToSpotDisabled => (
            Kind::SpotToSpotDisabled,
            on_node(),
            said("spot-to-spot consolidation is disabled"),
            "feature gate SpotToSpotConsolidation were on",
        ),
        Hurdle::SpotToSpotFlexibility => (
            Kind::SpotToSpotFlexibility,
            on_node(),
            said("too few cheaper spot types"),
            "15 cheaper spot types were available",
        ),
        Hurdle::Score => (
            Kind::Score,
            on_pool(),
            said("the saving is not worth the disruption"),
            "the policy were not Balanced",
        ),
        Hurdle::Patience => (
            Kind::Patience,
            on_node(),
            said("the saving is worth its evictions only once pods have not changed for long"),
            "its pods had not changed for longer",
        ),
        Hurdle::StaticHeadroom => (
            Kind::StaticHeadroom,
            on_pool(),
            said("no headroom for a replacement"),
            if view.pool.is_some_and(|pool| has_excess(ground, pool)) {
                "its NodePool had no more nodes than replicas"
            } else {
                "limits.nodes left room for one more"
            },
        ),
        Hurdle::DisruptionPolicy => {
            let message = said("a DisruptionPolicy allows no disruption now");
            return value(
                Kind::DisruptionPolicy,
                on_pool(),
                message,
                policies_allow(snapshot, view),
            );
        }
        Hurdle::Budget => (
            Kind::Budget,
            on_pool(),
            said("the disruption budgets of its NodePool allow no more now"),
            "its NodePool's budgets allowed 1 more",
        ),
    };
    value(kind, object, message, condition.to_owned())
}

/// All DisruptionPolicies that select the NodePool of a node are thought away together; one that is alone is named.
fn policies_allow(snapshot: &Snapshot, node: &NodeView) -> String {
    let pool = node.pool.map(|pool| &*snapshot.pool(pool).object);
    let policies = snapshot.disruption_policies.iter();
    let mut selecting = policies.filter(|policy| pool.is_some_and(|pool| policy.selects_pool(pool)));
    match (selecting.next(), selecting.next()) {
        (Some(only), None) => format!("DisruptionPolicy {} allowed it", only.name()),
        _ => "the DisruptionPolicies of its NodePool allowed it".to_owned(),
    }
}

/// The NodePool whose limit is in the way: the one that a replacement would come from.
fn limited_pool(ground: &Ground<'_>, node: NodeId) -> Option<Subject> {
    let own = ground.snapshot.node(node).pool;
    let limited =
        |pool: &spokeshave_model::snapshot::PoolView| !pool.limits.is_empty() && pool.is_provisionable();
    let snapshot = ground.snapshot;
    let own = own.map(|pool| snapshot.pool(pool)).filter(|pool| limited(pool));
    let pool = own.or_else(|| snapshot.pools.iter().find(|pool| limited(pool)))?;
    Some(Subject::cluster("NodePool", &pool.name))
}

fn value(kind: BlockerKind, object: Subject, message: String, condition: String) -> Blocker {
    Blocker {
        kind,
        object,
        message,
        condition,
    }
}
