//! A catalog as large as the largest region's (G-006).

use spokeshave_ports::CloudProvider as _;
use spokeshave_provider_grpc::{ServerOptions, over_pipe};

use crate::large::large;
use crate::shed::{Shed, clock, pool};

#[tokio::test]
async fn g_006_1400_types_and_15000_offerings_arrive_whole() {
    let types = large();
    let offerings: usize = types.iter().map(|one| one.offerings.len()).sum();
    assert!(offerings >= 15_000, "{offerings}");
    let clock = clock();
    let shed = Shed::new(clock.clone());
    *shed.types.lock().expect("no panic") = types.clone().into();
    let provider = over_pipe(shed, clock.clone(), ServerOptions::default())
        .await
        .expect("a connection");
    // A chunk of 1 MiB or more would have been refused by the client.
    let received = provider.instance_types(&pool()).await.expect("types");
    assert!(*received == *types, "every row is what it was");
}
