//! What a node does when it starts: the user's own template of custom data with the cluster's facts filled in (Z12, Z-039).
//!
//! A template is text with placeholders such as `{{ cluster_endpoint }}`. Any other text, and any other use of braces, stays as it is.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};
use spokeshave_api::aks_node_class::KubeletConfiguration;
use spokeshave_model::{InstanceType, ResourceName};

use crate::requests::LARGEST_CUSTOM_DATA_BYTES;

/// A node of kubeadm's.
pub const KUBEADM: &str = include_str!("../templates/kubeadm.sh");
/// An agent of k3s.
pub const K3S: &str = include_str!("../templates/k3s.sh");
/// A worker of Talos.
pub const TALOS: &str = include_str!("../templates/talos.yaml");

/// The cluster as its nodes are told of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// URL of its API server.
    pub endpoint: String,
    /// Its certificates, as PEM.
    pub ca_bundle: String,
    /// Token with which nodes join.
    pub bootstrap_token: String,
    /// Address of its DNS.
    pub dns_service_ip: String,
    /// Version of Kubernetes, such as `1.34.1`.
    pub kubernetes_version: String,
}

/// A node to be.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its provider ID.
    pub provider_id: &'a str,
    /// Its type.
    pub instance_type: &'a InstanceType,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Its taints, those of the start included.
    pub taints: &'a [Taint],
    /// Configuration of its kubelet.
    pub kubelet: Option<&'a KubeletConfiguration>,
}

/// Why a template cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It has a placeholder that means nothing.
    #[error(
        "the bootstrap template has {{{{ {placeholder} }}}}, which means nothing; expected one of {known}"
    )]
    Unknown {
        /// The placeholder.
        placeholder: String,
        /// Those that there are.
        known: String,
    },
    /// It needs something that the settings do not give.
    #[error("the bootstrap template has {{{{ {0} }}}}, which the settings leave empty")]
    Empty(String),
    /// It is larger than custom data may be.
    #[error(
        "the bootstrap template makes {0} bytes of custom data; Azure takes {LARGEST_CUSTOM_DATA_BYTES} at most"
    )]
    TooLarge(usize),
}

/// Custom data for a node, not encoded.
///
/// # Errors
/// When the template asks for what there is not, or the result is too large.
pub fn render(template: &str, cluster: &Cluster, node: &Node<'_>) -> Result<String, TemplateError> {
    let values = values(cluster, node);
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        text.push_str(before);
        let placeholder = after
            .split_once("}}")
            .map(|(inside, rest)| (inside.trim(), rest))
            .filter(|(inside, _)| {
                !inside.is_empty() && inside.chars().all(|it| it.is_ascii_lowercase() || it == '_')
            });
        match placeholder {
            Some((name, after)) => {
                text.push_str(value(&values, name)?);
                rest = after;
            }
            None => {
                text.push_str("{{");
                rest = after;
            }
        }
    }
    text.push_str(rest);
    if text.len() > LARGEST_CUSTOM_DATA_BYTES {
        return Err(TemplateError::TooLarge(text.len()));
    }
    Ok(text)
}

/// Placeholders whose value may be empty.
const MAY_BE_EMPTY: [&str; 4] = ["labels", "taints", "kubelet_flags", "dns_service_ip"];

fn value<'a>(values: &'a BTreeMap<&str, String>, name: &str) -> Result<&'a str, TemplateError> {
    let Some(value) = values.get(name) else {
        let known: Vec<&str> = values.keys().copied().collect();
        return Err(TemplateError::Unknown {
            placeholder: name.to_owned(),
            known: known.join(", "),
        });
    };
    if value.is_empty() && !MAY_BE_EMPTY.contains(&name) {
        return Err(TemplateError::Empty(name.to_owned()));
    }
    Ok(value)
}

fn values(cluster: &Cluster, node: &Node<'_>) -> BTreeMap<&'static str, String> {
    let taint = |taint: &Taint| {
        let value = taint.value.as_deref().unwrap_or_default();
        format!("{}={value}:{}", taint.key, taint.effect)
    };
    let labels = node.labels.iter().map(|(key, value)| format!("{key}={value}"));
    let taints = node.taints.iter().map(taint);
    let server = cluster
        .endpoint
        .trim_start_matches("https://")
        .trim_end_matches('/');
    BTreeMap::from([
        ("cluster_name", cluster.name.clone()),
        ("cluster_endpoint", cluster.endpoint.clone()),
        ("cluster_server", server.to_owned()),
        ("cluster_ca", encoded(&cluster.ca_bundle)),
        ("bootstrap_token", cluster.bootstrap_token.clone()),
        ("dns_service_ip", cluster.dns_service_ip.clone()),
        ("kubernetes_version", cluster.kubernetes_version.clone()),
        ("node_name", node.name.to_owned()),
        ("provider_id", node.provider_id.to_owned()),
        ("labels", labels.collect::<Vec<_>>().join(",")),
        ("labels_json", json!(node.labels).to_string()),
        ("taints", taints.collect::<Vec<_>>().join(",")),
        ("taints_json", json!(node.taints).to_string()),
        ("kubelet_flags", kubelet_flags(node).join(" ")),
        (
            "kubelet_config_json",
            kubelet_configuration(cluster, node).to_string(),
        ),
    ])
}

fn encoded(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        STANDARD.encode(text)
    }
}

/// What is kept back from pods, as quantities.
fn reserved(instance_type: &InstanceType) -> Vec<(&'static str, String)> {
    let reserved = &instance_type.overhead.kube_reserved;
    [ResourceName::CPU, ResourceName::MEMORY]
        .into_iter()
        .map(|name| (name, ResourceName::format(name, reserved.get(name))))
        .collect()
}

fn eviction(instance_type: &InstanceType) -> String {
    let memory = instance_type
        .overhead
        .eviction_threshold
        .get(ResourceName::MEMORY);
    ResourceName::format(ResourceName::MEMORY, memory)
}

/// Flags of the kubelet that say the same as its configuration, for what starts it with flags. A shell must be given them in quotes: the threshold
/// of eviction has a `<`.
fn kubelet_flags(node: &Node<'_>) -> Vec<String> {
    let instance_type = node.instance_type;
    let reserved = reserved(instance_type);
    let reserved: Vec<String> = reserved
        .iter()
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect();
    let mut flags = vec![
        "--cloud-provider=external".to_owned(),
        format!("--provider-id={}", node.provider_id),
        format!("--max-pods={}", instance_type.capacity.get(ResourceName::PODS)),
        format!("--kube-reserved={}", reserved.join(",")),
        format!("--eviction-hard=memory.available<{}", eviction(instance_type)),
    ];
    let Some(kubelet) = node.kubelet else {
        return flags;
    };
    let mut flag =
        |name: &str, value: Option<String>| flags.extend(value.map(|value| format!("--{name}={value}")));
    flag("cpu-manager-policy", kubelet.cpu_manager_policy.clone());
    flag("cpu-cfs-quota", kubelet.cpu_cfs_quota.map(|it| it.to_string()));
    flag("cpu-cfs-quota-period", kubelet.cpu_cfs_quota_period.clone());
    flag(
        "image-gc-high-threshold",
        kubelet.image_gc_high_threshold_percent.map(|it| it.to_string()),
    );
    flag(
        "image-gc-low-threshold",
        kubelet.image_gc_low_threshold_percent.map(|it| it.to_string()),
    );
    flag("topology-manager-policy", kubelet.topology_manager_policy.clone());
    let sysctls = kubelet.allowed_unsafe_sysctls.join(",");
    flag(
        "allowed-unsafe-sysctls",
        Some(sysctls).filter(|it| !it.is_empty()),
    );
    flag("container-log-max-size", kubelet.container_log_max_size.clone());
    flag(
        "container-log-max-files",
        kubelet.container_log_max_files.map(|it| it.to_string()),
    );
    flag("pod-max-pids", kubelet.pod_pids_limit.map(|it| it.to_string()));
    flag("fail-swap-on", kubelet.fail_swap_on.map(|it| it.to_string()));
    flags
}

fn kubelet_configuration(cluster: &Cluster, node: &Node<'_>) -> Value {
    let instance_type = node.instance_type;
    let reserved: BTreeMap<&str, String> = reserved(instance_type).into_iter().collect();
    let mut configuration = json!({
        "maxPods": instance_type.capacity.get(ResourceName::PODS),
        "kubeReserved": reserved,
        "evictionHard": {"memory.available": eviction(instance_type)},
        "registerWithTaints": node.taints,
    });
    if !cluster.dns_service_ip.is_empty() {
        configuration["clusterDNS"] = json!([cluster.dns_service_ip]);
    }
    let kubelet = node
        .kubelet
        .and_then(|kubelet| serde_json::to_value(kubelet).ok());
    let fields = kubelet.as_ref().and_then(Value::as_object);
    for (field, value) in fields.into_iter().flatten() {
        configuration[field] = value.clone();
    }
    configuration
}
