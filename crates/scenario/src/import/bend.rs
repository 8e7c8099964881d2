//! A recording adapted in size: scaled requests, another speed, repetition.
//!
//! Owns arithmetic on timelines only. How copies are kept apart is the business of `copies`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use spokeshave_api::{Quantity, WireForm};

use super::copies::copied;
use super::{ImportError, Recorded};
use crate::generate::MOST_EVENTS;
use crate::source::Source;
use crate::timeline::{Change, Event, Owner, OwnerId, Timeline};

/// Applies what a scenario asks of a recording, for a scenario of this length.
///
/// # Errors
/// It would have more events than fit into memory, or a copy a namespace whose name is too long.
pub fn bend(recorded: Recorded, source: &Source, duration_ms: u64) -> Result<Timeline, ImportError> {
    let Recorded {
        mut timeline,
        mut recorded_ms,
        ..
    } = recorded;
    for owner in &mut timeline.owners {
        scale(owner, "cpu", source.scale_cpu);
        scale(owner, "memory", source.scale_memory);
    }
    // What is scaled does not fit onto the nodes on which it was, and these are not there more than once.
    let placements = match source.is_of_its_size() {
        true => std::mem::take(&mut timeline.placements),
        false => Vec::new(),
    };
    if source.speed != 1.0 {
        let faster = |milliseconds: u64| libm::round(milliseconds as f64 / source.speed) as u64;
        for event in &mut timeline.events {
            event.at_ms = faster(event.at_ms);
            if let Change::Begin {
                runs_ms: Some(runs), ..
            } = &mut event.change
            {
                *runs = faster(*runs);
            }
        }
        timeline.sort();
        recorded_ms = faster(recorded_ms);
    }
    if source.repeat {
        timeline = repeated(timeline, recorded_ms, duration_ms)?;
    }
    timeline.cut(duration_ms);
    check(timeline.events.len() as u64 * u64::from(source.copies))?;
    let mut whole = copied(timeline, source.copies)?;
    whole.sort();
    whole.placements = placements;
    Ok(whole)
}

fn check(events: u64) -> Result<(), ImportError> {
    match events <= MOST_EVENTS {
        true => Ok(()),
        false => Err(ImportError::whole(format!(
            "would be {events} events after repeat and copies, and at most {MOST_EVENTS} fit into memory"
        ))),
    }
}

/// Multiplies what pods request, their containers of every kind and what comes on top of these; what is requested at all stays at least one unit.
fn scale(owner: &mut Owner, resource: &str, factor: f64) {
    if factor == 1.0 {
        return;
    }
    for template in owner.templates_mut() {
        scale_template(Arc::make_mut(template), resource, factor);
    }
}

fn scale_template(template: &mut PodTemplateSpec, resource: &str, factor: f64) {
    let Some(spec) = &mut template.spec else {
        return;
    };
    let containers = spec
        .containers
        .iter_mut()
        .chain(spec.init_containers.iter_mut().flatten());
    let all = containers
        .filter_map(|container| container.resources.as_mut())
        .chain(&mut spec.resources)
        .flat_map(|resources| [&mut resources.requests, &mut resources.limits])
        .chain([&mut spec.overhead]);
    for amounts in all.flatten() {
        if let Some(wire) = amounts.get_mut(resource) {
            *wire = scaled(wire, resource, factor);
        }
    }
}

fn scaled(wire: &WireQuantity, resource: &str, factor: f64) -> WireQuantity {
    let Ok(quantity) = Quantity::from_wire(wire) else {
        return wire.clone();
    };
    // The casts saturate.
    let times = |amount: i64| libm::ceil(amount as f64 * factor) as i64;
    match (quantity.is_zero(), resource) {
        (true, _) => wire.clone(),
        (false, "cpu") => Quantity::from_milli(times(quantity.to_milli()).max(1)).to_wire(),
        (false, _) => Quantity::from_units(times(quantity.to_units()).max(1)).to_wire(),
    }
}

/// The recording repeated. What is there at its end and at its start again lives on, pod by pod of one owner: a cluster does not stop where somebody has
/// stopped to record it. What the start lacks ends at the seam, and what the end lacks begins there.
fn repeated(mut timeline: Timeline, recorded_ms: u64, duration_ms: u64) -> Result<Timeline, ImportError> {
    let span = span(&timeline, recorded_ms);
    let rounds = duration_ms.div_ceil(span);
    if rounds <= 1 {
        return Ok(timeline);
    }
    check(
        (timeline.events.len() as u64)
            .saturating_mul(2)
            .saturating_mul(rounds),
    )?;
    if span == recorded_ms {
        leave_out_late(&mut timeline, recorded_ms);
    }
    let numbers = timeline.events.iter().filter_map(|event| match event.change {
        Change::Begin { pod, .. } | Change::End { pod } => Some(pod),
        Change::Replicas(_) | Change::Template(_) => None,
    });
    let mut repetition = Repetition {
        timeline: &timeline,
        pods: numbers.max().map_or(0, |most| most.saturating_add(1)),
        events: Vec::new(),
        left: BTreeSet::new(),
        scaled: BTreeSet::new(),
        renewed: BTreeSet::new(),
    };
    for round in 0..rounds {
        repetition.add(round, round.saturating_mul(span));
    }
    let mut whole = Timeline {
        owners: timeline.owners.clone(),
        budgets: timeline.budgets.clone(),
        events: repetition.events,
        ..Timeline::default()
    };
    // Of one instant, ends at a seam come before the beginnings, because they were added first.
    whole.sort();
    Ok(whole)
}

/// How long a round takes. Where it is known how long was recorded, the next round begins then. Only pods may end later, as those of Jobs whose end is assumed: then
/// a round takes until nothing changes any more, as it does where nothing is known.
fn span(timeline: &Timeline, recorded_ms: u64) -> u64 {
    let events = timeline.events.iter();
    let mut in_time = events.clone().filter(|event| !is_late(event, recorded_ms));
    if recorded_ms > 0 && in_time.all(|event| over(event) <= recorded_ms) {
        return recorded_ms;
    }
    events.map(over).max().unwrap_or(0).saturating_add(1)
}

/// Whether something would begin to be when a recording is over.
fn is_late(event: &Event, recorded_ms: u64) -> bool {
    event.at_ms >= recorded_ms && !matches!(event.change, Change::End { .. })
}

/// Leaves out what would begin to be when the next round begins: it would be there for no time at all.
fn leave_out_late(timeline: &mut Timeline, recorded_ms: u64) {
    let mut late = BTreeSet::new();
    timeline.events.retain(|event| match event.change {
        Change::Begin { pod, .. } if is_late(event, recorded_ms) => {
            late.insert((event.owner, pod));
            false
        }
        Change::End { pod } => !late.contains(&(event.owner, pod)),
        _ => !is_late(event, recorded_ms),
    });
}

/// When an event and what it has begun are over, as far as it says that.
fn over(event: &Event) -> u64 {
    match event.change {
        Change::Begin {
            runs_ms: Some(runs), ..
        } => event.at_ms.saturating_add(runs),
        _ => event.at_ms,
    }
}

/// Rounds of a recording, one after the other.
struct Repetition<'a> {
    timeline: &'a Timeline,
    /// Above every number of a pod in the recording.
    pods: u64,
    events: Vec<Event>,
    /// The pods that the round before has left, in the order of their numbers.
    left: BTreeSet<(OwnerId, u64)>,
    /// Owners to which the round before has left replicas.
    scaled: BTreeSet<OwnerId>,
    /// Owners that make their pods from another template than at first when a round is over.
    renewed: BTreeSet<OwnerId>,
}

impl Repetition<'_> {
    fn add(&mut self, round: u64, offset: u64) {
        let mut names = self.seam(round, offset);
        let mut left = BTreeSet::new();
        let mut scaled = BTreeSet::new();
        for event in &self.timeline.events {
            let change = match &event.change {
                Change::Replicas(count) => {
                    if *count > 0 {
                        scaled.insert(event.owner);
                    } else {
                        scaled.remove(&event.owner);
                    }
                    Change::Replicas(*count)
                }
                Change::Template(template) => {
                    if *template > 0 {
                        self.renewed.insert(event.owner);
                    } else {
                        self.renewed.remove(&event.owner);
                    }
                    Change::Template(*template)
                }
                Change::Begin { pod, runs_ms } => {
                    let lives_on = names.get(&(event.owner, *pod)).copied();
                    let number = lives_on.unwrap_or_else(|| self.number(round, *pod));
                    if runs_ms.is_none() {
                        names.insert((event.owner, *pod), number);
                        left.insert((event.owner, number));
                    }
                    if lives_on.is_some() {
                        continue;
                    }
                    Change::Begin {
                        pod: number,
                        runs_ms: *runs_ms,
                    }
                }
                Change::End { pod } => {
                    let known = names.remove(&(event.owner, *pod));
                    let number = known.unwrap_or_else(|| self.number(round, *pod));
                    left.remove(&(event.owner, number));
                    Change::End { pod: number }
                }
            };
            self.events.push(Event {
                at_ms: event.at_ms.saturating_add(offset),
                owner: event.owner,
                change,
            });
        }
        (self.left, self.scaled) = (left, scaled);
    }

    /// A pod of a round, which has the numbers of no other.
    fn number(&self, round: u64, pod: u64) -> u64 {
        pod.saturating_add(self.pods.saturating_mul(round))
    }

    /// Where a round begins: which pods of the round before live on as which of this one. The others end.
    fn seam(&mut self, round: u64, at_ms: u64) -> BTreeMap<(OwnerId, u64), u64> {
        let mut names = BTreeMap::new();
        if round == 0 {
            return names;
        }
        let mut left = std::mem::take(&mut self.left);
        let mut scaled = std::mem::take(&mut self.scaled);
        for event in self.timeline.events.iter().filter(|event| event.at_ms == 0) {
            match event.change {
                Change::Replicas(_) => {
                    scaled.remove(&event.owner);
                }
                Change::Begin { pod, runs_ms: None } => {
                    let all = (event.owner, 0)..=(event.owner, u64::MAX);
                    if let Some(oldest) = left.range(all).next().copied() {
                        left.remove(&oldest);
                        names.insert((event.owner, pod), oldest.1);
                    }
                }
                Change::Template(_) | Change::Begin { .. } | Change::End { .. } => {}
            }
        }
        // What begins in this round begins as it did first.
        let first = std::mem::take(&mut self.renewed).into_iter();
        self.events.extend(first.map(|owner| Event {
            at_ms,
            owner,
            change: Change::Template(0),
        }));
        let ends = left.into_iter().map(|(owner, pod)| (owner, Change::End { pod }));
        let ends = ends.chain(scaled.into_iter().map(|owner| (owner, Change::Replicas(0))));
        self.events
            .extend(ends.map(|(owner, change)| Event { at_ms, owner, change }));
        names
    }
}
