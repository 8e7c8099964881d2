//! StatefulSets: defaults, those of their volume claims included, what may change, and columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, created, name};
use super::filling::{set, with};
use super::keeping::all_but;
use super::workload::{self, WIDE, ready, wide};
use super::{KindRules, PLAIN, pod_template};
use crate::cause::Cause;

/// Fields of the spec that may change.
const CHANGEABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub(super) const RULES: KindRules = KindRules {
    default,
    check,
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
        set(spec, "replicas", json!(1));
        set(spec, "podManagementPolicy", json!("OrderedReady"));
        set(spec, "revisionHistoryLimit", json!(10));
        workload::default_update_strategy(spec, &[("partition", 0)]);
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
    pod_template::default(&mut spec["template"]["spec"]);
}

fn check(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    workload::check("statefulset", new, old, causes);
    let Some(old) = old else { return };
    let (spec, before) = (&new["spec"], &old["spec"]);
    if all_but(spec, &CHANGEABLE) != all_but(before, &CHANGEABLE) {
        let [others @ .., last] = CHANGEABLE.map(|field| format!("'{field}'"));
        let problem = format!(
            "updates to statefulset spec for fields other than {} and {last} are forbidden",
            others.join(", ")
        );
        causes.push(Cause::forbidden("spec", &problem));
    }
}

const COLUMNS: &[Column] = &[NAME, Column("Ready", "string", 0), AGE, WIDE[0], WIDE[1]];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let [containers, images, _] = wide(object);
    vec![
        name(object),
        ready(object),
        created(object, now),
        containers,
        images,
    ]
}
