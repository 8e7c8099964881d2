//! Condition sets (P §1.6): one root, its dependents, and how they are kept.
//!
//! Owns the rules by which conditions are set, cleared, ordered and summed up in the root. It never decides what is true.

use jiff::Timestamp;

use crate::kinds::disruption_policy::DisruptionPolicy;
use crate::kinds::kwok::KWOKNodeClass;
use crate::kinds::node_claim::NodeClaim;
use crate::kinds::node_overlay::NodeOverlay;
use crate::kinds::node_pool::NodePool;
use crate::kinds::{Condition, whole_seconds};

/// Summary of the other conditions of the object.
pub const READY: &str = "Ready";
/// NodeClaim: the instance was launched.
pub const LAUNCHED: &str = "Launched";
/// NodeClaim: its Node has joined the cluster.
pub const REGISTERED: &str = "Registered";
/// NodeClaim: its Node can run pods.
pub const INITIALIZED: &str = "Initialized";
/// NodeClaim: consolidateAfter has passed.
pub const CONSOLIDATABLE: &str = "Consolidatable";
/// NodeClaim: it no longer matches its NodePool or NodeClass.
pub const DRIFTED: &str = "Drifted";
/// NodeClaim: its Node is drained.
pub const DRAINED: &str = "Drained";
/// NodeClaim: no volume is attached to its Node.
pub const VOLUMES_DETACHED: &str = "VolumesDetached";
/// NodeClaim: termination of its instance was requested.
pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
/// NodeClaim: something blocks its termination; the reason says what. Present only while it does.
pub const TERMINATION_BLOCKED: &str = "spokeshave.dev/TerminationBlocked";
/// NodeClaim: its Node has the resources of its instance type.
pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
/// NodeClaim: it belongs to a disruption command.
pub const DISRUPTION_REASON: &str = "DisruptionReason";
/// NodeClaim: whether its node would be disrupted now, and why not otherwise.
pub const VERDICT: &str = "spokeshave.dev/Disruptable";
/// NodePool, NodeOverlay, DisruptionPolicy, EC2NodeClass, AKSNodeClass: the object passes runtime validation.
pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
/// NodePool: its NodeClass can be used.
pub const NODE_CLASS_READY: &str = "NodeClassReady";
/// NodePool: recently launched nodes have registered.
pub const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";
/// NodePool: every budget can be evaluated. Present only while one cannot.
pub const BUDGETS_EVALUATED: &str = "spokeshave.dev/BudgetsEvaluated";
/// NodePool with `spec.replicas`: its nodes can be launched. Present only while they cannot.
pub const LAUNCHABLE: &str = "spokeshave.dev/Launchable";
/// Pod: the node that it was planned on is named in its status.
pub const NODE_PLANNED: &str = "spokeshave.dev/NodePlanned";
/// DisruptionPolicy: no rollout is halted. Present only while it has rollouts.
pub const ROLLOUT_HEALTHY: &str = "RolloutHealthy";
/// DisruptionPolicy: all due nodes can be replaced within budgets before `expireAfter`. Present only while the policy has an expiry.
pub const EXPIRY_IN_TIME: &str = "ExpiryInTime";
/// CapacityBuffer: its references resolve to pods of a known shape.
pub const READY_FOR_PROVISIONING: &str = "ReadyForProvisioning";
/// CapacityBuffer: its capacity is being provisioned.
pub const PROVISIONING: &str = "Provisioning";

/// Reason of a dependent that nobody has looked at yet.
pub const AWAITING_RECONCILIATION: &str = "AwaitingReconciliation";
/// Message of such a dependent.
pub const AWAITING_MESSAGE: &str = "object is awaiting reconciliation";
/// Reason of the root while some of its dependents are not known.
pub const RECONCILING_DEPENDENTS: &str = "ReconcilingDependents";

/// A condition's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Not known yet.
    Unknown,
}

impl Status {
    /// As written on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Status::True => "True",
            Status::False => "False",
            Status::Unknown => "Unknown",
        }
    }
}

/// An object with a condition set.
pub trait Conditioned {
    /// Types whose conditions make up the root (P-017).
    const DEPENDENTS: &'static [&'static str];
    /// The stored conditions.
    fn conditions(&self) -> &[Condition];
    /// The stored conditions, to change.
    fn conditions_mut(&mut self) -> &mut Vec<Condition>;
    /// Metadata of the object.
    fn metadata(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    /// A condition by type.
    fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions()
            .iter()
            .find(|condition| condition.type_ == type_)
    }

    /// A condition by type, while it is `True`.
    fn true_condition(&self, type_: &str) -> Option<&Condition> {
        self.condition(type_)
            .filter(|condition| condition.status == "True")
    }

    /// True when the condition is present and `True`.
    fn is_true(&self, type_: &str) -> bool {
        self.true_condition(type_).is_some()
    }

    /// The dependents that are not stored, and the root if it is not: what is `Unknown` since the object was created (P-016).
    fn missing_conditions(&self) -> Vec<&'static str> {
        let set = Self::DEPENDENTS.iter().copied().chain([READY]);
        set.filter(|type_| self.condition(type_).is_none()).collect()
    }

    /// Materialises missing dependents and the root as `Unknown` (P-016). Returns whether anything was added.
    fn initialize_conditions(&mut self, now: Timestamp) -> bool {
        let created = self
            .metadata()
            .creation_timestamp
            .as_ref()
            .map_or(now, |time| time.0);
        let generation = self.metadata().generation;
        let missing = self.missing_conditions();
        for type_ in &missing {
            self.conditions_mut().push(Condition {
                type_: (*type_).to_owned(),
                status: Status::Unknown.as_str().to_owned(),
                observed_generation: generation,
                last_transition_time: whole_seconds(created),
                reason: AWAITING_RECONCILIATION.to_owned(),
                message: AWAITING_MESSAGE.to_owned(),
            });
        }
        if !missing.is_empty() {
            sort(self.conditions_mut());
        }
        !missing.is_empty()
    }

    /// `True` with the type as reason and no message.
    fn set_true(&mut self, type_: &str, now: Timestamp) -> bool {
        self.set(type_, Status::True, type_, "", now)
    }

    /// Sets a condition and recomputes the root. Returns whether anything changed.
    fn set(&mut self, type_: &str, status: Status, reason: &str, message: &str, now: Timestamp) -> bool {
        let mut changed = self.initialize_conditions(now);
        changed |= set_one(self, type_, status, reason, message, now);
        if type_ != READY {
            changed |= recompute_root(self, now);
        }
        changed
    }

    /// Removes an independent condition. Returns whether it was there.
    fn clear(&mut self, type_: &str) -> bool {
        let before = self.conditions().len();
        self.conditions_mut().retain(|condition| condition.type_ != type_);
        self.conditions().len() != before
    }
}

fn set_one<T: Conditioned + ?Sized>(
    object: &mut T,
    type_: &str,
    status: Status,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    let generation = object.metadata().generation;
    let deleting = object.metadata().deletion_timestamp.is_some();
    let before = object.conditions().to_vec();
    let conditions = object.conditions_mut();
    let transition = conditions
        .iter()
        .find(|condition| condition.type_ == type_)
        .filter(|condition| condition.status == status.as_str())
        .map_or_else(|| whole_seconds(now), |condition| condition.last_transition_time);
    conditions.retain(|condition| condition.type_ != type_);
    conditions.push(Condition {
        type_: type_.to_owned(),
        status: status.as_str().to_owned(),
        observed_generation: generation,
        last_transition_time: transition,
        reason: reason.to_owned(),
        message: message.to_owned(),
    });
    if deleting {
        for condition in conditions.iter_mut() {
            condition.observed_generation = generation;
        }
    }
    sort(conditions);
    *conditions != before
}

/// Oldest transition first, the root last; ties keep a fixed order by type.
fn sort(conditions: &mut [Condition]) {
    conditions.sort_by(|a, b| {
        (a.type_ == READY, a.last_transition_time, &a.type_).cmp(&(
            b.type_ == READY,
            b.last_transition_time,
            &b.type_,
        ))
    });
}

fn recompute_root<T: Conditioned + ?Sized>(object: &mut T, now: Timestamp) -> bool {
    let generation = object.metadata().generation;
    let mut unhealthy: Vec<&Condition> = T::DEPENDENTS
        .iter()
        .filter_map(|type_| object.condition(type_))
        .filter(|condition| condition.status != "True" || condition.observed_generation != generation)
        .collect();
    if unhealthy.is_empty() {
        return set_one(object, READY, Status::True, READY, "", now);
    }
    unhealthy.sort_by_key(|condition| std::cmp::Reverse(condition.last_transition_time));
    let message: Vec<String> = unhealthy
        .iter()
        .map(|condition| format!("{}={}", condition.type_, condition.status))
        .collect();
    let any_false = unhealthy
        .iter()
        .any(|condition| condition.status == "False" && condition.observed_generation == generation);
    let (status, reason) = if any_false {
        (Status::False, "UnhealthyDependents")
    } else {
        (Status::Unknown, RECONCILING_DEPENDENTS)
    };
    set_one(object, READY, status, reason, &message.join(", "), now)
}

/// Gives a kind its condition set: the dependents of its root.
macro_rules! conditioned {
    ($kind:ty, $dependents:expr) => {
        impl Conditioned for $kind {
            const DEPENDENTS: &'static [&'static str] = $dependents;

            fn conditions(&self) -> &[Condition] {
                self.status
                    .as_ref()
                    .map_or(&[], |status| &status.conditions)
            }

            fn conditions_mut(&mut self) -> &mut Vec<Condition> {
                &mut self.status.get_or_insert_default().conditions
            }

            fn metadata(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
        }
    };
}

conditioned!(NodeClaim, &[LAUNCHED, REGISTERED, INITIALIZED]);
conditioned!(NodePool, &[VALIDATION_SUCCEEDED, NODE_CLASS_READY]);
conditioned!(NodeOverlay, &[VALIDATION_SUCCEEDED]);
conditioned!(DisruptionPolicy, &[VALIDATION_SUCCEEDED]);
conditioned!(KWOKNodeClass, &[]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeClaimSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn claim() -> NodeClaim {
        let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
        claim.metadata.generation = Some(1);
        claim.metadata.creation_timestamp = Some(Time(at(100)));
        claim
    }

    #[test]
    fn p_016_missing_conditions_are_unknown_since_creation() {
        let mut claim = claim();
        assert!(claim.initialize_conditions(at(500)));
        let launched = claim.condition(LAUNCHED).unwrap();
        assert_eq!(
            (launched.status.as_str(), launched.reason.as_str()),
            ("Unknown", "AwaitingReconciliation")
        );
        assert_eq!(launched.last_transition_time, at(100));
        assert_eq!(
            claim.conditions().last().unwrap().type_,
            READY,
            "the root is last"
        );
        assert!(!claim.initialize_conditions(at(501)));
    }

    #[test]
    fn p_016_the_root_follows_its_dependents() {
        let mut claim = claim();
        assert!(claim.set_true(LAUNCHED, at(200)));
        let root = claim.condition(READY).unwrap();
        assert_eq!(
            (root.status.as_str(), root.reason.as_str()),
            ("Unknown", "ReconcilingDependents")
        );
        assert_eq!(root.message, "Registered=Unknown, Initialized=Unknown");
        claim.set(REGISTERED, Status::False, "MultipleNodesFound", "x", at(300));
        let root = claim.condition(READY).unwrap();
        assert_eq!(
            (root.status.as_str(), root.reason.as_str()),
            ("False", "UnhealthyDependents")
        );
        assert_eq!(
            root.message, "Registered=False, Initialized=Unknown",
            "newest transition first"
        );
        claim.set_true(REGISTERED, at(400));
        claim.set_true(INITIALIZED, at(401));
        assert!(claim.is_true(READY));
        assert_eq!(claim.condition(READY).unwrap().last_transition_time, at(401));
    }

    #[test]
    fn p_016_only_a_new_status_moves_the_transition_time() {
        let mut claim = claim();
        claim.set(LAUNCHED, Status::Unknown, "LaunchFailed", "a", at(200));
        assert_eq!(claim.condition(LAUNCHED).unwrap().last_transition_time, at(100));
        assert!(
            !claim.set(LAUNCHED, Status::Unknown, "LaunchFailed", "a", at(300)),
            "the same again changes nothing"
        );
        claim.set_true(LAUNCHED, at(400));
        assert_eq!(claim.condition(LAUNCHED).unwrap().last_transition_time, at(400));
    }

    #[test]
    fn p_016_a_dependent_of_an_older_generation_does_not_count() {
        let mut claim = claim();
        for type_ in [LAUNCHED, REGISTERED, INITIALIZED] {
            claim.set_true(type_, at(200));
        }
        claim.metadata.generation = Some(2);
        claim.set_true(LAUNCHED, at(300));
        assert_eq!(claim.condition(READY).unwrap().status, "Unknown");
    }

    #[test]
    fn p_017_independent_conditions_leave_the_root_alone() {
        let mut claim = claim();
        for type_ in [LAUNCHED, REGISTERED, INITIALIZED] {
            claim.set_true(type_, at(200));
        }
        claim.set_true(DRIFTED, at(300));
        assert!(claim.is_true(READY));
        assert!(claim.clear(DRIFTED) && !claim.clear(DRIFTED));
    }

    #[test]
    fn p_016_a_deletion_brings_every_generation_up_to_date() {
        let mut claim = claim();
        for type_ in [LAUNCHED, REGISTERED, INITIALIZED] {
            claim.set_true(type_, at(200));
        }
        claim.metadata.generation = Some(2);
        claim.metadata.deletion_timestamp = Some(Time(at(300)));
        claim.set(DRAINED, Status::Unknown, "Draining", "Draining", at(301));
        assert!(
            claim
                .conditions()
                .iter()
                .all(|condition| condition.observed_generation == Some(2))
        );
        assert!(claim.is_true(READY), "the root counts the dependents as current");
    }

    #[test]
    fn p_016_conditions_are_stored_oldest_transition_first_and_the_root_last() {
        let mut claim = claim();
        claim.set_true(INITIALIZED, at(200));
        claim.set_true(LAUNCHED, at(300));
        claim.set_true(CONSOLIDATABLE, at(250));
        let order: Vec<&str> = claim
            .conditions()
            .iter()
            .map(|condition| condition.type_.as_str())
            .collect();
        assert_eq!(order, [REGISTERED, INITIALIZED, CONSOLIDATABLE, LAUNCHED, READY]);
    }

    #[test]
    fn p_017_the_sets_of_the_other_kinds() {
        let mut class = KWOKNodeClass::new("class", crate::KWOKNodeClassSpec::default());
        assert!(
            class.set_true("Anything", at(1)) && class.is_true(READY),
            "no dependents"
        );
        let mut overlay = NodeOverlay::new("overlay", crate::NodeOverlaySpec::default());
        overlay.set(
            VALIDATION_SUCCEEDED,
            Status::False,
            "Conflict",
            "conflict with another overlay",
            at(1),
        );
        let root = overlay.condition(READY).unwrap();
        assert_eq!(
            (root.reason.as_str(), root.message.as_str()),
            ("UnhealthyDependents", "ValidationSucceeded=False")
        );
    }
}
