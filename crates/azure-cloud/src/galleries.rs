//! Versions of images, which all classes share (Z-012): a gallery is asked once in a while, however many classes are looked at.
//!
//! Owns how long an answer holds. Which versions a class uses is `provider-azure`'s.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use spokeshave_provider_azure::errors::ArmError;
use spokeshave_provider_azure::images::{Definition, ImageVersion, NodeImageVersion};
use tokio::sync::Mutex;

use crate::calls::Calls;

/// An answer holds for so long: shorter than the pause between two looks at a class, so that each look of a single class is a new one.
const HOLDS: SignedDuration = SignedDuration::from_mins(2);

/// When it was read, and what it says.
type Read<T> = (Timestamp, Vec<T>);

/// What was read lately.
#[derive(Debug, Default)]
pub(crate) struct Galleries {
    community: Mutex<BTreeMap<(&'static str, &'static str), Read<ImageVersion>>>,
    of_aks: Mutex<Option<Read<NodeImageVersion>>>,
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
}
