//! Where a pod may run, by the rules of the Kubernetes documentation: selectors, affinity, taints, spread, ports. Written without a look at our
//! own scheduling.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinityTerm, PodSpec, Taint,
    Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::objects::{name, namespace, selects};
use crate::quantities::is_sidecar;

/// Labels of a namespace.
pub type Labels = BTreeMap<String, String>;

/// Whether a pod's required node affinity and node selector accept a node.
pub fn accepts_node(spec: &PodSpec, node: &Node) -> bool {
    let none = Labels::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let selected = spec
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    selected
        && required.is_none_or(|required| {
            required
                .node_selector_terms
                .iter()
                .any(|term| term_matches(term, labels, name(&node.metadata)))
        })
}

/// Whether one of a selector's terms accepts a node.
pub fn selector_accepts(selector: &NodeSelector, node: &Node) -> bool {
    let none = Labels::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    selector
        .node_selector_terms
        .iter()
        .any(|term| term_matches(term, labels, name(&node.metadata)))
}

/// Weight of the preferred node affinity terms that a node meets.
pub fn preference(spec: &PodSpec, node: &Node) -> i64 {
    let none = Labels::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let preferred = affinity.and_then(|affinity| {
        affinity
            .preferred_during_scheduling_ignored_during_execution
            .as_ref()
    });
    preferred
        .into_iter()
        .flatten()
        .filter(|term| term_matches(&term.preference, labels, name(&node.metadata)))
        .map(|term| i64::from(term.weight))
        .sum()
}

/// A term without any expression matches nothing.
fn term_matches(term: &NodeSelectorTerm, labels: &Labels, node_name: &str) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    expressions
        .iter()
        .all(|expression| expression_matches(expression, labels.get(&expression.key).map(String::as_str)))
        && fields
            .iter()
            .all(|field| field.key == "metadata.name" && expression_matches(field, Some(node_name)))
}

fn expression_matches(expression: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = expression.values.as_deref().unwrap_or_default();
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = values.first().and_then(|text| number(text));
    match (expression.operator.as_str(), value) {
        ("In", Some(value)) => values.iter().any(|wanted| wanted == value),
        ("NotIn", Some(value)) => values.iter().all(|unwanted| unwanted != value),
        ("NotIn" | "DoesNotExist", None) | ("Exists", Some(_)) => true,
        ("Gt", Some(value)) => number(value)
            .zip(bound)
            .is_some_and(|(value, bound)| value > bound),
        ("Lt", Some(value)) => number(value)
            .zip(bound)
            .is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// Whether a toleration matches a taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    (effect.is_empty() || effect == taint.effect)
        && (key == taint.key || key.is_empty() && exists)
        && (exists
            || toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default())
}

/// The first taint of the given effects that a pod does not tolerate.
pub fn untolerated<'a>(spec: &PodSpec, node: &'a Node, effects: &[&str]) -> Option<&'a Taint> {
    let taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.as_deref())
        .unwrap_or_default();
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    taints
        .iter()
        .filter(|taint| effects.contains(&taint.effect.as_str()))
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// Host ports that a pod occupies: address, port, protocol.
pub fn host_ports(spec: &PodSpec) -> Vec<(String, i32, String)> {
    let init = spec.init_containers.iter().flatten();
    let sidecars = init.filter(|container| is_sidecar(container));
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let address = port
                .host_ip
                .clone()
                .filter(|address| !address.is_empty())
                .unwrap_or_else(|| "0.0.0.0".to_owned());
            Some((
                address,
                number,
                port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            ))
        })
        .collect()
}

/// Whether two host ports exclude each other.
pub fn ports_conflict(left: &(String, i32, String), right: &(String, i32, String)) -> bool {
    let any = |address: &str| address == "0.0.0.0" || address == "::";
    left.1 == right.1 && left.2 == right.2 && (left.0 == right.0 || any(&left.0) || any(&right.0))
}

/// The value of a topology key on a node.
pub fn domain<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Whether an affinity term of `owner` speaks of `pod`.
pub fn term_selects(
    term: &PodAffinityTerm,
    owner: &Pod,
    pod: &Pod,
    namespaces: &BTreeMap<String, Labels>,
) -> bool {
    let pod_namespace = namespace(&pod.metadata);
    let listed = term.namespaces.as_deref().unwrap_or_default();
    let by_selector = term
        .namespace_selector
        .as_ref()
        .is_some_and(|selector| selects(Some(selector), namespaces.get(pod_namespace)));
    let in_scope = if listed.is_empty() && term.namespace_selector.is_none() {
        pod_namespace == namespace(&owner.metadata)
    } else {
        by_selector || listed.iter().any(|listed| listed == pod_namespace)
    };
    in_scope
        && selects(
            with_keys(
                term.label_selector.as_ref(),
                term.match_label_keys.as_deref(),
                owner,
            )
            .as_ref(),
            pod.metadata.labels.as_ref(),
        )
}

/// A selector narrowed to the owner's own values of some labels.
pub fn with_keys(
    selector: Option<&LabelSelector>,
    keys: Option<&[String]>,
    owner: &Pod,
) -> Option<LabelSelector> {
    let mut selector = selector?.clone();
    for key in keys.unwrap_or_default() {
        if let Some(value) = owner.metadata.labels.as_ref().and_then(|labels| labels.get(key)) {
            selector
                .match_expressions
                .get_or_insert_default()
                .push(LabelSelectorRequirement {
                    key: key.clone(),
                    operator: "In".to_owned(),
                    values: Some(vec![value.clone()]),
                });
        }
    }
    Some(selector)
}

/// Terms of required affinity to other pods.
pub fn required_affinity(spec: &PodSpec) -> &[PodAffinityTerm] {
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.pod_affinity.as_ref());
    affinity
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_deref()
        })
        .unwrap_or_default()
}

/// Terms of required anti-affinity to other pods.
pub fn required_anti_affinity(spec: &PodSpec) -> &[PodAffinityTerm] {
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    affinity
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_deref()
        })
        .unwrap_or_default()
}

/// Preferred terms of affinity, and of anti-affinity with a negative weight.
pub fn preferred_pod_terms(spec: &PodSpec) -> Vec<(i64, &PodAffinityTerm)> {
    let affinity = spec.affinity.as_ref();
    let near = affinity
        .and_then(|affinity| affinity.pod_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .preferred_during_scheduling_ignored_during_execution
                .as_ref()
        });
    let far = affinity
        .and_then(|affinity| affinity.pod_anti_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .preferred_during_scheduling_ignored_during_execution
                .as_ref()
        });
    let near = near
        .into_iter()
        .flatten()
        .map(|term| (i64::from(term.weight), &term.pod_affinity_term));
    let far = far
        .into_iter()
        .flatten()
        .map(|term| (-i64::from(term.weight), &term.pod_affinity_term));
    near.chain(far).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, labels: serde_json::Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
    }

    fn spec(value: serde_json::Value) -> PodSpec {
        let mut whole = json!({"containers": []});
        for (key, value) in value.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn node_affinity_operators() {
        let node = node("n", json!({"zone": "a", "size": "8"}));
        for (expression, expected) in [
            (
                json!({"key": "zone", "operator": "In", "values": ["a", "b"]}),
                true,
            ),
            (
                json!({"key": "zone", "operator": "NotIn", "values": ["a"]}),
                false,
            ),
            (json!({"key": "none", "operator": "NotIn", "values": ["a"]}), true),
            (json!({"key": "none", "operator": "Exists"}), false),
            (json!({"key": "none", "operator": "DoesNotExist"}), true),
            (json!({"key": "size", "operator": "Gt", "values": ["7"]}), true),
            (json!({"key": "size", "operator": "Lt", "values": ["8"]}), false),
            (json!({"key": "zone", "operator": "Gt", "values": ["7"]}), false),
        ] {
            let pod = spec(
                json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}}),
            );
            assert_eq!(accepts_node(&pod, &node), expected, "{expression}");
        }
        let pinned = spec(
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}}),
        );
        assert!(accepts_node(&pinned, &node));
    }

    #[test]
    fn taints_and_tolerations() {
        let mut tainted = node("n", json!({}));
        tainted.spec = Some(
            serde_json::from_value(json!({"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}))
                .unwrap(),
        );
        for (tolerations, tolerated) in [
            (json!([]), false),
            (json!([{"key": "a", "operator": "Exists"}]), true),
            (json!([{"operator": "Exists"}]), true),
            (json!([{"key": "a", "value": "b"}]), true),
            (json!([{"key": "a", "value": "c"}]), false),
            (
                json!([{"key": "a", "operator": "Exists", "effect": "NoExecute"}]),
                false,
            ),
        ] {
            let pod = spec(json!({"tolerations": tolerations}));
            assert_eq!(
                untolerated(&pod, &tainted, &["NoSchedule"]).is_none(),
                tolerated,
                "{tolerations}"
            );
        }
    }
}
