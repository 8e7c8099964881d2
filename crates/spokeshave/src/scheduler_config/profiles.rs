//! kube-scheduler's own file: what of its profiles changes where pods can go (B-60).
//!
//! Fields that change nothing of that, such as those of leader election, are not looked at. What matters and is not modelled is said and never refused; a wrong
//! type or value is refused with the profile, the plugin and the field.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use k8s_openapi::api::core::v1::{NodeAffinity, TopologySpreadConstraint};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spokeshave_model::default_spread::validate;
use spokeshave_model::labels;
use spokeshave_model::scheduler_profiles::{
    AddedAffinity, DEFAULT_SCHEDULER, IgnoredResources, SchedulerProfile, SchedulerProfiles, is_extended,
};
use spokeshave_model::{Requirement, Requirements};

use super::plugins::{self, Plugins};
use super::scoring::{self, ScoringStrategy};
use super::{Constraint, SchedulerConfig};
use crate::field;
use crate::text::count;

/// Fields of the file: those that are read, and those that say how kube-scheduler runs.
const OF_THE_FILE: [&str; 16] = [
    "apiVersion",
    "clientConnection",
    "delayCacheUntilActive",
    "enableContentionProfiling",
    "enableProfiling",
    "extenders",
    "healthzBindAddress",
    "kind",
    "leaderElection",
    "metricsBindAddress",
    "parallelism",
    "percentageOfNodesToScore",
    "percentageOfPlacementsToScore",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "profiles",
];
/// Fields of a profile.
const OF_A_PROFILE: [&str; 5] = [
    "percentageOfNodesToScore",
    "percentageOfPlacementsToScore",
    "pluginConfig",
    "plugins",
    "schedulerName",
];
/// Fields of the arguments of any plugin.
const OF_ARGS: [&str; 2] = ["apiVersion", "kind"];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    profiles: Vec<Profile>,
    extenders: Vec<Extender>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Profile {
    scheduler_name: Option<String>,
    plugins: Plugins,
    plugin_config: Vec<PluginConfig>,
}

#[derive(Debug, Deserialize)]
struct PluginConfig {
    name: String,
    #[serde(default)]
    args: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Extender {
    url_prefix: String,
    managed_resources: Vec<ManagedResource>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedResource {
    name: String,
    #[serde(default)]
    ignored_by_scheduler: bool,
}

/// Arguments of a plugin under the name that they have in messages.
#[derive(Debug, Deserialize)]
struct Of<T> {
    args: T,
}

/// Of the plugin `PodTopologySpread`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodTopologySpreadArgs {
    default_constraints: Vec<Constraint>,
    defaulting_type: String,
}

/// Of the plugin `NodeAffinity`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeAffinityArgs {
    added_affinity: Option<NodeAffinity>,
}

/// Of the plugin `NodeResourcesFit`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeResourcesFitArgs {
    ignored_resources: Vec<String>,
    ignored_resource_groups: Vec<String>,
    scoring_strategy: Option<ScoringStrategy>,
}

/// Reads a file, as JSON in one line.
///
/// # Errors
/// The field that cannot be used, with its profile and plugin, and what was expected.
pub(super) fn read(json: &str) -> Result<SchedulerConfig> {
    let mut value: Value = serde_json::from_str(json)?;
    forget_nulls(&mut value);
    let mut file: File = field::read(&value.to_string()).map_err(|problem| anyhow!(problem))?;
    let mut config = SchedulerConfig::default();
    config.warnings.extend(unknown(&value, &[&OF_THE_FILE], ""));
    if file.profiles.is_empty() {
        file.profiles.push(Profile::default());
    }
    let names = names(&file.profiles)?;
    let ignored = extenders(&file.extenders, &mut config)?;
    let mut profiles = Vec::new();
    for (index, (profile, name)) in file.profiles.iter().zip(names).enumerate() {
        let place = format!("profiles[{index}] ({name})");
        let written = &value["profiles"][index];
        let found = unknown(written, &[&OF_A_PROFILE], &format!("{place}."));
        config.warnings.extend(found);
        let read = read_profile(profile, &name, &ignored, &place, &mut config)?;
        profiles.push((name, read));
    }
    config.profiles = Arc::new(SchedulerProfiles::by_name(profiles.into_iter().collect()));
    Ok(config)
}

/// What is null is not written.
fn forget_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(forget_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_nulls),
        _ => {}
    }
}

/// Fields that nobody here knows, one sentence each.
fn unknown(value: &Value, known: &[&[&str]], place: &str) -> Vec<String> {
    let fields = value.as_object().into_iter().flatten().map(|(field, _)| field);
    let is_known = |field: &str| known.iter().any(|known| known.contains(&field));
    fields
        .filter(|field| !is_known(field))
        .map(|field| format!("{place}{field} is not known here, and not read"))
        .collect()
}

/// The names of the profiles' schedulers.
fn names(profiles: &[Profile]) -> Result<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for (index, profile) in profiles.iter().enumerate() {
        let name = match profile.scheduler_name.as_deref() {
            None if profiles.len() == 1 => DEFAULT_SCHEDULER,
            None | Some("") => {
                bail!("profiles[{index}].schedulerName is missing; expected the name of a scheduler")
            }
            Some(name) => name,
        };
        if names.iter().any(|known| known == name) {
            bail!("profiles[{index}].schedulerName is {name:?} for the second time; expected each once");
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

/// Resources that no profile checks, because extenders do.
fn extenders(extenders: &[Extender], config: &mut SchedulerConfig) -> Result<Vec<String>> {
    let mut ignored = Vec::new();
    for (index, extender) in extenders.iter().enumerate() {
        for (position, resource) in extender.managed_resources.iter().enumerate() {
            let name = &resource.name;
            if !is_extended(name) {
                bail!(
                    "extenders[{index}].managedResources[{position}].name is {name:?}; expected an extended resource, such as example.com/licence"
                );
            }
            if resource.ignored_by_scheduler {
                ignored.push(name.clone());
            }
        }
    }
    if !extenders.is_empty() {
        let addresses: Vec<&str> = extenders.iter().map(|one| one.url_prefix.as_str()).collect();
        config.warnings.push(format!(
            "kube-scheduler asks {} ({}), which is not modelled: pods may go elsewhere than planned, or nowhere",
            count(extenders.len(), "extender"),
            addresses.join(", ")
        ));
    }
    Ok(ignored)
}

/// What one profile adds to the pods of its scheduler. `ignored` are resources that none checks, `place` is where the profile stands.
fn read_profile(
    profile: &Profile,
    name: &str,
    ignored: &[String],
    place: &str,
    config: &mut SchedulerConfig,
) -> Result<SchedulerProfile> {
    config
        .warnings
        .extend(plugins::warnings(&profile.plugins, name, place));
    let mut read = SchedulerProfile::default();
    let mut seen = BTreeSet::new();
    for plugin in &profile.plugin_config {
        if !seen.insert(plugin.name.as_str()) {
            bail!(
                "{place}: pluginConfig names {:?} twice; expected each plugin once",
                plugin.name
            );
        }
        let place = format!("{place}, plugin {}", plugin.name);
        match plugin.name.as_str() {
            "PodTopologySpread" => {
                let known = ["defaultConstraints", "defaultingType"];
                let args = args(plugin, &known, &place, config)?;
                read.default_constraints = default_constraints(args, &place)?;
            }
            "NodeAffinity" => {
                let args = args(plugin, &["addedAffinity"], &place, config)?;
                read.added_affinity = added_affinity(args, &plugin.args, &place)?;
            }
            "NodeResourcesFit" => {
                let known = ["ignoredResources", "ignoredResourceGroups", "scoringStrategy"];
                let args: NodeResourcesFitArgs = args(plugin, &known, &place, config)?;
                let (names, groups) = (args.ignored_resources, args.ignored_resource_groups);
                read.ignored_resources = IgnoredResources::read(names, groups)
                    .map_err(|problem| anyhow!("{place}: args.{problem}"))?;
                if let Some(strategy) = args.scoring_strategy {
                    let scoring = scoring::read(strategy)
                        .map_err(|problem| anyhow!("{place}: args.scoringStrategy.{problem}"))?;
                    config.scoring.insert(name.to_owned(), scoring);
                }
            }
            _ => {}
        }
    }
    if !ignored.is_empty() {
        // As with kube-scheduler: what extenders manage stands in the place of the names that the profile lists. Groups stay.
        let of_extenders: BTreeSet<String> = ignored.iter().cloned().collect();
        let listed = std::mem::replace(&mut read.ignored_resources.names, of_extenders);
        for resource in listed {
            if !read.ignored_resources.has(&resource) {
                config.warnings.push(format!(
                    "{name} looks for {resource} on nodes all the same: what extenders manage stands in the place of ignoredResources"
                ));
            }
        }
    }
    tell(&read, name, config);
    Ok(read)
}

/// The arguments of a plugin, which need not be there.
fn args<T: DeserializeOwned + Default>(
    plugin: &PluginConfig,
    known: &[&str],
    place: &str,
    config: &mut SchedulerConfig,
) -> Result<T> {
    let written = &plugin.args;
    if written.is_null() {
        return Ok(T::default());
    }
    let (kind, expected) = (&written["kind"], format!("{}Args", plugin.name));
    if !kind.is_null() && *kind != expected {
        bail!("{place}: args.kind is {kind}; expected {expected}");
    }
    let found = unknown(written, &[known, &OF_ARGS], &format!("{place}: args."));
    config.warnings.extend(found);
    let text = json!({ "args": written }).to_string();
    let read: Of<T> = field::read(&text).map_err(|problem| anyhow!("{place}: {problem}"))?;
    Ok(read.args)
}

fn default_constraints(args: PodTopologySpreadArgs, place: &str) -> Result<Vec<TopologySpreadConstraint>> {
    // kube-scheduler takes matchLabelKeys, and lets the selector that it deduces stand in their place.
    let constraints = args.default_constraints.into_iter();
    let constraints = constraints.map(|constraint| TopologySpreadConstraint {
        match_label_keys: None,
        ..TopologySpreadConstraint::from(constraint)
    });
    let constraints: Vec<TopologySpreadConstraint> = constraints.collect();
    match args.defaulting_type.as_str() {
        "List" => {}
        // What kube-scheduler prefers by itself is not mirrored: nobody has asked for nodes because of it.
        "" | "System" if constraints.is_empty() => {}
        "" | "System" => bail!(
            "{place}: args.defaultingType is System, which has no defaultConstraints; expected List, or none of them"
        ),
        other => bail!("{place}: args.defaultingType is {other:?}; expected List or System"),
    }
    validate(&constraints).map_err(|problem| anyhow!("{place}: args.defaultConstraints{problem}"))?;
    Ok(constraints)
}

fn added_affinity(args: NodeAffinityArgs, written: &Value, place: &str) -> Result<Option<AddedAffinity>> {
    let Some(affinity) = args.added_affinity else {
        return Ok(None);
    };
    let read = serde_json::to_value(&affinity)?;
    if let Some(field) = unread(&written["addedAffinity"], &read, "args.addedAffinity") {
        bail!("{place}: {field} is not a field of node affinity");
    }
    let added = AddedAffinity::read(affinity);
    let added = added.map_err(|problem| anyhow!("{place}: args.addedAffinity.{problem}"))?;
    Ok((!added.is_empty()).then_some(added))
}

/// The first field that is written and that the type does not have.
fn unread(written: &Value, read: &Value, path: &str) -> Option<String> {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => written.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            match read.get(key) {
                Some(read) => unread(value, read, &path),
                None => Some(path),
            }
        }),
        (Value::Array(written), Value::Array(read)) => {
            let mut pairs = written.iter().zip(read).enumerate();
            pairs.find_map(|(index, (written, read))| unread(written, read, &format!("{path}[{index}]")))
        }
        _ => None,
    }
}

/// Says what a profile adds, and what of it has no effect.
fn tell(profile: &SchedulerProfile, name: &str, config: &mut SchedulerConfig) {
    if let Some(added) = &profile.added_affinity {
        tell_affinity(added.required(), name, config);
    }
    let ignored = &profile.ignored_resources;
    let (names, kept): (Vec<&String>, Vec<&String>) =
        ignored.names.iter().partition(|name| is_extended(name));
    for resource in kept {
        config.warnings.push(format!(
            "{name} looks for {resource} on nodes all the same: it is no extended resource (ignoredResources)"
        ));
    }
    let groups = ignored.groups.iter().map(|group| format!("{group}/*"));
    let all: Vec<String> = names.into_iter().cloned().chain(groups).collect();
    if !all.is_empty() {
        config.remarks.push(format!(
            "pods of {name} need no room on nodes for {}, which it does not look for",
            all.join(", ")
        ));
    }
    if let Some(scoring) = config.scoring.get(name) {
        let reader = match name {
            DEFAULT_SCHEDULER => ", and the scenario of `simulate init --scheduler-config` does",
            _ => "",
        };
        config.remarks.push(format!(
            "{name} scores nodes by {scoring}: no decision reads that{reader}"
        ));
    }
}

fn tell_affinity(terms: &[Requirements], name: &str, config: &mut SchedulerConfig) {
    if terms.is_empty() {
        return;
    }
    let is_met_by_nothing = |term: &Requirements| term.iter().any(Requirement::is_contradiction);
    if terms.iter().all(is_met_by_nothing) {
        config.warnings.push(format!(
            "no node meets the addedAffinity of {name}: none is launched for its pods"
        ));
        return;
    }
    let shown = terms.iter().map(|term| {
        let requirements: Vec<String> = term.iter().map(ToString::to_string).collect();
        requirements.join(", ")
    });
    let shown: Vec<String> = shown.collect();
    config.remarks.push(format!(
        "nodes for pods of {name} must also have {} (addedAffinity)",
        shown.join(", or ")
    ));
    let asked = terms.iter().flat_map(Requirements::iter);
    let asked = asked.filter(|one| !one.reads_as_absence()).map(Requirement::key);
    let restricted = |key: &&str| labels::is_restricted(key) && labels::named_node(key).is_none();
    let restricted: BTreeSet<&str> = asked.filter(restricted).collect();
    for key in restricted {
        config.warnings.push(format!(
            "no node is launched with label {key}, which no NodePool may have and the addedAffinity of {name} asks for"
        ));
    }
}
