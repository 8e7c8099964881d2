//! Text for terminals of 80 columns.

/// Columns that every report keeps to.
pub(crate) const WIDTH: usize = 80;

/// Breaks a text at spaces; the first line is indented by `first`, the others by `rest`. A word that is wider than the line stays whole.
pub(crate) fn wrap(text: &str, first: usize, rest: usize) -> String {
    let mut out = " ".repeat(first);
    let (mut column, mut fresh) = (first, true);
    for word in text.split(' ') {
        let width = word.chars().count();
        if !fresh && column + 1 + width > WIDTH {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_inside_the_width() {
        let text = "a pod disruption budget that allows nothing ".repeat(12);
        let wrapped = wrap(text.trim(), 2, 6);
        assert!(wrapped.lines().count() > 4);
        assert!(wrapped.lines().all(|line| line.chars().count() <= WIDTH));
        assert!(
            wrapped
                .lines()
                .skip(1)
                .all(|line| line.starts_with("      a") || line.starts_with("      "))
        );
        assert_eq!(
            wrapped.split_whitespace().collect::<Vec<_>>(),
            text.split_whitespace().collect::<Vec<_>>()
        );
        assert_eq!(wrap(&"x".repeat(100), 2, 2).lines().count(), 1);
    }
}
