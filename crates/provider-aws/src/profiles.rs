//! Instance profiles: which one a class's instances get, which are made and which are deleted (A2.3).
//!
//! Owns the decisions. A profile's name is a function of the class and its role, so that a crash between making it and writing it down leads
//! to the same profile again; another role is another profile, so that running nodes keep theirs. One that a class names is the user's: it is never looked at.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::hash::digest;
use spokeshave_api::{EC2NodeClass, NodeClaim};

use crate::errors::{ApiError, steady};
use crate::requests::Tags;
use crate::tags::{self, ReservedTags};

/// Annotation of a NodeClaim with the profile that its instance has.
pub const ANNOTATION: &str = "karpenter.k8s.aws/instance-profile-name";

/// Why a class has no instance profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The role that the class names does not exist.
    #[error("Role {0:?} not found; create it, or name another one in spec.role")]
    RoleNotFound(String),
    /// The class's tags cannot be put on it.
    #[error(transparent)]
    Tags(#[from] ReservedTags),
    /// A call is not allowed.
    #[error("Controller isn't authorized to call iam:{call}: {message}")]
    Unauthorized {
        /// The call.
        call: &'static str,
        /// What AWS says, and what to do about it.
        message: String,
    },
    /// The profile would have to be made, and IAM is out of reach.
    #[error(
        "IAM is not called in an isolated VPC; make an instance profile and name it in spec.instanceProfile"
    )]
    Isolated,
    /// A call failed.
    #[error("{0}")]
    Call(String),
}

impl ProfileError {
    /// Reason of condition `InstanceProfileReady`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            ProfileError::RoleNotFound(_) => "RoleNotFound",
            ProfileError::Tags(_) => "TagValidationFailed",
            ProfileError::Unauthorized { .. } => "InstanceProfileAuthCheckFailed",
            ProfileError::Isolated | ProfileError::Call(_) => "InstanceProfileResolutionFailed",
        }
    }

    /// What a failed call means; `role` is the one that was to be added.
    #[must_use]
    pub fn of(call: &'static str, role: &str, error: &ApiError) -> Self {
        let advice = error.advice(&format!("iam:{call}"));
        if error.is_unauthorized() {
            let message = steady(&error.message) + &advice;
            return ProfileError::Unauthorized { call, message };
        }
        if call == "AddRoleToInstanceProfile" && error.is_not_found() {
            return ProfileError::RoleNotFound(role.to_owned());
        }
        ProfileError::Call(format!("iam:{call}, {error}{advice}"))
    }
}

/// An instance profile as IAM describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Profile {
    /// Name.
    pub name: String,
    /// Path, which says whose it is.
    pub path: String,
    /// Its role, if it has one; no profile has more.
    pub role: Option<String>,
}

/// The path of all profiles that were made for a cluster.
#[must_use]
pub fn cluster_path(region: &str, cluster: &str) -> String {
    format!("/karpenter/{region}/{cluster}/")
}

/// The path of the profiles that were made for a class.
#[must_use]
pub fn class_path(region: &str, cluster: &str, class_uid: &str) -> String {
    format!("{}{class_uid}/", cluster_path(region, cluster))
}

/// The name of the profile for a class's role.
#[must_use]
pub fn name(region: &str, cluster: &str, class_uid: &str, role: &str) -> String {
    let hash = digest(&format!("{region}\n{class_uid}\n{role}"));
    format!("{cluster}_{hash}")
}

/// The name that Karpenter before 1.7 gave the profile of a class. It has no path, so that no list below ours has it.
#[must_use]
pub fn legacy_name(region: &str, cluster: &str, class: &str) -> String {
    // FNV-1, as the Go library has it that made the name.
    let hash = format!("{region}{class}")
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte)
        });
    format!("{cluster}_{hash}")
}

/// Whether IAM can have a profile of this name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || "_+=,.@-".contains(it);
    (1..=128).contains(&name.len()) && name.chars().all(is_allowed)
}

/// Whether the tags of a profile say that it was made for a class: all of those that Karpenter has always given them. IAM knows no regions, and the shipped
/// policy lets nobody touch what names none.
#[must_use]
pub fn is_made_for(
    profile_tags: &BTreeMap<String, String>,
    class: &str,
    region: &str,
    cluster: &str,
) -> bool {
    let says = |key: &str, value: &str| profile_tags.get(key).is_some_and(|said| said == value);
    says(&tags::cluster(cluster), "owned") && says(tags::NODE_CLASS, class) && says(tags::REGION, region)
}

/// What is to be done so that a class has its instance profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileNeed {
    /// The class has it.
    Keep {
        /// Its name.
        name: String,
    },
    /// Make it where it does not exist, and give it the role where it has none.
    Ensure(Ensure),
}

/// A profile that is to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ensure {
    /// Its name.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Its tags.
    pub tags: Tags,
    /// Its role.
    pub role: String,
}

/// What is to be done, where IAM describes the profile in the class's status as `current`. Without IAM (`isolated`) the class must name its
/// profile. One that does not exist is found out by the rehearsal of a launch: who names a profile often does so because the operator has no rights in IAM, or
/// no way to it.
///
/// # Errors
/// When the class's tags may not be put on a profile, or IAM is needed and not there.
pub fn plan(
    class: &EC2NodeClass,
    current: Option<&Profile>,
    region: &str,
    cluster: &str,
    isolated: bool,
) -> Result<ProfileNeed, ProfileError> {
    if let Some(name) = &class.spec.instance_profile {
        return Ok(ProfileNeed::Keep { name: name.clone() });
    }
    // IAM takes the name alone, and describes profiles with it; a class may have its path before it.
    let role = class.spec.role.as_deref().unwrap_or_default();
    let role = role.rsplit_once('/').map_or(role, |(_, name)| name);
    if isolated {
        return Err(ProfileError::Isolated);
    }
    if let Some(current) = current.filter(|current| current.role.as_deref() == Some(role)) {
        return Ok(ProfileNeed::Keep {
            name: current.name.clone(),
        });
    }
    let uid = class.metadata.uid.as_deref().unwrap_or_default();
    Ok(ProfileNeed::Ensure(Ensure {
        name: name(region, cluster, uid, role),
        path: class_path(region, cluster, uid),
        tags: tags::instance_profile(class, cluster, region)?,
        role: role.to_owned(),
    }))
}

/// One step towards a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Make the profile.
    Create,
    /// Take its role away: it has another one.
    RemoveRole,
    /// Give it the role.
    AddRole,
}

/// The steps from what IAM has under that name to what is to be there; none when it is there.
#[must_use]
pub fn steps(wanted: &Ensure, existing: Option<&Profile>) -> Vec<Step> {
    match existing.map(|profile| profile.role.as_deref()) {
        None => vec![Step::Create, Step::AddRole],
        Some(None) => vec![Step::AddRole],
        Some(Some(role)) if role == wanted.role => Vec::new(),
        Some(Some(_)) => vec![Step::RemoveRole, Step::AddRole],
    }
}

/// A profile of a class that exists stays for this long after nobody needs it any more (A2.3): a launch may still name it.
pub const PROTECTED_FOR: SignedDuration = SignedDuration::from_hours(1);

/// Who needs instance profiles of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users {
    /// Names of profiles in the status of a class or in the annotation of a NodeClaim.
    pub in_use: BTreeSet<String>,
    /// Paths of classes that exist.
    pub class_paths: BTreeSet<String>,
    /// Paths of classes of which any profile may be in use: one of their NodeClaims does not say which it has.
    pub unclear_paths: BTreeSet<String>,
}

impl Users {
    /// What these classes and NodeClaims need.
    pub fn of<'a>(
        classes: impl IntoIterator<Item = &'a EC2NodeClass>,
        claims: impl IntoIterator<Item = &'a NodeClaim>,
        region: &str,
        cluster: &str,
    ) -> Self {
        let mut users = Users::default();
        let mut path_of = BTreeMap::new();
        for class in classes {
            let status = class.status.as_ref();
            users
                .in_use
                .extend(status.and_then(|status| status.instance_profile.clone()));
            let path = class_path(region, cluster, class.metadata.uid.as_deref().unwrap_or_default());
            path_of.insert(class.name(), path.clone());
            users.class_paths.insert(path);
        }
        for claim in claims {
            let class = &claim.spec.node_class_ref;
            match claim.annotation(ANNOTATION) {
                Some(name) => {
                    users.in_use.insert(name.to_owned());
                }
                None if class.group == EC2NodeClass::GROUP => {
                    users
                        .unclear_paths
                        .extend(path_of.get(class.name.as_str()).cloned());
                }
                None => {}
            }
        }
        users
    }
}

/// Profiles that nobody was seen to need, and since when.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unused {
    since: BTreeMap<String, Timestamp>,
}

impl Unused {
    /// Profiles that nobody needs any more: ours, without a user, and for [`PROTECTED_FOR`] where their class exists. IAM may
    /// have answered with more than was asked for, so that the path is looked at again.
    pub fn to_delete<'a>(
        &mut self,
        found: &'a [Profile],
        region: &str,
        cluster: &str,
        users: &Users,
        now: Timestamp,
    ) -> Vec<&'a Profile> {
        let path = cluster_path(region, cluster);
        let unused: Vec<&Profile> = found
            .iter()
            .filter(|profile| profile.path.starts_with(&path))
            .filter(|profile| !users.in_use.contains(&profile.name))
            .filter(|profile| !users.unclear_paths.contains(&profile.path))
            .collect();
        let names: BTreeSet<&str> = unused.iter().map(|profile| profile.name.as_str()).collect();
        self.since.retain(|name, _| names.contains(name.as_str()));
        let mut to_delete = unused;
        to_delete.retain(|profile| {
            let since = *self.since.entry(profile.name.clone()).or_insert(now);
            !users.class_paths.contains(&profile.path) || now.duration_since(since) >= PROTECTED_FOR
        });
        to_delete
    }
}

/// Profiles of a class that is being deleted: all below its path.
#[must_use]
pub fn of_class<'a>(found: &'a [Profile], region: &str, cluster: &str, class_uid: &str) -> Vec<&'a Profile> {
    let path = class_path(region, cluster, class_uid);
    found.iter().filter(|profile| profile.path == path).collect()
}
