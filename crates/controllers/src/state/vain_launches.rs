//! Pods and buffers whose new nodes stay unused: what has become of the NodeClaims that were created for them, read from the stores.
//!
//! Owns the look at the cluster. Who waits for how long is the plan's to say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spokeshave_api::conditions::{Conditioned as _, INITIALIZED};
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::Pod;
use spokeshave_model::placement::{Placements, PlannedClaim};
use spokeshave_model::pod;
use spokeshave_model::snapshot::{PodView, Snapshot};
use spokeshave_plan::vain_launches::{Asker, Askers, Fate, Pause};

use crate::state::cluster::Cluster;
use crate::state::stores::Stores;

/// Whose pods a pass puts on nodes that are there, by NodeClaim: those of which buffers, or, as nobody's, such as exist.
type Places = BTreeMap<String, BTreeSet<Option<Asker>>>;

impl Cluster {
    /// What was learnt under other NodePools counts no more, and buffers whose room a pass has found have what they asked for.
    pub(crate) fn begin_launches(&self, snapshot: &Snapshot, placements: &Placements) {
        let pools = self.stores.node_pools.snapshot();
        let generation = |pool: &Arc<NodePool>| pool.metadata.generation.unwrap_or_default();
        let pools = pools.iter().map(|pool| (pool.uid().to_owned(), generation(pool)));
        let (stores, now) = (&self.stores, self.now());
        let places = places(snapshot, placements);
        let kept_since = |name: &str, asker: &Asker| {
            let claim = stores.node_claims.get_named(name)?;
            let up = claim.true_condition(INITIALIZED)?.last_transition_time;
            // Room is there to be used: whoever exists and is put on it has found it open, too.
            let is_open =
                |of: &BTreeSet<Option<Asker>>| of.contains(&None) || of.contains(&Some(asker.clone()));
            let is_kept = places.get(name).is_some_and(is_open) || fate(stores, &claim) == Fate::Used;
            is_kept.then_some(up)
        };
        let mut memory = self.memory();
        memory.vain.begin(pools.collect(), now);
        memory.vain.found_room(kept_since, now);
    }

    /// Why a planned NodeClaim waits, pod by pod, and once for each buffer: nodes have come up in vain for each of them. `None` when it need not wait.
    pub(crate) fn waits_in_vain(
        &self,
        snapshot: &Snapshot,
        planned: &PlannedClaim,
    ) -> Option<Vec<(Pause, Arc<Pod>)>> {
        let (stores, now) = (&self.stores, self.now());
        let fate = |name: &str| {
            stores
                .node_claims
                .get_named(name)
                .map_or(Fate::Gone, |claim| fate(stores, &claim))
        };
        let mut askers: BTreeMap<Asker, Arc<Pod>> = BTreeMap::new();
        let mut known = Askers::default();
        for pod in asking_pods(snapshot, planned) {
            askers.entry(known.of(pod)).or_insert_with(|| pod.clone());
        }
        let mut memory = self.memory();
        // Each is asked, whatever the others say: that somebody asked is remembered.
        let pauses: Vec<Option<Pause>> = askers
            .keys()
            .map(|asker| memory.vain.wants(asker, fate, now))
            .collect();
        drop(memory);
        let pauses: Option<Vec<Pause>> = pauses.into_iter().collect();
        Some(pauses?.into_iter().zip(askers.into_values()).collect())
    }
}

/// The pods that a planned NodeClaim is for: those that exist, or, where there are none, those of buffers. These also take what is left over on a node that
/// others need, and then neither hasten nor delay it.
pub(crate) fn asking_pods<'a>(
    snapshot: &'a Snapshot,
    planned: &'a PlannedClaim,
) -> impl Iterator<Item = &'a Arc<Pod>> {
    let views = planned.pods.iter().map(|pod| snapshot.pod(*pod));
    let is_for_buffers = views.clone().all(|view| view.is_virtual);
    views
        .filter(move |view| is_for_buffers || !view.is_virtual)
        .map(|view| &view.object)
}

fn places(snapshot: &Snapshot, placements: &Placements) -> Places {
    let mut places = Places::new();
    if !snapshot.classes.has_virtual() {
        return places;
    }
    let mut known = Askers::default();
    let mut asker = |view: &PodView| view.is_virtual.then(|| known.of(&view.object));
    for (node, pods) in &placements.existing {
        if let Some(claim) = snapshot.node(*node).claim_name() {
            let askers = pods.iter().map(|pod| asker(snapshot.pod(*pod)));
            places.entry(claim.to_owned()).or_default().extend(askers);
        }
    }
    places
}

/// What has become of a NodeClaim.
fn fate(stores: &Stores, claim: &NodeClaim) -> Fate {
    let Some(initialized) = claim.true_condition(INITIALIZED) else {
        return Fate::Coming;
    };
    let id = claim.provider_id().unwrap_or_default();
    let nodes = stores.nodes_by_provider_id.get(id);
    let names = nodes.iter().filter_map(|node| node.metadata.name.as_deref());
    // What is promised is about to be used: binding takes as long as volumes take.
    let on_node = |name: &str| {
        let promised = stores.pods_by_promised_node.get(name);
        stores.pods_by_node.get(name).into_iter().chain(promised)
    };
    let pods = names.flat_map(on_node);
    let mut used = pods.filter(|pod| pod::is_active(pod) && !pod::is_daemon(pod) && !pod::is_mirror(pod));
    match used.next() {
        Some(_) => Fate::Used,
        None => Fate::Idle(initialized.last_transition_time),
    }
}
