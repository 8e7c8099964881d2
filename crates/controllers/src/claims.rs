//! NodeClaims: launch, registration, initialisation, liveness, expiry, consolidateAfter, and their end (P §9, D §1.6, D §8.7).
//!
//! One key a NodeClaim: a slow call to the cloud for one delays no other.

use std::sync::Arc;
use std::time::Duration;

use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned, INSTANCE_TERMINATING, LAUNCHED};
use spokeshave_api::constants::INSTANCE_TERMINATION_POLL;
use spokeshave_api::labels;
use spokeshave_model::{Action, Event, EventType, Price, Subresource};
use spokeshave_plan::consolidatable::{consolidatable, disturbed_node, pod_event_action};
use spokeshave_plan::lifecycle::{self, Liveness, Progress, claim_ref};
use spokeshave_plan::termination::{self, ClaimStep};
use spokeshave_ports::CloudError;
use spokeshave_runtime::{ReconcileError, Requeue, WorkQueue};

use crate::decision::DecisionKind;
use crate::shared::Shared;

/// The controller of NodeClaims.
#[derive(Debug)]
pub(crate) struct Claims {
    shared: Arc<Shared>,
    pub(crate) queue: WorkQueue<String>,
}

impl Claims {
    pub(crate) fn new(shared: Arc<Shared>, queue: WorkQueue<String>) -> Arc<Self> {
        let this = Arc::new(Self { shared, queue });
        this.subscribe();
        this
    }

    fn subscribe(&self) {
        let stores = &self.shared.stores;
        let queue = self.queue.clone();
        stores.node_claims.on_change(move |change| {
            if let Some(claim) = change.object() {
                queue.add(claim.name().to_owned());
            }
        });
        let (queue, claims) = (self.queue.clone(), stores.claims_by_provider_id.clone());
        stores.nodes.on_change(move |change| {
            let id = change
                .object()
                .and_then(|node| node.spec.as_ref()?.provider_id.clone())
                .unwrap_or_default();
            for claim in claims.get(&id) {
                queue.add(claim.name().to_owned());
            }
        });
        let (queue, claims) = (self.queue.clone(), stores.claims_by_pool.clone());
        stores.node_pools.on_change(move |change| {
            if let Some(pool) = change.object() {
                for claim in claims.get(pool.name()) {
                    queue.add(claim.name().to_owned());
                }
            }
        });
    }

    /// D-036: pods that come and go restart the clock of their node.
    pub(crate) fn watch_pods(self: &Arc<Self>, disturbed: WorkQueue<String>) {
        self.shared.stores.pods.on_change(move |change| {
            if let Some(node) = disturbed_node(change.old.as_deref(), change.new.as_deref()) {
                disturbed.add(node.to_owned());
            }
        });
    }

    /// Writes a pod event for a node.
    pub(crate) async fn disturbed(self: Arc<Self>, node: String) -> Result<Requeue, ReconcileError> {
        let stores = &self.shared.stores;
        let Some(node) = stores.nodes.get_named(&node) else {
            return Ok(Requeue::Done);
        };
        let id = node
            .spec
            .as_ref()
            .and_then(|spec| spec.provider_id.clone())
            .unwrap_or_default();
        for claim in stores.claims_by_provider_id.get(&id) {
            if let Some(action) = pod_event_action(&claim, self.shared.now()) {
                self.write(&[action]).await?;
            }
        }
        Ok(Requeue::Done)
    }

    /// One look at a NodeClaim.
    pub(crate) async fn reconcile(self: Arc<Self>, name: String) -> Result<Requeue, ReconcileError> {
        let Some(claim) = self.shared.stores.node_claims.get_named(&name) else {
            return Ok(Requeue::Done);
        };
        if !self.shared.is_ours(&claim) {
            return Ok(Requeue::Done);
        }
        if claim.is_deleting() {
            self.end(&claim).await
        } else {
            self.live(&claim).await
        }
    }

    /// Writes; a conflict or a vanished object means that a fresh look is on its way.
    async fn write(&self, actions: &[Action]) -> Result<bool, ReconcileError> {
        match self.shared.execute.run_all(actions).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_conflict() || error.is_not_found() => {
                tracing::debug!(%error, "will be looked at again");
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn live(&self, claim: &Arc<NodeClaim>) -> Result<Requeue, ReconcileError> {
        let shared = &self.shared;
        if let Some(action) = lifecycle::finalizer_action(claim) {
            self.write(&[action]).await?;
            return Ok(Requeue::After(Duration::ZERO));
        }
        let now = shared.now();
        if let Some(left) = lifecycle::until_expiry(claim, now)
            && left.is_zero()
        {
            tracing::info!(NodeClaim = claim.name(), "expired nodeclaim");
            return self.give_up(claim, "expired", "its expireAfter has passed").await;
        }
        if !claim.is_true(LAUNCHED) {
            return self.launch(claim).await;
        }
        let nodes = claim
            .provider_id()
            .map(|id| shared.stores.nodes_by_provider_id.get(id))
            .unwrap_or_default();
        let outcome = lifecycle::advance(claim, &nodes, now);
        for event in &outcome.events {
            shared.execute.tell(event);
        }
        if !self.write(&outcome.actions).await? {
            return Ok(Requeue::After(Duration::from_millis(100)));
        }
        self.progressed(claim, &outcome.progress).await;
        if !outcome.actions.is_empty() {
            // Our own write comes back as a change, and with it the next look.
            return Ok(Requeue::After(Duration::ZERO));
        }
        let mut wait = match lifecycle::liveness(claim, now) {
            Liveness::TimedOut(reason) => {
                return self
                    .give_up(claim, reason, "its node did not register in time")
                    .await;
            }
            Liveness::Within(left) => Some(left),
            Liveness::Fine => None,
        };
        let pool = claim
            .node_pool()
            .and_then(|name| shared.stores.node_pools.get_named(name));
        let (action, window) = consolidatable(claim, pool.as_deref(), now);
        if let Some(action) = action {
            self.write(&[action]).await?;
        }
        for due in [window, lifecycle::until_expiry(claim, now)]
            .into_iter()
            .flatten()
        {
            wait = Some(wait.map_or(due, |wait| wait.min(due)));
        }
        Ok(wait.map_or(Requeue::Done, Requeue::After))
    }

    async fn launch(&self, claim: &Arc<NodeClaim>) -> Result<Requeue, ReconcileError> {
        let shared = &self.shared;
        if let Liveness::TimedOut(reason) = lifecycle::liveness(claim, shared.now()) {
            return self
                .give_up(claim, reason, "its launch did not succeed in time")
                .await;
        }
        let started = shared.now();
        let answer = shared.provider.create(claim).await;
        self.called("create", started, answer.as_ref().err());
        match answer {
            Ok(instance) => self.launched(claim, &instance).await,
            Err(CloudError::InsufficientCapacity(_)) => {
                let error = answer
                    .err()
                    .map(|error| error.short_message())
                    .unwrap_or_default();
                let message = format!("NodeClaim {} event: {error}", claim.name());
                shared.execute.tell(&Event::new(
                    claim_ref(claim),
                    EventType::Warning,
                    "InsufficientCapacityError",
                    message,
                ));
                tracing::error!(NodeClaim = claim.name(), error, "failed launching nodeclaim");
                self.give_up(claim, "insufficient_capacity", &error).await
            }
            Err(error @ CloudError::NodeClassNotReady(_)) => {
                tracing::error!(NodeClaim = claim.name(), %error, "failed launching nodeclaim");
                self.give_up(claim, "nodeclass_not_ready", &error.to_string())
                    .await
            }
            Err(error) => {
                let (reason, message) = match &error {
                    CloudError::Create { reason, message } => (reason.clone(), message.clone()),
                    other => ("LaunchFailed".to_owned(), other.short_message()),
                };
                let after = lifecycle::launch_failed(claim, &reason, &message, shared.now());
                let action = Action::patch(claim_ref(claim), Subresource::Status, &**claim, &after, false);
                self.write(&action.into_iter().collect::<Vec<_>>()).await?;
                Err(Box::new(error))
            }
        }
    }

    async fn launched(
        &self,
        claim: &Arc<NodeClaim>,
        instance: &NodeClaim,
    ) -> Result<Requeue, ReconcileError> {
        let shared = &self.shared;
        let after = lifecycle::launched(claim, instance, shared.now());
        let actions: Vec<Action> = [Subresource::Main, Subresource::Status]
            .into_iter()
            .filter_map(|part| Action::patch(claim_ref(claim), part, &**claim, &after, false))
            .collect();
        if self.write(&actions).await? {
            let label = |key: &str| after.label(key).unwrap_or_default().to_owned();
            let (kind, zone, capacity) = (
                label(labels::INSTANCE_TYPE),
                label(labels::ZONE),
                label(labels::CAPACITY_TYPE),
            );
            tracing::info!(
                NodeClaim = claim.name(),
                "provider-id" = after.provider_id().unwrap_or_default(),
                "instance-type" = kind,
                zone = zone,
                "capacity-type" = capacity,
                "launched nodeclaim"
            );
            let price = shared.cluster_price().await;
            shared.tell(
                DecisionKind::Launched,
                claim.name(),
                format!("{kind} {capacity} in {zone}"),
                "the cheapest offering that was left",
                None,
                price,
            );
        }
        Ok(Requeue::After(Duration::ZERO))
    }

    async fn progressed(&self, claim: &NodeClaim, progress: &[Progress]) {
        let shared = &self.shared;
        let label = |key: &str| claim.label(key).unwrap_or_default();
        for step in progress {
            match step {
                Progress::Registered { node } => {
                    shared
                        .families
                        .nodes_created
                        .inc(&[claim.node_pool().unwrap_or_default(), label(labels::ZONE)]);
                    tracing::info!(NodeClaim = claim.name(), Node = node, "registered nodeclaim");
                }
                Progress::Initialized { node } => {
                    tracing::info!(NodeClaim = claim.name(), Node = node, "initialized nodeclaim");
                    let price = shared.cluster_price().await;
                    shared.tell(
                        DecisionKind::Ready,
                        node,
                        "can run pods",
                        format!("nodeclaim {} is initialised", claim.name()),
                        None,
                        price,
                    );
                }
            }
        }
    }

    /// Deletes a claim that has no future.
    async fn give_up(
        &self,
        claim: &Arc<NodeClaim>,
        reason: &str,
        why: &str,
    ) -> Result<Requeue, ReconcileError> {
        if self.write(&[Action::delete(claim_ref(claim))]).await? {
            self.count_disrupted(claim, reason);
            let price = self.shared.cluster_price().await;
            self.shared.tell(
                DecisionKind::Trouble,
                claim.name(),
                format!("deleted ({reason})"),
                why,
                None,
                price,
            );
        }
        Ok(Requeue::Done)
    }

    fn count_disrupted(&self, claim: &NodeClaim, reason: &str) {
        let capacity = claim.label(labels::CAPACITY_TYPE).unwrap_or_default();
        let labels = [
            reason,
            claim.node_pool().unwrap_or_default(),
            capacity,
            "",
            termination_mode(claim),
        ];
        self.shared.families.claims_disrupted.inc(&labels);
    }

    fn called(&self, method: &str, started: jiff::Timestamp, error: Option<&CloudError>) {
        let labels = ["nodeclaim.lifecycle", method, self.shared.provider.name()];
        self.shared
            .families
            .cloud_duration
            .observe(&labels, self.shared.clock.since(started).as_secs_f64());
        if let Some(error) = error.filter(|error| !error.is_not_found()) {
            self.shared
                .families
                .cloud_errors
                .inc(&[labels[0], labels[1], labels[2], error.metric_label()]);
        }
    }

    async fn end(&self, claim: &Arc<NodeClaim>) -> Result<Requeue, ReconcileError> {
        let finalizers = claim.metadata.finalizers.as_deref().unwrap_or_default();
        if !finalizers.iter().any(|one| one == labels::TERMINATION_FINALIZER) {
            return Ok(Requeue::Done);
        }
        let nodes = claim
            .provider_id()
            .map(|id| self.shared.stores.nodes_by_provider_id.get(id))
            .unwrap_or_default();
        match termination::claim_step(claim, &nodes) {
            ClaimStep::Write(actions, events) => {
                for event in &events {
                    self.shared.execute.tell(event);
                }
                self.write(&actions).await?;
                Ok(Requeue::After(Duration::from_millis(100)))
            }
            ClaimStep::WaitForNodes => Ok(Requeue::Done),
            ClaimStep::TerminateInstance => self.terminate(claim).await,
            // A launch may have been cut off before its result was written: the cloud knows the instance by the claim's UID.
            ClaimStep::RemoveFinalizer => self.terminate(claim).await,
        }
    }

    async fn terminate(&self, claim: &Arc<NodeClaim>) -> Result<Requeue, ReconcileError> {
        let shared = &self.shared;
        let started = shared.now();
        let answer = shared.provider.delete(claim).await;
        self.called("delete", started, answer.as_ref().err());
        match answer {
            Ok(()) => {
                let action = termination::instance_terminating(claim, shared.now());
                self.write(&action.into_iter().collect::<Vec<_>>()).await?;
                Ok(Requeue::After(INSTANCE_TERMINATION_POLL))
            }
            Err(error) if error.is_not_found() => self.release(claim).await,
            Err(error) => Err(Box::new(error)),
        }
    }

    async fn release(&self, claim: &Arc<NodeClaim>) -> Result<Requeue, ReconcileError> {
        let shared = &self.shared;
        let action = termination::release_claim(claim);
        if !self.write(&action.into_iter().collect::<Vec<_>>()).await? {
            return Ok(Requeue::After(Duration::from_millis(100)));
        }
        let pool = claim.node_pool().unwrap_or_default();
        let now = shared.now();
        let seconds = |since: jiff::Timestamp| now.duration_since(since).as_secs_f64();
        if let Some(condition) = claim.condition(INSTANCE_TERMINATING) {
            shared
                .families
                .instance_termination_duration
                .observe(&[pool], seconds(condition.last_transition_time));
        }
        if let Some(deleted) = &claim.metadata.deletion_timestamp {
            shared
                .families
                .claims_termination_duration
                .observe(&[pool], seconds(deleted.0));
        }
        let label = |key: &str| claim.label(key).unwrap_or_default();
        shared
            .families
            .claims_terminated
            .inc(&[pool, label(labels::CAPACITY_TYPE), label(labels::ZONE)]);
        tracing::info!(NodeClaim = claim.name(), "deleted nodeclaim");
        let price = shared.cluster_price().await;
        shared.tell(
            DecisionKind::Gone,
            claim.name(),
            "is gone",
            "its instance has ended",
            Some(Price::ZERO),
            price,
        );
        Ok(Requeue::Done)
    }
}

/// D-244.
pub(crate) fn termination_mode(claim: &NodeClaim) -> &'static str {
    match claim
        .spec
        .termination_grace_period
        .as_ref()
        .map(spokeshave_api::GoDuration::nanoseconds)
    {
        None => "graceful",
        Some(nanoseconds) if nanoseconds <= 0 => "forceful",
        Some(_) => "eventual",
    }
}
