//! What the API server has and this version cannot read, as another version may have written it: no store has it, and yet it is not gone.
//!
//! Owns how it is found and what belongs to it. What is not done meanwhile is up to each controller.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use spokeshave_api::disruption::Disruption;
use spokeshave_runtime::{Object, Store};

/// Pause between two looks at what waits for it.
pub(super) const PAUSE: Duration = Duration::from_secs(10);

/// The names of what cannot be read of a kind.
pub(super) fn names<K: Object>(store: &Store<K>) -> BTreeSet<String> {
    store.rejected().into_iter().map(|(key, _)| key.name).collect()
}

/// What a look at a store finds, and the names of what cannot be read, before it or after it: the look may have missed what became readable or
/// unreadable meanwhile.
pub(super) fn beside<K: Object, Found>(
    store: &Store<K>,
    look: impl FnOnce() -> Found,
) -> (Found, BTreeSet<String>) {
    let mut unreadable = names(store);
    let found = look();
    unreadable.extend(names(store));
    (found, unreadable)
}

/// Which of these NodeClaims a Node without NodeClaim belongs to: its owner. A Node that names no owner may belong to any of them.
pub(super) fn claim_of_node<'a>(node: &Node, unreadable: &'a BTreeSet<String>) -> Option<&'a str> {
    let owners = node.metadata.owner_references.iter().flatten();
    let mut owners = owners.filter(|owner| owner.kind == "NodeClaim").peekable();
    let claim = if owners.peek().is_some() {
        owners.find_map(|owner| unreadable.get(&owner.name))
    } else {
        unreadable.first()
    };
    claim.map(String::as_str)
}

/// Those of these NodeClaims that bear the name of a NodePool and, as names are made, one word more.
pub(super) fn of_pool<'a>(
    unreadable: &'a BTreeSet<String>,
    pool: &'a str,
) -> impl Iterator<Item = &'a String> {
    unreadable.iter().filter(move |name| {
        let rest = name.strip_prefix(pool).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|word| !word.contains('-'))
    })
}

/// Which of these NodeClaims a command names, to remove it or to launch it.
pub(super) fn claim_of_command<'a>(
    disruption: &'a Disruption,
    unreadable: &BTreeSet<String>,
) -> Option<&'a str> {
    let spec = &disruption.spec;
    let nodes = spec.nodes.iter().map(|node| node.node_claim.as_str());
    let replacements = spec.replacements.iter().map(|one| one.node_claim.as_str());
    nodes.chain(replacements).find(|name| unreadable.contains(*name))
}
