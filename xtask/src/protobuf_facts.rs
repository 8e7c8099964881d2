//! Regenerates `crates/apiserver/facts/protobuf.txt`: field numbers, names and types of the messages that clients may send in protobuf.
//!
//! Inputs: the `generated.proto` files of Kubernetes. One line a message: `NAME|NUMBER FIELD TYPE|…`, with `k8s.io.` left out of names,
//! `[]` before the type of a repeated field and `map:` before the type of a map's values.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

const OUTPUT: &str = "crates/apiserver/facts/protobuf.txt";
const SCALARS: [&str; 7] = ["string", "bytes", "int32", "int64", "bool", "double", "uint32"];

/// Groups whose objects clients send.
const ROOTS: [&str; 16] = [
    "api.admissionregistration.v1.ValidatingAdmissionPolicy",
    "api.core.v1.",
    "api.apps.v1.",
    "api.batch.v1.",
    "api.policy.v1.",
    "api.coordination.v1.",
    "api.storage.v1.",
    "api.scheduling.v1.",
    "api.rbac.v1.",
    "api.networking.v1.",
    "api.events.v1.",
    "api.discovery.v1.",
    "api.autoscaling.",
    "api.authorization.v1.",
    "api.authentication.v1.",
    "apimachinery.pkg.apis.meta.v1.",
];

/// Runs the command with the files.
pub(crate) fn run(files: &[String]) -> Result<()> {
    if files.is_empty() {
        bail!("name the generated.proto files");
    }
    let mut messages = BTreeMap::new();
    for file in files {
        parse(Path::new(file), &mut messages).with_context(|| file.clone())?;
    }
    let mut open: Vec<String> = messages
        .keys()
        .filter(|name| ROOTS.iter().any(|root| name.starts_with(root)))
        .cloned()
        .collect();
    let mut wanted = BTreeSet::new();
    while let Some(name) = open.pop() {
        if wanted.insert(name.clone()) {
            open.extend(
                messages
                    .get(&name)
                    .into_iter()
                    .flatten()
                    .map(|(_, _, kind)| bare(kind).to_owned())
                    .filter(|kind| messages.contains_key(kind)),
            );
        }
    }
    let lines: Vec<String> = wanted
        .iter()
        .map(|name| {
            let fields: Vec<String> = messages[name]
                .iter()
                .map(|(number, field, kind)| format!("{number} {field} {kind}"))
                .collect();
            format!("{name}|{}", fields.join("|"))
        })
        .collect();
    let text = lines.join("\n") + "\n";
    fs::write(OUTPUT, &text).with_context(|| format!("cannot write {OUTPUT}"))?;
    println!("{OUTPUT}: {} bytes, {} messages", text.len(), lines.len());
    Ok(())
}

fn bare(kind: &str) -> &str {
    kind.trim_start_matches("[]").trim_start_matches("map:")
}

type Messages = BTreeMap<String, Vec<(u32, String, String)>>;

fn parse(path: &Path, messages: &mut Messages) -> Result<()> {
    let (mut package, mut message) = (String::new(), None::<String>);
    for line in fs::read_to_string(path)?.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("package ") {
            name.trim_end_matches(';').clone_into(&mut package);
        } else if let Some(name) = line.strip_prefix("message ") {
            let name = full(&package, name.trim_end_matches(['{', ' ']));
            messages.insert(name.clone(), Vec::new());
            message = Some(name);
        } else if line == "}" {
            message = None;
        } else if let Some(current) = &message
            && let Some(field) = field(&package, line)
        {
            messages.entry(current.clone()).or_default().push(field);
        }
    }
    Ok(())
}

fn field(package: &str, line: &str) -> Option<(u32, String, String)> {
    let declaration = line.strip_suffix(';')?;
    let (left, number) = declaration.rsplit_once('=')?;
    let number = number.trim().parse().ok()?;
    let (kind, name) = left.trim().rsplit_once(' ')?;
    let kind = kind.trim();
    let kind = if let Some(values) = kind.strip_prefix("map<string,") {
        format!("map:{}", full(package, values.trim_end_matches('>').trim()))
    } else if let Some(kind) = kind.strip_prefix("repeated ") {
        format!("[]{}", full(package, kind))
    } else {
        full(package, kind.strip_prefix("optional ")?)
    };
    Some((number, name.to_owned(), kind))
}

fn full(package: &str, name: &str) -> String {
    if SCALARS.contains(&name) {
        return name.to_owned();
    }
    let name = name
        .strip_prefix('.')
        .map_or_else(|| format!("{package}.{name}"), str::to_owned);
    name.trim_start_matches("k8s.io.").to_owned()
}
