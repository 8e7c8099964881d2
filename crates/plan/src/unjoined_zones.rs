//! Zones in which the nodes that a NodePool launches do not join: for a while other zones come first.
//!
//! A zone that is cut off is often the cheapest, or the one that a spread asks for: each new try would go there again and no pod would ever run.
//! Owns what is remembered and what is for sale meanwhile. Launches that fail say nothing here: what has no capacity is the cloud's to tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::conditions::{Conditioned as _, LAUNCHED};
use spokeshave_api::{NodeClaim, NodePool, labels};
use spokeshave_model::{Event, EventType, InstanceType, ObjectKind, ObjectRef, Offering, Requirements};

/// How long other zones come first. Much longer than a node has time to join, so that several such zones are known at once.
pub const AVOIDED_FOR: SignedDuration = SignedDuration::from_hours(1);

#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    /// When a node last joined.
    joined: Option<Timestamp>,
    avoided: Option<Avoided>,
}

#[derive(Clone, Copy, Debug)]
struct Avoided {
    /// When the NodeClaim was made whose Node never joined.
    begun: Timestamp,
    until: Timestamp,
}

/// What is known of the zones of each NodePool.
#[derive(Clone, Debug, Default)]
pub struct UnjoinedZones(BTreeMap<String, BTreeMap<String, Zone>>);

impl UnjoinedZones {
    /// The Node of a claim has joined, at this time: from then on its zone was as good as any. It may be told late.
    pub fn joined(&mut self, claim: &NodeClaim, at: Timestamp) {
        if let Some(zone) = self.zone(claim) {
            zone.joined = zone.joined.max(Some(at));
            zone.avoided = zone.avoided.filter(|avoided| avoided.begun > at);
        }
    }

    /// A launched claim was given up because its Node never joined. Its zone is avoided from now on, unless another node joined there in the
    /// meantime. Returns until when.
    pub fn timed_out(&mut self, claim: &NodeClaim, now: Timestamp) -> Option<Timestamp> {
        let begun = claim.metadata.creation_timestamp.as_ref()?.0;
        if !claim.is_true(LAUNCHED) {
            return None;
        }
        let zone = self.zone(claim)?;
        if zone.joined.is_some_and(|joined| joined >= begun) {
            return None;
        }
        let until = now.saturating_add(AVOIDED_FOR).unwrap_or(Timestamp::MAX);
        zone.avoided = Some(Avoided { begun, until });
        Some(until)
    }

    /// The zones that a NodePool avoids.
    pub fn avoided(&self, pool: &str, now: Timestamp) -> BTreeSet<String> {
        let zones = self.0.get(pool).into_iter().flatten();
        let avoided = zones.filter(|(_, zone)| zone.avoided.is_some_and(|avoided| now < avoided.until));
        avoided.map(|(name, _)| name.clone()).collect()
    }

    /// Drops what is known of other NodePools than these.
    pub fn retain(&mut self, pools: &BTreeSet<&str>) {
        self.0.retain(|pool, _| pools.contains(pool.as_str()));
    }

    fn zone(&mut self, claim: &NodeClaim) -> Option<&mut Zone> {
        let zone = claim.label(labels::ZONE).filter(|zone| !zone.is_empty())?;
        let zones = self.0.entry(claim.node_pool()?.to_owned()).or_default();
        Some(zones.entry(zone.to_owned()).or_default())
    }
}

/// What a NodePool may launch without these zones; `None` when that is nothing: then no zone is worse than another.
pub fn elsewhere(
    pool: &NodePool,
    types: &[InstanceType],
    avoided: &BTreeSet<String>,
) -> Option<Arc<[InstanceType]>> {
    let template = &pool.spec.template;
    let mut wanted = Requirements::from_api(&template.spec.requirements).ok()?;
    wanted.add_all(&Requirements::from_labels(&template.metadata.labels));
    let zones = wanted.get(labels::ZONE);
    let avoids = |offering: &Offering| offering.zone().is_some_and(|zone| avoided.contains(zone));
    let is_left = |offering: &Offering| {
        offering.available && !avoids(offering) && offering.zone().is_some_and(|zone| zones.has(zone))
    };
    let mut of_pool = types
        .iter()
        .filter(|one| one.requirements.intersects(&wanted).is_ok());
    if !of_pool.any(|one| one.offerings.iter().any(is_left)) {
        return None;
    }
    let mut types = types.to_vec();
    for offering in types.iter_mut().flat_map(|one| &mut one.offerings) {
        offering.available &= !avoids(offering);
    }
    Some(types.into())
}

/// What people are told of a zone that is avoided.
pub fn avoided_event(pool: &NodePool, zone: &str, until: Timestamp) -> Event {
    let object = ObjectRef::cluster(ObjectKind::NodePool, pool.name(), pool.uid());
    let message = format!(
        "A node launched in zone {zone} did not join the cluster and no other has joined there since; until {until} other zones come first"
    );
    Event::new(object, EventType::Warning, "ZoneAvoided", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use spokeshave_api::NodeClaimSpec;
    use spokeshave_example::{instance_type, node_pool};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn claim(zone: &str, created: i64) -> NodeClaim {
        let mut claim = NodeClaim::new("c", NodeClaimSpec::default());
        claim.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(created)));
        claim.set_true(LAUNCHED, at(created));
        let labels = claim.metadata.labels.get_or_insert_default();
        labels.insert(labels::ZONE.to_owned(), zone.to_owned());
        labels.insert(spokeshave_api::labels::NODE_POOL.to_owned(), "p".to_owned());
        claim
    }

    #[test]
    fn a_zone_is_avoided_until_a_node_joins_or_time_has_passed() {
        let mut zones = UnjoinedZones::default();
        assert_eq!(zones.timed_out(&claim("a", 0), at(900)), Some(at(4500)));
        assert_eq!(zones.avoided("p", at(900)), BTreeSet::from(["a".to_owned()]));
        assert!(
            zones.avoided("q", at(900)).is_empty(),
            "another NodePool has nodes of its own"
        );
        zones.joined(&claim("b", 0), at(901));
        assert_eq!(zones.avoided("p", at(901)).len(), 1);
        zones.joined(&claim("a", 10), at(902));
        assert!(zones.avoided("p", at(902)).is_empty(), "late, but it joined");
        assert_eq!(
            zones.timed_out(&claim("a", 20), at(920)),
            None,
            "one node failed, another joined"
        );
        assert!(zones.timed_out(&claim("a", 903), at(1803)).is_some());
        assert_eq!(zones.avoided("p", at(5402)).len(), 1);
        assert!(zones.avoided("p", at(5403)).is_empty());
        assert!(zones.timed_out(&claim("a", 903), at(3000)).is_some());
        zones.retain(&BTreeSet::new());
        assert!(zones.avoided("p", at(3000)).is_empty());
    }

    /// After a restart, nodes are told in any order.
    #[test]
    fn a_node_that_is_told_late_counts_from_when_it_joined() {
        let mut zones = UnjoinedZones::default();
        assert!(zones.timed_out(&claim("a", 100), at(1000)).is_some());
        zones.joined(&claim("a", 0), at(60));
        assert_eq!(
            zones.avoided("p", at(1000)).len(),
            1,
            "before that one was launched"
        );
        zones.joined(&claim("a", 0), at(150));
        assert!(zones.avoided("p", at(1000)).is_empty());
        zones.joined(&claim("a", 0), at(60));
        assert_eq!(
            zones.timed_out(&claim("a", 120), at(1020)),
            None,
            "the last one counts"
        );
    }

    #[test]
    fn a_launch_that_failed_says_nothing_of_its_zone() {
        let mut never = claim("a", 0);
        never.status = None;
        assert_eq!(UnjoinedZones::default().timed_out(&never, at(300)), None);
        let mut nowhere = claim("a", 0);
        nowhere.metadata.labels = None;
        assert_eq!(UnjoinedZones::default().timed_out(&nowhere, at(900)), None);
    }

    #[test]
    fn what_is_left_is_sold_in_other_zones_only() {
        let types = [
            instance_type("t", 2, 8, &["a", "b"]),
            instance_type("u", 4, 16, &["a"]),
        ];
        let without = |pool: &NodePool, zones: &[&str]| {
            let avoided = zones.iter().map(ToString::to_string).collect();
            let left = elsewhere(pool, &types, &avoided)?;
            let sold = |one: &InstanceType| {
                let available = one.offerings.iter().filter(|offering| offering.available);
                let zones: BTreeSet<String> = available
                    .filter_map(|one| one.zone().map(str::to_owned))
                    .collect();
                zones.into_iter().collect::<Vec<_>>().join("")
            };
            Some(left.iter().map(sold).collect::<Vec<_>>())
        };
        let pool = node_pool("p");
        assert_eq!(without(&pool, &["a"]), Some(vec!["b".to_owned(), String::new()]));
        assert_eq!(without(&pool, &["b"]), Some(vec!["a".to_owned(), "a".to_owned()]));
        assert_eq!(without(&pool, &["a", "b"]), None, "no zone is better");
        let mut pinned = node_pool("p");
        let zone = json!({"key": labels::ZONE, "operator": "In", "values": ["a"]});
        pinned.spec.template.spec.requirements = vec![serde_json::from_value(zone).unwrap()];
        assert_eq!(without(&pinned, &["a"]), None, "the NodePool wants no other");
        let mut only_u = node_pool("p");
        let name = json!({"key": labels::INSTANCE_TYPE, "operator": "In", "values": ["u"]});
        only_u.spec.template.spec.requirements = vec![serde_json::from_value(name).unwrap()];
        assert_eq!(
            without(&only_u, &["a"]),
            None,
            "the NodePool allows no offering in another zone"
        );
    }
}
