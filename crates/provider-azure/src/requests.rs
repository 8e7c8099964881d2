//! What ARM is asked for: bodies of network interfaces and machines, and the query that lists them (Z6.3, Z7, Z-031).
//!
//! Owns the shape of requests, under ARM's own names. It decides nothing and calls nothing.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use spokeshave_api::AKSNodeClass;
use spokeshave_model::CapacityType;

use crate::instance_types;
use crate::skus::{DiskPlacement, Sku};
use crate::tags;

/// Version of Microsoft.Compute's API.
pub const COMPUTE_API_VERSION: &str = "2024-07-01";
/// Version of the API of galleries, which Microsoft.Compute counts apart from that of machines.
pub const GALLERY_API_VERSION: &str = "2023-07-03";
/// Version of Microsoft.Network's API.
pub const NETWORK_API_VERSION: &str = "2024-05-01";
/// Version of the Resource SKUs list.
pub const SKUS_API_VERSION: &str = "2021-07-01";
/// Version of Resource Graph.
pub const RESOURCE_GRAPH_API_VERSION: &str = "2021-03-01";
/// Largest custom data in bytes, before it is encoded.
pub const LARGEST_CUSTOM_DATA_BYTES: usize = 65_535;

/// Who may log in to machines, and as whom they act.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// Name of the administrator.
    pub admin_username: String,
    /// Its public SSH key.
    pub ssh_public_key: String,
    /// Resource IDs of user-assigned identities.
    pub identities: Vec<String>,
    /// Resource ID of a set of keys with which disks are encrypted.
    pub disk_encryption_set_id: Option<String>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq)]
pub struct Interface<'a> {
    /// Location.
    pub location: &'a str,
    /// Tags.
    pub tags: &'a BTreeMap<String, String>,
    /// Resource ID of its subnet.
    pub subnet_id: &'a str,
    /// Resource IDs of pools of load balancers.
    pub backend_pools: &'a [String],
    /// Resource ID of its security group.
    pub security_group_id: Option<&'a str>,
    /// Whether the network bypasses the host.
    pub is_accelerated: bool,
    /// Addresses for pods besides its own.
    pub pod_addresses: usize,
}

impl Interface<'_> {
    /// The body of the request.
    #[must_use]
    pub fn body(&self) -> Value {
        let subnet = json!({"id": self.subnet_id});
        let pools: Vec<Value> = self.backend_pools.iter().map(|id| json!({"id": id})).collect();
        let mut primary = json!({
            "primary": true,
            "privateIPAllocationMethod": "Dynamic",
            "subnet": subnet,
        });
        if !pools.is_empty() {
            primary["loadBalancerBackendAddressPools"] = json!(pools);
        }
        let mut configurations = vec![json!({"name": "ipConfig1", "properties": primary})];
        configurations.extend((0..self.pod_addresses).map(|index| {
            json!({
                "name": format!("ipConfig{}", index + 2),
                "properties": {"primary": false, "privateIPAllocationMethod": "Dynamic", "subnet": subnet},
            })
        }));
        let mut properties = json!({
            "enableAcceleratedNetworking": self.is_accelerated,
            "enableIPForwarding": true,
            "ipConfigurations": configurations,
        });
        if let Some(id) = self.security_group_id {
            properties["networkSecurityGroup"] = json!({"id": id});
        }
        json!({"location": self.location, "tags": self.tags, "properties": properties})
    }
}

/// A machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine<'a> {
    /// Its name, which is the node's too.
    pub name: &'a str,
    /// Location.
    pub location: &'a str,
    /// Zone; `None` for one without.
    pub zone: Option<&'a str>,
    /// How it is bought.
    pub capacity_type: CapacityType,
    /// Its size.
    pub sku: &'a Sku,
    /// What it is made from.
    pub class: &'a AKSNodeClass,
    /// ID of its image.
    pub image_id: &'a str,
    /// Resource ID of its network interface.
    pub interface_id: &'a str,
    /// Tags.
    pub tags: &'a BTreeMap<String, String>,
    /// Custom data, not encoded.
    pub custom_data: &'a str,
    /// Who may log in.
    pub access: &'a Access,
    /// Whether ultra disks are to be attached, which ARM decides when it makes the machine.
    pub has_ultra_disks: bool,
}

impl Machine<'_> {
    /// The body of the request.
    #[must_use]
    pub fn body(&self) -> Value {
        let mut body = json!({
            "location": self.location,
            "tags": self.tags,
            "properties": {
                "hardwareProfile": {"vmSize": self.sku.name},
                "storageProfile": {"osDisk": self.os_disk(), "imageReference": self.image_reference()},
                "osProfile": self.os_profile(),
                "networkProfile": {"networkInterfaces": [
                    {"id": self.interface_id, "properties": {"primary": true, "deleteOption": "Delete"}},
                ]},
                "priority": "Regular",
            },
        });
        if let Some(zone) = self.zone {
            body["zones"] = json!([zone]);
        }
        if self.capacity_type == CapacityType::Spot {
            body["properties"]["priority"] = json!("Spot");
            body["properties"]["evictionPolicy"] = json!("Delete");
            body["properties"]["billingProfile"] = json!({"maxPrice": -1});
        }
        if !self.access.identities.is_empty() {
            let identities: BTreeMap<&str, Value> = self
                .access
                .identities
                .iter()
                .map(|id| (id.as_str(), json!({})))
                .collect();
            body["identity"] = json!({"type": "UserAssigned", "userAssignedIdentities": identities});
        }
        if let Some(profile) = self.security_profile() {
            body["properties"]["securityProfile"] = profile;
        }
        if self.has_ultra_disks {
            body["properties"]["additionalCapabilities"] = json!({"ultraSSDEnabled": true});
        }
        body
    }

    fn image_reference(&self) -> Value {
        let community = self
            .image_id
            .get(..20)
            .is_some_and(|start| start.eq_ignore_ascii_case("/CommunityGalleries/"));
        if community {
            json!({"communityGalleryImageId": self.image_id})
        } else {
            json!({"id": self.image_id})
        }
    }

    fn os_disk(&self) -> Value {
        let size_gb = instance_types::os_disk_gb(self.class);
        let mut disk = json!({
            "name": self.name,
            "diskSizeGB": size_gb,
            "createOption": "FromImage",
            "deleteOption": "Delete",
        });
        match ephemeral_placement(self.sku, self.class) {
            Some(placement) => {
                disk["diffDiskSettings"] = json!({"option": "Local", "placement": placement.as_str()});
                disk["caching"] = json!("ReadOnly");
            }
            None => {
                if let Some(id) = &self.access.disk_encryption_set_id {
                    disk["managedDisk"] = json!({"diskEncryptionSet": {"id": id}});
                }
            }
        }
        disk
    }

    fn os_profile(&self) -> Value {
        let username = &self.access.admin_username;
        json!({
            "computerName": self.name,
            "adminUsername": username,
            "customData": STANDARD.encode(self.custom_data),
            "linuxConfiguration": {
                "disablePasswordAuthentication": true,
                "ssh": {"publicKeys": [{
                    "keyData": self.access.ssh_public_key,
                    "path": format!("/home/{username}/.ssh/authorized_keys"),
                }]},
            },
        })
    }

    fn security_profile(&self) -> Option<Value> {
        let security = self.class.spec.security.as_ref()?;
        let mut profile = json!({});
        if let Some(encrypted) = security.encryption_at_host {
            profile["encryptionAtHost"] = json!(encrypted);
        }
        if instance_types::wants_trusted_launch(self.class) {
            let trusted = security.trusted_launch.clone().unwrap_or_default();
            profile["securityType"] = json!("TrustedLaunch");
            profile["uefiSettings"] = json!({
                "secureBootEnabled": trusted.secure_boot.unwrap_or(false),
                "vTpmEnabled": trusted.vtpm.unwrap_or(false),
            });
        }
        profile
            .as_object()
            .is_some_and(|it| !it.is_empty())
            .then_some(profile)
    }
}

/// Where the disk of the operating system is on the machine's own disks, when it fits there (Z-022).
#[must_use]
pub fn ephemeral_placement(sku: &Sku, class: &AKSNodeClass) -> Option<DiskPlacement> {
    let (largest_gb, placement) = sku.ephemeral_os_disk()?;
    (instance_types::os_disk_gb(class) <= largest_gb).then_some(placement)
}

/// What Resource Graph is asked for: everything of a kind in the nodes' resource group that a NodePool of this cluster has launched. Without an order, rows of
/// one page may come again on the next, and others on none.
#[must_use]
pub fn list_query(kind: &str, node_resource_group: &str, cluster: &str) -> String {
    let quoted = |text: &str| text.replace(['\\', '\''], "");
    format!(
        "Resources | where type == '{}' | where resourceGroup == '{}' | where tags has_cs '{}' | where tags['{}'] == '{}' | order by id asc",
        quoted(&kind.to_lowercase()),
        quoted(&node_resource_group.to_lowercase()),
        tags::NODE_POOL,
        tags::CLUSTER,
        quoted(cluster),
    )
}
