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
    /// Images of which there is no version now.
    missing: std::sync::Mutex<BTreeMap<Definition, Missing>>,
}

/// An image of which there is no version.
#[derive(Debug)]
struct Missing {
    since: Timestamp,
    /// It was said that classes keep theirs. One without any says nothing of it: it may be the first that looks.
    is_told: bool,
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
        let entry = missing.entry(*definition).or_insert(Missing {
            since: now,
            is_told: false,
        });
        let kept = known().filter(|_| now.duration_since(entry.since) < GONE_AFTER);
        if kept.is_some() && !std::mem::replace(&mut entry.is_told, true) {
            tracing::warn!(
                image = definition.name,
                "there is no version of the image in this location any more; classes that have one keep it for an hour"
            );
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use spokeshave_api::aks_node_class::{AKSNodeClass, AKSNodeClassSpec};
    use spokeshave_provider_azure::images;

    use super::*;

    #[test]
    fn z_012_that_an_image_is_missing_is_told_once_and_not_for_a_class_that_has_none() {
        let class = AKSNodeClass::new("a", AKSNodeClassSpec::default());
        let definition = images::definitions(&class, "1.34.0").unwrap()[0];
        let galleries = Galleries::default();
        let image = || Some(NodeImage::default());
        let look = |found: Option<NodeImage>, known: Option<NodeImage>, second: i64| {
            let now = Timestamp::from_second(second).unwrap();
            let kept = galleries.kept(&definition, found, || known, now);
            let missing = galleries.missing.lock().unwrap();
            (kept.is_some(), missing.get(&definition).map(|one| one.is_told))
        };
        assert_eq!(
            look(None, None, 0),
            (false, Some(false)),
            "it has nothing to keep"
        );
        assert_eq!(look(None, image(), 60), (true, Some(true)));
        assert_eq!(look(None, image(), 120), (true, Some(true)));
        assert_eq!(look(None, image(), 3599), (true, Some(true)));
        assert_eq!(
            look(None, image(), 3600),
            (false, Some(true)),
            "an hour after it was first missed"
        );
        assert_eq!(look(image(), image(), 3700), (true, None));
        assert_eq!(
            look(None, image(), 3800),
            (true, Some(true)),
            "it is missing anew"
        );
        let other = Galleries::default();
        let kept = other.kept(&definition, None, image, Timestamp::UNIX_EPOCH);
        assert!(kept.is_some() && other.missing.lock().unwrap()[&definition].is_told);
    }
}
