//! Machines that AKS makes and joins itself, in an agent pool of a managed cluster (Z6.4, Z-040): their names and the body of the request.
//!
//! Owns the shape of a machine under the names of Microsoft.ContainerService. What single fields of a class become is
//! [`aks_profiles`](crate::aks_profiles). It calls nothing.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};
use spokeshave_api::aks_node_class::ImageFamily;
use spokeshave_api::hash::digest;
use spokeshave_api::{AKSNodeClass, NodeClaim, labels as api};
use spokeshave_model::{CapacityType, InstanceType, ResourceName};

use crate::aks_profiles::{kubelet_config, linux_os_config, local_dns_profile};
use crate::images::minor_version;
use crate::instance_types;
use crate::labels;
use crate::requests::ephemeral_placement;
use crate::skus::Sku;

/// Version of Microsoft.ContainerService's API. Machines can be made in previews only.
pub const CONTAINER_SERVICE_API_VERSION: &str = "2026-08-02-preview";
/// Annotation of a NodeClaim with the resource ID of its machine at AKS, which is not the virtual machine's.
pub const MACHINE_ID_ANNOTATION: &str = "karpenter.azure.com/aks-machine-resource-id";
/// Longest name of a machine. AKS puts more around it for the virtual machine.
const LONGEST_NAME: usize = 34;
/// Digits that stand for the part of a name that does not fit.
const HASH_LENGTH: usize = 6;
/// A longer end of a NodeClaim's name is no generated suffix.
const LONGEST_SUFFIX: usize = 12;
/// Digits in the name of the virtual machine, which AKS chooses.
const VM_DIGITS: usize = 8;

/// The agent pool, in mode `Machines`, that AKS makes machines in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachinePool {
    /// Subscription of the managed cluster.
    pub subscription: String,
    /// Resource group of the managed cluster, which is not that of its nodes.
    pub resource_group: String,
    /// Name of the managed cluster.
    pub cluster: String,
    /// Name of the agent pool.
    pub name: String,
}

impl MachinePool {
    /// Resource ID of the pool.
    #[must_use]
    pub fn id(&self) -> String {
        format!(
            "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.ContainerService/managedClusters/{}/agentPools/{}",
            self.subscription, self.resource_group, self.cluster, self.name
        )
    }

    /// Resource ID of a machine.
    #[must_use]
    pub fn machine_id(&self, machine: &str) -> String {
        format!("{}/machines/{machine}", self.id())
    }

    /// The pool of a machine, and the machine's name, by its resource ID at AKS; `None` for what is no such ID.
    #[must_use]
    pub fn of_machine(id: &str) -> Option<(Self, &str)> {
        let parts: Vec<&str> = id.split('/').collect();
        let [
            "",
            subscriptions,
            subscription,
            groups,
            group,
            providers,
            service,
            clusters,
            cluster,
            pools,
            pool,
            machines,
            machine,
        ] = parts[..]
        else {
            return None;
        };
        let words = [
            subscriptions,
            groups,
            providers,
            service,
            clusters,
            pools,
            machines,
        ];
        let expected = [
            "subscriptions",
            "resourceGroups",
            "providers",
            "Microsoft.ContainerService",
            "managedClusters",
            "agentPools",
            "machines",
        ];
        let is_one = words
            .iter()
            .zip(expected)
            .all(|(word, name)| word.eq_ignore_ascii_case(name));
        let own = MachinePool {
            subscription: subscription.to_owned(),
            resource_group: group.to_owned(),
            cluster: cluster.to_owned(),
            name: pool.to_owned(),
        };
        (is_one && !machine.is_empty()).then_some((own, machine))
    }

    /// Whether a machine is in this pool, by its resource ID at AKS.
    #[must_use]
    pub fn has(&self, machine_id: &str) -> bool {
        Self::of_machine(machine_id).is_some_and(|(pool, _)| pool.is_same(self))
    }

    /// Whether both are one pool: AKS takes no notice of case in IDs.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.id().eq_ignore_ascii_case(&other.id())
    }

    /// The machine of a virtual machine of this pool, `aks-<pool>-<machine>-########-vm`; `None` for any other.
    #[must_use]
    pub fn machine_of<'a>(&self, vm: &'a str) -> Option<&'a str> {
        let rest = vm
            .strip_prefix("aks-")?
            .strip_prefix(self.name.as_str())?
            .strip_prefix('-')?;
        let (rest, end) = rest.rsplit_once('-')?;
        let number = end.strip_prefix("vm")?;
        let (machine, digits) = rest.rsplit_once('-')?;
        let is_number = |text: &str| text.chars().all(|it| it.is_ascii_digit());
        (is_number(number) && is_number(digits) && digits.len() == VM_DIGITS && !machine.is_empty())
            .then_some(machine)
    }
}

/// Agent pools that machines of NodeClaims are in besides the one that the settings name: whoever launched them has written down where AKS has them.
#[must_use]
pub fn former_pools<'a>(
    claims: impl IntoIterator<Item = &'a NodeClaim>,
    named: Option<&MachinePool>,
) -> Vec<MachinePool> {
    let mut found: Vec<MachinePool> = Vec::new();
    for claim in claims {
        let annotations = claim.metadata.annotations.as_ref();
        let id = annotations.and_then(|all| all.get(MACHINE_ID_ANNOTATION));
        let Some((pool, _)) = id.and_then(|id| MachinePool::of_machine(id)) else {
            continue;
        };
        if named.into_iter().chain(&found).all(|known| !known.is_same(&pool)) {
            found.push(pool);
        }
    }
    found.sort_by_key(MachinePool::id);
    found
}

/// Name of a NodeClaim's machine. The same claim always gets the same name: that is what makes a launch that is repeated find what the first one made.
/// Where two claims share one, the machine's tags say whose it is.
#[must_use]
pub fn machine_name(node_claim: &str) -> String {
    // AKS takes no dots, which names of NodePools may have.
    let name = node_claim.replace('.', "-");
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let (prefix, suffix) = match name.rfind('-').map(|dash| name.split_at(dash)) {
        Some((prefix, suffix)) if suffix.len() <= LONGEST_SUFFIX => (prefix, suffix),
        _ => (name.as_str(), ""),
    };
    let kept = LONGEST_NAME - suffix.len() - HASH_LENGTH;
    let (kept, lost) = prefix.split_at(kept);
    let hash = format!("{:016x}", digest(lost));
    format!("{kept}{}{suffix}", &hash[..HASH_LENGTH])
}

/// A machine that AKS is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct AksMachine<'a> {
    /// Zone; `None` for one without.
    pub zone: Option<&'a str>,
    /// How it is bought.
    pub capacity_type: CapacityType,
    /// Its size.
    pub sku: &'a Sku,
    /// Its type.
    pub instance_type: &'a InstanceType,
    /// What it is made from.
    pub class: &'a AKSNodeClass,
    /// Version of Kubernetes.
    pub kubernetes_version: &'a str,
    /// Version of the node image, such as `AKSUbuntu-2404gen2containerd-202608.10.0`.
    pub image_version: &'a str,
    /// Labels of the NodeClaim and of what was bought.
    pub labels: &'a BTreeMap<String, String>,
    /// Taints, those of the start included.
    pub taints: &'a [Taint],
    /// Tags.
    pub tags: &'a BTreeMap<String, String>,
}

/// A taint as a flag of the kubelet has it.
fn taint(taint: &Taint) -> String {
    match taint.value.as_deref().filter(|value| !value.is_empty()) {
        Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
        None => format!("{}:{}", taint.key, taint.effect),
    }
}

/// Labels that AKS gives nodes itself, besides those of its domain.
const AKS_LABELS: [&str; 4] = ["agentpool", "storageprofile", "storagetier", "accelerator"];

/// Labels that AKS is asked for: it refuses its own, and a node may not give itself those of Kubernetes.
#[must_use]
pub fn node_labels(labels: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    let is_taken = |key: &str| {
        let domain = api::domain(key);
        !(AKS_LABELS.contains(&key) || domain.ends_with("kubernetes.io") || domain.ends_with("k8s.io"))
            && domain != labels::AKS_DOMAIN
    };
    labels
        .iter()
        .filter(|(key, _)| is_taken(key))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

/// The operating system, in AKS's words; an Ubuntu with validated cryptography is chosen by AKS.
#[must_use]
pub fn os_sku(class: &AKSNodeClass, kubernetes_version: &str) -> &'static str {
    match instance_types::image_family(class) {
        ImageFamily::AzureLinux => "AzureLinux",
        ImageFamily::Ubuntu2204 => "Ubuntu2204",
        ImageFamily::Ubuntu2404 => "Ubuntu2404",
        ImageFamily::Ubuntu | ImageFamily::Other(_) if instance_types::wants_fips(class) => "Ubuntu",
        ImageFamily::Ubuntu | ImageFamily::Other(_) => {
            let is_new = minor_version(kubernetes_version).is_some_and(|version| version >= (1, 34));
            if is_new { "Ubuntu2404" } else { "Ubuntu2204" }
        }
    }
}

/// What only AKS says of a machine, which is not sent back to it.
const SAID_BY_AKS: [&str; 4] = ["eTag", "provisioningState", "resourceId", "status"];

/// The body of a request that changes nothing of a machine but its tags, made of what AKS says of it.
#[must_use]
pub fn retagged(machine: &Value, tags: &BTreeMap<String, String>) -> Value {
    let mut properties = machine["properties"].clone();
    if let Some(fields) = properties.as_object_mut() {
        fields.retain(|name, _| !SAID_BY_AKS.contains(&name.as_str()));
    }
    if let Some(kubernetes) = properties.get_mut("kubernetes").and_then(Value::as_object_mut) {
        kubernetes.retain(|name, _| name != "nodeName" && name != "currentOrchestratorVersion");
    }
    if let Some(network) = properties.get_mut("network").and_then(Value::as_object_mut) {
        network.remove("ipAddresses");
    }
    properties["tags"] = json!(tags);
    let mut body = json!({"properties": properties});
    if machine["zones"].is_array() {
        body["zones"] = machine["zones"].clone();
    }
    body
}

impl AksMachine<'_> {
    /// The body of the request.
    #[must_use]
    pub fn body(&self) -> Value {
        let is = |key: &str, value: &str| self.labels.get(key).is_some_and(|it| it == value);
        let spot = self.capacity_type == CapacityType::Spot;
        let mut properties = json!({
            "nodeImageVersion": self.image_version,
            "hardware": self.hardware(is(labels::SKU_STORAGE_ULTRA_SSD, "true")),
            "operatingSystem": self.operating_system(),
            "kubernetes": self.kubernetes(),
            "mode": if is(labels::AKS_MODE, "system") { "System" } else { "User" },
            "security": self.security(),
            "priority": if spot { "Spot" } else { "Regular" },
            "tags": self.tags,
        });
        // Without one AKS takes the cluster's.
        let subnet = self
            .class
            .spec
            .vnet_subnet_id
            .as_deref()
            .filter(|id| !id.is_empty());
        if let Some(id) = subnet {
            properties["network"] = json!({"vnetSubnetID": id});
        }
        if let Some(dns) = local_dns_profile(self.class) {
            properties["localDNSProfile"] = dns;
        }
        let mut body = json!({"properties": properties});
        if let Some(zone) = self.zone {
            body["zones"] = json!([zone]);
        }
        body
    }

    fn hardware(&self, ultra_disks: bool) -> Value {
        let mut hardware = json!({"vmSize": self.sku.name, "ultraSsdEnabled": ultra_disks});
        if self.sku.gpus() > 0 {
            let mode = self.class.spec.gpu.as_ref().and_then(|gpu| gpu.mode.as_deref());
            let driver = if mode == Some("None") { "None" } else { "Install" };
            hardware["gpuProfile"] = json!({"driver": driver});
        }
        hardware
    }

    fn operating_system(&self) -> Value {
        let disk = ephemeral_placement(self.sku, self.class).map_or("Managed", |_| "Ephemeral");
        let mut system = json!({
            "osType": "Linux",
            "osSKU": os_sku(self.class, self.kubernetes_version),
            "osDiskSizeGB": instance_types::os_disk_gb(self.class),
            "osDiskType": disk,
            "enableFIPS": instance_types::wants_fips(self.class),
        });
        if let Some(linux) = linux_os_config(self.class) {
            system["linuxProfile"] = json!({"linuxOSConfig": linux});
        }
        system
    }

    fn kubernetes(&self) -> Value {
        let mut taints: Vec<String> = self.taints.iter().map(taint).collect();
        let mut seen = std::collections::BTreeSet::new();
        taints.retain(|taint| seen.insert(taint.clone()));
        let mut kubernetes = json!({
            "orchestratorVersion": self.kubernetes_version,
            "nodeLabels": node_labels(self.labels),
            // AKS puts `nodeTaints` back when somebody takes them away, and those of the start are to be taken away.
            "nodeInitializationTaints": taints,
            "nodeTaints": [],
            "maxPods": self.instance_type.capacity.get(ResourceName::PODS),
        });
        if let Some(config) = self.class.spec.kubelet.as_ref().and_then(kubelet_config) {
            kubernetes["kubeletConfig"] = config;
        }
        let streaming = self
            .class
            .spec
            .artifact_streaming
            .as_ref()
            .and_then(|it| it.enabled);
        if streaming == Some(true) {
            kubernetes["artifactStreamingProfile"] = json!({"enabled": true});
        }
        kubernetes
    }

    fn security(&self) -> Value {
        let security = self.class.spec.security.clone().unwrap_or_default();
        let trusted = security.trusted_launch.unwrap_or_default();
        json!({
            "sshAccess": "LocalUser",
            "enableEncryptionAtHost": security.encryption_at_host.unwrap_or(false),
            "enableVTPM": trusted.vtpm.unwrap_or(false),
            "enableSecureBoot": trusted.secure_boot.unwrap_or(false),
        })
    }
}
