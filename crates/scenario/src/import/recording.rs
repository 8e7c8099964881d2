//! A recording of any format, read file by file.
//!
//! Owns the choice of the reader, and nothing of what it reads.

use jiff::Timestamp;

use super::audit::Audit;
use super::dumps::Dumps;
use super::inventory::Inventory;
use super::nodes::{NodeReader, RecordedNodes};
use super::prometheus::Prometheus;
use super::stream::Stream;
use super::{ImportError, kubereplay, record, sktrace, table};
use crate::source::{Format, Source};
use crate::timeline::Timeline;

const DAY_MS: i64 = 86_400_000;

/// What a recording says.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// What the workloads did, from the first thing that was recorded.
    pub timeline: Timeline,
    /// For how long somebody looked, whether anything changed or not; 0 where the format does not tell.
    pub recorded_ms: u64,
    /// What it has of nodes.
    pub nodes: RecordedNodes,
    /// What had to be assumed, in sentences.
    pub notes: Vec<String>,
}

/// How long somebody looked who looked again and again, with a step between two looks: each of them stands for the time until the next one. Of a range of whole days
/// that has both of its ends, the last look is the first of the next day, unless there is but one a day.
pub(crate) fn looked_ms(first_ms: i64, last_ms: i64, step_ms: Option<i64>) -> u64 {
    let step = step_ms.unwrap_or(0);
    let length = match last_ms.saturating_sub(first_ms) {
        days if days > 0 && days % DAY_MS == 0 && step < DAY_MS => days,
        rest => rest.saturating_add(step),
    };
    u64::try_from(length).unwrap_or(0)
}

/// A recording in the making.
#[derive(Debug)]
pub struct Recording<'s> {
    source: &'s Source,
    stream: Stream,
    nodes: NodeReader,
    audit: Audit,
    dumps: Dumps,
    prometheus: Prometheus,
    table: Option<Timeline>,
    notes: Vec<String>,
}

impl<'s> Recording<'s> {
    /// Nothing read yet.
    #[must_use]
    pub fn new(source: &'s Source) -> Self {
        Self {
            source,
            stream: Stream::default(),
            nodes: NodeReader::default(),
            audit: Audit::default(),
            dumps: Dumps::default(),
            prometheus: Prometheus::default(),
            table: None,
            notes: Vec::new(),
        }
    }

    /// Adds the next of several dumps.
    ///
    /// # Errors
    /// It is not later than the one before, or there is nothing in it.
    pub fn dump(&mut self, instant: Timestamp, inventory: &Inventory) -> Result<(), ImportError> {
        self.dumps.add(instant, inventory)
    }

    /// Reads a file, which may be compressed with gzip. Dumps are read by [`Recording::dump`] instead.
    ///
    /// # Errors
    /// Names the line or byte at which it is broken.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), ImportError> {
        match self.source.format {
            Format::Dumps => Err(ImportError::whole("dumps are read object by object")),
            Format::Record => record::read(bytes, &mut self.stream, &mut self.nodes),
            Format::Audit => self.audit.read(bytes),
            Format::Kubereplay => kubereplay::read(bytes, &mut self.stream),
            Format::Sktrace => {
                self.notes.extend(sktrace::read(bytes, &mut self.stream)?);
                Ok(())
            }
            Format::Csv | Format::Openb | Format::Dlrm => {
                let (timeline, note) = table::read(self.source.format, &self.source.columns, bytes)?;
                self.table = Some(timeline);
                self.notes.extend(note);
                Ok(())
            }
            Format::AzureLlm => {
                self.table = Some(table::requests(bytes, self.source.requests_per_replica)?);
                Ok(())
            }
            Format::Prometheus => self.prometheus.read(bytes),
        }
    }

    /// What was recorded.
    ///
    /// # Errors
    /// Nothing in it says anything about workloads.
    pub fn finish(mut self) -> Result<Recorded, ImportError> {
        let mut recorded = match self.source.format {
            Format::Dumps => self.dumps.finish()?,
            Format::Prometheus => self.prometheus.finish()?,
            Format::Csv | Format::Openb | Format::Dlrm | Format::AzureLlm => Recorded {
                timeline: self.table.take().unwrap_or_default(),
                ..Recorded::default()
            },
            Format::Record => {
                let nodes = self.nodes.finish();
                let placements = self.stream.take_placements();
                let mut recorded = self.stream.finish(true)?;
                // Where no node is known, no pod can be on one.
                if !nodes.is_empty() {
                    recorded.timeline.placements = placements;
                }
                Recorded { nodes, ..recorded }
            }
            Format::Audit => {
                self.audit.finish(&mut self.stream)?;
                Recorded {
                    recorded_ms: self.audit.recorded_ms(),
                    ..self.stream.finish(true)?
                }
            }
            Format::Kubereplay | Format::Sktrace => self.stream.finish(false)?,
        };
        if recorded.timeline.owners.is_empty() {
            return Err(ImportError::whole("holds no workload"));
        }
        self.notes.append(&mut recorded.notes);
        recorded.notes = self.notes;
        Ok(recorded)
    }
}
