//! Leader election through a Lease (coordination.k8s.io/v1), by client-go's rules.
//!
//! Owns one Lease: acquiring, renewing and giving it back, and the [`Leadership`] handle that others watch. It never writes
//! anything else. A replica trusts only what it has observed itself: another holder's term ends one lease duration after we
//! first saw its last renewal, on our clock. Our own ends when no renewal succeeded within the renew deadline, even when
//! no task was running at that time: the handle compares the time on every call; and at once when another holder is seen. Terms are measured by the timer: setting the
//! system clock neither ends nor prolongs one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::PostParams;
use rand_chacha::ChaCha8Rng;
use spokeshave_ports::{Entropy, SharedClock, causes};
use spokeshave_watched as watch;

use crate::backoff::jitter;
use crate::{Metrics, Shutdown};

/// Each wait between attempts to acquire is stretched by up to this factor more; client-go's value.
const RETRY_JITTER: f64 = 1.2;

/// Which Lease to hold, and how fast.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who we are; unique per process.
    pub identity: String,
    /// How long other replicas wait after our last renewal.
    pub lease_duration: Duration,
    /// How long we stay leader without a successful renewal; shorter than the lease duration.
    pub renew_deadline: Duration,
    /// Pause between attempts.
    pub retry_period: Duration,
}

impl LeaseOptions {
    /// Upstream's timing: 15 s, 10 s, 2 s.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// One term of one leader. No two terms are equal, unless the Lease is deleted: its leader goes on in the same term, and where none leads, counting begins anew.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch {
    /// `spec.leaseTransitions` of the term: grows with every change of the holder.
    pub transitions: i32,
    /// `spec.holderIdentity` of the term.
    pub holder: String,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (term {})", self.holder, self.transitions)
    }
}

/// Why a write must not be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLeader {
    /// We do not lead now.
    #[error("this replica does not lead (any more); nothing was written")]
    NotLeading,
    /// We lead, but in another term than the one in which the decision was made.
    #[error("the decision was made by {decided}, the present term is {present}; nothing was written")]
    OtherTerm {
        /// The term of the decision.
        decided: Epoch,
        /// The present term.
        present: Epoch,
    },
}

/// The right to write, shared by clones.
#[derive(Clone, Debug)]
pub struct Leadership {
    term: Arc<watch::Sender<Option<Term>>>,
    clock: SharedClock,
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    epoch: Epoch,
    /// Until when the last successful renewal carries us, by the timer; `None` when election is disabled.
    valid_until: Option<Duration>,
}

impl Leadership {
    fn new(clock: SharedClock) -> Self {
        Self {
            term: Arc::new(watch::Sender::new(None)),
            clock,
        }
    }

    /// For a single replica with election disabled: always leads.
    #[must_use]
    pub fn always(clock: SharedClock, identity: &str) -> Self {
        let this = Self::new(clock);
        let epoch = Epoch {
            transitions: 0,
            holder: identity.to_owned(),
        };
        this.term.send_replace(Some(Term {
            epoch,
            valid_until: None,
        }));
        this
    }

    /// The present term, `None` when we do not lead at this instant.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        let term = self.term.borrow();
        let term = term.as_ref()?;
        let valid = term.valid_until.is_none_or(|until| self.clock.elapsed() < until);
        valid.then(|| term.epoch.clone())
    }

    /// True when we lead at this instant.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.epoch().is_some()
    }

    /// To be asked right before each write: do we still lead, in the term in which this was decided?
    pub fn check(&self, decided: &Epoch) -> Result<(), NotLeader> {
        match self.epoch() {
            None => Err(NotLeader::NotLeading),
            Some(present) if present == *decided => Ok(()),
            Some(present) => Err(NotLeader::OtherTerm {
                decided: decided.clone(),
                present,
            }),
        }
    }

    /// Waits until we lead.
    pub async fn acquired(&self) -> Epoch {
        let mut receiver = self.term.subscribe();
        loop {
            if let Some(epoch) = self.epoch() {
                return epoch;
            }
            // The sender lives in `self`, which outlives this future.
            let _ = receiver.changed().await;
        }
    }

    /// Waits until `epoch` is no longer the present term.
    pub async fn lost(&self, epoch: &Epoch) {
        let mut receiver = self.term.subscribe();
        loop {
            let until = match &*receiver.borrow_and_update() {
                Some(term) if term.epoch == *epoch => term.valid_until,
                _ => return,
            };
            let left = until.map(|until| until.saturating_sub(self.clock.elapsed()));
            match left {
                None => drop(receiver.changed().await),
                Some(left) if left.is_zero() => return,
                Some(left) => tokio::select! {
                    biased;
                    _ = receiver.changed() => {}
                    () = self.clock.sleep(left) => {}
                },
            }
        }
    }

    fn hold(&self, epoch: Epoch, valid_until: Duration) {
        self.term.send_replace(Some(Term {
            epoch,
            valid_until: Some(valid_until),
        }));
    }

    pub(crate) fn end(&self) {
        self.term.send_replace(None);
    }
}

/// How a run of the election ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionOutcome {
    /// We were asked to stop; a Lease that we held was given back.
    Stopped,
    /// We led and could not renew in time. Stop everything that writes; most programs end the process here.
    Lost,
}

/// One candidate for one Lease.
#[derive(Debug)]
pub struct LeaderElection {
    api: Api<Lease>,
    options: LeaseOptions,
    clock: SharedClock,
    rng: ChaCha8Rng,
    leadership: Leadership,
    observed: Option<Observed>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Observed {
    lease: Lease,
    /// When we first saw this state, by the timer.
    at: Duration,
}

impl Observed {
    fn spec(&self) -> LeaseSpec {
        self.lease.spec.clone().unwrap_or_default()
    }
}

impl LeaderElection {
    /// A candidate that does not run yet.
    #[must_use]
    pub fn new(
        client: kube::Client,
        options: LeaseOptions,
        clock: SharedClock,
        entropy: &Entropy,
        metrics: &Metrics,
    ) -> Self {
        let api = Api::namespaced(client, &options.namespace);
        let rng = entropy.child("lease").rng(&options.identity);
        let leadership = Leadership::new(clock.clone());
        Self {
            api,
            options,
            clock,
            rng,
            leadership,
            observed: None,
            metrics: metrics.clone(),
        }
    }

    /// The handle that knows whether this replica is the leader.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// The same candidate over another client.
    #[must_use]
    pub(crate) fn over(mut self, client: kube::Client) -> Self {
        self.api = Api::namespaced(client, &self.options.namespace);
        self
    }

    /// Competes until we lead, renews until `shutdown` or until renewing fails for too long. Gives the Lease back on
    /// shutdown, so that another replica need not wait.
    pub async fn run(mut self, shutdown: Shutdown) -> ElectionOutcome {
        let status = self.metrics.gauge(
            "leader_election_master_status",
            "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
            &["name"],
        );
        let name = self.options.name.clone();
        status.set(&[&name], 0.0);
        if shutdown.cut(self.acquire()).await.is_none() {
            self.release().await;
            return ElectionOutcome::Stopped;
        }
        status.set(&[&name], 1.0);
        tracing::info!(lease = name, identity = self.options.identity, "became leader");
        let stopped = shutdown.cut(self.renew()).await.is_none();
        status.set(&[&name], 0.0);
        self.leadership.end();
        if stopped {
            self.release().await;
            return ElectionOutcome::Stopped;
        }
        tracing::error!(lease = name, identity = self.options.identity, "lost the lease");
        ElectionOutcome::Lost
    }

    async fn acquire(&mut self) {
        while !self.attempt_logged().await {
            let pause = jitter(&mut self.rng, self.options.retry_period, RETRY_JITTER);
            self.clock.sleep(pause).await;
        }
    }

    /// Returns when no renewal has succeeded within the renew deadline.
    async fn renew(&mut self) {
        loop {
            self.clock.sleep(self.options.retry_period).await;
            let Some(epoch) = self.leadership.epoch() else {
                return;
            };
            let leadership = self.leadership.clone();
            let deadline = leadership.lost(&epoch);
            let retry_period = self.options.retry_period;
            let clock = self.clock.clone();
            let renewed = async {
                while !self.attempt_logged().await {
                    clock.sleep(retry_period).await;
                }
            };
            tokio::select! {
                biased;
                () = renewed => {}
                () = deadline => return,
            }
        }
    }

    async fn attempt_logged(&mut self) -> bool {
        match self.attempt().await {
            Ok(led) => led,
            Err(error) => {
                tracing::warn!(lease = self.options.name, error = %causes(&error), "cannot reach the lease");
                false
            }
        }
    }

    /// One attempt to acquire or renew, with a time limit of half the renew deadline for each request.
    async fn attempt(&mut self) -> Result<bool, LeaseError> {
        let (start, now) = (self.clock.elapsed(), self.clock.now());
        if self.leadership.is_leader()
            && let Some(observed) = &self.observed
        {
            // The common case in one request: no other writer. Anything else takes the slow path.
            let renewed = self.lease(observed.lease.metadata.clone(), &observed.spec(), now);
            if let Ok(lease) = self
                .limited(
                    self.api
                        .replace(&self.options.name, &PostParams::default(), &renewed),
                )
                .await
            {
                self.hold(lease, start);
                return Ok(true);
            }
        }
        let found = match self.limited(self.api.get_opt(&self.options.name)).await? {
            Some(found) => found,
            None => {
                let metadata = ObjectMeta {
                    name: Some(self.options.name.clone()),
                    namespace: Some(self.options.namespace.clone()),
                    ..ObjectMeta::default()
                };
                let held = self.observed.as_ref().filter(|_| self.leadership.is_leader());
                let lease = match held {
                    // Somebody has deleted it. Had another led since, it would be there: the term goes on.
                    Some(held) => self.lease(metadata, &held.spec(), now),
                    None => {
                        let mut first = self.lease(metadata, &LeaseSpec::default(), now);
                        first.spec.get_or_insert_default().lease_transitions = Some(0);
                        first
                    }
                };
                let created = self
                    .limited(self.api.create(&PostParams::default(), &lease))
                    .await?;
                self.hold(created, start);
                return Ok(true);
            }
        };
        if self
            .observed
            .as_ref()
            .is_none_or(|observed| observed.lease.spec != found.spec)
        {
            self.observed = Some(Observed {
                lease: found.clone(),
                at: start,
            });
        }
        let spec = found.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if !holder.is_empty() && holder != self.options.identity && self.observed_is_valid(&spec, start) {
            // The machine was suspended, perhaps, and the timer with it: what is left of our term by the timer is not ours any more.
            if self.leadership.is_leader() {
                self.leadership.end();
            }
            return Ok(false);
        }
        let wanted = self.lease(found.metadata, &spec, now);
        match self
            .limited(
                self.api
                    .replace(&self.options.name, &PostParams::default(), &wanted),
            )
            .await
        {
            Ok(lease) => {
                self.hold(lease, start);
                Ok(true)
            }
            // Another writer was faster; retry next time.
            Err(LeaseError::Api(kube::Error::Api(status))) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn observed_is_valid(&self, spec: &LeaseSpec, start: Duration) -> bool {
        let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
        let seen = self.observed.as_ref().map_or(start, |observed| observed.at);
        seen.saturating_add(Duration::from_secs(seconds)) > start
    }

    /// The Lease as we want it: ours, renewed now.
    fn lease(&self, metadata: ObjectMeta, before: &LeaseSpec, now: Timestamp) -> Lease {
        let ours = before.holder_identity.as_deref() == Some(&self.options.identity);
        let transitions = before.lease_transitions.unwrap_or(0);
        let seconds = i32::try_from(self.options.lease_duration.as_secs()).unwrap_or(i32::MAX);
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.options.identity.clone()),
                lease_duration_seconds: Some(seconds),
                acquire_time: if ours {
                    before.acquire_time.clone()
                } else {
                    Some(MicroTime(now))
                },
                renew_time: Some(MicroTime(now)),
                lease_transitions: Some(if ours {
                    transitions
                } else {
                    transitions.saturating_add(1)
                }),
                ..before.clone()
            }),
        }
    }

    /// Takes a success in. The term counts from before the request was sent.
    fn hold(&mut self, lease: Lease, start: Duration) {
        let spec = lease.spec.clone().unwrap_or_default();
        let epoch = Epoch {
            transitions: spec.lease_transitions.unwrap_or(0),
            holder: spec.holder_identity.unwrap_or_default(),
        };
        self.observed = Some(Observed { lease, at: start });
        let valid_until = start.saturating_add(self.options.renew_deadline);
        self.leadership.hold(epoch, valid_until);
    }

    /// Gives the Lease back, if it is ours.
    async fn release(&mut self) {
        self.leadership.end();
        let Some(observed) = self.observed.take() else {
            return;
        };
        let spec = observed.spec();
        if spec.holder_identity.as_deref() != Some(&self.options.identity) {
            return;
        }
        let now = self.clock.now();
        let released = Lease {
            metadata: observed.lease.metadata.clone(),
            spec: Some(LeaseSpec {
                holder_identity: Some(String::new()),
                lease_duration_seconds: Some(1),
                acquire_time: Some(MicroTime(now)),
                renew_time: Some(MicroTime(now)),
                ..spec
            }),
        };
        if let Err(error) = self
            .limited(
                self.api
                    .replace(&self.options.name, &PostParams::default(), &released),
            )
            .await
        {
            tracing::warn!(lease = self.options.name, error = %causes(&error), "cannot give the lease back; it will run out");
        }
    }

    async fn limited<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, LeaseError> {
        tokio::select! {
            biased;
            answer = request => answer.map_err(LeaseError::Api),
            () = self.clock.sleep(self.options.renew_deadline / 2) => Err(LeaseError::TimedOut),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum LeaseError {
    #[error(transparent)]
    Api(kube::Error),
    #[error("no answer within half the renew deadline")]
    TimedOut,
}
