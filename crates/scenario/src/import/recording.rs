//! A recording of any format, read file by file.
//!
//! Owns the choice of the reader, and nothing of what it reads.

use jiff::Timestamp;

use super::audit::Audit;
use super::dumps::Dumps;
use super::inventory::Inventory;
use super::prometheus::Prometheus;
use super::stream::Stream;
use super::{ImportError, kubereplay, record, sktrace, table};
use crate::source::{Format, Source};
use crate::timeline::Timeline;

/// A recording in the making.
#[derive(Debug)]
pub struct Recording<'s> {
    source: &'s Source,
    stream: Stream,
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
    /// It is not later than the one before.
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
            Format::Record => record::read(bytes, &mut self.stream),
            Format::Audit => self.audit.read(bytes),
            Format::Kubereplay => kubereplay::read(bytes, &mut self.stream),
            Format::Sktrace => {
                self.notes.extend(sktrace::read(bytes, &mut self.stream)?);
                Ok(())
            }
            Format::Csv | Format::Openb | Format::Dlrm => {
                self.table = Some(table::read(self.source.format, &self.source.columns, bytes)?);
                Ok(())
            }
            Format::AzureLlm => {
                self.table = Some(table::requests(bytes, self.source.requests_per_replica)?);
                Ok(())
            }
            Format::Prometheus => self.prometheus.read(bytes),
        }
    }

    /// The timeline, which begins with the first thing that was recorded, and what had to be assumed.
    ///
    /// # Errors
    /// Nothing in it says anything about workloads.
    pub fn finish(mut self) -> Result<(Timeline, Vec<String>), ImportError> {
        let (timeline, notes) = match self.source.format {
            Format::Dumps => (self.dumps.finish()?, Vec::new()),
            Format::Prometheus => self.prometheus.finish()?,
            Format::Csv | Format::Openb | Format::Dlrm | Format::AzureLlm => {
                (self.table.take().unwrap_or_default(), Vec::new())
            }
            Format::Record => self.stream.finish(true)?,
            Format::Audit => {
                self.audit.finish(&mut self.stream)?;
                self.stream.finish(true)?
            }
            Format::Kubereplay | Format::Sktrace => self.stream.finish(false)?,
        };
        if timeline.owners.is_empty() {
            return Err(ImportError::whole("holds no workload"));
        }
        self.notes.extend(notes);
        Ok((timeline, self.notes))
    }
}
