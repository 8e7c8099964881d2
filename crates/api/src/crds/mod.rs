//! The CustomResourceDefinitions of our kinds (P §1.0–1.5), built from the same constants as the types.
//!
//! Owns patterns, bounds, defaults, CEL rules with their messages, printer columns and descriptions. The first seven are the interface and
//! equal Karpenter's; the descriptions are ours and are what `kubectl explain` shows. A test holds every field of the types against them.

mod aks_node_class;
mod capacity_buffer;
mod disruption;
mod disruption_policy;
mod ec2_node_class;
mod kwok;
mod node_claim;
mod node_overlay;
mod node_pool;
mod shared;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use serde_json::{Value, json};

/// The cloud whose own kinds are defined besides the common ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cloud {
    /// Nodes that are objects only: KWOKNodeClass and KWOKInstance.
    Kwok,
    /// EC2: EC2NodeClass.
    Aws,
    /// Azure: AKSNodeClass.
    Azure,
}

/// All CustomResourceDefinitions of the kwok cloud, in the order in which they are printed.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    crds_of(Cloud::Kwok)
}

/// All CustomResourceDefinitions of a cloud, in the order in which they are printed.
#[must_use]
pub fn crds_of(cloud: Cloud) -> Vec<CustomResourceDefinition> {
    crd_values_of(cloud)
        .into_iter()
        .map(|value| {
            serde_json::from_value(value).expect("the definitions above are CustomResourceDefinitions")
        })
        .collect()
}

/// A definition that takes anything, as that of another version may take what this one cannot read.
#[must_use]
pub fn without_schema(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut definition.spec.versions {
        version.schema = Some(CustomResourceValidation {
            open_api_v3_schema: Some(JSONSchemaProps {
                type_: Some("object".to_owned()),
                x_kubernetes_preserve_unknown_fields: Some(true),
                ..JSONSchemaProps::default()
            }),
        });
    }
    definition
}

/// All CustomResourceDefinitions of the kwok cloud as JSON values.
#[must_use]
pub fn crd_values() -> Vec<Value> {
    crd_values_of(Cloud::Kwok)
}

/// All CustomResourceDefinitions of a cloud as JSON values.
#[must_use]
pub fn crd_values_of(cloud: Cloud) -> Vec<Value> {
    let mut values = vec![
        node_pool::crd(),
        node_claim::crd(),
        node_overlay::crd(),
        capacity_buffer::crd(),
        disruption::crd(),
        disruption_policy::crd(),
    ];
    match cloud {
        Cloud::Kwok => values.extend([kwok::node_class(), kwok::instance()]),
        Cloud::Aws => values.push(ec2_node_class::crd()),
        Cloud::Azure => values.push(aks_node_class::crd()),
    }
    values
}

/// All CustomResourceDefinitions of the kwok cloud as YAML documents, ready for `kubectl apply --server-side -f -`.
#[must_use]
pub fn crds_yaml() -> String {
    crds_yaml_of(Cloud::Kwok)
}

/// All CustomResourceDefinitions of a cloud as YAML documents, ready for `kubectl apply --server-side -f -`.
#[must_use]
pub fn crds_yaml_of(cloud: Cloud) -> String {
    let mut text = String::new();
    for value in crd_values_of(cloud) {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&value).expect("a JSON value can be written as YAML"));
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}

/// Everything of a definition but its schema.
struct Definition {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    categories: &'static [&'static str],
    short_names: &'static [&'static str],
    columns: Vec<Value>,
    scale: Option<Value>,
    schema: Value,
}

impl Definition {
    fn build(self) -> Value {
        let mut subresources = json!({"status": {}});
        if let Some(scale) = self.scale {
            subresources["scale"] = scale;
        }
        let mut names = json!({
            "kind": self.kind,
            "listKind": format!("{}List", self.kind),
            "plural": self.plural,
            "singular": self.kind.to_lowercase(),
        });
        if !self.categories.is_empty() {
            names["categories"] = json!(self.categories);
        }
        if !self.short_names.is_empty() {
            names["shortNames"] = json!(self.short_names);
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{}", self.plural, self.group)},
            "spec": {
                "group": self.group,
                "names": names,
                "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
                "versions": [{
                    "name": self.version,
                    "served": true,
                    "storage": true,
                    "additionalPrinterColumns": self.columns,
                    "subresources": subresources,
                    "schema": {"openAPIV3Schema": self.schema},
                }],
            },
        })
    }
}

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path})
}

fn wide_column(name: &str, kind: &str, path: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path, "priority": 1})
}

#[cfg(test)]
mod tests;
