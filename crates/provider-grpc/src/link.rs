//! The connection to a provider, and its return (G-019): who asks is told at once when it is away, and since when.
//!
//! Owns the connection, its handshake with what it tells (who the provider is, which term of leadership it has seen) and the pauses between attempts. It
//! knows no other call.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spokeshave_ports::{CloudError, SharedClock};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tonic::Code;

use crate::errors::ConnectError;
use crate::identity::Identity;
use crate::transport::{self, Connector, Session};
use crate::wire::provider_client::ProviderClient;
use crate::wire::{Capability, HandshakeRequest};
use crate::{LONGEST_MESSAGE_BYTES, VERSIONS};

/// Time for a connection and its handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Pause between two questions whether the provider still answers.
const PROBE: Duration = Duration::from_secs(20);
/// A connection on which nothing but errors was answered for this long is made anew, also where the provider answers on others. Longer than any call may
/// take.
const STUCK: Duration = Duration::from_secs(180);
/// Time for a session that has broken to say why.
const BROKEN: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

pub(crate) type Client = ProviderClient<Session>;

/// A task that ends with its owner.
#[derive(Debug)]
pub(crate) struct Task<T = ()>(pub(crate) JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The outcome, unless `limit` of cluster time passes first.
pub(crate) async fn within<T>(
    clock: &SharedClock,
    limit: Duration,
    outcome: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        outcome = outcome => Some(outcome),
        () = clock.sleep(limit) => None,
    }
}

/// What holds, once it does: it is looked at now, and whenever `changed` is told.
pub(crate) async fn until<T>(changed: &Notify, holds: impl Fn() -> Option<T>) -> T {
    loop {
        let next = changed.notified();
        tokio::pin!(next);
        next.as_mut().enable();
        if let Some(held) = holds() {
            return held;
        }
        next.await;
    }
}

#[derive(Debug)]
enum State {
    Up(Client),
    Away { since: Timestamp, why: String },
}

/// A connection that comes back.
#[derive(Debug)]
pub(crate) struct Link {
    connector: Arc<dyn Connector>,
    clock: SharedClock,
    hello: HandshakeRequest,
    state: Mutex<State>,
    /// What the provider said of itself at the start, and last.
    start: Arc<Identity>,
    identity: Mutex<Arc<Identity>>,
    /// The term in which this process leads; 0 until it does.
    own_term: AtomicU64,
    /// The largest term that the provider has said to have seen.
    seen_term: AtomicU64,
    changed: Notify,
}

/// A connection that has shaken hands.
pub(crate) struct Shaken {
    pub(crate) client: Client,
    pub(crate) ended: Task<String>,
    pub(crate) identity: Identity,
    /// The largest leader's term that the provider has seen.
    pub(crate) seen_term: u64,
    /// How many calls it has answered on this connection so far with more than an error.
    answered: Arc<AtomicU64>,
    /// For handshakes, which do not count among them.
    probe: Client,
}

/// Connects once.
pub(crate) async fn connect(
    connector: &dyn Connector,
    clock: &SharedClock,
    hello: &HandshakeRequest,
) -> Result<Shaken, ConnectError> {
    let address = connector.address();
    let unreachable = |reason: String| ConnectError::Unreachable {
        address: address.clone(),
        reason,
    };
    let silent = || unreachable(format!("no handshake within {} s", HANDSHAKE.as_secs()));
    let (session, ended) = within(clock, HANDSHAKE, transport::open(connector))
        .await
        .ok_or_else(silent)?
        .map_err(unreachable)?;
    let mut ended = Task(tokio::spawn(ended));
    let (answered, probe) = (session.answered(), client_of(session.uncounted()));
    let client = client_of(session);
    let answer = within(clock, HANDSHAKE, client.clone().handshake(hello.clone()))
        .await
        .ok_or_else(silent)?;
    let refused = |reason: String| ConnectError::Refused {
        address: address.clone(),
        reason,
    };
    let answer = match answer {
        Ok(answer) => answer.into_inner(),
        Err(status) => {
            let said = format!("its handshake says {:?}: {}", status.code(), status.message());
            return Err(match status.code() {
                code if is_refusal(code) => refused(said),
                // No answer of the provider. Why the session broke, a certificate that it does not accept for one, is known to the session.
                _ if std::error::Error::source(&status).is_some() => unreachable(
                    within(clock, BROKEN, &mut ended.0)
                        .await
                        .and_then(Result::ok)
                        .unwrap_or(said),
                ),
                _ => unreachable(said),
            });
        }
    };
    let seen_term = answer.leader_term;
    let identity = Identity::read(answer).map_err(refused)?;
    Ok(Shaken {
        client,
        ended,
        identity,
        seen_term,
        answered,
        probe,
    })
}

fn client_of(session: Session) -> Client {
    let origin = http::Uri::from_static("http://provider");
    ProviderClient::with_origin(session, origin).max_decoding_message_size(LONGEST_MESSAGE_BYTES)
}

/// Whether the status of a handshake says that this operator will not be served, however often it asks.
fn is_refusal(code: Code) -> bool {
    matches!(
        code,
        Code::FailedPrecondition | Code::InvalidArgument | Code::Unimplemented
    )
}

/// The first words of a connection.
pub(crate) fn hello(cluster_name: &str, cluster_uid: &str, kubernetes_version: &str) -> HandshakeRequest {
    HandshakeRequest {
        supported_versions: VERSIONS.map(str::to_owned).to_vec(),
        cluster_name: cluster_name.to_owned(),
        cluster_uid: cluster_uid.to_owned(),
        kubernetes_version: kubernetes_version.to_owned(),
        leader_term: 0,
    }
}

impl Link {
    /// A connection that exists, and the task that keeps it.
    pub(crate) fn keep(
        connector: Arc<dyn Connector>,
        clock: SharedClock,
        hello: HandshakeRequest,
        shaken: Shaken,
    ) -> (Arc<Self>, Task) {
        let identity = Arc::new(shaken.identity.clone());
        let link = Arc::new(Self {
            connector,
            clock,
            hello,
            state: Mutex::new(State::Up(shaken.client.clone())),
            start: identity.clone(),
            identity: Mutex::new(identity),
            own_term: AtomicU64::new(0),
            seen_term: AtomicU64::new(shaken.seen_term),
            changed: Notify::new(),
        });
        link.name_problems();
        let task = tokio::spawn(link.clone().live(shaken));
        (link, Task(task))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.state() = state;
        self.changed.notify_waiters();
    }

    /// The connection, or that the provider is away, and why.
    pub(crate) fn client(&self) -> Result<Client, CloudError> {
        match &*self.state() {
            State::Up(client) => Ok(client.clone()),
            State::Away { since, why } => Err(CloudError::Other(format!(
                "the provider at {} is away since {since}: {why}; nothing is launched or ended until it is back",
                self.connector.address()
            ))),
        }
    }

    /// How long the provider has been away.
    pub(crate) fn away_for(&self) -> Option<Duration> {
        match &*self.state() {
            State::Up(_) => None,
            State::Away { since, .. } => Some(self.clock.since(*since)),
        }
    }

    /// The connection, once there is one.
    pub(crate) async fn up(&self) -> Client {
        self.until(|link| link.client().ok()).await
    }

    /// The connection, once there is one to a provider that can do this.
    pub(crate) async fn up_with(&self, capability: Capability) -> Client {
        self.until(|link| link.client().ok().filter(|_| link.identity().can(capability)))
            .await
    }

    /// Waits for something to hold of the connection and of what the provider says of itself.
    pub(crate) async fn until<T>(&self, holds: impl Fn(&Self) -> Option<T>) -> T {
        until(&self.changed, move || holds(self)).await
    }

    /// What the provider has said of itself last.
    pub(crate) fn identity(&self) -> Arc<Identity> {
        self.identity
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Takes in what the provider says of itself now. The error says why it is another provider.
    fn take_identity(&self, identity: Identity) -> Result<(), String> {
        if let Some(why) = identity.is_another(&self.start) {
            return Err(why);
        }
        if identity == *self.identity() {
            return Ok(());
        }
        let address = self.connector.address();
        for field in identity.changes_for_later(&self.start) {
            tracing::warn!(
                address,
                field,
                "the provider's handshake has changed in a field that is taken over when the operator restarts"
            );
        }
        *self.identity.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(identity);
        self.name_problems();
        self.changed.notify_waiters();
        Ok(())
    }

    fn name_problems(&self) {
        for problem in &self.identity().problems {
            tracing::warn!(
                address = self.connector.address(),
                problem,
                "a rule of the provider's handshake is left out"
            );
        }
    }

    /// The term of which calls are. Who never began to lead calls in the term that the provider has seen last: it neither outdates anybody nor is refused.
    pub(crate) fn term(&self) -> u64 {
        match self.own_term.load(Ordering::Relaxed) {
            0 => self.seen_term.load(Ordering::Relaxed),
            own => own,
        }
    }

    /// Begins a term that is larger than all that the provider has seen, and at least the count of leaders that the Lease has (G-003). No clock has a part in
    /// it, and a Lease that is made anew, or none, makes no leader older than the last.
    pub(crate) async fn begin_term(&self, leaders: u64) -> u64 {
        loop {
            let mut client = self.up().await;
            match within(&self.clock, HANDSHAKE, client.handshake(self.hello.clone())).await {
                Some(Ok(answer)) => {
                    let seen = answer.into_inner().leader_term;
                    self.note_term(seen);
                    let term = self
                        .seen_term
                        .load(Ordering::Relaxed)
                        .saturating_add(1)
                        .max(leaders);
                    self.own_term.store(term, Ordering::Relaxed);
                    return term;
                }
                Some(Err(status)) => {
                    tracing::warn!(code = ?status.code(), error = status.message(), "the provider does not say which leader it has seen last; it is asked again");
                }
                None => tracing::warn!(
                    "the provider does not say which leader it has seen last; it is asked again"
                ),
            }
            self.clock.sleep(FIRST_PAUSE).await;
        }
    }

    fn note_term(&self, seen: u64) {
        self.seen_term.fetch_max(seen, Ordering::Relaxed);
    }

    /// The words of a handshake now.
    fn hello(&self) -> HandshakeRequest {
        HandshakeRequest {
            leader_term: self.own_term.load(Ordering::Relaxed),
            ..self.hello.clone()
        }
    }

    async fn live(self: Arc<Self>, first: Shaken) {
        let mut shaken = first;
        loop {
            let why = tokio::select! {
                biased;
                ended = &mut shaken.ended.0 => ended.unwrap_or_else(|_| "its session has ended".to_owned()),
                why = self.falls_silent(&shaken.probe, &shaken.answered) => why,
            };
            let address = self.connector.address();
            tracing::warn!(address, why, "the provider is away; the last catalog is kept");
            drop(shaken);
            self.set(State::Away {
                since: self.clock.now(),
                why,
            });
            shaken = self.return_of().await;
            tracing::info!(address, "the provider is back");
            self.set(State::Up(shaken.client.clone()));
        }
    }

    /// Completes when the provider does not answer any more although the connection stands. One that is busy is not silent: it answers other calls, or the
    /// handshake of a connection on which nothing else waits. Where that lasts, the connection is what does not work. An error is no answer: one that answers
    /// nothing else is of no more use than one that says nothing.
    async fn falls_silent(&self, probe: &Client, answered: &AtomicU64) -> String {
        let mut missed: Option<String> = None;
        let mut heard = answered.load(Ordering::Relaxed);
        let mut heard_at = self.clock.elapsed();
        loop {
            self.clock.sleep(PROBE).await;
            let is_elsewhere = missed.is_some();
            let problem = if is_elsewhere {
                self.answers_anew().await
            } else {
                self.answers(probe.clone()).await
            };
            let problem = match problem {
                Err(why) => return why,
                Ok(problem) => problem,
            };
            let count = answered.load(Ordering::Relaxed);
            let is_heard = count != heard || (!is_elsewhere && problem.is_none());
            missed = match (missed, problem.filter(|_| !is_heard)) {
                (Some(first), Some(second)) => {
                    return format!(
                        "2 handshakes were not answered, the second on a connection of its own: {first}; {second}"
                    );
                }
                (_, problem) => problem,
            };
            if is_heard {
                (heard, heard_at) = (count, self.clock.elapsed());
            } else if self.clock.elapsed().saturating_sub(heard_at) > STUCK {
                return format!(
                    "nothing but errors, if anything, was answered on its connection for {} s, while it answers on others",
                    STUCK.as_secs()
                );
            }
        }
    }

    /// What is wrong with the answer to a handshake, if anything is. The error says why the provider cannot be used.
    async fn answers(&self, mut client: Client) -> Result<Option<String>, String> {
        match within(&self.clock, HANDSHAKE, client.handshake(self.hello())).await {
            Some(Ok(answer)) => {
                let answer = answer.into_inner();
                self.note_term(answer.leader_term);
                self.take_identity(Identity::read(answer)?)?;
                Ok(None)
            }
            Some(Err(status)) => {
                let said = format!("its handshake says {:?}: {}", status.code(), status.message());
                if is_refusal(status.code()) {
                    Err(said)
                } else {
                    Ok(Some(said))
                }
            }
            None => Ok(Some(format!("no handshake within {} s", HANDSHAKE.as_secs()))),
        }
    }

    /// The same on a connection of its own: on this one, the handshake may wait for calls that take long.
    async fn answers_anew(&self) -> Result<Option<String>, String> {
        match connect(&*self.connector, &self.clock, &self.hello()).await {
            Ok(shaken) => {
                self.note_term(shaken.seen_term);
                self.take_identity(shaken.identity)?;
                Ok(None)
            }
            Err(ConnectError::Unreachable { reason, .. }) => Ok(Some(reason)),
            Err(ConnectError::Refused { reason, .. }) => Err(reason),
        }
    }

    async fn return_of(&self) -> Shaken {
        let mut pause = FIRST_PAUSE;
        loop {
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            let problem = match connect(&*self.connector, &self.clock, &self.hello()).await {
                Ok(shaken) => match self.take_identity(shaken.identity.clone()) {
                    Ok(()) => {
                        self.seen_term.store(shaken.seen_term, Ordering::Relaxed);
                        return shaken;
                    }
                    Err(why) => why,
                },
                Err(error) => error.to_string(),
            };
            if let State::Away { why, .. } = &mut *self.state() {
                *why = problem;
            }
        }
    }
}
