//! What is counted of AWS (A11): launches and terminations that failed, batches, broken instances, sizes of user data, calls.
//!
//! Owns the numbers. What is for sale is read off the market when somebody asks ([`Market::measurements`](crate::market::Market::measurements)).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spokeshave_ports::{MeasuredValue, Measurement, MeasurementKind};

/// Upper bounds for times of batches and of calls, in seconds: Karpenter's standard buckets.
const SECONDS: [f64; 45] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0,
];

/// Upper bounds for sizes of batches.
const SIZES: [f64; 34] = [
    1.0, 2.0, 4.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 125.0,
    150.0, 175.0, 200.0, 225.0, 250.0, 275.0, 300.0, 350.0, 400.0, 450.0, 500.0, 550.0, 600.0, 700.0, 800.0,
    900.0, 1000.0,
];

/// Counts of calls to AWS, shared by the provider and whoever makes the calls. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    /// IDs of zones, by name, as subnets tell them.
    zone_ids: BTreeMap<String, String>,
    /// By zone, ID of the zone, capacity type and reason.
    launch_failures: BTreeMap<[String; 4], u64>,
    /// By zone and ID of the zone.
    termination_failures: BTreeMap<[String; 2], u64>,
    unhealthy: BTreeMap<&'static str, u64>,
    /// Instances that were counted as broken and have not recovered.
    unhealthy_now: BTreeMap<&'static str, BTreeSet<String>>,
    batches: BTreeMap<&'static str, (Observations, Observations)>,
    user_data_bytes: BTreeMap<String, usize>,
    /// By service, action and code; the code is empty for calls that succeeded.
    calls: BTreeMap<[String; 3], u64>,
    call_seconds: BTreeMap<[String; 2], Observations>,
}

#[derive(Clone, Debug, Default)]
struct Observations {
    counts: Vec<u64>,
    sum: f64,
}

impl Observations {
    fn add(&mut self, bounds: &[f64], observation: f64) {
        self.counts.resize(bounds.len() + 1, 0);
        self.counts[bounds.partition_point(|bound| *bound < observation)] += 1;
        self.sum += observation;
    }

    fn value(&self) -> MeasuredValue {
        MeasuredValue::Buckets(self.counts.clone(), self.sum)
    }
}

impl Counts {
    fn zone_id(&self, zone: &str) -> String {
        self.zone_ids.get(zone).cloned().unwrap_or_default()
    }
}

impl Meter {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One attempt of a call to AWS: how long it took, and its error code (`None` for success; empty when there was no answer).
    pub fn call(&self, service: &str, action: &str, code: Option<&str>, took: Duration) {
        let mut counts = self.counts();
        let code = code.map_or("", |code| if code.is_empty() { "NoAnswer" } else { code });
        let key = [service, action, code].map(str::to_owned);
        *counts.calls.entry(key).or_default() += 1;
        let key = [service, action].map(str::to_owned);
        let seconds = counts.call_seconds.entry(key).or_default();
        seconds.add(&SECONDS, took.as_secs_f64());
    }

    /// The ID of a zone; empty where no subnet has told it.
    pub(crate) fn zone_id(&self, zone: &str) -> String {
        self.counts().zone_id(zone)
    }

    /// The zone with this ID.
    pub(crate) fn zone_named(&self, zone_id: &str) -> Option<String> {
        let counts = self.counts();
        let found = counts.zone_ids.iter().find(|(_, id)| *id == zone_id);
        found.map(|(zone, _)| zone.clone())
    }

    /// Takes over the ID of a zone.
    pub(crate) fn zone(&self, name: &str, id: &str) {
        self.counts().zone_ids.insert(name.to_owned(), id.to_owned());
    }

    /// An error of a fleet, or of the call for it.
    pub(crate) fn launch_failed(&self, zone: &str, capacity_type: &str, reason: &str) {
        let mut counts = self.counts();
        let zone_id = counts.zone_id(zone);
        let key = [zone, &zone_id, capacity_type, reason].map(str::to_owned);
        *counts.launch_failures.entry(key).or_default() += 1;
    }

    /// An instance that EC2 did not end.
    pub(crate) fn termination_failed(&self, zone: &str) {
        let mut counts = self.counts();
        let zone_id = counts.zone_id(zone);
        let key = [zone, &zone_id].map(str::to_owned);
        *counts.termination_failures.entry(key).or_default() += 1;
    }

    /// The instances of ours that a poll found broken: each counts once until a poll no longer finds it (D-291).
    pub(crate) fn unhealthy(&self, category: &'static str, broken: BTreeSet<String>) {
        let mut counts = self.counts();
        let before = counts.unhealthy_now.insert(category, broken.clone());
        let before = before.unwrap_or_default();
        let fresh = broken.difference(&before).count();
        *counts.unhealthy.entry(category).or_default() += u64::try_from(fresh).unwrap_or_default();
    }

    /// A call that was made for several.
    pub(crate) fn batch(&self, batcher: &'static str, window: Duration, size: usize) {
        let mut counts = self.counts();
        let (windows, sizes) = counts.batches.entry(batcher).or_default();
        windows.add(&SECONDS, window.as_secs_f64());
        sizes.add(&SIZES, u32::try_from(size).map_or(f64::MAX, f64::from));
    }

    /// Size of the user data that was rendered for a class; the size before.
    pub(crate) fn user_data(&self, class: &str, bytes: usize) -> Option<usize> {
        self.counts().user_data_bytes.insert(class.to_owned(), bytes)
    }

    /// Forgets classes that are gone.
    pub(crate) fn keep_classes(&self, exists: impl Fn(&str) -> bool) {
        self.counts().user_data_bytes.retain(|class, _| exists(class));
    }

    /// All of it as metric families.
    pub(crate) fn measurements(&self) -> Vec<Measurement> {
        let counts = self.counts();
        let seconds = || MeasurementKind::Histogram(SECONDS.to_vec());
        let batches = |pick: fn(&(Observations, Observations)) -> &Observations| {
            let one = move |(batcher, both): (&&'static str, &(Observations, Observations))| {
                (vec![(*batcher).to_owned()], pick(both).value())
            };
            counts.batches.iter().map(one).collect()
        };
        vec![
            Measurement {
                name: "karpenter_cloudprovider_instance_launch_failures_total",
                help: "Number of instance launch (CreateFleet offering) failures, dimensioned by availability zone, zone ID, capacity type, and launch failure reason.",
                labels: &["zone", "zone_id", "capacity_type", "reason"],
                kind: MeasurementKind::Counter,
                series: numbers(&counts.launch_failures),
            },
            Measurement {
                name: "karpenter_cloudprovider_instance_termination_failures_total",
                help: "Number of instance termination (TerminateInstances) failures, dimensioned by availability zone and zone ID.",
                labels: &["zone", "zone_id"],
                kind: MeasurementKind::Counter,
                series: numbers(&counts.termination_failures),
            },
            Measurement {
                name: "karpenter_interruption_instance_status_unhealthy_total",
                help: "Instances that DescribeInstanceStatus showed to be broken, each once until it recovers.",
                labels: &["category"],
                kind: MeasurementKind::Counter,
                series: counts
                    .unhealthy
                    .iter()
                    .map(|(category, number)| (vec![(*category).to_owned()], count(*number)))
                    .collect(),
            },
            Measurement {
                name: "karpenter_cloudprovider_batcher_batch_time_seconds",
                help: "Duration of the batching window per batcher",
                labels: &["batcher"],
                kind: seconds(),
                series: batches(|both| &both.0),
            },
            Measurement {
                name: "karpenter_cloudprovider_batcher_batch_size",
                help: "Size of the request batch per batcher",
                labels: &["batcher"],
                kind: MeasurementKind::Histogram(SIZES.to_vec()),
                series: batches(|both| &both.1),
            },
            Measurement {
                name: "karpenter_ec2nodeclasses_userdata_bytes",
                help: "Size in bytes of the rendered user data (raw, pre-base64) for the EC2NodeClass",
                labels: &["nodeclass"],
                kind: MeasurementKind::Gauge,
                series: counts
                    .user_data_bytes
                    .iter()
                    .map(|(class, bytes)| {
                        let bytes = u64::try_from(*bytes).unwrap_or_default();
                        (vec![class.clone()], count(bytes))
                    })
                    .collect(),
            },
            Measurement {
                name: "spokeshave_aws_calls_total",
                help: "Attempts of calls to AWS; the code is empty for those that succeeded.",
                labels: &["service", "action", "code"],
                kind: MeasurementKind::Counter,
                series: numbers(&counts.calls),
            },
            Measurement {
                name: "spokeshave_aws_call_duration_seconds",
                help: "Duration of attempts of calls to AWS.",
                labels: &["service", "action"],
                kind: seconds(),
                series: counts
                    .call_seconds
                    .iter()
                    .map(|(key, seconds)| (key.to_vec(), seconds.value()))
                    .collect(),
            },
        ]
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
fn count(number: u64) -> MeasuredValue {
    MeasuredValue::Number(number as f64)
}

fn numbers<const N: usize>(counts: &BTreeMap<[String; N], u64>) -> Vec<(Vec<String>, MeasuredValue)> {
    let series = counts.iter().map(|(key, number)| (key.to_vec(), count(*number)));
    series.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn series(meter: &Meter, name: &str) -> Vec<(Vec<String>, MeasuredValue)> {
        let found = meter.measurements().into_iter().find(|one| one.name == name);
        found.unwrap().series
    }

    #[test]
    fn d_291_a_broken_instance_counts_once_until_it_recovers() {
        let meter = Meter::default();
        let polls: [&[&str]; 5] = [&["a"], &["a", "b"], &["b"], &["a", "b"], &[]];
        for ids in polls {
            meter.unhealthy("SystemStatus", broken(ids));
        }
        meter.unhealthy("EventStatus", broken(&["a"]));
        let number = |category: &str, number| (vec![category.to_owned()], MeasuredValue::Number(number));
        assert_eq!(
            series(&meter, "karpenter_interruption_instance_status_unhealthy_total"),
            [number("EventStatus", 1.0), number("SystemStatus", 3.0)]
        );
    }

    #[test]
    fn a_120_batches_and_calls_are_counted_by_size_time_and_code() {
        let meter = Meter::default();
        meter.batch("create_fleet", Duration::from_millis(35), 1000);
        meter.batch("create_fleet", Duration::from_secs(1), 1001);
        let sizes = series(&meter, "karpenter_cloudprovider_batcher_batch_size");
        let MeasuredValue::Buckets(counts, sum) = &sizes[0].1 else {
            panic!("a histogram");
        };
        assert_eq!((counts[33], counts[34], *sum), (1, 1, 2001.0));
        meter.call("ec2", "CreateFleet", None, Duration::ZERO);
        meter.call("ec2", "CreateFleet", Some(""), Duration::ZERO);
        let calls = series(&meter, "spokeshave_aws_calls_total");
        let codes: Vec<&str> = calls.iter().map(|(key, _)| key[2].as_str()).collect();
        assert_eq!(codes, ["", "NoAnswer"]);
    }
}
