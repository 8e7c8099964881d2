//! Messages of a cloud about its instances: what is going to end, and when.

use futures::stream::BoxStream;
use jiff::Timestamp;
use spokeshave_model::interruption::InterruptionKind;

/// A message. It comes again until it is acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interruption {
    /// Names the message.
    pub id: String,
    /// The instance that it is about; empty when it is about none of this cluster (D-278).
    pub provider_id: String,
    /// What it says; the text of one that cannot be read (D-277).
    pub kind: Result<InterruptionKind, String>,
    /// When the cloud said so, if it tells.
    pub sent_at: Option<Timestamp>,
    /// When the instance ends whatever anybody does, if the cloud says so.
    pub ends_at: Option<Timestamp>,
}

/// The messages of a cloud, for as long as somebody listens.
pub type Interruptions<'a> = BoxStream<'a, Interruption>;
