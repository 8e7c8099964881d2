//! What users see: which pods run and where, conditions of NodeClaims, and events.

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt as _;
use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::Conditioned as _;

use super::{Objects as _, Scene};

fn is_of(pod: &Pod, app: &str) -> bool {
    pod.labels().get("app").is_some_and(|value| value == app)
}

pub trait Looks: Scene {
    /// Pods that run and are not asked to go.
    async fn running_pods(&self) -> Vec<Pod> {
        let mut pods = self.list::<Pod>().await;
        pods.retain(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
        });
        pods
    }

    /// How many run.
    async fn running(&self) -> usize {
        self.running_pods().await.len()
    }

    /// How many of an app run.
    async fn running_of(&self, app: &str) -> usize {
        let pods = self.running_pods().await;
        pods.iter().filter(|pod| is_of(pod, app)).count()
    }

    /// A pod of an app that runs.
    async fn pod_of(&self, app: &str) -> Pod {
        let mut pods = self.running_pods().await.into_iter();
        pods.find(|pod| is_of(pod, app))
            .unwrap_or_else(|| panic!("no pod of {app} runs"))
    }

    /// The node of a pod of an app.
    async fn node_of(&self, app: &str) -> String {
        let pod = self.pod_of(app).await;
        pod.spec.unwrap_or_default().node_name.unwrap_or_default()
    }

    /// The NodeClaim of a node.
    async fn claim_of(&self, node: &str) -> NodeClaim {
        let mut claims = self.list::<NodeClaim>().await.into_iter();
        let is_of_node = |claim: &NodeClaim| {
            let status = claim.status.as_ref();
            status.is_some_and(|status| status.node_name.as_deref() == Some(node))
        };
        claims
            .find(is_of_node)
            .unwrap_or_else(|| panic!("no NodeClaim has node {node}"))
    }

    /// The name of the NodeClaim on whose node a pod of an app runs.
    async fn claim_of_pod(&self, app: &str) -> String {
        self.claim_of(&self.node_of(app).await).await.name().to_owned()
    }

    /// Status, reason and message of a condition of a NodeClaim.
    async fn condition(&self, claim: &str, kind: &str) -> Option<(String, String, String)> {
        let claim = self.find::<NodeClaim>(claim).await?;
        let one = claim.condition(kind)?.clone();
        Some((one.status, one.reason, one.message))
    }

    /// Messages of events with a reason.
    async fn events(&self, reason: &str) -> Vec<String> {
        let told = self.told(reason).await;
        told.into_iter().map(|(_, message)| message).collect()
    }

    /// What each event with a reason is about, as `Kind/name`, and its message.
    async fn told(&self, reason: &str) -> Vec<(String, String)> {
        let mut events = self.list::<Event>().await;
        events.retain(|event| event.reason.as_deref() == Some(reason));
        let about_and_message = |event: Event| {
            let object = event.involved_object;
            let (kind, name) = (object.kind.unwrap_or_default(), object.name.unwrap_or_default());
            (format!("{kind}/{name}"), event.message.unwrap_or_default())
        };
        events.into_iter().map(about_and_message).collect()
    }

    /// There is an event of this reason with exactly this message.
    async fn assert_said(&self, reason: &str, message: &str) {
        let said = self.events(reason).await;
        assert!(said.iter().any(|one| one == message), "{said:?}");
    }
}

impl<S: Scene> Looks for S {}
