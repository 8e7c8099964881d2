//! A catalog's snapshot, read as strictly as it was promised (G-005, G-006).

use std::collections::BTreeSet;

use prost::Message as _;
use spokeshave_model::InstanceType;

use super::{Shortcomings, cheapest, failure};
use crate::LONGEST_MESSAGE_BYTES;
use crate::catalog::Catalog;
use crate::wire::CatalogChunk;

pub(super) fn read_snapshot(
    chunks: &[CatalogChunk],
    failures: &mut Shortcomings,
) -> Option<Vec<InstanceType>> {
    let mut catalog = Catalog::default();
    let mut names = BTreeSet::new();
    for chunk in chunks {
        if chunk.encoded_len() > LONGEST_MESSAGE_BYTES {
            failures.push(failure(
                "catalog_chunks_are_small",
                format!("{} bytes", chunk.encoded_len()),
            ));
        }
        for one in &chunk.types {
            if !names.insert(&one.name) {
                failures.push(failure(
                    "catalog_rows_are_unique",
                    format!("instance type {:?} stands twice in one snapshot", one.name),
                ));
            }
        }
        match catalog.apply(chunk) {
            Ok(problems) => {
                failures.extend(
                    problems
                        .into_iter()
                        .map(|what| failure("catalog_rows_are_whole", what)),
                );
            }
            Err(problem) => {
                failures.push(failure("snapshots_are_completed", problem));
                return None;
            }
        }
    }
    let types = catalog.types().unwrap_or_default();
    if cheapest(&types).is_empty() {
        failures.push(failure(
            "catalog_sells_something",
            "no readable instance type has an available offering",
        ));
        return None;
    }
    Some(types.to_vec())
}
