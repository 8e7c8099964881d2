//! The connection to a provider, and its return (G-019): who asks is told at once when it is away, and since when.
//!
//! Owns the connection, its handshake and the pauses between attempts. It knows no other call.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use spokeshave_ports::{CloudError, SharedClock};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::errors::ConnectError;
use crate::identity::Identity;
use crate::transport::{self, Connector, Session};
use crate::wire::HandshakeRequest;
use crate::wire::provider_client::ProviderClient;
use crate::{LONGEST_MESSAGE_BYTES, VERSIONS};

/// Time for a connection and its handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Pause between two questions whether the provider still answers.
const PROBE: Duration = Duration::from_secs(20);
/// Unanswered questions after which it counts as away.
const PROBES: u32 = 2;
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
    changed: Notify,
}

/// A connection that has shaken hands.
pub(crate) struct Shaken {
    pub(crate) client: Client,
    ended: Task<String>,
    pub(crate) identity: Identity,
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
    let ended = Task(tokio::spawn(ended));
    let origin = http::Uri::from_static("http://provider");
    let client =
        ProviderClient::with_origin(session, origin).max_decoding_message_size(LONGEST_MESSAGE_BYTES);
    let answer = within(clock, HANDSHAKE, client.clone().handshake(hello.clone()))
        .await
        .ok_or_else(silent)?;
    let refused = |reason: String| ConnectError::Refused {
        address: address.clone(),
        reason,
    };
    let answer = answer.map_err(|status| match status.code() {
        tonic::Code::FailedPrecondition | tonic::Code::InvalidArgument | tonic::Code::Unimplemented => {
            refused(format!(
                "its handshake says {:?}: {}",
                status.code(),
                status.message()
            ))
        }
        code => unreachable(format!("its handshake says {code:?}: {}", status.message())),
    })?;
    let identity = Identity::read(answer.into_inner()).map_err(refused)?;
    Ok(Shaken {
        client,
        ended,
        identity,
    })
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
        let link = Arc::new(Self {
            connector,
            clock,
            hello,
            state: Mutex::new(State::Up(shaken.client.clone())),
            changed: Notify::new(),
        });
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
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Ok(client) = self.client() {
                return client;
            }
            changed.await;
        }
    }

    async fn live(self: Arc<Self>, first: Shaken) {
        let mut shaken = first;
        loop {
            let why = tokio::select! {
                biased;
                ended = &mut shaken.ended.0 => ended.unwrap_or_else(|_| "its session has ended".to_owned()),
                why = self.falls_silent(&shaken.client) => why,
            };
            let address = self.connector.address();
            tracing::warn!(address, why, "the provider is away; the last catalog is kept");
            let identity = shaken.identity.clone();
            drop(shaken);
            self.set(State::Away {
                since: self.clock.now(),
                why,
            });
            shaken = self.return_of(&identity).await;
            tracing::info!(address, "the provider is back");
            self.set(State::Up(shaken.client.clone()));
        }
    }

    /// Completes when the provider does not answer any more although the connection stands.
    async fn falls_silent(&self, client: &Client) -> String {
        let mut silent = 0;
        loop {
            self.clock.sleep(PROBE).await;
            let mut client = client.clone();
            let answer = within(&self.clock, HANDSHAKE, client.handshake(self.hello.clone())).await;
            match answer {
                Some(Ok(_)) => silent = 0,
                Some(Err(status)) => {
                    return format!("its handshake says {:?}: {}", status.code(), status.message());
                }
                None => silent += 1,
            }
            if silent >= PROBES {
                return format!(
                    "{silent} handshakes were not answered within {} s",
                    HANDSHAKE.as_secs()
                );
            }
        }
    }

    async fn return_of(&self, identity: &Identity) -> Shaken {
        let mut pause = FIRST_PAUSE;
        loop {
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            let problem = match connect(&*self.connector, &self.clock, &self.hello).await {
                Ok(shaken) if shaken.identity == *identity => return shaken,
                Ok(shaken) => format!(
                    "it says that it is {:?} now and differs from {:?}, which this operator has begun with; restart the operator",
                    shaken.identity.name, identity.name
                ),
                Err(error) => error.to_string(),
            };
            if let State::Away { why, .. } = &mut *self.state() {
                *why = problem;
            }
        }
    }
}
