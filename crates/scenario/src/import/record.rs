//! Recordings of `spokeshave record`: one JSON object a line, the first of them a head.
//!
//! Owns the format. Each line after the head is `{"at": INSTANT, "what": "applied" or "deleted", "object": {…}}`, in order of time. The last one is
//! `{"at": INSTANT, "what": "ended"}`: until then nothing more changed. A recording that was killed lacks it, and so do older ones. Objects of kinds that a reader
//! does not know are passed over, as those of Nodes and NodeClaims were before there was something to read of them: what lines mean is added to, never changed.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::lines::Lines;
use super::nodes::NodeReader;
use super::objects::{Meta, Object, is_read};
use super::stream::Stream;
use super::{ImportError, Place};

/// What the head names the format.
pub const FORMAT: &str = "recording.spokeshave.dev/v1alpha1";

#[derive(Deserialize)]
struct Head {
    recording: String,
}

#[derive(Deserialize)]
struct Line<'a> {
    at: Timestamp,
    what: What,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum What {
    Applied,
    Deleted,
    Ended,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Identity {
    api_version: String,
    kind: String,
    metadata: Meta,
}

pub(crate) fn read(bytes: &[u8], stream: &mut Stream, nodes: &mut NodeReader) -> Result<(), ImportError> {
    let mut lines = Lines::new(bytes);
    let head: Option<Head> = lines
        .next()?
        .and_then(|(_, text)| serde_json::from_str(text).ok());
    if head.is_none_or(|head| head.recording != FORMAT) {
        return Err(ImportError::new(
            Place::Line(1),
            format!(
                "is not the head of a recording; expected {{\"recording\": {FORMAT:?}}}, which `spokeshave record` writes"
            ),
        ));
    }
    let mut last: Option<Timestamp> = None;
    while let Some((number, text)) = lines.next()? {
        let place = Place::Line(number);
        let wrong = |error: serde_json::Error| ImportError::new(place, broken(&error));
        let line: Line<'_> = serde_json::from_str(text).map_err(wrong)?;
        if let Some(last) = last
            && line.at < last
        {
            return Err(ImportError::new(
                place,
                format!(
                    "is of {}, before the line above it, which is of {last}; expected lines in order of time",
                    line.at
                ),
            ));
        }
        last = Some(line.at);
        let at = line.at.as_millisecond();
        if line.what != What::Ended {
            nodes.looked(line.at);
        }
        match (line.what, line.object) {
            (What::Ended, _) => {
                stream.seen(at);
                Ok(())
            }
            (What::Applied, Some(object)) => {
                let read = Object::read(object.get(), None).map_err(wrong)?;
                let noted = match read {
                    Object::Other => nodes.applied(line.at, object.get()),
                    _ => Ok(()),
                };
                noted.and_then(|()| stream.applied(at, read))
            }
            (What::Deleted, Some(object)) => {
                let gone: Identity = serde_json::from_str(object.get()).map_err(wrong)?;
                if is_read(&gone.api_version, &gone.kind) {
                    stream.deleted(at, &gone.kind, gone.metadata.namespace(), gone.metadata.name())
                } else {
                    nodes.deleted(line.at, &gone.api_version, &gone.kind, gone.metadata.name());
                    stream.applied(at, Object::Other)
                }
            }
            (What::Applied | What::Deleted, None) => Err(ImportError::whole(
                "has no object; expected the one that was applied or deleted",
            )),
        }
        .map_err(|error| error.at(place))?;
    }
    Ok(())
}

/// What a JSON parser says, without its own idea of where.
pub(crate) fn broken(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    match error.is_eof() {
        true => "ends in the middle of a value; the file seems to be cut off".to_owned(),
        false => format!("cannot be read: {message}"),
    }
}
