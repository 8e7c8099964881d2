//! What the reply to a launch means (A5.6): which instance it is, what is left out from now on, and how a failure is told to core.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use spokeshave_model::CapacityType;

use crate::errors::{ApiError, launch_reason};
use crate::unavailable::{OfferingKey, PlacementGroupKey, Unavailable};

/// Where an instance was asked for: one override of the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The instance type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// The subnet.
    pub subnet_id: String,
}

/// One error in the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetError {
    /// Code and message.
    pub error: ApiError,
    /// The override that it is about.
    pub place: Place,
}

/// An instance in the reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launched {
    /// Its ID.
    pub instance_id: String,
    /// Where it was launched.
    pub place: Place,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// How the instances are bought.
    pub capacity_type: CapacityType,
    /// All overrides.
    pub places: Vec<Place>,
    /// The capacity reservation of each type and zone, for reserved capacity. EC2's reply does not name it.
    pub reservations: BTreeMap<(String, String), String>,
    /// The placement group, with its strategy.
    pub placement_group: Option<(PlacementGroupKey, Strategy)>,
}

/// How a placement group spreads its instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Close together.
    Cluster,
    /// In partitions of separate hardware.
    Partition,
    /// Each on separate hardware.
    Spread,
}

impl Asked {
    /// The capacity reservation into which an instance was asked for there.
    fn reservation(&self, place: &Place) -> Option<&String> {
        let key = (place.instance_type.clone(), place.zone.clone());
        self.reservations.get(&key)
    }
}

/// Something that launches leave out after a reply.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// An offering.
    Offering(OfferingKey),
    /// A capacity type as a whole.
    CapacityType(CapacityType),
    /// A subnet.
    Subnet(String),
    /// A capacity reservation.
    Reservation(String),
}

impl Mark {
    /// Leaves it out.
    pub fn apply(self, unavailable: &mut Unavailable, now: Timestamp) {
        match self {
            Mark::Offering(key) => unavailable.offering(key, now),
            Mark::CapacityType(capacity_type) => unavailable.capacity_type(capacity_type, now),
            Mark::Subnet(id) => unavailable.subnet(&id, now),
            Mark::Reservation(id) => unavailable.reservation(&id, now),
        }
    }
}

/// Why a launch failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchFailure {
    /// No offering has capacity now: the NodeClaim is deleted and its pods are planned for again.
    #[error("with fleet error(s), {0}")]
    InsufficientCapacity(String),
    /// Something that the user should read; the launch is retried.
    #[error("{message}")]
    Create {
        /// Reason of the condition.
        reason: &'static str,
        /// Message of the condition, in upstream's words.
        message: String,
        /// The error that it is about, for those who mend it.
        cause: Option<ApiError>,
    },
}

/// What the errors of a reply say about capacity, also when an instance came back beside them.
#[must_use]
pub fn marks(request: &Asked, errors: &[FleetError]) -> BTreeSet<Mark> {
    let mut marks = BTreeSet::new();
    for FleetError { error, place } in errors {
        if error.is_insufficient_free_addresses() {
            marks.insert(Mark::Subnet(place.subnet_id.clone()));
        }
        if error.is_service_linked_role_missing() {
            marks.insert(Mark::CapacityType(CapacityType::Spot));
        }
        if !error.is_unfulfillable_capacity() {
            continue;
        }
        match request.reservation(place) {
            // Another subnet of its zone may have addresses for what is reserved.
            Some(_) if error.is_insufficient_free_addresses() => {}
            Some(id) => {
                marks.insert(Mark::Reservation(id.clone()));
            }
            None => marks.extend(offerings(request, error, place).map(Mark::Offering)),
        }
    }
    marks
}

/// The offerings that one error closes: its own; where a spread group is full, every type's in that zone and group.
fn offerings<'a>(
    request: &'a Asked,
    error: &ApiError,
    place: &'a Place,
) -> impl Iterator<Item = OfferingKey> {
    let group_is_full = error.is_spread_placement_group_full()
        && matches!(request.placement_group, Some((_, Strategy::Spread)));
    let types: BTreeSet<&str> = if group_is_full {
        request
            .places
            .iter()
            .map(|place| place.instance_type.as_str())
            .collect()
    } else {
        BTreeSet::from([place.instance_type.as_str()])
    };
    let group = request.placement_group.as_ref().map(|(key, _)| key.clone());
    types.into_iter().map(move |instance_type| OfferingKey {
        capacity_type: request.capacity_type,
        instance_type: instance_type.to_owned(),
        zone: place.zone.clone(),
        placement_group: group.clone(),
    })
}

/// The first instance of a reply, or why there is none.
///
/// # Errors
/// `InsufficientCapacity` when every error is about capacity; `Create` with the reason of the others.
pub fn outcome(launched: Option<Launched>, errors: &[FleetError]) -> Result<Launched, LaunchFailure> {
    if let Some(launched) = launched {
        return Ok(launched);
    }
    if errors.is_empty() {
        return Err(LaunchFailure::Create {
            reason: "LaunchFailed",
            message: "EC2 answered the fleet request with neither instances nor errors".to_owned(),
            cause: None,
        });
    }
    let texts: BTreeSet<String> = errors.iter().map(|error| error.error.to_string()).collect();
    let text = texts.into_iter().collect::<Vec<_>>().join("; ");
    let about_capacity =
        |error: &ApiError| error.is_unfulfillable_capacity() || error.is_service_linked_role_missing();
    if errors.iter().all(|error| about_capacity(&error.error)) {
        return Err(LaunchFailure::InsufficientCapacity(text));
    }
    // The reason is that of the errors that another launch would meet again.
    let other = errors.iter().find(|error| !about_capacity(&error.error));
    let cause = &other.unwrap_or(&errors[0]).error;
    let (reason, message) = launch_reason(cause);
    Err(LaunchFailure::Create {
        reason,
        message: message.to_owned(),
        cause: Some(cause.clone()),
    })
}

/// What it means when the call itself failed.
#[must_use]
pub fn call_failure(error: &ApiError) -> LaunchFailure {
    let (reason, message) = launch_reason(error);
    let what = if error.is_launch_template_not_found() {
        "Launch templates not found when creating fleet request"
    } else {
        "Error creating fleet request"
    };
    LaunchFailure::Create {
        reason,
        message: format!("{what}: {message}"),
        cause: Some(error.clone()),
    }
}
