//! What HorizontalPodAutoscalers say of the size of a workload: not below one number of pods, not above another.
//!
//! Where it is between them is up to metrics, which no dump has. Which pods a workload makes is the business of `workloads`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::dump::Dump;
use super::workloads::{or_default, workload_key};

/// The kind.
pub(super) const KIND: &str = "HorizontalPodAutoscaler";

/// What is read of one.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Autoscaler {
    metadata: Name,
    spec: Spec,
}

#[derive(Clone, Debug, Deserialize)]
struct Name {
    #[serde(default)]
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    scale_target_ref: Target,
    min_replicas: Option<i32>,
    max_replicas: i32,
}

#[derive(Clone, Debug, Deserialize)]
struct Target {
    kind: String,
    name: String,
}

impl Autoscaler {
    /// For a sentence.
    pub(super) fn shown(&self) -> String {
        let Name { namespace, name } = &self.metadata;
        format!("{KIND} {}/{name}", or_default(namespace))
    }

    /// What it scales, as `Deployment/shop/web`.
    fn target(&self) -> String {
        let Target { kind, name } = &self.spec.scale_target_ref;
        workload_key(kind, &self.metadata.namespace, name)
    }

    /// How many pods it makes of those that its target asks for, whatever the metrics say. It leaves a target alone that asks for none.
    pub(super) fn bounded(&self, asked: i64) -> i64 {
        match asked {
            0 => 0,
            asked => asked
                .max(self.spec.min_replicas.unwrap_or(1).into())
                .min(self.spec.max_replicas.into()),
        }
    }
}

/// By what they scale, as `Deployment/shop/web`; of several for one target the later one counts.
pub(super) fn by_target(autoscalers: &[Autoscaler]) -> BTreeMap<String, &Autoscaler> {
    autoscalers.iter().map(|one| (one.target(), one)).collect()
}

impl Dump {
    /// How many pods workloads may have once they are scaled up, by `Deployment/shop/web`.
    pub(super) fn most_replicas(&self) -> BTreeMap<String, i64> {
        let bounds = by_target(&self.autoscalers).into_iter();
        bounds
            .map(|(target, one)| (target, one.spec.max_replicas.into()))
            .collect()
    }
}
