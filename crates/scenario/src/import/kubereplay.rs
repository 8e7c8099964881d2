//! What kubereplay of karpenter-provider-aws captured from an audit log: creations, scalings and deletions of Deployments and Jobs.
//!
//! Owns the format; it is one JSON document.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read as _;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::lines::reader;
use super::objects::Object;
use super::record::broken;
use super::stream::Stream;
use super::{ImportError, Place};
use crate::timeline::OwnerKind;

/// Decompressed, it has to fit into memory.
const MOST_BYTES: u64 = 1 << 30;

#[derive(Deserialize)]
struct Log<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
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
    timestamp: Timestamp,
}

pub(crate) fn read(bytes: &[u8], stream: &mut Stream) -> Result<(), ImportError> {
    let mut text = String::new();
    let mut limited = reader(bytes).take(MOST_BYTES);
    limited
        .read_to_string(&mut text)
        .map_err(|error| ImportError::whole(format!("cannot be read as text: {error}")))?;
    let at = |error: &serde_json::Error, first: u64| {
        ImportError::new(
            Place::Line(first + error.line() as u64 - u64::from(error.line() > 0)),
            broken(error),
        )
    };
    let log: Log<'_> = serde_json::from_str(&text).map_err(|error| at(&error, 1))?;
    let mut ends: BinaryHeap<Reverse<(i64, String, String)>> = BinaryHeap::new();
    let mut last = None;
    let (mut counted, mut line) = (0, 1);
    for raw in log.events {
        let offset = raw.get().as_ptr() as usize - text.as_ptr() as usize;
        let between = &text.as_bytes()[counted..offset];
        line += between.iter().filter(|byte| **byte == b'\n').count() as u64;
        counted = offset;
        let place = Place::Line(line);
        let event: Event<'_> = serde_json::from_str(raw.get()).map_err(|error| at(&error, line))?;
        if last.is_some_and(|last| event.timestamp < last) {
            return Err(ImportError::new(
                place,
                "is earlier than the event before it; expected events in order of time",
            ));
        }
        last = Some(event.timestamp);
        let Some((namespace, name)) = event.key.split_once('/') else {
            return Err(ImportError::new(
                place,
                format!("key {:?} is not NAMESPACE/NAME", event.key),
            ));
        };
        let instant = event.timestamp.as_millisecond();
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
