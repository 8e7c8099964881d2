//! The final state: nothing is leaked.

use k8s_openapi::api::core::v1::Node;
use spokeshave_api::{KWOKInstance, NodeClaim};

use super::{Objects as _, Scene};

pub trait Rest: Scene {
    /// Invariant 11: each instance has its NodeClaim.
    async fn assert_no_leak(&self) {
        self.assert_kept();
        let claims = self.list::<NodeClaim>().await;
        for instance in self.list::<KWOKInstance>().await {
            let owners = claims
                .iter()
                .filter(|claim| claim.uid() == instance.spec.node_claim_uid);
            let name = instance.name();
            assert_eq!(owners.count(), 1, "instance {name} belongs to no NodeClaim");
        }
    }

    /// Invariants 10 and 11: besides, each NodeClaim has its instance, and no node keeps a taint without a command.
    async fn assert_tidy(&self) {
        self.assert_no_leak().await;
        let (claims, instances) = (
            self.names::<NodeClaim>().await,
            self.names::<KWOKInstance>().await,
        );
        assert_eq!(
            claims.len(),
            instances.len(),
            "a NodeClaim has no instance: {claims:?}"
        );
        for node in self.list::<Node>().await {
            let taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
            assert!(
                taints.iter().all(|taint| !taint.key.starts_with("karpenter.sh/")),
                "stray taint: {taints:?}"
            );
        }
    }
}

impl<S: Scene> Rest for S {}
