//! A provider that refuses: IDs that it does not know, by the status that the protocol allows besides NOT_FOUND, and streams (G-003, G-014, G-016).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use spokeshave_api::NodeClaim;
use spokeshave_ports::{CloudError, CloudProvider as _, NoWrites, SharedClock};
use spokeshave_provider_grpc::wire::provider_server::Provider;
use spokeshave_provider_grpc::{GrpcProvider, Server, ServerOptions, piped, wire};
use tonic::{Request, Response, Status};

use crate::shed::{Shed, claim, clock, options};

#[derive(Clone)]
struct Refusing {
    inner: Server,
    /// How often it was asked for a stream of its work, and of its events.
    asked: Arc<[AtomicU64; 2]>,
}

impl Refusing {
    fn asked(&self) -> [u64; 2] {
        [0, 1].map(|stream: usize| self.asked[stream].load(Ordering::Relaxed))
    }
}

fn is_known(provider_id: &str) -> Result<(), Status> {
    if provider_id.is_empty() || provider_id.starts_with("shed://") {
        return Ok(());
    }
    Err(Status::invalid_argument("expected shed://UID"))
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Provider for Refusing {
    async fn handshake(
        &self,
        request: Request<wire::HandshakeRequest>,
    ) -> Result<Response<wire::HandshakeResponse>, Status> {
        self.inner.handshake(request).await
    }

    type WatchCatalogStream = Streamed<wire::CatalogChunk>;

    async fn watch_catalog(
        &self,
        request: Request<wire::CatalogRequest>,
    ) -> Result<Response<Self::WatchCatalogStream>, Status> {
        let stream = self.inner.watch_catalog(request).await?.into_inner();
        Ok(Response::new(stream.boxed()))
    }

    async fn launch(
        &self,
        request: Request<wire::LaunchRequest>,
    ) -> Result<Response<wire::LaunchReply>, Status> {
        self.inner.launch(request).await
    }

    async fn get_instance(
        &self,
        request: Request<wire::InstanceRef>,
    ) -> Result<Response<wire::Instance>, Status> {
        is_known(&request.get_ref().provider_id)?;
        self.inner.get_instance(request).await
    }

    type ListInstancesStream = Streamed<wire::InstanceChunk>;

    async fn list_instances(
        &self,
        request: Request<wire::ListRequest>,
    ) -> Result<Response<Self::ListInstancesStream>, Status> {
        let stream = self.inner.list_instances(request).await?.into_inner();
        Ok(Response::new(stream.boxed()))
    }

    async fn terminate(
        &self,
        request: Request<wire::TerminateRequest>,
    ) -> Result<Response<wire::TerminateReply>, Status> {
        is_known(&request.get_ref().provider_id)?;
        if request.get_ref().provider_id.is_empty() {
            return Err(Status::invalid_argument("nodeclaim_uid is not understood"));
        }
        self.inner.terminate(request).await
    }

    async fn check_drift(
        &self,
        request: Request<wire::DriftRequest>,
    ) -> Result<Response<wire::DriftReply>, Status> {
        self.inner.check_drift(request).await
    }

    type WatchEventsStream = Streamed<wire::ProviderEvent>;

    async fn watch_events(
        &self,
        _: Request<wire::EventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        self.asked[1].fetch_add(1, Ordering::Relaxed);
        Err(Status::unimplemented("not yet"))
    }

    async fn acknowledge_events(
        &self,
        request: Request<wire::AcknowledgeRequest>,
    ) -> Result<Response<wire::AcknowledgeReply>, Status> {
        self.inner.acknowledge_events(request).await
    }

    async fn reconcile_node_class(
        &self,
        request: Request<wire::NodeClassRequest>,
    ) -> Result<Response<wire::NodeClassVerdict>, Status> {
        self.inner.reconcile_node_class(request).await
    }

    async fn finalize_node_class(
        &self,
        request: Request<wire::NodeClassRequest>,
    ) -> Result<Response<wire::FinalizeVerdict>, Status> {
        self.inner.finalize_node_class(request).await
    }

    async fn register_gate(
        &self,
        request: Request<wire::GateRequest>,
    ) -> Result<Response<wire::GateReply>, Status> {
        self.inner.register_gate(request).await
    }

    type LeadStream = Streamed<wire::LeadBeat>;

    async fn lead(&self, _: Request<wire::LeadRequest>) -> Result<Response<Self::LeadStream>, Status> {
        self.asked[0].fetch_add(1, Ordering::Relaxed);
        Err(Status::failed_precondition("leader_term 1 is older than 7"))
    }
}

async fn operator() -> (GrpcProvider, Refusing, SharedClock) {
    let clock = clock();
    let server = Server::new(Shed::new(clock.clone()), clock.clone(), ServerOptions::default());
    let provider = Refusing {
        inner: server,
        asked: Arc::default(),
    };
    let options = options(Arc::new(piped(provider.clone())));
    let operator = GrpcProvider::connect(options, clock.clone()).await;
    (operator.expect("a connection"), provider, clock)
}

fn with_id(mut claim: NodeClaim, id: &str) -> NodeClaim {
    claim.status.get_or_insert_default().provider_id = Some(id.to_owned());
    claim
}

/// A NodeClaim with an ID that another version of the provider wrote, or somebody by hand, must be able to end.
#[tokio::test(start_paused = true)]
async fn g_014_an_id_that_the_provider_calls_invalid_has_no_instance() {
    let (operator, ..) = operator().await;
    let stranger = with_id(claim("one"), "barn://1");
    let error = operator.delete(&stranger).await.expect_err("none of its own");
    let said = "Terminate: barn://1 is no ID of the provider's: expected shed://UID";
    assert_eq!(error, CloudError::NodeClaimNotFound(said.into()));
    let error = operator.get("barn://1").await.expect_err("none of its own");
    assert!(error.is_not_found(), "{error}");
    // Where no ID was sent, it is something else that the provider does not understand: there may be an instance.
    let error = operator.delete(&claim("two")).await.expect_err("not understood");
    assert!(
        matches!(&error, CloudError::Other(text) if text.contains("nodeclaim_uid")),
        "{error:?}"
    );
    let launched = operator.create(&claim("three")).await.expect("launched");
    operator.delete(&launched).await.expect("its own");
}

#[tokio::test(start_paused = true)]
async fn g_003_g_016_streams_that_are_refused_are_asked_for_less_and_less_often() {
    let (operator, provider, clock) = operator().await;
    let (leading, listening) = (operator.clone(), operator.clone());
    let leads = tokio::spawn(async move { leading.lead(Arc::new(NoWrites)).await });
    let hears = tokio::spawn(async move {
        let mut messages = listening.interruptions().expect("messages");
        messages.next().await
    });
    clock.sleep(Duration::from_secs(60)).await;
    // At 0, 1, 3, 7, 15 and 31 s, instead of every second.
    assert_eq!(provider.asked(), [6, 6]);
    assert!(operator.is_connected());
    leads.abort();
    hears.abort();
}
