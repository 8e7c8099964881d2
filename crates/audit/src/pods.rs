//! Kubernetes' rules between a pod and labels, taints and other pods, written the slow and obvious way.

use crate::{Host, Violation};
use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration,
};
use spokeshave_model::Pod;
use spokeshave_model::constraints::{Constraints, PodTerm, asks_by_name};
use spokeshave_model::scheduler_profiles::{SchedulerProfile, SchedulerProfiles};
use spokeshave_model::snapshot::{PodId, Snapshot};
use spokeshave_model::{Requirement, Requirements};
use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

/// Whether one of the tolerations covers the taint.
pub(crate) fn tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| {
        let field = |value: &Option<String>| value.clone().unwrap_or_default();
        let (key, effect, operator) = (
            field(&toleration.key),
            field(&toleration.effect),
            field(&toleration.operator),
        );
        let (wanted, present) = (field(&toleration.value), field(&taint.value));
        let numbers = || Some((present.parse::<i64>().ok()?, wanted.parse::<i64>().ok()?));
        let value_matches = match operator.as_str() {
            "Exists" => true,
            "" | "Equal" => wanted == present,
            "Gt" => numbers().is_some_and(|(present, wanted)| present > wanted),
            "Lt" => numbers().is_some_and(|(present, wanted)| present < wanted),
            _ => false,
        };
        (key.is_empty() || key == taint.key) && (effect.is_empty() || effect == taint.effect) && value_matches
    })
}

/// The first taint with a hard effect that the pod does not tolerate.
pub(crate) fn untolerated(pod: &Pod, taints: &[Taint]) -> Option<String> {
    let tolerations = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.tolerations.clone())
        .unwrap_or_default();
    let hard = taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
    let first = hard.into_iter().find(|taint| !tolerated(&tolerations, taint));
    first.map(|taint| format!("{}:{}", taint.key, taint.effect))
}

fn expression_matches(expression: &NodeSelectorRequirement, labels: &Labels) -> bool {
    let key = spokeshave_model::labels::normalize(&expression.key);
    let value = labels.get(key);
    let listed = expression.values.iter().flatten();
    let values: Vec<&str> = listed
        .map(|value| spokeshave_model::labels::normalize_value(&expression.key, value))
        .collect();
    let number = value.and_then(|value| value.parse::<i64>().ok());
    let bound = values.first().and_then(|value| value.parse::<i64>().ok());
    match expression.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(&value.as_str())),
        "NotIn" => value.is_none_or(|value| !values.contains(&value.as_str())),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number.zip(bound).is_some_and(|(number, bound)| number > bound),
        "Lt" => number.zip(bound).is_some_and(|(number, bound)| number < bound),
        "Gte" => number.zip(bound).is_some_and(|(number, bound)| number >= bound),
        "Lte" => number.zip(bound).is_some_and(|(number, bound)| number <= bound),
        _ => false,
    }
}

/// The name of a node, among its labels; a node that is to be launched has none yet.
fn field_matches(field: &NodeSelectorRequirement, labels: &Labels) -> bool {
    let mut names = field.values.iter().flatten();
    let is_named = names.any(|name| labels.contains_key(&spokeshave_model::labels::node_name_key(name)));
    match (field.key.as_str(), field.operator.as_str()) {
        ("metadata.name", "In") => is_named,
        ("metadata.name", "NotIn") => !is_named,
        _ => false,
    }
}

/// A term that asks nothing matches no node. Names by which somebody has bound a pod to its node are not what the pod asks for, and are not read.
fn term_matches(term: &NodeSelectorTerm, reads_names: bool, labels: &Labels) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let asks = !expressions.is_empty() || !fields.is_empty();
    asks && expressions
        .iter()
        .all(|expression| expression_matches(expression, labels))
        && fields
            .iter()
            .all(|field| !reads_names || field_matches(field, labels))
}

/// nodeSelector, required node affinity, and that which the pod's scheduler adds, against a node's labels.
pub(crate) fn node_affinity_matches(profiles: &SchedulerProfiles, pod: &Pod, labels: &Labels) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| {
        let found = labels.get(spokeshave_model::labels::normalize(key));
        found.map(String::as_str) == Some(spokeshave_model::labels::normalize_value(key, value))
    });
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    let added = profiles.of(pod).and_then(SchedulerProfile::required_affinity);
    let matches = |selector: &NodeSelector, reads_names: bool| {
        let mut terms = selector.node_selector_terms.iter();
        terms.any(|term| term_matches(term, reads_names, labels))
    };
    selected
        && required.is_none_or(|required| matches(required, asks_by_name(pod)))
        && added.is_none_or(|added| matches(added, true))
}

/// One requirement against a node's labels.
pub(crate) fn requirement_matches(requirement: &Requirement, labels: &Labels) -> bool {
    match labels.get(requirement.key()) {
        Some(value) => requirement.has(value),
        None => requirement.is_satisfied_by_absence(),
    }
}

/// One alternative of a pod's volumes against a node's labels: drivers and older volumes name zones by labels of their own, which mean the same. A
/// node that is to be launched has no host yet, and volumes that it is to bring with it say so.
pub(crate) fn volume_term_matches(term: &Requirements, labels: &Labels) -> bool {
    let mut known = labels.clone();
    for (key, value) in labels {
        let canonical = spokeshave_model::labels::normalize(key);
        if !known.contains_key(canonical) {
            let meant = spokeshave_model::labels::normalize_value(key, value);
            known.insert(canonical.to_owned(), meant.to_owned());
        }
    }
    let planned = || spokeshave_model::labels::PLANNED_HOST.to_owned();
    known
        .entry(spokeshave_model::labels::HOSTNAME.to_owned())
        .or_insert_with(planned);
    term.iter()
        .all(|requirement| requirement_matches(requirement, &known))
}

/// Node selector and required terms of lowered constraints; keys that a node gets only by registering count as present.
pub(crate) fn constraints_match(constraints: &Constraints, labels: &Labels) -> bool {
    let mut labels = labels.clone();
    for key in [
        spokeshave_model::labels::REGISTERED,
        spokeshave_model::labels::INITIALIZED,
    ] {
        labels.insert(key.to_owned(), "true".to_owned());
    }
    let all = |requirements: &Requirements| {
        requirements
            .iter()
            .all(|requirement| requirement_matches(requirement, &labels))
    };
    all(&constraints.node_selector)
        && (constraints.required_terms.is_empty() || constraints.required_terms.iter().any(all))
}

fn selects(snapshot: &Snapshot, term: &PodTerm, pod: PodId) -> bool {
    let meta = &snapshot.pod(pod).object.metadata;
    let labels = meta.labels.clone().unwrap_or_default();
    term.namespaces.contains(meta.namespace.as_deref().unwrap_or("")) && term.selector.matches(&labels)
}

/// The domains a host may be in; for hostname, itself.
fn domains(host: &Host, number: usize, key: &str) -> BTreeSet<String> {
    if key == spokeshave_model::labels::HOSTNAME {
        return BTreeSet::from([format!("host {number}")]);
    }
    host.possible
        .iter()
        .filter_map(|labels| labels.get(key).cloned())
        .collect()
}

/// Whether one pod has to be near another: only who is selected by all terms counts for one of them.
fn attracts(snapshot: &Snapshot, pod: PodId, other: PodId) -> bool {
    let mut terms = snapshot.constraints(pod).affinity.iter();
    pod != other && snapshot.sees(pod, other) && terms.all(|term| selects(snapshot, term, other))
}

/// Whether what a pod asks of its node allows a domain.
fn may_be_in(constraints: &Constraints, key: &str, domain: &str) -> bool {
    let allows = |requirements: &Requirements| requirements.find(key).is_none_or(|wanted| wanted.has(domain));
    let terms = &constraints.required_terms;
    allows(&constraints.node_selector) && (terms.is_empty() || terms.iter().any(allows))
}

/// A pod that selects itself may be the first of its kind where nobody has a domain that it would have to join; as upstream has it, domains that it cannot be
/// in do not count (P-108). Of pods that a plan places at once, those that attract each other cannot both be the first.
fn is_first_of_its_kind(
    snapshot: &Snapshot,
    hosts: &[Host],
    everyone: &[(usize, PodId, bool)],
    pod: PodId,
) -> bool {
    let constraints = snapshot.constraints(pod);
    let terms = &constraints.affinity;
    let comes_before = everyone.iter().any(|(number, other, arrives)| {
        attracts(snapshot, pod, *other)
            && (!arrives
                || attracts(snapshot, *other, pod) && !snapshot.constraints(*other).affinity.is_empty())
            && terms.iter().any(|term| {
                let key = &term.topology_key;
                let theirs = domains(&hosts[*number], *number, key);
                theirs.iter().any(|domain| may_be_in(constraints, key, domain))
            })
    });
    terms.iter().all(|term| selects(snapshot, term, pod)) && !comes_before
}

/// Required pod affinity and anti-affinity over all hosts. A planned node counts for every domain in which it may be launched, so a plan
/// passes only when it is right whatever is launched. Of pods that are leaving, those that take longer than a node to come attract and repel.
pub(crate) fn check_pod_terms(snapshot: &Snapshot, hosts: &[Host], violations: &mut Vec<Violation>) {
    let everyone: Vec<(usize, PodId, bool)> = hosts
        .iter()
        .enumerate()
        .flat_map(|(number, host)| {
            let residents = host.residents.iter().copied();
            let counted = residents.filter(|pod| snapshot.pod(*pod).is_counted());
            let residents = counted.map(move |pod| (number, pod, false));
            residents.chain(host.arrivals.iter().map(move |pod| (number, *pod, true)))
        })
        .collect();
    for (number, pod, arrives) in &everyone {
        let constraints = snapshot.constraints(*pod);
        for term in &constraints.anti_affinity {
            let own = domains(&hosts[*number], *number, &term.topology_key);
            for (other_number, other, other_arrives) in &everyone {
                let apart = pod == other || !snapshot.sees(*pod, *other);
                if apart || !(*arrives || *other_arrives) || !selects(snapshot, term, *other) {
                    continue;
                }
                let theirs = domains(&hosts[*other_number], *other_number, &term.topology_key);
                if own.iter().any(|domain| theirs.contains(domain)) {
                    // It is about the one that the plan has placed, whichever of the two does not want the other.
                    let (place, subject, other) = if *arrives {
                        (number, pod, other)
                    } else {
                        (other_number, other, pod)
                    };
                    violations.push(Violation {
                        place: hosts[*place].place.clone(),
                        pod: Some(snapshot.pod(*subject).key()),
                        problem: format!(
                            "anti-affinity over {} with {}",
                            term.topology_key,
                            snapshot.pod(*other).key()
                        ),
                    });
                }
            }
        }
        if !arrives {
            continue;
        }
        for term in &constraints.affinity {
            let own = domains(&hosts[*number], *number, &term.topology_key);
            let together = everyone.iter().any(|(other_number, other, _)| {
                attracts(snapshot, *pod, *other)
                    && domains(&hosts[*other_number], *other_number, &term.topology_key)
                        .iter()
                        .any(|domain| own.contains(domain))
            }) || is_first_of_its_kind(snapshot, hosts, &everyone, *pod);
            if !together {
                violations.push(Violation {
                    place: hosts[*number].place.clone(),
                    pod: Some(snapshot.pod(*pod).key()),
                    problem: format!("affinity over {} finds no matching pod", term.topology_key),
                });
            }
        }
    }
}
