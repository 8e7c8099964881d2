//! Rules that NodePools and NodeOverlays must meet beyond their schemas (P §1.8); they feed the condition `ValidationSucceeded`.
//!
//! Older storage and other API servers can hold what the schema would refuse. All failures are collected, none stops the others.

use k8s_openapi::api::core::v1::Taint;
use spokeshave_syntax::names::{label_value_problems, qualified_name_problems};

use crate::kinds::node_overlay::NodeOverlay;
use crate::kinds::node_pool::NodePool;
use crate::kinds::{Operator, Requirement};
use crate::labels;

/// As Go prints a list of them.
const SUPPORTED_OPERATORS: &str = "[In NotIn Exists DoesNotExist Gt Lt Gte Lte]";

/// A provider's additions to the labels that users may name.
#[derive(Debug, Clone, Default)]
pub struct LabelRules {
    /// Further domains that users may not use.
    pub restricted_domains: Vec<String>,
    /// Further labels that are well known.
    pub well_known: Vec<String>,
    /// Labels of upstream's provider that this one does not have, each with the reason.
    pub unsupported: Vec<(String, String)>,
}

impl LabelRules {
    /// Why users may not use the label; `None` when they may.
    #[must_use]
    pub fn restriction(&self, key: &str) -> Option<String> {
        if let Some((_, reason)) = self
            .unsupported
            .iter()
            .find(|(unsupported, _)| unsupported == key)
        {
            return Some(format!("label {key} is not supported: {reason}"));
        }
        let domains: Vec<&str> = self.restricted_domains.iter().map(String::as_str).collect();
        let well_known: Vec<&str> = self.well_known.iter().map(String::as_str).collect();
        if !labels::is_restricted_with(key, &domains, &well_known) {
            return None;
        }
        let mut known: Vec<&str> = labels::WELL_KNOWN
            .iter()
            .copied()
            .chain(well_known.iter().copied())
            .collect();
        known.sort_unstable();
        known.dedup();
        let mut domains: Vec<&str> = std::iter::once(labels::RESTRICTED_DOMAIN)
            .chain(domains)
            .collect();
        domains.sort_unstable();
        Some(format!(
            "using label {key} is not allowed as it might interfere with the internal provisioning logic; specify a well known label: [{}], or a custom label that does not use a restricted domain: [{}]",
            known.join(" "),
            domains.join(" ")
        ))
    }
}

/// All failures of a NodePool, to be joined with `; `; empty when it is valid (P-018).
#[must_use]
pub fn node_pool_failures(pool: &NodePool, rules: &LabelRules) -> Vec<String> {
    let template = &pool.spec.template;
    let mut failures = Vec::new();
    for (key, value) in &template.metadata.labels {
        label_failures(key, value, rules, &mut failures);
    }
    taint_failures(
        &template.spec.taints,
        &template.spec.startup_taints,
        &mut failures,
    );
    list_failures(&template.spec.requirements, rules, &mut failures);
    for requirement in &template.spec.requirements {
        if requirement.key == labels::NODE_POOL {
            failures.push(format!(
                "invalid key: {:?} in requirements, restricted",
                requirement.key
            ));
        }
    }
    failures
}

/// All failures of a NodeOverlay; empty when it is valid (P §1.8). Conflicts between overlays are not its own failures.
#[must_use]
pub fn node_overlay_failures(overlay: &NodeOverlay, rules: &LabelRules) -> Vec<String> {
    let mut failures = Vec::new();
    list_failures(&overlay.spec.requirements, rules, &mut failures);
    for requirement in &overlay.spec.requirements {
        if requirement.operator == Operator::NotIn && requirement.values.is_empty() {
            let key = labels::normalized(&requirement.key);
            failures.push(format!("key {key} with operator NotIn must have a value defined"));
        }
    }
    for resource in overlay.spec.capacity.keys() {
        if labels::WELL_KNOWN_RESOURCES.contains(&resource.as_str()) {
            failures.push(format!("invalid capacity: {resource} in resource, restricted"));
        }
    }
    failures
}

/// One failure for each requirement that has any.
fn list_failures(requirements: &[Requirement], rules: &LabelRules, failures: &mut Vec<String>) {
    for requirement in requirements {
        let mut own = Vec::new();
        requirement_failures(requirement, rules, &mut own);
        if !own.is_empty() {
            failures.push(format!(
                "invalid value: {} in requirements, restricted",
                own.join("; ")
            ));
        }
    }
}

fn label_failures(key: &str, value: &str, rules: &LabelRules, failures: &mut Vec<String>) {
    if key == labels::NODE_POOL {
        failures.push(format!("invalid key name {key:?} in labels, restricted"));
    }
    for problem in qualified_name_problems(key) {
        failures.push(format!("invalid key name {key:?} in labels, {problem:?}"));
    }
    for problem in label_value_problems(value) {
        failures.push(format!("invalid value: {value} for label[{key}], {problem}"));
    }
    if let Some(problem) = rules.restriction(key) {
        failures.push(format!("invalid key name {key:?} in labels, {problem}"));
    }
}

fn taint_failures(taints: &[Taint], startup_taints: &[Taint], failures: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    for (list, name) in [(taints, "taints"), (startup_taints, "startupTaints")] {
        for taint in list {
            let value = taint.value.as_deref().filter(|value| !value.is_empty());
            let problems = qualified_name_problems(&taint.key).into_iter();
            for problem in problems.chain(value.into_iter().flat_map(qualified_name_problems)) {
                failures.push(format!("invalid value: {problem} in {name}"));
            }
            if !["", "NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&taint.effect.as_str()) {
                failures.push(format!("invalid value: {} in {name}", taint.effect));
            }
            if !seen.insert((&taint.key, &taint.effect)) {
                failures.push(format!(
                    "duplicate taint Key/Effect pair {}={}",
                    taint.key, taint.effect
                ));
            }
        }
    }
}

/// Failures of one requirement; also used for the selectors of pods (P §5.2).
pub fn requirement_failures(requirement: &Requirement, rules: &LabelRules, failures: &mut Vec<String>) {
    let key = labels::normalized(&requirement.key);
    let operator = &requirement.operator;
    if let Operator::Other(_) = operator {
        failures.push(format!(
            "key {key} has an unsupported operator {operator} not in {SUPPORTED_OPERATORS}"
        ));
    }
    if let Some(problem) = rules.restriction(key) {
        failures.push(problem);
    }
    for problem in qualified_name_problems(key) {
        failures.push(format!("key {key} is not a qualified name, {problem}"));
    }
    for value in &requirement.values {
        for problem in label_value_problems(value) {
            failures.push(format!("invalid value {value} for key {key}, {problem}"));
        }
    }
    if *operator == Operator::In {
        if requirement.values.is_empty() {
            failures.push(format!(
                "key {key} with operator {operator} must have a value defined"
            ));
        }
        if let Some(wanted) = requirement.min_values
            && usize::try_from(wanted).is_ok_and(|wanted| requirement.values.len() < wanted)
        {
            failures.push(format!(
                "key {key} with operator {operator} must have at least minimum number of values defined in 'values' field"
            ));
        }
        known_value_failures(key, requirement, failures);
    }
    let numeric = matches!(
        operator,
        Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte
    );
    let integer =
        matches!(&requirement.values[..], [value] if value.parse::<i64>().is_ok_and(|value| value >= 0));
    if numeric && !integer {
        failures.push(format!(
            "key {key} with operator {operator} must have a single positive integer value"
        ));
    }
}

/// Capacity types are a closed set: unknown ones beside known ones are harmless, only unknown ones are not (P-020).
fn known_value_failures(key: &str, requirement: &Requirement, failures: &mut Vec<String>) {
    if key != labels::CAPACITY_TYPE || requirement.values.is_empty() {
        return;
    }
    let known = |value: &&String| labels::CAPACITY_TYPES.contains(&value.as_str());
    let valid = requirement.values.iter().filter(known).count();
    let (values, all) = (requirement.values.join(" "), labels::CAPACITY_TYPES.join(" "));
    if valid == 0 {
        failures.push(format!(
            "no valid values found in [{values}] for {key}, expected one of: [{all}], got: [{values}]"
        ));
    } else if let Some(wanted) = requirement.min_values
        && usize::try_from(wanted).is_ok_and(|wanted| valid < wanted)
    {
        failures.push(format!(
            "not enough valid values found in [{values}] for {key}, expected at least {wanted} valid values from: [{all}], got: [{values}]"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodePoolSpec;
    use serde_json::{Value, json};

    fn failures(template: Value) -> String {
        let mut spec =
            json!({"template": {"spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}}}});
        let (metadata, template_spec) = (template["metadata"].clone(), template["spec"].clone());
        if metadata.is_object() {
            spec["template"]["metadata"] = metadata;
        }
        for (key, value) in template_spec.as_object().into_iter().flatten() {
            spec["template"]["spec"][key] = value.clone();
        }
        let pool = NodePool::new("pool", serde_json::from_value::<NodePoolSpec>(spec).unwrap());
        node_pool_failures(&pool, &LabelRules::default()).join("; ")
    }

    #[test]
    fn p_018_failures_and_their_texts() {
        for (template, expected) in [
            (
                json!({"metadata": {"labels": {"karpenter.sh/nodepool": "x"}}}),
                r#"invalid key name "karpenter.sh/nodepool" in labels, restricted"#,
            ),
            (
                json!({"metadata": {"labels": {"a b": "x"}}}),
                r#"invalid key name "a b" in labels, "name part must consist of"#,
            ),
            (
                json!({"metadata": {"labels": {"a": "x y"}}}),
                "invalid value: x y for label[a], a valid label must be",
            ),
            (
                json!({"metadata": {"labels": {"karpenter.sh/custom": "x"}}}),
                r#"invalid key name "karpenter.sh/custom" in labels, using label karpenter.sh/custom is not allowed as it might interfere"#,
            ),
            (
                json!({"spec": {"taints": [{"key": "a?", "effect": "NoSchedule"}]}}),
                "in taints",
            ),
            (
                json!({"spec": {"startupTaints": [{"key": "a", "value": "???", "effect": "NoSchedule"}]}}),
                "in startupTaints",
            ),
            (
                json!({"spec": {"taints": [{"key": "a", "effect": "Never"}]}}),
                "invalid value: Never in taints",
            ),
            (
                json!({"spec": {"requirements": [{"key": "a", "operator": "Like", "values": ["x"]}]}}),
                "invalid value: key a has an unsupported operator Like not in [In NotIn Exists DoesNotExist Gt Lt Gte Lte] in requirements, restricted",
            ),
            (
                json!({"spec": {"requirements": [{"key": "a", "operator": "In"}]}}),
                "invalid value: key a with operator In must have a value defined in requirements, restricted",
            ),
            (
                json!({"spec": {"requirements": [{"key": "a", "operator": "In", "values": ["x"], "minValues": 2}]}}),
                "must have at least minimum number of values",
            ),
            (
                json!({"spec": {"requirements": [{"key": "a", "operator": "Gt", "values": ["-1"]}]}}),
                "key a with operator Gt must have a single positive integer value",
            ),
            (
                json!({"spec": {"requirements": [{"key": "a", "operator": "Lte", "values": ["1", "2"]}]}}),
                "must have a single positive integer value",
            ),
            (
                json!({"spec": {"requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["x"]}]}}),
                r#"invalid key: "karpenter.sh/nodepool" in requirements, restricted"#,
            ),
            (
                json!({"spec": {"requirements": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["x"]}]}}),
                "using label kubernetes.io/hostname is not allowed",
            ),
            (
                json!({"spec": {"requirements": [{"key": "a", "operator": "In", "values": ["x y"]}]}}),
                "invalid value x y for key a",
            ),
        ] {
            let found = failures(template.clone());
            assert!(found.contains(expected), "{template}\n found: {found}");
        }
        assert_eq!(failures(json!({})), "");
    }

    #[test]
    fn p_018_failures_accumulate() {
        let found = failures(
            json!({"spec": {"requirements": [{"key": "a", "operator": "In"}, {"key": "b", "operator": "Gt", "values": ["x"]}]}}),
        );
        assert_eq!(found.split("; ").count(), 2, "{found}");
    }

    #[test]
    fn p_019_the_same_key_and_effect_only_once_in_both_lists() {
        let taint = json!({"key": "a", "effect": "NoSchedule"});
        let found = failures(json!({"spec": {"taints": [taint.clone()], "startupTaints": [taint]}}));
        assert_eq!(found, "duplicate taint Key/Effect pair a=NoSchedule");
        let other = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]}});
        assert_eq!(
            failures(other),
            "",
            "P-012: the same key with different effects is fine"
        );
    }

    #[test]
    fn p_020_capacity_types() {
        let requirement = |values: Value| json!({"spec": {"requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": values}]}});
        assert_eq!(failures(requirement(json!(["spot", "cheap"]))), "");
        assert!(failures(requirement(json!(["cheap"]))).contains(
            "no valid values found in [cheap] for karpenter.sh/capacity-type, expected one of: [on-demand reserved spot], got: [cheap]"
        ));
        let few = json!({"spec": {"requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "cheap"], "minValues": 2}
        ]}});
        assert!(failures(few).contains("expected at least 2 valid values from"));
    }

    #[test]
    fn p_018_names_in_kubernetes_words() {
        for (name, problems) in [
            ("a", 0),
            ("a.b/c", 0),
            ("", 2),
            ("/a", 1),
            ("A.b/c", 1),
            ("a/b/c", 1),
            ("a/", 2),
            ("-a", 1),
            (&"a".repeat(64), 1),
        ] {
            assert_eq!(qualified_name_problems(name).len(), problems, "{name:?}");
        }
        assert!(
            qualified_name_problems("a b")[0]
                .ends_with("regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')")
        );
        assert!(label_value_problems("").is_empty() && label_value_problems(&"-".repeat(64)).len() == 2);
    }

    #[test]
    fn p_018_aliases_are_normalised_first() {
        let zone = json!({"spec": {"requirements": [{"key": "failure-domain.beta.kubernetes.io/zone", "operator": "In"}]}});
        assert!(failures(zone).contains("key topology.kubernetes.io/zone with operator In"));
    }

    #[test]
    fn p_013_overlays() {
        let spec = json!({
            "requirements": [{"key": "a", "operator": "NotIn"}, {"key": "karpenter.sh/custom", "operator": "Exists"}],
            "capacity": {"cpu": "1", "example.com/x": "1"},
        });
        let overlay = NodeOverlay::new("overlay", serde_json::from_value(spec).unwrap());
        let found = node_overlay_failures(&overlay, &LabelRules::default());
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("invalid value: using label karpenter.sh/custom is not allowed"));
        assert_eq!(found[1], "key a with operator NotIn must have a value defined");
        assert_eq!(found[2], "invalid capacity: cpu in resource, restricted");
    }
}
