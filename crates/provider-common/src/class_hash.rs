//! The hash of a NodeClass, by which static drift is noticed, and the annotations that carry it (A-010, A-011, Z-004).
//!
//! Owns what makes two specs the same. Which fields count is each provider's.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};
use spokeshave_api::NodeClaim;
use spokeshave_api::hash::digest;

/// Fields of a spec in the form in which they are hashed: lists count as sets, what is empty as absent.
#[must_use]
pub fn canonical_fields(fields: impl IntoIterator<Item = (String, Value)>) -> Map<String, Value> {
    fields
        .into_iter()
        .map(|(field, value)| (field, canonical(&value)))
        .filter(|(_, value)| !is_empty(value))
        .collect()
}

/// The hash of such fields.
#[must_use]
pub fn hash(fields: Map<String, Value>) -> String {
    digest(&text(&Value::Object(fields))).to_string()
}

fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(canonical_fields(fields.clone())),
        Value::Array(entries) => {
            let mut entries: Vec<Value> = entries.iter().map(canonical).collect();
            entries.sort_by_cached_key(text);
            entries.dedup();
            Value::Array(entries)
        }
        other => other.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(entries) => entries.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Unambiguous text, whatever the order in which maps keep their keys.
fn text(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(field, _)| *field);
            let fields = fields
                .into_iter()
                .map(|(field, value)| format!("{}:{}", Value::from(field.as_str()), text(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(entries) => format!("[{}]", entries.iter().map(text).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

/// The annotations in which NodeClasses of one kind, and the NodeClaims made from them, carry the class's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Annotation with the hash.
    pub hash: &'static str,
    /// Annotation with the version of the algorithm.
    pub hash_version: &'static str,
    /// The version that is computed here.
    pub version: &'static str,
}

fn annotation<'a>(object: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    object.annotations.as_ref()?.get(key).map(String::as_str)
}

impl Stamp {
    /// Whether static drift is to be seen: both carry a hash of the same version, and they differ.
    #[must_use]
    pub fn has_drifted(&self, class: &ObjectMeta, claim: &ObjectMeta) -> bool {
        let both = |key: &str| Some((annotation(class, key)?, annotation(claim, key)?));
        let (Some((class_hash, claim_hash)), Some((class_version, claim_version))) =
            (both(self.hash), both(self.hash_version))
        else {
            return false;
        };
        class_version == claim_version && class_hash != claim_hash
    }

    /// What is missing of finalizer and hash on a class, as a merge patch against the version that was read.
    #[must_use]
    pub fn class_patch(&self, class: &ObjectMeta, finalizer: &str, hash: &str) -> Option<Value> {
        let mut finalizers = class.finalizers.clone().unwrap_or_default();
        let has_finalizer = finalizers.iter().any(|it| it == finalizer);
        let is_stamped = annotation(class, self.hash) == Some(hash)
            && annotation(class, self.hash_version) == Some(self.version);
        if has_finalizer && is_stamped {
            return None;
        }
        if !has_finalizer {
            finalizers.push(finalizer.to_owned());
        }
        Some(json!({"metadata": {
            "resourceVersion": class.resource_version,
            "finalizers": finalizers,
            "annotations": {self.hash: hash, self.hash_version: self.version},
        }}))
    }

    /// What a NodeClaim that another version of the hash has stamped gets, as a merge patch: ours, so that it drifts by nothing but what has drifted before.
    #[must_use]
    pub fn claim_patch(&self, claim: &NodeClaim, class_hash: &str) -> Option<Value> {
        let stamped = claim.annotation(self.hash_version)?;
        if stamped == self.version {
            return None;
        }
        let mut conditions = claim.status.iter().flat_map(|status| &status.conditions);
        let has_drifted = conditions.any(|it| it.type_ == "Drifted" && it.status == "True");
        let mut annotations = json!({self.hash_version: self.version});
        if !has_drifted {
            annotations[self.hash] = Value::from(class_hash);
        }
        Some(json!({"metadata": {"annotations": annotations}}))
    }

    /// A NodeClaim that was launched from a class carries the class's hash.
    pub fn copy(&self, class: &ObjectMeta, claim: &mut NodeClaim) {
        let annotations = claim.metadata.annotations.get_or_insert_default();
        for key in [self.hash, self.hash_version] {
            if let Some(value) = annotation(class, key) {
                annotations.insert(key.to_owned(), value.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(spec: &Value) -> String {
        hash(canonical_fields(spec.as_object().unwrap().clone()))
    }

    #[test]
    fn a_010_z_004_order_repetition_and_emptiness_change_no_hash() {
        let one = of(&json!({"a": [{"x": 1, "y": []}, 2], "b": "t"}));
        assert_eq!(
            one,
            of(&json!({"b": "t", "a": [2, {"x": 1}, 2], "c": {"d": null}, "e": ""}))
        );
        for other in [
            json!({"a": [{"x": 1}], "b": "t"}),
            json!({"a": [2, {"x": "1"}], "b": "t"}),
        ] {
            assert_ne!(one, of(&other), "{other}");
        }
    }
}
