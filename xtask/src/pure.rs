//! Pure crates, as part of `cargo xtask tidy`: what must not be reached from them, and what their code must not call.
//!
//! Owns the list of these crates (the section **pure** of ARCHITECTURE.md), and the text of their `clippy.toml`, which is `bans.toml` beside this file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Crates whose decisions must be functions of their arguments.
pub(crate) const PURE: &[&str] = &[
    "spokeshave-syntax",
    "spokeshave-api",
    "spokeshave-model",
    "spokeshave-example",
    "spokeshave-schedule",
    "spokeshave-plan",
    "spokeshave-story",
    "spokeshave-audit",
    "spokeshave-convert",
    "spokeshave-charts",
    "spokeshave-view",
    "spokeshave-provider-common",
];

/// Crates that draw from `ports::Entropy`, or compare what was drawn, and are otherwise held to the rules of pure crates: the same bans, and none of the crates
/// below among their own dependencies.
pub(crate) const DRAWING: &[&str] = &[
    "spokeshave-scenario",
    "spokeshave-simulate",
    "spokeshave-comparison",
];

/// What pure crates must not reach, even through others: runtimes, clients, sockets, chance.
pub(crate) const FORBIDDEN: &[&str] = &[
    "tokio",
    "async-std",
    "mio",
    "socket2",
    "kube",
    "kube-client",
    "kube-runtime",
    "hyper",
    "hyper-util",
    "reqwest",
    "ureq",
    "rustls",
    "rand",
    "rand_chacha",
    "getrandom",
    "fastrand",
    "prometheus-client",
    "tracing-subscriber",
];

/// The `clippy.toml` of every pure crate.
const BANS: &str = include_str!("bans.toml");

/// Lints that turn the bans off where they are allowed: themselves, and the groups that have them.
const LINTS: &[&str] = &[
    "clippy::disallowed_",
    "clippy::all",
    "clippy::style",
    "allow(warnings",
];

/// Whether a crate is held to the bans.
pub(crate) fn is_banned(name: &str) -> bool {
    PURE.contains(&name) || DRAWING.contains(&name)
}

/// Finds pure crates without the bans, and source files that make an exception of themselves. Tests, examples and benchmarks may: they are no decisions.
pub(crate) fn check(root: &Path, files: &[PathBuf], findings: &mut Vec<String>) -> Result<()> {
    for name in PURE.iter().chain(DRAWING) {
        let folder = name.trim_start_matches("spokeshave-");
        let shown = format!("crates/{folder}/clippy.toml");
        match fs::read_to_string(root.join(&shown)) {
            Ok(content) if content == BANS => {}
            Ok(_) => findings.push(format!("{shown}: differs from xtask/src/bans.toml; copy that")),
            Err(error) => findings.push(format!("{shown}: {error}; copy xtask/src/bans.toml there")),
        }
    }
    for path in files {
        let shown = path.strip_prefix(root).unwrap_or(path).display().to_string();
        if is_decision(&shown) {
            let text = fs::read_to_string(path).with_context(|| format!("reading {shown}"))?;
            findings.extend(exceptions(&shown, &text));
        }
    }
    Ok(())
}

/// Whether a file is part of a pure crate itself.
fn is_decision(shown: &str) -> bool {
    let parts = shown
        .strip_prefix("crates/")
        .and_then(|rest| rest.split_once("/src/"));
    parts.is_some_and(|(folder, _)| is_banned(&format!("spokeshave-{folder}")))
}

fn exceptions(shown: &str, text: &str) -> Vec<String> {
    let lines = (1..).zip(text.lines());
    let lines = lines.filter(|(_, line)| !line.trim_start().starts_with("//"));
    let found = lines.filter(|(_, line)| LINTS.iter().any(|lint| line.contains(*lint)));
    found
        .map(|(number, line)| {
            format!(
                "{shown}:{number}: `{}` turns off the bans of pure crates",
                line.trim()
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_is_found_in_the_sources_of_a_pure_crate() {
        let text = "// clippy::disallowed_methods\n#[allow(clippy::disallowed_methods)]\nfn now() {}\n#![expect(clippy::all)]\n";
        let found = exceptions("crates/plan/src/lib.rs", text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/plan/src/lib.rs:2: "), "{found:?}");
        for file in ["crates/plan/src/a/b.rs", "crates/provider-common/src/lib.rs"] {
            assert!(is_decision(file), "{file}");
        }
        for file in [
            "crates/plan/tests/it/main.rs",
            "crates/plan/benches/src.rs",
            "crates/runtime/src/lib.rs",
            "xtask/src/pure.rs",
        ] {
            assert!(!is_decision(file), "{file}");
        }
    }

    #[test]
    fn a_crate_without_the_bans_is_found() {
        let root = tempfile::tempdir().expect("a folder");
        let give = |name: &str, text: &str| {
            let folder = root.path().join("crates").join(name);
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join("clippy.toml"), text).expect("a file");
        };
        for name in PURE.iter().chain(DRAWING) {
            give(name.trim_start_matches("spokeshave-"), BANS);
        }
        let found = || {
            let mut findings = Vec::new();
            check(root.path(), &[], &mut findings).expect("a check");
            findings
        };
        assert_eq!(found(), [""; 0]);
        // One ban less, in all of them alike.
        for name in PURE.iter().chain(DRAWING) {
            let fewer = BANS.replace("std::env::vars_os", "std::env::temp_dir");
            give(name.trim_start_matches("spokeshave-"), &fewer);
        }
        assert_eq!(found().len(), PURE.len() + DRAWING.len());
        fs::remove_file(root.path().join("crates/plan/clippy.toml")).expect("removed");
        assert!(
            found()
                .iter()
                .any(|finding| finding.contains("copy xtask/src/bans.toml there"))
        );
    }
}
