//! What the cloud wants users to read, as Events.
//!
//! Owns the way from the provider to the recorder. What is said, and when, is the provider's.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ObjectReference;
use spokeshave_ports::{CloudProvider as _, Notice};
use spokeshave_runtime::{EventKind, EventNotice, Shutdown};

use crate::act::hands::Hands;
use crate::cloud::Measured;

/// Publishes the notices of the cloud until shutdown.
pub(crate) async fn publish(cloud: Measured, hands: Hands, shutdown: Shutdown) {
    let Some(mut notices) = cloud.notices() else {
        return;
    };
    while let Some(Some(notice)) = shutdown.cut(notices.next()).await {
        hands.publish(event(notice));
    }
}

fn event(notice: Notice) -> EventNotice {
    let object = ObjectReference {
        api_version: Some(notice.api_version),
        kind: Some(notice.kind),
        name: Some(notice.name),
        uid: Some(notice.uid.clone()),
        ..ObjectReference::default()
    };
    let kind = if notice.is_warning {
        EventKind::Warning
    } else {
        EventKind::Normal
    };
    let mut event = EventNotice::new(object, kind, notice.reason, notice.message.clone());
    event.dedupe_values = vec![notice.uid, notice.message];
    event
}
