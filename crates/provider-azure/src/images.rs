//! Which images a class uses, and which of them a machine starts from (Z2).
//!
//! Owns the definitions in the community galleries and the choice among their versions. Asking the galleries is the caller's.

use jiff::Timestamp;
use serde::Deserialize;
use spokeshave_api::aks_node_class::{ImageFamily, NodeImage};
use spokeshave_api::{AKSNodeClass, Operator, Requirement as ApiRequirement};
use spokeshave_model::labels as core;
use spokeshave_model::{InstanceType, Requirements};

use crate::instance_types;
use crate::labels;

/// Public name of the gallery of Ubuntu images.
pub const UBUNTU_GALLERY: &str = "AKSUbuntu-38d80f77-467a-481f-a8d4-09b6d4220bd2";
/// Public name of the gallery of Azure Linux images.
pub const AZURE_LINUX_GALLERY: &str = "AKSAzureLinux-f7c7cda5-1c9a-4bdc-a222-9614c968580b";

/// An annotation of the class with the ID of an image that is used for all machines, instead of what the galleries have.
pub const IMAGE_ANNOTATION: &str = "spokeshave.dev/azure-image-id";

/// An image of which a gallery has versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Definition {
    /// Public name of the gallery.
    pub gallery: &'static str,
    /// Name of the image in it.
    pub name: &'static str,
    architecture: &'static str,
    generation: &'static str,
}

/// Why a class has no images.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// FIPS images are in galleries that are not public.
    #[error(
        "spec.fipsMode is FIPS, whose images are only in shared galleries, which are not read; use Disabled"
    )]
    Fips,
    /// A family that has no images with validated cryptography.
    #[error(
        "spec.fipsMode is FIPS, for which spec.imageFamily {0} has no images; use AzureLinux, or Ubuntu, with trusted launch only Ubuntu"
    )]
    NoFips(String),
    /// A family of which nothing is known.
    #[error("spec.imageFamily {0:?} has no images; expected Ubuntu, Ubuntu2204, Ubuntu2404 or AzureLinux")]
    Family(String),
    /// The version of Kubernetes cannot be read.
    #[error("the version of Kubernetes is {0:?}; expected one such as 1.34.1")]
    KubernetesVersion(String),
    /// None of the definitions has a version.
    #[error("none of the image definitions {0} has a version in this location")]
    NotFound(String),
}

/// Major and minor of a version such as `v1.34.1`.
#[must_use]
pub fn minor_version(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let digits = minor.find(|it: char| !it.is_ascii_digit()).unwrap_or(minor.len());
    Some((major, minor[..digits].parse().ok()?))
}

const UBUNTU_2204: [&str; 4] = [
    "2204gen2containerd",
    "2204containerd",
    "2204gen2arm64containerd",
    "2204gen2TLcontainerd",
];
const UBUNTU_2404: [&str; 4] = [
    "2404gen2containerd",
    "2404containerd",
    "2404gen2arm64containerd",
    "2404gen2TLcontainerd",
];
const AZURE_LINUX_2: [&str; 4] = ["V2gen2", "V2", "V2gen2arm64", "V2gen2TL"];
const AZURE_LINUX_3: [&str; 4] = ["V3gen2", "V3", "V3gen2arm64", "V3gen2TL"];

/// Definitions of the class's images in order of preference: generation 2, generation 1, arm64; with trusted launch only the one that has it.
///
/// # Errors
/// When there are no such images.
pub fn definitions(class: &AKSNodeClass, kubernetes_version: &str) -> Result<Vec<Definition>, ImageError> {
    if class.spec.fips_mode.as_deref() == Some("FIPS") {
        return Err(ImageError::Fips);
    }
    let version = minor_version(kubernetes_version)
        .ok_or_else(|| ImageError::KubernetesVersion(kubernetes_version.to_owned()))?;
    let (gallery, names) = match instance_types::image_family(class) {
        ImageFamily::Ubuntu if version >= (1, 34) => (UBUNTU_GALLERY, UBUNTU_2404),
        ImageFamily::Ubuntu | ImageFamily::Ubuntu2204 => (UBUNTU_GALLERY, UBUNTU_2204),
        ImageFamily::Ubuntu2404 => (UBUNTU_GALLERY, UBUNTU_2404),
        ImageFamily::AzureLinux if version >= (1, 32) => (AZURE_LINUX_GALLERY, AZURE_LINUX_3),
        ImageFamily::AzureLinux => (AZURE_LINUX_GALLERY, AZURE_LINUX_2),
        ImageFamily::Other(family) => return Err(ImageError::Family(family)),
    };
    let [second, first, arm, trusted] = names;
    let definition = |name, architecture, generation| Definition {
        gallery,
        name,
        architecture,
        generation,
    };
    if instance_types::wants_trusted_launch(class) {
        return Ok(vec![definition(trusted, "amd64", "2")]);
    }
    Ok(vec![
        definition(second, "amd64", "2"),
        definition(first, "amd64", "1"),
        definition(arm, "arm64", "2"),
    ])
}

/// A version of a community gallery's image.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ImageVersion {
    /// Such as `202608.10.0`.
    pub name: String,
    /// When it was published.
    #[serde(default)]
    pub properties: ImageVersionProperties,
}

/// Properties of a version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageVersionProperties {
    /// When it was published.
    #[serde(default)]
    pub published_date: Option<Timestamp>,
    /// Whether it is left out when the latest is asked for.
    #[serde(default)]
    pub exclude_from_latest: bool,
}

/// The version that was published last (Z-012).
#[must_use]
pub fn newest(versions: &[ImageVersion]) -> Option<&ImageVersion> {
    versions
        .iter()
        .filter(|version| !version.properties.exclude_from_latest)
        .max_by_key(|version| (version.properties.published_date, &version.name))
}

impl Definition {
    /// Resource ID of a version.
    #[must_use]
    pub fn image_id(&self, version: &str) -> String {
        format!(
            "/CommunityGalleries/{}/images/{}/versions/{version}",
            self.gallery, self.name
        )
    }

    /// The name that AKS has for a version.
    #[must_use]
    pub fn aks_name(&self, version: &str) -> String {
        format!("{}-{}-{version}", self.os(), self.name)
    }

    /// What AKS calls the family: the public name of a gallery is that and a number.
    fn os(&self) -> &'static str {
        self.gallery.split('-').next().unwrap_or_default()
    }

    /// The newest version of the gallery's as the class's status has it.
    #[must_use]
    pub fn newest_image(&self, versions: &[ImageVersion]) -> Option<NodeImage> {
        let version = &newest(versions)?.name;
        Some(self.node_image(self.image_id(version)))
    }

    /// The newest version of those that AKS lists as the class's status has it, under AKS's own name of it (`AKSUbuntu-2404gen2containerd-202608.10.0`).
    #[must_use]
    pub fn newest_of_aks(&self, versions: &[NodeImageVersion]) -> Option<NodeImage> {
        let newest = versions
            .iter()
            .filter(|it| it.os == self.os() && it.sku == self.name)
            .max_by_key(|it| numbers(&it.version))?;
        Some(self.node_image(self.aks_name(&newest.version)))
    }

    /// The image of a class that is a version of this one: `id` says what the ID of a version is.
    #[must_use]
    pub fn known(&self, images: &[NodeImage], id: fn(&Self, &str) -> String) -> Option<NodeImage> {
        let prefix = id(self, "");
        let is_its = |image: &&NodeImage| {
            let start = image.id.get(..prefix.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(&prefix))
        };
        images.iter().find(is_its).cloned()
    }

    fn node_image(&self, id: String) -> NodeImage {
        NodeImage {
            id,
            requirements: vec![
                ApiRequirement::new(core::ARCH, Operator::In, &[self.architecture]),
                ApiRequirement::new(labels::SKU_HYPERV_GENERATION, Operator::In, &[self.generation]),
            ],
        }
    }
}

/// The images of a class: of those definitions of which there is one.
///
/// # Errors
/// When there is none.
pub fn images(found: &[(Definition, Option<NodeImage>)]) -> Result<Vec<NodeImage>, ImageError> {
    let images: Vec<NodeImage> = found.iter().filter_map(|(_, image)| image.clone()).collect();
    if images.is_empty() {
        let names: Vec<&str> = found.iter().map(|(definition, _)| definition.name).collect();
        return Err(ImageError::NotFound(names.join(", ")));
    }
    Ok(images)
}

/// A version of a node image as AKS lists it for a location.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeImageVersion {
    /// Such as `AKSUbuntu`.
    pub os: String,
    /// Such as `2404gen2containerd`.
    pub sku: String,
    /// Such as `202608.10.0`.
    pub version: String,
}

const UBUNTU_2004_FIPS: [&str; 2] = ["2004gen2fipscontainerd", "2004fipscontainerd"];
const UBUNTU_2204_TRUSTED_FIPS: &str = "2204gen2fipsTLcontainerd";
const AZURE_LINUX_2_FIPS: [&str; 2] = ["V2gen2fips", "V2fips"];
const AZURE_LINUX_3_FIPS: [&str; 2] = ["V3gen2fips", "V3fips"];
const AZURE_LINUX_3_ARM_FIPS: &str = "V3gen2arm64fips";

/// Definitions of the images that AKS makes the class's machines from. Those with validated cryptography are in no community gallery.
///
/// # Errors
/// When there are no such images.
pub fn node_image_definitions(
    class: &AKSNodeClass,
    kubernetes_version: &str,
) -> Result<Vec<Definition>, ImageError> {
    if !instance_types::wants_fips(class) {
        return definitions(class, kubernetes_version);
    }
    let version = minor_version(kubernetes_version)
        .ok_or_else(|| ImageError::KubernetesVersion(kubernetes_version.to_owned()))?;
    let trusted = instance_types::wants_trusted_launch(class);
    let (gallery, names, arm) = match instance_types::image_family(class) {
        ImageFamily::Ubuntu | ImageFamily::Ubuntu2204 if trusted => {
            return Ok(vec![Definition {
                gallery: UBUNTU_GALLERY,
                name: UBUNTU_2204_TRUSTED_FIPS,
                architecture: "amd64",
                generation: "2",
            }]);
        }
        ImageFamily::Ubuntu => (UBUNTU_GALLERY, UBUNTU_2004_FIPS, None),
        ImageFamily::AzureLinux if !trusted && version >= (1, 32) => (
            AZURE_LINUX_GALLERY,
            AZURE_LINUX_3_FIPS,
            Some(AZURE_LINUX_3_ARM_FIPS),
        ),
        ImageFamily::AzureLinux if !trusted => (AZURE_LINUX_GALLERY, AZURE_LINUX_2_FIPS, None),
        family => return Err(ImageError::NoFips(family.as_str().to_owned())),
    };
    let definition = |name, architecture, generation| Definition {
        gallery,
        name,
        architecture,
        generation,
    };
    let [second, first] = names;
    let mut all = vec![definition(second, "amd64", "2"), definition(first, "amd64", "1")];
    all.extend(arm.map(|name| definition(name, "arm64", "2")));
    Ok(all)
}

/// Versions in order, by their numbers.
fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// The first image that suits a machine of this type.
#[must_use]
pub fn image_for<'a>(images: &'a [NodeImage], instance_type: &InstanceType) -> Option<&'a NodeImage> {
    images.iter().find(|image| {
        Requirements::from_api(&image.requirements)
            .is_ok_and(|wanted| instance_type.requirements.intersects(&wanted).is_ok())
    })
}
