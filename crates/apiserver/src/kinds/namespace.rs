//! Namespaces: their own label, phase and finalizer, and the columns of `kubectl get namespaces`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::columns::{AGE, Column, NAME, created, name};
use super::filling::with;
use super::keeping::copy;
use super::{KindRules, PLAIN};
use crate::error::ApiResult;
use crate::store::state::State;

pub(super) const RULES: KindRules = KindRules {
    default,
    admit,
    update: keep_finalizers,
    columns: &[NAME, Column("Status", "string", 0), AGE],
    cells,
    ..PLAIN
};

/// Every namespace can be selected by its name.
fn default(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if name.as_str().is_some_and(|name| !name.is_empty()) {
        with(&mut object["metadata"]["labels"], |labels| {
            labels.insert("kubernetes.io/metadata.name".to_owned(), name);
        });
    }
}

fn admit(_: &State, object: &mut Value) -> ApiResult<()> {
    object["status"] = json!({"phase": "Active"});
    object["spec"]["finalizers"] = json!(["kubernetes"]);
    let name = object["metadata"]["name"].clone();
    with(&mut object["metadata"]["labels"], |labels| {
        labels.insert("kubernetes.io/metadata.name".to_owned(), name);
    });
    Ok(())
}

/// What holds a namespace until it is empty changes through its own subresource only.
fn keep_finalizers(old: &Value, new: &mut Value) {
    copy("finalizers", &old["spec"], &mut new["spec"]);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        object["status"]["phase"].clone(),
        created(object, now),
    ]
}
