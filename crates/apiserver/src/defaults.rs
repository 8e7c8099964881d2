//! Defaults of core kinds, as far as schedulers, controllers and kubectl see them.

use serde_json::{Map, Value, json};

fn set(map: &mut Map<String, Value>, key: &str, value: Value) {
    map.entry(key.to_owned()).or_insert(value);
}

/// Fills in what a user may leave out.
pub(crate) fn apply(group: &str, kind: &str, object: &mut Value) {
    match (group, kind) {
        ("", "Secret") => secret(object),
        ("batch", "Job") => job(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object),
        ("storage.k8s.io", "StorageClass") => with(object, |object| {
            set(object, "reclaimPolicy", json!("Delete"));
            set(object, "volumeBindingMode", json!("Immediate"));
        }),
        ("scheduling.k8s.io", "PriorityClass") => with(object, |object| {
            set(object, "preemptionPolicy", json!("PreemptLowerPriority"));
        }),
        _ => {
            if let Some(spec) = object.get_mut("spec") {
                spec_defaults(group, kind, spec);
            }
        }
    }
}

fn spec_defaults(group: &str, kind: &str, spec: &mut Value) {
    match (group, kind) {
        ("", "Pod") => pod_spec(spec),
        ("", "Service") => service(spec),
        ("", "PersistentVolumeClaim") => with(spec, |spec| set(spec, "volumeMode", json!("Filesystem"))),
        ("", "PersistentVolume") => with(spec, |spec| {
            set(spec, "volumeMode", json!("Filesystem"));
            set(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
        }),
        ("apps", "Deployment") => deployment(spec),
        ("apps", "ReplicaSet") => {
            with(spec, |spec| set(spec, "replicas", json!(1)));
            pod_spec(&mut spec["template"]["spec"]);
        }
        ("", "ReplicationController") => with(spec, |spec| set(spec, "replicas", json!(1))),
        ("apps", "StatefulSet") => stateful_set(spec),
        ("apps", "DaemonSet") => {
            with(spec, |spec| {
                set(
                    spec,
                    "updateStrategy",
                    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
                );
                set(spec, "revisionHistoryLimit", json!(10));
            });
            pod_spec(&mut spec["template"]["spec"]);
        }
        ("batch", "CronJob") => with(spec, |spec| {
            set(spec, "concurrencyPolicy", json!("Allow"));
            set(spec, "suspend", json!(false));
            set(spec, "successfulJobsHistoryLimit", json!(3));
            set(spec, "failedJobsHistoryLimit", json!(1));
        }),
        _ => {}
    }
}

fn with(value: &mut Value, change: impl FnOnce(&mut Map<String, Value>)) {
    if value.is_null() {
        *value = json!({});
    }
    if let Value::Object(map) = value {
        change(map);
    }
}

fn deployment(spec: &mut Value) {
    with(spec, |spec| {
        set(spec, "replicas", json!(1));
        set(spec, "revisionHistoryLimit", json!(10));
        set(spec, "progressDeadlineSeconds", json!(600));
        set(spec, "strategy", json!({}));
    });
    with(&mut spec["strategy"], |strategy| {
        set(strategy, "type", json!("RollingUpdate"));
        if strategy["type"] == "RollingUpdate" {
            let rolling = strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
            with(rolling, |rolling| {
                set(rolling, "maxSurge", json!("25%"));
                set(rolling, "maxUnavailable", json!("25%"));
            });
        }
    });
    pod_spec(&mut spec["template"]["spec"]);
}

fn stateful_set(spec: &mut Value) {
    with(spec, |spec| {
        set(spec, "replicas", json!(1));
        set(spec, "podManagementPolicy", json!("OrderedReady"));
        set(spec, "revisionHistoryLimit", json!(10));
        set(
            spec,
            "updateStrategy",
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
        );
        set(
            spec,
            "persistentVolumeClaimRetentionPolicy",
            json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
        );
    });
    for claim in spec["volumeClaimTemplates"].as_array_mut().into_iter().flatten() {
        with(&mut claim["spec"], |spec| {
            set(spec, "volumeMode", json!("Filesystem"))
        });
    }
    pod_spec(&mut spec["template"]["spec"]);
}

/// Texts written as such join the encoded data.
fn secret(object: &mut Value) {
    with(object, |object| {
        set(object, "type", json!("Opaque"));
        let Some(Value::Object(texts)) = object.remove("stringData") else {
            return;
        };
        let data = object.entry("data").or_insert_with(|| json!({}));
        for (key, text) in texts {
            data[key] = json!(crate::listener::base64(
                text.as_str().unwrap_or_default().as_bytes()
            ));
        }
    });
}

fn definition(object: &mut Value) {
    with(&mut object["spec"], |spec| {
        set(spec, "conversion", json!({"strategy": "None"}));
        let kind = spec
            .get("names")
            .and_then(|names| names["kind"].as_str())
            .unwrap_or_default()
            .to_owned();
        if let Some(names) = spec.get_mut("names").filter(|_| !kind.is_empty()) {
            with(names, |names| {
                set(names, "singular", json!(kind.to_lowercase()));
                set(names, "listKind", json!(format!("{kind}List")));
            });
        }
    });
}

fn job(object: &mut Value) {
    let spec = &mut object["spec"];
    with(spec, |spec| {
        if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
            set(spec, "completions", json!(1));
        }
        set(spec, "parallelism", json!(1));
        set(spec, "backoffLimit", json!(6));
        set(spec, "completionMode", json!("NonIndexed"));
        set(spec, "suspend", json!(false));
        set(spec, "podReplacementPolicy", json!("TerminatingOrFailed"));
        set(spec, "manualSelector", json!(false));
    });
    pod_spec(&mut spec["template"]["spec"]);
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    if !labels.is_null() && object["metadata"]["labels"].is_null() {
        object["metadata"]["labels"] = labels;
    }
}

/// Labels by which a new Job finds its pods, unless its author has chosen them.
pub(crate) fn job_identity(object: &mut Value) {
    if object["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (
        object["metadata"]["uid"].clone(),
        object["metadata"]["name"].clone(),
    );
    with(&mut object["spec"]["template"]["metadata"]["labels"], |labels| {
        for key in ["batch.kubernetes.io/controller-uid", "controller-uid"] {
            set(labels, key, uid.clone());
        }
        for key in ["batch.kubernetes.io/job-name", "job-name"] {
            set(labels, key, name.clone());
        }
    });
    if object["spec"]["selector"].is_null() {
        object["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    }
}

fn service(spec: &mut Value) {
    with(spec, |spec| {
        set(spec, "type", json!("ClusterIP"));
        set(spec, "sessionAffinity", json!("None"));
        set(spec, "internalTrafficPolicy", json!("Cluster"));
        set(spec, "ipFamilies", json!(["IPv4"]));
        set(spec, "ipFamilyPolicy", json!("SingleStack"));
    });
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        let number = port["port"].clone();
        with(port, |port| {
            set(port, "protocol", json!("TCP"));
            set(port, "targetPort", number);
        });
    }
}

/// Defaults of a pod's spec, or of a template's.
pub(crate) fn pod_spec(spec: &mut Value) {
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
            with(&mut container[probe], |probe| {
                set(probe, "timeoutSeconds", json!(1));
                set(probe, "periodSeconds", json!(10));
                set(probe, "successThreshold", json!(1));
                set(probe, "failureThreshold", json!(3));
            });
        }
    }
}

/// What admission adds to a new pod: priority, tolerations of sick nodes, the service account, its quality of service.
pub(crate) fn admit_pod(
    object: &mut Value,
    priority_class: impl Fn(&str) -> Option<(i64, String)>,
    default_class: Option<(String, i64)>,
) -> Result<(), String> {
    let qos = quality_of_service(&object["spec"]);
    let spec = &mut object["spec"];
    with(spec, |spec| {
        set(spec, "serviceAccountName", json!("default"));
        let account = spec["serviceAccountName"].clone();
        set(spec, "serviceAccount", account);
        set(spec, "enableServiceLinks", json!(true));
        set(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    });
    let name = spec["priorityClassName"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        let (class, value) = default_class.unwrap_or_default();
        spec["priority"] = json!(value);
        if !class.is_empty() {
            spec["priorityClassName"] = json!(class);
        }
    } else {
        let (value, policy) =
            priority_class(&name).ok_or_else(|| format!("no PriorityClass with name {name} was found"))?;
        spec["priority"] = json!(value);
        spec["preemptionPolicy"] = json!(policy);
    }
    if !spec["tolerations"].is_array() {
        spec["tolerations"] = json!([]);
    }
    if let Some(tolerations) = spec["tolerations"].as_array_mut() {
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            let tolerated = tolerations.iter().any(|toleration| {
                let named = toleration["key"].as_str().unwrap_or_default();
                let effect = toleration["effect"].as_str().unwrap_or_default();
                (named == key || named.is_empty() && toleration["operator"] == "Exists")
                    && (effect == "NoExecute" || effect.is_empty())
            });
            if !tolerated {
                tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
            }
        }
    }
    object["status"] = json!({"phase": "Pending", "qosClass": qos});
    Ok(())
}

fn quality_of_service(spec: &Value) -> &'static str {
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
