//! Text output: as wide as the terminal, with correct plurals, and with nothing that a terminal would carry out.

use std::borrow::Cow;
use std::sync::OnceLock;

pub(crate) use spokeshave_plan::report::count;

/// Columns where nothing says how wide the reader's page is.
const WIDTH: usize = 80;

/// The minimum width: narrower lines would contain single words.
const NARROWEST: usize = 40;

static COLUMNS: OnceLock<usize> = OnceLock::new();

/// Makes pages as wide as COLUMNS says or else the terminal is; called once, before anything is written.
pub(crate) fn follow_terminal(columns: Option<&str>) {
    let named = columns
        .and_then(|text| text.trim().parse().ok())
        .filter(|width| *width > 0);
    let terminal =
        || terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
    if let Some(width) = named.or_else(terminal) {
        // Only the first call counts.
        let _ = COLUMNS.set(width.max(NARROWEST));
    }
}

/// Columns that every report keeps to.
pub(crate) fn width() -> usize {
    COLUMNS.get().copied().unwrap_or(WIDTH)
}

/// What a terminal would carry out instead of showing it: control characters, but for the ends of lines, and those that turn the direction of writing.
fn is_carried_out(letter: char) -> bool {
    let turns = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (letter.is_control() && !matches!(letter, '\n' | '\t'))
}

/// A text as a terminal may have it. Names, messages and reasons are what others have written into a cluster or a file: what a terminal would carry out of them is
/// spelt out, as in `\u{1b}[2J`.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_carried_out) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match is_carried_out(letter) {
            true => out.extend(letter.escape_unicode()),
            false => out.push(letter),
        }
    }
    Cow::Owned(out)
}

/// The same on one line, so that nobody can add lines of his own to a page.
pub(crate) fn on_one_line(text: &str) -> Cow<'_, str> {
    let breaks = ['\n', '\r', '\t'];
    match text.contains(breaks) {
        true => Cow::Owned(visible(&text.replace(breaks, " ")).into_owned()),
        false => visible(text),
    }
}

/// Breaks a text at spaces; the first line is indented by `first`, the others by `rest`. A word that is wider than the line stays whole.
pub(crate) fn wrap(text: &str, first: usize, rest: usize) -> String {
    wrap_at(width(), text, first, rest)
}

pub(crate) fn wrap_at(limit: usize, text: &str, first: usize, rest: usize) -> String {
    let mut out = " ".repeat(first);
    let (mut column, mut fresh) = (first, true);
    let text = on_one_line(text);
    for word in text.split(' ') {
        let width = word.chars().count();
        if !fresh && column + 1 + width > limit {
            out.push('\n');
            out.push_str(&" ".repeat(rest));
            column = rest;
            fresh = true;
        }
        if !fresh {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
        fresh = false;
    }
    out
}

/// Writes a line to standard error; a reader that has gone away is no reason to stop, and nothing to panic about.
pub(crate) fn say(line: &str) {
    use std::io::Write as _;
    drop(writeln!(std::io::stderr().lock(), "{}", visible(line)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_inside_the_width() {
        let text = "a pod disruption budget that allows nothing ".repeat(12);
        for width in [40, 80, 200] {
            let wrapped = wrap_at(width, text.trim(), 2, 6);
            assert!(wrapped.lines().count() > 2);
            assert!(wrapped.lines().all(|line| line.chars().count() <= width));
            assert!(wrapped.lines().skip(1).all(|line| line.starts_with("      ")));
            assert_eq!(
                wrapped.split_whitespace().collect::<Vec<_>>(),
                text.split_whitespace().collect::<Vec<_>>()
            );
        }
        assert_eq!(wrap(&"x".repeat(100), 2, 2).lines().count(), 1);
    }

    /// An Event of a stranger neither clears the screen nor writes a line that looks like the program's own.
    #[test]
    fn what_others_have_written_is_neither_carried_out_nor_a_line_of_its_own() {
        let text = "x\u{1b}[2J\u{9b}31m\r\nVerdict: delete \u{202e}x\u{7}";
        let shown = r"  x\u{1b}[2J\u{9b}31m  Verdict: delete \u{202e}x\u{7}";
        assert_eq!(wrap_at(80, text, 2, 4), shown);
        assert_eq!(visible("one\n\ttwo\u{1b}"), "one\n\ttwo\\u{1b}");
        assert!(
            matches!(visible("Größe: 3 × π"), Cow::Borrowed(_)),
            "nothing is copied"
        );
    }
}
