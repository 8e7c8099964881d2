//! `simulate init`: a scenario file to edit, for the workloads of a dump or of the cluster.
//!
//! Owns the text that is written. A cluster is first written as a dump, without what no decision reads, so that the scenario has a file to begin with.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use spokeshave_model::scheduler_profiles::DEFAULT_SCHEDULER;
use spokeshave_scenario::Facts;
use spokeshave_scenario::import::inventory::Inventory;

use super::args::InitArgs;
use super::cluster::start_of;
use super::hashing::NameHash;
use super::standing::Nodes;
use super::{inventory, of_operator, outdated, recorder, unshown};
use crate::connection::kubeconfigs;
use crate::plan::files;
use crate::same_file::{is_same, refusal};
use crate::scheduler_config::{self, Scoring, Strategy};
use crate::text::{count, say};

const WEEK_MS: u64 = 7 * 86_400_000;

/// Where a cluster's dump is written by default.
const DUMP: &str = "cluster.json";

/// Writes a scenario file.
///
/// # Errors
/// The dump cannot be read, or the cluster does not answer.
pub(crate) async fn run(args: &InitArgs) -> Result<String> {
    let scoring = scoring(args.scheduler_config.as_deref())?;
    let mut settings = String::new();
    let paths = match args.filenames.is_empty() {
        false => args.filenames.clone(),
        true => {
            let dump = dump_file(args)?;
            let hash = NameHash::of(&args.hash)?;
            let text = recorder::dump(&args.cluster, hash).await?;
            std::fs::write(&dump, text).with_context(|| format!("cannot write {}", dump.display()))?;
            say(&format!(
                "note: the cluster's workloads, nodes and NodePools are in {}, without environments, images, commands, secrets and annotations that no decision reads",
                dump.display()
            ));
            settings = of_operator::settings(args).await?;
            vec![dump]
        }
    };
    let paths = files::expand(&paths)?;
    if paths.iter().any(|path| path == Path::new("-")) {
        bail!("-f -: the scenario names its dump, so that it has to be a file");
    }
    let inventory = inventory::read(&paths)?;
    if let Some(hint) = outdated::hint(&paths)? {
        say(&format!("note: {hint}"));
    }
    let has_nodes = Nodes::of_files(&paths).is_any();
    if !has_nodes {
        say(&format!("note: {}", unshown::NODES));
    }
    let text = scenario(&paths, &inventory, scoring, has_nodes)?;
    Ok(of_operator::written(text, &settings))
}

/// By what nodes are scored according to kube-scheduler's configuration, as far as the simulator can; none without one, or where it says nothing of it.
fn scoring(path: Option<&Path>) -> Result<Option<&'static str>> {
    let Some(path) = path else { return Ok(None) };
    let config = scheduler_config::read(Some(path))?;
    let scoring = config.scoring.get(DEFAULT_SCHEDULER);
    say(&format!(
        "note: of {} the scenario has how {DEFAULT_SCHEDULER} scores nodes, and nothing else: {}",
        path.display(),
        taken(scoring)
    ));
    Ok(scoring.and_then(simulated))
}

/// The simulator's scoring for one of kube-scheduler's.
fn simulated(scoring: &Scoring) -> Option<&'static str> {
    let strategy = scoring.strategy;
    (strategy != Strategy::RequestedToCapacityRatio).then(|| strategy.as_str())
}

/// What is made of a scoring.
fn taken(scoring: Option<&Scoring>) -> String {
    match scoring {
        None => "which is not written there, so by LeastAllocated".to_owned(),
        Some(scoring) if simulated(scoring).is_none() => {
            format!("{scoring} is not simulated, LeastAllocated stands in its place")
        }
        Some(scoring) if scoring.is_even() => format!("by {scoring}"),
        Some(scoring) => format!("by {scoring}, in which CPU and memory are simulated, with equal weight"),
    }
}

/// Where the cluster's dump is written. What is there already is written over only where the user has named it.
///
/// # Errors
/// It would write over the kubeconfig, or over a file that nobody has named.
fn dump_file(args: &InitArgs) -> Result<PathBuf> {
    let dump = args.dump.clone().unwrap_or_else(|| PathBuf::from(DUMP));
    let kubeconfigs = kubeconfigs(&args.cluster);
    if kubeconfigs.iter().any(|path| is_same(&dump, path)) {
        bail!(refusal("--dump", &dump, "the kubeconfig"));
    }
    if args.dump.is_none() && dump.exists() {
        bail!(
            "{DUMP} exists already and would be written over; --dump FILE names another file, and --dump {DUMP} writes over it"
        );
    }
    Ok(dump)
}

/// How a scenario begins: a sentence about that, its warm-up, and what is said of the dump's nodes.
fn beginning(has_nodes: bool) -> [&'static str; 3] {
    match has_nodes {
        true => [
            "Every policy begins with the nodes there, and with the pods on them. Nodes that no NodePool owns stay to the end, and are in no cost.",
            "warmup: 0s               # what becomes of the cluster as it stands counts from the start",
            "    nodes: snapshot          # or none: every policy begins without nodes and launches its own; give it a warmup of 6h then\n",
        ],
        false => [
            "Every policy begins without nodes and launches its own: there are no Nodes with NodeClaims to take over.",
            "warmup: 6h               # the cluster begins without nodes; what filling it costs is not counted",
            "",
        ],
    }
}

/// The text for some dumps, which have nodes to begin with or not, with a scoring of its scheduler where that is known.
fn scenario(
    paths: &[PathBuf],
    inventory: &Inventory,
    scoring: Option<&str>,
    has_nodes: bool,
) -> Result<String> {
    let [begins, warmup, nodes] = beginning(has_nodes);
    // Objects that were written by hand have no time. It is in the file that is written, which so gives the same run every time.
    let start = start_of(Some(inventory.newest().unwrap_or_else(Timestamp::now)));
    let timeline = inventory.constant(start, WEEK_MS)?;
    let facts = Facts::of(&timeline);
    let stem = paths
        .first()
        .and_then(|path| path.file_stem())
        .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let letters = stem.to_lowercase();
    let name: String = letters
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '-'
            }
        })
        .take(40)
        .collect();
    let name = match name.trim_matches('-') {
        "" => "cluster",
        name => name,
    };
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let (files, those) = match &names[..] {
        [name] => (serde_json::to_string(name)?, "this dump"),
        names => (serde_json::to_string(names)?, "these dumps"),
    };
    let scheduler = scoring.map(|scoring| format!("    scheduler: {{scoring: {scoring}}}\n"));
    let scheduler = scheduler.unwrap_or_default();
    let still = if !has_nodes && unshown::is_still(&timeline, 0) {
        "\n# Nothing of it changes: as long as nothing under `workloads` does either, policies hardly differ."
    } else {
        ""
    };
    let number = |number: u64, noun: &str| count(usize::try_from(number).unwrap_or(usize::MAX), noun);
    let mut text = String::new();
    let _ = write!(
        text,
        "\
# A week of what runs in {shown}: {owners}, {pods}, {cores} cores at the peak.
# `spokeshave simulate THIS_FILE --check` says what it comes to, and without --check it is simulated; docs/simulate.md names every field.
# {begins}{still}
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {{name: {name}}}
spec:
  start: {start}
  duration: 7d
  {warmup}
  seeds: 5
  cluster:
    snapshot: {files}       # workloads, NodePools, DaemonSets and PodDisruptionBudgets are those of {those}
{nodes}{scheduler}  # Beside what is in {those}, for example:
  # workloads:
  # - name: web
  #   deployments: {{count: 10, cpu: [250m, 500m], memory: 512Mi, spread: zone, maxUnavailable: 10%}}
  #   replicas: {{low: 6, high: 40, peakAt: \"14:00\", weekend: 0.5, noise: 0.1}}
  # - name: nightly
  #   jobs: {{cron: \"0 1 * * *\", count: 100, cpu: 2, memory: 4Gi, runs: {{median: 12m, p99: 2h}}}}
  cloud:
    boot: {{median: 35s, p99: 90s}}
  policies:
  - {{name: now}}            # the NodePools as they are
  - {{name: patient, merge: {{NodePool: {{spec: {{disruption: {{consolidateAfter: 30m}}}}}}}}}}
  - {{name: never, model: none}}
  baseline: now
  # expect:
  # - patient.cost <= 1.02 * now.cost
",
        shown = names.join(", "),
        owners = number(facts.owners, "workload"),
        pods = number(facts.peak_pods, "pod"),
        cores = facts.peak_cpu_milli as f64 / 1_000.0,
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::document::Document;
    use spokeshave_scenario::import::objects::Object;

    #[test]
    fn what_is_written_is_a_scenario() {
        let mut inventory = Inventory::default();
        let deployment = r#"{"kind": "Deployment", "metadata": {"name": "web", "creationTimestamp": "2026-03-03T10:00:00Z"},
            "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "500m"}}}]}}}}"#;
        inventory.add(Object::read(deployment, None).expect("readable"));
        let paths = [PathBuf::from("a b/Cluster \"one\".yaml")];
        let text = scenario(&paths, &inventory, None, false).expect("small");
        let read = Document::parse("x.yaml", &text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
        assert_eq!(read.scenario.name, "cluster--one");
        assert_eq!(read.scenario.start.to_string(), "2026-03-03T00:00:00Z");
        assert_eq!(read.scenario.cluster.snapshot, ["a b/Cluster \"one\".yaml"]);
        assert!(
            text.contains("Cluster \"one\".yaml: 1 workload, 3 pods, 1.5 cores at the peak"),
            "{text}"
        );
        assert!(
            text.contains("\n# Nothing of it changes: "),
            "policies cannot differ: {text}"
        );
    }

    #[test]
    fn a_scenario_of_a_dump_with_nodes_begins_with_them_and_counts_from_the_start() {
        let paths = [PathBuf::from("shop.yaml")];
        let [with, without] = [true, false].map(|has_nodes| {
            let text = scenario(&paths, &Inventory::default(), None, has_nodes).expect("small");
            Document::parse("x.yaml", &text)
                .unwrap_or_else(|wrong| panic!("{wrong}\n{text}"))
                .scenario
        });
        assert_eq!((with.warmup_ms, with.cluster.begins_empty), (0, false));
        assert_eq!(
            (without.warmup_ms, without.cluster.begins_empty),
            (6 * 3_600_000, false)
        );
    }

    /// By what the scenario for a kube-scheduler scores nodes, and what is said of it.
    fn scored(strategy: &str) -> (bool, String) {
        use std::io::Write as _;
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args: {{scoringStrategy: {strategy}}}\n"
        );
        let mut file = tempfile::NamedTempFile::with_suffix(".yaml").expect("a file");
        file.write_all(text.as_bytes()).expect("it is written");
        let config = scheduler_config::read(Some(file.path())).expect("a configuration");
        let said = taken(config.scoring.get(DEFAULT_SCHEDULER));
        let scoring = scoring(Some(file.path())).expect("a configuration");
        let paths = [PathBuf::from("shop.yaml")];
        let text = scenario(&paths, &Inventory::default(), scoring, false).expect("small");
        let read = Document::parse("x.yaml", &text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
        (read.scenario.cluster.most_allocated, said)
    }

    #[test]
    fn b_60_a_scenario_scores_nodes_as_kube_scheduler_is_configured_to() {
        let (most, said) = scored("{type: MostAllocated}");
        assert!(most && said == "by MostAllocated (cpu 1, memory 1)", "{said}");
        let (most, said) = scored("{type: MostAllocated, resources: [{name: cpu, weight: 3}]}");
        assert!(most && said.contains("equal weight"), "{said}");
        let (most, said) = scored("{type: LeastAllocated}");
        assert!(!most && said.starts_with("by LeastAllocated"), "{said}");
        let shape = "{type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}}";
        let (most, said) = scored(shape);
        assert!(!most && said.contains("is not simulated"), "{said}");
        assert!(taken(None).contains("not written there"));
        assert_eq!(scoring(None).expect("nothing is read"), None);
    }

    #[test]
    fn a_scenario_begins_with_all_of_several_dumps() {
        let paths = ["shop.yaml", "system.yaml"].map(PathBuf::from);
        let text = scenario(&paths, &Inventory::default(), None, false).expect("small");
        let read = Document::parse("x.yaml", &text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
        assert_eq!(read.scenario.name, "shop");
        assert_eq!(read.scenario.cluster.snapshot, ["shop.yaml", "system.yaml"]);
        assert!(
            read.scenario.start > Timestamp::UNIX_EPOCH,
            "no object says when it is"
        );
    }
}
