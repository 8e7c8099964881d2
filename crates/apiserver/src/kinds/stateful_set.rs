//! StatefulSets: defaults, those of their volume claims included, strategies that are none, what may change, and columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, created, name};
use super::filling::{set, with};
use super::keeping::all_but;
use super::workload::{self, WIDE, ready, wide};
use super::{KindRules, PLAIN, pod_template};
use crate::cause::Cause;
use crate::checks::text;
use crate::error::ApiResult;
use crate::store::state::State;

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
    admit,
    update,
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

fn admit(_: &State, object: &mut Value) -> ApiResult<()> {
    drop_gated(object);
    Ok(())
}

fn update(_: &Value, object: &mut Value) {
    drop_gated(object);
}

/// Of a field whose feature gate is off (MaxUnavailableStatefulSet, by default up to 1.36) servers take no notice.
fn drop_gated(object: &mut Value) {
    let rolling = object.pointer_mut("/spec/updateStrategy/rollingUpdate");
    if let Some(rolling) = rolling.and_then(Value::as_object_mut) {
        rolling.remove("maxUnavailable");
    }
}

fn check(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    workload::check("statefulset", new, old, causes);
    check_strategy(&new["spec"]["updateStrategy"], causes);
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

fn check_strategy(strategy: &Value, causes: &mut Vec<Cause>) {
    let path = "spec.updateStrategy";
    let rolling = &strategy["rollingUpdate"];
    match text(&strategy["type"]) {
        "RollingUpdate" => {
            let partition = &rolling["partition"];
            if partition.as_i64().is_some_and(|first| first < 0) {
                causes.push(Cause::invalid(
                    format_args!("{path}.rollingUpdate.partition"),
                    partition,
                    "must be greater than or equal to 0",
                ));
            }
        }
        "OnDelete" if rolling.is_null() => {}
        "OnDelete" => causes.push(Cause::invalid(
            format_args!("{path}.rollingUpdate"),
            rolling,
            "only allowed for updateStrategy 'RollingUpdate'",
        )),
        // Without a spec there is none, not even by default.
        _ if strategy.is_null() => {}
        _ => causes.push(Cause::invalid(
            path,
            strategy,
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
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
