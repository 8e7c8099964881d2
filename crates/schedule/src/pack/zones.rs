//! In which zone pods will end up, as far as that is certain: for a metric (P §6.2, P-123). It places nothing.

use super::{Engine, Packer};
use rustc_hash::{FxBuildHasher, FxHashMap};
use spokeshave_model::snapshot::{ClassId, PodId};
use spokeshave_model::{Requirements, labels};
use std::collections::{BTreeMap, BTreeSet};

/// Several zones, or any.
const FLEXIBLE: &str = "flexible";
/// No zone at all.
const NONE: &str = "none";

impl Packer<'_> {
    /// Which of the pods will be in each zone; `flexible` where several are possible, `none` where no zone is. Changes nothing. O(classes) once,
    /// then O(pods).
    pub fn effective_zones(&mut self, pods: &[PodId]) -> BTreeMap<String, Vec<PodId>> {
        let engine = &mut self.engine;
        let checkpoint = engine.fork();
        engine.release(pods);
        let mut known: FxHashMap<ClassId, String> = FxHashMap::with_hasher(FxBuildHasher);
        let mut zones: BTreeMap<String, Vec<PodId>> = BTreeMap::new();
        for pod in pods {
            let class = engine.tables.snapshot.pod(*pod).class;
            let zone = known.entry(class).or_insert_with(|| engine.effective_zone(class));
            zones.entry(zone.clone()).or_default().push(*pod);
        }
        engine.revert(checkpoint);
        zones
    }
}

/// The zones that requirements name; `None` when they leave the zone open.
fn zones_of(requirements: &Requirements) -> Option<BTreeSet<String>> {
    let requirement = requirements
        .find(labels::ZONE)
        .filter(|zone| !zone.is_complement())?;
    Some(requirement.values().iter().cloned().collect())
}

/// The zones that requirements name of which one must hold; `None` when one of them leaves them open, or there are none.
fn zones_of_any(alternatives: &[Requirements]) -> Option<BTreeSet<String>> {
    let zones: Option<Vec<BTreeSet<String>>> = alternatives.iter().map(zones_of).collect();
    let zones = zones.filter(|zones| !zones.is_empty())?;
    Some(zones.into_iter().flatten().collect())
}

impl Engine<'_> {
    fn effective_zone(&mut self, class: ClassId) -> String {
        let Some(variant) = self.variant(class, 0) else {
            return FLEXIBLE.to_owned();
        };
        let constraints = &self.tables.snapshot.classes[class.index()];
        let own = zones_of_any(&constraints.alternatives());
        let of_volumes = zones_of_any(&constraints.volume_terms);
        let tables = &mut self.tables;
        let variant = &tables.variants[variant];
        let of_topology = self.scratch.choice.admitted_values(
            labels::ZONE,
            class,
            &variant.bindings,
            variant.strict,
            (&mut tables.topology, self.ledgers.counts()),
            &tables.algebra,
        );
        let mut all = [own, of_volumes, of_topology].into_iter().flatten();
        let Some(first) = all.next() else {
            return FLEXIBLE.to_owned();
        };
        let zones = all.fold(first, |zones, others| &zones & &others);
        let mut zones = zones.into_iter();
        match (zones.next(), zones.next()) {
            (None, _) => NONE.to_owned(),
            (Some(only), None) => only,
            (Some(_), Some(_)) => FLEXIBLE.to_owned(),
        }
    }
}
