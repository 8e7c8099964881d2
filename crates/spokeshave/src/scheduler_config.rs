//! The file of `--scheduler-config`: topology spread for pods that have none (P §6.15).
//!
//! Reads it strictly, so a misspelt field is an error; validation is in `model`.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use spokeshave_model::default_spread::validate;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct SchedulerConfig {
    pod_topology_spread: PodTopologySpread,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct PodTopologySpread {
    default_constraints: Vec<Constraint>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Constraint {
    #[serde(default)]
    max_skew: i32,
    #[serde(default)]
    topology_key: String,
    #[serde(default)]
    when_unsatisfiable: String,
    min_domains: Option<i32>,
    node_affinity_policy: Option<String>,
    node_taints_policy: Option<String>,
    label_selector: Option<LabelSelector>,
    match_label_keys: Option<Vec<String>>,
}

impl From<Constraint> for TopologySpreadConstraint {
    fn from(constraint: Constraint) -> Self {
        Self {
            max_skew: constraint.max_skew,
            topology_key: constraint.topology_key,
            when_unsatisfiable: constraint.when_unsatisfiable,
            min_domains: constraint.min_domains,
            node_affinity_policy: constraint.node_affinity_policy,
            node_taints_policy: constraint.node_taints_policy,
            label_selector: constraint.label_selector,
            match_label_keys: constraint.match_label_keys,
        }
    }
}

/// Distinguishes another program's file from ours.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OtherConfig {
    kind: String,
}

/// Reads and checks a file.
///
/// # Errors
/// The file cannot be read, has a field that does not belong there, or breaks a rule; the message names it.
pub(crate) fn read(path: &Path) -> Result<Vec<TopologySpreadConstraint>> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    parse(&text).with_context(|| format!("{shown}"))
}

fn parse(text: &str) -> Result<Vec<TopologySpreadConstraint>> {
    let other: OtherConfig = serde_saphyr::from_str(text).unwrap_or_default();
    if other.kind == "KubeSchedulerConfiguration" {
        bail!(
            "is a configuration of kube-scheduler, of which only the default constraints are needed here; expected a file with nothing but \
             podTopologySpread.defaultConstraints, with the values of defaultConstraints of its plugin PodTopologySpread"
        );
    }
    let options = serde_saphyr::options! { with_snippet: false };
    let config: SchedulerConfig =
        serde_saphyr::from_str_with_options(text, options).context("is not a scheduler config")?;
    let constraints = config.pod_topology_spread.default_constraints;
    let constraints: Vec<TopologySpreadConstraint> = constraints.into_iter().map(Into::into).collect();
    validate(&constraints).map_err(|problem| anyhow!(problem))?;
    Ok(constraints)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_121_the_file_is_read_strictly() {
        let text = "podTopologySpread:\n  defaultConstraints:\n  - {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, nodeTaintsPolicy: Honor}\n";
        let constraints = parse(text).expect("a configuration");
        assert_eq!(constraints.len(), 1);
        assert_eq!(
            (constraints[0].max_skew, constraints[0].topology_key.as_str()),
            (2, "zone")
        );
        for (text, problem) in [
            ("podTopologySpread: {defaultConstraint: []}", "defaultConstraint"),
            (
                "podTopologySpread: {defaultConstraints: [{maxSkew: 1, topologyKey: zone}]}",
                "whenUnsatisfiable",
            ),
            ("kind: Something", "kind"),
        ] {
            let error = format!("{:#}", parse(text).expect_err(text));
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
