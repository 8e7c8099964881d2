//! The client that the operator uses, as the suite of the port is lent it: it notes what it launches.

use std::sync::Arc;

use futures::FutureExt as _;
use kube::api::DynamicObject;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_model::InstanceType;
use spokeshave_ports::{CloudFuture, CloudProvider, NodeClassKind, RepairPolicy};

use super::leftovers::Launched;
use crate::client::GrpcProvider;

#[derive(Debug)]
pub(super) struct Noting {
    pub(super) provider: GrpcProvider,
    pub(super) launched: Launched,
}

impl CloudProvider for Noting {
    fn name(&self) -> &str {
        self.provider.name()
    }

    fn supported_node_classes(&self) -> &[NodeClassKind] {
        self.provider.supported_node_classes()
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        async move {
            self.launched.ask(claim.name(), claim.uid());
            let created = self.provider.create(claim).await?;
            let provider_id = created.provider_id().unwrap_or_default();
            self.launched.see(claim.uid(), provider_id);
            Ok(created)
        }
        .boxed()
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        self.provider.delete(claim)
    }

    fn get<'a>(&'a self, provider_id: &'a str) -> CloudFuture<'a, NodeClaim> {
        self.provider.get(provider_id)
    }

    fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
        self.provider.list()
    }

    fn instance_types<'a>(&'a self, pool: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
        self.provider.instance_types(pool)
    }

    fn is_drifted<'a>(
        &'a self,
        claim: &'a NodeClaim,
        class: Option<&'a DynamicObject>,
    ) -> CloudFuture<'a, Option<String>> {
        self.provider.is_drifted(claim, class)
    }

    fn repair_policies(&self) -> &[RepairPolicy] {
        self.provider.repair_policies()
    }
}
