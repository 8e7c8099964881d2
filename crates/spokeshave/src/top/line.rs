//! Lines of pieces: text with a tone, folded and cut to a width. Pure.

use crate::text::on_one_line;

/// How a piece looks, where there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Dim,
    Bold,
    Good,
    Warn,
    Bad,
    Chosen,
}

/// Text of one tone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) tone: Tone,
}

/// One line.
pub(super) type Line = Vec<Piece>;

pub(super) fn piece(text: impl Into<String>, tone: Tone) -> Piece {
    let text: String = text.into();
    // What objects say may hold anything.
    Piece {
        text: on_one_line(&text).into_owned(),
        tone,
    }
}

/// A line as it is, or where it is too long, in two or more, broken between pieces.
pub(super) fn folded(line: Line, width: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = vec![Vec::new()];
    let mut left = width;
    for mut piece in line {
        let long = piece.text.chars().count();
        if long > left && left < width {
            lines.push(Vec::new());
            left = width;
            piece.text = piece.text.trim_start().to_owned();
        }
        left = left.saturating_sub(piece.text.chars().count());
        if let Some(last) = lines.last_mut() {
            last.push(piece);
        }
    }
    lines.into_iter().map(|line| fit(line, width)).collect()
}

/// Cuts a line to a width.
pub(super) fn fit(line: Line, width: usize) -> Line {
    let mut left = width;
    let mut out = Vec::new();
    for mut piece in line {
        let long = piece.text.chars().count();
        if long > left {
            piece.text = piece.text.chars().take(left).collect();
        }
        left = left.saturating_sub(long);
        if !piece.text.is_empty() {
            out.push(piece);
        }
    }
    out
}

/// Without colours, for pipes and tests.
pub(super) fn plain(lines: &[Line]) -> String {
    let mut out = String::new();
    for line in lines {
        let text: String = line.iter().map(|piece| piece.text.as_str()).collect();
        out += text.trim_end();
        out.push('\n');
    }
    out
}
