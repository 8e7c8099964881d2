//! Nodes as far as a provider's rules about their conditions need them (G-018).
//!
//! Owns the copy of Nodes. What a condition means is [`conditions`](crate::conditions).

use std::fmt::{Debug, Formatter};

use spokeshave_mirror::{Messages, Mirror, hear};
use spokeshave_ports::{SharedClock, WatchFailures};

use crate::conditions::read;
use crate::link::Link;

/// The cluster whose Nodes are looked at.
#[derive(Clone)]
pub struct KubeNodes {
    client: kube::Client,
    watch_failures: WatchFailures,
}

impl Debug for KubeNodes {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("KubeNodes")
    }
}

impl KubeNodes {
    /// The Nodes that this client reads.
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        KubeNodes {
            client,
            watch_failures: WatchFailures::default(),
        }
    }

    /// Those of the copy.
    pub(crate) fn watch_failures(&self) -> &WatchFailures {
        &self.watch_failures
    }

    /// Tells what conditions mean by the rules of the provider's last handshake, from the first rule that one has, for as long as it is polled.
    pub(crate) async fn hear(&self, link: &Link, clock: &SharedClock, messages: &Messages) {
        let has_rules = |link: &Link| (!link.identity().interruption_conditions.is_empty()).then_some(());
        link.until(has_rules).await;
        let copy = Mirror::default();
        let hearing = hear(
            &copy,
            clock,
            |provider_id, condition| read(&link.identity().interruption_conditions, provider_id, condition),
            |_, message| messages.tell(message),
        );
        let watching = copy.watch(self.client.clone(), clock, &self.watch_failures);
        futures::join!(watching, hearing);
    }
}
