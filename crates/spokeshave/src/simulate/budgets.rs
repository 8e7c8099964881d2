//! Workloads whose pods several PodDisruptionBudgets select: named before anything is simulated, because nobody can evict them.
//!
//! Owns that sentence. What budgets allow is counted by the engines.

use std::collections::BTreeMap;

use spokeshave_plan::report::some_of;
use spokeshave_scenario::Timeline;
use spokeshave_simulate::budgets::budgets;

/// So many workloads are named.
const MOST_NAMED: usize = 3;

/// Which workloads these are, with the budgets over their pods.
pub(crate) fn note(timeline: &Timeline) -> Option<String> {
    let mut over: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (budget, owners) in budgets(timeline) {
        for owner in owners {
            let names = over.entry(owner).or_default();
            names.push(budget.metadata.name.clone().unwrap_or_default());
        }
    }
    over.retain(|_, names| names.len() > 1);
    let workloads: Vec<String> = over
        .iter()
        .map(|(owner, names)| {
            let owner = &timeline.owners[*owner as usize];
            format!("{}/{} ({})", owner.namespace, owner.name, names.join(" and "))
        })
        .collect();
    (!workloads.is_empty()).then(|| {
        format!(
            "several PodDisruptionBudgets select the pods of {}: the Eviction API does not support that, so none of them can be evicted, as in a cluster",
            some_of(&workloads, MOST_NAMED)
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use spokeshave_scenario::import::inventory::Inventory;
    use spokeshave_scenario::import::objects::Object;

    use super::*;

    #[test]
    fn workloads_under_several_budgets_are_named_and_others_are_not() {
        let pod = |name: &str| {
            json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": name, "labels": {"app": name}},
                "spec": {"containers": []}, "status": {"phase": "Running"}})
        };
        let budget = |name: &str, selector: serde_json::Value| {
            json!({"kind": "PodDisruptionBudget", "metadata": {"namespace": "shop", "name": name},
                "spec": {"maxUnavailable": 1, "selector": selector}})
        };
        let all = budget("all", json!({}));
        let web = budget("web", json!({"matchLabels": {"app": "web"}}));
        let said = |objects: &[&serde_json::Value]| {
            let mut inventory = Inventory::default();
            for object in objects {
                inventory.add(Object::read(&object.to_string(), None).expect("readable"));
            }
            let start = "2026-03-02T00:00:00Z".parse().expect("an instant");
            note(&inventory.constant(start, 3_600_000).expect("small"))
        };
        let (one, other) = (pod("web"), pod("api"));
        assert_eq!(said(&[&one, &other, &all]), None);
        let told = said(&[&one, &other, &all, &web]).expect("a note");
        let expected = "several PodDisruptionBudgets select the pods of shop/web (all and web): ";
        assert!(told.starts_with(expected), "{told}");
    }
}
