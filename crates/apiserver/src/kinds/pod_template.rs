//! The spec of a pod, in a Pod and in a template: its defaults, and what is wrong with it.

use serde_json::{Value, json};
use spokeshave_syntax::names::{DNS_LABEL, is_dns_label};
use spokeshave_syntax::{NOT_A_QUANTITY, Quantity};

use super::filling::{set, with};
use crate::cause::Cause;

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
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    let mut names = Vec::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let here = format!("{path}.{list}[{index}]");
            let name = container["name"].as_str().unwrap_or_default();
            if name.is_empty() {
                causes.push(Cause::required(format!("{here}.name"), ""));
            } else if !is_dns_label(name) || name.len() > 63 {
                causes.push(Cause::invalid(
                    format!("{here}.name"),
                    &container["name"],
                    DNS_LABEL,
                ));
            } else if names.contains(&name) {
                causes.push(Cause {
                    reason: "FieldValueDuplicate",
                    field: format!("{here}.name"),
                    message: format!("Duplicate value: {name:?}"),
                });
            }
            names.push(name);
            if container["image"].as_str().unwrap_or_default().is_empty() {
                causes.push(Cause::required(format!("{here}.image"), ""));
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
            match text.parse::<Quantity>() {
                Err(_) => causes.push(Cause::invalid(
                    format!("{path}.{list}.{name}"),
                    quantity,
                    NOT_A_QUANTITY,
                )),
                Ok(value) if value.nanos() < 0 => causes.push(Cause::invalid(
                    format!("{path}.{list}[{name}]"),
                    quantity,
                    "must be greater than or equal to 0",
                )),
                Ok(value) => {
                    let limit = &resources["limits"][name];
                    let limit_text = limit.as_str().map_or_else(|| limit.to_string(), str::to_owned);
                    if list == "requests"
                        && !limit.is_null()
                        && limit_text.parse().is_ok_and(|limit: Quantity| value > limit)
                    {
                        causes.push(Cause::invalid(
                            format!("{path}.requests"),
                            quantity,
                            &format!("must be less than or equal to {name} limit of {limit_text}"),
                        ));
                    }
                }
            }
        }
    }
}

/// A template's pods restart as its kind needs it.
pub(super) fn check_restart_policy(
    template: &Value,
    path: &str,
    supported: &[&str],
    causes: &mut Vec<Cause>,
) {
    let policy = &template["restartPolicy"];
    if policy.is_string() && !supported.contains(&policy.as_str().unwrap_or_default()) {
        causes.push(Cause::not_supported(
            format!("{path}.restartPolicy"),
            policy,
            supported.iter().copied(),
        ));
    }
}
