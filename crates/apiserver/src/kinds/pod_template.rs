//! The spec of a pod, in a Pod and in a template: its defaults, and what is wrong with it. Where the pod may run is checked in `placement`.

use std::fmt::Display;

use serde_json::{Value, json};
use spokeshave_syntax::names::{DNS_LABEL, is_dns_label};
use spokeshave_syntax::{NOT_A_QUANTITY, Quantity};

use super::columns::plain;
use super::filling::{set, with};
use super::placement;
use crate::cause::Cause;
use crate::checks::{items, labels, object_name, one_of, text};

/// Lists of the containers of a pod, in the order in which their names are compared.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
pub(super) const PREEMPTION_POLICIES: &[&str] = &["PreemptLowerPriority", "Never"];
/// Longest time that a pod may be active.
const MOST_SECONDS: i64 = i32::MAX as i64;

/// Defaults of a pod's spec, or of a template's.
pub(super) fn default(spec: &mut Value) {
    if !spec.is_object() {
        return;
    }
    with(spec, |spec| {
        set(spec, "restartPolicy", json!("Always"));
        set(spec, "dnsPolicy", json!("ClusterFirst"));
        set(spec, "schedulerName", json!("default-scheduler"));
        set(spec, "terminationGracePeriodSeconds", json!(30));
        set(spec, "securityContext", json!({}));
    });
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
    volumes.into_iter().flatten().for_each(volume);
    let host_network = spec["hostNetwork"] == true;
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            container_defaults(container, host_network);
        }
        if spec[list].is_null()
            && let Some(spec) = spec.as_object_mut()
        {
            spec.remove(list);
        }
    }
}

fn volume(volume: &mut Value) {
    const MODE: i64 = 0o644;
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source).filter(|source| source.is_object()) {
            with(source, |source| set(source, "defaultMode", json!(MODE)));
        }
    }
    let sources = volume
        .get_mut("projected")
        .and_then(|projected| projected.get_mut("sources"));
    for source in sources.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(token) = source.get_mut("serviceAccountToken") {
            with(token, |token| set(token, "expirationSeconds", json!(3600)));
        }
        if let Some(items) = source.get_mut("downwardAPI") {
            field_references(items);
        }
    }
    if let Some(items) = volume.get_mut("downwardAPI") {
        field_references(items);
    }
    if let Some(path) = volume.get_mut("hostPath") {
        with(path, |path| set(path, "type", json!("")));
    }
    let claim = volume
        .get_mut("ephemeral")
        .and_then(|ephemeral| ephemeral.get_mut("volumeClaimTemplate"));
    if let Some(spec) = claim.and_then(|claim| claim.get_mut("spec")) {
        with(spec, |spec| set(spec, "volumeMode", json!("Filesystem")));
    }
}

fn field_references(downward: &mut Value) {
    let items = downward.get_mut("items").and_then(Value::as_array_mut);
    for item in items.into_iter().flatten() {
        if let Some(reference) = item.get_mut("fieldRef") {
            with(reference, |reference| set(reference, "apiVersion", json!("v1")));
        }
    }
}

fn http_get(action: &mut Value) {
    if let Some(get) = action.get_mut("httpGet") {
        with(get, |get| {
            set(get, "path", json!("/"));
            set(get, "scheme", json!("HTTP"));
        });
    }
}

fn container_defaults(container: &mut Value, host_network: bool) {
    let image = container["image"].as_str().unwrap_or_default().to_owned();
    let tag = image
        .rsplit('/')
        .next()
        .and_then(|last| last.split_once(':'))
        .map(|(_, tag)| tag.to_owned());
    let latest = tag.as_deref().is_none_or(|tag| tag == "latest") && !image.contains('@');
    with(container, |container| {
        set(
            container,
            "imagePullPolicy",
            json!(if latest { "Always" } else { "IfNotPresent" }),
        );
        set(container, "terminationMessagePath", json!("/dev/termination-log"));
        set(container, "terminationMessagePolicy", json!("File"));
        set(container, "resources", json!({}));
    });
    for port in container
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        with(port, |port| {
            set(port, "protocol", json!("TCP"));
            if host_network {
                let number = port["containerPort"].clone();
                set(port, "hostPort", number);
            }
        });
    }
    let variables = container.get_mut("env").and_then(Value::as_array_mut);
    for variable in variables.into_iter().flatten() {
        let reference = variable
            .get_mut("valueFrom")
            .and_then(|source| source.get_mut("fieldRef"));
        if let Some(reference) = reference {
            with(reference, |reference| set(reference, "apiVersion", json!("v1")));
        }
    }
    for hook in ["postStart", "preStop"] {
        let hook = container
            .get_mut("lifecycle")
            .and_then(|lifecycle| lifecycle.get_mut(hook));
        if let Some(hook) = hook {
            http_get(hook);
        }
    }
    // A limit is a request where none is written.
    let limits = container["resources"]["limits"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    if !limits.is_empty() {
        with(&mut container["resources"]["requests"], |requests| {
            for (name, limit) in limits {
                set(requests, &name, limit);
            }
        });
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container.get(probe).is_some_and(Value::is_object) {
            http_get(&mut container[probe]);
            if let Some(grpc) = container[probe].get_mut("grpc") {
                with(grpc, |grpc| set(grpc, "service", json!("")));
            }
            with(&mut container[probe], |probe| {
                set(probe, "timeoutSeconds", json!(1));
                set(probe, "periodSeconds", json!(10));
                set(probe, "successThreshold", json!(1));
                set(probe, "failureThreshold", json!(3));
            });
        }
    }
}

/// What is wrong with a pod's spec, or with a template's, at `path`.
pub(super) fn check(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    if items(&spec["containers"]).is_empty() {
        causes.push(Cause::required(format_args!("{path}.containers"), ""));
    }
    let mut names = Vec::new();
    for list in CONTAINERS {
        for (index, container) in items(&spec[list]).iter().enumerate() {
            check_container(container, &names, &format_args!("{path}.{list}[{index}]"), causes);
            names.push(text(&container["name"]));
        }
    }
    for (field, words) in [("restartPolicy", RESTART_POLICIES), ("dnsPolicy", DNS_POLICIES)] {
        one_of(&spec[field], &format_args!("{path}.{field}"), words, causes);
    }
    placement::check(spec, path, causes);
    object_name(&spec["nodeName"], &format_args!("{path}.nodeName"), causes);
    let deadline = &spec["activeDeadlineSeconds"];
    if deadline
        .as_i64()
        .is_some_and(|seconds| !(1..=MOST_SECONDS).contains(&seconds))
    {
        causes.push(Cause::invalid(
            format_args!("{path}.activeDeadlineSeconds"),
            deadline,
            &format!("must be between 1 and {MOST_SECONDS}, inclusive"),
        ));
    }
    let tolerations = &spec["tolerations"];
    placement::tolerations(tolerations, &format_args!("{path}.tolerations"), causes);
    let class = &spec["priorityClassName"];
    object_name(class, &format_args!("{path}.priorityClassName"), causes);
    let (policy, policies) = (&spec["preemptionPolicy"], PREEMPTION_POLICIES);
    one_of(policy, &format_args!("{path}.preemptionPolicy"), policies, causes);
}

/// What is wrong with a template at `path`, its labels included.
pub(super) fn check_template(template: &Value, path: &str, causes: &mut Vec<Cause>) {
    let named = &template["metadata"]["labels"];
    // Not `metadata.labels`: so it is in a real server's words.
    labels(named, &format_args!("{path}.labels"), causes);
    let spec = &template["spec"];
    check(spec, &format!("{path}.spec"), causes);
    if !items(&spec["ephemeralContainers"]).is_empty() {
        causes.push(Cause::forbidden(
            format_args!("{path}.spec.ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        ));
    }
}

/// What is wrong with a container; `names` are those of the containers before it.
fn check_container(container: &Value, names: &[&str], here: &dyn Display, causes: &mut Vec<Cause>) {
    let name = text(&container["name"]);
    if name.is_empty() {
        causes.push(Cause::required(format_args!("{here}.name"), ""));
    } else if !is_dns_label(name) || name.len() > 63 {
        causes.push(Cause::invalid(
            format_args!("{here}.name"),
            &container["name"],
            DNS_LABEL,
        ));
    } else if names.contains(&name) {
        causes.push(Cause::duplicate(format_args!("{here}.name"), &container["name"]));
    }
    if text(&container["image"]).is_empty() {
        causes.push(Cause::required(format_args!("{here}.image"), ""));
    }
    resources(&container["resources"], here, causes);
}

fn resources(resources: &Value, here: &dyn Display, causes: &mut Vec<Cause>) {
    for list in ["requests", "limits"] {
        for (name, quantity) in resources[list].as_object().into_iter().flatten() {
            match plain(quantity).parse::<Quantity>() {
                Err(_) => causes.push(Cause::invalid(
                    format_args!("{here}.resources.{list}.{name}"),
                    quantity,
                    NOT_A_QUANTITY,
                )),
                Ok(value) if value.nanos() < 0 => causes.push(Cause::invalid(
                    format_args!("{here}.resources.{list}[{name}]"),
                    quantity,
                    "must be greater than or equal to 0",
                )),
                Ok(value) => {
                    let limit = &resources["limits"][name];
                    let limit_text = plain(limit);
                    if list == "requests"
                        && !limit.is_null()
                        && limit_text.parse().is_ok_and(|limit: Quantity| value > limit)
                    {
                        causes.push(Cause::invalid(
                            format_args!("{here}.resources.requests"),
                            quantity,
                            &format!("must be less than or equal to {name} limit of {limit_text}"),
                        ));
                    }
                }
            }
        }
    }
}

/// The class of a pod by what its containers ask for.
pub(super) fn quality_of_service(spec: &Value) -> &'static str {
    let (mut any, mut guaranteed) = (false, true);
    for container in ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec[*list].as_array().into_iter().flatten())
    {
        let resources = &container["resources"];
        for name in ["cpu", "memory"] {
            let (request, limit) = (&resources["requests"][name], &resources["limits"][name]);
            any |= !request.is_null() || !limit.is_null();
            guaranteed &= !limit.is_null() && (request.is_null() || request == limit);
        }
    }
    match (any, guaranteed) {
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
        (false, _) => "BestEffort",
    }
}
