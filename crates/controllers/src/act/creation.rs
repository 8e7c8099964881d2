//! Creating NodeClaims, many at once (P-065).
//!
//! Owns how many requests are under way together. What is created is decided by others.

use futures::StreamExt as _;
use spokeshave_api::NodeClaim;

use crate::act::error::ExecuteError;
use crate::act::hands::Hands;

/// Creations under way at once. The API server answers each in milliseconds; beyond that the client's own rate is what bounds them.
const AT_ONCE: usize = 50;

impl Hands {
    /// Creates NodeClaims, several at once, each for something. `done` hears of each as soon as it is there or has failed; one that fails stops no
    /// other.
    pub(crate) async fn create_claims<'claim, For>(
        &self,
        wanted: Vec<(For, &'claim NodeClaim)>,
        done: impl Fn(For, Result<NodeClaim, ExecuteError>),
    ) {
        let done = &done;
        let create = |(what, claim): (For, &'claim NodeClaim)| async move {
            done(what, self.create_claim(claim).await)
        };
        futures::stream::iter(wanted)
            .for_each_concurrent(AT_ONCE, create)
            .await;
    }
}
