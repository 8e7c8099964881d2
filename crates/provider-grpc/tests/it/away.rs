//! A provider that goes away, hangs, or lies: the last catalog is kept, nothing stalls, every error names what happened.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_model::{Price, PriceFeed};
use spokeshave_ports::{
    CloudError, CloudProvider as _, HookAnswer, Interruption, NoWrites, SharedClock, TokioClock, Write,
    WriteError, Writes,
};
use spokeshave_provider_grpc::{
    ClientOptions, ConnectError, DuplexConnector, GrpcProvider, Server, ServerOptions, serve_connection,
};
use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinHandle;

use crate::flawed::{Flaw, Flawed};
use crate::shed::{Shed, claim, clock, pool};

/// Writes of the so manieth leader.
#[derive(Debug)]
struct Counted(u64);

impl Writes for Counted {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<serde_json::Value, WriteError>> {
        NoWrites.write(write)
    }

    fn leader_term(&self) -> u64 {
        self.0
    }
}

/// Leads until it is dropped.
struct Leading(JoinHandle<()>);

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A provider that a test can take away and give back.
struct Stage {
    clock: SharedClock,
    shed: Arc<Shed>,
    flaw: Flaw,
    provider: Arc<Mutex<Flawed>>,
    connector: DuplexConnector,
    /// Whether new connections are served.
    is_open: Arc<Mutex<bool>>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Stage {
    fn new(flaw: Flaw) -> Self {
        let clock = clock();
        let shed = Shed::new(clock.clone());
        let server = Server::new(shed.clone(), clock.clone(), ServerOptions::default());
        let (connector, mut arriving) = DuplexConnector::new();
        let provider = Arc::new(Mutex::new(Flawed::new(server, flaw, clock.clone())));
        let stage = Self {
            clock,
            provider: provider.clone(),
            shed,
            flaw,
            connector,
            is_open: Arc::new(Mutex::new(true)),
            connections: Arc::default(),
        };
        let (is_open, connections) = (stage.is_open.clone(), stage.connections.clone());
        tokio::spawn(async move {
            while let Some(stream) = arriving.recv().await {
                if *is_open.lock().expect("no panic") {
                    let provider = provider.lock().expect("no panic").clone();
                    let task = tokio::spawn(async move { drop(serve_connection(provider, stream).await) });
                    connections.lock().expect("no panic").push(task);
                }
            }
        });
        stage
    }

    fn options(&self, cluster: &str) -> ClientOptions {
        ClientOptions {
            connector: Arc::new(self.connector.clone()),
            cluster_name: "a".into(),
            cluster_uid: cluster.into(),
            kubernetes_version: "v1.37.0".into(),
            node_classes: None,
            nodes: None,
        }
    }

    async fn connect_to(&self, cluster: &str) -> Result<GrpcProvider, ConnectError> {
        GrpcProvider::connect(self.options(cluster), self.clock.clone()).await
    }

    /// Begins to lead, as the so manieth leader of the Lease.
    async fn lead(&self, provider: &GrpcProvider, leaders: u64) -> Leading {
        let provider = provider.clone();
        let task = tokio::spawn(async move { provider.lead(Arc::new(Counted(leaders))).await });
        self.pass(1).await;
        Leading(task)
    }

    /// The next connection is served by a process that remembers instances only.
    fn restart(&self) {
        let server = Server::new(self.shed.clone(), self.clock.clone(), ServerOptions::default());
        *self.provider.lock().expect("no panic") = Flawed::new(server, self.flaw, self.clock.clone());
    }

    async fn connect(&self) -> GrpcProvider {
        self.connect_to("uid").await.expect("a connection")
    }

    fn close(&self) {
        *self.is_open.lock().expect("no panic") = false;
        let connections = std::mem::take(&mut *self.connections.lock().expect("no panic"));
        connections.iter().for_each(JoinHandle::abort);
    }

    fn open(&self) {
        *self.is_open.lock().expect("no panic") = true;
    }

    async fn pass(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn g_007_g_019_away_the_last_catalog_is_kept_launches_wait_and_readiness_ends_after_two_minutes() {
    let stage = Stage::new(Flaw::None);
    let provider = stage.connect().await;
    let before = provider.instance_types(&pool()).await.expect("types");
    let created = provider.create(&claim("one")).await.expect("launched");
    stage.close();
    stage.pass(1).await;
    assert!(!provider.is_connected());
    let kept = provider.instance_types(&pool()).await.expect("kept");
    assert!(Arc::ptr_eq(&before, &kept), "the same catalog");
    for said in [
        provider
            .create(&claim("two"))
            .await
            .expect_err("paused")
            .to_string(),
        provider.delete(&created).await.expect_err("paused").to_string(),
        provider
            .list()
            .await
            .expect_err("G-011: nothing is collected")
            .to_string(),
    ] {
        assert!(said.contains("is away since 2026-01-01T00:00:0"), "{said}");
    }
    stage.pass(110).await;
    assert!(provider.is_ready(), "not two minutes yet");
    stage.pass(15).await;
    assert!(!provider.is_ready());
    stage.open();
    stage.pass(60).await;
    assert!(provider.is_ready() && provider.is_connected());
    let again = provider.instance_types(&pool()).await.expect("types");
    assert!(Arc::ptr_eq(&before, &again), "nothing has changed meanwhile");
    let found = provider
        .create(&claim("one"))
        .await
        .expect("G-007: found after the break");
    assert_eq!(found.provider_id(), created.provider_id());
    assert_eq!(provider.list().await.expect("listed").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn g_005_a_change_while_away_is_there_after_the_return() {
    let stage = Stage::new(Flaw::None);
    let provider = stage.connect().await;
    let before = provider.instance_types(&pool()).await.expect("types");
    stage.close();
    let mut types = before.to_vec();
    types[0].offerings[0].available = false;
    *stage.shed.types.lock().expect("no panic") = types.clone().into();
    stage.open();
    stage.pass(60).await;
    let after = provider.instance_types(&pool()).await.expect("types");
    assert_eq!(*after, *types);
}

#[tokio::test(start_paused = true)]
async fn g_019_a_provider_that_hangs_counts_as_away() {
    let stage = Stage::new(Flaw::Hangs);
    let provider = stage.connect().await;
    stage.pass(60).await;
    assert!(!provider.is_connected());
    let said = provider.list().await.expect_err("away").to_string();
    assert!(
        said.contains("no handshake within 5 s") || said.contains("handshakes were not answered"),
        "{said}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_launch_that_hangs_ends_with_its_name() {
    let stage = Stage::new(Flaw::LaunchHangs);
    let provider = stage.connect().await;
    let said = provider.create(&claim("one")).await.expect_err("no answer");
    assert_eq!(
        said,
        CloudError::Timeout("the provider has not answered Launch within 120 s".into())
    );
    assert!(provider.is_connected(), "other calls go on");
    assert_eq!(provider.list().await, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn g_008_a_launch_may_be_pending() {
    let stage = Stage::new(Flaw::PendingTwice);
    let provider = stage.connect().await;
    let begun = stage.clock.now();
    let created = provider.create(&claim("one")).await.expect("launched");
    assert_eq!(created.provider_id(), Some("shed://uid-of-one"));
    assert!(
        stage.clock.since(begun) >= Duration::from_secs(6),
        "asked again after twice 3 s"
    );
}

#[tokio::test(start_paused = true)]
async fn g_006_g_011_lies_are_errors_by_name() {
    for (flaw, said) in [
        (Flaw::HugeChunk, "longer than 1048576 bytes"),
        (
            Flaw::NeverComplete,
            "whole catalog of ShedClass default within 30 s",
        ),
        (Flaw::GenerationZero, "generation 0"),
    ] {
        let stage = Stage::new(flaw);
        let provider = stage.connect().await;
        let error = provider
            .instance_types(&pool())
            .await
            .expect_err("refused")
            .to_string();
        assert!(error.contains(said), "{:?}: {error}", stage.flaw);
    }
    for (flaw, said) in [
        (
            Flaw::ListWithoutTrailer,
            "ended after 1 instances without saying that it is complete",
        ),
        (Flaw::ListTwice, "lists shed://uid-of-one twice"),
    ] {
        let stage = Stage::new(flaw);
        let provider = stage.connect().await;
        provider.create(&claim("one")).await.expect("launched");
        let error = provider.list().await.expect_err("refused").to_string();
        assert!(error.contains(said), "{:?}: {error}", stage.flaw);
    }
}

/// Nothing of 100 MiB is taken in, neither in one message nor in many, and what else the provider does goes on.
#[tokio::test(start_paused = true)]
async fn g_006_g_011_what_has_no_end_is_not_taken_in() {
    for (flaw, said) in [
        (Flaw::HundredMebibytes, "longer than 1048576 bytes"),
        (Flaw::EndlessCatalog, "a catalog of more than 67108864 bytes"),
    ] {
        let stage = Stage::new(flaw);
        let provider = stage.connect().await;
        let error = provider.instance_types(&pool()).await.expect_err("refused");
        assert!(error.to_string().contains(said), "{flaw:?}: {error}");
        assert!(provider.is_connected(), "{flaw:?}");
        assert_eq!(provider.list().await, Ok(Vec::new()), "{flaw:?}");
    }
    let stage = Stage::new(Flaw::EndlessList);
    let provider = stage.connect().await;
    let created = provider.create(&claim("one")).await.expect("launched");
    let error = provider.list().await.expect_err("refused").to_string();
    assert!(error.contains("a list of more than 268435456 bytes"), "{error}");
    let found = provider.get(created.provider_id().expect("an ID")).await;
    assert_eq!(found.expect("other calls go on").name(), "one");
}

#[tokio::test(start_paused = true)]
async fn g_020_an_instance_in_a_state_that_is_not_known_is_there() {
    let stage = Stage::new(Flaw::UnknownState);
    let provider = stage.connect().await;
    let created = provider.create(&claim("one")).await.expect("launched");
    let listed = provider.list().await.expect("listed");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].provider_id(), created.provider_id());
}

#[tokio::test(start_paused = true)]
async fn one_bad_row_harms_no_other() {
    let stage = Stage::new(Flaw::BadQuantity);
    let provider = stage.connect().await;
    let types = provider.instance_types(&pool()).await.expect("types");
    let for_sale = types
        .iter()
        .map(|one| one.offerings.iter().any(|offering| offering.available));
    assert_eq!(for_sale.collect::<Vec<_>>(), [false, true], "the other type");
}

#[tokio::test(start_paused = true)]
async fn garbage_is_not_a_provider() {
    let (connector, mut arriving) = DuplexConnector::new();
    tokio::spawn(async move {
        while let Some(mut stream) = arriving.recv().await {
            drop(stream.write_all(&[0x47; 70_000]).await);
        }
    });
    let options = ClientOptions {
        connector: Arc::new(connector),
        cluster_name: String::new(),
        cluster_uid: String::new(),
        kubernetes_version: String::new(),
        node_classes: None,
        nodes: None,
    };
    let error = GrpcProvider::connect(options, clock())
        .await
        .expect_err("garbage");
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn g_002_another_cluster_is_refused() {
    let stage = Stage::new(Flaw::None);
    let first = stage.connect_to("mine").await;
    first.expect("the first decides");
    let error = stage.connect_to("theirs").await.expect_err("refused").to_string();
    assert!(
        error.contains("serves the cluster with UID mine, not theirs"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn g_003_a_leader_of_before_is_refused() {
    let stage = Stage::new(Flaw::None);
    let old = stage.connect().await;
    let new = stage.connect().await;
    let mut leaders = Vec::new();
    for leader in [&old, &new] {
        leaders.push(stage.lead(leader, 0).await);
        leader
            .create(&claim("one"))
            .await
            .expect("the last leader launches");
    }
    let error = old.create(&claim("two")).await.expect_err("refused").to_string();
    assert!(error.contains("another replica leads"), "{error}");
    let error = old.delete(&claim("two")).await.expect_err("refused").to_string();
    assert!(error.contains("another replica leads"), "{error}");
}

/// A new leader launches, whatever its clock says and how often the Lease was made anew.
#[tokio::test(start_paused = true)]
async fn g_003_a_new_leader_whose_clock_is_behind_launches() {
    let stage = Stage::new(Flaw::None);
    let old = stage.connect().await;
    let _old = stage.lead(&old, 12).await;
    old.create(&claim("one")).await.expect("launched");
    let behind = TokioClock::new("2025-01-01T00:00:00Z".parse().expect("a time"), 1.0).shared();
    let new = GrpcProvider::connect(stage.options("uid"), behind)
        .await
        .expect("a connection");
    let _new = stage.lead(&new, 1).await;
    new.create(&claim("two")).await.expect("launched");
    let error = old
        .create(&claim("three"))
        .await
        .expect_err("refused")
        .to_string();
    assert!(error.contains("leader_term 12 is older than 13"), "{error}");
}

/// What only the leader does, the provider does for one leader: also when the connection of the last one stands.
#[tokio::test(start_paused = true)]
async fn g_003_the_work_for_a_leader_ends_when_another_leads() {
    let stage = Stage::new(Flaw::None);
    let (old, new) = (stage.connect().await, stage.connect().await);
    let _old = stage.lead(&old, 0).await;
    assert_eq!(stage.shed.leaders(), 1);
    let _new = stage.lead(&new, 0).await;
    assert_eq!(stage.shed.leaders(), 1, "the new one");
    stage.pass(10).await;
    assert_eq!(stage.shed.leaders(), 1, "the old one asks in vain");
}

/// A provider that starts again learns from the operator's handshake who leads, before the next launch.
#[tokio::test(start_paused = true)]
async fn g_003_a_provider_that_has_restarted_is_told_who_leads() {
    let stage = Stage::new(Flaw::None);
    let old = stage.connect().await;
    let old_leads = stage.lead(&old, 0).await;
    let new = stage.connect().await;
    let _new = stage.lead(&new, 0).await;
    drop(old_leads);
    stage.close();
    stage.restart();
    stage.open();
    stage.pass(60).await;
    let error = old.create(&claim("one")).await.expect_err("refused").to_string();
    assert!(error.contains("leader_term 1 is older than 2"), "{error}");
    new.create(&claim("two")).await.expect("launched");
}

#[tokio::test(start_paused = true)]
async fn g_016_g_017_an_event_comes_until_it_is_acknowledged_with_its_deadline_also_after_a_break() {
    let stage = Stage::new(Flaw::None);
    let message = Interruption {
        id: "m-1".into(),
        provider_id: "shed://a".into(),
        kind: Ok(InterruptionKind::SpotInterrupted),
        sent_at: None,
        ends_at: Some("2026-01-01T00:02:00Z".parse().expect("a time")),
    };
    stage
        .shed
        .messages
        .lock()
        .expect("no panic")
        .push(message.clone());
    let provider = stage.connect().await;
    let mut events = provider.interruptions().expect("events");
    let first = events.next().await.expect("an event");
    assert_eq!((&first.kind, first.ends_at), (&message.kind, message.ends_at));
    stage.close();
    stage.open();
    let second = events.next().await.expect("again after the break");
    assert_eq!(first, second);
    provider.acknowledge(&second).await.expect("acknowledged");
    assert_eq!(*stage.shed.messages.lock().expect("no panic"), []);
}

/// A message without a deadline gets none on the way: core would end the grace of the machine's pods at it.
#[tokio::test(start_paused = true)]
async fn g_017_an_event_without_a_deadline_has_none() {
    let stage = Stage::new(Flaw::None);
    let message = Interruption {
        id: "m-2".into(),
        provider_id: "shed://a".into(),
        kind: Ok(InterruptionKind::ScheduledChange),
        sent_at: Some("2025-12-31T23:59:00Z".parse().expect("a time")),
        ends_at: None,
    };
    stage
        .shed
        .messages
        .lock()
        .expect("no panic")
        .push(message.clone());
    let provider = stage.connect().await;
    let mut events = provider.interruptions().expect("events");
    let came = events.next().await.expect("an event");
    assert_eq!(
        (&came.kind, came.ends_at, came.sent_at),
        (&message.kind, None, message.sent_at)
    );
}

#[tokio::test(start_paused = true)]
async fn g_005_a_change_of_an_offering_arrives_by_itself() {
    let stage = Stage::new(Flaw::None);
    let provider = stage.connect().await;
    let before = provider.instance_types(&pool()).await.expect("types");
    let mut types = before.to_vec();
    types[1].offerings.remove(0);
    types[1].offerings[0].available = false;
    *stage.shed.types.lock().expect("no panic") = types.clone().into();
    stage.pass(3).await;
    assert_eq!(*provider.instance_types(&pool()).await.expect("types"), *types);
}

/// How old prices are decides about disruption, here as in one process: while the provider is away, and when it tells nothing of them any more.
#[tokio::test(start_paused = true)]
async fn g_001_g_005_prices_are_as_old_as_the_provider_says() {
    let stage = Stage::new(Flaw::None);
    let provider = stage.connect().await;
    let set = |feed: PriceFeed| *stage.shed.prices.lock().expect("no panic") = feed;
    let types = provider.instance_types(&pool()).await.expect("types");
    assert_eq!(provider.price_feed(), PriceFeed::Fixed);
    let read = PriceFeed::Since("2026-01-01T00:00:07Z".parse().expect("a time"));
    set(read);
    stage.pass(3).await;
    assert_eq!(provider.price_feed(), read, "without any other news");
    let again = provider.instance_types(&pool()).await.expect("types");
    assert!(Arc::ptr_eq(&types, &again), "no price has changed");

    let later = PriceFeed::Since("2026-01-01T01:00:00Z".parse().expect("a time"));
    set(later);
    let mut cheaper = types.to_vec();
    cheaper[0].offerings[0].price = Price(1);
    *stage.shed.types.lock().expect("no panic") = cheaper.into();
    stage.pass(3).await;
    assert_eq!(provider.price_feed(), later, "with a delta");
    let fewer = types[1..].to_vec();
    *stage.shed.types.lock().expect("no panic") = fewer.into();
    stage.pass(3).await;
    assert_eq!(provider.price_feed(), later, "with another snapshot");

    stage.close();
    stage.pass(60).await;
    assert_eq!(provider.price_feed(), later, "prices of before");
    set(PriceFeed::Fixed);
    stage.open();
    stage.pass(60).await;
    assert_eq!(provider.price_feed(), PriceFeed::Fixed);
}

#[tokio::test(start_paused = true)]
async fn g_030_a_gate_holds_registration_until_the_provider_opens_it() {
    let stage = Stage::new(Flaw::None);
    let provider = stage.connect().await;
    let [gate] = provider.registration_hooks() else {
        panic!("one gate");
    };
    let claim = claim("one");
    let held = gate.registered(&claim).await;
    assert_eq!(held, Ok(HookAnswer::AskAgain(Duration::from_secs(7))));
    stage.pass(61).await;
    assert_eq!(gate.registered(&claim).await, Ok(HookAnswer::Ready));
}
