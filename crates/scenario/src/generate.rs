//! Workloads of a scenario as a timeline: replica counts along their curves, jobs as they come, each draw named by seed and path.
//!
//! Owns the drawing. The same seed gives the same timeline whatever policy lives it, and a workload's draws do not depend on which other workloads there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use rand::Rng as _;
use spokeshave_ports::Entropy;

use crate::chance::{normal, uniform, wait};
use crate::file::Scenario;
use crate::pods;
pub use crate::size::{Excess, MOST_EVENTS, MOST_PODS, TooMuch, check_size};
use crate::timeline::{Budget, Change, Event, Owner, OwnerId, OwnerKind, Spread, Timeline};
use crate::workload::{Arrivals, Daily, Kind, READY, Replicas, Shape, Workload};

pub(crate) const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u64 = 3_600_000;
/// Pods of one owner; more is a slip of the pen.
pub(crate) const MOST_REPLICAS: f64 = 1_000_000.0;

/// The timeline of a scenario under a seed. Imports are taken from `imported`, by the workload's name; one that is missing there is nothing. The dump that a
/// scenario begins with has the empty name there: it is counted, and not added.
///
/// # Errors
/// It would have more events or pods than fit into memory.
pub fn generate(
    scenario: &Scenario,
    seed: u64,
    imported: &BTreeMap<String, Timeline>,
) -> Result<Timeline, TooMuch> {
    check_size(scenario, imported)?;
    let root = Entropy::new(seed).child("workloads");
    let mut timeline = Timeline::default();
    for workload in &scenario.workloads {
        let chance = root.child(&workload.name);
        match &workload.kind {
            Kind::Import(_) => {
                if let Some(import) = imported.get(&workload.name) {
                    timeline.append(import.clone());
                }
            }
            _ => Drawing {
                workload,
                start: scenario.start,
                duration_ms: scenario.duration_ms,
                chance,
                timeline: &mut timeline,
            }
            .draw(),
        }
    }
    timeline.cut(scenario.duration_ms);
    timeline.sort();
    Ok(timeline)
}

/// Kinds and names of the owners that a workload generates, which no draw changes; an import brings its own.
#[must_use]
pub fn owners(workload: &Workload) -> Vec<(OwnerKind, String)> {
    let (kind, count) = match &workload.kind {
        Kind::Deployments { count, .. } => (OwnerKind::Deployment, *count as usize),
        Kind::StatefulSets { count, .. } => (OwnerKind::StatefulSet, *count as usize),
        Kind::Jobs { .. } => (OwnerKind::Job, workload.shape.as_ref().map_or(1, sizes)),
        Kind::Import(_) => return Vec::new(),
    };
    (0..count)
        .map(|index| (kind, name_of(&workload.name, index, count)))
        .collect()
}

/// The name of one of so many owners of a workload.
fn name_of(workload: &str, index: usize, count: usize) -> String {
    match count {
        1 => workload.to_owned(),
        _ => format!("{workload}-{index}"),
    }
}

/// How many sizes of pods there are, of which each has an owner where pods end by themselves: an owner has one template.
fn sizes(shape: &Shape) -> usize {
    shape.cpu_milli.len().max(shape.memory_bytes.len()).max(1)
}

/// Milliseconds after the start at which a schedule fires; one that fires at the start itself counts.
pub(crate) fn hits(
    cron: &spokeshave_api::Cron,
    start: Timestamp,
    duration_ms: u64,
) -> impl Iterator<Item = u64> {
    let first = start.as_millisecond();
    let mut after = Timestamp::from_millisecond(first - 1).unwrap_or(start);
    std::iter::from_fn(move || {
        let hit = cron.next_after(after).ok()?;
        after = hit;
        let at = u64::try_from(hit.as_millisecond() - first).ok()?;
        (at < duration_ms).then_some(at)
    })
}

/// The same by the clocks of a time zone, as the CronJob controller follows them.
pub(crate) fn hits_in(
    zone: &TimeZone,
    cron: &spokeshave_api::Cron,
    start: Timestamp,
    duration_ms: u64,
) -> impl Iterator<Item = u64> {
    let first = start.as_millisecond();
    let end = first.saturating_add_unsigned(duration_ms);
    let after = Timestamp::from_millisecond(first - 1).unwrap_or(start);
    cron.hits_by(zone, after)
        .map(Timestamp::as_millisecond)
        .take_while(move |hit| *hit < end)
        .map(move |hit| hit.abs_diff(first))
}

struct Drawing<'a> {
    workload: &'a Workload,
    start: Timestamp,
    duration_ms: u64,
    chance: Entropy,
    timeline: &'a mut Timeline,
}

impl Drawing<'_> {
    fn draw(&mut self) {
        let workload = self.workload;
        let Some(shape) = &workload.shape else {
            return;
        };
        match &workload.kind {
            Kind::Deployments { count, replicas } => {
                self.owners(*count, OwnerKind::Deployment, false, shape, replicas);
            }
            Kind::StatefulSets {
                count,
                replicas,
                zonal,
            } => {
                self.owners(*count, OwnerKind::StatefulSet, *zonal, shape, replicas);
            }
            Kind::Jobs { arrivals, runs } => self.jobs(shape, arrivals, *runs),
            Kind::Import(_) => {}
        }
    }

    fn owners(&mut self, count: u32, kind: OwnerKind, zonal: bool, shape: &Shape, replicas: &Replicas) {
        for index in 0..count {
            let name = name_of(&self.workload.name, index as usize, count as usize);
            let owner = self.owner(name, kind, zonal, shape, index as usize);
            match replicas {
                Replicas::Constant(count) => self.event(0, owner, Change::Replicas(*count)),
                Replicas::Daily(daily) => self.curve(owner, daily, index, count),
            }
        }
    }

    fn owner(&mut self, name: String, kind: OwnerKind, zonal: bool, shape: &Shape, turn: usize) -> OwnerId {
        let id = OwnerId(u32::try_from(self.timeline.owners.len()).unwrap_or(u32::MAX));
        let template = pods::template(&name, shape, turn);
        let mut owner = Owner {
            namespace: self.workload.namespace.clone(),
            name,
            kind,
            template: Arc::new(template),
            ready: self.workload.ready.unwrap_or(READY),
            budget: shape.max_unavailable.clone().map(Budget::MaxUnavailable),
            later: Vec::new(),
            claims: if zonal {
                vec![pods::zonal_claim()]
            } else {
                Vec::new()
            },
        };
        let changes = later_templates(&mut owner, shape, turn);
        self.timeline.owners.push(owner);
        for (at_ms, template) in changes {
            self.event(at_ms, id, Change::Template(template));
        }
        id
    }

    fn event(&mut self, at_ms: u64, owner: OwnerId, change: Change) {
        self.timeline.events.push(Event { at_ms, owner, change });
    }

    /// Looks at the curve every so often; owners look one after the other, as their autoscalers do.
    fn curve(&mut self, owner: OwnerId, daily: &Daily, index: u32, count: u32) {
        let mut rng = self.chance.child(&format!("{index}")).rng("replicas");
        // Noise has a memory of about an hour: a service that is busy now is busy in a quarter of an hour, too.
        let memory = libm::exp(-(daily.every_ms as f64) / HOUR_MS as f64);
        let fresh = libm::sqrt(1.0 - memory * memory);
        let mut noise = normal(rng.next_u64());
        let shift = daily.every_ms * u64::from(index) / u64::from(count.max(1));
        let mut last = None;
        let mut at = 0;
        while at < self.duration_ms {
            let wanted = daily.at(self.start, at, noise);
            if last != Some(wanted) {
                self.event(at, owner, Change::Replicas(wanted));
                last = Some(wanted);
            }
            noise = memory * noise + fresh * normal(rng.next_u64());
            at = match at {
                0 if shift > 0 => shift,
                _ => at.saturating_add(daily.every_ms),
            };
        }
    }

    fn jobs(&mut self, shape: &Shape, arrivals: &Arrivals, runs: Spread) {
        let sizes = sizes(shape);
        let owners: Vec<OwnerId> = (0..sizes)
            .map(|size| {
                let name = name_of(&self.workload.name, size, sizes);
                self.owner(name, OwnerKind::Job, false, shape, size)
            })
            .collect();
        let mut rng = self.chance.rng("jobs");
        let mut number: u64 = 0;
        let mut begin = |drawing: &mut Self, at: u64, length: u64| {
            let change = Change::Begin {
                pod: number,
                runs_ms: Some(runs.draw(length)),
            };
            drawing.event(at, owners[(number % sizes as u64) as usize], change);
            number += 1;
        };
        match arrivals {
            Arrivals::Cron {
                cron,
                count,
                within_ms,
            } => {
                for hit in hits(cron, self.start, self.duration_ms) {
                    for _ in 0..*count {
                        let offset = uniform(rng.next_u64()) * *within_ms as f64;
                        let length = rng.next_u64();
                        begin(self, hit.saturating_add(offset as u64), length);
                    }
                }
            }
            Arrivals::Rate {
                per_day,
                peak_at_ms,
                weekend,
            } => {
                // Thinning: candidates come at the highest rate there ever is, and each stays with the share that its instant has of it.
                let highest = if peak_at_ms.is_some() { 2.0 } else { 1.0 } * weekend.max(1.0);
                let mean = DAY_MS as f64 / (per_day * highest);
                let mut at = 0.0;
                loop {
                    at += wait(mean, rng.next_u64());
                    if at >= self.duration_ms as f64 {
                        break;
                    }
                    let (keep, length) = (uniform(rng.next_u64()), rng.next_u64());
                    let place = Place::of(self.start, at as u64);
                    let daily = peak_at_ms.map_or(1.0, |peak| 1.0 + place.wave(peak));
                    let share = daily * if place.is_weekend { *weekend } else { 1.0 };
                    if keep * highest < share {
                        begin(self, at as u64, length);
                    }
                }
            }
        }
    }
}

/// When pods of an owner are made from which of its templates, as far as these change; templates that are new are added to it. `turn` chooses among several
/// sizes.
fn later_templates(owner: &mut Owner, shape: &Shape, turn: usize) -> Vec<(u64, u32)> {
    let mut now = shape.clone();
    let (mut last, mut changes) = (0, Vec::new());
    for change in &shape.changes {
        if !change.cpu_milli.is_empty() {
            now.cpu_milli.clone_from(&change.cpu_milli);
        }
        if !change.memory_bytes.is_empty() {
            now.memory_bytes.clone_from(&change.memory_bytes);
        }
        let template = pods::template(&owner.name, &now, turn);
        let number = number_of(owner, template);
        if number != last {
            changes.push((change.at_ms, number));
            last = number;
        }
    }
    changes
}

/// The number of a template among those of an owner.
fn number_of(owner: &mut Owner, template: PodTemplateSpec) -> u32 {
    let known = owner.templates().position(|known| **known == template);
    let number = known.unwrap_or_else(|| {
        owner.later.push(Arc::new(template));
        owner.later.len()
    });
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Where in the week an instant is.
pub(crate) struct Place {
    pub(crate) of_day_ms: u64,
    pub(crate) is_weekend: bool,
}

impl Place {
    pub(crate) fn of(start: Timestamp, at_ms: u64) -> Self {
        let milliseconds = start.as_millisecond().saturating_add_unsigned(at_ms);
        let of_day_ms = milliseconds.rem_euclid(DAY_MS as i64).unsigned_abs();
        let weekday = Timestamp::from_millisecond(milliseconds)
            .map(|instant| instant.to_zoned(TimeZone::UTC).weekday().to_monday_zero_offset())
            .unwrap_or_default();
        Self {
            of_day_ms,
            is_weekend: weekday >= 5,
        }
    }

    /// From 1 at the peak to −1 half a day later.
    fn wave(&self, peak_at_ms: u64) -> f64 {
        let turn = (self.of_day_ms as f64 - peak_at_ms as f64) / DAY_MS as f64;
        libm::cos(turn * std::f64::consts::TAU)
    }
}

impl Daily {
    /// The count at an instant; `noise` in standard deviations.
    fn at(&self, start: Timestamp, at_ms: u64, noise: f64) -> u32 {
        let place = Place::of(start, at_ms);
        let (low, high) = (f64::from(self.low), f64::from(self.high));
        let level = low + (high - low) * f64::midpoint(1.0, place.wave(self.peak_at_ms));
        let level = level * if place.is_weekend { self.weekend } else { 1.0 };
        let count = libm::round(level * (1.0 + self.noise * noise));
        // A workload that never rests keeps its last pod.
        let least = if self.low > 0 && self.weekend > 0.0 {
            1.0
        } else {
            0.0
        };
        count.clamp(least, MOST_REPLICAS) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In New York the clocks are put forward on 8 March 2026 and back on 1 November.
    #[test]
    fn schedules_follow_the_clocks_of_their_zone() {
        let zone = TimeZone::get("America/New_York").expect("known");
        let at = |schedule: &str, start: &str, days: u64| -> Vec<String> {
            let start: Timestamp = start.parse().expect("an instant");
            let cron = schedule.parse().expect("a schedule");
            let hits = hits_in(&zone, &cron, start, days * DAY_MS);
            let instant = |hit: u64| start.as_millisecond() + i64::try_from(hit).expect("small");
            hits.map(|hit| {
                Timestamp::from_millisecond(instant(hit))
                    .expect("an instant")
                    .to_string()
            })
            .collect()
        };
        assert_eq!(
            at("0 1 * * *", "2026-03-07T00:00:00Z", 3),
            [
                "2026-03-07T06:00:00Z",
                "2026-03-08T06:00:00Z",
                "2026-03-09T05:00:00Z"
            ]
        );
        assert_eq!(
            at("30 2 * * *", "2026-03-08T00:00:00Z", 2),
            ["2026-03-09T06:30:00Z"],
            "02:30 does not come on the day of the change"
        );
        assert_eq!(
            at("30 1 * * *", "2026-11-01T00:00:00Z", 1),
            ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"],
            "01:30 comes twice"
        );
        assert_eq!(
            at("*/30 * * * *", "2026-11-01T05:00:00Z", 1)[..5],
            [
                "2026-11-01T05:00:00Z",
                "2026-11-01T05:30:00Z",
                "2026-11-01T06:00:00Z",
                "2026-11-01T06:30:00Z",
                "2026-11-01T07:00:00Z"
            ],
            "each half hour of both hours"
        );
        assert_eq!(
            at("*/30 * * * *", "2026-03-08T06:30:00Z", 1)[..4],
            [
                "2026-03-08T06:30:00Z",
                "2026-03-08T07:00:00Z",
                "2026-03-08T07:30:00Z",
                "2026-03-08T08:00:00Z"
            ],
            "each half hour once"
        );
        assert_eq!(
            at("0 23 * * *", "2026-11-01T00:00:00Z", 1),
            ["2026-11-01T03:00:00Z"],
            "of the day before, by local time"
        );
    }

    /// The rule written down a second time: minute by minute, whether the clocks show a time of the schedule. Lord Howe Island changes them by half an hour.
    #[test]
    fn schedules_are_found_by_walking_minutes_too() {
        const MINUTE_MS: u64 = 60_000;
        let days = [
            ("America/New_York", "2026-03-07T12:34:56.789Z"),
            ("America/New_York", "2026-10-31T12:00:00Z"),
            ("Australia/Lord_Howe", "2026-04-04T00:00:00Z"),
            ("Australia/Lord_Howe", "2026-10-03T00:00:00Z"),
            ("UTC", "2026-03-07T12:34:56.789Z"),
        ];
        for (zone, start) in days {
            let zone = TimeZone::get(zone).expect("known");
            let start: Timestamp = start.parse().expect("an instant");
            let shown = |at: u64| {
                let instant = start.as_millisecond().saturating_add_unsigned(at);
                let clock = zone.to_datetime(Timestamp::from_millisecond(instant).expect("an instant"));
                TimeZone::UTC.to_timestamp(clock).expect("an instant")
            };
            for schedule in [
                "*/15 * * * *",
                "45 1 * * *",
                "30 2 * * sun",
                "0 0 * * *",
                "10 0,2-3 * * *",
            ] {
                let cron: spokeshave_api::Cron = schedule.parse().expect("a schedule");
                let is_shown = |at: &u64| {
                    let now = shown(*at);
                    let before = Timestamp::from_millisecond(now.as_millisecond() - 1).expect("an instant");
                    cron.next_after(before) == Ok(now)
                };
                // The first whole minute.
                let first = MINUTE_MS - start.as_millisecond().unsigned_abs() % MINUTE_MS;
                let walked = (first % MINUTE_MS..2 * DAY_MS).step_by(MINUTE_MS as usize);
                let expected: Vec<u64> = walked.filter(is_shown).collect();
                let found: Vec<u64> = hits_in(&zone, &cron, start, 2 * DAY_MS).collect();
                assert_eq!(found, expected, "{schedule} from {start} on in {zone:?}");
                let utc = TimeZone::UTC;
                let plain: Vec<u64> = hits_in(&utc, &cron, start, 2 * DAY_MS).collect();
                let by_utc: Vec<u64> = hits(&cron, start, 2 * DAY_MS).collect();
                assert_eq!(plain, by_utc, "{schedule} by UTC");
            }
        }
    }
}
