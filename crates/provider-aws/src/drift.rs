//! Whether an instance is still what its EC2NodeClass asks for (A7).
//!
//! Owns the comparison of an instance with its class. Static drift goes by the hash of [`class_hash`](crate::class_hash).

use std::collections::BTreeSet;

use spokeshave_api::ec2_node_class::EC2NodeClassStatus;
use spokeshave_api::{EC2NodeClass, NodeClaim};
use spokeshave_model::{InstanceType, Requirement, Requirements};

use crate::class_hash::STAMP;
use crate::images;

/// Why an instance has drifted; the order is that in which upstream looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drift {
    /// A field of the class that is part of its hash has changed.
    NodeClass,
    /// The image is not one that the class now gives this instance type.
    Ami,
    /// The instance's groups are not those of the class.
    SecurityGroup,
    /// The instance's subnet is none of the class's.
    Subnet,
    /// The instance's reservation is none of the class's.
    CapacityReservation,
}

impl Drift {
    /// Reason, as upstream names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Drift::NodeClass => "NodeClassDrift",
            Drift::Ami => "AMIDrift",
            Drift::SecurityGroup => "SecurityGroupDrift",
            Drift::Subnet => "SubnetDrift",
            Drift::CapacityReservation => "CapacityReservationDrift",
        }
    }
}

/// What drift reads of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instance {
    /// Its image.
    pub image_id: String,
    /// Its security groups.
    pub security_group_ids: BTreeSet<String>,
    /// Its subnet.
    pub subnet_id: String,
    /// The reservation that it runs in, for reserved capacity.
    pub capacity_reservation_id: Option<String>,
}

/// Why it cannot be said whether an instance has drifted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriftError {
    /// The class has no images (yet).
    #[error(
        "EC2NodeClass {0}: no amis exist given constraints; drift is not judged until its status names some"
    )]
    NoImages(String),
    /// EC2 does not say which image the instance has.
    #[error(
        "EC2 does not say which image the instance of NodeClaim {0} was started from; drift is not judged"
    )]
    NoImage(String),
    /// The class has no subnets (yet).
    #[error(
        "EC2NodeClass {0}: no subnets are present in the status; drift is not judged until it names some"
    )]
    NoSubnets(String),
    /// The class has no security groups (yet).
    #[error(
        "EC2NodeClass {0}: no security groups are present in the status; drift is not judged until it names some"
    )]
    NoSecurityGroups(String),
}

/// Whether static drift is to be seen: both carry a hash of the same version, and they differ.
#[must_use]
pub fn is_static(class: &EC2NodeClass, claim: &NodeClaim) -> bool {
    STAMP.has_drifted(&class.metadata, &claim.metadata)
}

/// Why the claim's instance is no longer what its class asks for; `None` when it is.
///
/// # Errors
/// When the class's status does not name what the instance is compared with.
pub fn check(
    class: &EC2NodeClass,
    claim: &NodeClaim,
    instance: &Instance,
    instance_type: &InstanceType,
) -> Result<Option<Drift>, DriftError> {
    if is_static(class, claim) {
        return Ok(Some(Drift::NodeClass));
    }
    let empty = EC2NodeClassStatus::default();
    let status = class.status.as_ref().unwrap_or(&empty);
    if status.amis.is_empty() {
        return Err(DriftError::NoImages(class.name().to_owned()));
    }
    if status.security_groups.is_empty() {
        return Err(DriftError::NoSecurityGroups(class.name().to_owned()));
    }
    if status.subnets.is_empty() {
        return Err(DriftError::NoSubnets(class.name().to_owned()));
    }
    if instance.image_id.is_empty() {
        return Err(DriftError::NoImage(claim.name().to_owned()));
    }
    let mut requirements: Requirements = instance_type.requirements.clone();
    for key in [
        spokeshave_model::labels::CAPACITY_TYPE,
        spokeshave_model::labels::ZONE,
    ] {
        if let Some(value) = claim.label(key) {
            requirements.replace(Requirement::is(key, value));
        }
    }
    let image = images::image_for(&status.amis, &requirements).map(|ami| ami.id.as_str());
    if image != Some(instance.image_id.as_str()) {
        return Ok(Some(Drift::Ami));
    }
    let groups: BTreeSet<&str> = status
        .security_groups
        .iter()
        .map(|group| group.id.as_str())
        .collect();
    let has: BTreeSet<&str> = instance.security_group_ids.iter().map(String::as_str).collect();
    if groups != has {
        return Ok(Some(Drift::SecurityGroup));
    }
    if !status
        .subnets
        .iter()
        .any(|subnet| subnet.id == instance.subnet_id)
    {
        return Ok(Some(Drift::Subnet));
    }
    let reservation = instance.capacity_reservation_id.as_ref();
    let known = reservation.is_none_or(|id| {
        status
            .capacity_reservations
            .iter()
            .any(|reservation| reservation.id == *id)
    });
    Ok((!known).then_some(Drift::CapacityReservation))
}
