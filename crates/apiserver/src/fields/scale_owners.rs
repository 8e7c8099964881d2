//! Who owns the number of replicas when it is written through the scale subresource, in which an object has no other field.

use serde_json::Value;

use crate::fields::field_managers::{Entry, entries, store};
use crate::fields::field_set::Fields;
use crate::fields::managed_fields::{Conflict, Writer, describe};

/// The version in which a Scale shows whoever has updated the number.
const SCALE: &str = "autoscaling/v1";

fn owns(fields: &Fields, path: &[&str]) -> bool {
    path.iter()
        .try_fold(fields, |here, name| here.below.get(&format!("f:{name}")))
        .is_some_and(|leaf| leaf.own)
}

/// What applying another number conflicts with: everybody else who owns it.
pub(crate) fn conflicts(old: &Value, path: &[&str], writer: &Writer<'_>) -> Vec<Conflict> {
    let mut others = entries(old);
    others.retain(|entry| !entry.is_of(writer, "Apply") && owns(&entry.fields, path));
    let conflict = |mut entry: Entry| {
        SCALE.clone_into(&mut entry.api_version);
        Conflict {
            manager: describe(&entry),
            field: ".spec.replicas".to_owned(),
        }
    };
    others.into_iter().map(conflict).collect()
}

/// Writes down who has scaled: a separate entry for the scale subresource. `is_other`: another number than before, which nobody else owns. Whoever applies the one
/// that is there owns it with the others.
pub(crate) fn scaled(
    old: &Value,
    new: &mut Value,
    path: &[&str],
    writer: &Writer<'_>,
    operation: &str,
    is_other: bool,
) {
    let mut known = entries(old);
    let mut replicas = Fields::default();
    let leaf = path
        .iter()
        .fold(&mut replicas, |here, name| here.below.entry(&format!("f:{name}")));
    leaf.own = true;
    for entry in &mut known {
        if is_other && !entry.is_of(writer, operation) {
            entry.fields.subtract(&replicas);
        }
    }
    if !known.iter().any(|entry| entry.is_of(writer, operation)) {
        known.push(Entry::new(writer, operation));
    }
    if let Some(entry) = known.iter_mut().find(|entry| entry.is_of(writer, operation)) {
        entry.fields.union(&replicas);
    }
    store(new, known);
}
