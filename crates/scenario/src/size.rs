//! How large a scenario is, before anything of it is drawn, and as its recordings are read: what does not fit into memory is refused.
//!
//! Owns the limits and the estimates.

use std::collections::BTreeMap;
use std::fmt;

use crate::file::Scenario;
use crate::generate::{DAY_MS, MOST_REPLICAS, Place, hits};
use crate::timeline::{Change, Timeline};
use crate::workload::{Arrivals, Kind, Replicas, Workload};

/// A month of 20,000 pods a day is 600,000 events; this bounds memory to about a gigabyte.
pub const MOST_EVENTS: u64 = 20_000_000;
/// Pods of all workloads at once: ten times what Kubernetes supports in one cluster.
pub const MOST_PODS: u64 = 1_500_000;
/// Pod templates beside the first one of each owner: each takes some kilobytes.
pub const MOST_TEMPLATES: u64 = 500_000;

/// Why a scenario cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooMuch {
    /// The workload that is too much, with those before it; empty for the dump to begin with.
    pub workload: String,
    /// Where the scenario has it, such as `spec.workloads[0]`.
    pub field: String,
    /// Of what there is too much.
    pub excess: Excess,
    /// Of a recording or a dump, the owner with the most pods at once, and how many these are.
    pub largest: Option<(String, u64)>,
}

/// What does not fit into memory, and how many there would be, about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    /// Births, changes and ends in the whole time.
    Events(u64),
    /// Pods at once.
    Pods(u64),
    /// Pod templates that owners have later.
    Templates(u64),
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.workload.as_str() {
            "" => "the dump to begin with".to_owned(),
            name => format!("workload {name:?}"),
        };
        match self.excess {
            Excess::Events(events) => write!(
                f,
                "{name} would have about {events} events, and at most {MOST_EVENTS} fit; shorten duration, or lower its count"
            ),
            Excess::Pods(pods) => write!(
                f,
                "with {name} there would be about {pods} pods at once, and at most {MOST_PODS} fit; "
            ),
            Excess::Templates(templates) => write!(
                f,
                "with {name} there would be about {templates} later pod templates, and at most {MOST_TEMPLATES} fit; lower its count, its copies, or its changes"
            ),
        }?;
        match (self.excess, &self.largest) {
            (Excess::Events(_) | Excess::Templates(_), _) => Ok(()),
            (Excess::Pods(_), None) => f.write_str("lower its count or its replicas"),
            (Excess::Pods(_), Some((owner, pods))) => write!(
                f,
                "lower its copies or its replicas, of which {owner} has the most, {pods}"
            ),
        }
    }
}

impl std::error::Error for TooMuch {}

/// What a workload comes to, about.
#[derive(Debug, Clone, Default)]
struct Size {
    events: f64,
    pods: f64,
    /// Templates of owners beside the first ones.
    templates: f64,
    largest: Option<(String, u64)>,
}

impl Size {
    /// Of a generated workload, without the noise of its curve.
    fn of(workload: &Workload, scenario: &Scenario) -> Self {
        let days = Days::of(scenario);
        let rollouts = workload.shape.as_ref().map_or(0, |shape| shape.changes.len()) as f64;
        match &workload.kind {
            Kind::Deployments { count, replicas } | Kind::StatefulSets { count, replicas, .. } => {
                let count = f64::from(*count);
                let (changes, each) = match replicas {
                    Replicas::Constant(replicas) => (1.0, f64::from(*replicas)),
                    Replicas::Daily(daily) => {
                        let most = f64::from(daily.low.max(daily.high)) * days.busiest(daily.weekend);
                        let changes = 1.0 + scenario.duration_ms as f64 / daily.every_ms as f64;
                        (changes, most.min(MOST_REPLICAS))
                    }
                };
                Self {
                    events: count * (changes + rollouts),
                    pods: count * each,
                    templates: count * rollouts,
                    largest: None,
                }
            }
            Kind::Jobs { arrivals, runs } => {
                let (events, burst, peak) = match arrivals {
                    Arrivals::Cron { cron, count, .. } => {
                        let hits = hits(cron, scenario.start, scenario.duration_ms).count() as f64;
                        let count = f64::from(*count);
                        (hits * count, count, 1.0)
                    }
                    Arrivals::Rate {
                        per_day,
                        peak_at_ms,
                        weekend,
                    } => {
                        let daily = if peak_at_ms.is_some() { 2.0 } else { 1.0 };
                        let events = per_day * (days.of_week + days.of_weekends * weekend);
                        (events, 1.0, daily * days.busiest(*weekend))
                    }
                };
                // So many run as come while one runs, as far as half of them run longer.
                let share = runs.median_ms as f64 / scenario.duration_ms.max(1) as f64;
                Self {
                    events,
                    pods: (burst + events * share * peak).min(events),
                    templates: rollouts,
                    largest: None,
                }
            }
            Kind::Import(_) => Self::default(),
        }
    }

    /// Of what was recorded: pods that run until they are ended, the most at once.
    fn of_recorded(timeline: &Timeline) -> Self {
        let mut now = vec![0_u64; timeline.owners.len()];
        let mut most = now.clone();
        let (mut total, mut peak) = (0_u64, 0_u64);
        for event in &timeline.events {
            let index = event.owner.0 as usize;
            let (Some(now), Some(most)) = (now.get_mut(index), most.get_mut(index)) else {
                continue;
            };
            let before = *now;
            *now = match event.change {
                Change::Replicas(wanted) => u64::from(wanted),
                Change::Begin { runs_ms: None, .. } => *now + 1,
                Change::Begin { .. } | Change::Template(_) => *now,
                Change::End { .. } => now.saturating_sub(1),
            };
            *most = (*now).max(*most);
            total = total.saturating_sub(before).saturating_add(*now);
            peak = peak.max(total);
        }
        let owners = timeline.owners.iter().zip(&most);
        let largest = owners.max_by_key(|(_, most)| **most);
        let later = timeline.owners.iter().map(|owner| owner.later.len());
        Self {
            events: timeline.events.len() as f64,
            pods: peak as f64,
            templates: later.sum::<usize>() as f64,
            largest: largest.map(|(owner, most)| (format!("{}/{}", owner.namespace, owner.name), *most)),
        }
    }
}

/// How many days of a scenario are of the week, and how many of weekends.
struct Days {
    of_week: f64,
    of_weekends: f64,
}

impl Days {
    fn of(scenario: &Scenario) -> Self {
        let mut days = Self {
            of_week: 0.0,
            of_weekends: 0.0,
        };
        let mut at = 0;
        while at < scenario.duration_ms {
            let place = Place::of(scenario.start, at);
            let length = (DAY_MS - place.of_day_ms).min(scenario.duration_ms - at);
            let those = match place.is_weekend {
                true => &mut days.of_weekends,
                false => &mut days.of_week,
            };
            *those += length as f64 / DAY_MS as f64;
            at += length;
        }
        days
    }

    /// How busy the busiest day is, where one of the week is 1.
    fn busiest(&self, weekend: f64) -> f64 {
        if self.of_weekends > 0.0 {
            weekend.max(1.0)
        } else {
            1.0
        }
    }
}

/// Whether a scenario fits into memory, as far as its recordings have been read: `generate` asks it first.
///
/// # Errors
/// It would have more events or pods than do.
pub fn check_size(scenario: &Scenario, imported: &BTreeMap<String, Timeline>) -> Result<(), TooMuch> {
    let recorded = |name: &str| imported.get(name).map(Size::of_recorded);
    let workloads = scenario.workloads.iter().enumerate().map(|(index, workload)| {
        let size = match workload.kind {
            Kind::Import(_) => recorded(&workload.name).unwrap_or_default(),
            _ => Size::of(workload, scenario),
        };
        (workload.name.clone(), format!("spec.workloads[{index}]"), size)
    });
    let dump = recorded("").map(|size| (String::new(), "spec.cluster.snapshot".to_owned(), size));
    let (mut events, mut pods, mut templates) = (0.0, 0.0, 0.0);
    for (workload, field, size) in workloads.chain(dump) {
        events += size.events;
        pods += size.pods;
        templates += size.templates;
        let excess = if pods > MOST_PODS as f64 {
            Excess::Pods(pods as u64)
        } else if events > MOST_EVENTS as f64 {
            Excess::Events(events as u64)
        } else if templates > MOST_TEMPLATES as f64 {
            Excess::Templates(templates as u64)
        } else {
            continue;
        };
        return Err(TooMuch {
            workload,
            field,
            excess,
            largest: size.largest,
        });
    }
    Ok(())
}
