//! CustomResourceDefinitions: compiled once, they prune, default and validate objects.
//!
//! The parts: `definition`, `version_schema` and `schema_nodes` judge the definition itself, `structural` is the compiled schema with its defaults, `values` and `rules` validate
//! objects, `formats` knows the formats of text. All of it is pure and knows no kind.

mod cel_functions;
mod cel_rewriting;
mod cel_values;
mod definition;
mod formats;
mod path;
mod rule_types;
mod rules;
mod schema_nodes;
mod structural;
mod values;
mod version_schema;

use serde_json::{Value, json};

use crate::cause::{Cause, NO_FIELD};
use crate::checks::text;
use crate::metadata;
use crate::schema::types::{self, TypeSchema};
use path::Path;
use structural::Structural;

pub(crate) use definition::check_update;

/// CEL as rules have it, for expressions elsewhere.
pub(crate) mod cel {
    pub(crate) use super::cel_functions::with_functions;
    pub(crate) use super::cel_values::open;
    pub(crate) use super::rule_types::undeclared;
    pub(crate) use super::rules::{compile, error_text, parse};
}

/// A compiled CustomResourceDefinition.
#[derive(Debug)]
pub struct CompiledCrd {
    versions: Vec<CrdVersion>,
}

/// One version of a compiled CustomResourceDefinition.
#[derive(Debug)]
pub struct CrdVersion {
    /// Name of the version.
    pub name: String,
    served: bool,
    type_schema: TypeSchema,
    raw: Value,
    structural: Structural,
    definition: Value,
}

impl CompiledCrd {
    /// Compiles a definition.
    ///
    /// # Errors
    /// What is wrong with the definition: an unknown shape, a bad pattern, a CEL rule that does not compile.
    pub fn compile(crd: &Value) -> Result<Self, Vec<Cause>> {
        let causes = definition::check(crd);
        if !causes.is_empty() {
            return Err(causes);
        }
        let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
        Ok(Self {
            versions: versions.map(CrdVersion::compile).collect(),
        })
    }

    /// A served version by name.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<&CrdVersion> {
        self.served().find(|version| version.name == name)
    }

    /// The version by whose schema an object is read that was stored under an apiVersion: that of storage where there is no such one any more.
    pub(crate) fn of_stored(&self, api_version: &str) -> Option<&CrdVersion> {
        let name = api_version.rsplit('/').next().unwrap_or_default();
        let named = self.versions.iter().find(|version| version.name == name);
        named.or_else(|| {
            let mut versions = self.versions.iter();
            versions.find(|version| version.definition["storage"] == true)
        })
    }

    /// Whether objects are read alike by another definition.
    pub(crate) fn has_schemas_of(&self, other: &Self) -> bool {
        let same = |(one, other): (&CrdVersion, &CrdVersion)| one.name == other.name && one.raw == other.raw;
        self.versions.len() == other.versions.len() && self.versions.iter().zip(&other.versions).all(same)
    }

    /// All served versions.
    pub fn served(&self) -> impl Iterator<Item = &CrdVersion> {
        self.versions.iter().filter(|version| version.served)
    }
}

impl CrdVersion {
    fn compile(version: &Value) -> Self {
        let raw = version["schema"]["openAPIV3Schema"].clone();
        Self {
            name: text(&version["name"]).to_owned(),
            served: version["served"].as_bool().unwrap_or(false),
            type_schema: TypeSchema::custom(&raw),
            structural: Structural::compile(&raw),
            raw,
            definition: version.clone(),
        }
    }

    /// Its schema, for patches and pruning.
    #[must_use]
    pub fn schema(&self) -> &TypeSchema {
        &self.type_schema
    }

    /// Its schema as written.
    #[must_use]
    pub fn raw_schema(&self) -> &Value {
        &self.raw
    }

    /// Removes unknown fields and returns their paths.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        types::prune(&self.type_schema, object)
    }

    /// Removes nulls that mean nothing and fills in defaults.
    pub fn default(&self, object: &mut Value) {
        self.structural.drop_nulls(object);
        self.structural.fill_defaults(object);
    }

    /// What is wrong with an object; `old` is the object that it replaces. Errors in parts that `old` has too are tolerated.
    #[must_use]
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<Cause> {
        let root = Path::root("");
        let mut causes = values::validate(&self.structural, new, old, &root);
        self.validate_scale(new, &mut causes);
        embedded(&self.structural, new, &root, &mut causes);
        let mut before = Vec::new();
        if let Some(old) = old {
            values::validate_lists(&self.structural, old, &root, &mut before);
        }
        if before.is_empty() {
            values::validate_lists(&self.structural, new, &root, &mut causes);
        }
        if self.structural.has_rules && causes.iter().any(Cause::blocks_rules) {
            let problem = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            causes.push(Cause::invalid(NO_FIELD, &Value::Null, problem));
        } else {
            causes.extend(rules::validate(&self.structural, new, old, &root));
        }
        causes
    }

    /// Numbers of replicas that the scale subresource could not show.
    fn validate_scale(&self, object: &Value, causes: &mut Vec<Cause>) {
        let scale = &self.definition["subresources"]["scale"];
        for key in ["specReplicasPath", "statusReplicasPath"] {
            let Some(path) = scale[key].as_str() else { continue };
            let value = path
                .trim_start_matches('.')
                .split('.')
                .fold(object, |value, part| &value[part]);
            match (value.is_null(), value.as_i64()) {
                (true, _) => {}
                (_, None) => causes.push(Cause::invalid(
                    path,
                    &json!(0),
                    &format!("{path} accessor error: {value} is not an integer"),
                )),
                (_, Some(count)) if count < 0 => {
                    causes.push(Cause::invalid(path, value, "should be a non-negative integer"))
                }
                (_, Some(count)) if count > i64::from(i32::MAX) => {
                    causes.push(Cause::invalid(
                        path,
                        value,
                        &format!("should be less than or equal to {}", i32::MAX),
                    ));
                }
                _ => {}
            }
        }
    }

    /// True when status is a subresource.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.definition["subresources"]["status"].is_object()
    }

    /// `(spec path, status path, selector path)` of the scale subresource, as dotted paths.
    #[must_use]
    pub fn scale(&self) -> Option<(String, String, Option<String>)> {
        let scale = self.definition["subresources"]["scale"].as_object()?;
        let path = |key: &str| {
            scale
                .get(key)
                .and_then(Value::as_str)
                .map(|path| path.trim_start_matches('.').to_owned())
        };
        Some((
            path("specReplicasPath")?,
            path("statusReplicasPath")?,
            path("labelSelectorPath"),
        ))
    }

    /// Printer columns; the Age column when there are none.
    #[must_use]
    pub fn printer_columns(&self) -> Vec<Value> {
        match self.definition["additionalPrinterColumns"].as_array() {
            Some(columns) if !columns.is_empty() => columns.clone(),
            _ => vec![json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})],
        }
    }

    /// Paths that field selectors may name, without the leading dot.
    #[must_use]
    pub fn selectable_fields(&self) -> Vec<String> {
        let fields = self.definition["selectableFields"].as_array();
        fields
            .into_iter()
            .flatten()
            .map(|field| text(&field["jsonPath"]).trim_start_matches('.').to_owned())
            .collect()
    }
}

/// Objects inside the object that carry their own kind must have one, and sound metadata.
fn embedded(schema: &Structural, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if !schema.has_embedded {
        return;
    }
    match value {
        Value::Object(map) => {
            if schema.embedded {
                embedded_resource(value, path, causes);
            }
            for (key, child) in map {
                match (schema.properties.get(key), &schema.additional) {
                    (Some(node), _) => embedded(node, child, &path.field(key), causes),
                    (None, Some(node)) => embedded(node, child, &path.key(key), causes),
                    _ => {}
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                list.iter()
                    .enumerate()
                    .for_each(|(index, item)| embedded(items, item, &path.index(index), causes));
            }
        }
        _ => {}
    }
}

fn embedded_resource(object: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    for name in ["apiVersion", "kind"] {
        let (value, path) = (&object[name], path.field(name));
        match value.as_str() {
            None if value.is_null() => causes.push(Cause::required(path, "")),
            None => causes.push(Cause::invalid(path, value, "must be a string")),
            Some("") => causes.push(Cause::invalid(path, value, "must not be empty")),
            Some(version) if name == "apiVersion" && version.matches('/').count() > 1 => {
                causes.push(Cause::invalid(
                    path,
                    value,
                    &format!("unexpected GroupVersion string: {version}"),
                ));
            }
            Some(kind) if name == "kind" => {
                if let Some(problem) = definition::dns_1035(&kind.to_lowercase()) {
                    causes.push(Cause::invalid(
                        path,
                        value,
                        &format!("may have mixed case, but should otherwise match: {problem}"),
                    ));
                }
            }
            Some(_) => {}
        }
    }
    if object["metadata"].is_object() {
        let mut found = Vec::new();
        let mut shell = json!({"metadata": object["metadata"]});
        if text(&shell["metadata"]["name"]).is_empty() {
            shell["metadata"]["name"] = json!("unnamed");
        }
        // Any segment of a path will do as a name, as for roles.
        metadata::check("", "rbac.authorization.k8s.io", &shell, &mut found);
        causes.extend(found.into_iter().map(|cause| Cause {
            field: format!("{path}.{}", cause.field),
            ..cause
        }));
    }
}

#[cfg(test)]
mod cel_tests;
#[cfg(test)]
mod tests;
