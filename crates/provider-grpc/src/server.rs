//! Any provider of this process behind the protocol (G-001), so that it runs out of process unchanged.
//!
//! Owns the translation and what a server must refuse: another cluster, a leader that is none any more. What is answered is the provider's.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{Stream, StreamExt as _};
use spokeshave_api::validation::LabelRules;
use spokeshave_api::{NodeClaim, NodeClaimSpec, NodeClassRef, NodePool};
use spokeshave_model::InstanceType;
use spokeshave_ports::{
    CloudProvider, HookAnswer, NoWrites, SharedClock, SharedWrites, Write, WriteError, Writes,
};
use tokio::sync::{Notify, mpsc};
use tonic::{Request, Response, Status};

use crate::errors::{failure_of, status, termination_reply};
use crate::events::Unacknowledged;
use crate::link::until;
use crate::server_catalog::{self, CatalogFeed};
use crate::serving::serve_connection;
use crate::transport::ByteStream;
use crate::wire::launch_reply::Outcome;
use crate::wire::provider_server::Provider;
use crate::{VERSIONS, classes, convert, events, wire};

/// Instances in one chunk of a list.
const CHUNK_INSTANCES: usize = 200;

/// How a provider is served.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// What the provider adds to the rules about labels.
    pub label_rules: LabelRules,
    /// Pause between two looks whether the catalog has changed.
    pub catalog_period: Duration,
    /// Conditions of Nodes that mean the end of their machines.
    pub interruption_conditions: Vec<wire::ConditionRule>,
    /// What carries out the provider's own writes to the cluster; each is refused once another leader has called.
    pub writes: SharedWrites,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            label_rules: LabelRules::default(),
            catalog_period: Duration::from_secs(2),
            interruption_conditions: Vec::new(),
            writes: Arc::new(NoWrites),
        }
    }
}

/// What all connections share.
struct Shared {
    provider: Arc<dyn CloudProvider>,
    clock: SharedClock,
    options: ServerOptions,
    cluster_uid: Mutex<Option<String>>,
    /// The largest that any call has had.
    leader_term: AtomicU64,
    /// Told when it grows.
    term_grew: Notify,
    messages: Mutex<Unacknowledged>,
}

impl Shared {
    fn messages(&self) -> MutexGuard<'_, Unacknowledged> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes of one term of leadership.
struct TermWrites {
    shared: Arc<Shared>,
    leader_term: u64,
}

impl std::fmt::Debug for TermWrites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TermWrites")
            .field("leader_term", &self.leader_term)
            .finish_non_exhaustive()
    }
}

impl Writes for TermWrites {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<serde_json::Value, WriteError>> {
        if let Err(status) = self.shared.check_term(self.leader_term) {
            let error = format!("{write}: {}", status.message());
            return Box::pin(std::future::ready(Err(WriteError::Failed(error))));
        }
        self.shared.options.writes.write(write)
    }
}

/// Serves a provider. Clones are the same.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("provider", &self.0.provider)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// A server for a provider.
    #[must_use]
    pub fn new(provider: Arc<dyn CloudProvider>, clock: SharedClock, options: ServerOptions) -> Self {
        let messages = Mutex::new(Unacknowledged::new(&clock));
        Self(Arc::new(Shared {
            provider,
            clock,
            options,
            cluster_uid: Mutex::default(),
            leader_term: AtomicU64::new(0),
            term_grew: Notify::new(),
            messages,
        }))
    }

    /// Serves one connection until it ends. Whoever awaits it decides how many there are.
    ///
    /// # Errors
    /// The other side does not speak HTTP/2.
    pub async fn serve(&self, stream: impl ByteStream + 'static) -> Result<(), String> {
        serve_connection(self.clone(), stream).await
    }
}

impl Shared {
    /// Takes note of a term; the answer is the largest before it.
    fn see_term(&self, term: u64) -> u64 {
        let seen = self.leader_term.fetch_max(term, Ordering::Relaxed);
        if term > seen {
            self.term_grew.notify_waiters();
        }
        seen
    }

    fn check_term(&self, term: u64) -> Result<(), Status> {
        let seen = self.see_term(term);
        if term < seen {
            return Err(outdated(term, seen));
        }
        Ok(())
    }

    /// Completes once a leader of a larger term has called.
    async fn until_outdated(&self, term: u64) -> Status {
        let refusal = || {
            let seen = self.leader_term.load(Ordering::Relaxed);
            (term < seen).then(|| outdated(term, seen))
        };
        until(&self.term_grew, refusal).await
    }

    fn check_cluster(&self, uid: &str) -> Result<(), Status> {
        let mut known = self.cluster_uid.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some(known) if known != uid => Err(Status::failed_precondition(format!(
                "this provider serves the cluster with UID {known}, not {uid}"
            ))),
            _ => {
                if !uid.is_empty() {
                    *known = Some(uid.to_owned());
                }
                Ok(())
            }
        }
    }

    async fn types(&self, pool: &NodePool) -> Option<Arc<[InstanceType]>> {
        self.provider.instance_types(pool).await.ok()
    }

    async fn launch(&self, request: wire::LaunchRequest) -> Result<wire::LaunchReply, Status> {
        self.check_term(request.leader_term)?;
        let claim = read_claim(&request.nodeclaim_json)?;
        let pool = pool_of(&claim.spec.node_class_ref);
        let before = self.types(&pool).await;
        let outcome = if request.corrected_types.is_empty() {
            self.provider.create(&claim).await
        } else {
            let types =
                server_catalog::read_types(&request.corrected_types).map_err(Status::invalid_argument)?;
            self.provider.create_from(&claim, &types).await
        };
        let observed = match (before, self.types(&pool).await) {
            (Some(before), Some(after)) if !Arc::ptr_eq(&before, &after) => {
                server_catalog::changes(&before, &after).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let outcome = match outcome {
            Ok(created) => Outcome::Instance(convert::instance_message(&created)),
            Err(error) => Outcome::Failure(failure_of(&error)),
        };
        Ok(wire::LaunchReply {
            outcome: Some(outcome),
            observed,
        })
    }
}

fn outdated(term: u64, seen: u64) -> Status {
    Status::failed_precondition(format!(
        "leader_term {term} is older than {seen}: another replica leads"
    ))
}

fn read_claim(json: &[u8]) -> Result<NodeClaim, Status> {
    serde_json::from_slice(json).map_err(|error| Status::invalid_argument(format!("nodeclaim_json: {error}")))
}

/// What a provider needs of a NodePool to tell the types of its NodeClass.
pub(crate) fn pool_of(class: &NodeClassRef) -> NodePool {
    let mut pool = NodePool::new("", spokeshave_api::NodePoolSpec::default());
    pool.spec.template.spec.node_class_ref = class.clone();
    pool
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A stream of what a task sends; the task ends when nobody listens any more.
fn streamed<T: Send + 'static>(mut receiver: mpsc::Receiver<Result<T, Status>>) -> Streamed<T> {
    futures::stream::poll_fn(move |context| receiver.poll_recv(context)).boxed()
}

#[tonic::async_trait]
impl Provider for Server {
    async fn handshake(
        &self,
        request: Request<wire::HandshakeRequest>,
    ) -> Result<Response<wire::HandshakeResponse>, Status> {
        let request = request.into_inner();
        let common = request
            .supported_versions
            .iter()
            .find(|version| VERSIONS.contains(&version.as_str()));
        let chosen = common.ok_or_else(|| {
            Status::failed_precondition(format!("this provider speaks {}", VERSIONS.join(", ")))
        })?;
        self.0.check_cluster(&request.cluster_uid)?;
        self.0.see_term(request.leader_term);
        Ok(Response::new(identity_message(&self.0, chosen)))
    }

    type WatchCatalogStream = Streamed<wire::CatalogChunk>;

    async fn watch_catalog(
        &self,
        request: Request<wire::CatalogRequest>,
    ) -> Result<Response<Self::WatchCatalogStream>, Status> {
        let class = request.into_inner().node_class.unwrap_or_default();
        let reference = NodeClassRef {
            group: class.group,
            kind: class.kind,
            name: class.name,
        };
        let shared = &self.0;
        let feed = CatalogFeed::new(
            shared.provider.clone(),
            shared.clock.clone(),
            shared.options.catalog_period,
            pool_of(&reference),
        );
        Ok(Response::new(feed.stream().boxed()))
    }

    async fn launch(
        &self,
        request: Request<wire::LaunchRequest>,
    ) -> Result<Response<wire::LaunchReply>, Status> {
        self.0.launch(request.into_inner()).await.map(Response::new)
    }

    async fn get_instance(
        &self,
        request: Request<wire::InstanceRef>,
    ) -> Result<Response<wire::Instance>, Status> {
        let found = self.0.provider.get(&request.get_ref().provider_id).await;
        let claim = found.map_err(|error| status(&error))?;
        Ok(Response::new(convert::instance_message(&claim)))
    }

    type ListInstancesStream = Streamed<wire::InstanceChunk>;

    async fn list_instances(
        &self,
        _request: Request<wire::ListRequest>,
    ) -> Result<Response<Self::ListInstancesStream>, Status> {
        let claims = self.0.provider.list().await.map_err(|error| status(&error))?;
        let instances: Vec<wire::Instance> = claims.iter().map(convert::instance_message).collect();
        let mut chunks: Vec<Result<wire::InstanceChunk, Status>> = instances
            .chunks(CHUNK_INSTANCES)
            .map(|chunk| {
                Ok(wire::InstanceChunk {
                    instances: chunk.to_vec(),
                    complete: false,
                })
            })
            .collect();
        chunks.push(Ok(wire::InstanceChunk {
            instances: Vec::new(),
            complete: true,
        }));
        Ok(Response::new(futures::stream::iter(chunks).boxed()))
    }

    async fn terminate(
        &self,
        request: Request<wire::TerminateRequest>,
    ) -> Result<Response<wire::TerminateReply>, Status> {
        let request = request.into_inner();
        self.0.check_term(request.leader_term)?;
        let mut claim = NodeClaim::new(&request.nodeclaim_name, NodeClaimSpec::default());
        claim.metadata.uid = Some(request.nodeclaim_uid);
        claim.status.get_or_insert_default().provider_id =
            Some(request.provider_id).filter(|id| !id.is_empty());
        let ended = self.0.provider.delete(&claim).await;
        termination_reply(ended).map(Response::new)
    }

    async fn check_drift(
        &self,
        request: Request<wire::DriftRequest>,
    ) -> Result<Response<wire::DriftReply>, Status> {
        let request = request.get_ref();
        let claim = read_claim(&request.nodeclaim_json)?;
        let class = request
            .node_class
            .as_ref()
            .map(classes::read)
            .transpose()?
            .flatten();
        let drifted = self.0.provider.is_drifted(&claim, class.as_ref()).await;
        let reason = drifted.map_err(|error| status(&error))?.unwrap_or_default();
        Ok(Response::new(wire::DriftReply { reason }))
    }

    type WatchEventsStream = Streamed<wire::ProviderEvent>;

    async fn watch_events(
        &self,
        _request: Request<wire::EventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let (sender, receiver) = mpsc::channel(16);
        let shared = self.0.clone();
        tokio::spawn(async move {
            let Some(mut messages) = shared.provider.interruptions() else {
                sender.closed().await;
                return;
            };
            loop {
                let message = tokio::select! {
                    biased;
                    () = sender.closed() => return,
                    message = messages.next() => message,
                };
                let Some(message) = message else { return };
                let id = shared.messages().hold(&message);
                let event = events::event_of(id, &message);
                if sender.send(Ok(event)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(streamed(receiver)))
    }

    async fn acknowledge_events(
        &self,
        request: Request<wire::AcknowledgeRequest>,
    ) -> Result<Response<wire::AcknowledgeReply>, Status> {
        for id in request.into_inner().ids {
            let known = self.0.messages().of(&id);
            let Some(message) = known else { continue };
            let acknowledged = self.0.provider.acknowledge(&message).await;
            acknowledged.map_err(|error| status(&error))?;
            self.0.messages().forget(&id);
        }
        Ok(Response::new(wire::AcknowledgeReply {}))
    }

    async fn reconcile_node_class(
        &self,
        _request: Request<wire::NodeClassRequest>,
    ) -> Result<Response<wire::NodeClassVerdict>, Status> {
        Err(Status::unimplemented(
            "this provider writes the status of its NodeClasses itself",
        ))
    }

    async fn finalize_node_class(
        &self,
        _request: Request<wire::NodeClassRequest>,
    ) -> Result<Response<wire::FinalizeVerdict>, Status> {
        Err(Status::unimplemented(
            "this provider finalizes its NodeClasses itself",
        ))
    }

    async fn register_gate(
        &self,
        request: Request<wire::GateRequest>,
    ) -> Result<Response<wire::GateReply>, Status> {
        let claim = read_claim(&request.get_ref().nodeclaim_json)?;
        for hook in self.0.provider.registration_hooks() {
            let answer = hook.registered(&claim).await.map_err(|error| status(&error))?;
            if let HookAnswer::AskAgain(after) = answer {
                return Ok(Response::new(wire::GateReply {
                    ready: false,
                    ask_again_after: prost_types::Duration::try_from(after).ok(),
                }));
            }
        }
        Ok(Response::new(wire::GateReply {
            ready: true,
            ask_again_after: None,
        }))
    }

    type LeadStream = Streamed<wire::LeadBeat>;

    async fn lead(&self, request: Request<wire::LeadRequest>) -> Result<Response<Self::LeadStream>, Status> {
        let reads_only = request.get_ref().reads_only;
        let leader_term = request.get_ref().leader_term;
        if !reads_only {
            self.0.check_term(leader_term)?;
        }
        let (sender, receiver) = mpsc::channel(1);
        let shared = self.0.clone();
        let writes = Arc::new(TermWrites {
            shared: shared.clone(),
            leader_term,
        });
        tokio::spawn(async move {
            let work = if reads_only {
                shared.provider.follow()
            } else {
                shared.provider.lead(writes)
            };
            tokio::select! {
                biased;
                () = sender.closed() => {}
                // The connection of a machine that is gone may stand for longer than its lead.
                status = shared.until_outdated(leader_term), if !reads_only => drop(sender.try_send(Err(status))),
                () = work => {}
            }
        });
        Ok(Response::new(streamed(receiver)))
    }
}

fn identity_message(shared: &Shared, version: &str) -> wire::HandshakeResponse {
    let provider = &shared.provider;
    let kinds = provider
        .supported_node_classes()
        .iter()
        .map(|kind| wire::NodeClassKind {
            group: kind.group.clone(),
            version: kind.version.clone(),
            kind: kind.kind.clone(),
            plural: kind.plural.clone(),
            dynamic_fields: Vec::new(),
        });
    let policies = provider
        .repair_policies()
        .iter()
        .map(|policy| wire::RepairPolicy {
            condition: policy.condition_type.clone(),
            status: policy.condition_status.clone(),
            toleration: prost_types::Duration::try_from(policy.toleration).ok(),
        });
    let rules = &shared.options.label_rules;
    let well_known = rules.well_known.iter().map(|key| (key, true));
    let domains = rules.restricted_domains.iter().map(|key| (key, false));
    let labels = well_known
        .chain(domains)
        .map(|(key, well_known)| wire::LabelRule {
            key: key.clone(),
            well_known,
            restricted_domain: !well_known,
        });
    // What runs in process writes the status of its classes itself, also behind this server.
    let own_status = wire::Capability::OwnNodeClassStatus;
    let mut capabilities = vec![wire::Capability::Drift, wire::Capability::Lead, own_status];
    if provider.interruptions().is_some() {
        capabilities.push(wire::Capability::Events);
    }
    if !provider.registration_hooks().is_empty() {
        capabilities.push(wire::Capability::RegisterGate);
    }
    let unsupported = provider.unsupported_volumes();
    wire::HandshakeResponse {
        chosen_version: version.to_owned(),
        provider_name: provider.name().to_owned(),
        provider_version: env!("CARGO_PKG_VERSION").to_owned(),
        capabilities: capabilities.into_iter().map(i32::from).collect(),
        node_classes: kinds.collect(),
        labels: labels.collect(),
        repair_policies: policies.collect(),
        unsupported_volume_provisioners: unsupported.provisioners.into_iter().collect(),
        unsupported_topology_keys: unsupported.topology_keys.into_iter().collect(),
        interruption_conditions: shared.options.interruption_conditions.clone(),
        leader_term: shared.leader_term.load(Ordering::Relaxed),
    }
}
