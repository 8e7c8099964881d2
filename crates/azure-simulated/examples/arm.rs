//! The Azure of this crate over HTTP, with one machine that the provider has launched, for clients in other languages.
//!
//! ```sh
//! cargo run -p spokeshave-azure-simulated --example arm [-- --aks]
//! ```
//!
//! With `--aks` AKS has made the machine. Prints a line of JSON with its address, what it takes to log in, and the machine's resource ID. Then it answers lines: `list` with what the provider
//! lists, `gone` with whether it knows its machine to be gone. Ends when its input does.

#[allow(dead_code, reason = "the tests' world, of which this uses the settings")]
#[path = "../tests/it/world.rs"]
mod world;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use spokeshave_api::{AKSNodeClass, AKSNodeClassSpec};
use spokeshave_azure_cloud::{AzureProvider, Outside};
use spokeshave_azure_http::HttpClient;
use spokeshave_azure_simulated::{Azure, Options, serve};
use spokeshave_ports::{CloudProvider as _, TokioClock};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock = TokioClock::wall(1.0).shared();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut options = match std::env::args().nth(1).as_deref() {
        Some("--aks") => world::with_aks(Options::instant()),
        _ => Options::instant(),
    };
    options.base = format!("http://{}", listener.local_addr()?);
    options.page = 10;
    options.quota.insert("standardDSv5Family".to_owned(), 100);
    let azure = Azure::new(options.clone(), clock.clone());
    let outside = Outside {
        http: Arc::new(HttpClient::new()?),
        assertion: Arc::new(azure.clone()),
    };
    let provider = AzureProvider::new(outside, clock.clone(), world::provider_options(&options));
    tokio::spawn(serve(azure, listener));
    let follower = provider.clone();
    tokio::spawn(async move { follower.follow().await });
    let class = AKSNodeClass::new("class", AKSNodeClassSpec::default());
    let class = provider.reconcile_class(&class, Some("v1.34.1"), true).await.0;
    provider.put_class(class);
    while provider.instance_types(&world::pool()).await.is_err() {
        clock.sleep(Duration::from_millis(50)).await;
    }
    let created = provider
        .create(&world::on_demand("ours", "Standard_D4s_v5"))
        .await?;
    let provider_id = created.provider_id().unwrap_or_default().to_owned();
    let start = json!({
        "url": options.base,
        "tenant": options.tenant,
        "client": options.client_id,
        "assertion": options.assertion,
        "subscription": options.subscription,
        "location": options.region,
        "subnet": options.subnets[0],
        "machine": provider_id.trim_start_matches("azure://"),
        "aksMachine": created.annotation("karpenter.azure.com/aks-machine-resource-id"),
    });
    println!("{start}");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match line.as_str() {
            "list" => {
                let listed = provider.list().await?;
                let names: Vec<&str> = listed.iter().map(spokeshave_api::NodeClaim::name).collect();
                println!("{}", json!(names));
            }
            "gone" => {
                let gone = provider
                    .get(&provider_id)
                    .await
                    .is_err_and(|error| error.is_not_found());
                println!("{gone}");
            }
            other => println!(
                "{}",
                json!({"error": format!("{other:?} is neither list nor gone")})
            ),
        }
    }
    Ok(())
}
