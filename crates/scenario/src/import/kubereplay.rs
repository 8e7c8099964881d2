//! What kubereplay of karpenter-provider-aws captured from an audit log: creations, scalings and deletions of Deployments and Jobs.
//!
//! Owns the format; it is one JSON document. A capture is in no order of time: what was there before is somewhere between the creations, and scalings and deletions
//! come after all of these.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::elements::each;
use super::lines;
use super::objects::Object;
use super::record::broken;
use super::stream::Stream;
use super::{ImportError, Place};
use crate::generate::MOST_EVENTS;
use crate::timeline::OwnerKind;

/// Decompressed, it has to fit into memory.
const MOST_BYTES: u64 = 1 << 30;

/// What an event is sorted by.
#[derive(Deserialize)]
struct When {
    timestamp: Timestamp,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    what: String,
    kind: String,
    key: String,
    #[serde(borrow)]
    deployment: Option<&'a RawValue>,
    #[serde(borrow)]
    job: Option<&'a RawValue>,
    replicas: Option<i32>,
    /// Nanoseconds that a Job ran, which newer versions record.
    duration: Option<i64>,
}

/// What is wrong in an event that begins on this line.
fn at(error: &serde_json::Error, first: u64) -> ImportError {
    let line = first + error.line() as u64 - u64::from(error.line() > 0);
    ImportError::new(Place::Line(line), broken(error))
}

/// The events in order of time, each with the line on which it begins.
fn sorted(text: &str) -> Result<Vec<(Timestamp, u64, &str)>, ImportError> {
    let mut found = Vec::new();
    each(text, &["events"], &mut |event, line| {
        let when: When = serde_json::from_str(event).map_err(|error| at(&error, line))?;
        if found.len() as u64 >= MOST_EVENTS {
            return Err(ImportError::new(
                Place::Line(line),
                format!(
                    "is the last of {MOST_EVENTS} events that fit into memory; cut the capture into pieces"
                ),
            ));
        }
        found.push((when.timestamp, line, event));
        Ok(())
    })?;
    // Those of one instant stay in the order of the file.
    found.sort_by_key(|(instant, _, _)| *instant);
    Ok(found)
}

pub(crate) fn read(bytes: &[u8], stream: &mut Stream) -> Result<(), ImportError> {
    let text = lines::text(bytes, MOST_BYTES)?;
    let mut ends: BinaryHeap<Reverse<(i64, String, String)>> = BinaryHeap::new();
    for (instant, line, raw) in sorted(&text)? {
        let place = Place::Line(line);
        let event: Event<'_> = serde_json::from_str(raw).map_err(|error| at(&error, line))?;
        let Some((namespace, name)) = event.key.split_once('/') else {
            return Err(ImportError::new(
                place,
                format!("key {:?} is not NAMESPACE/NAME", event.key),
            ));
        };
        let instant = instant.as_millisecond();
        // What has ended in the meantime, in order.
        while ends.peek().is_some_and(|Reverse((end, _, _))| *end <= instant) {
            if let Some(Reverse((end, namespace, name))) = ends.pop() {
                stream
                    .deleted(end, "Job", &namespace, &name)
                    .map_err(|error| error.at(place))?;
            }
        }
        match (event.what.as_str(), event.kind.as_str()) {
            ("create", "Deployment" | "Job") => {
                let Some(object) = event.deployment.or(event.job) else {
                    return Err(ImportError::new(place, format!("creates {} {} without saying what it is", event.kind, event.key)));
                };
                // Objects of Go's types often leave out their kind.
                let object = Object::read(object.get(), Some(&event.kind)).map_err(|error| at(&error, line))?;
                stream.applied(instant, object)
            }
            ("scale", "Deployment") => {
                let replicas = u32::try_from(event.replicas.unwrap_or(0)).unwrap_or(0);
                stream.scaled(instant, OwnerKind::Deployment, namespace, name, replicas)
            }
            ("delete", "Deployment" | "Job") => stream.deleted(instant, &event.kind, namespace, name),
            (what, kind) => {
                return Err(ImportError::new(
                    place,
                    format!("{what:?} of {kind:?} is unknown; expected create, scale or delete of Deployment or Job"),
                ));
            }
        }
        .map_err(|error| error.at(place))?;
        if let ("create", "Job", Some(nanoseconds)) =
            (event.what.as_str(), event.kind.as_str(), event.duration)
        {
            let end = instant.saturating_add(nanoseconds.max(0) / 1_000_000);
            ends.push(Reverse((end, namespace.to_owned(), name.to_owned())));
        }
    }
    while let Some(Reverse((end, namespace, name))) = ends.pop() {
        stream.deleted(end, "Job", &namespace, &name)?;
    }
    Ok(())
}
