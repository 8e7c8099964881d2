//! Launched NodeClaims whose provider ID somebody has taken away: which instance is theirs. None of them is launched a second time.
//!
//! Owns whose word counts: that of the Node which names the NodeClaim as its owner, and then the cloud's.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::NodeClaim;
use spokeshave_model::{Action, Subresource};

use crate::lifecycle::{claim_ref, is_owned_by};

/// The clocks of cloud and API server may differ by so much.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_mins(1);

/// What the Node of a NodeClaim says that it runs on; `None` where no Node names it as its owner, or several do and disagree.
#[must_use]
pub fn on_node<'a>(claim: &NodeClaim, nodes: &'a [Arc<Node>]) -> Option<&'a str> {
    let mut ids = nodes
        .iter()
        .filter(|node| is_owned_by(node, claim))
        .filter_map(|node| node.spec.as_ref()?.provider_id.as_deref())
        .filter(|id| !id.is_empty());
    let first = ids.next()?;
    ids.all(|other| other == first).then_some(first)
}

/// The provider ID of a NodeClaim's instance among all that the cloud lists, by its UID, or by its name where the cloud remembers no UID; `is_taken` knows the IDs
/// that NodeClaims have. Of several, garbage collection ends those that are not chosen.
#[must_use]
pub fn in_list<'a>(
    claim: &NodeClaim,
    instances: &'a [NodeClaim],
    is_taken: impl Fn(&str) -> bool,
) -> Option<&'a str> {
    let is_its = |instance: &&NodeClaim| match instance.uid() {
        "" => instance.name() == claim.name() && !is_older(instance, claim),
        uid => uid == claim.uid(),
    };
    let is_free = |instance: &&NodeClaim| instance.provider_id().is_some_and(|id| !is_taken(id));
    let found = instances.iter().filter(is_its).filter(is_free);
    let chosen = found.min_by(|one, other| rank(one).cmp(&rank(other)));
    chosen?.provider_id()
}

/// What runs comes first, and of that what was launched first.
fn rank(instance: &NodeClaim) -> (bool, Option<Timestamp>, Option<&str>) {
    (instance.is_deleting(), created(instance), instance.provider_id())
}

fn created(claim: &NodeClaim) -> Option<Timestamp> {
    let created = claim.metadata.creation_timestamp.as_ref();
    created.map(|time| time.0)
}

/// Whether an instance is that of a predecessor of the same name.
fn is_older(instance: &NodeClaim, claim: &NodeClaim) -> bool {
    let both = created(instance).zip(created(claim));
    both.is_some_and(|(launched, created)| created.duration_since(launched) > CLOCKS_DIFFER)
}

/// The write that gives a NodeClaim its provider ID back.
#[must_use]
pub fn restored(claim: &NodeClaim, id: &str) -> Option<Action> {
    let mut after = claim.clone();
    after.status.get_or_insert_default().provider_id = Some(id.to_owned());
    Action::patch(claim_ref(claim), Subresource::Status, claim, &after, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;
    use spokeshave_api::NodeClaimSpec;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn claim(name: &str, uid: &str, created: i64, id: Option<&str>) -> NodeClaim {
        let mut claim = NodeClaim::new(name, NodeClaimSpec::default());
        claim.metadata.uid = Some(uid.to_owned());
        claim.metadata.creation_timestamp = Some(Time(at(created)));
        claim.status.get_or_insert_default().provider_id = id.map(str::to_owned);
        claim
    }

    fn node(owner: &str, id: &str) -> Arc<Node> {
        let owners =
            json!([{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "x", "uid": owner}]);
        let node = json!({"metadata": {"name": "n", "ownerReferences": owners}, "spec": {"providerID": id}});
        Arc::new(serde_json::from_value(node).unwrap())
    }

    #[test]
    fn d_307_the_node_that_names_its_nodeclaim_says_which_instance_it_is() {
        let claim = claim("x", "u-x", 0, None);
        let found = |nodes: &[(&str, &str)]| {
            let nodes: Vec<Arc<Node>> = nodes.iter().map(|(owner, id)| node(owner, id)).collect();
            on_node(&claim, &nodes).map(str::to_owned)
        };
        assert_eq!(found(&[("u-y", "2"), ("u-x", "1")]).as_deref(), Some("1"));
        assert_eq!(found(&[("u-y", "2"), ("u-x", "")]), None);
        assert_eq!(found(&[("u-x", "1"), ("u-x", "2")]), None, "which?");
    }

    #[test]
    fn d_307_the_cloud_knows_an_instance_by_uid_or_by_name() {
        let wanted = claim("x", "u-x", 1000, None);
        let found = |instances: &[NodeClaim], taken: &[&str]| {
            in_list(&wanted, instances, |id| taken.contains(&id)).map(str::to_owned)
        };
        let by_uid = [
            claim("x", "u-y", 1000, Some("1")),
            claim("", "u-x", 1000, Some("2")),
        ];
        assert_eq!(found(&by_uid, &[]).as_deref(), Some("2"));
        assert_eq!(found(&by_uid, &["2"]), None, "it is another's now");
        let named = |created: i64| [claim("x", "", created, Some("3"))];
        assert_eq!(found(&named(990), &[]).as_deref(), Some("3"));
        assert_eq!(found(&named(100), &[]), None, "a predecessor's");
        let mut going = claim("x", "u-x", 1000, Some("4"));
        going.metadata.deletion_timestamp = Some(Time(at(1100)));
        let several = [
            going,
            claim("x", "u-x", 1010, Some("5")),
            claim("x", "u-x", 1005, Some("6")),
        ];
        assert_eq!(found(&several, &[]).as_deref(), Some("6"));
    }
}
