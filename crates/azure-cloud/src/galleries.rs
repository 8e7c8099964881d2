//! Versions of images, which all classes share (Z-012): a gallery is asked once in a while, however many classes are looked at.
//!
//! Owns how long an answer holds, and when one without any version is believed. Which versions a class uses is `provider-azure`'s.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::aks_node_class::NodeImage;
use spokeshave_provider_azure::errors::ArmError;
use spokeshave_provider_azure::images::{Definition, ImageVersion, NodeImageVersion};
use tokio::sync::Mutex;

use crate::calls::Calls;

/// An answer holds for so long: shorter than the pause between two looks at a class, so that each look of a single class is a new one.
const HOLDS: SignedDuration = SignedDuration::from_mins(2);
/// An image of which there has been no version for so long is gone. One answer without any says nothing: what runs the image would be replaced for it.
const GONE_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// When it was read, and what it says.
type Read<T> = (Timestamp, Vec<T>);

/// What was read lately.
#[derive(Debug, Default)]
pub(crate) struct Galleries {
    community: Mutex<BTreeMap<(&'static str, &'static str), Read<ImageVersion>>>,
    of_aks: Mutex<Option<Read<NodeImageVersion>>>,
    /// Images of which there is no version now, since when.
    missing: std::sync::Mutex<BTreeMap<Definition, Timestamp>>,
}

fn held<T: Clone>(read: Option<&Read<T>>, now: Timestamp) -> Option<Vec<T>> {
    let (at, versions) = read?;
    (now.duration_since(*at) < HOLDS).then(|| versions.clone())
}

impl Galleries {
    /// Versions of an image of a community gallery. Whoever asks meanwhile waits for the same answer.
    pub(crate) async fn versions(
        &self,
        calls: &Calls<'_>,
        definition: &Definition,
    ) -> Result<Vec<ImageVersion>, ArmError> {
        let key = (definition.gallery, definition.name);
        let mut community = self.community.lock().await;
        let now = calls.client.clock().now();
        if let Some(versions) = held(community.get(&key), now) {
            return Ok(versions);
        }
        let versions = calls.image_versions(definition).await?;
        community.insert(key, (now, versions.clone()));
        Ok(versions)
    }

    /// Images that AKS lists for the location.
    pub(crate) async fn node_images(&self, calls: &Calls<'_>) -> Result<Vec<NodeImageVersion>, ArmError> {
        let mut of_aks = self.of_aks.lock().await;
        let now = calls.client.clock().now();
        if let Some(versions) = held(of_aks.as_ref(), now) {
            return Ok(versions);
        }
        let versions = calls.node_image_versions().await?;
        *of_aks = Some((now, versions.clone()));
        Ok(versions)
    }

    /// The image of a definition: what was found or, where there is none, what the class has of it, until it is gone.
    pub(crate) fn kept(
        &self,
        definition: &Definition,
        found: Option<NodeImage>,
        known: impl FnOnce() -> Option<NodeImage>,
        now: Timestamp,
    ) -> Option<NodeImage> {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        if found.is_some() {
            missing.remove(definition);
            return found;
        }
        let is_new = !missing.contains_key(definition);
        let since = *missing.entry(*definition).or_insert(now);
        let kept = known().filter(|_| now.duration_since(since) < GONE_AFTER);
        if is_new && kept.is_some() {
            tracing::warn!(
                image = definition.name,
                "there is no version of the image in this location any more; classes that have one keep it for an hour"
            );
        }
        kept
    }
}
