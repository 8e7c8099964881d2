//! Shell scripts, as part of `cargo xtask tidy`: none ends, now and then, because a reader of its pipe was through early.
//!
//! Owns what counts as a reader that stops. `head` and `grep -q` close the pipe with their first answer; what still writes gets SIGPIPE, and with
//! `pipefail` that is the pipeline's status, 141: a script that passes or fails by how quick its parts are. Lines are read as words, not as a shell would: what
//! an option or a quote hides from that is not seen.

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
    commands(text)
        .into_iter()
        .filter_map(|(number, line)| {
            let reader = readers(&line).find(|reader| stops_reading(reader))?;
            Some(format!(
                "{shown}:{number}: `{}` may stop reading before what it reads from has written all, and pipefail makes that SIGPIPE the script's end; \
                 read the whole answer into a variable first",
                reader.trim()
            ))
        })
        .collect()
}

/// Lines of code with the numbers that they begin at; one that a pipe or a backslash ends goes on with the next.
fn commands(text: &str) -> Vec<(usize, String)> {
    let mut commands: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with('#') {
            continue;
        }
        let line = line.trim_end();
        let code = line.trim_end_matches('\\');
        match commands.last_mut() {
            Some((_, begun)) if goes_on => {
                begun.push(' ');
                begun.push_str(code);
            }
            _ => commands.push((number, code.to_owned())),
        }
        goes_on = code.len() < line.len()
            || ["|", "|&"].iter().any(|pipe| code.ends_with(*pipe)) && !code.ends_with("||");
    }
    commands
}

/// The parts of a line that read from a pipe. What follows `||` does not.
fn readers(line: &str) -> impl Iterator<Item = &str> {
    let alternatives = line.split("||");
    alternatives.flat_map(|alternative| alternative.split('|').skip(1))
}

/// Whether a command may be through before its input ends.
fn stops_reading(command: &str) -> bool {
    let words = program(command);
    let Some((first, options)) = words.split_first() else {
        return false;
    };
    match first.trim_end_matches([';', '"']) {
        "head" | "cmp" | "read" => true,
        "grep" | "egrep" | "fgrep" => options
            .iter()
            .take_while(|word| **word != "--" && !word.starts_with([';', '&', '>']))
            .any(|word| ends_early(word)),
        "sed" => command.contains("q'") || command.contains("q;") || command.trim_end().ends_with('q'),
        "awk" | "gawk" | "mawk" => match (command.find("exit"), command.find("END")) {
            (Some(exit), Some(end)) => exit < end,
            (exit, _) => exit.is_some(),
        },
        _ => false,
    }
}

/// The words of a command from its program on: without assignments, brackets, and what runs another program.
fn program(command: &str) -> Vec<&str> {
    let words = command.trim_start_matches('&').split_whitespace();
    let words = words.map(|word| word.trim_matches(['(', ')', '{', '}']));
    let mut rest = words
        .filter(|word| !matches!(*word, "" | "!"))
        .collect::<Vec<&str>>();
    let mut is_run_by_another = false;
    loop {
        let skipped = match rest.first() {
            Some(&"timeout") => {
                let options = rest[1..].iter().take_while(|word| word.starts_with('-'));
                // The duration follows.
                options.count() + 2
            }
            Some(&("command" | "env" | "exec" | "nice" | "stdbuf")) => 1,
            Some(word) if is_assignment(word) => 1,
            Some(word) if is_run_by_another && word.starts_with('-') => 1,
            _ => return rest,
        };
        is_run_by_another = true;
        rest.drain(..skipped.min(rest.len()));
    }
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name
                .chars()
                .all(|letter| letter == '_' || letter.is_ascii_alphanumeric())
    })
}

/// Whether an option of `grep` lets it end with an answer that it has found.
fn ends_early(word: &str) -> bool {
    let word = word.trim_end_matches([';', '"', ')']);
    if let Some(long) = word.strip_prefix("--") {
        let whole = ["quiet", "silent", "files-with-matches", "files-without-match"];
        return whole.contains(&long) || long.starts_with("max-count");
    }
    word.strip_prefix('-').is_some_and(|letters| {
        letters.starts_with(|first: char| first.is_ascii_alphabetic())
            && letters.chars().all(|letter| letter.is_ascii_alphanumeric())
            && letters.contains(['q', 'm', 'l', 'L'])
    })
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
            "listed | awk '/x/ {print; exit}'",
            "listed | grep -e x -q",
            "listed | grep x --quiet",
            "listed | grep -l x",
            "listed | grep --max-count=1 x",
            "listed | LC_ALL=C grep -q x",
            "listed | egrep -q x",
            "listed |& head -n 1",
            "found=$(listed | (head -n 1))",
            "listed | timeout --foreground 5 head",
            "listed | command head",
            "listed | { read -r first; echo \"$first\"; }",
            "listed | cmp -s - x",
            "listed |\n    head",
            "listed \\\n    | head -n 1",
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
            "listed | while read -r one; do echo \"$one\"; done",
            "listed | awk '{n++} END {exit n}'",
            "listed | grep -v '^-q'",
            "listed | grep -- -q",
            "listed | env LC_ALL=C sort -u",
            "listed ||\n    head -n 40 x",
        ] {
            assert!(
                early_ends("a.sh", &format!("set -o pipefail\n{line}\n")).is_empty(),
                "{line}"
            );
        }
    }
}
