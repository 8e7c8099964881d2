//! Label keys, annotations, tags and resource names of AWS (A1.7).

/// Domain of AWS's labels; users may not put labels of their own into it.
pub const DOMAIN: &str = "karpenter.k8s.aws";

/// Letters that an instance type begins with, such as `m`.
pub const INSTANCE_CATEGORY: &str = "karpenter.k8s.aws/instance-category";
/// What stands before the dot of an instance type, such as `m5`.
pub const INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
/// The digits after the category, such as `5`.
pub const INSTANCE_GENERATION: &str = "karpenter.k8s.aws/instance-generation";
/// What stands after the dot, such as `large`.
pub const INSTANCE_SIZE: &str = "karpenter.k8s.aws/instance-size";
/// Whether the type is of a flex family.
pub const INSTANCE_CAPABILITY_FLEX: &str = "karpenter.k8s.aws/instance-capability-flex";
/// Number of vCPUs.
pub const INSTANCE_CPU: &str = "karpenter.k8s.aws/instance-cpu";
/// Maker of the processors, lower case.
pub const INSTANCE_CPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
/// Sustained clock speed in MHz.
pub const INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ: &str =
    "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
/// Memory in MiB.
pub const INSTANCE_MEMORY: &str = "karpenter.k8s.aws/instance-memory";
/// Bandwidth to EBS in Mbit/s.
pub const INSTANCE_EBS_BANDWIDTH: &str = "karpenter.k8s.aws/instance-ebs-bandwidth";
/// Bandwidth of the network in Mbit/s.
pub const INSTANCE_NETWORK_BANDWIDTH: &str = "karpenter.k8s.aws/instance-network-bandwidth";
/// `nitro`, `xen`, or empty for bare metal.
pub const INSTANCE_HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
/// Whether traffic between instances is encrypted by the hardware.
pub const INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED: &str =
    "karpenter.k8s.aws/instance-encryption-in-transit-supported";
/// Size of the NVMe disks in GB.
pub const INSTANCE_LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
/// Name of the GPU.
pub const INSTANCE_GPU_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";
/// Maker of the GPU.
pub const INSTANCE_GPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
/// Number of GPUs.
pub const INSTANCE_GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
/// Memory of a GPU in MiB.
pub const INSTANCE_GPU_MEMORY: &str = "karpenter.k8s.aws/instance-gpu-memory";
/// Name of the accelerator.
pub const INSTANCE_ACCELERATOR_NAME: &str = "karpenter.k8s.aws/instance-accelerator-name";
/// Maker of the accelerator.
pub const INSTANCE_ACCELERATOR_MANUFACTURER: &str = "karpenter.k8s.aws/instance-accelerator-manufacturer";
/// Number of accelerators.
pub const INSTANCE_ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";
/// `default` or `dedicated`.
pub const INSTANCE_TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
/// ID of the capacity reservation.
pub const CAPACITY_RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";
/// `default` or `capacity-block`.
pub const CAPACITY_RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
/// Whether EC2 may take instances of the reservation back.
pub const CAPACITY_RESERVATION_INTERRUPTIBLE: &str = "karpenter.k8s.aws/capacity-reservation-interruptible";
/// ID of the zone, which is the same in every account.
pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
/// The EBS driver's key for the zone; read as `topology.kubernetes.io/zone`.
pub const EBS_ZONE: &str = "topology.ebs.csi.aws.com/zone";

/// Keys that instance types of EC2 have a requirement for, besides those of core.
pub const WELL_KNOWN: [&str; 26] = [
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    CAPACITY_RESERVATION_TYPE,
    INSTANCE_ACCELERATOR_COUNT,
    INSTANCE_ACCELERATOR_MANUFACTURER,
    INSTANCE_ACCELERATOR_NAME,
    INSTANCE_CAPABILITY_FLEX,
    INSTANCE_CATEGORY,
    INSTANCE_CPU,
    INSTANCE_CPU_MANUFACTURER,
    INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
    INSTANCE_EBS_BANDWIDTH,
    INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
    INSTANCE_FAMILY,
    INSTANCE_GENERATION,
    INSTANCE_GPU_COUNT,
    INSTANCE_GPU_MANUFACTURER,
    INSTANCE_GPU_MEMORY,
    INSTANCE_GPU_NAME,
    INSTANCE_HYPERVISOR,
    INSTANCE_LOCAL_NVME,
    INSTANCE_MEMORY,
    INSTANCE_NETWORK_BANDWIDTH,
    INSTANCE_SIZE,
    INSTANCE_TENANCY,
    ZONE_ID,
];

const PLACEMENT_GROUPS: &str = "placement groups are not supported, as the EC2NodeClass says of spec.placementGroupSelector; remove the label";
/// Labels of upstream's provider that this one does not have, and why.
pub const UNSUPPORTED: [(&str, &str); 3] = [
    (
        "karpenter.k8s.aws/nitro-sandbox",
        "which instance types have sandboxes is not known; remove the label",
    ),
    ("karpenter.k8s.aws/placement-group-id", PLACEMENT_GROUPS),
    ("karpenter.k8s.aws/placement-group-partition", PLACEMENT_GROUPS),
];

/// [`UNSUPPORTED`], as the rules about labels take it.
#[must_use]
pub fn unsupported() -> Vec<(String, String)> {
    let labels = UNSUPPORTED.iter();
    labels
        .map(|(label, reason)| ((*label).to_owned(), (*reason).to_owned()))
        .collect()
}

/// Branch network interfaces, for security groups of single pods.
pub const POD_ENI: &str = "vpc.amazonaws.com/pod-eni";
/// Addresses of Windows pods.
pub const PRIVATE_IPV4_ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";
/// Elastic Fabric Adapters.
pub const EFA: &str = "vpc.amazonaws.com/efa";
/// GPUs of NVIDIA.
pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
/// GPUs of AMD.
pub const AMD_GPU: &str = "amd.com/gpu";
/// Gaudi accelerators.
pub const HABANA_GAUDI: &str = "habana.ai/gaudi";
/// Neuron devices.
pub const NEURON: &str = "aws.amazon.com/neuron";
/// Cores of Neuron devices.
pub const NEURON_CORE: &str = "aws.amazon.com/neuroncore";
