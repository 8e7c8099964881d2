//! What Azure says of machines and network interfaces, as far as it counts.
//!
//! Owns what is read of a description. Who asks for it is [`calls`](crate::calls) and, of AKS, [`aks`](crate::aks).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use spokeshave_provider_azure::errors::ArmError;
use spokeshave_provider_azure::tags;

/// What AKS says of a machine besides what Compute does.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Aks {
    /// Its name at AKS, which is not the virtual machine's.
    pub(crate) name: String,
    /// Its resource ID at AKS.
    pub(crate) id: String,
    /// What AKS would have done with it; empty or `Synced` for nothing.
    pub(crate) drift_action: String,
    /// Why it could not be made.
    pub(crate) error: Option<ArmError>,
    /// The virtual machine is gone, and only AKS's record of it is left.
    pub(crate) is_hollow: bool,
}

/// A machine as ARM and Resource Graph describe it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) tags: Option<BTreeMap<String, String>>,
    pub(crate) zones: Option<Vec<String>>,
    pub(crate) properties: MachineProperties,
    /// What AKS says of it, if AKS has made it.
    #[serde(skip)]
    pub(crate) aks: Option<Aks>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct MachineProperties {
    pub(crate) provisioning_state: String,
    pub(crate) time_created: Option<Timestamp>,
    pub(crate) priority: String,
    pub(crate) hardware_profile: HardwareProfile,
    pub(crate) storage_profile: StorageProfile,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HardwareProfile {
    pub(crate) vm_size: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct StorageProfile {
    pub(crate) image_reference: ImageReference,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ImageReference {
    id: Option<String>,
    community_gallery_image_id: Option<String>,
}

impl ImageReference {
    pub(crate) fn of_id(id: Option<String>) -> Self {
        ImageReference {
            id,
            community_gallery_image_id: None,
        }
    }
}

impl Machine {
    /// A machine that ARM has just taken the request for.
    pub(crate) fn accepted(name: &str, image_id: &str) -> Self {
        let mut machine = Machine {
            name: name.to_owned(),
            ..Machine::default()
        };
        machine.properties.storage_profile.image_reference = ImageReference::of_id(Some(image_id.to_owned()));
        machine
    }

    pub(crate) fn tag(&self, key: &str) -> Option<&str> {
        self.tags.as_ref()?.get(key).map(String::as_str)
    }

    pub(crate) fn image_id(&self) -> &str {
        let image = &self.properties.storage_profile.image_reference;
        let id = image.community_gallery_image_id.as_ref().or(image.id.as_ref());
        id.map_or("", String::as_str)
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.properties
            .provisioning_state
            .eq_ignore_ascii_case("Deleting")
    }

    pub(crate) fn is_being_made(&self) -> bool {
        self.properties
            .provisioning_state
            .eq_ignore_ascii_case("Creating")
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.properties.provisioning_state.eq_ignore_ascii_case("Failed")
    }
}

/// A network interface as Resource Graph describes it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) tags: Option<BTreeMap<String, String>>,
    pub(crate) properties: InterfaceProperties,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct InterfaceProperties {
    pub(crate) virtual_machine: Option<Value>,
}

impl Machine {
    /// Image that was asked for: AKS may have taken another, and goes on to do so.
    pub(crate) fn asked_image(&self) -> &str {
        let asked = self.aks.as_ref().and_then(|_| self.tag(tags::IMAGE));
        asked.unwrap_or_else(|| self.image_id())
    }

    /// What it is told from others by: the virtual machine's name, or AKS's while there is none.
    pub(crate) fn key(&self) -> &str {
        match &self.aks {
            Some(aks) if self.name.is_empty() => &aks.id,
            _ => &self.name,
        }
    }

    /// The virtual machine is gone, and only AKS's record of it is left.
    pub(crate) fn is_hollow(&self) -> bool {
        self.aks.as_ref().is_some_and(|aks| aks.is_hollow)
    }
}
