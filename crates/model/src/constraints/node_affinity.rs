//! Required node affinity, term by term: labels that a node has, and the name that it bears.

use crate::Pod;
use crate::labels;
use crate::requirement::{Requirement, RequirementError};
use crate::requirements::Requirements;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

/// The required node affinity of a pod, if it has any.
pub(super) fn required(spec: &PodSpec) -> Option<&NodeSelector> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()
}

/// Whether a term asks nothing. Kubernetes lets it match no node.
pub(super) fn is_blank(term: &NodeSelectorTerm) -> bool {
    let expressions = term.match_expressions.iter().flatten();
    let fields = term.match_fields.iter().flatten();
    expressions.chain(fields).next().is_none()
}

/// Controllers whose pods are alike, so that one which asks for a node by name does so because its template says so.
const OF_TEMPLATES: [(&str, &str); 4] = [
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("v1", "ReplicationController"),
];

/// Whether a name in the affinity of a pod is something that it asks for. The controller of DaemonSets, and others that make a pod for each node, bind their
/// pods so: these end with their nodes, nobody waits for them elsewhere, and no two of them would be alike.
pub fn asks_by_name(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.all(|owner| OF_TEMPLATES.contains(&(owner.api_version.as_str(), owner.kind.as_str())))
}

/// What the terms of required node affinity ask for: one of them must hold, and where all are blank, what cannot.
pub(crate) fn required_terms(selector: &NodeSelector, reads_names: bool) -> Vec<Requirements> {
    let terms = selector.node_selector_terms.iter();
    let terms = terms.filter(|term| !is_blank(term));
    let asked: Vec<Requirements> = terms.map(|term| required_term(term, reads_names)).collect();
    if asked.is_empty() {
        vec![nothing(labels::NODE_POOL)]
    } else {
        asked
    }
}

/// A term with an expression that means nothing can be satisfied by nothing.
fn required_term(term: &NodeSelectorTerm, reads_names: bool) -> Requirements {
    let mut asked = Requirements::from_term(term).unwrap_or_else(|error| {
        let key = match &error {
            RequirementError::UnknownOperator { key, .. }
            | RequirementError::NotAnInteger { key, .. }
            | RequirementError::NoValues { key } => key,
        };
        nothing(key)
    });
    let fields = term.match_fields.iter().flatten().filter(|_| reads_names);
    for name in fields.filter_map(by_name) {
        asked.add(name);
    }
    asked
}

/// What nothing satisfies.
fn nothing(key: &str) -> Requirements {
    [Requirement::exists(key), Requirement::does_not_exist(key)]
        .into_iter()
        .collect()
}

/// What a field of a term asks of the name of a node; `None` for what no API server takes.
pub(crate) fn by_name(field: &NodeSelectorRequirement) -> Option<Requirement> {
    let [name] = field.values.as_deref()? else {
        return None;
    };
    let key = labels::node_name_key(name);
    match (field.key.as_str(), field.operator.as_str()) {
        ("metadata.name", "In") => Some(Requirement::exists(&key)),
        ("metadata.name", "NotIn") => Some(Requirement::does_not_exist(&key)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(terms: &serde_json::Value, reads_names: bool) -> Vec<Requirements> {
        let selector = json!({ "nodeSelectorTerms": terms });
        let selector: NodeSelector = serde_json::from_value(selector).expect("a selector written by hand");
        required_terms(&selector, reads_names)
    }

    /// A node with these labels, by its name.
    fn named(name: &str, team: Option<&str>) -> Requirements {
        let team = team.map(|team| Requirement::is("team", team));
        let name = Requirement::is(&labels::node_name_key(name), "true");
        team.into_iter().chain([name]).collect()
    }

    fn takes(node: &Requirements, terms: &[Requirements]) -> bool {
        terms.iter().any(|term| node.satisfy(term))
    }

    #[test]
    fn p_040_affinity_to_a_name_is_for_the_node_of_that_name() {
        let by = |operator: &str| json!({"matchFields": [{"key": "metadata.name", "operator": operator, "values": ["a"]}]});
        let (of_a, of_others) = (
            asked(&json!([by("In")]), true),
            asked(&json!([by("NotIn")]), true),
        );
        for (node, is_a) in [(named("a", None), true), (named("b", None), false)] {
            assert_eq!((takes(&node, &of_a), takes(&node, &of_others)), (is_a, !is_a));
        }
        // A node that is to be launched has no name yet, and never that of one that is there.
        let planned = Requirements::new();
        let may = |terms: &[Requirements]| planned.compatible(&terms[0], &Default::default()).is_ok();
        assert_eq!((may(&of_a), may(&of_others)), (false, true));
        // Also where one of the other sort is on it already.
        assert!(of_others[0].compatible(&of_a[0], &Default::default()).is_err());

        let both = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}],
            "matchExpressions": [{"key": "team", "operator": "In", "values": ["x"]}]}]);
        let both = asked(&both, true);
        assert!(takes(&named("a", Some("x")), &both));
        assert!(!takes(&named("a", None), &both) && !takes(&named("b", Some("x")), &both));
        let of_a_daemon = asked(&json!([by("In")]), false);
        assert_eq!(of_a_daemon, [Requirements::new()], "as if it were not written");
    }

    #[test]
    fn p_040_who_makes_a_pod_for_each_node_binds_it_by_name() {
        let owned = |owners: serde_json::Value| {
            let pod = json!({"metadata": {"name": "p", "ownerReferences": owners}});
            asks_by_name(&serde_json::from_value(pod).expect("a pod written by hand"))
        };
        let by = |version: &str, kind: &str| {
            owned(json!([{"apiVersion": version, "kind": kind, "name": "o", "uid": "u"}]))
        };
        assert!(owned(json!([])) && by("apps/v1", "ReplicaSet") && by("batch/v1", "Job"));
        assert!(!by("apps/v1", "DaemonSet") && !by("apps.kruise.io/v1alpha1", "DaemonSet"));
    }

    #[test]
    fn p_040_a_term_that_asks_nothing_matches_no_node() {
        let team = json!({"matchExpressions": [{"key": "team", "operator": "In", "values": ["x"]}]});
        let beside = asked(
            &json!([{}, team, {"matchExpressions": [], "matchFields": []}]),
            false,
        );
        assert_eq!(beside.len(), 1);
        assert!(takes(&named("a", Some("x")), &beside) && !takes(&named("a", None), &beside));
        for terms in [json!([{}]), json!([])] {
            let alone = asked(&terms, true);
            let of_pool: Requirements = [Requirement::is(labels::NODE_POOL, "p")].into_iter().collect();
            assert!(!takes(&named("a", None), &alone) && !takes(&of_pool, &alone));
        }
    }
}
