//! Many calls at a time, and an end of the connection that falls silent without closing it (G-003, G-019).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use spokeshave_ports::{CloudError, CloudProvider as _, NoWrites, SharedClock};
use spokeshave_provider_grpc::wire::provider_server::ProviderServer;
use spokeshave_provider_grpc::{
    ByteStream, Connector, DuplexConnector, GrpcProvider, Server, ServerOptions, serve_connection,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;

use crate::failures::operator_of;
use crate::flawed::{Flaw, Flawed};
use crate::shed::{Shed, claim, clock, options};

/// So many launches at a time, none of which is answered.
fn launches(operator: &GrpcProvider, count: usize) -> Vec<JoinHandle<Result<(), CloudError>>> {
    let launch = |number: usize| {
        let operator = operator.clone();
        tokio::spawn(async move { operator.create(&claim(&format!("slow-{number}"))).await.map(drop) })
    };
    (0..count).map(launch).collect()
}

#[tokio::test(start_paused = true)]
async fn g_019_a_provider_with_many_slow_launches_answers_everything_else() {
    let (operator, _, provider) = operator_of(Flaw::LaunchHangs).await;
    let launches = launches(&operator, 250);
    provider.clock.sleep(Duration::from_secs(100)).await;
    assert!(operator.is_connected());
    assert_eq!(operator.list().await, Ok(Vec::new()));
    assert_eq!(provider.asked.lock().expect("no panic").len(), 250);
    for launch in launches {
        let said = launch.await.expect("no panic").expect_err("no answer");
        let expected = "the provider has not answered Launch within 120 s";
        assert_eq!(said, CloudError::Timeout(expected.into()));
    }
}

/// The handshake that asks whether it is there waits behind launches; one on a connection of its own does not.
#[tokio::test(start_paused = true)]
async fn g_019_a_provider_that_takes_few_calls_of_a_connection_at_a_time_is_not_away() {
    let clock = clock();
    let server = Server::new(Shed::new(clock.clone()), clock.clone(), ServerOptions::default());
    let provider = Flawed::new(server, Flaw::LaunchHangs, clock.clone());
    let (connector, mut arriving) = DuplexConnector::new();
    tokio::spawn(async move {
        while let Some(stream) = arriving.recv().await {
            let service = TowerToHyperService::new(ProviderServer::new(provider.clone()));
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(4_u32);
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    });
    let operator = GrpcProvider::connect(options(Arc::new(connector)), clock.clone()).await;
    let operator = operator.expect("a connection");
    let launches = launches(&operator, 8);
    clock.sleep(Duration::from_secs(100)).await;
    assert!(operator.is_connected());
    launches.iter().for_each(JoinHandle::abort);
}

/// A provider that answers one call after the other is slow with handshakes, and there all the same.
#[tokio::test(start_paused = true)]
async fn g_019_a_provider_is_there_as_long_as_it_answers_anything() {
    let (operator, _, provider) = operator_of(Flaw::Hangs).await;
    for _ in 0..12 {
        provider.clock.sleep(Duration::from_secs(10)).await;
        assert_eq!(operator.list().await, Ok(Vec::new()));
    }
    assert!(operator.is_connected());
    provider.clock.sleep(Duration::from_secs(80)).await;
    assert!(!operator.is_connected());
}

/// A handshake that is answered with an error is one that was not answered: calls that wait on the connection go on.
#[tokio::test(start_paused = true)]
async fn g_019_a_handshake_that_fails_once_cuts_no_launch_off() {
    let (operator, _, provider) = operator_of(Flaw::ErrsOnce).await;
    operator.create(&claim("one")).await.expect("launched");
    assert!(operator.is_connected());
    assert_eq!(provider.asked.lock().expect("no panic").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn g_019_a_provider_that_answers_handshakes_with_errors_and_nothing_else_is_away() {
    let (operator, _, provider) = operator_of(Flaw::ErrsAlways).await;
    provider.clock.sleep(Duration::from_secs(30)).await;
    assert!(operator.is_connected(), "one handshake");
    provider.clock.sleep(Duration::from_secs(30)).await;
    assert!(!operator.is_connected());
    let said = operator.list().await.expect_err("away").to_string();
    assert!(
        said.contains("its handshake says Unavailable: overloaded"),
        "{said}"
    );
}

/// An error says nothing but that there is no answer, however often a call is made again.
#[tokio::test(start_paused = true)]
async fn g_019_a_provider_that_answers_every_call_with_an_error_is_away() {
    let (operator, _, provider) = operator_of(Flaw::ErrsAlways).await;
    let listening = operator.clone();
    let hearing = tokio::spawn(async move {
        let mut messages = listening.interruptions().expect("messages");
        messages.next().await
    });
    provider.clock.sleep(Duration::from_secs(60)).await;
    assert!(!operator.is_connected());
    hearing.abort();
}

/// A wire that can be cut without either end being told, as when a machine dies.
#[derive(Debug)]
struct Wire {
    pipe: DuplexConnector,
    /// How many connections were made.
    made: AtomicUsize,
    /// How many of them are cut, the first ones.
    cut: Arc<AtomicUsize>,
}

impl Wire {
    fn new(pipe: DuplexConnector) -> (Self, Arc<AtomicUsize>) {
        let cut = Arc::new(AtomicUsize::new(0));
        let wire = Self {
            pipe,
            made: AtomicUsize::new(0),
            cut: cut.clone(),
        };
        (wire, cut)
    }
}

impl Connector for Wire {
    fn connect(&self) -> BoxFuture<'_, io::Result<Box<dyn ByteStream>>> {
        Box::pin(async move {
            let end = End {
                stream: self.pipe.connect().await?,
                number: self.made.fetch_add(1, Ordering::Relaxed),
                cut: self.cut.clone(),
            };
            Ok(Box::new(end) as Box<dyn ByteStream>)
        })
    }

    fn pings(&self) -> bool {
        false
    }

    fn address(&self) -> String {
        "a wire".to_owned()
    }
}

/// The operator's end of it.
struct End {
    stream: Box<dyn ByteStream>,
    number: usize,
    cut: Arc<AtomicUsize>,
}

impl End {
    /// The stream, unless the wire is cut.
    fn whole(&mut self) -> Poll<Pin<&mut Box<dyn ByteStream>>> {
        if self.number < self.cut.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        Poll::Ready(Pin::new(&mut self.stream))
    }
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.whole()).poll_read(context, buffer)
    }
}

impl AsyncWrite for End {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.whole()).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.whole()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.whole()).poll_shutdown(context)
    }
}

/// An operator and a cloud at the ends of a wire, and how many of its connections are cut.
async fn over_a_wire() -> (GrpcProvider, Arc<Shed>, SharedClock, Arc<AtomicUsize>) {
    let clock = clock();
    let shed = Shed::new(clock.clone());
    let server = Server::new(shed.clone(), clock.clone(), ServerOptions::default());
    let (pipe, mut arriving) = DuplexConnector::new();
    tokio::spawn(async move {
        while let Some(stream) = arriving.recv().await {
            tokio::spawn(serve_connection(server.clone(), stream));
        }
    });
    let (wire, cut) = Wire::new(pipe);
    let operator = GrpcProvider::connect(options(Arc::new(wire)), clock.clone()).await;
    (operator.expect("a connection"), shed, clock, cut)
}

#[tokio::test(start_paused = true)]
async fn g_003_a_leader_whose_machine_has_died_leads_no_longer() {
    let (operator, shed, clock, cut) = over_a_wire().await;
    let leading = operator.clone();
    let leads = tokio::spawn(async move { leading.lead(Arc::new(NoWrites)).await });
    clock.sleep(Duration::from_secs(60)).await;
    assert_eq!(shed.leaders(), 1, "it answers pings");
    cut.store(usize::MAX, Ordering::Relaxed);
    clock.sleep(Duration::from_secs(25)).await;
    assert_eq!(shed.leaders(), 0);
    leads.abort();
}

/// The provider answers on any other, so that it is not away.
#[tokio::test(start_paused = true)]
async fn g_019_a_connection_on_which_nothing_is_answered_any_more_is_made_anew() {
    let (operator, _, clock, cut) = over_a_wire().await;
    assert_eq!(operator.list().await, Ok(Vec::new()));
    cut.store(1, Ordering::Relaxed);
    let said = operator.list().await.expect_err("no answer");
    assert!(matches!(said, CloudError::Timeout(_)), "{said}");
    clock.sleep(Duration::from_secs(240)).await;
    assert!(operator.is_connected());
    assert_eq!(operator.list().await, Ok(Vec::new()));
}
