//! Copies of a recording side by side, each in namespaces of its own.
//!
//! Owns the names of these, and that pods look for their neighbours in their own copy: the selectors of one copy are not to find the pods of another. So do
//! PodDisruptionBudgets, of which each copy has its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodAffinityTerm, PodTemplateSpec, WeightedPodAffinityTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{ImportError, MOST_OWNERS};
use crate::timeline::{Owner, Timeline};

/// The most characters that Kubernetes lets a namespace have.
const LONGEST: usize = 63;
/// The label that every namespace has: its name.
const NAME: &str = "kubernetes.io/metadata.name";

/// The recording as so many copies; the first of them keeps its namespaces. The events of one come after those of another.
pub(crate) fn copied(timeline: Timeline, copies: u32) -> Result<Timeline, ImportError> {
    if copies <= 1 {
        return Ok(timeline);
    }
    let owners = timeline.owners.len().saturating_mul(copies as usize);
    if owners > MOST_OWNERS {
        return Err(ImportError::whole(format!(
            "would be {owners} workloads in {copies} copies, and at most {MOST_OWNERS} fit into memory; lower `copies`"
        )));
    }
    let namespaces = timeline.owners.iter().map(|owner| owner.namespace.clone());
    let namespaces: BTreeSet<String> = namespaces.collect();
    let suffix = suffix(&namespaces, copies)?;
    let mut whole = Timeline::default();
    for copy in 1..=copies {
        let of_copy = |namespace: &str| match copy {
            1 => namespace.to_owned(),
            _ => format!("{namespace}{suffix}{copy}"),
        };
        let mut next = timeline.clone();
        for owner in &mut next.owners {
            set_apart(owner, &namespaces, &of_copy);
        }
        // Where nothing was recorded there is nothing to protect in a copy either.
        next.budgets = std::mem::take(&mut next.budgets)
            .into_iter()
            .filter(|((namespace, _), _)| copy == 1 || namespaces.contains(namespace))
            .map(|((namespace, name), budget)| ((of_copy(&namespace), name), budget))
            .collect();
        whole.append(next);
    }
    Ok(whole)
}

/// What comes between a namespace and the number of its copy, so that no copy has the name of a namespace that was recorded.
fn suffix(namespaces: &BTreeSet<String>, copies: u32) -> Result<String, ImportError> {
    let is_copy = |number: &str| {
        let number = number.parse::<u32>();
        number.is_ok_and(|number| (2..=copies).contains(&number))
    };
    let is_taken = |suffix: &str| {
        let mut parts = namespaces.iter().filter_map(|name| name.rsplit_once(suffix));
        parts.any(|(before, number)| namespaces.contains(before) && is_copy(number))
    };
    let mut suffix = "-copy".to_owned();
    while is_taken(&suffix) {
        suffix.push_str("-copy");
    }
    let most = LONGEST.saturating_sub(format!("{suffix}{copies}").len());
    match namespaces.iter().find(|name| name.len() > most) {
        None => Ok(suffix),
        Some(long) => Err(ImportError::whole(format!(
            "has the namespace {long:?}, whose copies would be called {long}{suffix}{copies}, but a namespace has at most {LONGEST} characters; expected one of at most {most}: leave out `copies`, or give it a shorter name in the recording"
        ))),
    }
}

/// Gives an owner the namespace of its copy, and lets it look for its neighbours in those of that copy.
fn set_apart(owner: &mut Owner, namespaces: &BTreeSet<String>, of_copy: &impl Fn(&str) -> String) {
    owner.namespace = of_copy(&owner.namespace);
    for known in owner.templates_mut() {
        let mut template = PodTemplateSpec::clone(known);
        for term in affinity_terms(&mut template) {
            narrow(term, namespaces, of_copy);
        }
        // Copies share a template that is alike.
        if template != **known {
            *known = Arc::new(template);
        }
    }
}

/// Names the namespaces of one copy in a term. Those that were not recorded are not copied either.
fn narrow(term: &mut PodAffinityTerm, namespaces: &BTreeSet<String>, of_copy: &impl Fn(&str) -> String) {
    let rename = |name: &mut String| {
        if namespaces.contains(name.as_str()) {
            *name = of_copy(name.as_str());
        }
    };
    term.namespaces.iter_mut().flatten().for_each(rename);
    if term.namespace_selector.as_ref().is_some_and(selects_all) {
        // All namespaces are those of all copies.
        let mut named: BTreeSet<String> = term.namespaces.take().into_iter().flatten().collect();
        named.extend(namespaces.iter().map(|name| of_copy(name.as_str())));
        term.namespaces = Some(named.into_iter().collect());
        term.namespace_selector = None;
    }
    let Some(selector) = &mut term.namespace_selector else {
        return;
    };
    if let Some(name) = selector
        .match_labels
        .as_mut()
        .and_then(|labels| labels.get_mut(NAME))
    {
        rename(name);
    }
    for expression in selector.match_expressions.iter_mut().flatten() {
        if expression.key == NAME {
            expression.values.iter_mut().flatten().for_each(rename);
        }
    }
}

/// Whether a selector asks for nothing.
fn selects_all(selector: &LabelSelector) -> bool {
    let mut labels = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    labels.next().is_none() && expressions.next().is_none()
}

/// The terms by which a pod wants to be near others, or away from them.
fn affinity_terms(template: &mut PodTemplateSpec) -> impl Iterator<Item = &mut PodAffinityTerm> {
    let affinity = template.spec.as_mut().and_then(|spec| spec.affinity.as_mut());
    affinity.into_iter().flat_map(|affinity| {
        let near = affinity.pod_affinity.as_mut().into_iter().flat_map(|near| {
            terms(
                &mut near.required_during_scheduling_ignored_during_execution,
                &mut near.preferred_during_scheduling_ignored_during_execution,
            )
        });
        let away = affinity.pod_anti_affinity.as_mut().into_iter().flat_map(|away| {
            terms(
                &mut away.required_during_scheduling_ignored_during_execution,
                &mut away.preferred_during_scheduling_ignored_during_execution,
            )
        });
        near.chain(away)
    })
}

fn terms<'t>(
    required: &'t mut Option<Vec<PodAffinityTerm>>,
    preferred: &'t mut Option<Vec<WeightedPodAffinityTerm>>,
) -> impl Iterator<Item = &'t mut PodAffinityTerm> {
    let preferred = preferred.iter_mut().flatten();
    let preferred = preferred.map(|weighted| &mut weighted.pod_affinity_term);
    required.iter_mut().flatten().chain(preferred)
}
