//! Streams that never end, each chunk with something new in it.

use futures::{Stream, StreamExt as _};
use spokeshave_provider_grpc::wire;
use tonic::Status;

/// The same chunk for ever, each time with something else in it.
pub(crate) fn endless<T: Clone + Send + 'static>(
    first: Result<T, Status>,
    grow: fn(&mut T, usize),
) -> impl Stream<Item = Result<T, Status>> + Send {
    futures::stream::iter(0..).map(move |number| {
        let mut chunk = first.clone()?;
        grow(&mut chunk, number);
        Ok(chunk)
    })
}

/// Half a mebibyte of types that nobody has heard of.
pub(crate) fn grown_catalog(chunk: &mut wire::CatalogChunk, number: usize) {
    chunk.snapshot_complete = false;
    chunk.types.truncate(1);
    chunk.types[0].name = format!("{number}-{}", "x".repeat(1 << 19));
}

pub(crate) fn grown_list(chunk: &mut wire::InstanceChunk, number: usize) {
    chunk.complete = false;
    let mut one = chunk.instances[0].clone();
    one.provider_id = format!("shed://{number}-{}", "x".repeat(1 << 19));
    chunk.instances = vec![one];
}
