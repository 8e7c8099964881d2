//! No instance without NodeClaim, no registered NodeClaim without instance (D-249…D-253), and none without Node for long.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::conditions::{Conditioned, INITIALIZED, REGISTERED};
use spokeshave_api::constants::{LEAKED_INSTANCE_AGE, REGISTRATION_TIMEOUT};
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::state_node::is_node_ready;
use spokeshave_model::{Event, EventType};

use crate::lifecycle::claim_ref;
use crate::provider_ids::{in_list, on_node};

/// D-249: registered NodeClaims whose instance is gone, unless their Node is Ready. `claims` were listed before `instances` (D-250). One whose provider ID somebody
/// has taken away gets it back, as long as Node or cloud know it.
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
    let recorded: BTreeSet<&str> = claims.iter().filter_map(|claim| claim.provider_id()).collect();
    let is_known = |claim: &NodeClaim| {
        let is_taken = |id: &str| recorded.contains(id);
        on_node(claim, nodes).is_some() || in_list(claim, instances, is_taken).is_some()
    };
    let orphaned = |claim: &&Arc<NodeClaim>| {
        claim.is_true(REGISTERED)
            && !claim.is_deleting()
            && match claim.provider_id() {
                Some(id) => !alive.contains(id) && !ready.contains(id),
                None => !is_known(claim),
            }
    };
    claims.iter().filter(orphaned).cloned().collect()
}

/// Replacements that are not up and whose command is no more: somebody has deleted it, or the API server refused to delete them when it was taken back
/// (W-33, invariant 10). `command` finds a Disruption by its name; `unreadable` are the names of those that exist and cannot be read: they may still be
/// under way.
pub fn orphaned_replacements(
    claims: &[Arc<NodeClaim>],
    command: impl Fn(&str) -> Option<Arc<Disruption>>,
    unreadable: &BTreeSet<String>,
    now: Timestamp,
) -> Vec<Arc<NodeClaim>> {
    let orphaned = |claim: &&Arc<NodeClaim>| {
        let Some(name) = claim.annotation(labels::DISRUPTION) else {
            return false;
        };
        let created = claim.metadata.creation_timestamp.as_ref();
        !claim.is_deleting()
            && !claim.is_true(INITIALIZED)
            && created.is_some_and(|created| now.duration_since(created.0) >= ORPHAN_AGE)
            && !unreadable.contains(name)
            && command(name).is_none_or(|command| command.phase() == DisruptionPhase::RolledBack)
    };
    claims.iter().filter(orphaned).cloned().collect()
}

/// The watch of Disruptions tells of a new one within this time.
const ORPHAN_AGE: SignedDuration = SignedDuration::from_mins(1);

/// D-252: instances older than 30 s that no NodeClaim names. `instances` were listed before `claims`. A claim that is still launching has not
/// recorded its provider ID, but its instance carries its name or its UID: a cloud may remember only one of them. `unreadable` are the names of NodeClaims
/// that exist and cannot be read, as those that a later version wrote: they still own the instances of their names, also of shortened ones, and any of them
/// may own an instance without a name.
#[must_use]
pub fn leaked_instances(
    instances: &[NodeClaim],
    claims: &[Arc<NodeClaim>],
    unreadable: &BTreeSet<String>,
    now: Timestamp,
) -> Vec<NodeClaim> {
    let is_owned_unread = |instance: &NodeClaim| match instance.name() {
        "" => !unreadable.is_empty(),
        name => unreadable.iter().any(|unread| unread.starts_with(name)),
    };
    let recorded: BTreeSet<&str> = claims.iter().filter_map(|claim| claim.provider_id()).collect();
    let listed: BTreeMap<&str, &NodeClaim> = instances
        .iter()
        .filter_map(|instance| Some((instance.provider_id()?, instance)))
        .collect();
    // A claim that has not recorded its instance yet, or that somebody gave another's provider ID, still owns the instance of its own name or UID.
    let owners = claims.iter().filter(|claim| match claim.provider_id() {
        None => true,
        Some(id) => listed
            .get(id)
            .is_some_and(|instance| is_of_another(instance, claim)),
    });
    let (names, mut uids): (BTreeSet<&str>, BTreeSet<&str>) =
        owners.map(|claim| (claim.name(), claim.uid())).unzip();
    // A recorded ID that the cloud does not list may be the same one, written otherwise: what carries the claim's UID ends with the claim at the latest. A name
    // alone is not enough, as a second machine may have it.
    let is_listed = |id: &str| listed.contains_key(id);
    let unlisted = claims
        .iter()
        .filter(|claim| claim.provider_id().is_some_and(|id| !is_listed(id)));
    uids.extend(unlisted.map(|claim| claim.uid()));
    let is_owned = |instance: &NodeClaim| {
        let uid = instance.uid();
        names.contains(instance.name()) || !uid.is_empty() && uids.contains(uid)
    };
    let leaked = |instance: &&NodeClaim| {
        let age = instance
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(0, |time| now.duration_since(time.0).as_secs());
        let old = u64::try_from(age).is_ok_and(|age| age >= LEAKED_INSTANCE_AGE.as_secs());
        old && !instance.is_deleting()
            && instance.provider_id().is_none_or(|id| !recorded.contains(id))
            && !is_owned(instance)
            && !is_owned_unread(instance)
    };
    instances.iter().filter(leaked).cloned().collect()
}

/// Whether an instance says that it was made for another NodeClaim: by its name and its UID, as far as it has them. A cloud may shorten names.
fn is_of_another(instance: &NodeClaim, claim: &NodeClaim) -> bool {
    let (name, uid) = (instance.name(), instance.uid());
    let is_its = name == claim.name() || (!uid.is_empty() && uid == claim.uid());
    let says_nothing = name.is_empty() && uid.is_empty();
    !(is_its || says_nothing)
}

/// How long a registered NodeClaim may be without its Node: as long as a new instance has to bring one. A kubelet that starts again registers
/// its Node again, and one that does not within this time would have been given up as a new instance too.
pub const NODE_MISSING_LIMIT: std::time::Duration = REGISTRATION_TIMEOUT;
/// From when a missing Node is told: lists that arrive one after the other may disagree for a moment.
const NODE_MISSING_TOLD: std::time::Duration = std::time::Duration::from_secs(60);

/// Registered NodeClaims whose Node is gone, and since when that is seen. Somebody took the Node away, finalizers and all; its instance runs, costs
/// and is counted on as if it could take pods. Lost at a restart: the time then begins anew.
#[derive(Clone, Debug, Default)]
pub struct MissingNodes {
    /// By UID of the NodeClaim: since when, and whether it was told.
    since: BTreeMap<String, (Timestamp, bool)>,
}

impl MissingNodes {
    /// A look at all NodeClaims and Nodes: what must be told now, and the NodeClaims whose Node has been missing for [`NODE_MISSING_LIMIT`].
    pub fn look(
        &mut self,
        claims: &[Arc<NodeClaim>],
        nodes: &[Arc<Node>],
        now: Timestamp,
    ) -> (Vec<Event>, Vec<Arc<NodeClaim>>) {
        // By name too: a Node whose provider ID was edited still runs pods.
        let ids: BTreeSet<&str> = nodes
            .iter()
            .filter_map(|node| node.spec.as_ref()?.provider_id.as_deref())
            .collect();
        let names: BTreeSet<&str> = nodes
            .iter()
            .filter_map(|node| node.metadata.name.as_deref())
            .collect();
        let (mut events, mut overdue) = (Vec::new(), Vec::new());
        let mut since = BTreeMap::new();
        for claim in claims {
            let Some(id) = claim.provider_id() else { continue };
            let present = ids.contains(id) || names.contains(node_of(claim));
            if present || claim.is_deleting() || !claim.is_true(REGISTERED) {
                continue;
            }
            let (first, mut told) = self.since.get(claim.uid()).copied().unwrap_or((now, false));
            let passed = std::time::Duration::try_from(now.duration_since(first)).unwrap_or_default();
            if passed >= NODE_MISSING_LIMIT {
                overdue.push(claim.clone());
            } else if passed >= NODE_MISSING_TOLD && !told {
                events.push(missing_event(claim, id));
                told = true;
            }
            since.insert(claim.uid().to_owned(), (first, told));
        }
        self.since = since;
        (events, overdue)
    }
}

fn node_of(claim: &NodeClaim) -> &str {
    claim.node_name().unwrap_or_default()
}

fn missing_event(claim: &NodeClaim, id: &str) -> Event {
    let message = format!(
        "Node {} is gone while instance {id} runs; unless it is back within {} minutes, the NodeClaim is deleted and the instance terminated",
        node_of(claim),
        NODE_MISSING_LIMIT.as_secs() / 60
    );
    Event::new(claim_ref(claim), EventType::Warning, "NodeMissing", message)
}

/// Why a NodeClaim of [`MissingNodes::look`] is deleted.
#[must_use]
pub fn given_up_event(claim: &NodeClaim) -> Event {
    let message = format!(
        "Node {} has been gone for {} minutes: the NodeClaim is deleted and instance {} terminated",
        node_of(claim),
        NODE_MISSING_LIMIT.as_secs() / 60,
        claim.provider_id().unwrap_or_default()
    );
    Event::new(
        claim_ref(claim),
        EventType::Warning,
        "NodeMissingTooLong",
        message,
    )
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

    fn none() -> BTreeSet<String> {
        BTreeSet::new()
    }

    fn names(found: &[Arc<NodeClaim>]) -> Vec<&str> {
        found.iter().map(|claim| claim.name()).collect()
    }

    #[test]
    fn w_33_a_replacement_whose_command_is_no_more_goes() {
        let of = |name: &str, command: &str| {
            let mut claim = claim(name, None);
            let annotations = claim.metadata.annotations.get_or_insert_default();
            annotations.insert(labels::DISRUPTION.to_owned(), command.to_owned());
            claim
        };
        let mut up = of("up", "deleted");
        up.set_true(INITIALIZED, at(2));
        let claims: Vec<Arc<NodeClaim>> = [
            of("a", "deleted"),
            of("b", "rolled-back"),
            of("c", "running"),
            up,
            claim("d", None),
        ]
        .into_iter()
        .map(Arc::new)
        .collect();
        let command = |name: &str| {
            let phase = match name {
                "rolled-back" => "RolledBack",
                "running" => "Replacing",
                _ => return None,
            };
            let spec = serde_json::json!({
                "method": "Drift", "reason": "Drifted", "decision": "Replace", "decidedAt": "2023-11-14T22:13:20.000000Z", "nodes": [], "replacements": [],
                "priceBefore": "2", "priceAfter": "1", "savings": "1", "evictions": 2, "nodeSummary": "n", "replacementSummary": "-",
            });
            let value =
                serde_json::json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}});
            Some(Arc::new(serde_json::from_value::<Disruption>(value).unwrap()))
        };
        assert_eq!(
            names(&orphaned_replacements(&claims, command, &none(), at(60))),
            ["a", "b"]
        );
        assert!(
            orphaned_replacements(&claims, command, &none(), at(59)).is_empty(),
            "its watch may be late"
        );
        let unreadable = BTreeSet::from(["deleted".to_owned()]);
        assert_eq!(
            names(&orphaned_replacements(&claims, command, &unreadable, at(60))),
            ["b"],
            "its command is there and cannot be read"
        );
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
        assert!(leaked_instances(&instances, &[], &none(), at(29)).is_empty());
        assert_eq!(leaked_instances(&instances, &[], &none(), at(30)).len(), 1);
        assert!(leaked_instances(&instances, &[Arc::new(claim("x", Some("9")))], &none(), at(60)).is_empty());
        assert!(
            leaked_instances(&instances, &[Arc::new(claim("x", None))], &none(), at(60)).is_empty(),
            "its claim has not recorded it yet"
        );
        let twice = [claim("x", Some("9")), claim("x", Some("9"))];
        assert!(leaked_instances(&twice, &[Arc::new(claim("x", Some("9")))], &none(), at(60)).is_empty());
    }

    fn with_uid(name: &str, uid: &str, id: Option<&str>) -> NodeClaim {
        let mut claim = claim(name, id);
        claim.metadata.uid = Some(uid.to_owned());
        claim
    }

    #[test]
    fn d_249_d_307_a_claim_without_provider_id_stays_as_long_as_node_or_cloud_know_its_instance() {
        let claims = [Arc::new(with_uid("a", "u-a", None))];
        let orphaned = |instances: &[NodeClaim], nodes: &[Arc<Node>]| {
            !claims_without_instance(&claims, instances, nodes).is_empty()
        };
        assert!(orphaned(&[], &[]));
        assert!(orphaned(&[with_uid("a", "u-b", Some("1"))], &[node("n", "2")]));
        assert!(!orphaned(&[with_uid("a", "u-a", Some("1"))], &[]));
        let mut owned = Node::clone(&node("n", "1"));
        let owner = serde_json::json!([{"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "a", "uid": "u-a"}]);
        owned.metadata.owner_references = serde_json::from_value(owner).unwrap();
        assert!(!orphaned(&[], &[Arc::new(owned)]));
    }

    #[test]
    fn d_252_a_cloud_that_remembers_only_the_uid_keeps_the_instance_of_a_launch_under_way() {
        let instances = [with_uid("", "u-x", Some("1")), with_uid("", "u-y", Some("2"))];
        let ended = |claims: &[NodeClaim]| -> Vec<String> {
            let claims: Vec<Arc<NodeClaim>> = claims.iter().cloned().map(Arc::new).collect();
            let found = leaked_instances(&instances, &claims, &none(), at(60));
            found.iter().map(|one| one.uid().to_owned()).collect()
        };
        assert_eq!(ended(&[with_uid("x", "u-x", None)]), ["u-y"]);
        assert_eq!(
            ended(&[with_uid("x", "u-z", None), claim("y", None)]),
            ["u-x", "u-y"],
            "a successor of the same name is another NodeClaim"
        );
        assert_eq!(
            ended(&[with_uid("x", "u-x", Some("2")), with_uid("y", "u-y", Some("2"))]),
            [""; 0],
            "somebody gave x the provider ID of y"
        );
        assert_eq!(
            ended(&[with_uid("x", "u-x", Some("1"))]),
            ["u-y"],
            "what is recorded is enough"
        );
    }

    /// All of its instances would end at once.
    #[test]
    fn d_252_a_cloud_that_writes_ids_otherwise_than_before_keeps_what_carries_the_uid_of_a_claim() {
        let instances = [
            with_uid("a", "u-a", Some("cloud:///a-1")),
            with_uid("", "u-b", Some("cloud:///b-1")),
            with_uid("a", "", Some("cloud:///c-1")),
        ];
        let ended = |claims: &[Arc<NodeClaim>]| -> Vec<String> {
            let found = leaked_instances(&instances, claims, &none(), at(60));
            let ids = found.iter().filter_map(NodeClaim::provider_id);
            ids.map(str::to_owned).collect()
        };
        let claims = [Arc::new(with_uid("a", "u-a", Some("cloud:///A-1")))];
        assert_eq!(ended(&claims), ["cloud:///b-1", "cloud:///c-1"]);
        assert_eq!(ended(&[]).len(), 3, "its claim is gone");
    }

    #[test]
    fn d_252_d_253_a_second_machine_ends_also_where_the_cloud_shortens_names() {
        let instances = ["1", "3"].map(|id| with_uid("long-na", "u-x", Some(id)));
        let claims = [Arc::new(with_uid("long-name", "u-x", Some("1")))];
        let found = leaked_instances(&instances, &claims, &none(), at(60));
        let ids: Vec<_> = found.iter().map(NodeClaim::provider_id).collect();
        assert_eq!(ids, [Some("3")]);
    }

    #[test]
    fn d_252_what_cannot_be_read_still_owns_its_instance() {
        let instances = [claim("x", Some("9")), claim("y", Some("8")), claim("", Some("7"))];
        let ended = |unreadable: &[&str]| -> Vec<String> {
            let unreadable = unreadable.iter().map(|&name| name.to_owned()).collect();
            let found = leaked_instances(&instances, &[], &unreadable, at(60));
            found.iter().map(|one| one.name().to_owned()).collect()
        };
        assert_eq!(ended(&["x"]), ["y"], "whose is the one without a name?");
        assert_eq!(ended(&["x-long"]), ["y"], "a cloud may shorten names");
        assert_eq!(ended(&["z"]), ["x", "y"]);
        assert_eq!(ended(&[]), ["x", "y", ""]);
    }

    #[test]
    fn d_253_an_edited_claim_keeps_its_instance_and_a_second_launch_does_not_stay() {
        let instances = [claim("x", Some("1")), claim("y", Some("2"))];
        let edited = [Arc::new(claim("x", Some("2"))), Arc::new(claim("y", Some("2")))];
        assert!(
            leaked_instances(&instances, &edited, &none(), at(60)).is_empty(),
            "somebody gave x the provider ID of y; the instance of x is not leaked"
        );
        let double = [claim("x", Some("1")), claim("x", Some("3"))];
        let found = leaked_instances(&double, &[Arc::new(claim("x", Some("1")))], &none(), at(60));
        assert_eq!(
            found.iter().map(|one| one.provider_id()).collect::<Vec<_>>(),
            [Some("3")]
        );
    }

    fn node(name: &str, id: &str) -> Arc<Node> {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        node.spec.get_or_insert_default().provider_id = Some(id.to_owned());
        Arc::new(node)
    }

    fn with_node(name: &str, id: &str) -> NodeClaim {
        let mut claim = claim(name, Some(id));
        claim.metadata.uid = Some(format!("uid-{name}"));
        claim.status.get_or_insert_default().node_name = Some(format!("node-{name}"));
        claim
    }

    #[test]
    fn d_253_a_registered_claim_whose_node_is_gone_is_told_after_a_minute_and_given_up_after_fifteen() {
        let claims = [Arc::new(with_node("a", "1")), Arc::new(with_node("b", "2"))];
        let nodes = [node("node-b", "2")];
        let mut missing = MissingNodes::default();
        let mut seen = Vec::new();
        for minute in 0..=15 {
            let (events, overdue) = missing.look(&claims, &nodes, at(minute * 60));
            seen.extend(events.iter().map(|event| (minute, event.message.clone())));
            assert_eq!(names(&overdue).is_empty(), minute < 15, "minute {minute}");
            if minute == 15 {
                assert_eq!(names(&overdue), ["a"]);
                assert!(
                    given_up_event(&overdue[0])
                        .message
                        .contains("Node node-a has been gone for 15 minutes")
                );
            }
        }
        let [(1, message)] = &seen[..] else {
            panic!("told once, after a minute: {seen:?}")
        };
        assert!(
            message.starts_with("Node node-a is gone while instance 1 runs"),
            "{message}"
        );
    }

    #[test]
    fn d_253_a_node_that_comes_back_or_lost_its_provider_id_keeps_its_claim_and_a_restart_counts_anew() {
        let claims = [Arc::new(with_node("a", "1"))];
        let mut missing = MissingNodes::default();
        missing.look(&claims, &[], at(0));
        missing.look(&claims, &[node("another-name", "1")], at(600));
        assert!(
            missing.look(&claims, &[], at(1200)).1.is_empty(),
            "it was back in between"
        );
        assert!(missing.look(&claims, &[], at(1200 + 899)).1.is_empty());
        assert_eq!(missing.look(&claims, &[], at(1200 + 900)).1.len(), 1);
        assert!(
            MissingNodes::default().look(&claims, &[], at(3000)).1.is_empty(),
            "a restart"
        );
        let mut edited = MissingNodes::default();
        edited.look(&claims, &[node("node-a", "9")], at(0));
        assert!(
            edited
                .look(&claims, &[node("node-a", "9")], at(1000))
                .1
                .is_empty()
        );
    }

    #[test]
    fn d_251_d_253_only_registered_claims_that_stay_are_missed_a_node() {
        let mut young = with_node("a", "1");
        young.clear(REGISTERED);
        let mut going = with_node("b", "2");
        going.metadata.deletion_timestamp = Some(Time(at(9)));
        let claims = [Arc::new(young), Arc::new(going), Arc::new(claim("c", None))];
        let mut missing = MissingNodes::default();
        missing.look(&claims, &[], at(0));
        assert_eq!(missing.look(&claims, &[], at(5000)), (Vec::new(), Vec::new()));
    }
}
