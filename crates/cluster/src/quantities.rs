//! Quantities as thousandths, and the sum of a pod's requests as kube-scheduler computes it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Resource name → thousandths of its unit.
pub type Amounts = BTreeMap<String, i128>;

/// Thousandths of the unit, rounded up; what cannot be read counts as nothing.
pub fn milli(quantity: &Quantity) -> i128 {
    <spokeshave_api::Quantity as spokeshave_api::WireForm>::from_wire(quantity)
        .map_or(0, spokeshave_api::Quantity::milli)
}

/// All quantities of a map.
pub fn amounts(map: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    map.into_iter()
        .flatten()
        .map(|(name, quantity)| (name.clone(), milli(quantity)))
        .collect()
}

/// Adds to a sum.
pub fn add(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        *sum.entry(name.clone()).or_insert(0) += amount;
    }
}

fn raise(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let entry = sum.entry(name.clone()).or_insert(0);
        *entry = (*entry).max(*amount);
    }
}

/// Whether an init container keeps running beside the containers.
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn requests_of(container: &Container) -> Amounts {
    amounts(
        container
            .resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref()),
    )
}

/// Requests of a pod: containers and sidecars together, at least each init container with the sidecars before it; pod-level requests win;
/// overhead on top; and one pod.
pub fn pod_requests(spec: &PodSpec) -> Amounts {
    let mut running = Amounts::new();
    let mut peak = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let own = requests_of(container);
        let mut moment = running.clone();
        add(&mut moment, &own);
        raise(&mut peak, &moment);
        if is_sidecar(container) {
            add(&mut running, &own);
        }
    }
    for container in &spec.containers {
        add(&mut running, &requests_of(container));
    }
    raise(&mut running, &peak);
    for (name, amount) in amounts(
        spec.resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref()),
    ) {
        running.insert(name, amount);
    }
    add(&mut running, &amounts(spec.overhead.as_ref()));
    *running.entry("pods".to_owned()).or_insert(0) += 1000;
    running
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_of_sidecars_and_init_containers() {
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
                {"name": "init", "resources": {"requests": {"cpu": "2"}}},
            ],
            "overhead": {"cpu": "10m"},
        }))
        .unwrap();
        let requests = pod_requests(&spec);
        assert_eq!(
            (requests["cpu"], requests["memory"], requests["pods"]),
            (2110, 1024 * 1024 * 1024 * 1000, 1000)
        );
    }

    #[test]
    fn quantities() {
        for (text, expected) in [
            ("1", 1000),
            ("100m", 100),
            ("700m", 700),
            ("1900m", 1900),
            ("0.7", 700),
            ("1.0005", 1001),
            ("1u", 1),
            (".5", 500),
            ("5.", 5000),
            ("-1.5", -1500),
            ("1.5Gi", 1_610_612_736_000),
            ("1.5", 1500),
            ("1Ki", 1_024_000),
            ("1e3", 1_000_000),
            ("junk", 0),
        ] {
            assert_eq!(milli(&Quantity(text.to_owned())), expected, "{text}");
        }
    }
}
