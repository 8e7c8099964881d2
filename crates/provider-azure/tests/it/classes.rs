//! Hash, drift and status of classes (Z-003, Z-004, Z-010, Z-011, Z-014, Z-053).

use spokeshave_api::aks_node_class::NodeImage;
use spokeshave_api::conditions::READY;
use spokeshave_api::{AKSNodeClass, NodeClaim, NodeClaimSpec};
use spokeshave_provider_azure::class_hash::{HASH_ANNOTATION, HASH_VERSION_ANNOTATION, class_hash};
use spokeshave_provider_azure::drift::{self, Instance};
use spokeshave_provider_azure::images::ImageError;
use spokeshave_provider_azure::instance_types::ProvisionMode;
use spokeshave_provider_azure::status::{
    self, ImageProblem, LookUps, SubnetProblem, is_maintenance, next_kubernetes_version, not_acted_on,
    reconcile,
};

use crate::{at, class};

const SUBNET: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/net/subnets/nodes";

fn image(id: &str) -> NodeImage {
    NodeImage {
        id: id.to_owned(),
        requirements: Vec::new(),
    }
}

fn found(version: &str, image_id: &str) -> LookUps {
    LookUps {
        kubernetes_version: Ok(version.to_owned()),
        images: Ok(vec![image(image_id)]),
        subnet: Ok(()),
        maintenance: true,
        mode: ProvisionMode::Template,
    }
}

/// Type, status and reason of a condition.
fn condition(class: &AKSNodeClass, type_: &str) -> (String, String, String) {
    let conditions = &class.status.as_ref().unwrap().conditions;
    let condition = conditions.iter().find(|it| it.type_ == type_).unwrap();
    (
        condition.status.clone(),
        condition.reason.clone(),
        condition.message.clone(),
    )
}

#[test]
fn z_004_the_hash_is_of_all_but_the_tags() {
    let hash = |spec: &str| class_hash(&class(spec));
    let base = hash("{}");
    for same in [
        "{tags: {team: a}}",
        "{imageFamily: Ubuntu, osDiskSizeGB: 128}",
        "{kubelet: {}}",
        "{kubelet: {allowedUnsafeSysctls: []}}",
    ] {
        assert_eq!(hash(same), base, "{same}");
    }
    let mut others: Vec<String> = [
        "{vnetSubnetID: a}",
        "{osDiskSizeGB: 64}",
        "{imageFamily: AzureLinux}",
        "{fipsMode: Disabled}",
        "{maxPods: 30}",
        "{kubelet: {podPidsLimit: 10}}",
        "{security: {encryptionAtHost: false}}",
        "{gpu: {mode: None}}",
        "{artifactStreaming: {enabled: false}}",
        "{localDNS: {mode: Disabled}}",
        "{linuxOSConfig: {swapFileSize: 1Gi}}",
    ]
    .into_iter()
    .map(hash)
    .collect();
    others.push(base);
    others.sort();
    others.dedup();
    assert_eq!(others.len(), 12, "each field counts");
    assert_eq!(
        hash("{kubelet: {allowedUnsafeSysctls: [a, b]}}"),
        hash("{kubelet: {allowedUnsafeSysctls: [b, a]}}")
    );
}

fn stamped(hash: &str, version: &str) -> std::collections::BTreeMap<String, String> {
    [(HASH_ANNOTATION, hash), (HASH_VERSION_ANNOTATION, version)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

#[test]
fn z_053_why_an_instance_has_drifted() {
    let (mut class, _) = reconcile(&class("{}"), &found("1.34.1", "/images/a"), at(0));
    class.metadata.annotations = Some(stamped("1", "v"));
    let mut claim = NodeClaim::new("claim", NodeClaimSpec::default());
    claim.metadata.annotations = Some(stamped("1", "v"));
    let instance = |image: &str, version: Option<&str>| Instance {
        image_id: image.to_owned(),
        kubernetes_version: version.map(str::to_owned),
        drift_action: String::new(),
    };
    let check = |class: &AKSNodeClass, claim: &NodeClaim, instance: &Instance| {
        drift::check(class, claim, instance).map(drift::Drift::as_str)
    };
    assert_eq!(
        check(&class, &claim, &instance("/IMAGES/a", Some("v1.34.1"))),
        None
    );
    for more in ["v1.34.1+k3s1", "v1.34.1-aks-7"] {
        assert_eq!(
            check(&class, &claim, &instance("/images/a", Some(more))),
            None,
            "what a distribution adds is no other version"
        );
    }
    assert_eq!(check(&class, &claim, &instance("/images/a", None)), None);
    assert_eq!(
        check(&class, &claim, &instance("/images/b", None)),
        Some("ImageDrift")
    );
    assert_eq!(
        check(&class, &claim, &instance("/images/b", Some("v1.33.9"))),
        Some("K8sVersionDrift")
    );
    assert_eq!(
        check(&class, &claim, &instance("", None)),
        None,
        "an image that is not known"
    );
    claim.metadata.annotations = Some(stamped("2", "v"));
    assert_eq!(
        check(&class, &claim, &instance("/images/a", None)),
        Some("NodeClassDrift")
    );
    claim.metadata.annotations = Some(stamped("2", "w"));
    assert_eq!(
        check(&class, &claim, &instance("/images/a", None)),
        None,
        "another algorithm"
    );
    let mut unsettled = found("1.34.1", "/images/a");
    unsettled.images = Err(ImageProblem::None(ImageError::NotFound("x".to_owned())));
    let (unsettled, _) = reconcile(&class, &unsettled, at(1));
    assert_eq!(check(&unsettled, &claim, &instance("/images/b", None)), None);
}

#[test]
fn z_003_fields_that_nothing_acts_on_are_named() {
    let spec = "{fipsMode: FIPS, artifactStreaming: {enabled: true}, localDNS: {mode: Required}, \
                 linuxOSConfig: {swapFileSize: 1Gi, sysctls: {vmSwappiness: 1, fsFileMax: 9000}}, \
                 kubelet: {someday: 1, podPidsLimit: 3}, another: 1}";
    let fields = [
        "spec.fipsMode",
        "spec.artifactStreaming.enabled",
        "spec.localDNS.mode",
        "spec.linuxOSConfig.swapFileSize",
        "spec.linuxOSConfig.sysctls.fsFileMax",
        "spec.linuxOSConfig.sysctls.vmSwappiness",
        "spec.another",
        "spec.kubelet.someday",
    ];
    let mut named = not_acted_on(&class(spec), ProvisionMode::Template);
    named.sort();
    let mut expected = fields.to_vec();
    expected.sort_unstable();
    assert_eq!(named, expected);
    let acted_on = "{vnetSubnetID: a, osDiskSizeGB: 64, imageFamily: AzureLinux, fipsMode: Disabled, tags: {a: b}, maxPods: 30, \
                     kubelet: {cpuManagerPolicy: static, failSwapOn: false}, security: {encryptionAtHost: true, trustedLaunch: {vtpm: true}}, \
                     gpu: {mode: None}, artifactStreaming: {enabled: false}, localDNS: {mode: Preferred}, linuxOSConfig: {}}";
    assert!(not_acted_on(&class(acted_on), ProvisionMode::Template).is_empty());
    let (refused, _) = reconcile(&class(spec), &found("1.34.1", "/images/a"), at(0));
    let (status, reason, message) = condition(&refused, "ValidationSucceeded");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "FieldsNotSupported")
    );
    assert!(fields.iter().all(|field| message.contains(field)), "{message}");
    assert!(!status::is_ready(&refused));
}

#[test]
fn z_010_the_version_only_moves_up_and_images_follow() {
    let class = class("{}");
    assert_eq!(next_kubernetes_version(&class, "v1.33.4"), "1.33.4");
    let (class, again) = reconcile(&class, &found("1.33.4", "/images/22"), at(0));
    assert_eq!(condition(&class, READY).0, "True");
    assert!(status::is_ready(&class));
    assert_eq!(again.as_mins(), 3);
    for (server, next) in [
        ("v1.33.3", "1.33.4"),
        ("v1.33.10", "1.33.10"),
        ("v1.34.0-rc.1", "1.34.0-rc.1"),
        ("v1.9.9", "1.33.4"),
    ] {
        assert_eq!(next_kubernetes_version(&class, server), next, "{server}");
    }
    // Outside of a window images stay, but an upgrade takes them along.
    let outside = |version: &str, image: &str| LookUps {
        maintenance: false,
        ..found(version, image)
    };
    let images = |class: &AKSNodeClass| class.status.as_ref().unwrap().images[0].id.clone();
    let (stayed, _) = reconcile(&class, &outside("1.33.4", "/images/23"), at(60));
    assert_eq!(images(&stayed), "/images/22");
    let (moved, _) = reconcile(&class, &outside("1.34.0", "/images/24"), at(60));
    assert_eq!(images(&moved), "/images/24");
    assert_eq!(
        moved.status.as_ref().unwrap().kubernetes_version.as_deref(),
        Some("1.34.0")
    );
    let mut failed = outside("1.34.0", "");
    failed.images = Err(ImageProblem::Call("HTTP 500".to_owned()));
    let (waiting, again) = reconcile(&class, &failed, at(60));
    assert_eq!(
        condition(&waiting, "ImagesReady"),
        (
            "False".to_owned(),
            "KubernetesUpgrade".to_owned(),
            "looking images up: HTTP 500".to_owned()
        )
    );
    assert_eq!(again.as_mins(), 1);
    // A call that fails at any other time leaves what is there.
    failed.kubernetes_version = Err("HTTP 500".to_owned());
    let (kept, _) = reconcile(&class, &failed, at(60));
    assert_eq!(
        (condition(&kept, READY).0, images(&kept)),
        ("True".to_owned(), "/images/22".to_owned())
    );
}

#[test]
fn z_010_z_014_a_subnet_that_was_there_stays_while_it_cannot_be_looked_up() {
    let mut young = class("{}");
    young.metadata.generation = Some(1);
    let silent = LookUps {
        subnet: Err(SubnetProblem::Unknown("HTTP 503".to_owned())),
        ..found("1.34.1", "/images/a")
    };
    let subnet = |class: &AKSNodeClass| {
        let (status, reason, _) = condition(class, "SubnetsReady");
        (status, reason == "SubnetUnknownError")
    };
    let (never, _) = reconcile(&young, &silent, at(0));
    assert_eq!(subnet(&never), ("False".to_owned(), true), "nobody has seen it");
    let (ready, _) = reconcile(&young, &found("1.34.1", "/images/a"), at(0));
    let (mut kept, again) = reconcile(&ready, &silent, at(180));
    assert!(status::is_ready(&kept));
    assert_eq!((subnet(&kept).0.as_str(), again.as_mins()), ("True", 1));
    // What does not exist is known not to.
    let gone = LookUps {
        subnet: Err(SubnetProblem::NotFound(SUBNET.to_owned())),
        ..found("1.34.1", "/images/a")
    };
    assert!(!status::is_ready(&reconcile(&kept, &gone, at(240)).0));
    // Another spec may name another one.
    kept.metadata.generation = Some(2);
    let (changed, _) = reconcile(&kept, &silent, at(240));
    assert_eq!(subnet(&changed), ("False".to_owned(), true));
}

#[test]
fn z_010_what_is_not_known_yet() {
    let nothing = LookUps {
        kubernetes_version: Err("HTTP 503".to_owned()),
        images: Err(ImageProblem::Call("HTTP 503".to_owned())),
        subnet: Err(SubnetProblem::Unknown("HTTP 503".to_owned())),
        maintenance: true,
        mode: ProvisionMode::Template,
    };
    let (class, _) = reconcile(&class("{}"), &nothing, at(0));
    for (type_, reason) in [
        ("KubernetesVersionReady", "KubernetesVersionUnknown"),
        ("ImagesReady", "ImagesUnknown"),
        ("SubnetsReady", "SubnetUnknownError"),
    ] {
        let (status, found, _) = condition(&class, type_);
        assert_eq!((status.as_str(), found.as_str()), ("False", reason));
    }
    assert_eq!(condition(&class, "LocalDNSReady").0, "True");
    assert_eq!(class.status.unwrap().local_dns_state.as_deref(), Some("Disabled"));
}

#[test]
fn z_011_the_window_of_maintenance() {
    let (start, end) = (Some("2026-01-31T22:00:00Z"), Some("2026-02-01T02:00:00Z"));
    let at = |text: &str| text.parse().unwrap();
    for (start, end, now, expected) in [
        (None, None, "2026-01-01T00:00:00Z", true),
        (start, None, "2026-01-01T00:00:00Z", true),
        (start, end, "2026-01-31T21:59:59Z", false),
        (start, end, "2026-01-31T22:00:00Z", true),
        (start, end, "2026-02-01T02:00:00Z", false),
    ] {
        assert_eq!(
            is_maintenance(start, end, at(now)),
            Ok(expected),
            "{start:?} {end:?} {now}"
        );
    }
    let error = is_maintenance(start, Some("soon"), at("2026-01-01T00:00:00Z")).unwrap_err();
    assert!(
        error.contains("aksManagedNodeOSUpgradeSchedule-end: \"soon\""),
        "{error}"
    );
}

#[test]
fn z_014_the_subnet_is_in_the_clusters_network() {
    let own = class("{}");
    assert_eq!(status::subnet(&own, SUBNET), Ok(SUBNET));
    let other = SUBNET.replace("subnets/nodes", "subnets/more").to_uppercase();
    let class_of = |id: &str| class(&format!("{{vnetSubnetID: {id}}}"));
    assert_eq!(status::subnet(&class_of(&other), SUBNET), Ok(other.as_str()));
    for id in [
        "nodes".to_owned(),
        SUBNET.replace("/net/", "/other/"),
        SUBNET.replace("/g/", "/other/"),
        SUBNET.replace("/s/", "/other/"),
        format!("{SUBNET}/more"),
    ] {
        let class = class_of(&id);
        let problem = status::subnet(&class, SUBNET).unwrap_err();
        let lookups = LookUps {
            subnet: Err(problem),
            ..found("1.34.1", "/images/a")
        };
        let (class, _) = reconcile(&class, &lookups, at(0));
        let (status, reason, message) = condition(&class, "SubnetsReady");
        assert_eq!(
            (status.as_str(), reason.as_str()),
            ("False", "SubnetIDInvalid"),
            "{message}"
        );
    }
    let gone = LookUps {
        subnet: Err(SubnetProblem::NotFound(SUBNET.to_owned())),
        ..found("1.34.1", "/images/a")
    };
    let (class, _) = reconcile(&own, &gone, at(0));
    assert_eq!(condition(&class, "SubnetsReady").1, "SubnetNotFound");
    assert_eq!(condition(&class, READY).0, "False");
}
