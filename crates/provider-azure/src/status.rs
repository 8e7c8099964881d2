//! From what was looked up for a class to its status: images, version, conditions (Z1.4, Z2), and which of its fields nobody acts on (Z12).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use spokeshave_api::aks_node_class::NodeImage;
use spokeshave_api::conditions::{Conditioned, READY, Status, VALIDATION_SUCCEEDED};
use spokeshave_api::{AKSNodeClass, Condition};
use spokeshave_provider_common::readiness::readiness;

use crate::aks_profiles::{self, local_dns_mode};
use crate::images::{IMAGE_ANNOTATION, ImageError};
use crate::instance_types::{ProvisionMode, wants_fips};

/// Condition: images were found.
pub const IMAGES_READY: &str = "ImagesReady";
/// Condition: the version of Kubernetes is known.
pub const KUBERNETES_VERSION_READY: &str = "KubernetesVersionReady";
/// Condition: the subnet can be used.
pub const SUBNETS_READY: &str = "SubnetsReady";
/// Condition: it is known whether nodes have DNS of their own.
pub const LOCAL_DNS_READY: &str = "LocalDNSReady";

/// When images, subnet and version are looked up again.
const AGAIN: SignedDuration = SignedDuration::from_mins(3);
/// When a class that is not ready is looked at again.
const SOON: SignedDuration = SignedDuration::from_mins(1);

/// The class with its condition set.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft(pub AKSNodeClass);

impl Conditioned for Draft {
    const DEPENDENTS: &'static [&'static str] = &[
        IMAGES_READY,
        KUBERNETES_VERSION_READY,
        SUBNETS_READY,
        VALIDATION_SUCCEEDED,
        LOCAL_DNS_READY,
    ];

    fn conditions(&self) -> &[Condition] {
        self.0.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.0.status.get_or_insert_default().conditions
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
    }
}

/// Whether machines can be made from the class now: its status speaks of this generation.
#[must_use]
pub fn is_ready(class: &AKSNodeClass) -> bool {
    let conditions = class.status.iter().flat_map(|status| &status.conditions);
    readiness(&class.metadata, conditions).is_ok()
}

/// Fields of the spec that are set and that nothing acts on, where machines are made so (Z-003).
#[must_use]
pub fn not_acted_on(class: &AKSNodeClass, mode: ProvisionMode) -> Vec<String> {
    let spec = &class.spec;
    let mut fields = match mode {
        ProvisionMode::Template => without_template(class),
        ProvisionMode::AksMachine => without_aks(class),
    };
    fields.extend(spec.extra.keys().map(|field| format!("spec.{field}")));
    let kubelet = spec.kubelet.iter().flat_map(|kubelet| kubelet.extra.keys());
    fields.extend(kubelet.map(|field| format!("spec.kubelet.{field}")));
    fields
}

/// What AKS has no place for in a machine.
fn without_aks(class: &AKSNodeClass) -> Vec<String> {
    let mut fields = aks_profiles::without_meaning(class);
    // It takes its own images only.
    if class
        .annotation(IMAGE_ANNOTATION)
        .is_some_and(|id| !id.is_empty())
    {
        fields.push(format!("annotation {IMAGE_ANNOTATION}"));
    }
    fields
}

/// What a template of custom data cannot do.
fn without_template(class: &AKSNodeClass) -> Vec<String> {
    let spec = &class.spec;
    let mut fields = Vec::new();
    if wants_fips(class) {
        fields.push("spec.fipsMode".to_owned());
    }
    if spec.artifact_streaming.as_ref().and_then(|it| it.enabled) == Some(true) {
        fields.push("spec.artifactStreaming.enabled".to_owned());
    }
    // `Preferred` asks for it where it can be had, which is nowhere.
    if local_dns_mode(class) == Some("Required") {
        fields.push("spec.localDNS.mode".to_owned());
    }
    let linux = spec
        .linux_os_config
        .as_ref()
        .and_then(serde_json::Value::as_object);
    for (field, value) in linux.into_iter().flatten() {
        match (field.as_str(), value.as_object()) {
            ("sysctls", Some(sysctls)) => {
                fields.extend(
                    sysctls
                        .keys()
                        .map(|name| format!("spec.linuxOSConfig.sysctls.{name}")),
                );
            }
            _ => fields.push(format!("spec.linuxOSConfig.{field}")),
        }
    }
    fields
}

/// Why a subnet cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubnetProblem {
    /// It does not exist.
    #[error("subnet {0} does not exist")]
    NotFound(String),
    /// Its ID is none, or it is in another network than the cluster.
    #[error("spec.vnetSubnetID {0}")]
    Invalid(String),
    /// It could not be looked up.
    #[error("looking the subnet up: {0}")]
    Unknown(String),
}

impl SubnetProblem {
    fn reason(&self) -> &'static str {
        match self {
            SubnetProblem::NotFound(_) => "SubnetNotFound",
            SubnetProblem::Invalid(_) => "SubnetIDInvalid",
            SubnetProblem::Unknown(_) => "SubnetUnknownError",
        }
    }
}

/// The parts of a subnet's ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetId<'a> {
    /// Subscription.
    pub subscription: &'a str,
    /// Resource group.
    pub resource_group: &'a str,
    /// Virtual network.
    pub network: &'a str,
    /// Subnet.
    pub subnet: &'a str,
}

impl<'a> SubnetId<'a> {
    /// Reads an ID, whatever its case.
    #[must_use]
    pub fn parse(id: &'a str) -> Option<Self> {
        let parts: Vec<&str> = id.strip_prefix('/')?.split('/').collect();
        let [a, subscription, b, resource_group, c, d, e, network, f, subnet] = parts[..] else {
            return None;
        };
        let fixed = [a, b, c, d, e, f];
        let expected = [
            "subscriptions",
            "resourceGroups",
            "providers",
            "Microsoft.Network",
            "virtualNetworks",
            "subnets",
        ];
        let right = fixed.iter().zip(expected).all(|(a, b)| a.eq_ignore_ascii_case(b));
        (right && ![subscription, resource_group, network, subnet].contains(&"")).then_some(SubnetId {
            subscription,
            resource_group,
            network,
            subnet,
        })
    }
}

/// The class's subnet, by default that of the settings, which must be in the cluster's own virtual network (Z-014).
///
/// # Errors
/// When there is none, it is none, or it is elsewhere.
pub fn subnet<'a>(class: &'a AKSNodeClass, cluster_subnet: &'a str) -> Result<&'a str, SubnetProblem> {
    let wanted = class.spec.vnet_subnet_id.as_deref().filter(|id| !id.is_empty());
    let id = wanted.unwrap_or(cluster_subnet);
    let invalid = |problem: &str| SubnetProblem::Invalid(format!("{id:?} {problem}"));
    let parsed = SubnetId::parse(id).ok_or_else(|| {
        invalid("is no ID of a subnet; expected /subscriptions/…/resourceGroups/…/providers/Microsoft.Network/virtualNetworks/…/subnets/…")
    })?;
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    let Some(own) = SubnetId::parse(cluster_subnet) else {
        return Ok(id);
    };
    if !(same(parsed.subscription, own.subscription)
        && same(parsed.resource_group, own.resource_group)
        && same(parsed.network, own.network))
    {
        return Err(invalid(&format!(
            "is not in the cluster's virtual network {}",
            own.network
        )));
    }
    Ok(id)
}

/// The version of Kubernetes that new nodes get when the API server has this one: it only ever moves up (Z-010).
#[must_use]
pub fn next_kubernetes_version(class: &AKSNodeClass, server: &str) -> String {
    let server = server.trim_start_matches('v');
    let current = class
        .status
        .as_ref()
        .and_then(|status| status.kubernetes_version.as_deref());
    match current {
        Some(current) if version_order(current) >= version_order(server) => current.to_owned(),
        _ => server.to_owned(),
    }
}

fn version_order(version: &str) -> Vec<u64> {
    let plain = version.split(['-', '+']).next().unwrap_or(version);
    plain.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// What was looked up for a class. Where a call failed, the status keeps what it had.
#[derive(Debug, Clone, PartialEq)]
pub struct LookUps {
    /// Version of Kubernetes, as [`next_kubernetes_version`] says.
    pub kubernetes_version: Result<String, String>,
    /// Images for that version.
    pub images: Result<Vec<NodeImage>, ImageProblem>,
    /// Whether the subnet can be used.
    pub subnet: Result<(), SubnetProblem>,
    /// Whether images may move now, though the class has some that work.
    pub maintenance: bool,
    /// Who makes machines.
    pub mode: ProvisionMode,
}

/// Why images could not be looked up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageProblem {
    /// There are none.
    #[error(transparent)]
    None(#[from] ImageError),
    /// A call failed.
    #[error("looking images up: {0}")]
    Call(String),
}

/// The class with the status that it is to have, and when it is looked at again.
#[must_use]
pub fn reconcile(class: &AKSNodeClass, found: &LookUps, now: Timestamp) -> (AKSNodeClass, SignedDuration) {
    let mut draft = Draft(class.clone());
    draft.initialize_conditions(now);
    let had = class
        .status
        .as_ref()
        .and_then(|status| status.kubernetes_version.clone());
    match &found.kubernetes_version {
        Ok(version) => {
            draft.0.status.get_or_insert_default().kubernetes_version = Some(version.clone());
            draft.set_true(KUBERNETES_VERSION_READY, now);
        }
        Err(problem) if had.is_none() => {
            draft.set(
                KUBERNETES_VERSION_READY,
                Status::False,
                "KubernetesVersionUnknown",
                problem,
                now,
            );
        }
        Err(_) => {}
    }
    let upgraded = match (&had, &found.kubernetes_version) {
        (Some(had), Ok(version)) => had != version,
        _ => false,
    };
    set_images(&mut draft, found, upgraded, now);
    set_subnet(&mut draft, &found.subnet, now);
    let has_dns = found.mode == ProvisionMode::AksMachine && local_dns_mode(class) == Some("Required");
    let state = if has_dns { "Enabled" } else { "Disabled" };
    draft.0.status.get_or_insert_default().local_dns_state = Some(state.to_owned());
    draft.set_true(LOCAL_DNS_READY, now);
    let unsupported = not_acted_on(class, found.mode);
    if unsupported.is_empty() {
        draft.set_true(VALIDATION_SUCCEEDED, now);
    } else {
        let message = format!(
            "these fields are not acted on, take them away: {}",
            unsupported.join(", ")
        );
        draft.set(
            VALIDATION_SUCCEEDED,
            Status::False,
            "FieldsNotSupported",
            &message,
            now,
        );
    }
    let is_known = !matches!(found.subnet, Err(SubnetProblem::Unknown(_)));
    let again = if draft.is_true(READY) && is_known {
        AGAIN
    } else {
        SOON
    };
    (draft.0, again)
}

fn set_subnet(draft: &mut Draft, found: &Result<(), SubnetProblem>, now: Timestamp) {
    // One that was there for this spec is not gone because nobody could say so now.
    let was_there = draft
        .true_condition(SUBNETS_READY)
        .is_some_and(|condition| condition.observed_generation == draft.0.metadata.generation);
    match found {
        Ok(()) => draft.set_true(SUBNETS_READY, now),
        Err(SubnetProblem::Unknown(_)) if was_there => false,
        Err(problem) => draft.set(
            SUBNETS_READY,
            Status::False,
            problem.reason(),
            &problem.to_string(),
            now,
        ),
    };
}

fn set_images(draft: &mut Draft, found: &LookUps, upgraded: bool, now: Timestamp) {
    let settled = draft.is_true(IMAGES_READY)
        && draft
            .0
            .status
            .as_ref()
            .is_some_and(|status| !status.images.is_empty());
    // A spec that names other images is no matter of maintenance.
    let changed = draft
        .condition(IMAGES_READY)
        .is_some_and(|condition| condition.observed_generation != draft.0.metadata.generation);
    match &found.images {
        Ok(found_images) => {
            if !settled || upgraded || changed || found.maintenance {
                draft
                    .0
                    .status
                    .get_or_insert_default()
                    .images
                    .clone_from(found_images);
            }
            draft.set_true(IMAGES_READY, now);
        }
        Err(problem @ ImageProblem::None(_)) => {
            draft.0.status.get_or_insert_default().images.clear();
            draft.set(
                IMAGES_READY,
                Status::False,
                "ImagesNotFound",
                &problem.to_string(),
                now,
            );
        }
        Err(problem) if upgraded => {
            draft.set(
                IMAGES_READY,
                Status::False,
                "KubernetesUpgrade",
                &problem.to_string(),
                now,
            );
        }
        Err(problem) if !settled => {
            draft.set(
                IMAGES_READY,
                Status::False,
                "ImagesUnknown",
                &problem.to_string(),
                now,
            );
        }
        Err(_) => {}
    }
}

/// Whether images may move now (Z-011): the keys of the ConfigMap of maintenance windows. Without them they always may.
///
/// # Errors
/// When a key has no instant: then images stay.
pub fn is_maintenance(start: Option<&str>, end: Option<&str>, now: Timestamp) -> Result<bool, String> {
    let (Some(start), Some(end)) = (start, end) else {
        return Ok(true);
    };
    let instant = |name: &str, text: &str| {
        text.parse::<Timestamp>().map_err(|_| {
            format!("ConfigMap upcoming-maintenance-window, aksManagedNodeOSUpgradeSchedule-{name}: {text:?} is no instant such as 2026-01-31T22:00:00Z")
        })
    };
    let (start, end) = (instant("start", start)?, instant("end", end)?);
    Ok(start <= now && now < end)
}
