//! The figures of a run as single numbers with a name, a unit and a meaning.
//!
//! Owns the list of metrics that tables, JSON, reports and `expect` share. It only divides and selects; what was measured is defined by
//! [`Measured`].

use spokeshave_simulate::Measured;

use crate::numbers;
use crate::statistics::percentile;
use crate::unit::Unit;

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// Its name in `expect` and JSON.
    pub name: &'static str,
    /// Its heading in tables.
    pub title: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// How it is defined.
    pub meaning: &'static str,
    value: fn(&Measured) -> Option<f64>,
}

impl Metric {
    /// Looks a metric up by name.
    pub fn find(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    /// The number of a run; `None` where it is not defined, such as a percentile of no pods.
    pub fn of(&self, measured: &Measured) -> Option<f64> {
        (self.value)(measured)
    }

    /// The largest that the run's number may be: as if pods that still waited at the end, or left before they had a node, had waited for ever. Infinite where
    /// the number is theirs; `None` where it is not defined.
    pub fn at_most(&self, measured: &Measured) -> Option<f64> {
        self.at_most_beside(measured, 0)
    }

    /// The same if pods that have waited since the warm-up, and had no node after it either, were among those of the percentiles.
    pub(crate) fn at_most_of_all(&self, measured: &Measured) -> Option<f64> {
        let others = measured.left_since_warmup_ms.len() + measured.waiting_since_warmup_ms.len();
        self.at_most_beside(measured, others)
    }

    fn at_most_beside(&self, measured: &Measured, others: usize) -> Option<f64> {
        let unended = measured.pending_left_ms.len() + measured.pending_at_end_ms.len() + others;
        match share_of(self.name) {
            Some(share) if unended > 0 => {
                let mut all = measured.pending_born_ms.clone();
                all.extend(&measured.pending_moved_ms);
                all.sort();
                all.resize(all.len() + unended, u32::MAX);
                let most = percentile(&all, share)?;
                if most == u32::MAX {
                    Some(f64::INFINITY)
                } else {
                    seconds(Some(most))
                }
            }
            _ => self.of(measured),
        }
    }

    /// True when a policy lowers the number by leaving pods without a node.
    pub(crate) fn follows_work(&self) -> bool {
        matches!(self.unit, Unit::Dollars | Unit::NodeHours) || self.name == "gap"
    }

    /// True when a number is a lower bound as it is printed: with the most that it may be it would be printed as another.
    pub(crate) fn is_at_least(&self, value: f64, most: f64) -> bool {
        let shown = |number| numbers::value(number, self.unit);
        most > value && (most.is_infinite() || shown(value) != shown(most))
    }
}

fn share_of(name: &str) -> Option<f64> {
    match name {
        "pendingP50" => Some(0.5),
        "pendingP99" => Some(0.99),
        "pendingMax" => Some(1.0),
        _ => None,
    }
}

/// The waiting times that began after the warm-up, sorted; those that did not end count as long as they were seen.
pub(crate) fn waits(measured: &Measured) -> Vec<u32> {
    let mut all = measured.pending_born_ms.clone();
    all.extend(&measured.pending_moved_ms);
    all.extend(&measured.pending_left_ms);
    all.extend(&measured.pending_at_end_ms);
    // Four sorted runs, which the stable sort merges.
    all.sort();
    all
}

fn waited(measured: &Measured, share: f64) -> Option<u32> {
    percentile(&waits(measured), share)
}

const DAY_MS: f64 = 86_400_000.0;
const HOUR_MS: f64 = 3_600_000.0;
const MICROS: f64 = 1e6;

fn seconds(milliseconds: Option<u32>) -> Option<f64> {
    milliseconds.map(|value| f64::from(value) / 1000.0)
}

fn cost_micros(measured: &Measured) -> f64 {
    let parts = [
        measured.cost_on_demand_micros,
        measured.cost_spot_micros,
        measured.cost_reserved_micros,
    ];
    parts.iter().map(|part| *part as f64).sum()
}

fn per_pod_day(evictions: u64, measured: &Measured) -> Option<f64> {
    let days = measured.pod_ms as f64 / DAY_MS;
    (days > 0.0).then(|| evictions as f64 / days)
}

/// The owner that 99 of 100 owners do not exceed; those without evictions count as 0.
fn evictions_of_owner_p99(measured: &Measured) -> Option<f64> {
    let mut counts: Vec<u64> = measured
        .evictions_by_owner
        .iter()
        .map(|(_, count)| *count)
        .collect();
    counts.sort_unstable();
    let owners = usize::try_from(measured.owners).ok()?.max(counts.len());
    let rank = (0.99 * owners as f64).ceil() as usize;
    let without = owners - counts.len();
    match rank {
        0 => None,
        rank if rank <= without => Some(0.0),
        rank => counts.get(rank - without - 1).map(|count| *count as f64),
    }
}

fn regret(measured: &Measured) -> Option<f64> {
    let moves = measured.evictions_voluntary + measured.commands;
    let regretted = measured.short_lived_nodes + measured.moved_again + measured.savings_lost;
    match (regretted, moves) {
        (0, _) => Some(0.0),
        (_, 0) => None,
        (regretted, moves) => Some(regretted as f64 / moves as f64),
    }
}

macro_rules! metrics {
    ($($name:literal, $title:literal, $unit:ident, $meaning:literal, $value:expr;)*) => {
        &[$(Metric { name: $name, title: $title, unit: Unit::$unit, meaning: $meaning, value: $value },)*]
    };
}

/// All metrics, in the order in which they are listed. Only ever extended.
pub static METRICS: &[Metric] = metrics![
    "cost", "Cost", Dollars,
    "what all instances cost, each from the success of its launch to its end",
    |run| Some(cost_micros(run) / MICROS);
    "costOnDemand", "Cost, on demand", Dollars, "the part of the cost that is paid at list price",
    |run| Some(run.cost_on_demand_micros as f64 / MICROS);
    "costSpot", "Cost, spot", Dollars, "the part of the cost that is paid for spot capacity",
    |run| Some(run.cost_spot_micros as f64 / MICROS);
    "costReserved", "Cost, reserved", Dollars, "the part of the cost that is attributed to reservations",
    |run| Some(run.cost_reserved_micros as f64 / MICROS);
    "bound", "Lower bound", Dollars,
    "the least that the requests of the bound pods could cost if machines and pods could be split at will; no policy with the same NodePools can be cheaper",
    |run| Some(run.bound_micros as f64 / MICROS);
    "gap", "Gap", Share,
    "cost / bound − 1: at most this much could still be saved with the same NodePools",
    |run| (run.bound_micros > 0).then(|| cost_micros(run) / run.bound_micros as f64 - 1.0);
    "evictions", "Evictions", Count,
    "pods moved by disruption that could have waited: consolidation, emptiness, drift, soft expiry",
    |run| Some(run.evictions_voluntary as f64);
    "evictionsPerPodDay", "Evictions per pod and day", PerPodDay,
    "evictions divided by the time integral of bound workload pods, in days",
    |run| per_pod_day(run.evictions_voluntary, run);
    "involuntaryEvictions", "Involuntary evictions", Count,
    "pods lost to spot interruptions, hard expiry and repair",
    |run| Some(run.evictions_involuntary as f64);
    "evictionsPerOwnerP99", "Evictions of an owner, p99", Count,
    "99 of 100 owners had at most so many voluntary evictions",
    evictions_of_owner_p99;
    "pendingP50", "Pending, p50", Seconds,
    "half of all pods whose wait began after the warm-up waited no longer from existence without a node to binding; those that still waited at the end, or left before they had a node, count as long as they were seen",
    |run| seconds(waited(run, 0.5));
    "pendingP99", "Pending, p99", Seconds, "99 of 100 of the same pods waited no longer",
    |run| seconds(waited(run, 0.99));
    "pendingMax", "Pending, longest", Seconds, "the longest wait of the same pods",
    |run| seconds(waited(run, 1.0));
    "pendingBornP99", "Pending when new, p99", Seconds, "99 of 100 new pods that were bound had waited no longer",
    |run| seconds(percentile(&run.pending_born_ms, 0.99));
    "pendingMovedP99", "Pending when moved, p99", Seconds,
    "99 of 100 pods that replaced evicted ones, and were bound, had waited no longer",
    |run| seconds(percentile(&run.pending_moved_ms, 0.99));
    "unplaced", "Unplaced at the end", Count, "pods that still waited for a node at the end",
    |run| Some((run.pending_at_end_ms.len() + run.waiting_since_warmup_ms.len()) as f64);
    "leftUnplaced", "Left without a node", Count, "pods that waited for a node and were deleted before they had one, as by a scale-down",
    |run| Some((run.pending_left_ms.len() + run.left_since_warmup_ms.len()) as f64);
    "nodeHours", "Node-hours", NodeHours, "the time integral of nodes",
    |run| Some(run.node_ms as f64 / HOUR_MS);
    "wastedNodeHours", "Wasted node-hours", NodeHours,
    "the time integral, over nodes, of 1 − the largest share of any resource that is requested",
    |run| Some(run.wasted_node_ms_thousandths as f64 / 1000.0 / HOUR_MS);
    "wastedCost", "Cost of waste", Dollars, "what the wasted node-hours cost",
    |run| Some(run.wasted_micros as f64 / MICROS);
    "idleNodeHours", "Idle node-hours", NodeHours, "node-hours without any pod but those of DaemonSets",
    |run| Some(run.idle_node_ms as f64 / HOUR_MS);
    "interruptions", "Interruptions", Count, "spot instances that the cloud announced to take back",
    |run| Some(run.interruptions as f64);
    "podsCutShort", "Pods cut short", Count, "pods killed before their grace period had ended",
    |run| Some(run.pods_cut_short as f64);
    "singleReplicaDown", "Single replicas down", Seconds,
    "time without a ready pod, over owners that want exactly one",
    |run| Some(run.single_replica_down_ms as f64 / 1000.0);
    "budgetWaits", "Evictions delayed", Count, "evictions that a PodDisruptionBudget delayed",
    |run| Some(run.budget_waits as f64);
    "regret", "Regret", Share,
    "(nodes removed younger than an hour + pods moved twice within an hour + commands whose saving was gone within an hour) / (evictions + commands)",
    regret;
    "shortLivedNodes", "Short-lived nodes", Count, "nodes removed younger than an hour",
    |run| Some(run.short_lived_nodes as f64);
    "movedAgain", "Pods moved again", Count, "pods moved twice within an hour",
    |run| Some(run.moved_again as f64);
    "savingsLost", "Savings lost", Count, "commands of which everything saved was bought again by launches in the same NodePool within an hour",
    |run| Some(run.savings_lost as f64);
    "launches", "Launches", Count, "instances launched",
    |run| Some(run.launches as f64);
    "failedLaunches", "Failed launches", Count, "launches that failed",
    |run| Some(run.failed_launches as f64);
    "commands", "Commands", Count, "commands of disruption carried out",
    |run| Some(run.commands as f64);
    "peakNodes", "Most nodes", Count, "largest number of nodes at once, after the warm-up",
    |run| Some(run.peak_nodes as f64);
    "peakPods", "Most pods", Count, "largest number of workload pods at once, after the warm-up",
    |run| Some(run.peak_pods as f64);
];

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str, measured: &Measured) -> Option<f64> {
        Metric::find(name).unwrap().of(measured)
    }

    fn at_least(name: &str, measured: &Measured) -> bool {
        let metric = Metric::find(name).unwrap();
        let most = metric.at_most(measured);
        let both = metric.of(measured).zip(most);
        both.is_some_and(|(value, most)| metric.is_at_least(value, most))
    }

    #[test]
    fn each_metric_divides_what_it_says() {
        let measured = Measured {
            cost_on_demand_micros: 90_000_000,
            cost_spot_micros: 20_000_000,
            bound_micros: 100_000_000,
            evictions_voluntary: 6,
            commands: 4,
            moved_again: 1,
            pod_ms: 3 * 86_400_000,
            wasted_node_ms_thousandths: 2_500 * 3_600_000,
            ..Measured::default()
        };
        assert_eq!(value("cost", &measured), Some(110.0));
        assert!((value("gap", &measured).unwrap() - 0.1).abs() < 1e-12);
        assert_eq!(value("evictionsPerPodDay", &measured), Some(2.0));
        assert_eq!(value("wastedNodeHours", &measured), Some(2.5));
        assert_eq!(value("regret", &measured), Some(0.1));
        let nothing = Measured::default();
        for name in ["gap", "evictionsPerPodDay", "pendingP50", "evictionsPerOwnerP99"] {
            assert_eq!(value(name, &nothing), None, "{name}");
        }
        assert_eq!(value("regret", &nothing), Some(0.0));
    }

    #[test]
    fn waits_that_did_not_end_make_a_percentile_a_lower_bound_only_from_their_rank_on() {
        let measured = Measured {
            pending_born_ms: vec![1_000; 90],
            pending_moved_ms: vec![2_000; 9],
            pending_at_end_ms: vec![60_000],
            ..Measured::default()
        };
        assert_eq!(value("pendingP50", &measured), Some(1.0));
        assert_eq!(value("pendingP99", &measured), Some(2.0));
        assert_eq!(value("pendingMax", &measured), Some(60.0));
        assert!(
            !at_least("pendingP50", &measured)
                && !at_least("pendingP99", &measured)
                && at_least("pendingMax", &measured)
        );
        assert!(!at_least("cost", &measured));
        let early = Measured {
            pending_at_end_ms: vec![500],
            ..measured
        };
        assert!(
            !at_least("pendingP50", &early)
                && !at_least("pendingP99", &early)
                && at_least("pendingMax", &early)
        );
        let at_most = |name| Metric::find(name).unwrap().at_most(&early);
        assert_eq!(at_most("pendingP99"), Some(2.0));
        assert_eq!(at_most("pendingMax"), Some(f64::INFINITY));
        assert_eq!(at_most("unplaced"), Some(1.0));
    }

    #[test]
    fn pods_that_left_without_a_node_count_as_long_as_they_were_seen() {
        let measured = Measured {
            pending_born_ms: vec![1_000; 98],
            pending_left_ms: vec![3_600_000; 2],
            pending_at_end_ms: vec![7_200_000],
            ..Measured::default()
        };
        let at_least = |name| at_least(name, &measured);
        assert_eq!(value("pendingP99", &measured), Some(3_600.0));
        assert_eq!(value("pendingMax", &measured), Some(7_200.0));
        assert!(!at_least("pendingP50") && at_least("pendingP99") && at_least("pendingMax"));
        assert_eq!(value("leftUnplaced", &measured), Some(2.0));
        assert_eq!(value("unplaced", &measured), Some(1.0));
    }

    /// Of a cluster that stays as it is, only these wait after the warm-up: they say nothing about half of all pods.
    #[test]
    fn pods_that_have_waited_since_the_warm_up_are_unplaced_and_in_no_percentile() {
        let measured = Measured {
            waiting_since_warmup_ms: vec![10_800_000],
            left_since_warmup_ms: vec![7_200_000; 2],
            ..Measured::default()
        };
        for name in ["pendingP50", "pendingP99", "pendingMax"] {
            assert_eq!(value(name, &measured), None, "{name}");
        }
        assert_eq!(value("unplaced", &measured), Some(1.0));
        assert_eq!(value("leftUnplaced", &measured), Some(2.0));
    }

    #[test]
    fn owners_without_evictions_count_in_the_percentile_over_owners() {
        let measured = |owners, evictions: &[u64]| Measured {
            owners,
            evictions_by_owner: (0..).zip(evictions.iter().copied()).collect(),
            ..Measured::default()
        };
        let p99 = |run: &Measured| value("evictionsPerOwnerP99", run);
        assert_eq!(p99(&measured(100, &[50])), Some(0.0));
        assert_eq!(p99(&measured(100, &[50, 7])), Some(7.0));
        assert_eq!(p99(&measured(3, &[5, 9, 2])), Some(9.0));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
