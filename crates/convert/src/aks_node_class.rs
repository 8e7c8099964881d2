//! AKSNodeClass of `karpenter.azure.com/v1alpha2` as v1beta1 (Z1.1, Z1.2).
//!
//! Both have the same fields. Owns what differed while v1alpha2 grew: the default of `imageFamily`, and `imageVersion`, which is gone.

use serde_json::{Value, json};

use crate::fields::{get, remove};
use crate::report::Notes;
use crate::{World, metadata};

/// The API group.
pub(crate) const GROUP: &str = "karpenter.azure.com";
/// The kind.
pub(crate) const KIND: &str = "AKSNodeClass";
/// The version that is served and stored.
const SERVED: &str = "karpenter.azure.com/v1beta1";

/// Converts one AKSNodeClass of v1alpha2.
pub(crate) fn convert(mut object: Value, world: &mut World, notes: &mut Notes) {
    object["apiVersion"] = json!(SERVED);
    notes.moved(
        "apiVersion",
        "apiVersion",
        format!("{SERVED}, which has the same fields"),
    );
    if let Some(meta) = remove(&mut object, &["metadata"]) {
        object["metadata"] = metadata::converted(meta, notes);
    }
    if remove(&mut object, &["status"]).is_some() {
        notes.dropped("status", "written by the controllers");
    }
    if let Some(version) = remove(&mut object, &["spec", "imageVersion"]) {
        notes.manual(
            "spec.imageVersion",
            format!("{version} named an image until v1alpha2 lost the field; nodes get the newest image of the family"),
        );
    }
    if get(&object, &["spec", "imageFamily"]).is_none() {
        notes.changed(
            "",
            "spec.imageFamily",
            "not written: the default is Ubuntu, and was Ubuntu2204 in the first releases of v1alpha2; write Ubuntu2204 to keep that",
        );
    }
    world.push(object, notes);
}
