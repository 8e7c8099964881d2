//! The columns of the table: which there are, how wide each is, and which are left out where there is no room. Pure.

use clap::ValueEnum;
use spokeshave_story::explain::age;
use spokeshave_view::{NodeRow, View, share};

use super::frame::{Asked, verdict};
use super::line::{Line, Tone, fit, piece};

/// What is shown of each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Column {
    /// Name
    #[value(alias = "node")]
    Name,
    /// NodePool
    Pool,
    /// Instance type and capacity type
    Type,
    /// Zone
    Zone,
    /// Price in dollars per hour
    Price,
    /// Requested CPU, as a share of what is allocatable
    Cpu,
    /// Requested memory, as a share of what is allocatable
    #[value(alias = "mem")]
    Memory,
    /// Number of pods
    Pods,
    /// Age
    Age,
    /// What would be saved, in dollars per hour
    Saves,
    /// What would become of it, or what keeps it
    Verdict,
}

/// The columns where nobody names any.
const USUAL: [Column; 10] = [
    Column::Name,
    Column::Pool,
    Column::Type,
    Column::Zone,
    Column::Price,
    Column::Cpu,
    Column::Memory,
    Column::Pods,
    Column::Age,
    Column::Verdict,
];

#[cfg(test)]
thread_local! {
    /// Texts of cells that this thread has made.
    static MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How many texts of cells this thread has made: what a redraw costs, told without a clock.
#[cfg(test)]
pub(super) fn cells_made() -> usize {
    MADE.get()
}

/// Blanks between two columns.
const GAP: usize = 2;
/// Names are not cut to less than this.
const SHORTEST_NAME: usize = 8;

impl Column {
    fn title(self) -> &'static str {
        match self {
            Column::Name => "NODE",
            Column::Pool => "POOL",
            Column::Type => "TYPE",
            Column::Zone => "ZONE",
            Column::Price => "$/h",
            Column::Cpu => "CPU",
            Column::Memory => "MEM",
            Column::Pods => "PODS",
            Column::Age => "AGE",
            Column::Saves => "SAVES",
            Column::Verdict => "VERDICT",
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Column::Price | Column::Pods | Column::Age | Column::Saves)
    }

    /// When it is left out: the greater the sooner, and 0 never.
    fn rank(self) -> u8 {
        match self {
            Column::Name | Column::Verdict => 0,
            Column::Price => 1,
            Column::Cpu => 2,
            Column::Memory => 3,
            Column::Type => 4,
            Column::Pool => 5,
            Column::Pods | Column::Age | Column::Saves => 6,
            Column::Zone => 7,
        }
    }

    fn text(self, row: &NodeRow, view: &View, is_ascii: bool) -> String {
        #[cfg(test)]
        MADE.set(MADE.get() + 1);
        match self {
            Column::Name => row.name.clone(),
            Column::Pool => row.pool.clone().unwrap_or_else(|| "-".to_owned()),
            Column::Type => format!(
                "{} {}",
                row.instance_type.as_deref().unwrap_or("-"),
                short(row.capacity_type.as_deref())
            ),
            Column::Zone => row.zone.clone().unwrap_or_default(),
            Column::Price => row
                .price
                .map_or("?".to_owned(), |price| format!("{:.3}", price.0.dollars())),
            Column::Cpu => bar(share(row.cpu), is_ascii),
            Column::Memory => bar(share(row.memory), is_ascii),
            Column::Pods => row.pods.1.to_string(),
            Column::Age => row
                .created
                .map(|created| age(created, view.header.now))
                .unwrap_or_default(),
            Column::Saves => row
                .saves
                .map(|saves| format!("{:.3}", saves.0.dollars()))
                .unwrap_or_default(),
            Column::Verdict => verdict(row).0.trim_end_matches([' ', ':', ';']).to_owned(),
        }
    }

    fn tone(self, row: &NodeRow) -> Tone {
        match self {
            Column::Verdict => verdict(row).1,
            _ => Tone::Plain,
        }
    }

    /// As wide as it has to be for these rows.
    fn width(self, rows: &[&NodeRow], view: &View) -> usize {
        let longest = || {
            let texts = rows.iter().map(|row| self.text(row, view, true));
            texts.map(|text| text.chars().count()).max().unwrap_or_default()
        };
        match self {
            Column::Price | Column::Saves => 7,
            Column::Cpu | Column::Memory => 15,
            Column::Pods => 4,
            Column::Age => 6,
            Column::Verdict => longest().max(7),
            Column::Name | Column::Pool | Column::Type | Column::Zone => longest().max(4),
        }
    }
}

/// A column with its width. Texts of the last one are as long as there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    column: Column,
    width: usize,
}

/// The columns that are `named`, or else the usual ones, each as wide as these rows need it. It reads every row.
pub(super) fn measured(rows: &[&NodeRow], view: &View, named: &[Column]) -> Vec<Placed> {
    let columns = if named.is_empty() { &USUAL[..] } else { named };
    let natural = columns.iter().enumerate().map(|(index, column)| {
        let is_rest = *column == Column::Verdict && index + 1 == columns.len();
        Placed {
            column: *column,
            width: if is_rest { 0 } else { column.width(rows, view) },
        }
    });
    natural.collect()
}

/// Measured columns in a line. Where nobody has `named` any, those are left out for which there is no room; otherwise the right edge cuts what does not fit.
pub(super) fn placed(measured: &[Placed], named: &[Column], width: usize) -> Vec<Placed> {
    let mut all = measured.to_vec();
    if width == usize::MAX {
        return all;
    }
    // The verdict is what one looks for: it has at least a third of the line.
    let least = match all.iter().any(|one| one.column == Column::Verdict) {
        true => (width / 3).clamp(20, 60),
        false => 0,
    };
    while named.is_empty() && taken(&all) + least > width {
        let rank = all.iter().map(|one| one.column.rank()).max().unwrap_or_default();
        if rank == 0 {
            break;
        }
        all.retain(|one| one.column.rank() != rank);
    }
    let excess = (taken(&all) + least).saturating_sub(width);
    for name in all.iter_mut().filter(|one| one.column == Column::Name) {
        let shortest = name.width.min(SHORTEST_NAME);
        name.width = name.width.saturating_sub(excess).max(shortest);
    }
    let rest = width.saturating_sub(taken(&all)).max(least);
    for verdict in all.iter_mut().filter(|one| one.column == Column::Verdict) {
        verdict.width = verdict.width.min(rest);
    }
    all
}

/// What columns take besides the verdict, with the blanks after them.
fn taken(all: &[Placed]) -> usize {
    let others = all.iter().filter(|one| one.column != Column::Verdict);
    let taken: usize = others.map(|one| one.width + GAP).sum();
    // Nothing follows the last one.
    match all.iter().any(|one| one.column == Column::Verdict) {
        true => taken,
        false => taken.saturating_sub(GAP),
    }
}

/// The titles.
pub(super) fn titles(columns: &[Placed], is_ascii: bool) -> String {
    let mut text = String::new();
    for (index, one) in columns.iter().enumerate() {
        let is_last = index + 1 == columns.len();
        text += &cell(one, one.column.title(), is_last.then_some(usize::MAX), is_ascii);
    }
    text
}

/// A node.
pub(super) fn line(
    row: &NodeRow,
    view: &View,
    columns: &[Placed],
    asked: &Asked,
    width: usize,
    is_screen: bool,
) -> Line {
    let (mut line, mut taken) = (Line::new(), 0_usize);
    for (index, one) in columns.iter().enumerate() {
        let is_last = index + 1 == columns.len();
        let text = one.column.text(row, view, asked.is_ascii);
        let left = is_last.then_some(width.saturating_sub(taken));
        let next = piece(cell(one, &text, left, asked.is_ascii), one.column.tone(row));
        taken = taken.saturating_add(next.text.chars().count());
        match line.last_mut() {
            Some(last) if last.tone == next.tone => last.text += &next.text,
            _ => line.push(next),
        }
    }
    if is_screen && asked.chosen.as_deref() == Some(&row.name) {
        let text: String = line.into_iter().map(|piece| piece.text).collect();
        return fit(vec![piece(padded(&text, width), Tone::Chosen)], width);
    }
    fit(line, width)
}

/// A text in its column, with the blanks after it; `left` is how much room there is after all others for the last one, whose text is as long as that.
fn cell(one: &Placed, text: &str, left: Option<usize>, is_ascii: bool) -> String {
    match left {
        Some(left) if !one.column.is_number() => cut(text, left, is_ascii),
        Some(_) => before(&cut(text, one.width, is_ascii), one.width),
        None if one.column.is_number() => {
            before(&cut(text, one.width, is_ascii), one.width) + &" ".repeat(GAP)
        }
        None => padded(&cut(text, one.width, is_ascii), one.width + GAP),
    }
}

/// Blanks that make a text as wide as this.
fn blanks(text: &str, width: usize) -> String {
    match width {
        usize::MAX => String::new(),
        width => " ".repeat(width.saturating_sub(text.chars().count())),
    }
}

/// With blanks behind it.
fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", blanks(text, width))
}

/// With blanks before it.
fn before(text: &str, width: usize) -> String {
    format!("{}{text}", blanks(text, width))
}

/// Cut to a width, with a sign that it was.
fn cut(text: &str, width: usize, is_ascii: bool) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let sign = if is_ascii { '~' } else { '…' };
    text.chars().take(width.saturating_sub(1)).chain([sign]).collect()
}

fn bar(share: i64, is_ascii: bool) -> String {
    let full = usize::try_from((share.clamp(0, 1000) + 50) / 100).unwrap_or_default();
    let (on, off) = if is_ascii { ("#", ".") } else { ("█", "░") };
    format!("{}{} {:>3}%", on.repeat(full), off.repeat(10 - full), share / 10)
}

fn short(capacity_type: Option<&str>) -> &str {
    match capacity_type {
        Some("on-demand") => "od",
        Some(other) => other,
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::top::frame::{Size, draw};
    use crate::top::line::plain;
    use crate::top::selection::Selection;
    use crate::top::tests::stuck;
    use spokeshave_web::Shown;

    /// The line of the titles and those of the nodes.
    fn table(shown: &Shown, asked: &Asked, width: usize) -> Vec<String> {
        let size = Size {
            width,
            height: usize::MAX,
        };
        let text = plain(&draw(shown, asked, size, None));
        let lines = text.lines().skip_while(|line| !line.contains("NODE"));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn columns_are_those_that_are_named_in_their_order() {
        let shown = stuck();
        let asked = |columns: &[Column]| Asked {
            columns: columns.to_vec(),
            is_ascii: true,
            ..Asked::default()
        };
        // The verdict before the others is as wide as the longest.
        let few = asked(&[Column::Verdict, Column::Name, Column::Saves]);
        let lines = table(&shown, &few, usize::MAX);
        let titles: Vec<&str> = lines[0].split_whitespace().collect();
        assert_eq!(titles, ["VERDICT", "NODE", "SAVES"]);
        let at = lines[0].find("NODE").expect("a title");
        for (line, row) in lines[1..].iter().zip(&shown.view.nodes.0) {
            assert!(line[at..].starts_with(&row.name), "{lines:?}");
            let saves = if row.name == "batch" {
                "  0.109"
            } else {
                &*row.name
            };
            assert!(line.ends_with(saves), "{lines:?}");
        }
        // The verdict has a third of the line wherever it stands.
        for line in table(&shown, &few, 60) {
            assert!(line.len() <= 60, "{line}");
            assert!(line.find("NODE").is_none_or(|at| at >= 22), "{line}");
        }
        // Where somebody has named them, none is left out for another.
        let many = [
            Column::Name,
            Column::Pool,
            Column::Type,
            Column::Zone,
            Column::Price,
            Column::Age,
        ];
        let lines = table(&shown, &asked(&many), 60);
        assert!(lines.iter().all(|line| line.len() <= 60), "{lines:?}");
        let titles: Vec<&str> = lines[0].split_whitespace().collect();
        assert_eq!(titles, ["NODE", "POOL", "TYPE", "ZONE", "$/h"]);
        let usual = table(&shown, &asked(&[]), 60);
        assert!(
            !usual[0].contains("ZONE") && usual[0].ends_with("VERDICT"),
            "{usual:?}"
        );
    }

    #[test]
    fn wrong_columns_and_selectors_are_refused_with_what_there_is() {
        let parse = |words: &[&str]| Cli::try_parse_from([&["spokeshave", "top"], words].concat());
        let said = |words: &[&str]| parse(words).expect_err("it is refused").to_string();
        let wrong = said(&["--columns", "name,vedict"]);
        for told in [
            "'vedict'",
            "[possible values: name, pool, type, zone, price, cpu, memory, pods, age, saves, verdict]",
            "similar value exists: 'verdict'",
        ] {
            assert!(wrong.contains(told), "{wrong}");
        }
        let wrong = said(&["-l", "zone in a"]);
        assert!(wrong.contains("found 'a' expected: '('"), "{wrong}");
        let parsed = parse(&[
            "--once",
            "--columns",
            "node,verdict",
            "--columns",
            "age",
            "-l",
            "a,!b",
        ]);
        let Command::Top(args) = parsed.expect("it is taken").command else {
            panic!("another command");
        };
        assert_eq!(args.columns, [Column::Name, Column::Verdict, Column::Age]);
        assert_eq!(args.selector, Selection::parse("a,!b").expect("a selector"));
    }
}
