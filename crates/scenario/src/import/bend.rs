//! A recording adapted in size: scaled requests, another speed, parallel copies, repetition.
//!
//! Owns arithmetic on timelines only.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use spokeshave_api::{Quantity, WireForm};

use super::ImportError;
use crate::generate::MOST_EVENTS;
use crate::source::Source;
use crate::timeline::{Change, Event, Owner, OwnerId, Timeline};

/// Applies what a scenario asks of a recording, for a scenario of this length.
///
/// # Errors
/// It would have more events than fit into memory.
pub fn bend(mut timeline: Timeline, source: &Source, duration_ms: u64) -> Result<Timeline, ImportError> {
    for owner in &mut timeline.owners {
        scale(owner, "cpu", source.scale_cpu);
        scale(owner, "memory", source.scale_memory);
    }
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
    }
    if source.repeat {
        timeline = repeated(&timeline, duration_ms)?;
    }
    timeline.cut(duration_ms);
    check(timeline.events.len() as u64 * u64::from(source.copies))?;
    let mut whole = timeline.clone();
    for copy in 2..=source.copies {
        let mut next = timeline.clone();
        for owner in &mut next.owners {
            owner.name = format!("{}-copy{copy}", owner.name);
        }
        whole.append(next);
    }
    whole.sort();
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

/// Multiplies a request; what is requested at all stays at least one unit.
fn scale(owner: &mut Owner, resource: &str, factor: f64) {
    if factor == 1.0 {
        return;
    }
    let template = Arc::make_mut(&mut owner.template);
    let containers = template.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    for container in containers {
        let Some(resources) = &mut container.resources else {
            continue;
        };
        for amounts in [&mut resources.requests, &mut resources.limits]
            .into_iter()
            .flatten()
        {
            if let Some(wire) = amounts.get_mut(resource) {
                *wire = scaled(wire, resource, factor);
            }
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

/// The recording repeated: at its end everything is removed, and it starts again.
fn repeated(timeline: &Timeline, duration_ms: u64) -> Result<Timeline, ImportError> {
    let end = |event: &Event| match event.change {
        Change::Begin {
            runs_ms: Some(runs), ..
        } => event.at_ms.saturating_add(runs),
        _ => event.at_ms,
    };
    let span = timeline
        .events
        .iter()
        .map(end)
        .max()
        .unwrap_or(0)
        .saturating_add(1);
    let rounds = duration_ms.div_ceil(span);
    if rounds <= 1 {
        return Ok(timeline.clone());
    }
    check(
        (timeline.events.len() as u64)
            .saturating_mul(2)
            .saturating_mul(rounds),
    )?;
    let most = timeline.events.iter().filter_map(|event| match event.change {
        Change::Begin { pod, .. } | Change::End { pod } => Some(pod),
        Change::Replicas(_) => None,
    });
    let pods = most.max().map_or(0, |most| most.saturating_add(1));
    let mut events = Vec::new();
    for round in 0..rounds {
        let offset = round.saturating_mul(span);
        let number = |pod: u64| pod.saturating_add(pods.saturating_mul(round));
        let mut left: BTreeMap<(OwnerId, Option<u64>), Change> = BTreeMap::new();
        for event in &timeline.events {
            let change = match &event.change {
                Change::Replicas(count) => {
                    left.insert((event.owner, None), Change::Replicas(0));
                    Change::Replicas(*count)
                }
                Change::Begin { pod, runs_ms } => {
                    let pod = number(*pod);
                    if runs_ms.is_none() {
                        left.insert((event.owner, Some(pod)), Change::End { pod });
                    }
                    Change::Begin {
                        pod,
                        runs_ms: *runs_ms,
                    }
                }
                Change::End { pod } => {
                    let pod = number(*pod);
                    left.remove(&(event.owner, Some(pod)));
                    Change::End { pod }
                }
            };
            events.push(Event {
                at_ms: event.at_ms.saturating_add(offset),
                owner: event.owner,
                change,
            });
        }
        let ends = left.into_iter().map(|((owner, _), change)| Event {
            at_ms: offset.saturating_add(span),
            owner,
            change,
        });
        events.extend(ends);
    }
    let mut whole = Timeline {
        owners: timeline.owners.clone(),
        events,
    };
    // Of one instant, ends of a round come before the beginnings of the next, because they were added first.
    whole.sort();
    Ok(whole)
}
