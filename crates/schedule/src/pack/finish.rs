//! From working state to results: reservations pinned, instance types in order of price, truncation (P §6.3, §6.17).

use super::Engine;
use super::reserved::pinned;
use crate::algebra::SetId;
use crate::bits::Bits;
use crate::ledger::{Checkpoint, Target};
use crate::options::MinValuesPolicy;
use crate::outcome::{Packing, UnplacedPod};
use crate::tables::Shortlist;
use spokeshave_model::placement::{Launch, Launches, Placements, PlannedClaim};
use spokeshave_model::reason::{FilterFailure, Reason};
use spokeshave_model::snapshot::{NodeId, PodId};
use spokeshave_model::{Price, Requirement, Requirements, labels};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Engine<'_> {
    /// How many claims are planned.
    pub(crate) fn claim_count(&self) -> usize {
        self.ledgers.claims().count()
    }

    /// How many pods were put on existing nodes, and how many on claims, since the checkpoint.
    pub(crate) fn placed_since(&self, checkpoint: Checkpoint) -> (usize, usize) {
        let placed = &self.ledgers.placed()[checkpoint.placed..];
        let on_nodes = placed
            .iter()
            .filter(|placed| matches!(placed.on, Target::Node(_)))
            .count();
        (on_nodes, placed.len() - on_nodes)
    }

    /// The pods that were put on a node since the checkpoint.
    pub(crate) fn placed_on_since(&self, checkpoint: Checkpoint, node: NodeId) -> Vec<PodId> {
        let placed = self.ledgers.placed()[checkpoint.placed..].iter();
        let there = placed.filter(|placed| placed.on == Target::Node(node));
        there.map(|placed| placed.pod).collect()
    }

    /// Whether a claim opened since the checkpoint could lose its minValues when it is truncated.
    pub(crate) fn may_be_truncated(&self, checkpoint: Checkpoint) -> bool {
        let algebra = &self.tables.algebra;
        self.tables.options.min_values == MinValuesPolicy::Strict
            && self.ledgers.claims().all()[checkpoint.claims..]
                .iter()
                .any(|claim| claim.set.is_some_and(|set| algebra.has_min_values(set)))
    }

    /// What was decided since the checkpoint, and the pods that the last `place` left over.
    pub(crate) fn packing(&mut self, checkpoint: Checkpoint) -> Packing {
        let reasons = self.reasons().into_iter();
        let unplaced = reasons.map(|(pod, reason)| UnplacedPod { pod, reason }).collect();
        self.packing_with(checkpoint, unplaced)
    }

    /// The same, when the pods left over are known.
    pub(super) fn packing_with(&mut self, checkpoint: Checkpoint, unplaced: Vec<UnplacedPod>) -> Packing {
        let mut packing = Packing {
            skipped_pools: self.tables.skipped.clone(),
            statistics: self.statistics,
            unplaced,
            ..Packing::default()
        };
        let mut existing: BTreeMap<_, Vec<PodId>> = BTreeMap::new();
        for placed in &self.ledgers.placed()[checkpoint.placed..] {
            if let Target::Node(node) = placed.on {
                existing.entry(node).or_default().push(placed.pod);
            }
        }
        packing.placements = Placements {
            claims: Vec::new(),
            existing,
        };
        for claim in self.planned(checkpoint) {
            match claim {
                Ok(claim) => packing.placements.claims.push(claim),
                Err(pods) => packing.unplaced.extend(pods),
            }
        }
        packing.unplaced.sort_by_key(|unplaced| unplaced.pod);
        packing
    }

    /// The claims opened since the checkpoint; instead of one that truncation leaves without its minValues, its pods (P-064).
    pub(crate) fn planned(&mut self, checkpoint: Checkpoint) -> Vec<Result<PlannedClaim, Vec<UnplacedPod>>> {
        let mut pods: Vec<Vec<PodId>> = vec![Vec::new(); self.claim_count() - checkpoint.claims];
        for placed in &self.ledgers.placed()[checkpoint.placed..] {
            if let Target::Claim(index) = placed.on
                && index >= checkpoint.claims
            {
                pods[index - checkpoint.claims].push(placed.pod);
            }
        }
        pods.into_iter()
            .zip(checkpoint.claims..)
            .filter_map(|(pods, index)| self.finish_claim(index, pods))
            .collect()
    }

    fn finish_claim(
        &mut self,
        index: usize,
        pods: Vec<PodId>,
    ) -> Option<Result<PlannedClaim, Vec<UnplacedPod>>> {
        let (set, types) = self.pin_reservations(index)?;
        let shortlist = self.shortlist(self.ledgers.claims().get(index).template, set, &types);
        let (claim, tables) = (self.ledgers.claims().get(index), &self.tables);
        let template = &tables.templates[claim.template];
        let requirements = tables.algebra.get(set);
        let asked = |set: SetId| tables.algebra.get(set).min_values(labels::CAPACITY_TYPE);
        let is_pinned_below = claim.set.is_some_and(|own| asked(own) > asked(set));
        let launches = &shortlist.launches;
        if tables.algebra.has_min_values(set) && tables.options.min_values == MinValuesPolicy::Strict {
            let types = launches
                .iter()
                .map(|launch| template.instance_type(launch.instance_type));
            if let Err(reached) = requirements.satisfies_min_values(types) {
                let reason = Arc::new(Reason::TruncatedMinValues {
                    pool: tables.snapshot.pool(template.pool).name.clone(),
                    failure: FilterFailure::MinValues(reached),
                });
                let unplaced = pods.into_iter().map(|pod| UnplacedPod {
                    pod,
                    reason: Arc::clone(&reason),
                });
                return Some(Err(unplaced.collect()));
            }
        }
        let mut requests = claim.requests.clone();
        if let Some(overhead) = template.least_overhead(&types) {
            requests.add(&overhead);
        }
        Some(Ok(PlannedClaim {
            pool: template.pool,
            launches: shortlist.launches,
            capacity_types: shortlist.capacity_types,
            requirements: shortlist.requirements,
            requests: tables.snapshot.resources.resources(&requests),
            min_values_relaxed: is_pinned_below || !claim.relaxed_min_values.is_empty(),
            pods,
        }))
    }

    /// How claims with these requirements and types would be launched. Many claims have the same.
    fn shortlist(&mut self, template: usize, set: SetId, types: &Bits) -> Shortlist {
        let key = (template, set, types.clone());
        if let Some(known) = self.tables.shortlists.get(&key) {
            return known.clone();
        }
        let order = self.price_order(template, set, types);
        let tables = &mut self.tables;
        let facts = tables.templates[template].facts(set, &tables.algebra);
        let template = &tables.templates[template];
        let requirements = tables.algebra.get(set);
        let kept = Bits::of(0, template.type_indexes(types));
        let wanted = order.iter().enumerate();
        let wanted = wanted.filter(|(_, launch)| kept.contains(launch.instance_type));
        let wanted = wanted.map(|(position, _)| position);
        let wanted = wanted.take(tables.options.instance_types_per_claim);
        let shortlist = Shortlist {
            launches: Launches::of(Arc::clone(&order), wanted),
            capacity_types: template.capacity_types(types, facts),
            requirements: shown(requirements),
        };
        tables.shortlists.insert(key, shortlist.clone());
        shortlist
    }

    /// The types of a template in order of price under some requirements; at least `types`.
    fn price_order(&mut self, template: usize, set: SetId, types: &Bits) -> Arc<Vec<Launch>> {
        let tables = &mut self.tables;
        let facts = tables.templates[template].facts(set, &tables.algebra);
        let view = &tables.templates[template];
        if view.has_overrides() {
            // The cheapest offering of a type may belong to a variant that is too small: price this claim by itself.
            return Arc::new(view.by_price(types, facts));
        }
        let order = tables.price_orders.entry((template, set));
        let by_price = || Arc::new(view.by_price(&view.eligible, facts));
        Arc::clone(order.or_insert_with(by_price))
    }

    /// What a claim costs at its cheapest. O(types dearer than none of its own).
    pub(super) fn claim_price(&mut self, index: usize) -> Price {
        let Some((set, types)) = self.pin_reservations(index) else {
            return Price::ZERO;
        };
        self.cheapest(self.ledgers.claims().get(index).template, set, &types)
    }

    /// The price of the cheapest of some types under some requirements.
    pub(super) fn cheapest(&mut self, template: usize, set: SetId, types: &Bits) -> Price {
        let order = self.price_order(template, set, types);
        // Without overrides a variant is a type; with them the order has no other types than these.
        let is_kept = |launch: &&Launch| {
            self.tables.templates[template].has_overrides() || types.contains(launch.instance_type)
        };
        order
            .iter()
            .find(is_kept)
            .map_or(Price::ZERO, |launch| launch.price)
    }

    /// What a claim is launched as, with the reservations that it holds.
    fn pin_reservations(&mut self, index: usize) -> Option<(SetId, Bits)> {
        let (claim, tables) = (self.ledgers.claims().get(index), &mut self.tables);
        let (set, types) = (claim.set?, claim.types.clone());
        if claim.reserved.is_empty() {
            return Some((set, types));
        }
        Some(pinned(tables, claim.template, set, types, &claim.reserved))
    }
}

/// Without the keys that exist in the simulation only, and without those that an API server refuses in a NodeClaim: a pod can ask only that such a label is
/// absent, as it will be, and one preference must not keep the NodeClaim from being created, and all pods on it from their node.
pub(super) fn shown(requirements: &Requirements) -> Requirements {
    let mut shown = requirements.clone();
    for key in [labels::HOSTNAME, labels::REGISTERED, labels::INITIALIZED] {
        shown.remove(key);
    }
    let absent = requirements.iter().filter(|one| one.reads_as_absence());
    for key in absent.map(Requirement::key).filter(|key| is_refused(key)) {
        shown.remove(key);
    }
    shown
}

/// Whether the CRD of NodeClaims refuses requirements with this key. Its rule looks at how the text before the slash ends, which is wider than P-037.
fn is_refused(key: &str) -> bool {
    let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
    let is_ours = domain.ends_with("karpenter.sh") && !labels::WELL_KNOWN.contains(&key);
    is_ours || labels::is_restricted(key)
}
