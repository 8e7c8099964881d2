//! Whether an API server and the controllers would accept a converted object: schema, CEL rules, and what controllers check beyond them.

use std::sync::OnceLock;

use serde_json::Value;
use spokeshave_api::NodePool;
use spokeshave_api::validation::{LabelRules, node_pool_failures};
use spokeshave_apiserver::CompiledCrd;
use spokeshave_convert::{definitions, served_version};
use spokeshave_provider_aws::labels;

use crate::field;

/// Why an object would be refused: fields and sentences; empty when it would not, or when its kind is not one of Karpenter's.
pub(crate) fn refusals(object: &Value) -> Vec<(String, String)> {
    let Some(kind) = definition_of(object) else {
        return Vec::new();
    };
    let name = object["apiVersion"].as_str().and_then(|own| own.split_once('/'));
    let Some(version) = name.and_then(|(_, version)| kind.version(version)) else {
        return Vec::new();
    };
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    // Unknown fields are reported by the conversion itself, and dropped by a server.
    version.prune(&mut object);
    version.default(&mut object);
    let mut found: Vec<(String, String)> = version
        .validate(&object, None)
        .into_iter()
        // An error without a field means that rules were not checked, in addition to its causes.
        .filter(|cause| cause.field.starts_with("spec") || cause.field.starts_with("metadata"))
        .map(|cause| {
            let said = cause.sentence();
            (cause.field, said)
        })
        .collect();
    if object["metadata"]["name"].as_str().is_none_or(str::is_empty)
        && object["metadata"]["generateName"].is_null()
    {
        found.push((
            "metadata.name".to_owned(),
            "metadata.name: Required value".to_owned(),
        ));
    }
    if found.is_empty() && object["kind"] == "NodePool" {
        found.extend(runtime_failures(object));
    }
    found
}

/// What the condition ValidationSucceeded would say.
fn runtime_failures(object: Value) -> Vec<(String, String)> {
    let group = object["spec"]["template"]["spec"]["nodeClassRef"]["group"].clone();
    let rules = match group.as_str() {
        Some("karpenter.k8s.aws") => LabelRules {
            restricted_domains: vec!["karpenter.k8s.aws".to_owned()],
            well_known: labels::WELL_KNOWN.iter().map(|&label| label.to_owned()).collect(),
            unsupported: labels::unsupported(),
        },
        _ => LabelRules::default(),
    };
    match field::read::<NodePool>(&object.to_string()) {
        Ok(pool) => node_pool_failures(&pool, &rules)
            .into_iter()
            .map(|failure| ("spec.template".to_owned(), failure))
            .collect(),
        Err(problem) => vec![("spec".to_owned(), problem)],
    }
}

fn definition_of(object: &Value) -> Option<&'static CompiledCrd> {
    static COMPILED: OnceLock<Vec<(String, String, CompiledCrd)>> = OnceLock::new();
    let compile = || {
        let definitions = definitions();
        let compiled = definitions.iter().filter_map(|definition| {
            let kind = definition["spec"]["names"]["kind"].as_str()?.to_owned();
            let compiled = CompiledCrd::compile(definition).ok()?;
            Some((served_version(definition)?, kind, compiled))
        });
        compiled.collect()
    };
    let (version, kind) = (object["apiVersion"].as_str()?, object["kind"].as_str()?);
    COMPILED
        .get_or_init(compile)
        .iter()
        .find(|(own, name, _)| own == version && name == kind)
        .map(|(_, _, compiled)| compiled)
}
