//! What the log says of a command when it starts (D-106), read from its object.
//!
//! Owns the values, not the line. It decides nothing.

use serde_json::{Value, json};
use spokeshave_api::disruption::{Disruption, DisruptionSpec, Replacement};
use spokeshave_api::labels;
use spokeshave_model::Price;

use super::command::command_text;

/// Instance types that are named; of others only the number is.
const NAMED_TYPES: usize = 5;

/// `<Reason>/<id>: <decision>: nodepools=[…]: [nodes] -> [k replacements] (savings: $0.00)`.
#[must_use]
pub fn text(disruption: &Disruption) -> String {
    let spec = &disruption.spec;
    let price = |text: &str| text.parse().unwrap_or(Price::ZERO);
    command_text(
        (&spec.reason.to_string(), disruption.name()),
        &spec.decision.to_string().to_lowercase(),
        spec.nodes
            .iter()
            .map(|node| (node.node_pool.as_str(), node.name.as_str())),
        spec.replacements.len(),
        price(&spec.price_before).saturating_sub(price(&spec.price_after)),
    )
}

/// The nodes that go, each with its instance type and capacity type.
#[must_use]
pub fn disrupted_nodes(spec: &DisruptionSpec) -> Value {
    let nodes = spec.nodes.iter().map(|node| {
        json!({
            "Node": {"name": node.name},
            "NodeClaim": {"name": node.node_claim},
            "capacity-type": node.capacity_type.as_deref().unwrap_or_default(),
            "instance-type": node.instance_type.as_deref().unwrap_or_default(),
        })
    });
    nodes.collect()
}

/// What comes instead: the capacity type that is tried first, and for a single node its first instance types.
#[must_use]
pub fn replacement_nodes(spec: &DisruptionSpec) -> Value {
    let of = |one: &Replacement| {
        let mut value = json!({"capacity-type": capacity_type(one)});
        if spec.replacements.len() == 1 {
            value["instance-types"] = json!(first_types(one));
        }
        value
    };
    spec.replacements.iter().map(of).collect()
}

fn values<'a>(replacement: &'a Replacement, key: &str) -> Option<&'a [String]> {
    let mut requirements = replacement.spec.requirements.iter();
    let found = requirements.find(|requirement| requirement.key == key);
    found.map(|requirement| requirement.values.as_slice())
}

/// Reserved before spot before on-demand, as a launch tries them.
fn capacity_type(replacement: &Replacement) -> &'static str {
    let allowed = values(replacement, labels::CAPACITY_TYPE).unwrap_or_default();
    let has = |wanted: &str| allowed.iter().any(|one| one == wanted);
    if has(labels::CAPACITY_TYPE_RESERVED) {
        labels::CAPACITY_TYPE_RESERVED
    } else if has(labels::CAPACITY_TYPE_SPOT) {
        labels::CAPACITY_TYPE_SPOT
    } else {
        labels::CAPACITY_TYPE_ON_DEMAND
    }
}

fn first_types(replacement: &Replacement) -> String {
    let types = values(replacement, labels::INSTANCE_TYPE).unwrap_or_default();
    let named = types
        .iter()
        .take(NAMED_TYPES)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match types.len().saturating_sub(NAMED_TYPES) {
        0 => named,
        others => format!("{named} and {others} other(s)"),
    }
}
