//! One NodePool as a source of new nodes: its instance types, indexed so that "which types could still be it" is a few bit operations
//! (P §6.1, §6.6).
//!
//! A *variant* is an instance type under one of its allocatable groups; without offering overrides there is one per type. Complexity:
//! `fits` is O(resources × words); `facts` is O(1) once a requirement set was seen, O(distinct values × words) the first time.

mod domains;
mod index;
mod numbers;
mod tables;

use crate::algebra::{Algebra, SetId};
use crate::bits::Bits;
pub(crate) use numbers::Numbers;
use smallvec::SmallVec;
use spokeshave_model::placement::Launch;
use spokeshave_model::reason::FilterFailure;
use spokeshave_model::snapshot::{PoolId, Snapshot};
use spokeshave_model::vector::{CPU, ResourceTable, ResourceVector};
use spokeshave_model::{InstanceType, Price, Requirement, Requirements, labels};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
pub use tables::TypeTables;

/// A limit that is not there.
pub(crate) const UNLIMITED: i64 = i64::MAX;

/// Not worked out yet.
const UNKNOWN: u32 = u32::MAX;

/// Reservations by number.
pub(crate) type Reservations = SmallVec<[u32; 4]>;

#[derive(Clone, Debug)]
struct Variant {
    instance_type: u32,
    capacity: ResourceVector,
    /// (distinct offering requirements, price), available ones only.
    offerings: Vec<(u32, Price)>,
}

/// Equal offering requirements, and the variants that can be bought under them now.
#[derive(Clone, Debug)]
struct Offer {
    /// Where an offering with these requirements is.
    at: OfferingAt,
    members: Bits,
    /// The reservation behind it, by position in the index.
    reservation: Option<u32>,
}

/// The position of an instance type, and that of an offering in it.
#[derive(Clone, Copy, Debug)]
struct OfferingAt(u32, u32);

/// Variants ordered by one resource: which have at least so much.
#[derive(Clone, Debug)]
struct Rank {
    values: Vec<i64>,
    at_least: Vec<Bits>,
}

/// What the types of a template say about one label key.
#[derive(Clone, Debug)]
struct KeyIndex {
    undefined: Bits,
    distinct: Vec<(Requirement, Bits)>,
}

/// Types on which exactly the same DaemonSets would run (P-095).
#[derive(Clone, Debug)]
pub(crate) struct DaemonGroup {
    pub(crate) overhead: ResourceVector,
    /// Host ports of the DaemonSets, by number.
    pub(crate) host_ports: Vec<u32>,
    members: Bits,
}

/// Which variants satisfy a requirement set, and which have an available offering compatible with it.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) requirements: Bits,
    pub(crate) offering: Bits,
    pub(crate) both: Bits,
    /// Compatible offers.
    offers: Vec<usize>,
    /// Those of them that draw on a reservation.
    reserved: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) pool: PoolId,
    pub(crate) set: SetId,
    pub(crate) eligible: Bits,
    pub(crate) groups: Vec<DaemonGroup>,
    index: Arc<TypeIndex>,
    /// The number of each reservation of the index.
    reservation_numbers: Vec<u32>,
    facts: Vec<Facts>,
    /// Position in `facts` of each requirement set; `UNKNOWN` when not asked yet.
    facts_of: Vec<u32>,
}

/// What NodePools with the same instance types share.
#[derive(Debug)]
pub(crate) struct TypeIndex {
    types: Arc<[InstanceType]>,
    table: ResourceTable,
    variants: Vec<Variant>,
    /// Variants whose allocatable amounts are not negative.
    usable: Bits,
    /// Variants ordered by what pods can use.
    ranks: Vec<Rank>,
    /// Variants ordered by capacity, for limits.
    capacities: Vec<Rank>,
    keys: BTreeMap<String, KeyIndex>,
    offers: Vec<Offer>,
    /// What is sold at other times, likewise: it has its domains all the same.
    sold_out: Vec<Offer>,
    /// An offering of each reservation.
    reservations: Vec<OfferingAt>,
    /// Largest capacity of any variant, to see quickly whether a limit matters at all.
    largest: ResourceVector,
}

/// Why a NodePool gives no template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SkippedPool {
    /// It is not dynamic, not ready, being deleted, or of a kind the provider does not support (P-059).
    NotProvisionable,
    /// Its instance types are not known (P-061).
    NoInstanceTypes,
    /// Its own requirements leave no instance type (event NoCompatibleInstanceTypes).
    NoCompatibleInstanceTypes {
        /// Whether minValues was the cause.
        min_values: bool,
    },
}

impl Template {
    /// The template of a NodePool. One whose own instance types do not reach its minValues is skipped, unless they are relaxed: then its NodeClaims
    /// ask for what can be reached (P-120).
    pub(crate) fn build<'a>(
        snapshot: &'a Snapshot,
        pool: PoolId,
        relax_min_values: bool,
        algebra: &mut Algebra<'a>,
        numbers: &mut Numbers<'a>,
        tables: &TypeTables,
    ) -> Result<Self, SkippedPool> {
        let view = snapshot.pool(pool);
        if !view.is_provisionable() {
            return Err(SkippedPool::NotProvisionable);
        }
        if view.instance_types.is_empty() {
            return Err(SkippedPool::NoInstanceTypes);
        }
        let mut requirements = view.requirements.clone();
        // Present only so that DaemonSets selecting on them count; they never reach a NodeClaim (P-069).
        requirements.add(Requirement::is(labels::REGISTERED, "true"));
        requirements.add(Requirement::is(labels::INITIALIZED, "true"));
        requirements.add(Requirement::is(labels::HOSTNAME, labels::PLANNED_HOST));
        let set = algebra.intern(requirements);
        let index = tables.index(&view.instance_types, &snapshot.resources);
        let reservations = index.reservations.iter().filter_map(|at| {
            let offering = at.find(&view.instance_types);
            let label = offering.reservation_id_label.as_deref();
            label.zip(offering.reservation_id())
        });
        let reservation_numbers = reservations.map(|name| numbers.reservation(name)).collect();
        let mut template = Template {
            pool,
            set,
            eligible: index.usable.clone(),
            groups: Vec::new(),
            index,
            reservation_numbers,
            facts: Vec::new(),
            facts_of: Vec::new(),
        };
        let facts = template.facts(set, algebra);
        template.eligible.intersect(&template.facts[facts].both);
        let min_values = algebra.get(set);
        if template.eligible.is_clear() {
            return Err(SkippedPool::NoCompatibleInstanceTypes { min_values: false });
        }
        let survivors = template.type_indexes(&template.eligible);
        if !relax_min_values
            && min_values
                .satisfies_min_values(survivors.iter().map(|index| &template.index.types[*index]))
                .is_err()
        {
            return Err(SkippedPool::NoCompatibleInstanceTypes { min_values: true });
        }
        template.group_daemons(snapshot, algebra, numbers);
        Ok(template)
    }

    /// Which variants go with a requirement set: a number for `fact`.
    pub(crate) fn facts(&mut self, set: SetId, algebra: &Algebra<'_>) -> usize {
        if let Some(known) = self.facts_of.get(set.index()).filter(|known| **known != UNKNOWN) {
            return *known as usize;
        }
        let asked = algebra.get(set);
        let mut requirements = self.matching_types(asked);
        if self.lacks_label(asked, algebra) {
            requirements.clear();
        }
        let mut offering = Bits::new(self.index.variants.len());
        let (mut offers, mut reserved) = (Vec::new(), Vec::new());
        for (index, offer) in self.index.offers.iter().enumerate() {
            let declared = self.index.requirements(offer);
            if asked.compatible(declared, algebra.well_known()).is_ok() {
                offering.union(&offer.members);
                offers.push(index);
                if offer.reservation.is_some() {
                    reserved.push(index);
                }
            }
        }
        let mut both = requirements.clone();
        both.intersect(&offering);
        if self.facts_of.len() <= set.index() {
            self.facts_of.resize(set.index() + 1, UNKNOWN);
        }
        self.facts_of[set.index()] = self.facts.len() as u32;
        self.facts.push(Facts {
            requirements,
            offering,
            both,
            offers,
            reserved,
        });
        self.facts.len() - 1
    }

    pub(crate) fn fact(&self, facts: usize) -> &Facts {
        &self.facts[facts]
    }

    /// Whether a well-known label is demanded that neither the NodePool nor any instance type declares: its nodes would come up without it.
    fn lacks_label(&self, asked: &Requirements, algebra: &Algebra<'_>) -> bool {
        let own = algebra.get(self.set);
        asked.iter().any(|one| {
            let key = one.key();
            let by_pool = || own.find(key).is_some_and(|own| !own.is_satisfied_by_absence());
            !one.is_satisfied_by_absence()
                && algebra.well_known().contains(key)
                && !by_pool()
                && !self.index.declares(key)
        })
    }

    fn matching_types(&self, asked: &Requirements) -> Bits {
        let mut matching = Bits::full(self.index.variants.len());
        for requirement in asked.iter() {
            let Some(index) = self.index.keys.get(requirement.key()) else {
                continue;
            };
            let mut ok = index.undefined.clone();
            for (declared, members) in &index.distinct {
                let absent = declared.is_satisfied_by_absence() && requirement.is_satisfied_by_absence();
                if absent || declared.has_intersection(requirement) {
                    ok.union(members);
                }
            }
            matching.intersect(&ok);
        }
        matching
    }

    fn at_least(&self, need: &ResourceVector, overhead: &ResourceVector, into: &mut Bits) {
        for ((rank, need), overhead) in self.index.ranks.iter().zip(&need.0).zip(&overhead.0) {
            let need = need.saturating_add(*overhead);
            let position = rank.values.partition_point(|value| *value < need);
            match rank.at_least.get(position) {
                Some(_) if position == 0 => {}
                Some(enough) => into.intersect(enough),
                None => into.clear(),
            }
        }
    }

    /// Keeps of `candidates` the variants that hold `requests` beside their daemons, given the host ports (by number) that are asked for.
    pub(crate) fn keep_fitting(
        &self,
        candidates: &mut Bits,
        requests: &ResourceVector,
        ports: &[u32],
        numbers: &Numbers<'_>,
    ) {
        if let [only] = self.groups.as_slice() {
            if numbers.conflict(&only.host_ports, ports) {
                candidates.clear();
            } else {
                self.at_least(requests, &only.overhead, candidates);
            }
            return;
        }
        let mut fitting = Bits::new(self.index.variants.len());
        for group in &self.groups {
            if numbers.conflict(&group.host_ports, ports) {
                continue;
            }
            let mut members = group.members.clone();
            members.intersect(candidates);
            self.at_least(requests, &group.overhead, &mut members);
            fitting.union(&members);
        }
        candidates.copy_from(&fitting);
    }

    /// An upper bound on what each candidate can hold beside its daemons: more than this fits nowhere. O(resources × log types × words).
    pub(crate) fn set_headroom(&self, candidates: &Bits, width: usize, bound: &mut ResourceVector) {
        bound.0.resize(width, 0);
        for (resource, rank) in self.index.ranks.iter().enumerate() {
            let overheads = self.groups.iter().map(|group| group.overhead[resource]);
            let least_overhead = overheads.min().unwrap_or(0);
            bound.0[resource] = rank
                .largest(candidates)
                .map_or(i64::MIN, |largest| largest.saturating_sub(least_overhead));
        }
    }

    /// Drops variants with any capacity above what a limit leaves; `UNLIMITED` for resources without a limit. O(resources × words).
    pub(crate) fn keep_within(&self, candidates: &mut Bits, remaining: &[i64]) {
        for ((left, largest), rank) in remaining
            .iter()
            .zip(&self.index.largest.0)
            .zip(&self.index.capacities)
        {
            if largest > left {
                let position = rank.values.partition_point(|value| value <= left);
                if let Some(above) = rank.at_least.get(position) {
                    candidates.subtract(above);
                }
            }
        }
    }

    /// The largest capacity per resource over the candidates: what limits are charged with (P-093).
    pub(crate) fn largest_capacity(&self, candidates: &Bits, resource: usize) -> i64 {
        self.index.capacities[resource].largest(candidates).unwrap_or(0)
    }

    /// The least daemon overhead over groups that still have a candidate (P-095).
    pub(crate) fn least_overhead(&self, candidates: &Bits) -> Option<ResourceVector> {
        let live = self
            .groups
            .iter()
            .filter(|group| !group.members.is_disjoint(candidates));
        live.map(|group| group.overhead.clone())
            .reduce(|mut least, overhead| {
                least.lower_to(&overhead);
                least
            })
    }

    /// Distinct instance types of a set of variants, in the provider's order.
    pub(crate) fn type_indexes(&self, variants: &Bits) -> Vec<usize> {
        let mut indexes: Vec<usize> = variants
            .ones()
            .map(|variant| self.index.variants[variant].instance_type as usize)
            .collect();
        indexes.dedup();
        indexes
    }

    /// The instance type at an index.
    pub(crate) fn instance_type(&self, index: usize) -> &InstanceType {
        &self.index.types[index]
    }

    /// Checks minValues of a set against the candidates, in the provider's order. `facts` are those of the set: a NodeClaim names the capacity types that
    /// are to be had (P-067), and must not name fewer than it asks for.
    pub(crate) fn check_min_values(
        &self,
        candidates: &Bits,
        requirements: &Requirements,
        facts: usize,
    ) -> Result<(), BTreeMap<String, u32>> {
        let types = self.type_indexes(candidates);
        let checked = requirements.satisfies_min_values(types.iter().map(|index| &self.index.types[*index]));
        if let Some(minimum) = requirements.min_values(labels::CAPACITY_TYPE) {
            let reached = self.capacity_types(candidates, facts).len() as u32;
            if reached < minimum {
                let mut failing = checked.err().unwrap_or_default();
                failing.insert(labels::CAPACITY_TYPE.to_owned(), reached);
                return Err(failing);
            }
        }
        checked.map(drop)
    }

    /// Candidates by cheapest available offering compatible with the requirements, cheapest first; ties keep the provider's order.
    pub(crate) fn by_price(&self, candidates: &Bits, facts: usize) -> Vec<Launch> {
        let mut compatible = vec![false; self.index.offers.len()];
        for offer in &self.facts[facts].offers {
            compatible[*offer] = true;
        }
        let mut launches: Vec<(Price, usize, Option<u32>)> = Vec::new();
        for variant in candidates.ones() {
            let entry = &self.index.variants[variant];
            let usable = entry
                .offerings
                .iter()
                .filter(|(offer, _)| compatible[*offer as usize]);
            let best = usable.min_by_key(|(_, price)| *price);
            let (offer, price) = best.map_or((None, Price::MAX), |(offer, price)| (Some(*offer), *price));
            let instance_type = entry.instance_type as usize;
            match launches.last_mut() {
                Some(last) if last.1 == instance_type => *last = (*last).min((price, instance_type, offer)),
                _ => launches.push((price, instance_type, offer)),
            }
        }
        launches.sort_by_key(|(price, instance_type, _)| (*price, *instance_type));
        let value = |offer: Option<u32>, key: &str| {
            let requirements = self.index.requirements(&self.index.offers[offer? as usize]);
            requirements
                .find(key)
                .and_then(Requirement::single_value)
                .map(ToOwned::to_owned)
        };
        launches
            .into_iter()
            .map(|(price, instance_type, offer)| Launch {
                instance_type,
                zone: value(offer, labels::ZONE),
                capacity_type: value(offer, labels::CAPACITY_TYPE).and_then(|text| text.parse().ok()),
                price,
            })
            .collect()
    }

    /// Capacity types available among the candidates under the requirements.
    pub(crate) fn capacity_types(&self, candidates: &Bits, facts: usize) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for offer in &self.facts[facts].offers {
            let offer = &self.index.offers[*offer];
            if !offer.members.is_disjoint(candidates) {
                let declared = self.index.requirements(offer);
                let values = declared.find(labels::CAPACITY_TYPE).into_iter();
                found.extend(values.flat_map(|requirement| requirement.values().iter().cloned()));
            }
        }
        found
    }

    /// The reservations, by number and in order, that the candidates could draw on (P §6.12).
    pub(crate) fn reservations(&self, candidates: &Bits, facts: usize, into: &mut Reservations) {
        into.clear();
        for offer in self.facts[facts]
            .reserved
            .iter()
            .map(|index| &self.index.offers[*index])
        {
            if let Some(reservation) = offer
                .reservation
                .filter(|_| !offer.members.is_disjoint(candidates))
            {
                into.push(self.reservation_numbers[reservation as usize]);
            }
        }
        into.sort_unstable();
        into.dedup();
    }

    /// Whether a type can have different allocatable amounts under different offerings.
    pub(crate) fn has_overrides(&self) -> bool {
        self.index.variants.len() != self.index.types.len()
    }

    /// The first matching row of the decision table of P §6.6, for candidates none of which passes.
    pub(crate) fn explain(
        &self,
        candidates: &Bits,
        facts: &Facts,
        requests: &ResourceVector,
        ports: &[u32],
        numbers: &Numbers<'_>,
    ) -> FilterFailure {
        let mut fitting = candidates.clone();
        self.keep_fitting(&mut fitting, requests, ports, numbers);
        fitting.intersect(&facts.offering);
        let per_type = |variants: &Bits| {
            let mut kept = variants.clone();
            kept.intersect(candidates);
            let indexes = self.type_indexes(&kept);
            Bits::of(self.index.types.len(), indexes)
        };
        let (met, fits, offered) = (
            per_type(&facts.requirements),
            per_type(&fitting),
            per_type(&facts.offering),
        );
        let only = |left: &Bits, right: &Bits, not: &Bits| {
            let mut rest = left.clone();
            rest.intersect(right);
            rest.subtract(not);
            !rest.is_clear()
        };
        match (met.is_clear(), fits.is_clear(), offered.is_clear()) {
            (true, true, true) => FilterFailure::Nothing,
            (true, true, false) => FilterFailure::RequirementsOrResources,
            (true, false, true) => FilterFailure::RequirementsOrOffering,
            (false, true, true) => FilterFailure::ResourcesOrOffering,
            (true, false, false) => FilterFailure::Requirements,
            (false, true, false) => FilterFailure::Resources {
                cpu_typo: requests[CPU] >= 1_000_000_000,
            },
            (false, false, true) => FilterFailure::Offering,
            _ if only(&met, &fits, &offered) => FilterFailure::OnlyOfferingMissing,
            _ if only(&fits, &offered, &met) => FilterFailure::OnlyRequirementsMissing,
            _ if only(&met, &offered, &fits) => FilterFailure::OnlyResourcesMissing,
            _ => FilterFailure::NoTuple,
        }
    }
}

impl Rank {
    fn new(count: usize, amounts: &[i64]) -> Self {
        let mut order: Vec<(i64, usize)> = amounts.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let (mut values, mut at_least) = (Vec::new(), Vec::new());
        let mut so_far = Bits::new(count);
        for run in order.chunk_by(|left, right| left.0 == right.0).rev() {
            run.iter().for_each(|(_, variant)| so_far.insert(*variant));
            values.push(run[0].0);
            at_least.push(so_far.clone());
        }
        values.reverse();
        at_least.reverse();
        Rank { values, at_least }
    }

    /// The largest value among some variants: the sets shrink as the rank grows, so it is that of the last one that meets them.
    fn largest(&self, candidates: &Bits) -> Option<i64> {
        let position = self
            .at_least
            .partition_point(|at_least| !at_least.is_disjoint(candidates));
        position.checked_sub(1).map(|last| self.values[last])
    }
}
