//! What the pods that have a node mean for one pod that has none: spread, affinity and anti-affinity, counted by topology domain.
//!
//! Everything is counted once a pod; after that a node costs a few look-ups, whatever the number of pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, PodSpec, TopologySpreadConstraint};

use crate::objects::{name, namespace, selects};
use crate::rules::{self, Labels, domain, term_selects, with_keys};

/// A pod and the node that it has.
pub type Placed = (Arc<Pod>, Arc<Node>);

const SPREAD: &str = "node(s) didn't match pod topology spread constraints";
const SPREAD_NO_LABEL: &str = "node(s) didn't match pod topology spread constraints (missing required label)";
const AFFINITY: &str = "node(s) didn't match pod affinity rules";
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const OTHERS: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

/// The rules of one pod, counted.
#[derive(Debug, Default)]
pub struct Neighbours {
    spreads: Vec<Spread>,
    /// By the key of each required affinity term, the domains that have a pod of which all the terms speak; `None` when any domain will do.
    together: Vec<(String, Option<BTreeSet<String>>)>,
    apart: Vec<(String, BTreeSet<String>)>,
    /// Domains that the anti-affinity of other pods forbids.
    forbidden: BTreeSet<(String, String)>,
    /// Weights of preferred terms, by topology key and domain; negative for anti-affinity.
    preferred: BTreeMap<(String, String), i64>,
}

#[derive(Debug)]
struct Spread {
    key: String,
    max_skew: i32,
    hard: bool,
    counts: BTreeMap<String, i32>,
    least: i32,
    own: i32,
}

impl Neighbours {
    /// Counts for `pod`. `shy` are those of `placed` that have a required anti-affinity of their own.
    pub fn new(
        pod: &Pod,
        spec: &PodSpec,
        nodes: &[&Node],
        placed: &[Placed],
        shy: &[Placed],
        namespaces: &BTreeMap<String, Labels>,
    ) -> Self {
        let domains = |term: &PodAffinityTerm| -> Vec<String> {
            let others = placed
                .iter()
                .filter(|(other, _)| term_selects(term, pod, other, namespaces));
            others
                .filter_map(|(_, node)| domain(node, &term.topology_key).map(str::to_owned))
                .collect()
        };
        let terms = rules::required_affinity(spec);
        // Whom only some of the terms speak of is none that the pod looks for.
        let is_meant = |other: &Pod| {
            terms
                .iter()
                .all(|term| term_selects(term, pod, other, namespaces))
        };
        let mut meant: Vec<&Placed> = Vec::new();
        if !terms.is_empty() {
            meant.extend(placed.iter().filter(|(other, _)| is_meant(other)));
        }
        let found: Vec<(String, BTreeSet<String>)> = terms
            .iter()
            .map(|term| {
                let found = meant
                    .iter()
                    .filter_map(|(_, node)| domain(node, &term.topology_key));
                (term.topology_key.clone(), found.map(str::to_owned).collect())
            })
            .collect();
        // The first of a group that looks for itself may go anywhere.
        let first = found.iter().all(|(_, found)| found.is_empty()) && is_meant(pod);
        let together = found
            .into_iter()
            .map(|(key, found)| (key, (!first).then_some(found)));
        let apart = rules::required_anti_affinity(spec)
            .iter()
            .map(|term| (term.topology_key.clone(), domains(term).into_iter().collect()));
        let mut this = Self {
            spreads: spec
                .topology_spread_constraints
                .iter()
                .flatten()
                .map(|constraint| Spread::new(pod, spec, nodes, placed, constraint))
                .collect(),
            together: together.collect(),
            apart: apart.collect(),
            ..Self::default()
        };
        for (other, node) in shy {
            let Some(spec) = &other.spec else { continue };
            for term in rules::required_anti_affinity(spec) {
                if let Some(here) = domain(node, &term.topology_key)
                    && term_selects(term, other, pod, namespaces)
                {
                    this.forbidden
                        .insert((term.topology_key.clone(), here.to_owned()));
                }
            }
        }
        for (weight, term) in rules::preferred_pod_terms(spec) {
            for here in domains(term) {
                *this
                    .preferred
                    .entry((term.topology_key.clone(), here))
                    .or_insert(0) += weight;
            }
        }
        this
    }

    /// Why a node cannot have the pod.
    pub fn refusal(&self, node: &Node) -> Option<&'static str> {
        for spread in self.spreads.iter().filter(|spread| spread.hard) {
            let Some(here) = domain(node, &spread.key) else {
                return Some(SPREAD_NO_LABEL);
            };
            if spread.counts.get(here).copied().unwrap_or(0) + spread.own - spread.least > spread.max_skew {
                return Some(SPREAD);
            }
        }
        let together = self.together.iter().all(|(key, found)| {
            domain(node, key).is_some_and(|here| found.as_ref().is_none_or(|found| found.contains(here)))
        });
        if !together {
            return Some(AFFINITY);
        }
        let near = |(key, found): &(String, BTreeSet<String>)| {
            domain(node, key).is_some_and(|here| found.contains(here))
        };
        if self.apart.iter().any(near) {
            return Some(ANTI_AFFINITY);
        }
        let banned = |(key, value): &(String, String)| domain(node, key) == Some(value);
        self.forbidden.iter().any(banned).then_some(OTHERS)
    }

    /// How much the pod likes a node because of its neighbours: preferred terms, and few pods where a soft spread asks for it.
    pub fn score(&self, node: &Node) -> i64 {
        let liked = |((key, value), weight): (&(String, String), &i64)| {
            if domain(node, key) == Some(value) {
                *weight
            } else {
                0
            }
        };
        let crowd = |spread: &Spread| match domain(node, &spread.key) {
            Some(here) => i64::from(spread.counts.get(here).copied().unwrap_or(0) - spread.least),
            None => 1000,
        };
        let soft = self.spreads.iter().filter(|spread| !spread.hard).map(crowd);
        self.preferred.iter().map(liked).sum::<i64>() - 10 * soft.sum::<i64>()
    }
}

impl Spread {
    fn new(
        pod: &Pod,
        spec: &PodSpec,
        nodes: &[&Node],
        placed: &[Placed],
        constraint: &TopologySpreadConstraint,
    ) -> Self {
        let key = &constraint.topology_key;
        let selector = with_keys(
            constraint.label_selector.as_ref(),
            constraint.match_label_keys.as_deref(),
            pod,
        );
        let counted_node = |node: &Node| {
            let affinity = constraint.node_affinity_policy.as_deref() == Some("Ignore")
                || rules::accepts_node(spec, node);
            let taints = constraint.node_taints_policy.as_deref() != Some("Honor")
                || rules::untolerated(spec, node, &["NoSchedule", "NoExecute"]).is_none();
            affinity && taints
        };
        let counted: BTreeMap<&str, &str> = nodes
            .iter()
            .filter(|node| counted_node(node))
            .filter_map(|node| Some((name(&node.metadata), domain(node, key)?)))
            .collect();
        let mut counts: BTreeMap<String, i32> =
            counted.values().map(|here| ((*here).to_owned(), 0)).collect();
        for (other, node) in placed {
            if namespace(&other.metadata) == namespace(&pod.metadata)
                && other.metadata.deletion_timestamp.is_none()
                && selects(selector.as_ref(), other.metadata.labels.as_ref())
                && let Some(count) = counted
                    .get(name(&node.metadata))
                    .and_then(|here| counts.get_mut(*here))
            {
                *count += 1;
            }
        }
        let few = constraint
            .min_domains
            .is_some_and(|least| i64::try_from(counts.len()).unwrap_or(i64::MAX) < i64::from(least));
        let least = if few {
            0
        } else {
            counts.values().copied().min().unwrap_or(0)
        };
        Self {
            key: key.clone(),
            max_skew: constraint.max_skew,
            hard: constraint.when_unsatisfiable == "DoNotSchedule",
            own: i32::from(selects(selector.as_ref(), pod.metadata.labels.as_ref())),
            counts,
            least,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(name: &str) -> Arc<Node> {
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name, "labels": {"zone": name}}})).unwrap(),
        )
    }

    fn pod(spec: Value) -> Arc<Pod> {
        let mut whole =
            json!({"metadata": {"namespace": "x", "labels": {"app": "w"}}, "spec": {"containers": []}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            whole["spec"][key] = value.clone();
        }
        Arc::new(serde_json::from_value(whole).unwrap())
    }

    fn term() -> Value {
        json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "w"}}})
    }

    fn spread(mode: &str) -> Value {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": mode, "labelSelector": {"matchLabels": {"app": "w"}}}]})
    }

    /// Refusals and scores of the nodes `a` (which has a pod like `there`) and `b` (which has none) for `pod`.
    fn judge(pod: &Arc<Pod>, there: &Arc<Pod>) -> [(Option<&'static str>, i64); 2] {
        let (a, b) = (node("a"), node("b"));
        let placed = [(there.clone(), a.clone())];
        let rules = Neighbours::new(
            pod,
            pod.spec.as_ref().unwrap(),
            &[&a, &b],
            &placed,
            &placed,
            &BTreeMap::new(),
        );
        [&a, &b].map(|node| (rules.refusal(node), rules.score(node)))
    }

    #[test]
    fn hard_rules_look_at_the_domain() {
        let plain = pod(json!({}));
        let shy = pod(
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term()]}}}),
        );
        let social = pod(
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term()]}}}),
        );
        let even = pod(spread("DoNotSchedule"));
        for (pod, there, expected) in [
            (&plain, &plain, [None, None]),
            (&shy, &plain, [Some(ANTI_AFFINITY), None]),
            (&plain, &shy, [Some(OTHERS), None]),
            (&social, &plain, [None, Some(AFFINITY)]),
            (&even, &plain, [Some(SPREAD), None]),
        ] {
            let [(a, _), (b, _)] = judge(pod, there);
            assert_eq!([a, b], expected, "{:?} beside {:?}", pod.spec, there.spec);
        }
    }

    #[test]
    fn the_first_of_a_group_may_go_anywhere_with_the_label() {
        let social = pod(
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term()]}}}),
        );
        let rules = Neighbours::new(
            &social,
            social.spec.as_ref().unwrap(),
            &[],
            &[],
            &[],
            &BTreeMap::new(),
        );
        assert_eq!(rules.refusal(&node("a")), None);
        assert_eq!(rules.refusal(&Node::default()), Some(AFFINITY));
    }

    /// Terms that are met by different pods are not met: one pod has to be what all of them speak of.
    #[test]
    fn the_terms_of_an_affinity_speak_of_the_same_pods() {
        let labelled = |pod: &Arc<Pod>, labels: Value| {
            let mut pod = Pod::clone(pod);
            pod.metadata.labels = serde_json::from_value(labels).unwrap();
            Arc::new(pod)
        };
        let (plain, both) = (pod(json!({})), json!({"app": "w", "tier": "c"}));
        let tier = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"tier": "c"}}});
        let social = pod(
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term(), tier]}}}),
        );
        let (a, b) = (node("a"), node("b"));
        let refusals = |pod: &Arc<Pod>, placed: &[Placed]| {
            let spec = pod.spec.as_ref().unwrap();
            let rules = Neighbours::new(pod, spec, &[&a, &b], placed, &[], &BTreeMap::new());
            [rules.refusal(&a), rules.refusal(&b)]
        };
        let mut placed = vec![
            (plain.clone(), a.clone()),
            (labelled(&plain, json!({"tier": "c"})), a.clone()),
        ];
        assert_eq!(refusals(&social, &placed), [Some(AFFINITY); 2]);
        let first = labelled(&social, both.clone());
        assert_eq!(refusals(&first, &placed), [None, None], "the first of its group");
        placed.push((labelled(&plain, both), b.clone()));
        for pod in [&social, &first] {
            assert_eq!(refusals(pod, &placed), [Some(AFFINITY), None]);
        }
    }

    #[test]
    fn soft_rules_only_rank() {
        let plain = pod(json!({}));
        let fond = pod(
            json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": term()}]}}}),
        );
        let [a, b] = judge(&fond, &plain);
        assert_eq!((a, b), ((None, 7), (None, 0)));
        let [a, b] = judge(&pod(spread("ScheduleAnyway")), &plain);
        assert!(a.0.is_none() && b.0.is_none() && a.1 < b.1, "{a:?} {b:?}");
    }
}
