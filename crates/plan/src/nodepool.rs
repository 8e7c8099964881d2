//! What a NodePool says of itself: hash, validity, readiness, counts (P §10–10.5).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::conditions::{
    Conditioned, INSTANCE_TERMINATING, NODE_CLASS_READY, Status, VALIDATION_SUCCEEDED,
};
use spokeshave_api::validation::{LabelRules, node_pool_failures};
use spokeshave_api::{NodeClaim, NodePool, Quantity, QuantityMap, WireForm, hash, labels};
use spokeshave_model::state_node::claim_capacity;
use spokeshave_model::{Action, Resources, Subresource};

use crate::lifecycle::claim_ref;
pub use crate::pool_conditions::pool_ref;
use crate::pool_conditions::{self, CannotLaunch};
use crate::registration_health::Ring;

/// What matters of a NodeClass.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NodeClassView {
    /// Its generation.
    pub generation: i64,
    /// It is being deleted.
    pub deleting: bool,
    /// Its `Ready` condition: status, reason, message.
    pub ready: Option<(String, String, String)>,
}

/// Resources that a NodePool's status always names (P-183).
const COUNTED: [&str; 5] = ["cpu", "memory", "pods", "ephemeral-storage", "nodes"];

/// P-180, D-224: the writes that keep hash and version on a pool's claims after a change of the version. The [pool's own](pool_hash_action) comes after them all: once
/// the pool has the version, nobody looks at its claims again.
#[must_use]
pub fn claim_hash_actions(pool: &NodePool, claims: &[&NodeClaim]) -> Vec<Action> {
    let mut actions = Vec::new();
    if pool.annotation(labels::NODE_POOL_HASH_VERSION) != Some(hash::VERSION) {
        let wanted = hash::node_pool_hash(pool);
        for claim in claims
            .iter()
            .filter(|claim| claim.annotation(labels::NODE_POOL_HASH_VERSION) != Some(hash::VERSION))
        {
            let mut after = (*claim).clone();
            let annotations = after.metadata.annotations.get_or_insert_default();
            annotations.insert(
                labels::NODE_POOL_HASH_VERSION.to_owned(),
                hash::VERSION.to_owned(),
            );
            if claim.condition(spokeshave_api::conditions::DRIFTED).is_none() {
                annotations.insert(labels::NODE_POOL_HASH.to_owned(), wanted.clone());
            }
            actions.extend(Action::patch(
                claim_ref(claim),
                Subresource::Main,
                *claim,
                &after,
                false,
            ));
        }
    }
    actions
}

/// P-180, D-223: the write that keeps hash and version on a pool.
#[must_use]
pub fn pool_hash_action(pool: &NodePool) -> Option<Action> {
    let mut after = pool.clone();
    let annotations = after.metadata.annotations.get_or_insert_default();
    annotations.insert(labels::NODE_POOL_HASH.to_owned(), hash::node_pool_hash(pool));
    annotations.insert(
        labels::NODE_POOL_HASH_VERSION.to_owned(),
        hash::VERSION.to_owned(),
    );
    Action::patch(pool_ref(pool), Subresource::Main, pool, &after, false)
}

/// P-018, P-181, P-182, P-183: the write that brings a pool's status up to date.
#[must_use]
#[expect(clippy::too_many_arguments, reason = "each is a fact of its own")]
pub fn status_action(
    pool: &NodePool,
    class: Option<&NodeClassView>,
    rules: &LabelRules,
    nodes: usize,
    resources: &QuantityMap,
    health: &mut Ring,
    cannot_launch: Option<&CannotLaunch>,
    now: Timestamp,
) -> Option<Action> {
    let mut after = pool.clone();
    health.apply(&mut after, class.map(|class| class.generation), now);
    let failures = node_pool_failures(pool, rules);
    if failures.is_empty() {
        after.set_true(VALIDATION_SUCCEEDED, now);
    } else {
        after.set(
            VALIDATION_SUCCEEDED,
            Status::False,
            "NodePoolValidationFailed",
            &failures.join("; "),
            now,
        );
    }
    match readiness(class) {
        None => after.set_true(NODE_CLASS_READY, now),
        Some((reason, message)) => after.set(NODE_CLASS_READY, Status::False, &reason, &message, now),
    };
    pool_conditions::apply(&mut after, cannot_launch, now);
    let status = after.status.get_or_insert_default();
    status.nodes = i64::try_from(nodes).unwrap_or(i64::MAX);
    let mut counted: BTreeMap<_, _> = COUNTED
        .iter()
        .map(|name| ((*name).to_owned(), Quantity::from_units(0).to_wire()))
        .collect();
    counted.extend(resources.clone());
    counted.insert("nodes".to_owned(), Quantity::from_units(status.nodes).to_wire());
    status.resources = counted;
    if let Some(class) = class {
        status.node_class_observed_generation = Some(class.generation);
    }
    Action::patch(pool_ref(pool), Subresource::Status, pool, &after, true)
}

/// P-145, P-183: how many nodes a NodePool has and what they amount to: those that are launched, neither being deleted nor about to be. `node_of` finds the
/// Node of a NodeClaim, `is_leaving` knows the provider IDs in commands under way.
#[must_use]
pub fn count(
    claims: &[&NodeClaim],
    node_of: impl Fn(&str) -> Option<Arc<Node>>,
    is_leaving: impl Fn(&str) -> bool,
) -> (usize, QuantityMap) {
    let mut sum = Resources::new();
    let mut nodes = 0;
    for claim in claims {
        let Some(id) = claim.provider_id().filter(|id| !is_leaving(id)) else {
            continue;
        };
        if claim.is_deleting() || claim.is_true(INSTANCE_TERMINATING) {
            continue;
        }
        nodes += 1;
        sum.add(&claim_capacity(node_of(id).as_deref(), claim));
    }
    (nodes, sum.to_quantities())
}

/// Why a NodeClass cannot be used; `None` when it can.
fn readiness(class: Option<&NodeClassView>) -> Option<(String, String)> {
    let text = |reason: &str, message: &str| Some((reason.to_owned(), message.to_owned()));
    match class {
        None => text("NodeClassNotFound", "NodeClass not found on cluster"),
        Some(class) if class.deleting => text("NodeClassTerminating", "NodeClass is Terminating"),
        Some(class) => match &class.ready {
            None => text("NodeClassReadinessUnknown", "Node Class Readiness Unknown"),
            Some((status, _, _)) if status == "True" => None,
            Some((status, _, _)) if status == "Unknown" => {
                text("NodeClassReadinessUnknown", "Node Class Readiness Unknown")
            }
            Some((_, reason, message)) => Some((
                if reason.is_empty() {
                    "NodeClassNotReady".to_owned()
                } else {
                    reason.clone()
                },
                message.clone(),
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_api::NodePoolSpec;

    fn pool() -> NodePool {
        let spec = serde_json::json!({"template": {"spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}});
        NodePool::new("p", serde_json::from_value::<NodePoolSpec>(spec).unwrap())
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    fn condition(action: Option<Action>, type_: &str) -> (String, String) {
        let Some(Action::Patch { patch, .. }) = action else {
            panic!("a patch")
        };
        let list = patch["status"]["conditions"].as_array().unwrap().clone();
        let found = list.iter().find(|condition| condition["type"] == type_).unwrap();
        (
            found["status"].as_str().unwrap().to_owned(),
            found["reason"].as_str().unwrap().to_owned(),
        )
    }

    fn ready_class() -> NodeClassView {
        NodeClassView {
            generation: 1,
            deleting: false,
            ready: Some(("True".into(), "Ready".into(), String::new())),
        }
    }

    #[test]
    fn p_181_readiness_follows_the_node_class() {
        let of = |class: Option<NodeClassView>| {
            condition(
                status_action(
                    &pool(),
                    class.as_ref(),
                    &LabelRules::default(),
                    0,
                    &QuantityMap::new(),
                    &mut Ring::default(),
                    None,
                    now(),
                ),
                NODE_CLASS_READY,
            )
        };
        assert_eq!(of(None), ("False".into(), "NodeClassNotFound".into()));
        assert_eq!(
            of(Some(NodeClassView {
                deleting: true,
                ..ready_class()
            })),
            ("False".into(), "NodeClassTerminating".into())
        );
        assert_eq!(
            of(Some(NodeClassView {
                ready: None,
                ..ready_class()
            })),
            ("False".into(), "NodeClassReadinessUnknown".into())
        );
        let broken = Some(("False".to_owned(), "NoSubnets".to_owned(), "none".to_owned()));
        assert_eq!(
            of(Some(NodeClassView {
                ready: broken,
                ..ready_class()
            })),
            ("False".into(), "NoSubnets".into())
        );
        assert_eq!(of(Some(ready_class())).0, "True");
    }

    #[test]
    fn p_018_validation_and_p_183_counts() {
        let mut bad = pool();
        bad.spec.template.metadata.labels = [("karpenter.sh/x".to_owned(), "y".to_owned())].into();
        let action = status_action(
            &bad,
            Some(&ready_class()),
            &LabelRules::default(),
            3,
            &[("cpu".to_owned(), Quantity::from_units(12).to_wire())].into(),
            &mut Ring::default(),
            None,
            now(),
        );
        assert_eq!(
            condition(action.clone(), VALIDATION_SUCCEEDED),
            ("False".into(), "NodePoolValidationFailed".into())
        );
        let Some(Action::Patch { patch, .. }) = action else {
            panic!("a patch")
        };
        assert_eq!(
            (
                &patch["status"]["nodes"],
                &patch["status"]["resources"]["cpu"],
                &patch["status"]["resources"]["memory"]
            ),
            (&3.into(), &"12".into(), &"0".into())
        );
    }

    #[test]
    fn p_145_p_183_what_is_about_to_go_counts_no_more_and_nodes_speak_for_themselves() {
        let claim = |name: &str, id: Option<&str>| {
            let mut claim = NodeClaim::new(name, Default::default());
            let status = claim.status.get_or_insert_default();
            status.provider_id = id.map(str::to_owned);
            status.capacity = [("cpu".to_owned(), Quantity::from_units(4).to_wire())].into();
            claim
        };
        let mut going = claim("going", Some("2"));
        going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
        let mut ended = claim("ended", Some("3"));
        ended.set_true(INSTANCE_TERMINATING, now());
        let (launched, joined) = (claim("launched", Some("1")), claim("joined", Some("5")));
        let all = [
            &launched,
            &going,
            &ended,
            &claim("leaving", Some("4")),
            &joined,
            &claim("planned", None),
        ];
        let node = |id: &str| {
            let value = serde_json::json!({"metadata": {"labels": {labels::INITIALIZED: "true"}}, "status": {"capacity": {"cpu": "3900m", "pods": "110"}}});
            (id == "5").then(|| Arc::new(serde_json::from_value::<Node>(value).unwrap()))
        };
        let (nodes, sum) = count(&all, node, |id| id == "4");
        assert_eq!(nodes, 2);
        let amount = |name: &str| {
            sum.get(name)
                .map(|wire| Quantity::from_wire(wire).unwrap().to_milli())
        };
        assert_eq!((amount("cpu"), amount("pods")), (Some(7_900), Some(110_000)));
    }

    #[test]
    fn d_224_p_180_another_version_restamps_claims_and_spares_drifted_ones() {
        let mut fresh = NodeClaim::new("a", Default::default());
        fresh.metadata.annotations = Some(
            [
                (labels::NODE_POOL_HASH.to_owned(), "old".to_owned()),
                (labels::NODE_POOL_HASH_VERSION.to_owned(), "v3".to_owned()),
            ]
            .into(),
        );
        let mut drifted = fresh.clone();
        drifted.metadata.name = Some("b".to_owned());
        drifted.set_true(spokeshave_api::conditions::DRIFTED, now());
        let mut actions = claim_hash_actions(&pool(), &[&fresh, &drifted]);
        actions.extend(pool_hash_action(&pool()));
        let patches: Vec<_> = actions
            .iter()
            .map(|action| match action {
                Action::Patch { patch, .. } => patch["metadata"]["annotations"].clone(),
                _ => panic!("patches"),
            })
            .collect();
        assert_eq!(patches.len(), 3);
        assert!(
            patches[0].get(labels::NODE_POOL_HASH).is_some()
                && patches[1].get(labels::NODE_POOL_HASH).is_none()
        );
        let mut stamped = pool();
        stamped.metadata.annotations = Some(serde_json::from_value(patches[2].clone()).unwrap());
        assert!(
            claim_hash_actions(&stamped, &[&fresh]).is_empty(),
            "with the current version on the pool nothing is touched"
        );
        assert_eq!(pool_hash_action(&stamped), None);
    }
}
