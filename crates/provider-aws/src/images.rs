//! Images (A2.2): where the ID of an alias stands, which instance types an image is for, and which of several is taken.

use std::collections::BTreeMap;

use jiff::Timestamp;
use spokeshave_api::ec2_node_class::{Ami, AmiFamily};
use spokeshave_api::{Operator, Requirement as Entry};
use spokeshave_model::{Requirement, Requirements, labels as core};

use crate::labels;

/// What an image was built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Neither GPUs nor accelerators.
    Standard,
    /// GPUs of NVIDIA.
    Nvidia,
    /// Neuron devices.
    Neuron,
}

/// An SSM parameter that holds the ID of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageParameter {
    /// Its name.
    pub name: String,
    /// What the image is for; one image may be for several variants.
    pub variants: Vec<Variant>,
    /// Architecture as Kubernetes names it.
    pub architecture: &'static str,
}

/// An alias that has no images on this version of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AliasError {
    /// The family's images are not built for this version (`UnsupportedAlias`).
    #[error("{family} images are not published for Kubernetes {kubernetes}; use {instead}")]
    Unsupported {
        /// The family.
        family: &'static str,
        /// Version of Kubernetes, such as `1.34`.
        kubernetes: String,
        /// What to use.
        instead: &'static str,
    },
}

/// The parameters of an alias, for Kubernetes `1.<minor>`. None for families that have no alias.
///
/// # Errors
/// When the family has no images for this version of Kubernetes.
pub fn parameters(family: &AmiFamily, version: &str, minor: u32) -> Result<Vec<ImageParameter>, AliasError> {
    let kubernetes = format!("1.{minor}");
    Ok(match family {
        AmiFamily::Al2023 => al2023(version, &kubernetes),
        AmiFamily::Al2 if minor >= 33 => {
            return Err(AliasError::Unsupported {
                family: "AL2",
                kubernetes,
                instead: "al2023",
            });
        }
        AmiFamily::Al2 => al2(version, &kubernetes),
        AmiFamily::Bottlerocket => bottlerocket(version, &kubernetes),
        AmiFamily::Windows2025 if minor < 35 => {
            return Err(AliasError::Unsupported {
                family: "Windows2025",
                kubernetes,
                instead: "windows2022",
            });
        }
        AmiFamily::Windows2019 => windows("2019", &kubernetes),
        AmiFamily::Windows2022 => windows("2022", &kubernetes),
        AmiFamily::Windows2025 => windows("2025", &kubernetes),
        AmiFamily::Custom | AmiFamily::Other(_) => Vec::new(),
    })
}

fn al2023(version: &str, kubernetes: &str) -> Vec<ImageParameter> {
    let rows = [
        ("arm64", "arm64", "standard", Variant::Standard),
        ("x86_64", "amd64", "standard", Variant::Standard),
        ("arm64", "arm64", "nvidia", Variant::Nvidia),
        ("x86_64", "amd64", "nvidia", Variant::Nvidia),
        ("x86_64", "amd64", "neuron", Variant::Neuron),
    ];
    rows.map(|(ec2, architecture, name, variant)| {
        let folder = match version {
            "latest" => "recommended".to_owned(),
            pinned => format!("amazon-eks-node-al2023-{ec2}-{name}-{kubernetes}-{pinned}"),
        };
        ImageParameter {
            name: format!(
                "/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{ec2}/{name}/{folder}/image_id"
            ),
            variants: vec![variant],
            architecture,
        }
    })
    .to_vec()
}

fn al2(version: &str, kubernetes: &str) -> Vec<ImageParameter> {
    let rows: [(&str, &str, &str, &[Variant]); 3] = [
        ("amazon-linux-2", "amazon-eks-node", "amd64", &[Variant::Standard]),
        (
            "amazon-linux-2-arm64",
            "amazon-eks-arm64-node",
            "arm64",
            &[Variant::Standard],
        ),
        (
            "amazon-linux-2-gpu",
            "amazon-eks-gpu-node",
            "amd64",
            &[Variant::Nvidia, Variant::Neuron],
        ),
    ];
    rows.map(|(path, name, architecture, variants)| {
        let folder = match version {
            "latest" => "recommended".to_owned(),
            pinned => format!("{name}-{kubernetes}-{pinned}"),
        };
        ImageParameter {
            name: format!("/aws/service/eks/optimized-ami/{kubernetes}/{path}/{folder}/image_id"),
            variants: variants.to_vec(),
            architecture,
        }
    })
    .to_vec()
}

fn bottlerocket(version: &str, kubernetes: &str) -> Vec<ImageParameter> {
    let version = version.trim_start_matches('v');
    let rows: [(&str, &str, &str, &[Variant]); 4] = [
        ("", "x86_64", "amd64", &[Variant::Standard, Variant::Neuron]),
        ("", "arm64", "arm64", &[Variant::Standard]),
        ("-nvidia", "x86_64", "amd64", &[Variant::Nvidia]),
        ("-nvidia", "arm64", "arm64", &[Variant::Nvidia]),
    ];
    rows.map(|(suffix, ec2, architecture, variants)| ImageParameter {
        name: format!("/aws/service/bottlerocket/aws-k8s-{kubernetes}{suffix}/{ec2}/{version}/image_id"),
        variants: variants.to_vec(),
        architecture,
    })
    .to_vec()
}

fn windows(year: &str, kubernetes: &str) -> Vec<ImageParameter> {
    vec![ImageParameter {
        name: format!(
            "/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}/image_id"
        ),
        variants: vec![Variant::Standard],
        architecture: "amd64",
    }]
}

/// Which instance types an image of a variant and architecture is for.
#[must_use]
pub fn requirements(architecture: &str, variant: Option<Variant>) -> Vec<Entry> {
    let mut entries = vec![Entry::new(core::ARCH, Operator::In, &[architecture])];
    let absent = |key: &str| Entry::new(key, Operator::DoesNotExist, &[]);
    let present = |key: &str| Entry::new(key, Operator::Exists, &[]);
    match variant {
        None => {}
        Some(Variant::Standard) => entries.extend([
            absent(labels::INSTANCE_GPU_COUNT),
            absent(labels::INSTANCE_ACCELERATOR_COUNT),
        ]),
        Some(Variant::Nvidia) => entries.push(present(labels::INSTANCE_GPU_COUNT)),
        Some(Variant::Neuron) => entries.push(present(labels::INSTANCE_ACCELERATOR_COUNT)),
    }
    entries
}

/// Which instance types an image of Windows of this build is for.
#[must_use]
pub fn windows_requirements(architecture: &str, build: &str) -> Vec<Entry> {
    vec![
        Entry::new(core::OS, Operator::In, &["windows"]),
        Entry::new(core::ARCH, Operator::In, &[architecture]),
        Entry::new(core::WINDOWS_BUILD, Operator::In, &[build]),
    ]
}

/// The family that an alias names; admission refuses others than these.
#[must_use]
pub fn alias_family(name: &str) -> AmiFamily {
    match name {
        "al2" => AmiFamily::Al2,
        "al2023" => AmiFamily::Al2023,
        "bottlerocket" => AmiFamily::Bottlerocket,
        "windows2019" => AmiFamily::Windows2019,
        "windows2022" => AmiFamily::Windows2022,
        "windows2025" => AmiFamily::Windows2025,
        _ => AmiFamily::Custom,
    }
}

/// An image that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// ID, name, deprecation and requirements.
    pub ami: Ami,
    /// When it was made.
    pub created: Timestamp,
}

/// One image for each set of requirements: not deprecated before deprecated, then the newest, then the last by name; in the order of the status,
/// newest first.
#[must_use]
pub fn choose(found: impl IntoIterator<Item = Found>) -> Vec<Ami> {
    let rank = |found: &Found| {
        (
            found.ami.deprecated,
            std::cmp::Reverse(found.created),
            std::cmp::Reverse(found.ami.name.clone()),
            found.ami.id.clone(),
        )
    };
    let mut best: BTreeMap<String, Found> = BTreeMap::new();
    for candidate in found {
        let mut entries: Vec<String> = candidate
            .ami
            .requirements
            .iter()
            .map(|entry| format!("{entry:?}"))
            .collect();
        entries.sort();
        let known = best.entry(entries.join(";")).or_insert_with(|| candidate.clone());
        if rank(&candidate) < rank(known) {
            *known = candidate;
        }
    }
    let mut chosen: Vec<Found> = best.into_values().collect();
    chosen.sort_by_key(|found| (std::cmp::Reverse(found.created), found.ami.id.clone()));
    chosen.into_iter().map(|found| found.ami).collect()
}

/// The image for an instance type: the first whose requirements fit.
#[must_use]
pub fn image_for<'a>(amis: &'a [Ami], instance_type: &Requirements) -> Option<&'a Ami> {
    amis.iter().find(|ami| {
        let wanted = ami
            .requirements
            .iter()
            .filter_map(|entry| Requirement::parse(&entry.key, entry.operator.as_str(), &entry.values).ok());
        let wanted: Requirements = wanted.collect();
        instance_type.intersects(&wanted).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(family: &AmiFamily, version: &str) -> Vec<String> {
        parameters(family, version, 32)
            .unwrap()
            .into_iter()
            .map(|parameter| parameter.name)
            .collect()
    }

    #[test]
    fn a_024_parameters_of_aliases_by_architecture_variant_and_version() {
        assert_eq!(
            names(&AmiFamily::Al2023, "latest")[3],
            "/aws/service/eks/optimized-ami/1.32/amazon-linux-2023/x86_64/nvidia/recommended/image_id"
        );
        assert_eq!(
            names(&AmiFamily::Al2023, "v20260101")[0],
            "/aws/service/eks/optimized-ami/1.32/amazon-linux-2023/arm64/standard/amazon-eks-node-al2023-arm64-standard-1.32-v20260101/image_id"
        );
        assert_eq!(
            names(&AmiFamily::Bottlerocket, "v1.46.0")[2],
            "/aws/service/bottlerocket/aws-k8s-1.32-nvidia/x86_64/1.46.0/image_id"
        );
        assert!(names(&AmiFamily::Custom, "latest").is_empty());
    }

    #[test]
    fn a_026_al2_and_windows_have_images_for_some_versions_of_kubernetes() {
        assert_eq!(
            names(&AmiFamily::Al2, "v20250101")[2],
            "/aws/service/eks/optimized-ami/1.32/amazon-linux-2-gpu/amazon-eks-gpu-node-1.32-v20250101/image_id"
        );
        assert_eq!(
            names(&AmiFamily::Windows2022, "latest"),
            ["/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.32/image_id"]
        );
        for (family, minor, supported) in [
            (AmiFamily::Al2, 32, true),
            (AmiFamily::Al2, 33, false),
            (AmiFamily::Windows2025, 34, false),
            (AmiFamily::Windows2025, 35, true),
        ] {
            assert_eq!(
                parameters(&family, "latest", minor).is_ok(),
                supported,
                "{family} on 1.{minor}"
            );
        }
        assert_eq!(
            parameters(&AmiFamily::Al2, "latest", 34).unwrap_err().to_string(),
            "AL2 images are not published for Kubernetes 1.34; use al2023"
        );
    }

    fn found(id: &str, created: i64, deprecated: bool, variant: Variant) -> Found {
        Found {
            ami: Ami {
                id: id.into(),
                name: id.into(),
                deprecated,
                requirements: requirements("amd64", Some(variant)),
            },
            created: Timestamp::from_second(created).unwrap(),
        }
    }

    #[test]
    fn a_029_the_best_image_of_each_set_of_requirements() {
        let chosen = choose([
            found("old", 1, false, Variant::Standard),
            found("deprecated", 9, true, Variant::Standard),
            found("new", 5, false, Variant::Standard),
            found("new-too", 5, false, Variant::Standard),
            found("gpu", 7, true, Variant::Nvidia),
        ]);
        let ids: Vec<&str> = chosen.iter().map(|ami| ami.id.as_str()).collect();
        assert_eq!(
            ids,
            ["gpu", "new-too"],
            "newest first; a deprecated image only where there is no other"
        );
    }

    #[test]
    fn a_029_an_instance_type_gets_the_first_image_that_fits() {
        let amis = choose([
            found("plain", 1, false, Variant::Standard),
            found("gpu", 2, false, Variant::Nvidia),
        ]);
        let machine = |gpus: Option<&str>| -> Requirements {
            let gpus = match gpus {
                Some(count) => Requirement::is(labels::INSTANCE_GPU_COUNT, count),
                None => Requirement::does_not_exist(labels::INSTANCE_GPU_COUNT),
            };
            [
                Requirement::is(core::ARCH, "amd64"),
                gpus,
                Requirement::does_not_exist(labels::INSTANCE_ACCELERATOR_COUNT),
            ]
            .into_iter()
            .collect()
        };
        let chosen = |gpus| image_for(&amis, &machine(gpus)).map(|ami| ami.id.as_str());
        assert_eq!(chosen(None), Some("plain"));
        assert_eq!(chosen(Some("4")), Some("gpu"));
        let arm: Requirements = [Requirement::is(core::ARCH, "arm64")].into_iter().collect();
        assert_eq!(image_for(&amis, &arm), None);
    }
}
