//! How long the largest catalog takes from a provider to the operator (G-006): `catalog [TIMES]`. On a unix socket and by the wall clock, from the connection
//! to the last of 1,400 types with 16,800 offerings.

#[path = "../tests/it/large.rs"]
mod large;
#[path = "../tests/it/shed.rs"]
#[expect(dead_code, reason = "tests need more of it")]
mod shed;

use std::error::Error;
use std::sync::Arc;

use spokeshave_ports::{CloudProvider as _, SharedClock, TokioClock};
use spokeshave_provider_grpc::{
    ClientOptions, GrpcProvider, Server, ServerOptions, UnixConnector, serve_unix,
};

use crate::shed::{Shed, pool};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let times: usize = std::env::args().nth(1).map_or(Ok(5), |times| times.parse())?;
    let clock: SharedClock = TokioClock::wall(1.0).shared();
    let shed = Shed::new(clock.clone());
    let types = large::large();
    let offerings: usize = types.iter().map(|one| one.offerings.len()).sum();
    *shed.types.lock().map_err(|_| "a panic")? = types.clone().into();
    let folder = std::env::temp_dir().join(format!("spokeshave-catalog-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let socket = folder.join("provider.sock");
    let server = Server::new(shed, clock.clone(), ServerOptions::default());
    let path = socket.clone();
    tokio::spawn(async move { serve_unix(server, &path).await });
    while !socket.exists() {
        tokio::task::yield_now().await;
    }
    let mut milliseconds = Vec::new();
    for _ in 0..times {
        let options = ClientOptions {
            connector: Arc::new(UnixConnector(socket.clone())),
            cluster_name: "a".into(),
            cluster_uid: "uid".into(),
            kubernetes_version: String::new(),
            node_classes: None,
            nodes: None,
        };
        let begun = clock.now();
        let provider = GrpcProvider::connect(options, clock.clone()).await?;
        let received = provider.instance_types(&pool()).await?;
        milliseconds.push(clock.since(begun).as_millis());
        assert!(*received == *types, "every row is what it was");
    }
    std::fs::remove_dir_all(&folder)?;
    milliseconds.sort_unstable();
    println!(
        "{offerings} offerings of {} types: {milliseconds:?} ms",
        types.len()
    );
    Ok(())
}
