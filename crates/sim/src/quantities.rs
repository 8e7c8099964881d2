//! Quantities as thousandths, and the sum of a pod's requests as kube-scheduler computes it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Resource name → thousandths of its unit.
pub(crate) type Amounts = BTreeMap<String, i128>;

/// Thousandths of the unit, rounded up; what cannot be read counts as nothing. In whole numbers: as a fraction of two, 700m would be 701.
pub(crate) fn milli(quantity: &Quantity) -> i128 {
    let text = quantity.0.trim();
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let Ok(digits) = format!("{whole}{fraction}").parse::<i128>() else {
        return 0;
    };
    let (ten, kibi): (i32, u32) = match suffix {
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 1),
        "Mi" => (0, 2),
        "Gi" => (0, 3),
        "Ti" => (0, 4),
        "Pi" => (0, 5),
        "Ei" => (0, 6),
        other => (
            other
                .strip_prefix(['e', 'E'])
                .and_then(|power| power.parse().ok())
                .unwrap_or(0),
            0,
        ),
    };
    let scaled = digits.saturating_mul(1024_i128.pow(kibi));
    let decimals = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let power = ten.saturating_add(3).saturating_sub(decimals);
    let factor = 10_i128.checked_pow(power.unsigned_abs()).unwrap_or(i128::MAX);
    if power >= 0 {
        return scaled.saturating_mul(factor);
    }
    let (floor, rest) = (scaled.div_euclid(factor), scaled.rem_euclid(factor));
    floor + i128::from(rest > 0)
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
