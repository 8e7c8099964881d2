//! One NodePool as a source of new nodes: its instance types, indexed so that "which types could still be it" is a few bit operations
//! (P §6.1, §6.6).
//!
//! A *variant* is an instance type under one of its allocatable groups; without offering overrides there is one per type. Complexity:
//! `fits` is O(resources × words); `facts` is O(1) once a requirement set was seen, O(distinct values × words) the first time.

mod index;

use crate::algebra::{Algebra, SetId};
use fixedbitset::FixedBitSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::constraints::HostPort;
use spokeshave_model::placement::Launch;
use spokeshave_model::reason::FilterFailure;
use spokeshave_model::snapshot::{DaemonView, PoolId, Snapshot};
use spokeshave_model::vector::{CPU, ResourceVector};
use spokeshave_model::{InstanceType, Price, Requirement, Requirements, labels};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// The hostname of a node that has none yet.
const HOSTNAME_PLACEHOLDER: &str = "hostname-placeholder";

#[derive(Debug)]
struct Variant {
    instance_type: u32,
    capacity: ResourceVector,
    /// (distinct offering requirements, price), available ones only.
    offerings: Vec<(u32, Price)>,
}

/// Equal offering requirements, and the variants that can be bought under them now.
#[derive(Debug)]
struct Offer<'a> {
    requirements: &'a Requirements,
    members: FixedBitSet,
    /// The reservation behind it: label and ID.
    reservation: Option<(&'a str, &'a str)>,
}

/// Variants ordered by one resource: which have at least so much.
#[derive(Debug)]
struct Rank {
    values: Vec<i64>,
    at_least: Vec<FixedBitSet>,
}

/// What the types of a template say about one label key.
#[derive(Debug)]
struct KeyIndex {
    undefined: FixedBitSet,
    distinct: Vec<(Requirement, FixedBitSet)>,
}

/// Types on which exactly the same DaemonSets would run (P-095).
#[derive(Debug)]
pub(crate) struct DaemonGroup {
    pub(crate) overhead: ResourceVector,
    pub(crate) host_ports: Vec<HostPort>,
    members: FixedBitSet,
}

/// Which variants satisfy a requirement set, and which have an available offering compatible with it.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) requirements: FixedBitSet,
    pub(crate) offering: FixedBitSet,
    pub(crate) both: FixedBitSet,
    /// Compatible offers that draw on a reservation.
    reserved: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Template<'a> {
    pub(crate) pool: PoolId,
    pub(crate) set: SetId,
    pub(crate) eligible: FixedBitSet,
    pub(crate) groups: Vec<DaemonGroup>,
    types: Arc<[InstanceType]>,
    variants: Vec<Variant>,
    ranks: Vec<Rank>,
    keys: BTreeMap<String, KeyIndex>,
    offers: Vec<Offer<'a>>,
    facts: FxHashMap<SetId, Rc<Facts>>,
    /// Largest capacity of any variant, to see quickly whether a limit matters at all.
    pub(crate) largest: ResourceVector,
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

impl<'a> Template<'a> {
    pub(crate) fn build(
        snapshot: &'a Snapshot,
        pool: PoolId,
        algebra: &mut Algebra<'a>,
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
        requirements.add(Requirement::is(labels::HOSTNAME, HOSTNAME_PLACEHOLDER));
        let set = algebra.intern(requirements);
        let table = &snapshot.resources;
        let mut template = Template {
            pool,
            set,
            eligible: FixedBitSet::new(),
            groups: Vec::new(),
            types: Arc::clone(&view.instance_types),
            variants: Vec::new(),
            ranks: Vec::new(),
            keys: BTreeMap::new(),
            offers: Vec::new(),
            facts: FxHashMap::with_hasher(FxBuildHasher),
            largest: ResourceVector::zero(table.width()),
        };
        template.index_variants(&view.instance_types, table);
        template.index_keys();
        let facts = template.facts(set, algebra);
        template.eligible.intersect_with(&facts.both);
        let min_values = algebra.get(set);
        if template.eligible.is_clear() {
            return Err(SkippedPool::NoCompatibleInstanceTypes { min_values: false });
        }
        let survivors = template.type_indexes(&template.eligible);
        if min_values
            .satisfies_min_values(survivors.iter().map(|index| &template.types[*index]))
            .is_err()
        {
            return Err(SkippedPool::NoCompatibleInstanceTypes { min_values: true });
        }
        template.group_daemons(snapshot, algebra);
        Ok(template)
    }

    /// Which variants go with a requirement set.
    pub(crate) fn facts(&mut self, set: SetId, algebra: &Algebra<'_>) -> Rc<Facts> {
        if let Some(known) = self.facts.get(&set) {
            return Rc::clone(known);
        }
        let asked = algebra.get(set);
        let requirements = self.matching_types(asked);
        let mut offering = FixedBitSet::with_capacity(self.variants.len());
        let mut reserved = Vec::new();
        for (index, offer) in self.offers.iter().enumerate() {
            if asked.compatible(offer.requirements, algebra.well_known()).is_ok() {
                offering.union_with(&offer.members);
                if offer.reservation.is_some() {
                    reserved.push(index);
                }
            }
        }
        let mut both = requirements.clone();
        both.intersect_with(&offering);
        let facts = Rc::new(Facts {
            requirements,
            offering,
            both,
            reserved,
        });
        self.facts.insert(set, Rc::clone(&facts));
        facts
    }

    fn matching_types(&self, asked: &Requirements) -> FixedBitSet {
        let mut matching = bits(self.variants.len(), 0..self.variants.len());
        for requirement in asked.iter() {
            let Some(index) = self.keys.get(requirement.key()) else {
                continue;
            };
            let mut ok = index.undefined.clone();
            for (declared, members) in &index.distinct {
                let absent = declared.is_satisfied_by_absence() && requirement.is_satisfied_by_absence();
                if absent || declared.has_intersection(requirement) {
                    ok.union_with(members);
                }
            }
            matching.intersect_with(&ok);
        }
        matching
    }

    fn at_least(&self, need: &ResourceVector, into: &mut FixedBitSet) {
        for (rank, need) in self.ranks.iter().zip(&need.0) {
            let position = rank.values.partition_point(|value| value < need);
            match rank.at_least.get(position) {
                Some(_) if position == 0 => {}
                Some(enough) => into.intersect_with(enough),
                None => into.clear(),
            }
        }
    }

    /// Keeps of `candidates` the variants that hold `requests` beside their daemons.
    pub(crate) fn keep_fitting(
        &self,
        candidates: &mut FixedBitSet,
        requests: &ResourceVector,
        ports: &[HostPort],
    ) {
        if let [only] = self.groups.as_slice() {
            if only.conflicts(ports) {
                candidates.clear();
            } else {
                self.at_least(&requests.plus(&only.overhead), candidates);
            }
            return;
        }
        let mut fitting = FixedBitSet::with_capacity(self.variants.len());
        for group in self.groups.iter().filter(|group| !group.conflicts(ports)) {
            let mut members = group.members.clone();
            members.intersect_with(candidates);
            self.at_least(&requests.plus(&group.overhead), &mut members);
            fitting.union_with(&members);
        }
        candidates.clone_from(&fitting);
    }

    /// An upper bound on what each candidate can hold beside its daemons: more than this fits nowhere. O(resources × ranks).
    pub(crate) fn headroom(&self, candidates: &FixedBitSet, width: usize) -> ResourceVector {
        let mut bound = ResourceVector::zero(width);
        for (resource, rank) in self.ranks.iter().enumerate() {
            // The sets shrink as the rank grows, so the last one that meets the candidates holds the largest value.
            let position = rank
                .at_least
                .partition_point(|at_least| !at_least.is_disjoint(candidates));
            let least_overhead = self
                .groups
                .iter()
                .map(|group| group.overhead[resource])
                .min()
                .unwrap_or(0);
            bound.0[resource] = position
                .checked_sub(1)
                .map_or(i64::MIN, |last| rank.values[last].saturating_sub(least_overhead));
        }
        bound
    }

    /// Drops variants with any capacity above what a limit leaves.
    pub(crate) fn keep_within(&self, candidates: &mut FixedBitSet, remaining: &[Option<i64>]) {
        let matters = remaining
            .iter()
            .zip(&self.largest.0)
            .any(|(left, largest)| left.is_some_and(|left| *largest > left));
        if !matters {
            return;
        }
        for variant in candidates.ones().collect::<Vec<_>>() {
            let capacity = &self.variants[variant].capacity;
            if capacity
                .0
                .iter()
                .zip(remaining)
                .any(|(amount, left)| left.is_some_and(|left| *amount > left))
            {
                candidates.set(variant, false);
            }
        }
    }

    /// The largest capacity per resource over the candidates: what limits are charged with (P-093).
    pub(crate) fn largest_capacity(&self, candidates: &FixedBitSet, width: usize) -> ResourceVector {
        let mut largest = ResourceVector::zero(width);
        for variant in candidates.ones() {
            largest.raise_to(&self.variants[variant].capacity);
        }
        largest
    }

    /// The least daemon overhead over groups that still have a candidate (P-095).
    pub(crate) fn least_overhead(&self, candidates: &FixedBitSet) -> Option<ResourceVector> {
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
    pub(crate) fn type_indexes(&self, variants: &FixedBitSet) -> Vec<usize> {
        let mut indexes: Vec<usize> = variants
            .ones()
            .map(|variant| self.variants[variant].instance_type as usize)
            .collect();
        indexes.dedup();
        indexes
    }

    /// The instance type at an index.
    pub(crate) fn instance_type(&self, index: usize) -> &InstanceType {
        &self.types[index]
    }

    /// Checks minValues of `set` against the candidates, in the provider's order.
    pub(crate) fn check_min_values(
        &self,
        candidates: &FixedBitSet,
        requirements: &Requirements,
    ) -> Result<(), BTreeMap<String, u32>> {
        let types = self.type_indexes(candidates);
        requirements
            .satisfies_min_values(types.iter().map(|index| &self.types[*index]))
            .map(drop)
    }

    /// Candidates by cheapest available offering compatible with the requirements, cheapest first; ties keep the provider's order.
    pub(crate) fn by_price(
        &self,
        candidates: &FixedBitSet,
        requirements: &Requirements,
        algebra: &Algebra<'_>,
    ) -> Vec<Launch> {
        let compatible: Vec<bool> = self
            .offers
            .iter()
            .map(|offer| {
                requirements
                    .compatible(offer.requirements, algebra.well_known())
                    .is_ok()
            })
            .collect();
        let mut launches: Vec<(Price, usize, Option<u32>)> = Vec::new();
        for variant in candidates.ones() {
            let entry = &self.variants[variant];
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
            let requirements = self.offers[offer? as usize].requirements;
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
    pub(crate) fn capacity_types(
        &self,
        candidates: &FixedBitSet,
        requirements: &Requirements,
        algebra: &Algebra<'_>,
    ) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for offer in &self.offers {
            let compatible = requirements
                .compatible(offer.requirements, algebra.well_known())
                .is_ok();
            if compatible && !offer.members.is_disjoint(candidates) {
                let values = offer.requirements.find(labels::CAPACITY_TYPE).into_iter();
                found.extend(values.flat_map(|requirement| requirement.values().iter().cloned()));
            }
        }
        found
    }

    /// The reservations that the candidates could draw on under the requirements: (label, ID) (P §6.12).
    pub(crate) fn reservations(&self, candidates: &FixedBitSet, facts: &Facts) -> BTreeSet<(String, String)> {
        let offers = facts.reserved.iter().map(|index| &self.offers[*index]);
        let live = offers.filter(|offer| !offer.members.is_disjoint(candidates));
        live.filter_map(|offer| {
            offer
                .reservation
                .map(|(label, id)| (label.to_owned(), id.to_owned()))
        })
        .collect()
    }

    /// Whether a type can have different allocatable amounts under different offerings.
    pub(crate) fn has_overrides(&self) -> bool {
        self.variants.len() != self.types.len()
    }

    /// The first matching row of the decision table of P §6.6, for candidates none of which passes.
    pub(crate) fn explain(
        &self,
        candidates: &FixedBitSet,
        facts: &Facts,
        requests: &ResourceVector,
        ports: &[HostPort],
    ) -> FilterFailure {
        let mut fitting = candidates.clone();
        self.keep_fitting(&mut fitting, requests, ports);
        fitting.intersect_with(&facts.offering);
        let per_type = |variants: &FixedBitSet| {
            let mut kept = variants.clone();
            kept.intersect_with(candidates);
            let indexes = self.type_indexes(&kept);
            bits(self.types.len(), indexes)
        };
        let (met, fits, offered) = (
            per_type(&facts.requirements),
            per_type(&fitting),
            per_type(&facts.offering),
        );
        let only = |left: &FixedBitSet, right: &FixedBitSet, not: &FixedBitSet| {
            let mut rest = left.clone();
            rest.intersect_with(right);
            rest.difference_with(not);
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

    /// The concrete values a node of this template can have for a label key: the domain universe of P §6.8. Where the types leave a
    /// key to their offerings, the offerings' values count.
    pub(crate) fn domains(&self, key: &str, algebra: &Algebra<'_>) -> BTreeSet<String> {
        let own = algebra.get(self.set).get(key);
        let mut found: BTreeSet<String> = BTreeSet::new();
        let mut collect = |declared: &Requirement| {
            let both = own.intersection(declared);
            if !both.is_complement() {
                found.extend(both.values().iter().cloned());
            }
        };
        if let Some(index) = self.keys.get(key) {
            index.distinct.iter().for_each(|(declared, _)| collect(declared));
        } else {
            let declared = self
                .offers
                .iter()
                .filter_map(|offer| offer.requirements.find(key));
            declared.for_each(&mut collect);
        }
        if !own.is_complement() {
            found.extend(own.values().iter().cloned());
        }
        found
    }
}

impl DaemonGroup {
    fn conflicts(&self, ports: &[HostPort]) -> bool {
        ports
            .iter()
            .any(|port| self.host_ports.iter().any(|taken| taken.conflicts_with(port)))
    }
}

/// The strict requirements of a DaemonSet, one per required node affinity term.
pub(crate) fn daemon_alternatives(daemon: &DaemonView) -> Vec<Requirements> {
    let constraints = &daemon.constraints;
    if constraints.required_terms.is_empty() {
        return vec![constraints.node_selector.clone()];
    }
    let alternative = |term: &Requirements| {
        let mut requirements = constraints.node_selector.clone();
        requirements.add_all(term);
        requirements
    };
    constraints.required_terms.iter().map(alternative).collect()
}

/// A bit set of the given length with the given members.
pub(crate) fn bits(length: usize, members: impl IntoIterator<Item = usize>) -> FixedBitSet {
    let mut set = FixedBitSet::with_capacity(length);
    for member in members {
        set.insert(member);
    }
    set
}
