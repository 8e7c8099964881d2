//! What the pods that have a node mean for one pod that has none: spread, affinity and anti-affinity, counted by topology domain.
//!
//! Everything is counted once a pod; after that a node costs a few look-ups, whatever the number of pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, PodSpec, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::objects::{name, namespace, selects};
use crate::rules::{self, Labels, domain, term_selects, with_keys};

/// A pod and the node that it has.
pub type Placed = (Arc<Pod>, Arc<Node>);

/// How many pods are in each domain of a topology key.
type Domains = BTreeMap<String, usize>;

const SPREAD: &str = "node(s) didn't match pod topology spread constraints";
const SPREAD_NO_LABEL: &str = "node(s) didn't match pod topology spread constraints (missing required label)";
const AFFINITY: &str = "node(s) didn't match pod affinity rules";
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const OTHERS: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

/// The rules of one pod, counted.
#[derive(Debug, Default)]
pub struct Neighbours {
    spreads: Vec<Spread>,
    /// By the key of each required affinity term, the pods of which all the terms speak.
    together: Vec<(String, Domains)>,
    /// Whether the terms speak of the pod itself.
    is_of_its_group: bool,
    /// By the key of each required anti-affinity term, the pods of which it speaks.
    apart: Vec<(String, Domains)>,
    /// By topology key, the pods whose anti-affinity forbids a domain.
    forbidden: BTreeMap<String, Domains>,
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

/// What pods that would leave a node count for in the rules of another pod, in the order of these.
#[derive(Debug, Default)]
pub struct Leaving {
    spreads: Vec<i32>,
    together: usize,
    apart: Vec<usize>,
    forbidden: BTreeMap<String, usize>,
}

impl Leaving {
    /// Counts pods of `node` for `pod`.
    pub fn new(
        pod: &Pod,
        spec: &PodSpec,
        node: &Node,
        gone: &[Arc<Pod>],
        namespaces: &BTreeMap<String, Labels>,
    ) -> Self {
        let count = |is_meant: &dyn Fn(&Pod) -> bool| gone.iter().filter(|other| is_meant(other)).count();
        let spreads = spec.topology_spread_constraints.iter().flatten();
        let spreads = spreads.map(|constraint| {
            if !counts_node(spec, node, constraint) {
                return 0;
            }
            let selector = selector_of(pod, constraint);
            let left = count(&|other| counts_pod(pod, selector.as_ref(), other));
            i32::try_from(left).unwrap_or(i32::MAX)
        });
        let terms = rules::required_affinity(spec);
        let is_meant = |other: &Pod| {
            let mut terms = terms.iter();
            terms.all(|term| term_selects(term, pod, other, namespaces))
        };
        let apart = rules::required_anti_affinity(spec).iter();
        let mut this = Self {
            spreads: spreads.collect(),
            together: if terms.is_empty() { 0 } else { count(&is_meant) },
            apart: apart
                .map(|term| count(&|other| term_selects(term, pod, other, namespaces)))
                .collect(),
            forbidden: BTreeMap::new(),
        };
        for other in gone {
            let Some(theirs) = &other.spec else { continue };
            for term in rules::required_anti_affinity(theirs) {
                if term_selects(term, other, pod, namespaces) {
                    *this.forbidden.entry(term.topology_key.clone()).or_insert(0) += 1;
                }
            }
        }
        this
    }

    /// Whether they count in none of the rules.
    pub fn is_nothing(&self) -> bool {
        self.together == 0
            && self.forbidden.is_empty()
            && self.spreads.iter().all(|left| *left == 0)
            && self.apart.iter().all(|left| *left == 0)
    }
}

/// Whether a domain has pods, once so many of them have left it.
fn has_more(domains: &Domains, here: &str, left: usize) -> bool {
    domains.get(here).is_some_and(|count| *count > left)
}

/// Whether there are no pods in any domain, once so many have left this one.
fn is_empty_without(domains: &Domains, here: Option<&str>, left: usize) -> bool {
    let mut all = domains.iter();
    all.all(|(domain, count)| here == Some(domain.as_str()) && *count <= left)
}

/// Which pods a spread counts.
fn selector_of(pod: &Pod, constraint: &TopologySpreadConstraint) -> Option<LabelSelector> {
    let keys = constraint.match_label_keys.as_deref();
    with_keys(constraint.label_selector.as_ref(), keys, pod)
}

/// Whether a spread of `pod` counts another.
fn counts_pod(pod: &Pod, selector: Option<&LabelSelector>, other: &Pod) -> bool {
    namespace(&other.metadata) == namespace(&pod.metadata)
        && other.metadata.deletion_timestamp.is_none()
        && selects(selector, other.metadata.labels.as_ref())
}

/// Whether a spread looks at a node.
fn counts_node(spec: &PodSpec, node: &Node, constraint: &TopologySpreadConstraint) -> bool {
    let affinity =
        constraint.node_affinity_policy.as_deref() == Some("Ignore") || rules::accepts_node(spec, node);
    let taints = constraint.node_taints_policy.as_deref() != Some("Honor")
        || rules::untolerated(spec, node, &["NoSchedule", "NoExecute"]).is_none();
    affinity && taints
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
        let domains = |term: &PodAffinityTerm| -> Domains {
            let others = placed
                .iter()
                .filter(|(other, _)| term_selects(term, pod, other, namespaces));
            counted(others.filter_map(|(_, node)| domain(node, &term.topology_key)))
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
        let together = terms.iter().map(|term| {
            let found = meant
                .iter()
                .filter_map(|(_, node)| domain(node, &term.topology_key));
            (term.topology_key.clone(), counted(found))
        });
        let apart = rules::required_anti_affinity(spec)
            .iter()
            .map(|term| (term.topology_key.clone(), domains(term)));
        let mut this = Self {
            spreads: spec
                .topology_spread_constraints
                .iter()
                .flatten()
                .map(|constraint| Spread::new(pod, spec, nodes, placed, constraint))
                .collect(),
            together: together.collect(),
            is_of_its_group: is_meant(pod),
            apart: apart.collect(),
            ..Self::default()
        };
        for (other, node) in shy {
            let Some(spec) = &other.spec else { continue };
            for term in rules::required_anti_affinity(spec) {
                if let Some(here) = domain(node, &term.topology_key)
                    && term_selects(term, other, pod, namespaces)
                {
                    let domains = this.forbidden.entry(term.topology_key.clone()).or_default();
                    *domains.entry(here.to_owned()).or_insert(0) += 1;
                }
            }
        }
        for (weight, term) in rules::preferred_pod_terms(spec) {
            for (here, count) in domains(term) {
                *this
                    .preferred
                    .entry((term.topology_key.clone(), here))
                    .or_insert(0) += weight.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
        this
    }

    /// Whether no neighbour keeps the pod from any node.
    pub fn is_free(&self) -> bool {
        !self.spreads.iter().any(|spread| spread.hard)
            && self.together.is_empty()
            && self.apart.is_empty()
            && self.forbidden.is_empty()
    }

    /// Why a node cannot have the pod.
    pub fn refusal(&self, node: &Node) -> Option<&'static str> {
        self.refusal_without(&Leaving::default(), node)
    }

    /// The same once some of its pods have left the node.
    pub fn refusal_without(&self, leaving: &Leaving, node: &Node) -> Option<&'static str> {
        for (index, spread) in self.spreads.iter().enumerate() {
            let left = leaving.spreads.get(index).copied().unwrap_or(0);
            if spread.hard
                && let Some(why) = spread.refusal(node, left)
            {
                return Some(why);
            }
        }
        // The first of a group that looks for itself may go anywhere.
        let is_first = self.is_of_its_group
            && self
                .together
                .iter()
                .all(|(key, found)| is_empty_without(found, domain(node, key), leaving.together));
        let together = self.together.iter().all(|(key, found)| {
            domain(node, key).is_some_and(|here| is_first || has_more(found, here, leaving.together))
        });
        if !together {
            return Some(AFFINITY);
        }
        let is_near = |(index, (key, found)): (usize, &(String, Domains))| {
            let left = leaving.apart.get(index).copied().unwrap_or(0);
            domain(node, key).is_some_and(|here| has_more(found, here, left))
        };
        if self.apart.iter().enumerate().any(is_near) {
            return Some(ANTI_AFFINITY);
        }
        let is_banned = |(key, found): (&String, &Domains)| {
            let left = leaving.forbidden.get(key).copied().unwrap_or(0);
            domain(node, key).is_some_and(|here| has_more(found, here, left))
        };
        self.forbidden.iter().any(is_banned).then_some(OTHERS)
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

/// How many pods are in each of the domains that were found.
fn counted<'a>(found: impl Iterator<Item = &'a str>) -> Domains {
    let mut domains = Domains::new();
    for here in found {
        *domains.entry(here.to_owned()).or_insert(0) += 1;
    }
    domains
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
        let selector = selector_of(pod, constraint);
        let counted: BTreeMap<&str, &str> = nodes
            .iter()
            .filter(|node| counts_node(spec, node, constraint))
            .filter_map(|node| Some((name(&node.metadata), domain(node, key)?)))
            .collect();
        let mut counts: BTreeMap<String, i32> =
            counted.values().map(|here| ((*here).to_owned(), 0)).collect();
        for (other, node) in placed {
            if counts_pod(pod, selector.as_ref(), other)
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

    /// Why a node cannot have the pod, once so many of the pods that count have left it.
    fn refusal(&self, node: &Node, left: i32) -> Option<&'static str> {
        let Some(here) = domain(node, &self.key) else {
            return Some(SPREAD_NO_LABEL);
        };
        let count = (self.counts.get(here).copied().unwrap_or(0) - left).max(0);
        // With fewer pods its domain may be the one that has the fewest.
        let least = if left > 0 {
            self.least.min(count)
        } else {
            self.least
        };
        (count + self.own - least > self.max_skew).then_some(SPREAD)
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

    /// Who makes room for a pod by the end of others asks what holds without them.
    #[test]
    fn pods_that_leave_a_node_count_there_no_more() {
        let plain = pod(json!({}));
        let terms = |kind: &str| {
            pod(json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term()]}}}))
        };
        let (shy, social) = (terms("podAntiAffinity"), terms("podAffinity"));
        let mut guest = Pod::clone(&social);
        guest.metadata.labels = serde_json::from_value(json!({"app": "other"})).unwrap();
        let guest = Arc::new(guest);
        let even = pod(spread("DoNotSchedule"));
        let (a, b) = (node("a"), node("b"));
        for (pod, there, others, expected) in [
            (&shy, &plain, 1, [Some(ANTI_AFFINITY), None]),
            (&shy, &plain, 2, [Some(ANTI_AFFINITY); 2]),
            (&plain, &shy, 1, [Some(OTHERS), None]),
            (&plain, &shy, 2, [Some(OTHERS); 2]),
            (&even, &plain, 1, [Some(SPREAD), None]),
            (&even, &plain, 2, [Some(SPREAD); 2]),
            (&social, &plain, 1, [None, None]),
            (&guest, &plain, 1, [None, Some(AFFINITY)]),
            (&guest, &plain, 2, [None, None]),
        ] {
            let placed = vec![(there.clone(), a.clone()); others];
            let spec = pod.spec.as_ref().unwrap();
            let namespaces = BTreeMap::new();
            let rules = Neighbours::new(pod, spec, &[&a, &b], &placed, &placed, &namespaces);
            assert!(!rules.is_free());
            let leaving = Leaving::new(pod, spec, &a, std::slice::from_ref(there), &namespaces);
            assert!(!leaving.is_nothing());
            let found = [rules.refusal(&a), rules.refusal_without(&leaving, &a)];
            assert_eq!(found, expected, "{others} of {:?} for {spec:?}", there.spec);
        }
        let spec = plain.spec.as_ref().unwrap();
        assert!(Leaving::new(&plain, spec, &a, std::slice::from_ref(&plain), &BTreeMap::new()).is_nothing());
        let rules = Neighbours::new(&plain, spec, &[&a], &[], &[], &BTreeMap::new());
        assert!(rules.is_free());
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
