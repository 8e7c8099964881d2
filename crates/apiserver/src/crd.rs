//! CustomResourceDefinitions: compiled once, they prune, default and validate objects.
//!
//! Owns structural schemas and the wording of their errors; CEL rules are evaluated by kube-cel.

use kube_cel::{CompiledSchema, ErrorKind, Validator, apply_defaults, compile_schema};
use serde_json::{Value, json};

use crate::schema::{self, TypeSchema};
use crate::structural;

/// One thing wrong with an object; the causes of a 422 Status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: &'static str,
    /// Path of the field.
    pub field: String,
    /// What is wrong, without the path.
    pub message: String,
}

impl Cause {
    /// `field: message`, as it stands in the Status's message.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
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
    /// `raw`, whose defaults have the defaults within them filled in.
    defaulting: Value,
    rules: CompiledSchema,
    has_rules: bool,
    rules_outside_spec: bool,
    definition: Value,
}

impl CompiledCrd {
    /// Compiles a definition.
    ///
    /// # Errors
    /// What is wrong with the definition: an unknown shape, a bad pattern, a CEL rule that does not compile.
    pub fn compile(crd: &Value) -> Result<Self, Vec<Cause>> {
        let mut causes = Vec::new();
        let mut versions = Vec::new();
        let expected = format!(
            "{}.{}",
            text(&crd["spec"]["names"]["plural"]),
            text(&crd["spec"]["group"])
        );
        if crd["metadata"]["name"] != json!(expected) {
            causes.push(Cause {
                reason: "FieldValueInvalid",
                field: "metadata.name".to_owned(),
                message: format!(
                    "Invalid value: {}: must be spec.names.plural+\".\"+spec.group",
                    crd["metadata"]["name"]
                ),
            });
        }
        for key in ["group", "names", "scope", "versions"] {
            if crd["spec"][key].is_null() {
                causes.push(Cause {
                    reason: "FieldValueRequired",
                    field: format!("spec.{key}"),
                    message: "Required value".to_owned(),
                });
            }
        }
        for (index, version) in crd["spec"]["versions"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
        {
            let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
            let raw = version["schema"]["openAPIV3Schema"].clone();
            if raw.is_null() {
                causes.push(Cause {
                    reason: "FieldValueRequired",
                    field: path,
                    message: "Required value: schemas are required".to_owned(),
                });
                continue;
            }
            structural::check_schema(&raw, &path, &mut causes);
            let rules = compile_schema(&raw);
            for error in rules.compilation_errors() {
                causes.push(Cause {
                    reason: "FieldValueInvalid",
                    field: format!("{path}.x-kubernetes-validations"),
                    message: format!("Invalid value: compilation failed: {error}"),
                });
            }
            versions.push(CrdVersion {
                name: text(&version["name"]).to_owned(),
                served: version["served"].as_bool().unwrap_or(false),
                type_schema: TypeSchema::custom(&raw),
                has_rules: has_rules(&raw),
                rules_outside_spec: rules_outside_spec(&raw),
                defaulting: with_complete_defaults(&raw),
                raw,
                rules,
                definition: version.clone(),
            });
        }
        if causes.is_empty() {
            Ok(Self { versions })
        } else {
            Err(causes)
        }
    }

    /// A served version by name.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<&CrdVersion> {
        self.versions
            .iter()
            .find(|version| version.served && version.name == name)
    }

    /// All served versions.
    pub fn served(&self) -> impl Iterator<Item = &CrdVersion> {
        self.versions.iter().filter(|version| version.served)
    }
}

fn has_rules(schema: &Value) -> bool {
    schema.to_string().contains("x-kubernetes-validations")
}

fn rules_outside_spec(schema: &Value) -> bool {
    !schema["x-kubernetes-validations"].is_null()
        || schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .any(|(name, property)| name != "spec" && has_rules(property))
}

/// A default that is itself an object lacks the defaults of its fields: kube-cel inserts it as written, Kubernetes goes on into it.
fn with_complete_defaults(schema: &Value) -> Value {
    let mut schema = schema.clone();
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            schema[key] = with_complete_defaults(&schema[key]);
        }
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut() {
            *property = with_complete_defaults(property);
        }
    }
    if schema["default"].is_object() || schema["default"].is_array() {
        schema["default"] = apply_defaults(&schema, &schema["default"]);
    }
    schema
}

/// The message that the schema gives a rule; a rule that could not be evaluated is named by it.
fn declared_message<'a>(schema: &'a Value, rule: &str) -> Option<&'a str> {
    match schema {
        Value::Object(fields) if fields.get("rule").is_some_and(|text| text == rule) => {
            fields.get("message")?.as_str()
        }
        Value::Object(fields) => fields.values().find_map(|field| declared_message(field, rule)),
        Value::Array(items) => items.iter().find_map(|item| declared_message(item, rule)),
        _ => None,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl CrdVersion {
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
        schema::prune(&self.type_schema, object)
    }

    /// Fills in defaults.
    pub fn default(&self, object: &mut Value) {
        structural::drop_nulls_with_default(&self.raw, object);
        let metadata = object["metadata"].take();
        let mut defaulted = apply_defaults(&self.defaulting, object);
        defaulted["metadata"] = metadata;
        *object = defaulted;
    }

    /// What is wrong with an object, in the order of the schema; `old` is the object that it replaces.
    #[must_use]
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Vec::new();
        structural::validate(&self.raw, new, &mut causes);
        if !self.has_rules {
            return causes;
        }
        if !causes.is_empty() {
            causes.push(Cause {
                reason: "FieldValueInvalid",
                field: "<nil>".to_owned(),
                message: "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation".to_owned(),
            });
            return causes;
        }
        // Rules look at the spec; a status update with the same spec cannot break them.
        if !self.rules_outside_spec && old.is_some_and(|old| old["spec"] == new["spec"]) {
            return causes;
        }
        let Err(errors) = Validator::new().validate_compiled(&self.rules, new, old) else {
            return causes;
        };
        for error in errors.into_vec() {
            let field = error.field_path.trim_start_matches('.').to_owned();
            let value = structural::shown_at(new, &field);
            let message = match error.kind {
                // Objects and lists are not shown since Kubernetes 1.36.
                ErrorKind::ValidationFailure if matches!(value.as_str(), "\"object\"" | "\"array\"") => {
                    format!("Invalid value: {}", error.message)
                }
                ErrorKind::ValidationFailure => format!("Invalid value: {value}: {}", error.message),
                _ => format!(
                    "Invalid value: {value}: {} evaluating rule: {}",
                    error.message,
                    declared_message(&self.raw, &error.rule).unwrap_or(&error.rule)
                ),
            };
            causes.push(Cause {
                reason: "FieldValueInvalid",
                field,
                message,
            });
        }
        causes
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
