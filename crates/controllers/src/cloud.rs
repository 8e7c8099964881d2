//! The cloud as the controllers call it: every call is timed and counted (P §16), and none lasts for ever.
//!
//! Owns the time limit and the metrics of calls. It changes no answer.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::InstanceType;
use spokeshave_ports::{
    CloudError, CloudFuture, CloudProvider, HookAnswer, Interruption, Interruptions, NodeClassKind,
    RegistrationHook, RepairPolicy, SharedClock,
};

use crate::metrics::ControllerFamilies;

/// A cloud with a watch in hand.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    inner: Arc<dyn CloudProvider>,
    clock: SharedClock,
    families: ControllerFamilies,
    controller: &'static str,
    limit: Duration,
}

impl Measured {
    /// A call that has no answer after `limit` counts as failed; what the cloud did is then unknown.
    pub(crate) fn new(
        inner: Arc<dyn CloudProvider>,
        clock: SharedClock,
        families: ControllerFamilies,
        limit: Duration,
    ) -> Self {
        Self {
            inner,
            clock,
            families,
            controller: "operator",
            limit,
        }
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
            && !error.is_not_found()
        {
            self.families
                .cloud_errors
                .inc(&[labels[0], labels[1], labels[2], error.metric_label()]);
        }
        answer
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
        self.timed("Create", self.inner.create(claim)).boxed()
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        self.timed("Delete", self.inner.delete(claim)).boxed()
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim> {
        self.timed("Get", self.inner.get(provider_id)).boxed()
    }

    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        self.timed("List", self.inner.list()).boxed()
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        self.timed("GetInstanceTypes", self.inner.instance_types(pool))
            .boxed()
    }

    fn is_drifted<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, Option<String>> {
        self.timed("IsDrifted", self.inner.is_drifted(claim)).boxed()
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        self.inner.repair_policies()
    }

    fn registration_hooks(&self) -> &[Arc<dyn RegistrationHook>] {
        self.inner.registration_hooks()
    }

    fn interruptions(&self) -> Option<Interruptions<'_>> {
        self.inner.interruptions()
    }

    fn acknowledge<'a>(&'a self, message: &'a Interruption) -> CloudFuture<'a, ()> {
        self.timed("DeleteMessage", self.inner.acknowledge(message))
            .boxed()
    }
}
