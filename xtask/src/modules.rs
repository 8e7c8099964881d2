//! Every source file is compiled, as part of `cargo xtask tidy`: `mod` leads to it from the root of a target, and tests are part of a target whose tests run.
//!
//! Owns how `mod`, `#[path]` and `include!` lead from one file to the next, and which conditions are always or never met: what stands behind one never runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use serde_json::Value;

use crate::behaviours;
use crate::tidy::{array, text};

/// Finds files that no target has, tests that no test program has, and conditions that are none.
pub(crate) fn check(
    root: &Path,
    metadata: &Value,
    files: &[PathBuf],
    findings: &mut Vec<String>,
) -> Result<()> {
    let mut reached = Reached::default();
    for target in targets(metadata) {
        reached.follow(
            &target.root,
            target.root.parent().unwrap_or(root),
            target.is_tested,
        )?;
    }
    for path in files {
        let shown = path.strip_prefix(root).unwrap_or(path).display().to_string();
        // A workspace of its own.
        if shown.starts_with("e2e/") {
            continue;
        }
        let content = fs::read_to_string(path).with_context(|| format!("reading {shown}"))?;
        findings.extend(reached.judge(&shown, &canonical(path)?, &content));
    }
    Ok(())
}

/// A library, a program, a test, an example or a benchmark.
struct Target {
    root: PathBuf,
    /// Whether `cargo test` runs the tests in it, which it does not with those of examples and benchmarks.
    is_tested: bool,
}

fn targets(metadata: &Value) -> Vec<Target> {
    let members: BTreeSet<&str> = array(metadata, "workspace_members")
        .filter_map(Value::as_str)
        .collect();
    let ours = array(metadata, "packages").filter(|package| members.contains(text(package, "id")));
    ours.flat_map(|package| array(package, "targets"))
        .map(|target| Target {
            root: PathBuf::from(text(target, "src_path")),
            is_tested: target["test"] == true,
        })
        .collect()
}

/// The files that were come to, and what was read on the way.
#[derive(Default)]
struct Reached {
    tested: BTreeSet<PathBuf>,
    untested: BTreeSet<PathBuf>,
    /// What is wrong with attributes, by file.
    complaints: BTreeMap<PathBuf, BTreeSet<String>>,
}

impl Reached {
    /// Goes to a file and to all that it leads to; the modules that it declares are in the folder.
    fn follow(&mut self, file: &Path, folder: &Path, is_tested: bool) -> Result<()> {
        let file = canonical(file)?;
        let reached = if is_tested {
            &mut self.tested
        } else {
            &mut self.untested
        };
        if !reached.insert(file.clone()) {
            return Ok(());
        }
        let content = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let tokens: TokenStream = content
            .parse()
            .map_err(|error| anyhow!("{}: {error}", file.display()))?;
        let mut said = Said::default();
        let place = Place {
            beside: file.parent().unwrap_or(folder).to_owned(),
            below: folder.to_owned(),
            is_inline: false,
        };
        said.read(tokens, &place);
        self.complaints.entry(file).or_default().extend(said.complaints);
        for (next, folder) in said.files {
            self.follow(&next, &folder, is_tested)?;
        }
        Ok(())
    }

    fn judge(&self, shown: &str, path: &Path, content: &str) -> Vec<String> {
        let complaints = self.complaints.get(path).into_iter().flatten();
        let mut findings: Vec<String> = complaints
            .map(|complaint| format!("{shown}: {complaint}"))
            .collect();
        if self.tested.contains(path) {
            return findings;
        }
        if !self.untested.contains(path) {
            findings.push(format!(
                "{shown}: no target has this file, so that nothing in it is compiled; a `mod` line is missing"
            ));
        } else if behaviours::tests(content).next().is_some() {
            findings.push(format!(
                "{shown}: its tests never run: only examples or benchmarks have this file"
            ));
        }
        findings
    }
}

/// A path without `..`, so that a file has one.
fn canonical(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).with_context(|| path.display().to_string())
}

/// Where files are looked for.
struct Place {
    /// The folder of the file that is read.
    beside: PathBuf,
    /// The folder of what is declared here.
    below: PathBuf,
    /// Whether this is inside `mod name { … }`.
    is_inline: bool,
}

/// What a file says: the files that it leads to, each with the folder of its modules, and what is wrong with its attributes.
#[derive(Default)]
struct Said {
    files: Vec<(PathBuf, PathBuf)>,
    complaints: Vec<String>,
}

impl Said {
    fn read(&mut self, tokens: TokenStream, place: &Place) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut attributes = Attributes::default();
        let mut index = 0;
        while index < tokens.len() {
            let rest = &tokens[index..];
            index += 1;
            match rest {
                [TokenTree::Punct(mark), TokenTree::Group(group), ..] if mark.as_char() == '#' => {
                    self.attribute(group, &mut attributes);
                    index += 1;
                }
                [
                    TokenTree::Punct(mark),
                    TokenTree::Punct(inner),
                    TokenTree::Group(group),
                    ..,
                ] if mark.as_char() == '#' && inner.as_char() == '!' => {
                    self.attribute(group, &mut Attributes::default());
                    index += 2;
                }
                [TokenTree::Ident(word), TokenTree::Ident(name), what, ..] if word == "mod" => {
                    let attributes = std::mem::take(&mut attributes);
                    self.module(&name.to_string(), what, &attributes, place);
                    index += 2;
                }
                [
                    TokenTree::Ident(word),
                    TokenTree::Punct(_),
                    TokenTree::Group(group),
                    ..,
                ] if word == "include" => {
                    let file = place.beside.join(literal(&group.stream().to_string()));
                    if file.extension().is_some_and(|extension| extension == "rs") && file.exists() {
                        self.files.push((file, place.below.clone()));
                    }
                    index += 2;
                }
                [TokenTree::Group(group), ..] => {
                    self.read(group.stream(), place);
                    // What is in round brackets may be the scope behind `pub`.
                    if group.delimiter() == Delimiter::Brace {
                        attributes = Attributes::default();
                    }
                }
                [TokenTree::Punct(mark), ..] if mark.as_char() == ';' => attributes = Attributes::default(),
                _ => {}
            }
        }
    }

    /// `mod name;` or `mod name { … }`.
    fn module(&mut self, name: &str, what: &TokenTree, attributes: &Attributes, place: &Place) {
        if attributes.is_off {
            return;
        }
        let name = name.trim_start_matches("r#");
        if let TokenTree::Group(group) = what {
            let inside = Place {
                beside: place.beside.clone(),
                below: place.below.join(name),
                is_inline: true,
            };
            self.read(group.stream(), &inside);
            return;
        }
        let below = place.below.join(name);
        let found = match &attributes.path {
            Some(path) => {
                let from = if place.is_inline {
                    &place.below
                } else {
                    &place.beside
                };
                let file = from.join(path);
                let folder = file.parent().unwrap_or(from).to_owned();
                Some((file, folder))
            }
            None => [place.below.join(format!("{name}.rs")), below.join("mod.rs")]
                .into_iter()
                .find(|file| file.exists())
                .map(|file| (file, below)),
        };
        // What is not there is the compiler's to say.
        self.files.extend(found.filter(|(file, _)| file.exists()));
    }

    /// What follows a `#`.
    fn attribute(&mut self, group: &Group, attributes: &mut Attributes) {
        let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
        match &tokens[..] {
            [
                TokenTree::Ident(word),
                TokenTree::Punct(_),
                TokenTree::Literal(path),
            ] if word == "path" => {
                attributes.path = Some(literal(&path.to_string()));
            }
            [TokenTree::Ident(word), TokenTree::Group(inner)] if word == "cfg" || word == "cfg_attr" => {
                let inner: Vec<TokenTree> = inner.stream().into_iter().collect();
                let mut parts = inner.split(is_comma);
                let met = constant(parts.next().unwrap_or_default());
                let shown: String = group.stream().to_string().split_whitespace().collect();
                if let Some(met) = met {
                    let often = if met { "always" } else { "never" };
                    self.complaints
                        .push(format!("`{shown}` is {often} met; write what is meant"));
                    attributes.is_off |= word == "cfg" && !met;
                }
                let is_ignored = parts
                    .flatten()
                    .any(|token| matches!(token, TokenTree::Ident(word) if word == "ignore"));
                if is_ignored {
                    self.complaints
                        .push(format!("`{shown}`: a test runs or is deleted"));
                }
            }
            _ => {}
        }
    }
}

/// What the attributes of an item say of where it is.
#[derive(Default)]
struct Attributes {
    path: Option<String>,
    /// Behind a condition that is never met.
    is_off: bool,
}

fn literal(token: &str) -> String {
    token.trim_matches('"').to_owned()
}

fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',')
}

/// Whether a condition is met whatever is built: `all()` always, `any()` never; `None` where that depends.
fn constant(condition: &[TokenTree]) -> Option<bool> {
    match condition {
        [TokenTree::Ident(word)] => match word.to_string().as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        },
        [TokenTree::Ident(word), TokenTree::Group(group)] => {
            let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
            let parts = tokens.split(is_comma).filter(|part| !part.is_empty());
            let parts: Vec<Option<bool>> = parts.map(constant).collect();
            match word.to_string().as_str() {
                "not" => parts.first().copied().flatten().map(|met| !met),
                "all" => decided(&parts, false),
                "any" => decided(&parts, true),
                _ => None,
            }
        }
        _ => None,
    }
}

/// One part that is `deciding` decides, and so do all that are not.
fn decided(parts: &[Option<bool>], deciding: bool) -> Option<bool> {
    if parts.contains(&Some(deciding)) {
        return Some(deciding);
    }
    parts
        .iter()
        .all(|part| *part == Some(!deciding))
        .then_some(!deciding)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is found in a crate of these files, of which the first two are the roots of its library and of an example.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let mut paths = Vec::new();
        for (name, content) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(&path, content).expect("a file");
            paths.push(path);
        }
        let targets = json!([
            {"src_path": paths[0].to_str(), "test": true},
            {"src_path": paths[1].to_str(), "test": false},
        ]);
        let metadata =
            json!({"workspace_members": ["ours"], "packages": [{"id": "ours", "targets": targets}]});
        let mut findings = Vec::new();
        check(&root, &metadata, &paths, &mut findings).expect("a check");
        findings
    }

    #[test]
    fn a_file_without_its_mod_line_is_found() {
        let library = "#[cfg(test)]\npub(crate) mod a;\nmod b { mod c; }\n#[path = \"d/other.rs\"]\nmod e;\nfn f() { include!(\"g.rs\") }";
        let files = [
            ("src/lib.rs", library),
            ("examples/x.rs", "#[path = \"../tests/world.rs\"]\nmod world;"),
            ("src/a.rs", "mod deep;"),
            ("src/a/deep/mod.rs", "mod deeper;"),
            ("src/a/deep/deeper.rs", ""),
            ("src/b/c.rs", ""),
            ("src/d/other.rs", "mod beside;"),
            ("src/d/beside.rs", ""),
            ("src/g.rs", "()"),
            ("tests/world.rs", "fn no_test() {}"),
        ];
        assert_eq!(found(&files), [""; 0]);
        let orphan = "#[test]\nfn p_123_words() {}";
        let with_orphan = [&files[..], &[("src/a/orphan.rs", orphan)]].concat();
        let findings = found(&with_orphan);
        assert!(
            findings.len() == 1 && findings[0].starts_with("src/a/orphan.rs: no target has this file"),
            "{findings:?}"
        );
    }

    #[test]
    fn tests_that_only_an_example_has_are_found() {
        let test = "#[test]\nfn p_123_words() {}";
        let findings = found(&[
            ("src/lib.rs", ""),
            ("examples/x.rs", "mod part;"),
            ("examples/part.rs", test),
        ]);
        assert!(
            findings.len() == 1 && findings[0].starts_with("examples/part.rs: its tests never run"),
            "{findings:?}"
        );
    }

    #[test]
    fn what_stands_behind_a_condition_that_is_none_is_found() {
        let files = |library| [("src/lib.rs", library), ("examples/x.rs", ""), ("src/a.rs", "")];
        for fine in [
            "#[cfg(any(test, debug_assertions))] mod a;",
            "#[cfg(not(feature = \"a\"))] mod a;",
            "#![cfg_attr(test, allow(dead_code))] mod a;",
        ] {
            assert_eq!(found(&files(fine)), [""; 0], "{fine}");
        }
        for (never, count) in [
            ("#[cfg(any())] mod a;", 2),
            ("#[cfg(all(unix, any()))] pub(crate) mod a;", 2),
            ("#[cfg(not(all()))] mod a;", 2),
            ("#![cfg(false)] mod a;", 1),
            ("mod a; proptest! { #[cfg_attr(all(), ignore)] fn f() {} }", 2),
            ("mod a; #[cfg_attr(unix, ignore)] fn f() {}", 1),
        ] {
            assert_eq!(found(&files(never)).len(), count, "{never}");
        }
    }
}
