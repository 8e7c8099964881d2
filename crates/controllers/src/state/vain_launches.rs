//! Pods whose new nodes stay unused: what has become of the NodeClaims that were created for them, read from the stores.
//!
//! Owns the look at the cluster. Who waits for how long is the plan's to say.

use std::collections::BTreeMap;
use std::sync::Arc;

use spokeshave_api::conditions::{Conditioned as _, INITIALIZED};
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::Pod;
use spokeshave_model::placement::PlannedClaim;
use spokeshave_model::pod;
use spokeshave_model::snapshot::Snapshot;
use spokeshave_plan::vain_launches::{Asker, Fate, Pause};

use crate::state::cluster::Cluster;
use crate::state::stores::Stores;

impl Cluster {
    /// What was learnt under other NodePools counts no more.
    pub(crate) fn begin_launches(&self) {
        let pools = self.stores.node_pools.snapshot();
        let generation = |pool: &Arc<NodePool>| pool.metadata.generation.unwrap_or_default();
        let pools = pools.iter().map(|pool| (pool.uid().to_owned(), generation(pool)));
        let now = self.now();
        self.memory().vain.begin(pools.collect(), now);
    }

    /// Why a planned NodeClaim waits, pod by pod: nodes have come up in vain for each of them. `None` when it need not wait.
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
        if planned.pods.iter().any(|pod| snapshot.pod(*pod).is_virtual) {
            return None;
        }
        let mut askers: BTreeMap<Asker, Arc<Pod>> = BTreeMap::new();
        for pod in real_pods(snapshot, planned) {
            askers.entry(Asker::of(pod)).or_insert_with(|| pod.clone());
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

/// The pods of a planned NodeClaim that exist.
pub(crate) fn real_pods<'a>(
    snapshot: &'a Snapshot,
    planned: &'a PlannedClaim,
) -> impl Iterator<Item = &'a Arc<Pod>> {
    let views = planned.pods.iter().map(|pod| snapshot.pod(*pod));
    views.filter(|view| !view.is_virtual).map(|view| &view.object)
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
