//! From an entry of the SKU list to what a node of this size holds, reserves and is labelled with (Z1.5, Z4).
//!
//! Owns which sizes are used at all, and the arithmetic. Zones, prices and capacity types are [`offerings`](crate::offerings).

use spokeshave_api::AKSNodeClass;
use spokeshave_api::aks_node_class::ImageFamily;
use spokeshave_model::labels as core;
use spokeshave_model::{
    InstanceType, Operator, Overhead, Requirement, Requirements, ResourceName, Resources,
};

use crate::aks_profiles::local_dns_mode;
use crate::gpus;
use crate::labels;
use crate::skus::{MACHINES, Sku};

const GIB: i64 = 1 << 30;
const MIB: i64 = 1 << 20;
/// What the kubelet keeps free before it evicts.
const EVICTION_MIB: i64 = 750;
/// DNS on the node needs so many vCPUs, and so much memory.
const DNS_CPUS: i64 = 4;
const DNS_MIB: f64 = 244.0;
/// Size of the disk of the operating system, unless the class says otherwise.
pub const DEFAULT_OS_DISK_GB: i32 = 128;

/// Sizes that AKS does not take as nodes.
const NOT_FOR_AKS: [&str; 12] = [
    "Basic_A0",
    "Basic_A1",
    "Basic_A2",
    "Basic_A3",
    "Basic_A4",
    "Standard_A0",
    "Standard_A1",
    "Standard_A1_v2",
    "Standard_B1ms",
    "Standard_B1s",
    "Standard_F1",
    "Standard_F1s",
];
/// Sizes that are sold and do not work as nodes.
const TROUBLESOME: [&str; 2] = ["Standard_E64i_v3", "Standard_E64is_v3"];

/// How pods get addresses (Z9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NetworkPlugin {
    /// Somebody else's plugin.
    None,
    /// Azure's, where pods have a network of their own.
    #[default]
    AzureOverlay,
    /// Azure's, where pods have addresses of the nodes' subnet.
    AzureNodeSubnet,
    /// Any other.
    Other,
}

impl NetworkPlugin {
    /// Most pods of a node unless the class says otherwise.
    #[must_use]
    pub fn max_pods(self) -> i32 {
        match self {
            NetworkPlugin::None | NetworkPlugin::AzureOverlay => 250,
            NetworkPlugin::AzureNodeSubnet => 30,
            NetworkPlugin::Other => 110,
        }
    }
}

/// Who makes machines (Z6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProvisionMode {
    /// The provider makes network interface and virtual machine, which joins as the bootstrap template says.
    #[default]
    Template,
    /// AKS makes the virtual machine and joins it.
    AksMachine,
}

/// Settings of the operator that the arithmetic reads (Z9).
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Location, such as `westeurope`.
    pub region: String,
    /// Resource group of the nodes.
    pub node_resource_group: String,
    /// Share of the memory that the hypervisor takes, 0.075 by default.
    pub vm_memory_overhead_percent: f64,
    /// How pods get addresses.
    pub network_plugin: NetworkPlugin,
    /// Who makes machines.
    pub mode: ProvisionMode,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            region: String::new(),
            node_resource_group: String::new(),
            vm_memory_overhead_percent: 0.075,
            network_plugin: NetworkPlugin::default(),
            mode: ProvisionMode::default(),
        }
    }
}

/// Why a size is not used for any class (Z-020).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotUsed {
    /// It is no size of machines.
    #[error("it is no size of machines")]
    NotAMachine,
    /// Its name does not follow the convention.
    #[error("its name cannot be read")]
    Name,
    /// Fewer than 2 vCPUs.
    #[error("it has fewer than 2 vCPUs")]
    Cpus,
    /// Less than 3.5 GiB of memory.
    #[error("it has less than 3.5 GiB of memory")]
    Memory,
    /// AKS does not take it.
    #[error("AKS does not take it")]
    NotForAks,
    /// Its GPUs are not supported.
    #[error("its GPUs are not supported")]
    Gpus,
    /// It sells fewer vCPUs than it has.
    #[error("it makes fewer vCPUs available than it has")]
    Constrained,
    /// It is for confidential computing.
    #[error("it is for confidential computing")]
    Confidential,
    /// This subscription may not use it here.
    #[error("the subscription may not use it in this location")]
    Restricted,
}

/// Whether a size is used at all in a location.
///
/// # Errors
/// With the first reason why not.
pub fn check_used(sku: &Sku, region: &str) -> Result<(), NotUsed> {
    if sku.resource_type != MACHINES {
        return Err(NotUsed::NotAMachine);
    }
    if NOT_FOR_AKS.contains(&sku.name.as_str()) || TROUBLESOME.contains(&sku.name.as_str()) {
        return Err(NotUsed::NotForAks);
    }
    let name = sku.size_name().ok_or(NotUsed::Name)?;
    if sku.cpus().is_none_or(|cpus| cpus < 2) {
        return Err(NotUsed::Cpus);
    }
    if sku.memory_gib().is_none_or(|gib| gib < 3.5) {
        return Err(NotUsed::Memory);
    }
    if sku.gpus() > 0 && gpus::of(&sku.name).is_none() {
        return Err(NotUsed::Gpus);
    }
    if name.constrained_cpus.is_some() {
        return Err(NotUsed::Constrained);
    }
    if name.is_confidential() {
        return Err(NotUsed::Confidential);
    }
    if sku.is_restricted_in(region) {
        return Err(NotUsed::Restricted);
    }
    Ok(())
}

/// Whether machines of the size can be made as the class wants them.
///
/// # Errors
/// With what stands against it.
pub fn check_class(sku: &Sku, class: &AKSNodeClass) -> Result<(), &'static str> {
    let spec = &class.spec;
    let family = image_family(class);
    let security = spec.security.as_ref();
    if let Some(gpus) = gpus::of(&sku.name) {
        if !gpus.work_on(&family) {
            return Err("images of the family have no driver for its GPUs");
        }
        let mode = spec.gpu.as_ref().and_then(|gpu| gpu.mode.as_deref());
        if mode != Some("None") && gpus.maker != "nvidia" {
            return Err("its GPUs have no driver that is installed");
        }
    }
    if security.and_then(|it| it.encryption_at_host) == Some(true) && !sku.is("EncryptionAtHostSupported") {
        return Err("its disks cannot be encrypted on the host");
    }
    if wants_trusted_launch(class) && (sku.is("TrustedLaunchDisabled") || !sku.generations().contains(&"2")) {
        return Err("it has no trusted launch");
    }
    let streaming = spec.artifact_streaming.as_ref().and_then(|it| it.enabled);
    if streaming == Some(true) && sku.architecture() == "arm64" {
        return Err("artifacts are not streamed to arm64");
    }
    let is_small = sku.cpus().is_none_or(|cpus| cpus < DNS_CPUS)
        || sku.memory_gib().is_none_or(|gib| gib * 1024.0 < DNS_MIB);
    if local_dns_mode(class) == Some("Required") && is_small {
        return Err("it is too small for DNS on the node");
    }
    Ok(())
}

/// Whether the class asks for a verified start.
#[must_use]
pub fn wants_trusted_launch(class: &AKSNodeClass) -> bool {
    let security = class.spec.security.as_ref();
    let trusted = security.and_then(|security| security.trusted_launch.as_ref());
    trusted.is_some_and(|it| it.vtpm == Some(true) || it.secure_boot == Some(true))
}

/// Whether the class asks for validated cryptography.
#[must_use]
pub fn wants_fips(class: &AKSNodeClass) -> bool {
    class.spec.fips_mode.as_deref() == Some("FIPS")
}

/// The class's family, with the default of the definition.
#[must_use]
pub fn image_family(class: &AKSNodeClass) -> ImageFamily {
    class.spec.image_family.clone().unwrap_or(ImageFamily::Ubuntu)
}

/// Size of the disk of the operating system in GB.
#[must_use]
pub fn os_disk_gb(class: &AKSNodeClass) -> i64 {
    i64::from(class.spec.os_disk_size_gb.unwrap_or(DEFAULT_OS_DISK_GB))
}

/// The size as nodes of the class will be, without zones, capacity types and offerings; [`check_used`] has let it pass.
#[must_use]
pub fn resolve(sku: &Sku, class: &AKSNodeClass, settings: &Settings) -> InstanceType {
    let max_pods = class
        .spec
        .max_pods
        .unwrap_or_else(|| settings.network_plugin.max_pods());
    let gpus = gpus::of(&sku.name);
    let count = |maker: &str| {
        if gpus.is_some_and(|it| it.maker == maker) {
            sku.gpus()
        } else {
            0
        }
    };
    let amounts = [
        (ResourceName::CPU, sku.cpus().unwrap_or(0).saturating_mul(1000)),
        (
            ResourceName::MEMORY,
            memory_bytes(sku, settings.vm_memory_overhead_percent),
        ),
        (
            ResourceName::EPHEMERAL_STORAGE,
            os_disk_gb(class).saturating_mul(1_000_000_000),
        ),
        (ResourceName::PODS, i64::from(max_pods)),
        (labels::NVIDIA_GPU, count("nvidia")),
        (labels::AMD_GPU, count("amd")),
    ];
    InstanceType {
        name: sku.name.clone(),
        requirements: requirements(sku, class, settings),
        capacity: Resources::from_amounts(amounts.into_iter().filter(|(_, amount)| *amount != 0)),
        overhead: overhead(sku),
        ..InstanceType::default()
    }
}

/// Memory that the guest sees: whole GiB without the share of the hypervisor.
#[expect(clippy::cast_possible_truncation, reason = "memory in GiB, and a share of it")]
#[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
fn memory_bytes(sku: &Sku, overhead: f64) -> i64 {
    let bytes = (sku.memory_gib().unwrap_or(0.0) as i64).saturating_mul(GIB);
    bytes - (bytes as f64 * overhead).ceil() as i64
}

/// Upper bounds, and what is reserved of what lies below each.
const MEMORY_BRACKETS_GIB: [(f64, f64); 5] = [
    (4.0, 0.25),
    (8.0, 0.20),
    (16.0, 0.10),
    (128.0, 0.06),
    (f64::MAX, 0.02),
];
const CPU_BRACKETS: [(f64, f64); 4] = [(1.0, 0.06), (2.0, 0.04), (4.0, 0.02), (f64::MAX, 0.01)];

fn in_brackets(brackets: &[(f64, f64)], amount: f64) -> f64 {
    let mut lower = 0.0;
    let mut reserved = 0.0;
    for (upper, share) in brackets {
        if lower > amount {
            break;
        }
        reserved += (upper.min(amount) - lower) * share;
        lower = *upper;
    }
    reserved
}

#[expect(clippy::cast_possible_truncation, reason = "shares of memory and CPUs")]
#[expect(clippy::cast_precision_loss, reason = "a number of CPUs")]
fn overhead(sku: &Sku) -> Overhead {
    let cpus = sku.cpus().unwrap_or(0) as f64;
    let memory_gib = sku.memory_gib().unwrap_or(0.0);
    let milli = (1000.0 * in_brackets(&CPU_BRACKETS, cpus)) as i64;
    let mib = (1024.0 * in_brackets(&MEMORY_BRACKETS_GIB, memory_gib)) as i64;
    Overhead {
        kube_reserved: Resources::from_amounts([
            (ResourceName::CPU, milli),
            (ResourceName::MEMORY, mib.saturating_mul(MIB)),
        ]),
        system_reserved: Resources::default(),
        eviction_threshold: Resources::from_amounts([(ResourceName::MEMORY, EVICTION_MIB * MIB)]),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "memory in MiB")]
fn requirements(sku: &Sku, class: &AKSNodeClass, settings: &Settings) -> Requirements {
    let name = sku.size_name().unwrap_or_default();
    let gpus = gpus::of(&sku.name);
    let cpus = sku.cpus().unwrap_or(0).to_string();
    let memory = ((sku.memory_gib().unwrap_or(0.0) * 1024.0) as i64).to_string();
    let cluster = labels::cluster(&settings.node_resource_group);
    let os_sku = match image_family(class) {
        ImageFamily::AzureLinux => "AzureLinux",
        _ => "Ubuntu",
    };
    let maybe = |key: &str, value: Option<String>| Requirement::new(key, Operator::In, value);
    let ephemeral = sku.ephemeral_os_disk().filter(|(size, _)| *size > 0);
    [
        Requirement::is(core::INSTANCE_TYPE, &sku.name),
        Requirement::is(core::ARCH, sku.architecture()),
        Requirement::is(core::OS, "linux"),
        Requirement::is(core::REGION, &settings.region),
        Requirement::does_not_exist(core::WINDOWS_BUILD),
        Requirement::is(labels::SKU_NAME, &sku.name),
        Requirement::is(labels::SKU_FAMILY, &name.family),
        Requirement::is(labels::SKU_SERIES, &name.series()),
        Requirement::is(labels::SKU_VERSION, name.version_number()),
        Requirement::is(labels::SKU_CPU, &cpus),
        Requirement::is(labels::SKU_MEMORY, &memory),
        Requirement::is(labels::AKS_SKU_CPU, &cpus),
        Requirement::is(labels::AKS_SKU_MEMORY, &memory),
        Requirement::is(
            labels::SKU_NETWORKING_ACCELERATED,
            &sku.is("AcceleratedNetworkingEnabled").to_string(),
        ),
        Requirement::is(
            labels::SKU_STORAGE_PREMIUM_CAPABLE,
            &sku.is("PremiumIO").to_string(),
        ),
        maybe(
            labels::SKU_STORAGE_EPHEMERAL_OS_MAX_SIZE,
            ephemeral.map(|(size, _)| size.to_string()),
        ),
        Requirement::one_of(labels::SKU_HYPERV_GENERATION, sku.generations()),
        Requirement::is(labels::SKU_GPU_COUNT, &gpus.map_or(0, |_| sku.gpus()).to_string()),
        maybe(
            labels::SKU_GPU_MANUFACTURER,
            gpus.map(|gpus| gpus.maker.to_owned()),
        ),
        maybe(labels::SKU_GPU_NAME, gpus.and_then(|_| name.accelerator.clone())),
        Requirement::is(labels::AKS_CLUSTER, &cluster),
        Requirement::one_of(labels::AKS_MODE, ["system", "user"]),
        Requirement::is(labels::AKS_OS_SKU, os_sku),
        if wants_fips(class) {
            Requirement::is(labels::AKS_FIPS_ENABLED, "true")
        } else {
            Requirement::does_not_exist(labels::AKS_FIPS_ENABLED)
        },
    ]
    .into_iter()
    .collect()
}
