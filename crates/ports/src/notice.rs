//! What a provider wants users to read as Events.

use futures::stream::BoxStream;

/// Something worth an Event. Who publishes it decides what is a repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// `apiVersion` of the object that it is about.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name; cluster-scoped.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Whether something is wrong.
    pub is_warning: bool,
    /// Reason in CamelCase.
    pub reason: &'static str,
    /// Message for people. With object and reason it identifies the Event.
    pub message: String,
}

/// The notices of a provider, for as long as somebody listens.
pub type Notices<'a> = BoxStream<'a, Notice>;
