//! Disruption commands that the audit of operators has refused, which outlives the operators.
//!
//! Owns how they are counted, from what each operator counts, and what is wrong when there are any. A refusal breaks no promise: nothing was done. But decision
//! and audit judge the same Snapshot, so one of the two is wrong, and no other checker sees it. For no fault of theirs only a command without a second look
//! (drift, age) can be refused, when its pass has written before, to clean up or to start another command of a static NodePool: the schedule of a budget may
//! have begun during those writes, and then the violation says how many nodes budgets allow.

use std::collections::BTreeMap;

use spokeshave_runtime::Metrics;

/// What operators count them by, with the label `consolidation_type`.
pub const REFUSED_COMMANDS: &str = "spokeshave_audit_refused_commands_total";
/// Line of an operator's log about each reason.
const LINE: &str = "the command breaks a rule and is not started";

/// How many there were, by `consolidation_type`: empty for drift and age.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(BTreeMap<String, u64>);

impl Refusals {
    /// Adds what an operator has counted in its life.
    pub(super) fn add(&mut self, metrics: &Metrics) {
        let text = metrics.render();
        let series = text
            .lines()
            .filter_map(|line| line.strip_prefix(REFUSED_COMMANDS));
        for (labels, value) in series.filter_map(|rest| rest.rsplit_once(' ')) {
            let kind = labels.split('"').nth(1).unwrap_or_default();
            // A count that is no whole number is one that cannot be read: better a failure than none.
            let count: u64 = value.parse().unwrap_or(1);
            if count > 0 {
                *self.0.entry(kind.to_owned()).or_default() += count;
            }
        }
    }

    /// What is wrong, if there are any.
    pub(super) fn told(&self) -> Option<String> {
        let count: u64 = self.0.values().sum();
        let kinds = self.0.iter().map(|(kind, count)| match kind.as_str() {
            "" => format!("{count} for drift or age"),
            kind => format!("{count} {kind}"),
        });
        let kinds: Vec<String> = kinds.collect();
        let commands = if count == 1 { "command" } else { "commands" };
        (count > 0).then(|| {
            format!(
                "the audit has refused {count} {commands} ({}): the log of the operator (--trace) has the reasons at \"{LINE}\", that of the run (--log) the events DisruptionRefused",
                kinds.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_ports::TokioClock;

    #[tokio::test(start_paused = true)]
    async fn refusals_of_all_operators_are_counted_and_told_with_where_to_look() {
        let mut refusals = Refusals::default();
        let of_one = |counts: &[(&str, f64)]| {
            let metrics = Metrics::new(TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared());
            let counter = metrics.counter(REFUSED_COMMANDS, "Commands.", &["consolidation_type"]);
            for (kind, count) in counts {
                counter.add(&[*kind], *count);
            }
            metrics
        };
        refusals.add(&of_one(&[]));
        refusals.add(&of_one(&[("multi", 0.0)]));
        assert_eq!(refusals.told(), None);
        refusals.add(&of_one(&[("", 2.0), ("single", 1.0)]));
        refusals.add(&of_one(&[("single", 3.0)]));
        let told = refusals.told().expect("there are some");
        let first = "the audit has refused 6 commands (2 for drift or age, 4 single): ";
        assert!(told.starts_with(first) && told.contains(LINE), "{told}");
    }
}
