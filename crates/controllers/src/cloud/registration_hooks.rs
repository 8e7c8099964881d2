//! What the provider wants done before a Node registers (P-167): asks its hooks, all at once.
//!
//! Owns the asking, with its time limit. What a pending hook means for NodeClaim and Node is decided in `plan::lifecycle`.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use spokeshave_api::NodeClaim;
use spokeshave_ports::{CloudProvider as _, HookAnswer, RegistrationHook};

use crate::cloud::Measured;

/// A hook that failed, or asked to be asked again at once, is asked again after this time.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Hooks that do not let a Node register yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Their names, in the provider's order.
    pub(crate) names: Vec<String>,
    /// When the first wants to be asked again.
    pub(crate) ask_again: Option<Duration>,
}

/// Asks every hook of the provider about a NodeClaim.
pub(crate) async fn ask(cloud: &Measured, claim: &NodeClaim) -> Pending {
    let answers = join_all(
        cloud
            .registration_hooks()
            .iter()
            .map(|hook| one(cloud, hook, claim)),
    )
    .await;
    let mut pending = Pending::default();
    for (name, wait) in answers.into_iter().flatten() {
        pending.names.push(name);
        pending.ask_again = Some(pending.ask_again.map_or(wait, |shortest| shortest.min(wait)));
    }
    pending
}

/// The name of a hook that is not ready, and when to ask it again.
async fn one(
    cloud: &Measured,
    hook: &Arc<dyn RegistrationHook>,
    claim: &NodeClaim,
) -> Option<(String, Duration)> {
    let wait = match cloud.ask_hook(&**hook, claim).await {
        Ok(HookAnswer::Ready) => return None,
        Ok(HookAnswer::AskAgain(wait)) if !wait.is_zero() => wait,
        Ok(HookAnswer::AskAgain(_)) => ASK_AGAIN,
        Err(error) => {
            tracing::warn!(NodeClaim = claim.name(), hook = hook.name(), %error, "registration hook failed");
            ASK_AGAIN
        }
    };
    Some((hook.name().to_owned(), wait))
}
