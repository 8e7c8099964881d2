//! NodePools: hash, validation, readiness, counts (P §10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use spokeshave_api::{NodeClaim, NodePool, labels};
use spokeshave_plan::nodepool::{claim_hash_actions, count, pool_hash_action, status_action};
use spokeshave_plan::pool_conditions::CannotLaunch;
use spokeshave_ports::CloudProvider as _;
use spokeshave_runtime::{Change, Requeue};

use crate::act::error::ExecuteError;
use crate::act::hands::Hands;
use crate::controller::{Controller, Looked, Triggers};
use crate::observe::decision::DecisionKind;
use crate::observe::journal::Journal;
use crate::reconcile::static_pools;
use crate::state::cluster::Cluster;

/// Changes of nodes are counted together for this long (P §10).
const COUNT_DELAY: Duration = spokeshave_api::constants::NODE_POOL_COUNTERS;

/// After a start, a NodeClass counts as missing only once its kind was listed, or after this long (its kind may not be installed).
const CLASSES_LISTED_WITHIN: Duration = Duration::from_secs(30);

/// The controller of NodePools.
#[derive(Debug)]
pub(crate) struct NodePools {
    cluster: Arc<Cluster>,
    hands: Hands,
    journal: Arc<Journal>,
    /// UIDs of the NodePools of other providers that were told of.
    ignored: Mutex<BTreeSet<String>>,
}

impl NodePools {
    pub(crate) fn new(cluster: Arc<Cluster>, hands: Hands, journal: Arc<Journal>) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            hands,
            journal,
            ignored: Mutex::default(),
        })
    }

    /// Says of a NodePool of another provider, once while it is there, that nothing comes of it.
    fn tell_ignored(&self, pool: &NodePool) {
        let mut told = self.ignored.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.insert(pool.uid().to_owned()) {
            return;
        }
        drop(told);
        let class = &pool.spec.template.spec.node_class_ref;
        let kinds = self.cluster.cloud.supported_node_classes().iter();
        let kinds: Vec<String> = kinds
            .map(|kind| format!("{} of {}", kind.kind, kind.group))
            .collect();
        let why = format!(
            "{} ({}) is not a kind of this operator's provider ({})",
            class.kind,
            class.group,
            kinds.join(", ")
        );
        tracing::info!(NodePool = pool.name(), why, "nodepool is ignored");
        self.journal
            .note(DecisionKind::Trouble, pool.name(), "is ignored", why, None);
    }

    /// Why no node is launched for a NodePool with a fixed number of nodes; `None` for others, and while nothing has failed.
    async fn cannot_launch(&self, pool: &NodePool) -> Option<CannotLaunch> {
        if !pool.is_static() || pool.is_deleting() {
            return None;
        }
        if !self.cluster.options.feature_gates.static_capacity {
            return Some(CannotLaunch::gate_is_off());
        }
        // What was refused before it had enough says nothing any more, and is not tried again.
        if !static_pools::is_short(&self.cluster, pool) {
            return None;
        }
        self.cluster.launch_trouble(pool).await
    }

    /// D-223, D-224. A NodeClaim that may not be stamped keeps no other from it, but the NodePool: with its new stamp, nobody would try again. False when an object has
    /// changed meanwhile or is gone: a fresh look is on its way.
    async fn stamp(&self, pool: &NodePool, claims: &[&NodeClaim]) -> Result<bool, ExecuteError> {
        let mut are_stamped = true;
        let mut failure = None;
        for action in claim_hash_actions(pool, claims) {
            match self.hands.run_unless_stale(std::slice::from_ref(&action)).await {
                Ok(is_stamped) => are_stamped &= is_stamped,
                Err(error) => _ = failure.get_or_insert(error),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        if !are_stamped {
            return Ok(false);
        }
        let own = pool_hash_action(pool);
        self.hands.run_unless_stale(own.as_slice()).await
    }

    /// Drops what was learnt of NodePools that are no more.
    fn forget_vanished(&self) {
        let pools = self.cluster.stores.node_pools.snapshot();
        let alive: BTreeSet<&str> = pools.iter().map(|pool| pool.uid()).collect();
        self.cluster.memory().retain_health(|uid| alive.contains(uid));
        let names: BTreeSet<&str> = pools.iter().map(|pool| pool.name()).collect();
        self.cluster
            .memory()
            .launches
            .retain_pools(|pool| names.contains(pool));
        self.cluster.cloud.zones().retain(&names);
    }
}

impl Controller for NodePools {
    const NAME: &'static str = "nodepool.status";
    type Key = String;

    fn subscribe(self: &Arc<Self>, on: &mut Triggers<'_, String>) {
        // What others write is looked at at once; our own status comes back this way too, and has time.
        on.change(
            |stores| &stores.node_pools,
            |_, change| (!is_own_write(change)).then(|| change.key.name.clone()),
        );
        on.change_after(
            COUNT_DELAY,
            |stores| &stores.node_pools,
            |_, change| is_own_write(change).then(|| change.key.name.clone()),
        );
        on.change_after(
            COUNT_DELAY,
            |stores| &stores.node_claims,
            |_, change| {
                let pool = change.object().and_then(|claim| claim.node_pool());
                pool.map(str::to_owned)
            },
        );
        // What a node has counts as its Node says, which may change without its NodeClaim.
        on.change_after(
            COUNT_DELAY,
            |stores| &stores.nodes,
            |_, change| {
                let (old, new) = (change.old.as_deref(), change.new.as_deref());
                let labels = new.or(old).and_then(|node| node.metadata.labels.as_ref());
                let pool = labels.and_then(|labels| labels.get(labels::NODE_POOL).cloned());
                pool.filter(|_| old.and_then(counted) != new.and_then(counted))
            },
        );
        on.node_classes("nodepool.nodeclasses", |stores| {
            stores.node_pools.keys().into_iter().map(|key| key.name)
        });
    }

    /// One look at a pool.
    async fn reconcile(self: Arc<Self>, name: String) -> Looked {
        let Some(pool) = self.cluster.stores.node_pools.get_named(&name) else {
            self.forget_vanished();
            return Ok(Requeue::Done);
        };
        let class = &pool.spec.template.spec.node_class_ref;
        if !self
            .cluster
            .cloud
            .supported_node_classes()
            .iter()
            .any(|kind| kind.group == class.group && kind.kind == class.kind)
        {
            self.tell_ignored(&pool);
            return Ok(Requeue::Done);
        }
        let claims = self.cluster.stores.claims_by_pool.get(&name);
        let references: Vec<&NodeClaim> = claims.iter().map(|claim| &**claim).collect();
        let leaving = self.cluster.held_nodes(&[]);
        let node_of = |id: &str| self.cluster.stores.nodes_by_provider_id.get(id).first().cloned();
        let (nodes, resources) = count(&references, node_of, |id| leaving.contains(id));
        let view = self.cluster.node_classes.find(class);
        let young = self.cluster.clock.since(self.cluster.started) < CLASSES_LISTED_WITHIN;
        if view.is_none() && young && !self.cluster.node_classes.has_listed(class) {
            // Right after a start: the NodeClass is not missing, it was not looked for yet.
            return Ok(Requeue::After(Duration::from_millis(200)));
        }
        let cannot_launch = self.cannot_launch(&pool).await;
        let status = status_action(
            &pool,
            view.as_ref(),
            &self.cluster.options.label_rules,
            nodes,
            &resources,
            self.cluster.memory().health_of(pool.uid()),
            cannot_launch.as_ref(),
            self.cluster.now(),
        );
        let stamped = self.stamp(&pool, &references).await;
        if matches!(stamped, Ok(false)) {
            return Ok(Requeue::Done);
        }
        // What it says of itself waits for no stamp.
        self.hands.run_unless_stale(status.as_slice()).await?;
        stamped?;
        Ok(Requeue::Done)
    }
}

/// What of a Node counts for its NodePool: whose it is, what it has, and whether it says so for good.
fn counted(node: &Node) -> Option<(&str, Option<&BTreeMap<String, WireQuantity>>, bool)> {
    let id = node.spec.as_ref()?.provider_id.as_deref()?;
    let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
    let labels = node.metadata.labels.as_ref();
    let is_initialized = labels.is_some_and(|labels| labels.contains_key(labels::INITIALIZED));
    Some((id, capacity, is_initialized))
}

/// True for a change of nothing but the status.
fn is_own_write(change: &Change<NodePool>) -> bool {
    let written = |pool: &NodePool| (pool.metadata.generation, pool.metadata.annotations.clone());
    let (old, new) = (change.old.as_deref(), change.new.as_deref());
    old.is_some() && old.map(written) == new.map(written)
}
