//! What AWS has to say to users, on its way to Events.
//!
//! Owns the queue, and what was told of calls that go on failing. The queue is bounded: what nobody reads is dropped, the newest first.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use futures::channel::mpsc::{Receiver, Sender, channel};
use futures::stream::{self, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
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

/// Kubernetes keeps an event for an hour; what is still denied is told again.
const TELL_AGAIN: SignedDuration = SignedDuration::from_hours(1);

/// What was told: by class and call, the text and when.
#[derive(Debug, Default)]
pub(crate) struct Hindrances(Mutex<BTreeMap<(String, &'static str), (String, Timestamp)>>);

impl Hindrances {
    /// Whether this is to be told now; it counts as told then.
    pub(crate) fn is_news(&self, class: &str, call: &'static str, text: &str, now: Timestamp) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (class.to_owned(), call);
        let known = told.get(&key);
        if known.is_some_and(|(known, at)| known == text && now.duration_since(*at) < TELL_AGAIN) {
            return false;
        }
        told.insert(key, (text.to_owned(), now));
        true
    }

    pub(crate) fn forget(&self, exists: impl Fn(&str) -> bool) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|(class, _), _| exists(class));
    }
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
