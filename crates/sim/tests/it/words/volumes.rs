//! Disks of one driver, which are made where their pods are.

use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use super::{Objects as _, Scene};

/// A claim of class `fast`, for a volume that one node may have.
pub fn volume_claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}},
    }})
}

/// A volume of class `fast` that comes and goes with its pod.
pub fn ephemeral_volume(name: &str) -> Value {
    json!({"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": volume_claim(name)["spec"]}}})
}

pub trait Volumes: Scene {
    /// StorageClass `fast`.
    async fn storage_class(&self) {
        let class = json!({"metadata": {"name": "fast"}, "provisioner": "disk.csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"});
        self.create::<StorageClass>(class).await;
    }
}

impl<S: Scene> Volumes for S {}
