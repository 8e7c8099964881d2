//! The list of all instances as it streams in: whole, or not at all (G-011).
//!
//! Owns how much of it is believed. What an instance is as a NodeClaim is [`client`](crate::client).

use spokeshave_ports::CloudError;
use tonic::Status;

use crate::errors::cloud_error;
use crate::link::Client;
use crate::wire::{Instance, ListRequest};

/// More instances than any cluster has; a list that is longer is not believed.
const MOST_INSTANCES: usize = 200_000;
/// Bytes of so many instances, with room to spare.
const MOST_BYTES: usize = 256 << 20;

/// All instances, or an error.
///
/// # Errors
/// When the list does not end, ends without saying that it is complete, or cannot be had.
pub(crate) async fn receive(mut client: Client) -> Result<Vec<Instance>, CloudError> {
    let failed = |status: Status| match cloud_error("ListInstances", &status) {
        CloudError::NodeClaimNotFound(message) => CloudError::Other(format!("ListInstances: {message}")),
        error => error,
    };
    let stream = client.list_instances(ListRequest {}).await.map_err(failed)?;
    let mut stream = stream.into_inner();
    let mut instances = Vec::new();
    let mut bytes: usize = 0;
    while let Some(chunk) = stream.message().await.map_err(failed)? {
        bytes = bytes.saturating_add(prost::Message::encoded_len(&chunk));
        if bytes > MOST_BYTES {
            return Err(CloudError::Other(format!(
                "ListInstances: a list of more than {MOST_BYTES} bytes"
            )));
        }
        instances.extend(chunk.instances);
        if chunk.complete {
            return Ok(instances);
        }
        if instances.len() > MOST_INSTANCES {
            return Err(CloudError::Other(format!(
                "ListInstances: more than {MOST_INSTANCES} instances"
            )));
        }
    }
    Err(CloudError::Other(format!(
        "ListInstances: the list ended after {} instances without saying that it is complete",
        instances.len()
    )))
}
