//! The label keys that scheduling treats specially: well-known, restricted, and their older aliases (P §1.7).

pub use spokeshave_api::labels::{
    ARCH, CAPACITY_TYPE, HOSTNAME, INITIALIZED, INSTANCE_TYPE, NODE_POOL, OS, REGION, REGISTERED, WELL_KNOWN,
    WINDOWS_BUILD, ZONE, normalized as normalize, normalized_value as normalize_value,
};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The hostname of a node that has none yet, because it is to be launched.
pub const PLANNED_HOST: &str = "hostname-placeholder";

/// What stands among requirements for the hosts that nothing names. No label has such a value.
pub const OTHER_HOST: &str = "another host";

/// Before the name of a node, the key of what stands for that name among requirements: affinity may ask for a node by name (`matchFields`), which is no label.
/// No label has such a key. The node of the name has it, and neither another nor one that is to be launched.
const NODE_NAME: &str = "field:metadata.name=";

/// What stands for the name of a node among requirements.
pub fn node_name_key(name: &str) -> String {
    format!("{NODE_NAME}{name}")
}

/// The name of a node that this key stands for, if it does.
pub fn named_node(key: &str) -> Option<&str> {
    key.strip_prefix(NODE_NAME)
}

/// Whether one of these keys, which are in order, stands for the name of a node.
pub(crate) fn name_nodes<V>(keys: &BTreeMap<String, V>) -> bool {
    let mut from = keys.range::<str, _>((Bound::Included(NODE_NAME), Bound::Unbounded));
    from.next().is_some_and(|(key, _)| named_node(key).is_some())
}

/// True when users may not use the label (P-037), and of what is no label.
pub fn is_restricted(key: &str) -> bool {
    named_node(key).is_some() || spokeshave_api::labels::is_restricted(key)
}

/// Whether a label of a node counts: where the node has the canonical one as well, what means the same does not.
pub fn counts(key: &str, labels: &BTreeMap<String, String>) -> bool {
    let canonical = normalize(key);
    canonical == key || !labels.contains_key(canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_037_restricted_domains_include_sub_domains_but_not_well_known_keys() {
        for (key, expected) in [
            ("karpenter.sh/initialized", true),
            ("foo.karpenter.sh/x", true),
            ("notkarpenter.sh/x", false),
            ("karpenter.sh/nodepool", false),
            ("karpenter.sh/capacity-type", false),
            ("kubernetes.io/hostname", true),
            ("team", false),
        ] {
            assert_eq!(is_restricted(key), expected, "{key}");
        }
    }

    #[test]
    fn p_040_what_stands_for_the_name_of_a_node_is_no_label() {
        let key = node_name_key("n-1");
        assert_eq!(named_node(&key), Some("n-1"));
        assert!(is_restricted(&key));
        let observed = |keys: &[&str]| {
            let keys = keys.iter().map(|key| ((*key).to_owned(), 1));
            name_nodes(&keys.collect::<BTreeMap<String, u32>>())
        };
        assert!(observed(&["a", &key, "z"]));
        assert!(!observed(&["a", "field", "metadata.name", "z"]));
    }
}
