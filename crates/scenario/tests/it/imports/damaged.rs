//! Files that were damaged anywhere: read or refused, never a panic.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use spokeshave_scenario::Facts;

use super::read;
use super::streams::{a_recording, a_trace, audit_event, deployment, range};
use super::tables::{CSV, DLRM};

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

#[test]
fn every_specimen_is_valid() {
    for (import, bytes) in specimens() {
        let (timeline, _) = read(import, &bytes).unwrap_or_else(|error| panic!("{import}: {error}"));
        assert!(!timeline.events.is_empty(), "{import}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever is done to a file, it is read or refused with a place or a reason; events stay in order and of known owners.
    #[test]
    fn damaged_files_never_panic(
        which in 0_usize..9,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..12),
    ) {
        let (import, mut bytes) = specimens().swap_remove(which);
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
        match read(import, &bytes) {
            Ok((timeline, _)) => {
                prop_assert!(timeline.events.is_sorted_by_key(|event| event.at_ms));
                let owners = timeline.owners.len();
                prop_assert!(timeline.events.iter().all(|event| (event.owner.0 as usize) < owners));
                prop_assert!(Facts::of(&timeline).events == timeline.events.len() as u64);
            }
            Err(error) => prop_assert!(!error.problem.is_empty()),
        }
    }
}
