//! Nodes that their cloud declares broken (D-254…D-261): which, when they may be replaced, and when too many are broken to replace any.
//!
//! Owns the toleration and the 20 % rule. It neither knows a cloud (its policies come in as values) nor deletes anything: it returns writes.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::{Action, Event, EventType, ObjectRef, Subresource};

use crate::durations::signed;
use crate::lifecycle::{claim_ref, node_ref};

/// More broken nodes than this share of all, rounded up, are not repaired (D-257).
const REPAIRABLE_PERCENT: usize = 20;
/// A blocked repair is looked at again after this long (D-258).
pub const BLOCKED_RETRY: Duration = Duration::from_secs(5 * 60);
/// `NodeRepairBlocked` is not repeated within this time (D-258), in seconds.
const BLOCKED_EVENT_SECONDS: u32 = 15 * 60;

/// A Node condition that means "broken" (D-255).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairPolicy {
    /// Type of the condition, such as `Ready`.
    pub condition_type: String,
    /// Its status: `True`, `False` or `Unknown`.
    pub condition_status: String,
    /// How long it is left to recover.
    pub toleration: Duration,
}

/// A broken Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unhealthy {
    /// Type of the condition that says so.
    pub condition_type: String,
    /// When the Node may be replaced.
    pub due: Timestamp,
}

/// D-255: whether a Node is broken; of several reasons the one that is due first.
#[must_use]
pub fn unhealthy(node: &Node, policies: &[RepairPolicy]) -> Option<Unhealthy> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let found = policies.iter().filter_map(|policy| {
        let condition = conditions.iter().find(|condition| {
            condition.type_ == policy.condition_type && condition.status == policy.condition_status
        })?;
        let since = condition
            .last_transition_time
            .as_ref()
            .map(|time| time.0)
            .or(created)?;
        let toleration = signed(policy.toleration);
        Some(Unhealthy {
            condition_type: policy.condition_type.clone(),
            due: since.saturating_add(toleration).unwrap_or(Timestamp::MAX),
        })
    });
    found.min_by_key(|unhealthy| unhealthy.due)
}

/// D-257: repair stops when more than ceil(20 %) of the nodes are broken.
#[must_use]
pub fn is_blocked(unhealthy: usize, total: usize) -> bool {
    unhealthy > (total * REPAIRABLE_PERCENT).div_ceil(100)
}

/// What one look at a Node asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum RepairStep {
    /// The Node is well, or on its way out already.
    Nothing,
    /// It may recover until then.
    Wait(Duration),
    /// Too many are broken; tell, and look again after `BLOCKED_RETRY`.
    Blocked(Vec<Event>),
    /// These writes end it, because of this condition.
    Repair {
        /// The deadline that skips the drain, then the deletion.
        actions: Vec<Action>,
        /// Type of the condition.
        condition_type: String,
    },
}

/// D-256…D-259: one look at a Node and its NodeClaim. Of all Nodes of its NodePool, or of the cluster when it has none, itself included, `sick` are
/// broken and `total` are there.
#[must_use]
pub fn repair_step(
    node: &Node,
    claim: &NodeClaim,
    sick: usize,
    total: usize,
    policies: &[RepairPolicy],
    now: Timestamp,
) -> RepairStep {
    let Some(broken) = unhealthy(node, policies).filter(|_| !claim.is_deleting()) else {
        return RepairStep::Nothing;
    };
    let left = Duration::try_from(broken.due.duration_since(now)).unwrap_or(Duration::ZERO);
    if !left.is_zero() {
        return RepairStep::Wait(left);
    }
    if is_blocked(sick, total) {
        return RepairStep::Blocked(blocked_events(node, claim));
    }
    RepairStep::Repair {
        actions: repair_actions(claim, now),
        condition_type: broken.condition_type,
    }
}

/// D-259: a deadline of now, unless one has passed already; then the deletion.
fn repair_actions(claim: &NodeClaim, now: Timestamp) -> Vec<Action> {
    let passed = claim
        .annotation(labels::TERMINATION_TIMESTAMP)
        .and_then(|text| text.parse::<Timestamp>().ok())
        .is_some_and(|deadline| deadline <= now);
    let mut actions = Vec::new();
    if !passed {
        let mut after = claim.clone();
        let deadline = Timestamp::from_second(now.as_second()).unwrap_or(now);
        after
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(labels::TERMINATION_TIMESTAMP.to_owned(), deadline.to_string());
        actions.extend(Action::patch(
            claim_ref(claim),
            Subresource::Main,
            claim,
            &after,
            false,
        ));
    }
    actions.push(Action::delete(claim_ref(claim)));
    actions
}

/// D-258, with each event on the object that it is about.
fn blocked_events(node: &Node, claim: &NodeClaim) -> Vec<Event> {
    let message = if claim.node_pool().is_some() {
        "more than 20% nodes are unhealthy in the nodepool"
    } else {
        "more then 20% nodes are unhealthy in the cluster"
    };
    let event = |object: ObjectRef| {
        Event::new(object, EventType::Warning, "NodeRepairBlocked", message)
            .within_seconds(BLOCKED_EVENT_SECONDS)
    };
    vec![event(node_ref(node)), event(claim_ref(claim))]
}

/// `StorageReady` → `storage_ready`: label values of metrics (D-113, D-261).
#[must_use]
pub fn snake_case(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if character.is_ascii_uppercase() && !out.is_empty() && !out.ends_with('/') {
            out.push('_');
        }
        out.push(character.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_api::NodeClaimSpec;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn policies() -> Vec<RepairPolicy> {
        let policy = |condition_type: &str, condition_status: &str, seconds| RepairPolicy {
            condition_type: condition_type.to_owned(),
            condition_status: condition_status.to_owned(),
            toleration: Duration::from_secs(seconds),
        };
        vec![
            policy("Ready", "False", 600),
            policy("Ready", "Unknown", 600),
            policy("StorageReady", "False", 60),
        ]
    }

    fn node(conditions: &[(&str, &str, i64)]) -> Node {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(type_, status, since)| {
                serde_json::json!({"type": type_, "status": status, "lastTransitionTime": at(*since).to_string()})
            })
            .collect();
        serde_json::from_value(
            serde_json::json!({"metadata": {"name": "n", "uid": "uid-n"}, "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    fn claim(pool: Option<&str>) -> NodeClaim {
        let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
        claim.metadata.uid = Some("uid-c".to_owned());
        claim.metadata.labels = pool.map(|pool| [(labels::NODE_POOL.to_owned(), pool.to_owned())].into());
        claim
    }

    #[test]
    fn d_255_of_several_conditions_the_one_that_is_due_first_counts() {
        let both = node(&[("Ready", "False", 0), ("StorageReady", "False", 100)]);
        let found = unhealthy(&both, &policies()).unwrap();
        assert_eq!(
            (found.condition_type.as_str(), found.due),
            ("StorageReady", at(160))
        );
        assert_eq!(unhealthy(&node(&[("Ready", "True", 0)]), &policies()), None);
        assert_eq!(
            unhealthy(&node(&[("DiskPressure", "True", 0)]), &policies()),
            None
        );
        assert_eq!(unhealthy(&both, &[]), None, "D-254: no policies, no repair");
    }

    #[test]
    fn d_256_nothing_happens_before_the_toleration() {
        let sick = node(&[("Ready", "Unknown", 0)]);
        let claim = claim(Some("p"));
        let step = |now| repair_step(&sick, &claim, 1, 1, &policies(), now);
        assert_eq!(step(at(599)), RepairStep::Wait(Duration::from_secs(1)));
        assert!(matches!(step(at(600)), RepairStep::Repair { .. }));
        let mut going = claim.clone();
        going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
        assert_eq!(
            repair_step(&sick, &going, 1, 1, &policies(), at(900)),
            RepairStep::Nothing
        );
    }

    #[test]
    fn d_257_p_176_the_twenty_percent_rule_rounds_up() {
        for (unhealthy, total, blocked) in [
            (1, 1, false),
            (1, 3, false),
            (2, 3, true),
            (2, 10, false),
            (3, 10, true),
            (1, 5, false),
            (2, 6, false),
            (3, 6, true),
            (0, 0, false),
        ] {
            assert_eq!(is_blocked(unhealthy, total), blocked, "{unhealthy} of {total}");
        }
    }

    #[test]
    fn d_257_d_258_w_49_b_56_too_many_unhealthy_nodes_block_and_are_told() {
        let sick = node(&[("Ready", "False", 0)]);
        for (pool, text) in [
            (Some("p"), "more than 20% nodes are unhealthy in the nodepool"),
            (None, "more then 20% nodes are unhealthy in the cluster"),
        ] {
            let claim = claim(pool);
            let RepairStep::Blocked(events) = repair_step(&sick, &claim, 2, 3, &policies(), at(700)) else {
                panic!("2 of 3 are broken")
            };
            let told: Vec<_> = events
                .iter()
                .map(|event| (event.object.to_string(), event.message.as_str()))
                .collect();
            assert_eq!(
                told,
                [("node/n".to_owned(), text), ("nodeclaim/c".to_owned(), text)]
            );
            assert!(events.iter().all(|event| event.dedupe_window_seconds == 900));
        }
    }

    #[test]
    fn d_259_the_deadline_is_now_unless_one_has_passed() {
        let sick = node(&[("Ready", "False", 0)]);
        let actions = |claim: &NodeClaim| match repair_step(&sick, claim, 1, 1, &policies(), at(700)) {
            RepairStep::Repair { actions, .. } => actions,
            other => panic!("{other:?}"),
        };
        let mut claim = claim(Some("p"));
        let Action::Patch { patch, .. } = &actions(&claim)[0] else {
            panic!("the deadline first")
        };
        assert_eq!(
            patch["metadata"]["annotations"][labels::TERMINATION_TIMESTAMP],
            at(700).to_string()
        );
        assert_eq!(actions(&claim)[1], Action::delete(claim_ref(&claim)));
        let mut deadline = |time: Timestamp| {
            claim.metadata.annotations =
                Some([(labels::TERMINATION_TIMESTAMP.to_owned(), time.to_string())].into());
            actions(&claim).len()
        };
        assert_eq!(deadline(at(650)), 1, "it has passed already");
        assert_eq!(deadline(at(900)), 2, "it is brought forward");
    }

    #[test]
    fn d_261_conditions_in_snake_case() {
        assert_eq!(snake_case("Ready"), "ready");
        assert_eq!(snake_case("StorageReady"), "storage_ready");
        assert_eq!(
            snake_case("WhenEmptyOrUnderutilized"),
            "when_empty_or_underutilized"
        );
    }
}
