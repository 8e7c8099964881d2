//! The kit passes a provider that keeps its promises, and names the promise that another breaks (G-024).

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use kube::api::DynamicObject;
use serde_json::json;
use spokeshave_ports::{CloudProvider as _, NoWrites, SharedClock};
use spokeshave_provider_grpc::sanity::{Restart, SanityOptions, Untried, check};
use spokeshave_provider_grpc::{
    ByteStream, ClientOptions, Connector, DuplexConnector, GrpcProvider, Server, ServerOptions,
    serve_connection,
};
use tokio::task::JoinHandle;

use crate::flawed::{Flaw, Flawed};
use crate::shed::{Shed, claim, clock};

/// A process that serves a provider, as far as a test needs one.
#[derive(Clone)]
struct Process {
    clock: SharedClock,
    flaw: Flaw,
    shed: Arc<Mutex<Arc<Shed>>>,
    provider: Arc<Mutex<Flawed>>,
    connector: DuplexConnector,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process")
            .field("flaw", &self.flaw)
            .finish_non_exhaustive()
    }
}

fn served(shed: &Arc<Shed>, flaw: Flaw, clock: &SharedClock) -> Flawed {
    let server = Server::new(shed.clone(), clock.clone(), ServerOptions::default());
    Flawed::new(server, flaw, clock.clone())
}

impl Process {
    fn start(flaw: Flaw) -> Self {
        let clock = clock();
        let shed = Shed::new(clock.clone());
        let (connector, mut arriving) = DuplexConnector::new();
        let process = Self {
            provider: Arc::new(Mutex::new(served(&shed, flaw, &clock))),
            shed: Arc::new(Mutex::new(shed)),
            clock,
            flaw,
            connector,
            connections: Arc::default(),
        };
        let (provider, connections) = (process.provider.clone(), process.connections.clone());
        tokio::spawn(async move {
            while let Some(stream) = arriving.recv().await {
                let provider = provider.lock().expect("no panic").clone();
                let task = tokio::spawn(async move { drop(serve_connection(provider, stream).await) });
                connections.lock().expect("no panic").push(task);
            }
        });
        process
    }

    fn options(&self) -> SanityOptions {
        SanityOptions {
            connector: Arc::new(self.connector.clone()),
            node_class: None,
            changed_node_class: None,
            node_class_name: "default".into(),
            cluster_uid: "a-cluster".into(),
            run: "1".into(),
            restart: None,
            is_time_virtual: true,
        }
    }

    async fn operator(&self) -> GrpcProvider {
        let options = ClientOptions {
            connector: Arc::new(self.connector.clone()),
            cluster_name: "a".into(),
            cluster_uid: "a-cluster".into(),
            kubernetes_version: String::new(),
            node_classes: None,
            nodes: None,
        };
        let operator = GrpcProvider::connect(options, self.clock.clone()).await;
        operator.expect("a connection")
    }

    /// The launches that it was asked for.
    fn asked(&self) -> Vec<spokeshave_provider_grpc::wire::LaunchRequest> {
        let provider = self.provider.lock().expect("no panic");
        let asked = provider.asked.lock().expect("no panic");
        asked.clone()
    }

    async fn verdict(&self, options: SanityOptions) -> Vec<&'static str> {
        match check(&options, &self.clock).await {
            Ok(_) => Vec::new(),
            Err(failures) => failures.0.iter().map(|failure| failure.check).collect(),
        }
    }
}

impl Restart for Process {
    fn restart(&self) -> BoxFuture<'_, Result<(), String>> {
        let connections = std::mem::take(&mut *self.connections.lock().expect("no panic"));
        connections.iter().for_each(JoinHandle::abort);
        let mut shed = self.shed.lock().expect("no panic");
        if self.flaw == Flaw::ForgetsInstances {
            *shed = Shed::new(self.clock.clone());
        }
        let mut provider = self.provider.lock().expect("no panic");
        let start = provider.start + 1;
        *provider = Flawed {
            start,
            ..served(&shed, self.flaw, &self.clock)
        };
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A socket that others may open.
#[derive(Debug)]
struct Open(DuplexConnector);

impl Connector for Open {
    fn connect(&self) -> BoxFuture<'_, std::io::Result<Box<dyn ByteStream>>> {
        self.0.connect()
    }
    fn pings(&self) -> bool {
        self.0.pings()
    }
    fn address(&self) -> String {
        "unix:/p.sock".to_owned()
    }
    fn file_mode(&self) -> Option<u32> {
        Some(0o755)
    }
}

#[tokio::test(start_paused = true)]
async fn g_003_g_024_a_socket_that_others_may_open_is_named() {
    let process = Process::start(Flaw::None);
    let options = SanityOptions {
        connector: Arc::new(Open(process.connector.clone())),
        ..process.options()
    };
    let said = check(&options, &process.clock).await.expect_err("refused");
    assert_eq!(
        said.to_string(),
        "sockets_are_private: unix:/p.sock has mode 755, so that others may launch instances; expected 600"
    );
}

/// A command that ends well and restarts nothing.
#[derive(Debug)]
struct Idle;

impl Restart for Idle {
    fn restart(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

fn class(manifest: serde_json::Value) -> Option<DynamicObject> {
    Some(serde_json::from_value(manifest).expect("an object"))
}

/// The default NodeClass with this image; what was launched without one has drifted when it is another than `a`.
fn another_image(image: &str) -> Option<DynamicObject> {
    class(
        json!({"apiVersion": "shed.example/v1", "kind": "ShedClass", "metadata": {"name": "default"}, "spec": {"image": image}}),
    )
}

async fn verdict(flaw: Flaw) -> Vec<&'static str> {
    let process = Process::start(flaw);
    let options = SanityOptions {
        restart: Some(Arc::new(process.clone())),
        changed_node_class: another_image("b"),
        ..process.options()
    };
    process.verdict(options).await
}

#[tokio::test(start_paused = true)]
async fn g_024_a_provider_that_keeps_its_promises_passes() {
    assert_eq!(verdict(Flaw::None).await, Vec::<&str>::new());
    assert_eq!(verdict(Flaw::PendingTwice).await, Vec::<&str>::new(), "g_008");
    assert_eq!(verdict(Flaw::Plain).await, Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn g_012_g_014_g_024_every_broken_promise_is_named() {
    for (flaw, promise) in CASES {
        let found = verdict(*flaw).await;
        assert!(
            found.contains(promise),
            "{flaw:?}: expected {promise} to be broken, broken were {found:?}"
        );
    }
}

/// One line for each thing to write next, and nothing is launched that could not be ended.
#[tokio::test(start_paused = true)]
async fn g_024_a_provider_that_is_half_written_is_told_what_to_write_next() {
    for (flaw, launches) in [(Flaw::NoTerminate, 0), (Flaw::NoLaunch, 1)] {
        let process = Process::start(flaw);
        assert_eq!(
            process.verdict(process.options()).await,
            ["calls_are_implemented"]
        );
        assert_eq!(process.asked().len(), launches, "{flaw:?}");
    }
}

/// Machines cost money, most of all at a provider that loses sight of them.
#[tokio::test(start_paused = true)]
async fn g_024_nothing_that_the_kit_has_launched_is_left() {
    for flaw in [
        Flaw::None,
        Flaw::AnyLeader,
        Flaw::TwoInstances,
        Flaw::SharedInstance,
        Flaw::NoProviderId,
        Flaw::NotACandidate,
        Flaw::ListForgets,
        Flaw::ListFromNodes,
        Flaw::ListWithoutUid,
        Flaw::ListTwice,
        Flaw::AlwaysDrifted,
        Flaw::ForgetsLaunches,
    ] {
        let process = Process::start(flaw);
        let options = SanityOptions {
            restart: Some(Arc::new(process.clone())),
            changed_node_class: another_image("b"),
            ..process.options()
        };
        let broken = process.verdict(options).await;
        assert!(!broken.contains(&"launched_instances_end"), "{flaw:?}");
        let shed = process.shed.lock().expect("no panic").clone();
        let left = shed.list().await.expect("listed");
        assert_eq!(left.len(), 0, "{flaw:?}: {left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn g_024_what_cannot_be_ended_is_named() {
    let process = Process::start(Flaw::NeverGone);
    let said = check(&process.options(), &process.clock).await;
    let said = said.expect_err("it ends nothing").to_string();
    let named = said
        .lines()
        .find(|line| line.starts_with("launched_instances_end: shed://"));
    let named = named.unwrap_or_else(|| panic!("{said}"));
    assert!(
        named.contains("shed://uid-of-sanity-wire-1, launched for NodeClaim sanity-wire-1")
            && named.ends_with("end it by hand"),
        "{named}"
    );
}

/// The kit comes to its end all the same: what it has no time left for, it names.
#[tokio::test(start_paused = true)]
async fn g_024_a_termination_that_hangs_keeps_the_kit_no_longer_than_its_limit() {
    let process = Process::start(Flaw::TerminateHangs);
    let said = check(&process.options(), &process.clock).await;
    let said = said.expect_err("it ends nothing").to_string();
    let named = said.lines().any(|line| {
        line.starts_with("launched_instances_end: ")
            && line.ends_with("Terminate was not called any more after 600 s; end it by hand")
    });
    assert!(named, "{said}");
}

/// A restart during which two replicas begin to lead, one after the other.
#[derive(Debug)]
struct Succession(Process);

impl Restart for Succession {
    fn restart(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            self.0.restart().await?;
            for _ in 0..2 {
                let operator = self.0.operator().await;
                tokio::spawn(async move { operator.lead(Arc::new(NoWrites)).await });
                self.0.clock.sleep(std::time::Duration::from_secs(1)).await;
            }
            Ok(())
        })
    }
}

/// In the term of before, nothing that was launched could be ended.
#[tokio::test(start_paused = true)]
async fn g_003_g_024_the_kit_goes_on_in_the_term_of_who_leads_after_a_restart() {
    let process = Process::start(Flaw::None);
    let options = SanityOptions {
        restart: Some(Arc::new(Succession(process.clone()))),
        changed_node_class: another_image("b"),
        ..process.options()
    };
    assert_eq!(process.verdict(options).await, Vec::<&str>::new());
    let shed = process.shed.lock().expect("no panic").clone();
    assert_eq!(shed.list().await, Ok(Vec::new()));
}

/// A flaw, and the promise that the kit must name.
const CASES: &[(Flaw, &str)] = &[
    (Flaw::NoName, "handshake_is_complete"),
    (Flaw::NoKinds, "handshake_is_complete"),
    (Flaw::StrangeVersion, "handshake_is_complete"),
    (Flaw::AnyVersion, "versions_are_negotiated"),
    (Flaw::AnyCluster, "one_cluster_is_served"),
    (Flaw::AnyLeader, "stale_leaders_are_refused"),
    (Flaw::HugeChunk, "catalog_chunks_are_small"),
    (Flaw::NeverComplete, "snapshots_are_completed"),
    (Flaw::EndsBeforeComplete, "catalog_arrives"),
    (Flaw::GenerationZero, "snapshots_are_completed"),
    (Flaw::BadQuantity, "catalog_rows_are_whole"),
    (Flaw::UnknownOperator, "catalog_rows_are_whole"),
    (Flaw::OfferingWithoutZone, "catalog_rows_are_whole"),
    (Flaw::TypeNameWithBlank, "catalog_rows_are_whole"),
    (Flaw::TypeTwice, "catalog_rows_are_unique"),
    (Flaw::TypeWithoutArchitecture, "instance_types_are_complete"),
    (Flaw::NothingForSale, "catalog_sells_something"),
    (Flaw::NoLaunch, "calls_are_implemented"),
    (Flaw::NoTerminate, "calls_are_implemented"),
    (Flaw::TerminateHangs, "launched_instances_end"),
    (Flaw::TwoInstances, "launches_are_idempotent"),
    (Flaw::TwoInstances, "create_is_idempotent"),
    (Flaw::TwoInstances, "create_is_idempotent_minutes_later"),
    (Flaw::SharedInstance, "claims_do_not_share_instances"),
    (Flaw::NoProviderId, "launches_succeed"),
    (Flaw::NotACandidate, "launches_take_a_candidate"),
    (Flaw::LabelWithBlank, "instance_labels_are_valid"),
    (Flaw::UntypedCapacityError, "impossible_claims_lack_capacity"),
    (Flaw::ListForgets, "lists_show_what_never_joined"),
    (Flaw::ListFromNodes, "lists_show_what_never_joined"),
    (Flaw::ListWithoutTrailer, "lists_say_that_they_are_complete"),
    (Flaw::ListWithoutUid, "lists_remember_nodeclaims"),
    (Flaw::ListWithoutAge, "create_get_list_delete"),
    (Flaw::ListTwice, "create_get_list_delete"),
    (Flaw::ForgivesStrangers, "foreign_ids_are_never_ok"),
    (Flaw::InventsInstances, "foreign_ids_are_never_ok"),
    (Flaw::NeverGone, "create_get_list_delete"),
    (Flaw::AlwaysDrifted, "fresh_instances_have_not_drifted"),
    (Flaw::NeverDrifted, "drift_goes_by_the_class_that_is_shown"),
    (Flaw::DriftedForGood, "drift_goes_by_the_class_that_is_shown"),
    (Flaw::EverythingDynamic, "drift_goes_by_the_class_that_is_shown"),
    (Flaw::EventsMissing, "announced_calls_exist"),
    (Flaw::NoTerm, "leader_terms_are_told"),
    (Flaw::UnreadableRule, "handshake_rules_are_whole"),
    (Flaw::DemandsClass, "catalog_arrives"),
    (Flaw::ForgetsInstances, "instances_outlive_restarts"),
    (Flaw::ForgetsLaunches, "launches_are_idempotent_over_restarts"),
];

/// Flaws that are the client's to survive: `away.rs` has what it says of each.
const OF_THE_CLIENT: &[Flaw] = &[
    Flaw::HundredMebibytes,
    Flaw::EndlessCatalog,
    Flaw::EndlessList,
    Flaw::UnknownState,
    Flaw::Hangs,
    Flaw::LaunchHangs,
];

#[test]
fn g_024_the_documentation_counts_the_wrong_providers_and_each_is_tried() {
    let by_the_kit: std::collections::BTreeSet<String> =
        CASES.iter().map(|(flaw, _)| format!("{flaw:?}")).collect();
    let allowed = [
        Flaw::None,
        Flaw::PendingTwice,
        Flaw::Plain,
        Flaw::FailsLater,
        Flaw::Judges,
        Flaw::ListWithoutName,
        Flaw::ListsPending,
        Flaw::LaunchEnding,
        Flaw::TwoGroups,
        Flaw::LateCatalog,
        Flaw::StuckCatalog,
        Flaw::ErrsOnce,
        Flaw::ErrsAlways,
    ];
    for flaw in Flaw::ALL.iter().filter(|flaw| !allowed.contains(flaw)) {
        let is_tried = by_the_kit.contains(&format!("{flaw:?}")) || OF_THE_CLIENT.contains(flaw);
        assert!(is_tried, "{flaw:?} is tried by neither the kit nor the client");
    }
    let sentence = format!(
        "{} deliberately wrong providers: {} are detected by the kit, each with the name of the check that it fails, and {} are survived by the operator",
        by_the_kit.len() + OF_THE_CLIENT.len(),
        by_the_kit.len(),
        OF_THE_CLIENT.len()
    );
    let documentation = include_str!("../../../../docs/providers.md").replace('\n', " ");
    let documentation = documentation.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        documentation.contains(&sentence),
        "docs/providers.md does not say: {sentence}"
    );
}

#[tokio::test(start_paused = true)]
async fn g_024_the_provider_is_shown_the_class_that_it_accepts() {
    let process = Process::start(Flaw::DemandsClass);
    let manifest = |kind: &str| {
        class(
            json!({"apiVersion": "shed.example/v1", "kind": kind, "metadata": {"name": "large"}, "spec": {"image": "a"}}),
        )
    };
    let options = |kind| SanityOptions {
        node_class: manifest(kind),
        ..process.options()
    };
    assert_eq!(process.verdict(options("ShedClass")).await, Vec::<&str>::new());
    let refused = check(&options("BarnClass"), &process.clock)
        .await
        .expect_err("refused");
    assert_eq!(
        refused.to_string(),
        "node_class_is_served: the given NodeClass is shed.example/v1 BarnClass; the handshake names shed.example/v1 ShedClass"
    );
}

#[tokio::test(start_paused = true)]
async fn g_015_g_024_a_class_that_changes_is_shown_and_what_was_not_tried_is_told() {
    let process = Process::start(Flaw::None);
    let options = |run: &str, changed_node_class| SanityOptions {
        run: run.into(),
        changed_node_class,
        ..process.options()
    };
    let untried = check(&options("1", None), &process.clock).await;
    assert_eq!(untried, Ok(vec![Untried::DriftOfAChangedClass, Untried::Restart]));
    let untried = check(&options("2", another_image("b")), &process.clock).await;
    assert_eq!(untried, Ok(vec![Untried::Restart]));
    // By this image nothing has drifted: a manifest that proves nothing is no proof.
    assert_eq!(
        process.verdict(options("3", another_image("a"))).await,
        ["drift_goes_by_the_class_that_is_shown"]
    );
    for (manifest, said) in [
        (
            json!({"apiVersion": "shed.example/v1", "kind": "ShedClass", "metadata": {"name": "default"}, "spec": {}}),
            "has the spec of the one",
        ),
        (
            json!({"apiVersion": "shed.example/v1", "kind": "BarnClass", "metadata": {"name": "default"}, "spec": {"image": "b"}}),
            "the changed NodeClass is shed.example/v1 BarnClass",
        ),
    ] {
        let refused = check(&options("4", class(manifest)), &process.clock).await;
        let refused = refused.expect_err("refused").to_string();
        assert!(
            refused.starts_with("node_class_is_served") && refused.contains(said),
            "{refused}"
        );
    }
    // Where the operator compares the spec, the kit changes it by itself.
    let plain = Process::start(Flaw::Plain);
    let untried = check(&plain.options(), &plain.clock).await;
    assert_eq!(untried, Ok(vec![Untried::Restart]));
}

/// It would keep whoever runs the kit waiting, who is told so.
#[tokio::test(start_paused = true)]
async fn g_007_g_024_where_time_is_genuine_no_launch_is_repeated_minutes_later() {
    for (is_time_virtual, launches) in [(true, 2), (false, 0)] {
        let process = Process::start(Flaw::None);
        let options = SanityOptions {
            is_time_virtual,
            ..process.options()
        };
        let untried = check(&options, &process.clock).await.expect("kept");
        let is_told = untried.contains(&Untried::LaunchMinutesLater);
        assert_ne!(is_told, is_time_virtual);
        let names = process.asked().into_iter().map(|one| one.nodeclaim_name);
        let repeated = names.filter(|name| name == "conformance-later-1");
        assert_eq!(repeated.count(), launches);
    }
}

#[tokio::test(start_paused = true)]
async fn g_007_g_024_a_restart_command_that_restarts_nothing_proves_nothing() {
    let process = Process::start(Flaw::None);
    let options = SanityOptions {
        restart: Some(Arc::new(Idle)),
        ..process.options()
    };
    assert_eq!(process.verdict(options).await, ["provider_restarts"]);
}

/// The kit beside an operator that leads, and before one that begins to, takes launches from neither.
#[tokio::test(start_paused = true)]
async fn g_003_g_024_the_kit_outdates_no_operator() {
    let process = Process::start(Flaw::None);
    assert_eq!(process.verdict(process.options()).await, Vec::<&str>::new());
    let operator = process.operator().await;
    let leading = operator.clone();
    tokio::spawn(async move { leading.lead(Arc::new(NoWrites)).await });
    process.clock.sleep(std::time::Duration::from_secs(1)).await;
    operator
        .create(&claim("one"))
        .await
        .expect("launched after the kit");
    let beside = SanityOptions {
        run: "2".into(),
        ..process.options()
    };
    assert_eq!(process.verdict(beside).await, Vec::<&str>::new());
    operator
        .create(&claim("two"))
        .await
        .expect("launched beside the kit");
}
