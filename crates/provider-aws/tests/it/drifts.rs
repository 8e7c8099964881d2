//! why an instance has drifted, and when that cannot be said.

use std::collections::BTreeSet;

use serde_json::json;
use spokeshave_api::{EC2NodeClass, NodeClaim};
use spokeshave_model::InstanceType;
use spokeshave_provider_aws::class_hash::{HASH_ANNOTATION, HASH_VERSION_ANNOTATION, VERSION};
use spokeshave_provider_aws::drift::{Drift, Instance, check};
use spokeshave_provider_aws::instance_types::{Context, Settings, resolve};

use crate::types;

/// A class with a complete status, and a type that it allows.
fn class() -> (EC2NodeClass, InstanceType) {
    let catalog = types::catalog("../catalog.json");
    let mut class = types::class("plain", "AL2023", &catalog.zones);
    let zones: BTreeSet<String> = catalog.zones.iter().map(|one| one.zone.clone()).collect();
    let context = Context {
        class: &class,
        region: "us-west-2",
        settings: &Settings::default(),
        learned_memory_bytes: None,
    };
    let instance_type = resolve(&catalog.region.types["m5.large"], &zones, &context);
    class.metadata.annotations = Some(annotations("1").into());
    class.status = serde_json::from_value(json!({
        "amis": [
            {"id": "ami-arm", "name": "a", "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]},
            {"id": "ami-new", "name": "b", "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]},
        ],
        "securityGroups": [{"id": "sg-1", "name": "one"}, {"id": "sg-2", "name": "two"}],
        "subnets": [{"id": "subnet-1", "zone": "us-west-2a", "zoneID": "usw2-az2"}],
    }))
    .unwrap();
    (class, instance_type)
}

fn annotations(hash: &str) -> [(String, String); 2] {
    [(HASH_ANNOTATION, hash), (HASH_VERSION_ANNOTATION, VERSION)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
}

fn claim(hash: &str) -> NodeClaim {
    let mut claim: NodeClaim = serde_json::from_value(json!({
        "metadata": {"name": "one", "labels": {"karpenter.sh/capacity-type": "spot", "topology.kubernetes.io/zone": "us-west-2a"}},
        "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "plain"}},
    }))
    .unwrap();
    claim.metadata.annotations = Some(annotations(hash).into());
    claim
}

#[test]
fn a_100_d_234_d_238_of_several_reasons_the_first_is_told_in_upstreams_order() {
    let (class, instance_type) = class();
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
    let mut instance = Instance {
        image_id: "ami-old".to_owned(),
        security_group_ids: ids(&["sg-1", "sg-3"]),
        subnet_id: "subnet-9".to_owned(),
        capacity_reservation_id: Some("cr-9".to_owned()),
    };
    let judge =
        |instance: &Instance, hash: &str| check(&class, &claim(hash), instance, &instance_type).unwrap();
    assert_eq!(judge(&instance, "2"), Some(Drift::NodeClass));
    assert_eq!(judge(&instance, "1"), Some(Drift::Ami));
    instance.image_id = "ami-arm".to_owned();
    assert_eq!(
        judge(&instance, "1"),
        Some(Drift::Ami),
        "of the class, and for another architecture"
    );
    instance.image_id = "ami-new".to_owned();
    assert_eq!(judge(&instance, "1"), Some(Drift::SecurityGroup));
    instance.security_group_ids = ids(&["sg-1"]);
    assert_eq!(
        judge(&instance, "1"),
        Some(Drift::SecurityGroup),
        "one is missing"
    );
    instance.security_group_ids = ids(&["sg-2", "sg-1"]);
    assert_eq!(judge(&instance, "1"), Some(Drift::Subnet));
    instance.subnet_id = "subnet-1".to_owned();
    assert_eq!(judge(&instance, "1"), Some(Drift::CapacityReservation));
    instance.capacity_reservation_id = None;
    assert_eq!(judge(&instance, "1"), None);
    let words = [
        Drift::NodeClass,
        Drift::Ami,
        Drift::SecurityGroup,
        Drift::Subnet,
        Drift::CapacityReservation,
    ]
    .map(Drift::as_str);
    assert_eq!(
        words,
        [
            "NodeClassDrift",
            "AMIDrift",
            "SecurityGroupDrift",
            "SubnetDrift",
            "CapacityReservationDrift"
        ]
    );
}

#[test]
fn a_100_d_235_d_236_d_237_without_images_groups_or_subnets_in_the_status_drift_is_not_judged() {
    let (mut class, instance_type) = class();
    let instance = Instance {
        image_id: "ami-old".to_owned(),
        ..Instance::default()
    };
    let status = class.status.clone().unwrap();
    class.status.as_mut().unwrap().amis.clear();
    let error = check(&class, &claim("1"), &instance, &instance_type).unwrap_err();
    assert!(
        error.to_string().starts_with("EC2NodeClass plain: no amis exist"),
        "{error}"
    );
    class.status = Some(status.clone());
    class.status.as_mut().unwrap().security_groups.clear();
    let error = check(&class, &claim("1"), &instance, &instance_type).unwrap_err();
    assert!(error.to_string().contains("no security groups"), "{error}");
    class.status = Some(status.clone());
    class.status.as_mut().unwrap().subnets.clear();
    let error = check(&class, &claim("1"), &instance, &instance_type).unwrap_err();
    assert!(error.to_string().contains("no subnets"), "{error}");
    class.status = Some(status);
    let unknown = Instance::default();
    let error = check(&class, &claim("1"), &unknown, &instance_type).unwrap_err();
    assert!(error.to_string().contains("NodeClaim one"), "{error}");
    class.status = None;
    assert!(check(&class, &claim("1"), &instance, &instance_type).is_err());
}
