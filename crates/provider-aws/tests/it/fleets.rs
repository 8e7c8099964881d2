//! replies to launches.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use spokeshave_model::CapacityType;
use spokeshave_provider_aws::errors::ApiError;
use spokeshave_provider_aws::fleet::{
    Asked, FleetError, LaunchFailure, Launched, Mark, Place, Strategy, call_failure, marks, outcome,
};
use spokeshave_provider_aws::unavailable::PlacementGroupKey;

use crate::oracle;

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn request(case: &Value) -> Asked {
    let zones: BTreeMap<String, String> = serde_json::from_value(case["zones"].clone()).unwrap();
    let types = oracle::list(case, "instanceTypes");
    let capacity_types: BTreeSet<CapacityType> = oracle::list(case, "capacityTypes")
        .iter()
        .map(|name| name.as_str().unwrap().parse().unwrap())
        .collect();
    let capacity_type = *capacity_types.first().unwrap();
    let places = types.iter().flat_map(|name| {
        zones.iter().map(move |(zone, subnet)| {
            let name = name.as_str().unwrap();
            Place {
                instance_type: name.to_owned(),
                zone: zone.clone(),
                subnet_id: subnet.clone(),
            }
        })
    });
    let places: Vec<Place> = places.collect();
    let reserved = places.iter().filter(|_| capacity_type == CapacityType::Reserved);
    let reservations = reserved.map(|place| {
        let (name, zone) = (&place.instance_type, &place.zone);
        ((name.clone(), zone.clone()), format!("cr-{name}-{zone}"))
    });
    let group = case.get("placementGroup").map(|group| {
        let strategy = match group["strategy"].as_str().unwrap() {
            "cluster" => Strategy::Cluster,
            "partition" => Strategy::Partition,
            _ => Strategy::Spread,
        };
        let partition = group.get("partition").and_then(Value::as_str);
        let key = PlacementGroupKey {
            id: text(group, "id"),
            partition: partition.map(|number| number.parse().unwrap()),
        };
        (key, strategy)
    });
    Asked {
        capacity_type,
        reservations: reservations.collect(),
        places,
        placement_group: group,
    }
}

fn place(request: &Asked, value: &Value) -> Place {
    let (name, zone) = (text(value, "instanceType"), text(value, "zone"));
    let mut places = request.places.iter();
    places
        .find(|place| place.instance_type == name && place.zone == zone)
        .unwrap()
        .clone()
}

/// Marks as the oracle writes them.
fn written(marks: &BTreeSet<Mark>) -> Value {
    let (mut offerings, mut capacity_types, mut subnets, mut reservations) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for mark in marks {
        match mark {
            Mark::Offering(key) => {
                let group = key.placement_group.as_ref();
                let group = group.map_or_else(String::new, |group| {
                    let partition = group
                        .partition
                        .map_or_else(String::new, |number| format!(":{number}"));
                    format!(":{}{partition}", group.id)
                });
                offerings.push(format!(
                    "{}:{}:{}{group}",
                    key.capacity_type, key.instance_type, key.zone
                ));
            }
            Mark::CapacityType(capacity_type) => capacity_types.push(capacity_type.to_string()),
            Mark::Subnet(id) => subnets.push(id.clone()),
            Mark::Reservation(id) => reservations.push(id.clone()),
        }
    }
    offerings.sort();
    let mut written = json!({"offerings": offerings, "capacity_types": capacity_types, "subnets": subnets});
    if !reservations.is_empty() {
        written["reservations"] = json!(reservations);
    }
    written
}

#[test]
fn a_076_a_077_a_079_replies_of_fleets_mean_what_upstream_makes_of_them() {
    let cases: Value = serde_saphyr::from_str(&oracle::text("fleets.yaml")).unwrap();
    let expected = oracle::json("expected/fleets.json");
    let cases = oracle::list(&cases, "fleets");
    let expected = oracle::list(&expected, "fleets");
    assert_eq!(cases.len(), expected.len());
    let mut different = Vec::new();
    for (case, expected) in cases.iter().zip(expected) {
        if !leaves_out_the_same(case, expected) {
            different.push(text(case, "name"));
        }
    }
    different.sort();
    let listed: Vec<String> = oracle::differences("fleets").into_keys().collect();
    assert_eq!(different, listed);
}

/// Checks a case. Returns whether ours and upstream's leave out the same.
fn leaves_out_the_same(case: &Value, expected: &Value) -> bool {
    let name = text(case, "name");
    let request = request(case);
    let error = |value: &Value| ApiError {
        server_fault: value["fault"] == "server",
        ..ApiError::new(&text(value, "code"), &text(value, "message"))
    };
    let errors: Vec<FleetError> = case["errors"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|value| FleetError {
            error: error(value),
            place: place(&request, value),
        })
        .collect();
    let launched = case.get("launched").map(|value| Launched {
        instance_id: "i-1".into(),
        place: place(&request, value),
    });
    let mut theirs = expected["unavailable"].clone();
    if let Some(reservations) = theirs.get_mut("reservations").and_then(Value::as_array_mut) {
        reservations.sort_by_key(Value::to_string);
    }
    let mut ours = written(&marks(&request, &errors));
    if ours["capacity_types"] != json!([]) {
        // The oracle does not list offerings of a capacity type that is unavailable as a whole.
        ours["offerings"] = json!([]);
    }
    let is_same = ours == theirs;
    if !is_same {
        println!("{name} leaves out {ours}, upstream {theirs}");
    }
    let result = match case.get("callError") {
        Some(call) => Err(call_failure(&error(call))),
        None => outcome(launched, &errors),
    };
    match (result, expected.get("error")) {
        (Ok(launched), None) => {
            let place = launched.place;
            let written = format!("{}:{}:{}", request.capacity_type, place.instance_type, place.zone);
            assert_eq!(written, expected["launched"], "{name}");
        }
        (Err(LaunchFailure::InsufficientCapacity(text)), Some(theirs)) => {
            assert_eq!(theirs["class"], "insufficient_capacity", "{name}");
            let expected = theirs["text"].as_str().unwrap();
            assert!(
                expected.starts_with(&format!("insufficient capacity, with fleet error(s), {text}")),
                "{name}: {text} against {expected}"
            );
        }
        (Err(LaunchFailure::Create { reason, message, .. }), Some(theirs)) => {
            if theirs["class"] == "panic" {
                assert_eq!((name.as_str(), reason), ("nothing-at-all", "LaunchFailed"));
                return is_same;
            }
            assert_eq!(theirs["class"], "create", "{name}");
            assert_eq!(
                (json!(reason), json!(message)),
                (theirs["reason"].clone(), theirs["message"].clone()),
                "{name}"
            );
        }
        (ours, theirs) => panic!("{name}: {ours:?} against {theirs:?}"),
    }
    is_same
}
