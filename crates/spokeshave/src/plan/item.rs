//! One object of a cluster that is followed, read as the same object of a file is.
//!
//! An object that cannot be read is kept as such: it is counted and named, and costs nothing else.

use std::sync::Arc;

use k8s_openapi::api::storage::v1::VolumeAttachment;
use spokeshave_model::Pod;

use super::dump::Dump;
use super::object::{self, Found};
use super::unreadable::{Unreadable, stand_in};
use crate::field;

/// An object that may be shown again and again.
#[derive(Debug)]
pub(crate) struct Item(Kept);

#[derive(Debug)]
enum Kept {
    Pod(Arc<Pod>),
    Other(Box<Found>),
    /// Decisions do not read it.
    Attachment(Arc<VolumeAttachment>),
    Unreadable(Box<Unreadable>),
}

impl Item {
    /// Reads an object of this version and kind, which has this name and stands in this list, from its JSON.
    pub(crate) fn read(identity: &(String, String), name: &str, path: &str, text: &str) -> Self {
        let kept = if identity.1 == "VolumeAttachment" {
            serde_json::from_str(text).map(|object| Kept::Attachment(Arc::new(object)))
        } else {
            object::read(text, Some(identity)).map(|found| match found {
                Found::Pod(pod) => Kept::Pod(Arc::new(pod)),
                found => Kept::Other(Box::new(found)),
            })
        };
        Item(kept.unwrap_or_else(|error| {
            let object = serde_json::from_str::<serde_json::Value>(text).ok();
            Kept::Unreadable(Box::new(Unreadable {
                kind: identity.1.clone(),
                object: format!("{} {name}", identity.1),
                file: String::new(),
                place: path.to_owned(),
                problem: field::problem(text, &error),
                stand_in: stand_in(&identity.0, &identity.1, object.as_ref()),
            }))
        }))
    }

    /// Adds it to the objects that decisions read; a VolumeAttachment is none.
    pub(crate) fn add_to(&self, dump: &mut Dump) {
        match &self.0 {
            Kept::Pod(pod) => {
                dump.objects += 1;
                dump.pods.push(Arc::clone(pod));
            }
            Kept::Other(found) => dump.take_in(Found::clone(found)),
            Kept::Attachment(_) => {}
            Kept::Unreadable(unreadable) => dump.take_in_unreadable(Unreadable::clone(unreadable)),
        }
    }

    /// The VolumeAttachment, if it is one.
    pub(crate) fn attachment(&self) -> Option<&Arc<VolumeAttachment>> {
        match &self.0 {
            Kept::Attachment(attachment) => Some(attachment),
            _ => None,
        }
    }
}
