//! An API server on loopback, for trying clients: prints where its kubeconfig is and runs until it is interrupted.

use std::sync::Arc;

use spokeshave_apiserver::{ApiServer, Config, Listener, kubeconfig};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: serve KUBECONFIG-FILE")?;
    #[expect(
        clippy::disallowed_methods,
        reason = "a program of its own, on the wall clock"
    )]
    let now = Arc::new(jiff::Timestamp::now);
    let mut config = Config::new(now, 1);
    config.token = Some("example".to_owned());
    let server = ApiServer::new(config);
    let listener = Listener::start(&server, "127.0.0.1:0".parse()?).await?;
    std::fs::write(
        &path,
        kubeconfig(listener.address(), listener.ca_pem(), "example"),
    )?;
    println!("https://{} {path}", listener.address());
    tokio::signal::ctrl_c().await?;
    listener.stop().await;
    Ok(())
}
