//! Leader election on a separate thread and runtime.
//!
//! A Lease must be renewed every few seconds, whatever the other threads of the program do: a long poll on a worker of the main runtime, which may hold
//! its timers and sockets back with it, must not cost the leadership. Owns the thread; the election itself is [`LeaderElection`]'s. Virtual time is
//! time of one runtime, so that simulations run the election like everything else.

use std::fmt;

use tokio::sync::oneshot;

use crate::lease::{ElectionOutcome, LeaderElection};
use crate::shutdown::Shutdown;

/// An election on a separate thread. When dropped, it releases the Lease and stops.
pub struct ElectionThread {
    outcome: Option<oneshot::Receiver<ElectionOutcome>>,
    shutdown: Shutdown,
}

impl fmt::Debug for ElectionThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectionThread").finish_non_exhaustive()
    }
}

impl ElectionThread {
    /// Waits until the election has ended, and how.
    pub async fn ended(mut self) -> ElectionOutcome {
        match self.outcome.take() {
            // A thread that is gone without a word renews nothing.
            Some(outcome) => outcome.await.unwrap_or(ElectionOutcome::Lost),
            None => ElectionOutcome::Lost,
        }
    }
}

impl Drop for ElectionThread {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

impl LeaderElection {
    /// Starts the election on a thread with its own runtime, with a client that is created there, so that its connections belong to that runtime
    /// too. The real clock must be given.
    ///
    /// # Errors
    /// The thread, its runtime or its client could not be made, with the reason.
    pub async fn start_apart(
        self,
        connect: impl FnOnce() -> Result<kube::Client, String> + Send + 'static,
        shutdown: Shutdown,
    ) -> Result<ElectionThread, String> {
        let (started, begun) = oneshot::channel();
        let (ended, outcome) = oneshot::channel();
        let stop = shutdown.clone();
        let work = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error.to_string()))),
            };
            runtime.block_on(async {
                match connect() {
                    Ok(client) => {
                        // Who waits for these may be gone by now.
                        let _ = started.send(Ok(()));
                        let _ = ended.send(self.over(client).run(stop).await);
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
        };
        let thread = std::thread::Builder::new().name("leader election".to_owned());
        thread.spawn(work).map_err(|error| error.to_string())?;
        let begun = begun.await;
        begun.unwrap_or_else(|_| Err("its thread has ended at once".to_owned()))?;
        Ok(ElectionThread {
            outcome: Some(outcome),
            shutdown,
        })
    }
}
