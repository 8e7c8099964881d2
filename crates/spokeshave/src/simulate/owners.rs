//! Whose pods are whose: an owner of a table has the name of its workload before its own where it would share that with others, and no two owners are one.
//!
//! Owns names of owners. Which namespaces they are in, and what they do over time, is not its business.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use spokeshave_plan::report::some_of;
use spokeshave_scenario::generate::owners;
use spokeshave_scenario::pods::OWNER_LABEL;
use spokeshave_scenario::workload::Workload;
use spokeshave_scenario::{Owner, OwnerKind, Timeline};

use super::cluster::{paths_of, shown};
use super::document::{Document, Wrong};

/// So many owners of one name are named.
const MOST_NAMED: usize = 3;

/// Kind, namespace and name of an owner.
type Key = (OwnerKind, String, String);

/// Gives owners of tables the name of their workload where they share theirs with others. Timelines are by workload; that of the dumps to begin with, `dumps` and
/// those of the scenario, has the empty name.
///
/// # Errors
/// Two owners have one kind, namespace and name.
pub(crate) fn settle(
    document: &Document,
    dumps: &[PathBuf],
    timelines: &mut BTreeMap<String, Timeline>,
) -> Result<(), Wrong> {
    let workloads = &document.scenario.workloads;
    let shared = shared(&all(workloads, timelines));
    for workload in workloads.iter().filter(|workload| workload.kind.is_table()) {
        let timeline = timelines.get_mut(&workload.name);
        for owner in timeline.into_iter().flat_map(|timeline| &mut timeline.owners) {
            if shared.contains(&(owner.namespace.clone(), owner.name.clone())) {
                let name = format!("{}-{}", workload.name, owner.name);
                rename(owner, name);
            }
        }
    }
    refuse_twins(document, dumps, all(workloads, timelines))
}

/// The owners of each workload, and at last those of the dumps to begin with.
fn all(workloads: &[Workload], timelines: &BTreeMap<String, Timeline>) -> Vec<Vec<Key>> {
    let recorded = |name: &str| {
        let owners = timelines
            .get(name)
            .into_iter()
            .flat_map(|timeline| &timeline.owners);
        owners.map(|owner| (owner.kind, owner.namespace.clone(), owner.name.clone()))
    };
    let of_workload = |workload: &Workload| -> Vec<Key> {
        let generated = owners(workload).into_iter();
        let generated = generated.map(|(kind, name)| (kind, workload.namespace.clone(), name));
        generated.chain(recorded(&workload.name)).collect()
    };
    let mut all: Vec<Vec<Key>> = workloads.iter().map(of_workload).collect();
    all.push(recorded("").collect());
    all
}

/// Namespaces and names that owners of several workloads have, of whatever kind: by its name an owner finds its pods.
fn shared(all: &[Vec<Key>]) -> BTreeSet<(String, String)> {
    let mut first: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut shared = BTreeSet::new();
    for (index, keys) in all.iter().enumerate() {
        for (_, namespace, name) in keys {
            let known = *first.entry((namespace.as_str(), name.as_str())).or_insert(index);
            if known != index {
                shared.insert((namespace.clone(), name.clone()));
            }
        }
    }
    shared
}

/// Gives an owner of a table another name, by which it finds its pods, and they each other.
fn rename(owner: &mut Owner, name: String) {
    let template = Arc::make_mut(&mut owner.template);
    let own = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut());
    let affinity = template.spec.as_mut().and_then(|spec| spec.affinity.as_mut());
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_mut());
    let terms = apart.and_then(|apart| apart.required_during_scheduling_ignored_during_execution.as_mut());
    let terms = terms.into_iter().flatten();
    let selected = terms.filter_map(|term| term.label_selector.as_mut()?.match_labels.as_mut());
    for labels in own.into_iter().chain(selected) {
        if let Some(label) = labels.get_mut(OWNER_LABEL) {
            label.clone_from(&name);
        }
    }
    owner.name = name;
}

/// Refuses owners of one kind, namespace and name: what is two here would be one in a cluster.
fn refuse_twins(document: &Document, dumps: &[PathBuf], all: Vec<Vec<Key>>) -> Result<(), Wrong> {
    let mut first: BTreeMap<Key, usize> = BTreeMap::new();
    let mut twins: BTreeMap<(usize, usize), Vec<String>> = BTreeMap::new();
    for (index, keys) in all.into_iter().enumerate() {
        for key in keys {
            match first.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(index);
                }
                Entry::Occupied(entry) => {
                    let names = twins.entry((*entry.get(), index)).or_default();
                    names.push(described(entry.key()));
                }
            }
        }
    }
    let problems: Vec<String> = twins
        .iter()
        .flat_map(|((one, other), names)| twin(document, dumps, *one, *other, names).0)
        .collect();
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Wrong(problems)),
    }
}

/// What is said of two workloads, by their positions, that have owners of these names; the dumps to begin with come after the last one.
fn twin(document: &Document, dumps: &[PathBuf], one: usize, other: usize, names: &[String]) -> Wrong {
    let scenario = &document.scenario;
    let field = |index: usize| format!("spec.workloads[{index}].name");
    let named = |index: usize| scenario.workloads.get(index).map(|workload| &workload.name);
    let (place, second) = match named(other) {
        Some(_) => {
            let first = named(one).map_or("", String::as_str);
            let place = document.place(&field(one));
            (other, format!("workload {first:?} at {place}"))
        }
        None => {
            let mut paths = dumps.to_vec();
            paths.extend(paths_of(document, &scenario.cluster.snapshot));
            (one, format!("the dump to begin with, {}", shown(&paths)))
        }
    };
    let name = named(place).map_or("", String::as_str);
    document.wrong(
        &field(place),
        format!(
            "workload {name:?} has {}, and so has {second}; expected one owner of each kind, namespace and name: rename the workload, or leave one of the two out",
            some_of(names, MOST_NAMED)
        ),
    )
}

fn described((kind, namespace, name): &Key) -> String {
    let kind = match kind {
        OwnerKind::Deployment => "Deployment",
        OwnerKind::StatefulSet => "StatefulSet",
        OwnerKind::Job => "Job",
        OwnerKind::Bare => "Pod",
        OwnerKind::Other => "workload",
    };
    format!("{kind} {namespace}/{name}")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use serde_json::json;
    use spokeshave_scenario::{Budget, Spread};

    use super::*;
    use crate::simulate::imports;

    const SCENARIO: &str = "\
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {name: tables}
spec:
  start: 2026-03-02T00:00:00Z
  duration: 1h
  cluster: {manifests: [pools.yaml]}
  workloads:
  - name: trace
    import: {format: dlrm, file: trace.csv, copies: 2}
  - name: web
    deployments: {cpu: 1, memory: 1Gi}
    replicas: 2
  policies:
  - {name: now}
";

    /// A table of two applications, of which the first keeps its pods apart.
    const TABLE: &str = "\
app_name,cpu_request,memory_request,gpu_request,creation_time,deletion_time,max_instance_per_node
web,1,1,0,0,100,1
train,1,1,0,0,100,-1
";

    fn settled(text: &str, budgets: &[Arc<PodDisruptionBudget>]) -> Timeline {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, content) in [("pools.yaml", ""), ("trace.csv", TABLE)] {
            std::fs::write(folder.path().join(name), content).expect("written");
        }
        let file = folder.path().join("tables.yaml").display().to_string();
        let document = Document::parse(&file, text).unwrap_or_else(|wrong| panic!("{wrong}"));
        let recordings = imports::read(&document, &[], budgets).expect("a table");
        let mut timelines = recordings.timelines;
        settle(&document, &[], &mut timelines).unwrap_or_else(|wrong| panic!("{wrong}"));
        timelines.remove("trace").expect("still there")
    }

    fn places(timeline: &Timeline) -> Vec<String> {
        let owners = timeline.owners.iter();
        owners
            .map(|owner| format!("{}/{}", owner.namespace, owner.name))
            .collect()
    }

    #[test]
    fn a_table_takes_its_workloads_name_only_where_another_has_its_own() {
        let found = settled(SCENARIO, &[]);
        assert_eq!(
            places(&found),
            [
                "default/trace-web",
                "default/train",
                "default-copy2/web",
                "default-copy2/train"
            ]
        );
        let template = serde_json::to_value(&*found.owners[0].template).expect("JSON");
        assert_eq!(template["metadata"]["labels"]["app"], "trace-web");
        let apart = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/labelSelector/matchLabels/app";
        assert_eq!(
            template.pointer(apart),
            Some(&json!("trace-web")),
            "its pods still know each other"
        );
    }

    #[test]
    fn a_table_lives_in_the_namespace_of_its_workload_under_the_budgets_there() {
        let text = SCENARIO.replace(
            "- name: trace\n",
            "- name: trace\n    namespace: other\n    ready: 10m\n",
        );
        let budget = |namespace: &str, most: i32| {
            let budget = json!({"metadata": {"name": "web", "namespace": namespace}, "spec": {"maxUnavailable": most, "selector": {}}});
            Arc::new(serde_json::from_value(budget).expect("a budget"))
        };
        let found = settled(&text, &[budget("default", 1), budget("other", 2)]);
        assert_eq!(
            places(&found),
            ["other/web", "other/train", "other-copy2/web", "other-copy2/train"]
        );
        for owner in &found.owners {
            assert_eq!(owner.ready, Spread::exactly(600_000));
        }
        let most = Some(Budget::MaxUnavailable("2".to_owned()));
        let budgets = found.budgets.iter();
        let told = budgets.map(|((namespace, _), budget)| (namespace.as_str(), &budget.amount));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [("other", &most), ("other-copy2", &most)]
        );
    }
}
