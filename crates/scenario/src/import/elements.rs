//! The elements of a list in one JSON document, one after the other: however many it claims to have, one of them is held at a time.
//!
//! Owns the walk and the lines; what an element means is the business of the formats.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::record::broken;
use super::{ImportError, Place};

/// Takes an element, and the line on which it begins.
type Take<'t, 'f> = &'f mut dyn FnMut(&'t str, u64) -> Result<(), ImportError>;

/// Hands over the elements of the lists that a document has under these names.
///
/// # Errors
/// It is no object with such a list, is broken, or an element is refused.
pub(crate) fn each<'t>(
    text: &'t str,
    names: &'static [&'static str],
    take: Take<'t, '_>,
) -> Result<(), ImportError> {
    let mut document = Document {
        text,
        names,
        take,
        counted: 0,
        line: 1,
        is_found: false,
        problem: None,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    let read = (&mut document).deserialize(&mut json).and_then(|()| json.end());
    if let Some(problem) = document.problem {
        return Err(problem);
    }
    read.map_err(|error| ImportError::new(Place::Line(error.line().max(1) as u64), broken(&error)))?;
    if document.is_found {
        return Ok(());
    }
    let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    Err(ImportError::whole(format!("has no list {}", names.join(" or "))))
}

struct Document<'t, 'f> {
    text: &'t str,
    names: &'static [&'static str],
    take: Take<'t, 'f>,
    /// Bytes whose lines have been counted, and the line that follows them.
    counted: usize,
    line: u64,
    is_found: bool,
    /// Why an element was refused.
    problem: Option<ImportError>,
}

impl<'t> Document<'t, '_> {
    fn element(&mut self, element: &'t str) -> Result<(), ImportError> {
        let offset = (element.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let between = self.text.as_bytes().get(self.counted..offset).unwrap_or_default();
        self.line += between.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.counted = self.counted.max(offset);
        (self.take)(element, self.line)
    }
}

impl<'de> DeserializeSeed<'de> for &mut Document<'de, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Document<'de, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a list of events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if self.names.contains(&key.as_str()) {
                self.is_found = true;
                map.next_value_seed(List(self))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// One of the lists.
struct List<'l, 't, 'f>(&'l mut Document<'t, 'f>);

impl<'de> DeserializeSeed<'de> for List<'_, 'de, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_, 'de, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element::<&'de RawValue>()? {
            if let Err(problem) = self.0.element(element.get()) {
                self.0.problem = Some(problem);
                return Err(A::Error::custom("an element is refused"));
            }
        }
        Ok(())
    }
}
