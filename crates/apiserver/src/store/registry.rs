//! Which resources there are: the core ones from the table of facts, and those that CustomResourceDefinitions add.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::crd::{CompiledCrd, CrdVersion};
use crate::schema::facts::facts;
use crate::schema::types::TypeSchema;

/// A resource in one version.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    /// The kind of a list of its objects.
    pub(crate) list_kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) verbs: Vec<String>,
    /// Subresources as discovery lists them.
    pub(crate) subresources: Vec<Value>,
    pub(crate) schema: Arc<TypeSchema>,
    custom: Option<(Arc<CompiledCrd>, String)>,
}

impl Resource {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    pub(crate) fn custom(&self) -> Option<&CrdVersion> {
        let (crd, version) = self.custom.as_ref()?;
        crd.version(version)
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    pub(crate) fn has_subresource(&self, name: &str) -> bool {
        self.subresources.iter().any(|sub| sub["name"] == name)
    }

    /// Where its objects are kept: both Event APIs share one place.
    pub(crate) fn storage(&self) -> (String, String) {
        if self.group == "events.k8s.io" {
            (String::new(), self.plural.clone())
        } else {
            (self.group.clone(), self.plural.clone())
        }
    }

    pub(crate) fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }
}

/// All resources, ordered by group, version and plural name.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    resources: BTreeMap<(String, String, String), Arc<Resource>>,
}

/// The priority of a version in its group: stable ones first, then beta, alpha and names of other forms; larger numbers first.
fn priority(version: &str) -> (u8, std::cmp::Reverse<(u32, u32)>, String) {
    let other = (3, std::cmp::Reverse((0, 0)), version.to_owned());
    let Some(rest) = version.strip_prefix('v') else {
        return other;
    };
    let digits = rest.len()
        - rest
            .trim_start_matches(|letter: char| letter.is_ascii_digit())
            .len();
    let (major, stage) = rest.split_at(digits);
    let Ok(major) = major.parse::<u32>() else {
        return other;
    };
    let (rank, minor) = match (stage, stage.strip_prefix("beta"), stage.strip_prefix("alpha")) {
        ("", ..) => (0, Ok(0)),
        (_, Some(minor), _) => (1, minor.parse::<u32>()),
        (_, _, Some(minor)) => (2, minor.parse::<u32>()),
        _ => return other,
    };
    minor.map_or(other, |minor| {
        (rank, std::cmp::Reverse((major, minor)), String::new())
    })
}

fn texts(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

impl Registry {
    pub(crate) fn core() -> Self {
        let mut registry = Self::default();
        for fact in &facts().resources {
            let text = |key: &str| fact[key].as_str().unwrap_or_default().to_owned();
            let (group, version, kind) = (text("group"), text("version"), text("kind"));
            let Some(schema) = TypeSchema::builtin(&group, &version, &kind) else {
                continue;
            };
            if kind == "ComponentStatus" {
                continue;
            }
            registry.insert(Resource {
                list_kind: format!("{kind}List"),
                plural: text("plural"),
                singular: text("singular"),
                namespaced: fact["namespaced"].as_bool().unwrap_or(false),
                short_names: texts(&fact["shortNames"]),
                categories: texts(&fact["categories"]),
                verbs: texts(&fact["verbs"]),
                subresources: fact["subresources"].as_array().cloned().unwrap_or_default(),
                schema: Arc::new(schema),
                custom: None,
                group,
                version,
                kind,
            });
        }
        registry
    }

    fn insert(&mut self, resource: Resource) {
        let key = (
            resource.group.clone(),
            resource.version.clone(),
            resource.plural.clone(),
        );
        self.resources.insert(key, Arc::new(resource));
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.resources
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
            .cloned()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// Groups with their versions, the core group first; of the versions the preferred one first.
    pub(crate) fn groups(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (group, version, _) in self.resources.keys() {
            let versions = groups.entry(group).or_default();
            if !versions.contains(&version.as_str()) {
                versions.push(version);
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by_key(|version| priority(version));
        }
        groups
    }

    pub(crate) fn of_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.resources
            .values()
            .filter(move |resource| resource.group == group && resource.version == version)
    }

    /// The resource of a kind, as references between objects name it.
    pub(crate) fn of_kind<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
        kind: &str,
    ) -> Option<&'a Arc<Resource>> {
        self.of_version(group, version)
            .find(|resource| resource.kind == kind)
    }

    /// The resource of stored objects: in the requested version if it is served, else in any.
    pub(crate) fn of_storage(
        &self,
        (group, plural): &(String, String),
        api_version: &str,
    ) -> Option<Arc<Resource>> {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        self.find(group, version, plural)
            .or_else(|| self.all().find(|resource| resource.is(group, plural)).cloned())
    }

    /// Serves the versions of a definition instead of those of its predecessor.
    pub(crate) fn install(&mut self, crd: &Value, compiled: &Arc<CompiledCrd>) {
        let names = &crd["spec"]["names"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, plural) = (text(&crd["spec"]["group"]), text(&names["plural"]));
        self.uninstall(&group, &plural);
        for version in compiled.served() {
            let mut subresources = Vec::new();
            if version.has_status() {
                subresources.push(
                    json!({"name": "status", "kind": names["kind"], "verbs": ["get", "patch", "update"]}),
                );
            }
            if version.scale().is_some() {
                subresources.push(json!({"name": "scale", "kind": "Scale", "group": "autoscaling", "version": "v1", "verbs": ["get", "patch", "update"]}));
            }
            let kind = text(&names["kind"]);
            let singular = names["singular"]
                .as_str()
                .map_or_else(|| kind.to_lowercase(), str::to_owned);
            self.insert(Resource {
                group: group.clone(),
                version: version.name.clone(),
                kind,
                list_kind: text(&names["listKind"]),
                plural: plural.clone(),
                singular,
                namespaced: crd["spec"]["scope"] == "Namespaced",
                short_names: texts(&names["shortNames"]),
                categories: texts(&names["categories"]),
                verbs: [
                    "delete",
                    "deletecollection",
                    "get",
                    "list",
                    "patch",
                    "create",
                    "update",
                    "watch",
                ]
                .map(str::to_owned)
                .to_vec(),
                subresources,
                schema: Arc::new(version.schema().clone()),
                custom: Some((compiled.clone(), version.name.clone())),
            });
        }
    }

    pub(crate) fn uninstall(&mut self, group: &str, plural: &str) {
        self.resources
            .retain(|_, resource| !(resource.is(group, plural) && resource.custom.is_some()));
    }
}
