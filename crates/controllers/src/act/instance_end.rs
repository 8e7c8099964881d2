//! The end of an instance (D-314, D-348): the cloud is asked, and the NodeClaim says so, whoever asks.
//!
//! Owns what is written about it: `InstanceTerminating` as soon as the cloud has taken the request or knows of no such instance, and what holds it
//! up. It removes no finalizer.

use std::time::Duration;

use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::{Conditioned as _, INSTANCE_TERMINATING};
use spokeshave_model::ObjectRef;
use spokeshave_plan::{blockers, termination};
use spokeshave_ports::{CloudError, CloudProvider as _};
use spokeshave_runtime::ReconcileError;

use crate::act::hands::Hands;
use crate::cloud::Measured;

/// What is known of an instance after it was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstanceEnd {
    /// There is no such instance, and the NodeClaim says so.
    Gone,
    /// It is ending, or will end when the cloud allows it; ask again after this time.
    Ending(Duration),
    /// The NodeClaim has changed meanwhile: look again.
    Stale,
}

impl Hands {
    /// Asks the cloud to end the instance of a NodeClaim. `node` also gets the event when that is held up.
    pub(crate) async fn end_instance(
        &self,
        cloud: &Measured,
        claim: &NodeClaim,
        node: Option<ObjectRef>,
    ) -> Result<InstanceEnd, ReconcileError> {
        let gone = match cloud.delete(claim).await {
            Ok(()) => false,
            Err(error) if error.is_not_found() => true,
            // Nothing has failed: the cloud wants to be asked later, and the NodeClaim says why it is still there (W-30).
            Err(CloudError::Postponed { message, again_after }) => {
                let blocker = blockers::postponed_blocker(claim, &message);
                self.report_blocker(claim, node, Some(&blocker)).await;
                return Ok(InstanceEnd::Ending(again_after));
            }
            Err(error) => {
                let blocker = blockers::provider_blocker(claim, &error.short_message());
                self.report_blocker(claim, node, Some(&blocker)).await;
                return Err(Box::new(error));
            }
        };
        if gone {
            return self.note_instance_gone(claim).await;
        }
        self.note_instance_terminating(claim).await?;
        let now = self.clock.now();
        let asked = claim.condition(INSTANCE_TERMINATING);
        let overdue =
            asked.and_then(|asked| blockers::overdue_blocker(claim, asked.last_transition_time, now));
        self.report_blocker(claim, node, overdue.as_ref()).await;
        Ok(InstanceEnd::Ending(termination::instance_poll(claim, now)))
    }

    /// The instance of a NodeClaim is no more: it uses up no budget, whatever still holds its Node. One that never had an instance has nothing to say.
    pub(crate) async fn note_instance_gone(&self, claim: &NodeClaim) -> Result<InstanceEnd, ReconcileError> {
        if claim.provider_id().is_none() || self.note_instance_terminating(claim).await? {
            Ok(InstanceEnd::Gone)
        } else {
            Ok(InstanceEnd::Stale)
        }
    }

    /// Writes `InstanceTerminating`; false when the NodeClaim has changed meanwhile. One that is gone needs it no more.
    async fn note_instance_terminating(&self, claim: &NodeClaim) -> Result<bool, ReconcileError> {
        let Some(action) = termination::instance_terminating(claim, self.clock.now()) else {
            return Ok(true);
        };
        match self.run(&action).await {
            Ok(()) => {
                tracing::info!(NodeClaim = claim.name(), "terminating instance");
                Ok(true)
            }
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
