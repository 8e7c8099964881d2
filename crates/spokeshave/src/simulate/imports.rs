//! The recordings that a scenario names: opened, decompressed, read by their format.
//!
//! Owns files and the sentences about what was done to a recording. What a recording means is the business of the crate `scenario`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use spokeshave_comparison::Input;
use spokeshave_plan::report::{count, some_of};
use spokeshave_scenario::import::{Recorded, Recording, bend, objects};
use spokeshave_scenario::source::{FORMATS, Format, Source};
use spokeshave_scenario::workload::{Kind, Workload};
use spokeshave_scenario::{DisruptionBudget, Timeline};

use super::as_recorded::RecordedCluster;
use super::cluster::{paths_of, shown};
use super::document::Document;
use super::{inputs, inventory};
use crate::plan::documents::{Style, documents, line_of, list_parts};
use crate::plan::dump::as_text;
use crate::plan::files;
use crate::yaml;

/// Where no workload is generated, what is drawn by seed is the cloud's part only.
const SAME_WORKLOAD: &str = "Every seed has the same recorded workload: intervals are those of boot times and interruptions, not of other weeks.";

/// What was read.
#[derive(Default)]
pub(crate) struct Recordings {
    /// By workload; the dump that the scenario begins with has the empty name.
    pub(crate) timelines: BTreeMap<String, Timeline>,
    /// The files.
    pub(crate) inputs: Vec<Input>,
    /// What was done to them.
    pub(crate) alterations: Vec<String>,
    /// What had to be assumed.
    pub(crate) notes: Vec<String>,
    /// Those of clusters that tell of nodes.
    pub(crate) clusters: Vec<RecordedCluster>,
}

/// Reads all recordings, and the dump to begin with. PodDisruptionBudgets of the manifests protect what was recorded in the namespaces that it has, before copies
/// of it have others.
///
/// # Errors
/// Names the file, and the line or byte at which it is broken.
pub(crate) fn read(
    document: &Document,
    dumps: &[PathBuf],
    budgets: &[Arc<PodDisruptionBudget>],
) -> Result<Recordings> {
    let scenario = &document.scenario;
    let mut found = Recordings::default();
    for path in &scenario.cluster.manifests {
        found.inputs.extend(inputs::of(document, path, "manifests")?);
    }
    if let Some(path) = &scenario.cluster.catalog {
        found.inputs.extend(inputs::of(document, path, "catalog")?);
    }
    let named = paths_of(document, &scenario.cluster.snapshot);
    let snapshot: Vec<PathBuf> = dumps.iter().cloned().chain(named).collect();
    // Before anything is read: what is generated may be too much alone.
    inputs::fit(document, &snapshot, &found.timelines)?;
    if !snapshot.is_empty() {
        for path in files::expand(&snapshot)? {
            let input = inputs::input(&path, &as_named(document, &path), "snapshot")?;
            found.inputs.extend(input);
        }
        let inventory = inventory::read(&snapshot)?;
        let timeline = inventory
            .constant(scenario.start, scenario.duration_ms)
            .map_err(|error| anyhow!("{}: {error}", shown(&snapshot)))?;
        if timeline.owners.is_empty() {
            let those = if snapshot.len() == 1 { "it" } else { "them" };
            found.notes.push(format!(
                "{}: there is no pod and no workload in {those}",
                shown(&snapshot)
            ));
        }
        found.notes.extend(inventory.notes());
        found.timelines.insert(String::new(), timeline);
        inputs::fit(document, &snapshot, &found.timelines)?;
    }
    for (index, workload) in scenario.workloads.iter().enumerate() {
        if let Kind::Import(source) = &workload.kind {
            let field = format!("spec.workloads[{index}].import.file");
            let timeline = found.recording(document, workload, source, &field, budgets)?;
            found.timelines.insert(workload.name.clone(), timeline);
            inputs::fit(document, &snapshot, &found.timelines)?;
        }
    }
    for path in scenario.policies.iter().flat_map(|policy| &policy.manifests) {
        found.inputs.extend(inputs::of(document, path, "manifests")?);
    }
    let is_recorded = |kind: &Kind| matches!(kind, Kind::Import(_));
    if scenario
        .workloads
        .iter()
        .all(|workload| is_recorded(&workload.kind))
    {
        found.alterations.push(SAME_WORKLOAD.to_owned());
    }
    Ok(found)
}

impl Recordings {
    fn recording(
        &mut self,
        document: &Document,
        workload: &Workload,
        source: &Source,
        field: &str,
        budgets: &[Arc<PodDisruptionBudget>],
    ) -> Result<Timeline> {
        let name = FORMATS
            .iter()
            .find(|(_, format)| *format == source.format)
            .map_or("", |(name, _)| *name);
        let paths = paths_of(document, &source.files);
        let scenario = &document.scenario;
        let mut recording = Recording::new(source);
        let paths = match source.format {
            // A directory of dumps.
            Format::Dumps => files::expand(&paths)?,
            _ => paths,
        };
        // Dumps whose name tells no time: there may be thousands.
        let mut untold: Vec<String> = Vec::new();
        for path in &paths {
            let shown = path.display().to_string();
            let bytes = std::fs::read(path)
                .map_err(|error| document.unread(field, format!("cannot read {shown}: {error}")))?;
            self.inputs.push(Input {
                file: as_named(document, path),
                format: name.to_owned(),
                sha256: sha256(&bytes),
                licence: source.licence.clone(),
            });
            if source.format == Format::Dumps {
                refuse_cut_off(&shown, &bytes)?;
                let mut inventory = spokeshave_scenario::import::inventory::Inventory::default();
                inventory::add(&shown, &bytes, &mut inventory)?;
                let told = time_in(path);
                let instant = told.or(inventory.newest()).ok_or_else(|| {
                    anyhow!("{shown}: neither its name nor an object in it says when it was written; name it like 2026-03-02T14-00.yaml")
                })?;
                if told.is_none() {
                    untold.push(format!("{shown} at {instant}"));
                }
                recording
                    .dump(instant, &inventory)
                    .map_err(|error| anyhow!("{shown}: {error}"))?;
            } else {
                recording
                    .read(&bytes)
                    .map_err(|error| anyhow!("{shown}: {error}"))?;
            }
        }
        if !untold.is_empty() {
            self.notes.push(format!(
                "no time like 2026-03-02T14-00 is in the names of {}: taken as written when its newest object was made: {}",
                count(untold.len(), "dump"),
                some_of(&untold, 3)
            ));
        }
        let shown = source.files.join(", ");
        let mut recorded = recording.finish().map_err(|error| anyhow!("{shown}: {error}"))?;
        let notes = std::mem::take(&mut recorded.notes);
        self.notes
            .extend(notes.into_iter().map(|note| format!("{shown}: {note}")));
        self.alterations.extend(alterations(&shown, source));
        if let Some(licence) = &source.licence {
            self.alterations
                .push(format!("{shown}: licence as the scenario states it: {licence}"));
        }
        self.alterations
            .extend(unequal(&shown, source, &recorded, scenario.duration_ms));
        self.clusters
            .extend(RecordedCluster::taken(&shown, &mut recorded, source));
        adopt(workload, &mut recorded.timeline);
        protect(&mut recorded.timeline, budgets);
        bend(recorded, source, scenario.duration_ms).map_err(|error| anyhow!("{shown}: {error}"))
    }
}

/// Gives an import what its workload says of it: how long its pods take until they are ready, and, of a table, its namespace.
fn adopt(workload: &Workload, timeline: &mut Timeline) {
    for owner in &mut timeline.owners {
        if let Some(ready) = workload.ready {
            owner.ready = ready;
        }
        if workload.kind.is_table() {
            owner.namespace.clone_from(&workload.namespace);
        }
    }
}

/// Refuses a list that ends between two of its items. It is well formed, and what it lacks would be taken for deleted. kubectl writes the kind of a list after
/// its items.
fn refuse_cut_off(file: &str, bytes: &[u8]) -> Result<()> {
    let text = as_text(bytes).with_context(|| file.to_owned())?;
    for document in documents(text) {
        if document.style() == Style::Json {
            continue;
        }
        let Some(parts) = list_parts(document.text) else {
            continue;
        };
        let header = yaml::to_json(&parts.header).unwrap_or_default();
        let header: Value = serde_json::from_str(&header).unwrap_or_default();
        if !header["kind"].as_str().unwrap_or_default().ends_with("List") {
            let line = line_of(text, document.offset + document.text.trim_end().len());
            bail!(
                "{file}:{line}: has `items:` but no `kind: List` after them, where kubectl writes it; the file seems to be cut off"
            );
        }
    }
    Ok(())
}

/// The instant in the name of a dump, as in `2026-03-02T14-00.yaml`, `pods-20260302140005.json` or `prod-eu1-2026-03-02T14-00.json`: twelve or fourteen digits
/// from the first date on.
fn time_in(path: &Path) -> Option<Timestamp> {
    let name = path.file_stem()?.to_str()?;
    let mut before = ' ';
    let begins = name.char_indices().filter(|(_, character)| {
        let is_begin = character.is_ascii_digit() && !before.is_ascii_digit();
        before = *character;
        is_begin
    });
    begins.map(|(at, _)| &name[at..]).find_map(instant_at)
}

/// The instant with which a text begins.
fn instant_at(text: &str) -> Option<Timestamp> {
    let is_part = |character: char| character.is_ascii_digit() || "-_.:+TtZz ".contains(character);
    let text = &text[..text
        .find(|character: char| !is_part(character))
        .unwrap_or(text.len())];
    let year = text.bytes().take_while(u8::is_ascii_digit).count();
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    // `2026-03-02` or `20260302`, and no `1-2026`.
    if year != 4 && year < 8 {
        return None;
    }
    let part = |from: usize, to: usize| digits.get(from..to)?.parse::<i16>().ok();
    let seconds = part(12, 14).unwrap_or(0);
    let small = |number: i16| i8::try_from(number).ok();
    let civil = jiff::civil::DateTime::new(
        part(0, 4)?,
        small(part(4, 6)?)?,
        small(part(6, 8)?)?,
        small(part(8, 10)?)?,
        small(part(10, 12)?)?,
        small(seconds)?,
        0,
    );
    let zoned = civil.ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(zoned.timestamp())
}

/// A file as the scenario names it, from where that is: the same on every machine that has both.
pub(crate) fn as_named(document: &Document, path: &Path) -> String {
    let place = Path::new(&document.file).parent().unwrap_or(Path::new(""));
    path.strip_prefix(place).unwrap_or(path).display().to_string()
}

/// What was done to a recording, in words.
fn alterations(shown: &str, source: &Source) -> Option<String> {
    let mut done = Vec::new();
    if source.scale_cpu != 1.0 {
        done.push(format!("CPU × {}", source.scale_cpu));
    }
    if source.scale_memory != 1.0 {
        done.push(format!("memory × {}", source.scale_memory));
    }
    if source.speed != 1.0 {
        done.push(format!("time {} × faster", source.speed));
    }
    if source.copies > 1 {
        done.push(format!("{} copies side by side", source.copies));
    }
    if source.repeat {
        done.push("repeated".to_owned());
    }
    (!done.is_empty()).then(|| format!("{shown}: {}", done.join(", ")))
}

/// That a recording is much shorter or longer than the scenario, which is not said of one that is repeated.
fn unequal(shown: &str, source: &Source, recorded: &Recorded, duration_ms: u64) -> Option<String> {
    let last = recorded.timeline.events.iter().map(|event| event.at_ms).max();
    let recorded_ms = recorded.recorded_ms.max(last.unwrap_or(0)) as f64 / source.speed;
    let duration_ms = duration_ms as f64;
    // For how long nothing changed in a table, nobody knows.
    if source.repeat || recorded_ms == 0.0 {
        return None;
    }
    let (recorded, duration) = (in_minutes(recorded_ms), in_minutes(duration_ms));
    if recorded_ms < 0.9 * duration_ms {
        Some(format!(
            "{shown}: {recorded} recorded of {duration}: the rest stays as it was at the end"
        ))
    } else if 0.9 * recorded_ms > duration_ms {
        Some(format!("{shown}: the first {duration} of {recorded}"))
    } else {
        None
    }
}

/// A length in whole minutes, or in seconds where it is shorter than one.
fn in_minutes(milliseconds: f64) -> String {
    let unit = if milliseconds < 60_000.0 { 1_000 } else { 60_000 };
    super::shown((milliseconds as u64 / unit * unit).max(1_000))
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// PodDisruptionBudgets of the manifests, in the namespaces that a timeline has. One that was recorded under the same name gives way, as it would to
/// `kubectl apply`.
pub(crate) fn protect(timeline: &mut Timeline, budgets: &[Arc<PodDisruptionBudget>]) {
    if budgets.is_empty() {
        return;
    }
    let owners = timeline.owners.iter();
    let namespaces: BTreeSet<&str> = owners.map(|owner| owner.namespace.as_str()).collect();
    for (name, budget) in budgets.iter().filter_map(|budget| told(budget)) {
        if namespaces.contains(name.0.as_str()) {
            timeline.budgets.insert(name, budget);
        }
    }
}

/// Namespace and name of a PodDisruptionBudget, and what it says; none for one without a selector, which selects nothing.
fn told(budget: &PodDisruptionBudget) -> Option<((String, String), DisruptionBudget)> {
    let (metadata, spec) = (&budget.metadata, budget.spec.as_ref()?);
    let text = |value: &IntOrString| match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    };
    let budget = objects::Budget {
        namespace: metadata.namespace.as_deref().unwrap_or("default").to_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        selector: spec.selector.clone()?,
        max_unavailable: spec.max_unavailable.as_ref().map(text),
        min_available: spec.min_available.as_ref().map(text),
        created: None,
    };
    Some(budget.told())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use serde_json::json;
    use spokeshave_scenario::Budget;

    use super::*;

    const SCENARIO: &str = "\
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {name: protected}
spec:
  start: 2026-03-02T00:00:00Z
  duration: 1h
  cluster: {manifests: [pools.yaml]}
  workloads:
  - name: rec
    import: {format: csv, file: pods.csv, columns: {start: begin, cpu: cores, group: team}, copies: 2}
  policies:
  - {name: now}
";

    /// Pods of Jobs too, which have no replicas from which one could take what has to stay.
    #[test]
    fn budgets_of_manifests_are_over_all_copies_as_they_were_written() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in [
            ("pools.yaml", ""),
            ("pods.csv", "begin,cores,team\n0,1,web\n0,1,web\n"),
        ] {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        let file = folder.path().join("scenario.yaml").display().to_string();
        let document = Document::parse(&file, SCENARIO).unwrap_or_else(|wrong| panic!("{wrong}"));
        let budget = json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": {}}});
        let budget: PodDisruptionBudget = serde_json::from_value(budget).expect("a budget");
        let found = read(&document, &[], &[Arc::new(budget)]).unwrap_or_else(|error| panic!("{error}"));
        let budgets = found.timelines["rec"].budgets.iter();
        let told = budgets.map(|((namespace, name), budget)| (namespace.as_str(), name.as_str(), budget));
        let least = DisruptionBudget {
            selector: LabelSelector::default(),
            amount: Some(Budget::MinAvailable("2".to_owned())),
        };
        assert_eq!(
            told.collect::<Vec<_>>(),
            [("default", "web", &least), ("default-copy2", "web", &least)]
        );
    }

    /// In a cluster there is one object of a name, and what the user writes now is what is applied last.
    #[test]
    fn a_budget_of_manifests_takes_the_place_of_a_recorded_one_of_its_name() {
        let owner = json!({"kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": []}, "status": {"phase": "Running"}});
        let budget = |namespace: &str, name: &str, most: i32| {
            json!({"kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": namespace},
                "spec": {"maxUnavailable": most, "selector": {"matchLabels": {"app": "web"}}}})
        };
        let mut inventory = spokeshave_scenario::import::inventory::Inventory::default();
        for object in [owner, budget("shop", "web", 1), budget("shop", "db", 1)] {
            let object = spokeshave_scenario::import::objects::Object::read(&object.to_string(), None);
            inventory.add(object.expect("readable"));
        }
        let start = "2026-03-02T00:00:00Z".parse().expect("an instant");
        let mut timeline = inventory.constant(start, 3_600_000).expect("small");
        let manifests = [budget("shop", "web", 3), budget("nowhere", "web", 5)];
        let manifests: [Arc<PodDisruptionBudget>; 2] =
            manifests.map(|budget| Arc::new(serde_json::from_value(budget).expect("a budget")));
        protect(&mut timeline, &manifests);
        let told: Vec<_> = timeline
            .budgets
            .iter()
            .map(|((namespace, name), budget)| (namespace.as_str(), name.as_str(), budget.amount.clone()))
            .collect();
        let most = |most: &str| Some(Budget::MaxUnavailable(most.to_owned()));
        assert_eq!(told, [("shop", "db", most("1")), ("shop", "web", most("3"))]);
    }

    /// As a recorder leaves them behind whose API server was away, or that was ended while it wrote: they are not the dumps of a smaller cluster.
    #[test]
    fn a_dump_that_failed_or_was_cut_off_is_refused() {
        let item = |name: &str| {
            format!(
                "- apiVersion: apps/v1\n  kind: Deployment\n  metadata: {{name: {name}}}\n  \
                 spec: {{replicas: 2, template: {{spec: {{containers: [{{name: a}}]}}}}}}\n"
            )
        };
        let whole = format!(
            "apiVersion: v1\nitems:\n{}{}kind: List\n",
            item("web"),
            item("api")
        );
        let cut = format!("apiVersion: v1\nitems:\n{}- apiVersion: apps/v1\n", item("web"));
        let nothing = "2026-03-02T01-00.yaml: holds neither a workload nor a pod";
        let told = [
            (whole.as_str(), None),
            ("", Some(nothing)),
            ("apiVersion: v1\nitems: []\nkind: List\n", Some(nothing)),
            (
                cut.as_str(),
                Some("2026-03-02T01-00.yaml:7: has `items:` but no `kind: List` after them"),
            ),
        ];
        let csv =
            "{format: csv, file: pods.csv, columns: {start: begin, cpu: cores, group: team}, copies: 2}";
        let scenario = SCENARIO.replace(csv, "{format: dumps, file: dumps}");
        for (second, expected) in told {
            let folder = tempfile::tempdir().expect("a temporary folder");
            std::fs::create_dir(folder.path().join("dumps")).expect("made");
            for (name, text) in [
                ("pools.yaml", ""),
                ("dumps/2026-03-02T00-00.yaml", whole.as_str()),
                ("dumps/2026-03-02T01-00.yaml", second),
            ] {
                std::fs::write(folder.path().join(name), text).expect("written");
            }
            let file = folder.path().join("scenario.yaml").display().to_string();
            let document = Document::parse(&file, &scenario).unwrap_or_else(|wrong| panic!("{wrong}"));
            match (read(&document, &[], &[]), expected) {
                (Ok(found), None) => assert_eq!(found.timelines["rec"].owners.len(), 2),
                (Err(error), Some(expected)) => assert!(error.to_string().contains(expected), "{error}"),
                (Ok(_), Some(expected)) => panic!("not refused: {expected}"),
                (Err(error), None) => panic!("{error}"),
            }
        }
    }

    /// What a table says of two hours, in scenarios of other lengths.
    #[test]
    fn a_recording_of_another_length_than_the_scenario_is_said_to_be() {
        for (duration, more, expected) in [
            ("2h", "", None),
            ("130m", "", None),
            (
                "1d",
                "",
                Some("pods.csv: 2h recorded of 1d: the rest stays as it was at the end"),
            ),
            (
                "1d",
                ", speed: 0.5",
                Some("pods.csv: 4h recorded of 1d: the rest stays as it was at the end"),
            ),
            ("1h", "", Some("pods.csv: the first 1h of 2h")),
            ("1d", ", repeat: true", None),
        ] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            for (name, text) in [
                ("pools.yaml", ""),
                ("pods.csv", "begin,cores,team\n0,1,web\n7200,1,web\n"),
            ] {
                std::fs::write(folder.path().join(name), text).expect("written");
            }
            let scenario = SCENARIO
                .replace("duration: 1h", &format!("duration: {duration}"))
                .replace(", copies: 2", more);
            let file = folder.path().join("scenario.yaml").display().to_string();
            let document = Document::parse(&file, &scenario).unwrap_or_else(|wrong| panic!("{wrong}"));
            let found = read(&document, &[], &[]).unwrap_or_else(|error| panic!("{error}"));
            let mut told = found.alterations.iter();
            let told = told.find(|text| text.starts_with("pods.csv") && text.contains(" of "));
            assert_eq!(told.map(String::as_str), expected, "{duration}{more}");
        }
    }

    #[test]
    fn names_of_dumps_tell_their_time() {
        for (name, expected) in [
            ("dumps/2026-03-02T14-00.yaml", Some("2026-03-02T14:00:00Z")),
            ("pods-20260302140005.json", Some("2026-03-02T14:00:05Z")),
            ("2026-13-02T14-00.yaml", None),
            ("monday.yaml", None),
            ("prod-eu1-2026-03-02T01-00.json", Some("2026-03-02T01:00:00Z")),
            ("12-20260302T0100Z.json", Some("2026-03-02T01:00:00Z")),
            ("2026-03-02T01-00-node3-17.json", Some("2026-03-02T01:00:00Z")),
            ("v2-2026-03-02.json", None),
            ("é1é-2026.json", None),
        ] {
            let found = time_in(Path::new(name)).map(|instant| instant.to_string());
            assert_eq!(found.as_deref(), expected, "{name}");
        }
    }
}
