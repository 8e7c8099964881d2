//! NodePools: hash, validation, readiness, counts (P §10).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_plan::nodepool::{count, hash_actions, status_action};
use spokeshave_plan::pool_conditions::CannotLaunch;
use spokeshave_runtime::{ReconcileError, Requeue, Shutdown, WorkQueue};

use crate::observe::decision::DecisionKind;
use crate::shared::Shared;

/// Changes of nodes are counted together for this long (P §10).
const COUNT_DELAY: Duration = spokeshave_api::constants::NODE_POOL_COUNTERS;

/// After a start, a NodeClass counts as missing only once its kind was listed, or after this long (its kind may not be installed).
const CLASSES_LISTED_WITHIN: Duration = Duration::from_secs(30);

/// The controller of NodePools.
#[derive(Debug)]
pub(crate) struct NodePools {
    shared: Arc<Shared>,
    pub(crate) queue: WorkQueue<String>,
    /// UIDs of the NodePools of other providers that were told of.
    ignored: Mutex<BTreeSet<String>>,
}

impl NodePools {
    pub(crate) fn new(shared: Arc<Shared>, queue: WorkQueue<String>) -> Arc<Self> {
        let this = Arc::new(Self {
            shared,
            queue,
            ignored: Mutex::default(),
        });
        let stores = &this.shared.stores;
        let queue = this.queue.clone();
        stores.node_pools.on_change(move |change| {
            // What others write is looked at at once; our own status comes back this way too, and has time.
            let written = |pool: &NodePool| (pool.metadata.generation, pool.metadata.annotations.clone());
            let (old, new) = (change.old.as_deref(), change.new.as_deref());
            if old.is_some() && old.map(written) == new.map(written) {
                queue.add_after(change.key.name.clone(), COUNT_DELAY);
            } else {
                queue.add(change.key.name.clone());
            }
        });
        let queue = this.queue.clone();
        stores.node_claims.on_change(move |change| {
            if let Some(pool) = change.object().and_then(|claim| claim.node_pool()) {
                queue.add_after(pool.to_owned(), COUNT_DELAY);
            }
        });
        this
    }

    /// Says of a NodePool of another provider, once while it is there, that nothing comes of it.
    fn tell_ignored(&self, pool: &NodePool) {
        let mut told = self.ignored.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.insert(pool.uid().to_owned()) {
            return;
        }
        drop(told);
        let class = &pool.spec.template.spec.node_class_ref;
        let kinds = self.shared.provider.supported_node_classes().iter();
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
        self.shared
            .note(DecisionKind::Trouble, pool.name(), "is ignored", why, None);
    }

    /// Looks at all pools when a NodeClass changes.
    pub(crate) async fn follow_node_classes(self: Arc<Self>, shutdown: Shutdown) {
        let mut changes = self.shared.node_classes.changes();
        while let Some(Ok(())) = shutdown.cut(changes.changed()).await {
            self.shared
                .stores
                .node_pools
                .for_each(|_, pool| self.queue.add(pool.name().to_owned()));
        }
    }

    /// One look at a pool.
    pub(crate) async fn reconcile(self: Arc<Self>, name: String) -> Result<Requeue, ReconcileError> {
        let shared = &self.shared;
        let Some(pool) = shared.stores.node_pools.get_named(&name) else {
            let families = &shared.families;
            families.consolidation_moves.remove_where("nodepool", &name);
            families.consolidation_score.remove_where("nodepool", &name);
            self.forget_vanished();
            return Ok(Requeue::Done);
        };
        let class = &pool.spec.template.spec.node_class_ref;
        if !shared
            .provider
            .supported_node_classes()
            .iter()
            .any(|kind| kind.group == class.group && kind.kind == class.kind)
        {
            self.tell_ignored(&pool);
            return Ok(Requeue::Done);
        }
        let claims = shared.stores.claims_by_pool.get(&name);
        let references: Vec<&NodeClaim> = claims.iter().map(|claim| &**claim).collect();
        let (_, leaving) = shared.held_nodes(&[]);
        let node_of = |id: &str| shared.stores.nodes_by_provider_id.get(id).first().cloned();
        let (nodes, resources) = count(&references, node_of, |id| leaving.contains(id));
        let mut actions = hash_actions(&pool, &references);
        let view = shared.node_classes.find(class);
        let young = shared.clock.since(shared.started) < CLASSES_LISTED_WITHIN;
        if view.is_none() && young && !shared.node_classes.has_listed(class) {
            // Right after a start: the NodeClass is not missing, it was not looked for yet.
            return Ok(Requeue::After(Duration::from_millis(200)));
        }
        let cannot_launch = self.cannot_launch(&pool).await;
        let known = shared.memory().health.remove(pool.uid());
        let mut health = known.unwrap_or_default();
        actions.extend(status_action(
            &pool,
            view.as_ref(),
            &shared.options.label_rules,
            nodes,
            &resources,
            &mut health,
            cannot_launch.as_ref(),
            shared.now(),
        ));
        shared.memory().health.insert(pool.uid().to_owned(), health);
        match shared.execute.run_all(&actions).await {
            Ok(()) => Ok(Requeue::Done),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(Requeue::Done),
            Err(error) => Err(error.into()),
        }
    }

    /// Why no node is launched for a NodePool with a fixed number of nodes; `None` for others, and while nothing has failed.
    async fn cannot_launch(&self, pool: &NodePool) -> Option<CannotLaunch> {
        let shared = &self.shared;
        if !pool.is_static() || pool.is_deleting() {
            return None;
        }
        if !shared.options.feature_gates.static_capacity {
            return Some(CannotLaunch::gate_is_off());
        }
        shared.launch_trouble(pool).await
    }

    /// Drops what was learnt of NodePools that are no more.
    fn forget_vanished(&self) {
        let pools = self.shared.stores.node_pools.snapshot();
        let alive: BTreeSet<&str> = pools.iter().map(|pool| pool.uid()).collect();
        self.shared
            .memory()
            .health
            .retain(|uid, _| alive.contains(uid.as_str()));
        let names: BTreeSet<&str> = pools.iter().map(|pool| pool.name()).collect();
        self.shared
            .memory()
            .launches
            .retain_pools(|pool| names.contains(pool));
        self.shared.cloud.zones().retain(&names);
    }
}
