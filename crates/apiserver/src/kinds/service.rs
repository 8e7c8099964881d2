//! Services: defaults, an address of the service network, which stays, and the columns of `kubectl get services`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, created, name, or_none, plain};
use super::filling::{set, with};
use super::keeping::copy;
use super::{KindRules, PLAIN};
use crate::cause::Cause;
use crate::checks::{items, text};
use crate::error::ApiResult;
use crate::store::state::State;

/// Fields of the addresses that a Service is given: the first one, and all.
const ADDRESSES: [&str; 2] = ["clusterIP", "clusterIPs"];

pub(super) const RULES: KindRules = KindRules {
    default,
    check,
    admit,
    update: keep_addresses,
    admit_update: admit,
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
    if !has_addresses(object) {
        return Ok(());
    }
    let spec = &mut object["spec"];
    if spec["clusterIP"].is_string() {
        // Who names one means that it is the first of all.
        if items(&spec["clusterIPs"]).is_empty() {
            spec["clusterIPs"] = json!([spec["clusterIP"]]);
        }
        return Ok(());
    }
    let taken: std::collections::BTreeSet<&str> = state
        .objects("", "services")
        .filter_map(|service| service["spec"]["clusterIP"].as_str())
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

fn has_addresses(service: &Value) -> bool {
    service["spec"]["type"] != "ExternalName"
}

/// The addresses of a Service stay when an update leaves them out, and go with a type that has none.
fn keep_addresses(old: &Value, object: &mut Value) {
    if !has_addresses(old) {
        return;
    }
    let before = &old["spec"];
    let keeps_them = has_addresses(object);
    let are_same = ADDRESSES
        .iter()
        .all(|field| object["spec"][*field] == before[*field]);
    let spec = &mut object["spec"];
    for field in ADDRESSES {
        if keeps_them && spec.get(field).is_none() {
            copy(field, before, spec);
        } else if !keeps_them && are_same {
            copy(field, &Value::Null, spec);
        }
    }
    if !keeps_them {
        return;
    }
    // An old client knows of one address only.
    if spec["clusterIP"] != before["clusterIP"] && spec["clusterIPs"] == before["clusterIPs"] {
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
}

fn check(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let addresses = &new["spec"]["clusterIPs"];
    let all = items(addresses);
    if has_addresses(new) && all.first().map_or("", text) != text(&new["spec"]["clusterIP"]) {
        causes.push(Cause::invalid(
            "spec.clusterIPs",
            addresses,
            "first value must match `clusterIP`",
        ));
    }
    let Some(old) = old.filter(|old| has_addresses(old) && has_addresses(new)) else {
        return;
    };
    let before = items(&old["spec"]["clusterIPs"]);
    if all.len() == before.len() {
        let pairs = before.iter().zip(all).enumerate();
        for (index, _) in pairs.filter(|(_, (old, new))| old != new) {
            causes.push(Cause::invalid(
                format_args!("spec.clusterIPs[{index}]"),
                addresses,
                "may not change once set",
            ));
        }
    } else if let Some(first) = before.first() {
        let problem = match all.first() {
            None => "primary clusterIP can not be unset",
            Some(address) if address != first => "may not change once set",
            Some(_) => return,
        };
        causes.push(Cause::invalid("spec.clusterIPs[0]", addresses, problem));
    }
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
