//! Text output: as wide as the terminal, with correct plurals.

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

/// Breaks a text at spaces; the first line is indented by `first`, the others by `rest`. A word that is wider than the line stays whole.
pub(crate) fn wrap(text: &str, first: usize, rest: usize) -> String {
    wrap_at(width(), text, first, rest)
}

pub(crate) fn wrap_at(limit: usize, text: &str, first: usize, rest: usize) -> String {
    let mut out = " ".repeat(first);
    let (mut column, mut fresh) = (first, true);
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
    drop(writeln!(std::io::stderr().lock(), "{line}"));
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
}
