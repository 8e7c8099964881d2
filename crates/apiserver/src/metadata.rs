//! What is wrong with the metadata of an object of any kind.

use serde_json::Value;
use spokeshave_syntax::names::{DNS_LABEL, SUBDOMAIN, is_dns_label};

use crate::cause::Cause;
use crate::checks::{immutable, items, label_key, labels};
use crate::schema::facts::facts;

/// Most bytes of the keys and values of all annotations.
const MOST_ANNOTATIONS: i64 = 256 * 1024;
/// Finalizers that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// What is wrong with the name, labels, annotations, finalizers and owners of any object.
pub(crate) fn check(kind: &str, group: &str, object: &Value, causes: &mut Vec<Cause>) {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let free_names = group == "rbac.authorization.k8s.io";
    let label_names = matches!((group, kind), ("", "Namespace" | "Service"));
    if name.is_empty() {
        causes.push(Cause::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else if free_names {
        if name.contains(['/', '%']) || name == "." || name == ".." {
            causes.push(Cause::invalid(
                "metadata.name",
                &metadata["name"],
                "may not contain '/' or '%'",
            ));
        }
    } else if label_names {
        if name.len() > 63 {
            causes.push(Cause::invalid(
                "metadata.name",
                &metadata["name"],
                "must be no more than 63 characters",
            ));
        } else if !is_dns_label(name) {
            causes.push(Cause::invalid("metadata.name", &metadata["name"], DNS_LABEL));
        }
    } else if name.len() > 253 {
        causes.push(Cause::invalid(
            "metadata.name",
            &metadata["name"],
            "must be no more than 253 characters",
        ));
    } else if !name.split('.').all(is_dns_label) {
        causes.push(Cause::invalid("metadata.name", &metadata["name"], SUBDOMAIN));
    }
    labels(&metadata["labels"], &"metadata.labels", causes);
    let mut bytes = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        label_key(&key.to_lowercase(), &"metadata.annotations", causes);
    }
    if i64::try_from(bytes).is_ok_and(|bytes| bytes > MOST_ANNOTATIONS) {
        causes.push(Cause::too_long("metadata.annotations", MOST_ANNOTATIONS));
    }
    // Only core kinds ask more of a finalizer than that it is a name.
    let free_finalizers = group == "apiextensions.k8s.io"
        || !kind.is_empty() && facts().definition_name(group, "v1", kind).is_none();
    for (index, finalizer) in metadata["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let text = finalizer.as_str().unwrap_or_default();
        if !free_finalizers && !text.contains('/') && !STANDARD_FINALIZERS.contains(&text) {
            causes.push(Cause::invalid(
                format!("metadata.finalizers[{index}]"),
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
        for (field, problem) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                causes.push(Cause::invalid(
                    format!("metadata.ownerReferences.{field}"),
                    &Value::from(""),
                    problem,
                ));
            }
        }
    }
    let controllers: Vec<&Value> = metadata["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|owner| owner["controller"] == true)
        .collect();
    if let [first, second, ..] = controllers[..] {
        let name = |owner: &Value| owner["name"].as_str().unwrap_or_default().to_owned();
        causes.push(Cause::invalid(
            "metadata.ownerReferences",
            &metadata["ownerReferences"],
            &format!("Only one reference can have Controller set to true. Found \"true\" in references for {} and {}", name(first), name(second)),
        ));
    }
}

/// What may not change in metadata. A real server finds most of it by the rules of all kinds, and again by those of the kind.
pub(crate) fn check_update(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let (after, before) = (&new["metadata"], &old["metadata"]);
    immutable(&after["name"], &before["name"], "metadata.name", causes);
    for _ in 0..2 {
        immutable(&after["uid"], &before["uid"], "metadata.uid", causes);
    }
    if before["deletionTimestamp"].is_null() {
        return;
    }
    // Nothing may be added to the finalizers of an object on its way out.
    let known = items(&before["finalizers"]);
    let added: Vec<String> = items(&after["finalizers"])
        .iter()
        .filter(|finalizer| !known.contains(finalizer))
        .map(Value::to_string)
        .collect();
    if !added.is_empty() {
        let cause = Cause {
            reason: "FieldValueForbidden",
            field: "metadata.finalizers".to_owned(),
            message: format!(
                "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            ),
        };
        causes.extend([cause.clone(), cause]);
    }
}
