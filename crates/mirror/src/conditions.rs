//! What conditions of Nodes tell of their machines' end: each of them once, as long as it stands (Z-055, G-018).
//!
//! Owns when they are looked at and which were told. What a condition means is the provider's.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use spokeshave_ports::{Interruption, SharedClock};

use crate::Mirror;

/// How often conditions are looked at.
const TICK: Duration = Duration::from_secs(1);

/// Reads the conditions of Nodes, those with a provider ID, for as long as it is polled. `read` makes a message of a condition, whose ID is the event's;
/// `tell` gets it when that event is new.
pub async fn hear(
    nodes: &Mirror<Node>,
    clock: &SharedClock,
    read: impl Fn(&str, &NodeCondition) -> Option<Interruption>,
    mut tell: impl FnMut(&Node, Interruption),
) {
    let mut told: BTreeSet<String> = BTreeSet::new();
    loop {
        let mut present = BTreeSet::new();
        for node in nodes.all().unwrap_or_default() {
            for message in messages(&node, &read) {
                if !told.contains(&message.id) && !present.contains(&message.id) {
                    tell(&node, message.clone());
                }
                present.insert(message.id);
            }
        }
        told = present;
        clock.sleep(TICK).await;
    }
}

fn messages(node: &Node, read: &impl Fn(&str, &NodeCondition) -> Option<Interruption>) -> Vec<Interruption> {
    let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    let Some(provider_id) = provider_id.filter(|id| !id.is_empty()) else {
        return Vec::new();
    };
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter_map(|condition| read(provider_id, condition))
        .collect()
}
