//! Which plugins a profile of kube-scheduler has, as far as the plan goes by what they do: those that filter nodes, and those that nobody here knows.
//!
//! Nothing is modelled after it: what pods ask of their nodes is heeded whether kube-scheduler looks at it or not, which is safe. It is only said.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// Plugins by the point at which they take part.
pub(super) type Plugins = BTreeMap<String, PluginSet>;

/// What is added to the plugins of a point, and what is taken from them.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PluginSet {
    enabled: Vec<Plugin>,
    disabled: Vec<Plugin>,
}

/// A plugin; `*` stands for all.
#[derive(Debug, Deserialize)]
struct Plugin {
    name: String,
}

/// Plugins that filter nodes by what the plan heeds.
const FILTERS: [&str; 12] = [
    "InterPodAffinity",
    "NodeAffinity",
    "NodeName",
    "NodePorts",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "TaintToleration",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
];

/// The others that kube-scheduler brings along. They decide when a pod has its turn, which of several nodes it gets, and how; or what the plan never does.
const BESIDE: [&str; 12] = [
    "AzureDiskLimits",
    "CinderLimits",
    "DefaultBinder",
    "DefaultPreemption",
    "DynamicResources",
    "EBSLimits",
    "GCEPDLimits",
    "ImageLocality",
    "NodeResourcesBalancedAllocation",
    "PrioritySort",
    "SchedulingGates",
    "SelectorSpread",
];

/// Points at which nothing is decided about where a pod goes.
const ASIDE: [&str; 4] = ["queueSort", "preBind", "bind", "postBind"];

/// The other points.
const POINTS: [&str; 13] = [
    "filter",
    "multiPoint",
    "permit",
    "placementFeasible",
    "placementGenerate",
    "placementScore",
    "podGroupPostFilter",
    "postFilter",
    "preEnqueue",
    "preFilter",
    "preScore",
    "reserve",
    "score",
];

/// What of the plugins of a scheduler's profile the plan does not go by, one sentence each. `place` names the profile in the file.
pub(super) fn warnings(plugins: &Plugins, scheduler: &str, place: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    let unknown = plugins.keys().map(String::as_str);
    for point in unknown.filter(|point| !POINTS.contains(point) && !ASIDE.contains(point)) {
        warnings.push(format!("{place}.plugins.{point} is not known here, and not read"));
    }
    let off = FILTERS.into_iter().filter(|name| !filters(plugins, name));
    let off: Vec<&str> = off.collect();
    if !off.is_empty() {
        warnings.push(format!(
            "{scheduler} does not filter nodes by {}: what pods ask of nodes in this way is heeded all the same",
            off.join(", ")
        ));
    }
    let foreign = foreign(plugins);
    if !foreign.is_empty() {
        warnings.push(format!(
            "{scheduler} uses {}, which is not modelled: its pods may go elsewhere than planned, or nowhere",
            foreign.join(", ")
        ));
    }
    warnings
}

/// Whether a plugin that does so by default filters nodes. A point of its own goes before `multiPoint`, and what is enabled before what is disabled.
fn filters(plugins: &Plugins, name: &str) -> bool {
    let is_in = |list: &[Plugin]| list.iter().any(|plugin| plugin.name == name);
    let is_off =
        |set: &PluginSet| is_in(&set.disabled) || set.disabled.iter().any(|plugin| plugin.name == "*");
    let at = |point: &str| plugins.get(point);
    let (filter, every) = (at("filter"), at("multiPoint"));
    if filter.is_some_and(|set| is_in(&set.enabled)) {
        return true;
    }
    if filter.is_some_and(is_off) {
        return false;
    }
    every.is_none_or(|set| is_in(&set.enabled) || !is_off(set))
}

/// Plugins that kube-scheduler does not bring along, or that are newer than what is known here.
fn foreign(plugins: &Plugins) -> Vec<&str> {
    let points = plugins
        .iter()
        .filter(|(point, _)| !ASIDE.contains(&point.as_str()));
    let enabled = points.flat_map(|(_, set)| &set.enabled);
    let names = enabled.map(|plugin| plugin.name.as_str());
    let foreign: BTreeSet<&str> = names
        .filter(|name| !FILTERS.contains(name) && !BESIDE.contains(name))
        .collect();
    foreign.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn said(plugins: Value) -> Vec<String> {
        let plugins: Plugins = serde_json::from_value(plugins).expect("plugins written by hand");
        warnings(&plugins, "batch", "profiles[0] (batch)")
    }

    fn off(plugins: Value) -> String {
        let said = said(plugins).join("\n");
        let rest = said.strip_prefix("batch does not filter nodes by ");
        let names = rest.and_then(|rest| rest.split_once(": what"));
        names.map_or(said.clone(), |(names, _)| names.to_owned())
    }

    #[test]
    fn b_60_what_does_not_filter_is_named_with_the_precedence_of_kube_scheduler() {
        let one = |name: &str| json!([{"name": name}]);
        let all_but = |kept: &str| {
            let others = FILTERS.into_iter().filter(|name| *name != kept);
            others.collect::<Vec<_>>().join(", ")
        };
        for (plugins, expected) in [
            (json!({}), String::new()),
            (json!({"score": {"disabled": one("*")}}), String::new()),
            (
                json!({"filter": {"disabled": one("NodePorts")}}),
                "NodePorts".to_owned(),
            ),
            (
                json!({"multiPoint": {"disabled": one("TaintToleration")}}),
                "TaintToleration".to_owned(),
            ),
            (
                json!({"multiPoint": {"disabled": one("*"), "enabled": one("NodeName")}}),
                all_but("NodeName"),
            ),
            (
                json!({"filter": {"disabled": one("*"), "enabled": one("NodeName")}}),
                all_but("NodeName"),
            ),
            (
                json!({"filter": {"disabled": one("NodeName")}, "multiPoint": {"enabled": one("NodeName")}}),
                "NodeName".to_owned(),
            ),
            (
                json!({"filter": {"enabled": one("NodeName")}, "multiPoint": {"disabled": one("NodeName")}}),
                String::new(),
            ),
        ] {
            assert_eq!(off(plugins.clone()), expected, "{plugins}");
        }
    }

    #[test]
    fn b_60_plugins_of_others_are_named_where_they_decide_about_places() {
        let coscheduling = json!({"enabled": [{"name": "Coscheduling", "weight": 3}]});
        assert_eq!(
            said(json!({"permit": coscheduling, "filter": {"enabled": [{"name": "NodeName"}]}})),
            [
                "batch uses Coscheduling, which is not modelled: its pods may go elsewhere than planned, or nowhere"
            ]
        );
        assert_eq!(said(json!({"queueSort": coscheduling})), [""; 0]);
        assert_eq!(
            said(json!({"filters": {}})),
            ["profiles[0] (batch).plugins.filters is not known here, and not read"]
        );
    }
}
