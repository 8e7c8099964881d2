//! What a NodeClaim cost at its launch stands on it, whether its cloud says so or not: the catalogue of tomorrow may not know it (W-07).

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::api::DynamicObject;
use serde_json::json;
use spokeshave_api::labels::PRICE_AT_LAUNCH;
use spokeshave_api::{KWOKInstance, NodeClaim, NodePool};
use spokeshave_model::InstanceType;
use spokeshave_ports::{CloudFuture, CloudProvider, NodeClassKind, RepairPolicy};
use spokeshave_provider_kwok::{KwokOptions, KwokProvider};
use spokeshave_sim::invariants::Actor;
use spokeshave_sim::lab::LabOptions;

use crate::plain::Cluster;
use crate::words::*;

/// The kwok cloud as one that says no more of a launch than it must.
#[derive(Debug)]
struct Terse(KwokProvider);

impl CloudProvider for Terse {
    fn name(&self) -> &str {
        "terse"
    }

    fn supported_node_classes(&self) -> &[NodeClassKind] {
        self.0.supported_node_classes()
    }

    fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
        async move {
            let mut launched = self.0.create(claim).await?;
            launched.metadata.annotations = None;
            Ok(launched)
        }
        .boxed()
    }

    fn delete<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, ()> {
        self.0.delete(claim)
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
}

/// Each NodeClaim has the price for which its instance was sold.
async fn assert_priced(cluster: &Cluster) {
    let instances = cluster.list::<KWOKInstance>().await;
    let claims = cluster.list::<NodeClaim>().await;
    assert!(!claims.is_empty());
    for claim in claims {
        let its = instances
            .iter()
            .find(|instance| instance.spec.node_claim_uid == claim.uid())
            .expect("an instance");
        let sold_for = its.spec.price.as_str();
        assert_eq!(
            claim.annotation(PRICE_AT_LAUNCH),
            Some(sold_for),
            "{}",
            claim.name()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn w_07_every_nodeclaim_says_what_it_cost_at_its_launch_whatever_its_cloud_says() {
    let undisturbed = json!({"disruption": {"consolidateAfter": "Never"}});
    let mut cluster = Cluster::new(LabOptions::new(76), undisturbed).await;
    let options = KwokOptions {
        termination_delay: Duration::from_secs(3),
        ..KwokOptions::default()
    };
    let calls = cluster.lab.client_as(Actor::CloudCalls("a".to_owned()));
    let entropy = cluster.lab.entropy.child("cloud");
    let cloud = KwokProvider::new(calls, cluster.lab.clock.clone(), &entropy, options);
    let client = cluster.lab.client_outside("a");
    cluster.lab.start_provider("a", client, Arc::new(Terse(cloud)));
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    assert_priced(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn w_07_a_cloud_that_says_what_a_launch_cost_is_believed() {
    let cluster = Cluster::undisturbed(77).await;
    cluster.deploy("web", 1, "1").await;
    cluster.until_running(1).await;
    assert_priced(&cluster).await;
}
