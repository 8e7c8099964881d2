//! Import circles: within a crate, files of different subjects must not need each other, directly or through others.
//!
//! A subject is a folder of `src` with all that is in it, or a single file there. What a file needs is read from its tokens: paths that begin with
//! `crate`, `super`, `self` or a child module, in `use` and in code. A name that a module only passes on (`pub use`) leads to where it is defined.
//! Tests (`#[cfg(test)]`, files called `tests`) do not count: they may look at everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Circles that are not broken yet: crate and one of the files. The list only ever shrinks: a circle that is gone is taken off it.
const KNOWN: &[(&str, &str)] = &[];

/// A module as its path below the crate.
type Module = Vec<String>;

/// What one file says.
#[derive(Default)]
struct Source {
    /// Paths that it uses, from the crate's root, with their last name.
    uses: BTreeSet<Module>,
    /// Names that it passes on → their paths.
    passes_on: BTreeMap<String, Module>,
}

/// Finds circles in every crate below `crates`.
pub fn check(root: &Path, findings: &mut Vec<String>) -> Result<()> {
    let mut crates: Vec<PathBuf> = fs::read_dir(root.join("crates"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    crates.sort();
    let mut met = BTreeSet::new();
    for folder in crates {
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let sources = read(&folder.join("src"))?;
        for circle in circles(&sources) {
            let subjects: BTreeSet<&str> = circle
                .iter()
                .filter_map(|module| module.first())
                .map(String::as_str)
                .collect();
            if subjects.len() > 1 {
                let files: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
                let is_known =
                    |known: &&(&str, &str)| known.0 == name && files.iter().any(|file| file == known.1);
                if let Some(row) = KNOWN.iter().position(|known| is_known(&known)) {
                    met.insert(row);
                    continue;
                }
                findings.push(format!(
                    "crates/{name}: a circle of imports between {}",
                    files.join(", ")
                ));
            }
        }
    }
    let broken = KNOWN.iter().enumerate().filter(|(row, _)| !met.contains(row));
    for (_, known) in broken {
        findings.push(format!(
            "crates/{}: the circle of {} is broken; take it off the list in xtask/src/circles.rs",
            known.0, known.1
        ));
    }
    Ok(())
}

fn read(folder: &Path) -> Result<BTreeMap<Module, Source>> {
    let mut texts = BTreeMap::new();
    collect(folder, &mut Vec::new(), &mut texts)?;
    let modules: BTreeSet<Module> = texts.keys().cloned().collect();
    let mut sources = BTreeMap::new();
    for (module, text) in &texts {
        let tokens: TokenStream = text
            .parse()
            .map_err(|error| anyhow!("{}: {error}", module.join("::")))?;
        let mut source = Source::default();
        statements(tokens, module, &modules, &mut source);
        sources.insert(module.clone(), source);
    }
    Ok(sources)
}

fn collect(folder: &Path, below: &mut Module, texts: &mut BTreeMap<Module, String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let stem = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if stem == "bin" || stem == "tests" {
                continue;
            }
            below.push(stem);
            collect(&path, below, texts)?;
            below.pop();
        } else if path.extension().is_some_and(|extension| extension == "rs") && stem != "tests" {
            let mut module = below.clone();
            if !matches!(stem.as_str(), "lib" | "main" | "mod") {
                module.push(stem);
            }
            texts.insert(module, fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// Reads tokens of a file or a block: notes `use` and paths, and leaves out what is behind `#[cfg(test)]`.
fn statements(tokens: TokenStream, module: &Module, modules: &BTreeSet<Module>, source: &mut Source) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut index = 0;
    let mut public = false;
    while index < tokens.len() {
        match &tokens[index] {
            TokenTree::Punct(mark) if mark.as_char() == '#' && is_test(tokens.get(index + 1)) => {
                index = end_of_item(&tokens, index + 2);
                public = false;
            }
            TokenTree::Ident(word) if word == "pub" => {
                public = true;
                index += 1;
            }
            TokenTree::Ident(word) if word == "use" => {
                let end = (index..tokens.len())
                    .find(|at| is_mark(tokens.get(*at), ';'))
                    .unwrap_or(tokens.len());
                tree(
                    &tokens[index + 1..end],
                    &[],
                    module,
                    modules,
                    &mut |path, name| {
                        if public {
                            source.passes_on.insert(name, path);
                        } else {
                            source.uses.insert(path);
                        }
                    },
                );
                public = false;
                index = end + 1;
            }
            TokenTree::Ident(_) => {
                let (path, next) = path_at(&tokens, index);
                if let Some(path) = absolute(&path, module, modules) {
                    source.uses.insert(path);
                }
                index = next;
                public = false;
            }
            TokenTree::Group(group) => {
                statements(group.stream(), module, modules, source);
                // What is in round brackets behind `pub` is its scope.
                public = public && group.delimiter() == Delimiter::Parenthesis;
                index += 1;
            }
            _ => {
                public = false;
                index += 1;
            }
        }
    }
}

fn is_mark(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

fn is_test(attribute: Option<&TokenTree>) -> bool {
    match attribute {
        Some(TokenTree::Group(group)) => {
            let text: String = group.stream().to_string().split_whitespace().collect();
            text.starts_with("cfg(test") || text.starts_with("cfg(all(test") || text == "test"
        }
        _ => false,
    }
}

/// Behind the item that begins here: after its block or its semicolon.
fn end_of_item(tokens: &[TokenTree], start: usize) -> usize {
    (start..tokens.len())
        .find(|at| match &tokens[*at] {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            other => is_mark(Some(other), ';'),
        })
        .map_or(tokens.len(), |at| at + 1)
}

/// The path that begins here, and where it ends.
fn path_at(tokens: &[TokenTree], start: usize) -> (Module, usize) {
    let mut path = Module::new();
    let mut index = start;
    while let Some(TokenTree::Ident(word)) = tokens.get(index) {
        path.push(word.to_string());
        index += 1;
        if is_mark(tokens.get(index), ':') && is_mark(tokens.get(index + 1), ':') {
            index += 2;
        } else {
            break;
        }
    }
    (path, index.max(start + 1))
}

/// Every leaf of a `use` tree, as an absolute path and the name that it has here.
fn tree(
    tokens: &[TokenTree],
    prefix: &[String],
    module: &Module,
    modules: &BTreeSet<Module>,
    found: &mut dyn FnMut(Module, String),
) {
    let leaves = tokens.split(|token| is_mark(Some(token), ','));
    for leaf in leaves.filter(|leaf| !leaf.is_empty()) {
        let (path, next) = path_at(leaf, 0);
        let mut whole = prefix.to_vec();
        whole.extend(path);
        if let Some(TokenTree::Group(group)) = leaf.get(next).or_else(|| leaf.first()) {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            tree(&inner, &whole, module, modules, found);
            continue;
        }
        if whole.last().is_some_and(|last| last == "self") {
            whole.pop();
        }
        // `a as b`
        let name = match (leaf.get(next), leaf.get(next + 1)) {
            (Some(TokenTree::Ident(word)), Some(TokenTree::Ident(alias))) if word == "as" => {
                alias.to_string()
            }
            _ => whole.last().cloned().unwrap_or_default(),
        };
        if let Some(path) = absolute(&whole, module, modules) {
            found(path, name);
        }
    }
}

/// A path from the crate's root; `None` for one that leads elsewhere.
fn absolute(path: &[String], module: &Module, modules: &BTreeSet<Module>) -> Option<Module> {
    let mut base = module.clone();
    let mut rest = path;
    match path.first().map(String::as_str)? {
        // The scope in `pub(crate)` and `pub(super)` leads nowhere.
        "crate" | "super" if path.len() < 2 => return None,
        "crate" => {
            base.clear();
            rest = &path[1..];
        }
        "self" if path.len() > 1 => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|word| word == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        child => {
            let mut own = module.clone();
            own.push(child.to_owned());
            if path.len() < 2 || !modules.contains(&own) {
                return None;
            }
        }
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// The module in which a path ends, behind everything that only passes its name on.
fn home(path: &Module, sources: &BTreeMap<Module, Source>) -> Module {
    let mut path = path.clone();
    // Names may be re-exported several times, but not endlessly.
    for _ in 0..8 {
        let length = (0..=path.len())
            .rev()
            .find(|length| sources.contains_key(&path[..*length]))
            .unwrap_or(0);
        let (module, rest) = path.split_at(length);
        let passed = rest.first().and_then(|name| sources[module].passes_on.get(name));
        match passed {
            Some(further) => {
                let mut next = further.clone();
                next.extend(rest[1..].iter().cloned());
                path = next;
            }
            None => return module.to_vec(),
        }
    }
    Module::new()
}

/// Files that need each other, each group once (Tarjan's strongly connected components).
fn circles(sources: &BTreeMap<Module, Source>) -> Vec<Vec<Module>> {
    let modules: Vec<&Module> = sources.keys().collect();
    let number: BTreeMap<&Module, usize> = modules
        .iter()
        .enumerate()
        .map(|(at, module)| (*module, at))
        .collect();
    let edges: Vec<BTreeSet<usize>> = modules
        .iter()
        .map(|module| {
            let homes = sources[*module].uses.iter().map(|path| home(path, sources));
            // The root only lists modules and passes names on.
            let other = homes.filter(|home| home != *module && !home.is_empty());
            other.map(|home| number[&home]).collect()
        })
        .collect();
    let mut search = Search {
        edges: &edges,
        order: vec![None; modules.len()],
        lowest: vec![0; modules.len()],
        stack: Vec::new(),
        next: 0,
        found: Vec::new(),
    };
    for (start, module) in modules.iter().enumerate() {
        if search.order[start].is_none() && !module.is_empty() {
            search.visit(start);
        }
    }
    let named = |group: Vec<usize>| group.into_iter().map(|at| modules[at].clone()).collect();
    search.found.into_iter().map(named).collect()
}

struct Search<'a> {
    edges: &'a [BTreeSet<usize>],
    order: Vec<Option<usize>>,
    lowest: Vec<usize>,
    stack: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, at: usize) {
        let own = self.next;
        self.order[at] = Some(own);
        self.lowest[at] = own;
        self.next += 1;
        self.stack.push(at);
        for &to in &self.edges[at] {
            match self.order[to] {
                None => {
                    self.visit(to);
                    self.lowest[at] = self.lowest[at].min(self.lowest[to]);
                }
                Some(order) if self.stack.contains(&to) => self.lowest[at] = self.lowest[at].min(order),
                Some(_) => {}
            }
        }
        if self.lowest[at] == own {
            let from = self.stack.iter().position(|one| *one == at).unwrap_or(0);
            let mut group = self.stack.split_off(from);
            if group.len() > 1 {
                group.sort_unstable();
                self.found.push(group);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> BTreeMap<Module, Source> {
        let name = |path: &str| -> Module {
            path.split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let modules: BTreeSet<Module> = files.iter().map(|(path, _)| name(path)).collect();
        files
            .iter()
            .map(|(path, text)| {
                let mut source = Source::default();
                statements(text.parse().expect("tokens"), &name(path), &modules, &mut source);
                (name(path), source)
            })
            .collect()
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        circles(&sources(files))
            .iter()
            .map(|circle| {
                circle
                    .iter()
                    .map(|module| module.join("::"))
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
    }

    #[test]
    fn a_circle_is_seen_in_use_and_in_code() {
        let there = ("a", "use crate::{b::{self, B}, c};");
        assert_eq!(
            found(&[("", "mod a; mod b;"), there, ("b", "fn f() { crate::a::g() }")]),
            ["a b"]
        );
        assert!(found(&[("", ""), there, ("b", "")]).is_empty());
        assert!(
            found(&[
                ("", ""),
                ("a", "use crate::a::b::B;"),
                ("a::b", "pub(super) struct B;")
            ])
            .is_empty()
        );
    }

    #[test]
    fn what_is_passed_on_leads_to_its_home() {
        let root = ("", "pub use b::B; pub(crate) use b::C as D;");
        assert_eq!(
            found(&[root, ("a", "use crate::B;"), ("b", "use super::a::x;")]),
            ["a b"]
        );
        assert_eq!(
            found(&[root, ("a", "fn f(x: crate::D) {}"), ("b", "use super::a::x;")]),
            ["a b"]
        );
        // The folder's own file passes on what a child defines: the child needs the other child only.
        let folder = ("f", "mod x; mod y; pub use x::X;");
        assert!(found(&[folder, ("f::x", ""), ("f::y", "use super::X;")]).is_empty());
    }

    #[test]
    fn tests_do_not_count() {
        let tested = "#[cfg(test)] mod tests { use crate::a::A; } fn f() {}";
        assert!(found(&[("", ""), ("a", "use crate::b::B;"), ("b", tested)]).is_empty());
    }
}
