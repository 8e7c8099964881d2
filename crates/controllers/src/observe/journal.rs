//! What people and machines are told of decisions: a line for each, counters, and what nodes cost.
//!
//! No decision reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::Price;
use spokeshave_ports::CloudProvider as _;

use crate::observe::decision::{Decision, DecisionKind, DecisionLog};
use crate::observe::landings::Landings;
use crate::observe::metrics::ControllerFamilies;
use crate::observe::pod_times::PodTimes;
use crate::state::cluster::Cluster;

/// What is told.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) families: ControllerFamilies,
    /// How long pods take.
    pub(crate) pod_times: PodTimes,
    /// Whether pods land where they were planned.
    pub(crate) landings: Landings,
    decisions: DecisionLog,
    /// The scheduling run that is under way, and since when.
    scheduling: Mutex<Option<(String, Timestamp)>>,
}

impl Journal {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        families: ControllerFamilies,
        pod_times: PodTimes,
        decisions: DecisionLog,
    ) -> Self {
        Self {
            cluster,
            landings: Landings::new(families.pods_landed.clone()),
            families,
            pod_times,
            decisions,
            scheduling: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.cluster.now()
    }

    fn run(&self) -> MutexGuard<'_, Option<(String, Timestamp)>> {
        self.scheduling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the scheduling run that is under way, for metrics.
    pub(crate) fn scheduling(&self, run: Option<(&str, Timestamp)>) {
        *self.run() = run.map(|(run, since)| (run.to_owned(), since));
    }

    /// The scheduling run that is under way, and since when.
    pub(crate) fn under_way(&self) -> Option<(String, Timestamp)> {
        self.run().clone()
    }

    /// What the nodes of each NodePool cost per hour, by the cloud's own price list.
    pub(crate) fn pool_prices(&self) -> BTreeMap<String, Price> {
        let mut sums: BTreeMap<String, Price> = BTreeMap::new();
        for (name, price) in self.cluster.prices.by_claim() {
            let claim = self.cluster.stores.node_claims.get_named(&name);
            if let Some(pool) = claim.as_ref().and_then(|claim| claim.node_pool()) {
                let sum = sums.entry(pool.to_owned()).or_insert(Price::ZERO);
                *sum = sum.saturating_add(price);
            }
        }
        sums
    }

    /// Notes what a planned NodeClaim will cost if the cloud has its cheapest offering.
    pub(crate) fn note_planned_price(&self, claim: &NodeClaim, price: Price) {
        self.cluster.prices.insert(claim.name(), price);
    }

    /// Notes what a freshly launched instance costs, and returns it.
    pub(crate) async fn note_price(&self, claim: &NodeClaim) -> Price {
        let pool = claim
            .node_pool()
            .and_then(|name| self.cluster.stores.node_pools.get_named(name));
        let Some(pool) = pool else { return Price::ZERO };
        let Ok(types) = self.cluster.cloud.instance_types(&pool).await else {
            self.families.cost_errors.inc(&[pool.name()]);
            return Price::ZERO;
        };
        let label = |key: &str| claim.label(key).unwrap_or_default();
        let price = types
            .iter()
            .find(|instance_type| instance_type.name == label(labels::INSTANCE_TYPE))
            .and_then(|instance_type| {
                instance_type.price_of(label(labels::ZONE), label(labels::CAPACITY_TYPE))
            });
        if price.is_none_or(|price| price == Price::UNKNOWN) {
            self.families.cost_errors.inc(&[pool.name()]);
        }
        let price = price.unwrap_or_default().known_or_zero();
        self.cluster.prices.insert(claim.name(), price);
        price
    }

    /// Notes that a NodeClaim is no more.
    pub(crate) fn forget_price(&self, claim: &NodeClaim) {
        self.cluster.prices.remove(claim.name());
    }

    /// Counts a NodeClaim that is deleted by force (D-243).
    pub(crate) fn count_disrupted(&self, claim: &NodeClaim, reason: &str) {
        self.families
            .claims_disrupted
            .inc(&disrupted_labels(claim, reason));
    }

    /// Counts the pods that will have to move because a NodeClaim is deleted by force (D-243).
    pub(crate) fn count_initiated(&self, claim: &NodeClaim, reason: &str) {
        let nodes = claim
            .provider_id()
            .map(|id| self.cluster.stores.nodes_by_provider_id.get(id))
            .unwrap_or_default();
        let on_node = |node: &Arc<Node>| {
            self.cluster
                .stores
                .pods_by_node
                .get(node.metadata.name.as_deref().unwrap_or_default())
        };
        let pods = nodes.iter().flat_map(on_node);
        let pods = pods
            .filter(|pod| spokeshave_model::pod::is_reschedulable(pod))
            .count();
        #[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
        self.families
            .pods_disruption_initiated
            .add(&disrupted_labels(claim, reason), pods as f64);
    }

    /// Tells a decision to people, with what all nodes cost as far as known.
    pub(crate) fn note(
        &self,
        kind: DecisionKind,
        subject: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        price_change: Option<Price>,
    ) {
        let price = self.cluster.prices.sum();
        self.tell(kind, subject, what, why, price_change, price);
    }

    /// Tells a decision to people.
    pub(crate) fn tell(
        &self,
        kind: DecisionKind,
        subject: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        price_change: Option<Price>,
        cluster_price: Price,
    ) {
        self.decisions.tell(&Decision {
            time: self.now(),
            kind,
            subject: subject.to_owned(),
            what: what.into(),
            why: why.into(),
            price_change,
            cluster_price,
        });
    }
}

/// Reason, NodePool, capacity type, consolidation policy (none: it was by force), termination mode.
fn disrupted_labels<'a>(claim: &'a NodeClaim, reason: &'a str) -> [&'a str; 5] {
    [
        reason,
        claim.node_pool().unwrap_or_default(),
        claim.label(labels::CAPACITY_TYPE).unwrap_or_default(),
        "",
        termination_mode(claim),
    ]
}

/// D-244.
pub(crate) fn termination_mode(claim: &NodeClaim) -> &'static str {
    let grace = claim.spec.termination_grace_period.as_ref();
    match grace.map(spokeshave_api::GoDuration::nanoseconds) {
        None => "graceful",
        Some(nanoseconds) if nanoseconds <= 0 => "forceful",
        Some(_) => "eventual",
    }
}
