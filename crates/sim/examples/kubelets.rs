//! The kubelets of fake nodes and nothing else, for a cluster whose operator is another's: `kubelets KUBECONFIG`, until it is ended.

use std::process::ExitCode;

use clap as _;
use json_patch as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use mimalloc as _;
use spokeshave_cluster::Options;
use spokeshave_ports::{Entropy, TokioClock};
use spokeshave_runtime::Shutdown;
use spokeshave_runtime::client::{ClientOptions, from_config};

async fn live(path: &str) -> Result<(), Box<dyn std::error::Error>> {
    let file = Kubeconfig::read_from(path)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let clock = TokioClock::wall(1.0).shared();
    let options = ClientOptions {
        rate: None,
        user_agent: "kubelets".to_owned(),
        ..ClientOptions::default()
    };
    let client = from_config(config, &options, clock.clone())?;
    let entropy = Entropy::new(1);
    spokeshave_cluster::run(client, clock, entropy, Options::kubelets_only(), Shutdown::new()).await;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: kubelets KUBECONFIG");
        return ExitCode::from(2);
    };
    match live(&path).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kubelets: {error}");
            ExitCode::FAILURE
        }
    }
}
