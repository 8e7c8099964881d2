//! A machine as its own kubelet sees it: what custom data has told it, and what its size has.
//!
//! Owns the template of custom data that machines from here understand, and the Node that one registers.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Taint;
use serde::Deserialize;
use serde_json::{Value, json};
use spokeshave_api::{Quantity, labels};
use spokeshave_provider_azure::gpus;
use spokeshave_provider_azure::names::zone_label;
use spokeshave_provider_azure::skus::Sku;

/// Template of the custom data that machines from here join with.
pub const TEMPLATE: &str = r#"{"name": "{{ node_name }}", "providerId": "{{ provider_id }}", "server": "{{ cluster_endpoint }}", "labels": {{ labels_json }}, "taints": {{ taints_json }}, "kubelet": {{ kubelet_config_json }}}"#;
/// What marks Nodes whose kubelets are simulated.
const FAKE: (&str, &str) = ("kwok.x-k8s.io/node", "fake");
/// Share of the memory that a guest sees, in thousandths: firmware and kernel take the rest.
const VISIBLE_MEMORY: f64 = 0.97;
const KIB_IN_GIB: f64 = 1_048_576.0;
/// Pods of a node that nothing was said about.
const PODS: i64 = 110;

/// What a machine was told.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Told {
    pub(crate) name: String,
    pub(crate) provider_id: String,
    labels: BTreeMap<String, String>,
    #[serde(default)]
    taints: Vec<Taint>,
    #[serde(default)]
    kubelet: Kubelet,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kubelet {
    max_pods: Option<i64>,
    kube_reserved: BTreeMap<String, String>,
    eviction_hard: BTreeMap<String, String>,
}

/// A machine that may join.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) told: Told,
    /// Whether it has started, and its kubelet with it.
    pub(crate) is_up: bool,
    pub(crate) region: String,
    pub(crate) zone: Option<String>,
    pub(crate) sku: Sku,
}

/// What custom data says; `None` for a template that machines from here do not understand: they never join.
pub(crate) fn read(custom_data: &str) -> Option<Told> {
    let text = STANDARD.decode(custom_data.trim()).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The size of a machine.
pub(crate) fn size(machine: &Value) -> &str {
    machine["properties"]["hardwareProfile"]["vmSize"]
        .as_str()
        .unwrap_or_default()
}

/// The Node as the kubelet of a machine registers it, with the labels that a cloud controller manager adds.
pub(crate) fn node(machine: &Machine) -> Value {
    let told = &machine.told;
    let zone = zone_label(&machine.region, machine.zone.as_deref());
    let mut labels = told.labels.clone();
    labels.extend(
        [
            (labels::ARCH, machine.sku.architecture()),
            (labels::OS, "linux"),
            (labels::HOSTNAME, &told.name),
            (labels::INSTANCE_TYPE, &machine.sku.name),
            (labels::ZONE, &zone),
            (labels::REGION, &machine.region),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let (capacity, allocatable) = resources(machine);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": told.name, "labels": labels, "annotations": {FAKE.0: FAKE.1}},
        "spec": {"providerID": told.provider_id, "taints": told.taints},
        "status": {"capacity": capacity, "allocatable": allocatable, "phase": "Pending"},
    })
}

/// Capacity and allocatable, as the kubelet of a machine says.
fn resources(machine: &Machine) -> (Value, Value) {
    let kubelet = &machine.told.kubelet;
    let millicores = machine.sku.cpus().unwrap_or(0) * 1000;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "terabytes in KiB are far below 2^53"
    )]
    let memory_kib = (machine.sku.memory_gib().unwrap_or(0.0) * KIB_IN_GIB * VISIBLE_MEMORY) as i64;
    let kept = |name: &str| kubelet.kube_reserved.get(name).map_or(0, |it| amount(it));
    let evicts_at = kubelet
        .eviction_hard
        .get("memory.available")
        .map_or(0, |it| amount(it));
    let mut capacity = json!({
        "cpu": format!("{millicores}m"), "memory": format!("{memory_kib}Ki"),
        "pods": kubelet.max_pods.unwrap_or(PODS).to_string(), "ephemeral-storage": "124Gi",
    });
    if let Some(found) = gpus::of(&machine.sku.name) {
        let resource = format!("{}.com/gpu", found.maker);
        capacity[resource] = json!(machine.sku.gpus().to_string());
    }
    let mut allocatable = capacity.clone();
    allocatable["cpu"] = json!(format!("{}m", millicores - kept("cpu")));
    let left = memory_kib - (kept("memory") + evicts_at) / 1000 / 1024;
    allocatable["memory"] = json!(format!("{}Ki", left.max(0)));
    allocatable["ephemeral-storage"] = json!("112Gi");
    (capacity, allocatable)
}

/// A quantity in thousandths; nothing for one that cannot be read.
fn amount(text: &str) -> i64 {
    let quantity: Option<Quantity> = text.parse().ok();
    quantity.map_or(0, Quantity::to_milli)
}
