//! NodeClaims: launch, registration, initialisation, liveness, expiry, consolidateAfter, and their end (P §9, D §1.6, D §8.7).
//!
//! One key a NodeClaim: a slow call to the cloud for one delays no other.

mod consistency_checks;
mod gone;
mod prices;
mod progress;
mod remembered;
mod tries;
mod without_id;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::conditions::{Conditioned, INSTANCE_TERMINATING, LAUNCHED, REGISTERED};
use spokeshave_api::constants::LAUNCH_TIMEOUT;
use spokeshave_api::{NodeClaim, NodePool, labels};
use spokeshave_model::{Action, Event, EventType, Price, Subresource};
use spokeshave_plan::consolidatable::consolidatable;
use spokeshave_plan::lifecycle::{self, Liveness, claim_ref};
use spokeshave_plan::termination::{self, ClaimStep};
use spokeshave_plan::{blockers, identity};
use spokeshave_ports::CloudError;
use spokeshave_runtime::{ReconcileError, Requeue};

use self::progress::Notes;
use self::remembered::Remembered;
use self::tries::Tries;
use crate::act::hands::Hands;
use crate::act::instance_end::InstanceEnd;
use crate::cloud::Measured;
use crate::cloud::registration_hooks::{self, Pending};
use crate::controller::{Controller, Looked, Triggers};
use crate::observe::decision::DecisionKind;
use crate::observe::journal::Journal;
use crate::options::Options;
use crate::reconcile::{launch_ends, nominations};
use crate::state::cluster::Cluster;

/// NodeClaims that are worked on at once, at one core and at sixty.
const WORKERS: (usize, usize) = (1000, 5000);

/// The controller of NodeClaims.
#[derive(Debug)]
pub(crate) struct Claims {
    cluster: Arc<Cluster>,
    hands: Hands,
    journal: Arc<Journal>,
    /// Results of launches that are not written yet, and when they came (P-162). Lost: the cloud is asked again and finds the same instance.
    launches: Remembered<(NodeClaim, Timestamp)>,
    /// Tries of launches: what a failure writes on the claim must not bring the next try early.
    tries: Remembered<Tries>,
    /// When claims were last checked for consistency. Lost: they are checked once more.
    checked: Remembered<Timestamp>,
    notes: Notes,
    /// Names of claims that were not found and may come back, because they cannot be read.
    missing: Mutex<BTreeSet<String>>,
    cloud: Measured,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Claims {
    pub(crate) fn new(cluster: Arc<Cluster>, hands: Hands, journal: Arc<Journal>) -> Arc<Self> {
        let cloud = cluster.cloud.of(Self::NAME);
        Arc::new(Self {
            cluster,
            hands,
            journal,
            launches: Remembered::default(),
            tries: Remembered::default(),
            checked: Remembered::default(),
            notes: Notes::default(),
            missing: Mutex::default(),
            cloud,
        })
    }

    /// After a write. Its result is in the store already, so that the next step can be taken at once; what was refused waits for the news.
    fn next_step(written: bool) -> Requeue {
        if written {
            Requeue::After(Duration::ZERO)
        } else {
            Requeue::Stale
        }
    }

    async fn write(&self, actions: &[Action]) -> Result<bool, ReconcileError> {
        Ok(self.hands.run_unless_stale(actions).await?)
    }

    async fn live(&self, claim: &Arc<NodeClaim>) -> Result<Requeue, ReconcileError> {
        if let Some(action) = lifecycle::prepare_action(claim) {
            return Ok(Self::next_step(self.write(&[action]).await?));
        }
        let now = self.cluster.now();
        if let Some(left) = lifecycle::until_expiry(claim, now)
            && left.is_zero()
        {
            tracing::info!(NodeClaim = claim.name(), "expired nodeclaim");
            let requeue = self
                .give_up(claim, "expired", "its expireAfter has passed")
                .await?;
            if requeue == Requeue::Done {
                self.journal.count_initiated(claim, "expired");
            }
            return Ok(requeue);
        }
        if !claim.is_true(LAUNCHED) {
            return self.launch(claim).await;
        }
        if claim.provider_id().is_none() {
            return self.look_for_instance(claim).await;
        }
        let pending = if claim.is_true(REGISTERED) || self.nodes_of(claim).len() != 1 {
            Pending::default()
        } else {
            registration_hooks::ask(&self.cloud, claim).await
        };
        // Hooks take their time: what is written is decided on what is there now.
        let current = self.cluster.stores.node_claims.get_named(claim.name());
        let current = current.filter(|current| current.uid() == claim.uid() && !current.is_deleting());
        let Some(claim) = &current else {
            return Ok(Requeue::Done);
        };
        let now = self.cluster.now();
        let id = claim.provider_id().unwrap_or_default();
        let same_id = self.cluster.stores.claims_by_provider_id.get(id);
        // A Node that returns is nobody's while several say that it is theirs: whichever gets it takes it along when it goes.
        let is_disputed = claim.is_true(REGISTERED) && !identity::owns_instance(claim, &same_id);
        let nodes = if is_disputed {
            Vec::new()
        } else {
            self.nodes_of(claim)
        };
        let slices = self.cluster.options.dynamic_resources.then(|| {
            let names = nodes.iter().filter_map(|node| node.metadata.name.as_deref());
            names
                .flat_map(|name| self.cluster.stores.slices_by_node.get(name))
                .collect::<Vec<_>>()
        });
        let plan = lifecycle::advance(claim, &nodes, slices.as_deref(), &pending.names, now);
        nominations::before_pods_come(&self.cluster, &self.hands, claim, &plan.report).await;
        if !self.hands.carry_out(&plan).await? {
            return Ok(Requeue::Stale);
        }
        self.progressed(claim, &plan.report);
        if !plan.actions.is_empty() {
            return Ok(Self::next_step(true));
        }
        let mut wait = match lifecycle::liveness(claim, now) {
            Liveness::TimedOut(reason) => {
                return self
                    .time_out(claim, reason, "its node did not register in time")
                    .await;
            }
            Liveness::Within(left) => Some(left),
            Liveness::Fine => None,
        };
        let pool = claim
            .node_pool()
            .and_then(|name| self.cluster.stores.node_pools.get_named(name));
        let (action, window) = consolidatable(claim, pool.as_deref(), now);
        if let Some(action) = action {
            return Ok(Self::next_step(self.write(&[action]).await?));
        }
        if let Some(event) = identity::look_at_claim(claim, &same_id) {
            self.hands.tell(&event);
        }
        let check = self.check_consistency(claim, &nodes, now).await?;
        let dues = [
            window,
            check,
            pending.ask_again,
            lifecycle::until_expiry(claim, now),
        ];
        for due in dues.into_iter().flatten() {
            wait = Some(wait.map_or(due, |wait| wait.min(due)));
        }
        Ok(wait.map_or(Requeue::Done, Requeue::After))
    }

    /// Nodes that say they run on the instance of a claim.
    fn nodes_of(&self, claim: &NodeClaim) -> Vec<Arc<Node>> {
        let id = claim.provider_id();
        id.map(|id| self.cluster.stores.nodes_by_provider_id.get(id))
            .unwrap_or_default()
    }

    /// A claim is tried before it times out: whoever led before may have been down, or have launched it without being able to say so.
    async fn launch(&self, claim: &Arc<NodeClaim>) -> Result<Requeue, ReconcileError> {
        let now = self.cluster.now();
        if let Some((instance, since)) = self.launches.get(claim) {
            // Without this word on the claim its Node cannot register either.
            let launched = lifecycle::launched(claim, &instance, since);
            return match lifecycle::liveness(&launched, now) {
                Liveness::TimedOut(reason) => {
                    let why = "that it is launched could not be written in time";
                    self.time_out(claim, reason, why).await
                }
                Liveness::Within(_) | Liveness::Fine => self.launched(claim, &instance).await,
            };
        }
        let tries = self.tries_of(claim, now);
        let (left, longest_call) = match lifecycle::liveness(claim, now) {
            Liveness::TimedOut(reason) => {
                let left = tries.left_when_late(now);
                if left.is_zero() {
                    let why = "its launch did not succeed in time";
                    return self.time_out(claim, reason, why).await;
                }
                (left, LAUNCH_TIMEOUT)
            }
            Liveness::Within(left) => (left, left),
            Liveness::Fine => (Duration::MAX, Duration::MAX),
        };
        if tries.due > now {
            return Ok(Requeue::After(self.cluster.clock.until(tries.due).min(left)));
        }
        match self.create_instance(claim, longest_call).await {
            Ok(instance) => {
                let instance = self.priced(claim, instance).await;
                let since = self.cluster.now();
                self.launches.insert(claim, (instance.clone(), since));
                self.cluster.memory().launches.succeeded(claim);
                self.launched(claim, &instance).await
            }
            Err(error) => self.not_launched(claim, error).await,
        }
    }

    /// A try has failed.
    async fn not_launched(
        &self,
        claim: &Arc<NodeClaim>,
        error: CloudError,
    ) -> Result<Requeue, ReconcileError> {
        let (reason, message) = match &error {
            CloudError::InsufficientCapacity(_) => {
                let text = error.short_message();
                self.hands.tell(&Event::new(
                    claim_ref(claim),
                    EventType::Warning,
                    "InsufficientCapacityError",
                    format!("NodeClaim {} event: {text}", claim.name()),
                ));
                tracing::error!(
                    NodeClaim = claim.name(),
                    error = text,
                    "failed launching nodeclaim"
                );
                self.cluster.launch_refused(claim, &text);
                return self.give_up(claim, "insufficient_capacity", &text).await;
            }
            CloudError::NodeClassNotReady(_) => {
                tracing::error!(NodeClaim = claim.name(), %error, "failed launching nodeclaim");
                self.cluster.launch_refused(claim, &error.short_message());
                return self
                    .give_up(claim, "nodeclass_not_ready", &error.to_string())
                    .await;
            }
            CloudError::Create { reason, message } => (reason.clone(), message.clone()),
            other => ("LaunchFailed".to_owned(), other.short_message()),
        };
        self.delay_launch(claim);
        let after = lifecycle::launch_failed(claim, &reason, &message, self.cluster.now());
        let action = Action::patch(claim_ref(claim), Subresource::Status, &**claim, &after, true);
        self.write(&action.into_iter().collect::<Vec<_>>()).await?;
        Err(Box::new(error))
    }

    /// Asks the cloud, but for so long at most: a call that never answers must not keep a claim for ever. The instance that such a call
    /// may still make is found by the claim's UID, or as leaked.
    async fn create_instance(&self, claim: &NodeClaim, longest: Duration) -> Result<NodeClaim, CloudError> {
        let pool = claim
            .node_pool()
            .and_then(|name| self.cluster.stores.node_pools.get_named(name));
        tokio::select! {
            biased;
            answer = self.cloud.launch(claim, pool.as_deref()) => answer,
            () = self.cluster.clock.sleep(longest) => Err(CloudError::Timeout(format!(
                "the launch of NodeClaim {} had no answer before its time was over",
                claim.name()
            ))),
        }
    }

    /// Writes down what was launched: labels and annotations first, because `Launched` ends the launch.
    async fn launched(
        &self,
        claim: &Arc<NodeClaim>,
        instance: &NodeClaim,
    ) -> Result<Requeue, ReconcileError> {
        let patch = |before: &NodeClaim, part| {
            let after = lifecycle::launched(before, instance, self.cluster.now());
            let lock = part == Subresource::Status;
            let action = Action::patch(claim_ref(before), part, before, &after, lock);
            action.into_iter().collect::<Vec<_>>()
        };
        if !self.write(&patch(claim, Subresource::Main)).await? {
            return Ok(Requeue::Stale);
        }
        let Some(current) = self
            .cluster
            .stores
            .node_claims
            .get_named(claim.name())
            .filter(|current| current.uid() == claim.uid())
        else {
            return Ok(Requeue::Done);
        };
        if !self.write(&patch(&current, Subresource::Status)).await? {
            return Ok(Requeue::Stale);
        }
        self.launches.remove(claim);
        self.tries.remove(claim);
        let after = lifecycle::launched(&current, instance, self.cluster.now());
        let label = |key: &str| after.label(key).unwrap_or_default().to_owned();
        let (kind, zone) = (label(labels::INSTANCE_TYPE), label(labels::ZONE));
        let capacity = label(labels::CAPACITY_TYPE);
        let allocatable = after.status.as_ref().map(|status| &status.allocatable);
        let allocatable = spokeshave_model::Resources::from_quantities_lossy(allocatable);
        tracing::info!(
            NodeClaim = claim.name(),
            "provider-id" = after.provider_id().unwrap_or_default(),
            "instance-type" = kind,
            zone = zone,
            "capacity-type" = capacity,
            allocatable = allocatable.to_json_text(),
            "launched nodeclaim"
        );
        self.journal.note(
            DecisionKind::Launched,
            claim.name(),
            format!("{kind} {capacity} in {zone}"),
            "the cheapest offering that was left",
            None,
        );
        Ok(Requeue::After(Duration::ZERO))
    }

    /// Gives up a claim whose launch or Node took too long; its NodePool learns from it once.
    async fn time_out(
        &self,
        claim: &Arc<NodeClaim>,
        reason: &str,
        why: &str,
    ) -> Result<Requeue, ReconcileError> {
        // Before it goes: once it does it is not looked at like this again, and the answer to its deletion may be lost.
        if self.notes.gives_up(claim) {
            launch_ends::failed(&self.cluster, &self.hands, claim);
        }
        self.give_up(claim, reason, why).await
    }

    /// Deletes a claim that has no future.
    async fn give_up(
        &self,
        claim: &Arc<NodeClaim>,
        reason: &str,
        why: &str,
    ) -> Result<Requeue, ReconcileError> {
        if !self.write(&[Action::delete(claim_ref(claim))]).await? {
            return Ok(Requeue::Stale);
        }
        self.journal.count_disrupted(claim, reason);
        self.journal.note(
            DecisionKind::Trouble,
            claim.name(),
            format!("deleted ({reason})"),
            why,
            None,
        );
        Ok(Requeue::Done)
    }

    async fn end(&self, claim: &Arc<NodeClaim>) -> Result<Requeue, ReconcileError> {
        let finalizers = claim.metadata.finalizers.as_deref().unwrap_or_default();
        if !finalizers.iter().any(|one| one == labels::TERMINATION_FINALIZER) {
            return Ok(Requeue::Done);
        }
        if let Some(requeue) = self.restore_id(claim).await? {
            return Ok(requeue);
        }
        let id = claim.provider_id().unwrap_or_default();
        let stores = &self.cluster.stores;
        let same_id = stores.claims_by_provider_id.get(id);
        // Somebody gave it another's instance: that one, and its Node, are not ended with it.
        let owns = id.is_empty() || identity::owns_instance(claim, &same_id);
        let nodes = if owns && !id.is_empty() {
            stores.nodes_by_provider_id.get(id)
        } else {
            Vec::new()
        };
        match termination::claim_step(claim, &nodes) {
            ClaimStep::Write(plan) => {
                if !self.hands.carry_out(&plan).await? {
                    return Ok(Requeue::Stale);
                }
                Ok(Requeue::After(Duration::from_millis(100)))
            }
            ClaimStep::WaitForNodes => {
                // While our finalizer is on the Node, its termination tells what holds it up.
                if let Some(blocker) = blockers::node_blocker(&nodes) {
                    self.hands.report_blocker(claim, None, Some(&blocker)).await;
                }
                Ok(Requeue::Done)
            }
            ClaimStep::TerminateInstance if !owns => {
                if let Some(event) = identity::look_at_claim(claim, &same_id) {
                    tracing::warn!(
                        NodeClaim = claim.name(),
                        detail = event.message,
                        "instance not ended"
                    );
                    self.hands.tell(&event);
                }
                self.release(claim).await
            }
            ClaimStep::TerminateInstance => self.terminate(claim).await,
            // A launch may have been cut off before its result was written: the cloud knows the instance by the claim's UID.
            ClaimStep::RemoveFinalizer => self.terminate(claim).await,
        }
    }

    async fn terminate(&self, claim: &Arc<NodeClaim>) -> Result<Requeue, ReconcileError> {
        match self.hands.end_instance(&self.cloud, claim, None).await? {
            InstanceEnd::Gone => {
                // What was written a moment ago has made the NodeClaim newer.
                let current = self.cluster.stores.node_claims.get_named(claim.name());
                match current.filter(|current| current.uid() == claim.uid()) {
                    Some(current) => self.release(&current).await,
                    None => Ok(Requeue::Done),
                }
            }
            InstanceEnd::Ending(poll) => Ok(Requeue::After(poll)),
            InstanceEnd::Stale => Ok(Requeue::Stale),
        }
    }

    async fn release(&self, claim: &Arc<NodeClaim>) -> Result<Requeue, ReconcileError> {
        let action = termination::release_claim(claim);
        // What is made of the cluster while this is written knows the price no more.
        let price = self.cluster.prices.of(claim.name());
        if !self.write(&action.into_iter().collect::<Vec<_>>()).await? {
            return Ok(Requeue::Stale);
        }
        self.hands.forget_blocker(claim);
        let pool = claim.node_pool().unwrap_or_default();
        let now = self.cluster.now();
        let seconds = |since: jiff::Timestamp| now.duration_since(since).as_secs_f64();
        if let Some(condition) = claim.condition(INSTANCE_TERMINATING) {
            self.journal
                .families
                .instance_termination_duration
                .observe(&[pool], seconds(condition.last_transition_time));
        }
        if let Some(deleted) = &claim.metadata.deletion_timestamp {
            self.journal
                .families
                .claims_termination_duration
                .observe(&[pool], seconds(deleted.0));
        }
        let label = |key: &str| claim.label(key).unwrap_or_default();
        self.journal.families.claims_terminated.inc(&[
            pool,
            label(labels::CAPACITY_TYPE),
            label(labels::ZONE),
        ]);
        tracing::info!(NodeClaim = claim.name(), "deleted nodeclaim");
        self.journal.forget_price(claim);
        self.journal.note(
            DecisionKind::Gone,
            claim.name(),
            "is gone",
            "its instance has ended",
            Some(Price(-price.0)),
        );
        Ok(Requeue::Done)
    }
}

impl Controller for Claims {
    const NAME: &'static str = "nodeclaim.lifecycle";
    const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
    type Key = String;

    fn workers(options: &Options) -> usize {
        options.scaled(WORKERS.0, WORKERS.1)
    }

    fn subscribe(self: &Arc<Self>, on: &mut Triggers<'_, String>) {
        on.change(
            |stores| &stores.node_claims,
            |stores, change| {
                let own = change.object().map(|claim| claim.name().to_owned());
                // Whose instance it said was its own has that alone again.
                let id_of = |claim: Option<&NodeClaim>| Some(claim?.provider_id()?.to_owned());
                let (old, new) = (id_of(change.old.as_deref()), id_of(change.new.as_deref()));
                let left = old.filter(|old| new.as_ref() != Some(old));
                let others = left.map(|id| stores.claims_by_provider_id.get(&id));
                own.into_iter().chain(names(others.unwrap_or_default()))
            },
        );
        on.change(
            |stores| &stores.nodes,
            |stores, change| {
                let id = change
                    .object()
                    .and_then(|node| node.spec.as_ref()?.provider_id.clone());
                names(stores.claims_by_provider_id.get(&id.unwrap_or_default()))
            },
        );
        on.change(
            |stores| &stores.resource_slices,
            |stores, change| {
                let node = change.object().and_then(|slice| slice.spec.node_name.as_deref());
                let node = node.and_then(|node| stores.nodes.get_named(node));
                let id = node.and_then(|node| node.spec.as_ref()?.provider_id.clone());
                names(
                    id.map(|id| stores.claims_by_provider_id.get(&id))
                        .unwrap_or_default(),
                )
            },
        );
        on.change(
            |stores| &stores.node_pools,
            |stores, change| {
                // Status changes with every node; what claims read of their pool is its spec.
                let generation = |pool: Option<&NodePool>| pool.map(|pool| pool.metadata.generation);
                let (old, new) = (change.old.as_deref(), change.new.as_deref());
                let pool = change
                    .object()
                    .filter(|_| old.is_none() || generation(old) != generation(new));
                names(
                    pool.map(|pool| stores.claims_by_pool.get(pool.name()))
                        .unwrap_or_default(),
                )
            },
        );
    }

    /// One look at a NodeClaim.
    async fn reconcile(self: Arc<Self>, name: String) -> Looked {
        let Some(claim) = self.cluster.stores.node_claims.get_named(&name) else {
            self.forget_if_gone(&name);
            return Ok(Requeue::Done);
        };
        if claim.is_deleting() {
            self.launches.remove(&claim);
            self.tries.remove(&claim);
            self.checked.remove(&claim);
        }
        if !self.cluster.is_ours(&claim) {
            return Ok(Requeue::Done);
        }
        self.take_note(&claim);
        if claim.is_deleting() {
            self.end(&claim).await
        } else {
            self.live(&claim).await
        }
    }
}

fn names(claims: Vec<Arc<NodeClaim>>) -> impl Iterator<Item = String> {
    claims.into_iter().map(|claim| claim.name().to_owned())
}
