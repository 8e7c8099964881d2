//! Where a recorded workload comes from, and how it is bent to size: file, format, scale.
//!
//! Owns the words of `import`. It opens nothing; the binary brings the bytes to `import`.

use crate::fields::Item;

/// The formats that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// What `kubectl get … -o yaml` wrote at several times.
    Dumps,
    /// What `spokeshave record` wrote.
    Record,
    /// The audit log of an API server.
    Audit,
    /// What kubereplay captured.
    Kubereplay,
    /// SimKube's trace.
    Sktrace,
    /// A table with a mapping of its columns.
    Csv,
    /// Alibaba's OpenB pods (GPU cluster, 2023).
    Openb,
    /// Alibaba's DLRM instances (2025).
    Dlrm,
    /// Azure's LLM inference requests.
    AzureLlm,
    /// What `query_range` of Prometheus answered.
    Prometheus,
}

/// Names of formats in scenario files.
pub const FORMATS: [(&str, Format); 10] = [
    ("dumps", Format::Dumps),
    ("record", Format::Record),
    ("audit", Format::Audit),
    ("kubereplay", Format::Kubereplay),
    ("sktrace", Format::Sktrace),
    ("csv", Format::Csv),
    ("openb", Format::Openb),
    ("dlrm", Format::Dlrm),
    ("azure-llm", Format::AzureLlm),
    ("prometheus", Format::Prometheus),
];

/// A recording, and how it is bent to size.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// How it is written.
    pub format: Format,
    /// Paths relative to the scenario's file, in order; several only for dumps and Prometheus answers.
    pub files: Vec<String>,
    /// Requests for CPU are multiplied by it.
    pub scale_cpu: f64,
    /// Requests for memory are multiplied by it.
    pub scale_memory: f64,
    /// Time runs so many times faster.
    pub speed: f64,
    /// How many copies live side by side.
    pub copies: u32,
    /// Whether it is repeated.
    pub repeat: bool,
    /// Columns of a CSV.
    pub columns: Columns,
    /// Requests a second that one replica serves; for `azure-llm`.
    pub requests_per_replica: f64,
    /// Under which licence it is, as the user states it.
    pub licence: Option<String>,
}

impl Source {
    /// Whether its workloads are there once, and as large as they were.
    #[must_use]
    pub fn is_of_its_size(&self) -> bool {
        self.copies <= 1 && self.scale_cpu == 1.0 && self.scale_memory == 1.0
    }
}

/// Which columns of a CSV mean what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Columns {
    /// Beginning, in seconds since the first row's or as an instant (RFC 3339); empty: there from the start.
    pub start: String,
    /// End; empty: never.
    pub end: Option<String>,
    /// Cores.
    pub cpu: String,
    /// Memory.
    pub memory: Option<String>,
    /// Unit of the memory column: bytes, MiB or GiB.
    pub memory_unit_bytes: i64,
    /// GPUs.
    pub gpu: Option<String>,
    /// Rows with one value belong to one owner.
    pub group: Option<String>,
}

/// Reads `import`.
pub(crate) fn source(item: &Item<'_>) -> Option<Source> {
    let fields = item.fields(&[
        "format",
        "file",
        "files",
        "scaleCpu",
        "scaleMemory",
        "speed",
        "copies",
        "repeat",
        "columns",
        "requestsPerReplica",
        "licence",
    ])?;
    let format = fields
        .require("format", "audit")
        .and_then(|item| item.choice(&FORMATS));
    let files = match (fields.get("file"), fields.get("files")) {
        (Some(file), None) => file.text().map(|text| vec![text.to_owned()]),
        (None, Some(files)) => files.one_or_more().and_then(|items| {
            let read: Vec<_> = items.iter().map(|item| item.text().map(str::to_owned)).collect();
            read.into_iter().collect()
        }),
        (Some(_), Some(_)) => fields.wrong("has both file and files; expected one of them"),
        (None, None) => fields.wrong("file is missing; write for example `file: audit.log.gz`"),
    };
    let factor = |name| match fields.get(name) {
        Some(item) => item.number(1e-6, 1e6),
        None => Some(1.0),
    };
    let scale_cpu = factor("scaleCpu");
    let scale_memory = factor("scaleMemory");
    let speed = factor("speed");
    let copies = match fields.get("copies") {
        Some(item) => item.count(1, 10_000),
        None => Some(1),
    };
    let repeat = match fields.get("repeat") {
        Some(item) => item.boolean(),
        None => Some(false),
    };
    let (format, files) = (format?, files?);
    let columns = match (format, fields.get("columns")) {
        (Format::Csv, Some(item)) => columns(&item),
        (Format::Csv, None) => fields.wrong(
            "columns is missing, which says what the columns of a CSV mean; write for example `columns: {start: begin, end: finish, cpu: cores}`",
        ),
        (_, Some(item)) => item.wrong("is for format csv only; the others know their columns"),
        (_, None) => Some(Columns::default()),
    };
    let requests = match (format, fields.get("requestsPerReplica")) {
        (Format::AzureLlm, Some(item)) => item.number(1e-6, 1e9),
        (Format::AzureLlm, None) => Some(1.0),
        (_, Some(item)) => item.wrong("is for format azure-llm only"),
        (_, None) => Some(1.0),
    };
    let licence = match fields.get("licence") {
        Some(item) => item.text().map(|text| Some(text.to_owned())),
        None => Some(None),
    };
    if files.len() > 1 && !matches!(format, Format::Dumps | Format::Prometheus | Format::Audit) {
        return fields.wrong("this format is read from one file; expected `file: NAME`");
    }
    Some(Source {
        format,
        files,
        scale_cpu: scale_cpu?,
        scale_memory: scale_memory?,
        speed: speed?,
        copies: u32::try_from(copies?).unwrap_or(1),
        repeat: repeat?,
        columns: columns?,
        requests_per_replica: requests?,
        licence: licence?,
    })
}

fn columns(item: &Item<'_>) -> Option<Columns> {
    let fields = item.fields(&["start", "end", "cpu", "memory", "memoryUnit", "gpu", "group"])?;
    let text = |name| fields.read(name, |item| item.text().map(str::to_owned));
    let start = fields
        .require("start", "begin")
        .and_then(|item| item.text().map(str::to_owned));
    let cpu = fields
        .require("cpu", "cores")
        .and_then(|item| item.text().map(str::to_owned));
    let unit = match fields.get("memoryUnit") {
        Some(item) => item.choice(&[("B", 1), ("MiB", 1 << 20), ("GiB", 1 << 30)]),
        None => Some(1),
    };
    Some(Columns {
        start: start?,
        end: text("end"),
        cpu: cpu?,
        memory: text("memory"),
        memory_unit_bytes: unit?,
        gpu: text("gpu"),
        group: text("group"),
    })
}
