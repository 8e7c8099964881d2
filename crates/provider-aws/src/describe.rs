//! What EC2 says of instance types: the fields of `DescribeInstanceTypes` that decisions read, under EC2's own names (A3.1).
//!
//! Owns the shape of descriptions. It never interprets them, and absent fields stay absent.

use serde::{Deserialize, Serialize};

/// One instance type.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct InstanceTypeInfo {
    /// Name, such as `m5.large`.
    pub instance_type: String,
    /// Whether it has no hypervisor.
    pub bare_metal: bool,
    /// `nitro`, `xen`, or empty for bare metal.
    pub hypervisor: String,
    /// Memory.
    pub memory_info: MemoryInfo,
    /// Processors as the guest sees them.
    #[serde(rename = "VCpuInfo")]
    pub v_cpu_info: VCpuInfo,
    /// Processors as they are.
    pub processor_info: Option<ProcessorInfo>,
    /// Network.
    pub network_info: NetworkInfo,
    /// How it may be bought: `on-demand`, `spot`, `capacity-block`.
    pub supported_usage_classes: Vec<String>,
    /// GPUs.
    pub gpu_info: Option<GpuInfo>,
    /// Accelerators that are neither GPUs nor Neuron devices.
    pub inference_accelerator_info: Option<InferenceAcceleratorInfo>,
    /// Neuron devices.
    pub neuron_info: Option<NeuronInfo>,
    /// Disks.
    pub instance_storage_info: Option<InstanceStorageInfo>,
    /// Connection to EBS.
    pub ebs_info: Option<EbsInfo>,
    /// Placement groups that may hold it.
    pub placement_group_info: Option<PlacementGroupInfo>,
}

/// Memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryInfo {
    /// Size in MiB.
    #[serde(rename = "SizeInMiB", default)]
    pub size_mib: i64,
}

/// Processors as the guest sees them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VCpuInfo {
    /// Number of vCPUs.
    #[serde(rename = "DefaultVCpus", default)]
    pub default_vcpus: i64,
}

/// Processors as they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ProcessorInfo {
    /// Maker.
    pub manufacturer: String,
    /// `x86_64`, `arm64`, and others, the main one first.
    pub supported_architectures: Vec<String>,
    /// Sustained clock speed in GHz.
    pub sustained_clock_speed_in_ghz: f64,
    /// Features such as `nested-virtualization`.
    pub supported_features: Vec<String>,
}

/// Network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NetworkInfo {
    /// Index into `network_cards` of the card that carries the primary interface.
    pub default_network_card_index: usize,
    /// Addresses of an interface.
    pub ipv4_addresses_per_interface: i64,
    /// Whether traffic between instances is encrypted.
    pub encryption_in_transit_supported: bool,
    /// Whether it has Elastic Network Adapters: `required`, `supported` or `unsupported`.
    pub ena_support: String,
    /// Cards.
    pub network_cards: Vec<NetworkCard>,
    /// Elastic Fabric Adapters.
    pub efa_info: Option<EfaInfo>,
}

/// A network card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NetworkCard {
    /// Its number.
    pub network_card_index: i64,
    /// How many interfaces it takes.
    pub maximum_network_interfaces: i64,
}

/// Elastic Fabric Adapters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EfaInfo {
    /// How many there may be.
    pub maximum_efa_interfaces: Option<i64>,
}

/// GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct GpuInfo {
    /// One entry for each model.
    pub gpus: Vec<Gpu>,
}

/// GPUs of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Gpu {
    /// Maker.
    pub manufacturer: String,
    /// Model.
    pub name: String,
    /// How many.
    pub count: i64,
    /// Memory of each.
    pub memory_info: MemoryInfo,
}

/// Accelerators that are neither GPUs nor Neuron devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct InferenceAcceleratorInfo {
    /// One entry for each model.
    pub accelerators: Vec<Accelerator>,
}

/// Accelerators of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Accelerator {
    /// Maker.
    pub manufacturer: String,
    /// Model.
    pub name: String,
    /// How many.
    pub count: i64,
}

/// Neuron devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NeuronInfo {
    /// One entry for each model.
    pub neuron_devices: Vec<NeuronDevice>,
}

/// Neuron devices of one model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NeuronDevice {
    /// Model.
    pub name: String,
    /// How many.
    pub count: i64,
    /// Cores of each.
    pub core_info: NeuronCoreInfo,
}

/// Cores of a Neuron device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NeuronCoreInfo {
    /// How many.
    pub count: i64,
}

/// Disks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct InstanceStorageInfo {
    /// `required`, `supported` or `unsupported`.
    pub nvme_support: String,
    /// Total size in GB (powers of ten).
    #[serde(rename = "TotalSizeInGB")]
    pub total_size_gb: Option<i64>,
}

/// Connection to EBS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EbsInfo {
    /// `default`, `supported` or `unsupported`.
    pub ebs_optimized_support: String,
    /// How fast it is.
    pub ebs_optimized_info: Option<EbsOptimizedInfo>,
}

/// How fast the connection to EBS is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EbsOptimizedInfo {
    /// Mbit/s at most.
    pub maximum_bandwidth_in_mbps: i64,
}

/// Placement groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PlacementGroupInfo {
    /// `cluster`, `partition`, `spread`.
    pub supported_strategies: Vec<String>,
}
