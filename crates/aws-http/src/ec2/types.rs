//! `DescribeInstanceTypes`: an element of the reply as the description that decisions read (A3.1).

use spokeshave_provider_aws::describe::{
    Accelerator, EbsInfo, EbsOptimizedInfo, EfaInfo, Gpu, GpuInfo, InferenceAcceleratorInfo,
    InstanceStorageInfo, InstanceTypeInfo, MemoryInfo, NetworkCard, NetworkInfo, NeuronCoreInfo,
    NeuronDevice, NeuronInfo, PlacementGroupInfo, ProcessorInfo, VCpuInfo,
};

use crate::xml::Element;

/// One instance type of the reply.
pub(super) fn instance_type(item: Element<'_, '_>) -> InstanceTypeInfo {
    InstanceTypeInfo {
        instance_type: item.text("instanceType"),
        bare_metal: item.is_true("bareMetal"),
        hypervisor: item.text("hypervisor"),
        memory_info: item.child("memoryInfo").map(memory).unwrap_or_default(),
        v_cpu_info: VCpuInfo {
            default_vcpus: item
                .child("vCpuInfo")
                .and_then(|info| info.parsed("defaultVCpus"))
                .unwrap_or(0),
        },
        processor_info: item.child("processorInfo").map(processor),
        network_info: item.child("networkInfo").map(network).unwrap_or_default(),
        supported_usage_classes: item.texts("supportedUsageClasses"),
        gpu_info: item.child("gpuInfo").map(|info| GpuInfo {
            gpus: info.items("gpus").map(gpu).collect(),
        }),
        inference_accelerator_info: item.child("inferenceAcceleratorInfo").map(|info| {
            InferenceAcceleratorInfo {
                accelerators: info.items("accelerators").map(accelerator).collect(),
            }
        }),
        neuron_info: item.child("neuronInfo").map(|info| NeuronInfo {
            neuron_devices: info.items("neuronDevices").map(neuron_device).collect(),
        }),
        instance_storage_info: item.child("instanceStorageInfo").map(|info| InstanceStorageInfo {
            nvme_support: info.text("nvmeSupport"),
            total_size_gb: info.parsed("totalSizeInGB"),
        }),
        ebs_info: item.child("ebsInfo").map(ebs),
        placement_group_info: item.child("placementGroupInfo").map(|info| PlacementGroupInfo {
            supported_strategies: info.texts("supportedStrategies"),
        }),
    }
}

fn memory(info: Element<'_, '_>) -> MemoryInfo {
    MemoryInfo {
        size_mib: info.parsed("sizeInMiB").unwrap_or(0),
    }
}

fn processor(info: Element<'_, '_>) -> ProcessorInfo {
    ProcessorInfo {
        manufacturer: info.text("manufacturer"),
        supported_architectures: info.texts("supportedArchitectures"),
        sustained_clock_speed_in_ghz: info.parsed("sustainedClockSpeedInGhz").unwrap_or(0.0),
        supported_features: info.texts("supportedFeatures"),
    }
}

fn network(info: Element<'_, '_>) -> NetworkInfo {
    NetworkInfo {
        default_network_card_index: info.parsed("defaultNetworkCardIndex").unwrap_or(0),
        ipv4_addresses_per_interface: info.parsed("ipv4AddressesPerInterface").unwrap_or(0),
        encryption_in_transit_supported: info.is_true("encryptionInTransitSupported"),
        ena_support: info.text("enaSupport"),
        network_cards: info
            .items("networkCards")
            .map(|card| NetworkCard {
                network_card_index: card.parsed("networkCardIndex").unwrap_or(0),
                maximum_network_interfaces: card.parsed("maximumNetworkInterfaces").unwrap_or(0),
            })
            .collect(),
        efa_info: info.child("efaInfo").map(|efa| EfaInfo {
            maximum_efa_interfaces: efa.parsed("maximumEfaInterfaces"),
        }),
    }
}

fn gpu(item: Element<'_, '_>) -> Gpu {
    Gpu {
        manufacturer: item.text("manufacturer"),
        name: item.text("name"),
        count: item.parsed("count").unwrap_or(0),
        memory_info: item.child("memoryInfo").map(memory).unwrap_or_default(),
    }
}

fn accelerator(item: Element<'_, '_>) -> Accelerator {
    Accelerator {
        manufacturer: item.text("manufacturer"),
        name: item.text("name"),
        count: item.parsed("count").unwrap_or(0),
    }
}

fn neuron_device(item: Element<'_, '_>) -> NeuronDevice {
    NeuronDevice {
        name: item.text("name"),
        count: item.parsed("count").unwrap_or(0),
        core_info: NeuronCoreInfo {
            count: item
                .child("coreInfo")
                .and_then(|info| info.parsed("count"))
                .unwrap_or(0),
        },
    }
}

fn ebs(info: Element<'_, '_>) -> EbsInfo {
    EbsInfo {
        ebs_optimized_support: info.text("ebsOptimizedSupport"),
        ebs_optimized_info: info.child("ebsOptimizedInfo").map(|info| EbsOptimizedInfo {
            maximum_bandwidth_in_mbps: info.parsed("maximumBandwidthInMbps").unwrap_or(0),
        }),
    }
}
