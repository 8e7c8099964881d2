//! Defaults of core kinds, as far as schedulers, controllers and kubectl see them.

use serde_json::{Map, Value, json};

use crate::{admission_policy, autoscalers};

fn set(map: &mut Map<String, Value>, key: &str, value: Value) {
    map.entry(key.to_owned()).or_insert(value);
}

/// Fills in what a user may leave out.
pub(crate) fn apply(group: &str, kind: &str, object: &mut Value) {
    match (group, kind) {
        ("", "Secret") => secret(object),
        ("", "Namespace") => namespace(object),
        ("", "Pod") => {
            if let Some(spec) = object.get_mut("spec") {
                with(spec, |spec| set(spec, "enableServiceLinks", json!(true)));
                pod_spec(spec);
            }
        }
        ("apps", "DaemonSet") => daemon_set(object),
        ("batch", "Job") => job(object),
        (admission_policy::GROUP, kind) => admission_policy::defaults(kind, object),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscalers::defaults(object),
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
        update_strategy(spec, &[("partition", 0)]);
        set(
            spec,
            "persistentVolumeClaimRetentionPolicy",
            json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
        );
    });
    let claims = spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut);
    for claim in claims.into_iter().flatten() {
        with(&mut claim["spec"], |spec| {
            set(spec, "volumeMode", json!("Filesystem"))
        });
    }
    pod_spec(&mut spec["template"]["spec"]);
}

/// A rolling update with these numbers, unless another strategy is named.
fn update_strategy(spec: &mut Map<String, Value>, numbers: &[(&str, i64)]) {
    let strategy = spec.entry("updateStrategy").or_insert_with(|| json!({}));
    with(strategy, |strategy| {
        if strategy.get("type").is_none_or(|kind| kind == "") {
            strategy.insert("type".to_owned(), json!("RollingUpdate"));
        }
        if strategy["type"] == "RollingUpdate" {
            let rolling = strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
            with(rolling, |rolling| {
                for (name, number) in numbers {
                    set(rolling, name, json!(number));
                }
            });
        }
    });
}

fn daemon_set(object: &mut Value) {
    with(&mut object["spec"], |spec| {
        update_strategy(spec, &[("maxSurge", 0), ("maxUnavailable", 1)]);
        set(spec, "revisionHistoryLimit", json!(10));
    });
    pod_spec(&mut object["spec"]["template"]["spec"]);
    with(&mut object["metadata"]["annotations"], |annotations| {
        set(
            annotations,
            "deprecated.daemonset.template.generation",
            json!("1"),
        );
    });
}

/// Every namespace can be selected by its name.
fn namespace(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if name.as_str().is_some_and(|name| !name.is_empty()) {
        with(&mut object["metadata"]["labels"], |labels| {
            labels.insert("kubernetes.io/metadata.name".to_owned(), name);
        });
    }
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
    job_labels(&mut object["metadata"]["labels"], &uid, &name);
    job_labels(&mut object["spec"]["template"]["metadata"]["labels"], &uid, &name);
    if object["spec"]["selector"].is_null() {
        object["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    }
}

fn job_labels(labels: &mut Value, uid: &Value, name: &Value) {
    with(labels, |labels| {
        for key in ["batch.kubernetes.io/controller-uid", "controller-uid"] {
            set(labels, key, uid.clone());
        }
        for key in ["batch.kubernetes.io/job-name", "job-name"] {
            set(labels, key, name.clone());
        }
    });
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
    tolerate_sick_nodes(spec);
    object["status"] = json!({"phase": "Pending", "qosClass": qos});
    Ok(())
}

/// Five minutes on a node that is not ready or not reachable, unless the pod says otherwise.
pub(crate) fn tolerate_sick_nodes(spec: &mut Value) {
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
