//! NodePools with a fixed number of nodes (D §9.1): what is missing is made, what is too many is deleted.

use std::sync::{Arc, Mutex, PoisonError};

use spokeshave_api::conditions::{Conditioned, READY};
use spokeshave_api::constants::{STATIC_POOL_PERIOD, STATIC_POOL_PERIOD_AT_LIMIT};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::Action;
use spokeshave_model::Pod;
use spokeshave_plan::launch_backoff::Admission;
use spokeshave_plan::lifecycle::claim_ref;
use spokeshave_plan::static_pools::{Counts, Held, ScaleUp, count, scale_down, scale_up, template_claim};
use spokeshave_ports::{CloudError, CloudProvider as _};
use spokeshave_runtime::{ReconcileError, Requeue};

use crate::act::error::ExecuteError;
use crate::act::hands::Hands;
use crate::controller::{Controller, Looked, Triggers};
use crate::observe::decision::DecisionKind;
use crate::observe::journal::Journal;
use crate::reconcile::unreadable;
use crate::state::cluster::Cluster;

/// D-355, of those NodeClaims that count. One that cannot be read counts by its name.
fn count_those(cluster: &Cluster, pool: &NodePool, counts: impl Fn(&NodeClaim) -> bool) -> Counts {
    let stores = &cluster.stores;
    let look = || stores.claims_by_pool.get(pool.name());
    let (claims, mut unread) = unreadable::beside(&stores.node_claims, look);
    unread.retain(|name| claims.iter().all(|claim| claim.name() != name.as_str()));
    let in_command = cluster.held_nodes(&[]);
    let counted = claims.iter().map(|claim| &**claim).filter(|claim| counts(claim));
    let mut counts = count(counted, |id| in_command.contains(id));
    counts.active += unreadable::of_pool(&unread, pool.name()).count();
    counts
}

/// Whether a NodePool has fewer nodes than it asks for and its limits allow. What is being launched is not there yet: the cloud may refuse it once more.
pub(crate) fn is_short(cluster: &Cluster, pool: &NodePool) -> bool {
    let launched = count_those(cluster, pool, |claim| claim.provider_id().is_some());
    matches!(scale_up(pool, launched), ScaleUp::Create(_))
}

/// The controller of static NodePools.
#[derive(Debug)]
pub(crate) struct StaticPools {
    cluster: Arc<Cluster>,
    hands: Hands,
    journal: Arc<Journal>,
}

impl StaticPools {
    /// `None` when the feature gate is off (D-353).
    pub(crate) fn new(cluster: Arc<Cluster>, hands: Hands, journal: Arc<Journal>) -> Option<Arc<Self>> {
        if !cluster.options.feature_gates.static_capacity {
            return None;
        }
        Some(Arc::new(Self {
            cluster,
            hands,
            journal,
        }))
    }

    fn at_limit(pool: &NodePool) -> Requeue {
        tracing::info!(NodePool = pool.name(), "nodepool node limit reached");
        Requeue::After(STATIC_POOL_PERIOD_AT_LIMIT)
    }

    /// D-356: creates what is missing, at once, unless the cloud has refused it lately.
    async fn create(&self, pool: &NodePool) -> Result<Requeue, ReconcileError> {
        // The news that its NodeClaims go may come before the news that the NodePool goes: the API server itself is asked.
        let current = self.hands.get::<NodePool>(pool.name()).await?;
        let Some(current) = current.filter(|current| current.uid() == pool.uid()) else {
            return Ok(Requeue::Done);
        };
        let missing = match scale_up(&current, count_those(&self.cluster, &current, |_| true)) {
            ScaleUp::Create(missing) => missing,
            ScaleUp::AtLimit => return Ok(Self::at_limit(&current)),
            ScaleUp::None => return Ok(Requeue::After(STATIC_POOL_PERIOD)),
        };
        let types = match self.cluster.cloud.instance_types(&current).await {
            // What is created now would wait in vain, and be created again and again.
            Err(CloudError::Postponed { again_after, .. }) => return Ok(Requeue::After(again_after)),
            types => types.ok(),
        };
        let claim = template_claim(&current, types.as_deref().unwrap_or_default());
        let now = self.cluster.now();
        let admission = self.cluster.memory().launches.admit(&claim, now);
        let admitted = match admission {
            Admission::All => missing,
            Admission::One => 1,
            Admission::NotBefore(_) => 0,
        };
        let failure = Mutex::new(None);
        let done = |(), claim: &NodeClaim, created: Result<NodeClaim, ExecuteError>| match created {
            Ok(created) => self.created(&current, &created),
            Err(error) => {
                self.cluster.creation_failed(claim, &error);
                *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        };
        self.hands.create_claims(vec![((), &claim); admitted], done).await;
        if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error.into());
        }
        if admission != Admission::All
            && let Some(why) = self.cluster.launch_trouble(&current).await
        {
            self.hands.tell(&why.event(&current));
        }
        let trouble = self.cluster.memory().launches.trouble(&claim).cloned();
        let pause = trouble.map_or(STATIC_POOL_PERIOD, |trouble| {
            self.cluster.clock.until(trouble.next)
        });
        Ok(Requeue::After(pause))
    }

    fn created(&self, pool: &NodePool, created: &NodeClaim) {
        self.journal
            .families
            .claims_created
            .inc(&["provisioned", pool.name(), "false"]);
        tracing::info!(
            NodePool = pool.name(),
            NodeClaim = created.name(),
            "created nodeclaim"
        );
        self.journal.note(
            DecisionKind::Launch,
            created.name(),
            format!("launch a node of nodepool {}", pool.name()),
            "the nodepool has a fixed number of nodes",
            None,
        );
    }

    /// What commands hold; none when one of them cannot be read.
    fn held(&self) -> Option<Held> {
        let commands = &self.cluster.stores.disruptions;
        let look = || {
            let mut held = Held::default();
            commands.for_each(|_, command| held.add(command));
            held
        };
        let (held, unread) = unreadable::beside(commands, look);
        unread.is_empty().then_some(held)
    }

    /// D-357. One that may not be deleted keeps no other.
    async fn delete_excess(&self, pool: &NodePool) -> Result<(), ReconcileError> {
        // A command that cannot be read may be replacing some of them: what looks like one too many is not.
        let Some(held) = self.held() else {
            return Ok(());
        };
        let claims = self.cluster.stores.claims_by_pool.get(pool.name());
        let pods = |claim: &NodeClaim| self.pods_of(claim);
        let mut failure: Option<ReconcileError> = None;
        for claim in scale_down(pool, &claims, &held, pods, self.cluster.now()) {
            match self.hands.run(&Action::delete(claim_ref(&claim))).await {
                Ok(()) => tracing::info!(
                    NodePool = pool.name(),
                    NodeClaim = claim.name(),
                    "deleting nodeclaim, the nodepool was scaled down"
                ),
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => _ = failure.get_or_insert(error.into()),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn pods_of(&self, claim: &NodeClaim) -> Vec<Arc<Pod>> {
        let stores = &self.cluster.stores;
        let nodes = claim
            .provider_id()
            .map(|id| stores.nodes_by_provider_id.get(id))
            .unwrap_or_default();
        nodes
            .iter()
            .flat_map(|node| {
                stores
                    .pods_by_node
                    .get(node.metadata.name.as_deref().unwrap_or_default())
            })
            .collect()
    }
}

impl Controller for StaticPools {
    const NAME: &'static str = "static.capacity";
    type Key = String;

    fn subscribe(self: &Arc<Self>, on: &mut Triggers<'_, String>) {
        on.change(
            |stores| &stores.node_pools,
            |_, change| {
                let matters = |pool: &NodePool| (pool.spec.replicas, pool.is_true(READY), pool.is_deleting());
                let new = change.new.as_deref().filter(|pool| pool.is_static())?;
                let differs = change.old.as_deref().map(matters) != Some(matters(new));
                differs.then(|| new.name().to_owned())
            },
        );
        on.change(
            |stores| &stores.node_claims,
            |stores, change| {
                // A launch that succeeds after others have failed lets the rest follow at once.
                let stage = |claim: Option<&NodeClaim>| {
                    claim.map(|claim| (claim.is_deleting(), claim.provider_id().is_some()))
                };
                let moved = stage(change.old.as_deref()) != stage(change.new.as_deref());
                let pool = change.object().and_then(|claim| claim.node_pool());
                let pool = pool.filter(|_| moved)?;
                let known = stores.node_pools.get_named(pool)?;
                known.is_static().then(|| pool.to_owned())
            },
        );
        on.change(
            |stores| &stores.disruptions,
            |_, change| {
                // From here on a node and its replacement count as two.
                let holds = |command: Option<&Disruption>| command.is_some_and(Disruption::holds_nodes);
                let ended = holds(change.old.as_deref()) && !holds(change.new.as_deref());
                let command = change.object().filter(|command| command.spec.method.is_static());
                let node = command.filter(|_| ended)?.spec.nodes.first()?;
                Some(node.node_pool.clone())
            },
        );
    }

    /// One look at a pool.
    async fn reconcile(self: Arc<Self>, name: String) -> Looked {
        let Some(pool) = self.cluster.stores.node_pools.get_named(&name) else {
            return Ok(Requeue::Done);
        };
        let class = &pool.spec.template.spec.node_class_ref;
        let kinds = self.cluster.cloud.supported_node_classes();
        let ours = kinds
            .iter()
            .any(|kind| kind.group == class.group && kind.kind == class.kind);
        if !pool.is_static() || pool.is_deleting() || !ours {
            return Ok(Requeue::Done);
        }
        match scale_up(&pool, count_those(&self.cluster, &pool, |_| true)) {
            ScaleUp::Create(_) => self.create(&pool).await,
            ScaleUp::AtLimit => Ok(Self::at_limit(&pool)),
            ScaleUp::None => {
                self.delete_excess(&pool).await?;
                Ok(Requeue::After(STATIC_POOL_PERIOD))
            }
        }
    }
}
