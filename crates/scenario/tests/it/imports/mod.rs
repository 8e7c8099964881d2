//! Recordings of others: small ones, written by hand, whose counts were worked out by hand; and what is said of broken ones.

mod audits;
mod bent;
mod budgets;
mod crons;
mod damaged;
mod dumps;
mod gaps;
mod gates;
mod lives;
mod names;
mod nodes;
mod placements;
mod published;
mod requests;
mod streams;
mod tables;
mod versions;

use spokeshave_scenario::import::{ImportError, Recorded, Recording};
use spokeshave_scenario::source::Source;
use spokeshave_scenario::workload::Kind;
use spokeshave_scenario::{Facts, Timeline};

use super::scenario;

const HOUR_MS: u64 = 3_600_000;

/// An import as a scenario file has it.
fn source(import: &str) -> Source {
    let scenario = scenario("30d", &format!("  - name: recorded\n    import: {{{import}}}"));
    match &scenario.workloads[0].kind {
        Kind::Import(source) => source.clone(),
        other => panic!("{other:?}"),
    }
}

fn read(import: &str, bytes: &[u8]) -> Result<(Timeline, Vec<String>), ImportError> {
    whole(import, bytes).map(|found| (found.timeline, found.notes))
}

fn whole(import: &str, bytes: &[u8]) -> Result<Recorded, ImportError> {
    let source = source(import);
    let mut recording = Recording::new(&source);
    recording.read(bytes)?;
    recording.finish()
}

fn facts(timeline: &Timeline) -> (u64, u64, u64, u64, u64) {
    let facts = Facts::of(timeline);
    (
        facts.at_start,
        facts.births,
        facts.peak_pods,
        facts.peak_cpu_milli,
        facts.span_ms,
    )
}
