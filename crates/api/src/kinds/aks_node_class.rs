//! AKSNodeClass (Z1): what an Azure machine is made from.
//!
//! Owns the type only. What images are found, what drifts and what is launched is `provider-azure`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Condition, Requirement, UnknownFields, kind, open_enum};

kind! {
    /// Configuration of Azure machines (Z1.1).
    AKSNodeClass, #[serde(default)] AKSNodeClassSpec, AKSNodeClassStatus,
    group: "karpenter.azure.com", version: "v1beta1", plural: "aksnodeclasses", scope: k8s_openapi::ClusterResourceScope
}

open_enum! {
    /// The operating system of the images (Z2).
    ImageFamily {
        /// The Ubuntu that suits the version of Kubernetes.
        Ubuntu = "Ubuntu",
        /// Ubuntu 22.04.
        Ubuntu2204 = "Ubuntu2204",
        /// Ubuntu 24.04.
        Ubuntu2404 = "Ubuntu2404",
        /// Azure Linux.
        AzureLinux = "AzureLinux",
    }
}

/// Configuration of the machines of this class (Z1.2).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AKSNodeClassSpec {
    /// ARM resource ID of the subnet; by default that of the settings.
    #[serde(default, rename = "vnetSubnetID", skip_serializing_if = "Option::is_none")]
    pub vnet_subnet_id: Option<String>,
    /// Size of the disk of the operating system in GB.
    #[serde(default, rename = "osDiskSizeGB", skip_serializing_if = "Option::is_none")]
    pub os_disk_size_gb: Option<i32>,
    /// Operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_family: Option<ImageFamily>,
    /// `FIPS` or `Disabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fips_mode: Option<String>,
    /// Tags of everything that is created.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Most pods of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pods: Option<i32>,
    /// Configuration of the kubelet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletConfiguration>,
    /// Encryption and trusted launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<Security>,
    /// Drivers of GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
    /// Streaming of images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_streaming: Option<ArtifactStreaming>,
    /// DNS on the node.
    #[serde(default, rename = "localDNS", skip_serializing_if = "Option::is_none")]
    pub local_dns: Option<Value>,
    /// Swap, huge pages and sysctls.
    #[serde(default, rename = "linuxOSConfig", skip_serializing_if = "Option::is_none")]
    pub linux_os_config: Option<Value>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// Configuration of the kubelet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletConfiguration {
    /// `none` or `static`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_manager_policy: Option<String>,
    /// Whether limits of CPU are enforced.
    #[serde(default, rename = "cpuCFSQuota", skip_serializing_if = "Option::is_none")]
    pub cpu_cfs_quota: Option<bool>,
    /// Period over which they are enforced.
    #[serde(
        default,
        rename = "cpuCFSQuotaPeriod",
        skip_serializing_if = "Option::is_none"
    )]
    pub cpu_cfs_quota_period: Option<String>,
    /// Use of the disk in percent above which images are collected.
    #[serde(
        default,
        rename = "imageGCHighThresholdPercent",
        skip_serializing_if = "Option::is_none"
    )]
    pub image_gc_high_threshold_percent: Option<i32>,
    /// Use of the disk in percent down to which images are collected.
    #[serde(
        default,
        rename = "imageGCLowThresholdPercent",
        skip_serializing_if = "Option::is_none"
    )]
    pub image_gc_low_threshold_percent: Option<i32>,
    /// `none`, `best-effort`, `restricted` or `single-numa-node`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_manager_policy: Option<String>,
    /// Sysctls that pods may set though they are not safe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Size of a container's log at which it is rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_log_max_size: Option<String>,
    /// Number of log files of a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_log_max_files: Option<i32>,
    /// Most processes of a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_pids_limit: Option<i64>,
    /// Whether the kubelet refuses to start where there is swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_swap_on: Option<bool>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// Encryption and trusted launch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Security {
    /// Whether disks are encrypted on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption_at_host: Option<bool>,
    /// A verified start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_launch: Option<TrustedLaunch>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// A verified start of the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrustedLaunch {
    /// A virtual trusted platform module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vtpm: Option<bool>,
    /// Only signed code starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure_boot: Option<bool>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// Drivers of GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gpu {
    /// `Driver` or `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// Streaming of images.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactStreaming {
    /// Whether it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// What the class resolved to (Z1.4).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AKSNodeClassStatus {
    /// Images, in order of preference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<NodeImage>,
    /// Version of Kubernetes that new nodes get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// `Enabled` or `Disabled`.
    #[serde(default, rename = "localDNSState", skip_serializing_if = "Option::is_none")]
    pub local_dns_state: Option<String>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: UnknownFields,
}

/// An image, and the machines that it is for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeImage {
    /// ID of the image.
    pub id: String,
    /// Requirements that a machine must meet.
    pub requirements: Vec<Requirement>,
}
