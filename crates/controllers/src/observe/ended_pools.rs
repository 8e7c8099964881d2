//! Series of NodePools that are gone: what was counted for them ends a while after the last trace of them (invariant 41).
//!
//! Owns what a trace is, and how long the series stay. Gauges are not its business: they are set anew for each scrape.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::labels;
use spokeshave_runtime::Metrics;

use crate::observe::gauges::{metric_label, with};
use crate::state::cluster::Cluster;
use crate::state::stores::Stores;

/// How long series outlast their NodePool, so that they are scraped once more after its last node has been counted.
const KEPT_FOR: SignedDuration = SignedDuration::from_mins(5);

/// When a scrape first found series without a trace of their NodePool, by its name. It counts from there and not from the last trace: what was counted since the
/// scrape before must be scraped at least once, however long ago that was.
type GoneSince = BTreeMap<String, Timestamp>;

/// Ends series as somebody scrapes: while nobody does, there is nothing to spare.
pub(crate) fn forget(cluster: &Arc<Cluster>, metrics: &Metrics) {
    let (weak, tallies) = (Arc::downgrade(cluster), metrics.tallies());
    let of_conditions = metric_label(labels::NODE_POOL);
    let gone_since: Mutex<GoneSince> = Mutex::default();
    metrics.before_render(move || {
        with(&weak, |cluster| {
            let stores = &cluster.stores;
            // In the first moments of a term nothing is known yet, and nothing is gone because of that.
            if !(stores.node_pools.is_ready() && stores.node_claims.is_ready() && stores.nodes.is_ready()) {
                return;
            }
            let mut gone_since = gone_since.lock().unwrap_or_else(PoisonError::into_inner);
            let now = cluster.now();
            let present = traces(stores);
            gone_since.retain(|pool, _| !present.contains(pool));
            for label in ["nodepool", of_conditions.as_str()] {
                tallies.retain(label, |pool| {
                    // What belongs to no NodePool has an empty name.
                    pool.is_empty()
                        || present.contains(pool)
                        || is_kept(*gone_since.entry(pool.to_owned()).or_insert(now), now)
                });
            }
            gone_since.retain(|_, since| is_kept(*since, now));
        });
    });
}

/// The names of all NodePools of which there is something. NodeClaims and Nodes outlast their NodePool, and are counted as they end.
fn traces(stores: &Stores) -> BTreeSet<String> {
    let mut present = BTreeSet::new();
    stores.node_pools.for_each(|key, _| {
        present.insert(key.name.clone());
    });
    stores.node_claims.for_each(|_, claim| {
        if let Some(pool) = claim.node_pool() {
            present.insert(pool.to_owned());
        }
    });
    stores.nodes.for_each(|_, node| {
        let own = node.metadata.labels.as_ref();
        if let Some(pool) = own.and_then(|own| own.get(labels::NODE_POOL)) {
            present.insert(pool.clone());
        }
    });
    present
}

fn is_kept(since: Timestamp, now: Timestamp) -> bool {
    now.duration_since(since) < KEPT_FOR
}
