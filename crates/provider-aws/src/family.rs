//! What the families of images have in common with one another, and what sets them apart (A2.2, A3.2, A3.3).

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use spokeshave_api::ec2_node_class::{AmiFamily, BlockDevice, BlockDeviceMapping};

const GIB: i64 = 1 << 30;

/// Bytes of ephemeral storage where nothing says otherwise.
pub const DEFAULT_VOLUME_BYTES: i64 = 20 * GIB;

/// How a family differs from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// Device that holds pods' ephemeral storage; `None` for an image of which nothing is known.
    pub ephemeral_device: Option<&'static str>,
    /// Whether interfaces and their addresses limit the number of pods; otherwise it is 110.
    pub pods_limited_by_interfaces: bool,
    /// Whether memory is reserved for as many pods as the interfaces would allow, however many are configured.
    pub reserves_memory_by_interfaces: bool,
    /// Whether `podsPerCore` has an effect.
    pub pods_per_core: bool,
    /// The value of `node.kubernetes.io/windows-build`; `None` for Linux.
    pub windows_build: Option<&'static str>,
}

/// How a family differs from the others. A family that this version does not know is like `Custom`.
#[must_use]
pub fn traits(family: &AmiFamily) -> Traits {
    let linux = Traits {
        ephemeral_device: Some("/dev/xvda"),
        pods_limited_by_interfaces: true,
        reserves_memory_by_interfaces: true,
        pods_per_core: true,
        windows_build: None,
    };
    let windows = |build| Traits {
        ephemeral_device: Some("/dev/sda1"),
        pods_limited_by_interfaces: false,
        reserves_memory_by_interfaces: false,
        pods_per_core: true,
        windows_build: Some(build),
    };
    match family {
        AmiFamily::Al2 | AmiFamily::Al2023 => linux,
        AmiFamily::Bottlerocket => Traits {
            ephemeral_device: Some("/dev/xvdb"),
            reserves_memory_by_interfaces: false,
            pods_per_core: false,
            ..linux
        },
        AmiFamily::Windows2019 => windows("10.0.17763"),
        AmiFamily::Windows2022 => windows("10.0.20348"),
        AmiFamily::Windows2025 => windows("10.0.26100"),
        AmiFamily::Custom | AmiFamily::Other(_) => Traits {
            ephemeral_device: None,
            ..linux
        },
    }
}

/// The volumes of a family whose class names none (A3.2).
#[must_use]
pub fn default_block_device_mappings(family: &AmiFamily) -> Vec<BlockDeviceMapping> {
    let mapping = |device: &str, size_gib: i64| BlockDeviceMapping {
        device_name: Some(device.to_owned()),
        ebs: Some(BlockDevice {
            encrypted: Some(true),
            volume_type: Some("gp3".to_owned()),
            volume_size: Some(Quantity(format!("{size_gib}Gi"))),
            ..BlockDevice::default()
        }),
        root_volume: false,
    };
    match family {
        AmiFamily::Al2 | AmiFamily::Al2023 => vec![mapping("/dev/xvda", 20)],
        AmiFamily::Bottlerocket => vec![mapping("/dev/xvda", 4), mapping("/dev/xvdb", 20)],
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            vec![mapping("/dev/sda1", 50)]
        }
        AmiFamily::Custom | AmiFamily::Other(_) => Vec::new(),
    }
}
