//! Quantities as thousandths, and the sum of a pod's requests as kube-scheduler computes it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Resource name → thousandths of its unit.
pub(crate) type Amounts = BTreeMap<String, i128>;

/// Thousandths of the unit, rounded up; what cannot be read counts as nothing.
pub(crate) fn milli(quantity: &Quantity) -> i128 {
    let text = quantity.0.trim();
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let Ok(number) = number.parse::<f64>() else {
        return 0;
    };
    let binary = |power: i32| 1024_f64.powi(power);
    let scale = match suffix {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        other => other
            .strip_prefix(['e', 'E'])
            .and_then(|power| power.parse().ok())
            .map_or(1.0, |power| 10_f64.powi(power)),
    };
    (number * scale * 1000.0).ceil() as i128
}

pub(crate) fn amounts(map: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    map.into_iter()
        .flatten()
        .map(|(name, quantity)| (name.clone(), milli(quantity)))
        .collect()
}

pub(crate) fn add(sum: &mut Amounts, other: &Amounts) {
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
pub(crate) fn pod_requests(spec: &PodSpec) -> Amounts {
    let mut running = Amounts::new();
    let mut peak = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let own = requests_of(container);
        let mut moment = running.clone();
        add(&mut moment, &own);
        raise(&mut peak, &moment);
        if container.restart_policy.as_deref() == Some("Always") {
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
            ("1.5", 1500),
            ("1Ki", 1_024_000),
            ("1e3", 1_000_000),
            ("junk", 0),
        ] {
            assert_eq!(milli(&Quantity(text.to_owned())), expected, "{text}");
        }
    }
}
