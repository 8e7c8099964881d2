//! Creating NodeClaims, many at once (P-065), and why those of a NodePool fail.
//!
//! Owns how many requests are under way together. What is created is decided by others.

use futures::StreamExt as _;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_plan::pool_conditions::CannotLaunch;
use spokeshave_plan::static_pools::template_claim;

use crate::act::execute::ExecuteError;
use crate::shared::Shared;

/// Creations under way at once. The API server answers each in milliseconds; beyond that the client's own rate is what bounds them.
const AT_ONCE: usize = 50;

impl Shared {
    /// Creates NodeClaims, several at once, each for something. `done` hears of each as soon as it is there or has failed; one that fails stops no
    /// other.
    pub(crate) async fn create_claims<For>(
        &self,
        wanted: Vec<(For, NodeClaim)>,
        done: impl Fn(For, Result<NodeClaim, ExecuteError>),
    ) {
        let done = &done;
        let create = |(what, claim): (For, NodeClaim)| async move {
            done(what, self.execute.create_claim(&claim).await)
        };
        futures::stream::iter(wanted)
            .for_each_concurrent(AT_ONCE, create)
            .await;
    }

    /// Invariant 24: what was refused at once is not asked for again at once.
    pub(crate) fn launch_refused(&self, claim: &NodeClaim, message: &str) {
        let now = self.now();
        self.memory().launches.failed(claim, message, now);
    }

    /// Why a NodePool with a fixed number of nodes gets none, while the cloud refuses them.
    pub(crate) async fn launch_trouble(&self, pool: &NodePool) -> Option<CannotLaunch> {
        let trouble = self.memory().launches.trouble(&template_claim(pool)).cloned()?;
        let types = self.provider.instance_types(pool).await.ok();
        Some(CannotLaunch::of(pool, &trouble, types.as_deref(), self.now()))
    }
}
