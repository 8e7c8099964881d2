//! Images: what community galleries have, and what AKS lists.
//!
//! Owns which there are. Both have the versions that the options name.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::azure::Azure;
use crate::state::{State, later};

/// When the first version of an image was published: 2026-07-01.
const FIRST_PUBLISHED: Timestamp = Timestamp::constant(1_782_864_000, 0);
const A_MONTH: jiff::SignedDuration = jiff::SignedDuration::from_hours(30 * 24);

impl Azure {
    /// There is no version of this image from now on, such as `2404containerd`, in no gallery and not at AKS.
    pub fn hide_image(&self, image: &str) {
        self.state().hidden_images.insert(image.to_lowercase());
    }
}

impl State {
    /// Versions of an image, each published a month after the one before.
    pub(crate) fn image_versions(&self, gallery: &str, image: &str) -> Vec<Value> {
        let version = |(number, name): (usize, &String)| {
            let months = i32::try_from(number).unwrap_or(0);
            let published = later(FIRST_PUBLISHED, A_MONTH * months).to_string();
            let id = format!("/CommunityGalleries/{gallery}/Images/{image}/Versions/{name}");
            json!({
                "name": name,
                "location": self.options.region,
                "identifier": {"uniqueId": id},
                "properties": {"publishedDate": published, "excludeFromLatest": false},
            })
        };
        if self.hidden_images.contains(&image.to_lowercase()) {
            return Vec::new();
        }
        self.options
            .image_versions
            .iter()
            .enumerate()
            .map(version)
            .collect()
    }

    /// Node images that AKS has, as the community galleries have them.
    pub(crate) fn node_image_versions(&self) -> Vec<Value> {
        const ALL: [(&str, &[&str]); 2] = [
            (
                "AKSUbuntu",
                &[
                    "2204gen2containerd",
                    "2204containerd",
                    "2204gen2arm64containerd",
                    "2204gen2TLcontainerd",
                    "2404gen2containerd",
                    "2404containerd",
                    "2404gen2arm64containerd",
                    "2404gen2TLcontainerd",
                    "2004gen2fipscontainerd",
                    "2004fipscontainerd",
                ],
            ),
            (
                "AKSAzureLinux",
                &[
                    "V3gen2",
                    "V3",
                    "V3gen2arm64",
                    "V3gen2TL",
                    "V3gen2fips",
                    "V3fips",
                    "V3gen2arm64fips",
                ],
            ),
        ];
        let mut all = Vec::new();
        for version in &self.options.image_versions {
            for (os, skus) in ALL {
                let shown = skus
                    .iter()
                    .filter(|sku| !self.hidden_images.contains(&sku.to_lowercase()));
                all.extend(shown.map(|sku| {
                    json!({"os": os, "sku": sku, "version": version, "fullName": format!("{os}-{sku}-{version}")})
                }));
            }
        }
        all
    }
}
