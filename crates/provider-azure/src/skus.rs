//! What Azure says of a size: an entry of the Resource SKUs list, and facts of real sizes to rehearse on (Z4).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::names::SizeName;

/// A row for each size: what Azure says of it, and who wrote it down.
const FACTS: &str = include_str!("../data/sizes.tsv");
/// Resource type of machines in the list.
pub const MACHINES: &str = "virtualMachines";

/// A name and a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// Such as `vCPUs`.
    pub name: String,
    /// Always text.
    pub value: String,
}

/// What some zones of a location have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SaidOfZones")]
pub struct ZoneDetails {
    /// The zones. The service says `Name`, which is not what its documents say.
    #[serde(rename = "Name")]
    pub name: Vec<String>,
    /// What they have.
    pub capabilities: Vec<Capability>,
}

/// The same as it may be read: as the service says it, as its documents do, and as both from whoever passes on what it read.
#[derive(Deserialize)]
struct SaidOfZones {
    #[serde(default)]
    name: Option<Vec<String>>,
    #[serde(default, rename = "Name")]
    said_name: Option<Vec<String>>,
    #[serde(default)]
    capabilities: Vec<Capability>,
}

impl From<SaidOfZones> for ZoneDetails {
    fn from(said: SaidOfZones) -> Self {
        ZoneDetails {
            name: said.said_name.or(said.name).unwrap_or_default(),
            capabilities: said.capabilities,
        }
    }
}

/// A location in which the size exists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocationInfo {
    /// The location.
    #[serde(default)]
    pub location: String,
    /// Its zones that have the size, such as `1`.
    #[serde(default)]
    pub zones: Vec<String>,
    /// What only some zones have.
    #[serde(default)]
    pub zone_details: Vec<ZoneDetails>,
}

/// Where the size may not be used by this subscription.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restriction {
    /// `Location` or `Zone`.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// Locations.
    #[serde(default)]
    pub values: Vec<String>,
    /// Locations and zones.
    #[serde(default)]
    pub restriction_info: RestrictionInfo,
    /// Such as `NotAvailableForSubscription`.
    #[serde(default)]
    pub reason_code: String,
}

/// Locations and zones of a restriction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestrictionInfo {
    /// Locations.
    #[serde(default)]
    pub locations: Vec<String>,
    /// Zones.
    #[serde(default)]
    pub zones: Vec<String>,
}

/// An entry of the list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sku {
    /// Such as `Standard_D4s_v5`.
    #[serde(default)]
    pub name: String,
    /// What it is a size of: [`MACHINES`] for machines.
    #[serde(default)]
    pub resource_type: String,
    /// Family in which quota is counted.
    #[serde(default)]
    pub family: String,
    /// Locations.
    #[serde(default)]
    pub locations: Vec<String>,
    /// Locations, with zones.
    #[serde(default)]
    pub location_info: Vec<LocationInfo>,
    /// What it has.
    #[serde(default)]
    pub capabilities: Vec<Capability>,
    /// Where it may not be used.
    #[serde(default)]
    pub restrictions: Vec<Restriction>,
}

/// Where a disk of the operating system can be on the machine's own disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskPlacement {
    /// A local NVMe disk.
    NvmeDisk,
    /// The cache of the host.
    CacheDisk,
    /// The temporary disk.
    ResourceDisk,
}

impl DiskPlacement {
    /// As ARM names it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            DiskPlacement::NvmeDisk => "NvmeDisk",
            DiskPlacement::CacheDisk => "CacheDisk",
            DiskPlacement::ResourceDisk => "ResourceDisk",
        }
    }
}

const MIB: i64 = 1 << 20;
const GB: i64 = 1_000_000_000;

impl Sku {
    /// Value of a capability.
    #[must_use]
    pub fn capability(&self, name: &str) -> Option<&str> {
        self.capabilities
            .iter()
            .find(|capability| capability.name == name)
            .map(|capability| capability.value.as_str())
    }

    /// Whether a capability is `True`.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.capability(name)
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.capability(name)?.parse().ok()
    }

    fn lists(&self, name: &str, entry: &str) -> bool {
        self.capability(name)
            .is_some_and(|value| value.split(',').any(|one| one.trim() == entry))
    }

    /// vCPUs.
    #[must_use]
    pub fn cpus(&self) -> Option<i64> {
        self.number("vCPUs")
    }

    /// Memory in GiB: the capability `MemoryGB` counts these.
    #[must_use]
    pub fn memory_gib(&self) -> Option<f64> {
        self.capability("MemoryGB")?
            .parse()
            .ok()
            .filter(|gib: &f64| gib.is_finite() && *gib >= 0.0)
    }

    /// GPUs.
    #[must_use]
    pub fn gpus(&self) -> i64 {
        self.number("GPUs").unwrap_or(0)
    }

    /// Architecture as Kubernetes names it.
    #[must_use]
    pub fn architecture(&self) -> &str {
        match self.capability("CpuArchitectureType") {
            Some(arm) if arm.eq_ignore_ascii_case("arm64") => "arm64",
            Some(x64) if !x64.eq_ignore_ascii_case("x64") => x64,
            _ => "amd64",
        }
    }

    /// Generations of virtual machines, `1` and `2`.
    #[must_use]
    pub fn generations(&self) -> Vec<&'static str> {
        [("V1", "1"), ("V2", "2")]
            .into_iter()
            .filter(|(version, _)| self.lists("HyperVGenerations", version))
            .map(|(_, number)| number)
            .collect()
    }

    /// The parts of its name.
    #[must_use]
    pub fn size_name(&self) -> Option<SizeName> {
        SizeName::parse(&self.name)
    }

    /// Zones of a location that this subscription may use, sorted.
    #[must_use]
    pub fn zones(&self, location: &str) -> BTreeSet<String> {
        let mut zones: BTreeSet<String> = self
            .location_info
            .iter()
            .filter(|info| info.location.eq_ignore_ascii_case(location))
            .flat_map(|info| info.zones.iter().cloned())
            .collect();
        for restriction in self.restrictions.iter().filter(|it| it.kind == "Zone") {
            let info = &restriction.restriction_info;
            if info.locations.is_empty() || info.locations.iter().any(|it| it.eq_ignore_ascii_case(location))
            {
                zones.retain(|zone| !info.zones.contains(zone));
            }
        }
        zones
    }

    /// Whether this subscription may not use the size in a location.
    #[must_use]
    pub fn is_restricted_in(&self, location: &str) -> bool {
        self.restrictions
            .iter()
            .filter(|restriction| restriction.kind == "Location")
            .any(|restriction| {
                restriction
                    .values
                    .iter()
                    .any(|it| it.eq_ignore_ascii_case(location))
            })
    }

    /// Whether ultra disks can be attached to a machine in a zone, or to one without.
    #[must_use]
    pub fn has_ultra_disks(&self, location: &str, zone: Option<&str>) -> bool {
        const CAPABILITY: &str = "UltraSSDAvailable";
        let Some(zone) = zone else {
            return self.is(CAPABILITY);
        };
        self.location_info
            .iter()
            .filter(|info| info.location.eq_ignore_ascii_case(location))
            .flat_map(|info| &info.zone_details)
            .filter(|details| details.name.iter().any(|name| name == zone))
            .flat_map(|details| &details.capabilities)
            .any(|it| it.name == CAPABILITY && it.value.eq_ignore_ascii_case("true"))
    }

    /// The largest disk of the operating system that fits on the machine's own disks, in GB, and where it would be: NVMe before cache before the
    /// temporary disk (Z-022).
    #[must_use]
    pub fn ephemeral_os_disk(&self) -> Option<(i64, DiskPlacement)> {
        if !self.is("EphemeralOSDiskSupported") {
            return None;
        }
        let nvme = self
            .number("NvmeDiskSizeInMiB")
            .filter(|_| self.lists("SupportedEphemeralOSDiskPlacements", "NvmeDisk"));
        let sizes = [
            (nvme.map(|mib| mib.saturating_mul(MIB)), DiskPlacement::NvmeDisk),
            (self.number("CachedDiskBytes"), DiskPlacement::CacheDisk),
            (
                self.number("MaxResourceVolumeMB")
                    .map(|mib| mib.saturating_mul(MIB)),
                DiskPlacement::ResourceDisk,
            ),
        ];
        sizes
            .into_iter()
            .find_map(|(bytes, placement)| Some((bytes.filter(|bytes| *bytes > 0)? / GB, placement)))
    }
}

/// Facts of real sizes as the list would have them for a location. Rows whose source gives no zones have three.
#[must_use]
pub fn facts(location: &str) -> Vec<Sku> {
    let mut rows = FACTS.lines().filter(|line| !line.starts_with('#'));
    let header: Vec<&str> = rows.next().unwrap_or_default().split('\t').collect();
    rows.map(|row| {
        let cells: Vec<(&str, &str)> = header
            .iter()
            .copied()
            .zip(row.split('\t'))
            .filter(|(_, value)| *value != "-")
            .collect();
        let cell = |wanted: &str| {
            let found = cells.iter().find(|(column, _)| *column == wanted);
            found.map_or("", |(_, value)| value)
        };
        let zones: Vec<String> = cell("zones")
            .split(',')
            .filter(|zone| !zone.is_empty())
            .map(str::to_owned)
            .collect();
        let capabilities = cells
            .iter()
            .filter(|(column, _)| !["name", "family", "zones", "source"].contains(column))
            .map(|(column, value)| Capability {
                name: (*column).to_owned(),
                value: (*value).to_owned(),
            });
        Sku {
            name: cell("name").to_owned(),
            resource_type: MACHINES.to_owned(),
            family: cell("family").to_owned(),
            locations: vec![location.to_owned()],
            location_info: vec![LocationInfo {
                location: location.to_owned(),
                zones,
                zone_details: Vec::new(),
            }],
            capabilities: capabilities.collect(),
            restrictions: Vec::new(),
        }
    })
    .collect()
}
