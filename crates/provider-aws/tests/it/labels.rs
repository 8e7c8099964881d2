//! labels of AWS in rules and requirements.

use std::collections::BTreeSet;

use serde_json::json;
use spokeshave_api::NodePool;
use spokeshave_api::labels::{WELL_KNOWN as CORE, ZONE, is_restricted_with, normalized};
use spokeshave_api::validation::{LabelRules, node_pool_failures};
use spokeshave_model::Requirement;
use spokeshave_provider_aws::instance_types::{Context, Settings, resolve};
use spokeshave_provider_aws::labels::{
    DOMAIN, EBS_ZONE, INSTANCE_FAMILY, UNSUPPORTED, WELL_KNOWN, ZONE_ID, unsupported,
};

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

const SPECIFICATION: &str = include_str!("../../../../docs/spec/providers.md");

/// The well-known labels that A1.7 lists, with their domains.
fn specified() -> BTreeSet<String> {
    let section = SPECIFICATION
        .split("\n### A1.7 ")
        .nth(1)
        .and_then(|rest| rest.split("Normalised label:").next())
        .unwrap();
    let quoted = section.split('`').skip(1).step_by(2);
    // The domain that they are under, and values in brackets, are no labels.
    let names = quoted.filter(|text| !matches!(*text, "karpenter.k8s.aws/" | "default" | "dedicated"));
    let mut stem = "";
    let mut found = BTreeSet::new();
    for name in names {
        // `instance-gpu-name`, `-gpu-count`: the abbreviated ones begin with what the one before begins with.
        let key = match name.strip_prefix('-') {
            Some(rest) => format!("{stem}{rest}"),
            None => {
                stem = name.split_inclusive('-').next().unwrap();
                name.to_owned()
            }
        };
        found.insert(if key.contains('/') {
            key
        } else {
            format!("{DOMAIN}/{key}")
        });
    }
    assert!(found.len() > 30, "{found:?}");
    found
}

#[test]
fn a_015_labels_that_are_not_supported_are_refused_by_name_with_a_reason() {
    let rules = LabelRules {
        restricted_domains: vec![DOMAIN.to_owned()],
        well_known: WELL_KNOWN.map(str::to_owned).to_vec(),
        unsupported: unsupported(),
    };
    for (key, reason) in [
        ("karpenter.k8s.aws/nitro-sandbox", "sandboxes"),
        (
            "karpenter.k8s.aws/placement-group-id",
            "spec.placementGroupSelector",
        ),
        (
            "karpenter.k8s.aws/placement-group-partition",
            "spec.placementGroupSelector",
        ),
    ] {
        let pool = json!({"metadata": {"name": "p"}, "spec": {"template": {"spec": {
            "nodeClassRef": {"group": DOMAIN, "kind": "EC2NodeClass", "name": "default"},
            "requirements": [{"key": key, "operator": "Exists"}],
        }}}});
        let pool: NodePool = serde_json::from_value(pool).unwrap();
        let failures = node_pool_failures(&pool, &rules);
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(
            failures[0].contains(&format!("label {key} is not supported: ")) && failures[0].contains(reason),
            "{failures:?}"
        );
    }
}

#[test]
fn a_015_users_may_ask_for_what_types_have_and_for_nothing_else_in_the_domain() {
    let (ours, upstream) = (BTreeSet::from(WELL_KNOWN), specified());
    let unsupported: BTreeSet<&str> = UNSUPPORTED.iter().map(|(key, _)| *key).collect();
    let missing: Vec<&str> = upstream
        .iter()
        .map(String::as_str)
        .filter(|key| !ours.contains(key) && !unsupported.contains(key) && !CORE.contains(key))
        .collect();
    assert_eq!(missing, Vec::<&str>::new(), "the specification has more");
    let more = ours
        .iter()
        .chain(&unsupported)
        .filter(|key| !upstream.contains(**key));
    assert_eq!(more.count(), 0, "the specification has all of them");
    assert!(ours.is_disjoint(&unsupported));
    for key in WELL_KNOWN {
        assert!(!is_restricted_with(key, &[DOMAIN], &WELL_KNOWN), "{key}");
    }
    assert!(WELL_KNOWN.contains(&INSTANCE_FAMILY) && WELL_KNOWN.contains(&ZONE_ID));
    for key in ["karpenter.k8s.aws/mine", "sub.karpenter.k8s.aws/x"] {
        assert!(is_restricted_with(key, &[DOMAIN], &WELL_KNOWN), "{key}");
    }
    assert!(!is_restricted_with("k8s.aws/mine", &[DOMAIN], &WELL_KNOWN));
}
