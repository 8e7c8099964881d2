//! Validation of metadata and of core kinds: the rules that users meet.

use serde_json::Value;

use crate::admission_policy;
use crate::autoscalers;
use crate::crd::Cause;
use crate::facts::facts;
use crate::quantity::nanos;

fn invalid(field: &str, value: &Value, problem: &str) -> Cause {
    Cause {
        reason: "FieldValueInvalid",
        field: field.to_owned(),
        message: format!("Invalid value: {}: {problem}", shown(value)),
    }
}

fn required(field: &str, problem: &str) -> Cause {
    let message = if problem.is_empty() {
        "Required value".to_owned()
    } else {
        format!("Required value: {problem}")
    };
    Cause {
        reason: "FieldValueRequired",
        field: field.to_owned(),
        message,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => serde_json::to_string(value).unwrap_or_default(),
        other => other.to_string(),
    }
}

pub(crate) const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Finalizers that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
/// Most bytes in the data of a ConfigMap or Secret.
const MOST_DATA: usize = 1024 * 1024;

fn is_dns_label(text: &str) -> bool {
    let edge =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    edge(text.as_bytes().first())
        && edge(text.as_bytes().last())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn is_label_text(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    edge(text.as_bytes().first())
        && edge(text.as_bytes().last())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// What is wrong with the name, labels, annotations, finalizers and owners of any object.
pub(crate) fn metadata(kind: &str, group: &str, object: &Value, causes: &mut Vec<Cause>) {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let free_names = group == "rbac.authorization.k8s.io";
    let label_names = matches!((group, kind), ("", "Namespace" | "Service"));
    if name.is_empty() {
        causes.push(required("metadata.name", "name or generateName is required"));
    } else if free_names {
        if name.contains(['/', '%']) || name == "." || name == ".." {
            causes.push(invalid(
                "metadata.name",
                &metadata["name"],
                "may not contain '/' or '%'",
            ));
        }
    } else if label_names {
        if name.len() > 63 {
            causes.push(invalid(
                "metadata.name",
                &metadata["name"],
                "must be no more than 63 characters",
            ));
        } else if !is_dns_label(name) {
            causes.push(invalid("metadata.name", &metadata["name"], LABEL));
        }
    } else if name.len() > 253 {
        causes.push(invalid(
            "metadata.name",
            &metadata["name"],
            "must be no more than 253 characters",
        ));
    } else if !name.split('.').all(is_dns_label) {
        causes.push(invalid("metadata.name", &metadata["name"], SUBDOMAIN));
    }
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        causes.extend(
            label_key_problems(key)
                .iter()
                .map(|problem| invalid("metadata.labels", &Value::from(key.as_str()), problem)),
        );
        if let Some(problem) = label_value_problem(value.as_str().unwrap_or_default()) {
            causes.push(invalid("metadata.labels", value, problem));
        }
    }
    for (key, _) in metadata["annotations"].as_object().into_iter().flatten() {
        let key = key.to_lowercase();
        causes.extend(
            label_key_problems(&key)
                .iter()
                .map(|problem| invalid("metadata.annotations", &Value::from(key.as_str()), problem)),
        );
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
            causes.push(invalid(
                &format!("metadata.finalizers[{index}]"),
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
                causes.push(invalid(
                    &format!("metadata.ownerReferences.{field}"),
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
        causes.push(invalid(
            "metadata.ownerReferences",
            &metadata["ownerReferences"],
            &format!("Only one reference can have Controller set to true. Found \"true\" in references for {} and {}", name(first), name(second)),
        ));
    }
}

/// What may not change in metadata.
pub(crate) fn metadata_update(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    if new["metadata"]["name"] != old["metadata"]["name"] {
        causes.push(invalid(
            "metadata.name",
            &new["metadata"]["name"],
            "field is immutable",
        ));
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
        // A real server finds it by the rules of all kinds, and again by those of the kind.
        causes.extend([cause.clone(), cause]);
    }
}

/// What is wrong with the key of a label or an annotation.
pub(crate) fn label_key_problems(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let mut problems = Vec::new();
    match prefix {
        Some("") => problems.push("prefix part must be non-empty".to_owned()),
        Some(prefix) if !prefix.split('.').all(is_dns_label) => {
            problems.push(format!("prefix part {SUBDOMAIN}"))
        }
        _ => {}
    }
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_label_text(name) {
        problems.push(NAME_PART.to_owned());
    }
    problems
}

/// What is wrong with the value of a label.
pub(crate) fn label_value_problem(value: &str) -> Option<&'static str> {
    if value.len() > 63 {
        Some("must be no more than 63 bytes")
    } else if !value.is_empty() && !is_label_text(value) {
        Some(LABEL_VALUE)
    } else {
        None
    }
}

/// What is wrong with a core object; `old` is the one that it replaces.
pub(crate) fn check(group: &str, kind: &str, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = &new["spec"];
    match (group, kind) {
        ("", "Pod") => {
            pod_spec(spec, "spec", &mut causes);
            if let Some(old) = old {
                pod_update(spec, &old["spec"], &mut causes);
            }
        }
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            workload(group, kind, new, old, &mut causes)
        }
        ("batch", "Job") => {
            pod_spec(&spec["template"]["spec"], "spec.template.spec", &mut causes);
            let policy = &spec["template"]["spec"]["restartPolicy"];
            if policy == "Always" {
                causes.push(Cause {
                    reason: "FieldValueNotSupported",
                    field: "spec.template.spec.restartPolicy".to_owned(),
                    message: "Unsupported value: \"Always\": supported values: \"OnFailure\", \"Never\""
                        .to_owned(),
                });
            }
            for field in ["parallelism", "completions", "backoffLimit"] {
                not_negative(spec, "spec", field, &mut causes);
            }
        }
        ("batch", "CronJob") => cron_job(spec, &mut causes),
        (admission_policy::GROUP, kind) => admission_policy::check(kind, spec, &mut causes),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscalers::check(spec, &mut causes),
        ("policy", "PodDisruptionBudget") => {
            if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
                causes.push(invalid(
                    "spec",
                    spec,
                    "minAvailable and maxUnavailable cannot be both set",
                ));
            }
        }
        ("", "ConfigMap" | "Secret") => keyed_data(kind, new, old, &mut causes),
        ("coordination.k8s.io", "Lease") => {
            for field in ["leaseDurationSeconds", "leaseTransitions"] {
                let least = i64::from(field == "leaseDurationSeconds");
                if spec[field].as_i64().is_some_and(|value| value < least) {
                    let problem = if least == 1 {
                        "must be greater than 0"
                    } else {
                        "must be greater than or equal to 0"
                    };
                    causes.push(invalid(&format!("spec.{field}"), &spec[field], problem));
                }
            }
        }
        ("", "Node") => {
            let mut seen = Vec::new();
            for (index, taint) in spec["taints"].as_array().into_iter().flatten().enumerate() {
                if !["NoSchedule", "PreferNoSchedule", "NoExecute"]
                    .contains(&taint["effect"].as_str().unwrap_or_default())
                {
                    let cause = Cause {
                        reason: "FieldValueNotSupported",
                        field: format!("metadata.taints[{index}].effect"),
                        message: format!(
                            "Unsupported value: {}: supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
                            taint["effect"]
                        ),
                    };
                    // An update is judged by the rules of a new node first, and then by its own.
                    causes.extend(std::iter::repeat_n(cause, 1 + usize::from(old.is_some())));
                }
            }
            for taint in spec["taints"].as_array().into_iter().flatten() {
                let identity = (taint["key"].clone(), taint["effect"].clone());
                if seen.contains(&identity) {
                    causes.push(Cause {
                        reason: "FieldValueDuplicate",
                        field: format!("metadata.taints[{}]", seen.len()),
                        message: format!(
                            "Duplicate value: {taint}: taints must be unique by key and effect pair"
                        ),
                    });
                }
                seen.push(identity);
            }
            if let Some(old) = old {
                let (before, after) = (&old["spec"]["providerID"], &spec["providerID"]);
                if !before.is_null() && before != "" && before != after {
                    causes.push(Cause {
                        reason: "FieldValueForbidden",
                        field: "spec.providerID".to_owned(),
                        message:
                            "Forbidden: node updates may not change providerID except from \"\" to valid"
                                .to_owned(),
                    });
                }
            }
        }
        _ => {}
    }
    causes
}

/// ConfigMaps and Secrets: their size, and that an immutable one stays as it is.
fn keyed_data(kind: &str, new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let values = ["data", "binaryData"]
        .into_iter()
        .flat_map(|field| new[field].as_object().into_iter().flatten());
    let size: usize = values.map(|(_, value)| value.as_str().map_or(0, str::len)).sum();
    if size > MOST_DATA {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            field: if kind == "Secret" {
                "data".to_owned()
            } else {
                String::new()
            },
            message: format!("Too long: may not be more than {MOST_DATA} bytes"),
        });
    }
    let Some(old) = old.filter(|old| old["immutable"] == true) else {
        return;
    };
    if new["immutable"] != true {
        causes.push(forbidden("immutable"));
    }
    for field in ["data", "binaryData"] {
        if new[field] != old[field] {
            causes.push(forbidden(field));
        }
    }
}

fn forbidden(field: &str) -> Cause {
    Cause {
        reason: "FieldValueForbidden",
        field: field.to_owned(),
        message: "Forbidden: field is immutable when `immutable` is set".to_owned(),
    }
}

/// What is run, and how often; whether the schedule can be read, its controller finds out, in the time zone that it knows.
fn cron_job(spec: &Value, causes: &mut Vec<Cause>) {
    let schedule = spec["schedule"].as_str().unwrap_or_default();
    if schedule.is_empty() {
        causes.push(required("spec.schedule", ""));
    } else if schedule.contains("TZ") {
        causes.push(invalid(
            "spec.schedule",
            &spec["schedule"],
            "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        ));
    } else if !schedule.starts_with('@') && schedule.split_whitespace().count() != 5 {
        let problem = format!(
            "expected exactly 5 fields, found {}: {schedule:?}",
            schedule.split_whitespace().count()
        );
        causes.push(invalid("spec.schedule", &spec["schedule"], &problem));
    }
    if !["Allow", "Forbid", "Replace"].contains(&spec["concurrencyPolicy"].as_str().unwrap_or_default()) {
        causes.push(Cause::not_supported(
            "spec.concurrencyPolicy",
            &spec["concurrencyPolicy"],
            ["Allow", "Forbid", "Replace"],
        ));
    }
    for field in [
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    ] {
        not_negative(spec, "spec", field, causes);
    }
    let template = &spec["jobTemplate"]["spec"]["template"]["spec"];
    pod_spec(template, "spec.jobTemplate.spec.template.spec", causes);
    if template["restartPolicy"] == "Always" {
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            field: "spec.jobTemplate.spec.template.spec.restartPolicy".to_owned(),
            message: "Unsupported value: \"Always\": supported values: \"OnFailure\", \"Never\"".to_owned(),
        });
    }
}

fn not_negative(spec: &Value, path: &str, field: &str, causes: &mut Vec<Cause>) {
    if spec[field].as_i64().is_some_and(|value| value < 0) {
        causes.push(invalid(
            &format!("{path}.{field}"),
            &spec[field],
            "must be greater than or equal to 0",
        ));
    }
}

fn workload(group: &str, kind: &str, new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &new["spec"];
    not_negative(spec, "spec", "replicas", causes);
    if spec["selector"].is_null() {
        causes.push(required("spec.selector", ""));
    } else {
        let selector = crate::selector::LabelSelector::from_object(&spec["selector"]);
        match selector {
            Some(selector) if selector.is_empty() => causes.push(invalid(
                "spec.selector",
                &spec["selector"],
                &format!("empty selector is invalid for {}", kind.to_lowercase()),
            )),
            Some(selector) if !selector.matches(&spec["template"]["metadata"]["labels"]) => {
                let labels = &spec["template"]["metadata"]["labels"];
                causes.push(invalid(
                    "spec.template.metadata.labels",
                    labels,
                    "`selector` does not match template `labels`",
                ));
            }
            Some(_) => {}
            None => causes.push(invalid(
                "spec.selector",
                &spec["selector"],
                "not a valid selector",
            )),
        }
    }
    if let Some(old) = old
        && (group, kind) != ("", "ReplicationController")
        && old["spec"]["selector"] != spec["selector"]
    {
        causes.push(invalid("spec.selector", &spec["selector"], "field is immutable"));
    }
    pod_spec(&spec["template"]["spec"], "spec.template.spec", causes);
    let policy = &spec["template"]["spec"]["restartPolicy"];
    if policy.is_string() && policy != "Always" {
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            field: "spec.template.spec.restartPolicy".to_owned(),
            message: format!("Unsupported value: {policy}: supported values: \"Always\""),
        });
    }
}

fn pod_spec(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        causes.push(required(&format!("{path}.containers"), ""));
    }
    let mut names = Vec::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let here = format!("{path}.{list}[{index}]");
            let name = container["name"].as_str().unwrap_or_default();
            if name.is_empty() {
                causes.push(required(&format!("{here}.name"), ""));
            } else if !is_dns_label(name) || name.len() > 63 {
                causes.push(invalid(&format!("{here}.name"), &container["name"], LABEL));
            } else if names.contains(&name) {
                causes.push(Cause {
                    reason: "FieldValueDuplicate",
                    field: format!("{here}.name"),
                    message: format!("Duplicate value: {name:?}"),
                });
            }
            names.push(name);
            if container["image"].as_str().unwrap_or_default().is_empty() {
                causes.push(required(&format!("{here}.image"), ""));
            }
            resources(&container["resources"], &format!("{here}.resources"), causes);
        }
    }
}

fn resources(resources: &Value, path: &str, causes: &mut Vec<Cause>) {
    for list in ["requests", "limits"] {
        for (name, quantity) in resources[list].as_object().into_iter().flatten() {
            let text = quantity
                .as_str()
                .map_or_else(|| quantity.to_string(), str::to_owned);
            match nanos(&text) {
                None => causes.push(invalid(&format!("{path}.{list}.{name}"), quantity, "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")),
                Some(value) if value < 0 => causes.push(invalid(&format!("{path}.{list}[{name}]"), quantity, "must be greater than or equal to 0")),
                Some(value) => {
                    let limit = &resources["limits"][name];
                    let limit_text = limit.as_str().map_or_else(|| limit.to_string(), str::to_owned);
                    if list == "requests" && !limit.is_null() && nanos(&limit_text).is_some_and(|limit| value > limit) {
                        causes.push(invalid(&format!("{path}.requests"), quantity, &format!("must be less than or equal to {name} limit of {limit_text}")));
                    }
                }
            }
        }
    }
}

/// Of a running pod little may change.
fn pod_update(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    if new == old {
        return;
    }
    let comparable = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(map) = spec.as_object_mut() {
            for field in [
                "activeDeadlineSeconds",
                "tolerations",
                "terminationGracePeriodSeconds",
                "schedulingGates",
                "ephemeralContainers",
                "nodeName",
            ] {
                map.remove(field);
            }
        }
        for list in ["containers", "initContainers"] {
            for container in spec
                .get_mut(list)
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                container["image"] = Value::Null;
                if container["resources"].is_object() {
                    container["resources"] = Value::Null;
                }
            }
        }
        spec
    };
    let gated = old["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty());
    let moved = old["nodeName"].is_string() && old["nodeName"] != new["nodeName"];
    if (!gated && comparable(new) != comparable(old)) || moved {
        causes.push(Cause {
            reason: "FieldValueForbidden",
            field: "spec".to_owned(),
            message: "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)".to_owned(),
        });
    }
}
