//! Which fields a write leaves alone, by what it goes through. It owns none of them.

use crate::fields::field_set::Fields;

/// What a resize of a pod writes. `*` is every container.
const RESOURCES: &[&[&str]] = &[
    &["spec", "resources"],
    &["spec", "containers", "*", "resources"],
    &["spec", "containers", "*", "resizePolicy"],
    &["spec", "initContainers", "*", "resources"],
    &["spec", "initContainers", "*", "resizePolicy"],
];

/// Fields that a write never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// Every field can be written.
    Nothing,
    /// `status` is a separate subresource.
    Status,
    /// The status subresource of a core kind.
    Spec,
    /// The status subresource of a custom kind.
    AllButStatus,
    /// The subresource of a pod through which it is resized.
    AllButResources,
    /// The subresource of a pod through which containers for debugging come.
    AllButEphemeralContainers,
}

impl Reset {
    pub(super) fn apply(self, fields: &mut Fields) {
        match self {
            Self::Nothing => {}
            Self::Status => fields.remove_tree(&["status"]),
            Self::Spec => {
                fields.remove_tree(&["spec"]);
                fields.remove_tree(&["metadata", "ownerReferences"]);
                fields.remove_tree(&["metadata", "deletionTimestamp"]);
            }
            Self::AllButStatus => fields.below.retain(|step, _| step == "f:status"),
            Self::AllButResources => keep_trees(fields, RESOURCES),
            Self::AllButEphemeralContainers => keep_trees(fields, &[&["spec", "ephemeralContainers"]]),
        }
    }
}

/// Keeps the places reached by paths of field names, with all below and the elements on the way to them.
fn keep_trees(fields: &mut Fields, paths: &[&[&str]]) {
    fields.below.retain(|step, child| {
        let mut rests: Vec<&[&str]> = Vec::new();
        for path in paths {
            if let Some((name, rest)) = path.split_first()
                && (*name == "*" || step.strip_prefix("f:") == Some(*name))
            {
                rests.push(rest);
            }
        }
        if rests.iter().any(|rest| rest.is_empty()) {
            return true;
        }
        keep_trees(child, &rests);
        !rests.is_empty() && !child.is_empty()
    });
}
