//! Which pods have to go for the rest of a plan to be right.
//!
//! It looks at violations only, as they are told: where, and about which pod. What it names may be more than necessary, and is not always enough, so whoever
//! plans again without these pods has the new plan checked as well.

use crate::{Violation, claim_place, pool_place};
use spokeshave_model::placement::Placements;
use spokeshave_model::snapshot::{ClassId, PodId, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// How places of reservations begin. No node has such a name.
pub(crate) const RESERVATION: &str = "reservation ";

/// The pods of a batch that a plan cannot have, each with the first violation that it is about.
///
/// A violation that names an arrival takes with it all pods of the batch that ask for the same: planned for without it, they would be where it was. One that
/// names none, such as too little room, takes all arrivals of the place.
#[must_use]
pub fn suspects(
    snapshot: &Snapshot,
    batch: &[PodId],
    placements: &Placements,
    violations: &[Violation],
) -> BTreeMap<PodId, String> {
    let arrivals = arrivals_by_place(snapshot, placements);
    let mut classes: BTreeMap<ClassId, String> = BTreeMap::new();
    let mut suspects: BTreeMap<PodId, String> = BTreeMap::new();
    for violation in violations {
        let place = if violation.place.starts_with(RESERVATION) {
            RESERVATION
        } else {
            violation.place.as_str()
        };
        let here = arrivals.get(place).map(Vec::as_slice).unwrap_or_default();
        let is_named = |pod: &&PodId| violation.pod.as_ref() == Some(&snapshot.pod(**pod).key());
        match here.iter().find(is_named) {
            Some(named) => {
                let text = violation.to_string();
                classes.entry(snapshot.pod(*named).class).or_insert(text);
            }
            None => here.iter().for_each(|pod| {
                suspects.entry(*pod).or_insert_with(|| violation.to_string());
            }),
        }
    }
    let placed = arrivals.values().flatten().copied();
    let all: BTreeSet<PodId> = placed.chain(batch.iter().copied()).collect();
    for pod in all {
        if let Some(text) = classes.get(&snapshot.pod(pod).class) {
            suspects.insert(pod, text.clone());
        }
    }
    suspects
}

/// What a plan puts where, by the names that violations have for places.
fn arrivals_by_place(snapshot: &Snapshot, placements: &Placements) -> BTreeMap<String, Vec<PodId>> {
    let mut arrivals: BTreeMap<String, Vec<PodId>> = BTreeMap::new();
    for (node, pods) in &placements.existing {
        let name = snapshot.node(*node).name.clone();
        arrivals.entry(name).or_default().extend(pods);
    }
    for (number, claim) in placements.claims.iter().enumerate() {
        let is_reserved = claim.capacity_types.iter().eq(["reserved"]);
        let places = [
            Some(claim_place(snapshot, number, claim)),
            Some(pool_place(snapshot, claim.pool)),
            is_reserved.then(|| RESERVATION.to_owned()),
        ];
        for place in places.into_iter().flatten() {
            arrivals.entry(place).or_default().extend(&claim.pods);
        }
    }
    arrivals
}
