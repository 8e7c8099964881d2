//! No instance without NodeClaim, no registered NodeClaim without instance (D-249…D-253).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, REGISTERED};
use spokeshave_api::constants::LEAKED_INSTANCE_AGE;
use spokeshave_model::state_node::is_node_ready;

/// D-249: registered NodeClaims whose instance is gone, unless their Node is Ready. `claims` were listed before `instances` (D-250).
#[must_use]
pub fn claims_without_instance(
    claims: &[Arc<NodeClaim>],
    instances: &[NodeClaim],
    nodes: &[Arc<Node>],
) -> Vec<Arc<NodeClaim>> {
    let alive: BTreeSet<&str> = instances
        .iter()
        .filter(|instance| !instance.is_deleting())
        .filter_map(NodeClaim::provider_id)
        .collect();
    let ready: BTreeSet<&str> = nodes
        .iter()
        .filter(|node| is_node_ready(node))
        .filter_map(|node| node.spec.as_ref()?.provider_id.as_deref())
        .collect();
    let orphaned = |claim: &&Arc<NodeClaim>| {
        claim.is_true(REGISTERED)
            && !claim.is_deleting()
            && claim
                .provider_id()
                .is_none_or(|id| !alive.contains(id) && !ready.contains(id))
    };
    claims.iter().filter(orphaned).cloned().collect()
}

/// D-252: instances older than 30 s that no NodeClaim names. `instances` were listed before `claims`. A claim that is still launching has not
/// recorded its provider ID, but its instance carries its name.
#[must_use]
pub fn leaked_instances(
    instances: &[NodeClaim],
    claims: &[Arc<NodeClaim>],
    now: Timestamp,
) -> Vec<NodeClaim> {
    let named: BTreeSet<&str> = claims.iter().filter_map(|claim| claim.provider_id()).collect();
    let names: BTreeMap<&str, &str> = instances
        .iter()
        .filter_map(|instance| Some((instance.provider_id()?, instance.name())))
        .collect();
    // A claim that has not recorded its instance yet, or that somebody gave another's provider ID, still owns the instance of its own name.
    let owners: BTreeSet<&str> = claims
        .iter()
        .filter(|claim| {
            let recorded = claim.provider_id().map(|id| names.get(id).copied());
            match recorded {
                None => true,
                Some(name) => name.is_some_and(|name| !name.is_empty() && name != claim.name()),
            }
        })
        .map(|claim| claim.name())
        .collect();
    let leaked = |instance: &&NodeClaim| {
        let age = instance
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(0, |time| now.duration_since(time.0).as_secs());
        let old = u64::try_from(age).is_ok_and(|age| age >= LEAKED_INSTANCE_AGE.as_secs());
        old && !instance.is_deleting()
            && instance.provider_id().is_none_or(|id| !named.contains(id))
            && !owners.contains(instance.name())
    };
    instances.iter().filter(leaked).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{NodeCondition, NodeSpec, NodeStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use spokeshave_api::NodeClaimSpec;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn claim(name: &str, id: Option<&str>) -> NodeClaim {
        let mut claim = NodeClaim::new(name, NodeClaimSpec::default());
        claim.metadata.creation_timestamp = Some(Time(at(0)));
        claim.status.get_or_insert_default().provider_id = id.map(str::to_owned);
        claim.set_true(REGISTERED, at(1));
        claim
    }

    fn names(found: &[Arc<NodeClaim>]) -> Vec<&str> {
        found.iter().map(|claim| claim.name()).collect()
    }

    #[test]
    fn d_249_d_250_d_251_p_172_a_registered_claim_without_instance_goes_unless_its_node_is_ready() {
        let claims: Vec<Arc<NodeClaim>> = [
            claim("a", Some("1")),
            claim("b", Some("2")),
            claim("c", Some("3")),
        ]
        .into_iter()
        .map(Arc::new)
        .collect();
        let mut going = claim("c", Some("3"));
        going.metadata.deletion_timestamp = Some(Time(at(9)));
        let instances = [claim("a", Some("1")), going];
        assert_eq!(
            names(&claims_without_instance(&claims, &instances, &[])),
            ["b", "c"]
        );
        let ready = Node {
            spec: Some(NodeSpec {
                provider_id: Some("2".to_owned()),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                conditions: Some(vec![NodeCondition {
                    type_: "Ready".into(),
                    status: "True".into(),
                    ..NodeCondition::default()
                }]),
                ..NodeStatus::default()
            }),
            ..Node::default()
        };
        assert_eq!(
            names(&claims_without_instance(&claims, &instances, &[Arc::new(ready)])),
            ["c"]
        );
        let mut unregistered = claim("d", Some("4"));
        unregistered.clear(REGISTERED);
        assert!(
            claims_without_instance(&[Arc::new(unregistered)], &[], &[]).is_empty(),
            "D-251"
        );
    }

    #[test]
    fn d_252_an_instance_without_claim_is_ended_after_30_seconds() {
        let instances = [claim("x", Some("9"))];
        assert!(leaked_instances(&instances, &[], at(29)).is_empty());
        assert_eq!(leaked_instances(&instances, &[], at(30)).len(), 1);
        assert!(leaked_instances(&instances, &[Arc::new(claim("x", Some("9")))], at(60)).is_empty());
        assert!(
            leaked_instances(&instances, &[Arc::new(claim("x", None))], at(60)).is_empty(),
            "its claim has not recorded it yet"
        );
        let twice = [claim("x", Some("9")), claim("x", Some("9"))];
        assert!(leaked_instances(&twice, &[Arc::new(claim("x", Some("9")))], at(60)).is_empty());
    }

    #[test]
    fn d_253_an_edited_claim_keeps_its_instance_and_a_second_launch_does_not_stay() {
        let instances = [claim("x", Some("1")), claim("y", Some("2"))];
        let edited = [Arc::new(claim("x", Some("2"))), Arc::new(claim("y", Some("2")))];
        assert!(
            leaked_instances(&instances, &edited, at(60)).is_empty(),
            "somebody gave x the provider ID of y; the instance of x is not leaked"
        );
        let double = [claim("x", Some("1")), claim("x", Some("3"))];
        let found = leaked_instances(&double, &[Arc::new(claim("x", Some("1")))], at(60));
        assert_eq!(
            found.iter().map(|one| one.provider_id()).collect::<Vec<_>>(),
            [Some("3")]
        );
    }
}
