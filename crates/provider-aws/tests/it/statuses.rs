//! what classes ask, find and say of it, as upstream's provider does.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_api::EC2NodeClass;
use spokeshave_api::ec2_node_class::SecurityGroup;
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::images::AliasError;
use spokeshave_provider_aws::profiles::ProfileError;
use spokeshave_provider_aws::rehearsal::{Question, Verdict, judge};
use spokeshave_provider_aws::requests::Tags;
use spokeshave_provider_aws::selectors::{self, FoundImage, ImageLookUp};
use spokeshave_provider_aws::status::{
    FoundReservation, FoundSubnet, ImageProblem, LookUps, NotReady, Validation, conclude, readiness, resolve,
    validate, verdict_key,
};
use spokeshave_provider_aws::user_data::Cluster;

use crate::launches::{Scenario, requests_of, written};
use crate::oracle;

const SCENARIOS: [&str; 12] = [
    "accelerators",
    "bottlerocket",
    "concurrent",
    "everything",
    "faults",
    "many-types",
    "no-capacity",
    "not-ready",
    "simple",
    "spot",
    "spot-prices",
    "windows-custom",
];

const MINOR: u32 = 34;

fn now() -> Timestamp {
    "2026-06-01T00:00:00Z".parse().unwrap()
}

fn parameter_values(scenario: &Scenario) -> BTreeMap<String, String> {
    let written = scenario
        .objects
        .iter()
        .find(|object| object["kind"] == "Scenario");
    written
        .and_then(|scenario| serde_json::from_value(scenario["ssm"].clone()).ok())
        .unwrap_or_default()
}

fn all_images() -> Vec<FoundImage> {
    let images = oracle::json("images.json");
    let images = images.as_array().unwrap().iter();
    let text = |image: &Value, field: &str| image[field].as_str().unwrap_or_default().to_owned();
    images
        .map(|image| FoundImage {
            id: text(image, "ami_id"),
            name: text(image, "name"),
            architecture: text(image, "architecture"),
            created_at: text(image, "creation_date").parse().ok(),
            deprecated_at: None,
        })
        .collect()
}

/// What EC2 would answer: the images of the asked IDs, and of the one name that the scenarios ask for.
fn images_for(look_up: &ImageLookUp, values: &BTreeMap<String, String>) -> Vec<FoundImage> {
    let requests = look_up.requests(values);
    let filters: Vec<_> = requests.iter().flat_map(|request| &request.filters).collect();
    let matches = |image: &FoundImage| {
        filters.iter().any(|filter| match filter.name.as_str() {
            "image-id" => filter.values.contains(&image.id),
            "name" => {
                assert_eq!(filter.values, ["own-image-*"]);
                image.name.starts_with("own-image-")
            }
            _ => false,
        })
    };
    all_images().into_iter().filter(matches).collect()
}

/// Requests of a kind, without the size of a page.
fn asked(found: &Value, action: &str) -> BTreeSet<String> {
    let requests = requests_of(found, action).into_iter();
    requests
        .map(|mut request| {
            request.as_object_mut().unwrap().remove("MaxResults");
            written(&request).to_string()
        })
        .collect()
}

fn ours(requests: impl IntoIterator<Item = Value>) -> BTreeSet<String> {
    requests
        .into_iter()
        .map(|request| written(&request).to_string())
        .collect()
}

/// Each class of each scenario with what upstream made of it.
fn each_class(mut check: impl FnMut(&Scenario, EC2NodeClass, &Value)) -> usize {
    let mut count = 0;
    for name in SCENARIOS {
        let scenario = Scenario::read(name);
        for class in scenario.objects::<EC2NodeClass>("EC2NodeClass") {
            let found = oracle::list(&scenario.expected, "node_classes").iter();
            let mut found = found.filter(|found| found["name"] == class.name());
            check(&scenario, class.clone(), found.next().unwrap());
            count += 1;
        }
    }
    count
}

#[test]
fn a_020_a_023_a_024_a_028_selectors_ask_what_upstreams_ask() {
    // Classes of one scenario share answers, so that upstream does not ask again.
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let count = each_class(|scenario, class, found| {
        let label = format!("{}/{}", scenario.name, class.name());
        let values = parameter_values(scenario);
        let seen = seen.entry(scenario.name.clone()).or_default();
        let mut compare = |ours: BTreeSet<String>, action: &str| {
            let theirs = asked(found, action);
            assert!(theirs.is_subset(&ours), "{label}: {theirs:?} {ours:?}");
            let extra: BTreeSet<_> = ours.difference(&theirs).collect();
            assert!(
                extra.iter().all(|request| seen.contains(*request)),
                "{label}: {extra:?}"
            );
            seen.extend(theirs);
        };
        let spec = &class.spec;
        compare(
            ours(
                selectors::subnets(&spec.subnet_selector_terms)
                    .iter()
                    .map(|it| json!(it)),
            ),
            "DescribeSubnets",
        );
        let groups = selectors::security_groups(&spec.security_group_selector_terms);
        compare(ours(groups.iter().map(|it| json!(it))), "DescribeSecurityGroups");
        match selectors::images(&class, MINOR) {
            Ok(look_up) => {
                let parameters = look_up.parameters().map(|name| json!({"Name": name}));
                compare(ours(parameters), "GetParameter");
                let requests = look_up.requests(&values);
                compare(ours(requests.iter().map(|it| json!(it))), "DescribeImages");
            }
            Err(AliasError::Unsupported { family, .. }) => assert_eq!((family, class.name()), ("AL2", "al2")),
        }
    });
    assert!(count >= 17, "{count} classes");
}

/// What was found for a class, as the fixture of the scenarios has it.
fn look_ups(scenario: &Scenario, class: &EC2NodeClass, found: &Value) -> LookUps {
    let values = parameter_values(scenario);
    let amis = match selectors::images(class, MINOR) {
        Err(error) => Err(ImageProblem::Alias(error)),
        Ok(look_up) if look_up.has_no_image(&values) => {
            Err(ImageProblem::NoParameter(look_up.alias().unwrap().to_owned()))
        }
        Ok(look_up) => Ok(look_up.choose(&values, &images_for(&look_up, &values), now())),
    };
    let empty = Vec::new();
    let list = |field: &str| found["status"][field].as_array().unwrap_or(&empty).clone();
    let text = |value: &Value, field: &str| value[field].as_str().unwrap().to_owned();
    let subnets = list("subnets");
    // The fixture's free addresses, in the order of upstream's status; told in another order, and one of them twice.
    let mut subnets: Vec<FoundSubnet> = subnets
        .iter()
        .zip([1019, 251, 251, 59])
        .map(|(subnet, free_addresses)| FoundSubnet {
            id: text(subnet, "id"),
            zone: text(subnet, "zone"),
            zone_id: text(subnet, "zoneID"),
            free_addresses,
        })
        .collect();
    subnets.reverse();
    subnets.extend(subnets.first().cloned());
    let mut groups: Vec<SecurityGroup> = list("securityGroups")
        .iter()
        .map(|group| serde_json::from_value(group.clone()).unwrap())
        .collect();
    groups.reverse();
    groups.extend(groups.first().cloned());
    let profile = found["status"]["instanceProfile"].as_str().unwrap_or_default();
    LookUps {
        amis,
        subnets: Ok(subnets),
        security_groups: Ok(groups),
        instance_profile: Ok(profile.to_owned()),
        capacity_reservations: Some(Ok(Vec::new())),
        placement_group: Some(Ok(None)),
    }
}

fn verdict(scenario: &Scenario) -> Validation {
    // The scenario of faults has EC2 refuse the fleet.
    let fault = scenario
        .objects
        .iter()
        .find_map(|object| object["faults"].as_array());
    let error = fault.map(|faults| {
        ApiError::new(
            faults[0]["code"].as_str().unwrap(),
            faults[0]["message"].as_str().unwrap(),
        )
    });
    match judge(Question::CreateFleet, error.as_ref()) {
        Verdict::Allowed => Validation::Succeeded,
        Verdict::Refused { reason, message } => Validation::Failed { reason, message },
        other => panic!("{other:?}"),
    }
}

fn reconcile(class: &EC2NodeClass, found: &LookUps, cluster: &Cluster, verdict: &Validation) -> EC2NodeClass {
    let resolved = resolve(class, found, now());
    let outcome = validate(&resolved.class, found, cluster);
    // Dry runs take their time. What changed last stands first in the root's message.
    let then = now() + SignedDuration::from_secs(1);
    conclude(&resolved.class, outcome.as_ref().unwrap_or(verdict), then)
}

fn ids(list: &Value) -> Vec<&Value> {
    list.as_array()
        .into_iter()
        .flatten()
        .map(|entry| &entry["id"])
        .collect()
}

fn conditions(status: &Value) -> BTreeMap<String, (String, String, String)> {
    let conditions = oracle::list(status, "conditions").iter();
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let rows = conditions.map(|condition| {
        let (reason, message) = (text(condition, "reason"), text(condition, "message"));
        (
            text(condition, "type"),
            (text(condition, "status"), reason, message),
        )
    });
    rows.collect()
}

#[test]
fn a_013_a_014_a_022_a_029_a_035_statuses_are_those_of_upstream() {
    let mut different = Vec::new();
    each_class(|scenario, mut class, found| {
        class.metadata.generation = Some(1);
        let label = format!("{}/{}", scenario.name, class.name());
        let looked_up = look_ups(scenario, &class, found);
        let class = reconcile(&class, &looked_up, &scenario.cluster(), &verdict(scenario));
        let (ours, theirs) = (json!(class.status), &found["status"]);
        for field in ["subnets", "securityGroups", "amis"] {
            let none = json!(null);
            let theirs = theirs.get(field).unwrap_or(&none);
            let ours = ours.get(field).unwrap_or(&none);
            assert_eq!(ids(ours), ids(theirs), "{label}: {field}");
            // An image for two kinds of machines stands there twice, in either order.
            assert_eq!(written(ours), written(theirs), "{label}: {field}");
        }
        let (mut ours, mut theirs) = (conditions(&ours), conditions(theirs));
        for (type_, condition) in ours.clone() {
            if theirs.get(&type_) != Some(&condition) {
                different.push(format!("{label} {type_}"));
                println!("{label} {type_} {condition:?} {:?}", theirs.get(&type_));
            }
            theirs.remove(&type_);
            ours.remove(&type_);
        }
        assert!(theirs.is_empty(), "{label}: {theirs:?}");
    });
    different.sort();
    let listed: Vec<String> = oracle::differences("statuses").into_keys().collect();
    assert_eq!(different, listed);
}

fn class(spec: Value) -> EC2NodeClass {
    let mut class = EC2NodeClass::new("class", serde_json::from_value(spec).unwrap());
    class.metadata.generation = Some(1);
    class
}

fn everything_found() -> LookUps {
    LookUps {
        amis: Ok(vec![spokeshave_api::ec2_node_class::Ami {
            id: "ami-1".into(),
            ..Default::default()
        }]),
        subnets: Ok(vec![FoundSubnet {
            id: "subnet-1".into(),
            zone: "a".into(),
            ..FoundSubnet::default()
        }]),
        security_groups: Ok(vec![SecurityGroup {
            id: "sg-1".into(),
            name: "nodes".into(),
        }]),
        instance_profile: Ok("profile".into()),
        capacity_reservations: None,
        placement_group: None,
    }
}

fn cluster() -> Cluster {
    Cluster {
        name: "c".into(),
        endpoint: "e".into(),
        cidr: Some("10.0.0.0/16".into()),
        ..Cluster::default()
    }
}

fn condition(class: &EC2NodeClass, type_: &str) -> (String, String, String) {
    let conditions = &class.status.as_ref().unwrap().conditions;
    let condition = conditions
        .iter()
        .find(|condition| condition.type_ == type_)
        .unwrap();
    (
        condition.status.clone(),
        condition.reason.clone(),
        condition.message.clone(),
    )
}

#[test]
fn a_022_what_is_found_later_makes_the_class_ready_and_failed_calls_keep_what_was_known() {
    let plain = class(json!({"amiFamily": "AL2023"}));
    let mut found = everything_found();
    found.subnets = Ok(Vec::new());
    let without = reconcile(&plain, &found, &cluster(), &Validation::Succeeded);
    assert_eq!(condition(&without, "SubnetsReady").1, "SubnetsNotFound");
    assert!(readiness(&without).is_err());
    assert_eq!(
        resolve(&plain, &found, now()).again_after,
        SignedDuration::from_mins(1)
    );
    let ready = reconcile(&without, &everything_found(), &cluster(), &Validation::Succeeded);
    assert_eq!(
        condition(&ready, "Ready"),
        ("True".into(), "Ready".into(), String::new())
    );
    assert_eq!(readiness(&ready), Ok(()));

    let mut broken = everything_found();
    broken.subnets = Err("RequestLimitExceeded".into());
    broken.amis = Err(ImageProblem::Call("InternalError".into()));
    broken.instance_profile = Err(ProfileError::Call("iam:GetInstanceProfile, Throttling".into()));
    let after = resolve(&ready, &broken, now());
    assert_eq!(after.class, ready, "nothing is lost by a call that failed");
    assert_eq!(after.failures.len(), 3, "{:?}", after.failures);
    let fresh = reconcile(&plain, &broken, &cluster(), &Validation::Succeeded);
    assert_eq!(condition(&fresh, "ValidationSucceeded").0, "Unknown");
    assert_eq!(readiness(&fresh), Err(NotReady::Unknown));
}

#[test]
fn a_060_a_class_is_launched_from_only_when_its_status_speaks_of_this_specification() {
    let plain = class(json!({"amiFamily": "AL2023"}));
    assert_eq!(readiness(&plain), Err(NotReady::Unknown), "nobody has looked yet");
    let mut ready = reconcile(&plain, &everything_found(), &cluster(), &Validation::Succeeded);
    assert_eq!(readiness(&ready), Ok(()));
    ready.metadata.generation = Some(2);
    let error = readiness(&ready).unwrap_err().to_string();
    assert_eq!(
        error,
        "nodeclass status has not been reconciled against the latest spec"
    );
    let refused = Validation::Failed {
        reason: "x",
        message: "y".into(),
    };
    let refused = conclude(&ready, &refused, now());
    let error = readiness(&refused).unwrap_err().to_string();
    assert!(error.contains("ValidationSucceeded=False"), "{error}");
}

#[test]
fn a_006_a_009_a_035_a_072_a_124_what_is_wrong_with_a_class_is_told_before_ec2_is_asked() {
    let long = "x".repeat(20_000);
    for (spec, reason, text) in [
        (
            json!({"amiFamily": "AL2", "kubelet": {"maxPodz": 1}}),
            "InvalidKubeletConfiguration",
            "maxPodz",
        ),
        (
            json!({"amiFamily": "AL2023", "kubelet": {"maxPods": "vcpus * 2"}}),
            "KubeletExpressionsDisabled",
            "spec.kubelet.maxPods",
        ),
        (
            json!({"amiFamily": "Bottlerocket", "kubelet": {"podsPerCore": 2}}),
            "UnsupportedKubeletConfiguration",
            "podsPerCore",
        ),
        (
            json!({"amiFamily": "Custom", "userData": long}),
            "UserDataSizeLimitExceeded",
            "16384",
        ),
        (
            json!({"amiFamily": "Bottlerocket", "userData": "[settings"}),
            "InvalidUserData",
            "spec.userData is not TOML",
        ),
        (
            json!({"amiFamily": "AL2023", "userData": "MIME-Version: 1.0\nContent-Type: multipart/mixed\n\nx"}),
            "InvalidUserData",
            "spec.userData",
        ),
        (
            json!({"amiFamily": "AL2023", "tags": {"karpenter.sh/nodepool": "mine"}}),
            "TagValidationFailed",
            "karpenter.sh/nodepool",
        ),
        (
            json!({"amiFamily": "AL2023", "placementGroupSelector": {"name": "group"}}),
            "UnsupportedField",
            "spec.placementGroupSelector is not supported by this version; remove it",
        ),
        (
            json!({"amiFamily": "AL2023", "capacityReservationSelectorTerms": [{"id": "cr-1"}]}),
            "UnsupportedField",
            "spec.capacityReservationSelectorTerms",
        ),
    ] {
        let class = reconcile(
            &class(spec),
            &everything_found(),
            &cluster(),
            &Validation::Succeeded,
        );
        let (status, actual, message) = condition(&class, "ValidationSucceeded");
        assert_eq!((status.as_str(), actual.as_str()), ("False", reason), "{message}");
        assert!(message.contains(text), "{reason}: {message}");
        assert_ne!(condition(&class, "Ready").0, "True");
    }
    let mut far = cluster();
    far.cidr = None;
    let plain = class(json!({"amiFamily": "AL2023"}));
    let class = reconcile(&plain, &everything_found(), &far, &Validation::Succeeded);
    assert_eq!(
        condition(&class, "ValidationSucceeded").1,
        "ClusterCIDRResolutionFailed"
    );
}

#[test]
fn a_023_images_without_a_known_architecture_are_left_out() {
    let plain =
        class(json!({"amiFamily": "Custom", "amiSelectorTerms": [{"name": "mine", "tags": {"a": "*"}}]}));
    let look_up = selectors::images(&plain, MINOR).unwrap();
    let values = BTreeMap::new();
    assert_eq!(
        json!(look_up.requests(&values)),
        json!([{
            "Filter": [{"Name": "name", "Value": ["mine"]}, {"Name": "tag-key", "Value": ["a"]}, {"Name": "state", "Value": ["available"]}],
            "Owner": ["self", "amazon"], "IncludeDeprecated": true,
        }])
    );
    let image = |id: &str, architecture: &str| FoundImage {
        id: id.into(),
        architecture: architecture.into(),
        ..FoundImage::default()
    };
    let found = [
        image("ami-1", ""),
        image("ami-2", "i386"),
        image("ami-3", "arm64"),
    ];
    let chosen = look_up.choose(&values, &found, now());
    assert_eq!(
        chosen.iter().map(|ami| ami.id.as_str()).collect::<Vec<_>>(),
        ["ami-3"]
    );
    let none = look_up.choose(&values, &found[..2], now());
    let mut found = everything_found();
    found.amis = Ok(none);
    let class = reconcile(&plain, &found, &cluster(), &Validation::Succeeded);
    assert_eq!(condition(&class, "AMIsReady").1, "AMINotFound");
    let odd = class_with_parameter();
    let values = BTreeMap::from([("/p".to_owned(), "no image".to_owned())]);
    assert!(
        selectors::images(&odd, MINOR)
            .unwrap()
            .requests(&values)
            .is_empty()
    );
}

fn class_with_parameter() -> EC2NodeClass {
    class(json!({"amiFamily": "Custom", "amiSelectorTerms": [{"ssmParameter": "/p"}]}))
}

#[test]
fn a_014_reservations_and_placement_groups_where_they_are_looked_up() {
    let mut found = everything_found();
    let reservation = |id: &str, kind: &str, ends_at: Option<&str>| FoundReservation {
        id: id.into(),
        instance_match_criteria: "targeted".into(),
        reservation_type: kind.into(),
        ends_at: ends_at.map(|end| end.parse().unwrap()),
        ..FoundReservation::default()
    };
    found.capacity_reservations = Some(Ok(vec![
        reservation("cr-3", "capacity-block", Some("2026-06-01T00:40:00Z")),
        reservation("cr-2", "capacity-block", Some("2026-06-01T00:40:01Z")),
        reservation("cr-1", "default", Some("2026-06-01T00:00:30Z")),
        reservation("cr-4", "of tomorrow", None),
    ]));
    let plain = class(json!({"amiFamily": "AL2023", "placementGroupSelector": {"name": "group"}}));
    found.placement_group = Some(Ok(None));
    let resolved = resolve(&plain, &found, now());
    assert_eq!(
        resolved.again_after,
        SignedDuration::from_secs(30),
        "when the first one ends"
    );
    let reservations = &resolved.class.status.as_ref().unwrap().capacity_reservations;
    let states: Vec<(&str, &str)> = reservations
        .iter()
        .map(|reservation| (reservation.id.as_str(), reservation.state.as_str()))
        .collect();
    assert_eq!(
        states,
        [("cr-1", "active"), ("cr-2", "active"), ("cr-3", "expiring")]
    );
    let (status, reason, message) = condition(&resolved.class, "PlacementGroupReady");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "PlacementGroupNotFound")
    );
    assert_eq!(message, "Placement group \"group\" not found");
    found.placement_group = Some(Err("Throttling".into()));
    let failed = resolve(&plain, &found, now());
    assert_eq!(
        condition(&failed.class, "PlacementGroupReady").1,
        "PlacementGroupResolutionFailed"
    );
    found.placement_group = Some(Ok(Some("pg-1".into())));
    let ready = resolve(&plain, &found, now());
    assert_eq!(condition(&ready.class, "PlacementGroupReady").0, "True");
}

#[test]
fn a_035_a_verdict_stands_while_nothing_changes() {
    let plain = class(json!({"amiFamily": "AL2023"}));
    let ready = reconcile(&plain, &everything_found(), &cluster(), &Validation::Succeeded);
    let key = verdict_key(&ready, &Tags::default());
    let again = reconcile(&ready, &everything_found(), &cluster(), &Validation::Succeeded);
    assert_eq!(
        verdict_key(&again, &Tags::default()),
        key,
        "conditions do not count"
    );
    let mut other = ready.clone();
    other.spec.user_data = Some("x".into());
    assert_ne!(verdict_key(&other, &Tags::default()), key);
    let mut other = ready;
    other.status.as_mut().unwrap().subnets.clear();
    assert_ne!(verdict_key(&other, &Tags::default()), key);
}
