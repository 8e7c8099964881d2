//! The file of `--scheduler-config`: what kube-scheduler is configured to add to pods (P §6.15, B-60).
//!
//! It is either upstream's, which has default topology spread only and is read strictly, or kube-scheduler's own (`profiles`). Rules about values are in
//! `model`.

mod plugins;
mod profiles;
mod scoring;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use spokeshave_model::default_spread::validate;
use spokeshave_model::scheduler_profiles::SchedulerProfiles;

use crate::yaml;

pub(crate) use scoring::{Scoring, Strategy};

/// The kind of kube-scheduler's own file.
const KIND: &str = "KubeSchedulerConfiguration";
/// The group of its versions.
const GROUP: &str = "kubescheduler.config.k8s.io/";
/// The version that is read.
const VERSION: &str = "kubescheduler.config.k8s.io/v1";

/// What a file says.
#[derive(Debug, Default)]
pub(crate) struct SchedulerConfig {
    /// What decisions read.
    pub(crate) profiles: Arc<SchedulerProfiles>,
    /// What kube-scheduler does otherwise than it is planned for, one sentence each.
    pub(crate) warnings: Vec<String>,
    /// What is read of profiles beside default spread, one sentence each.
    pub(crate) remarks: Vec<String>,
    /// By which nodes are scored, by the name of the scheduler, where that is written. No decision reads it.
    pub(crate) scoring: BTreeMap<String, Scoring>,
}

impl SchedulerConfig {
    /// Everything that there is to say of the file.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        let notes = self.warnings.iter().chain(&self.remarks);
        notes.map(|note| format!("scheduler config: {note}"))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct OfUpstream {
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

/// Tells the files apart.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Header {
    kind: String,
    api_version: String,
}

/// Reads and checks a file; without one, nothing is configured.
///
/// # Errors
/// The file cannot be read, has a field that does not belong there, or breaks a rule; the message names it.
pub(crate) fn read(path: Option<&Path>) -> Result<SchedulerConfig> {
    let Some(path) = path else {
        return Ok(SchedulerConfig::default());
    };
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    parse(&text).with_context(|| format!("{shown}"))
}

/// The same for a text.
///
/// # Errors
/// Those of [`read`], without the name of a file.
pub(crate) fn parse(text: &str) -> Result<SchedulerConfig> {
    let header: Header = serde_saphyr::from_str(text).unwrap_or_default();
    if header.kind == KIND || header.api_version.starts_with(GROUP) {
        check(&header)?;
        let json = yaml::to_json(text).map_err(|problem| anyhow!("is not valid YAML: {problem}"))?;
        return profiles::read(&json);
    }
    let options = serde_saphyr::options! { with_snippet: false };
    let config: OfUpstream =
        serde_saphyr::from_str_with_options(text, options).context("is not a scheduler config")?;
    let constraints = config.pod_topology_spread.default_constraints;
    let constraints: Vec<TopologySpreadConstraint> = constraints.into_iter().map(Into::into).collect();
    let field = "podTopologySpread.defaultConstraints";
    validate(&constraints).map_err(|problem| anyhow!("validating scheduler config, {field}{problem}"))?;
    Ok(SchedulerConfig {
        profiles: Arc::new(SchedulerProfiles::of_all(constraints)),
        ..SchedulerConfig::default()
    })
}

/// Whether the version of kube-scheduler's file is the one that is read.
fn check(header: &Header) -> Result<()> {
    let (kind, version) = (header.kind.as_str(), header.api_version.as_str());
    if kind != KIND {
        bail!("is of kind {kind:?} of {version}; expected {KIND}");
    }
    match version {
        VERSION => Ok(()),
        "" => bail!("is a {KIND} without apiVersion; expected {VERSION}"),
        other if other.starts_with(GROUP) => bail!(
            "is a {KIND} of {other}, and only {VERSION} is read, which kube-scheduler takes from Kubernetes 1.25 on; what is read is written there in the same way"
        ),
        other => bail!("is a {KIND} of {other:?}; expected {VERSION}"),
    }
}
