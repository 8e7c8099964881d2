//! What `charts/` and the program say about each other: the definitions are the program's, and the environment that the chart sets is one that it reads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn charts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn spokeshave(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(arguments)
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "spokeshave {arguments:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The help of the operator without its white space, which depends on where lines are broken.
fn help() -> String {
    spokeshave(&["operator", "--help"]).split_whitespace().collect()
}

/// The words after `prefix`, up to what cannot be part of a name.
fn names_after<'a>(text: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    text.match_indices(prefix)
        .map(|(at, found)| {
            let rest = &text[at + found.len()..];
            let end = rest.find(|character: char| !character.is_ascii_alphanumeric() && character != '_');
            &rest[..end.unwrap_or(rest.len())]
        })
        .filter(|name| !name.is_empty())
        .collect()
}

#[test]
fn p_209_the_chart_of_definitions_is_what_the_program_prints() {
    let folder = charts().join("spokeshave-crds/definitions");
    let printed = ["kwok", "aws", "azure"].map(|cloud| spokeshave(&["crds", "--cloud-provider", cloud]));
    let mut wanted = BTreeMap::new();
    for document in printed
        .iter()
        .flat_map(|printed| printed.split("---\n"))
        .filter(|document| !document.trim().is_empty())
    {
        let name = document
            .lines()
            .skip_while(|line| *line != "metadata:")
            .find_map(|line| line.strip_prefix("  name: "))
            .expect("a name");
        assert_eq!(
            document.matches("\nmetadata:\n  name:").count(),
            1,
            "{name}: the chart puts an annotation there"
        );
        wanted.insert(format!("{name}.yaml"), document.to_owned());
    }
    if std::env::var_os("BLESS").is_some() {
        for (name, document) in &wanted {
            std::fs::write(folder.join(name), document).expect("the file is written");
        }
    }
    let found: BTreeMap<String, String> = std::fs::read_dir(&folder)
        .expect("definitions")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            (
                path.file_name().expect("a name").to_string_lossy().into_owned(),
                read(&path),
            )
        })
        .collect();
    let (found_names, wanted_names): (Vec<_>, Vec<_>) = (found.keys().collect(), wanted.keys().collect());
    assert_eq!(
        found_names, wanted_names,
        "BLESS=1 writes what is missing; delete what is too much"
    );
    for (name, document) in &wanted {
        assert!(
            found[name] == *document,
            "{name} is old: BLESS=1 cargo test -p spokeshave --test charts"
        );
    }
}

#[test]
fn p_209_the_chart_sets_only_variables_that_the_provider_for_azure_reads() {
    let template = read(&charts().join("spokeshave/templates/_azure.tpl"));
    let source = read(&charts().join("../crates/spokeshave/src/azure.rs"));
    let set: BTreeSet<&str> = names_after(&template, "(list \"")
        .into_iter()
        .chain(names_after(&template, "- name: "))
        .filter(|name| {
            name.chars()
                .all(|character| character.is_ascii_uppercase() || character == '_')
        })
        .collect();
    assert!(set.len() > 12, "{set:?}");
    for name in set {
        assert!(
            source.contains(&format!("\"{name}\"")),
            "the operator does not read {name}"
        );
    }
}

#[test]
fn p_209_the_chart_sets_only_variables_that_the_operator_reads() {
    let template = read(&charts().join("spokeshave/templates/_helpers.tpl"));
    let help = help();
    let known = names_after(&help, "[env:");
    let set: BTreeSet<&str> = names_after(&template, "(list \"")
        .into_iter()
        .chain(names_after(&template, "- name: "))
        .filter(|name| {
            name.chars()
                .all(|character| character.is_ascii_uppercase() || character == '_')
        })
        .collect();
    assert!(set.len() > 15, "{set:?}");
    let unknown: Vec<_> = set.difference(&known).collect();
    assert!(unknown.is_empty(), "the operator does not know {unknown:?}");
    // Variables that a chart need not set: those without effect, those that the pod determines, and those for controller.env only.
    let by_hand = [
        "KARPENTER_SERVICE",
        "MEMORY_LIMIT",
        "ENABLE_PROFILING",
        "LOG_ERROR_OUTPUT_PATHS",
        "DISABLE_CONTROLLER_WARMUP",
        "AWS_FEATURE_GATES",
        "EKS_CONTROL_PLANE",
        "DISABLE_LEADER_ELECTION",
        "LEADER_ELECTION_NAME",
        "LEADER_ELECTION_NAMESPACE",
    ];
    let by_hand: BTreeSet<&str> = by_hand.into();
    let forgotten: Vec<_> = known
        .difference(&set)
        .filter(|name| !by_hand.contains(*name))
        .collect();
    assert!(forgotten.is_empty(), "the chart has no value for {forgotten:?}");
}

#[test]
fn b_59_the_chart_names_the_gates_of_the_operator_and_renders_none_without_a_value() {
    let template = read(&charts().join("spokeshave/templates/_helpers.tpl"));
    let help = help();
    let defaults = help
        .split_once("[env:FEATURE_GATES]")
        .and_then(|(_, rest)| rest.split_once("[default:"))
        .and_then(|(_, rest)| rest.split_once(']'))
        .expect("the gates have a default")
        .0;
    let defaults: BTreeMap<String, String> = defaults
        .split(',')
        .map(|gate| {
            let (name, value) = gate.split_once('=').expect("Gate=value");
            (name.to_owned(), value.to_owned())
        })
        .collect();
    let values = read(&charts().join("spokeshave/values.yaml"));
    let gates = values
        .split_once("  featureGates:\n")
        .expect("settings.featureGates")
        .1;
    let ours: BTreeMap<String, String> = gates
        .lines()
        .map_while(|line| line.strip_prefix("    ")?.split_once(": "))
        .map(|(name, value)| (name[..1].to_uppercase() + &name[1..], value.to_owned()))
        .collect();
    assert_eq!(ours, defaults);
    for gate in defaults.keys() {
        assert!(
            template.contains(&format!("\"{gate}\"")),
            "_helpers.tpl does not know {gate}"
        );
    }
    // The rendered form is in e2e/charts/expected/gates-without-values.yaml, which `just chart-check` compares.
    let rendered = read(&charts().join("../e2e/charts/expected/gates-without-values.yaml"));
    let line = rendered
        .lines()
        .skip_while(|line| !line.contains("name: FEATURE_GATES"))
        .nth(1)
        .expect("a value");
    assert!(line.contains("NodeRepair=true"), "{line}");
    assert!(
        !line.contains("=,") && !line.contains("=\""),
        "a gate without a value: {line}"
    );
    assert!(!line.contains("StaticCapacity"), "{line}");
}

#[test]
fn p_209_the_charts_have_the_version_of_the_program() {
    for chart in ["spokeshave", "spokeshave-crds"] {
        let text = read(&charts().join(chart).join("Chart.yaml"));
        for field in ["version", "appVersion"] {
            let line = format!("\n{field}: {}\n", env!("CARGO_PKG_VERSION"));
            assert!(
                text.contains(&line),
                "{chart}/Chart.yaml: expected {}",
                line.trim()
            );
        }
    }
}
