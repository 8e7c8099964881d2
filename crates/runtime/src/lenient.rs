//! An object that may turn out to be unreadable.
//!
//! Owns the guard that keeps one malformed object from breaking the list or watch that carries it: decoding never fails, it
//! gives either the object or its name with the reason. It never repairs anything.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};

/// Either an object, or the metadata of one that does not decode and why.
#[derive(Clone, Debug)]
pub(crate) enum Lenient<K> {
    Good(K),
    Bad {
        metadata: Box<ObjectMeta>,
        error: String,
    },
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Lenient<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct MetadataOnly {
            metadata: ObjectMeta,
        }
        // Through a tree, because the object must be readable a second time.
        let tree = serde_json::Value::deserialize(deserializer)?;
        match K::deserialize(&tree) {
            Ok(object) => Ok(Lenient::Good(object)),
            Err(error) => {
                let bare = MetadataOnly::deserialize(&tree).map_err(D::Error::custom)?;
                Ok(Lenient::Bad {
                    metadata: Box::new(bare.metadata),
                    error: error.to_string(),
                })
            }
        }
    }
}

impl<K: Resource> Resource for Lenient<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }
    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }
    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }
    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }
    fn api_version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::api_version(dt)
    }
    fn metadata_api() -> bool {
        K::metadata_api()
    }
    fn meta(&self) -> &ObjectMeta {
        match self {
            Lenient::Good(object) => object.meta(),
            Lenient::Bad { metadata, .. } => metadata,
        }
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Lenient::Good(object) => object.meta_mut(),
            Lenient::Bad { metadata, .. } => metadata,
        }
    }
}
