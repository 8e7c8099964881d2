//! What kubelets say of their Nodes, where those of the laboratory are silent about it.

use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use super::{Objects as _, Scene};

pub trait Nodes: Scene {
    /// Condition Ready of a Node has this status from now on: as `Unknown` its kubelet has fallen silent, as `True` it is heard again.
    async fn say_ready(&self, node: &str, status: &str) {
        let since = self.lab().clock.now().to_string();
        let condition = json!({"type": "Ready", "status": status, "reason": "Said", "message": "", "lastTransitionTime": since, "lastHeartbeatTime": since});
        self.patch_status::<Node>(node, json!({"conditions": [condition]}))
            .await;
    }
}

impl<S: Scene> Nodes for S {}
