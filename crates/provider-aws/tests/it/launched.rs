//! What ours says of an instance that a launch made, against what upstream's provider said of the same: labels, annotations, status.

use std::collections::BTreeMap;

use serde_json::Value;
use spokeshave_api::{NodeClaim, Quantity, QuantityMap, WireForm};
use spokeshave_model::labels as core;
use spokeshave_provider_aws::choice::Choice;
use spokeshave_provider_aws::fleet::{Launched, Place};
use spokeshave_provider_aws::launch::{Context, Template};
use spokeshave_provider_aws::unavailable::Unavailable;
use spokeshave_provider_aws::{instances, profiles};

use crate::launches::{GENERATED, Scenario, free_addresses, launch, ran_out, requests_of, scenarios, wanted};
use crate::oracle;

/// What ours says of the instance that came for upstream.
pub fn launched(
    context: &Context<'_>,
    choice: &Choice<'_>,
    made: &[Template<'_>],
    came: &Value,
) -> Option<NodeClaim> {
    let label = |key: &str| came["metadata"]["labels"][key].as_str();
    let (name, zone) = (label(core::INSTANCE_TYPE)?, label(core::ZONE)?);
    let (template, candidate) = made.iter().find_map(|template| {
        let mut candidates = template.candidates.iter();
        Some((template, candidates.find(|one| one.instance_type.name == name)?))
    })?;
    let offering = candidate.offerings.iter().find(|one| one.zone() == Some(zone))?;
    let id = came["status"]["providerID"].as_str()?.rsplit('/').next()?;
    let instance = Launched {
        instance_id: id.to_owned(),
        place: Place {
            instance_type: name.to_owned(),
            zone: zone.to_owned(),
            ..Place::default()
        },
    };
    let of = (candidate.instance_type, *offering);
    Some(instances::launched(
        context.claim,
        context.class,
        (&instance, template),
        of,
        choice.capacity_type,
    ))
}

/// Labels, annotations and status that core takes over from a launch: all of upstream's, and of ours beside them only what the claim had before. Hashes
/// are copied from the class, which a controller stamps.
fn assert_said(label: &str, claim: &NodeClaim, ours: &NodeClaim, came: &Value) {
    let texts =
        |value: &Value| serde_json::from_value::<BTreeMap<String, String>>(value.clone()).unwrap_or_default();
    let had = claim.metadata.labels.clone().unwrap_or_default();
    let mut labels = ours.metadata.labels.clone().unwrap();
    let expected = texts(&came["metadata"]["labels"]);
    labels.retain(|key, _| expected.contains_key(key) || !had.contains_key(key));
    assert_eq!(labels, expected, "{label}");
    let annotations = ours.metadata.annotations.clone().unwrap();
    let theirs = texts(&came["metadata"]["annotations"]);
    let profile = profiles::ANNOTATION;
    assert!(theirs.contains_key(profile), "{label}");
    assert_eq!(annotations.get(profile), theirs.get(profile), "{label}");
    let status = ours.status.as_ref().unwrap();
    let resources =
        |field: &str| -> QuantityMap { serde_json::from_value(came["status"][field].clone()).unwrap() };
    let sizes = |map: &QuantityMap| {
        let sizes = map
            .iter()
            .map(|(name, size)| (name.clone(), Quantity::from_wire(size).unwrap()));
        sizes.collect::<BTreeMap<String, Quantity>>()
    };
    let without_zero = |map: &QuantityMap| {
        let mut map = map.clone();
        map.retain(|_, size| !Quantity::from_wire(size).unwrap().is_zero());
        sizes(&map)
    };
    assert_eq!(
        without_zero(&status.capacity),
        sizes(&resources("capacity")),
        "{label}"
    );
    assert_eq!(
        without_zero(&status.allocatable),
        sizes(&resources("allocatable")),
        "{label}"
    );
    assert_eq!(
        status.provider_id.as_deref(),
        came["status"]["providerID"].as_str(),
        "{label}"
    );
    assert_eq!(
        status.image_id.as_deref(),
        came["status"]["imageID"].as_str(),
        "{label}"
    );
}

#[test]
fn a_015_a_033_a_093_a_launch_says_of_its_instance_what_upstream_says() {
    let mut compared = 0;
    let scenarios = scenarios();
    for name in &scenarios {
        let scenario = Scenario::read(name);
        let mut unavailable = Unavailable::default();
        let claims = scenario.objects::<NodeClaim>("NodeClaim");
        for (claim, answer) in claims.iter().zip(oracle::list(&scenario.expected, "launches")) {
            let fleets = match scenario.expected.get("concurrent") {
                Some(_) => scenario.requests("CreateFleet"),
                None => requests_of(answer, "CreateFleet"),
            };
            let wanted = wanted(&scenario, claim, fleets.first());
            let mut addresses = free_addresses(&scenario.class(&claim.spec.node_class_ref.name));
            let came = &answer["node_claim"];
            let ours = launch(&scenario, claim, &wanted, &unavailable, &mut addresses, came);
            if let Some(ours) = ours.ok().and_then(|ours| ours.claim) {
                assert_said(&format!("{name}/{}", claim.name()), claim, &ours, came);
                compared += 1;
            }
            unavailable = ran_out(answer);
        }
    }
    if !scenarios.iter().any(|name| name.starts_with(GENERATED)) {
        assert_eq!(compared, 22);
    }
}
