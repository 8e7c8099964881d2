//! Why a pod is not considered at all (P §5.2): what of its selectors, affinity and requests means nothing to anybody.

use super::node_affinity;
use crate::Pod;
use crate::labels;
use crate::pod;
use crate::requirement::{Requirement, RequirementError};

/// Why a pod is not scheduled at all until it is changed (P §5.2, step 2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodProblem {
    /// It requires `karpenter.sh/nodepool` DoesNotExist: it does not want to run on nodes of ours. Silent.
    OptedOut,
    /// A selector or a required affinity expression is not valid.
    Requirement(RequirementError),
    /// A selector or a required affinity expression names a key that users may not require.
    RestrictedLabel(String),
    /// A required affinity term has matchFields that do not name a node, or by which somebody has bound it to one.
    MatchFields,
    /// It has required affinity, of which no term asks anything: such a term matches no node.
    BlankAffinity,
    /// Its volumes cannot be resolved.
    Volume(String),
    /// It asks for an amount that is negative or no quantity at all.
    Requests(String),
}

impl std::fmt::Display for PodProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PodProblem::OptedOut => f.write_str("configured to not run on a Karpenter provisioned node"),
            PodProblem::Requirement(error) => write!(f, "{error}"),
            PodProblem::RestrictedLabel(key) => write!(
                f,
                "label {key} is restricted; specify a well known label or a custom label that does not use a restricted domain"
            ),
            PodProblem::MatchFields => f.write_str("node selector term with matchFields is not supported"),
            PodProblem::BlankAffinity => {
                f.write_str("required node affinity has only terms without expressions, which match no node")
            }
            PodProblem::Volume(text) | PodProblem::Requests(text) => f.write_str(text),
        }
    }
}

/// P-057: what keeps a pod from being considered at all. Preferences are not validated.
pub fn validate(pod: &Pod) -> Result<(), PodProblem> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let required = node_affinity::required(spec);
    let terms = required.map_or(&[][..], |required| required.node_selector_terms.as_slice());
    let expressions = || {
        terms
            .iter()
            .flat_map(|term| term.match_expressions.iter().flatten())
    };
    if expressions()
        .any(|expression| expression.key == labels::NODE_POOL && expression.operator == "DoesNotExist")
    {
        return Err(PodProblem::OptedOut);
    }
    for key in spec
        .node_selector
        .iter()
        .flatten()
        .map(|(key, _)| key)
        .chain(expressions().map(|expression| &expression.key))
    {
        if labels::is_restricted(labels::normalize(key)) {
            return Err(PodProblem::RestrictedLabel(key.clone()));
        }
    }
    for expression in expressions() {
        Requirement::from_node_selector(expression).map_err(PodProblem::Requirement)?;
    }
    let mut fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let reads_names = node_affinity::asks_by_name(pod);
    if fields.any(|field| !reads_names || node_affinity::by_name(field).is_none()) {
        return Err(PodProblem::MatchFields);
    }
    if required.is_some() && terms.iter().all(node_affinity::is_blank) {
        return Err(PodProblem::BlankAffinity);
    }
    match pod::malformed_request(spec) {
        Some(problem) => Err(PodProblem::Requests(problem)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[expect(clippy::needless_pass_by_value, reason = "callers write the value in place")]
    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": "p"}, "spec": spec}))
            .expect("a pod written by hand")
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers write the value in place")]
    fn affinity(term: serde_json::Value) -> serde_json::Value {
        json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}})
    }

    #[test]
    fn p_057_pod_validation() {
        let text = |spec| validate(&pod(spec)).map_err(|problem| problem.to_string());
        assert_eq!(
            text(json!({"containers": [], "nodeSelector": {"team": "a"}})),
            Ok(())
        );
        assert!(text(json!({"containers": [], "nodeSelector": {"kubernetes.io/hostname": "a"}})).is_err());
        let opted_out = affinity(
            json!({"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]}),
        );
        assert_eq!(validate(&pod(opted_out)), Err(PodProblem::OptedOut));
        let fields = |key: &str, values: &[&str]| {
            text(affinity(
                json!({"matchFields": [{"key": key, "operator": "In", "values": values}]}),
            ))
        };
        assert_eq!(fields("metadata.name", &["a"]), Ok(()));
        for unknown in [
            fields("metadata.name", &["a", "b"]),
            fields("metadata.uid", &["a"]),
        ] {
            assert_eq!(
                unknown,
                Err("node selector term with matchFields is not supported".to_owned())
            );
        }
        assert_eq!(
            validate(&pod(affinity(json!({})))),
            Err(PodProblem::BlankAffinity)
        );
        assert!(
            text(affinity(
                json!({"matchExpressions": [{"key": "a", "operator": "Near"}]})
            ))
            .is_err()
        );
        assert!(
            text(affinity(
                json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]})
            ))
            .is_err()
        );
    }
}
