//! Nodes and NodeClaims that do not find each other by provider ID: said by name, because nothing else will happen to them.
//!
//! It informs people; no decision reads it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::taint::same_taint;
use spokeshave_model::{Event, EventType, ObjectRef};

use crate::lifecycle::{claim_ref, node_ref};
use crate::report::first_few;

/// A Node younger than this may still get its provider ID, or its NodeClaim its record.
pub const SETTLED_AFTER: Duration = Duration::from_secs(60);
/// A finding is not repeated within this time, in seconds.
const EVENT_SECONDS: u32 = 60 * 60;

/// What one look at a Node finds.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Nothing to say.
    Fine,
    /// It is too young to judge; look again after this time.
    Young(Duration),
    /// To be told.
    Tell(Event),
}

fn warning(object: ObjectRef, reason: &str, message: String) -> Event {
    let values = [object.uid.clone(), message.clone()];
    Event::new(object, EventType::Warning, reason, message)
        .deduped_by(values)
        .within_seconds(EVENT_SECONDS)
}

/// True when a Node says of itself that it is ours: by NodePool, by the label of a NodeClass (`class_labels`), or because it waits to be registered.
#[must_use]
pub fn is_ours(node: &Node, class_labels: &[String]) -> bool {
    let own = node.metadata.labels.as_ref();
    let labelled = own.is_some_and(|own| {
        own.contains_key(labels::NODE_POOL) || class_labels.iter().any(|key| own.contains_key(key))
    });
    let unregistered = labels::unregistered_taint();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    labelled
        || taints
            .into_iter()
            .flatten()
            .any(|taint| same_taint(taint, &unregistered))
}

/// One look at a Node that is ours; `claims` are those with its provider ID.
#[must_use]
pub fn look_at_node(node: &Node, claims: &[Arc<NodeClaim>], now: Timestamp) -> Finding {
    if node.metadata.deletion_timestamp.is_some() {
        return Finding::Fine;
    }
    let id = node
        .spec
        .as_ref()
        .and_then(|spec| spec.provider_id.as_deref())
        .filter(|id| !id.is_empty());
    if id.is_some() && claims.len() == 1 {
        return Finding::Fine;
    }
    let created = node
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(now, |time| time.0);
    let age = Duration::try_from(now.duration_since(created)).unwrap_or(Duration::ZERO);
    if age < SETTLED_AFTER {
        return Finding::Young(SETTLED_AFTER - age);
    }
    let event = match (id, claims) {
        (None, _) => warning(
            node_ref(node),
            "ProviderIDMissing",
            "spec.providerID is empty, so no NodeClaim can be found for this node; it is left alone until its cloud sets it".to_owned(),
        ),
        (Some(id), []) => warning(
            node_ref(node),
            "NodeClaimMissing",
            format!("No NodeClaim has providerID {id}; the node is drained when it is deleted, and its instance is left to garbage collection"),
        ),
        (Some(id), claims) => {
            let names: Vec<&str> = claims.iter().map(|claim| claim.name()).collect();
            let names = first_few(&names, 3);
            warning(
                node_ref(node),
                "ProviderIDShared",
                format!("{} NodeClaims have providerID {id} ({names}), so none counts as this node's", claims.len()),
            )
        }
    };
    Finding::Tell(event)
}

/// One look at a NodeClaim: its provider ID is one that another claims too. That its Node is gone is garbage collection's to tell, which knows for how long.
#[must_use]
pub fn look_at_claim(claim: &NodeClaim, same_id: &[Arc<NodeClaim>]) -> Option<Event> {
    let id = claim.provider_id()?;
    let others: Vec<&str> = same_id
        .iter()
        .filter(|other| other.uid() != claim.uid())
        .map(|other| other.name())
        .collect();
    (!others.is_empty()).then(|| {
        let message = format!(
            "status.providerID {id} is also that of NodeClaim {}; while it is, neither ends the instance or its node",
            first_few(&others, 3)
        );
        warning(claim_ref(claim), "ProviderIDShared", message)
    })
}

/// True when the instance of a claim may be ended with it: no other NodeClaim says it is its own.
#[must_use]
pub fn owns_instance(claim: &NodeClaim, same_id: &[Arc<NodeClaim>]) -> bool {
    same_id.iter().all(|other| other.uid() == claim.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use spokeshave_api::NodeClaimSpec;
    use spokeshave_api::conditions::{Conditioned, REGISTERED};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn node(value: Value) -> Node {
        let mut whole =
            json!({"metadata": {"name": "n", "uid": "uid-n", "creationTimestamp": at(0).to_string()}});
        whole["spec"] = value;
        serde_json::from_value(whole).unwrap()
    }

    fn claim(name: &str) -> Arc<NodeClaim> {
        let mut claim = NodeClaim::new(name, NodeClaimSpec::default());
        claim.metadata.uid = Some(format!("uid-{name}"));
        claim.status.get_or_insert_default().provider_id = Some("kwok://n".to_owned());
        claim.set_true(REGISTERED, at(0));
        Arc::new(claim)
    }

    fn reason(finding: Finding) -> String {
        match finding {
            Finding::Tell(event) => event.reason,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn nodes_that_nobody_can_match_are_told_once_they_had_time() {
        let nameless = node(json!({}));
        assert_eq!(
            look_at_node(&nameless, &[], at(20)),
            Finding::Young(Duration::from_secs(40))
        );
        assert_eq!(reason(look_at_node(&nameless, &[], at(60))), "ProviderIDMissing");
        let foreign = node(json!({"providerID": "aws:///z/i-1"}));
        assert_eq!(reason(look_at_node(&foreign, &[], at(60))), "NodeClaimMissing");
        let ours = node(json!({"providerID": "kwok://n"}));
        assert_eq!(look_at_node(&ours, &[claim("a")], at(60)), Finding::Fine);
        assert_eq!(
            reason(look_at_node(&ours, &[claim("a"), claim("b")], at(60))),
            "ProviderIDShared"
        );
    }

    #[test]
    fn a_node_is_ours_by_pool_class_or_taint() {
        let mut plain = node(json!({}));
        let class = ["karpenter.kwok.sh/kwoknodeclass".to_owned()];
        assert!(!is_ours(&plain, &class));
        for key in [labels::NODE_POOL, class[0].as_str()] {
            plain.metadata.labels = Some([(key.to_owned(), "x".to_owned())].into());
            assert!(is_ours(&plain, &class), "{key}");
        }
        let waiting = node(json!({"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]}));
        assert!(is_ours(&waiting, &class));
    }

    #[test]
    fn claims_edited_by_hand_are_told_and_end_nobody_elses_instance() {
        let (a, b) = (claim("a"), claim("b"));
        let both = [a.clone(), b];
        assert_eq!(look_at_claim(&a, &both).unwrap().reason, "ProviderIDShared");
        assert!(!owns_instance(&a, &both) && owns_instance(&a, &both[..1]));
        assert_eq!(look_at_claim(&a, &both[..1]), None);
    }
}
