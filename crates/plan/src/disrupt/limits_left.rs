//! Whether NodePools still have room under their limits for the replacements of a command, right before these are made (invariant 15).
//!
//! A command is decided as if the nodes of others under way were gone. When one of these is rolled back its nodes stay, and what was free is not.

use std::collections::{BTreeMap, BTreeSet};

use spokeshave_api::disruption::{Disruption, Replacement};
use spokeshave_model::snapshot::{PoolView, Snapshot};
use spokeshave_model::{ResourceName, labels};

/// Why the replacements that are still missing would bring a NodePool above a limit; `None` when they do not. `there` says of each replacement whether
/// it exists. A replacement counts as the largest of its instance types, as it did when it was planned.
pub fn beyond_limits(disruption: &Disruption, there: &[bool], snapshot: &Snapshot) -> Option<String> {
    if disruption.spec.method.is_static() {
        // Its replacements are counted by the number of nodes (P §8.4), which the NodePool's controller keeps.
        return None;
    }
    let replacements = disruption.spec.replacements.iter().zip(there);
    let mut planned: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for (replacement, _) in replacements.filter(|(_, there)| !**there) {
        let view = snapshot.pool(snapshot.find_pool(&replacement.node_pool)?);
        for (resource, limit) in view.limits.iter() {
            let planned = planned.entry((&replacement.node_pool, resource)).or_default();
            *planned = planned.saturating_add(largest(replacement, view, resource));
            let usage = view.usage.get(resource).saturating_add(*planned);
            if usage > limit {
                let amount = |value| ResourceName::format(resource, value);
                return Some(format!(
                    "its replacements would bring NodePool {} to {} of {resource}, and its limit is {}",
                    view.name,
                    amount(usage),
                    amount(limit)
                ));
            }
        }
    }
    None
}

/// The most that an instance of a replacement may have of a resource.
fn largest(replacement: &Replacement, view: &PoolView, resource: &str) -> i64 {
    if resource == ResourceName::NODES {
        return 1;
    }
    let mut requirements = replacement.spec.requirements.iter();
    let names = requirements.find(|one| one.key == labels::INSTANCE_TYPE);
    let names: BTreeSet<&str> = names
        .into_iter()
        .flat_map(|one| one.values.iter().map(String::as_str))
        .collect();
    let types = view.instance_types.iter();
    let sizes = types
        .filter(|one| names.contains(one.name.as_str()))
        .map(|one| one.capacity.get(resource));
    sizes.max().unwrap_or_default()
}
