//! The kit passes a provider that keeps its promises, and names the promise that another breaks (G-024).

use std::sync::Arc;

use spokeshave_provider_grpc::sanity::{SanityOptions, check};
use spokeshave_provider_grpc::{DuplexConnector, Server, ServerOptions, serve_connection};

use crate::flawed::{Flaw, Flawed};
use crate::shed::{Shed, clock};

async fn verdict(flaw: Flaw) -> Vec<&'static str> {
    let clock = clock();
    let server = Server::new(Shed::new(clock.clone()), clock.clone(), ServerOptions::default());
    let provider = Flawed::new(server, flaw, clock.clone());
    let (connector, mut connections) = DuplexConnector::new();
    tokio::spawn(async move {
        while let Some(stream) = connections.recv().await {
            tokio::spawn(serve_connection(provider.clone(), stream));
        }
    });
    let options = SanityOptions {
        connector: Arc::new(connector),
        node_class: "default".into(),
        cluster_uid: "a-cluster".into(),
        run: "1".into(),
    };
    match check(&options, &clock).await {
        Ok(()) => Vec::new(),
        Err(failures) => failures.0.iter().map(|failure| failure.check).collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn g_024_a_provider_that_keeps_its_promises_passes() {
    assert_eq!(verdict(Flaw::None).await, Vec::<&str>::new());
    assert_eq!(verdict(Flaw::PendingTwice).await, Vec::<&str>::new(), "g_008");
}

#[tokio::test(start_paused = true)]
async fn g_012_g_014_g_024_every_broken_promise_is_named() {
    let cases = [
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
        (Flaw::TypeTwice, "catalog_rows_are_unique"),
        (Flaw::TypeWithoutArchitecture, "instance_types_are_complete"),
        (Flaw::NothingForSale, "catalog_sells_something"),
        (Flaw::TwoInstances, "launches_are_idempotent"),
        (Flaw::TwoInstances, "create_is_idempotent"),
        (Flaw::SharedInstance, "claims_do_not_share_instances"),
        (Flaw::NoProviderId, "launches_succeed"),
        (Flaw::NotACandidate, "launches_take_a_candidate"),
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
        (Flaw::EventsMissing, "announced_calls_exist"),
    ];
    for (flaw, promise) in cases {
        let found = verdict(flaw).await;
        assert!(
            found.contains(&promise),
            "{flaw:?}: expected {promise} to be broken, broken were {found:?}"
        );
    }
}
