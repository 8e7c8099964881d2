//! Where one document ends and the next begins, and where the items of a List are: by lines, without understanding values.
//!
//! Cutting a dump into small pieces of text first keeps reading linear in its length, lets an unreadable object be named and passed over, and
//! gives every message its line. A piece that looks unusual is left whole for the parser.

use std::collections::BTreeMap;

/// One document of a file: the text between two lines `---`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Document<'a> {
    /// Counted from 1; empty documents are not counted.
    pub(crate) number: usize,
    /// Where it begins in the file, in bytes.
    pub(crate) offset: usize,
    /// Its text.
    pub(crate) text: &'a str,
}

/// How a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Json,
    Yaml,
}

impl Document<'_> {
    /// JSON begins with `{"`, `{}` or `[`; YAML's own braces are left to the YAML parser.
    pub(crate) fn style(&self) -> Style {
        let mut characters = significant(self.text)
            .chars()
            .filter(|character| !character.is_whitespace());
        match (characters.next(), characters.next()) {
            (Some('['), _) | (Some('{'), Some('"' | '}') | None) => Style::Json,
            _ => Style::Yaml,
        }
    }
}

/// The documents of a file that hold more than blanks and comments.
pub(crate) fn documents(text: &str) -> Vec<Document<'_>> {
    let mut found = Vec::new();
    let mut begin = 0;
    let mut search = 0;
    loop {
        let mark = next_mark(text, search);
        let end = mark.unwrap_or(text.len());
        let body = &text[begin..end];
        let lead = body.len() - significant(body).len();
        if lead < body.len() {
            // From the beginning of the line, because indentation means something.
            let lead = body[..lead].rfind('\n').map_or(0, |end| end + 1);
            found.push(Document {
                number: found.len() + 1,
                offset: begin + lead,
                text: &body[lead..],
            });
        }
        match mark {
            Some(mark) => (begin, search) = (mark + 3, mark + 3),
            None => return found,
        }
    }
}

/// The next `---` or `...` at the beginning of a line with a blank or nothing after it.
fn next_mark(text: &str, from: usize) -> Option<usize> {
    let is_mark = |position: usize| {
        let rest = &text.as_bytes()[position..];
        (rest.starts_with(b"---") || rest.starts_with(b"..."))
            && rest.get(3).is_none_or(u8::is_ascii_whitespace)
    };
    if from == 0 && is_mark(0) {
        return Some(0);
    }
    let bytes = text.as_bytes();
    let mut position = from;
    while let Some(step) = text[position..].find('\n') {
        position += step + 1;
        if matches!(bytes.get(position), Some(b'-' | b'.')) && is_mark(position) {
            return Some(position);
        }
    }
    None
}

/// The text from its first line that is neither blank, nor a comment, nor a YAML directive.
fn significant(text: &str) -> &str {
    let mut rest = text;
    loop {
        let trimmed = rest.trim_start();
        if !trimmed.starts_with(['#', '%']) {
            return trimmed;
        }
        match trimmed.find('\n') {
            Some(end) => rest = &trimmed[end + 1..],
            None => return "",
        }
    }
}

/// A List in block style, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ListParts<'a> {
    /// The lines before and after the items: `apiVersion`, `kind`, `metadata`.
    pub(crate) header: String,
    /// Each item with its place in the document: a sequence of one.
    pub(crate) items: Vec<(usize, &'a str)>,
}

/// Takes a List apart as `kubectl get -o yaml` writes it: a line `items:`, then items that begin with `- ` at one indentation. `None` for anything else,
/// and where an item takes a value from another one.
pub(crate) fn list_parts(document: &str) -> Option<ListParts<'_>> {
    let key = find_items_key(document)?;
    let begin = key + document[key..].find('\n')? + 1;
    let mut lines = Lines {
        text: document,
        position: begin,
    };
    let indent = loop {
        let (_, line) = lines.next()?;
        let trimmed = line.trim_start_matches(' ');
        if trimmed.starts_with("- ") {
            break line.len() - trimmed.len();
        }
        if !(trimmed.trim().is_empty() || trimmed.starts_with('#')) {
            return None;
        }
    };
    let mut starts = Vec::new();
    let mut end = document.len();
    for (position, line) in (Lines {
        text: document,
        position: begin,
    }) {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        let rest = &line[spaces..];
        if spaces == indent && rest.starts_with("- ") {
            starts.push(position);
        } else if spaces == 0 && !rest.starts_with(['-', '#', '\n', '\r', '\t']) {
            end = position;
            break;
        }
    }
    let ends = starts.iter().skip(1).copied().chain([end]);
    let items = starts
        .iter()
        .copied()
        .zip(ends)
        .map(|(from, to)| (from, &document[from..to]));
    let items: Vec<(usize, &str)> = items.collect();
    if reach_back(document, &items) {
        return None;
    }
    Some(ListParts {
        items,
        header: format!("{}\n{}", &document[..key], &document[end..]),
    })
}

/// An item has an alias, `*name`, whose anchor, `&name`, stands before the item: what it says only the whole document tells.
fn reach_back(document: &str, items: &[(usize, &str)]) -> bool {
    let mut anchors: BTreeMap<&str, usize> = BTreeMap::new();
    for (position, name) in marks(document, '&') {
        anchors.entry(name).or_insert(position);
    }
    let reaches_back = |(from, item): &(usize, &str)| {
        marks(item, '*').any(|(position, name)| {
            let is_before = anchors.get(name).is_some_and(|anchor| anchor < from);
            is_before && !marks(&item[..position], '&').any(|(_, own)| own == name)
        })
    };
    // Nearly every document has none.
    !anchors.is_empty() && items.iter().any(reaches_back)
}

/// Names with this mark where a value may begin, and where they are. In a text that is quoted they mean nothing; whoever asks needs two that fit.
fn marks(text: &str, mark: char) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices(mark).filter_map(move |(position, _)| {
        let before = text[..position].chars().next_back();
        let begins = before.is_none_or(|before| before.is_whitespace() || matches!(before, '[' | '{' | ','));
        let rest = &text[position + 1..];
        let ends = |next: char| next.is_whitespace() || matches!(next, '[' | ']' | '{' | '}' | ',');
        let name = &rest[..rest.find(ends).unwrap_or(rest.len())];
        (begins && !name.is_empty()).then_some((position, name))
    })
}

fn find_items_key(document: &str) -> Option<usize> {
    let is_key = |position: usize| {
        document[position..]
            .strip_prefix("items:")
            .and_then(|rest| rest.split('\n').next())
            .is_some_and(|rest| rest.trim().is_empty() || rest.trim_start().starts_with('#'))
    };
    if is_key(0) {
        return Some(0);
    }
    // `items:` is near the top; searching beyond the head would read every document twice.
    let head = document.len().min(4096);
    let head = (0..=head).rev().find(|end| document.is_char_boundary(*end))?;
    document[..head]
        .match_indices("\nitems:")
        .map(|(position, _)| position + 1)
        .find(|position| is_key(*position))
}

struct Lines<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.text[self.position..];
        if rest.is_empty() {
            return None;
        }
        let length = rest.find('\n').map_or(rest.len(), |end| end + 1);
        let line = (self.position, &rest[..length]);
        self.position += length;
        Some(line)
    }
}

/// The line, counted from 1, of a byte of the text.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        documents(text)
            .iter()
            .map(|document| document.text.trim())
            .collect()
    }

    #[test]
    fn documents_are_cut_at_marks_only() {
        assert_eq!(texts("a: 1\n---\nb: 2\n"), ["a: 1", "b: 2"]);
        assert_eq!(
            texts("---\n# nothing\n---\na: |\n  ---\n  x\n...\n"),
            ["a: |\n  ---\n  x"]
        );
        assert_eq!(texts("a: ---x\n---x: 1\n"), ["a: ---x\n---x: 1"]);
        assert_eq!(texts("--- {\"a\": 1}\n--- \n"), ["{\"a\": 1}"]);
        assert_eq!(texts(""), Vec::<&str>::new());
        assert_eq!(texts("# only a comment"), Vec::<&str>::new());
    }

    #[test]
    fn documents_know_their_number_and_line() {
        let text = "# head\n---\n---\na: 1\n---\n\n\nb: 2\n";
        let found = documents(text);
        let places: Vec<(usize, usize)> = found
            .iter()
            .map(|document| (document.number, line_of(text, document.offset)))
            .collect();
        assert_eq!(places, [(1, 4), (2, 8)]);
    }

    #[test]
    fn json_is_recognised_by_its_first_characters() {
        let style = |text: &str| documents(text)[0].style();
        assert_eq!(style("{ \"a\": 1}"), Style::Json);
        assert_eq!(style("# c\n[{}]"), Style::Json);
        assert_eq!(style("{a: 1}"), Style::Yaml);
        assert_eq!(style("a: 1"), Style::Yaml);
    }

    #[test]
    fn a_list_falls_apart_into_its_items() {
        for indent in ["", "  "] {
            let text = format!(
                "apiVersion: v1\nitems:\n{indent}- a: |\n{indent}    - x\n{indent}  b:\n{indent}  - 1\n{indent}- c: 2\nkind: List\n"
            );
            let parts = list_parts(&text).expect("a list");
            assert_eq!(parts.items.len(), 2, "{parts:?}");
            assert!(parts.items[0].1.ends_with("- 1\n"));
            assert_eq!(parts.items[1].1.trim(), "- c: 2");
            assert_eq!(parts.header, "apiVersion: v1\n\nkind: List\n");
        }
        assert_eq!(list_parts("items: []\nkind: List\n"), None);
        assert_eq!(list_parts("spec:\n  items:\n  - a\n"), None);
    }

    #[test]
    fn a_list_whose_items_share_values_stays_whole() {
        let parts = |first: &str, second: &str| {
            let text = format!("kind: List\nitems:\n- a: {first}\n- b: {second}\n");
            list_parts(&text).map(|parts| parts.items.len())
        };
        assert_eq!(parts("&s {x: 1}", "*s"), None);
        assert_eq!(parts("[&s 1]", "{c: [*s, 2]}"), None);
        // Its own anchor, none of this name, or no names at all.
        for (first, second) in [
            ("&s 1", "[&s 2, *s]"),
            ("[&s 1, *s]", "2"),
            ("&s 1", "\"*s\""),
            ("&s 1", "'5 * s'"),
            ("x & s", "'rm *s'"),
        ] {
            assert_eq!(parts(first, second), Some(2), "{first} {second}");
        }
    }
}
