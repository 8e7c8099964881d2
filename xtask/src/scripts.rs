//! Shell scripts, as part of `cargo xtask tidy`: none ends, now and then, because a reader of its pipe was through early.
//!
//! Owns what counts as a reader that stops. `head` and `grep -q` close the pipe with their first answer; what still writes gets SIGPIPE, and with
//! `pipefail` that is the pipeline's status, 141: a script that passes or fails by how quick its parts are.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Checks the scripts of the repository, and the recipes.
pub fn check(root: &Path, findings: &mut Vec<String>) -> Result<()> {
    for path in scripts(root)? {
        let text = std::fs::read_to_string(root.join(&path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        findings.extend(early_ends(&path.display().to_string(), &text));
    }
    Ok(())
}

fn early_ends(shown: &str, text: &str) -> Vec<String> {
    // What has no first line of its own is sourced, by scripts that set pipefail.
    let is_sourced = !text.starts_with("#!");
    if !is_sourced && !text.contains("pipefail") {
        return Vec::new();
    }
    let code = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim_start().starts_with('#'));
    code.filter_map(|(number, line)| {
        let reader = readers(line).find(|reader| stops_reading(reader))?;
        Some(format!(
            "{shown}:{}: `{}` may stop reading before what it reads from has written all, and pipefail makes that SIGPIPE the script's end; \
             read the whole answer into a variable first",
            number + 1,
            reader.trim()
        ))
    })
    .collect()
}

/// The parts of a line that read from a pipe. What follows `||` does not.
fn readers(line: &str) -> impl Iterator<Item = &str> {
    let alternatives = line.split("||");
    alternatives.flat_map(|alternative| alternative.split('|').skip(1))
}

/// Whether a command may be through before its input ends.
fn stops_reading(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or("");
    let mut options = words.take_while(|word| word.starts_with('-'));
    match program.trim_end_matches(')') {
        "head" => true,
        "grep" => options
            .any(|option| option == "--quiet" || !option.starts_with("--") && option.contains(['q', 'm'])),
        "sed" => command.contains("q'") || command.contains("q;") || command.trim_end().ends_with('q'),
        _ => false,
    }
}

/// Bash scripts that are committed, wherever they are, and the recipes.
fn scripts(root: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "*.sh", ".ci/run", "justfile"])
        .current_dir(root)
        .output()
        .context("cannot run git ls-files")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let listed = String::from_utf8_lossy(&output.stdout);
    // A file that was removed and not yet committed is listed still.
    Ok(listed
        .lines()
        .map(PathBuf::from)
        .filter(|path| root.join(path).exists())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_stops_early_is_found_where_pipefail_is_set() {
        for line in [
            "claim=$(kubectl get nodeclaims -o name | head -n 1)",
            "listed | grep -q \"$claim\" && echo found",
            "listed | grep -Fqx x",
            "listed | sed 1q",
            "kubectl get pods | grep -m1 web",
        ] {
            let with = format!("set -euo pipefail\n{line}\n");
            assert_eq!(early_ends("a.sh", &with).len(), 1, "{line}");
            assert!(early_ends("a.sh", &with)[0].starts_with("a.sh:2: "));
            assert!(early_ends("a.sh", &format!("#!/bin/sh\nset -eu\n{line}\n")).is_empty());
            assert_eq!(early_ends("sourced.sh", &format!("{line}\n")).len(), 1, "{line}");
        }
    }

    #[test]
    fn what_reads_to_the_end_is_none() {
        for line in [
            "# listed | head -n 1",
            "listed | grep -c x",
            "test -f x || head -n 40 x",
            "[ -s x ] || grep -q x y",
            "listed | tail -n 1",
            "listed | sed -n '/a/,/b/p'",
        ] {
            assert!(
                early_ends("a.sh", &format!("set -o pipefail\n{line}\n")).is_empty(),
                "{line}"
            );
        }
    }
}
