//! The two forms of a HorizontalPodAutoscaler: `autoscaling/v2` is kept; `autoscaling/v1` has one number for the processor and carries the rest in
//! annotations, as on a real server. Also the defaults of both, what a client may not write, and columns.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::columns::{AGE, Column, NAME, created, name, number, plain};
use super::{KindRules, PLAIN};
use crate::cause::Cause;

pub(super) const RULES: KindRules = KindRules {
    default: defaults,
    check: |new, _, causes| check(&new["spec"], causes),
    columns: COLUMNS,
    cells,
    ..PLAIN
};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// Utilisation of the processor that is aimed at where no metric is named, in per cent of requests.
const DEFAULT_UTILIZATION: i64 = 80;

fn cpu_utilization(percent: &Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
}

/// The processor's utilisation of a metric, if that is what it is about: from `spec` its target, from `status` the current one.
fn utilization_of<'a>(metric: &'a Value, part: &str) -> Option<&'a Value> {
    let resource = &metric["resource"];
    let percent = &resource[part]["averageUtilization"];
    (metric["type"] == "Resource" && resource["name"] == "cpu" && percent.is_number()).then_some(percent)
}

/// Defaults of either form.
fn defaults(object: &mut Value) {
    let old_form = object["apiVersion"] == "autoscaling/v1";
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    spec.entry("minReplicas").or_insert(json!(1));
    if old_form {
        return;
    }
    if spec
        .get("metrics")
        .and_then(Value::as_array)
        .is_none_or(Vec::is_empty)
    {
        spec.insert(
            "metrics".to_owned(),
            json!([cpu_utilization(&json!(DEFAULT_UTILIZATION))]),
        );
    }
    if let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) {
        let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
        let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        rules(
            behavior,
            "scaleUp",
            json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [pods, percent]}),
        );
        rules(
            behavior,
            "scaleDown",
            json!({"selectPolicy": "Max", "policies": [percent]}),
        );
    }
}

fn rules(behavior: &mut Map<String, Value>, direction: &str, defaults: Value) {
    let rules = behavior.entry(direction).or_insert_with(|| json!({}));
    if let (Value::Object(rules), Value::Object(defaults)) = (rules, defaults) {
        for (key, value) in defaults {
            rules.entry(key).or_insert(value);
        }
    }
}

/// `autoscaling/v1` → `autoscaling/v2`. An annotation that cannot be read is left where it is.
pub(crate) fn to_v2(mut object: Value) -> Value {
    object["apiVersion"] = json!("autoscaling/v2");
    let mut metrics = take_annotation(&mut object, METRICS).unwrap_or_else(|| json!([]));
    let behavior = take_annotation(&mut object, BEHAVIOR);
    let current = take_annotation(&mut object, CURRENT_METRICS);
    let conditions = take_annotation(&mut object, CONDITIONS);
    if let Some(spec) = object["spec"].as_object_mut() {
        if let (Some(percent), Some(list)) = (
            spec.remove("targetCPUUtilizationPercentage")
                .filter(|percent| !percent.is_null()),
            metrics.as_array_mut(),
        ) {
            list.insert(0, cpu_utilization(&percent));
        }
        spec.insert("metrics".to_owned(), metrics);
        if let Some(behavior) = behavior {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    if let Some(status) = object["status"].as_object_mut() {
        let mut current = current.unwrap_or_else(|| json!([]));
        if let (Some(percent), Some(list)) = (
            status
                .remove("currentCPUUtilizationPercentage")
                .filter(|percent| !percent.is_null()),
            current.as_array_mut(),
        ) {
            list.insert(0, json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}}));
        }
        if current.as_array().is_some_and(|list| !list.is_empty()) {
            status.insert("currentMetrics".to_owned(), current);
        }
        if let Some(conditions) = conditions {
            status.insert("conditions".to_owned(), conditions);
        }
    }
    defaults(&mut object);
    object
}

fn take_annotation(object: &mut Value, name: &str) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let value: Value = serde_json::from_str(annotations.get(name)?.as_str()?).ok()?;
    annotations.remove(name);
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    Some(value)
}

/// `autoscaling/v2` → `autoscaling/v1`.
pub(crate) fn to_v1(stored: &Value) -> Value {
    let mut object = stored.clone();
    object["apiVersion"] = json!("autoscaling/v1");
    let mut annotations = Map::new();
    let mut keep = |name: &str, value: Value| {
        annotations.insert(name.to_owned(), Value::String(value.to_string()));
    };
    if let Some(spec) = object["spec"].as_object_mut() {
        let (percent, others) = without_cpu(spec.remove("metrics"), "target");
        if let Some(percent) = percent {
            spec.insert("targetCPUUtilizationPercentage".to_owned(), percent);
        }
        if !others.is_empty() {
            keep(METRICS, Value::Array(others));
        }
        if let Some(behavior) = spec.remove("behavior") {
            keep(BEHAVIOR, behavior);
        }
    }
    if let Some(status) = object["status"].as_object_mut() {
        let (percent, others) = without_cpu(status.remove("currentMetrics"), "current");
        if let Some(percent) = percent {
            status.insert("currentCPUUtilizationPercentage".to_owned(), percent);
        }
        if !others.is_empty() {
            keep(CURRENT_METRICS, Value::Array(others));
        }
        if let Some(conditions) = status.remove("conditions") {
            keep(CONDITIONS, conditions);
        }
        status.entry("currentReplicas").or_insert(json!(0));
        status.entry("desiredReplicas").or_insert(json!(0));
    }
    for (name, text) in annotations {
        object["metadata"]["annotations"][name] = text;
    }
    object
}

/// The processor's utilisation, and the metrics that are about something else.
fn without_cpu(metrics: Option<Value>, part: &str) -> (Option<Value>, Vec<Value>) {
    let Some(Value::Array(mut list)) = metrics else {
        return (None, Vec::new());
    };
    let found = list
        .iter()
        .position(|metric| utilization_of(metric, part).is_some());
    let percent = found.and_then(|index| utilization_of(&list.remove(index), part).cloned());
    (percent, list)
}

/// What is wrong with a `spec` of the form that is kept.
fn check(spec: &Value, causes: &mut Vec<Cause>) {
    let number = |field: &str| spec[field].as_i64().unwrap_or(0);
    let (least, most) = (number("minReplicas"), number("maxReplicas"));
    if least < 1 {
        causes.push(Cause::invalid(
            "spec.minReplicas",
            &json!(least),
            "must be greater than or equal to 1",
        ));
    }
    if most < 1 {
        causes.push(Cause::invalid(
            "spec.maxReplicas",
            &json!(most),
            "must be greater than 0",
        ));
    }
    if most < least {
        causes.push(Cause::invalid(
            "spec.maxReplicas",
            &json!(most),
            "must be greater than or equal to `minReplicas`",
        ));
    }
    for field in ["kind", "name"] {
        if spec["scaleTargetRef"][field]
            .as_str()
            .unwrap_or_default()
            .is_empty()
        {
            causes.push(Cause::required(format!("spec.scaleTargetRef.{field}"), ""));
        }
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    Column("Reference", "string", 0),
    Column("Targets", "string", 0),
    Column("MinPods", "string", 0),
    Column("MaxPods", "string", 0),
    Column("Replicas", "string", 0),
    AGE,
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let target = &spec["scaleTargetRef"];
    vec![
        name(object),
        json!(format!("{}/{}", plain(&target["kind"]), plain(&target["name"]))),
        json!(targets(&spec["metrics"], &status["currentMetrics"])),
        json!(
            spec["minReplicas"]
                .as_i64()
                .map_or_else(|| "<unset>".to_owned(), |count| count.to_string())
        ),
        number(&spec["maxReplicas"]),
        number(&status["currentReplicas"]),
        created(object, now),
    ]
}

/// `cpu: 30%/80%`, of the first two metrics.
fn targets(metrics: &Value, current: &Value) -> String {
    let metrics = metrics.as_array().map(Vec::as_slice).unwrap_or_default();
    if metrics.is_empty() {
        return "<none>".to_owned();
    }
    let shown: Vec<String> = metrics
        .iter()
        .enumerate()
        .take(2)
        .map(|(index, metric)| target(metric, &current[index]))
        .collect();
    let text = shown.join(", ");
    if metrics.len() > 2 {
        format!("{text} + {} more...", metrics.len() - 2)
    } else {
        text
    }
}

fn target(metric: &Value, current: &Value) -> String {
    let (field, named) = match metric["type"].as_str().unwrap_or_default() {
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "External" => ("external", false),
        _ => return "<unknown type>".to_owned(),
    };
    let (wanted, found) = (&metric[field]["target"], &current[field]["current"]);
    let known = |value: &Value, unit: &str| {
        if value.is_null() {
            "<unknown>".to_owned()
        } else {
            format!("{}{unit}", plain(value))
        }
    };
    let named_as = if named {
        format!("{}: ", plain(&metric[field]["name"]))
    } else {
        String::new()
    };
    if !wanted["averageValue"].is_null() {
        let average = if matches!(field, "object" | "external") {
            " (avg)"
        } else {
            ""
        };
        format!(
            "{named_as}{}/{}{average}",
            known(&found["averageValue"], ""),
            plain(&wanted["averageValue"])
        )
    } else if named {
        let percent = &wanted["averageUtilization"];
        let percent = if percent.is_null() {
            "<auto>".to_owned()
        } else {
            format!("{percent}%")
        };
        format!("{named_as}{}/{percent}", known(&found["averageUtilization"], "%"))
    } else {
        format!("{}/{}", known(&found["value"], ""), plain(&wanted["value"]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}});
        let kept = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web", "annotations": {"own": "1"}},
            "spec": {"minReplicas": 2, "maxReplicas": 5, "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                     "metrics": [cpu_utilization(&json!(60)), memory],
                     "behavior": {"scaleDown": {"stabilizationWindowSeconds": 30, "selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
                                  "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}}},
            "status": {"currentReplicas": 2, "desiredReplicas": 3, "conditions": [{"type": "AbleToScale", "status": "True"}],
                       "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 90}}}]},
        });
        let old = to_v1(&kept);
        assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 60);
        assert_eq!(old["status"]["currentCPUUtilizationPercentage"], 90);
        assert!(old["spec"].get("metrics").is_none() && old["spec"].get("behavior").is_none());
        assert!(
            old["metadata"]["annotations"][METRICS]
                .as_str()
                .is_some_and(|text| text.contains("memory"))
        );
        assert_eq!(to_v2(old), kept);
    }

    #[test]
    fn an_old_form_without_a_target_gets_the_usual_one() {
        let old = json!({"apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "web"}}});
        let kept = to_v2(old);
        assert_eq!(kept["spec"]["minReplicas"], 1);
        assert_eq!(
            utilization_of(&kept["spec"]["metrics"][0], "target"),
            Some(&json!(80))
        );
    }
}
