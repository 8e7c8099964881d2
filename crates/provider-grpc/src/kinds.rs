//! What happens to instances by itself: in the protocol's words, and in core's.

use spokeshave_model::interruption::InterruptionKind as Kind;

use crate::wire::InterruptionKind;

pub(crate) const KINDS: [(InterruptionKind, Kind); 10] = [
    (InterruptionKind::Spot, Kind::SpotInterrupted),
    (InterruptionKind::Rebalance, Kind::RebalanceRecommendation),
    (
        InterruptionKind::Reservation,
        Kind::CapacityReservationInterrupted,
    ),
    (InterruptionKind::Stopped, Kind::InstanceStopped),
    (InterruptionKind::Terminated, Kind::InstanceTerminated),
    (InterruptionKind::Maintenance, Kind::ScheduledChange),
    (InterruptionKind::InstanceStatus, Kind::InstanceStatus),
    (InterruptionKind::SystemStatus, Kind::SystemStatus),
    (InterruptionKind::PlannedEvent, Kind::EventStatus),
    (InterruptionKind::None, Kind::NoOp),
];

/// What a kind of the protocol is called here; `None` for one that is not known.
pub(crate) fn kind_named(kind: InterruptionKind) -> Option<Kind> {
    let known = KINDS.iter().find(|(one, _)| *one == kind);
    known.map(|(_, known)| *known)
}

/// What a kind is called in the protocol.
pub(crate) fn message_of(kind: Kind) -> InterruptionKind {
    let known = KINDS.iter().find(|(_, one)| *one == kind);
    known.map_or(InterruptionKind::Unspecified, |(one, _)| *one)
}
