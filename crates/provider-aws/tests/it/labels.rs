//! labels of AWS in rules and requirements.

use std::collections::BTreeSet;

use spokeshave_api::labels::{ZONE, is_restricted_with, normalized};
use spokeshave_model::Requirement;
use spokeshave_provider_aws::instance_types::{Context, Settings, resolve};
use spokeshave_provider_aws::labels::{DOMAIN, EBS_ZONE, INSTANCE_FAMILY, WELL_KNOWN, ZONE_ID};

use crate::types::{catalog, class};

#[test]
fn a_015_a_volume_of_the_ebs_driver_asks_for_its_zone() {
    assert_eq!(normalized(EBS_ZONE), ZONE);
    let wanted = Requirement::is(EBS_ZONE, "us-west-2a");
    assert_eq!(wanted.key(), ZONE);
    let catalog = catalog("../catalog.json");
    let class = class("plain", "AL2023", &catalog.zones);
    let context = Context {
        class: &class,
        region: "us-west-2",
        settings: &Settings::default(),
        learned_memory_bytes: None,
    };
    let zones: BTreeSet<String> = catalog.zones.iter().map(|one| one.zone.clone()).collect();
    let instance_type = resolve(&catalog.region.types["m5.large"], &zones, &context);
    let fits = |zone: &str| {
        let wanted = [Requirement::is(EBS_ZONE, zone)].into_iter().collect();
        instance_type.requirements.intersects(&wanted).is_ok()
    };
    assert!(fits("us-west-2a") && !fits("eu-central-1a"));
}

#[test]
fn a_015_users_may_ask_for_what_types_have_and_for_nothing_else_in_the_domain() {
    for key in WELL_KNOWN {
        assert!(!is_restricted_with(key, &[DOMAIN], &WELL_KNOWN), "{key}");
    }
    assert!(WELL_KNOWN.contains(&INSTANCE_FAMILY) && WELL_KNOWN.contains(&ZONE_ID));
    for key in ["karpenter.k8s.aws/mine", "sub.karpenter.k8s.aws/x"] {
        assert!(is_restricted_with(key, &[DOMAIN], &WELL_KNOWN), "{key}");
    }
    assert!(!is_restricted_with("k8s.aws/mine", &[DOMAIN], &WELL_KNOWN));
}
