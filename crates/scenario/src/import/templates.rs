//! Where objects of other API groups keep the templates of their pods, as the configuration of a trace tells it.
//!
//! Owns the paths. How many pods are made from a template stands beside it: `replicas`, or else `parallelism`, or it is one.

use std::collections::BTreeMap;

use serde_json::Value;

use super::objects::{Meta, Workload};
use super::stream::Identity;

/// Templates of one object.
const MOST: usize = 1_000;

/// JSON pointers, in which `*` is every element, by version and kind, such as `argoproj.io/v1alpha1.Rollout`.
#[derive(Debug, Default)]
pub(super) struct Templates(BTreeMap<String, Vec<String>>);

impl Templates {
    /// Reads `config`.
    pub(super) fn read(config: &Value) -> Self {
        let tracked = config.pointer("/trackedObjects").and_then(Value::as_object);
        let tracked = tracked.into_iter().flatten();
        let paths = tracked.map(|(kind, tracked)| {
            let paths = tracked["podSpecTemplatePaths"].as_array().into_iter().flatten();
            let paths = paths.filter_map(Value::as_str).map(str::to_owned);
            (kind.clone(), paths.collect::<Vec<String>>())
        });
        Self(paths.filter(|(_, paths)| !paths.is_empty()).collect())
    }

    /// Whether it is told where objects of a version and kind keep theirs.
    pub(super) fn are_known(&self, kind: &str) -> bool {
        self.0.contains_key(kind)
    }

    /// An object as workloads, one for each of its templates.
    ///
    /// # Errors
    /// One of them is none.
    pub(super) fn of(
        &self,
        (kind, namespace, name): &Identity,
        object: &Value,
    ) -> Result<Vec<Workload>, serde_json::Error> {
        let paths = self.0.get(kind).into_iter().flatten();
        let places: Vec<String> = paths
            .flat_map(|path| places(object, path))
            .filter(|place| object.pointer(place).is_some_and(Value::is_object))
            .take(MOST)
            .collect();
        let is_one = places.len() == 1;
        let workload = |(index, place): (usize, &String)| -> Result<Workload, serde_json::Error> {
            let name = if is_one {
                name.clone()
            } else {
                format!("{name}-{index}")
            };
            Ok(Workload {
                kind: kind.clone(),
                meta: Meta {
                    namespace: Some(namespace.clone()),
                    name: Some(name),
                    ..Meta::default()
                },
                replicas: count(object, place),
                template: object
                    .pointer(place)
                    .cloned()
                    .map(serde_json::from_value)
                    .transpose()?,
                ..Workload::default()
            })
        };
        places.iter().enumerate().map(workload).collect()
    }
}

/// How many pods are made from the template at this place.
fn count(object: &Value, place: &str) -> u32 {
    let beside = place
        .rsplit_once('/')
        .and_then(|(above, _)| object.pointer(above));
    let told = beside.and_then(|beside| {
        let counts = ["replicas", "parallelism"].map(|field| beside[field].as_u64());
        counts.into_iter().flatten().next()
    });
    u32::try_from(told.unwrap_or(1)).unwrap_or(u32::MAX)
}

/// The places that a path leads to.
fn places(object: &Value, path: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for part in path.split('/').skip(1) {
        found = match part {
            "*" => found
                .iter()
                .flat_map(|place| below(object, place))
                .take(MOST)
                .collect(),
            part => found.iter().map(|place| format!("{place}/{part}")).collect(),
        };
    }
    found
}

/// Every element of a list or a map.
fn below(object: &Value, place: &str) -> Vec<String> {
    match object.pointer(place) {
        Some(Value::Array(items)) => (0..items.len()).map(|index| format!("{place}/{index}")).collect(),
        Some(Value::Object(map)) => {
            let keys = map.keys().map(|key| key.replace('~', "~0").replace('/', "~1"));
            keys.map(|key| format!("{place}/{key}")).collect()
        }
        _ => Vec::new(),
    }
}
