//! The copy of a provider's catalog of one NodeClass (G-005): snapshots that count when they are whole, and what changes after.
//!
//! Owns the copy. The same allocation is given as long as nothing has changed. It receives nothing by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use prost::Message;
use spokeshave_model::{InstanceType, Offering};

use crate::{convert, wire};

/// More instance types than any cloud has; a provider that sends more is not believed.
const MOST_TYPES: usize = 50_000;
/// Bytes of all chunks of a snapshot, and of what is added to it: 1,400 types with 15,000 offerings are less than 10 MB.
const MOST_BYTES: usize = 64 << 20;

#[derive(Clone, Debug, PartialEq)]
struct Row {
    instance_type: InstanceType,
    /// As many as offerings.
    ids: Vec<String>,
    /// Of the type itself something could not be read: it is not launched until it can be, whatever its offerings say.
    is_withheld: bool,
}

impl Row {
    /// A row, and what of it cannot be read: that is as it was in the row `before`, or left out where there is none, and cannot be launched (D-230).
    fn read(message: &wire::InstanceType, before: Option<&Self>) -> (Option<Self>, Vec<String>) {
        match convert::type_of(message, |id| before?.offering(id).cloned()) {
            Ok(read) => {
                let row = Self {
                    instance_type: read.instance_type,
                    ids: read.ids,
                    is_withheld: false,
                };
                let row = if read.is_whole {
                    row
                } else {
                    before.cloned().unwrap_or(row).withheld()
                };
                (Some(row), read.problems)
            }
            // Its name cannot be read: there is no row of it.
            Err(problem) => (None, vec![problem]),
        }
    }

    fn withheld(mut self) -> Self {
        self.is_withheld = true;
        for offering in &mut self.instance_type.offerings {
            offering.available = false;
        }
        self
    }

    fn offering_of(&self, message: &wire::Offering) -> Result<Offering, String> {
        let mut offering = convert::offering_of(message)?;
        offering.available &= !self.is_withheld;
        Ok(offering)
    }

    fn offering(&self, id: &str) -> Option<&Offering> {
        let place = self.ids.iter().position(|one| one == id)?;
        self.instance_type.offerings.get(place)
    }

    fn change(&mut self, delta: &wire::OfferingDelta) -> Result<(), String> {
        let message = delta.offering.as_ref().ok_or("a delta without an offering")?;
        let place = self.ids.iter().position(|id| *id == message.id);
        match (place, delta.removed) {
            (Some(place), true) => {
                self.ids.remove(place);
                self.instance_type.offerings.remove(place);
            }
            (Some(place), false) => {
                // What it has become is not known.
                self.instance_type.offerings[place].available = false;
                self.instance_type.offerings[place] = self.offering_of(message)?;
            }
            (None, true) => {}
            (None, false) => {
                let offering = self.offering_of(message)?;
                self.instance_type.offerings.push(offering);
                self.ids.push(message.id.clone());
            }
        }
        Ok(())
    }
}

/// A snapshot, with what has changed after.
#[derive(Debug, Default)]
struct Contents {
    generation: u64,
    rows: BTreeMap<String, Row>,
    /// When prices were last read, if they change.
    prices_read_at: Option<Timestamp>,
}

/// The copy.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// The last snapshot that was whole.
    whole: Contents,
    /// A snapshot that is not whole yet.
    coming: Option<Contents>,
    /// Bytes received since the snapshot began that rows are made of.
    bytes: usize,
    given: Option<Arc<[InstanceType]>>,
}

impl Catalog {
    /// A new connection: what was begun on the old one does not come to its end, and generations count anew.
    pub(crate) fn begin(&mut self) {
        self.coming = None;
        self.whole.generation = 0;
        self.bytes = 0;
    }

    /// Takes in a chunk; what cannot be read is named, and as it was before, only that it cannot be launched (one bad row harms no other).
    ///
    /// # Errors
    /// What makes the whole stream unbelievable.
    pub(crate) fn apply(&mut self, chunk: &wire::CatalogChunk) -> Result<Vec<String>, String> {
        if chunk.generation == 0 {
            return Err("a chunk of generation 0; generations begin at 1".to_owned());
        }
        let current = self.receiving().generation;
        if chunk.generation < current {
            return Err(format!(
                "generation {} after generation {current}; generations only grow",
                chunk.generation
            ));
        }
        if chunk.generation > current {
            self.coming = Some(Contents {
                generation: chunk.generation,
                ..Contents::default()
            });
            self.bytes = 0;
        }
        self.bytes = self.bytes.saturating_add(self.new_bytes(chunk));
        if self.bytes > MOST_BYTES {
            self.coming = None;
            return Err(format!("a catalog of more than {MOST_BYTES} bytes"));
        }
        let mut problems = Vec::new();
        let is_snapshot = self.coming.is_some();
        if let Some(told) = &chunk.prices_read_at {
            match convert::timestamp_of(told) {
                Some(read_at) => self.receiving().prices_read_at = Some(read_at),
                None => problems.push(format!("prices_read_at {told:?} is no time")),
            }
        }
        for message in &chunk.types {
            let (row, unread) = Row::read(message, self.whole.rows.get(&message.name));
            problems.extend(unread);
            if let Some(row) = row {
                self.receiving().rows.insert(message.name.clone(), row);
            }
        }
        let contents = self.receiving();
        if contents.rows.len() > MOST_TYPES {
            return Err(format!("more than {MOST_TYPES} instance types"));
        }
        change(&mut contents.rows, &chunk.deltas, &mut problems);
        if chunk.snapshot_complete
            && let Some(coming) = self.coming.take()
        {
            self.whole = coming;
            self.give();
        } else if !(is_snapshot || chunk.types.is_empty() && chunk.deltas.is_empty()) {
            self.give();
        }
        Ok(problems)
    }

    /// What chunks go into now.
    fn receiving(&mut self) -> &mut Contents {
        self.coming.as_mut().unwrap_or(&mut self.whole)
    }

    /// Bytes of a chunk that are kept: types, and offerings that were not there. Changes of what is there may go on for ever.
    fn new_bytes(&self, chunk: &wire::CatalogChunk) -> usize {
        let types = chunk.types.iter().map(Message::encoded_len);
        let is_new = |delta: &&wire::OfferingDelta| {
            let known = self.whole.rows.get(&delta.r#type).map(|row| &row.ids);
            let id = delta.offering.as_ref().map(|offering| &offering.id);
            !delta.removed && !known.zip(id).is_some_and(|(known, id)| known.contains(id))
        };
        let offerings = chunk.deltas.iter().filter(is_new).map(Message::encoded_len);
        types.chain(offerings).sum()
    }

    /// Offerings found otherwise by a launch (G-009).
    pub(crate) fn observe(&mut self, deltas: &[wire::OfferingDelta]) -> Vec<String> {
        let mut problems = Vec::new();
        if self.given.is_some() && !deltas.is_empty() {
            change(&mut self.whole.rows, deltas, &mut problems);
            self.give();
        }
        problems
    }

    fn give(&mut self) {
        let rows = self.whole.rows.values();
        let types: Vec<InstanceType> = rows.map(|row| row.instance_type.clone()).collect();
        if self.given.as_deref() != Some(types.as_slice()) {
            self.given = Some(types.into());
        }
    }

    /// The types by name; `None` before the first snapshot is whole.
    pub(crate) fn types(&self) -> Option<Arc<[InstanceType]>> {
        self.given.clone()
    }

    /// When prices were last read; `None` where they do not age.
    pub(crate) fn prices_read_at(&self) -> Option<Timestamp> {
        self.whole.prices_read_at
    }

    /// A type, and its offering of this ID.
    pub(crate) fn find(&self, name: &str, offering: &str) -> Option<(InstanceType, Option<Offering>)> {
        let row = self.whole.rows.get(name)?;
        Some((row.instance_type.clone(), row.offering(offering).cloned()))
    }

    /// The ID of a type's offering that is bought like this one, whatever its price.
    pub(crate) fn id_of(&self, name: &str, offering: &Offering) -> Option<&str> {
        let row = self.whole.rows.get(name)?;
        let mut pairs = row.ids.iter().zip(&row.instance_type.offerings);
        let same = |known: &Offering| known.requirements == offering.requirements;
        pairs.find(|(_, known)| same(known)).map(|(id, _)| id.as_str())
    }
}

fn change(rows: &mut BTreeMap<String, Row>, deltas: &[wire::OfferingDelta], problems: &mut Vec<String>) {
    for delta in deltas {
        let changed = match rows.get_mut(&delta.r#type) {
            Some(row) => row.change(delta),
            None => Err("it is not in the catalog".to_owned()),
        };
        if let Err(problem) = changed {
            problems.push(format!("change of instance type {:?}: {problem}", delta.r#type));
        }
    }
}
