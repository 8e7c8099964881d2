//! The manifests of a scenario, judged as an API server would: what it would refuse is a mistake of the scenario, and so is what is there twice.
//!
//! Owns what is wrong with a PodDisruptionBudget and with a DaemonSet, and the note that workloads among them do not run; NodePools and DisruptionPolicies have
//! the schemas of their definitions. It changes no object.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::de::DeserializeOwned;
use serde_json::Value;
use spokeshave_api::Quantity;
use spokeshave_apiserver::{TypeSchema, prune};
use spokeshave_scenario::import::objects;

use super::document::Wrong;
use super::inventory::{self, Piece};
use crate::field;
use crate::lines::Lines;
use crate::plan::{files, schema};
use crate::text::count;
use crate::yaml;

/// Versions and kinds that are judged.
const KINDS: [(&str, &str); 4] = [
    ("karpenter.sh/v1", "NodePool"),
    ("spokeshave.dev/v1alpha1", "DisruptionPolicy"),
    ("policy/v1", "PodDisruptionBudget"),
    ("apps/v1", "DaemonSet"),
];

/// Versions and kinds that are pods or make some, which a simulation takes from dumps.
const RUNNING: [(&str, &str); 7] = [
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "CronJob"),
    ("batch/v1", "Job"),
    ("v1", "Pod"),
    ("v1", "ReplicationController"),
];

/// What there is to say of manifests that an API server takes.
pub(crate) struct Judged {
    /// That workloads among them do not run, if there are any.
    pub(crate) idle: Option<String>,
    /// How many objects there are of kinds and versions that are read in dumps alone, such as a Deployment of an old version.
    pub(crate) of_dumps: BTreeMap<(String, String), usize>,
}

/// Refuses manifests that an API server would refuse, and objects of one kind and name that are there twice. Of workloads it says that they are left out.
///
/// # Errors
/// [`Wrong`], with everything that is wrong with them; or a file cannot be read.
pub(crate) fn refuse_wrong(paths: &[PathBuf]) -> Result<Judged> {
    let mut judge = Judge::default();
    for path in files::expand(paths)? {
        let (file, bytes) = files::bytes_of(&path)?;
        let mut look = |piece: &Piece<'_>| judge.look(&file, piece);
        inventory::each(&file, &bytes, &mut look)?;
    }
    match judge.problems.is_empty() {
        true => Ok(Judged {
            idle: judge.idle(),
            of_dumps: judge.of_dumps,
        }),
        false => Err(Wrong(judge.problems).into()),
    }
}

/// The place of the object `metadata.name` in a file.
fn place_of(file: &str, lines: &Lines, piece: &Piece<'_>) -> String {
    format!("{file}:{}", lines.line_or("metadata.name", piece.line))
}

/// Something that is wrong with an object.
struct Fault {
    /// The path of the field.
    field: String,
    /// `FIELD: PROBLEM`.
    said: String,
}

fn fault(field: impl Into<String>, problem: impl fmt::Display) -> Fault {
    let field = field.into();
    Fault {
        said: format!("{field}: {problem}"),
        field,
    }
}

#[derive(Default)]
struct Judge {
    problems: Vec<String>,
    /// `FILE:LINE` of the first object of a kind and name.
    seen: BTreeMap<(&'static str, String), String>,
    /// Place and name of the first workload, and how many there are.
    first_idle: Option<String>,
    idle: usize,
    of_dumps: BTreeMap<(String, String), usize>,
}

impl Judge {
    fn look(&mut self, file: &str, piece: &Piece<'_>) {
        // What is no object at all is told where manifests are read.
        let Ok(object) = serde_json::from_str::<Value>(piece.json) else {
            return;
        };
        let kind = object["kind"].as_str().or(piece.kind).unwrap_or_default();
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let is_meant = |known: &(&str, &str)| known.1 == kind && (version.is_empty() || known.0 == version);
        if let Some((_, kind)) = RUNNING.into_iter().find(is_meant) {
            self.look_at_workload(file, kind, &object, piece);
            return;
        }
        let Some((version, kind)) = KINDS.into_iter().find(is_meant) else {
            if objects::is_read(version, kind) {
                let named = (kind.to_owned(), version.to_owned());
                *self.of_dumps.entry(named).or_default() += 1;
            }
            return;
        };
        let lines = Lines::of(piece.text, piece.in_sequence, piece.line);
        let meta = &object["metadata"];
        let name = meta["name"].as_str().unwrap_or("without a name");
        let namespace = meta["namespace"].as_str().unwrap_or_default();
        let shown = match namespace {
            "" => format!("{kind} {name}"),
            namespace => format!("{kind} {namespace}/{name}"),
        };
        match faults(version, kind, &object, piece) {
            Ok(faults) => {
                for Fault { field, said } in faults {
                    let line = lines.line_or(&field, piece.line);
                    self.problems.push(format!(
                        "{file}:{line}: {shown} would be refused by the API server: {said}"
                    ));
                }
            }
            Err((line, problem)) => {
                let problem = format!("{file}:{line}: {shown} cannot be read: {problem}");
                self.problems.push(problem);
            }
        }
        let place = place_of(file, &lines, piece);
        // An object that names no namespace is in the default one.
        let namespace = if namespace.is_empty() {
            "default"
        } else {
            namespace
        };
        match self.seen.entry((kind, format!("{namespace}/{name}"))) {
            Entry::Vacant(entry) => {
                entry.insert(place);
            }
            Entry::Occupied(entry) => self.problems.push(format!(
                "{place}: {shown} is also at {}; expected one object of each name: leave one out or rename it",
                entry.get()
            )),
        }
    }

    /// Counts what nothing else has made.
    fn look_at_workload(&mut self, file: &str, kind: &str, object: &Value, piece: &Piece<'_>) {
        let meta = &object["metadata"];
        if !meta["ownerReferences"].is_null() {
            return;
        }
        self.idle += 1;
        if self.first_idle.is_none() {
            let lines = Lines::of(piece.text, piece.in_sequence, piece.line);
            let (namespace, name) = (&meta["namespace"], &meta["name"]);
            self.first_idle = Some(format!(
                "{}: {kind} {}/{}",
                place_of(file, &lines, piece),
                namespace.as_str().unwrap_or("default"),
                name.as_str().unwrap_or("without a name")
            ));
        }
    }

    /// That workloads of the manifests do not run, if there are any.
    fn idle(&self) -> Option<String> {
        let first = self.first_idle.as_ref()?;
        let (others, are) = match self.idle - 1 {
            0 => (String::new(), "is"),
            others => (format!(" and {}", count(others, "other")), "are"),
        };
        Some(format!(
            "{first}{others} {are} left out: `manifests` set up the cluster, and what runs in it comes from `workloads` and `cluster.snapshot`"
        ))
    }
}

/// What is wrong with an object; or the line at which it is none of its kind, and why.
fn faults(
    version: &str,
    kind: &str,
    object: &Value,
    piece: &Piece<'_>,
) -> Result<Vec<Fault>, (usize, String)> {
    let found = match kind {
        "PodDisruptionBudget" => budget_faults(&typed(piece)?),
        "DaemonSet" => daemon_set_faults(&typed(piece)?),
        _ => {
            let refusal = schema::refusal(kind, object);
            let refusal = refusal.map(|(field, said)| Fault { field, said });
            return Ok(refusal.into_iter().collect());
        }
    };
    if schema::is_from_cluster(object) {
        return Ok(Vec::new());
    }
    let mut faults = unknown_fields(version, kind, object);
    faults.extend(found);
    Ok(faults)
}

fn typed<T: DeserializeOwned>(piece: &Piece<'_>) -> Result<T, (usize, String)> {
    serde_json::from_str(piece.json).map_err(|error: serde_json::Error| {
        // Once more for the line, which JSON in a row has lost.
        let by_line = yaml::to_json_by_line(piece.text, piece.in_sequence).ok();
        let again = by_line.and_then(|json| serde_json::from_str::<T>(&json).err());
        let inner = again.map_or(1, |error| error.line().max(1));
        (piece.line + inner - 1, field::problem(piece.json, &error))
    })
}

/// Fields that a built-in kind does not have.
fn unknown_fields(version: &str, kind: &str, object: &Value) -> Vec<Fault> {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let Some(schema) = TypeSchema::builtin(group, version, kind) else {
        return Vec::new();
    };
    let unknown = prune(&schema, &mut object.clone());
    unknown
        .into_iter()
        .map(|field| fault(field, "unknown field"))
        .collect()
}

fn budget_faults(budget: &PodDisruptionBudget) -> Vec<Fault> {
    let Some(spec) = &budget.spec else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    if spec.min_available.is_some() && spec.max_unavailable.is_some() {
        faults.push(fault(
            "spec.minAvailable",
            "is set beside maxUnavailable; expected one of the two",
        ));
    }
    for (field, amount) in [
        ("spec.minAvailable", &spec.min_available),
        ("spec.maxUnavailable", &spec.max_unavailable),
    ] {
        let found = match amount {
            Some(IntOrString::Int(number)) if *number < 0 => number.to_string(),
            Some(IntOrString::String(text)) if !is_percentage(text) => format!("{text:?}"),
            _ => continue,
        };
        faults.push(fault(
            field,
            format!("{found} is not valid; expected a number of pods, or a percentage from 0% to 100%"),
        ));
    }
    let selector = spec.selector.as_ref();
    faults.extend(selector.and_then(|selector| misunderstood("spec.selector", selector)));
    faults
}

fn is_percentage(text: &str) -> bool {
    text.strip_suffix('%').is_some_and(|digits| {
        digits.bytes().all(|byte| byte.is_ascii_digit())
            && digits.parse::<u32>().is_ok_and(|percent| percent <= 100)
    })
}

/// The first expression of a selector that does not parse.
fn misunderstood(path: &str, selector: &LabelSelector) -> Option<Fault> {
    let expressions = selector.match_expressions.iter().flatten().enumerate();
    for (index, expression) in expressions {
        let operator = expression.operator.as_str();
        let values = expression.values.as_ref();
        let has_values = values.is_some_and(|values| !values.is_empty());
        let problem = match operator {
            _ if expression.key.is_empty() => "key is missing; expected that of a label".to_owned(),
            "In" | "NotIn" if !has_values => format!("operator {operator} needs values, and has none"),
            "Exists" | "DoesNotExist" if has_values => format!("operator {operator} takes no values"),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => continue,
            _ => {
                format!("operator {operator:?} is not known; expected one of In, NotIn, Exists, DoesNotExist")
            }
        };
        return Some(fault(format!("{path}.matchExpressions[{index}]"), problem));
    }
    None
}

fn daemon_set_faults(set: &DaemonSet) -> Vec<Fault> {
    let (selector, template) = (&set.spec.selector, &set.spec.template);
    let labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone());
    let mut faults = Vec::new();
    let selects_all = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    if selects_all {
        faults.push(fault(
            "spec.selector",
            "is missing or empty; expected labels of the template, such as {matchLabels: {app: node-agent}}",
        ));
    } else if let Some(wrong) = misunderstood("spec.selector", selector) {
        faults.push(wrong);
    } else if !spokeshave_api::selects(selector, &labels.unwrap_or_default()) {
        faults.push(fault(
            "spec.template.metadata.labels",
            "spec.selector does not select them; expected the labels that it names",
        ));
    }
    match &template.spec {
        Some(spec) if !spec.containers.is_empty() => faults.extend(amount_faults(spec)),
        _ => faults.push(fault(
            "spec.template.spec.containers",
            "is missing or empty; expected at least one container",
        )),
    }
    faults
}

/// Requests and limits that are no quantities from 0 on.
fn amount_faults(spec: &PodSpec) -> Vec<Fault> {
    let mut faults = Vec::new();
    let first = spec.init_containers.as_deref().unwrap_or_default();
    for (list, containers) in [("initContainers", first), ("containers", &spec.containers[..])] {
        for (index, container) in containers.iter().enumerate() {
            let path = format!("spec.template.spec.{list}[{index}].resources");
            let resources = container.resources.as_ref();
            let requests = resources.and_then(|resources| resources.requests.as_ref());
            let limits = resources.and_then(|resources| resources.limits.as_ref());
            for (field, amounts) in [("requests", requests), ("limits", limits)] {
                let wrong = amounts.into_iter().flatten().filter(|(_, amount)| {
                    let read = amount.0.parse::<Quantity>();
                    !read.is_ok_and(|amount| amount.nanos() >= 0)
                });
                faults.extend(wrong.map(|(name, amount)| {
                    let expected = "a quantity from 0 on, such as 100m or 128Mi";
                    let problem = format!("{:?} is not valid; expected {expected}", amount.0);
                    fault(format!("{path}.{field}.{name}"), problem)
                }));
            }
        }
    }
    faults
}
