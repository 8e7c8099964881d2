//! When to stop: Ctrl-C, SIGTERM, or the end of the time that was given.

use std::future::pending;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// How long the parts of an operator may take to stop.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(15);

/// Completes when the process should end. A second Ctrl-C ends it at once.
pub(crate) async fn wait(limit: Option<Duration>) {
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut stream) => drop(stream.recv().await),
            Err(_) => pending().await,
        }
    };
    let time = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => {}
        () = terminate => {}
        () = time => {}
    }
    tokio::spawn(async {
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(130);
        }
    });
}
