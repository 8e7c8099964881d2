//! The cloud as the controllers call it: every call is timed and counted (P §16), none lasts for ever, instance types are as NodeOverlays correct
//! them, and launches go to zones in which nodes join, if there are any. What changes something is asked only by the leader.
//!
//! Owns the time limit and the metrics of calls, and the fence that stops those of a replica that no longer leads; and is the one place where corrected types
//! come from. It changes no other answer.

pub(crate) mod overlays;
pub(crate) mod registration_hooks;
pub(crate) mod reserved;
pub(crate) mod zones;

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt as _;
use kube::api::DynamicObject;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::volumes::Unsupported;
use spokeshave_model::{InstanceType, PriceFeed};
use spokeshave_ports::{
    CloudError, CloudFuture, CloudProvider, HookAnswer, Interruption, Interruptions, Measurement,
    NODE_CLASS_UNKNOWN, NodeClassKind, Notices, RegistrationHook, RepairPolicy, SharedClock, SharedWrites,
    WatchFailures,
};
use spokeshave_runtime::{Epoch, Leadership};

use crate::cloud::overlays::Overlays;
use crate::cloud::reserved::ReservedHidden;
use crate::cloud::zones::Zones;
use crate::observe::metrics::ControllerFamilies;
use crate::state::distress::Failures;

/// A cloud with a watch in hand.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    inner: Arc<dyn CloudProvider>,
    clock: SharedClock,
    families: ControllerFamilies,
    failures: Failures,
    controller: &'static str,
    limit: Duration,
    /// `None` for those who change nothing.
    term: Option<(Leadership, Epoch)>,
    /// `None` when the feature gate NodeOverlay is off.
    overlays: Option<Overlays>,
    /// `None` when the feature gate ReservedCapacity is on.
    reserved: Option<ReservedHidden>,
    zones: Zones,
}

impl Measured {
    /// A call that has no answer after `limit` counts as failed; what the cloud did is then unknown.
    pub(crate) fn new(
        inner: Arc<dyn CloudProvider>,
        clock: SharedClock,
        families: ControllerFamilies,
        failures: Failures,
        limit: Duration,
    ) -> Self {
        Self {
            inner,
            clock,
            families,
            failures,
            controller: "operator",
            limit,
            term: None,
            overlays: None,
            reserved: None,
            zones: Zones::default(),
        }
    }

    /// The same cloud for one term of leadership. Once that is over nothing is launched, ended or acknowledged, and what is under way takes no further
    /// step (invariant 36).
    pub(crate) fn in_term(self, leadership: Leadership, epoch: Epoch) -> Self {
        Self {
            term: Some((leadership, epoch)),
            ..self
        }
    }

    /// The same cloud under NodeOverlays.
    pub(crate) fn under(self, overlays: Overlays) -> Self {
        Self {
            overlays: Some(overlays),
            ..self
        }
    }

    /// The same cloud of which reserved capacity is not used.
    pub(crate) fn without_reserved(self) -> Self {
        Self {
            reserved: Some(ReservedHidden::default()),
            ..self
        }
    }

    /// The NodeOverlays, unless they are off.
    pub(crate) fn overlays(&self) -> Option<&Overlays> {
        self.overlays.as_ref()
    }

    /// The zones in which nodes do not join.
    pub(crate) fn zones(&self) -> &Zones {
        &self.zones
    }

    /// The instance types as the cloud itself lists them, reserved capacity aside where that is off.
    pub(crate) async fn plain_instance_types(
        &self,
        pool: &NodePool,
    ) -> Result<Arc<[InstanceType]>, CloudError> {
        let types = self
            .timed("GetInstanceTypes", self.inner.instance_types(pool))
            .await?;
        Ok(match &self.reserved {
            None => types,
            Some(reserved) => reserved.hide(pool.name(), types),
        })
    }

    /// Launches a NodeClaim of a NodePool; where overlays correct its types, the cheapest goes by their prices. A zone in which nodes do not join is
    /// taken only where nothing else is left.
    pub(crate) async fn launch(
        &self,
        claim: &NodeClaim,
        pool: Option<&NodePool>,
    ) -> Result<NodeClaim, CloudError> {
        let Some(pool) = pool else {
            return self.create(claim).await;
        };
        let now = self.clock.now();
        if self.overlays.is_none() && self.reserved.is_none() && !self.zones.avoids(pool.name(), now) {
            return self.create(claim).await;
        }
        let types = self.instance_types(pool).await?;
        if let Some(elsewhere) = self.zones.elsewhere(pool, &types, now) {
            match self.create_from(claim, &elsewhere).await {
                Err(CloudError::InsufficientCapacity(_)) => {}
                answer => return answer,
            }
        }
        let hides_some = self
            .reserved
            .as_ref()
            .is_some_and(|reserved| reserved.hides(pool.name()));
        if types.iter().all(|one| one.overlaid.is_none()) && !hides_some {
            return self.create(claim).await;
        }
        self.create_from(claim, &types).await
    }

    /// The same cloud, called on behalf of a controller.
    pub(crate) fn of(&self, controller: &'static str) -> Self {
        Self {
            controller,
            ..self.clone()
        }
    }

    /// Asks a hook, under the time limit of every call.
    pub(crate) async fn ask_hook(
        &self,
        hook: &dyn RegistrationHook,
        claim: &NodeClaim,
    ) -> Result<HookAnswer, CloudError> {
        self.timed("Registered", hook.registered(claim)).await
    }

    /// A call that changes something. The term is looked at before each of its steps and not only before the first: a replica may be suspended in the middle of
    /// one, and goes on when another one has long led.
    async fn changing<T>(&self, method: &str, call: CloudFuture<'_, T>) -> Result<T, CloudError> {
        let mut call = std::pin::pin!(self.timed(method, call));
        std::future::poll_fn(|context| {
            if let Some((leadership, epoch)) = &self.term
                && let Err(over) = leadership.check(epoch)
            {
                let message = format!("{method} is left to the leader: {over}");
                return Poll::Ready(Err(CloudError::Other(message)));
            }
            call.as_mut().poll(context)
        })
        .await
    }

    async fn timed<T>(&self, method: &str, call: CloudFuture<'_, T>) -> Result<T, CloudError> {
        let started = self.clock.now();
        let answer = tokio::select! {
            biased;
            answer = call => answer,
            () = self.clock.sleep(self.limit) => Err(CloudError::Timeout(format!(
                "the cloud has not answered {method} within {} s",
                self.limit.as_secs()
            ))),
        };
        let labels = [self.controller, method, self.inner.name()];
        let seconds = self.clock.since(started).as_secs_f64();
        self.families.cloud_duration.observe(&labels, seconds);
        if let Err(error) = &answer
            && has_failed(error)
        {
            self.failures.of_cloud(error);
            self.families
                .cloud_errors
                .inc(&[labels[0], labels[1], labels[2], error.metric_label()]);
        }
        answer
    }
}

/// Whether an answer counts as an error of the cloud. Where it wants to be asked later, or is not told yet what to launch, nothing has failed: nobody is to be
/// alerted, and no circuit breaker trips.
fn has_failed(error: &CloudError) -> bool {
    match error {
        CloudError::Postponed { .. } => false,
        CloudError::Create { reason, .. } => reason != NODE_CLASS_UNKNOWN,
        _ => true,
    }
}

impl CloudProvider for Measured {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn supported_node_classes(&self) -> &[NodeClassKind] {
        self.inner.supported_node_classes()
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        self.changing("Create", self.inner.create(claim)).boxed()
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        self.changing("Delete", self.inner.delete(claim)).boxed()
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim> {
        self.timed("Get", self.inner.get(provider_id)).boxed()
    }

    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        self.timed("List", self.inner.list()).boxed()
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        async move {
            let types = self.plain_instance_types(pool).await?;
            match &self.overlays {
                None => Ok(types),
                Some(overlays) => overlays.correct(pool, types),
            }
        }
        .boxed()
    }

    fn is_drifted<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: Option<&'a DynamicObject>,
    ) -> CloudFuture<'a, Option<String>> {
        self.timed("IsDrifted", self.inner.is_drifted(claim, class))
            .boxed()
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        self.inner.repair_policies()
    }

    fn registration_hooks(&self) -> &[Arc<dyn RegistrationHook>] {
        self.inner.registration_hooks()
    }

    fn unsupported_volumes(&self) -> Unsupported {
        self.inner.unsupported_volumes()
    }

    fn create_from<'a>(
        &'a self,
        claim: &'a NodeClaim,
        types: &'a [InstanceType],
    ) -> CloudFuture<'a, NodeClaim> {
        self.changing("Create", self.inner.create_from(claim, types))
            .boxed()
    }

    fn measurements(&self) -> Vec<Measurement> {
        self.inner.measurements()
    }

    fn watch_failures(&self) -> Option<&WatchFailures> {
        self.inner.watch_failures()
    }

    fn notices(&self) -> Option<Notices<'_>> {
        self.inner.notices()
    }

    fn price_feed(&self) -> PriceFeed {
        self.inner.price_feed()
    }

    fn lead(&self, writes: SharedWrites) -> futures::future::BoxFuture<'_, ()> {
        self.inner.lead(writes)
    }

    fn interruptions(&self) -> Option<Interruptions<'_>> {
        self.inner.interruptions()
    }

    fn acknowledge<'a>(&'a self, message: &'a Interruption) -> CloudFuture<'a, ()> {
        self.changing("DeleteMessage", self.inner.acknowledge(message))
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(reason: &str) -> CloudError {
        CloudError::Create {
            reason: reason.to_owned(),
            message: "why".to_owned(),
        }
    }

    #[test]
    fn w_30_what_is_to_be_asked_later_is_no_error_of_the_cloud() {
        let postponed = CloudError::Postponed {
            message: "a shift".to_owned(),
            again_after: Duration::from_secs(30),
        };
        for error in [postponed, create(NODE_CLASS_UNKNOWN)] {
            assert!(!has_failed(&error), "{error}");
        }
        for error in [
            create("LaunchTemplateNotFound"),
            CloudError::Timeout("no answer".to_owned()),
            CloudError::Other("throttled".to_owned()),
            CloudError::NodeClaimNotFound("gone".to_owned()),
            CloudError::InsufficientCapacity("none".to_owned()),
        ] {
            assert!(has_failed(&error), "{error}");
        }
    }
}
