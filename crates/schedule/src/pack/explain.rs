//! Why a pod has no place, as data, worked out on demand from the state as it is (P-088).

use super::claims::CannotOpen;
use super::{Engine, NoPlace, Unplaced};
use crate::algebra::SetId;
use crate::tables::{Tables, VariantId};
use crate::template::SkippedPool;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::constraints::Constraints;
use spokeshave_model::derivation::Blocker;
use spokeshave_model::reason::{FilterFailure, Obstacle, PoolRefusal, Reason};
use spokeshave_model::snapshot::PodId;
use spokeshave_model::taint;
use spokeshave_model::vector::ResourceVector;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Engine<'_> {
    /// The reasons of the pods that the last `place` left over, in pod order; pods of one shape share one.
    pub(super) fn reasons(&mut self) -> Vec<(PodId, Arc<Reason>)> {
        let mut known = FxHashMap::with_hasher(FxBuildHasher);
        let unplaced = std::mem::take(&mut self.unplaced);
        let mut reasons = Vec::with_capacity(unplaced.len());
        for left in &unplaced {
            let view = self.tables.snapshot.pod(left.pod);
            // Its volumes tell a pod apart from others of its shape.
            let attaches = !self.tables.attachments.of_planned(left.pod).is_empty();
            let alone = attaches.then_some(left.pod);
            let is_reserved = left.no_place == NoPlace::Reserved;
            let key = (view.class, view.request, is_reserved, alone);
            let reason = match known.get(&key) {
                Some(reason) => Arc::clone(reason),
                None => {
                    let reason = Arc::new(self.reason(*left));
                    known.insert(key, Arc::clone(&reason));
                    reason
                }
            };
            reasons.push((left.pod, reason));
        }
        self.unplaced = unplaced;
        reasons
    }

    /// The pods that the last `place` left over, in pod order.
    pub(crate) fn unplaced(&self) -> impl Iterator<Item = PodId> + '_ {
        self.unplaced.iter().map(|unplaced| unplaced.pod)
    }

    /// Why the last `place` left a pod over.
    pub(crate) fn reason_of(&mut self, pod: PodId) -> Option<Reason> {
        let left = self.unplaced.iter().find(|left| left.pod == pod).copied()?;
        Some(self.reason(left))
    }

    /// Whether a pod has a place now, with other constraints than its own and some things around it lifted. Leaves nothing behind.
    pub(crate) fn has_place_with(
        &mut self,
        pod: PodId,
        constraints: Constraints,
        lifted: &BTreeSet<Blocker>,
    ) -> bool {
        let class = self.tables.snapshot.pod(pod).class;
        let checkpoint = self.fork();
        let others = lifted.contains(&Blocker::OthersAntiAffinity);
        let others = others.then(|| self.tables.topology.take_inverse(class));
        let limits = lifted.contains(&Blocker::Limits);
        let limits = limits.then(|| self.ledgers.lift_limits());
        let volumes = lifted.contains(&Blocker::Volumes);
        let volumes = volumes.then(|| self.tables.attachments.lift(pod)).flatten();
        let stand_in = self.tables.stand_in(class, constraints);
        self.ledgers.catch_up(&mut self.tables);
        let found = self.place_one(pod).is_ok();
        self.revert(checkpoint);
        self.failures.forget_from(self.tables.restore(stand_in));
        if let Some(limits) = limits {
            self.ledgers.restore_limits(limits);
        }
        if let Some(others) = others {
            self.tables.topology.put_inverse(class, others);
        }
        if let Some(volumes) = volumes {
            self.tables.attachments.put_back(pod, volumes);
        }
        found
    }

    fn reason(&mut self, left: Unplaced) -> Reason {
        let class = self.tables.snapshot.pod(left.pod).class;
        if self.tables.snapshot.classes[class.index()].uses_resource_claims {
            return Reason::DynamicResources;
        }
        if left.no_place == NoPlace::Reserved {
            return Reason::ReservedOfferings { would_remove: false };
        }
        if self.tables.templates.is_empty() {
            let mut skipped = self.tables.skipped.iter();
            return if skipped.all(|(_, why)| *why == SkippedPool::NotProvisionable) {
                Reason::NoNodePools
            } else {
                Reason::NoTemplates
            };
        }
        let variant = self.most_relaxed(class);
        let refusals = variant.map(|variant| self.refusals(left.pod, variant));
        Reason::Pools(refusals.unwrap_or_default())
    }

    /// What each NodePool says to a pod after some steps of relaxation.
    pub(super) fn refusals(&mut self, pod: PodId, variant: VariantId) -> Vec<PoolRefusal> {
        let mut refusals = Vec::new();
        for template in 0..self.tables.templates.len() {
            if let Err(blocked) = self.open_on(pod, variant, template) {
                let pool = self.tables.templates[template].pool;
                let pool = self.tables.snapshot.pool(pool).name.clone();
                let obstacle = self.obstacle(pod, variant, template, blocked.why);
                refusals.push(PoolRefusal { pool, obstacle });
            }
        }
        refusals
    }

    fn obstacle(&mut self, pod: PodId, id: VariantId, template: usize, why: CannotOpen) -> Obstacle {
        let variant = &self.tables[id];
        let base = self.tables.templates[template].set;
        match why {
            CannotOpen::NodeLimit => Obstacle::NodeLimit,
            CannotOpen::Limits => Obstacle::Limits,
            CannotOpen::Reserved => Obstacle::ReservedOfferings,
            CannotOpen::VolumeLimit => self.volume_limit(pod, template),
            CannotOpen::Taint => {
                let taints = &self
                    .tables
                    .snapshot
                    .pool(self.tables.templates[template].pool)
                    .taints;
                let taint = taint::first_untolerated(taints, &variant.constraints.tolerations);
                Obstacle::Taint(taint.map(taint::format_taint).unwrap_or_default())
            }
            CannotOpen::Labels => {
                let why = self.tables.algebra.why_not(base, variant.all);
                why.map_or(Obstacle::NodeResources, Obstacle::Incompatible)
            }
            CannotOpen::Place | CannotOpen::InstanceTypes | CannotOpen::MinValues => {
                let all = variant.all;
                match self.tables.algebra.join(base, all) {
                    Some(joined) if why == CannotOpen::Place => self.misplaced(id, template, joined),
                    Some(joined) => self.no_type(pod, id, template, joined),
                    None => Obstacle::NodeResources,
                }
            }
        }
    }

    /// Of which driver the pod has more volumes than a node of the template would attach.
    fn volume_limit(&self, pod: PodId, template: usize) -> Obstacle {
        let (attachments, numbers) = (&self.tables.attachments, &self.tables.numbers);
        let too_many = attachments.too_many(template, pod, numbers);
        too_many.map_or(Obstacle::NodeResources, |found| Obstacle::VolumeLimit {
            driver: numbers.driver_name(found.driver).to_owned(),
            count: found.count,
            limit: found.limit,
        })
    }

    /// What volumes or topology say to a new claim.
    fn misplaced(&mut self, variant: VariantId, template: usize, joined: SetId) -> Obstacle {
        let Tables {
            algebra,
            variants,
            topology,
            ..
        } = &mut self.tables;
        let variant = &variants[variant];
        let base = match variant.volume_sets.first() {
            None => joined,
            Some(volume) => match algebra.join(joined, *volume) {
                Some(base) => base,
                None => {
                    let why = algebra.why_not(joined, *volume);
                    return why.map_or(Obstacle::NodeResources, Obstacle::Volume);
                }
            },
        };
        let place = (self.ledgers.claims().count(), template, base);
        let (strict, counts) = (variant.strict, self.ledgers.counts());
        let narrowed = self.scratch.choice.narrow(
            variant.class,
            &variant.bindings,
            strict,
            place,
            (topology, counts),
            algebra,
        );
        match narrowed {
            Err(refusal) => topology.explain(refusal, strict, algebra.get(base), counts, algebra),
            Ok(_) => Obstacle::NodeResources,
        }
    }

    /// Which facts about instance types fail.
    fn no_type(&mut self, pod: PodId, variant: VariantId, index: usize, joined: SetId) -> Obstacle {
        let place = (self.ledgers.claims().count(), index, joined);
        let Ok(set) = self.narrow(variant, place) else {
            return Obstacle::NodeResources;
        };
        let tables = &mut self.tables;
        let requests = tables.snapshot.requests(pod);
        let facts = tables.templates[index].facts(set, &tables.algebra);
        let template = &tables.templates[index];
        let mut candidates = template.eligible.clone();
        template.keep_within(&mut candidates, &self.ledgers.budget().remaining(index).resources);
        let ports = &tables.variants[variant].ports;
        let mut types = candidates.clone();
        types.intersect(&template.fact(facts).both);
        template.keep_fitting(&mut types, requests, ports, &tables.numbers);
        let wanted = tables.algebra.get(set);
        let failure = if types.is_clear() {
            template.explain(
                &candidates,
                template.fact(facts),
                requests,
                ports,
                &tables.numbers,
            )
        } else {
            let reached = template.check_min_values(&types, wanted, facts);
            FilterFailure::MinValues(reached.err().unwrap_or_default())
        };
        let totals: Vec<ResourceVector> = template
            .groups
            .iter()
            .map(|group| requests.plus(&group.overhead))
            .collect();
        let fold = |pick: fn(&mut ResourceVector, &ResourceVector)| {
            let folded = totals.iter().cloned().reduce(|mut all, next| {
                pick(&mut all, &next);
                all
            });
            let folded = folded.unwrap_or_else(|| requests.clone());
            tables.snapshot.resources.resources(&folded)
        };
        Obstacle::InstanceTypes {
            failure,
            requirements: super::finish::shown(wanted),
            min: fold(ResourceVector::lower_to),
            max: fold(ResourceVector::raise_to),
        }
    }
}
