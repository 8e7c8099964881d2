//! The gate before registration (G-030): a provider may hold a Node that has joined.
//!
//! Owns the question. Who asks it, and when again, is core.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use spokeshave_api::NodeClaim;
use spokeshave_ports::{CloudFuture, HookAnswer, RegistrationHook, SharedClock};

use crate::convert;
use crate::errors::answered;
use crate::link::{Link, within};
use crate::wire::{Capability, GateRequest};

/// Time for one answer, and the pause before the next question where the provider names none.
const LIMIT: Duration = Duration::from_secs(10);

/// Asks the provider whether a Node may register (G-030).
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) link: Arc<Link>,
    pub(crate) clock: SharedClock,
    pub(crate) name: String,
}

impl RegistrationHook for Gate {
    fn name(&self) -> &str {
        &self.name
    }

    fn registered<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, HookAnswer> {
        async move {
            if !self.link.identity().can(Capability::RegisterGate) {
                return Ok(HookAnswer::Ready);
            }
            let mut client = self.link.client()?;
            let request = GateRequest {
                provider_id: claim.provider_id().unwrap_or_default().to_owned(),
                nodeclaim_json: serde_json::to_vec(claim).unwrap_or_default(),
            };
            let answer = within(&self.clock, LIMIT, client.register_gate(request)).await;
            let answer = answered("RegisterGate", LIMIT, answer)?;
            if answer.ready {
                return Ok(HookAnswer::Ready);
            }
            let after = convert::duration_of(answer.ask_again_after);
            Ok(HookAnswer::AskAgain(after.unwrap_or(LIMIT)))
        }
        .boxed()
    }
}
