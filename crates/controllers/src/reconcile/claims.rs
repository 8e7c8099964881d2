//! NodeClaims: launch, registration, initialisation, liveness, expiry, consolidateAfter, and their end (P §9, D §1.6, D §8.7).
//!
//! One key a NodeClaim: a slow call to the cloud for one delays no other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use spokeshave_api::conditions::{Conditioned, INSTANCE_TERMINATING, LAUNCHED, REGISTERED};
use spokeshave_api::constants::CONSISTENCY_PERIOD;
use spokeshave_api::labels;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::{Action, Event, EventType, Price, Subresource};
use spokeshave_plan::consolidatable::{consolidatable, disturbed_node, pod_event_action, pod_event_time};
use spokeshave_plan::lifecycle::{self, Liveness, Progress, claim_ref};
use spokeshave_plan::registration_health::Outcome;
use spokeshave_plan::termination::{self, ClaimStep};
use spokeshave_plan::{blockers, consistency, identity};
use spokeshave_ports::CloudError;
use spokeshave_runtime::{ReconcileError, Requeue, WorkQueue};

use crate::act::instance_end::InstanceEnd;
use crate::cloud::Measured;
use crate::cloud::registration_hooks::{self, Pending};
use crate::observe::decision::DecisionKind;
use crate::shared::Shared;

/// First and longest pause between two tries to launch (D-263).
const FIRST_LAUNCH_RETRY: Duration = Duration::from_secs(1);
const LAST_LAUNCH_RETRY: Duration = Duration::from_secs(60);

/// The controller of NodeClaims.
#[derive(Debug)]
pub(crate) struct Claims {
    shared: Arc<Shared>,
    pub(crate) queue: WorkQueue<String>,
    /// Results of launches that are not written yet, by UID (P-162). Lost: the cloud is asked again and finds the same instance.
    launches: Mutex<BTreeMap<String, NodeClaim>>,
    /// How often launches have failed and when the next try is due, by UID: what a failure writes on the claim must not bring the next try early.
    retries: Mutex<BTreeMap<String, (u32, Timestamp)>>,
    /// The newest pod event of nodes that is not written yet, by name of the Node.
    pod_events: Mutex<BTreeMap<String, Timestamp>>,
    /// When claims were last checked for consistency, by UID. Lost: they are checked once more.
    checked: Mutex<BTreeMap<String, Timestamp>>,
    cloud: Measured,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Claims {
    pub(crate) fn new(shared: Arc<Shared>, queue: WorkQueue<String>) -> Arc<Self> {
        let cloud = shared.cloud.of("nodeclaim.lifecycle");
        let this = Arc::new(Self {
            shared,
            queue,
            launches: Mutex::default(),
            retries: Mutex::default(),
            pod_events: Mutex::default(),
            checked: Mutex::default(),
            cloud,
        });
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
        let (queue, claims) = (self.queue.clone(), stores.claims_by_provider_id.clone());
        let nodes = stores.nodes.clone();
        stores.resource_slices.on_change(move |change| {
            let slice = change.new.as_deref().or(change.old.as_deref());
            let node = slice.and_then(|slice| nodes.get_named(slice.spec.node_name.as_deref()?));
            let id = node.and_then(|node| node.spec.as_ref()?.provider_id.clone());
            for claim in id.map(|id| claims.get(&id)).unwrap_or_default() {
                queue.add(claim.name().to_owned());
            }
        });
        let (queue, claims) = (self.queue.clone(), stores.claims_by_pool.clone());
        stores.node_pools.on_change(move |change| {
            if let Some(pool) = change.object() {
                // Status changes with every node; what claims read of their pool is its spec.
                let generation = |pool: Option<&NodePool>| pool.map(|pool| pool.metadata.generation);
                if change.old.is_some()
                    && generation(change.old.as_deref()) == generation(change.new.as_deref())
                {
                    return;
                }
                for claim in claims.get(pool.name()) {
                    queue.add(claim.name().to_owned());
                }
            }
        });
    }

    /// D-036: pods that come and go restart the clock of their node.
    pub(crate) fn watch_pods(self: &Arc<Self>, disturbed: WorkQueue<String>) {
        let this = self.clone();
        self.shared.stores.pods.on_change(move |change| {
            let Some(pod) = change.new.as_deref() else {
                return;
            };
            if let Some(node) = disturbed_node(change.old.as_deref(), Some(pod)) {
                let time = pod_event_time(change.old.as_deref(), pod, this.shared.now());
                this.note_pod_event(node, time);
                disturbed.add(node.to_owned());
            }
        });
    }

    fn note_pod_event(&self, node: &str, time: Timestamp) {
        let mut events = lock(&self.pod_events);
        let newest = events.entry(node.to_owned()).or_insert(time);
        *newest = (*newest).max(time);
    }

    /// Writes a pod event for a node.
    pub(crate) async fn disturbed(self: Arc<Self>, name: String) -> Result<Requeue, ReconcileError> {
        let Some(time) = lock(&self.pod_events).remove(&name) else {
            return Ok(Requeue::Done);
        };
        let stores = &self.shared.stores;
        let Some(node) = stores.nodes.get_named(&name) else {
            return Ok(Requeue::Done);
        };
        let id = node
            .spec
            .as_ref()
            .and_then(|spec| spec.provider_id.clone())
            .unwrap_or_default();
        for claim in stores.claims_by_provider_id.get(&id) {
            if let Some(action) = pod_event_action(&claim, time)
                && let Err(error) = self.write(&[action]).await
            {
                self.note_pod_event(&name, time);
                return Err(error);
            }
        }
        Ok(Requeue::Done)
    }

    /// One look at a NodeClaim.
    pub(crate) async fn reconcile(self: Arc<Self>, name: String) -> Result<Requeue, ReconcileError> {
        let Some(claim) = self.shared.stores.node_claims.get_named(&name) else {
            return Ok(Requeue::Done);
        };
        if claim.is_deleting() {
            lock(&self.launches).remove(claim.uid());
            lock(&self.retries).remove(claim.uid());
            lock(&self.checked).remove(claim.uid());
        }
        if !self.shared.is_ours(&claim) {
            return Ok(Requeue::Done);
        }
        if claim.is_deleting() {
            self.end(&claim).await
        } else {
            self.live(&claim).await
        }
    }

    /// After a write. Its result is in the store already, so that the next step can be taken at once; what was refused waits for the news.
    fn next_step(written: bool) -> Requeue {
        if written {
            Requeue::After(Duration::ZERO)
        } else {
            Requeue::Stale
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
        if let Some(action) = lifecycle::prepare_action(claim) {
            return Ok(Self::next_step(self.write(&[action]).await?));
        }
        let now = shared.now();
        if let Some(left) = lifecycle::until_expiry(claim, now)
            && left.is_zero()
        {
            tracing::info!(NodeClaim = claim.name(), "expired nodeclaim");
            let requeue = self
                .give_up(claim, "expired", "its expireAfter has passed")
                .await?;
            if requeue == Requeue::Done {
                self.shared.count_initiated(claim, "expired");
            }
            return Ok(requeue);
        }
        // A provider ID that somebody took away is found again: a launch is idempotent by UID.
        if !claim.is_true(LAUNCHED) || claim.provider_id().is_none() {
            return self.launch(claim).await;
        }
        let pending = if claim.is_true(REGISTERED) || self.nodes_of(claim).len() != 1 {
            Pending::default()
        } else {
            registration_hooks::ask(&self.cloud, claim).await
        };
        // Hooks take their time: what is written is decided on what is there now.
        let current = shared.stores.node_claims.get_named(claim.name());
        let current = current.filter(|current| current.uid() == claim.uid() && !current.is_deleting());
        let Some(claim) = &current else {
            return Ok(Requeue::Done);
        };
        let now = shared.now();
        let nodes = self.nodes_of(claim);
        let slices = shared.options.dynamic_resources.then(|| {
            let names = nodes.iter().filter_map(|node| node.metadata.name.as_deref());
            names
                .flat_map(|name| shared.stores.slices_by_node.get(name))
                .collect::<Vec<_>>()
        });
        let outcome = lifecycle::advance(claim, &nodes, slices.as_deref(), &pending.names, now);
        for event in &outcome.events {
            shared.execute.tell(event);
        }
        if !self.write(&outcome.actions).await? {
            return Ok(Requeue::Stale);
        }
        self.progressed(claim, &outcome.progress);
        if !outcome.actions.is_empty() {
            return Ok(Self::next_step(true));
        }
        let mut wait = match lifecycle::liveness(claim, now) {
            Liveness::TimedOut(reason) => {
                let why = "its node did not register in time";
                return self.time_out(claim, reason, why).await;
            }
            Liveness::Within(left) => Some(left),
            Liveness::Fine => None,
        };
        let pool = claim
            .node_pool()
            .and_then(|name| shared.stores.node_pools.get_named(name));
        let (action, window) = consolidatable(claim, pool.as_deref(), now);
        if let Some(action) = action {
            return Ok(Self::next_step(self.write(&[action]).await?));
        }
        let same_id = shared
            .stores
            .claims_by_provider_id
            .get(claim.provider_id().unwrap_or_default());
        if let Some(event) = identity::look_at_claim(claim, nodes.len(), &same_id) {
            shared.execute.tell(&event);
        }
        let check = self.check_consistency(claim, &nodes, now).await?;
        for due in [
            window,
            check,
            pending.ask_again,
            lifecycle::until_expiry(claim, now),
        ]
        .into_iter()
        .flatten()
        {
            wait = Some(wait.map_or(due, |wait| wait.min(due)));
        }
        Ok(wait.map_or(Requeue::Done, Requeue::After))
    }

    /// Nodes that say they run on the instance of a claim.
    fn nodes_of(&self, claim: &NodeClaim) -> Vec<Arc<Node>> {
        let id = claim.provider_id();
        id.map(|id| self.shared.stores.nodes_by_provider_id.get(id))
            .unwrap_or_default()
    }

    /// P-173: every ten minutes. Returns the time to the next check.
    async fn check_consistency(
        &self,
        claim: &NodeClaim,
        nodes: &[Arc<Node>],
        now: Timestamp,
    ) -> Result<Option<Duration>, ReconcileError> {
        let [node] = nodes else { return Ok(None) };
        if !consistency::applies(claim) {
            return Ok(None);
        }
        let last = lock(&self.checked).get(claim.uid()).copied();
        let passed = last.map(|last| Duration::try_from(now.duration_since(last)).unwrap_or_default());
        if let Some(passed) = passed.filter(|passed| *passed < CONSISTENCY_PERIOD) {
            return Ok(Some(CONSISTENCY_PERIOD - passed));
        }
        let (action, events) = consistency::check(claim, node, now);
        for event in &events {
            tracing::error!(
                NodeClaim = claim.name(),
                error = event.message,
                "consistency error"
            );
            self.shared.execute.tell(event);
        }
        if let Some(action) = action
            && !self.write(&[action]).await?
        {
            // The news of the claim brings the next look; this is for news that do not come.
            return Ok(Some(Duration::from_secs(10)));
        }
        lock(&self.checked).insert(claim.uid().to_owned(), now);
        Ok(Some(CONSISTENCY_PERIOD))
    }

    async fn launch(&self, claim: &Arc<NodeClaim>) -> Result<Requeue, ReconcileError> {
        let shared = &self.shared;
        let left = match lifecycle::liveness(claim, shared.now()) {
            Liveness::TimedOut(reason) => {
                let why = "its launch did not succeed in time";
                return self.time_out(claim, reason, why).await;
            }
            Liveness::Within(left) => left,
            Liveness::Fine => Duration::MAX,
        };
        let known = lock(&self.launches).get(claim.uid()).cloned();
        if let Some(instance) = known {
            return self.launched(claim, &instance).await;
        }
        let next = lock(&self.retries).get(claim.uid()).map(|(_, due)| *due);
        if let Some(due) = next.filter(|due| *due > shared.now()) {
            return Ok(Requeue::After(shared.clock.until(due).min(left)));
        }
        let error = match self.create_instance(claim, left).await {
            Ok(instance) => {
                lock(&self.launches).insert(claim.uid().to_owned(), instance.clone());
                shared.memory().launches.succeeded(claim);
                return self.launched(claim, &instance).await;
            }
            Err(error) => error,
        };
        let (reason, message) = match &error {
            CloudError::InsufficientCapacity(_) => {
                let text = error.short_message();
                shared.execute.tell(&Event::new(
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
                shared.launch_refused(claim, &text);
                return self.give_up(claim, "insufficient_capacity", &text).await;
            }
            CloudError::NodeClassNotReady(_) => {
                tracing::error!(NodeClaim = claim.name(), %error, "failed launching nodeclaim");
                shared.launch_refused(claim, &error.short_message());
                return self
                    .give_up(claim, "nodeclass_not_ready", &error.to_string())
                    .await;
            }
            CloudError::Create { reason, message } => (reason.clone(), message.clone()),
            other => ("LaunchFailed".to_owned(), other.short_message()),
        };
        self.delay_launch(claim);
        let after = lifecycle::launch_failed(claim, &reason, &message, shared.now());
        let action = Action::patch(claim_ref(claim), Subresource::Status, &**claim, &after, true);
        self.write(&action.into_iter().collect::<Vec<_>>()).await?;
        Err(Box::new(error))
    }

    /// D-263: one second, doubling to a minute.
    fn delay_launch(&self, claim: &NodeClaim) {
        let mut retries = lock(&self.retries);
        let (failures, due) = retries
            .entry(claim.uid().to_owned())
            .or_insert((0, Timestamp::MIN));
        let delay = FIRST_LAUNCH_RETRY
            .saturating_mul(1 << (*failures).min(6))
            .min(LAST_LAUNCH_RETRY);
        *failures = failures.saturating_add(1);
        *due = self.shared.now().saturating_add(delay).unwrap_or(Timestamp::MAX);
    }

    /// Asks the cloud, but not for longer than the claim has left: a call that never answers must not keep it for ever. The instance that such a call
    /// may still make is found by the claim's UID, or as leaked.
    async fn create_instance(&self, claim: &NodeClaim, left: Duration) -> Result<NodeClaim, CloudError> {
        let pool = claim
            .node_pool()
            .and_then(|name| self.shared.stores.node_pools.get_named(name));
        tokio::select! {
            biased;
            answer = self.cloud.launch(claim, pool.as_deref()) => answer,
            () = self.shared.clock.sleep(left) => Err(CloudError::Timeout(format!(
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
        let shared = &self.shared;
        let patch = |before: &NodeClaim, part| {
            let after = lifecycle::launched(before, instance, shared.now());
            let lock = part == Subresource::Status;
            let action = Action::patch(claim_ref(before), part, before, &after, lock);
            action.into_iter().collect::<Vec<_>>()
        };
        if !self.write(&patch(claim, Subresource::Main)).await? {
            return Ok(Requeue::Stale);
        }
        let Some(current) = shared
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
        lock(&self.launches).remove(claim.uid());
        lock(&self.retries).remove(claim.uid());
        let after = lifecycle::launched(&current, instance, shared.now());
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
            allocatable = allocatable_text(&after),
            "launched nodeclaim"
        );
        shared.note_price(&after).await;
        shared.note(
            DecisionKind::Launched,
            claim.name(),
            format!("{kind} {capacity} in {zone}"),
            "the cheapest offering that was left",
            None,
        );
        Ok(Requeue::After(Duration::ZERO))
    }

    fn progressed(&self, claim: &NodeClaim, progress: &[Progress]) {
        let shared = &self.shared;
        let label = |key: &str| claim.label(key).unwrap_or_default();
        for step in progress {
            match step {
                Progress::Registered { node } => {
                    shared
                        .families
                        .nodes_created
                        .inc(&[claim.node_pool().unwrap_or_default(), label(labels::ZONE)]);
                    shared.note_outcome(claim, Outcome::Registered);
                    tracing::info!(NodeClaim = claim.name(), Node = node, "registered nodeclaim");
                }
                Progress::Initialized { node } => {
                    tracing::info!(NodeClaim = claim.name(), Node = node, "initialized nodeclaim");
                    shared.note(
                        DecisionKind::Ready,
                        node,
                        "can run pods",
                        format!("nodeclaim {} is initialised", claim.name()),
                        None,
                    );
                }
            }
        }
    }

    /// Gives up a claim whose launch or Node took too long; its NodePool learns from it once.
    async fn time_out(
        &self,
        claim: &Arc<NodeClaim>,
        reason: &str,
        why: &str,
    ) -> Result<Requeue, ReconcileError> {
        let requeue = self.give_up(claim, reason, why).await?;
        if requeue == Requeue::Done {
            self.shared.note_outcome(claim, Outcome::of_timed_out(claim));
        }
        Ok(requeue)
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
        self.shared.count_disrupted(claim, reason);
        self.shared.note(
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
        let id = claim.provider_id().unwrap_or_default();
        let stores = &self.shared.stores;
        let same_id = stores.claims_by_provider_id.get(id);
        // Somebody gave it another's instance: that one, and its Node, are not ended with it.
        let owns = id.is_empty() || identity::owns_instance(claim, &same_id);
        let nodes = if owns && !id.is_empty() {
            stores.nodes_by_provider_id.get(id)
        } else {
            Vec::new()
        };
        match termination::claim_step(claim, &nodes) {
            ClaimStep::Write(actions, events) => {
                for event in &events {
                    self.shared.execute.tell(event);
                }
                if !self.write(&actions).await? {
                    return Ok(Requeue::Stale);
                }
                Ok(Requeue::After(Duration::from_millis(100)))
            }
            ClaimStep::WaitForNodes => {
                // While our finalizer is on the Node, its termination tells what holds it up.
                if let Some(blocker) = blockers::node_blocker(&nodes) {
                    self.shared.report_blocker(claim, None, Some(&blocker)).await;
                }
                Ok(Requeue::Done)
            }
            ClaimStep::TerminateInstance if !owns => {
                if let Some(event) = identity::look_at_claim(claim, 0, &same_id) {
                    tracing::warn!(
                        NodeClaim = claim.name(),
                        message = event.message,
                        "instance not ended"
                    );
                    self.shared.execute.tell(&event);
                }
                self.release(claim).await
            }
            ClaimStep::TerminateInstance => self.terminate(claim).await,
            // A launch may have been cut off before its result was written: the cloud knows the instance by the claim's UID.
            ClaimStep::RemoveFinalizer => self.terminate(claim).await,
        }
    }

    async fn terminate(&self, claim: &Arc<NodeClaim>) -> Result<Requeue, ReconcileError> {
        let shared = &self.shared;
        match shared.end_instance(&self.cloud, claim, None).await? {
            InstanceEnd::Gone => {
                // What was written a moment ago has made the NodeClaim newer.
                let current = shared.stores.node_claims.get_named(claim.name());
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
        let shared = &self.shared;
        let action = termination::release_claim(claim);
        if !self.write(&action.into_iter().collect::<Vec<_>>()).await? {
            return Ok(Requeue::Stale);
        }
        shared.forget_blocker(claim);
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
        let price = shared.forget_price(claim);
        shared.note(
            DecisionKind::Gone,
            claim.name(),
            "is gone",
            "its instance has ended",
            Some(Price(-price.0)),
        );
        Ok(Requeue::Done)
    }
}

fn allocatable_text(claim: &NodeClaim) -> String {
    let quantities = claim.status.as_ref().map(|status| &status.allocatable);
    spokeshave_model::Resources::from_quantities_lossy(quantities).to_json_text()
}
