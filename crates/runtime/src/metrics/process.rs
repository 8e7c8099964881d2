//! `process_*`: what the operating system says about this process.
//!
//! Owns the reading of `/proc/self`. It fails silently: where there is no such file there is no such series.

use std::fs;

use super::{Counter, Gauge, Metrics};

/// Clock ticks per second in `/proc`: the kernel's interface, 100 on every platform that Go's client knows.
const TICKS_PER_SECOND: f64 = 100.0;
struct Process {
    cpu: Counter,
    resident: Gauge,
    virtual_memory: Gauge,
    start: Gauge,
    open_files: Gauge,
    max_files: Gauge,
}

pub(super) fn register(metrics: &Metrics) {
    let process = Process {
        cpu: metrics.counter(
            "process_cpu_seconds_total",
            "Total user and system CPU time spent in seconds.",
            &[],
        ),
        resident: metrics.gauge(
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            &[],
        ),
        virtual_memory: metrics.gauge(
            "process_virtual_memory_bytes",
            "Virtual memory size in bytes.",
            &[],
        ),
        start: metrics.gauge(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            &[],
        ),
        open_files: metrics.gauge("process_open_fds", "Number of open file descriptors.", &[]),
        max_files: metrics.gauge("process_max_fds", "Maximum number of open file descriptors.", &[]),
    };
    // It is shown once it was read, as the others are.
    process.cpu.remove(&[]);
    metrics.before_render(move || process.refresh());
}

impl Process {
    fn refresh(&self) {
        if let Some(stat) = read("/proc/self/stat").as_deref().and_then(Stat::parse) {
            let grown = stat.cpu_seconds - self.cpu.get(&[]);
            self.cpu.add(&[], grown.max(0.0));
            self.virtual_memory.set(&[], stat.virtual_bytes);
            if let Some(boot) = read("/proc/stat").as_deref().and_then(boot_seconds) {
                self.start.set(&[], boot + stat.start_seconds_after_boot);
            }
        }
        if let Some(bytes) = read("/proc/self/status").as_deref().and_then(resident_bytes) {
            self.resident.set(&[], bytes);
        }
        if let Ok(entries) = fs::read_dir("/proc/self/fd") {
            self.open_files
                .set(&[], f64::from(u32::try_from(entries.count()).unwrap_or(u32::MAX)));
        }
        if let Some(limit) = read("/proc/self/limits").as_deref().and_then(max_open_files) {
            self.max_files.set(&[], limit);
        }
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    start_seconds_after_boot: f64,
    virtual_bytes: f64,
}

impl Stat {
    /// The second field is the program's name in parentheses and may contain anything: count from its end.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<f64> = rest
            .split_whitespace()
            .skip(1)
            .map(|field| field.parse().unwrap_or(0.0))
            .collect();
        // Field 4 of proc_pid_stat(5) is our number 0.
        let field = |number: usize| fields.get(number - 4).copied();
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / TICKS_PER_SECOND,
            start_seconds_after_boot: field(22)? / TICKS_PER_SECOND,
            virtual_bytes: field(23)?,
        })
    }
}

/// In `status` and not in `stat`, which counts pages: those of some kernels have 64 KiB.
fn resident_bytes(text: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

fn boot_seconds(text: &str) -> Option<f64> {
    text.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

fn max_open_files(text: &str) -> Option<f64> {
    text.lines()
        .find_map(|line| line.strip_prefix("Max open files"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read_by_their_columns() {
        let stat =
            "7 (a) (b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 12345 8192 3 18446744073709551615";
        let expected = Stat {
            cpu_seconds: 3.0,
            start_seconds_after_boot: 123.45,
            virtual_bytes: 8192.0,
        };
        assert_eq!(Stat::parse(stat), Some(expected));
        assert_eq!(Stat::parse("nonsense"), None);
        let status = "Name:\t(a) (b)\nVmHWM:\t     200 kB\nVmRSS:\t     192 kB\nRssAnon:\t      64 kB\n";
        assert_eq!(resident_bytes(status), Some(196_608.0));
        assert_eq!(resident_bytes("Name:\tnone\n"), None);
        assert_eq!(boot_seconds("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000.0));
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n";
        assert_eq!(max_open_files(limits), Some(1024.0));
    }
}
