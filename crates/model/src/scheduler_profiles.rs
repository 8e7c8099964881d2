//! How kube-scheduler is configured, as far as that changes where a pod can go (P §6.15, B-60).
//!
//! A profile adds to what its pods say themselves, and leaves some of it unread. It changes no object: lowering asks it about one pod. How nodes are scored is
//! not here, because no decision reads it.

use crate::Pod;
use crate::constraints::{self, Constraints};
use crate::labels;
use crate::pod;
use crate::requirement::{Operator, Requirement};
use crate::requirements::Requirements;
use crate::resources::Resources;
use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, TopologySpreadConstraint,
};
use spokeshave_syntax::names::{label_value_problems, qualified_name_problems};
use std::collections::{BTreeMap, BTreeSet};

/// The scheduler of pods that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// What is added to pods, by the name of their scheduler. Empty where nothing is configured, and then no pod is looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerProfiles {
    named: BTreeMap<String, SchedulerProfile>,
    /// Of pods whose scheduler has no profile of its own.
    others: Option<SchedulerProfile>,
}

/// What one profile adds to its pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerProfile {
    /// Topology spread for pods that have none (P-121), without selectors.
    pub default_constraints: Vec<TopologySpreadConstraint>,
    /// Node affinity beside their own.
    pub added_affinity: Option<AddedAffinity>,
    /// What they request and no node has to have.
    pub ignored_resources: IgnoredResources,
}

impl SchedulerProfiles {
    /// Profiles by the names of schedulers; pods of others are left as they are.
    pub fn by_name(profiles: BTreeMap<String, SchedulerProfile>) -> Self {
        let nothing = SchedulerProfile::default();
        let adding = profiles.into_iter().filter(|(_, profile)| *profile != nothing);
        Self {
            named: adding.collect(),
            others: None,
        }
    }

    /// Default constraints for all pods, whatever scheduler they name (P-121).
    pub fn of_all(default_constraints: Vec<TopologySpreadConstraint>) -> Self {
        let profile = SchedulerProfile {
            default_constraints,
            ..SchedulerProfile::default()
        };
        Self {
            named: BTreeMap::new(),
            others: (profile != SchedulerProfile::default()).then_some(profile),
        }
    }

    /// The profile that judges a pod, unless it adds nothing.
    pub fn of(&self, pod: &Pod) -> Option<&SchedulerProfile> {
        if self.named.is_empty() {
            return self.others.as_ref();
        }
        let named = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
        let name = named.filter(|name| !name.is_empty());
        let profile = self.named.get(name.unwrap_or(DEFAULT_SCHEDULER));
        profile.or(self.others.as_ref())
    }

    /// Whether some pods get topology spread that they did not write themselves.
    pub fn have_default_constraints(&self) -> bool {
        let mut profiles = self.named.values().chain(&self.others);
        profiles.any(|profile| !profile.default_constraints.is_empty())
    }

    /// What a pod requests of its node.
    pub fn requests(&self, pod: &Pod) -> Resources {
        let mut requests = pod::requests(pod);
        if let Some(profile) = self.of(pod) {
            profile.ignored_resources.take_from(&mut requests);
        }
        requests
    }
}

impl SchedulerProfile {
    /// Adds its node affinity to what a pod asks of its node.
    pub(crate) fn add_affinity(&self, constraints: &mut Constraints) {
        if let Some(added) = &self.added_affinity {
            added.add_to(constraints);
        }
    }

    /// The required node affinity that it adds, as it is written.
    pub fn required_affinity(&self) -> Option<&NodeSelector> {
        let written = &self.added_affinity.as_ref()?.written;
        written
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    }

    /// Whether its pods go to no node of ours (P-057): every alternative says so.
    pub(crate) fn opts_out(&self) -> bool {
        let refuses = |term: &Requirements| {
            let pool = term.find(labels::NODE_POOL);
            pool.is_some_and(|pool| {
                pool.operator() == Operator::DoesNotExist && pool.is_satisfied_by_absence()
            })
        };
        let required = self.added_affinity.as_ref().map(AddedAffinity::required);
        required.is_some_and(|terms| !terms.is_empty() && terms.iter().all(refuses))
    }
}

/// Node affinity that all pods of a profile have beside their own: both must hold, and both are preferred.
#[derive(Clone, Debug, PartialEq)]
pub struct AddedAffinity {
    written: NodeAffinity,
    required: Vec<Requirements>,
    preferred: Vec<(i32, Requirements)>,
}

/// Where required affinity stands.
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
/// Where preferred affinity stands.
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

impl AddedAffinity {
    /// Reads node affinity as it is written.
    ///
    /// # Errors
    /// The first field without meaning, by its path from the affinity on, and what is wrong with it.
    pub fn read(written: NodeAffinity) -> Result<Self, String> {
        let required = written
            .required_during_scheduling_ignored_during_execution
            .as_ref();
        let terms = required.map_or(&[][..], |required| required.node_selector_terms.as_slice());
        for (index, term) in terms.iter().enumerate() {
            check(term, &format!("{REQUIRED}[{index}]"))?;
        }
        let preferences = written
            .preferred_during_scheduling_ignored_during_execution
            .as_deref()
            .unwrap_or_default();
        for (index, preference) in preferences.iter().enumerate() {
            check(
                &preference.preference,
                &format!("{PREFERRED}[{index}].preference"),
            )?;
        }
        let preferred = preferences.iter().filter_map(|preference| {
            let asked = Requirements::from_term(&preference.preference).ok()?;
            (preference.weight > 0 && !asked.is_empty()).then_some((preference.weight, asked))
        });
        let preferred = preferred.collect();
        let required = required.map(|required| constraints::required_terms(required, true));
        Ok(Self {
            required: required.unwrap_or_default(),
            preferred,
            written,
        })
    }

    /// Whether it asks for nothing and prefers nothing.
    pub fn is_empty(&self) -> bool {
        self.required.is_empty() && self.preferred.is_empty()
    }

    /// One of these must hold, unless there are none.
    pub fn required(&self) -> &[Requirements] {
        &self.required
    }

    /// Each alternative of the pod with each of these.
    fn add_to(&self, constraints: &mut Constraints) {
        let own = std::mem::take(&mut constraints.required_terms);
        constraints.required_terms = match (own.is_empty(), self.required.is_empty()) {
            (_, true) => own,
            (true, false) => self.required.clone(),
            (false, false) => {
                let with_added = |own: &Requirements| {
                    let own = own.clone();
                    self.required.iter().map(move |added| {
                        let mut both = own.clone();
                        both.add_all(added);
                        both
                    })
                };
                own.iter().flat_map(with_added).collect()
            }
        };
        constraints.preferred_terms.extend(self.preferred.iter().cloned());
    }
}

/// Whether a term means something to kube-scheduler.
fn check(term: &NodeSelectorTerm, path: &str) -> Result<(), String> {
    for (index, expression) in term.match_expressions.iter().flatten().enumerate() {
        if let Some(problem) = problem(expression) {
            return Err(format!("{path}.matchExpressions[{index}].{problem}"));
        }
    }
    for (index, field) in term.match_fields.iter().flatten().enumerate() {
        if constraints::by_name(field).is_none() {
            return Err(format!(
                "{path}.matchFields[{index}] is not known; expected metadata.name with operator In or NotIn and the name of one node"
            ));
        }
    }
    Ok(())
}

/// What is wrong with an expression, by field.
fn problem(expression: &NodeSelectorRequirement) -> Option<String> {
    if let Some(problem) = qualified_name_problems(&expression.key).first() {
        return Some(format!("key is not a qualified name, {problem}"));
    }
    let values = expression.values.as_deref().unwrap_or_default();
    let operator = expression.operator.as_str();
    match operator {
        "In" | "NotIn" => {
            let mut problems = values.iter().filter_map(|value| {
                let problem = label_value_problems(value).into_iter().next()?;
                Some(format!(
                    "values has {value:?}, which no label can have: {problem}"
                ))
            });
            let missing = values.is_empty();
            missing
                .then(|| format!("values is empty; expected at least one for operator {operator}"))
                .or_else(|| problems.next())
        }
        "Exists" | "DoesNotExist" => {
            (!values.is_empty()).then(|| format!("values must be empty for operator {operator}"))
        }
        _ => {
            let error = Requirement::from_node_selector(expression).err()?;
            Some(format!("operator means nothing: {error}"))
        }
    }
}

/// Extended resources that kube-scheduler does not look for on nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IgnoredResources {
    /// By name, such as `example.com/licence`.
    pub names: BTreeSet<String>,
    /// All of a domain, such as `example.com`.
    pub groups: BTreeSet<String>,
}

impl IgnoredResources {
    /// Reads names and groups as they are written.
    ///
    /// # Errors
    /// The first that is no name, by its field, and what is wrong with it.
    pub fn read(names: Vec<String>, groups: Vec<String>) -> Result<Self, String> {
        for (index, name) in names.iter().enumerate() {
            if let Some(problem) = qualified_name_problems(name).first() {
                return Err(format!(
                    "ignoredResources[{index}] is not a qualified name, {problem}"
                ));
            }
        }
        for (index, group) in groups.iter().enumerate() {
            let field = format!("ignoredResourceGroups[{index}]");
            if group.contains('/') {
                return Err(format!(
                    "{field} is {group:?}; expected what stands before the / of a name"
                ));
            }
            if let Some(problem) = qualified_name_problems(group).first() {
                return Err(format!("{field} is not a qualified name, {problem}"));
            }
        }
        Ok(Self {
            names: names.into_iter().collect(),
            groups: groups.into_iter().collect(),
        })
    }

    /// Whether a resource is not looked for. What is not extended always is, as kube-scheduler does.
    pub fn has(&self, name: &str) -> bool {
        let is_of_group = || {
            let group = name.split_once('/').map(|(group, _)| group);
            group.is_some_and(|group| self.groups.contains(group))
        };
        is_extended(name) && (self.names.contains(name) || is_of_group())
    }

    /// Leaves them out.
    pub(crate) fn take_from(&self, requests: &mut Resources) {
        if self.names.is_empty() && self.groups.is_empty() {
            return;
        }
        let ignored = requests.iter().map(|(name, _)| name);
        let ignored: Vec<String> = ignored.filter(|name| self.has(name)).map(str::to_owned).collect();
        for name in &ignored {
            requests.remove(name);
        }
    }
}

/// Whether Kubernetes takes a name for that of an extended resource.
pub fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn pod(spec: Value) -> Pod {
        from_value(json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": spec}))
            .expect("a pod written by hand")
    }

    fn added(affinity: Value) -> Result<AddedAffinity, String> {
        AddedAffinity::read(from_value(affinity).expect("affinity written by hand"))
    }

    fn required(terms: &Value) -> Value {
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}})
    }

    fn is_in(key: &str, value: &str) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]})
    }

    fn profile(affinity: Value) -> SchedulerProfile {
        SchedulerProfile {
            added_affinity: Some(added(affinity).expect("affinity with a meaning")),
            ..SchedulerProfile::default()
        }
    }

    /// What a pod asks for in all, alternative by alternative.
    fn asked(profile: &SchedulerProfile, own: Value) -> Vec<String> {
        let pod = pod(json!({"containers": [], "affinity": {"nodeAffinity": own}}));
        let mut lowered = constraints::lower(&pod, &BTreeMap::new());
        profile.add_affinity(&mut lowered);
        let terms = lowered.required_terms.iter();
        terms.map(ToString::to_string).collect()
    }

    #[test]
    fn b_60_added_affinity_must_hold_beside_the_pods_own() {
        let two = profile(required(&json!([is_in("team", "a"), is_in("team", "b")])));
        assert_eq!(asked(&two, json!({})), ["team In [a]", "team In [b]"]);
        let own = required(&json!([is_in("disk", "x"), is_in("disk", "y")]));
        assert_eq!(
            asked(&two, own),
            [
                "disk In [x], team In [a]",
                "disk In [x], team In [b]",
                "disk In [y], team In [a]",
                "disk In [y], team In [b]",
            ]
        );
        let liked = profile(
            json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": is_in("team", "a")}]}),
        );
        let own = required(&json!([is_in("disk", "x")]));
        assert_eq!(
            asked(&liked, own),
            ["disk In [x]"],
            "a preference requires nothing"
        );
        let blank = profile(required(&json!([{}])));
        let node: Requirements = [Requirement::is(labels::NODE_POOL, "p")].into_iter().collect();
        let terms = blank.added_affinity.as_ref().map(AddedAffinity::required);
        let takes = |terms: &[Requirements]| terms.iter().any(|term| node.satisfy(term));
        assert_eq!(
            terms.map(takes),
            Some(false),
            "a term that asks nothing matches no node"
        );
    }

    #[test]
    fn b_60_what_contradicts_the_pod_fits_nowhere() {
        let a = profile(required(&json!([is_in("team", "a")])));
        let pod = pod(
            json!({"containers": [], "affinity": {"nodeAffinity": required(&json!([is_in("team", "b")]))}}),
        );
        let mut lowered = constraints::lower(&pod, &BTreeMap::new());
        a.add_affinity(&mut lowered);
        let nodes = [Some("a"), Some("b"), None].map(|team| {
            let labels = team.map(|team| Requirement::is("team", team));
            labels.into_iter().collect::<Requirements>()
        });
        for node in &nodes {
            assert!(
                !lowered.required_terms.iter().any(|term| node.satisfy(term)),
                "{node}"
            );
        }
    }

    #[test]
    fn b_60_preferences_of_a_profile_follow_the_pods_own() {
        let term = |weight: i32, value: &str| json!({"weight": weight, "preference": is_in("team", value)});
        let liked = profile(json!({"preferredDuringSchedulingIgnoredDuringExecution": [
            term(5, "a"), term(0, "b"), {"weight": 3, "preference": {}}]}));
        let own = json!({"preferredDuringSchedulingIgnoredDuringExecution": [term(7, "own")]});
        let pod = pod(json!({"containers": [], "affinity": {"nodeAffinity": own}}));
        let mut lowered = constraints::lower(&pod, &BTreeMap::new());
        liked.add_affinity(&mut lowered);
        let terms = lowered.preferred_terms.iter();
        let terms: Vec<(i32, String)> = terms.map(|(weight, term)| (*weight, term.to_string())).collect();
        let expected: [(i32, &str); 2] = [(7, "team In [own]"), (5, "team In [a]")];
        assert_eq!(terms, expected.map(|(weight, text)| (weight, text.to_owned())));
    }

    #[test]
    fn b_60_p_057_only_what_refuses_every_node_of_ours_opts_out() {
        let refuses =
            json!({"matchExpressions": [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]});
        let opts_out = |terms: Value| profile(required(&terms)).opts_out();
        assert!(opts_out(json!([refuses])));
        assert!(
            !opts_out(json!([refuses, is_in("team", "a")])),
            "the other may be ours"
        );
        assert!(!opts_out(json!([{}])) && !opts_out(json!([is_in("team", "a")])));
        assert!(!SchedulerProfile::default().opts_out());
    }

    #[test]
    fn b_60_a_pod_is_judged_by_the_profile_that_it_names() {
        let team = |name: &str| profile(required(&json!([is_in("team", name)])));
        let profiles = SchedulerProfiles::by_name(BTreeMap::from([
            (DEFAULT_SCHEDULER.to_owned(), team("a")),
            ("batch".to_owned(), team("b")),
            ("plain".to_owned(), SchedulerProfile::default()),
        ]));
        let of = |spec: Value| {
            profiles
                .of(&pod(spec))
                .map(|profile| asked(profile, json!({})).join(""))
        };
        for (spec, expected) in [
            (json!({"containers": []}), Some("team In [a]")),
            (
                json!({"containers": [], "schedulerName": ""}),
                Some("team In [a]"),
            ),
            (
                json!({"containers": [], "schedulerName": "default-scheduler"}),
                Some("team In [a]"),
            ),
            (
                json!({"containers": [], "schedulerName": "batch"}),
                Some("team In [b]"),
            ),
            (json!({"containers": [], "schedulerName": "plain"}), None),
            (json!({"containers": [], "schedulerName": "elsewhere"}), None),
        ] {
            assert_eq!(of(spec.clone()).as_deref(), expected, "{spec}");
        }
        let zone = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        let all = SchedulerProfiles::of_all(vec![from_value(zone).expect("a constraint")]);
        let elsewhere = pod(json!({"containers": [], "schedulerName": "elsewhere"}));
        assert!(all.of(&elsewhere).is_some() && all.have_default_constraints());
        assert_eq!(
            SchedulerProfiles::of_all(Vec::new()),
            SchedulerProfiles::default()
        );
        assert!(!profiles.have_default_constraints());
    }

    #[test]
    fn b_60_only_extended_resources_are_left_out() {
        let ignored = IgnoredResources {
            names: ["example.com/licence", "cpu", "hugepages-2Mi"]
                .map(str::to_owned)
                .into(),
            groups: ["vendor.com", "kubernetes.io"].map(str::to_owned).into(),
        };
        for (name, expected) in [
            ("example.com/licence", true),
            ("example.com/other", false),
            ("vendor.com/a", true),
            ("sub.vendor.com/a", false),
            ("cpu", false),
            ("hugepages-2Mi", false),
            ("kubernetes.io/batch", false),
        ] {
            assert_eq!(ignored.has(name), expected, "{name}");
        }
        let profile = SchedulerProfile {
            ignored_resources: ignored,
            ..SchedulerProfile::default()
        };
        let profiles = SchedulerProfiles::by_name(BTreeMap::from([("batch".to_owned(), profile)]));
        let requests =
            json!({"cpu": "1", "example.com/licence": "1", "vendor.com/a": "2", "example.com/other": "3"});
        let read = |names: &[&str], groups: &[&str]| {
            let owned = |all: &[&str]| all.iter().map(ToString::to_string).collect();
            IgnoredResources::read(owned(names), owned(groups))
                .map_err(|text| text.chars().take(26).collect::<String>())
        };
        assert!(read(&["example.com/a", "b"], &["example.com"]).is_ok());
        assert_eq!(
            read(&["a", "b c"], &[]),
            Err("ignoredResources[1] is not".to_owned())
        );
        for group in ["a/b", "a b"] {
            assert_eq!(read(&[], &[group]), Err("ignoredResourceGroups[0] i".to_owned()));
        }
        let names = |scheduler: &str| {
            let spec = json!({"schedulerName": scheduler, "containers": [{"name": "c", "resources": {"requests": requests}}]});
            let counted = profiles.requests(&pod(spec));
            let names: Vec<String> = counted.iter().map(|(name, _)| name.to_owned()).collect();
            names.join(" ")
        };
        assert_eq!(names("batch"), "cpu example.com/other pods");
        assert_eq!(
            names("default-scheduler"),
            "cpu example.com/licence example.com/other pods vendor.com/a"
        );
    }

    #[test]
    fn b_60_affinity_without_meaning_is_named_by_its_field() {
        let one =
            |expression: Value| required(&json!([is_in("team", "a"), {"matchExpressions": [expression]}]));
        let field = |field: Value| required(&json!([{"matchFields": [field]}]));
        for (affinity, expected) in [
            (
                one(json!({"key": "a b", "operator": "Exists"})),
                "[1].matchExpressions[0].key ",
            ),
            (
                one(json!({"key": "a", "operator": "Near"})),
                "[1].matchExpressions[0].operator ",
            ),
            (
                one(json!({"key": "a", "operator": "In"})),
                "[1].matchExpressions[0].values ",
            ),
            (
                one(json!({"key": "a", "operator": "In", "values": ["a b"]})),
                "[1].matchExpressions[0].values ",
            ),
            (
                one(json!({"key": "a", "operator": "Exists", "values": ["b"]})),
                "[1].matchExpressions[0].values ",
            ),
            (
                one(json!({"key": "a", "operator": "Gt", "values": ["x"]})),
                "[1].matchExpressions[0].operator ",
            ),
            (
                field(json!({"key": "metadata.uid", "operator": "In", "values": ["a"]})),
                "[0].matchFields[0] ",
            ),
        ] {
            let text = added(affinity).expect_err(expected);
            assert!(text.starts_with(&format!("{REQUIRED}{expected}")), "{text}");
        }
        let liked = json!({"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}]});
        let text = added(liked).expect_err("an operator");
        assert!(
            text.starts_with(&format!(
                "{PREFERRED}[0].preference.matchExpressions[0].operator "
            )),
            "{text}"
        );
        let name = json!({"key": "metadata.name", "operator": "In", "values": ["n"]});
        assert!(added(field(name)).is_ok());
    }
}
