//! What scripts and manifests of users may rely on: commands, flags and variables, and the fields of documented JSON. Nothing of it may disappear.
//!
//! The lists are `docs/contract/*.txt`. `BLESS=1 cargo test -p spokeshave --test contract` adds what is new; what is gone is taken out by hand, with the major
//! version that docs/contract.md asks for. Metrics have the same in `spokeshave-sim`. The pages `docs/reference/{cli,settings}.md` are written from the same help.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const NOW: &str = "2026-03-02T12:00:00Z";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Standard output; the status is up to the caller: `budgets` exits with 3 if it has findings.
fn spokeshave(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(arguments)
        .current_dir(root())
        .env("COLUMNS", "100")
        .output()
        .expect("the program starts");
    assert!(
        !output.stdout.is_empty(),
        "spokeshave {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Nothing documented was removed, and everything that exists is documented.
fn keep(name: &str, now: &BTreeSet<String>) {
    let path = root().join("docs/contract").join(name);
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let promised: BTreeSet<String> = committed.lines().map(str::to_owned).collect();
    let gone: Vec<&String> = promised.difference(now).collect();
    assert!(
        gone.is_empty(),
        "promised in docs/contract/{name} and gone: {gone:?}; see docs/contract.md"
    );
    if std::env::var_os("BLESS").is_some() {
        let text: String = now.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).expect("the file is written");
        return;
    }
    let new: Vec<&String> = now.difference(&promised).collect();
    assert!(
        new.is_empty(),
        "new, and not in docs/contract/{name}: {new:?}; BLESS=1 cargo test -p spokeshave --test contract"
    );
}

/// The commands in the help; continuation lines are indented more.
fn commands(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

/// A command with its arguments, flags, choices and variables.
fn describe(command: &str, all: &mut BTreeSet<String>) {
    let help = spokeshave(&[command, "--help"]);
    let usage = help
        .lines()
        .find(|line| line.starts_with("Usage: "))
        .expect("a usage");
    all.insert(usage.trim_start_matches("Usage: ").to_owned());
    let mut flag = String::new();
    for line in help.lines() {
        let text = line.trim();
        if line.starts_with("  ")
            && !line.starts_with("          ")
            && (text.starts_with("--") || text.starts_with('-'))
        {
            // A short help is on the same line.
            text.split("  ").next().unwrap_or_default().clone_into(&mut flag);
            all.insert(format!("spokeshave {command} {flag}"));
        } else if let Some(choice) = text.strip_prefix("- ").and_then(|text| text.split_once(':')) {
            all.insert(format!("spokeshave {command} {flag} = {}", choice.0));
        }
    }
    let whole: String = help.split_whitespace().collect();
    for rest in whole.split("[env:").skip(1) {
        let variable = rest.split(']').next().unwrap_or_default();
        all.insert(format!("spokeshave {command} ${variable}"));
    }
}

#[test]
fn no_command_flag_choice_or_variable_disappears() {
    let help = spokeshave(&["--help"]);
    let commands = commands(&help);
    assert!(
        commands.contains(&"operator") && commands.contains(&"plan"),
        "{commands:?}"
    );
    let mut all = BTreeSet::new();
    for command in commands.into_iter().filter(|command| *command != "help") {
        describe(command, &mut all);
    }
    assert!(
        all.contains("spokeshave operator --metrics-port <PORT>"),
        "{all:#?}"
    );
    assert!(all.contains("spokeshave operator $FEATURE_GATES"), "{all:#?}");
    assert!(
        all.contains("spokeshave plan -o, --output <FORMAT> = json"),
        "{all:#?}"
    );
    keep("cli.txt", &all);
}

/// The path of every field; fields whose names are those of resources are one.
fn paths(value: &Value, at: &str, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if at.ends_with(".requests") || at.ends_with(".limits") => {
            assert!(fields.values().all(|value| !value.is_object()), "{at}");
            all.insert(format!("{at}.*"));
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                paths(value, &format!("{at}.{name}"), all);
            }
        }
        Value::Array(values) => {
            all.insert(format!("{at}[]"));
            values
                .iter()
                .for_each(|value| paths(value, &format!("{at}[]"), all));
        }
        _ => {
            all.insert(at.to_owned());
        }
    }
}

#[test]
fn no_field_of_documented_json_disappears() {
    let plans = ["pending", "unschedulable", "consolidation", "drift", "budgets"];
    let mut reports: Vec<(&str, String)> = plans
        .iter()
        .map(|name| {
            let file = format!("examples/{name}.yaml");
            (
                "plan",
                spokeshave(&["plan", "-f", &file, "--verdicts", "-o", "json", "--now", NOW]),
            )
        })
        .collect();
    let file = "crates/spokeshave/tests/budgets/dump.yaml";
    reports.push((
        "budgets",
        spokeshave(&["budgets", "-f", file, "-o", "json", "--now", NOW]),
    ));
    let file = "crates/spokeshave/tests/doctor/cluster.yaml";
    let on_file = ["-f", file, "-o", "json", "--now", NOW];
    reports.push(("doctor", spokeshave(&[&["doctor"][..], &on_file].concat())));
    reports.push((
        "adopt",
        spokeshave(&[&["adopt", "--check"][..], &on_file].concat()),
    ));
    let objects = [
        ("node", "guarded"),
        ("node", "protected"),
        ("nodeclaim", "claim-guarded"),
        ("nodepool", "full"),
        ("pod", "shop/web-1"),
    ];
    for (kind, name) in objects {
        let file = "crates/spokeshave/tests/explain/stuck.yaml";
        reports.push((
            "explain",
            spokeshave(&["explain", kind, name, "-f", file, "-o", "json", "--now", NOW]),
        ));
    }
    for file in [
        "crates/spokeshave/tests/explain/stuck.yaml",
        "examples/pending.yaml",
        "examples/unschedulable.yaml",
        "examples/consolidation.yaml",
    ] {
        let arguments = ["top", "--once", "-o", "json", "-f", file, "--now", NOW];
        reports.push(("view", spokeshave(&arguments)));
    }
    let mut all = BTreeSet::new();
    for (command, report) in reports {
        let report: Value = serde_json::from_str(&report).expect("JSON");
        paths(&report, command, &mut all);
    }
    assert!(
        all.contains("plan.provisioning.nodeClaims[].cheapest.price"),
        "{all:#?}"
    );
    assert!(all.contains("budgets.nodePools[].findings[].code"), "{all:#?}");
    assert!(all.contains("view.nodes.reasonTable[].code"), "{all:#?}");
    keep("json.txt", &all);
}

/// The path of every field of a schema.
fn fields(schema: &Value, at: &str, all: &mut BTreeSet<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{at}.{name}");
        all.insert(at.clone());
        fields(field, &at, all);
    }
    if !schema["items"].is_null() {
        fields(&schema["items"], &format!("{at}[]"), all);
    }
}

/// Manifests that were accepted go on being accepted.
#[test]
fn no_field_of_a_definition_disappears() {
    let printed = spokeshave(&["crds"]);
    let mut all = BTreeSet::new();
    for document in printed
        .split("---\n")
        .filter(|document| !document.trim().is_empty())
    {
        let definition: Value = serde_saphyr::from_str(document).expect("YAML");
        let name = definition["metadata"]["name"].as_str().expect("a name");
        for version in definition["spec"]["versions"].as_array().expect("versions") {
            let at = format!("{name} {}", version["name"].as_str().expect("a version"));
            fields(&version["schema"]["openAPIV3Schema"], &at, &mut all);
        }
    }
    assert!(
        all.contains("nodepools.karpenter.sh v1.spec.template.spec.nodeClassRef.kind"),
        "{all:#?}"
    );
    assert!(all.len() > 200, "{}", all.len());
    keep("definitions.txt", &all);
}

/// A values file keeps its meaning.
#[test]
fn no_value_of_the_chart_disappears() {
    let text = std::fs::read_to_string(root().join("charts/spokeshave/values.yaml")).expect("values.yaml");
    let values: Value = serde_saphyr::from_str(&text).expect("YAML");
    let mut all = BTreeSet::new();
    names(&values, "", &mut all);
    assert!(all.contains("settings.featureGates.nodeRepair"), "{all:#?}");
    assert!(
        !all.iter().any(|name| name.contains("matchExpressions")),
        "{all:#?}"
    );
    keep("values.txt", &all);
}

/// The names of values. What a list or an affinity holds by default is a default and no name.
fn names(value: &Value, at: &str, all: &mut BTreeSet<String>) {
    let free = [
        "affinity",
        "nodeSelector",
        "strategy",
        "podSecurityContext",
        "dashboards.labels",
    ];
    match value {
        Value::Object(fields) if !fields.is_empty() && !free.contains(&at) => {
            for (name, value) in fields {
                let at = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}.{name}")
                };
                names(value, &at, all);
            }
        }
        _ => drop(all.insert(at.to_owned())),
    }
}

/// Compares with a committed page, or writes it when BLESS is set.
fn check(name: &str, wanted: &str) {
    let path = root().join("docs/reference").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, wanted).expect("the page is written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == wanted,
        "docs/reference/{name} is old: BLESS=1 cargo test -p spokeshave --test contract"
    );
}

const WRITTEN: &str =
    "Written by `BLESS=1 cargo test -p spokeshave --test contract`, from the program's own help.";

#[test]
fn the_page_of_commands_is_the_programs_help() {
    let help = spokeshave(&["--help"]);
    let mut page = format!("# Commands\n\n{WRITTEN}\n\n```text\n{}\n```\n", help.trim_end());
    for command in commands(&help).into_iter().filter(|command| *command != "help") {
        let help = spokeshave(&[command, "--help"]);
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        page += &format!(
            "\n## spokeshave {command}\n\n```text\n{}\n```\n",
            lines.join("\n")
        );
    }
    check("cli.md", &page);
}

/// A setting as help shows it: the flag with its value, then words, variable and default.
fn settings(help: &str) -> Vec<(String, String)> {
    let (_, of_karpenter) = help
        .split_once("\nSettings that Karpenter knows too:\n")
        .expect("settings");
    let mut all: Vec<(String, String)> = Vec::new();
    for line in of_karpenter
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with(' '))
    {
        let text = line.trim();
        if text.starts_with("--") {
            all.push((text.to_owned(), String::new()));
        } else if let Some((_, words)) = all.last_mut().filter(|_| !text.is_empty()) {
            // A line is broken within a list without spaces only where it is longer than the page.
            let glue = if words.is_empty() || words.ends_with(',') {
                ""
            } else {
                " "
            };
            *words += &format!("{glue}{text}");
        }
    }
    all
}

#[test]
fn the_page_of_settings_is_the_programs_help() {
    let settings = settings(&spokeshave(&["operator", "--help"]));
    assert!(settings.len() >= 25, "{settings:?}");
    let mut page = format!(
        "# Settings of the operator\n\n{WRITTEN}\n\nA flag wins over its variable, and an empty variable counts as absent. What the chart calls each is in \
         `charts/spokeshave/values.yaml`.\n\n| Flag | Variable | Default | What it does |\n|---|---|---|---|\n"
    );
    for (flag, words) in settings {
        let (words, rest) = words
            .split_once(" [env: ")
            .unwrap_or_else(|| panic!("{flag} has no variable: {words}"));
        let (variable, rest) = rest.split_once(']').expect("a bracket ends");
        let default = rest
            .trim()
            .strip_prefix("[default: ")
            .and_then(|rest| rest.strip_suffix(']'));
        // A long list is given spaces, where a table can break it.
        let default = default.map_or(String::new(), |default| match default.contains('=') {
            true => format!("`{}`", default.replace(',', ", ")),
            false => format!("`{default}`"),
        });
        page += &format!(
            "| `{}` | `{variable}` | {default} | {} |\n",
            flag.replace('|', "\\|"),
            words.replace('|', "\\|")
        );
    }
    check("settings.md", &page);
}

/// The fields below a schema, each with its type and description.
fn documented(schema: &Value, at: &str, page: &mut String) {
    let fields = schema["properties"].as_object().into_iter().flatten();
    for (name, field) in fields {
        let at = if at.is_empty() {
            name.clone()
        } else {
            format!("{at}.{name}")
        };
        let items = &field["items"];
        let (kind, inner, at) = match field["type"].as_str() {
            Some("array") => ("list", items, format!("{at}[]")),
            Some(kind) => (kind, field, at),
            None => ("any", field, at),
        };
        let words = field["description"].as_str().unwrap_or_default();
        let words = words
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace('|', "\\|");
        let default = match &field["default"] {
            Value::Null => String::new(),
            value => format!(" Default: `{value}`."),
        };
        let choices = field["enum"].as_array().map_or(String::new(), |choices| {
            let names: Vec<String> = choices.iter().map(ToString::to_string).collect();
            format!(" One of `{}`.", names.join("`, `"))
        });
        *page += &format!("| `{at}` | {kind} | {words}{choices}{default} |\n");
        documented(inner, &at, page);
    }
}

#[test]
fn the_page_of_definitions_is_what_the_definitions_say() {
    let mut page = format!(
        "# Definitions\n\n{WRITTEN}\n\nEvery field of every kind, as `spokeshave crds` prints the definitions.\n"
    );
    let mut seen = BTreeSet::new();
    let text = ["kwok", "aws"]
        .map(|cloud| spokeshave(&["crds", "--cloud-provider", cloud]))
        .join("---\n");
    for document in text.split("---\n").filter(|document| !document.trim().is_empty()) {
        let definition: Value = serde_saphyr::from_str(document).expect("YAML");
        let (kind, group) = (&definition["spec"]["names"]["kind"], &definition["spec"]["group"]);
        let (kind, group) = (kind.as_str().expect("a kind"), group.as_str().expect("a group"));
        if !seen.insert(kind.to_owned()) {
            continue;
        }
        for version in definition["spec"]["versions"].as_array().expect("versions") {
            let name = version["name"].as_str().expect("a version");
            page += &format!("\n## {kind} (`{group}/{name}`)\n\n| Field | Type | Meaning |\n|---|---|---|\n");
            let schema = &version["schema"]["openAPIV3Schema"];
            for part in ["spec", "status"] {
                documented(&schema["properties"][part], part, &mut page);
            }
        }
    }
    assert!(seen.len() >= 9, "{seen:?}");
    check("definitions.md", &page);
}

/// `kubectl spokeshave …` finds the program under this name on the path.
#[cfg(unix)]
#[test]
fn as_a_plugin_of_kubectl_it_is_called_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let plugin = folder.path().join("kubectl-spokeshave");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_spokeshave"), &plugin).expect("a link");
    let help = |program: &Path| {
        let output = Command::new(program)
            .args(["explain", "--help"])
            .output()
            .expect("it starts");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert!(help(&plugin).contains("Usage: kubectl spokeshave explain "));
    assert!(help(Path::new(env!("CARGO_BIN_EXE_spokeshave"))).contains("Usage: spokeshave explain "));
}

#[test]
fn every_command_has_a_manual_page() {
    let help = spokeshave(&["--help"]);
    let whole = spokeshave(&["man"]);
    assert!(whole.contains(".TH spokeshave 1"), "{whole}");
    for command in commands(&help).into_iter().filter(|command| *command != "help") {
        let page = spokeshave(&["man", command]);
        assert!(page.contains(&format!(".TH spokeshave-{command} 1")), "{page}");
        assert!(page.contains("SYNOPSIS"), "{page}");
    }
    let unknown = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
        .args(["man", "fly"])
        .output()
        .expect("it starts");
    assert_eq!(unknown.status.code(), Some(2));
}
