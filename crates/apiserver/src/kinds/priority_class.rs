//! PriorityClasses: their default policy, values that are the system's own, that only one is for pods which name none, what pods take over, columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, created, name};
use super::filling::{set, with};
use super::pod_template::PREEMPTION_POLICIES;
use super::{KindRules, PLAIN};
use crate::cause::Cause;
use crate::checks::{immutable, one_of, text};
use crate::error::{ApiError, ApiResult};
use crate::store::state::State;

/// What pods do of which nobody says otherwise.
const PREEMPT: &str = "PreemptLowerPriority";
/// Highest value of a class that users make.
const MOST_VALUE: i64 = 1_000_000_000;
/// Names that begin so are the system's.
const SYSTEM: &str = "system-";
const SYSTEM_CLASSES: [(&str, i64); 2] = [
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];

pub(super) const RULES: KindRules = KindRules {
    default,
    check,
    admit: |state, class| only_default(state, class),
    admit_update: |state, class| only_default(state, class),
    columns: COLUMNS,
    cells,
    ..PLAIN
};

fn default(object: &mut Value) {
    with(object, |object| set(object, "preemptionPolicy", json!(PREEMPT)));
}

fn check(new: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let (value, policy) = (&new["value"], &new["preemptionPolicy"]);
    if let Some(old) = old {
        if *value != old["value"] {
            causes.push(Cause::forbidden("value", "may not be changed in an update."));
        }
        immutable(policy, &old["preemptionPolicy"], "preemptionPolicy", causes);
        return;
    }
    if text(&new["metadata"]["name"]).starts_with(SYSTEM) {
        if let Some(problem) = unlike_the_systems(new) {
            causes.push(Cause::forbidden(
                "metadata.name",
                &format!(
                    "priority class names with '{SYSTEM}' prefix are reserved for system use only. error: {problem}"
                ),
            ));
        }
    } else if value.as_i64().is_some_and(|value| value > MOST_VALUE) {
        causes.push(Cause::forbidden(
            "value",
            &format!("maximum allowed value of a user defined priority is {MOST_VALUE}"),
        ));
    }
    one_of(policy, &"preemptionPolicy", PREEMPTION_POLICIES, causes);
}

/// Why a class with a name of the system is none of the system's.
fn unlike_the_systems(class: &Value) -> Option<String> {
    let named = text(&class["metadata"]["name"]);
    let known = SYSTEM_CLASSES.into_iter().find(|(name, _)| *name == named);
    let Some((name, value)) = known else {
        return Some(format!("{named} is not a known system priority class"));
    };
    if class["value"] != value {
        return Some(format!("value of {name} PriorityClass must be {value}"));
    }
    (class["globalDefault"] == true).then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

/// A class becomes the default one only where there is no other.
fn only_default(state: &State, class: &Value) -> ApiResult<()> {
    if class["globalDefault"] != true {
        return Ok(());
    }
    let name = text(&class["metadata"]["name"]);
    let Some(other) = default_class(state).filter(|other| other.name != name) else {
        return Ok(());
    };
    let (group, plural) = ("scheduling.k8s.io", "priorityclasses");
    let problem = format!(
        "PriorityClass {} is already marked as default. Only one default can exist",
        other.name
    );
    Err(ApiError::forbidden(group, plural, name, &problem))
}

/// What a pod takes over from its class.
pub(super) struct Class<'a> {
    /// Empty where there is no class.
    pub(super) name: &'a str,
    pub(super) value: i64,
    pub(super) policy: &'a str,
}

impl<'a> Class<'a> {
    fn of(class: &'a Value) -> Self {
        Self {
            name: text(&class["metadata"]["name"]),
            value: class["value"].as_i64().unwrap_or(0),
            policy: class["preemptionPolicy"].as_str().unwrap_or(PREEMPT),
        }
    }
}

/// All classes.
fn classes(state: &State) -> impl Iterator<Item = &Value> {
    state.objects("scheduling.k8s.io", "priorityclasses")
}

/// The class of pods that name none. Of several the one of least value counts.
fn default_class(state: &State) -> Option<Class<'_>> {
    classes(state)
        .filter(|class| class["globalDefault"] == true)
        .map(Class::of)
        .min_by_key(|class| class.value)
}

/// The class of a pod that names it, or that names none.
///
/// # Errors
/// There is no such class.
pub(super) fn of_pod<'a>(state: &'a State, named: &str) -> Result<Class<'a>, String> {
    if named.is_empty() {
        let none = Class {
            name: "",
            value: 0,
            policy: PREEMPT,
        };
        return Ok(default_class(state).unwrap_or(none));
    }
    classes(state)
        .find(|class| class["metadata"]["name"] == named)
        .map(Class::of)
        .ok_or_else(|| format!("no PriorityClass with name {named} was found"))
}

const COLUMNS: &[Column] = &[
    NAME,
    Column("Value", "integer", 0),
    Column("Global-Default", "boolean", 0),
    AGE,
    Column("PreemptionPolicy", "string", 0),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        object["value"].clone(),
        json!(object["globalDefault"] == true),
        created(object, now),
        object["preemptionPolicy"].clone(),
    ]
}
