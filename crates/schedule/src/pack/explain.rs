//! Why a pod has no place, as data, worked out on demand from the state as it is (P-088).

use super::claims::Unopened;
use super::{Engine, Miss, Unplaced};
use crate::algebra::SetId;
use crate::relax::{PreferencePolicy, without_preferences};
use crate::template::{SkippedPool, UNLIMITED};
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::constraints::Constraints;
use spokeshave_model::derivation::Blocker;
use spokeshave_model::reason::{FilterFailure, Obstacle, PoolRefusal, Reason};
use spokeshave_model::snapshot::{ClassId, PodId};
use spokeshave_model::taint;
use spokeshave_model::vector::ResourceVector;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Engine<'_> {
    /// The reasons of the pods that the last `place` left over, in pod order; pods of one shape share one.
    pub(super) fn reasons(&mut self) -> Vec<(PodId, Arc<Reason>)> {
        let mut known = FxHashMap::with_hasher(FxBuildHasher);
        let unplaced = std::mem::take(&mut self.unplaced);
        let mut reasons = Vec::with_capacity(unplaced.len());
        for left in &unplaced {
            let view = self.snapshot.pod(left.pod);
            let reason = match known.get(&(view.class, view.request, left.miss == Miss::Reserved)) {
                Some(reason) => Arc::clone(reason),
                None => {
                    let reason = Arc::new(self.reason(*left));
                    known.insert(
                        (view.class, view.request, left.miss == Miss::Reserved),
                        Arc::clone(&reason),
                    );
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

    /// The pods no longer count where they are bound.
    pub(crate) fn release(&mut self, pods: &[PodId]) {
        self.uncount(pods);
    }

    /// Whether a pod has a place now, with other constraints than its own and some things around it lifted. Leaves nothing behind.
    pub(crate) fn has_place_with(
        &mut self,
        pod: PodId,
        constraints: Constraints,
        lifted: &BTreeSet<Blocker>,
    ) -> bool {
        let class = self.snapshot.pod(pod).class;
        let mark = self.fork();
        let known = std::mem::take(&mut self.classes[class.index()]);
        let others = lifted.contains(&Blocker::OthersAntiAffinity);
        let others = others.then(|| self.topology.take_inverse(class));
        let remaining = self.remaining.clone();
        if lifted.contains(&Blocker::Limits) {
            for remaining in &mut self.remaining {
                remaining.nodes = UNLIMITED;
                remaining.resources.fill(UNLIMITED);
            }
        }
        let volumes = lifted.contains(&Blocker::Volumes);
        let volumes = volumes.then(|| self.pod_attachments.remove(&pod)).flatten();
        let constraints = match self.options.preferences {
            PreferencePolicy::Respect => constraints,
            PreferencePolicy::Ignore => without_preferences(&constraints),
        };
        let has_ports = !constraints.host_ports.is_empty();
        let mut variant = self.build_variant(class, Cow::Owned(constraints));
        if !has_ports {
            variant.ports.clear();
        }
        self.classes[class.index()].variants.push(variant);
        let found = self.place_one(pod).is_ok();
        self.revert(mark);
        self.classes[class.index()] = known;
        self.remaining = remaining;
        if let Some(others) = others {
            self.topology.put_inverse(class, others);
        }
        if let Some(volumes) = volumes {
            self.pod_attachments.insert(pod, volumes);
        }
        found
    }

    fn reason(&mut self, left: Unplaced) -> Reason {
        let class = self.snapshot.pod(left.pod).class;
        if self.snapshot.classes[class.index()].uses_resource_claims {
            return Reason::DynamicResources;
        }
        if left.miss == Miss::Reserved {
            return Reason::ReservedOfferings { would_remove: false };
        }
        if self.templates.is_empty() {
            let mut skipped = self.skipped.iter();
            return if skipped.all(|(_, why)| *why == SkippedPool::NotProvisionable) {
                Reason::NoNodePools
            } else {
                Reason::NoTemplates
            };
        }
        let mut step = 0;
        while self.variant(class, step + 1) {
            step += 1;
        }
        self.variant(class, step);
        Reason::Pools(self.refusals(left.pod, class, step))
    }

    /// What each NodePool says to a pod after some steps of relaxation.
    pub(super) fn refusals(&mut self, pod: PodId, class: ClassId, step: usize) -> Vec<PoolRefusal> {
        let mut refusals = Vec::new();
        for template in 0..self.templates.len() {
            if let Err(blocked) = self.open_on(pod, class, step, template) {
                let pool = self.snapshot.pool(self.templates[template].pool).name.clone();
                let obstacle = self.obstacle(pod, class, step, template, blocked.why);
                refusals.push(PoolRefusal { pool, obstacle });
            }
        }
        refusals
    }

    fn obstacle(
        &mut self,
        pod: PodId,
        class: ClassId,
        step: usize,
        template: usize,
        why: Unopened,
    ) -> Obstacle {
        let variant = &self.classes[class.index()].variants[step];
        let base = self.templates[template].set;
        match why {
            Unopened::NodeLimit => Obstacle::NodeLimit,
            Unopened::Limits => Obstacle::Limits,
            Unopened::Reserved => Obstacle::ReservedOfferings,
            Unopened::Taint => {
                let taints = &self.snapshot.pool(self.templates[template].pool).taints;
                let taint = taint::first_untolerated(taints, &variant.constraints.tolerations);
                Obstacle::Taint(taint.map(taint::format_taint).unwrap_or_default())
            }
            Unopened::Labels => {
                let why = self.algebra.why_not(base, variant.all);
                why.map_or(Obstacle::NodeResources, Obstacle::Incompatible)
            }
            Unopened::Place | Unopened::InstanceTypes | Unopened::MinValues => {
                let all = variant.all;
                match self.algebra.join(base, all) {
                    Some(joined) if why == Unopened::Place => self.misplaced(class, step, template, joined),
                    Some(joined) => self.no_type(pod, class, step, template, joined),
                    None => Obstacle::NodeResources,
                }
            }
        }
    }

    /// What volumes or topology say to a new claim.
    fn misplaced(&mut self, class: ClassId, step: usize, template: usize, joined: SetId) -> Obstacle {
        let variant = &self.classes[class.index()].variants[step];
        let base = match variant.volume_sets.first() {
            None => joined,
            Some(volume) => match self.algebra.join(joined, *volume) {
                Some(base) => base,
                None => {
                    let why = self.algebra.why_not(joined, *volume);
                    return why.map_or(Obstacle::NodeResources, Obstacle::Volume);
                }
            },
        };
        let place = (self.live, template, base);
        let narrowed =
            self.topology
                .narrow(class, &variant.bindings, variant.strict, place, &mut self.algebra);
        match narrowed {
            Err(refusal) => {
                self.topology
                    .explain(refusal, variant.strict, self.algebra.get(base), &self.algebra)
            }
            Ok(_) => Obstacle::NodeResources,
        }
    }

    /// Which facts about instance types fail.
    fn no_type(
        &mut self,
        pod: PodId,
        class: ClassId,
        step: usize,
        template: usize,
        joined: SetId,
    ) -> Obstacle {
        let requests = self.snapshot.requests(pod);
        let Ok(set) = self.narrow(class, step, (self.live, template, joined)) else {
            return Obstacle::NodeResources;
        };
        let facts = self.templates[template].facts(set, &self.algebra);
        let template = &self.templates[template];
        let pool = self.remaining.iter().zip(&self.templates);
        let mut candidates = template.eligible.clone();
        for (remaining, other) in pool {
            if other.pool == template.pool {
                template.keep_within(&mut candidates, &remaining.resources);
            }
        }
        let ports = &self.classes[class.index()].variants[step].ports;
        let mut types = candidates.clone();
        types.intersect(&template.fact(facts).both);
        template.keep_fitting(&mut types, requests, ports, &self.numbers);
        let wanted = self.algebra.get(set);
        let failure = if types.is_clear() {
            template.explain(&candidates, template.fact(facts), requests, ports, &self.numbers)
        } else {
            let reached = template.check_min_values(&types, wanted);
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
            self.snapshot.resources.resources(&folded)
        };
        Obstacle::InstanceTypes {
            failure,
            requirements: super::finish::shown(wanted),
            min: fold(ResourceVector::lower_to),
            max: fold(ResourceVector::raise_to),
        }
    }
}
