//! Drift: whether a node still is what its NodePool asks for (D §6). Template hash, requirements, instance type, and last the cloud.
//!
//! It compares objects and decides nothing about nodes; budgets and simulation come later. What cannot be read changes nothing.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::conditions::{Conditioned, DRIFTED, LAUNCHED, Status};
use spokeshave_api::{NodeClaim, NodePool, labels};
use spokeshave_model::{
    Action, CapacityType, InstanceType, Requirement, RequirementError, Requirements, Subresource,
};

use crate::lifecycle::claim_ref;

/// Age from which the instance type is checked: catalogues may lag behind launches (D-231).
const INSTANCE_TYPE_AGE: SignedDuration = SignedDuration::from_hours(1);

/// The template's hash differs (D-220).
pub const NODE_POOL_DRIFTED: &str = "NodePoolDrifted";
/// The labels do not meet the template's requirements (D-227).
pub const REQUIREMENTS_DRIFTED: &str = "RequirementsDrifted";
/// The instance type, or the way it was bought, is no longer offered (D-230).
pub const INSTANCE_TYPE_NOT_FOUND: &str = "InstanceTypeNotFound";

/// What is found without asking the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Not to be judged, or not yet; the condition stays as it is (D-212, D-224).
    Leave,
    /// Not launched yet: not drifted (D-213).
    NotLaunched,
    /// Drifted, for this reason.
    Drifted(&'static str),
    /// Not drifted as far as can be seen from here: the cloud has the last word (D-233).
    AskCloud,
}

/// D-212…D-232: the checks in order; the first hit decides. `types` are the NodePool's instance types; `None` when they are not known now, which
/// leaves the condition as it is if they are needed.
///
/// # Errors
/// The template has a requirement that cannot be read; the condition stays as it is (D-216).
pub fn check(
    claim: &NodeClaim,
    pool: Option<&NodePool>,
    types: Option<&[InstanceType]>,
    now: Timestamp,
) -> Result<Finding, RequirementError> {
    let Some(pool) = pool.filter(|pool| claim.node_pool() == Some(pool.name())) else {
        return Ok(Finding::Leave);
    };
    if claim.is_deleting() {
        return Ok(Finding::Leave);
    }
    if !claim.is_true(LAUNCHED) {
        return Ok(Finding::NotLaunched);
    }
    if has_other_hash(claim, pool) {
        return Ok(Finding::Drifted(NODE_POOL_DRIFTED));
    }
    if awaits_stamp(claim, pool) {
        return Ok(Finding::Leave);
    }
    let own = claim.metadata.labels.clone().unwrap_or_default();
    let own = Requirements::from_labels(&own);
    let wanted = Requirements::from_api(&pool.spec.template.spec.requirements)?;
    if own.compatible(&wanted, &BTreeSet::new()).is_err() {
        return Ok(Finding::Drifted(REQUIREMENTS_DRIFTED));
    }
    let created = claim.metadata.creation_timestamp.as_ref();
    if created.is_some_and(|created| now.duration_since(created.0) >= INSTANCE_TYPE_AGE) {
        match types {
            None => return Ok(Finding::Leave),
            Some(types) if !is_offered(claim, &own, types) => {
                return Ok(Finding::Drifted(INSTANCE_TYPE_NOT_FOUND));
            }
            Some(_) => {}
        }
    }
    Ok(Finding::AskCloud)
}

/// D-220: all four annotations are there, the versions are equal, and the hashes differ.
pub(crate) fn has_other_hash(claim: &NodeClaim, pool: &NodePool) -> bool {
    let both = |key: &str| Some((claim.annotation(key)?, pool.annotation(key)?));
    let same_version = both(labels::NODE_POOL_HASH_VERSION).is_some_and(|(claim, pool)| claim == pool);
    same_version && both(labels::NODE_POOL_HASH).is_some_and(|(claim, pool)| claim != pool)
}

/// D-224: whether the hash of a NodeClaim that has drifted by it cannot be compared until its NodePool, too, has the version. It has drifted all the while: a
/// command for it would be taken back.
fn awaits_stamp(claim: &NodeClaim, pool: &NodePool) -> bool {
    let drifted = claim.true_condition(DRIFTED);
    let own = claim.annotation(labels::NODE_POOL_HASH_VERSION);
    drifted.is_some_and(|drifted| drifted.reason == NODE_POOL_DRIFTED)
        && own.is_some()
        && own != pool.annotation(labels::NODE_POOL_HASH_VERSION)
}

/// D-230, D-232: whether the type is still listed with an offering like the one that was bought; whether it can be had now does not matter.
fn is_offered(claim: &NodeClaim, own: &Requirements, types: &[InstanceType]) -> bool {
    let Some(name) = claim.label(labels::INSTANCE_TYPE) else {
        return false;
    };
    let Some(instance_type) = types.iter().find(|one| one.name == name) else {
        return false;
    };
    let mut own = own.clone();
    let reserved = CapacityType::Reserved.as_str();
    if claim.label(labels::CAPACITY_TYPE) == Some(reserved) {
        let either = [reserved, CapacityType::OnDemand.as_str()];
        own.replace(Requirement::one_of(labels::CAPACITY_TYPE, either));
        for offering in &instance_type.offerings {
            if let Some(key) = &offering.reservation_id_label {
                own.remove(key);
            }
        }
    }
    instance_type
        .offerings
        .iter()
        .any(|offering| own.intersects(&offering.requirements).is_ok())
}

/// D-211, D-215, D-218: the write that brings the condition up to date. The time of the first drift stays when only the reason changes.
#[must_use]
pub fn condition_action(claim: &NodeClaim, reason: Option<&str>, now: Timestamp) -> Option<Action> {
    let mut after = claim.clone();
    let changed = match reason {
        Some(reason) => after.set(DRIFTED, Status::True, reason, reason, now),
        None => after.clear(DRIFTED),
    };
    if !changed {
        return None;
    }
    Action::patch(claim_ref(claim), Subresource::Status, claim, &after, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use spokeshave_api::hash;
    use spokeshave_model::Offering;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn pool(requirements: serde_json::Value) -> NodePool {
        let spec = serde_json::json!({"template": {"spec": {
            "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "requirements": requirements,
        }}});
        let mut pool = NodePool::new("p", serde_json::from_value(spec).unwrap());
        stamp(&mut pool);
        pool
    }

    fn stamp(pool: &mut NodePool) {
        pool.metadata.annotations = Some(
            [
                (labels::NODE_POOL_HASH.to_owned(), hash::node_pool_hash(pool)),
                (
                    labels::NODE_POOL_HASH_VERSION.to_owned(),
                    hash::VERSION.to_owned(),
                ),
            ]
            .into(),
        );
    }

    /// A launched claim of the pool, with labels.
    fn claim(pool: &NodePool, own: &[(&str, &str)]) -> NodeClaim {
        let mut claim = NodeClaim::new("c", Default::default());
        claim.metadata.annotations = pool.metadata.annotations.clone();
        claim.metadata.creation_timestamp = Some(Time(at(0)));
        let own = own.iter().chain(&[(labels::NODE_POOL, "p")]);
        claim.metadata.labels = Some(
            own.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        );
        claim.set_true(LAUNCHED, at(0));
        claim
    }

    fn finding(claim: &NodeClaim, pool: &NodePool) -> Finding {
        check(claim, Some(pool), Some(&[]), at(60)).unwrap()
    }

    #[test]
    fn d_212_d_213_who_is_judged() {
        let pool = pool(serde_json::json!([]));
        let good = claim(&pool, &[]);
        assert_eq!(finding(&good, &pool), Finding::AskCloud);
        assert_eq!(check(&good, None, None, at(0)), Ok(Finding::Leave));
        let mut going = good.clone();
        going.metadata.deletion_timestamp = Some(Time(at(1)));
        assert_eq!(finding(&going, &pool), Finding::Leave);
        let mut stranger = good.clone();
        stranger.metadata.labels = None;
        assert_eq!(finding(&stranger, &pool), Finding::Leave);
        let mut young = good;
        young.set(LAUNCHED, Status::Unknown, "x", "x", at(1));
        assert_eq!(finding(&young, &pool), Finding::NotLaunched);
    }

    #[test]
    fn d_220_the_hash_counts_only_with_equal_versions() {
        let mut pool = pool(serde_json::json!([]));
        let old = claim(&pool, &[]);
        pool.spec.template.metadata.labels = [("team".to_owned(), "b".to_owned())].into();
        assert_eq!(
            finding(&old, &pool),
            Finding::AskCloud,
            "the pool is not stamped yet"
        );
        stamp(&mut pool);
        assert_eq!(finding(&old, &pool), Finding::Drifted(NODE_POOL_DRIFTED));
        for key in [labels::NODE_POOL_HASH, labels::NODE_POOL_HASH_VERSION] {
            let mut missing = old.clone();
            missing.metadata.annotations.as_mut().unwrap().remove(key);
            assert_eq!(finding(&missing, &pool), Finding::AskCloud, "{key} is missing");
        }
        let mut other = old;
        let annotations = other.metadata.annotations.as_mut().unwrap();
        annotations.insert(labels::NODE_POOL_HASH_VERSION.to_owned(), "v3".to_owned());
        assert_eq!(finding(&other, &pool), Finding::AskCloud, "another version");
    }

    #[test]
    fn d_224_a_drifted_nodeclaim_stays_so_until_its_nodepool_has_the_version_too() {
        let mut pool = pool(serde_json::json!([]));
        let mut drifted = claim(&pool, &[]);
        pool.spec.template.metadata.labels = [("team".to_owned(), "b".to_owned())].into();
        drifted.set(DRIFTED, Status::True, NODE_POOL_DRIFTED, NODE_POOL_DRIFTED, at(1));
        let mut before = pool.clone();
        for version in [Some("v3"), None] {
            let annotations = before.metadata.annotations.as_mut().unwrap();
            annotations.remove(labels::NODE_POOL_HASH_VERSION);
            let entry = version.map(|one| (labels::NODE_POOL_HASH_VERSION.to_owned(), one.to_owned()));
            annotations.extend(entry);
            assert_eq!(finding(&drifted, &before), Finding::Leave, "{version:?}");
        }
        stamp(&mut pool);
        assert_eq!(finding(&drifted, &pool), Finding::Drifted(NODE_POOL_DRIFTED));
        let mut by_cloud = drifted;
        by_cloud.set(DRIFTED, Status::True, "AmiDrift", "AmiDrift", at(1));
        assert_eq!(finding(&by_cloud, &before), Finding::AskCloud, "not by its hash");
    }

    #[test]
    fn d_217_the_first_check_that_hits_decides_the_reason() {
        // All of template, requirements and instance type are out of date.
        let requirement = serde_json::json!([{"key": "a", "operator": "In", "values": ["y"]}]);
        let mut pool = pool(requirement);
        let pairs = [("a", "x"), (labels::INSTANCE_TYPE, "t"), (labels::ZONE, "z")];
        let old = claim(&pool, &pairs);
        let of = |claim: &NodeClaim, pool: &NodePool| check(claim, Some(pool), Some(&[]), at(3600)).unwrap();
        assert_eq!(of(&old, &pool), Finding::Drifted(REQUIREMENTS_DRIFTED));
        pool.spec.template.metadata.labels = [("team".to_owned(), "b".to_owned())].into();
        stamp(&mut pool);
        assert_eq!(of(&old, &pool), Finding::Drifted(NODE_POOL_DRIFTED));
        let fits = claim(
            &pool,
            &[("a", "y"), (labels::INSTANCE_TYPE, "t"), (labels::ZONE, "z")],
        );
        assert_eq!(of(&fits, &pool), Finding::Drifted(INSTANCE_TYPE_NOT_FOUND));
    }

    #[test]
    fn d_227_d_228_d_229_requirements_against_labels_of_the_nodeclaim() {
        let cases = [
            (
                serde_json::json!([{"key": "a", "operator": "In", "values": ["x", "y"]}]),
                "a",
                true,
            ),
            (
                serde_json::json!([{"key": "a", "operator": "In", "values": ["y"]}]),
                "a",
                false,
            ),
            (
                serde_json::json!([{"key": "a", "operator": "NotIn", "values": ["x"]}]),
                "a",
                false,
            ),
            (serde_json::json!([{"key": "a", "operator": "Exists"}]), "a", true),
            (
                serde_json::json!([{"key": "a", "operator": "DoesNotExist"}]),
                "a",
                false,
            ),
            (
                serde_json::json!([{"key": "a", "operator": "In", "values": ["x"], "minValues": 1}]),
                "a",
                true,
            ),
            (
                serde_json::json!([{"key": "a", "operator": "In", "values": ["x"]}]),
                "other",
                false,
            ),
            (
                serde_json::json!([{"key": "a", "operator": "Exists"}]),
                "other",
                false,
            ),
            (
                serde_json::json!([{"key": "a", "operator": "Gt", "values": ["1"]}]),
                "other",
                false,
            ),
            (
                serde_json::json!([{"key": "a", "operator": "Lt", "values": ["1"]}]),
                "other",
                false,
            ),
            (
                serde_json::json!([{"key": "a", "operator": "NotIn", "values": ["x"]}]),
                "other",
                true,
            ),
            (
                serde_json::json!([{"key": "a", "operator": "DoesNotExist"}]),
                "other",
                true,
            ),
        ];
        for (requirements, key, fits) in cases {
            let pool = pool(requirements.clone());
            let expected = if fits {
                Finding::AskCloud
            } else {
                Finding::Drifted(REQUIREMENTS_DRIFTED)
            };
            assert_eq!(
                finding(&claim(&pool, &[(key, "x")]), &pool),
                expected,
                "{requirements} with label {key}=x"
            );
        }
        let numbers = pool(serde_json::json!([{"key": "cpu", "operator": "Gt", "values": ["4"]}]));
        assert_eq!(
            finding(&claim(&numbers, &[("cpu", "8")]), &numbers),
            Finding::AskCloud
        );
        assert_eq!(
            finding(&claim(&numbers, &[("cpu", "4")]), &numbers),
            Finding::Drifted(REQUIREMENTS_DRIFTED)
        );
    }

    #[test]
    fn d_216_a_requirement_of_the_future_changes_nothing() {
        let pool = pool(serde_json::json!([{"key": "a", "operator": "Like", "values": ["x*"]}]));
        assert!(check(&claim(&pool, &[]), Some(&pool), Some(&[]), at(60)).is_err());
    }

    fn offering(zone: &str, capacity: &str) -> Offering {
        Offering {
            requirements: [
                Requirement::is(labels::ZONE, zone),
                Requirement::is(labels::CAPACITY_TYPE, capacity),
            ]
            .into_iter()
            .collect(),
            ..Offering::default()
        }
    }

    #[test]
    fn d_230_d_231_d_232_the_instance_type_is_still_offered() {
        let pool = pool(serde_json::json!([]));
        let own = |capacity| {
            let pairs = [
                (labels::INSTANCE_TYPE, "t"),
                (labels::ZONE, "a"),
                (labels::CAPACITY_TYPE, capacity),
            ];
            claim(&pool, &pairs)
        };
        let listed = |offerings: &[Offering]| {
            [InstanceType {
                name: "t".to_owned(),
                offerings: offerings.to_vec(),
                ..InstanceType::default()
            }]
        };
        let gone = Finding::Drifted(INSTANCE_TYPE_NOT_FOUND);
        let spot = own("spot");
        let of = |claim: &NodeClaim, types: &[InstanceType], age| {
            check(claim, Some(&pool), Some(types), at(age)).unwrap()
        };
        assert_eq!(of(&spot, &[], 3599), Finding::AskCloud, "too young to judge");
        assert_eq!(of(&spot, &[], 3600), gone);
        assert_eq!(
            of(&spot, &listed(&[offering("a", "spot")]), 3600),
            Finding::AskCloud
        );
        assert_eq!(
            of(
                &spot,
                &listed(&[offering("b", "spot"), offering("a", "on-demand")]),
                3600
            ),
            gone
        );
        assert_eq!(
            check(&spot, Some(&pool), None, at(3600)),
            Ok(Finding::Leave),
            "types unknown"
        );
        let mut reserved = offering("a", "reserved");
        reserved.reservation_id_label = Some("reservation".to_owned());
        reserved.requirements.add(Requirement::is("reservation", "r-2"));
        let mut bought = own("reserved");
        bought
            .metadata
            .labels
            .as_mut()
            .unwrap()
            .insert("reservation".to_owned(), "r-1".to_owned());
        assert_eq!(
            of(&bought, &listed(&[reserved]), 3600),
            Finding::AskCloud,
            "another reservation"
        );
        assert_eq!(
            of(&bought, &listed(&[offering("a", "on-demand")]), 3600),
            Finding::AskCloud
        );
        assert_eq!(of(&bought, &listed(&[offering("a", "spot")]), 3600), gone);
    }

    #[test]
    fn d_211_d_215_the_condition_keeps_its_time_and_is_removed() {
        let pool = pool(serde_json::json!([]));
        let mut drifted = claim(&pool, &[]);
        assert_eq!(condition_action(&drifted, None, at(5)), None);
        drifted.set(
            DRIFTED,
            Status::True,
            NODE_POOL_DRIFTED,
            NODE_POOL_DRIFTED,
            at(10),
        );
        assert_eq!(condition_action(&drifted, Some(NODE_POOL_DRIFTED), at(20)), None);
        let Some(Action::Patch { patch, .. }) =
            condition_action(&drifted, Some(REQUIREMENTS_DRIFTED), at(20))
        else {
            panic!("a patch")
        };
        let list = patch["status"]["conditions"].as_array().unwrap();
        let one = list.iter().find(|one| one["type"] == DRIFTED).unwrap();
        assert_eq!(one["reason"], REQUIREMENTS_DRIFTED);
        assert_eq!(one["lastTransitionTime"], at(10).to_string());
        let Some(Action::Patch { patch, .. }) = condition_action(&drifted, None, at(20)) else {
            panic!("a patch")
        };
        let list = patch["status"]["conditions"].as_array().unwrap();
        assert!(list.iter().all(|one| one["type"] != DRIFTED));
    }
}
