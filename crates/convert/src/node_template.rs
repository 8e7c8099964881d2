//! AWSNodeTemplate (`karpenter.k8s.aws/v1alpha1`), and the block `provider` of a Provisioner, as EC2NodeClass.

use serde_json::{Map, Value, json};

use crate::fields::{Fields, get, set};
use crate::node_class;
use crate::report::Notes;
use crate::{Context, World, metadata};

/// Where the fields of a class come from.
pub(crate) struct Origin<'a> {
    /// `spec`, or `spec.provider` inside a Provisioner.
    pub(crate) path: &'a str,
    /// The name of the class.
    pub(crate) name: &'a str,
}

/// Converts one AWSNodeTemplate.
pub(crate) fn convert(object: Value, context: &Context, world: &mut World, notes: &mut Notes) {
    let mut fields = Fields::of("", object, notes);
    fields.take("apiVersion");
    fields.take("kind");
    let meta = metadata::converted(fields.take("metadata").unwrap_or_default(), notes);
    let spec = fields.take("spec").unwrap_or_default();
    if fields.take("status").is_some() {
        notes.dropped("status", "written by the controllers");
    }
    fields.report_rest(notes);
    let class = class("spec", spec, meta, context, notes);
    world.push(class, notes);
}

/// Makes the class of a block `provider`.
pub(crate) fn from_provider(
    provider: Value,
    origin: &Origin<'_>,
    context: &Context,
    world: &mut World,
    notes: &mut Notes,
) {
    let mut provider = provider;
    if let Some(map) = provider.as_object_mut() {
        // The block named its own type; there is only one.
        map.remove("apiVersion");
        map.remove("kind");
    }
    let meta = json!({"name": origin.name});
    let class = class(origin.path, provider, meta, context, notes);
    world.push(class, notes);
}

fn class(path: &str, spec: Value, meta: Value, context: &Context, notes: &mut Notes) -> Value {
    let mut class = json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": meta,
        "spec": {},
    });
    let mut fields = Fields::of(path, spec, notes);
    for key in [
        "userData",
        "context",
        "instanceProfile",
        "tags",
        "metadataOptions",
        "blockDeviceMappings",
        "detailedMonitoring",
    ] {
        if let Some(value) = fields.take(key) {
            set(&mut class, &["spec", key], value);
        }
    }
    selectors(&mut fields, &mut class, notes);
    if fields.take("launchTemplate").is_some() {
        notes.manual(
            &fields.path("launchTemplate"),
            "launch templates of one's own are not supported since v1beta1: write what it holds as amiSelectorTerms, userData, blockDeviceMappings, securityGroupSelectorTerms and role",
        );
    }
    let family = fields.take("amiFamily");
    let path_of_family = fields.path("amiFamily");
    fields.report_rest(notes);
    let family = family.and_then(|family| family.as_str().map(str::to_owned));
    if family.is_none() {
        notes.added("spec.amiSelectorTerms", "AL2, which was the family by default");
    }
    let family = family.unwrap_or_else(|| "AL2".to_owned());
    let options = get(&class, &["spec", "metadataOptions"]).cloned();
    if let Some(options) = options {
        alpha_metadata_options(&options, &mut class, notes);
    }
    node_class::images(&family, &path_of_family, &mut class, notes);
    node_class::keep_defaults(&mut class, notes);
    context.identity(&mut class, notes);
    class
}

/// Once the block was there, v1alpha1 passed on only what it says; the rest was EC2's default.
fn alpha_metadata_options(options: &Value, class: &mut Value, notes: &mut Notes) {
    for (key, value) in [
        ("httpPutResponseHopLimit", json!(1)),
        ("httpTokens", json!("optional")),
    ] {
        if options[key].is_null() {
            notes.added(
                &format!("spec.metadataOptions.{key}"),
                format!("{value}, EC2's default, which held where metadataOptions did not say otherwise"),
            );
            set(class, &["spec", "metadataOptions", key], value);
        }
    }
}

fn selectors(fields: &mut Fields, class: &mut Value, notes: &mut Notes) {
    for (key, terms_key) in [
        ("subnetSelector", "subnetSelectorTerms"),
        ("securityGroupSelector", "securityGroupSelectorTerms"),
        ("amiSelector", "amiSelectorTerms"),
    ] {
        let Some(selector) = fields.nested(key, notes) else {
            continue;
        };
        let terms = terms(selector, key == "amiSelector", notes);
        let field = fields.path(key);
        let became = format!("spec.{terms_key}");
        match terms.len() {
            0 => notes.manual(&field, "selects nothing; v1 needs at least one term"),
            1 => notes.moved(&field, &became, "one term"),
            number => notes.moved(
                &field,
                &became,
                format!("{number} terms: one for each combination of the values between commas"),
            ),
        }
        set(class, &["spec", terms_key], Value::Array(terms));
    }
}

/// The terms that choose what a selector chose: values between commas are alternatives, keys must all hold.
fn terms(mut selector: Fields, is_image: bool, notes: &mut Notes) -> Vec<Value> {
    let mut ids = Vec::new();
    for key in ["aws-ids", "aws::ids"] {
        ids.extend(alternatives(selector.take(key).as_ref()));
    }
    let names = alternatives(
        if is_image {
            selector.take("aws::name")
        } else {
            None
        }
        .as_ref(),
    );
    let owners = alternatives(
        if is_image {
            selector.take("aws::owners")
        } else {
            None
        }
        .as_ref(),
    );
    let mut terms: Vec<Value> = vec![json!({})];
    multiply(&mut terms, &["owner"], &owners);
    multiply(&mut terms, &["name"], &names);
    let path = selector.path("");
    let tags: Map<String, Value> = selector.rest();
    let has_tags = !tags.is_empty();
    for (key, value) in tags {
        let values = alternatives(Some(&value));
        if values.is_empty() {
            notes.changed(
                &format!("{path}{key}"),
                "tags",
                "an empty value is refused by v1; * is written, which any value matches",
            );
            multiply(&mut terms, &["tags", &key], &["*".to_owned()]);
        } else {
            multiply(&mut terms, &["tags", &key], &values);
        }
    }
    if is_image && has_tags {
        notes.changed(
            path.trim_end_matches('.'),
            "spec.amiSelectorTerms",
            "tags on images that name labels of nodes no longer bind an image to instance types; use one EC2NodeClass for each image",
        );
    }
    if ids.is_empty() {
        terms.retain(|term| term.as_object().is_some_and(|term| !term.is_empty()));
        return terms;
    }
    if terms.iter().any(|term| term != &json!({})) {
        notes.changed(
            path.trim_end_matches('.'),
            "id",
            "v1 selects by ID alone: what is said of tags, names and owners beside IDs is not looked at",
        );
    }
    ids.into_iter().map(|id| json!({"id": id})).collect()
}

/// The values between commas.
fn alternatives(value: Option<&Value>) -> Vec<String> {
    let text = match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => return Vec::new(),
        Some(other) => other.to_string(),
    };
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Each term once with each value; unchanged without values.
fn multiply(terms: &mut Vec<Value>, path: &[&str], values: &[String]) {
    if values.is_empty() {
        return;
    }
    let before = std::mem::take(terms);
    for term in before {
        for value in values {
            // More terms than any list may have are refused in the end; there is no need to write a million.
            if terms.len() > 1000 {
                return;
            }
            let mut term = term.clone();
            set(&mut term, path, json!(value));
            terms.push(term);
        }
    }
}
