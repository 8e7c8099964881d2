//! A cloud that is only asked: whatever would change something fails here and never reaches the provider.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::volumes::Unsupported;
use spokeshave_model::{InstanceType, PriceFeed};
use spokeshave_ports::{
    CloudError, CloudFuture, CloudProvider, Measurement, NodeClassKind, RepairPolicy, WatchFailures,
};

/// A provider without launches, ends and messages.
#[derive(Debug)]
pub(super) struct ReadOnlyCloud(pub(super) Arc<dyn CloudProvider>);

fn refused<'a, T>(call: &'static str) -> CloudFuture<'a, T> {
    let error = format!("{call} is not asked of the cloud: a shadow changes nothing");
    async move { Err(CloudError::Other(error)) }.boxed()
}

impl CloudProvider for ReadOnlyCloud {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn supported_node_classes(&self) -> &[NodeClassKind] {
        self.0.supported_node_classes()
    }

    fn create<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        refused("create")
    }

    fn delete<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, ()> {
        refused("delete")
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim> {
        self.0.get(provider_id)
    }

    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        self.0.list()
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        self.0.instance_types(pool)
    }

    fn is_drifted<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: Option<&'a DynamicObject>,
    ) -> CloudFuture<'a, Option<String>> {
        self.0.is_drifted(claim, class)
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        self.0.repair_policies()
    }

    fn measurements(&self) -> Vec<Measurement> {
        self.0.measurements()
    }

    fn watch_failures(&self) -> Option<&WatchFailures> {
        self.0.watch_failures()
    }

    fn price_feed(&self) -> PriceFeed {
        self.0.price_feed()
    }

    fn unsupported_volumes(&self) -> Unsupported {
        self.0.unsupported_volumes()
    }

    fn follow(&self) -> BoxFuture<'_, ()> {
        self.0.follow()
    }
}
