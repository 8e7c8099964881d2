//! Finds the Deployment of the operator that runs a cluster, and the ConfigMaps that its settings come from.
//!
//! It only gets and lists, and no Secret. Whatever cannot be had becomes a note that says what is done instead.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, Error};
use serde_json::Value;
use spokeshave_plan::report::some_of;
use spokeshave_provider_kwok::Catalog;

use super::container::{ConfigMaps, DeploymentName, Operator, Said};
use crate::scheduler_config::{self, SchedulerConfig};

/// The labels that Deployments of our chart and Karpenter's have, unless they were given another name.
const LABELS: &str = "app.kubernetes.io/name in (karpenter,spokeshave)";
/// Deployments in one page of a list.
const PAGE: u32 = 500;
/// Where `up` says with which settings its operator decides, which is in no Deployment: an annotation of a Namespace that every cluster has, with variables as JSON.
pub(crate) const NAMESPACE_OF_UP: &str = "kube-system";
pub(crate) const SETTINGS_OF_UP: &str = "spokeshave.dev/settings-of-up";
/// The variable of the file with an operator's instance types.
pub(crate) const CATALOG: &str = "INSTANCE_TYPES_FILE_PATH";
/// What is done where no operator's settings are known.
const INSTEAD: &str = "default settings stand in for those of the operator; --operator NAMESPACE/NAME names its Deployment, and flags its settings";

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) operator: Option<DeploymentName>,
    /// It has pods, and does not just look on.
    pub(super) is_running: bool,
    pub(super) said: Option<Said>,
    pub(super) scheduler: Option<Arc<SchedulerConfig>>,
    pub(super) catalog: Option<Arc<Catalog>>,
    pub(super) knows_catalog: bool,
    pub(super) notes: Vec<String>,
    /// The cluster has answered, if only by a refusal.
    pub(super) is_answered: bool,
}

impl Default for Found {
    fn default() -> Self {
        Self {
            operator: None,
            is_running: false,
            said: None,
            scheduler: None,
            catalog: None,
            knows_catalog: false,
            notes: Vec::new(),
            is_answered: true,
        }
    }
}

impl Found {
    /// None, and why.
    fn none(why: impl std::fmt::Display, is_answered: bool) -> Self {
        Self {
            notes: vec![format!("{why}: {INSTEAD}")],
            is_answered,
            ..Self::default()
        }
    }
}

/// The operator of a Deployment that is named, or the only one that runs.
pub(super) async fn find(client: &Client, named: Option<&DeploymentName>) -> Found {
    let Some(name) = named else {
        return find_any(client).await;
    };
    match get(client, name).await {
        Ok(Some(deployment)) => match Operator::named(&deployment) {
            Some(operator) => {
                let is_running = Operator::running(&deployment).is_some();
                read(client, operator, is_running).await
            }
            None => Found::none(format!("Deployment {name} has no container"), true),
        },
        Ok(None) => Found::none(format!("there is no Deployment {name}"), true),
        Err(error) => refused(&format!("Deployment {name} cannot be read"), &error),
    }
}

/// The only operator that runs. All Deployments of a cluster may be much to read: those with the labels of charts come first.
async fn find_any(client: &Client) -> Found {
    if let Some(found) = find_labelled(client).await {
        return found;
    }
    if let Some(found) = of_up(client).await {
        return found;
    }
    let found = find_among(client, "").await;
    found.unwrap_or_else(|| Found::none("no Deployment runs an operator", true))
}

/// The only operator that runs in a Deployment with the labels of a chart; `None` where there is no such one.
pub(super) async fn find_labelled(client: &Client) -> Option<Found> {
    find_among(client, LABELS).await
}

/// What there is instead after an error.
fn refused(what: &str, error: &Error) -> Found {
    let (why, is_answered) = told(error);
    Found::none(format!("{what} ({why})"), is_answered)
}

/// What went wrong, and whether the cluster has answered: what the API server itself has said is an answer.
fn told(error: &Error) -> (String, bool) {
    match error {
        Error::Api(status) => (status.message.clone(), true),
        other => (other.to_string(), false),
    }
}

fn deployments() -> ApiResource {
    let kind = GroupVersionKind::gvk("apps", "v1", "Deployment");
    ApiResource::from_gvk_with_plural(&kind, "deployments")
}

async fn get(client: &Client, name: &DeploymentName) -> Result<Option<Value>, Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &name.namespace, &deployments());
    let found = api.get_opt(&name.name).await?;
    found
        .map(|object| serde_json::to_value(object).map_err(Error::SerdeError))
        .transpose()
}

/// The only operator that runs in a Deployment with these labels, in any namespace; `None` where there is none.
async fn find_among(client: &Client, labels: &str) -> Option<Found> {
    let mut running = match running(client, labels).await {
        Ok(running) => running,
        Err(error) => return Some(refused("Deployments cannot be listed", &error)),
    };
    running.sort_by(|left, right| left.name.cmp(&right.name));
    match running.len() {
        0 => None,
        1 => Some(read(client, running.remove(0), true).await),
        several => {
            let names: Vec<String> = running.iter().map(|one| one.name.to_string()).collect();
            let why = format!("{several} Deployments run an operator, {}", some_of(&names, 5));
            Some(Found::none(why, true))
        }
    }
}

/// The operators that run in Deployments with these labels. Of each page only these are kept.
async fn running(client: &Client, labels: &str) -> Result<Vec<Operator>, Error> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &deployments());
    let mut parameters = ListParams::default().limit(PAGE);
    if !labels.is_empty() {
        parameters = parameters.labels(labels);
    }
    let mut running = Vec::new();
    loop {
        let page = match api.list(&parameters).await {
            // A cluster that does not have the kind has none of them.
            Err(Error::Api(status)) if status.code == StatusCode::NOT_FOUND.as_u16() => return Ok(running),
            page => page?,
        };
        for deployment in page.items {
            let deployment = serde_json::to_value(deployment).map_err(Error::SerdeError)?;
            running.extend(Operator::running(&deployment));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(running),
        }
    }
}

/// What a cluster of `up` says of the operator in the same process.
async fn of_up(client: &Client) -> Option<Found> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = namespaces.get_opt(NAMESPACE_OF_UP).await.ok()??;
    let text = namespace.metadata.annotations?.remove(SETTINGS_OF_UP)?;
    let said = Said {
        settings: serde_json::from_str(&text).ok()?,
        ..Said::default()
    };
    let mut found = Found::default();
    match said.settings.get(CATALOG) {
        None => found.knows_catalog = true,
        Some(path) => found.notes.push(unknown_catalog(path, "it is where `up` runs")),
    }
    found.said = Some(said);
    Some(found)
}

fn unknown_catalog(path: &str, why: &str) -> String {
    format!("{CATALOG} {path} of the operator is not known ({why}); --catalog FILE names a copy")
}

/// What an operator says, with the ConfigMaps and files that it names.
async fn read(client: &Client, operator: Operator, is_running: bool) -> Found {
    let mut maps = ConfigMaps::new();
    let mut is_answered = true;
    for name in operator.config_maps() {
        is_answered &= add(client, &operator.name.namespace, name, &mut maps).await;
    }
    let said = operator.said(&maps);
    let mut found = Found {
        is_running,
        notes: said.notes.clone(),
        ..Found::default()
    };
    let path = |variable: &str| said.settings.get(variable).filter(|path| !path.is_empty());
    let scheduler = path("SCHEDULER_CONFIG").cloned();
    let catalog = path(CATALOG).cloned();
    found.knows_catalog = catalog.is_none() && said.knows(CATALOG);
    if let Some(path) = scheduler {
        let text = file(client, &operator, &path, &mut maps, &mut is_answered).await;
        match text.and_then(|text| scheduler_config::parse(&text).map_err(|error| format!("{error:#}"))) {
            Ok(config) => found.scheduler = Some(Arc::new(config)),
            Err(why) => found.notes.push(format!(
                "SCHEDULER_CONFIG {path} of the operator is not known ({why}), and counts as absent; --scheduler-config FILE names a copy"
            )),
        }
    }
    if let Some(path) = catalog {
        let text = file(client, &operator, &path, &mut maps, &mut is_answered).await;
        match text.and_then(|text| Catalog::from_json(&path, &text).map_err(|error| error.to_string())) {
            Ok(catalog) => {
                found.catalog = Some(Arc::new(catalog));
                found.knows_catalog = true;
            }
            Err(why) => found.notes.push(unknown_catalog(&path, &why)),
        }
    }
    found.is_answered = is_answered;
    found.operator = Some(operator.name);
    found.said = Some(said);
    found
}

/// The text of a file in the container of an operator.
async fn file(
    client: &Client,
    operator: &Operator,
    path: &str,
    maps: &mut ConfigMaps,
    is_answered: &mut bool,
) -> Result<String, String> {
    let (map, key) = operator
        .file(path)
        .ok_or_else(|| "it is in no ConfigMap".to_owned())?;
    let namespace = &operator.name.namespace;
    *is_answered &= add(client, namespace, map.clone(), maps).await;
    match maps.get(&map) {
        Some(Ok(data)) => {
            let text = data.get(&key).cloned();
            text.ok_or_else(|| format!("ConfigMap {namespace}/{map} has no key {key}"))
        }
        Some(Err(why)) => Err(format!("ConfigMap {namespace}/{map}: {why}")),
        None => Err(format!("ConfigMap {namespace}/{map}")),
    }
}

/// Reads a ConfigMap unless it was read. Returns whether the cluster has answered.
async fn add(client: &Client, namespace: &str, name: String, maps: &mut ConfigMaps) -> bool {
    if maps.contains_key(&name) {
        return true;
    }
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let (data, is_answered) = match api.get_opt(&name).await {
        Ok(Some(map)) => (Ok(map.data.unwrap_or_default()), true),
        // One that is optional sets nothing then, and without another no pod begins.
        Ok(None) => (Ok(BTreeMap::new()), true),
        Err(error) => {
            let (why, is_answered) = told(&error);
            (Err(why), is_answered)
        }
    };
    maps.insert(name, data);
    is_answered
}
