//! From what a class's selectors have found to its status: lists, conditions, and whether it may be used (A1.5, A2.1).
//!
//! Owns what the status says and when it is looked at again. Asking AWS is the caller's; what is asked is [`selectors`](crate::selectors), the
//! instance profile [`profiles`](crate::profiles), the dry runs [`rehearsal`](crate::rehearsal).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use spokeshave_api::conditions::{Conditioned, Status, VALIDATION_SUCCEEDED};
use spokeshave_api::ec2_node_class::{
    Ami, AmiFamily, CapacityReservation, EC2NodeClassStatus, SecurityGroup, Subnet,
};
use spokeshave_api::hash::digest;
use spokeshave_api::{Condition, EC2NodeClass};
use spokeshave_provider_common::readiness;
pub use spokeshave_provider_common::readiness::NotReady;

use crate::capacity_blocks::{CAPACITY_BLOCK, is_closed};
use crate::images::AliasError;
use crate::kubelet;
use crate::profiles::ProfileError;
use crate::requests::Tags;
use crate::selectors::unmatched;
use crate::tags;
use crate::user_data::{self, Bootstrap, Cluster, UserDataError};

/// Condition: images were found.
pub const AMIS_READY: &str = "AMIsReady";
/// Condition: capacity reservations were looked up.
pub const CAPACITY_RESERVATIONS_READY: &str = "CapacityReservationsReady";
/// Condition: the placement group was found, or none is wanted.
pub const PLACEMENT_GROUP_READY: &str = "PlacementGroupReady";
/// Condition: subnets were found.
pub const SUBNETS_READY: &str = "SubnetsReady";
/// Condition: security groups were found.
pub const SECURITY_GROUPS_READY: &str = "SecurityGroupsReady";
/// Condition: instances can be given their role.
pub const INSTANCE_PROFILE_READY: &str = "InstanceProfileReady";

/// Reason: AL2023 needs the range of the services' addresses, and nobody has told it.
const CIDR_UNKNOWN: &str = "ClusterCIDRResolutionFailed";
/// Reason: EC2 does not know the instance profile that the class names.
const PROFILE_UNKNOWN: &str = "InstanceProfileNotFound";
/// Reason: nobody has told where the API server is.
const ENDPOINT_UNKNOWN: &str = "ClusterEndpointResolutionFailed";

/// Conditions without which validation makes no sense.
const NEEDED_FOR_VALIDATION: [&str; 4] = [
    AMIS_READY,
    INSTANCE_PROFILE_READY,
    SECURITY_GROUPS_READY,
    SUBNETS_READY,
];

/// When something that was not found is looked for again, and subnets and reservations in any case.
const SOON: SignedDuration = SignedDuration::from_mins(1);
/// When images and security groups are looked for again.
const LATER: SignedDuration = SignedDuration::from_mins(5);
/// When a class is validated again.
pub const VALIDATE_AGAIN_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// How long a verdict of dry runs stands while nothing changes.
pub const VERDICT_STANDS_FOR: SignedDuration = SignedDuration::from_mins(30);

/// Pods of the node for which user data is tried before anything is known of its type.
const PODS_FOR_TRIAL: i64 = 110;

/// A subnet as EC2 describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundSubnet {
    /// ID.
    pub id: String,
    /// Zone.
    pub zone: String,
    /// ID of the zone.
    pub zone_id: String,
    /// Addresses that nobody has.
    pub free_addresses: i64,
}

/// A capacity reservation as EC2 describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundReservation {
    /// ID.
    pub id: String,
    /// Zone.
    pub zone: String,
    /// Instance type.
    pub instance_type: String,
    /// `open`, `targeted`, or what EC2 may add.
    pub instance_match_criteria: String,
    /// Account that owns it.
    pub owner_id: String,
    /// `default`, `capacity-block`, or what EC2 may add.
    pub reservation_type: String,
    /// Whether its instances may be reclaimed.
    pub interruptible: bool,
    /// When it ends.
    pub ends_at: Option<Timestamp>,
}

/// Why images could not be looked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageProblem {
    /// The alias has none for this version of Kubernetes.
    #[error(transparent)]
    Alias(#[from] AliasError),
    /// None of the alias's parameters exists.
    #[error("failed to discover any AMIs for alias (alias={0})")]
    NoParameter(String),
    /// Images were found, and none of them says for which machines it is.
    #[error(
        "AMISelector matched {0}, and of no image x86_64 or arm64 is known as its architecture; register images with their architecture"
    )]
    NoArchitecture(String),
    /// A call failed.
    #[error("getting amis, {0}")]
    Call(String),
}

/// What was looked up for a class. Where a call failed, the status keeps what it had.
#[derive(Debug, Clone, PartialEq)]
pub struct LookUps {
    /// Images, as [`choose`](crate::selectors::ImageLookUp::choose) has chosen them.
    pub amis: Result<Vec<Ami>, ImageProblem>,
    /// Subnets, each once or several times.
    pub subnets: Result<Vec<FoundSubnet>, String>,
    /// Security groups, each once or several times.
    pub security_groups: Result<Vec<SecurityGroup>, String>,
    /// Name of the instance profile.
    pub instance_profile: Result<String, ProfileError>,
    /// Capacity reservations; `None` where this version or its settings do not act on them.
    pub capacity_reservations: Option<Result<Vec<FoundReservation>, String>>,
    /// ID of the placement group, if it exists; `None` where this version does not act on placement groups.
    pub placement_group: Option<Result<Option<String>, String>>,
}

/// A class with the status that it is to have.
#[derive(Debug, Clone, PartialEq)]
pub struct Reconciled {
    /// The class.
    pub class: EC2NodeClass,
    /// When it is looked at again, if nothing happens before.
    pub again_after: SignedDuration,
    /// Calls that failed: they are made again with the caller's back-off.
    pub failures: Vec<String>,
}

/// The class with its condition set. (The set of kinds that core knows is core's.)
struct Draft(EC2NodeClass);

impl Conditioned for Draft {
    const DEPENDENTS: &'static [&'static str] = &[
        AMIS_READY,
        CAPACITY_RESERVATIONS_READY,
        PLACEMENT_GROUP_READY,
        SUBNETS_READY,
        SECURITY_GROUPS_READY,
        INSTANCE_PROFILE_READY,
        VALIDATION_SUCCEEDED,
    ];

    fn conditions(&self) -> &[Condition] {
        self.0.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.status().conditions
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
    }
}

impl Draft {
    fn status(&mut self) -> &mut EC2NodeClassStatus {
        self.0.status.get_or_insert_with(EC2NodeClassStatus::default)
    }

    fn set_false(&mut self, type_: &str, reason: &str, message: &str, now: Timestamp) {
        self.set(type_, Status::False, reason, message, now);
    }
}

/// The status after a look-up: everything but condition `ValidationSucceeded`, which [`validate`] and [`conclude`] set.
#[must_use]
pub fn resolve(class: &EC2NodeClass, found: &LookUps, now: Timestamp) -> Reconciled {
    let mut draft = Draft(class.clone());
    draft.initialize_conditions(now);
    let mut failures = Vec::new();
    let mut again_after = SOON;
    let mut keep = |result: Result<SignedDuration, String>| match result {
        Ok(next) => again_after = again_after.min(next),
        Err(failure) => failures.push(failure),
    };
    keep(resolve_images(&mut draft, &found.amis, now));
    if let Some(reservations) = &found.capacity_reservations {
        keep(resolve_reservations(&mut draft, reservations, now));
    } else {
        draft.status().capacity_reservations.clear();
        draft.set_true(CAPACITY_RESERVATIONS_READY, now);
    }
    keep(resolve_placement_group(
        &mut draft,
        found.placement_group.as_ref(),
        now,
    ));
    keep(resolve_subnets(&mut draft, &found.subnets, now));
    keep(resolve_security_groups(&mut draft, &found.security_groups, now));
    keep(resolve_profile(&mut draft, &found.instance_profile, now));
    Reconciled {
        class: draft.0,
        again_after,
        failures,
    }
}

fn resolve_images(
    draft: &mut Draft,
    amis: &Result<Vec<Ami>, ImageProblem>,
    now: Timestamp,
) -> Result<SignedDuration, String> {
    let (reason, message) = match amis {
        Ok(amis) if !amis.is_empty() => {
            draft.status().amis.clone_from(amis);
            draft.set_true(AMIS_READY, now);
            return Ok(LATER);
        }
        Ok(_) => {
            let terms = &draft.0.spec.ami_selector_terms;
            let message = unmatched(
                "AMISelector did not match any AMIs",
                "spec.amiSelectorTerms",
                terms,
            );
            ("AMINotFound", message)
        }
        Err(problem @ ImageProblem::Alias(_)) => ("UnsupportedAlias", problem.to_string()),
        Err(problem @ (ImageProblem::NoParameter(_) | ImageProblem::NoArchitecture(_))) => {
            ("AMINotFound", problem.to_string())
        }
        Err(ImageProblem::Call(failure)) => return Err(format!("getting amis, {failure}")),
    };
    draft.status().amis.clear();
    draft.set_false(AMIS_READY, reason, &message, now);
    Ok(SOON)
}

fn resolve_reservations(
    draft: &mut Draft,
    found: &Result<Vec<FoundReservation>, String>,
    now: Timestamp,
) -> Result<SignedDuration, String> {
    let found = found
        .as_ref()
        .map_err(|failure| format!("getting capacity reservations, {failure}"))?;
    let by_id: BTreeMap<&str, &FoundReservation> = found
        .iter()
        .map(|reservation| (reservation.id.as_str(), reservation))
        .collect();
    draft.status().capacity_reservations = by_id
        .values()
        .filter_map(|reservation| capacity_reservation(reservation, now))
        .collect();
    draft.set_true(CAPACITY_RESERVATIONS_READY, now);
    let ends = found.iter().filter_map(|reservation| reservation.ends_at).min();
    let until_end = ends.map_or(SOON, |end| end.duration_since(now));
    Ok(until_end.clamp(SignedDuration::ZERO, SOON))
}

/// The reservation as the status tells of it; `None` for a kind that EC2 has added since.
fn capacity_reservation(found: &FoundReservation, now: Timestamp) -> Option<CapacityReservation> {
    let is_known = ["open", "targeted"].contains(&found.instance_match_criteria.as_str())
        && ["default", CAPACITY_BLOCK].contains(&found.reservation_type.as_str());
    let is_expiring = found.reservation_type == CAPACITY_BLOCK
        && found
            .ends_at
            .is_some_and(|end| is_closed(&found.instance_type, end, now));
    is_known.then(|| CapacityReservation {
        id: found.id.clone(),
        availability_zone: found.zone.clone(),
        instance_type: found.instance_type.clone(),
        instance_match_criteria: found.instance_match_criteria.clone(),
        owner_id: found.owner_id.clone(),
        end_time: found.ends_at,
        reservation_type: found.reservation_type.clone(),
        interruptible: found.interruptible,
        state: if is_expiring { "expiring" } else { "active" }.to_owned(),
    })
}

fn resolve_placement_group(
    draft: &mut Draft,
    found: Option<&Result<Option<String>, String>>,
    now: Timestamp,
) -> Result<SignedDuration, String> {
    let Some(selector) = draft.0.spec.placement_group_selector.clone() else {
        draft.set_true(PLACEMENT_GROUP_READY, now);
        return Ok(SOON);
    };
    let name = selector.name.or(selector.id).unwrap_or_default();
    match found {
        // Refused by name in the validation.
        None => {}
        Some(Ok(Some(_))) => {
            draft.set_true(PLACEMENT_GROUP_READY, now);
        }
        Some(Ok(None)) => draft.set_false(
            PLACEMENT_GROUP_READY,
            "PlacementGroupNotFound",
            &format!("Placement group {name:?} not found"),
            now,
        ),
        Some(Err(failure)) => {
            draft.set_false(
                PLACEMENT_GROUP_READY,
                "PlacementGroupResolutionFailed",
                "Failed to resolve placement group",
                now,
            );
            return Err(format!(
                "resolving placement group, {failure} (placement-group={name})"
            ));
        }
    }
    Ok(SOON)
}

fn resolve_subnets(
    draft: &mut Draft,
    found: &Result<Vec<FoundSubnet>, String>,
    now: Timestamp,
) -> Result<SignedDuration, String> {
    let found = found
        .as_ref()
        .map_err(|failure| format!("getting subnets, {failure}"))?;
    let by_id: BTreeMap<&str, &FoundSubnet> =
        found.iter().map(|subnet| (subnet.id.as_str(), subnet)).collect();
    let mut subnets: Vec<&FoundSubnet> = by_id.into_values().collect();
    subnets.sort_by_key(|subnet| std::cmp::Reverse(subnet.free_addresses));
    let subnets = subnets.into_iter().map(|subnet| Subnet {
        id: subnet.id.clone(),
        zone: subnet.zone.clone(),
        zone_id: subnet.zone_id.clone(),
    });
    draft.status().subnets = subnets.collect();
    if draft.status().subnets.is_empty() {
        let terms = &draft.0.spec.subnet_selector_terms;
        let message = unmatched(
            "SubnetSelector did not match any Subnets",
            "spec.subnetSelectorTerms",
            terms,
        );
        draft.set_false(SUBNETS_READY, "SubnetsNotFound", &message, now);
    } else {
        draft.set_true(SUBNETS_READY, now);
    }
    Ok(SOON)
}

fn resolve_security_groups(
    draft: &mut Draft,
    found: &Result<Vec<SecurityGroup>, String>,
    now: Timestamp,
) -> Result<SignedDuration, String> {
    let found = found
        .as_ref()
        .map_err(|failure| format!("getting security groups, {failure}"))?;
    let by_id: BTreeMap<&str, &SecurityGroup> =
        found.iter().map(|group| (group.id.as_str(), group)).collect();
    draft.status().security_groups = by_id.into_values().cloned().collect();
    if draft.status().security_groups.is_empty() {
        let terms = &draft.0.spec.security_group_selector_terms;
        let message = unmatched(
            "SecurityGroupSelector did not match any SecurityGroups",
            "spec.securityGroupSelectorTerms",
            terms,
        );
        draft.set_false(SECURITY_GROUPS_READY, "SecurityGroupsNotFound", &message, now);
        return Ok(SOON);
    }
    draft.set_true(SECURITY_GROUPS_READY, now);
    Ok(LATER)
}

fn resolve_profile(
    draft: &mut Draft,
    profile: &Result<String, ProfileError>,
    now: Timestamp,
) -> Result<SignedDuration, String> {
    match profile {
        Ok(name) => {
            draft.status().instance_profile = Some(name.clone());
            draft.set_true(INSTANCE_PROFILE_READY, now);
            Ok(LATER)
        }
        Err(ProfileError::Call(failure)) => Err(format!("getting instance profile, {failure}")),
        Err(error) => {
            draft.set_false(INSTANCE_PROFILE_READY, error.reason(), &error.to_string(), now);
            Ok(SOON)
        }
    }
}

/// What is known of condition `ValidationSucceeded`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Validation {
    /// The class may be used.
    Succeeded,
    /// It may not, and the user reads why.
    Failed {
        /// Reason.
        reason: &'static str,
        /// Message.
        message: String,
    },
    /// Not known yet.
    Waiting {
        /// Reason.
        reason: &'static str,
        /// Message.
        message: String,
    },
}

impl Validation {
    /// What it means that EC2 does not know the instance profile of a rehearsal; `None` where it was made for the class, so that EC2 will know it soon.
    #[must_use]
    pub fn without_profile(class: &EC2NodeClass) -> Option<Self> {
        let name = class.spec.instance_profile.as_deref()?;
        Some(Validation::Failed {
            reason: PROFILE_UNKNOWN,
            message: format!("Instance profile {name:?} not found; create it, or name a role in spec.role"),
        })
    }

    /// Whether it may pass without a change of the class: somebody makes the profile that it names, or EC2 learns of it.
    #[must_use]
    pub fn is_for_want_of_profile(&self) -> bool {
        matches!(
            self,
            Validation::Failed {
                reason: PROFILE_UNKNOWN,
                ..
            }
        )
    }

    /// Whether it is against the class only that nobody has told of the cluster yet.
    #[must_use]
    pub fn is_for_want_of_cluster(&self) -> bool {
        matches!(
            self,
            Validation::Failed {
                reason: CIDR_UNKNOWN | ENDPOINT_UNKNOWN,
                ..
            }
        )
    }
}

/// Whether the class was last found to be usable.
#[must_use]
pub fn is_valid(class: &EC2NodeClass) -> bool {
    let mut conditions = class.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.type_ == VALIDATION_SUCCEEDED && condition.status == "True")
}

/// Checks of a class before EC2 is asked: `None` when nothing is against it, so that dry runs decide. `found` is what its status came from.
#[must_use]
pub fn validate(class: &EC2NodeClass, found: &LookUps, cluster: &Cluster) -> Option<Validation> {
    let failed = |reason, message| Some(Validation::Failed { reason, message });
    if let Some(field) = unsupported_field(class, found) {
        return failed(
            "UnsupportedField",
            format!("spec.{field} is not supported by this version; remove it"),
        );
    }
    if let Err(error) = tags::launch(class, "", &cluster.name) {
        return failed("TagValidationFailed", error.to_string());
    }
    let family = class.resolved_ami_family();
    let errors = kubelet::check(class.spec.kubelet.as_ref(), &family);
    if let Some(first) = errors.first() {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        return failed(first.reason(), texts.join("; "));
    }
    if family == AmiFamily::Al2023 && cluster.cidr.is_none() {
        let message = "Failed to detect the cluster CIDR, which eks:DescribeCluster tells: it keeps being asked, and events of this class or the log say why it does not answer".to_owned();
        return failed(CIDR_UNKNOWN, message);
    }
    if let Err(error) = trial_user_data(class, cluster) {
        return failed(user_data_reason(&error), error.to_string());
    }
    let draft = Draft(class.clone());
    let is = |status: &str| {
        let mut needed = NEEDED_FOR_VALIDATION.into_iter();
        needed.any(|type_| {
            draft
                .condition(type_)
                .map_or("Unknown", |condition| &condition.status)
                == status
        })
    };
    let reason = "DependenciesNotReady";
    let message = "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution".to_owned();
    if is("False") {
        return failed(reason, message);
    }
    is("Unknown").then_some(Validation::Waiting { reason, message })
}

/// A field that the class uses and this version does not act on.
fn unsupported_field(class: &EC2NodeClass, found: &LookUps) -> Option<&'static str> {
    let spec = &class.spec;
    if found.capacity_reservations.is_none() && !spec.capacity_reservation_selector_terms.is_empty() {
        return Some("capacityReservationSelectorTerms");
    }
    (found.placement_group.is_none() && spec.placement_group_selector.is_some())
        .then_some("placementGroupSelector")
}

/// User data without labels and taints: what is wrong with it is wrong with all.
fn trial_user_data(class: &EC2NodeClass, cluster: &Cluster) -> Result<String, UserDataError> {
    user_data::render(&Bootstrap::of(
        class,
        cluster,
        &BTreeMap::new(),
        &[],
        PODS_FOR_TRIAL,
    ))
}

fn user_data_reason(error: &UserDataError) -> &'static str {
    match error {
        UserDataError::TooLarge { .. } => "UserDataSizeLimitExceeded",
        UserDataError::ClusterCidrUnknown => CIDR_UNKNOWN,
        UserDataError::ClusterEndpointUnknown => ENDPOINT_UNKNOWN,
        UserDataError::CaBundle(_)
        | UserDataError::Mime(_)
        | UserDataError::Toml(_)
        | UserDataError::Setting { .. } => "InvalidUserData",
    }
}

/// The class with condition `ValidationSucceeded` and with it the root.
#[must_use]
pub fn conclude(class: &EC2NodeClass, outcome: &Validation, now: Timestamp) -> EC2NodeClass {
    let mut draft = Draft(class.clone());
    match outcome {
        Validation::Succeeded => {
            draft.set_true(VALIDATION_SUCCEEDED, now);
        }
        Validation::Failed { reason, message } => {
            draft.set_false(VALIDATION_SUCCEEDED, reason, message, now);
        }
        Validation::Waiting { reason, message } => {
            draft.set(VALIDATION_SUCCEEDED, Status::Unknown, reason, message, now);
        }
    }
    draft.0
}

/// Subnets of a class by ID. Its status has them by free addresses, so that their order changes all the time and says nothing of what can be launched.
#[must_use]
pub(crate) fn subnets_by_id(class: &EC2NodeClass) -> Vec<&Subnet> {
    let mut subnets: Vec<&Subnet> = class.status.iter().flat_map(|status| &status.subnets).collect();
    subnets.sort_by(|a, b| a.id.cmp(&b.id));
    subnets
}

/// What a verdict of dry runs depends on: it stands while this is the same.
#[must_use]
pub fn verdict_key(class: &EC2NodeClass, tags: &Tags) -> u64 {
    let status = class.status.clone().unwrap_or_default();
    let parts = serde_json::json!([
        class.spec,
        class.metadata.annotations,
        subnets_by_id(class),
        status.security_groups,
        status.amis,
        status.instance_profile,
        tags,
    ]);
    digest(&parts.to_string())
}

/// Whether a class may be launched from.
///
/// # Errors
/// When it is not ready, or its status speaks of an older specification.
pub fn readiness(class: &EC2NodeClass) -> Result<(), NotReady> {
    let conditions = class.status.iter().flat_map(|status| &status.conditions);
    readiness::readiness(&class.metadata, conditions)
}
