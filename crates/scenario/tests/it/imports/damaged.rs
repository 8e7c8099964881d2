//! Files that were damaged anywhere: read or refused, never a panic.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use proptest::prelude::*;
use spokeshave_scenario::import::inventory::Inventory;
use spokeshave_scenario::import::objects::Object;
use spokeshave_scenario::import::{ImportError, Recording};
use spokeshave_scenario::{Facts, Timeline};

use super::dumps::job_pod;
use super::streams::{a_recording, a_trace, audit_event, deployment, range};
use super::tables::{CSV, DLRM, OPENB};
use super::{HOUR_MS, read, source};

/// What comes between two dumps.
const NEXT: &str = "---\n";

/// A small valid file of each format.
fn specimens() -> Vec<(&'static str, Vec<u8>)> {
    use serde_json::json;
    let audit = audit_event(
        "2026-03-02T10:00:00Z",
        "create",
        "deployments",
        "web",
        json!({"responseObject": deployment("web", 2, "1")}),
    );
    let replay = json!({"events": [{"type": "create", "kind": "Deployment", "key": "shop/web", "deployment": deployment("web", 2, "1"), "timestamp": "2026-03-02T10:00:00Z"}]});
    let replicas =
        json!({"__name__": "kube_deployment_spec_replicas", "namespace": "shop", "deployment": "web"});
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(a_recording().as_bytes()).expect("memory");
    vec![
        ("format: record, file: x", a_recording().into_bytes()),
        ("format: record, file: x", encoder.finish().expect("memory")),
        ("format: audit, file: x", audit.into_bytes()),
        ("format: kubereplay, file: x", replay.to_string().into_bytes()),
        ("format: sktrace, file: x", a_trace(2)),
        (
            CSV,
            b"team,begin,finish,cores,mem\na,0,100,1,2\nb,10,,2,4\n".to_vec(),
        ),
        ("format: dlrm, file: x", DLRM.as_bytes().to_vec()),
        ("format: openb, file: x", OPENB.as_bytes().to_vec()),
        ("format: dumps, file: x", dumps().into_bytes()),
        (
            "format: azure-llm, file: x",
            b"TIMESTAMP,ContextTokens\n2023-11-16 18:15:46.68,5\n".to_vec(),
        ),
        (
            "format: prometheus, file: x",
            range(&[(replicas, &[(1_772_445_600, "2")])]).into_bytes(),
        ),
    ]
}

/// Two dumps, an object a line.
fn dumps() -> String {
    use serde_json::json;
    let cron = json!({"kind": "CronJob", "metadata": {"namespace": "shop", "name": "nightly"}, "spec": {"schedule": "*/20 * * * *", "timeZone": "Asia/Tokyo",
        "concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 60,
        "jobTemplate": {"spec": {"parallelism": 1, "template": {"spec": {"containers": [{"name": "a"}]}}}}}});
    let budget = json!({"kind": "PodDisruptionBudget", "metadata": {"namespace": "shop", "name": "all"}, "spec": {"minAvailable": "50%", "selector": {}}});
    let first = [deployment("web", 3, "1"), cron.clone(), budget.clone()];
    let second = [
        deployment("web", 5, "1"),
        job_pod("n-1", "2026-03-02T10:10:00Z", None),
        job_pod("n-2", "2026-03-02T10:20:00Z", Some("2026-03-02T10:50:00Z")),
        cron,
        budget,
    ];
    let lines = |objects: &[serde_json::Value]| -> String {
        let lines = objects.iter().map(|object| format!("{object}\n"));
        lines.collect()
    };
    lines(&first) + NEXT + &lines(&second)
}

/// Reads a file of any format. Dumps are cut into objects by the program, which leaves out those that cannot be read; one of them may also be the cluster to
/// begin with.
fn timeline(import: &str, bytes: &[u8]) -> Result<Timeline, ImportError> {
    if !import.starts_with("format: dumps") {
        return read(import, bytes).map(|(timeline, _)| timeline);
    }
    let source = source(import);
    let mut recording = Recording::new(&source);
    let text = String::from_utf8_lossy(bytes);
    for (dump, seconds) in text.split(NEXT).zip((1_772_445_600..).step_by(3_600)) {
        let instant = Timestamp::from_second(seconds).expect("an instant");
        let mut inventory = Inventory::default();
        for line in dump.lines() {
            if let Ok(object) = Object::read(line, None) {
                inventory.add(object);
            }
        }
        inventory.constant(instant, HOUR_MS)?;
        recording.dump(instant, &inventory)?;
    }
    recording.finish().map(|found| found.timeline)
}

#[test]
fn every_specimen_is_valid() {
    for (import, bytes) in specimens() {
        let timeline = timeline(import, &bytes).unwrap_or_else(|error| panic!("{import}: {error}"));
        assert!(!timeline.events.is_empty(), "{import}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Whatever is done to a file, it is read or refused with a place or a reason; events stay in order and of known owners.
    #[test]
    fn damaged_files_never_panic(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..12),
    ) {
        let mut all = specimens();
        let (import, mut bytes) = all.swap_remove(which.index(all.len()));
        for (place, byte, how) in changes {
            if bytes.is_empty() {
                break;
            }
            let at = place.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                _ => bytes.truncate(at),
            }
        }
        match timeline(import, &bytes) {
            Ok(timeline) => {
                prop_assert!(timeline.events.is_sorted_by_key(|event| event.at_ms));
                let owners = timeline.owners.len();
                prop_assert!(timeline.events.iter().all(|event| (event.owner.0 as usize) < owners));
                prop_assert!(Facts::of(&timeline).events == timeline.events.len() as u64);
            }
            Err(error) => prop_assert!(!error.problem.is_empty()),
        }
    }
}
