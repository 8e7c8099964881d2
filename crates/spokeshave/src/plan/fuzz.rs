//! Bytes that are almost a dump: the reader ends with a dump or with a line number, and whatever it reads can be planned for.

use std::sync::Arc;

use jiff::Timestamp;
use spokeshave_example::Dice;
use spokeshave_model::lower;
use spokeshave_plan::{Policy, provision};
use spokeshave_provider_kwok::Catalog;

use super::dump::read;
use super::world::{Origin, World};

const NODES_AND_PODS: &str = include_str!("../../../../examples/unschedulable.yaml");

/// Pieces that mean something to the parsers.
const PIECES: [&str; 16] = [
    "\n---\n",
    "{",
    "}",
    "[",
    "]",
    ":",
    "- ",
    "\"",
    "'",
    "&a ",
    "*a",
    "!!int ",
    "\t",
    "\u{feff}",
    "items:\n",
    "kind: List\n",
];

fn mutated(text: &str, dice: &mut Dice) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + dice.below(4) {
        let at = dice.below(bytes.len());
        let end = (at + 1 + dice.below(200)).min(bytes.len());
        match dice.below(7) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let twin = bytes[at..end].to_vec();
                bytes.splice(at..at, twin);
            }
            3 => {
                let piece = dice.pick(&PIECES).bytes();
                bytes.splice(at..at, piece);
            }
            4 => bytes[at..end].reverse(),
            5 => {
                let number = dice.below(256);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = u8::try_from(number).unwrap_or_default();
                }
            }
            _ => bytes.insert(at, b'\n'),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

/// The documents of a YAML file as one JSON list.
fn as_json(text: &str) -> String {
    let documents = text.split("---\n").filter(|document| document.contains("kind:"));
    let items: Vec<serde_json::Value> = documents
        .map(|document| serde_saphyr::from_str(document).expect("an example is YAML"))
        .collect();
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
    serde_json::to_string_pretty(&list).expect("JSON")
}

#[test]
fn mutated_dumps_are_read_or_refused_by_line() {
    let catalog = Catalog::default();
    let types = Arc::clone(catalog.instance_types());
    let now: Timestamp = "2026-01-01T01:00:00Z".parse().expect("a time");
    let json = as_json(NODES_AND_PODS);
    let (mut planned, mut refused) = (0, 0);
    for seed in 0..400_u64 {
        let mut dice = Dice(seed);
        let text = if seed.is_multiple_of(2) {
            NODES_AND_PODS
        } else {
            json.as_str()
        };
        match read("dump", &mutated(text, &mut dice)) {
            Ok(dump) => {
                for unreadable in &dump.unreadable {
                    assert!(unreadable.place.contains("line "), "seed {seed}: {unreadable}");
                }
                let snapshot = lower(
                    &World::new(
                        dump,
                        Origin::Files { own_catalog: true },
                        &types,
                        None,
                        Arc::default(),
                        now,
                    )
                    .state,
                );
                if seed % 4 < 2 {
                    provision(&snapshot, &Policy::default(), now);
                }
                planned += 1;
            }
            Err(error) => {
                let text = format!("{error:#}");
                let says_where = text.contains("line ") || text.contains("holds no object");
                assert!(text.starts_with("dump") && says_where, "seed {seed}: {text}");
                refused += 1;
            }
        }
    }
    assert!(
        planned > 15 && refused > 50,
        "{planned} planned, {refused} refused"
    );
}
