//! When to stop: Ctrl-C, SIGTERM, or the end of the time that was given.

use std::future::pending;
use std::io;
use std::time::Duration;

use spokeshave_runtime::Shutdown;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long the parts of an operator may take to stop.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(15);

/// Completes when the process should end. A signal counts from the call on, even if it comes before this is awaited. A second Ctrl-C ends the process at once.
pub(crate) fn wait(limit: Option<Duration>) -> impl Future<Output = ()> + Send {
    let mut signals = Signals::listen();
    async move {
        let time = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = signals.next() => {}
            () = time => {}
        }
        tokio::spawn(async {
            if tokio::signal::ctrl_c().await.is_ok() {
                std::process::exit(130);
            }
        });
    }
}

/// Ctrl-C and SIGTERM, one after the other, for who has something to do with the second one, too. None of them ends the process by itself.
pub(crate) struct Signals {
    interrupt: io::Result<Signal>,
    terminate: io::Result<Signal>,
}

impl Signals {
    /// A signal counts from the call on.
    pub(crate) fn listen() -> Self {
        Signals {
            interrupt: signal(SignalKind::interrupt()),
            terminate: signal(SignalKind::terminate()),
        }
    }

    /// Completes with the next one of either.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            biased;
            () = given(&mut self.interrupt) => {}
            () = given(&mut self.terminate) => {}
        }
    }
}

/// What is requested when the process should end. Ask for it before anything is waited for: the first process of a container ignores signals that it does not
/// listen for.
pub(crate) fn shutdown() -> Shutdown {
    let shutdown = Shutdown::new();
    let (signal, told) = (wait(None), shutdown.clone());
    tokio::spawn(async move {
        signal.await;
        told.request();
    });
    shutdown
}

/// Completes when the signal is given: never, if it cannot be listened for.
async fn given(signals: &mut io::Result<Signal>) {
    match signals {
        Ok(signals) => drop(signals.recv().await),
        Err(_) => pending().await,
    }
}
