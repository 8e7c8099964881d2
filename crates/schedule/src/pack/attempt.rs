//! One attempt to place one pod: existing nodes, then planned NodeClaims, then a new one (P §6.3–6.6).

use super::{Claim, Failure, MinValuesPolicy, Miss, Pass, ReservedPolicy};
use crate::algebra::SetId;
use crate::topology::Host;
use fixedbitset::FixedBitSet;
use spokeshave_model::constraints::HostPort;
use spokeshave_model::reason::{FilterFailure, Obstacle, PoolRefusal};
use spokeshave_model::snapshot::{ClassId, NodeId, PodId};
use spokeshave_model::taint;
use spokeshave_model::vector::ResourceVector;
use std::collections::{BTreeMap, BTreeSet};

/// Existing nodes and planned claims that topology does not rule out.
type Eligible = (FixedBitSet, FixedBitSet);

/// What a claim becomes with a further pod.
struct Acceptance {
    set: SetId,
    types: FixedBitSet,
    reserved: BTreeSet<(String, String)>,
}

/// A claim that a template could open.
struct Opening {
    acceptance: Acceptance,
    relaxed_min_values: BTreeMap<String, u32>,
}

impl Pass<'_> {
    /// One attempt; the error says whether it is final for this pass.
    pub(super) fn attempt(&mut self, pod: PodId, class: ClassId, step: usize) -> Result<(), Miss> {
        let variant = &self.classes[class.index()].variants[step];
        let eligible = if variant.plain {
            None
        } else {
            self.topology
                .eligible(class, &variant.bindings, variant.strict, &self.algebra)
        };
        let eligible = eligible.as_ref();
        if self.try_nodes(pod, class, step, eligible) || self.try_claims(pod, class, step, eligible) {
            self.placements += 1;
            return Ok(());
        }
        self.try_new_claim(pod, class, step)
            .inspect(|()| self.placements += 1)
    }

    fn try_nodes(&mut self, pod: PodId, class: ClassId, step: usize, eligible: Option<&Eligible>) -> bool {
        let request_id = self.snapshot.pod(pod).request;
        let requests = &self.snapshot.requests[request_id.index()];
        let variant = &mut self.classes[class.index()].variants[step];
        let count = self.snapshot.nodes.len();
        let too_small = self
            .nodes_too_small
            .entry(request_id)
            .or_insert_with(|| FixedBitSet::with_capacity(count));
        let mut candidates = variant.nodes.clone();
        candidates.difference_with(too_small);
        if let Some((nodes, _)) = eligible {
            candidates.intersect_with(nodes);
        }
        let mut found = None;
        let mut gone = Vec::new();
        for index in candidates.ones() {
            self.statistics.nodes_tried += 1;
            if !requests.fits(&self.free[index]) || self.free[index].has_negative() {
                too_small.insert(index);
                continue;
            }
            let taken = &self.node_ports[index];
            if variant
                .constraints
                .host_ports
                .iter()
                .any(|port| taken.iter().any(|other| other.conflicts_with(port)))
            {
                gone.push(index);
                continue;
            }
            let (limits, attached) = (
                &self.snapshot.nodes[index].attach_limits,
                &self.node_attachments[index],
            );
            if !super::setup::attachable(limits, attached, &self.snapshot.pod(pod).attachments) {
                continue;
            }
            if variant.plain {
                found = Some(index);
                break;
            }
            let host = Host::Node(NodeId::from(index));
            match self
                .topology
                .narrow(class, &variant.bindings, variant.strict, host, &mut self.algebra)
            {
                Ok(_) => {
                    found = Some(index);
                    break;
                }
                Err(refusal) if refusal.final_ => gone.push(index),
                Err(_) => {}
            }
        }
        for index in gone {
            variant.nodes.set(index, false);
        }
        let Some(index) = found else { return false };
        let node = NodeId::from(index);
        self.free[index].subtract(requests);
        self.node_ports[index].extend(variant.constraints.host_ports.iter().cloned());
        if !self.snapshot.nodes[index].attach_limits.is_empty() {
            self.node_attachments[index].extend(self.snapshot.pod(pod).attachments.iter().cloned());
        }
        self.node_pods.entry(node).or_default().push(pod);
        if !variant.plain {
            self.topology.record(
                self.snapshot,
                class,
                &variant.bindings,
                Host::Node(node),
                &self.algebra,
            );
        }
        true
    }

    fn try_claims(&mut self, pod: PodId, class: ClassId, step: usize, eligible: Option<&Eligible>) -> bool {
        let request_id = self.snapshot.pod(pod).request;
        self.claims_too_full.entry(request_id).or_default();
        for bucket in 0..self.buckets.len() {
            if self.buckets[bucket].is_clear() {
                continue;
            }
            let variant = &self.classes[class.index()].variants[step];
            let mut open = self.buckets[bucket].clone();
            open.difference_with(&variant.failed_claims);
            open.difference_with(&self.claims_too_full[&request_id]);
            if let Some((_, claims)) = eligible {
                open.intersect_with(claims);
            }
            for index in open.ones() {
                self.statistics.claims_tried += 1;
                if let Some(acceptance) = self.accepts(pod, class, step, index) {
                    self.put_on_claim(pod, class, step, index, acceptance);
                    return true;
                }
            }
        }
        false
    }

    /// Whether a planned claim takes the pod, and what it then is. Remembers failures that are final.
    fn accepts(&mut self, pod: PodId, class: ClassId, step: usize, index: usize) -> Option<Acceptance> {
        let request_id = self.snapshot.pod(pod).request;
        let requests = &self.snapshot.requests[request_id.index()];
        let claim = &self.claims[index];
        if !requests.fits(&claim.headroom) {
            self.claims_too_full
                .entry(request_id)
                .or_default()
                .grow_and_insert(index);
            return None;
        }
        let variant = &mut self.classes[class.index()].variants[step];
        let ports = &variant.constraints.host_ports;
        let conflict = ports
            .iter()
            .any(|port| claim.ports.iter().any(|other| other.conflicts_with(port)));
        if conflict || !variant.templates.contains(claim.template) {
            variant.failed_claims.grow_and_insert(index);
            return None;
        }
        let Some(joined) = self.algebra.join(claim.set, variant.all) else {
            variant.failed_claims.grow_and_insert(index);
            return None;
        };
        let template = claim.template;
        let host = |set| Host::Planned { index, template, set };
        let set = match self.narrow(class, step, joined, host) {
            Ok(set) => set,
            Err(is_final) => {
                if is_final {
                    self.classes[class.index()].variants[step]
                        .failed_claims
                        .grow_and_insert(index);
                }
                return None;
            }
        };
        let claim = &self.claims[index];
        let total = claim.requests.plus(requests);
        let mut types = claim.types.clone();
        let template = &mut self.templates[claim.template];
        if set != claim.set {
            types.intersect_with(&template.facts(set, &self.algebra).both);
        }
        if types.is_clear() {
            return None;
        }
        let variant = &self.classes[class.index()].variants[step];
        let ports: Vec<HostPort> = claim
            .ports
            .iter()
            .chain(&variant.constraints.host_ports)
            .cloned()
            .collect();
        template.keep_fitting(&mut types, &total, &ports);
        if types.is_clear() {
            return None;
        }
        let wanted = self.algebra.get(set);
        if wanted.has_min_values() && template.check_min_values(&types, wanted).is_err() {
            return None;
        }
        let (template, held) = (self.claims[index].template, self.claims[index].reserved.clone());
        let reserved = self.reserve(&held, template, set, &types)?;
        Some(Acceptance { set, types, reserved })
    }

    /// The reservations a claim holds or can get with these types; `None` when reserved capacity must not be passed over and there is none
    /// to be had (P §6.12).
    fn reserve(
        &mut self,
        held: &BTreeSet<(String, String)>,
        template: usize,
        set: SetId,
        types: &FixedBitSet,
    ) -> Option<BTreeSet<(String, String)>> {
        if self.reservations.is_empty() {
            return Some(BTreeSet::new());
        }
        let facts = self.templates[template].facts(set, &self.algebra);
        let mut reserved = self.templates[template].reservations(types, &facts);
        let exist = !reserved.is_empty();
        reserved.retain(|id| held.contains(id) || self.reservations.get(id).is_some_and(|left| *left > 0));
        let passed_over = reserved.is_empty() && (exist || !held.is_empty());
        (self.options.reserved == ReservedPolicy::Fallback || !passed_over).then_some(reserved)
    }

    /// Applies volume alternatives and topology to a joined requirement set.
    fn narrow(
        &mut self,
        class: ClassId,
        step: usize,
        joined: SetId,
        host: impl Fn(SetId) -> Host,
    ) -> Result<SetId, bool> {
        let variant = &self.classes[class.index()].variants[step];
        if variant.plain && variant.volume_sets.is_empty() {
            return Ok(joined);
        }
        let alternatives: Vec<Option<SetId>> = if variant.volume_sets.is_empty() {
            vec![None]
        } else {
            variant.volume_sets.iter().copied().map(Some).collect()
        };
        let mut is_final = true;
        for alternative in alternatives {
            let base = match alternative {
                None => Some(joined),
                Some(volume) => self.algebra.join(joined, volume),
            };
            let Some(base) = base else { continue };
            let variant = &self.classes[class.index()].variants[step];
            match self.topology.narrow(
                class,
                &variant.bindings,
                variant.strict,
                host(base),
                &mut self.algebra,
            ) {
                Ok(set) => return Ok(set.unwrap_or(base)),
                Err(refusal) => is_final &= refusal.final_,
            }
        }
        Err(is_final)
    }

    /// Exchanges the reservations a claim holds: those no longer compatible are released.
    fn hold(&mut self, index: usize, reserved: BTreeSet<(String, String)>) {
        let held = std::mem::replace(&mut self.claims[index].reserved, reserved);
        let reserved = &self.claims[index].reserved;
        for id in held.difference(reserved) {
            *self.reservations.entry(id.clone()).or_insert(0) += 1;
        }
        for id in reserved.difference(&held) {
            *self.reservations.entry(id.clone()).or_insert(0) -= 1;
        }
    }

    fn put_on_claim(
        &mut self,
        pod: PodId,
        class: ClassId,
        step: usize,
        index: usize,
        acceptance: Acceptance,
    ) {
        let Acceptance { set, types, reserved } = acceptance;
        self.hold(index, reserved);
        let requests = self.snapshot.requests(pod);
        let claim = &mut self.claims[index];
        let count = claim.pods.len();
        claim.requests.add(requests);
        claim.pods.push(pod);
        claim.set = set;
        let variant = &self.classes[class.index()].variants[step];
        claim.ports.extend(variant.constraints.host_ports.iter().cloned());
        claim.headroom = self.templates[claim.template].headroom(&types, self.width);
        claim.headroom.subtract(&claim.requests);
        claim.types = types;
        if let Some(bucket) = self.buckets.get_mut(count)
            && bucket.contains(index)
        {
            bucket.set(index, false);
        }
        if self.buckets.len() <= count + 1 {
            self.buckets.resize_with(count + 2, FixedBitSet::new);
        }
        self.buckets[count + 1].grow_and_insert(index);
        self.topology
            .set_claim(index, self.claims[index].template, set, &self.algebra);
        if !variant.plain {
            let host = Host::Planned {
                index,
                template: self.claims[index].template,
                set,
            };
            self.topology
                .record(self.snapshot, class, &variant.bindings, host, &self.algebra);
        }
    }

    fn try_new_claim(&mut self, pod: PodId, class: ClassId, step: usize) -> Result<(), Miss> {
        let request_id = self.snapshot.pod(pod).request;
        if self.classes[class.index()].variants[step]
            .closed
            .contains(&request_id)
        {
            return Err(Miss::Final);
        }
        let mut is_final = true;
        for template in 0..self.templates.len() {
            match self.open_on(pod, class, step, template) {
                Ok(opening) => {
                    let index = self.open_claim(template, opening.relaxed_min_values);
                    self.put_on_claim(pod, class, step, index, opening.acceptance);
                    self.charge(index);
                    return Ok(());
                }
                // No lighter pool may win over reserved capacity of a heavier one.
                Err((Obstacle::ReservedOfferings, _)) => return Err(Miss::Reserved),
                Err((_, template_is_final)) => is_final &= template_is_final,
            }
        }
        if !is_final {
            return Err(Miss::Open);
        }
        self.classes[class.index()].variants[step]
            .closed
            .insert(request_id);
        Err(Miss::Final)
    }

    /// Whether a template could open a claim for the pod; otherwise the obstacle, and whether it is final.
    fn open_on(
        &mut self,
        pod: PodId,
        class: ClassId,
        step: usize,
        template: usize,
    ) -> Result<Opening, (Obstacle, bool)> {
        let requests = self.snapshot.requests(pod);
        let pool = self.snapshot.pool(self.templates[template].pool);
        if self.remaining[template].nodes.is_some_and(|left| left <= 0) {
            return Err((Obstacle::NodeLimit, true));
        }
        let mut candidates = self.templates[template].eligible.clone();
        self.templates[template].keep_within(&mut candidates, &self.remaining[template].resources);
        if candidates.is_clear() {
            return Err((Obstacle::Limits, true));
        }
        let variant = &self.classes[class.index()].variants[step];
        if !variant.templates.contains(template) {
            let taint = taint::first_untolerated(&pool.taints, &variant.constraints.tolerations);
            return Err((
                Obstacle::Taint(taint.map(taint::format_taint).unwrap_or_default()),
                true,
            ));
        }
        let base = self.templates[template].set;
        let Some(joined) = self.algebra.join(base, variant.all) else {
            let why = self.algebra.why_not(base, variant.all);
            return Err((why.map_or(Obstacle::NodeResources, Obstacle::Incompatible), true));
        };
        let index = self.claims.len();
        let set = match self.narrow(class, step, joined, |set| Host::Planned { index, template, set }) {
            Ok(set) => set,
            Err(is_final) => {
                return Err((
                    self.explain_narrow(class, step, joined, index, template),
                    is_final,
                ));
            }
        };
        let variant = &self.classes[class.index()].variants[step];
        let ports = &variant.constraints.host_ports;
        let facts = self.templates[template].facts(set, &self.algebra);
        let mut types = candidates.clone();
        types.intersect_with(&facts.both);
        self.templates[template].keep_fitting(&mut types, requests, ports);
        let refuse = |failure| self.filter_obstacle(template, set, requests, failure);
        if types.is_clear() {
            let failure = self.templates[template].explain(&candidates, &facts, requests, ports);
            // A domain chosen by topology may be another one next time.
            return Err((refuse(failure), set == joined || variant.plain));
        }
        let wanted = self.algebra.get(set);
        let mut relaxed = BTreeMap::new();
        if wanted.has_min_values()
            && let Err(reached) = self.templates[template].check_min_values(&types, wanted)
        {
            match self.options.min_values {
                MinValuesPolicy::Strict => {
                    return Err((
                        refuse(FilterFailure::MinValues(reached)),
                        set == joined || variant.plain,
                    ));
                }
                MinValuesPolicy::BestEffort => relaxed = reached,
            }
        }
        let set = if relaxed.is_empty() {
            set
        } else {
            self.lower_min_values(set, &relaxed)
        };
        let Some(reserved) = self.reserve(&BTreeSet::new(), template, set, &types) else {
            return Err((Obstacle::ReservedOfferings, false));
        };
        Ok(Opening {
            acceptance: Acceptance { set, types, reserved },
            relaxed_min_values: relaxed,
        })
    }

    fn lower_min_values(&mut self, set: SetId, reached: &BTreeMap<String, u32>) -> SetId {
        let mut lowered = self.algebra.get(set).clone();
        for (key, count) in reached {
            if let Some(mut requirement) = lowered.find(key).cloned() {
                requirement.set_min_values(Some(*count));
                lowered.replace(requirement);
            }
        }
        self.algebra.intern(lowered)
    }

    fn filter_obstacle(
        &self,
        template: usize,
        set: SetId,
        requests: &ResourceVector,
        failure: FilterFailure,
    ) -> Obstacle {
        let totals: Vec<ResourceVector> = self.templates[template]
            .groups
            .iter()
            .map(|group| requests.plus(&group.overhead))
            .collect();
        let fold = |pick: fn(&mut ResourceVector, &ResourceVector)| {
            let folded = totals.iter().cloned().reduce(|mut all, next| {
                pick(&mut all, &next);
                all
            });
            self.snapshot
                .resources
                .resources(&folded.unwrap_or_else(|| requests.clone()))
        };
        Obstacle::InstanceTypes {
            failure,
            requirements: super::finish::shown(self.algebra.get(set)),
            min: fold(ResourceVector::lower_to),
            max: fold(ResourceVector::raise_to),
        }
    }

    fn explain_narrow(
        &mut self,
        class: ClassId,
        step: usize,
        joined: SetId,
        index: usize,
        template: usize,
    ) -> Obstacle {
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
        let host = Host::Planned {
            index,
            template,
            set: base,
        };
        match self
            .topology
            .narrow(class, &variant.bindings, variant.strict, host, &mut self.algebra)
        {
            Err(refusal) => self
                .topology
                .explain(refusal, variant.strict, base, &self.algebra),
            Ok(_) => Obstacle::NodeResources,
        }
    }

    pub(super) fn explain(&mut self, pod: PodId, class: ClassId, step: usize) -> Failure {
        let mut failure = Failure {
            refusals: Vec::new(),
            is_final: true,
        };
        for template in 0..self.templates.len() {
            if let Err((obstacle, is_final)) = self.open_on(pod, class, step, template) {
                let pool = self.snapshot.pool(self.templates[template].pool).name.clone();
                failure.is_final &= is_final;
                failure.refusals.push(PoolRefusal { pool, obstacle });
            }
        }
        // A pod bound by topology to existing or planned hosts may find one later.
        failure.is_final &= self.classes[class.index()].variants[step]
            .bindings
            .groups
            .is_empty();
        failure
    }

    fn open_claim(&mut self, template: usize, relaxed_min_values: BTreeMap<String, u32>) -> usize {
        self.claims.push(Claim {
            template,
            set: self.templates[template].set,
            types: FixedBitSet::new(),
            requests: ResourceVector::zero(self.width),
            headroom: ResourceVector::zero(self.width),
            ports: Vec::new(),
            pods: Vec::new(),
            reserved: BTreeSet::new(),
            relaxed_min_values,
        });
        self.claims.len() - 1
    }
}
