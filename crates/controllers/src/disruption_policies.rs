//! What DisruptionPolicies say of themselves: status and events. The decisions are not made here; disruption asks `plan` by itself.

use std::sync::Arc;
use std::time::Duration;

use spokeshave_api::DisruptionPolicy;
use spokeshave_model::{Action, Event, EventType, ObjectKind, ObjectRef, Subresource};
use spokeshave_plan::disruption_policy::status;
use spokeshave_runtime::Shutdown;

use crate::shared::Shared;

/// How often it is looked whether a policy says something else now.
const PERIOD: Duration = Duration::from_secs(10);

/// Writes what policies come to.
#[derive(Debug)]
pub(crate) struct DisruptionPolicies {
    shared: Arc<Shared>,
}

impl DisruptionPolicies {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { shared })
    }

    /// Looks until shutdown. Without policies it costs nothing.
    pub(crate) async fn run(self: Arc<Self>, shutdown: Shutdown) {
        loop {
            if !self.shared.stores.disruption_policies.is_empty() && shutdown.cut(self.look()).await.is_none()
            {
                return;
            }
            if shutdown.cut(self.shared.clock.sleep(PERIOD)).await.is_none() {
                return;
            }
        }
    }

    async fn look(&self) {
        let shared = &self.shared;
        let snapshot = shared.freeze().await;
        for policy in &snapshot.disruption_policies {
            let after = status(policy, &snapshot, shared.now());
            let target = ObjectRef::cluster(ObjectKind::DisruptionPolicy, policy.name(), policy.uid());
            // Conditions are a list, which a merge patch replaces whole.
            let patch = Action::patch(target.clone(), Subresource::Status, &**policy, &after, true);
            let Some(patch) = patch else { continue };
            match shared.execute.run(&patch).await {
                Ok(()) => self.tell(target, policy, &after),
                Err(error) if error.is_conflict() || error.is_not_found() => {
                    tracing::debug!(DisruptionPolicy = policy.name(), %error, "will be looked at again");
                }
                Err(error) => {
                    tracing::error!(DisruptionPolicy = policy.name(), %error, "writing the status of a policy");
                }
            }
        }
    }

    /// One event for each thing that stops disruption and did not before, and one when nothing does any more.
    fn tell(&self, target: ObjectRef, before: &DisruptionPolicy, after: &DisruptionPolicy) {
        let active = |policy: &DisruptionPolicy| {
            let status = policy.status.as_ref();
            status.map_or_else(Vec::new, |status| status.active.clone())
        };
        let (old, new) = (active(before), active(after));
        let is_known = |field: &str, domain: Option<&str>| {
            let mut old = old.iter();
            old.any(|known| known.field == field && known.domain.as_deref() == domain)
        };
        for rule in &new {
            if !is_known(&rule.field, rule.domain.as_deref()) {
                let message = format!("{}: {}", rule.field, rule.message);
                let event = Event::new(target.clone(), EventType::Normal, "DisruptionStopped", message);
                self.shared.execute.tell(&event);
            }
        }
        if new.is_empty() && !old.is_empty() {
            let message = "the policy stops nothing any more".to_owned();
            let event = Event::new(target, EventType::Normal, "DisruptionResumed", message);
            self.shared.execute.tell(&event);
        }
    }
}
