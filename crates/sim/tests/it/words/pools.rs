//! NodePools over machines of up to 8 CPUs, and the NodeClass of them all.

use serde_json::{Value, json};
use spokeshave_api::{KWOKNodeClass, NodePool};

use super::{Objects as _, Scene};

/// A NodePool that is left in peace, changed by a merge patch of its spec.
pub fn pool(name: &str, change: Value) -> Value {
    let mut spec = json!({
        "template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [
                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
            ],
            "expireAfter": "Never",
        }},
        "disruption": {"consolidateAfter": "Never"},
    });
    json_patch::merge(&mut spec, &change);
    json!({"metadata": {"name": name}, "spec": spec})
}

pub trait Pools: Scene {
    /// NodeClass `default`, whose machines take five seconds to join.
    async fn node_class(&self) {
        let class = json!({"metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": "5s"}});
        self.create::<KWOKNodeClass>(class).await;
    }

    /// Creates a [`pool`].
    async fn pool(&self, name: &str, change: Value) {
        self.create::<NodePool>(pool(name, change)).await;
    }
}

impl<S: Scene> Pools for S {}
