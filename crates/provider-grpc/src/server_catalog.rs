//! A provider's catalog in chunks: first whole, then what has changed (G-005, G-006).
//!
//! Owns the cutting and comparing. It looks at the provider once in a period, because the port has no way to wait for a change.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use jiff::Timestamp;
use prost::Message as _;
use spokeshave_api::NodePool;
use spokeshave_model::{InstanceType, Offering, PriceFeed};
use spokeshave_ports::{CloudProvider, SharedClock};
use tonic::Status;

use crate::errors::status;
use crate::wire::{self, CatalogChunk, OfferingDelta};
use crate::{LONGEST_MESSAGE_BYTES, convert};

/// Bytes of types in one chunk; what is beside them must fit too.
const CHUNK_BYTES: usize = LONGEST_MESSAGE_BYTES / 2;

/// Types as another process sees them.
pub(crate) fn read_types(messages: &[wire::InstanceType]) -> Result<Vec<InstanceType>, String> {
    let types = messages.iter().map(|message| {
        let mut read = convert::type_of(message, |_| None)?;
        if let Some(problem) = read.problems.pop() {
            return Err(problem);
        }
        read.instance_type.overlaid.price = true;
        Ok(read.instance_type)
    });
    types.collect()
}

/// What has changed of offerings; `None` when more than offerings has changed, so that the whole must be sent.
pub(crate) fn changes(before: &[InstanceType], after: &[InstanceType]) -> Option<Vec<OfferingDelta>> {
    if before.len() != after.len() {
        return None;
    }
    let mut deltas = Vec::new();
    for (old, new) in before.iter().zip(after) {
        if old == new {
            continue;
        }
        let same = old.name == new.name
            && old.requirements == new.requirements
            && old.capacity == new.capacity
            && old.overhead == new.overhead;
        if !same {
            return None;
        }
        let known: BTreeMap<String, &Offering> = convert::offering_ids(old)
            .into_iter()
            .zip(&old.offerings)
            .collect();
        let ids = convert::offering_ids(new);
        for (id, offering) in ids.iter().zip(&new.offerings) {
            if known.get(id) != Some(&offering) {
                deltas.push(OfferingDelta {
                    r#type: new.name.clone(),
                    offering: Some(convert::offering_message(id.clone(), offering)),
                    removed: false,
                });
            }
        }
        let gone = known.into_iter().filter(|(id, _)| !ids.contains(id));
        deltas.extend(gone.map(|(id, offering)| OfferingDelta {
            r#type: new.name.clone(),
            offering: Some(convert::offering_message(id, offering)),
            removed: true,
        }));
    }
    Some(deltas)
}

/// A snapshot in chunks, the last of which says that it is whole.
pub(crate) fn snapshot(generation: u64, types: &[InstanceType]) -> VecDeque<CatalogChunk> {
    let empty = || CatalogChunk {
        generation,
        ..CatalogChunk::default()
    };
    let mut chunks = VecDeque::from([empty()]);
    let mut bytes = 0;
    for message in types.iter().map(convert::type_message) {
        let size = message.encoded_len();
        if bytes + size > CHUNK_BYTES && bytes > 0 {
            chunks.push_back(empty());
            bytes = 0;
        }
        bytes += size;
        if let Some(chunk) = chunks.back_mut() {
            chunk.types.push(message);
        }
    }
    if let Some(last) = chunks.back_mut() {
        last.snapshot_complete = true;
    }
    chunks
}

/// The stream of one NodeClass.
pub(crate) struct CatalogFeed {
    provider: Arc<dyn CloudProvider>,
    clock: SharedClock,
    period: Duration,
    pool: NodePool,
    sent: Option<Arc<[InstanceType]>>,
    queue: VecDeque<CatalogChunk>,
    generation: u64,
    /// When prices were last read, as far as it was told since the last snapshot.
    prices_read_at: Option<Timestamp>,
    has_failed: bool,
}

impl CatalogFeed {
    pub(crate) fn new(
        provider: Arc<dyn CloudProvider>,
        clock: SharedClock,
        period: Duration,
        pool: NodePool,
    ) -> Self {
        Self {
            provider,
            clock,
            period,
            pool,
            sent: None,
            queue: VecDeque::new(),
            generation: 0,
            prices_read_at: None,
            has_failed: false,
        }
    }

    pub(crate) fn stream(self) -> impl Stream<Item = Result<CatalogChunk, Status>> + Send {
        futures::stream::unfold(self, |mut feed| async move {
            if feed.has_failed {
                return None;
            }
            let next = feed.next().await;
            feed.has_failed = next.is_err();
            Some((next, feed))
        })
    }

    async fn next(&mut self) -> Result<CatalogChunk, Status> {
        loop {
            if let Some(chunk) = self.queue.pop_front() {
                return Ok(chunk);
            }
            let types = self.provider.instance_types(&self.pool).await;
            let types = types.map_err(|error| status(&error))?;
            self.take(types);
            self.tell_prices();
            if self.queue.is_empty() {
                self.clock.sleep(self.period).await;
            }
        }
    }

    fn take(&mut self, types: Arc<[InstanceType]>) {
        let deltas = match &self.sent {
            Some(sent) if Arc::ptr_eq(sent, &types) => return,
            Some(sent) => changes(sent, &types),
            None => None,
        };
        match deltas {
            Some(deltas) => {
                for some in deltas.chunks(1000) {
                    self.queue.push_back(CatalogChunk {
                        generation: self.generation,
                        deltas: some.to_vec(),
                        ..CatalogChunk::default()
                    });
                }
            }
            None => {
                self.generation += 1;
                self.queue = snapshot(self.generation, &types);
                self.prices_read_at = None;
            }
        }
        self.sent = Some(types);
    }

    /// Says when prices were read: with what is sent anyway, or alone.
    fn tell_prices(&mut self) {
        let PriceFeed::Since(read_at) = self.provider.price_feed() else {
            return;
        };
        if self.prices_read_at == Some(read_at) {
            return;
        }
        self.prices_read_at = Some(read_at);
        if self.queue.is_empty() {
            self.queue.push_back(CatalogChunk {
                generation: self.generation,
                ..CatalogChunk::default()
            });
        }
        if let Some(last) = self.queue.back_mut() {
            last.prices_read_at = Some(convert::timestamp_message(read_at));
        }
    }
}
