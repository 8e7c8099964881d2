//! What a cloud may say about an instance of its own accord, and what follows (D §7.6).

/// A kind of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InterruptionKind {
    /// A spot instance is taken back.
    SpotInterrupted,
    /// A spot instance is at a higher risk of that.
    RebalanceRecommendation,
    /// An instance in a capacity reservation is taken back.
    CapacityReservationInterrupted,
    /// The instance stops, or has stopped.
    InstanceStopped,
    /// The instance ends, or has ended.
    InstanceTerminated,
    /// The cloud will work on the machine.
    ScheduledChange,
    /// A check of the instance has failed for a while.
    InstanceStatus,
    /// A check of the hardware below the instance has failed for a while.
    SystemStatus,
    /// The cloud has planned something for the instance, such as its retirement.
    EventStatus,
    /// Nothing that concerns us.
    NoOp,
}

impl InterruptionKind {
    const ALL: [Self; 10] = [
        Self::SpotInterrupted,
        Self::RebalanceRecommendation,
        Self::CapacityReservationInterrupted,
        Self::InstanceStopped,
        Self::InstanceTerminated,
        Self::ScheduledChange,
        Self::InstanceStatus,
        Self::SystemStatus,
        Self::EventStatus,
        Self::NoOp,
    ];

    /// Its name in metrics and messages.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::SpotInterrupted => "spot_interrupted",
            Self::RebalanceRecommendation => "rebalance_recommendation",
            Self::CapacityReservationInterrupted => "capacity_reservation_interrupted",
            Self::InstanceStopped => "instance_stopped",
            Self::InstanceTerminated => "instance_terminated",
            Self::ScheduledChange => "scheduled_change",
            Self::InstanceStatus => "instance_status",
            Self::SystemStatus => "system_status",
            Self::EventStatus => "event_status",
            Self::NoOp => "no_op",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.label() == label)
    }

    /// Whether the NodeClaim goes (D-280, D-285).
    #[must_use]
    pub fn ends_node(self) -> bool {
        !matches!(self, Self::RebalanceRecommendation | Self::NoOp)
    }
}
