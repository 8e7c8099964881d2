//! Preferences that can keep nodes alive for longer than people expect (P §5.2, P-072).

use spokeshave_model::snapshot::{PodId, Snapshot};
use spokeshave_schedule::PreferencePolicy;

use crate::policy::Policy;

/// A preference that consolidation honours as if it were required.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hindrance {
    /// Preferred pod anti-affinity.
    AntiAffinity,
    /// Topology spread with `ScheduleAnyway`.
    TopologySpread,
}

impl Hindrance {
    /// Upstream's line in the log.
    pub fn text(self) -> &'static str {
        match self {
            Hindrance::AntiAffinity => {
                "pod(s) have a preferred Anti-Affinity which can prevent consolidation"
            }
            Hindrance::TopologySpread => {
                "pod(s) have a preferred TopologySpreadConstraint which can prevent consolidation"
            }
        }
    }
}

/// The pods with such preferences, in the order given; none when preferences are ignored.
pub fn hindrances(snapshot: &Snapshot, policy: &Policy, pods: &[PodId]) -> Vec<(Hindrance, PodId)> {
    if policy.preferences == PreferencePolicy::Ignore {
        return Vec::new();
    }
    let of_pod = |pod: &PodId| {
        let constraints = snapshot.constraints(*pod);
        let anti = !constraints.preferred_anti_affinity.is_empty();
        let spread = constraints.spreads.iter().any(|spread| !spread.required);
        let found = [
            (anti, Hindrance::AntiAffinity),
            (spread, Hindrance::TopologySpread),
        ];
        found
            .into_iter()
            .filter_map(|(has, hindrance)| has.then_some((hindrance, *pod)))
            .collect::<Vec<_>>()
    };
    pods.iter().flat_map(of_pod).collect()
}
