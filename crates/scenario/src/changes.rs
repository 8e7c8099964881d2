//! Pods of a generated workload that are of another size from some time on: `changes` of a scenario file, as a new version with other requests is rolled out.
//!
//! Owns the reading of what pods request, at first and later. How pods are replaced is the business of the engines.

use crate::fields::{Fields, Item};

/// Changes that one workload may have: more of them is a curve, for which there is no field.
const MOST_CHANGES: usize = 1_000;

/// What pods request from a time on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeChange {
    /// Milliseconds after the scenario's start.
    pub at_ms: u64,
    /// CPU requests in thousandths of a core, in turn as before; empty: as they were.
    pub cpu_milli: Vec<i64>,
    /// Memory requests in bytes, in turn as before; empty: as they were.
    pub memory_bytes: Vec<i64>,
}

/// Reads `changes`, of which each is later than the one before it.
pub(crate) fn changes(fields: &Fields<'_>) -> Option<Vec<SizeChange>> {
    let Some(item) = fields.get("changes") else {
        return Some(Vec::new());
    };
    let items = item.items()?;
    if items.len() > MOST_CHANGES {
        return item.wrong(format!(
            "has {} changes; expected at most {MOST_CHANGES}",
            items.len()
        ));
    }
    // Each wrong one is named, not only the first.
    let read: Vec<Option<SizeChange>> = items.iter().map(change).collect();
    let read: Vec<SizeChange> = read.into_iter().collect::<Option<_>>()?;
    for (item, pair) in items.iter().skip(1).zip(read.windows(2)) {
        if pair[1].at_ms <= pair[0].at_ms {
            return item.wrong("is not after the change before it; expected changes in the order of time");
        }
    }
    Some(read)
}

fn change(item: &Item<'_>) -> Option<SizeChange> {
    let fields = item.fields(&["at", "cpu", "memory"])?;
    let at = fields.require("at", "10d9h").and_then(|item| item.span());
    let read = |name: &str, of: fn(&Item<'_>) -> Option<Vec<i64>>| match fields.get(name) {
        Some(item) => of(&item),
        None => Some(Vec::new()),
    };
    let (cpu, memory) = (read("cpu", cpu_milli), read("memory", memory_bytes));
    let change = SizeChange {
        at_ms: at?,
        cpu_milli: cpu?,
        memory_bytes: memory?,
    };
    if change.cpu_milli.is_empty() && change.memory_bytes.is_empty() {
        return fields.wrong("changes nothing; write for example `{at: 10d9h, cpu: 1, memory: 2Gi}`");
    }
    Some(change)
}

/// CPU requests in thousandths of a core, one or several.
pub(crate) fn cpu_milli(item: &Item<'_>) -> Option<Vec<i64>> {
    let items = item.one_or_more()?;
    let read = items.iter().map(|item| Some(item.quantity("250m")?.to_milli()));
    read.collect()
}

/// Memory requests in bytes, one or several.
pub(crate) fn memory_bytes(item: &Item<'_>) -> Option<Vec<i64>> {
    let items = item.one_or_more()?;
    let read = items.iter().map(|item| Some(item.quantity("512Mi")?.to_units()));
    read.collect()
}
