//! What DisruptionPolicies say of themselves: status and events. The decisions are not made here; disruption asks `plan` by itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use spokeshave_api::DisruptionPolicy;
use spokeshave_api::conditions::{Conditioned as _, EXPIRY_IN_TIME, ROLLOUT_HEALTHY};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::disruption_policy::ExpiryStatus;
use spokeshave_model::snapshot::Snapshot;
use spokeshave_model::{Action, Event, EventType, ObjectKind, ObjectRef, Subresource};
use spokeshave_plan::disruption_policy::forecast::{NeverOpen, PoolNodes, never_open};
use spokeshave_plan::disruption_policy::{OSCILLATION, status_with};
use spokeshave_runtime::{Change, Shutdown, Subscription};

use crate::act::hands::Hands;
use crate::observe::gauges::Series;
use crate::observe::journal::Journal;
use crate::state::cluster::Cluster;

/// How often it is looked whether a policy says something else now, where nothing tells that it may.
const PERIOD: Duration = Duration::from_secs(10);
/// What tells so sooner after a look waits for as long: no status is written more often.
const LEAST_PERIOD: Duration = Duration::from_secs(1);

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;

/// What contradictions follow from: policies and NodePools, and the day.
type Basis = (Vec<Version>, i64);

/// What an object asks for. Neither are its labels in its generation, by which policies select NodePools, nor does one that is made again under its name begin with
/// another.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    name: String,
    uid: Option<String>,
    generation: Option<i64>,
    labels: BTreeMap<String, String>,
}

impl Version {
    fn of(meta: &ObjectMeta) -> Self {
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone(),
            generation: meta.generation,
            labels: meta.labels.clone().unwrap_or_default(),
        }
    }
}

/// Writes what policies come to.
#[derive(Debug)]
pub(crate) struct DisruptionPolicies {
    cluster: Arc<Cluster>,
    hands: Hands,
    journal: Arc<Journal>,
    /// Contradictions and what they were worked out from, because working them out takes longer than all else here.
    conflicts: Mutex<(Basis, Arc<[NeverOpen]>)>,
}

impl DisruptionPolicies {
    pub(crate) fn new(cluster: Arc<Cluster>, hands: Hands, journal: Arc<Journal>) -> Arc<Self> {
        let none: Arc<[NeverOpen]> = Vec::new().into();
        Arc::new(Self {
            cluster,
            hands,
            journal,
            conflicts: Mutex::new((Basis::default(), none)),
        })
    }

    /// Looks until shutdown. Without policies it sleeps: no timer, no work.
    pub(crate) async fn run(self: Arc<Self>, shutdown: Shutdown) {
        let mut policies = self.cluster.stores.disruption_policies.subscribe();
        loop {
            while self.cluster.stores.disruption_policies.is_empty() {
                self.journal.families.late_expirations.replace_all(Series::new());
                if shutdown.cut(policies.next()).await.flatten().is_none() {
                    return;
                }
            }
            if shutdown.cut(self.look_on(&mut policies)).await.is_none() {
                return;
            }
        }
    }

    /// Looks again and again, for as long as there are policies.
    async fn look_on(&self, policies: &mut Subscription<DisruptionPolicy>) {
        let mut commands = self.cluster.stores.disruptions.subscribe();
        while !self.cluster.stores.disruption_policies.is_empty() {
            while policies.try_next().is_some() || commands.try_next().is_some() {}
            let next_change = self.look().await;
            self.rest(next_change, policies, &mut commands).await;
        }
    }

    /// Rests until the next look is due, for the time or for what has happened.
    async fn rest(
        &self,
        next_change: Option<Timestamp>,
        policies: &mut Subscription<DisruptionPolicy>,
        commands: &mut Subscription<Disruption>,
    ) {
        let clock = &self.cluster.clock;
        let begun = clock.now();
        let until_change = next_change.map(|at| clock.until(at).max(LEAST_PERIOD));
        let period = until_change.map_or(PERIOD, |wait| wait.min(PERIOD));
        tokio::select! {
            biased;
            () = news(policies, commands) => {
                clock.sleep(LEAST_PERIOD.saturating_sub(clock.since(begun))).await;
            }
            () = clock.sleep(period) => {}
        }
    }

    /// Writes what has changed. Gives the first time at which a policy says something else by itself, if one is known.
    async fn look(&self) -> Option<Timestamp> {
        let snapshot = self.cluster.snapshot().await;
        let conflicts = self.conflicts(&snapshot);
        let mut late = Series::new();
        let mut next_change: Option<Timestamp> = None;
        for policy in &snapshot.disruption_policies {
            let waits_for = self.hands.waits_for(policy).await;
            let after = status_with(
                policy,
                &snapshot,
                &conflicts,
                waits_for.as_deref(),
                self.cluster.now(),
            );
            let target = ObjectRef::cluster(ObjectKind::DisruptionPolicy, policy.name(), policy.uid());
            late.extend(expiring(&after));
            let own_change = after
                .status
                .as_ref()
                .and_then(|status| status.next_change.as_ref());
            next_change = next_change.into_iter().chain(own_change.map(|at| at.0)).min();
            // Conditions are a list, which a merge patch replaces whole.
            let patch = Action::patch(target.clone(), Subresource::Status, &**policy, &after, true);
            let Some(patch) = patch else { continue };
            match self.hands.run(&patch).await {
                Ok(()) => self.tell(target, policy, &after),
                Err(error) if error.is_conflict() || error.is_not_found() => {
                    tracing::debug!(DisruptionPolicy = policy.name(), %error, "will be looked at again");
                }
                Err(error) => {
                    tracing::error!(DisruptionPolicy = policy.name(), %error, "writing the status of a policy");
                    // If it is written nevertheless, no later look finds anything to tell. If it is not, the next one tells it in vain: equal events are one.
                    if error.is_unanswered() {
                        self.tell(target, policy, &after);
                    }
                }
            }
        }
        self.journal.families.late_expirations.replace_all(late);
        next_change
    }

    /// Rules that leave a NodePool no time at all together.
    fn conflicts(&self, snapshot: &Snapshot) -> Arc<[NeverOpen]> {
        let now = self.cluster.now();
        let policies = snapshot
            .disruption_policies
            .iter()
            .map(|policy| Version::of(&policy.metadata));
        let pools = snapshot
            .pools
            .iter()
            .map(|pool| Version::of(&pool.object.metadata));
        let basis: Basis = (policies.chain(pools).collect(), now.as_second() / SECONDS_PER_DAY);
        let mut known = self.conflicts.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != basis {
            let pools: Vec<PoolNodes> = snapshot.pools.iter().map(PoolNodes::of).collect();
            let found = never_open(&snapshot.disruption_policies, &pools, now);
            *known = (basis, found.into());
        }
        known.1.clone()
    }

    /// One event for each roll-out that is halted, for each thing that stops disruption and did not before, and one when nothing does any more.
    fn tell(&self, target: ObjectRef, before: &DisruptionPolicy, after: &DisruptionPolicy) {
        let active = |policy: &DisruptionPolicy| {
            let status = policy.status.as_ref();
            status.map_or_else(Vec::new, |status| status.active.clone())
        };
        let halted = |policy: &DisruptionPolicy| {
            let healthy = policy.condition(ROLLOUT_HEALTHY)?;
            (healthy.status == "False").then(|| healthy.message.clone())
        };
        if let Some(message) = halted(after).filter(|seen| halted(before).as_ref() != Some(seen)) {
            let event = Event::new(target.clone(), EventType::Warning, "RolloutHalted", message);
            self.hands.tell(&event);
        }
        let (old, new) = (active(before), active(after));
        let is_late = |policy: &DisruptionPolicy| {
            let in_time = policy.condition(EXPIRY_IN_TIME);
            in_time
                .filter(|one| one.status == "False")
                .map(|one| one.message.clone())
        };
        if let Some(message) = is_late(after).filter(|_| is_late(before).is_none()) {
            let event = Event::new(target.clone(), EventType::Warning, "ExpiryTooSlow", message);
            self.hands.tell(&event);
        }
        let unread = |policy: &DisruptionPolicy| {
            let asked = policy
                .status
                .as_ref()
                .and_then(|status| status.workloads.as_ref());
            asked.map_or_else(Vec::new, |asked| asked.faults.clone())
        };
        let known = unread(before);
        for fault in unread(after).iter().filter(|fault| !known.contains(fault)) {
            let message = format!("{fault}; it counts as the most that the policy lets anybody ask for");
            let event = Event::new(
                target.clone(),
                EventType::Warning,
                "WorkloadAnnotationInvalid",
                message,
            );
            self.hands.tell(&event);
        }
        let is_known = |field: &str, domain: Option<&str>| {
            let mut old = old.iter();
            old.any(|known| known.field == field && known.domain.as_deref() == domain)
        };
        for rule in &new {
            if !is_known(&rule.field, rule.domain.as_deref()) {
                let message = format!("{}: {}", rule.field, rule.message);
                let (kind, reason) = match rule.field.as_str() {
                    // The same moves again and again: people should look at why.
                    OSCILLATION => (EventType::Warning, "OscillationRecognised"),
                    _ => (EventType::Normal, "DisruptionStopped"),
                };
                let event = Event::new(target.clone(), kind, reason, message);
                self.hands.tell(&event);
            }
        }
        if new.is_empty() && !old.is_empty() {
            let message = "the policy stops nothing any more".to_owned();
            let event = Event::new(target, EventType::Normal, "DisruptionResumed", message);
            self.hands.tell(&event);
        }
    }
}

/// Completes when a policy may say something else: one asks for something else, or a command begins, comes further or is forgotten. A status that was written
/// is no news.
async fn news(policies: &mut Subscription<DisruptionPolicy>, commands: &mut Subscription<Disruption>) {
    loop {
        let is_news = tokio::select! {
            biased;
            Some(change) = policies.next() => asks_anew(&change),
            Some(change) = commands.next() => comes_further(&change),
            // Their stores are gone.
            else => std::future::pending().await,
        };
        if is_news {
            return;
        }
    }
}

fn asks_anew(change: &Change<DisruptionPolicy>) -> bool {
    let asked = |policy: &DisruptionPolicy| (policy.metadata.uid.clone(), policy.metadata.generation);
    change.old.as_deref().map(asked) != change.new.as_deref().map(asked)
}

fn comes_further(change: &Change<Disruption>) -> bool {
    change.old.as_deref().map(Disruption::phase) != change.new.as_deref().map(Disruption::phase)
}

/// Nodes that will not have gone softly in time, by policy and NodePool.
fn expiring(policy: &DisruptionPolicy) -> Series {
    let waves = policy.status.iter().flat_map(|status| &status.expiry);
    let series = |wave: &ExpiryStatus| {
        #[expect(clippy::cast_precision_loss, reason = "counts of nodes are far below 2^52")]
        let late = wave.late as f64;
        (vec![policy.name().to_owned(), wave.node_pool.clone()], late)
    };
    waves.map(series).collect()
}
