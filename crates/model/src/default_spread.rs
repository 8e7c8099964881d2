//! Topology spread that the administrator gives to pods which have none (P §6.15, P-121).
//!
//! The selector of such a constraint is deduced from what runs the pod: the Services that select it, and its controller. It changes no object;
//! lowering asks it for the constraints of one pod. Which constraints a pod gets says its profile (`scheduler_profiles`).

use crate::Pod;
use k8s_openapi::api::core::v1::{Service, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use spokeshave_syntax::names::qualified_name_problems;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the selectors of default constraints are deduced from. Without constraints nothing of it is looked at.
#[derive(Clone, Debug, Default)]
pub struct DefaultSpread {
    /// Services, in any order.
    pub services: Vec<Arc<Service>>,
    /// What controllers select, by `Kind namespace/name`: see `controller_key`.
    pub controllers: BTreeMap<String, LabelSelector>,
}

/// The key of a controller among `DefaultSpread::controllers`.
pub fn controller_key(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind} {namespace}/{name}")
}

/// Checks the constraints of a configuration.
///
/// # Errors
/// The first constraint that breaks a rule, as `[0].maxSkew must be …`.
pub fn validate(constraints: &[TopologySpreadConstraint]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for (index, constraint) in constraints.iter().enumerate() {
        let fail = |field: &str, problem: &str| Err(format!("[{index}].{field} {problem}"));
        if constraint.max_skew <= 0 {
            return fail("maxSkew", "must be greater than zero");
        }
        if constraint.topology_key.is_empty() {
            return fail("topologyKey", "can not be empty");
        }
        if let Some(problem) = qualified_name_problems(&constraint.topology_key).first() {
            return fail("topologyKey", &format!("is not a qualified name, {problem}"));
        }
        if !matches!(
            constraint.when_unsatisfiable.as_str(),
            "DoNotSchedule" | "ScheduleAnyway"
        ) {
            return fail("whenUnsatisfiable", "must be DoNotSchedule or ScheduleAnyway");
        }
        if constraint.label_selector.is_some() {
            return fail("labelSelector", "must be empty: it is deduced for each pod");
        }
        if constraint.match_label_keys.iter().flatten().next().is_some() {
            return fail("matchLabelKeys", "must be empty");
        }
        if constraint.min_domains.is_some_and(|count| count <= 0) {
            return fail("minDomains", "must be greater than zero");
        }
        if !seen.insert((&constraint.topology_key, &constraint.when_unsatisfiable)) {
            return fail(
                "topologyKey",
                "is there twice with the same whenUnsatisfiable; expected each pair once",
            );
        }
    }
    Ok(())
}

impl DefaultSpread {
    /// These constraints, in order, for a pod that has none of its own; empty when nothing tells which pods belong together.
    pub fn of(&self, constraints: &[TopologySpreadConstraint], pod: &Pod) -> Vec<TopologySpreadConstraint> {
        let own = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.topology_spread_constraints.as_ref());
        if constraints.is_empty() || own.is_some_and(|own| !own.is_empty()) {
            return Vec::new();
        }
        let Some(selector) = self.selector(pod) else {
            return Vec::new();
        };
        let with_selector = |constraint: &TopologySpreadConstraint| TopologySpreadConstraint {
            label_selector: Some(selector.clone()),
            ..constraint.clone()
        };
        constraints.iter().map(with_selector).collect()
    }

    fn selector(&self, pod: &Pod) -> Option<LabelSelector> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut labels = self.of_services(namespace, pod.metadata.labels.as_ref());
        let mut expressions = Vec::new();
        let mut owners = pod.metadata.owner_references.iter().flatten();
        if let Some(owner) = owners.find(|owner| owner.controller == Some(true)) {
            let key = controller_key(&owner.kind, namespace, &owner.name);
            let known = self.controllers.get(&key);
            match (owner.kind.as_str(), known) {
                ("ReplicationController", Some(selector)) => {
                    labels.extend(selector.match_labels.clone().unwrap_or_default());
                }
                ("ReplicaSet" | "StatefulSet", Some(selector)) => expressions = as_expressions(selector),
                _ => {}
            }
        }
        if labels.is_empty() && expressions.is_empty() {
            return None;
        }
        Some(LabelSelector {
            match_labels: Some(labels),
            match_expressions: Some(expressions),
        })
    }

    /// The selectors of all Services that select the pod; of two values for one key that of the later name counts.
    fn of_services(
        &self,
        namespace: &str,
        labels: Option<&BTreeMap<String, String>>,
    ) -> BTreeMap<String, String> {
        let has = |key: &str, value: &String| labels.and_then(|labels| labels.get(key)) == Some(value);
        let mut selecting: Vec<(&str, &BTreeMap<String, String>)> = Vec::new();
        for service in &self.services {
            let meta = &service.metadata;
            let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            if meta.namespace.as_deref().unwrap_or_default() == namespace
                && let Some(selector) = selector.filter(|all| all.iter().all(|(key, value)| has(key, value)))
            {
                selecting.push((meta.name.as_deref().unwrap_or_default(), selector));
            }
        }
        selecting.sort_by_key(|(name, _)| *name);
        let pairs = selecting.into_iter().flat_map(|(_, selector)| selector.clone());
        pairs.collect()
    }
}

fn as_expressions(selector: &LabelSelector) -> Vec<LabelSelectorRequirement> {
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| LabelSelectorRequirement {
        key: key.clone(),
        operator: "In".to_owned(),
        values: Some(vec![value.clone()]),
    });
    let expressions = selector.match_expressions.iter().flatten().cloned();
    labels.chain(expressions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn constraint(value: Value) -> TopologySpreadConstraint {
        from_value(value).expect("a constraint written by hand")
    }

    fn zone() -> TopologySpreadConstraint {
        constraint(json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}))
    }

    fn service(name: &str, namespace: &str, selector: Value) -> Arc<Service> {
        let value =
            json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}});
        Arc::new(from_value(value).expect("a Service written by hand"))
    }

    fn pod(owner: Option<&str>, spec: Value) -> Pod {
        let owners: Vec<Value> = owner
            .into_iter()
            .map(|kind| json!({"apiVersion": "v1", "kind": kind, "name": "web", "uid": "u", "controller": true}))
            .collect();
        let labels = json!({"app": "web", "track": "stable"});
        from_value(json!({"metadata": {"name": "p", "namespace": "shop", "labels": labels, "ownerReferences": owners}, "spec": spec}))
            .expect("a pod written by hand")
    }

    fn deduced(spread: &DefaultSpread, owner: Option<&str>) -> Option<(String, usize)> {
        let found = spread.of(&[zone()], &pod(owner, json!({"containers": []})));
        let selector = found.first()?.label_selector.clone()?;
        let labels: Vec<String> = selector
            .match_labels
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        Some((
            labels.join(","),
            selector.match_expressions.map_or(0, |list| list.len()),
        ))
    }

    #[test]
    fn p_121_selectors_are_deduced_from_services_and_the_controller() {
        let mut spread = DefaultSpread::default();
        assert_eq!(
            deduced(&spread, Some("ReplicaSet")),
            None,
            "nothing is known of it"
        );
        spread.services = vec![
            service("a", "shop", json!({"app": "web"})),
            service("b", "shop", json!({"track": "stable"})),
            service("c", "shop", json!({"app": "other"})),
            service("d", "elsewhere", json!({"app": "web"})),
            service("e", "shop", Value::Null),
            service("f", "shop", json!({})),
        ];
        let both = Some(("app=web,track=stable".to_owned(), 0));
        assert_eq!(deduced(&spread, None), both);
        let selector: LabelSelector = from_value(json!({"matchLabels": {"app": "web"}})).expect("a selector");
        for kind in ["ReplicaSet", "StatefulSet", "ReplicationController", "Job"] {
            let key = controller_key(kind, "shop", "web");
            spread.controllers.insert(key, selector.clone());
        }
        let anded = Some(("app=web,track=stable".to_owned(), 1));
        assert_eq!(deduced(&spread, Some("ReplicaSet")), anded);
        assert_eq!(deduced(&spread, Some("StatefulSet")), anded);
        assert_eq!(
            deduced(&spread, Some("ReplicationController")),
            both,
            "overwrites keys"
        );
        assert_eq!(deduced(&spread, Some("Job")), both, "other kinds say nothing");
        spread.services.clear();
        assert_eq!(deduced(&spread, Some("ReplicaSet")), Some((String::new(), 1)));
        assert_eq!(deduced(&spread, None), None, "nothing tells: left alone");
    }

    #[test]
    fn p_121_only_pods_without_constraints_get_all_of_them() {
        let anyway = json!({"maxSkew": 2, "topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway"});
        let spread = DefaultSpread {
            services: vec![service("a", "shop", json!({"app": "web"}))],
            ..DefaultSpread::default()
        };
        let two = [zone(), constraint(anyway.clone())];
        assert_eq!(spread.of(&two, &pod(None, json!({"containers": []}))).len(), 2);
        let own = json!({"containers": [], "topologySpreadConstraints": [anyway]});
        assert!(spread.of(&two, &pod(None, own)).is_empty());
    }

    #[test]
    fn p_121_a_configuration_is_checked_by_field() {
        let problem = |value: Value| validate(&[constraint(value)]).err().unwrap_or_default();
        let base = |field: &str, value: Value| {
            let mut fields =
                json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
            fields[field] = value;
            problem(fields)
        };
        assert_eq!(base("minDomains", json!(2)), "");
        for (field, value) in [
            ("maxSkew", json!(0)),
            ("topologyKey", json!("")),
            ("topologyKey", json!("a b")),
            ("whenUnsatisfiable", json!("Perhaps")),
            ("labelSelector", json!({})),
            ("matchLabelKeys", json!(["rev"])),
            ("minDomains", json!(0)),
        ] {
            let text = base(field, value.clone());
            let expected = format!("[0].{field} ");
            assert!(text.starts_with(&expected), "{field} {value}: {text}");
        }
        let twice = validate(&[zone(), zone()]).expect_err("a pair that is there twice");
        assert!(twice.starts_with("[1].topologyKey "), "{twice}");
    }
}
