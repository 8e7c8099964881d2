//! From working state to results: charging limits, ordering instance types by price, truncation (P §6.3, §6.17).

use super::{Claim, MinValuesPolicy, Pass};
use crate::algebra::SetId;
use crate::outcome::{Packing, UnplacedPod};
use crate::template::bits;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::placement::{Launch, Placements, PlannedClaim};
use spokeshave_model::reason::{FilterFailure, Reason};
use spokeshave_model::{CapacityType, Requirement, labels};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

impl Pass<'_> {
    /// P-093: charges a new claim against its pool's limits, with the largest capacity it could turn out to have.
    pub(super) fn charge(&mut self, index: usize) {
        let claim = &self.claims[index];
        let remaining = &mut self.remaining[claim.template];
        if let Some(nodes) = &mut remaining.nodes {
            *nodes -= 1;
        }
        if remaining.resources.iter().any(Option::is_some) {
            let largest = self.templates[claim.template].largest_capacity(&claim.types, self.width);
            for (left, used) in remaining.resources.iter_mut().zip(&largest.0) {
                if let Some(left) = left {
                    *left = left.saturating_sub(*used);
                }
            }
        }
    }

    /// A claim that holds reservations is launched from them and nothing else (P §6.12).
    fn pin_reservations(&mut self, claim: &mut Claim) {
        if claim.reserved.is_empty() {
            return;
        }
        let capacity_type = Requirement::is(labels::CAPACITY_TYPE, CapacityType::Reserved.as_str());
        claim.set = self.algebra.narrow(claim.set, capacity_type);
        let labels: BTreeSet<&String> = claim.reserved.iter().map(|(label, _)| label).collect();
        for label in labels {
            let ids = claim
                .reserved
                .iter()
                .filter(|(other, _)| other == label)
                .map(|(_, id)| id.clone());
            claim.set = self.algebra.narrow(claim.set, Requirement::one_of(label, ids));
        }
        let facts = self.templates[claim.template].facts(claim.set, &self.algebra);
        claim.types.intersect_with(&facts.offering);
    }

    pub(crate) fn finish(mut self) -> Packing {
        let mut claims = Vec::new();
        let mut orders: FxHashMap<(usize, SetId), Rc<Vec<Launch>>> = FxHashMap::with_hasher(FxBuildHasher);
        for mut claim in std::mem::take(&mut self.claims) {
            self.pin_reservations(&mut claim);
            let template = &self.templates[claim.template];
            let requirements = self.algebra.get(claim.set);
            let order = if template.has_overrides() {
                // The cheapest offering of a type may belong to a variant that is too small: price this claim by itself.
                Rc::new(template.by_price(&claim.types, requirements, &self.algebra))
            } else {
                let order = orders.entry((claim.template, claim.set));
                Rc::clone(order.or_insert_with(|| {
                    Rc::new(template.by_price(&template.eligible, requirements, &self.algebra))
                }))
            };
            let kept = bits(
                template.eligible.len().max(1),
                template.type_indexes(&claim.types),
            );
            let launches: Vec<_> = order
                .iter()
                .filter(|launch| kept.contains(launch.instance_type))
                .take(self.options.instance_types_per_claim)
                .cloned()
                .collect();
            if requirements.has_min_values() {
                let types = launches
                    .iter()
                    .map(|launch| template.instance_type(launch.instance_type));
                if let Err(reached) = requirements.satisfies_min_values(types)
                    && self.options.min_values == MinValuesPolicy::Strict
                {
                    let pool = self.snapshot.pool(template.pool).name.clone();
                    let reason = Arc::new(Reason::TruncatedMinValues {
                        pool,
                        failure: FilterFailure::MinValues(reached),
                    });
                    self.unplaced.extend(claim.pods.iter().map(|pod| UnplacedPod {
                        pod: *pod,
                        reason: Arc::clone(&reason),
                    }));
                    continue;
                }
            }
            let mut requests = claim.requests.clone();
            if let Some(overhead) = template.least_overhead(&claim.types) {
                requests.add(&overhead);
            }
            claims.push(PlannedClaim {
                pool: template.pool,
                launches,
                capacity_types: template.capacity_types(&claim.types, requirements, &self.algebra),
                requirements: shown(requirements),
                requests: self.snapshot.resources.resources(&requests),
                min_values_relaxed: !claim.relaxed_min_values.is_empty(),
                pods: claim.pods,
            });
        }
        self.unplaced.sort_by_key(|unplaced| unplaced.pod);
        Packing {
            placements: Placements {
                claims,
                existing: self.node_pods,
            },
            unplaced: self.unplaced,
            skipped_pools: self.skipped,
            statistics: self.statistics,
        }
    }
}

/// Without the keys that exist in the simulation only.
pub(super) fn shown(requirements: &spokeshave_model::Requirements) -> spokeshave_model::Requirements {
    let mut shown = requirements.clone();
    for key in [labels::HOSTNAME, labels::REGISTERED, labels::INITIALIZED] {
        shown.remove(key);
    }
    shown
}
