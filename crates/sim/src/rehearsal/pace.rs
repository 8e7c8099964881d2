//! Many spot instances that are reclaimed at once: the work of the operator until their NodeClaims are deleted.
//!
//! Owns the cluster for that. NodeClaims are created by the test and have no pods, so they are not replaced. The caller measures the time.

use std::time::Duration;

use kube::api::PostParams;
use serde_json::json;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_runtime::Api;

use super::{CLASS, CloudName, OPERATOR, World};
use crate::lab::LabOptions;

/// Longest time that a part may take.
const LIMIT: Duration = Duration::from_secs(3600);
const LOOK: Duration = Duration::from_secs(1);

/// A cluster of spot instances.
#[derive(Debug)]
pub struct Interruptible {
    world: World,
    count: usize,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl Interruptible {
    /// So many instances, each with its NodeClaim and Node. It must be made inside a runtime whose time is paused.
    ///
    /// # Errors
    /// They are not there within an hour.
    pub async fn new(count: usize) -> Result<Self, String> {
        let mut lab = LabOptions::new(1);
        lab.keep_log = false;
        let mut world = World::new(lab, CloudName::Aws, (1, false)).await?;
        world.make_class().await?;
        let text = |error: kube::Error| format!("the API server refuses an object: {error}");
        // NodeClaims that were not made from their NodePool have drifted from it: nothing but interruptions may take them.
        let never = json!({"disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}});
        let pools: Api<NodePool> = Api::all(world.lab.client.clone());
        world
            .lab
            .create(&pools, world.pool("p", &never))
            .await
            .map_err(text)?;
        let claims: Api<NodeClaim> = Api::all(world.lab.client.clone());
        for number in 0..count {
            let claim = json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {"name": format!("claim-{number}"), "labels": {"karpenter.sh/nodepool": "p"}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": CLASS},
                    "requirements": [
                        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large", "m6i.large", "c6i.large"]},
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
                    ],
                },
            });
            let claim: NodeClaim = serde_json::from_value(claim).map_err(|error| error.to_string())?;
            claims
                .create(&PostParams::default(), &claim)
                .await
                .map_err(text)?;
        }
        world.start();
        let mut it = Interruptible { world, count };
        it.until("every NodeClaim has its Node", false, |claim| {
            claim
                .status
                .as_ref()
                .is_some_and(|status| status.node_name.is_some())
        })
        .await?;
        it.world.lab.clock.sleep(Duration::from_secs(120)).await;
        Ok(it)
    }

    /// EC2 takes all of them back at once; ends when the NodeClaim of each is deleted or gone. How long that took by the cluster's clock.
    ///
    /// # Errors
    /// Some are not deleted within an hour.
    pub async fn interrupt_all(&mut self) -> Result<Duration, String> {
        let start = self.world.lab.clock.now();
        for machine in self.world.cloud.machines() {
            self.world.cloud.interrupt(&self.world.lab, &machine.id).await?;
        }
        self.until("every NodeClaim is deleted", true, |claim| {
            claim.metadata.deletion_timestamp.is_some()
        })
        .await?;
        Ok(self.world.lab.clock.since(start))
    }

    /// Stops the cluster.
    pub async fn end(mut self) {
        self.world.lab.stop(OPERATOR).await;
        self.world.lab.end().await;
    }

    async fn until(
        &mut self,
        what: &str,
        may_be_gone: bool,
        has: impl Fn(&NodeClaim) -> bool,
    ) -> Result<(), String> {
        let start = self.world.lab.clock.now();
        loop {
            self.world.lab.clock.sleep(LOOK).await;
            let claims = self.world.lab.list::<NodeClaim>().await;
            let done = claims.iter().filter(|claim| has(claim)).count();
            let missing = self.count.saturating_sub(claims.len());
            if done == claims.len() && (missing == 0 || may_be_gone) {
                return Ok(());
            }
            if self.world.lab.clock.since(start) > LIMIT {
                return Err(format!(
                    "{what}: not after {LIMIT:?}, only {done} of {}, of which {missing} are gone",
                    self.count
                ));
            }
        }
    }
}
