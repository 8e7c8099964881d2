//! Nodes as far as a provider's rules about their conditions need them (G-018).
//!
//! Owns the copy of Nodes. What a condition means is [`conditions`](crate::conditions).

use std::fmt::{Debug, Formatter};

use spokeshave_mirror::{Messages, Mirror, hear};
use spokeshave_ports::SharedClock;

use crate::conditions::read;
use crate::link::Link;

/// The cluster whose Nodes are looked at.
#[derive(Clone)]
pub struct KubeNodes(pub kube::Client);

impl Debug for KubeNodes {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("KubeNodes")
    }
}

impl KubeNodes {
    /// Tells what conditions mean by the rules of the provider's last handshake, for as long as it is polled.
    pub(crate) async fn hear(&self, link: &Link, clock: &SharedClock, messages: &Messages) {
        let copy = Mirror::default();
        let hearing = hear(
            &copy,
            clock,
            |provider_id, condition| read(&link.identity().interruption_conditions, provider_id, condition),
            |_, message| messages.tell(message),
        );
        futures::join!(copy.watch(self.0.clone(), clock), hearing);
    }
}
