//! From what EC2 says of an instance type to what a node of it holds, reserves and is labelled with (A1.7, A3.2, A3.3).
//!
//! Owns the arithmetic. Zones, prices and capacity types are [`offerings`](crate::offerings).

use std::collections::BTreeSet;

use spokeshave_api::ec2_node_class::{AmiFamily, InstanceStorePolicy, InterfaceType, Subnet};
use spokeshave_api::{EC2NodeClass, Quantity};
use spokeshave_model::labels as core;
use spokeshave_model::{
    InstanceType, Operator, Overhead, Requirement, Requirements, ResourceName, Resources,
};

use crate::describe::InstanceTypeInfo;
use crate::family::{self, DEFAULT_VOLUME_BYTES, Traits};
use crate::kubelet::Kubelet;
use crate::labels;
use crate::network;

const MIB: i64 = 1 << 20;

/// Memory of Graviton machines that the guest never sees, in MiB.
const GRAVITON_RESERVED_MIB: i64 = 64;

/// Pods of a node whose interfaces do not limit them.
const DEFAULT_PODS: i64 = 110;

/// Settings of the operator that the arithmetic reads (A10).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Share of the memory that the hypervisor takes, 0.075 by default.
    pub vm_memory_overhead_percent: f64,
    /// Interfaces that are kept free of pods.
    pub reserved_enis: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            vm_memory_overhead_percent: 0.075,
            reserved_enis: 0,
        }
    }
}

/// What a type is resolved for.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The class.
    pub class: &'a EC2NodeClass,
    /// The region.
    pub region: &'a str,
    /// Settings of the operator.
    pub settings: &'a Settings,
    /// Memory that nodes of this type and image were seen to have, in bytes.
    pub learned_memory_bytes: Option<i64>,
}

/// The instance type as nodes of the class will be, without offerings. `zones` are those in which EC2 has the type.
#[must_use]
pub fn resolve(info: &InstanceTypeInfo, zones: &BTreeSet<String>, context: &Context<'_>) -> InstanceType {
    let class = context.class;
    let machine = Machine {
        info,
        class,
        family: class.resolved_ami_family(),
        kubelet: Kubelet::read(class.spec.kubelet.as_ref()),
        settings: context.settings,
    };
    let memory = context
        .learned_memory_bytes
        .unwrap_or_else(|| machine.memory_bytes());
    let requirements = machine.requirements(context.region, zones);
    let windows = requirements
        .find(core::OS)
        .is_some_and(|requirement| requirement.has("windows"));
    InstanceType {
        name: info.instance_type.clone(),
        capacity: machine.capacity(memory, windows),
        overhead: machine.overhead(memory),
        requirements,
        ..InstanceType::default()
    }
}

/// The class's subnets in zones in which EC2 has the type.
fn class_subnets<'a>(
    class: &'a EC2NodeClass,
    zones: &'a BTreeSet<String>,
) -> impl Iterator<Item = &'a Subnet> {
    let subnets = class.status.as_ref().map(|status| status.subnets.as_slice());
    subnets
        .unwrap_or_default()
        .iter()
        .filter(|subnet| zones.contains(&subnet.zone))
}

/// The architecture as Kubernetes names it: the first one known; none for types such as 32-bit or Mac ones.
#[must_use]
pub fn architecture(info: &InstanceTypeInfo) -> Option<&'static str> {
    let processor = info.processor_info.as_ref()?;
    processor
        .supported_architectures
        .iter()
        .find_map(|architecture| match architecture.as_str() {
            "x86_64" => Some("amd64"),
            "arm64" => Some("arm64"),
            _ => None,
        })
}

/// Pods that the default card's interfaces have addresses for: the first address of an interface is its own, and two pods use the host's
/// (A3.2).
#[must_use]
pub fn pods_limited_by_interfaces(info: &InstanceTypeInfo, reserved_enis: i64, class: &EC2NodeClass) -> i64 {
    let network = &info.network_info;
    let card = network.network_cards.get(network.default_network_card_index);
    let interfaces = card.map_or(0, |card| card.maximum_network_interfaces);
    let without_addresses = class
        .spec
        .network_interfaces
        .iter()
        .filter(|interface| {
            interface.network_card_index == 0 && interface.interface_type == InterfaceType::EfaOnly
        })
        .count();
    let usable = interfaces - reserved_enis - i64::try_from(without_addresses).unwrap_or(i64::MAX);
    if usable <= 0 {
        return 0;
    }
    usable * (network.ipv4_addresses_per_interface - 1) + 2
}

/// Category and generation in the name of a type: leading letters and the digits after them; `u-6tb1.metal` is category `u`, generation 1
/// (A1.7).
#[must_use]
pub fn category_and_generation(instance_type: &str) -> Option<(&str, &str)> {
    let (family, _) = instance_type.rsplit_once('.')?;
    let letters = family
        .find(|character: char| !character.is_ascii_lowercase())
        .filter(|&end| end > 0)?;
    let (category, rest) = family.split_at(letters);
    let rest = match rest.strip_prefix('-') {
        Some(sized) => {
            let digits = sized.find(|character: char| !character.is_ascii_digit())?;
            sized[digits..].strip_prefix("tb").filter(|_| digits > 0)?
        }
        None => rest,
    };
    let digits = rest
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(rest.len());
    (digits > 0).then(|| (category, &rest[..digits]))
}

struct Machine<'a> {
    info: &'a InstanceTypeInfo,
    class: &'a EC2NodeClass,
    family: AmiFamily,
    kubelet: Kubelet,
    settings: &'a Settings,
}

impl Machine<'_> {
    fn traits(&self) -> Traits {
        family::traits(&self.family)
    }

    /// Memory that the guest sees, by the formula.
    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
    #[expect(clippy::cast_possible_truncation, reason = "a share of the memory")]
    fn memory_bytes(&self) -> i64 {
        let processor = self.info.processor_info.as_ref();
        let graviton = processor
            .and_then(|processor| processor.supported_architectures.first())
            .is_some_and(|architecture| architecture == "arm64");
        let bytes = (self.info.memory_info.size_mib - if graviton { GRAVITON_RESERVED_MIB } else { 0 }) * MIB;
        let overhead_mib = (bytes as f64 * self.settings.vm_memory_overhead_percent / MIB as f64).ceil();
        bytes - overhead_mib as i64 * MIB
    }

    fn pods(&self) -> i64 {
        let traits = self.traits();
        let pods = match self.kubelet.max_pods {
            Some(max_pods) => max_pods,
            None if traits.pods_limited_by_interfaces => {
                pods_limited_by_interfaces(self.info, self.settings.reserved_enis, self.class)
            }
            None => DEFAULT_PODS,
        };
        match self.kubelet.pods_per_core {
            Some(per_core) if per_core > 0 && traits.pods_per_core => {
                pods.min(per_core * self.info.v_cpu_info.default_vcpus)
            }
            _ => pods,
        }
    }

    fn ephemeral_storage_bytes(&self) -> i64 {
        let spec = &self.class.spec;
        if spec.instance_store_policy == Some(InstanceStorePolicy::Raid0)
            && let Some(gigabytes) = self
                .info
                .instance_storage_info
                .as_ref()
                .and_then(|storage| storage.total_size_gb)
        {
            return gigabytes * 1_000_000_000;
        }
        let size = |mapping: &spokeshave_api::ec2_node_class::BlockDeviceMapping| {
            let size = mapping.ebs.as_ref()?.volume_size.as_ref()?;
            size.0.parse::<Quantity>().ok().map(Quantity::to_units)
        };
        let mappings = &spec.block_device_mappings;
        let root = mappings.iter().find(|mapping| mapping.root_volume).and_then(size);
        let device = self.traits().ephemeral_device;
        let configured = root.or_else(|| match device {
            None => mappings
                .last()
                .map(|last| size(last).unwrap_or(DEFAULT_VOLUME_BYTES)),
            Some(device) => mappings
                .iter()
                .find(|mapping| mapping.device_name.as_deref() == Some(device))
                .and_then(size),
        });
        configured.unwrap_or_else(|| {
            let defaults = family::default_block_device_mappings(&self.family);
            let default = defaults
                .iter()
                .find(|mapping| mapping.device_name.as_deref() == device && device.is_some());
            default.and_then(size).unwrap_or(DEFAULT_VOLUME_BYTES)
        })
    }

    fn capacity(&self, memory_bytes: i64, windows: bool) -> Resources {
        let facts = network::facts(&self.info.instance_type);
        let mut amounts = vec![
            (ResourceName::CPU, self.info.v_cpu_info.default_vcpus * 1000),
            (ResourceName::MEMORY, memory_bytes),
            (ResourceName::EPHEMERAL_STORAGE, self.ephemeral_storage_bytes()),
            (ResourceName::PODS, self.pods()),
            (labels::POD_ENI, facts.branch_interfaces.unwrap_or(0)),
            (labels::NVIDIA_GPU, self.gpus("NVIDIA")),
            (labels::AMD_GPU, self.gpus("AMD")),
            (labels::HABANA_GAUDI, self.gpus("Habana")),
            (labels::EFA, self.efas()),
        ];
        if let Some(neuron) = &self.info.neuron_info {
            let devices = &neuron.neuron_devices;
            amounts.push((labels::NEURON, devices.iter().map(|device| device.count).sum()));
            let cores = devices.iter().map(|device| device.count * device.core_info.count);
            amounts.push((labels::NEURON_CORE, cores.sum()));
        }
        if windows {
            let addresses = facts.ipv4_addresses_per_interface;
            amounts.push((
                labels::PRIVATE_IPV4_ADDRESS,
                addresses.map_or(0, |addresses| addresses - 1),
            ));
        }
        Resources::from_amounts(amounts.into_iter().filter(|(_, amount)| *amount != 0))
    }

    fn gpus(&self, manufacturer: &str) -> i64 {
        let gpus = self.info.gpu_info.iter().flat_map(|info| &info.gpus);
        gpus.filter(|gpu| gpu.manufacturer == manufacturer)
            .map(|gpu| gpu.count)
            .sum()
    }

    /// Adapters of the configured interfaces; without any, as many as the type can have.
    fn efas(&self) -> i64 {
        let interfaces = &self.class.spec.network_interfaces;
        if !interfaces.is_empty() {
            let efas = interfaces
                .iter()
                .filter(|interface| interface.interface_type == InterfaceType::EfaOnly);
            return i64::try_from(efas.count()).unwrap_or(i64::MAX);
        }
        let efa = self.info.network_info.efa_info.as_ref();
        efa.and_then(|efa| efa.maximum_efa_interfaces).unwrap_or(0)
    }

    fn overhead(&self, memory_bytes: i64) -> Overhead {
        let pods = if self.traits().reserves_memory_by_interfaces {
            pods_limited_by_interfaces(self.info, 0, self.class)
        } else {
            self.pods()
        };
        let mut kube_reserved = Resources::from_amounts([
            (
                ResourceName::CPU,
                reserved_milli_cpu(self.info.v_cpu_info.default_vcpus * 1000),
            ),
            (ResourceName::MEMORY, (11 * pods + 255) * MIB),
            (ResourceName::EPHEMERAL_STORAGE, 1 << 30),
        ]);
        kube_reserved.override_with(&amounts(&self.kubelet.kube_reserved));
        let storage = self.ephemeral_storage_bytes();
        let threshold = |signal: &str, capacity: i64, default: i64| {
            let configured = self.kubelet.eviction_hard.get(signal);
            configured
                .and_then(|text| eviction_threshold(text, capacity))
                .unwrap_or(default)
        };
        Overhead {
            kube_reserved,
            system_reserved: amounts(&self.kubelet.system_reserved),
            eviction_threshold: Resources::from_amounts([
                (
                    ResourceName::MEMORY,
                    threshold("memory.available", memory_bytes, 100 * MIB),
                ),
                (
                    ResourceName::EPHEMERAL_STORAGE,
                    threshold("nodefs.available", storage, percent_of(storage, 10.0)),
                ),
            ]),
        }
    }

    fn requirements(&self, region: &str, zones: &BTreeSet<String>) -> Requirements {
        let info = self.info;
        let mut requirements = Requirements::new();
        let mut set = |requirement: Requirement| requirements.replace(requirement);
        self.core_requirements(region, zones, &mut set);
        set(Requirement::is(
            labels::INSTANCE_CPU,
            &info.v_cpu_info.default_vcpus.to_string(),
        ));
        set(Requirement::is(
            labels::INSTANCE_MEMORY,
            &info.memory_info.size_mib.to_string(),
        ));
        set(Requirement::is(labels::INSTANCE_HYPERVISOR, &info.hypervisor));
        let encrypted = info.network_info.encryption_in_transit_supported;
        set(Requirement::is(
            labels::INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED,
            &encrypted.to_string(),
        ));
        set(Requirement::one_of(
            labels::INSTANCE_TENANCY,
            ["default", "dedicated"],
        ));
        self.name_requirements(&mut set);
        self.hardware_requirements(&mut set);
        self.accelerator_requirements(&mut set);
        self.reservation_requirements(&mut set);
        // What a type has nothing of must not be asked for.
        for key in labels::WELL_KNOWN
            .into_iter()
            .filter(|key| *key != labels::ZONE_ID)
        {
            if !requirements.contains(key) {
                requirements.replace(Requirement::does_not_exist(key));
            }
        }
        requirements
    }

    fn core_requirements(&self, region: &str, zones: &BTreeSet<String>, set: &mut impl FnMut(Requirement)) {
        let info = self.info;
        let architecture = architecture(info);
        let operating_system = match (self.traits().windows_build, architecture) {
            (None, _) => Some("linux"),
            (Some(_), Some("amd64")) => Some("windows"),
            (Some(_), _) => None,
        };
        let reserved = (!self.reservations().is_empty()).then_some("reserved");
        let capacity_types = info.supported_usage_classes.iter().map(String::as_str);
        let capacity_types = capacity_types.filter(|class| matches!(*class, "on-demand" | "spot"));
        set(Requirement::is(core::INSTANCE_TYPE, &info.instance_type));
        set(Requirement::new(core::ARCH, Operator::In, architecture));
        set(Requirement::new(core::OS, Operator::In, operating_system));
        set(Requirement::is(core::REGION, region));
        set(Requirement::new(
            core::CAPACITY_TYPE,
            Operator::In,
            capacity_types.chain(reserved),
        ));
        set(Requirement::new(
            core::ZONE,
            Operator::In,
            class_subnets(self.class, zones).map(|subnet| subnet.zone.clone()),
        ));
        let ids: BTreeSet<String> = class_subnets(self.class, zones)
            .map(|subnet| subnet.zone_id.clone())
            .collect();
        if !ids.is_empty() {
            set(Requirement::one_of(labels::ZONE_ID, ids));
        }
        set(match self.traits().windows_build {
            Some(build) => Requirement::is(core::WINDOWS_BUILD, build),
            None => Requirement::does_not_exist(core::WINDOWS_BUILD),
        });
    }

    fn name_requirements(&self, set: &mut impl FnMut(Requirement)) {
        let name = &self.info.instance_type;
        if let Some((category, generation)) = category_and_generation(name) {
            set(Requirement::is(labels::INSTANCE_CATEGORY, category));
            set(Requirement::is(labels::INSTANCE_GENERATION, generation));
        }
        let family = name.split('.').next().unwrap_or(name);
        if let Some((family, size)) = name.split_once('.').filter(|(_, size)| !size.contains('.')) {
            set(Requirement::is(labels::INSTANCE_FAMILY, family));
            set(Requirement::is(labels::INSTANCE_SIZE, size));
        }
        let flex = family.contains("-flex");
        set(Requirement::is(
            labels::INSTANCE_CAPABILITY_FLEX,
            &flex.to_string(),
        ));
        if let Some(mbps) = network::facts(name).bandwidth_mbps {
            set(Requirement::is(
                labels::INSTANCE_NETWORK_BANDWIDTH,
                &mbps.to_string(),
            ));
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a clock speed in MHz")]
    fn hardware_requirements(&self, set: &mut impl FnMut(Requirement)) {
        let info = self.info;
        if let Some(processor) = &info.processor_info {
            set(Requirement::is(
                labels::INSTANCE_CPU_MANUFACTURER,
                &lower_with_dashes(&processor.manufacturer),
            ));
            let mhz = (processor.sustained_clock_speed_in_ghz * 1000.0).round() as i64;
            set(Requirement::is(
                labels::INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ,
                &mhz.to_string(),
            ));
        }
        if let Some(storage) = &info.instance_storage_info
            && storage.nvme_support != "unsupported"
            && let Some(gigabytes) = storage.total_size_gb
        {
            set(Requirement::is(
                labels::INSTANCE_LOCAL_NVME,
                &gigabytes.to_string(),
            ));
        }
        if let Some(ebs) = &info.ebs_info
            && ebs.ebs_optimized_support == "default"
            && let Some(optimized) = &ebs.ebs_optimized_info
        {
            set(Requirement::is(
                labels::INSTANCE_EBS_BANDWIDTH,
                &optimized.maximum_bandwidth_in_mbps.to_string(),
            ));
        }
    }

    /// Labels of GPUs and accelerators; a type with two models of one of them has none.
    fn accelerator_requirements(&self, set: &mut impl FnMut(Requirement)) {
        let info = self.info;
        if let Some([gpu]) = info.gpu_info.as_ref().map(|info| info.gpus.as_slice()) {
            set(Requirement::is(
                labels::INSTANCE_GPU_NAME,
                &lower_with_dashes(&gpu.name),
            ));
            set(Requirement::is(
                labels::INSTANCE_GPU_MANUFACTURER,
                &lower_with_dashes(&gpu.manufacturer),
            ));
            set(Requirement::is(
                labels::INSTANCE_GPU_COUNT,
                &gpu.count.to_string(),
            ));
            set(Requirement::is(
                labels::INSTANCE_GPU_MEMORY,
                &gpu.memory_info.size_mib.to_string(),
            ));
        }
        let neuron = info
            .neuron_info
            .as_ref()
            .map(|info| info.neuron_devices.as_slice());
        let inference = info
            .inference_accelerator_info
            .as_ref()
            .map(|info| info.accelerators.as_slice());
        let accelerator = match (neuron, inference) {
            (Some([device]), _) => Some((device.name.as_str(), "aws", device.count)),
            (None, Some([accelerator])) => Some((
                accelerator.name.as_str(),
                accelerator.manufacturer.as_str(),
                accelerator.count,
            )),
            _ => None,
        };
        if let Some((name, manufacturer, count)) = accelerator {
            set(Requirement::is(
                labels::INSTANCE_ACCELERATOR_NAME,
                &lower_with_dashes(name),
            ));
            set(Requirement::is(
                labels::INSTANCE_ACCELERATOR_MANUFACTURER,
                &lower_with_dashes(manufacturer),
            ));
            set(Requirement::is(
                labels::INSTANCE_ACCELERATOR_COUNT,
                &count.to_string(),
            ));
        }
    }

    fn reservations(&self) -> Vec<&spokeshave_api::ec2_node_class::CapacityReservation> {
        let status = self.class.status.as_ref();
        let reservations = status.map(|status| status.capacity_reservations.as_slice());
        reservations
            .unwrap_or_default()
            .iter()
            .filter(|reservation| reservation.instance_type == self.info.instance_type)
            .collect()
    }

    fn reservation_requirements(&self, set: &mut impl FnMut(Requirement)) {
        let reservations = self.reservations();
        if reservations.is_empty() {
            return;
        }
        let each = |key: &str, value: fn(&spokeshave_api::ec2_node_class::CapacityReservation) -> String| {
            Requirement::one_of(
                key,
                reservations
                    .iter()
                    .map(|reservation| value(reservation))
                    .collect::<BTreeSet<_>>(),
            )
        };
        set(each(labels::CAPACITY_RESERVATION_ID, |reservation| {
            reservation.id.clone()
        }));
        set(each(labels::CAPACITY_RESERVATION_TYPE, |reservation| {
            reservation.reservation_type.clone()
        }));
        set(each(labels::CAPACITY_RESERVATION_INTERRUPTIBLE, |reservation| {
            reservation.interruptible.to_string()
        }));
    }
}

fn lower_with_dashes(text: &str) -> String {
    text.replace(' ', "-").to_lowercase()
}

/// Quantities by resource; what is no quantity is left out, because the class's validation has refused it.
fn amounts(quantities: &std::collections::BTreeMap<String, String>) -> Resources {
    let parsed = quantities.iter().filter_map(|(name, text)| {
        let quantity = text.parse::<Quantity>().ok()?;
        let amount = if name == ResourceName::CPU {
            quantity.to_milli()
        } else {
            quantity.to_units()
        };
        Some((name.as_str(), amount))
    });
    Resources::from_amounts(parsed)
}

/// CPU reserved for Kubernetes: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the others (A3.3).
fn reserved_milli_cpu(milli: i64) -> i64 {
    let bands = [
        (0, 1000, 600),
        (1000, 2000, 100),
        (2000, 4000, 50),
        (4000, i64::MAX, 25),
    ];
    bands
        .into_iter()
        .map(|(from, to, per_ten_thousand)| (milli.min(to) - from).max(0) * per_ten_thousand / 10_000)
        .sum()
}

#[expect(clippy::cast_precision_loss, reason = "capacities are far below 2^53")]
#[expect(clippy::cast_possible_truncation, reason = "a share of a capacity")]
fn percent_of(capacity: i64, percent: f64) -> i64 {
    (capacity as f64 / 100.0 * percent).ceil() as i64
}

/// An eviction threshold: a quantity, or a share of the capacity, where `100%` switches it off.
fn eviction_threshold(text: &str, capacity: i64) -> Option<i64> {
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent: f64 = percent.parse().ok()?;
            let off = percent >= 100.0;
            Some(percent_of(capacity, if off { 0.0 } else { percent }))
        }
        None => text.parse::<Quantity>().ok().map(Quantity::to_units),
    }
}
