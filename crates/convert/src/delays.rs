//! cluster-autoscaler's pauses and brakes for the whole cluster, as DisruptionPolicies: how long nothing is scaled down after a node came, went or failed to
//! come, and from which share of unready nodes on nothing is.
//!
//! NodePools of v1 know neither; upstream does not know the kind, which the report mentions.

use serde_json::{Value, json};

use crate::flags::{Flag, Flags, is_duration, last, no_scale_down};
use crate::report::Notes;

/// A pause: its flag, the trigger of a hold, and the name of its policy.
const PAUSES: [(&str, &str, &str); 3] = [
    ("scale-down-delay-after-add", "Launch", "after-add"),
    ("scale-down-delay-after-delete", "ScaleDown", "after-delete"),
    ("scale-down-delay-after-failure", "FailedLaunch", "after-failure"),
];

const UPSTREAM: &str = "upstream does not know DisruptionPolicy of spokeshave.dev/v1alpha1, where consolidateAfter, a pause for each node, comes nearest";

const NO_PAUSE: &str = "not written: cluster-autoscaler scales nothing down for 10m after a node came, which is the default of scale-down-delay-after-add; write that flag to have it as a DisruptionPolicy";

/// Flags that are read here.
pub(crate) const READ: [&str; 5] = [
    "scale-down-delay-after-add",
    "scale-down-delay-after-delete",
    "scale-down-delay-after-failure",
    "max-total-unready-percentage",
    "ok-total-unready-count",
];

/// The policies that these flags become; none where nothing is scaled down at all.
pub(crate) fn policies(found: &Flags, notes: &mut Notes) -> Vec<Value> {
    if no_scale_down(found).is_some() {
        for flag in READ.iter().filter_map(|name| last(found, name)) {
            notes.dropped(&flag.field, "scale-down-enabled is false");
        }
        return Vec::new();
    }
    let mut policies = Vec::new();
    for (name, trigger, suffix) in PAUSES {
        let Some(flag) = last(found, name) else {
            if trigger == "Launch" {
                notes.changed("", "DisruptionPolicy spec.hold", NO_PAUSE);
            }
            continue;
        };
        if let Some(duration) = duration(flag, notes) {
            let policy = format!("cluster-autoscaler-{suffix}");
            notes.moved(
                &flag.field,
                &format!("DisruptionPolicy {policy} spec.hold"),
                format!("{duration} after each {trigger}, for the whole cluster; {UPSTREAM}"),
            );
            let hold =
                json!({"duration": duration, "triggers": [trigger], "reasons": ["Empty", "Underutilized"]});
            policies.push(policy_of(&policy, json!({"hold": hold})));
        }
    }
    policies.extend(brake(found, notes));
    policies
}

fn policy_of(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "spokeshave.dev/v1alpha1",
        "kind": "DisruptionPolicy",
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// The duration of a pause; none where it is nothing, or cannot be read.
fn duration(flag: &Flag, notes: &mut Notes) -> Option<String> {
    if !is_duration(&flag.value) && flag.value != "0" {
        notes.unknown(
            &flag.field,
            format!(
                "expected a duration such as 10m, found {:?}; no pause is written",
                flag.value
            ),
        );
        return None;
    }
    if !flag.value.contains(|letter: char| matches!(letter, '1'..='9')) {
        notes.dropped(&flag.field, "nothing is no pause");
        return None;
    }
    Some(flag.value.clone())
}

/// From which share of unready nodes on nothing is scaled down.
fn brake(found: &Flags, notes: &mut Notes) -> Option<Value> {
    if let Some(flag) = last(found, "ok-total-unready-count") {
        let why = "a circuit breaker counts a share of nodes, and no least number of them";
        notes.dropped(&flag.field, format!("{}: {why}", flag.value));
    }
    let flag = last(found, "max-total-unready-percentage")?;
    let percent = flag
        .value
        .parse::<f64>()
        .ok()
        .filter(|share| (1.0..=100.0).contains(share));
    let Some(percent) = percent else {
        notes.unknown(
            &flag.field,
            format!(
                "expected a percentage from 1 to 100, found {:?}; no circuit breaker is written",
                flag.value
            ),
        );
        return None;
    };
    // The breaker trips at a share, the autoscaler beyond it.
    let percent = (percent.floor() as i64 + 1).min(100);
    let name = "cluster-autoscaler-unready";
    notes.changed(
        &flag.field,
        &format!("DisruptionPolicy {name} spec.circuitBreakers.notReady"),
        format!("nothing is disrupted from {percent}% on; nodes are launched all the same, which cluster-autoscaler stops, too; upstream does not know the kind"),
    );
    let breakers = json!({"notReady": {"percent": percent}});
    Some(policy_of(name, json!({"circuitBreakers": breakers})))
}
