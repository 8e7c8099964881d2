//! Tables of pods: one row for each, with its beginning, end and requests; and Azure's table of requests to a service.
//!
//! Owns the columns of the presets `openb`, `dlrm` and `azure-llm`, what an empty time means, and that all times of a table are written alike. The order
//! of rows does not matter.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm, PodAntiAffinity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::inventory::READY;
use super::lines::reader;
use super::{Builder, ImportError, Key, Place};
use crate::fields::shortened;
use crate::pods::{OWNER_LABEL, template};
use crate::source::{Columns, Format};
use crate::timeline::{Change, Owner, OwnerKind, Timeline};
use crate::workload::Shape;

/// Longest row.
const MOST_ROW: u64 = 1 << 20;
/// Ten years: a time beyond it is a slip of the column.
const MOST_SECONDS: f64 = 366.0 * 86_400.0 * 10.0;
/// More cores or GPUs than this, or more GiB, are a slip of the column.
const MOST_OF_ONE: f64 = 1e9;
const MOST_MEMORY_BYTES: f64 = MOST_OF_ONE * (1_u64 << 30) as f64;
/// Averages of request rates are taken over so long.
const WINDOW_MS: i64 = 60_000;

/// Columns of a preset, and what is different about it.
struct Layout {
    columns: Columns,
    /// Cores are given in thousandths.
    cpu_is_milli: bool,
    /// How many pods of one group a node may hold, where it is 1: they keep away from each other.
    density: Option<&'static str>,
    /// Times count from the beginning of the trace, and not from its first row.
    from_zero: bool,
}

fn layout(format: Format, columns: &Columns) -> Layout {
    let named =
        |start: &str, end: &str, cpu: &str, memory: &str, unit: i64, gpu: &str, group: Option<&str>| {
            Columns {
                start: start.to_owned(),
                end: Some(end.to_owned()),
                cpu: cpu.to_owned(),
                memory: Some(memory.to_owned()),
                memory_unit_bytes: unit,
                gpu: Some(gpu.to_owned()),
                group: group.map(str::to_owned),
            }
        };
    match format {
        Format::Dlrm => Layout {
            columns: named(
                "creation_time",
                "deletion_time",
                "cpu_request",
                "memory_request",
                1 << 30,
                "gpu_request",
                Some("app_name"),
            ),
            cpu_is_milli: false,
            density: Some("max_instance_per_node"),
            from_zero: true,
        },
        Format::Openb => Layout {
            columns: named(
                "creation_time",
                "deletion_time",
                "cpu_milli",
                "memory_mib",
                1 << 20,
                "num_gpu",
                None,
            ),
            cpu_is_milli: true,
            density: None,
            from_zero: true,
        },
        _ => Layout {
            columns: columns.clone(),
            cpu_is_milli: false,
            density: None,
            from_zero: false,
        },
    }
}

/// Positions of the columns in a row.
struct Positions {
    start: usize,
    end: Option<usize>,
    cpu: usize,
    memory: Option<usize>,
    gpu: Option<usize>,
    group: Option<usize>,
    density: Option<usize>,
}

/// How a time is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Seconds,
    Instant,
}

impl Form {
    fn shown(self) -> &'static str {
        match self {
            Form::Seconds => "a number of seconds",
            Form::Instant => "an instant",
        }
    }
}

/// The times of a table, which have one form: seconds beside instants would lie decades apart, and a simulation would never come to the later ones.
struct Times {
    /// The form of the first one.
    form: Option<Form>,
    /// Where that is; none for a preset, whose form is known.
    line: Option<u64>,
}

impl Times {
    fn of(layout: &Layout) -> Self {
        Self {
            form: layout.from_zero.then_some(Form::Seconds),
            line: None,
        }
    }

    /// Milliseconds of the cell of a row that begins in this line.
    fn read(&mut self, text: &str, column: &str, line: u64) -> Result<Option<i64>, String> {
        let Some((form, milliseconds)) = time(text, column)? else {
            return Ok(None);
        };
        match self.form {
            Some(known) if known != form => {
                let place = self.line.map_or_else(
                    || "as this format has them".to_owned(),
                    |line| format!("as in line {line}"),
                );
                Err(format!(
                    "{column} {text:?} is {}; expected {}, {place}: all times of a table are written alike",
                    form.shown(),
                    known.shown()
                ))
            }
            Some(_) => Ok(Some(milliseconds)),
            None => {
                (self.form, self.line) = (Some(form), Some(line));
                Ok(Some(milliseconds))
            }
        }
    }
}

/// A table, row by row: a row is bounded before the parser has collected it, whether it is a line or goes over many within quotes.
struct Rows<'b> {
    table: csv::Reader<Metered<'b>>,
    /// Bytes read for the row that is being collected.
    read: Rc<Cell<u64>>,
}

impl Rows<'_> {
    /// The next row; false at the end.
    fn next(&mut self, row: &mut csv::StringRecord) -> Result<bool, ImportError> {
        self.read.set(0);
        let line = self.table.position().line();
        self.table.read_record(row).map_err(|error| broken(&error, line))
    }

    /// The names of the columns.
    fn head(&mut self) -> Result<Vec<String>, ImportError> {
        let head = self.table.headers().map_err(|error| broken(&error, 1))?;
        Ok(head.iter().map(|name| name.trim().to_owned()).collect())
    }
}

/// Counts what is read, and refuses to go on when it is more than a row may have.
struct Metered<'b> {
    inner: Box<dyn std::io::BufRead + 'b>,
    read: Rc<Cell<u64>>,
}

impl std::io::Read for Metered<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.read.get() > MOST_ROW {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        let read = self.inner.read(buffer)?;
        self.read.set(self.read.get() + read as u64);
        Ok(read)
    }
}

/// The identity of an owner in a table: group, thousandths of a core, bytes, GPUs, whether its pods keep away from each other.
type Size = (String, i64, i64, i64, bool);

fn rows(bytes: &[u8]) -> Rows<'_> {
    let read = Rc::default();
    let metered = Metered {
        inner: reader(bytes),
        read: Rc::clone(&read),
    };
    let table = csv::ReaderBuilder::new()
        .buffer_capacity(1 << 16)
        .from_reader(metered);
    Rows { table, read }
}

/// What is wrong with a row that begins in this line.
fn broken(error: &csv::Error, line: u64) -> ImportError {
    let line = error.position().map_or(line, csv::Position::line);
    let problem = match error.kind() {
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => {
            format!(
                "has {len} columns, and the head has {expected_len}; the file seems to be cut off or damaged"
            )
        }
        csv::ErrorKind::Utf8 { .. } => "is not UTF-8 text".to_owned(),
        csv::ErrorKind::Io(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
            "is longer than 1 MiB; expected a row of a table (does a quotation mark lack its end?)".to_owned()
        }
        csv::ErrorKind::Io(error) => format!("cannot be decompressed: {error}; the file seems to be cut off"),
        _ => error.to_string(),
    };
    ImportError::new(Place::Line(line), problem)
}

fn position(head: &[String], name: &str) -> Result<usize, ImportError> {
    head.iter().position(|known| known == name).ok_or_else(|| {
        let known: Vec<String> = head.iter().take(40).map(|name| shortened(name)).collect();
        ImportError::new(
            Place::Line(1),
            format!("has no column {name:?}; its columns are {}", known.join(", ")),
        )
    })
}

/// Reads a table of pods, with what is to be said of it.
///
/// # Errors
/// Names the line and the column.
pub(crate) fn read(
    format: Format,
    columns: &Columns,
    bytes: &[u8],
) -> Result<(Timeline, Option<String>), ImportError> {
    let layout = layout(format, columns);
    let mut table = rows(bytes);
    let head = table.head()?;
    let maybe = |name: &Option<String>| name.as_ref().map(|name| position(&head, name)).transpose();
    let positions = Positions {
        start: position(&head, &layout.columns.start)?,
        end: maybe(&layout.columns.end)?,
        cpu: position(&head, &layout.columns.cpu)?,
        memory: maybe(&layout.columns.memory)?,
        gpu: maybe(&layout.columns.gpu)?,
        group: maybe(&layout.columns.group)?,
        density: layout.density.map(|name| position(&head, name)).transpose()?,
    };
    let mut pods: Vec<(Size, Option<i64>, Option<i64>)> = Vec::new();
    let mut times = Times::of(&layout);
    let mut silent = Silent::default();
    let mut row = csv::StringRecord::new();
    while table.next(&mut row)? {
        let line = row.position().map_or(0, csv::Position::line);
        let pod = pod(&row, line, &positions, &layout, &mut times)
            .map_err(|problem| ImportError::new(Place::Line(line), problem))?;
        silent.look(&row, line, &positions);
        pods.push(pod);
        if pods.len() as u64 * 2 > crate::generate::MOST_EVENTS {
            return Err(ImportError::new(
                Place::Line(line),
                "has more rows than fit into memory; cut the file into pieces",
            ));
        }
    }
    if pods.is_empty() {
        return Err(ImportError::whole("holds a head and no rows"));
    }
    let base = match layout.from_zero {
        true => 0,
        false => pods.iter().filter_map(|(_, start, _)| *start).min().unwrap_or(0),
    };
    let note = silent.note(&layout.columns, pods.len());
    Ok((timeline(pods, base)?, note))
}

/// Rows that do not say what they request. What is requested may be 0, but that is seldom what an empty cell means.
#[derive(Default)]
struct Silent {
    rows: u64,
    /// The line of the first one.
    first: Option<u64>,
}

impl Silent {
    fn look(&mut self, row: &csv::StringRecord, line: u64, positions: &Positions) {
        let is_empty = |position: usize| row.get(position).unwrap_or_default().trim().is_empty();
        if is_empty(positions.cpu) || positions.memory.is_some_and(is_empty) {
            self.rows += 1;
            self.first = self.first.or(Some(line));
        }
    }

    fn note(&self, columns: &Columns, all: usize) -> Option<String> {
        let first = self.first?;
        let memory = columns.memory.as_ref();
        Some(format!(
            "{} of {all} rows have an empty {}{}, the first of them in line {first}: nothing is requested there",
            self.rows,
            columns.cpu,
            memory.map_or_else(String::new, |memory| format!(" or {memory}"))
        ))
    }
}

/// One row, which begins in this line.
fn pod(
    row: &csv::StringRecord,
    line: u64,
    positions: &Positions,
    layout: &Layout,
    times: &mut Times,
) -> Result<(Size, Option<i64>, Option<i64>), String> {
    let cell = |position: usize| row.get(position).unwrap_or_default().trim();
    let columns = &layout.columns;
    let start = times.read(cell(positions.start), &columns.start, line)?;
    let end_name = columns.end.as_deref().unwrap_or_default();
    let end = positions
        .end
        .map_or(Ok(None), |position| times.read(cell(position), end_name, line))?;
    if let (Some(start), Some(end)) = (start, end)
        && end < start
    {
        return Err(format!(
            "{end_name} {} is before {} {}",
            cell(positions.end.unwrap_or_default()),
            columns.start,
            cell(positions.start)
        ));
    }
    let cores = amount(cell(positions.cpu), &columns.cpu, MOST_OF_ONE)?;
    let cpu = if layout.cpu_is_milli {
        cores
    } else {
        cores * 1_000.0
    };
    let memory = match (positions.memory, &columns.memory) {
        (Some(position), Some(name)) => {
            let unit = columns.memory_unit_bytes as f64;
            amount(cell(position), name, MOST_MEMORY_BYTES / unit)? * unit
        }
        _ => 0.0,
    };
    let gpus = match (positions.gpu, &columns.gpu) {
        (Some(position), Some(name)) => amount(cell(position), name, MOST_OF_ONE)?,
        _ => 0.0,
    };
    let alone = positions.density.is_some_and(|position| cell(position) == "1");
    let group = positions.group.map_or("pods", cell).to_owned();
    // A share of a GPU still needs a node that has one.
    Ok((
        (
            group,
            libm::ceil(cpu) as i64,
            libm::ceil(memory) as i64,
            libm::ceil(gpus) as i64,
            alone,
        ),
        start,
        end,
    ))
}

/// Form and milliseconds of a time cell: seconds, or an instant. Empty, and `NaN` as pandas writes it: none.
fn time(text: &str, column: &str) -> Result<Option<(Form, i64)>, String> {
    if text.is_empty() || text.eq_ignore_ascii_case("nan") {
        return Ok(None);
    }
    if let Ok(seconds) = text.parse::<f64>() {
        return match seconds.is_finite() && seconds.abs() <= MOST_SECONDS {
            true => Ok(Some((Form::Seconds, libm::round(seconds * 1_000.0) as i64))),
            false => Err(format!(
                "{column} {:?} is not a time of ten years at most, in seconds",
                shortened(text)
            )),
        };
    }
    match instant(text) {
        Some(instant) => Ok(Some((Form::Instant, instant.as_millisecond()))),
        None => Err(format!(
            "{column} {:?} is neither a number of seconds nor an instant such as 2026-03-02T00:00:00Z",
            shortened(text)
        )),
    }
}

/// An instant with its offset, or without one in UTC.
fn instant(text: &str) -> Option<Timestamp> {
    let whole = text.parse::<Timestamp>().ok();
    whole.or_else(|| {
        let civil: jiff::civil::DateTime = text.parse().ok()?;
        civil
            .to_zoned(jiff::tz::TimeZone::UTC)
            .ok()
            .map(|zoned| zoned.timestamp())
    })
}

/// What a cell requests; nothing where it is empty.
fn amount(text: &str, column: &str, most: f64) -> Result<f64, String> {
    if text.is_empty() {
        return Ok(0.0);
    }
    match text.parse::<f64>() {
        Ok(amount) if (0.0..=most).contains(&amount) => Ok(amount),
        _ => Err(format!(
            "{column} {:?} is not a number from 0 to {most}",
            shortened(text)
        )),
    }
}

fn timeline(pods: Vec<(Size, Option<i64>, Option<i64>)>, base: i64) -> Result<Timeline, ImportError> {
    let mut builder = Builder::default();
    let mut names: BTreeMap<Size, String> = BTreeMap::new();
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut next: BTreeMap<Size, u64> = BTreeMap::new();
    for (size, start, end) in pods {
        let count = builder.owners();
        let name = names.entry(size.clone()).or_insert_with(|| {
            let plain = plain(&size.0);
            let (mut name, mut number) = (plain.clone(), count);
            // Another group may have the name that a number makes.
            while !taken.insert(name.clone()) {
                name = format!("{plain}-{number}");
                number += 1;
            }
            name
        });
        let key: Key = (OwnerKind::Job, "default".to_owned(), name.clone());
        let id = builder.owner(&key, || owner(name, &size))?;
        let number = next.entry(size).or_default();
        let pod = *number;
        *number += 1;
        let after = |instant: i64| u64::try_from(instant.saturating_sub(base)).unwrap_or(0);
        builder.event(start.map_or(0, after), id, Change::Begin { pod, runs_ms: None })?;
        if let Some(end) = end {
            builder.event(after(end), id, Change::End { pod })?;
        }
    }
    Ok(builder.finish())
}

/// An owner whose pods end as recorded, and are restarted when they are evicted.
fn owner(name: &str, (_, cpu, memory, gpus, alone): &Size) -> Owner {
    let shape = Shape {
        cpu_milli: vec![*cpu],
        memory_bytes: vec![*memory],
        gpus: *gpus,
        ..Shape::default()
    };
    let mut template = template(name, &shape, 0);
    if *alone && let Some(spec) = &mut template.spec {
        spec.affinity = Some(Affinity {
            pod_anti_affinity: Some(PodAntiAffinity {
                required_during_scheduling_ignored_during_execution: Some(vec![PodAffinityTerm {
                    topology_key: "kubernetes.io/hostname".to_owned(),
                    label_selector: Some(LabelSelector {
                        match_labels: Some(BTreeMap::from([(OWNER_LABEL.to_owned(), name.to_owned())])),
                        ..LabelSelector::default()
                    }),
                    ..PodAffinityTerm::default()
                }]),
                ..PodAntiAffinity::default()
            }),
            ..Affinity::default()
        });
    }
    Owner {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        kind: OwnerKind::Job,
        template: Arc::new(template),
        ready: READY,
        budget: None,
        later: Vec::new(),
        claims: Vec::new(),
    }
}

/// A text as part of a name.
fn plain(text: &str) -> String {
    let letters = text
        .chars()
        .take(40)
        .map(|letter| match letter.to_ascii_lowercase() {
            letter if letter.is_ascii_alphanumeric() => letter,
            _ => '-',
        });
    let name: String = letters.collect();
    match name.trim_matches('-') {
        "" => "pods".to_owned(),
        name => name.to_owned(),
    }
}

/// Azure's table of LLM requests as the replicas that serve them: the rate of each minute over what one replica serves.
///
/// # Errors
/// Names the line.
pub(crate) fn requests(bytes: &[u8], requests_per_replica: f64) -> Result<Timeline, ImportError> {
    let mut table = rows(bytes);
    let head = table.head()?;
    let at = position(&head, "TIMESTAMP")?;
    let mut windows: BTreeMap<i64, u64> = BTreeMap::new();
    let mut row = csv::StringRecord::new();
    while table.next(&mut row)? {
        let line = row.position().map_or(0, csv::Position::line);
        let text = row.get(at).unwrap_or_default().trim();
        let Some(instant) = instant(text) else {
            return Err(ImportError::new(
                Place::Line(line),
                format!(
                    "TIMESTAMP {:?} is not an instant such as 2023-11-16 18:15:46.68",
                    shortened(text)
                ),
            ));
        };
        *windows
            .entry(instant.as_millisecond().div_euclid(WINDOW_MS))
            .or_default() += 1;
    }
    let (Some(first), Some(last)) = (
        windows.keys().next().copied(),
        windows.keys().next_back().copied(),
    ) else {
        return Err(ImportError::whole("holds a head and no rows"));
    };
    if last - first > 366 * 24 * 60 {
        return Err(ImportError::whole(
            "spans more than a year; expected days of requests",
        ));
    }
    let mut builder = Builder::default();
    let size: Size = ("azure-llm".to_owned(), 4_000, 16 << 30, 0, false);
    let key: Key = (
        OwnerKind::Deployment,
        "default".to_owned(),
        "azure-llm".to_owned(),
    );
    let id = builder.owner(&key, || Owner {
        kind: OwnerKind::Deployment,
        ..owner("azure-llm", &size)
    })?;
    let mut before = None;
    for window in first..=last {
        let rate = windows.get(&window).copied().unwrap_or(0) as f64 * 1_000.0 / WINDOW_MS as f64;
        let replicas = libm::ceil(rate / requests_per_replica).clamp(0.0, 1e6) as u32;
        if before != Some(replicas) {
            let at = u64::try_from((window - first) * WINDOW_MS).unwrap_or(0);
            builder.event(at, id, Change::Replicas(replicas))?;
            before = Some(replicas);
        }
    }
    Ok(builder.finish())
}
