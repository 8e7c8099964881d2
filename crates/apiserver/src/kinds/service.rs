//! Services: defaults, an address of the service network, and the columns of `kubectl get services`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, created, name, or_none, plain};
use super::filling::{set, with};
use super::{KindRules, PLAIN};
use crate::error::ApiResult;
use crate::store::state::State;

pub(super) const RULES: KindRules = KindRules {
    default,
    admit,
    columns: COLUMNS,
    cells,
    ..PLAIN
};

fn default(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec") {
        default_spec(spec);
    }
}

fn default_spec(spec: &mut Value) {
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

/// A Service gets the first free address of the service network unless it names one.
fn admit(state: &State, object: &mut Value) -> ApiResult<()> {
    let spec = &object["spec"];
    if spec["clusterIP"].is_string() || spec["type"] == "ExternalName" {
        return Ok(());
    }
    let taken: std::collections::BTreeSet<&str> = state
        .collections
        .get(&(String::new(), "services".to_owned()))
        .into_iter()
        .flat_map(|services| services.objects.values())
        .filter_map(|service| service.value["spec"]["clusterIP"].as_str())
        .collect();
    let free = (10_u32..65_000)
        .map(|number| format!("10.96.{}.{}", number >> 8, number & 255))
        .find(|address| !taken.contains(address.as_str()));
    if let Some(address) = free {
        object["spec"]["clusterIPs"] = json!([address]);
        object["spec"]["clusterIP"] = json!(address);
    }
    Ok(())
}

const COLUMNS: &[Column] = &[
    NAME,
    Column("Type", "string", 0),
    Column("Cluster-IP", "string", 0),
    Column("External-IP", "string", 0),
    Column("Port(s)", "string", 0),
    AGE,
    Column("Selector", "string", 1),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = object["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| format!("{}/{}", plain(&port["port"]), plain(&port["protocol"])))
        .collect();
    let labels: Vec<String> = object["spec"]["selector"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", plain(value)))
        .collect();
    vec![
        name(object),
        object["spec"]["type"].clone(),
        or_none(object["spec"]["clusterIP"].as_str().unwrap_or_default()),
        json!("<none>"),
        or_none(&ports.join(",")),
        created(object, now),
        or_none(&labels.join(",")),
    ]
}
