//! What AWS has to say to users, on its way to Events.
//!
//! Owns the queue. It is bounded: what nobody reads is dropped, the newest first.

use std::sync::{Mutex, PoisonError};

use futures::channel::mpsc::{Receiver, Sender, channel};
use futures::stream::{self, StreamExt as _};
use spokeshave_api::{EC2NodeClass, NodeClaim, NodePool};
use spokeshave_ports::Notice;

/// Notices that wait to be read.
const LENGTH: usize = 256;

/// The queue.
#[derive(Debug)]
pub(crate) struct Notices {
    sender: Mutex<Sender<Notice>>,
    receiver: futures::lock::Mutex<Receiver<Notice>>,
}

impl Default for Notices {
    fn default() -> Self {
        let (sender, receiver) = channel(LENGTH);
        Notices {
            sender: Mutex::new(sender),
            receiver: futures::lock::Mutex::new(receiver),
        }
    }
}

/// The text of an error without the IDs of requests: they differ each time, and would make each failure an event of its own.
pub(crate) fn without_request_ids(error: &str) -> String {
    let mut parts = error.split(" (request ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    text
}

/// A notice about a NodePool.
pub(crate) fn of_pool(pool: &NodePool, is_warning: bool, reason: &'static str, message: String) -> Notice {
    Notice {
        api_version: "karpenter.sh/v1".to_owned(),
        kind: "NodePool".to_owned(),
        name: pool.name().to_owned(),
        uid: pool.metadata.uid.clone().unwrap_or_default(),
        is_warning,
        reason,
        message,
    }
}

/// A notice about a NodeClaim.
pub(crate) fn of_claim(claim: &NodeClaim, reason: &'static str, message: String) -> Notice {
    Notice {
        api_version: "karpenter.sh/v1".to_owned(),
        kind: "NodeClaim".to_owned(),
        name: claim.name().to_owned(),
        uid: claim.metadata.uid.clone().unwrap_or_default(),
        is_warning: true,
        reason,
        message,
    }
}

/// A notice about a class.
pub(crate) fn of_class(
    class: &EC2NodeClass,
    is_warning: bool,
    reason: &'static str,
    message: String,
) -> Notice {
    Notice {
        api_version: format!("{}/{}", EC2NodeClass::GROUP, EC2NodeClass::VERSION),
        kind: EC2NodeClass::KIND.to_owned(),
        name: class.name().to_owned(),
        uid: class.metadata.uid.clone().unwrap_or_default(),
        is_warning,
        reason,
        message,
    }
}

impl Notices {
    /// Queues a notice.
    pub(crate) fn tell(&self, notice: Notice) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.try_send(notice).is_err() {
            tracing::debug!("nobody reads the notices of AWS; one is dropped");
        }
    }

    /// The notices as they come; of several readers each gets some.
    pub(crate) fn read(&self) -> spokeshave_ports::Notices<'_> {
        let next = move |()| async move {
            let notice = self.receiver.lock().await.next().await?;
            Some((notice, ()))
        };
        stream::unfold((), next).boxed()
    }
}
