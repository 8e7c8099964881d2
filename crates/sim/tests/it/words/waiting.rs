//! Waiting in virtual time, with the checkers looking on.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use spokeshave_api::disruption::DisruptionPhase;
use spokeshave_api::{KWOKInstance, NodeClaim};

use super::objects::Kind;
use super::{Ledger as _, Looks as _, Objects as _, Scene};

pub trait Waiting: Scene {
    async fn pass(&self, seconds: u64) {
        self.lab().clock.sleep(Duration::from_secs(seconds)).await;
        self.assert_kept();
    }

    /// Waits until the cluster looks as it should, and says how long that took.
    async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Self) -> bool) -> Duration {
        let clock = &self.lab().clock;
        let start = clock.now();
        loop {
            self.assert_kept();
            if holds(self).await {
                return clock.since(start);
            }
            if clock.since(start) >= Self::LIMIT {
                let claims = self.list::<NodeClaim>().await;
                let claims: Vec<_> = claims.iter().map(|claim| (claim.name(), &claim.status)).collect();
                panic!(
                    "{what}: not within {:?}; nodes {:?}, pods {:?}, commands {:#?}, claims {claims:#?}",
                    Self::LIMIT,
                    self.names::<Node>().await,
                    self.names::<Pod>().await,
                    self.ledger_text().await,
                );
            }
            clock.sleep(Self::STEP).await;
        }
    }

    /// So many pods run, and there are no others.
    async fn until_running(&self, count: usize) -> Duration {
        self.until(&format!("{count} pods run"), async |cluster| {
            cluster.running().await == count && cluster.list::<Pod>().await.len() == count
        })
        .await
    }

    /// So many pods of an app run, whatever others do.
    async fn until_running_of(&self, app: &str, count: usize) -> Duration {
        self.until(&format!("{count} pods of {app} run"), async |cluster| {
            cluster.running_of(app).await == count
        })
        .await
    }

    async fn until_gone<K: Kind>(&self, name: &str) -> Duration {
        self.until(&format!("{name} is gone"), async |cluster| {
            !cluster.exists::<K>(name).await
        })
        .await
    }

    /// There is a command in a phase.
    async fn until_phase(&self, phase: DisruptionPhase) -> Duration {
        self.until(&format!("a command is {phase}"), async |cluster| {
            let ledger = cluster.ledger().await;
            ledger.iter().any(|one| one.phase() == phase)
        })
        .await
    }

    async fn until_empty(&self) -> Duration {
        self.until("nothing is left", async |cluster| {
            cluster.list::<Node>().await.is_empty()
                && cluster.list::<NodeClaim>().await.is_empty()
                && cluster.list::<KWOKInstance>().await.is_empty()
        })
        .await
    }
}

impl<S: Scene> Waiting for S {}
