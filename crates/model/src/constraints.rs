//! What a pod asks of the place it goes to, as a value that many pods share (P §2.2, §6.7, §6.8, §6.9).
//!
//! This is the lowering of one pod's scheduling fields. It resolves namespace selectors, and keeps of the pod's labels only those
//! that some selector in the cluster observes, so that pods which no constraint can tell apart become equal.

mod node_affinity;
mod problem;

use crate::Pod;
use crate::default_spread::DefaultSpread;
use crate::pod;
use crate::requirements::Requirements;
use crate::selector::Selector;
use k8s_openapi::api::core::v1::{PodAffinityTerm, PodSpec, Toleration, TopologySpreadConstraint};
pub use node_affinity::asks_by_name;
pub(crate) use node_affinity::{by_name, required_terms};
pub use problem::{PodProblem, validate};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// A port that a pod opens on its host (P §6.9).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// The address; `0.0.0.0` when unspecified.
    pub ip: String,
    /// The port.
    pub port: i32,
    /// TCP, UDP or SCTP.
    pub protocol: String,
}

impl HostPort {
    /// Same protocol and port, and addresses equal or either unspecified (P-114).
    pub fn conflicts_with(&self, other: &HostPort) -> bool {
        let unspecified = |ip: &str| matches!(ip, "0.0.0.0" | "::");
        self.protocol == other.protocol
            && self.port == other.port
            && (self.ip == other.ip || unspecified(&self.ip) || unspecified(&other.ip))
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IP={} Port={} Proto={}", self.ip, self.port, self.protocol)
    }
}

/// A topology spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spread {
    /// The label key that names domains.
    pub topology_key: String,
    /// How far a domain may be above the minimum.
    pub max_skew: i32,
    /// Fewer eligible domains than this count as a minimum of zero.
    pub min_domains: Option<i32>,
    /// Which pods count; matchLabelKeys are folded in.
    pub selector: Selector,
    /// `DoNotSchedule`; otherwise `ScheduleAnyway`, which relaxation may drop.
    pub required: bool,
    /// nodeAffinityPolicy Honor.
    pub honor_affinity: bool,
    /// nodeTaintsPolicy Honor.
    pub honor_taints: bool,
}

/// A pod affinity or anti-affinity term.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTerm {
    /// The label key that names domains.
    pub topology_key: String,
    /// Which pods; matchLabelKeys and mismatchLabelKeys are folded in.
    pub selector: Selector,
    /// In which namespaces, resolved.
    pub namespaces: BTreeSet<String>,
}

/// Everything that scheduling can see of a pod besides its requests: pods with equal constraints form a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constraints {
    /// The pod's namespace; empty when no selector in the cluster can tell.
    pub namespace: String,
    /// The labels that some selector observes.
    pub labels: BTreeMap<String, String>,
    /// `spec.nodeSelector`.
    pub node_selector: Requirements,
    /// Required node affinity: one of these must hold, unless empty.
    pub required_terms: Vec<Requirements>,
    /// Preferred node affinity with weights, in the order written.
    pub preferred_terms: Vec<(i32, Requirements)>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Topology spread constraints, in the order written.
    pub spreads: Vec<Spread>,
    /// Required pod affinity.
    pub affinity: Vec<PodTerm>,
    /// Required pod anti-affinity.
    pub anti_affinity: Vec<PodTerm>,
    /// Preferred pod affinity with weights.
    pub preferred_affinity: Vec<(i32, PodTerm)>,
    /// Preferred pod anti-affinity with weights.
    pub preferred_anti_affinity: Vec<(i32, PodTerm)>,
    /// Ports on the host.
    pub host_ports: Vec<HostPort>,
    /// Where its volumes can be reached: one of these must hold, unless empty (P §6.10).
    pub volume_terms: Vec<Requirements>,
    /// Whether it needs Dynamic Resource Allocation.
    pub uses_resource_claims: bool,
    /// It is a virtual pod of a CapacityBuffer: it heeds pods that exist, and they do not see it.
    pub is_virtual: bool,
}

impl Eq for Constraints {}

impl Hash for Constraints {
    /// Hashes the cheap and telling fields only; equality decides.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.namespace.hash(state);
        self.labels.hash(state);
        self.node_selector.hash(state);
        self.required_terms.hash(state);
        self.tolerations.len().hash(state);
        self.spreads.hash(state);
        self.affinity.hash(state);
        self.anti_affinity.hash(state);
        self.preferred_terms.len().hash(state);
        self.host_ports.hash(state);
    }
}

impl Constraints {
    /// Node selector, plus the heaviest preferred term as if required, plus the first required term (P-040).
    pub fn all_requirements(&self) -> Requirements {
        let mut requirements = self.node_selector.clone();
        let mut heaviest: Option<&(i32, Requirements)> = None;
        for term in &self.preferred_terms {
            // Stable descending order: of equal weights the first wins.
            if heaviest.is_none_or(|best| term.0 > best.0) {
                heaviest = Some(term);
            }
        }
        if let Some((_, preference)) = heaviest {
            requirements.add_all(preference);
        }
        if let Some(first) = self.required_terms.first() {
            requirements.add_all(first);
        }
        requirements
    }

    /// The same without the preference (P §2.2).
    pub fn strict_requirements(&self) -> Requirements {
        let mut requirements = self.node_selector.clone();
        if let Some(first) = self.required_terms.first() {
            requirements.add_all(first);
        }
        requirements
    }

    /// Node selector with each required term, of which one must hold; the node selector alone where there is no term.
    pub fn alternatives(&self) -> Vec<Requirements> {
        if self.required_terms.is_empty() {
            return vec![self.node_selector.clone()];
        }
        let with_selector = |term: &Requirements| {
            let mut requirements = self.node_selector.clone();
            requirements.add_all(term);
            requirements
        };
        self.required_terms.iter().map(with_selector).collect()
    }

    /// Every selector the pod applies to other pods.
    pub fn selectors(&self) -> impl Iterator<Item = &Selector> {
        let weighted = self
            .preferred_affinity
            .iter()
            .chain(&self.preferred_anti_affinity)
            .map(|(_, term)| term);
        let terms = self
            .affinity
            .iter()
            .chain(&self.anti_affinity)
            .chain(weighted)
            .map(|term| &term.selector);
        self.spreads.iter().map(|spread| &spread.selector).chain(terms)
    }
}

/// The labels of namespaces, by name, to resolve namespace selectors.
pub type NamespaceLabels = BTreeMap<String, BTreeMap<String, String>>;

/// Lowers the scheduling fields of a pod, with all its labels. Expressions without meaning among preferences are dropped; among
/// requirements they are reported by `validate`, and the term is then taken as one that nothing satisfies.
pub fn lower(pod: &Pod, namespaces: &NamespaceLabels) -> Constraints {
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let Some(spec) = &pod.spec else {
        return Constraints {
            namespace,
            labels,
            is_virtual: crate::pod::is_virtual(pod),
            ..Constraints::default()
        };
    };
    let affinity = spec.affinity.as_ref();
    let node_affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let required = node_affinity::required(spec);
    let preferred =
        node_affinity.and_then(|node| node.preferred_during_scheduling_ignored_during_execution.as_ref());
    let pod_affinity = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let pod_anti_affinity = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let term = |term: &PodAffinityTerm| lower_term(term, &namespace, &labels, namespaces);
    Constraints {
        is_virtual: crate::pod::is_virtual(pod),
        node_selector: Requirements::from_labels(spec.node_selector.iter().flatten()),
        required_terms: required
            .map(|required| node_affinity::required_terms(required, asks_by_name(pod)))
            .unwrap_or_default(),
        preferred_terms: preferred
            .into_iter()
            .flatten()
            .filter_map(|term| Some((term.weight, Requirements::from_term(&term.preference).ok()?)))
            .collect(),
        tolerations: spec.tolerations.clone().unwrap_or_default(),
        spreads: spec
            .topology_spread_constraints
            .iter()
            .flatten()
            .map(|spread| lower_spread(spread, &labels))
            .collect(),
        affinity: pod_affinity
            .and_then(|affinity| {
                affinity
                    .required_during_scheduling_ignored_during_execution
                    .as_ref()
            })
            .into_iter()
            .flatten()
            .map(term)
            .collect(),
        anti_affinity: pod_anti_affinity
            .and_then(|affinity| {
                affinity
                    .required_during_scheduling_ignored_during_execution
                    .as_ref()
            })
            .into_iter()
            .flatten()
            .map(term)
            .collect(),
        preferred_affinity: pod_affinity
            .and_then(|affinity| {
                affinity
                    .preferred_during_scheduling_ignored_during_execution
                    .as_ref()
            })
            .into_iter()
            .flatten()
            .map(|weighted| (weighted.weight, term(&weighted.pod_affinity_term)))
            .collect(),
        preferred_anti_affinity: pod_anti_affinity
            .and_then(|affinity| {
                affinity
                    .preferred_during_scheduling_ignored_during_execution
                    .as_ref()
            })
            .into_iter()
            .flatten()
            .map(|weighted| (weighted.weight, term(&weighted.pod_affinity_term)))
            .collect(),
        host_ports: host_ports(spec),
        volume_terms: Vec::new(),
        uses_resource_claims: pod::uses_resource_claims(spec),
        namespace,
        labels,
    }
}

/// Spread that the pod did not write itself, of these constraints (P-121).
pub(crate) fn default_spreads(
    spread: &DefaultSpread,
    constraints: &[TopologySpreadConstraint],
    pod: &Pod,
) -> Vec<Spread> {
    let found = spread.of(constraints, pod);
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    found.iter().map(|spread| lower_spread(spread, &labels)).collect()
}

fn lower_spread(spread: &TopologySpreadConstraint, labels: &BTreeMap<String, String>) -> Spread {
    let mut selector = Selector::parse(spread.label_selector.as_ref());
    for key in spread.match_label_keys.iter().flatten() {
        if let Some(value) = labels.get(key) {
            selector = selector.and_label(key, value, false);
        }
    }
    Spread {
        topology_key: crate::labels::normalize(&spread.topology_key).to_owned(),
        max_skew: spread.max_skew,
        min_domains: spread.min_domains,
        selector,
        required: spread.when_unsatisfiable == "DoNotSchedule",
        honor_affinity: spread.node_affinity_policy.as_deref() != Some("Ignore"),
        honor_taints: spread.node_taints_policy.as_deref() == Some("Honor"),
    }
}

fn lower_term(
    term: &PodAffinityTerm,
    own_namespace: &str,
    labels: &BTreeMap<String, String>,
    known: &NamespaceLabels,
) -> PodTerm {
    let mut selector = Selector::parse(term.label_selector.as_ref());
    for (keys, negate) in [(&term.match_label_keys, false), (&term.mismatch_label_keys, true)] {
        for key in keys.iter().flatten() {
            if let Some(value) = labels.get(key) {
                selector = selector.and_label(key, value, negate);
            }
        }
    }
    let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
    if let Some(namespace_selector) = &term.namespace_selector {
        let wanted = Selector::parse(Some(namespace_selector));
        namespaces.extend(
            known
                .iter()
                .filter(|(_, labels)| wanted.matches(labels))
                .map(|(name, _)| name.clone()),
        );
        if wanted == Selector::All(Vec::new()) {
            namespaces.insert(own_namespace.to_owned());
        }
    } else if namespaces.is_empty() {
        namespaces.insert(own_namespace.to_owned());
    }
    PodTerm {
        topology_key: crate::labels::normalize(&term.topology_key).to_owned(),
        selector,
        namespaces,
    }
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    // What ends before the containers start opens its ports to nobody else's harm; sidecars stay (P-114).
    let init = spec.init_containers.iter().flatten();
    let sidecars = init.filter(|container| pod::is_sidecar(container));
    let ports = spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten());
    let mut ports: Vec<HostPort> = ports
        .filter_map(|port| {
            let host_port = port.host_port.filter(|host_port| *host_port != 0)?;
            let text = |value: &Option<String>, default: &str| {
                value
                    .clone()
                    .filter(|value| !value.is_empty())
                    .unwrap_or_else(|| default.to_owned())
            };
            Some(HostPort {
                ip: text(&port.host_ip, "0.0.0.0"),
                port: host_port,
                protocol: text(&port.protocol, "TCP"),
            })
        })
        .collect();
    ports.sort();
    ports.dedup();
    ports
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[expect(clippy::needless_pass_by_value, reason = "callers write the value in place")]
    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"namespace": "shop", "name": "p", "labels": {"app": "web", "rev": "7"}}, "spec": spec})).expect("a pod written by hand")
    }

    #[test]
    fn p_040_requirements_of_a_pod() {
        let spec = json!({"containers": [], "nodeSelector": {"s": "1"}, "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "r", "operator": "In", "values": ["1"]}]},
                {"matchExpressions": [{"key": "r", "operator": "In", "values": ["2"]}]}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "p", "operator": "In", "values": ["light"]}]}},
                {"weight": 9, "preference": {"matchExpressions": [{"key": "p", "operator": "In", "values": ["heavy"]}]}}]}}});
        let constraints = lower(&pod(spec), &NamespaceLabels::new());
        assert_eq!(
            constraints.all_requirements().to_string(),
            "p In [heavy], r In [1], s In [1]"
        );
        assert_eq!(
            constraints.strict_requirements().to_string(),
            "r In [1], s In [1]"
        );
        let alternatives = constraints.alternatives();
        let alternatives: Vec<String> = alternatives.iter().map(ToString::to_string).collect();
        assert_eq!(alternatives, ["r In [1], s In [1]", "r In [2], s In [1]"]);
    }

    #[test]
    fn p_104_b_42_match_label_keys_join_the_selector_once_and_absent_keys_are_ignored() {
        let spec = json!({"containers": [], "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}}, "matchLabelKeys": ["rev", "missing"]}]});
        let constraints = lower(&pod(spec), &NamespaceLabels::new());
        let labels = |rev: &str| {
            BTreeMap::from([
                ("app".to_owned(), "web".to_owned()),
                ("rev".to_owned(), rev.to_owned()),
            ])
        };
        assert!(constraints.spreads[0].selector.matches(&labels("7")));
        assert!(!constraints.spreads[0].selector.matches(&labels("8")));
        let Selector::All(conditions) = &constraints.spreads[0].selector else {
            panic!("a selector")
        };
        assert_eq!(conditions.len(), 2, "the pod's own selector is left as it is");
    }

    #[test]
    fn p_111_namespaces_of_terms() {
        let spec = |extra: serde_json::Value| {
            let mut term = json!({"topologyKey": "zone", "labelSelector": {}});
            term.as_object_mut()
                .expect("a map")
                .extend(extra.as_object().cloned().unwrap_or_default());
            json!({"containers": [], "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
        };
        let known: NamespaceLabels = ["a", "b", "shop"]
            .map(|name| {
                (
                    name.to_owned(),
                    BTreeMap::from([("n".to_owned(), name.to_owned())]),
                )
            })
            .into();
        let names = |extra| {
            lower(&pod(spec(extra)), &known).affinity[0]
                .namespaces
                .iter()
                .cloned()
                .collect::<Vec<_>>()
                .join(",")
        };
        assert_eq!(names(json!({})), "shop");
        assert_eq!(names(json!({"namespaces": ["a"]})), "a");
        assert_eq!(
            names(json!({"namespaceSelector": {"matchLabels": {"n": "b"}}})),
            "b"
        );
        assert_eq!(
            names(json!({"namespaces": ["a"], "namespaceSelector": {"matchLabels": {"n": "b"}}})),
            "a,b"
        );
        assert_eq!(names(json!({"namespaceSelector": {}})), "a,b,shop");
    }

    #[test]
    fn p_114_host_ports_conflict_on_wildcard_addresses() {
        let port = |ip: &str, protocol: &str| HostPort {
            ip: ip.to_owned(),
            port: 80,
            protocol: protocol.to_owned(),
        };
        assert!(port("0.0.0.0", "TCP").conflicts_with(&port("10.0.0.1", "TCP")));
        assert!(port("::", "TCP").conflicts_with(&port("10.0.0.1", "TCP")));
        assert!(!port("10.0.0.2", "TCP").conflicts_with(&port("10.0.0.1", "TCP")));
        assert!(!port("0.0.0.0", "UDP").conflicts_with(&port("0.0.0.0", "TCP")));
    }
}
