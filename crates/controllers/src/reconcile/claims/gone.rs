//! NodeClaims that no store has any more: what is remembered of them is forgotten, however they went. One that cannot be read is there, and nothing of it is forgotten.
//!
//! Owns which names are looked for. It decides nothing.

use std::collections::BTreeSet;

use super::{Claims, lock};
use crate::reconcile::unreadable;

impl Claims {
    /// Forgets the claim of this name, which was not found, unless it cannot be read; and those that could not be read before and are gone since, of which no event
    /// tells.
    pub(super) fn forget_if_gone(&self, name: &str) {
        let claims = &self.cluster.stores.node_claims;
        let mut missing = lock(&self.missing);
        missing.insert(name.to_owned());
        let look = || {
            let found = missing.iter().filter(|name| claims.get_named(name).is_some());
            found.cloned().collect::<BTreeSet<String>>()
        };
        let (found, unreadable) = unreadable::beside(claims, look);
        missing.retain(|name| {
            if found.contains(name) {
                return false;
            }
            let is_unreadable = unreadable.contains(name);
            if !is_unreadable {
                self.forget(name);
            }
            is_unreadable
        });
    }

    fn forget(&self, name: &str) {
        self.launches.forget(name);
        self.tries.forget(name);
        self.checked.forget(name);
        self.notes.forget(name);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::time::Duration;

    use futures::FutureExt as _;
    use jiff::Timestamp;
    use kube::api::DynamicObject;
    use kube::client::Body;
    use spokeshave_api::{NodeClaim, NodeClaimSpec, NodePool};
    use spokeshave_model::InstanceType;
    use spokeshave_ports::{
        CloudError, CloudFuture, CloudProvider, Entropy, NodeClassKind, RepairPolicy, SharedClock, TokioClock,
    };
    use spokeshave_runtime::{EventRecorder, EventRecorderOptions, Metrics, ObjectKey};

    use super::*;
    use crate::act::hands::Hands;
    use crate::cloud::Measured;
    use crate::controller::Controller as _;
    use crate::observe::decision::DecisionLog;
    use crate::observe::journal::Journal;
    use crate::observe::metrics::ControllerFamilies;
    use crate::observe::pod_times::PodTimes;
    use crate::options::Options;
    use crate::state::cluster::Cluster;
    use crate::state::distress::Failures;
    use crate::state::stores::Stores;

    /// It takes five seconds for each launch, and has nothing else.
    #[derive(Debug)]
    struct Slow(SharedClock);

    impl CloudProvider for Slow {
        fn name(&self) -> &str {
            "slow"
        }
        fn supported_node_classes(&self) -> &[NodeClassKind] {
            &[]
        }
        fn create<'a>(&'a self, claim: &'a NodeClaim) -> CloudFuture<'a, NodeClaim> {
            async move {
                self.0.sleep(Duration::from_secs(5)).await;
                Ok(claim.clone())
            }
            .boxed()
        }
        fn delete<'a>(&'a self, _: &'a NodeClaim) -> CloudFuture<'a, ()> {
            async { Ok(()) }.boxed()
        }
        fn get<'a>(&'a self, id: &'a str) -> CloudFuture<'a, NodeClaim> {
            async { Err(CloudError::NodeClaimNotFound(id.to_owned())) }.boxed()
        }
        fn list(&self) -> CloudFuture<'_, Vec<NodeClaim>> {
            async { Ok(Vec::new()) }.boxed()
        }
        fn instance_types<'a>(&'a self, _: &'a NodePool) -> CloudFuture<'a, Arc<[InstanceType]>> {
            async { Ok(Vec::new().into()) }.boxed()
        }
        fn is_drifted<'a>(
            &'a self,
            _: &'a NodeClaim,
            _: Option<&'a DynamicObject>,
        ) -> CloudFuture<'a, Option<String>> {
            async { Ok(None) }.boxed()
        }
        fn repair_policies(&self) -> &[RepairPolicy] {
            &[]
        }
    }

    /// An API server that has nothing.
    fn empty_server() -> kube::Client {
        let answers = |_: http::Request<Body>| {
            let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"none","reason":"NotFound","code":404}"#;
            let mut answer = http::Response::new(Body::from(status.as_bytes().to_vec()));
            *answer.status_mut() = http::StatusCode::NOT_FOUND;
            std::future::ready(Ok::<_, Infallible>(answer))
        };
        kube::Client::new(tower::service_fn(answers), "default")
    }

    fn controller(clock: &SharedClock) -> Arc<Claims> {
        let (client, metrics) = (empty_server(), Metrics::new(clock.clone()));
        let families = ControllerFamilies::new(&metrics);
        let failures = Failures::new(clock.clone());
        let cloud = Measured::new(
            Arc::new(Slow(clock.clone())),
            clock.clone(),
            families.clone(),
            failures.clone(),
            Duration::from_secs(60),
        );
        let cluster = Arc::new(Cluster::new(
            Stores::new(false),
            cloud,
            failures,
            clock.clone(),
            &Options::default(),
            families.snapshots_made.clone(),
        ));
        let (recorder, _) = EventRecorder::new(
            client.clone(),
            "karpenter",
            clock.clone(),
            &Entropy::new(1),
            &metrics,
            EventRecorderOptions::default(),
        );
        let hands = Hands::new(client, &cluster, recorder);
        let times = PodTimes::new(&metrics, clock.clone());
        let journal = Journal::new(cluster.clone(), families, times, DecisionLog::default());
        Claims::new(cluster, hands, Arc::new(journal))
    }

    // Somebody takes its finalizers away while the cloud launches it: nobody sees it being deleted, and the answer comes when it is gone.
    #[tokio::test(start_paused = true)]
    async fn a_claim_that_goes_in_mid_launch_leaves_nothing_behind() {
        let clock = TokioClock::new(Timestamp::UNIX_EPOCH, 1.0).shared();
        let claims = controller(&clock);
        let store = claims.cluster.stores.node_claims.clone();
        let mut claim = NodeClaim::new("a", NodeClaimSpec::default());
        claim.metadata.uid = Some("1".to_owned());
        claim.metadata.resource_version = Some("1".to_owned());
        store.note_written(claim);
        let claim = store.get_named("a").unwrap();
        let goes = async {
            clock.sleep(Duration::from_secs(1)).await;
            store.note_gone(&ObjectKey::cluster("a"), "1");
        };
        let (_, ()) = futures::join!(claims.launch(&claim), goes);
        let now = clock.now();
        claims.checked.insert(&claim, now);
        assert!(claims.notes.gives_up(&claim));
        assert!(claims.launches.get(&claim).is_some() && claims.tries.get(&claim).is_some());
        claims.clone().reconcile("a".to_owned()).await.unwrap();
        assert!(claims.launches.get(&claim).is_none() && claims.tries.get(&claim).is_none());
        assert!(claims.checked.get(&claim).is_none() && claims.notes.gives_up(&claim));
        assert!(lock(&claims.missing).is_empty());
    }
}
