//! What is wrong with the metadata of an object of any kind.

use serde_json::Value;
use spokeshave_syntax::names::{
    DNS_LABEL, SUBDOMAIN, is_dns_label, label_value_problems, qualified_name_problems,
};

use crate::cause::Cause;
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
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        causes.extend(
            qualified_name_problems(key)
                .iter()
                .map(|problem| Cause::invalid("metadata.labels", &Value::from(key.as_str()), problem)),
        );
        for problem in label_value_problems(value.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid("metadata.labels", value, &problem));
        }
    }
    let mut bytes = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        let key = key.to_lowercase();
        causes.extend(
            qualified_name_problems(&key)
                .iter()
                .map(|problem| Cause::invalid("metadata.annotations", &Value::from(key.as_str()), problem)),
        );
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
    if new["metadata"]["name"] != old["metadata"]["name"] {
        causes.push(Cause::invalid(
            "metadata.name",
            &new["metadata"]["name"],
            "field is immutable",
        ));
    }
    if new["metadata"]["uid"] != old["metadata"]["uid"] {
        let cause = Cause::invalid("metadata.uid", &new["metadata"]["uid"], "field is immutable");
        causes.extend([cause.clone(), cause]);
    }
    if old["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    // Nothing may be added to the finalizers of an object on its way out.
    let known: Vec<&Value> = old["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let added: Vec<String> = new["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
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
