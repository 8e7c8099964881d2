//! Label keys of Azure and the values that they can have (Z1.5).

/// Domain of the provider's labels; users may not put labels of their own into it.
pub const DOMAIN: &str = "karpenter.azure.com";

/// Name of the size, such as `Standard_D4s_v5`.
pub const SKU_NAME: &str = "karpenter.azure.com/sku-name";
/// First letter of the size, such as `D`.
pub const SKU_FAMILY: &str = "karpenter.azure.com/sku-family";
/// Such as `Ds_v5`.
pub const SKU_SERIES: &str = "karpenter.azure.com/sku-series";
/// Number of the version, such as `5`.
pub const SKU_VERSION: &str = "karpenter.azure.com/sku-version";
/// Number of vCPUs.
pub const SKU_CPU: &str = "karpenter.azure.com/sku-cpu";
/// Memory in MiB.
pub const SKU_MEMORY: &str = "karpenter.azure.com/sku-memory";
/// Whether the network bypasses the host.
pub const SKU_NETWORKING_ACCELERATED: &str = "karpenter.azure.com/sku-networking-accelerated";
/// Whether premium disks can be attached.
pub const SKU_STORAGE_PREMIUM_CAPABLE: &str = "karpenter.azure.com/sku-storage-premium-capable";
/// Largest disk of the operating system on the machine's own disks, in GB.
pub const SKU_STORAGE_EPHEMERAL_OS_MAX_SIZE: &str = "karpenter.azure.com/sku-storage-ephemeralos-maxsize";
/// Whether ultra disks can be attached.
pub const SKU_STORAGE_ULTRA_SSD: &str = "karpenter.azure.com/sku-storage-ultra-ssd";
/// Name of the GPU, such as `A100`.
pub const SKU_GPU_NAME: &str = "karpenter.azure.com/sku-gpu-name";
/// `nvidia` or `amd`.
pub const SKU_GPU_MANUFACTURER: &str = "karpenter.azure.com/sku-gpu-manufacturer";
/// Number of GPUs.
pub const SKU_GPU_COUNT: &str = "karpenter.azure.com/sku-gpu-count";
/// `zonal` or `regional`.
pub const PLACEMENT_SCOPE: &str = "karpenter.azure.com/placement-scope";
/// Generation of the virtual machine, `1` or `2`. Users may not ask for it.
pub const SKU_HYPERV_GENERATION: &str = "karpenter.azure.com/sku-hyperv-generation";

/// Domain of AKS's labels, which it alone gives nodes.
pub const AKS_DOMAIN: &str = "kubernetes.azure.com";

/// The cluster, in AKS's own words.
pub const AKS_CLUSTER: &str = "kubernetes.azure.com/cluster";
/// `system` or `user`.
pub const AKS_MODE: &str = "kubernetes.azure.com/mode";
/// `spot` or `regular`.
pub const AKS_SCALE_SET_PRIORITY: &str = "kubernetes.azure.com/scalesetpriority";
/// `spot` or `regular`.
pub const AKS_PRIORITY: &str = "kubernetes.azure.com/priority";
/// `Ubuntu` or `AzureLinux`.
pub const AKS_OS_SKU: &str = "kubernetes.azure.com/os-sku";
/// Whether only validated cryptography is used.
pub const AKS_FIPS_ENABLED: &str = "kubernetes.azure.com/fips_enabled";
/// Number of vCPUs.
pub const AKS_SKU_CPU: &str = "kubernetes.azure.com/sku-cpu";
/// Memory in MiB.
pub const AKS_SKU_MEMORY: &str = "kubernetes.azure.com/sku-memory";

/// Keys that instance types of Azure have a requirement for, besides those of core.
pub const WELL_KNOWN: [&str; 23] = [
    AKS_CLUSTER,
    AKS_FIPS_ENABLED,
    AKS_MODE,
    AKS_OS_SKU,
    AKS_PRIORITY,
    AKS_SCALE_SET_PRIORITY,
    AKS_SKU_CPU,
    AKS_SKU_MEMORY,
    PLACEMENT_SCOPE,
    SKU_CPU,
    SKU_FAMILY,
    SKU_GPU_COUNT,
    SKU_GPU_MANUFACTURER,
    SKU_GPU_NAME,
    SKU_HYPERV_GENERATION,
    SKU_MEMORY,
    SKU_NAME,
    SKU_NETWORKING_ACCELERATED,
    SKU_SERIES,
    SKU_STORAGE_EPHEMERAL_OS_MAX_SIZE,
    SKU_STORAGE_PREMIUM_CAPABLE,
    SKU_STORAGE_ULTRA_SSD,
    SKU_VERSION,
];

/// Keys with few values, and those: a requirement with none of them can never be met.
pub const VALUES: [(&str, &[&str]); 11] = [
    (SKU_NETWORKING_ACCELERATED, &["true", "false"]),
    (SKU_STORAGE_PREMIUM_CAPABLE, &["true", "false"]),
    (SKU_STORAGE_ULTRA_SSD, &["true", "false"]),
    (SKU_GPU_MANUFACTURER, &["nvidia", "amd"]),
    (PLACEMENT_SCOPE, &["zonal", "regional"]),
    (SKU_HYPERV_GENERATION, &["1", "2"]),
    (AKS_MODE, &["system", "user"]),
    (AKS_SCALE_SET_PRIORITY, &["spot", "regular"]),
    (AKS_PRIORITY, &["spot", "regular"]),
    (AKS_OS_SKU, &["Ubuntu", "AzureLinux"]),
    (AKS_FIPS_ENABLED, &["true"]),
];

/// GPUs of NVIDIA.
pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
/// GPUs of AMD.
pub const AMD_GPU: &str = "amd.com/gpu";

/// The label of a node's cluster: its resource group, as much as a label's value can hold, with `z` after what must not be last.
#[must_use]
pub fn cluster(node_resource_group: &str) -> String {
    let mut value: String = node_resource_group.chars().take(LONGEST).collect();
    if value.ends_with(['-', '_', '.']) {
        if value.len() == LONGEST {
            value.pop();
        }
        value.push('z');
    }
    value
}

/// Characters of a label's value.
const LONGEST: usize = 63;
